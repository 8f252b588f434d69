"""AFTER at random: pipelines pushed and worked on through two proxies, by workers that fail, roll back and are cut off.

None starts before those it waits for are done, whose effects are committed with their DONE; none is left blocked; who died
with another says so.
"""

import random
import threading
import traceback

import psycopg
import pytest

SECONDS_MOST = 60
PIPELINES = 25
STAGES = 5


def pushes(dsn, seed, failed):
    """Pipelines, each in one transaction, rolled back now and then, and single jobs after what is there."""
    rnd = random.Random(seed)
    try:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as c:
            mine = []
            for _ in range(PIPELINES):
                c.execute("BEGIN")
                made = []
                try:
                    for _ in range(STAGES):
                        some = rnd.sample(made, min(len(made), rnd.randint(0, 3)))
                        if mine and rnd.random() < 0.2:
                            some = some + [rnd.choice(mine)]
                        clause = " AFTER %s" % ", ".join("'%s'" % s for s in some) if some else ""
                        clause += rnd.choice(("", "", " GROUP 'g'", " GROUP 'h'"))
                        made.append(c.execute("QUEUE PUSH %s %%s%s RETURNING JOB" % (rnd.choice(("a", "b")), clause),
                                              ('{"after": [%s]}' % ",".join('"%s"' % s for s in some),)).fetchone()[0])
                except psycopg.Error as e:
                    assert e.sqlstate in ("QB003", "55000", "40P01"), e  # it has ended, or died
                    c.execute("ROLLBACK")
                    continue
                try:
                    c.execute("COMMIT" if rnd.random() < 0.8 else "ROLLBACK")
                except psycopg.Error as e:
                    assert e.sqlstate == "40P01", e  # blocked jobs look at both groups when it commits
                if c.execute("SELECT count(*) FROM queue.q_a WHERE '1-' || id = ANY (%s)", (made,)).fetchone()[0]:
                    mine = made
    except BaseException as e:
        failed.append((e, traceback.format_exc()))


def works(dsn, seed, stop, failed):
    rnd = random.Random(seed)
    c = None
    try:
        while not stop.is_set():
            c = c or psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
            row = c.execute("QUEUE TAKE a, b WAIT '200 ms'").fetchone()
            if row is None:
                continue
            token, payload = row[1], row[4]
            job, what = "-".join(token.split("-")[:2]), rnd.random()
            done = c.execute("SELECT count(*) FROM effects WHERE job = ANY (%s)", (payload["after"],)).fetchone()[0]
            assert done == len(payload["after"]), (job, payload)
            if what < 0.04:
                try:
                    c.execute("QUEUE FAIL %s ERROR 'no' FINAL", (token,))
                except psycopg.Error as e:
                    assert e.sqlstate == "QB001", e  # its lease has ended: a deadlock of it, alone, the proxy repeats
            elif what < 0.1:
                c.pgconn.finish()   # as a goodbye: the lease stays
                c = None
            else:
                c.execute("BEGIN")
                c.execute("INSERT INTO effects VALUES (%s)", (job,))
                try:
                    c.execute("QUEUE DONE %s", (token,))
                    c.execute("COMMIT" if what < 0.9 else "ROLLBACK")
                except psycopg.Error as e:
                    assert e.sqlstate in ("40P01", "QB001"), e
                    c.execute("ROLLBACK")
    except BaseException as e:
        failed.append((e, traceback.format_exc()))
    finally:
        if c is not None:
            c.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_pipelines(qbouncer, db, direct, seed):
    proxies = [qbouncer(), qbouncer()]
    direct.execute("SELECT 1")
    with psycopg.connect(proxies[0].dsn(db), autocommit=True, prepare_threshold=None) as c:
        for name in ("a", "b"):
            c.execute("QUEUE CREATE %s WITH (lease = '300 ms', retry = 'fixed 10ms', max_attempts = 1000)" % name)
        c.execute("CREATE TABLE effects (job text PRIMARY KEY)")
        failed, stop = [], threading.Event()
        pushers = [threading.Thread(target=pushes, args=(p.dsn(db), seed * 10 + i, failed)) for i, p in enumerate(proxies)]
        workers = [threading.Thread(target=works, args=(proxies[i % 2].dsn(db), seed * 100 + i, stop, failed)) for i in range(4)]
        for t in pushers + workers:
            t.start()
        for t in pushers:
            t.join(SECONDS_MOST)
        try:
            for _ in range(SECONDS_MOST * 5):
                left = c.execute("SELECT sum(ready + later + leased) FROM queue.stats()").fetchone()[0]
                if failed or left == 0:
                    break
                stop.wait(0.2)
        finally:
            stop.set()
            for t in workers:
                t.join(SECONDS_MOST)
        assert failed == []
        assert left == 0
        assert c.execute("SELECT sum(blocked) FROM queue.stats()").fetchone()[0] == 0
        for table in ("q_a", "q_b"):
            wrong = c.execute("SELECT id, error FROM queue.%s WHERE state = 'dead' AND (error = 'no') = (behind IS NOT NULL)" % table)
            assert wrong.fetchall() == []
