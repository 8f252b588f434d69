"""What lets the next job of a group go, or runs a job again, is told to who waits: at once, and by no NOTIFY in the
transaction of a client, but by one of the proxy's own session, if there are other proxies. What is done past the
proxies notifies. There is no periodic look here.
"""

import psycopg
import pytest

from proxy import wait_for
from queuetest import Listener, parked, q, shared, shared_db, shared_proxy, tag, take, woken  # noqa: F401

WAIT = "QUEUE TAKE mail LIMIT 5 WAIT '30s'"


def session(cluster, db):
    return psycopg.connect(cluster.dsn(db), autocommit=True)


@pytest.fixture
def direct(cluster, db):
    with session(cluster, db) as conn:
        yield conn


@pytest.fixture
def listener(cluster, db):
    with session(cluster, db) as conn:
        yield Listener(conn)


@pytest.fixture
def other(q, qproxy, db):
    with qproxy.wire(db) as w:
        yield w


def system_pid(direct):
    return direct.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                          "AND application_name = 'qbouncer system'").fetchall()


# --- what ends the first of a group

ENDS = {
    "done": "QUEUE DONE '%s'",
    "done of several": "QUEUE DONE '%s', '{more}'",
    "result": "QUEUE DONE '%s' RESULT '1'",
    "then push": "QUEUE DONE '%s' THEN PUSH more 'null'",
    "then push, with the id": "QUEUE DONE '%s' THEN PUSH more 'null' RETURNING ID",
    "then take": "QUEUE DONE '%s' THEN TAKE more",
    "fail": "QUEUE FAIL '%s' FINAL",
    "cancel": "QUEUE CANCEL '%s'",
    "purge": "QUEUE PURGE mail STATE later",
}


def begin(c, how):
    """The first one, and one behind it: the statement that ends the first."""
    tag(c, "QUEUE CREATE more")
    tag(c, "QUEUE PUSH more '7'")
    sql = ENDS[how].replace("{more}", take(c, "QUEUE TAKE more")["token"]) if "{more}" in ENDS[how] else ENDS[how]
    if how in ("cancel", "purge"):
        tag(c, "QUEUE PUSH mail '1' GROUP 'g' DELAY '1h'")
        job = c.rows("SELECT number || '-1' AS job FROM queue.queues WHERE name = 'mail'")[0]["job"]
    else:
        tag(c, "QUEUE PUSH mail '1' GROUP 'g'")
        job = take(c)["token"]
    tag(c, "QUEUE PUSH mail '2' GROUP 'g'")
    return sql % job if "%s" in sql else sql


def wait_behind(other):
    other.query(WAIT)
    parked(other)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("way", ("by itself", "in a transaction", "extended"))
def test_who_waits_is_told(q, other, listener, how, way):
    sql = begin(q, how)
    wait_behind(other)
    listener.heard()
    if way == "extended":
        got = q.hold().parse("", sql).bind("", "").execute().sync().push().until("Z", skip="S")
    elif way == "by itself":
        got = q.query(sql).until("Z", skip="S")
    else:
        tag(q, "BEGIN")
        got = q.query(sql).until("Z", skip="S")
        tag(q, "COMMIT")
    assert [m.type for m in got if m.type in "NE"] == []
    assert woken(other)["payload"] == "2"
    assert listener.heard() == []


def test_a_pop_lets_the_next_go(q, other, listener, qproxy, db):
    """Who waits may not have the first one: it is pushed and popped by others."""
    tag(q, "QUEUE PUSH mail '1', '2', '3' GROUP 'g'")
    job = take(q)["token"]
    with qproxy.wire(db) as popper:
        popper.query("QUEUE POP mail WAIT '30s'")
        parked(popper)
        wait_behind(other)
        listener.heard()
        tag(q, "QUEUE DONE '%s'" % job)
        assert woken(popper)["payload"] == "2"
    assert woken(other)["payload"] == "3"
    assert listener.heard() == []


@pytest.mark.parametrize("way", ("by itself", "in a transaction"))
def test_a_job_runs_again(q, other, listener, way):
    tag(q, "QUEUE PUSH mail '1' KEY 'k'")
    job = take(q)["token"]
    tag(q, "QUEUE PUSH mail '2' KEY 'k' ON DUPLICATE REPLACE")
    wait_behind(other)
    listener.heard()
    if way == "in a transaction":
        tag(q, "BEGIN")
    tag(q, "QUEUE DONE '%s'" % job)
    if way == "in a transaction":
        tag(q, "COMMIT")
    assert woken(other)["payload"] == "2"
    assert listener.heard() == []


@pytest.mark.parametrize("way", ("by itself", "in a transaction"))
def test_drop(q, other, listener, way):
    wait_behind(other)
    listener.heard()
    if way == "in a transaction":
        tag(q, "BEGIN")
    tag(q, "QUEUE DROP mail")
    if way == "in a transaction":
        tag(q, "COMMIT")
    got = other.until("Z")
    assert [m.sqlstate for m in got if m.type == "E"] == ["42P01"]
    assert listener.heard() == []


def test_a_worker_that_is_gone(q, other, listener, qproxy, db):
    """One of its jobs has no attempt left, another one was cancelled meanwhile."""
    tag(q, "QUEUE PUSH mail '1' GROUP 'g' ATTEMPTS 1")
    tag(q, "QUEUE PUSH mail '11' GROUP 'h'")
    tag(q, "QUEUE PUSH mail '2' GROUP 'g'")
    tag(q, "QUEUE PUSH mail '12' GROUP 'h'")
    with qproxy.wire(db) as worker:
        tokens = [job["token"] for job in worker.rows("QUEUE TAKE mail LIMIT 2")]
        tag(q, "QUEUE CANCEL '%s'" % tokens[1])
        other.query("QUEUE TAKE mail WAIT '30s'")
        parked(other)
        listener.heard()
        worker.reset()
    first = woken(other)["payload"]
    second = take(other, "QUEUE TAKE mail WAIT '30s'")["payload"]
    assert sorted((first, second)) == ["12", "2"]
    assert listener.heard() == []


@pytest.mark.parametrize("ends", ("ATTEMPTS 1", "EXPIRES '1us'"))
def test_time_is_over(q, listener, ends):
    """The take that finds it so."""
    tag(q, "QUEUE PUSH mail '1' GROUP 'g' " + ends)
    tag(q, "QUEUE PUSH mail '2' GROUP 'g'")
    if ends == "ATTEMPTS 1":
        take(q, "QUEUE TAKE mail LEASE '1ms'")
    listener.heard()
    assert take(q, "QUEUE TAKE mail WAIT '30s'")["payload"] == "2"
    assert listener.heard() == []


def test_maintenance(qbouncer, cluster):
    """By the session of the proxy, which tells others and itself."""
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_heartbeat="20ms", queue_rescan="1h", queue_maintenance="1s")
    with proxy.wire(db) as c, proxy.wire(db) as other, session(cluster, db) as conn:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1' GROUP 'g' DELAY '1h'")
        tag(c, "QUEUE PUSH mail '2' GROUP 'g'")
        wait_behind(other)
        listener = Listener(conn)
        conn.execute("UPDATE queue.q_mail SET expires_at = now() - interval '1 s', due = now() - interval '1 s' WHERE id = 1")
        assert woken(other)["payload"] == "2"
        assert listener.heard() == []


def test_what_is_let_go_at_the_commit_of_its_push(q, other, listener, qproxy, db):
    """The one before it ends while nobody sees it yet."""
    tag(q, "QUEUE PUSH mail '1' GROUP 'g'")
    job = take(q)["token"]
    with qproxy.wire(db) as pusher:
        tag(pusher, "BEGIN")
        tag(pusher, "QUEUE PUSH mail '2' GROUP 'g'")
        tag(q, "QUEUE DONE '%s'" % job)
        wait_behind(other)
        listener.heard()
        tag(pusher, "COMMIT")
    assert woken(other)["payload"] == "2"
    assert listener.heard() == []


@pytest.mark.parametrize("outcome", ("COMMIT", "ROLLBACK"))
def test_a_push_that_waits_for_the_end_of_another_one(q, other, listener, qproxy, db, outcome):
    """On the merged path, with somebody who waits for it."""
    tag(q, "QUEUE PUSH mail '1' GROUP 'g'")
    job = take(q)["token"]
    wait_behind(other)
    with qproxy.wire(db) as pusher:
        tag(q, "BEGIN")
        tag(q, "QUEUE DONE '%s'" % job)
        listener.heard()
        pusher.query("QUEUE PUSH mail '2' GROUP 'g'")
        wait_for(lambda: listener.conn.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchall(), "a push that waits")
        tag(q, outcome)
        assert [m.tag for m in pusher.until("Z") if m.type == "C"] == ["INSERT 0 1"]
    if outcome == "ROLLBACK":
        tag(q, "QUEUE DONE '%s'" % job)
    assert woken(other)["payload"] == "2"
    assert listener.heard() == []


def test_rolled_back(q, other, listener):
    tag(q, "QUEUE PUSH mail '1', '2' GROUP 'g'")
    job = take(q)["token"]
    wait_behind(other)
    listener.heard()
    tag(q, "BEGIN")
    tag(q, "QUEUE DONE '%s'" % job)
    tag(q, "ROLLBACK")
    assert q.rows("QUEUE STATS mail")[0]["blocked"] == "1"
    tag(q, "BEGIN")
    tag(q, "SAVEPOINT a")
    tag(q, "QUEUE DONE '%s'" % job)
    tag(q, "ROLLBACK TO a")
    tag(q, "QUEUE DONE '%s'" % job)
    tag(q, "COMMIT")
    assert woken(other)["payload"] == "2"
    assert listener.heard() == []


def test_two_phases(q, other, listener, direct):
    """Nothing was notified that PREPARE TRANSACTION would refuse."""
    if direct.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
        pytest.skip("no prepared transactions")
    tag(q, "QUEUE PUSH mail '1', '2' GROUP 'g'")
    job = take(q)["token"]
    wait_behind(other)
    tag(q, "BEGIN")
    tag(q, "QUEUE DONE '%s'" % job)
    tag(q, "PREPARE TRANSACTION 'p'")
    tag(q, "COMMIT PREPARED 'p'")
    assert woken(other)["payload"] == "2"


# --- past the proxies

PAST = {
    "done": "SELECT queue.done(%s)",
    "fail": "SELECT queue.fail(%s, final => true)",
    "delete": "DELETE FROM queue.q_mail WHERE id = split_part(%s, '-', 2)::int8",
    "drop": "SELECT queue.drop('mail') WHERE %s <> ''",
}


@pytest.mark.parametrize("how", PAST)
def test_past_the_proxy(q, other, listener, direct, how):
    tag(q, "QUEUE PUSH mail '1', '2' GROUP 'g'")
    job = take(q)["token"]
    wait_behind(other)
    listener.heard()
    direct.execute(PAST[how], [job])
    got = other.until("Z")
    if how == "drop":
        assert [m.sqlstate for m in got if m.type == "E"] == ["42P01"]
    else:
        assert [m.text_row[4] for m in got if m.type == "D"] == ["2"]
    assert listener.heard() == [(direct.info.backend_pid, "mail")]


@pytest.mark.parametrize("verb", ["CANCEL", "CANCEL ALL"])
@pytest.mark.parametrize("on_disconnect, hold, told", [("auto", "HOLD", True), ("keep", "HOLD", True), ("keep", "", False)])
def test_a_cancel_is_told_to_whom_it_may_concern(q, other, listener, verb, on_disconnect, hold, told):
    """A proxy looks after the leases that end with a connection; of one that is kept it would not know what to do."""
    tag(q, "QUEUE ALTER mail SET (on_disconnect = '%s')" % on_disconnect)
    wait_for(lambda: tag(q, "QUEUE PUSH mail '0'") and tag(q, "QUEUE POP mail") and system_pid(listener.conn), "its session")
    tag(q, "QUEUE PUSH mail '1'")
    (job,) = other.rows("QUEUE TAKE mail " + hold)
    listener.heard()
    with listener.conn.transaction():  # without a proxy, so that it is a notification
        if "ALL" in verb:
            listener.conn.execute("SELECT queue.cancel_all('mail')")
        else:
            listener.conn.execute("SELECT queue.cancel(%s)", (job["token"].rsplit("-", 1)[0],))
    assert any(n[1].startswith("of no queue: cancelled in ") for n in listener.heard()) == told


# --- two proxies

@pytest.mark.parametrize("how", ("done", "done in a transaction", "fail", "pop", "cancelled", "again", "drop"))
def test_another_proxy_is_told(qbouncer, cluster, how):
    db = cluster.createdb(owner="app")
    one, more = (qbouncer(queue_heartbeat="20ms", queue_rescan="1h") for _ in range(2))
    with one.wire(db) as c, one.wire(db) as d, more.wire(db) as other, session(cluster, db) as conn:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1' KEY 'k' GROUP 'g' ATTEMPTS 1")
        job = take(c)["token"]
        if how == "again":
            tag(c, "QUEUE PUSH mail '2' KEY 'k' ON DUPLICATE REPLACE")
        else:
            tag(c, "QUEUE PUSH mail '2' GROUP 'g'")
        if how == "pop":
            tag(c, "QUEUE PUSH mail '3' GROUP 'g'")
            d.query("QUEUE POP mail WAIT '30s'")
            parked(d)
        other.query("QUEUE TAKE mail WAIT '30s'")
        parked(other)
        listener = Listener(conn)
        tag(c, "QUEUE CREATE first")
        wait_for(lambda: tag(c, "QUEUE PUSH first '1'") and listener.heard(), "that one knows of the other")

        def told():
            return [n for n in listener.heard() if n[1] != "first" and not n[1].startswith("of no queue: cancelled in ")]

        pids = system_pid(conn)
        assert len(pids) == 2
        if how == "done in a transaction":
            tag(c, "BEGIN")
        if how == "fail":
            tag(c, "QUEUE FAIL '%s' FINAL" % job)
        elif how == "cancelled":
            tag(c, "QUEUE CANCEL '%s'" % job)
            c.reset()
        elif how == "drop":
            tag(c, "QUEUE DROP mail")
        else:
            tag(c, "QUEUE DONE '%s'" % job)
        if how == "done in a transaction":
            assert told() == []
            tag(c, "COMMIT")
        got = other.until("Z")
        if how == "drop":
            assert [m.sqlstate for m in got if m.type == "E"] == ["42P01"]
        else:
            assert [m.text_row[4] for m in got if m.type == "D"] in (["2"], ["3"])
        heard = wait_for(told, "a notification")
        assert {n[1] for n in heard} == {"mail"} and {n[0] for n in heard} <= {p[0] for p in pids}
