"""RELOAD with lower limits than what is in use, and with higher ones while somebody waits."""

import threading

import pytest

from pgwire import types
from proxy import wait_for

SERVERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'app' AND " \
          "backend_type = 'client backend' AND query NOT LIKE 'LISTEN%'"
PROCESSES = pytest.mark.parametrize("processes", [0, 2])
LIMITS = ["max_db_connections", "max_user_connections", "default_pool_size"]


def servers(direct):
    return direct.execute(SERVERS).fetchone()[0]


def begun(wires):
    """Each has a server, in a transaction."""
    for w in wires:
        assert types(w.simple("BEGIN; SELECT 1")) == "CTDCZ"


def change(proxy, **settings):
    proxy.settings.update(settings)
    proxy.reload()


def answers(wires, sql):
    """Of all at the same time."""
    found = [None] * len(wires)

    def ask(i):
        found[i] = types(wires[i].simple(sql))

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(len(wires))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    return found


@PROCESSES
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("round_robin", [0, 1])
def test_what_comes_free_goes_until_a_lower_limit_holds(qbouncer, db, direct, processes, limit, round_robin):
    proxy = qbouncer(processes=processes, server_round_robin=round_robin, default_pool_size=20, query_wait_timeout="10s")
    wires = [proxy.wire(db) for _ in range(6)]
    begun(wires)
    assert servers(direct) == 6
    change(proxy, **{limit: 2})
    for w in wires[:3]:
        assert types(w.simple("SELECT 1")) == "TDCZ"  # what is in use stays
        w.simple("COMMIT")
    wait_for(lambda: servers(direct) == 3, "the end of three")
    for w in wires[3:]:
        w.simple("COMMIT")
    wait_for(lambda: servers(direct) <= 2, "no more than the limit")
    assert answers(wires, "SELECT 1") == ["TDCZ"] * 6
    assert servers(direct) <= 2
    for w in wires:
        w.close()


@PROCESSES
@pytest.mark.parametrize("limit", LIMITS)
def test_a_higher_limit_serves_who_waits(qbouncer, db, processes, limit):
    proxy = qbouncer(processes=processes, query_wait_timeout="20s", **{limit: 1})
    with proxy.wire(db) as holder, proxy.wire(db) as waiter:
        begun([holder])
        waiter.query("SELECT 1")
        wait_for(lambda: sum(int(r["cl_waiting"]) for r in proxy.console("SHOW POOLS")) == 1, "one who waits")
        change(proxy, **{limit: 2})
        assert types(waiter.until("Z")) == "TDCZ"
        holder.simple("COMMIT")


@PROCESSES
def test_transactions_beyond_a_lower_size_get_what_they_wait_for(qbouncer, db, direct, processes):
    """Each has a server, of more than there may be by now, and waits for a statement that needs one beside it."""
    proxy = qbouncer(processes=processes, default_pool_size=8, queue_pool_size=1, query_wait_timeout="20s")
    wires = [proxy.wire(db) for _ in range(8)]
    wires[0].simple("QUEUE CREATE mail")
    begun(wires)
    change(proxy, default_pool_size=1)
    assert answers(wires, "QUEUE TAKE mail") == ["TCZ"] * 8
    for w in wires:
        assert types(w.simple("COMMIT")) == "CZ"
    assert answers(wires, "SELECT 1") == ["TDCZ"] * 8
    for w in wires:
        w.close()


def test_a_lower_queue_pool_size_leaves_one_for_what_clients_wait_for(qbouncer, db):
    """The connections of the engine's own go, of which there may be none any more: they are among those beside the pool."""
    proxy = qbouncer(default_pool_size=1, queue_pool_size=4, queue_engine_after=1, query_wait_timeout="20s")
    with proxy.wire(db) as c, proxy.wire(db) as other:
        c.simple("QUEUE CREATE mail")

        def engine():
            for _ in range(3):
                c.simple("QUEUE PUSH mail '1'")
            return proxy.pool(db)["sv_engine"] > 0
        wait_for(engine, "a connection of the engine's own")
        begun([other])
        change(proxy, queue_pool_size=1)
        wait_for(lambda: proxy.pool(db)["sv_engine"] == 0, "the end of the engine's own")
        other.simple("SET LOCAL search_path = public")
        assert types(other.simple("QUEUE TAKE mail")) == "TDCZ"
        other.simple("COMMIT")
