"""PAUSE of takes, of pushes, and of both."""

import pytest

WAYS = [
    "SELECT queue.push('q', '1')", "SELECT queue.push('q', '1', key => 'k')", "SELECT queue.push('q', '1', expires => '1 h')",
    "SELECT queue.push('q', '1', \"group\" => 'g')", "INSERT INTO queue.q_q (payload) SELECT '1'",
    "INSERT INTO queue.b_q (payload, key) VALUES ('1', 'k')", "SELECT queue._push('q', '{1,2}', 0, NULL, NULL, NULL, false)",
    "SELECT queue._hand_1(c, '{1}', 0, '{0}', '{NULL}', '{NULL}', 0, '{}', '{}', 0) FROM queue.queues AS c WHERE name = 'q'",
]


@pytest.fixture
def q(db):
    db.create("q")
    return db


@pytest.mark.parametrize("sql", WAYS)
def test_no_way_to_push(q, sql):
    q.rows("SELECT queue.pause('q', pushes => true)")
    diag = q.fails("QB006", sql)
    assert diag.message_primary == 'pushes to queue "q" are paused' and "QUEUE RESUME q;" in diag.message_hint
    assert q.value("SELECT count(*) FROM queue.q_q") == 0
    q.rows("SELECT queue.resume('q', pushes => true)")
    q.rows(sql)
    assert q.value("SELECT count(*) FROM queue.q_q") > 0


def test_the_rest_goes_on(q):
    q.push("q", "1", "2", "3")
    q.rows("SELECT queue.pause('q', pushes => true)")
    one, two, three = q.take("q", 3)
    q.done(one["token"])
    q.rows("SELECT queue.fail(%s, final => true)", two["token"])
    q.rows("SELECT queue.rerun('2')")
    assert [job["id"] for job in q.take("q")] == [2]
    q.rows("SELECT queue.release(%s)", three["token"])
    q.create("r")
    q.rows("SELECT queue.pause('r', pushes => true)")
    token = q.take("q")[0]["token"]
    q.fails("QB006", "SELECT queue.move(%s, 'r')", token)
    q.done(token)


@pytest.mark.parametrize("before, call, after", [
    ("ff", "pause('q')", "tf"), ("ff", "pause('q', takes => true)", "tf"), ("ff", "pause('q', pushes => true)", "ft"),
    ("ff", "pause('q', takes => true, pushes => true)", "tt"), ("ft", "pause('q')", "tt"),
    ("tt", "resume('q')", "ff"), ("tt", "resume('q', takes => true)", "ft"), ("tt", "resume('q', pushes => true)", "tf"),
    ("tt", "pause('q', pushes => true)", "tt"), ("ff", "resume('q')", "ff"),
])
def test_each_by_itself(q, before, call, after):
    q.rows("SELECT queue.pause('q', takes => %s, pushes => %s)", before[0] == "t", before[1] == "t")
    if before == "ff":
        q.rows("SELECT queue.resume('q')")
    q.rows("SELECT queue." + call)
    assert q.row("SELECT paused, push_paused FROM queue.list()") == (after[0] == "t", after[1] == "t")
    assert q.value("SELECT count(*) FROM pg_trigger WHERE tgname = 'paused'") == (after[1] == "t")


def test_in_a_transaction(q):
    with q.conn.transaction(force_rollback=True):
        q.rows("SELECT queue.pause('q', pushes => true)")
        with pytest.raises(Exception, match="are paused"), q.conn.transaction():
            q.push("q", "1")
    assert q.push("q", "1") == [1]


def test_it_is_exact(q):
    """What a transaction has pushed is there, or it is refused: none commits behind the PAUSE."""
    two = q.connect("app")
    with two.conn.transaction():
        two.push("q", "1")
        pausing = q.beside(q.rows, "SELECT queue.pause('q', pushes => true)")
    pausing.result()
    assert q.value("SELECT count(*) FROM queue.q_q") == 1
    two.fails("QB006", "SELECT queue.push('q', '2')")


def test_rights(q):
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{all}', '{bob}')")
    for call in ("pause('q', pushes => true)", "resume('q', pushes => true)", "pause('q')"):
        bob.fails("42501", "SELECT queue." + call)
    bob.fails("42501", "UPDATE queue.queues SET push_paused = true")
    q.rows("SELECT queue.pause('q', pushes => true)")
    bob.fails("QB006", "SELECT queue.push('q', '1')")
    bob.fails("42501", "DROP TRIGGER paused ON queue.q_q")
    bob.fails("42501", "ALTER TABLE queue.q_q DISABLE TRIGGER paused")


def test_a_name_to_be_quoted(db):
    db.create('a "B')
    db.rows("SELECT queue.pause(%s, pushes => true)", 'a "B')
    assert 'QUEUE RESUME "a ""B";' in db.fails("QB006", "SELECT queue.push(%s, '1')", 'a "B').message_hint
    db.rows("SELECT queue.drop(%s)", 'a "B')


def test_not_of_a_schedule(q):
    q.fails("42601", "SELECT queue.pause(NULL, schedule => 's', pushes => true)")
    q.fails("42601", "SELECT queue.resume(NULL, schedule => 's', takes => true)")
