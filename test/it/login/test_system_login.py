"""The login of the session that listens, which is libpq's: a server that is hostile there holds nobody up."""

import base64
import contextlib
import os
import socket
import ssl
import struct
import threading

import pytest

from pgwire import types
from played import Played
from proxy import wait_for
from queuetest import parked, tag

SSL_REQUEST = struct.pack("!II", 8, 80877103)
GREEDY = 2000000


class Between(Played):
    """Before a real server: everybody's connections pass, those of system sessions are given to talk(relay, socket,
    startup packet). tls: (certificate, key), and everybody uses it."""

    at_once = True

    def __init__(self, cluster, talk, tls=None):
        super().__init__()
        self.cluster, self.talk, self.context = cluster, talk, None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*tls)
        self.rounds = GREEDY
        self.answered = self.refused = 0
        self.start()

    def serve(self, conn):
        with contextlib.suppress(OSError, struct.error, IndexError), contextlib.ExitStack() as stack:
            stack.callback(lambda: conn.close())
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = exactly(conn, 8)
            if head == SSL_REQUEST:
                conn.sendall(b"S" if self.context else b"N")
                if self.context:
                    conn = self.context.wrap_socket(conn, server_side=True)
                head = exactly(conn, 8)
            start = head + exactly(conn, struct.unpack("!I", head[:4])[0] - 8)
            (self.talk if b"qbouncer system" in start else Between.relay)(self, conn, start)

    def relay(self, conn, start, most=65536):
        """As it is, at most so many bytes at a time to the proxy."""
        with socket.create_connection(("127.0.0.1", self.cluster.port)) as server:
            server.sendall(start)
            thread = threading.Thread(target=pump, args=(conn, server, 65536), daemon=True)
            thread.start()
            pump(server, conn, most)
            thread.join()


def pump(source, target, most):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            for at in range(0, len(data), most):
                target.sendall(data[at:at + most])
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def exactly(conn, count):
    data = b""
    while len(data) < count:
        more = conn.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


def message(code, data=b""):
    return b"R" + struct.pack("!iI", len(data) + 8, code) + data


def ask(relay, conn, first, pieces):
    """SCRAM with too many rounds; first: what comes with the offer; pieces(message): how it is sent."""
    conn.sendall(message(10, b"SCRAM-SHA-256\0\0") + first)
    head = exactly(conn, 5)
    nonce = exactly(conn, struct.unpack("!i", head[1:])[0] - 4).split(b"r=", 1)[1]
    text = b"r=%sx,s=%s,i=%d" % (nonce, base64.b64encode(os.urandom(16)), relay.rounds)
    for piece in pieces(message(11, text)):
        conn.sendall(piece)
    over(relay, conn)


def over(relay, conn):
    """What comes back: an answer, or the end."""
    try:
        data = conn.recv(1)
    except OSError:
        data = b""
    if data:
        relay.answered += 1
    else:
        relay.refused += 1


LENGTH = len(message(11, b"r=%sx,s=%s,i=%d" % (b"n" * 24, b"s" * 24, GREEDY)))

GREED = {
    "whole": lambda r, c, s: ask(r, c, b"", lambda m: [m]),
    "in bytes": lambda r, c, s: ask(r, c, b"", lambda m: [m[i:i + 1] for i in range(len(m))]),
    "behind another": lambda r, c, s: ask(r, c, b"", lambda m: [message(5, b"salt") + m]),
    "begun before": lambda r, c, s: ask(r, c, message(11, b"r=".ljust(LENGTH - 9))[:11], lambda m: [m[11:]]),
}

TLS = [False, pytest.param(True, id="tls")]


def hostile(qbouncer, db, relay, tls):
    return qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, users={"s_scram": "secret of scram"},
                    queue_user="s_scram", server_tls_sslmode="require" if tls else "disable")


def certificate(pki, tls):
    return (pki.server.cert, pki.server.key) if tls else None


@pytest.mark.parametrize("tls", TLS)
@pytest.mark.parametrize("name", sorted(GREED))
def test_rounds_of_a_hostile_server(qbouncer, cluster, db, pki, name, tls):  # noqa: F811
    """Not one attempt is computed, and others are answered all the time."""
    relay = Between(cluster, GREED[name], certificate(pki, tls))
    proxy = hostile(qbouncer, db, relay, tls)
    with proxy.wire(db) as w, proxy.wire(db) as other:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE PUSH mail '1'")
        answers = []

        def attempts():
            answers.append(types(other.simple("SELECT 1")))
            return relay.refused + relay.answered >= 3
        wait_for(attempts, "three attempts", timeout=40)
        assert relay.answered == 0
        assert len(answers) > 3 and set(answers) == {"TDCZ"}
        assert w.rows("QUEUE POP mail")
        reason = "out of order"
        if name == "in bytes" and tls:
            reason = "in several records of TLS"
        elif name in ("whole", "in bytes"):
            reason = "%d rounds of SCRAM; max_scram_iterations allows 100000" % GREEDY
        elif name == "begun before":    # what is seen begins with the nonce, which may look like a message's type
            reason = "(out of order|malformed message)"
        proxy.wait_log("system session is down, waiting clients are served by polling: .*" + reason)


def test_the_limit_is_the_setting(qbouncer, cluster, db):
    relay = Between(cluster, GREED["whole"])
    relay.rounds = 100001
    proxy = hostile(qbouncer, db, relay, False)
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE PUSH mail '1'")
        wait_for(lambda: relay.refused > 0, "an attempt")
        assert relay.answered == 0
        proxy.settings["max_scram_iterations"] = 100001
        proxy.reload()
        wait_for(lambda: relay.answered > 0, "an answer", timeout=40)


@pytest.mark.parametrize("code", [2, 6, 7, 9, 99])
def test_other_ways_to_log_in(qbouncer, cluster, db, code):
    """libpq would ask a Kerberos server, while nobody is served."""
    def talk(relay, conn, start):
        conn.sendall(message(code))
        over(relay, conn)
    relay = Between(cluster, talk)
    proxy = hostile(qbouncer, db, relay, False)
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE PUSH mail '1'")
        proxy.wait_log(r"system session is down.*an authentication that qbouncer does not support \(code %d\)" % code)
        wait_for(lambda: relay.refused > 0, "the end")
        assert relay.answered == 0


def test_an_error_is_libpqs(qbouncer, cluster, db):
    def talk(relay, conn, start):
        text = b"SFATAL\0C28000\0Mnot you, " + b"x" * 1000 + b"\0\0"
        conn.sendall(b"E" + struct.pack("!i", len(text) + 4) + text)
        over(relay, conn)
    relay = Between(cluster, talk)
    proxy = hostile(qbouncer, db, relay, False)
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE PUSH mail '1'")
        proxy.wait_log("system session is down.*not you, xxx")


@pytest.mark.parametrize("tls", TLS)
@pytest.mark.parametrize("user", ["s_scram", "s_md5", "s_plain", "other"])
def test_each_way_to_log_in(qbouncer, cluster, db, pki, user, tls):  # noqa: F811
    relay = Between(cluster, Between.relay, certificate(pki, tls))
    proxy = hostile(qbouncer, db, relay, tls)
    proxy.users[user] = "secret of " + user[2:]
    proxy.settings["queue_user"] = user
    proxy.reload()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE PUSH mail '1'")
        proxy.wait_log(r"system session is up \(role %s\)" % user)


@pytest.mark.parametrize("user", ["s_scram", "s_md5", "other"])
def test_a_server_that_sends_bytes(qbouncer, cluster, db, user):
    relay = Between(cluster, lambda r, c, s: r.relay(c, s, 1))
    proxy = hostile(qbouncer, db, relay, False)
    proxy.users[user] = "secret of " + user[2:]
    proxy.settings["queue_user"] = user
    proxy.reload()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE PUSH mail '1'")
        proxy.wait_log(r"system session is up \(role %s\)" % user)


# -- whose session it is ----------------------------------------------------------------------------


class Late:
    """Before a real server: of this user the system session's login waits until let(), or is refused."""

    def __init__(self, cluster, user):
        self.start = b"user\0%s\0" % user.encode()
        self.came, self.may = threading.Event(), threading.Event()
        self.refuses = False
        self.between = Between(cluster, self.talk)
        self.port = self.between.port

    def talk(self, relay, conn, start):
        if self.start in start:
            self.came.set()
            assert self.may.wait(60)
            if self.refuses:
                conn.sendall(refusal("28000", "role is not permitted to log in"))
                return
        relay.relay(conn, start)


def refusal(state, text):
    body = b"SFATAL\0C%s\0M%s\0\0" % (state.encode(), text.encode())
    return b"E" + struct.pack("!i", len(body) + 4) + body


def session_of(cluster, db):
    return cluster.psql("SELECT coalesce(string_agg(usename, ' '), '') FROM pg_stat_activity "
                        "WHERE application_name = 'qbouncer system' AND datname = '%s'" % db)


@pytest.mark.parametrize("first", ["postgres", "other"])
def test_who_waits_already_has_a_session(qbouncer, cluster, db, first):
    """The first role is a superuser, or its lock says nothing to other proxies; before that is known
    somebody else waits, and says nothing more."""
    late = Late(cluster, first)
    proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % late.port}, users={"postgres": "-"})
    with proxy.wire(db) as c, proxy.wire(db, first) as f, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        if first == "other":
            tag(c, "QUEUE GRANT PUSH ON mail TO other")
        tag(f, "QUEUE PUSH mail '1'")
        assert late.came.wait(20)
        assert len(c.rows("QUEUE TAKE mail")) == 1
        w.query("QUEUE TAKE mail WAIT '60s'")
        parked(w)
        late.may.set()
        wait_for(lambda: session_of(cluster, db) == "app", "the session of who waits")
        cluster.psql("SELECT queue.push('mail', '2')", db)
        assert w.until("Z")


def test_a_role_that_may_not_log_in_any_more(qbouncer, cluster, db):
    """Another one's session takes its place, though nobody says anything."""
    late = Late(cluster, "other")
    proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % late.port})
    with proxy.wire(db) as c, proxy.wire(db, "other") as o, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE GRANT ALL ON mail TO other")
        late.may.set()
        tag(o, "QUEUE PUSH mail '1'")
        assert len(o.rows("QUEUE POP mail")) == 1
        wait_for(lambda: session_of(cluster, db) == "other", "the session")
        w.query("QUEUE TAKE mail WAIT '60s'")
        parked(w)
        late.refuses = True
        cluster.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'qbouncer system' "
                     "AND datname = '%s'" % db)
        wait_for(lambda: session_of(cluster, db) == "app", "the session of another role", timeout=30)
        cluster.psql("SELECT queue.push('mail', '2')", db)
        assert w.until("Z")
