"""Several hosts for a database: which is taken, which is left out, and what follows a failover."""

import threading

import psycopg
import pytest

from pgcluster import Cluster, Standby, pg_major
from pgwire import PgError
from proxy import wait_for


def in_recovery(proxy, name):
    with proxy.wire(name) as c:
        return c.rows("SELECT pg_is_in_recovery() AS r")[0]["r"]


def refused(proxy, name):
    try:
        in_recovery(proxy, name)
    except PgError as e:
        return e.sqlstate
    return None


def test_failover_is_followed(qbouncer):
    """The primary dies, the standby is promoted: clients are served again, and nobody has to say so."""
    if pg_major() < 14:
        pytest.skip("servers tell their role since PostgreSQL 14")
    with Cluster(settings={"listen_addresses": ""}) as primary:
        primary.psql("CREATE ROLE app LOGIN")
        with Standby(primary) as standby:
            line = "host=%s,%s port=%d dbname=postgres target_session_attrs=" % (
                primary.socket_dir, standby.socket_dir, primary.port)
            names = "primary", "standby", "prefer-standby", "any"
            proxy = qbouncer(databases={n: line + n for n in names}, server_login_retry=1)
            assert [in_recovery(proxy, n) for n in names[:3]] == ["f", "t", "t"]
            with proxy.wire("standby") as held:
                held.simple("SELECT 1")
                primary.kill()
                standby.promote()
                wait_for(lambda: refused(proxy, "primary") is None, "the new primary")
                assert in_recovery(proxy, "primary") == "f"
                assert in_recovery(proxy, "prefer-standby") == "f"
            wait_for(lambda: refused(proxy, "standby") == "08006", "that there is no standby any more")


def where(proxy, name="many"):
    with proxy.wire(name) as c:
        return c.rows("SELECT current_setting('port') AS p")[0]["p"]


def test_dead_hosts_are_skipped(qbouncer, cluster):
    """The first has nobody listening: the second is taken, and it is not tried each time."""
    proxy = qbouncer(databases={"many": "host=/nowhere,%s port=%d dbname=postgres load_balance_hosts=disable"
                                        % (cluster.socket_dir, cluster.port)}, pool_mode="session", default_pool_size=10)
    conns = [proxy.wire("many") for _ in range(4)]
    for c in conns:
        assert c.rows("SELECT 1 AS one") == [{"one": "1"}]
    assert proxy.log_text().count("trying the next host") <= 2
    for c in conns:
        c.close()


def test_all_dead(qbouncer):
    proxy = qbouncer(databases={"many": "host=/nowhere,/nowhere/else dbname=postgres"})
    with pytest.raises(PgError) as e:
        proxy.wire("many")
    assert e.value.sqlstate == "08006"


def test_round_robin(qbouncer, cluster):
    """Two names of one server, used in turn."""
    proxy = qbouncer(databases={"many": "host=127.0.0.1,localhost port=%d dbname=postgres" % cluster.port,
                                "one": "host=127.0.0.1,/nowhere port=%d dbname=postgres load_balance_hosts=disable" % cluster.port},
                     default_pool_size=4, pool_mode="session")
    conns = [proxy.wire("many") for _ in range(4)] + [proxy.wire("one") for _ in range(4)]
    for c in conns:
        c.simple("SELECT 1")
    assert "trying the next host" not in proxy.log_text()
    for c in conns:
        c.close()


@pytest.mark.parametrize("want, good", [("any", True), ("primary", True), ("read-write", True), ("prefer-standby", True),
                                        ("standby", False), ("read-only", False)])
def test_role_of_a_primary(qbouncer, cluster, want, good):
    if pg_major() < 14 and want in ("primary", "read-write"):
        good = False  # servers tell their role since 14
    proxy = qbouncer(databases={"many": "host=127.0.0.1,localhost port=%d dbname=postgres target_session_attrs=%s"
                                        % (cluster.port, want)}, server_login_retry=0)
    if good:
        assert where(proxy) == str(cluster.port)
        return
    with pytest.raises(PgError) as e:
        proxy.wire("many")
    assert e.value.sqlstate == "08006" and "target_session_attrs" in e.value.fields["H"]


def test_cancel_goes_to_the_host_of_the_server(qbouncer, cluster):
    proxy = qbouncer(databases={"many": "host=/nowhere,%s port=%d dbname=postgres" % (cluster.socket_dir, cluster.port)})
    def stop(conn):
        wait_for(lambda: cluster.psql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%' "
                                      "AND state = 'active'") == "1", "the query")
        conn.cancel()
    with proxy.connect("many") as conn:
        canceller = threading.Thread(target=stop, args=(conn,))
        canceller.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(60)")
        canceller.join()


def test_how_hosts_are_chosen_is_shown(qbouncer):
    """Where there are several, as pgbouncer."""
    proxy = qbouncer(databases={"one": "host=127.0.0.1", "two": "host=127.0.0.1,127.0.0.2",
                                "first": "host=127.0.0.1,127.0.0.2 load_balance_hosts=disable"})
    rows = {r["name"]: r["load_balance_hosts"] for r in proxy.console("SHOW DATABASES")}
    assert (rows["one"], rows["two"], rows["first"]) == (None, "round-robin", "disable")
