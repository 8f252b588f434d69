"""A client that does not read the delivery that it is shown.

For:     the tests of test/it that are about it.
Must not know: what becomes of the delivery.
Entry points: fixtures c, slow; SIZE, STUCK, push, make, stuck, over, token_of.
"""

import pytest

from proxy import wait_for
from pgwire import Wire
from queuetest import tag

SIZE = 1_000_000        # of an event: some of them are more than sockets hold
STUCK = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite' AND state = 'active'"


def push(wire, n, more=""):
    for _ in range(n // 10):
        tag(wire, "QUEUE PUSH s " + ", ".join(["'%s'" % ("x" * SIZE)] * 10) + more)


def make(wire, n):
    """The stream s with n events, its subscription a, the queue mail."""
    tag(wire, "QUEUE CREATE s WITH (kind = stream, payload = text)")
    tag(wire, "QUEUE SUBSCRIBE a TO s")
    tag(wire, "QUEUE CREATE mail")
    push(wire, n)


@pytest.fixture
def c(request, proxy, db):
    """Who is not slow. There are as many events as the module says in EVENTS."""
    with proxy.wire(db) as wire:
        make(wire, request.module.EVENTS)
        yield wire


@pytest.fixture
def slow(proxy, db):
    """It reads when it is asked to."""
    with Wire(proxy.port, rcvbuf=4096) as wire:
        wire.startup(user="app", database=db)
        yield wire


def stuck(c):
    """The process that writes and is not read."""
    return wait_for(lambda: c.rows(STUCK), "the server to wait until it is read")[0]["pid"]


def over(c, pid):
    """Its statement is not run any more. (It may wait for something else for a while, before it is stuck again.)"""
    wait_for(lambda: not c.rows("SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
                                " AND pid = " + pid), "the end of the statement")


def token_of(rows, n):
    """Of n events as they were pushed."""
    assert [int.from_bytes(r[0], "big") if len(r[0]) == 8 else int(r[0]) for r in rows] == list(range(1, n + 1))
    assert all(r[4] == b"x" * SIZE for r in rows)
    return rows[0][1].decode()
