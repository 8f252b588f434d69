"""Leases that follow their connection (HOLD), and what becomes of the leases of a proxy that is gone."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import (  # noqa: F401
    come_back, error, parked, peek, q, stats, tag, take, woken)


@pytest.fixture
def qproxy(qbouncer):
    return qbouncer(queue_heartbeat="20ms", queue_hold_lease="4s", queue_orphan_grace="3s", queue_rescan="1h",
                    queue_safety_poll="1h", server_login_retry="1s")


def owner(c, queue="mail"):
    return [r["proxy"] for r in c.rows("SELECT proxy FROM queue.q_%s ORDER BY id" % queue)]


def system_is_up(proxy, start=0):
    """Takes write the proxy's number from now on."""
    return proxy.wait_log("system session is up", start)


# --- HOLD -----------------------------------------------------------------------------------------


def test_hold_is_renewed(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    with qproxy.wire(db) as w:
        jobs = w.rows("QUEUE TAKE mail LIMIT 3 HOLD")
        first = jobs[0]["lease_until"]
        left = q.rows("SELECT extract(epoch FROM '%s' - clock_timestamp()) AS s" % first)[0]["s"]
        assert float(left) <= 4
        # a longer end is not taken back
        tag(w, "QUEUE EXTEND %s LEASE '1 hour'" % jobs[2]["id"])
        far = peek(q)[2]["lease_until"]
        assert {r["policy"] for r in qproxy.console("SHOW LEASES")} == {"hold"}
        for n in range(2):
            wait_for(lambda: q.rows("SELECT min(lease_until) > '%s' AS renewed FROM queue.q_mail" % first)[0]["renewed"] == "t",
                     "renewal %d" % n)
            first = q.rows("SELECT min(lease_until) AS at FROM queue.q_mail")[0]["at"]
        assert peek(q)[2]["lease_until"] == far
        assert tag(w, "QUEUE DONE '%s', %s, %s" % (jobs[0]["token"], jobs[1]["id"], jobs[2]["id"])) == "UPDATE 3"


@pytest.mark.parametrize("policy", ["auto", "keep"])
@pytest.mark.parametrize("how", ["terminate", "close", "reset", "kill"])
def test_hold_ends_with_its_connection(qproxy, db, q, policy, how):
    tag(q, "QUEUE ALTER mail SET (on_disconnect = %s)" % policy)
    tag(q, "QUEUE PUSH mail '1'")
    w, v = qproxy.wire(db), qproxy.wire(db)
    job = take(w, "QUEUE TAKE mail HOLD '1 day'")
    v.query("QUEUE TAKE mail WAIT '30s'")
    parked(v)
    if how == "kill":
        (row,) = qproxy.console("SHOW LEASES")
        qproxy.console("KILL_CLIENT %s" % row["id"])
    else:
        getattr(w, how)()
    again = woken(v)
    assert again["id"] == job["id"]
    if how in ("close", "reset"):   # a goodbye, ours too, is no failed attempt
        assert again["attempt"] == "2" and peek(q)[0]["error"] == "worker disconnected"
    else:
        assert again["attempt"] == "1" and peek(q)[0]["error"] is None
    assert tag(v, "QUEUE DONE %s" % again["id"]) == "UPDATE 1"
    w.close()
    v.close()


def test_hold_for_at_most(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as w:
        job = take(w, "QUEUE TAKE mail HOLD '1500ms'")
        again = take(q, "QUEUE TAKE mail WAIT '30s'")
        held = q.rows("SELECT clock_timestamp() - '%s'::timestamptz > interval '0' AS long" % job["lease_until"])
        assert held[0]["long"] == "t"
        assert again["attempt"] == "2" and peek(q)[0]["error"] == "lease expired"
        assert error(w, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB001"


def test_hold_of_a_cancelled_job(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as w:
        job = take(w, "QUEUE TAKE mail HOLD")
        tag(q, "QUEUE CANCEL '%s'" % job["token"])
        # its lease is not renewed any more: it goes away
        wait_for(lambda: q.rows("QUEUE TAKE mail") == [] and peek(q) == [], "the end of the lease")
        for sql in ("QUEUE DONE %s" % job["id"], "QUEUE EXTEND '%s'" % job["token"], "QUEUE RELEASE %s" % job["id"]):
            e = error(w, sql)
            assert e.sqlstate == "QB002" and "cancelled" in e.message, e.fields
        tag(w, "BEGIN; CREATE TABLE work ()")
        assert error(w, "QUEUE DONE %s" % job["id"]).sqlstate == "QB002"
        assert error(w, "SELECT 1").sqlstate == "25P02"
        tag(w, "ROLLBACK")


def test_hold_ends_with_its_transaction(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as w:
        tag(w, "BEGIN")
        take(w, "QUEUE TAKE mail HOLD")
        tag(w, "ROLLBACK")
        assert come_back(q)["attempt"] == "2"


@pytest.mark.parametrize("sql, sqlstate", [
    ("QUEUE TAKE mail HOLD LEASE '1s'", "42601"), ("QUEUE TAKE mail HOLD '-1s'", "22023"),
    ("QUEUE TAKE mail HOLD '0'", "22023"), ("QUEUE TAKE mail HOLD 'soon'", "22007"), ("QUEUE POP mail HOLD", "42601")])
def test_hold_refused(q, sql, sqlstate):
    assert error(q, sql).sqlstate == sqlstate


def test_hold_bound(q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    for value in ("30", None):
        q.hold().parse("", "QUEUE TAKE mail HOLD $1 WAIT '1s'").bind("", "", [value]).execute().sync().push()
        assert [m.type for m in q.until("Z")] == list("12DCZ")


def test_hold_through_an_outage(qproxy, db, q, cluster):
    """A renewal that fails is made again."""
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as w:
        job = take(w, "QUEUE TAKE mail HOLD")
        cluster.psql("UPDATE pg_database SET datallowconn = false WHERE datname = '%s'; "
                     "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'" % (db, db))
        qproxy.wait_log("held jobs could not be renewed")
        cluster.psql("UPDATE pg_database SET datallowconn = true WHERE datname = '%s'" % db)
        with psycopg.connect(cluster.dsn(db), autocommit=True) as direct:
            wait_for(lambda: direct.execute("SELECT lease_until > clock_timestamp() AND lease_until > %s FROM queue.q_mail",
                                            (job["lease_until"],)).fetchone()[0], "the renewal")
        assert tag(w, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"


# --- a proxy that is gone -------------------------------------------------------------------------


def two(qbouncer, **more):
    settings = dict(queue_heartbeat="20ms", queue_orphan_grace="1s", queue_rescan="1h", queue_safety_poll="1h", server_login_retry="1s")
    settings.update(more)
    return qbouncer(**settings), qbouncer(**settings)


@pytest.mark.parametrize("policy", ["auto", "keep", "hold"])
def test_proxy_is_killed(qbouncer, db, policy):
    """Another one is there: it gives back what ended with the connections of the dead one."""
    one, other = two(qbouncer)
    w, v, u = one.wire(db), other.wire(db), other.wire(db)
    tag(v, "QUEUE CREATE mail WITH (on_disconnect = %s)" % policy.replace("hold", "auto"))
    v.query("QUEUE TAKE mail WAIT '60s'")
    parked(v)
    assert w.rows("QUEUE TAKE mail") == []
    with one.wire(db) as x:
        x.query("QUEUE TAKE mail WAIT '60s'")   # makes the session
        parked(x)
        system_is_up(one)
    wait_for(lambda: not one.console("SHOW WAITERS"), "that it has left")
    tag(u, "QUEUE PUSH mail '1', '2'")
    assert woken(v)["attempt"] == "1"
    # it waits: a look of the one that has left may have the job and give it back
    job = take(w, "QUEUE TAKE mail WAIT '60s'" + (" HOLD" if policy == "hold" else ""))
    assert (owner(u)[1] is None) == (policy == "keep")
    mine = owner(u)[0]
    assert mine != owner(u)[1] or mine is None
    v.query("QUEUE TAKE mail WAIT '60s'")
    parked(v)
    other.wait_log("another proxy has come")    # who comes and is gone between two looks is not told of
    one.kill()
    if policy == "keep":
        other.wait_log("another proxy is gone")
        parked(v)
        assert stats(u)["leased"] == 2
        assert tag(u, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    else:
        again = woken(v)
        assert (again["id"], again["attempt"]) == (job["id"], "2")
        assert error(u, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB001"
        assert tag(v, "QUEUE DONE %s" % again["id"]) == "UPDATE 1"
    for c in (w, v, u):
        c.close()


def test_single_proxy_comes_back(qbouncer, db):
    proxy = qbouncer(queue_orphan_grace="1s", queue_heartbeat="20ms", queue_rescan="1h")
    w = proxy.wire(db)
    tag(w, "QUEUE CREATE mail")
    w.query("QUEUE TAKE mail WAIT '1ms'")
    w.until("Z")
    system_is_up(proxy)
    tag(w, "QUEUE PUSH mail '1'")
    job = take(w)
    proxy.kill()
    w.close()
    again = qbouncer(queue_orphan_grace="1s", queue_heartbeat="20ms", queue_rescan="1h")
    with again.wire(db) as v:
        got = take(v, "QUEUE TAKE mail WAIT '60s'")
        assert (got["id"], got["attempt"]) == (job["id"], "2")
        assert peek(v)[0]["error"] == "worker disconnected"


def record_steps(direct, ms="$5"):
    """Gives a function that gives the looks for leases of proxies that are gone: these, after, rest."""
    direct.execute("""
        CREATE TABLE public.steps (nth serial, these text[], after int4, rest text[]);
        GRANT ALL ON public.steps, public.steps_nth_seq TO PUBLIC;
        ALTER FUNCTION queue._orphans_step RENAME TO _orphans_of_step;
        CREATE FUNCTION queue._orphans_step(here int4[], used text[], these text[], after int4, ms int4, rest text[])
        RETURNS TABLE (queue text, next int4, met int4) LANGUAGE sql AS 'INSERT INTO public.steps (these, after, rest) VALUES ($3, $4, $6);
            SELECT * FROM queue._orphans_of_step($1, $2, $3, $4, %s, $6)'""" % ms)
    return lambda: [tuple(r) for r in direct.execute("SELECT these, after, rest FROM public.steps ORDER BY nth").fetchall()]


def test_a_look_in_steps(qbouncer, db, direct):
    """With thousands of queues a look for leases of proxies that are gone takes seconds: it is made in steps. For a queue that a
    role has not used before it is made in no other one."""
    proxy = qbouncer(queue_orphan_grace="1s", queue_heartbeat="20ms", queue_rescan="1h")
    w = proxy.wire(db)
    for name in ("a", "b", "c", "mail"):
        tag(w, "QUEUE CREATE %s" % name)
        tag(w, "QUEUE PUSH %s '1'" % name)
    w.query("QUEUE TAKE mail WAIT '1ms'")
    w.until("Z")
    system_is_up(proxy)
    tag(w, "QUEUE PUSH mail '2'")
    take(w)
    proxy.kill()
    w.close()
    steps = record_steps(direct, -1)
    again = qbouncer(queue_orphan_grace="1s", queue_heartbeat="20ms", queue_rescan="1h")
    with again.wire(db) as v:
        assert take(v, "QUEUE TAKE mail WAIT '60s'")["attempt"] in ("1", "2")
        assert take(v, "QUEUE TAKE mail WAIT '60s'")["attempt"] in ("1", "2")
        wait_for(lambda: any(step[:2] == (None, 3) for step in steps()), "the steps")
        assert any(step == (None, 0, ["mail"]) for step in steps())     # for which somebody waits
        looks = [after for these, after, _ in steps() if these is None]
        assert looks[0] == 0 and [after for after in looks if after > 0] == [1, 2, 3]   # negative: those that had rows, before
        take(v, "QUEUE TAKE b")
        wait_for(lambda: any(these == ["b"] for these, _, _ in steps()), "a look into the new one")
        assert [after for these, after, _ in steps() if these is None] == looks


@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])
def test_a_look_beside_a_queue_that_is_locked(qbouncer, db, direct, cluster, mode):
    """Others have theirs back, and it has its own when it is free; nothing but that is looked at again."""
    one, other = two(qbouncer, queue_orphan_grace="1s")
    with other.wire(db) as v, one.wire(db) as w, psycopg.connect(cluster.dsn(db)) as conn:
        for name in ("a", "b", "mail"):
            tag(v, "QUEUE CREATE %s" % name)
            tag(v, "QUEUE PUSH %s '1'" % name)
        assert [take(w, "QUEUE TAKE %s" % name)["attempt"] for name in ("a", "b", "mail")] == ["1"] * 3
        wait_for(lambda: None not in [n for name in ("a", "b", "mail") for n in owner(v, name)], "the number of the proxy")
        v.query("QUEUE TAKE mail WAIT '60s'")
        parked(v)
        steps = record_steps(direct)
        conn.execute("LOCK TABLE queue.q_b IN %s MODE" % mode)
        one.kill()
        assert woken(v)["attempt"] == "2"
        assert wait_for(lambda: v.rows("QUEUE TAKE a"), "the one in front of it")[0]["attempt"] == "2"
        wait_for(lambda: sum(rest == ["b"] and these is not None for these, _, rest in steps()) > 1, "looks at what is left")
        conn.rollback()
        assert wait_for(lambda: v.rows("QUEUE TAKE b"), "the one that was locked")[0]["attempt"] == "2"
        assert sum(these is None for these, _, _ in steps()) <= 3   # and no more, however long it is locked


def test_a_look_goes_on_where_it_has_failed(qbouncer, db, direct):
    """Its session was ended: what it has been to is not looked at again."""
    one, other = two(qbouncer, queue_orphan_grace="1s")
    with other.wire(db) as v, one.wire(db) as w:
        for name in ("a", "b", "mail"):
            tag(v, "QUEUE CREATE %s" % name)
            tag(v, "QUEUE PUSH %s '1'" % name)
            assert take(w, "QUEUE TAKE %s" % name)["attempt"] == "1"
        wait_for(lambda: None not in [n for name in ("a", "b", "mail") for n in owner(v, name)], "the number of the proxy")
        steps = record_steps(direct, -1)
        # where it has been told of once, a sequence is not rolled back
        direct.execute("""
            CREATE SEQUENCE public.fails;
            GRANT ALL ON public.fails TO PUBLIC;
            CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('public.fails') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
                RETURN NEW; END $$;
            CREATE TRIGGER fails BEFORE UPDATE ON queue.q_b FOR EACH ROW EXECUTE FUNCTION public.fail()""")
        v.query("QUEUE TAKE b WAIT '60s'")
        one.kill()
        assert woken(v)["attempt"] == "2"
        assert wait_for(lambda: v.rows("QUEUE TAKE mail"), "the one behind it")[0]["attempt"] == "2"
        wait_for(lambda: any(step[:2] == (None, 2) for step in steps()), "the end of the look")
        assert [after for these, after, _ in steps() if these is None].count(0) <= 2


def test_goodbye_and_then_the_proxy(qbouncer, db):
    """What a worker left leased when it said goodbye stays so when its proxy is gone."""
    one, other = two(qbouncer)
    v = other.wire(db)
    tag(v, "QUEUE CREATE mail")
    tag(v, "QUEUE PUSH mail '1', '2'")
    w, x = one.wire(db), one.wire(db)
    a, b = take(w), take(x)
    wait_for(lambda: None not in owner(v), "the number of the proxy")   # also what was taken before the session was up
    w.terminate()
    wait_for(lambda: owner(v)[0] is None, "the goodbye")
    v.query("QUEUE TAKE mail WAIT '60s'")
    parked(v)
    one.kill()
    assert woken(v)["id"] == b["id"]
    assert tag(v, "QUEUE DONE '%s'" % a["token"]) == "UPDATE 1"
    for c in (w, x, v):
        c.close()


def test_the_session_dies_and_nothing_is_lost(qbouncer, db, cluster):
    """The proxy lives: it comes back with the same number before the others take it for dead."""
    one, other = two(qbouncer, queue_orphan_grace="20s")
    v, w = other.wire(db), one.wire(db)
    tag(v, "QUEUE CREATE mail")
    tag(v, "QUEUE PUSH mail '1'")
    job = take(w)
    v.query("QUEUE TAKE mail WAIT '60s'")
    parked(v)
    for proxy in (one, other):
        system_is_up(proxy)
    before = [len(p.log_text()) for p in (one, other)]
    assert cluster.psql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                        "WHERE application_name = 'qbouncer system' AND datname = '%s'" % db).strip() == "2"
    for proxy, mark in zip((one, other), before):
        system_is_up(proxy, mark)
    locks = wait_for(lambda: w.rows("SELECT count(DISTINCT objid) AS n FROM pg_locks WHERE classid = 1902276469 "
                                    "AND database = (SELECT oid FROM pg_database WHERE datname = '%s')" % db)[0]["n"] == "2",
                     "both locks")
    assert locks
    # more than a look of the other one later
    wait_for(lambda: w.rows("SELECT clock_timestamp() > max(backend_start) + interval '2s' AS later FROM pg_stat_activity "
                            "WHERE application_name = 'qbouncer system' AND datname = '%s'" % db)[0]["later"] == "t",
             "some looks")
    parked(v)
    assert tag(w, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    assert "is gone" not in one.log_text() + other.log_text()
    for c in (v, w):
        c.close()
