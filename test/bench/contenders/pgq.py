"""PgQ: many push, one consumer reads batches that a ticker cuts. It has no competing consumers, so
"cycle" is what one consumer finishes while the others push.
"""

import os
import subprocess
import threading
import time

from common import Failed
from contenders import PAYLOAD
from contenders.outside import Missing, Outside
from pgcluster import pg_major
from pooler import USER
from programs import install, installed

CONFIG = """\
[pgqd]
base_connstr = host={host} port={port} user={user}
initial_database = bench
database_list = bench
ticker_period = {period}
check_period = 1
logfile = {dir}/pgqd.log
pidfile = {dir}/pgqd.pid
"""

PUSH = "SELECT pgq.insert_event('jobs', 'job', '%s')" % PAYLOAD

CONSUME = (
    "SELECT pgq.next_batch('jobs', 'bench')",
    "SELECT b, ev_id, ev_data FROM (SELECT %s::int8 AS b) AS x "
    "LEFT JOIN LATERAL pgq.get_batch_events(b) ON true",
    "SELECT pgq.finish_batch((SELECT max(b) FROM unnest('{%s}'::int8[]) AS b))",
)


class Pgq(Outside):
    """PgQ of Debian, pgqd."""

    name = "PgQ"
    note = "one consumer, in batches"

    def __init__(self, rig):
        super().__init__(rig)
        self.program = None

    @classmethod
    def fetch(cls):
        install("postgresql-%d-pgq3" % pg_major())
        return installed("pgqd")

    def start(self):
        try:
            self.program = self.fetch()
            self.rig.psql("CREATE EXTENSION IF NOT EXISTS pgq")
        except (Failed, RuntimeError) as failed:
            raise Missing(str(failed).splitlines()[0]) from failed
        for sql in ("SELECT pgq.create_queue('jobs')",
                    "SELECT pgq.set_queue_config('jobs', 'ticker_max_lag', '100 ms')",
                    "SELECT pgq.set_queue_config('jobs', 'ticker_max_count', '1000')",
                    "SELECT pgq.register_consumer('jobs', 'bench')"):
            self.rig.psql(sql)
        self.looks_each(0.05)

    def rests(self):
        """Without pgqd, which rests for ten seconds when a queue is dropped while it looks at it."""
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def looks_each(self, period):
        """Has pgqd look whether a tick is due each so many seconds."""
        self.rests()
        config = os.path.join(self.rig.dir, "pgqd.ini")
        self.rig.write(config, CONFIG.format(host=self.rig.cluster.socket_dir, user=USER, period=period,
                                             port=self.rig.cluster.port, dir=self.rig.dir))
        with open(os.path.join(self.rig.dir, "pgqd.out"), "ab") as out:
            self.process = subprocess.Popen([self.program, config], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, preexec_fn=self.rig.become)

    def _push(self, clients, seconds, limit=0):
        return self.rig.client(None, "loop", clients, seconds, limit, 0, "", 1, 0, PUSH)

    def _consume(self, seconds, limit=0):
        """Jobs per second that one consumer finishes in that time, or until there is nothing."""
        got = self.rig.client(None, "loop", 1, seconds, limit, 0, "", 1, 5, *CONSUME)
        # the number of the batch is a row too, once per batch
        return max(got["rows"] - got["turns"], 0) / got["seconds"]

    def rate(self, load, clients, seconds, jobs):
        if load == "push":
            return self._push(clients, seconds)["rate"]
        if load == "cycle":
            push = threading.Thread(target=self._push, args=(clients, seconds))
            push.start()
            rate = self._consume(seconds)
            push.join()
            return rate
        self._push(clients, 120, jobs)
        time.sleep(1)  # the last tick
        return self._consume(120, 10 ** 9)
