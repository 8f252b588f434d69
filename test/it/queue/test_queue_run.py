"""Jobs that run by themselves: handler, and run = sql."""

import json
import urllib.request

import psycopg
import pytest

from pgcluster import free_port
from proxy import wait_for
from queuetest import INT8, TEXT, error, q, qproxy, shared, shared_db, stats, tag  # noqa: F401
from relay import Relay
from verbways import each_way, i, iv, j, t

NOTE = """
CREATE SCHEMA app;
CREATE TABLE app.done (n int);
CREATE FUNCTION app.note(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.done VALUES ((payload ->> 'n')::int);
    IF payload ? 'fail' THEN RAISE EXCEPTION 'no such address' USING ERRCODE = 'QQ001'; END IF;
END $$
"""


@pytest.fixture
def runner(qbouncer, db):
    """A proxy, and app's connection: a schema with a handler, and the queue mail that has it."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.simple(NOTE)
        yield proxy, c


def value(direct, sql, *values):
    return direct.execute(sql, values).fetchone()[0]


def rows(direct):
    return [n for n, in direct.execute("SELECT n FROM app.done ORDER BY 1")]


def all_done(direct, queue="mail"):
    wait_for(lambda: value(direct, 'SELECT count(*) FROM queue."q_%s"' % queue) == 0, "the end of all jobs")


def dead(direct, queue="mail"):
    sql = "SELECT error FROM queue.\"q_%s\" WHERE state = 'dead'" % queue
    wait_for(lambda: direct.execute(sql).fetchone(), "a dead job")
    return value(direct, sql)


def test_handler(runner, direct):
    _, c = runner
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.note')")
    tag(c, "QUEUE PUSH mail '{\"n\": 1}', '{\"n\": 2}', '{\"n\": 3}'")
    all_done(direct)
    assert rows(direct) == [1, 2, 3]
    tag(c, "QUEUE PUSH mail '{\"n\": 4}'")
    all_done(direct)
    assert rows(direct) == [1, 2, 3, 4]
    (queue,) = c.rows("QUEUE LIST")
    assert (queue["handler"], queue["run"], queue["timeout"]) == ("app.note", None, None)


def test_a_failure_leaves_nothing(runner, direct):
    """What it has done is rolled back; the error is kept, and the policy of the queue says when it comes again."""
    _, c = runner
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.note', max_attempts = 2, retry = 'fixed 1ms')")
    tag(c, "QUEUE PUSH mail '{\"n\": 1, \"fail\": true}'")
    why = dead(direct)
    assert why.startswith("no such address (QQ001)\nCONTEXT:  PL/pgSQL function ") and "\n" not in why.partition("CONTEXT")[2]
    assert [e["error"] for e in c.rows("QUEUE ERRORS mail")] == ["no such address (QQ001)"]
    assert rows(direct) == []
    assert value(direct, "SELECT attempt FROM queue.q_mail") == 2


def test_a_failure_at_the_commit(runner, direct):
    _, c = runner
    c.simple("""CREATE FUNCTION app.late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not at all'; END$$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.done DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.late()""")
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.note', max_attempts = 1)")
    tag(c, "QUEUE PUSH mail '{\"n\": 1}'")
    assert dead(direct).startswith("not at all (P0001)\nCONTEXT:  PL/pgSQL function ")
    assert rows(direct) == []


def test_a_result_and_await(runner):
    _, c = runner
    c.simple("CREATE FUNCTION app.double(payload jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT to_jsonb((payload ->> 0)::int * 2)'")
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.double', retain_done = '1 h')")
    (job,) = c.rows("QUEUE PUSH mail '[21]' RETURNING JOB")
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])
    assert (end["state"], end["result"]) == ("done", "42")


@pytest.fixture
def app_path(direct, db):
    direct.execute('ALTER ROLE app IN DATABASE "%s" SET search_path = app, public' % db)
    yield
    direct.execute('ALTER ROLE app IN DATABASE "%s" RESET search_path' % db)


def test_the_owners_own_settings(app_path, runner, direct):
    """The handler sees what any session of its owner sees, not what another client has set, and leaves nothing."""
    _, c = runner
    c.simple("""CREATE TABLE app.seen (t text); CREATE FUNCTION app.look(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO seen VALUES (concat_ws(' ', current_setting('search_path'), session_user, current_user, current_setting('role')));
        PERFORM set_config('search_path', 'nowhere', false), set_config('work_mem', '77MB', false); END$$""")
    tag(c, "SET search_path = pg_catalog")
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.look')")
    for n in range(4):
        tag(c, "QUEUE PUSH mail '1'")
        all_done(direct)
    seen = {t for t, in direct.execute("SELECT t FROM app.seen")}
    assert seen == {"app, public app app none"}
    assert c.rows("SHOW work_mem")[0]["work_mem"] != "77MB"


def test_exactly_once_under_kills(qbouncer, db, direct):
    """Two proxies; backends are terminated at any moment."""
    proxies = [qbouncer(queue_run_pool_size=3), qbouncer(queue_run_pool_size=3)]
    with proxies[0].wire(db) as c, proxies[1].wire(db) as other:
        c.simple(NOTE.replace("BEGIN\n    INSERT", "BEGIN\n    PERFORM pg_sleep(0.01); INSERT"))
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.note', retry = 'fixed 1ms', max_attempts = 1000)")
        other.rows("QUEUE LIST")
        for n in range(0, 200, 20):
            tag(c, "QUEUE PUSH mail " + ", ".join("'{\"n\": %d}'" % i for i in range(n, n + 20)))
        for _ in range(15):
            have = len(rows(direct))
            direct.execute("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
                AND strpos(query, '_run_job') > 0 AND state = 'active' AND pid <> pg_backend_pid()""")
            wait_for(lambda have=have: len(rows(direct)) > have or len(rows(direct)) == 200, "progress")
        wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_mail") == 0, "the end of all jobs", timeout=60)
    assert rows(direct) == list(range(200))


def test_who_may(runner, direct):
    _, c = runner
    for sql, code in [
            ("handler = 'app.nothing'", "42883"), ("handler = 'note'", "22023"), ("handler = 'app.note(jsonb)'", "22023"),
            ("handler = 'app.note; DROP TABLE app.done'", "22023"), ("handler = 'pg_catalog.jsonb_array_elements'", "42P13"),
            ("handler = 'app.note', payload = text", "42883"), ("run = sql, payload = bytea", "0A000"), ("handler = 'app.note', run = sql", "22023"), ("run = bash", "22023"),
            ("run = sql, timeout = '0'", "22023")]:
        assert error(c, "QUEUE CREATE mail WITH (%s)" % sql).sqlstate == code, sql
    direct.execute("CREATE FUNCTION app.theirs(p jsonb) RETURNS void LANGUAGE sql SECURITY DEFINER AS ''; ALTER FUNCTION app.theirs OWNER TO other")
    e = error(c, "QUEUE CREATE mail WITH (handler = 'app.theirs')")
    assert e.sqlstate == "42501"
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.note')")
    c.query("QUEUE GRANT PUSH ON mail TO other")
    assert [m.fields["C"] for m in c.until("Z", skip="S") if m.type == "N"] == ["01000"]


def test_a_handler_that_becomes_another_ones(runner, direct):
    """Who owns the schema replaces it after the CREATE: it is not called."""
    _, c = runner
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.note', max_attempts = 1)")
    direct.execute("ALTER FUNCTION app.note OWNER TO other")
    tag(c, "QUEUE PUSH mail '{\"n\": 1}'")
    assert dead(direct).startswith("handler app.note(jsonb) does not belong to the owner of the queue (42501)")
    assert rows(direct) == []


def test_a_superusers_queue_runs_nothing(qbouncer, db, direct):
    proxy = qbouncer(users={"postgres": ""})
    with proxy.wire(db) as c, proxy.wire(db, user="postgres") as root:
        c.rows("QUEUE LIST")
        root.simple(NOTE)
        tag(root, "QUEUE CREATE mail WITH (handler = 'app.note')")
        tag(root, "QUEUE PUSH mail '{\"n\": 1}'")
        proxy.wait_log('jobs of queue "mail" of role postgres do not run: it is a superuser')
        assert stats(root)["ready"] == 1 and rows(direct) == []
    # the statement refuses it by itself
    with psycopg.connect(direct.info.dsn, autocommit=True) as conn, pytest.raises(psycopg.Error) as e:
        token = conn.execute("SELECT token FROM queue.take('mail')").fetchone()[0]
        conn.execute("SELECT queue._run_job(%s, 'public', false)", [token])
    assert e.value.sqlstate == "42501"


def test_another_owner(qbouncer, db, direct):
    """Who waits for its jobs does so in the login of the new one, as soon as the proxy hears of him."""
    proxy = qbouncer(users={"other": ""})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (run = sql, max_attempts = 1)")
        proxy.wait_show("WAITERS", lambda r: (r["kind"], r["user"]) == ("worker", "app"))
        direct.execute("UPDATE queue.queues SET owner = 'other' WHERE name = 'mail'")
        proxy.wait_show("WAITERS", lambda r: (r["kind"], r["user"]) == ("worker", "other"))
        assert {r["user"] for r in proxy.console("SHOW WAITERS")} == {"other"}


SLEEP = "CREATE FUNCTION app.sleep(payload jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep((payload ->> 0)::float8)'"


def running(direct):
    return value(direct, """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
        AND strpos(query, '_run_job') > 0 AND pid <> pg_backend_pid()""")


def test_a_cancel_ends_what_runs(qbouncer, db, direct):
    """The statement of that job, as soon as a renewal of its lease says so."""
    proxy = qbouncer(queue_hold_lease="1s", queue_run_pool_size=1)
    with proxy.wire(db) as c:
        c.simple(NOTE + ";" + SLEEP)
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.sleep')")
        (job,) = c.rows("QUEUE PUSH mail '[600]' RETURNING JOB")
        wait_for(lambda: running(direct) == 1, "that it runs")
        tag(c, "QUEUE PUSH mail '[0]'")
        tag(c, "QUEUE CANCEL '%s'" % job["job"])
        all_done(direct)
        assert running(direct) == 0


@pytest.mark.parametrize("what", ["handler", "sql", "alone", "batch"])
def test_a_cancel_makes_room(qbouncer, db, direct, what):
    """What was cancelled is gone with its statement, and not when its lease is over: its place is free."""
    proxy = qbouncer(queue_hold_lease="1h")
    with proxy.wire(db) as c:
        c.simple(NOTE + ";" + SLEEP)
        tag(c, "QUEUE CREATE mail WITH (max_running = 1, retain_done = '1 h', %s)" % {
            "handler": "handler = 'app.sleep'", "batch": "handler = 'app.sleep', handler_batch = 10"}.get(what, "run = sql"))
        more = " NO TRANSACTION" if what == "alone" else ""
        (job,) = c.rows("QUEUE PUSH mail '[600]' RETURNING JOB" if what in ("handler", "batch")
                        else "QUEUE RUN 'SELECT pg_sleep(600)' ON mail%s RETURNING JOB" % more)
        wait_for(lambda: value(direct, """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'""") == 1,
                 "that it runs")
        tag(c, "QUEUE PUSH mail '[0]'" if what in ("handler", "batch") else "QUEUE RUN 'SELECT 2' ON mail")
        tag(c, "QUEUE CANCEL '%s'" % job["job"])
        assert c.rows("QUEUE AWAIT '%s' WAIT '15s'" % job["job"])[0]["state"] == "cancelled"
        wait_for(lambda: stats(c) == {"ready": 0, "later": 0, "leased": 0, "dead": 0}, "the next one")


def test_shutdown_gives_back(qbouncer, db, direct):
    """What runs then is given back, and is no failed attempt; another proxy does it."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.simple(NOTE + ";" + SLEEP.replace("pg_sleep((payload ->> 0)::float8)", "pg_advisory_xact_lock_shared(7)"))
        direct.execute("SELECT pg_advisory_lock(7)")
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.sleep', max_attempts = 1)")
        tag(c, "QUEUE PUSH mail '[0]'")
        wait_for(lambda: running(direct) == 1, "that it runs")
    proxy.stop()
    wait_for(lambda: value(direct, "SELECT state FROM queue.q_mail") == "ready", "the job")
    direct.execute("SELECT pg_advisory_unlock(7)")
    with qbouncer().wire(db) as c:
        c.rows("QUEUE LIST")
        all_done(direct)


def test_a_client_that_leaves_at_once(qbouncer, db, direct):
    """It has used queues here, so the jobs of its role run."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.simple(NOTE)
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.note')")
    proxy.stop()
    with qbouncer().wire(db) as c:
        c.rows("QUEUE LIST")
    direct.execute("SELECT queue.push('mail', '{\"n\": 1}'::jsonb)")
    all_done(direct)
    assert rows(direct) == [1]


def test_a_timeout(runner, direct):
    """It ends the statement of that job, and not that of the next one."""
    _, c = runner
    c.simple(SLEEP)
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.sleep', timeout = '300ms', max_attempts = 1)")
    tag(c, "QUEUE PUSH mail '[600]'")
    assert dead(direct).startswith("timeout: the job ran longer than it may")
    tag(c, "QUEUE PUSH mail '[0]'")
    wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_mail WHERE state <> 'dead'") == 0, "the end of the next one")
    assert value(direct, "SELECT count(*) FROM queue.q_mail WHERE state = 'dead'") == 1


@pytest.fixture
def deaf(direct, db):
    direct.execute('ALTER ROLE app IN DATABASE "%s" SET client_min_messages = error' % db)
    yield
    direct.execute('ALTER ROLE app IN DATABASE "%s" RESET client_min_messages' % db)


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_a_timeout_of_one_job(deaf, runner, direct, how):
    """It goes before that of the queue, either way, whatever the role wants to hear of; and is retried as any failure."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, timeout = '300ms', max_attempts = 2, retry = 'fixed 1ms', retain_done = '1 h')")
    state, why = ends(c, "QUEUE RUN 'SELECT pg_sleep(600)' ON nightly%s TIMEOUT '50ms'" % how)
    assert state == "dead" and why.startswith("timeout: the job ran longer than it may (57014)"), why
    assert value(direct, "SELECT attempt FROM queue.q_nightly") == 2
    assert ends(c, "QUEUE RUN 'SELECT pg_sleep(0.5)' ON nightly%s TIMEOUT '1 min'" % how) == ("done", None)
    assert ends(c, "QUEUE RUN 'SELECT pg_sleep(600)' ON nightly" + how)[0] == "dead"
    for wrong in ("0", "-1 s", "2 years", "soon"):
        assert error(c, "QUEUE RUN 'SELECT 1' ON nightly TIMEOUT '%s'" % wrong).sqlstate in ("22023", "22007"), wrong
    for wrong in ('"x"', "0", "[]"):
        (job,) = c.rows("QUEUE PUSH nightly '{\"sql\": \"SELECT 1\", \"timeout\": %s}' RETURNING JOB" % wrong)
        assert c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])[0]["state"] == "dead"


def test_a_timeout_that_the_end_races(runner, direct):
    """What has ended in time is done once, what has not is not; none of them ends another one."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
    for n in range(60):
        tag(c, "QUEUE RUN 'SELECT pg_sleep(0.02); INSERT INTO app.done VALUES (%d)' ON nightly TIMEOUT '%d ms'" % (n, 15 + n % 12))
        tag(c, "QUEUE RUN 'SELECT pg_sleep(0.001); INSERT INTO app.done VALUES (%d)' ON nightly" % (1000 + n))
    wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_nightly WHERE state <> 'dead'") == 0, "all ends")
    dead = value(direct, "SELECT count(*) FROM queue.q_nightly")
    assert len(rows(direct)) == len(set(rows(direct))) == 120 - dead
    assert [n for n in rows(direct) if n >= 1000] == list(range(1000, 1060))
    assert value(direct, "SELECT count(*) FROM queue.q_nightly WHERE error !~ '^timeout'") == 0


def test_clients_have_their_connections(qbouncer, db, direct):
    """pool_size = 1, and as many jobs run as may: a client still gets its server."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as c:
        c.simple(NOTE + "; CREATE FUNCTION app.wait(payload jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock_shared(7)'")
        direct.execute("SELECT pg_advisory_lock(7)")
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.wait')")
        tag(c, "QUEUE PUSH mail '1', '2', '3', '4', '5'")
        wait_for(lambda: value(direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 2, "two that run")
        for n in range(3):
            assert c.rows("SELECT %d AS n" % n)[0]["n"] == str(n)
        direct.execute("SELECT pg_advisory_unlock(7)")
        all_done(direct)


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections"])
def test_the_last_connection_is_for_clients(qbouncer, db, direct, limit):
    """The others are all for jobs, if there are so many; when one has ended the next one runs."""
    proxy = qbouncer(queue_run_pool_size=4, **{limit: 3})
    with proxy.wire(db) as c:
        c.simple(NOTE + "; CREATE FUNCTION app.wait(payload jsonb) RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_xact_lock_shared((payload #>> ''{}'')::int8)'")
        for n in range(4):
            direct.execute("SELECT pg_advisory_lock(%s)", [n])
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.wait')")
        tag(c, "QUEUE PUSH mail '0', '1', '2', '3'")
        wait_for(lambda: sorted(r["state"] for r in proxy.console("SHOW RUNNING")) == ["running", "running", "waiting", "waiting"], "two that run")
        for n in range(3):
            with proxy.wire(db) as other:
                assert other.rows("SELECT %d AS n" % n)[0]["n"] == str(n)
        waits = "SELECT objid::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        for left in 4, 3, 2, 1:
            at = wait_for(lambda left=left: (lambda got: got if len(got) == min(left, 2) else None)(direct.execute(waits).fetchall()), "those that run")
            direct.execute("SELECT pg_advisory_unlock(%s)", at[0])
            wait_for(lambda left=left: value(direct, "SELECT count(*) FROM queue.q_mail") == left - 1, "the end of one", timeout=5)


def test_sql(runner, direct):
    _, c = runner
    tag(c, "QUEUE CREATE mail WITH (run = sql, retain_done = '1 h', max_attempts = 1)")
    for sql, want in [
            ("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y' ORDER BY 1", {"tag": "SELECT 2", "count": 2, "rows": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}),
            ("INSERT INTO app.done VALUES (1), (2)", {"tag": "INSERT 0 2", "count": 2}),
            ("INSERT INTO app.done VALUES (3) RETURNING n", {"tag": "INSERT 0 1", "count": 1, "rows": [{"n": 3}]}),
            ("SHOW work_mem", {"tag": "SHOW", "count": 1, "rows": [{"work_mem": "4MB"}]}), ("", {"count": 0}), ("; -- nothing", {"count": 0}),
            ("DO $$BEGIN RAISE NOTICE 'a %', 1; END$$", {"tag": "DO", "count": 0, "notices": "NOTICE:  a 1"}),
            ("SAVEPOINT s; INSERT INTO app.done VALUES (9); ROLLBACK WORK TO s; RELEASE s", {"count": 0, "statements": [
                {"tag": "SAVEPOINT", "count": 0}, {"tag": "INSERT 0 1", "count": 1}, {"tag": "ROLLBACK", "count": 0}, {"tag": "RELEASE", "count": 0}]}),
            ("CREATE TABLE app.t (); DROP TABLE app.t; DELETE FROM app.done WHERE n = 1 RETURNING n; VALUES (1)", {"count": 1, "statements": [
                {"tag": "CREATE TABLE", "count": 0}, {"tag": "DROP TABLE", "count": 0}, {"tag": "DELETE 1", "count": 1, "rows": [{"n": 1}]},
                {"tag": "SELECT 1", "count": 1, "rows": [{"column1": 1}]}]})]:
        (job,) = c.rows("QUEUE PUSH mail '%s' RETURNING JOB" % json.dumps({"sql": sql}).replace("'", "''"))
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])
        assert (end["state"], json.loads(end["result"] or "null"), end["error"]) == ("done", want, None), sql
    assert rows(direct) == [2, 3]


@pytest.mark.parametrize("sql, code", [
    ("COMMIT", "0A000"), ("INSERT INTO app.done VALUES (1); COMMIT", "0A000"), ("ROLLBACK", "0A000"), ("BEGIN", "0A000"),
    ("INSERT INTO app.done VALUES (1); PREPARE TRANSACTION ''x''", "0A000"), ("DO ''BEGIN COMMIT; END''", "2D000"),
    ("SET ROLE postgres", "42501"), ("SET SESSION AUTHORIZATION postgres", "42501"), ("SELECT 1/0", "22012"),
    ("INSERT INTO app.done VALUES (1); SELECT 1/0", "22012"), ("COPY app.done TO STDOUT", "0A000"), ("SELEKT", "42601")])  # fmt: skip
def test_sql_that_is_refused(runner, direct, sql, code):
    _, c = runner
    tag(c, "QUEUE CREATE mail WITH (run = sql, max_attempts = 1)")
    tag(c, "QUEUE PUSH mail '{\"sql\": \"%s\"}'" % sql)
    assert "(%s)" % code in dead(direct)
    assert rows(direct) == []


def test_nobody_can_log_in(qbouncer, db, direct):
    """Its owner is unknown here: the job waits, and the log says what to do."""
    proxy = qbouncer(start=False)
    del proxy.users["app"]
    proxy.start()
    direct.execute(NOTE + "; ALTER SCHEMA app OWNER TO app; ALTER FUNCTION app.note OWNER TO app; ALTER TABLE app.done OWNER TO app")
    with psycopg.connect(direct.info.dsn, user="app", autocommit=True) as app:
        with qbouncer().wire(db) as c:
            c.rows("QUEUE LIST")
        app.execute("SELECT queue.create('mail', false, '{handler}', '{app.note}')")
        app.execute("SELECT queue.push('mail', '{\"n\": 1}'::jsonb)")
    with proxy.wire(db, user="other") as c:
        c.rows("QUEUE LIST")
        proxy.wait_log("nobody here can log in as this role")


def test_called_again(runner, direct):
    """A handler that asks for it comes again, on its time, and what it has done stays."""
    _, c = runner
    tag(c, """CREATE FUNCTION app.poll(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO app.done VALUES ((queue.current_job() ->> 'attempt')::int);
        IF (SELECT count(*) FROM app.done) < 4 THEN RETURN queue.retry('20 ms', 'not yet', payload = '1'); END IF;
        RETURN queue.current_job() -> 'job'; END$$""")
    tag(c, "QUEUE CREATE mail WITH (handler = 'app.poll', max_attempts = 10, retain_done = '1 h')")
    for payload, attempts in (("1", [1, 2, 3, 4]), ("2", [1, 1, 1, 1])):
        (job,) = c.rows("QUEUE PUSH mail '%s' RETURNING JOB" % payload)
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])
        assert (end["state"], end["result"]) == ("done", '"%s"' % job["job"])
        assert rows(direct) == attempts
        direct.execute("DELETE FROM app.done")
    (figures,) = c.rows("QUEUE STATS mail BY DAY LAST 1")
    assert (figures["done"], figures["failed"]) == ("2", "3")


def test_what_runs_is_shown(runner, db, direct):
    proxy, c = runner
    tag(c, "QUEUE CREATE mail WITH (run = sql, timeout = '1 min')")
    direct.execute("SELECT pg_advisory_lock(7)")
    jobs = [r["job"] for r in c.rows("QUEUE PUSH mail '\"SELECT pg_advisory_xact_lock(7)\"', '\"SELECT pg_advisory_xact_lock(7)\"', '\"SELECT 1\"' RETURNING JOB")]
    held = "SELECT array_agg(pid ORDER BY pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 7"
    wait_for(lambda: len(value(direct, held) or []) == 2, "two that run")
    wait_for(lambda: len(proxy.console("SHOW RUNNING")) >= 2, "rows")
    found = [r for r in proxy.console("SHOW RUNNING") if r["state"] == "running"]
    assert sorted(int(r["pid"]) for r in found) == value(direct, held)
    assert sorted(r["job"] for r in found) == jobs[:2] and {r["attempt"] for r in found} == {"1"}
    assert {(r["database"], r["user"], r["queue"]) for r in found} == {(db, "app", "mail")}
    assert all(0 < int(r["running_us"]) < 60e6 and 0 < int(r["left_us"]) < 60e6 for r in found)
    direct.execute("SELECT pg_advisory_unlock(7)")
    all_done(direct)
    wait_for(lambda: proxy.console("SHOW RUNNING") == [], "nothing to run")


def test_metrics(qbouncer, db, direct):
    port = free_port()
    proxy = qbouncer(metrics_port=port)

    def figures():
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
            return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines() if "_run_" in line and line[0] != "#"}

    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (run = sql, max_attempts = 1)")
        for sql in ("SELECT 1", "SELECT 2", "SELECT 1/0"):
            tag(c, "QUEUE RUN '%s' ON mail" % sql)
        tag(c, "QUEUE RUN 'SELECT pg_sleep(0.05)' ON mail NO TRANSACTION")
        of = 'database="%s",queue="mail"' % db
        name = "qbouncer_queue_run_jobs_total{%s,outcome=\"%%s\"}" % of
        wait_for(lambda: figures().get(name % "done") == 3 and figures().get(name % "failed") == 1, "the ends")
        assert figures()[name % "again"] == 0
        assert 0.05 < figures()["qbouncer_queue_run_seconds_total{%s}" % of] < 60
        assert figures()["qbouncer_queue_run_running{%s}" % of] == 0
        direct.execute("SELECT pg_advisory_lock(7)")
        tag(c, "QUEUE RUN 'SELECT pg_advisory_xact_lock(7)' ON mail")
        wait_for(lambda: figures()["qbouncer_queue_run_running{%s}" % of] == 1, "one that runs")
        direct.execute("SELECT pg_advisory_unlock(7)")


# --- NO TRANSACTION ---


def ends(c, statement):
    (job,) = c.rows(statement + " RETURNING JOB")
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])
    return end["state"], end["error"]


def test_no_transaction(runner, direct):
    """What cannot be part of a transaction; values are bound to the types that the statement wants."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
    assert ends(c, "QUEUE RUN 'VACUUM app.done' ON nightly")[0] == "dead"
    for sql in ("VACUUM app.done", "CREATE INDEX CONCURRENTLY ON app.done (n)", "INSERT INTO app.done VALUES (1)", "SELECT 1", ""):
        assert ends(c, "QUEUE RUN '%s' ON nightly NO TRANSACTION" % sql) == ("done", None), sql
    assert value(direct, "SELECT count(*) FROM pg_indexes WHERE schemaname = 'app'") == 1
    assert value(direct, "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'done'") in (0, 1)
    tag(c, "CREATE PROCEDURE app.steps(n int) LANGUAGE plpgsql AS $$BEGIN "
           "INSERT INTO app.done VALUES (n); COMMIT; INSERT INTO app.done VALUES (n + 1); COMMIT; END$$")
    assert ends(c, "QUEUE RUN 'CALL app.steps($1)' ON nightly PARAMS '[5]' NO TRANSACTION") == ("done", None)
    assert ends(c, "QUEUE RUN 'INSERT INTO app.done SELECT $1 WHERE $2::text IS NULL' ON nightly PARAMS '[9, null]' NO TRANSACTION") == ("done", None)
    assert rows(direct) == [1, 5, 6, 9]
    tag(c, "QUEUE SCHEDULE v ON nightly EVERY '1 h' RUN 'VACUUM app.done' NO TRANSACTION")


@pytest.mark.parametrize("sql, want", [
    ("SELECT 1/0", "22012"), ("SELECT 1; SELECT 2", "42601"), ("SELEKT", "42601"), ("SELECT $1", "08P01"),
    ("COPY app.done FROM STDIN", "57014"), ("COPY app.done TO STDOUT", None), ("SET ROLE postgres", "42501"),
    ("SELECT pg_terminate_backend(pg_backend_pid())", "")])
def test_no_transaction_that_fails(runner, direct, sql, want):
    """It ends one job, and the connection serves the next."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
    state, why = ends(c, "QUEUE RUN '%s' ON nightly NO TRANSACTION" % sql.replace("'", "''"))
    if want is None:
        assert state == "done"
    else:
        assert state == "dead" and want in why, why
    assert ends(c, "QUEUE RUN 'INSERT INTO app.done VALUES (1)' ON nightly NO TRANSACTION")[0] == "done"
    assert rows(direct) == [1]


def test_no_transaction_leaves_nothing_open(runner, direct):
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h', timeout = '300ms')")
    ends(c, "QUEUE RUN 'BEGIN' ON nightly NO TRANSACTION")
    wait_for(lambda: value(direct, "SELECT count(*) FROM pg_stat_activity WHERE state ~ '^idle in transaction'") == 0, "the end of the transaction")
    ends(c, "QUEUE RUN 'SET work_mem = 78848' ON nightly NO TRANSACTION")
    tag(c, "CREATE TABLE app.seen (s text)")
    for _ in range(4):
        assert ends(c, "QUEUE RUN 'INSERT INTO app.seen VALUES (current_setting($$work_mem$$))' ON nightly NO TRANSACTION")[0] == "done"
    assert value(direct, "SELECT count(*) FROM app.seen WHERE s = '77MB'") == 0
    assert ends(c, "QUEUE RUN 'SELECT pg_sleep(20)' ON nightly NO TRANSACTION") [0] == "dead"


# --- what it has told ---

TELL = """DO $$BEGIN FOR n IN 1..%d LOOP RAISE NOTICE 'line % of %', n, repeat('\u00e4', 400); END LOOP; %s END$$"""


def tells(n, then=""):
    return TELL.replace("%d", str(n)).replace("%s", then).replace("'", "''")


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_what_a_failure_has_told(runner, direct, how):
    """Notices, as many as are of use, and where it was; HISTORY and JOB have it, ERRORS counts what is the same."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
    state, why = ends(c, "QUEUE RUN '%s' ON nightly%s" % (tells(3, "RAISE EXCEPTION 'no';"), how))
    lines = why.split("\n")
    assert state == "dead" and lines[:3] == ["no (P0001)", "CONTEXT:  PL/pgSQL function inline_code_block line 1 at RAISE",
                                             "NOTICES:" if how else lines[2]], lines
    assert "queue._run" not in why and lines[lines.index("NOTICES:") + 1].startswith("NOTICE:  line 1 of ") and "NOTICE:  line 3 of " in why
    state, why = ends(c, "QUEUE RUN '%s' ON nightly%s" % (tells(50000, "RAISE EXCEPTION 'no';"), how))
    assert state == "dead" and why.endswith("\n(49980 more)") and len(why.encode()) < 6000
    (errors,) = c.rows("QUEUE ERRORS nightly")
    assert (errors["error"], errors["jobs"]) == ("no (P0001)", "2")


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_what_is_kept(runner, direct, how):
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1)")
    for keep, result, why in [("RESULT", True, True), ("ALWAYS", True, True), ("ERROR", False, True), ("NONE", False, False)]:
        (job,) = c.rows("QUEUE RUN 'SELECT 1 AS n' ON nightly%s KEEP %s RETURNING JOB" % (how, keep))
        id = job["job"].split("-")[1]
        wait_for(lambda id=id: value(direct, "SELECT count(*) FROM queue.q_nightly WHERE id = %s", id) == 0, "its end")
        assert value(direct, "SELECT count(*) FROM queue.a_nightly WHERE id = %s AND result IS NOT NULL", id) == result, keep
        assert value(direct, "SELECT count(*) FROM queue.a_nightly WHERE id = %s", id) == result, keep
        state, error_of = ends(c, "QUEUE RUN 'SELECT ''secret''::int' ON nightly%s KEEP %s" % (how, keep))
        assert state == "dead" and ("secret" in error_of) == why and "22P02" in error_of, (keep, error_of)
    assert error(c, "QUEUE RUN 'SELECT 1' ON nightly KEEP all").sqlstate == "22023"


def test_rows_as_csv(runner, direct):
    """Of a job and of those of a schedule; what COPY writes: test/sql/test_run_format.py."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
    want = 'n;"a ""b"""\n1;"x;y"\n2;-\n'
    sql = 'SELECT * FROM (VALUES (1, $$x;y$$), (2, NULL)) AS t (n, "a ""b""")'
    how = "FORMAT CSV WITH (DELIMITER = ';', HEADER = true, NULL = '-')"
    (job,) = c.rows("QUEUE RUN '%s' ON nightly %s RETURNING JOB" % (sql, how))
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20 s'" % job["job"])
    assert json.loads(end["result"]) == {"tag": "SELECT 2", "count": 2, "csv": want}
    tag(c, "QUEUE SCHEDULE s ON nightly EVERY '1 h' RUN '%s' %s" % (sql, how))
    tag(c, "QUEUE TRIGGER SCHEDULE s")
    results = "SELECT count(*) FROM queue.a_nightly WHERE result ->> 'csv' = %s"
    wait_for(lambda: value(direct, results, want) == 2, "the result of the schedule's")
    assert error(c, "QUEUE RUN 'SELECT 1' ON nightly FORMAT csv WITH (headr = true)").sqlstate == "22023"
    (job,) = c.rows("QUEUE RUN '%s' ON nightly %s NO TRANSACTION RETURNING JOB" % (sql, how))
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20 s'" % job["job"])
    assert json.loads(end["result"]) == {"tag": "SELECT 2", "count": 2, "csv": want}
    assert error(c, "QUEUE RUN 'SELECT 1' ON nightly WITH (header = true)").sqlstate == "22023"


def test_what_no_transaction_has_told(runner):
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1)")
    for sql, want in [
            ("INSERT INTO app.done VALUES (1), (2)", {"tag": "INSERT 0 2", "count": 2}), ("VACUUM app.done", {"tag": "VACUUM", "count": 0}), ("", {"tag": "", "count": 0}),
            ("DO $$BEGIN RAISE WARNING 'a \"b\"'; END$$", {"tag": "DO", "count": 0, "notices": 'WARNING:  a "b"'}),
            ("SELECT 1 AS a, NULL AS b, ARRAY[1, 2] AS c, '{\"x\": 1}'::jsonb AS j", {"tag": "SELECT 1", "count": 1, "rows": [{"a": 1, "b": None, "c": [1, 2], "j": {"x": 1}}]}),
            ("INSERT INTO app.done VALUES (3) RETURNING n", {"tag": "INSERT 0 1", "count": 1, "rows": [{"n": 3}]}),
            ("SELECT 1 AS a WHERE false", {"tag": "SELECT 0", "count": 0, "rows": []})]:
        (job,) = c.rows("QUEUE RUN '%s' ON nightly NO TRANSACTION RETURNING JOB" % sql.replace("'", "''"))
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])
        assert (end["state"], json.loads(end["result"])) == ("done", want), end


def test_rows_of_no_transaction(runner, direct):
    """Types that were made here, a procedure that commits and has a result, texts; and no more than there is room for."""
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1)")
    c.simple("CREATE TYPE app.pair AS (a int, b text); CREATE PROCEDURE app.counts(INOUT n int) LANGUAGE plpgsql AS $$BEGIN "
             "INSERT INTO app.done VALUES (n); COMMIT; n := n + 1; END$$")

    def result(sql, more=""):
        (job,) = c.rows("QUEUE RUN '%s' ON nightly NO TRANSACTION %s RETURNING JOB" % (sql.replace("'", "''"), more))
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '60s'" % job["job"])
        assert (end["state"], end["error"]) == ("done", None)
        return json.loads(end["result"])

    assert result("SELECT ROW(1, 'x')::app.pair AS p")["rows"] == [{"p": {"a": 1, "b": "x"}}]
    assert result("CALL app.counts($1)", "PARAMS '[5]'") == {"tag": "CALL", "count": 1, "rows": [{"n": 6}]}
    assert result("SELECT 1 AS a", "FORMAT text")["text"] == " a \n---\n 1\n(1 row)\n\n"
    assert result("SELECT 1 AS a", "FORMAT csv WITH (header = true, force_quote = '*')")["csv"] == 'a\n"1"\n'
    many = result("SELECT n, repeat('x', 50) AS x FROM generate_series(1, 100000) AS n")
    assert (many["count"], many["cut"]) == (100000, True) and 10000 < len(many["rows"]) < 20000 and len(json.dumps(many)) < 1200000
    assert result("SELECT repeat('x', 3000000) AS x") == {"tag": "SELECT 1", "count": 1, "cut": True, "rows": []}


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_what_is_kept_whatever_its_queue_keeps(runner, direct, how):
    _, c = runner
    for name, retain in (("all", "1 h"), ("nothing", "0")):
        tag(c, "QUEUE CREATE \"%s\" WITH (run = sql, max_attempts = 1, retain_done = '%s')" % (name, retain))
        for keep, kept in (("RESULT", True), ("ALWAYS", True), ("ERROR", False), ("NONE", False)):
            (job,) = c.rows("QUEUE RUN 'SELECT 1 AS n' ON \"%s\"%s KEEP %s RETURNING JOB" % (name, how, keep))
            id = job["job"].split("-")[1]
            wait_for(lambda id=id, name=name: value(direct, 'SELECT count(*) FROM queue."q_%s" WHERE id = %%s' % name, id) == 0, "its end")
            assert value(direct, 'SELECT count(*) FROM queue."a_%s" WHERE id = %%s' % name, id) == kept, (name, keep)


@pytest.mark.parametrize("lost", ["cut", "silent", "never"])
def test_the_done_of_no_transaction_is_lost(qbouncer, cluster, db, direct, lost):
    """What was carried out is not carried out again for that: DONE is said once more."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, queue_engine_timeout="500ms", server_tls_sslmode="disable")
        with proxy.wire(db) as c:
            c.simple(NOTE)
            tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 5, retry = 'fixed 1ms')")
            assert ends(c, "QUEUE RUN 'SELECT 1' ON nightly NO TRANSACTION") == ("done", None)
            relay.arm(b"queue._run_done", lost)
            tag(c, "QUEUE RUN 'INSERT INTO app.done VALUES (1) RETURNING n' ON nightly NO TRANSACTION")
            assert relay.lost.wait(20)
            all_done(direct, "nightly")
            wait_for(lambda: proxy.console("SHOW RUNNING") == [], "its end")
            assert rows(direct) == [1]
            assert ends(c, "QUEUE RUN 'SELECT 1' ON nightly NO TRANSACTION") == ("done", None)


STAYS = """
CREATE TABLE app.attempts (pid int, at timestamptz DEFAULT clock_timestamp());
CREATE PROCEDURE app.stays() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.attempts VALUES (pg_backend_pid());
    COMMIT;
    IF (SELECT count(*) FROM app.attempts) = 1 THEN
        PERFORM pg_sleep(120);
    END IF;
    INSERT INTO app.done SELECT count(*) FROM pg_stat_activity WHERE pid IN (SELECT pid FROM app.attempts) AND pid <> pg_backend_pid();
END $$
"""


@pytest.mark.parametrize("name", ["nightly", "\"a name that is as long as one may be, 40\"", "nächtlich"])
def test_an_orphan_is_ended_before_it_is_carried_out_again(qbouncer, db, direct, name):
    """Its proxy is gone; nobody has told the server."""
    doomed = qbouncer(queue_orphan_grace="200ms")
    c = doomed.wire(db)
    c.simple(NOTE)
    c.simple(STAYS)
    tag(c, "QUEUE CREATE %s WITH (run = sql, retry = 'fixed 1ms')" % name)
    job = c.rows("QUEUE RUN 'CALL app.stays()' ON %s NO TRANSACTION RETURNING JOB" % name)[0]["job"]
    wait_for(lambda: value(direct, "SELECT count(*) FROM app.attempts") == 1, "the first attempt")
    first = value(direct, "SELECT pid FROM app.attempts")
    session = value(direct, "SELECT application_name FROM pg_stat_activity WHERE pid = %s", first)
    assert session.startswith("qbouncer ") and session.endswith(" " + job), session
    other = qbouncer(queue_orphan_grace="200ms")
    with other.wire(db) as w:
        w.simple("QUEUE STATS")
        doomed.kill()
        assert value(direct, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", first) == 1
        wait_for(lambda: rows(direct) != [], "the second attempt", timeout=60)
        assert rows(direct) == [0], "the first one had ended"
        all_done(direct, name.strip('"'))


@pytest.mark.parametrize("end", ["its time", "a cancel"])
def test_an_end_that_comes_too_late_for_the_look(qbouncer, cluster, db, direct, end):
    """The look has ended, and its answer is on its way, when the job is to end: its statement is not begun."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, queue_hold_lease="1s", server_tls_sslmode="disable")
        with proxy.wire(db) as c:
            c.simple(NOTE)
            tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1%s)" % (", timeout = '200ms'" if end == "its time" else ""))
            relay.arm(b"_run_job", "held")
            (job,) = c.rows("QUEUE RUN 'INSERT INTO app.done VALUES (1)' ON nightly NO TRANSACTION RETURNING JOB")
            assert relay.lost.wait(20)
            if end == "a cancel":
                tag(c, "QUEUE CANCEL '%s'" % job["job"])
            wait_for(lambda: [r["state"] for r in proxy.console("SHOW RUNNING")] == ["ending"], "that it is to end")
            relay.release()
            if end == "a cancel":
                wait_for(lambda: proxy.console("SHOW RUNNING") == [], "its end")
                all_done(direct, "nightly")
            else:
                assert dead(direct, "nightly") == "timeout: the job ran longer than it may (57014)"
            assert ends(c, "QUEUE RUN 'INSERT INTO app.done VALUES (2)' ON nightly NO TRANSACTION")[1] is None
            wait_for(lambda: rows(direct) != [], "the next one's effect")
            assert rows(direct) == [2]


# --- QUEUE RUN ---


def runs(c, name):
    """No session runs them here: queue_run_pool_size of this proxy is for others."""
    tag(c, "QUEUE ALTER %s SET (run = sql, max_running = 1)" % name)


VERBS = {
    "run": (runs, "QUEUE RUN {} ON {}", lambda name, s: [t("SELECT 1"), t(name)], "INSERT 0 1", None, None),
    "run with all": (runs, "QUEUE RUN {} ON {} PARAMS {} DATABASE {} TIMEOUT {} KEEP {} PRIORITY {} DELAY {} HEADERS {} EXPIRES {} ATTEMPTS {} KEY {} FOR {} ON DUPLICATE IGNORE GROUP {} "
                     "BATCH {} RETURNING ID, JOB",
                     lambda name, s: [t("SELECT $1"), t(name), j("[1]"), t("reports"), iv("1min", 60), t("ALWAYS"), i(3), iv("1h", 3600), j("{}"), iv("2h", 7200), i(2), t("k-" + name), iv("1h", 3600), t("g"),
                                      t("b")], "INSERT 0 1", [("id", INT8), ("job", TEXT)], None),
    "run with format": (runs, "QUEUE RUN {} ON {} FORMAT {} WITH (delimiter = {}, header = {})",
                        lambda name, s: [t("SELECT 1 AS a"), t(name), t("csv"), t(";"), t("true")], "INSERT 0 1", None, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


def test_run(runner, db, direct):
    proxy, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql, retain_done = '1 h', max_attempts = 1)")
    tag(c, "CREATE FUNCTION app.add(n int) RETURNS int LANGUAGE sql AS 'INSERT INTO app.done VALUES ($1) RETURNING n'")
    (job,) = c.rows("QUEUE RUN 'SELECT app.add($1::int) AS n' ON nightly PARAMS '[7]' RETURNING JOB")
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job["job"])
    assert (end["state"], json.loads(end["result"])) == ("done", {"tag": "SELECT 1", "count": 1, "rows": [{"n": 7}]})
    (next_one,) = c.rows("QUEUE RUN 'SELECT app.add(8)' ON nightly AFTER '%s' DELAY '10ms' RETURNING JOB" % job["job"])
    assert c.rows("QUEUE AWAIT '%s' WAIT '20s'" % next_one["job"])[0]["state"] == "done"
    assert rows(direct) == [7, 8]
    tag(c, "BEGIN")
    tag(c, "QUEUE RUN 'SELECT app.add(9)' ON nightly")
    tag(c, "ROLLBACK")
    with proxy.connect(db) as p:
        p.execute("QUEUE RUN %s ON nightly PARAMS %s", ("SELECT app.add($1::int)", "[10]"))
    wait_for(lambda: rows(direct) == [7, 8, 10], "the effect of what was pushed, alone")
    e = error(c, "QUEUE RUN 'SELECT 1' ON nightly PARAMS '{}'")
    assert (e.sqlstate, e.fields["H"]) == ("22023", "The values of $1, $2 and so on, in this order: '[7, \"a text\", null]'.")
    tag(c, "QUEUE CREATE plain")
    e = error(c, "QUEUE RUN 'SELECT 1' ON plain")
    assert e.sqlstate == "55000" and "SET (run = sql)" in e.fields["H"]
    assert error(c, "QUEUE RUN 'SELECT 1'").sqlstate == "42601"


def test_texts_and_bytes(runner, direct):
    """Payloads of these types run as those of jsonb do."""
    _, c = runner
    c.simple("""CREATE FUNCTION app.of_text(p text) RETURNS void LANGUAGE sql AS 'INSERT INTO app.done VALUES (length(p))';
        CREATE FUNCTION app.of_bytes(p bytea) RETURNS void LANGUAGE sql AS 'INSERT INTO app.done VALUES (100 + length(p))'""")
    tag(c, "QUEUE CREATE texts WITH (payload = text, handler = 'app.of_text')")
    tag(c, "QUEUE CREATE bytes WITH (payload = bytea, handler = 'app.of_bytes')")
    tag(c, "QUEUE CREATE sqls WITH (payload = text, run = sql, max_attempts = 1)")
    tag(c, "QUEUE PUSH texts '{not json'")
    tag(c, "QUEUE PUSH bytes '\\x00ff'")
    tag(c, "QUEUE PUSH sqls 'INSERT INTO app.done VALUES (500)'")
    tag(c, "QUEUE RUN 'INSERT INTO app.done VALUES (501)' ON sqls")
    tag(c, "QUEUE SCHEDULE s ON sqls EVERY '1 h' RUN 'INSERT INTO app.done VALUES (502)'")
    tag(c, "QUEUE TRIGGER SCHEDULE s")
    wait_for(lambda: len(rows(direct)) == 5, "what they do")
    assert rows(direct) == [9, 102, 500, 501, 502]
    assert error(c, "QUEUE RUN 'SELECT 1' ON sqls KEEP NONE").sqlstate == "0A000"


def test_run_needs_push(runner, db):
    proxy, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql)")
    with proxy.wire(db, user="other") as w:
        e = error(w, "QUEUE RUN 'SELECT 1' ON nightly")
        assert e.sqlstate == "42501"


def test_schedule_of_sql(runner, direct):
    _, c = runner
    tag(c, "QUEUE CREATE nightly WITH (run = sql)")
    assert tag(c, "QUEUE SCHEDULE count ON nightly EVERY '1 h' RUN 'INSERT INTO app.done VALUES ($1::int)' PARAMS '[5]'") == "CREATE SCHEDULE"
    tag(c, "QUEUE TRIGGER SCHEDULE count")
    wait_for(lambda: rows(direct) == [5], "what the schedule does")
    assert error(c, "QUEUE SCHEDULE two ON nightly EVERY '1 h' PUSH '1' RUN 'SELECT 1'").sqlstate == "42601"
    assert error(c, "QUEUE SCHEDULE two ON nightly EVERY '1 h'").sqlstate == "42601"
    tag(c, "QUEUE CREATE plain")
    assert error(c, "QUEUE SCHEDULE two ON plain EVERY '1 h' RUN 'SELECT 1'").sqlstate == "55000"
