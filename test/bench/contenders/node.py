"""Queues of node.js on Postgres: graphile-worker and pg-boss, each driven by a small script through
its own interface, in one process.
"""

import os
import shutil
import subprocess

from common import HERE, Failed, run
from contenders import PAYLOAD
from contenders.outside import Missing, Outside
from pooler import USER
from programs import npm_install


class Node(Outside):
    """package: its name, with the versions that the script was written for."""

    package = ""
    where = None   # the folder of what npm has installed; set by run.py

    @classmethod
    def fetch(cls):
        npm_install(cls.where, cls.package, "pg@8")

    def start(self):
        try:
            self.fetch()
        except Failed as failed:
            raise Missing("npm: " + str(failed).strip().splitlines()[-1]) from failed
        name = self.package.rsplit("@", 1)[0]
        shutil.copy(os.path.join(HERE, "contenders", name + ".mjs"), self.where)
        self.program = os.path.join(self.where, name + ".mjs")
        self._script("start", 0, 0, 0)

    def _script(self, load, clients, seconds, jobs):
        env = dict(os.environ, PGHOST="127.0.0.1", PGPORT=str(self.rig.cluster.port), PGUSER=USER,
                   PGDATABASE="bench", PAYLOAD=PAYLOAD)
        try:
            out = run(["node", self.program, load, str(clients), str(seconds), str(jobs)], env=env,
                      timeout=seconds * 2 + 120)
        except subprocess.TimeoutExpired as late:
            raise Failed("%s does not come to an end" % self.name) from late
        return float(out.split()[-1]) if load != "start" else 0

    def rate(self, load, clients, seconds, jobs):
        # a tenth: all of them would take minutes
        return self._script(load, clients, seconds, jobs // 10)


class Graphile(Node):
    """graphile-worker."""

    name = "graphile-worker"
    package = "graphile-worker@0.16"
    note = "node.js; addJob, runner"


class PgBoss(Node):
    """pg-boss."""

    name = "pg-boss"
    package = "pg-boss@10"
    note = "node.js; send, fetch, complete"
