"""AWAIT: what has become of jobs."""

import pytest


def state(db, refs, q=None, known=False):
    refs = [refs] if isinstance(refs, str) else refs
    return db.column("SELECT state FROM queue._await(%s::text[], %s, %s) ORDER BY n", refs, q, known)


def ended(db, ref, q=None):
    return db.rows("SELECT id, queue, state, result, error, attempt FROM queue.await(%s, %s)", ref, q)


@pytest.fixture
def q(db):
    db.create("q")
    return db


def test_not_yet(q):
    q.push("q", "1", "2")
    q.push("q", "3", delay="1 h")
    q.take("q")
    assert state(q, ["1-1", "1-2", "1-3"]) == [None, None, None]
    assert ended(q, "1-1") == []


def test_done(q):
    q.push("q", "1", "2")
    one, two = q.take("q", 2)
    q.rows("SELECT queue.done(%s, '{\"a\": 1}')", one["token"])
    q.rows("SELECT queue.done(%s)", two["token"])
    assert ended(q, "1-1") == [(1, "q", "done", {"a": 1}, None, 1)]
    assert ended(q, one["token"]) == ended(q, "1") == ended(q, "1", "q") == ended(q, "1-1", "q")
    assert ended(q, "1-2") == [(2, "q", "gone", None, None, None)]
    assert ended(q, "2") == ended(q, "1-2")


def test_several(q):
    """Those that have ended, in the order in which they were named."""
    q.push("q", "1", "2", "3")
    for token in [r["token"] for r in q.take("q", 3)][1:]:
        q.rows("SELECT queue.done(%s, '1')", token)
    assert q.rows("SELECT job, state FROM queue.await('{3,1,1-2}'::text[], 'q')") == [("1-3", "done"), ("1-2", "done")]
    assert q.rows("SELECT * FROM queue.await('{}'::text[])") == []


def test_dead(q):
    q.push("q", "1")
    q.rows("SELECT queue.fail(%s, 'no luck', final => true)", q.take("q")[0]["token"])
    assert ended(q, "1") == [(1, "q", "dead", None, "no luck", 1)]
    q.rows("SELECT queue.rerun('1')")
    assert ended(q, "1") == []


@pytest.mark.parametrize("retain, cancelled, expired", [("0", "gone", "expired"), ("1 h", "cancelled", "expired")])
def test_cancelled_and_expired(db, retain, cancelled, expired):
    db.create("q", retain_done=retain)
    db.push("q", "1")
    db.rows("SELECT queue.cancel('1')")
    assert state(db, "1-1") == [cancelled]
    db.rows("SELECT queue.push('q', '1', expires => '1 h')")
    assert state(db, "1-2") == [None]
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s'")
    assert state(db, "1-2") == [expired]
    db.rows("SELECT queue.maintain()")
    assert state(db, "1-2") == ["gone" if retain == "0" else "expired"]


def test_there_never_was(q):
    q.push("q", "1")
    for ref in ("1-2", "2", "1-0", "7-1", "999999999999999999"):
        assert ref.split("-")[-1] in q.fails("QB003", "SELECT * FROM queue.await(%s)", ref).message_primary
    q.fails("QB003", "SELECT * FROM queue.await('2', 'q')")
    q.fails("42P01", "SELECT * FROM queue.await('1', 'nothing')")
    q.fails("22004", "SELECT * FROM queue.await(NULL)")
    for ref in ("", "x", "1-2-3", "-1", "1-", "1.5"):
        assert q.fails("22023", "SELECT * FROM queue.await(%s)", ref).message_hint


def test_several_queues(q):
    q.create("r")
    q.push("q", "1", "2", "3")
    q.push("r", "1", "2")
    assert ended(q, "3", "q") == []
    diag = q.fails("22023", "SELECT * FROM queue.await('1')")
    assert diag.message_hint == "Name its queue: QUEUE AWAIT 1 ON q; Or ON r."
    q.rows("SELECT queue.done(%s, '1')", q.take("r")[0]["token"])
    assert ended(q, "1", "r") == [(1, "r", "done", 1, None, 1)] and ended(q, "1", "q") == []
    q.rows("SELECT queue.cancel('2-2')")
    assert ended(q, "2", "r") == [(2, "r", "gone", None, None, None)] and ended(q, "2", "q") == []
    q.rows("SELECT queue.cancel('1-2')")
    q.fails("22023", "SELECT * FROM queue.await('2')")
    q.fails("22023", "SELECT * FROM queue.await('1-1', 'r')")


def test_many_at_once(q):
    """In the order in which they are named, over queues, the same one twice."""
    q.create("r", retain_done="1 h")
    q.push("q", "1", "2", "3")
    q.push("r", "1", "2")
    q.done(*[job["token"] for job in q.take("q", 2) + q.take("r")])
    assert state(q, ["2-1", "1-3", "1-1", "2-2", "1-1", "2-1"]) == ["done", None, "gone", None, "gone", "done"]


def test_known_before(q):
    """Whatever became of its queue, or of the ids."""
    q.push("q", "1")
    assert state(q, ["1-1", "1-9"], None, True) == [None, "gone"]
    q.rows("SELECT queue.drop('q')")
    assert q.rows("SELECT job, queue, state FROM queue._await(ARRAY['1-1'], NULL, true)") == [("1-1", None, "gone")]
    q.fails("QB003", "SELECT * FROM queue.await('1-1')")


def test_rights(q):
    q.create("r")
    q.push("q", "1")
    q.push("r", "1")
    q.rows("SELECT queue.done(%s, '1')", q.take("q")[0]["token"])
    bob, mallory = q.connect("bob"), q.connect("mallory")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    for who in (bob, mallory):
        who.fails("42501", "SELECT * FROM queue.await('1-1')")
        who.fails("42501", "SELECT * FROM queue.await('1', 'q')")
        who.fails("22023", "SELECT * FROM queue.await('1')")
    q.rows("SELECT queue.grant('q', '{await}', '{bob}')")
    assert ended(bob, "1-1") == ended(bob, "1", "q") == [(1, "q", "done", 1, None, 1)]
    bob.fails("QB003", "SELECT * FROM queue.await('1-2')")
    bob.fails("42501", "SELECT * FROM queue.await('2-1')")
    for sql in ("SELECT payload FROM queue.a_q", "SELECT payload FROM queue.q_q", "SELECT token FROM queue.q_q",
                "SELECT * FROM queue.take('q')", "SELECT * FROM queue.peek('q', 1, 'done')"):
        bob.fails("42501", sql)
    q.rows("SELECT queue.grant('q', '{take}', '{mallory}')")
    assert ended(mallory, "1", "q") == ended(bob, "1", "q")
    # by the key: who may push knows keys, who may only await does not
    q.rows("SELECT queue.push('q', '1', key => 'k')")
    assert bob.rows("SELECT * FROM queue.await(q => 'q', k => 'k')") == []
    q.rows("SELECT queue.revoke('q', '{push}', '{bob}')")
    bob.fails("42501", "SELECT * FROM queue.await(q => 'q', k => 'k')")


def test_what_is_not_committed_is_not_seen(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    q.rows("BEGIN")
    q.rows("SELECT queue.done(%s, '1')", token)
    assert ended(q.connect(), "1") == []
    q.rows("COMMIT")
    assert ended(q.connect(), "1") != []
