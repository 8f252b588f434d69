"""AFTER: jobs that wait until others are done."""

import threading

import pytest


@pytest.fixture
def q(db):
    db.create("q")
    db.create("r")
    return db


def after(db, jobs, queue="r", **more):
    names = "".join(', "%s" => %%s' % n for n in more)
    return db.value("SELECT queue.push(%%s, '1'::jsonb, after => %%s%s)" % names, queue, jobs, *more.values())


def state(db, number, queue="r"):
    """State, what it still waits for, and its error."""
    return db.row("SELECT state, after, error FROM queue.job(%s, %s)", str(number), queue)


def done(db, queue="q"):
    db.rows("SELECT queue.done(%s)", db.take(queue)[0]["token"])


def test_done(q):
    q.push("q", "1", "2")
    assert after(q, ["1-2", "1-1", "1-2"]) == 1
    assert state(q, 1) == ("blocked", "1-1, 1-2", None) and q.take("r") == []
    done(q)
    assert state(q, 1) == ("blocked", "1-2", None)
    assert q.value("SELECT blocked FROM queue.stats('r')") == 1
    done(q)
    assert state(q, 1) == ("ready", None, None)
    done(q, "r")


@pytest.mark.parametrize("end", ["pop", "done with a result", "in a transaction"])
def test_other_ways_to_be_done(q, end):
    q.push("q", "1")
    after(q, ["1-1"])
    if end == "pop":
        q.rows("SELECT queue.pop('q')")
    elif end == "done with a result":
        q.rows("SELECT queue.done(%s, '1')", q.take("q")[0]["token"])
    else:
        token = q.take("q")[0]["token"]
        q.rows("BEGIN")
        q.rows("SELECT queue.done(%s)", token)
        assert state(q, 1)[0] == "ready"
        q.rows("ROLLBACK")
        assert state(q, 1)[0] == "blocked"
        q.rows("SELECT queue.done(%s)", token)
    assert state(q, 1) == ("ready", None, None)


def test_pipeline_in_one_transaction(q):
    """a, b after a, c after b; also in a savepoint that is rolled back."""
    q.rows("BEGIN")
    q.push("q", "1")
    after(q, ["1-1"], "q")
    q.rows("SAVEPOINT s")
    after(q, ["1-2"], "q")
    q.rows("ROLLBACK TO s")
    after(q, ["1-2"], "q")
    q.rows("COMMIT")
    assert [state(q, n, "q")[0] for n in (1, 2, 4)] == ["ready", "blocked", "blocked"]
    for _ in range(3):
        done(q)
    assert q.value("SELECT count(*) FROM queue.q_q") == 0


def test_delay_and_priority(q):
    q.push("q", "1")
    after(q, ["1-1"], delay="1 h")
    after(q, ["1-1"], priority=7)
    done(q)
    assert state(q, 1)[0] == "later"
    assert q.take("r")[0]["priority"] == 7


@pytest.mark.parametrize("end, why", [
    ("SELECT queue.fail(token, 'no', final => true) FROM queue.take('q')", "is dead: no"), ("SELECT queue.cancel('1', 'q')", "was cancelled"),
    ("SELECT queue.purge('q')", "was purged"),
    ("UPDATE queue.q_q SET expires_at = now(); SELECT queue.maintain()", "has expired")])
def test_dies_with_it(q, end, why):
    """And so do those behind it."""
    q.push("q", "1")
    after(q, ["1-1"])
    after(q, ["2-1"])
    for sql in end.split("; "):
        q.rows(sql)
    reason = "job 1-1, which it waited for, " + why
    assert state(q, 1) == ("dead", "1-1", reason)
    assert state(q, 2) == ("dead", "2-1", "job 2-1, which it waited for, is dead: " + reason)


def test_cancelled_while_it_runs(q):
    q.push("q", "1")
    after(q, ["1-1"])
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.cancel('1', 'q')")
    assert state(q, 1)[0] == "blocked"
    q.rows("SELECT queue._give_back(%s, 'gone', true)", [token])
    assert state(q, 1)[0] == "dead"


def test_what_has_ended_already(db):
    db.create("q", retain_done="1 h")
    db.create("r")
    db.push("q", "1", "2", "3", "4")
    done(db)
    db.rows("SELECT queue.cancel('2', 'q')")
    db.rows("SELECT queue.fail(%s, 'no', final => true)", db.take("q")[0]["token"])
    after(db, ["1-1"])
    assert state(db, 1) == ("ready", None, None)
    after(db, ["1-1", "1-4"])
    assert state(db, 2) == ("blocked", "1-4", None)
    for job, code in (("1-2", "55000"), ("1-3", "55000"), ("1-99", "QB003"), ("7-1", "QB003"), ("x", "22023"), ("1", "22023")):
        db.fails(code, "SELECT queue.push('r', '1', after => %s)", [job])
    db.fails("22004", "SELECT queue.push('r', '1', after => '{NULL}')")
    db.fails("0A000", "SELECT queue.push('r', '1', after => '{1-4}', key => 'k', on_duplicate => 'replace')")


def test_gone_without_trace(q):
    q.push("q", "1")
    done(q)
    q.fails("QB003", "SELECT queue.push('r', '1', after => '{1-1}')")


def test_run_again(q):
    """The one that died with another is run again by itself: it waits if that does, and not for what nobody knows."""
    q.push("q", "1")
    after(q, ["1-1"])
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    q.rows("SELECT queue.rerun('1', 'r')")
    assert state(q, 1)[0] == "dead"  # the other one still is
    q.rows("SELECT queue.rerun('1', 'q')")
    assert state(q, 1)[0] == "dead"
    q.rows("SELECT queue.redrive('r')")
    assert state(q, 1)[0] == "blocked"
    done(q)
    assert state(q, 1)[0] == "ready"


def test_run_again_without_it(q):
    q.push("q", "1")
    after(q, ["1-1"])
    q.rows("SELECT queue.cancel('1', 'q')")
    q.rows("SELECT queue.rerun('1', 'r')")
    assert state(q, 1) == ("ready", None, "job 1-1, which it waited for, was cancelled")


def test_the_blocked_one_is_cancelled(q):
    q.push("q", "1")
    after(q, ["1-1"])
    q.rows("SELECT queue.cancel('1', 'r')")
    done(q)
    assert q.value("SELECT count(*) FROM queue.q_r") == 0


def test_dropped_or_truncated(q):
    """No trigger tells of that: the maintenance looks."""
    for sql in ("SELECT queue.drop('q')", "TRUNCATE queue.q_q"):
        number = q.value("SELECT number FROM queue.queues WHERE name = 'q'")
        ours = q.push("q", "1")[0]
        n = after(q, ["%s-%s" % (number, ours)])
        q.rows(sql)
        assert state(q, n)[0] == "blocked"
        q.rows("SELECT queue.maintain()")
        assert state(q, n)[0] == "dead" and state(q, n)[2].endswith("is gone")
        if "drop" in sql:
            q.create("q")


def test_keys(q):
    q.push("q", "1")
    assert after(q, ["1-1"], key="k") == after(q, ["1-1"], key="k") == 1
    done(q)
    assert state(q, 1)[0] == "ready"


@pytest.mark.parametrize("end, then", [("COMMIT", "ready"), ("ROLLBACK", "blocked")])
def test_beside_a_done(q, end, then):
    """The push waits for a DONE that is not committed, and sees what became of it."""
    two = q.connect()
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    two.rows("BEGIN")
    two.rows("SELECT queue.done(%s)", token)
    three = q.connect()
    push = three.beside(after, three, ["1-1"])
    q.until_blocked(three)
    two.rows(end)
    assert state(q, push.result())[0] == then


@pytest.mark.parametrize("end, then", [("COMMIT", "ready"), ("ROLLBACK", None)])
def test_done_beside_a_push(q, end, then):
    """The DONE waits for the push that is not committed."""
    two, three = q.connect(), q.connect()
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    two.rows("BEGIN")
    after(two, ["1-1"])
    done_of = three.beside(three.rows, "SELECT queue.done(%s)", token)
    q.until_blocked(three)
    two.rows(end)
    done_of.result()
    assert q.column("SELECT state FROM queue.peek('r')") == ([then] if then else [])


def test_two_ends_at_once(q):
    """Neither sees the other: the second waits for the first, and lets the follower go."""
    two, three = q.connect(), q.connect()
    q.push("q", "1", "2")
    after(q, ["1-1", "1-2"])
    tokens = [r["token"] for r in q.take("q", 2)]
    two.rows("BEGIN")
    two.rows("SELECT queue.done(%s)", tokens[0])
    other = three.beside(three.rows, "SELECT queue.done(%s)", tokens[1])
    q.until_blocked(three)
    two.rows("COMMIT")
    other.result()
    assert state(q, 1)[0] == "ready"


def test_rights(q):
    """It needs PUSH on its own queue and AWAIT on the other; with these nobody can touch other jobs."""
    bob = q.connect("bob")
    q.push("q", "1", "2")
    q.rows("SELECT queue.grant('r', '{push}', '{bob}')")
    assert "GRANT AWAIT ON q" in bob.fails("42501", "SELECT queue.push('r', '1', after => '{1-1}')").message_hint
    bob.fails("42501", "SELECT queue._follow_1(1, '2-1')")
    bob.fails("42501", "SELECT queue._followed('1-1', '2-1', 'done', NULL)")
    bob.fails("42501", "SELECT queue._look_after(2, 'r', 1, true)")
    q.rows("SELECT queue.grant('q', '{await}', '{bob}')")
    assert after(bob, ["1-1"]) == 1
    after(q, ["1-2"])
    bob.rows("SELECT queue._follow_1(1, '2-2,x,9-9,2-99')")  # which does not wait for it
    done(q)
    assert (state(q, 1)[0], state(q, 2)[0]) == ("ready", "blocked")
    q.rows("SELECT queue.revoke('q', '{await}', '{bob}')")
    bob.fails("42501", "SELECT queue._follow_1(2, NULL)")


def test_groups_with_limits(q):
    """Queues whose groups have limits have other triggers: it is refused there, both ways."""
    q.push("q", "1")
    after(q, ["1-1"])
    for name in ("q", "r"):
        e = q.fails("55006", "SELECT queue.alter(%s, '{max_running_per_group}', '{2}')", name)
        assert "wait for others, or are waited for" in e.message_primary
    done(q)
    done(q, "r")
    q.push("q", "2")
    q.rows("SELECT queue.alter('r', '{max_running_per_group}', '{2}')")
    q.fails("0A000", "SELECT queue.push('r', '1', after => '{1-2}')")
    q.push("r", "1")
    q.fails("0A000", "SELECT queue.push('q', '1', after => '{2-2}')")
    q.rows("SELECT queue.alter('r', '{max_running_per_group}', '{1}')")
    after(q, ["1-2"])
    done(q)
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'ready'") == 2


def test_a_long_chain_dies(q):
    """One after the other: one within the other would be as deep as the stack."""
    q.push("q", "1")
    q.rows("SELECT queue.push('q', '1', after => ARRAY['1-' || n]) FROM generate_series(1, 1500) AS n")
    q.rows("SELECT queue.cancel('1', 'q')")
    assert q.rows("SELECT state, count(*) FROM queue.q_q GROUP BY 1") == [("dead", 1500)]
    assert q.rows("SELECT dead FROM queue.figures") == [(1500,)]  # not a row for each
    assert state(q, 3, "q")[2] == "job 1-2, which it waited for, is dead: job 1-1, which it waited for, was cancelled"


@pytest.mark.parametrize("how", ["INSERT INTO queue.q_r (state, payload, behind) VALUES ('blocked', '1', '{1-1}')",
                                 "UPDATE queue.q_r SET state = 'blocked', behind = '{1-1}', position = DEFAULT",
                                 "UPDATE queue.q_r SET state = 'blocked', behind = '{1-1,x,1-99999999999999999999}'"])
def test_names_written_by_hand(q, how):
    """Who has no right to await a job learns nothing by writing down its name; and the maintenance goes on."""
    bob = q.connect("bob")
    q.push("q", "1")
    q.push("r", "1")
    q.rows("SELECT queue.fail(token, 'secret', final => true) FROM queue.take('q')")
    q.rows("SELECT queue.grant('r', '{all}', '{bob}')")
    bob.rows(how)
    q.rows("SELECT queue.maintain()")
    assert "secret" not in str(q.rows("SELECT error FROM queue.q_r"))
    assert q.column("SELECT followed FROM queue.q_q") == [None]


def test_who_looks_locks_nobody(q):
    """Anybody may: so no DONE waits for it."""
    mallory = q.connect("mallory")
    q.push("q", "1")
    after(q, ["1-1"])
    token = q.take("q")[0]["token"]
    mallory.rows("BEGIN")
    mallory.rows("SELECT queue._look_after_all(2)")
    q.rows("SET lock_timeout = '2s'")
    q.rows("SELECT queue.done(%s)", token)
    assert state(q, 1)[0] == "ready"


def test_more_than_a_look(q):
    """Those behind a thousand that wait rightly are looked at, too."""
    q.create("s")
    q.push("q", "1")
    q.push("s", "1")
    q.rows("SELECT queue.push('r', '1', after => '{1-1}') FROM generate_series(1, 1100)")
    after(q, ["3-1"])
    q.rows("TRUNCATE queue.q_s")
    for _ in range(60):
        q.rows("SELECT queue.maintain()")
        if state(q, 1101)[0] == "dead":
            break
    assert q.rows("SELECT state, count(*) FROM queue.q_r GROUP BY 1 ORDER BY 1") == [("blocked", 1100), ("dead", 1)]


def test_a_follower_with_a_group(q):
    """Written by hand: it must not hinder the DONE of what it names."""
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('r', '{push}', '{bob}')")
    q.rows("SELECT queue.grant('q', '{await}', '{bob}')")
    q.push("q", "1")
    q.rows("SELECT queue.push('r', '0', \"group\" => 'g')")
    bob.rows("BEGIN")
    bob.rows("INSERT INTO queue.q_r (state, payload, \"group\", behind) VALUES ('blocked', '1', 'g', '{1-1}')")
    bob.rows("SELECT queue._follow_1(1, '2-2')")
    bob.rows("COMMIT")
    done(q)
    done(q, "r")
    assert state(q, 2)[0] == "ready"


def test_beside_a_death_into_a_dead_queue(q):
    """What is not there any more when the push has waited for it was not done."""
    two, three = q.connect(), q.connect()
    q.rows("SELECT queue.alter('q', '{dead_queue}', '{r}')")
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    two.rows("BEGIN")
    two.rows("SELECT queue.fail(%s, 'no', final => true)", token)
    push = three.beside(after, three, ["1-1"])
    q.until_blocked(three)
    two.rows("COMMIT")
    push.error_of("QB003")


@pytest.mark.parametrize("at_once", [False, True])
def test_many_behind_one(q, at_once):
    """More than stand in the row of the one that they wait for; each costs the same."""
    q.push("q", "1", "2")
    n = 300
    if at_once:
        q.rows("SELECT * FROM queue._push('r', array_fill('1'::text, ARRAY[%s]), 0, NULL, NULL, NULL, false, after => '{1-1}')" % n)
    else:
        for _ in range(n):
            after(q, ["1-1"])
    assert q.value("SELECT octet_length(followed) < 1100 FROM queue.q_q WHERE id = 1")
    q.rows("BEGIN")
    done(q)
    assert q.value("SELECT ready FROM queue.stats('r')") == n
    q.rows("ROLLBACK")
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'blocked'") == n
    # maintenance finds that all is right
    q.rows("SELECT queue._look_after_all(2)")
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'blocked'") == n
    # dies, and so do they; run again, it lets them go that are run again
    q.rows("SELECT queue.fail(%s, 'broken', final => true)", q.take("q")[0]["token"])
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'dead' AND error = 'job 1-1, which it waited for, is dead: broken'") == n
    q.rows("SELECT queue.rerun('1-1')")
    q.rows("SELECT queue.redrive('r')")
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'blocked'") == n
    q.rows("SELECT queue.done(token) FROM queue.take('q', 2)")
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'ready'") == n
    assert q.connect("postgres").value("SELECT count(*) FROM queue.followers") == 0


@pytest.mark.parametrize("end", ["purge", "drop"])
def test_many_behind_one_that_goes(q, end):
    q.push("q", "1")
    for _ in range(200):
        after(q, ["1-1"])
    q.rows("SELECT queue.fail(%s, 'broken', final => true)", q.take("q")[0]["token"])
    q.rows("SELECT queue.purge('q')" if end == "purge" else "SELECT queue.drop('q')")
    assert q.connect("postgres").value("SELECT count(*) FROM queue.followers") == 0


def test_many_behind_one_that_was_truncated(q):
    """Maintenance finds those who wait, and what was written down of them: the id may be another job's soon."""
    q.push("q", "1", "2")
    for _ in range(200):
        after(q, ["1-1"])
    for _ in range(200):
        after(q, ["1-2"])
    root = q.connect("postgres")
    known = "SELECT count(DISTINCT job) FROM queue.followers"
    q.rows("SELECT queue.maintain()")
    assert root.value(known) == 2
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'blocked'") == 400
    q.rows("BEGIN")
    q.rows("TRUNCATE queue.q_q RESTART IDENTITY")
    q.push("q", "3")
    q.rows("COMMIT")
    q.rows("SELECT queue.maintain()")
    assert root.value(known) == 0
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'dead' AND error = 'job 1-2, which it waited for, is gone'") == 200
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'blocked'") == 0
    # the new job of the same id is waited for by nobody
    done(q)
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'dead'") == 400


def test_maintenance_looks_at_so_many_of_those_that_are_waited_for(q):
    """From anywhere on, a thousand at a time."""
    q.push("q", "1")
    for _ in range(200):
        after(q, ["1-1"])
    root = q.connect("postgres")
    root.rows("INSERT INTO queue.followers SELECT 1, n, '2-1' FROM generate_series(2, 1900) n")
    known = "SELECT count(DISTINCT job) FROM queue.followers"
    q.rows("SELECT queue._look_after_all(1)")
    assert 900 <= root.value(known) <= 902
    q.rows("SELECT queue._look_after_all(1)")
    assert root.value(known) == 1
    done(q)
    assert root.value(known) == 0
    assert q.value("SELECT count(*) FROM queue.q_r WHERE state = 'blocked'") == 0


# --- with a group ---

def grouped(db, n=1, queue="r", **more):
    for _ in range(n):
        db.rows("SELECT queue.push(%s, '1'::jsonb, \"group\" => 'g')", queue)


def places(db, queue="r"):
    return db.column("SELECT state FROM queue.q_%s ORDER BY id" % queue)


def test_a_group_is_entered_when_the_others_are_done(q):
    q.push("q", "1")
    assert after(q, ["1-1"], group="g") == 1
    assert q.row("SELECT state, \"group\", after FROM queue.job('1', 'r')") == ("blocked", "g", "1-1")
    assert q.row("SELECT state, \"group\", after FROM queue.peek('r', 9, 'blocked')") == ("blocked", "g", "1-1")
    grouped(q, 3)
    # it holds up nobody, and nobody it
    assert places(q) == ["blocked", "ready", "blocked", "blocked"]
    assert q.value("SELECT id FROM queue.take('r')") == 2
    done(q)
    assert places(q) == ["blocked", "leased", "blocked", "blocked"]
    assert state(q, 1) == ("blocked", None, None)
    q.rows("SELECT queue.done(token) FROM (SELECT '2-' || id || '-' || token AS token FROM queue.q_r WHERE state = 'leased') t")
    assert [q.take("r")[0]["id"], places(q)] == [1, ["leased", "blocked", "blocked"]]


@pytest.mark.parametrize("delay", [None, "1 hour"])
def test_the_first_of_its_group_goes_at_once(q, delay):
    q.push("q", "1")
    after(q, ["1-1"], group="g", **({"delay": delay} if delay else {}))
    token = q.take("q")[0]["token"]
    with q.conn.transaction():
        q.rows("SELECT queue.done(%s)", token)
        assert places(q) == ["later" if delay else "ready"]
    assert places(q) == ["later" if delay else "ready"]
    grouped(q)
    assert places(q)[1] == "blocked"


def test_several_of_one_group_after_one(q):
    q.push("q", "1")
    for _ in range(3):
        after(q, ["1-1"], group="g")
    after(q, ["1-1"], group="h")
    done(q)
    assert places(q) == ["ready", "blocked", "blocked", "ready"]
    for n in (1, 2, 3):
        job = q.row("SELECT id, token FROM queue.take('r') WHERE \"group\" = 'g'") if n > 1 else \
            next((j["id"], j["token"]) for j in q.take("r", 2) if j["id"] == 1)
        assert job[0] == n
        q.rows("SELECT queue.done(%s)", job[1])


def test_two_ends_at_once_leave_no_group_waiting(q):
    """Neither sees that the other lets one in."""
    q.push("q", "1", "2")
    after(q, ["1-1"], group="g")
    after(q, ["1-2"], group="g")
    tokens = [j["token"] for j in q.take("q", 2)]
    other = q.connect()
    with q.conn.transaction():
        q.rows("SELECT queue.done(%s)", tokens[0])
        t = threading.Thread(target=other.rows, args=("SELECT queue.done(%s)", tokens[1]))
        t.start()
        t.join(0.2)
    t.join(20)
    assert not t.is_alive() and places(q) == ["ready", "blocked"]
    done(q, "r")
    assert places(q) == ["ready"]


@pytest.mark.parametrize("how", ["dies", "is cancelled"])
def test_it_dies_and_is_run_again_with_its_group(q, how):
    q.push("q", "1")
    after(q, ["1-1"], group="g")
    grouped(q)
    if how == "dies":
        q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    else:
        q.rows("SELECT queue.cancel('1', 'q')")
    assert state(q, 1)[0] == "dead" and places(q) == ["dead", "ready"]
    assert q.value("SELECT \"group\" FROM queue.job('1', 'r')") == "g"
    if how == "dies":
        q.rows("SELECT queue.rerun('1', 'q')")
        q.rows("SELECT queue.rerun('1', 'r')")
        assert state(q, 1)[:2] == ("blocked", "1-1") or how
        done(q)
    else:
        q.rows("SELECT queue.rerun('1', 'r')")
    assert places(q) == ["blocked", "ready"]
    assert q.take("r")[0]["id"] == 2
    done_token = q.value("SELECT '2-2-' || token FROM queue.q_r WHERE id = 2")
    q.rows("SELECT queue.done(%s)", done_token)
    assert q.take("r")[0]["id"] == 1


def test_one_that_waits_is_cancelled(q):
    q.push("q", "1")
    after(q, ["1-1"], group="g")
    grouped(q)
    q.rows("SELECT queue.cancel('1', 'r')")
    done(q)
    assert places(q) == ["ready"]


def test_a_dead_queue_is_told_of_its_group(q):
    q.create("morgue")
    q.create("s", dead_queue="morgue")
    q.push("q", "1")
    after(q, ["1-1"], queue="s", group="g")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    assert q.value("SELECT headers -> 'dead' ->> 'group' FROM queue.q_morgue") == "g"


def test_the_archive_knows_its_group(q):
    q.rows("SELECT queue.alter('r', '{retain_done}', '{1 h}')")
    q.push("q", "1")
    after(q, ["1-1"], group="g")
    q.rows("SELECT queue.cancel('1', 'r')")
    assert q.row("""SELECT state, "group" FROM queue.job('1', 'r')""") == ("cancelled", "g")


def test_it_comes_between_those_of_a_list(q):
    """Of a lot: who is in front goes on, those behind are given back."""
    q.push("q", "1")
    grouped(q)
    after(q, ["1-1"], group="g")
    grouped(q, 2)
    jobs = q.rows("SELECT id, token FROM queue.take('r', 9, grouped => true)")
    assert [j[0] for j in jobs] == [1, 3, 4]
    done(q)
    q.rows("SELECT queue.done(%s)", jobs[0][1])
    q.fails("QB001", "SELECT queue.done(%s)", jobs[1][1])
    assert [j[0] for j in q.rows("SELECT id FROM queue.take('r', 9, grouped => true)")] == [2, 3, 4]


def test_what_it_waited_for_is_gone(q):
    q.push("q", "1")
    after(q, ["1-1"], group="g")
    q.rows("SELECT queue.drop('q')")
    q.rows("SELECT queue._look_after_all(2)")
    assert state(q, 1)[0] == "dead"
    q.rows("SELECT queue.rerun('1', 'r')")
    assert places(q) == ["ready"]


def test_names_of_groups(q):
    q.push("q", "1", "2")
    for n, name in enumerate(("=", "1-2", "a\nb,c", "x" * 1000)):
        after(q, ["1-1"], group=name)
        assert q.value("SELECT \"group\" FROM queue.job(%s, 'r')", str(n + 1)) == name
    q.fails("22001", "SELECT queue.push('r', '1'::jsonb, after => '{1-1}', \"group\" => repeat('x', 1001))")
    done(q)
    assert q.column('SELECT "group" FROM queue.q_r WHERE state = \'ready\' ORDER BY id') == ["=", "1-2", "a\nb,c", "x" * 1000]
