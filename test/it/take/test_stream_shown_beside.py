"""A client is slow to read a delivery that it is shown, and more is said on its connection, or the proxy is to end, or is taken over."""

import signal
import socket

import psycopg
import pytest

from pgwire import PgError, Wire, cancel, types
from proxy import wait_for
from queuetest import error, tag
from slowreader import SIZE, STUCK, c, slow, stuck, token_of  # noqa: F401

EVENTS = 20
TAKE = "QUEUE TAKE s FOR a LIMIT %d WAIT '20 s'" % EVENTS


def confirm(wire, got):
    """All events came as they were pushed."""
    rows = [m.row for m in got if m.type == "D" and len(m.row) > 4][:EVENTS]
    assert tag(wire, "QUEUE DONE '%s'" % token_of(rows, EVENTS)) == "UPDATE 1"


def done(wire, got):
    confirm(wire, got)
    assert wire.rows("QUEUE TAKE s FOR a") == []


def all_there(c):
    """Nothing was lost."""
    wait_for(lambda: not c.rows(STUCK), "the end of the statement")
    c.query(TAKE)
    done(c, c.until("Z"))


def pipeline(wire, *statements, flushes=False):
    wire.hold()
    for sql in statements:
        wire.parse("", sql).bind().execute()
        if flushes:
            wire.flush()
    wire.sync().push()


@pytest.mark.parametrize("flushes", [False, True])
def test_pipeline(c, slow, flushes):
    pipeline(slow, TAKE, "SELECT 1", "QUEUE PUSH mail '1'", "SELECT 2", flushes=flushes)
    stuck(c)
    got = slow.until("Z")
    assert types(got) == "12" + "D" * EVENTS + "C" + "12DC" + "12C" + "12DC" + "Z"
    assert len(c.rows("QUEUE TAKE mail")) == 1
    done(slow, got)


def test_pipeline_before_it_is_over(c, slow):
    slow.hold().parse("", TAKE).bind().execute().flush().push()
    stuck(c)
    got = [slow.recv() for _ in range(EVENTS + 3)]
    assert types(got) == "12" + "D" * EVENTS + "C"
    pipeline(slow, "SELECT 1")
    assert types(slow.until("Z")) == "12DCZ"
    done(slow, got)


def test_cancel_in_a_pipeline(c, slow):
    pipeline(slow, TAKE, "QUEUE PUSH mail '1'", "SELECT 1", flushes=True)
    stuck(c)
    cancel(slow)
    assert PgError(slow.until("Z")[-2]).sqlstate == "57014"
    assert c.rows("QUEUE TAKE mail") == []
    all_there(c)


def test_in_a_string_with_others(c):
    for sql in ("SELECT 1; %s", "%s; SELECT 1", "BEGIN; %s; COMMIT", "%s; %s"):
        assert error(c, sql.replace("%s", TAKE)).sqlstate == "0A000"
    all_there(c)


@pytest.mark.parametrize("behind", ["COPY t FROM STDIN", "QUEUE PUSH mail (payload) FROM STDIN"])
def test_copy_behind_it(c, slow, behind):
    tag(c, "CREATE TABLE t (x jsonb)")
    slow.query(TAKE).query(behind).copy_data(b"1\n2\n").copy_done().query("COPY t TO STDOUT")
    stuck(c)
    got = slow.until("Z")
    assert types(slow.until("Z")) == "GCZ"
    assert types(slow.until("Z")).replace("d", "") == "HcCZ"
    done(slow, got)


@pytest.mark.parametrize("end", ["close", "terminate", "half"])
def test_client_leaves(c, slow, end):
    """With more behind it that has come."""
    slow.query(TAKE).query("QUEUE PUSH mail '1'")
    stuck(c)
    if end == "half":
        slow.sock.shutdown(socket.SHUT_WR)
        slow.closed()
    else:
        getattr(slow, end)()
    all_there(c)


def test_driver_leaves_its_loop(c, proxy, db):
    with psycopg.connect(proxy.dsn(db), autocommit=True) as conn:
        rows = conn.cursor().stream(TAKE)
        assert next(rows)[0] == 1
        rows.close()
        assert conn.execute("SELECT 1").fetchone() == (1,)
        rows = list(conn.cursor().stream(TAKE))
        assert [(r[0], len(r[4])) for r in rows] == [(n, SIZE) for n in range(1, EVENTS + 1)]
        assert conn.execute("QUEUE DONE %s", (rows[0][1],)).statusmessage == "UPDATE 1"


def test_proxy_is_to_end(c, slow, proxy):
    """SIGTERM: who has it goes on until he is done with it."""
    slow.query(TAKE)
    stuck(c)
    c.terminate()
    proxy.signal(signal.SIGTERM)
    proxy.wait_log("SIGTERM")
    got = slow.until("Z")
    confirm(slow, got)
    slow.query("QUEUE TAKE s FOR a WAIT '20 s'")
    assert [m.sqlstate for m in slow.closed() if m.type == "E"] == ["57P01"]
    wait_for(lambda: proxy.process.poll() is not None, "the end of the proxy")
    assert proxy.process.returncode == 0
    proxy.start()


def test_proxy_is_taken_over(c, slow, proxy, db):
    slow.query(TAKE)
    stuck(c)
    old = proxy.process
    proxy.start("-R")
    with proxy.wire(db) as new:
        assert new.rows("QUEUE TAKE s FOR a") == []
        done(slow, slow.until("Z"))
        c.terminate()
        wait_for(lambda: old.poll() is not None, "the end of the old process")
        assert old.returncode == 0
        assert slow.rows("SELECT 1 AS one") == [{"one": "1"}]


@pytest.mark.parametrize("binary", [0, 1])
def test_events_that_are_large(proxy, db, binary):
    with Wire(proxy.port, rcvbuf=4096) as wire:
        wire.startup(user="app", database=db)
        tag(wire, "QUEUE CREATE s WITH (kind = stream, payload = text)")
        tag(wire, "QUEUE SUBSCRIBE a TO s")
        for n in range(3):
            tag(wire, "QUEUE PUSH s (repeat('%d', 30000000))" % n)
        wire.parse("", "QUEUE TAKE s FOR a").bind(results=(binary,)).execute().sync()
        rows = [m.row for m in wire.until("Z") if m.type == "D"]
        assert [r[4] for r in rows] == [b"%d" % n * 30_000_000 for n in range(3)]
        assert tag(wire, "QUEUE DONE '%s'" % rows[0][1].decode()) == "UPDATE 1"
