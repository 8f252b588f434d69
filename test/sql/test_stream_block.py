"""on_fail = block: what comes later of a group waits behind its event that has failed."""

import random

import pytest

from test_retry import done, fail, make, over, take  # noqa: F401


def put(session, *events):
    """'a1': payload a1 of group a; '1': without a group."""
    for e in events:
        session.rows("SELECT queue.push('s', to_json(%s::text)::text, \"group\" => %s)", e, e.rstrip("0123456789") or None)


def names(events):
    return [e[0] for e in events]


@pytest.fixture
def s(db):
    return make(db, on_fail="block")


def test_thin(s):
    put(s, "a1", "b1", "1", "a2", "b2", "2")
    token, events = take(s)
    assert names(events) == ["a1", "b1", "1", "a2", "b2", "2"]
    fail(s, token, 1, after="1 h")
    put(s, "a3", "b3")
    token, events = take(s)
    assert names(events) == ["b3"]                      # a2 was behind a1 in its delivery, a3 comes behind it
    done(s, token)
    assert take(s) == (None, [])
    s.rows("SELECT queue.redrive_for('s', 'a', which => 'later')")
    token, events = take(s)
    assert events == [("a1", 2), ("a2", 1), ("a3", 1)]
    done(s, token)
    put(s, "a4")
    assert names(take(s)[1]) == ["a4"]
    assert s.value("SELECT count(*) FROM queue.retries") == 0


def test_nothing_is_due_meanwhile(s):
    """Who waits is not asked again and again for those that wait behind."""
    put(s, "a1", "a2")
    fail(s, take(s)[0], 1, after="1 h")
    put(s, "a3")
    due = "SELECT due_ms FROM queue._take_for('s', 'a', 100, NULL, NULL, NULL, 'w')"
    assert s.value(due) == 1                             # held back: there may be more
    assert 3500000 < s.value(due) <= 3600000
    s.rows("UPDATE queue.retries SET dead = true")
    assert s.value(due) is None


def test_what_comes_while_its_first_is_purged(s):
    """By somebody who has not committed: it is copied behind nothing, or it is told to come."""
    put(s, "a1")
    fail(s, take(s)[0], 1, after="1 h")
    s.rows("UPDATE queue.retries SET dead = true")
    put(s, "a2")
    one, two = s.connect(), s.connect()
    one.rows("BEGIN")
    assert one.value("SELECT queue.purge_for('s', 'a')") == 1
    take(two)
    one.rows("COMMIT")
    put(s, "a3")
    got = []
    for _ in range(3):
        token, events = take(two)
        got += names(events)
        if token:
            done(two, token)
    assert got == ["a2", "a3"]


def test_a_few_at_a_time(s):
    put(s, *("a%d" % i for i in range(1, 8)))
    fail(s, take(s, lim=2)[0], 1, after="0")
    got = []
    while True:
        token, events = take(s, lim=2)
        if token is None and s.value("SELECT count(*) FROM queue.retries") == 0:
            break
        if token:
            got += names(events)
            done(s, token)
    assert got == ["a%d" % i for i in range(1, 8)]


def test_dead_ones_hold_up_too(s):
    put(s, "a1", "a2", "b1")
    fail(s, take(s)[0], 1, final=True)
    assert take(s) == (None, [])
    s.rows("SELECT queue.redrive_for('s', 'a')")
    token, events = take(s)
    assert names(events) == ["a1", "a2"]
    fail(s, token, 1, final=True)
    assert s.rows("SELECT id, state, run_at IS NULL FROM queue.peek_for('s', 'a') ORDER BY id") == [(1, "dead", False), (2, "later", True)]
    assert s.value("SELECT queue.purge_for('s', 'a', 'dead')") == 1
    assert names(take(s)[1]) == ["a2"]


def test_it_fails_again(s):
    put(s, "a1", "b1", "a2")
    fail(s, take(s)[0], 1, 2, after="0")
    token, events = take(s)
    assert names(events) == ["a1", "b1", "a2"]
    fail(s, token, 1, after="1 h")
    assert take(s) == (None, [])
    assert s.rows("SELECT id, attempt, due_at = 'infinity' FROM queue.retries ORDER BY id") == [(1, 2, False), (3, 0, True)]


def test_who_is_lost_with_it(s):
    """The lease of a delivery of retries ends: they come again, in their order."""
    put(s, "a1", "a2", "a3")
    fail(s, take(s)[0], 1, after="0")
    assert names(take(s, lease="1 ms")[1]) == ["a1", "a2", "a3"]
    over(s)
    assert take(s) == (None, [])
    s.rows("SELECT queue.redrive_for('s', 'a', which => 'later')")
    assert names(take(s)[1]) == ["a1", "a2", "a3"]


def test_a_delivery_comes_again_without_those_held_back(s):
    put(s, "a1")
    fail(s, take(s)[0], 1, after="1 h")
    put(s, "b1", "a2", "b2")
    for _ in range(2):
        token, events = take(s, lease="1 ms")
        assert names(events) == ["b1", "b2"]
        over(s)
    token, events = take(s)
    s.fails("22023", "SELECT queue.fail(%s, events => '{3}')", token)
    done(s, token)
    s.rows("SELECT queue.redrive_for('s', 'a', which => 'later')")
    assert names(take(s)[1]) == ["a1", "a2"]


def test_in_halves(db):
    """A delivery that fails too often: the guilty one is dead, and holds up its group alone."""
    s = make(db, on_fail="block", max_attempts=1, retry="fixed 1ms")
    put(s, "a1", "b1", "a2", "b2")
    good = []
    while True:
        token, events = take(s)
        if token is None:
            if s.value("SELECT count(*) FILTER (WHERE dead) > 0 AND count(*) FILTER (WHERE NOT dead AND due_at < 'infinity') = 0 FROM queue.retries"):
                break
        elif "a1" in names(events):
            fail(s, token)
        else:
            good += names(events)
            done(s, token)
    assert good == ["b1", "b2"]
    assert s.rows("SELECT payload_jsonb::jsonb#>>'{}', dead FROM queue.retries ORDER BY id") == [("a1", True), ("a2", False)]


def test_others_do_not_wait(db):
    s = make(db, on_fail="continue")
    put(s, "a1", "a2")
    fail(s, take(s)[0], 1, after="1 h")
    put(s, "a3")
    assert names(take(s)[1]) == ["a3"]


@pytest.mark.parametrize("seed", range(6))
def test_random(db, seed):
    """Whatever happens: each event is done once, each group in its order, and nothing is left behind."""
    rnd = random.Random(seed)
    s = make(db, on_fail="block", max_attempts=rnd.choice([1, 2, 3]), retry="fixed 1ms")
    pushed, seen, steps = {g: 0 for g in "abc"}, {g: [] for g in "abc"}, 0
    while True:
        steps += 1
        calm = steps > 120
        if not calm and rnd.random() < 0.5:
            for g in rnd.choices("abc", k=rnd.randint(1, 4)):
                pushed[g] += 1
                put(s, "%s%d" % (g, pushed[g]))
        if rnd.random() < 0.2 or calm:
            s.rows("SELECT queue.redrive_for('s', 'a', %s, which => %s)", None if calm else rnd.randint(1, 3), rnd.choice(["dead", "later"]))
        lim = rnd.randint(1, 5)
        ids = s.rows("SELECT id, token, payload::jsonb #>> '{}' FROM queue._take_for('s', 'a', %s, NULL, NULL, '1 min', 'w') WHERE id IS NOT NULL"
                     " ORDER BY id", lim)
        if not ids:
            if calm and sum(pushed.values()) == sum(len(v) for v in seen.values()):
                break
            assert steps < 2000, s.rows("SELECT id, \"group\", dead, due_at, delivery, together FROM queue.retries ORDER BY id")
            continue
        token = ids[0][1]
        what = "done" if calm else rnd.choice(["done", "done", "fail", "events", "events", "release", "final"])
        if what == "fail":
            fail(s, token, after="0")
            continue
        if what == "release":
            s.rows("SELECT queue.release(%s)", token)
            continue
        bad = set() if what == "done" else set(rnd.sample([i[0] for i in ids], rnd.randint(1, len(ids))))
        stopped = set()
        for number, _, name in ids:
            if number in bad:
                stopped.add(name[0])
            elif name[0] not in stopped:
                seen[name[0]].append(int(name[1:]))
        if bad:
            fail(s, token, *bad, after="0" if what == "events" else None, final=what == "final")
        else:
            done(s, token)
    for g in "abc":
        assert seen[g] == list(range(1, pushed[g] + 1))
    assert s.value("SELECT count(*) FROM queue.retries") == 0
