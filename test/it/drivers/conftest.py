"""Fixtures of the conformance suite of drivers: for each driver a database, a program, and one proxy."""

import os
import sys

import psycopg
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from catalogue import DRIVERS, TOOLS  # noqa: E402
from program import Program  # noqa: E402
from proxy import Proxy, wait_for  # noqa: E402

TABLES = """
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TABLE orders (a int);
CREATE TABLE sent (a int CHECK (a >= 0));
"""


def pytest_generate_tests(metafunc):
    for fixture, drivers in (("driver", DRIVERS), ("tool", TOOLS)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, [
                pytest.param(d, id=d.name, marks=pytest.mark.xdist_group(d.name)) for d in drivers],
                scope="module")


def pytest_collection_modifyitems(items):
    """All tests of a driver one after the other: its program runs once."""
    order = {d: i for i, d in enumerate(DRIVERS + TOOLS)}

    def place(item):
        params = item.callspec.params if hasattr(item, "callspec") else {}
        return order.get(params.get("driver", params.get("tool")), -1)
    items.sort(key=place)


def pytest_terminal_summary(terminalreporter):
    missing = {d.name: d.missing() for d in DRIVERS + TOOLS}
    missing = {name: why for name, why in missing.items() if why}
    terminalreporter.write_line("drivers: %d there, %d missing%s" % (
        len(DRIVERS + TOOLS) - len(missing), len(missing),
        "".join("\n  missing: %s (%s)" % pair for pair in missing.items())))


class Bench:
    """What the tests of one driver share."""

    def __init__(self, driver, proxy, cluster):
        self.driver = driver
        self.proxy = proxy
        self.cluster = cluster
        self.db = cluster.createdb(owner="app")
        self.programs = []
        self.main = None
        self.queues = 0
        with psycopg.connect(cluster.dsn(self.db, user="app"), autocommit=True) as conn:
            conn.execute(TABLES)
        self.wire = proxy.wire(self.db, password="app-password")
        for name in ("mail", "idle"):
            self.wire.rows("QUEUE CREATE " + name)

    def start(self, port=None):
        """A new program: before the proxy unless told."""
        program = Program(self.driver, "127.0.0.1", port or self.proxy.port, self.db)
        self.programs.append(program)
        return program

    def program(self):
        """The program that the tests share, anew if the last test has ended or spoilt it."""
        if self.main is None or not self.main.alive():
            self.main = self.start()
        return self.main

    def spoilt(self):
        """What a failed test may have left behind is not for the next one."""
        if self.main is not None and self.main.alive():
            self.main.kill()
        self.main = None

    def queue(self):
        """A new queue: its name."""
        self.queues += 1
        name = "q%d" % self.queues
        self.wire.rows("QUEUE CREATE " + name)
        return name

    def push(self, queue, *payloads):
        self.wire.rows("QUEUE PUSH %s %s" % (queue, ", ".join("'%s'" % p for p in payloads)))

    def stats(self, queue):
        row = self.wire.rows("QUEUE STATS " + queue)[0]
        return {k: int(row[k]) for k in ("ready", "later", "leased", "dead") if row[k] != "0"}

    def given_back(self, queue):
        """The job of the queue that was taken and is ready again, when it is."""
        return wait_for(lambda: [r for r in self.wire.rows("QUEUE PEEK " + queue)
                                 if r["state"] == "ready" and r["attempt"] == "1"], "a job given back")[0]

    def parked(self, n=1):
        """Until so many clients wait for a job of this database."""
        def look():
            return [r for r in self.proxy.console("SHOW WAITERS") if r["database"] == self.db]
        return wait_for(lambda: len(look()) == n, "SHOW WAITERS with %d of %s" % (n, self.driver.name))

    def nobody_waits(self):
        return self.parked(0)

    def end(self):
        for p in self.programs:
            if p.alive():
                p.kill()
        self.wire.close()
        wait_for(lambda: not [r for r in self.proxy.console("SHOW CLIENTS") if r["database"] == self.db],
                 "the end of all clients of " + self.driver.name)
        self.cluster.dropdb(self.db)


@pytest.fixture(scope="session")
def front(program, cluster):
    """The one proxy of the run. Its clients log in by SCRAM."""
    proxy = Proxy(program, cluster, auth_type="scram-sha-256", queue_heartbeat="200ms").start()
    yield proxy
    try:
        proxy.stop()
    finally:
        proxy.remove()


@pytest.fixture(scope="session")
def open_door(program, cluster):
    """A proxy that trusts, as the cluster does: the login is part of the comparison."""
    proxy = Proxy(program, cluster).start()
    yield proxy
    try:
        proxy.stop()
    finally:
        proxy.remove()


@pytest.fixture(scope="module")
def shared_bench(front, open_door, cluster, driver):
    why = driver.missing()
    if why:
        pytest.skip("%s: %s" % (driver.name, why))
    one = Bench(driver, front if driver.scram else open_door, cluster)
    yield one
    one.end()


@pytest.fixture(scope="module")
def tool_bench(front, cluster, tool):
    why = tool.missing()
    if why:
        pytest.skip("%s: %s" % (tool.name, why))
    one = Bench(tool, front, cluster)
    yield one
    one.end()


@pytest.fixture
def bench(request, shared_bench):
    request.node.proxies = [shared_bench.proxy]
    yield shared_bench
    report = getattr(request.node, "report_of_call", None)
    if report is None or report.failed:
        shared_bench.spoilt()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.report_of_call = outcome.get_result()
