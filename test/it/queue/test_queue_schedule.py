"""Schedules through the proxy: each occurrence once, whoever fires it."""

import psycopg
import pytest

from metrics import samples
from proxy import free_port, wait_for
from queuetest import error, job_of, parked, tag


def schedules(w):
    return w.rows("QUEUE SCHEDULES")


def occurrences(direct, queue="mail"):
    """Of every job that is or was: the time for which it was pushed."""
    return [row[0] for row in direct.execute(
        f"SELECT (headers ->> 'scheduled_at')::timestamptz FROM queue.q_{queue} ORDER BY id").fetchall()]  # fmt: skip


def test_pushed_by_the_clock(qbouncer, db, direct):
    port = free_port()
    proxy = qbouncer(metrics_port=port)
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        assert tag(w, "QUEUE SCHEDULE tick ON mail CRON '* * * * * *' TIME ZONE 'UTC' PUSH '{\"n\": 1}' PRIORITY 3") == "CREATE SCHEDULE"
        (row,) = schedules(w)
        assert (row["schedule"], row["queue"], row["state"]) == ("tick", "mail", "active")
        assert row["when"] == "CRON '* * * * * *' TIME ZONE 'UTC'"
        # a worker that waits gets it
        (job,) = w.rows("QUEUE TAKE mail WAIT '60s'")
        assert (job["payload"], job["priority"]) == ('{"n": 1}', "3") and '"schedule": "tick"' in job["headers"]
        wait_for(lambda: len(occurrences(direct)) >= 3, "three of them", timeout=60)
        assert tag(w, "QUEUE UNSCHEDULE tick") == "DROP SCHEDULE"
        times = occurrences(direct)
        assert len(set(times)) == len(times)
        assert all((b - a).total_seconds() == 1 for a, b in zip(times, times[1:]))
        wait_for(lambda: samples(port)['qbouncer_queue_schedule_jobs_total{database="%s"}' % db] >= 3, "the metric")


def test_a_new_one_is_not_overslept(qbouncer, cluster, db, direct):
    """Made at another proxy, or past all of them, while this one sleeps until something that is far away."""
    one, two = qbouncer(), qbouncer()
    with one.wire(db) as w, two.wire(db) as v:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE SCHEDULE far ON mail EVERY '1 day' PUSH '0'")
        assert v.rows("QUEUE TAKE mail WAIT '10ms'") == []
        w.query("QUEUE TAKE mail WAIT '100s'")
        v.query("QUEUE TAKE mail WAIT '100s'")
        with psycopg.connect(cluster.dsn(db, "app"), autocommit=True) as past:
            past.execute("SELECT queue.schedule('near', 'mail', '1'::jsonb, every => '1 s')")
        wait_for(lambda: len(occurrences(direct)) >= 3, "three of them", timeout=60)
        direct.execute("SELECT queue.unschedule('near')")


@pytest.mark.parametrize("kill", [False, True])
def test_each_once_at_two_proxies(qbouncer, db, direct, kill):
    proxies = [qbouncer(), qbouncer()]
    with proxies[0].wire(db) as w, proxies[1].wire(db) as v:
        tag(w, "QUEUE CREATE mail")
        v.rows("QUEUE TAKE mail WAIT '10ms'")
        for n in range(5):
            tag(w, f"QUEUE SCHEDULE s{n} ON mail CRON '* * * * * *' TIME ZONE 'UTC' MISSED ALL PUSH '{n}'")
        wait_for(lambda: len(occurrences(direct)) >= 10, "some", timeout=60)
        if kill:
            proxies[0].kill()
        have = len(occurrences(direct))
        wait_for(lambda: len(occurrences(direct)) >= have + 15, "more of them", timeout=60)
    got = direct.execute("SELECT headers ->> 'schedule', array_agg((headers ->> 'scheduled_at')::timestamptz ORDER BY id)"
                         " FROM queue.q_mail GROUP BY 1").fetchall()  # fmt: skip
    assert len(got) == 5
    for name, times in got:
        assert all((b - a).total_seconds() == 1 for a, b in zip(times, times[1:])), name


def test_as_the_owner(qbouncer, cluster, db, direct):
    """With a login of each owner, who need not be there; who has none is named in the log."""
    proxy = qbouncer()
    cluster.psql("DO $$BEGIN IF to_regrole('nologin') IS NULL THEN CREATE ROLE nologin; END IF; END$$; GRANT nologin TO app")
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE GRANT PUSH ON mail TO other, nologin")
        with proxy.wire(db, user="other") as o:
            tag(o, "QUEUE SCHEDULE others ON mail EVERY '1 s' PUSH '1'")
            tag(w, "QUEUE SCHEDULE mine ON mail EVERY '1 day' PUSH '1'")
            assert [row["schedule"] for row in schedules(o)] == ["others"]
        w.simple("SET ROLE nologin")
        tag(w, "QUEUE SCHEDULE nobodys ON mail EVERY '1 s' PUSH '1'")
        w.simple("RESET ROLE")
        wait_for(lambda: len(occurrences(direct)) >= 2, "some", timeout=60)
        proxy.wait_log("schedules of role nologin are due, and nobody here can log in as this role")
        direct.execute("SELECT queue.unschedule('others')")
        direct.execute("SELECT queue.unschedule('nobodys')")


def test_in_a_transaction(qbouncer, db, direct):
    proxy = qbouncer()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        w.simple("BEGIN")
        tag(w, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
        w.simple("ROLLBACK")
        assert schedules(w) == []
        w.simple("BEGIN")
        tag(w, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
        w.simple("COMMIT")
        wait_for(lambda: occurrences(direct), "the first", timeout=60)


def test_pause_resume_trigger(qbouncer, db, direct):
    proxy = qbouncer()
    with proxy.wire(db) as w:
        for name in ("mail", "schedule"):
            tag(w, f"QUEUE CREATE {name}")
        tag(w, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
        assert tag(w, "QUEUE PAUSE SCHEDULE tick") == "ALTER TABLE"
        assert schedules(w)[0]["state"] == "paused"
        # a queue may have the name of the word
        tag(w, "QUEUE PAUSE schedule")
        tag(w, "QUEUE RESUME schedule;")
        have = len(occurrences(direct))
        with proxy.wire(db) as worker:
            worker.rows(f"QUEUE POP mail LIMIT {have + 1}")
            worker.query("QUEUE TAKE mail WAIT '60s'")
            parked(worker)
            assert tag(w, "QUEUE TRIGGER SCHEDULE tick") == "INSERT 0 1"
            assert '"triggered": true' in job_of(worker.until("Z"))["headers"]
        tag(w, "QUEUE RESUME SCHEDULE tick")
        wait_for(lambda: occurrences(direct), "more", timeout=60)


def test_words(qbouncer, db):
    proxy = qbouncer()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        for text in [
            "QUEUE SCHEDULE a ON mail EVERY '1 h' FROM END MISSED one OVERLAP skip PUSH '1' KEY 'k' ON DUPLICATE ignore",
            "QUEUE SCHEDULE b ON mail EVERY 3600 PUSH '1' GROUP 'g' STARTING '2100-01-01' UNTIL '2101-01-01'",
            "QUEUE SCHEDULE 'c c' ON 'mail' CRON '@daily' PUSH '1' HEADERS '{\"a\": 1}' EXPIRES '1 h' ATTEMPTS 3 DELAY '5 s'",
            "QUEUE SCHEDULE on ON mail CRON '0 0 1 1 *' TIME ZONE 'Asia/Tokyo' PUSH '1'",
        ]:
            assert tag(w, text) == "CREATE SCHEDULE"
        assert len(schedules(w)) == 4
        for text, sqlstate in [
            ("QUEUE SCHEDULE a ON mail PUSH '1'", "42601"), ("QUEUE SCHEDULE a ON mail EVERY '1 h'", "42601"),
            ("QUEUE SCHEDULE a EVERY '1 h' PUSH '1'", "42601"), ("QUEUE SCHEDULE a EVERY '1 h' PUBLISH 'x'", "42601"),
            ("QUEUE SCHEDULE a EVERY '1 h' PUBLISH x '1' PUSH '1'", "42601"), ("QUEUE SCHEDULE a EVERY '1 h' RUN 'x' PUBLISH x '1'", "42601"),
            ("QUEUE SCHEDULE a ON mail EVERY '1 h' PUBLISH x '1'", "22023"), ("QUEUE SCHEDULE a EVERY '1 h' PUSH '1' PUBLISH x '1'", "42601"),
            ("QUEUE SCHEDULE a EVERY '1 h' PUBLISH x.y '1'", "42601"), ("QUEUE SCHEDULE a EVERY '1 h' PUBLISH x '1'", "42704"),
            ("QUEUE SCHEDULE a ON mail EVERY '1 h' CRON '@daily' PUSH '1'", "42601"),
            ("QUEUE SCHEDULE a ON mail CRON 'x' PUSH '1'", "22023"), ("QUEUE SCHEDULE a ON none EVERY '1 h' PUSH '1'", "42P01"),
            ("QUEUE UNSCHEDULE none", "42704"), ("QUEUE PAUSE SCHEDULE none", "42704"), ("QUEUE TRIGGER tick", "42601"),
        ]:  # fmt: skip
            fields = error(w, text).fields
            assert fields["C"] == sqlstate and fields.get("H"), text
        assert tag(w, "QUEUE UNSCHEDULE IF EXISTS none") == "DROP SCHEDULE"
        assert tag(w, "QUEUE UNSCHEDULE a IF EXISTS") == "DROP SCHEDULE"


def test_publishes(qbouncer, db, direct):
    """To all that is bound, streams too, and who waits there is woken."""
    proxy = qbouncer()
    with proxy.wire(db) as w, proxy.wire(db) as v, proxy.wire(db) as u:
        for text in ("QUEUE CREATE mail", "QUEUE CREATE log WITH (kind = stream)", "QUEUE SUBSCRIBE bi TO log",
                     "QUEUE CREATE TOPIC orders", "QUEUE BIND mail TO 'orders.#'", "QUEUE BIND log TO 'orders.*'"):  # fmt: skip
            tag(w, text)
        v.query("QUEUE TAKE mail WAIT '60s'")
        u.query("QUEUE TAKE log FOR bi WAIT '60s'")
        parked(v)
        assert tag(w, "QUEUE SCHEDULE tick CRON '* * * * * *' TIME ZONE 'UTC' PUBLISH 'orders.day' '{\"n\": 1}' PRIORITY 3") == "CREATE SCHEDULE"
        for waiting in (v, u):
            got = [m for m in waiting.until("Z") if m.type in "DE"]
            assert [m.type for m in got] == ["D"], [m.fields for m in got if m.type == "E"]
        wait_for(lambda: len(occurrences(direct)) >= 3, "three of them", timeout=60)
        assert tag(w, "QUEUE UNSCHEDULE tick") == "DROP SCHEDULE"
        times = occurrences(direct)
        assert all((b - a).total_seconds() == 1 for a, b in zip(times, times[1:]))
        tag(w, "QUEUE SCHEDULE far EVERY '1 day' PUBLISH orders '2'")
        (row,) = schedules(w)
        assert (row["queue"], row["topic"], row["payload"]) == (None, "orders", "2")
        tag(w, "QUEUE PURGE mail")
        v.query("QUEUE TAKE mail WAIT '60s'")
        assert tag(w, "QUEUE TRIGGER SCHEDULE far") == "INSERT 0 1"
        assert [m.type for m in v.until("Z") if m.type in "DE"] == ["D"]


def test_prepared(qbouncer, db):
    proxy = qbouncer()
    with psycopg.connect(proxy.dsn(db), autocommit=True, prepare_threshold=0) as conn:
        conn.execute("QUEUE CREATE mail")
        for n in range(3):
            conn.execute("QUEUE SCHEDULE %s ON mail CRON %s TIME ZONE %s PUSH %s HEADERS %s PRIORITY %s",
                         (f"s{n}", "@hourly", "UTC", '{"n": 1}', '{"h": 1}', n))  # fmt: skip
        cursor = conn.execute("QUEUE SCHEDULES")
        assert [column.name for column in cursor.description][:4] == ["schedule", "queue", "when", "next_at"]
        assert [row[0] for row in cursor.fetchall()] == ["s0", "s1", "s2"]


def test_a_full_queue_gets_it_later(qbouncer, db, direct):
    proxy = qbouncer()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail WITH (max_length = 1)")
        tag(w, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
        wait_for(lambda: schedules(w)[0]["state"] == "failing", "it to fail", timeout=60)
        (first,) = occurrences(direct)
        w.rows("QUEUE POP mail")
        wait_for(lambda: occurrences(direct), "it to go on", timeout=60)
        (second,) = occurrences(direct)
        assert (second - first).total_seconds() == 1


def test_a_server_that_was_away(qbouncer, cluster, db, direct):
    """The proxy goes on when its connections are cut."""
    proxy = qbouncer()
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE SCHEDULE tick ON mail EVERY '1 s' MISSED ALL PUSH '1'")
        wait_for(lambda: occurrences(direct), "the first", timeout=60)
        for _ in range(5):
            direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        have = len(occurrences(direct))
        wait_for(lambda: len(occurrences(direct)) > have + 2, "it to go on", timeout=60)
        times = occurrences(direct)
        assert all((b - a).total_seconds() == 1 for a, b in zip(times, times[1:]))


def make_role(cluster, name):
    cluster.psql(f"DO $$BEGIN IF to_regrole('{name}') IS NULL THEN CREATE ROLE {name} LOGIN; END IF; END$$")


def test_a_database_that_names_the_role(qbouncer, cluster, db, direct):
    """All clients are that role, which nobody here has as his name."""
    make_role(cluster, "unlisted")
    proxy = qbouncer()
    line = f"host={cluster.socket_dir} port={cluster.port} user=unlisted"
    named = qbouncer(databases={db: line})
    with proxy.wire(db) as w, named.wire(db, user="other") as o:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE GRANT PUSH ON mail TO unlisted")
        tag(o, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
        assert schedules(o)[0]["owner"] == "unlisted"
        wait_for(lambda: len(occurrences(direct)) >= 2, "two of them", timeout=60)
        tag(o, "QUEUE UNSCHEDULE tick")


def test_who_can_no_longer_ask(qbouncer, cluster, db, direct):
    """The first whom the proxy knows has lost his login: another one asks."""
    make_role(cluster, "leaver")
    maker, proxy = qbouncer(), qbouncer(users={"leaver": "-"})
    with maker.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        tag(w, "QUEUE GRANT TAKE ON mail TO leaver")
    maker.kill()
    with proxy.wire(db, user="leaver") as gone:
        assert gone.rows("QUEUE TAKE mail WAIT '10ms'") == []
    try:
        cluster.psql("ALTER ROLE leaver NOLOGIN;"
                     "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'leaver'")  # fmt: skip
        with proxy.wire(db) as w:
            tag(w, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
            wait_for(lambda: occurrences(direct), "the first", timeout=60)
            tag(w, "QUEUE UNSCHEDULE tick")
    finally:
        cluster.psql("ALTER ROLE leaver LOGIN")


def test_an_end_while_owners_have_their_turns(qbouncer, db, direct):
    """Nothing is begun for the next one by the failure of the one before."""
    proxy = qbouncer()
    users = ["app", "other", "admin", "stats"]
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        for user in users[1:]:
            tag(w, f"QUEUE GRANT PUSH ON mail TO {user}")
        for user in users:
            with proxy.wire(db, user=user) as o:
                tag(o, f"QUEUE SCHEDULE {user} ON mail EVERY '1 s' PUSH '1'")
        wait_for(lambda: len(set(direct.execute("SELECT headers ->> 'schedule' FROM queue.q_mail").fetchall())) == 4, "all", timeout=60)
        with direct.transaction():
            direct.execute("LOCK TABLE queue.q_mail")
            # in a transaction it stays as it was first seen
            wait_for(lambda: direct.execute("SELECT pg_stat_clear_snapshot()") and direct.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND query LIKE '%_fire%' AND datname = current_database()").fetchone()[0], "one that waits")
            proxy.stop()
