"""The proxy deletes what has been kept for long enough, through its own session."""

from proxy import free_port, wait_for
from queuetest import error, tag, take  # noqa: F401
from test_metrics import samples


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


def test_queues_of_others(qbouncer, db, direct, cluster):
    """The session may not clean them: the log says so once."""
    direct.execute("GRANT CREATE ON DATABASE \"%s\" TO other" % db)
    proxy = qbouncer(queue_maintenance="50ms", queue_user="other")
    with proxy.wire(db) as w:
        old_jobs(w, direct, 10)
        proxy.wait_log("maintenance may not clean all queues, 1 are left out")
        tag(w, "QUEUE GRANT TAKE ON mail TO other")
        wait_for(lambda: left(direct) == (1, 0), "the old jobs to go", timeout=60)
    assert proxy.log_text().count("may not clean all queues") == 1
