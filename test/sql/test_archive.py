"""RESULT, retain_done and the archive of what has ended."""

import pytest

ARCHIVE = 'queue."a_%s"'


def archive(db, queue="q", what="id, state, result"):
    return db.rows("SELECT %s FROM %s ORDER BY id" % (what, ARCHIVE % queue))


@pytest.fixture
def kept(db):
    """A queue that keeps what has ended."""
    db.create("q", retain_done="1 day")
    return db


def test_kept_by_default_is_nothing(db):
    db.create("q")
    db.push("q", "1", "2")
    for job in db.take("q", 2):
        db.done(job["token"])
    assert archive(db) == []
    db.push("q", "1")
    assert len(db.take("q", pop=True)) == 1
    assert archive(db) == []


def test_result(db):
    db.create("q")
    db.push("q", '{"a": 1}', priority=7, headers='{"h": 1}')
    token = db.take("q", worker="w")[0]["token"]
    db.rows("SELECT queue.done(%s, '{\"b\": 2}')", token)
    assert archive(db, what="id, state, result, priority, attempt, worker, payload, headers, key") == \
        [(1, "done", {"b": 2}, 7, 1, "w", {"a": 1}, {"h": 1}, None)]
    assert archive(db, what="ended_at > pushed_at AND ended_at <= clock_timestamp()") == [(True,)]
    assert db.row("SELECT state, result FROM queue.job('1-1')") == ("done", {"b": 2})
    assert db.row("SELECT state, result FROM queue.job('1')") == ("done", {"b": 2})
    assert db.row("SELECT state, result FROM queue.peek('q', 5, 'done')") == ("done", {"b": 2})
    assert db.rows("SELECT id FROM queue.peek('q')") == []
    assert db.value("SELECT done FROM queue.stats('q')") == 1


@pytest.mark.parametrize("retain", ["0", "1 day"])
def test_result_for_all_and_for_each(db, retain):
    db.create("q", retain_done=retain)
    db.create("r")
    db.push("q", "1", "2", "3", "4")
    db.push("r", "1")
    jobs = [job["token"] for job in db.take(["q", "r"], 9)]
    many = jobs[:2] + jobs[4:]
    assert db.column("SELECT * FROM queue._done(%s::text[], false, %s)", many, "true") == \
        ["q", "q", "r"]
    assert archive(db) == [(1, "done", True), (2, "done", True)]
    assert archive(db, "r") == [(1, "done", True)]
    pairs = [jobs[3], "3", jobs[2], "null"]
    assert db.column("SELECT * FROM queue._done_pairs(%s::text[])", pairs) == ["q", "q"]
    assert archive(db, what="id, result::text") == [(1, "true"), (2, "true"), (3, "null"), (4, "3")]


@pytest.mark.parametrize("retain,there", [("0", [1, 4]), ("1 day", [1, 2, 3, 4])])
def test_only_those_with_a_result(db, retain, there):
    db.create("q", retain_done=retain)
    db.push("q", "1", "2", "3", "4")
    a, b, c, d = [job["token"] for job in db.take("q", 4)]
    assert db.column("SELECT * FROM queue._done_pairs(%s::text[])", [a, "1", b, None, c, None, d, "null"]) == ["q"] * 4
    assert archive(db, what="id") == [(n,) for n in there]
    assert db.value("SELECT count(*) FROM queue.q_q") == 0


def test_kept_without_a_result(kept):
    kept.push("q", "1", "2", "3")
    one, two, _ = kept.take("q", 3)
    kept.done(one["token"])
    kept.rows("SELECT queue.done(%s)", two["token"])
    assert archive(kept) == [(1, "done", None), (2, "done", None)]
    kept.push("q", "4")
    assert [job["id"] for job in kept.take("q", pop=True, worker="p")] == [4]
    assert archive(kept, what="id, state, attempt, worker")[-1] == (4, "done", 1, "p")


def test_a_bad_result_ends_nothing(db):
    db.create("q")
    db.push("q", "1")
    token = db.take("q")[0]["token"]
    db.fails("22P02", "SELECT queue._done(ARRAY[%s], false, '{')", token)
    assert db.job("q", 1)["state"] == "leased" and archive(db) == []


def test_a_lost_lease_has_no_result(db):
    db.create("q")
    db.push("q", "1")
    token = db.take("q")[0]["token"]
    db.expire("q")
    db.fails("QB001", "SELECT queue._done(ARRAY[%s], false, '1')", token)
    db.fails("QB001", "SELECT queue._done_pairs(ARRAY[%s, '1'])", token)
    assert archive(db) == []


def test_rolled_back_with_its_transaction(db):
    db.create("q")
    db.push("q", "1")
    token = db.take("q")[0]["token"]
    db.rows("BEGIN")
    db.rows("SELECT queue.done(%s, '1')", token)
    assert archive(db) == [(1, "done", 1)]
    db.rows("ROLLBACK")
    assert archive(db) == [] and db.job("q", 1)["state"] == "leased"


def test_cancelled_and_expired_are_kept(kept):
    kept.push("q", "1", "2", "3", "4")
    kept.rows("SELECT queue.cancel('1-1')")
    for job in kept.take("q", 2):
        kept.rows("SELECT queue.cancel(%s)", str(job["id"]))
        given = job["token"]
    kept.rows("SELECT queue._give_back(ARRAY[%s], 'x', true)", given)
    assert archive(kept) == [(1, "cancelled", None), (3, "cancelled", None)]
    kept.expire("q")
    kept.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE id = 4")
    assert kept.take("q", 5) == []
    assert archive(kept) == [(1, "cancelled", None), (2, "cancelled", None), (3, "cancelled", None),
                             (4, "expired", None)]
    assert kept.rows("SELECT * FROM queue.q_q") == []


@pytest.mark.parametrize("retain", ["0", "1 day"])
def test_late_and_pushed_again_under_its_key(db, retain):
    db.create("q", retain_done=retain)
    push = "SELECT queue.push('q', '1', key => 'k', expires => '1 h')"
    assert db.value(push) == 1
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s'")
    assert db.value(push) == 2
    assert archive(db, what="id, state, key") == ([] if retain == "0" else [(1, "expired", "k")])


def test_one_that_runs_once_more_has_not_ended(kept):
    kept.rows("SELECT queue.push('q', '1', key => 'k')")
    token = kept.take("q")[0]["token"]
    kept.rows("SELECT queue.push('q', '1', key => 'k', on_duplicate => 'rerun')")
    kept.rows("SELECT queue.done(%s, '1')", token)
    assert archive(kept) == []
    kept.rows("SELECT queue.done(%s, '2')", kept.take("q")[0]["token"])
    assert archive(kept) == [(1, "done", 2)]


def test_switched_on_and_off(db):
    db.create("q")
    db.push("q", "1", "2", "3")
    jobs = db.take("q", 3)
    db.done(jobs[0]["token"])
    db.rows("SELECT queue.alter('q', ARRAY['retain_done'], ARRAY['1 h'])")
    db.done(jobs[1]["token"])
    db.rows("SELECT queue.alter('q', '{}', '{}', ARRAY['retain_done'])")
    db.done(jobs[2]["token"])
    assert archive(db) == [(2, "done", None)]


def test_purge(kept):
    kept.push("q", "1", "2", "3", "4")
    kept.done(*[job["token"] for job in kept.take("q", 2)])
    assert kept.value("SELECT queue.purge('q', 'ready')") == 2
    assert kept.value("SELECT queue.purge('q', 'done')") == 2
    assert archive(kept) == []
    kept.push("q", "1", "2")
    kept.done(kept.take("q")[0]["token"])
    assert kept.value("SELECT queue.purge('q')") == 2
    assert archive(kept) == []


def test_published(kept):
    kept.rows("CREATE PUBLICATION p FOR TABLE queue.q_q, queue.a_q, queue.queues")
    kept.push("q", "1", "2", "3")
    kept.done(kept.take("q")[0]["token"])
    assert kept.value("SELECT queue.purge('q', 'done')") == 1
    kept.done(kept.take("q")[0]["token"])
    kept.rows("UPDATE queue.a_q SET ended_at = '2000-01-01'")
    assert kept.value("SELECT queue.maintain()") == 1
    kept.rows("SELECT queue.alter('q', '{lease}', '{1 min}')")
    assert kept.value("SELECT queue.purge('q')") == 1


def test_only_dead_jobs_are_run_again(kept):
    kept.push("q", "1")
    kept.done(kept.take("q")[0]["token"])
    kept.fails("QB003", "SELECT queue.rerun('1-1')")
    kept.fails("QB003", "SELECT queue.cancel('1-1')")


def test_dropped_with_its_queue(kept):
    kept.rows("SELECT queue.drop('q')")
    assert kept.value("SELECT to_regclass('queue.a_q')") is None
    assert kept.value("SELECT count(*) FROM pg_proc WHERE proname LIKE '\\_done\\_keep%%'") == 0
    kept.create("q")
    assert archive(kept) == []


def test_rights(kept):
    kept.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    kept.push("q", "1", "2")
    bob, mallory = kept.connect("bob"), kept.connect("mallory")
    bob.rows("SELECT queue.done(%s, '1')", bob.take("q")[0]["token"])
    assert bob.value("SELECT done FROM queue.stats('q')") == 1
    assert bob.column("SELECT result FROM queue.peek('q', 1, 'done')") == [1]
    mallory.fails("42501", "SELECT * FROM queue.peek('q', 1, 'done')")
    mallory.fails("42501", "SELECT * FROM queue.a_q")
    kept.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    bob.fails("42501", "SELECT * FROM queue.a_q")
    kept.rows("GRANT SELECT ON queue.q_q TO bob")
    assert bob.rows("SELECT queue, done FROM queue.stats()") == [("q", None)]
    bob.fails("42501", "SELECT * FROM queue.job('1')")


def test_the_index_of_the_archive_is_used(kept):
    plan = "\n".join(kept.column("EXPLAIN SELECT * FROM queue.a_q ORDER BY ended_at DESC LIMIT 5"))
    assert "Index" in plan and "Sort" not in plan


def test_of_an_unlogged_queue(db):
    kind = "SELECT relpersistence FROM pg_class WHERE oid = 'queue.a_q'::regclass"
    db.create("q", unlogged="true")
    assert db.value(kind) == "u"
    db.rows("SELECT queue.alter('q', '{unlogged}', '{false}')")
    assert db.value(kind) == "p"
    db.rows("SELECT queue.alter('q', '{unlogged}', '{true}')")
    assert db.value(kind) == "u"
