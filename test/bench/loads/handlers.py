"""Jobs that run by themselves: what one connection does, beside a loop that only calls their handler.

For:     run.py.
Entry points: runs.

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
LEFT = "SELECT EXISTS (SELECT FROM queue.q_work%d);"


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
    now = Round(rig, pooler, jobs)
    rig.statement(pooler, "QUEUE RESUME " + queue)
    while session.run(LEFT % together).strip() == "t":
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
