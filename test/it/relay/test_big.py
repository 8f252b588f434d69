"""Big rows pass in constant memory; a slow reader stops its source and nobody else."""

import pytest

from pgwire import types

MIB = 1 << 20
LIMIT_KIB = 40 << 10 # how much the proxy may grow while a row of BIG passes; the sanitizers' own included
BIG = 300


def read_away(c, size):
    """Reads a message's body without keeping it."""
    left = size - len(c.data)
    c.data.clear()
    while left > 0:
        got = c.sock.recv(min(left, MIB))
        assert got, "closed in mid-message"
        left -= len(got)


@pytest.mark.timeout(120)
def test_row_to_the_client(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT repeat('x', 1000000)")
        before = proxy.peak_kib()
        c.query("SELECT repeat('x', %d)" % (BIG * MIB))
        c.until("T")
        c._need(5)
        size = int.from_bytes(c.data[1:5], "big")
        assert size > BIG * MIB
        read_away(c, size + 1)
        assert types(c.until("Z")) == "CZ"
        assert proxy.peak_kib() - before < LIMIT_KIB


@pytest.mark.timeout(120)
def test_query_to_the_server(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT length('" + "x" * MIB + "')")
        before = proxy.peak_kib()
        chunk = b"x" * MIB
        head, tail = b"SELECT length('", b"')\0"
        size = 4 + len(head) + len(tail) + BIG * MIB
        c.raw(b"Q" + size.to_bytes(4, "big") + head)
        for _ in range(BIG):
            c.raw(chunk)
        c.raw(tail)
        got = c.until("Z")
        assert got[1].text_row == [str(BIG * MIB)]
        assert proxy.peak_kib() - before < LIMIT_KIB


@pytest.mark.timeout(120)
def test_bind_to_the_server(proxy, db):
    with proxy.wire(db) as c:
        before = proxy.peak_kib()
        c.parse("", "SELECT length($1::text)")
        chunk = b"x" * MIB
        head = b"\0\0\0\0\0\1" + (BIG * MIB).to_bytes(4, "big")
        tail = b"\0\0"
        c.raw(b"B" + (4 + len(head) + len(tail) + BIG * MIB).to_bytes(4, "big") + head)
        for _ in range(BIG):
            c.raw(chunk)
        c.raw(tail).execute().sync()
        got = c.until("Z")
        assert types(got) == "12DCZ" and got[2].text_row == [str(BIG * MIB)]
        assert proxy.peak_kib() - before < LIMIT_KIB


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text, size", [
    ("x", 15000000), ("x", BIG * MIB // 2), ("\u00e4", 20000000), ("\u20ac", 20000000), ("\U0001f600", 20000000)])
def test_error_to_the_client(proxy, db, text, size):
    """One that is too long is cut, between two characters: what it is stays, and the session, too."""
    sql = "DO $$BEGIN RAISE EXCEPTION '%%', 'y' || repeat('%s', %d) USING ERRCODE = '22004', HINT = 'h'; END$$" % (text, size // len(text.encode()))
    with proxy.wire(db) as c:
        for send in (lambda: c.query(sql), lambda: c.parse("", sql).bind().execute().sync()):
            before = proxy.peak_kib()
            send()
            (e,), (z,) = [[m for m in got if m.type == t] for got in [c.until("Z")] for t in "EZ"]
            whole = size < 16000000
            assert e.fields["C"] == "22004" and e.fields["S"] == "ERROR" and e.fields.get("H") == ("h" if whole else None)
            assert e.fields["M"].rstrip(".") == "y" + text * (len(e.fields["M"].rstrip(".")) - 1) and e.fields["M"].endswith("...") != whole
            assert whole or proxy.peak_kib() - before < LIMIT_KIB
            assert z.body == b"I" and types(c.simple("SELECT 1")) == "TDCZ"


@pytest.mark.timeout(120)
def test_many_rows_to_a_slow_reader(qbouncer, db):
    """The reader does not read: the proxy stops reading the server. Others go on."""
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as slow, proxy.wire(db) as other:
        other.simple("SELECT 1")
        before = proxy.peak_kib()
        slow.query("SELECT repeat('y', 10000) FROM generate_series(1, 20000)")
        for _ in range(200):
            assert types(other.simple("SELECT 1")) == "TDCZ"
        assert proxy.peak_kib() - before < LIMIT_KIB
        rows = 0
        while True:
            m = slow.recv()
            if m.type == "Z":
                break
            rows += m.type == "D"
        assert rows == 20000


@pytest.mark.timeout(120)
def test_slow_reader_goes_away(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as slow:
        slow.query("SELECT repeat('y', 10000) FROM generate_series(1, 100000)")
        proxy.wait_pool(db, sv_active=1)
        slow.reset()
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_slow_server(qbouncer, db):
    """The server does not read what the client sends: the client is stopped."""
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        other.simple("SELECT 1")
        c.simple("CREATE TABLE t (a text)")
        c.simple("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                 "'BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END'")
        c.simple("CREATE TRIGGER s BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()")
        before = proxy.peak_kib()
        c.query("COPY t FROM STDIN").until("G")
        line = b"z" * 400000 + b"\n"
        for _ in range(100):
            c.copy_data(line)
        for _ in range(50):
            assert types(other.simple("SELECT 1")) == "TDCZ"
        c.copy_done()
        assert c.until("Z")[0].tag == "COPY 100"
        assert proxy.peak_kib() - before < LIMIT_KIB
