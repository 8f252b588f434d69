"""TAKE ... FOR with WHERE: a delivery has the events that fit, and the position passes the others."""

import re

import psycopg
import pytest

from pgwire import cancel
from proxy import wait_for
from queuetest import error, parked, shared, shared_db, shared_proxy, stream, tag, woken  # noqa: F401


def fits(c, where, more=""):
    """The token, and the payloads."""
    rows = c.rows("QUEUE TAKE orders FOR bi %s WHERE (%s)" % (more, where))
    return (rows[0]["token"] if rows else None), [r["payload"] for r in rows]


def drain(c, where, more=""):
    got = []
    while True:
        token, payloads = fits(c, where, more)
        if token is None:
            return got
        got.append(payloads)
        tag(c, "QUEUE DONE '%s'" % token)


def put(c, first, last):
    tag(c, "QUEUE PUSH orders (payload) SELECT to_jsonb(n) FROM generate_series(%d, %d) n" % (first, last))


def test_only_what_fits(c):
    put(c, 1, 20)
    assert drain(c, "payload::int %% 5 = 0" % (), "LIMIT 3") == [["5", "10", "15"], ["20"]]
    assert c.rows("QUEUE TAKE orders FOR bi") == []                  # the others were passed
    (row,) = c.rows("QUEUE SUBSCRIPTIONS orders")
    assert (row["pending"], row["delivered"], row["delivery"]) == ("0", "4", None)


@pytest.mark.parametrize("where, found", [
    ("payload = '3'", [3]), ("id = 3", [3]), ("key = 'k1'", [1, 3, 5]), ("\"group\" = 'g2' OR id = 1", [1, 2, 5]),
    ("headers->>'h' = '4'", [4]), ("pushed_at > now() - interval '1 h'", [1, 2, 3, 4, 5]), ("xid = 0", []),
    ("id IN (SELECT 2) -- ) the end\n", [2]), ("true", [1, 2, 3, 4, 5]), ("false", []), ("NULL", []), ("peek.id < 3", [1, 2])])
def test_columns(c, where, found):
    for n in range(1, 6):
        tag(c, "QUEUE PUSH orders '%d' KEY 'k%d' GROUP 'g%d' HEADERS '{\"h\": %d}'" % (n, n % 2, n % 3, n))
    assert fits(c, where)[1] == [str(n) for n in found]


@pytest.mark.parametrize("where, pending", [("false", "3"), ("1 = 2", "3"), ("id < 0", "0"), ("payload IS NULL", "0")])
def test_what_is_passed(c, where, pending):
    """What the condition has seen. One that speaks of no event sees none."""
    put(c, 1, 3)
    assert fits(c, where) == (None, [])
    assert c.rows("QUEUE SUBSCRIPTIONS orders")[0]["pending"] == pending


@pytest.mark.parametrize("where, state", [("(id = 1) ) --", "42601"), ("()", "42601"), ("(1)", "42804"), ("(nothing = 1)", "42703"),
                                          ("(state = 'x')", "42703"), ("(priority = 1)", "42703"), ("(1/0 = 1)", "22012")])
def test_what_is_none(c, where, state):
    put(c, 1, 3)
    assert error(c, "QUEUE TAKE orders FOR bi WHERE %s" % where).sqlstate == state
    assert fits(c, "true")[1] == ["1", "2", "3"]


def test_far_behind(c):
    """What does not fit is passed by steps, in many transactions; also without WAIT."""
    put(c, 1, 25000)
    assert sum(drain(c, "payload IN ('12000', '24999')"), []) == ["12000", "24999"]
    put(c, 1, 12000)
    put(c, 1, 9)
    assert sum(drain(c, "payload = '9' AND id > 37000"), []) == ["9"]
    assert c.rows("QUEUE SUBSCRIPTIONS orders")[0]["pending"] == "0"


def test_waits_until_one_fits(c, qproxy, db):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s' WHERE (payload->>'to' = 'me')")
        parked(w)
        for n in range(5):
            tag(c, "QUEUE PUSH orders '{\"to\": \"you\"}'")
        wait_for(lambda: c.rows("QUEUE SUBSCRIPTIONS orders")[0]["pending"] == "0", what="the position to pass them")
        parked(w)
        tag(c, "QUEUE PUSH orders '{\"to\": \"me\"}', '{\"to\": \"you\"}'")
        assert woken(w)["payload"] == '{"to": "me"}'
        (row,) = c.rows("QUEUE SUBSCRIPTIONS orders")
        assert (row["events"], row["delivered"], row["pending"]) == ("1", "1", "0")


def test_holds_no_server(c, qproxy, db):
    waiters = [qproxy.wire(db) for _ in range(20)]
    for n, w in enumerate(waiters):
        tag(c, "QUEUE SUBSCRIBE s%d TO orders" % n)
        w.query("QUEUE TAKE orders FOR s%d WAIT '30s' WHERE (payload = '%d')" % (n, n))
    for w in waiters:
        parked(w)
    wait_for(lambda: all(int(r["sv_active"]) == 0 for r in qproxy.console("SHOW POOLS") if r["database"] == db), what="servers to be free")
    tag(c, "QUEUE PUSH orders " + ", ".join("'%d'" % n for n in range(20)))
    assert [woken(w)["payload"] for w in waiters] == [str(n) for n in range(20)]
    for n, w in enumerate(waiters):
        w.close()
        tag(c, "QUEUE UNSUBSCRIBE s%d FROM orders" % n)


def test_min_counts_what_fits(c, qproxy, db):
    put(c, 1, 100)
    assert fits(c, "payload IN ('3', '50')", "MIN 3 WITHIN '1 h'") == (None, [])
    assert c.rows("QUEUE SUBSCRIPTIONS orders")[0]["pending"] == "100"       # what fits keeps its place
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi MIN 3 WITHIN '1 h' WAIT '30s' WHERE (payload IN ('3', '50', '200'))")
        parked(w)
        put(c, 101, 200)
        rows = w.until()
        assert [m.tag for m in rows if m.type == "C"] == ["SELECT 3"]
    put(c, 1, 2)


def test_min_within(c):
    put(c, 1, 9)
    (row,) = c.rows("QUEUE TAKE orders FOR bi MIN 5 WITHIN '200ms' WAIT '30s' WHERE (payload = '4')")
    assert row["payload"] == "4"


def test_lag(c):
    put(c, 1, 9)
    assert fits(c, "payload = '4'", "LAG '1 h'") == (None, [])
    (row,) = c.rows("QUEUE TAKE orders FOR bi LAG '300ms' WAIT '30s' WHERE (payload = '4')")
    assert row["payload"] == "4"


def test_comes_again_as_it_was(c):
    """What a WHERE has chosen is a delivery like any other: whoever takes next gets that again, whatever he says."""
    put(c, 1, 10)
    token, got = fits(c, "payload::int > 7")
    assert got == ["8", "9", "10"]
    assert [r["payload"] for r in c.rows("QUEUE PEEK '%s'" % token)] == got
    assert c.rows("QUEUE SUBSCRIPTIONS orders")[0]["events"] == "3"
    tag(c, "QUEUE FAIL '%s' ERROR 'no' RETRY IN '0 s'" % token)
    for more in ("WHERE (payload = '1')", ""):
        rows = c.rows("QUEUE TAKE orders FOR bi " + more)
        assert [r["payload"] for r in rows] == got
        tag(c, "QUEUE RELEASE '%s'" % rows[0]["token"])
    (token, attempt) = [(r["token"], r["attempt"]) for r in c.rows("QUEUE TAKE orders FOR bi WHERE (false)")][0]
    assert error(c, "QUEUE FAIL '%s' EVENT 3" % token).sqlstate == "22023"       # did not fit, so it is not in it
    tag(c, "QUEUE FAIL '%s' EVENT 9 ERROR 'bad' RETRY IN '0 s'" % token)
    rows = c.rows("QUEUE TAKE orders FOR bi WHERE (false)")                      # an event that comes again by itself, too
    assert [(r["payload"], r["attempt"]) for r in rows] == [("9", str(int(attempt) + 1))]
    tag(c, "QUEUE DONE '%s'" % rows[0]["token"])
    assert c.rows("QUEUE TAKE orders FOR bi") == []


def test_an_event_that_it_cannot_bear(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '{\"n\": \"1\"}', '{\"n\": \"2\"}', '{\"n\": \"x\"}', '{\"n\": \"4\"}'")
    for wait in ("", "WAIT '30s'"):
        refused = error(c, "QUEUE TAKE orders FOR bi %s WHERE ((payload->>'n')::int > 1)" % wait)
        assert refused.sqlstate == "22P02" and '"x"' in refused.message
        assert refused.fields["D"] == 'WHERE fails at event 3 of stream "orders".' and "CASE" in refused.fields["H"]
    # those before it are delivered where LIMIT ends before it, and it passes without
    token, got = fits(c, "(payload->>'n')::int > 1", "LIMIT 1")
    assert got == ['{"n": "2"}']
    tag(c, "QUEUE DONE '%s'" % token)
    assert error(c, "QUEUE TAKE orders FOR bi WHERE ((payload->>'n')::int > 1)").fields["D"].startswith("WHERE fails at event 3 ")
    (row,) = c.rows("QUEUE TAKE orders FOR bi LIMIT 1")
    tag(c, "QUEUE DONE '%s'" % row["token"])
    assert fits(c, "(payload->>'n')::int > 1")[1] == ['{"n": "4"}']
    # of one that waits
    with qproxy.wire(db) as w:
        tag(c, "QUEUE SUBSCRIBE two TO orders")
        w.query("QUEUE TAKE orders FOR two WAIT '30s' WHERE ((payload->>'n')::int > 1)")
        parked(w)
        tag(c, "QUEUE PUSH orders '{\"n\": \"y\"}'")
        (refused,) = [m for m in w.until() if m.type == "E"]
        assert refused.fields["D"] == 'WHERE fails at event 5 of stream "orders".'
        tag(c, "QUEUE UNSUBSCRIBE two FROM orders")


def test_parameters(c, qproxy, db):
    put(c, 1, 9)
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        for prepare in (False, True, True):
            cur = conn.execute("QUEUE TAKE orders FOR bi LIMIT 2 WHERE (payload::int > %s AND payload::text <> %s)", (3, "5"), prepare=prepare)
            rows = cur.fetchall()
            assert [d.name for d in cur.description][-1] == "xid"
            assert [r[4] for r in rows] == [4, 6]
            conn.execute("QUEUE RELEASE %s", (rows[0][1],))
        (row, _) = conn.execute("QUEUE TAKE orders FOR bi LIMIT 5").fetchall()
        conn.execute("QUEUE DONE %s", (row[1],))
        assert [r[4] for r in conn.execute("QUEUE TAKE orders FOR %s LIMIT %s WHERE (payload = %s)", ("bi", 5, psycopg.types.json.Jsonb(9)))] == [9]


@pytest.mark.parametrize("kind, good, where", [("text", "abc", "payload LIKE 'a%'"), ("bytea", "\\x00ff", "length(payload) = 2")])
def test_payloads(c, kind, good, where):
    tag(c, "QUEUE DROP orders")
    tag(c, "QUEUE CREATE orders WITH (kind = stream, payload = %s)" % kind)
    tag(c, "QUEUE SUBSCRIBE bi TO orders")
    tag(c, "QUEUE PUSH orders 'x', '%s'" % good)
    token, got = fits(c, where)
    assert got == [good]
    tag(c, "QUEUE FAIL '%s' RETRY IN '0 s'" % token)
    assert fits(c, "false")[1] == [good]


def test_groups_and_workers(c, qproxy, db):
    """Lanes: each event that fits once, no group in two deliveries, its events in order."""
    tag(c, "QUEUE SUBSCRIBE many TO orders WITH (parallel = 4)")
    tag(c, "QUEUE PUSH orders (payload, \"group\") SELECT to_jsonb(n), 'g' || n % 23 FROM generate_series(1, 6000) n")
    got, out = [], {}
    while True:
        rows = c.rows("QUEUE TAKE orders FOR many LIMIT 7 WHERE (payload::int % 50 = 0)")
        if rows:
            groups = {r["group"] for r in rows}
            assert not any(groups & g for g in out.values())
            out[rows[0]["token"]] = groups
            got += [(r["group"], int(r["payload"])) for r in rows]
        if len(out) == 3 or not rows:
            if not out:
                break
            tag(c, "QUEUE DONE '%s'" % out.popitem()[0])
    assert sorted(n for _, n in got) == list(range(50, 6001, 50))
    for group in {g for g, _ in got}:
        mine = [n for g, n in got if g == group]
        assert mine == sorted(mine)
    assert {r["pending"] for r in c.rows("QUEUE SUBSCRIPTIONS orders") if r["subscription"] == "many"} == {"0"}


def test_parallel_is_changed(c):
    tag(c, "QUEUE SUBSCRIBE many TO orders WITH (parallel = 3)")
    put(c, 1, 50)
    (token,) = {r["token"] for r in c.rows("QUEUE TAKE orders FOR many LIMIT 1 WHERE (payload::int % 2 = 0)")}
    tag(c, "QUEUE ALTER orders FOR many SET (parallel = 2)")
    put(c, 51, 100)
    tag(c, "QUEUE RELEASE '%s'" % token)
    got = []
    while len(got) < 50:
        rows = c.rows("QUEUE TAKE orders FOR many LIMIT 4 WAIT '20s' WHERE (payload::int % 2 = 0)")
        assert rows
        got += [int(r["payload"]) for r in rows]
        tag(c, "QUEUE DONE '%s'" % rows[0]["token"])
    assert sorted(got) == list(range(2, 101, 2))
    # the last take of the lanes of before removes them
    wait_for(lambda: c.rows("QUEUE TAKE orders FOR many WHERE (payload::int % 2 = 0)") == [] and
             len([r for r in c.rows("QUEUE SUBSCRIPTIONS orders") if r["subscription"] == "many"]) == 2, "two lanes")


def test_block(c):
    """on_fail = block: what fits and is of a group that waits is held back; what does not fit is no part of it."""
    tag(c, "QUEUE SUBSCRIBE strict TO orders WITH (on_fail = block)")
    tag(c, "QUEUE PUSH orders (payload, \"group\") SELECT to_jsonb(n), CASE WHEN n < 9 THEN 'a' ELSE 'b' END FROM generate_series(1, 10) n")
    rows = c.rows("QUEUE TAKE orders FOR strict WHERE (payload::int % 2 = 0)")
    assert [r["payload"] for r in rows] == ["2", "4", "6", "8", "10"]
    tag(c, "QUEUE FAIL '%s' EVENT 4 RETRY IN '1 h'" % rows[0]["token"])
    tag(c, "QUEUE PUSH orders (payload, \"group\") SELECT to_jsonb(n), CASE WHEN n < 19 THEN 'a' ELSE 'b' END FROM generate_series(11, 20) n")
    rows = c.rows("QUEUE TAKE orders FOR strict WHERE (payload::int % 2 = 0)")
    assert [r["payload"] for r in rows] == ["20"]
    tag(c, "QUEUE DONE '%s'" % rows[0]["token"])
    tag(c, "QUEUE REDRIVE orders FOR strict STATE later")
    rows = c.rows("QUEUE TAKE orders FOR strict WHERE (false)")
    assert [r["payload"] for r in rows] == ["4", "6", "8", "12", "14", "16", "18"]


def test_nobody_elses_rights(c, qproxy, db, cluster):
    tag(c, "CREATE TABLE secret AS SELECT 1 AS s")
    tag(c, "CREATE TABLE seen (who text)")
    tag(c, "GRANT INSERT ON seen TO PUBLIC")
    tag(c, "CREATE FUNCTION spy() RETURNS bool LANGUAGE sql VOLATILE AS 'INSERT INTO seen VALUES (current_user) RETURNING true'")
    tag(c, "QUEUE GRANT SUBSCRIBE ON orders TO other")
    tag(c, "QUEUE PUSH orders '1'")
    with qproxy.wire(db, user="other") as w:
        tag(w, "QUEUE SUBSCRIBE theirs TO orders FROM BEGINNING")
        assert error(w, "QUEUE TAKE orders FOR bi WHERE (spy())").sqlstate == "42501"
        assert error(w, "QUEUE TAKE orders FOR theirs WHERE EXISTS (SELECT FROM secret)").sqlstate == "42501"
        assert len(w.rows("QUEUE TAKE orders FOR theirs WHERE (spy())")) == 1
        tag(c, "QUEUE REVOKE SUBSCRIBE ON orders FROM other")
        assert error(w, "QUEUE TAKE orders FOR theirs WHERE (spy())").sqlstate == "42501"
    assert [r["who"] for r in c.rows("SELECT * FROM seen")] == ["other"]


LOOKED = "current_setting('qbouncer.looked', true)"
FORGED = {
    "nothing": "set_config('qbouncer.looked', '', true)",
    "nonsense": "set_config('qbouncer.looked', 'x', true)",
    "empty": "set_config('qbouncer.looked', '(,,,,,,,,,,,,,,,,,,)', true)",
    "too short": "set_config('qbouncer.looked', '(1,2)', true)",
    "of another": "set_config('qbouncer.looked', regexp_replace({looked}, '^\\(\\d+', '({sub}'), true)",
    "of another stream": "set_config('qbouncer.looked', regexp_replace({looked}, '^(.(\\d*,){{3}})\\d+', '\\199999'), true)",
    "never at its end": "set_config('qbouncer.looked', regexp_replace({looked}, ',t(,[^,]*,[^,]*,[^,]*,[^,]*)$', ',f\\1'), true)",
    "far ahead": "set_config('qbouncer.looked', regexp_replace({looked}, '\\d+:\\d+:', '999999999:999999999:'), true)",
    "idle lanes of another": "(set_config('qbouncer.idle', '{idle}', true) || "
                             "set_config('qbouncer.looked', regexp_replace({looked}, '\\d*\\)$', '1)'), true))",
    "no idle lanes": "(set_config('qbouncer.idle', 'x', true) || "
                     "set_config('qbouncer.looked', regexp_replace({looked}, '\\d*\\)$', '1)'), true))",
}


@pytest.mark.parametrize("fits", ["IS NOT NULL", "IS NULL"])
@pytest.mark.parametrize("how", FORGED)
def test_a_forged_look(c, qproxy, db, how, fits):
    """What the condition says of what was looked at is said with its client's rights: what is another's stays where it is."""
    tag(c, "QUEUE GRANT SUBSCRIBE ON orders TO other")
    put(c, 1, 3)
    sub = c.rows("SELECT number FROM queue.subscriptions WHERE name = 'bi'")[0]["number"]
    position = "SELECT p::text FROM queue.positions AS p WHERE sub = %s" % sub
    before = c.rows(position)
    idle = c.rows("SELECT array_agg(jsonb_populate_record(p, jsonb_build_object('s2', pg_current_snapshot()::text, 'last', NULL)))"
                  "::text AS idle FROM queue.positions AS p WHERE sub = %s" % sub)[0]["idle"]
    with qproxy.wire(db, user="other") as w:
        tag(w, "QUEUE SUBSCRIBE theirs TO orders FROM BEGINNING")
        tag(w, "SET statement_timeout = '2 s'")
        condition = FORGED[how].format(looked=LOOKED, sub=sub, idle=idle)
        for _ in range(2):
            got = w.simple("QUEUE TAKE orders FOR theirs WHERE (%s %s)" % (condition, fits))
            assert [m.type for m in got if m.type in "EC"] in (["E"], ["C"]), got
        assert w.rows("SELECT 1 AS a") == [{"a": "1"}]
        assert c.rows(position) == before
        tag(w, "QUEUE UNSUBSCRIBE theirs FROM orders")
    assert [r["payload"] for r in c.rows("QUEUE TAKE orders FOR bi WHERE (true)")] == ["1", "2", "3"]


def test_a_slow_one_holds_up_nobody(c, qproxy, db):
    put(c, 1, 3)
    with qproxy.wire(db) as slow:
        slow.query("QUEUE TAKE orders FOR bi WAIT '60s' WHERE (pg_sleep(60) IS NOT NULL)")
        wait_for(lambda: c.rows("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"), what="its look")
        token, got = fits(c, "payload = '2'")
        assert got == ["2"]
        tag(c, "QUEUE DONE '%s'" % token)
        tag(c, "QUEUE SEEK bi ON orders TO BEGINNING")
        cancel(slow)
        assert [m.fields["C"] for m in slow.until() if m.type == "E"] == ["57014"]
    wait_for(lambda: not c.rows("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"), what="its end")
    assert fits(c, "true")[1] == ["1", "2", "3"]


def test_seek_during_a_look(c, qproxy, db):
    """What was looked at is another place by now: nothing is taken from there."""
    put(c, 1, 3)
    tag(c, "CREATE FUNCTION gate() RETURNS bool LANGUAGE plpgsql AS"
           " $$BEGIN PERFORM pg_advisory_xact_lock(7); RETURN true; END$$")
    tag(c, "SELECT pg_advisory_lock(7)")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '60s' WHERE (gate())")
        wait_for(lambda: c.rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), what="its look")
        tag(c, "QUEUE SEEK bi ON orders TO NOW")
        put(c, 4, 5)
        tag(c, "SELECT pg_advisory_unlock(7)")
        assert woken(w)["payload"] == "4"


def test_its_server_is_killed(c, qproxy, db):
    put(c, 1, 3)
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '60s' WHERE (payload = '2' OR pg_sleep(id) IS NULL)")
        wait_for(lambda: c.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                                " AND datname = current_database()"), what="its look")
        assert woken(w)["payload"] == "2"
    wait_for(lambda: c.rows("QUEUE SUBSCRIPTIONS orders")[0]["delivery"] is None
             or c.rows("QUEUE SUBSCRIPTIONS orders")[0]["error"], what="the end of its delivery")


def test_lost_events(c):
    put(c, 1, 3)
    tag(c, "UPDATE queue.subscriptions SET lost_at = now(), lost_id = 3")
    assert error(c, "QUEUE TAKE orders FOR bi WHERE (true)").sqlstate == "QB005"
    tag(c, "QUEUE SEEK bi ON orders TO BEGINNING")
    assert fits(c, "true")[1] == ["1", "2", "3"]


def test_slow_transactions(c, qproxy, db):
    """An event that commits late is not passed."""
    with qproxy.wire(db) as slow:
        tag(slow, "BEGIN")
        tag(slow, "QUEUE PUSH orders '1', '2'")
        put(c, 3, 4)
        assert drain(c, "payload IN ('1', '3')") == [["3"]]
        put(c, 5, 6)
        assert drain(c, "payload = '5'") == [["5"]]
        tag(slow, "COMMIT")
        put(c, 7, 7)
    assert drain(c, "payload IN ('1', '7')") == [["1", "7"]]


def test_isolation(c, qproxy, db):
    put(c, 1, 1)
    with qproxy.wire(db) as w:
        tag(w, "SET default_transaction_isolation = 'repeatable read'")
        refused = error(w, "QUEUE TAKE orders FOR bi WHERE (true)")
        assert refused.sqlstate == "0A000" and "READ COMMITTED" in refused.fields["H"]
        assert not re.search("event", refused.fields.get("D", ""))


@pytest.mark.parametrize("where", ["payload::text IN (SELECT t FROM wanted)",
                                   "EXISTS (SELECT FROM wanted WHERE wanted.t = payload::text)"])
def test_in_their_order(c, where):
    """The first events that fit, however the server would join them with what a subquery finds."""
    put(c, 1, 20)
    tag(c, "CREATE TABLE wanted AS SELECT n::text AS t FROM generate_series(1, 200) AS n")
    tag(c, "SET enable_hashjoin = off")
    tag(c, "SET enable_nestloop = off")
    assert drain(c, where, "LIMIT 5") == [[str(n) for n in range(i, i + 5)] for i in (1, 6, 11, 16)]


def test_a_lane_that_waits(c, qproxy, db):
    """Of a subscription that is read in parallel: what is there for one reader holds up nothing of the others."""
    tag(c, "QUEUE ALTER orders FOR bi SET (parallel = 2)")
    for n in range(8):
        tag(c, "QUEUE PUSH orders '%d' GROUP 'g%d'" % (n, n))
    first, second = drain(c, "true")
    for n in range(3):
        tag(c, "QUEUE PUSH orders '%d' GROUP 'g%s'" % (10 + n, second[0]))
    tag(c, "QUEUE PUSH orders '20' GROUP 'g%s'" % first[0])
    token, got = fits(c, "payload >= '10'", "MIN 2 WITHIN '1 h'")
    assert got == ["10", "11", "12"]
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi MIN 2 WITHIN '1 h' WAIT '60 s' WHERE (payload >= '10')")
        parked(w)
        tag(c, "QUEUE DONE '%s'" % token)
        tag(c, "QUEUE PUSH orders '13', '14' GROUP 'g%s'" % second[0])
        assert woken(w)["payload"] == "13"
        with qproxy.wire(db) as v:
            v.query("QUEUE TAKE orders FOR bi MIN 2 WITHIN '2 s' WAIT '60 s' WHERE (payload >= '10')")
            assert woken(v)["payload"] == "20"
