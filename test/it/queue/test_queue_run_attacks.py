"""Jobs that run by themselves, and what such a job may do to others: to the next one in its session, to the program, to itself."""

import json

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, shared, shared_db, stats, tag  # noqa: F401
from relay import Relay


@pytest.fixture
def sql(qbouncer, db):
    """A proxy that runs one job at a time, and app's connection: the queue nightly runs SQL, and keeps how it ended."""
    proxy = qbouncer(queue_run_pool_size=1)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, retain_done = '1 h', max_attempts = 1)")
        yield proxy, c


def run(c, statement, queue="nightly", wait="30s"):
    (job,) = c.rows("QUEUE RUN %s ON %s RETURNING JOB" % (literal(statement), queue))
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '%s'" % (job["job"], wait))
    return end


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def rows(end):
    assert (end["state"], end["error"]) == ("done", None)
    return json.loads(end["result"])["rows"]


def test_nothing_is_left_for_the_next_job(sql, direct):
    _, c = sql
    for statement in ("SELECT pg_advisory_lock(77)", "PREPARE p AS SELECT 1", "LISTEN somebody", "CREATE TEMP TABLE q_nightly (a int)",
                      "SET work_mem = '77MB'", "SELECT set_config('search_path', 'pg_temp', false)", "SET statement_timeout = '1ms'",
                      "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "SET default_transaction_read_only = on",
                      "CREATE FUNCTION pg_temp.now() RETURNS int LANGUAGE sql AS 'SELECT 1'", "RESET ALL", "SET TRANSACTION READ ONLY",
                      "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET DateStyle = 'german'"):
        end = run(c, statement)
        assert end["state"] == ("dead" if "TRANSACTION READ" in statement or " TRANSACTION" not in statement and end["error"] else "done"), (statement, end)
        (seen,) = rows(run(c, """SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77) AS locks,
            (SELECT count(*) FROM pg_prepared_statements WHERE name = 'p') AS prepared, (SELECT count(*) FROM pg_cursors WHERE name = 'c') AS cursors,
            (SELECT count(*) FROM pg_listening_channels()) AS channels, to_regclass('pg_temp.q_nightly') AS temp, current_setting('work_mem') AS mem,
            current_setting('search_path') AS path, current_setting('statement_timeout') AS timeout, current_setting('default_transaction_read_only') AS ro,
            current_setting('transaction_isolation') AS level, current_setting('DateStyle') AS style"""))
        assert seen == {"locks": 0, "prepared": 0, "cursors": 0, "channels": 0, "temp": None, "mem": "4MB", "path": '"$user", public', "timeout": "0",
                        "ro": "off", "level": "read committed", "style": "ISO, MDY"}, statement


THAT_FAIL = [
    ("ROLLBACK WORK", "0A000"), ("ABORT", "0A000"), ("END", "0A000"), ("/* a */ COMMIT", "0A000"), ("START TRANSACTION", "0A000"), ("COPY app_t FROM STDIN", "0A000"), ("COPY (SELECT 1) TO PROGRAM 'true'", "42501"), ("VACUUM", "25001"),
    ("SELECT pg_terminate_backend(pg_backend_pid())", "57P01"), ("SELECT pg_cancel_backend(pg_backend_pid())", "57014"),
    ("DO $$BEGIN EXECUTE 'COMMIT'; END$$", "0A000"), ("SELECT 1; COMMIT; SELECT 2", "0A000"), ("COMMIT AND CHAIN", "0A000"),
    ("DO $$BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'QB001'; END$$", "QB001"), ("DO $$BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'QB002'; END$$", "QB002"),
    ("DO $$BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '57P01'; END$$", "57P01"), ("DO $$BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '08006'; END$$", "08006"),
    ("SELECT queue._run_job('1-1-0000000000000000', 'public', true)", "QB001"), ("SELECT queue.release(concat_ws('-', number, id, token)) FROM queue.q_nightly, queue.queues WHERE name = 'nightly' AND token IS NOT NULL", "QB001"),
    ("SELECT queue.done(concat_ws('-', number, id, token)) FROM queue.q_nightly, queue.queues WHERE name = 'nightly' AND token IS NOT NULL", "QB001"), ("SELECT queue.fail(concat_ws('-', number, id, token)) FROM queue.q_nightly, queue.queues WHERE name = 'nightly' AND token IS NOT NULL", "QB001"),
    ("DELETE FROM queue.q_nightly", "QB001")]


def test_it_fails(sql):
    """As a job that has failed, not as one that is lost, which would come again when its lease ends; and the next one runs."""
    _, c = sql
    for statement, code in THAT_FAIL:
        end = run(c, statement)
        assert end["state"] == "dead" and "(%s)" % code in end["error"], (statement, end)
        assert rows(run(c, "SELECT 1 AS a")) == [{"a": 1}]


def test_statements_that_are_none(sql):
    _, c = sql
    for statement in ("", ";", "-- nothing", ";;SELECT 1;"):
        assert run(c, statement)["state"] == "done"


def memory(proxy):
    with open("/proc/%d/status" % proxy.process.pid) as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) * 1024


MUCH = [
    "SELECT repeat('x', 10000) FROM generate_series(1, 10000)", "SELECT repeat('x', 30000000)",
    "DO $$BEGIN FOR i IN 1 .. 10000 LOOP RAISE NOTICE '%', repeat('x', 10000); END LOOP; END$$", "DO $$BEGIN RAISE NOTICE '%', repeat('x', 30000000); END$$",
    "DO $$BEGIN FOR i IN 1 .. 10000 LOOP PERFORM pg_notify('qbouncer', i::text); END LOOP; END$$"]


def test_much_of_anything(sql):
    """The program stays as large as it is."""
    proxy, c = sql
    run(c, "SELECT 1")
    for statement in MUCH:
        before = memory(proxy)
        assert run(c, statement, wait="60s")["state"] == "done"
        # a part of what it tells: what was freed is held back for a while by the sanitizers
        assert memory(proxy) - before < (75000000 if "10000)" in statement else 25000000), statement


@pytest.mark.parametrize("size", [10000000, 20000000, 60000000])
def test_a_large_error(sql, size):
    _, c = sql
    end = run(c, "DO $$BEGIN RAISE EXCEPTION '%%', repeat('x', %d) USING ERRCODE = '22004'; END$$" % size)
    assert end["state"] == "dead" and len(end["error"]) < 100000 and end["error"].startswith("xxx")


@pytest.mark.parametrize("size", [60000, 70000, 50000000])
def test_a_large_notice(sql, size):
    """Its beginning is told."""
    _, c = sql
    end = run(c, "DO $$BEGIN RAISE NOTICE '%%', repeat('x', %d); RAISE NOTICE 'two'; END$$" % size)
    told = json.loads(end["result"])["notices"].split("\n")
    assert len(told) == 2 and told[0].startswith("NOTICE:  xxx") and len(told[0]) > 400 and told[1] == "NOTICE:  two"


# --- places ---

WAITS = "SELECT pg_advisory_xact_lock_shared(7)"


def waiting(direct):
    return direct.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()[0]


def states(direct, queue):
    return [state for state, in direct.execute('SELECT state FROM queue."q_%s" ORDER BY id' % queue)]


def test_another_proxy_has_a_place(sql, qbouncer, db, direct):
    """What was taken here and cannot run is not kept from one that could."""
    _, c = sql
    tag(c, "QUEUE CREATE daily WITH (run = sql)")
    direct.execute("SELECT pg_advisory_lock(7)")
    tag(c, "QUEUE RUN %s ON nightly" % literal(WAITS))
    wait_for(lambda: waiting(direct) == 1, "one that runs")
    tag(c, "QUEUE RUN %s ON daily" % literal(WAITS))
    with qbouncer(queue_run_pool_size=1).wire(db) as other:
        other.rows("QUEUE LIST")
        wait_for(lambda: waiting(direct) == 2, "the other one")
        direct.execute("SELECT pg_advisory_unlock(7)")
        wait_for(lambda: states(direct, "nightly") + states(direct, "daily") == [], "the end of both")


def test_a_place_is_taken_at_once_when_it_is_free(sql, direct):
    _, c = sql
    tag(c, "QUEUE CREATE daily WITH (run = sql)")
    for queue in ("nightly", "daily"):
        tag(c, "QUEUE RUN 'SELECT 1' ON %s" % queue)
        wait_for(lambda: states(direct, queue) == [], "the first one")
    direct.execute("SELECT pg_advisory_lock(7)")
    tag(c, "QUEUE RUN %s ON nightly" % literal(WAITS))
    wait_for(lambda: waiting(direct) == 1, "one that runs")
    tag(c, "QUEUE RUN %s ON daily" % literal(WAITS))
    wait_for(lambda: states(direct, "daily") == ["leased"], "that it was taken")
    wait_for(lambda: states(direct, "daily") == ["ready"], "that it was given back")
    direct.execute("SELECT pg_advisory_unlock(7)")
    wait_for(lambda: states(direct, "daily") == [], "the other one", timeout=3)


def test_none_here_any_more(sql, qbouncer, db, direct):
    """queue_run_pool_size = 0, and RELOAD: what its slots still get is for others. And back."""
    proxy, c = sql
    tag(c, "QUEUE RUN 'SELECT 1' ON nightly")
    wait_for(lambda: states(direct, "nightly") == [], "the first one")
    proxy.settings["queue_run_pool_size"] = 0
    proxy.reload()
    tag(c, "QUEUE RUN 'SELECT 2' ON nightly")
    with qbouncer().wire(db) as other:
        other.rows("QUEUE LIST")
        wait_for(lambda: states(direct, "nightly") == [], "the second one")
    proxy.settings["queue_run_pool_size"] = 3
    proxy.reload()
    direct.execute("SELECT pg_advisory_lock(7)")
    for _ in range(3):
        tag(c, "QUEUE RUN %s ON nightly" % literal(WAITS))
    wait_for(lambda: waiting(direct) == 3, "three that run, and no slot rests before", timeout=4)
    direct.execute("SELECT pg_advisory_unlock(7)")


def test_a_queue_that_runs_nothing_for_a_while(sql, direct):
    """What runs then ends; it is empty before it runs again, and there are slots."""
    _, c = sql
    direct.execute("SELECT pg_advisory_lock(7)")
    tag(c, "QUEUE RUN %s ON nightly" % literal(WAITS))
    wait_for(lambda: waiting(direct) == 1, "one that runs")
    tag(c, "QUEUE ALTER nightly RESET (run)")
    tag(c, "QUEUE CREATE daily WITH (run = sql)")  # it has looked again: its slots are there
    assert error(c, "QUEUE ALTER nightly SET (run = sql)").sqlstate == "55000"
    direct.execute("SELECT pg_advisory_unlock(7)")
    wait_for(lambda: states(direct, "nightly") == [], "the end of the first one")
    tag(c, "QUEUE ALTER nightly SET (run = sql)")
    assert run(c, "SELECT 1 AS a", wait="10s")["state"] == "done"


# --- CANCEL ---


@pytest.mark.parametrize("through", ["here", "another proxy", "no proxy", "all"])
def test_a_cancel_ends_what_runs_at_once(sql, qbouncer, db, direct, through):
    """Long before its lease is renewed; and not what runs next."""
    _, c = sql
    (job,) = c.rows("QUEUE RUN 'SELECT pg_sleep(600)' ON nightly RETURNING JOB")
    wait_for(lambda: states(direct, "nightly") == ["leased"], "that it runs")
    (after,) = c.rows("QUEUE RUN 'SELECT 1' ON nightly RETURNING JOB")
    if through == "no proxy":
        direct.execute("SELECT queue.cancel(%s)", [job["job"]])
    elif through == "all":
        direct.execute("SELECT queue.cancel_all('nightly', ids => ARRAY[%s])", [int(job["job"].split("-")[1])])
    else:
        with (sql[0] if through == "here" else qbouncer(queue_run_pool_size=0)).wire(db) as other:
            tag(other, "QUEUE CANCEL '%s'" % job["job"])
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % after["job"])
    assert (end["state"], end["error"]) == ("done", None)


# --- what a statement may do to its own transaction, and to the tables that the proxy needs ---


def test_what_runs_at_the_commit(sql, direct):
    """A deferred trigger, a cursor WITH HOLD: what fails there undoes the DONE; what they do is done once, by the owner."""
    _, c = sql
    c.simple("""CREATE TABLE app_t (n int); CREATE TABLE app_seen (who text);
        CREATE FUNCTION app_late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            IF NEW.n = 0 THEN RAISE EXCEPTION 'not at all'; END IF; INSERT INTO app_seen VALUES (session_user || current_user); RETURN NULL; END$$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app_t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app_late();
        CREATE FUNCTION app_fails() RETURNS int LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'held'; END$$;
        CREATE FUNCTION app_hold() RETURNS int LANGUAGE plpgsql AS $$BEGIN INSERT INTO app_seen VALUES ('held'); RETURN 1; END$$""")
    end = run(c, "INSERT INTO app_t VALUES (0)")
    assert end["state"] == "dead" and end["error"].startswith("not at all (P0001)\nCONTEXT:  PL/pgSQL function app_late()")
    end = run(c, "INSERT INTO app_t VALUES (1); DECLARE c CURSOR WITH HOLD FOR SELECT app_fails()")
    assert end["state"] == "dead" and end["error"].startswith("held (P0001)")
    assert c.rows("SELECT * FROM app_t UNION ALL SELECT 1 FROM app_seen") == []
    assert run(c, "INSERT INTO app_t VALUES (1); DECLARE c CURSOR WITH HOLD FOR SELECT app_hold()")["state"] == "done"
    assert sorted(r["who"] for r in c.rows("SELECT who FROM app_seen")) == ["appapp", "held"]
    (seen,) = rows(run(c, "SELECT count(*) AS n FROM pg_cursors WHERE is_holdable"))
    assert seen == {"n": 0}


def test_tables_that_the_proxy_needs(sql, db, direct):
    """Locked by the job for as long as it runs: it is over when its timeout says so, or ends, and so is all that waited."""
    proxy, c = sql
    direct.execute("GRANT ALL ON ALL TABLES IN SCHEMA queue TO app")
    tag(c, "QUEUE CREATE other WITH (run = sql)")
    for table in ("queue.queues", "queue.q_nightly", "queue.a_nightly", "queue.figures"):
        end = run(c, "LOCK %s IN ACCESS EXCLUSIVE MODE; SELECT 1 AS a" % table)
        assert end["state"] == "done", (table, end)
        (job,) = c.rows("QUEUE RUN %s ON nightly TIMEOUT '1 s' RETURNING JOB" % literal("LOCK %s IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)" % table))
        wait_for(lambda: c.rows("SELECT count(*) AS n FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(600)%'")[0]["n"] == "1", "that it runs")
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '30s'" % job["job"])
        assert end["state"] == "dead" and end["error"].startswith("timeout: the job ran longer than it may (57014)"), (table, end)
        assert run(c, "SELECT 1 AS a")["state"] == "done"


def test_a_million_notices(sql):
    proxy, c = sql
    run(c, "SELECT 1")
    before = memory(proxy)
    end = run(c, "DO $$BEGIN FOR i IN 1 .. 1000000 LOOP RAISE NOTICE 'n %', i; END LOOP; END$$", wait="120s")
    assert end["state"] == "done" and json.loads(end["result"])["notices"].endswith("NOTICE:  n 20\n(999980 more)")
    assert memory(proxy) - before < 25000000


def test_ten_million_rows(sql):
    proxy, c = sql
    run(c, "SELECT 1")
    before = memory(proxy)
    end = run(c, "SELECT n, 'x' AS t FROM generate_series(1, 10000000) AS n", wait="300s")
    result = json.loads(end["result"])
    assert (end["state"], result["tag"], result["cut"]) == ("done", "SELECT 10000000", True)
    assert memory(proxy) - before < 75000000


def test_rows_that_come_while_it_is_ended(sql, direct):
    """Cancelled, or its server lost, in the midst of them: a failure, nothing stays, and the next job runs."""
    _, c = sql
    tag(c, "CREATE TABLE app_t (n int)")
    much = "INSERT INTO app_t VALUES (1); SELECT repeat('x', 1000), generate_series(1, 100000000)"
    runs = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND strpos(query, 'SELECT repeat(') = 1 AND pid <> pg_backend_pid()"
    for how in ("pg_terminate_backend", "pg_cancel_backend", "CANCEL", "TIMEOUT"):
        (job,) = c.rows("QUEUE RUN %s ON nightly%s RETURNING JOB" % (literal(much), " TIMEOUT '1 s'" if how == "TIMEOUT" else ""))
        wait_for(lambda: direct.execute(runs).fetchone(), "that it runs")
        if how == "CANCEL":
            tag(c, "QUEUE CANCEL '%s'" % job["job"])
        elif how != "TIMEOUT":  # again, as Postgres passes over a cancel that comes between two messages
            wait_for(lambda how=how: not direct.execute("SELECT %s(pid) FROM (%s) AS a" % (how, runs)).fetchall(), "the end of it")
        wait_for(lambda: direct.execute(runs).fetchone() is None, "the end of it")
        if how != "CANCEL":
            (end,) = c.rows("QUEUE AWAIT '%s' WAIT '30s'" % job["job"])
            assert end["state"] == "dead", (how, end)
        assert rows(run(c, "SELECT count(*) AS n FROM app_t")) == [{"n": 0}], how
        assert direct.execute(runs).fetchone() is None


def test_timeouts_at_any_moment(sql, direct):
    """Also between two messages of a statement: each job ends."""
    _, c = sql
    for n in range(60):
        tag(c, "QUEUE RUN 'SELECT 1; SELECT n FROM generate_series(1, 1000) AS n; SELECT pg_sleep(600)' ON nightly TIMEOUT '%d ms'" % (1 + n % 15))
    wait_for(lambda: set(states(direct, "nightly")) == {"dead"}, "their ends", timeout=60)
    assert {e.startswith("timeout: ") for e, in direct.execute("SELECT error FROM queue.q_nightly")} == {True}


def test_exactly_once_in_steps(sql, qbouncer, db, direct):
    """Servers that end between two statements, at the DONE, at the COMMIT: what a job does is there once, and both of it."""
    _, c = sql
    other = qbouncer(queue_run_pool_size=2)
    tag(c, "CREATE TABLE app_t (n int, part int)")
    tag(c, "QUEUE CREATE steps WITH (run = sql, retry = 'fixed 1ms', max_attempts = 1000)")
    with other.wire(db) as w:
        w.rows("QUEUE LIST")
        for n in range(150):
            tag(c, "QUEUE RUN 'INSERT INTO app_t VALUES (%d, 1); SELECT pg_sleep(0.005); INSERT INTO app_t VALUES (%d, 2)' ON steps" % (n, n))
        for _ in range(25):
            have = len(states(direct, "steps"))
            direct.execute("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'qbouncer steps %'""")
            wait_for(lambda have=have: len(states(direct, "steps")) < have or have == 0, "progress", timeout=60)
        wait_for(lambda: states(direct, "steps") == [], "the end of all", timeout=120)
    assert direct.execute("SELECT n, part FROM app_t ORDER BY 1, 2").fetchall() == [(n, part) for n in range(150) for part in (1, 2)]


def test_a_cancel_that_is_lost(cluster, qbouncer, db, direct):
    """It is asked for again, until the job has ended."""
    cancel_request = b"\x04\xd2\x16\x2e"
    with Relay(cluster.port) as relay, qbouncer(databases={"*": "host=127.0.0.1 port=%d" % relay.port}).wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1)")
        relay.arm(cancel_request, "never")
        tag(c, "QUEUE RUN 'SELECT 1; SELECT pg_sleep(600)' ON nightly TIMEOUT '100 ms'")
        assert relay.lost.wait(15)
        wait_for(lambda: states(direct, "nightly") == ["dead"], "its end")


# One of each class; those that are said of a lease, and of no server at all, too.
CODES = """01000 02000 03000 08006 08P01 09000 0A000 0B000 0F000 0L000 0P000 0Z002 20000 21000 22000 22P02 22P05 23505 24000 25000 25P02 26000 27000 28000
    2B000 2D000 2F005 34000 38000 39000 3B001 3D000 3F000 40001 40P01 42000 42501 42883 44000 53100 53200 53300 54000 55000 55P03 57014 57P01 57P03 58030 72000
    F0000 HV000 P0001 P0004 XX000 XX001 QB001 QB002 QB003 QB999""".split()


def test_an_error_of_each_class(qbouncer, db):
    """Whatever it says, a job is tried as often as it may be, and its error is the one that it had."""
    proxy = qbouncer()
    retry = "max_attempts = 2, retry = 'fixed 1ms', retain_done = '1 h'"
    with proxy.wire(db) as c:
        c.simple("""CREATE SCHEMA app; CREATE FUNCTION app.h(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'mine' USING ERRCODE = payload #>> '{}'; END $$""")
        tag(c, "QUEUE CREATE h WITH (handler = 'app.h', %s)" % retry)
        tag(c, "QUEUE CREATE b WITH (handler = 'app.h', handler_batch = 10, %s)" % retry)
        tag(c, "QUEUE CREATE s WITH (run = sql, %s)" % retry)
        jobs = []
        for code in CODES:
            statement = literal("DO $$BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '%s'; END$$" % code)
            for push in ("QUEUE PUSH h '\"%s\"'" % code, "QUEUE PUSH b '\"%s\"'" % code, "QUEUE RUN %s ON s" % statement, "QUEUE RUN %s ON s NO TRANSACTION" % statement):
                jobs.append((code, c.rows(push + " RETURNING JOB")[0]["job"]))
        for code, job in jobs:
            (end,) = c.rows("QUEUE AWAIT '%s' WAIT '60 s'" % job)
            assert (end["state"], end["attempt"]) == ("dead", "2") and end["error"].startswith("mine (%s)" % code), (code, job, end)


def test_as_many_columns_as_there_may_be(sql):
    proxy, c = sql
    columns = ", ".join("%d AS c%d" % (i, i) for i in range(1600))
    (row,) = rows(run(c, "SELECT " + columns))
    assert row == {"c%d" % i: i for i in range(1600)}
    end = run(c, "SELECT %s FROM generate_series(1, 300)" % columns)
    got = json.loads(end["result"])
    assert (got["count"], got["cut"]) == (300, True) and 1 < len(got["rows"]) < 300
