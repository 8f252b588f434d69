"""The statements that the proxy sends by itself, and the columns that clients are told of, against the functions of
sql/: src/queue/calls.h and include/qlang/rows.h are the one side, the catalogue of a real Postgres is the other."""

import os
import re
import subprocess

import psycopg
from queuetest import INT8, tag

XID8 = 5069  # in rows the same bytes as INT8, in text and in binary: clients are told of that one
PAYLOADS = "jsonb", "text", "bytea"


def calls():
    """(name, text, [types of parameters], [(column, type)]) of each."""
    program = os.path.join(os.environ.get("QB_BUILD") or "build/asan", "dev", "gen")
    out = subprocess.run([program, "calls"], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        name, sql, params, columns = line.split("\t")
        yield (name, sql, [int(p) for p in params.split()],
               [(c.rpartition(":")[0], int(c.rpartition(":")[2])) for c in columns.split()])


def described(pg, sql, types, asked=None):
    """What Postgres makes of a statement: types of parameters and columns. asked: 0 where it is to find out, if it
    can (CASE WHEN ... THEN $1 is a text for it)."""
    done = pg.prepare(b"", sql.encode(), asked or types)
    if asked and done.error_message:
        done = pg.prepare(b"", sql.encode(), types)
    assert done.status == psycopg.pq.ExecStatus.COMMAND_OK, (sql, done.error_message.decode())
    got = pg.describe_prepared(b"")
    return ([got.param_type(i) for i in range(got.nparams)],
            [(got.fname(i).decode(), got.ftype(i)) for i in range(got.nfields)])


def test_calls(proxy, db, direct):
    numbers = {}
    with proxy.wire(db) as c:
        for payload in PAYLOADS:
            tag(c, "QUEUE CREATE %s WITH (payload = %s)" % (payload, payload))
            numbers[payload] = [r["number"] for r in c.rows("QUEUE LIST") if r["queue"] == payload][0]
        tag(c, "QUEUE CREATE TOPIC orders")
        topic = c.rows("SELECT number FROM queue.topics")[0]["number"]
        tag(c, "QUEUE CREATE events WITH (kind = stream)")
        stream = c.rows("SELECT number FROM queue.streams")[0]["number"]
    seen = 0
    for name, sql, types, columns in calls():
        at = topic if name.startswith("PUBLISH") else stream if name == "TAKE_FOR_DIRECT" else numbers["jsonb"]
        sql = sql.replace("@", at).replace("%d", "1").replace("'%s'", "'{1,2}'").replace("%s", "(true)")
        # a template of a verb: its values are whatever they are
        sql = re.sub(r"\{(named|kept|read|failed|whose)\}", "", sql)
        sql = re.sub(r"\{[a-z_]+\}", "NULL", sql)
        used = {int(n) for n in re.findall(r"\$([0-9]+)", sql)}
        asked = [0 if n in used else t for n, t in enumerate(types, 1)]
        params, got = described(direct.pgconn, sql, types, asked)
        assert params == types[:len(params)] and not [n for n in used if n > len(types)], name
        assert [(column, INT8 if oid == XID8 else oid) for column, oid in got] == columns, name
        described(direct.pgconn, sql, types)
        seen += 1
    assert seen > 40
