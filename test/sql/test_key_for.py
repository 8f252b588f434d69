"""KEY ... FOR: a key that stays taken when its job has ended; ON DUPLICATE REPLACE IF NEWER."""

import psycopg
import pytest

DAY = "'2026-01-0%d'"


@pytest.fixture
def q(db):
    db.create("q")
    return db


def push(session, payload="1", **named):
    named = {"key": "k", **named}
    return session.value("SELECT queue.push('q', %s, " + ", ".join('%s => %s' % (n, "%s") for n in named) + ")",
                         payload, *named.values())


def finish(session):
    (job,) = session.take("q")
    session.done(job["token"])
    return job["id"]


def jobs(session):
    return session.rows("SELECT id, payload::text FROM queue.q_q ORDER BY id")


def over(session):
    session.rows("UPDATE queue.keys SET until = until - interval '1 year'")


def test_it_stays_taken(q):
    assert push(q, keep_for="30 days") == 1
    assert push(q) == 1 and push(q, keep_for="1 day") == 1
    assert finish(q) == 1
    assert [push(q), push(q, keep_for="1 h"), push(q, on_duplicate="replace"), push(q, on_duplicate="rerun")] == [1] * 4
    taken = q.fails("23505", "SELECT queue.push('q', '1', key => 'k', on_duplicate => 'error')")
    assert taken.message_primary == 'the key "k" of queue "q" is still taken' and "Job 1 " in taken.message_detail
    assert "REPLACE" not in taken.message_hint
    assert q.rows("SELECT queue._push('q', '{1}', 0, NULL, NULL, NULL, false, key => 'k')") == []
    assert jobs(q) == []
    assert push(q, key="other") == 2
    assert q.value("SELECT until - clock_timestamp() > interval '29 days' FROM queue.keys")
    over(q)
    assert push(q) == 3 and push(q, keep_for="1 day") == 3      # not of the first: it is there without
    finish(q)
    finish(q)
    assert push(q, keep_for="1 day") == 4


@pytest.mark.parametrize("end", ["cancel", "dead", "expire", "pop", "purge", "keep"])
def test_however_it_ends(q, end):
    push(q, keep_for="1 day")
    if end == "cancel":
        q.rows("SELECT queue.cancel('1', 'q')")
    elif end == "dead":
        q.rows("SELECT queue.fail(%s, final => true)", q.take("q")[0]["token"])
    elif end == "expire":
        q.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s'")
    elif end == "pop":
        q.take("q", pop=True)
    elif end == "keep":
        q.rows("SELECT queue.done(%s, keep => true)", q.take("q")[0]["token"])
    else:
        q.rows("SELECT queue.purge('q')")
    assert push(q) == 1
    assert q.take("q") == []


def test_maintenance_frees_it(q):
    push(q, keep_for="1 day")
    push(q, key="l", keep_for="1 day")
    q.rows("SELECT queue.maintain()")
    assert q.connect("postgres").value("SELECT count(*) FROM queue.keys") == 2
    over(q)
    assert q.value("SELECT queue.maintain(1)") == 1
    assert q.value("SELECT queue.maintain()") == 1
    assert q.value("SELECT count(*) FROM queue.keys") == 0
    push(q, key="m", keep_for="1 day")
    q.rows("SELECT queue.drop('q')")
    assert q.value("SELECT count(*) FROM queue.keys") == 0


def test_it_costs_nothing_where_nobody_says_it(q):
    root = q.connect("postgres")
    root.rows("SET track_functions = 'all'")
    looks = []
    for keep in None, "1 day", None:
        root.rows("BEGIN")
        push(root, key="%d" % len(looks), **({"keep_for": keep} if keep else {}))
        looks.append(root.value("SELECT count(*) FROM pg_stat_xact_user_functions WHERE funcname = '_kept_1' AND calls > 0"))
        root.rows("COMMIT")
    assert looks == [0, 1, 1]


def test_what_is_wrong(q):
    for args in ("keep_for => '1 day'", "key => 'k', keep_for => '0'", "key => 'k', keep_for => '-1 s'",
                 "key => 'k', keep_for => '9000 years'", "newer => now()", "key => 'k', newer => now()",
                 "key => 'k', on_duplicate => 'rerun', newer => now()"):
        q.fails("22023", "SELECT queue.push('q', '1', %s)" % args)
    assert jobs(q) == []


def test_it_is_part_of_the_transaction(q):
    q.rows("BEGIN")
    push(q, keep_for="1 day")
    q.rows("ROLLBACK")
    assert push(q) == 2


def test_rights(q):
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    assert push(bob, keep_for="1 day") == 1
    finish(q)
    assert push(bob) == 1
    bob.fails("42501", "SELECT * FROM queue.keys")
    bob.fails("42501", "DELETE FROM queue.keys")
    bob.fails("42501", "SELECT queue._free_keys_1(100)")        # pushes with keys that are over would wait for him
    q.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    bob.rows("SELECT queue._free_keys_1(100)")
    assert push(bob) == 1
    q.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    bob.fails("42501", "SELECT queue._free_keys_1(100)")
    # who calls it himself deletes nothing that is not his
    q.rows("INSERT INTO queue.q_q (payload, key) VALUES ('0', 'k')")
    bob.rows("SELECT queue._kept_1('k', 2, NULL, NULL)")
    assert jobs(q) == [(2, "0")]
    mallory = q.connect("mallory")
    mallory.fails("42501", "SELECT queue._kept_1('k', 2, NULL, NULL)")
    mallory.fails("42501", "SELECT * FROM queue._seek_1('k', NULL)")
    q.rows("SELECT queue.revoke('q', '{push}', '{bob}')")
    bob.fails("42501", "SELECT queue._kept_1('k', 2, NULL, NULL)")


@pytest.mark.parametrize("keep", [None, "1 h"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_done_beside_a_push(q, keep, level, saved):
    """The push waits for the index; when that lets it through the job is done, and its key is not free."""
    one, two = q.connect(), q.connect()
    two.rows("BEGIN ISOLATION LEVEL " + level)
    two.rows("SELECT 1 FROM queue.queues")
    if saved:
        two.rows("SAVEPOINT s")
    one.rows("BEGIN")
    push(one, keep_for="1 day")
    # the job is pushed and done in one transaction: the index lets through whoever waits
    pushing = two.beside(push, two, "2", **({"keep_for": keep} if keep else {}))
    q.until_blocked(two)
    q.take("q")
    one.rows("DELETE FROM queue.q_q")
    one.rows("COMMIT")
    if level == "READ COMMITTED":
        assert pushing.result() == 1
        two.rows("COMMIT")
    else:
        pushing.error_of("40001")
        two.rows("ROLLBACK")
    assert jobs(q) == []


def test_many_at_once(q):
    """Each key is pushed once, whatever is done meanwhile."""
    workers = [q.connect() for _ in range(4)]

    def work(session):
        for n in range(60):
            push(session, key=str(n), keep_for="1 day")
            for job in session.take("q", 5):
                try:
                    session.done(job["token"])
                except psycopg.Error as e:
                    assert e.sqlstate == "QB001"
    for w in [session.beside(work, session) for session in workers]:
        w.result()
    while q.take("q", 100, pop=True):
        pass
    assert q.value("SELECT count(DISTINCT job) FROM queue.keys") == 60
    q.rows("SELECT queue.alter('q', '{retain_done}', '{1 h}')")
    for n in range(60):
        push(q, key=str(n))
    assert jobs(q) == []


def test_one_that_was_run_again_is_not_lost(q):
    push(q)
    q.rows("SELECT queue.fail(%s, final => true)", q.take("q")[0]["token"])
    assert push(q, keep_for="1 day") == 2
    finish(q)
    q.rows("SELECT queue.rerun('1', 'q')")
    assert push(q, "3", on_duplicate="replace", keep_for="1 day") == 1
    assert jobs(q) == [(1, "3")]


# -- IF NEWER ----------------------------------------------------------------------------------


def newer(session, payload, day, **named):
    return push(session, payload, on_duplicate="replace", newer="2026-01-%02d" % day, **named)


def test_what_is_kept_later_remembers_the_time_of_before(q):
    newer(q, "1", 3)
    push(q, "2", keep_for="1 day", on_duplicate="replace")
    assert jobs(q) == [(1, "2")]
    finish(q)
    assert newer(q, "3", 2) == 1 and jobs(q) == []
    assert newer(q, "4", 4) == 2 and jobs(q) == [(2, "4")]


def test_only_what_is_newer_replaces(q):
    assert newer(q, "1", 5) == 1
    assert newer(q, "2", 4) == 1 and newer(q, "3", 5) == 1
    assert jobs(q) == [(1, "1")]
    assert newer(q, "4", 6) == 1
    assert jobs(q) == [(1, "4")]
    assert push(q, "5", on_duplicate="replace") == 1        # who does not say it does not ask
    assert newer(q, "6", 6) == 1
    assert jobs(q) == [(1, "5")]
    assert newer(q, "7", 7) == 1
    # one that runs runs again
    (job,) = q.take("q")
    newer(q, "8", 6)
    q.done(job["token"])
    assert jobs(q) == []
    assert newer(q, "9", 1) == 2                            # nobody remembers
    (job,) = q.take("q")
    newer(q, "10", 2)
    q.done(job["token"])
    assert jobs(q) == [(2, "10")]


def test_with_for_it_is_remembered(q):
    assert newer(q, "1", 5, keep_for="1 h") == 1
    finish(q)
    assert newer(q, "2", 5, keep_for="1 h") == 1 and newer(q, "3", 4) == 1 and push(q) == 1
    assert jobs(q) == []
    assert newer(q, "4", 6, keep_for="1 h") == 2
    assert jobs(q) == [(2, "4")]
    assert newer(q, "5", 7) == 2
    finish(q)
    assert newer(q, "6", 7) == 2
    assert newer(q, "7", 8) == 3
    finish(q)
    assert newer(q, "8", 8, keep_for="1 h") == 3


def test_a_move_has_them_too(q):
    q.create("p")
    q.push("p", "1", "1")
    for _ in range(2):
        (job,) = q.take("p")
        assert q.value("SELECT queue.move(%s, 'q', key => 'k', keep_for => '1 h')", job["token"]) == 1
        for other in q.take("q"):
            q.done(other["token"])
