"""A queue for each tenant: what thousands of queues cost, those that are used and those that are not.

For:     run.py.
Entry points: tenants.
"""

import os
import signal
import subprocess
import time
import urllib.request

from common import Failed, all_files
from pgcluster import free_port
from table import Goal, Table, number

JOBS = 10       # of each queue
CLIENTS = 100
IDLE = 10       # seconds that are watched

LOOKS = (("QUEUE LIST", "queue.list()"), ("QUEUE STATS", "queue.stats()"), ("QUEUE HEALTH", "queue.health()"),
         ("QUEUE WORKERS", "queue.workers()"))


class Watch:
    """Seconds, and seconds of CPU of Postgres and of the pooler, since it was made."""

    def __init__(self, rig, pooler):
        self.rig, self.pooler = rig, pooler
        self.at, self.postgres, self.proxy = self._now()

    def _now(self):
        return time.monotonic(), self.rig.postgres_cpu(), self.pooler.cpu()

    def cells(self, n=1):
        """For each of n, milliseconds."""
        was = self.at, self.postgres, self.proxy
        return [number((now - before) * 1000 / n, "%.2f") for now, before in zip(self._now(), was)]


def _clients(rig, pooler, texts):
    """A client for each text, which is statements for psql; all at once."""
    running = []
    for i, text in enumerate(texts):
        path = os.path.join(rig.dir, "tenants-%d.sql" % i)
        rig.write(path, text)
        running.append(subprocess.Popen(
            [os.path.join(rig.cluster.bin, "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *rig.address(pooler),
             "tx", "-f", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=all_files))
    failed = [process.communicate()[1] for process in running if process.wait() != 0]
    if failed:
        raise Failed("psql: " + failed[0][-2000:])


def _spread(n, clients, each):
    """The texts of so many clients, of which each has another part of the queues."""
    return ["".join(each(q) for q in range(c, n, clients)) for c in range(clients)]


def _create(rig, pooler, first, last):
    watch = Watch(rig, pooler)
    _clients(rig, pooler, ["".join("QUEUE CREATE tenant%d;\n" % q for q in range(first, last))])
    return watch.cells(last - first)


def _creations(rig, pooler, n):
    """So many at a time are measured; those between are made by two clients."""
    part, rows, made = min(100, n // 4), [], 0
    for first in (0, n // 10, n - part):
        if first > made:
            _clients(rig, pooler, ["".join("QUEUE CREATE tenant%d;\n" % q for q in range(made + c, first, 2)) for c in (0, 1)])
        first = max(first, made)
        rows.append(["CREATE, behind %d others" % first, *_create(rig, pooler, first, first + part)])
        made = first + part
    return rows


def _job(q):
    return "QUEUE TAKE tenant%d \\gset\nQUEUE DONE :'token';\n" % q


def _jobs(rig, pooler, n):
    payloads = ", ".join("'%d'" % k for k in range(JOBS))
    watch = Watch(rig, pooler)
    _clients(rig, pooler, _spread(n, 8, lambda q: "QUEUE PUSH tenant%d %s;\n" % (q, payloads)))
    pushed = watch.cells(n * JOBS)
    watch = Watch(rig, pooler)
    _clients(rig, pooler, _spread(n, CLIENTS, lambda q: _job(q) * JOBS))
    return [["push, a job", *pushed], ["take and done, a job", *watch.cells(n * JOBS)]]


def _look(rig, pooler, what, function):
    watch = Watch(rig, pooler)
    rig.statement(pooler, what)
    cells = watch.cells()
    locks = rig.statement(pooler, "BEGIN; SELECT count(*) FROM %s; "
                          "SELECT 'locks', count(*) FROM pg_locks WHERE pid = pg_backend_pid(); COMMIT" % function)
    return [what + ", with %s locks" % locks.split("locks|")[1].split()[0], *cells]


def _metrics(rig, pooler, port):
    """The first one begins the counting; how long is it until the figures are there?"""
    def read():
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port) as page:
            return page.read().decode()
    began = time.monotonic()
    watch = Watch(rig, pooler)
    while "\nqbouncer_queue_jobs{" not in read():
        if time.monotonic() > began + 120:
            raise Failed("no queue was counted")
        time.sleep(0.1)
    rows = [["first count of metrics", *watch.cells()]]
    watch = Watch(rig, pooler)
    size = len(read())
    return [*rows, ["/metrics, %.0f kB" % (size / 1000), *watch.cells()]]


def _idle(rig, pooler, n):
    """With somebody waiting for the first queues."""
    names = ", ".join("tenant%d" % q for q in range(min(n, 8)))
    with rig.hold(pooler, "park", CLIENTS, "QUEUE TAKE %s WAIT '1h'" % names):
        pooler.settled()
        watch = Watch(rig, pooler)
        time.sleep(IDLE)
        return ["idle, %d waiting, a second" % CLIENTS, *watch.cells(IDLE)]


def _first_job(rig, n):
    """A pooler that has just been started."""
    rig.psql("SELECT queue.push('tenant%d', '1')" % (n // 2))
    began, cpu = time.monotonic(), rig.postgres_cpu()
    with rig.pooler("qbouncer") as pooler:
        rig.statement(pooler, "QUEUE POP tenant%d" % (n // 2))
        return ["start of the pooler, first job", *(number(x * 1000, "%.2f") for x in (
            time.monotonic() - began, rig.postgres_cpu() - cpu, pooler.cpu()))]


def _death(rig, n):
    """A pooler dies with a job of each tenth queue: when are all of them ready again?"""
    held = range(0, n, 10)
    counts = rig.psql("SELECT string_agg(format('(SELECT count(*) FROM %%s WHERE state = ''ready'')', queue._table('tenant' || q)), ' + ')"
                      " FROM unnest(ARRAY[%s]) AS q" % ",".join(map(str, held)))
    with rig.pooler("qbouncer") as ours, rig.pooler("qbouncer") as theirs, rig.session() as ready:
        ready.run("PREPARE ready AS SELECT " + counts.strip() + ";")    # to ask costs no more than it must
        rig.statement(theirs, *("QUEUE PUSH tenant%d '1'" % q for q in held))
        with rig.hold(theirs, "park", 1, "QUEUE TAKE tenant1 WAIT '1h'"):
            takes = "".join("QUEUE TAKE tenant%d HOLD;\n" % q for q in held)
            with subprocess.Popen([os.path.join(rig.cluster.bin, "psql"), "-X", "-q", "-A", "-t", *rig.address(ours), "tx"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
                worker.stdin.write(takes + "\\echo taken\n")
                worker.stdin.flush()
                while worker.stdout.readline() != "taken\n":
                    pass
                theirs.settled()
                for _ in range(6):      # from then on it is not planned anew
                    ready.run("EXECUTE ready;")
                began, watch = time.monotonic(), Watch(rig, theirs)
                os.kill(ours.pid, signal.SIGKILL)
                while int(ready.run("EXECUTE ready;")) < len(held):
                    if time.monotonic() > began + 60:
                        raise Failed("leases of a pooler that is gone did not come back")
                    time.sleep(0.02)
                back, cells = time.monotonic() - began, watch.cells()
                worker.stdin.close()
    return len(held), ["a pooler killed with %d leases, until all are back" % len(held), *cells], back


def tenants(rig, plan):
    """a queue for each tenant"""
    n, port = plan.tenants, free_port()
    with rig.pooler("qbouncer", more="metrics_port = %d\n" % port) as pooler:
        rows = _creations(rig, pooler, n)
        rows += _jobs(rig, pooler, n)
        memory = [rig.postgres_memory() / 1048576, pooler.rss() / 1048576]
        rows += [_look(rig, pooler, *look) for look in LOOKS]
        rows += _metrics(rig, pooler, port)
        rows.append(_idle(rig, pooler, n))
    rows.append(_first_job(rig, n))
    held, row, back = _death(rig, n)
    rows.append(row)
    watch = time.monotonic(), rig.postgres_cpu()
    rig.statement(None, *("SELECT queue.drop('tenant%d')" % q for q in range(min(n, 100))))
    rows.append(["DROP", *(number((now - was) * 1000 / min(n, 100), "%.2f") for now, was in
                           zip((time.monotonic(), rig.postgres_cpu()), watch)), "-"])
    return Table(
        "A queue for each tenant",
        "%d queues; %d jobs are pushed to each and are taken and done by %d clients. Then the queues are looked at, all at once; "
        "locks are those that the transaction holds then. CPU of Postgres is that of all its processes, autovacuum and the "
        "queue's own maintenance among them. Behind the work the processes of Postgres had %.0f MiB for themselves, the pooler "
        "%.0f." % (n, JOBS, CLIENTS, *memory),
        ["", "ms", "Postgres, ms of CPU", "pooler, ms of CPU"], rows,
        [Goal("a pooler killed beside %d queues, with %d leases" % (n, held), "all are back in < 5 s", "%.1f s" % back)])
