"""A bit of everything for minutes, one after the other: what grows?

For:     run.py.
Entry points: soak.
"""

import time

from contenders.hand import Hand
from contenders.qbouncer import Qbouncer
from table import Goal, Table

BOTH = ("qbouncer", "pgbouncer")

COPY = "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000)) TO STDOUT"

def _wait_killed(rig, pooler, mode, *args):
    """Clients whose program is killed."""
    with rig.hold(pooler, mode, *args) as clients:
        clients.kill()


def _cycle(rig, pooler, jobs, plan):
    """Everything once."""
    for database, mode in (("tx", "simple"), ("tx", "extended"), ("session", "prepared")):
        rig.pgbench(pooler, database, mode, 16, "-t", plan.soak_queries)
    rig.pgbench(pooler, "tx", "simple", 16, "-t", plan.soak_queries // 20, threads=16, more=["-C"])
    rig.client(pooler, "cancel", 8, 20, 0.3, 1)
    rig.client(pooler, "read", 2, 1, COPY)
    rig.client(pooler, "write", 1, 1, 10 ** 7, "SELECT length('%s')")
    jobs.loop(rig, {pooler.name: pooler}, 16, 0.5)
    _wait_killed(rig, pooler, "idle", 500)
    if pooler.name == "qbouncer":
        _wait_killed(rig, pooler, "park", 500, "QUEUE TAKE empty WAIT '1h'")
    pooler.settled()


def _soaked(rig, name, plan):
    """[(seconds, bytes of memory, descriptors)] after each cycle."""
    jobs = Qbouncer("soak") if name == "qbouncer" else Hand("pgbouncer")
    seen = []
    with rig.pooler(name) as pooler:
        jobs.fresh(rig, {name: pooler})
        if name == "qbouncer":
            rig.statement(pooler, "QUEUE CREATE empty IF NOT EXISTS")
        began = time.monotonic()
        while len(seen) <= plan.soak_warm or time.monotonic() - began < plan.soak:
            _cycle(rig, pooler, jobs, plan)
            seen.append((time.monotonic() - began, pooler.rss(), pooler.files()))
    return seen


def growth(seen, warm):
    """(first, last) of the samples that count: until a third, but at least so many, caches and pools fill."""
    return seen[max(warm - 1, len(seen) // 3)], seen[-1]


def _row(name, seen, warm):
    first, last = growth(seen, warm)
    hour = (last[1] - first[1]) / 1024 / max(last[0] - first[0], 1e-9) * 60
    return [name, len(seen), "%.0f" % last[0], *("%.2f" % (s[1] / 2 ** 20) for s in (first, last)), "%+.1f" % hour,
            first[2], last[2]]


def soak(rig, plan):
    """a bit of everything for minutes: what grows?"""
    seen = {name: _soaked(rig, name, plan) for name in BOTH}
    rows = [_row(name, seen[name], plan.soak_warm) for name in BOTH]
    first, last = growth(seen["qbouncer"], plan.soak_warm)
    return Table(
        "Soak",
        "In each cycle pgbench in three protocols, logins, cancels, COPY, a statement of 10 MB, jobs, clients that are "
        "killed while they are idle or wait; then the pooler comes to rest, and is looked at. MiB of resident memory when it "
        "was warm (after a third of the cycles, %d at least) and at the end; what that would be in KiB a minute; descriptors. "
        "Longer: `--soak MINUTES`." % plan.soak_warm,
        ["", "cycles", "seconds", "MiB, warm", "MiB, end", "KiB a minute", "descriptors, warm", "end"], rows,
        [Goal("a soak of %d cycles" % len(seen["qbouncer"]), "nothing grows",
              "memory %+.1f %%, descriptors %+d" % ((last[1] / first[1] - 1) * 100, last[2] - first[2]))])
