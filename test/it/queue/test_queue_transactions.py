"""QUEUE statements and transactions: what commits with the client's work, what does not, and what a
ROLLBACK gives back."""

import psycopg
import pytest

from pgcluster import pg_major
from pgwire import PgError, types
from proxy import wait_for
from queuetest import (  # noqa: F401
    come_back, error, job_of, parked, peek, q, stats, tag, take, woken,
    shared, shared_db, shared_proxy)


def servers(direct, db):
    """Server connections of clients that are in use."""
    return direct.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() "
        "AND state <> 'idle' AND backend_type = 'client backend'", (db,)).fetchone()[0]


def begin_simple(c):
    got = c.simple("BEGIN")
    assert types(got) == "CZ" and got[0].tag == "BEGIN" and got[1].status == "T"


def begin_extended(c):
    got = c.hold().parse("", "BEGIN").bind().describe("P").execute().sync().push().until("Z")
    assert types(got) == "12nCZ" and got[3].tag == "BEGIN" and got[4].status == "T"


def begin_prepared(c):
    """As pg8000 does it: a named statement, a named portal."""
    c.hold().parse("b", "begin transaction").flush().describe("S", "b").flush().sync().push()
    assert types(c.until("Z")) == "1tnZ"
    c.hold().bind("p", "b").flush().execute("p").flush().sync().push()
    assert types(c.until("Z")) == "2CZ"


BEGINS = [begin_simple, begin_extended, begin_prepared]


# --- deferred BEGIN -------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", BEGINS)
def test_take_wait_behind_begin(qproxy, db, direct, q, begin):
    with qproxy.wire(db) as other:
        begin(q)
        q.query("QUEUE TAKE mail WAIT '20s'")
        parked(q)
        wait_for(lambda: servers(direct, db) == 0, "that no server is held")
        tag(other, "QUEUE PUSH mail '1'")
        got = q.until("Z")
        assert types(got) == "TDCZ" and got[-1].status == "T"
        # what follows is in the transaction that BEGIN has begun
        tag(q, "CREATE TABLE t (a int)")
        tag(q, "QUEUE DONE '%s'" % job_of(got)["token"])
        assert tag(q, "ROLLBACK") == "ROLLBACK"
        assert other.rows("SELECT to_regclass('t') IS NULL AS gone") == [{"gone": "t"}]
        assert come_back(other)["attempt"] == "2"


def test_begin_in_the_same_batch(qproxy, db, direct, q):
    """As JDBC sends it."""
    with qproxy.wire(db) as other:
        q.hold().parse("", "BEGIN").bind().execute("", 0)
        q.parse("", "QUEUE TAKE mail WAIT '20s'").bind().describe("P").execute().sync().push()
        parked(q)
        wait_for(lambda: servers(direct, db) == 0, "that no server is held")
        tag(other, "QUEUE PUSH mail '1'")
        got = q.until("Z")
        assert types(got) in ("CTDCZ", "12C12TDCZ") or types(got).endswith("DCZ"), got
        assert got[-1].status == "T"
        assert tag(q, "COMMIT") == "COMMIT"
        tag(q, "QUEUE DONE '%s'" % job_of(got)["token"])


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "END", "ABORT"])
def test_empty_blocks_need_no_server(q, direct, db, begin, end):
    begin(q)
    got = q.simple(end)
    assert got[0].tag in ("COMMIT", "ROLLBACK") and got[1].status == "I"
    got = q.simple(end)
    assert types(q.log[-3:]) == "NCZ" and got[-1].status == "I"


def test_isolation_level_of_a_deferred_begin(q):
    tag(q, "QUEUE PUSH mail '1'")
    q.simple("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY")
    job = take(q)
    assert q.rows("SHOW transaction_isolation") == [{"transaction_isolation": "serializable"}]
    assert error(q, "QUEUE DONE '%s'" % job["token"]).sqlstate == "25006"
    tag(q, "ROLLBACK")
    assert come_back(q)["attempt"] == "2"


def test_waits_in_a_row_in_one_deferred_block(qproxy, db, q):
    q.simple("BEGIN")
    with qproxy.wire(db) as other:
        for n in range(2):
            q.query("QUEUE TAKE mail WAIT '20s'")
            parked(q)
            tag(other, "QUEUE PUSH mail '%d'" % n)
            assert woken(q)["payload"] == str(n)
    tag(q, "COMMIT")
    assert stats(q)["leased"] == 2


# --- PUSH, DONE and the others in the client's transaction ----------------------------------------


@pytest.mark.parametrize("way", ["simple", "extended"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_everything_but_take_is_in_the_transaction(qproxy, db, q, way, end):
    def go(sql):
        if way == "simple":
            return tag(q, sql)
        got = q.hold().parse("", sql).bind().execute().sync().push().until("Z")
        assert "E" not in types(got), got
        return [m.tag for m in got if m.type == "C"][-1]

    with qproxy.wire(db) as other:
        tag(q, "QUEUE PUSH mail '1', '2', '3', '4', '5'")
        token = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 4")]
        before = sorted((r["id"], r["state"]) for r in peek(other))
        go("BEGIN")
        assert go("QUEUE PUSH mail '6'") == "INSERT 0 1"
        assert go("QUEUE DONE '%s'" % token[0]) == "UPDATE 1"
        assert go("QUEUE FAIL '%s' FINAL" % token[1]) == "UPDATE 1"
        assert go("QUEUE RELEASE '%s' DELAY '1 hour'" % token[2]) == "UPDATE 1"
        assert go("QUEUE CREATE another") == "CREATE TABLE"
        assert go("QUEUE ALTER mail SET (max_attempts = 3)") == "ALTER TABLE"
        assert len(peek(q)) == 5 and len(q.rows("QUEUE LIST")) == 2
        assert sorted((r["id"], r["state"]) for r in peek(other)) == before
        go(end)
        after = dict(ready=2, later=1, leased=1, dead=1)
        if end == "ROLLBACK":
            assert sorted((r["id"], r["state"]) for r in peek(other)) == before
            assert len(other.rows("QUEUE LIST")) == 1
            # the leases are still there
            assert tag(q, "QUEUE DONE '%s', '%s', '%s', '%s'" % tuple(token)) == "UPDATE 4"
        else:
            assert stats(other) == after
            assert other.rows("QUEUE LIST")[1]["max_attempts"] == "3"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_bare_ids_after_a_transaction(q, end):
    """A DONE that was rolled back leaves the lease where it was."""
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    tag(q, "BEGIN")
    assert tag(q, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"
    tag(q, end)
    if end == "ROLLBACK":
        assert tag(q, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"
    else:
        assert error(q, "QUEUE DONE %s" % job["id"]).sqlstate == "22023"
    assert peek(q) == []


def test_savepoints(q):
    tag(q, "QUEUE PUSH mail '0'")
    job = take(q)
    tag(q, "BEGIN")
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "SAVEPOINT a")
    tag(q, "QUEUE PUSH mail '2'")
    tag(q, "QUEUE DONE '%s'" % job["token"])
    tag(q, "ROLLBACK TO a")
    tag(q, "QUEUE PUSH mail '3'")
    tag(q, "RELEASE a")
    assert tag(q, "COMMIT") == "COMMIT"
    assert [r["payload"] for r in peek(q, state="ready")] == ["1", "3"]
    assert [r["payload"] for r in peek(q, state="leased")] == ["0"]
    # whoever holds it may still finish it
    assert tag(q, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    assert stats(q)["leased"] == 0


def test_done_rolled_back_to_a_savepoint_is_not_remembered(q):
    tag(q, "QUEUE PUSH mail '0'")
    job = take(q)
    tag(q, "BEGIN")
    tag(q, "SAVEPOINT a")
    tag(q, "QUEUE DONE '%s'" % job["token"])
    tag(q, "ROLLBACK TO a")
    tag(q, "COMMIT")
    tag(q, "QUEUE DONE '%s'" % job["token"])
    assert peek(q) == []


def test_deferred_constraint_fails_the_commit(qproxy, db, q):
    """Nothing is woken, what was taken in the block comes back."""
    tag(q, "CREATE TABLE p (a int PRIMARY KEY); CREATE TABLE r (a int REFERENCES p DEFERRABLE INITIALLY DEFERRED)")
    tag(q, "QUEUE PUSH mail '0'")
    tag(q, "QUEUE CREATE other")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE other WAIT '20s'")
        parked(w)
        tag(q, "BEGIN")
        job = take(q)
        tag(q, "INSERT INTO r VALUES (1)")
        tag(q, "QUEUE PUSH other '1'")
        tag(q, "QUEUE DONE '%s'" % job["token"])
        e = error(q, "COMMIT")
        assert e.sqlstate == "23503"
        assert come_back(q)["attempt"] == "2"
        # in one batch: CommandComplete of PUSH comes before the commit that fails
        q.hold().parse("", "INSERT INTO r VALUES (1)").bind().execute()
        q.parse("", "QUEUE PUSH other '1'").bind().execute().sync().push()
        got = q.until("Z")
        assert types(got) == "12C12CEZ" and got[-2].sqlstate == "23503"
        parked(w)
        assert stats(q, "other") == dict(ready=0, later=0, leased=0, dead=0)
        tag(q, "QUEUE PUSH other '2'")
        assert woken(w)["payload"] == "2"


# --- TAKE and the end of its transaction ----------------------------------------------------------


def rollback(q, proxy, db):
    tag(q, "ROLLBACK")


def abort_by_error(q, proxy, db):
    assert error(q, "SELECT 1/0").sqlstate == "22012"
    assert tag(q, "COMMIT") == "ROLLBACK"


def abort_by_queue_error(q, proxy, db):
    assert error(q, "QUEUE TAKE nosuch").sqlstate == "42P01"
    assert error(q, "QUEUE TAKE mail").sqlstate == "25P02"
    assert tag(q, "COMMIT") == "ROLLBACK"


def disconnect(q, proxy, db):
    q.close()


def reset(q, proxy, db):
    q.reset()


def goodbye(q, proxy, db):
    q.terminate()


@pytest.mark.parametrize("end", [rollback, abort_by_error, abort_by_queue_error, disconnect, reset, goodbye])
@pytest.mark.parametrize("kind", ["virtual", "open", "done in it"])
def test_take_is_given_back(qproxy, db, q, kind, end):
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as other:
        tag(q, "BEGIN")
        if kind == "open":
            tag(q, "SELECT 1")
        job = take(q)
        assert other.rows("QUEUE TAKE mail") == []
        if kind == "done in it":
            tag(q, "QUEUE DONE %s" % job["id"])
        end(q, qproxy, db)
        again = come_back(other)
        counted = end is not goodbye    # which is no failed attempt
        assert again["attempt"] == str(1 + counted) and again["id"] == job["id"]
        row = peek(other)[0]
        assert row["failures"] == str(int(counted))
        if end not in (disconnect, reset, goodbye):
            assert row["error"] == "transaction rolled back"
            e = error(q, "QUEUE DONE '%s'" % job["token"])
            assert e.sqlstate == "QB001"
        assert tag(other, "QUEUE DONE '%s'" % again["token"]) == "UPDATE 1"


@pytest.mark.parametrize("way", ["commit", "nothing else", "autocommit"])
def test_take_is_kept(qproxy, db, q, way):
    tag(q, "QUEUE PUSH mail '1'")
    if way != "autocommit":
        tag(q, "BEGIN")
    job = take(q)
    if way == "commit":
        tag(q, "SELECT 1")
    if way != "autocommit":
        assert tag(q, "COMMIT") == "COMMIT"
    tag(q, "BEGIN")
    tag(q, "ROLLBACK")
    assert stats(q) == dict(ready=0, later=0, leased=1, dead=0)
    assert tag(q, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"


def test_given_back_dead_at_the_last_attempt(q):
    tag(q, "QUEUE ALTER mail SET (max_attempts = 2)")
    tag(q, "QUEUE PUSH mail '1'")
    for _ in range(2):
        tag(q, "BEGIN")
        come_back(q)
        tag(q, "ROLLBACK")
    wait_for(lambda: stats(q)["dead"] == 1, "a dead job")


def test_waiter_gets_what_a_rollback_gives_back(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as w:
        tag(q, "BEGIN")
        take(q)
        w.query("QUEUE TAKE mail WAIT '20s'")
        parked(w)
        tag(q, "ROLLBACK")
        assert woken(w)["attempt"] == "2"


def test_take_does_not_see_its_own_push(q):
    tag(q, "BEGIN")
    tag(q, "QUEUE PUSH mail '1'")
    assert q.rows("QUEUE TAKE mail") == []
    tag(q, "COMMIT")
    assert take(q)["payload"] == "1"


def test_pop_in_a_block_is_autonomous(q):
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "BEGIN; SELECT 1")
    assert take(q, "QUEUE POP mail")["token"] is None
    tag(q, "ROLLBACK")
    assert peek(q) == []


# --- waking only after the commit -----------------------------------------------------------------


@pytest.mark.parametrize("begin", BEGINS)
def test_waiter_hears_after_the_commit_is_answered(qproxy, db, q, begin):
    """The job is not there before COMMIT is sent, and then without the help of a poll."""
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        begin(q)
        tag(q, "QUEUE PUSH mail '1'")
        for _ in range(4):
            parked(w)
            tag(q, "SELECT 1")
        parked(w)
        assert tag(q, "COMMIT") == "COMMIT"
        assert woken(w)["payload"] == "1"


def test_waiter_is_not_woken_by_a_rollback(qproxy, db, q):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        tag(q, "BEGIN")
        tag(q, "QUEUE PUSH mail '1'")
        tag(q, "ROLLBACK")
        parked(w, w, w)
        tag(q, "QUEUE PUSH mail '2'")
        assert woken(w)["payload"] == "2"


@pytest.mark.parametrize("how", ["string", "string with commit", "batch"])
def test_waiter_is_woken_by_other_ways_to_commit(qproxy, db, cluster, q, how):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        if how == "string":
            q.simple("SELECT 1; QUEUE PUSH mail '1'; SELECT 2")
        elif how == "string with commit":
            q.simple("BEGIN; QUEUE PUSH mail '1'; COMMIT")
        else:
            q.hold().parse("", "SELECT 1").bind().execute()
            q.parse("", "QUEUE PUSH mail $1").bind("", "", ["1"]).execute().sync().push()
            assert types(q.until("Z")) == "12DC12CZ"
        assert woken(w)["payload"] == "1"


# --- several statements in one string -------------------------------------------------------------


def test_string_is_one_transaction(q):
    tag(q, "CREATE TABLE t (a int)")
    got = q.simple("INSERT INTO t VALUES (1); QUEUE PUSH mail '1', '2' RETURNING ID; "
                   "QUEUE STATS mail -- comment\n; QUEUE PURGE mail; SELECT 'x;QUEUE TAKE mail'; /* ; */ ;")
    assert types(got) == "CTDDCTDCCTDCZ", got
    assert [m.tag for m in got if m.type == "C"] == ["INSERT 0 1", "INSERT 0 2", "SELECT 1", "DELETE 2", "SELECT 1"]
    for bad in ("QUEUE PUSH mail 'x'", "QUEUE DONE '1-1-0000000000000000'", "SELECT 1/0", "QUEUE NONSENSE",
                "QUEUE TAKE mail", "QUEUE POP mail", "QUEUE PUSH nosuch '1'"):
        got = q.simple("INSERT INTO t VALUES (2); QUEUE PUSH mail '1'; %s; INSERT INTO t VALUES (3)" % bad)
        assert types(got)[-2:] == "EZ" and got[-1].status == "I", (bad, got)
        assert q.rows("SELECT count(*) FROM t") == [{"count": "1"}], bad
        assert peek(q) == [], bad


def test_take_has_to_be_alone(q):
    tag(q, "QUEUE PUSH mail '1'")
    for sql in ("SELECT 1; QUEUE TAKE mail", "QUEUE TAKE mail; SELECT 1", "QUEUE TAKE mail; QUEUE TAKE mail",
                "BEGIN; QUEUE POP mail; SELECT 1"):
        e = error(q, sql)
        assert e.sqlstate == "0A000" and e.fields.get("H"), sql
    assert stats(q)["ready"] == 1
    assert take(q, " ; ; QUEUE TAKE mail ; ; ")["payload"] == "1"


def test_string_with_transaction_commands(q):
    got = q.simple("BEGIN; QUEUE PUSH mail '1'; ROLLBACK; QUEUE PUSH mail '2'; BEGIN; QUEUE PUSH mail '3'")
    assert got[-1].status == "T" and [m.tag for m in got if m.type == "C"] == [
        "BEGIN", "INSERT 0 1", "ROLLBACK", "INSERT 0 1", "BEGIN", "INSERT 0 1"]
    tag(q, "COMMIT")
    assert [r["payload"] for r in peek(q)] == ["2", "3"]


def test_string_behind_a_deferred_begin(q):
    q.simple("BEGIN")
    tag(q, "SELECT 1; QUEUE PUSH mail '1'; SELECT 2")
    tag(q, "ROLLBACK")
    assert peek(q) == []


@pytest.mark.parametrize("verb", ["RELEASE", "FAIL"])
def test_done_of_what_a_block_gave_back(q, verb):
    """Only a DONE may be repeated: a job that was given back in a transaction is not done."""
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    for sql in ("BEGIN", "QUEUE %s '%s'" % (verb, token), "COMMIT"):
        tag(q, sql)
    assert error(q, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
    assert len(peek(q)) == 1


def in_a_block(c, done, insert):
    tag(c, "BEGIN")
    tag(c, insert)
    got = c.query(done).until("Z")
    tag(c, "COMMIT")
    return got


def in_a_string(c, done, insert):
    return c.query("%s; %s" % (insert, done)).until("Z")


def in_a_batch(c, done, insert):
    c.hold().parse("", insert).bind().execute()
    return c.parse("", done).bind().execute().sync().push().until("Z")


def before_the_work(c, done, insert):
    c.hold().parse("", done).bind().execute()
    return c.parse("", insert).bind().execute().sync().push().until("Z")


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
@pytest.mark.parametrize("then", ["", " THEN TAKE mail", " THEN PUSH mail '2'"])
@pytest.mark.parametrize("how", [in_a_block, in_a_string, in_a_batch, before_the_work])
def test_work_is_done_once_with_its_done(qbouncer, db, pool_mode, then, how):
    """The answer to the commit got lost, and the whole of it is repeated."""
    if then == " THEN TAKE mail" and how in (in_a_string, before_the_work):
        pytest.skip("it is committed by itself, or refused")
    proxy = qbouncer(pool_mode=pool_mode)
    insert = "INSERT INTO work VALUES (1)"
    with proxy.wire(db) as c, proxy.wire(db) as other:
        tag(c, "CREATE TABLE work (a int)")
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        done = "QUEUE DONE '%s'%s" % (take(c)["token"], then)
        assert not [m for m in how(c, done, insert) if m.type == "E"]
        for w in (c, other):
            (failed,) = [m for m in how(w, done, insert) if m.type == "E"]
            assert failed.sqlstate == "QB001"
        assert c.rows("SELECT count(*) AS n FROM work")[0]["n"] == "1"


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
def test_done_is_repeated_by_itself(qbouncer, db, pool_mode):
    proxy = qbouncer(pool_mode=pool_mode)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        token = take(c)["token"]
        assert [tag(w, "QUEUE DONE '%s'" % token) for w in (c, c, other)] == ["UPDATE 1"] * 3
        got = other.hold().parse("", "QUEUE DONE $1").bind("", "", [token]).execute().sync().push().until("Z")
        assert [m.tag for m in got if m.type == "C"] == ["UPDATE 1"], got


# --- pipelines ------------------------------------------------------------------------------------


def test_pipeline_in_order(q):
    tag(q, "CREATE TABLE t (a int)")
    q.hold()
    q.parse("i", "INSERT INTO t VALUES ($1)").bind("", "i", ["1"]).execute()
    q.parse("p", "QUEUE PUSH mail $1").bind("", "p", ["1"]).execute()
    q.bind("", "i", ["2"]).execute().bind("", "p", ["2"]).execute()
    q.parse("", "QUEUE PUSH mail '3' RETURNING ID").bind().describe("P").execute()
    q.parse("", "SELECT count(*) FROM t").bind().execute().sync()
    q.parse("k", "QUEUE TAKE mail").bind("", "k").execute().bind("", "k").execute()
    q.parse("", "SELECT 'between'").bind().execute().bind("", "k").execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12C12C2C2C12TDC12DCZ", got
    got = q.until("Z")
    assert types(got) == "12DC2DC12DC2DCZ", got
    rows = [m.text_row for m in got if m.type == "D"]
    assert [r[4] if len(r) > 1 else r[0] for r in rows] == ["1", "2", "between", "3"]
    assert stats(q)["leased"] == 3


@pytest.mark.parametrize("bad", ["SELECT 1/(random()*0)::int", "QUEUE PUSH mail 'x'", "QUEUE TAKE nosuch",
                                 "QUEUE DONE '1-1-0000000000000000'", "QUEUE NONSENSE", "SELEKT",
                                 "QUEUE TAKE mail WAIT '1s'"])
def test_error_in_a_pipeline(q, bad):
    """All before it is undone, nothing behind it is done, up to Sync; what a TAKE got is given back."""
    tag(q, "CREATE TABLE t (a int)")
    tag(q, "QUEUE PUSH mail '0'")
    q.hold()
    q.parse("", "INSERT INTO t VALUES (1)").bind().execute()
    q.parse("", "QUEUE PUSH mail '1'").bind().execute()
    q.parse("", "QUEUE TAKE mail").bind().execute()
    q.parse("", bad).bind().execute()
    q.parse("", "QUEUE PUSH mail '2'").bind().execute()
    q.parse("", "QUEUE TAKE mail").bind().execute()
    q.parse("", "INSERT INTO t VALUES (2)").bind().execute()
    q.parse("named", "QUEUE LIST").sync().push()
    got = q.until("Z")
    assert types(got).replace("12E", "E").replace("1E", "E") == "12C12C12DCEZ", got
    assert got[-1].status == "I"
    job = come_back(q)
    assert job["payload"] == "0" and job["attempt"] == "2"
    assert len(peek(q)) == 1
    assert q.rows("SELECT count(*) FROM t") == [{"count": "0"}]
    got = q.hold().bind("", "named").sync().push().until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "26000"


def test_error_in_a_pipeline_without_other_statements(q):
    """Nothing but ours: no server is linked, the rule is the same."""
    tag(q, "QUEUE PUSH mail '0'")
    q.hold()
    q.parse("", "QUEUE TAKE mail").bind().execute()
    q.parse("", "QUEUE TAKE nosuch").bind().execute()
    q.parse("", "QUEUE TAKE mail").bind().execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12DC12EZ", got
    assert come_back(q)["attempt"] == "2"


def test_pushes_in_one_batch_are_one_transaction(q):
    q.hold()
    for n in ("1", "2", "x"):
        q.parse("", "QUEUE PUSH mail $1").bind("", "", [n]).execute()
    q.sync()
    q.parse("", "QUEUE PUSH mail $1").bind("", "", ["4"]).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12C12C12EZ" and got[-2].sqlstate == "22P02"
    assert types(q.until("Z")) == "12CZ"
    assert [r["payload"] for r in peek(q)] == ["4"]


def test_many_pipelined_pushes_and_takes(q):
    q.hold()
    for n in range(200):
        q.parse("", "QUEUE PUSH mail $1").bind("", "", [str(n)]).execute().sync()
    q.push()
    for n in range(200):
        assert types(q.until("Z")) == "12CZ"
    q.hold()
    for n in range(200):
        q.parse("", "QUEUE TAKE mail").bind().execute().sync()
    q.push()
    got = [job_of(q.until("Z"))["payload"] for n in range(200)]
    assert got == [str(n) for n in range(200)]


def test_simple_query_in_a_batch(q):
    """Query in the middle of a batch is legal. With PostgreSQL 18 it leaves the transaction of the batch open, and so does the
    Sync: what the batch has done is lost, and the server is given to nobody else."""
    q.hold().parse("", "QUEUE PUSH mail '1'").bind().execute().query("QUEUE STATS mail").sync().push()
    got = q.until("Z")
    assert types(got) == "12CTDCZ"
    assert got[-1].status == "I" or pg_major() >= 18
    left_open = got[-1].status == "T"
    got = q.until("Z")
    assert types(got) == "Z" and got[-1].status == "I"
    assert len(peek(q)) == (0 if left_open else 1)


# --- errors in a block ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad, state", [
    ("QUEUE PUSH mail 'x'", "22P02"), ("QUEUE PUSH nosuch '1'", "42P01"), ("QUEUE TAKE nosuch", "42P01"),
    ("QUEUE NONSENSE", "42601"), ("QUEUE DONE '1-1-0000000000000000'", "QB001"), ("QUEUE DONE 12345", "22023"),
    ("QUEUE TAKE mail WAIT 'x'", "22007"),
])
@pytest.mark.parametrize("kind", ["virtual", "open"])
@pytest.mark.parametrize("way", ["simple", "extended"])
def test_error_aborts_the_block(q, bad, state, kind, way):
    tag(q, "CREATE TABLE t (a int)")

    def go(sql):
        if way == "simple":
            return q.simple(sql)
        return q.hold().parse("", sql).bind().execute().sync().push().until("Z")

    go("BEGIN")
    if kind == "open":
        go("INSERT INTO t VALUES (1)")
    got = go(bad)
    assert [m.sqlstate for m in got if m.type == "E"] == [state] and got[-1].status == "E", got
    for sql in ("SELECT 1", "QUEUE PUSH mail '1'", "QUEUE TAKE mail", "QUEUE STATS mail", "INSERT INTO t VALUES (2)",
                "QUEUE LIST", "BEGIN", "SAVEPOINT a"):
        got = go(sql)
        assert [m.sqlstate for m in got if m.type == "E"] == ["25P02"], (sql, got)
        assert got[-1].status == "E"
    got = go("COMMIT")
    assert [m.tag for m in got if m.type == "C"] == ["ROLLBACK"] and got[-1].status == "I", got
    assert q.rows("SELECT count(*) FROM t") == [{"count": "0"}] and peek(q) == []


def test_savepoint_saves_from_our_error(q):
    tag(q, "BEGIN")
    tag(q, "QUEUE PUSH mail '1'")
    for bad in ("QUEUE NONSENSE", "QUEUE TAKE nosuch", "QUEUE PUSH mail 'x'", "QUEUE DONE 1"):
        tag(q, "SAVEPOINT a")
        with pytest.raises(PgError):
            tag(q, bad)
        tag(q, "ROLLBACK TO a")
    tag(q, "QUEUE PUSH mail '2'")
    assert tag(q, "COMMIT") == "COMMIT"
    assert [r["payload"] for r in peek(q)] == ["1", "2"]


@pytest.mark.parametrize("before", ["SELECT 1", "QUEUE PUSH mail '1'", "SAVEPOINT a", "SET LOCAL work_mem = '1MB'"])
def test_wait_behind_something(q, before):
    tag(q, "BEGIN")
    tag(q, before)
    e = error(q, "QUEUE TAKE mail WAIT '1s'")
    assert e.sqlstate == "25001" and e.fields.get("H")
    tag(q, "ROLLBACK")
    tag(q, "BEGIN")
    tag(q, before)
    assert q.rows("QUEUE TAKE mail") == [] and q.rows("QUEUE TAKE mail WAIT '0s'") == []
    assert tag(q, "COMMIT") == "COMMIT"


# --- session pooling ------------------------------------------------------------------------------


def test_session_pooling(qbouncer, db):
    """A client that holds its server all the time: the same rules."""
    proxy = qbouncer(pool_mode="session", queue_heartbeat="20ms", default_pool_size=3)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        tag(c, "QUEUE CREATE mail")
        tag(c, "CREATE TEMP TABLE mine (a int)")
        tag(c, "BEGIN; INSERT INTO mine VALUES (1); QUEUE PUSH mail '1'")
        assert other.rows("QUEUE TAKE mail") == []
        tag(c, "COMMIT")
        other.query("QUEUE TAKE mail WAIT '20s'")
        job = woken(other)
        other.query("QUEUE TAKE mail WAIT '20s'")
        parked(other)
        tag(c, "QUEUE PUSH mail '2'")
        assert woken(other)["payload"] == "2"
        c.query("QUEUE TAKE mail WAIT '20s'")
        parked(c)
        tag(other, "QUEUE RELEASE '%s'" % job["token"])
        assert woken(c)["payload"] == "1"
        assert tag(c, "SELECT * FROM mine") == "SELECT 1"
        c.hold().parse("s", "QUEUE PUSH mail $1").bind("", "s", ["3"]).execute().sync().push()
        assert types(c.until("Z")) == "12CZ"
        c.hold().parse("", "QUEUE TAKE mail WAIT '1s'").bind(results=[1]).execute().sync().push()
        assert types(c.until("Z")) == "12DCZ"


# --- drivers --------------------------------------------------------------------------------------


def test_psycopg_pipeline(qproxy, db, q):
    with qproxy.connect(db) as conn:
        with conn.pipeline():
            cur = [conn.execute("QUEUE PUSH mail %s", (str(n),)) for n in range(20)]
        assert all(c.rowcount == 1 for c in cur)
        with conn.pipeline() as p:
            cur = [conn.execute("QUEUE TAKE mail") for _ in range(20)]
            p.sync()
            assert [c.fetchone()[4] for c in cur] == list(range(20))
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            with conn.pipeline():
                conn.execute("QUEUE PUSH mail %s", ("1",))
                conn.execute("QUEUE PUSH mail %s", ("x",))
        assert stats(q)["ready"] == 0


def test_psycopg_transactions(qproxy, db, q):
    with qproxy.connect(db, autocommit=False) as conn:
        conn.execute("QUEUE PUSH mail '1'")
        conn.commit()
        row = conn.execute("QUEUE TAKE mail WAIT '10s'").fetchone()
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            conn.execute("QUEUE DONE %s", (row[1],))
        conn.rollback()
        row = wait_for(lambda: conn.execute("QUEUE TAKE mail WAIT '10s'").fetchone(), "the job")
        assert row[3] == 2
        with conn.transaction():
            conn.execute("QUEUE PUSH mail '2'")
        try:
            with conn.transaction():
                conn.execute("QUEUE PUSH mail '3'")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        conn.execute("QUEUE DONE %s", (row[1],))
        conn.commit()
        assert [r["payload"] for r in peek(q)] == ["2"]


def test_commit_prepared_wakes(qproxy, db, q):
    """What was pushed is there when the second phase has come, whoever says it."""
    with qproxy.wire(db) as w, qproxy.wire(db) as other:
        w.query("QUEUE TAKE mail WAIT '60s'")
        parked(w)
        for end in ("ROLLBACK", "COMMIT"):
            tag(q, "BEGIN")
            tag(q, "QUEUE PUSH mail '\"%s\"'" % end)
            assert tag(q, "PREPARE TRANSACTION 'second'") == "PREPARE TRANSACTION"
            parked(w)
            assert tag(other, "%s PREPARED 'second'" % end) == end + " PREPARED"
        assert woken(w)["payload"] == '"COMMIT"'


@pytest.mark.parametrize("sql", ["QUEUE PUSH mail $1", "QUEUE DONE $1"])
def test_queue_dropped_behind_the_snapshot(q, qproxy, db, sql):
    """In the snapshot it is there, its functions are not: that is a conflict like others, and the next try sees the new one."""
    tag(q, "QUEUE PUSH mail '1'")
    value = take(q)["token"] if "DONE" in sql else "2"
    with qproxy.wire(db) as other:
        tag(other, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.rows("SELECT count(*) FROM queue.queues")
        for statement in "DROP mail", "CREATE mail":
            tag(q, "QUEUE " + statement)
        other.rows("SELECT count(*) FROM pg_language") # with a new lock a backend hears of what has been dropped
        got = other.hold().parse("", sql).bind("", "", [value]).execute().sync().push().until("Z")
        (e,) = [m for m in got if m.type == "E"]
        assert (e.sqlstate, e.fields["H"]) == ("40001", "Repeat the transaction.")
        tag(other, "ROLLBACK")
        if "PUSH" in sql:
            assert tag(other, "QUEUE PUSH mail '2'") == "INSERT 0 1"


# --- what others' transactions are in the way of -----------------------------------------------------

# A sequence is not rolled back: the first that changes jobs is told of a deadlock, and so are the next ones when they commit.
IN_THE_WAY = """
CREATE SEQUENCE tries;
GRANT USAGE ON SEQUENCE tries TO PUBLIC;
CREATE FUNCTION in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (CASE TG_NAME WHEN 'at_once' THEN nextval('public.tries') = 1 ELSE currval('public.tries') <= 3 END) THEN
        RAISE 'deadlock detected' USING ERRCODE = '40P01';
    END IF;
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER at_once BEFORE INSERT OR UPDATE OR DELETE ON queue.q_mail FOR EACH ROW EXECUTE FUNCTION in_the_way();
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE OR DELETE ON queue.q_mail DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION in_the_way();
"""


def owned(direct):
    """The proxy has said of what is leased that it is its own, if it was not known by then."""
    wait_for(lambda: direct.execute("SELECT count(*) FROM queue.q_mail WHERE state = 'leased' AND proxy IS NULL").fetchone()[0] == 0,
             "that its lease is the proxy's")


# What is there before: the first is taken, the second is dead, the third is ready.
OTHERS = [("2", "dead"), ("3", "ready")]


@pytest.mark.parametrize("sql, ends, left", [
    ("QUEUE FAIL '{token}' ERROR 'no'", "UPDATE 1", [("1", "later"), *OTHERS]),
    ("QUEUE RELEASE '{token}'", "UPDATE 1", [("1", "ready"), *OTHERS]),
    ("QUEUE EXTEND '{token}'", "UPDATE 1", [("1", "leased"), *OTHERS]),
    ("QUEUE DONE '{token}'", "UPDATE 1", OTHERS),
    ("QUEUE DONE '{token}' RESULT '1'", "UPDATE 1", OTHERS),
    ("QUEUE DONE '{token}' THEN PUSH mail '4' RETURNING ID", "INSERT 0 1", [*OTHERS, ("4", "ready")]),
    ("QUEUE DONE '{token}' KEEP", "UPDATE 1", OTHERS),
    ("QUEUE CANCEL '{token}'", "UPDATE 1", [("1", "leased"), *OTHERS]),
    ("QUEUE ALTER JOB 3 ON mail SET (priority = 2)", "UPDATE 1", [("1", "leased"), *OTHERS]),
    ("QUEUE RERUN 2 ON mail", "UPDATE 1", [("1", "leased"), ("2", "ready"), ("3", "ready")]),
    ("QUEUE REDRIVE mail", "UPDATE 1", [("1", "leased"), ("2", "ready"), ("3", "ready")]),
    ("QUEUE PURGE mail", "DELETE 2", [("1", "leased")]),
    ("QUEUE PUSH mail '4' BATCH 'b'", "INSERT 0 1", [("1", "leased"), *OTHERS, ("4", "ready")]),
    ("QUEUE PUSH mail '4' KEY 'k' FOR '1 h'", "INSERT 0 1", [("1", "leased"), *OTHERS, ("4", "ready")]),
    ("QUEUE PUSH mail '4' RETURNING JOB", "INSERT 0 1", [("1", "leased"), *OTHERS, ("4", "ready")])])
def test_a_deadlock_is_repeated(qproxy, db, q, direct, sql, ends, left):
    """Each verb, when it is its own transaction, and it is carried out once; in a client's it is the client's."""
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    token, other = [r["token"] for r in sorted(q.rows("QUEUE TAKE mail LIMIT 2"), key=lambda r: int(r["id"]))]
    tag(q, "QUEUE FAIL '%s' FINAL" % other)
    owned(direct)
    direct.execute(IN_THE_WAY)
    tag(q, "BEGIN")
    assert error(q, sql.format(token=token)).sqlstate == "40P01"
    tag(q, "ROLLBACK")
    direct.execute("ALTER SEQUENCE tries RESTART")
    assert tag(q, sql.format(token=token)) == ends
    assert direct.execute("SELECT last_value FROM tries").fetchone()[0] > 2
    assert direct.execute("SELECT payload::text, state FROM queue.q_mail ORDER BY 1").fetchall() == left


def test_a_deadlock_is_repeated_with_its_formats(q, direct):
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    owned(direct)
    direct.execute(IN_THE_WAY)
    q.hold().parse("", "QUEUE DONE $1 THEN PUSH mail $2 RETURNING ID").bind("", "", (token, "2"), results=(1,)).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12DCZ" and int.from_bytes(got[2].row[0], "big") > 1
    assert direct.execute("SELECT last_value, (SELECT count(*) FROM queue.q_mail) FROM tries").fetchone()[1] == 1
