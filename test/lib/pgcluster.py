"""A throw-away Postgres cluster for tests.

For:     test/sql (functions alone) and test/it (through the proxy).
Must not know: the proxy, pytest, or what a test does with the cluster.
Entry points: Cluster (start, stop, dsn, conninfo, createdb, dropdb, psql, log_text), pg_bin(), pg_major().

    with Cluster() as pg:
        dsn = pg.createdb()             # a fresh database, its dsn for the superuser
        conn = psycopg.connect(dsn)

Environment: QB_PG_BIN names the directory of initdb and postgres; without it the newest one under
/usr/lib/postgresql is taken, or the one in PATH. Started by root, Postgres runs as user postgres
(QB_PG_USER names another one), otherwise as whoever runs the test. The superuser of the cluster
is always called "postgres". Everything is removed at the end of the process. QB_PG_DIR is where the directories
of clusters are made, /tmp if it is not set; test/run.sh takes /dev/shm if there is room.
"""

import atexit
import functools
import glob
import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import psycopg

SUPERUSER = "postgres"

DEFAULTS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "max_wal_size": "256MB",
    "listen_addresses": "127.0.0.1",
    "autovacuum": "on",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %u@%d ",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "max_prepared_transactions": "4",
    "password_encryption": "scram-sha-256",  # the default since 14
}


def pg_bin():
    """The directory that holds initdb, postgres and pg_ctl."""
    told = os.environ.get("QB_PG_BIN")
    if told:
        return told
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    if found:
        found.sort(key=lambda path: float(path.split("/")[4]))
        return os.path.dirname(found[-1])
    in_path = shutil.which("postgres")
    if in_path:
        return os.path.dirname(os.path.realpath(in_path))
    raise RuntimeError("no Postgres found: install postgresql or set QB_PG_BIN")


@functools.lru_cache(maxsize=None)
def pg_major():
    """Which PostgreSQL that is: 15."""
    said = subprocess.run([os.path.join(pg_bin(), "postgres"), "--version"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    return int(re.search(r"PostgreSQL\) (\d+)", said).group(1))


def free_port():
    """A TCP port of 127.0.0.1 that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """One cluster: directory, port, postmaster. start() and stop() may be called repeatedly."""

    def __init__(self, settings=None, hba=None, keep=False, folder=None):
        """settings: postgresql.conf values over DEFAULTS; hba: lines that stand before the
        trust lines; keep: leave the directory behind (to look at a failure); folder: where it is,
        whatever QB_PG_DIR says."""
        self.bin = pg_bin()
        self.settings = dict(DEFAULTS, **(settings or {}))
        self.hba = list(hba or [])
        self.keep = keep
        self.folder = folder or os.environ.get("QB_PG_DIR", "/tmp")
        self.port = None
        self.dir = None
        self.running = False
        self._manager = None
        self._names = itertools.count(1)

    # -- life ------------------------------------------------------------------------------

    def start(self):
        if self.running:
            return self
        if self.dir is None:
            self._init()
        for attempt in range(5):
            self.port = self.port or free_port()
            if self._launch():
                self.running = True
                return self
            self.port = None
        raise RuntimeError("Postgres does not start:\n" + self.log_text())

    def stop(self, mode="fast"):
        """Ends the server; the data stays, start() brings it back on the same port."""
        if self._manager:
            self._manager.close()
            self._manager = None
        if self.running:
            self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop", check=False)
            self.running = False

    def kill(self):
        """A crash: every server process at once, by SIGQUIT to the postmaster."""
        self.stop("immediate")

    def reset(self, *args):
        """What pg_resetwal does, of one that is stopped."""
        self._run("pg_resetwal", *args, self.data)

    def remove(self):
        """Ends the server and deletes everything. Called at the end of the process."""
        atexit.unregister(self.remove)
        self.stop("immediate")
        if self.dir and not self.keep:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    def reload(self):
        self._run("pg_ctl", "-D", self.data, "reload")

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.remove()

    # -- where it is -----------------------------------------------------------------------

    @property
    def data(self):
        return os.path.join(self.dir, "data")

    @property
    def socket_dir(self):
        return self.dir

    @property
    def log_file(self):
        return os.path.join(self.dir, "postgres.log")

    def log_text(self):
        try:
            with open(self.log_file, encoding="utf-8", errors="replace") as log:
                return log.read()
        except OSError:
            return ""

    def dsn(self, dbname="postgres", user=SUPERUSER, tcp=False, **more):
        """A libpq connection string; by the unix socket unless tcp."""
        parts = {
            "host": "127.0.0.1" if tcp else self.socket_dir,
            "port": self.port,
            "dbname": dbname,
            "user": user,
        }
        parts.update(more)
        return " ".join("%s='%s'" % (key, _quote(value)) for key, value in parts.items())

    # -- databases -------------------------------------------------------------------------

    def createdb(self, name=None, template="template1", owner=None):
        """A fresh database; gives its name."""
        name = name or "qb_%d" % next(self._names)
        sql = 'CREATE DATABASE "%s" TEMPLATE "%s"' % (name, template)
        if owner:
            sql += ' OWNER "%s"' % owner
        if pg_major() >= 15:  # as before 15: the way through the WAL costs seven times the CPU, of thousands of tests
            sql += " STRATEGY FILE_COPY"
        self._manage(sql)
        return name

    def dropdb(self, name):
        """Away with it, whoever is connected."""
        self._manage('DROP DATABASE IF EXISTS "%s" WITH (FORCE)' % name)

    def _manage(self, sql):
        """Each test does it twice: without a program or a server process that is started for it."""
        try:
            self._manager.execute("")
        except (AttributeError, psycopg.OperationalError):  # the first time, or it has ended with the server
            self._manager = psycopg.connect(self.dsn(), autocommit=True)
        self._manager.execute(sql)

    def psql(self, sql, dbname="postgres", user=SUPERUSER):
        """Runs one SQL string, or a script that is too long for an argument, by psql and gives its unaligned output."""
        script = len(sql) > 65536
        done = subprocess.run(
            [os.path.join(self.bin, "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
             *(["-f", "-"] if script else ["-c", sql]), self.dsn(dbname, user)],
            input=sql if script else None, stdin=None if script else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout.rstrip("\n")

    # -- inside ----------------------------------------------------------------------------

    def _init(self):
        self.dir = tempfile.mkdtemp(prefix="qbpg", dir=self.folder)
        atexit.register(self.remove)
        self._owner = None
        if os.geteuid() == 0:
            self._owner = os.environ.get("QB_PG_USER", "postgres")
            entry = pwd.getpwnam(self._owner)
            os.chown(self.dir, entry.pw_uid, entry.pw_gid)
        os.chmod(self.dir, 0o755)
        self._run("initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8",
                  "--locale=C", "--no-sync")
        lines = self.hba + ["local all all trust", "host all all 127.0.0.1/32 trust",
                            "local replication all trust"]
        self._write("pg_hba.conf", "\n".join(lines) + "\n")
        conf = ["%s = '%s'" % (key, _quote(value)) for key, value in self.settings.items()]
        conf.append("unix_socket_directories = '%s'" % self.dir)
        self._write("postgresql.auto.conf", "\n".join(conf) + "\n")

    def _write(self, name, text):
        # written by the owner of the directory, whose umask and identity are right
        path = os.path.join(self.data, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    def _launch(self):
        done = self._run("pg_ctl", "-D", self.data, "-l", self.log_file, "-w", "-t", "60",
                         "-o", "-p %d" % self.port, "start", check=False)
        return done.returncode == 0

    def _run(self, program, *args, check=True):
        command = [os.path.join(self.bin, program), *args]
        if self._owner:
            command = ["runuser", "-u", self._owner, "--", *command]
        # pg_ctl's child keeps stdout open: a file, not a pipe, lets the call return
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT, cwd="/", check=False,
                                  preexec_fn=_default_signals)
            out.seek(0)
            text = out.read()
        if check and done.returncode != 0:
            raise RuntimeError("%s failed:\n%s" % (" ".join(command), text))
        return done


class Standby(Cluster):
    """Of a running cluster: the same port, another directory for its socket."""

    def __init__(self, primary):
        super().__init__()
        self.primary = primary
        self.port = primary.port

    def _init(self):
        self.dir = tempfile.mkdtemp(prefix="qbpg", dir=self.folder)
        self._owner = self.primary._owner
        if self._owner:
            entry = pwd.getpwnam(self._owner)
            os.chown(self.dir, entry.pw_uid, entry.pw_gid)
        os.chmod(self.dir, 0o755)
        self._run("pg_basebackup", "-h", self.primary.socket_dir, "-p", str(self.port), "-U", SUPERUSER, "-D", self.data,
                  "-R", "-X", "stream", "-c", "fast", "--no-sync")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as conf:
            conf.write("unix_socket_directories = '%s'\nlisten_addresses = ''\n" % self.dir)

    def promote(self):
        self._run("pg_ctl", "-D", self.data, "-w", "promote")


def _default_signals():
    # the terminal's ^C is for the test, which ends the cluster itself
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgrp()


def _quote(value):
    return str(value).replace("\\", "\\\\").replace("'", "\\'")
