"""What was pushed again while it ran, by whatever a run ends: it runs once more, at its time, and not twice."""

import pytest

PUSH = "SELECT queue.push('q', %s, key => 'k', on_duplicate => %s, delay => %s::interval, \"group\" => %s)"

# (pushes while it runs: payload, policy, delay), the payload of what runs then, is its time to come?
CHANGES = {
    "nothing": ([], 1, False),
    "rerun": ([(2, "rerun", None)], 1, False),
    "rerun twice": ([(2, "rerun", None), (3, "rerun", None)], 1, False),
    "replace": ([(2, "replace", None)], 2, False),
    "replace twice": ([(2, "replace", "1 day"), (3, "replace", None)], 3, False),
    "replace, later": ([(2, "replace", "1 day")], 2, True),
    "replace, later, and rerun": ([(2, "replace", "1 day"), (3, "rerun", None)], 2, True),
    "rerun, and replace later": ([(3, "rerun", None), (2, "replace", "1 day")], 2, True),
}

# statement, is the run over for good if nothing was pushed?, has what comes a pause of its own (an hour)?, is the attempt counted?
ENDS = {
    "done": ("SELECT queue.done(%s)", True, False, True),
    "done, several": ("SELECT queue._done_many(ARRAY[%s], NULL)", True, False, True),
    "done, pairs": ("SELECT queue._done_pairs(ARRAY[%s, NULL])", True, False, True),
    "done, keep": ("SELECT queue._done(ARRAY[%s], false, NULL, true)", True, False, True),
    "done, result": ("SELECT queue.done(%s, result => '1')", True, False, True),
    "done, partial": ("SELECT queue._done_partial(ARRAY[%s], NULL)", True, False, True),
    "fail": ("SELECT queue.fail(%s, 'no')", False, True, True),
    "fail, at once": ("SELECT queue.fail(%s, 'no', retry_in => '0')", False, False, True),
    "fail, in an hour": ("SELECT queue.fail(%s, 'no', retry_in => '1 h')", False, True, True),
    "release": ("SELECT queue.release(%s)", False, False, False),
    "release, in an hour": ("SELECT queue.release(%s, delay => '1 h')", False, True, False),
    "given back": ("SELECT queue._give_back(ARRAY[%s], NULL, false)", False, False, False),
    "lost": ("SELECT queue._give_back(ARRAY[%s], 'worker disconnected', true)", False, False, True),
    "lease": (None, False, False, True),
}

QUEUES = {
    "plain": ({}, None),
    "archive": ({"retain_done": "1 day"}, None),
    "group": ({}, "g"),
    "places": ({"max_running_per_group": 3}, "g"),
}


def begin(db, queue):
    options, group = QUEUES[queue]
    db.create("q", retry="fixed 1h", **options)
    return run(db, group), group


def run(db, group):
    db.rows(PUSH, "1", "error", None, group)
    (job,) = db.take("q", 9)
    return job["token"]


def end(db, how, token):
    if how == "lease":
        db.rows("UPDATE queue.q_q SET lease_until = now() - interval '1 s'")
        db.rows("SELECT queue._promote(c, 9) FROM queue.queues AS c")
    else:
        db.rows(ENDS[how][0], token)


def runs(db):
    """What runs from now on, one after the other, each as soon as it may."""
    out = []
    for _ in range(3):
        db.rows("UPDATE queue.q_q SET run_at = now() - interval '1 s' WHERE state = 'later'")
        jobs = db.take("q", 9)
        out += [job["payload"] for job in jobs]
        if jobs:
            db.done(*[job["token"] for job in jobs])
    return out


def once_more(db, queue, how, change, token, group):
    pushes, payload, at_its_time = CHANGES[change]
    _, over, pauses, counted = ENDS[how]
    for payload_now, policy, delay in pushes:
        db.rows(PUSH, str(payload_now), policy, delay, group)
    assert db.take("q", 9) == []
    end(db, how, token)
    job = db.job("q", int(token.split("-")[1]))
    if over and not pushes:
        assert job is None and runs(db) == []
        return
    assert (job["token"], job["lease_until"], job["again"]) == (None, None, None)
    assert job["attempt"] == (0 if over or not counted else 1)
    blocked = QUEUES[queue][0].get("max_running_per_group") == 3
    assert job["state"] == ("later" if at_its_time or pauses else "blocked" if blocked else "ready")
    wait = db.value("SELECT extract(epoch FROM run_at - now()) FROM queue.q_q")
    least, most = (86400, 86400) if at_its_time else (3240, 3960) if pauses else (0, 0)  # a pause is +- 10 %
    assert least - 30 < wait < most + 1
    assert runs(db) == [payload]


@pytest.mark.parametrize("queue", QUEUES)
def test_once_more(db, queue):
    """Each end of a run after each change."""
    token, group = begin(db, queue)
    wrong = []
    for how in ENDS:
        for change in CHANGES:
            try:
                once_more(db, queue, how, change, token, group)
            except AssertionError as e:
                wrong.append((how, change, str(e).split("\n")[0]))
                db.rows("DELETE FROM queue.q_q")
            assert db.value("SELECT count(*) FROM queue.q_q") == 0
            token = run(db, group)
    assert wrong == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("final", [{"retry": "none"}, {"max_attempts": 1}])
@pytest.mark.parametrize("how", ["fail", "lost", "lease"])
def test_the_last_attempt(db, final, how, change):
    """What was pushed meanwhile is not dead by the end of what ran before."""
    pushes, payload, at_its_time = CHANGES[change]
    db.create("q", **final)
    db.rows(PUSH, "1", "error", None, None)
    token = db.take("q")[0]["token"]
    for payload_now, policy, delay in pushes:
        db.rows(PUSH, str(payload_now), policy, delay, None)
    end(db, how, token)
    state = db.value("SELECT state FROM queue.q_q")
    if not pushes:
        assert state == "dead"
        return
    assert state != "dead" and (state == "later" or not at_its_time)
    assert runs(db) == [payload]


@pytest.mark.parametrize("change", CHANGES)
def test_cancelled(db, change):
    """CANCEL is of all of it: of what runs, and of what was to run."""
    token, _ = begin(db, "plain")
    for payload_now, policy, delay in CHANGES[change][0]:
        db.rows(PUSH, str(payload_now), policy, delay, None)
    db.rows("SELECT queue.cancel('1')")
    db.fails("QB002", "SELECT queue.done(%s)", token)
    end(db, "given back", token)
    assert runs(db) == []


@pytest.mark.parametrize("change", ["replace", "rerun"])
def test_a_lease_that_is_over_and_nobody_has_found(db, change):
    """As it is shown: what it is to become."""
    token, _ = begin(db, "plain")
    db.rows(PUSH, "2", "replace", "1 day", None)
    db.rows("UPDATE queue.q_q SET lease_until = now() - interval '1 s'")
    assert db.rows("SELECT state, run_at > now() + interval '23 h' FROM queue.job('1')") == [("later", True)]
    assert db.rows("SELECT ready, later, leased FROM queue.stats('q')") == [(0, 1, 0)]
    db.rows(PUSH, "3", change, None, None)
    assert [job["payload"] for job in db.take("q", 9)] == ([] if change == "rerun" else [3])


def test_hurried(db):
    """ALTER JOB and REDRIVE find one that waits for its time as any other."""
    token, _ = begin(db, "plain")
    db.rows(PUSH, "2", "replace", "1 day", None)
    db.fails("55000", "SELECT queue.alter_job('1', '{at}', '{now}')")
    db.rows("SELECT queue.release(%s)", token)
    assert db.value("SELECT queue.redrive('q', which => 'later')") == 1
    assert runs(db) == [2]


def test_the_time_of_a_retry_and_of_the_push(db):
    """Not before either of them."""
    for delay, wanted in (("10 min", 3600), ("2 h", 7200)):
        token, _ = begin(db, "plain")
        db.rows(PUSH, "2", "replace", delay, None)
        db.rows("SELECT queue.fail(%s, 'no')", token)
        assert wanted * 0.89 < db.value("SELECT extract(epoch FROM run_at - now()) FROM queue.q_q") < wanted * 1.11
        db.rows("SELECT queue.drop('q')")


def test_losses_of_what_was_replaced(db):
    """All its attempts again: the first loss of the new one is ready at once, too."""
    token, _ = begin(db, "plain")
    end(db, "lost", token)
    db.rows(PUSH, "2", "replace", None, None)
    end(db, "lost", db.take("q")[0]["token"])
    assert db.job("q", 1)["state"] == "ready"
