"""SQL jobs of another database, in the functions alone: what the proxy is told, and what becomes of what it was told there."""

import json
import os
import re

import pytest

from sessions import ROOT


@pytest.fixture
def q(db):
    db.create("q", run="sql", retain_done="1 h", max_attempts=1)
    return db


def pushed(db, sql, **more):
    db.rows("SELECT queue.run('q', %%s, database => 'reports'%s)" % "".join(", %s => %%s" % k for k in more), sql, *more.values())
    (job,) = db.take("q")
    return job["token"]


def parts(db, token, entry="here"):
    return [tuple(r) for r in db.rows("SELECT ended, sql FROM queue._run_job(%s, 'public', false, %s)", token, entry)]


def test_what_the_proxy_is_told(q):
    """Where it runs, and what it is; or that it is none of another database."""
    found = parts(q, pushed(q, "SELECT $1", params="[7]", timeout="1 min"))
    assert found[0] == ("database", "reports") and found[1][0] == "session" and found[1][1].startswith("qbouncer q 1-1 ")
    assert ("timeout", "60000") in found and found[-2:] == [("sql", "SELECT $1"), ("value", "7")]
    found = parts(q, pushed(q, "VACUUM", no_transaction=True))
    assert found[0] == ("database", "reports") and ("alone", "VACUUM") in found
    for how in ({}, {"no_transaction": True}):
        assert not [w for w, _ in parts(q, pushed(q, "SELECT 1", **how), "reports") if w == "database"]
    for wrong in ("", "x" * 64):
        q.fails("22023", "SELECT queue.run('q', 'SELECT 1', database => %s)", wrong)
        q.push("q", json.dumps({"sql": "SELECT 1", "database": wrong}))
        (job,) = q.take("q")
        q.fails("22023", "SELECT queue FROM queue._run_job(%s, 'public', false, 'here')", job["token"])


def test_an_earlier_attempt_is_ended(q):
    """By the session that has its name already, of the same login, as the proxy says it: its own text."""
    with open(os.path.join(ROOT, "src", "queue", "run_there.c"), encoding="utf-8") as source:
        macros = dict(re.findall(r"#define (\w+)(?:\(check\))? *\\\n((?:.*\\\n)*.*)\n", source.read()))

    def text(name, check=""):
        return "".join(s or (check if word == "check" else text(word)) for s, word in re.findall(r'"([^"]*)"|(\w+)', macros[name]))

    name = parts(q, pushed(q, "SELECT 1"))[1][1]
    first, stranger, again, root = q.connect(), q.connect("bob"), q.connect(), q.connect("postgres")
    for s in (first, stranger, again):
        s.rows("SELECT set_config('application_name', %s, false)", name)
    pid = first.value("SELECT pg_backend_pid()")
    again.rows(text("BEFORE", text("NO_SUPERUSER")))
    assert q.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == 0
    assert stranger.value("SELECT 1") == 1, "nobody else's"
    root.fails("42501", text("BEFORE", text("NO_SUPERUSER")))
    root.rows(text("BEFORE"))


@pytest.mark.parametrize("keep, result", [("result", True), ("always", True), ("error", False), ("none", False)])
def test_it_is_done_once(q, keep, result):
    """With its outcome; a type that is not the system's own is a text, its number means something else there."""
    token = pushed(q, "SELECT 1")
    mine = q.value("SELECT 'queue.queues'::regtype::oid::int8")
    said = {"count": 1, "names": ["a", "b", "c"], "types": [23, mine, 1186], "values": [["7", "(x)", "1 day"]]}
    assert q.value("SELECT queue._ran_there(%s, %s, %s)", token, json.dumps(said), keep) == "q"
    found = q.rows("SELECT result FROM queue.await(%s)", token)
    assert (found[0][0] == {"count": 1, "rows": [{"a": 7, "b": "(x)", "c": "1 day"}]}) if result else (not found or found[0][0] is None)
    q.fails("QB001", "SELECT queue._ran_there(%s, %s, %s)", token, json.dumps(said), keep)


def test_several_statements(q):
    token = pushed(q, "SELECT 1; SELECT 2")
    one = {"count": 1, "names": ["a"], "types": ["99999"], "values": [["7"]]}
    q.value("SELECT queue._ran_there(%s, %s, 'result')", token, json.dumps({"count": 1, "statements": [one, one]}))
    ((found,),) = q.rows("SELECT result FROM queue.await(%s)", token)
    assert [s["rows"] for s in found["statements"]] == [[{"a": "7"}]] * 2
