"""Large queues: what many delayed jobs cost before their time, and when it comes for all of them at once."""

import re

import pytest

DELAYED = 300000
DUE = 200000


@pytest.fixture
def q(db):
    db.create("q")
    return db


def insert(session, count, when, payload="g"):
    session.rows("INSERT INTO queue.q_q (state, run_at, payload) "
                 "SELECT 'later', %s, to_jsonb(%s) FROM generate_series(1, %d) AS g" % (when, payload, count))


def buffers(session, sql):
    """What a statement and the functions that it calls have read and written: pages of tables and indexes."""
    plan = "\n".join(session.column("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) " + sql))
    return sum(int(n) for n in re.findall(r"(?:hit|read)=(\d+)", plan.split("Planning")[0]))


def test_delayed_jobs_cost_nothing_before_their_time(q):
    take, pop = "SELECT * FROM queue.take('q')", "SELECT * FROM queue.pop('q', 10)"
    due = "SELECT queue._due_ms('q')"
    q.push("q", *["1"] * 100)
    for sql in (take, pop, due) * 2:                     # what the session reads once is read
        buffers(q, sql)
    before = [buffers(q, sql) for sql in (take, pop, due)]
    insert(q, DELAYED, "now() + g * interval '1 s' + interval '1 h'")
    q.push("q", *["1"] * 100)
    for sql in (take, pop, due):
        buffers(q, sql)
    after = [buffers(q, sql) for sql in (take, pop, due)]
    # an index is a page or two deeper; nothing grows with the number of jobs
    for less, more in zip(before, after):
        assert more <= less + 30, (before, after)


def test_all_become_due_at_once(q):
    """In steps: no take makes more than some of them ready, and none of them passes what comes before."""
    insert(q, DUE, "timestamptz '2020-01-01'")
    # as it is stored; what is due counts as ready whether it has been moved or not
    counts = ("SELECT count(*) FILTER (WHERE state = 'ready')::int, count(*) FILTER (WHERE state = 'later')::int, "
              "count(*) FILTER (WHERE state = 'leased')::int FROM queue.q_q")
    expected = 1
    for call in range(1, 21):
        assert len(q.push("q", '"pushed"', priority=call)) == 1
        assert [job["payload"] for job in q.take("q")] == ["pushed"]
        ready, later, leased = q.row(counts)
        assert leased == call
        # at most 200 by the take of one job
        assert DUE - later <= 200 * call and ready == DUE - later
    assert q.rows("SELECT ready, later, leased FROM queue.stats('q')") == [(DUE, 0, 20)]
    for call in range(10):
        (job,) = q.take("q")
        assert job["payload"] == expected                  # those of one time in the order of their ids
        expected += 1
    before = q.row(counts)[1]
    jobs = q.take("q", 5000)
    assert len(jobs) >= 1000
    assert [job["payload"] for job in jobs] == list(range(expected, expected + len(jobs)))
    assert before - q.row(counts)[1] <= 1000


def test_orphans_are_found_among_delayed_jobs(q):
    orphans = "SELECT * FROM queue._orphans('{}')"
    q.rows("SET qbouncer.proxy = 4711")
    q.push("q", *["1"] * 4)
    for lease in ("1 min", "8 hours"):
        assert len(q.take("q", lease=lease)) == 1
    assert q.column(orphans) == ["q"]
    assert q.column(orphans) == []
    buffers(q, orphans)
    before = buffers(q, orphans)
    insert(q, DELAYED, "now() + g * interval '1 s' + interval '1 h'")
    q.rows("UPDATE queue.q_q SET pushed_at = pushed_at - interval '1 day' WHERE state = 'ready'")
    for lease in ("1 min", "8 hours", "1 min", "8 hours"):
        assert len(q.take("q", lease=lease)) == 1
    assert q.rows("SELECT leased FROM queue.stats('q')") == [(4,)]
    q.column(orphans)
    assert q.rows("SELECT leased FROM queue.stats('q')") == [(0,)]
    # what is lost for the second time waits by the queue's policy
    assert q.rows("SELECT losses::int, state, count(*)::int FROM queue.q_q WHERE losses > 0 GROUP BY 1, 2 ORDER BY 1") == \
        [(1, "ready", 2), (2, "later", 2)]
    # of the dead jobs' rows nothing is left to be seen; the delayed ones are read, each once
    q.rows("VACUUM queue.q_q")
    assert buffers(q, orphans) <= before + DELAYED / 10


def test_all_leases_end_at_once(q):
    q.push("q", *["1"] * 5000)
    assert len(q.take("q", 5000)) == 5000
    q.expire("q")
    assert len(q.take("q", 10)) == 10
    assert q.rows("SELECT failures, count(*)::int FROM queue.q_q GROUP BY 1 ORDER BY 1") == \
        [(0, 4800), (1, 200)]


def test_all_expire_at_once(q):
    q.rows("INSERT INTO queue.q_q (payload, expires_at) SELECT '1', now() FROM generate_series(1, 5000)")
    q.push("q", "2")
    assert [job["payload"] for job in q.take("q")] == [2]
    assert q.value("SELECT count(*)::int FROM queue.q_q") == 5000 - 200 + 1
