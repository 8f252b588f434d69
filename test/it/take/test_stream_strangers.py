"""Each verb of streams and topics, said by a role without any right: refused, in whatever protocol and also inside a block; what
others have is as it was, and none of it is told.
"""

import pytest

from pgwire import PgError
from queuetest import qproxy, tag  # noqa: F401

SECRET = "geheim"
SAID = {  # %(token)s: of a delivery that is out, %(delivery)s: its name
    "push": "QUEUE PUSH s '1'", "push a query": "QUEUE PUSH s SELECT '1'::jsonb", "subscribe": "QUEUE SUBSCRIBE mine TO s FROM BEGINNING",
    "take": "QUEUE TAKE s FOR a", "wait": "QUEUE TAKE s FOR a WAIT '10 s'", "take with a lag": "QUEUE TAKE s FOR a LAG '1 s' WAIT '10 s'",
    "done": "QUEUE DONE '%(token)s'", "fail": "QUEUE FAIL '%(token)s' ERROR 'x'", "fail an event": "QUEUE FAIL '%(token)s' EVENT 1",
    "final": "QUEUE FAIL '%(token)s' FINAL", "release": "QUEUE RELEASE '%(token)s'", "extend": "QUEUE EXTEND '%(token)s' LEASE '1 h'",
    "peek": "QUEUE PEEK s FOR a", "peek at the dead": "QUEUE PEEK s FOR a STATE dead", "peek at a delivery": "QUEUE PEEK '%(delivery)s'",
    "peek at a token": "QUEUE PEEK '%(token)s'", "seek": "QUEUE SEEK a ON s TO NOW", "unsubscribe": "QUEUE UNSUBSCRIBE a FROM s",
    "alter the subscription": "QUEUE ALTER s FOR a SET (lease = '1 h')", "lanes": "QUEUE ALTER s FOR a SET (parallel = 4)",
    "alter": "QUEUE ALTER s SET (retain_max = '1 s')", "drop": "QUEUE DROP s", "redrive": "QUEUE REDRIVE s FOR a",
    "grant": "QUEUE GRANT ALL ON s TO other", "revoke": "QUEUE REVOKE ALL ON s FROM app", "create": "QUEUE CREATE x WITH (kind = stream)",
    "publish": "QUEUE PUBLISH 'orders.x' '1'", "publish with a key": "QUEUE PUBLISH 'orders.x' '1' KEY 'k'", "bind": "QUEUE BIND s TO 'orders.x'",
    "unbind": "QUEUE UNBIND s FROM 'orders.#'", "drop the topic": "QUEUE DROP TOPIC orders", "create a topic": "QUEUE CREATE TOPIC mine",
    "grant on the topic": "QUEUE GRANT PUBLISH ON TOPIC orders TO other", "revoke on the topic": "QUEUE REVOKE BIND ON TOPIC orders FROM app",
    "track": "QUEUE TRACK hers.t IN s", "track in the topic": "QUEUE TRACK hers.t IN orders", "track what is not hers": "QUEUE TRACK t IN s",
    "untrack": "QUEUE UNTRACK t",
    "a schedule that publishes": "QUEUE SCHEDULE n EVERY '1 h' PUBLISH 'orders.x' '1'",
}
TOLD = ["QUEUE SUBSCRIPTIONS", "QUEUE SUBSCRIPTIONS s", "QUEUE STATS", "QUEUE STATS s", "QUEUE HEALTH", "QUEUE ROUTES", "QUEUE ROUTES 'orders.x'",
        "QUEUE TRACKED", "QUEUE SCHEDULES"]


@pytest.fixture
def world(qproxy, cluster, db):
    """The token of a delivery of app's that is out; there is a dead event, too."""
    cluster.psql("REVOKE other FROM app")
    with qproxy.wire(db) as c:
        tag(c, "QUEUE CREATE s WITH (kind = stream)")
        tag(c, "QUEUE SUBSCRIBE a TO s WITH (max_attempts = 1)")
        tag(c, "QUEUE CREATE TOPIC orders")
        tag(c, "QUEUE BIND s TO 'orders.#'")
        tag(c, "CREATE TABLE t (id int8 PRIMARY KEY)")
        tag(c, "QUEUE TRACK t IN s")
        tag(c, "CREATE SCHEMA hers")
        tag(c, "GRANT ALL ON SCHEMA hers TO other")
        for _ in range(3):
            tag(c, "QUEUE PUSH s '\"%s\"' KEY '%s' GROUP '%s' HEADERS '{\"h\": \"%s\"}'" % ((SECRET,) * 4))
        tag(c, "QUEUE FAIL '%s' FINAL ERROR '%s'" % (c.rows("QUEUE TAKE s FOR a LIMIT 1")[0]["token"], SECRET))
        token = c.rows("QUEUE TAKE s FOR a LIMIT 1")[0]["token"]
        yield token
        assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
        (sub,) = c.rows("QUEUE SUBSCRIPTIONS s")
        assert [sub[k] for k in ("subscription", "owner", "pending", "retries", "dead", "parallel", "lease")] == [
            "a", "app", "1", "0", "1", "1", "00:01:00"]
        assert [(r["payload"], r["key"]) for r in c.rows("QUEUE TAKE s FOR a")] == [('"%s"' % SECRET, SECRET)]
        assert [r["queue"] for r in c.rows("QUEUE ROUTES")] == ["s"]
        assert len(c.rows("QUEUE TRACKED")) == 1


def refused(got):
    (err,) = [PgError(m) for m in got if m.type == "E"]
    assert [m for m in got if m.type == "D"] == [] and SECRET not in repr(got)
    return err.sqlstate


@pytest.mark.parametrize("way", ["simple", "extended", "in a block"])
def test_a_stranger(qproxy, db, world, way):
    with qproxy.wire(db, "other") as w:
        tag(w, "CREATE TABLE hers.t (id int8 PRIMARY KEY)")
        for what, said in SAID.items():
            sql = said % {"token": world, "delivery": world.rsplit("-", 1)[0]}
            if way == "in a block":
                tag(w, "BEGIN")
            if way == "extended":
                got = w.hold().parse("", sql).bind("", "").execute().sync().push().until("Z", skip="S")
            else:
                got = w.query(sql).until("Z", skip="S")
            assert refused(got) == "42501", (what, got)
            if way == "in a block":
                tag(w, "ROLLBACK")
        for sql in TOLD:
            got = w.query(sql).until("Z", skip="S")
            assert SECRET not in repr([m.text_row for m in got if m.type == "D"]), sql
