"""FORMAT csv of SQL jobs, byte by byte what COPY writes."""

import json

import pytest

ROWS = """SELECT * FROM (VALUES (1, 'a,b', NULL::text, '{1,NULL}'::int[], 'NaN'::numeric, '\\x00ff'::bytea, true),
    (NULL, 'say "x"', '', '{"a b",NULL,""}'::text[]::int[], 1.50, NULL, false)) AS t (n, "A ""b"", c", s, a, d, y, z)"""
ROWS = ROWS.replace("""'{"a b",NULL,""}'::text[]::int[]""", "'{}'")
TEXTS = """SELECT x AS "größe", x AS "größe" FROM unnest(ARRAY['\\', '\\.', 'ä 日本 😀', E'two\\nlines', E'cr\\r', ' ', '', NULL, '"', '""', '(', ')',
    'a;b', E'tab\\t', '''', '\\"', '\\\\"', 'NULL', '{"a": "\\""}']) AS x"""
ONE = "SELECT x FROM unnest(ARRAY['\\.', '', NULL, 'x']) AS x"
NONE = 'SELECT 1 AS "ä b", 2 AS "_x0020_ _x", 3 AS "xml", 4 AS "?column?", 5 AS a_b, 6 AS "a,b" WHERE false'
OPTIONS = [{}, {"header": True}, {"delimiter": ";", "null": "NULL"}, {"quote": "'", "escape": "\\"}, {"force_quote": "*", "header": True},
           {"delimiter": "\t", "header": True, "null": "-"}, {"escape": "\\"}]


def run(db, sql, given=None, format="csv", **more):
    """The outcome of one job."""
    db.rows("SELECT queue.run('q', %s, format => %s, format_with => %s)", sql, format, json.dumps(given) if given is not None else None)
    (job,) = db.take("q")
    db.rows("SELECT queue FROM queue._run_job(%s, 'public', false)", job["token"])
    ((state, result),) = db.rows("SELECT state, result FROM queue.await(%s)", job["token"])
    assert state == "done"
    return result


def copied(db, sql, given):
    """What COPY writes."""
    with_ = ["FORMAT csv"] + ["%s %s" % (k, v if k in ("header", "force_quote") else "E'%s'" % v.replace("\\", "\\\\").replace("'", "\\'"))
                              for k, v in given.items()]
    with db.conn.cursor() as cur, cur.copy("COPY (%s) TO STDOUT WITH (%s)" % (sql, ", ".join(with_))) as copy:
        return b"".join(bytes(part) for part in copy).decode()


@pytest.fixture
def q(db):
    db.create("q", run="sql", retain_done="1 h")
    return db


@pytest.mark.parametrize("sql", [ROWS, TEXTS, ONE, NONE, "SELECT", "SELECT now()::date, '1 day'::interval"])
def test_as_copy_writes_it(q, sql):
    for given in OPTIONS:
        got = run(q, sql, given)
        assert got["csv"] == copied(q, sql, given), given


def test_beyond_its_bound(q):
    """What is left out is counted."""
    got = run(q, "SELECT n, repeat('x', 100) FROM generate_series(1, 300000) AS n", {"header": True})
    assert got["count"] == 300000 and got["cut"] is True
    assert 990000 < len(got["csv"]) <= 1000000 and got["csv"].endswith("x\n")
    got = run(q, "SELECT repeat('\"', 490000)")
    assert got == {"count": 1, "csv": '"' + '"' * 980000 + '"\n'}
    assert run(q, "SELECT repeat('x', 2000000)") == {"count": 1, "csv": "", "cut": True}


def test_rows_as_json(q):
    assert run(q, "SELECT 1 AS n", format="JSON") == {"count": 1, "rows": [{"n": 1}]}
    assert run(q, "SELECT 1 AS n", format=None) == {"count": 1, "rows": [{"n": 1}]}
    got = run(q, "SELECT n FROM generate_series(1, 300000) AS n", format=None)
    assert got["count"] == 300000 and got["cut"] is True


@pytest.mark.parametrize("format, given", [
    ("xml", None), ("json", {"header": True}), (None, {"header": True}), ("csv", {"headr": True}), ("csv", {"header": "perhaps"}),
    ("csv", {"delimiter": ";;"}), ("csv", {"delimiter": "ä"}), ("csv", {"delimiter": ""}), ("csv", {"delimiter": "\n"}),
    ("csv", {"delimiter": '"'}), ("csv", {"null": "a,b"}), ("csv", {"null": None}), ("csv", {"delimiter": None}), ("csv", [1])])
def test_what_is_refused(q, format, given):
    q.fails("22023", "SELECT queue.run('q', 'SELECT 1', format => %s, format_with => %s)", format, json.dumps(given) if given is not None else None)


def test_without_a_transaction(q):
    q.fails("0A000", "SELECT queue.run('q', 'SELECT 1', format => 'csv', no_transaction => true)")
    q.fails("0A000", "SELECT queue.run('q', 'SELECT 1', format => 'csv', format_with => '{\"force_quote\": \"a\"}')")


def test_with_old_string_syntax(q):
    q.rows("SET standard_conforming_strings = off")
    assert run(q, "SELECT chr(92) || 'n' AS a, chr(92) || '\"' AS b")["csv"] == '\\n,"\\"""\n'
