"""What is kept of the rows of SQL jobs: FORMAT csv byte by byte what COPY writes, FORMAT text what psql prints."""

import json
import os
import subprocess

import pytest

from queuetest import error, shared, shared_db, tag  # noqa: F401

ROWS = """SELECT * FROM (VALUES (1, 'a,b', NULL::text, '{1,NULL}'::int[], 'NaN'::numeric, '\\x00ff'::bytea, true),
    (NULL, 'say "x"', '', '{}', 1.50, NULL, false)) AS t (n, "A ""b"", c", s, a, d, y, z)"""
TEXTS = """SELECT x AS "größe", x AS "größe" FROM unnest(ARRAY['\\', '\\.', 'ä 日本 😀', E'two\\nlines', E'cr\\r', ' ', '', NULL, '"', '""', '(', ')',
    'a;b', E'tab\\t', '''', '\\"', '\\\\"', 'NULL', '{"a": "\\""}']) AS x"""
ONE = "SELECT x FROM unnest(ARRAY['\\.', '', NULL, 'x']) AS x"
NONE = 'SELECT 1 AS "ä b", 2 AS "_x0020_ _x", 3 AS "xml", 4 AS "?column?", 5 AS a_b, 6 AS "a,b" WHERE false'
OPTIONS = [{}, {"header": True}, {"delimiter": ";", "null": "NULL"}, {"quote": "'", "escape": "\\"}, {"force_quote": "*", "header": True},
           {"delimiter": "\t", "header": True, "null": "-"}, {"escape": "\\"}]


def literal(text):
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture
def sql(qbouncer, db):
    """A proxy, and app's connection: the queue q runs SQL, and keeps how it ended."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE q WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        yield proxy, c


def ends(c, statement, more=""):
    (job,) = c.rows("QUEUE RUN %s ON q %s RETURNING JOB" % (literal(statement), more))
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '60 s'" % job["job"])
    return end


def run(c, statement, format="csv", given=None):
    """The outcome of one job."""
    value = {True: "true", False: "false"}
    options = ", ".join("%s = %s" % (k, literal(value.get(v, v))) for k, v in (given or {}).items())
    end = ends(c, statement, "FORMAT %s%s" % (format, " WITH (%s)" % options if options else ""))
    assert (end["state"], end["error"]) == ("done", None), (statement, end)
    return json.loads(end["result"])


def copied(direct, statement, given):
    """What COPY writes."""
    def option(k, v):
        return "%s %s" % (k, v if k in ("header", "force_quote") else "E" + literal(v.replace("\\", "\\\\")))

    with direct.cursor() as cur, cur.copy("COPY (%s) TO STDOUT WITH (%s)" % (statement, ", ".join(["FORMAT csv"] + [option(k, v) for k, v in given.items()]))) as copy:
        return b"".join(bytes(part) for part in copy).decode()


@pytest.mark.parametrize("statement", [ROWS, TEXTS, ONE, NONE, "SELECT", "SELECT now()::date, '1 day'::interval", "SELECT 1 AS a, NULL AS b, '' AS a"])
def test_as_copy_writes_it(sql, direct, statement):
    _, c = sql
    for given in OPTIONS:
        assert run(c, statement, given=given)["csv"] == copied(direct, statement, given), given


def test_single_columns_in_quotes(sql, direct):
    _, c = sql
    statement = "SELECT 1 AS a, 2 AS \"B c\", NULL AS d, 'x' AS e"
    for written, copy in (("a", "(a)"), ('"B c", d', '("B c", d)'), ('(e, "B c")', '(e, "B c")')):
        assert run(c, statement, given={"force_quote": written})["csv"] == copied(direct, statement, {"force_quote": copy})
    end = ends(c, statement, "FORMAT csv WITH (force_quote = 'b')")
    assert end["state"] == "dead" and end["error"].startswith('force_quote: there is no column "b" (42703)')


def test_a_column_that_is_not_there_behind_an_effect(qbouncer, db, direct):
    """What was carried out is not carried out again for it; in a transaction it was not, and may do better."""
    proxy = qbouncer(databases={"there": "host=127.0.0.1 port=%d dbname=%s user=app queue_run_roles=app" % (direct.info.port, db), "*": "host=127.0.0.1 port=%d" % direct.info.port})
    with proxy.wire(db) as c:
        tag(c, "CREATE TABLE effect (n int)")
        tag(c, "QUEUE CREATE q WITH (run = sql, max_attempts = 3, retry = 'fixed 1ms')")
        for how, attempts, effects in ((" NO TRANSACTION", 1, 1), (" NO TRANSACTION DATABASE there", 1, 1), ("", 3, 0)):
            end = ends(c, "INSERT INTO effect VALUES (1) RETURNING n", "%s FORMAT csv WITH (force_quote = 'b')" % how)
            assert end["state"] == "dead" and end["error"].startswith('force_quote: there is no column "b" (42703)'), end
            assert (int(end["attempt"]), direct.execute("WITH gone AS (DELETE FROM effect RETURNING 1) SELECT count(*) FROM gone").fetchone()) == (attempts, (effects,)), how


def psql(direct, statement):
    """What psql prints."""
    env = dict(os.environ, PGCLIENTENCODING="UTF8", LC_ALL="C", PSQLRC="/dev/null")
    info = direct.info
    got = subprocess.run(["psql", "-X", "-h", info.host, "-p", str(info.port), "-U", info.user, "-d", info.dbname, "-P", "pager=off", "-c", statement],
                         env=env, capture_output=True, check=True)
    return got.stdout.decode()


WIDE = """SELECT * FROM (VALUES (1, 'x', E'a\\nbc', 1.5::money), (22222, 'ä 日本 😀 e\u0301', E'tab\\there', NULL), (-3, E'\\r\\x01\\x7f\\u0085', E'\\n', '0'),
    (NULL, '', E'x\\n\\ny', '-1')) AS t (number, "ein Name", "zwei\nZeilen", m)"""
KINDS = """SELECT 1::int2 AS a, 2::int8 AS b, 1.5::float4 AS c, 2.5::float8 AS d, 3.25::numeric AS long_name, 7::oid AS e, '8'::xid AS f, '9'::cid AS g,
    '10'::xid8 AS h, true AS i, now()::date AS j, '{1,2}'::int[] AS k, '{"a": 1}'::jsonb AS l, 'c'::"char" AS m, '1 day'::interval AS n, 'x'::name AS o"""


@pytest.mark.parametrize("statement", [
    "SELECT 1 AS a", "SELECT 1 AS a, 'b' AS b UNION ALL SELECT 20, 'cc' ORDER BY 1", "SELECT", "SELECT WHERE false", "SELECT 1 AS a, 2 AS b WHERE false", WIDE, KINDS, TEXTS,
    ROWS, "SELECT E'a\\nb' AS x, 'c' AS y", "SELECT 'c' AS y, E'a\\nb' AS x", "SELECT n, repeat('x', n) FROM generate_series(0, 40) AS n", "SHOW work_mem",
    "SELECT x FROM unnest(ARRAY['\u0e01\u0e33', '\u200bx', 'a\u0308o', '\uff21', '한글', '👍🏽', '\U0001f1e9\U0001f1ea', 'ﬁ']) AS x", 'SELECT 1 AS "日本", 2 AS "a\tb", 3 AS ""' .replace(', 3 AS ""', ""),
    "EXPLAIN (COSTS OFF) SELECT 1"])
def test_as_psql_prints_it(sql, direct, statement):
    _, c = sql
    assert run(c, statement, "text")["text"] == psql(direct, statement)


def test_of_each_statement(sql, direct):
    _, c = sql
    tag(c, "CREATE TABLE t (n int)")
    got = run(c, "INSERT INTO t VALUES (1), (2); SELECT n FROM t; DELETE FROM t RETURNING n", "text")
    assert [s["tag"] for s in got["statements"]] == ["INSERT 0 2", "SELECT 2", "DELETE 2"]
    assert [s.get("text") for s in got["statements"]] == [None, " n \n---\n 1\n 2\n(2 rows)\n\n", " n \n---\n 1\n 2\n(2 rows)\n\n"]


@pytest.mark.parametrize("format", ["csv", "text", "json"])
def test_beyond_its_bound(sql, format):
    """Whole rows; what is left out is counted, and a statement is carried out to its end."""
    _, c = sql
    tag(c, "CREATE TABLE t (n int); CREATE FUNCTION f(n int) RETURNS text LANGUAGE sql AS 'INSERT INTO t VALUES (n); SELECT repeat(''x'', 100)'")
    got = run(c, "SELECT n, f(n) FROM generate_series(1, 20000) AS n", format)
    assert (got["tag"], got["count"], got["cut"]) == ("SELECT 20000", 20000, True)
    assert c.rows("SELECT count(*) AS n FROM t")[0]["n"] == "20000"
    kept = got["rows" if format == "json" else format]
    if format == "json":
        assert 900000 < len(json.dumps(kept)) <= 1000000 and kept[-1] == {"n": len(kept), "f": "x" * 100}
    else:
        assert 900000 < len(kept) <= 1000000 and "x\n" in kept[-40:]
    if format == "text":
        assert kept.endswith("\n(20000 rows)\n\n")
    got = run(c, "SELECT 1 AS n; SELECT repeat('x', 2000000) AS x UNION ALL SELECT 'y'; SELECT 2 AS n", format)
    assert [s.get("cut") for s in got["statements"]] == [None, True, None] and got["cut"] is True and got["statements"][1]["count"] == 2
    got = run(c, ";".join(["SELECT repeat('x', 400000) AS x"] * 5), format)
    assert len(got["statements"]) in (4, 5) and got["cut"] is True and len(json.dumps(got)) < 1100000


def test_a_wide_value_makes_no_wide_table(sql):
    """A table is as wide as its widest value in each line."""
    _, c = sql
    got = run(c, "SELECT CASE n WHEN 100 THEN repeat('x', 500000) ELSE 'y' END AS x FROM generate_series(1, 200) AS n", "text")
    assert got["cut"] is True and got["count"] == 200 and len(got["text"].split("\n")) == 99 + 2 + 3 and len(got["text"]) < 10000


def test_exactly_to_the_bound(sql):
    _, c = sql
    got = run(c, "SELECT repeat('\"', 490000)")
    assert got == {"tag": "SELECT 1", "count": 1, "csv": '"' + '"' * 980000 + '"\n'}
    assert run(c, "SELECT repeat('x', 2000000)") == {"tag": "SELECT 1", "count": 1, "csv": "", "cut": True}


@pytest.fixture
def of_role(direct, db):
    done = []

    def alter(setting, value):
        direct.execute('ALTER ROLE app IN DATABASE "%s" SET %s = %s' % (db, setting, value))
        done.append(setting)

    yield alter
    for setting in done:
        direct.execute('ALTER ROLE app IN DATABASE "%s" RESET %s' % (db, setting))


def test_in_other_settings(of_role, qbouncer, db, direct):
    """The encoding of the role is none of the outcome's; its text is cut as its sessions read it."""
    of_role("client_encoding", "'LATIN1'")
    of_role("standard_conforming_strings", "off")
    of_role("datestyle", "'German'")
    with qbouncer().wire(db) as c:
        tag(c, "SET client_encoding = 'UTF8'")
        tag(c, "SET standard_conforming_strings = on")
        tag(c, "QUEUE CREATE q WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        got = run(c, "SELECT 'ä' AS a, '\\';\\\\' AS b; SELECT '日' AS a, date '2026-02-01' AS d", "json")
        assert [s["rows"] for s in got["statements"]] == [[{"a": "ä", "b": "';\\"}], [{"a": "日", "d": "2026-02-01"}]]


def test_what_is_refused(sql):
    _, c = sql
    assert error(c, "QUEUE RUN 'SELECT 1' ON q FORMAT text WITH (header = true)").sqlstate == "22023"
    assert error(c, "QUEUE RUN 'SELECT 1' ON q FORMAT xml").sqlstate == "22023"
