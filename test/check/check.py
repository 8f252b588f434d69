#!/usr/bin/python3
"""The checker: many client processes push and work at random while some of them, server processes and,
if wanted, the proxy are killed, connections to the server go silent or are cut before their answer, and
server processes are stopped for a while; then their logs are judged, and everything has to be at rest.

    /usr/bin/python3 test/check/check.py --build DIR --seconds 600 --restarts
    /usr/bin/python3 test/check/check.py --judge FOLDER          the logs of a run that was kept

For:     the command line and test/it/queue/test_checker.py.
Must not know: what is right (judge.py).
Entry points: Check, main.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib")]

import psycopg  # noqa: E402

import judge  # noqa: E402
import worker  # noqa: E402
from pgcluster import Cluster  # noqa: E402
from proxy import Proxy, runnable, wait_for  # noqa: E402
from relay import Relay  # noqa: E402

SETUP = """
QUEUE CREATE work WITH (max_attempts = 1000000, retry = 'fixed 1s', lease = '5s');
QUEUE CREATE pops;
CREATE TABLE effects (uid text NOT NULL)
"""

# With limits: so many leases at once, and so many deliveries; those of a group in their order, as without.
MAX_RUNNING, RATE, BURST = 12, 300, 50
LIMITS = ("QUEUE ALTER work SET (max_running = %d, rate = '%d/s burst %d', rate_per_group = '100/s burst 20')"
          % (MAX_RUNNING, RATE, BURST))

# a statement whose answer does not come is given up soon: long enough for what is only slow
SETTINGS = {"queue_heartbeat": "1s", "default_pool_size": "15", "server_login_retry": "100ms",
            "queue_engine_timeout": "3s", "query_timeout": "20s",
            "core_dumps": "1"}  # its descriptors are counted

STOPPED = (0.2, 6) # seconds that a process of the server is stopped


class Check:
    """proxies are running; db is a fresh database behind them; direct a connection past them."""

    worker = worker.Worker

    def __init__(self, proxies, db, direct, seed, workers=40, restarts=False, patience=60, say=print, relay=None,
                 limits=False):
        """patience: seconds in which, at the end, what is left becomes less. relay: between proxies and server."""
        self.proxies, self.db, self.direct, self.say = proxies, db, direct, say
        self.relay, self.stopped = relay, [] # (pid, when to let it go on)
        self.words, self.patience = (), patience
        self.random = random.Random(seed)
        self.restarts = restarts
        self.limits, self.most, self.too_many = limits, 0, []
        self.folder = tempfile.mkdtemp(prefix="qbcheck")
        self.children = {} # pid -> (slot, name)
        self.born = [0] * workers
        self.counts = {"kill": 0, "terminate": 0, "restart": 0, "silent": 0, "cut": 0, "stop": 0}
        self.control = os.path.join(self.folder, "control.log")
        say("seed %r, logs in %s" % (seed, self.folder))

    # --- processes --------------------------------------------------------------------------------

    def write(self, event, **more):
        with open(self.control, "a", encoding="utf-8") as log:
            log.write(json.dumps(dict(more, e=event, t=time.time())) + "\n")

    def args(self, name, seed, pushes):
        places = [(p.port, p.dsn(self.db)) for p in self.proxies]
        return name, self.folder, places, self.words, seed, pushes

    def fork(self, slot):
        self.born[slot] += 1
        name = "w%02d.%d" % (slot, self.born[slot])
        seed = self.random.random()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                # few push, because a push takes less than the life of a job
                worker.main(self.worker, *self.args(name, seed, slot % 20 < 3))
                code = 0
            finally:
                os._exit(code)
        self.children[pid] = (slot, name)

    def reap(self, pid):
        _, status = os.waitpid(pid, 0)
        slot, name = self.children.pop(pid)
        return slot, name, status

    def kill_one(self):
        pid = self.random.choice(list(self.children))
        self.write("kill", w=self.children[pid][1])
        os.kill(pid, signal.SIGKILL)
        slot, _, _ = self.reap(pid)
        self.counts["kill"] += 1
        self.fork(slot)

    def terminate_one(self):
        for pid, name, _ in self.direct.execute(
                "SELECT pid, name, pg_terminate_backend(pid) FROM (SELECT pid, application_name AS name FROM pg_stat_activity"
                " WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                " ORDER BY random() LIMIT 1) AS one", (self.db,)).fetchall():
            self.write("terminate", pid=pid, name=name)
            self.counts["terminate"] += 1

    def lose_one(self):
        """The next answer, or all that passes on a connection. Only one connection at a time."""
        how = self.random.choice(("cut", "cut", "silent", "never"))
        self.write("lose", how=how)
        if self.random.random() < 0.2:
            self.relay.silence(lambda pairs: self.random.sample(pairs, 1) if pairs else [])
        else:
            self.relay.arm(None, how)
        self.counts["cut" if how == "cut" else "silent"] += 1

    def stop_one(self):
        """A process of the server."""
        row = self.direct.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() AND pid <> ALL (%s)"
            " AND backend_type = 'client backend' AND application_name !~ 'system' ORDER BY random() LIMIT 1",
            (self.db, [pid for pid, _ in self.stopped])).fetchone()
        if row is None:
            return
        self.write("stop", pid=row[0])
        self.counts["stop"] += self.signal(row[0], signal.SIGSTOP)
        self.stopped.append((row[0], time.monotonic() + self.random.uniform(*STOPPED)))

    def go_on(self, now):
        for one in [s for s in self.stopped if s[1] <= now]:
            self.stopped.remove(one)
            self.signal(one[0], signal.SIGCONT)

    @staticmethod
    def signal(pid, signo):
        try:
            os.kill(pid, signo)
        except ProcessLookupError:
            return False
        return True

    def restart(self):
        self.write("restart")
        proxy = self.random.choice(self.proxies)
        proxy.kill()
        proxy.start()
        self.counts["restart"] += 1

    # --- the run ----------------------------------------------------------------------------------

    def setup(self):
        with self.proxies[0].connect(self.db) as conn:
            for sql in SETUP.split(";"):
                conn.execute(sql)
            if self.limits:
                conn.execute(LIMITS)
            usage = " ".join(r[1] for r in conn.execute("QUEUE HELP").fetchall())
            self.words = [w for w in ("HOLD", "GROUP") if w in usage]

    def run(self, seconds):
        self.setup()
        for slot in range(len(self.born)):
            self.fork(slot)
        until = time.monotonic() + seconds
        restart_at = time.monotonic() + 7
        try:
            while time.monotonic() < until:
                time.sleep(0.2) # the pace of the mishaps
                if self.random.random() < 0.6:
                    self.kill_one()
                if self.random.random() < 0.3:
                    self.terminate_one()
                if self.relay and self.random.random() < 0.15:
                    self.lose_one()
                if self.relay and self.random.random() < 0.04 and not self.stopped:
                    self.stop_one()
                self.go_on(time.monotonic())
                self.look_at_limits()
                if self.restarts and time.monotonic() > restart_at:
                    self.restart()
                    restart_at = time.monotonic() + 7
        finally:
            self.go_on(float("inf"))
            if self.relay:
                self.relay.disarm()
            self.end()
        if self.relay: # the server notices now whose other end is gone, and what was open there is rolled back
            self.relay.forget_silent()
        self.drain()

    def end(self):
        self.write("end")
        for pid in self.children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while self.children:
            for pid in list(self.children):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    _, name, status = self.reap(pid)
                    # one that was only just born has not heard of signals yet
                    assert status in (0, signal.SIGTERM), "worker %s ended with %r" % (name, status)
            if time.monotonic() > deadline:
                stuck = [name for _, name in self.children.values()]
                for pid in list(self.children):
                    os.kill(pid, signal.SIGKILL)
                    self.reap(pid)
                raise AssertionError("these do not end, a statement has no answer: %s" % stuck)
            time.sleep(0.02)

    def left(self):
        return [r[0] for r in self.direct.execute("SELECT payload->>'u' FROM queue.q_work UNION ALL "
                                                  "SELECT payload->>'u' FROM queue.q_pops")]

    def drain(self):
        least, deadline = float("inf"), 0

        def over():
            nonlocal least, deadline
            n = len(self.left())
            if n < least:
                least, deadline = n, time.monotonic() + self.patience
            return n == 0 or time.monotonic() > deadline
        self.worker(*self.args("drain", 0, False)).drain(over)

    def look_at_limits(self):
        if not self.limits:
            return
        for _ in range(5):
            running, groups = self.direct.execute(
                """SELECT count(*), max(n) FROM (SELECT count(*) OVER (PARTITION BY coalesce("group", id::text)) AS n
                FROM queue.q_work WHERE state = 'leased' AND lease_until > clock_timestamp()) AS g""").fetchone()
            self.most = max(self.most, running)
            if running > MAX_RUNNING or (groups or 0) > 1:
                self.too_many.append("limit: %d leases, %d of a group" % (running, groups))

    def beyond_limits(self, case):
        """More than there may be; or never as many, which nobody can have meant."""
        said = list(self.too_many)
        times = sorted(l.got for l in case.by_token.values() if l.got is not None)
        for i in range(0, len(times), 50):
            for j in range(i + BURST, len(times), 250):
                # got: when the answer was read, which may be a while after it was taken
                if j - i > BURST + RATE * (times[j] - times[i] + 1) + 50:
                    said.append("rate: %d in %.2f s" % (j - i, times[j] - times[i]))
        # on a busy machine it is not often looked at, and seldom full; flows.py knows each change
        if self.most < MAX_RUNNING - 2:
            said.append("limit: never more than %d of %d" % (self.most, MAX_RUNNING))
        return said

    # --- the verdict ------------------------------------------------------------------------------

    def final(self):
        effects = self.direct.execute("SELECT uid, count(*) FROM effects GROUP BY uid").fetchall()
        return {"left": self.left(), "effects": dict(effects)}

    def verdict(self):
        """What went wrong: sentences."""
        final = self.final()
        with open(os.path.join(self.folder, "final.json"), "w", encoding="utf-8") as out:
            json.dump(final, out)
        said, case = judge_folder(self.folder, final)
        said += self.unrest()
        if self.limits:
            said += self.beyond_limits(case)
        said += ["left: %s is in a queue" % uid for uid in final["left"]]
        jobs = case.jobs.values()
        self.say("%d jobs (%d acknowledged, %d rolled back), %d leases, %d ends accepted and %d refused; "
                 "%d workers and %d backends killed, %d restarts, %d silent, %d answers cut, %d backends stopped"
                 % (len(jobs), sum(j.fate == "sure" for j in jobs), sum(j.fate == "never" for j in jobs),
                    len(case.by_token), sum(f.state == "yes" for l in case.by_token.values() for f in l.fins),
                    sum(f.state == "no" for l in case.by_token.values() for f in l.fins), self.counts["kill"],
                    self.counts["terminate"], self.counts["restart"], self.counts["silent"], self.counts["cut"],
                    self.counts["stop"]))
        return said

    def unrest(self):
        """What is still going on when nobody does anything."""
        said = []

        def until(what, condition):
            try:
                wait_for(condition, what)
            except AssertionError as e:
                said.append("at rest: %s" % e)

        def idle(proxy):
            pool = proxy.pool(self.db)
            return not pool or not any(int(pool[k]) for k in ("cl_active", "cl_waiting", "sv_active"))

        def freed(proxy):
            return all(int(r["used"]) <= 2 for r in proxy.console("SHOW MEM") if r["name"] in ("client", "clients"))

        until("no open transaction", lambda: not self.direct.execute(
            "SELECT FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() AND state <> 'idle'"
            " AND backend_type = 'client backend'", (self.db,)).fetchall())
        for proxy in self.proxies:
            until("no client in the pool", lambda: idle(proxy))
            until("nobody waits", lambda: not proxy.console("SHOW WAITERS"))
            until("nobody holds a lease", lambda: not proxy.console("SHOW LEASES"))
            until("sockets are closed", lambda: self.descriptors(proxy) <= self.servers() + 20)
            until("clients are freed", lambda: freed(proxy))
        return said

    @staticmethod
    def descriptors(proxy):
        return len(os.listdir("/proc/%d/fd" % proxy.process.pid))

    def servers(self):
        return self.direct.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (self.db,)).fetchone()[0]

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def relay_to(port):
    """A proxy whose own session does not hear for longer than queue_orphan_grace is dead for the others, and what it holds is
    theirs to give back: that session is killed, but not silenced."""
    return Relay(port, spare=b"qbouncer system")


def through(relay):
    """Of [databases]."""
    return {"*": "host=127.0.0.1 port=%d" % relay.port}


def few_of_each(said):
    """The first sentences of each rule, and how many there are."""
    rules = {}
    for s in said:
        rules.setdefault(s.split(":")[0], []).append(s)
    out = []
    for rule, all_of_it in rules.items():
        out += all_of_it[:20]
        if len(all_of_it) > 20:
            out.append("%s: ... %d in all" % (rule, len(all_of_it)))
    return out


def judge_folder(folder, final=None):
    logs = judge.read(folder)
    if final is None:
        with open(os.path.join(folder, "final.json"), encoding="utf-8") as text:
            final = json.load(text)
    return judge.judge(logs, final)


def main(kind=Check):
    p = argparse.ArgumentParser(description="Kill what can be killed, and see whether a job was lost.")
    p.add_argument("--build", default=os.environ.get("QB_BUILD", "."), help="where qbouncer is")
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--seed", default=str(random.randrange(10 ** 6)))
    p.add_argument("--workers", type=int, default=40)
    p.add_argument("--proxies", type=int, default=2, help="before one database")
    p.add_argument("--restarts", action="store_true", help="kill them, too")
    p.add_argument("--limits", action="store_true", help="of the queue, and of its groups")
    p.add_argument("--judge", metavar="FOLDER", help="judge logs that are there")
    a = p.parse_args()
    if a.judge:
        said = judge_folder(a.judge)[0]
        print("\n".join(few_of_each(said)) or "nothing is wrong")
        sys.exit(bool(said))
    with Cluster() as pg, runnable(os.path.join(a.build, "qbouncer")) as program:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE admin LOGIN")
        db = pg.createdb(owner="app")
        relay = relay_to(pg.port)
        proxies = [Proxy(program, pg, databases=through(relay), **SETTINGS) for _ in range(a.proxies)]
        try:
            for proxy in proxies:
                proxy.start()
            with psycopg.connect(pg.dsn(db), autocommit=True) as direct:
                check = kind(proxies, db, direct, a.seed, a.workers, a.restarts, relay=relay, limits=a.limits)
                check.run(a.seconds)
                said = check.verdict()
            for proxy in proxies:
                proxy.stop()
        finally:
            log = "\n\n".join(proxy.log_text() for proxy in proxies)
            for proxy in proxies:
                proxy.remove()
            relay.stop()
        if said:
            print("\n".join(few_of_each(said)))
            with open(os.path.join(check.folder, "qbouncer.txt"), "w", encoding="utf-8") as out:
                out.write(log)
            print("%d things went wrong; the logs are in %s" % (len(said), check.folder))
            sys.exit(1)
        check.remove()
        print("all is well")


if __name__ == "__main__":
    main()
