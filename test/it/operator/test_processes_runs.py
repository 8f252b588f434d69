"""Jobs that run by themselves while processes come and go: processes = N, restarts that nobody notices, kills; single_consumer."""

import os
import signal

import pytest

from proxy import free_port, wait_for
from queuetest import tag
from test_processes import N, one_of_each, pids
from test_restart import ended, takeover

MAKE = """
CREATE SCHEMA app;
CREATE TABLE app.done (id int GENERATED ALWAYS AS IDENTITY, n int, pid int DEFAULT pg_backend_pid(), began timestamptz, over timestamptz);
CREATE FUNCTION app.work(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    PERFORM pg_advisory_xact_lock_shared((payload ->> 'wait')::int);
    PERFORM pg_sleep((payload ->> 'sleep')::float8);
    INSERT INTO app.done (n, began, over) VALUES ((payload ->> 'n')::int, began, clock_timestamp());
END $$
"""
LOCKED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 7"
WHO = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 7"
HOW = ["", ", handler_batch = 10"]


def value(direct, sql):
    return direct.execute(sql).fetchone()[0]


def push(c, n, sleep=0.01, more=""):
    tag(c, "QUEUE PUSH mail SELECT json_build_object('n', i, 'sleep', %f) FROM generate_series(1, %d) AS i%s" % (sleep, n, more))


def all_once(direct, n):
    wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_mail") == 0, "the end of all jobs", timeout=60)
    assert [i for i, in direct.execute("SELECT n FROM app.done ORDER BY n")] == list(range(1, n + 1))


def test_a_job_takes_no_place_of_the_pool(qbouncer, db, direct):
    """It runs beside what clients may have, for those of other processes, too."""
    proxy = qbouncer(processes=N, default_pool_size=1, queue_run_pool_size=1, query_wait_timeout="10s")
    there = one_of_each(proxy, db)
    there[1].simple(MAKE)
    tag(there[1], "QUEUE CREATE mail WITH (handler = 'app.work')")
    direct.execute("SELECT pg_advisory_lock(7)")
    tag(there[1], "QUEUE PUSH mail '{\"n\": 1, \"wait\": 7, \"sleep\": 0}'")
    wait_for(lambda: value(direct, LOCKED) == 1, "the job")
    for _ in range(2):
        for w in there.values():
            w.rows("SELECT 1")
    direct.execute("SELECT pg_advisory_unlock(7)")
    all_once(direct, 1)
    for w in there.values():
        w.close()


@pytest.mark.parametrize("how", HOW)
def test_several_processes(qbouncer, db, direct, how):
    """Each has its places; one that is killed comes back, and what it had is done by any of them."""
    proxy = qbouncer(processes=N, queue_run_pool_size=1, queue_orphan_grace="1s", queue_hold_lease="2s")
    wait_for(lambda: len(pids(proxy)) == N, "all processes")
    there = one_of_each(proxy, db)
    there[1].simple(MAKE)
    tag(there[1], "QUEUE CREATE mail WITH (handler = 'app.work', retry = 'fixed 1ms'%s)" % how)
    for w in there.values():
        w.rows("QUEUE LIST")
    direct.execute("SELECT pg_advisory_lock(7)")
    for n in range(1, N + 1):
        tag(there[1], "QUEUE PUSH mail '{\"n\": %d, \"wait\": 7}'" % n)
        wait_for(lambda n=n: value(direct, LOCKED) == n, "one in each process")
    assert len({r["pid"] for r in proxy.console("SHOW RUNNING") if r["state"] == "running"}) == N
    victim = pids(proxy)[2]
    direct.execute("SELECT pg_advisory_unlock(7)")
    tag(there[1], "QUEUE PUSH mail SELECT json_build_object('n', i, 'sleep', 0.01) FROM generate_series(%d, 100) AS i" % (N + 1))
    wait_for(lambda: value(direct, "SELECT count(*) FROM app.done") > 10, "some of them")
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: pids(proxy)[2] != victim, "its successor")
    all_once(direct, 100)
    assert value(direct, "SELECT count(DISTINCT pid) FROM app.done") >= N
    for w in there.values():
        w.close()


@pytest.mark.parametrize("how", HOW)
def test_restarts_while_jobs_run(qbouncer, db, direct, how):
    """Three times another process takes over. What the old one runs then is given back, and no failed attempt."""
    proxy = qbouncer(start=False, pidfile="{dir}/pid", metrics_port=free_port())
    proxy.start()
    with proxy.wire(db) as c:
        c.simple(MAKE)
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.work', max_attempts = 1, retain_done = '1 h'%s)" % how)
        c.rows("QUEUE LIST")
        push(c, 150)
        for have in (10, 40, 70):
            wait_for(lambda have=have: value(direct, "SELECT count(*) FROM app.done") >= have, "some of them", timeout=60)
            ended(takeover(proxy))
            c.rows("QUEUE LIST")
        all_once(direct, 150)
        assert value(direct, "SELECT count(*) FROM queue.a_mail WHERE state <> 'done' OR failures > 0") == 0


def test_jobs_go_on_when_no_client_is_there(qbouncer, db, direct):
    """Neither before the takeover nor behind it: the new process knows from the old one whose databases have queues."""
    proxy = qbouncer(start=False, pidfile="{dir}/pid", metrics_port=free_port())
    proxy.start()
    with proxy.wire(db) as c:
        c.simple(MAKE)
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.work')")
        push(c, 3)
    all_once(direct, 3)
    for n in (4, 5):
        ended(takeover(proxy))
        direct.execute("SELECT queue.push('mail', jsonb_build_object('n', %s::int, 'sleep', 0))", (n,))
        all_once(direct, n)


@pytest.mark.parametrize("how", HOW)
def test_one_consumer(qbouncer, db, direct, how):
    """One at a time, in their order, over two proxies; when the one that has the queue is killed the other one goes on."""
    proxies = [qbouncer(queue_orphan_grace="1s", queue_hold_lease="2s") for _ in range(2)]
    with proxies[0].wire(db) as c, proxies[1].wire(db) as d:
        c.simple(MAKE)
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.work', single_consumer = true%s)" % how)
        d.rows("QUEUE LIST")
        push(d, 60)
        wait_for(lambda: value(direct, "SELECT count(*) FROM app.done") >= 10, "some of them")
        runs = [p for p in proxies if p.console("SHOW RUNNING")]
        assert len(runs) <= 1
        (runs or proxies)[0].kill()
        all_once(direct, 60)
    overlaps = "SELECT count(*) FROM app.done AS a JOIN app.done AS b ON a.id < b.id AND a.over > b.began"
    assert value(direct, overlaps) == 0
    assert value(direct, "SELECT count(*) FROM (SELECT n < lag(n) OVER (ORDER BY began) AS back FROM app.done) AS x WHERE back") == 0


@pytest.mark.parametrize("how", HOW)
def test_a_job_that_outlives_its_proxy(qbouncer, db, direct, how):
    """Its server still works on it when another proxy takes it over: that is ended first."""
    first = qbouncer(queue_hold_lease="1s")
    with first.wire(db) as c:
        c.simple(MAKE)
        tag(c, "QUEUE CREATE mail WITH (handler = 'app.work', retry = 'fixed 1ms'%s)" % how)
        direct.execute("SELECT pg_advisory_lock(7)")
        tag(c, "QUEUE PUSH mail '{\"n\": 1, \"wait\": 7}', '{\"n\": 2, \"wait\": 7}'")
        wait_for(lambda: value(direct, LOCKED) > 0, "one that runs")
        first.kill()
    had = {pid for pid, in direct.execute(WHO)}
    with qbouncer(queue_hold_lease="1s", queue_orphan_grace="500ms").wire(db) as c:
        c.rows("QUEUE LIST")
        wait_for(lambda: {pid for pid, in direct.execute(WHO)} - had, "another one that runs", timeout=30)
        direct.execute("SELECT pg_advisory_unlock(7)")
        all_once(direct, 2)


# --- sessions that are kept ---

KEEPS = """
CREATE SCHEMA app;
CREATE TABLE app.done (queue text, n int, pid int, had int, others int);
CREATE FUNCTION app.work(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    me CONSTANT text := queue.current_job() ->> 'queue';
BEGIN
    CREATE TEMP TABLE IF NOT EXISTS mine (queue text);
    INSERT INTO mine VALUES (me);
    PERFORM pg_sleep(0.005);
    INSERT INTO app.done SELECT me, (payload #>> '{}')::int, pg_backend_pid(), count(*), count(*) FILTER (WHERE queue <> me) FROM mine;
END $$
"""
QUEUES = ["mail", "news"]
KEPT = "to_regclass('pg_temp.mine') AS t"


def make_keeping(c, more=""):
    c.simple(KEEPS)
    for name in QUEUES:
        tag(c, "QUEUE CREATE %s WITH (handler = 'app.work', session = keep, max_attempts = 1, retain_done = '1 h'%s)" % (name, more))
    c.rows("QUEUE LIST")


def push_both(c, first, last):
    for n in range(first, last, 10):
        for name in QUEUES:
            tag(c, "QUEUE PUSH %s SELECT to_jsonb(i) FROM generate_series(%d, %d) AS i" % (name, n, n + 9))


def done_by_their_own(direct, n, failed=0):
    """Each once, in sessions in which no job of the other queue has been; and some of them found what another one has left."""
    for name in QUEUES:
        wait_for(lambda name=name: value(direct, "SELECT count(*) FROM queue.q_%s" % name) == 0, "the end of all jobs", timeout=60)
        assert value(direct, "SELECT count(*) FROM queue.a_%s WHERE state <> 'done' OR failures > %d" % (name, failed)) == 0
        assert [i for i, in direct.execute("SELECT n FROM app.done WHERE queue = %s ORDER BY n", (name,))] == list(range(1, n + 1))
        assert value(direct, "SELECT max(had) FROM app.done WHERE queue = '%s'" % name) > 1
    assert value(direct, "SELECT max(others) FROM app.done") == 0


def nobody_sees_it(*clients):
    for c in clients:
        for _ in range(3):
            assert c.rows("SELECT %s" % KEPT) == [{"t": None}]


@pytest.mark.parametrize("how", HOW)
def test_sessions_are_kept_in_several_processes(qbouncer, db, direct, how):
    """Each keeps its own. Those of one that is killed end with it, and those that are left when fewer places are allowed."""
    proxy = qbouncer(processes=N, queue_run_pool_size=1, queue_orphan_grace="1s", queue_hold_lease="2s")
    wait_for(lambda: len(pids(proxy)) == N, "all processes")
    there = one_of_each(proxy, db)
    make_keeping(there[1], how.replace("10", "3") + ", retry = 'fixed 1ms'")
    direct.execute("UPDATE queue.queues SET max_attempts = 5")
    for w in there.values():
        w.rows("QUEUE LIST")
    push_both(there[1], 1, 60)
    wait_for(lambda: value(direct, "SELECT count(*) FROM app.done") > 20, "some of them")
    victim = pids(proxy)[2]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: pids(proxy)[2] != victim, "its successor")
    push_both(there[1], 61, 120)
    done_by_their_own(direct, 120, failed=4)
    nobody_sees_it(*[w for n, w in there.items() if n != 2])
    proxy.settings["queue_run_pool_size"] = 0
    proxy.reload()
    wait_for(lambda: not any(r["state"] == "kept" for r in proxy.console("SHOW SERVERS")), "the end of what was kept")
    for w in there.values():
        w.close()


@pytest.mark.parametrize("how", HOW)
def test_sessions_are_kept_by_two_proxies(qbouncer, db, direct, how):
    proxies = [qbouncer(queue_run_pool_size=1) for _ in range(2)]
    with proxies[0].wire(db) as c, proxies[1].wire(db) as d:
        make_keeping(c, how)
        d.rows("QUEUE LIST")
        push_both(c, 1, 60)
        push_both(d, 61, 120)
        done_by_their_own(direct, 120)
        nobody_sees_it(c, d)
        # a change through one of them ends it in both
        for name in QUEUES:
            tag(c, "QUEUE ALTER %s SET (session = clean)" % name)
        for proxy in proxies:
            wait_for(lambda proxy=proxy: not any(r["state"] in ("kept", "tested") for r in proxy.console("SHOW SERVERS")), "the end of what was kept")
        nobody_sees_it(*[w for _ in range(5) for w in (c, d)])


@pytest.mark.parametrize("how", HOW)
def test_restarts_with_sessions_that_are_kept(qbouncer, db, direct, how):
    """They stay behind: the new process has its own. No attempt fails for that, and nobody is given what was left."""
    proxy = qbouncer(start=False, pidfile="{dir}/pid", metrics_port=free_port())
    proxy.start()
    with proxy.wire(db) as c:
        make_keeping(c, how)
        push_both(c, 1, 120)
        for have in (20, 70, 120):
            wait_for(lambda have=have: value(direct, "SELECT count(*) FROM app.done") >= have, "some of them", timeout=60)
            ended(takeover(proxy))
            nobody_sees_it(c)
            c.rows("QUEUE LIST")
        push_both(c, 121, 130)
        done_by_their_own(direct, 130)
        # when nothing runs, too
        wait_for(lambda: any(r["state"] == "kept" for r in proxy.console("SHOW SERVERS")), "a session that is kept")
        ended(takeover(proxy))
        assert not any(r["state"] == "kept" for r in proxy.console("SHOW SERVERS"))
        nobody_sees_it(c)
