#!/usr/bin/python3
"""What a machine with more cores would do: a simulation of clients, proxies and Postgres from measured costs.

    test/bench/simulate.py                          the table of doc/scale.md
    test/bench/simulate.py --cores 16 --clients 400 --proxies 4 --batch 1

Each client pushes a job, takes one and finishes it, over and over, in three statements. What is alike and arrives while a
batch of its kind runs becomes the next batch, with one commit; a proxy (a process of one) has one connection for each of
the three kinds. Clients, proxies and backends are threads that share the cores in slices; a commit waits for the disk without
using one. What is not in it: locks and caches inside Postgres (it is told what that costs by COMMIT and JOB, which were
measured with up to eight backends), the network, and NOTIFY between proxies but as CPU.

The costs are those of doc/scale.md, first table: lines through what was measured with 1, 10, 100 and 200 clients. So the
rows of two cores are no proof but the check of these lines; the others are what follows from them.
"""

import argparse
import collections
import heapq
import random
from types import SimpleNamespace

KINDS = ("push", "take", "done")

# microseconds that a thread keeps its core while others wait for one
SLICE = 1000

# microseconds of CPU, and of waiting
COSTS = SimpleNamespace(
    proxy_statement=10.5,   # of the proxy, for each statement of a client
    proxy_batch=28,         # and for each batch that it sends
    job={"push": 6.0, "take": 12.0, "done": 7.5},   # of Postgres, for each job of a batch
    commit=120,             # and for each batch
    notify=60,              # and for a push that other proxies have to be told of
    client=11,              # of the clients, for each statement
    flush=60)               # until the disk has it


class Thread:
    """Something that does one thing after the other on at most one core."""

    def __init__(self, machine):
        self.machine, self.work, self.known, self.slice = machine, [], False, 0

    def add(self, cost, then):
        """More to do; then() is called when it is done."""
        self.work.append([cost, then])
        if not self.known:
            self.known = True
            self.machine.wants(self)


class Machine:
    """Threads that share cores, one slice of time after the other, and a clock."""

    def __init__(self, cores):
        self.free, self.now, self.queue, self.timers, self.number = cores, 0.0, collections.deque(), [], 0

    def thread(self):
        """A new one."""
        return Thread(self)

    def after(self, delay, then):
        """Without using a core."""
        self.number += 1
        heapq.heappush(self.timers, (self.now + delay, self.number, then))

    def wants(self, thread):
        """It stands in line for a core."""
        self.queue.append(thread)
        thread.slice = SLICE
        self.dispatch()

    def dispatch(self):
        """Cores that are free take who stands in line."""
        while self.free and self.queue:
            self.free -= 1
            self.run(self.queue.popleft())

    def run(self, thread):
        """On a core, as long as what it does now takes, or its slice."""
        part = min(thread.work[0][0], thread.slice)
        self.after(part, lambda: self.ran(thread, part))

    def ran(self, thread, part):
        """What then?"""
        thread.slice -= part
        thread.work[0][0] -= part
        if thread.work[0][0] <= 1e-9:
            thread.work.pop(0)[1]()
        if thread.work and (thread.slice > 1e-9 or not self.queue):
            thread.slice = thread.slice if thread.slice > 1e-9 else SLICE
            self.run(thread)
            return
        self.free += 1
        thread.known = False
        if thread.work:
            thread.known = True
            self.wants(thread)
        self.dispatch()

    def step(self):
        """On to the next thing that ends."""
        self.now, _, then = heapq.heappop(self.timers)
        then()


class Proxy:
    """A loop: it does what has come, then sends what has gathered, then looks again."""

    def __init__(self, world):
        self.world, self.thread = world, world.machine.thread()
        self.inbox, self.turning = [], False
        self.lanes = [Lane(world, self, kind) for kind in KINDS]

    def add(self, then):
        """Half of a statement: its way in, or its answer's way out."""
        self.inbox.append(then)
        self.turn()

    def turn(self):
        """The next one, if there is something to do and none runs."""
        if self.turning or not self.inbox:
            return
        self.turning, items, self.inbox = True, self.inbox, []
        self.world.count(0, len(items) * self.world.half, 0)
        self.thread.add(len(items) * self.world.half, lambda: self.turned(items))

    def turned(self, items):
        """What it has read, it acts upon."""
        for then in items:
            then()
        for lane in self.lanes:
            lane.go()
        self.thread.add(0, self.again)

    def again(self):
        """Behind what it has sent."""
        self.turning = False
        self.turn()


class Lane:
    """The statements of one kind at one proxy: one batch runs, the next gathers."""

    def __init__(self, world, proxy, kind):
        self.world, self.proxy, self.kind = world, proxy, kind
        self.backend = world.machine.thread()
        self.waiting, self.busy = [], False

    def go(self):
        """The next batch, if there is one and nothing runs."""
        if self.busy or not self.waiting:
            return
        self.busy, batch, self.waiting = True, self.waiting, []
        w, c = self.world, self.world.costs
        cost = c.commit + c.job[self.kind] * len(batch) * w.batch
        if self.kind == "push" and w.proxies > 1:
            cost += c.notify
        w.count(1, c.proxy_batch, cost)
        self.proxy.thread.add(c.proxy_batch, lambda: self.backend.add(
            cost, lambda: w.machine.after(c.flush, lambda: self.ended(batch))))

    def ended(self, batch):
        """It is committed: its answers go out, and the next one may run."""
        def free():
            self.busy = False
        self.proxy.add(free)
        for answer in batch:
            self.proxy.add(answer)


class World:
    """Clients, proxies, one Postgres. apart: clients are on another machine."""

    def __init__(self, cores, clients, proxies=1, batch=1, costs=COSTS, apart=False):
        self.machine, self.costs, self.batch = Machine(cores), costs, batch
        self.jobs = self.commits = self.proxy_cpu = self.postgres_cpu = 0
        self.random = random.Random(1)
        # a job of a batch costs the proxy a tenth of what a statement costs
        self.half = costs.proxy_statement * (1 + (batch - 1) * 0.1) / 2
        self.client = None if apart else self.machine.thread()
        self.proxies = proxies
        self.all = [Proxy(self) for _ in range(proxies)]
        for i in range(clients):
            self.next(self.all[i % proxies], i // proxies % len(KINDS))

    def next(self, proxy, kind):
        """A client of this proxy sends its next statement."""
        def answered():
            if kind == len(KINDS) - 1:
                self.jobs += self.batch
            self.next(proxy, (kind + 1) % len(KINDS))

        def send():
            proxy.add(lambda: proxy.lanes[kind].waiting.append(answered))
        # never all at the same moment: who was answered together would stay together
        cost = self.costs.client * self.random.uniform(0.2, 1.8)
        if self.client:
            self.client.add(cost, send)
        else:
            self.machine.after(cost * 10, send)

    def count(self, commits, proxy_cpu, postgres_cpu):
        """What a batch, or half of some statements, costs."""
        self.commits += commits
        self.proxy_cpu += proxy_cpu
        self.postgres_cpu += postgres_cpu

    def run(self, seconds=0.5):
        """What a job costs, and how many there are, after a fifth of that for warming up."""
        while self.machine.now < seconds * 2e5:
            self.machine.step()
        self.jobs = self.commits = self.proxy_cpu = self.postgres_cpu = 0
        began = self.machine.now
        while self.machine.now < seconds * 1.2e6:
            self.machine.step()
        spent, jobs = self.machine.now - began, max(self.jobs, 1)
        return SimpleNamespace(rate=self.jobs / spent * 1e6, commits=self.commits / jobs, postgres_us=self.postgres_cpu / jobs,
                               postgres_cores=self.postgres_cpu / spent, proxy_share=self.proxy_cpu / spent / self.proxies)


FREE = SimpleNamespace(**{**vars(COSTS), "proxy_statement": 0.1, "proxy_batch": 0.1})

# what, world; what was measured: jobs per second, commits and microseconds of Postgres' CPU for each
ROWS = (
    ("two cores for all: 1 client", {"cores": 2, "clients": 1}, "1 340", "3.0", "370 to 395"),
    ("10 clients", {"cores": 2, "clients": 10}, "3 650", "1.5", "189"),
    ("100 clients", {"cores": 2, "clients": 100}, "14 500", "0.16", "46"),
    ("200 clients", {"cores": 2, "clients": 200}, "", "0.11 to 0.14", "37 to 40"),
    ("2 x 50 clients, two proxies", {"cores": 2, "clients": 100, "proxies": 2}, "", "0.34", "81"),
    ("2 x 100 clients, two proxies", {"cores": 2, "clients": 200, "proxies": 2}, "", "0.19 to 0.28", "55 to 58"),
    ("cores enough, clients elsewhere: 100 clients", {"cores": 8, "clients": 100, "apart": True}, "", "", ""),
    ("400 clients", {"cores": 8, "clients": 400, "apart": True}, "", "", ""),
    ("400 clients, `processes = 2`", {"cores": 16, "clients": 400, "proxies": 2, "apart": True}, "", "", ""),
    ("800 clients, `processes = 4`", {"cores": 32, "clients": 800, "proxies": 4, "apart": True}, "", "", ""),
    ("400 clients, a proxy that costs nothing", {"cores": 8, "clients": 400, "apart": True, "costs": FREE}, "", "", ""),
)


def rows(what=ROWS):
    """The lines of the table, as Markdown."""
    lines = ["| | jobs/s | measured | commits a job | measured | Postgres, µs a job | measured | cores of Postgres | of a proxy's core |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for label, world, rate, commits, postgres in what:
        got = World(**world).run()
        lines.append("| %s | %s | %s | %.2f | %s | %.0f | %s | %.1f | %.0f %% |" % (
            label, "{:,.0f}".format(round(got.rate, -2)).replace(",", " "), rate, got.commits, commits, got.postgres_us, postgres,
            got.postgres_cores, got.proxy_share * 100))
    return lines


def main():
    """The rows, or the one that is asked for."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--clients", type=int)
    p.add_argument("--proxies", type=int, default=1)
    p.add_argument("--batch", type=int, default=1, help="jobs in a statement")
    p.add_argument("--apart", action="store_true", help="the clients have a machine of their own")
    args = p.parse_args()
    world = {"cores": args.cores, "clients": args.clients, "proxies": args.proxies, "batch": args.batch, "apart": args.apart}
    print("\n".join(rows() if args.clients is None else rows([("", world, "", "", "")])))


if __name__ == "__main__":
    main()
