"""What a measurement stands on: one Postgres, the two poolers before it, the clients.

For:     parts.py and run.py.
Must not know: what is measured.
Entry points: Rig (start, remove, pooler, pgbench, client, psql, instructions).

The poolers are started for each part anew, from one and the same text of settings. Everything lives
in a directory of its own under /tmp and ends with the process.
"""

import os
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(REPO, "test", "lib"))
# pylint: disable=wrong-import-position
from pgcluster import Cluster, free_port  # noqa: E402

USER = "bench"
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

POSTGRES = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_connections": "400",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
}

SETTINGS = """\
[databases]
tx = host={server} port={server_port} dbname=bench pool_mode=transaction pool_size=20
session = host={server} port={server_port} dbname=bench pool_mode=session pool_size=120

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {dir}
auth_type = trust
auth_file = {dir}/userlist.txt
max_client_conn = {max_clients}
logfile = {dir}/{name}.log
log_connections = 0
log_disconnections = 0
log_stats = 0
{more}
"""


def files_allowed():
    """Descriptors that a process here may have at most."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


class Failed(Exception):
    """A program of the benchmark failed; the text says how."""


def run(command, **more):
    """The output of a program that must succeed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, **more)
    if done.returncode != 0:
        raise Failed("%s\n%s" % (" ".join(command), (done.stdout + done.stderr)[-4000:]))
    return done.stdout


class Pooler:
    """One running pooler."""

    def __init__(self, rig, name, program, wrap=(), more=""):
        self.rig = rig
        self.name = name
        self.port = free_port()
        self.ini = os.path.join(rig.dir, "%s-%d.ini" % (name, self.port))
        rig.write(self.ini, SETTINGS.format(
            server=rig.cluster.socket_dir, server_port=rig.cluster.port, port=self.port,
            dir=rig.dir, name=name, more=more, max_clients=files_allowed() - 300))
        with open(os.path.join(rig.dir, name + ".out"), "ab") as out:
            self.process = subprocess.Popen([*wrap, program, self.ini], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=out, cwd=rig.dir,
                                            preexec_fn=rig.become)
        self.pid = self.process.pid
        rig.running.append(self)
        self._await()

    def _await(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)
        with open(os.path.join(self.rig.dir, self.name + ".out"), encoding="utf-8") as out:
            raise Failed("%s does not start:\n%s" % (self.name, out.read()[-2000:]))

    def cpu(self):
        """Seconds of CPU used until now, by the program itself and by the kernel for it."""
        with open("/proc/%d/stat" % self.pid, encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss(self):
        """Bytes of memory resident now."""
        with open("/proc/%d/statm" % self.pid, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * PAGE

    def settled(self):
        """Waits until it has nothing more to do than it has at rest."""
        for _ in range(60):
            before = self.cpu()
            time.sleep(0.5)
            if self.cpu() - before <= 0.02:
                return

    def stop(self):
        """Ends it at once, clients or not."""
        if self in self.rig.running:
            self.rig.running.remove(self)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()


class Holder:
    """The program client.c in a mode that holds connections until it is told to end."""

    def __init__(self, rig, pooler, mode, *args):
        self.process = subprocess.Popen(
            [rig.client_program, mode, *rig.target(pooler), *map(str, args)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=_all_files)
        if self.process.stdout.readline() != "ready\n":
            raise Failed("client %s: %s" % (mode, self.process.stderr.read()))

    def counted(self):
        """Rows and ParameterStatus messages that have come since the start."""
        self.process.stdin.write("count\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if len(words) != 3:
            raise Failed("client: " + self.process.stderr.read())
        return int(words[1]), int(words[2])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Rig:
    """qbouncer, pgbouncer: paths of the programs. unix: clients come by the unix socket."""

    def __init__(self, qbouncer, pgbouncer, scale, unix=False):
        self.programs = {"qbouncer": qbouncer, "pgbouncer": pgbouncer}
        self.scale = scale
        self.unix = unix
        self.running = []
        self.cluster = Cluster(settings=POSTGRES)
        self.dir = tempfile.mkdtemp(prefix="qbbench", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.owner = None
        if os.geteuid() == 0:
            self.owner = pwd.getpwnam(os.environ.get("QB_PG_USER", "postgres"))
            os.chown(self.dir, self.owner.pw_uid, self.owner.pw_gid)
        self.client_program = os.path.join(self.dir, "client")

    def start(self):
        """Builds the client, makes the database, fills pgbench's tables."""
        run([os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall",
             os.path.join(HERE, "client.c"), "-o", self.client_program])
        # a copy, so that the unprivileged user can run it wherever it was built
        copy = os.path.join(self.dir, "qbouncer")
        shutil.copy(self.programs["qbouncer"], copy)
        os.chmod(copy, 0o755)
        self.programs["qbouncer"] = copy
        self.write(os.path.join(self.dir, "userlist.txt"), '"%s" ""\n' % USER)
        self.cluster.start()
        self.cluster.psql("CREATE ROLE %s SUPERUSER LOGIN" % USER)
        self.cluster.createdb("bench", owner=USER)
        run([self._bin("pgbench"), "-q", "-i", "-s", str(self.scale), "-h",
             self.cluster.socket_dir, "-p", str(self.cluster.port), "-U", USER, "bench"])
        self.psql("VACUUM ANALYZE")
        self.psql("CHECKPOINT")

    def remove(self):
        """Ends and deletes everything."""
        for pooler in list(self.running):
            pooler.stop()
        self.cluster.remove()
        shutil.rmtree(self.dir, ignore_errors=True)

    def write(self, path, text):
        """A file that the unprivileged user may read."""
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o644)

    def become(self):
        """In a child that becomes a pooler: the unprivileged user, all descriptors."""
        _all_files()
        if self.owner:
            os.setgroups([])
            os.setgid(self.owner.pw_gid)
            os.setuid(self.owner.pw_uid)

    def _bin(self, name):
        return os.path.join(self.cluster.bin, name)

    def pooler(self, name, **more):
        """Starts a pooler."""
        return Pooler(self, name, self.programs[name], **more)

    def psql(self, sql):
        """One SQL string, past the poolers."""
        return self.cluster.psql(sql, "bench", USER)

    def target(self, pooler, database="tx"):
        """The arguments of client.c that say where to connect."""
        return [self.dir if self.unix else "127.0.0.1", str(pooler.port), USER, database]

    def address(self, pooler):
        """pgbench's arguments that say where to connect; None is Postgres itself."""
        if pooler is None:
            return ["-h", self.cluster.socket_dir if self.unix else "127.0.0.1",
                    "-p", str(self.cluster.port), "-U", USER]
        return ["-h", self.dir if self.unix else "127.0.0.1", "-p", str(pooler.port), "-U", USER]

    def pgbench(self, pooler, database, mode, clients, *limit):
        """pgbench -S. Returns (queries, tps)."""
        # one thread: its clients are never the reason why two cores are busy with pgbench
        out = run([self._bin("pgbench"), "-n", "-S", "-M", mode, "-c", str(clients), "-j", "1",
                   *map(str, limit), *self.address(pooler), database], preexec_fn=_all_files)
        queries = re.search(r"actually processed: (\d+)", out)
        tps = re.search(r"^tps = ([\d.]+)", out, re.M)
        if not queries or not tps or int(queries.group(1)) == 0:
            raise Failed("pgbench:\n" + out)
        return int(queries.group(1)), float(tps.group(1))

    def client(self, pooler, mode, *args):
        """Runs client.c to its end: its figures by name."""
        out = run([self.client_program, mode, *self.target(pooler), *map(str, args)],
                  preexec_fn=_all_files)
        return {name: float(value) for name, value in (line.split() for line in out.splitlines())}

    def hold(self, pooler, mode, *args):
        """Runs client.c until the end of the with statement."""
        return Holder(self, pooler, mode, *args)

    def statement(self, pooler, sql):
        """One SQL string through a pooler."""
        return run([self._bin("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql,
                    *self.address(pooler), "tx"])

    def instructions(self, name, database, mode, clients, count):
        """User-space instructions of a pooler per query, counted by callgrind."""
        out = os.path.join(self.dir, "callgrind.%s" % name)
        wrap = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
                "--callgrind-out-file=" + out]
        with self.pooler(name, wrap=wrap) as pooler:
            self.pgbench(pooler, database, mode, clients, "-t", 50)
            self._control(pooler, "-i", "on")
            # the difference of a short and a long run leaves the logins out
            short, long = (self._counted(pooler, database, mode, clients, n, "%s.%d" % (out, i))
                           for i, n in ((1, count), (2, 3 * count)))
        return (long[0] - short[0]) / (long[1] - short[1])

    def _counted(self, pooler, database, mode, clients, count, dump):
        queries, _ = self.pgbench(pooler, database, mode, clients, "-t", count)
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


def _all_files():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
