"""ALTER of each limit while jobs run, others wait at two proxies, and somebody holds an old snapshot; and who may."""

import threading
import time

import psycopg
import pytest

from pgwire import PgError
from proxy import wait_for
from queuetest import HEARTBEAT, error, parked, tag, take, woken

OPENED = [
    ("max_running = 1", "SET (max_running = 3)"),
    ("max_running = 1, max_running_per_group = none", "RESET (max_running)"),
    ("rate = '1/h'", "RESET (rate)"),
    ("rate = '1/h'", "SET (rate = '100/s')"),
    ("pause = '1 h'", "RESET (pause)"),
    ("pause = '1 h'", "SET (pause = '50 ms')"),
    ("max_running_per_group = 5, pause_per_group = '1 h'", "SET (pause_per_group = '50 ms')"),
    ("max_running_per_group = 1", "SET (max_running_per_group = 3)"),
    ("max_running_per_group = 1", "SET (max_running_per_group = none)"),
    ("max_running_per_group = none, rate_per_group = '1/h'", "RESET (rate_per_group)"),
    ("max_running_per_group = 5, rate_per_group = '1/h'", "SET (rate_per_group = '50/s burst 9')"),
    ("max_running_per_group = 5, pause_per_group = '1 h'", "RESET (pause_per_group)"),
    ("max_running_per_group = none, fair = group, rate_per_group = '1/h'", "SET (rate_per_group = '50/s burst 9')"),
]


@pytest.fixture
def held(cluster, db):
    """A snapshot that somebody holds, from before."""
    with psycopg.connect(cluster.dsn(db, "app")) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT 1")
        yield conn


@pytest.mark.parametrize("limits, alter", OPENED)
def test_who_waits_gets_what_an_alter_allows(qbouncer, db, held, limits, alter):
    one, two = (qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h") for _ in "12")
    with one.wire(db) as a, one.wire(db) as b, two.wire(db) as c:
        tag(a, f"QUEUE CREATE mail WITH ({limits})")
        for n in range(4):
            tag(a, f"QUEUE PUSH mail '{n}' GROUP 'g'")
        first = take(a, "QUEUE TAKE mail LEASE '1 h'")
        if "pause" in limits:
            tag(a, "QUEUE DONE '%s'" % first["token"])
        for w in (b, c):
            w.query("QUEUE TAKE mail WAIT '20s' LEASE '1 h'")
        parked(b, c)
        if "pause" in alter or "SET (max_running = 3)" in alter or alter == "RESET (max_running)" or "rate = " in limits:
            # of one group one at a time, unless it says more
            tag(a, "QUEUE ALTER mail SET (max_running_per_group = none)")
        tag(a, "QUEUE ALTER mail " + alter)
        got = [[m for m in w.until("Z") if m.type in "DE"] for w in (b, c)]
        assert [[m.type for m in x] for x in got] == [["D"], ["D"]], [m.fields for x in got for m in x if m.type == "E"]


def test_closed_hours_are_opened(qbouncer, db, direct, held):
    one, two = (qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h") for _ in "12")
    hours = direct.execute("SELECT to_char(now() AT TIME ZONE 'UTC' + interval '5 h', 'HH24:MI') || '-'"
                           " || to_char(now() AT TIME ZONE 'UTC' + interval '6 h', 'HH24:MI') || ' UTC'").fetchone()[0]
    with one.wire(db) as a, two.wire(db) as c:
        tag(a, f"QUEUE CREATE mail WITH (hours = '{hours}')")
        tag(a, "QUEUE PUSH mail '1', '2'")
        assert a.rows("QUEUE TAKE mail") == []
        c.query("QUEUE TAKE mail WAIT '60s'")
        parked(c)
        tag(a, "QUEUE ALTER mail RESET (hours)")
        assert woken(c)["payload"] == "1"
        tag(a, f"QUEUE ALTER mail SET (hours = '{hours}')")
        assert a.rows("QUEUE TAKE mail") == []


@pytest.mark.parametrize("option, lower", [("max_running = 6", "max_running = 2"), ("max_running_per_group = 6", "max_running_per_group = 2"),
                                           ("max_running = 600", "max_running = 2"), ("max_running = 2", "max_running = 600")])
def test_lowered_while_they_run(qbouncer, db, direct, held, option, lower):
    """What runs goes on; nothing is taken until there are fewer."""
    one, two = (qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h") for _ in "12")
    most = int(lower.split()[-1])
    with one.wire(db) as a, two.wire(db) as b:
        tag(a, f"QUEUE CREATE mail WITH ({option}, max_running_per_group = none)" if "group" not in option else f"QUEUE CREATE mail WITH ({option})")
        tag(a, "QUEUE PUSH mail %s GROUP 'g'" % ", ".join(["'1'"] * 9))
        jobs = a.rows("QUEUE TAKE mail LIMIT 3 HOLD") + b.rows("QUEUE TAKE mail LIMIT 3 LEASE '1 h'")
        tag(a, f"QUEUE ALTER mail SET ({lower})")
        running = len(jobs)
        for n, job in enumerate(jobs):
            w = a if n < 3 else b
            if running < most:
                more = two_of(b, most - running)
                jobs += more
                running += len(more)
                assert running == min(most, 9 - n)
            else:
                assert b.rows("QUEUE TAKE mail") == []
            tag(w, "QUEUE EXTEND '%s' LEASE '1 h'" % job["token"])
            tag(w, "QUEUE DONE '%s'" % job["token"])
            running -= 1
        assert direct.execute("SELECT count(*) FROM queue.q_mail").fetchone()[0] == 0 == running


def two_of(w, n):
    return w.rows("QUEUE TAKE mail LIMIT %d LEASE '1 h'" % n)


ALTERS = ["SET (max_running = 2)", "SET (max_running_per_group = 2)", "SET (rate = '500/s burst 5')", "RESET (max_running)", "SET (fair = group)",
          "SET (rate_per_group = '300/s burst 3')", "SET (pause_per_group = '1 ms')", "SET (max_running = 700)", "RESET (rate, pause_per_group)",
          "SET (pause = '1 ms')", "RESET (fair, rate_per_group)", "SET (max_running_per_group = none)", "RESET (pause, max_running)",
          "SET (max_running_per_group = 1)", "SET (hours = '00:00-23:59 UTC')", "RESET (hours)"]  # fmt: skip


@pytest.mark.timeout(150)
def test_all_of_them_under_load(qbouncer, db, direct, held):
    """No job is lost or done twice, nobody gets an error that he would not get elsewhere."""
    proxies = [qbouncer(), qbouncer()]
    n, ended, errors, stop = 240, [], [], threading.Event()
    with proxies[0].wire(db) as w:
        tag(w, "QUEUE CREATE mail WITH (retry = 'fixed 10ms', max_attempts = 1000)")
        for g in range(6):
            tag(w, "QUEUE PUSH mail %s GROUP 'g%d'" % (", ".join(f"'{g * (n // 6) + i}'" for i in range(n // 6)), g))

    def work(k):
        with proxies[k % 2].wire(db) as w:
            while not stop.is_set():
                try:
                    jobs = w.rows("QUEUE TAKE mail LIMIT 2 WAIT '100 ms'" + (" HOLD" if k % 3 == 0 else ""))
                    for i, job in enumerate(jobs):
                        if i == 1 and int(job["id"]) % 7 == 0 and job["attempt"] == "1":
                            tag(w, "QUEUE FAIL '%s' ERROR 'x'" % job["token"])
                        elif i == 1 and int(job["id"]) % 5 == 0 and job["takes"] == "1":
                            tag(w, "QUEUE RELEASE '%s'" % job["token"])
                        else:
                            tag(w, "QUEUE EXTEND '%s' LEASE '1 min'" % job["token"])
                            tag(w, "QUEUE DONE '%s'" % job["token"])
                            ended.append(job["payload"])
                except PgError as e:
                    errors.append(str(e))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    with proxies[1].wire(db) as w:
        deadline = time.monotonic() + 60
        while len(ended) < n and not errors and time.monotonic() < deadline:
            for alter in ALTERS:
                try:
                    tag(w, "QUEUE ALTER mail " + alter)
                except PgError as e:
                    assert e.sqlstate == "55006" and alter == "SET (max_running_per_group = 1)", (alter, str(e))
        for alter in ("SET (max_running_per_group = none)", "RESET (max_running, rate, pause, hours, rate_per_group, pause_per_group, fair)"):
            tag(w, "QUEUE ALTER mail " + alter)
        try:
            wait_for(lambda: len(ended) >= n or errors, "the end of all", timeout=30)
        finally:
            stop.set()
            for t in threads:
                t.join()
    assert errors == [] and sorted(ended, key=int) == [str(i) for i in range(n)]
    assert direct.execute("SELECT count(*) FROM queue.q_mail").fetchone()[0] == 0
    assert direct.execute("SELECT limited, by_group FROM queue.queues").fetchone() == (False, False)


def test_who_takes_groups_whole_when_that_is_no_longer_possible(qbouncer, db):
    one, two = (qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h") for _ in "12")
    with one.wire(db) as a, two.wire(db) as b, one.wire(db) as c:
        tag(a, "QUEUE CREATE mail")
        tag(a, "QUEUE PUSH mail '1', '2', '3' GROUP 'g'")
        jobs = c.rows("QUEUE TAKE mail GROUPED LIMIT 2 LEASE '1 h'")
        b.query("QUEUE TAKE mail GROUPED LIMIT 2 WAIT '60s'")
        parked(b)
        tag(a, "QUEUE ALTER mail SET (rate_per_group = '100/s')")
        tag(c, "QUEUE DONE '%s'" % jobs[0]["token"])
        got = [m for m in b.until("Z") if m.type == "E"]
        assert got and got[0].fields["C"] == "0A000" and got[0].fields["H"]


def test_who_may(qbouncer, db, cluster):
    """Neither who may take nor a stranger sets limits, or gets past them."""
    proxy = qbouncer()
    with proxy.wire(db) as a, proxy.wire(db, user="other") as o:
        for limits in ("max_running = 1", "max_running_per_group = 2, rate_per_group = '1/h'"):
            tag(a, f"QUEUE CREATE mail WITH ({limits})")
            tag(a, "QUEUE PUSH mail '1', '2', '3' GROUP 'g'")
            job = take(a, "QUEUE TAKE mail LEASE '1 h'")
            for sql in ("QUEUE TAKE mail", "QUEUE POP mail", "QUEUE TAKE mail HOLD", "QUEUE EXTEND '%s' LEASE '1 h'" % job["token"],
                        "QUEUE DONE '%s'" % job["token"], "QUEUE FAIL '%s'" % job["token"], "QUEUE RELEASE '%s'" % job["token"], "QUEUE STATS mail"):
                assert error(o, sql).sqlstate == "42501", sql
            for right in ("PUSH", "TAKE"):
                tag(a, f"QUEUE GRANT {right} ON mail TO other")
                for option in ("max_running = 5", "rate = '5/s'", "pause = '1 s'", "hours = '01:00-02:00'", "max_running_per_group = 5",
                               "rate_per_group = '5/s'", "pause_per_group = '1 s'", "max_run = '1 h'"):
                    assert error(o, f"QUEUE ALTER mail SET ({option})").sqlstate == "42501"
                    assert error(o, "QUEUE ALTER mail RESET (%s)" % option.split()[0]).sqlstate == "42501"
            assert o.rows("QUEUE TAKE mail") == []
            tag(a, "QUEUE DONE '%s'" % job["token"])
            tag(a, "QUEUE PURGE mail")
            tag(a, "QUEUE DROP mail")
