"""Ordinary traffic through the poolers: pgbench -S, logins, and what they cost.

For:     run.py.
Entry points: select, tls, connect, instructions.
"""

import math

from pooler import PASSWORD
from table import Goal, Table, median, number, ratio, turns

BOTH = ("qbouncer", "pgbouncer")

KINDS = (
    ("simple, transaction", "tx", "simple", ("direct", *BOTH)),
    ("extended, transaction", "tx", "extended", BOTH),
    ("prepared, session", "session", "prepared", BOTH),
    ("prepared, transaction", "tx", "prepared", BOTH), # pgbouncer: from 1.24 on
    ("simple, statement", "statement", "simple", BOTH),
    ("extended, statement", "statement", "extended", BOTH),
)

# to statements and transactions the pools are nearly the same: one row of each, in plain text
STATEMENT_CLIENTS = (16,)

# of a pool for sessions there is one server for each client
SESSIONS = 120

# clients that log in before anything else is of interest
MANY = 100

# seconds of a turn of so few clients: what the machine does beside changes within seconds, by more than the contenders differ
TURN = 0.25
FEW = 16
TIMES_ALONE = 20 # so often they log in alone, as CPU is counted in hundredths of a second

COLUMNS = ["protocol, pooling", "clients", "direct tps", "qbouncer tps", "pgbouncer tps", "ratio",
           "qbouncer CPU", "pgbouncer CPU", "ratio"]


def _limit(clients, plan, rate):
    """How long pgbench runs: its clock begins before many clients have logged in."""
    if clients <= FEW:
        return "-t", max(1, rate * TURN / clients)
    return ("-T", plan.seconds) if clients <= MANY else ("-t", plan.seconds * 15000 / clients)


class Count:
    """Of one contender: tps of each turn, queries and seconds of the pooler's CPU of all of them."""

    def __init__(self, rig, pooler, cell):
        """Server connections and statements come before the clock runs."""
        self.rig, self.pooler, self.cell = rig, pooler, cell
        self.tps, self.queries, self.seconds = [], 0, 0
        self.logins = 0, 0 # queries and seconds of a turn that are those of logins
        _, _, self.rate = self._run("-t", 20 if cell[3] <= MANY else 2)
        if cell[3] <= FEW:
            _, _, self.rate = self._run("-t", 100)
        if pooler and (cell[3] <= FEW or cell[3] > MANY):
            times = TIMES_ALONE if cell[3] <= FEW else 1
            runs = [self._run("-t", 1) for _ in range(times)]
            self.logins = tuple(sum(run[i] for run in runs) / times for i in (0, 1))

    def _run(self, *limit):
        _, database, mode, clients = self.cell
        before = self.pooler.cpu() if self.pooler else 0
        queries, tps = self.rig.pgbench(self.pooler, database, mode, clients, *limit)
        return queries, self.pooler.cpu() - before if self.pooler else 0, tps

    def turn(self, limit):
        """One more."""
        queries, seconds, tps = self._run(*limit)
        self.queries += queries - self.logins[0]
        self.seconds += seconds - self.logins[1]
        self.tps.append(tps)

    def cpu(self):
        """Microseconds of the pooler for each query; none when there is no pooler. Of all turns: a clock that counts
        hundredths of a second says nothing of a short one."""
        return self.seconds / self.queries * 1e6 if self.pooler else None


def _cell(rig, poolers, cell, names, plan, rounds):
    counts = {name: Count(rig, poolers.get(name), cell) for name in names}
    limit = _limit(cell[3], plan, min(count.rate for count in counts.values()))
    if cell[3] <= FEW:
        rounds = math.ceil(rounds * plan.seconds / TURN)
    for order in turns(names, rounds):
        for name in order:
            counts[name].turn(limit)
    tps = {name: counts[name].tps if name in counts else [] for name in (*BOTH, "direct")}
    cpu = {name: [counts[name].cpu()] if name in counts else [] for name in BOTH}
    return [cell[0], cell[3], number(median(tps["direct"])),
            number(median(tps["qbouncer"])), number(median(tps["pgbouncer"])),
            ratio(tps["qbouncer"], tps["pgbouncer"]),
            number(median(cpu["qbouncer"]), "%.2f"), number(median(cpu["pgbouncer"]), "%.2f"),
            ratio(cpu["qbouncer"], cpu["pgbouncer"])]


def _numbers(plan, database, over_tls):
    """Of clients."""
    numbers = plan.tls_clients if over_tls else plan.select_clients
    if database == "statement":
        return [n for n in numbers if n in STATEMENT_CLIENTS and not over_tls]
    return [n for n in numbers if database != "session" or n <= SESSIONS]


def _able(rig, database, mode, names):
    """Who of them can do it."""
    return [n for n in names if n != "pgbouncer" or rig.prepares or (database, mode) != ("tx", "prepared")]


def _cells(rig, plan, over_tls):
    rows = []
    few = plan.tls_rounds if over_tls else plan.select_rounds
    with rig.pooler("qbouncer", tls=over_tls) as ours, rig.pooler("pgbouncer", tls=over_tls) as theirs:
        poolers = {"qbouncer": ours, "pgbouncer": theirs}
        for label, database, mode, names in KINDS:
            for clients in _numbers(plan, database, over_tls):
                # Postgres itself has no TLS here, and not as many connections
                here = [n for n in _able(rig, database, mode, names)
                        if n != "direct" or (clients <= SESSIONS and not over_tls)]
                rows.append(_cell(rig, poolers, (label, database, mode, clients), here, plan,
                                  few if clients <= FEW else plan.select_side_rounds))
    return rows


def _goal(rows):
    at16 = {row[0]: row for row in rows if row[1] == 16}
    text = ", ".join("%s: %s x tps, %s x CPU" % (label, at16[kind][5], at16[kind][8])
                     for label, kind in (("simple", "simple, transaction"), ("extended", "extended, transaction"),
                                         ("prepared", "prepared, session")) if kind in at16)
    return [Goal("pass-through, pgbench -S, 16 clients",
                 ">= 1.05 x pgbouncer's tps, <= 0.9 x its CPU per query", text)]


def _rounds_as_text(plan, few):
    seconds = math.ceil(plan.seconds)
    return ("With up to %d clients turns of %g s, %d of each, with more rounds of %d s, %d of each, the order of the contenders "
            "alternating; medians, and medians of the turns' ratios, but for the CPU, which is that of all turns together." %
            (FEW, TURN, math.ceil(few * plan.seconds / TURN), seconds, plan.select_side_rounds))


def select(rig, plan):
    """pgbench -S in the modes of the protocol"""
    rows = _cells(rig, plan, False)
    return Table(
        "pgbench -S",
        _rounds_as_text(plan, plan.select_rounds) + " CPU: user and system time of the pooler's process, microseconds per "
        "query. Older pgbouncers have no prepared statements in transaction pooling; session pooling needs "
        "a server for each client, so it has no row of 1000. Scale %d, pool of 20 (transaction, statement) and %d "
        "(session), pgbench with one thread on the same cores." % (rig.scale, SESSIONS),
        COLUMNS, rows, _goal(rows))


def tls(rig, plan):
    """pgbench -S over TLS"""
    return Table(
        "pgbench -S over TLS",
        _rounds_as_text(plan, plan.tls_rounds) + " As above, with TLS 1.3 between pgbench and the pooler, both poolers with "
        "the same certificate and the same ciphers; plain text between pooler and Postgres.",
        COLUMNS, _cells(rig, plan, True))


# -- logins ----------------------------------------------------------------------------------------

KEPT = "scram-sha-256, keys kept"
LOGINS = (
    ("trust", False, "trust", False),
    ("scram-sha-256", False, "scram-sha-256", False),
    (KEPT, False, "scram-sha-256", True),
    ("trust, TLS 1.3", True, "trust", False),
    ("scram-sha-256, TLS 1.3", True, "scram-sha-256", False),
)


def _logins(rig, pooler, seconds, keeps):
    """(connections, a second). keeps: by a client that has done PBKDF2 before."""
    if not keeps:
        return rig.logins(pooler, FEW, seconds)
    got = rig.client(pooler, "login", FEW, seconds, PASSWORD)
    return got["count"], got["rate"]


def _logins_row(rig, plan, label, over_tls, auth, keeps):
    rate = {name: [] for name in BOTH}
    cpu = {name: [] for name in BOTH}
    with rig.pooler("qbouncer", tls=over_tls, auth=auth) as ours, \
            rig.pooler("pgbouncer", tls=over_tls, auth=auth) as theirs:
        poolers = {"qbouncer": ours, "pgbouncer": theirs}
        for name in BOTH:
            rig.pgbench(poolers[name], "tx", "simple", 1, "-t", 1)
        for order in turns(BOTH, plan.connect_rounds):
            for name in order:
                before = poolers[name].cpu()
                count, per_second = _logins(rig, poolers[name], plan.seconds, keeps)
                rate[name].append(per_second)
                cpu[name].append((poolers[name].cpu() - before) / count * 1e6)
    return [label, *(number(median(rate[name])) for name in BOTH), ratio(rate["qbouncer"], rate["pgbouncer"]),
            *(number(median(cpu[name])) for name in BOTH), ratio(cpu["qbouncer"], cpu["pgbouncer"])]


def connect(rig, plan):
    """logins per second"""
    rows = [_logins_row(rig, plan, *row) for row in LOGINS]
    return Table(
        "Logins",
        "Connections per second that 16 clients make, one after the other (pgbench -C without a statement: "
        "log in, close), and the pooler's CPU for each, microseconds. Rounds of %d s, %d of each. The "
        "client's own work (PBKDF2, a TLS context for each connection) is most of what limits the rate, but for the clients "
        "that keep their keys, as salt and iterations of a role stay as they are: a program of the benchmark's own. "
        "The CPU is the pooler's alone. Certificate of P-256." % (math.ceil(plan.seconds), plan.connect_rounds),
        ["authentication", "qbouncer/s", "pgbouncer/s", "ratio", "qbouncer CPU", "pgbouncer CPU", "ratio"],
        rows, [Goal("logins, 16 clients", ">= 1.1 x pgbouncer's rate", ", ".join(
            "%s: %s x, %s x CPU" % (row[0], row[3], row[6]) for row in rows if row[0] in ("trust", KEPT)))])


# -- instructions ----------------------------------------------------------------------------------


def instructions(rig, plan):
    """user-space instructions per query (callgrind)"""
    rows = []
    for over_tls in (False, True):
        for label, database, mode, names in KINDS[:1] if over_tls else KINDS:
            got = {n: rig.instructions(n, database, mode, 16, plan.count, over_tls)
                   for n in _able(rig, database, mode, names) if n in BOTH and rig.is_countable(n)}
            rows.append([label + ", TLS" * over_tls, 16, number(got.get("qbouncer")),
                         number(got.get("pgbouncer")), ratio([got.get("qbouncer")], [got.get("pgbouncer")])])
    return Table(
        "Instructions per query",
        "Instructions that the pooler itself executes per query of pgbench -S, without the kernel, "
        "counted by callgrind. Nearly the same on a busy machine as on a quiet one; how many queries one "
        "turn of the loop serves is what varies, by some percent.",
        ["protocol, pooling", "clients", "qbouncer", "pgbouncer", "ratio"], rows)
