#!/usr/bin/python3
"""Random programs of QUEUE statements from several connections, one statement at a time, against a model:
every answer and the final tables have to be those that the model says.

    /usr/bin/python3 test/check/model.py --build DIR --seconds 60
    /usr/bin/python3 test/check/model.py --build DIR --seed 4711          one program

For:     the command line and test/it/queue/test_queue_model.py.
Must not know: how anything is done. What the tables hold is state.py.
Entry points: Program (run), QUIET, linker, one_program, quiet_proxy, main.

Nothing here depends on the clock: what has a time has it an hour from now.
"""

import json
import argparse
import contextlib
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib")]

import psycopg  # noqa: E402

from links import HOW, Driver, Raw, Refused, Stuck  # noqa: E402
from looks import Looks  # noqa: E402
from pgcluster import Cluster  # noqa: E402
from proxy import Proxy, runnable, wait_for  # noqa: E402
from pushes import Pushes  # noqa: E402
from state import Queue, State, Tx, UNFINISHED, token_order  # noqa: E402
from waits import Waits  # noqa: E402

QUIET = {"queue_rescan": "1h"}        # settings of a proxy that does not look of its own accord: who waits has to be told
FAMILIES = (("a", "b", "m"), ("a", "b", "m", "l"), ("l",), ("t",), ("y",))       # one TAKE, one type of payloads
TABLE = """SELECT payload::text, state, priority, attempt, failures, error, coalesce(token LIKE 'x%%', false), key, "group",
    again IS TRUE, headers::text, max_attempts FROM queue.q_{0}
    WHERE NOT (state IN ('ready', 'later', 'blocked') AND expires_at IS NOT NULL AND expires_at <= clock_timestamp())"""
ARCHIVE = """SELECT payload::text, state, attempt, failures, error, key, "group", result::text FROM queue.a_{0}
    WHERE state <> 'expired'"""
MANY = [("DONE", "", []), ("DONE", "", []), ("DONE", " RESULT $%d", ['{"r": 1}']), ("DONE", " RESULT $%d", [None]),
        ("DONE", " RESULT '[null]'", []), ("DONE", " KEEP", []), ("FAIL", " FINAL ERROR $%d", ["broken"]),
        ("FAIL", " RETRY IN '0' ERROR $%d", ["again"]), ("FAIL", " RETRY IN '1 hour'", []), ("RELEASE", "", []),
        ("RELEASE", " DELAY $%d", ["1 hour"]), ("EXTEND", " LEASE '2 hours'", [])]


class Mismatch(AssertionError):
    """The program did something else than the model."""


class Connection:
    def __init__(self, number, link):
        self.number, self.link = number, link
        self.tx = None
        self.held = {}        # token -> n: what it took, as far as it knows


class Program(Pushes, Looks, Waits):
    """connect: makes a link; direct: a psycopg connection to the database past the proxy."""

    families, table = FAMILIES, TABLE
    shown = 60        # of its statements, when something is wrong

    @staticmethod
    def new_state():
        return State([Queue("a"), Queue("b", keeps=True), Queue("m", most=6), Queue("l", running=2), Queue("t", "text"),
                      Queue("y", "bytea", keeps=True)])

    def __init__(self, connect, direct, seed):
        self.connect, self.direct = connect, direct
        self.random = random.Random(seed)
        self.seed = seed
        self.patience = 15        # seconds, until the tables have to be right
        self.state = self.new_state()
        self.names = tuple(self.state.queues)
        self.loose = set()        # queues whose max_length may be exceeded by what was not seen
        self.late = set()         # queues in which something has expired
        self.paused = set()
        self.script = []
        self.connections = []
        self.waiting = []         # (link, n): AWAITs under way
        self.takers = []

    # --- running ----------------------------------------------------------------------------------

    def fail(self, text):
        raise Mismatch("seed %r: %s\nthe last statements:\n%s" % (self.seed, text, "\n".join(self.script[-self.shown:])))

    def run_one(self, c, sql, params=(), how=None):
        """(rows, tag) or the SQLSTATE."""
        how = how or self.random.choice(HOW)
        try:
            got = c.link.run(sql, params, how)
        except Refused as e:
            got = e.code
        except Stuck:
            self.fail("%s gets no answer to %s %r; the sessions are\n%s" % (c.number, sql, params, self.sessions()))
        self.script.append("%s %s: %s %r -> %r" % (c.number, how, sql, params, got))
        return got

    def sessions(self):
        return "\n".join(map(str, self.direct.execute(
            "SELECT pid, pg_blocking_pids(pid), state, wait_event, left(query, 200) FROM pg_stat_activity"
            " WHERE datname = current_database()").fetchall()))

    def expect(self, c, sql, params, *wanted):
        """wanted: SQLSTATEs or (rows, tag). An error fails the transaction."""
        got = self.run_one(c, sql, params)
        if got not in wanted:
            self.fail("wanted %s, got %r" % (" or ".join(map(repr, wanted)), got))
        if isinstance(got, str) and c.tx:
            c.tx.fail()
        return got

    def tx(self, c):
        """The connection's, or one for the statement alone."""
        return c.tx or Tx()

    def end(self, c, tx):
        if tx is not c.tx:
            self.state.commit(tx)

    # --- TAKE and POP -----------------------------------------------------------------------------

    def take(self, c):
        pop = self.random.random() < 0.15
        family = self.random.choice(self.families)
        queues = self.random.sample(family, min(len(family), self.random.choice((1, 1, 2))))
        limit = self.random.choice((1, 1, 2, 5))
        sql = "QUEUE %s %s LIMIT $1" % ("POP" if pop else "TAKE", ", ".join(queues))
        jobs = self.find(c, queues, limit)
        if not pop:
            sql += " LEASE '1 hour'"
        elif any((r.queue, r.group) in tx.held for r in jobs for tx in self.state.open):
            return # it would wait for who has changed the next one of the group
        self.taken(c, jobs, self.run_one(c, sql, [limit]), pop)

    def find(self, _, queues, limit):
        """What a take of this connection finds."""
        return self.state.next_jobs(queues, limit, self.paused)

    def taken(self, c, jobs, got, pop=False):
        """The answer of a take has to be these jobs."""
        s = self.state
        if isinstance(got, str):
            self.fail("wanted %d jobs" % len(jobs))
        rows, tag = got
        seen = [(r["payload"], r["queue"], int(r["attempt"]), int(r["priority"]), r["key"], r["group"], r["headers"])
                for r in rows]
        wanted = [(s.queues[r.queue].payload(r.word), r.queue, r.attempt + 1, r.priority, r.key, r.group,
                   r.headers) for r in jobs]
        if seen != wanted or tag != "SELECT %d" % len(jobs):
            self.fail("wanted %r, got %r %r" % (wanted, seen, tag))
        tx = Tx()
        for job, r in zip(jobs, rows):
            if job.id not in (None, int(r["id"])):
                self.fail("it is job %d" % job.id)
            job = s.change(tx, job)
            job.id = int(r["id"])
            if pop:
                job.attempt += 1
                if r["token"] is not None:
                    self.fail("a token from POP")
                continue
            if r["token"] in s.tokens:
                self.fail("the token was given before")
            s.tokens[r["token"]] = job.n
            c.held[r["token"]] = job.n
            self.begun(tx, job, r["token"])
            if c.tx:
                c.tx.taken.append(r["token"])
        if pop:
            self.state.end(tx, list(tx.changes.values()), "done")
        s.commit(tx)

    def begun(self, _, job, token):
        job.state, job.token = "leased", token
        job.attempt += 1

    # --- what a worker says -----------------------------------------------------------------------

    def some_tokens(self, c, tx):
        """One or two, good or stale; none of which somebody else's transaction has its hand on."""
        s = self.state
        view = s.view(tx)
        untouchable = s.locked(tx) | {s.tokens[t] for other in s.others(tx) for t in other.taken}
        free = [t for t, n in s.tokens.items()
                if n not in untouchable and (n not in view or s.is_free(tx, view[n]))]
        good = [t for t in free if s.lease(view, t) is not None]
        if good and self.random.random() < 0.85:
            return self.random.sample(good, min(len(good), self.random.choice((1, 1, 2))))
        return [self.random.choice(free)] if free else []

    def name(self, c, tx, token):
        """The token, or sometimes the bare id where that is enough."""
        view = self.state.view(tx)
        n = c.held.get(token)
        row = view.get(n)
        if row is None or row.token != token or self.random.random() < 0.7:
            return token
        if self.random.random() < 0.5:
            return "%d-%d" % (self.state.queues[row.queue].number, row.id)
        others = [u for u in c.held.values() if u != n and (u not in view or view[u].id == row.id)]
        return token if others else str(row.id)

    def why_not(self, c, tx, tokens, verb="DONE"):
        """The SQLSTATE with which these jobs cannot be ended, or None; and whether a DONE may be repeated: they were done
        before, and it is not in a transaction."""
        s = self.state
        view = s.view(tx)
        rows = [(token_order(t), s.lease(view, t)) for t in tokens]
        bad = [r for _, r in sorted(rows, key=lambda x: x[0]) if r is None or r.cancelled]
        if not bad:
            return None, False
        return "QB002" if bad[0] else "QB001", not c.tx and all(t in s.done for t in tokens)

    def leased(self, tx, tokens):
        view = self.state.view(tx)
        return [self.state.lease(view, t) for t in sorted(tokens, key=token_order)]

    def finish(self, c):
        tx = self.tx(c)
        tokens = self.some_tokens(c, tx)
        if not tokens:
            return
        verb, more, params = self.random.choice(MANY)
        names = [self.name(c, tx, t) for t in tokens]
        if self.random.random() < 0.2:
            names = ["{%s}" % ", ".join(names)]
            sql = "QUEUE %s ANY($1)" % verb
        else:
            sql = "QUEUE %s %s" % (verb, ", ".join("$%d" % (i + 1) for i in range(len(names))))
        sql += more % (len(names) + 1) if params else more
        code, repeated = self.why_not(c, tx, tokens, verb)
        done = ([], "UPDATE %d" % len(tokens))
        if code:
            # a repeated DONE is not an error, as long as somebody remembers
            self.expect(c, sql, names + params, code, *[done] * (repeated and verb == "DONE"))
            return
        self.expect(c, sql, names + params, done)
        rows = self.leased(tx, tokens)
        if verb == "DONE":
            self.is_done(tx, rows, params[0] if params else "[null]" if "null" in more else None, "KEEP" in more)
        else:
            self.goes_on(tx, rows, verb, more)
        self.end(c, tx)

    def partial(self, c):
        """Some are done, and each is told."""
        if c.tx:
            return
        tx = Tx()
        view = self.state.view(tx)
        tokens = list(dict.fromkeys(t for _ in range(3) for t in self.some_tokens(c, tx)))
        if not tokens:
            return
        rows = [self.state.lease(view, t) for t in tokens]
        got = self.run_one(c, "QUEUE DONE ANY($1) PARTIAL", ["{%s}" % ",".join(tokens)])
        for t, row, told in zip(tokens, rows, got[0]):
            wanted = ("t", None) if row and not row.cancelled else ("f", "QB002" if row else "QB001")
            if (told["ok"][0], told["sqlstate"]) != wanted and not (t in self.state.done and told["ok"][0] == "t"):
                self.fail("wanted %r of %s, got %r" % (wanted, t, told))
        n = sum(r["ok"][0] == "t" for r in got[0])
        if len(got[0]) != len(tokens) or got[1] != "UPDATE %d" % n:
            self.fail("wanted %d rows, got %r" % (len(tokens), got))
        good = sorted(((token_order(t), r) for t, r in zip(tokens, rows) if r and not r.cancelled), key=lambda x: x[0])
        self.is_done(tx, [r for _, r in good], None)
        self.end(c, tx)

    def is_done(self, tx, rows, result, keep=False):
        tx.done.update(r.token for r in rows)
        for queue in self.names:
            mine = [r for r in rows if r.queue == queue]
            self.state.end(tx, [r for r in mine if not r.again], "done", result, keep)
            for row in mine:
                if row.again:
                    row = self.state.change(tx, row)
                    row.state, row.position = "later" if row.delayed else "ready", self.state.place()
                    row.token, row.error, row.again = None, None, False
                    row.attempt = row.failures = 0
                    row.lost = False

    def goes_on(self, tx, rows, verb, more):
        dead = []
        for row in rows:
            row = self.state.change(tx, row)
            if verb == "EXTEND":
                continue
            row.token = None
            if verb == "RELEASE":
                row.attempt -= 1
                row.delayed |= "DELAY" in more        # so it is of one that was replaced by one with a time
                row.state, row.again = "later" if row.delayed else "ready", False
                continue
            row.failures += 1
            row.position = self.state.place()
            row.error = "broken" if "FINAL" in more else "again" if "ERROR" in more else None
            if row.is_last_attempt() or ("FINAL" in more and not row.again):
                dead.append(row)
                row.state, row.died = "dead", row.position
            else:
                row.delayed |= "'0'" not in more
                row.state = "later" if row.delayed else "ready"
            row.again = False
        for row in dead:
            self.state.died(tx, row)

    # --- DONE ... THEN ----------------------------------------------------------------------------

    def begin_then(self, c, tx):
        """(tokens, text, params, result) or None."""
        tokens = self.some_tokens(c, tx)
        if not tokens:
            return None
        params = [self.name(c, tx, t) for t in tokens]
        sql = "QUEUE DONE " + ", ".join("$%d" % (i + 1) for i in range(len(params)))
        result = None
        if self.random.random() < 0.4:
            result = self.random.choice(('{"then": true}', None))
            params.append(result)
            sql += " RESULT $%d" % len(params)
        return tokens, sql, params, result

    def then_push(self, c):
        tx = self.tx(c)
        begun = self.begin_then(c, tx)
        if begun is None:
            return
        tokens, sql, params, result = begun
        p = self.wish(tx)
        if p is None:
            return
        code, repeated = self.why_not(c, tx, tokens)
        text, params = p.sql(self.words(p), params)
        sql = "%s THEN %s" % (sql, text)
        names = list(dict.fromkeys(t.rpartition("-")[0] for t in tokens))
        p.headers = json.dumps({**json.loads(p.headers or "{}"), "parent": names if len(names) > 1 else names[0]})
        if code:
            self.expect(c, sql, params, code, *[([], "INSERT 0 0")] * repeated)
            return
        if not c.tx:
            self.state.open.append(tx)
        before = tx.snapshot()
        self.is_done(tx, self.leased(tx, tokens), result)
        if not self.told(c, tx, p, sql[len("QUEUE "):], params) and not c.tx:
            tx.restore(before)
        if not c.tx:
            self.state.open.remove(tx)

    def then_take(self, c):
        if self.is_awaited(): # who gets what becomes ready by the DONE?
            return
        tx = self.tx(c)
        begun = self.begin_then(c, tx)
        if begun is None:
            return
        tokens, sql, params, result = begun
        family = self.random.choice(self.families)
        queues = self.random.sample(family, min(len(family), self.random.choice((1, 1, 2))))
        limit = self.random.choice((1, 1, 3))
        of_jobs = [self.queue_of(t) for t in tokens]
        how = None
        if (len(set(of_jobs)) == 1 or set(of_jobs) <= set(self.families[0])) and self.random.random() < 0.5:
            queues = list(dict.fromkeys(of_jobs))
            if queues[0] not in self.families[0]:
                how = "simple" # else the columns were told before anybody knows the type
            sql += " THEN TAKE LIMIT %d LEASE '1 hour'" % limit
        else:
            sql += " THEN TAKE %s LIMIT %d LEASE '1 hour'" % (", ".join(queues), limit)
        code, repeated = self.why_not(c, tx, tokens)
        if code:
            got = self.run_one(c, sql, params, how)
            if got == code:
                if c.tx:
                    c.tx.fail()
            elif not repeated:
                self.fail("wanted %s" % code)
            else:
                self.taken(c, self.find(c, queues, limit), got)
            return
        self.is_done(tx, self.leased(tx, tokens), result)
        self.end(c, tx)
        jobs = self.find(c, queues, limit)
        if jobs and not c.tx and self.random.random() < 0.3:
            sql += " WAIT '1 min'"
        self.taken(c, jobs, self.run_one(c, sql, params, how))

    def queue_of(self, token):
        number = token_order(token)[0]
        return next(q.name for q in self.state.queues.values() if q.number == number)

    # --- what others do with jobs -----------------------------------------------------------------

    def references(self, tx, states):
        """Jobs that are not their worker's business alone."""
        return [r for r in self.state.view(tx).values()
                if r.state in states and r.id is not None and not r.is_late() and self.state.is_free(tx, r)]

    def ref(self, row):
        """'<queue number>-<id>', which a token begins with."""
        tokens = [t for t, n in self.state.tokens.items() if n == row.n]
        if tokens and self.random.random() < 0.3:
            return tokens[0]
        return "%d-%d" % (self.state.queues[row.queue].number, row.id)

    def cancel(self, c):
        tx = self.tx(c)
        rows = self.references(tx, UNFINISHED + ("dead",))
        if not rows:
            return
        row = self.random.choice(rows)
        if row.state == "dead":
            self.expect(c, "QUEUE CANCEL $1", [self.ref(row)], "55000")
            return
        by_key = row.key and not row.cancelled and self.random.random() < 0.5
        if by_key:
            self.expect(c, "QUEUE CANCEL KEY $1 ON %s" % row.queue, [row.key], ([], "UPDATE 1"))
        elif self.random.random() < 0.3:
            self.expect(c, "QUEUE CANCEL $1 ON %s" % row.queue, [str(row.id)], ([], "UPDATE 1"))
        else:
            self.expect(c, "QUEUE CANCEL $1", [self.ref(row)], ([], "UPDATE 1"))
        if row.state == "leased":
            row = self.state.change(tx, row)
            row.cancelled, row.key = True, None
        else:
            self.state.end(tx, [row], "cancelled")
        self.end(c, tx)

    def alter(self, c):
        """What waits gets another time, priority or payload."""
        tx = self.tx(c)
        rows = self.references(tx, UNFINISHED + ("dead",))
        if not rows:
            return
        row = self.random.choice(rows)
        what, value = self.random.choice((("at", "now"), ("at", "infinity"), ("priority", self.random.choice(("0", "5", "-1"))),
                                          ("payload", self.state.queues[row.queue].payload("v%d" % row.n))))
        sql, params = "QUEUE ALTER JOB $1 SET (%s = $2)" % what, [self.ref(row), value]
        if row.state in ("leased", "dead") or self.state.is_behind(tx, row):
            self.expect(c, sql, params, "55000")
            return
        self.expect(c, sql, params, ([], "UPDATE 1"))
        row = self.state.change(tx, row)
        if what == "payload":
            row.word = "v%d" % row.n
        else:
            row.position = self.state.place()
        if what == "priority":
            row.priority = int(value)
        elif what == "at":
            row.delayed = value == "infinity"
            if row.state != "blocked":
                row.state = "later" if row.delayed else "ready"
        self.end(c, tx)

    def rerun(self, c):
        tx = self.tx(c)
        rows = self.references(tx, ("ready", "dead", "dead", "dead"))
        if not rows:
            return
        row = self.random.choice(rows)
        if row.state != "dead":
            self.expect(c, "QUEUE RERUN $1", [self.ref(row)], "55000")
            return
        if row.key and self.state.with_key(tx, row.queue, row.key):
            self.expect(c, "QUEUE RERUN $1", [self.ref(row)], "23505")
            return
        self.expect(c, "QUEUE RERUN $1", [self.ref(row)], ([], "UPDATE 1"))
        self.revived(tx, [row])
        self.end(c, tx)

    def revived(self, tx, rows):
        for row in rows:
            self.state.revive(tx, row)
            if self.state.queues[row.queue].most:
                self.loose.add(row.queue)

    def redrive(self, c):
        tx = self.tx(c)
        queue = self.random.choice(self.names)
        all_dead = [r for r in self.state.view(tx).values() if r.queue == queue and r.state == "dead"]
        if not all(self.state.is_free(tx, r) for r in all_dead):
            return
        last = {r.key: r.n for r in sorted(all_dead, key=lambda r: r.n)}
        dead = sorted((r for r in all_dead if r.key is None or (
            last[r.key] == r.n and not self.state.with_key(tx, queue, r.key))), key=lambda r: r.died)
        limit = self.random.choice((None, 1, 2))
        dead = dead[:limit]
        self.expect(c, "QUEUE REDRIVE %s%s" % (queue, "" if limit is None else " LIMIT %d" % limit), [],
                    ([], "UPDATE %d" % len(dead)))
        self.revived(tx, dead)
        self.end(c, tx)

    def purge(self, c):
        tx = self.tx(c)
        if self.state.locked(tx) or self.state.touched_archive(tx): # it waits for them
            return
        queue = self.random.choice(self.names)
        state = self.random.choice(("later", "blocked", "dead", "dead", "done"))
        if state == "done":
            rows = [r for r in self.state.view_kept(tx).values() if r.queue == queue]
            if queue in self.late:
                return
            for row in rows:
                tx.kept[row.n] = None
        else:
            rows = [r for r in self.state.view(tx).values() if r.queue == queue and r.state == state]
            if any(r.is_late() or not self.state.is_free(tx, r) for r in rows):
                return
            self.state.end(tx, rows, "purged")
        self.expect(c, "QUEUE PURGE %s STATE %s" % (queue, state), [], ([], "DELETE %d" % len(rows)))
        self.end(c, tx)

    def pause(self, c):
        if self.state.open:
            return
        queue = self.random.choice(self.names)
        verb = "RESUME" if queue in self.paused else "PAUSE"
        self.expect(c, "QUEUE %s %s" % (verb, queue), [], ([], "ALTER TABLE"))
        self.paused ^= {queue}

    def wrong(self, c):
        sql, params, code = self.random.choice((
            ("QUEUE PUSH nosuch '1'", [], "42P01"), ("QUEUE PUSH a $1", ["no json"], "22P02"),
            ("QUEUE PUSH a", [], "42601"), ("QUEUE PUSH a SELECT nosuch", [], "42703"),
            ("QUEUE DONE $1", ["999-1-0123456789abcdef"], "QB001"), ("QUEUE DONE $1", ["x"], "22023"),
            ("QUEUE DONE $1 THEN PUSH a '1'", ["999-1-0123456789abcdef"], "QB001"),
            ("QUEUE DONE $1 THEN TAKE a", ["999-1-0123456789abcdef"], "QB001"),
            ("QUEUE CANCEL '1-999999'", [], "QB003"), ("QUEUE HISTORY '1-999999'", [], "QB003"),
            ("QUEUE ALTER JOB '1-999999' SET (at = now)", [], "QB003"), ("QUEUE ALTER JOB '1-1' SET (state = dead)", [], "22023"), ("QUEUE TAKE a LIMIT 0", [], "22023"),
            ("QUEUE AWAIT '1-999999'", [], "QB003"), ("QUEUE AWAIT '1-1' ON b", [], "22023"),
            ("QUEUE CANCEL 999999", [], "22023"), ("QUEUE CANCEL ANY($1)", ["{1-1,999999}"], "22023"),
            ("QUEUE CANCEL '1-1' ON b", [], "22023"), ("QUEUE DONE KEY 'nosuch' ON a", [], "22023"),
            ("QUEUE RERUN KEY 'nosuch' ON a", [], "QB003"), ("QUEUE DONE $1 THEN MOVE TO a", ["999-1-0123456789abcdef"], "QB001"),
            ("QUEUE TAKE nosuch", [], "42P01"), ("SELECT 1 / 0", [], "22012")))
        self.expect(c, sql, params, code)

    def own(self, c):
        self.expect(c, "INSERT INTO effects VALUES (1)", [], ([], "INSERT 0 1"))
        tx = self.tx(c)
        tx.effects += 1
        self.end(c, tx)

    # --- transactions -----------------------------------------------------------------------------

    def begin(self, c):
        self.expect(c, "BEGIN", [], ([], "BEGIN"))
        c.tx = Tx(True)
        self.state.open.append(c.tx)

    def savepoint(self, c):
        self.expect(c, "SAVEPOINT s", [], ([], "SAVEPOINT"))
        c.tx.savepoints.append(c.tx.snapshot())
        c.tx.parts = True

    def rollback_to(self, c):
        if not c.tx.savepoints:
            return
        self.expect(c, "ROLLBACK TO s", [], ([], "ROLLBACK"))
        # a lease that was taken since is there all the same
        c.tx.restore(c.tx.savepoints[-1])
        c.tx.failed = False

    def over(self, c):
        tx, c.tx = c.tx, None
        self.state.open.remove(tx)
        return tx

    def commit(self, c):
        self.expect(c, "COMMIT", [], ([], "ROLLBACK" if c.tx.failed else "COMMIT"))
        tx = self.over(c)
        if tx.failed:
            self.rolled_back(tx)
        else:
            self.state.commit(tx)

    def rollback(self, c):
        self.expect(c, "ROLLBACK", [], ([], "ROLLBACK"))
        self.rolled_back(self.over(c))

    def rolled_back(self, tx):
        self.state.give_back(tx.taken, "transaction rolled back")
        if tx.taken:
            self.settle()

    # --- connections ------------------------------------------------------------------------------

    def connection(self, number, raw=False):
        return Connection(number, self.connect(self.random, raw))

    def leave(self, c):
        """Not while somebody's transaction holds what would be given back: that would wait for it."""
        clean = self.random.random() < 0.5
        s, tx = self.state, c.tx
        tokens = (tx.taken if tx else []) if clean else list(c.held)
        for token in tokens:
            row = s.lease(s.rows, token)
            if row is not None and not s.is_free(tx or Tx(True), row):
                return
        self.script.append("%d %s" % (c.number, "leaves" if clean else "breaks"))
        if tx:
            self.over(c)
        (c.link.close if clean else c.link.crash)()
        self.left(c)
        s.give_back(tokens, None if clean else "worker disconnected")
        self.settle()
        if tx:
            self.let_go()
        self.connections[c.number] = self.connection(c.number)

    def left(self, c):
        """Its connection has ended."""

    def let_go(self):
        """Until nothing is locked by a transaction that nobody ends: takes would pass it over."""
        locked = self.state.locked() & set(self.state.rows)
        sql = " UNION ALL ".join("SELECT (SELECT count(*) FROM queue.q_{0}) - (SELECT count(*) FROM"
                                 " (SELECT FROM queue.q_{0} FOR UPDATE SKIP LOCKED) AS free)".format(q) for q in self.names)
        wait_for(lambda: sum(n for (n,) in self.direct.execute(sql).fetchall()) <= len(locked), "what was locked")

    # --- comparing --------------------------------------------------------------------------------

    def tables(self, sql):
        return {q: sorted(map(repr, self.direct.execute(sql.format(q)).fetchall())) for q in self.names}

    def settle(self):
        """Until the tables are as the model says."""
        self.serve()
        self.compare(self.table, [(r, self.seen(r)) for r in self.state.rows.values() if not r.is_late()])
        self.compare(ARCHIVE, [(r, r.kept_as()) for r in self.state.kept.values() if r.state != "expired"])

    @staticmethod
    def seen(row):
        return row.seen()

    def compare(self, sql, rows):
        payload = {q: self.state.queues[q].payload for q in self.names}
        wanted = {q: sorted(repr((payload[q](seen[0]),) + seen[1:]) for r, seen in rows if r.queue == q)
                  for q in self.names}
        try:
            wait_for(lambda: self.tables(sql) == wanted, "the model's tables", self.patience)
        except AssertionError:
            got = self.tables(sql)
            self.fail("\n".join("the table of %s has\n  %s\nwanted\n  %s" % (
                q, "\n  ".join(sorted(set(got[q]) - set(wanted[q]))), "\n  ".join(sorted(set(wanted[q]) - set(got[q]))))
                for q in self.names if got[q] != wanted[q]))

    def step(self):
        c = self.random.choice(self.connections)
        always = self.always()
        if c.tx is None:
            choices = always + [(self.begin, 12)]
        elif c.tx.failed:
            choices = [(self.commit, 1), (self.rollback, 2), (self.rollback_to, 3), (self.refused, 2)]
        else:
            choices = always + [(self.commit, 12), (self.rollback, 8), (self.savepoint, 5), (self.rollback_to, 3)]
        self.random.choices([f for f, _ in choices], [w for _, w in choices])[0](c)
        self.serve()
        self.hear()

    def always(self):
        """What is possible wherever no transaction has failed, and how often."""
        return [(self.push, 22), (self.take, 20), (self.finish, 19), (self.partial, 2), (self.then_push, 5), (self.then_take, 5),
                  (self.cancel, 4), (self.alter, 4), (self.rerun, 4), (self.redrive, 1), (self.purge, 1), (self.pause, 1),
                  (self.stats, 2), (self.peek, 2), (self.job, 2), (self.wait_for_job, 4), (self.look_at_jobs, 2), (self.batch, 3), (self.wrong, 2),
                (self.own, 2), (self.leave, 2), (self.wait, 8), (self.give_up, 1)]

    def refused(self, c):
        self.expect(c, self.random.choice(("QUEUE PUSH a '1'", "QUEUE TAKE a", "QUEUE STATS a", "QUEUE AWAIT '1-1'",
                                           "SELECT 1")), [], "25P02")

    def create(self):
        for queue in self.state.queues.values():
            self.expect(self.connections[0], "QUEUE CREATE %s WITH (%s)" % (queue.name, queue.options()), [],
                        ([], "CREATE TABLE"))
        self.expect(self.connections[0], "CREATE TABLE effects (n int)", [], ([], "CREATE TABLE"))
        for name, number in self.direct.execute("SELECT name, number FROM queue.queues").fetchall():
            self.state.queues[name].number = number

    def run(self, steps, connections=4):
        self.connections = [self.connection(n) for n in range(connections)]
        try:
            self.create()
            for _ in range(steps):
                self.step()
            for c in self.connections * len(self.connections): # one may wait for another
                if c.tx:
                    self.rollback(c)
            self.settle()
            n = self.direct.execute("SELECT count(*) FROM effects").fetchone()[0]
            if n != self.state.effects:
                self.fail("%d rows in the user's table, wanted %d" % (n, self.state.effects))
        finally:
            for link in [x.link for x in self.connections] + [x.c.link for x in self.takers] + \
                    [link for link, _ in self.waiting]:
                link.close()


def linker(proxy, db):
    """Makes connections of both kinds."""
    def connect(rnd, raw=False):
        return Driver(proxy.dsn(db)) if not raw and rnd.random() < 0.4 else Raw(proxy.port, "app", db)

    def wait_parked(*counts):
        def parked():
            states = [r["state"] for r in proxy.console("SHOW WAITERS") if r["database"] == db]
            return (states.count("awaiting"), states.count("parked")) == counts
        wait_for(parked, "%d and %d clients that wait" % counts)
    connect.wait_parked = wait_parked
    return connect


def one_program(pg, proxy, seed, steps, kind=Program, template="template1", patience=15):
    db = pg.createdb(owner="app", template=template)
    try:
        with psycopg.connect(pg.dsn(db), autocommit=True) as direct:
            program = kind(linker(proxy, db), direct, seed)
            program.patience = patience
            program.run(steps)
    finally:
        pg.dropdb(db)


@contextlib.contextmanager
def quiet_proxy(build):
    """A Postgres, and a proxy before it."""
    with Cluster() as pg, runnable(os.path.join(build, "qbouncer")) as program:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE admin LOGIN")
        proxy = Proxy(program, pg, **QUIET)
        try:
            yield pg, proxy.start()
        finally:
            proxy.remove()


def main(kind=Program):
    p = argparse.ArgumentParser(description="Random programs against a model.")
    p.add_argument("--build", default=os.environ.get("QB_BUILD", "."), help="where qbouncer is")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--steps", type=int, default=400, help="statements of a program")
    p.add_argument("--seed", type=int, help="only this program")
    p.add_argument("--shown", type=int, default=kind.shown, help="how many of its last statements are shown when something is wrong")
    a = p.parse_args()
    kind.shown = a.shown
    with quiet_proxy(a.build) as (pg, proxy):
        try:
            seeds = [a.seed] if a.seed is not None else (random.randrange(10 ** 9) for _ in range(10 ** 9))
            until, n = time.monotonic() + a.seconds, 0
            for seed in seeds:
                print("seed %d" % seed, flush=True)
                one_program(pg, proxy, seed, a.steps, kind)
                n += 1
                if time.monotonic() > until:
                    break
            proxy.stop()
            print("%d programs of %d steps: all is well" % (n, a.steps))
        except Mismatch as e:
            print(e)
            sys.exit(1)


if __name__ == "__main__":
    main()
