"""parallel = n before the program: several workers of a subscription, whom a push wakes and whom it does not."""

import json

import psycopg
import pytest

from proxy import wait_for
from queuetest import (  # noqa: F401
    error, parked, shared, shared_db, shared_proxy, stream, tag, take_events as take, woken)

TAKE = "QUEUE TAKE orders FOR bi "
SUBSCRIBED = " WITH (parallel = 2)"


def push(c, *payloads):
    """One transaction; of two lanes and of four each is of another one, in turn."""
    tag(c, "QUEUE PUSH orders " + ", ".join("'%s'" % p for p in payloads))


def lanes(c):
    return [(r["parallel"], r["lane"]) for r in c.rows("QUEUE SUBSCRIPTIONS orders")]


def test_thin(c):
    push(c, 1, 2, 3, 4)
    one, first = take(c)
    two, second = take(c)
    assert sorted(first + second) == ["1", "2", "3", "4"] and len(first) == 2
    assert take(c) == (None, [])
    assert sorted(r["delivery"] for r in c.rows("QUEUE SUBSCRIPTIONS orders")) == sorted(t.rsplit("-", 1)[0] for t in (one, two))
    push(c, 5, 6)
    assert take(c) == (None, [])
    tag(c, "QUEUE DONE '%s'" % two)
    token, third = take(c)
    assert len(third) == 1 and token.split("-")[0] == two.split("-")[0]
    tag(c, "QUEUE DONE '%s'" % one)
    tag(c, "QUEUE DONE '%s'" % token)
    assert len(take(c)[1]) == 1


def test_a_push_wakes_as_many_as_there_are_lanes(c, qproxy, db):
    tag(c, "QUEUE ALTER orders FOR bi SET (parallel = 3)")
    take(c)
    ws = [qproxy.wire(db) for _ in range(5)]
    for w in ws:
        w.query(TAKE + "WAIT '60s'")
        parked(w)
    push(c, *range(12))
    rows = [[m.text_row for m in w.until("Z") if m.type == "D"] for w in ws[:3]]
    assert sorted(r[4] for some in rows for r in some) == sorted(map(str, range(12))) and {len(r) for r in rows} <= {3, 4, 5}
    waiting = "SELECT count(*) AS n FROM queue.deliveries"
    assert c.rows(waiting)[0]["n"] == "3"
    push(c, 12)         # its lane is busy, whichever that is
    wait_for(lambda: [r for r in c.rows("QUEUE WORKERS orders") if r["waits_since"]][1:], "two who wait")
    tag(c, "QUEUE DONE '%s'" % rows[1][0][1])
    tag(c, "QUEUE DONE '%s'" % rows[0][0][1])
    tag(c, "QUEUE DONE '%s'" % rows[2][0][1])
    assert woken(ws[3])["payload"] == "12"
    assert len([r for r in c.rows("QUEUE WORKERS orders") if r["waits_since"]]) == 1
    for w in ws:
        w.close()


def test_who_waits_for_a_lane_that_is_busy_stays(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1' GROUP 'a'")
    token, _ = take(c)
    with qproxy.wire(db) as w:
        w.query(TAKE + "WAIT '60s'")
        parked(w)
        tag(c, "QUEUE PUSH orders '2' GROUP 'a'")
        assert take(c) == (None, [])
        assert len([r for r in c.rows("QUEUE WORKERS orders") if r["waits_since"]]) == 1
        tag(c, "QUEUE DONE '%s'" % token)
        assert woken(w)["payload"] == "2"


def test_behind_a_done(c, qproxy, db):
    """55000 if everything that may be out was ended by this very transaction; else the others' lanes may come."""
    push(c, 1, 2, 3, 4)
    (one, _), (two, _) = take(c, "LIMIT 1"), take(c, "LIMIT 1")
    tag(c, "BEGIN")
    tag(c, "QUEUE DONE '%s'" % one)
    assert take(c) == (None, [])            # the other one is somebody's
    with qproxy.wire(db) as other:
        tag(other, "QUEUE DONE '%s'" % two)
    token, _ = take(c)
    assert token.split("-")[0] == two.split("-")[0]
    tag(c, "QUEUE DONE '%s'" % token)
    refused = error(c, TAKE)
    assert refused.sqlstate == "55000" and "COMMIT" in refused.fields["H"]
    tag(c, "ROLLBACK")
    again, _ = take(c, "WAIT '20s'")        # taken in the transaction, so given back
    assert again.split("-")[0] == two.split("-")[0]
    tag(c, "QUEUE DONE '%s'" % one)         # taken before it
    assert take(c)[0].split("-")[0] == one.split("-")[0]


def test_without_waiting_behind_a_done(c):
    push(c, 1, 2)
    one, first = take(c)
    tag(c, "BEGIN")
    tag(c, "QUEUE DONE '%s'" % one)
    two, second = take(c)
    assert sorted(first + second) == ["1", "2"]
    tag(c, "QUEUE DONE '%s'" % two)
    assert error(c, TAKE).sqlstate == "55000"
    tag(c, "ROLLBACK")


@pytest.mark.parametrize("how", ["broken", "rolled back", "not read"])
def test_who_has_it_is_gone(c, qproxy, db, how):
    """Its delivery comes again, at once; the other one is as it was."""
    push(c, 1, 2)
    kept, mine = take(c)
    with qproxy.wire(db) as w:
        if how == "rolled back":
            tag(w, "BEGIN")
        if how == "not read":
            w.query(TAKE + "WAIT '30s' LEASE '1 hour'")
        else:
            token = w.rows(TAKE + "LEASE '1 hour'")[0]["token"]
        if how == "rolled back":
            tag(w, "ROLLBACK")
        else:
            w.close()
        again, payloads = take(c, "WAIT '20s'")
        assert len(payloads) == 1 and payloads != mine
        assert how == "not read" or again != token and again.rsplit("-", 1)[0] == token.rsplit("-", 1)[0]
    tag(c, "QUEUE DONE '%s'" % again)
    tag(c, "QUEUE DONE '%s'" % kept)


def test_its_proxy_is_gone(c, qproxy, db, qbouncer):
    """Both that it had out come again here; who waits here is woken by a push there."""
    there = qbouncer(queue_orphan_grace="100ms", queue_heartbeat="20ms")
    with there.wire(db) as far, qproxy.wire(db) as w, qproxy.wire(db) as v:
        for waiter in (w, v):
            waiter.query(TAKE + "WAIT '60s' LEASE '1 hour'")
            parked(waiter)
        tag(far, "QUEUE PUSH orders '1', '2'")
        for row in (woken(w), woken(v)):
            tag(far, "QUEUE DONE '%s'" % row["token"])
        push(c, 3, 4)
        there_is = [far.rows(TAKE + "LEASE '1 hour'")[0] for _ in range(2)]
        wait_for(lambda: c.rows("SELECT count(*) AS n FROM queue.deliveries WHERE proxy IS NOT NULL")[0]["n"] == "2", "whose they are")
        for waiter in (w, v):
            waiter.query(TAKE + "WAIT '60s'")
            parked(waiter)
        there.kill()
        assert sorted(woken(waiter)["payload"] for waiter in (w, v)) == sorted(r["payload"] for r in there_is)


def test_change(c, qproxy, db):
    """Who waits goes on in the new lanes when the old ones have ended."""
    push(c, 1, 2)
    one, two = take(c)[0], take(c)[0]
    tag(c, "QUEUE ALTER orders FOR bi SET (parallel = 3, lease = '2 min')")
    push(c, 3, 4, 5)
    ws = [qproxy.wire(db) for _ in range(3)]
    for w in ws:
        w.query(TAKE + "WAIT '60s'")
        parked(w)
    assert lanes(c) == [("2", "1"), ("2", "2"), ("3", "1"), ("3", "2"), ("3", "3")]
    assert error(c, "QUEUE ALTER orders FOR bi SET (parallel = 4)").sqlstate == "55000"
    tag(c, "QUEUE DONE '%s'" % one)
    tag(c, "QUEUE DONE '%s'" % two)
    assert sorted(woken(w)["payload"] for w in ws) == ["3", "4", "5"]
    assert lanes(c) == [("3", "1"), ("3", "2"), ("3", "3")]
    assert {r["lease"] for r in c.rows("QUEUE SUBSCRIPTIONS orders")} == {"00:02:00"}
    for w in ws:
        w.close()


@pytest.mark.parametrize("binary", [False, True])
def test_prepared(c, qproxy, db, binary):
    dsn = "host=127.0.0.1 port=%d dbname=%s user=app" % (qproxy.port, db)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as p:
        cur = p.cursor(binary=binary)
        for n in (4, 1, 3):
            cur.execute("QUEUE ALTER %s FOR %s SET (parallel = %s)", ("orders", "bi", n))
            assert cur.statusmessage == "ALTER TABLE"
            cur.execute(TAKE)
            cur.execute("QUEUE SUBSCRIPTIONS")
            assert [r[-2:] for r in cur.fetchall()] == [(n, i + 1) for i in range(n)]
        cur.execute("QUEUE ALTER orders FOR bi RESET (parallel)")
        cur.execute("QUEUE SUBSCRIBE more TO orders WITH (parallel = %s, lease = %s)", (8, "5 s"))
        with pytest.raises(psycopg.errors.DuplicateObject):
            cur.execute("QUEUE SUBSCRIBE more TO orders")
        cur.execute("QUEUE UNSUBSCRIBE more FROM orders")
        assert len(cur.execute("QUEUE SUBSCRIPTIONS orders").fetchall()) == 4       # the old lanes have not been taken from


@pytest.mark.parametrize("sql, state", [
    ("QUEUE ALTER orders FOR nobody SET (parallel = 2)", "42704"), ("QUEUE ALTER nowhere FOR bi SET (parallel = 2)", "42P01"),
    ("QUEUE ALTER orders FOR bi SET (parallel = 0)", "22023"), ("QUEUE ALTER orders FOR bi SET (speed = 9)", "22023"),
    ("QUEUE ALTER orders FOR bi SET (on_fail = block)", "0A000"), ("QUEUE ALTER orders FOR bi RESET (speed)", "22023"),
    ("QUEUE ALTER orders FOR bi", "42601"), ("QUEUE ALTER orders SET (parallel = 2)", "0A000"),
    ("QUEUE CREATE more WITH (kind = stream, parallel = 2)", "0A000")])
def test_refused(c, sql, state):
    refused = error(c, sql)
    assert refused.sqlstate == state, refused.fields
    assert state != "0A000" or "SUBSCRI" in refused.fields["H"] or "subscription" in refused.fields["H"]


def test_rights(c, qproxy, db, cluster):
    cluster.psql("REVOKE other FROM app")  # other tests have left it so
    tag(c, "QUEUE GRANT SUBSCRIBE ON orders TO other")
    with qproxy.wire(db, "other") as theirs:
        assert error(theirs, "QUEUE ALTER orders FOR bi SET (parallel = 2)").sqlstate == "42501"
        tag(theirs, "QUEUE SUBSCRIBE his TO orders WITH (parallel = 2)")
        push(c, 1, 2)
        tokens = [theirs.rows("QUEUE TAKE orders FOR his")[0]["token"] for _ in range(2)]
        for token in tokens:
            assert error(c, "QUEUE DONE '%s'" % token).sqlstate == "42501"
            tag(theirs, "QUEUE DONE '%s'" % token)


def test_groups_of_many(c, qproxy, db):
    """Four workers who drain what four groups, and no group, have: each group in its order."""
    tag(c, "QUEUE SUBSCRIBE four TO orders WITH (parallel = 4)")
    for i in range(60):
        tag(c, "QUEUE PUSH orders '{\"g\": \"%s\", \"i\": %d}' GROUP '%s'" % ("abcd"[i % 4], i, "abcd"[i % 4]))
        push(c, json.dumps({"g": None, "i": i}))
    seen = []
    ws = [qproxy.wire(db) for _ in range(4)]
    while len(seen) < 120:
        out = []
        for w in ws:
            rows = w.rows("QUEUE TAKE orders FOR four LIMIT 7")
            if rows:
                out.append(rows)
        groups = [{json.loads(r["payload"])["g"] for r in rows} - {None} for rows in out]
        assert sum(map(len, groups)) == len(set().union(*groups))
        for rows in reversed(out):
            seen += [json.loads(r["payload"]) for r in rows]
            tag(ws[0], "QUEUE DONE '%s'" % rows[0]["token"])
    for g in "abcd":
        assert [e["i"] for e in seen if e["g"] == g] == ["abcd".index(g) + 4 * n for n in range(15)]
    assert sorted(e["i"] for e in seen if e["g"] is None) == list(range(60))
    for w in ws:
        w.close()
