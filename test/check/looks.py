"""What the model of QUEUE statements knows of those that change nothing: STATS, PEEK, JOB, AWAIT.

For:     model.py.
Must not know: the other verbs.
Entry points: Looks (stats, peek, job, wait_for_job, hear), a part of model.Program.
"""

from links import Refused, Stuck, interpolated
from state import Row


class Looks:
    """self: a Program. waiting: (link, job) of each AWAIT under way, each on a connection of its own."""

    def stats(self, c):
        queue, tx = self.random.choice(list(self.state.queues)), self.tx(c)
        got = self.run_one(c, "QUEUE STATS %s" % queue)
        rows = [r for r in self.state.view(tx).values() if r.queue == queue]
        states = ("leased", "dead", "blocked") + (("ready", "later") if queue not in self.late else ())
        wanted = {s: str(sum(r.state == s for r in rows)) for s in states}
        if queue not in self.late:
            wanted["done"] = str(sum(r.queue == queue for r in self.state.view_kept(tx).values()))
        if isinstance(got, str) or {s: got[0][0][s] for s in wanted} != wanted:
            self.fail("wanted %r" % wanted)

    def peek(self, c):
        queue, tx = self.random.choice(list(self.state.queues)), self.tx(c)
        payload = self.state.queues[queue].payload
        got = self.run_one(c, "QUEUE PEEK %s LIMIT $1 STATE ready" % queue, [1000])
        rows = [r for r in self.state.view(tx).values() if r.queue == queue]
        # somebody who waits may be about to find that it is of no use
        late = {payload(r.word) for r in list(self.state.last.values()) + rows if r.queue == queue and r.expired}
        ready = sorted((r for r in rows if r.state == "ready" and not r.is_late()), key=Row.order)
        if isinstance(got, str) or [r["payload"] for r in got[0] if r["payload"] not in late] != \
                [payload(r.word) for r in ready]:
            self.fail("wanted %r" % [r.word for r in ready])

    def known(self, tx):
        """All jobs, of all times, of which the id is known: as they are now, or were last."""
        rows = {}
        for t in [tx] + self.state.open:
            rows.update(t.changes)
        rows.update(self.state.kept)
        rows.update(self.state.rows)
        rows.update(self.state.last)
        return [r for r in rows.values() if r is not None and r.id is not None]

    def job(self, c):
        tx = self.tx(c)
        rows = self.known(tx)
        if not rows:
            return
        n = self.random.choice(sorted(rows, key=lambda r: r.n)).n
        ref = self.ref(next(r for r in rows if r.n == n))
        row = self.state.view(tx).get(n) or self.state.view_kept(tx).get(n)
        if row is not None and (row.is_late() or row.state == "expired"):
            return
        if row is None and n in self.state.last and self.state.last[n].expired:
            return
        got = self.run_one(c, "QUEUE JOB $1", [ref])
        if row is None:
            if got != "QB003":
                self.fail("wanted QB003")
            if c.tx:
                c.tx.fail()
            return
        names = ("queue", "state", "attempt", "failures", "error", "key", "group", "result", "payload")
        wanted = (row.queue, self.told_state(row.queue, row.group, row.state), str(row.attempt), str(row.failures), row.error,
                  row.key, row.group or row.later, row.result, self.state.queues[row.queue].payload(row.word))
        if isinstance(got, str):
            self.fail("wanted %r" % (wanted,))
        told = got[0][0]
        told["state"] = self.told_state(told["queue"], told["group"], told["state"])
        if tuple(told[x] for x in names) != wanted:
            self.fail("wanted %r" % (wanted,))

    @staticmethod
    def told_state(_queue, _group, state):
        """Of a job, as far as it is certain."""
        return state

    def batch(self, c):
        """How many of a batch are in which state, as far as they are committed."""
        queue, name = self.random.choice(list(self.state.queues)), self.random.choice(("b1", "b2"))
        if queue in self.late:
            return
        got = self.run_one(c, "QUEUE AWAIT BATCH $1 ON %s" % queue, [name])
        of = [r for r in self.state.rows.values() if (r.queue, r.batch) == (queue, name)]
        wanted = {s: str(sum(r.state == s for r in of)) for s in ("ready", "later", "leased", "blocked", "dead")}
        wanted["ended"] = "t" if all(r.state == "dead" for r in of) else "f"
        if self.state.queues[queue].keeps:
            kept = [r for r in self.state.kept.values() if (r.queue, r.batch) == (queue, name)]
            wanted.update((s, str(sum(r.state == s for r in kept))) for s in ("done", "cancelled", "expired"))
            wanted["dead"] = str(sum(r.state == "dead" for r in of + kept))
        if isinstance(got, str) or {s: got[0][0][s] if s != "ended" else got[0][0][s][0] for s in wanted} != wanted:
            self.fail("wanted %r, got %r" % (wanted, got))

    # --- AWAIT ------------------------------------------------------------------------------------

    def outcome(self, n):
        """What has become of a job, as far as it is committed: (states, result, error); None: it has not ended."""
        row, kept = self.state.rows.get(n), self.state.kept.get(n)
        if row is not None and row.is_late():
            return ("expired", "gone"), None, None
        if row is not None:
            return (("dead",), None, row.error) if row.state == "dead" else None
        if kept is not None:
            return ("expired", "gone") if kept.state == "expired" else (kept.state,), kept.result, None
        return ("gone",), None, None

    def check_outcome(self, got, *wanted):
        if isinstance(got, str) or got[1] != "SELECT %d" % len(wanted) or any(
                r["state"] not in states or (r["result"], r["error"]) != (result, error)
                for r, (states, result, error) in zip(got[0], wanted)):
            self.fail("wanted %r, got %r" % (wanted, got))

    def look_at_jobs(self, c):
        """AWAIT of several, which does not wait: those that have ended."""
        rows = self.known(self.tx(c))
        if not rows:
            return
        some = self.random.choices(sorted(rows, key=lambda r: r.n), k=self.random.randint(2, 4))
        refs = [self.ref(r) for r in some]
        if self.random.random() < 0.5:
            sql, params = "QUEUE AWAIT ANY($1)", ["{%s}" % ",".join(refs)]
        else:
            sql, params = "QUEUE AWAIT " + ", ".join("$%d" % (i + 1) for i in range(len(refs))), refs
        wanted = [self.outcome(r.n) for r in some]
        ended = [w for w in wanted if w is not None]
        enough = len(ended) == len(wanted)
        how = self.random.choice(("", " ALL", " ANY"))
        if not c.tx and (ended if how == " ANY" else enough) and self.random.random() < 0.5:
            how += " WAIT '1 min'"
        self.check_outcome(self.run_one(c, sql + how, params), *ended)

    def wait_for_job(self, c):
        rows = self.known(self.tx(c))
        if not rows:
            return
        row = self.random.choice(sorted(rows, key=lambda r: r.n))
        sql, params = "QUEUE AWAIT $1", [self.ref(row)]
        if self.random.random() < 0.3:
            params = [str(row.id)]
        if params[0] == str(row.id) or self.random.random() < 0.3:
            sql += " ON " + row.queue
        wanted = self.outcome(row.n)
        if wanted is None:
            self.expect(c, sql, params, ([], "SELECT 0"))
            if len(self.waiting) < 3 and row.n not in [n for _, n in self.waiting]:
                self.begin_to_wait(row, interpolated(sql, params))
            return
        if not c.tx and self.random.random() < 0.5:
            sql += " WAIT '1 min'"
        self.check_outcome(self.run_one(c, sql, params), wanted)

    def begin_to_wait(self, row, sql):
        """On a connection of its own."""
        link = self.connect(self.random, True)
        link.w.query(sql + " WAIT '10 min'")
        self.script.append("* %s WAIT '10 min'" % sql)
        self.waiting.append((link, row.n))
        self.parked()

    def hear(self):
        """What those hear who wait."""
        for link, n in list(self.waiting):
            wanted = self.outcome(n)
            if wanted is None:
                continue
            if wanted[0] == ("gone",) and n in self.state.gone:
                wanted = (self.state.gone[n],) + wanted[1:]
            try:
                got = link.answer()
            except Refused as e:
                got = e.code
            except Stuck:
                got = "nothing"
            self.script.append("* job of %s: %r" % (self.state.queues[self.state.last[n].queue].payload(
                self.state.last[n].word) if n in self.state.last else n, got))
            self.check_outcome(got, wanted)
            self.waiting.remove((link, n))
            link.close()
