"""The same dialogue directly and through the proxy: the answers are equal, byte for byte.

Left out are BackendKeyData, and ParameterStatus, which may come at other moments."""

import pytest

from proxy import wait_for
from pgwire import Closed, Wire

# The table is the same one for both runs: its OID is part of RowDescription.
SETUP = """
CREATE TABLE IF NOT EXISTS t (a int PRIMARY KEY, b text);
TRUNCATE t;
INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 20) i;
CREATE TABLE IF NOT EXISTS refusing (a int);
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'refused'; END$$;
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON refusing EXECUTE FUNCTION refuse();
"""


def ext(c, sql, values=(), oids=(), results=(), limit=0, name="", portal=""):
    c.parse(name, sql, oids).bind(portal, name, values, results=results)
    c.describe("P", portal).execute(portal, limit)
    return c


def copy_in(c, table="t"):
    return c.parse("", "COPY %s FROM STDIN" % table).bind().execute()


# What a Sync means that is among the data, in a copy that fails before it reads any, or at its second line, or not at all.
COPIES = {
    "sync ahead": lambda c: copy_in(c, "refusing").sync().query("SELECT 1"),
    "statement behind sync": lambda c: ext(copy_in(c, "refusing").sync(), "SELECT 1").sync(),
    "statement without sync": lambda c: ext(copy_in(c, "refusing"), "SELECT 1").sync().query("SELECT 2"),
    "syncs and data": lambda c: copy_in(c, "refusing").sync().copy_data(b"1\n").sync().sync().copy_data(b"2\n")
    .copy_done().sync().query("SELECT 1"),
    "simple, syncs and data": lambda c: c.query("COPY refusing FROM STDIN").sync().copy_data(b"1\n").sync()
    .copy_done().sync().query("SELECT 1"),
    "no end, statement behind": lambda c: ext(copy_in(c, "refusing").copy_data(b"1\n").sync(), "SELECT 1").sync(),
    "in a block": lambda c: copy_in(c.query("BEGIN"), "refusing").sync().copy_data(b"1\n").sync().query("ROLLBACK"),
    "bad data behind sync": lambda c: copy_in(c).sync().copy_data(b"x\n").copy_done().sync().query("SELECT 1"),
    "bad data before syncs": lambda c: copy_in(c).copy_data(b"x\n").sync().copy_data(b"60\tx\n").sync().query("SELECT 1"),
    "simple, bad data": lambda c: c.query("COPY t FROM STDIN").sync().copy_data(b"x\n").sync().sync().query("SELECT 1"),
    "done": lambda c: copy_in(c).sync().copy_data(b"61\tx\n").sync().copy_done().sync().query("SELECT 1"),
    "given up": lambda c: copy_in(c).sync().copy_data(b"61\tx\n").sync().copy_fail("no").sync().query("SELECT 1"),
}

DIALOGUES = {
    "an error skips the Parse that would replace": lambda c: c.parse("", "ROLLBACK").execute().parse("", "SELECT 1").sync()
    .bind().execute().sync(),
    "simple": lambda c: c.query("SELECT 1").query("SELECT a, b FROM t ORDER BY a").query(""),
    "types": lambda c: c.query("SELECT 1::int2, 2::int8, 'x'::text, 1.5::numeric, true, NULL, now() = now(),"
                               " '\\x00ff'::bytea, '{1,2}'::int[], '{\"a\": 1}'::jsonb, row(1, 'x')"),
    "several statements": lambda c: c.query("SELECT 1; SELECT 2; INSERT INTO t VALUES (100, 'x'); SELECT 3"),
    "error in several": lambda c: c.query("INSERT INTO t VALUES (101, 'x'); SELECT 1/0; SELECT 2"
                                          ).query("SELECT count(*) FROM t"),
    "syntax error": lambda c: c.query("SELEC 1").query("SELECT '").query("SELECT 1"),
    "transaction": lambda c: c.query("BEGIN").query("INSERT INTO t VALUES (200, 'y')").query("SAVEPOINT s")
    .query("SELECT 1/0").query("SELECT 1").query("ROLLBACK TO s").query("COMMIT").query("SELECT count(*) FROM t"),
    "begin and end only": lambda c: c.query("BEGIN").query("COMMIT").query("START TRANSACTION READ ONLY")
    .query("ROLLBACK").query("BEGIN").query("END").query("BEGIN ISOLATION LEVEL SERIALIZABLE").query("ABORT"),
    "begin and an error": lambda c: c.query("BEGIN").query("nonsense").query("SELECT 1").query("COMMIT"),
    "commit without begin": lambda c: c.query("COMMIT").query("ROLLBACK"),
    "begin twice": lambda c: c.query("BEGIN").query("BEGIN").query("COMMIT"),
    "begin with modes": lambda c: c.query("BEGIN READ ONLY").query("INSERT INTO t VALUES (300, 'z')")
    .query("ROLLBACK"),
    "commit and chain": lambda c: c.query("BEGIN").query("COMMIT AND CHAIN").query("ROLLBACK"),
    "begin in one string": lambda c: c.query("BEGIN; SELECT 1").query("COMMIT; SELECT 2"),
    "begin with a typo": lambda c: c.query("BEGIN WORKK").query("BEGIN ISOLATION LEVEL NONSENSE"),
    "extended": lambda c: ext(c, "SELECT $1::int + 1", ["41"]).sync(),
    "extended binary": lambda c: ext(c, "SELECT $1::int + 1, 'x'::text, 2::int8", ["41"], results=[1]).sync(),
    "extended mixed formats": lambda c: ext(c, "SELECT 1::int4, 2::int8", results=[1, 0]).sync(),
    "extended begin": lambda c: ext(ext(c, "BEGIN").sync(), "SELECT 1").sync().query("COMMIT"),
    "begin and statement in one batch": lambda c: ext(ext(c, "BEGIN"), "SELECT 1").sync().query("ROLLBACK"),
    "whole transaction in one batch": lambda c: ext(ext(ext(c, "BEGIN"), "SELECT 1"), "COMMIT").sync(),
    "extended commit of nothing": lambda c: ext(ext(c, "BEGIN"), "COMMIT").sync().query("SELECT 1"),
    "extended error": lambda c: ext(ext(c, "SELECT nonsense"), "SELECT 1").sync().query("SELECT 2"),
    "empty": lambda c: ext(c, "").sync(),
    "sync alone": lambda c: c.sync().sync().sync(),
    "flush alone": lambda c: c.flush().query("SELECT 1"),
    "row limit": lambda c: ext(c, "SELECT a FROM t ORDER BY a", limit=3, portal="p").execute("p", 2)
    .execute("p", 0).execute("p", 0).sync(),
    "named": lambda c: c.parse("s", "SELECT $1::int").sync().describe("S", "s").bind("", "s", ["1"]).execute().sync()
    .bind("", "s", ["2"]).execute().bind("", "s", ["x"]).execute().sync().close_object("S", "s").sync(),
    "unknown names": lambda c: c.bind("", "nosuch").sync().describe("S", "nosuch").sync()
    .describe("P", "nosuch").sync().execute("nosuch").sync().close_object("S", "nosuch")
    .close_object("P", "nosuch").sync(),
    "name in use": lambda c: c.parse("s", "SELECT 1").parse("s", "SELECT 2").sync().bind("", "s").execute().sync(),
    "portal in use": lambda c: c.parse("", "SELECT 1").bind("p").bind("p").sync(),
    "portal ends with the transaction": lambda c: c.parse("", "SELECT 1").bind("p").sync().execute("p").sync(),
    "portal lives in a transaction": lambda c: c.query("BEGIN").parse("", "SELECT 1").bind("p").sync()
    .execute("p").sync().close_object("P", "p").sync().query("COMMIT"),
    "too few parameters": lambda c: c.parse("", "SELECT $1::int").bind().sync(),
    "deallocate": lambda c: c.query("DEALLOCATE nosuch").query("DEALLOCATE ALL").query("DISCARD ALL"),
    "deallocate of what sql prepared": lambda c: c.query("BEGIN; PREPARE x AS SELECT 1; EXECUTE x; DEALLOCATE x; COMMIT"),
    "query in a batch": lambda c: c.parse("", "SELECT 1").bind().execute().query("SELECT 2").sync(),
    "query in a failed batch": lambda c: c.parse("", "SELEC").query("SELECT 2").sync().query("SELECT 3"),
    "copy out": lambda c: c.query("COPY t TO STDOUT").query("COPY t TO STDOUT (FORMAT csv, HEADER)"),
    "copy in": lambda c: c.query("COPY t FROM STDIN").copy_data(b"50\tx\n51\ty\n").copy_done().query("TABLE t"),
    "copy that fails": lambda c: c.query("COPY t FROM STDIN").copy_data(b"x\n").copy_done().query("SELECT 1"),
    "copy given up": lambda c: c.query("COPY t FROM STDIN").copy_fail("no").query("SELECT 1"),
    "copy data out of place": lambda c: c.copy_data(b"x").copy_done().copy_fail("x").query("SELECT 1"),
    "notice": lambda c: c.query("DO $$BEGIN RAISE NOTICE 'n' USING HINT = 'h', DETAIL = 'd'; END$$"),
    "raise": lambda c: c.query("DO $$BEGIN RAISE 'm' USING ERRCODE = 'AB123', HINT = 'h', DETAIL = 'd',"
                               " COLUMN = 'c', TABLE = 't', SCHEMA = 's', CONSTRAINT = 'k'; END$$"),
    "big": lambda c: c.query("SELECT repeat('x', 1000000)").query("SELECT repeat('y', 100000) FROM t"),
    "function call": lambda c: c.send("F", b"\0\0\x06\xb0" + b"\0\1\0\1" + b"\0\1" + b"\0\0\0\4" + b"\0\0\0\5" + b"\0\1"),
    "unknown function": lambda c: c.send("F", b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0").query("SELECT 1"),
    "set and show": lambda c: c.query("SET DateStyle = 'German'").query("SELECT '2020-02-01'::date")
    .query("SHOW DateStyle").query("RESET DateStyle").query("SHOW DateStyle"),
    "set local": lambda c: c.query("BEGIN").query("SET LOCAL TimeZone = 'Asia/Tokyo'").query("SHOW TimeZone")
    .query("COMMIT").query("SHOW TimeZone"),
    "set rolled back": lambda c: c.query("BEGIN").query("SET TimeZone = 'Asia/Tokyo'").query("ROLLBACK")
    .query("SHOW TimeZone"),
    "cursor": lambda c: c.query("BEGIN").query("DECLARE c CURSOR FOR TABLE t").query("FETCH 3 FROM c")
    .query("MOVE 5 FROM c").query("FETCH ALL FROM c").query("CLOSE c").query("COMMIT"),
    "explain": lambda c: c.query("EXPLAIN (COSTS OFF) SELECT * FROM t WHERE a = 1"),
    "constraint": lambda c: c.query("INSERT INTO t VALUES (1, 'again')"),
    "rules with a semicolon": lambda c: c.query("CREATE TABLE u (a int); CREATE RULE r AS ON INSERT TO u DO ALSO"
                                                " (SELECT 1; SELECT 2); DROP TABLE u"),
    "prepare transaction": lambda c: c.query("BEGIN; INSERT INTO t VALUES (900, 'x')").query("PREPARE TRANSACTION 'p'")
    .query("ROLLBACK PREPARED 'p'").query("SELECT count(*) FROM t"),
    **{"copy: " + name: send for name, send in COPIES.items()},
}


def play(wire, send, expected=None):
    """All answers: up to the end that Terminate makes, or as many as expected and then silence."""
    wire.hold()
    send(wire)
    if expected is None:
        wire.send("X")
    wire.push()
    out = []
    try:
        while expected is None or len(out) < expected:
            m = wire.recv()
            if m.type not in "KS":
                out.append(m)
        if not wire.silent(0.05):
            out += wire.closed()
    except (Closed, TimeoutError):
        pass
    return out


def comparable(messages):
    """Type and body; of errors and notices all but file, line and routine of Postgres' source, which
    an error that the proxy itself makes does not have."""
    return [(m.type, {k: v for k, v in m.fields.items() if k not in "FLR"} if m.type in "EN" else m.body)
            for m in messages]


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("name", sorted(DIALOGUES))
def test_same_answers(qbouncer, cluster, direct, db, name, mode):
    proxy = qbouncer(pool_mode=mode)
    answers = []
    for through in (False, True):
        direct.execute("SET ROLE app")
        direct.execute(SETUP)
        direct.execute("RESET ROLE")
        with Wire(proxy.port if through else cluster.port, timeout=5) as c:
            c.startup(user="app", database=db)
            answers.append(play(c, DIALOGUES[name], len(answers[0]) if through else None))
    expected, got = map(comparable, answers)
    if got != expected:
        pytest.fail("\n".join(["directly:"] + [repr(m) for m in answers[0]]
                              + ["through the proxy:"] + [repr(m) for m in answers[1]]), pytrace=False)


def test_dialogues_do_something(cluster, db):
    """The comparison is of something: each dialogue has an answer."""
    for name, send in DIALOGUES.items():
        with Wire(cluster.port) as c:
            c.startup(user="postgres", database=db)
            assert play(c, send), name


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_terminate_behind_a_statement(qbouncer, db, mode):
    """What was asked before Terminate is still done, as in Postgres."""
    proxy = qbouncer(pool_mode=mode)
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        for i in range(5):
            w = proxy.wire(db)
            w.hold().query("INSERT INTO t VALUES (%d)" % i).query("SELECT 1").send("X").push()
            w.closed()
        # the connection may be closed before its last statement has ended
        wait_for(lambda: c.rows("SELECT count(*) FROM t") == [{"count": "5"}])
