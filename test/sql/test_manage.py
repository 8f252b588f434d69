"""What is done to queues and to jobs from outside: PAUSE, RESUME."""

import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


# -- pause -------------------------------------------------------------------------------------

def test_a_paused_queue_gives_nothing(q):
    q.push("q", "1", "2")
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.pause('q')")
    q.rows("SELECT queue.pause('q')")
    assert q.value("SELECT paused FROM queue.list()")
    q.push("q", "3")
    q.push("q", "4", delay="1 h")
    assert q.take("q", 9) == q.take("q", 9, pop=True) == []
    assert q.due_ms("q") is None
    assert q.done(token) == ["q"]
    q.rows("SELECT queue.resume('q', false)")
    assert not q.value("SELECT paused FROM queue.list()")
    assert [job["id"] for job in q.take("q", 9)] == [2, 3]


def test_what_falls_due_in_a_pause(q):
    q.push("q", "1", delay="1 h")
    q.rows("SELECT queue.pause('q')")
    q.expire("q")
    assert q.take("q") == [] and q.due_ms("q") is None
    q.rows("SELECT queue.resume('q')")
    assert [job["id"] for job in q.take("q")] == [1]


def test_the_other_queues_of_a_take(q):
    q.create("r")
    q.push("q", "1")
    q.push("r", "2")
    q.rows("SELECT queue.pause('q')")
    assert [job["queue"] for job in q.take(["q", "r"], 5)] == ["r"]
    q.push("r", "2", delay="1 h")
    assert q.due_ms(["q", "r"]) > 0


def test_pause_errors(q):
    for verb in ("pause", "resume"):
        assert q.fails("42P01", "SELECT queue.%s('x')" % verb).message_hint
        q.fails("22004", "SELECT queue.%s(NULL)" % verb)
        assert q.connect("bob").fails("42501", "SELECT queue.%s('q')" % verb).message_primary == \
            'must be owner of queue "q"'


def test_resume_notifies(q):
    ear = q.connect()
    ear.rows("LISTEN qbouncer")
    q.rows("SELECT queue.pause('q')")
    q.rows("SELECT queue.resume('q', false)")
    q.rows("SELECT queue.resume('q')")
    got = next(ear.conn.notifies())
    assert (got.channel, got.payload) == ("qbouncer", "q")
