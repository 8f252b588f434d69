"""TAKE ... GROUPED: of a group also the jobs behind its first."""

import psycopg
import pytest

TOKENS = "SELECT count(*) FROM queue.q_q WHERE state = 'blocked' AND token IS NOT NULL"


@pytest.fixture
def q(db):
    db.create("q", retry="fixed 1s", max_attempts="3")
    return db


def push(session, *payloads, group="g", **more):
    for p in payloads:
        session.rows("SELECT queue.push('q', %s, \"group\" => %s" + "".join(", %s => %%s" % k for k in more) + ")",
                     p, group, *more.values())


def lot(session, limit=50, lease=None, worker="w"):
    cursor = session.conn.execute("SELECT * FROM queue.take('q', %s, %s::interval, %s, grouped => true)", (limit, lease, worker))
    return [dict(zip([column.name for column in cursor.description], row)) for row in cursor]


def payloads(taken):
    return [job["payload"] for job in taken]


def tokens(taken):
    return [job["token"] for job in taken]


def states(session):
    return session.column("SELECT state FROM queue.q_q ORDER BY id")


def lost(session, token, state="QB001", verb="done(%s)"):
    return session.fails(state, "SELECT queue." + verb, token)


def test_those_behind_come_too(q):
    push(q, "1", "2", "3")
    push(q, "11", "12", group="h")
    q.push("q", "21")
    jobs = lot(q, 5)
    assert payloads(jobs) == [1, 2, 3, 11, 12]
    assert {(j["attempt"], j["takes"]) for j in jobs} == {(1, 1)}
    assert len({j["lease_until"] for j in jobs}) == 1 and len(set(tokens(jobs))) == 5
    assert states(q) == ["leased", "blocked", "blocked", "leased", "blocked", "ready"]
    assert payloads(lot(q)) == [21] and lot(q) == [] == q.take("q", 9)
    for job in jobs:
        q.done(job["token"])
    assert states(q) == ["leased"]


def test_the_limit_is_that_of_all(q):
    push(q, "1", "2", "3")
    jobs = lot(q, 2)
    assert payloads(jobs) == [1, 2]
    q.done(*tokens(jobs))
    assert states(q) == ["ready"] and payloads(q.take("q", 9)) == [3]


@pytest.mark.parametrize("keep", [False, True])
def test_in_one_statement(q, keep):
    push(q, "1", "2", "3", "4")
    jobs = lot(q)
    q.rows("SELECT queue.done(%s::text[], '7', %s)", list(reversed(tokens(jobs)[:3])), keep)
    assert states(q) == ["leased"]
    assert q.column("SELECT result FROM queue.a_q ORDER BY id") == [7, 7, 7]
    assert q.rows("SELECT job, ok FROM queue.done_partial(%s)", tokens(jobs)) == [
        ("1-1", False), ("1-2", False), ("1-3", False), ("1-4", True)]


def test_partial_of_all(q):
    push(q, "1", "2", "3")
    assert q.column("SELECT ok FROM queue.done_partial(%s)", tokens(lot(q))) == [True] * 3
    assert states(q) == []


def test_only_in_order(q):
    push(q, "1", "2", "3")
    jobs = lot(q)
    error = lost(q, tokens(jobs)[1], "55000")
    assert "behind others of its group" in error.message_primary and "QUEUE DONE a, b, c" in error.message_hint
    q.fails("55000", "SELECT queue.done(%s::text[])", tokens(jobs)[1:])
    q.fails("55000", "SELECT queue.done(%s::text[])", [tokens(jobs)[0], tokens(jobs)[2]])
    assert states(q) == ["leased", "blocked", "blocked"]
    q.done(tokens(jobs)[0])
    q.done(tokens(jobs)[1])
    q.done(tokens(jobs)[2])


@pytest.mark.parametrize("end", ["fail", "final", "release", "lost", "expire", "expire for the last time", "cancel", "given back"])
def test_whatever_becomes_of_the_first_gives_back_the_others(q, end):
    push(q, "1", "2", "3")
    if end == "expire for the last time":
        q.rows("SELECT queue.alter('q', ARRAY['max_attempts'], ARRAY['1'])")
    jobs = lot(q)
    first = tokens(jobs)[0]
    if end == "fail":
        q.rows("SELECT queue.fail(%s, 'no', retry_in => '0 s')", first)
    elif end == "final":
        q.rows("SELECT queue.fail(%s, 'no', final => true)", first)
    elif end == "release":
        q.rows("SELECT queue.release(%s)", first)
    elif end == "lost":
        q.rows("SELECT queue._give_back(%s, 'worker disconnected', true)", tokens(jobs))
    elif end == "given back":
        q.rows("SELECT queue._give_back(%s, NULL, false)", tokens(jobs))
    elif end == "cancel":
        q.rows("SELECT queue._cancel(ARRAY['1'], false)")
        q.expire("q")
    else:
        q.expire("q")
    for token in tokens(jobs)[1:]:
        lost(q, token, "QB001")
        lost(q, token, "QB001", "fail(%s)")
        lost(q, token, "QB001", "release(%s)")
        lost(q, token, "QB001", "extend(%s)")
    again = lot(q)
    assert payloads(again) == ([2, 3] if end in ("final", "cancel", "expire for the last time") else [1, 2, 3])
    assert [j["attempt"] for j in again[-2:]] == [1, 1]
    for token in tokens(jobs)[1:]:
        lost(q, token)
    q.done(*tokens(again))
    assert "ready" not in states(q) and "blocked" not in states(q)


def test_one_in_the_middle_fails(q):
    push(q, "1", "2", "3", "4")
    jobs = lot(q)
    q.rows("SELECT queue.fail(%s, 'no', retry_in => '1 h')", tokens(jobs)[2])
    lost(q, tokens(jobs)[3])
    assert q.row("SELECT attempt, failures, error, worker FROM queue.q_q WHERE id = 3") == (1, 1, "no", "w")
    q.done(*tokens(jobs)[:2])
    assert states(q) == ["later", "blocked"] and lot(q) == []
    q.rows("UPDATE queue.q_q SET run_at = now() WHERE id = 3")
    again = lot(q)
    assert [(j["payload"], j["attempt"]) for j in again] == [(3, 2), (4, 1)]


def test_one_in_the_middle_dies(q):
    push(q, "1", "2", "3")
    jobs = lot(q)
    q.rows("SELECT queue.fail(%s, 'no', final => true)", tokens(jobs)[1])
    assert states(q) == ["leased", "dead", "blocked"]
    lost(q, tokens(jobs)[2])
    q.done(tokens(jobs)[0])
    assert states(q) == ["dead", "ready"]


@pytest.mark.parametrize("final", [False, True])
def test_all_fail_in_one_statement(q, final):
    push(q, "1", "2", "3")
    jobs = lot(q)
    q.rows("SELECT queue._fail(%s, 'no', NULL, %s, false)", tokens(jobs), final)
    assert states(q) == (["dead"] * 3 if final else ["later", "blocked", "blocked"])
    assert q.column("SELECT failures FROM queue.q_q") == [1, 1, 1]


def test_the_first_dies_and_the_others_fail(q):
    push(q, "1", attempts=1)
    push(q, "2", "3")
    q.rows("SELECT queue._fail(%s, 'no', '1 h', false, false)", tokens(lot(q)))
    assert states(q) == ["dead", "later", "blocked"]
    assert q.column("SELECT failures FROM queue.q_q") == [1, 1, 1]


def test_all_are_released(q):
    push(q, "1", "2", "3")
    q.rows("SELECT queue._release(%s, NULL, false)", tokens(lot(q)))
    assert states(q) == ["ready", "blocked", "blocked"]
    assert [(j["payload"], j["attempt"]) for j in lot(q)] == [(1, 1), (2, 1), (3, 1)]


def test_one_in_the_middle_is_released(q):
    push(q, "1", "2", "3")
    jobs = lot(q)
    q.rows("SELECT queue.release(%s, '1 h')", tokens(jobs)[1])
    lost(q, tokens(jobs)[2])
    q.done(tokens(jobs)[0])
    assert states(q) == ["later", "blocked"]


def test_extend(q):
    push(q, "1", "2")
    jobs = lot(q, lease="1 min")
    q.rows("SELECT queue.extend(%s, '1 h')", tokens(jobs)[1])
    assert q.value("SELECT min(lease_until) < now() + interval '2 min' FROM queue.q_q")
    q.done(tokens(jobs)[0])
    assert q.value("SELECT lease_until > now() + interval '50 min' FROM queue.q_q")
    q.done(tokens(jobs)[1])


def test_a_lease_that_ended_before_its_turn(q):
    push(q, "1", "2")
    jobs = lot(q, lease="1 min")
    q.rows("SELECT queue._extend(%s, '1 millisecond')", tokens(jobs)[1:])
    q.done(tokens(jobs)[0])
    assert states(q) == ["ready"]
    lost(q, tokens(jobs)[1])
    assert [(j["payload"], j["attempt"]) for j in q.take("q")] == [(2, 1)]


def test_a_lease_that_ends_in_its_turn_counts(q):
    push(q, "1", "2", "3")
    jobs = lot(q)
    q.done(tokens(jobs)[0])
    assert q.row("SELECT attempt, worker, state FROM queue.q_q WHERE id = 2") == (1, "w", "leased")
    q.expire("q")
    assert [(j["payload"], j["attempt"]) for j in lot(q)] == [(2, 2), (3, 1)]
    assert q.column("SELECT error FROM queue.q_q ORDER BY id") == ["lease expired", None]


def test_hold_is_renewed(q):
    push(q, "1", "2", "3")
    jobs = lot(q, lease="1 min")
    assert q.rows("SELECT * FROM queue._renew(%s, '1 h')", tokens(jobs)) == []
    assert q.rows("SELECT * FROM queue._renew(%s, '1 h')", tokens(jobs)[2:]) == []
    q.rows("SELECT queue._own(%s, 77)", tokens(jobs))
    q.done(*tokens(jobs)[:2])
    assert q.row("SELECT lease_until > now() + interval '50 min', proxy FROM queue.q_q") == (True, 77)
    q.rows("SELECT queue.release(%s)", tokens(jobs)[2])
    assert q.rows("SELECT * FROM queue._renew(%s, '1 h')", tokens(jobs)[2:]) == [(tokens(jobs)[2], "lost")]


def test_rolled_back(q):
    push(q, "1", "2")
    jobs = lot(q)
    with q.conn.transaction(force_rollback=True):
        q.done(tokens(jobs)[0])
        q.done(tokens(jobs)[1])
    with q.conn.transaction():
        with q.conn.transaction(force_rollback=True):
            q.done(tokens(jobs)[0])
        lost_in = q.fails
        with q.conn.transaction(force_rollback=True):
            lost_in("55000", "SELECT queue.done(%s)", tokens(jobs)[1])
        q.done(tokens(jobs)[0])
        q.done(tokens(jobs)[1])
    assert states(q) == []


def test_what_ends_a_lot(q):
    push(q, "1")
    push(q, "2", delay="1 h")
    push(q, "3")
    assert payloads(lot(q)) == [1]
    push(q, "11", group="h")
    push(q, "12", group="h", expires="1 h")
    push(q, "13", group="h")
    q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE id = 5")
    assert payloads(lot(q)) == [11]


def test_what_somebody_has_locked_ends_a_lot(q):
    push(q, "1", "2", "3")
    other = q.connect()
    with other.conn.transaction():
        other.rows("SELECT FROM queue.q_q WHERE id = 2 FOR UPDATE")
        jobs = lot(q)
    assert payloads(jobs) == [1]
    q.done(tokens(jobs)[0])
    assert payloads(lot(q)) == [2, 3]


def test_cancelled_in_the_middle(q):
    push(q, "1", "2", "3")
    jobs = lot(q)
    q.rows("SELECT queue._cancel(ARRAY['2'], false)")
    lost(q, tokens(jobs)[1])
    q.done(tokens(jobs)[0])
    assert states(q) == ["leased"]
    q.done(tokens(jobs)[2])


def test_it_cannot_be_changed(q):
    push(q, "1", "2")
    jobs = lot(q)
    q.fails("55000", "SELECT queue._alter_job(ARRAY['2'], '{payload}', '{5}', false)")
    q.rows("SELECT queue.release(%s)", tokens(jobs)[0])
    q.rows("SELECT queue._alter_job(ARRAY['2'], '{payload}', '{5}', false)")
    assert payloads(lot(q)) == [1, 5]


@pytest.mark.parametrize("how", ["replace", "rerun"])
def test_pushed_again_with_its_key(q, how):
    push(q, "1", "2")
    push(q, "3", key="k")
    push(q, "4")
    jobs = lot(q)
    push(q, "33", key="k", on_duplicate=how)
    lost(q, tokens(jobs)[2])
    q.done(*tokens(jobs)[:2])
    assert payloads(lot(q)) == [33 if how == "replace" else 3, 4]


def test_refused(q):
    for name, options in (("label", {"max_running_per_group": "none"}), ("two", {"max_running_per_group": "2"})):
        q.create(name, **options)
        error = q.fails("0A000", "SELECT * FROM queue.take(%s, grouped => true)", name)
        assert error.message_hint
    q.fails("0A000", "SELECT * FROM queue.take('q', ids => '{1}', grouped => true)")
    q.fails("42P01", "SELECT * FROM queue.take('nix', grouped => true)")
    q.fails("22023", "SELECT * FROM queue.take('q', 0, grouped => true)")
    q.fails("22023", "SELECT * FROM queue.take('q', 1, '-1 s', grouped => true)")


@pytest.mark.parametrize("kind", ["text", "bytea"])
def test_other_payloads(db, kind):
    db.create("q", payload=kind)
    db.rows("SELECT queue.push('q', p::%s, \"group\" => 'g') FROM unnest('{a,b}'::text[]) AS p" % kind)
    jobs = db.rows("SELECT payload, token FROM queue.take_%s('q', 9, grouped => true)" % kind)
    assert [bytes(j[0]).decode() if kind == "bytea" else j[0] for j in jobs] == ["a", "b"]
    db.done(jobs[0][1], jobs[1][1])


def test_who_may_not_take(q):
    push(q, "1", "2")
    q.connect("mallory").fails("42501", "SELECT * FROM queue.take('q', 9, grouped => true)")
    assert states(q) == ["ready", "blocked"]


def test_a_worker_who_owns_nothing(q):
    q.rows("SELECT queue.grant('q', ARRAY['take'], ARRAY['bob'])")
    push(q, "1", "2", "3", "4")
    bob = q.connect("bob")
    jobs = lot(bob)
    bob.done(tokens(jobs)[0])
    bob.done(*tokens(jobs)[1:3])
    bob.rows("SELECT queue.fail(%s, 'no')", tokens(jobs)[3])
    assert states(q) == ["later"]


# --- limits of the queue ---

def of_two(db, **options):
    db.create("q", retry="fixed 1s", **options)
    push(db, *"12345")
    push(db, "11", "12", group="h")
    return db


def test_each_of_a_lot_has_a_place_of_its_own(db):
    of_two(db, max_running=3)
    jobs = lot(db)
    assert payloads(jobs) == [1, 2, 3]
    other = db.connect()
    assert lot(other) == [] == other.take("q", 9)
    db.done(jobs[0]["token"])
    assert payloads(lot(other)) == [11] and lot(db) == []
    db.done(*tokens(jobs)[1:])
    assert payloads(lot(db)) == [4, 5]
    assert lot(other) == []


@pytest.mark.parametrize("most", [3, 600])
@pytest.mark.parametrize("how", ["fail", "release of it", "release of the last", "lease", "lost"])
def test_those_given_back_free_their_places(db, most, how):
    of_two(db, max_running=most)
    push(db, *map(str, range(1000, 1600)), group="long") if most > 3 else None
    jobs = lot(db, most)
    assert len(jobs) == most and lot(db) == []
    one = jobs[0]["token"]
    if how == "fail":
        db.rows("SELECT queue.fail(%s, 'x', retry_in => '0 s')", one)
    elif how == "release of it":
        db.rows("SELECT queue.release(%s)", one)
    elif how == "lost":
        db.rows("SELECT queue._give_back(%s, 'gone', true)", tokens(jobs))
    elif how == "lease":
        db.expire("q")
    if how == "release of the last":
        db.rows("SELECT queue.release(%s)", jobs[-1]["token"])
        assert payloads(lot(db)) == ([11] if most == 3 else [])
        return
    again = lot(db, most)
    assert len(again) == (most if how in ("lost", "lease") else 3 if most == 3 else 5)
    lost(db, jobs[1]["token"])
    # never more than there may be
    assert lot(db, most) == []


def test_never_more_than_the_limit_of_many(db):
    db.create("q", max_running=501)
    push(db, *map(str, range(400)))
    push(db, *map(str, range(400)), group="h")
    jobs = lot(db, 600)
    assert len(jobs) == 501 and lot(db) == []
    db.done(*tokens(jobs)[:100])
    more = lot(db, 600)
    assert len(more) == 0      # what is behind the last of a lot is not ready
    db.done(*tokens(jobs)[100:])
    assert len(lot(db, 600)) == 299


def test_each_of_a_lot_is_counted_by_the_rate(db):
    of_two(db, rate="5/d burst 4")
    jobs = lot(db)
    assert payloads(jobs) == [1, 2, 3, 4] and lot(db) == []
    # nobody got them: as often as that is said
    for _ in range(2):
        db.rows("SELECT queue._give_back(%s, NULL, false)", tokens(jobs))
    assert payloads(lot(db)) == [1, 2, 3, 4]
    assert lot(db) == [] == db.take("q", 9)


def test_pause_and_hours(db):
    of_two(db, pause="1 hour")
    jobs = lot(db)
    assert payloads(jobs) == [1, 2, 3, 4, 5, 11, 12]
    push(db, "21", group="i")
    db.done(jobs[0]["token"])
    assert lot(db) == []
    db.create("h", hours="00:00-00:01 UTC" if db.value("SELECT extract(hour FROM now() AT TIME ZONE 'UTC')") > 1
              else "22:00-22:01 UTC")
    db.rows("SELECT queue.push('h', '1', \"group\" => 'g')")
    assert db.rows("SELECT FROM queue.take('h', 9, grouped => true)") == []


def test_limits_in_an_older_snapshot(db):
    of_two(db, max_running=3)
    other = db.connect()
    with pytest.raises(psycopg.errors.SerializationFailure):
        with other.conn.transaction():
            other.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.rows("SELECT")
            assert len(lot(db)) == 3
            lot(other)


def test_a_lot_that_is_rolled_back_uses_nothing(db):
    of_two(db, max_running=3, rate="5/d burst 4")
    with pytest.raises(ZeroDivisionError):
        with db.conn.transaction():
            assert len(lot(db)) == 3
            raise ZeroDivisionError
    assert len(lot(db)) == 3


def test_refused_with_a_reason(db):
    for option in ({"pause_per_group": "1 s"}, {"rate_per_group": "1/s"},
                   {"max_running_per_group": 2}, {"max_running_per_group": "none"}):
        name = "q%d" % len(db.rows("SELECT FROM queue.queues"))
        db.create(name, **option)
        db.fails("0A000", "SELECT FROM queue.take(%s, grouped => true)", name)


@pytest.mark.parametrize("keep", [False, True])
def test_one_that_comes_after_the_first(q, keep):
    """It falls into the group when the first is done, and those behind that one stay with their worker."""
    push(q, "1", "2", "3")
    push(q, "4", "5", after=["1-1"])
    push(q, "6")
    jobs = lot(q, 3)
    assert payloads(jobs) == [1, 2, 3]
    q.rows("SELECT queue.done(%s, '7', %s)", tokens(jobs)[0], keep)
    assert states(q) == ["leased", "blocked", "blocked", "blocked", "blocked"]
    assert q.take("q") == [] == lot(q)
    q.done(*tokens(jobs)[1:])
    rest = lot(q)
    assert payloads(rest) == [4, 5, 6]
    q.done(*tokens(rest))
    assert states(q) == []


def test_one_that_comes_after_the_first_of_all_that_are_done_at_once(q):
    push(q, "1", "2")
    push(q, "3", after=["1-1", "1-2"])
    q.done(*tokens(lot(q)))
    assert states(q) == ["ready"] and payloads(lot(q)) == [3]


def test_one_that_comes_after_another_falls_into_its_place(q):
    """That of its id, also between those that somebody has: they are behind it now."""
    q.create("r")
    q.push("r", "1")
    push(q, "1")
    push(q, "2", after=["2-1"])
    push(q, "3", "4")
    jobs = lot(q)
    assert payloads(jobs) == [1, 3, 4]
    q.done(q.take("r")[0]["token"])
    assert states(q) == ["leased", "blocked", "blocked", "blocked"]
    q.done(tokens(jobs)[0])
    lost(q, tokens(jobs)[1])
    rest = lot(q)
    assert payloads(rest) == [2, 3, 4] and {j["attempt"] for j in rest} == {1}
    q.done(*tokens(rest))


def test_one_that_comes_after_a_dead_first(q):
    push(q, "1", "2")
    push(q, "3", after=["1-1"])
    jobs = lot(q)
    q.rows("SELECT queue.fail(%s, 'no', final => true)", tokens(jobs)[0])
    assert states(q) == ["dead", "ready", "dead"]
    lost(q, tokens(jobs)[1])
    assert payloads(lot(q)) == [2]
