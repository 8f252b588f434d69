"""PUSH of a query and of a copy."""

import json
import os
import struct
import subprocess
import threading

import psycopg
import pytest

from pgcluster import pg_bin
from pgwire import types
from queuetest import (INT4, INT8, TEXT, error, int4, parked, peek, q, shared, shared_db, shared_proxy, stats, tag,  # noqa: F401
                       take, woken)

CSV_LINES = "(FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')"


def payloads(c, queue="mail"):
    return [json.loads(r["payload"]) for r in c.rows("QUEUE TAKE \"%s\" LIMIT 10000" % queue)]


def copy_in(c, sql, data):
    """The messages behind CopyInResponse."""
    got = c.query(sql).until("GZ")
    if got[-1].type == "Z":
        return got
    c.copy_data(data).copy_done()
    return c.until("Z")


# --- a query --------------------------------------------------------------------------------------

def test_select(q):
    assert tag(q, "QUEUE PUSH mail SELECT to_jsonb(i) FROM generate_series(1, 5) AS i") == "INSERT 0 5"
    assert payloads(q) == [1, 2, 3, 4, 5]


def test_select_in_its_order(q):
    tag(q, "QUEUE PUSH mail SELECT i::text AS x FROM generate_series(1, 500) AS i ORDER BY i % 7, i DESC")
    assert payloads(q) == sorted(range(1, 501), key=lambda i: (i % 7, -i))


@pytest.mark.parametrize("query, wanted", [
    ("SELECT '{\"a\": 1}'", {"a": 1}),
    ("SELECT '{\"a\": 1}'::json", {"a": 1}),
    ("SELECT json_build_object('a', 1)", {"a": 1}),
    ("SELECT 7", 7),
    ("SELECT 1.5::numeric", 1.5),
    ("SELECT true", True),
    ("SELECT '[1]' -- and a comment", [1]),
    ("SELECT '1' /* ; ) */", 1),
    ("SELECT $$\"it's; (\"$$", "it's; ("),
    ("WITH a AS (SELECT 1 AS x) SELECT x FROM a", 1),
    ("WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a WHERE x < 3) SELECT max(x) FROM a", 3),
    ("WITH a AS (SELECT 1 AS x), b AS NOT MATERIALIZED (SELECT x + 1 FROM a) SELECT * FROM b", 2),
    ("SELECT 1 WHERE true UNION SELECT 1", 1),
    ("SELECT 4 FROM (VALUES (1), (2)) AS v(x) ORDER BY x LIMIT 1 OFFSET 1 FOR UPDATE OF v", 4),
    ("SELECT count(*) FROM pg_class WHERE false", 0),
])
def test_what_a_query_may_be(q, query, wanted):
    assert tag(q, "QUEUE PUSH mail " + query) == "INSERT 0 1"
    assert payloads(q) == [wanted]


def test_nothing_selected(q):
    assert tag(q, "QUEUE PUSH mail SELECT '1' WHERE false") == "INSERT 0 0"


def test_rows_that_move(q):
    """WITH may change data: an outbox is emptied into a queue."""
    q.rows("CREATE TABLE outbox (id serial, body jsonb)")
    q.rows("INSERT INTO outbox (body) SELECT to_jsonb(i) FROM generate_series(1, 3) AS i")
    assert tag(q, "QUEUE PUSH mail WITH gone AS (DELETE FROM outbox RETURNING body)"
                  " SELECT body FROM gone") == "INSERT 0 3"
    assert q.rows("SELECT count(*) FROM outbox") == [{"count": "0"}]
    assert sorted(payloads(q)) == [1, 2, 3]


def test_values_and_tables(q):
    tag(q, "CREATE TABLE jobs AS SELECT n AS x, n * 2 AS y FROM generate_series(1, 3) AS n")
    assert tag(q, "QUEUE PUSH mail VALUES ('1'), ('\"b\"')") == "INSERT 0 2"
    assert tag(q, "QUEUE PUSH mail (payload, priority) VALUES ('3', 3), ('4', 1 + 3)") == "INSERT 0 2"
    assert tag(q, "QUEUE PUSH mail (payload, priority) TABLE jobs") == "INSERT 0 3"
    assert tag(q, "QUEUE PUSH mail WITH j AS (VALUES (7)) TABLE j") == "INSERT 0 1"
    assert tag(q, "QUEUE PUSH mail WITH j AS (SELECT 8) VALUES (8), (9)") == "INSERT 0 2"
    got = q.hold().parse("", "QUEUE PUSH mail VALUES ($1::text), ($2)").bind("", "", ["10", "11"]).execute().sync().push().until("Z")
    assert got[-2].tag == "INSERT 0 2"
    assert sorted(r["payload"] for r in q.rows("QUEUE PEEK mail LIMIT 99")) == sorted(
        ["1", '"b"', "3", "4", "1", "2", "3", "7", "8", "9", "10", "11"])


def test_words_of_what_is_computed(q):
    e = error(q, "QUEUE PUSH mail '1' AT now() + interval '1 day'")
    assert e.sqlstate == "42601" and "an expression in parentheses" in e.fields["H"]
    e = error(q, "QUEUE DONE (1 + 2)")
    assert e.sqlstate == "42601" and "compute it before" in e.fields["H"]
    assert tag(q, "QUEUE PUSH mail (payload, at) SELECT '1' AS \"returning\", now() + interval '1 day'") == "INSERT 0 1"


# --- the ids of what a query pushes ----------------------------------------------------------------

IDS = "QUEUE PUSH mail SELECT to_jsonb(i) FROM generate_series(1, 5) AS i ORDER BY i % 2, i DESC RETURNING "


def number(c):
    return c.rows("SELECT number FROM queue.queues WHERE name = 'mail'")[0]["number"]


@pytest.mark.parametrize("query", [
    "SELECT to_jsonb(i) FROM generate_series(1, 4) AS i",
    "VALUES (1), ('2'), (3), (4)",
    "TABLE jobs",
    "WITH gone AS (DELETE FROM jobs RETURNING x) SELECT x FROM gone",
    "SELECT x AS returning FROM jobs -- RETURNING x\n",
    "SELECT j.returning FROM (SELECT x AS returning FROM jobs) AS j",
    "SELECT json_build_object('a', x) FROM jobs",
])
def test_ids_of_a_query(q, query):
    tag(q, "CREATE TABLE jobs AS SELECT n AS x FROM generate_series(1, 4) AS n")
    got = q.simple("QUEUE PUSH mail %s RETURNING ID" % query)
    assert types(got) == "TDDDDCZ" and got[-2].tag == "INSERT 0 4"
    assert got[0].columns == [("id", INT8, 0)]
    assert [m.text_row for m in got[1:5]] == [["1"], ["2"], ["3"], ["4"]]
    n = number(q)
    assert q.rows("QUEUE PUSH mail %s RETURNING ID, JOB" % query.replace("TABLE jobs", "VALUES (0)").replace("FROM gone", "FROM gone UNION VALUES (1)"))[0] == {
        "id": "5", "job": n + "-5"}


def test_ids_in_the_order_of_the_query(q):
    for what in ("ID", "job", "JOB, ID", "ID, job"):
        rows = q.rows(IDS + what)
        pushed = q.rows("SELECT id, %s || '-' || id AS job, payload FROM queue.q_mail ORDER BY id" % number(q))
        assert [r["payload"] for r in pushed] == ["4", "2", "5", "3", "1"]
        names = [w.strip().lower() for w in what.split(",")]
        assert rows == [{n: r[n] for n in names} for r in pushed]
        tag(q, "QUEUE PURGE mail")
    # what they name is what they say
    one = q.rows("QUEUE PUSH mail SELECT '\"x\"' RETURNING JOB")[0]["job"]
    assert q.rows("QUEUE JOB '%s'" % one)[0]["payload"] == '"x"'
    assert q.simple("QUEUE PUSH mail SELECT 1 WHERE false RETURNING ID")[-2].tag == "INSERT 0 0"


@pytest.mark.parametrize("policy, rows, pushed", [
    ("", ["1", "2", "2", "3"], "INSERT 0 4"), ("ON DUPLICATE IGNORE", ["1", "2", "2", "3"], "INSERT 0 4"),
    ("ON DUPLICATE REPLACE", ["1", "2", "2", "3"], "INSERT 0 4"), ("ON DUPLICATE RERUN", ["1", "2", "2", "3"], "INSERT 0 4")])
def test_ids_of_keys(q, policy, rows, pushed):
    """Of the job that counts, new or not, as with a value."""
    tag(q, "QUEUE PUSH mail '0' KEY 'a'")
    got = q.simple("QUEUE PUSH mail (key, payload) %s VALUES ('a', 1), ('b', 2), ('b', 3), (NULL, 4) RETURNING ID" % policy)
    assert [m.text_row[0] for m in got if m.type == "D"] == rows and got[-2].tag == pushed
    got = q.rows("QUEUE PUSH mail (payload, group) SELECT i, 'g' FROM generate_series(1, 3) AS i RETURNING JOB, ID")
    assert [r["job"] for r in got] == [number(q) + "-" + r["id"] for r in got] and len({r["id"] for r in got}) == 3
    e = error(q, "QUEUE PUSH mail (payload, key) ON DUPLICATE ERROR SELECT 1, 'a' RETURNING ID")
    assert e.sqlstate == "23505"


def test_ids_of_queues_of_any_name_and_type(q):
    q.rows("QUEUE CREATE \"a'\\b\" WITH (payload = bytea)")
    q.rows("QUEUE CREATE other WITH (payload = text)")
    for queue in ("\"a'\\b\"", "other"):
        got = q.rows("QUEUE PUSH %s SELECT 'x' RETURNING ID, JOB" % queue)
        assert q.rows("QUEUE PEEK %s" % queue)[0]["job"] == got[0]["job"]


def test_ids_in_transactions_and_strings(q):
    q.rows("BEGIN")
    assert q.rows("QUEUE PUSH mail SELECT 1 RETURNING ID") == [{"id": "1"}]
    q.rows("ROLLBACK")
    assert q.rows("QUEUE PUSH mail SELECT 1 RETURNING ID") == [{"id": "2"}]
    got = q.simple("SELECT 7; QUEUE PUSH mail SELECT 2 RETURNING ID; QUEUE PUSH mail '3'; QUEUE PUSH mail '4' RETURNING ID")
    assert types(got) == "TDCTDCCTDCZ"
    assert [m.text_row[0] for m in got if m.type == "D"] == ["7", "3", "5"]
    # a queue that is made anew in a transaction whose snapshot is older
    q.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    q.rows("QUEUE DROP mail")
    q.rows("QUEUE CREATE mail")
    assert q.rows("QUEUE PUSH mail SELECT 1 RETURNING JOB") == [{"job": number(q) + "-1"}]
    q.rows("COMMIT")


def test_ids_as_they_are_described(q):
    sql = "QUEUE PUSH mail (payload, priority) SELECT $1::text, $2 FROM generate_series(1, 2) RETURNING %s"
    for what, columns in (("ID", [("id", INT8)]), ("ID, JOB", [("id", INT8), ("job", TEXT)])):
        q.hold().parse("p", sql % what).describe("S", "p").sync().push()
        got = q.until("Z")
        assert types(got) == "1tTZ" and got[1].oids == [TEXT, TEXT]
        assert [c[:2] for c in got[2].columns] == columns
        for formats in ([], [1]):
            q.hold().bind("", "p", ["5", "6"], results=formats).describe("P").execute().sync().push()
            got = q.until("Z")
            assert types(got) == "2TDDCZ" and [c[:2] for c in got[1].columns] == columns and got[-2].tag == "INSERT 0 2"
            row = got[2].row[0]
            assert struct.unpack("!q", row)[0] > 0 if formats else int(row) > 0
        q.hold().close_object("S", "p").sync().push()
        q.until("Z")


def test_ids_by_a_driver(qproxy, db, q):
    with psycopg.connect(qproxy.dsn(db)) as conn:
        for n in range(8):    # named statements after the fifth
            for binary in (False, True):
                cur = conn.cursor(binary=binary)
                cur.execute("QUEUE PUSH mail (payload, priority) SELECT to_jsonb(%s + i), 1 FROM generate_series(1, 3) AS i"
                            " RETURNING ID, JOB", (n,))
                got = cur.fetchall()
                assert cur.rowcount == 3 and [g[0] for g in got] == list(range(got[0][0], got[0][0] + 3))
                assert [g[1].split("-")[1] for g in got] == [str(g[0]) for g in got]
        conn.commit()
        with psycopg.ClientCursor(conn) as cur:    # the simple protocol
            cur.execute("QUEUE PUSH mail SELECT %s RETURNING ID", ("{}",))
            assert cur.fetchall() == [(49,)] and cur.statusmessage == "INSERT 0 1"
        conn.rollback()
    assert len(payloads(q)) == 48


def test_who_may_know_ids(q, qproxy, db):
    with qproxy.wire(db, "other") as other:
        for how in ("SELECT 1", "(payload, key) SELECT 1, 'k'"):
            assert error(other, "QUEUE PUSH mail %s RETURNING ID" % how).sqlstate == "42501"
        q.rows("QUEUE GRANT PUSH ON mail TO other")
        assert other.rows("QUEUE PUSH mail SELECT 1 RETURNING ID, JOB") == [{"id": "1", "job": number(q) + "-1"}]
        assert other.rows("QUEUE PUSH mail (payload, key) SELECT 1, 'k' RETURNING ID, JOB") == [{"id": "2", "job": number(q) + "-2"}]


def test_what_a_query_does_to_the_session(qproxy, db, q):
    """... follows its client, and reaches nobody else: that of a push as any other."""
    fresh = q.rows("SHOW work_mem")
    push = "QUEUE PUSH mail SELECT to_jsonb(set_config('work_mem', '%dkB', false))"
    with qproxy.wire(db) as other:
        tag(q, push % 77)
        assert other.rows("SHOW work_mem") == fresh and q.rows("SHOW work_mem") == [{"work_mem": "77kB"}]
        q.hold().parse("s", push % 78).bind("", "s").execute().sync().push().until("Z")
        assert other.rows("SHOW work_mem") == fresh and q.rows("SHOW work_mem") == [{"work_mem": "78kB"}]
        tag(q, "SELECT 1; " + push % 79)
        assert other.rows("SHOW work_mem") == fresh and q.rows("SHOW work_mem") == [{"work_mem": "79kB"}]
        tag(q, "QUEUE PUSH mail SELECT to_jsonb(pg_try_advisory_lock(4711))")
        assert other.rows("SELECT pg_try_advisory_lock(4711) AS got") == [{"got": "f"}]
        assert other.rows("SELECT pg_backend_pid() AS p") != q.rows("SELECT pg_backend_pid() AS p")
        tag(q, "SELECT pg_advisory_unlock_all()")


def test_columns(q):
    tag(q, "QUEUE PUSH mail (priority, payload, headers, attempts, expires) "
           "SELECT i, i, '{\"n\": 1}', 2, '1 hour' FROM generate_series(1, 3) AS i")
    rows = q.rows("SELECT priority, payload, headers, max_attempts, state, run_at, "
                  "expires_at - clock_timestamp() > '59 min' AS later FROM queue.q_mail ORDER BY id")
    assert rows == [{"priority": str(i), "payload": str(i), "headers": '{"n": 1}', "max_attempts": "2",
                     "state": "ready", "run_at": None, "later": "t"} for i in (1, 2, 3)]


def test_delayed(q):
    tag(q, "QUEUE PUSH mail (payload, delay) SELECT i, CASE i WHEN 1 THEN NULL WHEN 2 THEN '-1s' ELSE '1h' END "
           "FROM generate_series(1, 3) AS i")
    tag(q, "QUEUE PUSH mail (payload, at) SELECT 4, now() + interval '1 day'")
    assert [(r["payload"], r["state"]) for r in sorted(peek(q), key=lambda r: r["payload"])] == [
        ("1", "ready"), ("2", "ready"), ("3", "later"), ("4", "later")]
    assert payloads(q) == [1, 2]


@pytest.mark.parametrize("sql, state, text", [
    ("QUEUE PUSH mail SELECT 1, 2", "42601", "more columns"),
    ("QUEUE PUSH mail (payload, priority) SELECT 1, 2, 3", "42601", "more columns"),
    ("QUEUE PUSH mail (payload, priority) SELECT 1", "42P10", "the query has fewer columns than the push names"),
    ("QUEUE PUSH mail (payload, priority) VALUES (1)", "42P10", "the query has fewer columns than the push names"),
    ("QUEUE PUSH mail (payload, key) TABLE one", "42P01", "one"),
    ("QUEUE PUSH mail VALUES (1, 2)", "42601", "more columns"),
    ("QUEUE PUSH mail (payload, size) SELECT 1, 2", "42703", '"size"'),
    ("QUEUE PUSH mail (priority) SELECT 1", "42601", "payload"),
    ("QUEUE PUSH mail (payload, payload) SELECT 1, 1", "42701", "twice"),
    ("QUEUE PUSH mail (payload, at, delay) SELECT 1, now(), '1s'", "42601", "exclude"),
    ("QUEUE PUSH mail (payload, headers) SELECT 1, '[]'", "22023", "headers"),
    ("QUEUE PUSH mail (payload, attempts) SELECT 1, 0", "22023", "ATTEMPTS"),
    ("QUEUE PUSH mail (payload, expires) SELECT 1, '-1s'", "22023", "EXPIRES"),
    ("QUEUE PUSH mail (payload, at) SELECT 1, 'infinity'", "22008", "finite"),
    ("QUEUE PUSH mail SELECT NULL", "22004", "payload"),
    ("QUEUE PUSH mail SELECT 'no json'", "22P02", "json"),
    ("QUEUE PUSH mail SELECT 1) AS x; SELECT (2", "42601", ")"),
    ("QUEUE PUSH mail SELECT (1", "42601", "end of input"),
    ("QUEUE PUSH mail SELECT 1 /* (", "42601", "comment"),
    ("QUEUE PUSH mail SELECT 'x", "42601", "quoted string"),
    ("QUEUE PUSH nosuch SELECT 1", "42P01", 'queue "nosuch"'),
    ("QUEUE PUSH \"no\"\"such\" SELECT 1", "42P01", 'queue "no"such"'),
    ("QUEUE PUSH mail SELECT 1 FROM nosuch", "42P01", 'relation "nosuch"'),
    ("QUEUE PUSH $1 SELECT 1", "0A000", "parameter"),
    ("QUEUE PUSH mail SELECT $1::int", "42P02", "$1"),
    ("QUEUE PUSH mail WITH a AS (SELECT 1) DELETE FROM a", "42601", "syntax"),
    ("QUEUE PUSH mail SELECT 1 INTO t", "42601", "INTO"),
    ("QUEUE PUSH mail SELECT 1 RETURNING *", "42601", '"*"'),
    ("QUEUE PUSH mail SELECT 1 RETURNING ID, PRIORITY", "42601", '"PRIORITY"'),
    ("QUEUE PUSH mail SELECT 1 RETURNING ID UNION SELECT 2", "42601", '"UNION"'),
    ("QUEUE PUSH mail SELECT 1 RETURNING ID PRIORITY 3", "42601", '"PRIORITY"'),
    ("QUEUE PUSH mail SELECT no RETURNING ID", "42703", '"no"'),
    ("QUEUE PUSH mail FROM STDIN RETURNING ID", "0A000", "returns no ids"),
    ("QUEUE PUSH nosuch SELECT 1 RETURNING JOB", "42P01", 'queue "nosuch"'),
    ("QUEUE PUSH mail SELECT 1, 2 RETURNING ID", "42601", "more columns"),
    ("QUEUE PUSH mail SELECT", "42P10", "columns"),
])
def test_errors(q, sql, state, text):
    e = error(q, sql)
    assert e.sqlstate == state and text in e.message
    assert stats(q)["ready"] == 0


@pytest.mark.parametrize("sql, at", [
    ("QUEUE PUSH mail SELECT nosuch FROM generate_series(1, 2)", "nosuch"),
    ("/* äö */ QUEUE  PUSH mail WITH a AS (SELECT nosuch) SELECT 1", "nosuch"),
    ("QUEUE PUSH mail WITH a AS (SELECT 1) SELECT nosuch FROM a", "nosuch"),
    ("SELECT 'ü'; QUEUE PUSH mail SELECT nosuch", "nosuch"),
    ("QUEUE PUSH mail SELECT 1 FROM nosuch", "nosuch"),
    ("QUEUE PUSH mail FROM STDIN (FORMAT nosuch)", "FORMAT"),
])
def test_position_of_an_error(q, sql, at):
    e = error(q, sql)
    position = e.fields.get("P")
    assert position is not None and sql[int(position) - 1:].startswith(at), e.fields


def test_hint_of_a_queue_that_is_not_there(q):
    assert "QUEUE CREATE" in error(q, "QUEUE PUSH nosuch SELECT 1").fields["H"]
    assert "QUEUE CREATE" in error(q, "QUEUE PUSH nosuch FROM STDIN").fields["H"]


def test_a_name_that_needs_quotes(q):
    name = 'Ä"; DROP TABLE x; --'
    quoted = '"%s"' % name.replace('"', '""')
    q.rows("QUEUE CREATE " + quoted)
    assert tag(q, "QUEUE PUSH " + quoted + " SELECT 1") == "INSERT 0 1"
    assert tag(q, "QUEUE PUSH '%s' SELECT 2" % name) == "INSERT 0 1"
    assert types(copy_in(q, "QUEUE PUSH " + quoted + " FROM STDIN", b"3\n")) == "CZ"
    assert [r["payload"] for r in q.rows("QUEUE TAKE %s LIMIT 9" % quoted)] == ["1", "2", "3"]


def test_in_a_transaction(q, qproxy, db):
    q.rows("BEGIN")
    tag(q, "QUEUE PUSH mail SELECT generate_series(1, 3)")
    q.rows("ROLLBACK")
    assert stats(q)["ready"] == 0
    q.rows("BEGIN")
    q.rows("CREATE TABLE t AS SELECT 5 AS x")
    tag(q, "QUEUE PUSH mail SELECT x FROM t")
    q.rows("SAVEPOINT a")
    tag(q, "QUEUE PUSH mail SELECT 6")
    q.rows("ROLLBACK TO a")
    q.rows("COMMIT")
    assert payloads(q) == [5]


def test_wakes_after_the_commit(q, qproxy, db):
    waiters = []
    for _ in range(3):      # one behind the other: served is who waits longest
        waiters.append(qproxy.wire(db).query("QUEUE TAKE mail WAIT '60s'"))
        parked(waiters[-1])
    tag(q, "QUEUE PUSH mail SELECT generate_series(1, 2)")
    assert [woken(w)["payload"] for w in waiters[:2]] == ["1", "2"]
    q.rows("BEGIN")
    tag(q, "QUEUE PUSH mail SELECT 3")
    parked(waiters[2])
    q.rows("COMMIT")
    assert woken(waiters[2])["payload"] == "3"


def test_in_a_string_with_others(q):
    got = q.simple("CREATE TABLE t AS SELECT 1 AS x; QUEUE PUSH mail SELECT x FROM t; QUEUE PUSH mail '2'; SELECT 7")
    assert [m.tag for m in got if m.type == "C"] == ["SELECT 1", "INSERT 0 1", "INSERT 0 1", "SELECT 1"]
    assert payloads(q) == [1, 2]


def test_rights(q, qproxy, db, direct):
    with qproxy.wire(db, "other") as c:
        for sql, rights in (("QUEUE PUSH mail SELECT 1", "PUSH"), ("QUEUE PUSH mail FROM STDIN", "PUSH"),
                            ("QUEUE PUSH mail (payload, key) SELECT 1, 'k'", "PUSH"),
                            ("QUEUE PUSH mail (payload, key) ON DUPLICATE REPLACE SELECT 1, 'k'", "PUSH, TAKE")):
            for fields in (error(c, sql).fields, extended(c, sql)):
                assert fields["C"] == "42501" and "QUEUE GRANT %s ON mail TO" % rights in fields["H"], (sql, fields)
        q.rows("QUEUE GRANT PUSH ON mail TO other")
        assert tag(c, "QUEUE PUSH mail (payload, delay, expires, headers, attempts)"
                      " SELECT 1, '1s', '1h', '{}', 3") == "INSERT 0 1"
        assert types(copy_in(c, "QUEUE PUSH mail FROM STDIN", b"1\n2\n")) == "CZ"
        q.rows("CREATE TABLE secret AS SELECT 1 AS x; REVOKE ALL ON secret FROM PUBLIC")
        assert error(c, "QUEUE PUSH mail SELECT x FROM secret").sqlstate == "42501"
        q.rows("CREATE TABLE q_ueue AS SELECT 1 AS x; REVOKE ALL ON q_ueue FROM PUBLIC")
        assert "H" not in error(c, "QUEUE PUSH mail SELECT x FROM q_ueue").fields


def extended(c, sql):
    """The error of it, as PgError.fields, of a statement that is described and executed."""
    got = c.hold().parse("", sql).bind().describe("P").execute().sync().push().until("Z")
    return next(m for m in got if m.type == "E").fields


@pytest.mark.parametrize("payload, hint", [
    ("jsonb", "The JSON value null is written 'null'."), ("text", "An empty payload is written ''."),
    ("bytea", "An empty payload is written ''.")])
def test_a_payload_that_is_null(q, payload, hint):
    """A query says it as a value does, by every way."""
    q.rows("QUEUE CREATE other WITH (payload = %s); CREATE TABLE t (payload int NOT NULL)" % payload)
    want = ("22004", "the payload must not be null", hint)
    for sql in ("QUEUE PUSH other NULL", "QUEUE PUSH other SELECT NULL", "QUEUE PUSH other (payload, key) SELECT NULL, 'k'",
                "QUEUE PUSH other (payload, delay) SELECT NULL, '1s'"):
        for fields in (error(q, sql).fields, extended(q, sql)):
            assert (fields["C"], fields["M"], fields.get("H")) == want, sql
            assert "D" not in fields and "23502" not in str(fields)
    # that of another table is left as it is
    fields = error(q, "QUEUE PUSH mail WITH x AS (INSERT INTO t VALUES (NULL) RETURNING payload) SELECT payload FROM x").fields
    assert fields["C"] == "23502" and fields["t"] == "t" and "Failing row" in fields["D"]


def test_parameters(qproxy, db, q):
    q.rows("CREATE TABLE t AS SELECT i, 'n' || i AS name FROM generate_series(1, 9) AS i")
    q.hold().parse("p", "QUEUE PUSH mail (payload, priority) SELECT to_jsonb(name), $2 FROM t WHERE i < $1 AND name <> $3")
    q.describe("S", "p").sync().push()
    got = q.until("Z")
    assert types(got) == "1tnZ"
    assert got[1].oids == [INT4, INT4, TEXT] or got[1].oids == [INT4, TEXT, TEXT]
    for _ in range(3):
        q.hold().bind("", "p", ["4", "7", "n2"]).describe("P", "").execute().sync().push()
        got = q.until("Z")
        assert types(got) == "2nCZ" and got[2].tag == "INSERT 0 2"
    assert payloads(q) == ["n1", "n3"] * 3


def test_declared_and_binary_parameters(q):
    q.hold().parse("", "QUEUE PUSH mail SELECT to_jsonb($1 + i) FROM generate_series(1, $2) AS i", [INT8, INT4])
    q.bind("", "", [struct.pack("!q", 10), int4(2)], formats=[1]).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12CZ" and got[2].tag == "INSERT 0 2"
    assert payloads(q) == [11, 12]


def test_errors_in_the_extended_protocol(q):
    q.hold().parse("", "QUEUE PUSH mail SELECT nosuch").describe("S", "").sync().push()
    got = q.until("Z")
    assert types(got) == "1EZ" and got[1].fields["P"] == "24"
    q.hold().parse("", "QUEUE PUSH mail SELECT nosuch").bind().execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12EZ" and got[2].fields["P"] == "24"
    q.hold().parse("", "QUEUE PUSH mail SELECT $1::int").bind("", "", ["x"]).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12EZ" and got[2].sqlstate == "22P02"
    assert payloads(q) == []


def test_in_a_pipeline(q):
    q.hold()
    q.parse("", "SELECT 1").bind().execute()
    q.parse("", "QUEUE PUSH mail SELECT 5").bind().execute()
    q.parse("", "QUEUE PUSH mail '6'").bind().execute()
    q.parse("", "SELECT 2").bind().execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12DC12C12C12DCZ"
    assert payloads(q) == [5, 6]


def test_drivers(qproxy, db, q):
    with psycopg.connect(qproxy.dsn(db)) as conn:
        for n in range(8): # named statements after the fifth
            cur = conn.execute("QUEUE PUSH mail SELECT to_jsonb(%s + i) FROM generate_series(1, %s) AS i", (n, 2))
            assert cur.rowcount == 2
        conn.commit()
    assert len(payloads(q)) == 16


# --- a copy ---------------------------------------------------------------------------------------

def test_copy(q):
    got = copy_in(q, "QUEUE PUSH mail FROM STDIN", b'{"a": 1}\n[2]\n3\n')
    assert types(got) == "CZ" and got[0].tag == "COPY 3"
    assert payloads(q) == [{"a": 1}, [2], 3]


def test_copy_csv(q):
    got = copy_in(q, "QUEUE PUSH mail (payload, priority, headers, attempts) FROM STDIN WITH (FORMAT csv, HEADER)",
                  b'p,q,r,s\n"{""a"": 1}",5,"{""h"": 2}",3\n2,6,,\n')
    assert got[0].tag == "COPY 2"
    rows = q.rows("QUEUE TAKE mail LIMIT 9")
    assert [(r["payload"], r["priority"], r["headers"]) for r in rows] == [
        ("2", "6", None), ('{"a": 1}', "5", '{"h": 2}')]


def test_copy_lines_of_json(q):
    """The recipe of the manual: no byte of the lines means anything to COPY."""
    lines = [{"a": 'x"y\\z\n,\t'}, "ä", [None]]
    data = "".join(json.dumps(x) + "\n" for x in lines).encode()
    assert copy_in(q, "QUEUE PUSH mail FROM STDIN " + CSV_LINES, data)[0].tag == "COPY 3"
    assert payloads(q) == lines


def test_copy_binary(q):
    def field(b):
        return struct.pack("!i", len(b)) + b
    data = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
    for n in (1, 2):
        data += struct.pack("!h", 2) + field(b"\1" + b'{"n": %d}' % n) + field(int4(n))
    data += struct.pack("!h", -1)
    got = copy_in(q, "QUEUE PUSH mail (payload, priority) FROM STDIN (FORMAT binary)", data)
    assert got[0].tag == "COPY 2"
    assert payloads(q) == [{"n": 2}, {"n": 1}]


def test_copy_into_the_table(q, qproxy, db):
    """What the manual says of psql's own copy."""
    done = subprocess.run([os.path.join(pg_bin(), "psql"), "-X", qproxy.dsn(db), "-c",
                           "\\copy queue.q_mail (payload) FROM STDIN"],
                          input='{"a": 1}\n2\n', capture_output=True, text=True, check=True)
    assert done.stdout == "COPY 2\n"
    assert payloads(q) == [{"a": 1}, 2]


def test_copy_errors(q):
    got = copy_in(q, "QUEUE PUSH mail FROM STDIN", b"1\n2\nnope\n")
    assert types(got) == "EZ" and got[0].sqlstate == "22P02"
    assert "line 3, column payload" in got[0].fields["W"]
    assert q.rows("SELECT 1 AS x") == [{"x": "1"}] and stats(q)["ready"] == 0
    got = copy_in(q, "QUEUE PUSH mail FROM STDIN", b"1\n\\N\n")[0]
    assert (got.sqlstate, got.fields["M"], got.fields["H"]) == (
        "22004", "the payload must not be null", "The JSON value null is written 'null'.")
    assert "line 2" in got.fields["D"]
    q.query("QUEUE PUSH mail FROM STDIN").until("G")
    q.copy_data(b"1\n").copy_fail("thought better of it")
    got = q.until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "57014"
    assert stats(q)["ready"] == 0


@pytest.mark.parametrize("sql, state, text", [
    ("QUEUE PUSH mail FROM '/etc/passwd'", "42601", "passwd"),
    ("QUEUE PUSH mail FROM PROGRAM 'id'", "42601", "PROGRAM"),
    ("QUEUE PUSH nosuch (payload, key) FROM STDIN", "42P01", 'queue "nosuch"'),
    ("QUEUE PUSH nosuch FROM STDIN", "42P01", 'queue "nosuch"'),
    ("QUEUE PUSH mail FROM STDIN (FORMAT xml)", "22023", "xml"),
    ("QUEUE PUSH mail FROM STDIN (", "42601", "end of input"),
])
def test_copy_refused(q, sql, state, text):
    e = error(q, sql)
    assert e.sqlstate == state and text in e.message


def test_copy_in_a_transaction_wakes_at_commit(q, qproxy, db):
    w = qproxy.wire(db).query("QUEUE TAKE mail LIMIT 2 WAIT '60s'")
    parked(w)
    q.rows("BEGIN")
    assert copy_in(q, "QUEUE PUSH mail FROM STDIN", b"1\n2\n")[-1].status == "T"
    q.rows("ROLLBACK")
    q.rows("BEGIN")
    copy_in(q, "QUEUE PUSH mail FROM STDIN", b"3\n4\n")
    parked(w)
    q.rows("COMMIT")
    assert woken(w)["payload"] == "3"


def test_copy_in_the_extended_protocol(q):
    for _ in range(2):
        q.hold().parse("", "QUEUE PUSH mail FROM STDIN").bind().describe("P", "").execute().sync().push()
        assert types(q.until("G")) == "12nG"
        q.hold().copy_data(b"1\n2\n").copy_done().sync().push()
        got = q.until("Z")
        assert types(got) == "CZ" and got[0].tag == "COPY 2"
    q.hold().parse("", "SELECT 1").bind().execute()
    q.parse("", "QUEUE PUSH mail FROM STDIN").bind().execute().flush().push()
    assert types(q.until("G")) == "12DC12G"
    q.hold().copy_data(b"x\n").copy_done().sync().push()
    assert types(q.until("Z")) == "EZ"
    assert payloads(q) == [1, 2, 1, 2]


def test_copy_among_statements(q):
    q.query("QUEUE PUSH mail '1'; QUEUE PUSH mail FROM STDIN; SELECT 2; QUEUE PUSH mail '3'")
    assert types(q.until("G")) == "CG"
    q.copy_data(b"2\n").copy_done()
    got = q.until("Z")
    assert types(got) == "CTDCCZ" and got[0].tag == "COPY 1"
    assert payloads(q) == [1, 2, 3]


def test_client_vanishes_in_copy(q, qproxy, db):
    with qproxy.wire(db) as c:
        c.query("QUEUE PUSH mail FROM STDIN").until("G")
        c.copy_data(b"1\n")
    qproxy.wait_pool(db, cl_active=1, sv_active=0)
    assert stats(q)["ready"] == 0


def test_copy_by_a_driver(qproxy, db, q):
    before = qproxy.peak_kib()
    rows = 30000
    with psycopg.connect(qproxy.dsn(db)) as conn:
        with conn.cursor() as cur:
            with cur.copy("QUEUE PUSH mail (payload, priority) FROM STDIN") as copy:
                for i in range(rows):
                    copy.write_row((json.dumps({"n": i, "filler": "x" * 300}), i % 3))
            assert cur.rowcount == rows
        conn.commit()
    assert stats(q)["ready"] == rows
    assert qproxy.peak_kib() - before < 8192, "the data was kept"
    assert take(q)["priority"] == "2"


def test_many_bulk_pushes_at_once(qproxy, db, q):
    """Each is its own transaction on its own server; nothing is mixed up."""
    def one(n):
        with qproxy.wire(db) as c:
            for k in range(5):
                data = b"".join(b"%d\n" % (n * 1000 + k * 100 + i) for i in range(20))
                assert copy_in(c, "QUEUE PUSH mail FROM STDIN", data)[0].tag == "COPY 20"
                assert tag(c, "QUEUE PUSH mail SELECT %d + i FROM generate_series(20, 29) AS i"
                           % (n * 1000 + k * 100)) == "INSERT 0 10"
    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wanted = {n * 1000 + k * 100 + i for n in range(8) for k in range(5) for i in range(30)}
    assert sorted(payloads(q)) == sorted(wanted)


# --- keys and groups --------------------------------------------------------------------------------

def keyed(c):
    return [(r["id"], r["payload"], r["key"]) for r in c.rows("SELECT id, payload, key FROM queue.q_mail ORDER BY id")]


@pytest.mark.parametrize("policy, count, wanted", [
    ("", "INSERT 0 2", [("1", "0", "a"), ("2", "2", "b"), ("3", "4", None)]),
    ("ON DUPLICATE IGNORE", "INSERT 0 2", [("1", "0", "a"), ("2", "2", "b"), ("3", "4", None)]),
    ("ON DUPLICATE 'replace'", "INSERT 0 4", [("1", "1", "a"), ("2", "3", "b"), ("3", "4", None)]),
    ("ON DUPLICATE RERUN", "INSERT 0 2", [("1", "0", "a"), ("2", "2", "b"), ("3", "4", None)]),
])
def test_keys_of_a_query(q, policy, count, wanted):
    """One after the other, as so many statements would."""
    tag(q, "QUEUE PUSH mail '0' KEY 'a'")
    assert tag(q, "QUEUE PUSH mail (key, payload) %s SELECT * FROM (VALUES ('a', 1), ('b', 2), ('b', 3), (NULL, 4)) AS v"
               % policy) == count
    assert keyed(q) == wanted


def test_keys_that_are_an_error(q):
    tag(q, "QUEUE PUSH mail '0' KEY 'a'")
    e = error(q, "QUEUE PUSH mail (payload, key) ON DUPLICATE ERROR SELECT i, chr(i) FROM generate_series(95, 99) AS i")
    assert e.sqlstate == "23505" and 'the key "a"' in e.message
    assert keyed(q) == [("1", "0", "a")]
    assert error(q, "QUEUE PUSH mail (payload, key) SELECT 1, repeat('x', 1001)").sqlstate == "22001"
    assert error(q, "QUEUE PUSH mail (payload, key) SELECT NULL, 'n'").sqlstate == "22004"
    assert error(q, "QUEUE PUSH nosuch (payload, key) SELECT 1, 'n' WHERE false").message == 'queue "nosuch" does not exist'
    assert error(q, "QUEUE PUSH mail (payload, key) SELECT nosuch, 'n'").fields["P"] == "39"


def test_the_other_columns_with_a_key(q):
    assert tag(q, "QUEUE PUSH mail (payload, key, priority, delay, expires, headers, attempts) "
                  "WITH v AS (SELECT 1) SELECT 1, 'k', 3, '1h', '2h', '{}', 2 FROM v") == "INSERT 0 1"
    assert q.rows("SELECT state, priority, headers, max_attempts, run_at > now() + interval '59 min' AS run, "
                  "expires_at > now() + interval '179 min' AS late FROM queue.q_mail") == [
        {"state": "later", "priority": "3", "headers": "{}", "max_attempts": "2", "run": "t", "late": "t"}]
    assert error(q, "QUEUE PUSH mail (payload, key, expires) SELECT 1, 'l', '-1s'").sqlstate == "22023"


def test_groups_of_a_query(q):
    """In the order of the query, one at a time."""
    assert tag(q, "QUEUE PUSH mail (payload, \"group\") SELECT i, 'g' || i % 2 FROM generate_series(1, 6) AS i "
                  "ORDER BY i DESC") == "INSERT 0 6"
    seen = []
    for _ in range(3):
        got = q.rows("QUEUE TAKE mail LIMIT 10")
        assert [r["group"] for r in got] == ["g0", "g1"]
        seen.append([int(r["payload"]) for r in got])
        tag(q, "QUEUE DONE " + ", ".join(r["id"] for r in got))
    assert seen == [[6, 5], [4, 3], [2, 1]]


def test_keys_groups_and_times_of_a_copy(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '0' KEY 'a'")
    got = copy_in(q, "QUEUE PUSH mail (payload, key, group, priority) ON DUPLICATE REPLACE FROM STDIN (FORMAT csv)",
                  b"1,a,,4\n2,b,g,\n3,,g,\n4,b,,\n")
    assert types(got) == "CZ"
    assert [r[1:] for r in keyed(q)] == [("1", "a"), ("4", "b"), ("3", None)]
    assert sorted((r["payload"], r["state"]) for r in peek(q)) == [("1", "ready"), ("3", "blocked"), ("4", "ready")]
    got = copy_in(q, "QUEUE PUSH mail (payload, delay, expires) FROM STDIN", b"5\t1 hour\t2 hours\n6\t\\N\t\\N\n")
    assert got[0].tag == "COPY 2"
    assert [r["payload"] for r in peek(q, state="later")] == ["5"]
    got = copy_in(q, "QUEUE PUSH mail (payload, key) ON DUPLICATE ERROR FROM STDIN", b"7\tz\n8\ta\n")
    assert types(got) == "EZ" and got[0].sqlstate == "23505" and "line 2" in got[0].fields["W"]
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail LIMIT 9 WAIT '30s'")
        w.until("Z")
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        copy_in(q, "QUEUE PUSH mail (payload, key) FROM STDIN", b"9\tnew\n")
        assert woken(w)["payload"] == "9"


def test_who_may_push_keys(q, qproxy, db):
    """The view is for all; what it does is done with the rights of who pushes."""
    with qproxy.wire(db, "other") as other:
        for how in ("(payload, key) SELECT 1, 'k'", "(payload, group) SELECT 1, 'k'"):
            assert error(other, "QUEUE PUSH mail " + how).sqlstate == "42501"
        tag(q, "QUEUE GRANT PUSH ON mail TO other")
        assert tag(other, "QUEUE PUSH mail (payload, key) SELECT 1, 'k'") == "INSERT 0 1"
        assert tag(other, "QUEUE PUSH mail (payload, key) SELECT 1, 'k'") == "INSERT 0 0"
        assert error(other, "QUEUE PUSH mail (payload, key) ON DUPLICATE REPLACE SELECT 2, 'k'").sqlstate == "42501"
    assert keyed(q) == [("1", "1", "k")]


def test_a_queue_that_is_dropped_leaves_no_view(q):
    tag(q, "QUEUE DROP mail")
    assert q.rows("SELECT relname FROM pg_class WHERE relnamespace = 'queue'::regnamespace AND relname ~ 'mail|^n[0-9]'") == []
