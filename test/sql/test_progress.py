"""EXTEND ... UNTIL, and PROGRESS: what a worker tells of a job that it has."""

import pytest

LEFT = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM queue.q_q"


@pytest.fixture
def q(db):
    db.create("q", retain_done="1 day")
    db.push("q", "1")
    return db


def test_until(q):
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.extend(%s, until => '2099-01-01 00:00:00+00')", token)
    assert q.value("SELECT lease_until = '2099-01-01 00:00:00+00' FROM queue.q_q")
    q.rows("SELECT queue.extend(%s, until => clock_timestamp() + interval '10 s')", token)
    assert 5 < q.value(LEFT) < 11
    for wrong in ("'2000-01-01'", "clock_timestamp()", "'infinity'", "'-infinity'"):
        q.fails("22023", "SELECT queue.extend(%%s, until => %s)" % wrong, token)
    q.fails("22023", "SELECT queue.extend(%s, '1 h', now() + interval '1 h')", token)


def test_until_reaches_no_further_than_max_run(q):
    q.rows("SELECT queue.alter('q', '{max_run}', '{1 min}')")
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.extend(%s, until => '2099-01-01')", token)
    assert q.value("SELECT lease_until = taken_at + '1 min' FROM queue.q_q")


def test_progress(q):
    token = q.take("q", lease="1 h")[0]["token"]
    q.rows("SELECT queue.extend(%s, progress => '{\"pct\": 50}')", token)
    assert q.value(LEFT) > 3500  # not cut to the queue's lease
    assert q.value("SELECT progress FROM queue.job('1')") == {"pct": 50}
    q.rows("SELECT queue.extend(%s, '1 min', progress => '{\"pct\": 70}')", token)
    assert q.value(LEFT) < 61
    q.rows("SELECT queue.extend(%s)", token)  # says nothing of it
    assert 200 < q.value(LEFT) < 301
    assert q.value("SELECT progress FROM queue.job('1')") == {"pct": 70}
    q.done(token)
    assert q.value("SELECT progress FROM queue.job('1')") == {"pct": 70}
    assert q.rows("SELECT state, progress FROM queue.await('1')") == [("done", {"pct": 70})]


def test_progress_lengthens_a_short_lease(q):
    token = q.take("q", lease="10 s")[0]["token"]
    q.rows("SELECT queue.extend(%s, progress => '1')", token)
    assert 200 < q.value(LEFT) < 301


def test_progress_of_a_lost_lease(q):
    token = q.take("q")[0]["token"]
    q.expire("q")
    q.fails("QB001", "SELECT queue.extend(%s, progress => '1')", token)
    assert q.value("SELECT progress FROM queue.q_q") is None
    q.fails("22P02", "SELECT queue._extend(ARRAY[%s], NULL, NULL, '{')", q.take("q")[0]["token"])


def test_who_may_await_sees_progress(q):
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.extend(%s, progress => '7')", token)
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{await}', '{bob}')")
    assert bob.rows("SELECT progress FROM queue.await('1')") == []
    q.rows("SELECT queue.fail(%s, final => true)", token)
    assert bob.rows("SELECT state, progress FROM queue.await('1')") == [("dead", 7)]
    bob.fails("42501", "SELECT queue.extend(%s, progress => '8')", token)
    q.rows("SELECT queue.revoke('q', '{await}', '{bob}')")
    bob.fails("42501", "SELECT * FROM queue.await('1')")
    bob.fails("42501", "SELECT progress FROM queue.q_q")
