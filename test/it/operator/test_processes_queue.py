"""processes = N: queues, whose pushes and takes come to different processes."""

import os
import signal
import threading
import time

import pytest

from proxy import wait_for
from queuetest import parked, tag, take, woken
from test_processes import N, one_of_each, pids

GRACE = 2
QUIET = {"queue_rescan": "1h", "queue_safety_poll": "1h", "queue_heartbeat": "20ms"}


@pytest.fixture
def many(qbouncer):
    proxy = qbouncer(processes=N, queue_orphan_grace="%ds" % GRACE, **QUIET)
    wait_for(lambda: len(pids(proxy)) == N, "all processes")
    return proxy


def alone(proxy, db, there):
    """Until each of them knows that the others are of its own program, and needs no notifications."""
    for w in there.values():
        w.query("QUEUE TAKE mail WAIT '1ms'")
        w.until("Z")
    wait_for(lambda: len([r for r in proxy.console("SHOW QUEUES") if r["database"] == db and r["system"] == "up"]) == N,
             "the system session of each")


def test_a_push_wakes_a_waiter_of_another_process(many, db):
    there = one_of_each(many, db)
    tag(there[1], "QUEUE CREATE mail")
    for n in range(1, 4):
        for to in (2, 3):
            there[to].query("QUEUE TAKE mail WAIT '60s'")
            parked(there[to])
        assert tag(there[1], "QUEUE PUSH mail '%d'" % n) == "INSERT 0 1"
        assert tag(there[1], "QUEUE PUSH mail '%d'" % n) == "INSERT 0 1"
        for to in (2, 3):
            assert woken(there[to])["payload"] == str(n)
    for w in there.values():
        w.close()


@pytest.mark.parametrize("sql", ["BEGIN; QUEUE PUSH mail '1'; COMMIT", "SELECT queue.push('mail', '1')"])
def test_other_ways_to_push_wake_it_too(many, db, sql):
    there = one_of_each(many, db)
    tag(there[1], "QUEUE CREATE mail")
    alone(many, db, there)
    there[2].query("QUEUE TAKE mail WAIT '60s'")
    parked(there[2])
    there[1].simple(sql)
    assert woken(there[2])["payload"] == "1"
    for w in there.values():
        w.close()


def test_nobody_is_notified_for_that(many, db, direct):
    """Another session that listens hears nothing of a push that only processes of the program wait for."""
    there = one_of_each(many, db)
    tag(there[1], "QUEUE CREATE mail")
    alone(many, db, there)
    heard = []
    direct.add_notify_handler(lambda n: heard.append(n.payload))
    direct.execute("LISTEN qbouncer")

    def quiet():
        heard.clear()
        for w in there.values():
            tag(w, "QUEUE PUSH mail '0'")
            take(w)
        direct.execute("SELECT pg_sleep(0.1)")
        return "mail" not in heard

    wait_for(quiet, "that each has looked since the others had said their numbers")
    heard.clear()
    for n in range(5):
        there[2].query("QUEUE TAKE mail WAIT '60s'")
        parked(there[2])
        tag(there[1], "QUEUE PUSH mail '%d'" % n)
        assert woken(there[2])["payload"] == str(n)
    direct.execute("SELECT pg_sleep(0.1)")
    assert "mail" not in heard
    for w in there.values():
        w.close()


def test_the_jobs_of_one_that_is_killed_come_back(many, db, direct):
    there = one_of_each(many, db)
    tag(there[1], "QUEUE CREATE mail")
    alone(many, db, there)
    began = time.monotonic()
    tag(there[1], "QUEUE PUSH mail '1'")
    job = take(there[2])
    there[1].query("QUEUE TAKE mail WAIT '60s'")
    parked(there[1])
    wait_for(lambda: time.monotonic() > began + GRACE + 0.5, "that those who are not there are taken for dead")
    os.kill(pids(many)[2], signal.SIGKILL)
    again = woken(there[1])
    assert (again["id"], again["attempt"]) == (job["id"], "2")
    for w in there.values():
        w.close()


def test_each_job_once(many, db):
    """Workers and pushers at all processes."""
    with many.connect(db) as setup:
        setup.execute("QUEUE CREATE mail")
    got, problems = [], []

    def work():
        try:
            with many.connect(db) as conn:
                while len(got) < 300:
                    for row in conn.execute("QUEUE TAKE mail LIMIT 3 WAIT '500ms'").fetchall():
                        got.append(row[2])
                        conn.execute("QUEUE DONE %s", (row[1],))
        except Exception as e:  # the test says so
            problems.append(repr(e))

    def push(start):
        try:
            with many.connect(db) as conn:
                for n in range(start, start + 50):
                    conn.execute("QUEUE PUSH mail %s", (str(n),))
        except Exception as e:  # the test says so
            problems.append(repr(e))

    threads = [threading.Thread(target=work) for _ in range(6)]
    threads += [threading.Thread(target=push, args=(n * 50,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert problems == [] and len(got) == 300
