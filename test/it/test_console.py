"""The console: columns that exporters parse, commands, who may do what."""

import psycopg
import pytest

from pgwire import PgError, types

COLUMNS = {
    "VERSION": "version",
    "STATE": "key value",
    "CONFIG": "key value default changeable",
    "MEM": "name size used free memtotal",
    "DATABASES": "name host port database force_user pool_size min_pool_size reserve_pool_size "
                 "server_lifetime pool_mode load_balance_hosts max_connections current_connections "
                 "max_client_connections current_client_connections paused disabled",
    "LISTS": "list items",
}


@pytest.mark.parametrize("what", sorted(COLUMNS))
def test_columns(proxy, what):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.simple("SHOW " + what)
        assert got[0].type == "T", got
        assert [x[0] for x in got[0].columns] == COLUMNS[what].split()
        assert got[-2].tag == "SHOW"


@pytest.mark.parametrize("what", [
    "POOLS", "CLIENTS", "SERVERS", "USERS", "STATS", "STATS_TOTALS", "STATS_AVERAGES", "TOTALS",
    "QUEUES", "WAITERS", "LEASES"])
def test_show(proxy, db, what):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        for user in ("admin", "stats"):
            for name in ("qbouncer", "pgbouncer"):
                rows = proxy.console("SHOW " + what, user, name)
                assert rows is not None


def test_show_help(proxy):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.query("SHOW HELP").until("Z", skip="SA")
        assert types(got) == "NCZ"
        assert "SHOW" in got[0].fields["D"]


def test_pools(proxy, db):
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        b.simple("SELECT 1")
        row = proxy.wait_pool(db, cl_active=2, sv_active=1)
        assert row["pool_mode"] == "transaction"
        servers = [r for r in proxy.console("SHOW SERVERS") if r["database"] == db]
        assert sorted(r["state"] for r in servers) == ["active", "idle"]
        clients = [r for r in proxy.console("SHOW CLIENTS") if r["database"] == db]
        assert len(clients) == 2


def test_stats_count(proxy, db):
    with proxy.wire(db) as c:
        for _ in range(10):
            c.simple("SELECT 1")
    row = next(r for r in proxy.console("SHOW STATS") if r["database"] == db)
    assert int(row["total_query_count"]) >= 10
    assert int(row["total_received"]) > 0 and int(row["total_sent"]) > 0


@pytest.mark.parametrize("command", ["RELOAD", "PAUSE", "RESUME", "KILL x", "SHUTDOWN", "RECONNECT",
                                     "DISABLE x", "ENABLE x", "SET verbose = '1'", "SUSPEND"])
def test_stats_user_may_only_look(proxy, command):
    with pytest.raises(PgError):
        proxy.console(command, "stats")
    assert proxy.console("SHOW VERSION", "stats")


def test_others_may_not(proxy):
    with pytest.raises(PgError) as e:
        proxy.console("SHOW VERSION", "app")
    assert e.value.fields["S"] == "FATAL"


@pytest.mark.parametrize("command", ["NONSENSE", "SHOW NONSENSE", "SHOW", "PAUSE nosuchdb",
                                     "SET nosuchkey = '1'", "SET query_wait_timeout = 'soon'", "'",
                                     "SHOW " + "x" * 10000])
def test_wrong_command(proxy, command):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.simple(command)
        assert types(got) == "EZ" and got[0].fields["S"] == "ERROR"
        assert types(c.simple("SHOW VERSION")) == "TDCZ"


def test_pause_and_resume(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.console("PAUSE " + db)
        c.query("SELECT 2")
        assert c.silent()
        row = next(r for r in proxy.console("SHOW DATABASES") if r["name"] in (db, "*"))
        assert row
        proxy.console("RESUME " + db)
        assert types(c.until("Z")) == "TDCZ"


def test_pause_waits_for_transactions(proxy, db):
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        admin.query("PAUSE " + db)
        assert admin.silent()
        c.simple("COMMIT")
        assert types(admin.until("Z")) == "CZ"
        proxy.console("RESUME " + db)


def test_disable_and_enable(proxy, db):
    proxy.wire(db).simple("SELECT 1")
    proxy.console("DISABLE " + db)
    with pytest.raises(PgError):
        proxy.wire(db)
    proxy.console("ENABLE " + db)
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


def test_kill_and_resume(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.console("KILL " + db)
        got = c.closed()
        assert got and got[-1].type == "E" and got[-1].fields["S"] == "FATAL"
        proxy.console("RESUME " + db)
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


def test_reconnect(proxy, db):
    sql = "SELECT pg_backend_pid() AS p"
    with proxy.wire(db) as c:
        first = c.rows(sql)[0]["p"]
        proxy.console("RECONNECT " + db)
        assert c.rows(sql)[0]["p"] != first


def test_set(proxy):
    proxy.console("SET query_wait_timeout = '33'")
    rows = {r["key"]: r["value"] for r in proxy.console("SHOW CONFIG")}
    assert rows["query_wait_timeout"] in ("33", "33s")


@pytest.mark.parametrize("command", ["SHUTDOWN", "SHUTDOWN WAIT_FOR_SERVERS",
                                     "SHUTDOWN WAIT_FOR_CLIENTS"])
def test_shutdown(proxy, command):
    from proxy import wait_for
    try:
        proxy.console(command)
    except Exception: # the immediate form may end before it answers
        assert command == "SHUTDOWN"
    wait_for(lambda: proxy.process.poll() is not None, "the end")


def test_psycopg_extended(proxy):
    """A driver that uses the extended protocol for everything."""
    with proxy.connect("qbouncer", "admin") as conn:
        cur = conn.execute("SHOW POOLS", (), prepare=True)
        assert [d.name for d in cur.description][:2] == ["database", "user"]
        conn.execute("SHOW VERSION", ())
    with psycopg.connect(proxy.dsn("pgbouncer", "admin"), autocommit=True) as conn:
        assert "qbouncer" in conn.execute("SHOW VERSION").fetchone()[0].lower()


def test_secrets_are_not_shown(qbouncer, cluster, db):
    line = "host=%s port=%d password=hush-hush" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(databases={db: line}, users={"other": "hush-hush"})
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        for what in list(COLUMNS) + ["POOLS", "CLIENTS", "SERVERS", "USERS"]:
            assert "hush-hush" not in str(proxy.console("SHOW " + what)), what
    assert "hush-hush" not in proxy.log_text()
