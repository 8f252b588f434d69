"""Whatever stands in a value stays in it: names, payloads, tokens, options, texts; literals of every
kind, parameters, standard_conforming_strings on and off. The tables tell whether something else happened."""

import json

import pytest

from pgwire import PgError, types
from queuetest import (  # noqa: F401
    TEXT, error, peek, q, tag, take, shared, shared_db, shared_proxy)

NASTY = [
    "'); DROP TABLE victim; --", "\\'); DROP TABLE victim; --", "'; COMMIT; DROP TABLE victim; --",
    "\\", "\\\\'", "'", "''", "\"; DROP TABLE victim; \"", "\"", "$1", "$$; DROP TABLE victim; $$", "$qb$", "/*",
    "*/ DROP TABLE victim; /*", "-- x", "\u2019\u02bc\uff07", "a\nb\r\n;QUEUE DROP mail", "{queue}{payload}%s%n",
    "::text); DROP TABLE victim", "NULL", "limit", " ", "\x01\x1f\x7f", "E'", "U&'\\0027", "\ufeff", "\U0001f600" * 10,
    ")::pg_catalog.text, false); --", "x" * 40, "pg_catalog", "..", "q_mail", "queues",
]

WAYS = ["standard", "standard off", "escape", "escape off", "dollar", "cast", "block", "string", "parameter",
        "binary", "parameter in a block", "identifier"]


def literal(way, text):
    single = "'" + text.replace("'", "''") + "'"
    if way in ("standard", "block", "string"):
        return single
    if way == "standard off":
        return single.replace("\\", "\\\\")
    if way in ("escape", "escape off"):
        return "E" + single.replace("\\", "\\\\")
    if way == "cast":
        return "((" + single + ")::text)"
    if way == "identifier":
        return '"' + text.replace('"', '""') + '"'
    assert way == "dollar"
    mark = "$zz$"
    assert mark not in text
    return mark + text + mark


class Sender:
    """Runs statements whose values stand as {} in one of the WAYS."""

    def __init__(self, c, way):
        self.c, self.way = c, way
        if way.endswith("off"):
            tag(c, "SET standard_conforming_strings = off")

    def __call__(self, sql, *values):
        """The rows, as dicts; errors are raised."""
        c, way = self.c, self.way
        block = "block" in way and "TAKE" not in sql
        if block:
            tag(c, "BEGIN")
        try:
            if way == "string" and "TAKE" not in sql:
                return self.read(c.simple("SELECT 1 WHERE false; " + self.spliced(sql, values) + "; SELECT 2 WHERE false"))
            if way in ("parameter", "binary", "parameter in a block"):
                c.hold().parse("", sql.format(*["$%d" % n for n in range(1, len(values) + 1)]))
                c.bind("", "", values, formats=[1] if way == "binary" else [])
                return self.read(c.describe("P").execute().sync().push().until("Z"))
            return self.read(c.simple(self.spliced(sql, values)))
        finally:
            if block:
                c.simple("COMMIT")

    def spliced(self, sql, values):
        way = "standard" if self.way in ("identifier",) else self.way
        return sql.format(*[literal(way, v) for v in values])

    @staticmethod
    def read(got):
        columns, out = [], []
        for m in got:
            if m.type == "E":
                raise PgError(m)
            if m.type == "T":
                columns = [n for n, _, _ in m.columns]
            if m.type == "D":
                out.append(dict(zip(columns, m.text_row)))
        return out


def snapshot(c):
    """Everything that somebody could have changed: tables, columns, functions, roles, queues."""
    return c.rows("SELECT (SELECT string_agg(nspname || '.' || relname, ',' ORDER BY nspname COLLATE \"C\", relname COLLATE \"C\") FROM pg_class k "
                  "JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN ('public', 'queue') AND relkind IN ('r', 'v')"
                  ") AS tables, (SELECT count(*) FROM pg_proc) AS functions, (SELECT count(*) FROM pg_roles) AS roles, "
                  "(SELECT count(*) FROM victim) AS victims")


@pytest.fixture
def victim(q):
    tag(q, "CREATE TABLE victim (a int)")
    tag(q, "INSERT INTO victim VALUES (1)")
    return q


@pytest.mark.parametrize("way", [w for w in WAYS if w != "identifier"])
def test_texts(victim, way):
    q, send = victim, Sender(victim, way)
    before = snapshot(q)
    for text in NASTY:
        body = json.dumps({"k" + text: text}, ensure_ascii=False)
        send("QUEUE PUSH mail {} HEADERS {}", body, body)
        job = send("QUEUE TAKE mail AS {}", text)[0]
        assert json.loads(job["payload"]) == {"k" + text: text} == json.loads(job["headers"]), text
        assert peek(q)[0]["worker"] == text, text
        send("QUEUE FAIL {} ERROR {} FINAL", job["token"], text)
        row = peek(q, state="dead")[0]
        assert row["error"] == text, text
        # none of these is a token, a number, a time, a state
        for sql, states in (("QUEUE DONE {}", ("22023",)), ("QUEUE EXTEND {}", ("22023",)),
                            ("QUEUE PUSH mail '1' PRIORITY {}", ("22P02",)), ("QUEUE TAKE mail LIMIT {}", ("22P02",)),
                            ("QUEUE TAKE mail WAIT {}", ("22007",)), ("QUEUE TAKE mail LEASE {}", ("22007",)),
                            ("QUEUE PUSH mail '1' DELAY {}", ("22007",)), ("QUEUE PUSH mail '1' AT {}", ("22007",)),
                            ("QUEUE PEEK mail STATE {}", ("22023",)), ("QUEUE PURGE mail STATE {}", ("22023",)),
                            ("QUEUE CREATE bad WITH (lease = {})", ("22023",)),
                            ("QUEUE ALTER mail SET (retry = {})", ("22023",)),
                            ("QUEUE ALTER mail SET (on_disconnect = {})", ("22023",))):
            if text == "$1" and (states == ("22007",) or "lease" in sql):
                continue # an interval: Postgres reads the digit
            with pytest.raises(PgError) as e:
                send(sql, text)
            if text.startswith("{") and states == ("22023",) and ("DONE" in sql or "EXTEND" in sql):
                states = ("22P02",)     # begins as an array of jobs does
            assert e.value.sqlstate in states, (text, sql, e.value)
        assert tag(q, "QUEUE PURGE mail") == "DELETE 1", text
    assert snapshot(q) == before


@pytest.mark.parametrize("way", [w for w in WAYS if w != "block"])
def test_queue_names(victim, way):
    q, send = victim, Sender(victim, way)
    before = snapshot(q)
    for text in NASTY:
        if way == "identifier":
            name = literal(way, text)

            def go(sql, *values):
                return q.rows(sql.format("\0", *[literal("standard", v) for v in values]).replace("\0", name))
        else:
            def go(sql, *values):
                return send(sql, text, *values)
        if text == "mail":
            continue
        go("QUEUE CREATE {}")
        assert text in [r["queue"] for r in q.rows("QUEUE LIST")], text
        go("QUEUE PUSH {} {}", "1")
        go("QUEUE ALTER {} SET (max_attempts = 3)")
        assert [r["queue"] for r in go("QUEUE STATS {}")] == [text]
        assert len(go("QUEUE PEEK {}")) == 1, text
        job = go("QUEUE TAKE {}")[0]
        assert job["queue"] == text
        tag(q, "QUEUE RELEASE '%s'" % job["token"])
        go("QUEUE PURGE {}")
        go("QUEUE DROP {}")
        with pytest.raises(PgError) as e:
            go("QUEUE TAKE {}")
        assert e.value.sqlstate == "42P01", text
        with pytest.raises(PgError) as e:
            go("QUEUE PUSH {} {}", "1")
        assert e.value.sqlstate == "42P01", text
    assert snapshot(q) == before
    assert [r["queue"] for r in q.rows("QUEUE LIST")] == ["mail"]


def test_option_names(victim):
    before = snapshot(victim)
    for text in NASTY:
        for sql in ("QUEUE CREATE x WITH (%s = '1')", "QUEUE ALTER mail SET (%s = '1')", "QUEUE ALTER mail RESET (%s)"):
            e = error(victim, sql % literal("identifier", text))
            assert e.sqlstate == "22023", (text, e.fields)
    assert snapshot(victim) == before


def test_hint_for_odd_names_can_be_used(q):
    """What the hint says to do works."""
    for text in ("Odd Name", "it's", "a\"b", "limit", "\u00e9"):
        e = error(q, "QUEUE PUSH %s '1'" % literal("identifier", text))
        assert e.sqlstate == "42P01" and e.fields["H"].startswith("Create it with: "), e.fields
        tag(q, e.fields["H"].split(": ", 1)[1])
        assert tag(q, "QUEUE PUSH %s '1'" % literal("identifier", text)) == "INSERT 0 1"


@pytest.mark.parametrize("fmt", [0, 1])
@pytest.mark.parametrize("sql, values", [
    ("QUEUE PUSH $1 '1'", [b"mail\0x"]), ("QUEUE TAKE $1", [b"mail\0x"]), ("QUEUE POP mail, $1", [b"mail\0"]),
    ("QUEUE PUSH mail $1", [b"1\0"]), ("QUEUE PUSH mail $1", [b'"\xff\xfe"']), ("QUEUE TAKE $1", [b"\xc3"]),
    ("QUEUE TAKE mail AS $1", [b"me\0x"]), ("QUEUE TAKE mail LEASE $1", [b"1s\0x"]),
    ("QUEUE TAKE mail WAIT $1", [b"1s\0x"]), ("QUEUE TAKE mail LIMIT $1", [b"1\0x"]),
    ("QUEUE TAKE mail AS $1", [b"\xff"]), ("QUEUE PUSH mail '1' HEADERS $1", [b"{}\0"]),
    ("QUEUE PUSH mail '1' PRIORITY $1", [b"1\0"]), ("QUEUE CREATE $1", [b"a\0b"]), ("QUEUE DONE $1", [b"1\0"]),
    ("QUEUE STATS $1", [b"mail\0"]), ("QUEUE DROP $1", [b"mail\0"]),
    ("QUEUE CREATE x WITH (lease = $1)", [b"1min\0"]),
])
def test_nul_and_broken_characters(q, sql, values, fmt):
    """Refused, never cut short."""
    tag(q, "QUEUE PUSH mail '7'")
    for block in (False, True):
        if block:
            tag(q, "BEGIN; SELECT 1")
        q.hold().parse("", sql, [TEXT]).bind("", "", values, formats=[fmt]).execute().sync().push()
        got = q.until("Z")
        states = [m.sqlstate for m in got if m.type == "E"]
        assert len(states) == 1 and states[0] in ("22021", "22023", "22P02", "22007"), (sql, got)
        if block:
            tag(q, "ROLLBACK")
    assert [(r["payload"], r["state"]) for r in peek(q)] == [("7", "ready")]


@pytest.mark.parametrize("fmt", [0, 1])
def test_a_name_that_goes_on_behind_a_nul(q, fmt):
    """Also when what stands before it is a queue that is well known."""
    for _ in range(10):
        tag(q, "QUEUE PUSH mail '7'")
    q.hold().parse("", "QUEUE PUSH $1 '1'", [TEXT]).bind("", "", [b"mail\0x"], formats=[fmt]).execute().sync().push()
    assert [m.sqlstate for m in q.until("Z") if m.type == "E"] == ["22021"]
    assert {r["payload"] for r in peek(q)} == {"7"}
    assert [r["queue"] for r in q.rows("QUEUE LIST")] == ["mail"]


def test_broken_characters_in_literals(q):
    for sql in (b"QUEUE PUSH mail '\"\xff\"'", b"QUEUE CREATE \"\xff\"", b"QUEUE TAKE '\xc3'", b"QUEUE TAKE mail AS '\xe9'",
                b"QUEUE DONE '\xff'"):
        got = q.send("Q", sql + b"\0").until("Z")
        assert [m.sqlstate for m in got if m.type == "E"][0] in ("22021", "22023"), (sql, got)
    # the NUL escape of JSON is the server's to refuse
    assert error(q, "QUEUE PUSH mail '\"\\u0000\"'").sqlstate == "22P05"
    assert peek(q) == []


def test_other_encodings(qproxy, db, q):
    with qproxy.wire(db, client_encoding="LATIN1") as c:
        got = c.send("Q", b"QUEUE PUSH mail '\"caf\xe9\"'\0").until("Z")
        assert types(got) == "CZ", got
        assert take(q)["payload"] == "\"caf\u00e9\""
        tag(q, "QUEUE PUSH mail '\"caf\u00e9\"'")
        row = [m for m in c.query("QUEUE TAKE mail").until("Z") if m.type == "D"][0].row
        assert row[4] == b"\"caf\xe9\""
        tag(q, "QUEUE PUSH mail '\"\u20ac\"'")
        got = c.query("QUEUE TAKE mail").until("Z")
        assert [m.sqlstate for m in got if m.type == "E"] == ["22P05"]
    for name in ("SJIS", "BIG5", "GBK"):
        with qproxy.wire(db, client_encoding=name) as c:
            e = error(c, "QUEUE PUSH mail '1'")
            assert e.sqlstate == "0A000" and "UTF8" in e.fields["H"]
            assert c.rows("SELECT 1 AS a") == [{"a": "1"}]


def test_backslashes_off_and_on(victim):
    """The same bytes mean different things; what we read is what the server reads."""
    q = victim
    tag(q, "SET standard_conforming_strings = off")
    # one literal, closed by the last quote
    tag(q, "QUEUE PUSH mail '\"a\\'); DROP TABLE victim; --\"'")
    assert json.loads(take(q)["payload"]) == "a'); DROP TABLE victim; --"
    tag(q, "SET standard_conforming_strings = on")
    # here the literal ends at the second quote, and what follows is a syntax error
    e = error(q, "QUEUE PUSH mail '\"a\\'); DROP TABLE victim; --\"'")
    assert e.sqlstate == "42601"
    e = error(q, "QUEUE PUSH mail '\"a\\\"'; DROP TABLE victim2")
    assert e.sqlstate in ("22P02", "42P01")
    assert q.rows("SELECT count(*) FROM victim") == [{"count": "1"}]


def test_the_setting_changes_in_the_same_string(victim):
    """The first statement changes how the second is read: whatever happens, it is not a DROP."""
    q = victim
    q.simple("SET standard_conforming_strings = off; QUEUE PUSH mail '\"\\'; DROP TABLE victim; --\"'")
    assert q.rows("SELECT count(*) FROM victim") == [{"count": "1"}]


def test_functions_of_the_same_name(q):
    """Neither search_path nor temporary objects put something else in the place of ours."""
    tag(q, "CREATE SCHEMA evil")
    tag(q, "CREATE TABLE evil.log (a text)")
    tag(q, "CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS "
           "$$ INSERT INTO evil.log VALUES ('notify') $$")
    tag(q, "CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1970-01-01'::timestamptz $$")
    tag(q, "CREATE DOMAIN evil.text AS int")
    tag(q, "BEGIN; SET LOCAL search_path = evil, pg_catalog")
    tag(q, "QUEUE PUSH mail '1', '2' PRIORITY '1'")
    tag(q, "QUEUE STATS mail")
    tag(q, "COMMIT")
    tag(q, "BEGIN; SET LOCAL search_path = evil, pg_catalog")
    job = take(q)
    tag(q, "QUEUE FAIL '%s' ERROR 'x'" % job["token"])
    tag(q, "COMMIT")
    assert q.rows("SELECT count(*) FROM evil.log") == [{"count": "0"}]
    assert peek(q, state="ready")[0]["payload"] == "2"
