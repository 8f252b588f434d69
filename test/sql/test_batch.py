"""Batches: BATCH of a push, and how many of them are unfinished."""

import pytest


@pytest.fixture
def q(db):
    db.create("q", batches="true")
    return db


def numbers(db, batch, queue="q"):
    names = ("ready", "later", "leased", "blocked", "dead", "done", "cancelled", "expired")
    (row,) = db.rows("SELECT ended, %s FROM queue.await_batch(%%s, %%s)" % ", ".join(names), batch, queue)
    return row[0], {n: v for n, v in zip(names, row[1:]) if v}


def push(db, payload, batch, queue="q", **more):
    names = "".join(', "%s" => %%s' % n for n in more)
    return db.value("SELECT queue.push(%%s, %%s::jsonb, batch => %%s%s)" % names, queue, payload, batch, *more.values())


def test_by_state(q):
    push(q, "1", "x")
    push(q, "2", "x", delay="1 h")
    push(q, "3", "x", priority=5)
    push(q, "4", "x", group="g")
    push(q, "5", "x", group="g")
    push(q, "6", "other")
    q.push("q", "7")
    (job,) = q.take("q")
    assert numbers(q, "x") == (False, {"ready": 2, "later": 1, "leased": 1, "blocked": 1})
    q.rows("SELECT queue.fail(%s, 'no', final => true)", job["token"])
    assert numbers(q, "x") == (False, {"ready": 2, "later": 1, "blocked": 1, "dead": 1})


def test_ends(q):
    """Dead and expired ones are not unfinished; what is gone is not counted unless the queue keeps it."""
    for n in range(4):
        push(q, str(n), "x")
    push(q, "4", "x", expires="1 ms")
    tokens = [r["token"] for r in q.take("q", 4)]
    q.rows("SELECT queue.done(%s::text[])", tokens[:2])
    q.rows("SELECT queue.fail(%s, 'no', final => true)", tokens[2])
    q.rows("SELECT pg_sleep(0.01)")
    assert numbers(q, "x") == (False, {"leased": 1, "dead": 1})
    q.rows("SELECT queue.fail(%s, 'no', final => true)", tokens[3])
    assert numbers(q, "x") == (True, {"dead": 2})
    assert numbers(q, "never pushed") == (True, {})
    q.rows("SELECT queue.redrive('q')")
    assert numbers(q, "x") == (False, {"ready": 2})


def test_with_an_archive(db):
    db.create("q", batches="true", retain_done="1 h")
    for n in range(3):
        push(db, str(n), "x")
    push(db, "3", "x", expires="1 ms")
    db.rows("SELECT pg_sleep(0.01)")
    db.rows("SELECT queue.done(%s)", db.take("q")[0]["token"])
    db.rows("SELECT queue.pop('q')")
    db.rows("SELECT queue.cancel('3', 'q')")
    assert numbers(db, "x") == (True, {"done": 2, "cancelled": 1, "expired": 1})
    db.rows("SELECT queue.maintain()")
    assert numbers(db, "x") == (True, {"done": 2, "cancelled": 1, "expired": 1})


def test_what_shows_it(q):
    push(q, "1", "x")
    assert q.value("SELECT batch FROM queue.peek('q')") == "x"
    assert q.value("SELECT batch FROM queue.job('1', 'q')") == "x"
    q.rows("SELECT queue.done(%s, '1')", q.take("q")[0]["token"])
    assert q.value("SELECT batch FROM queue.peek('q', 1, 'done')") == "x"
    assert q.value("SELECT batch FROM queue.job('1', 'q')") == "x"


def test_keys(q):
    """A job that is there stays in its batch."""
    assert push(q, "1", "x", key="k") == push(q, "1", "y", key="k") == push(q, "2", "y", key="k", on_duplicate="replace")
    assert numbers(q, "x") == (False, {"ready": 1})
    assert numbers(q, "y") == (True, {})


def test_payloads_and_pushes(db):
    for kind in ("text", "bytea"):
        db.create(kind, batches="true", payload=kind)
        db.rows("SELECT queue.push(%%s, '1'::%s, batch => 'x')" % kind, kind)
        assert numbers(db, "x", kind) == (False, {"ready": 1})


def test_option(db):
    """The index comes and goes; without it nobody is kept from pushing."""
    db.create("q")
    push(db, "1", "x")
    e = db.fails("55000", "SELECT queue.await_batch('x', 'q')")
    assert "SET (batches = true)" in e.message_hint
    indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = 'queue' AND indexname ~ 'batch'"
    assert db.value(indexes) == 0
    db.rows("SELECT queue.alter('q', '{batches}', '{true}')")
    assert numbers(db, "x") == (False, {"ready": 1}) and db.value(indexes) == 2
    db.rows("SELECT queue.alter('q', reset_names => '{batches}')")
    assert db.value(indexes) == 0


def test_errors(q):
    for sql, state in (("SELECT queue.await_batch(NULL, 'q')", "22004"), ("SELECT queue.await_batch('x', 'nosuch')", "42P01"),
                       ("SELECT queue.push('q', '1', batch => repeat('x', 1001))", "22001"),
                       ("SELECT queue.alter('q', '{batches}', '{maybe}')", "22023")):
        q.fails(state, sql)


def test_rights(q):
    """AWAIT is enough to ask, PUSH to give jobs a batch."""
    bob = q.connect("bob")
    bob.fails("42501", "SELECT queue.await_batch('x', 'q')")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    push(bob, "1", "x")
    bob.fails("42501", "SELECT queue.await_batch('x', 'q')")
    q.rows("SELECT queue.grant('q', '{await}', '{bob}')")
    assert numbers(bob, "x") == (False, {"ready": 1})
