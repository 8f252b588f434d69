"""Two and three sessions, stepped against each other. Who must wait is seen in pg_blocking_pids,
so nothing depends on time."""

import collections
import threading

import psycopg
import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


def token_of(session, queue="q"):
    session.push(queue, "1")
    return session.take(queue)[0]["token"]


# -- taking ------------------------------------------------------------------------------------

def test_take_and_take(q):
    q.push("q", "1", "2", "3")
    one, two, three = q.connect(), q.connect(), q.connect()
    one.rows("BEGIN")
    assert [job["id"] for job in one.take("q")] == [1]
    assert [job["id"] for job in two.take("q")] == [2]
    three.rows("BEGIN")
    assert [job["id"] for job in three.take("q", 5)] == [3]
    assert two.take("q") == []
    one.rows("ROLLBACK")
    assert [job["id"] for job in two.take("q")] == [1]
    three.rows("COMMIT")
    assert two.take("q") == []


def test_pop_and_take(q):
    q.push("q", "1", "2")
    one = q.connect()
    one.rows("BEGIN")
    assert [job["id"] for job in one.take("q", pop=True)] == [1]
    assert [job["id"] for job in q.take("q", 5)] == [2]
    one.rows("ROLLBACK")
    assert [job["id"] for job in q.take("q", 5)] == [1]


def test_push_uncommitted_and_take(q):
    one = q.connect()
    one.rows("BEGIN")
    one.push("q", "1")
    assert q.take("q") == []
    q.push("q", "2")
    assert [job["id"] for job in q.take("q", 5)] == [2]
    one.rows("COMMIT")
    # it got its position first and committed last: found all the same
    assert [job["id"] for job in q.take("q", 5)] == [1]


def test_two_promote_at_once(q):
    q.push("q", "1", "2", delay="1 h")
    q.expire("q")
    one = q.connect()
    one.rows("BEGIN")
    assert [job["id"] for job in one.take("q")] == [1]
    assert q.take("q", 5) == []              # job 2 was promoted by one, not yet committed
    one.rows("COMMIT")
    assert [job["id"] for job in q.take("q", 5)] == [2]


def test_take_in_the_past_of_a_snapshot(q):
    """REPEATABLE READ cannot see what happened since: an error to repeat, never a job twice."""
    q.push("q", "1", "2")
    one = q.connect()
    one.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    one.rows("SELECT 1 FROM queue.q_q")
    assert [job["id"] for job in q.take("q")] == [1]
    one.fails("40001", "SELECT * FROM queue._take(ARRAY['q'], 1, NULL, NULL, false)")
    one.rows("ROLLBACK")
    assert [job["id"] for job in one.take("q")] == [2]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_every_isolation_level(q, level):
    q.rows("SET default_transaction_isolation = '%s'" % level.lower())
    q.push("q", "1", "2", "3")
    a, b, c = [job["token"] for job in q.take("q", 3)]
    assert q.done(a) == ["q"]
    q.rows("SELECT queue.fail(%s, 'e', '0')", b)
    q.rows("SELECT queue.release(%s)", c)
    with q.conn.transaction():
        q.push("q", "4")
        tokens = [job["token"] for job in q.take("q", 9)]
        assert q.done(*tokens) == ["q"] * 3


# -- ends of leases ----------------------------------------------------------------------------

def test_done_and_expiry(q):
    """The DONE came in time and is not committed: its job is not promoted, and the lease that
    ends meanwhile changes nothing."""
    token = token_of(q)
    one = q.connect()
    one.rows("BEGIN")
    one.done(token)
    q.rows("SELECT set_config('statement_timeout', '20s', false)")
    assert q.take("q") == []
    one.rows("COMMIT")
    assert q.rows("SELECT * FROM queue.q_q") == []


def test_expiry_and_done(q):
    """The other order: promoted and taken, not committed, when the late DONE comes. It waits for
    that transaction and is refused."""
    token = token_of(q)
    q.expire("q")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    assert len(one.take("q")) == 1
    late = two.beside(two.done, token)
    one.rows("COMMIT")
    late.error_of("QB001")
    assert q.job("q", 1)["attempt"] == 2


def test_give_back_and_done(q):
    token = token_of(q)
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)", token)
    done = two.beside(two.done, token)
    q.until_blocked(two)
    one.rows("COMMIT")
    done.error_of("QB001")
    assert q.job("q", 1)["state"] == "ready"


def test_done_and_give_back(q):
    token = token_of(q)
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.done(token)
    back = two.beside(two.column, "SELECT queue._give_back(ARRAY[%s], 'x', true)", token)
    q.until_blocked(two)
    one.rows("COMMIT")
    assert back.result() == []
    assert q.rows("SELECT * FROM queue.q_q") == []


def test_done_rolled_back_and_give_back(q):
    """The worker died with its DONE not committed: the job is given back after all."""
    token = token_of(q)
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.done(token)
    back = two.beside(two.column, "SELECT queue._give_back(ARRAY[%s], 'x', true)", token)
    q.until_blocked(two)
    one.rows("ROLLBACK")
    assert back.result() == ["q"]


@pytest.mark.parametrize("first,second", [
    ("SELECT queue.done(%s)", "SELECT queue.done(%s)"),
    ("SELECT queue.done(%s)", "SELECT queue.fail(%s)"),
    ("SELECT queue.fail(%s)", "SELECT queue.done(%s)"),
    ("SELECT queue.release(%s)", "SELECT queue.extend(%s)"),
])
def test_two_end_one_lease(q, first, second):
    token = token_of(q)
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows(first, token)
    call = two.beside(two.rows, second, token)
    q.until_blocked(two)
    one.rows("COMMIT")
    call.error_of("QB001")


def test_extend_and_expiry(q):
    """The lease is over while its extension waits to be committed: the extension holds."""
    token = token_of(q)
    one = q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.extend(%s, '1 h')", token)
    assert q.take("q") == []
    one.rows("COMMIT")
    assert q.take("q") == []
    assert q.done(token) == ["q"]


def test_batches_in_opposite_orders_do_not_deadlock(q):
    q.push("q", *["1"] * 200)
    tokens = [job["token"] for job in q.take("q", 200)]
    one, two = q.connect(), q.connect()
    for n in range(20):
        calls = [one.beside(one.rows, "SELECT * FROM queue._extend(%s, '1 h')", tokens),
                 two.beside(two.rows, "SELECT * FROM queue._extend(%s, '2 h')", tokens[::-1])]
        for call in calls:
            assert len(call.result()) == 200


def test_purge_and_take(q):
    q.push("q", "1", "2")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.take("q")
    purge = two.beside(two.value, "SELECT queue.purge('q')")
    q.until_blocked(two)
    one.rows("COMMIT")
    assert purge.result() == 1
    assert q.column("SELECT id FROM queue.q_q") == [1]


@pytest.mark.parametrize("first, second, gone", [
    ("SELECT queue.purge('q')", None, 2), ("SELECT queue.cancel_all('q')", "SELECT queue.purge('q')", 4),
])
def test_purge_beside_who_lets_others_of_groups_go(q, first, second, gone):
    """Jobs 4 and 3 are behind 1 and 2. Who has done these lets 4 go, and then 3; who deletes the jobs that wait comes
    to them in the same order, or each would have what the other waits for."""
    q.connect("postgres").rows("ALTER DATABASE %s SET deadlock_timeout = '20ms'" % q.name)
    for group in ("g", "h", "h", "g"):
        q.rows("SELECT queue.push('q', '1', \"group\" => %s)", group)
    tokens = [job["token"] for job in q.take("q", 9)]
    assert [token.split("-")[1] for token in tokens] == ["1", "2"]
    holder, one, two = q.connect(), q.connect(), q.connect()
    holder.rows("BEGIN")
    holder.rows("SELECT FROM queue.q_q WHERE id = 3 FOR UPDATE")
    purge = one.beside(one.value, first)
    q.until_blocked(one)
    other = two.beside(two.value, second) if second else two.beside(two.done, *tokens)
    q.until_blocked(two)
    holder.rows("COMMIT")
    assert purge.result() == gone
    assert other.result() == (0 if second else ["q", "q"])
    assert q.column("SELECT id FROM queue.q_q WHERE state <> 'leased'") == []


# -- definition --------------------------------------------------------------------------------

@pytest.mark.parametrize("end,sqlstate", [("COMMIT", "42P07"), ("ROLLBACK", None)])
def test_create_and_create(db, end, sqlstate):
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.create("q")
    second = two.beside(two.create, "q")
    db.until_blocked(two)
    one.rows(end)
    if sqlstate:
        diag = second.error_of(sqlstate)
        assert diag.message_primary == 'queue "q" already exists'
    else:
        second.result()
    db.push("q", "1")
    assert len(db.take("q")) == 1


def test_create_if_not_exists_twice(db):
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.create("q")
    second = two.beside(two.rows, "SELECT queue.create('q', true)")
    db.until_blocked(two)
    one.rows("COMMIT")
    second.result()
    assert db.column("SELECT queue FROM queue.list()") == ["q"]


@pytest.mark.parametrize("if_exists", [False, True])
def test_drop_and_drop(q, if_exists):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.drop('q')")
    second = two.beside(two.rows, "SELECT queue.drop('q', %s)", if_exists)
    q.until_blocked(two)
    one.rows("COMMIT")
    if if_exists:
        second.result()
    else:
        second.error_of("42P01")


def test_drop_and_create(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.drop('q')")
    # until the drop is committed the queue is there
    two.fails("42P07", "SELECT queue.create('q')")
    one.rows("COMMIT")
    two.create("q")
    assert two.push("q", "1") == [1]


def test_take_and_drop(q):
    """DROP waits for a taker's transaction; the lease is lost with the queue."""
    q.push("q", "1")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    (job,) = one.take("q")
    drop = two.beside(two.rows, "SELECT queue.drop('q')")
    q.until_blocked(two)
    one.rows("COMMIT")
    drop.result()
    diag = one.fails("QB001", "SELECT queue.done(%s)", job["token"])
    assert diag.message_detail == "The queue was dropped."
    one.fails("42P01", "SELECT queue.take('q')")


def test_drop_and_take(q):
    """A TAKE that comes while the DROP is not committed waits, then finds no queue."""
    q.push("q", "1")
    q.take("q")
    one, two = q.connect(), q.connect()
    for warm in (False, True):
        if warm:
            two.take("q")
        one.rows("BEGIN")
        one.rows("SELECT queue.drop('q')")
        take = two.beside(two.take, "q")
        q.until_blocked(two)
        if warm:
            one.rows("COMMIT")
            diag = take.error_of("42P01")
            assert "does not exist" in diag.message_primary
        else:
            one.rows("ROLLBACK")
            assert take.result() == []


def test_alter_and_alter(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.alter('q', ARRAY['lease'], ARRAY['1 h'])")
    second = two.beside(two.rows, "SELECT queue.alter('q', ARRAY['max_attempts'], ARRAY['3'])")
    q.until_blocked(two)
    one.rows("COMMIT")
    second.result()
    assert q.row("SELECT lease, max_attempts FROM queue.list()") == ("01:00:00", 3)


# -- the classic exercise ----------------------------------------------------------------------

JOBS = 1000


def exercise(db, take, workers=6):
    """So many workers take and finish JOBS jobs; how often each job was handed out."""
    db.push("q", *[str(n) for n in range(JOBS)])
    handed = collections.Counter()
    lock = threading.Lock()
    start = threading.Barrier(workers)

    def work(session, batch):
        start.wait(60)
        while True:
            jobs = session.rows(take, batch)
            if not jobs:
                return
            with lock:
                handed.update(number for number, token in jobs)
            for number, token in jobs:
                session.rows("SELECT queue.done(%s)", token)

    sessions = [db.connect() for n in range(workers)]
    calls = [session.beside(work, session, 1 if n % 2 else 7)
             for n, session in enumerate(sessions)]
    for call in calls:
        call.result()
    return handed


def test_each_job_exactly_once(q):
    handed = exercise(q, "SELECT id, token FROM queue.take('q', %s)")
    assert len(handed) == JOBS and set(handed.values()) == {1}
    assert q.rows("SELECT * FROM queue.q_q") == []


def without_row_locks(db):
    """A copy of the queue's take function that doesn't lock what it has chosen. (It finds its
    rows again by their keys, as hand-written queues do: by ctid a row that somebody moved
    meanwhile would be missed, not taken twice.)"""
    number = db.value("SELECT number FROM queue.queues")
    text = db.value("SELECT pg_get_functiondef(%s::regproc)", "queue._take_%d" % number)
    assert text.count("FOR UPDATE SKIP LOCKED") == 10
    db.rows(text.replace("FOR UPDATE SKIP LOCKED", "").replace("ctid", "id").replace(
        "queue._take_%d" % number, "queue.careless_take"))
    return ("SELECT t.id, t.token FROM queue.queues AS c, "
            "queue.careless_take(c, %s, '5 min', 'w', NULL, false, NULL, NULL, NULL, "
            "clock_timestamp()) AS t "
            "WHERE t.id IS NOT NULL")


def with_row_locks(db):
    """The same copy, with the locks."""
    take = without_row_locks(db)
    text = db.value("SELECT pg_get_functiondef('queue.careless_take'::regproc)")
    db.rows(text.replace("LIMIT wanted ", "LIMIT wanted FOR UPDATE SKIP LOCKED").replace(
        "LIMIT lim ", "LIMIT lim FOR UPDATE SKIP LOCKED"))
    assert "SKIP LOCKED" in db.value("SELECT pg_get_functiondef('queue.careless_take'::regproc)")
    return take


def test_the_exercise_can_fail(q):
    """Without SKIP LOCKED and row locks the same workers get the same jobs, and are refused when
    the second of them says DONE. (On a busy machine they may by chance take turns, once.)"""
    take = without_row_locks(q)
    for _ in range(20):
        try:
            if max(exercise(q, take).values()) > 1:
                return
        except psycopg.Error as error:
            assert error.sqlstate == "QB001"
            return
    pytest.fail("each job was handed out once, every time")


def test_the_locks_make_the_difference(q):
    handed = exercise(q, with_row_locks(q))
    assert len(handed) == JOBS and set(handed.values()) == {1}


def test_without_row_locks_two_get_one_job(q):
    """The same step by step."""
    take = without_row_locks(q)
    q.push("q", "1", "2")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    assert one.row(take, 1)[0] == 1
    second = two.beside(two.row, take, 1)
    q.until_blocked(two)
    one.rows("COMMIT")
    assert second.result()[0] == 1


def test_workers_that_die(q):
    """Some workers take and are never heard of again: every job is done in the end, none twice."""
    q.push("q", *[str(n) for n in range(300)])
    finished = collections.Counter()
    lock = threading.Lock()
    left = [10]

    def work(session, dies):
        while True:
            jobs = session.take("q", 3)
            if not jobs:
                return
            if dies:
                return
            for job in jobs:
                session.done(job["token"])
                with lock:
                    finished[job["id"]] += 1

    for n in range(10):
        sessions = [q.connect() for _ in range(4)]
        calls = [s.beside(work, s, k < 3) for k, s in enumerate(sessions)]
        for call in calls:
            call.result()
        for s in sessions:
            s.conn.close()
        q.expire("q")
        left[0] -= 1
    survivor = q.connect()
    work(survivor, False)
    assert len(finished) == 300 and set(finished.values()) == {1}
    assert q.rows("SELECT * FROM queue.q_q") == []


EACH = 600  # of each kind


def test_all_that_is_due_beside_each_other(db):
    """Ripe ones, late ones, ends of leases, wrong times, mixed in the order of their times, under an old snapshot and by
    two at a time: each is moved once, and in the end nothing is due."""
    db.create("q", max_attempts=2, retain_done="1 day")
    db.rows("DO $$ DECLARE c text; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'queue.q_q'::regclass AND contype = 'c' LOOP"
            " EXECUTE format('ALTER TABLE queue.q_q DROP CONSTRAINT %I', c); END LOOP; END $$; DROP TRIGGER tests_move ON queue.q_q")
    db.rows("""INSERT INTO queue.q_q (payload, state, attempt, token, run_at, lease_until, expires_at, due)
        SELECT to_jsonb(k), CASE k WHEN 0 THEN 'later' WHEN 1 THEN 'ready' WHEN 2 THEN 'leased' WHEN 3 THEN 'leased' WHEN 4 THEN 'leased' ELSE 'ready' END,
            CASE k WHEN 2 THEN 1 WHEN 3 THEN 2 WHEN 4 THEN 1 ELSE 0 END, CASE k WHEN 2 THEN 'a' WHEN 3 THEN 'a' WHEN 4 THEN 'xa' END,
            CASE WHEN k = 0 THEN at END, CASE WHEN k IN (2, 3, 4) THEN at END, CASE WHEN k = 1 THEN at END, at
        FROM (SELECT n %% 6 AS k, now() - interval '1 hour' + n * interval '1 ms' AS at FROM generate_series(1, 6 * %s) AS n) AS x""", EACH)
    old, one, two = db.connect(), db.connect(), db.connect()
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT count(*) FROM queue.q_q")

    def work(s):
        got = []
        while s.value("SELECT EXISTS (SELECT FROM queue.q_q WHERE due <= now())"):
            got += [job["id"] for job in s.take("q", 50, lease="1 h")]
        return got

    beside = two.beside(work, two)
    got = work(one) + beside.result()
    assert len(got) == len(set(got))
    assert old.rows("SELECT state, count(*) FROM queue.q_q GROUP BY 1 ORDER BY 1") == [("later", EACH), ("leased", 3 * EACH), ("ready", 2 * EACH)]
    rest = dict(db.rows("SELECT payload::text, count(*) FROM queue.q_q WHERE state IN ('ready', 'leased') GROUP BY 1"))
    assert rest == {"0": EACH, "2": EACH, "5": EACH}
    assert db.rows("SELECT payload, count(*) FROM queue.q_q WHERE state = 'dead' GROUP BY 1") == [(3, EACH)]
    assert db.rows("SELECT state, payload, count(*) FROM queue.a_q GROUP BY 1, 2 ORDER BY 1") == [("cancelled", 4, EACH), ("expired", 1, EACH)]
    assert db.value("SELECT count(*) FROM queue.q_q WHERE failures <> (payload IN ('2', '3'))::int4") == 0
