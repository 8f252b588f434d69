"""PEEK of a delivery: what is out, by its token or its name, without taking it."""

import json

import pytest


@pytest.fixture
def s(db):
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.subscribe('a', 's')")
    return db


def put(session, *payloads, group=None):
    for p in payloads:
        session.rows("SELECT queue.push('s', %s::jsonb, \"group\" => %s)", json.dumps(p), group)


def take(session, sub="a", lim=100):
    rows = session.rows("SELECT token, id FROM queue.take_for('s', %s, %s, worker => 'w1')", sub, lim)
    return (rows[0][0] if rows else None), [r[1] for r in rows]


def peek(session, name, lim=None):
    return session.rows("SELECT id, state, attempt, failures, payload, error, worker FROM queue.peek(%s, %s)", name, lim)


def name_of(token):
    return token.rsplit("-", 1)[0]


def test_what_is_out(s):
    put(s, "one", "two", "three")
    token, _ = take(s, lim=2)
    want = [(1, "leased", 1, 0, "one", None, "w1"), (2, "leased", 1, 0, "two", None, "w1")]
    assert peek(s, token) == peek(s, name_of(token)) == want
    assert peek(s, token, 1) == want[:1] and peek(s, token, 0) == []
    put(s, "four")
    assert peek(s, token) == want
    s.rows("SELECT queue.done(%s)", token)
    assert s.fails("QB001", "SELECT * FROM queue.peek(%s)", token).message_detail
    s.fails("QB001", "SELECT * FROM queue.peek(%s)", name_of(token))


def test_late_ones_are_shown(s):
    """As TAKE has found them: also of a transaction that was slow, beyond LIMIT of the first."""
    slow = s.connect()
    slow.rows("BEGIN")
    put(slow, "slow")
    put(s, "fast")
    token, ids = take(s)
    assert ids == [2]
    s.rows("SELECT queue.done(%s)", token)
    put(s, "last")
    slow.rows("COMMIT")
    token, ids = take(s)
    assert ids == [1, 3] and [r[0] for r in peek(s, token)] == ids


def test_failed_and_again(s):
    put(s, "one")
    token, _ = take(s)
    s.rows("SELECT queue.fail(%s, 'no', '1 h')", token)
    s.fails("QB001", "SELECT * FROM queue.peek(%s)", token)
    assert peek(s, name_of(token)) == [(1, "later", 1, 0, "one", "no", "w1")]
    assert s.value("SELECT run_at > now() AND lease_until IS NULL FROM queue.peek(%s)", name_of(token))
    assert s.rows("SELECT * FROM queue.workers('s')") == []
    s.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp() - interval '1 s'")
    assert peek(s, name_of(token)) == [(1, "ready", 1, 0, "one", "no", "w1")]
    again, _ = take(s)
    assert peek(s, again) == [(1, "leased", 2, 1, "one", "no", "w1")]


def test_of_retries(s):
    put(s, "one", "two")
    token, _ = take(s)
    s.rows("SELECT queue.fail(%s, 'bad', '0', events => '{2}')", token)
    token, ids = take(s)
    assert ids == [2] and peek(s, token) == [(2, "leased", 2, 1, "two", "bad", "w1")]


def test_those_that_wait_behind_others_are_not(s):
    s.rows("SELECT queue.subscribe('b', 's', 'now', '{on_fail}', '{block}')")
    put(s, "one", group="g")
    token, _ = take(s, "b")
    s.rows("SELECT queue.fail(%s, 'bad', '1 h', events => '{1}')", token)
    put(s, "two", group="g")
    put(s, "three", group="h")
    token, ids = take(s, "b")
    assert ids == [3] and [r[0] for r in peek(s, token)] == [3]


def test_who_may(s):
    put(s, "secret")
    token, _ = take(s)
    for role, grants in (("bob", []), ("bob", ["SELECT queue.grant('s', '{subscribe}', '{bob}')"])):
        for grant in grants:
            s.rows(grant)
        bob = s.connect(role)
        for name in (token, name_of(token)):
            assert bob.fails("42501", "SELECT * FROM queue.peek(%s)", name).message_primary == 'permission denied for subscription "a"'
    s.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")


def test_the_right_on_the_stream_counts(s):
    s.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob = s.connect("bob")
    bob.rows("SELECT queue.subscribe('mine', 's')")
    put(s, "one")
    token, _ = take(bob, "mine")
    assert [r[0] for r in peek(bob, token)] == [1]
    s.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    bob.fails("42501", "SELECT * FROM queue.peek(%s)", token)


def test_refusals(s):
    put(s, "one")
    token, _ = take(s)
    s.fails("0A000", "SELECT * FROM queue.peek(%s, which => 'dead')", token)
    s.fails("22023", "SELECT * FROM queue.peek(%s, -1)", token)
    s.fails("QB001", "SELECT * FROM queue.peek('99-d1-0123456789abcdef')")
    s.fails("QB001", "SELECT * FROM queue.peek(%s)", name_of(token) + "-0123456789abcdef")
    old = s.connect()
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT 1")
    s.rows("SELECT queue.done(%s)", token)
    put(s, "two")
    token, _ = take(s)
    old.fails("40001", "SELECT * FROM queue.peek(%s)", token)


def test_a_queue_of_that_name(s):
    put(s, "one")
    token, _ = take(s)
    s.rows("SELECT queue.create(%s)", token)
    s.rows("SELECT queue.push(%s, '\"job\"'::jsonb)", token)
    assert [r[4] for r in peek(s, token, 10)] == ["job"]
    assert [r[4] for r in peek(s, name_of(token), 10)] == ["one"]
