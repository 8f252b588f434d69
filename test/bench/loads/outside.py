"""Other queues, each with its own programs.

For:     run.py.
Entry points: outside, fetch.
"""

import subprocess
import sys

from common import Failed
from contenders.marks import Beanstalkd, Nats, Rabbitmq, Redis
from contenders.node import Graphile, PgBoss
from contenders.outside import Missing
from contenders.pgq import Pgq
from contenders.qbouncer import Qbouncer
from loads.jobs import both_poolers
from table import Table, number

KINDS = (Pgq, Graphile, PgBoss, Beanstalkd, Redis, Nats, Rabbitmq)

# push last: what it leaves behind would be found by the others
LOADS = ("cycle", "drain", "push")


def fetch():
    """Installs what they need, before the time runs. What cannot be had is left out by the part itself."""
    for kind in KINDS:
        try:
            kind.fetch()
        except (Failed, OSError, subprocess.TimeoutExpired) as failed:
            print("%s: %s" % (kind.name, str(failed).strip().splitlines()[-1]), file=sys.stderr)


def _ours(rig, plan, clients):
    qb = Qbouncer()
    got = {}
    with both_poolers(rig) as poolers:
        for load in LOADS:
            qb.fresh(rig, poolers)
            if load == "drain":
                qb.loop(rig, poolers, 1, plan.seconds)   # as in a proxy that has been used
                qb.fill(rig, poolers, plan.outside_drain)
            limit = 10 ** 9 if load == "drain" else 0
            got[load] = qb.loop(rig, poolers, clients, 60 if limit else plan.seconds, load,
                                limit=limit)["jobs"]
    return got


def _theirs(rig, plan, kind, clients):
    """Their rates; what went wrong is a text in place of a rate."""
    one = kind(rig)
    got = {}
    try:
        one.start()
        for load in LOADS:
            try:
                got[load] = one.rate(load, clients, plan.seconds, plan.outside_drain)
            except Failed as failed:
                print("%s, %s: %s" % (one.name, load, failed), file=sys.stderr)
                got[load] = None
        return got
    finally:
        one.stop()


def outside(rig, plan):
    """PgQ, graphile-worker, pg-boss, beanstalkd, Redis, NATS JetStream, RabbitMQ"""
    rows, skipped = [], {}
    for clients in plan.outside_clients:
        ours = _ours(rig, plan, clients)
        rows.append([clients, "qbouncer", *_cells(ours, None)])
        for kind in KINDS:
            try:
                theirs = _theirs(rig, plan, kind, clients)
            except (Missing, Failed, RuntimeError) as missing:
                skipped[kind.name] = str(missing).strip().splitlines()[0]
                continue
            rows.append([clients, "%s (%s)" % (kind.name, kind.note), *_cells(theirs, ours)])
    text = ("Jobs per second, and how many times as many qbouncer does, with so many clients: pushed, "
            "taken and finished one at a time, over and over, for %g s; %d jobs (of node.js a tenth) taken and "
            "finished until there are none; pushed only. What is not the same: PgQ has one consumer, which "
            "reads batches that a ticker cuts every 0.1 s; graphile-worker and pg-boss are libraries of "
            "node.js, one process each, which is a good part of what they cost; the rest "
            "are no databases: a job there is not part of the transaction that it belongs to." % (plan.seconds, plan.outside_drain))
    for name, why in skipped.items():
        text += " Skipped: %s (%s)." % (name, why)
    return Table("Other queues", text,
                 ["clients", "", "push+take+done/s", "qbouncer is x", "take+done/s", "qbouncer is x",
                  "push/s", "qbouncer is x"], rows)


def _cells(got, ours):
    cells = []
    for load in LOADS:
        rate = got.get(load)
        cells.append(number(rate))
        cells.append(number(ours[load] / rate, "%.2f") if ours and rate else "")
    return cells
