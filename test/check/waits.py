"""What the model of QUEUE statements knows of TAKE and POP ... WAIT: who waits gets jobs as soon as there are any, in the
order in which they came.

For:     model.py.
Must not know: the other verbs.
Entry points: Waits (wait, give_up, serve, is_awaited), a part of model.Program.
"""

from links import Refused, Stuck
from pgwire import cancel


class Taker:
    """A connection of its own that waits; c: a model.Connection."""

    def __init__(self, c, queue, limit, pop):
        self.c, self.queue, self.limit, self.pop = c, queue, limit, pop


class Waits:
    """self: a Program. takers: those who wait, in their order."""

    def wait(self, _):
        queue = self.random.choice(list(self.state.queues))
        # what somebody has locked is not announced when he lets go of it
        there = self.state.room(queue) and any(r.queue == queue and r.state == "ready" for r in self.state.rows.values())
        if there:
            return
        # two kinds of statements may be under way at once, and come in either order
        kinds = [t.pop for t in self.takers if t.queue == queue]
        self.begin_to_take(queue, kinds[0] if kinds else self.random.random() < 0.15, self.random.choice((1, 1, 2, 5)))

    def begin_to_take(self, queue, pop, limit):
        if len(self.takers) == 4:
            return
        c = self.connection("t%d" % self.state.n, True)
        sql = "QUEUE %s %s LIMIT %d WAIT '10 min'" % ("POP" if pop else "TAKE", queue, limit)
        sql += "" if pop else " LEASE '1 hour'"
        c.link.w.query(sql)
        self.script.append("%s %s" % (c.number, sql))
        self.takers.append(Taker(c, queue, limit, pop))
        self.parked()

    def parked(self, more=0):
        """All who wait are seen to do so. more: of other AWAITs."""
        try:
            self.connect.wait_parked(len(self.waiting) + more, len(self.takers))
        except AssertionError as e:
            self.fail("%s; the last of them was %s" % (e, self.script[-1]))

    def is_awaited(self):
        return bool(self.takers)

    def answer_of(self, taker):
        taker.c.link.patience = self.patience
        try:
            got = taker.c.link.answer()
        except Refused as e:
            got = e.code
        except Stuck:
            self.fail("%s of %s gets nothing; the sessions are\n%s" % (taker.c.number, taker.queue, self.sessions()))
        self.script.append("%s of %s -> %r" % (taker.c.number, taker.queue, got))
        self.takers.remove(taker)
        return got

    def give_up(self, _):
        if not self.takers:
            return
        taker = self.random.choice(self.takers)
        self.script.append("%s is cancelled" % taker.c.number)
        cancel(taker.c.link.w)
        if self.answer_of(taker) != "57014":
            self.fail("wanted 57014")
        taker.c.link.close()

    def serve(self):
        """Each takes what is there when its turn comes; with a goodbye it keeps its leases."""
        for taker in list(self.takers):
            jobs = self.state.next_jobs([taker.queue], taker.limit, self.paused)
            if jobs:
                self.taken(taker.c, jobs, self.answer_of(taker), taker.pop)
                taker.c.link.close()
