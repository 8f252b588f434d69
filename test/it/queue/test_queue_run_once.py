"""Jobs that run by themselves, and what outlives what: a server its proxy, a proxy its lease. A job never runs twice at once."""

import os
import signal

import psycopg
import pytest

from pgcluster import Cluster
from proxy import wait_for
from queuetest import tag
from relay import Relay

# What runs waits for the lock 7; it writes down, also if it is rolled back (the sequence), that it was there, and how many others are.
SETUP = """
CREATE SCHEMA app;
CREATE TABLE app.seen (others int);
CREATE SEQUENCE app.begun;
CREATE FUNCTION app.works() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('app.begun');
    PERFORM pg_advisory_lock_shared(7);
    PERFORM pg_advisory_unlock_shared(7);
    INSERT INTO app.seen SELECT count(*) FROM pg_stat_activity AS a
        WHERE a.state = 'active' AND a.query ~ '_run_job|_run_batch|app.works' AND a.pid <> pg_backend_pid();
    RETURN 1;
END $$;
CREATE FUNCTION app.handler(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM app.works(); END $$;
"""
KINDS = {"sql": ("run = sql", "QUEUE RUN 'SELECT app.works()' ON work"),
         "no transaction": ("run = sql", "QUEUE RUN 'SELECT app.works()' ON work NO TRANSACTION"),
         "handler": ("handler = 'app.handler'", "QUEUE PUSH work '1'"),
         "batch": ("handler = 'app.handler', handler_batch = 10", "QUEUE PUSH work '1', '2'")}


def value(direct, sql, *values):
    return direct.execute(sql, values).fetchone()[0]


def begun(direct):
    return value(direct, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM app.begun")


def workers(direct):
    """How many backends are at it."""
    return value(direct, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted")


def seen(direct):
    """How many others were at it, for one job that was done, or for several."""
    return sorted({n for n, in direct.execute("SELECT others FROM app.seen")})


@pytest.fixture
def held(direct):
    """The lock that jobs wait for."""
    direct.execute("SELECT pg_advisory_lock(7)")
    return direct


def one_runs(proxy, db, direct, kind, options="", other=None):
    c = proxy.wire(db)
    c.simple(SETUP)
    if other:
        tag(c, "QUEUE CREATE %s WITH (%s)" % (other, KINDS[kind][0]))
    tag(c, "QUEUE CREATE work WITH (%s, retry = 'fixed 1ms'%s)" % (KINDS[kind][0], options))
    tag(c, KINDS[kind][1])
    wait_for(lambda: workers(direct) == 1, "that it runs")
    return c


def ended(direct):
    wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_work") == 0, "its end", timeout=30)


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_is_killed(qbouncer, db, held, kind):
    doomed = qbouncer(queue_orphan_grace="200ms")
    one_runs(doomed, db, held, kind)
    with qbouncer(queue_orphan_grace="200ms").wire(db) as other:
        other.rows("QUEUE LIST")
        doomed.kill()
        wait_for(lambda: begun(held) == 2, "the second attempt", timeout=30)
        assert workers(held) == 1, "the first one has ended"
        held.execute("SELECT pg_advisory_unlock(7)")
        ended(held)
    assert seen(held) == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_dead_and_run_again(qbouncer, db, held, kind):
    """RERUN counts attempts anew: it is not the first one all the same."""
    doomed = qbouncer(queue_orphan_grace="200ms")
    one_runs(doomed, db, held, kind, ", max_attempts = 1")
    with qbouncer(queue_orphan_grace="200ms").wire(db) as other:
        other.rows("QUEUE LIST")
        doomed.kill()
        wait_for(lambda: value(held, "SELECT state FROM queue.q_work") == "dead", "its death", timeout=30)
        assert workers(held) == 1, "nobody has told the server"
        tag(other, "QUEUE RERUN %s ON work" % ("1, 2" if kind == "batch" else "1"))
        wait_for(lambda: begun(held) == 2 and workers(held), "the second attempt", timeout=30)
        assert workers(held) == 1
        held.execute("SELECT pg_advisory_unlock(7)")
        ended(held)
    assert seen(held) == [0]


MOVES = [(kind, how) for kind in KINDS for how in ("dead_queue", "redrive")]


@pytest.mark.parametrize("kind, how", MOVES)
def test_dead_and_run_elsewhere(qbouncer, db, held, kind, how):
    """It is another job then, of another name: what it was before is ended all the same."""
    doomed = qbouncer(queue_orphan_grace="200ms")
    one_runs(doomed, db, held, kind, ", max_attempts = 1" + (", dead_queue = 'other'" if how == "dead_queue" else ""), "other")
    with qbouncer(queue_orphan_grace="200ms").wire(db) as other:
        other.rows("QUEUE LIST")
        doomed.kill()
        if how == "redrive":
            wait_for(lambda: value(held, "SELECT count(*) FROM queue.q_work WHERE state <> 'dead'") == 0, "its death", timeout=30)
            assert workers(held) == 1, "nobody has told the server"
            tag(other, "QUEUE REDRIVE work TO other")
        wait_for(lambda: begun(held) == 2 and workers(held), "the second attempt", timeout=30)
        assert workers(held) == 1
        held.execute("SELECT pg_advisory_unlock(7)")
        wait_for(lambda: value(held, "SELECT count(*) FROM queue.q_other") == 0, "its end", timeout=30)
    assert seen(held) == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_ends(qbouncer, db, held, kind):
    """What it gives back is no failed attempt, and somebody else's at once, while the server may be at it still."""
    first = qbouncer()
    c = one_runs(first, db, held, kind, ", max_attempts = 1")
    with qbouncer().wire(db) as other:
        other.rows("QUEUE LIST")
        c.close()
        first.stop()
        wait_for(lambda: begun(held) == 2 and workers(held), "the second attempt", timeout=30)
        assert workers(held) == 1
        held.execute("SELECT pg_advisory_unlock(7)")
        ended(held)
    assert seen(held) == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_proxy_that_is_stopped(qbouncer, db, held, kind):
    """Longer than its lease: another one runs the job. When it goes on it does not end what it has begun, and takes nothing away."""
    sleeper = qbouncer(queue_hold_lease="1s")
    c = one_runs(sleeper, db, held, kind)
    with qbouncer(queue_hold_lease="1s").wire(db) as other:
        other.rows("QUEUE LIST")
        sleeper.signal(signal.SIGSTOP)
        try:
            wait_for(lambda: begun(held) == 2, "the second attempt", timeout=30)
            assert workers(held) == 1
        finally:
            sleeper.signal(signal.SIGCONT)
        wait_for(lambda: sleeper.console("SHOW RUNNING") == [], "that it knows")
        assert (begun(held), workers(held)) == (2, 1)
        held.execute("SELECT pg_advisory_unlock(7)")
        ended(held)
    assert seen(held) == [0]
    assert tag(c, "SELECT 1") == "SELECT 1"


def test_a_proxy_that_is_stopped_before_it_begins(cluster, qbouncer, db, held):
    """NO TRANSACTION: the look was in time, and the answer to it was read too late: it is somebody else's by now."""
    with Relay(cluster.port) as relay:
        sleeper = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, queue_hold_lease="1s", server_tls_sslmode="disable")
        with sleeper.wire(db) as c:
            c.simple(SETUP)
            tag(c, "QUEUE CREATE work WITH (run = sql, retry = 'fixed 1ms')")
            (job,) = c.rows("QUEUE RUN 'SELECT 1' ON work RETURNING JOB")
            c.rows("QUEUE AWAIT '%s' WAIT '10 s'" % job["job"])
            relay.arm(b"_run_job", "held")
            tag(c, "QUEUE RUN 'SELECT app.works()' ON work NO TRANSACTION")
            assert relay.lost.wait(20)
            sleeper.signal(signal.SIGSTOP)
            try:
                relay.release()
                other = qbouncer(queue_hold_lease="1s")
                with other.wire(db) as w:
                    w.rows("QUEUE LIST")
                    wait_for(lambda: begun(held) == 1, "that another one runs it", timeout=30)
            finally:
                sleeper.signal(signal.SIGCONT)
            wait_for(lambda: sleeper.console("SHOW RUNNING") == [], "that it knows")
            assert (begun(held), workers(held)) == (1, 1)
            held.execute("SELECT pg_advisory_unlock(7)")
            ended(held)
    assert seen(held) == [0]


# --- a look that has no answer; a queue that was changed ---


@pytest.mark.parametrize("how", ["silent", "never", "cut"])
def test_the_look_has_no_answer(cluster, qbouncer, db, direct, how):
    """The job has no timeout: the statement that asks what it is has one all the same."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, server_tls_sslmode="disable", server_login_retry=0.1)
        with proxy.wire(db) as c:
            tag(c, "QUEUE CREATE work WITH (run = sql, retry = 'fixed 1ms')")
            (job,) = c.rows("QUEUE RUN 'SELECT 1' ON work RETURNING JOB")
            c.rows("QUEUE AWAIT '%s' WAIT '10 s'" % job["job"])
            proxy.settings["queue_engine_timeout"] = "500ms"
            proxy.reload()
            relay.arm(b"_run_job", how)
            tag(c, "QUEUE RUN 'SELECT 1' ON work")
            assert relay.lost.wait(20)
            wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_work") == 0, "its end", timeout=30)


def test_a_look_that_waits_for_a_lock(qbouncer, db, direct):
    """... is not given up, however often its time is over: the server lives."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE work WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        proxy.settings["queue_engine_timeout"] = "200ms"
        proxy.reload()
        direct.execute("""ALTER FUNCTION queue._run_may RENAME TO _run_may_do; CREATE FUNCTION queue._run_may(cfg queue.queues, supers bool) RETURNS void
            LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock(9); PERFORM queue._run_may_do(cfg, supers); END$$""")
        direct.execute("SELECT pg_advisory_lock(9)")
        (job,) = c.rows("QUEUE RUN 'SELECT 1' ON work RETURNING JOB")
        wait_for(lambda: value(direct, "SELECT bool_or(now() - query_start > interval '4 s') FROM pg_stat_activity "
                               "WHERE wait_event = 'advisory' AND query LIKE '%%_run_job(%%'"), "that it waits long", timeout=30)
        direct.execute("SELECT pg_advisory_unlock(9)")
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '20 s'" % job["job"])
        assert (end["state"], end["attempt"]) == ("done", "1"), end


def test_it_has_a_handler_by_now(cluster, qbouncer, db, direct):
    """What the handler says of its own is not said of the payload, as long as the proxy takes it for SQL: it is tried again."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, server_tls_sslmode="disable")
        with proxy.wire(db) as c:
            c.simple("""CREATE SCHEMA app; CREATE FUNCTION app.later(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
                BEGIN RETURN 1 / ((queue.current_job() ->> 'attempt')::int / 3); END $$""")
            tag(c, "QUEUE CREATE work WITH (run = sql, retry = 'fixed 1ms', max_attempts = 5, retain_done = '1 h')")
            (job,) = c.rows("QUEUE RUN 'SELECT 1' ON work RETURNING JOB")
            c.rows("QUEUE AWAIT '%s' WAIT '10 s'" % job["job"])
            relay.arm(b"queue._runs()", "held")
            direct.execute("SELECT queue.alter('work', '{handler}', '{app.later}', '{run}')")
            direct.execute("SELECT queue.push('work', '1'::jsonb)")
            wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_work WHERE state <> 'dead'") == 0, "its end", timeout=30)
            relay.release()
            assert value(direct, "SELECT state || attempt FROM queue.a_work WHERE id = 2") == "done3"


def test_a_handler_that_nobody_knew_may_take_its_time(cluster, qbouncer, db, direct):
    """The proxy takes the queue for one of SQL still, whose look is given up when it lasts: that is not where the handler runs."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, server_tls_sslmode="disable")
        with proxy.wire(db) as c:
            c.simple("""CREATE SCHEMA app; CREATE SEQUENCE app.begun; CREATE FUNCTION app.handler(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
                BEGIN PERFORM nextval('app.begun'), pg_sleep(4); END $$""")
            tag(c, "QUEUE CREATE work WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
            (job,) = c.rows("QUEUE RUN 'SELECT 1' ON work RETURNING JOB")
            c.rows("QUEUE AWAIT '%s' WAIT '10 s'" % job["job"])
            proxy.settings["queue_engine_timeout"] = "200ms"
            proxy.reload()
            relay.arm(b"queue._runs()", "held")
            direct.execute("SELECT queue.alter('work', '{handler}', '{app.handler}', '{run}')")
            direct.execute("SELECT queue.push('work', '1'::jsonb)")
            wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_work") == 0, "its end", timeout=30)
            relay.release()
            assert value(direct, "SELECT state || attempt FROM queue.a_work WHERE id = 2") == "done1"
    assert begun(direct) == 1


# --- a job that takes the server with it ---


@pytest.fixture(scope="module")
def private():
    """It may be killed."""
    with Cluster() as one:
        one.psql("CREATE ROLE app LOGIN")
        yield one


def looks(cluster, db, sql):
    """As soon as it is there."""
    def look():
        try:
            with psycopg.connect(cluster.dsn(db), autocommit=True) as c:
                return c.execute(sql).fetchone()
        except psycopg.OperationalError:
            return None
    return wait_for(look, "the server", timeout=30)


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "forgotten"])
@pytest.mark.parametrize("kind", ["sql", "no transaction", "handler", "batch"])
def test_it_takes_the_server_with_it(qbouncer, private, kind, flushed):
    """Each time it runs. Its failure cannot be said then, and the server may have forgotten that it was taken: attempts count all the same,
    and it is dead in the end. The others that were done together with it are done."""
    db = private.createdb(owner="app")
    proxy = qbouncer(databases={"*": "host=%s port=%d" % (private.socket_dir, private.port)}, server_login_retry=0.1, queue_rescan="200ms")
    with proxy.wire(db) as c:
        c.simple("""CREATE SCHEMA app; CREATE TABLE app.done (n int); CREATE FUNCTION app.handler(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            IF payload = '2' THEN PERFORM pg_sleep(600); END IF; INSERT INTO app.done VALUES (payload::int); END $$""")
        tag(c, "QUEUE CREATE work WITH (%s, retry = 'fixed 1ms', max_attempts = 2)" % {"handler": "handler = 'app.handler'", "batch": "handler = 'app.handler', handler_batch = 10"}.get(kind, "run = sql"))
        if kind in ("sql", "no transaction"):
            tag(c, "QUEUE RUN 'SELECT pg_sleep(600)' ON work" + (" NO TRANSACTION" if kind != "sql" else ""))
        else:
            tag(c, "QUEUE PUSH work " + ("'1', '2', '3'" if kind == "batch" else "'2'"))
    crashes = 0
    while looks(private, db, "SELECT count(*) FROM queue.q_work WHERE state = 'dead'") == (0,):
        pid, = looks(private, db, "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query !~ 'PgSleep'")
        if not pid:
            continue
        if flushed:
            looks(private, db, "SELECT pg_switch_wal()")
            private.psql("CHECKPOINT")
        os.kill(pid, signal.SIGKILL)
        crashes += 1
        assert crashes <= 5, "it goes on and on"
        wait_for(lambda: looks(private, db, "SELECT pid FROM pg_stat_activity WHERE pid = %d UNION ALL SELECT 0 LIMIT 1" % pid) == (0,), "its end")
    assert crashes      # one may meet two attempts: the other servers live on for a moment
    if kind == "batch":
        wait_for(lambda: looks(private, db, "SELECT array_agg(n ORDER BY n) FROM app.done") == ([1, 3],), "the others")
    proxy.stop()
    private.dropdb(db)
