"""WHERE of PEEK, PURGE, CANCEL ALL and REDRIVE: the client's own SQL over what PEEK shows, with the client's rights."""

import psycopg
import pytest

from queuetest import error, q, qproxy, shared, tag  # noqa: F401


@pytest.fixture
def five(q):
    for n in range(5):
        tag(q, "QUEUE PUSH mail '{\"n\": %d}' PRIORITY %d HEADERS '{\"tenant\": \"t%d\"}'" % (n, n % 2, n % 2))
    return q


def ids(rows):
    return [int(row["id"]) for row in rows]


@pytest.mark.parametrize("where, found", [
    ("(payload->>'n' = '3')", [4]), ("(headers->>'tenant' = 't0') LIMIT 2", [1, 3]), ("(priority = 1) STATE ready", [2, 4]),
    ("payload->>'n' = '3' OR id = 1", [4, 1]), ("(id = 1) OR (id = 2) ;", [2, 1]), ("((id) = (1))", [1]),
    ("id IN (SELECT 2)", [2]), ("id = 2 -- ) the end\n", [2]), ("(id = 2 /* ) */ AND ')' = $a$)$a$)", [2]),
    ("(false)", []), ("key IS NULL AND id < 3", [2, 1])])
def test_peek(five, where, found):
    assert ids(five.rows("QUEUE PEEK mail WHERE %s" % where)) == found


def test_limit_counts_what_fits(five):
    for n in range(20):
        tag(five, "QUEUE PUSH mail '{}' PRIORITY 9")
    assert ids(five.rows("QUEUE PEEK mail LIMIT 1 WHERE (id < 3)")) == [2]
    assert len(five.rows("QUEUE PEEK mail WHERE (id > 0)")) == 10


def test_purge_and_redrive(five):
    (job,) = five.rows("QUEUE TAKE mail")
    assert tag(five, "QUEUE PURGE mail WHERE (priority = 1)") == "DELETE 1"        # the other one is worked on
    tag(five, "QUEUE FAIL '%s' FINAL" % job["token"])
    assert tag(five, "QUEUE PURGE mail STATE ready WHERE payload->>'n' = '2'") == "DELETE 1"
    assert ids(five.rows("QUEUE PEEK mail")) == [1, 5, 2]
    assert tag(five, "QUEUE REDRIVE mail WHERE (error IS NOT NULL)") == "UPDATE 0"
    assert tag(five, "QUEUE REDRIVE mail LIMIT 5 WHERE (payload->>'n' = '1')") == "UPDATE 1"
    assert [r["state"] for r in five.rows("QUEUE PEEK mail")] == ["ready"] * 3
    tag(five, "QUEUE ALTER mail SET (retain_done = '1 h')")
    for job in five.rows("QUEUE TAKE mail LIMIT 2"):
        tag(five, "QUEUE DONE '%s'" % job["token"])
    assert tag(five, "QUEUE PURGE mail WHERE (true)") == "DELETE 1"                # not the archive's
    assert tag(five, "QUEUE PURGE mail STATE done WHERE (id = 2)") == "DELETE 1"
    assert len(five.rows("QUEUE PEEK mail STATE done")) == 1


def test_cancel_all_and_redrive_of_those_that_wait(five):
    (job,) = five.rows("QUEUE TAKE mail")
    assert tag(five, "QUEUE CANCEL ALL ON mail WHERE (headers->>'tenant' = 't1')") == "UPDATE 2"
    assert error(five, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB002"
    assert ids(five.rows("QUEUE PEEK mail")) == [1, 3, 5, 2]
    (job,) = five.rows("QUEUE TAKE mail")
    tag(five, "QUEUE FAIL '%s' ERROR 'timeout' RETRY IN '1 h'" % job["token"])
    tag(five, "BEGIN")
    assert tag(five, "QUEUE REDRIVE mail STATE later WHERE (error = 'timeout')") == "UPDATE 1"
    tag(five, "SAVEPOINT s")
    assert tag(five, "QUEUE CANCEL ALL ON mail") == "UPDATE 3"
    tag(five, "ROLLBACK TO s")
    tag(five, "COMMIT")
    assert {r["state"] for r in five.rows("QUEUE PEEK mail") if r["id"] != "2"} == {"ready"}
    assert tag(five, "QUEUE CANCEL ALL ON mail WHERE headers->>'tenant' = 't0'") == "UPDATE 3"


@pytest.mark.parametrize("where, state", [
    ("(id = 1) ) --", "42601"), ("(id = 1", "42601"), ("id = 1)", "42601"), ("", "42601"), ("()", "42601"),
    ("(id = 1) BOGUS 1", "42601"), ("(1)", "42804"), ("(id)", "42804"), ("(nothing = 1)", "42703"), ("(1/0 = 1)", "22012"),
    ("(token = 'x')", "42703"), ("(id = 1 UNION SELECT 2)", "42601"), ("('a' = 'b) ; --", "42601"),
    ("(id = $$ )", "42601"), ("(id = (SELECT count(*) FROM queue.nothing))", "42P01")])
def test_what_is_none(five, where, state):
    assert error(five, "QUEUE PEEK mail WHERE %s" % where).sqlstate == state
    assert error(five, "QUEUE PURGE mail WHERE %s" % where).sqlstate == state
    assert error(five, "QUEUE CANCEL ALL ON mail WHERE %s" % where).sqlstate == state
    assert len(five.rows("QUEUE PEEK mail")) == 5


def test_the_place_of_an_error(five):
    sql = "QUEUE PEEK mail LIMIT 3 WHERE (id = 1 AND nothing = 1)"
    assert int(error(five, sql).fields["P"]) == sql.index("nothing") + 1


def test_parameters(five, qproxy, db):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        for prepare in (False, True, True):
            rows = conn.execute("QUEUE PEEK mail WHERE (id = %s AND payload->>'n' = %s)", (4, "3"), prepare=prepare).fetchall()
            assert [row[0] for row in rows] == [4]
        name = "4) OR (true"
        assert conn.execute("QUEUE PEEK mail WHERE (payload->>'n' = %s)", (name,)).fetchall() == []
        assert conn.execute("QUEUE PURGE mail WHERE (id = %s)", (4,)).statusmessage == "DELETE 1"
        with conn.transaction(force_rollback=True):
            assert conn.execute("QUEUE PURGE mail WHERE (id = %s)", (5,)).statusmessage == "DELETE 1"
        assert len(conn.execute("QUEUE PEEK mail").fetchall()) == 4
        assert conn.execute("QUEUE CANCEL ALL ON mail WHERE (id = %s)", (1,)).statusmessage == "UPDATE 1"
        assert conn.execute("QUEUE REDRIVE mail LIMIT %s WHERE (id = %s)", (9, 2)).statusmessage == "UPDATE 0"


def test_nobody_elses_rights(five, qproxy, db, cluster):
    """What it calls runs as who has said it; his search_path is his own, and changes nothing of ours."""
    tag(five, "QUEUE GRANT TAKE ON mail TO PUBLIC")
    tag(five, "CREATE TABLE secret AS SELECT 1 AS s")
    tag(five, "CREATE TABLE seen (who text)")
    tag(five, "GRANT INSERT, SELECT ON seen TO PUBLIC")
    tag(five, "CREATE FUNCTION spy() RETURNS bool LANGUAGE sql VOLATILE AS"
              " 'INSERT INTO seen VALUES (current_user) RETURNING true'")
    tag(five, "CREATE SCHEMA mine")
    tag(five, "CREATE FUNCTION mine.eq(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'")
    tag(five, "CREATE OPERATOR mine.= (FUNCTION = mine.eq, LEFTARG = text, RIGHTARG = text)")
    tag(five, "GRANT USAGE ON SCHEMA mine TO PUBLIC")
    with qproxy.wire(db, user="other") as w:
        assert error(w, "QUEUE PEEK mail WHERE EXISTS (SELECT FROM secret)").sqlstate == "42501"
        assert len(w.rows("QUEUE PEEK mail WHERE (spy())")) == 5
        assert {r["who"] for r in five.rows("SELECT who FROM seen")} == {"other"}
        tag(w, "BEGIN")
        tag(w, "SET LOCAL search_path = mine, pg_catalog, public")
        assert len(w.rows("QUEUE PEEK mail STATE ready WHERE (state = 'x'::text)")) == 5
        assert tag(w, "QUEUE PURGE mail STATE dead WHERE (state = 'x'::text)") == "DELETE 0"
        tag(w, "ROLLBACK")
    tag(five, "QUEUE REVOKE TAKE ON mail FROM PUBLIC")
    with qproxy.wire(db, user="other") as w:
        assert error(w, "QUEUE PEEK mail WHERE (spy())").sqlstate == "42501"
        assert error(w, "QUEUE PURGE mail WHERE (spy())").sqlstate == "42501"
        assert error(w, "QUEUE CANCEL ALL ON mail WHERE (spy())").sqlstate == "42501"


@pytest.mark.parametrize("kind, payload, where", [("text", "abc", "(payload LIKE 'a%')"), ("bytea", "\\x00ff", "(length(payload) = 2)")])
def test_payloads(qproxy, db, kind, payload, where):
    with qproxy.wire(db) as c:
        tag(c, "QUEUE CREATE other WITH (payload = %s)" % kind)
        tag(c, "QUEUE PUSH other '%s'" % payload)
        assert len(c.rows("QUEUE PEEK other WHERE %s" % where)) == 1
        assert tag(c, "QUEUE PURGE other WHERE %s" % where) == "DELETE 1"


def test_a_purge_of_null_is_none(five, qproxy, db):
    """A variable that is not set does not delete all jobs."""
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        for words, code in (("STATE %s", "22023"), ("OLDER THAN %s", "22023"), ("STATE %s WHERE (true)", "22023")):
            for prepare in (False, True):
                with pytest.raises(psycopg.Error) as e:
                    conn.execute("QUEUE PURGE mail " + words, (None,), prepare=prepare)
                assert e.value.sqlstate == code
            with pytest.raises(psycopg.Error) as e, conn.transaction():
                conn.execute("QUEUE PURGE mail " + words, (None,))
            assert e.value.sqlstate == code
    for words in ("STATE NULL", "OLDER THAN NULL"):
        assert error(five, "QUEUE PURGE mail " + words).sqlstate in ("22023", "42601")
    assert len(five.rows("QUEUE PEEK mail")) == 5
    assert tag(five, "QUEUE PURGE mail OLDER THAN 0") == "DELETE 5"
