#!/usr/bin/python3
"""Random programs of QUEUE statements from several connections, one statement at a time, against a model:
every answer and the final tables have to be those that the model says.

    /usr/bin/python3 test/check/model.py --build DIR --seconds 60
    /usr/bin/python3 test/check/model.py --build DIR --seed 4711          one program

For:     the command line and test/it/test_queue_model.py.
Must not know: how anything is done; the model is doc/queue.md in a few lines.
Entry points: Program (run), main.

Nothing here depends on the clock: what has a time has it an hour from now.
"""

import argparse
import copy
import json
import os
import random
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib"), os.path.join(ROOT, "test", "it")]

import psycopg  # noqa: E402

from links import HOW, Driver, Raw, Refused  # noqa: E402
from pgcluster import Cluster  # noqa: E402
from proxy import Proxy, wait_for  # noqa: E402

QUEUES = ("a", "b")
TABLE = ("SELECT payload->>'u', state, priority, attempt, failures, error, coalesce(token LIKE 'x%%', false)"
         " FROM queue.q_%s ORDER BY 1")


class Mismatch(AssertionError):
    """The program did something else than the model."""


class Row:
    """A job as the table holds it."""

    def __init__(self, uid, queue, priority, position, state):
        self.uid, self.queue, self.priority, self.position, self.state = uid, queue, priority, position, state
        self.id = None        # known from the first TAKE on
        self.attempt = self.failures = 0
        self.error = self.token = None
        self.cancelled = False
        self.died = None      # when, among the dead

    def seen(self):
        return (self.uid, self.state, self.priority, self.attempt, self.failures, self.error, self.cancelled)

    def order(self):
        return (-self.priority, self.position)


class Tx:
    """changes: uid -> Row, or None for one that is gone. Rows that are committed and in it are locked."""

    def __init__(self):
        self.changes = {}
        self.savepoints = []
        self.taken = []       # tokens
        self.failed = False
        self.effects = 0      # rows in the user's own table

    def fail(self):
        """Postgres lets go of what was changed since the last savepoint."""
        self.failed = True
        self.changes = dict(self.savepoints[-1][0]) if self.savepoints else {}


class Connection:
    def __init__(self, number, link):
        self.number, self.link = number, link
        self.tx = None
        self.held = {}        # token -> uid: what it took, as far as it knows


class Program:
    """connect: makes a link; direct: a psycopg connection to the database past the proxy."""

    def __init__(self, connect, direct, seed):
        self.connect, self.direct = connect, direct
        self.random = random.Random(seed)
        self.seed = seed
        self.rows = {}            # committed
        self.tokens = {}          # token -> uid, of all times
        self.done = set()         # tokens that were done
        self.effects = 0
        self.paused = set()
        self.n = self.position = 0
        self.script = []
        self.connections = []

    # --- running ----------------------------------------------------------------------------------

    def fail(self, text):
        raise Mismatch("seed %r: %s\nthe last statements:\n%s" % (self.seed, text, "\n".join(self.script[-60:])))

    def run_one(self, c, sql, params=(), how=None):
        """(rows, tag) or the SQLSTATE."""
        how = how or self.random.choice(HOW)
        try:
            got = c.link.run(sql, params, how)
        except Refused as e:
            got = e.code
        self.script.append("%d %s: %s %r -> %r" % (c.number, how, sql, params, got))
        return got

    def expect(self, c, sql, params, wanted):
        """wanted: a SQLSTATE or (rows, tag). An error fails the transaction."""
        got = self.run_one(c, sql, params)
        if got != wanted:
            self.fail("wanted %r, got %r" % (wanted, got))
        if isinstance(got, str) and c.tx:
            c.tx.fail()
        return got

    # --- what a connection sees -------------------------------------------------------------------

    def view(self, c):
        rows = dict(self.rows)
        if c.tx:
            rows.update(c.tx.changes)
        return {uid: r for uid, r in rows.items() if r is not None}

    def locked(self, besides=None):
        """Rows that somebody's open transaction has changed."""
        return {uid for c in self.connections if c.tx and c is not besides for uid in c.tx.changes}

    def change(self, c, row):
        """A copy of the row to be changed, in the transaction or at once."""
        row = copy.copy(row)
        (c.tx.changes if c.tx else self.rows)[row.uid] = row
        return row

    def delete(self, c, row):
        if c.tx and row.uid in self.rows:
            c.tx.changes[row.uid] = None
        elif c.tx:
            del c.tx.changes[row.uid]
        else:
            del self.rows[row.uid]

    def place(self):
        self.position += 1
        return self.position

    # --- statements -------------------------------------------------------------------------------

    def push(self, c):
        queue = self.random.choice(QUEUES)
        n = self.random.choice((1, 1, 2, 3))
        priority = self.random.choice((None, None, 0, 1, 2))
        later = self.random.random() < 0.15
        uids = []
        for _ in range(n):
            self.n += 1
            uids.append("u%d" % self.n)
        payloads = [json.dumps({"u": u}) for u in uids]
        if self.random.random() < 0.2:
            columns = "(payload, priority, delay) " if later or priority is not None else ""
            params = [priority, "1 hour" if later else None] if columns else []
            more = ", $1::int, $2::interval" if columns else ""
            sql = "QUEUE PUSH %s %sSELECT x%s FROM unnest($%d::json[]) AS x" % (queue, columns, more, len(params) + 1)
            params.append("{%s}" % ",".join('"%s"' % p.replace('"', '\\"') for p in payloads))
        else:
            sql = "QUEUE PUSH %s %s" % (queue, ", ".join("$%d" % (i + 1) for i in range(n)))
            params = list(payloads)
            if priority is not None:
                params.append(priority)
                sql += " PRIORITY $%d" % len(params)
            if later:
                sql += " DELAY '1 hour'"
        self.expect(c, sql, params, ([], "INSERT 0 %d" % n))
        for uid in uids:
            row = Row(uid, queue, priority or 0, self.place(), "later" if later else "ready")
            (c.tx.changes if c.tx else self.rows)[uid] = row

    def next_jobs(self, queues, limit):
        """Of what is committed, and not locked."""
        locked, out = self.locked(), []
        for queue in queues:
            if queue not in self.paused:
                ready = [r for r in self.rows.values()
                         if r.queue == queue and r.state == "ready" and r.uid not in locked]
                out += sorted(ready, key=Row.order)[:limit - len(out)]
        return out

    def take(self, c):
        pop = self.random.random() < 0.15
        queues = self.random.sample(QUEUES, self.random.choice((1, 1, 2)))
        limit = self.random.choice((1, 1, 2, 5))
        jobs = self.next_jobs(queues, limit)
        sql = "QUEUE %s %s LIMIT $1" % ("POP" if pop else "TAKE", ", ".join(queues))
        if not pop:
            sql += " LEASE '1 hour'"
        got = self.run_one(c, sql, [limit])
        if isinstance(got, str):
            self.fail("wanted %d jobs" % len(jobs))
        rows, tag = got
        seen = [(json.loads(r["payload"])["u"], r["queue"], int(r["attempt"]), int(r["priority"])) for r in rows]
        wanted = [(r.uid, r.queue, r.attempt + 1, r.priority) for r in jobs]
        if seen != wanted or tag != "SELECT %d" % len(jobs):
            self.fail("wanted %r, got %r %r" % (wanted, seen, tag))
        for job, r in zip(jobs, rows):
            if pop:
                if r["token"] is not None:
                    self.fail("a token from POP")
                del self.rows[job.uid]
                continue
            job = self.rows[job.uid] = copy.copy(job)
            job.id, job.state, job.token = int(r["id"]), "leased", r["token"]
            job.attempt += 1
            if job.token in self.tokens:
                self.fail("the token was given before")
            self.tokens[job.token] = job.uid
            c.held[job.token] = job.uid
            if c.tx:
                c.tx.taken.append(job.token)

    def some_tokens(self, c):
        """One or two, good or stale; none of which somebody else's transaction has its hand on."""
        untouchable = self.locked(besides=c)
        for other in self.connections:
            if other.tx and other is not c:
                untouchable.update(self.tokens[t] for t in other.tx.taken)
        free = [t for t in self.tokens if self.tokens[t] not in untouchable]
        view = self.view(c)
        good = [t for t in free if self.lease(view, t) is not None]
        if good and self.random.random() < 0.85:
            return self.random.sample(good, min(len(good), self.random.choice((1, 1, 2))))
        return [self.random.choice(free)] if free else []

    def lease(self, view, token):
        row = view.get(self.tokens[token])
        return row if row is not None and row.token == token else None

    def name(self, c, token):
        """The token, or sometimes the bare id where that is enough."""
        uid = c.held.get(token)
        row = self.view(c).get(uid)
        if row is None or row.token != token or self.random.random() < 0.7:
            return token
        view = self.view(c)
        others = [u for u in c.held.values() if u != uid and (u not in view or view[u].id == row.id)]
        return token if others else str(row.id)

    def finish(self, c):
        tokens = self.some_tokens(c)
        if not tokens:
            return
        verb, more, params = self.random.choice((
            ("DONE", "", []), ("DONE", "", []), ("DONE", "", []), ("FAIL", " FINAL ERROR $%d", ["broken"]),
            ("FAIL", " RETRY IN '0' ERROR $%d", ["again"]), ("FAIL", " RETRY IN '1 hour'", []), ("RELEASE", "", []),
            ("RELEASE", " DELAY $%d", ["1 hour"]), ("EXTEND", " LEASE '2 hours'", [])))
        names = [self.name(c, t) for t in tokens]
        sql = "QUEUE %s %s" % (verb, ", ".join("$%d" % (i + 1) for i in range(len(names))))
        sql += more % (len(names) + 1) if params else more
        view = self.view(c)
        rows = [self.lease(view, t) for t in tokens]
        params = names + params
        if all(r is not None and not r.cancelled for r in rows):
            self.expect(c, sql, params, ([], "UPDATE %d" % len(rows)))
            for row in sorted(rows, key=lambda r: (r.queue, r.id)):
                self.finished(c, row, verb, more)
            return
        got = self.run_one(c, sql, params)
        if verb == "DONE" and all(t in self.done for t in tokens) and got == ([], "UPDATE %d" % len(rows)):
            return # a repeated DONE is not an error, as long as somebody remembers
        first = next(r for r in sorted(zip(rows, tokens), key=lambda x: self.token_order(x[1]))
                     if r[0] is None or r[0].cancelled)[0]
        wanted = "QB001" if first is None else "QB002"
        if got != wanted:
            self.fail("wanted %s, got %r" % (wanted, got))
        if c.tx:
            c.tx.fail()

    @staticmethod
    def token_order(token):
        number, job, _ = token.split("-")
        return int(number), int(job)

    def finished(self, c, row, verb, more):
        if verb == "EXTEND":
            self.change(c, row)
            return
        if verb == "DONE":
            self.done.add(row.token)
            self.delete(c, row)
            return
        row = self.change(c, row)
        row.token = None
        if verb == "RELEASE":
            row.attempt -= 1
            row.state = "later" if "DELAY" in more else "ready"
            return
        row.failures += 1
        row.position = self.place()
        row.error = "broken" if "FINAL" in more else "again" if "ERROR" in more else None
        row.state = "dead" if "FINAL" in more else "later" if "hour" in more else "ready"
        row.died = row.position

    def references(self, c, states):
        """Jobs that are not their worker's business alone: '<queue number>-<id>', which a token begins with."""
        untouchable = self.locked(besides=c)
        for other in self.connections:
            if other.tx and other is not c:
                untouchable.update(self.tokens[t] for t in other.tx.taken)
        return [r for r in self.view(c).values()
                if r.state in states and r.id is not None and r.uid not in untouchable]

    def ref(self, row):
        token = next(t for t, uid in self.tokens.items() if uid == row.uid)
        return token if self.random.random() < 0.3 else token.rsplit("-", 1)[0]

    def cancel(self, c):
        rows = self.references(c, ("ready", "later", "leased", "dead"))
        if not rows:
            return
        row = self.random.choice(rows)
        if row.state == "dead":
            self.expect(c, "QUEUE CANCEL $1", [self.ref(row)], "55000")
            return
        self.expect(c, "QUEUE CANCEL $1", [self.ref(row)], ([], "UPDATE 1"))
        if row.state == "leased":
            self.change(c, row).cancelled = True
        else:
            self.delete(c, row)

    def rerun(self, c):
        rows = self.references(c, ("ready", "dead", "dead", "dead"))
        if not rows:
            return
        row = self.random.choice(rows)
        if row.state != "dead":
            self.expect(c, "QUEUE RERUN $1", [self.ref(row)], "55000")
            return
        self.expect(c, "QUEUE RERUN $1", [self.ref(row)], ([], "UPDATE 1"))
        self.revive(self.change(c, row))

    def revive(self, row):
        row.state, row.position, row.attempt, row.failures = "ready", self.place(), 0, 0

    def redrive(self, c):
        queue = self.random.choice(QUEUES)
        locked = self.locked(besides=c)
        dead = sorted((r for r in self.view(c).values()
                       if r.queue == queue and r.state == "dead" and r.uid not in locked), key=lambda r: r.died)
        limit = self.random.choice((None, 1, 2))
        dead = dead[:limit]
        self.expect(c, "QUEUE REDRIVE %s%s" % (queue, "" if limit is None else " LIMIT %d" % limit), [],
                    ([], "UPDATE %d" % len(dead)))
        for row in dead:
            self.revive(self.change(c, row))

    def purge(self, c):
        if self.locked(besides=c): # it waits for them
            return
        queue = self.random.choice(QUEUES)
        state = self.random.choice(("later", "dead", "dead"))
        rows = [r for r in self.view(c).values() if r.queue == queue and r.state == state]
        self.expect(c, "QUEUE PURGE %s STATE %s" % (queue, state), [], ([], "DELETE %d" % len(rows)))
        for row in rows:
            self.delete(c, row)

    def pause(self, c):
        if c.tx or any(other.tx for other in self.connections):
            return
        queue = self.random.choice(QUEUES)
        verb = "RESUME" if queue in self.paused else "PAUSE"
        self.expect(c, "QUEUE %s %s" % (verb, queue), [], ([], "ALTER TABLE"))
        self.paused ^= {queue}

    def stats(self, c):
        queue = self.random.choice(QUEUES)
        got = self.run_one(c, "QUEUE STATS %s" % queue)
        rows = [r for r in self.view(c).values() if r.queue == queue]
        wanted = {s: str(sum(r.state == s for r in rows)) for s in ("ready", "later", "leased", "dead")}
        if isinstance(got, str) or {s: got[0][0][s] for s in wanted} != wanted:
            self.fail("wanted %r" % wanted)

    def peek(self, c):
        queue = self.random.choice(QUEUES)
        got = self.run_one(c, "QUEUE PEEK %s LIMIT $1 STATE ready" % queue, [1000])
        ready = sorted((r for r in self.view(c).values() if r.queue == queue and r.state == "ready"), key=Row.order)
        if isinstance(got, str) or [json.loads(r["payload"])["u"] for r in got[0]] != [r.uid for r in ready]:
            self.fail("wanted %r" % [r.uid for r in ready])

    def wrong(self, c):
        sql, params, code = self.random.choice((
            ("QUEUE PUSH nosuch '1'", [], "42P01"), ("QUEUE PUSH a $1", ["no json"], "22P02"),
            ("QUEUE PUSH a", [], "42601"), ("QUEUE PUSH a SELECT nosuch", [], "42703"),
            ("QUEUE DONE $1", ["999-1-0123456789abcdef"], "QB001"), ("QUEUE DONE $1", ["x"], "22023"),
            ("QUEUE CANCEL '1-999999'", [], "QB003"), ("QUEUE TAKE a LIMIT 0", [], "22023"),
            ("QUEUE TAKE nosuch", [], "42P01"), ("SELECT 1 / 0", [], "22012")))
        self.expect(c, sql, params, code)

    def own(self, c):
        self.expect(c, "INSERT INTO effects VALUES (1)", [], ([], "INSERT 0 1"))
        if c.tx:
            c.tx.effects += 1
        else:
            self.effects += 1

    # --- transactions -----------------------------------------------------------------------------

    def begin(self, c):
        self.expect(c, "BEGIN", [], ([], "BEGIN"))
        c.tx = Tx()

    def savepoint(self, c):
        self.expect(c, "SAVEPOINT s", [], ([], "SAVEPOINT"))
        c.tx.savepoints.append((dict(c.tx.changes), c.tx.effects))

    def rollback_to(self, c):
        if not c.tx.savepoints:
            return
        self.expect(c, "ROLLBACK TO s", [], ([], "ROLLBACK"))
        changes, c.tx.effects = c.tx.savepoints[-1]
        # a lease that was taken since is there all the same
        c.tx.changes = dict(changes)
        c.tx.failed = False

    def commit(self, c):
        tx, failed = c.tx, c.tx.failed
        self.expect(c, "COMMIT", [], ([], "ROLLBACK" if failed else "COMMIT"))
        c.tx = None
        if failed:
            self.rolled_back(tx)
            return
        for uid, row in tx.changes.items():
            if row is not None:
                self.rows[uid] = row
            else:
                self.rows.pop(uid, None)
        self.effects += tx.effects

    def rollback(self, c):
        tx = c.tx
        self.expect(c, "ROLLBACK", [], ([], "ROLLBACK"))
        c.tx = None
        self.rolled_back(tx)

    def rolled_back(self, tx):
        self.give_back(tx.taken, "transaction rolled back")
        if tx.taken:
            self.settle()

    def give_back(self, tokens, error):
        for token in tokens:
            row = self.lease(self.rows, token)
            if row is None:
                continue
            if row.cancelled:
                del self.rows[row.uid]
                continue
            row = self.rows[row.uid] = copy.copy(row)
            row.state, row.token, row.error = "ready", None, error
            row.failures += 1

    # --- connections ------------------------------------------------------------------------------

    def leave(self, c):
        """Not while somebody's transaction holds what would be given back: that would wait for it."""
        clean = self.random.random() < 0.5
        tokens = (c.tx.taken if c.tx else []) if clean else list(c.held)
        others = self.locked(besides=c)
        if any(self.tokens[t] in others for t in tokens):
            return
        self.script.append("%d %s" % (c.number, "leaves" if clean else "breaks"))
        tx, c.tx = c.tx, None
        (c.link.close if clean else c.link.crash)()
        del tx
        self.give_back(tokens, "worker disconnected")
        self.settle()
        self.connections[c.number] = Connection(c.number, self.connect(self.random))

    # --- comparing --------------------------------------------------------------------------------

    def table(self):
        return {q: [tuple(r) for r in self.direct.execute(TABLE % q).fetchall()] for q in QUEUES}

    def settle(self):
        """Until the tables are as the model says."""
        wanted = {q: sorted(r.seen() for r in self.rows.values() if r.queue == q) for q in QUEUES}
        try:
            wait_for(lambda: {q: sorted(rows) for q, rows in self.table().items()} == wanted, "the model's tables")
        except AssertionError:
            self.fail("the tables are\n%r, wanted\n%r" % (self.table(), wanted))

    def step(self):
        c = self.random.choice(self.connections)
        always = [(self.push, 22), (self.take, 22), (self.finish, 25), (self.cancel, 3), (self.rerun, 3),
                  (self.redrive, 1), (self.purge, 1), (self.pause, 1), (self.stats, 2), (self.peek, 2),
                  (self.wrong, 2), (self.own, 2), (self.leave, 2)]
        if c.tx is None:
            choices = always + [(self.begin, 12)]
        elif c.tx.failed:
            choices = [(self.commit, 1), (self.rollback, 2), (self.rollback_to, 3), (self.refused, 2)]
        else:
            choices = always + [(self.commit, 12), (self.rollback, 8), (self.savepoint, 5), (self.rollback_to, 3)]
        self.random.choices([f for f, _ in choices], [w for _, w in choices])[0](c)

    def refused(self, c):
        self.expect(c, self.random.choice(("QUEUE PUSH a '1'", "QUEUE TAKE a", "QUEUE STATS a", "SELECT 1")), [],
                    "25P02")

    def run(self, steps, connections=4):
        self.connections = [Connection(n, self.connect(self.random)) for n in range(connections)]
        try:
            for sql in ("QUEUE CREATE a WITH (max_attempts = 1000)", "QUEUE CREATE b WITH (max_attempts = 1000)",
                        "CREATE TABLE effects (n int)"):
                self.run_one(self.connections[0], sql, how="simple")
            for _ in range(steps):
                self.step()
            for c in self.connections:
                if c.tx:
                    self.rollback(c)
            self.settle()
            n = self.direct.execute("SELECT count(*) FROM effects").fetchone()[0]
            if n != self.effects:
                self.fail("%d rows in the user's table, wanted %d" % (n, self.effects))
        finally:
            for c in self.connections:
                c.link.close()


def linker(proxy, db):
    """Makes connections of both kinds."""
    def connect(rnd):
        return Driver(proxy.dsn(db)) if rnd.random() < 0.4 else Raw(proxy.port, "app", db)
    return connect


def one_program(pg, proxy, seed, steps):
    db = pg.createdb(owner="app")
    try:
        with psycopg.connect(pg.dsn(db), autocommit=True) as direct:
            Program(linker(proxy, db), direct, seed).run(steps)
    finally:
        pg.dropdb(db)


def main():
    p = argparse.ArgumentParser(description="Random programs against a model.")
    p.add_argument("--build", default=os.environ.get("QB_BUILD", "."), help="where qbouncer is")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--steps", type=int, default=400, help="statements of a program")
    p.add_argument("--seed", type=int, help="only this program")
    a = p.parse_args()
    with Cluster() as pg:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE admin LOGIN")
        folder = tempfile.mkdtemp(prefix="qbbin", dir="/tmp")
        os.chmod(folder, 0o755)
        proxy = Proxy(shutil.copy(os.path.join(a.build, "qbouncer"), folder), pg)
        try:
            proxy.start()
            seeds = [a.seed] if a.seed is not None else (random.randrange(10 ** 9) for _ in range(10 ** 9))
            until, n = time.monotonic() + a.seconds, 0
            for seed in seeds:
                print("seed %d" % seed, flush=True)
                one_program(pg, proxy, seed, a.steps)
                n += 1
                if time.monotonic() > until:
                    break
            proxy.stop()
            print("%d programs of %d steps: all is well" % (n, a.steps))
        except Mismatch as e:
            print(e)
            sys.exit(1)
        finally:
            proxy.remove()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
