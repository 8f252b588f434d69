"""Events are read once in a take (functions/take_for.sql): the same deliveries come as those of the long way, which looks first
and then reads (functions/deliver.sql). A subscription with on_fail = block always goes that way."""

import random

import pytest

from test_stream import done, put, raw, take
from test_stream_parallel import Judge, drain, make


def turn_ring(db, current):
    root = db.connect("postgres")
    root.rows("UPDATE queue.streams SET current = %s", current)
    root.conn.close()


class History:
    """Transactions that push, overlap, are rolled back in part or as a whole, and write to one table of the ring or another."""

    def __init__(self, db, dice):
        self.db, self.dice, self.n, self.committed = db, dice, 0, []
        self.open = [[db.connect(), None] for _ in range(3)]

    def push(self, session, n):
        names = ["%s%d" % (self.dice.choice(["", "a", "b", "c", "d"]), self.n + i) for i in range(n)]
        self.n += n
        for name in names:
            session.rows("SELECT queue.push('s', %s, \"group\" => %s)", '"%s"' % name, name.rstrip("0123456789") or None)
        return names

    def step(self):
        one = self.dice.choice(self.open)
        session, names = one
        if names is None:
            session.rows("BEGIN")
            one[1] = self.push(session, self.dice.choice([0, 1, 1, 3, 20]))
            return
        what = self.dice.choice(["more", "savepoint", "commit", "commit", "rollback", "turn"])
        if what == "more":
            names += self.push(session, self.dice.choice([1, 2, 7]))
        elif what == "savepoint":
            session.rows("SAVEPOINT s")
            self.push(session, self.dice.choice([1, 4]))
            session.rows("ROLLBACK TO s")
        elif what == "turn":
            turn_ring(self.db, self.dice.randrange(4))
        else:
            session.rows(what)
            one[1] = None
            self.committed += names if what == "commit" else []

    def end(self):
        for one in self.open:
            if one[1] is not None:
                one[0].rows("COMMIT")
                self.committed += one[1]


@pytest.mark.parametrize("seed", range(6))
def test_as_the_long_way(db, seed):
    """One lane: delivery by delivery."""
    dice = random.Random(seed)
    make(db, 1)
    make(db, 1, sub="b", on_fail="block")
    history = History(db, dice)
    seen = []
    for _ in range(150):
        for _ in range(dice.choice([1, 2, 8])):
            history.step()
        lim = dice.choice([1, 2, 5, 5, 30])
        for _ in range(dice.choice([1, 1, 4])):
            more = dice.choice([{}, {"least": dice.randint(1, lim), "within": "1 h"}])
            token, got = take(db, "a", lim, **more)
            other, wanted = take(db, "b", lim, **more)
            assert got == wanted
            seen += got
            if token is not None:
                done(db, token)
                done(db, other)
    history.end()
    for sub in "ab":
        rest = drain(db, 7, sub)
        assert sorted(seen + rest) == sorted(history.committed), sub
    assert len(history.committed) > 300


@pytest.mark.parametrize("seed", range(6))
def test_lanes(db, seed):
    """Several: each event once, no group in two deliveries, with deliveries that end late."""
    dice = random.Random(seed)
    make(db, dice.choice([2, 3, 4]))
    history, judge = History(db, dice), Judge()
    out = {}
    for _ in range(120):
        for _ in range(dice.choice([1, 2, 8])):
            history.step()
        for _ in range(dice.choice([1, 2, 5])):
            token, got = take(db, "a", dice.choice([1, 2, 9, 30]))
            if token is not None:
                judge.taken(token, got)
                out[token] = got
        for token in dice.sample(sorted(out), min(len(out), 2)):
            done(db, token)
            judge.ended(token, out.pop(token))
    history.end()
    for token, got in out.items():
        done(db, token)
        judge.ended(token, got)
    for token, got in iter(lambda: take(db, "a", 11), (None, [])):
        judge.taken(token, got)
        done(db, token)
        judge.ended(token, got)
    assert sorted(judge.seen) == sorted(history.committed)


def test_gaps(db):
    """A delivery is full though there are ids without an event between."""
    make(db, 1)
    for n in range(30):
        put(db, n)
        db.rows("BEGIN")
        put(db, *["gone"] * (n % 7))
        db.rows("ROLLBACK")
    sizes = []
    while (got := take(db, "a", 8))[0] is not None:
        done(db, got[0])
        sizes.append(len(got[1]))
    assert sizes == [8, 8, 8, 6]


@pytest.mark.parametrize("least", [None, 3])
@pytest.mark.parametrize("way", ["_take_for", "_take_long_jsonb"])
def test_what_is_late_is_found_at_once(db, way, least):
    """By its transaction: the log is not walked from its beginning, however long it is."""
    make(db, 1)
    db.rows("SELECT queue.push('s', i::text) FROM generate_series(1, 3000) AS i")
    while (token := take(db, "a", 1000)[0]) is not None:
        done(db, token)
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "late")
    put(db, "one")
    done(db, take(db)[0])
    slow.rows("COMMIT")
    put(db, "two", "three")
    looked = "SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables WHERE relname ~ '^e[0-9]+_[0-9]$'"
    db.rows("BEGIN")
    before = db.value(looked)
    rows = db.rows("SELECT id FROM queue." + way + "('s', 'a', 100, %s, %s, NULL, 'w')", least, "1 h" if least else None)
    assert [id for (id,) in rows] == [3001, 3003, 3004]
    assert 3 <= db.value(looked) - before < 50
    db.rows("COMMIT")


@pytest.mark.parametrize("start", ["5", "2100-01-01", "now"])
def test_min_counts_its_own_alone(db, start):
    """Not what is before the place or the time of the subscription; and what is late is some of it."""
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.subscribe('a', 's', %s)", start)
    put(db, 1, 2)
    assert raw(db, least=4, within="1 h")[0][5].split()[1] == ("2" if start == "now" else "4")
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, 3)
    put(db, 4)
    assert raw(db, least=4, within="1 h")[0][5].split()[1] == ("1" if start == "now" else "4")
    slow.rows("COMMIT")
    put(db, 5)
    if start == "now":
        assert take(db, least=4, within="1 h")[1] == [1, 2, 3, 4, 5]
    else:
        (row,) = raw(db, least=2, within="1 h")
        assert row[0] is None and row[5].split()[1] == ("1" if start == "5" else "2")


def place(db, sub="a"):
    return db.row("SELECT p.s2 IS NULL, p.top, p.rings FROM queue.positions AS p JOIN queue.subscriptions AS u ON u.number = p.sub"
                  " WHERE u.name = %s ORDER BY p.seq DESC LIMIT 1", sub)


def test_the_end_of_a_window(db):
    """Is known: what is pushed behind it is not looked at, and a last delivery that is full ends it."""
    make(db, 1)
    put(db, 1, 2, 3, 4)
    turn_ring(db, 2)
    put(db, 5)
    done(db, take(db, "a", 2)[0])
    assert place(db) == (False, 5, 0b101)
    put(db, 6)
    done(db, take(db, "a", 3)[0])
    assert place(db) == (True, None, None)
    assert take(db)[1] == [6]


def test_lanes_share_a_window(db):
    """What one has found out of it the others need not."""
    make(db, 3)
    put(db, *range(30))
    first = take(db, "a", 2)
    put(db, 99)
    second = take(db, "a", 2)
    windows = db.rows("SELECT DISTINCT s2::text, top FROM queue.positions WHERE s2 IS NOT NULL")
    assert len(windows) == 1 and windows[0][1] == 30
    done(db, first[0])
    done(db, second[0])
    assert sorted(first[1] + second[1] + drain(db)) == [*range(30), 99]


def test_one_busy_group(db):
    """It has more events than a delivery, and its lane more than others: none is left out."""
    make(db, 4)
    db.rows("SELECT queue.push('s', g::text::jsonb, \"group\" => CASE WHEN g % 10 > 0 THEN 'busy' END) FROM generate_series(1, 3000) AS g")
    sizes, got = [], []
    while (one := take(db, "a", 100))[0] is not None:
        done(db, one[0])
        sizes.append(len(one[1]))
        got += one[1]
    assert sorted(got) == list(range(1, 3001)) and max(sizes) == 100
    assert [n for n in got if n % 10 > 0] == [n for n in range(1, 3001) if n % 10 > 0]


@pytest.mark.parametrize("lanes", [1, 2])
def test_min_tells_when_it_is_worth_while(db, lanes):
    """As fast as they have come; but not for long."""
    make(db, lanes)
    put(db, *range(lanes * 3))
    (row,) = raw(db, least=5, within="1 h")
    pause, missing, within = map(int, row[5].split())
    assert row[0] is None and 1 <= pause <= 20 and row[4] > 3000000
    assert 2 <= missing <= 5 and within == 3600000    # of the lane that has most
    put(db, *range(lanes * 3))
    assert len(take(db, least=5, within="1 h")[1]) == 6


def test_min_tells_what_is_missing_of_nothing(db):
    make(db, 1)
    (row,) = raw(db, least=5, within="50 ms")
    assert row[0] is None and row[5] == "0 5 50"
    assert raw(db)[0][5] is None


def test_a_delivery_tells_that_it_had_all(db):
    """With MIN, and brief. Not if something is left, nor of the rest of a window, nor of a lane."""
    def told(sub, limit):
        rows = db.rows("SELECT token, \"out\" FROM queue._take_for('s', %s, %s, 2, '50 ms', '5 s', NULL, NULL, true)", sub, limit)
        done(db, rows[0][0])
        return rows[0][1]

    make(db, 1)
    make(db, 2, sub="b")
    put(db, 1, 2, 3, 4)
    assert told("a", 2) == "5000"
    assert told("a", 2) == "5000"
    put(db, 5, 6)
    assert told("a", 2) == "5000 0 2 50"
    assert told("b", 10) == "5000"


def test_the_common_row_comes_first(db):
    """brief: what all events have, once, with the number of the stream."""
    make(db, 1)
    put(db, 1, 2)
    number = db.value("SELECT number FROM queue.streams")
    rows = db.rows("SELECT id, token, attempt, due_ms, \"out\", xid IS NULL FROM queue._take_for('s', 'a', 10, NULL, NULL, '5 s', NULL, NULL, true)")
    assert rows[0][0] is None and rows[0][1].startswith("2-d1-") and rows[0][2:] == (1, number, "5000", True)
    assert [r[0] for r in rows[1:]] == [1, 2] and all(r[1:] == (None, None, None, None, False) for r in rows[1:])


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("first, last", [("beginning", 9223372036854775807), ("now", 9223372036854775807), ("now", 9223372036854775000)])
def test_the_last_ids(db, lanes, first, last):
    """A trigger of the owner's may have any ids: the end of the numbers is no error."""
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.subscribe('a', 's', %s, '{parallel}', ARRAY[%s])", first, str(lanes))
    db.rows("CREATE FUNCTION far() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := %d - NEW.id; RETURN NEW; END'" % last)
    for i in range(4):
        db.rows("CREATE TRIGGER far BEFORE INSERT ON queue.e%d_%d FOR EACH ROW EXECUTE FUNCTION far()"
                % (db.value("SELECT number FROM queue.streams"), i))
    db.rows("SELECT queue.push('s', i::text) FROM generate_series(1, 7) AS i")
    seen = []
    for _ in range(12):
        rows = db.rows("SELECT token, payload FROM queue.take_for('s', 'a', 2)")
        seen += [n for _, n in rows]
        if rows:
            db.rows("SELECT queue.done(%s)", rows[0][0])
    assert sorted(seen) == list(range(1, 8))
