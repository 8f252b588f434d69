"""The proxy deletes what has been kept for long enough, with the logins of those who use the queues."""

import psycopg

from metrics import samples
from proxy import free_port, wait_for
from queuetest import error, tag, take  # noqa: F401


def old_jobs(w, direct, n):
    """So many finished ones, and a dead one, that have been kept for long enough."""
    tag(w, "QUEUE CREATE mail WITH (retain_done = '1 h', retain_dead = '1 h')")
    tag(w, "QUEUE PUSH mail '0'")
    tag(w, "QUEUE FAIL '%s' FINAL" % take(w)["token"])
    tag(w, "QUEUE PUSH mail SELECT g::text::jsonb FROM generate_series(1, %d) AS g" % n)
    tag(w, "QUEUE POP mail LIMIT %d" % n)
    direct.execute("UPDATE queue.a_mail SET ended_at = ended_at - interval '1 h'")
    direct.execute("UPDATE queue.q_mail SET ended_at = ended_at - interval '1 h'")
    tag(w, "QUEUE PUSH mail '1'")
    tag(w, "QUEUE POP mail")


def left(direct):
    return direct.execute("SELECT (SELECT count(*) FROM queue.a_mail), (SELECT count(*) FROM queue.q_mail)").fetchone()


def test_all_of_it_in_steps(qbouncer, db, direct):
    port = free_port()
    proxy = qbouncer(queue_maintenance="50ms", metrics_port=port)
    with proxy.wire(db) as w:
        old_jobs(w, direct, 1800)
        wait_for(lambda: left(direct) == (1, 0), "the old jobs to go", timeout=60)
        proxy.wait_log("maintenance deleted [0-9]+ jobs that had been kept long enough")
        wait_for(lambda: samples(port)['qbouncer_queue_maintenance_deleted_total{database="%s"}' % db] == 1801,
                 "the metric")


def test_several_proxies(qbouncer, db, direct):
    one, two = qbouncer(queue_maintenance="50ms"), qbouncer(queue_maintenance="50ms")
    with one.wire(db) as w, two.wire(db) as v:
        old_jobs(w, direct, 1200)
        assert v.rows("QUEUE TAKE mail WAIT '10ms'") == []
        wait_for(lambda: left(direct) == (1, 0), "the old jobs to go", timeout=60)


def test_switched_off_and_on(qbouncer, db, direct):
    proxy = qbouncer(queue_maintenance="0")
    with proxy.wire(db) as w:
        old_jobs(w, direct, 10)
        assert left(direct) == (11, 1)
        proxy.console("SET queue_maintenance = '50ms'")
        wait_for(lambda: left(direct) == (1, 0), "the old jobs to go", timeout=60)


def foreign_queue(cluster, direct, db, w):
    """One of a role of which the proxy knows nothing, with something in it that is over."""
    tag(w, "QUEUE CREATE mine")
    cluster.psql("DO $$BEGIN IF to_regrole('stranger') IS NULL THEN CREATE ROLE stranger LOGIN; END IF; END$$")
    cluster.psql("GRANT INSERT, UPDATE, DELETE ON queue.queues TO stranger; SET ROLE stranger; "
                 "SELECT queue.create('mail', false, '{retain_dead}', '{1 h}'); "
                 "SELECT queue.grant('mail', '{take}', '{other}')", db)
    direct.execute("INSERT INTO queue.q_mail (state, ended_at, payload) VALUES ('dead', now() - interval '1 day', '1')")


def gone(direct):
    return direct.execute("SELECT count(*) FROM queue.q_mail").fetchone() == (0,)


def test_queues_of_others(qbouncer, db, direct, cluster):
    """Nobody who owns the queue or has taken from it is here: that is said, once, and shown; then somebody takes."""
    port = free_port()
    proxy = qbouncer(queue_maintenance="50ms", metrics_port=port)
    line = 'qbouncer_queue_maintenance_left_out{database="%s"}' % db
    with proxy.wire(db) as w, proxy.wire(db, "other") as v:
        foreign_queue(cluster, direct, db, w)
        tag(v, "QUEUE LIST")
        proxy.wait_log("maintenance leaves out 1 queues [(]one is \"mail\" of role stranger")
        wait_for(lambda: samples(port)[line] == 1, "the metric")
        assert not gone(direct)
        assert v.rows("QUEUE TAKE mail") == []
        wait_for(lambda: gone(direct), "the old job to go", timeout=60)
        wait_for(lambda: samples(port)[line] == 0, "the metric")
    assert proxy.log_text().count("maintenance leaves out") == 1


def test_the_owner_is_known(qbouncer, db, direct, cluster):
    """He has not used QUEUE here, but auth_file has him."""
    proxy = qbouncer(queue_maintenance="50ms", users={"stranger": "-"})
    with proxy.wire(db) as w:
        foreign_queue(cluster, direct, db, w)
        wait_for(lambda: gone(direct), "the old job to go", timeout=60)


def test_a_superuser_is_not_asked(qbouncer, db, direct, cluster):
    """He has taken from it, and may do everything: his login does not clean what others own."""
    proxy = qbouncer(queue_maintenance="50ms", users={"postgres": "-"})
    with proxy.wire(db) as w, proxy.wire(db, "postgres") as su:
        foreign_queue(cluster, direct, db, w)
        tag(su, "QUEUE CREATE own WITH (retain_dead = '1 h')")
        assert su.rows("QUEUE TAKE mail") == []
        proxy.wait_log("maintenance leaves out 1 queues [(]one is \"mail\"")
        direct.execute("INSERT INTO queue.q_own (state, ended_at, payload) VALUES ('dead', now() - interval '1 day', '1')")
        wait_for(lambda: direct.execute("SELECT count(*) FROM queue.q_own").fetchone() == (0,), "his own", timeout=60)
        assert not gone(direct)


def test_it_does_not_run(qbouncer, db, direct, cluster):
    """A warning when it has not for some periods, and a metric; then it goes on."""
    port = free_port()
    proxy = qbouncer(queue_maintenance="50ms", metrics_port=port)
    age = 'qbouncer_queue_maintenance_age_seconds{database="%s"}' % db
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        direct.execute("ALTER FUNCTION queue._maintain_used(text[], int4, int4, int4, int8[]) RENAME TO away")
        proxy.wait_log("maintenance has not run for 3 periods: .*_maintain_used", timeout=60)
        assert samples(port)[age] >= 0.15
        direct.execute("ALTER FUNCTION queue.away(text[], int4, int4, int4, int8[]) RENAME TO _maintain_used")
        proxy.wait_log("maintenance goes on", timeout=60)
        wait_for(lambda: samples(port)[age] < 5, "the metric")
    assert proxy.log_text().count("maintenance has not run") == 1


def test_locks_of_anybody(qbouncer, db, direct, cluster):
    """They keep it from nothing."""
    proxy = qbouncer(queue_maintenance="50ms")
    with psycopg.connect(cluster.dsn(db, "stats"), autocommit=True) as nobody, proxy.wire(db) as w:
        old_jobs(w, direct, 10)
        nobody.execute("SELECT pg_advisory_lock(n) FROM generate_series(7598543210000, 7598543210009) AS n")
        wait_for(lambda: left(direct) == (1, 0), "the old jobs to go", timeout=60)


def calls(direct, name):
    return direct.execute("SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = %s", (name,)).fetchone()[0]


def test_clean_queues_are_passed_over(qbouncer, db, direct, cluster):
    """Many of them cost little; one that changes has its turn again."""
    cluster.psql("ALTER DATABASE %s SET track_functions = 'pl'" % db)
    proxy = qbouncer(queue_maintenance="50ms")
    with proxy.wire(db) as w:
        for k in range(20):
            tag(w, "QUEUE CREATE q%d" % k)
            tag(w, "QUEUE PUSH q%d '1'" % k)    # into one that never had a job nobody looks
            tag(w, "QUEUE POP q%d" % k)

        def quiet():
            """Of a few rounds, as Postgres counts them a second later."""
            seen = calls(direct, "_maintain_one")
            rounds = calls(direct, "_maintain_used")
            wait_for(lambda: calls(direct, "_maintain_used") > rounds + 10, "some rounds", timeout=60)
            return seen >= 20 and calls(direct, "_maintain_one") == seen

        wait_for(quiet, "all of them to be clean", timeout=60)
        old_jobs(w, direct, 10)
        wait_for(lambda: left(direct) == (1, 0), "the old jobs to go", timeout=60)
        wait_for(quiet, "all of them to be clean again", timeout=60)


def test_clean_until_something_is_due(qbouncer, db, direct, cluster):
    """Nothing changes, but time goes by."""
    cluster.psql("ALTER DATABASE %s SET track_functions = 'pl'" % db)
    proxy = qbouncer(queue_maintenance="50ms")
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail WITH (retain_done = '4 s')")
        tag(w, "QUEUE PUSH mail '1'")
        tag(w, "QUEUE POP mail")
        tag(w, "QUEUE PUSH mail '2' EXPIRES '3 s'")
        wait_for(lambda: left(direct) == (0, 0), "time to go by", timeout=60)


def sessions_ended(proxy):
    return proxy.log_text().count("close_needed")


def create_many(w, n):
    for k in range(n):
        tag(w, "QUEUE CREATE q%d" % k)


def test_sessions_that_have_seen_all_queues_end(qbouncer, db):
    """Postgres keeps what a session has seen of each table: who looks for leases of proxies that are gone has been to all
    queues of its role, who cleans to as many in steps."""
    proxy = qbouncer(queue_maintenance="0", queue_engine_after=0)
    with proxy.wire(db) as w:
        create_many(w, 210)
        for k in range(210):    # where nothing ever was nobody looks
            tag(w, "QUEUE PUSH q%d '1'" % k)
        take(w, "QUEUE TAKE q0")
        wait_for(lambda: sessions_ended(proxy) == 1, "the end of the session that has looked", timeout=60)
        proxy.console("SET queue_maintenance = '50ms'")
        wait_for(lambda: sessions_ended(proxy) >= 2, "the end of one that has cleaned", timeout=60)
        tag(w, "QUEUE PUSH q0 '2'")


def test_sessions_that_see_the_same_few_queues_stay(qbouncer, db, direct, cluster):
    cluster.psql("ALTER DATABASE %s SET track_functions = pl" % db)
    proxy = qbouncer(queue_maintenance="50ms", queue_engine_after=0)
    with proxy.wire(db) as w:
        create_many(w, 60)

        def cleaned():
            for k in range(60):
                tag(w, "QUEUE PUSH q%d '1'" % k)
            return direct.execute("SELECT calls FROM pg_stat_user_functions WHERE funcname = '_maintain_one' AND calls > 450").fetchone()
        tag(w, "QUEUE PUSH q0 '1'")
        take(w, "QUEUE TAKE q0")
        wait_for(cleaned, "visits of more queues than a session may see", timeout=60)
        assert sessions_ended(proxy) == 0
