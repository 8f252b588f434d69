"""A client does not read the delivery that it is shown: the server is not read either, so the proxy does not fill."""

import os
import signal

import pytest

from pgcluster import Cluster
from proxy import wait_for
from pgwire import PgError, Wire, cancel
from queuetest import tag
from slowreader import STUCK, c, make, over, push, slow, stuck, token_of  # noqa: F401
from test_stream_life import proxy_of

EVENTS = 60
TAKE = "QUEUE TAKE s FOR a LIMIT %d WAIT '20 s'" % EVENTS


@pytest.fixture(scope="module")
def private():
    """It may be killed."""
    with Cluster() as one:
        one.psql("CREATE ROLE app LOGIN")
        yield one


def ask(wire, how):
    if how == "simple":
        wire.query(TAKE)
        return
    wire.parse("", TAKE + (" WHERE payload LIKE 'x%'" if how == "where" else ""))
    wire.bind(results=(1,) if how == "binary" else ())
    wire.execute(limit=EVENTS if how == "limited" else 0)
    wire.sync()


def whole(wire):
    """All events, as they were pushed: their token."""
    got = wire.until("Z")
    assert [m.tag for m in got if m.type == "C"] == ["SELECT %d" % EVENTS]
    return token_of([m.row for m in got if m.type == "D"], EVENTS)


def all_there(c, delivered=False):
    """Nothing was lost: everything is delivered, once."""
    if not delivered:
        c.query(TAKE)
        assert tag(c, "QUEUE DONE '%s'" % whole(c)) == "UPDATE 1"
    assert c.rows("QUEUE TAKE s FOR a") == []


@pytest.mark.parametrize("how", ["simple", "extended", "binary", "limited", "where"])
def test_is_not_kept(c, slow, proxy, how):
    before = proxy.rss_kib()
    ask(slow, how)
    pid = stuck(c)
    # others have other connections
    for _ in range(20):
        assert tag(c, "QUEUE PUSH mail '1'") == "INSERT 0 1"
        assert len(c.rows("QUEUE TAKE mail")) == 1
    assert stuck(c) == pid
    assert proxy.rss_kib() - before < 16_000
    assert tag(slow, "QUEUE DONE '%s'" % whole(slow)) == "UPDATE 1"
    all_there(c, delivered=True)


def test_few_rows_at_once(c, slow):
    """A delivery has no more events than the row limit, unless it comes again: what is behind that is kept for the next Execute."""
    c.query(TAKE)
    tag(c, "QUEUE RELEASE '%s'" % whole(c))
    slow.parse("", TAKE)
    slow.bind()
    got = []
    for last in [False] * (EVENTS // 7) + [True]:
        slow.execute(limit=7)
        slow.flush()
        got += slow.until("sC" if not last else "C")
        assert got[-1].type == ("C" if last else "s")
    slow.sync()
    assert [m.type for m in slow.until("Z")] == ["Z"]
    assert tag(slow, "QUEUE DONE '%s'" % token_of([m.row for m in got if m.type == "D"], EVENTS)) == "UPDATE 1"
    all_there(c, delivered=True)


@pytest.mark.parametrize("how", ["simple", "extended"])
@pytest.mark.parametrize("end", ["reset", "cancel", "terminate"])
def test_ends_meanwhile(c, slow, how, end):
    ask(slow, how)
    assert any(slow.recv().type == "D" for _ in range(3))
    pid = stuck(c)
    if end == "reset":
        slow.reset()
    elif end == "cancel":
        cancel(slow)
    else:
        c.rows("SELECT pg_terminate_backend(%s)" % pid)
    if end != "reset":
        last = slow.until("Z")[-2]
        assert last.type == "E"
        assert PgError(last).sqlstate in ({"57014"} if end == "cancel" else {"57P01", "08006"})
        wait_for(lambda: answered(slow), "the next statement of the client")
    wait_for(lambda: answered(c) and not c.rows(STUCK), "the end of the statement")
    all_there(c)


@pytest.mark.parametrize("how", ["simple", "extended"])
def test_server_is_killed(qbouncer, private, how):
    db = private.createdb(owner="app")
    proxy = proxy_of(qbouncer, private)
    with proxy.wire(db) as c, Wire(proxy.port, rcvbuf=4096) as slow:
        slow.startup(user="app", database=db)
        make(c, EVENTS)
        ask(slow, how)
        assert any(slow.recv().type == "D" for _ in range(3))
        os.kill(int(stuck(c)), signal.SIGKILL)
        assert PgError(slow.until("Z")[-2]).sqlstate in {"57P01", "57P02", "08006"}
        wait_for(lambda: answered(slow) and answered(c), "the server")
        all_there(c)


def answered(wire):
    """Behind a process that was killed all of Postgres starts anew."""
    try:
        return wire.rows("SELECT 1 AS one") == [{"one": "1"}]
    except PgError as e:
        assert e.sqlstate in {"57P01", "57P02", "57P03", "08006", "08003"}
        return False


def test_the_other_lane(proxy, db, slow):
    """Who waits for the same subscription gets what is pushed for the lane that is free."""
    with proxy.wire(db) as c, proxy.wire(db) as other:
        tag(c, "QUEUE CREATE s WITH (kind = stream, payload = text)")
        tag(c, "QUEUE SUBSCRIBE a TO s WITH (parallel = 2)")
        push(c, 30, " GROUP 'a'")
        slow.query("QUEUE TAKE s FOR a")
        stuck(c)
        other.query("QUEUE TAKE s FOR a WAIT '1 min'")
        wait_for(lambda: [r for r in proxy.console("SHOW WAITERS") if r["state"] == "waiting"], "the other one to wait")
        for group in range(20):         # some are of the other lane
            tag(c, "QUEUE PUSH s 'y' GROUP '%d'" % group)
        assert [m.row[4] for m in other.until("Z") if m.type == "D"][0] == b"y"
        stuck(c)
        assert len([m for m in slow.until("Z") if m.type == "D"]) == 30


def test_lease_is_over(c, slow):
    slow.query(TAKE + " LEASE '1 s'")
    over(c, stuck(c))
    last = PgError(slow.until("Z")[-2])
    assert last.sqlstate == "57014" and "lease" in last.message
    all_there(c)


def test_proxy_is_killed(c, slow, proxy, db):
    ask(slow, "simple")
    pid = stuck(c)
    proxy.kill()
    proxy.start()
    with proxy.wire(db) as again:
        over(again, pid)
        all_there(again)


def test_proxy_is_to_end(c, slow, proxy, db):
    """SIGINT: the delivery is heard to its end, its client gets the whole of it, and is sent away."""
    slow.query(TAKE + " LEASE '1 min'")
    stuck(c)
    c.terminate()
    proxy.signal(signal.SIGINT)
    proxy.wait_log("SIGINT")
    got = slow.closed()
    token = token_of([m.row for m in got if m.type == "D"], EVENTS)
    assert [m.tag for m in got if m.type == "C"] == ["SELECT %d" % EVENTS]
    wait_for(lambda: proxy.process.poll() is not None, "the end of the proxy")
    proxy.start()
    with proxy.wire(db) as again:
        assert tag(again, "QUEUE DONE '%s'" % token) == "UPDATE 1"
        all_there(again, delivered=True)
