"""TAKE … GROUPED: of a group also the jobs behind its first, to one worker."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, parked, q, results, shared, shared_db, shared_proxy, tag, take, woken  # noqa: F401


def push(c, *payloads, group="g"):
    for p in payloads:
        tag(c, "QUEUE PUSH mail '%s' GROUP '%s'" % (p, group))


def lot(c, more="LIMIT 50"):
    return c.rows("QUEUE TAKE mail GROUPED %s" % more)


def payloads(jobs):
    return [job["payload"] for job in jobs]


def states(shared):
    return [row[0] for row in shared.direct.execute("SELECT state FROM queue.q_mail ORDER BY id")]


def test_in_their_order(q, shared):
    push(q, "1", "2", "3")
    push(q, "11", group="h")
    jobs = lot(q)
    assert payloads(jobs) == ["1", "2", "3", "11"]
    assert error(q, "QUEUE DONE '%s'" % jobs[1]["token"]).sqlstate == "55000"
    for job in jobs:
        tag(q, "QUEUE DONE '%s'" % job["token"])
    assert states(shared) == []


@pytest.mark.parametrize("more", ["", " RESULT '1'", " KEEP", " PARTIAL"])
def test_in_one_statement(q, shared, more):
    push(q, "1", "2", "3")
    jobs = lot(q)
    assert tag(q, "QUEUE DONE %s%s" % (", ".join("'%s'" % j["token"] for j in jobs), more)) == "UPDATE 3"
    assert states(shared) == []


def test_retained(q, shared):
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 d')")
    push(q, "1", "2", "3")
    jobs = lot(q)
    tag(q, "QUEUE DONE '%s', '%s' RESULT '5'" % (jobs[0]["token"], jobs[1]["token"]))
    tag(q, "QUEUE DONE '%s'" % jobs[2]["token"])
    assert shared.direct.execute("SELECT id, result FROM queue.a_mail ORDER BY id").fetchall() == [(1, 5), (2, 5), (3, None)]


def test_in_a_transaction(q, shared):
    push(q, "1", "2", "3")
    jobs = lot(q)
    for end in ("ROLLBACK", "COMMIT"):
        tag(q, "BEGIN")
        for job in jobs:
            tag(q, "QUEUE DONE '%s'" % job["token"])
        tag(q, end)
        assert len(states(shared)) == (3 if end == "ROLLBACK" else 0)


def test_pipelined(q, shared):
    push(q, *"12345678")
    jobs = lot(q)
    for job in jobs:
        q.query("QUEUE DONE '%s'" % job["token"])
    for _ in jobs:
        assert [m.tag for m in q.until() if m.type == "C"] == ["UPDATE 1"]
    assert states(shared) == []


def test_who_waits_is_woken(q, qproxy, db, shared):
    w = qproxy.wire(db)
    w.query("QUEUE TAKE mail GROUPED LIMIT 50 WAIT '30s'")
    parked(w)
    tag(q, "QUEUE PUSH mail '1', '2', '3' GROUP 'g'")
    rows = [m for m in w.until() if m.type == "D"]
    assert len(rows) == 3
    w.query("QUEUE TAKE mail GROUPED LIMIT 50 WAIT '30s'")
    parked(w)
    tag(q, "QUEUE PUSH mail '9'")
    assert woken(w)["payload"] == "9"
    w.query("QUEUE TAKE mail GROUPED LIMIT 50 WAIT '30s'")
    parked(w)
    tag(q, "QUEUE PUSH mail '19' GROUP 'x'")
    assert woken(w)["payload"] == "19"


def test_two_never_share_a_group(q, qproxy, db, shared):
    for n in range(3):
        w = qproxy.wire(db)
        w.query("QUEUE TAKE mail GROUPED LIMIT 3 WAIT '30s' AS '%d'" % n)
        parked(w)
    q.simple("BEGIN; QUEUE PUSH mail '1', '2', '3', '4', '5' GROUP 'a'; QUEUE PUSH mail '6', '7', '8' GROUP 'b'; COMMIT")
    held = "SELECT coalesce(s.worker, m.worker) FROM queue.q_mail AS m, queue._lot_said(token) AS s WHERE m.token IS NOT NULL ORDER BY id"
    wait_for(lambda: len(shared.direct.execute(held).fetchall()) == 6, "two of them have a group")
    workers = [row[0] for row in shared.direct.execute(held)]
    assert len(set(workers[:3])) == len(set(workers[3:])) == 1 and workers[0] != workers[3]
    assert states(shared) == ["leased", "blocked", "blocked", "blocked", "blocked", "leased", "blocked", "blocked"]


def test_a_connection_that_is_lost(q, qproxy, db, shared):
    push(q, "1", "2", "3")
    w = qproxy.wire(db)
    jobs = lot(w)
    tag(w, "QUEUE DONE '%s'" % jobs[0]["token"])
    w.sock.close()
    wait_for(lambda: states(shared) == ["ready", "blocked"], "they are given back")
    again = lot(q)
    assert [(j["payload"], j["attempt"]) for j in again] == [("2", "2"), ("3", "1")]
    assert error(q, "QUEUE DONE '%s'" % jobs[2]["token"]).sqlstate == "QB001"


def test_fail_gives_back_those_behind(q, shared):
    push(q, "1", "2", "3")
    jobs = lot(q)
    tag(q, "QUEUE FAIL '%s' ERROR 'no' RETRY IN '0s'" % jobs[0]["token"])
    assert error(q, "QUEUE DONE '%s'" % jobs[1]["token"]).sqlstate == "QB001"
    assert [(j["payload"], j["attempt"]) for j in lot(q)] == [("1", "2"), ("2", "1"), ("3", "1")]


def test_then_take(q, shared):
    push(q, "1", "2")
    jobs = lot(q)
    push(q, "3", "4", group="h")
    more = q.rows("QUEUE DONE '%s', '%s' THEN TAKE GROUPED LIMIT 9" % (jobs[0]["token"], jobs[1]["token"]))
    assert payloads(more) == ["3", "4"]


def test_hold(db, shared, qbouncer):
    proxy = qbouncer(queue_hold_lease="1s")
    with proxy.wire(db) as q:
        tag(q, "QUEUE CREATE mail")
        push(q, "1", "2", "3")
        jobs = lot(q, "LIMIT 50 HOLD")
        ends = "SELECT count(*) FROM queue.q_mail AS m, queue._lot_said(token) AS s WHERE coalesce(s.until, lease_until) > %s"
        wait_for(lambda: shared.direct.execute(ends, (jobs[0]["lease_until"],)).fetchone()[0] == 3, "all are renewed")
        for job in jobs:
            tag(q, "QUEUE DONE '%s'" % job["token"])


@pytest.mark.parametrize("sql", ["TAKE mail GROUPED WHERE (true)", "TAKE two GROUPED", "TAKE label GROUPED LIMIT 3",
                                 "TAKE mail, two GROUPED", "TAKE rated GROUPED", "TAKE rests GROUPED"])
def test_refused(q, sql):
    tag(q, "QUEUE CREATE two WITH (max_running_per_group = 2)")
    tag(q, "QUEUE CREATE label WITH (max_running_per_group = none)")
    tag(q, "QUEUE CREATE rated WITH (rate_per_group = '1/s')")
    tag(q, "QUEUE CREATE rests WITH (pause_per_group = '1 s')")
    e = error(q, "QUEUE " + sql)
    assert e.sqlstate == "0A000" and e.fields["D"] and e.fields["H"]


def test_prepared(q, qproxy, db):
    push(q, "1", "2", "3", "4")
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        jobs = conn.execute("QUEUE TAKE mail GROUPED LIMIT %s", (2,), prepare=True).fetchall()
        assert len(jobs) == 2
        conn.execute("QUEUE DONE ANY(%s)", ([j[1] for j in jobs],), prepare=True)
        jobs = conn.execute("QUEUE TAKE mail GROUPED LIMIT %s", (2,), prepare=True).fetchall()
        assert [j[4] for j in jobs] == [3, 4]


def test_an_end_makes_room_for_who_waits(qbouncer, db):
    """Also at another proxy."""
    one, other = qbouncer(), qbouncer()
    with one.wire(db) as q, other.wire(db) as w:
        tag(q, "QUEUE CREATE mail WITH (max_running = 2)")
        push(q, "1", "2")
        push(q, "11", "12", group="h")
        jobs = lot(q)
        assert payloads(jobs) == ["1", "2"]
        w.query("QUEUE TAKE mail GROUPED LIMIT 50 WAIT '60s'")
        parked(w)
        tag(q, "QUEUE DONE '%s', '%s'" % (jobs[0]["token"], jobs[1]["token"]))
        assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["11", "12"]


def test_time_makes_room_for_who_waits(q, qproxy, db):
    tag(q, "QUEUE ALTER mail SET (rate = '10/s burst 2')")
    waiters = [qproxy.wire(db) for _ in range(3)]
    for w in waiters:
        w.query("QUEUE TAKE mail GROUPED LIMIT 2 WAIT '60s'")
        parked(w)
    q.simple("BEGIN; " + "; ".join("QUEUE PUSH mail '%d', '%d' GROUP '%d'" % (n, n, n) for n in range(3)) + "; COMMIT")
    got = [[m.text_row[4] for m in w.until("Z") if m.type == "D"] for w in waiters]
    assert all(rows and len(set(rows)) == 1 for rows in got) and len({rows[0] for rows in got}) == 3


def test_what_nobody_got_is_given_back_to_the_limits(q, qproxy, db, shared):
    tag(q, "QUEUE ALTER mail SET (max_running = 3, rate = '3/d burst 3')")
    push(q, *"12345")
    with qproxy.wire(db) as w:
        tag(w, "BEGIN")
        assert len(lot(w)) == 3
        assert lot(q) == []
        tag(w, "ROLLBACK")
    wait_for(lambda: states(shared)[0] == "ready", "it is given back")
    assert lot(q) == []    # the rate of what was delivered is used
    tag(q, "QUEUE ALTER mail RESET (rate)")
    assert len(lot(q)) == 3
