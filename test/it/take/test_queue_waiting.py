"""The waiting room: what wakes a waiter, in which order, what ends a wait, and what it costs.

The periodic look is set to an hour in most tests, so that only what should wake a waiter can.
"""

import signal
import threading
import time

import psycopg
import pytest

from pgwire import cancel, types
from proxy import wait_for
from queuetest import (  # noqa: F401
    HEARTBEAT, error, job_of, parked, peek, q, stats, tag, take, woken)

NO_LOOK = {"queue_heartbeat": HEARTBEAT, "queue_rescan": "1h"}


@pytest.fixture
def qproxy(qbouncer):
    return qbouncer(**NO_LOOK)


def wait_on(proxy, db, sql="QUEUE TAKE mail WAIT '30s'", user="app"):
    w = proxy.wire(db, user)
    w.query(sql)
    parked(w)
    return w


def backends(direct, db):
    """(all of the proxies', those that do something, system sessions)"""
    return direct.execute(
        "SELECT count(*), count(*) FILTER (WHERE state <> 'idle'), "
        "count(*) FILTER (WHERE application_name = 'qbouncer system') FROM pg_stat_activity "
        "WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'", (db,)).fetchone()


# --- what it costs --------------------------------------------------------------------------------


def test_two_hundred_waiters_hold_no_server(qbouncer, db, direct):
    proxy = qbouncer(default_pool_size=2, max_client_conn=300, **NO_LOOK)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        waiters = [proxy.wire(db) for _ in range(200)]
        for w in waiters:
            w.query("QUEUE TAKE mail WAIT '60s'")
        parked(*waiters)
        every, _, _ = wait_for(lambda: (lambda b: b[1:] == (0, 1) and b)(backends(direct, db)), "that no server is held")
        assert every <= 2 + 5 + 1
        # the pool is free for others
        assert types(c.simple("SELECT 1")) == "TDCZ"
        tag(c, "QUEUE PUSH mail " + ", ".join("'%d'" % n for n in range(200)))
        assert sorted(int(woken(w)["payload"]) for w in waiters) == list(range(200))
        assert stats(c)["leased"] == 200
        for w in waiters:
            w.close()


# --- what wakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", ["QUEUE PUSH mail '1'", "QUEUE PUSH mail $$1$$ RETURNING ID",
                                 "SELECT 1; QUEUE PUSH mail '1'"])
def test_push_through_the_proxy(qproxy, db, q, sql):
    w = wait_on(qproxy, db)
    q.simple(sql)
    assert woken(w)["payload"] == "1"


def test_push_by_sql(qproxy, db, q, direct):
    w = wait_on(qproxy, db)
    direct.execute("SELECT queue.push('mail', '1')")
    assert woken(w)["payload"] == "1"
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    with psycopg.connect(direct.info.dsn, user="postgres") as conn:
        conn.execute("SELECT queue.push('mail', '2')")
        parked(w, w)
        conn.commit()
    assert woken(w)["payload"] == "2"


def test_push_by_sql_through_the_proxy(qproxy, db, q):
    """The function on a pooled server: a notification as well."""
    w = wait_on(qproxy, db)
    q.simple("SELECT queue.push('mail', '1')")
    assert woken(w)["payload"] == "1"


def test_push_by_a_trigger(qproxy, db, q, direct):
    tag(q, "CREATE TABLE users (name text)")
    tag(q, "CREATE FUNCTION welcome() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
           "PERFORM queue.push('mail', to_jsonb(NEW)); RETURN NEW; END $$")
    tag(q, "CREATE TRIGGER welcome AFTER INSERT ON users FOR EACH ROW EXECUTE FUNCTION welcome()")
    w = wait_on(qproxy, db)
    tag(q, "INSERT INTO users VALUES ('through the proxy')")
    assert "through the proxy" in woken(w)["payload"]
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    direct.execute("INSERT INTO users VALUES ('direct')")
    assert "direct" in woken(w)["payload"]


def test_push_by_another_proxy(qbouncer, qproxy, db, q):
    """Also by one that has just been started and has never waited itself."""
    w = wait_on(qproxy, db)
    other = qbouncer(**NO_LOOK)
    with other.wire(db) as c:
        tag(c, "QUEUE PUSH mail '1'")
        assert woken(w)["payload"] == "1"
        for n in range(2, 5):
            w.query("QUEUE TAKE mail WAIT '30s'")
            parked(w)
            tag(c, "BEGIN")
            tag(c, "QUEUE PUSH mail '%d'" % n)
            tag(c, "COMMIT")
            assert woken(w)["payload"] == str(n)
        # and the other way round
        c.query("QUEUE TAKE mail WAIT '30s'")
        parked(c)
        tag(q, "QUEUE PUSH mail '9'")
        assert woken(c)["payload"] == "9"


def test_release_and_fail_by_another_proxy(qbouncer, qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    jobs = q.rows("QUEUE TAKE mail LIMIT 2")
    other = qbouncer(**NO_LOOK)
    w = wait_on(other, db)
    tag(q, "QUEUE RELEASE '%s'" % jobs[0]["token"])
    assert woken(w)["payload"] == "1"
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    tag(q, "QUEUE FAIL '%s' RETRY IN '300ms'" % jobs[1]["token"])
    assert woken(w)["payload"] == "2"


@pytest.mark.parametrize("when", ["before", "while"])
@pytest.mark.parametrize("clause", ["DELAY '400ms'", "AT now"])
def test_delayed_job(qproxy, db, q, when, clause):
    """In time, and not early, by the clock of the database."""
    if clause == "AT now":
        at = q.rows("SELECT clock_timestamp() + '400ms' AS t")[0]["t"]
        clause = "AT '%s'" % at
    if when == "before":
        tag(q, "QUEUE PUSH mail '1' " + clause)
        w = wait_on(qproxy, db)
    else:
        w = wait_on(qproxy, db)
        tag(q, "QUEUE PUSH mail '1' " + clause)
    run_at = peek(q)[0]["run_at"]
    job = woken(w)
    late = q.rows("SELECT extract(epoch FROM clock_timestamp() - '%s') AS s" % run_at)[0]["s"]
    assert job["payload"] == "1" and 0 <= float(late) < 5, late


def test_retry(qproxy, db, q):
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 300ms')")
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    w = wait_on(qproxy, db)
    tag(q, "QUEUE FAIL '%s'" % job["token"])
    assert woken(w)["attempt"] == "2"
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    tag(q, "BEGIN; SELECT 1")
    assert error(q, "QUEUE FAIL '%s'" % job["token"]).sqlstate == "QB001"
    tag(q, "ROLLBACK")
    parked(w)


@pytest.mark.parametrize("waits_first", [True, False])
def test_end_of_a_lease(qproxy, db, q, waits_first):
    with qproxy.wire(db) as w:
        if waits_first:
            w.query("QUEUE TAKE mail WAIT '30s'")
            parked(w)
            first = wait_on(qproxy, db, "QUEUE TAKE mail LEASE '1500ms' WAIT '30s'")
            # the longest waiter gets the first, the second one waits for the end of its own kind
            tag(q, "QUEUE PUSH mail '0'")
            assert woken(w)["payload"] == "0"
            tag(q, "QUEUE PUSH mail '1'")
            job = woken(first)
        else:
            tag(q, "QUEUE PUSH mail '1'")
            job = take(q, "QUEUE TAKE mail LEASE '1500ms'")
        w.query("QUEUE TAKE mail WAIT '30s'")
        again = woken(w)
        assert again["id"] == job["id"] and again["attempt"] == "2"
        row = peek(q, state="leased")
        assert "lease expired" in [r["error"] for r in row]
        assert error(q, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB001"
        late = q.rows("SELECT extract(epoch FROM clock_timestamp() - '%s') AS s" % job["lease_until"])[0]["s"]
        assert 0 <= float(late) < 5


def test_lease_taken_while_others_wait(qproxy, db, q):
    """The waiter is there before the lease is: it still hears of the end."""
    one = wait_on(qproxy, db, "QUEUE TAKE mail LEASE '1200ms' WAIT '30s'")
    two = wait_on(qproxy, db)
    tag(q, "QUEUE PUSH mail '1'")
    first = woken(one)
    again = woken(two)
    assert again["id"] == first["id"] and again["attempt"] == "2"


@pytest.mark.parametrize("verb", ["RELEASE", "FAIL"])
@pytest.mark.parametrize("block", [False, True])
def test_what_gives_back_wakes(qproxy, db, q, verb, block):
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 10ms')")
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q)
    w = wait_on(qproxy, db)
    if block:
        tag(q, "BEGIN")
    tag(q, "QUEUE %s '%s'" % (verb, job["token"]))
    if block:
        parked(w, w)
        tag(q, "COMMIT")
    assert woken(w)["attempt"] == ("1" if verb == "RELEASE" else "2")


def test_several_queues(qproxy, db, q):
    tag(q, "QUEUE CREATE a")
    tag(q, "QUEUE CREATE b")
    for name in ("b", "a", "mail"):
        w = wait_on(qproxy, db, "QUEUE TAKE a, mail, b WAIT '30s'")
        tag(q, "QUEUE PUSH %s '1'" % name)
        assert woken(w)["queue"] == name
        w.terminate()


def test_wait_ends_with_what_is_there(qproxy, db, q):
    w = wait_on(qproxy, db, "QUEUE TAKE mail LIMIT 10 WAIT '30s'")
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    got = w.until("Z")
    assert types(got) == "TDDDCZ" and got[-2].tag == "SELECT 3"
    w.query("QUEUE POP mail LIMIT 2 WAIT '30s'")
    parked(w)
    tag(q, "QUEUE PUSH mail '4', '5', '6'")
    assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["4", "5"]


def test_binary_results_behind_a_wait(qproxy, db, q):
    with qproxy.wire(db) as w:
        w.hold().parse("", "QUEUE TAKE mail WAIT $1").bind("", "", ["30s"], results=[1])
        w.describe("P").execute().sync().push()
        parked(w)
        tag(q, "QUEUE PUSH mail '{\"a\": 1}'")
        got = w.until("Z")
        row = [m for m in got if m.type == "D"][0].row
        assert len(row[0]) == 8 and row[4] == b"\1{\"a\": 1}"


# --- who is served --------------------------------------------------------------------------------


def test_two_waiters_one_job(qproxy, db, q):
    one, two = wait_on(qproxy, db), wait_on(qproxy, db)
    tag(q, "QUEUE PUSH mail '1'")
    assert woken(one)["payload"] == "1"
    parked(two, two)
    tag(q, "QUEUE PUSH mail '2'")
    assert woken(two)["payload"] == "2"


@pytest.mark.parametrize("one_push", [True, False])
def test_longest_waiter_first(qproxy, db, q, one_push):
    waiters = [wait_on(qproxy, db) for _ in range(8)]
    if one_push:
        tag(q, "QUEUE PUSH mail " + ", ".join("'%d'" % n for n in range(8)))
    for n, w in enumerate(waiters):
        if not one_push:
            tag(q, "QUEUE PUSH mail '%d'" % n)
        assert woken(w)["payload"] == str(n)
        w.terminate()


def test_order_of_those_that_come_again(qproxy, db, q):
    """Who was served goes to the end of the line."""
    a, b, c = (wait_on(qproxy, db) for _ in range(3))
    for n, w in enumerate((a, b, c, a, b, c)):
        tag(q, "QUEUE PUSH mail '%d'" % n)
        assert woken(w)["payload"] == str(n)
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)


def test_waiters_of_different_kinds(qproxy, db, q):
    """TAKE, POP, other limits, other leases, other roles: all are served."""
    tag(q, "GRANT USAGE ON SCHEMA queue TO other")
    tag(q, "GRANT ALL ON ALL TABLES IN SCHEMA queue TO other")
    tag(q, "GRANT ALL ON ALL SEQUENCES IN SCHEMA queue TO other")
    waiters = [wait_on(qproxy, db), wait_on(qproxy, db, "QUEUE POP mail WAIT '30s'"),
               wait_on(qproxy, db, "QUEUE TAKE mail LEASE '1 min' WAIT '30s'"),
               wait_on(qproxy, db, user="other"), wait_on(qproxy, db, "QUEUE TAKE mail AS 'me' WAIT '30s'")]
    tag(q, "QUEUE PUSH mail '0', '1', '2', '3', '4'")
    assert sorted(woken(w)["payload"] for w in waiters) == list("01234")
    assert stats(q)["leased"] == 4


def test_nothing_is_missed(qproxy, db, q):
    """Takers that come and go while jobs are pushed one by one: none is left lying."""
    n_pushers, n_takers, each = 3, 5, 100
    got, lock, failures = [], threading.Lock(), []

    def push(k):
        with qproxy.wire(db) as c:
            for n in range(each):
                tag(c, "QUEUE PUSH mail '%d'" % (k * each + n))

    def pull():
        try:
            with qproxy.wire(db) as c:
                while True:
                    with lock:
                        if len(got) >= n_pushers * each:
                            return
                    for row in c.rows("QUEUE POP mail WAIT '30s'"):
                        with lock:
                            got.append(int(row["payload"]))
        except Exception as e: # noqa: BLE001
            failures.append(e)

    started = time.monotonic()
    takers = [threading.Thread(target=pull) for _ in range(n_takers)]
    pushers = [threading.Thread(target=push, args=(k,)) for k in range(n_pushers)]
    for t in takers + pushers:
        t.start()
    for t in pushers:
        t.join()
    wait_for(lambda: len(got) >= n_pushers * each or failures, "all jobs", 20)
    # those that still wait
    tag(q, "QUEUE PUSH mail " + ", ".join(["'-1'"] * n_takers))
    for t in takers:
        t.join(20)
    assert not failures
    assert sorted(x for x in got if x >= 0) == list(range(n_pushers * each))
    assert time.monotonic() - started < 30


# --- what ends it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["simple", "extended", "in a block"])
def test_time_is_over(qproxy, q, way):
    begun = time.monotonic()
    if way == "simple":
        got = q.simple("QUEUE TAKE mail WAIT '200ms'")
        assert types(got) == "TCZ"
    elif way == "extended":
        got = q.hold().parse("", "QUEUE TAKE mail WAIT '200ms'").bind().describe("P").execute().sync().push().until("Z")
        assert types(got) == "12TCZ"
    else:
        q.simple("BEGIN")
        got = q.simple("QUEUE TAKE mail WAIT '200ms'")
        assert types(got) == "TCZ" and got[-1].status == "T"
        assert tag(q, "COMMIT") == "COMMIT"
    assert [m.tag for m in got if m.type == "C"] == ["SELECT 0"]
    assert 0.19 < time.monotonic() - begun


def test_statement_timeout(qproxy, db, q):
    """As drivers state it at the beginning of a session."""
    with qproxy.wire(db, statement_timeout="1000") as c:
        e = error(c, "QUEUE TAKE mail WAIT '30s'")
        assert e.sqlstate == "57014" and "statement timeout" in e.message
        assert c.rows("QUEUE TAKE mail WAIT '1ms'") == []
        assert e.fields["S"] == "ERROR"


@pytest.mark.parametrize("way", ["simple", "extended", "in a block"])
def test_cancel(qproxy, db, q, way):
    if way == "in a block":
        q.simple("BEGIN")
    if way == "extended":
        q.hold().parse("", "QUEUE TAKE mail WAIT '30s'").bind().execute()
        q.parse("", "QUEUE PUSH mail '1'").bind().execute().sync().push()
    else:
        q.query("QUEUE TAKE mail WAIT '30s'")
    parked(q)
    cancel(q)
    got = q.until("Z")
    assert [m.sqlstate for m in got if m.type == "E"] == ["57014"]
    assert types(got)[-2:] == "EZ" and got[-1].status == ("E" if way == "in a block" else "I")
    if way == "in a block":
        assert tag(q, "COMMIT") == "ROLLBACK"
    assert peek(q) == []
    # the session and the queue live on
    w = wait_on(qproxy, db)
    tag(q, "QUEUE PUSH mail '2'")
    assert woken(w)["payload"] == "2"


def test_cancel_of_nothing(qproxy, q):
    cancel(q)
    assert q.rows("QUEUE TAKE mail WAIT '50ms'") == []


@pytest.mark.parametrize("how", ["close", "reset", "terminate"])
def test_going_away(qproxy, db, q, how):
    """The job goes to the next in the line, uncounted."""
    gone, stays = wait_on(qproxy, db), wait_on(qproxy, db)
    getattr(gone, how)()
    qproxy.wait_pool(db, cl_active=2)
    tag(q, "QUEUE PUSH mail '1'")
    job = woken(stays)
    assert job["payload"] == "1" and job["attempt"] == "1"
    assert peek(q)[0]["failures"] == "0"


def test_going_away_in_the_moment_of_the_push(qproxy, db, q):
    for n in range(15):
        gone, stays = wait_on(qproxy, db), wait_on(qproxy, db)
        q.query("QUEUE PUSH mail '%d'" % n)
        gone.reset() if n % 2 else gone.close()
        q.until("Z")
        job = woken(stays)
        assert job["payload"] == str(n)
        tag(q, "QUEUE DONE '%s'" % job["token"])
        stays.close()
    assert stats(q) == dict(ready=0, later=0, leased=0, dead=0)


def test_restart_of_the_server(qproxy, db, q, cluster):
    """Waiters keep waiting while Postgres is away."""
    one, two = wait_on(qproxy, db), wait_on(qproxy, db)
    cluster.stop("immediate")
    try:
        parked(one, two)
        e = error(q, "QUEUE PUSH mail '0'")
        assert e.sqlstate[:2] in ("08", "57")
        parked(one, two)
    finally:
        cluster.start()
    with psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        conn.execute("SELECT queue.push('mail', '1')")
    assert woken(one)["payload"] == "1"
    wait_for(lambda: "E" not in types(q.simple("QUEUE PUSH mail '2'")), "a server")
    assert woken(two)["payload"] == "2"


def test_no_system_session(qproxy, db, q, direct):
    """It is killed: delivery goes on, and it comes back."""
    w = wait_on(qproxy, db)
    wait_for(lambda: backends(direct, db)[2] == 1, "the system session")
    for n in range(3):
        direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE application_name = 'qbouncer system' AND datname = %s", (db,))
        direct.execute("SELECT queue.push('mail', '%d')" % n)
        assert woken(w)["payload"] == str(n)
        w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    wait_for(lambda: backends(direct, db)[2] == 1, "the system session again")


@pytest.mark.parametrize("way", ["simple", "extended", "in a block"])
def test_shutdown_of_the_proxy(qproxy, db, q, way):
    """Waits end with zero rows; then, at the next idle moment, the session does."""
    w = qproxy.wire(db)
    if way == "in a block":
        w.simple("BEGIN")
    if way == "extended":
        w.hold().parse("", "QUEUE TAKE mail WAIT '30s'").bind().describe("P").execute().sync().push()
    else:
        w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    qproxy.signal(signal.SIGINT)
    got = w.until("C")
    assert got[-1].tag == "SELECT 0" and "D" not in types(got), got
    assert w.until("Z")[-1].status == ("T" if way == "in a block" else "I")
    assert [m.sqlstate for m in w.closed() if m.type == "E"] == ["57P01"]
    wait_for(lambda: qproxy.process.poll() is not None, "the end of the proxy")


def test_shutdown_that_waits_for_clients(qproxy, db, q):
    """SIGTERM: who waits is sent to wait elsewhere; who holds a job may go on."""
    w, holder = wait_on(qproxy, db), wait_on(qproxy, db)
    tag(q, "QUEUE PUSH mail '1'")
    assert woken(w)["payload"] == "1"
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(holder, w)
    qproxy.signal(signal.SIGTERM)
    assert [m.tag for m in holder.until("Z") if m.type == "C"] == ["SELECT 0"]
    assert holder.closed()[-1].sqlstate == "57P01"
    tag(q, "QUEUE PUSH mail '2'")
    assert woken(w)["payload"] == "2"
    w.terminate()
    q.terminate()
    wait_for(lambda: qproxy.process.poll() is not None, "the end of the proxy")


def test_queue_is_dropped(qbouncer, db):
    proxy = qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="100ms")
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        w = wait_on(proxy, db)
        tag(c, "QUEUE DROP mail")
        got = w.until("Z")
        assert [m.sqlstate for m in got if m.type == "E"] == ["42P01"]
        tag(c, "QUEUE CREATE mail")
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        tag(c, "QUEUE PUSH mail '1'")
        assert woken(w)["payload"] == "1"


# --- while it waits -------------------------------------------------------------------------------


def test_heartbeat(qproxy, db, q):
    """An unchanged ParameterStatus, only while it waits."""
    w = wait_on(qproxy, db)
    for _ in range(3):
        m = w.recv()
        assert m.type == "S" and m.parameter[0] == "application_name"
        assert m.parameter[1] == w.parameters["application_name"]
    tag(q, "QUEUE PUSH mail '1'")
    woken(w)
    assert w.silent(0.1)


def test_no_heartbeat(qbouncer, db):
    proxy = qbouncer(queue_heartbeat=0)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        got = c.query("QUEUE TAKE mail WAIT '200ms'").until("Z", skip="")
        assert types(got) == "TCZ"


def test_heartbeat_is_switched_on(qproxy, db, q):
    """Also for who waits already."""
    w = wait_on(qproxy, db)
    qproxy.console("SET queue_heartbeat = 0")
    while not w.silent(0.2):
        assert w.recv().type == "S"
    qproxy.console("SET queue_heartbeat = '20ms'")
    assert w.recv().type == "S"
    tag(q, "QUEUE PUSH mail '1'")
    woken(w)


def test_input_behind_a_wait(qproxy, db, q):
    with qproxy.wire(db) as w:
        w.hold()
        w.parse("", "QUEUE TAKE mail WAIT '30s'").bind().execute().sync()
        w.query("SELECT 'one'")
        w.parse("", "SELECT 'two'").bind().execute().sync()
        w.query("QUEUE TAKE mail WAIT '30s'").push()
        parked(w)
        tag(q, "QUEUE PUSH mail '1'")
        assert types(w.until("Z")) == "DCZ"
        assert types(w.until("Z")) == "TDCZ"
        assert types(w.until("Z")) == "12DCZ"
        parked(w)
        tag(q, "QUEUE PUSH mail '2'")
        assert woken(w)["payload"] == "2"


def test_much_input_behind_a_wait(qproxy, db, q):
    """Kept up to a bound, then the client is not read; nothing of it is lost."""
    n, text = 300, "x" * 3000
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        sender = threading.Thread(target=lambda: [w.query("SELECT '%d %s'" % (i, text)) for i in range(n)])
        sender.start()
        parked(w, w, w)
        tag(q, "QUEUE PUSH mail '1'")
        assert woken(w)["payload"] == "1"
        for i in range(n):
            assert w.until("Z")[1].text_row[0] == "%d %s" % (i, text)
        sender.join()
    assert qproxy.rss_kib() > 0


@pytest.mark.parametrize("how", ["terminate", "close"])
def test_goodbye_behind_a_wait(qproxy, db, q, how):
    w = qproxy.wire(db)
    w.query("QUEUE TAKE mail WAIT '30s'")
    parked(w)
    w.query("SELECT 1")
    getattr(w, how)()
    other = wait_on(qproxy, db)
    tag(q, "QUEUE PUSH mail '1', '2'")
    assert woken(other)["payload"] in "12"


def test_waiters_do_not_block_the_pool(qbouncer, db):
    """One server for all: waiters leave it to others, takers inside transactions get theirs."""
    proxy = qbouncer(default_pool_size=1, **NO_LOOK)
    with proxy.wire(db) as c, proxy.wire(db) as d:
        tag(c, "QUEUE CREATE mail")
        waiters = [wait_on(proxy, db) for _ in range(5)]
        tag(c, "BEGIN; SELECT 1")
        tag(c, "QUEUE PUSH mail '1'")
        d.query("QUEUE TAKE mail WAIT '30s'")
        parked(d)
        assert c.rows("QUEUE TAKE mail") == []
        tag(c, "COMMIT")
        assert woken(waiters[0])["payload"] == "1"


def test_order_behind_a_look_in_vain(qproxy, db, q):
    """What is held back wakes both: the first one asks, the second one gathers behind it, and jobs come in between."""
    with qproxy.wire(db) as first, qproxy.wire(db) as second:
        tag(q, "QUEUE CREATE never")
        tag(q, "QUEUE PUSH never '1'")
        (job,) = [r["job"] for r in q.rows("QUEUE PEEK never")]
        for _ in range(20):
            for w in first, second:
                w.query("QUEUE TAKE mail WAIT '1 min'")
                parked(w)
            for _ in range(3):
                tag(q, "QUEUE PUSH mail '0', '0' AFTER '%s'" % job)
            tag(q, "QUEUE PUSH mail '1', '2'")
            taken = [woken(w) for w in (first, second)]
            assert [t["payload"] for t in taken] == ["1", "2"]
            for w, t in zip((first, second), taken):
                tag(w, "QUEUE DONE '%s'" % t["token"])
