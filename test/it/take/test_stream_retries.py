"""FAIL ... EVENT before the program: retries of single events, dead ones, and what wakes who waits."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import (  # noqa: F401
    error, parked, shared, shared_db, shared_proxy, stream, tag, take_events as take, woken)


def held(c):
    return [(r["id"], r["attempt"]) for r in c.rows("QUEUE TAKE orders FOR bi")]


def test_thin(c):
    tag(c, "QUEUE PUSH orders '1', '2', '3'")
    token, _ = take(c)
    assert tag(c, "QUEUE FAIL '%s' EVENT 2 ERROR 'bad' RETRY IN '0'" % token) == "UPDATE 1"
    assert error(c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
    (row,) = c.rows("QUEUE TAKE orders FOR bi")
    assert (row["id"], row["attempt"], row["payload"]) == ("2", "2", "2")
    assert tag(c, "QUEUE FAIL '%s' EVENT 2 FINAL" % row["token"]) == "UPDATE 1"
    assert take(c) == (None, [])
    (dead,) = c.rows("QUEUE PEEK orders FOR bi STATE dead")
    assert (dead["id"], dead["state"], dead["error"], dead["payload"]) == ("2", "dead", "bad", "2")
    assert c.rows("QUEUE PEEK orders FOR bi STATE later") == []
    assert tag(c, "QUEUE REDRIVE orders FOR bi") == "UPDATE 1"
    (row,) = c.rows("QUEUE TAKE orders FOR bi")
    assert (row["id"], row["attempt"]) == ("2", "1")
    assert tag(c, "QUEUE DONE '%s'" % row["token"]) == "UPDATE 1"
    assert c.rows("QUEUE PEEK orders FOR bi") == []


def test_refused(c):
    tag(c, "QUEUE PUSH orders '1'")
    token, _ = take(c)
    assert error(c, "QUEUE FAIL '%s' EVENT 7" % token).sqlstate == "22023"
    assert error(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '1 s' FINAL" % token).sqlstate == "42601"
    assert error(c, "QUEUE FAIL '%s' EVENT" % token).sqlstate == "42601"
    assert error(c, "QUEUE PEEK orders FOR bi WHERE (true)").sqlstate == "42601"
    assert error(c, "QUEUE REDRIVE orders FOR bi TO orders").sqlstate == "0A000"
    assert error(c, "QUEUE PEEK orders FOR nobody").sqlstate == "42704"
    assert error(c, "QUEUE SUBSCRIBE b2 TO orders WITH (on_fail = fly)").sqlstate == "22023"
    assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"


def test_a_group_waits(c, qproxy, db):
    """As the manual has it; who waits is woken when it may go on."""
    tag(c, "QUEUE SUBSCRIBE strict TO orders WITH (on_fail = block)")
    for payload, group in (("1", "a"), ("2", "b"), ("3", "a")):
        tag(c, "QUEUE PUSH orders '%s' GROUP '%s'" % (payload, group))
    token = c.rows("QUEUE TAKE orders FOR strict")[0]["token"]
    tag(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '1 h'" % token)
    tag(c, "QUEUE PUSH orders '4' GROUP 'a'")
    tag(c, "QUEUE PUSH orders '5' GROUP 'b'")
    (row,) = c.rows("QUEUE TAKE orders FOR strict WAIT '10 s'")
    assert row["payload"] == "5"
    tag(c, "QUEUE DONE '%s'" % row["token"])
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR strict WAIT '60s'")
        parked(w)
        tag(c, "QUEUE REDRIVE orders FOR strict STATE later")
        rows = [m.text_row for m in w.until("Z") if m.type == "D"]
        assert [r[4] for r in rows] == ["1", "3", "4"] and [r[3] for r in rows] == ["2", "1", "1"]
        tag(c, "QUEUE FAIL '%s' EVENT 1 FINAL" % rows[0][1])
        w.query("QUEUE TAKE orders FOR strict WAIT '60s'")
        parked(w)
        tag(c, "QUEUE PURGE orders FOR strict STATE dead")
        assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["3", "4"]


@pytest.mark.parametrize("binary", [False, True])
def test_prepared(qproxy, db, c, binary):
    """Both protocols, ids as text or as an array."""
    tag(c, "QUEUE PUSH orders '1', '2', '3', '4'")
    with psycopg.connect("host=127.0.0.1 port=%d dbname=%s user=app" % (qproxy.port, db), autocommit=True, prepare_threshold=0) as p:
        cursor = p.cursor(binary=binary)
        token = cursor.execute("QUEUE TAKE orders FOR bi").fetchall()[0][1]
        cursor.execute("QUEUE FAIL %s EVENT %s, %s ERROR 'bad' RETRY IN '0'", (token, 2, 3))
        rows = cursor.execute("QUEUE TAKE orders FOR bi").fetchall()
        assert [r[0] for r in rows] == [2, 3]
        cursor.execute("QUEUE FAIL %s EVENT ANY(%s) RETRY IN '0'", (rows[0][1], [3]))
        rows = cursor.execute("QUEUE TAKE orders FOR bi").fetchall()
        assert [r[0] for r in rows] == [3]
        cursor.execute("QUEUE DONE %s", (rows[0][1],))


def test_in_a_transaction(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1', '2'")
    token, _ = take(c)
    tag(c, "BEGIN")
    tag(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '0'" % token)
    tag(c, "ROLLBACK")
    tag(c, "BEGIN")
    tag(c, "SAVEPOINT a")
    tag(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '0'" % token)
    tag(c, "ROLLBACK TO a")
    tag(c, "QUEUE FAIL '%s' EVENT 2 RETRY IN '0'" % token)
    with qproxy.wire(db) as other:
        assert take(other) == (None, [])
        tag(c, "COMMIT")
        assert held(other) == [("2", "2")]


def test_wakes(c, qproxy, db):
    """Who waits gets the retry when it is due: at once, or later."""
    tag(c, "QUEUE PUSH orders '1'")
    token, _ = take(c)
    with qproxy.wire(db) as waiter:
        for after in ("0", "0.3"):
            waiter.query("QUEUE TAKE orders FOR bi WAIT '1 min'")
            parked(waiter)
            tag(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '%s s'" % (token, after))
            row = woken(waiter)
            token = row["token"]
            assert row["id"] == "1"


def test_retries_of_who_is_gone(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1'")
    token, _ = take(c)
    tag(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '0'" % token)
    with qproxy.wire(db) as other:
        assert held(other) == [("1", "2")]
        other.sock.close()
    c.query("QUEUE TAKE orders FOR bi WAIT '1 min'")
    row = woken(c)
    assert (row["id"], row["attempt"]) == ("1", "3")


def test_two_proxies(c, qproxy, db, qbouncer):
    """Who waits at the other one is woken; and what that one has out comes back when it is killed."""
    there = qbouncer(queue_orphan_grace="100ms", queue_heartbeat="20ms")
    tag(c, "QUEUE PUSH orders '1'")
    token, _ = take(c)
    with there.wire(db) as far, qproxy.wire(db) as asks:
        for after in ("0", "0.3"):
            far.query("QUEUE TAKE orders FOR bi WAIT '1 min'")
            parked(far)
            tag(c, "QUEUE FAIL '%s' EVENT 1 RETRY IN '%s s'" % (token, after))
            row = woken(far)
            token = row["token"]
        c.query("QUEUE TAKE orders FOR bi WAIT '1 min'")
        parked(c)
        known = "SELECT count(*) AS n FROM queue.deliveries WHERE proxy IS NOT NULL"
        wait_for(lambda: asks.rows(known)[0]["n"] == "1", "that it is known whose it is")
        there.kill()
        row = woken(c)
    assert (row["id"], row["attempt"]) == ("1", "4")


def test_the_server_is_cut_off(c, qproxy, db, shared):
    """In the middle of the transaction: the delivery is as it was, but that its worker is gone."""
    tag(c, "QUEUE PUSH orders '1', '2'")
    with qproxy.wire(db) as other:
        token, _ = take(other)
        tag(other, "BEGIN")
        pid = int(other.rows("SELECT pg_backend_pid() AS pid")[0]["pid"])
        tag(other, "QUEUE FAIL '%s' EVENT 1 RETRY IN '0'" % token)
        shared.direct.execute("SELECT pg_terminate_backend(%s)", (pid,))
        other.until("E")
    rows = c.rows("QUEUE TAKE orders FOR bi WAIT '1 min'")
    assert [(r["id"], r["attempt"]) for r in rows] == [("1", "2"), ("2", "2")]
    assert c.rows("QUEUE PEEK orders FOR bi") == []


def test_cut_until_the_guilty_one_is_alone(c, db):
    tag(c, "QUEUE SUBSCRIBE few TO orders WITH (max_attempts = 2, retry = 'fixed 1ms')")
    tag(c, "QUEUE PUSH orders '1', '2', '3', '4', '5'")
    sizes, seen = [], []
    while not c.rows("QUEUE PEEK orders FOR few STATE dead"):
        rows = c.rows("QUEUE TAKE orders FOR few WAIT '10s'")
        if "4" in [r["payload"] for r in rows]:
            sizes += [len(rows)]
            tag(c, "QUEUE FAIL '%s' RETRY IN '0'" % rows[0]["token"])
        elif rows:
            seen += [r["payload"] for r in rows]
            tag(c, "QUEUE DONE '%s'" % rows[0]["token"])
    assert sizes == [5, 5, 2, 1] and seen == ["1", "2", "3", "5"][:len(seen)]
