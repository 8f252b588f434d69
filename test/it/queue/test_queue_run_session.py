"""session = keep: what a job leaves in its session is there for the next one of its queue, and for nobody else."""

import json
import signal
import urllib.request

import psycopg
import pytest

from pgcluster import free_port
from proxy import wait_for
from queuetest import error, stats, tag

# How many jobs have left something in this session, with this one.
COUNT = "CREATE TEMP TABLE IF NOT EXISTS mine (n int); INSERT INTO mine VALUES (1); SELECT count(*) AS n, pg_backend_pid() AS pid FROM mine"
WITH = "run = sql, session = keep, max_attempts = 1, retain_done = '1 h'"


def value(direct, sql, *values):
    return direct.execute(sql, values).fetchone()[0]


def kept(proxy, state="kept"):
    return [int(r["remote_pid"]) for r in proxy.console("SHOW SERVERS") if r["state"] == state]


def wait_kept(proxy, n=1):
    """And none is about to be, or to end."""
    wait_for(lambda: not proxy.console("SHOW RUNNING") and not kept(proxy, "tested") and len(kept(proxy)) == n, "%d sessions that are kept" % n)
    return kept(proxy)


def wait_gone(direct, pid):
    wait_for(lambda: value(direct, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == 0, "the end of the session")


def run(c, sql, queue="nightly", more=""):
    """The job has ended: its row."""
    quoted = sql.replace("'", "''")
    (job,) = c.rows("QUEUE RUN '%s' ON %s%s RETURNING JOB" % (quoted, queue, more))
    return c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])[0]


def result(c, sql, queue="nightly", more=""):
    end = run(c, sql, queue, more)
    assert end["state"] == "done", end
    got = json.loads(end["result"])
    got = got["statements"][-1] if "statements" in got else got
    return got["rows"][0] if "rows" in got else got["tag"]


def count(c, queue="nightly"):
    return result(c, COUNT, queue)["n"]


@pytest.fixture
def runner(qbouncer, db):
    """One job at a time: the next one finds the session of the one before it."""
    proxy = qbouncer(queue_run_pool_size=1)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
        yield proxy, c


def test_the_next_job_finds_what_the_last_one_left(runner, db, direct):
    proxy, c = runner
    first = result(c, COUNT)
    assert first["n"] == 1
    for sql in ("PREPARE p (int) AS SELECT $1 + 1 AS n", "SET work_mem = '77MB'; SET app.x = '5'; SET search_path = pg_temp, public",
                "SET TimeZone = 'Asia/Tokyo'"):
        run(c, sql)
    assert result(c, "EXECUTE p (6)") == {"n": 7}
    assert result(c, "SELECT current_setting('work_mem') AS w, current_setting('app.x') AS x, current_setting('search_path') AS p,"
                     " current_setting('TimeZone') AS z") == {"w": "77MB", "x": "5", "p": "pg_temp, public", "z": "Asia/Tokyo"}
    assert result(c, COUNT) == {"n": 2, "pid": first["pid"]}
    assert wait_kept(proxy) == [first["pid"]]
    # nobody else does: neither a client, nor another queue, nor one whose sessions are cleaned
    for _ in range(5):
        seen = c.rows("SELECT to_regclass('pg_temp.mine') AS t, pg_backend_pid() AS pid, current_setting('work_mem') AS w")[0]
        assert seen["t"] is None and int(seen["pid"]) != first["pid"] and seen["w"] != "77MB"
    tag(c, "QUEUE CREATE other WITH (%s)" % WITH)
    assert count(c, "other") == 1
    tag(c, "QUEUE CREATE clean WITH (run = sql, session = clean, retain_done = '1 h')")
    assert [count(c, "clean") for _ in range(3)] == [1, 1, 1]


def test_by_default_nothing_stays(runner, direct):
    proxy, c = runner
    tag(c, "QUEUE CREATE clean WITH (run = sql, retain_done = '1 h')")
    assert [count(c, "clean") for _ in range(3)] == [1, 1, 1]
    assert kept(proxy) == []
    row = next(r for r in c.rows("QUEUE LIST") if r["queue"] == "clean")
    assert (row["session"], row["session_jobs"], row["session_time"]) == ("clean", None, None)


def test_so_many_jobs(runner):
    proxy, c = runner
    assert count(c) == 1
    tag(c, "QUEUE ALTER nightly SET (session_jobs = 3)")
    wait_kept(proxy, 0)
    assert [count(c) for _ in range(7)] == [1, 2, 3, 1, 2, 3, 1]
    (row,) = c.rows("QUEUE LIST")
    assert (row["session"], row["session_jobs"], row["session_time"]) == ("keep", "3", None)


def fails(c, sql="SELECT 1/0", more=""):
    end = run(c, sql, more=more)
    assert end["state"] == "dead", end
    return end["error"]


def test_so_long(runner):
    """Also when nobody comes; and one that is busy all the time ends behind a job."""
    proxy, c = runner
    assert count(c) == 1
    tag(c, "QUEUE ALTER nightly SET (session_time = '700 ms')")
    wait_kept(proxy, 0)
    assert count(c) == 1
    wait_kept(proxy, 0)
    assert count(c) == 1
    seen = [count(c)]
    wait_for(lambda: seen.append(count(c)) or seen[-1] < seen[-2], "another session")
    assert seen[-1] == 1 and seen[-2] > 1
    (row,) = c.rows("QUEUE LIST")
    assert row["session_time"] == "00:00:00.7"


LATE = """CREATE SCHEMA app; CREATE TABLE app.t (n int);
CREATE FUNCTION app.late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not at all'; END$$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.late()"""


@pytest.mark.parametrize("sql, more", [
    ("SELECT 1/0", ""), ("SELECT 1/0", " NO TRANSACTION"), ("INSERT INTO app.t VALUES (1)", ""), ("COMMIT", ""),
    ("SELECT pg_sleep(60)", " TIMEOUT '200 ms'"), ("SELECT pg_sleep(60)", " NO TRANSACTION TIMEOUT '200 ms'"), ("COPY app.t TO STDOUT", ""),
    ("SELECT pg_terminate_backend(pg_backend_pid())", "")])
def test_one_that_has_failed_leaves_nothing(runner, sql, more):
    _, c = runner
    c.simple(LATE)
    assert [count(c), count(c)] == [1, 2]
    fails(c, sql, more)
    assert [count(c), count(c)] == [1, 2]


def test_one_that_is_cancelled_leaves_nothing(runner, direct):
    _, c = runner
    assert [count(c), count(c)] == [1, 2]
    (job,) = c.rows("QUEUE RUN 'SELECT pg_sleep(60)' ON nightly RETURNING JOB")
    wait_for(lambda: value(direct, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1,
             "that it runs")
    tag(c, "QUEUE CANCEL '%s'" % job["job"])
    assert c.rows("QUEUE AWAIT '%s' WAIT '15s'" % job["job"])[0]["state"] == "cancelled"
    assert [count(c), count(c)] == [1, 2]


def test_one_that_asks_to_come_again_has_not_failed(qbouncer, db):
    proxy = qbouncer(queue_run_pool_size=1)
    with proxy.wire(db) as c:
        c.simple("""CREATE SCHEMA app; CREATE FUNCTION app.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
            DECLARE n int; BEGIN
                CREATE TEMP TABLE IF NOT EXISTS mine (n int); INSERT INTO mine VALUES (1); SELECT count(*) FROM mine INTO n;
                RETURN CASE WHEN n < 3 THEN queue.retry('1 ms', 'again') ELSE to_jsonb(n) END;
            END $$""")
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.f', session = keep, retain_done = '1 h')")
        (job,) = c.rows("QUEUE PUSH mail '1' RETURNING JOB")
        assert c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])[0]["result"] == "3"


def test_a_statement_by_itself_leaves_it_too(runner, direct):
    """And it is not seen in what the session is called when it is idle."""
    proxy, c = runner
    first = result(c, COUNT)
    assert result(c, "CREATE TEMP TABLE other ()", more=" NO TRANSACTION") == "CREATE TABLE"
    assert result(c, "SELECT pg_backend_pid() AS pid, to_regclass('pg_temp.other')::text AS t, current_setting('application_name') AS a",
                  more=" NO TRANSACTION") == {"pid": first["pid"], "t": "other", "a": "qbouncer nightly 1-3"}
    assert count(c) == 2
    wait_kept(proxy)
    assert value(direct, "SELECT application_name FROM pg_stat_activity WHERE pid = %s", first["pid"]) != "qbouncer nightly 1-3"


# What is done, in a transaction or not; what the next one asks; what it sees.
RIGHT = [
    ("SET statement_timeout = '1 ms'", True, "SELECT pg_sleep(0.05)::text AS s, current_setting('statement_timeout') AS v", {"s": "", "v": "0"}),
    ("SET statement_timeout = '1 h'", False, "SHOW statement_timeout", {"statement_timeout": "0"}),
    ("SET lock_timeout = '7 s'", False, "SHOW lock_timeout", {"lock_timeout": "0"}),
    ("SET idle_in_transaction_session_timeout = '7 s'", False, "SHOW idle_in_transaction_session_timeout", {"idle_in_transaction_session_timeout": "0"}),
    ("SET idle_session_timeout = '7 s'", False, "SHOW idle_session_timeout", {"idle_session_timeout": "0"}),
    ("SET default_transaction_read_only = on", False, "SHOW transaction_read_only", {"transaction_read_only": "off"}),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE", False, "SHOW transaction_isolation",
     {"transaction_isolation": "read committed"}),
    ("SET ROLE other", True, "SELECT current_user AS u, session_user AS s", {"u": "app", "s": "app"}),
    ("SET SESSION AUTHORIZATION app", False, "SELECT current_user AS u, session_user AS s", {"u": "app", "s": "app"}),
    ("SET DateStyle = 'SQL, DMY'", False, "SELECT '2026-02-01'::date::text AS d", {"d": "2026-02-01"}),
    ("SET IntervalStyle = 'sql_standard'", False, "SELECT '-1 day -2 h'::interval::text AS i", {"i": "-1 days -02:00:00"}),
    ("SET client_encoding = 'LATIN1'", False, "SELECT 'ü€' AS t", {"t": "ü€"}),
    ("SET standard_conforming_strings = off", False, r"SELECT 'a\b' AS t", {"t": r"a\b"}),
    ("SET application_name = 'me'; SELECT 1", False, "SELECT current_setting('application_name') LIKE 'qbouncer nightly %' AS a", {"a": True}),
    ("LISTEN here", False, "SELECT count(*) AS n FROM pg_listening_channels()", {"n": 0}),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", False, "SELECT count(*) AS n FROM pg_cursors WHERE name = 'c'", {"n": 0}),
    ("SELECT pg_advisory_lock(99)", False, "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND objid = 99", {"n": 0}),
]


@pytest.mark.parametrize("sql, alone, look, want", RIGHT)
def test_what_is_put_right(runner, cluster, sql, alone, look, want):
    """Whatever a job has set: the next one is carried out as any, in the same session."""
    _, c = runner
    cluster.psql("GRANT other TO app")
    try:
        before = result(c, COUNT)
        assert run(c, sql, more=" NO TRANSACTION" if alone else "")["state"] == "done"
        for how in ("", " NO TRANSACTION"):
            got = result(c, look, more=how)
            got.pop("?column?", None)
            assert got == want, how
        assert result(c, COUNT) == {"n": 2, "pid": before["pid"]}
    finally:
        cluster.psql("REVOKE other FROM app")


def test_a_lock_does_not_outlive_its_job(runner, direct):
    """An idle session would hold it for ever."""
    proxy, c = runner
    run(c, "SELECT pg_advisory_lock(99)")
    wait_kept(proxy)
    assert value(direct, "SELECT pg_try_advisory_lock(99)")


def test_a_role_that_is_left_in_force(runner, cluster):
    """It is an error of the job in a transaction; the next one is its own session's."""
    _, c = runner
    cluster.psql("GRANT other TO app")
    try:
        assert "left another role in force" in fails(c, "SET ROLE other")
        assert count(c) == 1
    finally:
        cluster.psql("REVOKE other FROM app")


def test_discard_all(runner):
    _, c = runner
    assert count(c) == 1
    assert result(c, "DISCARD ALL", more=" NO TRANSACTION") == "DISCARD ALL"
    assert [count(c), count(c)] == [1, 2]


CHANGES = ["QUEUE ALTER nightly SET (session = clean)", "QUEUE ALTER nightly RESET (session)", "QUEUE ALTER nightly SET (session_jobs = 10)",
           "QUEUE ALTER nightly SET (session_time = '1 h')", "QUEUE ALTER nightly RESET (run)", "QUEUE DROP nightly"]


@pytest.mark.parametrize("sql", CHANGES)
def test_a_change_of_the_queue_ends_it(runner, sql):
    proxy, c = runner
    assert count(c) == 1
    wait_kept(proxy)
    tag(c, sql)
    wait_kept(proxy, 0)
    if "DROP" in sql:
        tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
        assert [count(c), count(c)] == [1, 2]


def test_another_handler_or_owner(qbouncer, cluster, db, direct):
    proxy = qbouncer(queue_run_pool_size=1, users={"other": ""})
    with proxy.wire(db) as c:
        c.simple("CREATE SCHEMA app; CREATE FUNCTION app.f(jsonb) RETURNS void LANGUAGE sql AS ''; CREATE FUNCTION app.g(jsonb) RETURNS void LANGUAGE sql AS ''")
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.f', session = keep)")
        tag(c, "QUEUE PUSH mail '1'")
        wait_kept(proxy)
        tag(c, "QUEUE ALTER mail SET (handler = 'app.g')")
        wait_kept(proxy, 0)
        tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
        assert count(c) == 1
        wait_kept(proxy)
        direct.execute("UPDATE queue.queues SET owner = 'other' WHERE name = 'nightly'")
        wait_kept(proxy, 0)
    with proxy.wire(db, user="other") as w:
        assert [count(w), count(w)] == [1, 2]
        assert result(w, "SELECT session_user AS u") == {"u": "other"}


def test_a_backend_that_is_killed_while_it_is_idle(runner, direct):
    """No attempt has failed for that."""
    proxy, c = runner
    assert count(c) == 1
    (pid,) = wait_kept(proxy)
    assert value(direct, "SELECT pg_terminate_backend(%s)", pid)
    wait_kept(proxy, 0)
    assert [count(c), count(c)] == [1, 2]
    assert stats(c, "nightly")["dead"] == 0


def test_a_proxy_that_is_killed(qbouncer, runner, db, direct):
    proxy, c = runner
    first = result(c, COUNT)
    wait_kept(proxy)
    proxy.kill()
    wait_gone(direct, first["pid"])
    with qbouncer(queue_run_pool_size=1).wire(db) as again:
        again.rows("QUEUE LIST")
        assert [count(again), count(again)] == [1, 2]


def test_two_queues_and_one_place(runner):
    """Who has nothing to do makes room, and its session is cleaned: there is one connection for jobs, and no more."""
    proxy, c = runner
    tag(c, "QUEUE CREATE other WITH (%s)" % WITH)
    for _ in range(3):
        assert [count(c), count(c), count(c, "other")] == [1, 2, 1]
        assert len(wait_kept(proxy)) == 1


def test_no_more_than_there_are_places(qbouncer, db):
    """Of many queues the places are for those that were busy last."""
    proxy = qbouncer(queue_run_pool_size=2)
    with proxy.wire(db) as c:
        for n in range(5):
            tag(c, "QUEUE CREATE q%d WITH (%s)" % (n, WITH))
        for n in range(5):
            assert count(c, "q%d" % n) == 1
            assert len(kept(proxy)) <= 2
        wait_kept(proxy, 2)
        assert [count(c, "q4"), count(c, "q3")] == [2, 2]
        assert count(c, "q0") == 1
        assert [count(c, "q3"), count(c, "q0"), count(c, "q4")] == [3, 2, 1]
        # fewer places, and none: by a RELOAD
        proxy.settings["queue_run_pool_size"] = 1
        proxy.reload()
        wait_kept(proxy, 1)
        assert count(c, "q4") == 2
        proxy.settings["queue_run_pool_size"] = 0
        proxy.reload()
        wait_kept(proxy, 0)


def test_all_jobs_of_a_busy_queue(qbouncer, db, direct):
    """Two places: two sessions, which have done all of them."""
    proxy = qbouncer(queue_run_pool_size=2)
    with proxy.wire(db) as c:
        c.simple("""CREATE SCHEMA app; CREATE TABLE app.done (n int, pid int);
            CREATE FUNCTION app.f(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN
                CREATE TEMP TABLE IF NOT EXISTS mine (n int); INSERT INTO mine VALUES (1);
                INSERT INTO app.done SELECT count(*), pg_backend_pid() FROM mine;
            END $$""")
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.f', session = keep)")
        tag(c, "QUEUE PUSH mail SELECT '1' FROM generate_series(1, 200)")
        wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_mail") == 0, "the end of all jobs")
        assert value(direct, "SELECT count(*) FROM app.done") == 200
        pids = direct.execute("SELECT pid, count(*), max(n) FROM app.done GROUP BY pid").fetchall()
        assert 1 <= len(pids) <= 2 and all(n == last for _, n, last in pids)
        assert set(kept(proxy)) <= {p for p, _, _ in pids}


def test_a_batch_counts_as_its_jobs(qbouncer, db, direct):
    proxy = qbouncer(queue_run_pool_size=1)
    with proxy.wire(db) as c:
        c.simple("""CREATE SCHEMA app; CREATE TABLE app.done (n int, pid int);
            CREATE FUNCTION app.f(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN
                CREATE TEMP TABLE IF NOT EXISTS mine (n int); INSERT INTO mine VALUES (1); INSERT INTO app.done SELECT count(*) FROM mine;
            END $$""")
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.f', handler_batch = 100, session = keep, session_jobs = 12)")
        tag(c, "QUEUE PAUSE mail")
        for n in range(3):
            tag(c, "QUEUE PUSH mail SELECT '1' FROM generate_series(1, 10)")
            tag(c, "QUEUE RESUME mail")
            wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_mail") == 0, "the end of the batch")
            tag(c, "QUEUE PAUSE mail")
        # the second batch is the last one there
        assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY ctid")] == [*range(1, 21), *range(1, 11)]


def test_pause_reconnect_and_suspend(runner, db):
    proxy, c = runner
    assert count(c) == 1
    wait_kept(proxy)
    proxy.console("PAUSE %s" % db)
    assert kept(proxy) == []
    proxy.console("RESUME %s" % db)
    assert [count(c), count(c)] == [1, 2]
    wait_kept(proxy)
    with proxy.wire("qbouncer", user="admin") as admin:
        admin.simple("SUSPEND")
        admin.simple("RESUME")
    assert count(c) == 3
    wait_kept(proxy)
    proxy.console("RECONNECT %s" % db)
    wait_kept(proxy, 0)
    assert [count(c), count(c)] == [1, 2]


@pytest.mark.parametrize("setting", ["server_idle_timeout", "server_lifetime"])
def test_time_of_the_connection(qbouncer, db, direct, setting):
    """It ends as any does."""
    proxy = qbouncer(queue_run_pool_size=1, **{setting: 1})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
        first = result(c, COUNT)
        wait_gone(direct, first["pid"])
        assert count(c) == 1


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections"])
def test_a_client_that_needs_its_place(qbouncer, db, limit):
    """A session that nobody uses does not keep a client waiting."""
    proxy = qbouncer(queue_run_pool_size=1, default_pool_size=2, query_wait_timeout=20, **{limit: 3})
    with proxy.wire(db) as c, proxy.wire(db) as one, proxy.wire(db) as two:
        tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
        assert count(c) == 1
        wait_kept(proxy)
        one.simple("BEGIN; SELECT 1")
        two.simple("BEGIN; SELECT 1")
        assert len(kept(proxy)) <= 1
        one.simple("COMMIT")
        two.simple("COMMIT")
        assert count(c) in (1, 2)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, "SHUTDOWN WAIT_FOR_SERVERS", "SHUTDOWN WAIT_FOR_CLIENTS"])
def test_shutdown_and_restart(runner, db, direct, how):
    """What is kept does not hold up the end; and the next process finds nothing of it."""
    proxy, c = runner
    first = result(c, COUNT)
    wait_kept(proxy)
    c.close()
    if isinstance(how, str):
        proxy.console(how)
    else:
        proxy.signal(how)
    wait_for(lambda: proxy.process.poll() == 0, "the end of the proxy", timeout=4)
    wait_gone(direct, first["pid"])
    proxy.start()
    with proxy.wire(db) as again:
        again.rows("QUEUE LIST")
        assert [count(again), count(again)] == [1, 2]


@pytest.mark.parametrize("command", ["KILL", "DISABLE"])
def test_commands_of_the_console(runner, db, direct, command):
    """KILL ends it as it ends any connection; a database that lets nobody in still runs its jobs."""
    proxy, c = runner
    first = result(c, COUNT)
    wait_kept(proxy)
    proxy.console("%s %s" % (command, db))
    if command == "KILL":
        wait_gone(direct, first["pid"])
    proxy.console("%s %s" % ("RESUME" if command == "KILL" else "ENABLE", db))
    with proxy.wire(db) as again:
        again.rows("QUEUE LIST")
        assert count(again) == (1 if command == "KILL" else 2)


def test_an_entry_that_leads_elsewhere(qbouncer, cluster, db, direct):
    """By a RELOAD: the session is one of the database that it led to before."""
    there = cluster.createdb(owner="app")
    to = "host=%s port=%d dbname=" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(queue_run_pool_size=1, databases={"here": to + db})
    try:
        with proxy.wire("here") as c:
            tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
            first = result(c, COUNT)
        proxy.databases["here"] = to + there
        proxy.reload()
        wait_gone(direct, first["pid"])
        with proxy.wire("here") as c:
            tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
            assert result(c, "SELECT current_database() AS d, to_regclass('pg_temp.mine') AS t") == {"d": there, "t": None}
    finally:
        proxy.stop()
        cluster.dropdb(there)


def test_it_is_seen(qbouncer, db, direct):
    port = free_port()
    proxy = qbouncer(queue_run_pool_size=1, metrics_port=port)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (%s)" % WITH)
        assert [count(c), count(c)] == [1, 2]
        (pid,) = wait_kept(proxy)
        assert proxy.pool(db)["sv_kept"] == 1
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as f:
            assert ('qbouncer_pool_servers{database="%s",user="app",state="kept"} 1\n' % db) in f.read().decode()
        direct.execute("SELECT pg_advisory_lock(7)")
        tag(c, "QUEUE RUN 'SELECT pg_advisory_xact_lock(7)' ON nightly")
        row = proxy.wait_show("RUNNING", lambda r: r["state"] == "running")
        assert (row["before"], row["pid"]) == ("2", str(pid))
        direct.execute("SELECT pg_advisory_unlock(7)")


def test_options(runner):
    _, c = runner
    c.simple("CREATE SCHEMA app; CREATE FUNCTION app.f(jsonb) RETURNS void LANGUAGE sql AS ''")
    for sql in ("session = dirty", "session = keep, session_jobs = 0", "session = keep, session_jobs = 1000001", "session = keep, session_jobs = x",
                "session = keep, session_time = '0'", "session = keep, session_time = '2 years'", "session = keep, session_time = soon"):
        assert error(c, "QUEUE CREATE x WITH (run = sql, %s)" % sql).sqlstate == "22023", sql
    assert error(c, "QUEUE CREATE x WITH (session = keep)").sqlstate == "22023"
    assert error(c, "QUEUE CREATE x WITH (run = sql, session_jobs = 5)").sqlstate == "22023"
    tag(c, "QUEUE CREATE x WITH (session_time = '5 min', session_jobs = 5, session = keep, handler = 'app.f')")
    tag(c, "QUEUE ALTER x RESET (session)")
    assert error(c, "QUEUE ALTER x SET (session_jobs = 6)").sqlstate == "22023"
    tag(c, "QUEUE ALTER x RESET (session_jobs, session_time)")
    row = next(r for r in c.rows("QUEUE LIST") if r["queue"] == "x")
    assert (row["session"], row["session_jobs"], row["session_time"]) == ("clean", None, None)
    tag(c, "QUEUE ALTER x RESET (handler)")
    assert error(c, "QUEUE ALTER x SET (session = keep)").sqlstate == "22023"


def test_a_role_without_rights(runner, cluster, db, direct):
    """Who may not change the queue has no say in its sessions."""
    proxy, c = runner
    assert count(c) == 1
    with psycopg.connect(cluster.dsn(db, user="other"), autocommit=True) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT queue.alter('nightly', '{session}', '{clean}')")
    assert count(c) == 2


def test_a_transaction_with_an_old_snapshot(runner, db):
    """What it sees is not asked: who cleans the sessions of the queue is heard."""
    proxy, c = runner
    assert count(c) == 1
    with proxy.connect(db, autocommit=False) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert old.execute("SELECT session FROM queue.queues").fetchone()[0] == "keep"
        tag(c, "QUEUE ALTER nightly SET (session = clean)")
        wait_kept(proxy, 0)
        assert [count(c), count(c)] == [1, 1]
        # a job of the old one's, in the session of the new one
        old.execute("QUEUE RUN 'SELECT 1' ON nightly")
        old.commit()
    assert kept(proxy) == []


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections"])
def test_jobs_of_several_queues_under_a_limit(qbouncer, db, limit):
    """What is left to jobs is full of sessions that wait for nobody: they make room."""
    proxy = qbouncer(queue_run_pool_size=4, **{limit: 3})
    with proxy.wire(db) as c:
        queues = ["q%d" % n for n in range(4)]
        for name in queues:
            tag(c, "QUEUE CREATE %s WITH (%s)" % (name, WITH))
        for name in 3 * queues:
            assert count(c, name) >= 1
            assert len(kept(proxy)) <= 2
        assert c.rows("SELECT 1 AS n") == [{"n": "1"}]


def test_a_limit_of_another_database(qbouncer, cluster, db, direct):
    """Where that one has no room left, what is kept elsewhere makes none, and stays."""
    there = cluster.createdb(owner="app")
    to = "host=%s port=%d dbname=" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(queue_run_pool_size=4, databases={"full": "%s%s max_db_connections=2" % (to, db), "other": to + there})
    try:
        with proxy.wire("full") as c, proxy.wire("other") as d:
            tag(d, "QUEUE CREATE nightly WITH (%s)" % WITH)
            first = result(d, COUNT)
            wait_kept(proxy)
            direct.execute("SELECT pg_advisory_lock(7)")
            for name in ("one", "two"):
                tag(c, "QUEUE CREATE %s WITH (%s)" % (name, WITH))
                tag(c, "QUEUE RUN 'SELECT pg_advisory_xact_lock_shared(7)' ON %s" % name)
            wait_for(lambda: sorted(r["state"] for r in proxy.console("SHOW RUNNING")) == ["running", "waiting"], "one that waits for the other one")
            assert result(d, COUNT) == {"n": 2, "pid": first["pid"]}
            direct.execute("SELECT pg_advisory_unlock(7)")
            wait_for(lambda: not proxy.console("SHOW RUNNING"), "the end of both")
            assert result(d, COUNT) == {"n": 3, "pid": first["pid"]}
    finally:
        proxy.stop()
        cluster.dropdb(there)
