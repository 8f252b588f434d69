"""What runs out: descriptors, patience of the login, room of slow senders."""

import resource
import socket
import struct

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
