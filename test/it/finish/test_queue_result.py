"""DONE with RESULT, and what is kept of jobs that have ended."""

import pytest

from proxy import wait_for
from queuetest import (  # noqa: F401
    error, q, results, send_all, shared, shared_db, shared_proxy, tag, take)
from verbways import each_way, j, t, two_taken


def archived(c, name="mail"):
    return [(r["id"], r["state"], r["result"])
            for r in c.rows('SELECT id, state, result FROM queue."a_%s" ORDER BY id' % name)]


def taken(c, n, name="mail"):
    tag(c, "QUEUE PUSH %s %s" % (name, ", ".join("'%d'" % k for k in range(n))))
    return [r["token"] for r in c.rows("QUEUE TAKE %s LIMIT %d" % (name, n))]


# name: as the arguments of each_way()
VERBS = {
    "done with a result": (two_taken, "QUEUE DONE {}, {} RESULT {}", lambda name, s: [t(s[0]), t(s[1]), j('{"r": 1}')],
                           "UPDATE 2", None,
                           lambda c, name: archived(c, name) == [(n, "done", '{"r": 1}') for n in "12"]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


def test_without_a_result_nothing_is_kept(q):
    for token, sql in zip(taken(q, 3), ("QUEUE DONE '%s'", "QUEUE DONE '%s' RESULT NULL",
                                        "QUEUE DONE '%s' RESULT 'null'")):
        assert tag(q, sql % token) == "UPDATE 1"
    assert archived(q) == [("3", "done", "null")]


@pytest.mark.parametrize("retain", ["0", "1 day"])
def test_merged(qproxy, db, q, direct, retain):
    """Many clients' DONEs, with and without a result, a bad one among them."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '%s')" % retain)
    tokens = taken(q, 12)
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    statements = ["QUEUE DONE '%s'%s" % (token, "" if n % 3 == 0 else " RESULT '%d'" % n)
                  for n, token in enumerate(tokens[:10])]
    wires = send_all(qproxy, db, statements + ["QUEUE DONE '%s' RESULT '{bad'" % tokens[10]])
    direct.rollback()
    assert results(wires) == ["UPDATE 1"] * 10 + ["22P02"]
    assert archived(q) == [(str(n + 1), "done", str(n) if n % 3 else None)
                           for n in range(10) if n % 3 or retain != "0"]
    assert [r["id"] for r in q.rows("QUEUE PEEK mail STATE leased")] == ["11", "12"]


def test_a_queue_that_keeps_is_still_merged(qproxy, db, q, direct):
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 day')")
    tokens = taken(q, 9)
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    first = send_all(qproxy, db, ["QUEUE DONE '%s'" % tokens[0]])
    wait_for(lambda: direct.execute("SELECT count(*) FROM pg_locks WHERE relation = 'queue.q_mail'::regclass "
                                    "AND NOT granted").fetchone()[0] == 1, "the first one to be on its way")
    wires = send_all(qproxy, db, ["QUEUE DONE '%s'" % token for token in tokens[1:]])
    wait_for(lambda: qproxy.pool(db)["cl_active"] >= 10, "all clients")
    direct.rollback()
    assert results(first + wires) == ["UPDATE 1"] * 9
    commits = q.rows("SELECT count(DISTINCT xmin::text) AS n FROM queue.a_mail")[0]["n"]
    assert int(commits) < 9, commits


def test_in_a_transaction(q):
    one, two = taken(q, 2)
    tag(q, "BEGIN")
    tag(q, "QUEUE DONE '%s' RESULT '1'" % one)
    assert archived(q) == [("1", "done", "1")]
    tag(q, "ROLLBACK")
    assert archived(q) == []
    tag(q, "BEGIN")
    tag(q, "QUEUE DONE '%s' RESULT '2'" % one)
    tag(q, "COMMIT")
    assert tag(q, "QUEUE DONE '%s' RESULT '3'; SELECT 1" % two) == "SELECT 1"
    assert archived(q) == [("1", "done", "2"), ("2", "done", "3")]


def test_repeated(q):
    (one,) = taken(q, 1)
    assert tag(q, "QUEUE DONE '%s' RESULT '1'" % one) == "UPDATE 1"
    assert tag(q, "QUEUE DONE '%s' RESULT '2'" % one) == "UPDATE 1"
    assert archived(q) == [("1", "done", "1")]


def test_of_several_queues(q):
    tag(q, "QUEUE CREATE other")
    tokens = taken(q, 2) + taken(q, 2, "other")
    assert tag(q, "QUEUE DONE %s RESULT '7'" % ", ".join("'%s'" % token for token in tokens)) == "UPDATE 4"
    assert archived(q) == archived(q, "other") == [("1", "done", "7"), ("2", "done", "7")]


def test_pop_of_a_queue_that_keeps(q):
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 day')")
    tag(q, "QUEUE PUSH mail '1', '2'")
    assert len(q.rows("QUEUE POP mail LIMIT 5")) == 2
    assert archived(q) == [("1", "done", None), ("2", "done", None)]
    assert q.rows("QUEUE STATS mail")[0]["done"] == "2"
    assert [r["id"] for r in q.rows("QUEUE PEEK mail STATE done")] == ["2", "1"]
    assert take(q, "QUEUE JOB 1")["state"] == "done"
    assert tag(q, "QUEUE PURGE mail STATE done") == "DELETE 2"


def test_too_long(qbouncer, db):
    proxy = qbouncer(queue_max_payload="1kB")
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        (one,) = taken(w, 1)
        e = error(w, "QUEUE DONE '%s' RESULT '\"%s\"'" % (one, "x" * 1100))
        assert e.sqlstate == "54000" and e.fields["M"] == "result is too long"
        got = w.hold().parse("", "QUEUE DONE $1 RESULT $2").bind("", "", [one, '"%s"' % ("x" * 1100)]) \
            .execute().sync().push().until("Z")
        assert got[-2].fields["C"] == "54000"
        assert tag(w, "QUEUE DONE '%s' RESULT '1'" % one) == "UPDATE 1"


def test_large_results_for_many(q):
    """More than one array of a batch should hold."""
    tokens = taken(q, 6)
    text = '"%s"' % ("x" * 900000)
    got = q.hold().parse("", "QUEUE DONE %s RESULT $1" % ", ".join("'%s'" % token for token in tokens)) \
        .bind("", "", [text]).execute().sync().push().until("Z")
    assert [m.tag for m in got if m.type == "C"] == ["UPDATE 6"]
    assert q.rows("SELECT count(*) AS n FROM queue.a_mail WHERE length(result::text) = 900002") == [{"n": "6"}]


def test_before_then(q):
    one, two = taken(q, 2)
    tag(q, "QUEUE PUSH mail '\"next\"'")
    assert tag(q, "QUEUE DONE '%s' RESULT '1' THEN PUSH mail '5'" % one) == "INSERT 0 1"
    assert take(q, "QUEUE DONE '%s' RESULT '2' THEN TAKE mail" % two)["payload"] == '"next"'
    assert archived(q) == [("1", "done", "1"), ("2", "done", "2")]
