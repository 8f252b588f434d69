"""LIST, STATS, PEEK and PURGE."""

import pytest


@pytest.fixture
def q(db):
    """One job in each state: 1 dead, 2 leased, 3 later, 4 and 5 ready."""
    db.create("q")
    db.push("q", "1", "2")
    first = db.take("q", worker="w")[0]
    db.rows("SELECT queue.fail(%s, 'no', final => true)", first["token"])
    db.take("q", worker="w2")
    db.push("q", "3", delay="1 h")
    db.push("q", "4")
    db.push("q", "5", priority=1)
    return db


def test_peek(q):
    assert q.column("SELECT id FROM queue.peek('q')") == [5, 4, 2, 3, 1]
    assert q.column("SELECT state FROM queue.peek('q', 3)") == ["ready", "ready", "leased"]
    assert q.rows("SELECT id, attempt, failures, error, worker FROM queue.peek('q', 9, 'dead')") \
        == [(1, 1, 1, "no", "w")]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'ready')") == [5, 4]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'leased')") == [2]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'later')") == [3]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'done')") == []
    assert q.rows("SELECT id FROM queue.peek('q', 0)") == []
    assert q.column("SELECT id FROM queue.peek('q', NULL, NULL)") == [5, 4, 2, 3, 1]
    assert [job["id"] for job in q.take("q", 9)] == [5, 4]


def test_peek_errors(q):
    assert "ready" in q.fails("22023", "SELECT queue.peek('q', 1, 'x')").message_hint
    q.fails("22023", "SELECT queue.peek('q', -1)")


def test_stats(q):
    q.create("r")
    assert q.rows("SELECT queue, ready, later, leased, dead FROM queue.stats()") == \
        [("q", 2, 1, 1, 1), ("r", 0, 0, 0, 0)]
    assert q.rows("SELECT queue, oldest_ready, next_due FROM queue.stats('r')") == \
        [("r", None, None)]
    assert q.value("SELECT s.oldest_ready = (SELECT min(pushed_at) FROM queue.peek('q', 9, 'ready'))"
                   " AND s.next_due = (SELECT lease_until FROM queue.peek('q', 9, 'leased'))"
                   " FROM queue.stats('q') AS s")


def test_purge(q):
    assert q.value("SELECT queue.purge('q', 'dead')") == 1
    assert q.value("SELECT queue.purge('q', 'done')") == 0
    assert q.value("SELECT queue.purge('q', 'later')") == 1
    assert q.value("SELECT queue.purge('q', 'ready')") == 2
    assert q.column("SELECT state FROM queue.peek('q')") == ["leased"]


def test_purge_all_but_leased(q):
    assert q.value("SELECT queue.purge('q', NULL)") == 4
    assert q.column("SELECT id FROM queue.peek('q')") == [2]


def test_purge_errors(q):
    for state in ("leased", "x", "", "ready' OR true; --"):
        assert q.fails("22023", "SELECT queue.purge('q', %s)", state).message_hint
    assert q.value("SELECT count(*) FROM queue.q_q") == 5


def test_list(q):
    assert q.rows("SELECT queue, lease, max_attempts, retry, on_disconnect, durability, owner "
                  "FROM queue.list()") == \
        [("q", "00:05:00", 25, "exponential 10s 1h", "auto", "sync", "app")]


def test_version(q):
    assert q.value("SELECT queue.version()") == 1


def test_gauges(q):
    assert q.rows("SELECT queue, ready, later, leased, dead, oldest_ms >= 0 FROM queue._gauges(100)") == \
        [("q", 2, 1, 1, 1, True)]
    q.push("q", *["0"] * 50)
    assert q.rows("SELECT ready, dead FROM queue._gauges(10)") == [(10, 1)]
    q.create("empty")
    assert q.rows("SELECT ready, oldest_ms FROM queue._gauges(10) WHERE queue = 'empty'") == [(0, None)]
