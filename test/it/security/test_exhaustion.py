"""What runs out: descriptors, patience of the login, room of slow senders."""

import resource
import socket
import struct

import pytest

from pgwire import SSL
from proxy import wait_for


def works(proxy, db):
    with proxy.wire(db) as c:
        return c.rows("SELECT 1")


WARNING = "cannot accept connections: Too many open files"


def small(qbouncer, **settings):
    """A proxy that may have 40 descriptors."""
    p = qbouncer(start=False, **settings)
    become = p.become

    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        become()
    p.become = limited
    return p.start()


def fill(proxy):
    """Takes all descriptors that are left; gives the sockets."""
    crowd = [socket.create_connection(("127.0.0.1", proxy.port), 20) for _ in range(60)]
    for s in crowd:
        s.sendall(b"\0")
    proxy.wait_log(WARNING)
    return crowd


def close_all(crowd):
    for s in crowd:
        s.close()


def test_out_of_descriptors(qbouncer, db):
    """Who is in stays in; accepting pauses instead of spinning, and goes on when there is room."""
    p = small(qbouncer)
    with p.wire(db) as old:
        assert old.rows("SELECT 1")
        crowd = fill(p)
        assert old.rows("SELECT 2")
        # a line for each second of the pause
        before = p.log_text().count(WARNING)
        wait_for(lambda: p.log_text().count(WARNING) > before)
        assert p.log_text().count(WARNING) <= before + 2
        close_all(crowd)
        assert wait_for(lambda: works(p, db))


def test_no_descriptor_for_a_server(qbouncer, db):
    """The client is told why; later it works."""
    p = small(qbouncer, server_login_retry="0")
    body = struct.pack("!I", 3 << 16) + b"user\0app\0database\0" + db.encode() + b"\0\0"
    with p.wire() as c:
        c.packet(SSL)
        assert c.sock.recv(1) == b"N"  # accepted, that is
        crowd = fill(p)
        c.sock.sendall(struct.pack("!I", len(body) + 4) + body)
        answer = b""
        while b"Too many open files" not in answer:
            part = c.sock.recv(4096)
            assert part, answer
            answer += part
        close_all(crowd)
    assert wait_for(lambda: works(p, db))


def test_senders_of_single_bytes(qbouncer, db):
    """Start-up packets that never become whole cost little and end in time."""
    p = qbouncer(client_login_timeout="2", max_client_conn="1000")
    body = struct.pack("!I", 3 << 16) + b"user\0app\0database\0" + db.encode() + b"\0\0"
    packet = struct.pack("!I", len(body) + 4) + body
    crowd = [socket.create_connection(("127.0.0.1", p.port), 20) for _ in range(300)]
    for n in range(len(packet) - 1):
        for s in crowd[n % 10::10]:
            try:
                s.sendall(packet[n:n + 1])
            except OSError:
                pass
    assert works(p, db)
    for s in crowd:
        s.settimeout(20)
        try:
            while s.recv(4096):
                pass
        except ConnectionResetError:
            pass
        s.close()
    assert works(p, db)


def test_thousands_who_never_log_in(qbouncer, db):
    """2 000 connections that say nothing, or half of a start-up packet: who logs in comes through, and they go."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("needs 4096 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    crowd = []
    try:
        p = qbouncer(client_login_timeout="5", max_client_conn="3000", max_unauthenticated_conn="0", listen_backlog="4096",
                     tcp_defer_accept="0", log_connections="0", log_disconnections="0", log_pooler_errors="0")
        assert works(p, db)
        before = p.rss_kib()
        for n in range(2000):
            s = socket.create_connection(("127.0.0.1", p.port), 20)
            if n % 2:
                s.sendall(struct.pack("!II", 60, 3 << 16) + b"user\0app\0data")
            crowd.append(s)
            if n % 500 == 499:
                assert works(p, db)
        assert works(p, db)
        assert (p.rss_kib() - before) / 2000 < 40, "memory of each in KiB, with the tools that watch it"
        p.wait_show("LISTS", lambda r: r["list"] == "login_clients" and int(r["items"]) <= 1, 40)
        for s in crowd:
            s.settimeout(20)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        assert works(p, db)
    finally:
        close_all(crowd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_readers_who_never_read(qbouncer, db):
    """Each stops its own server; the proxy keeps little of what they do not take, and serves the others."""
    p = qbouncer(default_pool_size="12", tcp_socket_buffer="16384")
    before = p.rss_kib()
    crowd = [p.wire(db) for _ in range(10)]
    for c in crowd:
        c.query("SELECT repeat('x', 1000000) FROM generate_series(1, 20)")
    p.wait_pool(db, sv_active=10)
    assert works(p, db)
    rows = [int(r["send_avail"]) for r in p.console("SHOW SOCKETS") if r["database"] == db and r["type"] == "C"]
    assert all(n < 1 << 20 for n in rows)
    assert p.rss_kib() - before < 64 * 1024
    for c in crowd:
        c.close()
    p.wait_pool(db, sv_active=0, cl_active=0)
    assert works(p, db)


def test_server_that_never_answers(qbouncer, db):
    """A server that takes connections and says nothing: server_connect_timeout ends the wait, nobody else has any."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(64)
        p = qbouncer(databases={"mute": "host=127.0.0.1 port=%d" % mute.getsockname()[1]}, server_connect_timeout="2")
        waiting = []
        for _ in range(20):
            w = p.wire()
            w.startup(user="app", database="mute", wait=False)
            waiting.append(w)
        with p.wire(db) as c:
            assert c.rows("SELECT 1")
            for w in waiting:
                got = w.closed()
                assert got[-1].sqlstate == "08006" and "timeout" in got[-1].fields["M"]
            assert c.rows("SELECT 1")
