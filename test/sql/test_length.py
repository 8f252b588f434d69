"""max_length and unlogged."""

import psycopg
import pytest

from pgcluster import Cluster
from schema import install_script
from sessions import Session


@pytest.fixture
def q(db):
    db.create("q", max_length=3)
    return db


def full(session, *payloads, queue="q"):
    return session.fails("QB004", "SELECT queue._push(%s, %s::text[], NULL, NULL, NULL, NULL, false)",
                         queue, list(payloads or ["0"]))


def test_exact_when_small(q):
    assert q.push("q", "1", "2") == [1, 2]
    diag = full(q, "3", "4")
    assert diag.message_primary == 'queue "q" is full'
    assert "3" in diag.message_detail and "ALTER q" in diag.message_hint
    assert len(q.push("q", "3")) == 1
    for _ in range(3):
        full(q)
    # what is being worked on counts, what is finished does not
    job = q.take("q")[0]
    full(q)
    q.done(job["token"])
    assert len(q.push("q", "4")) == 1
    full(q)
    q.take("q", pop=True)
    assert len(q.push("q", "5")) == 1
    assert q.value("SELECT queue.purge('q')") == 3
    assert len(q.push("q", "6", "7", "8")) == 3
    full(q)


def test_nothing_is_written_when_it_is_full(q):
    q.push("q", "1", "2", "3")
    size = q.value("SELECT pg_relation_size('queue.q_q')")
    for _ in range(50):
        full(q, *["1"] * 100)
    assert q.value("SELECT pg_relation_size('queue.q_q')") == size


def test_every_state_but_dead(q):
    q.push("q", "1")
    q.rows("SELECT queue.push('q', '2', delay => '1 h')")
    q.rows("SELECT queue.push('q', '3', \"group\" => 'g')")
    full(q)
    q.fails("QB004", "SELECT queue.push('q', '4', \"group\" => 'g')")
    q.rows("SELECT queue.alter('q', '{max_length}', '{4}')")
    q.rows("SELECT queue.push('q', '4', \"group\" => 'g')")
    assert q.rows("SELECT ready, later, blocked FROM queue.stats('q')") == [(2, 1, 1)]
    full(q)
    q.rows("SELECT queue.fail(%s, final => true)", q.take("q")[0]["token"])
    assert len(q.push("q", "5")) == 1
    full(q)
    # no push: it comes back whatever the limit is
    assert q.value("SELECT queue.redrive('q')") == 1
    full(q)


def test_a_key_that_is_there_is_no_push(q):
    q.rows("SELECT queue.push('q', '1', key => 'k')")
    q.push("q", "2", "3")
    assert q.value("SELECT queue.push('q', '1', key => 'k')") == 1
    assert q.value("SELECT queue.push('q', '4', key => 'k', on_duplicate => 'replace')") == 1
    q.fails("QB004", "SELECT queue.push('q', '1', key => 'l')")


def test_inserts_and_copies_of_ones_own(q):
    q.rows("INSERT INTO queue.q_q (payload) VALUES ('1')")
    q.fails("QB004", "INSERT INTO queue.q_q (payload) SELECT to_jsonb(n) FROM generate_series(1, 3) n")
    q.rows("INSERT INTO queue.q_q (payload) SELECT to_jsonb(n) FROM generate_series(1, 2) n")
    with pytest.raises(Exception, match="is full"):
        with q.conn.cursor().copy("COPY queue.q_q (payload) FROM STDIN") as copy:
            copy.write_row(["1"])
    assert q.value("SELECT count(*) FROM queue.q_q") == 3


def test_alter(q):
    q.push("q", "1", "2", "3")
    q.rows("SELECT queue.alter('q', '{}', '{}', '{max_length}')")
    assert q.value("SELECT max_length FROM queue.list()") is None
    assert q.value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'queue.q_q'::regclass "
                   "AND tgname ~ 'full'") == 0
    q.push("q", *["1"] * 20)
    q.rows("SELECT queue.alter('q', '{max_length}', '{10}')")     # below what is there
    full(q)
    q.rows("SELECT queue.alter('q', '{max_length}', '{24}')")
    assert len(q.push("q", "1")) == 1
    full(q)
    q.rows("SELECT queue.drop('q')")
    assert q.rows("SELECT relname FROM pg_class WHERE relnamespace = 'queue'::regnamespace "
                  "AND relname ~ '^n[0-9]'") == []
    assert q.rows("SELECT proname FROM pg_proc WHERE proname ~ '_[0-9]+$' "
                  "AND pronamespace = 'queue'::regnamespace") == []


def test_who_may_only_push(q):
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    bob = q.connect("bob")
    assert len(bob.push("q", "1", "2", "3")) == 3
    full(bob)
    bob.fails("42501", "SELECT last_value FROM queue.n%s_room" % q.value(
        "SELECT number FROM queue.queues"))


def test_altered_by_another_member_of_the_owner(q):
    q.cluster.psql("GRANT app TO bob")
    try:
        q.rows("SELECT queue.alter('q', '{}', '{}', '{max_length}')")
        bob = q.connect("bob")
        bob.rows("SELECT queue.alter('q', '{max_length}', '{1}')")
        q.push("q", "1")
        full(q)
        q.rows("SELECT queue.alter('q', '{max_length}', '{2}')")
        bob.push("q", "1")
        full(bob)
        q.rows("SELECT queue.drop('q')")
    finally:
        q.cluster.psql("REVOKE app FROM bob")


def test_pushes_side_by_side(q):
    """Who has not committed is not seen; everybody who comes later is refused."""
    one, two = q.connect(), q.connect()
    for session in (one, two):
        session.rows("BEGIN")
        assert len(session.push("q", "1", "2", "3")) == 3
    one.rows("COMMIT")
    two.rows("COMMIT")
    full(q)
    assert q.value("SELECT count(*) FROM queue.q_q") == 6


def test_pushers_at_once(db):
    db.create("q", max_length=500)

    def push(session):
        ok = 0
        for _ in range(150):
            try:
                ok += len(session.push("q", "1"))
            except Exception as error:
                assert "is full" in str(error)
        return ok

    running = [db.beside(push, db.connect()) for _ in range(6)]
    total = sum(each.result() for each in running)
    assert 500 <= total <= 500 + 5     # each of the others had one that was not yet there to see
    assert db.value("SELECT count(*) FROM queue.q_q") == total


def counts(session):
    """How often the queue has been counted: looks at the indexes of what is ready."""
    return session.value("SELECT pg_stat_get_numscans(indexrelid) + pg_stat_get_xact_numscans(indexrelid) "
                         "FROM pg_index WHERE indexrelid::regclass::text ~ '_head$'")


def test_large_queues_are_not_counted_in_every_push(db):
    db.create("q", max_length=20000)
    db.rows("BEGIN")
    before = counts(db)
    for _ in range(300):
        db.push("q", "1", "2")
    assert counts(db) - before <= 2
    db.rows("COMMIT")
    db.rows("INSERT INTO queue.q_q (payload) SELECT '1' FROM generate_series(1, 19399)")
    # the next count finds few places, and allows a hundredth of the limit
    db.take("q", 10, pop=True)
    db.rows("BEGIN")
    before = counts(db)
    for _ in range(150):
        db.push("q", "1")
    assert counts(db) - before == 1
    db.rows("COMMIT")
    full(db, *["1"] * 60, queue="q")
    assert db.value("SELECT count(*) FROM queue.q_q") == 20139


def test_the_count_reads_indexes(db):
    """And nothing else: that of what is due has the state, too."""
    db.create("q", max_length=100000)
    db.rows("INSERT INTO queue.q_q (payload, state) SELECT '1', s "
            "FROM generate_series(1, 200), unnest('{ready,later,dead,dead,dead,dead}'::text[]) AS s")
    db.rows("VACUUM queue.q_q")
    for setting in ("enable_seqscan", "enable_bitmapscan"):
        db.rows("SET %s = off" % setting)
    plan = "\n".join(db.column("""EXPLAIN SELECT count(*) FROM (
        (SELECT 1 FROM queue.q_q WHERE state = 'ready' ORDER BY priority DESC, position LIMIT 101)
        UNION ALL (SELECT 1 FROM queue.q_q WHERE due IS NOT NULL AND state IN ('later', 'leased') LIMIT 101)
        UNION ALL (SELECT 1 FROM queue.q_q WHERE state = 'blocked' ORDER BY "group", id LIMIT 101)
        LIMIT 101) AS unfinished"""))
    for scan, index in ("Index Only", "head"), ("Index Only", "due"), ("Index Only", "blocked"):
        assert "%s Scan using n%s_%s" % (scan, db.value("SELECT number FROM queue.queues"), index) in plan, plan


def persistence(session):
    return session.value("SELECT relpersistence FROM pg_class WHERE oid = 'queue.q_q'::regclass")


def test_unlogged(db):
    db.create("q", unlogged="yes", max_length=10)
    assert db.value("SELECT unlogged FROM queue.list()") is True
    assert persistence(db) == "u"
    assert db.push("q", "1", "2") == [1, 2]
    db.done(db.take("q")[0]["token"])
    db.rows("SELECT queue.alter('q', '{unlogged}', '{false}')")
    assert persistence(db) == "p"
    assert len(db.push("q", "3")) == 1
    assert [job["payload"] for job in db.take("q", 5)] == [2, 3]
    db.rows("SELECT queue.alter('q', '{unlogged}', '{on}')")
    assert persistence(db) == "u"
    db.rows("SELECT queue.alter('q', '{}', '{}', '{unlogged}')")
    assert persistence(db) == "p"


def test_a_crash_empties_it():
    with Cluster() as pg:
        dsn = pg.dsn("postgres", "postgres")
        session = Session(dsn)
        session.script(install_script())
        session.create("lost", unlogged="true", retain_done="1 h", max_length=3)
        session.create("kept", max_length=3)
        for name in ("lost", "kept"):
            session.push(name, "1", "2", "3")
        token = session.take("lost")[0]["token"]
        session.done(session.take("lost")[0]["token"])
        pg.kill()
        pg.start()
        with pytest.raises(psycopg.Error):
            session.rows("SELECT 1")
        session = Session(dsn)
        assert session.rows("SELECT queue, ready, leased, done FROM queue.stats() ORDER BY queue") == \
            [("kept", 3, 0, 0), ("lost", 0, 0, 0)]
        session.fails("QB001", "SELECT queue.done(%s)", token)
        assert len(session.push("lost", "1", "2", "3")) == 3
        for name in ("lost", "kept"):
            full(session, queue=name)
        session.conn.close()


def test_ids_begin_anew(db):
    """As those of an unlogged queue do after a crash; then what was allowed says nothing."""
    db.create("q", max_length=20)
    db.push("q", *["1"] * 20)
    db.rows("SELECT queue.purge('q')")
    db.push("q", *["1"] * 20)
    full(db)
    db.rows("TRUNCATE queue.q_q RESTART IDENTITY")
    assert len(db.push("q", *["1"] * 20)) == 20
    full(db)


def test_nothing_is_compiled(q):
    """Sequences are always read by a scan, which is "expensive" where scans are off; jit took 50 ms of each push."""
    root = q.connect("postgres")
    for setting in ("log_min_duration = 0", "log_nested_statements = on", "log_analyze = on", "log_level = 'notice'"):
        root.rows("LOAD 'auto_explain'; SET auto_explain.%s" % setting)
    root.notices.clear()
    assert root.push("q", "1") == [1]
    text = "\n".join(root.notices)
    assert "last_value" in text and "JIT:" not in text, text
