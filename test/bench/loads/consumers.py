"""A stream while somebody is in the way: an old snapshot, a consumer that is slow, ten that never come, a pusher that does not end.

For:     run.py.
Entry points: consumers.

What pushes, and one other consumer, are measured by turns: with nobody in the way, in a second database of the same Postgres with
the same past, and beside it. A transaction that has pushed is open in all databases, so its turns are in one stream, with it and
without.
"""

import contextlib

from common import Failed
from loads.streams import AT_ONCE, CLIENTS, LIMIT, push_step
from meter import Meter
from table import Goal, Table, median, number, ratio_of

SLEEPERS = 10   # subscriptions that are never read
TURN = 0.6      # seconds of pushes in one turn; what they were is read behind it
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pgbench_branches;"
PUSHED = "BEGIN; QUEUE PUSH events '{\"open\": true}';"
KINDS = ("a snapshot", "a slow consumer", "%d that never come" % SLEEPERS, "a pusher")


class Stream:
    """One with one consumer that reads all of it."""

    def __init__(self, rig, pooler, database):
        self.rig, self.pooler, self.database = rig, pooler, database

    def fresh(self):
        self.tell("QUEUE DROP events IF EXISTS", "QUEUE CREATE events WITH (kind = stream)", "QUEUE SUBSCRIBE r0 TO events")

    def tell(self, *statements):
        self.rig.statement(self.pooler, *statements, database=self.database)

    def _loop(self, clients, seconds, limit, *steps):
        return self.rig.client(self.pooler, "loop", clients, seconds, limit, int(len(steps) > 1), "", 1, 0, *steps, database=self.database)

    def read(self, limit):
        got = self._loop(1, 600, limit, "QUEUE TAKE events FOR r0 LIMIT %d" % LIMIT, "QUEUE DONE '%1'")
        if got["rows"] < limit:
            raise Failed("%d events of %d were delivered" % (got["rows"], limit))
        return got["rows"] / got["seconds"]

    def finish(self, n):
        """So many are pushed and read."""
        self._loop(4, 600, n // AT_ONCE, push_step("events", AT_ONCE))
        self.read(n // AT_ONCE * AT_ONCE)

    def turn(self):
        """Pushes and reads per second, and the microseconds of Postgres' CPU for each."""
        meter = Meter(self.rig)
        pushed = self._loop(CLIENTS, TURN, 0, push_step("events"))
        push_cost = meter.read(pushed["turns"]).postgres_us
        meter = Meter(self.rig)
        read = self.read(int(pushed["turns"]))
        return pushed["rate"], push_cost, read, meter.read(pushed["turns"]).postgres_us


@contextlib.contextmanager
def _in_the_way(rig, stream, kind):
    if kind == KINDS[0]:
        with rig.session() as other:
            other.run(SNAPSHOT)
            yield
        return
    if kind == KINDS[1]:
        stream.tell("QUEUE SUBSCRIBE slow TO events WITH (lease = '1 day')", "QUEUE PUSH events '{}'", "QUEUE TAKE events FOR slow")
        stream.read(1)
    else:
        stream.tell(*("QUEUE SUBSCRIBE s%d TO events" % i for i in range(SLEEPERS)))
    yield


def _by_turns(rig, pooler, plan, kind):
    """(undisturbed, disturbed): turns of each."""
    quiet, noisy = Stream(rig, pooler, "quiet"), Stream(rig, pooler, "tx")
    got = {quiet: [], noisy: []}
    for stream in (quiet, noisy):
        stream.fresh()
    with _in_the_way(rig, noisy, kind):
        for stream in (quiet, noisy):
            stream.finish(plan.finished)
        for i in range(plan.consumer_turns):
            for stream in (quiet, noisy) if i % 2 == 0 else (noisy, quiet):
                got[stream].append(stream.turn())
    for stream in (quiet, noisy):
        stream.tell("QUEUE DROP events")
    return got[quiet], got[noisy]


def _beside_a_pusher(rig, pooler, plan):
    """The same in one stream; each turn has a past of its own, as what is open then looks back no further."""
    stream = Stream(rig, pooler, "tx")
    got = {True: [], False: []}
    stream.fresh()
    for i in range(plan.consumer_turns):
        for open_one in (False, True) if i % 2 == 0 else (True, False):
            with rig.session(pooler) as other:
                if open_one:
                    other.run(PUSHED)
                stream.finish(plan.finished // plan.consumer_turns)
                got[open_one].append(stream.turn())
            if open_one:
                other.process.wait()
    stream.tell("QUEUE DROP events")
    return got[False], got[True]


def consumers(rig, plan):
    """a stream with an old snapshot, slow and dead consumers, an open pusher"""
    rows, shares = [], []
    with rig.pooler("qbouncer") as pooler:
        for kind in KINDS:
            quiet, noisy = (tuple(zip(*of)) for of in (
                _beside_a_pusher(rig, pooler, plan) if kind == KINDS[3] else _by_turns(rig, pooler, plan, kind)))
            share = [ratio_of(noisy[i], quiet[i]) for i in range(4)]
            rows.append([kind, *(cell for i in (0, 2) for cell in (
                number(median(quiet[i])), number(median(noisy[i])), number(share[i], "%.2f"),
                number(median(quiet[i + 1]), "%.1f"), number(median(noisy[i + 1]), "%.1f"), number(share[i + 1], "%.2f")))])
            shares.append("%s: %+.0f and %+.0f %%, CPU %+.0f and %+.0f" % (kind, *(100 * share[i] - 100 for i in (0, 2, 1, 3))))
    return Table(
        "Streams while somebody is in the way",
        "A snapshot of REPEATABLE READ that is held; a consumer that has taken a delivery and does not end it; %d subscriptions that "
        "nobody ever reads; an open transaction that has pushed. %d events were pushed and read meanwhile; after that pushes of %d "
        "clients one at a time, for %g s, and the reading of these by another consumer, %d turns of each. Events per second, and "
        "microseconds of CPU of Postgres for each. Undisturbed is a second database with the same past; beside a pusher (with a past "
        "that is divided among the turns) the same stream without it. Shares are medians of the turns'."
        % (SLEEPERS, plan.finished, CLIENTS, TURN, plan.consumer_turns),
        ["", "push/s", "disturbed", "share", "CPU", "disturbed", "share", "read/s", "disturbed", "share", "CPU", "disturbed", "share"], rows,
        [Goal("pushes to a stream, and another consumer, while somebody is in the way", "the same rates, +- 3 %", "; ".join(shares))])
