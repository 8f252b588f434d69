"""max_running, rate, hours: the limits of a queue."""

import threading
import time

import psycopg
import pytest

TAKE = "SELECT id FROM queue.take('q', %s) ORDER BY id"


def take(s, n=100):
    return s.column(TAKE, n)


def tokens(s, n=100):
    return s.column("SELECT token FROM queue.take('q', %s) ORDER BY id", n)


def made(db, **options):
    db.create("q", **options)
    db.rows("INSERT INTO queue.q_q (payload) SELECT to_jsonb(n) FROM generate_series(1, 200) n")


def test_max_running(db):
    made(db, max_running=3)
    first = tokens(db)
    assert len(first) == 3
    assert take(db) == []
    other = db.connect()
    assert take(other) == []
    db.rows("SELECT queue.done(%s)", first[0])
    assert take(other, 1) == [4] and take(db) == []
    db.rows("SELECT queue.fail(%s, 'x')", first[1])
    db.rows("SELECT queue.release(%s)", first[2])
    assert take(db) == [3, 5]


def test_a_lease_that_is_over_makes_room_and_is_not_alive_again(db):
    made(db, max_running=1)
    (token,) = tokens(db)
    db.expire("q")
    (next_one,) = take(db)
    assert db.rows("SELECT token, state FROM queue._renew(ARRAY[%s], '1 min')", token) == [(token, "lost")]
    assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") == 1
    assert next_one != 1
    # one that its worker renews at this moment runs
    db.rows("UPDATE queue.q_q SET lease_until = now() - interval '1 s' WHERE state = 'leased'")
    other = db.connect()
    with other.conn.transaction():
        other.rows("SELECT FROM queue.q_q WHERE id = %s FOR UPDATE", next_one)
        assert take(db) == []


@pytest.mark.parametrize("most", [1, 1000])
def test_what_expires_goes_while_as_many_run_as_may(db, most):
    """So it is not looked at again by each take; and how long it lasts is the time of what runs."""
    made(db, max_running=most)
    db.rows("INSERT INTO queue.q_q (payload) SELECT '1' FROM generate_series(1, %s)", 2 * most)
    assert len(take(db, most)) == most
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE state = 'ready'")
    db.rows("UPDATE queue.q_q SET lease_until = now() + interval '1 min' WHERE state = 'leased'")
    for _ in range(3):
        ms = db.due_ms("q")
    assert 50000 < ms <= 60000
    assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'ready'") == 0


def test_an_end_that_is_not_committed_counts_as_running(db):
    made(db, max_running=1)
    (token,) = tokens(db)
    other = db.connect()
    with other.conn.transaction():
        other.rows("SELECT queue.done(%s)", token)
        assert take(db) == []
    assert take(db) == [2]


def test_a_take_that_is_rolled_back_gives_back(db):
    made(db, max_running=2, rate="2/d burst 2")
    other = db.connect()
    with pytest.raises(ZeroDivisionError):
        with other.conn.transaction():
            assert take(other) == [1, 2]
            raise ZeroDivisionError
    assert take(db) == [1, 2]


@pytest.mark.parametrize("group", [None, "g"])
def test_an_end_while_a_take_reads_the_notes_has_its_pause(db, group):
    """A take waits for a note of before; when it goes on, the job that ran has ended, and its place is free."""
    db.create("q", **({"pause_per_group": "1 hour"} if group else {"max_running": 2, "pause": "1 hour"}))
    db.rows('INSERT INTO queue.q_q (payload, "group") SELECT to_jsonb(n), %s FROM generate_series(1, 9) n', group)
    first = tokens(db)
    other, third = db.connect(), db.connect()
    with third.conn.transaction():
        if group:
            db.rows("INSERT INTO queue.n1_noted (\"group\") VALUES ('g')")
        else: # as of one whose pause is over
            db.rows("INSERT INTO queue.n1_noted (ended) VALUES (now() - interval '2 hours')")
        third.rows("SELECT FROM queue.n1_noted FOR UPDATE")
        waits = other.beside(take, other)
        db.until_blocked(other)
        db.rows("SELECT queue.done(%s)", first[0])
    assert waits.result() == [] and take(db) == []


def test_takes_of_one_queue_wait_for_each_other(db):
    made(db, max_running=3)
    other = db.connect()
    with other.conn.transaction():
        assert take(other, 2) == [1, 2]
        waiter = db.beside(take, db)
        db.until_blocked(db)
    assert waiter.result() == [3]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_exact_in_an_old_snapshot(db, level):
    made(db, max_running=3)
    other = db.connect()
    other.rows("BEGIN ISOLATION LEVEL " + level)
    other.rows("SELECT count(*) FROM queue.queues")
    assert take(db) == [1, 2, 3]
    other.fails("40001", TAKE, 5)
    other.rows("ROLLBACK")


def test_rate(db):
    made(db, rate="10/h")
    assert take(db) == [1]
    assert take(db) == []
    due = db.value("SELECT queue._closed_ms(c) FROM queue.queues c")
    assert 359_000 < due <= 360_000
    # half an hour later: not five, as none is kept, but with a burst
    db.rows("UPDATE queue.n%s_gate SET tat = tat - interval '30 min'" % db.value("SELECT number FROM queue.queues"))
    assert take(db) == [2]
    db.rows("SELECT queue.alter('q', '{rate}', '{10/h burst 4}')")
    db.rows("UPDATE queue.n%s_gate SET tat = tat - interval '30 min'" % db.value("SELECT number FROM queue.queues"))
    assert take(db) == [3, 4, 5, 6] and take(db) == []
    # a clock that was set back by days: an hour and a burst at most
    db.rows("UPDATE queue.n%s_gate SET tat = tat + interval '30 days'" % db.value("SELECT number FROM queue.queues"))
    assert db.value("SELECT queue._closed_ms(c) FROM queue.queues c") <= 360_000


def test_rate_of_pop(db):
    made(db, rate="10/h burst 3", max_running=1)
    assert db.column("SELECT id FROM queue.pop('q', 1)") == [1]
    assert db.column("SELECT id FROM queue.pop('q', 1)") == [2]
    assert db.column("SELECT id FROM queue.pop('q', 10)") == [3]
    assert db.column("SELECT id FROM queue.pop('q', 10)") == []


def test_rate_over_time(db):
    made(db, rate="1000/s")
    began = time.monotonic()
    got = 0
    while got < 200:
        got += len(take(db, 7))
    # 50 at once, the others at their pace; never faster, whatever the machine does
    assert time.monotonic() - began >= 0.149


@pytest.mark.parametrize("hours,moment,ms", [
    ("22:00-06:00 UTC", "2026-01-01 23:00+00", 0),
    ("22:00-06:00 UTC", "2026-01-01 05:59:59+00", 0),
    ("22:00-06:00 UTC", "2026-01-01 06:00+00", 16 * 3600_000),
    ("22:00-06:00 UTC", "2026-01-01 21:59:59.5+00", 500),
    ("09:00-17:30 UTC", "2026-01-01 09:00+00", 0),
    ("09:00-17:30 UTC", "2026-01-01 17:30+00", 15 * 3600_000 + 1800_000),
    ("09:00-17:30 Europe/Berlin", "2026-07-01 07:00+00", 0),
    ("09:00-17:30 Europe/Berlin", "2026-07-01 06:59+00", 60_000),
    # 02:30 is left out: the next moment that is within
    ("02:30-05:00 Europe/Berlin", "2026-03-29 00:30+00", 3600_000),
    ("02:15-02:45 Europe/Berlin", "2026-10-25 00:20+00", 0),
    ("02:15-02:45 Europe/Berlin", "2026-10-25 01:20+00", 0),
])
def test_hours(db, hours, moment, ms):
    assert db.value("SELECT queue._until_hours(%s, %s)", hours, moment) == ms


def test_nothing_outside_of_the_hours(db):
    now = db.value("SELECT now() AT TIME ZONE 'UTC'")
    made(db, hours="%02d:00-%02d:00 UTC" % ((now.hour + 2) % 24, (now.hour + 3) % 24))
    assert take(db) == []
    assert db.value("SELECT queue._closed_ms(c) FROM queue.queues c") > 3600_000
    db.rows("SELECT queue.alter('q', reset_names => '{hours}')")
    assert take(db, 1) == [1]


@pytest.mark.parametrize("option,value", [
    ("max_running", "0"), ("max_running", "10001"), ("max_running", "many"), ("rate", "5"), ("rate", "0/s"), ("rate", "5/week"),
    ("rate", "100000/s"), ("rate", "5/s burst 0"), ("hours", "9-17"), ("hours", "24:00-06:00"), ("hours", "09:00-09:00"),
    ("hours", "09:00-17:00 Nowhere/Here"), ("hours", "09:60-17:00"),
])
def test_bad_limits(db, option, value):
    assert db.fails("22023", "SELECT queue.create('q', false, ARRAY[%s], ARRAY[%s])", option, value).message_hint


@pytest.mark.parametrize("option,value,kept", [
    ("rate", "100 / minute  burst 20", "100/min burst 20"), ("rate", "5/Sec", "5/s"), ("hours", "9:00 - 17:30 UTC", "09:00-17:30 UTC"),
])
def test_as_it_is_kept(db, option, value, kept):
    db.create("q", **{option: value})
    assert db.value("SELECT %s FROM queue.list()" % option) == kept


def test_set_and_reset_with_jobs_inside(db):
    made(db)
    held = tokens(db, 5)
    db.rows("SELECT queue.alter('q', '{max_running}', '{3}')")
    assert take(db) == []           # five run
    for token in held[:3]:
        db.rows("SELECT queue.done(%s)", token)
    assert take(db) == [6]
    db.rows("SELECT queue.alter('q', '{max_running}', '{4}')")
    assert take(db) == [7]
    db.rows("SELECT queue.alter('q', reset_names => '{max_running}')")
    assert len(take(db, 10)) == 10
    number = db.value("SELECT number FROM queue.queues")
    assert db.value("SELECT to_regclass('queue.n%s_gate')" % number) is None
    assert db.value("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'freed%%'") == 0
    db.rows("SELECT queue.alter('q', '{rate,unlogged}', '{1/h,true}')")
    db.rows("SELECT queue.drop('q')")
    assert db.column("SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace AND proname ~ '_%s$'" % number) == []
    assert db.column("SELECT relname FROM pg_class WHERE relname ~ '^n%s_'" % number) == []


@pytest.mark.parametrize("before", [True, False])
def test_who_may_take_may_use_the_gate(db, before):
    made(db)
    bob = db.connect("bob")
    if before:
        db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    db.rows("SELECT queue.alter('q', '{max_running}', '{2}')")
    if not before:
        bob.fails("42501", TAKE, 1)
        bob.fails("42501", "SELECT * FROM queue.n%s_gate FOR UPDATE" % db.value("SELECT number FROM queue.queues"))
        db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    assert take(bob) == [1, 2]
    db.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    bob.fails("42501", TAKE, 1)
    bob.fails("42501", "SELECT * FROM queue.n%s_gate" % db.value("SELECT number FROM queue.queues"))


def test_the_gate_is_empty(db):
    """As that of an unlogged queue is after a crash."""
    made(db, max_running=2, unlogged=True)
    assert take(db, 1) == [1]
    db.rows("DELETE FROM queue.n%s_gate" % db.value("SELECT number FROM queue.queues"))
    assert take(db) == [2]


def test_several_queues(db):
    made(db, max_running=1)
    db.create("other")
    db.rows("INSERT INTO queue.q_other (payload) VALUES ('1'), ('2')")
    assert db.column("SELECT queue FROM queue._take('{q,other}', 10, NULL, NULL, false) WHERE id IS NOT NULL") == [
        "q", "other", "other"]
    assert db.column("SELECT due_ms FROM queue._take('{q,other}', 1, NULL, NULL, false)")[0] > 250_000


def test_nothing_is_written_by_a_take_that_finds_nothing(db):
    made(db, max_running=1)
    take(db)
    gate = "queue.n%s_gate" % db.value("SELECT number FROM queue.queues")
    was = db.rows("SELECT seq, running FROM " + gate)
    assert take(db) == [] and db.rows("SELECT seq, running FROM " + gate) == was == [(2, [1])]


def test_never_more_than_the_limit(db):
    """Eight who take and end at once; some hold their transactions, some roll back."""
    made(db, max_running=3)
    sessions = [db.connect() for _ in range(8)]
    ended, problems = [], []

    def work(n, s):
        try:
            while len(ended) < 180:
                for token in tokens(s, 2):
                    if db_running(s) > 3:
                        problems.append("too many")
                    if n % 3 == 0:
                        with s.conn.transaction():
                            s.rows("SELECT queue.done(%s)", token)
                    elif n % 3 == 1 and len(ended) % 7 == 0:
                        s.rows("SELECT queue.release(%s)", token)
                        continue
                    else:
                        s.rows("SELECT queue.done(%s)", token)
                    ended.append(token)
        except psycopg.Error as e:
            problems.append(repr(e))

    def db_running(s):
        return s.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased' AND lease_until > clock_timestamp()")

    threads = [threading.Thread(target=work, args=x) for x in enumerate(sessions)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert problems == []


# --- set and reset while it is used ------------------------------------------------------------------


def workers(db, n, until, sql="SELECT token FROM queue.take('q', 2)"):
    """They take and end, and repeat what is 40001; what else they hear."""
    problems = []

    def work(s):
        while not until.is_set():
            try:
                for token in s.column(sql):
                    s.rows("SELECT queue.done(%s)", token)
            except psycopg.Error as e:
                if e.sqlstate != "40001":
                    problems.append(repr(e))
    threads = [threading.Thread(target=work, args=(db.connect(),)) for _ in range(n)]
    for t in threads:
        t.start()
    return threads, problems


def test_set_and_reset_under_load(db):
    made(db)
    db.rows("INSERT INTO queue.q_q (payload) SELECT to_jsonb(n) FROM generate_series(1, 20000) n")
    until = threading.Event()
    threads, problems = workers(db, 4, until)
    try:
        for n in range(6):
            db.rows("SELECT queue.alter('q', '{max_running,rate}', ARRAY[%s, '90000/s'])", str(n + 1))
            db.rows("SELECT queue.alter('q', '{max_running}', '{2}', '{rate}')")
            assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") <= 8
            db.rows("SELECT queue.alter('q', reset_names => '{max_running}')")
    finally:
        until.set()
        for t in threads:
            t.join()
    assert problems == []


def test_takes_that_waited_for_the_alter_go_through_the_gate(db):
    made(db)
    (token,) = tokens(db, 1)
    ender, alters = db.connect(), db.connect()
    takers = [db.connect() for _ in range(3)]
    ender.rows("BEGIN")
    ender.rows("SELECT queue.done(%s)", token)
    altered = alters.beside(alters.rows, "SELECT queue.alter('q', '{max_running}', '{1}')")
    db.until_blocked(alters)
    waiting = [s.beside(take, s, 3) for s in takers]
    for s in takers:
        db.until_blocked(s)
    ender.rows("COMMIT")
    altered.result()
    for w in waiting:
        w.error_of("40001")
    assert take(db) == [2] and take(db) == []


# As the proxy calls it: the queue's row is read before the function waits.
DIRECT = """SELECT t.id FROM queue.queues AS c, LATERAL queue._take_%s(c, 5, '1 h', 'w', NULL, false, NULL, NULL, NULL,
    clock_timestamp(), NULL) AS t WHERE c.name = 'q' AND t.id IS NOT NULL ORDER BY t.id"""


@pytest.mark.parametrize("before, after, gets", [
    ({"max_running": 1}, {"max_running": 3}, [2, 3]),
    ({"max_running": 3}, {"max_running": 1}, []),
    ({"max_running": 1}, {"max_running": 600}, list(range(2, 12))),
    ({"rate": "9/h burst 1"}, {"rate": "9/h burst 3"}, [2, 3]),
    ({"max_running_per_group": 1, "rate_per_group": "9/h burst 5"}, {"max_running_per_group": 2}, [2]),
    ({"max_running_per_group": 2}, {"max_running_per_group": "none"}, list(range(2, 12))),
    ({"max_running_per_group": 3}, {"max_running_per_group": 2}, [2]),
    ({"max_running_per_group": "none", "rate_per_group": "1/h"}, {"rate_per_group": "1/h burst 3"}, [2, 3]),
    ({"max_running_per_group": "none", "rate_per_group": "9/h burst 9"}, {"rate_per_group": "1/h"}, []),
    ({"max_running_per_group": "none", "fair": "group", "rate": "9/h burst 3"}, {"rate": "9/h burst 4"}, [2, 3, 4]),
])
def test_a_take_that_waited_for_an_alter_knows_its_limits(db, before, after, gets):
    db.create("q", **{"max_running_per_group": "none", **before})
    db.rows("INSERT INTO queue.q_q (payload, \"group\") SELECT to_jsonb(n), 'g' FROM generate_series(1, 20) n")
    assert take(db, 1) == [1]
    alters, direct, plain = db.connect(), db.connect(), db.connect()
    direct_take = DIRECT % db.value("SELECT number FROM queue.queues")
    for other in (direct, plain):
        other.column(direct_take.replace("c, 5,", "c, 0,"))     # its plans are made
    alters.rows("BEGIN")
    alters.rows("SELECT queue.alter('q', %s, %s)", list(after), [str(v) for v in after.values()])
    waits = direct.beside(direct.column, direct_take)
    db.until_blocked(direct)
    also = plain.beside(take, plain, 5)
    db.until_blocked(plain)
    alters.rows("COMMIT")
    waits.error_of("40001")
    assert also.result() + direct.column(direct_take) == gets


def test_a_take_that_waited_for_an_alter_knows_its_pauses(db):
    for name, option in (("q", "pause"), ("q", "pause_per_group")):
        db.create(name, max_running_per_group="none", **{option: "1 h"})
        db.rows("INSERT INTO queue.q_q (payload, \"group\") SELECT to_jsonb(n), 'g' FROM generate_series(1, 20) n")
        (token,) = tokens(db, 1)
        db.rows("SELECT queue.done(%s)", token)
        alters, direct, plain = db.connect(), db.connect(), db.connect()
        alters.rows("BEGIN")
        alters.rows("SELECT queue.alter('q', %s, '{1 ms}')", [option])
        waits = direct.beside(direct.column, DIRECT % db.value("SELECT number FROM queue.queues"))
        db.until_blocked(direct)
        also = plain.beside(take, plain, 1)
        db.until_blocked(plain)
        alters.rows("COMMIT")
        waits.error_of("40001")
        assert also.result() + take(db, 1) + take(db, 1) == [2, 3, 4]
        db.rows("SELECT queue.drop('q')")


# What the proxy knows of the head of the queue comes with it.
FROM_THE_HEAD = """SELECT t.token, t.place FROM queue.queues AS c, LATERAL queue._take_1(c, 1, '1 h', 'w', NULL, false, '{0}',
    ARRAY[%s::int8], (extract(epoch FROM clock_timestamp()) * 1000000)::int8, clock_timestamp(), NULL) AS t WHERE t.id IS NOT NULL"""

ENTRIES_READ = """SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) FROM pg_index AS i
    WHERE i.indrelid = ANY (SELECT c.oid FROM pg_class AS c WHERE c.relname IN ('n1_gate', 'n1_noted', 'n1_groups'))"""


@pytest.mark.parametrize("options", [{"max_running": 20}, {"max_running": 600}, {"rate": "9999/s burst 9999"}, {"pause": "1 ms"},
                                     {"max_running_per_group": 3}, {"max_running_per_group": "none", "fair": "group"},
                                     {"rate_per_group": "9999/s burst 9999"}, {"max_running_per_group": 3, "pause_per_group": "1 ms"}])
def test_a_take_reads_no_more_under_a_held_snapshot(db, options):
    """Of what the limits have written; dead rows too."""
    db.create("q", **options)
    holder = db.connect()
    holder.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.rows("SELECT count(*) FROM queue.queues")
    read, place = [], 0
    while len(read) < 300:
        db.rows("SELECT queue.push('q', '1'::jsonb, \"group\" => %s)", "g%d" % (len(read) % 3))
        db.rows("BEGIN")
        before = db.value(ENTRIES_READ)
        jobs = db.rows(FROM_THE_HEAD, place)
        n = db.value(ENTRIES_READ)
        db.rows("COMMIT")
        for token, at in jobs:
            read.append(n - before)
            place = at + 1
            db.rows("SELECT queue.done(%s)", token)
    assert sum(read[250:]) <= sum(read[50:100]) + 50, (sum(read[50:100]), sum(read[250:]))


def test_an_old_snapshot_knows_no_limit_that_came_later(db):
    made(db)
    old, lowered = db.connect(), db.connect()
    for s in (old, lowered):
        s.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
        s.rows("SELECT count(*) FROM queue.queues")
    db.rows("SELECT queue.alter('q', '{max_running}', '{5}')")
    old.fails("40001", TAKE, 5)
    lowered.rows("ROLLBACK")
    lowered.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    lowered.rows("SELECT count(*) FROM queue.queues")
    db.rows("SELECT queue.alter('q', '{max_running}', '{1}')")
    lowered.fails("40001", TAKE, 5)
    assert len(take(db)) == 1


def test_several_limited_queues_in_any_order(db):
    for name in ("q", "r"):
        db.create(name, max_running=3)
        db.rows("INSERT INTO queue.q_%s (payload) SELECT to_jsonb(n) FROM generate_series(1, 400) n" % name)
    until = threading.Event()
    both = [workers(db, 2, until, "SELECT token FROM queue._take('{%s}', 2, NULL, NULL, false) WHERE id IS NOT NULL" % names)
            for names in ("q,r", "r,q")]
    while db.value("SELECT count(*) FROM queue.q_q") + db.value("SELECT count(*) FROM queue.q_r") > 200 \
            and not any(problems for _, problems in both):
        pass
    until.set()
    for threads, _ in both:
        for t in threads:
            t.join()
    assert [problems for _, problems in both] == [[], []]


@pytest.mark.parametrize("row", ["(9223372036854775807, '{}', '-infinity')",
                                 "(5000, array_fill(1::int8, ARRAY[10001]), '-infinity')"])
def test_a_row_that_somebody_has_put_into_the_gate(db, row):
    made(db, max_running=2)
    assert take(db, 1) == [1]
    db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    db.connect("bob").rows("INSERT INTO queue.n%s_gate VALUES %s" % (db.value("SELECT number FROM queue.queues"), row))
    assert take(db) == [2] and take(db) == []


def test_a_burst_of_ages(db):
    db.fails("22023", "SELECT queue.create('q', false, '{rate}', '{1/d burst 999999999}')")
    db.create("q", rate="1/d burst 366")


def test_the_next_of_a_group_that_is_locked_holds_up_one_take_alone(db):
    made(db, max_running=5)
    db.rows("DELETE FROM queue.q_q")
    db.rows("SELECT queue.push('q', to_jsonb(n), \"group\" => 'g') FROM generate_series(1, 2) n")
    db.rows("UPDATE queue.q_q SET max_attempts = 1")
    assert len(take(db)) == 1
    db.rows("INSERT INTO queue.q_q (payload) VALUES ('3'), ('4')")
    db.expire("q")
    locker, first = db.connect(), db.connect()
    locker.rows("BEGIN")
    locker.rows("DELETE FROM queue.q_q WHERE state = 'blocked'")
    waiting = first.beside(take, first, 1)
    db.until_blocked(first)
    assert len(take(db, 1)) == 1
    locker.rows("ROLLBACK")
    assert len(waiting.result()) == 1


def test_no_place_is_made_by_an_end_where_only_the_rate_counts(db):
    made(db, rate="90000/s")
    assert db.value("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'freed%%'") == 0
    db.rows("SELECT queue.alter('q', '{max_running}', '{3}')")
    assert db.value("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'freed%%'") == 2


@pytest.mark.parametrize("how", ["ALTER", "the clock was set back"])
def test_what_is_used_up_for_longer_than_the_burst_lasts(db, how):
    """It is not so for ever, as each take begins that anew."""
    made(db, rate="1/h" if how == "ALTER" else "100/s")
    assert take(db, 1) == [1]
    if how == "ALTER":
        db.rows("SELECT queue.alter('q', '{rate}', '{100/s}')")
    else:
        db.rows("UPDATE queue.n1_gate SET tat = tat + interval '1 day'")
    assert take(db) == []
    assert db.value("SELECT tat < now() + interval '1 s' FROM queue.n1_gate")
    deadline = time.monotonic() + 30
    while (got := take(db, 1)) == []:
        assert time.monotonic() < deadline
    assert got == [2]


@pytest.mark.parametrize("most", [3, 501])
def test_truncated_while_all_places_are_taken(db, most):
    """Nobody is told of that; the next take finds that none of them is there."""
    db.create("q", max_running=most)
    db.rows("SELECT queue.push('q', '1') FROM generate_series(1, 600)")
    assert len(take(db, most)) == most and take(db) == []
    db.rows("TRUNCATE queue.q_q")
    db.rows("SELECT queue.push('q', '1') FROM generate_series(1, 600)")
    assert len(take(db, 600)) == most


def test_one_that_fails_and_is_taken_again_while_many_are_counted(db):
    """Of more than 500 the ends are noted, and now and then all are looked up. Who ends between the two, and is taken at
    once, is not forgotten when its note is read."""
    db.create("q", max_running=501)
    db.rows("SELECT queue.push('q', '1') FROM generate_series(1, 501)")
    jobs = dict(db.rows("SELECT id, token FROM queue.take('q', 501)"))
    n = db.value("SELECT number FROM queue.queues")
    db.rows(f"INSERT INTO queue.n{n}_noted (id) VALUES (9999)")
    locks = db.connect()
    locks.rows("BEGIN")
    locks.rows(f"SELECT FROM queue.n{n}_noted WHERE id = 9999 FOR UPDATE")
    taker = db.connect()
    seed = next(s for s in range(10000) if taker.row("SELECT setseed(%s / 10000.0)::text, random()", s)[1] < 0.01)
    taker.rows("SELECT setseed(%s / 10000.0)", seed)
    waiting = taker.beside(taker.column, "SELECT id FROM queue.take('q', 5)")
    db.until_blocked(taker)
    db.rows("SELECT queue.fail(%s, 'x', retry_in => '0')", jobs[1])
    locks.rows("COMMIT")
    got = waiting.result()
    db.rows("SELECT queue.push('q', '1') FROM generate_series(1, 9)")
    for _ in range(3):
        got += db.column("SELECT id FROM queue.take('q', 5)")
        assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") == 501 and len(got) == 1
