"""COPY in both directions."""

import io

import psycopg
import pytest

from pgwire import types


def test_both_ways(proxy, db):
    rows = 20000
    with proxy.connect(db, autocommit=False) as conn:
        conn.execute("CREATE TABLE t (a int, b text)")
        with conn.cursor().copy("COPY t FROM STDIN") as copy:
            for i in range(rows):
                copy.write_row((i, "x" * (i % 50)))
        conn.commit()
        out = io.BytesIO()
        with conn.cursor().copy("COPY t TO STDOUT") as copy:
            for data in copy:
                out.write(data)
        assert out.getvalue().count(b"\n") == rows
        assert conn.execute("SELECT sum(a) FROM t").fetchone() == (rows * (rows - 1) // 2,)


def test_bad_row(proxy, db):
    with proxy.connect(db) as conn:
        conn.execute("CREATE TABLE t (a int)")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            with conn.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write(b"1\nx\n" + b"2\n" * 100000)
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_copy_fail(proxy, db):
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.query("COPY t FROM STDIN").until("G")
        c.copy_data(b"1\n").copy_fail("thought better of it")
        got = c.until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "57014"
        assert c.rows("SELECT count(*) FROM t") == [{"count": "0"}]


def test_messages_that_arrive_late(proxy, db):
    """CopyData and CopyDone behind an error are thrown away, wherever they arrive."""
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.query("COPY t FROM STDIN").until("G")
        c.copy_data(b"x\n").copy_data(b"1\n")
        assert types(c.until("Z")) == "EZ"
        c.copy_data(b"2\n").copy_done()
        assert types(c.simple("SELECT 1")) == "TDCZ"
    with proxy.wire(db) as c: # and with nothing before at all
        c.copy_data(b"2\n").copy_done().copy_fail("x")
        assert types(c.simple("SELECT 1")) == "TDCZ"
        c.terminate()
    proxy.wait_pool(db, cl_active=0, cl_waiting=0, sv_active=0)


def test_in_extended_protocol(proxy, db):
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.hold().parse("", "COPY t FROM STDIN").bind().execute().push()
        c.flush().until("G")
        c.hold().copy_data(b"1\n2\n").copy_done().sync().push()
        got = c.until("Z")
        assert types(got) == "CZ" and got[0].tag == "COPY 2"
        c.hold().parse("", "COPY t TO STDOUT").bind().execute().sync().push()
        assert types(c.until("Z")) == "12HddcCZ"


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_sync_ahead_of_the_copy(qbouncer, db, mode):
    """The server ignores it, so that what is behind the copy is of the same batch, and may need a Flush."""
    proxy = qbouncer(pool_mode=mode)
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.hold().parse("e", "").parse("s", "COPY t FROM STDIN").bind("", "s").execute().sync()
        c.copy_data(b"7\n").copy_done()
        # a name that depends on answers to come
        c.close_object("S", "e").parse("e", "ROLLBACK").push()
        assert types(c.until("C")) == "112GC"
        assert types(c.until("1")) == "31"
        assert types(c.sync().until("Z")) == "Z"
        assert c.rows("SELECT a FROM t") == [{"a": "7"}]


def test_copy_between_statements(proxy, db):
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.query("SELECT 1; COPY t FROM STDIN; SELECT 2")
        assert types(c.until("G")) == "TDCG"
        c.copy_data(b"1\n").copy_done()
        assert types(c.until("Z")) == "CTDCZ"


def test_client_vanishes_in_copy(proxy, db):
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.query("COPY t FROM STDIN").until("G")
        c.copy_data(b"1\n")
    proxy.wait_pool(db, cl_active=0, sv_active=0)
    with proxy.wire(db) as c:
        assert c.rows("SELECT count(*) FROM t") == [{"count": "0"}]
