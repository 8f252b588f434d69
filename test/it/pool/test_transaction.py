"""Transaction pooling: a server belongs to a client for one transaction."""

import threading

import pytest

from pgwire import types


def pid(c):
    return c.rows("SELECT pg_backend_pid()")[0]["pg_backend_pid"]


def test_server_is_shared(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    clients = [proxy.wire(db) for _ in range(10)]
    assert len({pid(c) for c in clients}) == 1
    for c in clients:
        c.terminate()


def test_server_is_kept_in_a_transaction(qbouncer, db):
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN")
        mine = pid(a)
        assert pid(b) != mine
        assert pid(a) == mine
        a.simple("COMMIT")


def test_waiting_for_a_server(qbouncer, db):
    """The second client gets its turn when the first one's transaction ends."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        b.query("SELECT 'b'")
        proxy.wait_pool(db, cl_waiting=1)
        assert b.silent()
        a.simple("COMMIT")
        assert b.until("Z")[1].text_row == ["b"]


def test_order_of_waiting(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a:
        a.simple("CREATE TABLE o (n serial, who int)")
        a.simple("BEGIN; SELECT 1")
        waiting = []
        for i in range(8):
            c = proxy.wire(db)
            c.query("INSERT INTO o (who) VALUES (%d)" % i)
            proxy.wait_pool(db, cl_waiting=i + 1)
            waiting.append(c)
        a.simple("COMMIT")
        for c in waiting:
            c.until("Z")
            c.terminate()
        assert [r["who"] for r in a.rows("SELECT who FROM o ORDER BY n")] == list("01234567")


def test_session_mode_keeps_the_server(qbouncer, db):
    proxy = qbouncer(pool_mode="session", default_pool_size=2)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        first, second = pid(a), pid(b)
        assert first != second
        assert pid(a) == first
        a.simple("CREATE TEMP TABLE mine (a int)")
        a.simple("SET work_mem = '7MB'")
        a.terminate()
        proxy.wait_pool(db, sv_active=1, sv_idle=1)
        with proxy.wire(db) as c:
            assert pid(c) == first
            assert c.rows("SHOW work_mem")[0]["work_mem"] == "4MB"
            assert c.simple("SELECT * FROM mine")[0].sqlstate == "42P01"


def test_pool_mode_per_database(qbouncer, cluster, db):
    line = "host=%s port=%d dbname=%s pool_mode=%%s" % (cluster.socket_dir, cluster.port, db)
    proxy = qbouncer(databases={"s": line % "session", "t": line % "transaction"}, default_pool_size=1)
    with proxy.wire("t") as a, proxy.wire("t") as b:
        assert pid(a) == pid(b)
    with proxy.wire("s") as a:
        pid(a)
        with proxy.wire("s", wait=False) as b:
            assert b.silent() or b.login().query("SELECT 1").silent()


def test_parameters_follow_the_client(qbouncer, db):
    """SET of the tracked parameters and those of the start-up packet go with the client from
    server to server."""
    proxy = qbouncer(default_pool_size=1)
    a = proxy.wire(db, application_name="a", TimeZone="Asia/Tokyo")
    b = proxy.wire(db, application_name="b")
    a.simple("SET DateStyle = 'German'")
    b.simple("SET client_encoding = 'LATIN1'")
    b.simple("SET standard_conforming_strings = off")
    a.simple("SET IntervalStyle = 'iso_8601'")
    for _ in range(3):
        assert a.rows("SHOW TimeZone") == [{"TimeZone": "Asia/Tokyo"}]
        assert b.rows("SHOW TimeZone")[0]["TimeZone"] != "Asia/Tokyo"
        assert a.rows("SHOW DateStyle")[0]["DateStyle"].startswith("German")
        assert b.rows("SHOW DateStyle")[0]["DateStyle"].startswith("ISO")
        assert a.rows("SHOW application_name") == [{"application_name": "a"}]
        assert b.rows("SHOW application_name") == [{"application_name": "b"}]
        assert a.rows("SHOW client_encoding")[0]["client_encoding"] != "LATIN1"
        assert b.rows("SHOW client_encoding") == [{"client_encoding": "LATIN1"}]
        assert a.rows("SHOW standard_conforming_strings")[0]["standard_conforming_strings"] == "on"
        assert b.rows("SHOW standard_conforming_strings")[0]["standard_conforming_strings"] == "off"
        assert a.rows("SHOW IntervalStyle") == [{"IntervalStyle": "iso_8601"}]
    assert b.parameters["client_encoding"] == "LATIN1"
    a.terminate()
    b.terminate()


def test_quotes_in_parameters(qbouncer, db):
    """What a client says of itself cannot become SQL on a server."""
    proxy = qbouncer(default_pool_size=1)
    evil = "x'; DROP TABLE t; --\\"
    with proxy.wire(db) as a, proxy.wire(db, application_name=evil) as b:
        a.simple("CREATE TABLE t (a int)")
        assert b.rows("SHOW application_name") == [{"application_name": evil}]
        assert types(a.simple("SELECT * FROM t")) == "TCZ"
        assert b.rows("SHOW application_name") == [{"application_name": evil}]


def test_two_roles_have_two_pools(proxy, db):
    with proxy.wire(db, "app") as a, proxy.wire(db, "other") as b:
        for _ in range(3):
            assert a.rows("SELECT current_user")[0]["current_user"] == "app"
            assert b.rows("SELECT current_user")[0]["current_user"] == "other"


def test_concurrent_counting(qbouncer, db):
    """Many clients on few servers: no answer goes to the wrong client."""
    proxy = qbouncer(default_pool_size=3)
    errors = []

    def work(n):
        try:
            with proxy.wire(db) as c:
                for i in range(60):
                    assert c.rows("SELECT %d AS v" % (n * 1000 + i)) == [{"v": str(n * 1000 + i)}]
                    if i % 7 == 0:
                        c.simple("BEGIN")
                        c.hold().parse("", "SELECT $1::int").bind("", "", [str(i)])
                        got = c.execute().sync().push().until("Z")
                        assert got[2].text_row == [str(i)]
                        c.simple("COMMIT")
                c.terminate()
        except BaseException as e: # noqa: B036
            errors.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors


def test_transaction_that_the_server_ends(proxy, db, direct):
    """The backend is terminated while the client is in a transaction."""
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        mine = pid(c)
        direct.execute("SELECT pg_terminate_backend(%s)", (int(mine),))
        last = c.closed()
        assert last[-1].type == "E" and last[-1].sqlstate in ("57P01", "08006")
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_idle_server_that_dies(proxy, db, direct):
    """Nobody notices."""
    with proxy.wire(db) as c:
        first = pid(c)
        direct.execute("SELECT pg_terminate_backend(%s)", (int(first),))
        proxy.wait_pool(db, sv_idle=0)
        assert pid(c) != first


@pytest.mark.parametrize("sql", [
    "SELECT 1; SELECT 2",
    "BEGIN; SELECT 1; COMMIT",
    "BEGIN; SELECT 1; ROLLBACK; SELECT 2",
    "SELECT 1;;; SELECT 2;",
])
def test_several_statements(qbouncer, db, sql):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        assert a.simple(sql)[-1].status == "I"
        assert types(b.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("begin, tag", [
    ("BEGIN", "BEGIN"), ("begin work;", "BEGIN"), ("START TRANSACTION", "START TRANSACTION"),
    ("BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN"), ("/* x */ begin -- y", "BEGIN"),
])
def test_begin(proxy, db, begin, tag):
    """Deferred or not: seen from the client it is Postgres' own."""
    with proxy.wire(db) as c:
        got = c.simple(begin)
        assert types(got) == "CZ" and got[0].tag == tag and got[1].status == "T"
        got = c.simple("COMMIT")
        assert got[0].tag == "COMMIT" and got[-1].status == "I"
        c.simple(begin)
        assert c.simple("SELECT now() = now()")[-1].status == "T"
        level = c.rows("SHOW transaction_isolation")[0]["transaction_isolation"]
        assert (level == "serializable") == ("SERIALIZABLE" in begin)
        got = c.simple("ROLLBACK")
        assert got[0].tag == "ROLLBACK" and got[-1].status == "I"


def test_begin_twice_and_commit_without(proxy, db):
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        got = c.query("BEGIN").until("Z", skip="SA")
        assert types(got) == "NCZ" and got[0].sqlstate == "25001"
        c.simple("COMMIT")
        got = c.query("COMMIT").until("Z", skip="SA")
        assert types(got) == "NCZ" and got[0].sqlstate == "25P01"


@pytest.mark.parametrize("sql, tag", [("ROLLBACK", "ROLLBACK"), ("COMMIT", "ROLLBACK")])
def test_end_of_a_failed_block_by_a_named_portal(proxy, db, sql, tag):
    """As pg8000 sends it."""
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("SELECT 1/0")
        c.hold().parse("s", sql).sync().push().until("Z")
        got = c.hold().bind("p", "s").execute("p", 100).sync().push().until("Z")
        assert types(got) == "2CZ" and got[1].tag == tag and got[2].status == "I"


def test_begin_in_the_extended_protocol(proxy, db):
    with proxy.wire(db) as c:
        c.hold().parse("", "BEGIN").bind().describe("P").execute().sync().push()
        assert types(c.until("Z")) == "12nCZ"
        c.hold().parse("", "SELECT 1").bind().describe("P").execute().sync().push()
        got = c.until("Z")
        assert types(got) == "12TDCZ" and got[-1].status == "T"
        c.hold().parse("", "COMMIT").bind().describe("P").execute().sync().push()
        got = c.until("Z")
        assert types(got) == "12nCZ" and got[-1].status == "I"


@pytest.mark.parametrize("begin", ["simple", "extended"])
@pytest.mark.parametrize("how", ["failed", "ended"])
def test_answers_of_ours_behind_a_batch_without_a_sync(qbouncer, db, how, begin):
    """What the server owes is asked for: a Query brings no Sync."""
    proxy = qbouncer(pool_mode="session")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        if begin == "simple":
            c.simple("BEGIN")
        else:
            c.parse("", "BEGIN").bind().execute().sync().until("Z")
        if how == "failed":
            c.simple("QUEUE NONSENSE")
        c.close_object("P", "nosuch").query("SELECT 1" if how == "failed" else "ROLLBACK")
        assert types(c.until("Z")) == ("3EZ" if how == "failed" else "3CZ")
        assert types(c.simple("ROLLBACK"))[-2:] == "CZ"
        assert types(c.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("sql", ["COMMIT", "ROLLBACK"])
def test_portals_end_with_what_the_server_ends(proxy, db, sql, block):
    """In the same batch, and also the portal of what ends it: its name is free."""
    with proxy.wire(db) as c:
        if block:
            c.simple("BEGIN")
            c.simple("SELECT 1")
        c.hold().parse("", "SELECT 1").parse("e", sql).bind("p", "e").execute("p")
        c.bind("p", "e").describe("P", "p").execute("p").sync().push()
        assert types(c.until("Z")) == "112C2nCZ"
