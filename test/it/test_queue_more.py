"""Verbs for whoever looks after the queues, and the options of PUSH: what they do, in every way that a
driver may send them, and with others waiting."""

import pytest

import test_queue_language as language
from queuetest import (  # noqa: F401
    error, parked, peek, q, qproxy, stats, tag, take, woken)
from test_queue_language import WAYS, nothing, run, t, three_jobs


def listed(c, name, column):
    return [r[column] for r in c.rows("QUEUE LIST") if r["queue"] == name][0]


def paused(c, name):
    three_jobs(c, name)
    tag(c, "QUEUE PAUSE %s" % name)


# as VERBS in test_queue_language.py
VERBS = {
    "pause": (three_jobs, "QUEUE PAUSE {}", lambda name, s: [t(name)], "ALTER TABLE", None,
              lambda c, name: listed(c, name, "paused") == "t" and c.rows("QUEUE TAKE " + name) == []),
    "resume": (paused, "QUEUE RESUME {}", lambda name, s: [t(name)], "ALTER TABLE", None,
               lambda c, name: listed(c, name, "paused") == "f" and take(c, "QUEUE TAKE " + name)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, monkeypatch, verb):
    monkeypatch.setitem(language.VERBS, verb, VERBS[verb])
    language.test_each_way(q, verb)


# -- pause and resume --------------------------------------------------------------------------

def test_waiters_go_on_waiting(qproxy, db, q):
    tag(q, "QUEUE PAUSE mail")
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        for w in (a, b):
            w.query("QUEUE TAKE mail WAIT '60s'")
        parked(a, b)
        assert tag(q, "QUEUE PUSH mail '1', '2'") == "INSERT 0 2"
        assert q.rows("QUEUE TAKE mail WAIT '50ms'") == []
        parked(a, b)
        q.rows("BEGIN")
        tag(q, "QUEUE RESUME mail")
        parked(a, b)
        q.rows("COMMIT")
        assert woken(a)["payload"] == "1"
        assert woken(b)["payload"] == "2"


def test_a_resume_that_rolls_back(q):
    tag(q, "QUEUE PAUSE mail")
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "BEGIN")
    tag(q, "QUEUE RESUME mail")
    tag(q, "ROLLBACK")
    assert q.rows("QUEUE TAKE mail") == []


def test_a_resume_by_plain_sql(qproxy, db, direct, q):
    tag(q, "QUEUE PAUSE mail")
    tag(q, "QUEUE PUSH mail '1'")
    with qproxy.wire(db) as a:
        a.query("QUEUE TAKE mail WAIT '60s'")
        parked(a)
        direct.execute("SELECT queue.resume('mail')")
        assert woken(a)["payload"] == "1"
