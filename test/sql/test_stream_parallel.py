"""parallel = n: cooperating workers of a subscription. Up to n deliveries are out, and end in any order; no group is in two of
them, each group comes in its order, and each event once."""

import json
import random

import pytest

from test_stream import done, over, raw, steps, take


def make(db, n, start="now", sub="a", **options):
    if not db.rows("SELECT FROM queue.streams"):
        db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    options["parallel"] = n
    db.rows("SELECT queue.subscribe(%s, 's', %s, %s, %s)", sub, start, list(options), [str(v) for v in options.values()])
    return db


def put(session, *names):
    """'a1': of group a; '1': without a group. All of them in one push each."""
    for name in names:
        session.rows("SELECT queue.push('s', %s, \"group\" => %s)", json.dumps(name), name.rstrip("0123456789") or None)


def alter(db, **options):
    db.rows("SELECT queue.alter_for('s', 'a', %s, %s)", list(options), [str(v) for v in options.values()])


def seen(db, columns, sub="a"):
    return db.rows("SELECT %s FROM queue.subscriptions('s') WHERE subscription = %%s" % columns, sub)


def drain(session, lim=100, sub="a"):
    """Each delivery that there is, ended at once."""
    got = []
    while True:
        token, payloads = take(session, sub, lim)
        if token is None:
            return got
        got += payloads
        done(session, token)


def log(db):
    return "queue.e%d_0" % db.value("SELECT number FROM queue.streams")


def fetched(session):
    """Rows of the stream's tables that this transaction has looked at."""
    return session.value("SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
                         " WHERE schemaname = 'queue' AND relname ~ %s", "^e%d_[0-3]$" % session.value("SELECT number FROM queue.streams"))


def all_out(session, lim=100):
    out = []
    while True:
        token, payloads = take(session, "a", lim)
        if token is None:
            return out
        out.append((token, payloads))


class Judge:
    """No group in two deliveries at once, and each in its order."""

    def __init__(self):
        self.out, self.seen = {}, []

    def taken(self, token, payloads):
        groups = {p.rstrip("0123456789") for p in payloads} - {""}
        for others in self.out.values():
            assert not groups & others
        self.out[token] = groups

    def ended(self, token, payloads=()):
        del self.out[token]
        self.seen += payloads

    def ok(self, *pushed):
        assert sorted(self.seen) == sorted(pushed)
        for group in {p.rstrip("0123456789") for p in pushed} - {""}:
            mine = [int(p[len(group):]) for p in self.seen if p.rstrip("0123456789") == group]
            assert mine == sorted(mine), group


@pytest.mark.parametrize("n", [2, 3, 4, 64])
def test_thin(db, n):
    make(db, n)
    names = ["%s%d" % (g, i) for i in range(1, 6) for g in "abcdefgh"] + [str(i) for i in range(64)]
    put(db, *names)
    judge = Judge()
    out = all_out(db)
    assert len(out) == n
    for token, payloads in out:
        judge.taken(token, payloads)
    rows = raw(db)
    assert {r[5] for r in rows} == {t.rsplit("-", 1)[0] for t, _ in out} and {r[0] for r in rows} == {None}
    assert all(50000 < r[4] <= 60000 for r in rows)
    for token, payloads in reversed(out):
        done(db, token)
        judge.ended(token, payloads)
    assert take(db) == (None, [])
    judge.ok(*names)


def test_a_lane_is_free_when_its_delivery_is_done(db):
    make(db, 2)
    put(db, *("%s%d" % (g, i) for i in range(1, 5) for g in "aebg"))     # two of each lane
    (one, first), (two, second) = all_out(db, lim=2)
    assert raw(db)[0][0] is None
    done(db, two)
    token, more = take(db)
    assert token.split("-")[0] == two.split("-")[0] and {p[0] for p in more} >= {p[0] for p in second}
    done(db, token)
    assert take(db) == (None, [])
    done(db, one)
    assert len(first + second + more + drain(db)) == 16


@pytest.mark.parametrize("n", ["0", "65", "x", "-1", "1.5", None])
def test_how_many(db, n):
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    assert "1 to 64" in db.fails("22023", "SELECT queue.subscribe('a', 's', NULL, '{parallel}', %s)", [n]).message_hint
    db.rows("SELECT queue.subscribe('a', 's')")
    db.fails("22023", "SELECT queue.alter_for('s', 'a', '{parallel}', %s)", [n])


def test_a_name_is_taken_whatever_its_lanes(db):
    make(db, 2)
    for n in (1, 2, 4):
        assert "ALTER s FOR a" in db.fails("42710", "SELECT queue.subscribe('a', 's', NULL, '{parallel}', %s)", [str(n)]).message_hint
    db.rows("SELECT queue.unsubscribe('a', 's')")
    assert db.value("SELECT count(*) FROM queue.subscriptions") == db.value("SELECT count(*) FROM queue.positions") == 0
    make(db, 3)
    assert db.value("SELECT count(*) FROM queue.subscriptions") == 3


@pytest.mark.parametrize("n", [2, 4])
def test_all_interleavings_of_three_pushers_and_two_readers(db, n):
    """As of one at a time: with deliveries of two readers out while others push, that end in either order."""
    make(db, n, start="beginning")
    pushers, other = [db.connect() for _ in range(3)], db.connect()
    said, judge, out, count = [], Judge(), [], {}

    def end(i):
        token, payloads = out.pop(i)
        done(other, token)
        judge.ended(token, payloads)

    for number, order in enumerate(steps(3)):
        begun = {}
        for p in pushers:
            p.rows("BEGIN")
        pushers[number % 3].rows("SELECT pg_current_xact_id()")
        for at, i in enumerate(order):
            if i in begun:
                fate = "ROLLBACK" if (number + i) % 7 == 0 else "COMMIT"
                pushers[i].rows(fate)
                said += begun[i] if fate == "COMMIT" else []
            else:
                group = "xyz"[i]        # of each pusher its own, so that it has an order
                count[group] = count.get(group, 0) + 1
                begun[i] = ["%s%d" % (group, 2 * count[group]), "%s%d" % (group, 2 * count[group] + 1), str(10 * (10 * number + at))]
                put(pushers[i], *begun[i])
            token, payloads = take(other, "a", 1 + (number + at) % 3)
            if token:
                judge.taken(token, payloads)
                out.append((token, payloads))
            if len(out) >= 2:
                end((number + at) % 2)
    while out:
        end(0)
    while (got := take(other, "a", 2))[0]:
        judge.taken(*got)
        out.append(got)
        end(0)
    assert len(said) > 150
    judge.ok(*said)


@pytest.mark.parametrize("on_fail", ["continue", "block"])
@pytest.mark.parametrize("n, seed", [(2, 1), (2, 2), (4, 3), (4, 4), (7, 5)])
def test_random(db, n, seed, on_fail):
    """Deliveries are done, fail, are given back, or their leases end, in any order, and parallel is changed now and then: each
    event has its effect once, and with on_fail = block each group its order."""
    rnd = random.Random(seed)
    make(db, n, on_fail=on_fail, retry="fixed 1ms", **({"max_attempts": 3} if seed % 2 else {}))
    groups = "abcdefgh"
    pushed, names, out, judge = dict.fromkeys(groups, 0), [], [], Judge()
    for step in range(2000):
        calm = step > 100
        if not calm and rnd.random() < 0.6:
            for g in rnd.choices(groups, k=rnd.randint(1, 5)):
                pushed[g] += 1
                names.append("%s%d" % (g, pushed[g]))
                put(db, names[-1])
        if calm or rnd.random() < 0.1:
            db.rows("SELECT queue.redrive_for('s', 'a', which => %s)", rnd.choice(["dead", "later"]))
        if not calm and rnd.random() < 0.06 and not db.value("SELECT bool_or(waits) FROM queue.subscriptions"):
            alter(db, parallel=rnd.choice([1, 2, 3, 4, 7]))
        rows = db.rows("SELECT id, token, payload::jsonb FROM queue._take_for('s', 'a', %s, NULL, NULL, NULL, 'w') WHERE id IS NOT NULL"
                       " ORDER BY id", rnd.randint(1, 5))
        if rows:
            out.append(rows)
            if on_fail == "block":
                judge.taken(rows[0][1], [r[2] for r in rows])
            else:
                judge.out[rows[0][1]] = set()
        elif calm and not out and sorted(judge.seen) == sorted(names):
            break
        if not out or (rows and len(out) < 4 and rnd.random() < 0.5):
            continue
        rows = out.pop(rnd.randrange(len(out)))
        token, good = rows[0][1], [r[2] for r in rows]
        what = "done" if calm else rnd.choice(["done", "done", "done", "fail", "events", "release", "lease"])
        if what == "done":
            done(db, token)
        elif what == "events":
            bad = {r[0] for r in rnd.sample(rows, rnd.randint(1, len(rows)))}
            stopped, good = set(), []
            for number, _, name in rows:
                if number in bad:
                    stopped.add(name[0])
                elif on_fail == "continue" or name[0] not in stopped:
                    good.append(name)
            db.rows("SELECT queue.fail(%s, 'bad', '0', events => %s::int8[])", token, list(bad))
        else:
            good = []
            if what == "lease":
                db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp() WHERE sub || '-d' || id || '-' || token = %s", token)
            else:
                db.rows("SELECT queue.%s(%%s)" % what, token)
                db.rows("UPDATE queue.deliveries SET lease_until = clock_timestamp() WHERE sub || '-d' || id = %s", token.rsplit("-", 1)[0])
        judge.ended(token, good)
    else:
        raise AssertionError((out, db.rows("SELECT sub, id, \"group\", dead, due_at, delivery FROM queue.retries"),
                              db.rows("SELECT number, lanes, lane, ends, waits FROM queue.subscriptions")))
    assert sorted(judge.seen) == sorted(names)
    if on_fail == "block":
        judge.ok(*names)
    assert db.value("SELECT count(*) FROM queue.retries") == db.value("SELECT count(*) FROM queue.deliveries") == 0


def test_one_group_alone_holds_nobody_up(db):
    """Its lane is busy; others get theirs, behind any number of its events, and a take looks at a bounded number of them."""
    make(db, 4)
    put(db, "a1")
    (hot, _), = all_out(db)
    db.rows("SELECT queue.push('s', '\"a2\"', \"group\" => 'a') FROM generate_series(1, 5000)")
    put(db, *"bcdefgh")
    root = db.connect("postgres")
    root.rows("ANALYZE " + log(db))
    got, looks = [], 0
    while len(got) < 7:
        root.rows("BEGIN")
        rows = root.rows("SELECT id, token, payload::jsonb, due_ms FROM queue._take_for('s', 'a', 1, NULL, NULL, NULL, 'w')")
        assert fetched(root) < 60000
        root.rows("COMMIT")
        looks += 1
        assert looks < 40
        if rows[0][0] is None:
            assert rows[0][3] <= 100 or len(got) == 7 - len([g for g in "bcdefgh" if same_lane(db, g, "a", 4)])
            if rows[0][3] > 100:
                break
            continue
        got.append(rows[0][2])
        done(db, rows[0][1])
    assert set(got) == {g for g in "bcdefgh" if not same_lane(db, g, "a", 4)}
    done(db, hot)
    assert len(drain(db, 1000)) == 5000 + 7 - len(got)


def same_lane(db, a, b, n):
    lane = "(hashtextextended(%s, 0) & 32767) * %s >> 15"
    return db.value("SELECT %s = %s" % (lane, lane), a, n, b, n)


def test_what_has_no_group_is_spread(db):
    make(db, 4)
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 400)")
    assert [len(p) for _, p in all_out(db)] == [100] * 4


@pytest.mark.parametrize("n", [2, 3, 7, 64])
def test_the_short_way_and_the_long_one_have_the_same_lanes(db, n, monkeypatch):
    for sub in "ab":
        make(db, n, sub=sub)
    put(db, *("%s%d" % (g, i) for i in range(3) for g in [*"abcdefghijklm", ""]))
    got = {}
    for sub, way in (("a", "_take_for"), ("b", "_take_long_jsonb")):
        monkeypatch.setattr("test_stream.TAKE", way)
        first = db.value("SELECT min(number) FROM queue.subscriptions WHERE name = %s", sub)
        while (got_now := take(db, sub, 2))[0]:
            token, payloads = got_now
            got.setdefault(sub, {}).setdefault(int(token.split("-")[0]) - first, []).extend(payloads)
            done(db, token)
    assert got["a"] == got["b"] and sum(map(len, got["a"].values())) == 3 * 14


def test_which_buckets_a_lane_has(db):
    """Each bucket is of one lane, which is the same in both forms of the rule."""
    first, last = db.rows("SELECT a[1], a[2] FROM queue._lane_buckets('n', 'lane') AS a")[0]
    lanes = db.rows(f"SELECT n, lane, {first}, {last} FROM generate_series(1, 64) AS n, generate_series(0, n - 1) AS lane ORDER BY n, lane")
    assert len(lanes) == 64 * 65 / 2
    end = {}
    for n, lane, begins, ends in lanes:
        assert begins == end.get(n, -32768) and ends >= begins, (n, lane)
        end[n] = ends + 1
    assert set(end.values()) == {32768}
    assert db.rows(f"""SELECT count(*), bool_and(bucket BETWEEN {first} AND {last}) FROM (
        SELECT n, bucket, bucket * n >> 15 AS lane FROM generate_series(1, 64) AS n, generate_series(0, 32767) AS bucket) AS b""") == [
        (64 * 32768, True)]


@pytest.mark.parametrize("n", [1, 4])
def test_what_has_a_strange_bucket_is_read(db, n):
    """Who may push may write it into the table himself."""
    make(db, n)
    bob = db.connect("bob")
    db.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    bob.rows("INSERT INTO %s (bucket, payload) VALUES (-1, '\"1\"'), (-32768, '\"2\"'), (32767, '\"3\"')" % log(db))
    assert sorted(drain(db)) == ["1", "2", "3"]


@pytest.mark.parametrize("way, most", [("_take_for", 2000), ("_take_long_jsonb", 4000)])
def test_a_lane_reads_its_own(db, way, most, monkeypatch):
    """Others' events are passed over in the index."""
    monkeypatch.setattr("test_stream.TAKE", way)
    make(db, 4)
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 4000)")
    root = db.connect("postgres")
    root.rows("ANALYZE " + log(db))
    for token, _ in all_out(db, lim=500):       # they have looked for the window's bounds
        done(db, token)
    root.rows("BEGIN")
    for _ in range(3):
        assert len(take(root, lim=500)[1]) == 500
    assert fetched(root) < most
    root.rows("COMMIT")


@pytest.mark.parametrize("n", [2, 4, 8, 64])
def test_what_has_no_group_is_of_each_lane_in_turn(db, n):
    make(db, n)
    for start in (1, 2, 5):
        db.rows("SELECT queue.push('s', '1') FROM generate_series(1, %s)", start * n)
        assert [len(p) for _, p in all_out(db)] == [start] * n
        for token in db.column("SELECT sub || '-d' || id || '-' || token FROM queue.deliveries"):
            done(db, token)


def test_two_takes_at_once(db):
    make(db, 2)
    put(db, *map(str, range(10)))
    one, two, three = db.connect(), db.connect(), db.connect()
    for c in (one, two):
        c.rows("BEGIN")
    got = take(one)[1] + take(two)[1]
    assert sorted(got, key=int) == [str(i) for i in range(10)]
    assert [r[4] for r in raw(three)] == [100]       # it waits for nobody
    for c in (one, two):
        c.rows("COMMIT")
    assert {r[5] is None for r in raw(three)} == {False}


def test_a_delivery_comes_again(db):
    make(db, 4)
    put(db, *map(str, range(40)))
    (token, payloads), = [take(db, lim=3, lease="1 ms")]
    over(db)
    for other, _ in all_out(db, lim=3):
        if other.split("-")[0] == token.split("-")[0]:
            assert other.split("-")[1] == token.split("-")[1]
            assert db.column("SELECT attempt FROM queue.deliveries WHERE sub = %s", int(token.split("-")[0])) == [2]
        done(db, other)
    db.fails("QB001", "SELECT queue.done(%s)", token)
    assert len(drain(db)) == 40 - 3 * 4


def test_repeatable_read(db):
    make(db, 2)
    put(db, "1", "2", "3", "4")
    worker = db.connect()
    worker.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    worker.rows("SELECT 1")
    (one, _), (two, _) = all_out(db)
    assert worker.fails("40001", "SELECT queue.done(%s)", one).message_hint
    worker.rows("ROLLBACK")
    worker.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    done(worker, one)
    done(worker, two)
    worker.fails("0A000", "SELECT * FROM queue.take_for('s', 'a')")
    worker.rows("ROLLBACK")
    db.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    db.fails("0A000", "SELECT queue.alter_for('s', 'a', '{parallel}', '{3}')")
    db.rows("ROLLBACK")


def test_at_least(db):
    """MIN is of a delivery, so of a lane."""
    make(db, 2)
    put(db, "1", "2", "3", "4", "5")
    (row,) = raw(db, least=3, within="1 h")[-1:]
    assert row[0] is not None
    done(db, row[1])
    (row,) = raw(db, least=3, within="1 h")
    assert row[0] is None and row[4] > 3500000
    put(db, "6", "7")
    assert take(db, least=3, within="1 h")[0]


def test_seek(db):
    make(db, 4)
    put(db, *map(str, range(20)))
    out = all_out(db)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    for token, _ in out:
        db.fails("QB001", "SELECT queue.done(%s)", token)
    assert len(drain(db, 2)) == 20
    db.rows("SELECT queue.seek('a', 's', '15')")
    assert sorted(drain(db), key=int) == [str(i) for i in range(14, 20)]
    db.rows("SELECT queue.seek('a', 's', 'now')")
    assert drain(db) == []


def test_a_position_is_that_of_each_lane(db):
    make(db, 3)
    put(db, *map(str, range(60)))
    places, got = [], []
    for i in range(12):
        ((place,), *_) = seen(db, '"position"')
        places.append((place, list(got)))
        token, payloads = take(db, lim=2 + i % 4)
        got += payloads
        done(db, token)
    assert len({p[0] for p in places}) == 12 and all(p[0].count(" | ") == 2 for p in places)
    got += drain(db)
    for place, before in places:
        db.rows("SELECT queue.seek('a', 's', %s)", place)
        assert {p for p, in seen(db, '"position"')} == {place}
        assert sum(p for p, in seen(db, "pending")) == 60 - len(before)
        assert sorted(before + drain(db, 7)) == sorted(got)
    make(db, 3, places[5][0], "b")
    assert len(drain(db, sub="b")) == 60 - len(places[5][1])
    for n in (1, 2):
        assert "parallel = 3" in db.fails("22023", "SELECT queue.subscribe('c', 's', %s, '{parallel}', %s)", places[5][0],
                                          [str(n)]).message_primary


def test_what_failed_by_itself(db):
    """Retries stay in their lane; PEEK, REDRIVE and PURGE are of all of them."""
    make(db, 4)
    put(db, *map(str, range(1, 21)))
    for token, payloads in all_out(db):
        ids = db.column("SELECT id FROM queue._read_lane_1(%s, %s, '{}', 0, 0, 1000, NULL, 100, 4, 0) LIMIT 0", "3", "3:3:")
        assert ids == []
        db.rows("SELECT queue.fail(%s, 'bad', NULL, true, %s::int8[])", token, [int(payloads[0])])
    assert db.value("SELECT count(*) FROM queue.peek_for('s', 'a', 10, 'dead')") == 4
    assert sum(d for d, in seen(db, "dead")) == 4
    assert db.value("SELECT queue.purge_for('s', 'a', 'dead', ids => ARRAY(SELECT min(id) FROM queue.peek_for('s', 'a')))") == 1
    assert db.value("SELECT queue.redrive_for('s', 'a', 2)") == 2
    assert len(drain(db)) == 2
    assert db.value("SELECT queue.redrive_for('s', 'a')") == 1
    assert len(drain(db)) == 1 and db.value("SELECT count(*) FROM queue.retries") == 0


# --- parallel is changed ---

@pytest.mark.parametrize("was, will", [(1, 4), (4, 1), (4, 2), (2, 3), (3, 7), (7, 2)])
def test_change(db, was, will):
    """What was pushed before is read as it was begun; the new lanes wait until all of that is done."""
    make(db, was)
    groups = "abcdefghijklmnopqrstuvwxyz"       # some of each lane
    names = ["%s%d" % (g, i) for i in range(1, 4) for g in groups]
    put(db, *names)
    judge = Judge()
    out = all_out(db, lim=2)
    for got in out:
        judge.taken(*got)
    assert len(out) == was
    alter(db, parallel=will)
    more = ["%s%d" % (g, i) for i in range(4, 7) for g in groups]
    put(db, *more)
    assert sum(p for p, in seen(db, "pending")) == len(names + more) - sum(len(p) for _, p in out)
    assert {p for p, in seen(db, '"position"')} == {None}
    assert raw(db)[0][0] is None
    assert "SEEK" in db.fails("55000", "SELECT queue.alter_for('s', 'a', '{parallel}', '{9}')").message_hint
    kept = out.pop(0)
    for token, payloads in out:
        done(db, token)
        judge.ended(token, payloads)
    while (got := take(db, lim=2))[0]:      # the others get their rest, and nothing of what came later
        judge.taken(*got)
        done(db, got[0])
        judge.ended(*got)
        assert not set(got[1]) & set(more)
    assert db.value("SELECT bool_or(waits) FROM queue.subscriptions")
    done(db, kept[0])
    judge.ended(*kept)
    out = []
    while (got := take(db, lim=2))[0]:
        judge.taken(*got)
        if set(got[1]) & set(more):
            out.append(got)
            if len(out) == will:
                break
        else:
            done(db, got[0])
            judge.ended(*got)
    assert len(out) == will and seen(db, "parallel, lane") == [(will, i + 1) for i in range(will)]
    for token, payloads in out:
        done(db, token)
        judge.ended(token, payloads)
    while (got := take(db))[0]:
        judge.taken(*got)
        done(db, got[0])
        judge.ended(*got)
    judge.ok(*names, *more)
    assert sum(d for d, in seen(db, "delivered")) == len(names + more)


def test_change_with_nothing_out(db):
    make(db, 4)
    put(db, *map(str, range(20)))
    assert len(drain(db)) == 20
    alter(db, parallel=2)
    put(db, *map(str, range(20)))
    assert [len(p) for _, p in all_out(db)] == [10, 10]
    assert db.value("SELECT count(*) FROM queue.subscriptions") == 2


def test_change_with_an_open_transaction(db):
    """What it pushes later, or commits later, is of the new lanes."""
    make(db, 2)
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "a1")
    put(db, "b1")
    db.rows("BEGIN")
    put(db, "c1")
    alter(db, parallel=4)
    put(db, "c2")
    db.rows("COMMIT")
    slow.rows("COMMIT")
    got = drain(db, 1)
    assert sorted(got) == ["a1", "b1", "c1", "c2"] and got.index("c1") < got.index("c2") and got[0] == "b1"


def test_change_taken_back(db):
    make(db, 2)
    put(db, "1", "2", "3")
    db.rows("BEGIN")
    alter(db, parallel=4)
    assert [r[4] for r in raw(db.connect())] == [100]
    db.rows("ROLLBACK")
    assert len(drain(db)) == 3 and seen(db, "parallel") == [(2,), (2,)]


@pytest.mark.parametrize("was, will", [(1, 4), (4, 2), (3, 1)])
def test_change_with_retries(db, was, will):
    """What waits, and what is dead, goes along, to the lane of its group; what it blocks, too."""
    make(db, was, on_fail="block")
    put(db, *("%s%d" % (g, i) for i in (1, 2) for g in "abcd"), "1", "2")
    for token, payloads in all_out(db):
        ids = db.rows("SELECT id, payload::jsonb #>> '{}' FROM %s WHERE payload::jsonb #>> '{}' = ANY (%%s)" % log(db),
                      [p for p in payloads if p in ("a1", "b1", "1")])
        if ids:
            db.rows("SELECT queue.fail(%s, 'bad', NULL, true, %s::int8[])", token, [i for i, _ in ids])
        else:
            done(db, token)
    alter(db, parallel=will)
    put(db, *("%s3" % g for g in "abcd"))
    assert sorted(drain(db)) == ["c3", "d3"]
    assert db.rows("SELECT state, count(*) FROM queue.peek_for('s', 'a') GROUP BY 1 ORDER BY 1") == [("dead", 3), ("later", 4)]
    assert db.value("SELECT count(DISTINCT number) FROM queue.subscriptions") == will
    assert db.value("SELECT queue.redrive_for('s', 'a')") == 3
    got = drain(db)
    assert sorted(got) == ["1", "a1", "a2", "a3", "b1", "b2", "b3"]
    assert [g for g in got if g[0] == "a"] == ["a1", "a2", "a3"]


def test_change_and_seek(db):
    """SEEK does not wait for what came before."""
    make(db, 4)
    put(db, *map(str, range(8)))
    out = all_out(db, lim=1)
    db.rows("SELECT queue.fail(%s, 'bad', '0', false, %s::int8[])", out[0][0], [int(out[0][1][0]) + 1])
    alter(db, parallel=2)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert db.value("SELECT count(*) FROM queue.subscriptions") == 2
    db.fails("QB001", "SELECT queue.done(%s)", out[1][0])
    assert len(drain(db)) == 9          # one of them is a retry


def test_change_and_unsubscribe(db):
    make(db, 4)
    put(db, *map(str, range(8)))
    all_out(db, lim=1)
    alter(db, parallel=2)
    db.rows("SELECT queue.unsubscribe('a', 's')")
    for table in ("subscriptions", "positions", "deliveries", "retries"):
        assert db.value("SELECT count(*) FROM queue.%s" % table) == 0


def test_change_of_the_rest(db):
    make(db, 2)
    alter(db, lease="5 s", max_attempts=3, retry="fixed 1s")
    assert db.rows("SELECT lease::text, max_attempts, retry, lanes FROM queue.subscriptions") == [("00:00:05", 3, "fixed 1s", 2)] * 2
    db.rows("SELECT queue.alter_for('s', 'a', resets => '{lease,max_attempts,retry}')")
    assert db.rows("SELECT lease::text, max_attempts, retry, lanes FROM queue.subscriptions") == [("00:01:00", None, None, 2)] * 2
    db.rows("SELECT queue.alter_for('s', 'a', resets => '{parallel}')")
    drain(db)
    assert db.rows("SELECT lanes, waits FROM queue.subscriptions") == [(1, False)]
    assert db.fails("0A000", "SELECT queue.alter_for('s', 'a', '{on_fail}', '{block}')").message_hint
    db.rows("SELECT queue.alter_for('s', 'a', '{on_fail}', '{continue}')")
    assert "parallel" in db.fails("22023", "SELECT queue.alter_for('s', 'a', '{speed}', '{9}')").message_hint
    db.fails("22023", "SELECT queue.alter_for('s', 'a', resets => '{speed}')")
    db.fails("42704", "SELECT queue.alter_for('s', 'nobody', '{parallel}', '{2}')")


def test_change_again_and_again(db):
    """Each event once, each group in its order, with a change before each take."""
    make(db, 1)
    judge, names = Judge(), []
    for step in range(24):
        names += ["%s%d" % (g, step) for g in "abc"]
        put(db, *names[-3:])
        if not db.value("SELECT bool_or(waits) FROM queue.subscriptions"):
            alter(db, parallel=1 + step % 5)
        got = take(db, lim=2)
        if got[0]:
            judge.taken(*got)
            done(db, got[0])
            judge.ended(*got)
    while (got := take(db))[0]:
        judge.taken(*got)
        done(db, got[0])
        judge.ended(*got)
    judge.ok(*names)


def looked_at(db, lane=0):
    """A lane, as a take has looked at it."""
    return db.row("SELECT p::text, u.ends::text FROM queue.subscriptions AS u JOIN queue.positions AS p ON p.sub = u.number WHERE u.lane = %s", lane)


HOLD = "SELECT u.number FROM queue._hold_lane(%s::text::queue.positions, %s::text::pg_snapshot) AS u"


def test_a_take_that_meets_a_change(db):
    """It had looked before that was committed: what is read no further than so far is not, nor a new lane before the old ones have ended."""
    make(db, 2)
    put(db, "a1")
    was = looked_at(db)
    assert db.value(HOLD, *was) is not None
    alter(db, parallel=4)
    put(db, "b1")
    assert db.value(HOLD, *was) is None
    assert db.value("SELECT queue._move_idle(ARRAY[%s::text::queue.positions])", was[0]) is False
    for place in db.rows("SELECT p::text, NULL FROM queue.positions AS p JOIN queue.subscriptions AS u ON u.number = p.sub WHERE u.waits"):
        assert db.value(HOLD, *place) is None
    assert drain(db) == ["a1", "b1"]


@pytest.mark.parametrize("meanwhile", ["queue.seek('a', 's', 'beginning')", "queue.unsubscribe('a', 's')", "queue._take_for('s', 'a', 9, NULL, NULL, NULL, 'w')"])
def test_a_take_that_meets_another(db, meanwhile):
    make(db, 2)
    put(db, *map(str, range(8)))
    was = [looked_at(db, lane) for lane in (0, 1)]
    db.rows("SELECT " + meanwhile)
    kept = [db.value(HOLD, *one) for one in was]
    assert [k is None for k in kept].count(True) == (1 if "take" in meanwhile else 2)
    assert [db.value("SELECT queue._has_changed(%s::text::queue.positions, %s::text::pg_snapshot)", *one) for one in was] == [k is None for k in kept]


# --- who may, what is shown, what is kept ---

def test_rights(db):
    make(db, 2)
    put(db, "1", "2")
    bob = db.connect("bob")
    for call in ("take_for('s', 'a')", "seek('a', 's', 'now')", "unsubscribe('a', 's')", "alter_for('s', 'a', '{lease}', '{1 s}')"):
        bob.fails("42501", "SELECT queue." + call)
    bob.fails("42501", "UPDATE queue.subscriptions SET stream = 2")
    assert bob.rows("UPDATE queue.subscriptions SET ends = '3:3:' RETURNING number") == []
    assert bob.rows("SELECT lane, pending, \"position\" FROM queue.subscriptions()") == [(1, None, None), (2, None, None)]
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    make(bob, 2, sub="b")
    put(db, *map(str, range(3, 9)))
    out = [take(bob, "b", 1) for _ in range(2)]
    bob.rows("SELECT queue.fail(%s, 'x', '0', false, %s::int8[])", out[0][0], [int(out[0][1][0])])
    done(bob, out[1][0])
    bob.rows("SELECT queue.alter_for('s', 'b', '{parallel}', '{1}')")
    db.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    bob.fails("42501", "SELECT queue.take_for('s', 'b')")       # and nothing is lost by it
    assert db.connect("postgres").value("SELECT count(*) FROM queue.retries") == 1
    bob.fails("42501", "SELECT queue.alter_for('s', 'b', '{parallel}', '{3}')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    got = drain(bob, sub="b")
    assert len(got) == 5 and out[0][1][0] in got
    db.rows("SELECT queue.unsubscribe('b', 's')")


def test_lanes_of_somebody_else(db):
    """A row by hand under the name of another role's subscription is not of it, whatever it says."""
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob = db.connect("bob")
    number = db.value("SELECT number FROM queue.streams")
    bob.rows("SELECT queue.subscribe('a', 's')")
    bob.rows("UPDATE queue.subscriptions SET ends = '3:3:' WHERE owner = 'bob'::regrole")      # it has no first lane any more
    assert db.column("SELECT subscription FROM queue.subscriptions()") == ["a"] == bob.column("SELECT subscription FROM queue.subscriptions()")
    assert len(db.rows("SELECT FROM queue.health() WHERE about = 'subscription'")) == 1
    make(db, 2)
    for more in ("lanes, lane) VALUES (%s, 'a', 2, 1", "lanes, lane) VALUES (%s, 'a', 4, 3", "lanes, lane, ends) VALUES (%s, 'a', 4, 0, '3:3:'"):
        bob.fails("42501", "INSERT INTO queue.subscriptions (stream, name, " + more + ")", number)
    bob.fails("23505", "INSERT INTO queue.subscriptions (stream, name, lanes) VALUES (%s, 'a', 4)", number)
    put(db, *map(str, range(8)))
    assert len(all_out(db, lim=1)) == 2
    alter(db, parallel=4)
    for token in db.column("SELECT sub || '-d' || id || '-' || token FROM queue.deliveries"):
        done(db, token)
    assert len(drain(db)) == 6 and seen(db, "DISTINCT parallel, owner") == [(1, "bob"), (4, "app")]
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert len(drain(db)) == 8
    db.rows("SELECT queue.unsubscribe('a', 's')")       # the owner of the stream removes what else has the name
    assert db.value("SELECT count(*) FROM queue.subscriptions") == 0


def test_two_find_that_lanes_have_ended(db):
    """What was delivered is counted in one position, for lanes that go at the same time: the second take comes back for its own."""
    make(db, 2)
    put(db, *map(str, range(8)))
    for token, _ in all_out(db):
        done(db, token)
    alter(db, parallel=3)
    put(db, "9")
    first, second = db.column("SELECT number FROM queue.subscriptions WHERE ends IS NOT NULL ORDER BY number")
    one, two = db.connect(), db.connect()
    two.rows("BEGIN")
    two.rows("SELECT FROM queue.subscriptions WHERE number = %s FOR NO KEY UPDATE", second)
    one.rows("BEGIN")
    take = "SELECT id, due_ms FROM queue._take_for('s', 'a', 9, NULL, NULL, NULL, 'w')"
    assert one.rows(take) == [(None, 100)]
    two.rows("SET LOCAL lock_timeout = '5 s'")
    assert two.rows(take) == [(None, 100)]
    one.rows("COMMIT")
    assert two.rows(take)[0][0] == 9
    two.rows("COMMIT")
    assert db.column("SELECT number FROM queue.subscriptions WHERE number IN (%s, %s)", first, second) == []
    assert db.value("SELECT sum(delivered) FROM queue.positions") == 9


def test_lanes_that_go_while_they_are_looked_for(db):
    """A take that has read the subscription before finds none."""
    make(db, 2)
    was = db.value("SELECT u::text FROM queue.subscriptions AS u WHERE lane = 0")
    db.rows("SELECT queue.unsubscribe('a', 's')")
    assert db.row("SELECT numbers, outs FROM queue._free_lanes(%s::text::queue.subscriptions)", was) == (None, None)


def test_what_is_shown(db):
    make(db, 2)
    make(db, 1, sub="one")
    put(db, *map(str, range(10)))
    token, payloads = take(db, lim=2)
    rows = seen(db, "lane, parallel, pending, delivery, events, worker, delivered")
    assert sorted(rows) == sorted([(r[0], 2, 3, token.rsplit("-", 1)[0], 2, "w", 2) if r[3] else (r[0], 2, 5, None, None, None, 0) for r in rows])
    assert len([r for r in rows if r[3]]) == 1 and seen(db, "lane, parallel, pending", "one") == [(1, 1, 10)]
    gauges = "SELECT subscription, events, \"out\", attempt, total, retries, lost FROM queue._gauges(100) WHERE subscription IS NOT NULL"
    assert db.rows(gauges) == [("a", 8, 2, 1, 2, 0, 0), ("one", 10, 0, 0, 0, 0, 0)]
    assert db.column("SELECT name FROM queue.health() WHERE about = 'subscription' ORDER BY name") == ["s/a", "s/one"]
    assert "8 events are to come" in db.value("SELECT value FROM queue.health() WHERE name = 's/a'")
    take(db, lim=1)
    assert len(db.rows("SELECT FROM queue.workers('s')")) == 2
    alter(db, parallel=3)
    assert sorted((g[0], g[1]) for g in db.rows(gauges)) == [("a", 7), ("one", 10)]
    assert seen(db, "parallel, lane") == [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]


@pytest.mark.parametrize("kind", ["jsonb", "text", "bytea"])
def test_payloads_and_peek(db, kind):
    """Of each type; PEEK of a delivery has what is of its lane."""
    db.rows("SELECT queue.create('s', false, '{kind,payload}', %s)", ["stream", kind])
    make(db, 2)
    suffix = "" if kind == "jsonb" else "_" + kind
    for i in range(8):
        db.rows("SELECT queue.push('s', '%d'%s)" % (i, "::bytea" if kind == "bytea" else ""))
    seen = []
    for _ in range(2):
        rows = db.rows("SELECT id, token, payload::text FROM queue.take_for%s('s', 'a')" % suffix)
        seen += rows
        assert db.rows("SELECT id, payload::text FROM queue.peek%s(%%s)" % suffix, rows[0][1]) == [(i, p) for i, _, p in rows]
        db.rows("SELECT queue.fail(%s, 'bad', '0', events => %s::int8[])", rows[0][1], [rows[0][0]])
    assert sorted(r[0] for r in seen) == list(range(1, 9))
    assert len(db.rows("SELECT FROM queue.peek_for%s('s', 'a')" % suffix)) == 2
    alter(db, parallel=1)
    assert len(db.rows("SELECT FROM queue.take_for%s('s', 'a')" % suffix)) == 1


def test_lag(db):
    """In each lane what is old enough, up to its first event that is not; the first of all lanes that will be is waited for."""
    make(db, 2)
    put(db, *map(str, range(1, 9)))
    db.connect("postgres").rows("UPDATE %s SET pushed_at = pushed_at - interval '2 h' WHERE id <= 5" % log(db))
    got = []
    for _ in range(2):
        rows = db.rows("SELECT id, token FROM queue.take_for('s', 'a', lag => '1 h')")
        got += [r[0] for r in rows]
        done(db, rows[0][1])
    assert sorted(got) == [1, 2, 3, 4, 5]
    (row,) = db.rows("SELECT id, due_ms FROM queue._take_for('s', 'a', 9, NULL, NULL, NULL, 'w', '1 h')")
    assert row[0] is None and 3500000 < row[1] <= 3600000
    assert sorted(drain(db)) == ["6", "7", "8"]


def test_orphans(db):
    """Of a proxy that is gone all lanes come again."""
    make(db, 3)
    put(db, *map(str, range(9)))
    db.rows("SELECT set_config('qbouncer.proxy', '4712', false)")
    first = all_out(db)
    db.rows("SELECT set_config('qbouncer.proxy', '4711', false)")
    assert len(first) == 3
    assert set(db.column("SELECT * FROM queue._orphans('{4711}', '{}')")) == {"s"}
    again = all_out(db)
    assert sorted(p for _, p in again) == sorted(p for _, p in first)


def test_kept_until_every_lane_has_it(db):
    from test_retain import later, turns
    db.rows("SELECT queue.create('s', false, '{kind,retain}', '{stream,0}')")
    make(db, 3)
    put(db, *map(str, range(9)))
    later(db)
    assert turns(db) == ["moved"]
    out = all_out(db)
    for token, _ in out:
        assert turns(db) == []
        done(db, token)
    drain(db)
    assert turns(db) == ["emptied"]


def test_lanes_without_events_keep_nothing(db):
    from test_retain import later, turns
    db.rows("SELECT queue.create('s', false, '{kind,retain}', '{stream,0}')")
    make(db, 4)
    put(db, "a1", "a2", "a3")
    later(db)
    assert turns(db) == ["moved"]
    assert drain(db) == ["a1", "a2", "a3"]
    assert turns(db) == ["emptied"]


def test_what_is_lost_is_of_all_lanes(db):
    from test_retain import later, turns
    db.rows("SELECT queue.create('s', false, '{kind,retain_max}', '{stream,3 hours}')")
    make(db, 4)
    put(db, "a1", "a2", "b1", "c1", "d1")
    later(db)
    assert turns(db) == ["moved"]
    (token, _) = take(db)
    done(db, token)
    later(db)
    assert turns(db) == ["emptied"]
    assert db.value("SELECT count(*) FROM queue.subscriptions WHERE lost_at IS NOT NULL") == 4
    for _ in range(5):
        db.fails("QB005", "SELECT queue.take_for('s', 'a')")
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    put(db, "a3")
    assert drain(db) == ["a3"]


def test_a_lane_that_has_nothing_there_loses_nothing(db):
    """retain_max removes what was taken; the other lanes have not looked, and have nothing there."""
    from test_retain import later, turns
    db.rows("SELECT queue.create('s', false, '{kind,retain_max}', '{stream,3 hours}')")
    make(db, 4)
    put(db, "a1", "a2")
    later(db)
    assert turns(db) == ["moved"]
    token, payloads = take(db)
    assert payloads == ["a1", "a2"]
    done(db, token)
    later(db)
    assert turns(db) == ["emptied"]
    assert db.value("SELECT count(*) FROM queue.subscriptions WHERE lost_at IS NOT NULL") == 0
    put(db, "a3")
    assert drain(db) == ["a3"]
