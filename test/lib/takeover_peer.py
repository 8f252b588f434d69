"""One side of a takeover, played: what the other does when this one is slow, refuses or is gone. Run as the user of the proxy.

  takeover_peer.py old DIR PORT   stands where a proxy would, hands over its unix socket, and is gone when the other is ready
  takeover_peer.py new DIR PORT S|C   takes over, does not confirm the first server or client, and waits for the end of its input; then asks
                                      that server whether it is there, or if it was "hear" reads what the client says
"""

import os
import socket
import struct
import sys


def cstr(text):
    return text.encode() + b"\0"


def message(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


def old(path, directory, port):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(8)
        listener.settimeout(60)
        print("ready", flush=True)
        console, _ = listener.accept()
        console.recv(8192)
        console.sendall(message(b"R", struct.pack("!i", 0)) + message(b"Z", b"I"))
        console.recv(8192)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.send(b"H" + struct.pack("!i", os.getpid()) + cstr("127.0.0.1") + cstr(directory) + struct.pack("!iii", port, 0, 1))
        socket.send_fds(ours, [b"L\1"], [listener.fileno()])
        ours.send(b"E")
        socket.send_fds(console, [b"N\0\0\0\5\0"], [theirs.fileno()])
        console.sendall(message(b"C", b"TAKEOVER\0") + message(b"Z", b"I"))
        print(ours.recv(8192).decode(), flush=True)


def new(path, kind):
    console = socket.socket(socket.AF_UNIX)
    console.settimeout(20)
    console.connect(path)
    console.sendall(struct.pack("!ii", 41, 3 << 16) + cstr("user") + cstr("qbouncer") + cstr("database") + cstr("qbouncer") + b"\0")
    while not console.recv(8192).endswith(b"Z\0\0\0\5I"):
        pass
    console.sendall(message(b"Q", cstr("TAKEOVER 3")))
    _, fds, _, _ = socket.recv_fds(console, 8192, 1)
    channel = socket.socket(fileno=fds[0])
    channel.settimeout(20)
    while channel.recv(8192)[:1] not in (b"E", b""):
        pass
    channel.send(b"R")
    while True:
        data, fds, _, _ = socket.recv_fds(channel, 100000, 2)
        if not data:
            sys.exit("the other has ended")
        if data[:1] == kind:
            break
        if data[:1] == b"S":
            channel.send(b"AS" + data[1:9])
    print("it came", flush=True)
    if sys.stdin.read() == "hear":
        client = socket.socket(fileno=fds[0])
        client.settimeout(20)
        print("heard %s" % client.recv(1).decode(), flush=True)
    if kind == b"S":
        server = socket.socket(fileno=fds[0])
        server.settimeout(20)
        try:
            server.sendall(message(b"Q", cstr("SELECT 1")))
            print("answer %s" % server.recv(1).decode(), flush=True)
        except OSError as e:
            print(e, flush=True)


if __name__ == "__main__":
    socket_path = "%s/.s.PGSQL.%s" % (sys.argv[2], sys.argv[3])
    if sys.argv[1] == "old":
        old(socket_path, sys.argv[2], int(sys.argv[3]))
    else:
        new(socket_path, sys.argv[4].encode())
