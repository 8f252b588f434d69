"""A server that cannot be reached is reported at once, with the reason."""

import socket
import time

import pytest

from pgwire import PgError, types
from proxy import free_port


def refused(proxy, db, **more):
    started = time.monotonic()
    with pytest.raises(PgError) as e:
        proxy.wire(db, **more).rows("SELECT 1")
    assert time.monotonic() - started < 5
    return e.value


def test_nobody_listens(qbouncer, db):
    proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % free_port()})
    for _ in range(3): # the first one, and those that come within server_login_retry
        e = refused(proxy, db)
        assert e.sqlstate == "08006"
        assert "refused" in e.message + e.fields.get("D", "")


def test_no_such_host(qbouncer, db):
    proxy = qbouncer(databases={db: "host=no-such-host.invalid"})
    e = refused(proxy, db)
    assert e.sqlstate == "08006"


def test_no_such_socket(qbouncer, db):
    proxy = qbouncer(databases={db: "host=/nonexistent port=1"})
    assert refused(proxy, db).sqlstate == "08006"


def test_server_that_says_nothing(qbouncer, db):
    """It accepts and is silent: server_connect_timeout ends that."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(5)
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % s.getsockname()[1]},
                         server_connect_timeout=1)
        assert refused(proxy, db).sqlstate == "08006"


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"E\0\0\0\4", b"R\0\0\0\4", b"R\xff\xff\xff\xff",
    b"R\0\0\0\x08\0\0\0\x63", b"\0" * 100, b"E\0\0\0\x06XX", b"Z\0\0\0\5I",
    b"R\0\0\0\x08\0\0\0\0S\0\0\0\5x",
])
def test_server_that_talks_nonsense(qbouncer, db, answer):
    import threading
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(5)
        s.settimeout(10)
        stop = threading.Event()

        def serve():
            while not stop.is_set():
                try:
                    c, _ = s.accept()
                except OSError:
                    return
                c.recv(1000)
                c.sendall(answer)
                c.close()
        t = threading.Thread(target=serve, daemon=True)
        t.start()
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % s.getsockname()[1]},
                         server_connect_timeout=2)
        e = refused(proxy, db)
        assert len(e.sqlstate) == 5
        stop.set()
        s.shutdown(socket.SHUT_RDWR)


def test_server_comes_back(qbouncer, cluster, db):
    proxy = qbouncer(server_login_retry=1)
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        cluster.stop()
        try:
            e = None
            try:
                c.rows("SELECT 1")
            except Exception as x: # the idle client may live or be told
                e = x
            assert e is not None
            assert refused(proxy, db).sqlstate in ("08006", "57P03", "57P01")
        finally:
            cluster.start()

    def works():
        try:
            with proxy.wire(db) as again:
                return types(again.simple("SELECT 1")) == "TDCZ"
        except PgError:
            return False
    from proxy import wait_for
    wait_for(works, "a query after the server came back")


def test_other_databases_go_on(qbouncer, cluster, db):
    proxy = qbouncer(databases={"down": "host=127.0.0.1 port=%d" % free_port()})
    assert refused(proxy, "down").sqlstate == "08006"
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_too_many_connections_at_the_server(qbouncer, cluster, db, direct):
    direct.execute('ALTER ROLE other CONNECTION LIMIT 0')
    try:
        proxy = qbouncer()
        e = refused(proxy, db, user="other")
        assert e.sqlstate == "53300"
        assert "other" in e.message
    finally:
        direct.execute('ALTER ROLE other CONNECTION LIMIT -1')
