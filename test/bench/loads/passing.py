"""Ordinary traffic through the poolers: pgbench -S, and what it costs.

For:     run.py.
Entry points: select, instructions.
"""

import math

from table import Goal, Table, median, number, ratio, turns

BOTH = ("qbouncer", "pgbouncer")

KINDS = (
    ("simple, transaction", "tx", "simple", ("direct", *BOTH)),
    ("extended, transaction", "tx", "extended", BOTH),
    ("prepared, session", "session", "prepared", BOTH),
    ("prepared, transaction", "tx", "prepared", ("qbouncer",)),
)


def _once(rig, pooler, cell, plan):
    """(tps, microseconds of the pooler's CPU per query)"""
    _, database, mode, clients = cell
    before = pooler.cpu() if pooler else 0
    queries, tps = rig.pgbench(pooler, database, mode, clients, "-T", plan.seconds)
    return tps, (pooler.cpu() - before) / queries * 1e6 if pooler else None


def _cell(rig, poolers, cell, names, plan):
    tps = {name: [] for name in (*BOTH, "direct")}
    cpu = {name: [] for name in (*BOTH, "direct")}
    for name in names:
        if name != "direct":  # logins, server connections, statements: before the clock runs
            rig.pgbench(poolers[name], cell[1], cell[2], cell[3], "-t", 20)
    for order in turns(names, plan.select_rounds):
        for name in order:
            one = _once(rig, poolers.get(name), cell, plan)
            tps[name].append(one[0])
            cpu[name].append(one[1])
    return [cell[0], cell[3], number(median(tps["direct"])),
            number(median(tps["qbouncer"])), number(median(tps["pgbouncer"])),
            ratio(tps["qbouncer"], tps["pgbouncer"]),
            number(median(cpu["qbouncer"]), "%.2f"), number(median(cpu["pgbouncer"]), "%.2f"),
            ratio(cpu["qbouncer"], cpu["pgbouncer"])]


def _goal(rows):
    at16 = {row[0]: row for row in rows if row[1] == 16}
    text = ", ".join("%s: %s x tps, %s x CPU" % (label, at16[kind][5], at16[kind][8])
                     for label, kind in (("simple", "simple, transaction"),
                                         ("prepared", "prepared, session")) if kind in at16)
    return [Goal("pass-through, pgbench -S, 16 clients",
                 ">= 1.05 x pgbouncer's tps, <= 0.9 x its CPU per query", text)]


def select(rig, plan):
    """pgbench -S in the modes of the protocol"""
    rows = []
    with rig.pooler("qbouncer") as ours, rig.pooler("pgbouncer") as theirs:
        poolers = {"qbouncer": ours, "pgbouncer": theirs}
        for label, database, mode, names in KINDS:
            for clients in plan.select_clients:
                rows.append(_cell(rig, poolers, (label, database, mode, clients), names, plan))
    return Table(
        "pgbench -S",
        "Rounds of %d s, %d of each, the order of the contenders alternating; medians, and medians of "
        "the rounds' ratios. CPU: user and system time of the pooler's process, microseconds per "
        "query. pgbouncer 1.18 has no prepared statements in transaction pooling. Scale %d, pool of "
        "20 (transaction) and 120 (session), pgbench with one thread on the same cores."
        % (math.ceil(plan.seconds), plan.select_rounds, rig.scale),
        ["protocol, pooling", "clients", "direct tps", "qbouncer tps", "pgbouncer tps", "ratio",
         "qbouncer CPU", "pgbouncer CPU", "ratio"], rows, _goal(rows))


def instructions(rig, plan):
    """user-space instructions per query (callgrind)"""
    rows = []
    for label, database, mode, names in KINDS:
        got = {n: rig.instructions(n, database, mode, 16, plan.count) for n in names if n in BOTH}
        rows.append([label, 16, number(got.get("qbouncer")), number(got.get("pgbouncer")),
                     ratio([got.get("qbouncer")], [got.get("pgbouncer")])])
    return Table(
        "Instructions per query",
        "Instructions that the pooler itself executes per query of pgbench -S, without the kernel, "
        "counted by callgrind. Nearly the same on a busy machine as on a quiet one; how many queries one "
        "turn of the loop serves is what varies, by some percent.",
        ["protocol, pooling", "clients", "qbouncer", "pgbouncer", "ratio"], rows)
