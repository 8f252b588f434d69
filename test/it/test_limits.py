"""Limits and time-outs."""

import time

import pytest

from pgwire import PgError, types


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


def test_min_pool_size(qbouncer, db):
    proxy = qbouncer(min_pool_size=3)
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.wait_pool(db, sv_idle=3)


def test_default_pool_size(qbouncer, db, direct):
    proxy = qbouncer(default_pool_size=4)
    clients = [proxy.wire(db) for _ in range(12)]
    for c in clients:
        c.query("SELECT pg_sleep(0.2)")
    proxy.wait_pool(db, cl_waiting=8)
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = 'app'"
    assert direct.execute(sql, (db,)).fetchone() == (4,)
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


def test_servers_log_in_at_the_same_time(qbouncer, db):
    """Ten clients at once need ten servers: they are opened together, not one by one."""
    proxy = qbouncer(default_pool_size=10)
    clients = [proxy.wire(db) for _ in range(10)]
    for c in clients:
        c.query("SELECT pg_sleep(0.5)")
    proxy.wait_pool(db, sv_active=10, cl_waiting=0)
    for c in clients:
        c.until("Z")
        c.terminate()


def test_units(qbouncer, db):
    proxy = qbouncer(query_wait_timeout="2min", server_idle_timeout="10min")
    rows = {r["key"]: r["value"] for r in proxy.console("SHOW CONFIG")}
    assert rows["query_wait_timeout"] in ("120", "2min")
    assert rows["server_idle_timeout"] in ("600", "10min")
