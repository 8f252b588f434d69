"""Jobs that run by themselves: what one connection does, beside a loop that only calls their handler.

For:     run.py.
Entry points: runs, sessions.

The handler counts to a number that takes a millisecond, when nobody else has the core. All jobs stand in one queue before
the first is taken, the process has one place for them (queue_run_pool_size = 1), and so one connection. What is lost is
measured by the clock and by what Postgres and the pooler compute, which other programs of the machine do not change.
"""

import time

from common import Failed
from table import Goal, Table, median, number, ratio_of, turns

TOGETHER = (1, 10, 100)

MAKE = """
DROP SCHEMA IF EXISTS h CASCADE;
CREATE SCHEMA h;
CREATE FUNCTION h.work(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n int := 0;
BEGIN
    WHILE n < %d LOOP n := n + 1; END LOOP;
END $$;
"""
TRIED = 20000000
COUNT = "DO $$DECLARE n int := 0; BEGIN WHILE n < %d LOOP n := n + 1; END LOOP; END$$;"
LOOP = "DO $$BEGIN FOR i IN 1..%d LOOP PERFORM h.work('{\"n\": 1}'); END LOOP; END$$;"
LAST = "SELECT max(id) FROM queue.q_work%d;"
LEFT = "SELECT EXISTS (SELECT FROM queue.q_work%d WHERE id = %s);"   # by its key: it does not read those that are done


def _one_ms(rig, session):
    """How far it counts in a millisecond that it has for itself."""
    before = rig.postgres_cpu()
    session.run(COUNT % TRIED)
    return int(TRIED / (rig.postgres_cpu() - before) / 1000)


class Round:
    """Jobs per second, and per second of CPU."""

    def __init__(self, rig, pooler, jobs):
        self.cpus, self.jobs = lambda: rig.postgres_cpu() + pooler.cpu(), jobs
        self.cpu, self.began = self.cpus(), time.monotonic()

    def over(self):
        self.rate = self.jobs / (time.monotonic() - self.began)
        self.per_cpu = self.jobs / (self.cpus() - self.cpu)
        return self


def _loop(rig, pooler, session, jobs):
    now = Round(rig, pooler, jobs)
    session.run(LOOP % jobs)
    return now.over()


def _handled(rig, pooler, session, jobs, together):
    queue = "work%d" % together
    rig.statement(pooler, "QUEUE PAUSE " + queue)
    session.run("SELECT count(queue.push('%s', '{\"n\": 1}')) FROM generate_series(1, %d);" % (queue, jobs))
    last = session.run(LAST % together).strip()
    now = Round(rig, pooler, jobs)
    rig.statement(pooler, "QUEUE RESUME " + queue)
    while session.run(LEFT % (together, last)).strip() == "t":
        if time.monotonic() > now.began + 60 + jobs / 50:
            raise Failed("handlers do not come to an end")
        time.sleep(0.02)
    return now.over()


def _lost(ours, loop, what):
    return 100 - 100 * ratio_of([getattr(r, what) for r in ours], [getattr(r, what) for r in loop])


def runs(rig, plan):
    """handlers of a millisecond, beside a loop that only calls them"""
    jobs = {"quick": 2000, "publish": 4000}.get(plan.name, 10000)
    got = {together: [] for together in (None, *TOGETHER)}
    with rig.pooler("qbouncer", more="queue_run_superuser = 1\nqueue_run_pool_size = 1\n") as pooler, rig.session() as session:
        rig.psql(MAKE % _one_ms(rig, session))
        rig.statement(pooler, "QUEUE LIST", *("QUEUE CREATE work%d WITH (handler = 'h.work', handler_batch = %d)" % (n, n) for n in TOGETHER))
        for together in TOGETHER:   # what is planned and compiled once
            _handled(rig, pooler, session, 2 * together, together)
        for order in turns(list(got), plan.side_rounds + 2):
            for together in order:
                got[together].append(_loop(rig, pooler, session, jobs) if together is None
                                     else _handled(rig, pooler, session, min(jobs, max(jobs * together // 100, jobs // 20)), together))
        rig.statement(pooler, *("QUEUE DROP work%d" % n for n in TOGETHER))
    loop = got[None]
    rows = [["the loop", number(median([r.rate for r in loop])), "", ""]]
    for together in TOGETHER:
        mine = got[together]
        rows.append(["handler_batch = %d" % together, number(median([r.rate for r in mine])),
                     *(number(_lost(mine, loop, what), "%.0f %%") for what in ("rate", "per_cpu"))])
    return Table(
        "Handlers",
        "Jobs per second on one connection: up to %d that wait, each a call of a function of 1 ms; beside one DO block that calls it as "
        "often, and nothing else. Lost: of the loop's rate, by the clock and by the CPU of Postgres and qbouncer." % jobs,
        ["", "jobs/s", "lost", "of CPU"], rows,
        [Goal("handlers of 1 ms, with handler_batch", "lose less than 20 %",
              "%.0f %% (of CPU %.0f %%)" % tuple(_lost(got[TOGETHER[-1]], loop, what) for what in ("rate", "per_cpu")))])


KINDS = ("clean", "keep")
ONE = """
DROP SCHEMA IF EXISTS h CASCADE;
CREATE SCHEMA h;
CREATE TABLE h.t (id int PRIMARY KEY, n int);
INSERT INTO h.t SELECT i, 0 FROM generate_series(1, 1000) AS i;
CREATE FUNCTION h.one(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE h.t SET n = n + 1 WHERE id = (payload ->> 'n')::int;
END $$;
"""
PUSHED = {"handler": "QUEUE PUSH handler_%s '{\"n\": 7}' RETURNING JOB;", "sql": "QUEUE RUN 'UPDATE h.t SET n = n + 1 WHERE id = 7' ON sql_%s RETURNING JOB;"}


def _lone(rig, client, what, kind, jobs):
    """Microseconds of CPU of Postgres for each of so many jobs, of which each is awaited before the next one is pushed."""
    before = rig.postgres_cpu()
    for _ in range(jobs):
        job = client.run(PUSHED[what] % kind).strip()
        client.run("QUEUE AWAIT '%s' WAIT '10 s';" % job)
    return 1e6 * (rig.postgres_cpu() - before) / jobs


def sessions(rig, plan):
    """lone jobs, in a session that is cleaned behind each, and in one that is kept"""
    jobs = {"quick": 200, "publish": 300}.get(plan.name, 500)
    pairs = [(what, kind) for what in PUSHED for kind in KINDS]
    got = {pair: [] for pair in pairs}
    with rig.pooler("qbouncer", more="queue_run_superuser = 1\nqueue_run_pool_size = 1\n") as pooler:
        rig.psql(ONE)
        rig.statement(pooler, "QUEUE LIST", *("QUEUE CREATE %s_%s WITH (%s, session = %s)" % (
            what, kind, "handler = 'h.one'" if what == "handler" else "run = sql", kind) for what, kind in pairs))
        with rig.session(pooler) as client:
            for what, kind in pairs:   # what is planned once
                _lone(rig, client, what, kind, 20)
            for order in turns(pairs, plan.side_rounds + 4):
                for what, kind in order:
                    got[what, kind].append(_lone(rig, client, what, kind, jobs))
        rig.statement(pooler, *("QUEUE DROP %s_%s" % pair for pair in pairs))
    rows = [[what, *(number(median(got[what, kind])) for kind in KINDS), "%.2f" % ratio_of(got[what, "keep"], got[what, "clean"])] for what in PUSHED]
    return Table(
        "Sessions of jobs",
        "Microseconds of CPU of all of Postgres for a lone job, an UPDATE of one row by its key: PUSH, TAKE, the job and DONE, and an AWAIT, one "
        "after the other. With `session = clean` what is left in its session is discarded behind each job, with `keep` it stays.",
        ["", "clean", "keep", "ratio"], rows)
