"""The poolers, and clients that hold connections to them.

For:     rig.py.
Must not know: what is measured.
Entry points: Pooler, Holder, TlsHolder, PASSWORD, userlist.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import time

from common import PAGE, Failed, all_files, cpu_of, files_allowed
from pgcluster import free_port

USER = "bench"
PASSWORD = "a password of the benchmark"

SETTINGS = """\
[databases]
tx = host={server} port={server_port} dbname=bench pool_mode=transaction pool_size=20
session = host={server} port={server_port} dbname=bench pool_mode=session pool_size=120
statement = host={server} port={server_port} dbname=bench pool_mode=statement pool_size=20
quiet = host={server} port={server_port} dbname=quiet pool_mode=transaction pool_size=20

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {dir}
auth_type = {auth}
auth_file = {dir}/userlist.txt
max_client_conn = {max_clients}
logfile = {dir}/{name}.log
log_connections = 0
log_disconnections = 0
log_stats = 0
{more}
"""

# its own session, as a user of the queue has one, though USER is a superuser: without it pushes elsewhere are polled for
OWN = {"qbouncer": "queue_user_superuser = 1\n"}

# for both the same: what is compared are the poolers, not the ciphers
TLS = """client_tls_sslmode = require
client_tls_protocols = tlsv1.3
client_tls_cert_file = {dir}/server.crt
client_tls_key_file = {dir}/server.key
"""


def userlist():
    """The text of the poolers' file of users: USER with the verifier of PASSWORD."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, 4096)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    verifier = [base64.b64encode(b).decode()
                for b in (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))]
    return '"%s" "SCRAM-SHA-256$4096:%s$%s:%s"\n' % (USER, *verifier)


class Pooler:
    """One running pooler. tls: its clients have to speak TLS; auth: auth_type."""

    def __init__(self, rig, name, program, wrap=(), more="", tls=False, auth="trust"):
        self.rig = rig
        self.name = name
        self.tls = tls
        self.port = free_port()
        self.ini = os.path.join(rig.dir, "%s-%d.ini" % (name, self.port))
        rig.write(self.ini, SETTINGS.format(
            server=rig.cluster.socket_dir, server_port=rig.cluster.port, port=self.port,
            dir=rig.dir, name=name, auth=auth, max_clients=files_allowed() - 300,
            more=OWN.get(name, "") + more + (TLS.format(dir=rig.dir) if tls else "")))
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

    def peak(self):
        """Bytes of memory that were resident at the most."""
        with open("/proc/%d/status" % self.pid, encoding="ascii") as status:
            return int(re.search(r"^VmHWM:\s+(\d+)", status.read(), re.M).group(1)) * 1024

    def files(self):
        """Descriptors that it has."""
        return len(os.listdir("/proc/%d/fd" % self.pid))

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


def _exactly(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise Failed("a pooler closed a connection")
        data += more
    return data


def _tls_login(host, port, database):
    """A connection over TLS that has been told ReadyForQuery."""
    plain = socket.create_connection((host, port), 30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.sendall(struct.pack("!ii", 8, 80877103))
    if _exactly(plain, 1) != b"S":
        raise Failed("a pooler refuses TLS")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secure = context.wrap_socket(plain)
    words = b"".join(w.encode() + b"\0" for w in ("user", USER, "database", database)) + b"\0"
    secure.sendall(struct.pack("!ii", len(words) + 8, 3 << 16) + words)
    kind = b""
    while kind != b"Z":
        kind, length = struct.unpack("!ci", _exactly(secure, 5))
        body = _exactly(secure, length - 4)
        if kind == b"E":
            raise Failed("a pooler refuses a login: %r" % body)
    return secure


class TlsHolder:
    """Idle connections over TLS until the end of the with statement."""

    def __init__(self, pooler, n):
        hard = files_allowed()
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with contextlib.ExitStack() as links:
            for _ in range(n):
                links.enter_context(_tls_login("127.0.0.1", pooler.port, "tx"))
            self.links = links.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.links.close()
