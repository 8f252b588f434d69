"""The model of what is between jobs: AFTER, GROUPED, single_consumer, dead_queue, THEN MOVE; and RANK, PAUSE ... PUSH and
AWAIT BATCH ... WAIT. Programs of a family of their own, so that those of the first one stay as they are.

For:     model.py and test/it/queue/test_queue_model.py.
Must not know: how anything is done.
Entry points: Ordered, a kind of model.Program; OrderedState.
"""

import copy
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "test", "lib")]

from links import Refused, Stuck
from model import TABLE, Program, main
from proxy import wait_for
from state import ACTIVE, Queue, Row, State, Tx, token_order
from waits import Taker

SINGLE, DYING, MORGUE = "s", "d", "e"


def jsonb(value):
    """As Postgres writes it: the shorter names first."""
    if isinstance(value, dict):
        return {k: jsonb(value[k]) for k in sorted(value, key=lambda k: (len(k.encode()), k.encode()))}
    return value


class OrderedState(State):
    """consumer: the connection that SINGLE belongs to. no_pushes: queues."""

    def __init__(self):
        super().__init__([Queue("a"), Queue("b", keeps=True), Queue("l", running=3), Queue("t", "text"), Queue(SINGLE), Queue(MORGUE),
                          Queue(DYING, keeps=True)])
        self.queues[DYING].more = ", dead_queue = %s" % MORGUE
        self.queues[SINGLE].more = ", single_consumer = true"
        self.consumer = None
        self.no_pushes = set()

    # --- who hangs together with whom -------------------------------------------------------------

    def everybody(self):
        rows = dict(self.rows)
        for t in self.open:
            rows.update((n, r) for n, r in t.changes.items() if r is not None)
        return rows

    def linked(self, row):
        """Those that it waits for, those that wait for it, and on from there."""
        rows, edges = self.everybody(), {}
        for r in rows.values():
            for n, _ in r.behind:
                edges.setdefault(r.n, set()).add(n)
                edges.setdefault(n, set()).add(r.n)
        found, new = {row.n}, [row.n]
        while new:
            more = edges.get(new.pop(), set()) - found
            found |= more
            new += more
        return [rows[n] for n in sorted(found - {row.n}) if n in rows]

    def is_free(self, tx, row, as_active=True):
        if not super().is_free(tx, row, as_active):
            return False
        for other in [row] + self.linked(row):
            if other is not row and not super().is_free(tx, other, other.state != "ready"):
                return False
            group = (other.queue, other.later)
            if other.later and any(group in t.held or group in t.queued for t in self.others(tx)):
                return False
        return True

    # --- AFTER ------------------------------------------------------------------------------------

    def name(self, row):
        return "%d-%d" % (self.queues[row.queue].number, row.id)

    def followers(self, tx, n):
        rows = [r for r in self.view(tx).values() if n in [b for b, _ in r.behind]]
        return sorted(rows, key=lambda r: (self.queues[r.queue].number, r.n))

    def end(self, tx, rows, how, result=None, keep=False):
        for row in rows:
            if how == "cancelled" and row.state == "blocked":
                self.unlink(tx, row)
        super().end(tx, rows, how, result, keep)

    def ended(self, tx, row, how):
        if row.state != "dead":
            self.followed(tx, row, how, None, (row.queue, row.group) if row.state in ACTIVE else None)
        if row.group and row.state in ACTIVE:
            self.next(tx, row.queue, row.group, row.token if how == "done" else None)

    def died(self, tx, row):
        self.buried(tx, row)
        self.followed(tx, row, "dead", row.error)
        if row.group:
            self.next(tx, row.queue, row.group)

    def followed(self, tx, first, how, error=None, group=None):
        """Those that wait for it go on, or they die, and those behind them. group: whose next one the caller lets go."""
        line = [(first, how, error)]
        while line:
            one, how, error = line.pop(0)
            for row in self.followers(tx, one.n):
                if how == "done":
                    self.waits_for(tx, row, [b for b in row.behind if b[0] != one.n], group)
                elif row.state == "blocked":
                    line.append(self.dies_with(tx, row, one, how, error))

    def waits_for(self, tx, row, rest, group=None):
        """For no others any more."""
        row = self.change(tx, row)
        row.behind = tuple(rest)
        if rest:
            return
        row.group, row.later = row.later, None
        if row.state != "blocked":
            return
        row.position = self.place()
        if row.group is None:
            row.state = "later" if row.delayed else "ready"
            return
        self.lock(tx, row)
        tx.blocked.append((row.queue, row.group))
        if (row.queue, row.group) != group:
            self.next(tx, row.queue, row.group)

    def dies_with(self, tx, row, one, how, error):
        row = self.change(tx, row)
        row.error = "job %s, which it waited for, %s" % (self.name(one), {
            "dead": "is dead" + (": " + error[:1000] if error else ""), "expired": "has expired"}.get(how, "was " + how))
        row.failures += 1
        row.state, row.died = "dead", self.place()
        self.buried(tx, row)
        return row, "dead", row.error

    def buried(self, tx, row):
        """It is pushed to the dead_queue."""
        if row.queue != DYING or MORGUE in self.no_pushes or tx.changes.get(row.n) is None:
            return
        tx.changes[row.n] = None
        tx.ended[row.n] = "dead"
        kept = tx.kept[row.n] = copy.copy(row)
        kept.state = "dead"
        self.n += 1
        new = Row(self.n, MORGUE, row.priority, self.place(), "ready")
        new.word = row.word
        said = {"queue": row.queue, "error": row.error, "attempts": row.attempt, "key": row.key, "group": row.group or row.later}
        new.headers = json.dumps(jsonb(dict(json.loads(row.headers or "{}"), parent=self.name(row),
                                            dead=jsonb({k: v for k, v in said.items() if v is not None}))))
        self.insert(tx, new)

    def revive(self, tx, row):
        super().revive(tx, row)
        row = tx.changes[row.n]
        if row.behind:
            row.state = "blocked"
            tx.looks.append(row.n)

    def commit(self, tx):
        for n in tx.looks:
            row = self.view(tx).get(n)
            for b in row.behind if row is not None and row.state == "blocked" else ():
                row, one = self.view(tx).get(n), self.view(tx).get(b[0])
                if row is not None and one is None:
                    self.waits_for(tx, row, [x for x in row.behind if x != b])
                elif row is not None and row.state == "blocked" and one.state == "dead":
                    self.followed(tx, *self.dies_with(tx, row, one, "dead", one.error))
        super().commit(tx)

    # --- GROUPED ----------------------------------------------------------------------------------

    def lots(self, rows, queue, group):
        """The numbers of those of a group that are behind its first, without a gap."""
        of = sorted((r for r in rows.values() if r is not None and (r.queue, r.group) == (queue, group)), key=lambda r: r.n)
        first = next((r for r in of if r.state in ACTIVE), None)
        last = first.token if first is not None and first.state == "leased" and not first.cancelled else None
        out = []
        for r in of:
            if r.state == "blocked":
                if last is None or r.lot is None or r.lot[1] != last:
                    break
                last = r.lot[0]
                out.append(r.n)
        return out

    def in_lot(self, rows, row):
        return row.group is not None and row.lot is not None and row.state == "blocked" and \
            row.n in self.lots(rows, row.queue, row.group)

    def is_behind(self, tx, row):
        return self.in_lot(self.view(tx), row)

    def lease(self, rows, token):
        row = rows.get(self.tokens[token])
        if row is None or row.token == token:
            return row
        return row if row.lot is not None and row.lot[0] == token and self.in_lot(rows, row) else None

    def next(self, tx, queue, group, done=None):
        blocked = self.of_group(tx, queue, group, ("blocked",))
        if not blocked or self.of_group(tx, queue, group, ACTIVE):
            return
        row = self.change(tx, blocked[0])
        row.position = self.place()
        if row.lot is not None and done is not None and row.lot[1] == done:
            row.state, row.token = "leased", row.lot[0]
            row.attempt += 1
        else:
            row.state = "later" if row.delayed else "ready"
        row.lot = None

    def unlink(self, tx, row):
        """One of a lot is taken out of it."""
        if self.is_behind(tx, row):
            for other in self.of_group(tx, row.queue, row.group, ("blocked",)):
                if other.lot is not None and other.lot[1] == row.lot[0]:
                    self.change(tx, other).lot = (other.lot[0], row.lot[1])

    def room(self, queue):
        most = self.queues[queue].running
        if not most:
            return super().room(queue)
        groups = {r.group for r in self.rows.values() if r.queue == queue and r.group}
        return max(0, super().room(queue) - sum(len(self.lots(self.rows, queue, g)) for g in groups))

    def next_lots(self, queues, limit, paused):
        """(jobs, n -> the one in front of it)."""
        locked, out, fronts = self.locked(), [], {}
        for queue in queues:
            if queue in paused or len(out) >= limit:
                continue
            self.drop_late(queue)
            most = len(out) + min(limit - len(out), self.room(queue))
            ready = [r for r in self.rows.values() if r.queue == queue and r.state == "ready" and r.n not in locked]
            for head in sorted(ready, key=Row.order):
                if len(out) >= most:
                    break
                out.append(head)
                line = [r for r in self.rows.values() if (r.queue, r.group, r.state) == (queue, head.group, "blocked")]
                for r in sorted(line, key=lambda r: r.n) if head.group else ():
                    if len(out) >= most or r.n in locked or r.delayed or r.is_late():
                        break
                    fronts[r.n] = out[-1].n
                    out.append(r)
        return out, fronts


class Ordered(Program):
    families = (("a", "b", MORGUE, DYING), ("a", "b", "l"), ("l",), ("t",), (SINGLE,))
    table = TABLE.replace("max_attempts FROM", "max_attempts, array_to_string(behind, ',') FROM")
    assert table != TABLE

    def __init__(self, *args):
        super().__init__(*args)
        self.fronts = {}        # of the take under way
        self.batches = []       # (link, queue, batch): AWAIT BATCH under way

    @staticmethod
    def new_state():
        return OrderedState()

    @staticmethod
    def seen(row):
        behind = (["=" + row.later] if row.later else []) + [name for _, name in row.behind]
        return row.seen() + (",".join(behind) if behind else None,)

    def always(self):
        out = [(f, n) for f, n in super().always()]
        return out + [(self.push_after, 14), (self.push_group, 8), (self.take_grouped, 14), (self.take_single, 4), (self.then_move, 4),
                      (self.wait_for_batch, 2)]

    # --- TAKE -------------------------------------------------------------------------------------

    def find(self, c, queues, limit, grouped=False):
        self.fronts = {}
        if queues == [SINGLE]:
            if self.state.consumer is None:
                self.state.consumer = c
            if self.state.consumer is not c:
                return []
        if not grouped:
            return self.state.next_jobs(queues, limit, self.paused)
        jobs, self.fronts = self.state.next_lots(queues, limit, self.paused)
        return jobs

    def begun(self, tx, job, token):
        if job.n in self.fronts:
            front = tx.changes[self.fronts[job.n]]
            job.lot = (token, front.lot[0] if front.lot is not None else front.token)
        else:
            super().begun(tx, job, token)
            job.lot = None

    def take_one(self, c, verb, queues, limit, more="", grouped=False):
        before = self.state.consumer
        jobs = self.find(c, queues, limit, grouped)
        if verb == "POP" and any(r.group or self.state.linked(r) for r in jobs):
            limit, jobs = 1, jobs[:1] # it would find those, too, that go on by its ends
        if verb == "POP" and not all(self.state.is_free(Tx(), r) for r in jobs):
            self.state.consumer = before # it would wait for who has changed what goes on then
            return
        sql = "QUEUE %s %s%s LIMIT $1%s" % (verb, ", ".join(queues), " GROUPED" if grouped else "", more)
        self.taken(c, jobs, self.run_one(c, sql, [limit]), verb == "POP")

    def take(self, c):
        family = self.random.choice(self.families)
        queues = self.random.sample(family, min(len(family), self.random.choice((1, 1, 2))))
        rank = self.random.choice(("", "", " RANK 3", " RANK -1"))
        verb = "POP" if self.random.random() < 0.1 else "TAKE"
        self.take_one(c, verb, queues, self.random.choice((1, 1, 2, 5)), rank + (" LEASE '1 hour'" if verb == "TAKE" else ""))

    def take_grouped(self, c):
        family = self.random.choice(self.families)
        queues = self.random.sample(family, min(len(family), self.random.choice((1, 1, 2))))
        self.take_one(c, "TAKE", queues, self.random.choice((2, 3, 5, 10)), " LEASE '1 hour'", True)

    def take_single(self, c):
        self.take_one(c, "TAKE", [SINGLE], self.random.choice((1, 2, 5)), " LEASE '1 hour'", self.random.random() < 0.5)

    # --- a single consumer ------------------------------------------------------------------------

    def consumer_token(self):
        number = self.state.queues[SINGLE].number
        return self.direct.execute("SELECT token FROM queue.n%d_consumer" % number).fetchone()[0]

    def left(self, c):
        """The next one follows that waits."""
        if self.state.consumer is c:
            self.state.consumer = next((t.c for t in self.takers if t.queue == SINGLE), None)
            self.wait_for(lambda: self.consumer_token() not in (self.token,), "the consumer to be gone")
            if self.state.consumer is not None:
                self.wait_for(lambda: self.consumer_token() is not None, "the next one to follow")
        self.note_consumer()

    def wait_for(self, condition, what):
        try:
            wait_for(condition, what, self.patience)
        except AssertionError as e:
            self.fail(str(e))

    def note_consumer(self):
        self.token = self.consumer_token()
        if (self.token is None) != (self.state.consumer is None):
            self.fail("the consumer is %r, wanted %r" % (self.token, self.state.consumer and self.state.consumer.number))

    # --- what a worker says -----------------------------------------------------------------------

    def chain(self, view, tokens):
        """Those of these jobs, in their order, that a DONE of all of them can end; and all of them."""
        rows = [(t, self.state.lease(view, t)) for t in sorted(tokens, key=token_order)]
        held = [(t, row) for t, row in rows if row is not None and not row.cancelled]
        done, ok, last = set(), set(), -1
        while len(ok) > last: # one that was run again has a lower number than the one in front of it
            last = len(ok)
            ok |= {t for t, row in held if row.token == t or row.lot[1] in done}
            done |= {t for t, row in held if t in ok and not row.again}
        return [t for t, _ in rows if t in ok], rows

    def why_not(self, c, tx, tokens, verb="DONE"):
        code, repeated = super().why_not(c, tx, tokens)
        if verb != "DONE":
            return code, repeated
        ok, rows = self.chain(self.state.view(tx), tokens)
        for queue in dict.fromkeys(token_order(t)[0] for t, _ in rows):
            for t, row in rows:
                if token_order(t)[0] == queue and t not in ok:
                    if row is None or row.cancelled:
                        return "QB002" if row else "QB001", repeated
                    again = any(r is not None and r.again and r.group == row.group for _, r in rows)
                    return "QB001" if again else "55000", False
        return code, repeated

    def is_done(self, tx, rows, result, keep=False):
        """Of a lot one makes the next one leased."""
        tokens = [r.token or r.lot[0] for r in rows]
        while tokens:
            view = self.state.view(tx)
            now = [view[self.state.tokens[t]] for t in tokens]
            some = [r for r in now if r.token in tokens]
            if not some:
                self.fail("the model does not know how to end %r" % tokens)
            super().is_done(tx, some, result, keep)
            tokens = [t for t in tokens if t not in [r.token for r in some]]

    def goes_on(self, tx, rows, verb, more):
        if verb == "EXTEND":
            super().goes_on(tx, rows, verb, more)
            return
        for queue in self.names:
            mine = [r for r in rows if r.queue == queue]
            super().goes_on(tx, [r for r in mine if r.token is not None], verb, more)
            dead = []
            for row in [r for r in mine if r.token is None]:
                row = self.state.change(tx, self.state.view(tx)[row.n])
                row.lot = None
                if verb == "RELEASE":
                    row.delayed |= "DELAY" in more
                    continue
                row.attempt += 1
                row.failures += 1
                row.position = self.state.place()
                row.error = "broken" if "FINAL" in more else "again" if "ERROR" in more else None
                if row.is_last_attempt() or "FINAL" in more:
                    dead.append(row)
                    row.state, row.died = "dead", row.position
                else:
                    row.delayed = "'0'" not in more
                    if row.state != "blocked":
                        row.state = "later" if row.delayed else "ready"
            for row in dead:
                self.state.died(tx, row)

    def partial(self, c):
        if c.tx:
            return
        tx = Tx()
        view = self.state.view(tx)
        tokens = list(dict.fromkeys(t for _ in range(3) for t in self.some_tokens(c, tx)))
        if not tokens:
            return
        ok, rows = self.chain(view, tokens)
        rows = dict(rows)
        got = self.run_one(c, "QUEUE DONE ANY($1) PARTIAL", ["{%s}" % ",".join(tokens)])
        if isinstance(got, str):
            self.fail("wanted rows")
        for t, told in zip(tokens, got[0]):
            row = rows[t]
            wanted = ("t", None) if t in ok else ("f", "QB002" if row and row.cancelled else "QB001")
            if (told["ok"][0], told["sqlstate"]) != wanted and not (t in self.state.done and told["ok"][0] == "t"):
                self.fail("wanted %r of %s, got %r" % (wanted, t, told))
        n = sum(r["ok"][0] == "t" for r in got[0])
        if len(got[0]) != len(tokens) or got[1] != "UPDATE %d" % n:
            self.fail("wanted %d rows, got %r" % (len(tokens), got))
        self.is_done(tx, [rows[t] for t in ok], None)
        self.end(c, tx)

    def then_move(self, c):
        tx = self.tx(c)
        begun = self.begin_then(c, tx)
        if begun is None:
            return
        tokens, sql, params, result = begun
        view = self.state.view(tx)
        kinds = {self.state.queues[self.queue_of(t)].kind for t in tokens}
        target = self.random.choice(("a", "b", SINGLE, MORGUE) if kinds == {"jsonb"} else ("t",))
        p = self.wish(tx, target)
        if p is None or len(kinds) > 1 or p.policy in ("REPLACE", "RERUN") or (p.key and len(tokens) > 1):
            return
        p.n, p.batch = 1, None

        def value(v):
            params.append(v)
            return "$%d" % len(params)
        sql = "%s THEN MOVE TO %s%s" % (sql, target, p.options(value))
        current = [self.state.lease(view, t) for t in tokens]
        if any(r is not None and r.again and not r.cancelled for r in current):
            self.expect(c, sql, params, "55000")
            return
        code, repeated = self.why_not(c, tx, tokens)
        if code:
            self.expect(c, sql, params, code, *[([], "INSERT 0 0")] * repeated)
            return
        before = tx.snapshot()
        if not c.tx:
            self.state.open.append(tx)
        said = p.headers
        moved = []
        self.is_done(tx, self.leased(tx, tokens), result)
        for row in current:
            p.headers = json.dumps(jsonb(dict(json.loads(row.headers or "{}"), parent=self.state.name(row), **json.loads(said or "{}"))))
            one = self.pushed(tx, p)
            if isinstance(one, str):
                moved = one
                break
            if one[0] is not None and one[0] in tx.changes.values() and one[0].headers == p.headers:
                one[0].word = row.word
            moved += one
        got = self.run_one(c, sql, params)
        if not c.tx:
            self.state.open.remove(tx)
        if isinstance(moved, str):
            if got != moved:
                self.fail("wanted %s" % moved)
            tx.restore(before)
            if c.tx:
                c.tx.fail()
            return
        moved = [r for r in moved if r is not None]
        if isinstance(got, str) or got[1] != "INSERT 0 %d" % len(moved) or len(got[0]) != len(moved) * p.returning:
            self.fail("wanted %d jobs" % len(moved))
        for job, r in zip(moved, got[0]):
            if job.id not in (None, int(r["id"])):
                self.fail("it is job %d" % job.id)
            job.id = int(r["id"])
        self.end(c, tx)

    # --- PUSH -------------------------------------------------------------------------------------

    def wish(self, tx, queue=None):
        p = super().wish(tx, queue)
        if p is None or not p.is_late():
            return p
        old = self.state.with_key(tx, p.queue, p.key) if p.key else None
        if old is not None and (old.behind or self.state.linked(old)):
            return None
        p.batch = None
        if p.queue == SINGLE:
            p.expires = "1 hour"
        return p

    def pushed(self, tx, p):
        last = self.state.n
        rows = set(tx.changes)
        old = self.state.with_key(tx, p.queue, p.key) if p.key else None
        jobs = super().pushed(tx, p)
        if p.queue in self.state.no_pushes and self.state.n > last and set(tx.changes) - rows - ({old.n} if old else set()):
            return "QB006"
        if old is not None and p.policy in ("REPLACE", "RERUN") and tx.changes.get(old.n) is not None:
            tx.changes[old.n].lot = None
        return jobs

    def push_group(self, c):
        """Groups that are worth the name."""
        tx = self.tx(c)
        p = self.wish(tx, self.random.choice(self.names))
        if p is None or p.key:
            return
        p.group, p.n, p.later, p.expires, p.no_delay = "g1", self.random.choice((2, 3, 4)), False, None, False
        self.tell(c, tx, p)

    def push_after(self, c):
        tx = self.tx(c)
        p = self.wish(tx)
        if p is None or p.is_late():
            return
        p.returning = True
        p.policy = p.policy if p.policy in (None, "IGNORE", "ERROR") else None
        if p.key and (self.state.with_key(tx, p.queue, p.key) or self.state.keeper(tx, p.queue, p.key) is not None):
            return
        there = self.references(tx, ("leased", "leased", "later", "blocked", "ready", "dead"))
        view = self.state.view(tx)
        gone = [r for r in self.known(tx) if r.n not in view and not r.expired and not any(r.n in t.changes or r.n in t.kept for t in self.state.others(tx))]
        some = self.random.sample(there, min(len(there), self.random.choice((1, 1, 2, 3))))
        some = [r for r in some if r.state != "dead" or self.random.random() < 0.2]
        if gone and self.random.random() < 0.1:
            some.append(self.random.choice(sorted(gone, key=lambda r: r.n)))
        if not some:
            return
        code = None
        kept = self.state.view_kept(tx)
        for r in sorted({r.n: r for r in some}.values(), key=lambda r: (self.state.queues[r.queue].number, r.n)):
            if code is None and r.n not in view:
                code = "QB003" if r.n not in kept else None if kept[r.n].state == "done" else "55000"
            elif code is None and view[r.n].state == "dead":
                code = "55000"
        names = [self.ref(r) for r in some]
        some = [r for r in some if r.n in view]
        sql, params = p.sql(self.words(p), [])
        sql += " AFTER " + ", ".join("$%d" % (len(params) + i + 1) for i in range(len(names)))
        params += names
        if code is not None:
            self.expect(c, "QUEUE " + sql, params, code)
            return
        self.after = sorted({r.n: r for r in some}.values(), key=lambda r: (self.state.queues[r.queue].number, r.n))
        try:
            self.told(c, tx, p, sql, params)
        finally:
            self.after = ()

    after = ()

    def new_row(self, tx, p):
        if not self.after:
            return super().new_row(tx, p)
        group, p.group = p.group, None
        row = super().new_row(tx, p)
        p.group = group
        row.later = group
        row.behind = tuple((r.n, self.state.name(r)) for r in self.after)
        row.state = "blocked"
        for r in self.after:
            self.state.change(tx, self.state.view(tx)[r.n])
        return row

    # --- the end of a transaction -----------------------------------------------------------------

    def may_go_back(self, c):
        """What it has taken may die then, and others with it, for which nobody has to be waited."""
        s, locked = self.state, self.state.locked(c.tx)
        rows = [s.leased(s.rows, t) for t in c.tx.taken]
        if any(other.n in locked for r in rows if r is not None for other in s.linked(r)):
            return False
        return self.one_each(c.tx.taken)

    def one_each(self, tokens):
        """Of jobs that go back together none waits for two: with which of them would it die?"""
        back = {self.state.tokens[t] for t in tokens}
        return all(sum(n in back for n, _ in r.behind) < 2 for r in self.state.everybody().values())

    def leave(self, c):
        if self.one_each(c.held) and (c.tx is None or self.may_go_back(c)):
            super().leave(c)

    def commit(self, c):
        if not c.tx.failed or self.may_go_back(c):
            super().commit(c)

    def rollback(self, c):
        if self.may_go_back(c):
            super().rollback(c)

    # --- others -----------------------------------------------------------------------------------

    def pause(self, c):
        if self.state.open:
            return
        queue = self.random.choice(self.names)
        what = self.random.choice(("", " TAKE", " PUSH"))
        if queue == SINGLE: # who follows while nothing can be taken is a matter of who asks by chance
            what = " PUSH"
        paused, pushes = queue in self.paused, queue in self.state.no_pushes
        verb = "RESUME" if (pushes if "PUSH" in what else paused) or self.random.random() < 0.1 else "PAUSE"
        self.expect(c, "QUEUE %s %s%s" % (verb, queue, what), [], ([], "ALTER TABLE"))
        if verb == "PAUSE":
            (self.state.no_pushes if "PUSH" in what else self.paused).add(queue)
        else:
            if "PUSH" not in what:
                self.paused.discard(queue)
            if "TAKE" not in what:
                self.state.no_pushes.discard(queue)

    def purge(self, c):
        rows = self.state.view(self.tx(c)).values()
        if not any(len(r.behind) > 1 for r in rows if r.state == "blocked"): # with which of them would it die?
            super().purge(c)

    def redrive(self, c):
        if not any(r.behind and r.state == "dead" for r in self.state.view(self.tx(c)).values()):
            super().redrive(c)

    def outcome(self, n):
        kept = self.state.kept.get(n)
        if n not in self.state.rows and kept is not None and kept.state == "dead":
            return ("dead",), None, kept.error
        return super().outcome(n)

    # --- those who wait ---------------------------------------------------------------------------

    def wait(self, _):
        queue = self.random.choice(self.names)
        there = self.state.room(queue) and any(r.queue == queue and r.state == "ready" for r in self.state.rows.values())
        if there and not (queue == SINGLE and self.state.consumer is not None) or len(self.takers) == 4:
            return
        limit, rank = self.random.choice((1, 1, 2, 5)), self.random.choice((0, 0, 2, -2))
        grouped = self.random.random() < 0.3
        if any(t.queue == queue and (grouped or t.grouped) for t in self.takers) and queue != SINGLE:
            return        # two statements may come in either order, and of these each is for one
        c = self.connection("t%d" % self.state.n, True)
        sql = "QUEUE TAKE %s%s LIMIT %d WAIT '10 min'%s LEASE '1 hour'" % (
            queue, " GROUPED" if grouped else "", limit, " RANK %d" % rank if rank else "")
        c.link.w.query(sql)
        self.script.append("%s %s" % (c.number, sql))
        taker = Taker(c, queue, limit, False)
        taker.grouped, taker.rank = grouped, rank
        self.takers.append(taker)
        self.parked()
        if queue == SINGLE:
            self.find(c, [SINGLE], limit, grouped)
            self.note_consumer()

    def parked(self, more=0):
        super().parked(more + len(self.batches))

    def give_up(self, c):
        before = list(self.takers)
        super().give_up(c)
        for t in before:
            if t not in self.takers:
                self.left(t.c)

    def serve(self):
        for taker in sorted(self.takers, key=lambda t: 0 if t.queue == SINGLE else -t.rank):
            jobs = self.find(taker.c, [taker.queue], taker.limit, taker.grouped)
            if jobs:
                self.taken(taker.c, jobs, self.answer_of(taker), taker.pop)
                taker.c.link.close()
                self.left(taker.c)
        self.note_consumer()

    # --- AWAIT BATCH ... WAIT ---------------------------------------------------------------------

    def of_batch(self, queue, name):
        return [r for r in self.state.rows.values() if (r.queue, r.batch) == (queue, name)]

    def wait_for_batch(self, _):
        queue, name = self.random.choice(self.names), self.random.choice(("b1", "b2"))
        if queue in self.late or len(self.batches) == 2 or all(r.state == "dead" for r in self.of_batch(queue, name)):
            return
        link = self.connect(self.random, True)
        sql = "QUEUE AWAIT BATCH '%s' ON %s WAIT '10 min'" % (name, queue)
        link.w.query(sql)
        self.script.append("* " + sql)
        self.batches.append((link, queue, name))
        self.parked()

    def hear(self):
        super().hear()
        for one in list(self.batches):
            link, queue, name = one
            if not all(r.state == "dead" for r in self.of_batch(queue, name)):
                continue
            try:
                got = link.answer()
            except (Refused, Stuck) as e:
                self.fail("the end of batch %s of %s is not heard of: %s" % (name, queue, e))
            self.script.append("* batch %s of %s: %r" % (name, queue, got))
            dead = len(self.of_batch(queue, name)) + sum(
                (r.queue, r.batch, r.state) == (queue, name, "dead") for r in self.state.kept.values())
            if len(got[0]) != 1 or got[0][0]["ended"] != "t" or int(got[0][0]["dead"]) != dead:
                self.fail("wanted %d dead" % dead)
            self.batches.remove(one)
            link.close()

    def run(self, steps, connections=4):
        try:
            super().run(steps, connections)
        finally:
            for link, _, _ in self.batches:
                link.close()


if __name__ == "__main__":
    main(Ordered)
