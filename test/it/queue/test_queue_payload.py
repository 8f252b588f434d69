"""Queues whose payloads are text or bytea: what clients are told of the column and of parameters, in every
way that a driver may ask, and what they send and get."""

import pytest

from proxy import wait_for
from queuetest import error, parked, tag

JSONB, TEXT, BYTEA = 3802, 25, 17
OID = {"jsonb": JSONB, "text": TEXT, "bytea": BYTEA}
BYTES = bytes(range(256))


@pytest.fixture(params=["text", "bytea"])
def kind(request):
    return request.param


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


def sqlstate(messages):
    return [m.sqlstate for m in messages if m.type == "E"]


def created(c, kind, name="q"):
    assert tag(c, "QUEUE CREATE %s WITH (payload = %s)" % (name, kind)) == "CREATE TABLE"


def value(kind, text):
    return ("\\x" + text.encode().hex() if kind == "bytea" else text).encode()


def test_rows(proxy, db, kind):
    with proxy.wire(db) as c:
        created(c, kind)
        assert c.rows("QUEUE LIST")[0]["payload"] == kind
        tag(c, "QUEUE PUSH q 'a', 'it''s', 'c', 'd', 'e', 'f'")
        assert payloads(simple(c, "QUEUE PEEK q LIMIT 2")) == (OID[kind], [value(kind, "a"), value(kind, "it's")])
        assert payloads(simple(c, "QUEUE JOB '1'")) == (OID[kind], [value(kind, "a")])
        assert payloads(simple(c, "QUEUE TAKE q")) == (OID[kind], [value(kind, "a")])
        assert payloads(extended(c, "QUEUE TAKE q", describe="S", result=1)) == (OID[kind], [b"it's"])
        assert payloads(extended(c, "QUEUE POP q")) == (OID[kind], [value(kind, "c")])
        assert payloads(extended(c, "QUEUE TAKE $1 LIMIT $2", ["q", "2"], result=1)) == (OID[kind], [b"d", b"e"])
        assert payloads(extended(c, "QUEUE PEEK $1 STATE ready", ["q"], result=1)) == (OID[kind], [b"f"])
        assert payloads(extended(c, "QUEUE JOB $1", ["1"], result=1)) == (OID[kind], [b"a"])
        tag(c, "BEGIN")
        tag(c, "SELECT 1")
        assert payloads(simple(c, "QUEUE PEEK q STATE ready")) == (OID[kind], [value(kind, "f")])
        assert payloads(extended(c, "QUEUE JOB $1", ["1"], result=1)) == (OID[kind], [b"a"])
        assert payloads(simple(c, "QUEUE TAKE q")) == (OID[kind], [value(kind, "f")])
        assert payloads(simple(c, "QUEUE TAKE q")) == (OID[kind], [])
        tag(c, "COMMIT")


def test_first_of_all_in_a_string_with_others(qbouncer, db, kind):
    """The proxy knows nothing of the queue: it has to ask before it sends the string."""
    with qbouncer().wire(db) as c:
        created(c, kind)
        tag(c, "QUEUE PUSH q 'a'")
    with qbouncer().wire(db) as c:
        messages = simple(c, "SELECT 1; QUEUE PEEK q")
        assert sqlstate(messages) == []
        assert [m.row[4] for m in messages if m.type == "D" and len(m.row) > 4] == [value(kind, "a")]


def test_a_name_that_comes_too_late(proxy, db, kind):
    """Described before it is bound: nobody can know the type of the column then."""
    with proxy.wire(db) as c:
        created(c, kind)
        created(c, "jsonb", "j")
        tag(c, "QUEUE PUSH q 'a'")
        tag(c, "QUEUE PUSH j '1'")
        assert payloads(extended(c, "QUEUE TAKE $1", ["j"], describe="S")) == (JSONB, [b"1"])
        messages = extended(c, "QUEUE TAKE $1", ["q"], describe="S")
        assert sqlstate(messages) == ["0A000"]
        assert "name of the queue" in [m for m in messages if m.type == "E"][0].fields["H"]
        assert payloads(simple(c, "QUEUE TAKE q")) == (OID[kind], [value(kind, "a")])


def parameters(c, sql, oids=()):
    messages = c.hold().parse("", sql, oids).describe("S").sync().push().until("Z")
    (told,) = [m for m in messages if m.type == "t"]
    return told.oids


def test_parameters(proxy, db):
    with proxy.wire(db) as c:
        for kind in OID:
            created(c, kind, kind[0])
        assert parameters(c, "QUEUE PUSH b $1, $2 PRIORITY $3") == [BYTEA, BYTEA, TEXT]
        assert parameters(c, "QUEUE PUSH t $1") == parameters(c, "QUEUE PUSH j $1") == [TEXT]
        assert parameters(c, "QUEUE PUSH b $1, $2", [TEXT]) == [TEXT, BYTEA]
        assert parameters(c, "QUEUE PUSH nowhere $1") == [TEXT]
        tags = []
        for options in ("", " KEY 'k'", " PRIORITY 3", " EXPIRES '1 h'"):
            # in binary, of a type that the client says, or leaves to the server; in text
            for oids, formats, bound in (((BYTEA,), (1,), BYTES), ((), (1,), BYTES),
                                         ((), (0,), "\\x" + BYTES.hex()), ((TEXT,), (0,), "\\x" + BYTES.hex())):
                for described in ("", "S"):
                    tags += [m.tag for m in extended(c, "QUEUE PUSH b $1" + options, [bound], described,
                                                     formats=formats, oids=oids) if m.type in "CE"]
        assert tags == ["INSERT 0 1"] * 8 + ["INSERT 0 1"] + ["INSERT 0 0"] * 7 + ["INSERT 0 1"] * 16
        tag(c, "BEGIN")
        extended(c, "QUEUE PUSH b $1", [BYTES], "", formats=(1,))
        tag(c, "COMMIT")
        oid, values = payloads(extended(c, "QUEUE TAKE b LIMIT 100", result=1))
        assert (oid, set(values), len(values)) == (BYTEA, {BYTES}, 26)
        assert payloads(extended(c, "QUEUE TAKE b LIMIT 100", result=1)) == (BYTEA, [])


def test_many_at_once(proxy, db):
    """Merged: texts and bytes of many clients in one statement, each its own."""
    with proxy.wire(db) as c:
        created(c, "bytea")
        wires = [proxy.wire(db) for _ in range(8)]
        sent = []
        for n, w in enumerate(wires):
            for i in range(4):
                bound = bytes([n, i, 0, 255])
                sent.append(bound)
                if i % 2:
                    w.parse("", "QUEUE PUSH q $1").bind("", "", [bound], [1]).execute().sync()
                else:
                    w.query("QUEUE PUSH q '\\x%s'" % bound.hex())
        for w in wires:
            for i in range(4):
                assert [m.tag for m in w.until("Z") if m.type in "CE"] == ["INSERT 0 1"]
        for w in wires:
            w.query("QUEUE TAKE q LIMIT 4")
        got = []
        for w in wires:
            oid, values = payloads(w.until("Z"))
            assert oid == BYTEA
            got += [bytes.fromhex(v.decode()[2:]) for v in values]
        assert sorted(got) == sorted(sent)
        for w in wires:  # no sooner: the jobs of a worker that leaves are for the others
            w.close()


def test_errors(proxy, db):
    with proxy.wire(db) as c:
        for kind in OID:
            created(c, kind, kind[0])
        assert error(c, "QUEUE PUSH b '\\xzz'").sqlstate == "22023"
        assert error(c, "QUEUE PUSH b 'a\\b'").sqlstate == "22P02"
        assert sqlstate(extended(c, "QUEUE PUSH b $1", ["\\x1"])) == ["22023"]
        assert sqlstate(extended(c, "QUEUE PUSH t $1", [b"\xff\xfe"])) == ["22021"]
        assert sqlstate(extended(c, "QUEUE PUSH t $1", [b"a\0b"])) == ["22021"]
        assert sqlstate(extended(c, "QUEUE PUSH j $1", ["nope"])) == ["22P02"]
        # bytes are nothing but bytes
        for name in "tj":
            assert sqlstate(extended(c, "QUEUE PUSH %s $1" % name, [b"1"], formats=(1,), oids=(BYTEA,))) == ["42804"]
        mixed = error(c, "QUEUE TAKE b, t")
        assert mixed.sqlstate == "42804" and "QUEUE LIST" in mixed.fields["H"]
        fixed = error(c, "QUEUE ALTER t SET (payload = jsonb)")
        assert fixed.sqlstate == "0A000"
        assert c.rows("QUEUE STATS b")[0]["ready"] == c.rows("QUEUE STATS t")[0]["ready"] == "0"


def test_queues_that_are_not_there(proxy, db):
    """Asked about, and then asked about no more: each way ends."""
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE other")
        for sql in ("QUEUE PEEK nowhere; QUEUE PEEK neither; QUEUE PEEK nowhere", "QUEUE TAKE nowhere, neither",
                    "QUEUE PUSH nowhere SELECT 1; QUEUE PUSH neither SELECT 1", "QUEUE PEEK nowhere"):
            assert error(c, sql).sqlstate == "42P01"
        assert error(c, "QUEUE JOB '17'; QUEUE JOB '18'").sqlstate == "QB003"
        for sql in ("QUEUE PUSH nowhere SELECT $1", "QUEUE PEEK nowhere STATE $1", "QUEUE PUSH nowhere $1"):
            for describe in "SP":
                assert sqlstate(extended(c, sql, ["1"], describe, formats=(1,))) == ["42P01"]
        created(c, "text", "nowhere")
        tag(c, "QUEUE PUSH nowhere 'a'")
        assert payloads(extended(c, "QUEUE TAKE nowhere", describe="S")) == (TEXT, [b"a"])


def test_several_queues(proxy, db, kind):
    with proxy.wire(db) as c, proxy.wire(db) as w:
        created(c, kind, "a")
        created(c, kind, "b")
        w.query("QUEUE TAKE a, b WAIT '30s'")
        parked(w)
        tag(c, "QUEUE PUSH b 'x'")
        assert payloads(w.until("Z")) == (OID[kind], [value(kind, "x")])


def test_bulk(proxy, db, kind):
    with proxy.wire(db) as c:
        created(c, kind)
        source = "convert_to('n' || n, 'UTF8')" if kind == "bytea" else "'n' || n"
        assert tag(c, "QUEUE PUSH q SELECT %s FROM generate_series(1, 2) n" % source) == "INSERT 0 2"
        assert tag(c, "QUEUE PUSH q (payload, priority) SELECT %s, -1 FROM generate_series(3, 3) n"
                   % source) == "INSERT 0 1"
        assert sqlstate(extended(c, "QUEUE PUSH q SELECT $1::%s" % kind, ["n4"])) == []
        c.query("QUEUE PUSH q FROM STDIN").until("G")
        c.copy_data(b"n5\n").copy_done()
        assert [m.tag for m in c.until("Z") if m.type == "C"] == ["COPY 1"]
        want = [value(kind, "n%d" % n) for n in (1, 2, 4, 5, 3)]
        assert payloads(simple(c, "QUEUE TAKE q LIMIT 10")) == (OID[kind], want)


def test_bulk_with_keys(proxy, db, kind):
    with proxy.wire(db) as c:
        created(c, kind)
        source = "convert_to('n' || n, 'UTF8')" if kind == "bytea" else "'n' || n"
        assert tag(c, "QUEUE PUSH q (payload, key) SELECT %s, n %% 2 FROM generate_series(1, 4) n"
                   % source) == "INSERT 0 2"
        c.query("QUEUE PUSH q (payload, delay) FROM STDIN").until("G")
        c.copy_data(b"n5\t-1 s\n").copy_done().until("Z")
        want = [value(kind, "n%d" % n) for n in (1, 2, 5)]
        assert payloads(simple(c, "QUEUE TAKE q LIMIT 10")) == (OID[kind], want)


def test_handed_over(proxy, db, kind):
    """Pushed while somebody waits, in whatever way the client wants it."""
    with proxy.wire(db) as c, proxy.wire(db) as w:
        created(c, kind)
        for result, want in ((0, value(kind, "a")), (1, b"a")):
            w.hold().parse("", "QUEUE TAKE q WAIT '30s'").bind("", "", results=[result])
            w.describe("P").execute().sync().push()
            parked(w)
            tag(c, "QUEUE PUSH q 'a'")
            (row,) = [m.row for m in w.until("Z") if m.type == "D"]
            assert row[4] == want


def test_what_is_kept(proxy, db, kind):
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE q WITH (payload = %s, retain_done = '1 h')" % kind)
        tag(c, "QUEUE PUSH q 'a', 'b'")
        tag(c, "QUEUE POP q")
        (job,) = c.rows("QUEUE TAKE q")
        tag(c, "QUEUE DONE '%s' RESULT '1'" % job["token"])
        oid, values = payloads(simple(c, "QUEUE PEEK q STATE done"))
        assert oid == OID[kind] and sorted(values) == [value(kind, "a"), value(kind, "b")]
        assert payloads(simple(c, "QUEUE JOB '2'")) == (OID[kind], [value(kind, "b")])


def test_then(proxy, db, kind):
    with proxy.wire(db) as c:
        created(c, kind, "a")
        created(c, "jsonb", "j")
        tag(c, "QUEUE PUSH a '1', '2', '3'")
        tag(c, "QUEUE PUSH j '1'")
        assert payloads(simple(c, "QUEUE TAKE a")) == (OID[kind], [value(kind, "1")])
        assert payloads(simple(c, "QUEUE DONE 1 THEN TAKE")) == (OID[kind], [value(kind, "2")])
        assert payloads(extended(c, "QUEUE DONE $1 THEN TAKE", ["2"], result=1)) == (OID[kind], [b"3"])
        assert payloads(simple(c, "QUEUE DONE 3 THEN TAKE j")) == (JSONB, [b"1"])
        (job,) = c.rows("QUEUE PEEK j STATE leased")
        got = extended(c, "QUEUE DONE $1 THEN PUSH a $2", [job["id"], b"\x07"], "", formats=(0, 1))
        assert sqlstate(got) == []
        assert payloads(extended(c, "QUEUE TAKE a", result=1)) == (OID[kind], [b"\x07"])


def test_dropped_and_made_anew(proxy, db):
    """Through another connection, behind the proxy's back: it believes the old type."""
    with proxy.wire(db) as c, proxy.wire(db) as prepared:
        created(c, "text")
        tag(c, "QUEUE PUSH q 'a', 'b', 'c'")
        assert payloads(simple(c, "QUEUE TAKE q")) == (TEXT, [b"a"])
        prepared.hold().parse("p", "QUEUE TAKE q").describe("S", "p").sync().push().until("Z")
        for new in ("bytea", "jsonb", "text", "bytea"):
            tag(c, "SELECT queue.drop('q')")
            tag(c, "SELECT queue.create('q', false, '{payload}', '{%s}')" % new)
            tag(c, "QUEUE PUSH q '1', '2'")
            got = prepared.hold().bind("", "p").execute().sync().push().until("Z")
            if new == "text":
                assert [m.row[4] for m in got if m.type == "D"] == [b"1"]
            else:
                assert sqlstate(got) == ["0A000"]
            assert payloads(simple(c, "QUEUE PEEK q LIMIT 1"))[0] == OID[new]
            want = b"2" if new == "text" else b"1"
            assert payloads(extended(c, "QUEUE TAKE q", describe="S", result=1)) == \
                (OID[new], [b"\x01" + want if new == "jsonb" else want])
        # and through the proxy
        tag(c, "QUEUE DROP q")
        created(c, "text")
        tag(c, "QUEUE PUSH q 'z'")
        assert payloads(extended(c, "QUEUE TAKE q", describe="S")) == (TEXT, [b"z"])


@pytest.mark.parametrize("new", ["text", "jsonb"])
@pytest.mark.parametrize("how", ["plain", "clauses", "key", "group", "transaction", "then"])
def test_bytes_for_a_queue_made_anew(proxy, db, new, how):
    """They are never taken for the text that they are sent as."""
    push = "QUEUE PUSH q $1" + {"clauses": " PRIORITY 1 EXPIRES '1h'", "key": " KEY 'k'", "group": " GROUP 'g'"}.get(how, "")
    with proxy.wire(db) as c, proxy.wire(db) as other:
        created(c, "bytea")
        created(c, "text", "jobs")
        tag(c, "QUEUE PUSH jobs '1', '1', '1', '1'")

        def pushed(oids=(), binary=1):
            sql = "QUEUE DONE '%s' THEN PUSH q $1" % c.rows("QUEUE TAKE jobs")[0]["token"] if how == "then" else push
            if how == "transaction":
                tag(c, "BEGIN")
            got = sqlstate(extended(c, sql, [b"12"], "", formats=(binary,), oids=oids))
            if how == "transaction":
                tag(c, "ROLLBACK" if got else "COMMIT")
            return got
        assert pushed() == []
        assert payloads(simple(c, "QUEUE POP q")) == (BYTEA, [b"\\x3132"])
        tag(other, "SELECT queue.drop('q')")
        tag(other, "SELECT queue.create('q', false, '{payload}', '{%s}')" % new)
        assert pushed() == ["0A000"]
        assert payloads(simple(c, "QUEUE PEEK q")) == (OID[new], [])
        assert pushed() == []  # now it is known
        assert payloads(simple(c, "QUEUE POP q")) == (OID[new], [b"12"])
        assert pushed([BYTEA]) == ["42804"]
        assert payloads(simple(c, "QUEUE PEEK q")) == (OID[new], [])


def test_in_its_own_transaction(proxy, db):
    with proxy.wire(db) as c:
        tag(c, "BEGIN")
        created(c, "text")
        assert tag(c, "QUEUE PUSH q 'a'") == "INSERT 0 1"
        tag(c, "COMMIT")
        assert payloads(simple(c, "QUEUE TAKE q")) == (TEXT, [b"a"])


def test_waiting_before_it_is_made_anew(proxy, db):
    """Who waits is told nothing before there is a job."""
    with proxy.wire(db) as c, proxy.wire(db) as w:
        created(c, "text")
        w.query("QUEUE TAKE q WAIT '30s'")
        parked(w)
        tag(c, "BEGIN")
        tag(c, "SELECT queue.drop('q')")
        tag(c, "SELECT queue.create('q', false, '{payload}', '{bytea}')")
        tag(c, "QUEUE PUSH q '1'")
        tag(c, "COMMIT")
        assert payloads(w.until("Z")) == (BYTEA, [b"\\x31"])


@pytest.mark.parametrize("statement", ["QUEUE TAKE q", "QUEUE POP q", "QUEUE PEEK q"])
@pytest.mark.parametrize("cold", [True, False])
def test_made_anew_under_a_statement(proxy, db, direct, statement, cold):
    """The function has read what the queue is, and waits for its table until it is another."""
    with proxy.wire(db) as c, proxy.wire(db) as w:
        created(c, "text")
        if not cold:
            simple(w, statement)
        tag(c, "BEGIN")
        tag(c, "SELECT queue.drop('q')")
        tag(c, "SELECT queue.create('q', false, '{payload}', '{bytea}')")
        tag(c, "QUEUE PUSH q '1'")
        w.query(statement)
        locks = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_for(lambda: direct.execute(locks).fetchone()[0] == 1, "the statement to wait")
        tag(c, "COMMIT")
        assert payloads(w.until("Z")) == (BYTEA, [b"\\x31"])


def test_encodings_of_the_client(proxy, db):
    with proxy.wire(db) as c:
        created(c, "text")
        tag(c, "SET client_encoding TO latin1")
        assert sqlstate(extended(c, "QUEUE PUSH q $1", [b"\xe9"])) == []
        tag(c, "SET client_encoding TO utf8")
        assert payloads(simple(c, "QUEUE PEEK q")) == (TEXT, ["é".encode()])
        tag(c, "SET client_encoding TO latin1")
        assert payloads(simple(c, "QUEUE TAKE q")) == (TEXT, [b"\xe9"])


def test_bytea_output(proxy, db):
    with proxy.wire(db) as c:
        created(c, "bytea")
        tag(c, "SET bytea_output TO escape")
        for n in range(2):
            assert sqlstate(extended(c, "QUEUE PUSH q $1 KEY '%d'" % n, [b"a\\\0"], formats=(1,))) == []
        tag(c, "BEGIN")
        assert sqlstate(extended(c, "QUEUE PUSH q $1", [b"a\\\0"], formats=(1,))) == []
        tag(c, "COMMIT")
        assert payloads(extended(c, "QUEUE TAKE q LIMIT 5", result=1)) == (BYTEA, [b"a\\\0"] * 3)
