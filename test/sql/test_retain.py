"""How long events of a stream are kept: a ring of tables, each emptied whole; nothing goes that somebody has not seen, unless
retain_max says so, and then he is told."""

import pytest

from test_stream import done, drain, make as make_stream, put, take


def make(db, *subs, start="now", **options):
    options = options or {"retain": "0"}
    db.rows("SELECT queue.create('s', false, %s, %s)", ["kind", *options], ["stream", *options.values()])
    for name in subs:
        db.rows("SELECT queue.subscribe(%s, 's', %s)", name, start)
    return db.connect("postgres")


def ring(db):
    """How many events each table has, and which one is written."""
    root = db.connect("postgres")
    k, current = root.row("SELECT number, current FROM queue.streams")
    counts = [root.value("SELECT count(*) FROM queue.e%d_%d" % (k, i)) for i in range(4)]
    root.conn.close()
    return counts, current


def later(db, by="2 hours"):
    """As if so much time had gone by since everything was pushed."""
    root = db.connect("postgres")
    k = root.value("SELECT number FROM queue.streams")
    for i in range(4):
        root.rows("UPDATE queue.e%d_%d SET pushed_at = pushed_at - %%s::interval" % (k, i), by)
    root.rows("UPDATE queue.streams SET gone_at = gone_at - %s::interval", by)
    root.conn.close()


def turn(db):
    """One step of the maintenance; what it did."""
    return db.row("INSERT INTO queue._ring (what, number) SELECT 'turn', number FROM queue.streams RETURNING did, lost")


def turns(db):
    did = []
    while (one := turn(db)[0]) in ("moved", "emptied"):
        did.append(one)
        assert len(did) < 20
    return did


def test_thin(db):
    make(db, "a")
    put(db, 1, 2, 3)
    assert turns(db) == [], "a small table is written for an hour"
    later(db)
    assert turns(db) == ["moved"] and ring(db) == ([3, 0, 0, 0], 1)
    put(db, 4)
    assert turns(db) == [], "somebody needs them"
    assert drain(db) == [1, 2, 3, 4]
    assert turns(db) == ["emptied"] and ring(db) == ([0, 1, 0, 0], 1)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert drain(db) == [4]


def test_for_ever(db):
    make_stream(db, "a")
    put(db, 1)
    drain(db)
    later(db, "100 years")
    assert turns(db) == []
    assert db.row("SELECT deleted, next, denied, lost FROM queue._maintain(0, 100, 100)") == (0, None, 0, None)


def test_at_least_so_long(db):
    make(db, "a", retain="7 days")
    for day in range(20):
        put(db, day)
        drain(db)
        later(db, "1 day")
        turns(db)
        db.rows("SELECT queue.seek('a', 's', 'beginning')")
        kept = drain(db)
        assert kept == list(range(day - len(kept) + 1, day + 1))
        assert min(6, day + 1) <= len(kept) <= 11       # those of seven days may go
    counts, _ = ring(db)
    assert 0 in counts


def test_who_is_slow_is_waited_for(db):
    make(db, "a", "slow")
    for i in range(8):
        put(db, i)
        later(db)
        turns(db)
        assert drain(db) == [i]
    assert sum(ring(db)[0]) == 8
    assert take(db, "slow", lim=8)[1] == list(range(8))
    assert turns(db) == [], "it is out"
    db.rows("SELECT queue.unsubscribe('slow', 's')")
    assert turns(db).count("emptied") == 4
    assert sum(ring(db)[0]) == 0


def test_a_delivery_that_fails_comes_again(db):
    make(db, "a")
    put(db, 1, 2, 3)
    token, _ = take(db, lim=2)
    later(db)
    turns(db)
    assert drain(db) == []
    db.rows("SELECT queue.fail(%s, NULL, '0 s')", token)
    assert turns(db) == []
    token, got = take(db)
    assert got == [1, 2]
    done(db, token)
    assert drain(db) == [3]
    assert turns(db) == ["emptied"]


@pytest.mark.parametrize("how", ["writes", "prepared", "reads", "subscribes", "seeks", "takes"])
def test_refused_while_somebody_is_at_it(db, how):
    make(db, "a", "b")
    put(db, 1)
    later(db)
    other = db.connect()
    other.rows("BEGIN")
    if how in ("writes", "prepared"):
        other.push("s", "2")         # as the proxy does it: what told of it could not be prepared
    elif how == "reads":
        other.rows("SELECT count(*) FROM queue.e1_0")
    elif how == "subscribes":
        other.rows("SELECT queue.subscribe('c', 's', 'beginning')")
    elif how == "seeks":
        other.rows("SELECT queue.seek('b', 's', 'beginning')")
    else:
        take(other, "b")
    if how == "prepared":
        other.rows("PREPARE TRANSACTION 'p'")
    assert turn(db) == ("moved", None)
    drain(db)
    for _ in range(3):
        drain(db, "b") if how not in ("takes", "seeks") else None
        assert turn(db) == (None if how in ("takes", "seeks") else "refused", None)
    other.rows({"prepared": "COMMIT PREPARED 'p'"}.get(how, "COMMIT"))
    if how in ("writes", "prepared"):
        assert turns(db) == [] and drain(db) == drain(db, "b") == [2]
    elif how == "subscribes":
        assert turns(db) == [] and drain(db, "c") == [1]
    elif how == "takes":
        assert turns(db) == []
        done(db, db.value("SELECT sub || '-d' || id || '-' || token FROM queue.deliveries"))
    elif how == "seeks":
        assert turns(db) == [] and drain(db, "b") == [1]
    later(db)
    assert turns(db) == ["emptied"]


def test_who_writes_where_nobody_does_any_more(db):
    """A snapshot that is older than the turn: what it pushes stands in a table that was emptied, and is read."""
    make(db, "a")
    put(db, 1)
    later(db)
    old = db.connect()
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT 1")
    assert turn(db) == ("moved", None)
    assert drain(db) == [1]
    assert turn(db) == ("emptied", None), "it has written nothing"
    put(old, 2)
    put(db, 3)
    assert ring(db)[0] == [0, 1, 0, 0]
    assert drain(db) == [3]
    old.rows("COMMIT")
    assert ring(db)[0] == [1, 1, 0, 0]
    later(db)
    assert turns(db) == ["moved", "emptied"] and ring(db)[0] == [1, 0, 0, 0]
    assert drain(db) == [2]


def test_a_held_snapshot_keeps_nothing(db):
    make(db, "a")
    old = db.connect()
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT pg_current_xact_id()")
    for i in range(10):
        put(db, i)
        later(db)
        turns(db)
        assert drain(db) == [i]
    assert turns(db)[-1:] in ([], ["emptied"]) and sum(ring(db)[0]) <= 1
    old.rows("COMMIT")


def test_an_open_transaction_is_not_forgotten(db):
    """Its xid is older than all that was seen, and it has written into the table that is emptied next."""
    make(db, "a")
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "slow")
    put(db, 1)
    later(db)
    turns(db)
    put(db, 2)
    assert drain(db) == [1, 2]
    assert turn(db)[0] == "refused"
    slow.rows("COMMIT")
    later(db)
    assert turns(db) == ["moved", "emptied"] and ring(db)[0] == [2, 0, 0, 0]
    assert drain(db) == ["slow"]
    assert turns(db) == ["emptied"]


def test_what_was_rolled_back_goes(db):
    make(db, "a")
    db.rows("BEGIN")
    db.rows("SELECT queue.push('s', to_jsonb(repeat('x', 500))) FROM generate_series(1, 3000)")
    db.rows("ROLLBACK")
    assert turns(db) == ["moved", "emptied"]


def test_the_most(db):
    """Who is slower than retain_max is told, until he says where to go on."""
    make(db, "a", "quick", retain_max="3 hours")
    put(db, 1)
    drain(db, "quick")
    later(db)
    assert turns(db) == ["moved"]
    put(db, 2)
    drain(db, "quick")
    later(db)
    assert turn(db) == ("emptied", "s/a")
    assert any("loses events" in n for n in db.notices)
    assert drain(db, "quick") == []
    for _ in range(2):
        lost = db.fails("QB005", "SELECT queue.take_for('s', 'a')")
        assert "SEEK a ON s TO BEGINNING" in lost.message_hint and "id 1 " in lost.message_detail
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert drain(db) == [2]
    assert take(db) == (None, [])


def test_the_most_tells_only_who_loses(db):
    make(db, "seen", "out", "window", "never", "later", retain_max="3 hours")
    db.rows("SELECT queue.subscribe('from_id', 's', '4')")
    db.rows("SELECT queue.subscribe('to_come', 's', '2100-01-01')")
    put(db, 1, 2, 3)
    drain(db, "seen")
    token, _ = take(db, "out")                          # nothing is to come, but this is not done
    window, _ = take(db, "window", lim=2)
    done(db, window)
    done(db, take(db, "later")[0])
    later(db, "1 hour")
    assert turns(db) == ["moved"]
    later(db)
    assert turn(db) == ("emptied", "s/out, s/window, s/never")
    assert done(db, token) == ["s"], "who has them can still end it"
    db.fails("QB005", "SELECT queue.take_for('s', 'out')")
    for sub in ("seen", "later", "from_id", "to_come"):
        assert drain(db, sub) == []


def test_the_most_as_a_size(db):
    root = make(db, "a", retain="1 day", retain_max="4 MB")
    assert root.row("SELECT retain_max, retain_bytes FROM queue.streams") == (None, 4194304)
    lost = []
    for _ in range(60):
        db.rows("SELECT queue.push('s', to_jsonb(repeat(md5(random()::text), 30))) FROM generate_series(1, 300)")
        for _ in range(5):
            did = turn(db)
            lost += [did[1]] if did[1] else []
    assert lost == ["s/a"]
    assert db.value("SELECT bytes FROM queue.subscriptions('s')") < 6 * 1024 * 1024
    db.fails("QB005", "SELECT queue.take_for('s', 'a')")


def test_the_most_waits_for_nobody(db):
    make(db, "a", retain_max="3 hours")
    put(db, 1)
    later(db, "1 hour")
    turns(db)
    later(db)
    other = db.connect()
    other.rows("BEGIN")
    other.rows("SELECT queue.take_for('s', 'a')")
    assert turn(db) == ("refused", None)
    other.rows("ROLLBACK")
    sub = db.connect()
    sub.rows("BEGIN")
    sub.rows("SELECT FROM queue.subscriptions FOR NO KEY UPDATE")
    assert turn(db) == ("refused", None)
    sub.rows("ROLLBACK")
    assert turn(db) == ("emptied", "s/a")


def test_who_makes_a_stream_is_not_waited_for(db):
    make(db)
    put(db, 1)
    later(db)
    other = db.connect()
    db.rows("SET lock_timeout = '5 s'")
    with other.conn.transaction(force_rollback=True):
        other.rows("SELECT queue.create('t', false, '{kind}', '{stream}')")
        assert turn(db) == ("moved", None)


def test_not_in_an_old_snapshot(db):
    """There those who need a table are not seen: what maintenance does not do nobody does by hand."""
    make(db)
    put(db, 1)
    later(db)
    with db.conn.transaction():
        db.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert turn(db) == (None, None)
    assert turn(db) == ("moved", None)


def test_a_place_that_is_gone(db):
    make(db, "a")
    put(db, 1, 2)
    db.rows("SELECT now()")
    later(db)
    drain(db)
    assert turns(db) == ["moved", "emptied"]
    put(db, 3)
    for place, told in (("1", True), ("2", True), ("3", False), ("2001-01-01", True), ("beginning", False), ("now", False)):
        db.notices.clear()
        db.rows("SELECT queue.seek('a', 's', %s)", place)
        assert any("have been removed" in n for n in db.notices) == told
        db.notices.clear()
        db.rows("SELECT queue.subscribe(%s, 's', %s)", "b" + place, place)
        assert any("have been removed" in n for n in db.notices) == told


def test_maintain(db):
    """What the proxy calls: again soon, as long as there is something to do."""
    make(db, "a")
    put(db, 1)
    drain(db)
    later(db)
    step = "SELECT deleted, next, denied, lost FROM queue._maintain_used('{}', %s, 100, 100)"
    found, after = [], 0
    while after is not None:
        _, after, denied, lost = db.row(step, after)
        assert (denied, lost) == (0, None)
        found.append(ring(db))
        assert len(found) < 9
    assert found == [([1, 0, 0, 0], 1), ([0, 0, 0, 0], 1), ([0, 0, 0, 0], 1)]
    other = db.connect()
    put(db, 2)
    later(db)
    other.rows("BEGIN")
    put(other, 3)
    drain(db)
    after, steps = 0, 0
    while after is not None:
        after = db.row(step, after)[1]
        steps += 1
        assert steps < 60, "it comes to an end"
    assert steps > 10
    assert db.row("SELECT deleted, next FROM queue._maintain_used('{}', 0, 100, 100)")[1] is not None
    other.rows("ROLLBACK")
    assert db.value("SELECT queue.maintain()") == 0
    assert ring(db)[0] == [0, 0, 0, 0]


def test_rights(db):
    make(db, "a", retain_max="3 hours")
    put(db, 1)
    later(db, "1 year")
    bob = db.connect("bob")
    db.rows("SELECT queue.grant('s', '{all}', '{bob}')")
    bob.fails("42501", "INSERT INTO queue._ring (what, number) VALUES ('turn', 1)")
    bob.fails("42501", "INSERT INTO queue._ring (what, number, retain) VALUES ('options', 1, '0')")
    bob.fails("42501", "SELECT queue.alter('s', '{retain}', '{0}')")
    bob.fails("42501", "TRUNCATE queue.e1_0")
    assert bob.value("SELECT queue.maintain()") == 0
    assert ring(db) == ([1, 0, 0, 0], 0)
    bob.fails("42501", "SELECT * FROM queue._turn(1)")


def test_alter(db):
    root = make(db, "a", retain="7 days", retain_max="30 days")
    row = "SELECT retain::text, retain_max::text, retain_bytes FROM queue.streams"
    assert root.row(row) == ("7 days", "30 days", None)
    db.rows("SELECT queue.alter('s', '{retain_max}', '{10 GB}')")
    assert root.row(row) == ("7 days", None, 10 * 1024 ** 3)
    db.rows("SELECT queue.alter('s', '{}', '{}', '{retain, retain_max}')")
    assert root.row(row) == (None, None, None)
    db.rows("SELECT queue.alter('s', '{retain}', '{1 day}')")
    assert db.fails("22023", "SELECT queue.alter('s', '{retain_max}', '{1 hour}')").message_hint
    for name, value, state in (("retain", "-1 s", "22023"), ("retain", "soon", "22023"), ("retain_max", "much", "22023"),
                               ("retain_max", "0", "22023"), ("retain_max", "1 kB", "22023"), ("lease", "1 min", "0A000"),
                               ("payload", "jsonb", "0A000"), ("nothing", "1", "22023")):
        db.fails(state, "SELECT queue.alter('s', %s, %s)", [name], [value])
    assert root.row(row) == ("1 day", None, None)
    db.rows("SELECT queue.drop('s')")
    db.fails("22023", "SELECT queue.create('s', false, '{kind, retain}', '{stream, never}')")


def test_another_era_is_left_alone(db):
    root = make(db, "a")
    put(db, 1)
    drain(db)
    later(db)
    root.rows("UPDATE queue.streams SET system = 1")
    assert turns(db) == []
    assert ring(db) == ([1, 0, 0, 0], 0)


def health(db, about):
    return db.rows("SELECT name, ok, value, hint FROM queue.health('s') WHERE about = %s ORDER BY name", about)


def test_health(db):
    make(db, "a", "b", retain="1 hour", retain_max="40 hours")
    ((_, ok, value, hint),) = health(db, "stream")
    assert ok and "empty" in value and hint is None
    put(db, 1)
    drain(db, "b")
    later(db, "5 hours")
    turns(db)
    (a, b) = health(db, "subscription")
    assert not a[1] and "1 events are to come, the first is 5 h" in a[2] and "UNSUBSCRIBE a FROM s" in a[3]
    assert b[1] and "nothing is to come" in b[2] and b[3] is None
    assert health(db, "stream")[0][1]
    db.rows("SELECT queue.alter('s', '{}', '{}', '{retain_max}')")
    ((_, ok, value, hint),) = health(db, "stream")
    assert not ok and "the oldest event is 5 h" in value and "kept for subscription a" in hint
    db.rows("SELECT queue.alter('s', '{retain_max}', '{2 hours}')")
    assert turns(db) == ["emptied"]
    a = health(db, "subscription")[0]
    assert not a[1] and "SEEK a ON s TO BEGINNING" in a[3]
    assert db.row("SELECT lost_at IS NOT NULL FROM queue.subscriptions('s') WHERE subscription = 'a'") == (True,)
    assert db.value("SELECT count(*) FROM queue.health() WHERE about IN ('stream', 'subscription')") == 3
    bob = db.connect("bob")
    assert bob.value("SELECT count(*) FROM queue.health() WHERE about IN ('stream', 'subscription')") == 0


def test_who_holds_retention_back_is_told(db):
    """By a delivery that is out for long, too, of which somebody extends the lease again and again."""
    root = make(db, "a", retain="1 hour")
    put(db, 1)
    take(db)
    assert health(db, "subscription")[0][1]
    later(db, "5 hours")
    root.rows("UPDATE queue.deliveries SET taken_at = taken_at - interval '5 hours'")
    ((_, ok, _, hint),) = health(db, "subscription")
    assert not ok and "keeps what retain would remove, for 5 h" in hint and "UNSUBSCRIBE a FROM s" in hint
