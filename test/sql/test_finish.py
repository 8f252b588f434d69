"""DONE, FAIL, RELEASE, EXTEND and giving back."""

import pytest

CALLS = {
    "done": "SELECT * FROM queue._done(%s::text[], false)",
    "fail": "SELECT queue FROM queue._fail(%s::text[], 'boom', NULL, NULL, false)",
    "final": "SELECT queue FROM queue._fail(%s::text[], 'boom', NULL, true, false)",
    "release": "SELECT * FROM queue._release(%s::text[], NULL, false)",
    "extend": "SELECT * FROM queue._extend(%s::text[], NULL)",
}
EVERY = pytest.mark.parametrize("verb", list(CALLS))


@pytest.fixture
def q(db):
    db.create("q")
    return db


def tokens(session, queue, count=1, **more):
    session.push(queue, *["1"] * count)
    return [job["token"] for job in session.take(queue, count, **more)]


def snapshot(session, *queues):
    return [session.rows("SELECT * FROM queue.q_%s ORDER BY id" % name) for name in queues]


@EVERY
def test_one_row_per_job_in_order(q, verb):
    q.create("r")
    a, b, c = tokens(q, "q", 3)
    (d,) = tokens(q, "r")
    assert q.column(CALLS[verb], [c, d, a]) == ["q", "r", "q"]
    assert q.column(CALLS[verb], [b]) == ["q"]
    assert q.column(CALLS[verb], []) == []


def test_done_deletes(q):
    q.done(*tokens(q, "q", 3))
    assert q.rows("SELECT * FROM queue.q_q") == []


def test_done_twice_in_one_statement(q):
    (a,) = tokens(q, "q")
    assert q.done(a, a) == ["q", "q"]


@EVERY
@pytest.mark.parametrize("bad", ["", "1", "17", "-1-1-0123456789abcdef", "1-1-0123456789ABCDEF",
                                 "1-1-0123456789abcde", "1-1-0123456789abcdef0", "x",
                                 "1-1-0123456789abcdef\n", "9999999999-1-0123456789abcdef",
                                 "1-9999999999999999999-0123456789abcdef",
                                 "1-1-' OR true; --abcd", " 1-1-0123456789abcdef"])
def test_not_a_token(q, verb, bad):
    (good,) = tokens(q, "q")
    before = snapshot(q, "q")
    for jobs in ([bad], [good, bad], [bad, good]):
        diag = q.fails("22023", CALLS[verb], jobs)
        assert "is not the token of a job" in diag.message_primary
        assert "token that TAKE returned" in diag.message_hint
    q.fails("22004", CALLS[verb], [None])
    q.fails("22004", CALLS[verb], None)
    assert snapshot(q, "q") == before


@EVERY
def test_stale_tokens_change_nothing(q, verb):
    q.create("r")
    a, b, gone = tokens(q, "q", 3)
    (c,) = tokens(q, "r")
    q.done(gone)
    wrong = b[:-1] + ("0" if b[-1] != "0" else "1")
    before = snapshot(q, "q", "r")
    for stale in (gone, wrong, "999999-1-0123456789abcdef"):
        for jobs in ([stale], [a, stale], [c, a, stale], [stale, c], [a, b, stale]):
            diag = q.fails("QB001", CALLS[verb], jobs)
            number = stale.split("-")[1]
            assert diag.message_primary == "the lease of job %s is lost" % number
            assert diag.message_detail and diag.message_hint
            assert snapshot(q, "q", "r") == before
    assert q.column(CALLS[verb], [a, b, c]) == ["q", "q", "r"]


@EVERY
def test_a_lease_that_is_over(q, verb):
    """Nobody has promoted or taken the job yet: a late verb still changes nothing."""
    (a,) = tokens(q, "q")
    q.expire("q")
    before = snapshot(q, "q")
    assert "ended at" in q.fails("QB001", CALLS[verb], [a]).message_detail
    assert snapshot(q, "q") == before


def test_why_it_is_lost(q):
    hints = {}

    def detail(token):
        diag = q.fails("QB001", "SELECT queue.done(%s)", token)
        hints[diag.message_detail.split(":")[0]] = diag.message_hint
        return diag.message_detail
    a, b, c, d, e, f = tokens(q, "q", 6)
    q.rows("SELECT queue.done(%s)", a)
    assert detail(a) == "The job is finished and gone."
    assert detail(a.replace("-1-", "-99-")) == "There has never been such a job."
    assert detail("99" + a) == "There has never been such a queue."
    q.rows("SELECT queue.done(%s, '1')", e)
    assert detail(e).startswith("The job was done at 2")
    q.rows("UPDATE queue.queues SET retain_done = '1 day'")
    q.rows("SELECT queue.cancel(%s)", f)
    q.fails("QB002", "SELECT queue.done(%s)", f)
    q.expire("q")
    q.rows("SELECT queue._promote(c, 9) FROM queue.queues AS c")
    assert detail(f).startswith("The job was cancelled at 2")
    assert detail(b) == "The job is ready now; its last error: lease expired"
    b, c, d = (job["token"] for job in q.take("q", 3))
    q.rows("UPDATE queue.q_q SET error = NULL")
    q.rows("SELECT queue.release(%s)", b)
    assert detail(b) == "The job was released and is ready now."
    q.rows("SELECT queue.fail(%s, 'no disk')", c)
    assert detail(c) == "The job is later now; its last error: no disk"
    q.rows("SELECT queue.fail(%s, 'no hope', final => true)", d)
    assert detail(d) == "The job is dead now; its last error: no hope"
    q.take("q")
    assert detail(b) == "The lease expired or was given back, and the job has been taken again."
    q.rows("SELECT queue.release(%s)", q.rows("SELECT '1-' || id || '-' || token FROM queue.q_q WHERE state = 'leased'")[0][0])
    q.take("q", worker="host7")
    assert detail(b) and 'worker "host7"' in hints.popitem()[1]


def test_fail_retries_by_policy(q):
    for retry, pauses in [("fixed 1min", [60, 60, 60]), ("linear 1min", [60, 120, 180]),
                          ("linear 1min 2min", [60, 120, 120]),
                          ("exponential 10s 1h", [10, 20, 40]),
                          ("exponential 10s 30s", [10, 20, 30]),
                          ("exponential 10s 1h x3", [10, 30, 90]), ("exponential 1 min 1 h x1.5", [60, 90, 135]),
                          ("arithmetic 1min 2min", [60, 180, 300]), ("arithmetic 1 min 2 min 4 min", [60, 180, 240]),
                          ("list 10s, 1 min,1h", [10, 60, 3600, 3600]), ("list 20s", [20, 20])]:
        q.rows("SELECT queue.alter('q', ARRAY['retry'], ARRAY[%s])", retry)
        q.push("q", "1")
        for n, pause in enumerate(pauses):
            (job,) = q.take("q")
            assert job["attempt"] == n + 1
            q.rows("SELECT queue.fail(%s, %s)", job["token"], "e%d" % n)
            stored = q.job("q", job["id"])
            assert (stored["state"], stored["error"], stored["failures"]) == \
                ("later", "e%d" % n, n + 1)
            assert stored["token"] is None and stored["lease_until"] is None
            wait = q.value("SELECT extract(epoch FROM run_at - clock_timestamp())::float8 "
                           "FROM queue.q_q WHERE id = %s", job["id"])
            assert pause * 0.9 - 5 < wait < pause * 1.1 + 0.1
            q.expire("q")
        q.value("SELECT queue.purge('q')")


def test_jitter(q):
    q.rows("SELECT queue.alter('q', '{retry}', '{fixed 100s}')")
    found = q.column("SELECT extract(epoch FROM queue._pause(c, 1))::float8 "
                     "FROM queue.queues AS c, generate_series(1, 300)")
    assert 90 <= min(found) < 93 and 107 < max(found) <= 110
    for retry in ("exponential 10s 1h", "exponential 10s 1h x100", "arithmetic 10s 8000years 1h", "list 1h", "linear 1s 1h"):
        q.rows("SELECT queue.alter('q', '{retry}', ARRAY[%s])", retry)
        assert q.value("SELECT queue._pause(c, 2000000000) BETWEEN '54 min' AND '66 min' FROM queue.queues AS c"), retry


@pytest.mark.parametrize("policy", ["retry", "now"])
@pytest.mark.parametrize("duplicate", ["replace", "rerun"])
def test_on_change(q, policy, duplicate):
    q.rows("SELECT queue.alter('q', '{retry,on_change,max_attempts}', ARRAY['fixed 1h', %s, '1'])", policy)
    push = "SELECT queue.push('q', %s, key => 'k', on_duplicate => %s, delay => %s::interval)"
    q.rows(push, "1", "error", None)
    token = q.take("q")[0]["token"]
    q.rows(push, "2", duplicate, None)
    q.rows("SELECT queue.fail(%s, 'e')", token)
    job = q.job("q", 1)
    assert (job["state"], job["again"], job["failures"]) == ("later" if policy == "retry" else "ready", None, 1)
    if policy == "now":
        assert q.take("q")[0]["payload"] == (2 if duplicate == "replace" else 1)
    q.rows("SELECT queue.purge('q'), queue.cancel('1')" if policy == "now" else "SELECT queue.purge('q')")


def test_on_change_and_its_own_time(q):
    q.rows("SELECT queue.alter('q', '{retry,on_change}', '{fixed 1h,now}')")
    push = "SELECT queue.push('q', '1', key => 'k', on_duplicate => 'replace', delay => %s::interval)"
    q.rows(push, None)
    token = q.take("q")[0]["token"]
    q.rows(push, "1 day")
    q.rows("SELECT queue.fail(%s, 'e')", token)
    assert q.value("SELECT state = 'later' AND run_at > now() + interval '23 h' FROM queue.q_q")
    q.rows("SELECT queue.alter_job('1', '{at}', '{now}')")
    token = q.take("q")[0]["token"]
    q.rows(push, None)
    q.rows("SELECT queue.fail(%s, 'e', '10 min')", token)  # RETRY IN says it
    assert q.value("SELECT state = 'later' AND run_at < now() + interval '1 h' FROM queue.q_q")
    q.rows("SELECT queue.alter_job('1', '{at}', '{now}')")
    q.rows("SELECT queue.fail(%s, 'e')", q.take("q")[0]["token"])  # was not changed
    assert q.value("SELECT state FROM queue.q_q") == "later"


def test_fail_with_retry_in(q):
    a, b, c = tokens(q, "q", 3)
    q.rows("SELECT queue.fail(%s, 'e', '1 h')", a)
    assert q.value("SELECT run_at > clock_timestamp() + interval '59 min' FROM queue.q_q "
                   "WHERE id = 1")
    q.rows("SELECT queue.fail(%s, 'e', '0')", b)
    q.rows("SELECT queue.fail(%s, NULL, '-1 s')", c)
    # ready at once, but at the end of the queue
    q.push("q", '"older place?"')
    assert [job["id"] for job in q.take("q", 9)] == [2, 3, 4]


def test_fail_puts_the_job_behind_the_others(q):
    (a,) = tokens(q, "q")
    q.push("q", "2")
    q.rows("SELECT queue.fail(%s, 'e', '0')", a)
    assert [job["id"] for job in q.take("q", 9)] == [2, 1]


def test_fail_bad_arguments(q):
    (a,) = tokens(q, "q")
    assert "together" in q.fails("22023", "SELECT queue.fail(%s, 'e', '1 s', true)",
                                 a).message_primary
    q.fails("22008", "SELECT queue.fail(%s, 'e', '9000 years')", a)
    q.fails("22008", "SELECT queue.release(%s, '9000 years')", a)
    q.fails("22023", "SELECT queue.extend(%s, '0')", a)
    q.fails("22023", "SELECT queue.extend(%s, '-1 s')", a)
    q.fails("22023", "SELECT queue.extend(%s, '9000 years')", a)
    assert q.done(a) == ["q"]


def test_fail_until_dead(q):
    q.create("d", max_attempts="2", retry="fixed 1s")
    q.push("d", "1")
    for state in ("later", "dead"):
        q.rows("SELECT queue.fail(%s, 'e')", q.take("d")[0]["token"])
        assert q.job("d", 1)["state"] == state
        q.expire("d")
    assert q.due_ms("d") is None
    assert q.job("d", 1)["ended_at"]


def test_fail_without_retries(q):
    q.create("d", retry="none")
    a, b = tokens(q, "d", 2)
    q.rows("SELECT queue.fail(%s, 'e')", a)
    q.rows("SELECT queue.fail(%s, 'e', '1 min')", b)
    assert [q.job("d", n)["state"] for n in (1, 2)] == ["dead", "later"]


def test_error_is_bounded(q):
    for size, text in [(8192, "x" * 8192), (8192, "x" * 100000), (8192, "ä" * 100000),
                       (8192, "\U0001f600" * 100000), (5, "short"),
                       (8192, "x" * 8000 + "ä" * 100), (8192, "ä" * 4000 + "\U0001f600" * 2000)]:
        (a,) = tokens(q, "q")
        q.rows("SELECT queue.fail(%s, %s, final => true)", a, text)
        (stored,) = q.column("SELECT error FROM queue.q_q WHERE state = 'dead'")
        assert text.startswith(stored) and size - 3 <= len(stored.encode()) <= size
        q.value("SELECT queue.purge('q')")


def test_release_keeps_the_place(q):
    a, b = tokens(q, "q", 2)
    q.push("q", "3")
    q.rows("SELECT queue.release(%s)", b)
    q.rows("SELECT queue.release(%s)", a)
    jobs = q.take("q", 9)
    assert [(job["id"], job["attempt"]) for job in jobs] == [(1, 1), (2, 1), (3, 1)]
    assert q.job("q", 1)["failures"] == 0


def test_release_with_delay(q):
    (a,) = tokens(q, "q")
    q.push("q", "2")
    q.rows("SELECT queue.release(%s, '1 h')", a)
    assert q.job("q", 1)["state"] == "later"
    q.expire("q")
    assert [(job["id"], job["attempt"]) for job in q.take("q", 9)] == [(2, 1), (1, 1)]


def test_extend(q):
    a, b = tokens(q, "q", 2, lease="10 s")
    left = ("SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM queue.q_q "
            "WHERE id = %s")
    q.rows("SELECT queue.extend(%s)", a)
    q.rows("SELECT queue.extend(%s, '1 h')", b)
    assert 295 < q.value(left, 1) <= 300 and 3595 < q.value(left, 2) <= 3600
    q.rows("SELECT queue.extend(%s, '1 s')", b)
    assert q.value(left, 2) <= 1


@pytest.mark.parametrize("counted", [True, False])
def test_give_back(q, counted):
    a, b, c = tokens(q, "q", 3)
    q.push("q", "4")
    q.done(b)
    assert q.column("SELECT queue._give_back(%s, 'worker disconnected', %s)",
                    [c, b, a, "77-1-0123456789abcdef"], counted) == ["q"]
    assert q.column("SELECT queue._give_back(%s, 'again', %s)", [a, c], counted) == []
    job = q.job("q", 1)
    assert (job["state"], job["attempt"], job["failures"], job["error"], job["token"]) == \
        (("ready", 1, 1, "worker disconnected", None) if counted else ("ready", 0, 0, None, None))
    # in their old places, and ready at once
    assert [(j["id"], j["attempt"]) for j in q.take("q", 9)] == \
        [(1, 1 + counted), (3, 1 + counted), (4, 1)]


def test_give_back_of_what_nobody_got(q):
    """By the same statement, before an empty token: that is no attempt."""
    a, b, c = tokens(q, "q", 3)
    assert q.column("SELECT queue._give_back(%s, 'worker disconnected', true)", [b, "", a, c]) == ["q", "q"]
    assert [(q.job("q", n)["attempt"], q.job("q", n)["error"]) for n in (1, 2, 3)] == \
        [(1, "worker disconnected"), (0, None), (1, "worker disconnected")]
    assert [(j["id"], j["attempt"]) for j in q.take("q", 9)] == [(1, 2), (2, 1), (3, 2)]
    assert q.column("SELECT queue._give_back(%s, '', true)", ["", a]) == []
    assert q.column("SELECT queue._give_back(%s, '', true)", [a, ""]) == []


def test_give_back_of_a_job_that_was_held_before(q):
    """The connection does not know that its first lease of the job was ended by another."""
    for _ in range(6): # tokens are random: in both orders
        q.rows("SELECT queue.create('r', true)")
        q.push("r", "1")
        old = q.take("r")[0]["token"]
        q.rows("SELECT queue.release(%s)", old)
        new = q.take("r")[0]["token"]
        assert q.column("SELECT queue._give_back(%s, 'gone', false)", [old, new]) == ["r"]
        assert q.column("SELECT state FROM queue.q_r") == ["ready"]
        q.rows("SELECT queue.purge('r', 'ready')")


def test_give_back_kills_after_the_last_attempt(q):
    for name, options in [("d", {"max_attempts": 1}), ("e", {"retry": "none"})]:
        q.create(name, **options)
        a, b = tokens(q, name, 2)
        q.rows("SELECT queue._give_back(%s, 'transaction rolled back', true)", [a])
        q.rows("SELECT queue._give_back(%s, 'x', false)", [b])
        assert [q.job(name, n)["state"] for n in (1, 2)] == ["dead", "ready"]
        assert q.job(name, 1)["ended_at"]


def lose(db, q, error="worker disconnected"):
    """Takes a job and loses it: (state, seconds until it may be taken)."""
    job = db.take(q)[0]
    db.rows("SELECT queue._give_back(ARRAY[%s], %s, %s)", job["token"], error, error is not None)
    return db.row(f"SELECT state, extract(epoch FROM run_at - clock_timestamp())::float8 FROM queue.q_{q}")


def test_what_is_lost_again_and_again_waits_by_the_policy(q):
    """The first loss is nobody's fault; a job that takes its workers along is not given to one after the other."""
    q.create("r", retry="fixed 10min", max_attempts=4)
    q.push("r", "1")
    assert lose(q, "r") == ("ready", pytest.approx(0, abs=100))
    state, wait = lose(q, "r", "transaction rolled back")
    assert state == "later" and 400 < wait < 700
    q.rows("UPDATE queue.q_r SET run_at = clock_timestamp()")
    state, wait = lose(q, "r")
    assert state == "later" and 400 < wait < 700
    q.rows("UPDATE queue.q_r SET run_at = clock_timestamp()")
    assert lose(q, "r")[0] == "dead"
    q.rows("SELECT queue.redrive('r')")     # starts afresh, with its first loss before it
    assert lose(q, "r")[0] == "ready"


def test_the_first_loss_after_a_fail_is_ready_at_once(q):
    q.create("r", retry="fixed 10min")
    q.push("r", "1")
    q.rows("SELECT queue.fail(%s, 'no', retry_in => '0')", q.take("r")[0]["token"])
    assert lose(q, "r")[0] == "ready"
    assert lose(q, "r")[0] == "later"


def test_what_is_no_loss(q):
    """What nobody got, a goodbye, and the end of a lease that was held."""
    q.create("r", retry="fixed 10min")
    q.push("r", "1")
    for error in (None, "lease expired", "lease expired", None, None):
        assert lose(q, "r", error)[0] == "ready"
    assert q.row("SELECT attempt, failures, losses FROM queue.q_r") == (2, 2, None)


def test_a_lost_job_of_a_group_keeps_its_group_waiting(q):
    q.create("r", retry="fixed 10min")
    for payload in "12":
        q.rows("SELECT queue.push('r', %s::jsonb, \"group\" => 'g')", payload)
    for _ in range(2):
        q.rows("SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)", q.take("r")[0]["token"])
    assert q.column("SELECT state FROM queue.q_r ORDER BY id") == ["later", "blocked"]
    assert q.take("r") == []


def test_give_back_several_queues(q):
    q.create("r")
    a, b = tokens(q, "q", 2)
    (c,) = tokens(q, "r")
    assert sorted(q.column("SELECT queue._give_back(%s, 'x', false)", [c, a, b])) == ["q", "r"]


def test_done_in_a_transaction(q):
    (a,) = tokens(q, "q")
    q.rows("BEGIN")
    q.done(a)
    q.rows("ROLLBACK")
    assert q.done(a) == ["q"]


def test_done_with_durability_async(q):
    q.create("fast", durability="async")
    (a,), (b,) = tokens(q, "fast"), tokens(q, "q")
    call = "SELECT d, current_setting('synchronous_commit') FROM queue._done(ARRAY[%s], false) AS d"
    assert q.row(call.replace("%s", "'%s'" % a)) == ("fast", "off")
    assert q.row(call.replace("%s", "'%s'" % b)) == ("q", "on")
    (a,), (b,) = tokens(q, "fast"), tokens(q, "q")
    assert q.row(call, a) == ("fast", "on")         # it cannot know that nothing else is there
    (a,) = tokens(q, "fast")
    q.rows("SET qbouncer.autonomous = on")
    assert q.row(call, a) == ("fast", "off")
    assert q.row(call, b) == ("q", "on")


def test_notify(q):
    q.create("end")
    a, b, c, d = tokens(q, "q", 4)
    listener = q.connect()
    listener.rows("LISTEN qbouncer")
    q.rows("SELECT queue._fail(ARRAY[%s], 'e', '0', NULL, false)", a)
    q.rows("SELECT queue._release(ARRAY[%s], NULL, false)", b)
    q.rows("SELECT queue.fail(%s, 'e')", c)
    q.rows("SELECT queue.release(%s)", d)
    q.rows("SELECT queue.drop('end')")
    heard = []
    for note in listener.conn.notifies():
        heard.append(note.payload)
        if note.payload == "end":
            break
    assert heard == ["q", "q", "end"]


def test_many_jobs_at_once(q):
    found = tokens(q, "q", 3000)
    assert q.done(*reversed(found)) == ["q"] * 3000
    assert q.rows("SELECT * FROM queue.q_q") == []
