"""TAKE and POP with WHERE: the client's own SQL decides which jobs fit."""

import psycopg
import pytest

from pgwire import cancel, types
from proxy import wait_for
from queuetest import error, parked, q, shared, shared_db, shared_proxy, stats, tag, woken  # noqa: F401


def push(c, *payloads, options=""):
    return tag(c, "QUEUE PUSH mail %s %s" % (", ".join("'%s'" % p for p in payloads), options))


def ids(rows):
    return [int(row["id"]) for row in rows]


def fetches(proxy):
    (row,) = [r for r in proxy.console("SHOW QUEUES") if r["queue"] == "mail"]
    return int(row["probes"])


def wait_on(proxy, db, where, more="", verb="TAKE", user="app"):
    w = proxy.wire(db, user)
    w.query("QUEUE %s mail WAIT '30s' %s WHERE (%s)" % (verb, more, where))
    parked(w)
    return w


@pytest.fixture
def five(q):
    for n in range(5):
        tag(q, "QUEUE PUSH mail '{\"n\": %d}' PRIORITY %d HEADERS '{\"tenant\": \"t%d\"}'" % (n, n % 2, n % 2))
    return q


@pytest.mark.parametrize("where, found", [
    ("(payload->>'n' = '3')", [4]), ("(headers->>'tenant' = 't0') LIMIT 2", [1, 3]), ("(headers @> '{\"tenant\": \"t1\"}') LIMIT 9", [2, 4]),
    ("payload->>'n' = '3' OR id = 1", [4]), ("(id = 1) OR (id = 2) ;", [2]), ("id IN (SELECT 2)", [2]),
    ("id = 2 -- ) the end\n", [2]), ("(id = 2 /* ) */ AND ')' = $a$)$a$)", [2]), ("(false)", []), ("state = 'ready'", [2]),
    ("(headers->>'tenant' = 't1' AND payload->>'kind' IS DISTINCT FROM 'bulk') LIMIT 1 WAIT '30s'", [2]), ("(peek.id = 3) LIMIT 3 LEASE '1 min' AS 'w'", [3])])
def test_take(five, where, found):
    assert ids(five.rows("QUEUE TAKE mail WHERE %s" % where)) == found
    assert stats(five)["leased"] == len(found)


@pytest.mark.parametrize("where", ["payload::text IN (SELECT t FROM wanted)", "EXISTS (SELECT FROM wanted WHERE t = payload::text)"])
@pytest.mark.parametrize("verb", ["TAKE", "POP"])
def test_in_the_order_of_the_queue(q, verb, where):
    """However the server would join them with what a subquery finds."""
    tag(q, "QUEUE PUSH mail (payload) SELECT to_jsonb(n) FROM generate_series(1, 99) AS n")
    tag(q, "CREATE TABLE wanted AS SELECT n::text AS t FROM generate_series(1, 200) AS n")
    tag(q, "SET enable_hashjoin = off")
    tag(q, "SET enable_nestloop = off")
    assert ids(q.rows("QUEUE %s mail LIMIT 5 WHERE (%s)" % (verb, where))) == [1, 2, 3, 4, 5]


def test_the_lease_is_like_any_other(five):
    (job,) = five.rows("QUEUE TAKE mail LEASE '1 min' AS 'w1' WHERE (payload->>'n' = '3')")
    assert (job["queue"], job["attempt"], job["priority"]) == ("mail", "1", "1")
    (row,) = five.rows("QUEUE PEEK mail STATE leased")
    assert row["worker"] == "w1" and row["id"] == "4"
    assert tag(five, "QUEUE DONE 4 ON mail") == "UPDATE 1"
    assert ids(five.rows("QUEUE POP mail LIMIT 2 WHERE (id <> 1)")) == [2, 3]
    assert stats(five)["leased"] == 0


@pytest.mark.parametrize("where, state", [
    ("(id = 1) ) --", "42601"), ("(id = 1", "42601"), ("id = 1)", "42601"), ("", "42601"), ("()", "42601"),
    ("(true) ) ; DROP TABLE x", "42601"), ("(true) ; DROP TABLE x", "0A000"), ("(true); SELECT 1", "0A000"), ("(id = 1) BOGUS 1", "42601"), ("(1)", "42804"),
    ("(nothing = 1)", "42703"), ("(1/0 = id)", "22012"), ("(token = 'x')", "42703"), ("(own = 'x')", "42703"), ("(s.q = 1)", "42P01"), ("(count(*) > 1)", "42803"),
    ("(id = 1 UNION SELECT 2)", "42601"), ("('a' = 'b) ; --", "42601"), ("(id = (SELECT count(*) FROM queue.nothing))", "42P01")])
def test_what_is_none(five, where, state):
    for how in ("", "WAIT '30s'"):
        assert error(five, "QUEUE TAKE mail %s WHERE %s" % (how, where)).sqlstate == state
    assert stats(five)["leased"] == 0 and stats(five)["ready"] == 5


def test_parameters(five, qproxy, db):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        for prepare in (False, True, True):
            rows = conn.execute("QUEUE TAKE mail LIMIT %s WHERE (id = %s AND payload->>'n' = %s)", ("2", 4, "3"), prepare=prepare).fetchall()
            assert [row[0] for row in rows] == [4]
            conn.execute("QUEUE RELEASE 4 ON mail")
        assert conn.execute("QUEUE TAKE mail WHERE (payload->>'n' = %s)", ("4) OR (true",)).fetchall() == []
        assert conn.execute("QUEUE TAKE mail WHERE (payload->>'n' = %s)", ("0' OR 'a' = 'a",)).fetchall() == []
        cur = conn.cursor(binary=True)
        cur.execute("QUEUE TAKE mail WHERE (id = ANY(%s))", ([2, 1],))
        assert cur.fetchone()[0] == 2 and cur.description[4].type_code == 3802


def test_described(five, qproxy, db):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        pg = conn.pgconn
        done = pg.prepare(b"s", b"QUEUE TAKE mail LIMIT $2 WHERE (id = $1 AND $3 < pushed_at)")
        assert done.status == psycopg.pq.ExecStatus.COMMAND_OK, done.error_message
        got = pg.describe_prepared(b"s")
        assert [got.param_type(i) for i in range(got.nparams)] == [20, 25, 1184]
        assert [got.fname(i) for i in range(got.nfields)][:3] == [b"id", b"token", b"queue"]
        ran = pg.exec_prepared(b"s", [(4).to_bytes(8, "big"), b"1", b"2000-01-01"], [1, 0, 0])
        assert ran.get_value(0, 0) == b"4", ran.error_message
        bad = pg.prepare(b"t", b"QUEUE TAKE mail WHERE (nothing = $1)")
        assert bad.status == psycopg.pq.ExecStatus.COMMAND_OK
        assert pg.describe_prepared(b"t").error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42703"


@pytest.mark.parametrize("kind, oid", [("text", 25), ("bytea", 17)])
def test_types(qproxy, db, kind, oid):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        conn.execute("QUEUE CREATE bare WITH (payload = %s)" % kind)
        conn.execute("QUEUE PUSH bare 'a', 'b'")
        cur = conn.execute("QUEUE TAKE bare WHERE (payload = %s)", ("b",))
        assert cur.fetchone()[0] == 2 and cur.description[4].type_code == oid


def test_in_a_block(five):
    assert types(five.simple("BEGIN")) == "CZ"
    assert ids(five.rows("QUEUE TAKE mail WHERE (id = 3)")) == [3]
    five.simple("SAVEPOINT a")
    assert ids(five.rows("QUEUE TAKE mail WHERE (id = 4)")) == [4]
    assert error(five, "QUEUE TAKE mail WAIT '1s' WHERE (id = 3)").sqlstate == "25001"
    five.simple("ROLLBACK")
    wait_for(lambda: stats(five)["leased"] == 0, "that the jobs are given back")


def test_with_the_clients_search_path_and_role(five, direct, db, qproxy):
    direct.execute("CREATE SCHEMA mine; CREATE FUNCTION mine.fits(n int8) RETURNS bool LANGUAGE sql AS 'SELECT n = 3';"
                   "CREATE TABLE mine.secret AS SELECT 1 AS n; GRANT USAGE ON SCHEMA mine TO PUBLIC; "
                   "CREATE TABLE mine.seen (id int8, owner name); ALTER TABLE mine.seen ENABLE ROW LEVEL SECURITY; "
                   "CREATE POLICY p ON mine.seen USING (owner = current_user); GRANT SELECT ON mine.seen TO app; "
                   "INSERT INTO mine.seen VALUES (2, 'app'), (4, 'postgres')")
    assert error(five, "QUEUE TAKE mail WHERE (fits(id))").sqlstate == "42883"
    five.simple("SET search_path = mine")
    assert ids(five.rows("QUEUE TAKE mail WHERE (fits(id))")) == [3]
    assert error(five, "QUEUE TAKE mail WHERE (EXISTS (SELECT FROM secret))").sqlstate == "42501"
    assert ids(five.rows("QUEUE TAKE mail LIMIT 9 WHERE (id IN (SELECT id FROM seen))")) == [2]
    with qproxy.wire(db, "other") as bob:
        assert error(bob, "QUEUE TAKE mail WHERE (true)").sqlstate == "42501"


def test_the_session_is_cleaned(five, qproxy, db):
    """What a condition leaves in a session is nobody else's."""
    assert five.rows("QUEUE TAKE mail WHERE (set_config('my.x', '1', false) = '1' AND pg_try_advisory_lock(77) AND id = 2)")
    others = [qproxy.wire(db) for _ in range(3)]
    for c in others + [five]:
        (row,) = c.rows("SELECT coalesce(current_setting('my.x', true), '') AS x")
        assert row["x"] == ""
    wait_for(lambda: not five.rows("SELECT 1 AS n FROM pg_locks WHERE locktype = 'advisory' AND objid = 77"), "that nobody has the lock")


def test_effects_are_kept_when_nothing_fits(five, direct):
    direct.execute("CREATE TABLE log (n int8); GRANT ALL ON log TO PUBLIC; CREATE FUNCTION logs(n int8) RETURNS bool LANGUAGE plpgsql AS "
                   "'BEGIN INSERT INTO log VALUES (n); RETURN false; END'")
    assert five.rows("QUEUE TAKE mail WHERE (logs(id))") == []
    assert sorted(n for (n,) in direct.execute("SELECT n FROM log")) == [1, 2, 3, 4, 5]


def test_a_long_one(five):
    assert ids(five.rows("QUEUE TAKE mail WHERE (payload->>'n' = '3' AND '%s' <> '')" % ("x" * 1000000))) == [4]


def test_a_limited_queue(q):
    tag(q, "QUEUE ALTER mail SET (max_running = 1)")
    push(q, "1", "2", "3")
    (job,) = q.rows("QUEUE TAKE mail LIMIT 5 WHERE (id > 1)")
    assert job["id"] == "2" and q.rows("QUEUE TAKE mail WHERE (id > 1)") == []
    tag(q, "QUEUE DONE '%s'" % job["token"])
    assert ids(q.rows("QUEUE TAKE mail WHERE (id > 1)")) == [3]


# --- waiting ---


def test_a_push_that_fits_wakes_the_one_that_it_fits(q, qproxy, db):
    a, b, plain = wait_on(qproxy, db, "payload = '1'"), wait_on(qproxy, db, "payload = '2'"), qproxy.wire(db)
    push(q, "2")
    assert woken(b)["payload"] == "2"
    push(q, "3")
    assert ids(plain.rows("QUEUE TAKE mail")) == [2]
    push(q, "1")
    assert woken(a)["payload"] == "1"


def test_what_does_not_fit_goes_to_the_next(q, qproxy, db):
    a = wait_on(qproxy, db, "payload = '1'")
    plain = qproxy.wire(db)
    plain.query("QUEUE TAKE mail WAIT '30s'")
    parked(plain)
    push(q, "2")
    assert woken(plain)["payload"] == "2"
    push(q, "1")
    assert woken(a)["payload"] == "1"


def test_the_longest_waiter_first(q, qproxy, db):
    a = wait_on(qproxy, db, "payload = '1'")
    plain = qproxy.wire(db)
    plain.query("QUEUE TAKE mail WAIT '30s'")
    parked(plain)
    push(q, "1")
    assert woken(a)["payload"] == "1"
    push(q, "1")
    assert woken(plain)["payload"] == "1"


def test_a_delayed_job(q, qproxy, db):
    a = wait_on(qproxy, db, "payload = '1'")
    push(q, "1", options="DELAY '200ms'")
    assert woken(a)["payload"] == "1"


def test_one_that_was_given_back(q, qproxy, db):
    push(q, "1", "2")
    (job,) = q.rows("QUEUE TAKE mail WHERE (payload = '2')")
    a = wait_on(qproxy, db, "payload = '2'")
    tag(q, "QUEUE RELEASE '%s'" % job["token"])
    assert woken(a)["payload"] == "2"


def test_pushed_past_the_proxy(q, qproxy, db, shared):
    a = wait_on(qproxy, db, "payload = '1'")
    shared.direct.execute("SELECT queue.push('mail', '1'::jsonb)")
    assert woken(a)["payload"] == "1"


def test_at_another_proxy(q, qproxy, db, qbouncer):
    other = qbouncer(queue_heartbeat="20ms", queue_rescan="1h")
    waits = [wait_on(p, db, "payload = '%d'" % n) for n, p in enumerate((qproxy, other))]
    with other.wire(db) as c:
        push(c, "0", "1")
    assert [woken(w)["payload"] for w in waits] == ["0", "1"]


def test_equal_ones_are_served_together(q, qproxy, db):
    waits = [wait_on(qproxy, db, "payload > '5'", verb="POP" if n % 2 else "TAKE") for n in range(20)]
    push(q, *[str(n) for n in range(26)])
    assert sorted(int(woken(w)["payload"]) for w in waits) == list(range(6, 26))
    assert stats(q)["ready"] == 6


def test_many_different_ones_and_pushes_that_fit_nobody(q, qproxy, db):
    waits = [wait_on(qproxy, db, "payload = '%d'" % n) for n in range(40)]
    before = fetches(qproxy)
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        for n in range(500):
            conn.execute("QUEUE PUSH mail '-1'")
    # each has looked some times, not 500
    assert fetches(qproxy) - before < 40 * 100
    push(q, *[str(n) for n in reversed(range(40))])
    assert [int(woken(w)["payload"]) for w in waits] == list(range(40))


def test_the_end_of_a_wait(q, qproxy, db):
    push(q, "1")
    assert q.rows("QUEUE TAKE mail WAIT '100ms' WHERE (payload = '2')") == []
    assert q.rows("QUEUE TAKE mail WAIT '300ms' WHERE (pg_sleep(60) IS NULL)") == []
    with qproxy.wire(db) as c:
        c.query("QUEUE TAKE mail WHERE (pg_sleep(60) IS NULL)")
        wait_for(lambda: q.rows("SELECT 1 AS x FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "that it sleeps")
        cancel(c)
        assert c.until("Z")[0].fields["C"] == "57014"
    wait_for(lambda: not q.rows("SELECT 1 AS x FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "that nobody sleeps")
    assert stats(q)["ready"] == 1


def test_statement_timeout(q, qproxy, db):
    push(q, "1")
    with qproxy.wire(db) as c:
        c.simple("SET statement_timeout = '100ms'")
        assert error(c, "QUEUE TAKE mail WHERE (pg_sleep(60) IS NULL)").sqlstate == "57014"


def test_who_leaves_stops_its_condition(q, qproxy, db):
    push(q, "1")
    with qproxy.wire(db) as c:
        c.query("QUEUE TAKE mail WAIT '60s' WHERE (pg_sleep(60) IS NULL)")
        wait_for(lambda: q.rows("SELECT 1 AS x FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "that it sleeps")
    wait_for(lambda: not q.rows("SELECT 1 AS x FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "that nobody sleeps")
    assert ids(q.rows("QUEUE TAKE mail")) == [1]


def test_a_slow_one_holds_up_nobody(q, qproxy, db):
    push(q, "0")
    slow = qproxy.wire(db)
    slow.query("QUEUE TAKE mail WAIT '60s' WHERE (payload = '0' AND pg_sleep(60) IS NULL)")
    wait_for(lambda: q.rows("SELECT 1 AS x FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "that it sleeps")
    fast = wait_on(qproxy, db, "payload = '2'")
    assert ids(q.rows("QUEUE TAKE mail")) == [1]
    push(q, "2")
    assert woken(fast)["payload"] == "2"


def test_an_error_while_it_waits(q, qproxy, db):
    w = wait_on(qproxy, db, "1 / (payload::text::int - 5) = 1")
    push(q, "5")
    assert w.until("Z")[0].fields["C"] == "22012"
    assert ids(q.rows("QUEUE TAKE mail")) == [1]


def test_the_bound_is_told(q, qproxy, db):
    tag(q, "QUEUE PUSH mail SELECT '0'::jsonb FROM generate_series(1, 10000)")
    push(q, "1")
    got = q.query("QUEUE TAKE mail WHERE (payload = '1')").until("Z", skip="")
    (notice,) = [m for m in got if m.type == "N"]
    assert "10000" in notice.fields["D"] and not [m for m in got if m.type == "D"]
    tag(q, "QUEUE PUSH mail '1' PRIORITY 1")
    assert len(q.rows("QUEUE TAKE mail WHERE (payload = '1')")) == 1
    w = wait_on(qproxy, db, "payload = '1'")
    tag(q, "QUEUE PUSH mail '1'")
    assert woken(w)["payload"] == "1"


# --- what happens beside it ---


def test_under_the_role_of_set_role(five, direct):
    direct.execute("GRANT other TO app")
    five.simple("SET ROLE other")
    assert error(five, "QUEUE TAKE mail WHERE (true)").sqlstate == "42501"
    five.simple("RESET ROLE")
    tag(five, "QUEUE GRANT TAKE ON mail TO other")
    five.simple("SET ROLE other")
    assert ids(five.rows("QUEUE TAKE mail WHERE (current_user = 'other')")) == [2]


def test_strings_are_read_as_the_client_means_them(five):
    five.simple("SET standard_conforming_strings = off")
    assert ids(five.rows("QUEUE TAKE mail WHERE ('a\\') OR (true' = 'x' OR id = 3)")) == [3]


def test_serializable(five):
    five.simple("SET default_transaction_isolation = 'serializable'")
    assert ids(five.rows("QUEUE TAKE mail LIMIT 2 WHERE (id > 2)")) == [4, 3]


def test_read_only(five):
    five.simple("SET default_transaction_read_only = on")
    assert error(five, "QUEUE TAKE mail WHERE (true)").sqlstate == "25006"


def test_hold(five, qproxy, db):
    with qproxy.wire(db) as c:
        assert ids(c.rows("QUEUE TAKE mail HOLD '1 h' WHERE (id = 3)")) == [3]
        assert stats(five)["leased"] == 1
    wait_for(lambda: stats(five)["leased"] == 0, "that it is given back")


def test_groups_in_order(q):
    for n in range(3):
        tag(q, "QUEUE PUSH mail '%d' GROUP 'g'" % n)
    assert q.rows("QUEUE TAKE mail WHERE (payload > '0')") == []
    (job,) = q.rows("QUEUE TAKE mail LIMIT 5 WHERE (\"group\" = 'g')")
    assert job["payload"] == "0"
    tag(q, "QUEUE DONE '%s'" % job["token"])
    assert [j["payload"] for j in q.rows("QUEUE TAKE mail WHERE (payload > '0')")] == ["1"]


def test_several_queues(q, qproxy, db):
    tag(q, "QUEUE CREATE letters")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail, letters WAIT '30s' WHERE (payload = '2')")
        parked(w)
        tag(q, "QUEUE PUSH mail '1'")
        tag(q, "QUEUE PUSH letters '1', '2'")
        assert woken(w)["queue"] == "letters"
    assert error(q, "QUEUE TAKE mail, none WHERE (true)").sqlstate == "42P01"


def test_a_server_that_dies_while_it_looks(q, qproxy, db, shared):
    """Nothing is lost, nobody works twice, and who may wait waits on."""
    push(q, "0")
    tag(q, "QUEUE PUSH mail '1' DELAY '1 h'")
    w = qproxy.wire(db)
    w.query("QUEUE TAKE mail WAIT '30s' WHERE (payload = '1' OR pg_sleep(60) IS NULL)")
    pid = wait_for(lambda: q.rows("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), "that it sleeps")[0]["pid"]
    assert ids(q.rows("QUEUE TAKE mail")) == [1]
    shared.direct.execute("SELECT pg_terminate_backend(%s)", (pid,))
    tag(q, "QUEUE ALTER JOB 2 ON mail SET (at = 'now')")
    assert woken(w)["payload"] == "1"


def test_a_queue_that_is_dropped_and_made_anew(q, qproxy, db):
    push(q, *"0123456789")
    w = wait_on(qproxy, db, "payload = '11'")
    tag(q, "QUEUE DROP mail")
    assert w.until("Z")[0].fields["C"] == "42P01"
    tag(q, "QUEUE CREATE mail")
    w = wait_on(qproxy, db, "payload = '11'")
    push(q, "11")
    assert woken(w)["payload"] == "11"


def test_under_a_snapshot_that_is_held(q, qproxy, db, shared):
    """What was taken is read again by nobody who looks from the first new place on."""
    shared.direct.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    shared.direct.execute("SELECT count(*) FROM queue.q_mail")
    for n in range(30):
        w = wait_on(qproxy, db, "payload = '%d'" % n)
        push(q, str(n))
        assert woken(w)["payload"] == str(n)
    shared.direct.execute("ROLLBACK")


def test_unlike_in_a_rollback(q, qproxy, db):
    """A job whose lock is let go fits who waits."""
    push(q, "1")
    with qproxy.wire(db) as other:
        other.simple("BEGIN")
        tag(other, "QUEUE CANCEL 1 ON mail")
        w = qproxy.wire(db)
        w.query("QUEUE TAKE mail WAIT '30s' WHERE (payload = '1')")
        parked(w)
        other.simple("ROLLBACK")
        assert woken(w)["payload"] == "1"


def test_of_a_prepared_statement_after_a_setting_has_changed(five, qproxy, db):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as conn:
        conn.execute("QUEUE TAKE mail WHERE (id = %s AND '\\' = 'x')", (3,), prepare=True)
        conn.execute("SET standard_conforming_strings = off")
        with pytest.raises(psycopg.Error) as e:
            conn.execute("QUEUE TAKE mail WHERE (id = %s AND '\\' = 'x')", (3,), prepare=True)
        assert e.value.sqlstate == "0A000"


def test_a_job_that_is_changed_where_it_is(q, qproxy, db):
    push(q, "1", "2", "3")
    assert q.rows("QUEUE TAKE mail WHERE (payload = '9')") == []        # how far it has looked is known
    w = wait_on(qproxy, db, "payload = '9'")
    tag(q, "QUEUE ALTER JOB 1 ON mail SET (payload = '9')")
    assert woken(w)["id"] == "1"
    w = wait_on(qproxy, db, "priority = 7")
    tag(q, "QUEUE ALTER JOB 2 ON mail SET (priority = 7)")
    assert woken(w)["id"] == "2"


def test_a_pause_that_ends(q, qproxy, db):
    push(q, "1", "2")
    assert q.rows("QUEUE TAKE mail WHERE (payload = '9')") == []
    tag(q, "QUEUE PAUSE mail")
    w = wait_on(qproxy, db, "payload = '1'")
    tag(q, "QUEUE RESUME mail")
    assert woken(w)["payload"] == "1"


def test_room_that_is_made(q, qproxy, db):
    tag(q, "QUEUE ALTER mail SET (max_running = 1)")
    push(q, "1", "2")
    (job,) = q.rows("QUEUE TAKE mail")
    w = wait_on(qproxy, db, "payload = '2'")
    tag(q, "QUEUE DONE '%s'" % job["token"])
    assert woken(w)["payload"] == "2"
    w = wait_on(qproxy, db, "payload = '3'")
    push(q, "3")
    tag(q, "QUEUE ALTER mail RESET (max_running)")
    assert woken(w)["payload"] == "3"


def test_a_look_that_takes_long_does_not_hold_up_other_conditions(qbouncer, db):
    """They look one after the other, but nobody waits for one whose condition sleeps."""
    proxy = qbouncer(queue_heartbeat="50ms", queue_rescan="1h")
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        slow = wait_on(proxy, db, "(SELECT pg_sleep(60) WHERE id > 0) IS NULL")
        w = wait_on(proxy, db, "payload->>'n' = '1'")
        proxy.wait_show("QUEUES", lambda r: r["queue"] == "mail" and r["system"] == "up")
        push(c, '{"n": 1}')
        assert woken(w)["id"] == "1"
        slow.close()
        w.close()
