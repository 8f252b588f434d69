"""What the tables hold, as doc/queue.md says it: the state of the model, without any statement.

For:     model.py.
Must not know: SQL, connections of the program, how anything is done.
Entry points: Queue, Row, Tx, State, token_order.

A statement outside of a transaction block is a Tx of its own here, too. There is no clock: what has a time has
it an hour from now, or has had it.
"""

import copy
import json

ACTIVE = ("ready", "later", "leased")        # of a group at most one
UNFINISHED = ACTIVE + ("blocked",)


def token_order(token):
    """As the functions work on several jobs: by the number of the queue and the id."""
    number, job, _ = token.split("-")
    return int(number), int(job)


class Queue:
    def __init__(self, name, kind="jsonb", keeps=False, most=None, running=None):
        self.name, self.kind, self.keeps, self.most, self.running = name, kind, keeps, most, running
        self.number, self.more = None, ""

    def options(self):
        options = ["max_attempts = 1000", "retry = 'fixed 1h'", "payload = " + self.kind, "batches = true"]
        if self.keeps:
            options.append("retain_done = '1 day'")
        if self.most:
            options.append("max_length = %d" % self.most)
        if self.running:
            options.append("max_running = %d" % self.running)
        return ", ".join(options) + self.more

    def payload(self, word):
        """As the table shows it. A text that is nearly JSON, and bytes that are no text."""
        if self.kind == "jsonb":
            return json.dumps({"u": word})
        if self.kind == "text":
            return ' {"u":  "%s"\t' % word
        return "\\x00ff" + word.encode().hex()


class Row:
    """A job as the table or the archive holds it."""

    def __init__(self, n, queue, priority, position, state):
        self.n = n            # in the order of ids
        self.queue, self.priority, self.position, self.state = queue, priority, position, state
        self.word = "u%d" % n # in its payload
        self.id = None        # known from RETURNING ID or the first TAKE on
        self.attempt = self.failures = 0
        self.lost = False     # before: the next time it waits
        self.error = self.token = self.key = self.group = None
        self.batch = None
        self.headers = self.most = None      # most: attempts, if the push said so
        self.cancelled = False
        self.delayed = state == "later"      # its time is to come, whatever its state
        self.version = None   # IF NEWER: that of the last push
        self.again = False    # it runs once more after it is done
        self.expired = False  # it was of no use as soon as it was there
        self.died = None      # when, among the dead
        self.behind = ()      # (n, name) of those that are to be done before it
        self.later = None     # the group that it will be of then
        self.lot = None       # (its token, that of the one in front of it), taken GROUPED
        self.result = None

    def seen(self):
        return (self.word, self.state, self.priority, self.attempt, self.failures, self.error, self.cancelled,
                self.key, self.group, self.again, self.headers, self.most)

    def kept_as(self):
        return (self.word, self.state, self.attempt, self.failures, self.error, self.key, self.group or self.later,
                self.result)

    def is_last_attempt(self):
        return self.most is not None and self.attempt >= self.most and not self.again

    def order(self):
        return (-self.priority, self.position)

    def is_late(self):
        return self.expired and self.state not in ("leased", "dead")


class Kept:
    """A key that is taken though its job may have ended: KEY ... FOR. until: of the model's clock."""

    def __init__(self, n, until, version=None):
        self.n, self.until, self.version = n, until, version


class Tx:
    """changes: n -> Row, or None for one that is gone; kept: the same of the archive. The rows in it are locked,
    and keys and groups: "held" ones have to be waited for, behind "queued" ones there are only jobs that wait."""

    def __init__(self, explicit=False):
        self.explicit = explicit
        self.changes, self.kept = {}, {}
        self.ended = {}       # n -> how
        self.keys, self.held, self.queued = set(), set(), set()
        self.keep = {}        # (queue, key) -> Kept
        self.pushed = {}      # queue -> how many jobs
        self.looks = []       # n of those that are behind others, to be looked at once more
        self.blocked = []     # groups with jobs that were blocked, to be looked at once more at the end
        self.done = set()     # tokens
        self.effects = 0      # rows in the user's own table
        self.savepoints = []
        self.parts = False    # there has been a savepoint
        self.taken = []       # tokens
        self.failed = False

    def snapshot(self):
        return [copy.copy(x) for x in (self.changes, self.kept, self.keys, self.held, self.queued, self.blocked,
                                       self.done, self.keep, self.looks, self.pushed)] + [self.effects]

    def restore(self, snapshot):
        (self.changes, self.kept, self.keys, self.held, self.queued, self.blocked, self.done, self.keep, self.looks,
         self.pushed) = (copy.copy(x) for x in snapshot[:-1])
        self.effects = snapshot[-1]

    def fail(self):
        """Postgres lets go of what was changed since the last savepoint."""
        self.failed = True
        self.restore(self.savepoints[-1] if self.savepoints else Tx().snapshot())


class State:
    def __init__(self, queues):
        self.queues = {q.name: q for q in queues}
        self.rows, self.kept = {}, {}       # committed: n -> Row
        self.last = {}        # n -> Row, of those that have ended: as they were
        self.gone = {}        # n -> what may be said to who waits for it, if nothing of it is kept
        self.tokens = {}      # token -> n, of all times
        self.done = set()     # tokens that were done
        self.effects = 0
        self.keep = {}        # (queue, key) -> Kept
        self.days = 0         # that keys have grown older by the test's doing
        self.open = []        # transactions of others, and one's own
        self.n = self.position = 0

    # --- what there is ----------------------------------------------------------------------------

    def view(self, tx):
        rows = dict(self.rows)
        rows.update(tx.changes)
        return {n: r for n, r in rows.items() if r is not None}

    def view_kept(self, tx):
        rows = dict(self.kept)
        rows.update(tx.kept)
        return {n: r for n, r in rows.items() if r is not None}

    def of_group(self, tx, queue, group, states):
        rows = [r for r in self.view(tx).values() if (r.queue, r.group) == (queue, group) and r.state in states]
        return sorted(rows, key=lambda r: r.n)

    def with_key(self, tx, queue, key):
        return next((r for r in self.view(tx).values()
                     if (r.queue, r.key) == (queue, key) and r.state != "dead"), None)

    def keeper(self, tx, queue, key):
        """Whose the key is though the job may have ended: a Kept; or None."""
        kept = tx.keep.get((queue, key), self.keep.get((queue, key)))
        return kept if kept is not None and kept.until > self.days else None

    def keep_key(self, tx, row, days, newer):
        """days: FOR. The key of a job that another one has left it is that one's still, unless this is newer."""
        kept = self.keeper(tx, row.queue, row.key)
        if kept is None and not days:
            return
        if kept is not None and kept.n != row.n and not (newer and kept.version and newer > kept.version):
            return
        until = max(self.days + days if days else 0, kept.until if kept is not None else 0)
        tx.keep[row.queue, row.key] = Kept(row.n, until, row.version)

    def id_of(self, tx, n):
        """None: it was never told."""
        rows = [self.view(tx).get(n), self.rows.get(n), self.last.get(n)]
        return next((r.id for r in rows if r is not None and r.id is not None), None)

    def unfinished(self, tx, queue):
        return sum(r.queue == queue and r.state in UNFINISHED for r in self.view(tx).values())

    def leased(self, rows, token):
        row = rows.get(self.tokens[token])
        return row if row is not None and row.token == token else None

    def lease(self, rows, token):
        """The same, and what is behind such a one."""
        return self.leased(rows, token)

    def is_behind(self, tx, row):
        """Has somebody taken it behind another one (GROUPED)?"""
        return False

    # --- what somebody else's open transaction has its hand on ------------------------------------

    def others(self, tx):
        return [t for t in self.open if t is not tx]

    def locked(self, tx=None):
        return {n for t in self.others(tx) for n in t.changes}

    def touched_archive(self, tx):
        return any(t.kept for t in self.others(tx))

    def is_free(self, tx, row, as_active=True):
        """Could a change of the row, or one of its key or group, have to wait?"""
        group, key = (row.queue, row.group), (row.queue, row.key)
        # takes pass it over, and find it again a while after the transaction has failed
        if tx.explicit and row.n in self.rows and row.state == "ready" and as_active:
            return False
        for t in self.others(tx):
            taken = [self.tokens[token] for token in t.taken]
            if row.n in t.changes or row.n in taken or (row.key and key in t.keys):
                return False
            if row.group and (group in t.held or (as_active and tx.explicit and group in t.queued)
                              or any(self.same_group(n, row) for n in taken)):
                return False
        return True

    def same_group(self, n, row):
        other = self.rows.get(n)
        return other is not None and (other.queue, other.group) == (row.queue, row.group)

    # --- changes ----------------------------------------------------------------------------------

    def place(self):
        self.position += 1
        return self.position

    def lock(self, tx, *rows):
        for r in rows:
            if r.key:
                tx.keys.add((r.queue, r.key))
            if r.group:
                (tx.held if r.n in self.rows or r.state in ACTIVE else tx.queued).add((r.queue, r.group))

    def insert(self, tx, row):
        if row.group and self.of_group(tx, row.queue, row.group, UNFINISHED):
            row.state = "blocked"
            tx.blocked.append((row.queue, row.group))
        tx.changes[row.n] = row
        self.lock(tx, row)

    def change(self, tx, row):
        """A copy of the row, to be changed. Who changes its key or group calls lock()."""
        new = tx.changes[row.n] = copy.copy(row)
        self.lock(tx, row)
        return new

    def end(self, tx, rows, how, result=None, keep=False):
        """They go away, into the archive if somebody wants them there."""
        for row in rows:
            self.lock(tx, row)
            tx.changes[row.n] = None
            tx.ended[row.n] = how
            if how != "purged" and (self.queues[row.queue].keeps or (how == "done" and (keep or result is not None))):
                kept = tx.kept[row.n] = copy.copy(row)
                kept.state, kept.result = how, result
                if how == "done": # an error was that of an earlier attempt
                    kept.error = None
        for row in rows:
            self.ended(tx, row, how)

    def ended(self, tx, row, how):
        """What follows from that; row: as it was."""
        if row.group and row.state in ACTIVE:
            self.next(tx, row.queue, row.group)

    def died(self, tx, row):
        """It is dead now."""
        if row.group:
            self.next(tx, row.queue, row.group)

    def next(self, tx, queue, group):
        """The first that is blocked goes on."""
        blocked = self.of_group(tx, queue, group, ("blocked",))
        if blocked and not self.of_group(tx, queue, group, ACTIVE):
            row = self.change(tx, blocked[0])
            row.state, row.position = "later" if row.delayed else "ready", self.place()

    def revive(self, tx, row):
        """A dead one is run again."""
        row = self.change(tx, row)
        row.state, row.position = "blocked" if row.group else "ready", self.place()
        row.attempt = row.failures = 0
        row.delayed = row.lost = False
        if row.group:
            tx.blocked.append((row.queue, row.group))

    # --- takes, which are committed by themselves -------------------------------------------------

    def drop_late(self, queue):
        tx, locked = Tx(), self.locked()
        self.end(tx, [r for r in self.rows.values() if r.queue == queue and r.is_late() and r.n not in locked],
                 "expired")
        self.commit(tx)

    def room(self, queue):
        """How many more may be begun: an end that is not committed makes no room."""
        most = self.queues[queue].running
        return max(0, most - sum(r.queue == queue and r.state == "leased" for r in self.rows.values())) if most else 10 ** 6

    def next_jobs(self, queues, limit, paused):
        """Of what is committed, and not locked."""
        locked, out = self.locked(), []
        for queue in queues:
            if queue not in paused and len(out) < limit:
                self.drop_late(queue)
                ready = [r for r in self.rows.values()
                         if r.queue == queue and r.state == "ready" and r.n not in locked]
                out += sorted(ready, key=Row.order)[:min(limit - len(out), self.room(queue))]
        return out

    def give_back(self, tokens, error):
        """In the order of queues and ids, as one statement does it. Without an error: not counted."""
        for token in sorted(tokens, key=token_order):
            row, tx = self.leased(self.rows, token), Tx()
            if row is None:
                continue
            if row.cancelled:
                self.end(tx, [row], "cancelled")
            else:
                row = self.change(tx, row)
                over = row.is_last_attempt() and error is not None
                if error is None:
                    row.attempt -= 1
                else:
                    row.delayed |= row.lost and not row.again
                    row.error, row.lost = error, True
                    row.failures += 1
                row.state, row.token, row.again = "later" if row.delayed else "ready", None, False
                if over:
                    row.state, row.died = "dead", self.place()
                    self.died(tx, row)
            self.commit(tx)

    # --- the end of a transaction -----------------------------------------------------------------

    @staticmethod
    def heard(tx, n):
        """A savepoint: what was done may have been taken back, as far as the proxy knows."""
        if tx.ended.get(n) != "done":
            return ("gone",)
        return ("done", "gone") if tx.parts else ("done",)

    def commit(self, tx):
        for queue, group in tx.blocked:
            self.next(tx, queue, group)
        for n, row in tx.changes.items():
            if row is not None:
                self.rows[n] = row
            elif n in self.rows:
                self.last[n] = self.rows.pop(n)
                self.gone[n] = self.heard(tx, n)
        for n, row in tx.kept.items():
            if row is not None:
                self.kept[n] = row
            else:
                self.kept.pop(n, None)
        self.done |= tx.done
        self.keep.update(tx.keep)
        self.effects += tx.effects
