"""Servers that do not answer, and answers that are lost: whose statement it was is told, whatever was leased is given
back, a DONE that is repeated is answered as it ended, and a WAIT ends in its time."""

import contextlib
import ctypes
import os
import signal
import socket

import psycopg
import pytest

from pgwire import PgError, cancel
from proxy import wait_for
from queuetest import HEARTBEAT, come_back, error, job_of, parked, q, qproxy, tag, take  # noqa: F401
from relay import Relay

TIMEOUT = "3s" # of the engine: long enough for what is only slow


@pytest.fixture
def relay(cluster):
    with Relay(cluster.port) as one:
        yield one


@pytest.fixture
def rproxy(qbouncer, relay):
    """A proxy that comes to Postgres through the relay."""
    return qbouncer(databases={"*": "host=127.0.0.1 port=%d" % relay.port}, queue_heartbeat=HEARTBEAT,
                    queue_engine_timeout=TIMEOUT)


def settled(proxy, conn, queue="mail"):
    """What is asked about a queue with its first statements has been asked."""
    tag(conn, "QUEUE PUSH %s '0'" % queue)
    tag(conn, "QUEUE DONE '%s'" % take(conn, "QUEUE TAKE " + queue)["token"])
    proxy.wait_log("system session is up")


@pytest.fixture
def c(rproxy, db):
    with rproxy.wire(db) as one:
        one.rows("QUEUE CREATE mail WITH (lease = '1h')")
        settled(rproxy, one)
        yield one


def fails(conn, sql):
    with pytest.raises(PgError) as e:
        conn.rows(sql)
    return e.value


def jobs(direct):
    return direct.execute("SELECT id FROM queue.q_mail").fetchall()


def known(conn):
    """The number of the queue is asked for when it was used some times: then its functions are called directly."""
    for _ in range(12):
        tag(conn, "QUEUE PUSH mail '0'")
        tag(conn, "QUEUE DONE '%s'" % take(conn, "QUEUE TAKE mail")["token"])


# --- answers that are lost ---------------------------------------------------------------------------

@pytest.mark.parametrize("options", ["lease = '5 min'", "lease = '2h', on_disconnect = keep"])
@pytest.mark.parametrize("direct_calls", [False, True])
def test_what_a_lost_take_has_leased_is_given_back(rproxy, relay, db, c, options, direct_calls):
    c.rows("QUEUE ALTER mail SET (%s)" % options)
    settled(rproxy, c)
    if direct_calls:
        known(c)
    tag(c, "QUEUE PUSH mail '1'")
    relay.arm(b"mail", "cut")
    e = fails(c, "QUEUE TAKE mail")
    assert e.sqlstate == "08006" and relay.lost.wait(10)
    with rproxy.wire(db) as other:
        job = take(other, "QUEUE TAKE mail WAIT '15s'")
    assert job["payload"] == "1" and job["attempt"] == "1" # it was not counted


def test_a_take_whose_server_is_silent_is_asked_again(relay, c, direct):
    tag(c, "QUEUE PUSH mail '1'")
    relay.arm(b"mail", "silent")
    job = take(c, "QUEUE TAKE mail WAIT '30s'")
    assert relay.lost.is_set() and job["attempt"] == "1"
    tag(c, "QUEUE PUSH mail '2'")
    relay.arm(b"mail", "silent")
    # what its first statement has leased may not be there again yet when the second one looks
    got = c.rows("QUEUE TAKE mail") or c.rows("QUEUE TAKE mail WAIT '15s'")
    assert relay.lost.is_set() and got[0]["payload"] == "2" and got[0]["attempt"] == "1"


def test_a_take_of_several_queues(rproxy, relay, c):
    c.rows("QUEUE CREATE post WITH (lease = '7 min')")
    settled(rproxy, c, "post")
    tag(c, "QUEUE PUSH post '1'")
    relay.arm(b"post", "cut")
    fails(c, "QUEUE TAKE mail, post LIMIT 5")
    assert take(c, "QUEUE TAKE post WAIT '15s'")["attempt"] == "1"


def test_what_a_lost_take_of_a_stream_has_delivered_is_given_back(rproxy, relay, db, c):
    c.rows("QUEUE CREATE events WITH (kind = stream)")
    c.rows("QUEUE SUBSCRIBE billing TO events WITH (lease = '1h', max_attempts = 5)")
    settled(rproxy, c)
    tag(c, "QUEUE PUSH events '1', '2', '3'")
    # a new delivery; one that comes again; an event that comes again by itself
    for n, attempt in enumerate((1, 2, 3)):
        relay.arm(b"billing", "silent" if n == 1 else "cut")
        assert fails(c, "QUEUE TAKE events FOR billing").sqlstate in ("08006", "08007") and relay.lost.wait(10)
        with rproxy.wire(db) as other:
            rows = other.rows("QUEUE TAKE events FOR billing WAIT '15s'")
            assert [(r["payload"], r["attempt"]) for r in rows] == [(p, str(attempt)) for p in ("123" if n < 2 else "2")]
            if n == 1:
                tag(other, "QUEUE FAIL '%s' EVENT %s RETRY IN '0'" % (rows[0]["token"], rows[1]["id"]))
            elif n == 0:
                tag(other, "QUEUE FAIL '%s' RETRY IN '0'" % rows[0]["token"])


@pytest.mark.parametrize("key", ["", " GROUP 'g'"])
def test_what_a_lost_push_has_handed_over_is_given_back(rproxy, relay, db, c, key):
    known(c)
    with rproxy.wire(db) as waiter:
        def handed():
            waiter.query("QUEUE TAKE mail LEASE '20 min' WAIT '30s'")
            parked(waiter)
            before = sum(int(r["handed"]) for r in rproxy.console("SHOW QUEUES"))
            tag(c, "QUEUE PUSH mail '0'" + key)
            rows = waiter.until("Z")
            token = [m.text_row for m in rows if m.type == "D"][0][1]
            tag(c, "QUEUE DONE '%s'" % token)
            return sum(int(r["handed"]) for r in rproxy.console("SHOW QUEUES")) > before
        wait_for(handed, "a push that is handed over")
        waiter.query("QUEUE TAKE mail LEASE '20 min' WAIT '30s'")
        parked(waiter)
        relay.arm(b"to be lost", "cut")
        e = fails(c, "QUEUE PUSH mail '\"to be lost\"'" + key)
        assert e.sqlstate == "08006" and "pushed is not known" in e.fields["D"] and "KEY" in e.fields["H"]
        rows = [m.text_row for m in waiter.until("Z") if m.type == "D"]
    assert rows[0][4] == '"to be lost"' and rows[0][3] == "1"


# --- a DONE -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", ["", "retain_done = '1 day'"])
@pytest.mark.parametrize("how", ["cut", "silent"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_done_whose_answer_was_lost_is_answered_as_it_ended(rproxy, relay, db, c, direct, options, how, elsewhere):
    if options:
        c.rows("QUEUE ALTER mail SET (%s)" % options)
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c, "QUEUE TAKE mail")["token"]
    relay.arm(token.split("-")[2].encode(), how)
    e = fails(c, "QUEUE DONE '%s'" % token)
    assert e.sqlstate == ("08006" if how == "cut" else "08007")
    assert "done is not known" in e.fields["D"] and "Repeat it" in e.fields["H"]
    assert jobs(direct) == []
    with rproxy.wire(db) as other:
        assert tag(other if elsewhere else c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
        assert tag(other, "QUEUE DONE '%s'" % token) == "UPDATE 1" # and from now on it is known


def test_a_lost_done_of_several_jobs_then_take(relay, c, direct):
    for n in range(3):
        tag(c, "QUEUE PUSH mail '%d'" % n)
    tokens = [r["token"] for r in c.rows("QUEUE TAKE mail LIMIT 2")]
    relay.arm(tokens[1].split("-")[2].encode(), "cut")
    done = "QUEUE DONE '%s', '%s' THEN TAKE" % tuple(tokens)
    fails(c, done)
    assert [r["payload"] for r in c.rows(done)] == ["2"]


def test_a_done_that_never_arrived_is_done_when_it_is_repeated(relay, c, direct):
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c, "QUEUE TAKE mail")["token"]
    relay.arm(token.split("-")[2].encode(), "never")
    assert fails(c, "QUEUE DONE '%s'" % token).sqlstate == "08007"
    assert len(jobs(direct)) == 1
    assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    assert jobs(direct) == []


def test_a_lost_done_does_not_speak_for_another(relay, c, direct):
    """It never arrived, and another has taken the job and finished it: that is no DONE of this one."""
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c, "QUEUE TAKE mail LEASE '2s'")["token"]
    relay.arm(token.split("-")[2].encode(), "never")
    fails(c, "QUEUE DONE '%s'" % token)
    again = take(c, "QUEUE TAKE mail WAIT '15s'")
    tag(c, "QUEUE DONE '%s'" % again["token"])
    assert error(c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"


def lost(relay, conn, token):
    """A DONE that never arrives."""
    relay.arm(token.split("-")[2].encode(), "never")
    assert fails(conn, "QUEUE DONE '%s'" % token).sqlstate == "08007"


def test_a_lost_done_by_another_connection_knows_no_end_of_the_lease(rproxy, relay, db, c):
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c, "QUEUE TAKE mail LEASE '2s'")["token"]
    with rproxy.wire(db) as other:
        lost(relay, other, token)
        tag(c, "QUEUE DONE '%s'" % come_back(c, "QUEUE TAKE mail WAIT '15s'")["token"])
        assert error(other, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
        # while the job is there it is done now
        tag(c, "QUEUE PUSH mail '2'")
        token = take(c)["token"]
        lost(relay, other, token)
        assert tag(other, "QUEUE DONE '%s'" % token) == "UPDATE 1"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_lost_done_does_not_speak_for_what_was_given_back(rproxy, relay, db, c, direct, cancelled):
    """The connection of its TAKE breaks long before the lease ends: then another worker finishes the job, or it was
    cancelled and goes away."""
    tag(c, "QUEUE PUSH mail '1'")
    w = rproxy.wire(db)
    token = take(w)["token"]
    lost(relay, w, token)
    if cancelled:
        tag(c, "QUEUE CANCEL '%s'" % token.rsplit("-", 1)[0])
    w.reset()
    if not cancelled:
        tag(c, "QUEUE DONE '%s'" % come_back(c)["token"])
    wait_for(lambda: jobs(direct) == [], "a job that is gone")
    assert error(c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"


@pytest.mark.parametrize("said", ["RELEASE '%s'", "FAIL '%s' RETRY IN '0'", "EXTEND '%s' LEASE '1ms'"])
def test_a_lost_done_is_void_when_something_else_was_said(relay, c, direct, said):
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c)["token"]
    lost(relay, c, token)
    tag(c, "QUEUE " + said % token)
    tag(c, "QUEUE DONE '%s'" % come_back(c)["token"])
    assert jobs(direct) == []
    assert error(c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"


def test_purge_spares_the_job_of_a_lost_done(relay, c, direct):
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c)["token"]
    lost(relay, c, token)
    tag(c, "QUEUE PURGE mail")
    assert len(jobs(direct)) == 1
    assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    assert jobs(direct) == []


@pytest.mark.parametrize("options", ["HOLD", "LEASE '20 min'"])
def test_a_lost_done_of_a_lease_of_its_own(relay, c, direct, options):
    tag(c, "QUEUE PUSH mail '1'")
    token = take(c, "QUEUE TAKE mail " + options)["token"]
    relay.arm(token.split("-")[2].encode(), "cut")
    assert fails(c, "QUEUE DONE '%s'" % token).sqlstate == "08006"
    assert jobs(direct) == []
    assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"


# --- silence ----------------------------------------------------------------------------------------

def test_a_push_that_is_not_answered_ends(relay, c, direct, rproxy):
    relay.arm(b"silent one", "silent")
    e = fails(c, "QUEUE PUSH mail '\"silent one\"'")
    assert e.sqlstate == "08007" and "pushed is not known" in e.fields["D"] and "KEY" in e.fields["H"]
    rproxy.wait_log("no answer within queue_engine_timeout")
    assert tag(c, "QUEUE PUSH mail '2'") == "INSERT 0 1"


def test_others_do_not_wait_for_a_push_that_is_not_answered(rproxy, relay, db, c):
    relay.arm(b"silent one", "silent")
    with rproxy.wire(db) as other:
        c.query("QUEUE PUSH mail '\"silent one\"'")
        assert relay.lost.wait(10)
        assert tag(other, "QUEUE PUSH mail '2'") == "INSERT 0 1"
    assert c.until("Z")[0].sqlstate == "08007"


@contextlib.contextmanager
def stopped(p, direct, db):
    """All backends of the proxy's pools in this database. One that logs in would be missed: it is waited for."""
    def backends():
        pids = [r[0] for r in direct.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() AND query !~ 'pg_notify'"
            " AND backend_type = 'client backend'", (db,))]
        servers = [r for r in p.console("SHOW SERVERS") if r["database"] == db]
        return pids if all(int(r["remote_pid"]) in pids for r in servers) else None
    pids = wait_for(backends, "all servers to be backends")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_backends_that_are_stopped(qbouncer, db, direct):
    """Nobody knows whether what was sent to them is carried out later; what it takes then is given back."""
    p = qbouncer(queue_heartbeat=HEARTBEAT, queue_engine_timeout=TIMEOUT)
    with p.wire(db) as c, p.wire(db) as other:
        c.rows("QUEUE CREATE mail WITH (lease = '1h')")
        tag(c, "QUEUE PUSH mail '1'")
        with stopped(p, direct, db):
            other.query("QUEUE TAKE mail WAIT '1s'")
            got = other.until("Z")
        # in the moment in which the wait ends another connection may have found the job
        if got[-2].tag != "SELECT 0":
            tag(other, "QUEUE RELEASE '%s'" % job_of(got)["token"])
        # the stopped one goes on with what it was sent, and leases the job to nobody
        assert take(c, "QUEUE TAKE mail WAIT '15s'")["attempt"] == "1"
        with stopped(p, direct, db):
            assert fails(c, "QUEUE PUSH mail '2'").sqlstate == "08007"
        assert tag(c, "QUEUE PUSH mail '3'") == "INSERT 0 1"


# --- time -------------------------------------------------------------------------------------------

LOCKED = ("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
          " AND clock_timestamp() - query_start > %s")


def test_a_wait_ends_in_its_time_though_a_lock_is_held(qproxy, db, cluster):
    with qproxy.wire(db) as c, psycopg.connect(cluster.dsn(db)) as locker:
        c.rows("QUEUE CREATE mail WITH (lease = '1h')")
        tag(c, "QUEUE PUSH mail '1'")
        locker.execute("LOCK TABLE queue.q_mail")
        assert tag(c, "QUEUE TAKE mail WAIT '1500ms'") == "SELECT 0"
        assert tag(c, "QUEUE POP mail WAIT '1500ms'") == "SELECT 0"
        locker.rollback()
        # what its statement leased after all was given back
        assert take(c, "QUEUE TAKE mail WAIT '15s'")["attempt"] == "1"


@pytest.mark.parametrize("how", ["", " WAIT '30s'", " WHERE (payload = '1')"])
def test_what_a_cancelled_pop_would_have_had_stays(qproxy, db, cluster, direct, how):
    """Its statement is stopped: what it popped behind the cancel would be lost. Who shares the statement is served."""
    with qproxy.wire(db) as c, qproxy.wire(db) as other, psycopg.connect(cluster.dsn(db)) as locker:
        c.rows("QUEUE CREATE mail WITH (lease = '1h')")
        assert tag(c, "QUEUE POP mail" + how.replace("30s", "1ms")) == "SELECT 0"
        tag(c, "QUEUE PUSH mail '1'")
        locker.execute("LOCK TABLE queue.q_mail")
        c.query("QUEUE POP mail" + how)
        wait_for(lambda: direct.execute(LOCKED, ("0 s",)).fetchone()[0], "a POP that waits for the lock")
        other.query("QUEUE POP mail LIMIT 5" + how)
        cancel(c)
        assert [m.fields["C"] for m in c.until("Z") if m.type != "Z"] == ["57014"]
        locker.rollback()
        assert [m.text_row[4] for m in other.until("Z") if m.type == "D"] == ["1"]


@pytest.mark.parametrize("how", ["POP mail LIMIT 5", "POP mail LIMIT 5 WAIT '30s'", "POP mail LIMIT 5 WHERE (payload = '1')",
                                 "TAKE mail LIMIT 5 WHERE (payload = '1')"])
def test_who_shares_a_statement_with_many_that_are_cancelled_is_served(qproxy, db, cluster, direct, how):
    """It is stopped for each of them, and asked again for the others."""
    since = LOCKED.replace("count(*)", "max(query_start)")
    with qproxy.wire(db) as c, qproxy.wire(db) as patient, psycopg.connect(cluster.dsn(db)) as locker:
        c.rows("QUEUE CREATE mail WITH (lease = '1h')")
        assert tag(c, "QUEUE " + how.replace("30s", "1ms")) == "SELECT 0"
        tag(c, "QUEUE PUSH mail '1'")
        locker.execute("LOCK TABLE queue.q_mail")
        others = [qproxy.wire(db) for _ in range(6)]
        for n, one in enumerate(others + [patient], 1):
            one.query("QUEUE " + how)
            wait_for(lambda n=n: [r["state"] for r in qproxy.console("SHOW CLIENTS") if r["database"] == db].count("parked") == n,
                     "%d that ask" % n)
        last = None
        for other in others:
            wait_for(lambda last=last: (direct.execute(since, ("0 s",)).fetchone()[0] or last) != last, "the next statement")
            last = direct.execute(since, ("0 s",)).fetchone()[0]
            cancel(other)
            assert [m.fields["C"] for m in other.until("Z") if m.type != "Z"] == ["57014"]
        locker.rollback()
        assert [m.text_row[4] for m in patient.until("Z") if m.type == "D"] == ["1"]
        for other in others:
            other.close()


def test_a_push_that_waits_for_a_lock_gets_its_answer(qbouncer, db, cluster, direct):
    p = qbouncer(queue_engine_timeout="1s")
    with p.wire(db) as c, psycopg.connect(cluster.dsn(db)) as locker:
        c.rows("QUEUE CREATE mail")
        locker.execute("LOCK TABLE queue.q_mail")
        c.query("QUEUE PUSH mail '1'")
        wait_for(lambda: direct.execute(LOCKED, ("3 s",)).fetchone()[0], "a push that waits for 3 s", 30)
        locker.rollback()
        assert [m.type for m in c.until("Z")] == ["C", "Z"]


def test_all_that_wait_for_a_lock_get_their_answers(qbouncer, db, cluster, direct):
    """They have all the connections that there may be. Nobody is told that his server is silent, and none is opened in the place of others
    that go on waiting in the server."""
    p = qbouncer(queue_engine_timeout="1s", default_pool_size=1, queue_pool_size=1)
    with p.wire(db) as c, psycopg.connect(cluster.dsn(db)) as locker, contextlib.ExitStack() as stack:
        c.rows("QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1', '2', '3', '4'")
        tokens = [job["token"] for job in c.rows("QUEUE TAKE mail LIMIT 4")]
        locker.execute("LOCK TABLE queue.q_mail")
        others = [stack.enter_context(p.wire(db)) for _ in tokens]
        for other, token in zip(others, tokens):
            other.query("QUEUE EXTEND '%s' LEASE '1h'" % token)
        wait_for(lambda: direct.execute(LOCKED, ("3 s",)).fetchone()[0] == 2, "two that wait for 3 s", 30)
        assert direct.execute(LOCKED, ("0 s",)).fetchone()[0] == 2
        locker.rollback()
        assert [[m.type for m in other.until("Z")] for other in others] == [["C", "Z"]] * 4
        # what was opened to ask is for nobody else
        wait_for(lambda: len([r for r in p.console("SHOW SERVERS") if r["database"] == db]) <= 2, "the end of the one that asked")


def test_a_wait_ends_while_the_schema_is_asked_for(qbouncer, relay, db, cluster):
    p = qbouncer(databases={"*": "host=127.0.0.1 port=%d" % relay.port}, queue_engine_timeout=TIMEOUT)
    with p.wire(db) as c:
        relay.arm(None, "never")
        assert tag(c, "QUEUE TAKE mail WAIT '1s'") == "SELECT 0"
        # and the question itself ends, too
        c.rows("QUEUE CREATE mail")


# --- sockets ----------------------------------------------------------------------------------------

def options_of(pid, port):
    """Keepalive (idle, interval, count) and TCP_USER_TIMEOUT of a socket of another process to this port."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(434, pid, 0)
    assert pidfd >= 0
    try:
        for name in os.listdir("/proc/%d/fd" % pid):
            try:
                if not os.readlink("/proc/%d/fd/%s" % (pid, name)).startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            fd = libc.syscall(438, pidfd, int(name), 0)
            if fd < 0:
                if ctypes.get_errno() in (1, 38): # not allowed, or not known
                    pytest.skip("descriptors of other processes cannot be had here")
                continue
            with socket.socket(fileno=fd) as s:
                if s.family != socket.AF_INET:
                    continue
                try:
                    if s.getpeername()[1] != port:
                        continue
                except OSError:
                    continue
                get = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE)] + [(socket.IPPROTO_TCP, o) for o in (
                    socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)]
                return [s.getsockopt(*o) for o in get]
    finally:
        os.close(pidfd)
    return None


@pytest.mark.parametrize("settings, wanted", [
    ({}, lambda on, idle, every, count, user: on and idle + every * count <= 30 and user == 30000),
    ({"server_tcp_timeout": "0"}, lambda on, idle, every, count, user: on and idle >= 60 and user == 0),
    ({"tcp_keepidle": "77", "tcp_user_timeout": "5000"},
     lambda on, idle, every, count, user: on and idle == 77 and user == 5000),
    ({"tcp_keepalive": "0"}, lambda on, idle, every, count, user: not on and user == 30000),
], ids=["default", "off", "set", "no keepalive"])
def test_connections_to_servers_notice_a_dead_host(qbouncer, cluster, db, settings, wanted):
    p = qbouncer(databases={"*": "host=127.0.0.1 port=%d" % cluster.port}, **settings)
    with p.connect(db) as conn:
        conn.execute("SELECT 1")
        got = options_of(p.process.pid, cluster.port)
        # those to clients are as they were
        near = options_of(p.process.pid, conn.pgconn.socket and socket.socket(
            fileno=os.dup(conn.fileno())).getsockname()[1])
    assert wanted(*got), got
    assert near[4] == int(settings.get("tcp_user_timeout", 0)), near
