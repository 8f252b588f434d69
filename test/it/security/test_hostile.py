"""Malformed input, at every state: Postgres' own reaction, never a crash or a hang."""

import base64
import os
import random
import struct

import pytest

from pgwire import Closed, PgError, Wire, cstr, types
from played import Played
from proxy import wait_for

BAD_STARTUP = {
    "short length": struct.pack("!I", 3),
    "zero length": struct.pack("!I", 0),
    "length of 7": struct.pack("!I", 7) + b"abc",
    "negative length": struct.pack("!I", 0xFFFFFFFF) + b"\0\3\0\0",
    "huge length": struct.pack("!II", 0x7FFFFFFF, 3 << 16),
    "10001 bytes": struct.pack("!II", 10001, 3 << 16) + b"user\0app\0" + b"x" * 9984,
    "old protocol": struct.pack("!II", 296, 2 << 16) + b"\0" * 288,
    "future protocol": struct.pack("!II", 18, 4 << 16) + b"user\0app\0\0",
    "no user": struct.pack("!II", 9, 3 << 16) + b"\0",
    "empty user": struct.pack("!II", 15, 3 << 16) + b"user\0\0\0",
    "no terminator": struct.pack("!II", 17, 3 << 16) + b"user\0app\0",
    "value missing": struct.pack("!II", 14, 3 << 16) + b"user\0\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "short cancel": struct.pack("!III", 12, (1234 << 16) | 5678, 1),
    "long ssl request": struct.pack("!II", 12, (1234 << 16) | 5679) + b"abcd",
    "password before startup": b"p\0\0\0\x08abc\0",
    "query before startup": b"Q\0\0\0\x0dSELECT 1\0",
    "very long user": struct.pack("!II", 8 + 5 + 5001 + 1, 3 << 16) + b"user\0" + b"u" * 5000 + b"\0\0",
    "very long database": struct.pack("!II", 8 + 9 + 9 + 5001 + 1, 3 << 16) + b"user\0app\0database\0"
                          + b"d" * 5000 + b"\0\0",
}


@pytest.mark.parametrize("name", sorted(BAD_STARTUP))
def test_startup(qbouncer, db, name):
    proxy = qbouncer(client_login_timeout=2)
    with proxy.wire() as c:
        c.raw(BAD_STARTUP[name])
        for m in c.closed():
            assert m.type in "EvRSKZ", m
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_bytes_behind_the_ssl_request(proxy):
    """CVE-2021-3935 and its sisters: what comes in clear behind the request is not read."""
    from pgwire import SSL
    with proxy.wire() as c:
        c.hold().packet(SSL).raw(b"\x16\x03\x01").push()
        data = c.read_bytes(1)
        assert data in (b"N", b"E")
        c.closed()


BAD_MESSAGES = {
    "length 0": (b"Q" + struct.pack("!I", 0), None),
    "length 3": (b"Q" + struct.pack("!I", 3), None),
    "negative length": (b"Q" + struct.pack("!I", 0xFFFFFFFF), None),
    "most negative length": (b"Q" + struct.pack("!I", 0x80000000), None),
    "unknown type": (b"\x01" + struct.pack("!I", 4), "08P01"),
    "backend's type": (b"T" + struct.pack("!I", 6) + b"\0\0", "08P01"),
    "query without end": (b"Q" + struct.pack("!I", 12) + b"SELECT 1", "08P01"),
    "bind too short": (b"B" + struct.pack("!I", 5) + b"\0", "08P01"),
    "bind with 32767 values": (b"B" + struct.pack("!I", 10) + b"\0\0\0\0\x7f\xff", "08P01"),
    "bind with a value that overruns": (b"B" + struct.pack("!I", 18) + b"\0\0\0\0\0\1\x7f\xff\xff\xff"
                                        + b"\0\0\0\0", "08P01"),
    "parse without names": (b"P" + struct.pack("!I", 4), "08P01"),
    "describe nothing": (b"D" + struct.pack("!I", 4), "08P01"),
    "describe of a wrong kind": (b"D" + struct.pack("!I", 6) + b"Q\0", "08P01"),
    "close of a wrong kind": (b"C" + struct.pack("!I", 6) + b"Q\0", "08P01"),
    "execute too short": (b"E" + struct.pack("!I", 5) + b"\0", "08P01"),
    "password message": (b"p" + struct.pack("!I", 6) + b"x\0", "08P01"),
    "sync with a body": (b"S" + struct.pack("!I", 8) + b"abcd", "08P01"),
    "terminate with a body": (b"X" + struct.pack("!I", 8) + b"abcd", None),
    "function call too short": (b"F" + struct.pack("!I", 4), "08P01"),
}


@pytest.mark.parametrize("name", sorted(BAD_MESSAGES))
@pytest.mark.parametrize("state", ["idle", "transaction"])
def test_messages(proxy, db, name, state):
    """An ERROR and the session lives, or a FATAL and it ends: but something, and not silence."""
    data, sqlstate = BAD_MESSAGES[name]
    with proxy.wire(db) as c, proxy.wire(db) as other:
        if state == "transaction":
            c.simple("BEGIN")
            c.simple("SELECT 1")
        if name.startswith("bind"):
            c.parse("", "SELECT 1")
        c.raw(data)
        try:
            c.sync()
            got = c.until("Z")
            if not any(m.type == "E" for m in got):
                got += c.until("Z")
        except Exception:
            got = [m for m in c.log if m.type == "E"]
        errors = [m for m in got if m.type == "E"]
        if sqlstate:
            assert errors and errors[0].sqlstate == sqlstate, got
        c.close()
        assert types(other.simple("SELECT 1")) == "TDCZ"
    proxy.wait_pool(db, sv_active=0)


def test_announced_length_is_not_allocated(proxy, db):
    """A gigabyte announced and not sent costs nothing."""
    before = proxy.rss_kib()
    clients = []
    for kind in b"QPBDEFd":
        c = proxy.wire(db)
        c.raw(bytes([kind]) + struct.pack("!I", 0x3FFFFFFF) + b"x" * 100)
        clients.append(c)
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"
    assert proxy.rss_kib() - before < 30000
    for c in clients:
        c.close()


@pytest.mark.parametrize("seed", range(8))
def test_noise(proxy, db, seed):
    rng = random.Random(seed)
    for _ in range(60):
        with Wire(proxy.port) as c:
            if rng.random() < 0.7:
                c.startup("app", db)
            data = bytearray(b"Q\0\0\0\x0dSELECT 1\0P\0\0\0\x10s\0SELECT 1\0\0\0B\0\0\0\x0c\0s\0\0\0\0\0\0"
                             b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\4")
            for _ in range(rng.randrange(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                c.raw(bytes(data))
                if rng.random() < 0.5:
                    c.raw(rng.randbytes(rng.randrange(1, 300)))
            except ConnectionError:
                pass
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


def test_many_connections_that_say_nothing(qbouncer, db):
    proxy = qbouncer(client_login_timeout=1, max_client_conn=50, tcp_defer_accept=0)
    silent = [Wire(proxy.port) for _ in range(40)]
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"
    for c in silent:
        c.closed()


@pytest.mark.parametrize("name", ["x" * 63, "x" * 64, "x" * 5000, "ä" * 40, "a b\"c'd;--", "%s%n%n"])
def test_odd_names(proxy, name):
    """Of users and databases: an error that names it, no more."""
    with proxy.wire() as c:
        c.startup(name, "db", wait=False)
        got = c.closed()
        assert got[-1].type == "E"
    with proxy.wire() as c:
        c.startup("app", name, wait=False)
        got = c.query("SELECT 1").closed()
        assert any(m.type == "E" for m in got)


def test_statement_name_of_many_bytes(proxy, db):
    """Runs, or is refused: the memory of a name is bounded."""
    with proxy.wire(db) as c:
        name = "n" * 100000
        c.hold().parse(name, "SELECT 1").bind("", name).execute().sync().push()
        try:
            assert types(c.until("Z")) in ("12DCZ", "EZ")
        except Closed:
            assert c.log[-1].fields["S"] == "FATAL"
    with proxy.wire(db) as c:
        c.raw(b"P" + struct.pack("!I", 4 + 3 + 1) + cstr("ab")) # a byte short, then the end
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


class GreedyServer(Played):
    """Asks for so many rounds of SCRAM, with another salt each time."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds
        self.answered = 0
        self.start()

    def serve(self, conn):
        with conn.makefile("rwb") as f:
            self.ask(f)

    def ask(self, f):
        def read(kind):
            head = f.read(5 if kind else 4)
            return f.read(struct.unpack("!i", head[-4:])[0] - 4)

        def say(code, data):
            f.write(b"R" + struct.pack("!iI", len(data) + 8, code) + data)
            f.flush()
        try:
            read(None)
            say(10, b"SCRAM-SHA-256\0\0")
            nonce = read("p").split(b"r=", 1)[1]
            say(11, b"r=%sx,s=%s,i=%d" % (nonce, base64.b64encode(os.urandom(16)), self.rounds))
            self.answered += f.read(1) == b"p"
        except (OSError, struct.error, IndexError):
            pass


def test_rounds_of_a_hostile_server(qbouncer):
    """What a server may ask of us is bounded: its rounds are done while nobody is served. The error names the figure."""
    server = GreedyServer(100001)
    proxy = qbouncer(databases={"*": "host=127.0.0.1 port=%d" % server.port}, users={"app": "app-password"}, auth_type="plain",
                     server_tls_sslmode="disable")
    with pytest.raises(PgError) as e:
        proxy.wire("x", password="app-password")
    assert e.value.sqlstate == "28P01"
    assert "100001 rounds" in e.value.fields["D"] and "max_scram_iterations allows 100000" in e.value.fields["D"]
    assert "max_scram_iterations" in e.value.fields["H"]
    assert server.answered == 0
    proxy.settings["max_scram_iterations"] = 100001
    proxy.reload()
    proxy.console("RECONNECT")
    with pytest.raises(PgError):
        proxy.wire("x", password="app-password")
    wait_for(lambda: server.answered > 0, "the answer")


def test_rounds_of_a_stored_secret(qbouncer, db):
    """A role may give itself a secret with any number of rounds: a password is not compared with it for seconds."""
    secret = "SCRAM-SHA-256$999999:AAAAAAAAAAAAAAAAAAAAAA==$%s:%s" % ((base64.b64encode(b"k" * 32).decode(),) * 2)
    proxy = qbouncer(auth_type="plain", users={"greedy": secret})
    with pytest.raises(PgError) as e:
        proxy.wire(db, "greedy", password="x")
    assert e.value.sqlstate == "28P01"
    proxy.wait_log(r'secret of user "greedy" has 999999 rounds')
