"""Topics: what is published goes to each queue and stream that is bound."""

import json
import os
import subprocess

import psycopg
import pytest
from psycopg.types.json import Jsonb


def raises(conn, sqlstate, sql, *args):
    with pytest.raises(psycopg.Error) as e:
        conn.execute(sql, args)
    assert e.value.sqlstate == sqlstate, e.value
    return e.value


def publish(conn, topic, payload="{}", **more):
    args = "".join(f', "{k}" => %s' for k in more)
    return conn.execute(f"SELECT * FROM queue.publish(%s, %s::jsonb{args})", (topic, payload, *more.values())).fetchall()


def counts(conn, *queues):
    return [conn.execute(f"SELECT count(*) FROM queue.q_{q}").fetchone()[0] for q in queues]


@pytest.mark.parametrize("pattern, yes, no", [
    ("orders", ["orders"], ["orders.a"]),
    ("orders.*", ["orders.a"], ["orders", "orders.a.b"]),
    ("orders.#", ["orders", "orders.a", "orders.a.b"], []),
    ("orders.*.paid", ["orders.eu.paid"], ["orders.paid", "orders.eu.x.paid", "orders.eu.paid.x"]),
    ("orders.#.paid", ["orders.paid", "orders.eu.paid", "orders.a.b.paid"], ["orders", "orders.paid.x", "orders.unpaid"]),
    ("orders.#.#", ["orders", "orders.a"], []),
    ("orders.*.#", ["orders.a", "orders.a.b"], ["orders"]),
    ("orders.a+b(c", ["orders.a+b(c"], ["orders.aab"]),
    ("orders.a+b.*", ["orders.a+b.x"], ["orders.aab.x"]),
    ("orders.\\d.*", ["orders.\\d.x"], ["orders.1.x"]),
    ("orders.é.*", ["orders.é.x"], ["orders.e.x"])])
def test_patterns(db, pattern, yes, no):
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders')")
    db.conn.execute("SELECT queue.bind('mail', %s)", (pattern,))
    for topic in yes + no:
        assert len(publish(db.conn, topic)) == (topic in yes), topic
        routes = db.conn.execute("SELECT count(*) FROM queue.routes(%s)", (topic,)).fetchone()[0]
        assert routes == (topic in yes)


def test_one_copy_for_each(db):
    for q in "mail", "log", "other":
        db.create(q)
    db.conn.execute("SELECT queue.create_topic('orders')")
    for q, pattern in ("mail", "orders.#"), ("mail", "orders.eu.*"), ("log", "orders.eu.paid"), ("other", "orders.us"):
        db.conn.execute("SELECT queue.bind(%s, %s)", (q, pattern))
    rows = publish(db.conn, "orders.eu.paid", '{"n": 1}', headers=Jsonb({"a": 1, "topic": "false"}), priority=3)
    numbers = dict(db.conn.execute("SELECT name, number FROM queue.queues").fetchall())
    assert rows == [("mail", f"{numbers['mail']}-1"), ("log", f"{numbers['log']}-1")]
    assert counts(db.conn, "mail", "log", "other") == [1, 1, 0]
    assert db.conn.execute("SELECT payload, headers, priority FROM queue.q_log").fetchone() == (
        {"n": 1}, {"a": 1, "topic": "orders.eu.paid"}, 3)


def test_when(db):
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders')")
    db.conn.execute("SELECT queue.bind('mail', 'orders', '{\"kind\": \"urgent\"}')")
    assert publish(db.conn, "orders") == []
    assert publish(db.conn, "orders", headers=Jsonb({"kind": "late"})) == []
    assert len(publish(db.conn, "orders", headers=Jsonb({"kind": "urgent", "x": 1}))) == 1
    db.conn.execute("SELECT queue.bind('mail', 'orders')")  # said again, otherwise
    assert len(publish(db.conn, "orders")) == 1
    assert db.conn.execute("SELECT count(*) FROM queue.bindings").fetchone()[0] == 1
    before = db.conn.execute("SELECT ctid, xmin FROM queue.bindings").fetchone()
    db.conn.execute("SELECT queue.bind('mail', 'orders')")  # equal: nothing is written, but that it is locked
    assert db.conn.execute("SELECT ctid FROM queue.bindings").fetchone() == before[:1]


def test_a_stream_and_rollback(db):
    db.create("mail")
    db.conn.execute("SELECT queue.create('log', false, '{kind}', '{stream}')")
    db.conn.execute("SELECT queue.create_topic('orders')")
    for q in "mail", "log":
        db.conn.execute("SELECT queue.bind(%s, 'orders.#')", (q,))
    assert [r[0] for r in publish(db.conn, "orders.a", key="k", group="g", attempts=3)] == ["mail", "log"]
    n = db.conn.execute("SELECT number FROM queue.streams").fetchone()[0]
    assert db.conn.execute(f'SELECT key, "group", headers FROM queue.e{n}_0').fetchall() == [("k", "g", {"topic": "orders.a"})]
    with pytest.raises(ZeroDivisionError), db.conn.transaction():
        publish(db.conn, "orders.b")
        raise ZeroDivisionError
    assert counts(db.conn, "mail") == [1]


def test_none_and_mandatory(db):
    db.conn.execute("SELECT queue.create_topic('orders')")
    assert publish(db.conn, "orders.x") == []
    raises(db.conn, "QB007", "SELECT queue.publish('orders.x', '1', mandatory => true)")
    db.create("mail")
    db.conn.execute("SELECT queue.bind('mail', 'orders.x')")
    assert len(publish(db.conn, "orders.x", key="k", mandatory=True)) == 1
    assert publish(db.conn, "orders.x", key="k", mandatory=True) == []  # it is there: no copy, and no error


@pytest.mark.parametrize("sqlstate, sql", [
    ("42704", "SELECT queue.publish('nosuch.x', '1')"), ("22023", "SELECT queue.publish('orders..x', '1')"),
    ("22023", "SELECT queue.publish('orders.*', '1')"), ("22023", "SELECT queue.publish('orders.', '1')"),
    ("22004", "SELECT queue.publish(NULL, '1')"), ("22004", "SELECT queue.publish('orders', NULL::text)"),
    ("0A000", "SELECT queue.publish('orders', '1', key => 'k', on_duplicate => 'replace')"),
    ("22023", "SELECT queue.publish('orders', '1', headers => '[]')"),
    ("22023", "SELECT queue.bind('mail', '*.x')"), ("22023", "SELECT queue.bind('mail', '#')"),
    ("22023", "SELECT queue.bind('mail', 'orders.eu*')"), ("42704", "SELECT queue.bind('mail', 'nosuch.x')"),
    ("42P01", "SELECT queue.bind('nosuch', 'orders.x')"), ("22023", "SELECT queue.bind('mail', 'orders', '[]')"),
    ("42704", "SELECT queue.unbind('mail', 'orders.never')"), ("42710", "SELECT queue.create_topic('orders')"),
    ("22023", "SELECT queue.create_topic('orders.x')"), ("22023", "SELECT queue.create_topic('')"),
    ("42704", "SELECT queue.drop_topic('nosuch')"), ("22023", "SELECT queue.grant_topic('orders', '{push}', '{bob}')"),
    ("42704", "SELECT queue.grant_topic('orders', '{publish}', '{nosuch}')")])
def test_refused(db, sqlstate, sql):
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders')")
    raises(db.conn, sqlstate, sql)


def test_full_and_of_another_type(db):
    db.create("mail")
    db.create("log", max_length="1")
    db.conn.execute("SELECT queue.create_topic('orders')")
    for q in "mail", "log":
        db.conn.execute("SELECT queue.bind(%s, 'orders')", (q,))
    publish(db.conn, "orders")
    raises(db.conn, "QB004", "SELECT queue.publish('orders', '1')")
    assert counts(db.conn, "mail", "log") == [1, 1]  # all or none
    db.conn.execute("SELECT queue.alter('log', '{overflow}', '{drop_oldest}', '{}')")
    assert len(publish(db.conn, "orders")) == 2
    assert counts(db.conn, "mail", "log") == [2, 1]


def test_rights(db):
    """A publisher needs no right on the queues; a binder owns the queue and may BIND."""
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders')")
    db.conn.execute("SELECT queue.bind('mail', 'orders.#')")
    bob, mallory = db.connect("bob").conn, db.connect("mallory").conn
    raises(bob, "42501", "SELECT queue.publish('orders', '1')")
    raises(bob, "42501", "INSERT INTO queue.t_2 (topic, payloads) VALUES ('orders', '{1}')")
    raises(bob, "42501", "SELECT queue.drop_topic('orders')")
    raises(bob, "42501", "SELECT queue.unbind('mail', 'orders.#')")
    raises(bob, "42501", "SELECT queue.grant_topic('orders', '{all}', '{bob}')")
    raises(bob, "42501", "SELECT queue.create_topic('mine')")
    raises(bob, "42501", "SELECT queue.give_topic('orders', 'bob')")
    raises(bob, "42501", "INSERT INTO queue._topic (what, topic, role) VALUES ('owner', 2, 'bob')")
    raises(bob, "22023", "INSERT INTO queue._topic (what, topic) VALUES (NULL, 2)")
    raises(bob, "42501", "INSERT INTO queue.bindings VALUES (2, 1, 'orders', NULL, NULL)")
    raises(bob, "42501", "CREATE TRIGGER x INSTEAD OF INSERT ON queue.t_2 FOR EACH ROW EXECUTE FUNCTION queue._route()")
    db.conn.execute("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    assert len(publish(bob, "orders.x")) == 1
    raises(bob, "42501", "SELECT * FROM queue.q_mail")
    raises(bob, "42501", "SELECT queue.push('mail', '1')")
    raises(bob, "22023", "INSERT INTO queue.t_2 (topic, payloads) VALUES ('other', '{1}')")
    # a binder
    db.conn.execute("GRANT INSERT, UPDATE, DELETE ON queue.queues TO mallory")
    mallory.execute("SELECT queue.create('spy')")
    raises(mallory, "42501", "SELECT queue.bind('spy', 'orders.#')")
    raises(mallory, "42501", "SELECT queue.bind('mail', 'orders.#')")
    db.conn.execute("SELECT queue.grant_topic('orders', '{bind}', '{mallory}')")
    mallory.execute("SELECT queue.bind('spy', 'orders.#')")
    raises(mallory, "42501", "SELECT queue.bind('mail', 'orders.y')")
    raises(mallory, "42501", "SELECT queue.publish('orders', '1')")
    assert len(publish(bob, "orders.x")) == 2
    # taken back, it gets nothing, and that is to be seen
    db.conn.execute("SELECT queue.revoke_topic('orders', '{bind}', '{mallory}')")
    assert len(publish(bob, "orders.x")) == 1
    assert mallory.execute("SELECT queue, active FROM queue.routes()").fetchall() == [("mail", True), ("spy", False)]
    db.conn.execute("SELECT queue.unbind('spy', 'orders.#')")  # the topic's owner may
    db.conn.execute("SELECT queue.revoke_topic('orders', '{publish}', '{bob}')")
    raises(bob, "42501", "SELECT queue.publish('orders', '1')")


def test_what_a_publisher_says_to_the_view_himself(db):
    """Nothing that PUBLISH would not: jobs that are there are not his to change."""
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders')")
    db.conn.execute("SELECT queue.bind('mail', 'orders.#')")
    db.conn.execute("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    db.conn.execute("SELECT queue.push('mail', '1'::jsonb, key => 'k')")
    bob = db.connect("bob").conn
    insert = "INSERT INTO queue.t_2 (topic, payloads, key, duplicate) VALUES ('orders', '{666}', 'k', '%s') RETURNING made"
    for how in "replace", "rerun", "RePlace":
        raises(bob, "0A000", insert % how)
    raises(bob, "23505", insert % "ERROR")
    assert bob.execute(insert % "Ignore").fetchone() == ([],)
    raises(bob, "22004", "INSERT INTO queue.t_2 (topic, payloads) VALUES ('orders', '{NULL}')")
    raises(bob, "22004", "INSERT INTO queue.t_2 (topic) VALUES ('orders')")
    assert db.conn.execute("SELECT payload FROM queue.q_mail").fetchall() == [(1,)]


def test_what_is_locked(db):
    """Who owns a topic, or may BIND, holds up nobody's queue, and no one else who binds."""
    db.create("mail")
    db.conn.execute("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob, mallory")
    bob, mallory = db.connect("bob").conn, db.connect("mallory").conn
    bob.execute("SELECT queue.create_topic('his'), queue.create('hers')")
    db.conn.execute("SET lock_timeout = '5 s'")
    for what in "'unbind'", "'grant'", "'revoke'", "'owner'":
        with bob.transaction(force_rollback=True):
            bob.execute(f"INSERT INTO queue._topic (what, topic, queue, kind, role, pattern) VALUES ({what}, 2, 1, 'bind', 'bob', 'his')")
            db.conn.execute("SELECT queue.alter('mail', '{lease}', '{1 min}')")
    bob.execute("SELECT queue.grant_topic('his', '{bind}', '{mallory,app}')")
    mallory.execute("SELECT queue.create('spy')")
    with mallory.transaction():
        mallory.execute("SELECT queue.bind('spy', 'his.#')")
        db.conn.execute("SELECT queue.bind('mail', 'his.#')")
        bob.execute("SET lock_timeout = '5 s'")
        bob.execute("SELECT queue.grant_topic('his', '{publish}', '{app}')")
    with bob.transaction():
        bob.execute("SELECT queue.unbind('mail', 'his.#')")
        db.conn.execute("SELECT queue.alter('mail', '{lease}', '{2 min}')")


def test_who_was_the_owner_in_an_old_snapshot(db):
    db.create("mail")
    db.conn.execute("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob")
    db.conn.execute("SELECT queue.create_topic('orders'), queue.grant_topic('orders', '{bind}', '{bob}')")
    bob = db.connect("bob").conn
    bob.execute("SELECT queue.create('his'), queue.bind('his', 'orders.#')")
    root = db.connect("postgres").conn
    for call in "unbind('his', 'orders.#')", "bind('his', 'orders.x')":
        bob.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        bob.execute("SELECT count(*) FROM queue.queues")
        root.execute("UPDATE queue.queues SET owner = 'app' WHERE name = 'his'")
        raises(bob, "40001", f"SELECT queue.{call}")
        bob.execute("ROLLBACK")
        root.execute("UPDATE queue.queues SET owner = 'bob' WHERE name = 'his'")


def test_bound_while_it_becomes_one_that_runs_sql(db):
    """In a snapshot that does not show the binding it does not become one. A row that says otherwise publishes nothing."""
    for q in "mail", "log":
        db.create(q)
    db.conn.execute("SELECT queue.create_topic('orders'), queue.bind('log', 'orders.#')")
    other = db.connect().conn
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other.execute("SELECT count(*) FROM queue.bindings")
    db.conn.execute("SELECT queue.bind('mail', 'orders.#')")
    raises(other, "0A000", "SELECT queue.alter('mail', '{run}', '{sql}')")
    other.execute("ROLLBACK")
    root = db.connect("postgres").conn
    root.execute("SET session_replication_role = replica; UPDATE queue.queues SET run = 'sql' WHERE name = 'mail'")
    root.execute("SELECT queue._generate_lone(c) FROM queue.queues AS c WHERE name = 'mail'")
    assert [r[0] for r in publish(db.conn, "orders.x")] == ["log"]
    assert db.conn.execute("SELECT queue, active FROM queue.routes()").fetchall() == [("log", True), ("mail", False)]
    db.conn.execute("SELECT queue.alter('mail', '{}', '{}', '{run}')")
    assert [r[0] for r in publish(db.conn, "orders.x")] == ["mail", "log"]


def test_published_in_a_snapshot_of_before_it_ran_sql(db):
    """Who may PUBLISH has kept a snapshot in which the queue is bound: nothing of his becomes SQL."""
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders'), queue.bind('mail', 'orders.#'), queue.grant_topic('orders', '{publish}', '{bob}')")
    assert db.conn.execute("SELECT queue._routes_of('orders')").fetchone()[0] is not None
    bob = db.connect("bob").conn
    bob.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue.bindings")
    db.conn.execute("SELECT queue.unbind('mail', 'orders.#')")
    db.conn.execute("SELECT queue.alter('mail', '{run}', '{sql}')")
    raises(bob, "40001", "SELECT * FROM queue.publish('orders.x', '\"DROP TABLE x\"'::jsonb)")
    bob.execute("ROLLBACK")
    assert publish(bob, "orders.x") == [] and counts(db.conn, "mail") == [0]


def test_no_topic_of_this_number(db):
    """Nothing is bound to what somebody will make."""
    db.create("mail")
    raises(db.conn, "42704", "INSERT INTO queue._topic (what, topic, queue, pattern) VALUES ('bind', 77, 1, 'orders')")
    raises(db.conn, "42704", "INSERT INTO queue._topic (what, topic, queue, pattern) VALUES ('bind', NULL, 1, 'orders')")


def test_the_queue_is_given_away_or_dropped(db):
    db.create("mail")
    db.create("log")
    db.conn.execute("SELECT queue.create_topic('orders')")
    for q in "mail", "log":
        db.conn.execute("SELECT queue.bind(%s, 'orders')", (q,))
    root = db.connect("postgres").conn
    root.execute("UPDATE queue.queues SET owner = 'bob' WHERE name = 'log'")
    assert [r[0] for r in publish(db.conn, "orders")] == ["mail"]  # bob may not BIND
    db.conn.execute("SELECT queue.grant_topic('orders', '{bind}', '{bob}')")
    assert [r[0] for r in publish(db.conn, "orders")] == ["mail", "log"]
    db.conn.execute("SELECT queue.drop('mail')")
    assert [r[0] for r in publish(db.conn, "orders")] == ["log"]
    assert db.conn.execute("SELECT count(*) FROM queue.bindings").fetchone()[0] == 1
    db.conn.execute("SELECT queue.drop_topic('orders')")
    assert db.conn.execute("SELECT count(*) FROM queue.bindings").fetchone()[0] == 0
    raises(db.conn, "42704", "SELECT queue.publish('orders', '1')")
    db.conn.execute("SELECT queue.drop_topic('orders', true)")
    db.conn.execute("SELECT queue.create_topic('orders')")
    db.conn.execute("SELECT queue.create_topic('orders', true)")
    assert publish(db.conn, "orders") == []


def test_a_binding_counts_from_its_commit(db):
    db.create("mail")
    db.conn.execute("SELECT queue.create_topic('orders')")
    other = db.connect().conn
    with db.conn.transaction():
        db.conn.execute("SELECT queue.bind('mail', 'orders')")
        assert publish(other, "orders") == []
    assert len(publish(other, "orders")) == 1


def test_a_dump(db, cluster):
    """Topics, bindings and rights are in it; in the copy they do what they did."""
    for q in "mail", "next":
        db.create(q)
    db.conn.execute("SELECT queue.create_topic('orders')")
    db.conn.execute("SELECT queue.bind('mail', 'orders.#'), queue.bind('next', 'orders')")
    db.conn.execute("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    copy = cluster.createdb()
    text = subprocess.run([os.path.join(cluster.bin, "pg_dump"), "-d", cluster.dsn(db.name, "postgres")], capture_output=True, check=True).stdout
    done = subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", cluster.dsn(copy, "postgres")], input=text, capture_output=True)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(cluster.dsn(copy, "bob"), autocommit=True) as c:
        assert [r[0] for r in publish(c, "orders")] == ["mail", "next"]
    cluster.dropdb(copy)


# --- what most publications are: functions of the topic (route.sql) ---

ONE = "SELECT queue._publish_one_%d(%%s, %%s, %%s, %%s, %%s)"
MANY = "SELECT * FROM queue._publish_%d(%%s, %%s, %%s, %%s, %%s)"


class Routed:
    """A topic "orders" with queues that are bound, whose functions are right."""

    def __init__(self, db, **bound):
        self.db = db
        for queue in bound:
            if db.conn.execute("SELECT to_regclass(%s)", ("queue.q_" + queue,)).fetchone()[0] is None:
                db.create(queue)
        db.conn.execute("SELECT queue.create_topic('orders')")
        for queue, pattern in bound.items():
            db.conn.execute("SELECT queue.bind(%s, %s)", (queue, pattern))
        self.number = db.conn.execute("SELECT queue._routes_of('orders')").fetchone()[0]

    def look(self, conn=None):
        return (conn or self.db.conn).execute("SELECT queue._routes_of('orders')").fetchone()[0]

    def one(self, topic, payload="1", headers=None, priority=None, mandatory=False, conn=None):
        return (conn or self.db.conn).execute(ONE % self.number, (topic, payload, headers, priority, mandatory)).fetchone()[0]

    def many(self, topics, payloads, headers=None, priority=None, mandatory=False):
        return self.db.conn.execute(MANY % self.number, (topics, payloads, headers, priority, mandatory)).fetchall()


def everything(db, *queues):
    return [db.conn.execute(f"SELECT payload, headers, priority, state FROM queue.q_{q} ORDER BY id").fetchall() for q in queues]


@pytest.mark.parametrize("pattern", ["orders", "orders.#", "orders.*", "orders.a+b.#", "orders.#.paid", "orders.it's.*", "orders.\\d.*"])
@pytest.mark.parametrize("topic", ["orders", "orders.a", "orders.a+b.x", "orders.it's.x", "orders.1.x", "orders.paid", "orders.a.b.paid"])
def test_routes_are_as_the_trigger_has_them(db, pattern, topic):
    r = Routed(db, mail=pattern, log="orders.#")
    by_name = db.conn.execute("SELECT * FROM queue._publish_each(%s, '{\"a\": 1}', 3, false)", ([topic, "1"],)).fetchall()
    many = r.many([topic, topic], ["1", "2"], '{"a": 1}', 3)
    mixed = r.many([topic, "orders"], ["1", "2"], '{"a": 1}', 3)
    made = r.one(topic, "1", '{"a": 1}', 3)
    assert made[::2] == [row[0] for row in by_name] == [row[0] for row in many]
    assert [row[0] for row in mixed if 1 in row[2]] == made[::2]
    assert all(row[2] == [1, 2] for row in many)
    if made[0] == "mail":
        got = everything(db, "mail")[0]
        assert got[0] == got[1] == got[-1] == (1, {"a": 1, "topic": topic}, 3, "ready")


@pytest.mark.parametrize("word", ["@topic@", "@head@", "%s", "%1$s", "topic", "u.t", "said", "$1", "$body$"])
def test_words_that_routes_are_made_of(db, word):
    """Whatever stands in a pattern, or in WHEN, says nothing but itself, to those who publish something else, too."""
    r = Routed(db, mail="orders." + word, log="orders.#")
    db.conn.execute("SELECT queue.bind('mail', 'orders.when', jsonb_build_object('k', %s::text))", (word,))
    assert r.look() == r.number
    topics = ["orders." + word, "orders.when", "orders.topic", "orders.x"]
    hit = [i for i, topic in enumerate(topics, 1) if topic == "orders." + word]
    for headers, wanted in ((None, hit), (json.dumps({"k": word}), sorted({*hit, 2}))):
        rows = {row[0]: row[2] for row in r.many(topics, ["1"] * 4, headers)}
        assert rows == {"mail": wanted, "log": [1, 2, 3, 4]}
        for i, topic in enumerate(topics, 1):
            got = [r.one(topic, headers=headers)[::2], [row[0] for row in r.many([topic], ["1"], headers)]]
            assert got == [["mail", "log"] if i in wanted else ["log"]] * 2


def test_many_topics_at_once(db):
    r = Routed(db, mail="orders.eu.*", log="orders.#")
    rows = r.many(["orders.eu.a", "orders.us.a", "orders.eu.b"], ["1", "2", "3"])
    assert [(row[0], row[2], row[3]) for row in rows] == [("mail", [1, 3], [1, 2]), ("log", [1, 2, 3], [1, 2, 3])]
    assert [x[0] for x in everything(db, "mail")[0]] == [1, 3]
    assert [x[1]["topic"] for x in everything(db, "log")[0]] == ["orders.eu.a", "orders.us.a", "orders.eu.b"]


def test_when_and_mandatory_of_routes(db):
    r = Routed(db, mail="orders.#")
    db.conn.execute("SELECT queue.bind('mail', 'orders.#', '{\"k\": 1}')")
    assert r.look() == r.number
    assert r.one("orders") == [] and r.one("orders", headers='{"k": 1}') == ["mail", "1-1"]
    assert r.one("orders", mandatory=True) is None  # the long way says what is wrong
    assert r.many(["orders"], ["1"]) == []
    raises(db.conn, "42883", MANY % r.number, ["orders"], ["1"], None, None, True)
    assert len(r.many(["orders", "orders.x"], ["1", "2"], headers='{"k": 1}', mandatory=True)) == 1
    raises(db.conn, "22023", ONE % r.number, "orders", "1", "[]", None, False)


@pytest.mark.parametrize("topic", ["orders..x", "orders.*", "orders.", "other", "orders.a*", "ordersx", "x.orders", None])
def test_what_is_no_topic_of_it(db, topic):
    r = Routed(db, mail="orders.#")
    assert r.one(topic) is None
    raises(db.conn, "42883", MANY % r.number, [topic], ["1"], None, None, False)
    assert counts(db.conn, "mail") == [0]


CHANGES = {
    "bind": "SELECT queue.bind('other', 'orders.#')",
    "unbind": "SELECT queue.unbind('mail', 'orders.#')",
    "when": "SELECT queue.bind('mail', 'orders.#', '{\"k\": 1}')",
    "drop": "SELECT queue.drop('mail')",
    "runs sql": "SELECT queue.unbind('mail', 'orders.#'), queue.alter('mail', '{run}', '{sql}')",
    "given away": "UPDATE queue.queues SET owner = 'bob' WHERE name = 'mail'",
    "bind is revoked": "REVOKE REFERENCES ON queue.t_3 FROM app",
    "altered": "SELECT queue.alter('mail', '{lease}', '{7 min}')",
}


@pytest.mark.parametrize("what", CHANGES)
def test_stale_routes_do_nothing(db, what):
    """From the commit of the change on, and until then all is as it was."""
    db.create("mail")
    db.create("other")
    r = Routed(db, mail="orders.#")
    assert r.number == 3
    other = db.connect().conn
    root = db.connect("postgres").conn
    with root.transaction():
        root.execute(CHANGES[what])
        if what in ("bind", "unbind", "when", "bind is revoked"):  # the others lock the queue, or its table
            assert r.one("orders.x", conn=other) == ["mail", "1-1"]
    assert r.one("orders.x", conn=other) is None
    raises(db.conn, "42883", MANY % r.number, ["orders.x"], ["1"], None, None, False)
    before = [row[0] for row in db.conn.execute("SELECT queue, job FROM queue.publish('orders.x', '2', headers => '{\"k\": 1}')").fetchall()]
    assert r.look() == r.number
    assert (r.one("orders.x", headers='{"k": 1}') or [])[::2] == before
    assert [row[0] for row in r.many(["orders.x"], ["1"], '{"k": 1}')] == before


@pytest.mark.parametrize("isolation", ("READ COMMITTED", "REPEATABLE READ"))
@pytest.mark.parametrize("what", sorted(set(CHANGES) - {"bind"}))
def test_changed_between_two_queues_of_a_publication(db, what, isolation):
    """The first has its job by then, which the function cannot undo: its caller repeats it. An old snapshot may see nothing
    of the change."""
    db.create("first")
    r = Routed(db, first="orders.#", mail="orders.#")
    publisher, root = db.connect(), db.connect("postgres")
    root.rows("CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END'")
    root.rows("CREATE TRIGGER waits BEFORE INSERT ON queue.q_first FOR EACH ROW EXECUTE FUNCTION waits()")
    root.rows("SELECT pg_advisory_lock(1)")
    publisher.rows("BEGIN ISOLATION LEVEL " + isolation)
    publisher.rows("SELECT FROM queue.bindings")
    ran = publisher.beside(publisher.rows, "SELECT queue FROM queue.publish('orders.x', '1', mandatory => true)")
    db.until_blocked(publisher)
    root.rows(CHANGES[what].replace("queue.t_3", "queue.t_%s" % r.number))
    root.rows("SELECT pg_advisory_unlock(1)")
    if isolation == "REPEATABLE READ" and what in ("unbind", "when", "given away"):
        assert ran.result() == [("first",), ("mail",)]
        publisher.rows("ROLLBACK")
    else:
        assert ran.error_of("40001").message_hint == "Repeat the transaction."
        publisher.rows("ROLLBACK")
    after = {"altered": ["first", "mail"], "bind is revoked": []}.get(what, ["first"])
    assert publisher.column("SELECT queue FROM queue.publish('orders.x', '1'::jsonb)") == after
    assert counts(db.conn, "first") == [len(after[:1])]


def test_an_old_snapshot_and_routes(db):
    """What was bound since is not seen, so nothing is done by functions that know it; nor are they made anew there."""
    r = Routed(db, mail="orders.#")
    db.create("log")
    other = db.connect().conn
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue.bindings")
    db.conn.execute("SELECT queue.bind('log', 'orders.#')")
    assert r.one("orders", conn=other) == ["mail", "1-1"]
    assert r.look() == r.number
    assert (r.one("orders", conn=other) or ["mail"])[::2] == ["mail"]  # by the functions as they were; or not by them
    assert r.look(other) is None
    assert [row[0] for row in publish(other, "orders")] == ["mail"]
    other.execute("COMMIT")
    assert [row[0] for row in publish(other, "orders")] == ["mail", "log"]


def test_nobody_waits_for_who_looks_at_routes(db):
    r = Routed(db, mail="orders.#")
    other = db.connect().conn
    with db.conn.transaction():
        db.conn.execute("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
        other.execute("SET lock_timeout = '5 s'")
        assert r.look(other) is None


def test_rights_on_routes(db):
    r = Routed(db, mail="orders.#")
    bob, mallory = db.connect("bob").conn, db.connect("mallory").conn
    for conn in bob, mallory:
        raises(conn, "42501", ONE % r.number, "orders", "1", None, None, False)
        raises(conn, "42501", MANY % r.number, ["orders"], ["1"], None, None, False)
        raises(conn, "42501", "SELECT queue._routes_of('orders')")
    db.conn.execute("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    assert r.one("orders", conn=bob) == ["mail", "1-1"]
    assert r.look(bob) == r.number
    db.create("log")
    db.conn.execute("SELECT queue.bind('log', 'orders')")
    assert r.look(bob) == r.number  # made anew by him, and the rights on them stay
    raises(mallory, "42501", ONE % r.number, "orders", "1", None, None, False)
    raises(bob, "42501", "SELECT queue._generate_routes(3)")
    db.conn.execute("SELECT queue.revoke_topic('orders', '{publish}', '{bob}')")
    raises(bob, "42501", ONE % r.number, "orders", "1", None, None, False)


def test_names_that_a_publisher_puts_before_ours(db):
    """They run with the rights of who has installed the schema: nothing is looked up by the caller's search_path."""
    r = Routed(db, mail="orders.#", log="orders.eu.*", next="orders.x")
    db.conn.execute("SELECT queue.bind('next', 'orders.x', '{\"a\": 1}')")
    assert r.look() == r.number
    db.conn.execute("SELECT queue.grant_topic('orders', '{publish}', '{bob}')")
    db.connect("postgres").conn.execute("CREATE SCHEMA evil AUTHORIZATION bob")
    bob = db.connect("bob").conn
    bob.execute("CREATE TABLE evil.seen (what text)")
    for op, a, b, result in (("=", "jsonb", "jsonb", "bool"), ("=", "text", "text", "bool"), ("=", "int4", "int4", "bool"), ("~", "text", "text", "bool"),
                             ("||", "jsonb", "jsonb", "jsonb"), ("||", "text[]", "text[]", "text[]"), ("@>", "jsonb", "jsonb", "bool"),
                             ("=", "int8[]", "int8[]", "bool"), ("=", "int4", "int8", "bool")):
        name = "f%d" % bob.execute("SELECT count(*) FROM pg_operator WHERE oprnamespace = 'evil'::regnamespace").fetchone()[0]
        bob.execute(f"CREATE FUNCTION evil.{name}({a}, {b}) RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$")
        bob.execute(f"CREATE OPERATOR evil.{op} (LEFTARG = {a}, RIGHTARG = {b}, FUNCTION = evil.{name})")
    for call in "has_table_privilege(oid, oid, text)", "jsonb_build_object(text, text)", "cardinality(text[])", "to_regproc(text)", "concat(text, int8)":
        bob.execute(f"CREATE FUNCTION evil.{call} RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$")
    bob.execute("CREATE DOMAIN evil.jsonb AS text; CREATE DOMAIN evil.text AS pg_catalog.text CHECK (value <> 'orders.x'); CREATE DOMAIN evil.int8 AS int4")
    bob.execute("SET search_path = evil, pg_catalog")
    assert r.one("orders.x", headers='{"a": 1}', conn=bob) == ["mail", "1-1", "next", "3-1"]
    assert bob.execute("SELECT * FROM queue._publish_%d('{orders.eu.x}', '{1}', NULL, NULL, false)" % r.number).rowcount == 2


def test_more_queues_than_routes_have(db):
    names = ["q%d" % i for i in range(31)]
    for name in names:
        db.create(name)
    r = Routed(db, **dict.fromkeys(names, "orders"))
    assert r.number is None
    assert len(publish(db.conn, "orders")) == 31
    db.conn.execute("SELECT queue.unbind('q3', 'orders')")
    assert r.look() == 32
    assert len(publish(db.conn, "orders")) == 30


def test_bytes_and_text_by_routes(db):
    for name, kind in ("mail", "text"), ("log", "bytea"):
        db.create(name, payload=kind)
    r = Routed(db, mail="orders", log="orders")
    assert r.one("orders", "it's") == ["mail", "1-1", "log", "2-1"]
    assert len(r.many(["orders", "orders"], ["\\x41", "b"])) == 2
    assert [row[0] for row in everything(db, "log")[0]] == [b"it's", b"A", b"b"]
