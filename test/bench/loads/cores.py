"""Several processes that are one program, before a server and clients that cost less than they do.

For:     run.py.
Entry points: processes.
"""

import os
import subprocess
import time

from common import HERE, Failed, run
from pgcluster import free_port
from table import Goal, Table, median, number, ratio, ratio_of, turns

NUMBERS = (1, 2)

# what is asked for: bytes of a row; tls or plain; protocol; connections; queries that a client sends at once
KINDS = (
    ("small rows, simple", 10, "plain", "simple", 16, 1),
    ("small rows, extended", 10, "plain", "extended", 16, 8),
    ("rows of 100 kB, TLS", 100000, "tls", "simple", 16, 4),
)

# processes that log in: more than the pooler has, so that it never waits for them
LOGINS = 8

INI = """\
processes = {processes}
client_tls_sslmode = allow
client_tls_protocols = tlsv1.3
client_tls_cert_file = {dir}/rsa.crt
client_tls_key_file = {dir}/rsa.key
[databases]
cheap = host={dir} port={port} dbname=cheap pool_size=10
"""


class Server:
    """The cheap server."""

    def __init__(self, rig, program, size):
        self.port = free_port()
        self.process = subprocess.Popen([program, "serve", rig.dir, str(self.port), str(size)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=rig.become)
        if self.process.stdout.readline() != "ready\n":
            raise Failed("the cheap server does not start")

    def queries(self):
        """Those answered until now."""
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def _build(rig):
    """The program that is both; a certificate as most have it."""
    program, source = os.path.join(rig.dir, "cheap"), os.path.join(HERE, "cheap")
    run([os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall",
         *sorted(os.path.join(source, name) for name in os.listdir(source) if name.endswith(".c")),
         "-o", program, "-lssl", "-lcrypto"])
    os.chmod(program, 0o755)
    rig.certificate("rsa", "rsa:3072")
    return program


def _rate(rig, program, plan, processes, kind):
    _, size, tls, protocol, clients, at_once = kind
    with Server(rig, program, size) as server, \
            rig.pooler("qbouncer", more=INI.format(processes=processes, dir=rig.dir, port=server.port)) as pooler:
        load = subprocess.Popen([program, "load", str(pooler.port), "bench", "cheap", tls, protocol, str(clients),
                                 str(at_once), str(plan.seconds + 3)], stdout=subprocess.PIPE, text=True)
        try:
            if load.stdout.readline() != "ready\n":
                raise Failed("the cheap clients cannot log in")
            time.sleep(0.5)     # server connections, buffers: what is measured has begun
            before, began = server.queries(), time.monotonic()
            time.sleep(plan.seconds)
            return (server.queries() - before) / (time.monotonic() - began)
        finally:
            load.kill()
            load.wait()
            load.stdout.close()


def _logins(rig, program, plan, processes):
    with Server(rig, program, 10) as server, \
            rig.pooler("qbouncer", more=INI.format(processes=processes, dir=rig.dir, port=server.port)) as pooler:
        out = run([program, "logins", str(pooler.port), "bench", "cheap", str(LOGINS), str(plan.seconds)])
        return int(out.split()[1]) / plan.seconds


def processes(rig, plan):
    """processes = 2 beside one"""
    program = _build(rig)
    loads = [(kind[0], lambda n, kind=kind: _rate(rig, program, plan, n, kind)) for kind in KINDS]
    loads.append(("logins, TLS, RSA of 3072 bits", lambda n: _logins(rig, program, plan, n)))
    rows, best = [], 0
    for name, once in loads:
        got = {n: [] for n in NUMBERS}
        for order in turns(NUMBERS, plan.side_rounds):
            for n in order:
                got[n].append(once(n))
        rows.append([name, number(median(got[1])), number(median(got[2])), ratio(got[2], got[1])])
        best = max(best, ratio_of(got[2], got[1]))
    return Table(
        "Processes",
        "Queries (or logins) per second with one process and with two, on this machine's cores, which the server and the "
        "clients share with them: a server that answers without looking, clients that send as fast as they can and drop what "
        "comes. Where these need as much CPU as the pooler, the cores are full with one process already; what two are worth "
        "shows where the pooler has the work.",
        ["load", "1 process", "2 processes", "ratio"], rows,
        [Goal("two processes, a server and clients that cost less", ">= 1.5 x one", "%.2f x" % best)])
