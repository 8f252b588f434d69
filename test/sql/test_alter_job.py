"""ALTER JOB: changing what waits."""

import pytest

ALTER = "SELECT queue.alter_job(%s, %s::text[], %s::text[])"


@pytest.fixture
def q(db):
    db.create("q", retry="fixed 1h")
    return db


def alter(session, ref, **changes):
    session.rows(ALTER, ref, list(changes), [None if v is None else str(v) for v in changes.values()])


def order(session, n=10):
    return [job["id"] for job in session.take("q", n)]


def test_what_waits_gets_another_priority(q):
    q.push("q", "1", "2", "3")
    q.push("q", "4", priority=5)
    alter(q, "2", priority=7)
    alter(q, "1", priority=5)  # behind what has it already
    assert order(q) == [2, 4, 1, 3]


def test_the_other_values_keep_the_place(q):
    q.push("q", "1", "2", headers='{"a": 1}')
    alter(q, "1", payload='{"new": true}', headers='{"b": 2}', attempts=3)
    job = q.take("q")[0]
    assert (job["id"], job["payload"], job["headers"]) == (1, {"new": True}, {"b": 2})
    assert q.job("q", 1)["max_attempts"] == 3
    alter(q, "2", headers=None, attempts=None)
    assert (q.job("q", 2)["headers"], q.job("q", 2)["max_attempts"]) == (None, None)


def test_a_retry_is_hurried(q):
    q.push("q", "1")
    q.rows("SELECT queue.fail(%s, 'e')", q.take("q")[0]["token"])
    assert q.take("q") == []
    alter(q, "1", at="now")
    job = q.job("q", 1)
    assert job["state"] == "ready" and abs(q.value("SELECT extract(epoch FROM clock_timestamp() - %s)", job["run_at"])) < 60
    assert q.take("q")[0]["attempt"] == 2


def test_a_job_is_held(q):
    q.push("q", "1", "2")
    alter(q, "1", at="infinity")
    assert order(q) == [2]
    assert q.rows("SELECT ready, later FROM queue.stats('q')") == [(0, 1)]
    assert q.value("SELECT state FROM queue.job('1')") == "later"
    assert q.rows("SELECT run_at FROM queue.job('1') UNION ALL SELECT run_at FROM queue.peek('q', 5, 'later') "
                  "UNION ALL SELECT next_due FROM queue.stats('q') WHERE leased = 0") == [(None,), (None,)]
    assert q.due_ms("q") > 0
    q.rows("SELECT queue._gauges(10)")
    alter(q, "1", at="NOW ")
    assert order(q) == [1]


def test_another_time(q):
    q.push("q", "1", "2")
    alter(q, "1", at="2099-01-01 00:00:00+00")
    assert (q.job("q", 1)["state"], q.job("q", 1)["run_at"].year) == ("later", 2099)
    alter(q, "1", at="2000-01-01")  # past: at once, and since now
    assert q.job("q", 1)["state"] == "ready" and q.job("q", 1)["run_at"].year >= 2026
    assert order(q) == [2, 1]


def test_expires(q):
    q.push("q", "1")
    alter(q, "1", expires="1 h")
    assert q.value("SELECT expires_at - clock_timestamp() BETWEEN '59 min' AND '1 h' FROM queue.q_q")
    alter(q, "1", at="2099-01-01 00:00:00+00", expires="1 day")
    assert q.value("SELECT expires_at - run_at = '1 day' FROM queue.q_q")
    alter(q, "1", priority=3)
    assert q.value("SELECT expires_at - run_at = '1 day' FROM queue.q_q")
    alter(q, "1", expires=None)
    assert q.job("q", 1)["expires_at"] is None


def test_one_of_a_group(q):
    for n in range(3):
        q.rows("SELECT queue.push('q', %s, \"group\" => 'g')", str(n))
    alter(q, "2", priority=9, at="2099-01-01 00:00:00+00")
    assert q.job("q", 2)["state"] == "blocked"
    q.done(q.take("q")[0]["token"])
    assert q.job("q", 2)["state"] == "later" and q.take("q") == []
    alter(q, "2", at="now")
    first = q.take("q")[0]
    assert (first["id"], first["priority"]) == (2, 9)


def test_what_cannot_be_changed(q):
    q.push("q", "1", "2")
    one, two = q.take("q", 2)
    diag = q.fails("55000", ALTER, "1", ["priority"], ["3"])
    assert diag.message_primary == "job 1-1 is being worked on" and "CANCEL '1-1'" in diag.message_hint
    q.rows("SELECT queue.fail(%s, final => true)", two["token"])
    diag = q.fails("55000", ALTER, "1-2", ["priority"], ["3"])
    assert diag.message_primary == "job 1-2 is dead" and "RERUN '1-2'" in diag.message_hint
    q.done(one["token"])
    q.fails("QB003", ALTER, "1", ["priority"], ["3"])


def test_one_whose_lease_is_over(q):
    q.push("q", "1", "2", "3")
    one, two, three = q.take("q", 3)
    q.rows("SELECT queue.cancel('3')")
    q.expire("q")
    alter(q, "1", priority=4)
    job = q.job("q", 1)
    assert (job["state"], job["error"], job["failures"], job["priority"]) == ("ready", "lease expired", 1, 4)
    q.fails("QB003", ALTER, "3", ["priority"], ["3"])
    q.rows("SELECT queue.alter('q', '{max_attempts}', '{1}')")
    q.fails("55000", ALTER, "2", ["priority"], ["3"])


@pytest.mark.parametrize("names, vals, sqlstate", [
    ("{}", "{}", "22023"), ("{priority}", "{}", "22023"), ("{priority,priority}", "{1,2}", "22023"),
    ("{colour}", "{red}", "22023"), ("{NULL}", "{1}", "22023"), ("{priority}", "{x}", "22P02"), ("{priority}", "{NULL}", "22004"),
    ("{at}", "{-infinity}", "22008"), ("{at}", "{soon}", "22007"), ("{at}", "{NULL}", "22004"), ("{payload}", "{NULL}", "22004"),
    ("{payload}", "{'{'}", "22P02"), ("{headers}", "{1}", "22023"), ("{expires}", "{0}", "22023"), ("{expires}", "{x}", "22007"),
    ("{attempts}", "{0}", "22023"), ("{state}", "{dead}", "22023"),
])
def test_wrong_values(q, names, vals, sqlstate):
    q.push("q", "1")
    before = q.job("q", 1)
    q.fails(sqlstate, "SELECT queue.alter_job('1', %s, %s)", names, vals)
    assert q.job("q", 1) == before


def test_by_key_and_several(q):
    q.rows("SELECT queue.push('q', '1', key => 'k')")
    q.push("q", "2", "3")
    q.rows("SELECT queue.alter_job(names => '{priority}', vals => '{2}', q => 'q', k => 'k')")
    assert q.column("SELECT queue._alter_job('{1-2,1-3}', '{priority}', '{8}', false)") == ["q", "q"]
    assert q.column("SELECT priority FROM queue.q_q ORDER BY id") == [2, 8, 8]
    q.fails("QB003", "SELECT queue._alter_job('{1-2,1-99}', '{priority}', '{9}', false)")
    assert q.column("SELECT priority FROM queue.q_q ORDER BY id") == [2, 8, 8]


@pytest.mark.parametrize("kind, value", [("text", "a b"), ("bytea", "\\xdeadbeef")])
def test_other_payloads(db, kind, value):
    db.create("q", payload=kind)
    db.rows("SELECT queue.push('q', 'x')" if kind == "text" else "SELECT queue.push('q', '\\x00'::bytea)")
    alter(db, "1", payload=value)
    assert db.value("SELECT payload::text FROM queue.q_q") == value


def test_it_is_told(q):
    other = q.connect("app")
    other.rows("LISTEN qbouncer")
    q.push("q", "1")
    alter(q, "1", priority=1)
    assert next(other.conn.notifies()).payload == "q"


@pytest.mark.parametrize("rights, may", [("{push}", False), ("{await}", False), ("{push,await}", False), ("{take}", True)])
def test_rights(q, rights, may):
    q.push("q", "1")
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', %s, '{bob}')", rights)
    if may:
        alter(bob, "1", payload="2")
        assert q.value("SELECT payload FROM queue.q_q") == 2
    else:
        bob.fails("42501", ALTER, "1", ["payload"], ["2"])
        bob.fails("42501", "SELECT queue.alter_job('1', '{priority}', '{2}', 'q')")
