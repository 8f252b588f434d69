"""What a measurement stands on: one Postgres, the poolers before it, the clients.

For:     run.py, contenders/ and loads/.
Must not know: what is measured.
Entry points: Rig (start, certificate, restart, remove, pooler, pgbench, logins, loop, client, hold, hold_tls,
         statement, psql, session, instructions).

The poolers are started for each load anew, from one and the same text of settings. Everything lives
in a directory of its own under /tmp and ends with the process.
"""

import glob
import math
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time

from common import HERE, Failed, all_files, cpu_of, run
from pooler import PASSWORD, USER, Holder, Pooler, TlsHolder, userlist
from pgcluster import Cluster

POSTGRES = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_connections": "400",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
}


class Session:
    """A session of psql that stays open: what disturbs the others."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)

    def run(self, sql):
        """Runs SQL, returns when it is done."""
        self.process.stdin.write(sql + "\n\\echo :ERROR done\n")
        self.process.stdin.flush()
        text = []
        while True:
            line = self.process.stdout.readline()
            if line == "false done\n":
                return "".join(text)
            text.append(line)
            if line in ("", "true done\n"):
                raise Failed("psql: %s\n%s" % (sql, "".join(text)))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Rig:
    """qbouncer, pgbouncer: paths of the programs. unix: clients come by the unix socket."""

    def __init__(self, qbouncer, pgbouncer, scale, unix=False):
        self.programs = {"qbouncer": qbouncer, "pgbouncer": pgbouncer}
        self.scale = scale
        self.unix = unix
        self.prepares = False # pgbouncer, in transaction pooling
        self.running = []
        self.cluster = Cluster(settings=POSTGRES, folder="/tmp")
        self.dir = tempfile.mkdtemp(prefix="qbbench", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.owner = None
        if os.geteuid() == 0:
            self.owner = pwd.getpwnam(os.environ.get("QB_PG_USER", "postgres"))
            os.chown(self.dir, self.owner.pw_uid, self.owner.pw_gid)
        self.client_program = os.path.join(self.dir, "client")
        self.slow_disk = os.path.join(self.dir, "slowdisk.so")

    def start(self):
        """Builds the clients, makes the database, fills pgbench's tables."""
        cc = os.environ.get("CC", "gcc")
        run([cc, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-pthread",
             *sorted(glob.glob(os.path.join(HERE, "clients", "*.c"))), "-o", self.client_program, "-lcrypto"])
        run([cc, "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", os.path.join(HERE, "slowdisk.c"),
             "-o", self.slow_disk])
        # a copy, so that the unprivileged user can run it wherever it was built
        copy = os.path.join(self.dir, "qbouncer")
        shutil.copy(self.programs["qbouncer"], copy)
        os.chmod(copy, 0o755)
        self.programs["qbouncer"] = copy
        self.write(os.path.join(self.dir, "userlist.txt"), userlist())
        self.write(os.path.join(self.dir, "nothing.sql"), "\\set nothing 0\n")
        self.certificate("server", "ec")
        self.cluster.start()
        self.cluster.psql("CREATE ROLE %s SUPERUSER LOGIN" % USER)
        self.cluster.createdb("bench", owner=USER)
        self.cluster.createdb("quiet", owner=USER)
        run([self._bin("pgbench"), "-q", "-i", "-s", str(self.scale), "-h",
             self.cluster.socket_dir, "-p", str(self.cluster.port), "-U", USER, "bench"])
        self.psql("VACUUM ANALYZE")
        self.psql("CHECKPOINT")

    def certificate(self, name, kind):
        """<name>.crt and <name>.key, for this run. kind: rsa:<bits>, or ec."""
        key, crt = (os.path.join(self.dir, "%s.%s" % (name, end)) for end in ("key", "crt"))
        run(["openssl", "req", "-x509", "-newkey", kind, *(("-pkeyopt", "ec_paramgen_curve:P-256") if kind == "ec" else ()),
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", crt])
        if self.owner:
            for path in (key, crt):
                os.chown(path, self.owner.pw_uid, self.owner.pw_gid)

    def restart(self, preload=None):
        """Postgres anew, with a library before the others."""
        self.cluster.stop()
        if preload:
            os.environ["LD_PRELOAD"] = preload
        try:
            self.cluster.start()
        finally:
            os.environ.pop("LD_PRELOAD", None)

    def tidy(self):
        """After a part that has failed: its programs are stopped, Postgres is as it was at the start."""
        for program in list(self.running):
            program.stop()
        if self.cluster.running:
            self.cluster.stop("immediate")
        self.cluster.start()
        self.psql("ALTER SYSTEM RESET ALL")
        self.psql("SELECT pg_reload_conf()")

    def remove(self):
        """Ends and deletes everything."""
        for program in list(self.running):
            program.stop()
        self.cluster.remove()
        shutil.rmtree(self.dir, ignore_errors=True)

    def write(self, path, text):
        """A file that the unprivileged user may read."""
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o644)

    def become(self):
        """In a child that becomes a server: the unprivileged user, all descriptors."""
        all_files()
        if self.owner:
            os.setgroups([])
            os.setgid(self.owner.pw_gid)
            os.setuid(self.owner.pw_uid)

    def _bin(self, name):
        return os.path.join(self.cluster.bin, name)

    def _processes(self):
        """The process ids of Postgres: the parent, its children."""
        with open(os.path.join(self.cluster.data, "postmaster.pid"), encoding="utf-8") as pid:
            parent = int(pid.readline())
        with open("/proc/%d/task/%d/children" % (parent, parent), encoding="ascii") as children:
            return parent, [int(child) for child in children.read().split()]

    def postgres_cpu(self):
        """Seconds of CPU that Postgres has used until now, all its processes together."""
        parent, children = self._processes()
        total = sum(cpu_of(parent))
        for child in children:
            try:
                total += cpu_of(child)[0]
            except OSError:  # it has just ended: the next look finds it with its parent
                pass
        return total

    def postgres_memory(self):
        """Bytes that the processes of Postgres have for themselves; what they share since a fork counts once."""
        total, (parent, children) = 0, self._processes()
        for process in (parent, *children):
            try:
                with open("/proc/%d/smaps_rollup" % process, encoding="ascii") as sums:
                    own = re.search(r"^Pss_Anon:\s+(\d+)", sums.read(), re.M)
                    total += int(own.group(1)) if own else 0
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                pass
        return total * 1024

    def pooler(self, name, **more):
        """Starts a pooler."""
        return Pooler(self, name, self.programs[name], **more)

    @staticmethod
    def behind(database):
        """The database that the poolers' database is."""
        return "quiet" if database == "quiet" else "bench"

    def psql(self, sql, database="bench"):
        """One SQL string, past the poolers."""
        return self.cluster.psql(sql, database, USER)

    def statement(self, pooler, *sql, database="tx"):
        """SQL strings, each by itself, through a pooler; None is Postgres itself."""
        command = [self._bin("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        for text in sql:
            command += ["-c", text]
        return run([*command, *self.address(pooler), database if pooler else "bench"])

    def session(self, pooler=None):
        """A session that stays open for a with statement."""
        return Session([self._bin("psql"), "-X", "-q", "-A", "-t", *self.address(pooler),
                        "tx" if pooler else "bench"])

    def target(self, pooler, database="tx"):
        """The arguments of the client program that say where to connect."""
        if pooler is None:
            return [self.cluster.socket_dir if self.unix else "127.0.0.1", str(self.cluster.port),
                    USER, "bench"]
        return [self.dir if self.unix else "127.0.0.1", str(pooler.port), USER, database]

    def address(self, pooler):
        """The same for Postgres' own programs, without the database."""
        host, port, user, _ = self.target(pooler)
        return ["-h", host, "-p", port, "-U", user]

    def pgbench(self, pooler, database, mode, clients, *limit, script=None, threads=1, more=()):
        """pgbench -S, or a script. limit: -T and whole seconds (or more), or -t and a number. Returns
        (transactions, tps)."""
        limit = [limit[0], math.ceil(limit[1])]
        tls = pooler is not None and pooler.tls
        # one thread: its clients are never the reason why two cores are busy with pgbench
        out = run([self._bin("pgbench"), "-n", *(["-f", script] if script else ["-S"]), "-M", mode,
                   "-c", str(clients), "-j", str(threads), *more, *map(str, limit), *self.address(pooler),
                   database if pooler else "bench"], preexec_fn=all_files,
                  env=dict(os.environ, PGSSLMODE="require" if tls else "disable", PGPASSWORD=PASSWORD))
        queries = re.search(r"actually processed: (\d+)", out)
        tps = re.search(r"^tps = ([\d.]+)", out, re.M)
        if not queries or not tps or int(queries.group(1)) == 0:
            raise Failed("pgbench:\n" + out)
        return int(queries.group(1)), float(tps.group(1))

    def logins(self, pooler, clients, seconds):
        """Connections that are made, logged in and closed again by so many threads, one after the other.
        Returns (connections, connections per second)."""
        return self.pgbench(pooler, "tx", "simple", clients, "-T", seconds, threads=clients, more=["-C"],
                            script=os.path.join(self.dir, "nothing.sql"))

    def client(self, pooler, mode, *args, database="tx"):
        """Runs the client program to its end: its figures by name."""
        try:
            return self.run_client(mode, self.target(pooler, database), *args)
        except Failed as failed:
            raise Failed("%s\n%s" % (failed, self._said(pooler))) from None

    def _said(self, pooler):
        """What the pooler and Postgres had to say last."""
        with open(os.path.join(self.dir, "%s.log" % pooler.name) if pooler else os.devnull, encoding="utf-8") as log:
            texts = log.read(), self.cluster.log_text()
        return "\n".join(line for text in texts for line in text.splitlines()[-20:])

    def run_client(self, mode, target, *args):
        """The same with a target of any kind: host, port, two words."""
        out = run([self.client_program, mode, *map(str, target), *map(str, args)],
                  preexec_fn=all_files)
        return {name: float(value) for name, value in (line.split() for line in out.splitlines())}

    def hold(self, pooler, mode, *args):
        """Runs the client program until the end of the with statement."""
        return Holder(self, pooler, mode, *args)

    @staticmethod
    def hold_tls(pooler, n):
        """So many idle connections over TLS, until the end of the with statement."""
        return TlsHolder(pooler, n)

    # -- instructions ----------------------------------------------------------------------

    def is_countable(self, name):
        """Is it a program itself, and no script that begins one?"""
        with open(self.programs[name], "rb") as program:
            return program.read(2) != b"#!"

    def instructions(self, name, database, mode, clients, count, tls=False, script=None, before=None):
        """User-space instructions of a pooler per query (or script), counted by callgrind. before: is called
        with the pooler first, and not counted."""
        out = os.path.join(self.dir, "callgrind.%s" % name)
        wrap = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
                "--callgrind-out-file=" + out]
        with self.pooler(name, wrap=wrap, tls=tls) as pooler:
            if before:
                before(pooler)
            load = (database, mode, clients, "-t")
            self.pgbench(pooler, *load, 50, script=script)
            self._control(pooler, "-i", "on")
            # the difference of a short and a long run leaves the logins out
            short, long = (self._counted(pooler, load, n, script, "%s.%d" % (out, i))
                           for i, n in ((1, count), (2, 3 * count)))
        return (long[0] - short[0]) / (long[1] - short[1])

    def _counted(self, pooler, load, count, script, dump):
        queries, _ = self.pgbench(pooler, *load, count, script=script)
        self._control(pooler, "-d")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if os.path.exists(dump):
                with open(dump, encoding="utf-8", errors="replace") as text:
                    total = re.search(r"^totals: (\d+)", text.read(), re.M)
                if total:
                    return int(total.group(1)), queries
            time.sleep(0.1)
        raise Failed("callgrind counted nothing")

    def _control(self, pooler, *args):
        run(["callgrind_control", *args, str(pooler.pid)], preexec_fn=self.become)
