"""A TCP relay before a Postgres that loses what it is told to lose: answers, requests, whole connections.

For:     test/it and test/check.
Must not know: the proxy, the protocol (it looks for bytes).
Entry points: Relay (port, arm, lost, release, silence, cut, stop).

    with Relay(pg.port) as relay:
        relay.arm(b"some payload", "cut")    # the next request that has these bytes: its answer is lost
        relay.lost.wait(10)

How an answer is lost: "cut": both sides are closed in its place. "silent": the connection stays open, and nothing
passes any more, not even its end. "never": the request itself does not arrive, and then it is silent. "held": it is not
lost, and comes late: when release() lets it. "part": so does what is behind its first PART bytes.
"""

import contextlib
import select
import socket
import threading


PART = 256 * 1024


class Pair:
    """A connection: to whoever came (near) and to the server (far)."""

    def __init__(self, near, far):
        self.near, self.far = near, far
        self.lose = None   # how, as soon as the answer comes
        self.silent = False
        self.held = False  # its answer is there, and waits
        self.passed = 0    # of an answer whose first part passes
        self.spared = None # not known before its first request

    def close(self):
        for s in (self.near, self.far):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR) # whoever was forked meanwhile has a copy of it
            s.close()


class Relay:
    def __init__(self, port, host="127.0.0.1", spare=None):
        """spare: connections whose first request has these bytes lose nothing."""
        self.target, self.spare = (host, port), spare
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        self.pairs = []
        self.lock = threading.RLock()
        self.marker = self.how = None
        self.lost = threading.Event() # what was armed has happened
        self.n_lost = 0
        self.wake_out, self.wake_in = socket.socketpair()
        self.ending = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def arm(self, marker, how):
        """marker None: of any connection."""
        with self.lock:
            self.marker, self.how = marker, how
            self.lost.clear()

    def disarm(self):
        with self.lock:
            self.marker = self.how = None
            for p in self.pairs:
                p.lose = None

    def release(self):
        """The answers that were held."""
        with self.lock:
            for p in self.pairs:
                p.held = False

    def silence(self, choose=lambda pairs: pairs):
        """All connections that are there now, or those chosen of them."""
        with self.lock:
            for p in choose([p for p in self.pairs if not p.silent and p.spared is False]):
                p.silent = True
                self._done()

    def cut(self):
        with self.lock:
            for p in self.pairs:
                p.close()
            self.pairs.clear()

    def forget_silent(self):
        """Their other ends notice at last."""
        with self.lock:
            for p in [p for p in self.pairs if p.silent]:
                p.close()
                self.pairs.remove(p)

    def stop(self):
        self.ending = True
        self.wake_in.send(b"x")
        self.thread.join()
        self.cut()
        self.listener.close()
        self.wake_in.close()
        self.wake_out.close()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self):
        while not self.ending:
            with self.lock:
                watched = [self.listener, self.wake_out]
                for p in self.pairs:
                    if not p.silent:
                        watched += [p.near] if p.held else [p.near, p.far]
            try:
                ready = select.select(watched, [], [], 0.2)[0]
            except (OSError, ValueError): # one was closed meanwhile
                continue
            with self.lock:
                if self.listener in ready:
                    self._accept()
                for p in list(self.pairs):
                    if p in self.pairs and not p.silent and p.near in ready:
                        self._request(p)
                    if p in self.pairs and not p.silent and not p.held and p.far in ready:
                        self._answer(p)

    def _accept(self):
        near = self.listener.accept()[0]
        try:
            far = socket.create_connection(self.target, 10)
        except OSError:
            near.close()
            return
        for s in (near, far):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs.append(Pair(near, far))

    def _read(self, p, side):
        try:
            data = side.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            p.close()
            self.pairs.remove(p)
        return data

    def _pass(self, p, side, data):
        try:
            side.sendall(data)
        except OSError:
            p.close()
            if p in self.pairs:
                self.pairs.remove(p)

    def _done(self):
        self.n_lost += 1
        self.lost.set()

    def _request(self, p):
        data = self._read(p, p.near)
        if not data:
            return
        if p.spared is None and len(data) > 8: # not the question for TLS
            p.spared = self.spare is not None and self.spare in data
        if self.how is not None and p.spared is False and (self.marker is None or self.marker in data):
            p.lose, self.marker, self.how = self.how, None, None
        if p.lose == "never":
            p.silent = True
            self._done()
            return
        self._pass(p, p.far, data)

    def _answer(self, p):
        if p.lose == "held":
            p.held, p.lose = True, None
            self._done()
            return
        data = self._read(p, p.far)
        if not data:
            return
        if p.lose == "part":
            p.passed += len(data)
            if p.passed >= PART:
                # the server cannot send all the rest into nowhere
                p.far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                p.held, p.lose = True, None
                self._done()
            self._pass(p, p.near, data)
            return
        if p.lose is None:
            self._pass(p, p.near, data)
            return
        if p.lose == "cut":
            p.close()
            self.pairs.remove(p)
        else:
            p.silent = True
        self._done()
