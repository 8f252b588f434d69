"""A large delivery is shown to its client while it comes: whatever ends it there, its events are delivered as a whole."""

import pytest

from pgwire import PgError, Wire, cancel
from proxy import wait_for
from queuetest import error, tag
from relay import Relay

EVENTS = 300
SIZE = 40_000
TAKE = "QUEUE TAKE s FOR a LIMIT %d WAIT '20 s'" % EVENTS


@pytest.fixture
def c(proxy, db):
    with proxy.wire(db) as wire:
        tag(wire, "QUEUE CREATE s WITH (kind = stream, payload = text)")
        tag(wire, "QUEUE SUBSCRIBE a TO s")
        for _ in range(EVENTS // 100):
            tag(wire, "QUEUE PUSH s " + ", ".join(["'%s'" % ("x" * SIZE)] * 100))
        yield wire


def whole(wire):
    """The token of a delivery that has all events, each as it was pushed."""
    rows = wire.rows(TAKE)
    assert [int(r["id"]) for r in rows] == list(range(1, EVENTS + 1))
    assert {len(r["payload"]) for r in rows} == {SIZE}
    (token,) = {r["token"] for r in rows}
    return token


def test_simple(c):
    assert tag(c, "QUEUE DONE '%s'" % whole(c)) == "UPDATE 1"
    assert c.rows("QUEUE TAKE s FOR a") == []


@pytest.mark.parametrize("binary", [0, 1])
def test_extended(c, binary):
    c.parse("", TAKE)
    c.bind(results=(binary,))
    c.describe("P")
    c.execute()
    c.sync()
    got = c.until("Z")
    rows = [m.row for m in got if m.type == "D"]
    assert [m.type for m in got if m.type != "D"] == ["1", "2", "T", "C", "Z"]
    assert [int.from_bytes(row[0], "big") if binary else int(row[0]) for row in rows] == list(range(1, EVENTS + 1))
    assert {len(row[4]) for row in rows} == {SIZE}
    assert tag(c, "QUEUE DONE '%s'" % rows[0][1].decode()) == "UPDATE 1"


def test_so_many_rows(c):
    """A row limit is a LIMIT."""
    c.parse("", TAKE)
    c.bind()
    c.execute(limit=7)
    c.sync()
    rows = [m.row for m in c.until("Z") if m.type == "D"]
    assert [int(row[0]) for row in rows] == list(range(1, 8)) and {len(row[4]) for row in rows} == {SIZE}
    assert tag(c, "QUEUE DONE '%s'" % rows[0][1].decode()) == "UPDATE 1"


@pytest.mark.parametrize("end", ["reset", "cancel", "server"])
def test_ends_in_the_middle(c, qbouncer, db, direct, cluster, end):
    """Of its rows some have passed, and the server waits to send the others, until the end has come."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, server_tls_sslmode="disable")
        with Wire(proxy.port) as other:
            other.startup(user="app", database=db)
            relay.arm(b"in the middle", "part")
            other.query(TAKE + " AS 'in the middle'")
            assert relay.lost.wait(20)
            assert other.recv().type == "T" and other.recv().type == "D"
            (pid,) = wait_for(lambda: direct.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE '%\\_take_for%' AND state = 'active' "
                                                     "AND wait_event = 'ClientWrite'").fetchone(), "that the server cannot go on")
            if end == "reset":
                other.reset()
                proxy.wait_log("%s/app@\\S+ closing because: client" % db)
            elif end == "cancel":
                cancel(other)
            else:
                direct.execute("SELECT pg_terminate_backend(%s)", (pid,))
                wait_for(lambda: direct.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None,
                         "that the server is gone")
            relay.release()
            if end != "reset":
                # a backend that is ended while it writes says so only if it can still write
                assert PgError(other.until("Z")[-2]).sqlstate in {"cancel": ("57014",), "server": ("08006", "57P01")}[end]
            token = whole(c)
    assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    assert c.rows("QUEUE TAKE s FOR a") == []


def test_fails_at_its_end(c, db, cluster):
    """What was shown of a delivery that could not be committed is nobody's."""
    cluster.psql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$; "
                 "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON queue.deliveries DEFERRABLE INITIALLY DEFERRED "
                 "FOR EACH ROW EXECUTE FUNCTION refuse()", db)
    c.query(TAKE)
    got = c.until("Z")
    assert [m.type for m in got[:2]] == ["T", "D"] and got[-2].type == "E" and "not now" in str(PgError(got[-2]))
    assert error(c, "QUEUE DONE '%s'" % got[1].text_row[1]).sqlstate == "QB001"
    cluster.psql("DROP TRIGGER late ON queue.deliveries", db)
    assert tag(c, "QUEUE DONE '%s'" % whole(c)) == "UPDATE 1"
