"""What is done to streams, topics and tracked tables at the same time: stepped, where two waited for each other, and at random.
A third session holds one of them in the middle of its statement.
"""

import collections
import random

import psycopg
import pytest

STREAM = "SELECT queue.create('s', false, '{kind}', '{stream}')"


@pytest.fixture
def s(db):
    """A stream with a subscription, whose delivery is out."""
    db.rows(STREAM)
    db.rows("SELECT queue.subscribe('a', 's', 'beginning', '{parallel}', '{1}')")
    db.rows("SELECT queue.push('s', '1', \"group\" => 'g') FROM generate_series(1, 3)")
    db.token = db.column("SELECT token FROM queue.take_for('s', 'a', 2)")[0]
    db.number = db.value("SELECT number FROM queue.streams")
    return db


def held(db, lock):
    """In the middle of what the next one does."""
    root = db.connect("postgres")
    root.rows("BEGIN")
    root.rows(lock.format(n=db.number))
    return root


@pytest.mark.parametrize("first", ["SELECT queue.subscribe('b', 's')", "SELECT queue.subscribe('b', 's', 'beginning', '{parallel}', '{3}')",
                                   "SELECT queue.seek('a', 's', 'beginning')", "SELECT queue.alter_for('s', 'a', '{parallel}', '{2}')"])
def test_drop_behind_who_moves_readers(s, first):
    """They hold the stream, then its tables; DROP wants them in this order, too."""
    one, two = s.connect(), s.connect()
    root = held(s, "LOCK TABLE queue.e{n}_3 IN ACCESS EXCLUSIVE MODE")
    moves = s.beside(one.rows, first)
    s.until_blocked(one)
    drops = s.beside(two.rows, "SELECT queue.drop('s')")
    s.until_blocked(two)
    root.rows("COMMIT")
    moves.result()
    drops.result()
    assert s.column("SELECT name FROM queue.streams") == []


@pytest.mark.parametrize("first", ["SELECT queue.subscribe('b', 's')", "SELECT queue.seek('a', 's', 'beginning')", "SELECT queue.drop('s')",
                                   "SELECT queue.alter_for('s', 'a', '{parallel}', '{2}')", "SELECT queue.bind('s', 't.#')"])
def test_behind_drop(s, first):
    """Who comes behind it is told that it is gone."""
    s.rows("SELECT queue.create_topic('t')")
    one, two = s.connect(), s.connect()
    root = held(s, "LOCK TABLE queue.e{n}_3 IN ACCESS EXCLUSIVE MODE")
    drops = s.beside(one.rows, "SELECT queue.drop('s')")
    s.until_blocked(one)
    moves = s.beside(two.rows, first)
    s.until_blocked(two)
    root.rows("COMMIT")
    drops.result()
    assert "exist" in moves.error_of("42P01").message_primary or "bind" in first
    assert s.connect("postgres").value("SELECT count(*) FROM queue.bindings") == 0


def _tracked_beside_drop(s, name, isolation):
    """Writes 0 to 4 into a tracked table, of which 1 and 2 wait for the end of a DROP. Who wrote."""
    two = s.connect()
    two.rows("INSERT INTO x VALUES (0)")    # what it has planned is of the table that goes
    two.rows("BEGIN ISOLATION LEVEL " + isolation)
    two.rows("SELECT count(*) FROM x")
    s.rows("BEGIN")
    s.rows("SELECT queue.drop('%s')" % name)
    writes = s.beside(two.rows, "INSERT INTO x VALUES (1), (2)")
    s.until_blocked(two)
    s.rows("COMMIT")
    writes.result()
    two.rows("INSERT INTO x VALUES (3)")
    two.rows("COMMIT")
    two.rows("INSERT INTO x VALUES (4)")
    return two


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_tracked_write_behind_drop(s, kind, isolation):
    """It is written, as one behind UNTRACK is: there is nobody any more to tell."""
    if kind == "queue":
        s.rows("SELECT queue.create('w')")
    name = {"stream": "s", "queue": "w"}[kind]
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("SELECT queue.track('x', '%s')" % name)
    two = _tracked_beside_drop(s, name, isolation)
    assert two.column("SELECT id FROM x ORDER BY id") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("kind", ["stream", "queue"])
@pytest.mark.parametrize("order", ["w z", "z w"])
def test_a_tracked_write_behind_drop_of_what_is_bound(s, kind, isolation, order):
    """It is published to what else is bound."""
    if order == "z w" and kind == "stream":
        s.rows("SELECT queue.create('z'), queue.drop('s'), queue.create('w')")
        s.rows(STREAM)
    else:
        for name in order.split():
            s.rows("SELECT queue.create(%s)", name)
    s.rows("SELECT queue.create_topic('t')")
    name = {"stream": "s", "queue": "w"}[kind]
    s.rows("SELECT queue.bind('%s', 't.#'), queue.bind('z', 't.insert')" % name)
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("SELECT queue.track('x', 't')")
    two = _tracked_beside_drop(s, name, isolation)
    assert two.column("SELECT payload->'key'->>'id' FROM queue.q_z ORDER BY id") == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("kind", ["stream", "queue"])
@pytest.mark.parametrize("key", [None, "id"])
def test_a_later_row_behind_drop_of_what_is_bound(s, kind, isolation, key):
    """The first rows of a transaction went elsewhere: HEADERS decide where to."""
    s.rows("SELECT queue.create('w'), queue.create('z'), queue.create_topic('t')")
    name = {"stream": "s", "queue": "w"}[kind]
    s.rows("SELECT queue.bind('%s', 't.#', '{\"odd\": true}'), queue.bind('z', 't.insert')" % name)
    s.rows("CREATE TABLE x (id int)")
    s.rows("SELECT queue.track('x', 't', headers => 'jsonb_build_object(''odd'', NEW.id %% 2 = 1)', key => %s)", key and [key])
    two = s.connect()
    two.rows("INSERT INTO x VALUES (1)")
    two.rows("BEGIN ISOLATION LEVEL " + isolation)
    two.rows("INSERT INTO x VALUES (2), (4)")
    s.rows("BEGIN")
    s.rows("SELECT queue.drop('%s')" % name)
    writes = s.beside(two.rows, "INSERT INTO x VALUES (6), (7), (8), (9)")
    s.until_blocked(two)
    s.rows("COMMIT")
    writes.result()
    two.rows("INSERT INTO x VALUES (11)")
    two.rows("COMMIT")
    two.rows("INSERT INTO x VALUES (13)")
    assert two.column("SELECT payload->'new'->>'id' FROM queue.q_z ORDER BY id") == ["1", "2", "4", "6", "7", "8", "9", "11", "13"]


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_later_row_behind_drop_of_what_was_bound_since(s, kind):
    """Where it was pushed once nobody drops it before the end of the transaction; but what a savepoint has locked is forgotten."""
    s.rows("SELECT queue.create('w'), queue.create('z'), queue.create_topic('t'), queue.bind('z', 't.#')")
    name = {"stream": "s", "queue": "w"}[kind]
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("SELECT queue.track('x', 't')")
    two, three = s.connect(), s.connect()
    two.rows("BEGIN")
    two.rows("INSERT INTO x VALUES (1)")
    s.rows("SELECT queue.bind('%s', 't.#')" % name)
    two.rows("SAVEPOINT a")
    two.rows("INSERT INTO x VALUES (2)")
    two.rows("ROLLBACK TO a")
    two.rows("INSERT INTO x VALUES (3)")
    drops = s.beside(three.rows, "SELECT queue.drop('%s')" % name)
    s.until_blocked(three)
    two.rows("INSERT INTO x VALUES (4)")
    two.rows("COMMIT")
    drops.result()
    assert two.column("SELECT payload->'key'->>'id' FROM queue.q_z ORDER BY id") == ["1", "3", "4"]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_tracked_write_behind_drop_of_its_topic(s, isolation):
    s.rows("SELECT queue.create('z'), queue.create_topic('t'), queue.bind('z', 't.insert')")
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("SELECT queue.track('x', 't')")
    two = s.connect()
    two.rows("INSERT INTO x VALUES (0)")
    two.rows("BEGIN ISOLATION LEVEL " + isolation)
    two.rows("SELECT count(*) FROM x")
    s.rows("BEGIN")
    s.rows("SELECT queue.drop_topic('t')")
    writes = s.beside(two.rows, "INSERT INTO x VALUES (1), (2)")
    s.until_blocked(two)
    s.rows("COMMIT")
    writes.result()
    two.rows("COMMIT")
    two.rows("INSERT INTO x VALUES (3)")
    assert two.column("SELECT id FROM x ORDER BY id") == [0, 1, 2, 3]
    assert s.value("SELECT count(*) FROM queue.q_z") == 1


def tracked(s, kind):
    """A table x whose changes go to a stream or a queue: the name of that, and the table where they are."""
    if kind == "queue":
        s.rows("SELECT queue.create('w')")
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    name, table = ("w", "q_w") if kind == "queue" else ("s", "e%d_0" % s.value("SELECT number FROM queue.streams"))
    s.rows("SELECT queue.track('x', '%s')" % name)
    return name, table


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_tracked_write_and_what_its_savepoint_has_locked(s, kind):
    """What was rolled back is looked for again; behind it nobody drops what it writes to."""
    name, table = tracked(s, kind)
    two, three = s.connect(), s.connect()
    two.rows("BEGIN")
    two.rows("SAVEPOINT a")
    two.rows("INSERT INTO x VALUES (1)")
    two.rows("ROLLBACK TO a")
    two.rows("INSERT INTO x VALUES (1)")
    drops = s.beside(three.rows, "SELECT queue.drop('%s')" % name)
    s.until_blocked(three)
    two.rows("INSERT INTO x VALUES (2)")
    assert two.value("SELECT count(*) FROM queue.%s WHERE strpos(payload::text, 'insert') > 0" % table) == 2
    two.rows("COMMIT")
    drops.result()


@pytest.mark.parametrize("where", ["w", "t"])
def test_a_tracked_write_and_what_a_trigger_of_the_owners_misses(s, where):
    """It is an error of his, not one of a stream that is gone."""
    s.rows("SELECT queue.create('w'), queue.create_topic('t'), queue.bind('w', 't.#')")
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("SELECT queue.track('x', '%s')" % where)
    s.rows("CREATE FUNCTION missing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM nosuch; RETURN NULL; END'")
    s.rows("CREATE TRIGGER missing BEFORE INSERT ON queue.q_w FOR EACH STATEMENT EXECUTE FUNCTION missing()")
    assert "nosuch" in s.fails("42P01", "INSERT INTO x VALUES (1)").message_primary


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_tracked_write_behind_who_makes_the_queue_anew(s, isolation):
    """The new one has its name, and is not what is tracked."""
    s.rows("SELECT queue.create('w')")
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("SELECT queue.track('x', 'w')")
    two = s.connect()
    two.rows("INSERT INTO x VALUES (0)")
    two.rows("BEGIN ISOLATION LEVEL " + isolation)
    two.rows("SELECT count(*) FROM x")
    s.rows("BEGIN")
    s.rows("SELECT queue.drop('w')")
    s.rows("SELECT queue.create('w')")
    writes = s.beside(two.rows, "INSERT INTO x VALUES (1), (2)")
    s.until_blocked(two)
    s.rows("COMMIT")
    writes.result()
    two.rows("COMMIT")
    two.rows("INSERT INTO x VALUES (3)")
    assert two.column("SELECT id FROM x ORDER BY id") == [0, 1, 2, 3]
    assert s.value("SELECT count(*) FROM queue.q_w") == 0


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_tracked_write_and_a_drop_that_waits(s, kind):
    """Who has locked it only to look, as a first push does, writes before the DROP."""
    name, table = tracked(s, kind)
    two, three = s.connect(), s.connect()
    two.rows("BEGIN")
    two.rows("SELECT id FROM queue.%s LIMIT 0" % table)
    drops = s.beside(three.rows, "SELECT queue.drop('%s')" % name)
    s.until_blocked(three)
    two.rows("INSERT INTO x VALUES (1)")
    assert two.value("SELECT count(*) FROM queue.%s WHERE strpos(payload::text, 'insert') > 0" % table) == 1
    two.rows("COMMIT")
    drops.result()


def test_a_tracked_write_fires_a_statement_trigger_of_the_owners_once(s):
    s.rows("SELECT queue.create('w')")
    s.rows("CREATE TABLE x (id int PRIMARY KEY)")
    s.rows("CREATE TABLE fired (at text)")
    s.rows("SELECT queue.track('x', 'w')")
    s.rows("CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.fired VALUES (TG_WHEN); RETURN NULL; END'")
    s.rows("CREATE TRIGGER one BEFORE INSERT ON queue.q_w FOR EACH STATEMENT EXECUTE FUNCTION tells()")
    s.rows("CREATE TRIGGER two AFTER INSERT ON queue.q_w FOR EACH STATEMENT EXECUTE FUNCTION tells()")
    s.rows("INSERT INTO x VALUES (1)")
    assert s.column("SELECT at FROM fired") == ["BEFORE", "AFTER"]


def test_drop_behind_who_makes_it_anew(s):
    """What it meant is gone; the new one is not what it was told of."""
    two = s.connect()
    s.rows("BEGIN")
    s.rows("SELECT queue.drop('s')")
    s.rows(STREAM)
    drops = s.beside(two.rows, "SELECT queue.drop('s')")
    s.until_blocked(two)
    s.rows("COMMIT")
    assert drops.error_of("42P01").message_primary == 'queue "s" does not exist'
    assert s.column("SELECT name FROM queue.streams") == ["s"]


@pytest.mark.parametrize("gives", ["SELECT queue.grant('s', '{all}', '{bob}')", "SELECT queue.revoke('s', '{all}', '{bob}')"])
def test_a_right_on_a_stream_that_is_made_anew(s, gives):
    """The new one may be somebody else's."""
    two = s.connect()
    s.rows("BEGIN")
    s.rows("SELECT queue.drop('s')")
    s.rows(STREAM)
    given = s.beside(two.rows, gives)
    s.until_blocked(two)
    s.rows("COMMIT")
    assert given.error_of("42P01").message_primary == 'stream "s" does not exist'


@pytest.mark.parametrize("drop", ["SELECT queue.unsubscribe('a', 's')", "SELECT queue.drop('s')"])
def test_fail_of_events_beside_who_drops_their_reader(s, drop):
    one, two = s.connect(), s.connect()
    root = held(s, "LOCK TABLE queue.retries IN SHARE MODE")
    fails = s.beside(one.rows, "SELECT queue.fail(%s, events => '{1}')", s.token)
    s.until_blocked(one)
    drops = s.beside(two.rows, drop)
    s.until_blocked(two)
    root.rows("COMMIT")
    fails.result()
    drops.result()
    assert s.connect("postgres").value("SELECT count(*) FROM queue.retries") == 0


@pytest.mark.parametrize("moves", ["SELECT queue.seek('a', 's', 'now')", "SELECT queue.alter_for('s', 'a', '{parallel}', '{2}')"])
def test_a_reader_is_moved_that_is_made_anew(s, moves):
    """The new one is locked, too: who removes it waits for the end of that."""
    one, two, three, root = s.connect(), s.connect(), s.connect(), s.connect("postgres")
    one.rows("BEGIN")
    one.rows("SELECT queue.unsubscribe('a', 's'), queue.subscribe('a', 's')")
    moved = s.beside(two.rows, moves)
    s.until_blocked(two)
    root.rows("BEGIN")
    holds = s.beside(root.rows, "LOCK TABLE queue.positions IN SHARE MODE")
    s.until_blocked(root)
    one.rows("COMMIT")
    holds.result()
    s.until_blocked(two)
    removes = s.beside(three.rows, "SELECT queue.unsubscribe('a', 's')")
    s.until_blocked(three)
    root.rows("COMMIT")
    moved.result()
    removes.result()
    assert s.column("SELECT subscription FROM queue.subscriptions()") == [None]


@pytest.mark.parametrize("moves", ["SELECT queue.seek('a', 's', 'now')", "SELECT queue.alter_for('s', 'a', '{parallel}', '{2}')"])
def test_a_reader_is_moved_that_goes(s, moves):
    one, two = s.connect(), s.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.unsubscribe('a', 's')")
    moved = s.beside(two.rows, moves)
    s.until_blocked(two)
    one.rows("COMMIT")
    assert moved.error_of("42704").message_primary == 'subscription "a" of stream "s" does not exist'


@pytest.mark.parametrize("sql", ["SELECT stream FROM queue.subscriptions()", "SELECT name FROM queue.health() WHERE about = 'stream'",
                                 "SELECT queue FROM queue.stats()"])
def test_who_looks_at_all_while_one_is_dropped(s, sql):
    s.rows("SELECT queue.create('other', false, '{kind}', '{stream}')")
    two = s.connect()
    s.rows("BEGIN")
    s.rows("SELECT queue.drop('s')")
    looks = s.beside(two.column, sql)
    s.until_blocked(two)
    s.rows("COMMIT")
    assert looks.result() == ["other"]


def test_creators_do_not_wait_for_each_other(db):
    """A name is waited for, nothing else: neither other makers, nor who reads other streams."""
    db.rows(STREAM)
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.create('a', false, '{kind}', '{stream}')")
    two.rows("BEGIN")
    two.rows("SELECT queue.create('b', false, '{kind}', '{stream}'), queue.create('c'), queue.subscribe('r', 's')")
    one.rows("SELECT queue.create('d'), queue.create('e', false, '{kind}', '{stream}')")
    same = db.beside(db.connect().rows, "SELECT queue.create('a', true)")
    one.rows("COMMIT")
    assert same.error_of("42P07").message_primary == 'stream "a" already exists'
    two.rows("COMMIT")
    assert db.column("SELECT queue FROM queue.list()") == ["a", "b", "c", "d", "e", "s"]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("kind", ["{}", "{kind}"])
def test_a_name_that_becomes_free(db, kind, end):
    """Who makes another thing of a name that is being dropped waits for that: and has it, or finds the first one there."""
    other = db.connect()
    db.rows("SELECT queue.create('x', false, %s, %s)", kind, kind.replace("kind", "stream"))
    db.rows("BEGIN")
    db.rows("SELECT queue.drop('x')")
    second = "{kind}" if kind == "{}" else "{}"
    again = db.beside(other.rows, "SELECT queue.create('x', false, %s, %s)", second, second.replace("kind", "stream"))
    db.until_blocked(other)
    db.rows(end)
    if end == "COMMIT":
        again.result()
        assert len(db.column("SELECT name FROM queue.streams")) == (second == "{kind}")
    else:
        again.error_of("42P07")
    db.rows("SELECT queue.drop('x')")
    assert db.connect("postgres").value("SELECT count(*) FROM queue.names") == 0
    db.rows("SELECT queue.create('x')")


def test_who_makes_it_at_the_same_time(db):
    """IF NOT EXISTS is no error then."""
    other = db.connect()
    for kind in ("{}", "{kind}"):
        db.rows("BEGIN")
        db.rows("SELECT queue.create('x', true, %s, %s)", kind, kind.replace("kind", "stream"))
        again = db.beside(other.rows, "SELECT queue.create('x', true, %s, %s)", kind, kind.replace("kind", "stream"))
        db.until_blocked(other)
        db.rows("COMMIT")
        again.result()
        db.rows("SELECT queue.drop('x')")


def test_track_at_the_same_time(s):
    """An application does it at each start, with several processes; the second finds it done. UNTRACK of both ends."""
    s.rows("CREATE TABLE items (id int PRIMARY KEY)")
    one, two = s.connect(), s.connect()
    for sql, gone in (("SELECT queue.track('items', 's')", False), ("SELECT queue.untrack('items', 's')", True)):
        one.rows("BEGIN")
        one.rows(sql)
        again = s.beside(two.rows, sql)
        s.until_blocked(two)
        one.rows("COMMIT")
        if gone:
            again.error_of("42704")
        else:
            again.result()
        assert s.value("SELECT count(*) FROM queue.tracked('items')") == (0 if gone else 1)


def test_dead_queues_in_a_circle(db):
    """Each of two is made the other's at the same time: one of them is told."""
    for name in ("one", "two"):
        db.create(name)
    first, second, holder = db.connect(), db.connect(), db.connect()
    holder.rows("BEGIN")
    holder.rows("SELECT FROM queue.queues WHERE name = 'one' FOR UPDATE")
    a = db.beside(first.rows, "SELECT queue.alter('one', '{dead_queue}', '{two}')")
    db.until_blocked(first)
    b = db.beside(second.rows, "SELECT queue.alter('two', '{dead_queue}', '{one}')")
    db.until_blocked(second)
    holder.rows("COMMIT")
    ends = []
    for one in (a, b):
        try:
            one.result()
            ends.append(None)
        except psycopg.Error as error:
            ends.append(error.sqlstate)
    assert sorted(ends, key=str) == ["22023", None]


def test_drop_beside_the_take_of_a_single_consumer(db):
    db.create("q", single_consumer="on")
    db.push("q", "1")
    one, two = db.connect(), db.connect()
    root = db.connect("postgres")
    root.rows("BEGIN")
    root.rows("LOCK TABLE queue.n1_consumer IN ACCESS EXCLUSIVE MODE")
    takes = db.beside(one.take, "q")
    db.until_blocked(one)
    drops = db.beside(two.rows, "SELECT queue.drop('q')")
    db.until_blocked(two)
    root.rows("COMMIT")
    assert takes.result()[0]["payload"] == 1
    drops.result()


# --- at random ---

WORLDS = {
    "readers": ["SELECT queue.create('s', true, '{kind}', '{stream}')"] * 2 + [
        "SELECT queue.drop('s', true)", "SELECT queue.subscribe('a', 's', 'beginning')",
        "SELECT queue.subscribe('b', 's', 'beginning', '{parallel}', '{3}')", "SELECT queue.unsubscribe('a', 's')",
        "SELECT queue.unsubscribe('b', 's')", "SELECT queue.alter_for('s', 'b', '{parallel}', '{2}')",
        "SELECT queue.alter_for('s', 'b', '{parallel}', '{4}')", "SELECT queue.seek('b', 's', 'beginning')",
        "SELECT queue.seek('a', 's', 'now')", "SELECT queue.alter('s', '{retain}', '{1 h}')", "SELECT queue.maintain()",
        "SELECT queue.grant('s', '{all}', '{bob}')", "SELECT queue.revoke('s', '{all}', '{bob}')", "SELECT * FROM queue.subscriptions()",
        "SELECT queue.push('s', '1', \"group\" => 'g')", "SELECT queue.done(token) FROM queue.take_for('s', 'a', 1)",
        "SELECT queue.fail(token, events => ARRAY[id]) FROM queue.take_for('s', 'b', 1)",
        "SELECT queue.redrive_for('s', 'b')", "SELECT queue.fail(token) FROM queue.take_for('s', 'a', 1)"],
    "names": ["SELECT queue.create('x', true, '{kind}', '{stream}')", "SELECT queue.create('x', true)", "SELECT queue.create('y', true)",
              "SELECT queue.drop('x', true)", "SELECT queue.drop('y', true)", "SELECT queue.alter('y', '{dead_queue}', '{x}')",
              "SELECT queue.alter('x', '{dead_queue}', '{y}')", "SELECT queue.alter('y', '{single_consumer,max_running}', '{on,3}')",
              "SELECT queue.alter('y', '{}', '{}', '{single_consumer,max_running}')", "SELECT queue.push('y', '1')",
              "SELECT queue.take('y')", "SELECT queue.pop('x')", "SELECT queue.grant('y', '{take}', '{bob}')", "SELECT queue.list()"],
    "topics": ["SELECT queue.create_topic('t', true)", "SELECT queue.create('s', true, '{kind}', '{stream}')", "SELECT queue.create('q', true)",
               "SELECT queue.drop_topic('t', true)", "SELECT queue.drop('s', true)", "SELECT queue.drop('q', true)",
               "SELECT queue.bind('s', 't.#')", "SELECT queue.bind('q', 't.a')", "SELECT queue.unbind('s', 't.#')", "SELECT queue.unbind('q', 't.a')",
               "SELECT queue.grant_topic('t', '{all}', '{bob}')", "SELECT queue.revoke_topic('t', '{all}', '{bob}')", "SELECT queue._routes_of('t')",
               "SELECT queue.publish('t.a', '1')", "SELECT queue.publish('t.a', '1', key => 'k')", "SELECT * FROM queue.routes()"],
    "tracked": ["SELECT queue.create('s', true, '{kind}', '{stream}')", "SELECT queue.create('q', true)", "SELECT queue.drop('s', true)",
                "SELECT queue.drop('q', true)", "SELECT queue.track('items', 's')", "SELECT queue.track('items', 'q')",
                "SELECT queue.track('items', 's', ignore => '{n}')", "SELECT queue.untrack('items')", "SELECT queue.untrack('items', 's')",
                "UPDATE items SET n = n + 1 WHERE id = 1", "UPDATE items SET n = n + 1 WHERE id = 2", "SELECT * FROM queue.tracked()"],
}

# What may be said: it is not there (any more, or not yet), it is there already, or is being changed.
FINE = {"42P01", "42704", "42710", "42P07", "0A000", "55000", "QB001", "22023", "40001", "42883", "42809"}


@pytest.mark.parametrize("world", WORLDS)
def test_at_random(db, world):
    """Of single statements none waits for another that waits for it, and none fails as it should not."""
    seed = random.randrange(10 ** 6)
    print("seed", seed)
    db.connect("postgres").rows("ALTER DATABASE %s SET deadlock_timeout = '20ms'" % db.name)
    db.rows("CREATE TABLE items (id int PRIMARY KEY, n int)")
    db.rows("INSERT INTO items VALUES (1, 0), (2, 0)")
    ends = collections.Counter()

    def work(session, rnd):
        for _ in range(60):
            sql, open_longer = rnd.choice(WORLDS[world]), rnd.random() < 0.2
            try:
                session.rows("BEGIN" if open_longer else "SELECT 1")
                session.rows(sql)
                ends[sql] += 1
            except psycopg.Error as error:
                assert error.sqlstate in FINE, (sql, error.sqlstate, str(error))
            finally:
                if open_longer:
                    session.rows(rnd.choice(("COMMIT", "ROLLBACK")))

    for one in [db.beside(work, db.connect(), random.Random(seed + i)) for i in range(5)]:
        one.result()
    assert len(ends) > len(WORLDS[world]) / 2 and sum(ends.values()) > 60, ends
