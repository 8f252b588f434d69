"""The look for leases of gone proxies beside those who have no part in it: a role without rights, a transaction that is
held open, and texts as large as they may be."""

import pytest

from test_hold import CLASS, orphans, take_as
from test_stream import make, put, take

GONE = 4712
STEP = "SELECT queue, next FROM queue._orphans_step('{}', '{q,s}', %s, %s, 10000, '{q,s,\"\"}') WHERE queue IS NOT NULL"


@pytest.fixture
def q(db):
    """A job and a delivery that are a gone proxy's, each."""
    db.create("q")
    db.push("q", "1")
    take_as(db, GONE)
    make(db, "a")
    put(db, 1)
    db.rows("SELECT set_config('qbouncer.proxy', %s, false)", str(GONE))
    take(db)
    db.rows("SELECT set_config('qbouncer.proxy', '', false)")
    return db


def leased(db):
    return db.value("SELECT count(*) FROM queue.q_q WHERE proxy = %s AND state = 'leased'", GONE), \
        db.value("SELECT count(*) FROM queue.deliveries WHERE proxy = %s", GONE)


@pytest.mark.parametrize("these", [None, ["q", "s"], []])
@pytest.mark.parametrize("after", [0, 1, -1])
def test_a_role_without_rights_finds_nothing(q, these, after):
    """And changes nothing, whatever it says it has used, or waits for."""
    mallory = q.connect("mallory")
    assert mallory.rows(STEP, these, after) == []
    assert mallory.column("SELECT * FROM queue._orphans('{}')") == []
    assert mallory.notices == []
    assert leased(q) == (1, 1)
    assert sorted(orphans(q)) == ["q", "s"]


def test_a_role_without_rights_hides_nothing(q):
    """It holds what it may: locks of the gone proxy's number, of tables and of rows, and a snapshot."""
    mallory = q.connect("mallory")
    for number in (CLASS, CLASS - 3):
        mallory.rows("SELECT pg_advisory_lock(%s, %s)", number, GONE)
    mallory.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")

    def may(sql):
        mallory.rows("SAVEPOINT s")
        refused = mallory.script(sql + " NOWAIT")
        if refused:
            mallory.rows("ROLLBACK TO s")
        return not refused
    locked = {"SHARE": set(), "ROW EXCLUSIVE": set(), "ACCESS SHARE": set()}
    for name in q.column("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'queue'::regnamespace"
                         " AND relkind IN ('r', 'v')"):
        for mode, tables in locked.items():
            if may("LOCK TABLE %s IN %s MODE" % (name, mode)):
                tables.add(name)
        if may("SELECT FROM %s FOR UPDATE" % name):
            assert mallory.rows("SELECT FROM %s FOR UPDATE" % name) == [], name
    assert locked["SHARE"] == set()
    assert "queue.deliveries" in locked["ROW EXCLUSIVE"] and "queue.queues" in locked["ACCESS SHARE"]
    assert sorted(orphans(q)) == ["q", "s"]
    assert leased(q) == (0, 0)
    assert mallory.value("SELECT count(*) FROM queue.proxies") == 0


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot(q, level):
    """Of what was leased and ended since it was taken nothing comes back, and of what is leased all, once."""
    reader = q.connect()
    reader.rows("BEGIN ISOLATION LEVEL " + level)
    before = reader.rows("SELECT id, state, token FROM queue.q_q")
    for n in range(60):
        q.push("q", *"12345")
        jobs = take_as(q, GONE, limit=5)
        q.done(*[j["token"] for j in jobs[1:]])
        if n % 20 == 0:
            assert sorted(set(orphans(q))) == (["q", "s"] if n == 0 else ["q"])
            assert orphans(q) == []
    assert orphans(q) == ["q"]
    assert leased(q) == (0, 0)
    assert q.rows("SELECT DISTINCT state, error FROM queue.q_q WHERE failures = 1") == [("ready", "worker disconnected")]
    if level != "READ COMMITTED":
        assert reader.rows("SELECT id, state, token FROM queue.q_q") == before


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_look_in_another_isolation(q, level):
    """As the default of the role that looks: a job that somebody ends meanwhile is passed over, the others come back."""
    q.push("q", "2", "3")
    ended = take_as(q, GONE, limit=2)[0]
    look, worker = q.connect(), q.connect()
    look.rows("SELECT set_config('default_transaction_isolation', %s, false)", level)
    worker.rows("BEGIN")
    worker.done(ended["token"])
    assert set(orphans(look)) == {"q", "s", None}
    worker.rows("COMMIT")
    assert orphans(look) == []
    assert q.rows("SELECT DISTINCT state FROM queue.q_q") == [("ready",)]


def test_texts_and_numbers_at_their_limits(db):
    """A name of 40 bytes that has to be quoted, workers and payloads of a megabyte, more leases than one look gives back."""
    name, large = "\"'\\ %s$1ä".ljust(38, "q") + "\"", "w" * (1 << 20)
    assert len(name.encode()) == 40
    db.rows("SELECT queue.create(%s)", name)
    db.push(name, *["1"] * 5003)
    db.push(name, '"%s"' % large, '"%s"' % large, priority=9)
    assert len(take_as(db, GONE, name, limit=2, worker=large)) == 2
    for _ in range(6):
        take_as(db, GONE, name, limit=1000)
    table = db.value("SELECT queue._table(%s)", name)
    state = "SELECT state, count(*), count(*) FILTER (WHERE error = 'worker disconnected') FROM %s GROUP BY 1" % table
    assert db.rows(state) == [("leased", 5005, 0)]
    looks = 0
    while orphans(db):
        looks += 1
        assert looks < 5
    assert looks > 1
    assert db.rows(state) == [("ready", 5005, 5005)]
    job = db.take(name, worker=large)[0]
    assert (len(job["payload"]), job["attempt"]) == (1 << 20, 2)
