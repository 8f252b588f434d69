"""Contenders whose clients send SQL, one statement for each step of a job.

For:     loads/.
Must not know: how they are loaded.
Entry points: Sql and what its children give: fresh, fill, push, take, done, script.
"""

import os

from meter import Meter


class Sql:
    """via: the pooler's name or None for Postgres itself; database: the pooler's, which is the kind
    of pooling."""

    name = ""
    column = 0   # of the answer to take(): what done() needs
    quote = ""   # around each of these
    table = ""   # where the jobs are, for statistics

    def __init__(self, via=None, database="tx"):
        self.via = via
        self.database = database

    def label(self):
        """What a table calls it."""
        if self.via in (None, self.name):
            return self.name + (", direct" if self.via is None else "")
        return "%s, %s (%s)" % (self.name, self.via, self.database)

    def available(self):
        """Whether it can be had here."""
        return True

    def fresh(self, rig, poolers):
        """An empty queue."""
        raise NotImplementedError

    def fill(self, rig, poolers, n):
        """n jobs more."""
        raise NotImplementedError

    def push(self, batch):
        """The statement that pushes so many."""
        raise NotImplementedError

    def take(self, batch):
        """The statement that takes at most so many."""
        raise NotImplementedError

    def done(self, batch):
        """The statement that finishes what was taken, as %s."""
        raise NotImplementedError

    def script(self, mode):
        """Push, take and done for pgbench."""
        raise NotImplementedError

    def steps(self, load, batch=1):
        """The statements of a load: cycle, push, drain."""
        steps = [self.push(batch)] if load != "drain" else []
        return steps if load == "push" else steps + [self.take(batch), self.done(batch)]

    def loop(self, rig, poolers, clients, seconds, load="cycle", batch=1, limit=0, queues=1):
        """Runs a load: the figures of clients/loop.c; the cost per job as "cost", jobs per second
        as "jobs"."""
        pooler = poolers.get(self.via)
        meter = Meter(rig, pooler)
        got = rig.client(pooler, "loop", clients, seconds, limit, self.column, self.quote, queues,
                         0, *self.steps(load, batch), database=self.database)
        if load == "drain":
            got["jobs"] = got["rows"] / got["seconds"]
        else:
            got["jobs"] = got["rate"] * batch
        got["cost"] = meter.read(max(got["rows"] if load == "drain" else got["turns"] * batch, 1))
        return got

    def pgbench(self, rig, poolers, mode, clients, seconds):
        """Jobs per second of pgbench with that protocol, and the cost per job."""
        pooler = poolers.get(self.via)
        path = os.path.join(rig.dir, "script.sql")
        rig.write(path, self.script(mode))
        meter = Meter(rig, pooler)
        turns, tps = rig.pgbench(pooler, self.database, mode, clients, "-T", seconds, script=path)
        return tps, meter.read(turns)
