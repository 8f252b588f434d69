"""A take that is not committed, as its client reads slowly, beside others of the same subscription: it keeps the lock of the lane of
its delivery, and of no other one."""

import json
import random
import string
import threading
import time

import pytest

from test_stream import done
from test_stream_parallel import Judge, make, put


def ask(session, lim=100, least=None, lag=None):
    """As the proxy does it, but not committed: the token, the events; and when to ask again."""
    for _ in range(20):
        session.rows("BEGIN")
        rows = session.rows("SELECT id, token, payload, due_ms FROM queue._take_for('s', 'a', %s, %s, %s::interval, NULL, 'w', %s::interval, true)",
                            lim, least, "1 h" if least else None, lag)
        events = [json.loads(r[2]) for r in rows if r[0] is not None]
        if events or rows[-1][3] != 0:
            tokens = [r[1] for r in rows if r[1] is not None]   # of a lane that had nothing then another one follows
            return (tokens[-1] if events else None), events, rows[-1][3]
        session.rows("COMMIT")
    raise AssertionError("it asks again and again")


def locked(db):
    """So many lanes."""
    free = len(db.rows("SELECT FROM queue.subscriptions FOR NO KEY UPDATE SKIP LOCKED"))
    return db.value("SELECT count(*) FROM queue.subscriptions") - free


def groups(db, n):
    """One of each of n lanes."""
    rows = db.rows("SELECT (hashtextextended(g, 0) & 32767) * %s / 32768, min(g) FROM unnest(%s::text[]) AS g GROUP BY 1 ORDER BY 1",
                   n, list(string.ascii_lowercase))
    assert len(rows) == n
    return [g for _, g in rows]


def many(db, group, n):
    db.rows("SELECT queue.push('s', to_jsonb(%s::text || i), \"group\" => %s) FROM generate_series(1, %s) AS i", group, group, n)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_each_lane_goes_by_itself(db, n):
    """Whichever of them has something, little or much."""
    make(db, n)
    slow, other = db.connect(), db.connect()
    for at, group in enumerate(groups(db, n)):
        for size in (1, 5, 20, 400):
            many(db, group, size)
            token, events, _ = ask(slow)
            assert events == ["%s%d" % (group, i) for i in range(1, min(size, 100) + 1)]
            assert locked(db) == 1
            if n > 1:       # the other lanes
                rest = [g for g in groups(db, n) if g != group]
                put(db, *[g + "1" for g in rest])
                got = []
                for _ in rest:
                    one, events, _ = ask(other)
                    assert len(events) == 1 and locked(db) == 2
                    other.rows("COMMIT")
                    done(other, one)
                    got += events
                assert sorted(got) == sorted(g + "1" for g in rest)
            token_of, events, due = ask(other)      # its own is not given twice
            assert token_of is None and due == 100
            other.rows("COMMIT")
            slow.rows("COMMIT")
            done(slow, token)
            while True:
                token, events, _ = ask(other)
                other.rows("COMMIT")
                if not events:
                    break
                done(other, token)
    assert locked(db) == 0


@pytest.mark.parametrize("size", [1, 300])
def test_is_rolled_back(db, size):
    """What it had comes again, and what others had does not."""
    make(db, 4)
    slow, other = db.connect(), db.connect()
    a, b = groups(db, 4)[:2]
    many(db, a, size)
    first = ask(slow, 300)[1]
    many(db, b, size)
    token, events, _ = ask(other, 300)
    assert {e[0] for e in events} == {b} and len(events) == size
    other.rows("COMMIT")
    slow.rows("ROLLBACK")
    token, events, _ = ask(slow, 300)
    assert events == first and len(events) == size
    slow.rows("COMMIT")
    assert ask(other)[0] is None


def test_who_has_too_little(db):
    """MIN: not kept locked beside one that has enough."""
    make(db, 4)
    slow, other = db.connect(), db.connect()
    a, b, c, d = groups(db, 4)
    for one in (a, b, c):
        many(db, one, 2)
    assert ask(slow, 100, 3)[1] == []
    slow.rows("COMMIT")
    many(db, d, 3)
    assert ask(slow, 100, 3)[1] == [d + "1", d + "2", d + "3"]
    assert locked(db) == 1
    many(db, b, 1)
    assert ask(other, 100, 3)[1] == [b + "1", b + "2", b + "1"]
    assert locked(db) == 2


def positions(db):
    return dict(db.rows("SELECT sub, max(s1::text) FROM queue.positions GROUP BY 1"))


def test_what_has_nothing_goes_on(db):
    """One group has everything: the other lanes do not stay where they are, though each take is given something."""
    make(db, 4)
    (group, *_) = groups(db, 4)
    slow = db.connect()
    before = positions(db)
    for _ in range(40):
        many(db, group, 10)
        token, events, _ = ask(slow, 10)
        assert len(events) == 10 and locked(db) == 1
        slow.rows("COMMIT")
        done(slow, token)
    assert all(s1 != before[sub] for sub, s1 in positions(db).items())


def drained(session, least):
    """What is delivered and ended, until there is nothing; at most so many takes."""
    got = []
    for _ in range(400):
        token, events, due = ask(session, 100, least)
        session.rows("COMMIT")
        if token is None and due != 1:
            return got
        if token is not None:
            got += events
            done(session, token)
    raise AssertionError("%d events, and no end" % len(got))


@pytest.mark.parametrize("least", [None, 2])
def test_far_behind(db, least):
    """A few events far behind the first ones of another lane, which always has enough."""
    make(db, 2)
    hot, cold = groups(db, 2)
    for group, n in ((hot, 6000), (cold, 2), (hot, 14000)):
        many(db, group, n)
    taker = db.connect()
    got = drained(taker, least)
    assert len(got) == 20002
    assert got.index(cold + "1") < 10000        # not when the others are over
    assert drained(taker, least) == []


@pytest.mark.parametrize("least", [None, 2])
def test_beside_a_steady_stream(db, least):
    """As many come for one lane as are taken: what comes for the other one is found, and that one does not stay behind."""
    make(db, 2)
    hot, cold = groups(db, 2)
    taker = db.connect()
    found = None
    before = positions(db)
    for i in range(150):
        many(db, hot, 100)
        if i == 50:
            many(db, cold, 2)
        token, events, _ = ask(taker, 100, least)
        assert locked(db) == 1
        taker.rows("COMMIT")
        done(taker, token)
        if cold + "1" in events:
            found = i
    assert found is not None and found <= 60
    middle = positions(db)
    assert all(s1 != before[sub] for sub, s1 in middle.items())
    for i in range(50):
        many(db, hot, 100)
        token, _, _ = ask(taker, 100, least)
        taker.rows("COMMIT")
        done(taker, token)
    assert all(s1 != middle[sub] for sub, s1 in positions(db).items())


def test_far_behind_and_locked(db):
    """MIN: what cannot move, as another take has it, is not asked for each millisecond."""
    make(db, 2)
    hot, cold = groups(db, 2)
    many(db, hot, 3000)
    slow, other = db.connect(), db.connect()
    sub = db.value("SELECT min(number) FROM queue.subscriptions WHERE lane = 1")
    while (got := ask(other, 1000, 2))[0] is not None:
        other.rows("COMMIT")
        done(other, got[0])
    other.rows("COMMIT")
    many(db, hot, 6000)
    slow.rows("BEGIN")
    slow.rows("SELECT FROM queue.subscriptions WHERE number = %s FOR NO KEY UPDATE", sub)
    first = ask(other, 100, 2)
    other.rows("COMMIT")
    assert len(first[1]) == 100
    for _ in range(3):      # that one is out, and the other lane has nothing as far as one look goes
        token, _, due = ask(other, 100, 2)
        other.rows("COMMIT")
        assert token is None and due == 100
    slow.rows("COMMIT")
    token, _, due = ask(other, 100, 2)
    other.rows("COMMIT")
    assert token is None and due == 1


@pytest.mark.parametrize("lag", [None, "0"])       # the long way
@pytest.mark.parametrize("seed", range(4))
def test_at_random(db, seed, lag):
    """Deliveries are committed late, or rolled back, while others are taken: each event once, no group in two of them; and who
    finds nothing has left nothing in a lane that is free."""
    dice = random.Random(seed)
    n = dice.choice([2, 3, 4])
    make(db, n)
    lane = dict(db.rows("SELECT g, (hashtextextended(g, 0) & 32767) * %s / 32768 FROM unnest(%s::text[]) AS g", n, list("abcdefgh")))
    numbers = dict(db.rows("SELECT number, lane FROM queue.subscriptions"))
    takers = {db.connect(): None for _ in range(3)}
    pushed, left, out, judge, count = [], [], {}, Judge(), dict.fromkeys("abcdefgh", 0)
    for _ in range(300):
        for _ in range(dice.choice([0, 0, 1, 2])):
            group = dice.choice("abcdefgh" if dice.random() < 0.7 else "a")
            names = []
            for _ in range(dice.choice([1, 1, 4, 60])):
                count[group] += 1
                names.append("%s%d" % (group, count[group]))
            db.rows("SELECT queue.push('s', to_jsonb(p), \"group\" => %s) FROM unnest(%s::text[]) AS p", group, names)
            pushed += names
            left += names
        one = dice.choice(list(takers))
        if takers[one] is None:
            token, events, _ = ask(one, dice.choice([1, 5, 50]), lag=lag)
            if token is None:
                busy = {numbers[int(t.split("-")[0])] for t in [*out, *(h[0] for h in takers.values() if h)]}
                assert {lane[name[0]] for name in left} <= busy
                one.rows("COMMIT")
            else:
                takers[one] = (token, events)
                left = [name for name in left if name not in events]
        else:
            token, events = takers[one]
            takers[one] = None
            if dice.random() < 0.3:
                one.rows("ROLLBACK")
                left += events
            else:
                one.rows("COMMIT")
                judge.taken(token, events)
                out[token] = events
        for token in list(out):
            if dice.random() < 0.3:
                done(db, token)
                judge.ended(token, out.pop(token))
    for one, had in takers.items():
        one.rows("ROLLBACK")
        left += had[1] if had else []
    for token, events in out.items():
        done(db, token)
        judge.ended(token, events)
    while (got := ask(db))[0] is not None:
        db.rows("COMMIT")
        judge.taken(*got[:2])
        done(db, got[0])
        judge.ended(*got[:2])
    judge.ok(*pushed)


@pytest.mark.parametrize("n, least, lag, on_fail", [(1, None, None, "continue"), (4, None, None, "continue"), (4, 3, None, "continue"),
                                                    (4, None, "0", "continue"), (4, 3, "0", "continue"), (4, None, None, "block")])
def test_at_the_same_time(db, n, least, lag, on_fail):
    """Between a look and its lock others take: each event once, no group in two deliveries."""
    make(db, n, on_fail=on_fail)
    judge, mutex, ends, failed, pushed = Judge(), threading.Lock(), threading.Event(), [], []

    def push(session, mine):
        dice = random.Random(mine)
        for i in range(150):
            group = dice.choice(mine)
            names = ["%s%d" % (group, 10 * i + k) for k in range(dice.choice([1, 1, 2, 9]))]
            session.rows("SELECT queue.push('s', to_jsonb(p), \"group\" => %s) FROM unnest(%s::text[]) AS p", group, names)
            with mutex:
                pushed.extend(names)

    def work(session, dice):
        while not (ends.is_set() and failed):
            token, events, _ = ask(session, dice.choice([3, 10, 100]), least if not ends.is_set() else None, lag)
            session.rows("COMMIT")
            if token is None:
                with mutex:
                    if ends.is_set() and len(judge.seen) == len(pushed):
                        return
                    if time.monotonic() > until:
                        failed.append("left: %r" % sorted(set(pushed) - set(judge.seen)))
                        return
                continue
            with mutex:
                judge.taken(token, events)
            with mutex:         # who is quicker takes the next one of the lane
                judge.ended(token, events)
                done(session, token)

    def guarded(f, *args):
        try:
            f(*args)
        except BaseException as e:
            failed.append(repr(e))
            raise

    until = time.monotonic() + 60
    pushers = [threading.Thread(target=guarded, args=(push, db.connect(), mine)) for mine in ("abcd", "efgh")]
    workers = [threading.Thread(target=guarded, args=(work, db.connect(), random.Random(i))) for i in range(4)]
    for t in pushers + workers:
        t.start()
    for t in pushers:
        t.join()
    ends.set()
    for t in workers:
        t.join()
    assert failed == []
    judge.ok(*pushed)


# --- the long way ---

@pytest.fixture(params=["lag", "block", "failed", "changed"])
def long_way(request, db):
    """Why a take goes it; of four lanes."""
    make(db, 4, on_fail="block" if request.param == "block" else "continue")
    db.lag = "0" if request.param == "lag" else None
    if request.param == "failed":
        fail_first(db, groups(db, 4)[0])
    return request.param


def fail_first(db, group, retry_in="1 h"):
    put(db, group + "0")
    token, events, _ = ask(db)
    db.rows("COMMIT")
    assert events == [group + "0"]
    number = db.value("SELECT max(id) FROM %s" % log(db))
    db.rows("SELECT queue.fail(%s, 'bad', %s, events => ARRAY[%s]::int8[])", token, retry_in, number)


def log(db):
    return "queue.e%d_0" % db.value("SELECT number FROM queue.streams")


@pytest.mark.parametrize("size", [1, 5, 400])
def test_the_long_way_keeps_its_lane(db, long_way, size):
    """Each lane in turn is that of a client that does not read; the others go on."""
    slow, other = db.connect(), db.connect()
    of = groups(db, 4)
    for group in of:
        for one in of:
            many(db, one, size if one == group else 1)
        if long_way == "changed" and group == of[0]:
            db.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{3}')")
        got = []
        while True:             # until it is that lane's
            kept, events, _ = ask(slow, lag=db.lag)
            assert locked(db) == 1, events
            if events[0][0] == group:
                break
            slow.rows("COMMIT")
            done(slow, kept)
            got += events
        left = {g for g in of if g != group} - {e[0] for e in got}
        while left:
            token, events, _ = ask(other, lag=db.lag)
            assert locked(db) == 2 and {e[0] for e in events} <= left, events
            other.rows("COMMIT")
            done(other, token)
            left -= {e[0] for e in events}
        token_of, events, due = ask(other, lag=db.lag)
        assert token_of is None and 0 < due <= 100, (events, due)
        other.rows("COMMIT")
        slow.rows("COMMIT")
        done(slow, kept)
        while (got := ask(other, lag=db.lag))[0] is not None:
            other.rows("COMMIT")
            done(other, got[0])
        other.rows("COMMIT")
        if long_way == "changed":
            break


@pytest.mark.parametrize("end", ["done", "fail", "extend"])
def test_over_and_about_to_end(db, end):
    """A delivery that is over, of which somebody says something in an open transaction: its lane is not kept, and not asked for again
    and again."""
    make(db, 4)
    worker, slow, other = db.connect(), db.connect(), db.connect()
    a, b = groups(db, 4)[:2]
    many(db, a, 3)
    token, _, _ = ask(worker)
    worker.rows("COMMIT")
    worker.rows("BEGIN")
    if end == "done":
        done(worker, token)
    elif end == "fail":
        worker.rows("SELECT queue.fail(%s, events => '{1}')", token)
    else:
        worker.rows("SELECT queue.extend(%s, '1 h')", token)
    # as if its time was over: of who says it, it was not
    worker_sees = db.connect("postgres")
    assert worker_sees.value("SELECT count(*) FROM queue.deliveries") == 1
    many(db, b, 3)
    db.rows("SELECT set_config('lock_timeout', '5s', false)")
    for lag in (None, "0"):
        got, events, _ = ask(slow, 1, lag=lag)
        assert events and events[0][0] == b and locked(db) <= 2
        slow.rows("ROLLBACK")
    worker.rows("ROLLBACK")
    db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp()")
    worker.rows("BEGIN")
    worker.rows("SELECT FROM queue.deliveries FOR UPDATE")
    token_b, events, _ = ask(slow)
    assert events == [b + "1", b + "2", b + "3"] and locked(db) == 1
    token_c, _, due = ask(other)
    assert token_c is None and due == 100
    other.rows("COMMIT")
    worker.rows("COMMIT")
    _, events, _ = ask(other)
    assert events == [a + "1", a + "2", a + "3"] and locked(db) == 2


def test_retries_that_somebody_has(db):
    """They are due, and purged or redriven in an open transaction."""
    make(db, 4)
    worker, slow, other = db.connect(), db.connect(), db.connect()
    a, b = groups(db, 4)[:2]
    fail_first(db, a, "0")
    worker.rows("BEGIN")
    worker.rows("SELECT queue.purge_for('s', 'a')")
    many(db, b, 3)
    assert ask(slow)[1] == [b + "1", b + "2", b + "3"] and locked(db) == 1
    many(db, a, 2)
    assert ask(other)[1] == [a + "1", a + "2"] and locked(db) == 2
    other.rows("ROLLBACK")
    worker.rows("ROLLBACK")
    assert ask(other)[1] == [a + "0"] and locked(db) == 2


@pytest.mark.parametrize("n", [1, 300])
def test_what_waits_for_others_of_its_group(db, n):
    """Its lane has moved, and is not kept beside one that has something; what waits comes in order behind what it waits for."""
    make(db, 4, on_fail="block")
    slow, other = db.connect(), db.connect()
    a, b = groups(db, 4)[:2]
    fail_first(db, a)
    many(db, a, n)
    many(db, b, 1)
    assert ask(slow)[1] == [b + "1"] and locked(db) == 1
    for _ in range(9):
        token, events, due = ask(other)
        assert token is None        # what it has locked, so that it moves, ends with it at once
        other.rows("COMMIT")
        if due != 1:
            break
    assert due == 100 and locked(db) == 1       # that of the other one may be free soon
    assert db.value("SELECT count(*) FROM queue.retries") == n + 1
    slow.rows("COMMIT")
    db.rows("SELECT queue.redrive_for('s', 'a', which => 'later')")
    got = []
    while (one := ask(other))[0] is not None:
        other.rows("COMMIT")
        done(other, one[0])
        got += one[1]
    assert got == [a + str(i) for i in range(n + 1)]


def test_lanes_that_go_beside_who_reads_slowly(db):
    """parallel is changed: who removes the lanes of before, or lets the new ones begin, keeps none of them for what he gets then."""
    make(db, 4)
    slow, other = db.connect(), db.connect()
    of = groups(db, 4)
    for group in of:
        many(db, group, 1)
    db.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{2}')")
    for group in of:
        many(db, group, 2)
    (first, events, _) = ask(slow)
    assert len(events) == 1
    got = []
    while (one := ask(other))[0] is not None:
        assert locked(db) == 2
        got += one[1]
        other.rows("COMMIT")
        done(other, one[0])
    other.rows("COMMIT")
    assert sorted(got + events) == [g + "1" for g in sorted(of)]
    assert db.value("SELECT count(*) FROM queue.subscriptions WHERE ends IS NOT NULL") == 1
    slow.rows("COMMIT")
    done(slow, first)
    one, two = ask(slow), ask(other)
    assert locked(db) == 2 and sorted(one[1] + two[1]) == sorted(g + i for g in of for i in "12")


@pytest.mark.parametrize("busy", ["second", "both"])
@pytest.mark.parametrize("lag, on_fail", [(None, "continue"), ("0", "continue"), (None, "block")])
def test_parallel_is_changed_between_two_looks(db, lag, on_fail, busy):
    """Its end is a snapshot of before the first look, and the second lane is looked at when that has been committed: nothing of behind it
    is read there, and no position goes past it."""
    make(db, 2, on_fail=on_fail)
    a, b = groups(db, 2)
    changes, holds, takes = db.connect(), db.connect("postgres"), db.connect()
    changes.rows("BEGIN")
    changes.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{3}')")
    if busy == "both":
        many(db, a, 2)
    many(db, b, 2)
    holds.rows("BEGIN")
    holding = db.beside(holds.rows, "LOCK TABLE %s IN ACCESS EXCLUSIVE MODE" % log(db))
    db.until_blocked(holds)
    taking = db.beside(ask, takes, lag=lag)
    db.until_blocked(takes)     # it looks at the first lane
    changes.rows("COMMIT")
    holding.result()
    holds.rows("COMMIT")
    token, events, _ = taking.result()
    assert (token, events) == (None, [])
    takes.rows("COMMIT")
    got = []
    for _ in range(20):
        token, events, _ = ask(takes, lag=lag)
        takes.rows("COMMIT")
        if token is not None:
            got += events
            done(takes, token)
    assert sorted(got) == sorted(g + i for g in (a, b) if g == b or busy == "both" for i in "12")
    assert db.value("SELECT count(*) FROM queue.subscriptions WHERE waits OR ends IS NOT NULL") == 0


@pytest.mark.parametrize("lag", [None, "0"])
def test_parallel_is_changed_between_snapshot_and_lock(db, lag):
    """A lane that was locked for what it is no more is not kept beside the one of the delivery."""
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    db.connect("bob").rows("SELECT queue.subscribe('a', 's', NULL, '{parallel}', '{2}')")
    a, b = groups(db, 2)
    put(db, a + "1", b + "1")
    root, holds, stops, takes = db.connect("postgres"), db.connect("postgres"), db.connect("postgres"), db.connect("bob")
    # bob's statements stop where they have a snapshot, and have locked nothing yet
    root.rows("""CREATE FUNCTION public.stops() RETURNS bool LANGUAGE plpgsql AS 'BEGIN
        PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7); RETURN true; END'""")
    root.rows("CREATE POLICY stops ON queue.subscriptions AS RESTRICTIVE USING (public.stops())")
    holds.rows("BEGIN")
    holds.rows("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE" % log(holds))
    taking = db.beside(ask, takes, lag=lag)
    db.until_blocked(takes)     # it looks at the first lane
    stops.rows("SELECT pg_advisory_lock(7)")
    holds.rows("COMMIT")
    db.until_blocked(takes)     # ... and is about to lock it
    root.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{3}')")
    stops.rows("SELECT pg_advisory_unlock(7)")
    token, events, _ = taking.result()
    assert token is None or locked(root) == 1
    takes.rows("COMMIT")
    if token is not None:
        done(takes, token)
    assert sorted(events + drained(takes, None)) == sorted([a + "1", b + "1"])
