#!/usr/bin/python3
"""The model of what holds jobs back and how many there may be: max_running, rate, pause, hours, and those of groups, with fair;
max_length with overflow, max_per_transaction; KEY ... FOR whose time ends, IF NEWER; and ALTER of all of these in mid program.
Programs of a family of their own, so that those of the others stay as they are.

    /usr/bin/python3 test/check/limits.py --build DIR --seconds 60
    /usr/bin/python3 test/check/limits.py --build DIR --seed 4711          one program

For:     the command line and test/it/queue/test_queue_model.py.
Must not know: how anything is done, but for where times are stored: grow_older() moves these.
Entry points: Limited, a kind of model.Program; LimitedState.

There is no clock here either. A rate brings one in a day, so it is its burst that counts; a pause lasts an hour, the hours of a
queue begin or end hours from now. Time passes when the program says so.

Which jobs of GROUPED a take gets is not said to the last one (what was let in before stays so), so there the answer is judged:
how many they have to be is certain. So it is with several that wait for jobs of one queue: together they have to get all that there
is, in one order or another. The proxy never looks of its own accord (QUIET): who waits is told, or it waits for ever.
"""

import itertools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(os.path.dirname(HERE)), "test", "lib")]

from model import Mismatch, Program, main  # noqa: E402
from proxy import wait_for  # noqa: E402
from state import Queue, State, Tx  # noqa: E402

KEYED, FULL, DROPS, LOOP = "a", "b", "o", "x"
LIMITED, GROUPED = ("l", "n"), ("g", "f")
WAITING = ("ready", "later", "blocked")
MANY = 10 ** 6

# what a queue has from the start; one of these
OPTIONS = {
    FULL: [{"max_length": 5}],
    DROPS: [{"max_length": 4, "overflow": "drop_oldest"}],
    LOOP: [{"max_per_transaction": 4}],
    "l": [{}, {"max_running": 2}, {"rate": 4}, {"max_running": 3, "rate": 4}],
    "n": [{}, {"pause": "1 h"}, {"max_running": 2, "pause": "1 h"}, {"max_running": 2}],
    "g": [{}, {"max_running_per_group": 2}, {"max_running_per_group": 3, "rate_per_group": 4}, {"pause_per_group": "1 h"},
          {"max_running_per_group": 2, "pause_per_group": "1 h"}, {"max_running_per_group": 2, "max_running": 4}],
    "f": [{}, {"max_running_per_group": 2, "fair": "group"}, {"max_running_per_group": None, "fair": "group"},
          {"max_running_per_group": None}],
}

# what ALTER makes of it
CHANGES = {
    FULL: (("max_length", (3, 5, 7, None)),),
    DROPS: (("max_length", (1, 2, 4, 6, None)), ("overflow", ("error", "drop_oldest", "drop_oldest"))),
    LOOP: (("max_per_transaction", (2, 4, 6, None)),),
    "l": (("max_running", (1, 2, 3, None)), ("rate", (2, 4, None)), ("hours", ("open", "shut", None, None))),
    "n": (("max_running", (1, 2, None)), ("pause", ("1 h", "1 h", None)), ("rate", (3, 5, None))),
    "g": (("max_running_per_group", (1, 2, 3, None)), ("rate_per_group", (2, 4, None)), ("pause_per_group", ("1 h", None)),
          ("max_running", (2, 4, None))),
    "f": (("max_running_per_group", (1, 2, None, None)), ("fair", ("group", "group", None)), ("pause", ("1 h", None, None))),
}


def said(option, value):
    """A value of an option as a statement says it."""
    if value is None:
        return "none"
    if option.startswith("rate"):
        return "'1/d burst %d'" % value
    return "'%s'" % value if value == "1 h" else value


class Limits(Queue):
    """A queue, its options as they are now, and what of them is used up. Of a group: by its name; None is the queue itself."""

    def __init__(self, name, keeps=False, **options):
        super().__init__(name, keeps=keeps, most=options.get("max_length"))
        self.set = dict({"max_running_per_group": 1, "overflow": "error"}, **options)
        self.used = {}        # of the rate
        self.rests = set()    # who has a pause
        self.turns = {}       # group -> (number, step) of the last of it that was taken
        self.since = 0        # a step: the options are those since then

    def get(self, option):
        return self.set.get(option)

    def options(self):
        return super().options() + "".join(", %s = %s" % (k, said(k, v)) for k, v in self.set.items() if k != "max_length")

    def mode(self):
        """How groups are kept apart."""
        per_group = self.get("max_running_per_group")
        if self.get("fair") or self.get("rate_per_group") or self.get("pause_per_group") or per_group not in (1, None):
            return "places"
        return "order" if per_group == 1 else "label"

    def left(self, rate, group=None):
        return max(0, rate - self.used.get(group, 0)) if rate else MANY

    def use(self, group=None):
        for name, rate in ((None, self.get("rate")), (group, group and self.get("rate_per_group"))):
            if rate:
                self.used[name] = self.used.get(name, 0) + 1

    def ended(self, group):
        """An attempt."""
        if self.get("pause"):
            self.rests.add(None)
        if group and self.get("pause_per_group"):
            self.rests.add(group)

    def forget(self):
        """What nothing is held back by any more."""
        self.rests = {g for g in self.rests if self.get("pause" if g is None else "pause_per_group")}
        self.used = {g: n for g, n in self.used.items() if self.get("rate" if g is None else "rate_per_group")}

    def grow_older(self, days):
        self.rests = set()
        self.used = {g: max(0, n - days) for g, n in self.used.items()}


class LimitedState(State):
    def __init__(self, names, random):
        super().__init__([Limits(name, keeps=name == DROPS, **random.choice(OPTIONS.get(name, [{}]))) for name in names])
        self.steps = 0
        self.pops = False     # does the take that is looked at end its jobs?

    def mode(self, queue):
        return self.queues[queue].mode()

    # --- groups that have places, or are labels ---------------------------------------------------

    def insert(self, tx, row):
        if self.mode(row.queue) == "order":
            super().insert(tx, row)
        else:
            tx.changes[row.n] = row
            self.lock(tx, row)

    def next(self, tx, queue, group):
        if self.mode(queue) == "order":
            super().next(tx, queue, group)

    def revive(self, tx, row):
        super().revive(tx, row)
        if self.mode(row.queue) != "order":
            tx.changes[row.n].state = "ready"

    def is_free(self, tx, row, as_active=True):
        if self.mode(row.queue) == "order":
            return super().is_free(tx, row, as_active)
        if tx.explicit and row.n in self.rows and row.state in WAITING:
            return False
        return not any(row.n in t.changes or row.n in [self.tokens[x] for x in t.taken] or
                       (row.key and (row.queue, row.key) in t.keys) for t in self.others(tx))

    def regroup(self, queue):
        """What groups are is another thing now."""
        order = self.mode(queue) == "order"
        groups = set()
        for row in sorted(self.rows.values(), key=lambda r: r.n):
            if row.queue != queue or not row.group or row.state not in WAITING:
                continue
            first = row.group not in groups and not any(
                (r.queue, r.group, r.state) == (queue, row.group, "leased") for r in self.rows.values())
            groups.add(row.group)
            row.state = "blocked" if order and not first else "later" if row.delayed else "ready"

    # --- what may be taken ------------------------------------------------------------------------

    def room(self, queue):
        """What is popped has ended: then comes the pause."""
        q = self.queues[queue]
        if q.get("hours") == "shut" or None in q.rests:
            return 0
        running = sum(r.queue == queue and r.state == "leased" for r in self.rows.values())
        return min(max(0, (q.get("max_running") or MANY) - running), q.left(q.get("rate")),
                   1 if self.pops and q.get("pause") else MANY)

    def places(self, queue, group):
        """How many of a group may be begun, whatever is free in the queue. What is popped leaves its place at once."""
        q = self.queues[queue]
        if group in q.rests:
            return 0
        running = sum((r.queue, r.group, r.state) == (queue, group, "leased") for r in self.rows.values())
        per_group = q.get("max_running_per_group") or MANY
        if self.pops and running < per_group:
            per_group = 1 + running if q.get("pause_per_group") else MANY
        return min(max(0, per_group - running), q.left(q.get("rate_per_group"), group))

    def eligible(self, queue):
        """[jobs] that may come next: those of a group together. Of each list so many as there are places."""
        waiting = [r for r in self.rows.values() if r.queue == queue and r.state in WAITING and r.n not in self.locked()]
        out = [([r], 1) for r in waiting if r.group is None and r.state == "ready"]
        for group in sorted({r.group for r in waiting if r.group}):
            of = sorted((r for r in waiting if r.group == group), key=lambda r: r.n)
            places = MANY
            if self.mode(queue) == "places":
                places = self.places(queue, group)
                if self.queues[queue].get("max_running_per_group") == 1:
                    of = of[:next((i for i, r in enumerate(of) if r.delayed), len(of))] if self.pops else of[:1]
            of = [r for r in of if (r.state == "ready" if self.mode(queue) != "places" else not r.delayed)]
            out.append((of, min(places, len(of))))
        return out

    def next_jobs(self, queues, limit, paused):
        if queues[0] not in GROUPED:
            return super().next_jobs(queues, limit, paused)
        queue, = queues
        some = [r for jobs, places in self.eligible(queue) for r in jobs[:places]] if queue not in paused else []
        return some[:min(limit, self.room(queue))]

    def commit(self, tx):
        self.steps += 1
        for n, row in tx.changes.items():
            old = self.rows.get(n)
            if old is not None and old.state == "leased" and (row is None or row.state != "leased"):
                self.queues[old.queue].ended(old.group)
            if row is not None and not (old is not None and old.state in WAITING and not old.delayed):
                row.since = self.steps
        super().commit(tx)


class Limited(Program):
    """A program is about one of these, so that much happens there: the seed says which, in turn."""

    subjects = {
        "keys": [("push_keyed", 40), ("take_keyed", 15), ("grow_older", 3), ("push_running", 15)],
        "lengths": [("push_many", 30), ("push_keyed", 5), ("push_in_parts", 8), ("alter_queue", 10)],
        "limits": [("push_limited", 25), ("take_limited", 30), ("finish_limited", 25), ("wait_limited", 20), ("grow_older", 10),
                   ("alter_queue", 14)],
        "groups": [("push_limited", 30), ("take_limited", 30), ("finish_limited", 25), ("wait_limited", 20), ("grow_older", 6),
                   ("alter_queue", 14)],
        "all": [("push_keyed", 8), ("push_many", 6), ("push_limited", 15), ("take_limited", 15), ("finish_limited", 10),
                ("wait_limited", 8), ("grow_older", 2)],
    }

    def new_state(self):
        self.subject = list(self.subjects)[self.seed % len(self.subjects)]
        more = {"keys": (DROPS,), "lengths": (DROPS, LOOP), "limits": LIMITED, "groups": GROUPED,
                "all": (DROPS, LOOP) + LIMITED + GROUPED}[self.subject]
        self.limited = [q for q in LIMITED + GROUPED if q in more]
        self.grouped = [q for q in GROUPED if q in more]
        one = tuple(q for q in (KEYED, FULL) + more if q not in GROUPED)
        self.families = (one, one[:1] + tuple(q for q in LIMITED if q in more)) + tuple((q,) for q in self.grouped)
        return LimitedState((KEYED, FULL) + more, self.random)

    def always(self):
        return super().always() + [(getattr(self, f), n) for f, n in self.subjects[self.subject]] + [
            (self.alter_queue, 10), (self.grow_older, 3)]

    # --- TAKE -------------------------------------------------------------------------------------

    def find(self, c, queues, limit, pop=False):
        self.state.pops = pop
        return self.state.next_jobs(queues, limit, self.paused)

    def take_one(self, c, verb, queues, limit):
        jobs = self.find(c, queues, limit, verb == "POP")
        if verb == "POP" and any(r.group and self.state.mode(r.queue) == "order" for r in jobs):
            limit, jobs = 1, jobs[:1]    # it would find those, too, that go on by its ends
        if verb == "POP" and any((r.queue, r.group) in tx.held for r in jobs for tx in self.state.open):
            return    # it would wait for who has changed the next one of the group
        sql = "QUEUE %s %s LIMIT $1%s" % (verb, ", ".join(queues), " LEASE '1 hour'" if verb == "TAKE" else "")
        self.taken(c, jobs, self.run_one(c, sql, [limit]), verb == "POP")

    def take(self, c):
        family = self.random.choice(self.families)
        queues = self.random.sample(family, min(len(family), self.random.choice((1, 1, 2))))
        self.take_one(c, "POP" if self.random.random() < 0.15 else "TAKE", queues, self.random.choice((1, 1, 2, 5)))

    def take_limited(self, c):
        self.take_one(c, "POP" if self.random.random() < 0.25 else "TAKE", [self.random.choice(self.limited)],
                      self.random.choice((1, 2, 3, 10)))

    def finish_limited(self, c):
        self.only = self.limited
        if c.tx or self.random.random() < 0.7:
            self.finish(c)
        else:
            self.done_in_sql(c)
        self.only = None

    def done_in_sql(self, c):
        """Past the proxy, which then does not know how a job has ended that is gone."""
        tx = Tx()
        tx.parts = True
        tokens = self.some_tokens(c, tx)
        if tokens and not self.why_not(c, tx, tokens)[0]:
            self.in_sql("SELECT queue.done(%s::text[])", tokens)
            self.is_done(tx, self.leased(tx, tokens), None)
            self.end(c, tx)

    def in_sql(self, sql, *params):
        self.script.append("%s %r" % (sql, params))
        self.direct.execute(sql, params)

    only = None

    def some_tokens(self, c, tx):
        some = super().some_tokens(c, tx)
        for _ in range(10):
            if self.only and any(self.queue_of(t) not in self.only for t in some):
                some = super().some_tokens(c, tx)
        return some

    def take_keyed(self, c):
        self.take_one(c, self.random.choice(("TAKE", "POP")), [KEYED], 1)

    def taken(self, c, jobs, got, pop=False):
        if not isinstance(got, str) and any(r["queue"] in GROUPED for r in got[0]):
            jobs = self.judged(jobs, got[0])
        self.used(c, jobs, got, pop)

    def used(self, c, jobs, got, pop):
        super().taken(c, jobs, got, pop)
        for r in jobs:
            q = self.state.queues[r.queue]
            q.use(r.group)
            if pop:
                q.ended(r.group)

    def judged(self, jobs, rows):
        """Those that were taken, if they may be it."""
        s, name = self.state, rows[0]["queue"]
        q = s.queues[name]
        if len(rows) != len(jobs):
            self.fail("wanted %d jobs of %r" % (len(jobs), [([r.word for r in of], places) for of, places in s.eligible(name)]))
        words = {q.payload(r.word): r for r in s.rows.values() if r.queue == name}
        chosen = [words.get(r["payload"]) for r in rows]
        eligible = s.eligible(name)
        waits = {r.n: r for of, _ in eligible for r in of}
        for r in chosen:
            if r is None or r.n not in waits:
                self.fail("%r is not to be taken" % (r and r.word))
            del waits[r.n]
            if q.get("fair") and r.group and not q.get("max_running_per_group") and not q.get("rate_per_group") \
                    and not q.get("pause_per_group"):
                self.has_turn(q, r, waits.values())
        for of, places in eligible:
            some = [r for r in chosen if r in of]
            if len(some) > places:
                self.fail("%d of group %s, wanted %d" % (len(some), some[0].group, places))
            for r in some if q.mode() == "places" else ():
                for u in of:
                    if u.n in waits and u.n < r.n and u.since <= r.since and u.priority >= r.priority:
                        self.fail("%r comes before %r" % (u.word, r.word))
        if q.mode() != "places":
            for r in chosen:
                if any(u.priority > r.priority for u in waits.values()):
                    self.fail("others come before %r" % r.word)
        return chosen

    def has_turn(self, q, r, waits):
        """Nobody who has waited since before the last one of this group was taken has been passed over."""
        self.turn += 1
        number, step = q.turns.get(r.group, (None, 0))
        # who has delayed ones in front may have had his turn for these
        late = {}
        for x in self.state.rows.values():
            if x.queue == q.name and x.state in WAITING and x.delayed:
                late[x.group] = min(x.n, late.get(x.group, x.n))
        for u in waits if number is not None else ():
            if u.group not in (None, r.group) and u.since < step and q.turns.get(u.group, (0, 0))[0] < number \
                    and u.priority >= r.priority and step > q.since and late.get(u.group, u.n) >= u.n:
                self.fail("it is the turn of %r" % u.group)
        q.turns[r.group] = (self.turn, self.state.steps)

    turn = 0

    # --- PUSH -------------------------------------------------------------------------------------

    def wish(self, tx, queue=None):
        p = super().wish(tx, queue)
        if p is None:
            return None
        q = self.state.queues[p.queue]
        if p.is_late() and (q.get("max_length") or p.queue in LIMITED + GROUPED):    # a take that finds no place does not look
            p.expires = "1 hour"
        if p.queue in GROUPED:
            p.batch = None
            if q.get("fair") and self.random.random() < 0.8:
                p.priority = None
        if p.keep:
            p.keep = self.random.choice((1, 3))
        if p.policy == "REPLACE" and self.random.random() < 0.6:
            p.newer = self.version()
        if p.queue == DROPS:
            p.group = None if p.key else p.group
            if not self.is_free(tx, p) or self.is_unsure(tx, p):
                return None
        if q.most and self.is_unseen(tx, p):
            return None
        return p

    def is_unseen(self, tx, p):
        """Have others pushed what this does not see, or does it see ends that may be taken back? Then more are let in than there
        may be."""
        rows = self.state.rows
        return any(row is None or row.state == "dead" if t is tx else row is not None and row.queue == p.queue and n not in rows
                   for t in self.state.open for n, row in t.changes.items())

    def loosen(self, tx, p):
        """There is no such push: is_unseen()."""

    def version(self, near=None):
        """They become newer, but some are overtaken. near: some minutes before that one or behind it."""
        n = len(self.script) // 10 + self.random.randrange(4)
        if near:
            n = max(0, int(near[11:13]) * 60 + int(near[14:16]) + self.random.choice((-2, -1, 0, 1, 3)))
        return "2026-01-01 %02d:%02d:00+00" % divmod(n, 60)

    def is_unsure(self, tx, p):
        """Is it somebody else's matter, too, which jobs go? What is handed over to one who waits runs, and stays."""
        s = self.state
        if any(t.queue == p.queue for t in self.takers) and s.unfinished(tx, p.queue) + p.n > (s.queues[p.queue].most or MANY):
            return True
        if any((row or s.rows.get(n)) and (row or s.rows[n]).queue == p.queue for t in s.others(tx) for n, row in t.changes.items()):
            return True
        return tx.explicit and (s.unfinished(tx, p.queue) + p.n > (s.queues[p.queue].most or MANY) or
                                any(row is None for row in tx.changes.values()))

    def is_too_much(self, tx, p):
        q = self.state.queues[p.queue]
        most = q.get("max_per_transaction")
        if most and tx.pushed.get(p.queue, 0) + p.n > most:
            return True
        if not q.most or q.get("overflow") == "error":
            return super().is_too_much(tx, p)
        running = sum(r.queue == p.queue and r.state == "leased" for r in self.state.view(tx).values())
        return self.state.unfinished(tx, p.queue) + p.n > q.most and running >= q.most

    def push_keyed(self, c):
        """Few keys, that are pushed again and again."""
        tx = self.tx(c)
        some = [self.wish(tx, self.random.choice((KEYED, KEYED, KEYED, DROPS))) for _ in range(12)]
        p = next((p for p in some if p is not None and p.key), None)
        if p is None:
            return
        if p.policy != "REPLACE" and self.random.random() < 0.4:
            p.policy, p.newer = "REPLACE", self.version() if self.random.random() < 0.5 else None
        kept = [k for q, k in self.state.keep if q == p.queue and self.state.keeper(tx, q, k) is not None]
        if kept and self.random.random() < 0.6:    # whose jobs may have ended
            p.key, p.policy, p.keep = self.random.choice(kept), "REPLACE", self.random.choice((0, 0, 1))
            p.newer = self.version(self.state.keeper(tx, p.queue, p.key).version)
            old = self.state.with_key(tx, p.queue, p.key)
            if old is not None and (not self.state.is_free(tx, old) or (old.group and p.is_late())):
                return
        self.tell(c, tx, p)

    def push_running(self, c):
        """The key of one that runs: it is to run once more, at once or later."""
        tx = self.tx(c)
        rows = [r for r in self.state.view(tx).values()
                if r.state == "leased" and r.key and not r.cancelled and self.state.is_free(tx, r)]
        p = self.wish(tx, self.random.choice(rows).queue) if rows else None
        if p is None:
            return
        row = self.random.choice([r for r in rows if r.queue == p.queue])
        p.key, p.policy, p.newer = row.key, self.random.choice(("REPLACE", "REPLACE", "RERUN")), None
        p.n, p.keep, p.group, p.expires, p.no_delay = 1, 0, row.group, None, False
        p.later = self.random.random() < 0.5
        self.tell(c, tx, p)

    def push_limited(self, c):
        tx = self.tx(c)
        p = self.wish(tx, self.random.choice(self.limited))
        if p is None or p.key:
            return
        p.group, p.n = self.random.choice(("g1", "g2", "g3")), self.random.choice((1, 2, 3))
        if p.queue in LIMITED and self.random.random() < 0.7:
            p.group = None
        self.tell(c, tx, p)

    def push_many(self, c, queue=None):
        """Too many, now and then."""
        tx = self.tx(c)
        p = self.wish(tx, queue or self.random.choice([q for q in (FULL, DROPS, LOOP) if q in self.names]))
        if p is None or p.key:
            return
        p.n = self.random.choice((1, 2, 3, 4, 6))
        if p.queue == DROPS and self.is_unsure(tx, p):
            return
        self.tell(c, tx, p)

    def push_in_parts(self, c):
        """One transaction, several statements: together they may be too many."""
        if LOOP not in self.names or c.tx:
            return
        self.begin(c)
        for _ in range(self.random.choice((2, 3))):
            if not c.tx.failed:
                self.push_many(c, LOOP)
                self.told_others()
        self.random.choice((self.commit, self.commit, self.rollback))(c)

    def told_others(self):
        """Between the statements of one step."""
        self.serve()
        self.hear()

    def pushed(self, tx, p):
        last = self.state.n
        jobs = super().pushed(tx, p)
        q = self.state.queues[p.queue]
        if not isinstance(jobs, str) and q.most and q.get("overflow") == "drop_oldest" and self.state.n > last \
                and tx.pushed.get(p.queue):
            self.drop_oldest(tx, q, jobs)
        return jobs

    def drop_oldest(self, tx, q, jobs):
        """First what is ready, of the lowest priority what is next; then what is delayed, then what is blocked."""
        over = self.state.unfinished(tx, q.name) - q.most
        if over <= 0 or all(r is None or r.n not in tx.changes for r in jobs):
            return
        waits = self.waiting_in(tx, q)
        if any(r.group for r in waits):
            self.drops = q, over
            return
        times = [p for (p,) in self.direct.execute(
            "SELECT payload::text FROM queue.q_%s WHERE state = 'later' ORDER BY run_at" % q.name).fetchall()]

        def place(r):
            at = times.index(q.payload(r.word)) if r.state == "later" and q.payload(r.word) in times else len(times) + r.n
            return (WAITING.index(r.state), r.priority if r.state == "ready" else 0, r.position if r.state == "ready" else at)
        self.state.end(tx, sorted(waits, key=place)[:over], "dropped")

    drops = None    # (queue, how many): who of a group goes on by that, and may have to go, too, the table says

    def waiting_in(self, tx, q):
        return [r for r in self.state.view(tx).values() if r.queue == q.name and r.state in WAITING]

    def end(self, c, tx):
        if self.drops is not None:
            (q, over), self.drops = self.drops, None
            self.has_dropped(tx, q, over)
        super().end(c, tx)

    def has_dropped(self, tx, q, over):
        rows = self.direct.execute("SELECT payload::text FROM queue.q_%s ORDER BY state = 'ready' DESC, position" % q.name).fetchall()
        there = {p: i for i, (p,) in enumerate(rows)}
        gone, left = [], []
        for r in self.waiting_in(tx, q):
            (left if q.payload(r.word) in there else gone).append(r)
        if len(gone) != over:
            self.fail("%r are dropped, wanted %d" % ([r.word for r in gone], over))
        # those of a group are pushed one by one, and may have had to go before the next one came
        for r in (r for r in gone if not r.group):
            for u in (u for u in left if not u.group):
                if u.state == "ready" and (r.state != "ready" or (u.priority, u.position) < (r.priority, r.position)):
                    self.fail("%r is dropped, and %r is not" % (r.word, u.word))
        self.state.end(tx, gone, "dropped")
        for r in sorted(self.waiting_in(tx, q), key=lambda r: there.get(q.payload(r.word), 0)):
            if r.group and r.state == "ready" and r not in left:
                tx.changes[r.n].position = self.state.place()

    # --- what others do with jobs -----------------------------------------------------------------

    hidden = ()

    def references(self, tx, states):
        return [r for r in super().references(tx, states) if r.queue not in self.hidden]

    def alter(self, c):
        self.hidden = (DROPS,)    # of several that never come, which one goes?
        super().alter(c)
        self.hidden = ()

    def rerun(self, c):
        if not self.is_unclear(self.tx(c)):
            self.hidden = [q.name for q in self.state.queues.values() if q.most and self.subject == "lengths"]
            super().rerun(c)
            self.hidden = ()

    def redrive(self, c):
        # which is not counted: what is dead may go back though there are too many
        if self.subject != "lengths" and not self.is_unclear(self.tx(c)):
            super().redrive(c)

    def is_unclear(self, tx):
        """One that goes back to where it was pushed: is it before one whose turn it is? And how many are too many then?"""
        q = self.state.queues
        return any(r.state == "dead" and (
            (r.group and q[r.queue].mode() == "places" and q[r.queue].get("max_running_per_group") == 1) or
            r.queue == DROPS) for r in self.state.view(tx).values())

    def purge(self, c):
        if all(self.state.mode(q) == "order" for q in self.grouped):
            super().purge(c)

    # --- looking ----------------------------------------------------------------------------------

    def told_state(self, queue, group, state):
        return "waits" if group and state in WAITING and self.state.mode(queue) == "places" else state

    def seen(self, row):
        seen = row.seen()
        return (seen[0], self.told_state(row.queue, row.group, row.state)) + seen[2:]

    def tables(self, sql):
        out = {}
        for q in self.names:
            rows = self.direct.execute(sql.format(q)).fetchall()
            if sql == self.table:
                rows = [(r[0], self.told_state(q, r[8], r[1])) + r[2:] for r in rows]
            out[q] = sorted(map(repr, rows))
        return out

    def stats(self, c):
        """What a take would let in is ready, though nobody takes."""
        placed = [q for q in self.grouped if self.state.mode(q) == "places"]
        if not placed:
            super().stats(c)
        if not placed or self.state.open:
            return
        queue = self.random.choice(placed)
        rows = [r for r in self.state.rows.values() if r.queue == queue]
        wanted = {s: str(sum(r.state == s for r in rows)) for s in ("leased", "dead")}
        self.state.pops = False
        wanted["ready"] = str(sum(places for _, places in self.state.eligible(queue)))
        got = self.run_one(c, "QUEUE STATS %s" % queue)
        if isinstance(got, str) or {s: got[0][0][s] for s in wanted} != wanted:
            self.fail("wanted %r" % wanted)

    def peek(self, c):
        if all(self.state.mode(q) != "places" for q in self.grouped):
            super().peek(c)

    # --- those who wait ---------------------------------------------------------------------------

    altered_ones = ()

    def wait_limited(self, _):
        self.begin_to_take(self.random.choice(self.limited), self.random.random() < 0.15, self.random.choice((1, 1, 2, 5)))

    def begin_to_take(self, queue, pop, limit):
        if queue in self.limited:
            # one alone may pop: his jobs end at once, which makes room for others
            pops = [t.pop for t in self.takers if t.queue == queue]
            # what has locked jobs does not say so when it lets go of them
            locked = any(self.state.rows[n].queue == queue for n in self.state.locked() if n in self.state.rows)
            if any(pops) or (pops and pop) or locked or self.find(None, [queue], 1, pop):
                return
        if pop and queue in GROUPED:
            limit = 1    # it would find those, too, that go on by its ends
        super().begin_to_take(queue, pop, limit)

    def serve(self):
        for queue in dict.fromkeys(t.queue for t in self.takers):
            takers = [t for t in self.takers if t.queue == queue]
            # ALTER lets them ask, too: who is about to do so is not the first one then
            if len(takers) > 1 and (queue in self.limited or queue in self.altered_ones) and not takers[0].pop:
                self.serve_some(queue, takers)
            else:
                for taker in takers:
                    self.serve_one(taker)
        for taker in self.takers:
            if taker.c.link.has_answer():
                self.fail("%s of %s gets what is not there: %r" % (taker.c.number, taker.queue, self.answer_of(taker)))

    def serve_one(self, taker):
        jobs = self.find(taker.c, [taker.queue], taker.limit, taker.pop)
        if jobs:
            self.taken(taker.c, jobs, self.answer_of(taker), taker.pop)
            taker.c.link.close()

    def serve_some(self, queue, takers):
        """They get what is there, and each as much as it has asked for as long as there is something: which of them is not said."""
        jobs = self.find(takers[0].c, [queue], sum(t.limit for t in takers))
        answers = []
        try:
            while len(jobs) > sum(len(got[0]) for _, got in answers):
                wait_for(lambda: any(t.c.link.has_answer() for t in takers), "an answer", self.patience)
                taker = next(t for t in takers if t.c.link.has_answer())
                takers.remove(taker)
                answers.append((taker, self.answer_of(taker)))
                if isinstance(answers[-1][1], str):
                    self.fail("wanted jobs of %s" % queue)
        except AssertionError as e:
            self.fail("there are %d jobs of %s, and who waits for them gets %r: %s; the sessions are\n%s" % (
                len(jobs), queue, [got for _, got in answers], e, self.sessions()))
        if answers:
            self.share(queue, jobs, answers)

    def share(self, queue, jobs, answers):
        """In one order of these it has to be right: they have come in that of the network."""
        wrong = ["who does not get what he has asked for is not the last one"]
        for line in itertools.permutations(answers):
            if any(len(got[0]) != taker.limit for taker, got in line[:-1]):
                continue
            turn, turns = self.turn, dict(self.state.queues[queue].turns)
            try:
                rows = [r for _, got in line for r in got[0]]
                chosen = self.judged(jobs, rows) if queue in GROUPED else self.in_order(queue, jobs, rows)
            except Mismatch as e:
                wrong.append(str(e).split("\n", 1)[0])
                self.turn, self.state.queues[queue].turns = turn, turns
                continue
            for taker, got in line:
                n = len(got[0])
                self.used(taker.c, chosen[:n], got, False)
                chosen = chosen[n:]
                taker.c.link.close()
            return
        self.fail("in no order of those who waited: %s" % wrong)

    def in_order(self, queue, jobs, rows):
        payload = self.state.queues[queue].payload
        if [r["payload"] for r in rows] != [payload(j.word) for j in jobs]:
            self.fail("wanted %r" % [j.word for j in jobs])
        return jobs

    # --- ALTER ------------------------------------------------------------------------------------

    def end_all(self):
        """Of the transactions that are open each ends."""
        for c in self.connections:
            if c.tx:
                self.random.choice((self.commit, self.rollback))(c)
                self.told_others()

    def alter_queue(self, c):
        if self.state.open and self.random.random() < 0.5:
            self.end_all()
        if self.state.open:
            return
        name = self.random.choice(self.limited or [q for q in self.names if q != KEYED])
        if self.subject == "all" and self.random.random() < 0.4:
            name = self.random.choice((FULL, DROPS, LOOP))
        q = self.state.queues[name]
        option, value = self.random.choice(CHANGES[name])
        value = self.random.choice(value)
        if q.get(option) == value:
            return
        new = Limits(name, **dict(q.set, **{option: value}))
        if new.get("fair") and new.get("max_running_per_group") == 1:
            return
        if sum(t.pop for t in self.takers if t.queue == name) > 1:
            return
        self.altered_ones = (*self.altered_ones, name)
        self.altered(c, q, new, option, value)
        self.told_others()
        if self.random.random() < 0.7:    # is it so?
            if name in self.limited:
                self.take_one(c, "TAKE", [name], 10)
            else:
                self.push_many(c, name)

    def altered(self, c, q, new, option, value):
        s, name = self.state, q.name
        words = self.hours(value) if option == "hours" and value else said(option, value)
        resets = value is None and option != "max_running_per_group"
        sql = "QUEUE ALTER %s %s" % (name, "RESET (%s)" % option if resets else "SET (%s = %s)" % (option, words))
        busy = {}
        for r in s.rows.values():
            if r.queue == name and r.state == "leased" and r.group:
                busy[r.group] = busy.get(r.group, 0) + 1
        if option in ("max_running_per_group", "rate_per_group", "pause_per_group", "fair") and \
                new.get("max_running_per_group") == 1 and max(busy.values(), default=0) > 1:
            self.expect(c, sql, [], "55006")
            return
        old = q.get(option)
        q.set, q.most = new.set, new.get("max_length")
        q.since, q.turns = s.steps, {}
        q.forget()
        if option in ("max_length", "overflow"):
            self.loose.discard(name)
        if name in GROUPED:
            s.regroup(name)
        if self.random.random() < 0.5:
            self.expect(c, sql, [], ([], "ALTER TABLE"))
        elif resets:
            self.in_sql("SELECT queue.alter(%s, reset_names => ARRAY[%s])", name, option)
        else:
            self.in_sql("SELECT queue.alter(%s, ARRAY[%s], ARRAY[%s])", name, option, str(words).strip("'"))
        if old is None and option.startswith(("rate", "pause")):
            self.pass_days(q, 1000)     # what it was before is of no interest
        elif option.startswith("rate") and value is not None:
            q.used = {g: min(n, value) if (g is None) == (option == "rate") else n for g, n in q.used.items()}
            self.serve()
            self.take_one(c, "TAKE", [name], 1)     # which notes that

    def hours(self, value):
        return "'%s UTC'" % self.direct.execute(
            "SELECT to_char((now() + %s) AT TIME ZONE 'UTC', 'HH24:00') || '-' ||"
            " to_char((now() + interval '6 hours') AT TIME ZONE 'UTC', 'HH24:00')",
            ["-3 hours" if value == "open" else "3 hours"]).fetchone()[0]

    # --- time -------------------------------------------------------------------------------------

    def grow_older(self, _):
        """A day passes, or two: the rate brings something, pauses are over, keys are free again."""
        if self.state.open and self.random.random() < 0.5:
            self.end_all()
        if self.state.open:
            return
        if not self.limited or self.random.random() < 0.2:
            self.script.append("keys are two days older")
            self.direct.execute("UPDATE queue.keys SET until = until - interval '2 days'")
            self.state.days += 2
        else:
            self.pass_days(self.state.queues[self.random.choice(self.limited)], self.random.choice((1, 1, 2, 100)))

    def pass_days(self, q, days):
        self.script.append("%s is %d days older" % (q.name, days))
        tables = ["queue.n%d_%s" % (q.number, what) for what in ("gate", "groups", "noted")]
        if self.direct.execute("SELECT to_regclass(%s)", tables[:1]).fetchone()[0] is None:
            q.used, q.rests = {}, set()
            return
        with self.direct.transaction():
            # a take of somebody who waits may be under way, and put another row in the place of one of these
            self.direct.execute("LOCK TABLE %s IN EXCLUSIVE MODE" % tables[0])
            self.direct.execute("UPDATE %s SET tat = tat - %d * interval '1 day', rests = rests - %d * interval '1 day',"
                                " opened = '-infinity'" % (tables[0], days, days))
            self.direct.execute("UPDATE %s SET tat = tat - %d * interval '1 day', rests = rests - %d * interval '1 day',"
                                " opens = opens - %d * interval '1 day'" % (tables[1], days, days, days))
            self.direct.execute("UPDATE %s SET ended = ended - %d * interval '1 day'" % (tables[2], days))
            self.direct.execute("SELECT queue._tell(%s, %s)", [q.number, q.name])
        q.grow_older(days)


if __name__ == "__main__":
    main(Limited)
