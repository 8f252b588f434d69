"""What the tests of the queue share.

For:     test_queue_*.py of test/it.
Must not know: the console; what is waited for shows on the wire or in the tables.
Entry points: fixtures qproxy, q; shared, shared_db, shared_proxy; stream, take_events; tag, error, take, parked, jobs, state_of, woken, send_all, results.
"""

import json
import os
import re
import struct

import psycopg
import pytest

from pgwire import PgError
from proxy import Proxy, wait_for
from tree import ROOT

INT8, INT2, INT4, TEXT, INTERVAL, TIMESTAMPTZ, JSONB, JSON, VARCHAR, BOOL, FLOAT8, TEXT_ARRAY = (
    20, 21, 23, 25, 1186, 1184, 3802, 114, 1043, 16, 701, 1009)

OIDS = {"INT8": INT8, "INT4": INT4, "TEXT": TEXT, "INTERVAL": INTERVAL, "TIMESTAMPTZ": TIMESTAMPTZ, "JSONB": JSONB,
        "BOOL": BOOL, "FLOAT8": FLOAT8, "TEXT_ARRAY": TEXT_ARRAY, "PAYLOAD": JSONB}


def columns_of(row):
    """Names and types of a row of include/qlang/rows.h, which test_queue_calls.py compares with Postgres."""
    with open(os.path.join(ROOT, "include", "qlang", "rows.h"), encoding="utf-8") as f:
        (text,) = re.findall(r"#define ROW_%s\((.*?[^\\])\n" % row, f.read(), re.S)
    return [(name, OIDS[oid]) for name, oid in re.findall(r"COL\((\w+), (\w+)\)", text)]


JOB_COLUMNS = columns_of("TAKEN")

# A parked client hears of it: its heartbeat says that it waits.
HEARTBEAT = "20ms"


@pytest.fixture
def qproxy(qbouncer):
    return qbouncer(queue_heartbeat=HEARTBEAT)


# Modules of many small tests share a proxy and a database: they import shared, shared_db and
# shared_proxy. Each test finds the database without queues and tables; the proxy is checked when the
# module ends.

CLEAN = """
DO $$
DECLARE
    name text;
BEGIN
    IF to_regprocedure('queue.drop(text, boolean, boolean)') IS NOT NULL THEN
        FOR name IN SELECT queue FROM queue.list() LOOP
            PERFORM queue.drop(name, true);
        END LOOP;
    END IF;
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'
        AND nspname NOT IN ('information_schema', 'queue') LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
    GRANT ALL ON SCHEMA public TO PUBLIC;
END $$
"""


class Shared:
    """A database and a proxy before it."""

    def __init__(self, program, cluster, **settings):
        self.cluster = cluster
        self.name = cluster.createdb(owner="app")
        self.proxy = Proxy(program, cluster, queue_heartbeat=HEARTBEAT, **settings).start()
        self.direct = psycopg.connect(cluster.dsn(self.name), autocommit=True)
        self.wires = []
        self.wire = self.proxy.wire
        self.proxy.wire = self.remember

    def remember(self, *args, **more):
        self.wires.append(self.wire(*args, **more))
        return self.wires[-1]

    def nobody(self):
        pool = self.proxy.pool(self.name)
        return not pool or pool["cl_active"] + pool["cl_waiting"] == 0

    def clean(self):
        """Nobody is connected, nothing is there."""
        if self.wires:
            for w in self.wires:
                w.close()
            self.wires.clear()
            wait_for(self.nobody, "the end of all clients")
        self.direct.execute(CLEAN)

    def end(self):
        self.direct.close()
        try:
            self.proxy.stop()
        finally:
            self.proxy.remove()
            self.cluster.dropdb(self.name)


@pytest.fixture(scope="module")
def shared(program, cluster):
    one = Shared(program, cluster, queue_rescan="1h")
    yield one
    one.end()


@pytest.fixture(name="db")
def shared_db(shared):
    shared.clean()
    return shared.name


@pytest.fixture(name="qproxy")
def shared_proxy(request, shared, db):
    request.node.proxies = [shared.proxy]
    return shared.proxy


@pytest.fixture
def q(qproxy, db):
    """A raw connection and the queue `mail`."""
    with qproxy.wire(db) as c:
        c.rows("QUEUE CREATE mail")
        yield c


@pytest.fixture(name="c")
def stream(request, qproxy, db):
    """A raw connection, the stream `orders` and its subscription `bi`, with what the module says in SUBSCRIBED."""
    with qproxy.wire(db) as c:
        for row in c.rows("SELECT name FROM queue.streams") if c.rows("SELECT to_regclass('queue.streams')::text AS t")[0]["t"] else []:
            tag(c, "QUEUE DROP IF EXISTS " + row["name"])
        tag(c, "QUEUE CREATE orders WITH (kind = stream)")
        tag(c, "QUEUE SUBSCRIBE bi TO orders" + getattr(request.module, "SUBSCRIBED", ""))
        yield c
        c.simple("ROLLBACK")
        tag(c, "QUEUE DROP IF EXISTS orders")


def take_events(c, more=""):
    """Of that subscription: (token, payloads); None: there are no events."""
    rows = c.rows("QUEUE TAKE orders FOR bi " + more)
    return (rows[0]["token"] if rows else None), [r["payload"] for r in rows]


def tag(c, sql):
    """Runs it; the tag of its last CommandComplete; errors are raised."""
    got = c.simple(sql)
    for m in got:
        if m.type == "E":
            raise PgError(m)
    return [m.tag for m in got if m.type == "C"][-1]


def error(c, sql):
    with pytest.raises(PgError) as e:
        tag(c, sql)
    return e.value


def take(c, sql="QUEUE TAKE mail"):
    """The one row of it."""
    rows = c.rows(sql)
    assert len(rows) == 1, rows
    return rows[0]


def parked(*wires):
    """Until each of them is held in the waiting room: an unasked ParameterStatus comes only there."""
    for w in wires:
        while True:
            msg = w.recv()
            if msg.type == "S":
                break
            assert msg.type in "12TC", "not a wait: %r" % (w.log[-5:],)


def job_of(messages):
    """The first row of a TAKE among messages, as a dict of texts."""
    row = next(m for m in messages if m.type == "D").text_row
    return dict(zip([n for n, _ in JOB_COLUMNS], row))


def woken(w):
    """The job with which a wait by Query ends."""
    return job_of(w.until("Z"))


def stats(c, queue="mail"):
    row = c.rows("QUEUE STATS \"%s\"" % queue)[0]
    return {k: int(row[k]) for k in ("ready", "later", "leased", "dead")}


def peek(c, queue="mail", state=None):
    """Without what passes by itself while a job runs."""
    rows = c.rows("QUEUE PEEK \"%s\" LIMIT 1000%s" % (queue, " STATE " + state if state else ""))
    for row in rows:
        del row["ran"]
    return rows


def come_back(c, sql="QUEUE TAKE mail"):
    """The job, once it is there."""
    return wait_for(lambda: c.rows(sql), "a job for " + sql)[0]


def send_all(qproxy, db, statements):
    wires = []
    for sql in statements:
        w = qproxy.wire(db)
        w.query(sql)
        wires.append(w)
    return wires


def results(wires):
    """Tag or SQLSTATE of each."""
    got = []
    for w in wires:
        messages = w.until("Z")
        errors = [m for m in messages if m.type == "E"]
        got.append(PgError(errors[0]).sqlstate if errors else [m.tag for m in messages if m.type == "C"][0])
    return got


def int4(n):
    return struct.pack("!i", n)


def int8(n):
    return struct.pack("!q", n)


def interval(seconds):
    return struct.pack("!qii", int(seconds * 1000000), 0, 0)


def decoded(oid, data):
    """A binary value as the text that says the same; timestamps as microseconds since 2000."""
    if data is None:
        return None
    if oid == INT8:
        return str(struct.unpack("!q", data)[0])
    if oid == INT4:
        return str(struct.unpack("!i", data)[0])
    if oid == BOOL:
        return "t" if data == b"\1" else "f"
    if oid == FLOAT8:
        return "%g" % struct.unpack("!d", data)[0]
    if oid == TEXT_ARRAY:
        dimensions, _, of = struct.unpack("!iii", data[:12])
        assert dimensions <= 1 and of == TEXT
        at, items = 20, []
        while at < len(data):
            (n,) = struct.unpack("!i", data[at:at + 4])
            items.append(data[at + 4:at + 4 + n].decode())
            at += 4 + n
        return "{%s}" % ",".join(items)
    if oid == JSONB:
        assert data[:1] == b"\1"
        json.loads(data[1:])
        return data[1:].decode()
    if oid == TIMESTAMPTZ:
        assert len(data) == 8
        return struct.unpack("!q", data)[0]
    if oid == INTERVAL:
        return data.hex()
    assert oid == TEXT, oid
    return data.decode()


class Listener:
    """A session that hears what proxies hear: of whom, and which queue."""

    def __init__(self, conn):
        self.conn = conn
        self.got = []
        conn.add_notify_handler(lambda n: self.got.append((n.pid, n.payload)))
        conn.execute("LISTEN qbouncer")

    def heard(self):
        """All that was committed until now, but what only says that a proxy is there."""
        self.conn.execute("SELECT pg_notify('qbouncer', '(end)')")
        while "(end)" not in [n[1] for n in self.got]:     # more may have come behind it
            self.conn.execute("SELECT")
        got = [n for n in self.got if n[1] not in ("", "(end)")]
        self.got.clear()
        return got
