"""TAKE … RANK: among those who wait, higher ones are served first."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, parked, q, shared, shared_db, shared_proxy, tag, woken  # noqa: F401


def wait_on(proxy, db, more, verb="TAKE"):
    w = proxy.wire(db)
    w.query("QUEUE %s mail WAIT '30s' %s" % (verb, more))
    parked(w)
    return w


def still(proxy, n):
    return wait_for(lambda: len(proxy.console("SHOW WAITERS")) == n, "%d who wait" % n)


@pytest.mark.parametrize("verb", ["TAKE", "POP"])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_order(q, qproxy, db, verb, one_by_one):
    ranks = [0, 3, -2147483648, 3, 2147483647, None]
    waits = [wait_on(qproxy, db, "" if rank is None else "RANK %d" % rank, verb) for rank in ranks]
    assert sorted(int(r["rank"]) for r in qproxy.console("SHOW WAITERS")) == sorted(rank or 0 for rank in ranks)
    order = [4, 1, 3, 0, 5, 2]
    if one_by_one:
        for n, which in enumerate(order):
            tag(q, "QUEUE PUSH mail '%d'" % n)
            assert woken(waits[which])["payload"] == str(n)
            still(qproxy, 5 - n)
    else:
        q.simple("BEGIN; QUEUE PUSH mail '0', '1', '2', '3', '4', '5'; COMMIT")
        assert [woken(waits[which])["payload"] for which in order] == list("012345")


def test_of_equal_rank_who_came_first(q, qproxy, db):
    waits = [wait_on(qproxy, db, "RANK 7") for _ in range(4)]
    tag(q, "QUEUE PUSH mail '0', '1', '2', '3'")
    assert [woken(w)["payload"] for w in waits] == list("0123")


def test_with_conditions(q, qproxy, db):
    low = wait_on(qproxy, db, "WHERE (payload > '0')")
    plain = wait_on(qproxy, db, "RANK 1")
    high = wait_on(qproxy, db, "RANK 2 WHERE (payload = '2')")
    tag(q, "QUEUE PUSH mail '2'")
    assert woken(high)["payload"] == "2"
    tag(q, "QUEUE PUSH mail '3'")
    assert woken(plain)["payload"] == "3"
    tag(q, "QUEUE PUSH mail '4'")
    assert woken(low)["payload"] == "4"


def test_pushed_past_the_proxy(q, qproxy, db, shared):
    low, high = wait_on(qproxy, db, "RANK 1"), wait_on(qproxy, db, "RANK 2")
    shared.direct.execute("SELECT queue.push('mail', '1'::jsonb)")
    assert woken(high)["payload"] == "1"
    shared.direct.execute("SELECT queue.push('mail', '2'::jsonb)")
    assert woken(low)["payload"] == "2"


def test_behind_then(q, qproxy, db):
    tag(q, "QUEUE PUSH mail '0'")
    (job,) = q.rows("QUEUE TAKE mail")
    low = wait_on(qproxy, db, "RANK 1")
    q.query("QUEUE DONE '%s' THEN TAKE WAIT '30s' RANK 2" % job["token"])
    parked(q)
    with qproxy.wire(db) as c:
        tag(c, "QUEUE PUSH mail '1', '2'")
    assert woken(q)["payload"] == "1" and woken(low)["payload"] == "2"


def test_parameters(q, qproxy, db):
    tag(q, "QUEUE PUSH mail '0', '1'")
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        assert len(conn.execute("QUEUE TAKE mail RANK %s", (5,)).fetchall()) == 1
        assert len(conn.execute("QUEUE TAKE mail RANK %s", (None,), prepare=True).fetchall()) == 1


@pytest.mark.parametrize("rank, state", [("2147483648", "22003"), ("'x'", "22P02"), ("1.5", "22P02"), ("", "42601")])
def test_what_is_none(q, rank, state):
    assert error(q, "QUEUE TAKE mail RANK %s" % rank).sqlstate == state
