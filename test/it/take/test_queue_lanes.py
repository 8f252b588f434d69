"""Queues that are used again and again: their functions are called directly, and a take begins where
the head was. Whatever happens at or before the head is found all the same."""

import time

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, q, qproxy, tag  # noqa: F401


def work(q, n, queue="mail"):
    """So many jobs in and out again: the queue's number and head are known afterwards."""
    for i in range(n):
        tag(q, "QUEUE PUSH %s '%d'" % (queue, i))
        (job,) = q.rows("QUEUE TAKE " + queue)
        assert job["payload"] == str(i)
        assert tag(q, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"


@pytest.fixture
def busy(q):
    work(q, 25)
    return q


def directly(direct, part):
    """Is a function of one queue called by the statements of the proxy's servers?"""
    return direct.execute("SELECT count(*) FROM pg_stat_activity WHERE query ~ %s",
                          ("queue\\._%s_[0-9]+\\(" % part,)).fetchone()[0]


def test_the_functions_of_the_queue_are_called(busy, direct):
    """What a server was sent last is seen: other statements of the proxy may come behind ours."""
    jobs = []

    def push():
        tag(busy, "QUEUE PUSH mail '1'")
        return directly(direct, "push") > 0

    def take():
        tag(busy, "QUEUE PUSH mail '1'")
        jobs.extend(busy.rows("QUEUE TAKE mail"))
        return directly(direct, "take") > 0

    def done():
        take()
        tag(busy, "QUEUE DONE '%s'" % jobs.pop()["token"])
        return directly(direct, "done") > 0

    wait_for(push, "a direct push")
    wait_for(take, "a direct take")
    wait_for(done, "a direct done")


def test_a_queue_that_is_made_anew(busy):
    tag(busy, "QUEUE PUSH mail 'null'")
    (job,) = busy.rows("QUEUE TAKE mail")
    tag(busy, "QUEUE DROP mail")
    tag(busy, "QUEUE CREATE mail")
    work(busy, 3)
    tag(busy, "QUEUE DROP mail")
    assert error(busy, "QUEUE PUSH mail '1'").sqlstate == "42P01"
    assert error(busy, "QUEUE TAKE mail").sqlstate == "42P01"
    assert error(busy, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB001"


def test_priorities(busy):
    for i, priority in enumerate([0, 7, -7, 7, 0]):
        tag(busy, "QUEUE PUSH mail '%d' PRIORITY %d" % (i, priority))
    assert [r["payload"] for r in busy.rows("QUEUE TAKE mail LIMIT 2")] == ["1", "3"]
    tag(busy, "QUEUE PUSH mail '5' PRIORITY 6")
    assert [r["payload"] for r in busy.rows("QUEUE TAKE mail LIMIT 9")] == ["5", "0", "4", "2"]


def test_paused(busy):
    tag(busy, "QUEUE PUSH mail '1'")
    tag(busy, "QUEUE PAUSE mail")
    assert busy.rows("QUEUE TAKE mail") == []
    tag(busy, "QUEUE RESUME mail")
    assert [r["payload"] for r in busy.rows("QUEUE TAKE mail")] == ["1"]


def test_limits_and_leases_are_checked(busy):
    assert error(busy, "QUEUE TAKE mail LEASE '0'").sqlstate == "22023"
    assert error(busy, "QUEUE TAKE mail LIMIT 0").sqlstate in ("22023", "42601")


def taken_within(q, seconds, sql="QUEUE TAKE mail WAIT '20s'"):
    began = time.monotonic()
    rows = q.rows(sql)
    assert rows and time.monotonic() - began < seconds
    return rows[0]["payload"]


def test_a_late_commit_of_a_client(qproxy, db, busy):
    """It got its position early, and others that came later are taken before it commits."""
    late = qproxy.wire(db)
    late.simple("BEGIN")
    tag(late, "QUEUE PUSH mail '\"late\"'")
    work(busy, 20)
    late.simple("COMMIT")
    assert taken_within(busy, 10) == '"late"'
    late.simple("BEGIN")
    tag(late, "QUEUE PUSH mail '\"never\"'")
    work(busy, 5)
    late.simple("ROLLBACK")
    assert busy.rows("QUEUE TAKE mail") == []


def test_a_late_commit_past_the_proxy(busy, direct):
    direct.autocommit = False
    direct.execute("SELECT queue.push('mail', '\"late\"')")
    work(busy, 20)
    direct.commit()
    assert taken_within(busy, 10) == '"late"'


def test_what_is_given_back_keeps_its_place(qproxy, db, busy):
    tag(busy, "QUEUE PUSH mail '1', '2', '3', '4'")
    first, second = [busy.rows("QUEUE TAKE mail")[0] for _ in range(2)]
    assert busy.rows("QUEUE TAKE mail")[0]["payload"] == "3"
    tag(busy, "QUEUE RELEASE '%s', '%s'" % (first["token"], second["token"]))
    got = []
    wait_for(lambda: got.extend(r["payload"] for r in busy.rows("QUEUE TAKE mail")) or len(got) == 3,
             "all three jobs", 20)
    assert sorted(got) == ["1", "2", "4"]


def test_a_short_lease_is_noticed_by_who_waits(qproxy, db, busy):
    """The waiter came after the job was taken, by a take of another kind."""
    tag(busy, "QUEUE PUSH mail '1'")
    worker = qproxy.wire(db)
    assert worker.rows("QUEUE TAKE mail LEASE '300ms' AS 'slow'")[0]["attempt"] == "1"
    assert taken_within(busy, 10) == "1"


def test_several_priorities_and_queues_at_once(qproxy, db, busy):
    tag(busy, "QUEUE CREATE other")
    work(busy, 10, "other")
    tag(busy, "QUEUE PUSH other '1'")
    tag(busy, "QUEUE PUSH mail '2'")
    assert [r["payload"] for r in busy.rows("QUEUE TAKE mail, other LIMIT 2")] == ["2", "1"]


OLD, TIMES = 600, 60


def read_entries(direct):
    """Entries of the index of what is ready that were read until now. Sessions tell it when they end."""
    return direct.execute("SELECT sum(idx_tup_read)::int8 FROM pg_stat_user_indexes "
                          "WHERE indexrelname ~ '^n[0-9]+_head$'").fetchone()[0]


def release(wire, job):
    tag(wire, "QUEUE RELEASE '%s'" % job["token"])


def fail(wire, job):
    tag(wire, "QUEUE FAIL '%s' RETRY IN '0'" % job["token"])


def roll_back(wire, job):
    tag(wire, "ROLLBACK")


def break_off(wire, job):
    wire.reset()


@pytest.mark.parametrize("back", [release, fail, roll_back, break_off])
def test_what_is_given_back_is_not_looked_for_at_the_front(qproxy, db, direct, busy, cluster, back):
    """Under a transaction that is held open all that was taken is still there to be read."""
    with psycopg.connect(cluster.dsn(db)) as held:
        held.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        held.execute("SELECT count(*) FROM pg_class")
        # what is lost again waits by the policy
        tag(busy, "QUEUE ALTER mail SET (max_attempts = 1000, retry = 'fixed 1ms')")
        tag(busy, "QUEUE PUSH mail SELECT '0' FROM generate_series(1, %d)" % OLD)
        done = busy.rows("QUEUE TAKE mail LIMIT %d" % OLD)
        tag(busy, "QUEUE DONE " + ", ".join("'%s'" % job["token"] for job in done))
        tag(busy, "QUEUE PUSH mail '1'")
        wire = qproxy.wire(db)
        for _ in range(TIMES):
            if back is roll_back:
                tag(wire, "BEGIN")
            (job,) = wire.rows("QUEUE TAKE mail WAIT '20s'")
            back(wire, job)
            if back is break_off:
                wire = qproxy.wire(db)
        (job,) = wire.rows("QUEUE TAKE mail WAIT '20s'")
        assert job["payload"] == "1"
        qproxy.stop()
        wait_for(lambda: direct.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = "
                                        "current_database() AND usename = 'app'").fetchone()[0] == 0,
                 "the end of the proxy's sessions")
        # now and then a take begins at the front in any case: at most once in a second
        assert read_entries(direct) < OLD * TIMES * 0.8
