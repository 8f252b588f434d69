"""Schedules while everything is killed: each occurrence once, none left out, in each history that survives.

The clock that counts is the database's. Tests do not set it: they move the times of the schedules against it, all of a row by
the same, which is what a clock that jumps is to them.
"""

import random

import psycopg
import pytest

from pgcluster import Cluster, Standby
from proxy import wait_for
from queuetest import tag

OCCURRENCES = """SELECT headers ->> 'schedule', array_agg((headers ->> 'scheduled_at')::timestamptz
    ORDER BY (headers ->> 'scheduled_at')::timestamptz) FROM queue.q_mail GROUP BY 1 ORDER BY 1"""
JUMP = """UPDATE queue.schedules SET anchor = anchor - %s::interval, next_at = next_at - %s::interval,
    look_at = look_at - %s::interval, last_at = last_at - %s::interval"""


def occurrences(direct):
    return dict(direct.execute(OCCURRENCES).fetchall())


def jobs(direct):
    return direct.execute("SELECT count(*) FROM queue.q_mail").fetchone()[0]


def wait_for_more(direct, n, what="more of them"):
    have = jobs(direct)
    wait_for(lambda: jobs(direct) >= have + n, what, timeout=60)


def are_whole(direct, step=1):
    """Of each schedule from its first occurrence to its last each once."""
    for name, times in occurrences(direct).items():
        gaps = {(b - a).total_seconds() for a, b in zip(times, times[1:])}
        assert gaps <= {step}, "%s: %s" % (name, times)


def schedule(w, n, policies=("ALL",)):
    """Half of them by CRON, half by EVERY."""
    for i in range(n):
        when = "CRON '* * * * * *' TIME ZONE 'UTC'" if i % 2 else "EVERY '1 s'"
        tag(w, f"QUEUE SCHEDULE s{i} ON mail {when} MISSED {policies[i % len(policies)]} PUSH '{i}'")


def terminate_one(direct):
    direct.execute("SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                   " AND datname = current_database() AND backend_type = 'client backend' ORDER BY random() LIMIT 1) AS one")  # fmt: skip


@pytest.mark.timeout(200)
def test_each_once_under_kills(qbouncer, db, direct):
    """Proxies with -9, backends at any moment, also those that fire. What is late by less than a minute is not missed."""
    chance = random.Random(1)
    proxies = [qbouncer(databases={}), qbouncer(databases={})]
    for proxy in proxies:
        with proxy.wire(db) as w:
            if proxy is proxies[0]:
                tag(w, "QUEUE CREATE mail")
                schedule(w, 21, ("ALL", "ONE", "SKIP"))
            w.rows("QUEUE TAKE mail WAIT '10ms' LEASE '1 s'")  # each has a login of the owner
    for n in range(60):
        have = jobs(direct)
        terminate_one(direct)
        if n % 12 == 11:
            proxy = chance.choice(proxies)
            proxy.kill()
            proxy.start()
            with proxy.wire(db) as w:
                w.rows("QUEUE TAKE mail WAIT '10ms' LEASE '1 s'")
        if n % 4 == 0:
            wait_for(lambda have=have: jobs(direct) > have, "one that is fired", timeout=60)
    wait_for_more(direct, 40)
    direct.execute("UPDATE queue.schedules SET paused = true, look_at = NULL")
    assert len(occurrences(direct)) == 21
    assert direct.execute("SELECT sum(skipped) FROM queue.schedules").fetchone()[0] == 0
    are_whole(direct)


@pytest.mark.parametrize("jump", [False, True], ids=["the proxies were stopped", "the clock jumps forward"])
def test_an_hour_later(qbouncer, db, direct, jump):
    """MISSED says what becomes of the occurrences between, which are pushed while backends and a proxy are killed."""
    chance = random.Random(2)
    proxies = [qbouncer(), qbouncer()]
    with proxies[0].wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        for missed in ("one", "skip", "all"):
            tag(w, f"QUEUE SCHEDULE {missed} ON mail EVERY '1 min' MISSED {missed} PUSH '1'")
            tag(w, f"QUEUE SCHEDULE cron_{missed} ON mail CRON '* * * * *' TIME ZONE 'UTC' MISSED {missed} PUSH '1'")
    if not jump:
        for proxy in proxies:
            proxy.kill()
    direct.execute(JUMP, ["1 hour"] * 4)
    due = dict(direct.execute("SELECT name, next_at FROM queue.schedules").fetchall())
    if not jump:
        for proxy in proxies:
            proxy.start()
    for proxy in proxies:
        with proxy.wire(db) as w:
            w.rows("QUEUE TAKE mail WAIT '10ms' LEASE '1 s'")
    terminate_one(direct)
    proxies[0].kill()
    proxies[0].start()

    def fired():
        if chance.random() < 0.05:
            terminate_one(direct)
        return direct.execute("SELECT bool_and(next_at > clock_timestamp()) FROM queue.schedules").fetchone()[0]
    wait_for(fired, "all to be fired", timeout=60)
    got = occurrences(direct)
    for prefix in ("", "cron_"):
        every = got[prefix + "all"]
        assert every[0] == due[prefix + "all"] and len(every) in (60, 61)
        gaps = {(b - a).total_seconds() for a, b in zip(every, every[1:])}
        assert gaps == {60}
        # what is due within the last minute is late and not missed
        assert 1 <= len(got[prefix + "one"]) <= 2 and 1 <= len(got[prefix + "skip"]) <= 2
        assert (every[-1] - got[prefix + "one"][0]).total_seconds() <= 60
    skipped = dict(direct.execute("SELECT name, skipped FROM queue.schedules").fetchall())
    assert skipped["all"] == skipped["one"] == 0 and skipped["skip"] >= 1


def test_the_clock_jumps_back(qbouncer, db, direct):
    """What has been fired is not fired again; what is made then is fired in its time."""
    proxy = qbouncer()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        schedule(w, 2)
        wait_for_more(direct, 4)
        with direct.transaction():
            direct.execute(JUMP, ["-1 hour"] * 4)
            last = dict(direct.execute("SELECT name, next_at FROM queue.schedules").fetchall())
        have = jobs(direct)
        tag(w, "QUEUE SCHEDULE new ON mail EVERY '1 s' PUSH '1'")
        wait_for(lambda: len(occurrences(direct).get("new", ())) >= 3, "a new one", timeout=60)
        assert jobs(direct) == have + len(occurrences(direct)["new"])
        # and the hour goes by: on from there
        direct.execute(JUMP.replace("last_at = last_at - %s::interval", "last_at = last_at") + " WHERE name <> 'new'", ["1 hour"] * 3)
        wait_for_more(direct, 6)
        tag(w, "QUEUE UNSCHEDULE new")
    are_whole(direct)
    assert len(last) == 2


@pytest.mark.timeout(200)
def test_a_standby_is_promoted(qbouncer):
    """The primary dies. In the history that goes on there is each occurrence once, with those that the primary has fired and
    could not tell of; and a proxy that follows fires on, without RESUME."""
    with Cluster(settings={"listen_addresses": ""}) as primary:
        primary.psql("CREATE ROLE app LOGIN")
        db = primary.createdb("moved", owner="app")
        with Standby(primary) as standby:
            line = "host=%s,%s port=%d target_session_attrs=primary" % (primary.socket_dir, standby.socket_dir, primary.port)
            proxies = [qbouncer(databases={db: line}, server_login_retry="100ms") for _ in range(2)]
            with psycopg.connect(primary.dsn(db), autocommit=True) as before:
                for proxy in proxies:
                    with proxy.wire(db) as w:
                        if proxy is proxies[0]:
                            tag(w, "QUEUE CREATE mail")
                            schedule(w, 6)
                        w.rows("QUEUE TAKE mail WAIT '10ms' LEASE '1 s'")
                wait_for_more(before, 12)
                with psycopg.connect(standby.dsn(db), autocommit=True) as copy:
                    wait_for(lambda: copy.execute("SELECT to_regclass('queue.q_mail')").fetchone()[0] and jobs(copy) >= 12,
                             "them to be there, too", timeout=60)  # fmt: skip
            primary.kill()
            standby.promote()
            with psycopg.connect(standby.dsn(db), autocommit=True) as after:
                wait_for_more(after, 18)
                after.execute("UPDATE queue.schedules SET paused = true, look_at = NULL")
                assert len(occurrences(after)) == 6
                are_whole(after)
            for proxy in proxies:
                proxy.stop()


def test_a_thousand_in_the_same_second(qbouncer, db, direct):
    proxies = [qbouncer(), qbouncer()]
    for proxy in proxies:
        with proxy.wire(db) as w:
            if proxy is proxies[0]:
                tag(w, "QUEUE CREATE mail")
                w.rows("SELECT queue.schedule('s' || n, 'mail', '1'::jsonb, every => '1 day', starting => date_trunc('second', now())"
                       " + interval '3 s') FROM generate_series(1, 1000) AS n")  # fmt: skip
            w.rows("QUEUE TAKE mail WAIT '10ms'")
    wait_for(lambda: jobs(direct) >= 1000, "all of them", timeout=60)
    n, names, times, late = direct.execute(
        "SELECT count(*), count(DISTINCT headers ->> 'schedule'), count(DISTINCT headers ->> 'scheduled_at'),"
        " extract(epoch FROM max(pushed_at - (headers ->> 'scheduled_at')::timestamptz)) FROM queue.q_mail").fetchone()  # fmt: skip
    assert (n, names, times) == (1000, 1000, 1)
    assert late < 20, "of a machine that is busy with other things"
    print("the last one was %.2f s late" % late)


HELD = """CREATE FUNCTION public.held() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT pg_try_advisory_xact_lock_shared(14) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER held BEFORE INSERT ON queue.q_copy FOR EACH ROW EXECUTE FUNCTION public.held()"""
FIRES = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


def published(direct):
    """The occurrences that each of those that are bound has got."""
    stream = direct.execute("SELECT number FROM queue.streams").fetchone()[0]
    tables = ["queue.q_mail", "queue.q_copy", "(%s)" % " UNION ALL ".join(f"SELECT headers FROM queue.e{stream}_{n}" for n in range(4))]
    return [direct.execute("SELECT coalesce(array_agg(at ORDER BY at), '{}') FROM (SELECT (headers ->> 'scheduled_at')::timestamptz AS at"
                           f" FROM {table} AS t) AS j").fetchone()[0] for table in tables]


@pytest.mark.parametrize("rolled_back", [False, True], ids=["it commits", "it is rolled back"])
def test_one_that_publishes_is_killed_while_it_fires(qbouncer, db, direct, rolled_back):
    """Some of those that are bound have got it, in a transaction of which the proxy does not hear any more. Each occurrence
    reaches all of them once, or none."""
    one, two = qbouncer(), qbouncer()
    with one.wire(db) as w:
        for text in ("QUEUE CREATE mail", "QUEUE CREATE copy", "QUEUE CREATE log WITH (kind = stream)", "QUEUE CREATE TOPIC orders",
                     "QUEUE BIND mail TO 'orders.#'", "QUEUE BIND copy TO 'orders.day'", "QUEUE BIND log TO 'orders.*'"):  # fmt: skip
            tag(w, text)
        direct.execute(HELD)
        direct.execute("SELECT pg_advisory_lock(14)")
        tag(w, "QUEUE SCHEDULE tick CRON '* * * * * *' TIME ZONE 'UTC' MISSED ALL PUBLISH 'orders.day' '1'")
        (pid,) = wait_for(lambda: direct.execute(FIRES).fetchone(), "one that fires", timeout=60)
        one.kill()
    assert published(direct) == [[], [], []]
    with two.wire(db) as v:
        v.rows("QUEUE TAKE mail WAIT '10ms'")  # it has a login of the owner
        if rolled_back:
            direct.execute("SELECT pg_terminate_backend(%s)", [pid])
            wait_for(lambda: direct.execute(FIRES).fetchone() not in (None, (pid,)), "the other one to fire", timeout=60)
        direct.execute("SELECT pg_advisory_unlock(14)")
        wait_for(lambda: len(published(direct)[0]) >= 4, "some of them", timeout=60)
        tag(v, "QUEUE UNSCHEDULE tick")
    mail, copy, log = published(direct)
    assert mail == copy == log and len(mail) >= 4
    assert {(b - a).total_seconds() for a, b in zip(mail, mail[1:])} == {1}
