"""When a job was taken, how often, how long its attempts ran: first_taken_at, taken_at, takes, ran; and since when it is
ready: run_at."""

import pytest


@pytest.fixture
def q(db):
    db.create("q", retain_done="1 day")
    return db


def shown(session, n=1):
    cursor = session.conn.execute("SELECT * FROM queue.job(%s)", [str(n)])
    return dict(zip([column.name for column in cursor.description], cursor.fetchone()))


def moved(session, *columns):
    """As if all that has happened had happened an hour earlier."""
    session.rows("UPDATE queue.q_q SET " + ", ".join("%s = %s - interval '1 h'" % (c, c) for c in columns))


def test_taken_once(q):
    q.push("q", "1")
    job = shown(q)
    assert (job["taken_at"], job["first_taken_at"], job["takes"], job["ran"]) == (None, None, 0, None)
    (taken,) = q.take("q")
    assert taken["taken_at"] and (taken["first_taken_at"], taken["run_at"], taken["takes"]) == (None, None, 1)
    job = shown(q)
    assert (job["taken_at"], job["first_taken_at"], job["takes"]) == (taken["taken_at"], None, 1)
    assert job["ran"].total_seconds() > 0
    moved(q, "taken_at")
    assert 3600 < shown(q)["ran"].total_seconds() < 3700
    q.rows("SELECT queue.done(%s)", taken["token"])
    kept = shown(q)
    assert (kept["state"], kept["takes"], kept["first_taken_at"]) == ("done", 1, None)
    assert kept["ran"] == kept["ended_at"] - kept["taken_at"]
    (looked,) = q.rows("SELECT taken_at, first_taken_at, takes, ran FROM queue.peek('q', 1, 'done')")
    assert looked == tuple(kept[c] for c in ("taken_at", "first_taken_at", "takes", "ran"))


def test_a_release_is_a_take_and_no_attempt(q):
    q.push("q", "1")
    first = q.take("q")[0]
    q.rows("SELECT queue.release(%s)", first["token"])
    job = shown(q)
    assert (job["attempt"], job["takes"], job["taken_at"], job["ran"]) == (0, 1, first["taken_at"], None)
    assert job["run_at"] > first["taken_at"]
    second = q.take("q")[0]
    assert (second["attempt"], second["takes"], second["first_taken_at"], second["run_at"]) == \
        (1, 2, first["taken_at"], job["run_at"])
    q.rows("SELECT queue._give_back(ARRAY[%s], NULL, false)", second["token"])
    third = q.take("q")[0]
    assert (third["attempt"], third["takes"], third["first_taken_at"]) == (1, 3, first["taken_at"])
    q.rows("SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)", third["token"])
    job = shown(q)
    assert (job["attempt"], job["takes"]) == (1, 3)
    assert job["ran"] == job["failed_at"] - third["taken_at"]


def test_a_failed_attempt_ran(q):
    q.push("q", "1")
    taken = q.take("q")[0]
    q.rows("SELECT queue.fail(%s, 'no', final => true)", taken["token"])
    job = shown(q)
    assert job["state"] == "dead" and job["ran"] == job["failed_at"] - taken["taken_at"]
    q.rows("SELECT queue.rerun('1')")
    job = shown(q)
    assert (job["attempt"], job["takes"], job["run_at"] > job["failed_at"]) == (0, 1, True)
    taken = q.take("q")[0]
    assert (taken["attempt"], taken["takes"]) == (1, 2)
    q.rows("SELECT queue.fail(%s, 'no', final => true)", taken["token"])
    q.rows("SELECT queue.redrive('q')")
    assert (shown(q)["attempt"], shown(q)["takes"]) == (0, 2)


def test_an_attempt_runs_until_its_lease_ends(q):
    q.push("q", "1")
    q.take("q", lease="10 min")
    moved(q, "taken_at", "lease_until")
    job = shown(q)
    assert (job["state"], job["ran"].total_seconds()) == ("ready", 600)
    q.take("q")  # finds it, and takes it again
    assert shown(q)["takes"] == 2
    q.push("q", "2")
    q.take("q", lease="10 min")
    moved(q, "taken_at", "lease_until")
    q.rows("SELECT queue._promote(c, 10) FROM queue.queues AS c")
    job = shown(q, 2)
    assert (job["state"], job["error"], job["ran"].total_seconds()) == ("ready", "lease expired", 600)


def test_pop(q):
    q.push("q", "1")
    q.rows("SELECT queue.release(%s)", q.take("q")[0]["token"])
    (taken,) = q.take("q", pop=True)
    assert (taken["attempt"], taken["takes"], taken["lease_until"]) == (1, 2, None)
    assert taken["taken_at"] > taken["first_taken_at"]
    kept = shown(q)
    assert tuple(kept[c] for c in ("taken_at", "first_taken_at", "takes", "attempt")) == \
        tuple(taken[c] for c in ("taken_at", "first_taken_at", "takes", "attempt"))
    q.rows("SELECT queue.alter('q', '{retain_done}', '{0}')")
    q.push("q", "2")
    (taken,) = q.take("q", pop=True)
    assert (taken["takes"], taken["first_taken_at"], taken["run_at"]) == (1, None, None)


def test_the_public_functions_tell_it(q):
    for n in range(2):
        q.push("q", "1")
    assert q.value("SELECT taken_at > pushed_at AND takes = 1 AND lease_until > taken_at FROM queue.take('q')")
    assert q.value("SELECT taken_at > pushed_at AND takes = 1 FROM queue.pop('q')")


def replace(session, key):
    session.rows("SELECT queue.push('q', '2', key => %s, on_duplicate => 'replace')", key)


def test_a_replaced_job_is_ready_since_it_was(q):
    """A payload that is replaced makes nothing ready, but for a job that was delayed."""
    q.rows("SELECT queue.push('q', '1', key => 'k')")
    q.rows("SELECT queue.release(%s)", q.take("q")[0]["token"])
    since = shown(q)["run_at"]
    replace(q, "k")
    assert (shown(q)["run_at"], shown(q)["takes"]) == (since, 1)
    q.rows("SELECT queue.push('q', '1', delay => '1 h', key => 'l')")
    moved(q, "pushed_at")
    replace(q, "l")
    job = shown(q, 2)
    assert (job["state"], job["takes"]) == ("ready", 0)
    assert (job["run_at"] - job["pushed_at"]).total_seconds() >= 3600


def left(session, n=1):
    """How long after its take its lease ends."""
    return session.value("SELECT extract(epoch FROM lease_until - taken_at) FROM queue.q_q WHERE id = %s", n)


def test_no_lease_is_longer_than_max_run(q):
    q.rows("SELECT queue.alter('q', '{max_run}', '{10 min}')")
    q.push("q", "1", "2")
    token = q.take("q", lease="1 h")[0]["token"]
    assert left(q) == 600
    for call in ("SELECT queue.extend(%s, '1 h')", "SELECT queue._renew(ARRAY[%s], '1 h')"):
        q.rows(call, token)
        assert left(q) == 600
    q.rows("SELECT queue.extend(%s, '1 min')", token)
    assert 60 <= left(q) < 600
    assert q.value("SELECT extract(epoch FROM lease_until - taken_at) FROM queue.take('q', lease => '1 min')") == 60
    q.rows("SELECT queue.alter('q', reset_names => '{max_run}')")
    q.rows("SELECT queue.extend(%s, '1 h')", token)
    assert left(q) > 600


def test_max_run_that_comes_while_a_job_runs(q):
    """The lease stays, and is not renewed; the next EXTEND goes by it, and may end it sooner."""
    q.push("q", "1", "2", "3")
    jobs = [job["token"] for job in q.take("q", 3, lease="1 h")]
    q.rows("SELECT queue.alter('q', '{max_run}', '{10 min}')")
    assert [left(q, n) for n in (1, 2, 3)] == [3600] * 3
    q.rows("SELECT queue.extend(%s, '2 h')", jobs[0])
    q.rows("SELECT queue._renew(ARRAY[%s], '2 h')", jobs[1])
    assert left(q, 1) == 600 and left(q, 2) == 3600
    q.rows("SELECT queue.done(%s::text[])", jobs)
    assert q.value("SELECT count(*) FROM queue.q_q") == 0


@pytest.mark.parametrize("options,state", [({}, "ready"), ({"max_attempts": 1}, "dead")])
def test_ran_too_long(db, options, state):
    db.create("q", max_run="10 min", **options)
    db.push("q", "1")
    token = db.take("q", lease="1 h")[0]["token"]
    moved(db, "taken_at", "lease_until")
    error = db.fails("QB001", "SELECT queue.extend(%s)", token)
    # also before anybody has found it
    assert shown(db)["error"] == "ran too long"
    assert db.column("SELECT error FROM queue.peek('q')") == db.column("SELECT error FROM queue.errors('q')") == ["ran too long"]
    db.rows("SELECT queue._promote(c, 10) FROM queue.queues AS c")
    job = shown(db)
    assert (job["state"], job["error"], job["failures"], job["ran"].total_seconds()) == \
        (state, "ran too long", 1, 600)
    error = db.fails("QB001", "SELECT queue.done(%s)", token)
    assert "ran too long" in error.message_detail
    # a lease that was shorter ends as ever
    db.push("q", "2")
    db.rows("SELECT queue.rerun('1')") if state == "dead" else None
    db.take("q", 2, lease="1 min")
    moved(db, "taken_at", "lease_until")
    db.rows("SELECT queue._promote(c, 10) FROM queue.queues AS c")
    assert shown(db, 2)["error"] == "lease expired"


@pytest.mark.parametrize("value", ["0", "-1 s", "9000 years", "x"])
def test_max_run_is_a_time(q, value):
    assert "RESET (max_run)" in q.fails(
        "22023", "SELECT queue.alter('q', '{max_run}', ARRAY[%s])", value).message_hint
# -- who works on what --------------------------------------------------------------------------

def test_workers(q):
    assert q.rows("SELECT * FROM queue.workers()") == q.rows("SELECT * FROM queue.workers('q')") == []
    q.create("r")
    q.push("q", "1", "2", "3")
    q.push("r", "4")
    second = q.take("q", worker="b")[0]
    first = q.take("q", worker="a", lease="1 h")[0]
    q.rows("UPDATE queue.q_q SET taken_at = taken_at - interval '1 h' WHERE id = 2")
    other = q.take("r")[0]
    names = [token.rpartition("-")[0] for token in (first["token"], second["token"], other["token"])]
    assert q.rows("SELECT queue, job, worker, attempt, cancelled, proxy FROM queue.workers()") == [
        ("q", names[0], "a", 1, False, None), ("q", names[1], "b", 1, False, None), ("r", names[2], None, 1, False, None)]
    assert q.rows("SELECT taken_at, lease_until FROM queue.workers('r')") == [(other["taken_at"], other["lease_until"])]
    q.rows("SELECT queue.cancel(%s)", names[0])
    assert q.column("SELECT cancelled FROM queue.workers('q')") == [True, False]
    q.expire("q")  # nobody's, though nobody has noticed
    assert q.column("SELECT job FROM queue.workers()") == [names[2]]
    q.fails("42P01", "SELECT queue.workers('nosuch')")
