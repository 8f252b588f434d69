"""TAKE and POP of some jobs: queue.take(ids), and what the proxy calls for WHERE (functions/where.sql)."""

import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


def taken(db, *ids, limit=10, pop=False, session=None):
    call = "pop('q', %s" if pop else "take('q', %s"
    return [row[0] for row in (session or db).rows("SELECT id FROM queue.%s, ids => %%s::int8[])" % call, limit, list(ids))]


def said(*queues, limit=1, pop=False, lease=None, low=0):
    parts = [str(limit), "7", str(pop).lower(), lease, "w1", ""]
    for queue in queues or ("q",):
        parts += [queue, str(low)]
    return parts


def looked(db, args):
    """What a look shows of a queue: number, id and version of each job."""
    return db.rows("SELECT l._queue, l.id, l._version FROM queue._look_steps(%s::text[]) AS s, "
                   "LATERAL queue._look_jsonb(%s::text[], s.q, s.skip, s.most) AS l", args, args)


def take_found(db, args, found):
    cursor = db.conn.execute("SELECT id, due_ms, place, edge, token FROM queue._take_where_jsonb(%s::text[], %s::int8[])",
                             (args, [list(row) for row in found]))
    return cursor.fetchall()


@pytest.mark.parametrize("source", [
    "queue._look_steps(ARRAY['1', 'q', '0']) AS s, LATERAL queue._look_jsonb(ARRAY['1', 'q', '0'], s.q, s.skip, s.most) AS l",
    "queue._look_for(ARRAY['s', 'a', '100'], 'jsonb') AS s, LATERAL queue._look_at_jsonb(s.n, s.most) AS l"])
def test_a_long_condition_is_not_compiled(q, source):
    """That takes seconds, in each look: what is estimated of it is far from where that begins."""
    condition = " AND ".join("payload::int <> %d" % i for i in range(1000))
    (plan,) = q.value("EXPLAIN (FORMAT JSON) SELECT id FROM (SELECT l.* FROM %s) AS peek WHERE (%s) IS TRUE LIMIT 100" % (source, condition))
    assert plan["Plan"]["Total Cost"] < 50000 and "JIT" not in plan
    assert q.value("SHOW jit_above_cost") == "100000"


def test_ids(q):
    for priority in (0, 5, 0, 1):
        q.push("q", "{}", priority=priority)
    assert taken(q, 3, 1, 99, limit=1) == [1]
    assert taken(q, 4, 3, 2) == [2, 4, 3]
    assert taken(q, 1, 2) == [] and taken(q) == []
    assert q.job("q", 2)["state"] == "leased" and q.job("q", 2)["attempt"] == 1


def test_ids_of_what_is_due(q):
    q.push("q", "1", "2", delay="1 h")
    q.expire("q")
    assert taken(q, 2) == [2] and taken(q, 1) == [1]


def test_pop_keeps(q):
    q.create("kept", retain_done="1 h")
    q.push("kept", "1", "2")
    assert [r[0] for r in q.rows("SELECT id FROM queue.pop('kept', ids => '{2}')")] == [2]
    assert q.rows("SELECT id, state, attempt FROM queue.peek('kept', 10, 'done')") == [(2, "done", 1)]
    q.push("q", "1", "2")
    assert taken(q, 1, pop=True) == [1] and q.job("q", 1) is None


@pytest.mark.parametrize("kind, value", [("text", "a"), ("bytea", b"a")])
def test_types(db, kind, value):
    db.create("q", payload=kind)
    db.push("q", "a", "b")
    assert [r[0] for r in db.rows("SELECT payload FROM queue.take_%s('q', ids => '{1}')" % kind)] == [value]
    db.conn.execute("SELECT * FROM queue._look_%s(%%s::text[], 1, 0, 5)" % kind, (said(),))
    assert db.fails("42804", "SELECT * FROM queue.take('q', ids => '{1}')")


def test_a_look_changes_nothing_and_locks_nothing(q):
    q.push("q", "1", "2")
    q.push("q", "3", delay="1 h")
    q.expire("q")
    with q.conn.transaction():
        assert [row[1] for row in looked(q, said())] == [1, 2]
        other = q.connect()
        assert [job["id"] for job in other.take("q", 5)] == [1, 2, 3]


def test_what_was_changed_since_the_look_is_not_taken(q):
    q.push("q", "1", "2", "3")
    found = looked(q, said())
    q.rows("SELECT queue.alter_job('1', '{payload}', '{9}', 'q')")
    assert [row[0] for row in take_found(q, said(limit=5), found)] == [2, 3]
    (row,) = take_found(q, said(), found)
    assert row[0] is None and row[3] == 2                           # somebody has them: look again


def test_a_job_that_was_taken_and_given_back_has_another_version(q):
    q.push("q", "1")
    found = looked(q, said())
    (job,) = q.take("q")
    q.rows("SELECT queue.release(%s)", job["token"])
    assert take_found(q, said(), found)[0][0] is None
    assert take_found(q, said(), looked(q, said()))[0][0] == 1


def test_what_is_locked_is_passed_over(q):
    q.push("q", "1", "2")
    other = q.connect()
    with other.conn.transaction():
        other.rows('SELECT FROM queue."q_q" WHERE id = 1 FOR UPDATE')
        assert [row[0] for row in take_found(q, said(limit=2), looked(q, said()))] == [2]


def test_what_is_due_is_found_by_the_next_look(q):
    q.push("q", "1", delay="1 h")
    (row,) = take_found(q, said(), looked(q, said()))
    assert row[0] is None and 3590000 < row[1] <= 3600000 and row[2:4] == (None, 0)
    q.expire("q")
    (row,) = take_found(q, said(), looked(q, said()))
    assert row[0] is None and row[3] == 4
    assert take_found(q, said(), looked(q, said()))[0][0] == 1


def test_the_bound(q):
    q.rows("SELECT queue.push('q', '{}'::jsonb) FROM generate_series(1, 3)")
    q.rows("CREATE OR REPLACE FUNCTION queue._look_most() RETURNS int4 LANGUAGE sql AS 'SELECT 2'")
    assert [row[1] for row in looked(q, said())] == [1, 2]
    assert q.value("SELECT queue._look_most()") == 2
    with q.conn.transaction():
        looked(q, said())
        assert take_found(q, said(), [])[0][2:4] == (q.job("q", 2)["position"], 1)


def test_from_a_place_on(q):
    q.push("q", "1", "2", priority=1)
    q.push("q", "3")
    place = q.job("q", 2)["position"]
    assert [row[1] for row in looked(q, said(low=place))] == [2, 3]
    assert looked(q, said(low=place + 2)) == []


def test_several_queues(q):
    q.create("r")
    q.push("q", "1")
    q.push("r", "1", "2", priority=9)
    args = said("q", "r", limit=2)
    found = looked(q, args)
    assert [row[1] for row in found] == [1, 1, 2]
    tokens = [row[4].split("-")[:2] for row in take_found(q, args, found)]
    assert [t[1] for t in tokens] == ["1", "1"] and tokens[0][0] != tokens[1][0]
    q.fails("42P01", "SELECT * FROM queue._look_steps(%s::text[])", said("q", "none"))


def test_a_paused_queue(q):
    q.push("q", "1")
    found = looked(q, said())
    q.rows("SELECT queue.pause('q')")
    assert looked(q, said()) == []
    assert take_found(q, said(), found) == [(None, None, None, 10, None)]


@pytest.mark.parametrize("options", [{"max_running": 2}, {"rate": "2/d burst 2"}, {"max_running": 2, "max_running_per_group": "none"}])
def test_limits(db, options):
    db.create("q", **options)
    db.push("q", *"123456")
    assert taken(db, 6, 5, 4) == [4, 5]
    assert taken(db, 1) == [] and db.take("q") == []
    (row,) = take_found(db, said(), looked(db, said()))
    assert row[0] is None


def test_groups_come_in_order(q):
    for n in (1, 2):
        q.rows("SELECT queue.push('q', %s::jsonb, \"group\" => 'g')", str(n))
    assert taken(q, 2) == [] and taken(q, 1, 2) == [1]


def test_rights(q):
    q.push("q", "1")
    bob = q.connect("bob")
    bob.fails("42501", "SELECT * FROM queue.take('q', ids => '{1}')")
    bob.fails("42501", "SELECT * FROM queue._look_jsonb(%s::text[], 1, 0, 5)", said())
    q.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    assert taken(q, 1, session=bob) == [1]
