"""The option expires: EXPIRES of pushes that do not say it. And PURGE ... OLDER THAN."""

import pytest

PUSHES = [
    "SELECT queue.push('q', '1')", "SELECT queue.push('q', '1', key => 'k')", "SELECT queue.push('q', '1', attempts => 3)",
    "SELECT queue.push('q', '1', \"group\" => 'g')", "INSERT INTO queue.q_q (payload) SELECT '1'",
    "INSERT INTO queue.b_q (payload, key) VALUES ('1', 'k')", "SELECT queue._push('q', '{1,2}', 0, NULL, NULL, NULL, false)",
    "SELECT queue._hand_1(c, '{1}', 0, '{0}', '{NULL}', '{NULL}', 0, '{}', '{}', 0) FROM queue.queues AS c WHERE name = 'q'",
]
LEFT = "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM queue.q_q"


@pytest.fixture
def q(db):
    db.create("q", expires="1 h")
    return db


@pytest.mark.parametrize("sql", PUSHES)
def test_each_way_to_push(q, sql):
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    bob.rows(sql)
    assert all(3500 < left <= 3600 for left in q.column(LEFT)) and q.column(LEFT)
    q.rows("SELECT queue.alter('q', '{}', '{}', '{expires}')")
    q.rows("DELETE FROM queue.q_q")
    bob.rows(sql)
    assert set(q.column(LEFT)) == {None}
    assert q.value("SELECT count(*) FROM pg_trigger WHERE tgname = 'expires'") == 0


def test_what_a_push_says_counts(q):
    q.rows("SELECT queue.push('q', '1', expires => '10 s')")
    assert q.value(LEFT) < 11


def test_it_counts_from_the_time_of_the_job(q):
    q.rows("SELECT queue.push('q', '1', delay => '1 day')")
    assert q.value("SELECT expires_at - run_at FROM queue.q_q").total_seconds() == 3600


def test_a_job_that_is_replaced(q):
    q.rows("SELECT queue.push('q', '1', key => 'k', expires => '10 s')")
    q.rows("SELECT queue.push('q', '2', key => 'k', on_duplicate => 'replace')")
    assert q.value(LEFT) > 3500


def test_another_expiry(q):
    q.push("q", "1")
    q.rows("SELECT queue.alter('q', '{expires}', '{1 min}')")
    q.push("q", "2")
    first, second = q.column(LEFT + " ORDER BY id")
    assert first > 3500 and second <= 60
    assert q.value("SELECT expires FROM queue.list()") == "00:01:00"
    q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE id = 1")
    assert [job["id"] for job in q.take("q", 5)] == [2]


@pytest.mark.parametrize("value", ["0", "-1 s", "x", "9000 years"])
def test_the_option(q, value):
    assert "RESET (expires)" in q.fails("22023", "SELECT queue.alter('q', '{expires}', ARRAY[%s])", value).message_hint


def test_a_row_made_by_hand(db):
    db.create("s")
    db.rows("UPDATE queue.queues SET expires = '1 h'")
    db.push("s", "1")
    assert db.value("SELECT expires_at IS NOT NULL FROM queue.q_s")


# -- PURGE ... OLDER THAN -----------------------------------------------------------------------

def test_older_than(db):
    db.create("q", retain_done="1 year")
    db.push("q", "1", "2", "3", "4")
    for _ in range(2):
        db.rows("SELECT queue.fail(%s, final => true)", db.take("q")[0]["token"])
    db.done(*[job["token"] for job in db.take("q", 1)])
    db.push("q", "5")
    db.rows("UPDATE queue.q_q SET pushed_at = now() - interval '3 days' WHERE id < 5")
    db.rows("UPDATE queue.q_q SET ended_at = now() - interval '2 days' WHERE id = 1")
    purge = "SELECT queue.purge('q', %s, older => %s::interval)"
    assert db.value(purge, "dead", "60 h") == 0  # by its end, not by its push
    assert db.value(purge, "dead", "1 day") == 1
    assert db.value(purge, "done", "1 min") == 0
    assert db.value(purge, "ready", "1 day") == 1
    db.rows("UPDATE queue.a_q SET ended_at = now() - interval '1 h'")
    assert db.value(purge, "done", "1 min") == 1
    assert db.column("SELECT id FROM queue.q_q ORDER BY id") == [2, 5]
    assert db.value(purge, None, "7000 years") == 0
    assert db.value(purge, None, "0") == 2
    for wrong in ("-1 s", "9000 years"):
        db.fails("22023", purge, None, wrong)


def test_older_than_leaves_what_runs(db):
    db.create("q")
    db.push("q", "1", "2")
    db.take("q")
    db.rows("UPDATE queue.q_q SET pushed_at = now() - interval '3 days'")
    assert db.value("SELECT queue.purge('q', older => '1 day')") == 1
    assert db.column("SELECT state FROM queue.q_q") == ["leased"]


def test_who_may(db):
    db.create("q")
    bob = db.connect("bob")
    db.rows("SELECT queue.grant('q', '{push,await}', '{bob}')")
    bob.fails("42501", "SELECT queue.purge('q', older => '1 day')")
    bob.fails("42501", "SELECT queue.alter('q', '{expires}', '{1 s}')")
