"""The option dead_queue: jobs that die are pushed to another queue."""

import pytest

ROW = "SELECT id, payload, headers, priority FROM queue.q_graves ORDER BY id"


@pytest.fixture
def q(db):
    db.create("graves")
    db.create("q", dead_queue="graves", max_attempts=1, retain_dead="1 h")
    return db


def number(db, name):
    return db.value("SELECT number FROM queue.queues WHERE name = %s", name)


def fail(db, final=True):
    token = db.take("q")[0]["token"]
    db.rows("SELECT queue.fail(%s, 'no such address', final => %s)", token, final)


def late(db):
    db.rows("UPDATE queue.q_q SET lease_until = clock_timestamp() - interval '1 s'")


def last_attempt(db):
    db.rows("SELECT queue.alter('q', '{max_attempts}', '{1}')")
    fail(db, False)


def lease_lost(db):
    db.take("q")
    late(db)
    assert db.take("q") == []


def ran_too_long(db):
    db.rows("SELECT queue.alter('q', '{max_run}', '{1 ms}')")
    db.take("q")
    db.rows("UPDATE queue.q_q SET taken_at = taken_at - interval '1 h', lease_until = lease_until - interval '1 h'")
    assert db.take("q") == []


def expired(db):
    db.rows("SELECT queue.alter('q', '{on_expire}', '{dead}')")
    db.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s'")
    assert db.take("q") == []


def expired_maintained(db):
    db.rows("SELECT queue.alter('q', '{on_expire}', '{dead}')")
    db.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s'")
    db.rows("SELECT queue.maintain()")


def expired_key(db):
    db.rows("SELECT queue.alter('q', '{on_expire}', '{dead}')")
    db.rows("UPDATE queue.q_q SET key = 'k', expires_at = clock_timestamp() - interval '1 s'")
    db.rows("SELECT queue.push('q', '2', key => 'k')")
    db.rows("DELETE FROM queue.q_q WHERE key = 'k'")
    db.rows("UPDATE queue.q_graves SET headers = headers #- '{dead,key}'")


def worker_gone(db):
    db.rows("SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)", db.take("q")[0]["token"])


def orphan(db):
    db.rows("SET qbouncer.proxy = '77'")
    db.rows("SELECT queue.alter('q', '{on_disconnect}', '{release}')")
    db.take("q")
    db.rows("RESET qbouncer.proxy")
    db.rows("SELECT queue._orphans('{}')")


WAYS = [(fail, "no such address", 1), (last_attempt, "no such address", 1), (lease_lost, "lease expired", 1),
        (ran_too_long, "ran too long", 1), (expired, "expired", 0), (expired_maintained, "expired", 0),
        (expired_key, "expired", 0), (worker_gone, "worker disconnected", 1), (orphan, "worker disconnected", 1)]


@pytest.mark.parametrize("way, error, attempts", WAYS)
def test_each_way_to_die(q, way, error, attempts):
    q.rows("SELECT queue.push('q', '{\"to\": 1}', headers => '{\"trace\": \"4711\"}', priority => 3)")
    n = number(q, "q")
    way(q)
    assert q.rows(ROW) == [(1, {"to": 1}, {
        "trace": "4711", "parent": "%s-1" % n, "dead": {"queue": "q", "error": error, "attempts": attempts}}, 3)]
    assert q.value("SELECT count(*) FROM queue.q_q") == 0
    assert q.take("graves")[0]["attempt"] == 1


def test_headers_that_are_null(q):
    q.rows("INSERT INTO queue.b_q (payload, headers) VALUES ('1', 'null')")
    fail(q)
    assert sorted(q.rows(ROW)[0][2]) == ["dead", "parent"]


def test_what_is_tried_again_stays(q):
    q.rows("SELECT queue.alter('q', '{max_attempts}', '{2}')")
    q.push("q", "1")
    fail(q, False)
    assert q.column("SELECT state FROM queue.q_q") == ["later"]
    assert q.rows(ROW) == []


def test_a_cancelled_one_goes_nowhere(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.cancel(%s)", token)
    late(q)
    assert q.take("q") == [] and q.rows(ROW) == []
    assert q.value("SELECT count(*) FROM queue.q_q") == 0


def test_key_and_group_are_told(q):
    q.rows("SELECT queue.push('q', '1', key => 'k', \"group\" => 'g')")
    q.rows("SELECT queue.push('q', '2', \"group\" => 'g')")
    fail(q)
    assert q.rows(ROW)[0][2]["dead"] == {"queue": "q", "error": "no such address", "attempts": 1, "key": "k", "group": "g"}
    assert [job["payload"] for job in q.take("q")] == [2]     # the next of the group goes on
    assert q.value("SELECT queue.push('q', '3', key => 'k')") == 3


def test_the_archive_knows_it(q):
    q.rows("SELECT queue.alter('q', '{retain_done}', '{1 h}')")
    q.push("q", "1")
    fail(q)
    assert q.row("SELECT state, error, attempt FROM queue.job('%s-1')" % number(q, "q")) == ("dead", "no such address", 1)
    q.rows("SELECT queue.grant('q', '{await}', '{bob}')")
    for who in (q, q.connect("bob")):
        assert who.row("SELECT state, error FROM queue.await('%s-1')" % number(q, "q")) == ("dead", "no such address")


def test_it_is_undone_with_the_transaction(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    with q.conn.transaction(force_rollback=True):
        q.rows("SELECT queue.fail(%s, final => true)", token)
        assert len(q.rows(ROW)) == 1
    assert q.rows(ROW) == []
    q.rows("SELECT queue.done(%s)", token)


def grow_full(db):
    db.rows("SELECT queue.alter('graves', '{max_length}', '{1}')")
    db.push("graves", "0")


def drop(db):
    db.rows("SELECT queue.drop('graves')")
    db.create("graves")       # another one, which its owner has not chosen


def other_type(db):
    db.rows("SELECT queue.drop('graves')")
    db.create("graves", payload="text")
    db.rows("ALTER TABLE queue.queues DISABLE TRIGGER USER")
    db.rows("UPDATE queue.queues SET dead_queue = %s WHERE name = 'q'", number(db, "graves"))
    db.rows("ALTER TABLE queue.queues ENABLE TRIGGER USER")


def pause(db):
    db.rows("SELECT queue.pause('graves', pushes => true)")


def give_away(db):
    db.rows("SELECT queue.grant('q', '{all}', '{bob}')")
    db.connect("postgres").rows("UPDATE queue.queues SET owner = 'bob' WHERE name = 'q'")


def dropped(db):
    db.rows("SELECT queue.drop('graves')")


@pytest.mark.parametrize("trouble", [grow_full, drop, dropped, other_type, pause, give_away])
def test_where_it_cannot_go_it_stays_dead(q, trouble):
    q.connect("bob")
    q.push("q", "1")
    trouble(q)
    fail(q.connect("postgres"))
    assert q.connect("postgres").row("SELECT state, error FROM queue.q_q") == ("dead", "no such address")
    if trouble is not dropped:
        assert q.value("SELECT count(*) FROM queue.q_graves WHERE headers IS NOT NULL") == 0
    root = q.connect("postgres")
    assert root.value("SELECT queue.redrive('q')") == 1
    assert root.take("q")[0]["id"] == 1


def test_a_queue_that_is_locked_is_not_waited_for(q):
    q.push("q", "1")
    other = q.connect()
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.q_graves")
        fail(q)
    assert q.row("SELECT state FROM queue.q_q") == ("dead",)


def test_it_is_waited_for_once_in_a_transaction(q):
    q.push("q", "1", "2", "3", "4")
    q.take("q", 4)
    late(q)
    other = q.connect()
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.q_graves")
        q.rows("SET statement_timeout = '3 s'")
        assert q.take("q") == []
    assert q.column("SELECT state FROM queue.q_q") == ["dead"] * 4
    q.push("q", "5")
    fail(q)
    assert q.column("SELECT payload FROM queue.q_graves") == [5]


@pytest.mark.parametrize("given, most", [("50ms", "50ms"), ("0", "1s"), ("1min", "1s")])
def test_it_waits_no_longer_than_its_caller(q, given, most):
    """What it waits with a trigger there sees; behind it all is as it was."""
    q.rows("CREATE TABLE seen (most text)")
    q.rows("CREATE FUNCTION looks() RETURNS trigger LANGUAGE plpgsql AS "
           "$$BEGIN INSERT INTO public.seen VALUES (current_setting('lock_timeout')); RETURN NEW; END$$")
    q.rows("CREATE TRIGGER looks BEFORE INSERT ON queue.q_graves FOR EACH ROW EXECUTE FUNCTION looks()")
    q.push("q", "1", "2")
    q.rows("SET lock_timeout = '%s'" % given)
    with q.conn.transaction():
        fail(q)
        assert q.value("SHOW lock_timeout") == given
        fail(q)
    assert q.value("SHOW lock_timeout") == given
    assert q.column("SELECT most FROM seen") == [most] * 2
    other = q.connect()
    q.push("q", "3")
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.q_graves")
        with q.conn.transaction():
            fail(q)
            assert q.value("SHOW lock_timeout") == given
    assert q.row("SELECT state FROM queue.q_q") == ("dead",)


def test_who_fails_it_needs_no_right_there(q):
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{push,take}', '{bob}')")
    bob.push("q", "1")
    fail(bob)
    assert len(q.rows(ROW)) == 1
    bob.fails("42501", "SELECT * FROM queue.q_graves")
    bob.fails("42501", "CREATE TEMP TABLE q_graves (id int8, ended_at int, state text);"
              " CREATE TRIGGER x AFTER UPDATE ON q_graves FOR EACH ROW EXECUTE FUNCTION queue._bury()")


def test_waiting_takers_are_told(q):
    q.push("q", "1")
    listener = q.connect()
    listener.rows("LISTEN qbouncer")
    fail(q)
    heard = set()
    listener.conn.add_notify_handler(lambda n: heard.add(n.payload))
    listener.rows("SELECT 1")
    assert heard == {"q", "graves"}
    q.notices.clear()
    q.push("q", "1")
    q.rows("SELECT * FROM queue._fail(ARRAY[%s], 'x', NULL, true, false)", q.take("q")[0]["token"])     # by the proxy
    assert q.notices == ["graves"]
    heard.clear()
    listener.rows("SELECT 1")
    assert heard == set()


@pytest.mark.parametrize("given, state", [({"dead_queue": "nowhere"}, "42P01"), ({"dead_queue": "texts"}, "42804"),
                                          ({"dead_queue": "alices"}, "42501"), ({"dead_queue": "q"}, "23514")])
def test_what_is_checked_when_it_is_set(q, given, state):
    alice = q.connect("mallory")
    q.create("texts", payload="text")
    q.create("alices")
    bob = q.connect("bob")
    q.rows("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob")
    bob.create("bobs")
    name = "bobs" if state == "42501" else "q"
    (bob if state == "42501" else q).fails(state, "SELECT queue.alter(%s, %s, %s)", name, list(given), list(given.values()))
    alice.fails("42501", "SELECT queue.alter('q', '{dead_queue}', '{graves}')")
    q.rows("SELECT queue.grant('alices', '{push}', '{bob}')")
    bob.rows("SELECT queue.alter('bobs', '{dead_queue}', '{alices}')")
    assert q.value("SELECT dead_queue FROM queue.list() WHERE queue = 'bobs'") == "alices"
    bob.rows("SELECT queue.alter('bobs', '{}', '{}', '{dead_queue}')")
    assert q.value("SELECT dead_queue FROM queue.list() WHERE queue = 'bobs'") is None


def test_no_circle(q):
    q.create("third")
    q.rows("SELECT queue.alter('graves', '{dead_queue}', '{third}')")
    assert "come back" in q.fails("22023", "SELECT queue.alter('third', '{dead_queue}', '{q}')").message_primary
    q.rows("SELECT queue.alter('q', '{}', '{}', '{dead_queue}')")
    q.rows("SELECT queue.alter('third', '{dead_queue}', '{q}')")


def test_no_circle_at_the_same_time(db):
    db.create("a")
    db.create("b")
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.alter('a', '{dead_queue}', '{b}')")
    altering = two.beside(two.rows, "SELECT queue.alter('b', '{dead_queue}', '{a}')")
    db.until_blocked(two)
    one.rows("COMMIT")
    assert "come back" in altering.error_of("22023").message_primary
    assert db.column("SELECT dead_queue FROM queue.list() ORDER BY queue") == ["b", None]
