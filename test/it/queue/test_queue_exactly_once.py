"""The classic exercise: a thousand jobs, several workers, each job done exactly once."""

import multiprocessing
import os
import signal

import psycopg
import pytest

from proxy import wait_for

JOBS = 1000
WORKERS = 8


def worker(dsn, sleep_after_take):
    """Takes until there is nothing for a while. The work and DONE are one transaction."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while True:
            rows = conn.execute("QUEUE TAKE work WAIT '1s' LIMIT 3").fetchall()
            if not rows:
                return
            for row in rows:
                if sleep_after_take:
                    conn.execute("SELECT pg_sleep(%s)", (sleep_after_take,))  # the work
                try:
                    with conn.transaction():
                        conn.execute("INSERT INTO finished (job) VALUES (%s)", (row[4],))
                        conn.execute("QUEUE DONE %s", (row[1],))
                except psycopg.Error as e:
                    if e.sqlstate != "QB001":
                        raise


def start(proxy, db, n, sleep_after_take=0.0):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=worker, args=(proxy.dsn(db), sleep_after_take), daemon=True)
               for _ in range(n)]
    for w in workers:
        w.start()
    return workers


def prepare(proxy, db, jobs=JOBS):
    with proxy.connect(db) as conn:
        conn.execute("QUEUE CREATE work WITH (max_attempts = 100, lease = '1 min', retry = 'fixed 1ms')")
        # no unique constraint: a job done twice would be two rows
        conn.execute("CREATE TABLE finished (job int)")
        for i in range(0, jobs, 100):
            payloads = ", ".join("'%d'" % n for n in range(i, i + 100))
            assert conn.execute("QUEUE PUSH work " + payloads).rowcount == 100


def finished(direct):
    return [r[0] for r in direct.execute("SELECT job FROM finished ORDER BY job")]


@pytest.mark.timeout(180)
def test_each_job_once(qbouncer, db, direct):
    proxy = qbouncer(default_pool_size=4)
    prepare(proxy, db)
    for w in start(proxy, db, WORKERS):
        w.join(150)
        assert w.exitcode == 0
    assert finished(direct) == list(range(JOBS))
    with proxy.connect(db) as conn:
        stats = conn.execute("QUEUE STATS work").fetchone()
        assert stats[1:5] == (0, 0, 0, 0)


@pytest.mark.timeout(180)
def test_workers_that_are_killed(qbouncer, db, direct):
    """SIGKILL between TAKE and DONE: all jobs are done in the end, none twice."""
    proxy = qbouncer(default_pool_size=4)
    prepare(proxy, db)
    for _ in range(8):
        victims = start(proxy, db, 3, sleep_after_take=0.02)
        seen = len(finished(direct))
        wait_for(lambda: len(finished(direct)) > seen + 5 or not any(v.is_alive() for v in victims),
                 "some work")
        for v in victims:
            os.kill(v.pid, signal.SIGKILL)
            v.join()
    for w in start(proxy, db, WORKERS):
        w.join(150)
        assert w.exitcode == 0
    assert finished(direct) == list(range(JOBS))


@pytest.mark.timeout(120)
def test_the_test_can_fail(qbouncer, db, direct):
    """The same without SKIP LOCKED and without the row lock: jobs are taken more than once."""
    proxy = qbouncer(default_pool_size=6)
    direct.execute("""
        CREATE TABLE naive (id serial, state text DEFAULT 'ready');
        INSERT INTO naive SELECT FROM generate_series(1, 300);
        CREATE TABLE finished (job int);
        GRANT ALL ON naive, finished TO app;
        CREATE FUNCTION naive_take() RETURNS int LANGUAGE plpgsql AS $$
        DECLARE n int;
        BEGIN
            SELECT id INTO n FROM public.naive WHERE state = 'ready' ORDER BY id LIMIT 1;
            PERFORM pg_sleep(0.001);
            UPDATE public.naive SET state = 'leased' WHERE id = n;
            RETURN n;
        END $$;
    """)

    def naive(dsn):
        with psycopg.connect(dsn, autocommit=True) as conn:
            while True:
                (n,) = conn.execute("SELECT naive_take()").fetchone()
                if n is None:
                    return
                conn.execute("INSERT INTO finished VALUES (%s)", (n,))

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=naive, args=(proxy.dsn(db),), daemon=True) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(100)
    assert len(finished(direct)) > 300
