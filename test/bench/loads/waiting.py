"""Clients that do nothing, and clients that wait for a job.

For:     run.py.
Entry points: idle, park, storm.
"""

import os
import re
import time

from common import Failed, files_allowed
from table import Goal, Table, median, number, ratio

BOTH = ("qbouncer", "pgbouncer")


def _idle_memory(rig, name, n, tls):
    with rig.pooler(name, tls=tls) as pooler:
        rig.statement(pooler, "SELECT 1")
        pooler.settled()
        before = pooler.rss()
        with rig.hold_tls(pooler, n) if tls else rig.hold(pooler, "idle", n):
            pooler.settled()
            return (pooler.rss() - before) / n


def _idle_row(rig, label, n, tls):
    got = {name: [] for name in BOTH}
    for name in (*BOTH, *reversed(BOTH)):
        got[name].append(_idle_memory(rig, name, n, tls))
    return [label, n, *(number(median(got[name]) / 1024, "%.2f") for name in BOTH),
            ratio(got["qbouncer"], got["pgbouncer"])]


def idle(rig, plan):
    """memory per idle client, plain and over TLS"""
    most = files_allowed() - 500
    rows = [_idle_row(rig, "plain text", min(plan.idle, most), False),
            _idle_row(rig, "TLS 1.3", min(plan.idle_tls, most), True)]
    return Table(
        "Memory of idle clients",
        "Growth of the resident memory of a fresh pooler when the clients have logged in (trust, "
        "transaction pooling), divided by their number, KiB; median of 2.",
        ["", "clients", "qbouncer", "pgbouncer", "ratio"], rows,
        [Goal("memory per idle plaintext client", "<= 2.0 KiB", rows[0][2] + " KiB")])


# -- waiting ---------------------------------------------------------------------------------------


def _server_connections(rig):
    return int(rig.psql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                        "AND datname = 'bench' AND pid <> pg_backend_pid()"))


def _held(rig):
    """Server connections that are in use: in a statement or a transaction."""
    return int(rig.psql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                        "AND datname = 'bench' AND pid <> pg_backend_pid() AND state <> 'idle'"))


def _await_rows(clients, count):
    deadline = time.monotonic() + 10
    while clients.counted()[0] < count and time.monotonic() < deadline:
        time.sleep(0.02)
    if clients.counted()[0] != count:
        raise Failed("a job was pushed, and %d of the waiting clients got one" % clients.counted()[0])


def _park(rig, n, plan, label, more):
    with rig.pooler("qbouncer", more=more) as pooler:
        rig.statement(pooler, "QUEUE CREATE parked IF NOT EXISTS")
        rig.statement(pooler, "QUEUE TAKE parked WAIT '1s'")
        pooler.settled()
        memory, servers = pooler.rss(), _server_connections(rig)
        with rig.hold(pooler, "park", n, "QUEUE TAKE parked WAIT '1h'") as clients:
            pooler.settled()
            memory = (pooler.rss() - memory) / n
            servers_now, held = _server_connections(rig), _held(rig)
            signs, cpu, at = clients.counted()[1], pooler.cpu(), time.monotonic()
            base = rig.postgres_cpu()
            time.sleep(plan.watch)
            spent = time.monotonic() - at
            cpu, base = ((pooler.cpu() - cpu) / spent * 100,
                         (rig.postgres_cpu() - base) / spent * 100)
            signs = clients.counted()[1] - signs
            rig.statement(pooler, "QUEUE PUSH parked '{}'")
            _await_rows(clients, 1)
    rig.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'bench' "
             "AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
    return [label, n, servers, servers_now, held, number(memory), number(memory / 1024, "%.2f"),
            "%.0f" % (signs / spent), "%.2f %%" % cpu, "%.2f %%" % base]


def park(rig, plan):
    """clients in QUEUE TAKE WAIT"""
    n = min(plan.parked, files_allowed() - 500)
    rows = [_park(rig, n, plan, "default", ""), _park(rig, n, plan, "off", "queue_heartbeat = 0")]
    return Table(
        "Clients in QUEUE TAKE ... WAIT",
        "%d clients wait on one queue. Server connections: all that the proxy has, before they came "
        "(its own session and those that its pool keeps) and while they wait; in use: of these, in a "
        "statement or a transaction. Memory: as for idle clients, logged in and waiting. CPU: of the proxy and of all "
        "of Postgres over %d s in which nothing is pushed, with signs of life as often as is the "
        "default, and without. At the end one job is pushed and reaches exactly one client."
        % (n, plan.watch),
        ["heartbeat", "clients", "servers before", "servers now", "in use", "bytes per client", "KiB",
         "messages/s", "idle CPU", "Postgres CPU"], rows,
        [Goal("%d clients in TAKE WAIT" % n, "0 server connections held, <= 3 KiB each, idle CPU < 1 %",
              "%d held, %s KiB, %s" % (rows[0][4], rows[0][6], rows[0][8]))])


# -- wake storm ------------------------------------------------------------------------------------


def _statements(rig, at):
    """Statements in Postgres' log since the position, and the position now."""
    with open(os.path.join(rig.cluster.log_file), encoding="utf-8", errors="replace") as log:
        log.seek(at)
        text = log.read()
        return re.findall(r"LOG: +(?:statement|execute [^:]*): (.*)", text), log.tell()


def _storm(rig, pooler, n, jobs):
    rig.statement(pooler, "QUEUE DROP storm IF EXISTS", "QUEUE CREATE storm")
    with rig.hold(pooler, "park", n, "QUEUE TAKE storm WAIT '1h'") as clients:
        pooler.settled()
        rig.psql("ALTER SYSTEM SET log_statement = 'all'")
        rig.psql("SELECT pg_reload_conf()")
        time.sleep(0.5)
        at = _statements(rig, 0)[1]
        cpu, began = pooler.cpu(), time.monotonic()
        rig.statement(pooler, "QUEUE PUSH storm " + ", ".join(["'{}'"] * jobs))
        _await_rows(clients, jobs)
        spent = time.monotonic() - began
        time.sleep(0.3)
        seen, _ = _statements(rig, at)
        cpu = pooler.cpu() - cpu
        rig.psql("ALTER SYSTEM RESET log_statement")
        rig.psql("SELECT pg_reload_conf()")
    return [n, jobs, len(seen), jobs, number(spent * 1000), number(cpu * 1000)]


def storm(rig, plan):
    """one push, thousands of waiters: statements sent to Postgres"""
    n = min(plan.parked, files_allowed() - 500)
    with rig.pooler("qbouncer") as pooler:
        rows = [_storm(rig, pooler, n, jobs) for jobs in (1, 100)]
    return Table(
        "Wake storm",
        "So many clients wait on one queue when one statement pushes jobs. Statements: all that Postgres "
        "logged (log_statement = all) until each job was delivered and 0.3 s longer. Time: from the "
        "start of psql, which pushes, until the last row was there.",
        ["waiters", "jobs pushed", "statements", "clients woken", "ms", "proxy CPU ms"], rows)
