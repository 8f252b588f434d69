"""LIST, STATS, PEEK and PURGE."""

import pytest


@pytest.fixture
def q(db):
    """One job in each state: 1 dead, 2 leased, 3 later, 4 and 5 ready."""
    db.create("q")
    db.push("q", "1", "2")
    first = db.take("q", worker="w")[0]
    db.rows("SELECT queue.fail(%s, 'no', final => true)", first["token"])
    db.take("q", worker="w2")
    db.push("q", "3", delay="1 h")
    db.push("q", "4")
    db.push("q", "5", priority=1)
    return db


def test_peek(q):
    assert q.column("SELECT id FROM queue.peek('q')") == [5, 4, 2, 3, 1]
    assert q.column("SELECT state FROM queue.peek('q', 3)") == ["ready", "ready", "leased"]
    assert q.rows("SELECT id, attempt, failures, error, worker FROM queue.peek('q', 9, 'dead')") \
        == [(1, 1, 1, "no", "w")]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'ready')") == [5, 4]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'leased')") == [2]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'later')") == [3]
    assert q.column("SELECT id FROM queue.peek('q', 9, 'done')") == []
    assert q.rows("SELECT id FROM queue.peek('q', 0)") == []
    assert q.column("SELECT id FROM queue.peek('q', NULL, NULL)") == [5, 4, 2, 3, 1]
    assert [job["id"] for job in q.take("q", 9)] == [5, 4]


def test_peek_errors(q):
    assert "ready" in q.fails("22023", "SELECT queue.peek('q', 1, 'x')").message_hint
    q.fails("22023", "SELECT queue.peek('q', -1)")


def test_stats(q):
    q.create("r")
    assert q.rows("SELECT queue, ready, later, leased, dead FROM queue.stats()") == \
        [("q", 2, 1, 1, 1), ("r", 0, 0, 0, 0)]
    assert q.rows("SELECT queue, oldest_ready, next_due FROM queue.stats('r')") == \
        [("r", None, None)]
    assert q.value("SELECT s.oldest_ready = (SELECT min(pushed_at) FROM queue.peek('q', 9, 'ready'))"
                   " AND s.next_due = (SELECT lease_until FROM queue.peek('q', 9, 'leased'))"
                   " FROM queue.stats('q') AS s")


def test_purge(q):
    assert q.value("SELECT queue.purge('q', 'dead')") == 1
    assert q.value("SELECT queue.purge('q', 'done')") == 0
    assert q.value("SELECT queue.purge('q', 'later')") == 1
    assert q.value("SELECT queue.purge('q', 'ready')") == 2
    assert q.column("SELECT state FROM queue.peek('q')") == ["leased"]


def test_purge_all_but_leased(q):
    assert q.value("SELECT queue.purge('q', NULL)") == 4
    assert q.column("SELECT id FROM queue.peek('q')") == [2]


def test_purge_errors(q):
    for state in ("leased", "x", "", "ready' OR true; --"):
        assert q.fails("22023", "SELECT queue.purge('q', %s)", state).message_hint
    assert q.value("SELECT count(*) FROM queue.q_q") == 5


def test_list(q):
    assert q.rows("SELECT queue, lease, max_attempts, retry, on_disconnect, durability, owner "
                  "FROM queue.list()") == \
        [("q", "00:05:00", 25, "exponential 10s 1h", "auto", "sync", "app")]


def test_version(q):
    assert q.value("SELECT queue.version()") == 1


def test_gauges_of_known_ones(q):
    """One without a job that nobody has changed is not looked into; what is said of one with jobs changes by itself."""
    def flush():
        q.rows("SELECT pg_stat_force_next_flush()")
        q.rows("SELECT 1")

    gauges = "SELECT queue, ready + later + leased + blocked + dead AS jobs, number, changes FROM queue._gauges(100, known => %s)"
    q.create("empty")
    q.push("empty", "1")
    q.rows("DELETE FROM queue.q_empty")
    flush()
    rows = {r[0]: r for r in map(tuple, q.rows(gauges, []))}
    assert rows["q"][1] > 0 and rows["q"][3] is None
    assert rows["empty"][1] == 0 and rows["empty"][3] is not None
    known = list(rows["empty"][2:])
    scans = "SELECT sum(idx_scan) FROM pg_stat_all_indexes WHERE relname = 'q_%s'"
    flush()
    before = q.value(scans % "empty"), q.value(scans % "q")
    assert {r[0]: r for r in map(tuple, q.rows(gauges, known))} == rows
    flush()
    assert q.value(scans % "empty") == before[0] and q.value(scans % "q") > before[1]
    q.push("empty", "1")
    flush()
    assert [tuple(r)[1] for r in q.rows(gauges, known) if tuple(r)[0] == "empty"] == [1]
    assert len(q.rows(gauges, [1, 5, known[0] + 7, 5])) == len(rows)


def test_gauges_of_a_server_that_counts_anew(q):
    """Counters may come back to what they were."""
    changes = "SELECT queue._changes(c) FROM queue.queues AS c"
    root = q.connect("postgres")
    q.rows("SELECT pg_stat_force_next_flush()")
    before = [q.value(changes)]
    assert q.value(changes) == before[0]
    for sql in "SELECT pg_stat_reset()", "SELECT pg_stat_reset_shared('bgwriter')":
        root.rows("DELETE FROM queue.q_q WHERE false")
        root.rows(sql)
        before.append(q.value(changes))
    root.rows("SELECT pg_stat_reset()")  # the counters are 0 again, as they are now
    before.append(q.value(changes))
    assert len(set(before)) == 4


def test_gauges_in_steps(q):
    """A step is as long as it may be, and says how far it came also where nothing is the role's."""
    for k in range(5):
        q.create("r%d" % k)
    q.rows("SELECT queue.create('other')")
    bob = q.connect("bob")
    for db, seen in (q, ["q", "r0", "r1", "r2", "r3", "r4", "other"]), (bob, [None] * 6):
        after, names = 0, []
        for _ in range(10):
            rows = db.rows("SELECT queue, number FROM queue._gauges(10, NULL, %s, -1)", after)
            if not rows:
                break
            names += [r[0] for r in rows]
            assert rows[-1][1] > after
            after = rows[-1][1]
        assert names == seen


def test_gauges_of_a_locked_one(q):
    q.create("r")
    root = q.connect("postgres")
    root.rows("BEGIN")
    root.rows("LOCK TABLE queue.q_q")
    assert q.rows("SELECT queue, ready, number FROM queue._gauges(10)") == [("q", None, 1), ("r", 0, 2)]
    root.rows("ROLLBACK")
    assert q.column("SELECT ready FROM queue._gauges(10)") == [2, 0]


def test_gauges(q):
    assert q.rows("SELECT queue, ready, later, leased, blocked, dead, oldest_ms >= 0 FROM queue._gauges(100)") == \
        [("q", 2, 1, 1, 0, 1, True)]
    q.push("q", *["0"] * 50)
    assert q.rows("SELECT ready, dead FROM queue._gauges(10)") == [(10, 1)]
    q.create("empty")
    assert q.rows("SELECT ready, oldest_ms FROM queue._gauges(10) WHERE queue = 'empty'") == [(0, None)]
    assert q.column("SELECT number FROM queue._gauges(10, '{}', 1)") == [2]
    root = q.connect("postgres")
    assert root.rows("SELECT * FROM queue._gauges(10, '{q}')") == []
    assert root.column("SELECT queue FROM queue._gauges(10)") == ["q", "empty"]


def test_a_table_that_is_none(q):
    """Who looks at all queues does not look there: only who installed could do that."""
    q.create("r")
    for change in ("ALTER TABLE queue.q_q RENAME TO x; CREATE VIEW queue.q_q AS SELECT * FROM queue.x",
                   "DROP VIEW queue.q_q; ALTER TABLE queue.x RENAME TO q_q; CREATE TABLE queue.child () INHERITS (queue.q_q)",
                   "DROP TABLE queue.child; VACUUM queue.q_q; CREATE POLICY p ON queue.q_q USING (true); "
                   "ALTER TABLE queue.q_q ENABLE ROW LEVEL SECURITY",
                   "ALTER TABLE queue.q_q DISABLE ROW LEVEL SECURITY; DROP POLICY p ON queue.q_q; "
                   "CREATE RULE r AS ON UPDATE TO queue.q_q DO ALSO NOTHING"):
        for part in change.split("; "):
            q.rows(part)
        assert q.column("SELECT queue FROM queue.stats()") == ["r"]
        assert q.column("SELECT queue FROM queue._gauges(10)") == ["r"]


def backdate(db, q, **columns):
    """Moves times of all jobs into the past: {id: (column, seconds ago)}."""
    for job, (column, seconds) in columns.items():
        db.rows(f"UPDATE queue.q_{q} SET {column} = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
                seconds, int(job[1:]))


def push(db, q, payload, **options):
    """Through the function that everybody calls."""
    words = ", ".join(f'"{name}" => %s' for name in options)
    return db.value(f"SELECT queue.push(%s, %s::jsonb{', ' if words else ''}{words})", q, payload, *options.values())


@pytest.fixture
def due(db):
    """Jobs that nobody takes, each with what has become of it meanwhile: 1 a lease that ended, 2 the last attempt's,
    3 one that was cancelled, 4 a delay that is over, 5 expired, 6 expired later, 7 ready, 8 not due yet."""
    db.create("due", max_attempts=2)
    db.push("due", "1", "2", "3")
    first = {j["id"]: j["token"] for j in db.take("due", 3)}
    db.rows("UPDATE queue.q_due SET attempt = 2 WHERE id = 2")
    db.rows("SELECT queue.cancel('%d-3')" % db.value("SELECT number FROM queue.queues WHERE name = 'due'"))
    db.push("due", "4", delay="1 h")
    push(db, "due", "5", expires="1 h")
    push(db, "due", "6", expires="1 h", delay="30 min")
    db.push("due", "7")
    db.push("due", "8", delay="1 h")
    db.rows("UPDATE queue.q_due SET pushed_at = pushed_at - interval '1 day'")
    backdate(db, "due", j1=("lease_until", 50), j2=("lease_until", 40), j3=("lease_until", 30), j4=("run_at", 70),
             j5=("expires_at", 1), j6=("expires_at", 1), j7=("pushed_at", 20))
    assert len(first) == 3
    return db


def test_stats_without_a_worker(due):
    """What is due counts as ready although nobody takes, and its age is how long it could have been taken."""
    assert due.row("SELECT ready, later, leased, dead, blocked FROM queue.stats('due')") == (3, 1, 0, 1, 0)
    assert 70 <= due.value("SELECT extract(epoch FROM clock_timestamp() - oldest_ready) FROM queue.stats('due')") < 1000
    assert due.value("SELECT next_due > clock_timestamp() FROM queue.stats('due')")


def test_gauges_without_a_worker(due):
    assert due.row("SELECT ready, later, leased, dead FROM queue._gauges(100)") == (3, 1, 0, 1)
    assert 70000 <= due.value("SELECT oldest_ms FROM queue._gauges(100)") < 1000000


def test_peek_and_job_without_a_worker(due):
    number = due.value("SELECT number FROM queue.queues WHERE name = 'due'")
    assert due.rows("SELECT id, state FROM queue.peek('due', 99)") == \
        [(7, "ready"), (4, "ready"), (1, "ready"), (2, "dead"), (8, "later")]
    assert due.column("SELECT id FROM queue.peek('due', 99, 'ready')") == [7, 4, 1]
    assert due.column("SELECT id FROM queue.peek('due', 99, 'dead')") == [2]
    assert due.column("SELECT id FROM queue.peek('due', 99, 'leased')") == []
    assert due.column("SELECT id FROM queue.peek('due', 99, 'later')") == [8]
    assert due.column("SELECT j.state FROM unnest(ARRAY[1, 2, 4, 7, 8]) AS n, queue.job(%s || '-' || n) AS j",
                      number) == ["ready", "dead", "ready", "ready", "later"]


def test_what_is_due_is_what_a_take_finds(due):
    """The figures say beforehand what a take then writes down."""
    said = due.row("SELECT ready, later, leased, dead FROM queue.stats('due')")
    taken = due.take("due", 9)
    assert sorted(j["id"] for j in taken) == [1, 4, 7]
    assert said == (3, 1, 0, 1)
    assert due.row("SELECT ready, later, leased, dead FROM queue.stats('due')") == (0, 1, 3, 1)


def test_a_lease_that_is_over_is_a_failure(due):
    """PEEK, JOB and ERRORS say beforehand what a take then writes down, but when it found it."""
    number = due.value("SELECT number FROM queue.queues WHERE name = 'due'")
    errors = "SELECT error, jobs, job FROM queue.errors('due')"
    peeked = "SELECT id, state, attempt, failures, error, run_at, lease_until, ended_at IS NULL FROM queue.peek('due', 99, 'dead')"
    shown = "SELECT j.state, j.attempt, j.failures, j.error, j.run_at, j.lease_until, j.failed_at IS NULL, " \
            "j.ended_at IS NULL, j.ran FROM queue.job(%s || '-2') AS j"
    alive = "SELECT state, failures, error FROM queue.peek('due', 99) WHERE id = 1"
    before = due.rows(peeked), due.rows(shown, number), due.rows(errors)
    assert before[0][0][:5] == (2, "dead", 2, 1, "lease expired") and before[1][0][6:8] == (False, False)
    assert before[2] == [("lease expired", 2, "%d-2" % number)]
    assert due.rows(alive) == [("ready", 1, "lease expired")]
    due.rows("SELECT queue._promote(q, 100) FROM queue.queues AS q WHERE name = 'due'")
    after = due.rows(peeked), due.rows(shown, number), due.rows(errors)
    assert after[:2] == before[:2] and after[2][0][:2] == before[2][0][:2]
    assert due.rows(alive) == [("ready", 1, "lease expired")]


@pytest.mark.parametrize("state, gone, left", [("ready", 3, (0, 1, 0, 1)), ("dead", 1, (3, 1, 0, 0)),
                                               ("later", 1, (3, 0, 0, 1)), (None, 8, (0, 0, 0, 0))])
def test_purge_without_a_worker(due, state, gone, left):
    """What it deletes is what the figures said."""
    assert due.value("SELECT queue.purge('due', %s)", state) == gone
    assert due.row("SELECT ready, later, leased, dead FROM queue.stats('due')") == left


def test_with_retry_none_no_job_has_more_attempts(db):
    db.create("none", retry="none")
    push(db, "none", "1", attempts=5)
    db.take("none")
    backdate(db, "none", j1=("lease_until", 1))
    assert db.row("SELECT ready, dead FROM queue.stats('none')") == (0, 1)
    assert db.take("none") == []
    assert db.row("SELECT ready, dead FROM queue.stats('none')") == (0, 1)


def age(db, q):
    return db.value("SELECT extract(epoch FROM clock_timestamp() - oldest_ready) FROM queue.stats(%s)", q)


@pytest.mark.parametrize("how", ["lease", "release", "fail", "lost", "undelivered", "redrive", "group", "again"])
def test_age_counts_from_the_last_time_it_became_ready(db, how):
    """Not from the push, a day ago."""
    db.create("q")
    push(db, "q", "1", **({"group": "g"} if how == "group" else {"key": "k"} if how == "again" else {}))
    if how == "group":
        push(db, "q", "2", group="g")
    token = db.take("q")[0]["token"]
    db.rows("UPDATE queue.q_q SET pushed_at = pushed_at - interval '1 day', "
            "run_at = clock_timestamp() - interval '1 day'")
    if how == "lease":
        backdate(db, "q", j1=("lease_until", 100))
        assert 100 <= age(db, "q") < 10000
        db.rows("SELECT queue.create('other')")
        db.rows("SELECT queue._promote(c, 10) FROM queue.queues AS c WHERE name = 'q'")
        assert 100 <= age(db, "q") < 10000
        return
    if how == "again":
        push(db, "q", "1", key="k", on_duplicate="rerun")
    if how == "redrive":
        db.rows("SELECT queue.fail(%s, final => true)", token)
        db.rows("SELECT queue.redrive('q')")
    else:
        db.rows({"release": "SELECT queue.release(%s)", "fail": "SELECT queue.fail(%s, retry_in => '0')",
                 "lost": "SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)",
                 "undelivered": "SELECT queue._give_back(ARRAY[%s], NULL, false)",
                 "group": "SELECT queue.done(%s)", "again": "SELECT queue.done(%s)"}[how], token)
    assert db.row("SELECT ready, leased FROM queue.stats('q')") == (1, 0)
    assert age(db, "q") < 10000


# -- new, retry, total, newest, bytes ---------------------------------------------------------------

def test_what_stats_says_of_what_is_ready(db):
    db.create("s", max_attempts=2)
    stats = "SELECT ready, new, retry, total, newest FROM queue.stats('s')"
    assert db.row(stats) == (0, 0, 0, 0, None)
    db.push("s", "1", "2", "3", "4")
    newest = db.value("SELECT max(pushed_at) FROM queue.q_s")
    assert db.row(stats) == (4, 4, 0, 4, newest)
    one, two = db.take("s", 2)
    assert db.row(stats) == (2, 2, 0, 4, newest)
    db.rows("SELECT queue.fail(%s, retry_in => '0')", one["token"])
    db.rows("SELECT queue.release(%s)", two["token"])
    assert db.row(stats) == (4, 2, 2, 4, newest)
    db.take("s", 1)
    db.expire("s")  # nobody takes: it is ready all the same, and was taken before
    assert db.row(stats) == (4, 2, 2, 4, newest)
    db.rows("SELECT queue.fail(%s, final => true)", db.take("s")[0]["token"])
    assert db.row("SELECT ready, dead, total FROM queue.stats('s')") == (3, 1, 4)
    db.rows("UPDATE queue.q_s SET expires_at = now() - interval '1 s' WHERE state = 'ready'")
    assert db.row("SELECT ready, total FROM queue.stats('s')") == (0, 1)


def test_bytes(db):
    db.create("s", retain_done="1 day")
    empty = db.value("SELECT bytes FROM queue.stats('s')")
    assert 0 < empty < 1000000
    db.rows("INSERT INTO queue.q_s (payload) SELECT to_jsonb(n) FROM generate_series(1, 2000) AS n")
    full = db.value("SELECT bytes FROM queue.stats('s')")
    assert full > empty + 100000
    db.rows("SELECT queue.pop('s', 2000)")
    assert db.value("SELECT bytes FROM queue.stats('s')") > full


SIZES = {
    "never": "SELECT",
    "rolled back": "BEGIN; INSERT INTO queue.q_s (payload) SELECT to_jsonb(n) FROM generate_series(1, 2000) AS n; ROLLBACK",
    "cut off": "INSERT INTO queue.q_s (payload) SELECT to_jsonb(n) FROM generate_series(1, 2000) AS n; DELETE FROM queue.q_s; "
               "VACUUM (TRUNCATE) queue.q_s",
    "cut off without its TOAST": "INSERT INTO queue.q_s (payload) SELECT to_jsonb(string_agg(md5(n::text), '')) FROM generate_series(1, 9000) AS n; "
                                 "DELETE FROM queue.q_s; VACUUM (TRUNCATE, PROCESS_TOAST false) queue.q_s",
    "truncated": "INSERT INTO queue.q_s (payload) SELECT to_jsonb(n) FROM generate_series(1, 2000) AS n; TRUNCATE queue.q_s",
    "vacuumed": "VACUUM queue.q_s; ANALYZE queue.q_s; VACUUM FULL queue.q_s",
    "kept": "SELECT queue.alter('s', '{retain_done}', '{1 h}'); SELECT queue.push('s', '1'); SELECT queue.pop('s')",
    "unlogged": "SELECT queue.alter('s', '{unlogged}', '{true}')",
    "another index": "CREATE INDEX ON queue.q_s USING gin (payload); CREATE INDEX ON queue.a_s (payload)",
    "limits": "SELECT queue.alter('s', '{max_running,batches}', '{3,true}')",
    "nobody has counted": "UPDATE pg_class SET relpages = 0 WHERE oid = 'queue.n1_pkey'::regclass",
}


@pytest.mark.parametrize("what", SIZES)
def test_bytes_are_those_on_disk(db, what):
    """Also where the files are not looked at, as nothing was ever in them."""
    db.create("s")
    root = db.connect("postgres")
    for statement in SIZES[what].split("; "):
        (root if "pg_class" in statement or "VACUUM" in statement else db).rows(statement)
    size = db.value("SELECT pg_total_relation_size('queue.q_s') + pg_total_relation_size('queue.a_s')")
    assert db.value("SELECT bytes FROM queue.stats('s')") == size
    assert db.value("SELECT bytes FROM queue.stats()") == size
    assert db.value("SELECT pg_size_pretty(%s::int8)", size) in db.value("SELECT value FROM queue.health() WHERE about = 'queue'")


def test_looking_changes_nothing(db):
    """So it may be done where nothing may be changed."""
    for name in ("used", "empty"):
        db.create(name)
    db.push("used", "1")
    db.rows("BEGIN TRANSACTION READ ONLY")
    assert db.column("SELECT queue FROM queue.stats()") == ["empty", "used"]
    assert db.column("SELECT name FROM queue.health() WHERE about = 'queue'") == ["empty", "used"]
    assert db.column("SELECT queue FROM queue._gauges(10)") == ["used", "empty"]
    db.rows("COMMIT")


@pytest.mark.parametrize("seen", ["SELECT queue FROM queue.stats()", "SELECT name FROM queue.health() WHERE about = 'queue'"])
def test_one_that_is_dropped_during_a_look(db, seen):
    """It is passed over, whichever way it is seen first."""
    for name in ("a", "b", "c"):
        db.create(name)
        db.push(name, "1")
    other, looks = db.connect(), db.connect()
    other.rows("BEGIN")
    other.rows("SELECT queue.drop('b')")
    looking = looks.beside(looks.column, seen)
    db.until_blocked(looks)
    other.rows("COMMIT")
    assert looking.result() == ["a", "c"]


def test_looking_is_not_compiled(db):
    """Plans that may neither scan nor sort cost so much, where there is no index, that jit compiled each PEEK: 0.3 s."""
    db.create("q")
    assert db.column("""SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace
        AND 'enable_sort=off' = ANY (proconfig) AND NOT 'jit=off' = ANY (proconfig)""") == []


def test_stats_of_all_count_an_archive_with_policies(db):
    """Also where there is no job: as for the queue alone."""
    db.create("q", retain_done="1 hour")
    db.push("q", "1", "2")
    db.done(*[job["token"] for job in db.take("q", 2)])
    db.rows("ALTER TABLE queue.a_q ENABLE ROW LEVEL SECURITY")
    assert db.column("SELECT done FROM queue.stats('q')") == db.column("SELECT done FROM queue.stats()") == [2]
