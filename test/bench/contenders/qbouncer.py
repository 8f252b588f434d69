"""qbouncer: the QUEUE statements."""

from contenders import PAYLOAD
from contenders.sql import Sql


class Qbouncer(Sql):
    """queue: its name, perhaps with %d, which becomes a number."""

    name = "qbouncer"
    column = 1
    quote = "'"
    table = "queue.q_jobs"

    def __init__(self, queue="jobs", database="tx"):
        super().__init__("qbouncer", database)
        self.queue = queue

    def fresh(self, rig, poolers):
        rig.statement(poolers["qbouncer"], "QUEUE DROP %s IF EXISTS" % self.queue,
                      "QUEUE CREATE %s" % self.queue, database=self.database)

    def fill(self, rig, poolers, n):
        rig.statement(poolers["qbouncer"], "QUEUE PUSH %s SELECT '%s'::jsonb FROM "
                      "generate_series(1, %d)" % (self.queue, PAYLOAD, n), database=self.database)

    def push(self, batch):
        return "QUEUE PUSH %s %s" % (self.queue, ", ".join(["'%s'" % PAYLOAD] * batch))

    def take(self, batch):
        return "QUEUE TAKE %s LIMIT %d" % (self.queue, batch)

    def done(self, batch):
        return "QUEUE DONE %s"

    def script(self, mode):
        token = "':token'" if mode == "simple" else ":token"
        return ("QUEUE PUSH %s '%s';\nQUEUE TAKE %s WAIT '5s' \\gset\nQUEUE DONE %s;\n"
                % (self.queue, PAYLOAD, self.queue, token))


class Published(Qbouncer):
    """The same jobs, which come by a topic to which their queue is bound."""

    def label(self):
        return "PUBLISH"

    def fresh(self, rig, poolers):
        super().fresh(rig, poolers)
        rig.statement(poolers["qbouncer"], "QUEUE DROP TOPIC events IF EXISTS", "QUEUE CREATE TOPIC events",
                      "QUEUE BIND %s TO 'events.#'" % self.queue, database=self.database)

    def push(self, batch):
        return "QUEUE PUBLISH 'events.of.jobs' %s" % ", ".join(["'%s'" % PAYLOAD] * batch)


class Pushed(Qbouncer):
    """What that is compared with."""

    def label(self):
        return "PUSH"


class PushedWithHeaders(Pushed):
    """The same bytes as a publication."""

    def label(self):
        return "PUSH ... HEADERS"

    def push(self, batch):
        return super().push(batch) + " HEADERS '{\"topic\": \"events.of.jobs\"}'"
