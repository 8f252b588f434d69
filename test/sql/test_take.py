"""TAKE and POP."""

import re
from unittest.mock import ANY

import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


def test_columns(q):
    q.push("q", '{"a": 1}', priority=3, headers='{"h": 2}')
    (job,) = q.take_raw("q", worker="w1")
    assert list(job) == ["id", "token", "queue", "attempt", "payload", "headers", "key", "group",
                         "priority", "pushed_at", "lease_until", "run_at", "taken_at", "first_taken_at", "takes",
                         "policy", "due_ms", "place",
                         "edge"]
    assert re.fullmatch("[1-9][0-9]*-1-[0-9a-f]{16}", job["token"])
    assert (job["id"], job["queue"], job["attempt"], job["payload"], job["headers"], job["key"],
            job["group"], job["priority"], job["policy"], job["due_ms"],
            job["place"]) == (1, "q", 1, {"a": 1}, {"h": 2}, None, None, 3, "auto", 300000, 1)
    stored = q.job("q", 1)
    assert (stored["state"], stored["attempt"], stored["worker"]) == ("leased", 1, "w1")
    assert job["token"].endswith("-" + stored["token"])
    assert stored["lease_until"] == job["lease_until"]


def test_types(q):
    q.push("q", "1")
    for call in ["queue._take(ARRAY['q'], 1, NULL, NULL, false)", "queue.peek('q')",
                 "queue.list()", "queue.stats()"]:
        cursor = q.conn.execute("SELECT * FROM " + call)
        assert {column.type_code for column in cursor.description} <= \
            {16, 20, 23, 25, 701, 3802, 17, 1184, 1186}


def test_priority_then_order(q):
    for n, priority in enumerate([0, 5, None, -3, 5, 2147483647, -2147483648]):
        q.push("q", str(n), priority=priority)
    order = [5, 1, 4, 0, 2, 3, 6]
    assert [job["payload"] for job in q.take("q", 3)] == order[:3]
    assert [q.take("q")[0]["payload"] for n in range(2)] == order[3:5]
    assert [job["payload"] for job in q.take("q", 9, pop=True)] == order[5:]


def test_several_queues_in_the_order_given(q):
    q.create("r", on_disconnect="keep", lease="1 h")
    q.push("q", "1", "2")
    q.push("r", "3", "4", priority=100)
    jobs = q.take(["r", "q"], 3)
    assert [job["payload"] for job in jobs] == [3, 4, 1]
    assert [job["policy"] for job in jobs] == ["keep", "keep", "auto"]
    assert jobs[0]["token"].split("-")[0] != jobs[2]["token"].split("-")[0]
    assert [job["payload"] for job in q.take(["r", "q", "r"], 3)] == [2]


def test_one_unknown_of_several(q):
    q.fails("42P01", "SELECT queue._take(ARRAY['nix', 'q'], 1, NULL, NULL, false)")


def test_limit(q):
    q.push("q", "1", "2")
    for bad in (0, -1):
        assert "LIMIT" in q.fails("22023", "SELECT queue._take(ARRAY['q'], %s, NULL, NULL, false)",
                                  bad).message_primary
    assert len(q.take("q", None)) == 1
    assert len(q.take("q", 2147483647)) == 1


def test_lease(q):
    q.push("q", *"123")
    call = "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM queue.take('q', 1, %s)"
    assert 295 < q.value(call, None) <= 300
    assert 3595 < q.value(call, "1 h") <= 3600
    for bad in ("0", "-1 s", "9000 years"):
        q.fails("22023", call, bad)


def test_tokens_are_not_to_be_guessed(q):
    q.push("q", *["1"] * 400)
    tails = [job["token"].split("-")[2] for job in q.take("q", 400)]
    assert len(set(tails)) == 400
    # each of the 16 digits takes each of 16 values: no version digit, no counter, no clock
    for place in range(16):
        assert len({tail[place] for tail in tails}) == 16


def test_taken_jobs_are_not_taken_again(q):
    q.push("q", "1", "2", "3")
    assert [len(q.take("q", 2)) for n in range(3)] == [2, 1, 0]


def test_pop(q):
    q.push("q", "1", "2", "3")
    first = q.take("q", 2, pop=True)
    assert [(job["payload"], job["token"], job["lease_until"], job["attempt"]) for job in first] \
        == [(1, None, None, 1), (2, None, None, 1)]
    assert q.value("SELECT count(*) FROM queue.q_q") == 1
    assert [job["payload"] for job in q.take("q", pop=True)] == [3]
    assert q.take("q", pop=True) == []


def test_nothing_is_one_row(q):
    assert q.due_ms("q") is None
    assert q.due_ms(["q", "q"]) is None
    assert q.take_raw("q", pop=True)[0]["id"] is None


def test_due_ms(q):
    q.create("r")
    q.push("q", "1", delay="1 hour")
    q.push("r", "1", delay="1 min")
    assert 3590000 < q.due_ms("q") <= 3600000
    assert 59000 < q.due_ms(["q", "r"]) <= 60000
    q.push("q", "2")
    q.take("q", lease="10 s")
    assert 9000 < q.due_ms(["q", "r"]) <= 10000
    q.rows("UPDATE queue.q_q SET lease_until = clock_timestamp() + interval '0.2 ms'")
    found = q.take_raw("q")[0]
    assert found["id"] or found["due_ms"] == 1


def test_who_does_not_wait_is_not_told_when_something_is_due(q):
    q.push("q", "1", delay="1 hour")
    take = ("SELECT t.id, t.due_ms FROM queue.queues AS c, queue._take_%d"
            "(c, 1, '5 min', 'w', NULL, false, NULL, NULL, %%s::int8, clock_timestamp()) AS t"
            % q.value("SELECT number FROM queue.queues"))
    since = q.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8")
    for told in (None, 0, since):
        assert 3500000 < q.rows(take, told)[0][1] <= 3600000
    for told in (-1, -since):
        assert q.rows(take, told) == [(None, None)]
    # it is promoted all the same
    q.rows("UPDATE queue.q_q SET run_at = clock_timestamp()")
    assert q.rows(take, -since)[0][0] == 1


def test_a_locked_overdue_job_is_asked_about_later(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    other = q.connect()
    other.rows("BEGIN")
    assert other.done(token) == ["q"]
    other.rows("SAVEPOINT s")
    # seen from outside the job is still leased; its lease ends while the DONE is not committed
    q.push("q", "2", delay="1 hour")
    other.rows("ROLLBACK TO s")
    other.rows("ROLLBACK")
    q.expire("q")
    other.rows("BEGIN")
    other.rows("SELECT FROM queue.q_q FOR UPDATE")
    assert q.due_ms("q") == 100
    other.rows("ROLLBACK")
    assert len(q.take("q", 5)) == 2


def test_delayed_becomes_ready_behind_what_is(q):
    q.push("q", '"late"', delay="1 hour")
    q.push("q", '"now"')
    q.expire("q")
    assert [job["payload"] for job in q.take("q", 5)] == ["now", "late"]


def test_delayed_in_order_of_their_times(q):
    for n in (3, 1, 2):
        q.push("q", str(n), delay="%d hours" % n)
    q.expire("q")
    assert [job["payload"] for job in q.take("q", 5)] == [1, 2, 3]


def test_promotion_keeps_priority(q):
    q.push("q", "1", delay="1 h")
    q.push("q", "2", delay="2 h", priority=1)
    q.expire("q")
    assert [job["payload"] for job in q.take("q", 5)] == [2, 1]


def test_promotion_is_bounded(q):
    q.push("q", *["1"] * 3000, delay="1 h")
    q.expire("q")
    assert len(q.take("q")) == 1
    ready = q.value("SELECT count(*) FROM queue.q_q WHERE state = 'ready'")
    assert 1 <= ready <= 1000
    taken = 1
    while True:
        got = len(q.take("q", 700))
        taken += got
        if not got:
            break
    assert taken == 3000


def test_lease_end_is_a_failed_attempt(q):
    q.push("q", "1")
    first = q.take("q")[0]
    q.expire("q")
    second = q.take("q")[0]
    assert second["attempt"] == 2 and second["token"] != first["token"]
    job = q.job("q", 1)
    assert (job["failures"], job["error"], job["state"]) == (1, "lease expired", "leased")
    diag = q.fails("QB001", "SELECT queue.done(%s)", first["token"])
    assert "taken again" in diag.message_detail
    assert q.done(second["token"]) == ["q"]


@pytest.mark.parametrize("options", [{"max_attempts": 2}, {"retry": "none", "max_attempts": 2}])
def test_lease_end_of_the_last_attempt_kills(q, options):
    q.create("d", **options)
    q.push("d", "1")
    for n in range(1 if "retry" in options else 2):
        assert len(q.take("d")) == 1
        q.expire("d")
    assert q.due_ms("d") is None
    job = q.job("d", 1)
    assert (job["state"], job["error"], job["token"]) == ("dead", "lease expired", None)
    assert job["ended_at"] and job["attempt"] == job["failures"]


def test_take_commits_asynchronously(q):
    q.push("q", *["1"] * 6)
    call = ("SELECT t.id, current_setting('synchronous_commit') "
            "FROM queue._take(ARRAY['q'], 1, NULL, NULL, %s) AS t")
    assert q.row(call, False)[1] == "off"
    assert q.value("SHOW synchronous_commit") == "on"
    assert q.row(call, True)[1] == "on"
    q.create("fast", durability="async")
    q.push("fast", "1")
    assert q.row((call % "true").replace("'q'", "'fast'"))[1] == "off"


def test_public_take_does_not_touch_the_callers_commit(q):
    q.push("q", *["1"] * 6)
    with q.conn.transaction():
        q.rows("CREATE TABLE mine (x int)")
        q.rows("SELECT * FROM queue.take('q')")
        q.rows("SELECT * FROM queue.pop('q')")
        assert q.value("SHOW synchronous_commit") == "on"


def test_public_take(q):
    q.push("q", "1", "2", "3")
    cursor = q.conn.execute("SELECT * FROM queue.take('q', lim => 2, lease => '1 h', worker => 'w')")
    assert [column.name for column in cursor.description] == [
        "id", "token", "queue", "attempt", "payload", "headers", "key", "group", "priority",
        "pushed_at", "lease_until", "run_at", "taken_at", "first_taken_at", "takes"]
    assert len(cursor.fetchall()) == 2
    assert q.row("SELECT id, token FROM queue.pop('q')") == (3, None)
    assert q.rows("SELECT * FROM queue.take('q')") == []
    assert q.rows("SELECT * FROM queue.pop('q')") == []


def plans(session, sql):
    session.rows("LOAD 'auto_explain'")
    session.rows("SET auto_explain.log_min_duration = 0")
    session.rows("SET auto_explain.log_nested_statements = on")
    session.rows("SET auto_explain.log_level = 'notice'")
    session.notices.clear()
    session.rows(sql)
    return "\n".join(session.notices)


def test_plans_after_an_analyze_of_an_empty_table(q):
    """Statistics of an empty moment must not lead to scans of the table, and no plan may be
    so "expensive" that it is compiled (jit)."""
    q.push("q", "1")
    q.rows("VACUUM ANALYZE queue.q_q")
    root = q.connect("postgres")
    for text in [plans(root, "SELECT * FROM queue.take('q')"),
                 plans(root, "SELECT * FROM queue.take('q', 100)"),
                 plans(root, "SELECT * FROM queue.pop('q')"),
                 plans(root, "SELECT queue._give_back(ARRAY['1-1-0123456789abcdef'], 'x', true)"),
                 plans(root, "SELECT queue._orphans(ARRAY[1])"),
                 plans(root, "SELECT queue.redrive('q')"),
                 plans(root, "SELECT queue._gauges(10)")]:
        assert re.search("queue.q_q|on q_q", text)
        assert not re.search("(Seq|Bitmap Heap) Scan on q_q", text), text
        assert "JIT" not in text


@pytest.mark.parametrize("sql", ["SELECT * FROM queue._await(ARRAY['1-1'], NULL, true)", "SELECT * FROM queue.job('1-1')"])
def test_an_archive_that_was_not_analysed(q, sql):
    """A job is found there by its id, not by looking at all of them from the last one on."""
    q.rows("INSERT INTO queue.a_q (id, state, ended_at, payload, attempt) "
           "SELECT n, 'done', now(), '1', 1 FROM generate_series(1, 20000) AS n")
    text = plans(q.connect("postgres"), sql)
    assert "n1_archive" in text and "n1_ended" not in text, text


def test_cost_does_not_grow_with_what_is_delayed(q):
    q.rows("INSERT INTO queue.q_q (state, priority, run_at, payload, pushed_at) "
           "SELECT 'later', 0, now() + interval '1 day', '1', now() FROM generate_series(1, 20000)")
    q.push("q", "1", "2")
    assert len(q.take("q")) == 1
    root = q.connect("postgres")
    text = plans(root, "SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; "
                 "SELECT * FROM queue.take('q')")
    # the statements that touch the table, without what planning them for the first time reads
    read = [int(part.split("shared hit=")[1].split()[0]) for part in text.split("duration:")
            if "on q_q" in part and "shared hit=" in part]
    assert read and max(read) < 50, text


# -- where a take begins ---------------------------------------------------------------------------


def take_from(session, limit, floors, since=None, pop=False):
    """The take of the queue itself: payloads in order; floors: priority -> position."""
    known = sorted(floors.items(), reverse=True)
    moment = since if isinstance(since, JustNow) else None
    return session.rows(
        "SELECT t.payload, t.place, t.edge, t.due_ms FROM queue.queues AS c, "
        "queue._take_1(c, %s, c.lease, NULL, NULL, %s, %s::int8[], %s::int8[], %s, "
        "coalesce(to_timestamp(%s::float8 / 1000000), clock_timestamp())) AS t WHERE c.name = 'q'",
        limit, pop, [p for p, _ in known], [f for _, f in known], since and int(since), moment and int(moment))


def payloads(rows):
    return [row[0] for row in rows if row[1] is not None]


@pytest.mark.parametrize("pop", [False, True])
@pytest.mark.parametrize("limit", [1, 5])
def test_floors(q, limit, pop):
    """Below a floor nothing is looked at; priorities without a floor are taken in their order."""
    for n, priority in enumerate([0, 0, 5, 5, 9, -1, 3, 0]):  # positions 1 to 8
        q.push("q", str(n), priority=priority)
    got, floors = [], {5: 4, 0: 2}
    while True:
        rows = payloads(take_from(q, limit, floors, pop=pop))
        if not rows:
            break
        got += rows
    assert got == [4, 3, 6, 1, 7, 5]
    assert payloads(take_from(q, 9, {5: 3})) == [2, 0]


def test_one_floor(q):
    q.push("q", "1", "2", "3")
    q.push("q", "4", priority=1)
    q.push("q", "5", priority=-1)
    assert payloads(take_from(q, 9, {0: 3})) == [4, 3, 5]
    assert payloads(take_from(q, 9, {0: 2})) == [2]
    assert payloads(take_from(q, 9, {})) == [1]


def test_since(q):
    """What became due before is not looked for; a take that found nothing due says when it was."""
    q.push("q", "1")
    ((_, _, edge, _),) = take_from(q, 1, {})
    assert 0 <= q.value("SELECT extract(epoch FROM clock_timestamp()) * 1000000 - %s", edge) < 60e6
    q.expire("q")
    assert payloads(take_from(q, 1, {}, edge)) == []
    ((payload, _, edge, _),) = take_from(q, 1, {})
    assert (payload, edge) == (1, None)


@pytest.mark.parametrize("priorities", [{}, {0: 1}, {0: 1, 5: 1}])
def test_since_is_to_come(q, priorities):
    """The clock was set back: what has become due by the clock of now is looked for all the same."""
    q.push("q", "1")
    q.push("q", "2", delay="1 h")
    q.rows("UPDATE queue.q_q SET run_at = clock_timestamp() WHERE state = 'later'")
    later = q.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 + 3600000000")
    assert payloads(take_from(q, 1, priorities, later)) == [1]
    assert payloads(take_from(q, 1, priorities, later)) == [2]
    q.expire("q")
    assert payloads(take_from(q, 1, priorities, later)) == [1]
    q.push("q", "3", delay="1 h")
    ((_, _, edge, due),) = take_from(q, 1, priorities, later)
    assert edge < later and due > 0


# -- the usual case: one priority is known, and what is due was looked for a moment ago --------------


class JustNow(int):
    """A "since" that is recent however slow the machine is: the take is of that moment."""


def just_now(session):
    return JustNow(session.value("SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000000)::int8 + 1"))


def just_then(session):
    """The same in SQL, with the moment of the take."""
    since = just_now(session)
    return int(since), "to_timestamp(%d::float8 / 1000000)" % since


def test_the_usual_take(q):
    """The same jobs in the same order as by the other way; only it does not look what is due."""
    q.push("q", "1", "2", "3")
    q.push("q", "4", delay="1 h")
    q.rows("UPDATE queue.q_q SET run_at = now() WHERE state = 'later'")
    rows = take_from(q, 2, {0: 2}, just_now(q))
    assert [(row[0], row[1], row[2]) for row in rows] == [(2, 2, None), (3, 3, None)]
    ((payload, place, edge, _),) = take_from(q, 1, {0: 1}, just_now(q))
    assert (payload, place, edge) == (1, 1, None)
    assert payloads(take_from(q, 1, {0: 4}, 0)) == [4]


def test_the_usual_take_in_the_order_of_positions(q):
    """Wherever the rows are."""
    q.push("q", *[str(n) for n in range(40)])
    q.rows("UPDATE queue.q_q SET position = 1000 - position WHERE position % 3 > 0")
    expected = q.column("SELECT payload FROM queue.q_q ORDER BY position")
    assert payloads(take_from(q, 15, {0: 0}, just_now(q))) == expected[:15]
    assert payloads(take_from(q, 25, {0: 0})) == expected[15:]


def test_the_usual_take_is_not_enough(q):
    """Then everything is looked at: what is due, and other priorities."""
    q.push("q", "1", "2")
    q.push("q", "3", priority=-1)
    q.push("q", "4", priority=-2)
    assert payloads(take_from(q, 3, {0: 2}, just_now(q))) == [2, 3, 4]
    assert take_from(q, 3, {0: 2}, just_now(q)) == [(None, None, ANY, ANY)]
    q.push("q", "5", delay="1 h")
    q.rows("UPDATE queue.q_q SET run_at = clock_timestamp() WHERE state = 'later'")
    assert payloads(take_from(q, 3, {0: 2}, just_now(q) - 7200000000)) == [5]


def test_the_usual_take_leaves_room_for_the_more_urgent(q):
    q.push("q", "1", "2")
    q.push("q", "3", priority=9)
    assert payloads(take_from(q, 1, {0: 1}, just_now(q))) == [3]
    q.push("q", "4", priority=1)
    assert payloads(take_from(q, 9, {0: 1}, just_now(q))) == [4, 1, 2]


def test_the_usual_take_of_what_expires(q):
    q.push("q", "1", "2")
    q.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() WHERE id = 1")
    assert payloads(take_from(q, 1, {0: 1}, just_now(q))) == [2]


def test_the_plans_of_the_usual_take(q):
    q.push("q", "1", "2", "3")
    q.rows("VACUUM ANALYZE queue.q_q")
    text = plans(q.connect("postgres"), "SELECT t.id FROM queue.queues AS c, queue._take_1(c, 2, "
                 "c.lease, NULL, NULL, false, '{0}', '{0}', %s, %s) AS t" % just_then(q))
    assert text.count("Update on q_q") == 1 and "Tid Scan on q_q" in text, text
    assert "Sort" not in text and "Seq Scan on q_q" not in text and "JIT" not in text, text


@pytest.mark.parametrize("pop", ["false", "true"])
@pytest.mark.parametrize("since", ["just now", "NULL"])
def test_the_plans_of_a_large_queue_that_was_analysed(q, pop, since):
    """Nothing is so "expensive" that it is compiled (jit), which takes longer than the take."""
    q.push("q", *["1"] * 50)
    q.rows("VACUUM ANALYZE queue.q_q")
    root = q.connect("postgres")
    root.rows("UPDATE pg_class SET relpages = 1, reltuples = 5000000 WHERE oid = ANY (ARRAY["
              "'queue.q_q', 'queue.n1_head']::regclass[])")
    text = plans(root, "SELECT t.id FROM queue.queues AS c, queue._take_1("
                 "c, 2, c.lease, NULL, NULL, %s, '{0}', '{0}', %s, %s) AS t"
                 % (pop, *(just_then(q) if since == "just now" else (since, "clock_timestamp()"))))
    costs = [float(c) for c in re.findall(r"on q_q[^\n(]*\(cost=[0-9.]+?\.\.([0-9.]+)", text)]
    assert "Tid Scan on q_q" in text and "Seq Scan on q_q" not in text, text
    assert max(costs) < 100000, text


def test_paused_and_bad_lease_of_one_queue(q):
    q.push("q", "1")
    q.fails("22023", "SELECT queue._take_1(c, 1, '0', NULL, NULL, false, NULL, NULL, NULL, "
            "clock_timestamp()) "
            "FROM queue.queues AS c")
    q.rows("SELECT queue.pause('q')")
    assert take_from(q, 1, {}) == [(None, None, None, None)]


def touched(session, sql):
    """Pages that the statements on the table read, the most of one of them."""
    text = plans(session, "SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; "
                 + sql)
    return max(int(part.split("shared hit=")[1].split()[0]) for part in text.split("duration:")
               if "on q_q" in part and "shared hit=" in part)


def test_a_floor_passes_over_what_is_finished(q):
    """While another transaction is open, nothing that was finished since goes away: a take that
    begins at the front reads all of it, one that begins at the floor does not."""
    other = q.connect()
    other.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other.rows("SELECT count(*) FROM queue.q_q")
    for n in range(20):
        q.push("q", *["1"] * 200)
        jobs = q.take("q", 200)
        q.done(*[job["token"] for job in jobs])
    floor = max(job["place"] for job in jobs) + 1
    q.push("q", *["1"] * 20)
    root = q.connect("postgres")
    call = ("SELECT t.id FROM queue.queues AS c, queue._take_1(c, 1, c.lease, NULL, NULL, "
            "false, ARRAY[0]::int8[], ARRAY[%d]::int8[], NULL, clock_timestamp()) AS t")
    root.rows("SELECT 1 FROM (" + call % floor + ") AS t")  # planned and warm
    front, bounded = touched(root, call % 0), touched(root, call % floor)
    assert bounded * 4 < front, (front, bounded)


def test_what_is_due_is_looked_for_from_a_time_on(db):
    db.create("q")
    db.rows("SELECT queue.push('q', '1', run_at => '2001-01-01')")
    db.rows("UPDATE queue.q_q SET state = 'later'")
    db.rows("SELECT queue.push('q', '2', run_at => '2001-01-03')")
    db.rows("UPDATE queue.q_q SET state = 'later'")
    db.rows("SELECT queue._promote(c, 10, '2001-01-01') FROM queue.queues AS c")
    assert [db.job("q", n)["state"] for n in (1, 2)] == ["later", "ready"]
    db.rows("SELECT queue._promote(c, 10) FROM queue.queues AS c")
    assert db.job("q", 1)["state"] == "ready"
    db.rows("UPDATE queue.q_q SET expires_at = run_at")
    db.rows("SELECT queue._promote(c, 10, '2001-01-01') FROM queue.queues AS c")
    assert db.job("q", 1) is not None and db.job("q", 2) is None


def test_what_expires_and_what_becomes_ready_is_one_look(db):
    """In the order of their times, so many of both at a time."""
    db.create("q")
    db.push("q", *map(str, range(1, 9)))
    db.rows("UPDATE queue.q_q SET expires_at = '2001-01-01'::timestamptz + id * interval '1 s' WHERE id % 2 = 0")
    db.rows("UPDATE queue.q_q SET state = 'later', run_at = '2001-01-01'::timestamptz + id * interval '1 s' WHERE id % 2 = 1")
    db.rows("SELECT queue._promote(c, 3) FROM queue.queues AS c")
    assert db.rows("SELECT id, state FROM queue.q_q ORDER BY id") == [
        (n, "ready" if n in (1, 3) or n % 2 == 0 else "later") for n in (1, 3, 4, 5, 6, 7, 8)]
    db.rows("SELECT queue._promote(c, 9) FROM queue.queues AS c")
    assert db.column("SELECT id FROM queue.q_q WHERE state = 'ready' ORDER BY id") == [1, 3, 5, 7]


@pytest.mark.parametrize("what, left", [
    ("state = 'ready'", None), ("state = 'dead', ended_at = now()", None), ("state = 'blocked'", None),
    ("state = 'later', run_at = '2100-01-01'", "2100-01-01"), ("state = 'leased', lease_until = '2100-01-01'", "2100-01-01"),
    ("state = 'ready', expires_at = '2100-01-01'", "2100-01-01")])
def test_a_due_that_is_not_so(db, what, left):
    """As who may push could write it: looked at once, and not by each take from then on."""
    db.create("q")
    db.rows("DO $$ DECLARE c text; BEGIN FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'queue.q_q'::regclass AND contype = 'c' LOOP"
            " EXECUTE format('ALTER TABLE queue.q_q DROP CONSTRAINT %I', c); END LOOP; END $$")
    db.push("q", "1", "2")
    db.rows("SELECT queue.release(token) FROM queue.take('q')")
    db.rows('WITH j AS (SELECT) UPDATE queue."q_q" SET due = now() - interval \'1 min\', %s WHERE id = 2' % what)
    assert [job["id"] for job in db.take("q")] == [1]
    assert db.value("SELECT due FROM queue.q_q WHERE id = 2") == (None if left is None else db.value("SELECT %s::timestamptz", left))
    assert db.value("SELECT state FROM queue.q_q WHERE id = 2") == what.split("'")[1]


def test_what_the_tests_see_of_lone_statements(db):
    """They are checked as they are (test/lib/schema.py), not put right as what tests write themselves."""
    db.create("q")
    push, take = db.row("SELECT push, take FROM queue.lone")
    db.push("q", "1")

    def run(text, *values):
        return db.conn.pgconn.exec_params(text.encode(), [v if v is None else v.encode() for v in values]).error_message.decode()

    said = ("w", None, None, "7", "-infinity", "-infinity")
    wrong = take.replace(", due = statement_timestamp()", ", due = NULL::timestamptz")
    assert wrong != take and "q_q_check" in run(wrong, *said)
    assert run(take, *said) == "" and db.job("q", 1)["state"] == "leased"
    wrong = push.replace("(priority, ", "(due, priority, ").replace("SELECT ", "SELECT now(), ", 1)
    assert "q_q_check" in run(wrong, "1", None)
    assert run(push, "1", None) == "" and db.value("SELECT count(*) FROM queue.q_q") == 2
