"""Queues whose payloads are text or bytea."""

import pytest

VALUES = {"text": ["", "a", "it's \\ é 日本", "{not json", "line\nbreak"],
          "bytea": [b"", b"a", bytes(range(256)), b"\\x41"]}


@pytest.fixture(params=["text", "bytea"])
def kind(request):
    return request.param


@pytest.fixture
def q(db, kind):
    db.create("q", payload=kind)
    return db


def of(function, kind):
    return function if kind == "jsonb" else "%s_%s" % (function, kind)


def take(session, kind, limit=1, verb="take"):
    return session.column("SELECT payload FROM queue.%s('q', %%s)" % of(verb, kind), limit)


def test_values_come_back(q, kind):
    assert q.value("SELECT payload FROM queue.list()") == kind
    assert q.value("SELECT format_type(atttypid, NULL) FROM pg_attribute "
                   "WHERE attrelid = 'queue.q_q'::regclass AND attname = 'payload'") == kind
    values = VALUES[kind]
    for value in values:
        q.rows("SELECT queue.push('q', %%s::%s)" % kind, value)
    assert q.column("SELECT payload FROM queue.peek_%s('q')" % kind) == values
    assert q.value("SELECT payload FROM queue.job_%s('1')" % kind) == values[0]
    assert take(q, kind, 2) == values[:2]
    assert take(q, kind, 10, "pop") == values[2:]


def test_texts_of_values(q, kind):
    """As the proxy pushes them, and with a literal or a parameter of no type."""
    texts = ["abc", "\\x616263"] if kind == "bytea" else ["abc", "abc"]
    q.push("q", *texts)
    q.push("q", *texts, priority=0, headers="{}")
    q.rows("SELECT queue._push('q', ARRAY['abc'], 0, NULL, NULL, NULL, false, attempts => 3)")
    q.rows("SELECT queue.push('q', 'abc')")
    q.rows("SELECT queue.push('q', 'abc', key => 'k', \"group\" => 'g')")
    q.rows("SELECT queue.push('q', 'xyz', key => 'l')")
    q.rows("SELECT queue.push('q', 'abc', key => 'l', on_duplicate => 'replace')")
    q.rows("INSERT INTO queue.q_q (payload) VALUES ('abc')")
    with q.conn.cursor().copy("COPY queue.q_q (payload) FROM STDIN") as copy:
        copy.write_row(["abc"])
    want = b"abc" if kind == "bytea" else "abc"
    assert take(q, kind, 20) == [want] * 10


def test_retries_keep_it(q, kind):
    q.push("q", "abc")
    token = q.value("SELECT token FROM queue.take_%s('q')" % kind)
    q.rows("SELECT queue.fail(%s, final => true)", token)
    q.rows("SELECT queue.redrive('q')")
    assert take(q, kind) == [b"abc" if kind == "bytea" else "abc"]


def test_of_another_type(q, kind):
    q.push("q", "abc")
    for wrong in {"jsonb", "text", "bytea"} - {kind}:
        for call in ("take('q')", "pop('q')", "peek('q')", "job('1')",
                     "_take(ARRAY['q'], 1, NULL, NULL, false)"):
            name, args = call.split("(", 1)
            diag = q.fails("42804", "SELECT * FROM queue.%s(%s" % (of(name, wrong), args))
            assert diag.message_primary == 'payloads of queue "q" are %s, not %s' % (kind, wrong)
            assert "queue.take_%s" % kind in diag.message_hint
    assert q.rows("SELECT ready FROM queue.stats()") == [(1,)]


def test_bytes_are_nothing_else(db):
    db.create("b", payload="bytea")
    db.create("t", payload="text")
    db.create("j")
    db.fails("42804", "SELECT queue.push('j', '\\x31'::bytea)")
    db.fails("42804", "SELECT queue.push('t', '\\x31'::bytea)")
    db.fails("42804", "SELECT queue.push('b', '{\"a\": \"\\u0041\"}'::jsonb)")
    db.rows("SELECT queue.push('t', '{\"a\": 1}'::jsonb)")
    assert db.value("SELECT payload FROM queue.take_text('t')") == '{"a": 1}'
    # the texts of bytes, and of JSON
    db.fails("22023", "SELECT queue.push('b', '\\xzz')")
    db.fails("22023", "SELECT queue.push('b', '\\x1')")
    db.fails("22P02", "SELECT queue.push('j', 'abc')")
    db.fails("22004", "SELECT queue.push('t', NULL::text)")
    assert db.rows("SELECT sum(ready)::int FROM queue.stats()") == [(0,)]


def test_several_queues(db):
    for name, kind in (("a", "text"), ("b", "text"), ("c", "bytea")):
        db.create(name, payload=kind)
        db.push(name, name)
    sql = "SELECT payload FROM queue._take_text(%s::text[], 5, NULL, NULL, false)"
    db.fails("42804", sql, ["a", "c"])
    assert db.column(sql, ["a", "b"]) == ["a", "b"]


def test_type_is_for_ever(q, kind):
    for sql in ("SELECT queue.alter('q', '{payload}', '{jsonb}')",
                "SELECT queue.alter('q', '{}', '{}', '{payload}')"):
        diag = q.fails("0A000", sql)
        assert kind in diag.message_detail and diag.message_hint
    q.rows("SELECT queue.alter('q', '{payload,max_length}', %s::text[])", [kind.upper(), "5"])
    assert q.value("SELECT payload FROM queue.list()") == kind


def test_another_queue_of_that_name(db):
    """A session that has used the old one."""
    for kind, want in (("text", "1"), ("jsonb", 1), ("bytea", b"1")):
        db.create("q", payload=kind)
        db.push("q", "1")
        assert take(db, kind) == [want]
        db.rows("SELECT queue.drop('q')")
