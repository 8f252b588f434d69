"""Events of a stream that failed by themselves: FAIL ... EVENT, retries, dead events, and deliveries that fail too often."""

import json
import threading

import pytest


def make(db, *names, **options):
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    for name in names or ("a",):
        db.rows("SELECT queue.subscribe(%s, 's', NULL, %s, %s)", name, list(options), [str(v) for v in options.values()])
    return db


def put(session, *payloads):
    return [session.value("SELECT queue.push('s', %s)", json.dumps(p)) for p in payloads]


def take(session, sub="a", lim=100, lease=None):
    """The token, and of each event the payload and the attempt."""
    rows = session.rows("SELECT token, payload::jsonb, attempt FROM queue._take_for('s', %s, %s, NULL, NULL, %s::interval, 'w')"
                        " WHERE id IS NOT NULL ORDER BY id", sub, lim, lease)
    assert len({r[0] for r in rows}) <= 1
    return (rows[0][0] if rows else None), [(r[1], r[2]) for r in rows]


def done(session, token):
    assert session.column("SELECT * FROM queue._done(ARRAY[%s], false)", token) == ["s"]


def fail(session, token, *ids, error="bad", after=None, final=False):
    session.rows("SELECT queue.fail(%s, %s, %s::interval, %s, %s::int8[])", token, error, after, final, list(ids) or None)


def kept(session):
    return session.rows("SELECT id, dead, attempt, error FROM queue.retries ORDER BY id")


def over(session):
    while not session.value("SELECT bool_and(lease_until < clock_timestamp()) FROM queue.deliveries"):
        pass


def test_thin(db):
    make(db)
    assert put(db, *"uvwxy") == [1, 2, 3, 4, 5]
    token, events = take(db)
    assert events == [(p, 1) for p in "uvwxy"]
    fail(db, token, 2, 4, after="0")
    db.fails("QB001", "SELECT queue.done(%s)", token)       # the others are done
    put(db, "z")
    token, events = take(db)
    assert events == [("v", 2), ("x", 2)] and token.split("-")[1] == "d2"
    fail(db, token, 4, after="0")
    token, events = take(db)
    assert events == [("x", 3)]
    done(db, token)
    token, events = take(db)
    assert events == [("z", 1)]
    done(db, token)
    assert take(db) == (None, []) and kept(db) == []


def test_not_before_its_time(db):
    """Later events are not held up, and a TAKE that waits is told when the retry is due."""
    make(db)
    put(db, 1, 2)
    token, _ = take(db)
    fail(db, token, 1, after="1 hour")
    put(db, 3)
    token, events = take(db)
    assert events == [(3, 1)]
    done(db, token)
    (due,) = db.column("SELECT due_ms FROM queue._take_for('s', 'a', 100, NULL, NULL, NULL, 'w')")
    assert 3590000 < due <= 3600000
    put(db, 4)
    (due,) = db.column("SELECT due_ms FROM queue._take_for('s', 'a', 100, 50, '2 hours', NULL, 'w')")
    assert 3590000 < due <= 3600000


def test_rolled_back(db):
    make(db)
    put(db, 1, 2)
    token, _ = take(db)
    db.rows("BEGIN")
    db.rows("SAVEPOINT a")
    fail(db, token, 1, after="0")
    other = db.connect()
    assert take(other) == (None, [])
    db.rows("ROLLBACK TO a")
    fail(db, token, 2, final=True)
    db.rows("ROLLBACK")
    assert kept(db) == []
    done(db, token)
    assert take(db) == (None, [])


def test_in_the_transaction_of_the_work(db):
    """Its lease may end meanwhile: nobody else gets the delivery, as of a DONE."""
    make(db)
    put(db, 1, 2)
    token, _ = take(db, lease="300 ms")
    db.rows("BEGIN")
    fail(db, token, 2, after="0")
    other = db.connect()
    over(other)
    assert take(other) == (None, [])
    db.rows("COMMIT")
    assert take(other)[1] == [(2, 2)]


def test_strange_ids(db):
    make(db)
    put(db, 1, 2, 3)
    token, _ = take(db, lim=2)
    for ids in ("{3}", "{1,3}", "{99}", "{NULL}", "{}", "{-1}"):
        db.fails("22023", "SELECT queue.fail(%s, events => %s)", token, ids)
    for text in ("x", "", "9" * 30, None):
        db.fails("22023", "SELECT queue._fail(ARRAY[%s], NULL, NULL, false, false, ARRAY[%s])", token, text)
    db.fails("22023", "SELECT queue.fail(%s, NULL, '1 s', true, '{1}')", token)
    db.fails("QB001", "SELECT queue.fail(%s, events => '{1}')", token[:-1] + ("0" if token[-1] != "0" else "1"))
    fail(db, token, 1, 1, final=True)
    assert kept(db) == [(1, True, 1, "bad")]
    db.rows("SELECT queue.create('q')")
    db.rows("SELECT queue.push('q', '1')")
    job = db.value("SELECT token FROM queue.take('q')")
    db.fails("0A000", "SELECT queue.fail(%s, events => '{1}')", job)


def test_dead_and_redriven(db):
    make(db, max_attempts=2, retry="fixed 1ms")
    put(db, 1, 2, 3)
    token, _ = take(db)
    fail(db, token, 2)
    while True:
        token, events = take(db)
        if token:
            break
    assert events == [(2, 2)]
    fail(db, token, 2, error="worse")
    assert kept(db) == [(2, True, 2, "worse")] and take(db) == (None, [])
    assert db.rows("SELECT id, state, attempt, payload, error, ended_at IS NOT NULL FROM queue.peek_for('s', 'a', which => 'dead')") == [
        (2, "dead", 2, 2, "worse", True)]
    assert db.column("SELECT id FROM queue.peek_for('s', 'a', which => 'later')") == []
    assert db.value("SELECT queue.redrive_for('s', 'a')") == 1
    token, events = take(db)
    assert events == [(2, 1)]
    assert db.column("SELECT state FROM queue.peek_for('s', 'a')") == ["leased"]
    assert db.value("SELECT queue.redrive_for('s', 'a')") == 0
    fail(db, token, 2, after="1 hour")
    assert db.column("SELECT state FROM queue.peek_for('s', 'a')") == ["later"]
    assert db.value("SELECT queue.redrive_for('s', 'a', which => 'later')") == 1
    token, events = take(db)
    assert events == [(2, 2)]
    done(db, token)
    assert kept(db) == []


def test_seen(db):
    make(db)
    put(db, 1, 2, 3)
    row = "SELECT retries, dead FROM queue.subscriptions('s')"
    gauge = "SELECT retries, given_up FROM queue._gauges(100) WHERE subscription = 'a'"
    assert db.row(row) == db.row(gauge) == (0, 0)
    token, _ = take(db)
    fail(db, token, 1, 2, after="0")
    assert db.row(row) == db.row(gauge) == (2, 0)
    token, _ = take(db, lim=1)
    assert db.row(row) == db.row(gauge) == (1, 0)
    fail(db, token, final=True)
    assert db.row(row) == db.row(gauge) == (1, 1)
    bob = db.connect("bob")
    assert bob.row(row) == (None, None)


def test_final(db):
    """Of all, too."""
    make(db)
    put(db, 1, 2)
    token, _ = take(db)
    fail(db, token, final=True)
    assert kept(db) == [(1, True, 1, "bad"), (2, True, 1, "bad")]
    assert take(db) == (None, [])


def test_retry_none(db):
    make(db, retry="none")
    put(db, 1)
    token, _ = take(db)
    fail(db, token, 1)
    assert kept(db)[0][1]


def test_retry_none_of_all(db):
    """The first failure counts: it is cut at once."""
    make(db, retry="none")
    put(db, *range(1, 6))
    sizes, seen = cut(db, 2, after=None)
    assert sizes == [5, 3, 2, 1] and seen == [1, 3, 4, 5]
    assert [r[:2] for r in kept(db)] == [(2, True)]


def test_without_the_right(db):
    """SUBSCRIBE was taken away: copies are not shown either."""
    make(db)
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob = db.connect("bob")
    bob.rows("SELECT queue.subscribe('b', 's')")
    put(db, 1, 2)
    fail(bob, take(bob, "b")[0], 1, after="0")
    db.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    bob.fails("42501", "SELECT queue.take_for('s', 'b')")
    bob.fails("42501", "SELECT queue.peek_for('s', 'b')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    assert take(bob, "b")[1] == [(1, 2)]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_redrive_beside_a_take(db, isolation):
    make(db)
    put(db, 1, 2)
    fail(db, take(db)[0], 1, 2, final=True)
    other = db.connect()
    other.rows("BEGIN ISOLATION LEVEL " + isolation)
    assert other.value("SELECT queue.redrive_for('s', 'a', 1)") == 1
    assert take(db) == (None, [])
    put(db, 3)
    token, events = take(db)
    assert events == [(3, 1)]
    done(db, token)
    other.rows("COMMIT")
    assert take(db)[1] == [(1, 1)]


def test_failed_in_a_savepoint_after_an_error(db):
    make(db)
    put(db, 1, 2, 3)
    token, _ = take(db)
    db.rows("BEGIN")
    db.rows("SAVEPOINT a")
    db.fails("22023", "SELECT queue.fail(%s, events => '{77}')", token)
    db.rows("ROLLBACK TO a")
    fail(db, token, 3, after="0")
    db.rows("COMMIT")
    assert take(db)[1] == [(3, 2)]


def test_two_workers_end_it(db):
    """The second one waits for the first, and has lost it."""
    make(db)
    put(db, 1, 2)
    token, _ = take(db)
    db.rows("BEGIN")
    fail(db, token, 1, after="0")
    other = db.connect()
    got = []
    t = threading.Thread(target=lambda: got.append(other.fails("QB001", "SELECT queue.done(%s)", token)))
    t.start()
    db.until_blocked(other)
    db.rows("COMMIT")
    t.join()
    assert got and take(db)[1] == [(1, 2)]


def test_late_ids_of_a_window(db):
    """An event with a low id that comes in a later window, named beside others."""
    make(db)
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "slow", "slower")
    put(db, *"bcd")
    done(db, take(db)[0])
    put(db, *"efg")
    slow.rows("COMMIT")
    token, events = take(db)
    assert [p for p, _ in events] == ["slow", "slower", "e", "f", "g"]
    fail(db, token, 2, 7, after="0")
    assert take(db)[1] == [("slower", 2), ("f", 2)]


def test_several_fail_as_one(db):
    make(db)
    put(db, 1, 2, 3)
    token, _ = take(db)
    fail(db, token, 1, 3, after="0")
    token, events = take(db)
    fail(db, token, after="0")
    token, events = take(db)
    assert events == [(1, 3), (3, 3)]
    db.rows("SELECT queue.release(%s)", token)
    token, events = take(db)
    assert events == [(1, 3), (3, 3)]       # that one was not counted
    done(db, token)
    assert kept(db) == []


def test_limit(db):
    make(db)
    put(db, 1, 2, 3)
    token, _ = take(db)
    fail(db, token, 1, 2, 3, after="0")
    for want in ([(1, 2), (2, 2)], [(3, 2)]):
        token, events = take(db, lim=2)
        assert events == want
        done(db, token)


def test_lease_of_a_retry_ends(db):
    make(db, max_attempts=3, retry="fixed 1ms")
    put(db, 1)
    token, _ = take(db)
    fail(db, token, 1)
    attempts = []
    for _ in range(1000):
        token, events = take(db, lease="1 ms")
        if token:
            attempts += [events[0][1]]
            over(db)
        if kept(db)[0][1]:
            break
    assert attempts == [2, 3] and kept(db) == [(1, True, 3, "lease expired")]


def cut(db, guilty, after="0"):
    """Drains, and fails each delivery that has the guilty event. How large those were, and what was done in which order."""
    sizes, seen = [], []
    while True:
        token, events = take(db)
        if token is None and not db.value("SELECT count(*) FROM queue.deliveries"):
            return sizes, seen
        if token is None:
            continue
        if any(p == guilty for p, _ in events):
            sizes += [len(events)]
            fail(db, token, after=after)
        else:
            seen += [p for p, _ in events]
            done(db, token)


@pytest.mark.parametrize("guilty", [1, 5, 8])
def test_a_delivery_is_cut(db, guilty):
    """What is not guilty is done once, and in its order, before what came later."""
    make(db, max_attempts=2)
    put(db, *range(1, 9))
    token, _ = take(db)
    fail(db, token, after="0")
    put(db, 9, 10)
    sizes, seen = cut(db, guilty)
    assert sizes == [8, 4, 2, 1]
    assert seen == [n for n in range(1, 11) if n != guilty]
    assert [r[:2] for r in kept(db)] == [(guilty, True)]


def test_one_event_that_fails_as_a_whole(db):
    make(db, max_attempts=1)
    put(db, 1)
    token, _ = take(db)
    fail(db, token, after="0")
    put(db, 2)
    assert take(db)[1] == [(2, 1)]
    assert kept(db) == [(1, True, 1, "bad")]


def test_workers_that_die(db):
    make(db, max_attempts=1)
    put(db, 1, 2)
    take(db, lease="1 ms")
    over(db)
    token, events = take(db)
    assert [p for p, _ in events] == [1]
    done(db, token)
    token, events = take(db)
    assert [p for p, _ in events] == [2]


def test_seek(db):
    """What failed by itself stays, also what is out; and fails once more."""
    make(db)
    put(db, 1, 2, 3)
    token, _ = take(db)
    fail(db, token, 1, after="0")
    token, _ = take(db)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    db.fails("QB001", "SELECT queue.done(%s)", token)
    token, events = take(db)
    assert events == [(1, 2)]
    fail(db, token, after="1 hour")
    token, events = take(db)
    assert [p for p, _ in events] == [1, 2, 3]
    fail(db, token, 1, final=True)
    assert kept(db) == [(1, True, 1, "bad")]


def test_old_snapshot(db):
    make(db)
    other = db.connect()
    other.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other.rows("SELECT 1")
    put(db, 1, 2)
    token, _ = take(db)
    other.fails("40001", "SELECT queue.fail(%s, events => '{1}')", token)
    other.rows("ROLLBACK")
    other.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    fail(other, token, 1, after="0")
    other.rows("COMMIT")
    assert take(db)[1] == [(1, 2)]


def test_late_events(db):
    """Those of a transaction that was open in the first snapshot of the window."""
    make(db)
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "slow")
    put(db, "b")
    token, _ = take(db)
    done(db, token)
    slow.rows("COMMIT")
    put(db, "c")
    token, events = take(db)
    assert events == [("slow", 1), ("c", 1)]
    fail(db, token, 1, after="0")
    assert take(db)[1] == [("slow", 2)]


def test_gone(db):
    make(db, "a", "b")
    put(db, 1)
    for sub in "ab":
        fail(db, take(db, sub)[0], 1)
    db.rows("SELECT queue.unsubscribe('a', 's')")
    assert len(kept(db)) == 1
    db.rows("SELECT queue.drop('s')")
    assert kept(db) == []


def test_rights(db):
    make(db, "a")
    put(db, 1, 2)
    token, _ = take(db)
    bob = db.connect("bob")
    db.rows("SELECT queue.grant('s', '{all}', '{bob}')")
    bob.fails("42501", "SELECT queue.fail(%s, events => '{1}')", token)
    fail(db, token, 1, final=True)
    assert kept(bob) == []
    for call in ("peek_for", "redrive_for"):
        bob.fails("42501", "SELECT queue.%s('s', 'a')" % call)
    number = int(token.split("-")[0])
    bob.fails("23503", "INSERT INTO queue.retries (sub, id, owner, due_at, attempt, xid, pushed_at, payload_jsonb)"
                       " VALUES (%s, 9, 'bob', now(), 1, '3', now(), '1')", number)
    bob.fails("42501", "INSERT INTO queue.retries (sub, id, owner, due_at, attempt, xid, pushed_at, payload_jsonb)"
                       " VALUES (%s, 9, 'app', now(), 1, '3', now(), '1')", number)
    bob.fails("42501", "INSERT INTO queue._gone VALUES ('retries', %s, 1)", number)
    assert bob.column("WITH u AS (UPDATE queue.retries SET dead = false RETURNING id) SELECT id FROM u") == []
    bob.fails("42501", "DELETE FROM queue.retries")
    bob.fails("42501", "UPDATE queue.retries SET payload_jsonb = '1'")
    assert kept(db) == [(1, True, 1, "bad")]


@pytest.mark.parametrize("name, value, state", [("max_attempts", "0", "22023"), ("max_attempts", "x", "22023"), ("retry", "fly", "22023"),
                                                ("on_fail", "fly", "22023"), ("fly", "1", "22023")])
def test_options(db, name, value, state):
    make(db)
    assert db.fails(state, "SELECT queue.subscribe('b', 's', NULL, ARRAY[%s], ARRAY[%s])", name, value)


def test_retention_does_not_wait_for_it(db):
    make(db)
    put(db, 1)
    token, _ = take(db)
    fail(db, token, 1, after="0")
    number = db.value("SELECT number FROM queue.streams")
    assert db.value("SELECT queue._needed_by('queue.e%s_0', %s, true)" % (number, number)) == []
    take(db)
    assert db.value("SELECT queue._needed_by('queue.e%s_0', %s, true)" % (number, number)) == []


def test_copied_whole(db):
    make(db)
    db.rows("SELECT queue.push('s', '{\"n\": 1}', headers => '{\"h\": 1}', key => 'k', \"group\" => 'g')")
    cols = "id, payload, headers, key, \"group\", pushed_at, xid"
    before = db.row("SELECT %s, token FROM queue.take_for('s', 'a')" % cols)
    fail(db, before[-1], 1, after="0")
    assert db.row("SELECT %s FROM queue.take_for('s', 'a')" % cols) == before[:-1]


def test_purge(db):
    make(db, "a", "b")
    put(db, *"uvwxy")
    token, _ = take(db)
    fail(db, token, 1, 2, 3, 4, after="0")
    root = db.connect("postgres")
    root.rows("UPDATE queue.retries SET dead = true, due_at = clock_timestamp() - interval '1 day' WHERE id = 1")
    root.rows("UPDATE queue.retries SET dead = true, due_at = clock_timestamp() WHERE id = 2")
    root.rows("UPDATE queue.retries SET due_at = clock_timestamp() + interval '1 h' WHERE id = 3")
    assert take(db)[1] == [("x", 2)]                        # that is out
    db.fails("22023", "SELECT queue.purge_for('s', 'a', 'leased')")
    db.fails("22023", "SELECT queue.purge_for('s', 'a', older => '-1 s')")
    assert db.value("SELECT queue.purge_for('s', 'b')") == 0
    assert db.value("SELECT queue.purge_for('s', 'a', 'dead', older => '1 h')") == 1
    assert [row[0] for row in kept(db)] == [2, 3, 4]
    assert db.value("SELECT queue.purge_for('s', 'a', 'later')") == 1
    assert db.value("SELECT queue.purge_for('s', 'a', ids => '{4,7}')") == 0
    assert db.value("SELECT queue.purge_for('s', 'a')") == 1
    assert [row[0] for row in kept(db)] == [4]


def test_nobody_elses_are_purged(db):
    make(db)
    put(db, 1)
    token, _ = take(db)
    fail(db, token, 1)
    mallory = db.connect("mallory")
    mallory.fails("42501", "SELECT queue.purge_for('s', 'a')")
    number = db.value("SELECT number FROM queue.subscriptions")
    mallory.fails("42501", "INSERT INTO queue._gone VALUES ('retry', %s, 1)", number)
    assert len(kept(db)) == 1


def test_what_was_copied_is_read_as_jsonb_once(db):
    """When it is made, and not at each attempt: a megabyte takes long."""
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.subscribe('a', 's', 'now', '{retry}', '{fixed 1 ms}')")
    db.rows("SELECT queue.push('s', '1')")
    db.rows("SELECT queue.fail(token, events => ARRAY[id]) FROM queue.take_for('s', 'a')")
    db.fails("22P02", "INSERT INTO queue.retries (sub, id, owner, due_at, attempt, xid, pushed_at, payload_jsonb)"
             " SELECT sub, id + 1, owner, due_at, 1, xid, pushed_at, '{no' FROM queue.retries")
    db.fails("22P02", "UPDATE queue.retries SET payload_jsonb = '{no'")
    root = db.connect("postgres")
    root.rows("ALTER TABLE queue.retries DISABLE TRIGGER a_jsonb")
    root.rows("UPDATE queue.retries SET payload_jsonb = '{no'")
    root.rows("ALTER TABLE queue.retries ENABLE TRIGGER a_jsonb")
    assert db.rows("UPDATE queue.retries SET due_at = now() - interval '1 s' RETURNING payload_jsonb") == [("{no",)]
    assert db.column("SELECT payload FROM queue._take_for('s', 'a', 9, NULL, NULL, NULL, 'w') WHERE id IS NOT NULL") == ["{no"]
