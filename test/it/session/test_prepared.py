"""Named prepared statements: each client its own names, whichever server runs them."""

import pytest

from pgwire import types


def prepare(c, name, sql, oids=()):
    got = c.hold().parse(name, sql, oids).sync().push().until("Z")
    assert types(got) == "1Z", got


def run(c, name, *values):
    got = c.hold().bind("", name, values).execute().sync().push().until("Z")
    assert types(got) == "2DCZ", got
    return got[1].text_row


def test_one_name_two_clients(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(a, "s", "SELECT 'a', $1::int")
        prepare(b, "s", "SELECT 'b', $1::int")
        for i in range(5):
            assert run(a, "s", str(i)) == ["a", str(i)]
            assert run(b, "s", str(i)) == ["b", str(i)]


def test_prepared_on_each_server_when_first_used(qbouncer, db):
    proxy = qbouncer(default_pool_size=3)
    with proxy.wire(db) as a:
        prepare(a, "s", "SELECT pg_backend_pid(), $1::text")
        others = [proxy.wire(db) for _ in range(2)]
        seen = set()
        seen.add(run(a, "s", "x")[0])
        for c in others: # each takes one server away
            c.simple("BEGIN")
            c.simple("SELECT 1")
            seen.add(run(a, "s", "x")[0])
        for c in others:
            c.simple("COMMIT")
            c.terminate()
        assert len(seen) >= 2


def test_describe_and_close(proxy, db):
    with proxy.wire(db) as c:
        prepare(c, "s", "SELECT $1::int8 AS n, $2::text AS t")
        got = c.hold().describe("S", "s").sync().push().until("Z")
        assert types(got) == "tTZ"
        assert got[0].oids == [20, 25]
        assert [x[0] for x in got[1].columns] == ["n", "t"]
        assert types(c.hold().close_object("S", "s").sync().push().until("Z")) == "3Z"
        got = c.hold().bind("", "s", ["1", "x"]).execute().sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"
        assert got[0].fields["S"] == "ERROR"
        assert types(c.simple("SELECT 1")) == "TDCZ" # the session lives


@pytest.mark.parametrize("message", ["bind", "describe"])
def test_unknown_name(proxy, db, message):
    with proxy.wire(db) as c:
        c.hold()
        if message == "bind":
            c.bind("", "nosuch").execute()
        else:
            c.describe("S", "nosuch")
        got = c.sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"
        assert "nosuch" in got[0].fields["M"]
        assert types(c.hold().close_object("S", "nosuch").sync().push().until("Z")) == "3Z"
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_name_in_use(proxy, db):
    with proxy.wire(db) as c:
        prepare(c, "s", "SELECT 1")
        got = c.hold().parse("s", "SELECT 2").sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "42P05"
        assert run(c, "s") == ["1"]


def test_failed_parse_leaves_no_name(proxy, db):
    with proxy.wire(db) as c:
        got = c.hold().parse("s", "SELECT nonsense").sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "42703"
        got = c.hold().bind("", "s").execute().sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"
        prepare(c, "s", "SELECT 5")
        assert run(c, "s") == ["5"]


def test_parse_behind_an_error_does_not_count(proxy, db):
    with proxy.wire(db) as c:
        c.hold().parse("", "SELECT 1/(random()*0)::int").bind().execute().parse("s", "SELECT 1").sync().push()
        assert types(c.until("Z")) == "12EZ"
        got = c.hold().bind("", "s").execute().sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"


@pytest.mark.parametrize("sql", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_deallocate_all(qbouncer, db, sql):
    """Ends this client's statements, and nobody else's."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(a, "s", "SELECT 'a'")
        prepare(b, "s", "SELECT 'b'")
        assert run(a, "s") == ["a"] and run(b, "s") == ["b"]
        got = a.simple(sql)
        assert types(got) == "CZ" and got[0].tag == sql
        got = a.hold().bind("", "s").execute().sync().push().until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"
        assert run(b, "s") == ["b"]
        prepare(a, "s", "SELECT 'new'")
        assert run(a, "s") == ["new"]


@pytest.mark.parametrize("sql", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_name_used_again_behind_deallocate_all(proxy, db, sql):
    """In one batch, by a client that keeps its server: the statement that is carried out takes its own name with it."""
    with proxy.wire(db) as c:
        c.simple("SELECT pg_advisory_lock(9)")
        c.hold().parse("s", sql).bind("", "s").execute().parse("s", "SELECT 7").sync().push()
        assert types(c.until("Z")) == "12C1Z"
        assert types(c.bind("", "s").execute().sync().until("Z")) == "2DCZ"


def test_deallocate_of_a_name(qbouncer, db):
    """What a driver does that mixes the protocol's Parse with SQL's DEALLOCATE (PDO, ODBC)."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(a, "pdo_stmt_1", "SELECT 'a'")
        prepare(b, "pdo_stmt_1", "SELECT 'b'")
        assert run(a, "pdo_stmt_1") == ["a"]
        got = a.simple("DEALLOCATE pdo_stmt_1")
        assert types(got) == "CZ" and got[0].tag == "DEALLOCATE"
        got = a.simple("DEALLOCATE pdo_stmt_1")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"
        assert run(b, "pdo_stmt_1") == ["b"]
        prepare(a, 'with "quotes"', "SELECT 'q'")
        got = a.simple('DEALLOCATE PREPARE "with ""quotes"""')
        assert types(got) == "CZ"


def say(c, run, sql):
    if run == "simple":
        return c.simple(sql)
    c.hold().parse("", sql).bind().describe("P").execute().sync().push()
    return c.until("Z")


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("run_by", ["simple", "extended"])
@pytest.mark.parametrize("block", [False, True])
def test_deallocate_in_sql(qbouncer, db, mode, run_by, block):
    """psycopg prepares by Parse, and deallocates in SQL through the extended protocol. However it is spelt, and in a block; what is gone
    is gone also when the block is rolled back."""
    proxy = qbouncer(default_pool_size=1, pool_mode=mode)
    with proxy.wire(db) as c:
        for name, sql in (("_pg3_0", "DEALLOCATE _pg3_0"), ("_pg3_0", "deallocate PREPARE \"_pg3_0\";"), ("Name", "/* app */ DEALLOCATE \"Name\""),
                          ('with "quotes"', 'DEALLOCATE "with ""quotes"""'), ("prepare", "DEALLOCATE prepare"), ("low", " --\n DEALLOCATE LOW")):
            for end in ("COMMIT", "ROLLBACK"):
                prepare(c, name, "SELECT 'x'")
                if block:
                    c.simple("BEGIN")
                    if end == "COMMIT":
                        c.simple("SELECT 1")
                got = say(c, run_by, sql)
                assert "E" not in types(got) and [m.tag for m in got if m.type == "C"] == ["DEALLOCATE"], (sql, got)
                assert got[-1].status == ("T" if block else "I")
                if block:
                    c.simple(end)
                got = c.hold().bind("", name).execute().sync().push().until("Z")
                assert types(got) == "EZ" and got[0].sqlstate == "26000"
        # what is not there, or was prepared in SQL
        got = say(c, run_by, "DEALLOCATE nothing")
        assert [m.sqlstate for m in got if m.type == "E"] == ["26000"]
        assert "E" not in types(say(c, run_by, "PREPARE in_sql AS SELECT 1"))
        assert "E" not in types(say(c, run_by, "EXECUTE in_sql"))
        assert "E" not in types(say(c, run_by, "DEALLOCATE in_sql"))
        assert [m.sqlstate for m in say(c, run_by, "EXECUTE in_sql") if m.type == "E"] == ["26000"]
        # in a block that has failed it is refused as all else
        prepare(c, "s", "SELECT 'x'")
        c.simple("BEGIN")
        c.simple("nonsense")
        got = say(c, run_by, "DEALLOCATE s")
        assert [m.sqlstate for m in got if m.type == "E"] == ["25P02"] and got[-1].status == "E"
        c.simple("ROLLBACK")
        assert run(c, "s") == ["x"]
        for all_of_them in ("DEALLOCATE ALL", "/**/ deallocate prepare all", "DISCARD ALL"):
            got = say(c, run_by, all_of_them)
            assert [m.tag for m in got if m.type == "C"] == ["DISCARD ALL" if "DISCARD" in all_of_them else "DEALLOCATE ALL"], got
            got = c.hold().bind("", "s").execute().sync().push().until("Z")
            assert types(got) == "EZ" and got[0].sqlstate == "26000"
            prepare(c, "s", "SELECT 'x'")
        if block:
            c.simple("BEGIN; SELECT 1")
            got = say(c, run_by, "DISCARD ALL")
            assert [m.sqlstate for m in got if m.type == "E"] == ["25001"]
            c.simple("ROLLBACK")
            assert run(c, "s") == ["x"]


def test_deallocate_in_a_pipeline(proxy, db):
    """In its turn; and not at all behind an error of its batch."""
    with proxy.wire(db) as c:
        prepare(c, "s", "SELECT 'x'")
        prepare(c, "t", "SELECT 'y'")
        c.hold().bind("", "s").execute().parse("", "DEALLOCATE s").bind().execute().bind("", "t").execute().sync()
        c.bind("", "s").sync().bind("", "t").execute().sync().push()
        assert types(c.until("Z")) == "2DC12C2DCZ"
        got = c.until("Z")
        assert types(got) == "EZ" and got[0].sqlstate == "26000"
        assert types(c.until("Z")) == "2DCZ"
        c.hold().parse("", "SELECT 1/0").bind().execute().parse("", "DEALLOCATE t").bind().execute().sync().push()
        assert "E" in types(c.until("Z"))
        assert run(c, "t") == ["y"]
        # by a name, again and again, and itself
        prepare(c, "d", "DEALLOCATE t")
        assert types(c.hold().bind("", "d").execute().sync().push().until("Z")) == "2CZ"
        got = c.hold().bind("", "d").execute().sync().push().until("Z")
        assert types(got) == "2EZ" and got[1].sqlstate == "26000"
        prepare(c, "self", "DEALLOCATE self")
        assert types(c.hold().bind("", "self").describe("P").execute().sync().push().until("Z")) == "2nCZ"


def test_statements_of_others_stay(qbouncer, db):
    """By the names that the proxy gives them nobody ends them."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(a, "s", "SELECT 'a'")
        assert run(a, "s") == ["a"]
        names = [r["name"] for r in b.rows("SELECT name FROM pg_prepared_statements WHERE NOT from_sql")]
        assert names
        for name in names:
            for how in ("simple", "extended"):
                got = say(b, how, "DEALLOCATE %s" % name)
                assert [m.sqlstate for m in got if m.type == "E"] == ["26000"]
            got = b.simple("SELECT 1; DEALLOCATE \"%s\"" % name)
            assert [m.sqlstate for m in got if m.type == "E"] == ["26000"]
        assert run(a, "s") == ["a"]


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("server", [1, 3])
def test_psycopg_deallocates(qbouncer, db, autocommit, server):
    """As it comes: it keeps a few statements prepared, and deallocates the oldest for each new one."""
    proxy = qbouncer(default_pool_size=server)
    with proxy.connect(db) as conn:
        conn.autocommit = autocommit
        conn.prepare_threshold = 0
        conn.prepared_max = 3
        conn.execute("CREATE TABLE t (i int)")
        for i in range(30):
            conn.execute("INSERT INTO t SELECT %s::int -- number " + str(i), (i,))
            if not autocommit and i % 4 == 0:
                conn.commit()
        assert conn.execute("SELECT count(*), sum(i) FROM t").fetchone() == (30, 435)


def test_schema_change_is_seen(proxy, db):
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.simple("INSERT INTO t VALUES (1)")
        prepare(c, "s", "SELECT a FROM t")
        assert run(c, "s") == ["1"]
        prepare(c, "again", "SELECT a FROM t WHERE a = $1")
        assert run(c, "again", "1") == ["1"]


def test_same_text_other_types(proxy, db):
    """The cache is by text and parameter types."""
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(a, "s", "SELECT pg_typeof($1)::text", [23])
        prepare(b, "s", "SELECT pg_typeof($1)::text", [25])
        assert run(a, "s", "1") == ["integer"]
        assert run(b, "s", "1") == ["text"]
        assert run(a, "s", "1") == ["integer"]


def test_cache_has_a_bound(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, max_prepared_statements=10)
    with proxy.wire(db) as c:
        for i in range(50):
            prepare(c, "s%d" % i, "SELECT %d" % i)
            assert run(c, "s%d" % i) == [str(i)]
        for i in (0, 49, 25):
            assert run(c, "s%d" % i) == [str(i)]
        count = c.rows("SELECT count(*) FROM pg_prepared_statements")[0]["count"]
        assert int(count) <= 10


def test_many_clients_with_the_same_statement(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as first:
        prepare(first, "q", "SELECT $1::int + 1")
        for i in range(20):
            with proxy.wire(db) as c:
                prepare(c, "other_name_%d" % i, "SELECT $1::int + 1")
                assert run(c, "other_name_%d" % i, str(i)) == [str(i + 1)]
                c.terminate()
        count = first.rows("SELECT count(*) FROM pg_prepared_statements")[0]["count"]
        assert count == "1"
        assert run(first, "q", "1") == ["2"]


def test_unnamed_statement_survives_sync(proxy, db):
    """lib/pq parses, syncs, then binds."""
    with proxy.wire(db) as c:
        assert types(c.hold().parse("", "SELECT $1::int").describe("S").sync().push().until("Z")) == "1tTZ"
        got = c.hold().bind("", "", ["4"]).execute().sync().push().until("Z")
        assert types(got) == "2DCZ" and got[1].text_row == ["4"]


def test_psycopg_prepare_and_reconnect(qbouncer, db):
    proxy = qbouncer(default_pool_size=2)
    for _ in range(5):
        with proxy.connect(db) as conn:
            for i in range(8):
                got = conn.execute("SELECT %s::int", (i,), prepare=True).fetchone()
                assert got == (i,)


# -- literals are read when a statement is parsed ---------------------------------------------

READINGS = [
    ("DateStyle", "ISO, MDY", "ISO, DMY", "SELECT extract(month FROM '01/02/2024'::date)::text", "1", "2"),
    ("TimeZone", "UTC", "Asia/Tokyo", "SELECT extract(epoch FROM timestamptz '1970-01-02 00:00')::int::text", "86400", "54000"),
    ("IntervalStyle", "postgres", "sql_standard",
     "SELECT extract(epoch FROM interval '-1 00:00:01')::int::text", "-86399", "-86401"),
    ("standard_conforming_strings", "on", "off", r"SELECT length('\\')::text", "2", "1"),
    ("client_encoding", "UTF8", "LATIN1", "SELECT length('\u00e9')::text", "1", "2"),
    ("array_nulls", "on", "off", "SELECT coalesce(('{NULL}'::text[])[1], 'null')", "null", "NULL"),
    ("transform_null_equals", "off", "on", "SELECT coalesce((NULL::int = NULL)::text, 'null')", "null", "true"),
    ("bytea_output", "hex", "escape", "SELECT 'a'::bytea::text", "\\x61", "a"),
]


def reads(setting):
    return [r for r in READINGS if r[0] == setting][0][1:]


@pytest.mark.parametrize("reading", [r[0] for r in READINGS])
@pytest.mark.parametrize("name", ["s", ""])
def test_same_text_other_settings(qbouncer, db, reading, name):
    """Of two clients on one server, one after the other, in both orders."""
    one, other, sql, this, that = reads(reading)
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b, proxy.wire(db) as c:
        for client, value in (a, one), (b, other), (c, one):
            client.simple("SET %s = '%s'" % (reading, value))
            prepare(client, name, sql)
        for _ in range(3):
            assert [run(client, name)[0] for client in (a, b, c)] == [this, that, this]


@pytest.mark.parametrize("reading", [r[0] for r in READINGS if r[0] != "bytea_output"]) # it counts when a plan is made
@pytest.mark.parametrize("where", ["there", "elsewhere", "block", "batch"])
def test_statement_keeps_its_reading(qbouncer, db, reading, where):
    """A client that sets something else behind its Parse: the statement is as it was parsed, on another server too."""
    one, other, sql, this, that = reads(reading)
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("SET %s = '%s'" % (reading, other))
        prepare(a, "s", sql)
        prepare(a, "", sql)
        prepare(a, "set", "SET %s = '%s'" % (reading, one)) # a simple query would end the unnamed one
        assert types(a.hold().bind("", "set").execute().sync().push().until("Z")) == "2CZ"
        if where != "there":
            b.simple("BEGIN") # takes the server that knows it
            b.simple("SELECT 1")
        if where == "block":
            prepare(a, "begin", "BEGIN")
            assert types(a.hold().bind("", "begin").execute().sync().push().until("Z")) == "2CZ"
        if where == "batch":
            got = a.hold().bind("p", "s").execute("p").bind("", "").execute().sync().push().until("Z")
            assert types(got) == "2DC2DCZ" and [m.text_row for m in got if m.type == "D"] == [[that]] * 2
        assert run(a, "") == run(a, "s") == [that]
        assert a.rows("SHOW " + reading)[0][reading] == one
        prepare(a, "t", sql)
        assert run(a, "t") == [this] and run(a, "s") == [that]
        if where == "block":
            a.simple("ROLLBACK")
        assert run(a, "t") == [this] and run(a, "s") == [that]
        assert a.rows("SHOW " + reading)[0][reading] == one


def test_setting_in_the_batch_of_the_parse(qbouncer, db):
    """Nobody knows what the text was read with: it is not shared, and nobody else's is taken for it."""
    proxy = qbouncer(default_pool_size=1)
    sql = READINGS[0][3]
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(b, "s", sql)
        a.hold().parse("", "SET DateStyle = 'ISO, DMY'").bind().execute().parse("s", sql).bind("", "s").execute().sync().push()
        got = a.until("Z")
        assert types(got) == "12C12DCZ" and got[5].text_row == ["2"]
        a.query("SET DateStyle = 'ISO, MDY'")
        a.hold().parse("t", sql).bind("", "t").execute().sync().push()
        assert types(a.until("Z")) == "CZ"
        assert [m.text_row for m in a.until("Z") if m.type == "D"] == [["1"]]
        assert run(a, "s") == ["2"] and run(b, "s") == ["1"] and run(a, "t") == ["1"]


def test_setting_of_a_block(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    sql = READINGS[0][3]
    with proxy.wire(db) as a, proxy.wire(db) as b:
        prepare(b, "s", sql)
        a.simple("BEGIN")
        a.simple("SET LOCAL DateStyle = 'ISO, DMY'")
        prepare(a, "s", sql)
        assert run(a, "s") == ["2"]
        a.simple("COMMIT")
        prepare(a, "t", sql)
        assert run(a, "t") == ["1"] and run(a, "s") == ["2"] and run(b, "s") == ["1"]


def test_what_has_no_literal_is_shared(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        b.simple("SET TimeZone = 'Asia/Tokyo'")
        for c in a, b:
            prepare(c, "s", "SELECT $1::int")
            assert run(c, "s", "1") == ["1"]
        assert a.rows("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int'")[0]["count"] == "1"


def test_psycopg_other_settings(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.connect(db) as a, proxy.connect(db) as b:
        b.execute("SET DateStyle = 'ISO, DMY'")
        for conn in a, b:
            conn.commit()
        for _ in range(2):
            for conn, month in (a, "1"), (b, "2"):
                assert conn.execute(READINGS[0][3], prepare=True).fetchone() == (month,)
                conn.commit()


@pytest.mark.parametrize("words", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_a_long_discard_all_before_a_parse(proxy, db, words):
    """Behind what may be a DISCARD ALL, of which the end is not there yet, a statement is gone, and another one prepared
    anew."""
    with proxy.wire(db) as c:
        got = c.hold().parse("one", "SELECT 7").bind("", "one").execute().sync()
        assert [m.type for m in got.push().until("Z")][-1] == "Z"
        got = c.hold().query(words.replace(" ", " " * 1500000))
        got = c.bind("", "one").execute().sync()
        got = c.parse("two", "SELECT 7").bind("", "two").execute().sync()
        got.push()
        assert [m.type for m in c.until("Z")] == ["C", "Z"]
        assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["26000"]
        assert [m.type for m in c.until("Z")] == ["1", "2", "D", "C", "Z"]
