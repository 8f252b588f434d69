"""DONE ... THEN TAKE s FOR sub: a delivery is done and committed, and the next one is taken, in one round trip."""

import psycopg
import pytest

from pgwire import cancel
from queuetest import error, parked, shared, shared_db, shared_proxy, stream, tag, woken  # noqa: F401
from test_queue_then_where import SAID

from proxy import wait_for


def taken(rows):
    return (rows[0]["token"] if rows else None), [r["payload"] for r in rows]


@pytest.mark.parametrize("clause, found", [
    ("orders FOR bi", ["2", "3", "4"]), ("FOR bi LIMIT 1", ["2"]), ("orders FOR bi LIMIT 2 LEASE '5 min' AS 'w'", ["2", "3"]),
    ("orders FOR bi WAIT '30s'", ["2", "3", "4"]), ("FOR bi WHERE (payload::int > 2)", ["3", "4"]), ("FOR bi WHERE (false)", []),
    ("orders FOR bi MIN 9 WITHIN '1 h' LIMIT 9", []), ("orders FOR bi LAG '1 h'", [])])
def test_one_round_trip(c, clause, found):
    tag(c, "QUEUE PUSH orders '1', '2', '3', '4'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi LIMIT 1"))
    token, got = taken(c.rows("QUEUE DONE '%s' THEN TAKE %s" % (token, clause)))
    assert got == found
    if token:
        assert taken(c.rows("QUEUE DONE '%s' THEN TAKE FOR bi" % token))[1] == ["2", "3", "4"][len(found):] if "WHERE" not in clause else True


def test_a_loop(c, qproxy, db):
    """As a worker does it; the token comes through another connection, too."""
    tag(c, "QUEUE PUSH orders (payload) SELECT to_jsonb(n) FROM generate_series(1, 100) n")
    token, seen = taken(c.rows("QUEUE TAKE orders FOR bi LIMIT 7"))
    with qproxy.wire(db) as other:
        n = 0
        while token:
            token, got = taken((other if n % 2 else c).rows("QUEUE DONE '%s' THEN TAKE FOR bi LIMIT 7" % token))
            seen += got
            n += 1
    assert seen == [str(n) for n in range(1, 101)]


def test_repeated(c):
    tag(c, "QUEUE PUSH orders '1', '2'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi LIMIT 1"))
    assert taken(c.rows("QUEUE DONE '%s' THEN TAKE orders FOR bi" % token))[1] == ["2"]
    assert c.rows("QUEUE DONE '%s' THEN TAKE orders FOR bi" % token) == []           # done before; the other one is out
    assert c.rows("QUEUE DONE '%s' THEN TAKE FOR bi" % token) == []


def test_what_is_refused_is_refused_before(c):
    tag(c, "QUEUE PUSH orders '1', '2'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi LIMIT 1"))
    for clause, state in (("orders FOR bi LIMIT 0", "22023"), ("orders, other FOR bi", "0A000"), ("orders FOR bi HOLD", "0A000"),
                          ("orders FOR bi RANK 1", "0A000"), ("orders MIN 2 WITHIN '1 s'", "0A000"), ("orders FOR bi WHERE (1", "42601")):
        assert error(c, "QUEUE DONE '%s' THEN TAKE %s" % (token, clause)).sqlstate == state
    assert c.rows("QUEUE SUBSCRIPTIONS orders")[0]["delivery"]
    for clause, state in (("orders FOR nobody", "42704"), ("nothing FOR bi", "42P01"), ("orders FOR bi WHERE (id::text::jsonb->'x' = 1)", "42883")):
        assert error(c, "QUEUE DONE '%s' THEN TAKE %s" % (token, clause)).fields["D"].endswith(SAID)
    assert c.rows("QUEUE SUBSCRIPTIONS orders")[0]["delivery"] is None
    assert error(c, "QUEUE DONE '2-d9-0123456789abcdef' THEN TAKE orders FOR bi").sqlstate == "QB001"
    assert taken(c.rows("QUEUE TAKE orders FOR bi"))[1] == ["2"]


def test_in_a_transaction(c, qproxy, db):
    """The next delivery exists when the DONE is committed; of several lanes another one has one."""
    tag(c, "QUEUE PUSH orders '1', '2'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi LIMIT 1"))
    tag(c, "BEGIN")
    refused = error(c, "QUEUE DONE '%s' THEN TAKE orders FOR bi" % token)
    assert refused.sqlstate == "55000" and "COMMIT" in refused.fields["H"] and SAID not in refused.fields["D"]
    assert error(c, "SELECT 1").sqlstate == "25P02"
    tag(c, "ROLLBACK")
    tag(c, "BEGIN")
    assert error(c, "QUEUE DONE '%s' THEN TAKE orders FOR bi WAIT '1 s'" % token).sqlstate == "25001"
    tag(c, "ROLLBACK")
    tag(c, "QUEUE DONE '%s'" % token)
    tag(c, "QUEUE SUBSCRIBE many TO orders FROM BEGINNING WITH (parallel = 2)")
    token, got = taken(c.rows("QUEUE TAKE orders FOR many"))
    tag(c, "BEGIN")
    other, more = taken(c.rows("QUEUE DONE '%s' THEN TAKE FOR many" % token))
    assert sorted(got + more) == ["1", "2"]
    tag(c, "ROLLBACK")
    (again, the_same) = taken(c.rows("QUEUE TAKE orders FOR many WAIT '30s'"))         # the other lane, which was taken in the transaction
    assert the_same == more
    for each in (token, again):
        tag(c, "QUEUE DONE '%s'" % each)


def test_it_waits(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi"))
    c.query("QUEUE DONE '%s' THEN TAKE FOR bi WAIT '30s'" % token)
    parked(c)
    with qproxy.wire(db) as w:
        assert w.rows("QUEUE SUBSCRIPTIONS orders")[0]["delivery"] is None
        tag(w, "QUEUE PUSH orders '2'")
        assert woken(c)["payload"] == "2"
        token = w.rows("QUEUE SUBSCRIPTIONS orders")[0]["delivery"]
    c.query("QUEUE TAKE orders FOR bi WAIT '30s'")
    parked(c)
    cancel(c)
    assert [m.fields["C"] for m in c.until() if m.type == "E"] == ["57014"]


def test_a_cancel_of_the_wait(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi"))
    c.query("QUEUE DONE '%s' THEN TAKE FOR bi WAIT '30s'" % token)
    parked(c)
    cancel(c)
    (e,) = [m for m in c.until() if m.type == "E"]
    assert e.fields["C"] == "57014" and SAID in e.fields["D"]


def test_jobs_and_deliveries(c):
    """From a queue to a stream, and back: each names what it takes."""
    tag(c, "QUEUE DROP IF EXISTS mail")
    tag(c, "QUEUE CREATE mail")
    tag(c, "QUEUE PUSH mail '{}', '{}'")
    tag(c, "QUEUE PUSH orders '1', '2'")
    (job,) = c.rows("QUEUE TAKE mail")
    token, got = taken(c.rows("QUEUE DONE '%s' THEN TAKE orders FOR bi LIMIT 1" % job["token"]))
    assert got == ["1"]
    (job,) = c.rows("QUEUE DONE '%s' THEN TAKE mail" % token)
    assert job["queue"] == "mail"
    e = error(c, "QUEUE DONE '%s' THEN TAKE FOR bi" % job["token"])
    assert e.sqlstate == "0A000" and "is not a stream" in e.message and SAID in e.fields["D"]
    token, got = taken(c.rows("QUEUE TAKE orders FOR bi"))
    e = error(c, "QUEUE DONE '%s' THEN TAKE" % token)
    assert SAID in e.fields["D"], e.fields
    tag(c, "QUEUE DROP mail")


def test_extended_protocol(c, qproxy, db):
    tag(c, "QUEUE PUSH orders (payload) SELECT to_jsonb(n) FROM generate_series(1, 9) n")
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        rows = conn.execute("QUEUE TAKE orders FOR bi LIMIT 2").fetchall()
        seen = [r[4] for r in rows]
        for prepare in (False, True, True):
            for binary in (False, True):
                rows = conn.cursor(binary=binary).execute("QUEUE DONE %s THEN TAKE orders FOR bi LIMIT 1 WHERE (payload::int > %s)",
                                                          (rows[0][1], 3), prepare=prepare).fetchall()
                seen += [r[4] for r in rows]
    assert seen == [1, 2, 4, 5, 6, 7, 8, 9]


def test_a_killed_server(c, qproxy, db):
    """The DONE is committed, the server of the take goes: it asks on."""
    tag(c, "QUEUE PUSH orders '1', '2'")
    token, _ = taken(c.rows("QUEUE TAKE orders FOR bi LIMIT 1"))
    c.query("QUEUE DONE '%s' THEN TAKE FOR bi WAIT '60s' WHERE (payload = '2' AND pg_sleep(0.3) IS NOT NULL)" % token)
    with qproxy.wire(db) as w:
        wait_for(lambda: w.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                                " AND datname = current_database()"), what="its look")
        assert woken(c)["payload"] == "2"
