"""DONE ... THEN PUSH and DONE ... THEN TAKE: what commits with what, what the answer is, and what is
left when one of the two does not come to its end."""

import pytest

from pgwire import PgError, cancel, types
from proxy import wait_for
from queuetest import (  # noqa: F401
    INT8, JOB_COLUMNS, TEXT, decoded, error, job_of, parked, q, stats, tag, take, woken,
    shared, shared_db, shared_proxy)


def simple(c, sql):
    """Types, and the tag or SQLSTATE, of a Query."""
    got = c.simple(sql)
    last = [m for m in got if m.type in "CE"][-1]
    return types(got), last.tag if last.type == "C" else last.sqlstate


def extended(c, sql, values=()):
    """The same by Parse, Bind, Describe, Execute, Sync."""
    c.hold().parse("", sql).bind("", "", values).describe("P").execute()
    got = c.sync().push().until("Z")
    last = [m for m in got if m.type in "CE"][-1]
    return types(got).lstrip("12"), last.tag if last.type == "C" else last.sqlstate


@pytest.fixture
def two(q):
    """The queues mail and sent, and a job that is taken."""
    tag(q, "QUEUE CREATE sent")
    tag(q, "QUEUE PUSH mail '1'")
    return q


# --- THEN PUSH ------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [simple, extended])
def test_then_push(qproxy, db, two, run):
    job = take(two)
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE sent WAIT '30s'")
        parked(w)
        kinds, got = run(two, "QUEUE DONE '%s' THEN PUSH sent '{\"n\": 2}' PRIORITY 3 HEADERS '{\"a\": 1}'" % job["token"])
        assert (kinds, got) == ("CZ" if run is simple else "nCZ", "INSERT 0 1")
        next_one = woken(w)
        assert next_one["payload"] == '{"n": 2}' and next_one["priority"] == "3"
        assert next_one["headers"] == '{"a": 1, "parent": "%s"}' % job["token"].rpartition("-")[0]
        tag(w, "QUEUE DONE %s" % next_one["id"])
    assert stats(two)["leased"] == 0
    # once more is no error, and pushes nothing
    kinds, got = run(two, "QUEUE DONE '%s' THEN PUSH sent '3'" % job["token"])
    assert got == "INSERT 0 0"
    kinds, got = run(two, "QUEUE DONE '%s' THEN PUSH sent '3' RETURNING ID" % job["token"])
    assert (kinds, got) == ("TCZ", "INSERT 0 0")
    assert stats(two, "sent")["ready"] == 0


def test_then_push_says_which_job_it_was(two):
    tag(two, "QUEUE PUSH mail '2', '3', '4'")
    jobs = two.rows("QUEUE TAKE mail LIMIT 4")
    names = [job["token"].rpartition("-")[0] for job in jobs]

    def pushed(done, more=""):
        rows = two.rows("QUEUE DONE %s THEN PUSH sent '1' %s RETURNING JOB" % (done, more))
        return take(two, "QUEUE TAKE sent")["headers"], rows

    headers, rows = pushed(jobs[0]["id"], "HEADERS '{\"parent\": 1}' KEY 'k'")
    assert headers == '{"parent": "%s"}' % names[0] and len(rows) == 1
    assert pushed("ANY('{%s,%s}')" % (jobs[2]["token"], jobs[1]["token"]), "HEADERS 'null'")[0] == \
        '{"parent": ["%s", "%s"]}' % (names[2], names[1])
    for headers, state in (("1", "22023"), ("[1]", "22023"), ("{", "22P02")):
        assert error(two, "QUEUE DONE '%s' THEN PUSH sent '1' HEADERS '%s'" % (jobs[3]["token"], headers)).sqlstate == state
    tag(two, "QUEUE CREATE log WITH (kind = stream)")
    tag(two, "QUEUE SUBSCRIBE s TO log")
    tag(two, "QUEUE DONE '%s' THEN PUSH log '5'" % jobs[3]["token"])
    event = take(two, "QUEUE TAKE log FOR s WAIT '10s'")
    assert event["headers"] == '{"parent": "%s"}' % names[3]
    tag(two, "QUEUE DONE '%s' THEN PUSH sent '6'" % event["token"])
    assert take(two, "QUEUE TAKE sent")["headers"] is None


def test_then_push_returns_ids(two):
    tag(two, "QUEUE PUSH mail '2'")
    jobs = two.rows("QUEUE TAKE mail LIMIT 2")
    assert two.rows("QUEUE DONE %s, '%s' THEN PUSH sent '1', '2', '3' RETURNING ID"
                    % (jobs[0]["id"], jobs[1]["token"])) == [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    tag(two, "QUEUE PUSH mail '3'")
    job = take(two)
    two.hold().parse("s", "QUEUE DONE $1 THEN PUSH $2 $3, $4 KEY NULL RETURNING ID", [TEXT])
    got = two.describe("S", "s").sync().push().until("Z")
    assert types(got) == "1tTZ" and got[1].oids == [TEXT] * 4
    assert got[2].columns == [("id", INT8, 0)]
    got = two.hold().bind("", "s", [job["id"], "sent", "4", "5"], results=[1]).execute().sync().push().until("Z")
    assert types(got) == "2DDCZ" and got[3].tag == "INSERT 0 2"
    assert [decoded(INT8, m.row[0]) for m in got[1:3]] == ["4", "5"]


def test_then_push_is_all_or_nothing(two):
    job = take(two)
    old = job["token"]
    # nothing is done when the push fails
    assert error(two, "QUEUE DONE '%s' THEN PUSH nowhere '1'" % old).sqlstate == "42P01"
    assert error(two, "QUEUE DONE '%s' THEN PUSH sent '{'" % old).sqlstate == "22P02"
    assert stats(two)["leased"] == 1
    # nothing is pushed when the done fails
    tag(two, "QUEUE RELEASE '%s'" % old)
    assert error(two, "QUEUE DONE '%s' THEN PUSH sent '1'" % old).sqlstate == "QB001"
    job = take(two)
    assert error(two, "QUEUE DONE '%s', '%s' THEN PUSH sent '1'" % (job["token"], old)).sqlstate == "QB001"
    assert stats(two, "sent")["ready"] == 0 and stats(two)["leased"] == 1


def test_then_push_in_a_transaction(qproxy, db, two):
    job = take(two)
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE sent WAIT '30s'")
        parked(w)
        for end in ("ROLLBACK", "COMMIT"):
            tag(two, "BEGIN")
            tag(two, "CREATE TABLE t_%s (a int)" % end)
            assert tag(two, "QUEUE DONE %s THEN PUSH sent '\"%s\"'" % (job["id"], end)) == "INSERT 0 1"
            tag(two, end)
        assert woken(w)["payload"] == '"COMMIT"'
    assert stats(two)["leased"] == 0
    assert two.rows("SELECT to_regclass('t_commit') AS a, to_regclass('t_rollback') AS b") == [{"a": "t_commit", "b": None}]


def test_then_push_among_others(two):
    job = take(two)
    got = two.simple("CREATE TABLE t (a int); QUEUE DONE '%s' THEN PUSH sent '1' RETURNING ID; INSERT INTO t VALUES (1)"
                     % job["token"])
    assert [m.tag for m in got if m.type == "C"] == ["CREATE TABLE", "INSERT 0 1", "INSERT 0 1"]
    assert types(got) == "CTDCCZ"
    got = two.simple("SELECT 1 AS one; QUEUE DONE '%s' THEN PUSH sent '2' RETURNING ID" % job["token"])
    assert [m.sqlstate for m in got if m.type == "E"] == ["QB001"]   # what is beside it is not to be done twice
    assert stats(two, "sent")["ready"] == 1


def test_then_push_with_a_key(two):
    tag(two, "QUEUE PUSH sent '0' KEY 'k'")
    job = take(two)
    assert tag(two, "QUEUE DONE %s THEN PUSH sent '1' KEY 'k' ON DUPLICATE REPLACE GROUP 'g' EXPIRES '1h' ATTEMPTS 2 DELAY '1h'"
               % job["id"]) == "INSERT 0 1"
    assert stats(two, "sent")["later"] == 1


# --- THEN TAKE ------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [simple, extended])
def test_then_take(q, run):
    tag(q, "QUEUE PUSH mail '1', '2', '3', '4'")
    job = take(q)
    for n in (2, 3, 4):
        kinds, got = run(q, "QUEUE DONE '%s' THEN TAKE mail LEASE '1 min' AS 'me'" % job["token"])
        assert (kinds, got) == ("TDCZ", "SELECT 1")
        row = q.rows("SELECT id, payload FROM queue.peek('mail', 9, 'leased')")
        assert [r["payload"] for r in row] == [str(n)]
        job = {"token": row[0]["id"]}
    kinds, got = run(q, "QUEUE DONE %s THEN TAKE mail" % job["token"])
    assert (kinds, got) == ("TCZ", "SELECT 0")
    assert stats(q) == {"ready": 0, "later": 0, "leased": 0, "dead": 0}


def test_the_loop_of_a_worker(qproxy, db, q):
    """One round trip per job, prepared, with a wait that ends by a push."""
    done = []
    tag(q, "QUEUE PUSH mail '0'")
    with qproxy.wire(db) as w:
        job = take(w)
        got = w.hold().parse("next", "QUEUE DONE $1 THEN TAKE WAIT $2").describe("S", "next").sync().push().until("Z")
        assert types(got) == "1tTZ" and got[1].oids == [TEXT, TEXT]
        assert [(n, oid) for n, oid, _ in got[2].columns] == JOB_COLUMNS
        for n in range(1, 6):
            w.hold().bind("", "next", [job["token"], "30s"]).execute().sync().push()
            parked(w)
            done.append(job["payload"])
            assert stats(q)["leased"] == 0    # committed while it waits
            tag(q, "QUEUE PUSH mail '%d'" % n)
            got = w.until("Z")
            assert types(got)[-3:] == "DCZ"
            job = job_of(got)
        w.hold().bind("", "next", [job["token"], "0"], results=[1]).execute().sync().push()
        assert types(w.until("Z")) == "2CZ"
    assert done == [str(n) for n in range(5)] and stats(q)["leased"] == 0


def test_then_take_from_where(qproxy, db, two):
    """Without a queue from those of the jobs, in their order; also of jobs that others took, or done before."""
    tag(two, "QUEUE PUSH sent '\"s\"', '\"t\"'")
    tag(two, "QUEUE PUSH mail '2', '3', '4'")
    a, b = take(two, "QUEUE TAKE sent"), take(two)
    sql = "QUEUE DONE '%s', '%s' THEN TAKE LIMIT 1" % (b["token"], a["token"])
    job = take(two, sql)
    assert job["payload"] == "2"
    with qproxy.wire(db) as w:
        again = take(w, sql)              # a repeated DONE: not held here, and done before
        assert again["payload"] == "3"
        other = take(w, "QUEUE DONE '%s' THEN TAKE" % job["token"])     # taken by another connection
        assert other["payload"] == "4"
        assert error(w, "QUEUE DONE '%s' THEN TAKE nowhere" % again["token"]).sqlstate == "42P01"
        stale = again["token"][:-1] + ("1" if again["token"][-1] == "0" else "0")
        assert error(w, "QUEUE DONE '%s' THEN TAKE" % stale).sqlstate == "QB001"
        assert take(w, "QUEUE DONE '%s' THEN TAKE sent, mail" % again["token"])["payload"] == '"t"'


def test_then_take_of_a_stale_job(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q)
    tag(q, "QUEUE RELEASE '%s'" % job["token"])
    assert error(q, "QUEUE DONE '%s' THEN TAKE mail WAIT '30s'" % job["token"]).sqlstate == "QB001"
    assert extended(q, "QUEUE DONE $1 THEN TAKE mail", [job["token"]]) == ("TEZ", "QB001")
    assert stats(q)["leased"] == 0 and stats(q)["ready"] == 2


@pytest.mark.parametrize("clause, sqlstate", [
    ("LIMIT 0", "22023"), ("LIMIT x", "42601"), ("WAIT 'soon'", "22007"), ("HOLD '0'", "22023"), ("POP", "42601"),
    ("LEASE '1s' HOLD", "42601"), ("LIMIT 1 THEN TAKE mail", "42601")])
def test_what_the_take_refuses_is_not_done(q, clause, sqlstate):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    assert error(q, "QUEUE DONE %s THEN TAKE mail %s" % (job["id"], clause)).sqlstate == sqlstate
    assert stats(q)["leased"] == 1


def test_then_take_has_to_be_alone(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q)
    e = error(q, "SELECT 1; QUEUE DONE %s THEN TAKE mail" % job["id"])
    assert e.sqlstate == "0A000" and stats(q) == {"ready": 1, "later": 0, "leased": 1, "dead": 0}


@pytest.mark.parametrize("before", ["BEGIN; ", "BEGIN; CREATE TABLE t (a int); "])
def test_then_take_at_the_end_of_a_string(q, before):
    """... unless it is the last of one that leaves a block open."""
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q)
    got = q.simple(before + "QUEUE DONE %s THEN TAKE" % job["id"])
    assert types(got) == "C" * before.count(";") + "TDCZ" and got[-1].status == "T"
    tag(q, "ROLLBACK")
    wait_for(lambda: stats(q)["ready"] == 1, "the job to be given back")
    got = q.simple(before + "QUEUE DONE '%s0' THEN TAKE mail; " % job["token"][:-1])
    if not job["token"].endswith("0"):
        assert types(got) == "C" * before.count(";") + "EZ" and got[-1].status == "E"
    tag(q, "ROLLBACK")
    assert simple(q, "SELECT 1") == ("TDCZ", "SELECT 1")


@pytest.mark.parametrize("run", [simple, extended])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_then_take_in_a_transaction(qproxy, db, q, run, end):
    """The done is part of it, the take is not: what was taken is given back by a rollback."""
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q)
    tag(q, "BEGIN")
    tag(q, "CREATE TABLE t (a int)")
    assert run(q, "QUEUE DONE %s THEN TAKE" % job["id"]) == ("TDCZ", "SELECT 1")
    with qproxy.wire(db) as other:
        assert stats(other)["leased"] == 2
        assert simple(q, "SELECT 1") == ("TDCZ", "SELECT 1")
        tag(q, end)
        if end == "COMMIT":
            assert stats(other) == {"ready": 0, "later": 0, "leased": 1, "dead": 0}
        else:
            wait_for(lambda: stats(other) == {"ready": 1, "later": 0, "leased": 1, "dead": 0}, "the job to be given back")


@pytest.mark.parametrize("run", [simple, extended])
def test_then_take_fails_in_a_transaction(q, run):
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q)
    tag(q, "QUEUE RELEASE %s" % job["id"])
    for sql, sqlstate in (("QUEUE DONE '%s' THEN TAKE" % job["token"], "QB001"),
                          ("QUEUE DONE '%s' THEN TAKE mail WAIT '1s'" % job["token"], "25001")):
        for begin in ("BEGIN", "BEGIN; CREATE TEMP TABLE a (b int)"):
            q.simple(begin)
            assert run(q, sql)[1] == sqlstate
            assert run(q, sql)[1] == "25P02"
            assert run(q, "SELECT 1")[1] == "25P02"
            assert tag(q, "COMMIT") == "ROLLBACK"
    assert stats(q)["ready"] == 2
    assert simple(q, "SELECT 1") == ("TDCZ", "SELECT 1")


def test_then_take_in_a_pipeline(q):
    """Behind another statement it is in that one's transaction; an error before it skips it."""
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q)
    done = "QUEUE DONE %s THEN TAKE" % job["id"]
    q.hold().parse("", "SELECT 1/0").bind().execute().parse("", done).bind().execute().sync().push()
    assert types(q.until("Z")) == "1EZ"
    assert stats(q)["leased"] == 1
    q.hold().parse("", "CREATE TABLE t (a int)").bind().execute().parse("", done).bind().execute()
    got = q.parse("", "SELECT 2").bind().execute().sync().push().until("Z")
    assert types(got) == "12C12DC12DCZ"
    assert stats(q) == {"ready": 0, "later": 0, "leased": 1, "dead": 0}


def test_then_take_is_cancelled(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    q.query("QUEUE DONE %s THEN TAKE WAIT '30s'" % job["id"])
    parked(q)
    cancel(q)
    assert PgError(q.until("Z")[0]).sqlstate == "57014"
    assert stats(q) == {"ready": 0, "later": 0, "leased": 0, "dead": 0}


def test_the_client_leaves(qproxy, db, q):
    """The done stands, and what is pushed later is for the others."""
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as w:
        job = take(w)
        w.query("QUEUE DONE %s THEN TAKE WAIT '30s'" % job["id"])
        parked(w)
    tag(q, "QUEUE PUSH mail '2'")
    assert take(q, "QUEUE TAKE mail WAIT '20s'")["payload"] == "2"
    assert stats(q)["leased"] == 1


def test_between_the_done_and_the_take(qproxy, db, q, direct):
    """A cancel or a disconnect while the done is under way: it stands, and nothing is taken."""
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    direct.autocommit = False
    for leave in (False, True):
        with qproxy.wire(db) as w:
            job = take(w)
            direct.execute("LOCK TABLE queue.q_mail IN SHARE MODE")
            w.query("QUEUE DONE %s THEN TAKE WAIT '30s'" % job["id"])
            wait_for(lambda: direct.execute("SELECT FROM pg_locks WHERE relation = 'queue.q_mail'::regclass "
                                            "AND NOT granted").fetchall(), "the done to be under way")
            if not leave:
                cancel(w)
                direct.rollback()
                assert PgError(w.until("Z")[0]).sqlstate == "57014"
                assert stats(q) == {"ready": 2, "later": 0, "leased": 0, "dead": 0}
        direct.rollback()
    # it may be given back before it is done; what is not there is a lease of somebody who left
    wait_for(lambda: stats(q)["leased"] == 0, "the end of the job")
    assert stats(q)["ready"] in (1, 2)
