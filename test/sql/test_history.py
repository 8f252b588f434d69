"""What became of attempts that did not end well: QUEUE HISTORY."""

import pytest

LOOK = "SELECT attempt, worker, outcome, error FROM queue.history(%s)"


@pytest.fixture
def q(db):
    db.create("q", retry="fixed 1ms", retain_done="1 day", max_attempts=50)
    return db


def attempt(session, worker="w"):
    session.expire("q")
    return session.take("q", worker=worker)[0]


def fail(session, error, worker="w", **more):
    session.rows("SELECT queue.fail(%s, %s, '0')", attempt(session, worker)["token"], error)


def test_a_job_that_never_fails(q):
    q.push("q", "1", "2")
    assert q.rows(LOOK, "1") == []
    one, two = q.take("q", 2)
    assert q.rows(LOOK, "1") == []
    q.rows("SELECT queue.release(%s)", one["token"])
    q.rows("SELECT queue._give_back(ARRAY[%s], NULL, false)", two["token"])
    assert q.column("SELECT history FROM queue.q_q") == [None, None]
    q.done(attempt(q)["token"])
    assert q.rows(LOOK, "1") == [] and q.column("SELECT history FROM queue.a_q") == [None]


def test_each_way_to_fail(q):
    q.push("q", "1")
    fail(q, "no luck", "a")
    taken = attempt(q, "b")
    q.rows("SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)", taken["token"])
    (row,) = q.rows("SELECT taken_at, ended_at FROM queue.history('1') WHERE outcome = 'lost'")
    assert row[0].tzinfo and (row[1] - row[0]).total_seconds() < 60
    taken = q.take("q", worker="c", lease="1 s")[0]
    q.rows("UPDATE queue.q_q SET taken_at = taken_at - interval '1 h', lease_until = lease_until - interval '1 h'")
    expected = [(1, "a", "failed", "no luck"), (2, "b", "lost", "worker disconnected"), (3, "c", "expired", "lease expired")]
    assert q.rows(LOOK, "1") == expected  # nobody has noticed yet
    assert len(q.value("SELECT history FROM queue.q_q")) == 2
    fourth = q.take("q", worker="d")[0]
    assert q.rows(LOOK, "1") == expected
    seconds = q.value("SELECT extract(epoch FROM ended_at - taken_at) FROM queue.history('1') WHERE attempt = 3")
    assert float(seconds) == 1
    q.done(fourth["token"])
    assert q.rows(LOOK, "1") == expected  # in the archive
    assert q.value("SELECT error FROM queue.job('1')") is None
    q.fails("QB003", LOOK, "7")


def test_ran_too_long(q):
    q.rows("SELECT queue.alter('q', '{max_run}', '{1 min}')")
    q.push("q", "1")
    q.take("q")
    q.rows("UPDATE queue.q_q SET taken_at = taken_at - interval '1 h', lease_until = lease_until - interval '1 h'")
    assert q.rows(LOOK, "1") == [(1, None, "expired", "ran too long")]
    q.take("q")
    assert q.rows(LOOK, "1") == [(1, None, "expired", "ran too long")]


@pytest.mark.parametrize("most, kept", [(None, list(range(3, 13))), (2, [11, 12]), (1, [12]), (0, []), (100, list(range(1, 13)))])
def test_the_last_of_them(q, most, kept):
    if most is not None:
        q.rows("SELECT queue.alter('q', '{history}', ARRAY[%s])", str(most))
    q.push("q", "1")
    for n in range(1, 13):
        fail(q, "e%d" % n)
    assert q.rows("SELECT attempt, error FROM queue.history('1')") == [(n, "e%d" % n) for n in kept]


def test_fewer_from_now_on(q):
    q.push("q", "1")
    for n in range(5):
        fail(q, str(n))
    q.rows("SELECT queue.alter('q', '{history}', '{2}')")
    assert len(q.rows(LOOK, "1")) == 5  # what is there stays until the next one
    fail(q, "last")
    assert q.column("SELECT error FROM queue.history('1')") == ["4", "last"]
    q.rows("SELECT queue.alter('q', '{history}', '{0}')")
    attempt(q)
    q.expire("q")
    assert q.column("SELECT error FROM queue.history('1')") == ["last", "lease expired"][1:]
    attempt(q)
    assert q.rows(LOOK, "1") == []


def test_a_dead_one_that_is_run_again(q):
    q.rows("SELECT queue.alter('q', '{max_attempts}', '{1}')")
    q.rows("SELECT queue.push('q', '1', key => 'k')")
    fail(q, "x")
    assert q.rows("SELECT attempt, error FROM queue.history(q => 'q', k => 'k')") == [(1, "x")]
    q.rows("SELECT queue.rerun('1')")
    fail(q, "y")
    assert q.rows("SELECT attempt, error FROM queue.history('1', 'q')") == [(1, "x"), (1, "y")]


def test_a_long_error_is_cut(q):
    q.push("q", "1")
    fail(q, "\u00e9" * 5000)
    assert q.value("SELECT error FROM queue.history('1')") == "\u00e9" * 1000
    assert len(q.value("SELECT error FROM queue.job('1')")) > 1000


@pytest.mark.parametrize("value", ["-1", "101", "1000", "x", "", "1.5"])
def test_the_option(q, value):
    assert "0 to 100" in q.fails("22023", "SELECT queue.alter('q', '{history}', ARRAY[%s])", value).message_hint


@pytest.mark.parametrize("right, may", [("push", False), ("await", False), ("take", True)])
def test_rights(q, right, may):
    q.push("q", "1")
    fail(q, "secret")
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', ARRAY[%s], '{bob}')", right)
    if may:
        assert bob.column("SELECT error FROM queue.history('1', 'q')") == ["secret"]
    else:
        bob.fails("42501", LOOK, "1")
