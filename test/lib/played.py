"""A server that a test plays.

For:     test/it.
Must not know: the proxy, the protocol.
Entry points: Played: port, serve, close.
"""

import socket
import threading


class Played(threading.Thread):
    """serve(conn) for each connection that comes, which is closed then: one after the other, or at_once, each in a thread of its own.
    start() is for the last line of __init__."""

    at_once = False

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def serve(self, conn):
        raise NotImplementedError

    def run(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            if self.at_once:
                threading.Thread(target=self._serve, args=(conn,), daemon=True).start()
            else:
                self._serve(conn)

    def _serve(self, conn):
        with conn:
            self.serve(conn)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.join(20)
