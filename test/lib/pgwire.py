"""The Postgres protocol in the raw, client side: messages out and in, readable when printed.

For:     tests that look at single messages, which drivers hide.
Must not know: the proxy, pytest.
Entry points: Wire (connect, startup, query, parse ... recv, until), Message, cancel().

    with Wire(port=6432) as c:
        c.startup(user="app", database="app")
        c.parse("s", "SELECT $1::int").bind("", "s", ["1"]).execute().sync()
        assert [m.type for m in c.until("Z")] == ["1", "2", "D", "C", "Z"]
"""

import base64
import hashlib
import hmac
import os
import socket
import struct

V3_0 = 3 << 16
V3_2 = (3 << 16) | 2
CANCEL = (1234 << 16) | 5678
SSL = (1234 << 16) | 5679
GSS = (1234 << 16) | 5680

NAMES = {
    "R": "Authentication", "S": "ParameterStatus", "K": "BackendKeyData", "Z": "ReadyForQuery",
    "E": "ErrorResponse", "N": "NoticeResponse", "T": "RowDescription", "D": "DataRow",
    "C": "CommandComplete", "I": "EmptyQueryResponse", "1": "ParseComplete",
    "2": "BindComplete", "3": "CloseComplete", "n": "NoData", "s": "PortalSuspended",
    "t": "ParameterDescription", "A": "NotificationResponse", "G": "CopyInResponse",
    "H": "CopyOutResponse", "W": "CopyBothResponse", "d": "CopyData", "c": "CopyDone",
    "V": "FunctionCallResponse", "v": "NegotiateProtocolVersion",
}


class Closed(Exception):
    """The other side ended the connection."""


class Message:
    """One message of the server: type is the letter, body the bytes."""

    def __init__(self, kind, body):
        self.type = kind
        self.body = body

    @property
    def fields(self):
        """Of an ErrorResponse or NoticeResponse: letter -> text."""
        parts = self.body.split(b"\0")
        return {p[:1].decode(): p[1:].decode("utf-8", "replace") for p in parts if p}

    @property
    def sqlstate(self):
        return self.fields.get("C")

    @property
    def tag(self):
        return self.body[:-1].decode()

    @property
    def status(self):
        """Of a ReadyForQuery: I, T or E."""
        return self.body.decode()

    @property
    def row(self):
        """Of a DataRow: list of bytes, None for NULL."""
        (n,) = struct.unpack_from("!h", self.body)
        pos, out = 2, []
        for _ in range(n):
            (size,) = struct.unpack_from("!i", self.body, pos)
            pos += 4
            if size < 0:
                out.append(None)
            else:
                out.append(self.body[pos:pos + size])
                pos += size
        assert pos == len(self.body), "a DataRow with bytes left over"
        return out

    @property
    def text_row(self):
        return [None if v is None else v.decode() for v in self.row]

    @property
    def columns(self):
        """Of a RowDescription: list of (name, oid, format)."""
        (n,) = struct.unpack_from("!h", self.body)
        pos, out = 2, []
        for _ in range(n):
            end = self.body.index(b"\0", pos)
            name = self.body[pos:end].decode()
            _table, _attr, oid, _len, _mod, fmt = struct.unpack_from("!IhIhih", self.body, end + 1)
            out.append((name, oid, fmt))
            pos = end + 1 + 18
        assert pos == len(self.body), "a RowDescription with bytes left over"
        return out

    @property
    def oids(self):
        """Of a ParameterDescription."""
        (n,) = struct.unpack_from("!h", self.body)
        return list(struct.unpack_from("!%dI" % n, self.body, 2))

    @property
    def parameter(self):
        """Of a ParameterStatus: (name, value)."""
        name, value, _ = self.body.split(b"\0")
        return name.decode(), value.decode()

    def __repr__(self):
        name = NAMES.get(self.type, "?" + self.type)
        try:
            if self.type in "EN":
                f = self.fields
                return "%s %s %s: %s" % (name, f.get("S"), f.get("C"), f.get("M"))
            if self.type == "C":
                return "%s %r" % (name, self.tag)
            if self.type == "Z":
                return "%s %s" % (name, self.status)
            if self.type == "D":
                return "%s %r" % (name, [v if v is None else v[:60] for v in self.row])
            if self.type == "T":
                return "%s %r" % (name, [c[0] for c in self.columns])
            if self.type == "S":
                return "%s %s=%s" % ((name,) + self.parameter)
        except (struct.error, ValueError, AssertionError):
            return "%s MALFORMED %r" % (name, self.body[:80])
        return "%s %r" % (name, self.body[:40]) if self.body else name


def types(messages):
    """The letters of messages as one string."""
    return "".join(m.type for m in messages)


class Wire:
    """A connection. Methods that send return self, so that they can be chained; what they send
    leaves at once unless hold() was called, then at push()."""

    def __init__(self, port, host="127.0.0.1", timeout=20, rcvbuf=None, source=None):
        if host.startswith("/"):
            self.sock = socket.socket(socket.AF_UNIX)
            address = "%s/.s.PGSQL.%d" % (host, port)
        else:
            self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            address = (host, port)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if source:
            self.sock.bind((source, 0))
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        if not host.startswith("/"):
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host, self.port = host, port
        self.data = bytearray()
        self.parameters = {}
        self.pid, self.key = None, None
        self.held = None
        self.log = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Ends the connection without a word, as a crash would."""
        self.sock.close()

    def terminate(self):
        """Ends it with a goodbye."""
        self.send("X")
        self.sock.close()

    def reset(self):
        """Ends it with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # -- out -------------------------------------------------------------------------------

    def raw(self, data):
        if self.held is not None:
            self.held += data
        else:
            self.sock.sendall(data)
        return self

    def hold(self):
        """What is sent from now on leaves in one write, at push()."""
        self.held = bytearray()
        return self

    def push(self):
        data, self.held = self.held, None
        self.sock.sendall(data)
        return self

    def send(self, kind, body=b""):
        return self.raw(kind.encode() + struct.pack("!i", len(body) + 4) + body)

    def packet(self, code, body=b""):
        """A packet without type, as the first one is."""
        return self.raw(struct.pack("!iI", len(body) + 8, code) + body)

    def query(self, sql):
        return self.send("Q", cstr(sql))

    def parse(self, name, sql, oids=()):
        return self.send("P", cstr(name) + cstr(sql) + struct.pack("!h%dI" % len(oids), len(oids), *oids))

    def bind(self, portal="", statement="", values=(), formats=(), results=()):
        body = cstr(portal) + cstr(statement)
        body += struct.pack("!h%dh" % len(formats), len(formats), *formats)
        body += struct.pack("!h", len(values))
        for v in values:
            if v is None:
                body += struct.pack("!i", -1)
            else:
                v = v.encode() if isinstance(v, str) else bytes(v)
                body += struct.pack("!i", len(v)) + v
        body += struct.pack("!h%dh" % len(results), len(results), *results)
        return self.send("B", body)

    def describe(self, kind, name=""):
        return self.send("D", kind.encode() + cstr(name))

    def execute(self, portal="", limit=0):
        return self.send("E", cstr(portal) + struct.pack("!i", limit))

    def close_object(self, kind, name=""):
        return self.send("C", kind.encode() + cstr(name))

    def flush(self):
        return self.send("H")

    def sync(self):
        return self.send("S")

    def copy_data(self, data):
        return self.send("d", data)

    def copy_done(self):
        return self.send("c")

    def copy_fail(self, why):
        return self.send("f", cstr(why))

    # -- in --------------------------------------------------------------------------------

    def _need(self, n):
        while len(self.data) < n:
            got = self.sock.recv(1 << 16)
            if not got:
                raise Closed("closed by the server; so far: %r" % (self.log[-10:],))
            self.data += got

    def read_bytes(self, n):
        self._need(n)
        out = bytes(self.data[:n])
        del self.data[:n]
        return out

    def recv(self):
        """The next message. Raises Closed at the end, socket.timeout when nothing comes."""
        self._need(5)
        kind = chr(self.data[0])
        (size,) = struct.unpack_from("!i", self.data, 1)
        assert 4 <= size < 1 << 30, "length %d of a message %r" % (size, kind)
        self._need(size + 1)
        msg = Message(kind, bytes(self.data[5:size + 1]))
        del self.data[:size + 1]
        if kind == "S":
            name, value = msg.parameter
            self.parameters[name] = value
        elif kind == "K":
            self.pid, self.key = struct.unpack_from("!i", msg.body)[0], msg.body[4:]
        self.log.append(msg)
        del self.log[:-50]
        return msg

    def until(self, kinds="Z", skip="SNA"):
        """Messages up to and including the first of these types. Those of the types in skip, which
        may come at any time, are left out."""
        out = []
        while True:
            msg = self.recv()
            if msg.type in kinds:
                return out + [msg]
            if msg.type not in skip:
                out.append(msg)

    def silent(self, seconds=0.2):
        """True when nothing comes in that time."""
        if self.data:
            return False
        old = self.sock.gettimeout()
        self.sock.settimeout(seconds)
        try:
            got = self.sock.recv(1 << 16)
        except socket.timeout:
            return True
        finally:
            self.sock.settimeout(old)
        self.data += got
        return False

    def closed(self):
        """Reads on to the end: the messages that still came."""
        out = []
        try:
            while True:
                out.append(self.recv())
        except (Closed, ConnectionError):
            return out

    # -- whole dialogues -------------------------------------------------------------------

    def startup(self, user=None, database=None, password=None, version=V3_0, wait=True, **more):
        body = b""
        pairs = {"user": user, "database": database}
        pairs.update(more)
        for name, value in pairs.items():
            if value is not None:
                body += cstr(name) + cstr(value)
        self.packet(version, body + b"\0")
        return self.login(user, password) if wait else self

    def login(self, user=None, password=None):
        """Answers the server's Authentication requests up to the first ReadyForQuery."""
        scram = None
        while True:
            msg = self.recv()
            if msg.type == "E":
                raise PgError(msg)
            if msg.type == "Z":
                return self
            if msg.type != "R":
                continue
            (code,) = struct.unpack_from("!i", msg.body)
            if code == 3:
                self.send("p", cstr(password))
            elif code == 5:
                inner = hashlib.md5((password + user).encode()).hexdigest()
                outer = hashlib.md5(inner.encode() + msg.body[4:8]).hexdigest()
                self.send("p", cstr("md5" + outer))
            elif code == 10:
                scram = Scram(password)
                first = scram.first()
                self.send("p", cstr("SCRAM-SHA-256") + struct.pack("!i", len(first)) + first)
            elif code == 11:
                self.send("p", scram.final(msg.body[4:]))
            elif code == 12:
                scram.verify(msg.body[4:])

    def simple(self, sql):
        """Runs a Query and gives its messages up to ReadyForQuery."""
        return self.query(sql).until("Z")

    def rows(self, sql):
        """Runs a Query and gives its rows as dicts of texts; an error is raised."""
        columns, out = [], []
        error = None
        for m in self.simple(sql):
            if m.type == "T":
                columns = [c[0] for c in m.columns]
            elif m.type == "D":
                out.append(dict(zip(columns, m.text_row)))
            elif m.type == "E":
                error = error or m
        if error:
            raise PgError(error)
        return out


class PgError(Exception):
    """An ErrorResponse, with its fields."""

    def __init__(self, msg):
        f = msg.fields
        super().__init__("%s %s: %s" % (f.get("S"), f.get("C"), f.get("M")))
        self.fields = f
        self.sqlstate = f.get("C")
        self.message = f.get("M")


class Scram:
    """The client's half of SCRAM-SHA-256."""

    def __init__(self, password):
        self.password = password.encode()
        self.nonce = base64.b64encode(os.urandom(18)).decode()

    def first(self):
        self.bare = "n=,r=" + self.nonce
        return ("n,," + self.bare).encode()

    def final(self, server_first):
        server_first = server_first.decode()
        parts = dict(p.split("=", 1) for p in server_first.split(","))
        assert parts["r"].startswith(self.nonce)
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(parts["s"]),
                                     int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        stored = hashlib.sha256(client_key).digest()
        without = "c=biws,r=" + parts["r"]
        auth = ",".join((self.bare, server_first, without)).encode()
        proof = bytes(a ^ b for a, b in zip(client_key, hmac.digest(stored, auth, "sha256")))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.signature = base64.b64encode(hmac.digest(server_key, auth, "sha256")).decode()
        return (without + ",p=" + base64.b64encode(proof).decode()).encode()

    def verify(self, server_final):
        assert server_final.decode() == "v=" + self.signature, "the server's signature is wrong"


def cstr(text):
    if text is None:
        text = ""
    return (text.encode() if isinstance(text, str) else text) + b"\0"


def cancel(wire):
    """Sends the CancelRequest for a connection and waits until the server has closed it."""
    with Wire(wire.port, wire.host) as c:
        c.packet(CANCEL, struct.pack("!i", wire.pid) + wire.key)
        c.closed()
