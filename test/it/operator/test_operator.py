"""What an operator of pgbouncer expects of settings, limits and counts, in its corners."""

import contextlib
import socket
import struct
import subprocess
import threading

import pytest

from pgwire import PgError, Wire, types
from proxy import free_port, wait_for


def refused(make):
    with pytest.raises(PgError) as e:
        make().close()
    return e.value


# -- server_check_delay -------------------------------------------------------------------------

@pytest.mark.parametrize("delay", ["0", "1us"])
def test_every_server_is_checked_once_after_each_use(qbouncer, db, direct, delay):
    proxy = qbouncer(server_check_delay=delay, server_check_query="SELECT 'still there'", default_pool_size=1)
    last = "SELECT query FROM pg_stat_activity WHERE datname = %s AND usename = 'app' AND application_name <> 'psycopg'"
    with proxy.wire(db) as c:
        for _ in range(3):
            assert types(c.simple("SELECT 1")) == "TDCZ"
        c.simple("BEGIN")
        c.simple("SELECT 1")
        c.simple("COMMIT")
        assert direct.execute(last, [db]).fetchone()
    assert len(proxy.console("SHOW SERVERS")) == 1


# -- auth_query ---------------------------------------------------------------------------------

@pytest.fixture
def asker(cluster):
    cluster.psql("""
        CREATE ROLE asker LOGIN SUPERUSER;
        CREATE ROLE ada LOGIN PASSWORD 'pass of ada';
        CREATE ROLE bob LOGIN PASSWORD 'pass of bob';
        """)
    yield {"auth_type": "scram-sha-256", "auth_user": "asker"}
    cluster.psql("DROP ROLE asker, ada, bob")


def who(proxy, db, user, **more):
    with proxy.wire(db, user, "pass of " + user, **more) as c:
        return c.rows("SELECT current_user AS u")[0]["u"]


@pytest.mark.parametrize("limit", [1, 2])
def test_few_places_are_shared_with_auth_query(qbouncer, db, asker, limit):
    """Idle connections of auth_user go, and come when a login needs one."""
    proxy = qbouncer(max_db_connections=limit, auth_query_cache=0, **asker)
    for user in ("ada", "bob", "ada", "bob"):
        assert who(proxy, db, user) == user
    row = next(r for r in proxy.console("SHOW DATABASES") if r["name"] == db)
    assert int(row["current_connections"]) <= limit
    with proxy.wire(db, "ada", "pass of ada") as a, proxy.wire(db, "bob", "pass of bob") as b:
        for c in (a, b, a, b):
            assert types(c.simple("SELECT 1")) == "TDCZ"


def test_a_login_that_waits_for_a_place_ends_in_time(qbouncer, db, asker):
    proxy = qbouncer(max_db_connections=1, auth_query_cache=0, query_wait_timeout=1, **asker)
    with proxy.wire(db, "ada", "pass of ada") as a:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        e = refused(lambda: proxy.wire(db, "bob", "pass of bob"))
        assert (e.sqlstate, e.fields["M"]) == ("53300", "query_wait_timeout")
        a.simple("COMMIT")
        assert who(proxy, db, "bob") == "bob"


def test_a_login_that_waits_for_the_first_server_ends_in_time(qbouncer, db):
    proxy = qbouncer(max_db_connections=1, query_wait_timeout=1)
    with proxy.wire(db) as a:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        e = refused(lambda: proxy.wire(db, "other"))
        assert (e.sqlstate, e.fields["M"]) == ("53300", "query_wait_timeout")
        assert "max_db_connections" in e.fields["H"]


FUNCTION = """
CREATE FUNCTION %s.secret_of(text) RETURNS TABLE (n text, s text) LANGUAGE sql SECURITY DEFINER
AS $$SELECT rolname::text, %s FROM pg_catalog.pg_authid WHERE rolname = $1$$"""


@pytest.mark.parametrize("where", ["public", "of_role", "connect_query"])
def test_auth_query_with_bare_names(qbouncer, cluster, db, asker, where):
    """Found where the server looks for auth_user, whatever the client says its search_path is."""
    entry = {}
    if where != "public":
        cluster.psql("CREATE SCHEMA %s" % where, db)
    if where == "of_role":
        cluster.psql("ALTER ROLE asker SET search_path = of_role", db)
    if where == "connect_query":
        entry = {"databases": {db: "host=%s port=%d connect_query='SET search_path = connect_query'"
                               % (cluster.socket_dir, cluster.port)}}
    cluster.psql(FUNCTION % (where, "rolpassword"), db)
    cluster.psql("CREATE SCHEMA evil;" + FUNCTION % ("evil", "'known to the client'"), db)
    proxy = qbouncer(auth_query="SELECT n, s FROM secret_of($1)", auth_query_cache=0, **asker, **entry)
    for more in ({}, {"search_path": "evil"}, {"options": "-c search_path=evil"}):
        assert who(proxy, db, "ada", **more) == "ada"
        assert refused(lambda m=more: proxy.wire(db, "ada", "known to the client", **m)).sqlstate == "28P01"


@pytest.mark.parametrize("place", ["setting", "entry"])
@pytest.mark.parametrize("name", ["pgbouncer", "qbouncer"])
def test_auth_dbname_is_no_console(qbouncer, cluster, place, name):
    idle = qbouncer(start=False)
    line = "auth_dbname = %s" % name
    text = "[databases]\n* = host=%s%s\n[pgbouncer]\nlisten_port = 6432\n%s\n" % (
        cluster.socket_dir, " auth_dbname=" + name if place == "entry" else "", line if place == "setting" else "")
    code, out = check(idle, text)
    assert code != 0 and "auth_dbname" in out and "reserved" in out, out


def check(proxy, text):
    path = proxy.dir + "/check.ini"
    proxy._put(path, text)
    done = subprocess.run([proxy.program, "--check-config", path], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False,
                          cwd=proxy.dir, preexec_fn=proxy.become)
    return done.returncode, done.stdout


def test_a_small_pkt_buf_is_read(qbouncer, db):
    proxy = qbouncer(pkt_buf=75)
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT repeat('x', 10000)")) == "TDCZ"


# -- tcp_socket_buffer --------------------------------------------------------------------------

def tcp_info(sock):
    """Of Linux: bytes and segments with data that came, and how much the peer may be sent."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    if len(raw) < 232:
        pytest.skip("the kernel does not tell")
    return {"bytes": struct.unpack_from("Q", raw, 128)[0], "segments": struct.unpack_from("I", raw, 152)[0],
            "window": struct.unpack_from("I", raw, 228)[0]}


@pytest.mark.parametrize("size", [4096, 16384])
def test_small_socket_buffers_do_not_stall(qbouncer, cluster, db, size):
    """Each side may send two segments before it waits: with one that fills the buffer it waits for a
    timer of the other's, 40 ms each time."""
    proxy = qbouncer(tcp_socket_buffer=size, databases={db: "host=127.0.0.1 port=%d" % cluster.port})
    with proxy.wire(db) as c:
        assert tcp_info(c.sock)["window"] <= 2 * size
        c.simple("CREATE TABLE lines (t text)")
        c.query("COPY lines FROM STDIN").until("G")
        for _ in range(100):
            c.copy_data(b"x" * 19999 + b"\n")
        c.copy_done().until("Z")
        before = tcp_info(c.sock)
        c.query("COPY lines TO STDOUT").until("Z", skip="SNAd")
        after = tcp_info(c.sock)
        assert after["bytes"] - before["bytes"] >= 2000000
        assert (after["bytes"] - before["bytes"]) / (after["segments"] - before["segments"]) <= size


# -- SHOW USERS ---------------------------------------------------------------------------------

def users(proxy):
    return {r["name"]: r for r in proxy.console("SHOW USERS")}


def test_show_users_knows_all(qbouncer, cluster, db, asker):
    entry = "host=%s port=%d dbname=%s user=app" % (cluster.socket_dir, cluster.port, db)
    proxy = qbouncer(databases={"forced": entry}, sections="[users]\nlimited = pool_size=3\n", **asker)
    with proxy.wire(db, "ada", "pass of ada") as a, proxy.wire("forced", "bob", "pass of bob") as b, \
            proxy.wire("qbouncer", "stats", "stats-password"):
        a.simple("SELECT 1")
        b.simple("SELECT 1")
        rows = users(proxy)
        assert {"app", "admin", "limited", "asker", "ada", "bob"} <= set(rows)
        assert rows["limited"]["pool_size"] == "3"
        of = {n: (r["current_client_connections"], r["current_connections"]) for n, r in rows.items()}
        assert of["ada"] == ("1", "1")
        assert of["bob"] == ("1", "0")   # on a server as app
        assert of["app"] == ("0", "1")
        assert of["stats"] == ("1", "0")
        assert of["admin"] == ("1", "0")   # who asks
        assert proxy.console("SHOW LISTS")[1] == {"list": "users", "items": str(len(rows))}
    wait_for(lambda: users(proxy)["stats"]["current_client_connections"] == "0", "no client of stats")


@pytest.mark.parametrize("limit", ["max_user_client_connections", "max_db_client_connections"])
def test_consoles_are_limited(qbouncer, limit):
    """But not those of admin_users, who have to set it right."""
    proxy = qbouncer(**{limit: 1})
    with proxy.wire("qbouncer", "stats") as c:
        e = refused(lambda: proxy.wire("qbouncer", "stats"))
        assert e.sqlstate == "53300" and limit in e.fields["M"]
        assert types(c.simple("SHOW VERSION")) == "TDCZ"
        with proxy.wire("qbouncer", "admin"), proxy.wire("qbouncer", "admin"):
            pass
    wait_for(lambda: users(proxy)["stats"]["current_client_connections"] == "0", "no client of stats")
    proxy.wire("qbouncer", "stats").close()


# -- pools and servers --------------------------------------------------------------------------

def test_min_pool_size_of_a_forced_user(qbouncer, cluster, db):
    """Its servers are there before anybody has come."""
    proxy = qbouncer(databases={db: "host=%s port=%d user=app min_pool_size=2" % (cluster.socket_dir, cluster.port)})
    proxy.wait_pool(db, "app", sv_idle=2)


def test_servers_of_an_old_entry_are_nothing_to_wait_for(qbouncer, cluster, db):
    """The new one cannot be reached; a server of the old one is busy, and is closed when it is free."""
    where = "host=%s port=%%d" % cluster.socket_dir
    proxy = qbouncer(databases={db: where % cluster.port})
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        proxy.databases[db] = where % free_port()
        proxy.reload()
        got = b.query("SELECT 1").until("Z")
        assert got[0].type == "E" and got[0].sqlstate == "08006"
        assert types(a.simple("COMMIT")) == "CZ"


class GoingDown:
    """A Postgres that refuses its first connection because it shuts down; later ones are the real one's."""

    def __init__(self, cluster):
        self.there = cluster.port
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is shutting down\0\0"
        first, _ = self.socket.accept()
        first.recv(10000)
        first.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)
        first.close()
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.socket.accept()
                other = socket.create_connection(("127.0.0.1", self.there))
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=self.splice, args=pair, daemon=True).start()

    @staticmethod
    def splice(src, dst):
        with contextlib.suppress(OSError):
            while True:
                data = src.recv(65536)
                if not data:
                    break
                dst.sendall(data)
            dst.shutdown(socket.SHUT_WR)


def test_nobody_hears_what_a_server_said_before_it_was_started_again(qbouncer, cluster, db):
    down = GoingDown(cluster)
    proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % down.port}, server_login_retry=300, server_tls_sslmode="disable")
    assert refused(lambda: proxy.wire(db)).fields["M"] == "the database system is shutting down"
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"
    down.socket.close()


# -- settings of the start-up packet ------------------------------------------------------------

LONG = "a" + "bc" * 1500


@pytest.mark.parametrize("more", [{"options": "-c my.setting=" + LONG}, {"options": "-c my.first=1 --my.setting=" + LONG},
                                  {"my.setting": LONG}])
def test_long_options(qbouncer, db, more):
    proxy = qbouncer()
    with proxy.wire(db, **more) as c:
        assert c.rows("SHOW my.setting")[0]["my.setting"] == LONG


@pytest.mark.parametrize("more", [
    {"options": "-c nosuch_setting=1"}, {"nosuch_setting": "1"}, {"client_encoding": "nosuch"},
    {"options": "-c client_encoding=nosuch"}, {"TimeZone": "nosuch"}, {"DateStyle": "nosuch"},
    {"options": "-c work_mem=1"}, {"statement_timeout": "long"}])
@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
def test_bad_settings_fail_the_login(qbouncer, cluster, db, more, pool_mode):
    direct = refused(lambda: Wire(cluster.port).startup(user="app", database=db, **more))
    proxy = qbouncer(pool_mode=pool_mode)
    for _ in range(2):
        e = refused(lambda: proxy.wire(db, **more))
        assert (e.fields["S"], e.sqlstate, e.fields["M"]) == ("FATAL", direct.sqlstate, direct.fields["M"])
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"
    proxy.wait_pool(db, cl_active=0, cl_waiting=0)


def test_settings_that_were_accepted_wait_for_no_server(qbouncer, db):
    proxy = qbouncer(max_db_connections=1)
    more = {"options": "-c work_mem=5MB", "client_encoding": "latin1", "application_name": "one"}
    with proxy.wire(db, **more) as a:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        with proxy.wire(db, **dict(more, application_name="two")) as b:
            b.query("SHOW work_mem")
            proxy.wait_pool(db, cl_waiting=1)
            a.simple("COMMIT")
            assert b.until("Z")[1].text_row == ["5MB"]


def test_new_settings_while_paused(qbouncer, db):
    """Nobody is given a server: whoever logs in is told with the first statement."""
    proxy = qbouncer()
    proxy.wire(db).close()
    proxy.wait_pool(db, cl_active=0)
    proxy.console("PAUSE " + db)
    with proxy.wire(db, nosuch_setting="1") as c:
        c.query("SELECT 1")
        proxy.console("RESUME " + db)
        assert c.closed()[0].sqlstate == "42704"


# -- time limits --------------------------------------------------------------------------------

@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
@pytest.mark.parametrize("how", ["simple", "extended"])
@pytest.mark.parametrize("key, sqlstate", [("idle_transaction_timeout", "25P03"), ("transaction_timeout", "25P04")])
def test_a_block_that_no_server_knows_of_is_limited(qbouncer, db, pool_mode, how, key, sqlstate):
    proxy = qbouncer(pool_mode=pool_mode, **{key: 1})
    with proxy.wire(db) as c:
        if how == "simple":
            c.simple("BEGIN")
        else:
            c.parse("", "BEGIN").bind().execute().sync().until("Z")
        assert c.closed()[-1].sqlstate == sqlstate


def test_a_statement_alone_is_a_transaction(qbouncer, db):
    proxy = qbouncer(transaction_timeout=1)
    with proxy.wire(db) as c:
        assert c.query("SELECT pg_sleep(60)").closed()[-1].sqlstate == "25P04"


def test_between_transactions_there_is_none(qbouncer, db):
    """Neither of them counts from a block that is over."""
    proxy = qbouncer(transaction_timeout=1, idle_transaction_timeout=1, client_idle_timeout=3)
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("COMMIT")
        assert c.closed()[-1].sqlstate == "57P05"


# -- counts -------------------------------------------------------------------------------------

def batch(*statements):
    def run(c):
        for sql in statements:
            c.parse("", sql).bind().execute().sync().until("Z")
    return run


def simple(*statements):
    def run(c):
        for sql in statements:
            c.simple(sql)
    return run


def named(c):
    c.parse("s", "SELECT 17").sync().until("Z")
    for _ in range(2):
        c.bind("", "s").execute().sync().until("Z")


# transactions, queries, Parse of clients, Bind: what PgBouncer 1.24 counts of the same
COUNTS = [
    (simple("SELECT 1"), 1, 1, 0, 0), (simple("SELECT 1; SELECT 2"), 1, 1, 0, 0), (simple("SELECT 1/0"), 1, 1, 0, 0),
    (simple("BEGIN", "SELECT 1", "COMMIT"), 1, 3, 0, 0), (simple("BEGIN", "COMMIT"), 1, 2, 0, 0),
    (simple("BEGIN", "ROLLBACK"), 1, 2, 0, 0), (simple("COMMIT"), 1, 1, 0, 0), (simple("BEGIN; SELECT 1", "COMMIT"), 1, 2, 0, 0),
    (simple(""), 1, 1, 0, 0), (simple(";"), 1, 1, 0, 0), (simple("SET application_name = 'x'"), 1, 1, 0, 0),
    (simple("DISCARD ALL"), 1, 1, 0, 0), (simple("UNLISTEN *"), 1, 1, 0, 0),
    (batch("SELECT 1"), 1, 1, 0, 0), (batch("BEGIN", "SELECT 1", "COMMIT"), 1, 3, 0, 0), (batch("SELECT 1/0"), 1, 1, 0, 0),
    (named, 3, 3, 1, 2), (lambda c: c.sync().until("Z"), 1, 1, 0, 0),
    (lambda c: c.parse("a", "SELECT 1").parse("b", "SELECT 1").sync().until("Z"), 1, 1, 2, 0),
]


def counts(proxy, db):
    row = next(r for r in proxy.console("SHOW STATS") if r["database"] == db)
    return [int(row["total_%s_count" % what]) for what in ("xact", "query", "client_parse", "bind")]


def test_counts_are_those_of_pgbouncer(proxy, db):
    for n, (run, *want) in enumerate(COUNTS):
        with proxy.wire(db) as c:
            c.simple("SELECT 1")
            before = counts(proxy, db)
            run(c)
            got = [b - a for a, b in zip(before, counts(proxy, db))]
        assert got == want, n
