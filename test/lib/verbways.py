"""A statement of the QUEUE language in every way a driver may send it: simple and extended, literals and parameters, named
statements, text and binary.

For:     test_queue_language.py and the tests of single verbs.
Entry points: each_way; t, i, iv, j: values; nothing, three_jobs, one_taken, two_taken: what is there before; n_ready.
"""

from pgwire import PgError, types
from queuetest import INT4, INTERVAL, JSONB, TEXT, decoded, int4, interval, stats, tag, take


def t(text):
    """A parameter of type text: literal, oid, binary form."""
    return ("'%s'" % text, text, TEXT, text.encode())


def i(n):
    return (str(n), str(n), INT4, int4(n))


def iv(text, seconds):
    return ("'%s'" % text, text, INTERVAL, interval(seconds))


def j(text):
    return ("'%s'" % text, text, JSONB, b"\1" + text.encode())


def nothing(c, name):
    pass


def three_jobs(c, name):
    tag(c, "QUEUE PUSH %s '{\"n\": 1}', '{\"n\": 2}', '{\"n\": 3}'" % name)


def one_taken(c, name):
    tag(c, "QUEUE PUSH %s '{\"n\": 1}'" % name)
    return take(c, "QUEUE TAKE %s" % name)["token"]


def two_taken(c, name):
    tag(c, "QUEUE PUSH %s '1', '2'" % name)
    return [r["token"] for r in c.rows("QUEUE TAKE %s LIMIT 2" % name)]


def n_ready(n):
    return lambda c, name: stats(c, name)["ready"] == n


WAYS = ["simple", "in a block", "extended", "types", "binary", "named", "in a batch"]


def split(got):
    """ErrorResponses are raised; (RowDescription, rows, tag)."""
    for m in got:
        if m.type == "E":
            raise PgError(m)
    desc = [m for m in got if m.type == "T"]
    return desc[0] if desc else None, [m for m in got if m.type == "D"], [m.tag for m in got if m.type == "C"][-1]


def run(c, way, sql, values):
    """(RowDescriptions, rows as texts, tag)."""
    literal = sql.format(*[v[0] for v in values])
    numbered = sql.format(*["$%d" % n for n in range(1, len(values) + 1)])
    texts = [v[1] for v in values]
    oids = [v[2] for v in values]
    if way in ("simple", "in a block"):
        if way == "in a block":
            tag(c, "BEGIN; SELECT 1")
        desc, rows, done = split(c.simple(literal))
        if way == "in a block":
            assert tag(c, "COMMIT") == "COMMIT"
        return [desc], [m.text_row for m in rows], done
    c.hold()
    if way == "extended":
        c.parse("", literal).bind().describe("P").execute().sync().push()
        got = c.until("Z")
        assert types(got[:2]) == "12"
    elif way == "in a batch":
        c.parse("", "SELECT 1").bind().execute()
        c.parse("", numbered).bind("", "", texts).describe("P").execute().sync().push()
        got = c.until("Z")
        assert types(got[:4]) == "12DC"
        got = got[4:]
    elif way == "types":
        c.parse("", numbered, oids).bind("", "", texts).describe("P").execute().sync().push()
        got = c.until("Z")
    elif way == "binary":
        c.parse("", numbered, oids).describe("S").sync().push()
        described = c.until("Z")
        assert types(described) in ("1tTZ", "1tnZ") and described[1].oids == oids
        c.hold().bind("", "", [v[3] for v in values], formats=[1], results=[1])
        c.describe("P").execute().sync().push()
        got = c.until("Z")
        desc, rows, done = split(got)
        if desc is None:
            return [None], rows, done
        assert all(fmt == 1 for _, _, fmt in desc.columns)
        of = [oid for _, oid, _ in desc.columns]
        return [described[2], desc], [[decoded(o, v) for o, v in zip(of, m.row)] for m in rows], done
    else:
        c.parse("st", numbered).describe("S", "st").sync().push()
        described = c.until("Z")
        assert types(described) in ("1tTZ", "1tnZ") and described[1].oids == [TEXT] * len(values)
        c.hold().bind("po", "st", texts).describe("P", "po").execute("po").close_object("S", "st").sync().push()
        got = c.until("Z")
        assert types(got[-2:]) == "3Z"
        desc, rows, done = split(got)
        return ([described[2], desc] if desc else [None]), [m.text_row for m in rows], done
    desc, rows, done = split(got)
    return [desc], [m.text_row for m in rows], done


def each_way(q, setup, sql, values, wanted, columns, check):
    """setup(c, queue): what is there before; sql has {} for values, which are values(queue, what setup gave); wanted: the tag, * for the
    number of rows; columns: name and type of each, or None; check(c, queue), or None: whether it has had its effect."""
    seen = []
    for n, way in enumerate(WAYS):
        if "WAIT" in sql and way.startswith("in a"):
            continue # 25001: see test_queue_transactions.py
        name = "q%d" % n
        tag(q, "QUEUE CREATE " + name)
        before = setup(q, name)
        descs, rows, done = run(q, way, sql, values(name, before))
        assert done == wanted.replace("*", str(len(rows))), way
        for desc in descs:
            if columns is None:
                assert desc is None and rows == [], way
            else:
                assert [(a, o) for a, o, _ in desc.columns] == columns, way
        if columns is not None:
            # without the formats, which are the last two bytes of each column, they are the same bytes
            seen.append(descs[0].body)
            assert seen[0] == descs[0].body, way
            assert all(len(r) == len(columns) for r in rows), way
            if wanted[:6] == "SELECT":
                assert int(done.split()[1]) == len(rows), way
        if check:
            assert check(q, name), way
