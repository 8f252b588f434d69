"""The QUEUE language through the proxy: rows, tags, errors, transactions, waits, leases."""

import json
import struct
import time

import psycopg
import pytest

from pgwire import PgError, cancel, types
from proxy import wait_for
from queuetest import JOB_COLUMNS, error, tag, take


@pytest.fixture
def q(proxy, db):
    """A raw connection and the queue `mail`."""
    with proxy.wire(db) as c:
        c.rows("QUEUE CREATE mail")
        yield c


def waiting(proxy, n=1):
    wait_for(lambda: len(proxy.console("SHOW WAITERS")) == n, "%d waiters" % n)


def take_back(c):
    """A job for which the look of one who has gone may still be under way, which takes it and gives it back."""
    return take(c, "QUEUE TAKE mail WAIT '30s'")


# --- verbs, rows, tags ----------------------------------------------------------------------------


def test_the_path_of_a_job(q):
    assert tag(q, "QUEUE PUSH mail '{\"to\": \"a\"}'") == "INSERT 0 1"
    got = q.simple("QUEUE TAKE mail")
    assert types(got) == "TDCZ" and got[2].tag == "SELECT 1"
    assert [(n, o) for n, o, _ in got[0].columns] == JOB_COLUMNS
    job = dict(zip([n for n, _ in JOB_COLUMNS], got[1].text_row))
    assert json.loads(job["payload"]) == {"to": "a"}
    assert job["queue"] == "mail" and job["attempt"] == "1" and job["priority"] == "0"
    assert tag(q, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    assert q.rows("QUEUE TAKE mail") == []
    assert tag(q, "QUEUE TAKE mail") == "SELECT 0"


def test_push(q):
    assert tag(q, "QUEUE PUSH mail '1', '2', '3'") == "INSERT 0 3"
    rows = q.rows("QUEUE PUSH mail '4', '5' RETURNING ID")
    assert len(rows) == 2 and int(rows[0]["id"]) < int(rows[1]["id"])
    assert tag(q, "QUEUE PUSH mail '6' RETURNING ID") == "INSERT 0 1"
    tag(q, "QUEUE PUSH mail '\"first\"' PRIORITY 9 HEADERS '{\"trace\": 1}'")
    job = take(q)
    assert job["payload"] == '"first"' and job["priority"] == "9"
    assert json.loads(job["headers"]) == {"trace": 1}
    assert [r["payload"] for r in q.rows("QUEUE TAKE mail LIMIT 10")] == list("123456")


def test_push_delayed(q):
    tag(q, "QUEUE PUSH mail '1' DELAY '1 hour'")
    tag(q, "QUEUE PUSH mail '2' AT '2100-01-01'")
    tag(q, "QUEUE PUSH mail '3' DELAY '-1 hour'")
    assert take(q)["payload"] == "3"
    assert q.rows("QUEUE TAKE mail") == []
    assert q.rows("QUEUE STATS mail")[0]["later"] == "2"


def test_several_queues(q):
    tag(q, "QUEUE CREATE urgent")
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "QUEUE PUSH urgent '2'")
    assert take(q, "QUEUE TAKE urgent, mail")["payload"] == "2"
    assert take(q, "QUEUE TAKE urgent, mail")["payload"] == "1"


def test_pop(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    job = take(q, "QUEUE POP mail")
    assert job["payload"] == "1" and job["token"] is None and job["lease_until"] is None
    assert len(q.rows("QUEUE POP mail LIMIT 5")) == 1
    assert q.rows("QUEUE STATS mail")[0]["leased"] == "0"


def test_fail_retry_and_dead(q):
    tag(q, "QUEUE CREATE once WITH (max_attempts = 2, retry = 'fixed 1h')")
    tag(q, "QUEUE PUSH once '1'")
    job = take(q, "QUEUE TAKE once")
    assert tag(q, "QUEUE FAIL '%s' ERROR 'no luck' RETRY IN '0s'" % job["token"]) == "UPDATE 1"
    job = take(q, "QUEUE TAKE once")
    assert job["attempt"] == "2"
    tag(q, "QUEUE FAIL '%s' ERROR 'again'" % job["token"])
    stats = q.rows("QUEUE STATS once")[0]
    assert stats["dead"] == "1" and stats["ready"] == "0"
    dead = q.rows("QUEUE PEEK once STATE dead")[0]
    assert dead["error"] == "again" and dead["state"] == "dead"


def test_release_is_not_an_attempt(q):
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "QUEUE RELEASE '%s'" % take(q)["token"])
    job = take(q)
    assert job["attempt"] == "1"


def test_extend(q):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q, "QUEUE TAKE mail LEASE '1 min'")
    assert tag(q, "QUEUE EXTEND '%s' LEASE '1 hour'" % job["token"]) == "UPDATE 1"
    after = q.rows("QUEUE PEEK mail STATE leased")[0]["lease_until"]
    assert after > job["lease_until"]


def test_inspection(q):
    assert [r["queue"] for r in q.rows("QUEUE LIST")] == ["mail"]
    assert tag(q, "QUEUE LIST") == "SELECT 1"
    tag(q, "QUEUE ALTER mail SET (lease = '7 min')")
    assert q.rows("QUEUE LIST")[0]["lease"] in ("7 min", "00:07:00", "7 mins")
    tag(q, "QUEUE PUSH mail '1', '2'")
    assert len(q.rows("QUEUE PEEK mail LIMIT 1")) == 1
    assert tag(q, "QUEUE PURGE mail") == "DELETE 2"
    assert tag(q, "QUEUE DROP mail") == "DROP TABLE"
    assert q.rows("QUEUE LIST") == []
    assert tag(q, "QUEUE DROP mail IF EXISTS") == "DROP TABLE"
    assert len(q.rows("QUEUE HELP")) >= 14
    assert "WAIT" in q.rows("QUEUE HELP TAKE")[0]["usage"]


def test_names(q):
    """Identifiers fold, quoted ones and literals do not."""
    tag(q, 'QUEUE CREATE "Odd ""Name"" of 40"')
    tag(q, "QUEUE PUSH 'Odd \"Name\" of 40' '1'")
    assert take(q, 'QUEUE TAKE "Odd ""Name"" of 40"')["queue"] == 'Odd "Name" of 40'
    tag(q, "QUEUE PUSH MAIL '2'")
    assert take(q, "queue take Mail")["payload"] == "2"
    tag(q, 'QUEUE CREATE "limit"')
    tag(q, 'QUEUE PUSH "limit" \'3\'')
    assert take(q, 'QUEUE TAKE "limit" LIMIT 1')["payload"] == "3"


@pytest.mark.parametrize("sql", [
    "/* a /* nested */ comment */ QUEUE PUSH mail '1'", "-- comment\nqueue push mail '1'",
    "\t;; QuEuE\nPUSH\rmail /* here */ '1' ;", "QUEUE PUSH mail $$1$$", "QUEUE PUSH mail E'\\x31'",
    "QUEUE PUSH mail U&'\\0031'", "QUEUE PUSH mail ('1'::text)", "QUEUE PUSH mail $t$1$t$",
])
def test_ways_to_write(q, sql):
    assert tag(q, sql) == "INSERT 0 1"
    assert take(q)["payload"] == "1"


INJECTIONS = ["'); DROP TABLE victim; --", "\\'); DROP TABLE victim; --", "$1", "';", "\\", "$$", "\u2019"]


@pytest.mark.parametrize("text", INJECTIONS)
def test_injection(q, text):
    """What stands in a literal stays in it: names, payloads, headers, tokens, options, errors."""
    q.simple("CREATE TABLE victim (a int)")
    lit = text.replace("'", "''")
    payload = json.dumps({"x": text}).replace("'", "''")
    tag(q, "QUEUE PUSH mail '%s' HEADERS '%s'" % (payload, payload))
    job = take(q)
    assert json.loads(job["payload"]) == {"x": text} == json.loads(job["headers"])
    tag(q, "QUEUE FAIL '%s' ERROR '%s' FINAL" % (job["token"], lit))
    assert q.rows("QUEUE PEEK mail STATE dead")[0]["error"] == text
    error(q, "QUEUE DONE '%s'" % lit)
    error(q, "QUEUE TAKE '%s'" % lit)
    error(q, "QUEUE CREATE bad WITH (durability = '%s')" % lit)
    tag(q, "QUEUE CREATE '%s'" % lit)
    tag(q, "QUEUE PUSH '%s' '1'" % lit)
    assert take(q, "QUEUE TAKE '%s' AS '%s'" % (lit, lit))["queue"] == text
    assert q.rows("SELECT count(*) FROM victim") == [{"count": "0"}]


ERRORS = [
    ("QUEUE", "42601"), ("QUEUE NONSENSE", "42601"), ("QUEUE PUSH", "42601"),
    ("QUEUE PUSH mail", "42601"), ("QUEUE TAKE mail LIMIT", "42601"),
    ("QUEUE TAKE mail WAIT '1s' WAIT '2s'", "42601"), ("QUEUE TAKE mail NONSENSE 1", "42601"),
    ("QUEUE TAKE mail LIMIT 1 x", "42601"), ("QUEUE PUSH mail 'x", "42601"),
    ("QUEUE PUSH mail '1' DELAY '1s' AT 'now'", "42601"),
    ("QUEUE TAKE nosuch", "42P01"), ("QUEUE PUSH nosuch '1'", "42P01"), ("QUEUE DROP nosuch", "42P01"),
    ("QUEUE CREATE mail", "42P07"), ("QUEUE PUSH mail 'not json'", "22P02"),
    ("QUEUE PUSH mail NULL", "22004"), ("QUEUE CREATE x WITH (nonsense = 1)", "22023"),
    ("QUEUE CREATE x WITH (max_attempts = 'many')", "22023"), ("QUEUE DONE 'nonsense'", "22023"),
    ("QUEUE DONE 123456", "22023"), ("QUEUE DONE '1-1-0000000000000000'", "QB001"),
    ("QUEUE TAKE mail WAIT 'soon'", "22007"), ("QUEUE TAKE mail LIMIT 0", "22023"),
    ("QUEUE CREATE \"\"", "42602"), ("QUEUE CREATE " + "x" * 41, "42622"),
]


@pytest.mark.parametrize("sql, state", ERRORS)
def test_errors(q, sql, state):
    e = error(q, sql)
    assert e.sqlstate == state, e.fields
    assert e.fields["S"] == "ERROR"
    assert tag(q, "QUEUE PUSH mail '1'") == "INSERT 0 1" # the session lives
    # the same through the extended protocol
    got = q.hold().parse("", sql).bind().describe("P").execute().sync().push().until("Z")
    states = [m.sqlstate for m in got if m.type == "E"]
    assert states == [state]


def test_position_and_hint(q):
    e = error(q, "QUEUE TAKE mail LIMTI 5")
    assert e.fields["P"] == "17"
    assert "LIMIT" in e.fields["H"]
    e = error(q, "QUEUE TAKE nosuch")
    assert e.fields["H"] == "Create it with: QUEUE CREATE nosuch;"
    e = error(q, "QUEUE DROP nosuch")
    assert e.fields["H"] == "QUEUE LIST shows the queues that there are; QUEUE DROP ... IF EXISTS is no error."
    e = error(q, "QUEUE TAEK mail")
    assert "TAKE" in e.fields["H"]


def test_hidden_queue_is_not_ours(q):
    for sql in ("EXPLAIN QUEUE TAKE mail", "PREPARE x AS QUEUE TAKE mail", "SELECT QUEUE",
                "DECLARE c CURSOR FOR QUEUE TAKE mail"):
        assert error(q, sql).sqlstate in ("42601", "42703")
    q.simple("CREATE TABLE queues (a int)")
    assert tag(q, "TABLE queues") == "SELECT 0"


# --- transactions ---------------------------------------------------------------------------------


def test_push_belongs_to_the_transaction(proxy, db, q):
    with proxy.wire(db) as other:
        q.simple("CREATE TABLE t (a int)")
        q.simple("BEGIN")
        q.simple("INSERT INTO t VALUES (1)")
        tag(q, "QUEUE PUSH mail '1'")
        assert other.rows("QUEUE TAKE mail") == []
        q.simple("ROLLBACK")
        assert other.rows("QUEUE TAKE mail") == []
        q.simple("BEGIN")
        q.simple("INSERT INTO t VALUES (1)")
        tag(q, "QUEUE PUSH mail '2'")
        assert other.rows("QUEUE TAKE mail") == []
        q.simple("COMMIT")
        assert take(other)["payload"] == "2"


def test_savepoints(q):
    q.simple("BEGIN")
    tag(q, "QUEUE PUSH mail '1'")
    q.simple("SAVEPOINT s")
    tag(q, "QUEUE PUSH mail '2'")
    assert error(q, "QUEUE PUSH mail 'x'").sqlstate == "22P02"
    assert error(q, "QUEUE PUSH mail '3'").sqlstate == "25P02"
    assert error(q, "QUEUE TAKE mail").sqlstate == "25P02"
    q.simple("ROLLBACK TO s")
    tag(q, "QUEUE PUSH mail '4'")
    q.simple("COMMIT")
    assert [r["payload"] for r in q.rows("QUEUE TAKE mail LIMIT 5")] == ["1", "4"]


def test_done_belongs_to_the_transaction(proxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    q.simple("BEGIN")
    tag(q, "QUEUE DONE '%s'" % token)
    q.simple("ROLLBACK")
    assert q.rows("QUEUE STATS mail")[0]["leased"] == "1"
    tag(q, "QUEUE DONE '%s'" % token)
    assert q.rows("QUEUE STATS mail")[0]["leased"] == "0"


def test_take_in_a_transaction_that_rolls_back(proxy, db, q):
    """The job is given back, as a failed attempt."""
    tag(q, "QUEUE PUSH mail '1'")
    with proxy.wire(db) as other:
        q.simple("BEGIN")
        q.simple("SELECT 1")
        assert take(q)["attempt"] == "1"
        assert other.rows("QUEUE TAKE mail") == []
        q.simple("ROLLBACK")
        job = wait_for(lambda: other.rows("QUEUE TAKE mail"), "the job comes back")[0]
        assert job["attempt"] == "2"
        assert other.rows("QUEUE PEEK mail STATE leased")[0]["error"] == "transaction rolled back"


def test_take_in_a_transaction_that_commits(q):
    tag(q, "QUEUE PUSH mail '1'")
    q.simple("BEGIN")
    q.simple("SELECT 1")
    job = take(q)
    q.simple("COMMIT")
    tag(q, "QUEUE DONE '%s'" % job["token"])


def test_begin_then_take_wait(proxy, db, q):
    """As drivers without autocommit do it: no server is held while it waits."""
    with proxy.wire(db) as other:
        assert q.simple("BEGIN")[-1].status == "T"
        q.query("QUEUE TAKE mail WAIT '20s'")
        waiting(proxy)
        proxy.wait_pool(db, sv_active=0)
        tag(other, "QUEUE PUSH mail '1'")
        got = q.until("Z")
        assert types(got) == "TDCZ" and got[-1].status == "T"
        token = got[1].text_row[1]
        q.simple("SELECT 1")
        tag(q, "QUEUE DONE '%s'" % token)
        assert q.simple("COMMIT")[0].tag == "COMMIT"


def test_wait_behind_other_statements(q):
    q.simple("BEGIN")
    q.simple("SELECT 1")
    e = error(q, "QUEUE TAKE mail WAIT '1s'")
    assert e.sqlstate == "25001" and e.fields.get("H")
    q.simple("ROLLBACK")
    assert tag(q, "QUEUE TAKE mail WAIT '10ms'") == "SELECT 0"


def test_several_statements_in_one_string(q):
    q.simple("CREATE TABLE t (a int)")
    got = q.simple("INSERT INTO t VALUES (1); QUEUE PUSH mail '1'; SELECT 2; QUEUE PUSH mail '3' RETURNING ID")
    assert types(got) == "CCTDCTDCZ", got
    assert [m.tag for m in got if m.type == "C"] == ["INSERT 0 1", "INSERT 0 1", "SELECT 1", "INSERT 0 1"]
    got = q.simple("INSERT INTO t VALUES (2); QUEUE PUSH mail 'x'; SELECT 2")
    assert types(got) == "CEZ" and got[1].sqlstate == "22P02"
    assert q.rows("SELECT count(*) FROM t") == [{"count": "1"}]
    e = error(q, "SELECT 1; QUEUE TAKE mail")
    assert e.sqlstate == "0A000" and e.fields.get("H")
    assert len(q.rows("QUEUE TAKE mail LIMIT 9")) == 2


# --- waiting --------------------------------------------------------------------------------------


def test_wait_wakes_at_the_commit(proxy, db, q):
    with proxy.wire(db) as w:
        w.query("QUEUE TAKE mail WAIT '20s'")
        waiting(proxy)
        q.simple("BEGIN")
        q.simple("SELECT 1")
        tag(q, "QUEUE PUSH mail '1'")
        assert w.silent(0.3)
        started = time.monotonic()
        q.simple("COMMIT")
        got = w.until("Z")
        assert types(got) == "TDCZ"
        assert time.monotonic() - started < 5 # not by the safety poll
    waiting(proxy, 0)


def test_wait_ends_without_a_job(q):
    started = time.monotonic()
    got = q.simple("QUEUE TAKE mail WAIT '300ms'")
    assert types(got) == "TCZ" and got[1].tag == "SELECT 0"
    assert 0.29 < time.monotonic() - started


def test_waiting_holds_no_server(qbouncer, db):
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        workers = [proxy.wire(db) for _ in range(50)]
        for w in workers:
            w.query("QUEUE TAKE mail WAIT '30s'")
        waiting(proxy, 50)
        proxy.wait_pool(db, sv_active=0)  # a look for jobs may be under way
        assert types(c.simple("SELECT 1")) == "TDCZ"
        tag(c, "QUEUE PUSH mail " + ", ".join("'%d'" % i for i in range(50)))
        got = sorted(int(w.until("Z")[1].text_row[4]) for w in workers)
        assert got == list(range(50))
        for w in workers:
            w.close()


def test_waiters_are_served_in_order(proxy, db, q):
    workers = []
    for i in range(6):
        w = proxy.wire(db)
        w.query("QUEUE TAKE mail WAIT '30s'")
        waiting(proxy, i + 1)
        workers.append(w)
    for i, w in enumerate(workers):
        tag(q, "QUEUE PUSH mail '%d'" % i)
        assert next(m for m in w.until("Z") if m.type == "D").text_row[4] == str(i)
        w.terminate()


def test_cancel_while_waiting(proxy, q):
    q.query("QUEUE TAKE mail WAIT '30s'")
    waiting(proxy)
    cancel(q)
    got = q.until("Z")
    assert types(got)[-2:] == "EZ" and got[-2].sqlstate == "57014"
    waiting(proxy, 0)
    tag(q, "QUEUE PUSH mail '1'")
    assert take_back(q)["payload"] == "1"


@pytest.mark.parametrize("how", ["close", "reset", "terminate"])
def test_going_away_while_waiting(proxy, db, q, how):
    w = proxy.wire(db)
    w.query("QUEUE TAKE mail WAIT '30s'")
    waiting(proxy)
    getattr(w, how)()
    waiting(proxy, 0)
    tag(q, "QUEUE PUSH mail '1'")
    assert take_back(q)["attempt"] == "1"


def test_push_by_sql_wakes(proxy, db, direct, q):
    """A push that did not pass through the proxy: LISTEN, not the safety poll alone."""
    q.query("QUEUE TAKE mail WAIT '20s'")
    waiting(proxy)
    direct.execute("SELECT queue.push('mail', '{\"by\": \"sql\"}')")
    got = q.until("Z")
    assert types(got) == "TDCZ" and "sql" in got[1].text_row[4]


def test_delayed_job_wakes(q):
    started = time.monotonic()
    tag(q, "QUEUE PUSH mail '1' DELAY '400ms'")
    got = q.simple("QUEUE TAKE mail WAIT '20s'")
    assert types(got) == "TDCZ"
    assert 0.39 < time.monotonic() - started


def test_end_of_a_lease_wakes(proxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    first = take(q, "QUEUE TAKE mail LEASE '400ms'")
    with proxy.wire(db) as w:
        job = take(w, "QUEUE TAKE mail WAIT '20s'")
        assert job["id"] == first["id"] and job["attempt"] == "2"
        e = error(q, "QUEUE DONE '%s'" % first["token"])
        assert e.sqlstate == "QB001"
        tag(w, "QUEUE DONE '%s'" % job["token"])


def test_shutdown_ends_waits(proxy, db, q):
    q.query("QUEUE TAKE mail WAIT '60s'")
    waiting(proxy)
    proxy.console("SHUTDOWN WAIT_FOR_SERVERS")
    got = q.closed()
    assert "TCZ" in types(got), got
    wait_for(lambda: proxy.process.poll() is not None, "the end")


# --- leases ---------------------------------------------------------------------------------------


def test_bare_id_on_the_connection_that_took_it(proxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    with proxy.wire(db) as other:
        e = error(other, "QUEUE DONE %s" % job["id"])
        assert e.sqlstate == "22023" and "token" in e.fields["H"]
    assert tag(q, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_broken_connection_gives_back(proxy, db, q, how):
    tag(q, "QUEUE PUSH mail '1'")
    w = proxy.wire(db)
    first = take(w)
    q.query("QUEUE TAKE mail WAIT '20s'")
    waiting(proxy)
    started = time.monotonic()
    getattr(w, how)()
    got = q.until("Z")
    assert time.monotonic() - started < 5 # not when the lease ends, nor by the safety poll
    assert got[1].text_row[0] == first["id"] and got[1].text_row[3] == "2"
    assert error(q, "QUEUE DONE '%s'" % first["token"]).sqlstate == "QB001"


def test_goodbye_keeps_the_lease(proxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    w = proxy.wire(db)
    job = take(w)
    w.terminate()
    proxy.wait_pool(db, cl_active=1)
    assert q.rows("QUEUE TAKE mail") == []
    assert tag(q, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"


def test_on_disconnect_keep(proxy, db, q):
    tag(q, "QUEUE ALTER mail SET (on_disconnect = keep)")
    tag(q, "QUEUE PUSH mail '1'")
    with proxy.wire(db) as w:
        job = take(w)
    proxy.wait_pool(db, cl_active=1)
    assert q.rows("QUEUE TAKE mail") == []
    tag(q, "QUEUE DONE '%s'" % job["token"])


def test_done_twice(q):
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    tag(q, "QUEUE DONE '%s'" % token)
    try: # by the proxy's memory of it, or QB001: but never another effect
        tag(q, "QUEUE DONE '%s'" % token)
    except PgError as e:
        assert e.sqlstate == "QB001"


def test_job_that_could_not_be_delivered(proxy, db, q):
    """The worker dies in the moment of the push: the job is not lost and not counted for long."""
    for i in range(10):
        w = proxy.wire(db)
        w.query("QUEUE TAKE mail WAIT '30s'")
        waiting(proxy)
        q.query("QUEUE PUSH mail '%d'" % i)
        w.reset()
        q.until("Z")
        job = wait_for(lambda: q.rows("QUEUE TAKE mail"), "the job")[0]
        assert job["payload"] == str(i)
        tag(q, "QUEUE DONE '%s'" % job["token"])


# --- the extended protocol ------------------------------------------------------------------------


def test_parameters(q):
    q.hold().parse("push", "QUEUE PUSH mail $1 PRIORITY $2").describe("S", "push").sync().push()
    got = q.until("Z")
    assert types(got) == "1tnZ" and len(got[1].oids) == 2
    for i in range(3):
        q.hold().bind("", "push", ['{"n": %d}' % i, "5"]).execute().sync().push()
        got = q.until("Z")
        assert types(got) == "2CZ" and got[1].tag == "INSERT 0 1"
    q.hold().parse("take", "QUEUE TAKE $1 LIMIT $2 WAIT $3").describe("S", "take").sync().push()
    got = q.until("Z")
    assert types(got) == "1tTZ" and [(n, o) for n, o, _ in got[2].columns] == JOB_COLUMNS
    q.hold().bind("", "take", ["mail", "2", "1s"]).describe("P").execute().sync().push()
    got = q.until("Z")
    assert types(got) == "2TDDCZ" and got[-2].tag == "SELECT 2"
    tokens = [m.text_row[1] for m in got if m.type == "D"]
    q.hold().parse("", "QUEUE DONE $1, $2", [25, 25]).bind("", "", tokens).execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12CZ" and got[2].tag == "UPDATE 2"


def test_binary(q):
    tag(q, "QUEUE PUSH mail '{\"a\": 1}' PRIORITY 3")
    q.hold().parse("", "QUEUE TAKE mail").bind(results=[1]).describe("P").execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12TDCZ"
    assert all(fmt == 1 for _, _, fmt in got[2].columns)
    row = got[3].row
    assert struct.unpack("!q", row[0])[0] > 0
    assert row[2] == b"mail" and struct.unpack("!i", row[3]) == (1,)
    assert row[4][:1] == b"\1" and json.loads(row[4][1:]) == {"a": 1}
    assert struct.unpack("!i", row[8]) == (3,)
    assert abs(struct.unpack("!q", row[9])[0] / 1e6 + 946684800 - time.time()) < 60
    q.hold().parse("", "QUEUE PUSH mail $1 PRIORITY $2", [3802, 23])
    q.bind("", "", [b'\1{"b": 2}', struct.pack("!i", 7)], formats=[1, 1]).execute().sync().push()
    assert types(q.until("Z")) == "12CZ"
    job = take(q)
    assert json.loads(job["payload"]) == {"b": 2} and job["priority"] == "7"


def test_row_limit(q):
    """Execute with a limit takes at most that many; the portal is not run twice."""
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    q.hold().parse("", "QUEUE TAKE mail LIMIT 3").bind("p").execute("p", 2).flush().push()
    got = q.until("sC")
    n = types(got).count("D")
    assert n == 2, got
    q.hold().execute("p", 0).sync().push()
    rest = q.until("Z")
    assert types(rest).count("D") + n <= 3
    leased = int(q.rows("QUEUE STATS mail")[0]["leased"])
    assert leased == types(rest).count("D") + n


def test_pipeline_with_select(q):
    q.hold()
    q.parse("", "SELECT 'before'").bind().execute()
    q.parse("", "QUEUE PUSH mail '1'").bind().execute()
    q.parse("", "SELECT 'after'").bind().execute().sync()
    q.parse("", "QUEUE TAKE mail").bind().execute().sync()
    q.parse("", "SELECT 'end'").bind().execute().sync().push()
    assert types(q.until("Z")) == "12DC12C12DCZ"
    assert types(q.until("Z")) == "12DCZ"
    assert types(q.until("Z")) == "12DCZ"


def test_error_in_the_middle_of_a_pipeline(q):
    tag(q, "QUEUE PUSH mail '0'")
    q.hold()
    q.parse("", "QUEUE PUSH mail '1'").bind().execute()
    q.parse("", "QUEUE PUSH mail 'x'").bind().execute()
    q.parse("", "QUEUE TAKE mail").bind().execute().sync().push()
    got = q.until("Z")
    assert types(got) == "12C12EZ" and got[-2].sqlstate == "22P02"
    # nothing of it took effect
    assert [r["payload"] for r in q.rows("QUEUE TAKE mail LIMIT 5")] == ["0"]


def test_take_behind_a_failed_statement(q):
    tag(q, "QUEUE PUSH mail '0'")
    q.hold()
    q.parse("", "SELECT 1/(random()*0)::int").bind().execute()
    q.parse("", "QUEUE TAKE mail").bind().execute().sync().push()
    assert types(q.until("Z")) == "12EZ"
    assert q.rows("QUEUE STATS mail")[0]["ready"] == "1"


def test_wait_in_a_pipeline(proxy, db, q):
    with proxy.wire(db) as other:
        q.hold()
        q.parse("", "QUEUE TAKE mail WAIT '20s'").bind().execute().sync()
        q.query("SELECT 'behind'").push()
        waiting(proxy)
        tag(other, "QUEUE PUSH mail '1'")
        assert types(q.until("Z")) == "12DCZ"
        assert types(q.until("Z")) == "TDCZ"


def test_statement_names(q):
    q.hold().parse("s", "QUEUE STATS mail").sync().push()
    assert types(q.until("Z")) == "1Z"
    got = q.hold().parse("s", "QUEUE LIST").sync().push().until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "42P05"
    got = q.hold().bind("", "s").describe("P").execute().sync().push().until("Z")
    assert types(got) == "2TDCZ"
    assert types(q.hold().close_object("S", "s").sync().push().until("Z")) == "3Z"
    got = q.hold().bind("", "s").execute().sync().push().until("Z")
    assert types(got) == "EZ" and got[0].sqlstate == "26000"


# --- rights and installation ----------------------------------------------------------------------


def test_rights_are_those_of_the_role(proxy, db, q):
    with proxy.wire(db, "other") as o:
        for sql in ("QUEUE PUSH mail '1'", "QUEUE TAKE mail", "QUEUE CREATE x"):
            assert error(o, sql).sqlstate in ("42501", "3F000")


@pytest.mark.bare
def test_schema_is_not_there_and_may_not_be_made(qbouncer, db):
    proxy = qbouncer(queue_auto_install=0)
    with proxy.wire(db) as c:
        e = error(c, "QUEUE PUSH mail '1'")
        assert e.sqlstate == "3F000" and e.fields.get("H")
        assert types(c.simple("SELECT 1")) == "TDCZ"


# --- drivers --------------------------------------------------------------------------------------


def test_psycopg_without_autocommit(proxy, db, q):
    """Each statement begins a transaction; TAKE waits in it."""
    tag(q, "QUEUE PUSH mail '{\"n\": 1}'")
    with proxy.connect(db, autocommit=False) as conn:
        row = conn.execute("QUEUE TAKE mail WAIT '5s'").fetchone()
        assert row[4] == {"n": 1}
        conn.execute("CREATE TABLE work (a int)")
        conn.execute("QUEUE DONE %s", (row[1],))
        conn.commit()
        assert conn.execute("QUEUE TAKE mail").fetchall() == []
        conn.rollback()
        conn.execute("QUEUE PUSH mail %s", (json.dumps({"n": 2}),))
        conn.rollback()
        assert conn.execute("QUEUE TAKE mail").fetchall() == []


def test_psycopg_autocommit(proxy, db, q):
    with proxy.connect(db) as conn:
        for i in range(8): # prepared from the sixth on
            cur = conn.execute("QUEUE PUSH mail %s PRIORITY %s", (json.dumps({"n": i}), i))
            assert cur.rowcount == 1
        for i in reversed(range(8)):
            row = conn.execute("QUEUE TAKE mail WAIT %s", ("1s",)).fetchone()
            assert row[4] == {"n": i}
            assert conn.execute("QUEUE DONE %s", (row[1],)).rowcount == 1
        with conn.cursor(binary=True) as cur:
            cur.execute("QUEUE PUSH mail %s RETURNING ID", ("1",))
            assert cur.fetchone()[0] > 0
            assert cur.execute("QUEUE TAKE mail WAIT %s", ("1s",)).fetchone()[4] == 1
        with pytest.raises(psycopg.errors.UndefinedTable):
            conn.execute("QUEUE TAKE nosuch")
        with pytest.raises(psycopg.Error) as e:
            conn.execute("QUEUE DONE %s", ("1-1-0000000000000000",))
        assert e.value.sqlstate == "QB001"


def test_psycopg2(proxy, db, q):
    """Literals, and BEGIN before the first statement."""
    import psycopg2
    conn = psycopg2.connect(proxy.dsn(db))
    cur = conn.cursor()
    cur.execute("QUEUE PUSH mail %s", (json.dumps({"it's": "\\ \" %"}),))
    assert cur.rowcount == 1
    conn.commit()
    cur.execute("QUEUE TAKE mail WAIT %s LIMIT %s", ("5s", 1))
    row = cur.fetchone()
    assert row[4] == {"it's": "\\ \" %"}
    cur.execute("QUEUE DONE %s", (row[1],))
    conn.commit()
    conn.close()


def test_psql_worker(proxy, db, q):
    """psql: autocommit, and fenced when late."""
    import os
    import subprocess
    from pgcluster import pg_bin
    tag(q, "QUEUE PUSH mail '{\"n\": 1}'")
    script = """
        QUEUE TAKE mail WAIT '5s' \\gset job_
        \\echo :job_payload
        QUEUE DONE :'job_token';
        QUEUE RELEASE :'job_token';
        \\echo :SQLSTATE
    """
    done = subprocess.run([os.path.join(pg_bin(), "psql"), "-X", "-q", proxy.dsn(db)], input=script,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30,
                          check=True)
    assert '{"n": 1}' in done.stdout and "QB001" in done.stdout
