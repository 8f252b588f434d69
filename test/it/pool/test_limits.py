"""Limits and time-outs."""

import time

import pytest

from pgwire import PgError, types
from proxy import wait_for


def test_max_client_conn(qbouncer, db):
    proxy = qbouncer(max_client_conn=3)
    clients = [proxy.wire(db) for _ in range(3)]
    with pytest.raises(PgError) as e:
        proxy.wire(db)
    assert e.value.sqlstate == "53300"
    assert "max_client_conn" in " ".join(e.value.fields.values())
    clients.pop().terminate()
    from proxy import wait_for

    def again():
        try:
            return proxy.wire(db)
        except PgError:
            return None
    clients.append(wait_for(again, "a free place"))
    for c in clients:
        assert types(c.simple("SELECT 1")) == "TDCZ"
        c.terminate()


def test_query_wait_timeout(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, query_wait_timeout=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN; SELECT 1")
        started = time.monotonic()
        got = b.query("SELECT 1").closed()
        assert 0.8 < time.monotonic() - started < 5
        assert got[-1].type == "E" and got[-1].fields["S"] == "FATAL"
        assert "query_wait_timeout" in " ".join(got[-1].fields.values())
        a.simple("COMMIT")


def test_client_login_timeout(qbouncer, db):
    proxy = qbouncer(client_login_timeout=1, auth_type="scram-sha-256", tcp_defer_accept=0)
    for send in (lambda c: None, lambda c: c.raw(b"\0\0\0"),
                 lambda c: c.startup("app", db, wait=False)):
        with proxy.wire() as c:
            send(c)
            started = time.monotonic()
            c.closed() if send is not None else None
            assert time.monotonic() - started < 5


def test_idle_transaction_timeout(qbouncer, db):
    proxy = qbouncer(idle_transaction_timeout=1)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        got = c.closed()
        assert got[-1].type == "E"
        assert "idle" in got[-1].fields["M"]
        assert types(other.simple("SELECT 1")) == "TDCZ"


def test_server_idle_timeout(qbouncer, db):
    proxy = qbouncer(server_idle_timeout=1)
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.wait_pool(db, sv_idle=1)
        proxy.wait_pool(db, sv_idle=0)
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_server_lifetime(qbouncer, db):
    proxy = qbouncer(server_lifetime=1)
    with proxy.wire(db) as c:
        sql = "SELECT pg_backend_pid() AS p"
        first = c.rows(sql)[0]["p"]
        proxy.wait_pool(db, sv_idle=0)
        assert c.rows(sql)[0]["p"] != first


@pytest.mark.parametrize("connect_query", ["", " connect_query='SELECT 1'"])
def test_server_lifetime_of_nothing_is_one_use(qbouncer, cluster, connect_query):
    entry = "host=%s port=%d dbname=postgres server_lifetime=0" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(databases={"once": entry + connect_query})
    with proxy.wire("once") as c:
        seen = {c.rows("SELECT pg_backend_pid() AS p")[0]["p"] for _ in range(3)}
        assert len(seen) == 3
    assert proxy.log_text().count("closing because: server lifetime over") >= 2


def test_min_pool_size(qbouncer, db):
    proxy = qbouncer(min_pool_size=3)
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.wait_pool(db, sv_idle=3)


def test_default_pool_size(qbouncer, db, direct):
    proxy = qbouncer(default_pool_size=4)
    clients = [proxy.wire(db) for _ in range(12)]
    direct.execute("SELECT pg_advisory_lock(7)")
    for c in clients:
        c.query("SELECT pg_advisory_xact_lock_shared(7)")
    proxy.wait_pool(db, sv_active=4, cl_waiting=8)
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = 'app'"
    assert direct.execute(sql, (db,)).fetchone() == (4,)
    direct.execute("SELECT pg_advisory_unlock(7)")
    for c in clients:
        assert types(c.until("Z")) == "TDCZ"
        c.terminate()


def test_pool_size_of_the_database(qbouncer, cluster, db):
    line = "host=%s port=%d pool_size=1" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(databases={db: line})
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN; SELECT 1")
        b.query("SELECT 1")
        proxy.wait_pool(db, cl_waiting=1)
        a.simple("COMMIT")
        b.until("Z")


def test_servers_log_in_at_the_same_time(qbouncer, db, direct):
    """Ten clients at once need ten servers: they are opened together, not one by one."""
    proxy = qbouncer(default_pool_size=10)
    clients = [proxy.wire(db) for _ in range(10)]
    clients[0].simple("BEGIN; SELECT 1")
    direct.execute("SELECT pg_advisory_lock(7)")
    with direct.transaction():
        direct.execute("LOCK TABLE pg_db_role_setting")     # nobody's login ends
        for c in clients[1:]:
            c.query("SELECT pg_advisory_xact_lock_shared(7)")
        wait_for(lambda: proxy.pool(db)["sv_login"] >= 5, "servers for half of those who wait")
    proxy.wait_pool(db, sv_active=10, cl_waiting=0)
    direct.execute("SELECT pg_advisory_unlock(7)")
    for c in clients[1:]:
        assert types(c.until("Z")) == "TDCZ"
    for c in clients:
        c.terminate()


def test_units(qbouncer, db):
    proxy = qbouncer(query_wait_timeout="2min", server_idle_timeout="10min")
    rows = {r["key"]: r["value"] for r in proxy.console("SHOW CONFIG")}
    assert rows["query_wait_timeout"] in ("120", "2min")
    assert rows["server_idle_timeout"] in ("600", "10min")


# --- limits that several pools share --------------------------------------------------------------


def error_of(proxy, db, user="app"):
    with pytest.raises(PgError) as e:
        proxy.wire(db, user)
    return e.value


def test_max_user_client_connections(qbouncer, db):
    proxy = qbouncer(max_user_client_connections=2, sections="[users]\nother = max_user_client_connections=1\n")
    with proxy.wire(db), proxy.wire("postgres"), proxy.wire(db, "other"):
        for user, limit in ("app", 2), ("other", 1):
            e = error_of(proxy, db, user)
            assert e.sqlstate == "53300"
            assert e.message == "client connections exceeded (max_user_client_connections)"
            assert "max_user_client_connections = %d." % limit in e.fields["H"]
        row = proxy.wait_show("USERS", lambda r: r["name"] == "app")
        assert (row["max_user_client_connections"], row["current_client_connections"]) == ("2", "2")


def test_max_db_client_connections(qbouncer, cluster, db):
    proxy = qbouncer(databases={db: "host=%s port=%d max_db_client_connections=1" % (cluster.socket_dir, cluster.port)})
    with proxy.wire(db), proxy.wire("postgres"), proxy.wire("postgres"):
        e = error_of(proxy, db, "other")
        assert e.sqlstate == "53300" and "max_db_client_connections = 1" in e.fields["H"]


def test_max_db_connections_evicts_the_idle(qbouncer, db):
    """A pool that needs a server takes the place of one that nobody uses in another pool."""
    proxy = qbouncer(max_db_connections=1)
    with proxy.wire(db, "app") as a, proxy.wire(db, "other") as b:
        for c in a, b, a:
            assert types(c.simple("SELECT 1")) == "TDCZ"
    assert "evicted: max_db_connections" in proxy.log_text()


def test_max_user_connections_evicts_the_idle(qbouncer, db):
    proxy = qbouncer(sections="[users]\napp = max_user_connections=1\n")
    with proxy.wire(db) as a, proxy.wire("postgres") as b:
        for c in a, b, a:
            assert types(c.simple("SELECT 1")) == "TDCZ"
    assert "evicted: max_user_connections" in proxy.log_text()


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections", "default_pool_size"])
def test_waiting_error_names_the_limit(qbouncer, db, limit):
    proxy = qbouncer(query_wait_timeout=1, **{limit: 1})
    user, other = ("other", db) if limit == "max_db_connections" else ("app", "postgres")
    if limit == "default_pool_size":
        other = db
    with proxy.wire(db) as a, proxy.wire(other, user) as b:
        a.simple("BEGIN; SELECT 1")
        last = b.query("SELECT 1").closed()[-1]
        assert last.sqlstate == "53300"
        assert limit in last.fields["H"]
        a.simple("COMMIT")


def test_longest_waiter_first_over_pools(qbouncer, db):
    """One place for two pools: who waits longer gets it, though a client of the other pool waits too."""
    proxy = qbouncer(max_db_connections=1)
    with proxy.wire(db, "app") as a, proxy.wire(db, "other") as b, proxy.wire(db, "app") as c:
        a.simple("BEGIN; SELECT 1")
        b.query("SELECT 'b'")
        proxy.wait_pool(db, "other", cl_waiting=1)
        c.query("SELECT 'c'")
        proxy.wait_pool(db, "app", cl_waiting=1)
        a.simple("COMMIT")
        assert types(b.until("Z")) == "TDCZ"
        assert types(c.until("Z")) == "TDCZ"
    assert "makes room for one who waits longer" in proxy.log_text()


def test_reserve_pool_of_a_user(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, reserve_pool_timeout=1, sections="[users]\napp = reserve_pool_size=1\n")
    with proxy.wire(db) as a, proxy.wire(db) as b, proxy.wire(db) as c:
        a.simple("BEGIN; SELECT 1")
        assert types(b.simple("BEGIN; SELECT 1")) == "CTDCZ"
        c.query("SELECT 1")
        proxy.wait_pool(db, cl_waiting=1, sv_active=2)
        a.simple("COMMIT")
        c.until("Z")


TIMEOUTS = [
    ("query_timeout", "SELECT pg_sleep(60)", "57014"),
    ("idle_transaction_timeout", "BEGIN; SELECT 1", "25P03"),
    ("transaction_timeout", "SELECT pg_sleep(60)", "25P04"),
    ("client_idle_timeout", "SELECT 1", "57P05"),
]


@pytest.mark.parametrize("key, sql, sqlstate", TIMEOUTS)
def test_timeouts_of_a_user(qbouncer, db, key, sql, sqlstate):
    """What [users] says replaces what holds for all, and says so."""
    proxy = qbouncer(sections="[users]\napp = %s=1\n" % key, **{key: 300})
    with proxy.wire(db) as c, proxy.wire(db, "other") as other:
        other.simple("SELECT 1")
        if key == "transaction_timeout":
            c.simple("BEGIN; SELECT 1")
        last = c.query(sql).closed()[-1]
        assert last.sqlstate == sqlstate
        assert key in last.fields["H"]
        assert types(other.simple("SELECT 1")) == "TDCZ"


def test_query_wait_timeout_of_a_user(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, sections="[users]\napp = query_wait_timeout=1\n")
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN; SELECT 1")
        assert b.query("SELECT 1").closed()[-1].fields["M"] == "query_wait_timeout"
        a.simple("COMMIT")


def test_waiting_client_is_told(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, query_wait_notify=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN; SELECT 1")
        b.query("SELECT 1")
        notice = b.recv()
        assert notice.type == "N" and notice.fields["S"] == "NOTICE"
        assert notice.fields["M"] == "No server connection available in postgres backend, client being queued"
        a.simple("COMMIT")
        assert types(b.until("Z")) == "TDCZ"


def test_set_changes_a_limit_at_once(qbouncer, db):
    proxy = qbouncer()
    with proxy.wire(db):
        proxy.console("SET max_user_client_connections = 1")
        assert error_of(proxy, db).sqlstate == "53300"
        proxy.console("SET pool_mode = session")
        assert proxy.pool(db)["pool_mode"] == "session"


# --- servers that were idle -------------------------------------------------------------------------


def test_idle_server_is_asked_first(qbouncer, db, direct):
    """A server that has died meanwhile is found out before a client gets it."""
    proxy = qbouncer(server_check_delay="50ms", default_pool_size=1)
    with proxy.wire(db) as c:
        pid = c.rows("SELECT pg_backend_pid() AS p")[0]["p"]
        row = proxy.wait_show("SERVERS", lambda r: r["database"] == db and r["state"] == "idle")
        assert row["remote_pid"] == pid
        import time
        before = time.monotonic()
        wait_for(lambda: time.monotonic() - before > 0.1, "the delay")
        assert c.rows("SELECT pg_backend_pid() AS p")[0]["p"] == pid
    proxy.console("SET server_check_query = 'SELECT pg_terminate_backend(pg_backend_pid())'")
    with proxy.wire(db) as c:
        before = time.monotonic()
        wait_for(lambda: time.monotonic() - before > 0.1, "the delay")
        assert c.rows("SELECT pg_backend_pid() AS p")[0]["p"] != pid


def test_pool_idle_timeout(qbouncer, db):
    proxy = qbouncer(pool_idle_timeout="100ms", server_idle_timeout="100ms")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        assert proxy.pool(db)
    wait_for(lambda: proxy.pool(db) is None, "the end of the pool")
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"
