"""Streams: a log that any number of subscriptions read; nothing skipped, nothing twice, whatever order pushes commit in."""

import itertools
import json
import re

import pytest

TAKE = "_take_for"      # way()


@pytest.fixture(autouse=True, params=["_take_for", "_take_long_jsonb"])
def way(request, monkeypatch):
    """What most takes are has a function of its own, which goes the long way for the rest: both do the same."""
    monkeypatch.setitem(globals(), "TAKE", request.param)


def make(db, *subs, start="now"):
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    for name in subs:
        db.rows("SELECT queue.subscribe(%s, 's', %s)", name, start)
    return db


def put(session, *payloads, **more):
    return [session.value("SELECT queue.push('s', %s)", json.dumps(p)) for p in payloads]


def raw(session, sub="a", lim=100, **more):
    rows = session.rows("SELECT id, token, payload::jsonb, attempt, due_ms, \"out\" FROM queue." + TAKE + "('s', %s, %s, %s, %s::interval,"
                        " %s::interval, 'w')", sub, lim, more.get("least"), more.get("within"), more.get("lease"))
    return rows


def take(session, sub="a", lim=100, **more):
    """The token, and the payloads."""
    rows = [r for r in raw(session, sub, lim, **more) if r[0] is not None]
    assert len({r[1] for r in rows}) <= 1
    assert [r[0] for r in rows] == sorted(r[0] for r in rows)
    return (rows[0][1] if rows else None), [r[2] for r in rows]


def done(session, token):
    return session.column("SELECT * FROM queue._done(ARRAY[%s], false)", token)


def over(session):
    """The lease that is out is."""
    while not session.value("SELECT lease_until < clock_timestamp() FROM queue.deliveries"):
        pass


def drain(session, sub="a", lim=100):
    got = []
    while True:
        token, payloads = take(session, sub, lim)
        if token is None:
            return got
        got += payloads
        done(session, token)


def test_thin(db):
    make(db, "a")
    assert put(db, 1, 2, 3) == [1, 2, 3]
    token, payloads = take(db)
    assert payloads == [1, 2, 3] and token.split("-")[1] == "d1"
    assert done(db, token) == ["s"]
    assert take(db) == (None, [])
    db.fails("QB001", "SELECT queue.done(%s)", token)


def test_limit_cuts_within_the_window(db):
    make(db, "a")
    put(db, *range(10))
    for want in [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]:
        token, payloads = take(db, lim=4)
        assert payloads == want
        put(db.connect(), "later") if want == [4, 5, 6, 7] else None
        if token:
            done(db, token)
        if want == [8, 9]:
            assert drain(db) == ["later"]


def test_one_delivery_at_a_time(db):
    make(db, "a")
    put(db, 1, 2)
    token, _ = take(db, lim=1)
    (row,) = raw(db)
    assert row[0] is None and 50000 < row[4] <= 60000 and row[5] == "-".join(token.split("-")[:2])
    done(db, token)
    assert drain(db) == [2]


def test_subscriptions_are_independent(db):
    make(db, "a", "b")
    put(db, 1)
    assert drain(db, "a") == [1]
    put(db, 2)
    assert drain(db, "a") == [2] and drain(db, "b") == [1, 2]


@pytest.mark.parametrize("start, want", [("now", [9]), ("beginning", [0, 1, 2, 9]), ("2", [1, 2, 9]), ("2000-01-01", [0, 1, 2, 9]),
                                         ("2100-01-01", []), ("50", [])])
def test_from(db, start, want):
    make(db)
    put(db, 0, 1, 2)
    db.rows("SELECT queue.subscribe('a', 's', %s)", start)
    put(db, 9)
    assert drain(db) == want
    put(db, 10)
    assert drain(db, lim=1) == ([10] if want else [])


def test_an_id_holds_for_what_commits_later(db):
    """FROM an id: events from there on, whenever they commit; and no earlier one."""
    make(db)
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "below")
    put(db, "at")
    db.rows("SELECT queue.subscribe('a', 's', '2')")
    assert drain(db) == ["at"]
    slow.rows("COMMIT")
    assert drain(db) == []


def test_seek(db):
    make(db, "a")
    put(db, 1, 2, 3)
    token, _ = take(db, lim=2)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    db.fails("QB001", "SELECT queue.done(%s)", token)
    assert drain(db) == [1, 2, 3]
    db.rows("SELECT queue.seek('a', 's', '3')")
    assert drain(db) == [3]
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    db.rows("SELECT queue.seek('a', 's', 'now')")
    assert drain(db) == []
    assert "BEGINNING, NOW" in db.fails("22023", "SELECT queue.seek('a', 's', 'nowhere')").message_hint


def test_seek_mends_a_position_that_was_lost(db):
    make(db, "a")
    put(db, 1)
    db.connect("postgres").rows("DELETE FROM queue.positions")
    assert "SEEK" in db.fails("55000", "SELECT queue.take_for('s', 'a')").message_hint
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert drain(db) == [1]


def test_slow_transaction_with_an_early_id(db):
    """Its id is below all that was read: "id > last" would skip it."""
    make(db, "a")
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "early")
    put(db, *range(5))
    assert drain(db, lim=2) == [0, 1, 2, 3, 4]
    slow.rows("COMMIT")
    assert drain(db) == ["early"]


def test_slow_transaction_with_an_early_xid_and_a_late_id(db):
    make(db, "a")
    slow = db.connect()
    slow.rows("BEGIN")
    slow.rows("SELECT pg_current_xact_id()")
    put(db, 1)
    assert drain(db) == [1]
    put(slow, "late")
    put(db, 2)
    assert drain(db) == [2]
    slow.rows("COMMIT")
    put(db, 3)
    assert sorted(map(str, drain(db, lim=1))) == ["3", "late"]


def test_own_transaction_goes_on_after_a_take(db):
    """Its snapshot does not list the taker's own transaction among the open ones."""
    make(db, "a")
    other = db.connect()
    db.rows("BEGIN")
    put(db, "before")
    put(other, "other")         # a later xid, which has ended: xmax is above our own
    token, payloads = take(db)
    assert payloads == ["other"]
    put(db, "after")
    done(db, token)
    db.rows("COMMIT")
    assert drain(db) == ["before", "after"]


def test_subscribe_goes_on_after_itself(db):
    make(db)
    other = db.connect()
    db.rows("BEGIN")
    db.rows("SELECT pg_current_xact_id()")
    put(other, "other")
    db.rows("SELECT queue.subscribe('a', 's')")
    put(db, "mine")
    db.rows("COMMIT")
    assert drain(db) == ["mine"]


def test_aborted_and_savepoints(db):
    make(db, "a")
    one = db.connect()
    one.rows("BEGIN")
    put(one, "kept")
    one.rows("SAVEPOINT x")
    put(one, "lost")
    one.rows("ROLLBACK TO x")
    one.rows("SAVEPOINT y")
    put(one, "kept too")
    one.rows("RELEASE y")
    put(db, 1)
    assert drain(db) == [1]
    one.rows("COMMIT")
    db.rows("BEGIN")
    put(db, "aborted")
    db.rows("ROLLBACK")
    assert drain(db) == ["kept", "kept too"]
    assert drain(db) == []


def steps(n):
    """Interleavings of n transactions of two steps each, push and commit, in which the order of pushes is given."""
    for order in sorted(set(itertools.permutations([i for i in range(n) for _ in range(2)]))):
        yield order


def test_all_interleavings_of_three_pushers_and_two_readers(db):
    """Each order of three pushes and their commits, with a read after each step: by one reader in small batches, by another in
    large ones and now and then; one of the pushers has had its xid from the start."""
    make(db, "a", "b")
    pushers = [db.connect() for _ in range(3)]
    other = db.connect()
    said, seen, also = [], [], []
    for number, order in enumerate(steps(3)):
        begun = set()
        for i, p in enumerate(pushers):
            p.rows("BEGIN")
        pushers[number % 3].rows("SELECT pg_current_xact_id()")
        for at, i in enumerate(order):
            if i in begun:
                fate = "ROLLBACK" if (number + i) % 7 == 0 else "COMMIT"
                pushers[i].rows(fate)
                if fate == "COMMIT":
                    said += [[number, i, 0], [number, i, 1]]
            else:
                begun.add(i)
                put(pushers[i], [number, i, 0])
                put(pushers[i], [number, i, 1])
            token, payloads = take(other, "a", 1 + (number + at) % 3)
            seen += payloads
            if token:
                done(other, token)
            if (number + at) % 4 == 0:
                also += drain(db, "b")
    seen += drain(db, "a", 2)
    also += drain(db, "b")
    assert len(said) > 300
    for got in (seen, also):
        assert sorted(got) == sorted(said)
        last = {}
        for number, i, n in got:        # of one transaction, in its order
            assert last.get((number, i), -1) < n
            last[number, i] = n


def test_order_of_transactions_that_do_not_overlap(db):
    """B pushed after A's commit: A comes first, though B has the lower xid."""
    make(db, "a")
    b = db.connect()
    b.rows("BEGIN")
    b.rows("SELECT pg_current_xact_id()")
    put(db, "A")
    put(b, "B")
    b.rows("COMMIT")
    assert drain(db, lim=1) == ["A", "B"]


def test_taken_back(db):
    """A transaction with TAKE and DONE that is rolled back has not read."""
    make(db, "a")
    put(db, 1)
    db.rows("BEGIN")
    token, payloads = take(db)
    done(db, token)
    db.rows("ROLLBACK")
    token, again = take(db)
    assert payloads == again == [1]
    db.rows("BEGIN")
    done(db, token)
    db.rows("ROLLBACK")
    (row,) = raw(db)
    assert row[5] is not None           # it is out as before
    done(db, token)
    assert drain(db) == []


def test_lease_is_over(db):
    make(db, "a")
    put(db, 1, 2)
    token, _ = take(db, lease="1 ms")
    over(db)
    put(db, 3)
    db.fails("QB001", "SELECT queue.done(%s)", token)
    rows = raw(db)
    assert [(r[2], r[3]) for r in rows] == [(1, 2), (2, 2)]
    db.fails("QB001", "SELECT queue.done(%s)", token)
    done(db, rows[0][1])
    assert drain(db) == [3]


def test_lease_that_is_being_done(db):
    """Its end is under way in an open transaction: nobody gets it, and nobody waits for it."""
    make(db, "a")
    put(db, 1)
    token, _ = take(db, lease="200 ms")
    worker = db.connect()
    worker.rows("BEGIN")
    worker.rows("SELECT queue.done(%s)", token)
    over(db)
    (row,) = raw(db)
    assert row[0] is None and row[5] is not None
    worker.rows("COMMIT")
    assert take(db) == (None, [])


def test_fail(db):
    make(db, "a")
    put(db, 1, 2)
    token, _ = take(db)
    db.rows("SELECT queue.fail(%s, 'no luck', '1 h')", token)
    assert db.value("SELECT error FROM queue.subscriptions()") == "no luck"
    (row,) = raw(db)
    assert row[4] > 3500000
    db.fails("QB001", "SELECT queue.done(%s)", token)
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    token, _ = take(db)
    db.rows("SELECT queue.fail(%s, retry_in => '0')", token)
    rows = raw(db)
    assert [(r[2], r[3]) for r in rows] == [(1, 2), (2, 2)]
    db.rows("SELECT queue.release(%s)", rows[0][1])
    assert [r[3] for r in raw(db)] == [2, 2]


@pytest.mark.parametrize("said, low, high", [(None, 700, 1300), ("5 s", 4000, 5000), ("-1 s", None, None)])
def test_a_delivery_that_failed_waits(db, said, low, high):
    """RETRY IN, or a second at first."""
    make(db, "a")
    put(db, 1)
    token, _ = take(db)
    db.rows("SELECT queue.fail(%s, 'no', %s::interval)", token, said)
    row, = raw(db)
    assert row[2] == 1 if low is None else low <= row[4] <= high


@pytest.mark.parametrize("said, low, high", [(None, 0.7, 1.3), ("5 s", 4, 5.5), ("-1 s", -1, 0.1)])
def test_an_event_that_failed_waits(db, said, low, high):
    make(db, "a")
    put(db, 1, 2, 3)
    token, _ = take(db)
    db.rows("SELECT * FROM queue._fail(ARRAY[%s], 'no', %s::interval, false, true, ARRAY['{1, 3}', '2'])", token, said)
    for wait in db.column("SELECT extract(epoch FROM due_at - clock_timestamp())::float8 + 0.05 FROM queue.retries"):
        assert low <= wait <= high


def test_nothing_is_due(db):
    """Who waits, waits for a push."""
    make(db, "a")
    assert raw(db)[0][4:] == (None, None)
    put(db, 1)
    done(db, take(db)[0])
    assert raw(db)[0][4:] == (None, None)


def test_leases_that_end_are_attempts(db):
    """A worker that dies of its event, too: it is dead then, and says why."""
    make(db)
    db.rows("SELECT queue.subscribe('a', 's', 'now', '{max_attempts}', '{2}')")
    put(db, 1)
    for attempt in (1, 2):
        assert raw(db, lease="1 ms")[0][3] == attempt
        over(db)
    assert take(db) == (None, [])
    assert db.rows("SELECT dead, attempt, error FROM queue.retries") == [(True, 2, "lease expired")]


def test_extend(db):
    make(db, "a")
    put(db, 1)
    token, _ = take(db, lease="1 min")
    db.rows("SELECT queue.extend(%s, '1 h')", token)
    assert db.value("SELECT lease_until > now() + interval '50 min' FROM queue.subscriptions()")


def test_done_in_an_old_snapshot(db):
    """40001, not the false news that the lease is lost."""
    make(db, "a")
    put(db, 1)
    worker = db.connect()
    worker.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    worker.rows("SELECT 1")
    token, _ = take(db)
    assert "BEFORE" in worker.fails("40001", "SELECT queue.done(%s)", token).message_hint.upper()
    worker.rows("ROLLBACK")
    worker.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    done(worker, token)
    worker.rows("COMMIT")


def test_take_in_an_old_snapshot(db):
    make(db, "a")
    db.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert "READ COMMITTED" in db.fails("0A000", "SELECT * FROM queue.take_for('s', 'a')").message_hint


def test_a_take_commits_asynchronously_and_leaves_the_callers_commit_alone(db):
    make(db, "a")
    put(db, 1, 2)
    assert db.row("SELECT t.id, current_setting('synchronous_commit') FROM queue._take_for('s', 'a', 1, NULL, NULL, NULL, NULL) AS t") \
        == (1, "off")
    assert db.value("SHOW synchronous_commit") == "on"
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    db.rows("BEGIN")
    assert db.rows("SELECT id FROM queue.take_for('s', 'a')") == [(1,), (2,)]
    assert db.value("SHOW synchronous_commit") == "on"
    db.rows("ROLLBACK")


def test_at_least_of_a_transaction_that_commits_late(db):
    """WITHIN is over by what its events say of their push, not by when they could be seen."""
    make(db, "a")
    late = db.connect("app")
    late.rows("BEGIN")
    put(late, 1)
    late.rows("UPDATE queue.e%d_0 SET pushed_at = pushed_at - interval '1 h'" % db.value("SELECT number FROM queue.streams"))
    assert take(db, least=2, within="30 min") == (None, [])
    late.rows("COMMIT")
    (row,) = raw(db, least=2, within="2 h")
    assert row[0] is None and 3500000 < row[4] <= 3600000
    assert take(db, least=2, within="30 min")[1] == [1]


def test_at_least(db):
    make(db, "a")
    put(db, 1)
    (row,) = raw(db, least=2, within="1 h")
    assert row[0] is None and row[4] > 3500000
    put(db, 2)
    assert take(db, least=2, within="1 h")[1] == [1, 2]
    db.rows("SELECT queue.seek('a', 's', 'beginning')")
    assert take(db, lim=9, least=9, within="1 us")[1] == [1, 2]
    db.fails("42601", "SELECT queue.take_for('s', 'a', 5, 2)")
    db.fails("22023", "SELECT queue.take_for('s', 'a', 5, 6, '1 s')")


def test_two_takes_at_once(db):
    make(db, "a")
    put(db, 1)
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    token, _ = take(one)
    assert raw(two)[0][4] == 100        # it waits for nobody
    one.rows("COMMIT")
    assert raw(two)[0][5] == "-".join(token.split("-")[:2])


@pytest.mark.parametrize("more", ["priority => 1", "delay => '1 s'", "run_at => now()", "expires => '1 s'", "attempts => 2",
                                  "key => 'k', on_duplicate => 'replace'", "batch => 'b'", "key => 'k', keep_for => '1 s'",
                                  "after => '{1-1}'"])
def test_what_a_push_cannot_say(db, more):
    make(db)
    assert "HEADERS, KEY, GROUP" in db.fails("0A000", "SELECT queue.push('s', '1', %s)" % more).message_hint


def test_key_group_headers(db):
    make(db, "a")
    for _ in range(2):      # a key is a column, and no lock
        db.rows("SELECT queue.push('s', '1', key => 'k', \"group\" => 'g', headers => '{\"h\": 1}')")
    assert db.rows("SELECT key, \"group\", headers FROM queue.take_for('s', 'a')") == [("k", "g", {"h": 1})] * 2


@pytest.mark.parametrize("call", ["take('s')", "pop('s')", "peek('s')", "pause('s')", "errors('s')", "purge('s')", "redrive('s')",
                                  "create('s', true)"])
def test_what_is_no_stream_matter(db, call):
    make(db)
    if call.startswith("create"):
        db.fails("42P07", "SELECT queue." + call)
    else:
        assert "QUEUE SUBSCRIBE" in db.fails("0A000", "SELECT * FROM queue." + call).message_hint


@pytest.mark.parametrize("name, value, sqlstate", [("retain", "soon", "22023"), ("lease", "1 s", "0A000"), ("payload", "json", "22023"),
                                                   ("kind", "topic", "22023"), ("nonsense", "1", "22023")])
def test_options(db, name, value, sqlstate):
    names, values = ([name], [value]) if name == "kind" else (["kind", name], ["stream", value])
    assert db.fails(sqlstate, "SELECT queue.create('s', false, %s, %s)", names, values).message_hint
    make(db)
    assert db.fails("22023", "SELECT queue.subscribe('a', 's', NULL, '{parallel}', '{65}')").message_hint


def test_names(db):
    make(db)
    db.fails("42P07", "SELECT queue.create('s')")
    db.create("q")
    db.fails("42P07", "SELECT queue.create('q', false, '{kind}', '{stream}')")
    db.fails("0A000", "SELECT queue.subscribe('a', 'q')")
    db.fails("42P01", "SELECT queue.subscribe('a', 'nowhere')")
    db.fails("42704", "SELECT queue.take_for('s', 'nobody')")
    db.rows("SELECT queue.drop('s')")
    db.create("s")


def test_drop_leaves_nothing(db):
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'queue'::regnamespace"
    procs = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'queue'::regnamespace"
    before = db.value(left), db.value(procs)
    make(db, "a")
    put(db, 1)
    take(db)
    db.rows("SELECT queue.drop('s')")
    assert (db.value(left), db.value(procs)) == before
    for table in ("streams", "subscriptions", "positions", "deliveries", "retries"):
        assert db.value("SELECT count(*) FROM queue." + table) == 0


def test_rights(db):
    make(db, "a")
    put(db, 1)
    bob = db.connect("bob")
    bob.fails("42501", "SELECT queue.push('s', '1')")
    bob.fails("42501", "SELECT queue.subscribe('b', 's')")
    bob.fails("42501", "SELECT queue.take_for('s', 'a')")
    bob.fails("42501", "SELECT queue.seek('a', 's', 'now')")
    bob.fails("42501", "SELECT queue.unsubscribe('a', 's')")
    bob.fails("42501", "SELECT queue.drop('s')")
    bob.fails("42501", "SELECT queue.grant('s', '{push}', '{bob}')")
    bob.fails("42501", "INSERT INTO queue.streams (name) VALUES ('t')")
    bob.fails("42501", "INSERT INTO queue.subscriptions (stream, name) SELECT number, 'b' FROM queue.streams")
    token, _ = take(db)
    bob.fails("42501", "SELECT queue.done(%s)", token)
    assert bob.rows("SELECT * FROM queue.positions") == bob.rows("SELECT * FROM queue.deliveries") == []
    db.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    assert put(bob, 2) == [2]
    bob.fails("42501", "SELECT * FROM queue.e1_0")
    bob.fails("42501", "INSERT INTO queue.e1_0 (xid, payload) VALUES ('3', '1')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob.rows("SELECT queue.subscribe('b', 's', 'beginning')")
    assert drain(bob, "b") == [1, 2]
    bob.fails("42501", "SELECT queue.take_for('s', 'a')")
    sub = db.value("SELECT number FROM queue.subscriptions WHERE name = 'a'")
    assert bob.fails("23503", "INSERT INTO queue.positions (sub, seq, owner, s1) VALUES (%s, 99, 'bob', '3:3:')", sub)
    db.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    assert put(bob, 3) == [3]
    bob.fails("42501", "SELECT queue.take_for('s', 'b')")
    db.rows("SELECT queue.unsubscribe('b', 's')")       # the stream's owner may
    db.rows("SELECT queue.revoke('s', '{all}', '{bob}')")
    bob.fails("42501", "SELECT queue.push('s', '1')")
    db.fails("0A000", "SELECT queue.grant('s', '{take}', '{bob}')")
    db.fails("22023", "SELECT queue.grant('s', '{fly}', '{bob}')")


def test_who_may_read_no_more_does_not_read_copies(db):
    """Events that failed by themselves are kept beside the stream; the right is asked for, not whose subscription it is."""
    make(db)
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob = db.connect("bob")
    bob.rows("SELECT queue.subscribe('b', 's')")
    put(db, 1, 2, 3)
    token, _ = take(bob, "b")
    bob.rows("SELECT queue.fail(%s, events => '{1, 2}', retry_in => '0')", token)
    assert len(bob.rows("SELECT payload_jsonb FROM queue.retries")) == 2
    token, _ = take(bob, "b", 1)
    db.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    assert bob.rows("SELECT id, payload_jsonb FROM queue.retries") == []
    assert bob.rows("UPDATE queue.retries SET dead = false RETURNING payload_jsonb") == []
    for call in ("peek_for('s', 'b')", "redrive_for('s', 'b')", "purge_for('s', 'b')", "seek('b', 's', 'now')",
                 "fail('%s')" % token):
        assert "GRANT SUBSCRIBE ON s TO bob" in bob.fails("42501", "SELECT queue." + call).message_hint
    assert db.value("SELECT count(*) FROM queue.retries WHERE delivery IS NOT NULL") == 1
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    bob.rows("SELECT queue.fail(%s, retry_in => '0')", token)
    db.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    bob.fails("42501", "SELECT queue.take_for('s', 'b')")
    db.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    assert sorted(drain(bob, "b")) == [1, 2]
    db.rows("SELECT queue.revoke('s', '{subscribe}', '{bob}')")
    bob.rows("SELECT queue.unsubscribe('b', 's')")
    assert db.value("SELECT count(*) FROM queue.subscriptions") == 0


@pytest.mark.parametrize("table", ["streams", "subscriptions", "positions", "deliveries", "retries", "_gone"])
def test_a_stranger_locks_nobody_out(db, table):
    make(db, "a")
    put(db, 1)
    token, _ = take(db)
    bob = db.connect("bob")
    for mode in ("SHARE UPDATE EXCLUSIVE", "SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"):
        bob.rows("BEGIN")
        bob.fails("42501", "LOCK TABLE queue.%s IN %s MODE" % (table, mode))
        bob.rows("ROLLBACK")
    assert done(db, token) == ["s"]


def test_a_stranger_makes_nothing_go(db):
    make(db, "a")
    put(db, 1)
    token, _ = take(db)
    stream = db.value("SELECT number FROM queue.streams")
    bob = db.connect("bob")
    for what in ("subscription", "positions", "deliveries", "retries"):
        for n in (None, 1, 2):
            bob.fails("42501", "INSERT INTO queue._gone VALUES (%s, %s, %s)", what, int(token.split("-")[0]), n)
    bob.fails("42501", "INSERT INTO queue._gone VALUES ('stream', %s)", stream)
    bob.rows("INSERT INTO queue._gone VALUES ('stream', %s)", int(token.split("-")[0]))     # no stream: nothing goes
    assert db.column("SELECT number FROM queue.streams") == [stream]
    db.rows("SELECT queue.grant('s', '{all}', '{bob}')")
    bob.fails("42501", "INSERT INTO queue._gone VALUES ('deliveries', %s)", int(token.split("-")[0]))
    assert done(db, token) == ["s"]


def test_subscriptions_row(db):
    make(db, "a")
    put(db, 1, 2, 3)
    row = db.row("SELECT stream, subscription, owner, pending, lag > '0', delivery, events, oldest IS NOT NULL, last_id"
                 " FROM queue.subscriptions('s')")
    assert row == ("s", "a", "app", 3, True, None, None, True, 3)
    token, _ = take(db, lim=2)
    assert db.row("SELECT pending, delivery, events, attempt, worker FROM queue.subscriptions()") == (
        1, token[:token.rindex("-")], 2, 1, "w")
    done(db, token)
    assert drain(db) == [3]
    assert db.row("SELECT pending, lag, delivery FROM queue.subscriptions()") == (0, None, None)


def test_another_era(db):
    """A dump that was restored has other tables, and its transaction numbers begin anew."""
    make(db, "a")
    put(db, 1)
    root = db.connect("postgres")
    root.rows("UPDATE queue.streams SET log = (log::int8 + 1)::oid")
    for call in ("push('s', '1')", "take_for('s', 'a')", "subscribe('b', 's')", "seek('a', 's', 'now')"):
        assert db.fails("55000", "SELECT queue." + call).message_hint
    root.rows("UPDATE queue.streams SET log = (log::int8 - 1)::oid, system = 1")
    db.fails("55000", "SELECT queue.take_for('s', 'a')")
    db.rows("SELECT queue.drop('s')")


def test_mixed_tokens(db):
    make(db, "a")
    db.create("q")
    put(db, 1)
    db.push("q", "1")
    token, _ = take(db)
    job = db.take("q")[0]["token"]
    assert db.fails("0A000", "SELECT queue.done(ARRAY[%s, %s])", token, job).message_hint
    assert db.fails("0A000", "SELECT queue.done(%s, '1')", token).message_hint


def test_a_held_snapshot_changes_nothing(db):
    """Positions and deliveries are found by their keys, whatever dead rows lie before them."""
    make(db, "a")
    old = db.connect()
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT 1")
    for i in range(50):
        put(db, i)
        assert drain(db) == [i]


def costs(session, n=500):
    """What so many pushes write and look at: bytes of WAL, and buffers."""
    plan = "\n".join(session.column("EXPLAIN (ANALYZE, WAL, BUFFERS, TIMING OFF) SELECT queue.push('s', to_jsonb(i)) FROM generate_series(1, %d) AS i" % n))
    wal = int(re.search(r"WAL:.*bytes=(\d+)", plan).group(1))
    return wal, int(re.search(r"Buffers: shared hit=(\d+)", plan).group(1))


def test_readers_cost_a_push_nothing(db):
    """Ten of them, of which one is slow, one dead and others have failed; beside a snapshot that is held."""
    make(db)
    costs(db)
    alone = costs(db)
    for i in range(10):
        db.rows("SELECT queue.subscribe(%s, 's', 'beginning')", "r%d" % i)
    old = db.connect()
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT count(*) FROM queue.streams")
    token, _ = take(db, "r0", 10)
    db.rows("SELECT queue.fail(%s, 'no')", token)
    take(db, "r1", 10)
    for i in range(3, 10):
        drain(db, "r%d" % i)
    beside = costs(db)
    assert all(abs(b - a) <= 0.03 * a for a, b in zip(alone, beside)), (alone, beside)


def aged(session, **ages):
    """Events that were pushed so long ago, in the order of their ids."""
    for payload, age in ages.items():
        put(session, payload)
        session.rows("UPDATE queue.e%d_0 SET pushed_at = clock_timestamp() - %%s::interval WHERE payload = to_jsonb(%%s::text)::text" %
                     session.value("SELECT number FROM queue.streams"), age, payload)


def test_lag(db):
    """Only what is so old; what is not says when; and nothing of it is lost or comes twice."""
    make(db, "a")
    aged(db, one="2 h", two="1 h", three="1 min", four="3 h")
    assert [r[4] for r in raw_lag(db, "1 day")] == [pytest.approx(86400000 - 7200000, abs=20000)]
    rows = raw_lag(db, "30 min")
    assert [r[2] for r in rows] == ["one", "two"]  # what is behind one that is not old enough waits with it
    done(db, rows[0][1])
    (row,) = raw_lag(db, "30 min")
    assert row[0] is None and 1700000 < row[4] <= 1740000
    rows = raw_lag(db, "30 s", lim=1)
    assert [r[2] for r in rows] == ["three"]
    done(db, rows[0][1])
    assert drain(db) == ["four"] and raw_lag(db, "1 s")[0][0] is None
    for lag in ("-1 s", "1001 years"):
        db.fails("22023", "SELECT * FROM queue.take_for('s', 'a', lag => %s)", lag)


def raw_lag(session, lag, lim=100, least=None, within=None):
    return session.rows("SELECT id, token, payload::jsonb, attempt, due_ms FROM queue._take_for('s', 'a', %s, %s, %s::interval, NULL, 'w',"
                        " %s::interval)", lim, least, within, lag)


def test_lag_and_min(db):
    """MIN counts those that are old enough, and its time from then on."""
    make(db, "a")
    aged(db, one="61 min", two="59 min")
    (row,) = raw_lag(db, "1 h", least=2, within="5 min")
    assert row[0] is None and 50000 < row[4] <= 60000
    assert [r[2] for r in raw_lag(db, "1 h", least=2, within="30 s")] == ["one"]


def test_lag_of_slow_transactions(db):
    """They come when they have committed, and are old enough; the window is not left behind."""
    make(db, "a")
    slow = db.connect()
    slow.rows("BEGIN")
    put(slow, "slow")
    aged(db, fast="1 h", young="1 s")
    rows = raw_lag(db, "1 min")
    assert [r[2] for r in rows] == ["fast"]
    done(db, rows[0][1])
    slow.rows("COMMIT")
    assert raw_lag(db, "1 min")[0][0] is None
    assert drain(db) == ["young", "slow"]


def test_lag_of_several_workers(db):
    """Each lane by itself; what is out of one is shown alone."""
    make(db)
    db.rows("SELECT queue.subscribe('a', 's', 'now', '{parallel}', '{2}')")
    aged(db, **{"n%d" % i: "1 h" for i in range(8)})
    put(db, "young", "young")
    assert raw_lag(db, "2 h")[0][0] is None
    got = []
    for _ in range(2):
        rows = raw_lag(db, "10 min")
        assert db.column("SELECT id FROM queue.peek(%s)", rows[0][1]) == [r[0] for r in rows]
        got += [r[2] for r in rows]
        done(db, rows[0][1])
    assert sorted(got) == ["n%d" % i for i in range(8)]
    (row,) = [r for r in raw_lag(db, "10 min") if r[0] is None]
    assert 590000 < row[4] <= 600000
    assert drain(db) == ["young", "young"]


def test_lag_does_not_hold_up_what_comes_again(db):
    make(db, "a")
    aged(db, one="1 h")
    put(db, "two")
    token, _ = take(db)
    db.rows("SELECT queue.fail(%s, 'no', '0')", token)
    assert [r[2] for r in raw_lag(db, "10 min")] == ["one", "two"]
