"""What there is to see of streams: LIST, STATS, SUBSCRIPTIONS, and the position, which SEEK takes."""

import pytest

from test_stream import done, drain, make, put, take


def seen(db, sub="a", columns="pending, delivered, rate, position"):
    return db.row('SELECT %s FROM queue.subscriptions(\'s\') WHERE subscription = %%s' % columns.replace("position", '"position"'), sub)


def test_list(db):
    db.create("q")
    db.rows("SELECT queue.create('s', false, '{kind,retain,retain_max}', '{stream,1 day,50 GB}')")
    db.rows("SELECT queue.create('t', false, '{kind,retain_max}', '{stream,2 days}')")
    assert db.rows("SELECT queue, kind, payload, owner, retain, retain_max, lease IS NULL, paused, number FROM queue.list()") == [
        ("q", "queue", "jsonb", "app", None, None, False, False, 1),
        ("s", "stream", "jsonb", "app", "1 day", "50 GB", True, None, 2),
        ("t", "stream", "jsonb", "app", None, "2 days", True, None, 3)]
    assert db.connect("bob").column("SELECT queue FROM queue.list()") == ["q", "s", "t"]


def test_stats(db):
    make(db)
    row = "SELECT queue, ready, total, newest - oldest, bytes > 0, kind, partitions, pushed_rate, number FROM queue.stats(%s)"
    assert db.row(row, "s") == ("s", None, 0, None, True, "stream", 0, 0, 1)
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 120)")
    assert db.row("SELECT total, partitions, pushed_rate, oldest < newest, newest <= clock_timestamp() FROM queue.stats('s')") == (
        120, 1, 2.0, True, True)
    db.create("q")
    assert db.rows("SELECT queue, kind, total, ready FROM queue.stats()") == [("q", "queue", 0, 0), ("s", "stream", 120, None)]
    bob = db.connect("bob")
    assert bob.rows("SELECT * FROM queue.stats()") == []
    bob.fails("42501", "SELECT * FROM queue.stats('s')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    assert bob.column("SELECT total FROM queue.stats()") == [120]


def test_a_role_without_rights(db):
    """It sees that there are streams and subscriptions, and nothing of what is in them; SUBSCRIBE shows the stream."""
    make(db, "a")
    put(db, 1, 2)
    bob = db.connect("bob")
    row = "SELECT stream, subscription, owner, pending, \"position\", delivered, oldest IS NULL, last_id, lost_id FROM queue.subscriptions()"
    assert bob.rows(row) == [("s", "a", "app", None, None, None, True, None, None)]
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    assert bob.rows(row) == [("s", "a", "app", None, None, None, False, 2, None)]
    assert [r for r in bob.rows("SELECT about FROM queue.health()") if r[0] in ("stream", "subscription")]


def test_workers(db):
    make(db, "a")
    put(db, 1)
    token, _ = take(db)
    row = "SELECT queue, job, worker, attempt, lease_until > taken_at FROM queue.workers(%s)"
    assert db.rows(row, "s") == [("s", token.rsplit("-", 1)[0], "w", 1, True)] == db.rows(row, None)
    bob = db.connect("bob")
    assert bob.rows(row, None) == [] and bob.fails("42501", row, "s").message_hint
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    assert bob.rows(row, "s") == []
    done(db, token)
    assert db.rows(row, "s") == []


def test_many_events_are_counted_by_their_ids(db):
    make(db)
    root = db.connect("postgres")
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 30)")
    root.rows("UPDATE queue.streams SET current = 1")
    db.connect().rows("SELECT queue.push('s', '1') FROM generate_series(1, 30)")
    root.rows("DELETE FROM queue.e1_1 WHERE id = 45")
    assert root.row("SELECT events, partitions FROM queue._stream_state(1, 100)") == (59, 2)
    assert root.row("SELECT events FROM queue._stream_state(1, 59)") == (60,)
    assert root.row("SELECT rate > 10 FROM queue._stream_state(1, 20)") == (True,)


def test_rate_and_delivered(db):
    make(db, "a")
    assert seen(db, columns="delivered, rate") == (0, 0)
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 130)")
    token, _ = take(db, lim=100)
    done(db, token)
    assert len(drain(db, lim=20)) == 30
    delivered, rate = seen(db, columns="delivered, rate")
    assert delivered == 130 and 1.5 < rate <= 130 / 60 + 0.001
    root = db.connect("postgres")
    root.rows("UPDATE queue.positions SET at = at - interval '10 min'")
    assert seen(db, columns="rate") == (0,)
    assert drain(db) == []
    assert seen(db, columns="delivered") == (130,)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert len(drain(db)) == 130 and seen(db, columns="delivered") == (260,)


def test_pending_in_every_place(db):
    """Counted as it comes: from each place, with a slow transaction, within a window, beside what is out."""
    make(db, "a")
    put(db, *range(10))
    db.rows("SELECT queue.subscribe('old', 's', 'beginning')")
    db.rows("SELECT queue.subscribe('id', 's', '4')")
    for name, start in (("now", "now"), ("future", "2100-01-01")):
        db.rows("SELECT queue.subscribe(%s, 's', %s)", name, start)
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "slow")
    put(db, *range(10, 15))
    want = {"a": 15, "old": 15, "id": 12, "now": 5, "future": 0}

    def pending():
        return dict(db.rows("SELECT subscription, pending FROM queue.subscriptions('s')"))
    assert pending() == want
    for name in want:
        token, payloads = take(db, name, lim=3)
        assert len(payloads) == min(3, want[name])
        want[name] -= len(payloads)
    assert pending() == want
    slow.rows("COMMIT")
    for name in want:
        want[name] += name != "future"
    assert pending() == want
    for name, n in want.items():
        db.rows("UPDATE queue.deliveries SET lease_until = now() - interval '1 s'")
        again = len(take(db, name)[1])
        assert again == 3 or name == "future"
        for token in db.column("SELECT d.sub || '-d' || d.id || '-' || d.token FROM queue.deliveries AS d"
                               " JOIN queue.subscriptions AS u ON u.number = d.sub WHERE u.name = %s", name):
            done(db, token)
        assert len(drain(db, name, lim=2)) == n
    assert set(pending().values()) == {0}


def test_pending_looks_at_no_more_than_it_counts(db):
    """Of a subscription in the middle of a long window neither what it has read nor all that is to come is looked at."""
    make(db, "a", start="beginning")
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 20000)")
    token, _ = take(db, lim=9000)
    done(db, token)
    db.rows("SELECT queue.push('s', '1') FROM generate_series(1, 10000)")
    db.connect("postgres").rows("ANALYZE queue.e1_0")
    root = db.connect("postgres")
    root.rows("BEGIN")
    look = "SELECT n FROM queue.positions AS p, LATERAL queue._pending(1, p, NULL, NULL, %s) ORDER BY p.seq DESC LIMIT 1"
    assert root.value(look, 500) == 500
    assert root.value("SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
                      " WHERE schemaname = 'queue' AND relname LIKE 'e1\\_%%'") < 5000
    root.rows("ROLLBACK")
    assert seen(db, columns="pending") == (21000,)


def test_seek_to_a_position(db):
    """Each place that was shown brings the same events again, whatever was out, open or read meanwhile."""
    make(db, "a")
    places, got = [], []
    slow = db.connect()
    for i in range(6):
        if i == 2:
            slow.rows("BEGIN")
            put(slow, "slow")
        put(db, *range(10 * i, 10 * i + 10))
        if i == 4:
            slow.rows("COMMIT")
        for _ in range(2):
            places.append((seen(db, columns="position")[0], len(got)))
            token, payloads = take(db, lim=4)
            got += payloads
            done(db, token)
    places.append((seen(db, columns="position")[0], len(got)))
    got += drain(db)
    assert sorted(map(str, got)) == sorted(map(str, [*range(60), "slow"]))
    assert any(" " in place for place, _ in places)
    for place, before in places:
        db.rows("SELECT queue.seek('a', 's', %s)", place)
        assert seen(db, columns="position, pending") == (place, len(got) - before)
        again = drain(db, lim=7)
        assert sorted(map(str, again)) == sorted(map(str, got[before:])), place
        assert len(again) == len(got) - before
    db.rows("SELECT queue.subscribe('b', 's', %s)", places[1][0])
    assert len(drain(db, "b")) == len(got) - 4


@pytest.mark.parametrize("start", ["5", "2020-01-01 12:34:56.789+00", "2100-01-01"])
def test_a_position_says_what_is_not_its_own(db, start):
    make(db)
    put(db, *range(10))
    db.rows("SELECT queue.subscribe('a', 's', %s)", start)
    (place,) = seen(db, columns="position")
    assert " from " in place
    first = take(db, lim=2)[1]
    middle = seen(db, columns="position")[0]
    db.rows("SELECT queue.seek('a', 's', 'now')")
    assert drain(db) == []
    db.rows("SELECT queue.seek('a', 's', %s)", place)
    want = drain(db)
    assert want[:2] == first and len(want) == {"5": 6, "2100-01-01": 0}.get(start, 10)
    db.rows("SELECT queue.seek('a', 's', %s)", middle)
    assert seen(db, columns="position") == (middle,)
    assert drain(db) == want[2:]


@pytest.mark.parametrize("place", ["1:2", "a:b:", "7:3:", "3:3: 3:3:", "3:3: from", "3:3: from beginning", "3:3: from x",
                                   "3:3: 2:2: 5", "999999999:999999999:", "3:3: 5:999999999: 1", "3:3: 5:9: -1", "3:3: from infinity",
                                   "infinity", "", "99999999999999999999:99999999999999999999:", "3:3:1", None])
def test_no_position(db, place):
    make(db, "a")
    put(db, 1)
    assert db.fails("22023", "SELECT queue.seek('a', 's', %s)", place).message_hint
    assert db.fails("22023", "SELECT queue.subscribe('b', 's', %s)", place or "").message_hint
    assert drain(db) == [1]


GAUGES = "SELECT queue, subscription, ready, events, total, \"out\", attempt, lost, number FROM queue._gauges(%s, %s, %s)"


def test_gauges(db):
    db.create("q")
    make(db, "a", "b")
    put(db, *range(20))
    take(db, lim=5)
    root = db.connect("postgres")
    root.rows("UPDATE queue.subscriptions SET lost_at = now() WHERE name = 'b'")
    rows = [("q", None, 0, None, None, None, None, None, 1), ("s", None, None, 20, 20, None, None, None, 2),
            ("s", "a", None, 15, 5, 5, 1, 0, 3), ("s", "b", None, 20, 0, 0, 0, 1, 4)]
    assert db.rows(GAUGES, 100, None, 0) == rows == root.rows(GAUGES, 100, None, 0)
    assert db.rows(GAUGES, 100, [], 2) == rows[2:]
    assert db.column("SELECT events FROM queue._gauges(10)") == [None, 20, 10, 10]
    assert db.column("SELECT age_ms >= 0 FROM queue._gauges(10)") == [None, True, True, True]
    assert db.column("SELECT number FROM queue._gauges(10, NULL, 0, -1)") == [1]
    bob = db.connect("bob")
    assert bob.rows(GAUGES, 100, None, 0) == [] == root.rows(GAUGES, 100, [], 0)
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob.rows("SELECT queue.subscribe('c', 's')")
    assert bob.column("SELECT subscription FROM queue._gauges(100)") == [None, "c"]
    assert bob.column("SELECT subscription FROM queue._gauges(100, '{}')") == ["c"]


def test_thousands_of_subscriptions(db):
    """Each step of the gauges takes as long as it may; and all of them need few locks."""
    make(db)
    db.rows("SELECT queue.subscribe('s' || n, 's') FROM generate_series(1, 1500) AS n")
    db.rows("SELECT queue.create('t' || n, false, '{kind}', '{stream}') FROM generate_series(1, 40) AS n")
    put(db, 1)
    seen, after, steps = [], 0, 0
    while True:
        rows = db.rows("SELECT number, events FROM queue._gauges(100, NULL, %s, 50)", after)
        if not rows:
            break
        seen += rows
        after = rows[-1][0]
        steps += 1
    assert len(seen) == 1541 and len({n for n, _ in seen}) == 1541
    assert steps > 1
    db.rows("BEGIN")
    assert len(db.rows("SELECT * FROM queue.stats()")) == 41
    assert len(db.rows("SELECT * FROM queue._gauges(100)")) == 1541
    assert db.value("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()") < 100
    db.rows("ROLLBACK")
