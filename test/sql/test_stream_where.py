"""TAKE ... FOR with WHERE, as the proxy asks for it (functions/sift.sql): a delivery has what fits, the position passes the
rest, and nothing that fits is lost or comes twice."""

import json
import random

import pytest

import test_stream_beside as beside
from test_stream_beside import groups

ASKED = """
	WITH fits AS MATERIALIZED (SELECT peek.id FROM (SELECT l.* FROM queue._look_for(%(said)s::text[], 'jsonb') AS s,
			LATERAL queue._look_at_jsonb(s.n, s.most) AS l) AS peek WHERE ({0}) IS TRUE LIMIT ((%(said)s::text[])[3])::int8)
	SELECT job.id, job.token, job.payload::jsonb, job.attempt, job.due_ms, job.passed::text FROM
		LATERAL queue._take_where_for_jsonb(%(said)s::text[], ARRAY(SELECT f.id FROM fits AS f)) AS job"""


def make(db, n=1, **options):
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    options["parallel"] = n
    db.rows("SELECT queue.subscribe('a', 's', NULL, %s, %s)", list(options), [str(v) for v in options.values()])


def put(session, *payloads, group=None):
    for p in payloads:
        session.rows("SELECT queue.push('s', %s, \"group\" => %s)", json.dumps(p), group)


def ask(session, where, lim=100, least=None, within=None, lag=None, passed=None):
    said = ["s", "a", str(lim), least and str(least), within, None, "w", None, None, lag, passed]
    return session.conn.execute(ASKED.format(where.replace("%", "%%")), {"said": said}).fetchall()


def take(session, where, lim=100, **more):
    """As the proxy does it: 0 is asked again at once, and if lanes were passed the others are. The rows, and when there may be something."""
    waiting, passed = [], None
    for asked in range(1, 200):
        rows = ask(session, where, lim, passed=passed, **more)
        due, passes = rows[0][4:6]
        assert passes is None or due != 0
        if due == 0:
            continue
        waiting += [due] if due is not None else []
        if passes is None:
            return [r for r in rows if r[0] is not None], min(waiting, default=None), asked
        passed = passes
    raise AssertionError("it is asked for ever")


def done(db, rows):
    db.rows("SELECT * FROM queue._done(ARRAY[%s], false)", rows[0][1])


def drain(db, where, lim=100):
    got = []
    while True:
        rows, _, _ = take(db, where, lim)
        if not rows:
            return got
        got += [r[2] for r in rows]
        done(db, rows)


def pending(db):
    return db.value("SELECT sum(pending) FROM queue.subscriptions('s')")


def test_steps(db):
    """A look is at some thousands, and what it passed is behind it, also where nothing fits."""
    make(db)
    db.rows("SELECT queue.push('s', to_jsonb(n)) FROM generate_series(1, 30000) AS n")
    rows, due, asked = take(db, "payload = '0'")
    assert (rows, due) == ([], None) and 3 <= asked <= 5 and pending(db) == 0
    assert take(db, "payload = '0'")[2] == 1
    db.rows("SELECT queue.push('s', to_jsonb(n)) FROM generate_series(1, 30000) AS n")
    assert drain(db, "payload::int % 9999 = 0", 2) == [9999, 19998, 29997]
    assert db.value("SELECT count(*) FROM queue.positions") == 1


def test_reads_no_more_than_it_needs(db):
    make(db)
    db.rows("SELECT queue.push('s', to_jsonb(n)) FROM generate_series(1, 9000) AS n")
    rows, _, _ = take(db, "true", 10)        # the first one of a window looks for its floor
    done(db, rows)
    root = db.connect("postgres")
    root.rows("ANALYZE queue.e1_0")
    root.rows("BEGIN")
    assert len([r for r in ask(root, "true", 10) if r[0]]) == 10
    assert root.value("SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
                      " WHERE schemaname = 'queue' AND relname LIKE 'e1\\_%%'") < 1000
    root.rows("ROLLBACK")


@pytest.mark.parametrize("where", ["true", "payload = '1'"])
def test_whichever_lane_it_is_of(db, where):
    """The first one that is looked at may have nothing of its own."""
    make(db, 4)
    for group in "abcdefghij":
        put(db, 1, group=group)
        assert drain(db, where) == [1]
        assert drain(db, where) == []


def test_moved_meanwhile(db):
    """What was looked at counts only where the subscription was when that was done."""
    make(db)
    put(db, 1, 2, 3)
    other = db.connect()
    other.rows("BEGIN")
    said = ["s", "a", "100", None, None, None, "w", None, None, None]
    other.rows("SELECT * FROM queue._look_for(%s, 'jsonb')", said)
    assert [r[0] for r in other.rows("SELECT id FROM queue._look_at_jsonb(1, 100)")] == [1, 2, 3]
    assert drain(db, "payload = '2'") == [2]
    assert other.rows("SELECT id, due_ms FROM queue._take_where_for_jsonb(%s, '{1,3}')", said) == [(None, 0)]
    other.rows("COMMIT")
    assert drain(db, "true") == []
    # two at once: one takes, the other is told that it is out
    put(db, 4, 5)
    other.rows("BEGIN")
    other.rows("SELECT * FROM queue._look_for(%s, 'jsonb')", said)
    other.rows("SELECT id FROM queue._look_at_jsonb(1, 100)")
    rows, _, _ = take(db, "payload = '5'")
    (row,) = other.rows("SELECT id, \"out\" FROM queue._take_where_for_jsonb(%s, '{4}')", said)
    assert row[0] is None and row[1] == "-".join(rows[0][1].split("-")[:2])
    other.rows("COMMIT")


@pytest.mark.parametrize("lag", [None, "1 ms"])
def test_min(db, lag):
    make(db)
    put(db, *range(10))
    while lag and db.value("SELECT clock_timestamp() - max(pushed_at) < '1 ms' FROM queue.e1_0"):
        pass
    rows, due, _ = take(db, "payload::int % 5 = 0", least=3, within="1 h", lag=lag)
    assert rows == [] and 3500000 < due <= 3600001
    assert pending(db) == 10
    put(db, *range(10, 16))
    while lag and db.value("SELECT clock_timestamp() - max(pushed_at) < '1 ms' FROM queue.e1_0"):
        pass
    rows, _, _ = take(db, "payload::int % 5 = 0", least=3, within="1 h", lag=lag)
    assert [r[2] for r in rows] == [0, 5, 10, 15]


def test_young(db):
    make(db)
    put(db, 1, 2)
    db.connect("postgres").rows("UPDATE queue.e1_0 SET pushed_at = now() - interval '2 h'")
    put(db, 3, 4)
    rows, _, _ = take(db, "payload::int % 2 = 0", lag="1 h")
    assert [r[2] for r in rows] == [2]
    done(db, rows)
    rows, due, _ = take(db, "payload::int % 2 = 0", lag="1 h")
    assert rows == [] and 3500000 < due <= 3600000
    assert drain(db, "true") == [3, 4]


@pytest.mark.parametrize("how", ["min", "lag"])
def test_a_lane_that_waits(db, how):
    """It holds up no other one."""
    make(db, 2)
    for g in "abcdefgh":
        put(db, g, group=g)
    lanes = []
    for _ in range(2):
        rows, _, _ = take(db, "true")
        lanes.append([r[2] for r in rows])
        done(db, rows)
    assert sorted(lanes[0] + lanes[1]) == list("abcdefgh")
    waits, goes = lanes[0][0], lanes[1][0]          # in this order they are looked at
    put(db, 1, 2, 3, group=goes)
    more = {"min": {"least": 2, "within": "1 h"}, "lag": {"lag": "1 h"}}[how]
    if how == "lag":
        db.connect("postgres").rows("UPDATE queue.e1_0 SET pushed_at = now() - interval '2 h'")
    put(db, 4, group=waits)
    rows, _, asked = take(db, "true", **more)
    assert ([r[2] for r in rows], asked) == ([1, 2, 3], 2)
    done(db, rows)
    rows, due, asked = take(db, "true", **more)
    assert rows == [] and 3500000 < due <= 3600000 and asked == 2
    put(db, 5, group=goes)
    rows, due, asked = take(db, "true", **more)
    assert rows == [] and 3500000 < due <= 3600000 and asked == 2
    assert drain(db, "true") == [4, 5]


def test_taken_between_look_and_take(db):
    """Which lane was looked at is somebody's: what another one has need not wait for the end of that delivery."""
    make(db, 2)
    for i, group in enumerate(groups(db, 2)):
        put(db, i, group=group)
    other = db.connect()
    said = ["s", "a", "100", None, None, None, "w", None, None, None]
    other.rows("BEGIN")
    other.rows("SELECT * FROM queue._look_for(%s, 'jsonb')", said)
    assert other.rows("SELECT payload::text FROM queue._look_at_jsonb(1, 100)") == [("0",)]
    assert [r[2] for r in take(db, "true")[0]] == [0]
    assert other.rows("SELECT id, due_ms FROM queue._take_where_for_jsonb(%s, '{1}')", said) == [(None, 0)]
    other.rows("COMMIT")
    assert [r[2] for r in take(other, "true")[0]] == [1]


@pytest.mark.parametrize("how", ["done", "other lanes", "one lane"])
def test_free_since_the_look(db, how):
    """Lanes that it has not seen, as they were out, or have come since: it looks again at once."""
    make(db, 1 if how == "one lane" else 2)
    for i, group in enumerate(groups(db, 2)):
        put(db, i, group=group)
    out = [take(db, "true")[0] for _ in range(1 if how == "one lane" else 2)]
    other = db.connect()
    said = ["s", "a", "100", None, None, None, "w", None, None, None, None]
    other.rows("BEGIN")
    assert other.rows("SELECT * FROM queue._look_for(%s, 'jsonb')", said) == []
    if how != "done":
        db.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{3}')")
    for rows in out:
        done(db, rows)
    put(db, 5)
    if how != "done":
        assert [r[2] for r in take(db, "true")[0]] == [5]       # of the lanes there are now
        put(db, *range(6, 30))
    assert other.rows("SELECT id, due_ms FROM queue._take_where_for_jsonb(%s, '{}')", said) == [(None, 0)]
    other.rows("COMMIT")
    assert take(other, "true")[0] != []


def test_lanes_are_known_by_their_numbers(db):
    """One that was looked at is left out, and no other one, whatever others have done meanwhile."""
    make(db, 3)
    of = groups(db, 3)
    for g in of:
        put(db, g + "1", group=g)
    (row,) = ask(db, "payload = '0'")
    assert row[5] is not None and row[4] is None
    got = take(db, "true")[0]       # another one, who moves a lane
    done(db, got)
    seen = [got[0][2]]
    while len(rows := ask(db, "true", passed=row[5])) and rows[0][0] is not None:
        done(db, rows)
        seen += [r[2] for r in rows]
    assert len(seen) == 2 and rows[0][4:6] == (None, None)
    assert drain(db, "true") == []      # what was passed did not fit


@pytest.mark.parametrize("meanwhile", ["alter", "take", "seek", "unsubscribe"])
def test_lanes_with_nothing_meet_a_change(db, meanwhile):
    """Between look and take: they go where the look has seen that they may, or stay."""
    make(db, 4)
    of = groups(db, 4)
    put(db, "a1", group=of[3])
    other = db.connect()
    said = ["s", "a", "100", None, None, None, "w", None, None, None, None]
    other.rows("BEGIN")
    other.rows("SELECT * FROM queue._look_for(%s, 'jsonb')", said)
    assert other.rows("SELECT payload::text FROM queue._look_at_jsonb(1, 100)") == [('"a1"',)]
    left = ["b%d" % i for i in range(4)]
    for name, group in zip(left, of):
        put(db, name, group=group)
    if meanwhile == "alter":
        db.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{3}')")
    elif meanwhile == "seek":
        db.rows("SELECT queue.seek('a', 's', 'beginning')")
    elif meanwhile == "unsubscribe":
        db.rows("SELECT queue.unsubscribe('a', 's')")
        other.fails("42704", "SELECT id FROM queue._take_where_for_jsonb(%s, '{}')", said)
        return
    else:
        rows = take(db, "true")[0]
        done(db, rows)
        assert rows[0][2][0] == "b"
        left.remove(rows[0][2])
    assert other.rows("SELECT id FROM queue._take_where_for_jsonb(%s, '{}')", said) == [(None,)]
    other.rows("COMMIT")
    got = drain(db, "true")
    assert sorted(got) in (sorted(left), sorted(["a1"] + left))     # or it was passed, as one that does not fit
    assert ("a1" in got) or meanwhile in ("alter", "take")
    assert db.value("SELECT count(*) FROM queue.subscriptions WHERE waits OR ends IS NOT NULL") == 0


def test_rights(db):
    """Who may not read the stream, or is not of the subscription's owner, sees nothing of it, and moves nothing."""
    make(db, 4)
    put(db, 1)
    bob = db.connect("bob")
    was = db.rows("SELECT p::text FROM queue.positions AS p ORDER BY 1")
    for call in ("_look_for(%s, 'jsonb')", "_take_where_for_jsonb(%s, '{}')"):
        bob.fails("42501", "SELECT * FROM queue." + call, ["s", "a", "9", None, None, None, "w", None, None, None, "{1}"])
    place = db.value("SELECT p::text FROM queue.positions AS p LIMIT 1")
    bob.rows("SELECT queue._move_idle(ARRAY[%s::text::queue.positions])", place)
    assert db.rows("SELECT p::text FROM queue.positions AS p ORDER BY 1") == was


@pytest.mark.parametrize("n", [2, 16, 64])
def test_one_look_finds_the_lane(db, n):
    """Of many lanes one has something: two looks at most where it fits or not, and all of them move."""
    make(db, n)
    drain(db, "true")
    for i in range(4):
        put(db, i, group="g%d" % i)
        (rows, _, asked) = take(db, "true")
        assert [r[2] for r in rows] == [i] and asked == 1
        done(db, rows)
        rows, due, asked = take(db, "true")
        assert (rows, due, asked) == ([], None, 1)
        put(db, 9, group="g%d" % i)
        rows, due, asked = take(db, "payload = '0'")
        assert (rows, due) == ([], None) and asked <= 2
        assert pending(db) == 0
    assert db.value("SELECT count(DISTINCT s1::text) FROM queue.positions") <= 2


@pytest.mark.parametrize("why", ["over", "failed", "purged"])
def test_what_comes_again_is_somebodys(db, why):
    """Of one lane, who reads it slowly, or has not committed: it holds up no other one."""
    make(db, 2)
    a, b = groups(db, 2)
    put(db, 1, group=a)
    rows, _, _ = take(db, "true")
    assert take(db, "true")[0] == []    # the other lane is past it
    if why == "over":
        db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp()")
    else:
        db.rows("SELECT queue.fail(%s, 'bad', '0', events => %s::int8[])", rows[0][1], [rows[0][0]])
    slow = db.connect()
    slow.rows("BEGIN")
    if why == "purged":
        slow.rows("SELECT queue.purge_for('s', 'a')")
    else:
        assert [r[2] for r in take(slow, "true")[0]] == [1]
    for i in range(2, 5):
        put(db, i, group=b)
        assert drain(db, "true") == [i]
    rows, due, asked = take(db, "true")
    assert (rows, due) == ([], 100) and asked <= 3
    slow.rows("ROLLBACK")
    assert drain(db, "true") == [1]


def test_a_lane_without_events_is_somebodys(db):
    """Its position would move, as that saves work: this is not tried again and again."""
    slow, holds = db.connect(), db.connect("postgres")
    slow.rows("BEGIN")
    slow.rows("SELECT pg_current_xact_id()")
    make(db, 2)
    slow.rows("COMMIT")
    holds.rows("BEGIN")
    holds.rows("SELECT FROM queue.subscriptions FOR NO KEY UPDATE")
    rows, due, asked = take(db, "true")
    assert (rows, due, asked) == ([], None, 1)
    holds.rows("COMMIT")
    assert take(db, "true")[0] == []


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_steady_stream_of_what_does_not_fit(db, n):
    """Something is pushed at each look: each lane is looked at, and then it waits."""
    make(db, n)
    steady, session = "abcdefgh", db.connect()

    class Pushes:
        class conn:
            @staticmethod
            def execute(*args):
                put(db, 0, *([0] * 50), group=random.choice(steady))
                return session.conn.execute(*args)
    for i in range(1, 6):
        rows, _, asked = take(Pushes, "payload <> '0'")
        assert rows == [] and asked <= n + 1
        put(db, i, group=steady[i])
        rows, _, asked = take(Pushes, "payload <> '0'")
        assert [r[2] for r in rows] == [i] and asked <= n + 1
        done(db, rows)


def old(db, *payloads):
    """Pushed long ago."""
    number = db.value("SELECT number FROM queue.streams")
    for ring in range(4):
        db.rows("UPDATE queue.e%d_%d SET pushed_at = now() - interval '2 h' WHERE payload::jsonb #>> '{}' = ANY (%%s)" % (number, ring), list(payloads))


def test_too_young_beside_what_somebody_takes(db):
    """A lane with the rest of a window that is too young, another one that a slow client has: nothing moves, so it pauses."""
    make(db, 2)
    a, b = groups(db, 2)
    put(db, "a1", group=a)
    assert [r[2] for r in take(db, "true")[0]] == ["a1"]
    put(db, "b1", "b2", "b3", group=b)
    old(db, "b1", "b2")
    rows, _, _ = take(db, "true", 2, lag="1 h")
    assert [r[2] for r in rows] == ["b1", "b2"]
    done(db, rows)
    db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp() - interval '1 s'")
    slow, other = db.connect(), db.connect()
    assert beside.ask(slow)[1] == ["a1"]
    rows, due, asked = take(other, "true", 2, lag="1 h")
    assert rows == [] and due <= 100 and asked <= 4
    slow.rows("ROLLBACK")
    rows, _, _ = take(other, "true", 2, lag="1 h")
    assert [r[2] for r in rows] == ["a1"]


def test_behind_a_lane_that_is_too_young(db):
    """Such a lane moves once, which changes the order of the lanes: no other one is passed over for it."""
    make(db, 3)
    for group, names in zip(groups(db, 3), (["a1", "a2", "a3"], ["b1"], ["c1"])):
        put(db, *names, group=group)
        old(db, *names[:2])
        rows, _, _ = take(db, "true", 2, lag="1 h")
        assert [r[2] for r in rows] == names[:2]
        done(db, rows)
    put(db, "b2", group=groups(db, 3)[1])
    old(db, "b2")
    rows, _, _ = take(db, "true", 2, lag="1 h")
    assert [r[2] for r in rows] == ["b2"]


def test_events_are_gone(db):
    make(db)
    put(db, 1, 2, 3)
    rows, _, _ = take(db, "payload <> '2'")
    db.rows("SELECT queue.release(%s)", rows[0][1])
    db.connect("postgres").rows("DELETE FROM queue.e1_0 WHERE id = 3")
    with pytest.raises(Exception) as caught:
        ask(db, "true")
    assert caught.value.sqlstate == "QB005"


def test_what_is_out_is_kept(db):
    """The rotation keeps what a delivery has, whatever of it was chosen."""
    make(db)
    db.rows("SELECT queue.alter('s', '{retain}', '{0}')")
    put(db, 1, 2, 3)
    rows, _, _ = take(db, "payload = '3'")
    assert len(rows) == 1
    assert db.value("SELECT count(*) FROM queue.deliveries WHERE chosen = '{3}' AND events = 1 AND upto = 3") == 1


@pytest.mark.parametrize("on_fail", ["continue", "block"])
@pytest.mark.parametrize("n, seed", [(1, 1), (1, 2), (3, 3), (2, 4)])
def test_random(db, n, seed, on_fail):
    """Pushes that commit late, deliveries that are done, fail, or end otherwise, and parallel is changed: each event that fits
    has its effect once, none that does not fit comes."""
    rnd = random.Random(seed)
    make(db, n, on_fail=on_fail, retry="fixed 1ms", **({"max_attempts": 3} if seed % 2 else {}))
    slow = [db.connect(), db.connect()]
    for s in slow:
        s.rows("BEGIN")
    pushed, out, seen = 0, [], []
    for step in range(3000):
        calm = step > 100
        if step == 101:
            for s in slow:
                s.rows("COMMIT")
        if not calm:
            session = rnd.choice([db, db, *slow])
            for _ in range(rnd.randint(1, 6)):
                pushed += 1
                put(session, pushed, group=rnd.choice(["g1", "g2", "g3", "g4", None]))
            if rnd.random() < 0.3:
                s = rnd.choice(slow)
                s.rows("COMMIT")
                s.rows("BEGIN")
        if calm or rnd.random() < 0.1:
            db.rows("SELECT queue.redrive_for('s', 'a', which => %s)", rnd.choice(["dead", "later"]))
        if not calm and rnd.random() < 0.05 and not db.value("SELECT bool_or(waits) FROM queue.subscriptions"):
            db.rows("SELECT queue.alter_for('s', 'a', '{parallel}', %s)", [str(rnd.choice([1, 2, 3]))])
        rows, _, _ = take(db, "payload::int % 3 = 0", rnd.randint(1, 5))
        assert all(r[2] % 3 == 0 for r in rows) and [r[0] for r in rows] == sorted(r[0] for r in rows)
        if rows:
            out.append(rows)
        elif calm and not out and len(seen) == pushed // 3:
            break
        if not out or (rows and len(out) < 4 and rnd.random() < 0.5):
            continue
        rows = out.pop(rnd.randrange(len(out)))
        token, good = rows[0][1], [r[2] for r in rows]
        what = "done" if calm else rnd.choice(["done", "done", "fail", "events", "release", "lease"])
        if what == "done":
            done(db, rows)
        elif what == "events":
            groups = dict(db.rows("SELECT id, \"group\" FROM (SELECT id, \"group\" FROM queue.e1_0) AS e WHERE id = ANY (%s)",
                                  [r[0] for r in rows]))
            bad = {r[0] for r in rnd.sample(rows, rnd.randint(1, len(rows)))}
            stopped, good = set(), []
            for number, _, name, *_ in rows:
                if number in bad:
                    stopped.add(groups[number])
                elif on_fail == "continue" or groups[number] is None or groups[number] not in stopped:
                    good.append(name)
            db.rows("SELECT queue.fail(%s, 'bad', '0', events => %s::int8[])", token, list(bad))
        else:
            good = []
            if what == "lease":
                db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp() WHERE sub || '-d' || id || '-' || token = %s", token)
            else:
                db.rows("SELECT queue.%s(%%s)" % what, token)
                db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp() WHERE sub || '-d' || id = %s", token.rsplit("-", 1)[0])
        seen += good
    assert sorted(seen) == list(range(3, pushed + 1, 3))
    assert db.value("SELECT count(*) FROM queue.retries") == db.value("SELECT count(*) FROM queue.deliveries") == 0
    assert pending(db) == 0
