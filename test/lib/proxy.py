"""One running qbouncer for tests.

For:     test/it and test/check.
Must not know: pytest.
Entry points: wait_for, runnable, running, free_port, Proxy (start, stop, dsn, connect, wire, console, wait_for, wait_log, reload, rss).
"""

import contextlib
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import psycopg
from psycopg.rows import dict_row

from pgwire import Wire

SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|UndefinedBehavior")

DEFAULTS = {
    "listen_addr": "127.0.0.1",
    "auth_type": "trust",
    "admin_users": "admin",
    "stats_users": "stats",
    "pool_mode": "transaction",
    "default_pool_size": "5",
    "max_client_conn": "200",
    "client_login_timeout": "20",
}
# for all of a run, for example "queue_engine_after=1 queue_batches=2"
DEFAULTS.update(pair.split("=", 1) for pair in os.environ.get("QB_TEST_SETTINGS", "").split())

USERS = {"app": "app-password", "other": "other-password", "admin": "admin-password", "stats": "stats-password"}


def wait_for(condition, what="the condition", timeout=15):
    """Calls condition() until it gives something true, and gives that."""
    deadline = time.monotonic() + timeout
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > deadline:
            raise AssertionError("%s did not come true in %s s" % (what, timeout))
        time.sleep(0.01)


@contextlib.contextmanager
def runnable(program):
    """A copy that the unprivileged user can run, wherever the build directory is."""
    folder = tempfile.mkdtemp(prefix="qbbin", dir="/tmp")
    os.chmod(folder, 0o755)
    try:
        copy = shutil.copy(program, folder)
        os.chmod(copy, 0o755)
        yield copy
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ended(process, timeout):
    """Waits for its end, and is woken by it: subprocess looks every 50 ms."""
    fd = os.pidfd_open(process.pid)
    try:
        select.select([fd], [], [], timeout)
    finally:
        os.close(fd)
    process.wait(0)


def running(direct, n=1):
    """Waits until so many pg_sleep() run."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' " \
          "AND state = 'active' AND pid <> pg_backend_pid()"
    wait_for(lambda: direct.execute(sql).fetchone()[0] == n, "%d running pg_sleep" % n)


class Proxy:
    """databases: name -> text of the [databases] line; "*" goes to the cluster unless given.
    users: name -> secret in auth_file, beside USERS. sections: text put at the end of the ini.
    settings: keys of [qbouncer]; {dir} in a value is the folder of the files.
    files: name -> text of further files beside the ini."""

    def __init__(self, program, cluster, databases=None, users=None, sections="", files=None, **settings):
        self.cluster = cluster
        self.databases = {"*": "host=%s port=%d" % (cluster.socket_dir, cluster.port)}
        self.databases.update(databases or {})
        self.users = dict(USERS, **(users or {}))
        self.sections = sections
        self.files = dict(files or {})
        self.settings = dict(DEFAULTS, **settings)
        self.dir = tempfile.mkdtemp(prefix="qbit", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.owner = None
        if os.geteuid() == 0:
            self.owner = pwd.getpwnam(os.environ.get("QB_PG_USER", "postgres"))
            os.chown(self.dir, self.owner.pw_uid, self.owner.pw_gid)
        # A copy, so that the unprivileged user can run it wherever the build directory is.
        self.program = program
        self.ini = os.path.join(self.dir, "qbouncer.ini")
        self.log_file = os.path.join(self.dir, "qbouncer.log")
        self.port = None
        self.process = None
        self.settings.setdefault("unix_socket_dir", self.dir)
        self.settings.setdefault("auth_file", os.path.join(self.dir, "userlist.txt"))

    # -- life ------------------------------------------------------------------------------

    def write(self):
        """Writes ini and user file from what this object holds now."""
        lines = ["[databases]"]
        lines += ["%s = %s" % pair for pair in self.databases.items()]
        lines += ["", "[qbouncer]", "listen_port = %d" % self.port]
        lines += ["%s = %s" % (k, str(v).replace("{dir}", self.dir)) for k, v in self.settings.items()]
        self._put(self.ini, "\n".join(lines) + "\n" + self.sections)
        for name, text in self.files.items():
            self._put(os.path.join(self.dir, name), text)
        quoted = ['"%s" "%s"' % (u.replace('"', '""'), p.replace('"', '""')) for u, p in self.users.items()]
        self._put(os.path.join(self.dir, "userlist.txt"), "\n".join(quoted) + "\n")

    def _put(self, path, text):
        with open(path, "w", encoding="utf-8") as out:
            os.fchmod(out.fileno(), 0o600)  # secrets that others can read are a warning
            out.write(text)
        if self.owner:
            os.chown(path, self.owner.pw_uid, self.owner.pw_gid)

    def start(self, *arguments):
        for _ in range(5):
            if "listen_port" in self.settings:
                self.port = int(self.settings.pop("listen_port"))
            self.port = self.port or free_port()
            self.write()
            self._launch(*arguments)
            if self._accepts():
                return self
            text = self.log_text()
            if "ddress already in use" not in text:
                raise AssertionError("qbouncer does not start (exit %s):\n%s"
                                     % (self.process.returncode, text))
            self.port = None
        raise AssertionError("no free port was found")

    def _launch(self, *arguments):
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, *arguments, self.ini], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, cwd=self.dir, preexec_fn=self.become)

    def become(self):
        """In the child: the unprivileged user."""
        if self.owner:
            os.setgroups([])
            os.setgid(self.owner.pw_gid)
            os.setuid(self.owner.pw_uid)

    def _accepts(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                # the unix socket comes last of those for clients, that of the metrics behind it
                if self.settings["unix_socket_dir"]:
                    with socket.socket(socket.AF_UNIX) as probe:
                        probe.connect("%s/.s.PGSQL.%d" % (self.settings["unix_socket_dir"], self.port))
                if int(self.settings.get("metrics_port", 0)):
                    address = self.settings.get("metrics_addr", "127.0.0.1"), int(self.settings["metrics_port"])
                    socket.create_connection(address, 5).close()
                return True
            except (ConnectionRefusedError, FileNotFoundError):
                time.sleep(0.01)
        raise AssertionError("qbouncer does not listen:\n" + self.log_text())

    def stop(self, signo=signal.SIGINT, timeout=20):
        """Ends it and checks that it ended well: exit code, no leak, no undefined behaviour."""
        if self.process is None:
            return
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signo)
            try:
                ended(process, timeout / 2)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                try:
                    ended(process, timeout / 2)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    raise AssertionError("qbouncer did not end in %s s" % timeout)
        text = self.log_text()
        assert not SANITIZER.search(text), "sanitizer report:\n" + text[-20000:]
        assert process.returncode == 0, "exit code %s:\n%s" % (process.returncode, text[-4000:])

    def kill(self):
        """As a crash would end it. No checks."""
        self.process.kill()
        self.process.wait()
        self.process = None

    def remove(self):
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def signal(self, signo):
        self.process.send_signal(signo)

    def reload(self):
        """Writes the files anew, sends SIGHUP and waits until the log tells how it went."""
        self.write()
        mark = len(self.log_text())
        self.signal(signal.SIGHUP)
        self.wait_log(r"(?i)reload|config", mark)

    # -- ways in ---------------------------------------------------------------------------

    def dsn(self, dbname, user="app", **more):
        parts = {"host": "127.0.0.1", "port": self.port, "dbname": dbname, "user": user,
                 "connect_timeout": 20}
        parts.update(more)
        return " ".join("%s='%s'" % (k, str(v).replace("\\", "\\\\").replace("'", "\\'"))
                        for k, v in parts.items() if v is not None)

    def connect(self, dbname, user="app", autocommit=True, **more):
        """psycopg 3."""
        return psycopg.connect(self.dsn(dbname, user, **more), autocommit=autocommit)

    def wire(self, dbname=None, user="app", password=None, **more):
        """A raw connection; logged in when a database is given."""
        w = Wire(self.port)
        if dbname is None:
            return w
        try:
            return w.startup(user=user, database=dbname, password=password, **more)
        except Exception:
            w.close()
            raise

    def console(self, sql, user="admin", dbname="qbouncer"):
        """Runs one console command: its rows as dicts of texts."""
        with self.wire(dbname, user, password=self.users.get(user)) as w:
            return w.rows(sql)

    # -- looking ---------------------------------------------------------------------------

    def log_text(self, start=0):
        try:
            with open(self.log_file, encoding="utf-8", errors="replace") as log:
                return log.read()[start:]
        except OSError:
            return ""

    def wait_log(self, pattern, start=0, timeout=15):
        """Until the log has a match, which is given."""
        return wait_for(lambda: re.search(pattern, self.log_text(start)),
                        "a log line like %r" % pattern, timeout)

    def wait_show(self, what, condition, timeout=15):
        """Until a row of SHOW `what` fulfils condition(row); gives the row."""
        return wait_for(lambda: next((r for r in self.console("SHOW " + what) if condition(r)), None),
                        "a row of SHOW " + what, timeout)

    def pool(self, dbname, user="app"):
        """The row of SHOW POOLS, numbers as int; None if there is none."""
        for row in self.console("SHOW POOLS"):
            if row["database"] == dbname and row["user"] == user:
                return {k: int(v) if v and v.isdigit() else v for k, v in row.items()}
        return None

    def wait_pool(self, dbname, user="app", **wanted):
        """Until the pool's columns are as told: wait_pool(db, cl_active=0, sv_idle=1)."""
        def look():
            row = self.pool(dbname, user)
            return row and all(row[k] == v for k, v in wanted.items()) and row
        return wait_for(look, "SHOW POOLS of %s with %s" % (dbname, wanted))

    def rss_kib(self):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))

    def peak_kib(self):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


__all__ = ["Proxy", "wait_for", "free_port", "dict_row"]
