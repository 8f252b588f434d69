"""Two phases: what was pushed in a transaction that was prepared is found when it is committed, whoever says it."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import HEARTBEAT, parked, tag, take, woken

NEVER = "1h"


@pytest.fixture
def two(qbouncer, db):
    """Two proxies that know of each other, look by themselves nearly never, and have a queue."""
    proxies = [qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan=NEVER) for _ in range(2)]
    with proxies[0].wire(db) as c:
        c.rows("QUEUE CREATE mail")
    for p in proxies:
        with p.wire(db) as c, proxies[0].wire(db) as pusher:
            def hears(c=c, pusher=pusher):
                while c.rows("QUEUE POP mail"):
                    pass
                c.query("QUEUE TAKE mail WAIT '500ms'")
                parked(c)
                tag(pusher, "QUEUE PUSH mail '0'")
                rows = [m.text_row for m in c.until("Z") if m.type == "D"]
                for row in rows:
                    tag(c, "QUEUE DONE '%s'" % row[1])
                return rows
            wait_for(hears, "a push that is heard of", 30)
            while c.rows("QUEUE POP mail"):
                pass
    return proxies


@pytest.fixture
def waiter(two, db):
    """How to wait at the one proxy or the other."""
    open_ones = []

    def wait(n):
        w = two[n].wire(db)
        open_ones.append(w)
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        return w
    yield wait
    for w in open_ones:
        w.close()


def prepare(conn, name="second"):
    tag(conn, "BEGIN")
    tag(conn, "QUEUE PUSH mail '1'")
    assert tag(conn, "PREPARE TRANSACTION '%s'" % name) == "PREPARE TRANSACTION"


@pytest.mark.parametrize("waits_at", [0, 1])
@pytest.mark.parametrize("commits_at", [0, 1])
def test_a_commit_through_any_proxy_wakes(two, db, waiter, waits_at, commits_at):
    w = waiter(waits_at)
    with two[0].wire(db) as pusher, two[commits_at].wire(db) as other:
        prepare(pusher)
        parked(w)
        assert tag(other, "COMMIT PREPARED 'second'") == "COMMIT PREPARED"
        assert woken(w)["payload"] == "1"


def test_a_proxy_that_has_never_seen_it_wakes(cluster, db, two, waiter):
    """As after a restart of the transaction manager, and of the proxy."""
    w = waiter(1)
    with psycopg.connect(cluster.dsn(db, "app"), autocommit=True) as past:
        for sql in ("BEGIN", "SELECT queue.push('mail', '1', notify => false)", "PREPARE TRANSACTION 'unseen'"):
            past.execute(sql)
    with two[0].wire(db) as c:
        tag(c, "COMMIT PREPARED 'unseen'")
    assert woken(w)["payload"] == "1"


def test_several_commits_wake_all(two, db, waiter):
    """Looks are not more frequent than ten a second; none of the commits goes without."""
    waiters = [waiter(n % 2) for n in range(4)]
    with two[0].wire(db) as c:
        for n in range(4):
            prepare(c, "p%d" % n)
        for n in range(4):
            tag(c, "COMMIT PREPARED 'p%d'" % n)
        for w in waiters:
            assert woken(w)["payload"] == "1"


def test_a_direct_commit_is_found_by_the_rescan(qbouncer, db, direct):
    p = qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="200ms")
    with p.wire(db) as c, p.wire(db) as w:
        c.rows("QUEUE CREATE mail")
        prepare(c)
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        direct.execute("COMMIT PREPARED 'second'")
        assert woken(w)["payload"] == "1"


def test_a_notification_cannot_be_prepared(two, db, direct):
    """Postgres says so; the proxy says what to do."""
    for sql in ("SET LOCAL qbouncer.tell = ''; SELECT queue.push('mail', '1')", "NOTIFY something"):
        with two[0].connect(db, autocommit=False) as conn:
            conn.execute(sql)
            with pytest.raises(psycopg.Error) as e:
                conn.execute("PREPARE TRANSACTION 'p'")
            assert e.value.sqlstate == "0A000" and "notify => false" in e.value.diag.message_hint
            conn.rollback()
    with two[0].connect(db, autocommit=False) as conn: # others have what Postgres says, and no more
        with pytest.raises(psycopg.Error) as e:
            conn.execute("SELECT 1 / 0")
        assert e.value.diag.message_hint is None


@pytest.mark.parametrize("payload", ["'1'::jsonb", "'1'::text", "'1'"])
def test_push_without_a_notification(two, db, direct, cluster, payload):
    with psycopg.connect(cluster.dsn(db), autocommit=True) as listener:
        listener.execute("LISTEN qbouncer")
        direct.execute("SELECT queue.push('mail', %s, notify => false)" % payload)
        direct.execute("NOTIFY qbouncer, 'behind it'")
        assert next(listener.notifies()).payload == "behind it"
    with two[0].wire(db) as c:
        assert take(c)["payload"] == "1"
