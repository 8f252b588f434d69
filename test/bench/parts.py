"""The measurements. Each is a function that takes the rig and the plan and gives a Table.

For:     run.py.
Must not know: how results are printed, where programs come from.
Entry points: PARTS (name -> function), Plan, QUICK, FULL.
"""

import statistics
import time
from collections import namedtuple

from rig import Failed, files_allowed

Table = namedtuple("Table", "title text columns rows")

# seconds: of one round of pgbench. The others say what they are where they are used.
Plan = namedtuple("Plan", "rounds seconds idle parked watch latency jobs_rounds jobs_seconds count")

FULL = Plan(rounds=7, seconds=4, idle=5000, parked=10000, watch=20, latency=20, jobs_rounds=3,
            jobs_seconds=6, count=500)
QUICK = Plan(rounds=1, seconds=1, idle=1000, parked=2000, watch=11, latency=3, jobs_rounds=1,
             jobs_seconds=2, count=100)

BOTH = ("qbouncer", "pgbouncer")
CLIENTS = (1, 16, 100)


def median(values):
    """None when there is nothing."""
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio(ours, theirs):
    """Median of the ratios of each round: what disturbs a round disturbs both of its halves."""
    pairs = [a / b for a, b in zip(ours, theirs) if a is not None and b]
    return "%.2f" % median(pairs) if pairs else "-"


def number(value, form="%.0f"):
    """A dash where there is no figure."""
    return "-" if value is None else form % value


def turns(names, rounds):
    """Rounds in which the order of the contenders alternates."""
    for i in range(rounds):
        yield names if i % 2 == 0 else tuple(reversed(names))


# -- pass-through ----------------------------------------------------------------------------------


def _select_once(rig, pooler, cell, plan):
    """(tps, microseconds of the pooler's CPU per query)"""
    _, database, mode, clients = cell
    database = database if pooler else "bench"
    before = pooler.cpu() if pooler else 0
    queries, tps = rig.pgbench(pooler, database, mode, clients, "-T", plan.seconds)
    return tps, (pooler.cpu() - before) / queries * 1e6 if pooler else None


def _select_cell(rig, poolers, cell, names, plan):
    tps = {name: [] for name in (*BOTH, "direct")}
    cpu = {name: [] for name in (*BOTH, "direct")}
    for name in names:
        if name != "direct":  # logins, server connections, statements: before the clock runs
            rig.pgbench(poolers[name], cell[1], cell[2], cell[3], "-t", 20)
    for order in turns(names, plan.rounds):
        for name in order:
            one = _select_once(rig, poolers.get(name), cell, plan)
            tps[name].append(one[0])
            cpu[name].append(one[1])
    return [cell[0], cell[3], number(median(tps["direct"])),
            number(median(tps["qbouncer"])), number(median(tps["pgbouncer"])),
            ratio(tps["qbouncer"], tps["pgbouncer"]),
            number(median(cpu["qbouncer"]), "%.2f"), number(median(cpu["pgbouncer"]), "%.2f"),
            ratio(cpu["qbouncer"], cpu["pgbouncer"])]


def part_select(rig, plan):
    """pgbench -S in the modes of the protocol"""
    kinds = [
        ("simple, transaction", "tx", "simple", ("direct", *BOTH)),
        ("extended, transaction", "tx", "extended", BOTH),
        ("prepared, session", "session", "prepared", BOTH),
        ("prepared, transaction", "tx", "prepared", ("qbouncer",)),
    ]
    rows = []
    with rig.pooler("qbouncer") as ours, rig.pooler("pgbouncer") as theirs:
        poolers = {"qbouncer": ours, "pgbouncer": theirs}
        for label, database, mode, names in kinds:
            for clients in CLIENTS:
                rows.append(_select_cell(rig, poolers, (label, database, mode, clients), names, plan))
    return Table(
        "pgbench -S",
        "Rounds of %d s, %d of each, the order of the contenders alternating; medians, and medians of "
        "the rounds' ratios. CPU: user and system time of the pooler's process, microseconds per "
        "query. pgbouncer 1.18 has no prepared statements in transaction pooling. Scale %d, pool of "
        "20 (transaction) and 120 (session), pgbench with one thread on the same cores."
        % (plan.seconds, plan.rounds, rig.scale),
        ["protocol, pooling", "clients", "direct tps", "qbouncer tps", "pgbouncer tps", "ratio",
         "qbouncer CPU", "pgbouncer CPU", "ratio"], rows)


def part_instructions(rig, plan):
    """user-space instructions per query (callgrind)"""
    rows = []
    for label, database, mode, names in (
            ("simple, transaction", "tx", "simple", BOTH),
            ("extended, transaction", "tx", "extended", BOTH),
            ("prepared, session", "session", "prepared", BOTH),
            ("prepared, transaction", "tx", "prepared", ("qbouncer",))):
        got = {n: rig.instructions(n, database, mode, 16, plan.count) for n in names}
        rows.append([label, 16, number(got.get("qbouncer")), number(got.get("pgbouncer")),
                     ratio([got.get("qbouncer")], [got.get("pgbouncer")])])
    return Table(
        "Instructions per query",
        "Instructions that the pooler itself executes per query of pgbench -S, without the kernel, "
        "counted by callgrind. Nearly the same on a busy machine as on a quiet one; how many queries one "
        "turn of the loop serves is what varies, by some percent.",
        ["protocol, pooling", "clients", "qbouncer", "pgbouncer", "ratio"], rows)


# -- memory ----------------------------------------------------------------------------------------


def _idle_memory(rig, name, n):
    with rig.pooler(name) as pooler:
        rig.statement(pooler, "SELECT 1")
        pooler.settled()
        before = pooler.rss()
        with rig.hold(pooler, "idle", n):
            pooler.settled()
            return (pooler.rss() - before) / n


def part_idle(rig, plan):
    """memory per idle client"""
    n = min(plan.idle, files_allowed() - 500)
    got = {name: [] for name in BOTH}
    for name in (*BOTH, *reversed(BOTH)):
        got[name].append(_idle_memory(rig, name, n))
    return Table(
        "Memory of idle clients",
        "Growth of the resident memory of a fresh pooler when %d clients have logged in (plain text, "
        "trust, transaction pooling), divided by their number; median of 2." % n,
        ["", "bytes per client", "KiB"],
        [[name, number(median(got[name])), number(median(got[name]) / 1024, "%.2f")]
         for name in BOTH] + [["ratio", ratio(got["qbouncer"], got["pgbouncer"]), ""]])


# -- waiting clients -------------------------------------------------------------------------------


def _server_connections(rig):
    return int(rig.psql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                        "AND datname = 'bench' AND pid <> pg_backend_pid()"))


def _park(rig, n, plan, more):
    with rig.pooler("qbouncer", more=more) as pooler:
        rig.statement(pooler, "QUEUE CREATE parked IF NOT EXISTS")
        rig.statement(pooler, "QUEUE TAKE parked WAIT '1s'")
        pooler.settled()
        memory, servers = pooler.rss(), _server_connections(rig)
        with rig.hold(pooler, "park", n, "QUEUE TAKE parked WAIT '1h'") as clients:
            pooler.settled()
            memory = (pooler.rss() - memory) / n
            servers_now = _server_connections(rig)
            signs, cpu, at = clients.counted()[1], pooler.cpu(), time.monotonic()
            time.sleep(plan.watch)
            spent = time.monotonic() - at
            cpu, signs = (pooler.cpu() - cpu) / spent * 100, clients.counted()[1] - signs
            rig.statement(pooler, "QUEUE PUSH parked '{}'")
            deadline = time.monotonic() + 5
            while clients.counted()[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.02)
            if clients.counted()[0] != 1:
                raise Failed("a job was pushed, and %d of the waiting clients got one"
                             % clients.counted()[0])
    rig.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'bench' "
             "AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
    return [n, servers, servers_now, number(memory), number(memory / 1024, "%.2f"),
            "%.0f" % (signs / spent), "%.2f %%" % cpu]


def part_park(rig, plan):
    """clients in QUEUE TAKE WAIT"""
    n = min(plan.parked, files_allowed() - 500)
    return Table(
        "Clients in QUEUE TAKE ... WAIT",
        "%d clients wait on one queue. Server connections: all that the proxy has, before they came "
        "(its own session and one that its pool keeps) and while they wait; none belongs to a client that "
        "waits. Memory: as for idle "
        "clients, logged in and waiting. CPU: of the proxy over %d s in which nothing is pushed, with "
        "signs of life as often as is the default, and without. At the end one job is pushed "
        "and reaches exactly one client." % (n, plan.watch),
        ["heartbeat", "clients", "servers before", "servers now", "bytes per client", "KiB",
         "messages/s", "idle CPU"],
        [["default"] + _park(rig, n, plan, ""), ["off"] + _park(rig, n, plan, "queue_heartbeat = 0")])


# -- latency ---------------------------------------------------------------------------------------


def part_latency(rig, plan):
    """from the push to the delivery"""
    rate, size = 100, 100
    with rig.pooler("qbouncer") as pooler:
        rig.statement(pooler, "QUEUE CREATE latency IF NOT EXISTS")
        rig.psql("CREATE TABLE IF NOT EXISTS one_commit (id bigserial PRIMARY KEY, payload jsonb)")
        insert = "INSERT INTO one_commit (payload) VALUES ('{\"n\": 1, \"pad\": \"%s\"}')" % ("x" * size)
        commits = [rig.client(pooler, "commit", plan.latency / 4, rate, insert)]
        got = rig.client(pooler, "latency", plan.latency, rate, "latency", size)
        commits.append(rig.client(pooler, "commit", plan.latency / 4, rate, insert))
    commit = {k: median([c[k] for c in commits]) for k in commits[0]}

    def row(label, values, name):
        return [label] + [number(values["%s_%s_us" % (name, q)] / 1000, "%.2f")
                          for q in ("p50", "p99", "max")]

    over = got["sent_p50_us"] - commit["commit_p50_us"]
    return Table(
        "From push to delivery",
        "%d pushes per second for %d s, one taker waiting, both through the proxy, jobs finished "
        "by a third connection, payload of %d bytes; milliseconds, one process with one clock. The yardstick is one INSERT of the same size through "
        "the same proxy (the commit is one fsync), before and after. Median delivery minus median "
        "commit: %.2f ms." % (rate, plan.latency, size, over / 1000),
        ["ms", "p50", "p99", "max"],
        [row("push sent -> row received", got, "sent"),
         row("push acknowledged -> row received", got, "acknowledged"),
         row("push sent -> acknowledged", got, "push"),
         row("yardstick: one INSERT and commit", commit, "commit")])


# -- jobs ------------------------------------------------------------------------------------------

PAYLOAD = '{"to": "a@example.org", "text": "%s"}' % ("x" * 60)

QUEUE_SQL = (1, "QUEUE PUSH jobs '%s'" % PAYLOAD, "QUEUE TAKE jobs", "QUEUE DONE '%s'")

HAND_TABLE = """
DROP TABLE IF EXISTS hand;
CREATE TABLE hand (id bigserial PRIMARY KEY, state int2 NOT NULL DEFAULT 0,
  attempt int NOT NULL DEFAULT 0, lease_until timestamptz, payload jsonb NOT NULL)
  WITH (fillfactor = 70);
CREATE INDEX hand_ready ON hand (id) WHERE state = 0"""

HAND_SQL = (
    0, "INSERT INTO hand (payload) VALUES ('%s')" % PAYLOAD,
    "UPDATE hand SET state = 1, attempt = attempt + 1, lease_until = now() + '5 min' WHERE id = "
    "(SELECT id FROM hand WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) "
    "RETURNING id, payload",
    "DELETE FROM hand WHERE id = %s")


def _jobs_once(rig, poolers, name, clients, plan):
    if name == "qbouncer":
        rig.statement(poolers[name], "QUEUE DROP jobs IF EXISTS")
        rig.statement(poolers[name], "QUEUE CREATE jobs")
        sql = QUEUE_SQL
    else:
        rig.psql(HAND_TABLE)
        sql = HAND_SQL
    before = poolers[name].cpu()
    got = rig.client(poolers[name], "jobs", clients, plan.jobs_seconds, *sql)
    spent = poolers[name].cpu() - before
    # the warm-up of a fifth of the time is in `spent`, not in the rate
    return got["rate"], spent / (got["rate"] * plan.jobs_seconds * 1.2) * 1e6


def part_jobs(rig, plan):
    """push, take, done one at a time"""
    rows = []
    with rig.pooler("qbouncer") as ours, rig.pooler("pgbouncer") as theirs:
        poolers = {"qbouncer": ours, "pgbouncer": theirs}
        for clients in (1, 10, 100):
            rate, cpu = {n: [] for n in BOTH}, {n: [] for n in BOTH}
            for order in turns(BOTH, plan.jobs_rounds):
                for name in order:
                    one = _jobs_once(rig, poolers, name, clients, plan)
                    rate[name].append(one[0])
                    cpu[name].append(one[1])
            rows.append([clients, number(median(rate["qbouncer"])), number(median(rate["pgbouncer"])),
                         ratio(rate["qbouncer"], rate["pgbouncer"]),
                         number(median(cpu["qbouncer"]), "%.1f"),
                         number(median(cpu["pgbouncer"]), "%.1f")])
    return Table(
        "Jobs one at a time",
        "Each client pushes a job, takes one and finishes it, in three statements with three commits, "
        "over and over: QUEUE PUSH, TAKE, DONE through qbouncer, and INSERT, UPDATE ... FOR UPDATE SKIP "
        "LOCKED, DELETE through pgbouncer (hand-written, simple protocol, transaction pooling). Jobs "
        "per second; CPU: microseconds of the pooler per job. Rounds of %d s, %d of each, medians. The "
        "client is one C process." % (plan.jobs_seconds, plan.jobs_rounds),
        ["clients", "qbouncer jobs/s", "SQL through pgbouncer", "ratio", "qbouncer CPU",
         "pgbouncer CPU"], rows)


PARTS = {
    "select": part_select,
    "instructions": part_instructions,
    "idle": part_idle,
    "park": part_park,
    "latency": part_latency,
    "jobs": part_jobs,
}
