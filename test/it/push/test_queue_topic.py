"""Topics: PUBLISH goes to each queue that is bound, wakes who waits there, here and at other proxies."""

import psycopg
import pytest

from queuetest import BOOL, JSONB, TEXT, error, parked, q, qproxy, tag  # noqa: F401
from verbways import each_way, i, iv, j, nothing, t


def topic(c, name):
    tag(c, "QUEUE CREATE TOPIC of_%s" % name)
    tag(c, "QUEUE BIND %s TO 'of_%s.#'" % (name, name))


VERBS = {
    "create topic": (nothing, "QUEUE CREATE TOPIC {}", lambda name, s: [t("topic-" + name)], "CREATE TOPIC", None, None),
    "drop topic": (nothing, "QUEUE DROP TOPIC {} IF EXISTS", lambda name, s: [t("nosuch")], "DROP TOPIC", None, None),
    "publish": (topic, "QUEUE PUBLISH {} {}", lambda name, s: [t(f"of_{name}.x"), j('{"a": 1}')], "INSERT 0 1", None, None),
    "publish with all": (topic, "QUEUE PUBLISH {} {}, {} PRIORITY {} DELAY {} HEADERS {} GROUP {} MANDATORY RETURNING QUEUE, JOB",
                         lambda name, s: [t(f"of_{name}.x"), t("1"), t("2"), i(3), iv("1h", 3600), j("{}"), t("g")], "INSERT 0 2",
                         [("queue", TEXT), ("job", TEXT)], None),
    "bind": (topic, "QUEUE BIND {} TO {} WHEN headers @> {}", lambda name, s: [t(name), t(f"of_{name}.*.x"), j('{"k": 1}')], "BIND", None, None),
    "unbind": (topic, "QUEUE UNBIND {} FROM {}", lambda name, s: [t(name), t(f"of_{name}.#")], "UNBIND", None, None),
    "routes": (topic, "QUEUE ROUTES {}", lambda name, s: [t(f"of_{name}.x")], "SELECT 1",
               [("topic", TEXT), ("pattern", TEXT), ("queue", TEXT), ("headers", JSONB), ("active", BOOL), ("owner", TEXT)], None),
    "grant": (topic, "QUEUE GRANT PUBLISH, BIND ON TOPIC {} TO public", lambda name, s: [t(f"of_{name}")], "GRANT", None, None),
    "revoke": (topic, "QUEUE REVOKE ALL ON TOPIC {} FROM public", lambda name, s: [t(f"of_{name}")], "REVOKE", None, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


@pytest.fixture
def two(q):
    tag(q, "QUEUE CREATE next")
    tag(q, "QUEUE CREATE TOPIC orders")
    tag(q, "QUEUE BIND mail TO 'orders.#'")
    tag(q, "QUEUE BIND next TO orders")
    return q


def test_what_goes_where(two):
    assert tag(two, "QUEUE PUBLISH 'orders.eu' '1', '2'") == "INSERT 0 2"
    assert tag(two, "QUEUE PUBLISH orders '{\"n\": 3}' HEADERS '{\"a\": 1}'") == "INSERT 0 2"
    assert tag(two, "QUEUE PUBLISH orders (1 + 3)") == "INSERT 0 2"
    assert two.rows("QUEUE PUBLISH orders '5' RETURNING QUEUE, JOB") == [
        {"queue": "mail", "job": "1-5"}, {"queue": "next", "job": two.rows("QUEUE PEEK next LIMIT 9")[-1]["job"]}]
    assert [(r["payload"], r["headers"]) for r in two.rows("QUEUE PEEK next LIMIT 9")] == [
        ('{"n": 3}', '{"a": 1, "topic": "orders"}'), ("4", '{"topic": "orders"}'), ("5", '{"topic": "orders"}')]
    tag(two, "QUEUE CREATE TOPIC quiet")
    assert tag(two, "QUEUE PUBLISH 'quiet.x' '1'") == "INSERT 0 0"
    assert error(two, "QUEUE PUBLISH 'quiet.x' '1' MANDATORY").sqlstate == "QB007"
    assert tag(two, "QUEUE BIND next TO 'quiet.*' WHEN headers @> '{\"k\": \"v\"}'") == "BIND"
    assert tag(two, "QUEUE PUBLISH 'quiet.x' '1' HEADERS '{\"k\": \"v\"}'") == "INSERT 0 1"
    assert tag(two, "QUEUE PUBLISH 'quiet.x' '1' HEADERS '{\"k\": \"w\"}'") == "INSERT 0 0"


def test_bound_as_parameters(qproxy, db, two):
    with psycopg.connect(qproxy.dsn(db), autocommit=True) as c:
        for prepare in (False, True):
            rows = c.execute("QUEUE PUBLISH %s %s, %s HEADERS %s RETURNING QUEUE, JOB",
                             ("orders.x", '"it\'s"', "2", '{"a": 1}'), prepare=prepare).fetchall()
            assert [r[0] for r in rows] == ["mail", "mail"]
        with c.transaction():
            assert c.execute("QUEUE PUBLISH %s %s", ("orders", "1")).statusmessage == "INSERT 0 2"


@pytest.mark.parametrize("how", ["alone", "in a transaction", "by a function"])
@pytest.mark.parametrize("queue", ["mail", "next"])
def test_who_waits_is_woken(qproxy, db, two, how, queue):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE %s WAIT '60s'" % queue)
        parked(w)
        if how == "in a transaction":
            tag(two, "BEGIN; SELECT 1")
            tag(two, "QUEUE PUBLISH orders '7'")
            parked(w)
            tag(two, "COMMIT")
        elif how == "alone":
            tag(two, "QUEUE PUBLISH orders '7'")
        else:
            two.rows("SELECT queue.publish('orders', '7')")
        rows = [m.text_row for m in w.until("Z") if m.type == "D"]
        assert len(rows) == 1 and rows[0][4] == "7"


def test_several_of_one_publication(qproxy, db, two):
    with qproxy.wire(db) as w, qproxy.wire(db) as v:
        for c in w, v:
            c.query("QUEUE TAKE mail WAIT '60s'")
            parked(c)
        tag(two, "QUEUE PUBLISH 'orders.x' '1', '2'")
        assert sorted(m.text_row[4] for c in (w, v) for m in c.until("Z") if m.type == "D") == ["1", "2"]


def test_at_another_proxy(qbouncer, db):
    one, other = qbouncer(), qbouncer()
    with one.wire(db) as c, other.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        topic(c, "mail")
        w.query("QUEUE TAKE mail WAIT '60s'")
        parked(w)
        tag(c, "QUEUE PUBLISH 'of_mail.x' '1'")
        assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["1"]


def test_rolled_back_to_a_savepoint(two):
    tag(two, "BEGIN")
    tag(two, "QUEUE PUBLISH orders '1'")
    tag(two, "SAVEPOINT s")
    tag(two, "QUEUE PUBLISH orders '2'")
    tag(two, "ROLLBACK TO s")
    tag(two, "COMMIT")
    assert [r["payload"] for r in two.rows("QUEUE PEEK mail")] == ["1"]


def test_names(q):
    """Queues that are called as the new words are."""
    assert tag(q, "QUEUE CREATE topic") == "CREATE TABLE"
    assert tag(q, "QUEUE CREATE topic IF NOT EXISTS") == "CREATE TABLE"
    assert tag(q, "QUEUE CREATE TOPIC IF NOT EXISTS topic") == "CREATE TOPIC"
    assert tag(q, "QUEUE GRANT PUSH ON topic TO public") == "GRANT"
    assert tag(q, "QUEUE GRANT PUBLISH ON TOPIC topic TO public") == "GRANT"
    assert tag(q, "QUEUE BIND topic TO topic") == "BIND"
    assert tag(q, "QUEUE DROP topic IF EXISTS") == "DROP TABLE"
    assert tag(q, "QUEUE DROP TOPIC topic") == "DROP TOPIC"


@pytest.mark.parametrize("sqlstate, sql", [
    ("42601", "QUEUE PUBLISH"), ("42601", "QUEUE PUBLISH orders"), ("42601", "QUEUE PUBLISH orders '1' RETURNING ID"),
    ("42601", "QUEUE BIND mail TO orders WHEN headers = '{}'"), ("42601", "QUEUE BIND mail TO orders WHEN payload @> '{}'"),
    ("0A000", "QUEUE PUBLISH orders SELECT 1"), ("0A000", "QUEUE PUBLISH orders FROM STDIN"), ("42601", "QUEUE PUBLISH orders '1' AFTER '1-1'"),
    ("42704", "QUEUE PUBLISH 'nosuch.x' '1'"), ("0A000", "QUEUE PUBLISH orders '1' KEY 'k' ON DUPLICATE REPLACE"),
    ("42601", "QUEUE BIND mail"), ("42601", "QUEUE UNBIND mail"), ("42704", "QUEUE ROUTES nosuch")])
def test_refused(two, sqlstate, sql):
    assert error(two, sql).sqlstate == sqlstate
