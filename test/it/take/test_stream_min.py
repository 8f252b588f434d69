"""MIN: readers that wait for so many events, and what happens between a look of theirs and what is counted behind it: old snapshots,
a server or a proxy that dies. No event is lost, none comes twice, and nobody is left asleep.
"""

import psycopg
import pytest

from pgcluster import Cluster
from proxy import wait_for
from queuetest import parked, tag
from test_stream_life import comes_back, drain, make, proxy_of, take

LOOK = "QUEUE TAKE s FOR a MIN 3 WITHIN '1 h' WAIT '1 min'"


@pytest.fixture(scope="module")
def private():
    """It may be killed."""
    with Cluster() as one:
        one.psql("CREATE ROLE app LOGIN")
        yield one


def told(w):
    """What it gets; it waits no longer."""
    rows = [m.text_row for m in w.until("Z") if m.type == "D"]
    return rows[0][1] if rows else None, [int(row[4]) for row in rows]


def waits_with_one(c, w):
    """One event is there, and it has seen that."""
    tag(c, "QUEUE PUSH s '1'")
    w.query(LOOK)
    parked(w)


@pytest.mark.parametrize("pushes", [True, False])
def test_an_old_snapshot(qbouncer, cluster, pushes):
    """Of somebody who only reads, or who pushes with it: what he pushes is there when he commits."""
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_rescan="1h", queue_heartbeat="20ms")
    with proxy.wire(db) as c, proxy.wire(db) as w, proxy.wire(db) as old:
        make(c, "a")
        tag(old, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        tag(old, "SELECT 1 FROM queue.streams")
        waits_with_one(c, w)
        tag(c, "QUEUE PUSH s '2'")
        if pushes:
            tag(old, "QUEUE PUSH s '3'")
            parked(w)
            tag(old, "COMMIT")
        else:
            tag(c, "QUEUE PUSH s '3'")
        token, got = told(w)
        assert sorted(got) == [1, 2, 3]
        tag(c, "QUEUE DONE '%s'" % token)
        for n in (4, 5, 6):                         # counted behind a delivery that had all
            w.query(LOOK) if n == 4 else None
            tag(c, "QUEUE PUSH s '%d'" % n)
        assert told(w)[1] == [4, 5, 6]


def test_the_server_dies_behind_a_look(qbouncer, private):
    """What was missing when it looked is still missing when the server is there again."""
    db = private.createdb(owner="app")
    proxy = proxy_of(qbouncer, private)
    with proxy.wire(db) as w:
        with proxy.wire(db) as c:
            make(c, "a")
            waits_with_one(c, w)
        private.kill()
        private.start()
        comes_back(proxy, db)
        with proxy.wire(db) as c:
            tag(c, "QUEUE PUSH s '2'")
            parked(w)
            tag(c, "QUEUE PUSH s '3'")
            token, got = told(w)
            assert got == [1, 2, 3]
            tag(c, "QUEUE DONE '%s'" % token)
            assert drain(c) == []


def test_a_look_dies_while_it_is_counted(qbouncer, cluster):
    """Pushes that were counted while it was under way: it looks once more."""
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_rescan="1h", queue_safety_poll="200ms", queue_heartbeat="20ms")
    with proxy.wire(db) as c, proxy.wire(db) as w, psycopg.connect(cluster.dsn(db, "postgres")) as root, \
            psycopg.connect(cluster.dsn(db, "postgres"), autocommit=True) as killer:
        make(c, "a")
        root.execute("LOCK TABLE queue.positions")
        w.query(LOOK)
        looks = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_for(lambda: killer.execute("SELECT count(*) " + looks).fetchone()[0], "the look")
        for n in (1, 2, 3):
            tag(c, "QUEUE PUSH s '%d'" % n)
        killer.execute("SELECT pg_terminate_backend(pid) " + looks)
        root.commit()
        token, got = told(w)
        assert got == [1, 2, 3]
        tag(c, "QUEUE DONE '%s'" % token)
        assert drain(c) == []


def test_a_proxy_dies_behind_a_look(qbouncer, cluster):
    """What it has counted is of no interest to another one, which looks itself; and counts what it has heard of uncounted."""
    db = cluster.createdb(owner="app")
    first, second = (qbouncer(queue_heartbeat="20ms") for _ in range(2))
    with second.wire(db) as c, second.wire(db) as w:
        make(c, "a")
        with first.wire(db) as gone:
            waits_with_one(c, gone)
            w.query(LOOK)
            parked(w)
            tag(c, "QUEUE PUSH s '2'")
            first.kill()
            tag(c, "QUEUE PUSH s '3'")
            token, got = told(w)
            assert got == [1, 2, 3]
            tag(c, "QUEUE DONE '%s'" % token)
            assert take(c) == (None, [])
