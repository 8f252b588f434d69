"""TRACK: what changes in a table is pushed by a trigger, with the tracker's right."""

import json
import os
import subprocess

import psycopg
import pytest


def track(db, table="t", q="s", **more):
    args = "".join(f", {k} => %s" for k in more)
    db.rows(f"SELECT queue.track(%s, %s{args})", table, q, *more.values())


def stream(db, name="s"):
    db.rows("SELECT queue.create(%s, false, '{kind}', '{stream}')", name)
    number = db.value("SELECT number FROM queue.streams WHERE name = %s", name)
    return f"queue.e{number}_0"


def events(db, log):
    """(op, key, new, old) in the order of the ids."""
    return [(p["op"], p["key"], p["new"], p["old"]) for (p,) in db.rows(f"SELECT payload::jsonb FROM {log} ORDER BY id")]


@pytest.fixture
def tracked(db):
    """A table t (id, v) of app's, tracked in the stream s; its events, anew each time."""
    log = stream(db)
    db.rows("CREATE TABLE t (id int8 PRIMARY KEY, v text)")
    track(db)
    seen = [0]

    def since():
        found = events(db, log)
        new = found[seen[0]:]
        seen[0] = len(found)
        return new
    return since


def test_what_an_event_is(db):
    log = stream(db)
    db.rows("CREATE SCHEMA app; CREATE TABLE app.orders (id int8 PRIMARY KEY, total numeric)")
    track(db, "app.orders")
    with db.conn.transaction():
        xid = db.value("SELECT pg_current_xact_id()::text")
        db.rows("INSERT INTO app.orders VALUES (7, 1.50)")
        db.rows("UPDATE app.orders SET total = 2 WHERE id = 7")
        db.rows("DELETE FROM app.orders")
        db.rows("TRUNCATE app.orders")
    rows = db.rows(f'SELECT payload::jsonb, key, "group", bucket, headers, xid::text FROM {log} ORDER BY id')
    common = {"table": "app.orders", "key": {"id": 7}, "xid": xid}
    assert [r[0] for r in rows] == [
        {**common, "op": "insert", "new": {"id": 7, "total": 1.50}, "old": None},
        {**common, "op": "update", "new": {"id": 7, "total": 2}, "old": {"id": 7, "total": 1.50}},
        {**common, "op": "delete", "new": None, "old": {"id": 7, "total": 2}},
        {**common, "op": "truncate", "key": None, "new": None, "old": None}]
    bucket = db.value("SELECT hashtextextended('7', 0) & 32767")
    assert [r[1:] for r in rows] == [(None, "7", bucket, None, xid)] * 3 + [(None, None, 0b00100000 << 7, None, xid)]    # of its id, 4


def test_what_is_rolled_back_is_no_event(db, tracked):
    with pytest.raises(ZeroDivisionError), db.conn.transaction():
        db.rows("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError
    with db.conn.transaction():
        db.rows("INSERT INTO t VALUES (2)")
        with pytest.raises(psycopg.Error), db.conn.transaction():
            db.rows("INSERT INTO t VALUES (3)")
            db.rows("INSERT INTO t VALUES (3)")
        db.rows("UPDATE t SET v = 'x'")
    assert [(op, key["id"]) for op, key, _, _ in tracked()] == [("insert", 2), ("update", 2)]


def test_said_again(db, tracked):
    before = db.row("SELECT tgfoid FROM pg_trigger WHERE tgname = '_queue_track_1'")
    track(db)
    assert db.notices == ["public.t is already tracked so, skipping"]
    assert db.row("SELECT tgfoid FROM pg_trigger WHERE tgname = '_queue_track_1'") == before
    track(db, events=["INSERT"])
    db.rows("INSERT INTO t VALUES (1)")
    db.rows("UPDATE t SET v = 'x'")
    db.rows("TRUNCATE t")
    assert [e[0] for e in tracked()] == ["insert"]
    assert db.value("SELECT count(*) FROM pg_proc WHERE proname ~ '_queue_track'") == 1
    track(db, events=["truncate"])
    db.rows("INSERT INTO t VALUES (2)")
    db.rows("TRUNCATE t")
    assert [e[0] for e in tracked()] == ["truncate"]
    assert db.row("SELECT relation, queue, events FROM queue.tracked()") == ("public.t", "s", ["truncate"])
    db.rows("SELECT queue.untrack('t')")
    db.rows("INSERT INTO t VALUES (3)")
    assert tracked() == [] and db.rows("SELECT * FROM queue.tracked()") == []
    assert db.value("SELECT count(*) FROM pg_proc WHERE proname ~ '_queue_track'") == 0


VALUES = [
    ("bool", "true", True), ("int2", "-3", -3), ("int8", "9007199254740993", 9007199254740993), ("numeric", "'NaN'", "NaN"),
    ("numeric", "'Infinity'", "Infinity"), ("numeric(20,4)", "1.5", "1.5000"), ("float8", "'-Infinity'", "-Infinity"),
    ("float8", "0.1::float8 + 0.2::float8", 0.30000000000000004), ("text", r"E'it''s \\ \"quoted\" é'", 'it\'s \\ "quoted" é'),
    ("bytea", r"'\xdeadbeef'", "\\xdeadbeef"), ("date", "'infinity'", "infinity"), ("date", "'4714-11-24 BC'", "4714-11-24 BC"),
    ("timestamp", "'-infinity'", "-infinity"), ("timestamptz", "'2030-01-02 03:04:05+00'", "2030-01-02T03:04:05+00:00"),
    ("interval", "'1 day 02:00'", "1 day 02:00:00"), ("uuid", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    ("json", """'{"b": 1, "a": [null]}'""", {"a": [None], "b": 1}), ("jsonb", "'7'", 7), ("jsonb", "'null'", None),
    ("int4[]", "'{{1,2},{3,NULL}}'", [[1, 2], [3, None]]), ("int4range", "'[1,5)'", "[1,5)"),
    ("daterange", "'[2030-01-02,infinity)'", "[2030-01-02,infinity)"), ("int4multirange", "'{[1,2),[5,7)}'", "{[1,2),[5,7)}"),
    ("pair", "ROW(1, '2030-01-02 03:04:05+00')", {"a": 1, "b": "2030-01-02T03:04:05+00:00"}), ("pair[]", "ARRAY[ROW(1, NULL)::pair]", [{"a": 1, "b": None}]),
    ("colour", "'red'", "red"), ("positive", "7", 7), ("inet", "'10.0.0.1/8'", "10.0.0.1/8"), ("point", "'(1,2)'", "(1,2)"),
    ("bit(3)", "B'101'", "101"), ("tsvector", "'a b'", "'a' 'b'"), ("xml", "'<a/>'", "<a/>"), ("\"char\"", "'x'", "x"),
    ("int4 GENERATED ALWAYS AS (id * 2) STORED", "DEFAULT", 2), ("text", "NULL", None)]


@pytest.mark.parametrize("type, literal, value", VALUES, ids=lambda v: str(v)[:20])
def test_each_type(db, type, literal, value):
    """... in the same words whatever the settings of who writes."""
    log = stream(db)
    db.rows("CREATE TYPE pair AS (a int4, b timestamptz)")
    db.rows("CREATE TYPE colour AS ENUM ('red')")
    db.rows("CREATE DOMAIN positive AS int4 CHECK (value > 0)")
    db.rows(f"CREATE TABLE t (id int4 PRIMARY KEY, v {type})")
    track(db)
    other = db.connect("app")
    for sql in ("SET bytea_output = 'escape'", "SET intervalstyle = 'iso_8601'", "SET timezone = 'Asia/Tokyo'",
                "SET datestyle = 'German'", "SET extra_float_digits = -10", "SET search_path = ''"):
        other.rows(sql)
    for session, name in (db, "t"), (other, "public.t"):
        session.rows(f"INSERT INTO {name} VALUES (1, {literal if session is db else literal.replace('::pair', '::public.pair')})")
        session.rows(f"DELETE FROM {name}")
    payloads = db.column(f"SELECT payload::text FROM {log} ORDER BY id")
    rows = [json.loads(p, parse_float=lambda f: f if f == "1.5000" else float(f)) for p in payloads]
    assert [r["new"]["v"] for r in rows if r["new"]] + [r["old"]["v"] for r in rows if r["old"]] == [value] * 4


@pytest.mark.parametrize("given, kept", [
    (r'{"a": "x\u0000y"}', {"a": "x\ufffdy"}), (r'["\u0000\u0000", "\\u0000", "\\\u0000"]', ["\ufffd\ufffd", "\\u0000", "\\\ufffd"])])
def test_json_that_jsonb_does_not_have(db, given, kept):
    """A write to a table goes well whether it is tracked or not."""
    log = stream(db)
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY, v json, w text)")
    track(db)
    db.rows("INSERT INTO t VALUES (1, %s::json, %s)", given, r"\u0000")
    db.rows("UPDATE t SET id = 2")
    assert [(e[2]["v"], e[2]["w"]) for e in events(db, log)] == [(kept, r"\u0000")] * 2


def test_large_values_that_did_not_change(db, tracked):
    db.rows("ALTER TABLE t ALTER v SET STORAGE EXTERNAL, ADD n int4")
    large = "x" * 100_000
    db.rows("INSERT INTO t VALUES (1, %s)", large)
    db.rows("UPDATE t SET n = 2")
    db.rows("DELETE FROM t")
    assert tracked() == [
        ("insert", {"id": 1}, {"id": 1, "v": large, "n": None}, None),
        ("update", {"id": 1}, {"id": 1, "v": large, "n": 2}, {"id": 1, "v": large, "n": None}),
        ("delete", {"id": 1}, None, {"id": 1, "v": large, "n": 2})]


def test_keys(db):
    log = stream(db)
    db.rows("CREATE TABLE two (b text, a int4, n int4, PRIMARY KEY (a, b))")
    db.rows("CREATE TABLE none (a int4, b text)")
    db.rows("CREATE TABLE by_identity (a int4 NOT NULL UNIQUE, b text)")
    db.rows("ALTER TABLE by_identity REPLICA IDENTITY USING INDEX by_identity_a_key")
    for t in "two", "none", "by_identity":
        track(db, t)
    db.rows("INSERT INTO two VALUES ('x', 1, 0)")
    db.rows("UPDATE two SET a = 2")  # it is the row that was 1 until now
    db.rows("INSERT INTO none VALUES (1)")
    db.rows("INSERT INTO by_identity VALUES (1)")
    assert db.rows(f"""SELECT payload::jsonb->'key', "group" FROM {log} ORDER BY id""") == [
        ({"a": 1, "b": "x"}, '[1, "x"]'), ({"a": 1, "b": "x"}, '[1, "x"]'), (None, None), ({"a": 1}, "1")]
    track(db, "none", key=["b"])
    db.rows("INSERT INTO none VALUES (1, %s), (2, NULL)", "k" * 1001)
    assert db.rows(f"""SELECT "group" FROM {log} ORDER BY id OFFSET 4""") == [(db.value("SELECT md5(%s)", "k" * 1001),), (None,)]


def test_columns(db):
    log = stream(db)
    db.rows('CREATE TABLE t (id int4 PRIMARY KEY, a numeric, "it\'s" text, secret text)')
    track(db, columns=["it's", "a"])
    db.rows("INSERT INTO t VALUES (1, 1.0, 'x', 's')")
    db.rows("UPDATE t SET secret = 't'")
    db.rows("UPDATE t SET a = 1.00")
    db.rows("UPDATE t SET id = 2")
    assert db.column(f"SELECT payload::jsonb->'new' FROM {log} ORDER BY id") == [{"a": 1, "it's": "x"}] * 2
    assert db.value(f"SELECT payload::jsonb#>>'{{new,a}}' FROM {log} ORDER BY id DESC LIMIT 1") == "1.00"
    track(db, ignore=["secret"])
    db.rows("UPDATE t SET secret = 'u'")
    db.rows("UPDATE t SET a = 3, secret = 'v'")
    assert events(db, log)[2:] == [("update", {"id": 2}, {"id": 2, "a": 3, "it's": "x"}, {"id": 2, "a": 1, "it's": "x"})]
    db.fails("22023", "SELECT queue.track('t', 's', columns => '{a}', ignore => '{a}')")
    for what in "columns", "ignore", "key":
        db.fails("42703", f"SELECT queue.track('t', 's', {what} => '{{nosuch}}')")


def test_a_hundred_columns(db):
    log = stream(db)
    names = [f"c{i}" for i in range(150)]
    db.rows("CREATE TABLE t (%s, PRIMARY KEY (c0, c1))" % ", ".join(f"{n} int4" for n in names))
    track(db, columns=names[:120], key=names[:100])
    db.rows("INSERT INTO t VALUES (%s)" % ", ".join(map(str, range(150))))
    (op, key, new, _), = events(db, log)
    assert new == {n: i for i, n in enumerate(names[:120])} and key == {n: i for i, n in enumerate(names[:100])}


def test_headers_and_when(db):
    log = stream(db)
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY, v int4)")
    track(db, headers="jsonb_build_object('op', TG_OP, 'was', OLD.v)", condition="NEW.v > 3 OR OLD.v > 3 -- all that matters")
    db.rows("INSERT INTO t VALUES (1, 3), (2, 4)")
    db.rows("UPDATE t SET v = v + 1 WHERE id = 1")
    db.rows("DELETE FROM t WHERE id = 1")
    assert db.rows(f"SELECT payload::jsonb#>>'{{key,id}}', headers FROM {log} ORDER BY id") == [
        ("2", {"op": "INSERT", "was": None}), ("1", {"op": "UPDATE", "was": 3}), ("1", {"op": "DELETE", "was": 4})]
    for sqlstate, how in (("42703", "condition => 'NEW.nosuch'"), ("42601", "condition => 'NEW.v >'"), ("42804", "condition => 'NEW.v'"),
                          ("42703", "headers => 'to_jsonb(w)'"), ("22023", "events => '{insert,select}'"), ("42846", "headers => 'NEW.v'")):
        db.fails(sqlstate, f"SELECT queue.track('t', 's', {how})")
    track(db, headers="to_jsonb(NEW.v)")
    db.fails("22023", "INSERT INTO t VALUES (5, 5)")


def test_all_ways_to_write(db, tracked):
    db.rows("INSERT INTO t VALUES (1, 'a'), (2, 'b') ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v")
    db.rows("INSERT INTO t VALUES (2, 'c'), (3, 'd') ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v")
    db.rows("INSERT INTO t VALUES (2, 'e') ON CONFLICT DO NOTHING")
    assert [(op, key["id"]) for op, key, _, _ in tracked()] == [("insert", 1), ("insert", 2), ("update", 2), ("insert", 3)]
    with db.conn.cursor().copy("COPY t FROM STDIN") as copy:
        copy.write("4\tx\n5\t\\N\n")
    assert [(op, new) for op, _, new, _ in tracked()] == [("insert", {"id": 4, "v": "x"}), ("insert", {"id": 5, "v": None})]
    if db.conn.info.server_version >= 150000:
        db.rows("""MERGE INTO t USING (VALUES (5), (6)) AS x (id) ON t.id = x.id WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED THEN INSERT VALUES (x.id)""")
        assert sorted((op, key["id"]) for op, key, _, _ in tracked()) == [("delete", 5), ("insert", 6)]
    db.rows("UPDATE t SET id = 7 WHERE id = 1")
    assert [(op, key, new["id"]) for op, key, new, _ in tracked()] == [("update", {"id": 1}, 7)]


def test_foreign_keys(db):
    log = stream(db)
    db.rows("CREATE TABLE p (id int4 PRIMARY KEY)")
    db.rows("""CREATE TABLE c (id int4 PRIMARY KEY DEFERRABLE INITIALLY DEFERRED,
        p int4 REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED)""")
    track(db, "p")
    track(db, "c")
    db.rows("INSERT INTO p VALUES (1)")
    db.rows("INSERT INTO c VALUES (1, 1), (2, 1)")
    db.rows("UPDATE c SET id = 3 - id")
    db.rows("UPDATE p SET id = 9")
    db.rows("DELETE FROM p")
    got = [(r["table"], r["op"], r["key"]["id"], (r["new"] or {}).get("p")) for r in db.column(f"SELECT payload::jsonb FROM {log} ORDER BY id")]
    assert got[:5] == [("public.p", "insert", 1, None), ("public.c", "insert", 1, 1), ("public.c", "insert", 2, 1),
                       ("public.c", "update", 1, 1), ("public.c", "update", 2, 1)]
    assert sorted(got[5:8]) == [("public.c", "update", 1, 9), ("public.c", "update", 2, 9), ("public.p", "update", 1, None)]
    assert sorted(got[8:]) == [("public.c", "delete", 1, None), ("public.c", "delete", 2, None), ("public.p", "delete", 9, None)]


def test_what_other_triggers_change_comes_behind(db, tracked):
    """A row is there before it is changed."""
    db.rows("""CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN UPDATE t SET v = ''again'' WHERE id = NEW.id; RETURN NULL; END'""")
    db.rows("CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION again()")
    db.rows("CREATE TRIGGER z AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION again()")
    db.rows("INSERT INTO t VALUES (1), (2)")
    got = tracked()
    for id in 1, 2:
        assert [op for op, key, _, _ in got if key["id"] == id] == ["insert", "update", "update"]


def test_partitions(db):
    """Through the table or straight to a partition, to one that comes later too; TRUNCATE of a partition is no event."""
    log = stream(db)
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    db.rows("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)")
    track(db)
    db.rows("CREATE TABLE t2 (v text, id int4 NOT NULL)")
    db.rows("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)")
    db.rows("INSERT INTO t VALUES (1), (11)")
    db.rows("INSERT INTO t1 VALUES (2)")
    db.rows("INSERT INTO t2 VALUES ('x', 12)")
    db.rows("UPDATE t SET id = 13 WHERE id = 1")  # what Postgres makes of a move
    db.rows("TRUNCATE t2")
    db.rows("TRUNCATE t")
    rows = db.column(f"SELECT payload::jsonb FROM {log} ORDER BY id")
    assert {r["table"] for r in rows} == {"public.t"}
    assert [(r["op"], (r["key"] or {}).get("id")) for r in rows] == [
        ("insert", 1), ("insert", 11), ("insert", 2), ("insert", 12), ("delete", 1), ("insert", 13), ("truncate", None)]
    db.rows("ALTER TABLE t DETACH PARTITION t2")
    db.rows("INSERT INTO t2 VALUES ('y', 14)")
    assert len(events(db, log)) == 7
    db.rows("SELECT queue.untrack('t', 's')")
    db.rows("INSERT INTO t VALUES (3)")
    assert len(events(db, log)) == 7


def test_the_table_changes(db, tracked):
    db.rows("INSERT INTO t VALUES (1, 'a')")
    db.rows("ALTER TABLE t ADD n int4 DEFAULT 7, ADD at timestamptz")
    db.rows("ALTER TABLE t RENAME v TO w")
    db.rows("UPDATE t SET w = 'b'")
    assert tracked()[1:] == [("update", {"id": 1}, {"id": 1, "w": "b", "n": 7, "at": None}, {"id": 1, "w": "a", "n": 7, "at": None})]
    db.rows("CREATE SCHEMA app; ALTER TABLE t SET SCHEMA app; ALTER TABLE app.t RENAME TO u")
    db.rows("DELETE FROM app.u")
    assert tracked()[0][0] == "delete"
    assert db.value("SELECT relation FROM queue.tracked()") == "app.u"
    db.rows("ALTER TABLE app.u RENAME id TO key")
    assert "id" in db.fails("42703", "INSERT INTO app.u VALUES (2)").message_primary
    track(db, "app.u", key=["key"])
    db.rows("INSERT INTO app.u VALUES (2)")
    assert tracked()[0][1] == {"key": 2}
    db.rows("DROP TABLE app.u")
    assert db.rows("SELECT * FROM queue.tracked()") == []


def test_two_tables_one_after_the_other_of_a_name(db, tracked):
    db.rows("ALTER TABLE t RENAME TO old")
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY)")
    track(db)
    db.rows("INSERT INTO t VALUES (1)")
    db.rows("INSERT INTO old VALUES (2)")
    assert [e[2] for e in tracked()] == [{"id": 1}, {"id": 2, "v": None}]
    db.rows("SELECT queue.untrack('t')")
    db.rows("INSERT INTO old VALUES (3)")
    assert len(tracked()) == 1


def test_the_stream_is_dropped(db, tracked):
    """Then nothing is pushed, and one of the same name is another one."""
    db.rows("SELECT queue.drop('s')")
    db.rows("INSERT INTO t VALUES (1)")
    assert db.row("SELECT relation, queue FROM queue.tracked()") == ("public.t", None)
    log = stream(db)
    db.rows("INSERT INTO t VALUES (2)")
    track(db)
    db.rows("INSERT INTO t VALUES (3)")
    assert [e[1]["id"] for e in events(db, log)] == [3]
    db.rows("SELECT queue.untrack('t')")
    assert db.rows("SELECT * FROM queue.tracked()") == []


def test_in_a_queue_and_a_topic(db):
    db.create("q")
    db.create("r")
    db.create("texts", payload="text")
    db.create("bytes", payload="bytea")
    db.rows("SELECT queue.create_topic('shop'), queue.bind('r', 'shop.insert')")
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY)")
    for target in "q", "shop", "texts":
        track(db, q=target)
    db.fails("42804", "SELECT queue.track('t', 'bytes')")
    db.fails("42P01", "SELECT queue.track('t', 'nosuch')")
    db.rows("INSERT INTO t VALUES (1)")
    db.rows("DELETE FROM t")
    assert db.rows("""SELECT payload::jsonb->>'op', "group", key FROM queue.q_q ORDER BY id""") == [("insert", "1", None), ("delete", "1", None)]
    assert db.rows("""SELECT payload::jsonb->>'op', "group", headers FROM queue.q_r""") == [("insert", "1", {"topic": "shop.insert"})]
    assert [json.loads(p)["op"] for p in db.column("SELECT payload FROM queue.q_texts ORDER BY id")] == ["insert", "delete"]
    assert db.column("SELECT queue FROM queue.tracked()") == ["q", "shop", "texts"]
    db.rows("SELECT queue.untrack('t', 'texts'), queue.untrack('t', 'shop')")
    assert db.column("SELECT queue FROM queue.tracked()") == ["q"]


def test_whose_rights(db, tracked):
    """Who writes to the table needs none on the stream; who tracks needs PUSH, and the events are pushed as he."""
    bob = db.connect("bob")
    db.rows("GRANT INSERT ON t TO bob")
    bob.rows("INSERT INTO t VALUES (1)")
    assert len(tracked()) == 1
    bob.fails("42501", "SELECT queue.push('s', '1')")
    bob.fails("42501", "SELECT queue.untrack('t')")
    db.connect("postgres").rows("CREATE SCHEMA bobs AUTHORIZATION bob")
    bob.rows("CREATE TABLE bobs.t (id int4 PRIMARY KEY)")
    bob.fails("42501", "SELECT queue.track('bobs.t', 's')")
    db.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    bob.rows("SELECT queue.track('bobs.t', 's')")
    bob.rows("INSERT INTO bobs.t VALUES (7)")
    assert [e[1] for e in tracked()] == [{"id": 7}]
    db.rows("SELECT queue.revoke('s', '{push}', '{bob}')")
    bob.fails("42501", "INSERT INTO bobs.t VALUES (8)")  # rather than an event that is missing
    bob.rows("SELECT queue.untrack('bobs.t')")
    bob.rows("INSERT INTO bobs.t VALUES (8)")
    bob.fails("42501", "SELECT queue.track('public.t', 's')")
    # only TRIGGER: he needs a place for the function
    db.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    db.rows("SELECT queue.untrack('t')")
    bob.fails("42501", "SELECT queue.track('public.t', 's')")
    db.rows("GRANT CREATE ON SCHEMA public TO bob")
    bob.fails("42501", "SELECT queue.track('public.t', 's')")
    db.rows("GRANT TRIGGER ON t TO bob")
    bob.rows("SELECT queue.track('public.t', 's')")
    db.rows("INSERT INTO t VALUES (9)")
    assert [e[1] for e in tracked()] == [{"id": 9}]
    bob.rows("SELECT queue.untrack('public.t')")
    bob.rows("SELECT queue.track('public.t', 's')")
    db.rows("SELECT queue.untrack('t')")  # by who owns the table, too
    db.rows("INSERT INTO t VALUES (10)")
    assert tracked() == []


def test_nobody_else_uses_the_function(db, tracked):
    """A trigger of one's own with a function that pushes with another's right, and what it finds there."""
    mallory = db.connect("mallory")
    db.connect("postgres").rows("CREATE SCHEMA hers AUTHORIZATION mallory")
    mallory.rows("CREATE TABLE hers.t (id int8, v text)")
    function = db.value("SELECT function FROM queue.tracked()")
    mallory.fails("42501", f"CREATE TRIGGER _queue_track_1 AFTER INSERT ON hers.t FOR EACH ROW EXECUTE FUNCTION {function}")
    mallory.fails("42501", f"SELECT {function}")
    # a comment that says it is one
    mallory.rows("CREATE FUNCTION hers.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    mallory.rows("""COMMENT ON FUNCTION hers.f() IS 'QUEUE TRACK {"key": 3, "kind": [1], "events": {}}'""")
    mallory.rows("CREATE TRIGGER _queue_track_1 AFTER INSERT ON hers.t FOR EACH ROW EXECUTE FUNCTION hers.f()")
    assert db.column("SELECT relation FROM queue.tracked()") == ["public.t"]
    mallory.rows("COMMENT ON FUNCTION hers.f() IS 'QUEUE TRACK {'")
    assert db.column("SELECT relation FROM queue.tracked()") == ["public.t"]


@pytest.mark.parametrize("names", ["its path", "temporary"])
def test_a_writer_has_no_say_in_what_is_called(db, tracked, names):
    bob = db.connect("bob")
    db.connect("postgres").rows("GRANT INSERT ON t TO bob; CREATE SCHEMA bobs AUTHORIZATION bob; GRANT USAGE ON SCHEMA public TO bob")
    schema = "bobs" if names == "its path" else "pg_temp"
    bob.rows(f"CREATE FUNCTION {schema}.lower(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN current_user; END'")
    bob.rows(f"CREATE FUNCTION {schema}.to_jsonb(public.t) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RETURN to_jsonb(current_user::text); END'")
    bob.rows(f"SET search_path = {schema}, pg_catalog, public")
    bob.rows("INSERT INTO public.t VALUES (1)")
    assert tracked() == [("insert", {"id": 1}, {"id": 1, "v": None}, None)]


def test_a_superuser_tracks_for_the_owner(db, cluster):
    """What a table's owner may put into it, a cast to JSON of his own, is never run by a superuser's function."""
    log = stream(db)
    db.rows("SELECT queue.grant('s', '{push}', '{mallory}')")
    db.connect("postgres").rows("CREATE SCHEMA hers AUTHORIZATION mallory")
    mallory, root = db.connect("mallory"), db.connect("postgres")
    mallory.rows("SET search_path = hers")
    mallory.rows("CREATE TYPE kind AS ENUM ('x')")
    mallory.rows("CREATE FUNCTION who(kind) RETURNS json LANGUAGE plpgsql AS 'BEGIN RETURN to_json(current_user::text); END'")
    mallory.rows("CREATE CAST (kind AS json) WITH FUNCTION who(kind)")
    mallory.rows("CREATE TABLE t (id int4 PRIMARY KEY, v kind)")
    root.rows("SELECT queue.track('hers.t', 's')")
    root.rows("INSERT INTO hers.t VALUES (1, 'x')")
    assert events(db, log)[0][2] == {"id": 1, "v": "mallory"}


@pytest.mark.parametrize("sqlstate, sql, what", [
    ("42809", "CREATE VIEW v AS SELECT 1", "v"), ("0A000", "CREATE TEMP TABLE tmp (a int4)", "tmp"), ("42809", "SELECT 1", "queue.queues"),
    ("42P01", "SELECT 1", "nosuch"), ("42809", "SELECT 1", "pg_catalog.pg_class")])
def test_what_is_no_table(db, sqlstate, sql, what):
    stream(db)
    db.rows(sql)
    db.fails(sqlstate, "SELECT queue.track(%s::regclass, 's')", what)


def test_not_tracked(db):
    stream(db)
    db.rows("CREATE TABLE t (id int4)")
    db.fails("42704", "SELECT queue.untrack('t')")
    db.fails("42P01", "SELECT queue.untrack('t', 'nosuch')")
    db.fails("22004", "SELECT queue.track(NULL, 's')")
    db.fails("22004", "SELECT queue.track('t', NULL)")


def test_replicas_do_not_push_again(db, tracked):
    root = db.connect("postgres")
    root.rows("SET session_replication_role = replica")
    root.rows("INSERT INTO t VALUES (1)")
    assert tracked() == []


def test_it_is_in_a_dump(db, cluster, tracked):
    db.rows("INSERT INTO t VALUES (1)")
    dump = subprocess.run([os.path.join(cluster.bin, "pg_dump"), cluster.dsn(db.name, "postgres")], check=True, capture_output=True, text=True).stdout
    name = cluster.createdb(owner="app")
    subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", cluster.dsn(name, "postgres")], input=dump, text=True, check=True, capture_output=True)
    with psycopg.connect(cluster.dsn(name, "app"), autocommit=True) as c:
        assert c.execute("SELECT relation, queue, owner FROM queue.tracked()").fetchall() == [("public.t", "s", "app")]
        with pytest.raises(psycopg.Error) as e:
            c.execute("INSERT INTO t VALUES (2)")
        assert e.value.sqlstate == "55000"  # the stream has to be made anew there
        c.execute("SELECT queue.drop('s')")
        c.execute("INSERT INTO t VALUES (2)")
        c.execute("SELECT queue.create('s', false, '{kind}', '{stream}'), queue.track('t', 's')")
        c.execute("INSERT INTO t VALUES (3)")


def test_who_waits_is_told(db, tracked):
    other = db.connect("app")
    other.rows("LISTEN qbouncer")
    db.rows("INSERT INTO t VALUES (1), (2)")
    assert next(other.conn.notifies()).payload == "s"


def test_the_ring_moves_on(db, tracked):
    db.rows("INSERT INTO t VALUES (1)")
    root = db.connect("postgres")
    root.rows("UPDATE queue.streams SET current = 3")
    db.rows("INSERT INTO t VALUES (2)")
    assert db.column("SELECT payload::jsonb#>>'{key,id}' FROM queue.e1_3") == ["2"]


def test_names(db):
    """Tables whose names are long, or alike but for what a function's name has not."""
    log = stream(db)
    names = ["é" * 30, "è" * 30, "x" * 62 + "1", "x" * 62 + "2", 'a"b', "a b", "it's %s %I"]
    for n, name in enumerate(names):
        quoted = '"%s"' % name.replace('"', '""')
        db.rows(f"CREATE TABLE {quoted} (id int4 PRIMARY KEY)")
        db.rows("SELECT queue.track(%s::regclass, 's')", quoted)
        db.rows(f"INSERT INTO {quoted} VALUES ({n})")
    assert [e[1]["id"] for e in events(db, log)] == list(range(len(names)))
    for name in names:
        db.rows("SELECT queue.untrack(%s::regclass)", '"%s"' % name.replace('"', '""'))
    assert db.value("SELECT count(*) FROM pg_proc WHERE proname ~ '_queue_track'") == 0


def test_in_a_transaction(db):
    """TRACK and UNTRACK are part of it."""
    log = stream(db)
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY)")
    for end in ZeroDivisionError, None:
        try:
            with db.conn.transaction():
                track(db)
                db.rows("INSERT INTO t VALUES (1)")
                if end:
                    raise end
        except ZeroDivisionError:
            db.rows("INSERT INTO t VALUES (2)")
    assert [e[1]["id"] for e in events(db, log)] == [1]
    with pytest.raises(ZeroDivisionError), db.conn.transaction():
        db.rows("SELECT queue.untrack('t')")
        db.rows("INSERT INTO t VALUES (3)")
        raise ZeroDivisionError
    db.rows("INSERT INTO t VALUES (4)")
    with db.conn.transaction():
        db.rows("INSERT INTO t VALUES (5)")
        db.rows("SELECT queue.untrack('t')")
        db.rows("INSERT INTO t VALUES (6)")
    assert [e[1]["id"] for e in events(db, log)] == [1, 4, 5]


def test_two_at_once(db, tracked):
    """TRACK waits for who writes, and the second one finds what the first has made."""
    db.rows("SELECT queue.untrack('t')")
    one, two = db.connect("app"), db.connect("app")
    with one.conn.transaction():
        one.rows("SELECT queue.track('t', 's')")
        two.rows("SET lock_timeout = '50ms'")
        two.fails("55P03", "INSERT INTO t VALUES (1)")
    two.rows("SELECT queue.track('t', 's')")
    assert db.value("SELECT count(*) FROM queue.tracked()") == 1


def test_two_phases(db, cluster, tracked):
    """A notification is in the way of PREPARE TRANSACTION; who says so goes without."""
    if db.value("SHOW max_prepared_transactions") == "0":
        pytest.skip("no prepared transactions here")
    db.rows("BEGIN")
    db.rows("SET LOCAL qbouncer.tell = 'nobody'")
    db.rows("INSERT INTO t VALUES (1)")
    db.rows("PREPARE TRANSACTION 'x'")
    assert tracked() == []
    db.rows("COMMIT PREPARED 'x'")
    assert [e[1]["id"] for e in tracked()] == [1]


def test_those_of_others_are_not_in_the_way(db, tracked):
    """A trigger of a table's owner that has our name."""
    db.rows("SELECT queue.untrack('t')")
    db.rows("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    db.rows("CREATE TRIGGER _queue_track_1 AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()")
    db.fails("42710", "SELECT queue.track('t', 's')")
    db.fails("42704", "SELECT queue.untrack('t')")
    assert db.value("SELECT count(*) FROM pg_trigger WHERE tgname = '_queue_track_1'") == 1


@pytest.mark.parametrize("kind", ["stream", "queue", "topic"])
def test_an_old_snapshot(db, kind):
    """What is written behind TRACK is pushed, or fails: whoever began before cannot see the stream."""
    db.rows("CREATE TABLE t (id int4 PRIMARY KEY)")
    old = db.connect("app")
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT 1")
    if kind == "stream":
        stream(db)
    elif kind == "queue":
        db.create("s")
    else:
        db.rows("SELECT queue.create_topic('s')")
    track(db)
    old.fails("40001", "INSERT INTO t VALUES (1)")
    old.rows("ROLLBACK")
    old.rows("INSERT INTO t VALUES (1)")
    db.rows("SELECT queue.drop_topic('s')" if kind == "topic" else "SELECT queue.drop('s')")
    db.rows("INSERT INTO t VALUES (2)")
