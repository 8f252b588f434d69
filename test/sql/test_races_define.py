"""CREATE, ALTER, DROP, PAUSE, GRANT and what everybody else does meanwhile, stepped against each
other. Who must wait is seen in pg_blocking_pids."""

import itertools
import json
import random

import psycopg
import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


def token_of(session, queue="q"):
    session.push(queue, "1")
    return session.take(queue)[0]["token"]


def alter(session, **options):
    session.rows("SELECT queue.alter('q', %s::text[], %s::text[])", list(options),
                 [str(value) for value in options.values()])


def drop(session, queue="q"):
    session.rows("SELECT queue.drop(%s)", queue)


# What a session does to the queue, with a job that it has taken.
OPEN = {
    "push": "SELECT queue.push('q', '1')",
    "key": "SELECT queue.push('q', '1', key => 'k')",
    "group": "SELECT queue.push('q', '1', \"group\" => 'g')",
    "take": "SELECT queue.take('q')",
    "pop": "SELECT queue.pop('q')",
    "done": "SELECT queue.done(%(token)s)",
    "result": "SELECT queue.done(%(token)s, '1')",
    "fail": "SELECT queue.fail(%(token)s, 'e')",
    "release": "SELECT queue.release(%(token)s)",
    "extend": "SELECT queue.extend(%(token)s)",
    "cancel": "SELECT queue.cancel(%(token)s)",
    "purge": "SELECT queue.purge('q')",
    "redrive": "SELECT queue.redrive('q')",
    "peek": "SELECT queue.peek('q')",
    "kept": "SELECT queue.peek('q', 10, 'done')",
    "stats": "SELECT queue.stats('q')",
    "errors": "SELECT queue.errors('q')",
    "job": "SELECT queue.job(%(token)s)",
    "await": "SELECT queue.await(%(token)s)",
}


def begin(session, name):
    """In a transaction that stays open, with a job that is taken and one that is ready."""
    token = token_of(session)
    session.push("q", "2")
    session.rows("BEGIN")
    session.conn.execute(OPEN[name], {"token": token})
    return token


# -- create ------------------------------------------------------------------------------------

def test_create_of_two_names(db):
    """Nobody waits for a queue of another name."""
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.create("one", payload="text", max_length=3, retain_done="1 h", unlogged="on")
    two.create("two", payload="bytea", max_length=3)
    assert db.column("SELECT queue FROM queue.list()") == ["two"]
    one.rows("COMMIT")
    assert db.column("SELECT queue FROM queue.list()") == ["one", "two"]
    for name in ("one", "two"):
        assert db.push(name, "1") == [1]


def test_create_is_not_seen_before_its_commit(db):
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.create("q")
    one.push("q", "1")
    assert two.rows("SELECT * FROM queue.stats()") == []
    for sql in ("SELECT queue.push('q', '1')", "SELECT queue.take('q')", "SELECT queue.drop('q')",
                "SELECT queue.alter('q')", "SELECT queue.pause('q')", "SELECT queue.peek('q')",
                "SELECT queue.stats('q')", "SELECT queue.grant('q', '{push}', '{bob}')"):
        two.fails("42P01", sql)
    one.rows("COMMIT")
    assert [job["id"] for job in two.take("q")] == [1]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_create_while_it_is_dropped_and_created(q, end):
    """Dropped and created anew in one transaction: the others have the old one or the new one."""
    one, two = q.connect(), q.connect()
    q.push("q", "1")
    one.rows("BEGIN")
    drop(one)
    one.create("q", payload="text")
    two.fails("42P07", "SELECT queue.create('q')")
    two.rows("SELECT queue.create('q', true)")
    one.rows(end)
    if end == "COMMIT":
        assert q.rows("SELECT queue, payload FROM queue.list()") == [("q", "text")]
        assert two.push("q", "not JSON") == [1]
    else:
        assert [job["id"] for job in two.take("q")] == [1]


# -- drop, and everybody else ------------------------------------------------------------------

@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_drop_waits_for_who_uses_it(db, end):
    one, two = db.connect(), db.connect()
    for name in OPEN:
        db.create("q")
        begin(one, name)
        dropping = two.beside(drop, two)
        db.until_blocked(two)
        one.rows(end)
        dropping.result()
        assert db.rows("SELECT * FROM queue.list()") == [], name
        assert db.value("SELECT count(*) FROM pg_class WHERE relnamespace = 'queue'::regnamespace AND "
                        "relname ~ '^([qab]_q|n[0-9])'") == 0, name


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_who_comes_while_it_is_dropped(db, end):
    """Waits for the drop; afterwards there is no such queue, or nothing has happened."""
    one, two = db.connect(), db.connect()
    for name, sql in OPEN.items():
        db.rows("SELECT queue.create('q', true)")
        args = {"token": token_of(db)}
        db.push("q", "2")
        one.rows("BEGIN")
        drop(one)
        call = two.beside(lambda: two.conn.execute(sql, args).fetchall())
        db.until_blocked(two)
        one.rows(end)
        if end == "ROLLBACK":
            call.result()
            drop(one)
        elif name == "await":
            call.error_of("QB003")
        else:
            assert "does not exist" in call.error_of("42P01").message_primary, name


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_who_looks_at_all_queues_while_one_is_dropped(db, end):
    """One that goes away is passed over, and is no error for the others."""
    db.create("r")
    db.rows("SELECT queue.done(%s, '1')", token_of(db, "r"))
    db.rows("UPDATE queue.a_r SET ended_at = ended_at - interval '2 h'")
    db.rows("SELECT set_config('qbouncer.proxy', '7', false)")
    token_of(db, "r")
    one, two = db.connect(), db.connect()
    for sql in ("SELECT queue FROM queue.stats() WHERE queue = 'r'",
                "SELECT queue FROM queue._gauges(10) WHERE queue = 'r'",
                "SELECT DISTINCT coalesce(_orphans, 'r') FROM queue._orphans('{}')",   # waits for 50 ms, then NULL: again
                "SELECT CASE maintain WHEN 1 THEN 'r' END FROM queue.maintain()"):
        db.rows("SELECT queue.create('a', true)")
        one.rows("BEGIN")
        drop(one, "a")
        call = two.beside(two.column, sql)
        db.until_blocked(two, call)
        one.rows(end)
        assert call.result() == ["r"], sql


def test_drop_while_somebody_awaits(q):
    """Whoever asks has the queue's table before its sequence, as the drop has: no circle."""
    q.push("q", "1")
    one, two, three = q.connect(), q.connect(), q.connect()
    # the drop waits for this one, and the question for the drop
    one.rows("BEGIN")
    one.rows("SELECT queue.peek('q')")
    dropping = two.beside(drop, two)
    q.until_blocked(two)
    for ref in ("1", q.value("SELECT number || '-1' FROM queue.queues")):
        three.rows("BEGIN")
        asking = three.beside(three.rows, "SELECT * FROM queue.await(%s)", ref)
        q.until_blocked(three)
        if ref != "1":
            break
        three.conn.cancel()
        asking.error_of("57014")
        three.rows("ROLLBACK")
    one.rows("COMMIT")
    dropping.result()
    asking.error_of("QB003")


# -- alter -------------------------------------------------------------------------------------

# What the table itself has no part in: nobody waits.
def test_alter_beside_who_uses_it(db):
    one, two = db.connect(), db.connect()
    for name in OPEN:
        db.create("q")
        begin(one, name)
        alter(two, lease="1 h", retain_done="2 h", retain_dead="1 d", durability="async", retry="none",
              on_disconnect="keep", max_attempts=1)
        two.rows("SELECT queue.pause('q')")
        two.rows("SELECT queue.resume('q')")
        one.rows("COMMIT")
        assert db.row("SELECT lease, retain_done, durability FROM queue.list()") == \
            ("01:00:00", "02:00:00", "async"), name
        drop(db)


# What is written anew, or gets or loses a trigger: who changes rows is waited for.
@pytest.mark.parametrize("before,after", [
    ({}, {"unlogged": "on"}),
    ({"unlogged": "on"}, {"unlogged": "off"}),
    ({}, {"max_length": 9}),
    ({"max_length": 9}, {"max_length": 8}),
])
def test_alter_waits_for_who_uses_it(db, before, after):
    one, two = db.connect(), db.connect()
    for name, left in {"push": 3, "key": 3, "group": 3, "pop": 1, "done": 1, "result": 1, "take": 2,
                       "fail": 2}.items():
        db.create("q", **before)
        token = begin(one, name)
        altering = two.beside(alter, two, **after)
        db.until_blocked(two)
        one.rows("COMMIT")
        altering.result()
        # nothing was lost by it, and everything goes on
        assert db.value("SELECT count(*) FROM queue.q_q") == left, name
        assert db.push("q", "3") == [max(left, 2) + 1]
        if name in ("push", "pop"):
            assert db.done(token) == ["q"]
        drop(db)


def test_who_comes_while_the_limit_is_taken_away(q):
    alter(q, max_length=1)
    q.push("q", "1")
    one, two = q.connect(), q.connect()
    for end, sqlstate in (("ROLLBACK", "QB004"), ("COMMIT", None)):
        one.rows("BEGIN")
        one.rows("SELECT queue.alter('q', '{}', '{}', '{max_length}')")
        push = two.beside(two.push, "q", "2")
        q.until_blocked(two)
        one.rows(end)
        if sqlstate:
            push.error_of(sqlstate)
        else:
            assert len(push.result()) == 1


def test_a_push_by_the_old_limit(q):
    """A push that counts by the old limit notes how many more ids that allows: no more than the new
    limit, once it is committed."""
    alter(q, max_length=10)
    for n in range(6):
        q.push("q", "1")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    alter(one, max_length=7)
    push = two.beside(two.push, "q", "1")
    q.until_blocked(two)
    one.rows("COMMIT")
    assert len(push.result()) == 1
    q.fails("QB004", "SELECT queue.push('q', '1')")
    assert q.value("SELECT count(*) FROM queue.q_q") == 7


def test_async_while_a_push_is_open(q):
    """The durability that a transaction had when it pushed is its own."""
    one, two = q.connect(), q.connect()
    begin(one, "push")
    alter(two, durability="async")
    assert one.value("SELECT current_setting('synchronous_commit')") == "on"
    one.rows("COMMIT")


@pytest.mark.parametrize("first,second", [("1 h", "0"), ("0", "1 h")])
@pytest.mark.parametrize("result", [None, "7"])
def test_retention_changes_while_a_job_ends(q, first, second, result):
    """DONE goes by what is committed when it is said. With a RESULT it is kept in any case."""
    alter(q, retain_done=first)
    token = token_of(q)
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    alter(one, retain_done=second)
    two.rows("BEGIN")
    two.rows("SELECT queue.done(%s, %s::jsonb)", token, result)
    one.rows("COMMIT")
    two.rows("COMMIT")
    kept = q.rows("SELECT state, result FROM queue.await(%s)", token)
    if result is None and first == "0":
        assert kept == [("gone", None)]
    else:
        assert kept == [("done", result and json.loads(result))]


def test_alter_and_drop(q):
    one, two = q.connect(), q.connect()
    for first, second in ((alter, drop), (drop, alter)):
        args = {alter: {"lease": "1 h", "max_length": 5}, drop: {}}
        one.rows("BEGIN")
        first(one, **args[first])
        call = two.beside(second, two, **args[second])
        q.until_blocked(two)
        one.rows("COMMIT")
        if second is drop:
            call.result()
        else:
            call.error_of("42P01")
        if second is drop:
            q.create("q")


def test_alter_rolled_back(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    alter(one, max_length=1, lease="1 h")
    altering = two.beside(alter, two, max_attempts=3)
    q.until_blocked(two)
    one.rows("ROLLBACK")
    altering.result()
    assert q.row("SELECT lease, max_attempts, max_length FROM queue.list()") == ("00:05:00", 3, None)
    assert len(q.push("q", "1", "2")) == 2


# What a statement needs that waits for an ALTER, which takes it away: options, the ALTER, what waits, what comes of it.
TAKEN_AWAY = {
    "take": ({"single_consumer": "on"}, "single_consumer", "SELECT payload FROM queue.take('q')", [2]),
    "pop": ({"single_consumer": "on"}, "single_consumer", "SELECT payload FROM queue.pop('q')", [2]),
    "a proxy's take": ({"single_consumer": "on"}, "single_consumer",
                       "SELECT t.payload FROM queue.queues AS c, LATERAL queue._take_1(c, 1, '1 h', 'w', 7, false, '{0}', '{0}', 0,"
                       " clock_timestamp(), NULL) AS t", [2]),
    "grouped": ({"single_consumer": "on"}, "single_consumer", "SELECT payload FROM queue.take('q', 9, grouped => true)", [2, 3]),
    "grouped, limits stay": ({"single_consumer": "on", "max_running": 3}, "single_consumer",
                             "SELECT payload FROM queue.take('q', 9, grouped => true)", [2, 3]),
    "grouped, of limits": ({"max_running": 3}, "max_running", "SELECT payload FROM queue.take('q', 9, grouped => true)", [2, 3]),
    "of a limit and a consumer": ({"single_consumer": "on", "max_running": 3}, "single_consumer",
                                  "SELECT payload FROM queue.take('q', 9)", [2]),
    "the consumer is gone": ({"single_consumer": "on"}, "single_consumer",
                             "SELECT queue._give_back(ARRAY['1-0-00000000000000a1', %(token)s], '', false)", ["q"]),
    "the consumer alone": ({"single_consumer": "on"}, "single_consumer",
                           "SELECT queue._give_back(ARRAY['1-0-00000000000000a1'], '', false)", []),
    "given back": ({"max_running": 3}, "max_running", "SELECT queue._give_back(ARRAY[%(token)s], NULL, false)", ["q"]),
    "given back, a rate": ({"rate": "9/s"}, "rate", "SELECT queue._give_back(ARRAY[%(token)s], NULL, false)", ["q"]),
    "list": ({"single_consumer": "on"}, "single_consumer", "SELECT consumer FROM queue.list()", [None]),
    "stats": ({"rate_per_group": "9/s"}, "rate_per_group", "SELECT total FROM queue.stats('q')", [3]),
    "stats of all": ({"pause_per_group": "1 s"}, "pause_per_group", "SELECT total FROM queue.stats()", [3]),
    "health": ({"rate_per_group": "9/s"}, "rate_per_group", "SELECT name FROM queue.health('q') WHERE about = 'queue'", ["q"]),
    "health of places": ({"max_running_per_group": "2"}, "max_running_per_group",
                         "SELECT name FROM queue.health('q') WHERE about = 'queue'", ["q"]),
    "gauges": ({"rate_per_group": "9/s"}, "rate_per_group", "SELECT queue FROM queue._gauges(10)", ["q"]),
}


@pytest.mark.parametrize("what", TAKEN_AWAY)
def test_who_waits_for_an_alter_that_takes_away_what_he_needs(db, what):
    options, goes, sql, wanted = TAKEN_AWAY[what]
    db.create("q", **options)
    args = {"token": token_of(db)}
    db.rows("SELECT queue.push('q', '2', \"group\" => 'g'), queue.push('q', '3', \"group\" => 'g')")
    db.rows("UPDATE queue.n1_consumer SET token = NULL") if "single_consumer" in options else None
    one, two = db.connect(), db.connect()
    for end in ("ROLLBACK", "COMMIT"):
        one.rows("BEGIN")
        one.rows("LOCK TABLE queue.q_q IN ACCESS EXCLUSIVE MODE")
        one.rows("SELECT queue.alter('q', '{}', '{}', %s)", [goes])
        if end == "ROLLBACK":
            two.rows("BEGIN")
        call = two.beside(lambda: [r[0] for r in two.conn.execute(sql, args).fetchall()])
        db.until_blocked(two)
        one.rows(end)
        if end == "ROLLBACK":   # who has run it before has its plans
            call.result()
            two.rows("ROLLBACK")
        else:
            assert call.result() == wanted


def test_given_back_beside_a_drop(db):
    """What is of other queues is given back by who says it again."""
    db.create("q")
    db.create("r")
    tokens = [token_of(db, "q"), token_of(db, "r")]
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    drop(one)
    call = two.beside(two.column, "SELECT queue._give_back(%s, NULL, false)", tokens)
    db.until_blocked(two)
    one.rows("COMMIT")
    call.error_of("42P01")
    assert db.column("SELECT queue._give_back(%s, NULL, false)", tokens) == ["r"]


# -- pause and resume --------------------------------------------------------------------------

def test_pause_and_take(q):
    """A pause counts when it is committed; who has taken before has taken."""
    q.push("q", "1", "2", "3")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.pause('q')")
    two.rows("BEGIN")
    (job,) = two.take("q")
    one.rows("COMMIT")
    assert two.take("q") == []
    two.rows("COMMIT")
    assert q.done(job["token"]) == ["q"]
    one.rows("BEGIN")
    one.rows("SELECT queue.resume('q')")
    assert two.take("q") == []
    one.rows("COMMIT")
    assert len(two.take("q", 5)) == 2


def test_pause_and_pause(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.pause('q')")
    second = two.beside(two.rows, "SELECT queue.pause('q')")
    q.until_blocked(two)
    one.rows("COMMIT")
    second.result()
    assert q.value("SELECT paused FROM queue.list()")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_pause_and_drop(q, verb):
    if verb == "resume":
        q.rows("SELECT queue.pause('q')")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    drop(one)
    call = two.beside(two.rows, "SELECT queue.%s('q')" % verb)
    q.until_blocked(two)
    one.rows("COMMIT")
    assert call.error_of("42P01").message_primary == 'queue "q" does not exist'


# -- grant and revoke --------------------------------------------------------------------------

GRANT = "SELECT queue.grant('q', '{push,take,await}', %s)"
REVOKE = "SELECT queue.revoke('q', '{take}', %s)"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_grant_and_grant(q, end):
    """One after the other: both hold, as if they had been said in this order."""
    one, two = q.connect(), q.connect()
    for first, second in itertools.product((GRANT, REVOKE), repeat=2):
        q.rows(GRANT, ["bob", "mallory"])
        one.rows("BEGIN")
        one.rows(first, ["bob"])
        call = two.beside(two.rows, second, ["mallory"])
        q.until_blocked(two)
        one.rows(end)
        call.result()
        for role, last in (("bob", first if end == "COMMIT" else GRANT), ("mallory", second)):
            has = q.row("SELECT has_column_privilege(%s, 'queue.q_q', 'payload', 'INSERT'), "
                        "has_table_privilege(%s, 'queue.q_q', 'UPDATE')", role, role)
            assert has == (True, last is GRANT), role


@pytest.mark.parametrize("sql", [GRANT, REVOKE])
def test_grant_and_drop(q, sql):
    one, two = q.connect(), q.connect()
    for end in ("ROLLBACK", "COMMIT"):
        one.rows("BEGIN")
        drop(one)
        call = two.beside(two.rows, sql, ["bob"])
        q.until_blocked(two)
        one.rows(end)
        if end == "COMMIT":
            call.error_of("42P01")
        else:
            call.result()


def test_drop_and_alter_while_rights_change(q):
    one, two = q.connect(), q.connect()
    for sql, other, options in ((GRANT, alter, {"unlogged": "on"}), (REVOKE, alter, {"unlogged": "off"}),
                                (GRANT, drop, {})):
        one.rows("BEGIN")
        one.rows(sql, ["bob"])
        call = two.beside(other, two, **options)
        q.until_blocked(two)
        one.rows("COMMIT")
        call.result()


def test_grant_beside_who_uses_it(q):
    """Nobody waits, neither way."""
    one, two, three = q.connect(), q.connect(), q.connect()
    for name in OPEN:
        begin(one, name)
        two.rows("BEGIN")
        two.rows(GRANT, ["bob"])
        two.rows(REVOKE, ["bob"])
        three.push("q", "9")
        three.take("q", 9)
        two.rows("COMMIT")
        one.rows("COMMIT")
        q.value("SELECT queue.purge('q')")


def test_revoke_while_the_role_works(q):
    """What it has done counts; what it does next is refused."""
    q.rows(GRANT, ["bob"])
    q.push("q", "1", "2")
    bob = q.connect("bob")
    bob.rows("BEGIN")
    first, second = [job["token"] for job in bob.take("q", 2)]
    bob.done(first)
    q.rows(REVOKE, ["bob"])
    bob.fails("42501", "SELECT queue.done(%s)", second)
    bob.rows("ROLLBACK")
    q.rows(GRANT, ["bob"])
    bob.rows("BEGIN")
    first, second = [job["token"] for job in bob.take("q", 2)]
    bob.done(first)
    q.rows(REVOKE, ["bob"])
    bob.rows("COMMIT")
    assert q.column("SELECT id FROM queue.q_q") == [2]


# -- looking -----------------------------------------------------------------------------------

def test_looking_at_what_is_not_committed(q):
    """Nobody who looks waits, and nobody sees what is not committed."""
    token = token_of(q)
    q.rows("SELECT queue.fail(%s, 'broken', final => true)", token_of(q))
    q.push("q", "2")
    look = ("SELECT ready, leased, dead, done FROM queue.stats('q')",
            "SELECT id, state FROM queue.peek('q') ORDER BY 1",
            "SELECT id, state, result FROM queue.peek('q', 10, 'done')",
            "SELECT error, jobs FROM queue.errors('q')",
            "SELECT state, error FROM queue.job('1')",
            "SELECT queue, max_length, paused FROM queue.list()",
            "SELECT state, result FROM queue.await('1')",
            "SELECT ready, later, leased, dead FROM queue._gauges(10)")
    before = [q.rows(sql) for sql in look]
    one = q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.done(%s, '7')", token)
    one.rows("SELECT queue.redrive('q')")
    one.push("q", "3")
    one.rows("SELECT queue.pause('q')")
    assert [q.rows(sql) for sql in look] == before
    one.rows("COMMIT")
    assert [q.rows(sql) for sql in look] == [
        [(3, 0, 0, 1)], [(2, "ready"), (3, "ready"), (4, "ready")], [(1, "done", 7)],
        [], [("done", None)], [("q", None, True)], [("done", 7)], [(3, 0, 0, 0)]]


def test_purge_and_done(q):
    """Neither waits: what is worked on is not purged, and what is done is gone."""
    token = token_of(q)
    q.push("q", "2")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.done(%s, '1')", token)
    assert two.value("SELECT queue.purge('q')") == 1
    one.rows("COMMIT")
    assert q.value("SELECT queue.purge('q')") == 1          # the result
    two.rows("BEGIN")
    two.value("SELECT queue.purge('q')")
    token = token_of(q)
    assert q.done(token) == ["q"]
    two.rows("COMMIT")


def test_purge_and_purge(q):
    q.push("q", "1", "2", "3")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    assert one.value("SELECT queue.purge('q')") == 3
    second = two.beside(two.value, "SELECT queue.purge('q')")
    q.until_blocked(two)
    one.rows("COMMIT")
    assert second.result() == 0


def test_purge_rolled_back_and_take(q):
    q.push("q", "1", "2")
    one = q.connect()
    one.rows("BEGIN")
    one.value("SELECT queue.purge('q')")
    assert q.take("q", 5) == []             # passed over, not waited for
    one.rows("ROLLBACK")
    assert len(q.take("q", 5)) == 2


def test_fail_and_purge_of_the_dead(q):
    """Dead when the failure is committed, and not before."""
    token = token_of(q)
    one = q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.fail(%s, 'e', final => true)", token)
    assert q.value("SELECT queue.purge('q', 'dead')") == 0
    one.rows("COMMIT")
    assert q.value("SELECT queue.purge('q', 'dead')") == 1


def test_redrive_and_redrive(q):
    """Each dead job once; who comes second passes over what is locked."""
    for _ in range(3):
        q.rows("SELECT queue.fail(%s, 'e', final => true)", token_of(q))
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    assert one.value("SELECT queue.redrive('q', 2)") == 2
    assert two.value("SELECT queue.redrive('q')") == 1
    one.rows("COMMIT")
    assert len(q.take("q", 9)) == 3


# -- the archive -------------------------------------------------------------------------------

def test_result_and_maintain(q):
    """What ends while old things are deleted is kept, and nobody waits."""
    q.rows("SELECT queue.done(%s, '1')", token_of(q))
    q.rows("UPDATE queue.a_q SET ended_at = ended_at - interval '2 h'")
    token = token_of(q)
    one = q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.done(%s, '2')", token)
    assert q.value("SELECT queue.maintain()") == 1
    one.rows("COMMIT")
    assert q.column("SELECT result FROM queue.peek('q', 5, 'done')") == [2]


def test_maintain_and_await(q):
    """A result that goes away while somebody asks: it is there until that is committed."""
    token = token_of(q)
    q.rows("SELECT queue.done(%s, '1')", token)
    q.rows("UPDATE queue.a_q SET ended_at = ended_at - interval '2 h'")
    one = q.connect()
    one.rows("BEGIN")
    assert one.value("SELECT queue.maintain()") == 1
    assert q.row("SELECT state, result FROM queue.await(%s)", token) == ("done", 1)
    assert q.row("SELECT state, result FROM queue.job(%s)", token) == ("done", 1)
    one.rows("COMMIT")
    assert q.row("SELECT state, result FROM queue.await(%s)", token) == ("gone", None)
    q.fails("QB003", "SELECT queue.job(%s)", token)


def test_purge_of_the_archive_and_result(q):
    token = token_of(q)
    q.rows("SELECT queue.done(%s, '1')", token_of(q))
    one = q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.done(%s, '2')", token)
    assert q.value("SELECT queue.purge('q', 'done')") == 1
    one.rows("COMMIT")
    assert q.column("SELECT result FROM queue.peek('q', 5, 'done')") == [2]


# -- another queue of that name ----------------------------------------------------------------

@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kind", ["jsonb", "text"])
def test_made_anew_with_another_type(q, kind, warm):
    """Who comes while a queue is dropped and made anew in one transaction has one of both, and
    nothing of the other."""
    one, two = q.connect(), q.connect()
    if warm:                                # its statements are prepared for the old one
        two.push("q", "0")
        assert len(two.take("q")) == 1
    one.rows("BEGIN")
    drop(one)
    one.create("q", payload=kind)
    push = two.beside(two.push, "q", "1")
    q.until_blocked(two)
    one.rows("COMMIT")
    try:
        assert push.result() == [1]
    except psycopg.Error as error:
        assert error.sqlstate in ("42P01", "42804", "42883")
    # from the next statement on it is the new one
    assert two.push("q", '"2"')
    take = "SELECT payload FROM queue.take_text('q', 5)" if kind == "text" else \
        "SELECT payload::text FROM queue.take('q', 5)"
    assert two.column(take)[-1] == '"2"'


# -- everything at once ------------------------------------------------------------------------

CALLS = [sql.replace("'q'", "%(q)s") for sql in OPEN.values()] + [
    "SELECT queue.cancel_all(%(q)s)",
    "SELECT queue.list()", "SELECT queue.stats()", "SELECT queue._gauges(100)", "SELECT queue.maintain()",
    "SELECT queue._orphans('{}')", "SELECT queue.job('1')", "SELECT queue.await('1')",
    "SELECT queue.rerun(%(token)s)",
    "SELECT queue.create(%(q)s)", "SELECT queue.create(%(q)s, true)", "SELECT queue.drop(%(q)s)",
    "SELECT queue.pause(%(q)s)", "SELECT queue.resume(%(q)s)",
    "SELECT queue.grant(%(q)s, '{push,take,await}', '{bob}')", "SELECT queue.revoke(%(q)s, '{take}', '{bob}')",
] + ["SELECT queue.alter(%%(q)s, '{%s}', '{%s}')" % option for option in (
    ("lease", "1 h"), ("max_length", 5), ("unlogged", "on"), ("unlogged", "off"), ("retain_done", "1 h"),
    ("durability", "async"))] + ["SELECT queue.alter(%(q)s, '{}', '{}', '{max_length,retain_done}')"]

# What a user may be told. 42883: of a queue that has just been dropped, by a function of its own.
EXPECTED = {"42P01", "42P07", "42883", "22023", "42804", "55000", "QB001", "QB002", "QB003", "QB004"}


def test_no_circles(db):
    """Six sessions do all of this to two queues, one statement a transaction: no deadlock, and no
    error of Postgres' insides, whatever meets."""
    queues = ("a", "b")
    for name in queues:
        db.create(name)
    tokens = ["1-1-0000000000000000"]
    wrong = []

    def work(session, seed):
        dice = random.Random(seed)
        for _ in range(250):
            sql = dice.choice(CALLS)
            try:
                rows = session.conn.execute(sql, {"q": dice.choice(queues), "token": dice.choice(tokens[-8:])}).fetchall()
                if "queue.take" in sql:
                    tokens.extend(row[0][1] for row in rows)
            except psycopg.Error as error:
                if error.sqlstate not in EXPECTED:
                    wrong.append((sql, str(error)))

    calls = [session.beside(work, session, n) for n, session in enumerate(db.connect() for _ in range(6))]
    for call in calls:
        call.result()
    assert wrong == [], "\n".join(str(w) for w in wrong)
