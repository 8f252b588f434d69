"""Peers: a cancel request that comes to the wrong process is handed to the right one."""

import contextlib
import socket
import struct

import pytest

from pgwire import CANCEL, types
from proxy import free_port, running, wait_for


def cancel_through(proxy, c):
    """The request of this client's key, sent to a proxy; until it has closed the connection."""
    with proxy.wire() as other:
        other.packet(CANCEL, struct.pack("!i", c.pid) + c.key)
        other.closed()


@pytest.fixture
def pair(qbouncer):
    ports = [free_port(), free_port()]
    made = []
    for i in range(2):
        made.append(qbouncer(listen_port=str(ports[i]), peer_id=i + 1,
                             sections="[peers]\n1 = host=127.0.0.1 port=%d\n2 = host=127.0.0.1 port=%d\n" % tuple(ports)))
    return made


def test_cancel_is_handed_on(pair, db, direct):
    one, two = pair
    for here, there in (one, two), (two, one), (one, one):
        with here.wire(db) as c:
            c.query("SELECT pg_sleep(60)")
            running(direct)
            cancel_through(there, c)
            got = c.until("Z")
            assert [m.sqlstate for m in got if m.type == "E"] == ["57014"]
            assert types(c.simple("SELECT 1")) == "TDCZ"


def test_shows(pair):
    rows = pair[0].console("SHOW PEERS")
    assert [r["peer_id"] for r in rows] == ["1", "2"] and rows[0]["host"] == "127.0.0.1"
    assert len(pair[0].console("SHOW PEER_POOLS")) == 2


def test_unknown_peer_is_nobody(qbouncer, db):
    """A key of a peer that is not in the list, and one without further hops: nothing happens, nothing loops."""
    proxy = qbouncer(peer_id=1, sections="[peers]\n1 = host=127.0.0.1\n")
    with proxy.wire(db) as c:
        for key in struct.pack("!II", 0x00000700, 3), struct.pack("!II", 0x00000200, 0):
            with proxy.wire() as other:
                other.packet(CANCEL, key)
                other.closed()
        assert types(c.simple("SELECT 1")) == "TDCZ"


@contextlib.contextmanager
def asked_of_a_mute_peer(qbouncer, db, timeout):
    """A client, and another that has asked for a cancel which was handed on to a peer that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(20)
        proxy = qbouncer(peer_id=1, cancel_wait_timeout=timeout,
                         sections="[peers]\n1 = host=127.0.0.1\n2 = host=127.0.0.1 port=%d\n" % mute.getsockname()[1])
        with proxy.wire(db) as c, proxy.wire() as other:
            key = bytearray(struct.pack("!i", c.pid) + c.key)
            key[1:3] = 0, 2  # of the other one
            other.packet(CANCEL, bytes(key))
            there, _ = mute.accept()
            with there:
                yield proxy, c, other, there


def test_peer_that_never_answers(qbouncer, db):
    """Who asks is let go after cancel_wait_timeout, and nothing of it is left."""
    with asked_of_a_mute_peer(qbouncer, db, "1") as (proxy, c, other, _):
        other.closed()
        proxy.wait_log(r"LOG C-0x[0-9a-f]+: \(nodb\)/\(nouser\)@\S+ closing because: cancel_wait_timeout ")
        assert types(c.simple("SELECT 1")) == "TDCZ"
        wait_for(lambda: {r["list"]: r["items"] for r in proxy.console("SHOW LISTS")}["login_clients"] == "0", "the end")


def test_requests_that_are_handed_on_are_counted(qbouncer, db):
    with asked_of_a_mute_peer(qbouncer, db, "1h") as (proxy, _, other, there):
        assert [list(r.values()) for r in proxy.console("SHOW PEER_POOLS")] == [
            ["1", "0", "0", "0", "0"], ["2", "1", "0", "1", "0"]]
        there.close()
        other.closed()
        assert [r["sv_active_cancel"] for r in proxy.console("SHOW PEER_POOLS")] == ["0", "0"]
