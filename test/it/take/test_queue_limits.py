"""max_running, rate and hours before those who wait: woken by the end that makes room, or by the clock."""

import threading
import time

import psycopg
import pytest

from proxy import wait_for
from queuetest import HEARTBEAT, parked, qproxy, tag, take, woken  # noqa: F401


def fetches(proxy):
    return sum(int(r["probes"]) for r in proxy.console("SHOW QUEUES"))


def done(w, job):
    assert tag(w, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"


def done_in_a_block(w, job):
    tag(w, "BEGIN")
    done(w, job)
    tag(w, "COMMIT")


# by the worker itself
ENDS = {
    "DONE": done,
    "DONE in a block": done_in_a_block,
    "FAIL": lambda w, job: tag(w, "QUEUE FAIL '%s' RETRY IN '1 h'" % job["token"]),
    "RELEASE": lambda w, job: tag(w, "QUEUE RELEASE '%s' DELAY '1 h'" % job["token"]),
    "goodbye": lambda w, job: w.close(),
    "broken": lambda w, job: w.sock.close(),
}


@pytest.mark.parametrize("way", ["DONE", "DONE in a block", "FAIL", "RELEASE", "goodbye", "broken", "CANCEL", "other proxy", "SQL"])
def test_room_wakes(qproxy, qbouncer, db, direct, way):  # noqa: F811
    second = qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h")
    with qproxy.wire(db) as a, qproxy.wire(db) as b, second.wire(db) as other:
        tag(a, "QUEUE CREATE mail WITH (max_running = 1, on_disconnect = release)")
        tag(a, "QUEUE PUSH mail '1', '2'")
        first = take(a, "QUEUE TAKE mail LEASE '1 h'")
        b.query("QUEUE TAKE mail WAIT '60s'")
        parked(b)
        if way in ENDS:
            ENDS[way](a, first)
        elif way == "CANCEL":
            tag(other, "QUEUE CANCEL '%s'" % first["token"])
            assert other.rows("QUEUE STATS mail")[0]["leased"] == "1"   # until its worker hears of it
            a.close()
        elif way == "other proxy":
            done(other, first)
        else:
            direct.execute("SELECT queue.done(%s)", (first["token"],))
        job = woken(b)
        assert job["payload"] in ("1", "2")


def test_nothing_is_asked_while_there_is_no_room(qproxy, db):  # noqa: F811
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        tag(a, "QUEUE CREATE mail WITH (max_running = 1)")
        tag(a, "QUEUE PUSH mail '1', '2'")
        first = take(a, "QUEUE TAKE mail LEASE '1 h'")
        b.query("QUEUE TAKE mail WAIT '60s'")
        parked(b)
        asked = fetches(qproxy)
        parked(b)
        parked(b)
        assert fetches(qproxy) <= asked + 1      # one more that was on its way, and no poll
        done(a, first)
        woken(b)


def test_rate_by_timer(qproxy, db):  # noqa: F811
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        tag(a, "QUEUE CREATE mail WITH (rate = '5/s')")
        tag(a, "QUEUE PUSH mail '1', '2', '3'")
        assert take(a, "QUEUE TAKE mail")["payload"] == "1"
        assert a.rows("QUEUE TAKE mail LIMIT 5") == []
        b.query("QUEUE TAKE mail LIMIT 5 WAIT '60s'")
        assert woken(b)["payload"] == "2"
        b.query("QUEUE TAKE mail LIMIT 5 WAIT '60s'")
        assert woken(b)["payload"] == "3"


def test_no_hand_over_past_the_limit(qproxy, db):  # noqa: F811
    with qproxy.wire(db) as a, qproxy.wire(db) as b, qproxy.wire(db) as c:
        tag(a, "QUEUE CREATE mail WITH (max_running = 1)")
        for w in (b, c):
            w.query("QUEUE TAKE mail WAIT '60s' LEASE '1 h'")
            parked(w)
        tag(a, "QUEUE PUSH mail '1'")
        first = woken(b)
        tag(a, "QUEUE PUSH mail '2' KEY 'k'")
        tag(a, "QUEUE PUSH mail '3'")
        parked(c)
        assert a.rows("QUEUE STATS mail")[0]["leased"] == "1"
        done(a, first)
        assert woken(c)["payload"] == "2"


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_never_more_through_two_proxies(qbouncer, db, direct, isolation):
    """Twelve workers at two proxies; the room is used up all the time, and never exceeded."""
    proxies = [qbouncer(queue_rescan="1h") for _ in range(2)]
    direct.execute("ALTER DATABASE %s SET default_transaction_isolation = '%s'" % (db, isolation))
    with proxies[0].connect(db) as setup:
        setup.execute("QUEUE CREATE mail WITH (max_running = 3)")
        setup.execute("QUEUE PUSH mail SELECT n FROM generate_series(1, 300) n")
    running, most, ended, problems = set(), [0], [], []
    lock = threading.Lock()

    def work(proxy):
        try:
            with proxy.connect(db) as conn:
                while len(ended) < 300:
                    for id, token, *_ in conn.execute("QUEUE TAKE mail WAIT '1s'").fetchall():
                        with lock:
                            running.add(id)
                            most[0] = max(most[0], len(running))
                        with lock:
                            running.discard(id)     # it is still leased: never too early
                        conn.execute("QUEUE DONE %s", (token,))
                        ended.append(id)
        except psycopg.Error as e:
            problems.append(repr(e))

    workers = [threading.Thread(target=work, args=(proxies[n % 2],)) for n in range(12)]
    for w in workers:
        w.start()
    seen = 0
    while any(w.is_alive() for w in workers):
        seen = max(seen, direct.execute("SELECT count(*) FROM queue.q_mail WHERE state = 'leased'").fetchone()[0])
    for w in workers:
        w.join()
    assert problems == [] and sorted(ended) == list(range(1, 301))
    assert most[0] <= 3 and seen <= 3


def test_takers_of_a_rate_at_two_proxies(qbouncer, db):
    """500/s: not faster, and all are delivered."""
    proxies = [qbouncer(queue_rescan="1h") for _ in range(2)]
    with proxies[0].connect(db) as setup:
        setup.execute("QUEUE CREATE mail WITH (rate = '500/s')")
        setup.execute("QUEUE PUSH mail SELECT n FROM generate_series(1, 400) n")
    got = []

    def work(proxy):
        with proxy.connect(db) as conn:
            while len(got) < 400:
                got.extend(conn.execute("QUEUE POP mail WAIT '1s'").fetchall())

    began = time.monotonic()
    workers = [threading.Thread(target=work, args=(proxies[n % 2],)) for n in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(got) == 400
    assert time.monotonic() - began >= (400 - 25 - 1) / 500


def test_a_burst_that_is_over_wakes_nobody_more(qbouncer, db, direct):
    """Of a queue without a rate: a moment later one looks whether there is more, and not as many as got something."""
    proxy = qbouncer(queue_rescan="1h", queue_heartbeat=HEARTBEAT)

    def counts():
        (row,) = proxy.console("SHOW QUEUES")
        return int(row["wakes"]), int(row["probes"])

    with proxy.wire(db) as setup:
        tag(setup, "QUEUE CREATE mail")
    waiters = [proxy.wire(db) for _ in range(60)]
    for w in waiters:
        w.query("QUEUE POP mail WAIT '60s'")
    wait_for(lambda: len(proxy.console("SHOW WAITERS")) == 60, "all wait")
    woken_before, _ = counts()
    direct.execute("INSERT INTO queue.q_mail (priority, payload, pushed_at) SELECT 0, '1', now() FROM generate_series(1, 20)")
    direct.execute("SELECT pg_notify('qbouncer', 'mail')")
    wait_for(lambda: len(proxy.console("SHOW WAITERS")) == 40, "20 got something")
    asked = [counts()[1]]

    def looked():
        woken_now, probes = counts()
        asked.append(probes)
        return woken_now >= woken_before + 2
    wait_for(looked, "the clock has woken one")
    assert asked[-1] - asked[0] <= 2
    for w in waiters:
        w.close()


def test_ends_while_it_waits(qproxy, db):  # noqa: F811
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        tag(a, "QUEUE CREATE mail WITH (rate = '1/d')")
        tag(a, "QUEUE PUSH mail '1', '2'")
        take(a, "QUEUE TAKE mail")
        b.query("QUEUE TAKE mail WAIT '100ms'")
        assert b.until("Z")[-2].body.startswith(b"SELECT 0")
        b.query("QUEUE TAKE mail WAIT '60s'")
        parked(b)
        tag(a, "QUEUE ALTER mail RESET (rate)")
        assert woken(b)["payload"] == "2"
        wait_for(lambda: not qproxy.console("SHOW WAITERS"), "nobody waits")


# --- groups ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["DONE", "DONE in a block", "FAIL", "RELEASE", "goodbye", "broken", "other proxy", "SQL", "push"])
def test_a_place_of_a_group_wakes(qproxy, qbouncer, db, direct, way):  # noqa: F811
    second = qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h")
    with qproxy.wire(db) as a, qproxy.wire(db) as b, second.wire(db) as other:
        tag(a, "QUEUE CREATE mail WITH (max_running_per_group = 2, on_disconnect = release)")
        tag(a, "QUEUE PUSH mail '1', '2', '3' GROUP 'a'")
        first = take(a, "QUEUE TAKE mail LEASE '1 h'")
        held = take(other, "QUEUE TAKE mail LEASE '1 h'")
        b.query("QUEUE TAKE mail WAIT '60s'")
        parked(b)
        if way in ENDS:
            ENDS[way](a, first)
        elif way == "other proxy":
            done(other, held)
        elif way == "SQL":
            direct.execute("SELECT queue.done(%s)", (first["token"],))
        else:
            tag(other, "QUEUE PUSH mail '4' GROUP 'b'")
        assert woken(b)["payload"] in ("1", "2", "3", "4")


@pytest.mark.parametrize("options,first", [("rate_per_group = '5/s'", 1), ("pause_per_group = '200 ms'", 1),
                                           ("max_running_per_group = none, rate_per_group = '4/s burst 2'", 2),
                                           ("pause = '200 ms'", 1)])
def test_a_group_by_timer(qproxy, db, options, first):  # noqa: F811
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        tag(a, "QUEUE CREATE mail WITH (%s)" % options)
        tag(a, "QUEUE PUSH mail %s GROUP 'a'" % ", ".join("'%d'" % n for n in range(1, 9)))
        assert len(a.rows("QUEUE POP mail LIMIT 8")) == first
        for n in range(3):
            b.query("QUEUE POP mail WAIT '60s'")
            assert woken(b)["payload"] == str(first + n + 1)


def test_groups_through_two_proxies(qbouncer, db, direct):
    """Twelve workers at two proxies; a place of each group, and all of them used up."""
    proxies = [qbouncer(queue_rescan="1h") for _ in range(2)]
    with proxies[0].connect(db) as setup:
        setup.execute("QUEUE CREATE mail WITH (max_running_per_group = 2, fair = group)")
        for g in range(4):
            setup.execute("QUEUE PUSH mail (payload, \"group\") SELECT n, 'g%d' FROM generate_series(1, 60) n" % g)
    ended, problems = [], []

    def work(proxy):
        try:
            with proxy.connect(db) as conn:
                while len(ended) < 240:
                    for id, token, *_ in conn.execute("QUEUE TAKE mail LIMIT 2 WAIT '1s'").fetchall():
                        conn.execute("QUEUE DONE %s", (token,))
                        ended.append(id)
        except psycopg.Error as e:
            problems.append(repr(e))

    workers = [threading.Thread(target=work, args=(proxies[n % 2],)) for n in range(12)]
    for w in workers:
        w.start()
    most = 0
    while any(w.is_alive() for w in workers):
        most = max(most, direct.execute("SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM queue.q_mail"
                                        " WHERE state = 'leased' GROUP BY \"group\") AS g").fetchone()[0])
    assert problems == [] and sorted(ended) == list(range(1, 241)) and most <= 2
