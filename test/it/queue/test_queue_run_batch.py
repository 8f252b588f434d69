"""handler_batch: several jobs of a handler in one transaction, and each as if it were alone."""

import contextlib
import json
import urllib.request

import pytest

from pgcluster import free_port
from proxy import wait_for
from queuetest import error, tag

# "wait": until nobody holds that lock. Each call leaves the transaction that it was part of.
MAKE = """
CREATE SCHEMA app;
CREATE TABLE app.done (n int, xid text DEFAULT pg_current_xact_id()::text, at timestamptz DEFAULT clock_timestamp(), job jsonb DEFAULT queue.current_job());
CREATE FUNCTION app.work(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.done VALUES ((payload ->> 'n')::int);
    PERFORM pg_advisory_xact_lock_shared((payload ->> 'wait')::int);
    PERFORM pg_sleep((payload ->> 'sleep')::float8);
    IF payload ? 'fail' THEN RAISE EXCEPTION 'no such address'; END IF;
    IF payload ? 'again' AND (queue.current_job() ->> 'attempt')::int < 3 THEN
        RETURN queue.retry('1 ms', 'not yet', (payload ->> 'again')::bool);
    END IF;
    RETURN to_jsonb((payload ->> 'n')::int * 2);
END $$
"""
WITH = "handler = 'app.work', handler_batch = 100, retry = 'fixed 1ms', retain_done = '1 h'"
LOCKED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 7"


@pytest.fixture
def batch(qbouncer, db):
    """One job of the process at a time, so that all which waits is one batch."""
    proxy = qbouncer(queue_run_pool_size=1)
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        c.rows("QUEUE LIST")
        c.simple(MAKE)
        yield proxy, c


def value(direct, sql, *values):
    return direct.execute(sql, values).fetchone()[0]


@contextlib.contextmanager
def together(c):
    """What is pushed becomes visible at once: a take that is under way finds all of it, or nothing."""
    tag(c, "BEGIN")
    yield
    tag(c, "COMMIT")


def push(c, *payloads, create=WITH):
    tag(c, "QUEUE CREATE mail WITH (%s)" % create)
    with together(c):
        return [c.rows("QUEUE PUSH mail '%s' RETURNING JOB" % json.dumps(p))[0]["job"] for p in payloads]


def left(direct, what="state <> 'dead'", n=0):
    wait_for(lambda: value(direct, "SELECT count(*) FROM queue.q_mail WHERE " + what) == n, "%d jobs with %s" % (n, what))


def ends(c, jobs):
    found = [c.rows("QUEUE AWAIT '%s' WAIT '20s'" % job)[0] for job in jobs]
    return [(e["state"], e["result"] and json.loads(e["result"])) for e in found]


def test_one_transaction(batch, direct):
    """Each has its result, and is the current job while it runs; the order is that of the queue."""
    _, c = batch
    jobs = push(c, *({"n": n} for n in range(30)))
    assert ends(c, jobs) == [("done", n * 2) for n in range(30)]
    found = direct.execute("SELECT n, xid, job ->> 'job', (job ->> 'attempt')::int FROM app.done ORDER BY at").fetchall()
    assert [n for n, *_ in found] == list(range(30)) and [job for *_, job, _ in found] == jobs
    assert len({xid for _, xid, *_ in found}) == 1 and {attempt for *_, attempt in found} == {1}
    (figures,) = c.rows("QUEUE STATS mail BY DAY LAST 1")
    assert (figures["done"], figures["failed"]) == ("30", "0")
    assert c.rows("QUEUE LIST")[0]["handler_batch"] == "100"


def test_priorities(batch, direct):
    _, c = batch
    tag(c, "QUEUE CREATE mail WITH (%s)" % WITH)
    with together(c):
        for n, priority in ((1, 0), (2, 5), (3, 9), (4, 5)):
            tag(c, "QUEUE PUSH mail '{\"n\": %d}' PRIORITY %d" % (n, priority))
    left(direct)
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY at")] == [3, 2, 4, 1]


def test_a_failure_is_that_of_one(batch, direct):
    """Nothing of the batch is there; then each is done alone, and only the guilty one has tried."""
    _, c = batch
    jobs = push(c, *({"n": n, **({"fail": True} if n == 7 else {})} for n in range(20)), create=WITH + ", max_attempts = 2")
    assert [state for state, _ in ends(c, jobs)] == ["dead" if n == 7 else "done" for n in range(20)]
    found = direct.execute("SELECT n, (job ->> 'attempt')::int FROM app.done ORDER BY n").fetchall()
    assert found == [(n, 1) for n in range(20) if n != 7]
    assert value(direct, "SELECT jsonb_agg(h -> 'outcome') FROM queue.q_mail, jsonb_array_elements(history) AS h") == ["failed", "failed"]
    assert value(direct, "SELECT error FROM queue.q_mail") == "no such address (P0001)\nCONTEXT:  PL/pgSQL function work(jsonb) line 6 at RAISE"
    (figures,) = c.rows("QUEUE STATS mail BY DAY LAST 1")
    assert (figures["done"], figures["failed"], figures["dead"]) == ("19", "2", "1")


def test_a_failure_at_the_commit(batch, direct):
    _, c = batch
    c.simple("""CREATE FUNCTION app.late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            IF NEW.n = 3 THEN RAISE EXCEPTION 'not at all'; END IF; RETURN NULL; END$$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.done DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.late()""")
    jobs = push(c, *({"n": n} for n in range(6)), create=WITH + ", max_attempts = 1")
    assert [state for state, _ in ends(c, jobs)] == ["done", "done", "done", "dead", "done", "done"]
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY n")] == [0, 1, 2, 4, 5]


def test_a_cancel_of_one(batch, direct):
    """It ends the statement at once; the others are one batch again."""
    proxy, c = batch
    direct.execute("SELECT pg_advisory_lock(7)")
    jobs = push(c, *({"n": n, **({"wait": 7} if n == 4 else {})} for n in range(8)))
    wait_for(lambda: value(direct, LOCKED) == 1, "the batch")
    pid = proxy.console("SHOW RUNNING")[0]["pid"]
    shown = proxy.console("SHOW RUNNING")
    assert [r["job"] for r in shown] == jobs and {r["pid"] for r in shown} == {pid} and {r["state"] for r in shown} == {"running"}
    tag(c, "QUEUE CANCEL '%s'" % jobs[4])
    assert [state for state, _ in ends(c, jobs[:4] + jobs[5:])] == ["done"] * 7
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY n")] == [0, 1, 2, 3, 5, 6, 7]
    assert value(direct, "SELECT count(DISTINCT xid) FROM app.done") == 1 and value(direct, LOCKED) == 0
    wait_for(lambda: proxy.console("SHOW RUNNING") == [], "the end of all")
    direct.execute("SELECT pg_advisory_unlock(7)")


def test_a_timeout(batch, direct):
    """Of all together: then each has as long."""
    _, c = batch
    jobs = push(c, *({"n": n, "sleep": 600 if n == 5 else 0.15} for n in range(6)), create=WITH + ", timeout = '500ms', max_attempts = 1")
    assert [state for state, _ in ends(c, jobs)] == ["done"] * 5 + ["dead"]
    assert value(direct, "SELECT error FROM queue.q_mail").startswith("timeout: the job ran longer than it may (57014)")
    assert value(direct, "SELECT count(DISTINCT xid) FROM app.done") == 5


def test_called_again(batch, direct):
    """Of two that ask for it one counts its attempts; the others are done with them."""
    _, c = batch
    jobs = push(c, {"n": 1}, {"n": 2, "again": True}, {"n": 3}, create=WITH + ", max_attempts = 5")
    assert [state for state, _ in ends(c, jobs)] == ["done"] * 3
    assert direct.execute("SELECT n, (job ->> 'attempt')::int FROM app.done ORDER BY 1, 2").fetchall() == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]
    first = "SELECT count(DISTINCT xid) FROM app.done WHERE (job ->> 'attempt')::int = 1"
    assert value(direct, first) == 1
    assert value(direct, "SELECT jsonb_agg(h -> 'error') FROM queue.a_mail, jsonb_array_elements(history) AS h") == ["not yet", "not yet"]


def test_limits(batch, direct):
    """A batch has no more than may run, over all; and of a group one at a time, in its order."""
    _, c = batch
    push(c, *({"n": n} for n in range(10)), create=WITH + ", max_running = 3")
    left(direct, "true")
    assert value(direct, "SELECT max(n) FROM (SELECT count(*) AS n FROM app.done GROUP BY xid) AS x") <= 3
    tag(c, "QUEUE DROP mail")
    direct.execute("DELETE FROM app.done")
    tag(c, "QUEUE CREATE mail WITH (%s)" % WITH)
    with together(c):
        for n in range(12):
            tag(c, "QUEUE PUSH mail '{\"n\": %d}' GROUP '%s'" % (n, "ab"[n % 2]))
    left(direct, "true")
    groups = direct.execute("SELECT job ->> 'group', array_agg(n ORDER BY at) FROM app.done GROUP BY 1 ORDER BY 1").fetchall()
    assert groups == [("a", list(range(0, 12, 2))), ("b", list(range(1, 12, 2)))]
    assert value(direct, "SELECT max(n) FROM (SELECT count(*) AS n FROM app.done GROUP BY xid, job ->> 'group') AS x") == 1


def test_a_backend_that_dies(batch, direct):
    """It was none of their attempts that failed, but who knows: each is tried by itself."""
    _, c = batch
    direct.execute("SELECT pg_advisory_lock(7)")
    jobs = push(c, *({"n": n, **({"wait": 7} if n == 2 else {})} for n in range(5)), create=WITH + ", max_attempts = 1")
    wait_for(lambda: value(direct, LOCKED) == 1, "the batch")
    direct.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 7")
    direct.execute("SELECT pg_advisory_unlock(7)")
    assert [state for state, _ in ends(c, jobs)] == ["done"] * 5
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY n")] == list(range(5))
    assert value(direct, "SELECT count(*) FROM queue.a_mail WHERE history IS NOT NULL OR attempt > 1") == 0


def test_shutdown_gives_them_back(qbouncer, batch, db, direct):
    proxy, c = batch
    direct.execute("SELECT pg_advisory_lock(7)")
    push(c, *({"n": n, **({"wait": 7} if n == 2 else {})} for n in range(5)), create=WITH + ", max_attempts = 1")
    wait_for(lambda: value(direct, LOCKED) == 1, "the batch")
    c.close()
    proxy.stop()
    left(direct, "state = 'ready' AND attempt = 0", 5)
    direct.execute("SELECT pg_advisory_unlock(7)")
    with qbouncer().wire(db) as other:
        other.rows("QUEUE LIST")
        left(direct)
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY n")] == list(range(5))


def test_a_proxy_that_is_killed(qbouncer, batch, db, direct):
    """What its server still does in its place is done once."""
    proxy, c = batch
    direct.execute("SELECT pg_advisory_lock(7)")
    push(c, *({"n": n, **({"wait": 7} if n == 2 else {})} for n in range(5)))
    wait_for(lambda: value(direct, LOCKED) == 1, "the batch")
    proxy.kill()
    with qbouncer().wire(db) as other:
        other.rows("QUEUE LIST")
        left(direct, "state = 'leased'", 5)
        direct.execute("SELECT pg_advisory_unlock(7)")
        left(direct, "true")
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY n")] == list(range(5))


def test_after_and_dead_queue(batch, direct):
    """What waits for a job of the batch comes behind it, and what dies goes where it is to go."""
    _, c = batch
    tag(c, "QUEUE CREATE dead")
    tag(c, "QUEUE CREATE mail WITH (%s, max_attempts = 1, dead_queue = dead)" % WITH)
    with together(c):
        (one,) = c.rows("QUEUE PUSH mail '{\"n\": 1}' RETURNING JOB")
        tag(c, "QUEUE PUSH mail '{\"n\": 2}' AFTER '%s'" % one["job"])
        tag(c, "QUEUE PUSH mail '{\"n\": 3, \"fail\": 1}'")
        tag(c, "QUEUE PUSH mail '{\"n\": 4}'")
    left(direct, "true")
    assert [n for n, in direct.execute("SELECT n FROM app.done ORDER BY n")] == [1, 2, 4]
    assert value(direct, "SELECT (SELECT at FROM app.done WHERE n = 1) < (SELECT at FROM app.done WHERE n = 2)")
    assert value(direct, "SELECT payload ->> 'n' FROM queue.q_dead") == "3"


def test_metrics_and_a_change(qbouncer, db, direct):
    """True numbers; and an ALTER holds from the next take on."""
    port = free_port()
    proxy = qbouncer(metrics_port=port, queue_run_pool_size=1)

    def figure(name):
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
            found = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line.startswith("qbouncer_queue_run_" + name)]
        return {k.partition("outcome=")[2].strip('"}'): float(v) for k, v in found}

    with proxy.wire(db) as c:
        c.rows("QUEUE LIST")
        c.simple(MAKE)
        direct.execute("SELECT pg_advisory_lock(7)")
        push(c, *({"n": n, **({"wait": 7} if n == 2 else {})} for n in range(5)))
        wait_for(lambda: value(direct, LOCKED) == 1, "the batch")
        assert figure("running") == {"": 5.0}
        direct.execute("SELECT pg_advisory_unlock(7)")
        left(direct, "true")
        wait_for(lambda: figure("jobs_total").get("done") == 5, "their ends")
        assert figure("running") == {"": 0.0}
        tag(c, "QUEUE ALTER mail RESET (handler_batch)")

        def alone():    # the proxy hears of it soon
            direct.execute("DELETE FROM app.done")
            with together(c):
                for n in range(5):
                    tag(c, "QUEUE PUSH mail '{\"n\": %d}'" % n)
            left(direct, "true")
            return value(direct, "SELECT count(DISTINCT xid) FROM app.done") == 5
        wait_for(alone, "each by itself")


def test_what_is_refused(batch):
    _, c = batch
    for wrong in ("0", "1001", "-1", "many", "1.5"):
        assert error(c, "QUEUE CREATE q WITH (handler = 'app.work', handler_batch = '%s')" % wrong).sqlstate == "22023", wrong
    assert error(c, "QUEUE CREATE q WITH (run = sql, handler_batch = 2)").sqlstate == "22023"
    tag(c, "QUEUE CREATE q WITH (handler = 'app.work', handler_batch = 2)")
    tag(c, "QUEUE ALTER q RESET (handler)")
    assert error(c, "QUEUE ALTER q SET (run = sql)").sqlstate == "22023"
