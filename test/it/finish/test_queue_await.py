"""AWAIT: request and reply."""

import pytest

from pgwire import cancel
from proxy import wait_for
from queuetest import (  # noqa: F401
    HEARTBEAT, INT4, INT8, JSONB, TEXT, TIMESTAMPTZ, error, parked, q, qproxy, tag, take)
from verbways import each_way, iv, t

COLUMNS = [("job", TEXT), ("id", INT8), ("queue", TEXT), ("state", TEXT), ("result", JSONB), ("error", TEXT),
           ("attempt", INT4), ("ended_at", TIMESTAMPTZ), ("progress", JSONB)]


def one_done(c, name):
    tag(c, "QUEUE PUSH %s '1'" % name)
    tag(c, "QUEUE DONE '%s' RESULT '{\"r\": 1}'" % take(c, "QUEUE TAKE " + name)["token"])


def two_done(c, name):
    one_done(c, name)
    one_done(c, name)


def one_waits(c, name):
    tag(c, "QUEUE PUSH %s '1'" % name)


# name: as the arguments of each_way()
VERBS = {
    "await": (one_done, "QUEUE AWAIT {} ON {}", lambda name, s: [t("1"), t(name)], "SELECT 1", COLUMNS, None),
    "await, and wait": (one_done, "QUEUE AWAIT {} ON {} WAIT {}", lambda name, s: [t("1"), t(name), iv("5s", 5)],
                        "SELECT 1", COLUMNS, None),
    "await several": (two_done, "QUEUE AWAIT {}, {} ON {} ALL WAIT {}",
                      lambda name, s: [t("1"), t("2"), t(name), iv("5s", 5)], "SELECT 2", COLUMNS, None),
    "await an array": (two_done, "QUEUE AWAIT {} ON {} ANY", lambda name, s: [t("{1,2,1}"), t(name)], "SELECT 3", COLUMNS, None),
    "await in vain": (one_waits, "QUEUE AWAIT {} ON {} WAIT {}", lambda name, s: [t("1"), t(name), iv("10ms", 0.01)],
                      "SELECT 0", COLUMNS, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


def answer(w):
    """state and result of the row with which an AWAIT by Query ends; an error as its SQLSTATE."""
    for m in w.until("Z"):
        if m.type == "D":
            return (m.text_row[3], m.text_row[4])
        if m.type == "E":
            return m.fields["C"]
        if m.type == "C":
            return m.tag
    raise AssertionError("no answer")


def pushed(q, queue="mail"):
    return q.rows("QUEUE PUSH %s '1' RETURNING ID" % queue)[0]["id"]


def awaiting(w, number, wait="60s"):
    w.query("QUEUE AWAIT %s WAIT '%s'" % (number, wait))
    parked(w)


def test_request_and_reply(qproxy, db, q):
    with qproxy.wire(db) as w:
        awaiting(w, pushed(q))
        (row,) = qproxy.console("SHOW WAITERS")
        assert (row["state"], row["queues"], row["limit"]) == ("awaiting", "mail", "1")
        tag(q, "QUEUE DONE '%s' RESULT '{\"a\": 1}'" % take(q)["token"])
        assert answer(w) == ("done", '{"a": 1}')
        assert qproxy.console("SHOW WAITERS") == []


@pytest.mark.parametrize("sql, wanted", [
    ("DONE '%s'", ("done", None)), ("FAIL '%s' ERROR 'no' FINAL", ("dead", None)), ("CANCEL 1", ("gone", None))])
def test_other_ends(qproxy, db, q, sql, wanted):
    with qproxy.wire(db) as w:
        awaiting(w, pushed(q))
        token = take(q)["token"] if "%s" in sql else None
        tag(q, "QUEUE " + (sql % token if token else sql))
        assert answer(w) == wanted


def test_several_tries(qproxy, db, q):
    with qproxy.wire(db) as w:
        awaiting(w, pushed(q))
        tag(q, "QUEUE FAIL '%s' ERROR 'no' RETRY IN '0'" % take(q)["token"])
        parked(w)
        tag(q, "QUEUE DONE '%s' RESULT '2'" % take(q)["token"])
        assert answer(w) == ("done", "2")


def test_after_the_commit(qproxy, db, q):
    with qproxy.wire(db) as w:
        awaiting(w, pushed(q))
        token = take(q)["token"]
        tag(q, "BEGIN; SELECT 1")
        tag(q, "QUEUE DONE '%s' RESULT '3'" % token)
        parked(w)
        tag(q, "ROLLBACK")
        parked(w)
        tag(q, "BEGIN; SELECT 1")
        tag(q, "QUEUE DONE '%s' RESULT '4'" % token)
        tag(q, "COMMIT")
        assert answer(w) == ("done", "4")


def test_ended_elsewhere(qbouncer, db, direct):
    """Through another proxy, by plain SQL, by POP, and by a maintenance."""
    one, two = qbouncer(queue_heartbeat=HEARTBEAT, queue_await_poll="250ms"), qbouncer(queue_maintenance="50ms")
    with two.wire(db) as q:
        tag(q, "QUEUE CREATE mail WITH (retain_done = '1 h')")
        wires = [one.wire(db) for _ in range(4)]
        for w in wires:
            awaiting(w, "'1-%s'" % pushed(q))
        tag(q, "QUEUE DONE '%s' RESULT '1'" % take(q)["token"])
        assert answer(wires[0]) == ("done", "1")
        direct.execute("SELECT queue.done(%s, '2')", (take(q)["token"],))
        assert answer(wires[1]) == ("done", "2")
        assert len(q.rows("QUEUE POP mail")) == 1
        assert answer(wires[2]) == ("done", None)
        direct.execute("UPDATE queue.q_mail SET expires_at = now() - interval '1 s', due = now() - interval '1 s'")
        assert answer(wires[3]) == ("expired", None)
        for w in wires:
            w.close()


def test_many_wait_for_one_and_one_for_each(qproxy, db, q):
    ids = [pushed(q) for _ in range(5)]
    wires = [(number, qproxy.wire(db)) for number in ids + [ids[0]] * 5]
    for number, w in wires:
        awaiting(w, "'%s'" % number)
    tokens = {r["id"]: r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 10")}
    for number in ids:
        tag(q, "QUEUE DONE '%s' RESULT '%s'" % (tokens[number], number))
    for number, w in wires:
        assert answer(w) == ("done", number)
        w.close()


def test_errors(q):
    tag(q, "QUEUE PUSH mail '1'")
    for sql, state in (("QUEUE AWAIT 2 WAIT '60s'", "QB003"), ("QUEUE AWAIT '1-2'", "QB003"), ("QUEUE AWAIT '9-1'", "QB003"),
                       ("QUEUE AWAIT 1 ON nothing", "42P01"), ("QUEUE AWAIT NULL", "22004"), ("QUEUE AWAIT 'x'", "22023"),
                       ("QUEUE AWAIT 1 WAIT '-1s'", "22023"), ("QUEUE AWAIT 1 WAIT 'x'", "22007"),
                       ("QUEUE AWAIT", "42601"), ("QUEUE AWAIT 1, 2", "QB003"), ("QUEUE AWAIT 1, NULL", "22004"),
                       ("QUEUE AWAIT 1 ANY ALL", "42601"), ("QUEUE AWAIT ANY('{1,NULL}')", "22004"),
                       ("QUEUE AWAIT ANY('{1,x}')", "22023"), ("QUEUE AWAIT 1; SELECT 1", "0A000")):
        assert error(q, sql).sqlstate == state, sql
    tag(q, "QUEUE CREATE other")
    tag(q, "QUEUE PUSH other '1'")
    e = error(q, "QUEUE AWAIT 1")
    assert e.sqlstate == "22023" and e.fields["H"] == "Name its queue: QUEUE AWAIT 1 ON mail; Or ON other."
    assert q.rows("QUEUE AWAIT 1 ON other") == []


def test_in_a_transaction(qproxy, db, q):
    """As a TAKE: WAIT only as the first statement, and then without a server."""
    one_done(q, "mail")
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "BEGIN")
    assert take(q, "QUEUE AWAIT 1 WAIT '60s'")["state"] == "done"
    assert q.rows("QUEUE AWAIT 2 WAIT '10ms'") == []
    tag(q, "SELECT 1")
    assert take(q, "QUEUE AWAIT 1")["state"] == "done"
    e = error(q, "QUEUE AWAIT 2 WAIT '1s'")
    assert e.sqlstate == "25001" and "right after BEGIN" in e.fields["H"]
    assert error(q, "QUEUE AWAIT 1").sqlstate == "25P02"
    tag(q, "ROLLBACK")
    with qproxy.wire(db) as w:
        tag(w, "BEGIN")
        awaiting(w, 2)
        wait_for(lambda: qproxy.pool(db)["sv_active"] == 0, "the servers to be free")
        tag(q, "QUEUE DONE '%s' RESULT '1'" % take(q)["token"])
        assert answer(w) == ("done", "1")
        assert tag(w, "COMMIT") == "COMMIT"


def test_the_ways_out(qproxy, db, q):
    number = pushed(q)
    with qproxy.wire(db) as w:
        awaiting(w, number)
        cancel(w)
        assert answer(w) == "57014"
        w.query("QUEUE AWAIT %s WAIT '50ms'" % number)
        assert answer(w) == "SELECT 0"
        awaiting(w, number)
        w.reset()
        wait_for(lambda: qproxy.console("SHOW WAITERS") == [], "the waiter to go")
    with qproxy.wire(db, options="-c statement_timeout=50ms") as w:
        w.query("QUEUE AWAIT %s WAIT '60s'" % number)
        assert answer(w) == "57014"


def test_the_queue_is_dropped(qproxy, db, q):
    with qproxy.wire(db) as w:
        awaiting(w, pushed(q))
        tag(q, "QUEUE DROP mail")
        assert answer(w) == ("gone", None)


def test_the_database_comes_and_goes(qproxy, db, q, direct):
    """A look that fails because its connection is cut is made again."""
    with qproxy.wire(db) as w:
        awaiting(w, pushed(q))
        token = take(q)["token"]
        direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE datname = %s AND pid <> pg_backend_pid()", (db,))
        direct.execute("SELECT queue.done(%s, '1')", (token,))
        assert answer(w) == ("done", "1")


def test_rights(qproxy, db, q):
    number = pushed(q)
    with qproxy.wire(db, user="other") as w:
        assert error(w, "QUEUE AWAIT '1-%s' WAIT '60s'" % number).sqlstate == "42501"
        assert tag(q, "QUEUE GRANT PUSH, AWAIT ON mail TO other") == "GRANT"
        number = pushed(w)
        awaiting(w, number)
        for row in q.rows("QUEUE TAKE mail LIMIT 2"):
            tag(q, "QUEUE DONE '%s' RESULT '%s'" % (row["token"], row["id"]))
        assert answer(w) == ("done", number)
        assert error(w, "QUEUE PEEK mail STATE done").sqlstate == "42501"
        tag(q, "QUEUE REVOKE AWAIT ON mail FROM other")
        assert error(w, "QUEUE AWAIT '1-%s'" % number).sqlstate == "42501"
        assert pushed(w)


def test_many_jobs(qproxy, db, q):
    """They wait without a server connection, and look together."""
    ids = [r["id"] for r in q.rows("QUEUE PUSH mail %s RETURNING ID" % ", ".join("'%d'" % n for n in range(80)))]
    wires = [qproxy.wire(db) for _ in ids]
    for number, w in zip(ids, wires):
        w.query("QUEUE AWAIT %s WAIT '60s'" % number)
    for w in wires:
        parked(w)
    wait_for(lambda: qproxy.pool(db)["sv_active"] == 0, "the servers to be free")
    for row in q.rows("QUEUE TAKE mail LIMIT 80"):
        tag(q, "QUEUE DONE '%s' RESULT '%s'" % (row["token"], row["id"]))
    for number, w in zip(ids, wires):
        assert answer(w) == ("done", number)
        w.close()


def test_cancelled_in_a_transaction(qproxy, db, q):
    with qproxy.wire(db) as v, qproxy.wire(db) as w:
        one, two = pushed(q), pushed(q)
        awaiting(v, one)
        awaiting(w, two)
        tag(q, "BEGIN; SELECT 1")
        tag(q, "QUEUE CANCEL %s, '%s'" % (one, q.rows("QUEUE JOB %s" % two)[0]["job"]))
        parked(v, w)
        tag(q, "COMMIT")
        assert (answer(v), answer(w)) == (("gone", None), ("gone", None))


def answers(w):
    """Those of an AWAIT by Query: id, state and result of each row."""
    rows = []
    for m in w.until("Z"):
        assert m.type != "E", m.fields
        if m.type == "D":
            rows.append((m.text_row[1], m.text_row[3], m.text_row[4]))
    return rows


def test_all_of_several(qproxy, db, q):
    """In the order in which they were named, when the last of them has ended."""
    for _ in range(3):
        pushed(q)
    with qproxy.wire(db) as v, qproxy.wire(db) as w:
        v.query("QUEUE AWAIT 3, '1-1', 2 ON mail WAIT '60s'")
        w.query("QUEUE AWAIT ANY(ARRAY['1-2', '1-3']) ALL WAIT '60s'")
        parked(v, w)
        tokens = {r["id"]: r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 3")}
        tag(q, "QUEUE DONE '%s' RESULT '1'" % tokens["1"])
        tag(q, "QUEUE DONE '%s' RESULT '3'" % tokens["3"])
        parked(v, w)
        tag(q, "QUEUE FAIL '%s' FINAL" % tokens["2"])
        assert answers(v) == [("3", "done", "3"), ("1", "done", "1"), ("2", "dead", None)]
        assert answers(w) == [("2", "dead", None), ("3", "done", "3")]


def test_any_of_several(qproxy, db, q):
    for _ in range(3):
        pushed(q)
    with qproxy.wire(db) as w:
        w.query("QUEUE AWAIT 1, 2, 3 ON mail ANY WAIT '60s'")
        parked(w)
        tag(q, "QUEUE CANCEL 2 ON mail")
        assert answers(w) == [("2", "gone", None)]
        assert q.rows("QUEUE AWAIT 1, 3 ON mail ANY WAIT '10ms'") == []
        assert len(q.rows("QUEUE AWAIT 1, 2, 3 ON mail ANY WAIT '60s'")) == 1


def test_several_when_the_time_is_over(qproxy, db, q):
    """Those that have ended by then."""
    one_done(q, "mail")
    one_waits(q, "mail")
    assert [r["id"] for r in q.rows("QUEUE AWAIT 1, 2 ON mail WAIT '10ms'")] == ["1"]
    assert [r["id"] for r in q.rows("QUEUE AWAIT 1, 2 ON mail")] == ["1"]
    assert tag(q, "QUEUE AWAIT ANY('{}') WAIT '60s'") == "SELECT 0"
    with qproxy.wire(db) as w:
        w.query("QUEUE AWAIT 1, 2 ON mail WAIT '60s'")
        parked(w)
        cancel(w)
        assert answer(w) == "57014"


def test_several_of_several_queues(qproxy, db, q, direct):
    """One of them ends past the proxy, one by another queue's worker."""
    tag(q, "QUEUE CREATE other")
    one_waits(q, "mail")
    one_waits(q, "other")
    with qproxy.wire(db) as w:
        w.query("QUEUE AWAIT '1-1', '2-1' WAIT '60s'")
        parked(w)
        direct.execute("SELECT queue.done((SELECT token FROM queue.take('other')), '2')")
        tag(q, "QUEUE DONE '%s' RESULT '1'" % take(q)["token"])
        assert answers(w) == [("1", "done", "1"), ("1", "done", "2")]
    with qproxy.wire(db) as w:
        one_waits(q, "mail")
        w.query("QUEUE AWAIT '1-2', '2-1' WAIT '60s'")
        parked(w)
        tag(q, "QUEUE DROP mail")
        assert answers(w) == [("2", "gone", None), ("1", "done", "2")]


def test_a_job_that_is_held_among_several(q):
    """A bare id is that of a job that this connection holds, and of a single queue otherwise."""
    one_waits(q, "mail")
    one_waits(q, "mail")
    tag(q, "QUEUE CREATE other")
    token = take(q)["token"]
    tag(q, "QUEUE CANCEL 2 ON mail")
    assert [r["job"] for r in q.rows("QUEUE AWAIT '1-2', 1 ANY")] == ["1-2"]
    assert error(q, "QUEUE AWAIT 1, 2").sqlstate == "22023"
    tag(q, "QUEUE DONE '%s'" % token)


def test_cancelled_with_all(qproxy, db, q):
    with qproxy.wire(db) as v, qproxy.wire(db) as w:
        one, two = pushed(q), pushed(q)
        awaiting(v, one)
        awaiting(w, two)
        tag(q, "QUEUE CANCEL ALL ON mail")
        assert (answer(v), answer(w)) == (("gone", None), ("gone", None))
        one = pushed(q)
        awaiting(v, one)
        with qproxy.wire(db) as x:
            for sql in "BEGIN", "QUEUE CANCEL ALL ON mail", "COMMIT":
                tag(x, sql)
        assert answer(v) == ("gone", None)
