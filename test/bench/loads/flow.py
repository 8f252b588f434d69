"""Queues with limits: what they cost, and how exact a rate is.

For:     run.py.
Entry points: limits.
"""

import threading

from contenders.qbouncer import Qbouncer
from table import Goal, Table, median, number, ratio, ratio_of, turns

CLIENTS = 100
GROUPS = 50
RATE, WAITERS = 1000, 100


class With(Qbouncer):
    """options: of the queue; held: while somebody holds an old snapshot; groups: of its jobs."""

    def __init__(self, what, options, held=False, groups=0):
        super().__init__()
        self.what, self.options, self.held, self.groups = what, options, held, groups

    def label(self):
        return self.what

    def fresh(self, rig, poolers):
        rig.statement(poolers["qbouncer"], "QUEUE DROP %s IF EXISTS" % self.queue,
                      "QUEUE CREATE %s%s" % (self.queue, self.options and " WITH (%s)" % self.options))

    def push(self, batch):
        return super().push(batch) + (" GROUP 'customer %d'" if self.groups else "")


NONE = With("no limit", "")
RUNNING = With("max_running = 200", "max_running = 200")
MANY = With("max_running = 5000", "max_running = 5000")
FAST = With("rate = '99999/s burst 99999'", "rate = '99999/s burst 99999'")
NO_GROUPS = With("max_running_per_group = 3, jobs of no group", "max_running_per_group = 3")
LABELS = With("max_running_per_group = none, %d groups" % GROUPS, "max_running_per_group = none", groups=GROUPS)
GROUPED = With("max_running_per_group = 3, %d groups" % GROUPS, "max_running_per_group = 3", groups=GROUPS)
HELD = With("max_running = 200, under a held snapshot", "max_running = 200", True)
NONE_HELD = With("no limit, under a held snapshot", "", True)


def _once(rig, poolers, plan, c):
    c.fresh(rig, poolers)
    if not c.held:
        return c.loop(rig, poolers, CLIENTS, plan.seconds, queues=max(c.groups, 1))["jobs"]
    with rig.session() as holder:
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue.queues;")
        c.loop(rig, poolers, CLIENTS, plan.seconds)     # what it keeps
        return c.loop(rig, poolers, CLIENTS, plan.seconds)["jobs"]


def _rate(rig, seconds):
    """Deliveries per second to those who wait at two proxies."""
    with rig.pooler("qbouncer") as one, rig.pooler("qbouncer") as two:
        rig.statement(one, "QUEUE DROP paced IF EXISTS", "QUEUE CREATE paced WITH (rate = '%d/s')" % RATE,
                      "QUEUE PUSH paced SELECT '1'::jsonb FROM generate_series(1, %d)" % (RATE * (seconds * 1.2 + 5)))
        got = []

        def work(pooler):
            got.append(rig.client(pooler, "loop", WAITERS // 2, seconds, 0, 1, "'", 1, 0, "QUEUE POP paced WAIT '5s'"))
        both = [threading.Thread(target=work, args=(p,)) for p in (one, two)]
        for t in both:
            t.start()
        for t in both:
            t.join()
    return sum(g["rate"] for g in got)


def limits(rig, plan):
    """limits of a queue: what they cost, how exact a rate is"""
    got = {c: [] for c in (NONE, RUNNING, MANY, FAST, NO_GROUPS, LABELS, GROUPED, NONE_HELD, HELD)}
    with rig.pooler("qbouncer") as pooler:
        for order in turns(list(got), plan.rounds):
            for c in order:
                got[c].append(_once(rig, {"qbouncer": pooler}, plan, c))
    seconds = 30 if plan.name != "quick" else 5
    paced = _rate(rig, seconds)
    rows = [[c.label(), number(median(rates)), "" if c is NONE else ratio(rates, got[NONE])] for c, rates in got.items()]
    rows.append(["rate = '%d/s', %d waiters at two proxies, %d s" % (RATE, WAITERS, seconds), number(paced, "%.1f"),
                 "%.4f of it" % (paced / RATE)])
    return Table(
        "Limits",
        "Jobs per second of %d clients that push, take and finish one at a time (medians), and how many times as many as "
        "without a limit. Last: what %d waiters at two proxies get of a rate." % (CLIENTS, WAITERS),
        ["queue", "jobs/s", "ratio"], rows,
        [Goal("takes of a limited queue, 100 clients", ">= 0.7", "%.2f" % ratio_of(got[RUNNING], got[NONE])),
         Goal("the same under a held snapshot", "flat", "%.2f" % ratio_of(got[HELD], got[NONE])),
         Goal("rate of 1000/s over 30 s", "1 000 +- 1 %", number(paced, "%.1f"))])
