"""What the model of QUEUE statements knows of PUSH: by itself, behind DONE ... THEN, and by a query.

For:     model.py.
Must not know: the other verbs.
Entry points: Pushes (push, wish, tell, told), a part of model.Program; Push.
"""

from types import SimpleNamespace

from state import Row


class Push:
    """What a push says."""

    def __init__(self, random, queue):
        self.queue = queue
        self.n = random.choice((1, 1, 2, 3))
        self.priority = random.choice((None, None, 0, 1, 2))
        self.later = random.random() < 0.15
        self.key = random.choice(("k1", "k2")) if random.random() < 0.2 else None
        self.group = random.choice(("g1", "g2")) if random.random() < 0.25 else None
        self.batch = random.choice(("b1", "b2")) if random.random() < 0.2 else None
        self.keep = 1 if self.key and random.random() < 0.5 else 0     # FOR so many days
        if self.keep:        # its time does not end here: few keys, or there would soon be no free one
            self.key = "f%d" % random.randrange(2)
        elif self.key and random.random() < 0.3:
            self.key = "f%d" % random.randrange(2)
        self.policy = random.choice((None, "IGNORE", "REPLACE", "RERUN", "ERROR")) if self.key else None
        self.newer = None     # a time, as a text
        self.returning = random.random() < 0.4
        self.expires = None
        if random.random() < 0.1:
            self.expires = "1 hour" if self.later or self.group or queue == "m" or random.random() < 0.3 \
                else "1 microsecond"
        self.headers = random.choice(('{"h": 1}', "{}")) if random.random() < 0.3 else None
        self.most = random.choice((1, 2, 900)) if random.random() < 0.2 else None
        self.no_delay = random.random() < 0.1 and not self.later
        if self.key:
            self.n = 1

    def is_late(self):
        return self.expires == "1 microsecond"

    def sql(self, payloads, before):
        """What follows QUEUE, and all parameters, of which there are some before."""
        params = list(before)

        def value(v):
            params.append(v)
            return "$%d" % len(params)
        return "PUSH %s %s%s" % (self.queue, ", ".join(value(p) for p in payloads), self.options(value)), params

    def options(self, value):
        """value: makes a parameter."""
        out = ""
        if self.key:
            out += " KEY " + value(self.key)
            out += " FOR '%d day'" % self.keep if self.keep else ""
            out += " ON DUPLICATE " + self.policy if self.policy else ""
            out += " IF NEWER " + value(self.newer) if self.newer else ""
        if self.group:
            out += " GROUP " + value(self.group)
        if self.batch:
            out += " BATCH " + value(self.batch)
        if self.priority is not None:
            out += " PRIORITY " + value(self.priority)
        if self.later or self.no_delay:
            out += " DELAY '1 hour'" if self.later else " DELAY '0'"
        if self.headers:
            out += " HEADERS '%s'" % self.headers
        if self.most:
            out += " ATTEMPTS " + value(self.most)
        if self.expires:
            out += " EXPIRES '%s'" % self.expires
        return out + (" RETURNING ID" if self.returning else "")


class Pushes:
    """self: a Program."""

    def wish(self, tx, queue=None):
        """A push for which nobody has to wait; None: try another time."""
        p = Push(self.random, queue or self.random.choice(list(self.state.queues)))
        old = self.state.with_key(tx, p.queue, p.key) if p.key else None
        if not self.is_free(tx, p) or (old and not self.state.is_free(tx, old)):
            return None
        if old and old.group and p.is_late():
            return None
        return p

    def is_free(self, tx, p):
        """Has nobody to be waited for, because of its key or its group?"""
        row = Row(0, p.queue, 0, 0, "later" if p.later else "ready")
        row.key, row.group = p.key, p.group
        return self.state.is_free(tx, row)

    def tell(self, c, tx, p):
        """Says it, as far as it is free; p: a wish that may have been changed."""
        if self.is_free(tx, p):
            sql, params = p.sql(self.words(p), [])
            self.told(c, tx, p, sql, params)

    def pushed(self, tx, p):
        """Each job that counts, None where none does; or a SQLSTATE."""
        s, out = self.state, []
        old = s.with_key(tx, p.queue, p.key) if p.key else None
        if old and old.is_late():
            s.end(tx, [old], "expired")
            old = None
        if old:
            return self.pushed_again(tx, p, old)
        kept = s.keeper(tx, p.queue, p.key) if p.key else None
        if kept is not None and not (p.newer and kept.version and p.newer > kept.version):
            if p.policy == "ERROR":
                return "23505"
            return [SimpleNamespace(id=s.id_of(tx, kept.n)) if p.returning else None]
        if self.is_too_much(tx, p):
            return "QB004"
        for _ in range(p.n):
            out.append(self.new_row(tx, p))
        return out

    def is_too_much(self, tx, p):
        most = self.state.queues[p.queue].most
        return most and self.state.unfinished(tx, p.queue) + p.n > most

    def new_row(self, tx, p):
        s = self.state
        s.n += 1
        row = Row(s.n, p.queue, p.priority or 0, s.place(), "later" if p.later else "ready")
        row.key, row.group, row.expired = p.key, p.group, p.is_late()
        row.headers, row.most, row.batch, row.version = p.headers, p.most, p.batch, p.newer
        if p.is_late():
            self.late.add(p.queue)
        s.insert(tx, row)
        tx.pushed[p.queue] = tx.pushed.get(p.queue, 0) + 1
        if row.key:
            s.keep_key(tx, row, p.keep, p.newer)
        return row

    def pushed_again(self, tx, p, old):
        policy = p.policy or "IGNORE"
        if policy == "ERROR":
            return "23505"
        if policy == "IGNORE" or (p.newer and old.version and p.newer <= old.version):
            return [old if p.returning else None]
        row = self.state.change(tx, old)
        row.version = p.newer or row.version
        if p.keep or p.newer:
            self.state.keep_key(tx, row, p.keep, p.newer)
        leased = old.state == "leased"
        row.again = leased
        if policy == "RERUN":
            return [row if leased or p.returning else None]
        first = "later" if p.later else "ready"
        if not (old.state == first and old.priority == (p.priority or 0)):
            row.priority, row.position = p.priority or 0, self.state.place()
            if old.state not in ("leased", "blocked"):
                row.state = first
        self.state.n += 1
        row.word = "u%d" % self.state.n
        row.delayed, row.expired = p.later, p.is_late()
        row.headers, row.most = p.headers, p.most
        if p.is_late():
            self.late.add(p.queue)
        if not leased:
            row.attempt = row.failures = 0
            row.lost = False
        return [row]

    def words(self, p):
        """The payloads that the next jobs will have."""
        queue = self.state.queues[p.queue]
        return [queue.payload("u%d" % (self.state.n + i + 1)) for i in range(p.n)]

    def push(self, c):
        tx = self.tx(c)
        p = self.wish(tx)
        if p is None:
            return
        if self.random.random() < 0.2 and p.queue != "y" and not p.keep and not p.newer:
            sql, params = self.from_query(p)
            self.told(c, tx, p, sql, params)
        else:
            self.tell(c, tx, p)

    def from_query(self, p):
        """The same by PUSH ... SELECT."""
        p.returning = False
        kind = "json" if self.state.queues[p.queue].kind == "jsonb" else "text"
        cast = {"priority": "int", "delay": "interval", "key": "text", "group": "text", "expires": "interval",
                "headers": "jsonb", "attempts": "int", "batch": "text"}
        values = {"priority": p.priority, "delay": "1 hour" if p.later else None, "key": p.key, "group": p.group,
                  "expires": p.expires, "headers": p.headers, "attempts": p.most, "batch": p.batch}
        names = [n for n in values if values[n] is not None]
        params = [values[n] for n in names]
        params.append("{%s}" % ",".join('"%s"' % w.replace('"', '\\"') for w in self.words(p)))
        columns = "(payload, %s) " % ", ".join(names) if names else ""
        if p.policy:
            columns += "ON DUPLICATE %s " % p.policy
        more = "".join(", $%d::%s" % (i + 1, cast[n]) for i, n in enumerate(names))
        return "PUSH %s %sSELECT x%s FROM unnest($%d::%s[]) AS x" % (
            p.queue, columns, more, len(params), kind), params

    def told(self, c, tx, p, sql, params, code=None):
        """Runs a statement that ends with this push. code: it fails with this before. True: it was done."""
        before = tx.snapshot()
        loose = p.queue in self.loose
        self.loosen(tx, p)
        jobs = code or self.pushed(tx, p)
        got = self.run_one(c, "QUEUE " + sql, params)
        if jobs == "QB004" and loose and got != "QB004":
            jobs = [self.new_row(tx, p) for _ in range(p.n)]
        if isinstance(jobs, str):
            if got != jobs:
                self.fail("wanted %s" % jobs)
            if jobs == "QB004" and not any(r and r.queue == p.queue for t in self.state.open for r in t.changes.values()):
                self.loose.discard(p.queue)
            tx.restore(before)
            if c.tx:
                c.tx.fail()
            return False
        jobs = [j for j in jobs if j is not None]
        if isinstance(got, str) or got[1] != "INSERT 0 %d" % len(jobs) or len(got[0]) != len(jobs) * p.returning:
            self.fail("wanted %d jobs" % len(jobs))
        for job, r in zip(jobs, got[0]):
            if job.id not in (None, int(r["id"])):
                self.fail("it is job %d" % job.id)
            job.id = int(r["id"])
        self.end(c, tx)
        return True

    def loosen(self, tx, p):
        """Who does not see what others have pushed, or sees ends that are taken back, may exceed the limit."""
        if not self.state.queues[p.queue].most:
            return
        mine = self.state.rows
        for t in self.state.open:
            for n, row in t.changes.items():
                if (row is None or row.state == "dead") if t is tx else (row and row.queue == p.queue and n not in mine):
                    self.loose.add(p.queue)
