"""pgmq: its own SQL script, which needs no extension, out of the npm package that carries it for
another engine (there is no Debian package).
"""

import glob
import os
import sys
import tarfile

from common import Failed
from contenders import PAYLOAD
from contenders.sql import Sql
from programs import npm_install

PACKAGE = "@electric-sql/pglite-pgmq@0.0.6"


class Pgmq(Sql):
    """where: the folder of what npm has installed; set by run.py."""

    name = "pgmq"
    table = "pgmq.q_jobs"
    where = None
    version = None
    _install = None

    def available(self):
        """Fetched once; why it cannot be had is said once."""
        if Pgmq._install is None:
            try:
                Pgmq._install = self._fetch()
            except (Failed, OSError, tarfile.TarError) as failed:
                Pgmq._install = ""
                print("pgmq is left out: %s" % str(failed).strip().splitlines()[-1], file=sys.stderr)
        return Pgmq._install != ""

    @classmethod
    def _fetch(cls):
        npm_install(cls.where, PACKAGE)
        found = glob.glob(os.path.join(cls.where, "node_modules", PACKAGE.rsplit("@", 1)[0], "dist",
                                       "pgmq.tar.gz"))
        if not found:
            raise Failed("the package has no pgmq.tar.gz")
        with tarfile.open(found[0]) as archive:
            # the installation, not the steps from one version to the next
            names = [n for n in archive.getnames()
                     if os.path.basename(n).startswith("pgmq--") and n.count("--") == 1]
            if len(names) != 1:
                raise Failed("not one installation script of pgmq but %d" % len(names))
            cls.version = os.path.basename(names[0])[len("pgmq--"):-len(".sql")]
            return archive.extractfile(names[0]).read().decode("utf-8")

    def fresh(self, rig, poolers):
        rig.psql("DROP SCHEMA IF EXISTS pgmq CASCADE")
        rig.psql(Pgmq._install)
        rig.psql("SELECT pgmq.create('jobs')")

    def fill(self, rig, poolers, n):
        rig.psql("SELECT count(*) FROM generate_series(1, %d, 1000) AS g, LATERAL (SELECT pgmq.send_batch('jobs', "
                 "array_fill('%s'::jsonb, ARRAY[least(1000, %d - g + 1)]))) AS s" % (n, PAYLOAD, n))

    def push(self, batch):
        if batch == 1:
            return "SELECT pgmq.send('jobs', '%s')" % PAYLOAD
        return "SELECT pgmq.send_batch('jobs', ARRAY[%s]::jsonb[])" % \
            ", ".join(["'%s'" % PAYLOAD] * batch)

    def take(self, batch):
        return "SELECT * FROM pgmq.read('jobs', 300, %d)" % batch

    def done(self, batch):
        return "SELECT pgmq.delete('jobs', %s::bigint)" if batch == 1 else \
            "SELECT pgmq.delete('jobs', '{%s}'::bigint[])"

    def script(self, mode):
        return "%s;\n%s \\gset\n%s;\n" % (self.push(1), self.take(1), self.done(1) % ":msg_id")
