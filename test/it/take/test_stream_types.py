"""Streams whose payloads are text or bytea before the program: what clients are told of the column and of parameters, in
every way that a driver may ask, and what they send and get."""

import psycopg
import pytest

from queuetest import parked, qproxy, tag  # noqa: F401

JSONB, TEXT, BYTEA = 3802, 25, 17
OID = {"jsonb": JSONB, "text": TEXT, "bytea": BYTEA}
BYTES = bytes(range(256))


@pytest.fixture(params=["text", "bytea"])
def kind(request):
    return request.param


def created(c, kind, name="s"):
    assert tag(c, "QUEUE CREATE %s WITH (kind = stream, payload = %s)" % (name, kind)) == "CREATE TABLE"
    assert tag(c, "QUEUE SUBSCRIBE a TO %s WITH (retry = 'fixed 1 ms')" % name) == "SUBSCRIBE"


@pytest.fixture
def c(proxy, db, kind):
    with proxy.wire(db) as one:
        created(one, kind)
        yield one


def simple(c, sql):
    return c.query(sql).until("Z")


def extended(c, sql, values=(), describe="P", result=0, formats=(), oids=()):
    c.hold().parse("", sql, oids)
    if describe == "S":
        c.describe("S")
    c.bind("", "", values, formats, [result])
    if describe == "P":
        c.describe("P")
    return c.execute().sync().push().until("Z")


def payloads(messages):
    """Type of the column as it was told, and the values."""
    (told,) = [m for m in messages if m.type == "T"]
    (at,) = [i for i, column in enumerate(told.columns) if column[0] == "payload"]
    return told.columns[at][1], [m.row[at] for m in messages if m.type == "D"]


def token(messages):
    (told,) = [m for m in messages if m.type == "T"]
    (at,) = [i for i, column in enumerate(told.columns) if column[0] == "token"]
    return [m.row[at] for m in messages if m.type == "D"][0].decode()


def value(kind, text):
    return ("\\x" + text.encode().hex() if kind == "bytea" else text).encode()


def test_rows(c, kind):
    assert [r["payload"] for r in c.rows("QUEUE LIST")] == [kind]
    tag(c, "QUEUE PUSH s 'a', 'it''s'")
    got = simple(c, "QUEUE TAKE s FOR a LIMIT 1")
    assert payloads(got) == (OID[kind], [value(kind, "a")])
    assert tag(c, "QUEUE DONE '%s'" % token(got)) == "UPDATE 1"
    got = extended(c, "QUEUE TAKE s FOR a", describe="S", result=1)
    assert payloads(got) == (OID[kind], [b"it's"])
    assert tag(c, "QUEUE FAIL '%s' EVENT 2 FINAL" % token(got)) == "UPDATE 1"
    assert payloads(simple(c, "QUEUE PEEK s FOR a")) == (OID[kind], [value(kind, "it's")])
    assert payloads(extended(c, "QUEUE PEEK $1 FOR a STATE dead", ["s"], result=1)) == (OID[kind], [b"it's"])
    assert tag(c, "QUEUE REDRIVE s FOR a") == "UPDATE 1"
    assert payloads(extended(c, "QUEUE TAKE $1 FOR $2", ["s", "a"], result=1)) == (OID[kind], [b"it's"])
    tag(c, "BEGIN")
    tag(c, "SELECT 1")
    assert payloads(extended(c, "QUEUE PEEK s FOR a", result=1)) == (OID[kind], [b"it's"])
    assert payloads(simple(c, "QUEUE TAKE s FOR a")) == (OID[kind], [])
    tag(c, "COMMIT")


def test_known_to_nobody(qbouncer, db, kind):
    """A proxy that knows nothing of the stream asks before it tells of the column, also in a string with others."""
    with qbouncer().wire(db) as c:
        created(c, kind)
        tag(c, "QUEUE PUSH s 'a'")
    with qbouncer().wire(db) as c:
        told = [m for m in c.hold().parse("", "QUEUE TAKE s FOR a").describe("S").sync().push().until("Z") if m.type == "T"]
        assert [column[1] for column in told[0].columns if column[0] == "payload"] == [OID[kind]]
    with qbouncer().wire(db) as c:
        tag(c, "QUEUE FAIL '%s' EVENT 1 FINAL" % token(simple(c, "QUEUE TAKE s FOR a")))
    with qbouncer().wire(db) as c:
        messages = simple(c, "SELECT 1; QUEUE PEEK s FOR a")
        assert [m.row[4] for m in messages if m.type == "D" and len(m.row) > 4] == [value(kind, "a")]


def test_a_name_that_comes_too_late(c, kind):
    """Described before it is bound: nobody can know the type of the column then."""
    created(c, "jsonb", "j")
    tag(c, "QUEUE PUSH s 'a'")
    tag(c, "QUEUE PUSH j '1'")
    assert payloads(extended(c, "QUEUE TAKE $1 FOR a", ["j"], describe="S")) == (JSONB, [b"1"])
    messages = extended(c, "QUEUE TAKE $1 FOR a", ["s"], describe="S")
    assert [m.sqlstate for m in messages if m.type == "E"] == ["0A000"]
    assert payloads(simple(c, "QUEUE TAKE s FOR a")) == (OID[kind], [value(kind, "a")])


def test_parameters(c, kind):
    told = [m for m in c.hold().parse("", "QUEUE PUSH s $1, $2 KEY $3").describe("S").sync().push().until("Z") if m.type == "t"]
    assert told[0].oids == [OID[kind], OID[kind], TEXT]
    if kind == "text":
        return
    for options in ("", " KEY 'k'", " GROUP 'g'", " HEADERS '{}'"):
        for oids, formats, bound in (((BYTEA,), (1,), BYTES), ((), (1,), BYTES),
                                     ((), (0,), "\\x" + BYTES.hex()), ((TEXT,), (0,), "\\x" + BYTES.hex())):
            for described in ("", "S"):
                messages = extended(c, "QUEUE PUSH s $1" + options, [bound], described, formats=formats, oids=oids)
                assert [m.tag for m in messages if m.type in "CE"] == ["INSERT 0 1"]
    tag(c, "BEGIN")
    extended(c, "QUEUE PUSH s $1", [BYTES], "", formats=(1,))
    tag(c, "COMMIT")
    assert payloads(extended(c, "QUEUE TAKE s FOR a", result=1)) == (BYTEA, [BYTES] * 33)


def test_bytes_to_others(proxy, db):
    with proxy.wire(db) as c:
        for kind in ("jsonb", "text"):
            created(c, kind, kind)
            messages = extended(c, "QUEUE PUSH %s $1" % kind, [b"1"], "", formats=(1,), oids=(BYTEA,))
            assert [m.sqlstate for m in messages if m.type == "E"] == ["42804"]


def test_in_bulk(c, proxy, db, kind):
    """By a query, merged with nobody, and FROM STDIN; beside pushes of many clients, which are merged."""
    query = {"text": "SELECT 'a' || i", "bytea": "SELECT ('a' || i)::bytea"}[kind]
    assert tag(c, "QUEUE PUSH s " + query + " FROM generate_series(1, 3) AS i") == "INSERT 0 3"
    assert tag(c, "QUEUE PUSH s (payload, key) VALUES ('b', 'k')") == "INSERT 0 1"
    with psycopg.connect(proxy.dsn(db), autocommit=True) as conn:
        for columns, row in (("", ["c"]), ("(payload, \"group\")", ["d", "g"])):
            with conn.cursor().copy("QUEUE PUSH s %s FROM STDIN" % columns) as copy:
                copy.write_row(row)
    wires = [proxy.wire(db) for _ in range(4)]
    for w in wires:
        w.query("QUEUE PUSH s 'e'")
    assert [w.until("Z")[0].tag for w in wires] == ["INSERT 0 1"] * 4
    want = ["a1", "a2", "a3", "b", "c", "d"] + ["e"] * 4
    assert payloads(simple(c, "QUEUE TAKE s FOR a")) == (OID[kind], [value(kind, v) for v in want])
    for w in wires:
        w.close()


def test_made_anew_while_somebody_waits(qproxy, db, kind):
    """Who was told of the type gets an error rather than something else; who was not gets the events as they are."""
    for described in ("S", ""):
        with qproxy.wire(db) as w, qproxy.wire(db) as c:
            created(c, kind)
            if described:
                w.hold().parse("", "QUEUE TAKE s FOR a WAIT '1 min'").bind("", "").describe("P").execute().sync().push()
            else:
                w.query("QUEUE TAKE s FOR a WAIT '1 min'")
            parked(w)
            tag(c, "BEGIN")
            tag(c, "QUEUE DROP s")
            tag(c, "QUEUE CREATE s WITH (kind = stream)")
            tag(c, "QUEUE SUBSCRIBE a TO s")
            tag(c, "QUEUE PUSH s '1'")
            tag(c, "COMMIT")
            messages = w.until("Z")
            if described:
                assert [m.sqlstate for m in messages if m.type == "E"] == ["0A000"]
                assert payloads(simple(c, "QUEUE TAKE s FOR a")) == (JSONB, [b"1"])
            else:
                assert payloads(messages) == (JSONB, [b"1"])
            tag(c, "QUEUE DROP s")


def test_a_delivery_that_is_out(c, kind):
    """PEEK token: nobody says there of which stream it is."""
    tag(c, "QUEUE PUSH s 'a', 'b'")
    out = token(simple(c, "QUEUE TAKE s FOR a"))
    want = [value(kind, "a"), value(kind, "b")]
    assert payloads(simple(c, "QUEUE PEEK '%s'" % out)) == (OID[kind], want)
    assert payloads(simple(c, "QUEUE PEEK '%s' LIMIT 1" % out.rsplit("-", 1)[0])) == (OID[kind], want[:1])
    for describe in "SP":
        assert payloads(extended(c, "QUEUE PEEK '%s'" % out, describe=describe, result=1)) == (OID[kind], [b"a", b"b"])
    assert payloads(extended(c, "QUEUE PEEK $1", [out], result=1)) == (OID[kind], [b"a", b"b"])
    tag(c, "BEGIN")
    tag(c, "QUEUE DONE '%s'" % out)
    refused = simple(c, "QUEUE PEEK '%s'" % out)
    assert [m.sqlstate for m in refused if m.type == "E"] == ["QB001"]
    tag(c, "ROLLBACK")
    assert payloads(simple(c, "QUEUE PEEK '%s'" % out)) == (OID[kind], want)
