"""The poolers, and clients that hold connections to them.

For:     rig.py.
Must not know: what is measured.
Entry points: Pooler, Holder.
"""

import os
import signal
import socket
import subprocess
import time

from common import PAGE, Failed, all_files, cpu_of, files_allowed
from pgcluster import free_port

USER = "bench"

SETTINGS = """\
[databases]
tx = host={server} port={server_port} dbname=bench pool_mode=transaction pool_size=20
session = host={server} port={server_port} dbname=bench pool_mode=session pool_size=120
quiet = host={server} port={server_port} dbname=quiet pool_mode=transaction pool_size=20

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
        return cpu_of(self.pid)[0]

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
    """The client program in a mode that holds connections until it is told to end."""

    def __init__(self, rig, pooler, mode, *args):
        self.process = subprocess.Popen(
            [rig.client_program, mode, *rig.target(pooler), *map(str, args)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=all_files)
        self.pid = self.process.pid
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

    def kill(self):
        """As a crash ends it: the kernel closes its sockets."""
        self.process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
