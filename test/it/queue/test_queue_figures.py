"""QUEUE STATS ... BY: what happened through the proxy, by the minute, hour and day."""

import pytest

from proxy import wait_for
from queuetest import parked, q, qproxy, tag, take, shared, shared_db, shared_proxy  # noqa: F401

COUNTS = ("pushed", "taken", "done", "failed", "dead")


def figures(c, queue="mail", by="DAY"):
    """Of today: the counts."""
    row = c.rows("QUEUE STATS %s BY %s LAST 1" % (queue, by))[-1]
    return tuple(int(row[n]) for n in COUNTS)


def test_what_happened(qproxy, db, q):
    # the proxy remembers a queue of this name that was dropped past it
    tag(q, "QUEUE DROP mail")
    tag(q, "QUEUE CREATE mail")
    assert figures(q) == (0, 0, 0, 0, 0)
    tag(q, "QUEUE PUSH mail '1', '2', '3', '4'")
    jobs = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 3")]
    tag(q, "QUEUE DONE '%s'" % jobs[0])
    tag(q, "QUEUE FAIL '%s'" % jobs[1])
    tag(q, "QUEUE RELEASE '%s'" % jobs[2])
    q.rows("QUEUE POP mail")
    tag(q, "QUEUE PUSH mail '5'")
    tag(q, "QUEUE FAIL '%s', '%s' FINAL" % (take(q)["token"], take(q)["token"]))
    assert figures(q) == (5, 6, 2, 3, 2)
    # one that dies with its worker
    tag(q, "QUEUE PUSH mail '6' ATTEMPTS 1")
    with qproxy.wire(db) as worker:
        take(worker)
    wait_for(lambda: figures(q) == (6, 7, 2, 3, 3), "its death")
    row = q.rows("QUEUE STATS mail BY day LAST 1")[0]
    assert row["max_wait"] >= row["mean_wait"] >= "00:00:00" and row["max_run"] >= row["mean_run"] >= "00:00:00"
    # nobody else's
    tag(q, "QUEUE CREATE sms")
    assert figures(q, "sms") == (0, 0, 0, 0, 0)
    assert len(q.rows("QUEUE STATS sms BY MINUTE")) == 60
    assert len(q.rows("QUEUE STATS sms BY HOUR")) == 24
    assert len(q.rows("QUEUE STATS sms BY DAY LAST 7")) == 7


@pytest.mark.parametrize("end, counts", [("COMMIT", (4, 1, 1, 1, 0)), ("ROLLBACK", (2, 1, 0, 0, 0))])
def test_in_a_transaction(qproxy, db, q, end, counts):
    """What is in it counts with its commit; a TAKE is one of its own."""
    tag(q, "QUEUE DROP mail")
    tag(q, "QUEUE CREATE mail")
    tag(q, "QUEUE PUSH mail '1', '2'")
    other = take(q)["token"] if end == "COMMIT" else None
    q.simple("BEGIN")
    job = other or take(q)["token"]
    q.simple("CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1")
    tag(q, "QUEUE DONE '%s'" % job)
    tag(q, "QUEUE PUSH mail '3' PRIORITY 3")
    tag(q, "QUEUE PUSH mail SELECT '4'::jsonb")
    assert figures(q)[0] == 2
    q.simple(end)
    if end == "COMMIT":
        assert figures(q) == (4, 1, 1, 0, 0)
    else:
        assert figures(q) == counts


def test_they_are_written(qbouncer, cluster):
    """Every so often, and when the process ends; in the minute in which they happened, and for all to see."""
    db = cluster.createdb(owner="app")
    one, more = qbouncer(queue_figures="50ms"), qbouncer(queue_figures="1h")
    with one.wire(db) as c, more.wire(db) as d:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1', '2'")
        wait_for(lambda: figures(d) == (2, 0, 0, 0, 0), "that the other proxy sees it")
        take(d)
        assert figures(d) == (2, 1, 0, 0, 0)
        assert figures(c) == (2, 0, 0, 0, 0)
        d.close()
        more.stop()
        wait_for(lambda: figures(c) == (2, 1, 0, 0, 0), "what it has written at its end")
        assert c.rows("SELECT sum(pushed) AS p, bool_and(at <= now() AND at > now() - interval '3 min') AS m "
                      "FROM queue.figures") == [{"p": "2", "m": "t"}]


def test_who_may(qbouncer, cluster):
    """One role pushes, another takes; each writes what is its own to write; who may read neither sees nothing."""
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_figures="50ms")
    with proxy.wire(db) as c, proxy.wire(db, user="other") as other:
        for name in ("mail", "sms"):
            tag(c, "QUEUE CREATE " + name)
        tag(c, "QUEUE GRANT PUSH ON mail TO other")
        tag(other, "QUEUE PUSH mail '1'")
        tag(c, "QUEUE PUSH sms '1'")
        wait_for(lambda: c.rows("SELECT sum(pushed) AS n FROM queue.figures") == [{"n": "2"}], "both")
        assert [m.sqlstate for m in other.simple("QUEUE STATS mail BY DAY") if m.type == "E"] == ["42501"]
        assert other.rows("SELECT * FROM queue.figures") == []
        for sql in ("DELETE FROM queue.figures", "UPDATE queue.figures SET done = 1", "DO $$ BEGIN LOCK TABLE queue.figures IN SHARE MODE; END $$",
                    "INSERT INTO queue.figures SELECT c.number, now(), false, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 "
                    "FROM queue.queues AS c WHERE c.name = 'sms'"):
            assert [m.sqlstate for m in other.simple(sql) if m.type == "E"] == ["42501"]


def of(c, sub, by="DAY"):
    row = c.rows("QUEUE STATS s FOR %s BY %s LAST 1" % (sub, by))[-1]
    return tuple(int(row[n]) for n in COUNTS)


def test_of_a_subscription(qbouncer, cluster):
    """Each has its own, whichever proxy it takes from; pushed is what it was given. They stay when they are written."""
    db = cluster.createdb(owner="app")
    one, more = qbouncer(queue_figures="50ms"), qbouncer(queue_figures="1h")
    with one.wire(db) as c, more.wire(db) as d:
        for sql in ("CREATE s WITH (kind = stream)", "SUBSCRIBE a TO s", "SUBSCRIBE b TO s WITH (parallel = 2)", "PUSH s '1', '2', '3'"):
            tag(c, "QUEUE " + sql)
        first = d.rows("QUEUE TAKE s FOR a LIMIT 2")[0]["token"]
        assert of(d, "a") == (2, 1, 0, 0, 0) and of(d, "b") == (0, 0, 0, 0, 0)
        tag(d, "QUEUE FAIL '%s' RETRY IN '0'" % first)
        tag(d, "BEGIN")
        tag(d, "QUEUE DONE '%s'" % d.rows("QUEUE TAKE s FOR a WAIT '10s'")[0]["token"])
        assert of(d, "a") == (4, 2, 0, 1, 0)
        tag(d, "COMMIT")
        assert of(d, "a") == (4, 2, 1, 1, 0)
        assert d.rows("QUEUE STATS s FOR a BY day LAST 1")[0]["max_run"] > "00:00:00"
        given = c.rows("QUEUE TAKE s FOR b")
        tag(c, "QUEUE DONE '%s'" % given[0]["token"])
        wait_for(lambda: of(d, "b") == (len(given), 1, 1, 0, 0), "that the other proxy sees it")
        assert figures(d, "s") == (3, 3, 2, 1, 0)       # of the stream: all of them
        tag(d, "QUEUE TAKE s FOR a WAIT '10s'")
        d.close()
        more.stop()
        wait_for(lambda: of(c, "a") == (5, 3, 1, 1, 0), "what it has written at its end")
        tag(c, "QUEUE UNSUBSCRIBE a FROM s")
        tag(c, "QUEUE SUBSCRIBE a TO s")
        assert of(c, "a") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("sql, sqlstate", [
    ("QUEUE STATS mail FOR a BY DAY", "0A000"), ("QUEUE STATS mail FOR a", "0A000"), ("QUEUE STATS FOR a BY DAY", "22004"),
    ("QUEUE STATS mail FOR BY DAY", "42601"), ("QUEUE STATS nosuch FOR a BY DAY LAST 3", "42P01"),
    ("QUEUE STATS mail BY WEEK", "22023"), ("QUEUE STATS mail BY DAY LAST 0", "22023"),
    ("QUEUE STATS mail BY DAY LAST 10001", "22023"), ("QUEUE STATS nosuch BY DAY", "42P01"),
    ("QUEUE STATS BY DAY", "22023"), ("QUEUE STATS by BY DAY", "42P01"), ("QUEUE STATS mail LAST 3", "22023"), ("QUEUE STATS mail BY", "42601")])
def test_mistakes(q, sql, sqlstate):
    assert [m.sqlstate for m in q.simple(sql) if m.type == "E"] == [sqlstate]


@pytest.mark.parametrize("style", ["ISO, MDY", "SQL, DMY", "German"])
def test_date_styles(qproxy, db, style):
    """Waiting times are known where they can be read."""
    with qproxy.wire(db, DateStyle=style, TimeZone="Asia/Kathmandu") as c:
        for sql in ("CREATE mail", "DROP mail", "CREATE mail", "PUSH mail '1'"):
            tag(c, "QUEUE " + sql)
        take(c)
        row = c.rows("QUEUE STATS mail BY DAY LAST 1")[0]
        assert row["taken"] == "1" and (row["max_wait"] is not None) == style.startswith("ISO")
        assert row["max_wait"] is None or "00:00:00" <= row["max_wait"] < "00:00:10"
