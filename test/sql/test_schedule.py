"""Schedules without the proxy: what is made, changed and refused, and what _fire() does when it is called."""

import psycopg
import pytest


@pytest.fixture
def mail(db):
    db.create("mail")
    return db


def schedule(session, name="tick", queue="mail", payload='{"n": 1}', **named):
    what = "".join(f', "{key}" => %s' for key in named)
    session.rows(f"SELECT queue.schedule(%s, %s, %s::text{what})", name, queue, payload, *named.values())


def fire(session, most=100):
    return [tuple(row) for row in session.rows("SELECT queue, jobs, failed FROM queue._fire(%s)", most)]


def due(session, ago="0", name="tick"):
    """It was due so long ago."""
    session.rows("UPDATE queue.schedules SET (next_at, look_at, anchor) ="
                 " (SELECT t, t, t FROM (SELECT clock_timestamp() - %s::interval) AS x (t)) WHERE name = %s", ago, name)  # fmt: skip


def look(session, name="tick"):
    session.rows("UPDATE queue.schedules SET look_at = clock_timestamp() WHERE name = %s", name)


def field(session, column, name="tick"):
    return session.value(f"SELECT {column} FROM queue.schedules WHERE name = %s", name)


def headers(session, queue="mail"):
    return session.column(f'SELECT headers FROM queue."q_{queue}" ORDER BY id')


def jobs(session, queue="mail"):
    return session.value(f'SELECT count(*) FROM queue."q_{queue}"')


def test_fires_when_it_is_due(mail):
    schedule(mail, every="1 hour", priority=3, headers='{"a": 1}', key="k", group="g")
    assert fire(mail) == []
    due(mail)
    t = field(mail, "next_at")
    assert fire(mail) == [("mail", 1, 0)]
    assert fire(mail) == []
    (job,) = mail.take("mail")
    assert (job["payload"], job["priority"], job["key"], job["group"]) == ({"n": 1}, 3, "k", "g")
    assert mail.value("SELECT %s::timestamptz = %s", job["headers"].pop("scheduled_at"), t)
    assert job["headers"] == {"a": 1, "schedule": "tick"}
    assert (field(mail, "runs"), field(mail, "last_job"), field(mail, "last_at")) == (1, job["id"], t)
    assert field(mail, "next_at = last_at + interval '1 hour'")


def test_part_of_the_transaction(mail):
    with pytest.raises(ZeroDivisionError):
        with mail.conn.transaction():
            schedule(mail, every="1 hour")
            raise ZeroDivisionError
    assert mail.rows("SELECT * FROM queue.schedules()") == []
    schedule(mail, every="1 hour")
    due(mail)
    with pytest.raises(ZeroDivisionError):
        with mail.conn.transaction():
            assert fire(mail) == [("mail", 1, 0)]
            raise ZeroDivisionError
    assert jobs(mail) == 0
    assert fire(mail) == [("mail", 1, 0)]


def test_two_fire_at_once(mail):
    for n in range(20):
        schedule(mail, f"s{n}", every="1 hour")
        due(mail, name=f"s{n}")
    others = [mail.connect() for _ in range(4)]
    calls = [other.beside(fire, other, 7) for other in others]
    assert sum(call.result()[0][1] if call.result() else 0 for call in calls) <= 20
    while fire(mail):
        pass
    assert jobs(mail) == 20
    assert len({head["schedule"] for head in headers(mail)}) == 20


def test_one_that_is_fired_is_passed_over(mail):
    schedule(mail, every="1 hour")
    schedule(mail, "other", every="1 hour")
    due(mail)
    due(mail, name="other")
    one, two = mail.connect(), mail.connect()
    with one.conn.transaction():
        assert fire(one, 1) == [("mail", 1, 0)]
        assert fire(two) == [("mail", 1, 0)]
    assert jobs(mail) == 2


@pytest.mark.parametrize("ago, missed, pushed, skipped", [
    ("10 s", "one", 1, 0), ("10 s", "skip", 1, 0), ("10 s", "all", 1, 0),
    ("3 hours", "one", 1, 0), ("3 hours", "skip", 1, 1), ("3 hours", "all", 4, 0),
    ("175 min", "one", 1, 0), ("175 min", "skip", 0, 1), ("175 min", "all", 3, 0),
])  # fmt: skip
def test_missed(mail, ago, missed, pushed, skipped):
    """Every hour; 175 minutes ago: the last time is 55 minutes ago."""
    schedule(mail, every="1 hour", missed=missed)
    due(mail, ago)
    fire(mail)
    assert fire(mail) == []
    assert (jobs(mail), field(mail, "runs"), field(mail, "skipped")) == (pushed, pushed, skipped)
    assert field(mail, "next_at > clock_timestamp() AND next_at < clock_timestamp() + interval '1 hour'")
    times = [head["scheduled_at"] for head in headers(mail)]
    assert len(set(times)) == len(times)
    if pushed:  # the last one is that which was due last
        assert mail.value("SELECT next_at = %s::timestamptz + interval '1 hour' FROM queue.schedules", times[-1])


def test_missed_all_has_a_bound(mail):
    schedule(mail, every="1 s", missed="all")
    due(mail, "2 hours")
    ((_, pushed, _),) = fire(mail)
    # a thousand, and the last one; seconds go by
    assert 1001 <= pushed < 1100
    assert field(mail, "next_at > clock_timestamp() - interval '10 s'")


def test_cron_that_was_missed_for_years(mail):
    schedule(mail, cron="* * * * * *", zone="Europe/Berlin")
    due(mail, "3000 days")
    fire(mail)
    assert field(mail, "last_at > clock_timestamp() - interval '10 s'")
    schedule(mail, "rare", cron="0 0 29 2 *", zone="UTC")
    due(mail, "3000 days", "rare")
    fire(mail)
    assert field(mail, "to_char(last_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI')", "rare") == "02-29 00:00"
    assert field(mail, "last_at > clock_timestamp() - interval '1500 days'", "rare")


def test_overlap(mail):
    schedule(mail, every="1 hour", overlap="SKIP")
    due(mail)
    assert fire(mail) == [("mail", 1, 0)]
    due(mail)
    assert fire(mail) == []
    assert (field(mail, "runs"), field(mail, "skipped"), field(mail, "next_at > clock_timestamp()")) == (1, 1, True)
    (job,) = mail.take("mail")
    due(mail)
    assert fire(mail) == []
    mail.done(job["token"])
    due(mail)
    assert fire(mail) == [("mail", 1, 0)]
    (job,) = mail.take("mail")
    mail.rows("SELECT queue.fail(%s, final => true)", job["token"])  # dead is an end, too
    due(mail)
    assert fire(mail) == [("mail", 1, 0)]


def test_from_the_end(db):
    db.create("mail", retain_done="1 day")
    schedule(db, every="1 hour", from_end=True)
    due(db)
    assert fire(db) == [("mail", 1, 0)]
    assert db.row("SELECT next_at, state FROM queue.schedules()") == (None, "running")
    look(db)
    assert fire(db) == []
    assert field(db, "look_at > clock_timestamp()")
    (job,) = db.take("mail")
    db.done(job["token"])
    look(db)
    assert fire(db) == []
    assert field(db, "next_at = (SELECT ended_at FROM queue.a_mail) + interval '1 hour'")
    assert db.value("SELECT state FROM queue.schedules()") == "active"
    due(db)
    assert fire(db) == [("mail", 1, 0)]


def test_until(mail):
    mail.fails("22008", "SELECT queue.schedule('a', 'mail', '1'::text, every => '1 h', until => 'infinity')")
    mail.fails("22023", "SELECT queue.schedule('a', 'mail', '1'::text, every => '1 h', until => now() + interval '1 min')")
    schedule(mail, cron="* * * * * *", starting="2100-01-01 00:00:00+00", until="2100-01-01 00:00:01+00")
    assert field(mail, "next_at = '2100-01-01 00:00:00+00'")
    mail.rows("UPDATE queue.schedules SET next_at = clock_timestamp(), look_at = clock_timestamp(), until = clock_timestamp()")
    assert fire(mail) == [("mail", 1, 0)]
    assert mail.row("SELECT state, next_at FROM queue.schedules()") == ("ended", None)
    assert mail.rows("SELECT * FROM queue._schedules_due()") == []


def test_equal_ones_write_nothing(mail):
    schedule(mail, cron="*/5 * * * *", zone="UTC", headers='{"a": 1}')
    before = mail.row("SELECT xmin, ctid FROM queue.schedules")
    schedule(mail, cron="*/5 * * * *", zone="UTC", headers='{"a": 1}')
    assert mail.row("SELECT xmin, ctid FROM queue.schedules") == before
    # written in another way it is the same rule
    schedule(mail, cron="0,5-59/5 * * * *", zone="UTC", headers='{"a": 1}')
    assert field(mail, "cron") == "0,5-59/5 * * * *"


def test_a_changed_one_keeps_what_was(mail):
    schedule(mail, every="1 hour")
    due(mail)
    fire(mail)
    before = mail.row("SELECT next_at, last_at, last_job, runs, created_at FROM queue.schedules")
    schedule(mail, every="1 hour", payload='{"n": 2}')
    assert mail.row("SELECT next_at, last_at, last_job, runs, created_at FROM queue.schedules") == before
    assert field(mail, "payload") == '{"n": 2}'
    schedule(mail, cron="0 0 1 1 *", zone="UTC")
    assert field(mail, "extract(month FROM next_at AT TIME ZONE 'UTC')") == 1
    assert mail.row("SELECT last_at, last_job, runs, created_at FROM queue.schedules") == before[1:]


def test_many_say_it_at_once(mail):
    others = [mail.connect() for _ in range(6)]
    for call in [other.beside(schedule, other, "tick", cron="0 * * * *", zone="UTC") for other in others]:
        call.result()
    assert mail.value("SELECT count(*) FROM queue.schedules") == 1
    with mail.conn.transaction():
        schedule(mail, "two", every="1 h")
        call = others[0].beside(schedule, others[0], "two", every="1 h")
        mail.until_blocked(others[0])
    call.result()


def test_rights(mail):
    schedule(mail, every="1 hour", payload='{"secret": 1}')
    due(mail)
    bob = mail.connect("bob")
    assert bob.rows("SELECT * FROM queue.schedules()") == []
    assert bob.rows("SELECT * FROM queue.schedules") == []
    assert fire(bob) == []
    for call in ("unschedule('tick')", "pause_schedule('tick')", "resume_schedule('tick')", "trigger_schedule('tick')"):
        bob.fails("42704", f"SELECT queue.{call}")
    error = bob.fails("42501", "SELECT queue.schedule('mine', 'mail', '1'::text, every => '1 h')")
    assert error.message_hint == "QUEUE GRANT PUSH ON mail TO bob;"
    mail.rows("SELECT queue.grant('mail', '{push}', '{bob}')")
    schedule(bob, "mine", every="1 h")
    assert "another role" in bob.fails("42710", "SELECT queue.schedule('tick', 'mail', '1'::text, every => '1 h')").message_primary
    error = bob.fails("42501", "SELECT queue.schedule('mine', 'mail', '1'::text, every => '1 h', overlap => 'skip')")
    assert error.message_hint == "QUEUE GRANT AWAIT ON mail TO bob;"
    mail.rows("SELECT queue.grant('mail', '{await}', '{bob}')")
    schedule(bob, "mine", every="1 h", overlap="skip")
    # nobody gives one to another role
    bob.fails("42501", "UPDATE queue.schedules SET owner = 'app'::regrole WHERE name = 'mine'")
    bob.fails("42501", "INSERT INTO queue.schedules (name, queue, owner, every, payload, payload_type, home, anchor)"
                       " SELECT 'x', number, 'app'::regrole, '1 h', '1', 'jsonb', '', now() FROM queue.queues")  # fmt: skip
    # what he may no longer do is not done for him
    mail.rows("SELECT queue.revoke('mail', '{push}', '{bob}')")
    due(bob, name="mine")
    assert [row[2] for row in fire(bob)] == [1]
    assert bob.row("SELECT state, error FROM queue.schedules()")[0] == "failing"
    assert "42501" in field(bob, "error", "mine")
    assert jobs(mail) == 0


@pytest.mark.parametrize("mode", ["SHARE UPDATE EXCLUSIVE", "SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"])
def test_a_stranger_stops_nobody(mail, mode):
    """Who may do with some rows what he likes may not lock the table of all."""
    bob = mail.connect("bob")
    for table in ("schedules", "_gone"):
        bob.rows("BEGIN")
        bob.fails("42501", f"LOCK TABLE queue.{table} IN {mode} MODE")
        bob.rows("ROLLBACK")


def test_nobody_makes_the_schedule_of_another_go(mail):
    schedule(mail, every="1 hour")
    bob = mail.connect("bob")
    bob.fails("42704", "INSERT INTO queue._gone (what, name) VALUES ('schedule', 'tick')")
    bob.fails("42501", "DELETE FROM queue.schedules")
    mail.rows("BEGIN")
    mail.rows("SELECT queue.unschedule('tick')")
    assert mail.rows("SELECT * FROM queue.schedules()") == []
    mail.rows("ROLLBACK")
    mail.rows("SELECT queue.unschedule('tick')")
    assert mail.rows("SELECT * FROM queue.schedules()") == []


def test_what_is_due_of_a_queue_that_is_gone(mail):
    """Its row was inserted beside the DROP."""
    watch = mail.connect("postgres")
    schedule(mail, every="1 hour")
    watch.rows("UPDATE queue.schedules SET queue = 999999")
    due(mail)
    assert fire(mail) == []
    assert watch.rows("SELECT FROM queue.schedules") == []


def test_members(mail, cluster):
    watch = mail.connect("postgres")
    watch.rows("CREATE ROLE crew NOLOGIN")
    try:
        watch.rows("GRANT crew TO app, bob")
        mail.rows("SELECT queue.grant('mail', '{push}', '{crew}')")
        notices = mail.notices
        mail.rows("SET ROLE crew")
        schedule(mail, every="1 h")
        mail.rows("RESET ROLE")
        assert 'role "crew" cannot log in: schedule "tick" will not be fired' in notices
        bob = mail.connect("bob")
        assert bob.row("SELECT schedule, owner, state FROM queue.schedules()") == ("tick", "crew", "no login")
        due(bob)
        assert fire(bob) == []  # with a login of the owner alone
        assert bob.rows("SELECT owner, ms FROM queue._schedules_due()")[0] == ("crew", 0)
        bob.rows("SELECT queue.unschedule('tick')")
    finally:
        watch.rows("DROP OWNED BY crew; DROP ROLE crew")


def test_a_full_queue_is_tried_again(db):
    db.create("mail", max_length=1)
    db.create("other")
    schedule(db, every="1 hour")
    schedule(db, "fine", queue="other", every="1 hour")
    db.push("mail", "1")
    due(db)
    due(db, name="fine")
    t = field(db, "next_at")
    assert fire(db) == [("other", 1, 1)]
    assert db.row("SELECT state, left(error, 6), next_at, last_at FROM queue.schedules() WHERE schedule = 'tick'") == (
        "failing", "QB004:", t, None)  # fmt: skip
    assert field(db, "look_at > clock_timestamp()")
    db.rows("SELECT queue.purge('mail')")
    look(db)
    assert fire(db) == [("mail", 1, 0)]
    assert (field(db, "last_at"), field(db, "error")) == (t, None)


def test_pause_and_resume(mail):
    schedule(mail, every="1 hour")
    mail.rows("SELECT queue.pause_schedule('tick')")
    assert mail.value("SELECT state FROM queue.schedules()") == "paused"
    schedule(mail, every="2 hours")  # is paused still
    mail.rows("UPDATE queue.schedules SET next_at = clock_timestamp() - interval '1 day'")
    assert fire(mail) == []
    assert mail.rows("SELECT * FROM queue._schedules_due()") == []
    mail.rows("SELECT queue.resume_schedule('tick')")
    assert mail.row("SELECT state, next_at > clock_timestamp() FROM queue.schedules()") == ("active", True)
    assert fire(mail) == []


def test_trigger(mail):
    schedule(mail, every="1 hour")
    before = mail.row("SELECT xmin, next_at FROM queue.schedules")
    assert mail.value("SELECT queue.trigger_schedule('tick')") == 1
    assert mail.row("SELECT xmin, next_at FROM queue.schedules") == before
    (head,) = headers(mail)
    assert (head["schedule"], head["triggered"]) == ("tick", True)


def test_a_copy_of_the_database_fires_nothing(mail):
    schedule(mail, every="1 hour")
    due(mail)
    mail.rows("UPDATE queue.schedules SET home = '1/2'")
    assert mail.value("SELECT state FROM queue.schedules()") == "copied"
    assert fire(mail) == []
    assert any("is not fired in this copy" in notice for notice in mail.notices)
    assert jobs(mail) == 0
    assert mail.rows("SELECT * FROM queue._schedules_due()") == []
    mail.rows("SELECT queue.resume_schedule('tick')")
    assert mail.row("SELECT state, next_at > clock_timestamp() FROM queue.schedules()") == ("active", True)


def test_drop_of_the_queue(mail):
    schedule(mail, every="1 hour")
    mail.rows("SELECT queue.drop('mail')")
    assert mail.rows("SELECT * FROM queue.schedules") == []


@pytest.mark.parametrize("hold", ["insert", "lock"])
def test_nobody_holds_up_the_drop(mail, hold):
    """With a row of his own, whoever's the queue is."""
    bob = mail.connect("bob")
    if hold == "lock":
        by_hand(bob, 1)
    with bob.conn.transaction():
        if hold == "lock":
            bob.rows("SELECT FROM queue.schedules FOR UPDATE")
        else:
            by_hand(bob, 1)
        mail.rows("SET lock_timeout = '2 s'")
        mail.rows("SELECT queue.drop('mail')")
    # of a queue that is gone
    assert bob.value("SELECT count(*) FROM queue.schedules") == 1 and bob.rows("SELECT * FROM queue.schedules()") == []
    bob.rows("UPDATE queue.schedules SET look_at = now() - interval '1 s', next_at = now() - interval '1 s'")
    assert fire(bob) == [] and bob.value("SELECT count(*) FROM queue.schedules") == 0


def test_drop_while_it_is_fired(mail):
    """Neither waits for the other for long: the one that fires looks again a second later."""
    schedule(mail, every="1 hour")
    due(mail)
    other = mail.connect()
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.q_mail")
        assert fire(mail) == []
    assert field(mail, "look_at > clock_timestamp() - interval '10 s' AND error IS NULL AND runs = 0")
    look(mail)
    assert fire(mail) == [("mail", 1, 0)]


@pytest.mark.parametrize("sqlstate, args, message", [
    ("22023", "'a', 'mail', '1'::text", "either an interval or a cron expression"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', cron => '@daily'", "either an interval or a cron expression"),
    ("22023", "'a', 'mail', '1'::text, cron => '@daily', from_end => true", "FROM END belongs to EVERY"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', zone => 'UTC'", "TIME ZONE belongs to CRON"),
    ("22023", "'a', 'mail', '1'::text, every => '100 ms'", "too often"),
    ("22023", "'a', 'mail', '1'::text, every => '-1 h'", "too often"),
    ("22023", "'a', 'mail', '1'::text, every => '1 month -1 day'", "no interval to repeat by"),
    ("22023", "'a', 'mail', '1'::text, cron => 'nonsense'", "is no cron expression"),
    ("22023", "'a', 'mail', '1'::text, cron => '@daily', zone => 'Europe/Atlantis'", "not recognized"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', missed => 'some'", "MISSED"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', overlap => 'maybe'", "OVERLAP"),
    ("22023", "'a', 'mail', NULL::text, every => '1 h'", "not null"),
    ("22P02", "'a', 'mail', '{'::text, every => '1 h'", "json"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', headers => '[]'", "headers"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', attempts => 0", "ATTEMPTS"),
    ("22023", "'a', 'mail', '1'::text, every => '1 h', on_duplicate => 'ignore'", ""),
    ("42602", "'', 'mail', '1'::text, every => '1 h'", "name"),
    ("42602", "NULL, 'mail', '1'::text, every => '1 h'", "name"),
    ("42602", "repeat('a', 64), 'mail', '1'::text, every => '1 h'", "name"),
    ("42P01", "'a', 'none', '1'::text, every => '1 h'", "does not exist"),
    ("42601", "'a', NULL, '1'::text, every => '1 h'", "needs a queue"),
])  # fmt: skip
def test_refused(mail, sqlstate, args, message):
    assert message in mail.fails(sqlstate, f"SELECT queue.schedule({args})").message_primary
    assert mail.rows("SELECT * FROM queue.schedules") == []


def test_no_such_schedule(db):
    assert db.fails("42704", "SELECT queue.unschedule('none')").message_hint
    db.rows("SELECT queue.unschedule('none', true)")
    for call in ("pause_schedule('none')", "resume_schedule('none')", "trigger_schedule('none')"):
        db.fails("42704", f"SELECT queue.{call}")
    db.fails("22004", "SELECT queue.pause_schedule(NULL)")


@pytest.mark.parametrize("kind, payload, taken", [("text", "hello", "hello"), ("bytea", "\\x00ff", b"\x00\xff")])
def test_other_payloads(db, kind, payload, taken):
    db.create("mail", payload=kind)
    schedule(db, payload=payload, every="1 hour")
    due(db)
    assert fire(db) == [("mail", 1, 0)]
    assert db.value(f"SELECT payload FROM queue.take_{kind}('mail')") == taken


def test_ten_thousand_that_are_not_due(mail):
    """Who looks reads the one that is next, and those that are due."""
    mail.rows("INSERT INTO queue.schedules (name, queue, every, payload, payload_type, home, anchor, next_at, look_at)"
              " SELECT 's' || n, (SELECT number FROM queue.queues), '1 day', '1', 'jsonb', queue._here(), now(),"
              " now() + interval '1 h', now() + interval '1 h' + n * interval '1 s' FROM generate_series(1, 10000) AS n")  # fmt: skip
    ((owner, ms),) = mail.rows("SELECT * FROM queue._schedules_due()")
    assert owner is None and 0 < ms <= 3601000
    assert fire(mail) == []
    watch = mail.connect("postgres")
    plan = "\n".join(watch.column("EXPLAIN SELECT * FROM queue.schedules WHERE look_at <= now() ORDER BY look_at LIMIT 100"))
    assert "Index Scan" in plan


def test_serializable(mail):
    mail.rows("SET default_transaction_isolation = serializable")
    schedule(mail, every="1 hour")
    due(mail)
    assert fire(mail) == [("mail", 1, 0)]


def test_by_hand_is_checked(mail):
    with pytest.raises(psycopg.errors.CheckViolation):
        mail.rows("INSERT INTO queue.schedules (name, queue, every, cron, payload, payload_type, home, anchor)"
                  " SELECT 'x', number, '1 h', '@daily', '1', 'jsonb', '', now() FROM queue.queues")  # fmt: skip


def by_hand(session, how_many=1, name="bad", **fields):
    """Rows that their owner writes himself; a value is SQL."""
    what = {"every": "'1 h'", "payload": "'1'", "payload_type": "'jsonb'", "home": "queue._here()", "anchor": "now()",
            "next_at": "now()", "look_at": "now()", **fields}  # fmt: skip
    session.rows(f"INSERT INTO queue.schedules (name, queue, {', '.join(what)}) SELECT %s || n, q.number,"
                 f" {', '.join(what.values())} FROM queue.queues AS q, generate_series(1, %s) AS n", name, how_many)  # fmt: skip


CRON = {"every": "NULL", "cron": "'x'", "zone": "'UTC'"}


@pytest.mark.parametrize("fields", [
    {**CRON, "bits": "array_fill(0::int8, '{7}')"}, {**CRON, "bits": "array_fill(-1::int8, '{7}')"},
    {**CRON, "bits": "array_fill(1::int8, '{7}', '{9}')"},
    {**CRON, "bits": "queue._cron('@daily')", "zone": "'nowhere'"},
    {**CRON, "bits": "'{-1,-1,-1,-1,-1,-1,0}'", "zone": "'A+167B-167,M1.1.0,M12.5.0'", "next_at": "'4713-01-02 BC'"},
    {**CRON, "bits": "'{-1,-1,-1,-1,-1,-1,0}'", "zone": "'A+167B-167,M1.1.0,M12.5.0'", "next_at": "'2001-01-01'"},
    {"every": "'1 month -29 days'"}, {"every": "'8000 years'"}, {"every": "'1 s'", "anchor": "'4713-01-02 BC'", "next_at": "'4713-01-02 BC'"},
    {"every": "'1 s'", "missed": "'all'", "next_at": "'4713-01-02 BC'"}, {"every": "'1 s'", "missed": "'skip'", "next_at": "'4713-01-02 BC'"},
    {"anchor": "'294276-12-31'", "next_at": "now() - interval '1 h'"}, {"next_at": "'294276-12-31'"}, {"next_at": "NULL"},
    {"from_end": "true", "next_at": "NULL", "last_job": "7"}, {"overlap": "'skip'", "last_job": "7"}, {"runs": "9223372036854775807"},
    {"payload_type": "'bytea'"}, {"payload": "'{'"}, {"headers": "'[1]'"}, {"headers": "'7'"}, {"home": "''"}, {"delay": "'178000000 years'"},
    {"duplicate": "'nonsense'", "key": "'a'"}, {"\"group\"": "repeat('g', 100000)"}, {"expires": "'-1 s'"}, {"attempts": "-1"},
])  # fmt: skip
def test_rows_of_nonsense(mail, fields):
    """They hold up nothing but themselves."""
    schedule(mail, every="1 hour")
    by_hand(mail, **fields)
    due(mail)
    mail.rows("SET statement_timeout = '20s'")
    assert ("app", 0) in mail.rows("SELECT * FROM queue._schedules_due()")
    assert sum(row[1] or 0 for row in fire(mail)) >= 1
    assert field(mail, "runs") == 1
    assert field(mail, "look_at IS NULL OR look_at > clock_timestamp() - interval '20 s'", "bad1")
    assert mail.value("SELECT count(*) FROM queue.schedules()") == 2


@pytest.mark.parametrize("look_at", ["infinity", "-infinity"])
def test_none_is_due_at_infinity(mail, look_at):
    """It could not be subtracted from, for anybody."""
    with pytest.raises(psycopg.errors.CheckViolation):
        by_hand(mail, look_at=f"'{look_at}'")


def test_nobody_hides_another_one(mail):
    schedule(mail, every="1 hour")
    due(mail)
    bob = mail.connect("bob")
    by_hand(bob, 3000, look_at="'4713-01-02 BC'")
    by_hand(bob, name="last", look_at="'294276-12-31'")
    with bob.conn.transaction():
        bob.rows("SELECT FROM queue.schedules FOR UPDATE")
        assert set(mail.column("SELECT owner FROM queue._schedules_due()")) == {"app", "bob", None}
        assert fire(mail) == [("mail", 1, 0)]


def test_owner_who_was_dropped(mail):
    schedule(mail, every="1 hour")
    due(mail)
    watch = mail.connect("postgres")
    watch.rows("CREATE ROLE leaver")
    try:
        watch.rows("UPDATE queue.schedules SET owner = 'leaver'::regrole")
        assert mail.column("SELECT owner FROM queue._schedules_due()") == ["leaver"]
    finally:
        watch.rows("DROP ROLE leaver")
    assert mail.rows("SELECT owner FROM queue._schedules_due()") == []


def test_drop_of_a_queue_with_schedules_of_others(mail):
    by_hand(mail.connect("bob"), 3)
    mail.rows("SELECT queue.drop('mail')")
    assert mail.connect("postgres").rows("SELECT FROM queue.schedules") == []


def test_locked_out_of_many(mail):
    """Other owners do not wait for each of them; what else is due has its turn."""
    by_hand(mail, 30)
    mail.create("other")
    schedule(mail, queue="other", every="1 hour")
    due(mail)
    other = mail.connect()
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.q_mail")
        assert fire(mail) == []
        assert mail.value("SELECT count(*) FROM queue.schedules WHERE look_at = next_at AND name <> 'tick'") >= 20
    while not fire(mail):
        pass


def test_statement_timeout_of_the_owner(mail):
    """It gets through what is due, a part at a time."""
    by_hand(mail, 3000)
    mail.rows("SET statement_timeout = '400ms'")
    have = 0
    while have < 3000:
        ((_, more, failed),) = fire(mail, 3000)
        have += more
        assert failed == 0


def test_failures_are_counted_once(mail):
    for name in ("other", "third"):
        mail.create(name)
        schedule(mail, name, queue=name, every="1 hour")
        due(mail, name=name)
    schedule(mail, every="1 hour")
    mail.rows("UPDATE queue.schedules SET payload = '{' WHERE name = 'tick'")
    due(mail)
    rows = fire(mail)
    assert sorted(row[:2] for row in rows) == [("other", 1), ("third", 1)] and sum(row[2] for row in rows) == 1


def test_last_of_millions(mail):
    """Each second of one month, eleven months ago."""
    month = mail.value("SELECT extract(month FROM now() - interval '11 months')::int")
    schedule(mail, cron=f"* * * * {month} *", zone="UTC")
    due(mail, "700 days")
    mail.rows("SET statement_timeout = '20s'")
    assert fire(mail) == [("mail", 1, 0)]
    assert field(mail, "to_char((last_at + interval '1 s') AT TIME ZONE 'UTC', 'MM DD HH24:MI:SS')") == f"{month % 12 + 1:02} 01 00:00:00"


def test_job_that_ends_in_no_time(db):
    """What the owner of the queue wrote there is not the ruin of other schedules."""
    db.create("mail", retain_done="1 day")
    schedule(db, every="1 hour", from_end=True)
    due(db)
    fire(db)
    (job,) = db.take("mail")
    db.done(job["token"])
    db.connect("postgres").rows("UPDATE queue.a_mail SET ended_at = 'infinity'")
    schedule(db, "other", every="1 hour")
    due(db, name="other")
    look(db)
    assert fire(db) == [("mail", 1, 0)]
    assert field(db, "next_at < clock_timestamp() + interval '1 hour'")


# --- PUBLISH ---


@pytest.fixture
def topic(db):
    """The topic orders, with the queues mail and audit bound to it."""
    db.create("mail")
    db.create("audit")
    db.rows("SELECT queue.create_topic('orders')")
    db.rows("SELECT queue.bind('mail', 'orders.*.paid')")
    db.rows("SELECT queue.bind('audit', 'orders.#')")
    return db


def publish(session, name="tick", topic="orders.eu.paid", payload='{"n": 1}', **named):
    schedule(session, name, None, payload, **(named or {"every": "1 h"}), topic=topic)


def test_publishes(topic):
    publish(topic, every="1 h", priority=2, headers='{"a": 1}')
    assert fire(topic) == []
    due(topic)
    assert sorted(fire(topic)) == [("audit", 1, 0), ("mail", 1, 0)]
    assert fire(topic) == []
    for queue in ("mail", "audit"):
        (head,) = headers(topic, queue)
        assert head["topic"] == "orders.eu.paid" and head["schedule"] == "tick" and head["a"] == 1 and "scheduled_at" in head
    assert topic.row("SELECT queue, topic, runs, state, last_job FROM queue.schedules()") == (None, "orders.eu.paid", 1, "active", None)
    topic.rows("SELECT queue.unbind('mail', 'orders.*.paid'), queue.unbind('audit', 'orders.#')")
    due(topic)
    assert fire(topic) == []
    assert topic.row("SELECT runs, error FROM queue.schedules()") == (2, None)


def test_publishes_each_once_that_was_missed(topic):
    publish(topic, every="1 min", missed="all")
    due(topic, "10 min")
    assert sorted(fire(topic)) == [("audit", 11, 0), ("mail", 11, 0)]
    assert len({head["scheduled_at"] for head in headers(topic)}) == 11


def test_two_publish_at_once(topic):
    publish(topic)
    due(topic)
    other = topic.connect()
    topic.rows("BEGIN")
    assert len(fire(topic)) == 2
    assert fire(other) == []
    topic.rows("COMMIT")
    assert fire(other) == [] and jobs(topic) == 1


def test_rights_of_a_publisher(topic):
    """Those that he has when it is fired count."""
    bob = topic.connect("bob")
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as e:
        publish(bob)
    assert e.value.diag.message_primary == 'permission denied for topic "orders"'
    topic.rows("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    publish(bob)
    due(bob)
    assert len(fire(bob)) == 2
    topic.rows("SELECT queue.revoke_topic('orders', '{publish}', '{bob}')")
    due(bob)
    assert fire(bob) == [(None, None, 1)]
    state, error = bob.row("SELECT state, error FROM queue.schedules()")
    assert state == "failing" and error.startswith("42501: permission denied for topic")
    assert jobs(topic) == 1
    topic.rows("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    look(bob)
    assert len(fire(bob)) == 2 and bob.row("SELECT state, error FROM queue.schedules()") == ("active", None)


def test_a_topic_that_is_gone(topic):
    publish(topic)
    topic.rows("SELECT queue.drop_topic('orders')")
    due(topic)
    assert fire(topic) == [(None, None, 1)]
    assert topic.value("SELECT error FROM queue.schedules()").startswith("42704: ")
    topic.rows("SELECT queue.unschedule('tick')")
    assert topic.rows("SELECT * FROM queue.schedules()") == []


def test_a_publication_that_does_not_fit(topic):
    """All of it, or nothing."""
    publish(topic, payload="no json")
    due(topic)
    assert fire(topic) == [(None, None, 1)]
    assert jobs(topic) == jobs(topic, "audit") == 0 and topic.value("SELECT state FROM queue.schedules()") == "failing"


def test_a_schedule_that_publishes_instead(topic):
    schedule(topic, every="1 h")
    publish(topic)
    publish(topic)
    due(topic)
    assert len(fire(topic)) == 2
    schedule(topic, every="1 h")
    due(topic)
    assert fire(topic) == [("mail", 1, 0)]
    assert topic.value("SELECT queue.trigger_schedule('tick')") == 2 + 1
    publish(topic)
    assert topic.value("SELECT queue.trigger_schedule('tick')") is None
    assert jobs(topic, "audit") == 2


@pytest.mark.parametrize("sqlstate, named", [
    ("22023", {"queue": "mail"}), ("22023", {"topic": "orders.*"}), ("22023", {"topic": ""}), ("42704", {"topic": "none.a"}),
    ("0A000", {"from_end": True}), ("0A000", {"overlap": "skip"}), ("0A000", {"key": "k", "on_duplicate": "replace"}),
    ("22023", {"headers": "[]"})])  # fmt: skip
def test_publish_refused(topic, sqlstate, named):
    named = {"queue": None, "topic": "orders.a", "every": "1 h"} | named
    with pytest.raises(psycopg.Error) as e:
        schedule(topic, **named)
    assert e.value.sqlstate == sqlstate and e.value.diag.message_hint
