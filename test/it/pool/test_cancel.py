"""CancelRequest: finds the right server, and only that."""

import socket
import struct
import threading

import psycopg
import pytest

from pgwire import CANCEL, cancel, types
from proxy import running


def test_cancel(proxy, db, direct):
    with proxy.wire(db) as c:
        c.query("SELECT pg_sleep(30)")
        running(direct)
        cancel(c)
        got = c.until("Z")
        assert got[-2].sqlstate == "57014"
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_cancel_by_psycopg(proxy, db, direct):
    with proxy.connect(db) as conn:
        def later():
            running(direct)
            conn.cancel()
        t = threading.Thread(target=later)
        t.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(30)")
        t.join()
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_cancel_hits_only_its_own(qbouncer, db, direct):
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.query("SELECT pg_sleep(1.5), 'a'")
        b.query("SELECT pg_sleep(30), 'b'")
        running(direct, 2)
        cancel(b)
        assert b.until("Z")[-2].sqlstate == "57014"
        assert types(a.until("Z")) == "TDCZ"


def test_cancel_of_an_idle_client(proxy, db):
    with proxy.wire(db) as c, proxy.wire(db) as other:
        c.simple("SELECT 1")
        for _ in range(20):
            cancel(c)
            assert types(other.simple("SELECT 1")) == "TDCZ"
        assert types(c.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("key", [b"", b"\0" * 4, b"\0" * 32, b"\0" * 256, b"\0" * 300])
def test_wrong_key(proxy, db, direct, key):
    with proxy.wire(db) as c:
        c.query("SELECT pg_sleep(0.7)")
        running(direct)
        with proxy.wire() as x:
            x.packet(CANCEL, struct.pack("!i", c.pid) + key)
            x.closed()
        assert types(c.until("Z")) == "TDCZ"


def test_cancel_of_a_client_that_waits_for_a_server(qbouncer, db):
    """It is told, and its session lives."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN; SELECT 1")
        b.query("SELECT 1")
        proxy.wait_pool(db, cl_waiting=1)
        cancel(b)
        got = b.until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "57014"
        a.simple("COMMIT")
        assert types(b.simple("SELECT 1")) == "TDCZ"


def test_keys_are_random(proxy, db):
    clients = [proxy.wire(db) for _ in range(10)]
    assert len({(c.pid, c.key) for c in clients}) == 10
    assert len({c.key for c in clients}) == 10
    for c in clients:
        c.terminate()


def test_requests_are_counted(qbouncer):
    """A server that answers a login, and nothing to a cancel request: until it has closed that connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        proxy = qbouncer(databases={"slow": "host=127.0.0.1 port=%d" % server.getsockname()[1]},
                         server_tls_sslmode="disable", cancel_wait_timeout="1h")
        with proxy.wire() as c:
            c.startup("app", "slow", wait=False)
            session, _ = server.accept()
            with session:
                session.recv(10000)
                session.sendall(b"R\0\0\0\x08\0\0\0\0" b"K\0\0\0\x0c\0\0\0\x01abcd" b"Z\0\0\0\x05I")
                c.until("Z")
                c.query("SELECT 1")
                while b"SELECT 1" not in session.recv(10000):
                    session.sendall(b"C\0\0\0\x08SET\0" b"Z\0\0\0\x05I")
                with proxy.wire() as other:
                    other.packet(CANCEL, struct.pack("!i", c.pid) + c.key)
                    request, _ = server.accept()
                    proxy.wait_pool("slow", cl_active_cancel_req=1, sv_active_cancel=1, sv_being_canceled=1, cl_active=1)
                    request.close()
                    other.closed()
                proxy.wait_pool("slow", cl_active_cancel_req=0, sv_active_cancel=0, cl_active=1)
