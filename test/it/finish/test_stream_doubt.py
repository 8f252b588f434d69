"""DONE of a delivery whose answer is lost: repeated with the same token it is answered as it ended."""

import pytest

from queuetest import error, tag, wait_for
from relay import Relay

WAYS = {
    "events": "QUEUE TAKE s FOR a LIMIT 2",
    "with a condition": "QUEUE TAKE s FOR a LIMIT 2 WHERE (true)",
    "parallel": "QUEUE TAKE s FOR p LIMIT 2",
    "that failed by themselves": "QUEUE TAKE s FOR f LIMIT 2",
}


@pytest.fixture
def lossy(qbouncer, cluster, db):
    """The relay, the proxy before it, and a client: three events, and in f two of them that have failed."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d" % relay.port}, queue_engine_timeout="500ms", server_tls_sslmode="disable",
                         server_login_retry=0.1)
        with proxy.wire(db) as c:
            tag(c, "QUEUE CREATE s WITH (kind = stream)")
            for sub, options in ("a", ""), ("p", " WITH (parallel = 3)"), ("f", " WITH (retry = 'fixed 1ms')"):
                tag(c, "QUEUE SUBSCRIBE %s TO s%s" % (sub, options))
            tag(c, "QUEUE PUSH s '1', '2', '3'")
            (one, two, _) = c.rows("QUEUE TAKE s FOR f")
            # the proxy has its number: else it says later whose the leases are, and that has their tokens in it, too
            wait_for(lambda: c.rows("SELECT number FROM queue.proxies"), "the number of the proxy")
            tag(c, "QUEUE FAIL '%s' EVENT %s, %s" % (one["token"], one["id"], two["id"]))
            yield relay, proxy, c


def lose(relay, c, token, how, then=""):
    relay.arm(token.encode(), how)
    e = error(c, "QUEUE DONE '%s'%s" % (token, then))
    assert relay.lost.wait(20)
    assert e.sqlstate.startswith("08") and "not known" in e.fields["D"] and "Repeat it" in e.fields["H"], e
    relay.forget_silent()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["cut", "silent", "never"])
def test_repeated(lossy, way, how):
    """Whether it was carried out or not: it is done, once."""
    relay, _, c = lossy
    got = c.rows(WAYS[way] + " WAIT '10 s'")
    lose(relay, c, got[0]["token"], how)
    for _ in range(2):
        assert tag(c, "QUEUE DONE '%s'" % got[0]["token"]) == "UPDATE 1"
    seen = {r["id"] for r in got}
    while True:
        more = c.rows(WAYS[way])
        if not more:
            break
        assert not seen & {r["id"] for r in more}
        seen |= {r["id"] for r in more}
        assert tag(c, "QUEUE DONE '%s'" % more[0]["token"]) == "UPDATE 1"
    assert len(seen) == (2 if "failed" in way else 3)


@pytest.mark.parametrize("how", ["cut", "never"])
def test_the_next_one_follows(lossy, how):
    relay, _, c = lossy
    (one,) = c.rows("QUEUE TAKE s FOR a LIMIT 1")
    lose(relay, c, one["token"], how, " THEN TAKE FOR a LIMIT 1")
    (two,) = c.rows("QUEUE DONE '%s' THEN TAKE FOR a LIMIT 1" % one["token"])
    assert (one["payload"], two["payload"]) == ("1", "2")


@pytest.mark.parametrize("how", ["cut", "never"])
@pytest.mark.parametrize("meanwhile, why", [
    ("QUEUE SEEK a ON s TO BEGINNING", "The subscription was moved by SEEK."),
    ("QUEUE UNSUBSCRIBE a FROM s", "The subscription is gone, or parallel was changed."),
    ("QUEUE RELEASE '{token}'", "It was over, or given back; its events are delivered again.")])
def test_something_else_has_ended_it(lossy, db, how, meanwhile, why):
    """Nobody knows what came first: no answer says that it is done."""
    relay, proxy, c = lossy
    token = c.rows("QUEUE TAKE s FOR a")[0]["token"]
    lose(relay, c, token, how)
    with proxy.wire(db) as other:
        other.query(meanwhile.format(token=token))
        other.until("Z")
    e = error(c, "QUEUE DONE '%s'" % token)
    if how == "never" or "RELEASE" not in meanwhile:
        assert (e.sqlstate, e.fields["D"]) == ("QB001", why), e
    else:
        assert (e.sqlstate, e.fields["D"]) == ("QB001", "The delivery is done and gone."), e


def test_its_lease_is_over(lossy, db):
    """Somebody else may have it by then, and have done it: QB001."""
    relay, proxy, c = lossy
    (one,) = c.rows("QUEUE TAKE s FOR a LIMIT 1 LEASE '1 s'")
    lose(relay, c, one["token"], "never")
    with proxy.wire(db) as other:
        (again,) = other.rows("QUEUE TAKE s FOR a LIMIT 1 WAIT '20 s'")
        assert (again["id"], again["attempt"]) == (one["id"], "2")
        assert tag(other, "QUEUE DONE '%s'" % again["token"]) == "UPDATE 1"
    assert error(c, "QUEUE DONE '%s'" % one["token"]).sqlstate == "QB001"


def test_in_a_transaction_it_is_the_clients_own(lossy):
    """What was done beside it is not done twice: there it stays an error."""
    relay, _, c = lossy
    (one,) = c.rows("QUEUE TAKE s FOR a LIMIT 1")
    lose(relay, c, one["token"], "cut")
    tag(c, "BEGIN")
    assert error(c, "QUEUE DONE '%s'" % one["token"]).sqlstate == "QB001"
    tag(c, "ROLLBACK")
