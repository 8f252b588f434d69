"""PREPARE in SQL, in transaction pooling: the statement follows its client from server to server, as it was when it was
prepared, and nobody else sees it. What cannot be repeated exactly keeps the client on its server."""

import pytest

from pgwire import Wire, types
from proxy import wait_for
from sessiontest import errors, extended, pinned, stat, tags


@pytest.fixture
def one(qbouncer):
    """One server for all."""
    return qbouncer(default_pool_size=1)


@pytest.fixture
def pair(one, db):
    with one.wire(db) as a, one.wire(db) as b:
        yield a, b


@pytest.fixture
def straight(cluster, db):
    """A client of the server itself."""
    with Wire(cluster.port) as c:
        yield c.startup(user="app", database=db)


def pins(proxy, db):
    """It is asked for behind the answer."""
    wait_for(lambda: pinned(proxy, db) == ["prepare"], "the client to be pinned")


def value(messages):
    assert not errors(messages), errors(messages)
    return [m.text_row[0] for m in messages if m.type == "D"]


@pytest.mark.parametrize("run", ["simple", "extended"])
def test_statement_follows(one, pair, db, run):
    a, b = pair
    said = a.simple if run == "simple" else lambda sql: extended(a, sql)
    assert tags(a.simple("PREPARE p (int) AS SELECT $1 + 1;")) == ["PREPARE"]
    for n in range(3):
        assert value(b.simple("SELECT 'b'")) == ["b"]
        assert value(said("EXECUTE p(%d)" % n)) == [str(n + 1)]
    assert value(said("EXPLAIN (COSTS OFF) EXECUTE p(1)"))[0] == "Result"
    b.simple("SELECT 1")
    assert tags(said("CREATE TABLE made AS EXECUTE p(41)"))[-1] in ("SELECT 1", "CREATE TABLE AS")
    assert value(b.simple("TABLE made")) == ["42"]
    b.simple("DO $$ BEGIN END $$")
    a.simple("CREATE TABLE into_this (v int)")
    assert not errors(a.simple("DO $$ BEGIN EXECUTE 'EXECUTE p(1)'; END $$"))
    assert pinned(one, db) == [] and stat(one, db, "total_pin_count") == 0


def test_one_client_does_not_see_those_of_another(pair):
    a, b = pair
    a.simple("PREPARE p AS SELECT 'a'")
    assert value(b.simple("SELECT name FROM pg_prepared_statements WHERE from_sql")) == []
    assert errors(b.simple("EXECUTE p")) == ["26000"]
    assert errors(b.simple("PREPARE p AS SELECT 'b'")) == []
    for c, mine in ((a, "a"), (b, "b"), (a, "a"), (a, "a"), (b, "b")):
        assert value(c.simple("EXECUTE p")) == [mine]
    assert errors(a.simple("PREPARE p AS SELECT 'again'")) == ["42P05"]
    a.simple("DEALLOCATE p")
    assert value(b.simple("EXECUTE p")) == ["b"]
    assert errors(a.simple("EXECUTE p")) == ["26000"]


def test_what_the_server_lists(pair):
    """The text is the client's own, the types are those of the server."""
    a, b = pair
    text = "PREPARE \"Two \"\"words\" (int, text) AS\n SELECT $1, $2; -- end"
    a.simple(text)
    for _ in range(2):
        b.simple("SELECT 1")
        got = a.rows("SELECT name, statement, parameter_types::text AS t, from_sql FROM pg_prepared_statements WHERE from_sql")
        assert got == [{"name": 'Two "words', "statement": text, "t": "{integer,text}", "from_sql": "t"}]


@pytest.mark.parametrize("before, statement", [
    ("SET search_path = s1", "SELECT v FROM t"),
    ("SET search_path = s1", "SELECT v FROM s1.t"),
    ("SET DateStyle = 'SQL, DMY'", "SELECT extract(month FROM date '02/03/2001')"),
    ("SET standard_conforming_strings = off", r"SELECT 'a\\b'"),
    ("SET TimeZone = 'Asia/Tokyo'", "SELECT timestamptz '2001-01-01 00:00' AT TIME ZONE 'UTC'"),
    ("SET ROLE other", "SELECT current_user, v FROM s1.t"),
])
def test_settings_of_the_moment(pair, straight, direct, one, db, before, statement):
    """It means what it meant when it was prepared, as far as it does in Postgres: names are looked up again."""
    a, b = pair
    direct.execute("GRANT other TO app")
    b.simple("CREATE SCHEMA s1; CREATE TABLE s1.t AS SELECT 'one' AS v; GRANT USAGE ON SCHEMA s1 TO other;"
             "GRANT SELECT ON s1.t TO other")
    got = {}
    for c in (straight, a):
        c.simple(before)
        assert tags(c.simple("PREPARE p AS " + statement)) == ["PREPARE"]
        c.simple("RESET ROLE")
        c.simple("RESET ALL")
        for _ in range(2):
            assert value(b.simple("SHOW search_path")) == ['"$user", public']
            answer = c.simple("EXECUTE p")
            got.setdefault(c, []).append((errors(answer), [m.text_row for m in answer if m.type == "D"]))
            assert value(c.simple("SHOW search_path")) == ['"$user", public']
            assert value(c.simple("SHOW DateStyle")) == value(b.simple("SHOW DateStyle"))
            assert value(c.simple("SELECT current_user")) == ["app"]
    assert got[a] == got[straight]
    assert pinned(one, db) == []
    direct.execute("REVOKE other FROM app")


def test_in_a_block(one, pair, db):
    """PREPARE is not undone by ROLLBACK. The first of a block can be repeated; what comes later may have been prepared
    under other settings, and stays."""
    a, b = pair
    for sql in ("BEGIN", "PREPARE p AS SELECT 7", "SELECT 1/0", "ROLLBACK"):
        a.simple(sql)
    b.simple("SELECT 1")
    assert value(a.simple("EXECUTE p")) == ["7"]
    assert pinned(one, db) == []
    for sql in ("BEGIN", "SET LOCAL search_path = pg_catalog", "PREPARE q AS SELECT 8", "COMMIT"):
        assert not errors(a.simple(sql))
    pins(one, db)
    assert value(a.simple("EXECUTE q")) == ["8"]
    a.simple("DEALLOCATE q")
    b.simple("SELECT 1")
    assert pinned(one, db) == []
    a.simple("BEGIN")
    assert value(a.simple("EXECUTE p")) == ["7"]
    a.simple("DEALLOCATE p")
    a.simple("ROLLBACK")
    b.simple("SELECT 1")
    assert errors(a.simple("EXECUTE p")) == ["26000"]


@pytest.mark.parametrize("sql", ["DEALLOCATE p", "DEALLOCATE PREPARE \"p\"", "DEALLOCATE ALL", "DISCARD ALL",
                                 "DO $$ BEGIN EXECUTE 'DEALLOCATE p'; END $$", "SELECT 1; DEALLOCATE p"])
@pytest.mark.parametrize("run", ["simple", "extended"])
def test_gone(one, pair, db, sql, run):
    a, b = pair
    a.simple("PREPARE p AS SELECT 1")
    if run == "simple" or ";" not in sql.rstrip(";") or sql.startswith("DO"):
        got = a.simple(sql) if run == "simple" else extended(a, sql)
        assert not errors(got)
    else:
        extended(a, "DEALLOCATE p")
    b.simple("SELECT 1")
    assert errors(a.simple("EXECUTE p")) == ["26000"]
    assert value(b.simple("SELECT count(*) FROM pg_prepared_statements WHERE from_sql")) == ["0"]


def test_what_hides_something_stays(one, pair, db):
    """A lock that EXECUTE takes cannot be seen in its text."""
    a, b = pair
    a.simple("PREPARE p AS SELECT pg_advisory_lock(3)")
    pins(one, db)
    a.simple("EXECUTE p")
    b.query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert b.silent()
    a.close()
    assert b.until("Z")[1].text_row == ["0"]


def test_that_cannot_be_prepared_again(one, pair, db):
    """Its table is gone on the next server: the client lives, its other statements too."""
    a, b = pair
    a.simple("CREATE TABLE gone (v int)")
    a.simple("PREPARE one AS SELECT 1")
    a.simple("PREPARE p AS SELECT v FROM gone")
    a.simple("SET work_mem = '7MB'")
    b.simple("DROP TABLE gone")
    assert errors(a.simple("EXECUTE p")) == ["26000"]
    assert value(a.simple("EXECUTE one")) == ["1"]
    b.simple("CREATE TABLE gone AS SELECT 5 AS v")
    assert value(a.simple("EXECUTE p")) == ["5"]
    assert pinned(one, db) == []


def test_equal_statements_cost_nothing(one, pair, db):
    """Clients of one program prepare the same: what the server has is theirs."""
    a, b = pair
    for c in pair:
        c.simple("PREPARE p AS SELECT 1")
        c.simple("PREPARE q AS SELECT 2")
    before = stat(one, db, "total_replay_count")
    for _ in range(5):
        for c in pair:
            assert value(c.simple("EXECUTE q")) == ["2"]
    assert stat(one, db, "total_replay_count") == before


def test_pipelined(pair):
    a, b = pair
    a.hold().query("PREPARE p AS SELECT 1").query("EXECUTE p").query("BEGIN").query("EXECUTE p").query("COMMIT").push()
    got = [a.until("Z") for _ in range(5)]
    assert value(got[1]) == ["1"] and value(got[3]) == ["1"]
    b.simple("SELECT 1")
    a.hold().parse("", "EXECUTE p").bind().execute().bind().execute().sync().query("QUEUE HELP").query("EXECUTE p").push()
    assert value(a.until("Z")) == ["1", "1"]
    assert not errors(a.until("Z"))
    assert value(a.until("Z")) == ["1"]


def test_more_than_is_kept(one, pair, db):
    a, b = pair
    a.simple("PREPARE big AS SELECT length('%s')" % ("x" * 100000))
    pins(one, db)
    assert value(a.simple("EXECUTE big")) == ["100000"]
    a.simple("DEALLOCATE big")
    b.simple("SELECT 1")
    assert pinned(one, db) == []
    for n in range(6):
        a.simple("PREPARE big%d AS SELECT length('%s')" % (n, "x" * 50000))
    pins(one, db)
    assert value(a.simple("EXECUTE big5")) == ["50000"]
    a.simple("DISCARD ALL")
    assert types(b.simple("SELECT 1")) == "TDCZ"
    assert pinned(one, db) == []


def test_client_that_leaves(one, db):
    with one.wire(db) as b:
        with one.wire(db) as a:
            a.simple("PREPARE p AS SELECT 1")
        assert value(b.simple("SELECT count(*) FROM pg_prepared_statements WHERE from_sql")) == ["0"]


def test_session_pooling_is_left_alone(qbouncer, db):
    proxy = qbouncer(pool_mode="session")
    with proxy.wire(db) as a:
        a.simple("PREPARE p AS SELECT 1")
        assert value(a.simple("EXECUTE p")) == ["1"]
        assert stat(proxy, db, "total_replay_count") == 0
