"""A forwarder that writes down the conversation, and what of it two runs must have in common.

For:     test_drivers.py, test_pgbench.py: the same program directly and through the proxy.
Must not know: which driver talks, or what is behind it.
Entry points: Recorder (port, conversations), Conversation, compare().
"""

import re
import select
import socket
import struct
import threading

import pgwire

CANCEL, SSL, GSS = pgwire.CANCEL, pgwire.SSL, pgwire.GSS


class Conversation:
    """Of one connection: bytes of both directions."""

    def __init__(self):
        self.asked = b""
        self.told = b""

    def comparable(self, varying=None):
        """(what was asked, what was told), without what differs between two servers: the key of a cancel,
        the settings' order at login, and of errors the place in Postgres' source, which an error that the
        proxy makes itself does not have. varying: names that the driver makes up, numbered here."""
        refused = self._refused()
        asked = [SSL] * refused
        data = self.asked[8 * refused:]
        (size, code) = struct.unpack_from("!II", data)
        if code == CANCEL:
            return [CANCEL], []
        asked.append(settings(data[8:size]))
        asked += [(kind, _numbered(body, varying)) for kind, body in messages(data[size:])]
        told = [(kind, _numbered(body, varying)) for kind, body in messages(self.told[refused:])]
        # node-pg's pool leaves as soon as it has an error: ReadyForQuery may come behind it, or not
        if asked[-1][0] == "X" and told and told[-1][0] == "Z":
            told.pop()
        return asked, settled(told)

    def _refused(self):
        """How many requests for encryption came first; the answer to each is one byte."""
        n = 0
        while self.asked[8 * n:8 * n + 8] in (struct.pack("!II", 8, SSL), struct.pack("!II", 8, GSS)):
            n += 1
        return n


def _numbered(body, varying):
    return re.sub(varying, b"(name)", body) if varying else body


def settings(body):
    """Of a startup packet: some drivers send them in any order."""
    words = body.split(b"\0")
    return sorted(zip(words[::2], words[1::2]))


def messages(data):
    """The messages of a stream: (type, body)."""
    out, pos = [], 0
    while pos < len(data):
        kind = data[pos:pos + 1].decode("latin-1")
        (size,) = struct.unpack_from("!I", data, pos + 1)
        out.append((kind, data[pos + 5:pos + 1 + size]))
        pos += 1 + size
    return out


def settled(told):
    """The answers in a form that is equal if they mean the same."""
    login = next((i for i, (kind, _) in enumerate(told) if kind == "Z"), len(told))
    settings = sorted(m for m in told[:login] if m[0] == "S")
    rest = [m for m in told[:login] if m[0] not in "SK"] + told[login:]
    return settings + [(kind, fields(kind, body)) if kind in "EN" else (kind, body) for kind, body in rest]


def fields(kind, body):
    got = pgwire.Message(kind, body).fields
    return tuple(sorted((k, v) for k, v in got.items() if k not in "FLR"))


def difference(a, b):
    """The first place where two lists differ, in words; None if they are equal."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return "message %d is\n  %r\ndirectly, and\n  %r\nthrough the proxy; before it came\n  %r" % (
                i, x, y, a[max(0, i - 6):i])
    if len(a) != len(b):
        return "%d messages directly, %d through the proxy; the others are\n  %r" % (
            len(a), len(b), (a[len(b):] or b[len(a):])[:10])
    return None


def rest(server):
    """What is still said to a client that has gone."""
    server.settimeout(10)
    server.shutdown(socket.SHUT_WR)
    got = b""
    try:
        while data := server.recv(1 << 16):
            got += data
    except OSError:
        pass
    return got


class Recorder:
    """Listens on a port of its own and forwards to another one."""

    def __init__(self, port):
        self.target = port
        self.conversations = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            conversation = Conversation()
            self.conversations.append(conversation)
            thread = threading.Thread(target=self._forward, args=(client, conversation), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _forward(self, client, conversation):
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [client, server]
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for s in ready:
                    try:
                        data = s.recv(1 << 16)
                        if not data:
                            if s is client:
                                conversation.told += rest(server)
                            return
                        if s is client:
                            conversation.asked += data
                            server.sendall(data)
                        else:
                            conversation.told += data
                            client.sendall(data)
                    except OSError:
                        return

    def close(self):
        """The end of all conversations."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for t in self.threads[1:]:
            t.join(5)  # its client has ended
        for s in self.sockets:
            if s.fileno() >= 0:
                s.shutdown(socket.SHUT_RDWR)
        for t in self.threads:
            t.join(20)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def compare(wires, proxied):
    """What differs between two sets of conversations, in words; None: nothing."""
    if len(wires) != len(proxied):
        return "%d connections directly, %d through the proxy" % (len(wires), len(proxied))
    for n, (a, b) in enumerate(zip(wires, proxied)):
        for what, x, y in (("asked", a[0], b[0]), ("told", a[1], b[1])):
            differs = difference(x, y)
            if differs:
                return "connection %d, what is %s: %s" % (n, what, differs)
    return None
