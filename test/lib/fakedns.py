"""A nameserver that answers as a test wants.

For:     tests of names.
Must not know: the proxy, pytest.
Entry points: FakeDns (addresses, names, silent, broken, asked, questions, resolv_conf,
speak), a context manager.

    with FakeDns() as dns:
        dns.addresses["db.test"] = ["127.0.0.1"]     # none: NXDOMAIN
        dns.silent.add("slow.test")                  # no answer
        dns.silent.add(("half.test", AAAA))          # none to this question
        dns.broken.add(("half.test", A))             # SERVFAIL
"""

import ipaddress
import socket
import struct
import threading

A, PTR, AAAA = 1, 12, 28


class FakeDns:
    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.addresses = {}
        self.names = {}  # address -> name, for PTR
        self.silent = set()
        self.broken = set()
        self.dead = False
        self.asked = []
        self.questions = []  # (name, kind)
        self.held = []  # what was not answered
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.sock.close()

    @property
    def resolv_conf(self):
        return "nameserver 127.0.0.1:%d\noptions timeout:1 attempts:2\n" % self.port

    def run(self):
        while True:
            try:
                data, peer = self.sock.recvfrom(4096)
                answer = self.answer(data, peer)
                if answer:
                    self.sock.sendto(answer, peer)
            except OSError:
                return

    def speak(self):
        """Answers all that was asked in silence."""
        self.silent.clear()
        for data, peer in self.held:
            self.sock.sendto(self.answer(data, peer), peer)

    def answer(self, data, peer):
        labels, pos = [], 12
        while data[pos]:
            labels.append(data[pos + 1:pos + 1 + data[pos]].decode())
            pos += 1 + data[pos]
        question = data[12:pos + 5]
        (kind,) = struct.unpack_from("!H", data, pos + 1)
        name = ".".join(labels).lower()
        self.asked.append(name)
        self.questions.append((name, kind))
        if self.dead or name in self.silent or (name, kind) in self.silent:
            self.held.append((data, peer))
            return None
        if (name, kind) in self.broken:
            return data[:2] + struct.pack("!HHHHH", 0x8182, 1, 0, 0, 0) + question
        found = []
        if kind == A:
            found = [socket.inet_aton(a) for a in self.addresses.get(name, ()) if ":" not in a]
        elif kind == AAAA:
            found = [socket.inet_pton(socket.AF_INET6, a) for a in self.addresses.get(name, ()) if ":" in a]
        elif kind == PTR:
            host = {ipaddress.ip_address(a).reverse_pointer: h for a, h in self.names.items()}.get(name)
            found = [b"".join(bytes([len(p)]) + p.encode() for p in host.split(".")) + b"\0"] if host else []
        known = found or name in self.addresses
        head = data[:2] + struct.pack("!HHHHH", 0x8180 if known else 0x8183, 1, len(found), 0, 0)
        return head + question + b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 60, len(f)) + f for f in found)
