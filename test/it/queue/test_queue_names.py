"""How jobs are named: token, job, id with its queue, key, lists. Never a job of another queue than the one that was meant."""

import psycopg
import pytest

from pgwire import types
from queuetest import (  # noqa: F401
    BOOL, INT4, INT8, TEXT, error, parked, peek, q, stats, tag, take, woken,
    shared, shared_db, shared_proxy)

TEXT_ARRAY, INT8_ARRAY = 1009, 1016


@pytest.fixture
def two(q):
    """Queues mail (1) and sms (2) with jobs of the same ids."""
    tag(q, "QUEUE CREATE sms")
    for name in ("mail", "sms"):
        tag(q, "QUEUE PUSH %s '1', '2', '3', '4'" % name)
        tag(q, "QUEUE PUSH %s '5' KEY 'k'" % name)
    return q


def number(c, queue="mail"):
    return next(r["number"] for r in c.rows("QUEUE LIST") if r["queue"] == queue)


def job(c, n, queue="mail"):
    return "%s-%d" % (number(c, queue), n)


def left(c, queue="mail"):
    return sorted(int(r["id"]) for r in peek(c, queue))


# -- forms -------------------------------------------------------------------------------------

CANCELS = ["'%(job)s'", "'%(job)s-0123456789abcdef'", "2 ON mail", "'2' ON 'mail'", "2::int8 ON mail",
           "'%(job)s' ON mail", "ANY('{2}') ON mail", "ANY(ARRAY['%(job)s'])", "ARRAY[2]::int8[] ON mail", "'{%(job)s}'"]


@pytest.mark.parametrize("form", CANCELS)
@pytest.mark.parametrize("within", [False, True])
def test_cancel(two, form, within):
    if within:
        tag(two, "BEGIN")
        tag(two, "CREATE TABLE work ()")
    assert tag(two, "QUEUE CANCEL " + form % {"job": job(two, 2)}) == "UPDATE 1"
    assert left(two) == [1, 3, 4, 5] and left(two, "sms") == [1, 2, 3, 4, 5]
    if within:
        tag(two, "ROLLBACK")
        assert left(two) == [1, 2, 3, 4, 5]


PARAMS = [("$1", 0, "%(job)s", 1, TEXT), ("$1 ON mail", 0, "2", 1, TEXT), ("$1 ON $2", 0, "2", 1, TEXT),
          ("$1::int8 ON mail", 0, "2", 1, INT8), ("$1 ON mail", INT8, "2", 1, INT8), ("$1 ON mail", 0, "{2,3}", 2, TEXT),
          ("ANY($1)", 0, "{%(job)s, \"%(job)s\"}", 1, TEXT_ARRAY), ("ANY($1) ON mail", 0, "{2,3}", 2, TEXT_ARRAY),
          ("ANY($1::int8[]) ON mail", 0, "{2,3}", 2, INT8_ARRAY), ("$1::text[] ON mail", 0, "{2,3}", 2, TEXT_ARRAY),
          ("$1 ON mail", INT8_ARRAY, "{2,3}", 2, INT8_ARRAY), ("ANY($1)", 0, "{}", 0, TEXT_ARRAY),
          ("KEY $1 ON mail", 0, "k", 1, TEXT), ("KEY $1 ON $2", 0, "k", 1, TEXT)]


@pytest.mark.parametrize("form, oid, value, n, described", PARAMS)
@pytest.mark.parametrize("within", [False, True])
def test_parameters(two, form, oid, value, n, described, within):
    """Also prepared, and described as the cast says."""
    if within:
        tag(two, "BEGIN")
        tag(two, "CREATE TABLE work ()")
    value %= {"job": job(two, 2)}
    args = [value] + ["mail"] * ("$2" in form)
    got = two.hold().parse("s", "QUEUE CANCEL " + form, [oid] if oid else []).describe("S", "s").bind("", "s", args) \
        .execute().sync().push().until("Z")
    assert types(got) == "1tn2CZ" and got[-2].tag == "UPDATE %d" % n
    assert got[1].body[2:6] == described.to_bytes(4, "big")
    assert left(two, "sms") == [1, 2, 3, 4, 5] and len(left(two)) == 5 - n
    if within:
        tag(two, "COMMIT")
    assert len(left(two)) == 5 - n


@pytest.mark.parametrize("verb", ["CANCEL", "RERUN", "JOB", "AWAIT"])
@pytest.mark.parametrize("within", [False, True])
def test_an_id_alone_is_of_no_queue(two, verb, within):
    """As it was reported: job 77 of mail is finished, and that of sms is there."""
    tag(two, "QUEUE CANCEL 2 ON mail")
    for ref in ("2", "77"):
        if within:
            tag(two, "BEGIN")
            tag(two, "SELECT 1")
        e = error(two, "QUEUE %s %s" % (verb, ref))
        assert e.sqlstate == "22023"
        assert e.fields["H"] == "Name its queue: QUEUE %s %s ON mail; Or ON sms." % (verb, ref)
        if within:
            tag(two, "ROLLBACK")
        e = error(two, "QUEUE %s '%s' ON mail" % (verb, job(two, 2, "sms")))
        assert e.sqlstate == "22023" and '"sms"' in e.fields["H"]
        e = error(two, "QUEUE %s %s ON nosuch" % (verb, ref))
        assert e.sqlstate == "42P01"
    assert left(two, "sms") == [1, 2, 3, 4, 5]


def test_an_id_of_a_lease_of_this_connection(qproxy, db, two):
    """... is that job for every verb; another connection has to say more."""
    token = take(two, "QUEUE TAKE sms")["token"]
    assert take(two, "QUEUE JOB 1")["job"] == job(two, 1, "sms")
    assert two.rows("QUEUE AWAIT 1") == []
    assert tag(two, "QUEUE CANCEL ANY('{1}')") == "UPDATE 1"
    assert error(two, "QUEUE DONE '%s'" % token).sqlstate == "QB002"
    take(two, "QUEUE TAKE mail")
    for verb in ("CANCEL", "JOB", "DONE", "FAIL"):
        e = error(two, "QUEUE %s 1" % verb)
        assert e.sqlstate == "22023" and "QUEUE %s 1 ON " % verb in e.fields["H"]
    assert tag(two, "QUEUE DONE 1 ON mail") == "UPDATE 1"
    assert left(two) == [2, 3, 4, 5]
    with qproxy.wire(db) as other:
        assert error(other, "QUEUE JOB 1").sqlstate == "22023"


def test_one_queue_alone(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    assert take(q, "QUEUE JOB 1")["id"] == "1" and q.rows("QUEUE AWAIT 1") == []
    assert tag(q, "QUEUE CANCEL 1") == "UPDATE 1"
    assert error(q, "QUEUE CANCEL 1").sqlstate == "QB003"


# -- what this connection holds ----------------------------------------------------------------

HELD = ["'%(token)s'", "'%(job)s'", "1 ON mail", "'%(token)s' ON mail", "'%(job)s' ON mail", "KEY 'key' ON mail",
        "ANY('{%(token)s}')", "ANY(ARRAY[1]) ON mail", "ARRAY['%(job)s']", "'{1}' ON mail"]


@pytest.mark.parametrize("form", HELD)
@pytest.mark.parametrize("verb", ["DONE", "FAIL", "RELEASE", "EXTEND"])
@pytest.mark.parametrize("within", [False, True])
def test_a_lease_by_its_names(qproxy, db, q, form, verb, within):
    tag(q, "QUEUE CREATE sms")
    tag(q, "QUEUE PUSH mail '1' KEY 'key'")
    tag(q, "QUEUE PUSH sms '1' KEY 'key'")
    with qproxy.wire(db) as other:
        take(other, "QUEUE TAKE sms")
        mine = take(q)
        form %= {"token": mine["token"], "job": job(q, 1)}
        if within:
            tag(q, "BEGIN")
            tag(q, "SELECT 1")
        assert tag(q, "QUEUE %s %s" % (verb, form)) == "UPDATE 1"
        if within:
            tag(q, "COMMIT")
        assert stats(q)["leased"] == (verb == "EXTEND") and stats(q, "sms")["leased"] == 1
        # ... and for nobody else
        if "token" not in form and mine["token"] not in form:
            tag(q, "QUEUE PUSH mail '2'")
            e = error(other, "QUEUE %s %s" % (verb, form))
            assert e.sqlstate == "22023" and "QUEUE %s '<token>'" % verb in e.fields["H"]
        for bad in ("'%s' ON sms" % mine["token"], "ANY('{%s}') ON sms" % mine["token"]):
            for c in (q, other):
                assert error(c, "QUEUE %s %s" % (verb, bad)).sqlstate == "22023"


def test_several_by_arrays(q):
    tag(q, "QUEUE PUSH mail '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12'")
    tokens = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 12")]
    run = lambda sql, *args: q.hold().parse("", sql).bind("", "", list(args)).execute().sync().push().until("Z")  # noqa: E731
    assert run("QUEUE DONE ANY($1)", "{%s}" % ",".join(tokens[:2]))[-2].tag == "UPDATE 2"
    assert run("QUEUE DONE $1, ANY($2), 5", tokens[2], "{%s}" % tokens[3])[-2].tag == "UPDATE 3"
    tag(q, "BEGIN")
    tag(q, "SELECT 1")
    assert run("QUEUE DONE $1, ANY($2), 8", "6", '{ "%s" }' % tokens[6])[-2].tag == "UPDATE 3"
    assert run("QUEUE DONE $1", "{9,10}")[-2].tag == "UPDATE 2"
    tag(q, "COMMIT")
    assert left(q) == [11, 12]
    for bad, code in (("{", "22P02"), ("{{1}}", "22P02"), ("{1,}", "22P02"), ("{,1}", "22P02"), ('{"1}', "22P02"),
                      ("{NULL}", "22004"), ("{x}", "22023"), ("{1", "22P02"), ("1", "22P02"), ("{1 2}", "22023")):
        assert run("QUEUE DONE ANY($1)", bad)[-2].fields["C"] == code, bad
        assert run("QUEUE CANCEL ANY($1) ON mail", bad)[-2].fields["C"] == code, bad
    assert run("QUEUE DONE ANY($1)", None)[-2].fields["C"] == "22004"
    assert tag(q, "QUEUE DONE ANY('{}')") == "UPDATE 0"
    assert tag(q, "QUEUE DONE ARRAY[]::text[]") == "UPDATE 0"
    assert tag(q, "QUEUE DONE ANY(ARRAY[11]), 12") == "UPDATE 2"


def test_many_by_their_ids(q):
    tag(q, "QUEUE PUSH mail SELECT to_jsonb(n) FROM generate_series(1, 3000) AS n")
    q.rows("QUEUE TAKE mail LIMIT 3000")
    assert tag(q, "QUEUE DONE ANY('{%s}')" % ",".join(map(str, range(3000, 0, -1)))) == "UPDATE 3000"


@pytest.mark.parametrize("verb", ["DONE", "EXTEND", "FAIL", "CANCEL", "RERUN"])
def test_too_many(q, verb):
    """... for one statement, whether the verb is of leases or of jobs."""
    text = "{%s}" % ",".join("1-%d-%016x" % (n, n) for n in range(10001))
    got = q.hold().parse("", "QUEUE %s ANY($1)" % verb).bind("", "", [text]).execute().sync().push().until("Z")
    (e,) = [m for m in got if m.type == "E"]
    assert e.sqlstate == "54000" and "10000" in e.fields["D"]


def test_a_token_that_is_named_twice_counts_once(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    tokens = tuple(job["token"] for job in q.rows("QUEUE TAKE mail LIMIT 2"))
    for _ in range(2):
        assert tag(q, "QUEUE DONE '%s', '%s', '%s'" % (tokens + tokens[:1])) == "UPDATE 2"


def test_syntax(q):
    for sql, code in (("QUEUE CANCEL", "42601"), ("QUEUE CANCEL KEY 'k'", "42601"), ("QUEUE CANCEL 1 KEY 'k' ON mail", "42601"),
                      ("QUEUE DONE 1 ON", "42601"), ("QUEUE CANCEL ANY 1", "42601"), ("QUEUE CANCEL ARRAY[1", "42601"),
                      ("QUEUE CANCEL KEY NULL ON mail", "22004"), ("QUEUE DONE KEY NULL ON mail", "22004"),
                      ("QUEUE DONE KEY 'no' ON mail", "22023"), ("QUEUE CANCEL KEY 'no' ON mail", "QB003"),
                      ("QUEUE MOVE '1' TO mail", "42601"), ("QUEUE JOB 1, 2", "42601"), ("QUEUE JOB '{1}'", "22023"),
                      ("QUEUE AWAIT '{1}'", "QB003"), ("QUEUE PUSH mail '1' RETURNING", "42601"),
                      ("QUEUE PUSH mail '1' RETURNING ID, ID", "42601"), ("QUEUE DONE '1' PARTIAL THEN TAKE mail", "42601")):
        assert error(q, sql).sqlstate == code, sql


# -- by key ------------------------------------------------------------------------------------

def test_keys(qproxy, db, two):
    assert take(two, "QUEUE JOB KEY 'k' ON sms")["job"] == job(two, 5, "sms")
    with qproxy.wire(db) as w:
        w.query("QUEUE AWAIT KEY 'k' ON sms WAIT '60s'")
        parked(w)
        assert tag(two, "QUEUE CANCEL KEY 'k' ON sms") == "UPDATE 1"
        # it hears of it at once: the look is a while away
        assert [m.text_row for m in w.until("Z") if m.type == "D"][0][3] in ("gone", "cancelled")
    assert left(two) == [1, 2, 3, 4, 5] and left(two, "sms") == [1, 2, 3, 4]
    assert error(two, "QUEUE AWAIT KEY 'k' ON sms").sqlstate == "QB003"
    tokens = [r["token"] for r in two.rows("QUEUE TAKE mail LIMIT 5")]
    assert error(two, "QUEUE RERUN KEY 'k' ON mail").sqlstate == "QB003"
    assert tag(two, "QUEUE FAIL KEY 'k' ON mail FINAL") == "UPDATE 1"
    assert tag(two, "QUEUE RERUN KEY 'k' ON mail") == "UPDATE 1"
    assert len(tokens) == 5 and stats(two)["ready"] == 1


# -- shown -------------------------------------------------------------------------------------

def test_returning(two):
    assert two.rows("QUEUE PUSH mail '1', '2' RETURNING JOB") == [{"job": job(two, 6)}, {"job": job(two, 7)}]
    assert two.rows("QUEUE PUSH sms '1' RETURNING ID, JOB") == [{"id": "6", "job": job(two, 6, "sms")}]
    assert two.rows("QUEUE PUSH sms '1' KEY 'k' RETURNING JOB, ID") == [{"job": job(two, 5, "sms"), "id": "5"}]
    tag(two, "BEGIN")
    tag(two, "SELECT 1")
    assert two.rows("QUEUE PUSH mail '1' GROUP 'g' RETURNING ID, JOB") == [{"id": "8", "job": job(two, 8)}]
    tag(two, "COMMIT")
    got = two.hold().parse("s", "QUEUE PUSH mail $1 RETURNING ID, JOB").describe("S", "s") \
        .bind("", "s", ["7"], results=[1]).execute().sync().push().until("Z")
    assert types(got) == "1tT2DCZ" and [c[:2] for c in got[2].columns] == [("id", INT8), ("job", TEXT)]
    assert got[4].row == [(9).to_bytes(8, "big"), job(two, 9).encode()] and got[5].tag == "INSERT 0 1"
    assert [r["job"] for r in two.rows("QUEUE PEEK mail LIMIT 2")] == [job(two, 1), job(two, 2)]
    assert two.rows("QUEUE STATS sms")[0]["number"] == number(two, "sms")
    tag(two, "QUEUE FAIL '%s' ERROR 'no'" % take(two)["token"])
    assert two.rows("QUEUE ERRORS mail")[0]["job"] == job(two, 1)


def test_both_orders(q):
    assert tag(q, "QUEUE CREATE IF NOT EXISTS mail") == "CREATE TABLE"
    assert tag(q, "QUEUE CREATE IF NOT EXISTS if WITH (lease = '1 min')") == "CREATE TABLE"
    assert tag(q, "QUEUE CREATE if IF NOT EXISTS") == "CREATE TABLE"
    assert tag(q, "QUEUE DROP IF EXISTS nosuch") == tag(q, "QUEUE DROP IF EXISTS if") == "DROP TABLE"
    assert error(q, "QUEUE DROP if").sqlstate == "42P01"
    assert error(q, "QUEUE DROP IF EXISTS mail IF EXISTS").sqlstate == "42601"


# -- DONE ... KEEP, PARTIAL, THEN MOVE -------------------------------------------------------------

@pytest.mark.parametrize("within", [False, True])
def test_keep(q, within):
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    a, b, c = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 3")]
    if within:
        tag(q, "BEGIN")
        tag(q, "SELECT 1")
    assert tag(q, "QUEUE DONE '%s' KEEP" % a) == "UPDATE 1"
    assert tag(q, "QUEUE DONE '%s' KEEP RESULT '7'" % b) == tag(q, "QUEUE DONE '%s'" % c) == "UPDATE 1"
    if within:
        tag(q, "COMMIT")
    assert sorted((r["id"], r["result"]) for r in peek(q, state="done")) == [("1", None), ("2", "7")]


def test_partial(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2', '3', '4', '5'")
    a, b, c, d, e = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 5")]
    tag(q, "QUEUE RELEASE '%s'" % b)
    tag(q, "QUEUE CANCEL '%s'" % c)
    sql = "QUEUE DONE '%s', '%s', '%s', 4, '%s', '999-1-0123456789abcdef' PARTIAL" % (a, b, c, a)
    rows = q.rows(sql)
    assert [(r["job"], r["ok"], r["sqlstate"]) for r in rows] == [
        (job(q, 1), "t", None), (job(q, 2), "f", "QB001"), (job(q, 3), "f", "QB002"), (job(q, 4), "t", None),
        (job(q, 1), "t", None), ("999-1", "f", "QB001")]
    assert left(q) == [2, 3, 5]
    # repeated by itself it is answered as it was
    assert tag(q, "QUEUE DONE '%s', '%s', '%s' PARTIAL" % (a, b, d)) == "UPDATE 2"
    with qproxy.wire(db) as other:
        got = other.hold().parse("s", "QUEUE DONE ANY($1) RESULT $2 PARTIAL").describe("S", "s") \
            .bind("", "s", ["{%s,%s}" % (b, e), "5"], results=[1]).execute().sync().push().until("Z")
        assert types(got) == "1tT2DDCZ" and [c[:2] for c in got[2].columns] == [("job", TEXT), ("ok", BOOL), ("sqlstate", TEXT)]
        assert got[4].row == [job(q, 2).encode(), b"\0", b"QB001"] and got[5].row == [job(q, 5).encode(), b"\1", None]
        assert got[6].tag == "UPDATE 1"
    assert take(q, "QUEUE JOB '%s'" % job(q, 5))["result"] == "5"
    tag(q, "BEGIN")
    assert error(q, "QUEUE DONE '%s' PARTIAL" % b).sqlstate == "25001"
    tag(q, "ROLLBACK")
    for sql, code in (("QUEUE DONE 'x' PARTIAL", "22023"), ("QUEUE DONE 77 PARTIAL", "22023"),
                      ("SELECT 1; QUEUE DONE '%s' PARTIAL" % b, "25001")):
        assert error(q, sql).sqlstate == code, sql


def test_partial_whose_sync_comes_later(q):
    """Only behind the Execute it is seen that it is by itself; two are not."""
    tag(q, "QUEUE PUSH mail '1', '2'")
    a, b = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 2")]
    q.parse("s", "QUEUE DONE ANY($1) PARTIAL").sync().until("Z")
    q.hold().bind("", "s", ["{%s}" % a]).describe("P").execute().push()
    assert types(q.until("T")) == "2T" and q.silent()
    assert types(q.sync().until("Z")) == "DCZ"
    assert left(q) == [2]
    q.hold().bind("", "s", ["{%s}" % b]).execute().push()
    assert types(q.until("2")) == "2" and q.silent()
    got = q.hold().bind("", "s", ["{%s}" % b]).execute().sync().push().until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "25001"
    assert left(q) == [2]


@pytest.mark.parametrize("within", [False, True])
def test_then_move(qproxy, db, q, within):
    tag(q, "QUEUE CREATE sent")
    tag(q, "QUEUE PUSH mail '{\"a\": 1}' HEADERS '{\"x\": 1, \"y\": 2}' PRIORITY 7")
    tag(q, "QUEUE PUSH mail '2', '3'")
    a, b, c = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 3")]
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE sent WAIT '60s'")
        parked(w)
        if within:
            tag(q, "BEGIN")
            tag(q, "CREATE TABLE work ()")
        assert tag(q, "QUEUE DONE '%s' THEN MOVE TO sent HEADERS '{\"y\": 3}' PRIORITY 2" % a) == "INSERT 0 1"
        if within:
            tag(q, "COMMIT")
        got = woken(w)
    assert (got["payload"], got["priority"]) == ('{"a": 1}', "2")
    assert got["headers"] == '{"x": 1, "y": 3, "parent": "%s"}' % job(q, 1)
    if not within:
        assert tag(q, "QUEUE DONE '%s' THEN MOVE TO sent" % a) == "INSERT 0 0", "it is repeated"
    for sql, code in (("QUEUE DONE '%s' THEN MOVE TO nosuch" % b, "42P01"), ("QUEUE DONE '%s', '%s' THEN MOVE TO sent" % (b, a), "QB001"),
                      ("QUEUE DONE '%s', '%s' THEN MOVE TO sent KEY 'k'" % (b, c), "22023"),
                      ("QUEUE DONE '%s' THEN MOVE TO sent HEADERS '[1]'" % b, "22023"), ("QUEUE DONE '%s' THEN MOVE sent" % b, "42601")):
        assert error(q, sql).sqlstate == code, sql
    assert left(q) == [2, 3] and stats(q)["leased"] == 2
    assert q.rows("QUEUE DONE '%s', '%s' THEN MOVE TO sent RETURNING JOB" % (c, b)) == [
        {"job": job(q, 2, "sent")}, {"job": job(q, 3, "sent")}]
    assert [r["payload"] for r in peek(q, "sent", "ready")][-2:] == ["3", "2"]


def test_move_and_types(q):
    for name, kind in (("t", "text"), ("y", "bytea"), ("y2", "bytea")):
        tag(q, "QUEUE CREATE %s WITH (payload = %s)" % (name, kind))
    tag(q, "QUEUE PUSH t 'no json'")
    tag(q, "QUEUE PUSH y '\\x00ff'")
    t, y = take(q, "QUEUE TAKE t")["token"], take(q, "QUEUE TAKE y")["token"]
    assert error(q, "QUEUE DONE '%s' THEN MOVE TO mail" % t).sqlstate == "22P02"
    assert error(q, "QUEUE DONE '%s' THEN MOVE TO mail" % y).sqlstate == "42804"
    assert error(q, "QUEUE DONE '%s' THEN MOVE TO y" % t).sqlstate == "42804"
    assert tag(q, "QUEUE DONE '%s' THEN MOVE TO y2" % y) == "INSERT 0 1"
    assert peek(q, "y2")[0]["payload"] == "\\x00ff"


def test_a_job_that_was_replaced_is_not_moved(q):
    tag(q, "QUEUE PUSH mail '1' KEY 'k'")
    token = take(q)["token"]
    tag(q, "QUEUE PUSH mail '2' KEY 'k' ON DUPLICATE REPLACE")
    e = error(q, "QUEUE DONE '%s' THEN MOVE TO mail" % token)
    assert e.sqlstate == "55000" and "THEN PUSH" in e.fields["H"]
    assert tag(q, "QUEUE DONE '%s' THEN PUSH mail '1'" % token) == "INSERT 0 1"


def test_a_misspelt_queue_of_a_take(q):
    """... is noticed at once, also when another one has a job."""
    tag(q, "QUEUE PUSH mail '1'")
    for sql in ("QUEUE TAKE mail, nosuch", "QUEUE TAKE mail, nosuch WAIT '5s'", "QUEUE POP mail, nosuch, mail LIMIT 5"):
        e = error(q, sql)
        assert e.sqlstate == "42P01" and '"nosuch"' in e.message
    assert stats(q)["ready"] == 1


# -- from a driver -----------------------------------------------------------------------------

def test_psycopg(qproxy, db, two):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as c:
        for binary in (False, True):
            (name,) = c.execute("QUEUE PUSH mail %s RETURNING JOB", ('{"n": 1}',), binary=binary).fetchone()
            assert c.execute("QUEUE JOB %s", (name,), binary=binary).fetchone()[0] == name
            tokens = [r[1] for r in c.execute("QUEUE TAKE mail LIMIT 2").fetchall()]
            mark = "%b" if binary else "%s"
            assert c.execute("QUEUE DONE ANY(%s)" % mark, (tokens[:1],)).rowcount == 1
            assert [r[1:] for r in c.execute("QUEUE DONE ANY(%s) PARTIAL" % mark, (tokens,)).fetchall()] == [(True, None)] * 2
            assert c.execute("QUEUE CANCEL ANY(%s) ON mail" % mark, ([int(name.split("-")[1])],)).rowcount == 1
            assert c.execute("QUEUE CANCEL %s ON sms" % mark, (1 + binary,)).rowcount == 1
    assert left(two, "sms") == [3, 4, 5]
