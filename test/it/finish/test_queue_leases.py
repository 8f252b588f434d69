"""Leases: fencing by tokens, ids, retries, and what the end of a connection means."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from pgwire import Wire, types
from proxy import wait_for
from queuetest import (  # noqa: F401
    come_back, error, job_of, parked, peek, q, stats, tag, take, woken,
    shared, shared_db, shared_proxy)


# --- fencing --------------------------------------------------------------------------------------


def expire(q, sql="QUEUE TAKE mail LEASE '30ms'"):
    """A job whose lease is over; nobody has taken it again."""
    job = take(q, sql)
    wait_for(lambda: q.rows("SELECT clock_timestamp() > '%s' AS over" % job["lease_until"])[0]["over"] == "t",
             "the end of the lease")
    return job


LATE = ["QUEUE DONE '{t}'", "QUEUE FAIL '{t}'", "QUEUE FAIL '{t}' FINAL", "QUEUE RELEASE '{t}'",
        "QUEUE EXTEND '{t}' LEASE '1 hour'", "QUEUE DONE {i}", "QUEUE EXTEND {i}"]


@pytest.mark.parametrize("sql", LATE)
@pytest.mark.parametrize("kind", ["expired", "taken again"])
def test_late(qproxy, db, q, sql, kind):
    """QB001, and nothing has changed."""
    tag(q, "QUEUE PUSH mail '1'")
    job = expire(q)
    with qproxy.wire(db) as other:
        if kind == "taken again":
            again = take(other)
            assert again["id"] == job["id"] and again["token"] != job["token"] and again["attempt"] == "2"
        before = peek(q)
        for block in (False, True):
            if block:
                tag(q, "BEGIN; SELECT 1")
            e = error(q, sql.format(t=job["token"], i=job["id"]))
            assert e.sqlstate == "QB001" and job["id"] in e.message, e.fields
            if block:
                tag(q, "ROLLBACK")
        assert peek(q) == before
        if kind == "taken again":
            assert tag(other, "QUEUE DONE '%s'" % again["token"]) == "UPDATE 1"
            assert error(q, sql.format(t=job["token"], i=job["id"])).sqlstate == "QB001"
        assert error(other, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB001"


@pytest.mark.parametrize("first", ["DONE", "FAIL", "RELEASE"])
@pytest.mark.parametrize("then", ["FAIL", "RELEASE", "EXTEND"])
def test_finished_leases_are_stale(q, first, then):
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    tag(q, "QUEUE %s '%s'" % (first, token))
    before = peek(q)
    assert error(q, "QUEUE %s '%s'" % (then, token)).sqlstate == "QB001"
    if first != "DONE":
        assert error(q, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
    assert peek(q) == before


@pytest.mark.parametrize("way", ["simple", "block", "block, other connection", "extended"])
def test_done_again_is_no_error(qproxy, db, q, way):
    """With the same token, after success, on any connection of this proxy; but not in a transaction."""
    tag(q, "QUEUE PUSH mail '1', '2'")
    a, b = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 2")]
    if way.startswith("block"):
        tag(q, "BEGIN")
    if way == "extended":
        q.hold().parse("", "QUEUE DONE $1, $2").bind("", "", [a, b]).execute().sync().push()
        assert types(q.until("Z")) == "12CZ"
    else:
        assert tag(q, "QUEUE DONE '%s', '%s'" % (a, b)) == "UPDATE 2"
    if way.startswith("block"):
        tag(q, "COMMIT")
    with qproxy.wire(db) as other:
        c = other if "other" in way else q
        assert tag(c, "QUEUE DONE '%s'" % a) == "UPDATE 1"
        assert tag(c, "QUEUE DONE '%s', '%s'" % (b, a)) == "UPDATE 2"
        tag(c, "BEGIN; SELECT 1")
        assert error(c, "QUEUE DONE '%s'" % a).sqlstate == "QB001"
        assert tag(c, "COMMIT") == "ROLLBACK"
        c.hold().parse("", "QUEUE DONE $1").bind("", "", [a]).execute().sync().push()
        assert types(c.until("Z")) == "12CZ"
    assert peek(q) == []


def test_done_again_after_a_rollback_is_done(q):
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    tag(q, "BEGIN")
    tag(q, "QUEUE DONE '%s'" % token)
    tag(q, "ROLLBACK")
    assert stats(q)["leased"] == 1
    assert tag(q, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    assert peek(q) == []


def test_all_or_nothing(q):
    """One lost lease among several: none is changed."""
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    tokens = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 3")]
    tag(q, "QUEUE RELEASE '%s'" % tokens[1])
    for verb in ("DONE", "FAIL", "RELEASE", "EXTEND"):
        e = error(q, "QUEUE %s '%s', '%s', '%s'" % ((verb,) + tuple(tokens)))
        assert e.sqlstate == "QB001"
        assert stats(q) == dict(ready=1, later=0, leased=2, dead=0)


@pytest.mark.parametrize("bad", ["''", "'x'", "'1'", "1", "-1", "0", "99999999999999999999", "'1-1'", "'1-1-zz'",
                                 "'1-1-00000000000000000'", "'999-1-0000000000000000'", "'1-999-0000000000000000'",
                                 "'-1-1-0000000000000000'", "'1-1-0000000000000000 '", "U&'\\2019'", "'1--1'",
                                 "'99999999999-1-0000000000000000'", "'1-99999999999999999999-0000000000000000'",
                                 "' 1-1-0000000000000000'", "'1-1-000000000000000G'", "NULL"])
def test_what_is_no_token(q, bad):
    tag(q, "QUEUE PUSH mail '1'")
    take(q)
    known = {r["id"] for r in peek(q)}
    for verb in ("DONE", "FAIL", "RELEASE", "EXTEND"):
        if bad.strip("'") in known:
            continue
        e = error(q, "QUEUE %s %s" % (verb, bad))
        assert e.sqlstate in ("22023", "QB001", "22004"), (bad, e.fields)
        if e.sqlstate == "22023":
            assert "token" in e.fields["H"], (bad, e.fields)
        got = q.hold().parse("", "QUEUE %s $1" % verb)
        if "U&" not in bad and bad != "NULL":
            got.bind("", "", [bad.strip("'")]).execute()
        got = q.sync().push().until("Z")
        if "U&" not in bad and bad != "NULL":
            assert types(got) == "12EZ" and got[2].sqlstate in ("22023", "QB001"), (bad, got)
    assert stats(q)["leased"] == 1


def test_bare_ids(qproxy, db, q):
    tag(q, "QUEUE CREATE other")
    tag(q, "QUEUE PUSH mail '1', '2'")
    tag(q, "QUEUE PUSH other '1', '2'")
    a = take(q)
    assert tag(q, "QUEUE EXTEND %s" % a["id"]) == "UPDATE 1"
    with qproxy.wire(db) as w:
        e = error(w, "QUEUE DONE %s" % a["id"])
        assert e.sqlstate == "22023" and "token" in e.fields["H"]
    # the same id in another queue: it has to say which
    b = take(q, "QUEUE TAKE other")
    if a["id"] == b["id"]:
        e = error(q, "QUEUE DONE %s" % a["id"])
        assert e.sqlstate == "22023" and "ambiguous" in e.message
    assert tag(q, "QUEUE DONE '%s'" % b["token"]) == "UPDATE 1"
    assert tag(q, "QUEUE DONE '%s'" % a["id"]) == "UPDATE 1"
    assert error(q, "QUEUE DONE %s" % a["id"]).sqlstate == "22023"
    c = take(q)
    q.hold().parse("", "QUEUE FAIL $1 ERROR $2 FINAL").bind("", "", [c["id"], "x"]).execute().sync().push()
    assert types(q.until("Z")) == "12CZ"
    assert stats(q)["dead"] == 1


def test_bare_id_of_a_lease_that_another_connection_ended(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    with qproxy.wire(db) as other:
        tag(other, "QUEUE DONE '%s'" % job["token"])
    # the proxy knows that it was done
    assert tag(q, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    tag(q, "QUEUE PUSH mail '2'")
    job = take(q)
    with qproxy.wire(db) as other:
        tag(other, "QUEUE RELEASE '%s'" % job["token"])
        again = take(other)
        assert error(q, "QUEUE DONE %s" % job["id"]).sqlstate == "QB001"
        tag(other, "QUEUE DONE %s" % again["id"])


# --- failing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy, least, most", [
    ("fixed 1min", [60, 60, 60], 1.25), ("linear 1min", [60, 120, 180], 1.25), ("linear 1min 90s", [60, 90, 90], 1.25),
    ("exponential 10s 1h", [10, 20, 40], 1.25), ("exponential 10s 15s", [10, 15, 15], 1.25),
])
def test_retry_policies(q, policy, least, most):
    tag(q, "QUEUE ALTER mail SET (retry = '%s')" % policy)
    tag(q, "QUEUE PUSH mail '1'")
    for n, seconds in enumerate(least):
        job = take(q)
        assert job["attempt"] == str(n + 1)
        tag(q, "QUEUE FAIL '%s' ERROR 'no %d'" % (job["token"], n))
        row = peek(q)[0]
        assert (row["state"], row["failures"], row["error"]) == ("later", str(n + 1), "no %d" % n)
        wait = float(q.rows("SELECT extract(epoch FROM '%s' - clock_timestamp()) AS s" % row["run_at"])[0]["s"])
        assert seconds * 0.8 - 1 < wait < seconds * most, (n, wait)
        # not to wait for it
        q.rows("UPDATE queue.q_mail SET run_at = now(), due = now()")


def test_retry_none(q):
    tag(q, "QUEUE CREATE once WITH (retry = 'none')")
    tag(q, "QUEUE PUSH once '1'")
    tag(q, "QUEUE FAIL '%s'" % take(q, "QUEUE TAKE once")["token"])
    assert stats(q, "once")["dead"] == 1


def test_dead_after_max_attempts(q):
    tag(q, "QUEUE ALTER mail SET (max_attempts = 3)")
    tag(q, "QUEUE PUSH mail '1'")
    for n in range(3):
        job = take(q, "QUEUE TAKE mail WAIT '5s'")
        assert job["attempt"] == str(n + 1)
        tag(q, "QUEUE FAIL '%s' RETRY IN '0s'" % job["token"])
    assert stats(q) == dict(ready=0, later=0, leased=0, dead=1)
    assert peek(q, state="dead")[0]["failures"] == "3"
    assert tag(q, "QUEUE PURGE mail STATE dead") == "DELETE 1"


def test_expired_leases_count(qproxy, db, q):
    tag(q, "QUEUE ALTER mail SET (max_attempts = 2)")
    tag(q, "QUEUE PUSH mail '1'")
    for n in range(2):
        job = take(q, "QUEUE TAKE mail LEASE '20ms' WAIT '5s'")
        assert job["attempt"] == str(n + 1)
    q.query("QUEUE TAKE mail WAIT '60s'")  # who waits sees to it that the lease ends
    with qproxy.wire(db) as other:
        # PEEK shows it dead as soon as the lease is over; counted it is when it is found
        row = wait_for(lambda: [r for r in peek(other, state="dead") if r["failures"] == "2"], "the end of the last lease")[0]
    assert row["error"] == "lease expired"


def test_release_does_not_count(q):
    tag(q, "QUEUE ALTER mail SET (max_attempts = 2)")
    tag(q, "QUEUE PUSH mail '1'")
    for _ in range(5):
        job = take(q)
        assert job["attempt"] == "1"
        tag(q, "QUEUE RELEASE '%s'" % job["token"])
    assert peek(q)[0]["failures"] == "0"


def test_error_text_is_bounded(q):
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    q.hold().parse("", "QUEUE FAIL $1 ERROR $2 FINAL")
    q.bind("", "", [token, "\u00e9" * 50000]).execute().sync().push()
    assert types(q.until("Z")) == "12CZ"
    text = peek(q, state="dead")[0]["error"]
    assert 4000 < len(text.encode()) <= 8192 and set(text) <= {"\u00e9"}


def test_extend(q):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q, "QUEUE TAKE mail LEASE '1 min'")

    def left():
        return float(q.rows("SELECT extract(epoch FROM '%s' - clock_timestamp()) AS s"
                            % peek(q)[0]["lease_until"])[0]["s"])
    assert 50 < left() < 61
    tag(q, "QUEUE EXTEND '%s' LEASE '1 hour'" % job["token"])
    assert 3500 < left() < 3601
    tag(q, "QUEUE EXTEND '%s'" % job["token"])
    assert 290 < left() < 301 # the queue's own
    tag(q, "QUEUE EXTEND '%s' LEASE '50ms'" % job["token"])
    assert take(q, "QUEUE TAKE mail WAIT '10s'")["attempt"] == "2"


# --- the end of a connection ----------------------------------------------------------------------

ENDS = {
    # policy: (what a goodbye does, what a break does)
    "auto": ("keep", "back"),
    "release": ("back", "back"),
    "keep": ("keep", "keep"),
}


@pytest.mark.parametrize("policy", ENDS)
@pytest.mark.parametrize("how", ["terminate", "close", "reset"])
def test_end_of_the_connection(qproxy, db, q, policy, how):
    tag(q, "QUEUE ALTER mail SET (on_disconnect = %s)" % policy)
    tag(q, "QUEUE PUSH mail '1', '2'")
    w = qproxy.wire(db)
    jobs = w.rows("QUEUE TAKE mail LIMIT 2")
    waiters = [qproxy.wire(db) for _ in range(2)]
    for v in waiters:
        v.query("QUEUE TAKE mail WAIT '30s'")
        parked(v)
    getattr(w, how)()
    if ENDS[policy][how != "terminate"] == "back":
        got = [woken(v) for v in waiters]
        assert sorted(j["id"] for j in got) == sorted(j["id"] for j in jobs)
        # a goodbye is no failed attempt
        assert [j["attempt"] for j in got] == (["1", "1"] if how == "terminate" else ["2", "2"])
        assert {r["error"] for r in peek(q)} == {None if how == "terminate" else "worker disconnected"}
        assert error(q, "QUEUE DONE '%s'" % jobs[0]["token"]).sqlstate == "QB001"
    else:
        qproxy.wait_pool(db, cl_active=3)
        parked(*waiters)
        assert stats(q) == dict(ready=0, later=0, leased=2, dead=0)
        assert tag(q, "QUEUE DONE '%s', '%s'" % (jobs[0]["token"], jobs[1]["token"])) == "UPDATE 2"


@pytest.mark.parametrize("policy", ENDS)
def test_end_that_is_met_while_writing(qproxy, db, q, policy):
    """What was delivered before was delivered, though the answer behind it could not be."""
    tag(q, "QUEUE ALTER mail SET (on_disconnect = %s)" % policy)
    tag(q, "QUEUE PUSH mail '1'")
    with Wire(qproxy.port, host=qproxy.dir) as w:
        w.startup(user="app", database=db)
        take(w)
        w.sock.shutdown(socket.SHUT_RD)
        w.query("SELECT 1")
        qproxy.wait_pool(db, cl_active=1)
        if policy == "keep":
            assert stats(q) == dict(ready=0, later=0, leased=1, dead=0)
        else:
            assert come_back(q)["attempt"] == "2"


def test_workers_that_are_replaced_kill_no_job(qproxy, db, q):
    """A deploy: each worker says goodbye with the job in its hands, more often than the job may fail."""
    for options in ("on_disconnect = release, max_attempts = 2", "on_disconnect = release, retry = 'none'"):
        tag(q, "QUEUE ALTER mail SET (%s)" % options)
        tag(q, "QUEUE PUSH mail '1'")
        for _ in range(4):
            w = qproxy.wire(db)
            assert take(w, "QUEUE TAKE mail WAIT '30s'")["attempt"] == "1"
            w.terminate()
        w = qproxy.wire(db)
        assert tag(w, "QUEUE DONE %s" % take(w, "QUEUE TAKE mail WAIT '30s'")["id"]) == "UPDATE 1"
        w.close()


def test_a_job_that_takes_its_workers_along_waits(qproxy, db, q):
    """It is given to the next worker once, and then by the policy of its queue: not to all of them within a second."""
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1h', max_attempts = 3)")
    tag(q, "QUEUE PUSH mail '1'")
    for attempt in ("1", "2"):
        w = qproxy.wire(db)
        assert take(w, "QUEUE TAKE mail WAIT '30s'")["attempt"] == attempt
        w.close()
    wait_for(lambda: stats(q) == dict(ready=0, later=1, leased=0, dead=0), "the job to wait")
    assert q.rows("QUEUE TAKE mail") == []


def test_rollbacks_that_follow_each_other_kill_no_job(qproxy, db, q):
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1h', max_attempts = 3)")
    tag(q, "QUEUE PUSH mail '1'")
    for attempt in ("1", "2"):
        tag(q, "BEGIN")
        assert take(q, "QUEUE TAKE mail WAIT '30s'")["attempt"] == attempt
        tag(q, "ROLLBACK")
    wait_for(lambda: stats(q) == dict(ready=0, later=1, leased=0, dead=0), "the job to wait")


WORKER = """
import sys, psycopg
conn = psycopg.connect(sys.argv[1], autocommit=sys.argv[2] == 'auto')
row = conn.execute("QUEUE TAKE mail WAIT '10s'").fetchone()
if sys.argv[2] == 'in a transaction':
    conn.execute("SELECT 1")
print(row[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["auto", "in a transaction"])
def test_worker_is_killed(qproxy, db, q, kind):
    """SIGKILL: the next worker has the job while the lease had minutes to go."""
    tag(q, "QUEUE PUSH mail '1'")
    child = subprocess.Popen([sys.executable, "-c", WORKER, qproxy.dsn(db), kind], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    token = child.stdout.readline().strip()
    w = qproxy.wire(db)
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    os.kill(child.pid, signal.SIGKILL)
    job = woken(w)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert job["attempt"] == "2"
    assert error(q, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
    assert tag(w, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"


def test_worker_that_says_goodbye(qproxy, db, q):
    """Its pool closes the connection while the job still runs; another one finishes it."""
    tag(q, "QUEUE PUSH mail '1'")
    child = subprocess.run([sys.executable, "-c", WORKER, qproxy.dsn(db), "auto"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, text=True, check=True)
    qproxy.wait_pool(db, cl_active=1)
    assert stats(q)["leased"] == 1
    assert tag(q, "QUEUE DONE '%s'" % child.stdout.strip()) == "UPDATE 1"


def test_finished_jobs_are_not_given_back(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    w = qproxy.wire(db)
    jobs = w.rows("QUEUE TAKE mail LIMIT 3")
    tag(w, "QUEUE DONE '%s'" % jobs[0]["token"])
    tag(w, "QUEUE FAIL '%s' RETRY IN '1 hour'" % jobs[1]["token"])
    w.reset()
    job = come_back(q)
    assert job["id"] == jobs[2]["id"]
    assert stats(q) == dict(ready=0, later=1, leased=1, dead=0)


def test_jobs_that_were_not_delivered(qproxy, db, q):
    """The worker does not read, then it is gone: what it could not have seen is not counted."""
    size = 24 * 1024 * 1024
    tag(q, "ALTER TABLE queue.q_mail ALTER payload SET STORAGE EXTERNAL")
    q.rows("SELECT queue.push('mail', to_jsonb(repeat('x', %d)))" % size)
    w = Wire(qproxy.port, rcvbuf=4096)
    w.startup(user="app", database=db)
    w.query("QUEUE TAKE mail")
    wait_for(lambda: stats(q)["leased"] == 1, "the take")
    w.sock.recv(1000) # it is on its way
    w.reset()
    wait_for(lambda: stats(q)["ready"] == 1, "the job")
    row = q.rows("SELECT failures, attempt FROM queue.peek('mail', 1, NULL)")[0]
    assert row == {"failures": "0", "attempt": "0"}
    job = q.rows("SELECT id, attempt FROM queue.take('mail', 1)")[0]
    assert job["attempt"] == "1"


def test_leases_are_shown(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    w = qproxy.wire(db)
    w.rows("QUEUE TAKE mail LIMIT 2")
    wait_for(lambda: len(qproxy.console("SHOW LEASES")) == 2, "leases")
    v = qproxy.wire(db)
    v.query("QUEUE TAKE mail WAIT '30s'")
    parked(v)
    wait_for(lambda: len(qproxy.console("SHOW WAITERS")) == 1, "the waiter")
    assert [r["waiters"] for r in qproxy.console("SHOW QUEUES") if r["queue"] == "mail"] == ["1"]
    w.close()
    woken(v)
    wait_for(lambda: len(qproxy.console("SHOW LEASES")) == 1, "the lease is gone")
    assert qproxy.console("SHOW WAITERS") == []


def test_ledger_is_bounded(qproxy, db, q, direct):
    """A connection that takes what others finish: its oldest leases are forgotten, their tokens are good."""
    direct.execute("SELECT count(*) FROM queue._push('mail', (SELECT array_agg(n::text) "
                   "FROM generate_series(1, 20001) AS n), 0, NULL, NULL, NULL, false)")
    jobs = sum((q.rows("QUEUE TAKE mail LIMIT 10000") for _ in range(3)), [])
    assert len(jobs) == 20001
    assert error(q, "QUEUE DONE " + jobs[0]["id"]).sqlstate == "22023"
    assert tag(q, "QUEUE DONE '%s'" % jobs[0]["token"]) == "UPDATE 1"
    assert tag(q, "QUEUE DONE %s, %s" % (jobs[1]["id"], jobs[-1]["id"])) == "UPDATE 2"


def test_a_job_that_was_lost_and_taken_again(qproxy, db, q):
    """Another connection ended its first lease; the second is as good as any: by bare id, and when the
    connection breaks."""
    w = qproxy.wire(db)
    for _ in range(5): # tokens are random: the newer one is not always the greater
        tag(q, "QUEUE PUSH mail '1'")
        first = take(w)
        tag(q, "QUEUE RELEASE '%s'" % first["token"])
        again = take(w)
        assert again["id"] == first["id"]
        assert tag(w, "QUEUE EXTEND %s" % again["id"]) == "UPDATE 1"
    w.close()
    wait_for(lambda: stats(q)["ready"] == 5 and stats(q)["leased"] == 0, "the jobs of a broken connection")


@pytest.mark.parametrize("waits", ["for a server", "for a job"])
@pytest.mark.parametrize("goodbye", [True, False])
def test_goodbye_while_waiting(qbouncer, db, waits, goodbye):
    """The last word counts, also behind a statement that has not been carried out."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as holder:
        holder.rows("QUEUE CREATE mail")
        holder.rows("QUEUE PUSH mail '1'")
        with proxy.wire(db) as w:
            take(w)
            holder.rows("BEGIN")
            holder.rows("SELECT 1")
            if waits == "for a server":
                w.query("SELECT 1")
                proxy.wait_pool(db, cl_waiting=1)
            else:
                w.query("QUEUE TAKE mail WAIT '60s'")
                wait_for(lambda: proxy.console("SHOW WAITERS"), "a client that waits")
            w.query("SELECT 2")
            if goodbye:
                w.terminate()
            else:
                w.close()
        proxy.wait_pool(db, cl_waiting=0, cl_active=1)
        holder.rows("COMMIT")
        if goodbye:
            assert stats(holder)["leased"] == 1
        else:
            wait_for(lambda: stats(holder)["ready"] == 1, "the job given back")


def test_given_back_however_long_nobody_gets_a_server(qbouncer, db):
    """query_wait_timeout is for those who wait for an answer: the jobs of a worker that broke off wait longer."""
    proxy = qbouncer(query_wait_timeout="500ms")
    with proxy.wire(db) as c, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        take(w)
        proxy.console("PAUSE " + db)
        w.reset()
        proxy.wait_pool(db, cl_active=1)
        assert error(c, "QUEUE PUSH mail '2'").sqlstate == "53300"
        proxy.console("RESUME " + db)
        assert come_back(c)["payload"] == "1"
