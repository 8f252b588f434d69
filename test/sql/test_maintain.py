"""What has been kept for long enough goes away, in short steps."""

import pytest


def finish(db, queue, n):
    db.push(queue, *[str(k) for k in range(n)])
    db.done(*[job["token"] for job in db.take(queue, n)])


def age(db, queue, interval, table="a"):
    db.rows('UPDATE queue."%s_%s" SET ended_at = ended_at - interval \'%s\'' % (table, queue, interval))


def kept(db, queue, table="a"):
    return db.column('SELECT id FROM queue."%s_%s" ORDER BY id' % (table, queue))


def test_the_archive(db):
    db.create("q", retain_done="1 day")
    finish(db, "q", 2)
    age(db, "q", "23 h")
    assert db.value("SELECT queue.maintain()") == 0
    age(db, "q", "1 h")
    finish(db, "q", 1)
    assert db.value("SELECT queue.maintain()") == 2
    assert kept(db, "q") == [3]


def test_results_of_a_queue_that_keeps_nothing(db):
    db.create("q")
    db.push("q", "1")
    db.rows("SELECT queue.done(%s, '1')", db.take("q")[0]["token"])
    age(db, "q", "59 min")
    assert db.value("SELECT queue.maintain()") == 0
    age(db, "q", "1 min")
    assert db.value("SELECT queue.maintain()") == 1


def test_the_dead(db):
    db.create("q", retain_dead="2 days")
    db.push("q", "1", "2")
    for job in db.take("q", 2):
        db.rows("SELECT queue.fail(%s, final => true)", job["token"])
    age(db, "q", "2 days", "q")
    db.push("q", "3")
    db.rows("SELECT queue.fail(%s, final => true)", db.take("q")[0]["token"])
    db.push("q", "4")
    assert db.value("SELECT queue.maintain()") == 2
    assert kept(db, "q", "q") == [3, 4]


@pytest.mark.parametrize("retain, states", [("0", []), ("1 h", ["expired"])])
def test_what_nobody_took_in_its_time(db, retain, states):
    db.create("q", retain_done=retain)
    db.rows("SELECT queue.push('q', '1', expires => '1 h')")
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s'")
    assert db.value("SELECT queue.maintain()") == 1
    assert kept(db, "q", "q") == []
    assert db.column("SELECT state FROM queue.a_q") == states


def test_kept_for_ever(db):
    db.create("q", retain_done="8000 years", retain_dead="8000 years")
    finish(db, "q", 1)
    age(db, "q", "4000 years")
    assert db.value("SELECT queue.maintain()") == 0


def test_steps(db):
    """A bounded number of rows each; the next one goes on where the last one stopped."""
    for name in ("p", "q", "r"):
        db.create(name, retain_done="1 h")
        finish(db, name, 5)
        age(db, name, "1 h")
    step = "SELECT deleted, next, denied FROM queue._maintain_used('{}', %s, 4, 100000)"
    got, after = [], 0
    while after is not None:
        deleted, after, denied = db.row(step, after)
        got.append(deleted)
        assert deleted <= 4 and denied == 0
    assert sum(got) == 15 and len(got) == 4
    assert db.row("SELECT deleted, next, denied FROM queue._maintain_used('{}', 0, 4, 0)") == (0, 1, 0)
    assert db.row("SELECT deleted, next, denied FROM queue._maintain_used('{}', 2, 4, 0)") == (0, 3, 0)
    assert db.row("SELECT deleted, next, denied FROM queue._maintain_used('{}', 3, 4, 0)") == (0, None, 0)


def test_two_at_a_time(db):
    """Nobody waits for the other, nor is kept away: not by a lock that anybody can hold either."""
    db.create("q", retain_done="1 h")
    finish(db, "q", 1)
    age(db, "q", "1 h")
    other = db.connect()
    other.rows("BEGIN")
    other.rows("SELECT pg_advisory_lock(7598543210002)")
    assert other.row("SELECT deleted FROM queue._maintain_used('{}', 0, 10, 1000)") == (1,)
    assert db.rows("SELECT deleted, next, denied FROM queue._maintain_used('{}', 0, 10, 1000)") == [(0, None, 0)]
    assert db.value("SELECT queue.maintain()") == 0, "what is locked is left alone"
    other.rows("ROLLBACK")
    assert db.value("SELECT queue.maintain()") == 1


def test_rights(db):
    for name in ("q", "r"):
        db.create(name, retain_done="1 h")
        finish(db, name, 1)
        age(db, name, "1 h")
    db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    bob = db.connect("bob")
    assert bob.row("SELECT deleted, next, denied FROM queue._maintain_used('{}', 0, 10, 1000)") == (0, None, 0)
    assert bob.row("SELECT deleted, next, denied FROM queue._maintain_used('{q,r}', 0, 10, 1000)") == (1, None, 1)
    assert kept(db, "q") == [] and kept(db, "r") == [1]
    assert db.connect("mallory").value("SELECT queue.maintain()") == 0


def test_nobody_elses_queue_by_a_superuser(db):
    """Not by the proxy; he may call it himself."""
    root = db.connect("postgres")
    for session, name in ((db, "q"), (root, "r")):
        session.create(name, retain_done="1 h")
        finish(session, name, 1)
        age(session, name, "1 h")
    assert root.row("SELECT deleted, next, denied FROM queue._maintain_used('{q,r}', 0, 10, 1000)") == (1, None, 0)
    assert kept(db, "q") == [1] and kept(root, "r") == []
    assert root.value("SELECT queue.maintain()") == 1


def test_a_queue_that_somebody_has_locked(db):
    for name in ("q", "r"):
        db.create(name, retain_done="1 h")
        finish(db, name, 1)
        age(db, name, "1 h")
    other = db.connect()
    other.rows("BEGIN; LOCK TABLE queue.q_q")
    assert db.row("SELECT deleted, next, denied FROM queue._maintain_used('{}', 0, 10, 100000)") == (1, None, 1)
    assert kept(db, "r") == []


def test_who_is_left_out(db):
    db.connect("postgres").create("s")
    for name in ("q", "r"):
        db.create(name)
    assert sorted(db.rows("SELECT * FROM queue._unattended('{}', '{r}')")) == [("app", False, 1, "q"), ("postgres", True, 1, "s")]
    assert db.rows("SELECT * FROM queue._unattended('{app}', '{s}')") == []


def test_the_commit_of_the_caller_waits_for_the_disk(db):
    db.create("q")
    db.rows("BEGIN")
    db.rows("SELECT queue.maintain()")
    assert db.value("SELECT current_setting('synchronous_commit')") == "on"
    db.rows("COMMIT")


def test_a_queue_that_is_being_dropped(db):
    """Both lock the queue's table first, so neither is the victim of a deadlock."""
    db.create("q", retain_done="1 h")
    finish(db, "q", 1)
    age(db, "q", "1 h")
    dropping = db.connect()
    dropping.rows("BEGIN")
    dropping.rows("LOCK TABLE queue.q_q")
    maintain = db.beside(db.value, "SELECT queue.maintain()")
    db.until_blocked(db)
    dropping.rows("LOCK TABLE queue.a_q")
    dropping.rows("COMMIT")
    assert maintain.result() == 1


def clean(session, known=()):
    """What a step says of each queue that it visits: number -> (changes, milliseconds)."""
    got = session.value("SELECT clean FROM queue._maintain_used('{}', 0, 100, 100000, %s)", list(known))
    return {got[i]: (got[i + 1], got[i + 2]) for i in range(0, len(got), 3)}


def counted(session):
    """What the session has done is counted now."""
    session.rows("SELECT pg_stat_force_next_flush()")
    session.rows("SELECT 1")


NEVER = 2000000000


def test_clean_ones_are_passed_over(db):
    for name in ("p", "q", "r"):
        db.create(name)
    counted(db)
    first = clean(db)
    assert [ms for _, ms in first.values()] == [NEVER] * 3
    known = [x for number, (changes, _) in first.items() for x in (number, changes)]
    assert clean(db, known) == {}
    db.rows("SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'")    # of the client that had the server before
    assert clean(db, known) == {}
    assert list(clean(db, known[2:4])) == [1, 3]
    assert list(clean(db, [1, known[1] + 1] + known[2:])) == [1]
    db.push("q", "1")
    counted(db)
    assert list(clean(db, known)) == [2]
    db.rows("SELECT queue.alter('r', '{retain_done}', '{2 h}')")
    assert list(clean(db, known)) == [2, 3]
    db.rows("SELECT queue.drop('p')")
    db.create("p")
    assert list(clean(db, known)) == [2, 3, 4]


def test_one_that_never_had_a_job_is_not_looked_into(db):
    """A queue for each tenant is made before it is used."""
    db.create("never")
    db.create("had")
    db.push("had", "1")
    db.rows("DELETE FROM queue.q_had")
    db.create("cut")
    db.rows("SELECT queue.push('cut', '1', key => 'k', keep_for => '1 hour')")
    db.rows("TRUNCATE queue.q_cut")
    counted(db)
    scans = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_all_indexes WHERE relname = 'q_%s'"
    before = [db.value(scans % name) for name in ("never", "had", "cut")]
    got = clean(db)
    assert got[1][1] == NEVER == got[2][1] and got[3][1] <= 3600000     # the key stays taken for so long
    counted(db)
    after = [db.value(scans % name) for name in ("never", "had", "cut")]
    assert [a > b for a, b in zip(after, before)] == [False, True, True]


def test_how_long_it_stays_clean(db):
    for name in ("done", "dead", "late", "waits", "key"):
        db.create(name, retain_done="1 h", retain_dead="2 h")
    finish(db, "done", 2)
    db.push("dead", "1")
    db.rows("SELECT queue.fail(%s, final => true)", db.take("dead", 1)[0]["token"])
    db.rows("SELECT queue.push('late', '1', expires => '3 h')")
    job = db.value("SELECT queue.push('late', '1')")
    db.rows("SELECT queue.push('waits', '1', after => %s)", ["3-%d" % job])
    db.rows("SELECT queue.push('key', '1', key => 'k', keep_for => '30 min')")
    db.take("key", 1)
    counted(db)
    ms = {name: clean(db)[number][1] for name, number in db.rows("SELECT name, number FROM queue.queues")}
    for name, minutes in {"done": 60, "dead": 120, "late": 180, "key": 30}.items():
        assert 0 <= minutes * 60000 - ms[name] < 60000, (name, ms[name])
    assert ms["waits"] == 0
    age(db, "done", "59 min")
    counted(db)
    assert clean(db)[1][1] < 60000


def test_clean_where_nobody_counts(db):
    """Rows may change unseen: each has its turn."""
    db.create("q")
    db.connect("postgres").rows("ALTER ROLE app SET track_counts = off")
    try:
        assert [ms for _, ms in clean(db.connect()).values()] == [0]
    finally:
        db.connect("postgres").rows("ALTER ROLE app RESET track_counts")


def test_clean_with_an_archive_in_parts(db):
    """What is in a part is not counted for the whole."""
    db.create("q")
    root = db.connect("postgres")
    root.rows("CREATE TABLE queue.part () INHERITS (queue.a_q)")
    assert [ms for _, ms in clean(db).values()] == [0]


def test_what_cleans_is_asked_only_where_something_is_due(db):
    """Each of these is planned anew: in a queue that is only busy it would be for nothing."""
    db.create("q", retain_done="1 hour", retain_dead="1 hour")
    db.push("q", "1", "2")
    db.connect("postgres").rows("ALTER DATABASE %s SET track_functions = 'pl'" % db.name)
    cleaning = ["_clean", "_expire", "_look_after_all"]

    def called():
        owner = db.connect()    # what it has called before may still be counted
        owner.rows("BEGIN")
        gone = owner.value("SELECT (queue._maintain_one(c, 100, NULL)).gone FROM queue.queues AS c")
        calls = owner.column("SELECT funcname FROM pg_stat_xact_user_functions WHERE funcname = ANY (%s) AND calls > 0 ORDER BY 1", cleaning)
        owner.rows("COMMIT")
        return gone, calls

    assert called() == (0, [])
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s', due = now() - interval '1 s' WHERE id = 1")
    assert called() == (1, cleaning)
    assert called() == (0, [])


def test_a_job_that_lives_again_stays(db):
    """An owner reran it by hand; when it died is left in its row."""
    db.create("q", retain_dead="1 day")
    db.push("q", "1")
    db.rows("DO $$ DECLARE c text; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'queue.q_q'::regclass AND contype = 'c' LOOP"
            " EXECUTE format('ALTER TABLE queue.q_q DROP CONSTRAINT %I', c); END LOOP; END $$")
    db.rows("WITH j AS (SELECT) UPDATE queue.q_q SET ended_at = now() - interval '1 year'")
    db.rows("SELECT queue._maintain_one(c, 100, NULL) FROM queue.queues AS c")
    assert db.job("q", 1)["state"] == "ready"
    assert [job["id"] for job in db.take("q")] == [1]


def pushes_by_hand(db, **options):
    """A queue without the tests' constraints, and somebody who may push and writes rows himself."""
    db.create("q", max_length=3, **options)
    db.rows("DO $$ DECLARE c text; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'queue.q_q'::regclass AND contype = 'c' LOOP"
            " EXECUTE format('ALTER TABLE queue.q_q DROP CONSTRAINT %I', c); END LOOP; END $$")
    db.rows("DROP TRIGGER tests_move ON queue.q_q")
    db.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    return db.connect("bob")


@pytest.mark.parametrize("columns, values, state", [
    ("state, run_at", "'later', now() + interval '1 hour'", "later"), ("state, run_at", "'later', now() - interval '1 hour'", "ready"),
    ("state", "'later'", "ready"), ("state, expires_at", "'later', now() - interval '1 hour'", None),
    ("state, run_at, expires_at", "'later', '2100-01-01', now() + interval '1 hour'", "later"),
    ("expires_at", "now() - interval '1 hour'", None), ("expires_at", "now() + interval '1 hour'", "ready"),
    ("state", "'leased'", "ready"), ("state", "'odd'", "ready"), ("state, expires_at", "'odd', now() - interval '1 hour'", None),
    ("state", "'dead'", "dead")])
def test_a_row_without_what_it_is_found_by(db, columns, values, state):
    """It comes, or goes, and it is counted."""
    bob = pushes_by_hand(db)
    bob.rows(f"INSERT INTO queue.q_q (payload, {columns}) VALUES ('1', {values})")
    watch = db.connect()
    heard = []
    watch.conn.add_notify_handler(lambda n: heard.append(n.payload))
    watch.rows("LISTEN qbouncer")
    db.value("SELECT queue.maintain()")
    watch.rows("SELECT")
    assert heard == ["q"]
    assert [j["id"] for j in db.take("q", 5)] == ([1] if state == "ready" else [])
    left = db.job("q", 1)
    assert left is None if state is None else left["state"] == ("leased" if state == "ready" else state)
    if state is not None:
        assert db.value("SELECT count(*) FROM queue.q_q WHERE due IS NOT NULL OR ended_at IS NOT NULL OR state = 'ready'") == 1
    if state in ("ready", "later"):
        db.push("q", "1", "2")
        db.fails("QB004", "SELECT queue.push('q', '3')")


@pytest.mark.parametrize("state, due", [("ready", None), ("later", "run_at"), ("leased", "lease_until"), ("blocked", None), ("dead", None)])
def test_a_due_that_no_look_begins_behind(db, state, due):
    """Looks begin behind -infinity: it would not be found, and the queue never be clean."""
    bob = pushes_by_hand(db)
    bob.rows("INSERT INTO queue.q_q (payload, state, run_at, due) VALUES ('1', %s, '2100-01-01', '-infinity')", state)
    db.rows("UPDATE queue.q_q SET lease_until = '2100-01-01' WHERE state = 'leased'")
    db.value("SELECT queue.maintain()")
    assert db.row("SELECT state, due IS NOT DISTINCT FROM %s FROM queue.q_q" % (due or "NULL")) == (state, True)


REFUSED = {"another one of its group": "'g'", "a group too long for the index": "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) AS i)"}


@pytest.mark.parametrize("group", REFUSED)
def test_a_row_that_no_index_lets_in_dies(db, group):
    """And holds up neither what is behind it nor other queues."""
    bob = pushes_by_hand(db)
    db.create("r", retain_done="1 h")
    for name in ("q", "r"):
        db.rows("SELECT queue.alter(%s, '{retain_done}', '{1 h}')", name)
        finish(db, name, 1)
        age(db, name, "1 h")
    db.rows("INSERT INTO queue.q_q (payload, \"group\") VALUES ('1', 'g')")
    bob.rows("INSERT INTO queue.q_q (payload, state, \"group\") VALUES ('2', 'foo', %s)" % REFUSED[group])
    bob.rows("INSERT INTO queue.q_q (payload, state) VALUES ('3', 'foo')")
    assert db.value("SELECT queue.maintain()") == 2
    for _ in range(30):     # from the front, or from anywhere on
        db.value("SELECT queue.maintain()")
    assert db.rows("SELECT payload, state, error, ended_at IS NOT NULL FROM queue.q_q ORDER BY 1") == [
        (1, "ready", None, False), (2, "dead", "its state was foo", True), (3, "ready", None, False)]
    assert kept(db, "q") == kept(db, "r") == []


RAISES = """CREATE FUNCTION public.raises() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
CREATE TRIGGER raises BEFORE {} ON queue.q_q FOR EACH ROW {} EXECUTE FUNCTION public.raises()"""


@pytest.mark.parametrize("when, state", [("WHEN (NEW.payload = '2' AND NEW.state <> 'dead')", "dead"), ("WHEN (NEW.payload = '2')", "foo")])
def test_a_row_that_a_trigger_refuses_with_an_error(db, when, state):
    bob = pushes_by_hand(db, retain_done="1 h")
    finish(db, "q", 1)
    age(db, "q", "1 h")
    db.script(RAISES.format("UPDATE", when))
    bob.rows("INSERT INTO queue.q_q (payload, state) VALUES ('2', 'foo'), ('3', 'foo')")
    assert db.value("SELECT queue.maintain()") == 1
    for _ in range(30):
        db.value("SELECT queue.maintain()")
    assert db.rows("SELECT payload, state FROM queue.q_q ORDER BY 1") == [(2, state), (3, "ready")]
    assert set(db.notices) == (set() if state == "dead" else {'job 2 of queue "q" has a state that is wrong, and keeps it: no'})


def test_an_error_of_one_queue_is_its_own(db):
    """The others are cleaned; it is counted, and the caller is told why."""
    for name in ("p", "q", "r"):
        db.create(name, retain_done="1 h", retain_dead="1 h")
        db.push(name, "1")
        db.rows("SELECT queue.fail(%s, final => true)", db.take(name)[0]["token"])
        age(db, name, "1 h", "q")
        finish(db, name, 1)
        age(db, name, "1 h")
    db.script(RAISES.format("DELETE", ""))
    assert db.row("SELECT deleted, next, denied FROM queue._maintain_used('{}', 0, 100, 100000)") == (4, None, 1)
    assert db.notices == ['queue "q" cannot be cleaned: no']
    assert [len(kept(db, name)) for name in "pqr"] == [0, 1, 0]
    db.rows("DROP TRIGGER raises ON queue.q_q")
    assert db.value("SELECT queue.maintain()") == 2


def test_rows_without_due_behind_many_others(db):
    bob = pushes_by_hand(db)
    db.rows("SELECT queue.alter('q', '{}', '{}', '{max_length}')")
    db.rows("INSERT INTO queue.q_q (payload) SELECT '1' FROM generate_series(1, 5000)")
    bob.rows("INSERT INTO queue.q_q (payload, state, run_at) SELECT '2', 'later', '2100-01-01' FROM generate_series(1, 10)")
    for _ in range(200):
        db.value("SELECT queue.maintain()")
        if db.value("SELECT count(*) FROM queue.q_q WHERE due IS NOT NULL") == 10:
            break
    else:
        pytest.fail("they were not found")


def test_all_of_a_queue_that_rests_is_looked_at_once(db):
    """A part a round, and then it is clean, until something changes."""
    bob = pushes_by_hand(db)
    db.rows("SELECT queue.alter('q', '{}', '{}', '{max_length}')")
    db.rows("INSERT INTO queue.q_q (payload) SELECT '1' FROM generate_series(1, 15000)")
    bob.rows("INSERT INTO queue.q_q (payload, state) VALUES ('2', 'odd')")
    counted(bob)
    counted(db)
    steps = db.value("SELECT queue._steps(c) FROM queue.queues AS c")
    assert steps > 3
    known, looks = [], []
    for _ in range(3 * steps):
        told = db.value("SELECT clean FROM queue._maintain_used('{}', 0, 100, 100000, %s)", known)
        looks.append(told)
        if not told:
            break
        known = told[:2]
        counted(db)
    assert looks[-1] == [] and len(looks) <= 2 * steps + 3
    assert db.value("SELECT state FROM queue.q_q WHERE payload = '2'") == "ready"
