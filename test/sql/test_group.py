"""PUSH with GROUP: one at a time, in the order of the pushes."""

import pytest


@pytest.fixture
def q(db):
    db.create("q", retry="fixed 1s")
    return db


def push(session, *payloads, group="g", **more):
    for p in payloads:
        session.rows("SELECT queue.push('q', %s, \"group\" => %s" + "".join(", %s => %%s" % k for k in more) + ")",
                     p, group, *more.values())


def payloads(taken):
    return [job["payload"] for job in taken]


def states(session):
    return session.column("SELECT state FROM queue.q_q ORDER BY id")


def test_one_at_a_time_in_order(q):
    push(q, "1", "2", "3")
    push(q, "11", "12", group="h")
    q.push("q", "21")
    assert states(q) == ["ready", "blocked", "blocked", "ready", "blocked", "ready"]
    first = q.take("q", 9)
    assert payloads(first) == [1, 11, 21]
    assert first[0]["group"] == "g"
    assert q.take("q", 9) == []
    q.done(first[0]["token"])
    second = q.take("q", 9)
    assert payloads(second) == [2]
    q.done(second[0]["token"], first[1]["token"])
    assert payloads(q.take("q", 9)) == [3, 12]


@pytest.mark.parametrize("end", ["done", "dead", "cancel", "cancel while it runs", "purge", "expire", "pop", "delete"])
def test_whatever_ends_the_first(q, end):
    push(q, "1", **({"expires": "1 h"} if end == "expire" else {}))
    push(q, "2")
    if end == "done":
        q.done(q.take("q")[0]["token"])
    elif end == "dead":
        q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    elif end == "cancel":
        q.rows("SELECT queue._cancel(ARRAY['1'], false)")
    elif end == "cancel while it runs":
        q.take("q")
        q.rows("SELECT queue._cancel(ARRAY['1'], false)")
        assert q.take("q") == []
        q.expire("q")
        q.take("q", 1)
    elif end == "purge":
        assert q.value("SELECT queue.purge('q', 'ready')") == 1
    elif end == "expire":
        q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE id = 1")
        q.take("q", pop=False)
    elif end == "pop":
        assert payloads(q.take("q", 9, pop=True)) == [1]
    else:
        q.rows("DELETE FROM queue.q_q WHERE id = 1")
    assert q.value("SELECT state FROM queue.q_q WHERE id = 2") in ("ready", "leased")


def test_a_retry_comes_before_the_next(q):
    push(q, "1", "2")
    q.rows("SELECT queue.fail(%s, 'no', retry_in => '1 h')", q.take("q")[0]["token"])
    assert q.take("q") == []
    q.rows("UPDATE queue.q_q SET run_at = now() WHERE id = 1")
    job = q.take("q")[0]
    assert (job["payload"], job["attempt"]) == (1, 2)
    q.rows("SELECT queue._release(ARRAY[%s], NULL, false)", job["token"])
    assert payloads(q.take("q", 9)) == [1]
    q.expire("q")
    assert payloads(q.take("q", 9)) == [1]


def test_a_lease_that_ends_for_the_last_time(q):
    q.rows("SELECT queue.alter('q', ARRAY['max_attempts'], ARRAY['1'], '{}')")
    push(q, "1", "2")
    q.take("q")
    q.expire("q")
    q.take("q", 0 + 1)
    assert states(q)[0] == "dead" and states(q)[1] in ("ready", "leased")


def test_the_group_waits_for_a_delayed_one(q):
    push(q, "1", delay="1 h")
    push(q, "2")
    assert states(q) == ["later", "blocked"]
    assert q.take("q") == []


def test_a_delayed_one_behind(q):
    push(q, "1")
    push(q, "2", delay="1 h")
    q.done(q.take("q")[0]["token"])
    assert states(q) == ["later"]


def test_purge_all(q):
    push(q, "1", "2", "3")
    assert q.value("SELECT queue.purge('q')") == 3
    assert states(q) == []


def test_dead_ones_come_back_behind(q):
    push(q, "1", "2", "3")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    assert states(q) == ["dead", "ready", "blocked"]
    q.rows("SELECT queue._rerun(ARRAY['1'], false)")
    assert states(q) == ["blocked", "ready", "blocked"]
    q.done(q.take("q")[0]["token"])
    assert states(q) == ["ready", "blocked"]
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    q.done(q.take("q")[0]["token"])
    assert q.value("SELECT queue.redrive('q')") == 1
    assert states(q) == ["ready"]


def test_key_and_group(q):
    push(q, "1", key="a")
    push(q, "2", key="b")
    push(q, "3", key="b")
    assert states(q) == ["ready", "blocked"]
    push(q, "4", key="b", on_duplicate="replace")
    q.done(q.take("q")[0]["token"])
    assert payloads(q.take("q")) == [4]


def test_stats_and_peek(q):
    push(q, "1", "2", "3")
    assert q.rows("SELECT ready, blocked FROM queue.stats('q')") == [(1, 2)]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'blocked')") == [2, 3]
    assert q.value("SELECT queue.purge('q', 'blocked')") == 2


# -- at the same time ------------------------------------------------------------------------------

def test_first_pushes_at_once(q):
    """The second waits for the first, and is behind it."""
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    push(one, "1")
    waits = two.beside(push, two, "2")
    q.until_blocked(two)
    one.rows("COMMIT")
    waits.result()
    assert states(q) == ["ready", "blocked"]


def test_the_first_push_is_rolled_back(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    push(one, "1")
    waits = two.beside(push, two, "2")
    q.until_blocked(two)
    one.rows("ROLLBACK")
    waits.result()
    assert states(q) == ["ready"]


def test_done_before_the_successor_is_committed(q):
    """Neither sees the other: the push looks again at its commit."""
    push(q, "1")
    token = q.take("q")[0]["token"]
    one = q.connect()
    one.rows("BEGIN")
    push(one, "2")
    q.done(token)  # and does not wait for it
    assert states(q) == []
    one.rows("COMMIT")
    assert states(q) == ["ready"]


def test_done_between_two_pushes_of_a_transaction(q):
    """The second one finds nobody before it but the first, which is blocked."""
    one = q.connect()
    push(q, "1")
    token = q.take("q")[0]["token"]
    one.rows("BEGIN")
    push(one, "2")
    q.done(token)
    push(one, "3")
    assert q.take("q", 9) == []
    one.rows("COMMIT")
    assert states(q) == ["ready", "blocked"]
    assert payloads(q.take("q", 9)) == [2]


def test_commit_of_the_successor_while_done_is_open(q):
    push(q, "1")
    token = q.take("q")[0]["token"]
    for end in ("ROLLBACK", "COMMIT"):
        one, two = q.connect(), q.connect()
        one.rows("BEGIN")
        push(one, "2")
        two.rows("BEGIN")
        two.done(token)
        waits = one.beside(one.rows, "SET CONSTRAINTS ALL IMMEDIATE")  # what COMMIT does first
        q.until_blocked(one)
        two.rows(end)
        waits.result()
        one.rows("COMMIT" if end == "COMMIT" else "ROLLBACK")
    assert states(q) == ["ready"]
    assert payloads(q.take("q")) == [2]


def test_two_successors_at_once(q):
    push(q, "1")
    token = q.take("q")[0]["token"]
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    two.rows("BEGIN")
    push(one, "2")
    push(two, "3")
    q.done(token)
    one.rows("COMMIT")
    two.rows("COMMIT")
    assert states(q) == ["ready", "blocked"]
    job = q.take("q")[0]
    assert job["payload"] == 2
    q.done(job["token"])
    assert payloads(q.take("q")) == [3]


def test_the_one_that_was_to_go_on_is_cancelled(q):
    push(q, "1", "2", "3")
    token = q.take("q")[0]["token"]
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue._cancel(ARRAY['2'], false)")
    waits = two.beside(two.done, token)
    q.until_blocked(two)
    one.rows("COMMIT")
    waits.result()
    assert payloads(q.take("q")) == [3]


def test_rights(q):
    q.rows("SELECT queue.grant('q', ARRAY['push'], ARRAY['bob'])")
    q.rows("SELECT queue.grant('q', ARRAY['take'], ARRAY['mallory'])")
    bob, mallory = q.connect("bob"), q.connect("mallory")
    push(bob, "1", "2")
    mallory.done(mallory.take("q")[0]["token"])
    assert payloads(mallory.take("q")) == [2]
    bob.fails("42501", "SELECT queue._next_1('g')")


def test_drop(q):
    push(q, "1", "2")
    q.rows("SELECT queue.drop('q')")
    assert q.column("SELECT proname FROM pg_proc WHERE proname ~ '_1$' AND pronamespace = 'queue'::regnamespace") == []


@pytest.mark.parametrize("how", ["SELECT queue.cancel('1-2')", "SELECT queue.purge('q', 'blocked')",
                                 "SELECT FROM queue.q_q WHERE id = 2 FOR UPDATE"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("retain", ["0", "1 h"])
def test_pop_while_the_next_is_locked(q, how, end, retain):
    """It ends the first, and the next would have to take its place: not now. A take does not mind, others are popped."""
    q.rows("SELECT queue.alter('q', '{retain_done}', %s)", [retain])
    push(q, "1", "2")
    push(q, "11", "12", group="h")
    other = q.connect()
    other.rows("BEGIN")
    other.rows(how)
    q.rows("SET statement_timeout = '20s'")    # it does not wait
    assert payloads(q.take("q", 9, pop=True)) == ([] if "purge" in how else [11])
    assert payloads(q.take("q", 1)) == [1]
    q.rows("SELECT queue.release(token) FROM (SELECT number || '-1-' || token AS token FROM queue.queues, queue.q_q "
           "WHERE id = 1) AS t")
    other.rows(end)
    assert payloads(q.take("q", 1, pop=True)) == [1]


def test_pop_in_the_transaction_that_has_cancelled_the_next(q):
    push(q, "1", "2", "3")
    q.rows("BEGIN")
    q.rows("SELECT queue.cancel('1-2')")
    assert payloads(q.take("q", 9, pop=True)) == [1]
    q.rows("COMMIT")
    assert payloads(q.take("q", 9, pop=True)) == [3]
