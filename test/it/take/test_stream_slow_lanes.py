"""A client does not read a large delivery of one lane, whatever it was taken for: the other lanes go on, and what is done to all of
them meanwhile is right."""

import os
import signal

import pytest

from pgcluster import Cluster
from pgwire import PgError, Wire
from proxy import wait_for
from queuetest import error, tag
from test_stream_life import proxy_of

SIZE, EVENTS = 1_000_000, 30
SAID = {"lag": " LAG '1 us'", "where": " WHERE (payload <> '')"}
WAYS = ["plain", "lag", "where", "block", "failed"]
STUCK = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite' AND state = 'active'"
BLOCKED = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def slow(proxy, db):
    """A client that reads slowly."""
    with Wire(proxy.port, rcvbuf=4096) as wire:
        wire.startup(user="app", database=db)
        yield wire


@pytest.fixture(scope="module")
def private():
    """It may be killed."""
    with Cluster() as one:
        one.psql("CREATE ROLE app LOGIN")
        yield one


def take_of(way, wait=""):
    return "QUEUE TAKE s FOR a LIMIT %d%s%s" % (EVENTS, wait, SAID.get(way, ""))


def make(c, way):
    """Of two lanes: a group of each. Much is in that of the first one, and nothing in the other."""
    tag(c, "QUEUE CREATE s WITH (kind = stream, payload = text)")
    tag(c, "QUEUE SUBSCRIBE a TO s WITH (parallel = 2%s)" % (", on_fail = block" if way == "block" else ""))
    a, b = [r["g"] for r in c.rows("SELECT min(g) AS g FROM unnest('{a,b,c,d,e,f}'::text[]) AS g"
                                   " GROUP BY hashtextextended(g, 0) & 32767 > 16383 ORDER BY 1")]
    if way == "failed":
        tag(c, "QUEUE PUSH s 'bad' GROUP '%s'" % b)
        row, = c.rows("QUEUE TAKE s FOR a")
        tag(c, "QUEUE FAIL '%s' EVENT %s RETRY IN '1 hour'" % (row["token"], row["id"]))
    for _ in range(EVENTS // 10):
        tag(c, "QUEUE PUSH s " + ", ".join(["'%s'" % ("x" * SIZE)] * 10) + " GROUP '%s'" % a)
    return a, b


def stuck(c):
    return wait_for(lambda: c.rows(STUCK), "the server to wait until it is read")[0]["pid"]


def blocked(c):
    wait_for(lambda: c.rows(BLOCKED), "the statement to wait")


def events_of(wire):
    messages = wire.until("Z")
    assert [PgError(m) for m in messages if m.type == "E"] == []
    return [m.row for m in messages if m.type == "D"]


def done(wire, rows):
    assert tag(wire, "QUEUE DONE '%s'" % rows[0][1].decode()) == "UPDATE 1"


@pytest.mark.parametrize("place", ["one", "two"])
@pytest.mark.parametrize("way", WAYS)
def test_the_other_lane(proxy, qbouncer, db, slow, way, place):
    """At the same proxy, and at another one."""
    beside = qbouncer() if place == "two" else proxy
    with proxy.wire(db) as c, beside.wire(db) as other:
        a, b = make(c, way)
        slow.query(take_of(way))
        stuck(c)
        assert other.rows(take_of(way)) == []
        for i in range(3):
            other.query(take_of(way, " WAIT '1 min'"))
            wait_for(lambda: [r for r in beside.console("SHOW WAITERS") if r["state"] == "waiting"], "the other one to wait")
            tag(c, "QUEUE PUSH s 'y%d' GROUP '%s'" % (i, b))
            rows = events_of(other)
            assert [r[4] for r in rows] == [b"y%d" % i]
            done(other, rows)
        tag(c, "QUEUE PUSH s 'z' GROUP '%s'" % a)
        other.query(take_of(way, " WAIT '1 min'"))
        stuck(c)
        rows = events_of(slow)
        assert len(rows) == EVENTS
        done(slow, rows)
        assert [r[4] for r in events_of(other)] == [b"z"]


@pytest.mark.parametrize("what", ["QUEUE UNSUBSCRIBE a FROM s", "QUEUE DROP s", "QUEUE SEEK a ON s TO BEGINNING",
                                  "QUEUE ALTER s FOR a SET (parallel = 3)"])
@pytest.mark.parametrize("way", ["lag", "block"])
def test_done_to_all_of_it(proxy, db, slow, way, what):
    """It waits for the delivery, and then that is no more, or goes on as it was begun."""
    with proxy.wire(db) as c, proxy.wire(db) as other:
        a, b = make(c, way)
        slow.query(take_of(way))
        stuck(c)
        other.query(what)
        blocked(c)
        rows = events_of(slow)
        assert len(rows) == EVENTS
        assert [m.type for m in other.until("Z") if m.type == "E"] == []
        if "ALTER" in what:
            done(slow, rows)
            tag(c, "QUEUE PUSH s 'y' GROUP '%s'" % b)
            assert [r["payload"] for r in c.rows(take_of(way))] == ["y"]
            return
        assert error(slow, "QUEUE DONE '%s'" % rows[0][1].decode()).sqlstate == "QB001"
        if "SEEK" in what:
            again = c.rows(take_of(way))
            assert len(again) == EVENTS and again[0]["attempt"] == "1"


@pytest.mark.parametrize("way", ["lag", "failed"])
def test_server_is_killed(qbouncer, private, way):
    """Each event comes again; the other lane's delivery, which was told to its client, is as it was."""
    db = private.createdb(owner="app")
    proxy = proxy_of(qbouncer, private)
    with proxy.wire(db) as c, Wire(proxy.port, rcvbuf=4096) as slow:
        slow.startup(user="app", database=db)
        a, b = make(c, way)
        slow.query(take_of(way))
        pid = stuck(c)
        os.kill(int(pid), signal.SIGKILL)
        assert PgError(slow.until("Z")[-2]).sqlstate in {"57P01", "57P02", "08006"}

        def answered(wire):
            try:
                return wire.rows("SELECT 1 AS one") == [{"one": "1"}]
            except PgError as e:        # all of Postgres starts anew
                assert e.sqlstate in {"57P01", "57P02", "57P03", "08006", "08003"}
                return False

        wait_for(lambda: answered(c) and answered(slow), "the server")
        tag(c, "QUEUE PUSH s 'y' GROUP '%s'" % b)
        got = []
        while rows := c.rows(take_of(way)):
            assert rows[0]["attempt"] == "1"
            got += [r["payload"][0] for r in rows]
            tag(c, "QUEUE DONE '%s'" % rows[0]["token"])
        assert sorted(got) == ["x"] * EVENTS + ["y"]
