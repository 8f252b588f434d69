"""What is done to queues and to jobs from outside: PAUSE, RESUME, CANCEL, RERUN, REDRIVE."""

import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


# -- pause -------------------------------------------------------------------------------------

def test_a_paused_queue_gives_nothing(q):
    q.push("q", "1", "2")
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.pause('q')")
    q.rows("SELECT queue.pause('q')")
    assert q.value("SELECT paused FROM queue.list()")
    q.push("q", "3")
    q.push("q", "4", delay="1 h")
    assert q.take("q", 9) == q.take("q", 9, pop=True) == []
    assert q.due_ms("q") is None
    assert q.done(token) == ["q"]
    q.rows("SELECT queue.resume('q', false)")
    assert not q.value("SELECT paused FROM queue.list()")
    assert [job["id"] for job in q.take("q", 9)] == [2, 3]


def test_what_falls_due_in_a_pause(q):
    q.push("q", "1", delay="1 h")
    q.rows("SELECT queue.pause('q')")
    q.expire("q")
    assert q.take("q") == [] and q.due_ms("q") is None
    q.rows("SELECT queue.resume('q')")
    assert [job["id"] for job in q.take("q")] == [1]


def test_the_other_queues_of_a_take(q):
    q.create("r")
    q.push("q", "1")
    q.push("r", "2")
    q.rows("SELECT queue.pause('q')")
    assert [job["queue"] for job in q.take(["q", "r"], 5)] == ["r"]
    q.push("r", "2", delay="1 h")
    assert q.due_ms(["q", "r"]) > 0


def test_pause_errors(q):
    for verb in ("pause", "resume"):
        assert q.fails("42P01", "SELECT queue.%s('x')" % verb).message_hint
        q.fails("22004", "SELECT queue.%s(NULL)" % verb)
        assert q.connect("bob").fails("42501", "SELECT queue.%s('q')" % verb).message_primary == \
            'must be owner of queue "q"'


def test_resume_notifies(q):
    ear = q.connect()
    ear.rows("LISTEN qbouncer")
    q.rows("SELECT queue.pause('q')")
    q.rows("SELECT queue.resume('q', false)")
    q.rows("SELECT queue.resume('q')")
    got = next(ear.conn.notifies())
    assert (got.channel, got.payload) == ("qbouncer", "q")


# -- cancel ------------------------------------------------------------------------------------

def number(db, queue="q"):
    return db.value("SELECT number FROM queue.queues WHERE name = %s", queue)


def ref(db, job, queue="q"):
    return "%d-%d" % (number(db, queue), job)


def cancel(session, *refs):
    return session.column("SELECT queue FROM queue._cancel(%s::text[], false)", [str(r) for r in refs])


def test_a_job_that_waits_goes_away(q):
    q.push("q", "1", "2", "3")
    q.push("q", "4", delay="1 h")
    assert cancel(q, ref(q, 2), 4, ref(q, 2)) == ["q", "q"]
    assert q.column("SELECT id FROM queue.peek('q')") == [1, 3]
    q.rows("SELECT queue.cancel('1')")
    assert [job["id"] for job in q.take("q", 9)] == [3]


def test_the_worker_hears_of_it(q):
    q.push("q", "1", "2")
    one, two = [job["token"] for job in q.take("q", 2)]
    assert cancel(q, one) == cancel(q, 1) == ["q"]
    for sql in ["done(%s)", "fail(%s)", "release(%s)", "extend(%s)"]:
        diag = q.fails("QB002", "SELECT queue." + sql, one)
        assert diag.message_primary == "job 1 is cancelled"
    q.fails("QB002", "SELECT queue._done(ARRAY[%s, %s], false)", two, one)
    q.fails("QB001", "SELECT queue.done(%s)", one[:-16] + "0" * 16)
    assert q.done(two) == ["q"]
    assert q.job("q", 1)["state"] == "leased"


@pytest.mark.parametrize("limit", [1, 5])
def test_it_goes_when_the_lease_ends(q, limit):
    q.push("q", "1", "2")
    token = q.take("q")[0]["token"]
    cancel(q, 1)
    q.expire("q")
    assert [job["id"] for job in q.take("q", limit)] == [2]
    assert q.job("q", 1) is None
    assert q.fails("QB001", "SELECT queue.done(%s)", token).message_detail == \
        "The job is finished and gone."


def test_it_goes_when_its_lease_is_over_unnoticed(q):
    q.push("q", "1")
    q.take("q")
    q.expire("q")
    cancel(q, 1)
    assert q.job("q", 1) is None


@pytest.mark.parametrize("counted", [True, False])
def test_it_goes_when_it_is_given_back(q, counted):
    q.push("q", "1", "2")
    tokens = [job["token"] for job in q.take("q", 2)]
    cancel(q, 1)
    assert q.column("SELECT queue._give_back(%s, 'gone', %s)", tokens, counted) == ["q"]
    assert [job["id"] for job in q.take("q", 5)] == [2]


def test_names_of_jobs(q):
    q.create("r")
    q.push("q", "1", "2", "3", "4")
    q.push("r", "1", "2")
    q.rows("SELECT queue.cancel(%s)", ref(q, 1, "r"))
    q.rows("SELECT queue.cancel('1', 'q')")
    q.rows("SELECT queue.cancel(%s)", ref(q, 2) + "-0123456789abcdef")
    q.rows("SELECT queue.cancel(%s, 'q')", ref(q, 3))
    for gone in (ref(q, 1), ref(q, 99), "999999999-1"):
        assert "no job" in q.fails("QB003", "SELECT queue.cancel(%s)", gone).message_primary
    for bad in ("", "x", "1-", "-1", "1-2-3", "1-2-0123456789abcdeg", "9" * 19, "1; DROP"):
        assert q.fails("22023", "SELECT queue.cancel(%s)", bad).message_hint
        assert q.fails("22023", "SELECT queue.cancel(%s, 'q')", bad).message_hint
    q.fails("22004", "SELECT queue.cancel(NULL)")
    q.fails("22004", "SELECT queue.cancel(NULL, 'q')")
    q.fails("42P01", "SELECT queue.cancel('1', 'nosuch')")
    assert [q.column("SELECT id FROM queue.peek(%s)", name) for name in "qr"] == [[4], [2]]


ALL = {"cancel": "CANCEL", "rerun": "RERUN", "job": "JOB", "await": "AWAIT"}


@pytest.mark.parametrize("verb", list(ALL))
def test_a_bare_id_is_never_a_job_of_another_queue(q, verb):
    q.create("r")
    q.push("r", "1", "2")
    (token,) = [job["token"] for job in q.take("r", 1)]
    q.rows("SELECT queue.fail(%s, 'no', final => true)", token)
    before = q.rows("SELECT * FROM queue.q_r ORDER BY id")
    for ref_of_r in ("1", "2", "77"):
        diag = q.fails("22023", "SELECT queue.%s(%%s)" % verb, ref_of_r)
        assert diag.message_hint == "Name its queue: QUEUE %s %s ON q; Or ON r." % (ALL[verb], ref_of_r)
        q.fails("QB003", "SELECT queue.%s(%%s, 'q')" % verb, ref_of_r)
    for name in (ref(q, 1, "r"), ref(q, 2, "r"), ref(q, 77, "r"), token):
        diag = q.fails("22023", "SELECT queue.%s(%%s, 'q')" % verb, name)
        assert diag.message_primary == 'job %s is not one of queue "q"' % name and '"r"' in diag.message_hint
    assert q.rows("SELECT * FROM queue.q_r ORDER BY id") == before


def test_the_hint_names_what_the_role_may_see(q):
    q.create("r")
    bob = q.connect("bob")
    assert bob.fails("22023", "SELECT queue.cancel('1')").message_hint == "Name its queue: QUEUE CANCEL 1 ON ...;"
    q.rows("SELECT queue.grant('r', '{take}', '{bob}')")
    assert bob.fails("22023", "SELECT queue.cancel('1')").message_hint == "Name its queue: QUEUE CANCEL 1 ON r;"
    for name in ("s", "t u"):
        q.create(name)
    assert q.fails("22023", "SELECT queue.cancel('1')").message_hint == \
        "Name its queue: QUEUE CANCEL 1 ON q; Or ON r, s, or another one (QUEUE LIST)."
    q.fails("QB003", "SELECT queue.job('1', 't u')")


def test_a_database_without_queues(db):
    for verb in ALL:
        db.fails("QB003", "SELECT queue.%s('1')" % verb)


def test_a_job_by_its_key(q):
    q.create("r")
    for name in "qr":
        for key in "kl":
            q.rows("SELECT queue.push(%s, '1', key => %s)", name, key)
    assert q.value("SELECT job FROM queue.job(q => 'q', k => 'l')") == ref(q, 2)
    q.rows("SELECT queue.cancel(q => 'q', k => 'k')")
    assert [q.column("SELECT id FROM queue.peek(%s)", name) for name in "qr"] == [[2], [1, 2]]
    assert "unfinished" in q.fails("QB003", "SELECT queue.cancel(q => 'q', k => 'k')").message_primary
    q.fails("22004", "SELECT queue.cancel(k => 'l')")
    q.fails("22004", "SELECT queue.cancel(q => 'q')")
    assert q.rows("SELECT * FROM queue.await(q => 'q', k => 'l')") == []
    assert "dead" in q.fails("QB003", "SELECT queue.rerun(q => 'q', k => 'l')").message_primary
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.fail(%s, 'no', final => true)", token)
    q.fails("QB003", "SELECT queue.await(q => 'q', k => 'l')")
    assert q.row("SELECT state, key FROM queue.job(q => 'q', k => 'l')") == ("dead", "l")
    q.rows("SELECT queue.rerun(q => 'q', k => 'l')")
    assert q.job("q", 2)["state"] == "ready"


def test_lists(q):
    q.push("q", *"123456")
    q.rows("SELECT queue.cancel(ARRAY['1', '2'], 'q')")
    assert cancel(q, "{3,%s}" % ref(q, 4), "5") == ["q", "q", "q"]
    assert cancel(q, "{}") == []
    q.fails("22004", "SELECT queue.cancel(ARRAY['6', NULL])")
    q.fails("22004", "SELECT queue._cancel('{\"{6,NULL}\"}', false)")
    q.fails("22P02", "SELECT queue._cancel('{\"{6\"}', false)")
    (token,) = [job["token"] for job in q.take("q")]
    q.fails("QB001", "SELECT queue._done(%s, false)", ["{%s,1-99-0123456789abcdef}" % token])
    assert q.done("{%s}" % token) == ["q"]


def test_tokens_of_a_queue(q):
    q.create("r")
    q.push("q", "1")
    (token,) = [job["token"] for job in q.take("q")]
    assert q.value("SELECT queue._of(%s, 'q')", ["{%s}" % token]) == [token]
    assert '"q"' in q.fails("22023", "SELECT queue._of(%s, 'r')", [token]).message_hint
    q.fails("42P01", "SELECT queue._of(%s, 'nosuch')", [token])


def test_all_or_nothing(q):
    q.push("q", "1", "2")
    q.fails("QB003", "SELECT queue._cancel(%s, false)", [ref(q, 1), ref(q, 9)])
    assert q.column("SELECT id FROM queue.peek('q')") == [1, 2]


def test_a_dead_job_is_not_cancelled(q):
    q.push("q", "1")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    assert "PURGE" in q.fails("55000", "SELECT queue.cancel(%s)", ref(q, 1)).message_hint


def test_cancel_and_take(q):
    """Whoever comes first: the job is taken and marked, or gone."""
    q.push("q", "1")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    token = one.take("q")[0]["token"]
    call = two.beside(cancel, two, ref(q, 1))
    q.until_blocked(two)
    one.rows("COMMIT")
    assert call.result() == ["q"]
    q.fails("QB002", "SELECT queue.done(%s)", token)


def test_cancel_and_done(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.done(token)
    call = two.beside(cancel, two, ref(q, 1))
    q.until_blocked(two)
    one.rows("COMMIT")
    call.error_of("QB003")


def test_a_stranger_may_not_cancel(q):
    q.push("q", "1")
    bob = q.connect("bob")
    bob.fails("42501", "SELECT queue.cancel('1')")
    bob.fails("42501", "SELECT queue.cancel(%s)", ref(q, 1))


# -- cancel all ---------------------------------------------------------------------------------

def test_cancel_all(q):
    """What waits is gone, what runs is marked, what is dead stays; again there is nothing to do."""
    q.push("q", "1", "2", "3")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.push('q', '4', delay => '1 h')")
    q.rows("SELECT queue.push('q', '5', key => 'k'), queue.push('q', '6', \"group\" => 'g'), queue.push('q', '7', \"group\" => 'g')")
    assert q.value("SELECT queue.cancel_all('q', ids => '{1,3}')") == 1
    assert q.value("SELECT queue.cancel_all('q')") == 5
    assert q.rows("SELECT id, state FROM queue.peek('q') ORDER BY id") == [(1, "dead"), (2, "leased")]
    assert q.value("SELECT queue.cancel_all('q')") == 0
    q.fails("QB002", "SELECT queue.done(%s)", token)
    q.fails("42P01", "SELECT queue.cancel_all('nosuch')")


def test_cancel_all_of_a_lease_that_is_over(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    q.rows("UPDATE queue.q_q SET lease_until = clock_timestamp() RETURNING 1")
    assert q.value("SELECT queue.cancel_all('q')") == 1
    assert q.column("SELECT id FROM queue.q_q") == []
    q.fails("QB001", "SELECT queue.done(%s)", token)


def test_cancel_all_is_kept(q):
    q.rows("SELECT queue.alter('q', '{retain_done}', '{1 h}')")
    q.push("q", "1", "2")
    assert q.value("SELECT queue.cancel_all('q')") == 2
    assert q.column("SELECT state FROM queue.a_q") == ["cancelled"] * 2


def test_cancel_all_beside_a_take_and_a_done(q):
    q.push("q", "1", "2")
    one, two = q.connect(), q.connect()
    first = q.take("q")[0]["token"]
    one.rows("BEGIN")
    one.done(first)
    second = one.take("q")[0]["token"]
    call = two.beside(two.value, "SELECT queue.cancel_all('q')")
    q.until_blocked(two)
    one.rows("COMMIT")
    assert call.result() == 1
    q.fails("QB002", "SELECT queue.done(%s)", second)


def test_cancel_all_tells_those_who_wait_behind(q):
    q.create("r")
    q.push("q", "1")
    q.rows("SELECT queue.push('r', '2', after => ARRAY[%s])", ref(q, 1))
    q.value("SELECT queue.cancel_all('q')")
    ((state, error),) = q.rows("SELECT state, error FROM queue.q_r")
    assert state == "dead" and error.endswith("was cancelled")


# -- rerun and redrive -------------------------------------------------------------------------

def kill(session, *jobs, queue="q"):
    for job in jobs:
        taken = session.take(queue)[0]
        assert taken["id"] == job
        session.rows("SELECT queue.fail(%s, 'no luck', final => true)", taken["token"])


def test_rerun(q):
    q.push("q", "1", "2", "3")
    kill(q, 1, 2)
    assert q.column("SELECT queue._rerun(%s, false)", [ref(q, 1), "2", "1"]) == ["q", "q"]
    assert [job["id"] for job in q.take("q", 9)] == [3, 1, 2]
    row = q.job("q", 1)
    assert (row["attempt"], row["failures"], row["error"], row["ended_at"]) == (1, 0, "no luck", None)


def test_rerun_of_the_living(q):
    q.push("q", "1")
    assert "ready" in q.fails("55000", "SELECT queue.rerun(%s)", ref(q, 1)).message_detail
    q.fails("QB003", "SELECT queue.rerun(%s)", ref(q, 2))
    assert q.job("q", 1)["state"] == "ready"


def test_redrive(q):
    q.push("q", "1", "2", "3", "4")
    kill(q, 1, 2, 3)
    assert q.value("SELECT queue.redrive('q', 2)") == 2
    assert [job["id"] for job in q.take("q", 9)] == [4, 1, 2]
    assert q.value("SELECT queue.redrive('q', 0)") == 0
    assert q.value("SELECT queue.redrive('q')") == 1
    assert q.value("SELECT queue.redrive('q')") == 0
    q.fails("22023", "SELECT queue.redrive('q', -1)")
    q.fails("42P01", "SELECT queue.redrive('x')")


def test_redrive_of_those_that_wait(q):
    """Delayed ones, retries and what is held; in the order of their times."""
    q.push("q", "1", "2", "3")
    q.rows("SELECT queue.fail(%s, 'no', retry_in => '2 h')", q.take("q")[0]["token"])
    kill(q, 2)
    q.rows("SELECT queue.push('q', '4', delay => '1 h')")
    q.rows("SELECT queue.push('q', '5', delay => '3 h', \"group\" => 'g'), queue.push('q', '6', \"group\" => 'g')")
    q.rows("SELECT queue.push('q', '7', delay => '1 h')")
    q.rows("SELECT queue.alter_job(%s, '{at}', '{infinity}')", ref(q, 7))
    assert q.value("SELECT queue.redrive('q', 2, which => 'later')") == 2
    assert q.column("SELECT id FROM queue.q_q WHERE state = 'ready' ORDER BY position") == [3, 4, 1]
    assert q.value("SELECT queue.redrive('q', ids => '{7,2,6}', which => 'later')") == 1
    assert q.value("SELECT queue.redrive('q', which => 'later')") == 1
    assert q.column("SELECT id FROM queue.q_q WHERE state = 'ready' ORDER BY position") == [3, 4, 1, 7, 5]
    assert q.value("SELECT attempt FROM queue.q_q WHERE id = 1") == 1, "it is the next attempt, not a new job"
    assert q.job("q", 2)["state"] == "dead" and q.job("q", 6)["state"] == "blocked"
    for which in ("leased", "ready", None):
        q.fails("22023", "SELECT queue.redrive('q', which => %s)", which)


def test_redrive_to_another_queue(q):
    q.create("r")
    q.rows("""SELECT queue.push('q', '"a"', priority => 3, headers => '{"h": 1}', key => 'k'), queue.push('q', '"b"'),
        queue.push('q', '"c"', delay => '1 h')""")
    kill(q, 1, 2)
    ear = q.connect()
    ear.rows("LISTEN qbouncer")
    assert q.value("SELECT queue.redrive('q', 1, target => 'r')") == 1
    assert q.value("SELECT queue.redrive('q', target => 'r')") == 1
    assert q.value("SELECT queue.redrive('q', which => 'later', target => 'r')") == 1
    assert q.rows("SELECT payload, priority, headers, key, attempt FROM queue.q_r ORDER BY id") == [
        ("a", 3, {"h": 1, "parent": ref(q, 1)}, None, 0), ("b", 0, {"parent": ref(q, 2)}, None, 0),
        ("c", 0, {"parent": ref(q, 3)}, None, 0)]
    assert q.column("SELECT id FROM queue.q_q") == []
    assert next(ear.conn.notifies()).payload == "r"


def test_redrive_to_what_does_not_go(q):
    q.push("q", "1", "2")
    kill(q, 1, 2)
    q.create("full", max_length="1")
    q.create("texts", payload="text")
    q.create("closed")
    q.rows("SELECT queue.pause('closed', pushes => true)")
    for target, code in (("full", "QB004"), ("texts", "42804"), ("closed", "QB006"), ("nosuch", "42P01"), ("q", "22023")):
        q.fails(code, "SELECT queue.redrive('q', target => %s)", target)
    assert q.column("SELECT state FROM queue.q_q") == ["dead"] * 2, "all or nothing"
    assert q.value("SELECT queue.redrive('q', 1, target => 'full')") == 1


def test_redrive_to_needs_both_rights(q):
    q.create("r")
    q.push("q", "1")
    kill(q, 1)
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('r', '{push}', '{bob}')")
    bob.fails("42501", "SELECT queue.redrive('q', target => 'r')")
    q.rows("SELECT queue.revoke('r', '{push}', '{bob}'), queue.grant('q', '{take}', '{bob}')")
    assert "GRANT PUSH ON r" in bob.fails("42501", "SELECT queue.redrive('q', target => 'r')").message_hint
    q.rows("SELECT queue.grant('r', '{push}', '{bob}')")
    assert bob.value("SELECT queue.redrive('q', target => 'r')") == 1


def test_redrive_to_keeps_what_died(q):
    q.create("r")
    q.rows("SELECT queue.alter('q', '{retain_done}', '{1 h}')")
    q.push("q", "1")
    kill(q, 1)
    q.rows("SELECT queue.push('q', '2', delay => '1 h')")
    q.rows("SELECT queue.redrive('q', target => 'r'), queue.redrive('q', which => 'later', target => 'r')")
    assert q.rows("SELECT id, state FROM queue.a_q ORDER BY id") == [(1, "dead"), (2, "cancelled")]


def test_they_notify(q):
    ear = q.connect()
    q.push("q", "1", "2")
    kill(q, 1, 2)
    ear.rows("LISTEN qbouncer")
    for sql in ("queue.rerun('1')", "queue.redrive('q')"):
        q.rows("SELECT " + sql)
        assert next(ear.conn.notifies()).payload == "q"


def test_a_stranger_may_not_rerun(q):
    q.push("q", "1")
    kill(q, 1)
    bob = q.connect("bob")
    bob.fails("42501", "SELECT queue.rerun(%s)", ref(q, 1))
    bob.fails("42501", "SELECT queue.redrive('q')")


# -- job and errors ----------------------------------------------------------------------------

def shown(session, job):
    cursor = session.conn.execute("SELECT * FROM queue.job(%s)", (str(job),))
    rows = cursor.fetchall()
    assert len(rows) == 1
    return dict(zip([column.name for column in cursor.description], rows[0]))


def test_job(q):
    q.push("q", '{"a": 1}', headers='{"h": 2}', priority=3)
    job = shown(q, 1)
    assert job == shown(q, ref(q, 1))
    assert (job["job"], job["id"], job["queue"], job["state"], job["priority"], job["payload"],
            job["headers"], job["cancelled"]) == \
        (ref(q, 1), 1, "q", "ready", 3, {"a": 1}, {"h": 2}, False)
    token = q.take("q", worker="me")[0]["token"]
    job = shown(q, token)
    assert (job["state"], job["worker"], job["attempt"]) == ("leased", "me", 1)
    assert token[-16:] not in str(job)
    cancel(q, 1)
    assert shown(q, 1)["cancelled"]
    q.fails("QB003", "SELECT queue.job('2')")
    q.fails("QB003", "SELECT queue.job(%s)", ref(q, 2))
    q.fails("QB003", "SELECT queue.job('999-2')")
    q.fails("22023", "SELECT queue.job('x')")
    q.connect("bob").fails("42501", "SELECT queue.job(%s)", ref(q, 1))
    q.connect("bob").fails("42501", "SELECT queue.job('1')")


def test_job_of_the_dead(q):
    q.push("q", "1")
    kill(q, 1)
    job = shown(q, 1)
    assert (job["state"], job["error"], job["failures"]) == ("dead", "no luck", 1)
    assert job["failed_at"] and job["ended_at"]


def test_errors(q):
    assert q.rows("SELECT * FROM queue.errors('q')") == []
    q.push("q", *"1234567")
    kill(q, 1, 2)
    q.rows("SELECT queue.fail(%s, 'slow', '1 h')", q.take("q")[0]["token"])
    q.rows("SELECT queue.fail(%s)", q.take("q")[0]["token"])
    q.take("q")
    q.rows("UPDATE queue.q_q SET lease_until = '2000-01-01' WHERE id = 5")
    q.rows("SELECT queue._give_back(ARRAY[%s], 'rolled back', true)", q.take("q")[0]["token"])
    assert q.rows("SELECT error, jobs FROM queue.errors('q') ORDER BY jobs DESC, error") == [
        ("no luck", 2), ("lease expired", 1), ("rolled back", 1), ("slow", 1), (None, 1)]
    assert q.value("SELECT bool_and(last BETWEEN now() - interval '1 min' AND clock_timestamp()) "
                   "FROM queue.errors('q')")
    assert q.rows("SELECT error, jobs FROM queue.errors('q')")[0] == ("no luck", 2)
    q.connect("bob").fails("42501", "SELECT queue.errors('q')")


# -- expires and attempts ----------------------------------------------------------------------

def push(session, *payloads, expires=None, attempts=None, delay=None):
    return session.column("SELECT queue._push('q', %s::text[], NULL, %s::interval, NULL, NULL, "
                          "false, %s::interval, %s)", list(payloads), delay, expires, attempts)


def pass_over(session):
    session.rows("UPDATE queue.q_q SET expires_at = expires_at - interval '1 year'")


@pytest.mark.parametrize("pop,limit", [(True, 1), (False, 1), (False, 5)])
def test_what_expired_goes_away(q, pop, limit):
    assert push(q, "1", "2", expires="1 h") == [1, 2]
    assert push(q, "3", expires="1 h", delay="1 min") == [3]
    q.push("q", "4")
    assert q.value("SELECT expires_at - run_at FROM queue.job('3')").total_seconds() == 3600
    assert [job["id"] for job in q.take("q", pop=pop)] == [1]
    pass_over(q)
    assert [job["id"] for job in q.take("q", limit, pop=pop)] == [4]
    assert q.job("q", 2) is None and q.job("q", 3) is None


def test_expired_while_it_was_worked_on(q):
    push(q, "1", "2", "3", expires="1 h")
    tokens = [job["token"] for job in q.take("q", 3)]
    pass_over(q)
    assert q.done(tokens[0]) == ["q"]
    q.rows("SELECT queue.fail(%s, 'no')", tokens[1])
    q.expire("q")
    assert q.take("q", 5) == []
    assert q.column("SELECT id FROM queue.q_q") == []


def test_many_expired_are_not_delivered(q):
    push(q, *["1"] * 1200, expires="1 h")
    pass_over(q)
    q.push("q", "2")
    assert [job["payload"] for job in q.take("q")] == [2]


def test_attempts_of_its_own(q):
    push(q, "1", attempts=2)
    for state in ("ready", "dead"):
        q.rows("SELECT queue.fail(%s, 'no', '0')", q.take("q")[0]["token"])
        assert q.job("q", 1)["state"] == state
    assert q.value("SELECT max_attempts FROM queue.job('1')") == 2
    push(q, "1", attempts=1)
    assert q.take("q")[0]["id"] == 2
    q.expire("q")
    assert q.take("q") == [] and q.job("q", 2)["state"] == "dead"
    push(q, "1", attempts=1)
    token = q.take("q")[0]["token"]
    q.column("SELECT queue._give_back(ARRAY[%s], 'no', true)", token)
    assert q.job("q", 3)["state"] == "dead"


def test_more_attempts_than_the_queue_has(q):
    q.rows("SELECT queue.alter('q', '{max_attempts}', '{1}')")
    push(q, "1", attempts=3)
    q.column("SELECT queue._give_back(ARRAY[%s], 'no', true)", q.take("q")[0]["token"])
    q.rows("SELECT queue.fail(%s, 'no', '0')", q.take("q")[0]["token"])
    q.take("q")
    q.expire("q")
    q.take("q")
    assert q.job("q", 1)["state"] == "dead"
    assert q.job("q", 1)["failures"] == 3


def test_no_retry_is_no_retry(q):
    q.rows("SELECT queue.alter('q', '{retry}', '{none}')")
    push(q, "1", "2", "3", attempts=5)
    q.rows("SELECT queue.fail(%s)", q.take("q")[0]["token"])
    q.column("SELECT queue._give_back(ARRAY[%s], 'no', true)", q.take("q")[0]["token"])
    q.take("q")
    q.expire("q")
    assert q.take("q") == []
    assert q.rows("SELECT dead FROM queue.stats('q')") == [(3,)]


def test_push_by_name(q):
    assert q.value("SELECT queue.push('q', '1', expires => '1 h', attempts => 3)") == 1
    for bad in (dict(expires="0"), dict(expires="-1 s"), dict(expires="9000 years"), dict(attempts=0)):
        with pytest.raises(Exception) as caught:
            push(q, "1", **bad)
        assert caught.value.sqlstate == "22023"
