"""HEALTH: what is well and what is not, each made so."""

import struct

import psycopg
import pytest
from psycopg import pq

from proxy import wait_for


@pytest.fixture
def q(db):
    db.create("q")
    return db


def row(db, about, name=None):
    """What HEALTH says of it: ok, value, hint; None: nothing."""
    rows = [r for r in db.rows("SELECT about, name, ok, value, hint FROM queue.health()") if r[0] == about and name in (None, r[1])]
    assert len(rows) < 2
    return rows[0][2:] if rows else None


def test_a_queue_that_is_well(q):
    ok, value, hint = row(q, "queue", "q")
    assert (ok, hint) == (True, None)
    assert value.startswith("nothing is ready, 0 dead rows beside 0, ") and value.endswith("kB, never vacuumed")
    q.push("q", "1")
    assert "the oldest is ready for 0." in row(q, "queue", "q")[1]
    assert row(q, "queue", "q")[0]


def test_nobody_works(q):
    q.push("q", "1", "2")
    q.rows("UPDATE queue.q_q SET run_at = run_at - interval '3 h', pushed_at = pushed_at - interval '3 h' RETURNING 1")
    ok, value, hint = row(q, "queue", "q")
    assert (ok, hint) == (False, "Nobody works on its jobs. QUEUE WORKERS q") and "ready for 3 h 0 min" in value
    q.rows("SELECT queue.pause('q')")
    assert row(q, "queue", "q")[0] and "paused" in row(q, "queue", "q")[1]
    q.rows("SELECT queue.resume('q')")
    q.take("q")
    assert row(q, "queue", "q")[0]


def test_maintenance_is_behind(q):
    q.push("q", "1")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    assert row(q, "queue", "q")[0]
    q.rows("UPDATE queue.q_q SET ended_at = now() - interval '9000 days' RETURNING 1")
    ok, value, hint = row(q, "queue", "q")
    assert not ok and "maintenance is behind by " in value and "no proxy attends it" in hint
    q.rows("SELECT queue.maintain()")
    assert row(q, "queue", "q")[0]


def held(db, about, name, old="1 min"):
    """Of whom no young ones are left out."""
    rows = db.rows("SELECT ok, value, hint FROM queue._holders('-1 s', %s, 0) WHERE about = %s AND name = %s", old, about, name)
    assert len(rows) < 2
    return rows[0] if rows else None


def test_who_holds_back_vacuum(q):
    bob = q.connect("bob")
    name = "pid %d" % bob.conn.info.backend_pid
    bob.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    bob.rows("SELECT 'a   secret'")
    q.push("q", "1")  # of others' times nothing is told: it counts how many transactions ago
    ok, value, hint = held(q, "snapshot", name)
    assert (ok, hint) == (True, "SELECT pg_terminate_backend(%s)" % name[4:])
    assert "bob" in value and "secret" not in value, "app may not read what bob says"
    ok, value, hint = held(q.connect("postgres"), "snapshot", name, old="-1 s")
    assert not ok and value.startswith("for 0.") and " transactions back, bob, " in value
    assert "idle in transaction, SELECT 'a secret'" in value
    assert row(q, "snapshot", name) is None, "it is young"
    bob.rows("ROLLBACK")
    assert held(q, "snapshot", name) is None


def test_a_prepared_transaction(q):
    q.rows("BEGIN")
    q.push("q", "1")
    q.rows("PREPARE TRANSACTION 'it''s'")
    try:
        ok, value, hint = held(q, "prepared transaction", "it's", old="-1 s")
        assert not ok and value.endswith(" back, app") and hint == "COMMIT PREPARED 'it''s', or ROLLBACK PREPARED 'it''s'"
    finally:
        q.rows("ROLLBACK PREPARED 'it''s'")
    assert held(q, "prepared transaction", "it's") is None


def test_a_replication_slot(q):
    """What a standby has said of its oldest snapshot stays in its slot when it is gone."""
    root = q.connect("postgres")
    root.rows("SELECT pg_create_physical_replication_slot('standby', true)")
    try:
        q.push("q", "1")
        xmin = int(root.value("SELECT pg_current_xact_id()::text"))
        dsn = psycopg.conninfo.make_conninfo(root.conn.info.dsn, replication="true")
        walsender = pq.PGconn.connect(dsn.encode())
        at = root.value("SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = 'standby'")
        got = walsender.exec_(b"START_REPLICATION SLOT standby PHYSICAL %s" % at.encode())
        assert got.status == pq.ExecStatus.COPY_BOTH, walsender.error_message
        walsender.put_copy_data(b"h" + struct.pack("!qIIII", 0, xmin % 2**32, xmin >> 32, 0, 0))
        walsender.flush()
        of = "SELECT ok, value, hint FROM queue._holders('10 s', '1 min', %s, %s) WHERE name = 'standby'"
        wait_for(lambda: root.value("SELECT xmin::text FROM pg_replication_slots WHERE slot_name = 'standby'"), "its snapshot")
        for _ in range(3):
            q.push("q", "1")
        ((ok, value, hint),) = q.rows(of, 0, 100)
        assert ok and " transactions back, " in value and value.endswith(", physical, in use")
        assert hint.startswith("Process ")
        walsender.finish()
        wait_for(lambda: not root.value("SELECT active FROM pg_replication_slots WHERE slot_name = 'standby'"), "that it is gone")
        assert q.rows(of, 0, 1) == [(False, q.rows(of, 0, 1)[0][1],
                                           "Nobody reads it. SELECT pg_drop_replication_slot('standby')")]
        assert q.rows(of, 1000, 1000) == [], "it holds back too little to be told of"
        wal = "SELECT ok, value, hint FROM queue._wal_holders(%s) WHERE name = 'standby'"
        ((ok, value, hint),) = q.rows(wal, 1)
        assert not ok and value.endswith(" of WAL, physical, not in use") and "pg_drop_replication_slot('standby')" in hint
        assert q.rows(wal, 2**40) == []
    finally:
        root.rows("SELECT pg_drop_replication_slot('standby')")


@pytest.mark.parametrize("t, text", [
    ("0", "0.0 s"), ("1.26 s", "1.3 s"), ("59.9 s", "59 s"), ("61 s", "1 min 1 s"), ("2 h 3 min 59 s", "2 h 3 min"), ("49 h", "2 d 1 h"),
    ("-1 h", "0.0 s")])
def test_roughly(db, t, text):
    assert db.value("SELECT queue._roughly(%s)", t) == text


def test_schedules(q):
    q.rows("SELECT queue.schedule('s', 'q', every => '1 h', payload => '1')")
    assert row(q, "schedule", "s")[::2] == (True, None)
    q.rows("UPDATE queue.schedules SET next_at = now() - interval '2 h' RETURNING 1")
    ok, value, hint = row(q, "schedule", "s")
    assert not ok and hint.startswith("Late by 2 h 0 min: no proxy attends this database with a login of app.")
    root = q.connect("postgres")
    root.rows("ALTER ROLE app NOLOGIN")
    try:
        assert row(q, "schedule", "s") == (False, row(q, "schedule", "s")[1], "ALTER ROLE app LOGIN: schedules are fired as their owner.")
    finally:
        root.rows("ALTER ROLE app LOGIN")
    q.rows("UPDATE queue.schedules SET home = 1 RETURNING 1")
    assert row(q, "schedule", "s")[2] == "The database is a copy. QUEUE RESUME SCHEDULE s"
    assert q.rows("SELECT about FROM queue.health('q') WHERE about = 'schedule'") == [("schedule",)]
    q.create("r")
    assert q.rows("SELECT about FROM queue.health('r') WHERE about = 'schedule'") == []


def test_schedules_that_publish(q):
    """Of one queue, or stream: those that it is bound to."""
    q.create("r")
    q.rows("SELECT queue.create_topic('t'), queue.create('s', false, '{kind}', '{stream}')")
    for name, topic in (("exact", "t.a.b"), ("pattern", "t.c"), ("other", "t.d.e")):
        q.rows("SELECT queue.schedule(%s, NULL, '1'::jsonb, every => '1 h', topic => %s)", name, topic)
    q.rows("SELECT queue.bind('q', 't.a.b'), queue.bind('q', 't.*'), queue.bind('s', 't.#'), queue.bind('r', 't')")
    shown = "SELECT name FROM queue.health(%s) WHERE about = 'schedule' ORDER BY 1"
    assert q.column(shown, "q") == ["exact", "pattern"]
    assert q.column(shown, "s") == q.column(shown, None) == ["exact", "other", "pattern"]
    assert q.column(shown, "r") == []


def test_proxies(q):
    assert row(q, "proxy") == (False, "none hears of pushes", q.value("SELECT hint FROM queue.health() WHERE about = 'proxy'"))
    proxy = q.connect()
    proxy.rows("SELECT pg_advisory_lock_shared(1902276469, 7)")
    ok, value, hint = row(q, "proxy", "7")
    assert (ok, hint) == (True, None) and value.startswith("app, hears of pushes since ")


def test_rights(q):
    """Who may not read a queue is not told of it."""
    q.fails("42P01", "SELECT queue.health('nosuch')")
    bob = q.connect("bob")
    assert [r for r in bob.rows("SELECT about FROM queue.health()") if r[0] == "queue"] == []
