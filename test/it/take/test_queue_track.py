"""TRACK before the program: what changes in a table comes to who waits for it."""

import json

import psycopg
import pytest

from queuetest import columns_of, error, parked, q, qproxy, tag, woken  # noqa: F401
from verbways import each_way, t


def tracked(c, name):
    c.query('CREATE TABLE IF NOT EXISTS "of_%s" (id int8 PRIMARY KEY, v text)' % name)
    c.until("Z")
    tag(c, "QUEUE TRACK \"of_%s\" IN %s" % (name, name))


def table(c, name):
    c.query('CREATE TABLE IF NOT EXISTS "of_%s" (id int8 PRIMARY KEY, v text)' % name)
    c.until("Z")


VERBS = {
    "track": (table, "QUEUE TRACK {} IN {}", lambda name, s: [t(f"of_{name}"), t(name)], "TRACK", None, None),
    "track with all": (table, "QUEUE TRACK {} IN {} FOR insert, {} IGNORE (v) KEY (id) HEADERS (jsonb_build_object('op', tg_op)) WHEN (new.v IS NULL)",
                       lambda name, s: [t(f"of_{name}"), t(name), t("delete")], "TRACK", None, None),
    "tracked": (tracked, "QUEUE TRACKED {}", lambda name, s: [t(f"of_{name}")], "SELECT 1", columns_of("TRACKED"), None),
    "untrack": (tracked, "QUEUE UNTRACK {} IN {}", lambda name, s: [t(f"of_{name}"), t(name)], "UNTRACK", None, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


@pytest.fixture
def c(qproxy, db):
    with qproxy.wire(db) as one:
        tag(one, "QUEUE CREATE orders WITH (kind = stream)")
        tag(one, "QUEUE SUBSCRIBE bi TO orders")
        tag(one, 'CREATE SCHEMA "Shop"')
        tag(one, 'CREATE TABLE "Shop"."It\'s" (id int8 PRIMARY KEY, v text)')
        yield one
        one.simple("ROLLBACK")


NAME = '"Shop"."It\'s"'


def take(c, more=""):
    return [json.loads(r["payload"]) for r in c.rows("QUEUE TAKE orders FOR bi " + more)]


def test_what_is_tracked(c):
    assert c.rows("QUEUE TRACKED") == [] == c.rows("QUEUE TRACKED %s" % NAME)
    tag(c, "QUEUE TRACK %s IN orders FOR insert COLUMNS (v) WHEN (new.v <> 'x')" % NAME)
    tag(c, "CREATE TABLE other (id int8 PRIMARY KEY)")
    tag(c, "QUEUE TRACK other IN orders")
    (row,) = c.rows("QUEUE TRACKED %s" % NAME)
    assert (row["relation"], row["queue"], row["kind"], row["events"], row["columns"], row["ignore"], row["condition"], row["owner"],
            row["enabled"]) == (NAME, "orders", "stream", "{insert}", "{v}", "{}", "(new.v <> 'x')", "app", "t")
    assert [r["relation"] for r in c.rows("QUEUE TRACKED")] == [NAME, "public.other"]
    assert error(c, "QUEUE TRACKED nosuch").sqlstate == "42P01"
    tag(c, "QUEUE UNTRACK other")
    assert "QUEUE TRACKED" in error(c, "QUEUE UNTRACK other").fields["H"]


def test_thin(c):
    assert tag(c, "QUEUE TRACK %s IN orders" % NAME) == "TRACK"
    tag(c, "INSERT INTO %s VALUES (1, 'a'), (2, NULL)" % NAME)
    tag(c, "UPDATE %s SET v = 'b' WHERE id = 1" % NAME)
    tag(c, "DELETE FROM %s WHERE id = 2" % NAME)
    got = take(c)
    assert [(e["op"], e["key"]["id"], e["new"], e["old"]) for e in got] == [
        ("insert", 1, {"id": 1, "v": "a"}, None), ("insert", 2, {"id": 2, "v": None}, None),
        ("update", 1, {"id": 1, "v": "b"}, {"id": 1, "v": "a"}), ("delete", 2, None, {"id": 2, "v": None})]
    assert {e["table"] for e in got} == {NAME}


def test_what_is_said_in_parentheses(c):
    assert tag(c, "QUEUE TRACK %s IN orders FOR INSERT, update COLUMNS (v) KEY (id) "
                  "HEADERS (jsonb_build_object('a\\b', 'it''s (')) WHEN (new.v <> $$)'$$ OR new.v = E'\\'')" % NAME) == "TRACK"
    tag(c, "INSERT INTO %s VALUES (1, ')'''), (2, ''''), (3, 'x')" % NAME)
    rows = c.rows("QUEUE TAKE orders FOR bi")
    assert [(json.loads(r["payload"])["new"], json.loads(r["headers"])) for r in rows] == [
        ({"v": "'"}, {"a\\b": "it's ("}), ({"v": "x"}, {"a\\b": "it's ("})]


def test_search_path_of_the_client(c):
    tag(c, "CREATE SCHEMA other")
    tag(c, "CREATE TABLE other.t (id int8 PRIMARY KEY)")
    tag(c, "SET search_path = other")
    assert tag(c, "QUEUE TRACK t IN orders") == "TRACK"
    tag(c, "INSERT INTO t VALUES (7)")
    assert take(c)[0]["table"] == "other.t"
    assert error(c, "QUEUE TRACK nosuch IN orders").sqlstate == "42P01"
    tag(c, "QUEUE UNTRACK t")


@pytest.mark.parametrize("how", ["alone", "in a transaction", "prepared", "copy"])
def test_who_waits_is_woken(qproxy, db, c, how):
    tag(c, "QUEUE TRACK %s IN orders" % NAME)
    with qproxy.wire(db) as w, psycopg.connect(qproxy.dsn(db), autocommit=True) as p:
        w.query("QUEUE TAKE orders FOR bi WAIT '60s'")
        parked(w)
        if how == "alone":
            tag(c, "INSERT INTO %s VALUES (1)" % NAME)
        elif how == "in a transaction":
            tag(c, "BEGIN")
            tag(c, "INSERT INTO %s VALUES (1)" % NAME)
            tag(c, "COMMIT")
        elif how == "prepared":
            p.execute("INSERT INTO %s VALUES (%%s)" % NAME, (1,), prepare=True)
        else:
            with p.cursor().copy("COPY %s (id) FROM STDIN" % NAME) as copy:
                copy.write("1\n")
        assert json.loads(woken(w)["payload"])["key"] == {"id": 1}


@pytest.mark.parametrize("sqlstate, sql", [
    ("42601", "QUEUE TRACK"), ("42601", "QUEUE TRACK t"), ("42601", "QUEUE TRACK a. IN q"), ("42601", "QUEUE TRACK t IN q WHEN new.a > 1"),
    ("42601", "QUEUE TRACK t IN q WHEN (a"), ("42P02", "QUEUE TRACK t IN q WHEN (new.a = $1)"), ("42601", "QUEUE TRACK t IN q COLUMNS a"),
    ("42601", "QUEUE TRACK t IN q COLUMNS (a) IGNORE (b)"), ("42601", "QUEUE TRACK t IN q WHEN (1; SELECT 2)"), ("42601", "QUEUE UNTRACK"),
    ("42P01", "QUEUE TRACK nosuch IN orders"), ("42P01", "QUEUE UNTRACK nosuch")])
def test_mistakes(c, sqlstate, sql):
    assert error(c, sql).sqlstate == sqlstate
