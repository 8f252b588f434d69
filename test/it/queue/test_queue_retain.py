"""Retention of streams by the proxy: what is no longer to be kept is emptied whole; who loses events by it is told."""

from metrics import samples
from proxy import free_port, wait_for
from queuetest import error, tag


def stream(w, *subs, options="retain = '0'"):
    tag(w, "QUEUE CREATE orders WITH (kind = stream, %s)" % options)
    for sub in subs:
        tag(w, "QUEUE SUBSCRIBE %s TO orders" % sub)


def ring(direct):
    return [direct.execute("SELECT count(*) FROM queue.e1_%d" % i).fetchone()[0] for i in range(4)]


def current(direct):
    return direct.execute("SELECT current FROM queue.streams").fetchone()[0]


def later(direct, by="2 hours"):
    for i in range(4):
        direct.execute("UPDATE queue.e1_%d SET pushed_at = pushed_at - %%s::interval" % i, (by,))


def take(w, sub):
    return w.rows("QUEUE TAKE orders FOR " + sub)


def test_emptied_when_all_have_it(qbouncer, db, direct):
    one, two = qbouncer(queue_maintenance="50ms"), qbouncer(queue_maintenance="50ms")
    with one.wire(db) as w, two.wire(db) as v:
        stream(w, "bi", "slow")
        tag(w, "QUEUE PUSH orders '1', '2'")
        token = take(v, "bi")[0]["token"]
        later(direct)
        wait_for(lambda: current(direct) == 1, "the ring to turn")
        tag(w, "QUEUE PUSH orders '3'")
        tag(v, "QUEUE DONE '%s'" % token)
        assert ring(direct) == [2, 1, 0, 0]
        token = take(v, "slow")[0]["token"]
        tag(v, "QUEUE DONE '%s'" % token)
        wait_for(lambda: ring(direct) == [0, 1, 0, 0], "what both have to go")
        assert [r["payload"] for r in take(w, "bi")] == ["3"]


def test_a_subscription_that_goes_frees_it(qbouncer, db, direct):
    proxy = qbouncer(queue_maintenance="50ms")
    with proxy.wire(db) as w:
        stream(w, "bi")
        for i in range(5):
            tag(w, "QUEUE PUSH orders '%d'" % i)
            later(direct)
            wait_for(lambda n=i: current(direct) == min(n + 1, 3), "the ring to turn")
        assert sum(ring(direct)) == 5
        tag(w, "QUEUE UNSUBSCRIBE bi FROM orders")
        wait_for(lambda: sum(ring(direct)) == 0, "all of it to go")


def test_a_prepared_push_is_waited_for(qbouncer, db, direct):
    """It is in no process any more, and still there."""
    proxy = qbouncer(queue_maintenance="50ms")
    with proxy.wire(db) as w:
        stream(w, "bi")
        tag(w, "BEGIN")
        tag(w, "QUEUE PUSH orders '1'")
        tag(w, "PREPARE TRANSACTION 'late'")
        tag(w, "QUEUE PUSH orders '2'")
        later(direct)
        wait_for(lambda: current(direct) == 1, "the ring to turn")
        token = take(w, "bi")[0]["token"]
        tag(w, "QUEUE DONE '%s'" % token)
        proxy.stop()
    proxy = qbouncer(queue_maintenance="50ms")
    with proxy.wire(db) as w:
        tag(w, "QUEUE PUSH orders '3'")
        token = take(w, "bi")[0]["token"]
        tag(w, "QUEUE DONE '%s'" % token)
        assert ring(direct) == [1, 1, 0, 0]
        tag(w, "COMMIT PREPARED 'late'")
        assert [r["payload"] for r in take(w, "bi")] == ["1"]


def test_who_loses_events_is_told(qbouncer, db, direct):
    port = free_port()
    proxy = qbouncer(queue_maintenance="50ms", metrics_port=port)
    with proxy.wire(db) as w:
        stream(w, "bi", options="retain_max = '10 hours'")
        tag(w, "QUEUE PUSH orders '1'")
        later(direct, "9 hours")
        wait_for(lambda: current(direct) == 1, "the ring to turn")
        tag(w, "QUEUE PUSH orders '2'")
        later(direct)
        proxy.wait_log("retain_max has removed events that were not seen by: orders/bi")
        assert samples(port)['qbouncer_queue_maintenance_lost_total{database="%s"}' % db] == 1
        health = {r["about"]: r["hint"] for r in w.rows("QUEUE HEALTH orders")}
        assert "SEEK bi ON orders TO BEGINNING" in health["subscription"]
        for _ in range(2):
            lost = error(w, "QUEUE TAKE orders FOR bi WAIT '1 s'")
            assert lost.sqlstate == "QB005" and "QUEUE SEEK bi ON orders TO BEGINNING" in lost.fields["H"]
        tag(w, "QUEUE SEEK bi ON orders TO BEGINNING")
        assert [r["payload"] for r in take(w, "bi")] == ["2"]
        assert proxy.log_text().count("retain_max has removed") == 1


def test_alter(qbouncer, db, direct):
    with qbouncer().wire(db) as w:
        stream(w)
        tag(w, "QUEUE ALTER orders SET (retain = '7 days', retain_max = '10 GB')")
        tag(w, "QUEUE ALTER orders RESET (retain)")
        assert direct.execute("SELECT retain, retain_max, retain_bytes FROM queue.streams").fetchone() == (None, None, 10 << 30)
        assert error(w, "QUEUE ALTER orders SET (lease = '1 s')").sqlstate == "0A000"
