"""PUSH with expressions as values: the client's own SQL, run on its own server."""

import datetime
import json
import struct

import psycopg
import pytest

from pgwire import types
from proxy import wait_for
from queuetest import (HEARTBEAT, INT8, TEXT, error, int4, parked, peek, q, shared, shared_db, shared_proxy, stats, tag,  # noqa: F401
                       woken)

INTERVAL = 1186
ROWS = ("SELECT payload, priority, headers, max_attempts, key, \"group\", state,"
        " round(extract(epoch FROM run_at - pushed_at)) AS late, round(extract(epoch FROM expires_at - run_at)) AS use"
        " FROM queue.q_mail ORDER BY id")


def test_in_every_clause(q):
    assert tag(q, "QUEUE PUSH mail (jsonb_build_object('a', 1 + 1)) PRIORITY (2 * 3) AT (now() + interval '1 hour')"
                  " EXPIRES (interval '1 min' * 2) HEADERS (json_build_object('h', upper('x'))) ATTEMPTS (length('abc'))"
                  " GROUP ('g' || 1) KEY (concat('k', 2)) ON DUPLICATE REPLACE") == "INSERT 0 1"
    assert q.rows(ROWS) == [{"payload": '{"a": 2}', "priority": "6", "headers": '{"h": "X"}', "max_attempts": "3", "key": "k2",
                             "group": "g1", "state": "later", "late": "3600", "use": "120"}]
    tag(q, "QUEUE PUSH mail '2', ('[' || 3 || ']'), (SELECT to_jsonb(max(x)) FROM (VALUES (4), (5)) AS v(x)) DELAY ('1 min'::interval * 3)")
    rows = q.rows(ROWS)[1:]
    assert [(r["payload"], r["late"]) for r in rows] == [("2", "180"), ("[3]", "180"), ("5", "180")]


@pytest.mark.parametrize("at", [
    "(now() + interval '1 hour')", "(now() + '1h'::interval)", "(SELECT now() + interval '1 hour')", "(now() + $$1 hour$$)",
    "(now() /* ) */ + interval '1 hour' -- )\n)", "((((now())) + ((interval '1 hour'))))", "(now() + interval E'1 \\150our')",
    "(CASE WHEN ')' = '(' THEN NULL ELSE now() + interval '1 hour' END)", "(now() + interval '1 hour')::timestamptz",
    "(now() + (SELECT \")\" FROM (SELECT interval '1 hour' AS \")\") AS x))", "(now() + interval '1 hour') -- a comment\n",
    "(now() + interval '1' hour)", "(timestamptz 'now' + interval '1 hour')", "(now() + 60 * make_interval(mins => 1))",
    "(GREATEST(now(), now() + interval '1 hour'))",
])
def test_what_an_expression_may_be(q, at):
    assert q.rows("QUEUE PUSH mail '1' AT %s RETURNING ID" % at) == [{"id": "1"}]
    assert q.rows(ROWS)[0]["late"] == "3600"


def test_null_is_not_given(q):
    tag(q, "QUEUE PUSH mail '1' AT (NULLIF(1, 1)::text::timestamptz) KEY (NULLIF('a', 'a'))")
    assert [(r["state"], r["key"]) for r in q.rows(ROWS)] == [("ready", None)]


@pytest.mark.parametrize("sql, state, at", [
    ("QUEUE PUSH mail '1' AT (now() + nosuch)", "42703", "nosuch"),
    ("/* äö */ QUEUE PUSH mail ('ä' || nosuch)", "42703", "nosuch"),
    ("QUEUE PUSH mail ('1'||''), (x), (2 + y) AT (nosuch)", "42703", "x)"),
    ("SELECT 'ü'; QUEUE PUSH mail '1' PRIORITY (1 + 'x')", "22P02", "'x'"),
    ("QUEUE PUSH mail '1' AT (SELECT now() FROM nosuch)", "42P01", "nosuch"),
    ("QUEUE PUSH mail '1' AT (nosuch(1))", "42883", "nosuch"),
    ("QUEUE PUSH mail '1' AT (SELECT now() FROM queue.q_none)", "42P01", "queue.q_none"),
    ("QUEUE PUSH mail '1' AT (now() + )", "42601", ")"),
    ("QUEUE PUSH mail '1' AT (now()", "42601", ""),
    ("QUEUE PUSH mail '1' AT (now()))", "42601", ")"),
    ("QUEUE PUSH mail '1' AT (now(); DROP TABLE queue.queues)", "42601", ";"),
    ("QUEUE PUSH mail '1' AT ()", "42601", ")"),
    ("QUEUE PUSH mail '1' AT (now() + 'x)", "42601", "'x)"),
    ("QUEUE PUSH mail '1' AT (now() $a$)", "42601", "$a$)"),
    ("QUEUE PUSH mail '1' AT (now() /* )", "42601", "/*"),
    ("QUEUE PUSH mail '1' AT (now()) + '1h'", "42601", "+"),
    ("QUEUE PUSH mail '1' AT now()", "42601", "now"),
    ("QUEUE PUSH mail '1' AT (now() + $1)", "42P02", None),
    ("QUEUE PUSH mail '1' AT (1 + 1)", "42846", None),
    ("QUEUE PUSH mail '1' AT (SELECT i::text::timestamptz FROM generate_series(1, 2) AS i)", "22", None),
    ("QUEUE PUSH mail '1' AT (SELECT now() FROM generate_series(1, 2))", "21000", None),
    ("QUEUE PUSH mail (generate_series(1, 3))", "0A000", None),
    ("QUEUE PUSH mail '1' AT (SELECT p FROM p)", "42P01", "p)"),
    ("QUEUE PUSH mail '1' AT (p)", "42703", "p)"),
    ("QUEUE PUSH mail ('{' || 'x')", "22P02", None),
    ("QUEUE PUSH mail (NULLIF('1', '1'))", "22004", None),
    ("QUEUE PUSH nosuch (1 + 1)", "42P01", None),
    ("QUEUE PUSH mail '1' AT (SELECT set_config('a', 'b'))", "42883", "set_config"),
    ("QUEUE PUSH mail '1' AT ('infinity'::timestamptz + '1h')", "22008", None),
    ("QUEUE DONE 17 THEN PUSH mail (1 + 1)", "42601", "+"),
    ("QUEUE TAKE mail WAIT ('1s' || '')", "42601", "||"),
])
def test_errors(q, sql, state, at):
    e = error(q, sql)
    assert e.sqlstate.startswith(state), e.fields
    if at is not None:
        assert sql[int(e.fields["P"]) - 1:].startswith(at), e.fields
    assert stats(q) == {"ready": 0, "later": 0, "leased": 0, "dead": 0}
    assert q.rows("SELECT count(*) AS n FROM queue.queues") == [{"n": "1"}]


def test_it_is_run_as_whoever_pushes(q, qproxy, db):
    q.rows("CREATE TABLE secret AS SELECT now() AS x; REVOKE ALL ON secret FROM PUBLIC;"
           " CREATE TABLE q_ueue AS SELECT now() AS x; REVOKE ALL ON q_ueue FROM PUBLIC")
    with qproxy.wire(db, "other") as c:
        e = error(c, "QUEUE PUSH mail (to_json(current_user))")
        assert e.sqlstate == "42501" and "QUEUE GRANT PUSH ON mail TO" in e.fields["H"]
        q.rows("QUEUE GRANT PUSH ON mail TO other")
        assert tag(c, "QUEUE PUSH mail (to_json(current_user))") == "INSERT 0 1"
        for table in ("secret", "q_ueue"):
            e = error(c, "QUEUE PUSH mail '1' AT (SELECT x FROM %s)" % table)
            assert e.sqlstate == "42501" and table in e.message and "H" not in e.fields
        # its own names, and none of ours
        assert error(c, "QUEUE PUSH mail '1' AT (run_at)").sqlstate == "42703"
    assert json.loads(peek(q)[0]["payload"]) == "other"


def test_its_own_path(q, qproxy, db):
    """Where names are looked for is the client's matter, and what it makes there is seen by nobody else."""
    q.rows("CREATE SCHEMA mine; CREATE FUNCTION mine.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$")
    q.rows("SET search_path = mine, pg_catalog")
    assert error(q, "QUEUE PUSH mail '1' AT (now())").sqlstate == "22008"
    with qproxy.wire(db) as other:
        assert tag(other, "QUEUE PUSH mail '1' AT (now())") == "INSERT 0 1"


def test_what_it_does_to_the_session(qproxy, db, q):
    """... follows its client, and reaches nobody else."""
    fresh = q.rows("SHOW work_mem")
    push = "QUEUE PUSH mail '1' HEADERS (json_build_object('a', set_config('work_mem', '%dkB', false)))"
    with qproxy.wire(db) as other:
        tag(q, push % 77)
        assert other.rows("SHOW work_mem") == fresh and q.rows("SHOW work_mem") == [{"work_mem": "77kB"}]
        q.hold().parse("s", push % 78).bind("", "s").execute().sync().push().until("Z")
        assert other.rows("SHOW work_mem") == fresh and q.rows("SHOW work_mem") == [{"work_mem": "78kB"}]
        tag(q, "SELECT 1; " + push % 79)
        assert other.rows("SHOW work_mem") == fresh and q.rows("SHOW work_mem") == [{"work_mem": "79kB"}]
        tag(q, "QUEUE PUSH mail (to_jsonb(pg_try_advisory_lock(4711)))")
        assert other.rows("SELECT pg_try_advisory_lock(4711) AS got") == [{"got": "f"}]
        assert other.rows("SELECT pg_backend_pid() AS p") != q.rows("SELECT pg_backend_pid() AS p")
        tag(q, "SELECT pg_advisory_unlock_all()")


@pytest.mark.parametrize("push", [
    "QUEUE PUSH mail '1' PRIORITY (SELECT 1 FROM pg_advisory_lock(99))", "QUEUE PUSH mail SELECT 1 FROM pg_advisory_lock(99)",
    "SELECT 1; QUEUE PUSH mail (SELECT '1' FROM pg_advisory_lock(99))", "SELECT pg_advisory_lock(99); QUEUE PUSH mail '1'"])
def test_what_would_keep_a_server_is_refused(qbouncer, cluster, push):
    """... where max_pinned_servers are kept, as of a SELECT."""
    name = cluster.createdb(owner="app")
    proxy = qbouncer(default_pool_size=2, max_pinned_servers=0, queue_heartbeat=HEARTBEAT)
    with proxy.wire(name) as c:
        tag(c, "QUEUE CREATE mail")
        assert error(c, push).sqlstate == "53400"
        if ";" not in push:
            got = c.hold().parse("", push).bind().execute().sync().push().until("Z")
            assert [m.sqlstate for m in got if m.type == "E"] == ["53400"]
        assert c.rows("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND objid = 99") == [{"n": "0"}]
        tag(c, "BEGIN")
        assert error(c, push).sqlstate == "53400" and error(c, "SELECT 1").sqlstate == "25P02"
        assert tag(c, "COMMIT") == "ROLLBACK" and stats(c)["ready"] == 0
        assert tag(c, "QUEUE PUSH mail (SELECT '1' FROM pg_advisory_xact_lock(99))") == "INSERT 0 1"
        proxy.console("SET max_pinned_servers = 1")
        tag(c, push)
        assert stats(c)["ready"] == 2
        tag(c, "SELECT pg_advisory_unlock_all()")


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("push, runs", [
    ("QUEUE PUSH mail (length('\\\\'))", False), ("QUEUE PUSH mail SELECT length('\\\\')", False),
    ("QUEUE PUSH mail '2' KEY 'a\\'", "merged"), ("QUEUE PUSH mail (length('ä') + 1)", True)])
def test_prepared_under_other_strings(q, push, runs, block):
    """What its quotes are was found out when it was prepared, and it is sent when it is executed."""
    def run(prepare):
        q.hold()
        if prepare:
            q.parse("s", push)
        got = q.bind("", "s").execute().sync().push().until("Z")
        return [m.sqlstate for m in got if m.type == "E"]
    assert run(True) == []
    tag(q, "QUEUE CANCEL 1")
    tag(q, "SET standard_conforming_strings = off")
    if block:
        tag(q, "BEGIN")
    assert run(False) == ([] if runs is True or (runs == "merged" and not block) else ["0A000"])
    if block:
        tag(q, "COMMIT")
    tag(q, "SET standard_conforming_strings = on")
    if runs is not True:
        tag(q, "DELETE FROM queue.q_mail")
    assert run(False) == []
    assert {r["payload"] for r in peek(q)} == {"2"}


def test_in_a_transaction(q):
    q.rows("BEGIN")
    q.rows("CREATE TABLE t AS SELECT 5 AS x")
    assert q.rows("QUEUE PUSH mail (SELECT to_jsonb(x) FROM t) RETURNING ID") == [{"id": "1"}]
    q.rows("SAVEPOINT a")
    assert error(q, "QUEUE PUSH mail (nosuch())").sqlstate == "42883"
    assert error(q, "QUEUE PUSH mail (1 + 1)").sqlstate == "25P02"
    q.rows("ROLLBACK TO a")
    tag(q, "QUEUE PUSH mail (2 + 2)")
    q.rows("COMMIT")
    assert [r["payload"] for r in peek(q)] == ["5", "4"]


def test_wakes_after_the_commit(q, qproxy, db):
    waiters = [qproxy.wire(db).query("QUEUE TAKE mail WAIT '60s'") for _ in range(2)]
    parked(*waiters)
    # who is asking when something comes is served behind who is not: the system session has come up, all have asked
    wait_for(lambda: [(r["system"], r["probing"]) for r in qproxy.console("SHOW QUEUES") if r["waiters"] != "0"] == [("up", "0")], "rest")
    tag(q, "QUEUE PUSH mail (1 + 1)")
    assert woken(waiters[0])["payload"] == "2"
    q.rows("BEGIN")
    tag(q, "QUEUE PUSH mail (3)::text, (2 + 2)")
    parked(waiters[1])
    q.rows("COMMIT")
    assert woken(waiters[1])["payload"] == "3"


def test_described_and_bound(q):
    q.hold().parse("p", "QUEUE PUSH mail $1 AT (now() + $2) PRIORITY $3 KEY ($4 || 'x') RETURNING JOB, ID").describe("S", "p").sync().push()
    got = q.until("Z")
    assert types(got) == "1tTZ" and got[1].oids == [TEXT, INTERVAL, TEXT, TEXT]
    assert [c[:2] for c in got[2].columns] == [("job", TEXT), ("id", INT8)]
    for n in range(3):
        q.hold().bind("", "p", ["5", "1 hour", "7", str(n)], results=[1]).describe("P").execute().sync().push()
        got = q.until("Z")
        assert types(got) == "2TDCZ" and got[-2].tag == "INSERT 0 1"
        assert got[2].row[0].endswith(b"-%d" % (n + 1)) and struct.unpack("!q", got[2].row[1]) == (n + 1,)
    assert [(r["key"], r["late"], r["priority"]) for r in q.rows(ROWS)] == [("%dx" % n, "3600", "7") for n in range(3)]
    # without rows the client is told of none
    q.hold().parse("", "QUEUE PUSH mail ($1::int + 1)").describe("S").bind("", "", [int4(2)], formats=[1]).describe("P").execute().sync().push()
    got = q.until("Z")
    assert types(got) == "1tn2nCZ" and got[-2].tag == "INSERT 0 1"
    q.hold().parse("", "QUEUE PUSH $1 ($2::int + 1)").describe("S").bind("", "", ["mail", "9"]).execute().sync().push()
    assert types(q.until("Z")) == "1tn2CZ"
    assert sorted(r["payload"] for r in peek(q) if r["state"] == "ready") == ["10", "3"]
    q.hold().parse("", "QUEUE PUSH mail (nosuch + 1)").describe("S").sync().push()
    got = q.until("Z")
    assert types(got) == "1EZ" and got[1].fields["P"] == "18"


def test_in_a_pipeline(q):
    q.hold()
    q.parse("", "SELECT 1").bind().execute()
    q.parse("", "QUEUE PUSH mail (2 + 3)").bind().execute()
    q.parse("", "QUEUE PUSH mail '6'").bind().execute()
    q.parse("", "SELECT 2").bind().execute().sync().push()
    assert types(q.until("Z")) == "12DC12C12C12DCZ"
    assert [r["payload"] for r in peek(q)] == ["5", "6"]


def test_payloads_of_all_types(q):
    for kind, value, wanted in (("text", "('a' || 1)", "a1"), ("bytea", "('\\x00ff'::bytea || '\\x01')", "\\x00ff01")):
        q.rows("QUEUE CREATE q%s WITH (payload = %s)" % (kind, kind))
        assert tag(q, "QUEUE PUSH q%s %s" % (kind, value)) == "INSERT 0 1"
        assert q.rows("QUEUE PEEK q%s" % kind)[0]["payload"] == wanted


def test_by_a_driver(qproxy, db, q):
    with psycopg.connect(qproxy.dsn(db)) as conn:
        for n in range(8):    # named statements after the fifth
            cur = conn.execute("QUEUE PUSH mail %s AT (now() + %s) PRIORITY (%s + 1) RETURNING ID",
                               (str(n), datetime.timedelta(hours=1), n))
            assert cur.fetchall() == [(2 * n + 1,)]
            cur = conn.execute("QUEUE PUSH mail %s DELAY (%s * interval '1 hour')", ("0", 2))
            assert cur.rowcount == 1
            conn.commit()   # on a busy machine a transaction grows old
        with psycopg.ClientCursor(conn) as cur:    # the simple protocol
            cur.execute("QUEUE PUSH mail %s AT (now() + %s)", ("{}", datetime.timedelta(hours=1)))
            assert cur.statusmessage == "INSERT 0 1"
        conn.commit()
    assert {r["late"] for r in q.rows(ROWS)} == {"3600", "7200"}


def test_large_ones(q):
    """As long as they are, they are one expression; too much for Postgres is its error."""
    n = 1000
    assert tag(q, "QUEUE PUSH mail (%s)" % "+".join(["1"] * n)) == "INSERT 0 1"
    assert peek(q)[0]["payload"] == str(n)
    assert tag(q, "QUEUE PUSH mail " + ", ".join("(%d + 1)" % i for i in range(1000))) == "INSERT 0 1000"
    e = error(q, "QUEUE PUSH mail (1+%s1%s)" % ("(" * 100000, ")" * 100000))
    assert e.sqlstate in ("54001", "42601") and e.message
    e = error(q, "QUEUE PUSH mail " + ", ".join("('ä' || %d)" % i for i in range(999)) + ", (nosuch)")
    assert e.sqlstate == "42703" and int(e.fields["P"]) > 9000
    assert q.rows("SELECT 1 AS x") == [{"x": "1"}]
