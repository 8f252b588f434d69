"""Sends to several connections in one system call (io_uring): the same answers with it and without."""

import contextlib
import os

import pytest

from pgwire import types

CLIENTS = 80 # more than go at once


def has_ring(proxy):
    """Has the proxy made itself one?"""
    fds = "/proc/%d/fd" % proxy.process.pid
    for fd in os.listdir(fds):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(os.path.join(fds, fd)) == "anon_inode:[io_uring]":
                return True
    return False


def ask_all(clients, round_):
    """Each asks before any of them reads its answer."""
    for i, c in enumerate(clients):
        c.query("SELECT '%d.%d', repeat('x', %d)" % (round_, i, i * 100))
    for i, c in enumerate(clients):
        rows = [m.text_row for m in c.until("Z") if m.type == "D"]
        assert rows == [["%d.%d" % (round_, i), "x" * (i * 100)]]


@pytest.mark.parametrize("on", [1, 0])
def test_many_clients(qbouncer, db, on):
    proxy = qbouncer(io_uring=on, pool_mode="transaction", max_client_conn=200)
    with contextlib.ExitStack() as links:
        clients = [links.enter_context(proxy.wire(db)) for _ in range(CLIENTS)]
        for round_ in range(5):
            ask_all(clients, round_)
        if on and not has_ring(proxy):
            assert "io_uring is not used" in proxy.log_text()
        elif not on:
            assert not has_ring(proxy)
            proxy.console("SET io_uring = 1")
            ask_all(clients, 5)
        # one goes away without reading, in the middle of it
        clients[3].query("SELECT repeat('x', 1000000)")
        clients[3].sock.close()
        del clients[3]
        ask_all(clients, 6)
        assert types(clients[0].simple("SELECT 1")) == "TDCZ"
