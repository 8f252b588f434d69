"""PUSH ... AFTER: jobs that wait until others are done, also of other queues and other proxies."""

import pytest

from queuetest import TEXT, error, parked, q, qproxy, tag, take  # noqa: F401
from verbways import each_way, nothing, t


def one_there(c, name):
    tag(c, "QUEUE PUSH mail '1'")


VERBS = {
    "push": (one_there, "QUEUE PUSH {} {} AFTER {}", lambda name, s: [t(name), t("1"), t("1-1")], "INSERT 0 1", None, None),
    "push of several": (one_there, "QUEUE PUSH {} {} AFTER {}, {}", lambda name, s: [t(name), t("1"), t("1-1"), t("{1-1,1-1}")],
                        "INSERT 0 1", None, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


@pytest.fixture
def two(q):
    tag(q, "QUEUE CREATE next")
    return q


def job(c, sql):
    return c.rows(sql + " RETURNING JOB")[0]["job"]


def test_a_done_wakes_who_waits(qproxy, db, two):
    """Also one that is part of a transaction, and of a second job that is merged with others."""
    with qproxy.wire(db) as w:
        for how in ("merged", "in a transaction", "pop", "then"):
            a = job(two, "QUEUE PUSH mail '1'")
            assert tag(two, "QUEUE PUSH next '\"%s\"' AFTER '%s'" % (how, a)) == "INSERT 0 1"
            assert two.rows("QUEUE PEEK next STATE blocked")[0]["after"] == a
            w.query("QUEUE TAKE next WAIT '60s'")
            parked(w)
            if how == "pop":
                two.rows("QUEUE POP mail")
            else:
                token = take(two)["token"]
                if how == "in a transaction":
                    tag(two, "BEGIN; SELECT 1")
                tag(two, "QUEUE DONE '%s'%s" % (token, " THEN PUSH spare '1'" if how == "x" else ""))
                if how == "in a transaction":
                    parked(w)
                    tag(two, "COMMIT")
            rows = [m.text_row for m in w.until("Z") if m.type == "D"]
            assert len(rows) == 1 and rows[0][4] == '"%s"' % how
            tag(two, "QUEUE DONE '%s'" % rows[0][1])


def test_at_another_proxy(qbouncer, db):
    one, other = qbouncer(), qbouncer()
    with one.wire(db) as c, other.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        a = job(c, "QUEUE PUSH mail '1'")
        tag(w, "QUEUE PUSH mail '2' AFTER '%s'" % a)
        token = take(c)["token"]
        w.query("QUEUE TAKE mail WAIT '60s'")
        parked(w)
        tag(c, "QUEUE DONE '%s'" % token)
        assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["2"]


def test_stages(two):
    """A whole pipeline in one transaction; the last job waits for several."""
    tag(two, "BEGIN; SELECT 1")
    a, b = job(two, "QUEUE PUSH mail '1'"), job(two, "QUEUE PUSH mail '2'")
    tag(two, "QUEUE PUSH next '3' AFTER '%s', '%s'" % (a, b))
    tag(two, "COMMIT")
    assert two.rows("QUEUE STATS next")[0]["blocked"] == "1"
    tag(two, "QUEUE DONE '%s'" % take(two)["token"])
    token = take(two)["token"]
    assert two.rows("QUEUE TAKE next") == []
    tag(two, "QUEUE DONE '%s' THEN PUSH next '4' AFTER '2-1'" % token)
    token = take(two, "QUEUE TAKE next")["token"]
    assert two.rows("QUEUE TAKE next") == []
    tag(two, "QUEUE DONE '%s'" % token)
    assert take(two, "QUEUE TAKE next")["payload"] == "4"


def test_dies_with_it(two):
    a = job(two, "QUEUE PUSH mail '1'")
    b = job(two, "QUEUE PUSH next '2' AFTER '%s'" % a)
    tag(two, "QUEUE FAIL '%s' ERROR 'broken' FINAL" % take(two)["token"])
    (row,) = two.rows("QUEUE JOB '%s'" % b)
    assert (row["state"], row["error"]) == ("dead", "job 1-1, which it waited for, is dead: broken")
    assert error(two, "QUEUE PUSH next '3' AFTER '%s'" % a).sqlstate == "55000"


def test_errors(two):
    tag(two, "QUEUE PUSH mail '1'")
    for sql, state in (("AFTER '1-99'", "QB003"), ("AFTER NULL", "22004"), ("AFTER 'x'", "22023"), ("AFTER", "42601"),
                       ("AFTER 1", "22023"), ("AFTER '9-1'", "QB003"),
                       ("AFTER '1-1' KEY 'k' ON DUPLICATE RERUN", "0A000")):
        assert error(two, "QUEUE PUSH next '2' " + sql).sqlstate == state, sql
    assert two.rows("QUEUE STATS next")[0]["total"] == "0"


def test_rights(qproxy, db, two):
    tag(two, "QUEUE PUSH mail '1'")
    tag(two, "QUEUE GRANT PUSH ON next TO other")
    with qproxy.wire(db, user="other") as w:
        e = error(w, "QUEUE PUSH next '2' AFTER '1-1'")
        assert e.sqlstate == "42501" and "GRANT AWAIT ON mail" in e.fields["H"]
        tag(two, "QUEUE GRANT AWAIT ON mail TO other")
        tag(w, "QUEUE PUSH next '2' AFTER '1-1'")
    tag(two, "QUEUE DONE '%s'" % take(two)["token"])
    assert take(two, "QUEUE TAKE next")["payload"] == "2"


def test_with_a_group(qbouncer, db):
    """The end is at one proxy, who waits for the group's first at another one."""
    one, other = qbouncer(), qbouncer()
    with one.wire(db) as c, other.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        a = job(c, "QUEUE PUSH mail '1'")
        tag(c, "QUEUE PUSH mail '2' AFTER '%s' GROUP 'g'" % a)
        tag(c, "QUEUE PUSH mail '3' GROUP 'g'")
        assert c.rows("QUEUE PEEK mail STATE blocked")[0]["group"] == "g"
        first, third = take(c)["token"], take(c)["token"]
        w.query("QUEUE TAKE mail WAIT '60s'")
        parked(w)
        tag(c, "QUEUE DONE '%s'" % first)
        assert c.rows("QUEUE PEEK mail STATE blocked")[0]["after"] is None
        tag(c, "QUEUE DONE '%s'" % third)
        assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["2"]


def test_the_first_of_its_group_wakes_who_waits(qproxy, db, two):
    with qproxy.wire(db) as w:
        a = job(two, "QUEUE PUSH mail '1'")
        tag(two, "QUEUE PUSH next '2' AFTER '%s' GROUP 'g'" % a)
        w.query("QUEUE TAKE next GROUPED WAIT '60s'")
        parked(w)
        tag(two, "QUEUE DONE '%s'" % take(two)["token"])
        assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["2"]


@pytest.mark.parametrize("others", [0, 1])
def test_run_again_in_its_group(two, others):
    """What it waited for was run again and done while it was dead: it waits for nobody, and takes its place in its group."""
    a = job(two, "QUEUE PUSH mail '1'")
    b = job(two, "QUEUE PUSH next '2' AFTER '%s' GROUP 'g'" % a)
    tag(two, "QUEUE FAIL '%s' FINAL" % take(two)["token"])
    tag(two, "QUEUE RERUN '%s'" % a)
    tag(two, "QUEUE DONE '%s'" % take(two)["token"])
    for n in range(others):
        tag(two, "QUEUE PUSH next '%d' GROUP 'g'" % (n + 3))
    tag(two, "QUEUE RERUN '%s'" % b)
    got = [take(two, "QUEUE TAKE next")]
    assert two.rows("QUEUE TAKE next LIMIT 9") == []
    for _ in range(others):
        tag(two, "QUEUE DONE '%s'" % got[-1]["token"])
        got.append(take(two, "QUEUE TAKE next"))
    assert [one["payload"] for one in got] == ["3"] * others + ["2"]
    assert got[-1]["group"] == "g"
