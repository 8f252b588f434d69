"""Streams whose payloads are text or bytea."""

import pytest

VALUES = {"text": ["", "a", "it's \\ é 日本", "{not json", "line\nbreak"],
          "bytea": [b"", b"a", bytes(range(256)), b"\\x41", b"\0"]}


@pytest.fixture(params=["text", "bytea"])
def kind(request):
    return request.param


@pytest.fixture
def s(db, kind):
    db.rows("SELECT queue.create('s', false, '{kind,payload}', ARRAY['stream', %s])", kind)
    db.rows("SELECT queue.subscribe('a', 's', 'beginning', '{retry,max_attempts}', '{fixed 1 ms,2}')")
    return db


def as_kind(kind, *texts):
    return [t.encode() for t in texts] if kind == "bytea" else list(texts)


def take(session, kind, sub="a"):
    """The token, and the payloads."""
    rows = session.rows("SELECT token, payload FROM queue.take_for_%s('s', %%s)" % kind, sub)
    return (rows[0][0] if rows else None), [r[1] for r in rows]


def waits(session, kind, state):
    return session.column("SELECT payload FROM queue.peek_for_%s('s', 'a', which => %%s)" % kind, state)


def test_values_come_back(s, kind):
    assert s.rows("SELECT kind, payload FROM queue.list()") == [("stream", kind)]
    for value in VALUES[kind]:
        s.rows("SELECT queue.push('s', %%s::%s)" % kind, value)
    token, got = take(s, kind)
    assert got == VALUES[kind]
    s.rows("SELECT queue.fail(%s, events => '{1,2,3,4,5}', final => true)", token)
    assert sorted(waits(s, kind, "dead")) == sorted(VALUES[kind])
    assert s.value("SELECT queue.redrive_for('s', 'a')") == 5
    assert take(s, kind)[1] == VALUES[kind]
    assert sorted(waits(s, kind, "leased")) == sorted(VALUES[kind])


def test_texts_of_values(s, kind):
    """As the proxy pushes them, with a literal or a parameter of no type, and in bulk."""
    texts = ["abc", "\\x616263"] if kind == "bytea" else ["abc", "abc"]
    s.push("s", *texts)
    s.push("s", *texts, headers="{}")
    s.rows("SELECT queue.push('s', 'abc')")
    s.rows("SELECT queue.push('s', 'abc', key => 'k', \"group\" => 'g')")
    for view in "qb":
        s.rows("INSERT INTO queue.%s_s (payload) VALUES ('abc')" % view)
        with s.conn.cursor().copy("COPY queue.%s_s (payload) FROM STDIN" % view) as copy:
            copy.write_row(["abc"])
    assert take(s, kind)[1] == as_kind(kind, "abc") * 10


def test_a_failed_delivery_comes_in_halves(s, kind):
    texts = ["a", "b", "c"]
    s.push("s", *texts)
    for _ in range(2):
        token, got = take(s, kind)
        assert got == as_kind(kind, *texts)
        s.rows("SELECT queue.fail(%s, 'bad', '0')", token)
    assert take(s, kind)[1] == as_kind(kind, "a", "b")


def test_events_that_wait_behind_others(db, kind):
    db.rows("SELECT queue.create('s', false, '{kind,payload}', ARRAY['stream', %s])", kind)
    db.rows("SELECT queue.subscribe('a', 's', 'now', '{on_fail}', '{block}')")
    for text in ("one", "two"):
        db.rows("SELECT queue.push('s', '%s', \"group\" => 'g')" % text)
    token, _ = take(db, kind)
    db.rows("SELECT queue.fail(%s, 'bad', '1 h', events => '{1}')", token)
    db.rows("SELECT queue.push('s', 'three', \"group\" => 'g')")
    assert take(db, kind) == (None, [])
    assert waits(db, kind, "later") == as_kind(kind, "one", "two", "three")
    db.rows("SELECT queue.redrive_for('s', 'a', which => 'later')")
    assert take(db, kind)[1] == as_kind(kind, "one", "two", "three")


def test_of_another_type(s, kind):
    s.push("s", "abc")
    for wrong in {"jsonb", "text", "bytea"} - {kind}:
        suffix = "" if wrong == "jsonb" else "_" + wrong
        for call in ("take_for%s('s', 'a')", "peek_for%s('s', 'a')", "_take_for%s('s', 'a', 1, NULL, NULL, NULL, '')"):
            diag = s.fails("42804", "SELECT * FROM queue." + call % suffix)
            assert diag.message_primary == 'payloads of stream "s" are %s, not %s' % (kind, wrong)
            assert "queue.take_for_%s" % kind in diag.message_hint
    assert take(s, kind)[1] == as_kind(kind, "abc")


def test_bytes_are_nothing_else(db):
    for kind in ("jsonb", "text", "bytea"):
        db.rows("SELECT queue.create(%s, false, '{kind,payload}', ARRAY['stream', %s])", kind, kind)
    for wrong in ("jsonb", "text"):
        db.fails("42804", "SELECT queue.push(%s, '\\x41'::bytea)", wrong)
    db.fails("42804", "SELECT queue.push('bytea', '{}'::jsonb)")
    db.rows("SELECT queue.push('text', '{}'::jsonb)")
    assert "hexadecimal" in db.fails("22023", "SELECT queue.push('bytea', '\\xZZ')").message_primary


def test_options(db):
    diag = db.fails("22023", "SELECT queue.create('s', false, '{kind,payload}', '{stream,json}')")
    assert "jsonb, text, bytea" in diag.message_hint
    db.rows("SELECT queue.create('s', false, '{kind,payload}', '{stream,\" TEXT \"}')")
    db.fails("0A000", "SELECT queue.alter('s', '{payload}', '{bytea}')")
    assert db.value("SELECT payload FROM queue.streams") == "text"


def test_what_is_published(s, kind):
    s.rows("SELECT queue.create_topic('t')")
    s.rows("SELECT queue.bind('s', 't.*')")
    s.rows("SELECT queue.publish('t.x', 'abc')")
    assert take(s, kind)[1] == as_kind(kind, "abc")
    s.rows("SELECT queue.create('j', false, '{kind}', '{stream}')")
    s.rows("SELECT queue.bind('j', 't.*')")
    s.fails("22P02", "SELECT queue.publish('t.x', 'abc')")


def test_changes_of_a_table(s, kind):
    s.rows("CREATE TABLE items (id int PRIMARY KEY, name text)")
    if kind == "bytea":
        diag = s.fails("42804", "SELECT queue.track('items', 's')")
        assert diag.message_primary == 'payloads of stream "s" are bytea, not jsonb'
        return
    s.rows("SELECT queue.track('items', 's')")
    s.rows("INSERT INTO items VALUES (1, 'pen')")
    (payload,) = take(s, kind)[1]
    assert s.rows("SELECT %s::jsonb ->> 'op', %s::jsonb #>> '{new,name}'", payload, payload) == [("insert", "pen")]


def test_rights(s, kind):
    bob = s.connect("bob")
    bob.fails("42501", "SELECT queue.push('s', 'x')")
    s.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    bob.rows("SELECT queue.push('s', 'x')")
    bob.fails("42501", "SELECT * FROM queue.take_for_%s('s', 'a')" % kind)
    assert take(s, kind)[1] == as_kind(kind, "x")


def test_jsonb_is_read_as_it_was_pushed(db):
    """Its text is what readers get; SQL and conditions have jsonb; and nobody can put in what is none."""
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.subscribe(n, 's') FROM unnest('{a,b,c}'::text[]) AS n")
    text = '{ "b": 1e2, "a": [1 ,2], "b": "\\u00e9" }'
    db.push("s", text, "null")
    assert db.column("SELECT payload FROM queue._take_for('s', 'a', 9, NULL, NULL, NULL, 'w') WHERE id IS NOT NULL") == [text, "null"]
    assert db.column("SELECT payload FROM queue.take_for('s', 'b')") == [{"a": [1, 2], "b": "é"}, None]
    token, = set(db.column("SELECT token FROM queue.take_for('s', 'c')"))
    db.rows("SELECT queue.fail(%s, events => '{1}', final => true)", token)
    assert db.column("SELECT payload FROM queue.peek_for('s', 'c')") == [{"a": [1, 2], "b": "é"}]
    db.rows("SELECT queue.redrive_for('s', 'c')")
    db.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    bob = db.connect("bob")
    log = "queue.e%d_0" % db.value("SELECT number FROM queue.streams")
    bob.rows("INSERT INTO %s (payload) VALUES ('[]')" % log)
    for refused, state in (("{no", "22P02"), ("", "22P02"), ('"\\u0000"', "22P05")):
        bob.fails(state, "INSERT INTO %s (payload) VALUES (%%s)" % log, refused)
        bob.fails(state, "SELECT queue._push('s', ARRAY[%s], NULL, NULL, NULL, NULL, false)", refused)
    db.fails("22P02", "UPDATE queue.retries SET payload_jsonb = '{no'")


def test_jsonb_of_a_bulk_push_has_the_form_of_jsonb(db):
    """Its rows are jsonb before the stream sees them."""
    text = '{"b": 1,  "a": 2, "a": 3}'
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("INSERT INTO queue.q_s (payload) VALUES (%s)", text)
    db.rows("SELECT queue.push('s', %s)", text)
    log = "queue.e%d_0" % db.value("SELECT number FROM queue.streams")
    assert db.column("SELECT payload FROM %s ORDER BY id" % log) == ['{"a": 3, "b": 1}', text]
