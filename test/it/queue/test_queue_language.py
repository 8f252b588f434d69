"""Every verb in every way a driver may send it: simple and extended, literals and parameters, named
statements, text and binary. The effect, the rows, the tag and the row description are the same."""

import json
import os
import re
import time

import pytest

from pgwire import types
from queuetest import (  # noqa: F401
    INT2, INT4, INT8, INTERVAL, JOB_COLUMNS, JSONB, TEXT, TIMESTAMPTZ, VARCHAR, columns_of, decoded, error,
    int4, int8, interval, job_of, peek, q, stats, tag, take,
    shared, shared_db, shared_proxy)
from tree import ROOT
from verbways import each_way, i, iv, j, n_ready, nothing, one_taken, t, three_jobs, two_taken

STATS, LIST, PEEK, WORKERS, HEALTH, FIGURES = (
    columns_of(row) for row in ("STATS", "LIST", "PEEK", "WORKERS", "HEALTH", "FIGURES"))
HELP = [("verb", TEXT), ("usage", TEXT), ("description", TEXT)]


# name: as the arguments of each_way()
VERBS = {
    "create": (nothing, "QUEUE CREATE {} IF NOT EXISTS WITH (lease = {}, max_attempts = {})",
               lambda name, s: [t(name + "_new"), t("7 min"), i(3)], "CREATE TABLE", None,
               lambda c, name: [r["max_attempts"] for r in c.rows("QUEUE LIST")
                                if r["queue"] == name + "_new"] == ["3"]),
    "alter": (nothing, "QUEUE ALTER {} SET (max_attempts = {}, on_disconnect = {})",
              lambda name, s: [t(name), i(9), t("keep")], "ALTER TABLE", None,
              lambda c, name: [(r["max_attempts"], r["on_disconnect"]) for r in c.rows("QUEUE LIST")
                               if r["queue"] == name] == [("9", "keep")]),
    "drop": (nothing, "QUEUE DROP {} IF EXISTS", lambda name, s: [t(name)], "DROP TABLE", None,
             lambda c, name: name not in [r["queue"] for r in c.rows("QUEUE LIST")]),
    "list": (nothing, "QUEUE LIST", lambda name, s: [], "SELECT *", LIST, None),
    "stats": (three_jobs, "QUEUE STATS {}", lambda name, s: [t(name)], "SELECT 1", STATS, n_ready(3)),
    "stats by": (three_jobs, "QUEUE STATS {} BY {} LAST {}", lambda name, s: [t(name), t("hour"), i(7)], "SELECT 7",
                 FIGURES, lambda c, name: c.rows("QUEUE STATS %s BY HOUR LAST 2" % name)[-1]["since"] is not None),
    "push": (nothing, "QUEUE PUSH {} {} PRIORITY {} HEADERS {}",
             lambda name, s: [t(name), j('{"a": "b"}'), i(4), j('{"h": 1}')], "INSERT 0 1", None,
             lambda c, name: [(json.loads(r["payload"]), r["priority"], json.loads(r["headers"]))
                              for r in peek(c, name)] == [({"a": "b"}, "4", {"h": 1})]),
    "push several, returning id": (
        nothing, "QUEUE PUSH {} {}, {}, {} RETURNING ID", lambda name, s: [t(name), j("1"), j("2"), j("null")],
        "INSERT 0 3", [("id", INT8)],
        lambda c, name: [r["payload"] for r in peek(c, name)] == ["1", "2", "null"]),
    "push delayed": (nothing, "QUEUE PUSH {} {} DELAY {}", lambda name, s: [t(name), j("1"), iv("1 hour", 3600)],
                     "INSERT 0 1", None, lambda c, name: stats(c, name)["later"] == 1),
    "push at": (nothing, "QUEUE PUSH {} {} AT {}",
                lambda name, s: [t(name), j("1"), ("'2100-01-01 00:00:00+00'", "2100-01-01 00:00:00+00",
                                                   TIMESTAMPTZ, int8(3155760000 * 1000000))],
                "INSERT 0 1", None,
                lambda c, name: peek(c, name)[0]["run_at"].startswith("2100-01-01 00:00:00")),
    "push that expires": (nothing, "QUEUE PUSH {} {} ATTEMPTS {} EXPIRES {}",
             lambda name, s: [t(name), j("1"), i(4), iv("1 hour", 3600)], "INSERT 0 1", None,
             lambda c, name: c.rows("SELECT max_attempts, extract(hour FROM expires_at - pushed_at + '1 min') AS h "
                                    "FROM queue.q_%s" % name) == [{"max_attempts": "4", "h": "1"}]),
    "take": (three_jobs, "QUEUE TAKE {} LIMIT {} WAIT {} LEASE {} AS {}",
             lambda name, s: [t(name), i(2), iv("5s", 5), iv("2 min", 120), t("me")], "SELECT 2", JOB_COLUMNS,
             lambda c, name: [r["worker"] for r in peek(c, name, "leased")] == ["me", "me"]),
    "pop": (three_jobs, "QUEUE POP {}, {} LIMIT {} WAIT {}", lambda name, s: [t(name), t(name), i(2), i(1)],
            "SELECT 2", JOB_COLUMNS, lambda c, name: stats(c, name) == dict(ready=1, later=0, leased=0, dead=0)),
    "done": (two_taken, "QUEUE DONE {}, {}", lambda name, s: [t(s[0]), t(s[1])], "UPDATE 2", None,
             lambda c, name: peek(c, name) == []),
    "fail": (one_taken, "QUEUE FAIL {} ERROR {} RETRY IN {}",
             lambda name, s: [t(s), t("no luck"), iv("1 hour", 3600)], "UPDATE 1", None,
             lambda c, name: [(r["state"], r["error"], r["failures"]) for r in peek(c, name)] ==
             [("later", "no luck", "1")]),
    "fail final": (one_taken, "QUEUE FAIL {} ERROR {} FINAL", lambda name, s: [t(s), t("no luck")], "UPDATE 1", None,
                   lambda c, name: stats(c, name)["dead"] == 1),
    "release": (one_taken, "QUEUE RELEASE {} DELAY {}", lambda name, s: [t(s), iv("1 min", 60)], "UPDATE 1", None,
                lambda c, name: [(r["state"], r["failures"]) for r in peek(c, name)] == [("later", "0")]),
    "extend": (one_taken, "QUEUE EXTEND {} LEASE {}", lambda name, s: [t(s), iv("3 hours", 10800)], "UPDATE 1", None,
               lambda c, name: c.rows("SELECT lease_until > now() + '2 hours' AS b FROM queue.peek('%s', 1, 'leased')"
                                      % name) == [{"b": "t"}]),
    "extend until": (one_taken, "QUEUE EXTEND {} UNTIL {} PROGRESS {}",
                     lambda name, s: [t(s), ("'2100-01-01 00:00:00+00'", "2100-01-01 00:00:00+00", TIMESTAMPTZ,
                                             int8(3155760000 * 1000000)), j('{"a": 1}')], "UPDATE 1", None,
                     lambda c, name: c.rows("SELECT date_part('year', lease_until) AS y, progress FROM queue.q_%s" % name)
                     == [{"y": "2100", "progress": '{"a": 1}'}]),
    # the queue, and the proxy or that there is none
    "health": (one_taken, "QUEUE HEALTH {}", lambda name, s: [t(name)], "SELECT 2", HEALTH, None),
    "workers": (one_taken, "QUEUE WORKERS {}", lambda name, s: [t(name)], "SELECT 1", WORKERS, None),
    "peek": (three_jobs, "QUEUE PEEK {} LIMIT {} STATE {}", lambda name, s: [t(name), i(2), t("ready")],
             "SELECT 2", PEEK, n_ready(3)),
    "push for": (nothing, "QUEUE PUSH {} {} KEY {} FOR {} ON DUPLICATE REPLACE IF NEWER {}",
                 lambda name, s: [t(name), j('1'), t("k"), iv("1 hour", 3600),
                                  ("'2100-01-01 00:00:00+00'", "2100-01-01 00:00:00+00", TIMESTAMPTZ,
                                   int8(3155760000 * 1000000))], "INSERT 0 1", None, n_ready(1)),
    "purge": (three_jobs, "QUEUE PURGE {} STATE {}", lambda name, s: [t(name), t("ready")], "DELETE 3", None,
              n_ready(0)),
    "purge older": (three_jobs, "QUEUE PURGE {} STATE {} OLDER THAN {}",
                    lambda name, s: [t(name), t("ready"), iv("1 hour", 3600)], "DELETE 0", None, n_ready(3)),
    "help": (nothing, "QUEUE HELP TAKE", lambda name, s: [], "SELECT 1", HELP, None),
}

@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


def test_binary_rows_say_what_text_rows_say(q):
    tag(q, "QUEUE PUSH mail '{\"a\": [1, \"\u00e9\"]}' PRIORITY -3 HEADERS '{\"h\": null}'")
    for sql in ("QUEUE PEEK mail", "QUEUE STATS mail", "QUEUE LIST", "QUEUE HELP"):
        text = q.simple(sql)
        q.hold().parse("", sql).bind(results=[1]).describe("P").execute().sync().push()
        binary = q.until("Z")
        names = [n for n, _, _ in text[0].columns]
        for a, b in zip([m for m in text if m.type == "D"], [m for m in binary if m.type == "D"]):
            for (name, oid, _), x, y in zip(binary[2].columns, a.text_row, b.row):
                if oid != TIMESTAMPTZ:
                    assert decoded(oid, y) == x, (sql, name)
                else:
                    assert (y is None) == (x is None), (sql, name)
        assert len(names) == len(binary[2].columns)


def test_result_formats_per_column(q):
    tag(q, "QUEUE PUSH mail '1'")
    n = len(JOB_COLUMNS)
    formats = [k % 2 for k in range(n)]
    q.hold().parse("", "QUEUE TAKE mail").bind(results=formats).describe("P").execute().sync().push()
    got = q.until("Z")
    assert [f for _, _, f in got[2].columns] == formats
    row = got[3].row
    assert row[1].decode().count("-") == 2 and row[3] == int4(1) and row[4] == b"1"
    got = q.hold().parse("", "QUEUE TAKE mail").bind(results=[0, 1]).execute().sync().push().until("Z")
    assert types(got) == "12EZ" and got[2].sqlstate == "08P01"


@pytest.mark.parametrize("oid, form, formats", [
    (INT2, b"\0\2", [1]), (INT4, int4(2), [1]), (INT8, int8(2), [1]), (TEXT, b"2", [1]), (VARCHAR, b"2", [1]),
    (0, b"2", [0]), (705, b"2", [0]), (INTERVAL, interval(2), [1]), (INTERVAL, b"00:00:02", [0]),
    (1700, b"2", [0]),
])
def test_types_that_drivers_state(q, oid, form, formats):
    """Whatever type a driver gives to a number of seconds, TAKE and DELAY read it."""
    tag(q, "QUEUE PUSH mail '1'")
    q.hold().parse("", "QUEUE TAKE mail WAIT $1", [oid]).bind("", "", [form], formats=formats).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12DCZ", got
    if oid != INTERVAL or formats == [1]:
        token = got[2].text_row[1]
        q.hold().parse("", "QUEUE RELEASE $2 DELAY $1", [oid, TEXT])
        q.bind("", "", [form, token], formats=formats + [0]).execute().sync().push()
        got = q.until("Z")
        assert types(got) == "12CZ", got
        assert stats(q)["later"] == 1


@pytest.mark.parametrize("oid, form", [(INT8, int8), (INT4, int4)])
def test_ids_as_numbers(q, oid, form):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    q.hold().parse("", "QUEUE DONE $1", [oid]).bind("", "", [form(int(job["id"]))], formats=[1]).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12CZ" and got[2].tag == "UPDATE 1"
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    tag(q, "BEGIN; SELECT 1")
    q.hold().parse("", "QUEUE DONE $1", [oid]).bind("", "", [form(int(job["id"]))], formats=[1]).execute().sync().push()
    assert types(q.until("Z")) == "12CZ"
    tag(q, "COMMIT")
    assert stats(q)["leased"] == 0


@pytest.mark.parametrize("literal", ["('5'::int8)", "((5))", "5::text", "CAST(5 AS text)", "'5'::pg_catalog.text",
                                     "+5", "E'5'", "$$5$$", "U&'\\0035'", "'5'\n''", "(' 5 '::text)"])
def test_how_values_may_be_written(q, literal):
    tag(q, "QUEUE PUSH mail %s" % literal)
    assert [r["payload"] for r in peek(q)] == ["5"]
    tag(q, "BEGIN")
    tag(q, "QUEUE PUSH mail %s PRIORITY %s" % (literal, literal if "'5'\n" not in literal else "5"))
    tag(q, "COMMIT")
    assert [r["payload"] for r in peek(q)] == ["5", "5"]
    if literal not in ("(' 5 '::text)",):
        assert len(q.rows("QUEUE TAKE mail LIMIT %s" % literal)) == 2


def test_options_in_any_order_each_once(q):
    tag(q, "QUEUE PUSH mail '1' HEADERS '{}' RETURNING ID PRIORITY 1")
    assert len(q.rows("QUEUE TAKE mail AS 'x' LEASE '1 min' WAIT '1s' LIMIT 3")) == 1
    assert error(q, "QUEUE TAKE mail LIMIT 1 LIMIT 1").sqlstate == "42601"
    assert error(q, "QUEUE PUSH mail '1' RETURNING ID RETURNING ID").sqlstate == "42601"


POSITIONS = [
    # where the ^ stands
    ("QUEUE TAEK mail",
     "      ^", "42601"),
    ("QUEUE TAKE mail LIMTI 5",
     "                ^", "42601"),
    ("/* \u00e9\u00e8\u20ac\U0001f600 */ QUEUE TAKE mail LIMIT 1 x",
     "                                   ^", "42601"),
    ("QUEUE PUSH mail 'open",
     "                ^", "42601"),
    ("QUEUE PUSH mail",
     "               ^", "42601"),
    ("QUEUE TAKE mail WAIT '1s' WAIT '1s'",
     "                          ^", "42601"),
    ("QUEUE CREATE m WITH (lease = '1s', lease = '2s')",
     "                                   ^", "42601"),
    ("QUEUE AWAIT 17 IN mail",
     "               ^", "42601"),
    ("QUEUE TAKE \"\"",
     "           ^", "42602"),
    ("QUEUE CREATE " + "x" * 41,
     "             ^", "42622"),
    ("QUEUE PUSH NULL '1'",
     "           ^", "22004"),
]


@pytest.mark.parametrize("sql, mark, state", POSITIONS)
def test_positions(q, sql, mark, state):
    """In characters, from 1, in both protocols, alone and in a string with others."""
    wanted = str(len(mark))
    e = error(q, sql)
    assert e.sqlstate == state and e.fields["P"] == wanted, e.fields
    if state in ("42601", "0A000") and "twice" not in e.fields["M"]:
        assert e.fields.get("H"), e.fields
    got = q.hold().parse("", sql).bind().execute().sync().push().until("Z")
    assert types(got) == "EZ" and got[0].fields["P"] == wanted
    e = error(q, "SELECT '\u00e9';\n " + sql)
    assert e.sqlstate == state and e.fields["P"] == str(len("SELECT 'e';\n ") + len(mark)), e.fields


def test_errors_of_values(q):
    """What the server says of a value comes without traces of our text."""
    for sql, state in (("QUEUE PUSH mail 'nope'", "22P02"), ("QUEUE PUSH mail '1' PRIORITY 'x'", "22P02"),
                       ("QUEUE PUSH mail '1' DELAY 'soon'", "22007"), ("QUEUE PUSH mail '1' AT 'never ever'", "22007"),
                       ("QUEUE PUSH mail '1' PRIORITY 99999999999", "22003"),
                       ("QUEUE PUSH mail '1' HEADERS '[1'", "22P02"), ("QUEUE PUSH mail ('1'::nosuch)", "42704"),
                       ("QUEUE PEEK mail STATE nosuch", "22023"), ("QUEUE PURGE mail STATE leased", "22023"),
                       ("QUEUE CREATE x WITH (lease = '-1s')", "22023"), ("QUEUE ALTER mail RESET (nosuch)", "22023"),
                       ("QUEUE TAKE mail LEASE 'x'", "22007"), ("QUEUE TAKE mail LEASE '-1s'", "22023"),
                       ("QUEUE TAKE mail WAIT '-1s'", "22023"), ("QUEUE PUSH mail NULL", "22004"),
                       ("QUEUE DONE NULL", "22004"), ("QUEUE TAKE mail, nosuch", "42P01")):
        for block in (False, True):
            if block:
                tag(q, "BEGIN")
            e = error(q, sql)
            assert e.sqlstate == state, (sql, e.fields)
            assert not set(e.fields) & set("pqW"), (sql, e.fields)
            assert "queue._" not in json.dumps(e.fields), (sql, e.fields)
            if block:
                assert tag(q, "ROLLBACK") == "ROLLBACK"
    assert peek(q) == [] and [r["queue"] for r in q.rows("QUEUE LIST")] == ["mail"]


def test_no_parameters_in_a_simple_query(q):
    assert error(q, "QUEUE PUSH mail $1").sqlstate == "42P02"
    assert error(q, "SELECT 1; QUEUE PUSH mail $1").sqlstate == "42P02"


def test_null_parameters(q):
    def go(sql, values):
        return q.hold().parse("", sql).bind("", "", values).execute().sync().push().until("Z")
    got = go("QUEUE PUSH mail $1 PRIORITY $2 DELAY $3 HEADERS $4", ["1", None, None, None])
    assert types(got) == "12CZ"
    assert [m.sqlstate for m in go("QUEUE PUSH $1 '1'", [None]) if m.type == "E"] == ["22004"]
    assert [m.sqlstate for m in go("QUEUE PUSH mail $1", [None]) if m.type == "E"] == ["22004"]
    assert [m.sqlstate for m in go("QUEUE TAKE $1", [None]) if m.type == "E"] == ["22004"]
    assert [m.sqlstate for m in go("QUEUE DONE $1", [None]) if m.type == "E"] == ["22004"]
    got = go("QUEUE TAKE mail LIMIT $1 WAIT $2 LEASE $3 AS $4", [None, None, None, None])
    assert types(got) == "12DCZ"
    token = job_of(got)["token"]
    assert types(go("QUEUE FAIL $1 ERROR $2 RETRY IN $3", [token, None, None])) == "12CZ"


def test_parameters_in_any_order_and_twice(q):
    q.hold().parse("", "QUEUE PUSH $3 $1, $1 PRIORITY $2").describe("S").bind("", "", ["7", "2", "mail"])
    got = q.execute().sync().push().until("Z")
    assert types(got) == "1tn2CZ" and got[1].oids == [TEXT] * 3 and got[4].tag == "INSERT 0 2"
    # one that is not used
    q.hold().parse("", "QUEUE PUSH mail $2").describe("S").bind("", "", ["x", "8"])
    got = q.execute().sync().push().until("Z")
    assert types(got) == "1tn2CZ" and len(got[1].oids) == 2
    assert [r["payload"] for r in peek(q)] == ["7", "7", "8"]
    # in a block, where the server sees it
    tag(q, "BEGIN; SELECT 1")
    q.hold().parse("", "QUEUE PUSH mail $2").bind("", "", ["x", "9"]).execute().sync().push()
    assert types(q.until("Z")) == "12CZ"
    tag(q, "COMMIT")
    got = q.hold().parse("", "QUEUE PUSH mail $1").bind("", "", ["1", "2"]).execute().sync().push().until("Z")
    assert types(got) == "1EZ" and got[1].sqlstate == "08P01"


def test_named_portals_end_with_the_transaction(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    for n in ("1", "2"):
        q.hold().parse("", "QUEUE TAKE mail").bind("p").execute("p").sync().push()
        got = q.until("Z")
        assert types(got) == "12DCZ" and job_of(got)["payload"] == n, got
    got = q.hold().execute("p").sync().push().until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "34000"


def test_portal_is_executed_once(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    q.hold().parse("", "QUEUE TAKE mail").bind().execute().execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12DCCZ" and [m.tag for m in got if m.type == "C"] == ["SELECT 1", "SELECT 0"]
    assert stats(q)["ready"] == 1


def test_row_limits(q):
    """As cursors of drivers send them: no more jobs than rows."""
    tag(q, "QUEUE PUSH mail '1', '2', '3', '4'")
    q.hold().parse("", "QUEUE TAKE mail LIMIT 4").bind().execute("", 1).sync().push()
    got = q.until("Z")
    assert types(got).count("D") == 1
    assert stats(q) == dict(ready=3, later=0, leased=1, dead=0)
    # rows of PEEK may be fetched bit by bit
    tag(q, "BEGIN")
    q.hold().parse("", "QUEUE PEEK mail").bind("c").execute("c", 2).flush().push()
    assert types(q.until("sC"))[:4] == "12DD"
    q.sync().until("Z")
    tag(q, "COMMIT")


def test_flush_brings_the_answer(q):
    tag(q, "QUEUE PUSH mail '1'")
    q.parse("", "QUEUE TAKE mail").describe("S").flush()
    assert types(q.until("T")) == "1tT"
    q.bind().execute().flush()
    assert types(q.until("C")) == "2DC"
    q.sync()
    assert types(q.until("Z")) == "Z"


def test_unnamed_statement_ends_with_a_query(q):
    q.hold().parse("", "QUEUE LIST").sync().push()
    assert types(q.until("Z")) == "1Z"
    q.simple("QUEUE LIST")
    got = q.hold().bind().execute().sync().push().until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "26000"


def test_priorities_and_order(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    tag(q, "QUEUE PUSH mail '3' PRIORITY -1")
    tag(q, "QUEUE PUSH mail '4' PRIORITY 1")
    tag(q, "QUEUE PUSH mail '5'")
    assert [r["payload"] for r in q.rows("QUEUE TAKE mail LIMIT 9")] == ["4", "1", "2", "5", "3"]


def test_delayed_job_never_early(q):
    begun = q.rows("SELECT clock_timestamp() AS t")[0]["t"]
    tag(q, "QUEUE PUSH mail '1' DELAY '300ms'")
    assert take(q, "QUEUE TAKE mail WAIT '20s'")["payload"] == "1"
    early = q.rows("SELECT clock_timestamp() < '%s'::timestamptz + '300ms' AS early" % begun)
    assert early == [{"early": "f"}]


def test_a_job_that_expires_is_not_given(q):
    tag(q, "QUEUE PUSH mail '1' EXPIRES '1 ms'")
    tag(q, "QUEUE PUSH mail '2'")
    assert take(q)["payload"] == "2"
    assert stats(q) == dict(ready=0, later=0, leased=1, dead=0)
    for bad in ("EXPIRES '0'", "ATTEMPTS 0"):
        assert error(q, "QUEUE PUSH mail '1' " + bad).sqlstate == "22023"


def test_wait_default_and_bound(qbouncer, db):
    proxy = qbouncer(queue_wait_default="100ms", queue_wait_max="200ms")
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        begun = time.monotonic()
        assert c.rows("QUEUE TAKE mail WAIT '1 hour'") == []
        assert 0.19 < time.monotonic() - begun < 5
        begun = time.monotonic()
        assert c.rows("QUEUE TAKE mail") == []
        assert 0.09 < time.monotonic() - begun < 5
        assert c.rows("QUEUE TAKE mail WAIT '0s'") == []


def test_help_describes_itself(q):
    verbs = [r["verb"] for r in q.rows("QUEUE HELP")]
    assert {"PUSH", "TAKE", "POP", "DONE", "FAIL", "RELEASE", "EXTEND", "CREATE", "ALTER", "DROP", "LIST", "STATS",
            "PEEK", "PURGE", "HELP"} <= set(verbs)
    assert error(q, "QUEUE HELP NOSUCH").sqlstate == "42601"
    # also without a database behind it
    assert q.rows("queue help push")[0]["verb"] == "PUSH"
    q.parse("", "QUEUE HELP $1").bind("", "", ["take"]).execute().sync()
    assert [m.text_row[0] for m in q.until("Z") if m.type == "D"] == ["TAKE"]


def test_the_manual_describes_each_verb(q):
    """Its usage as QUEUE HELP has it, and an example; no example is a mistake of form."""
    with open(os.path.join(ROOT, "doc", "queue.md"), encoding="utf-8") as f:
        text = f.read()
    examples = re.findall(r"^    \w+=> (QUEUE .+?)(?:;| \\gx)", text, re.M | re.S)
    for r in q.rows("QUEUE HELP"):
        usage = r["usage"].split("\nQUEUE ")[0] # PUSH has a second form
        assert " ".join(usage.split()) in " ".join(text.split()) or r["verb"] == "HELP", usage
        assert r["verb"] in ("HELP", "LIST") or [
            e for e in examples if (e + " ").startswith("QUEUE %s " % r["verb"]) or " THEN %s " % r["verb"] in e], r["verb"]
    assert len(examples) > 30
    for sql in examples:
        got = q.parse("", sql).sync().until("Z") # understood, not executed
        assert "42601" not in [m.sqlstate for m in got if m.type == "E"], (sql, got)


def test_clients_with_other_settings(qproxy, db, q):
    """What is put in force for a client before its statement is no row of the statement."""
    names = ["", "one", "two", "", "three"]
    wires = [qproxy.wire(db, application_name=n, TimeZone=z) for n, z in zip(names, ["UTC", "Asia/Tokyo"] * 3)]
    for n, w in enumerate(wires * 3):
        rows = w.rows("QUEUE PUSH mail '%d', '7' RETURNING ID" % n)
        assert [int(r["id"]) for r in rows] == [2 * n + 1, 2 * n + 2]
    for n, w in enumerate(wires * 3):
        jobs = w.rows("QUEUE TAKE mail LIMIT 2 AS 'w'")
        assert [r["payload"] for r in jobs] == [str(n), "7"]
        assert jobs[0]["pushed_at"].endswith("+09" if w.parameters["TimeZone"] == "Asia/Tokyo" else "+00")
        assert tag(w, "QUEUE RELEASE '%s'" % jobs[0]["token"]) == "UPDATE 1"
        assert tag(w, "QUEUE PURGE mail STATE dead") == "DELETE 0"
        assert tag(w, "QUEUE LIST") == "SELECT 1"
        jobs.append(take(w))
        assert tag(w, "QUEUE DONE '%s', '%s'" % (jobs[1]["token"], jobs[2]["token"])) == "UPDATE 2"
    assert peek(q) == []
    for w in wires:
        w.close()


def test_notices_reach_the_client(q):
    def notices(sql):
        q.query(sql)
        return [(m.fields["C"], m.fields["M"]) for m in q.until("Z", skip="S") if m.type == "N"]

    exists = ("42P07", 'queue "mail" already exists, skipping')
    absent = ("42P01", 'queue "other" does not exist, skipping')
    assert notices("QUEUE CREATE mail IF NOT EXISTS") == [exists]
    assert notices("QUEUE DROP other IF EXISTS") == [absent]
    assert notices("SELECT 1; QUEUE DROP other IF EXISTS") == [absent]
    tag(q, "SET client_min_messages = warning")
    assert notices("QUEUE DROP other IF EXISTS") == []
