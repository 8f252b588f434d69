"""One client process of the checker: pushes or works at random, and writes down what it does.

For:     check.py, which forks it and may kill it at any moment.
Must not know: what is right; judge.py decides from the logs.
Entry points: main.

A line of the log is one write of one JSON object; what is about to happen is written before it happens, its
outcome behind it. Times are those of the machine's clock, which the database shares. Events:

    open    c                          a connection; everything until the next one is on it
    begin   x                          about to begin the block that is unit of work x
    push    x u {uid: not before} pop group  in unit of work x
    undo    u                          these were rolled back to a savepoint
    commit  x                          about to commit; for a statement of its own: push and fin are it
    ok, no  x                          committed; not committed
    lost                               the connection broke: what is open is unknown
    take    i x pop hold               about to take, in transaction x or none
    got     i jobs [[uid, token, until, attempt]]
    fin     k tok how x len            about to end a lease: done, fail, release, extend (by len seconds)
    fin+    k                          accepted (for x: if x is committed)
    fin-    k code                     refused
    roll    x                          about to roll back
    close   clean                      about to close, with a goodbye or without
    refused text                       an error that nothing here provokes
"""

import datetime
import json
import os
import random
import signal
import time

from links import HOW, Driver, Lost, Raw, Refused, Stuck

QUEUE, POPS = "work", "pops"


class Stop(Exception):
    """The run is over."""


class Worker:
    def __init__(self, name, folder, places, words, seed, pushes):
        """places: (port, dsn) of each proxy; words: of the language, that may be used."""
        self.name = name
        self.random = random.Random(seed)
        self.log = os.open(os.path.join(folder, name + ".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.places, self.words = places, words
        self.pushes = pushes
        self.n = 0
        self.link = None
        self.stopped = False

    # --- writing down ---------------------------------------------------------------------------

    def write(self, event, **more):
        more["e"] = event
        more["t"] = time.time()
        os.write(self.log, (json.dumps(more) + "\n").encode())

    def number(self, letter):
        self.n += 1
        return "%s-%s%d" % (self.name, letter, self.n)

    # --- connections ----------------------------------------------------------------------------

    def open(self):
        self.link = None
        while self.link is None:
            if self.stopped:
                raise Stop
            port, dsn = self.random.choice(self.places)
            try:
                self.link = Driver(dsn) if self.random.random() < 0.3 else Raw(port, "app", database(dsn))
            except Lost:
                time.sleep(0.05)
        self.write("open", c=self.number("c"))

    def close(self, clean):
        self.write("close", clean=clean)
        link, self.link = self.link, None
        if clean:
            link.close()
        else:
            link.crash()

    def run(self, sql, *params):
        return self.link.run(sql, params, self.random.choice(HOW))

    # --- a unit of work -------------------------------------------------------------------------

    def alone(self, x, action):
        """A statement that is its own transaction."""
        try:
            action()
        except Refused:
            self.write("no", x=x)
            return False
        self.write("ok", x=x)
        return True

    def transaction(self, x, actions, commit):
        """actions: functions. False: not committed."""
        self.write("begin", x=x)
        try:
            self.run("BEGIN")
            for action in actions:
                action()
            if not commit:
                self.write("roll", x=x)
                self.run("ROLLBACK")
                self.write("no", x=x)
                return False
            self.write("commit", x=x)
            _, tag = self.run("COMMIT")
            self.write("ok" if tag == "COMMIT" else "no", x=x)
            return tag == "COMMIT"
        except Refused:
            self.write("no", x=x)
            self.run("ROLLBACK")
            return False

    # --- pushing --------------------------------------------------------------------------------

    def jobs(self, x, n, delay=0.0, pop=False, group=None):
        uids = {self.number("j"): time.time() + delay if delay else 0 for _ in range(n)}
        self.write("push", x=x, u=uids, pop=pop, group=group)
        return list(uids)

    @staticmethod
    def payload(uid):
        return json.dumps({"u": uid})

    def push(self, x):
        """One statement that pushes."""
        kind = self.random.choice(("one", "one", "one", "several", "delay", "pop", "select", "copy")
                                  + ("group",) * (2 * ("GROUP" in self.words)))
        if kind == "group": # its jobs are one behind the other, in the order of these pushes
            u = self.jobs(x, 1, group=self.name)
            self.run("QUEUE PUSH %s $1 GROUP $2" % QUEUE, self.payload(u[0]), self.name)
            return
        queue = POPS if kind == "pop" else QUEUE
        delay = self.random.uniform(0.1, 1.5) if kind == "delay" else 0.0
        u = self.jobs(x, 1 if kind in ("one", "delay", "pop") else self.random.randint(1, 5), delay, queue == POPS)
        if kind == "select":
            self.run("QUEUE PUSH %s SELECT json_build_object('u', x) FROM unnest($1::text[]) AS x" % queue,
                     "{%s}" % ",".join(u))
        elif kind == "copy":
            self.link.copy("QUEUE PUSH %s FROM STDIN" % queue, [self.payload(uid) for uid in u])
        elif delay:
            self.run("QUEUE PUSH %s $1 DELAY $2" % queue, self.payload(u[0]), "%f s" % delay)
        else:
            more = self.random.choice(("", "", " EXPIRES '1 hour'", " ATTEMPTS 1000 DELAY '0'"))
            if len(u) == 1 and self.random.random() < 0.4:
                more += " HEADERS '%s'" % self.payload(u[0])
            self.run("QUEUE PUSH %s %s PRIORITY $%d%s" % (
                queue, ", ".join("$%d" % (i + 1) for i in range(len(u))), len(u) + 1, more),
                *([self.payload(uid) for uid in u] + [self.random.randint(0, 3)]))

    def push_to_savepoint(self, x):
        self.run("SAVEPOINT s")
        uids = self.jobs(x, 1)
        self.run("QUEUE PUSH %s $1" % QUEUE, self.payload(uids[0]))
        self.run("ROLLBACK TO s")
        self.write("undo", u=uids)

    def pushing(self):
        x = self.number("x")
        if self.random.random() < 0.6:
            self.alone(x, lambda: self.push(x))
            return
        actions = [lambda: self.push(x) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.3:
            actions.insert(self.random.randint(0, len(actions)), lambda: self.push_to_savepoint(x))
        if self.random.random() < 0.2:
            actions.append(lambda: self.run("SELECT 1 / 0"))
        self.transaction(x, actions, self.random.random() < 0.7)

    # --- working --------------------------------------------------------------------------------

    def take(self, x=None, wait=None, limit=None, lease=None, pop=False):
        i = self.number("t")
        wait = self.random.choice((0, 0.2, 1)) if wait is None else wait
        limit = limit or self.random.choice((1, 1, 1, 3, 10))
        hold = not pop and lease is None and "HOLD" in self.words and self.random.random() < 0.3
        lease = lease or self.random.choice((0.5, 2, 5))
        self.write("take", i=i, x=x, pop=pop, hold=hold)
        if pop:
            rows, _ = self.run("QUEUE POP %s LIMIT $1 WAIT $2" % POPS, limit, "%s s" % wait)
        elif hold:
            rows, _ = self.run("QUEUE TAKE %s LIMIT $1 WAIT $2 HOLD" % QUEUE, limit, "%s s" % wait)
        else:
            rows, _ = self.run("QUEUE TAKE %s LIMIT $1 WAIT $2 LEASE $3" % QUEUE, limit, "%s s" % wait,
                               "%s s" % lease)
        jobs = [[self.uid(r), r["token"], epoch(r["lease_until"]),
                 int(r["attempt"])] for r in rows]
        self.write("got", i=i, jobs=jobs)
        return jobs

    @staticmethod
    def uid(row):
        """Headers say the same, or nothing."""
        if row["headers"] not in (None, row["payload"]):
            return "%s with the headers %s" % (row["payload"], row["headers"])
        return json.loads(row["payload"])["u"]

    def finish(self, token, how, x=None, extra="", length=0.0, params=()):
        k = self.number("k")
        self.write("fin", k=k, tok=token, how=how, x=x, len=length)
        try:
            self.run("QUEUE %s $1%s" % (how.upper(), extra), token, *params)
        except Refused as e:
            self.write("fin-", k=k, code=e.code)
            if x is not None:
                raise
            return False
        self.write("fin+", k=k)
        return True

    def finish_all(self, tokens):
        """Done in one statement."""
        keys = [self.number("k") for _ in tokens]
        for k, token in zip(keys, tokens):
            self.write("fin", k=k, tok=token, how="done", x=None, len=0)
        try:
            self.run("QUEUE DONE " + ", ".join("'%s'" % t for t in tokens))
            event = {"event": "fin+"}
        except Refused as e: # all or none
            event = {"event": "fin-", "code": e.code}
        for k in keys:
            self.write(k=k, **event)

    def effect_and_done(self, job, commit):
        x = self.number("x")
        return self.transaction(x, [
            lambda: self.run("INSERT INTO effects (uid) VALUES ($1)", job[0]),
            lambda: self.finish(job[1], "done", x)], commit)

    def deal_with(self, job):
        r = self.random.random()
        if r < 0.45:
            self.finish(job[1], "done")
        elif r < 0.60:
            self.effect_and_done(job, True)
        elif r < 0.66:
            self.effect_and_done(job, False)
            self.finish(job[1], "done")
        elif r < 0.74:
            self.finish(job[1], "fail", extra=" RETRY IN $2", length=0.3, params=("300 ms",))
        elif r < 0.80:
            self.finish(job[1], "release")
        elif r < 0.84:
            self.finish(job[1], "extend", extra=" LEASE $2", length=3.0, params=("3 s",))
            self.finish(job[1], "done")
        elif r < 0.88: # late; a held one is not
            time.sleep(min(max(0.0, job[2] - time.time()) + 0.02, 6))
            self.finish(job[1], self.random.choice(("done", "release", "fail")))
        elif r < 0.92: # again
            self.finish(job[1], "release")
            self.finish(job[1], self.random.choice(("done", "release", "extend")))
        elif r < 0.95: # on another connection
            self.close(True)
            self.open()
            self.finish(job[1], "done")
        elif r < 0.97:
            self.close(False)
            self.open()
            self.finish(job[1], "done")
        # or forgotten

    def take_in_transaction(self):
        x = self.number("x")
        jobs = []

        def take():
            jobs.extend(self.take(x, wait=0.5, limit=1))

        def work():
            for job in jobs:
                self.run("INSERT INTO effects (uid) VALUES ($1)", job[0])
                self.finish(job[1], "done", x)
        self.transaction(x, [take, work], self.random.random() < 0.7)

    def working(self):
        r = self.random.random()
        if r < 0.15:
            self.take_in_transaction()
        elif r < 0.25:
            self.take(pop=True)
        else:
            for job in self.take():
                self.deal_with(job)

    # --- the whole ------------------------------------------------------------------------------

    def step(self):
        try:
            if self.pushes:
                self.pushing()
                time.sleep(self.random.uniform(0, 0.1))
            else:
                self.working()
        except (Refused, Stuck) as e: # what nothing here provokes is written down
            self.write("refused", text="%s: %s" % (type(e).__name__, e))
            self.link = None
        except Lost:
            self.write("lost")
            self.link = None

    def main(self):
        while not self.stopped:
            if self.link is None:
                self.open()
            if self.random.random() < 0.01:
                self.close(self.random.random() < 0.5)
                continue
            self.step()
        if self.link is not None:
            self.close(True)

    def stop(self, *_):
        self.stopped = True

    def drain(self, until):
        """Works until until() says that nothing is left."""
        self.open()
        while not until():
            try:
                jobs = self.take(wait=0.5, limit=100, lease=30)
                if jobs:
                    self.finish_all([job[1] for job in jobs])
                self.take(wait=0, limit=100, pop=True)
            except Lost:
                self.write("lost")
                self.open()
        self.close(True)


def database(dsn):
    return dict(p.split("=", 1) for p in dsn.split())["dbname"].strip("'")


def epoch(timestamp):
    """Of a timestamptz as text; None stays so."""
    if timestamp is None:
        return None
    text = timestamp.replace(" ", "T")
    if text[-3] in "+-":
        text += ":00"
    head, zone = text[:-6], text[-6:]
    if "." in head:
        before, after = head.split(".")
        head = before + "." + (after + "000000")[:6]
    return datetime.datetime.fromisoformat(head + zone).timestamp()


def main(kind, *args):
    worker = kind(*args)
    signal.signal(signal.SIGTERM, worker.stop)
    try:
        worker.main()
    except Stop:
        pass
