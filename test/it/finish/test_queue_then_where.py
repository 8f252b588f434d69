"""DONE ... THEN TAKE ... WHERE: the DONE is committed whatever the condition finds, and fails only with its own
transaction."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, parked, q, shared, shared_db, shared_proxy, stats, tag, take, woken  # noqa: F401

SAID = "The jobs of DONE are done."


@pytest.fixture
def five(q):
    for n in range(5):
        tag(q, "QUEUE PUSH mail '{\"n\": %d}'" % n)
    return q


def ids(rows):
    return [int(row["id"]) for row in rows]


@pytest.mark.parametrize("clause, found", [
    ("THEN TAKE mail WHERE (id = 4)", [4]), ("THEN TAKE WHERE (id = 4)", [4]), ("THEN TAKE mail LIMIT 9 WHERE payload->>'n' > '2'", [4, 5]),
    ("THEN TAKE mail WHERE (id > 2) LIMIT 2", [3, 4]), ("THEN TAKE mail WHERE (false)", []), ("RESULT '{\"a\": 1}' THEN TAKE mail WHERE (id = 3)", [3]),
    ("THEN TAKE mail WAIT '30s' WHERE (id = 5)", [5]), ("THEN TAKE mail HOLD '1 min' WHERE (id = 5)", [5])])
def test_what_fits(five, clause, found):
    job = take(five)
    assert ids(five.rows("QUEUE DONE '%s' %s" % (job["token"], clause))) == found
    assert stats(five)["leased"] == len(found) and stats(five)["ready"] == 4 - len(found)
    for n in found:
        assert tag(five, "QUEUE DONE %d ON mail" % n) == "UPDATE 1"


def test_it_waits_for_what_fits(q, qproxy, db):
    tag(q, "QUEUE PUSH mail '{\"n\": 1}'")
    with qproxy.wire(db) as w:
        job = take(w)
        w.query("QUEUE DONE '%s' THEN TAKE WAIT '30s' WHERE (payload->>'n' = '3')" % job["token"])
        parked(w)
        assert stats(q)["leased"] == 0 and stats(q)["ready"] == 0
        tag(q, "QUEUE PUSH mail '{\"n\": 2}'")
        tag(q, "QUEUE PUSH mail '{\"n\": 3}'")
        assert woken(w)["payload"] == '{"n": 3}'
    wait_for(lambda: stats(q)["ready"] == 2, "that the job of one who left is given back")


@pytest.mark.parametrize("where, state", [("nothing = 1", "42703"), ("1/(id-id) = 1", "22012"), ("id", "42804"), ("EXISTS (SELECT FROM secret)", "42501")])
def test_an_error_of_the_condition(five, direct, where, state):
    """What the DONE did stays, and the error says so; in a transaction it goes with it."""
    direct.execute("CREATE TABLE IF NOT EXISTS secret (n int)")
    job = take(five)
    e = error(five, "QUEUE DONE '%s' THEN TAKE mail WHERE (%s)" % (job["token"], where))
    assert e.sqlstate == state and SAID in e.fields["D"]
    assert stats(five)["leased"] == 0 and stats(five)["ready"] == 4
    job = take(five)
    five.simple("BEGIN")
    e = error(five, "QUEUE DONE '%s' THEN TAKE mail WHERE (%s)" % (job["token"], where))
    assert e.sqlstate == state and SAID not in e.fields.get("D", "")
    five.simple("ROLLBACK")
    assert tag(five, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    five.simple("BEGIN; SAVEPOINT a")
    job = take(five)
    five.simple("SAVEPOINT a")
    assert error(five, "QUEUE DONE '%s' THEN TAKE mail WHERE (%s)" % (job["token"], where)).sqlstate == state
    five.simple("ROLLBACK TO a")
    assert tag(five, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    five.simple("COMMIT")
    assert stats(five)["leased"] == 0 and stats(five)["ready"] == 2


def test_an_error_while_it_waits(q, qproxy, db):
    tag(q, "QUEUE PUSH mail '{\"n\": 1}'")
    with qproxy.wire(db) as w:
        job = take(w)
        w.query("QUEUE DONE '%s' THEN TAKE mail WAIT '30s' WHERE (1/(payload->>'n')::int = 1)" % job["token"])
        parked(w)
        tag(q, "QUEUE PUSH mail '{\"n\": 0}'")
        e = w.until("Z")[0]
        assert e.sqlstate == "22012" and e.fields["D"] == SAID
    assert stats(q)["leased"] == 0 and stats(q)["ready"] == 1


def test_the_done_fails(five):
    """A lease that is over takes nothing."""
    job = take(five)
    tag(five, "QUEUE RELEASE '%s'" % job["token"])
    assert error(five, "QUEUE DONE '%s' THEN TAKE mail WHERE (true)" % job["token"]).sqlstate == "QB001"
    assert stats(five)["leased"] == 0 and stats(five)["ready"] == 5


def test_syntax(five):
    job = take(five)
    for bad in ("WHERE", "WHERE ()", "WHERE (id = 1", "WHERE id = 1)", "WHERE (true) BOGUS 1"):
        e = error(five, "QUEUE DONE '%s' THEN TAKE mail %s" % (job["token"], bad))
        assert e.sqlstate == "42601", bad
    assert error(five, "QUEUE DONE '%s' THEN TAKE mail WHERE (true); SELECT 1" % job["token"]).sqlstate == "0A000"
    assert error(five, "QUEUE DONE '%s' THEN TAKE mail GROUPED WHERE (true)" % job["token"]).sqlstate == "0A000"
    assert stats(five)["leased"] == 1


def test_in_a_block(five):
    job = take(five)
    five.simple("BEGIN")
    assert ids(five.rows("QUEUE DONE '%s' THEN TAKE mail WHERE (id = 3)" % job["token"])) == [3]
    assert ids(five.rows("QUEUE DONE 3 ON mail THEN TAKE mail WHERE (id = 4)")) == [4]
    assert error(five, "QUEUE DONE 4 ON mail THEN TAKE mail WAIT '1s' WHERE (id = 5)").sqlstate == "25001"
    five.simple("ROLLBACK")
    assert tag(five, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    wait_for(lambda: stats(five)["leased"] == 0, "that the jobs are given back")
    assert stats(five)["ready"] == 4


@pytest.mark.parametrize("block", [False, True])
def test_parameters(five, qproxy, db, block):
    with psycopg.connect(qproxy.dsn(db), autocommit=not block) as conn:
        (token,) = conn.execute("QUEUE TAKE mail").fetchone()[1:2]
        for prepare, n in ((False, 2), (True, 3), (True, 4)):
            rows = conn.execute("QUEUE DONE %s RESULT %s THEN TAKE mail LIMIT %s WHERE (id = %s AND payload->>'n' = %s)",
                                (token, '{"n": 1}', "2", n, str(n - 1)), prepare=prepare).fetchall()
            assert [row[0] for row in rows] == [n]
            token = rows[0][1]
        cur = conn.cursor(binary=True)
        cur.execute("QUEUE DONE %s THEN TAKE mail WHERE (id = ANY(%s))", (token, [9, 5]))
        assert cur.fetchone()[0] == 5 and cur.description[4].type_code == 3802
        cur.execute("QUEUE DONE %s ON mail THEN TAKE mail WHERE (payload->>'n' = %s)", (5, "0' OR 'a' = 'a"))
        assert cur.fetchall() == []
        conn.rollback()
    wait_for(lambda: stats(five)["leased"] == 0, "that nothing is leased")
    assert stats(five)["ready"] == (5 if block else 0)


def test_described(five, qproxy, db):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        pg = conn.pgconn
        (token,) = conn.execute("QUEUE TAKE mail").fetchone()[1:2]
        done = pg.prepare(b"s", b"QUEUE DONE $3 THEN TAKE mail LIMIT $2 WHERE (id = $1 AND $4 < pushed_at)")
        assert done.status == psycopg.pq.ExecStatus.COMMAND_OK, done.error_message
        got = pg.describe_prepared(b"s")
        assert [got.param_type(i) for i in range(got.nparams)] == [20, 25, 25, 1184], got.error_message
        assert [got.fname(i) for i in range(got.nfields)][:3] == [b"id", b"token", b"queue"]
        ran = pg.exec_prepared(b"s", [(4).to_bytes(8, "big"), b"1", token.encode(), b"2000-01-01"], [1, 0, 0, 0])
        assert ran.get_value(0, 0) == b"4", ran.error_message
        assert pg.prepare(b"t", b"QUEUE DONE $1 THEN TAKE mail WHERE (nothing = $2)").status == psycopg.pq.ExecStatus.COMMAND_OK
        assert pg.describe_prepared(b"t").error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42703"
    assert (stats(five)["leased"], stats(five)["ready"]) == (1, 3)


@pytest.mark.parametrize("kind, oid", [("text", 25), ("bytea", 17)])
@pytest.mark.parametrize("name", ["bare", ""])
def test_types(qproxy, db, kind, oid, name):
    """Payloads of another type, also where the name of the queue is that of the job's."""
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        conn.execute("QUEUE CREATE bare WITH (payload = %s)" % kind)
        conn.execute("QUEUE PUSH bare 'a', 'b', 'c'")
        (token,) = conn.execute("QUEUE TAKE bare").fetchone()[1:2]
        cur = psycopg.ClientCursor(conn)
        cur.execute("QUEUE DONE '%s' THEN TAKE %s WHERE (payload = 'c')" % (token, name))
        row = cur.fetchone()
        assert row[0] == 3 and (cur.description[4].type_code == oid)


def test_rights(five, direct, qproxy, db):
    """The condition is the client's, under his rights, search_path and settings, and leaves nothing behind."""
    direct.execute("CREATE SCHEMA own; CREATE FUNCTION own.fits(n int8) RETURNS bool LANGUAGE sql AS 'SELECT n = 3'; GRANT USAGE ON SCHEMA own TO PUBLIC")
    job = take(five)
    five.simple("SET search_path = own")
    (job,) = five.rows("QUEUE DONE '%s' THEN TAKE mail WHERE (fits(id) AND set_config('my.x', '1', false) = '1')" % job["token"])
    assert job["id"] == "3"
    for c in [five] + [qproxy.wire(db) for _ in range(3)]:
        (row,) = c.rows("SELECT coalesce(current_setting('my.x', true), '') AS x")
        assert row["x"] == ""


def test_done_once_more(five):
    """Repeated, it is no error, and takes."""
    job = take(five)
    assert ids(five.rows("QUEUE DONE '%s' THEN TAKE mail WHERE (id = 3)" % job["token"])) == [3]
    assert ids(five.rows("QUEUE DONE '%s' THEN TAKE mail WHERE (id = 4)" % job["token"])) == [4]
    assert stats(five)["leased"] == 2


def test_equal_ones_are_served_together(q, qproxy, db):
    """Bound conditions are equal when what they use is, whichever jobs were done before."""
    tag(q, "QUEUE PUSH mail %s" % ", ".join("'1'" for _ in range(4)))
    workers = [qproxy.wire(db) for _ in range(4)]
    for w in workers:
        job = take(w)
        w.hold().parse("s", "QUEUE DONE $1 THEN TAKE mail WAIT '30s' WHERE (payload->>'n' = $2)")
        w.bind("", "s", [job["token"], "7"]).execute().sync().push()
        parked(w)

    def probes():
        (row,) = [r for r in qproxy.console("SHOW QUEUES") if r["queue"] == "mail"]
        return int(row["probes"])

    before = probes()
    tag(q, "QUEUE PUSH mail %s" % ", ".join("'{\"n\": 7}'" for _ in range(4)))
    for w in workers:
        assert [m.type for m in w.until("Z")].count("D") == 1
    assert probes() - before <= 4
