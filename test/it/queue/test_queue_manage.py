"""Verbs for whoever looks after the queues: what they do, in every way that a driver may send them, and with others
waiting."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import (  # noqa: F401
    BOOL, INT4, INT8, JSONB, TEXT, TIMESTAMPTZ, columns_of, error, parked, peek, q, qproxy, stats, tag, take, woken)
from verbways import each_way, i, j, nothing, t, three_jobs


JOB = columns_of("JOB")
HISTORY = columns_of("HISTORY")
ERRORS = [("error", TEXT), ("jobs", INT8), ("last", TIMESTAMPTZ), ("job", TEXT)]


def granted(c, name):
    tag(c, "QUEUE GRANT ALL ON %s TO other" % name)


def may(c, name):
    return c.rows("SELECT concat(has_column_privilege('other', 'queue.q_%s', 'payload', 'INSERT'), "
                  "has_table_privilege('other', 'queue.q_%s', 'DELETE'), "
                  "has_table_privilege('other', 'queue.q_%s', 'TRUNCATE')) AS may" % (name, name, name))[0]["may"]


def listed(c, name, column):
    return [r[column] for r in c.rows("QUEUE LIST") if r["queue"] == name][0]


def paused(c, name):
    three_jobs(c, name)
    tag(c, "QUEUE PAUSE %s" % name)


def dead(c, name):
    three_jobs(c, name)
    for row in c.rows("QUEUE TAKE %s LIMIT 3" % name):
        tag(c, "QUEUE FAIL '%s' ERROR 'no luck' FINAL" % row["token"])


def job(name, number):
    """The jobs of queue q0 are 1-1, 1-2 ...: the first queue is mail."""
    return t("%d-%d" % (int(name[1:]) + 2, number))


# name: as the arguments of each_way()
VERBS = {
    "pause": (three_jobs, "QUEUE PAUSE {}", lambda name, s: [t(name)], "ALTER TABLE", None,
              lambda c, name: listed(c, name, "paused") == "t" and c.rows("QUEUE TAKE " + name) == []),
    "alter job": (three_jobs, "QUEUE ALTER JOB {}, {} SET (priority = {}, payload = {}, at = {})",
                  lambda name, s: [job(name, 1), job(name, 3), i(7), j('{"b": 2}'), t("now")], "UPDATE 2", None,
                  lambda c, name: [(r["id"], r["priority"], r["payload"]) for r in peek(c, name)] ==
                  [("1", "7", '{"b": 2}'), ("3", "7", '{"b": 2}'), ("2", "0", '{"n": 2}')]),
    "pause push": (three_jobs, "QUEUE PAUSE {} PUSH", lambda name, s: [t(name)], "ALTER TABLE", None,
                   lambda c, name: listed(c, name, "push_paused") == "t" and error(c, "QUEUE PUSH %s '1'" % name).sqlstate ==
                   "QB006" and take(c, "QUEUE TAKE " + name)),
    "resume": (paused, "QUEUE RESUME {}", lambda name, s: [t(name)], "ALTER TABLE", None,
               lambda c, name: listed(c, name, "paused") == "f" and take(c, "QUEUE TAKE " + name)),
    "cancel": (three_jobs, "QUEUE CANCEL {}, {}", lambda name, s: [job(name, 1), job(name, 3)], "UPDATE 2", None,
               lambda c, name: [r["id"] for r in peek(c, name)] == ["2"]),
    "cancel all": (three_jobs, "QUEUE CANCEL ALL ON {} WHERE (id < 3)", lambda name, s: [t(name)], "UPDATE 2", None,
                   lambda c, name: [r["id"] for r in peek(c, name)] == ["3"]),
    "rerun": (dead, "QUEUE RERUN {}, {}", lambda name, s: [job(name, 1), job(name, 3)], "UPDATE 2", None,
              lambda c, name: stats(c, name) == dict(ready=2, later=0, leased=0, dead=1)),
    "redrive": (dead, "QUEUE REDRIVE {} LIMIT {}", lambda name, s: [t(name), i(2)], "UPDATE 2", None,
                lambda c, name: stats(c, name) == dict(ready=2, later=0, leased=0, dead=1)),
    "redrive to": (dead, "QUEUE REDRIVE {} STATE {} TO {} LIMIT {}", lambda name, s: [t(name), t("dead"), t("mail"), i(2)],
                   "UPDATE 2", None, lambda c, name: stats(c, name) == dict(ready=0, later=0, leased=0, dead=1)),
    "job": (dead, "QUEUE JOB {}", lambda name, s: [job(name, 2)], "SELECT 1", JOB, None),
    "history": (dead, "QUEUE HISTORY {}", lambda name, s: [job(name, 2)], "SELECT 1", HISTORY, None),
    "errors": (dead, "QUEUE ERRORS {}", lambda name, s: [t(name)], "SELECT 1", ERRORS, None),
    "grant": (nothing, "QUEUE GRANT {}, {} ON {} TO {}", lambda name, s: [t("push"), t("take"), t(name), t("other")],
              "GRANT", None, lambda c, name: may(c, name) == "ttf"),
    "revoke": (granted, "QUEUE REVOKE {} ON {} FROM {}", lambda name, s: [t("TAKE"), t(name), t("other")],
               "REVOKE", None, lambda c, name: may(c, name) == "tff"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


# -- pause and resume --------------------------------------------------------------------------

def test_waiters_go_on_waiting(qproxy, db, q):
    tag(q, "QUEUE PAUSE mail")
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        for w in (a, b):
            w.query("QUEUE TAKE mail WAIT '60s'")
            parked(w)
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


def test_pushes_that_are_paused(qproxy, db, q):
    """However they come: merged, handed over, in a transaction, by key, many at once."""
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        a.query("QUEUE TAKE mail WAIT '60s'")
        parked(a)
        assert tag(q, "QUEUE PAUSE mail PUSH") == "ALTER TABLE"
        for sql in ("QUEUE PUSH mail '1'", "QUEUE PUSH mail '1' KEY 'k'", "QUEUE PUSH mail '1', '2' EXPIRES '1 h'",
                    "QUEUE PUSH mail '1' GROUP 'g'", "QUEUE PUSH mail SELECT 1", "QUEUE PUSH mail (payload, key) SELECT 1, 'k'"):
            assert error(b, sql).sqlstate == "QB006", sql
            tag(b, "BEGIN; SELECT 1")
            assert "QUEUE RESUME mail" in error(b, sql).fields["H"], sql
            tag(b, "ROLLBACK")
        parked(a)
        tag(q, "QUEUE RESUME mail PUSH")
        assert tag(b, "QUEUE PUSH mail '3'") == "INSERT 0 1"
        assert woken(a)["payload"] == "3"


# -- alter job ---------------------------------------------------------------------------------

@pytest.mark.parametrize("block", [False, True])
def test_a_job_that_is_hurried_wakes_who_waits(qproxy, db, q, block):
    tag(q, "QUEUE PUSH mail '1' DELAY '1 h'")
    with qproxy.wire(db) as a:
        a.query("QUEUE TAKE mail WAIT '60s'")
        parked(a)
        if block:
            tag(q, "BEGIN; SELECT 1")
        assert tag(q, "QUEUE ALTER JOB 1 ON mail SET (at = 'now')") == "UPDATE 1"
        if block:
            parked(a)
            tag(q, "COMMIT")
        assert woken(a)["payload"] == "1"


def test_a_job_that_gets_an_earlier_time(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1' DELAY '1 h'")
    with qproxy.wire(db) as a:
        a.query("QUEUE TAKE mail WAIT '60s'")
        parked(a)
        soon = q.rows("SELECT clock_timestamp() + interval '300 ms' AS soon")[0]["soon"]
        assert tag(q, "QUEUE ALTER JOB '1-1' SET (at = '%s')" % soon) == "UPDATE 1"
        assert woken(a)["payload"] == "1"


def test_a_job_that_is_held_and_one_of_higher_priority(q):
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    assert take(q)["id"] == "1"  # the head is known from here on
    tag(q, "QUEUE ALTER JOB 2 ON mail SET (at = 'infinity')")
    tag(q, "QUEUE PUSH mail '4'")
    tag(q, "QUEUE ALTER JOB 4 ON mail SET (priority = 9)")
    assert [r["id"] for r in q.rows("QUEUE TAKE mail LIMIT 10")] == ["4", "3"]
    tag(q, "QUEUE ALTER JOB 2 ON mail SET (at = now, priority = -1)")
    assert take(q)["id"] == "2"
    e = error(q, "QUEUE ALTER JOB 2 ON mail SET (at = now)")
    assert e.sqlstate == "55000" and "being worked on" in e.message


def test_the_queue_called_job(q):
    tag(q, "QUEUE CREATE job")
    assert tag(q, "QUEUE ALTER job SET (max_attempts = 3)") == "ALTER TABLE"
    assert listed(q, "job", "max_attempts") == "3"
    assert len(q.rows("QUEUE HELP ALTER")) == 2


# -- cancel ------------------------------------------------------------------------------------

def test_a_job_that_runs_is_cancelled(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2'")
    with qproxy.wire(db) as worker:
        job = take(worker)
        assert tag(q, "QUEUE CANCEL 1") == "UPDATE 1"
        for verb in ("EXTEND", "FAIL", "RELEASE", "DONE"):
            assert error(worker, "QUEUE %s 1" % verb).sqlstate == "QB002"
        tag(worker, "BEGIN")
        tag(worker, "CREATE TABLE work ()")
        assert error(worker, "QUEUE DONE '%s'" % job["token"]).sqlstate == "QB002"
        assert tag(worker, "COMMIT") == "ROLLBACK"
        assert stats(q) == dict(ready=1, later=0, leased=1, dead=0)
        worker.reset()
        wait_for(lambda: stats(q) == dict(ready=1, later=0, leased=0, dead=0), "the job to go")


def test_names_of_jobs(q):
    tag(q, "QUEUE CREATE other")
    tag(q, "QUEUE PUSH mail '1', '2'")
    tag(q, "QUEUE PUSH other '1'")
    for unknown in ("1", "2", "7"):
        e = error(q, "QUEUE CANCEL " + unknown)
        assert e.sqlstate == "22023" and "QUEUE CANCEL %s ON mail;" % unknown in e.fields["H"]
        got = q.hold().parse("", "QUEUE CANCEL $1").bind("", "", [unknown]).execute().sync().push().until("Z")
        assert got[-2].fields["C"] == "22023"
    assert tag(q, "QUEUE CANCEL '1-1', '1-2', '2-1'") == "UPDATE 3"
    assert error(q, "QUEUE CANCEL '1-1'").sqlstate == "QB003"


# -- rerun and redrive -------------------------------------------------------------------------

@pytest.mark.parametrize("block", [False, True])
def test_redrive_wakes_those_who_wait_there(qproxy, db, q, block):
    tag(q, "QUEUE CREATE sms")
    dead(q, "mail")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE sms WAIT '60s'")
        parked(w)
        if block:
            tag(q, "BEGIN; SELECT 1")
        assert tag(q, "QUEUE REDRIVE mail TO sms LIMIT 1") == "UPDATE 1"
        if block:
            parked(w)
            tag(q, "COMMIT")
        assert woken(w)["headers"] == '{"parent": "1-1"}'


@pytest.mark.parametrize("sql", ["QUEUE REDRIVE mail", "QUEUE RERUN 1, '1-2', 3"])
@pytest.mark.parametrize("block", [False, True])
def test_the_dead_wake_those_who_wait(qproxy, db, q, sql, block):
    dead(q, "mail")
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        for w in (a, b):
            w.query("QUEUE TAKE mail WAIT '60s'")
        parked(a, b)
        if block:
            tag(q, "BEGIN; SELECT 1")
        assert tag(q, sql) == "UPDATE 3"
        if block:
            parked(a, b)
            tag(q, "COMMIT")
        assert [woken(w)["attempt"] for w in (a, b)] == ["1", "1"]


# -- rights ------------------------------------------------------------------------------------

def test_as_another_role(qproxy, db, q):
    with qproxy.wire(db, user="other") as w:
        for sql in ("QUEUE PUSH mail '1'", "QUEUE TAKE mail"):
            assert error(w, sql).sqlstate == "42501"
        assert tag(q, "QUEUE GRANT PUSH ON mail TO other") == "GRANT"
        assert w.rows("QUEUE PUSH mail '1' RETURNING ID") == [{"id": "1"}]
        tag(w, "BEGIN; SELECT 1")
        assert tag(w, "QUEUE PUSH mail '2'") == "INSERT 0 1"
        tag(w, "COMMIT")
        for sql in ("QUEUE TAKE mail", "QUEUE POP mail", "QUEUE PEEK mail", "QUEUE CANCEL '1-1'", "QUEUE JOB '1-1'",
                    "QUEUE PURGE mail", "QUEUE GRANT TAKE ON mail TO other", "SELECT payload FROM queue.q_mail"):
            assert error(w, sql).sqlstate == "42501", sql
        tag(q, "QUEUE GRANT TAKE ON mail TO other")
        assert tag(w, "QUEUE DONE '%s'" % take(w)["token"]) == "UPDATE 1"
        tag(q, "QUEUE REVOKE TAKE ON mail FROM other")
        assert error(w, "QUEUE TAKE mail").sqlstate == "42501"
        assert tag(w, "QUEUE PUSH mail '1'") == "INSERT 0 1"
        assert tag(q, "QUEUE REVOKE ALL ON mail FROM other, public") == "REVOKE"
        assert error(w, "QUEUE PUSH mail '1'").sqlstate == "42501"


RIGHTS = [
    ("QUEUE PUSH {q} '1'", "PUSH"), ("QUEUE PUSH {q} '1' KEY 'k'", "PUSH"),
    ("QUEUE PUSH {q} '1' KEY 'k' ON DUPLICATE REPLACE", "PUSH, TAKE"),
    ("QUEUE PUSH {q} '1' KEY 'k' ON DUPLICATE 'Error'", "PUSH"), ("QUEUE PEEK {q}", "TAKE"),
    ("QUEUE PEEK {q} STATE done", "TAKE"), ("QUEUE STATS {q}", "TAKE"), ("QUEUE ERRORS {q}", "TAKE"),
    ("QUEUE PURGE {q}", "TAKE"), ("QUEUE REDRIVE {q}", "TAKE"),
    ("QUEUE REDRIVE {q} STATE later", "TAKE"), ("QUEUE CANCEL ALL ON {q}", "TAKE"), ("QUEUE CANCEL '{n}-1'", "TAKE"),
    ("QUEUE JOB '{n}-1'", "TAKE"), ("QUEUE HISTORY '{n}-1'", "TAKE"),
    ("QUEUE ALTER JOB '{n}-1' SET (priority = 1)", "TAKE"), ("QUEUE DONE '{n}-1-0000000000000000'", "TAKE"),
]
# outside transactions only
ALONE = [("QUEUE TAKE {q}", "TAKE"), ("QUEUE TAKE {q} WAIT '60s'", "TAKE"), ("QUEUE POP {q}", "TAKE"),
         ("QUEUE AWAIT '{n}-1'", "AWAIT"), ("QUEUE AWAIT 1 ON {q} WAIT '60s'", "AWAIT")]


def test_the_right_that_is_missing(qproxy, db, q):
    """The error of the table tells which right to ask for: merged, in place, simple and extended."""
    tag(q, 'QUEUE CREATE "My ""Mail"')
    with qproxy.wire(db, user="other") as w:
        for place in (False, True):
            for sql, rights in RIGHTS + ([] if place else ALONE):
                for number, name, named in ((1, "mail", "mail"), (2, '"My ""Mail"', 'My "Mail')):
                    text = sql.format(q=name, n=number)
                    for extended in (False, True):
                        if place:
                            tag(w, "BEGIN; SELECT 1")
                        got = w.hold().parse("", text).bind().execute().sync().push().until("Z") if extended \
                            else w.simple(text)
                        e = next(m for m in got if m.type == "E").fields
                        assert (e["C"], e["M"]) == ("42501", 'permission denied for queue "%s"' % named), text
                        assert e["H"] == "The owner of the queue can allow it: QUEUE GRANT %s ON %s TO ...;" % (
                            rights, name), text
                        if place:
                            tag(w, "ROLLBACK")
        assert "H" not in error(w, "SELECT payload FROM queue.q_mail").fields     # not a statement of ours


@pytest.mark.parametrize("block", [False, True])
def test_dropped_while_it_waits(qproxy, db, q, cluster, direct, block):
    """A statement that waits for a DROP is told in the words of the language that the queue is gone."""
    with qproxy.wire(db) as w, psycopg.connect(cluster.dsn(db)) as other:
        table = direct.execute("SELECT 'queue.q_mail'::regclass::oid").fetchone()[0]
        if block:
            tag(w, "BEGIN; SELECT 1")
        other.execute("SELECT queue.drop('mail')")
        w.query("QUEUE PEEK mail")
        wait_for(lambda: direct.execute("SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND "
                                        "relation = %s", [table]).fetchone(), "that it waits")
        other.commit()
        e = next(m for m in w.until("Z") if m.type == "E").fields
        assert (e["C"], e["M"]) == ("42P01", 'queue "mail" does not exist')
        assert e["H"] == "It has been dropped. To have it again: QUEUE CREATE mail;"


def test_grant_is_refused(q):
    for sql, state in (("QUEUE GRANT EAT ON mail TO other", "22023"), ("QUEUE GRANT PUSH ON mail TO nobody_here", "42704"),
                       ("QUEUE GRANT PUSH ON nothing TO other", "42P01"), ("QUEUE GRANT PUSH ON mail", "42601"),
                       ("QUEUE GRANT ON mail TO other", "42601"), ("QUEUE GRANT PUSH ON mail FROM other", "42601"),
                       ("QUEUE REVOKE PUSH ON mail TO other", "42601")):
        assert error(q, sql).sqlstate == state, sql
