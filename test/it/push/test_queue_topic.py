"""Topics: PUBLISH goes to each queue that is bound, wakes who waits there, here and at other proxies."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import BOOL, JSONB, TEXT, error, parked, q, qproxy, results, send_all, tag  # noqa: F401
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


# --- merged ---

def held_up(direct):
    """Who holds the queue's table, so that what is pushed meanwhile gathers."""
    return direct.execute("BEGIN; LOCK TABLE queue.q_mail IN SHARE MODE")


def merged(q, n=3):
    """Publishes until the proxy knows the functions of the topic."""
    for _ in range(n + 3):
        tag(q, "QUEUE PUBLISH 'orders.warm' '0'")
    number = q.rows("SELECT number FROM queue.topics WHERE name = 'orders'")[0]["number"]
    wait_for(lambda: tag(q, "QUEUE PUBLISH 'orders.warm' '0'") and [r for r in q.rows(
        "SELECT query FROM pg_stat_activity WHERE query ~ '_publish_(one_)?%s[(]' AND pid <> pg_backend_pid()" % number)],
             "publications by the functions of the topic")
    q.rows("DELETE FROM queue.q_mail RETURNING 1")


def of_mail(q):
    return [(int(r["payload"]), r["headers"], int(r["priority"])) for r in q.rows(
        "SELECT payload, headers->>'topic' AS headers, priority FROM queue.q_mail ORDER BY payload::text::int")]


@pytest.fixture
def direct_(direct):
    direct.autocommit = True
    return direct


@pytest.mark.parametrize("known", [False, True])
def test_many_at_once_are_few_transactions(qproxy, db, two, direct_, known):
    if known:
        merged(two)
    before = int(two.rows("SELECT count(*) FROM queue.q_mail")[0]["count"])
    held_up(direct_)
    wires = send_all(qproxy, db, ["QUEUE PUBLISH 'orders.%d' '%d' RETURNING QUEUE, JOB" % (n, n) for n in range(1, 31)])
    wait_for(lambda: two.rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'publish'"), "who waits")
    direct_.execute("ROLLBACK")
    jobs = []
    for w in wires:
        messages = w.until("Z")
        assert [m.tag for m in messages if m.type == "C"] == ["INSERT 0 1"]
        jobs += [m.text_row for m in messages if m.type == "D"]
    assert {j[0] for j in jobs} == {"mail"} and len({j[1] for j in jobs}) == 30
    rows = two.rows("SELECT id, payload, headers->>'topic' AS topic FROM queue.q_mail WHERE payload::text <> '0'")
    assert sorted((int(r["payload"]), r["topic"]) for r in rows) == [(n, "orders.%d" % n) for n in range(1, 31)]
    number = jobs[0][1].split("-")[0]
    # each was told its own
    assert [j[1] for j in jobs] == ["%s-%s" % (number, r["id"]) for r in sorted(rows, key=lambda r: int(r["payload"]))]
    assert before == 0 and len(two.rows("SELECT DISTINCT xmin::text FROM queue.q_mail WHERE payload::text <> '0'")) < 8


def test_the_guilty_one_is_alone(qproxy, db, two, direct_):
    merged(two)
    held_up(direct_)
    wires = send_all(qproxy, db, ["QUEUE PUBLISH 'orders.x' '%s'" % (n if n % 5 else "bad") for n in range(1, 21)])
    wires += send_all(qproxy, db, ["QUEUE PUBLISH 'orders..x' '1'", "QUEUE PUBLISH 'orders.x' '1' HEADERS '[]'", "QUEUE PUBLISH 'orders.x' '77', '78'"])
    wait_for(lambda: two.rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'publish'"), "who waits")
    direct_.execute("ROLLBACK")
    got = results(wires)
    assert got == ["INSERT 0 1" if n % 5 else "22P02" for n in range(1, 21)] + ["22023", "22023", "INSERT 0 2"]
    assert [p for p, _, _ in of_mail(two)] == [n for n in range(1, 21) if n % 5] + [77, 78]


def test_mandatory_of_several(qproxy, db, two, direct_):
    tag(two, "QUEUE UNBIND mail FROM 'orders.#'")
    tag(two, "QUEUE BIND mail TO 'orders.a.#'")
    tag(two, "QUEUE BIND mail TO 'orders.warm'")
    merged(two)
    held_up(direct_)
    wires = send_all(qproxy, db, ["QUEUE PUBLISH 'orders.%s' '1' MANDATORY" % word for word in ("a", "b", "a.x", "b", "a.y")])
    wires += send_all(qproxy, db, ["QUEUE PUBLISH 'orders.%s' '1'" % word for word in ("a", "b", "a.x")])
    wait_for(lambda: two.rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'publish'"), "who waits")
    direct_.execute("ROLLBACK")
    assert results(wires) == ["INSERT 0 1", "QB007", "INSERT 0 1", "QB007", "INSERT 0 1", "INSERT 0 1", "INSERT 0 0", "INSERT 0 1"]


def test_full_queues_and_merged_publications(two):
    merged(two)
    tag(two, "QUEUE ALTER mail SET (max_length = 2)")
    got = [tag(two, "QUEUE PUBLISH 'orders.x' '%d'" % n) for n in range(2)]
    assert got == ["INSERT 0 1"] * 2
    assert error(two, "QUEUE PUBLISH 'orders.x' '3'").sqlstate == "QB004"
    tag(two, "QUEUE ALTER mail SET (overflow = drop_oldest)")
    assert tag(two, "QUEUE PUBLISH 'orders.x' '4'") == "INSERT 0 1"
    tag(two, "QUEUE PAUSE mail PUSH")
    assert error(two, "QUEUE PUBLISH 'orders.x' '5'").sqlstate == "QB006"
    tag(two, "QUEUE RESUME mail")
    assert tag(two, "QUEUE PUBLISH 'orders.x' '6'") == "INSERT 0 1"


def test_what_is_bound_elsewhere_counts_at_once(qbouncer, db):
    """The other proxy has the topic's functions of before; each change is seen by the publication behind it."""
    one, other = qbouncer(), qbouncer()
    with one.wire(db) as c, other.wire(db) as w:
        for sql in ("QUEUE CREATE mail", "QUEUE CREATE log", "QUEUE CREATE events WITH (kind = stream)", "QUEUE CREATE TOPIC orders",
                    "QUEUE BIND mail TO 'orders.#'"):
            tag(c, sql)
        for proxy in c, w:
            merged(proxy)
        for n in range(6):
            for sql, tags in (("QUEUE BIND log TO 'orders.*'", 2), ("QUEUE BIND events TO 'orders.x'", 3), ("QUEUE UNBIND mail FROM 'orders.#'", 2),
                              ("QUEUE BIND log TO 'orders.*' WHEN headers @> '{\"k\": 1}'", 1), ("QUEUE DROP log", 1), ("QUEUE UNBIND events FROM 'orders.x'", 0),
                              ("QUEUE CREATE log", 0), ("QUEUE BIND mail TO 'orders.#'", 1)):
                tag((c, w)[n % 2], sql)
                assert tag((w, c)[n % 2], "QUEUE PUBLISH 'orders.x' '1'") == "INSERT 0 %d" % tags, sql
                assert tag((c, w)[n % 2], "QUEUE PUBLISH 'orders.x' '1', '2'") == "INSERT 0 %d" % (2 * tags), sql
                tag(w, "BEGIN; SELECT 1")
                assert tag(w, "QUEUE PUBLISH 'orders.x' '1'") == "INSERT 0 %d" % tags, sql
                tag(w, "COMMIT")
        tag(c, "QUEUE DROP TOPIC orders")
        assert error(w, "QUEUE PUBLISH 'orders.x' '1'").sqlstate == "42704"
        tag(c, "QUEUE CREATE TOPIC orders")
        assert tag(w, "QUEUE PUBLISH 'orders.x' '1'") == "INSERT 0 0"


def test_a_publisher_alone(qproxy, db, two, cluster):
    """He needs PUBLISH and nothing else, merged or not; when it is taken away he has nothing."""
    tag(two, "QUEUE GRANT PUBLISH ON TOPIC orders TO other")
    with qproxy.wire(db, user="other") as w:
        for _ in range(10):
            assert tag(w, "QUEUE PUBLISH 'orders.x' '1'") == "INSERT 0 1"
        assert error(w, "QUEUE PUSH mail '1'").sqlstate == "42501"
        assert error(w, "QUEUE PEEK mail").sqlstate == "42501"
        tag(two, "QUEUE REVOKE PUBLISH ON TOPIC orders FROM other")
        assert error(w, "QUEUE PUBLISH 'orders.x' '1'").sqlstate == "42501"
    assert tag(two, "QUEUE PUBLISH 'orders.x' '1'") == "INSERT 0 1"


def test_its_server_is_killed(qproxy, db, two, direct_):
    """Nobody is told of what was not committed; and nothing is there twice."""
    merged(two)
    held_up(direct_)
    wires = send_all(qproxy, db, ["QUEUE PUBLISH 'orders.x' '%d'" % n for n in range(1, 9)])
    wait_for(lambda: two.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'publish'"), "who waits")
    direct_.execute("ROLLBACK")
    got = results(wires)
    assert set(got) <= {"INSERT 0 1", "57P01", "08006"} and len(set(got) & {"57P01", "08006"}) == 1
    assert [p for p, _, _ in of_mail(two)] == [n for n, tag_ in enumerate(got, 1) if tag_ == "INSERT 0 1"]


def test_who_waits_is_woken_by_merged_ones(qproxy, db, two):
    merged(two)
    with qproxy.wire(db) as w:
        for n in range(3):
            w.query("QUEUE TAKE mail WAIT '60s'")
            parked(w)
            tag(two, "QUEUE PUBLISH 'orders.x' '7'")
            assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["7"]


def until_blocked(direct):
    """Not by pg_stat_activity, which stays as it was first seen in a transaction."""
    wait_for(lambda: direct.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0], "one that waits for a lock")


@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("more", ["", " KEY 'k'"])
@pytest.mark.parametrize("again", [1, 3])
def test_beside_a_drop(q, qproxy, db, direct, kind, more, again):
    """What is bound no more when it has its turn is passed over: nobody has to repeat a PUBLISH that is merged with others."""
    tag(q, "QUEUE CREATE TOPIC orders")
    with qproxy.wire(db) as other, direct.cursor() as root:
        for n in range(again):
            tag(q, "QUEUE CREATE next" + (" WITH (kind = stream)" if kind == "stream" else ""))
            tag(q, "QUEUE BIND next TO orders")
            assert tag(q, "QUEUE PUBLISH orders '1'" + (" KEY 'o%d'" % n if more else "")) == "INSERT 0 1"
            root.execute("BEGIN")
            root.execute("SELECT queue.drop('next')")
            other.query("QUEUE PUBLISH orders '2'" + more)
            until_blocked(direct)
            root.execute("COMMIT")
            got = other.until("Z")
            assert [m.tag if m.type == "C" else m.sqlstate for m in got if m.type in "CE"] == ["42P01" if more else "INSERT 0 0"], got
    assert error(q, "QUEUE PUBLISH orders '3' MANDATORY").sqlstate == "QB007"


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_a_transaction_beside_a_drop(q, qproxy, db, direct, kind):
    tag(q, "QUEUE CREATE TOPIC orders")
    tag(q, "QUEUE CREATE next" + (" WITH (kind = stream)" if kind == "stream" else ""))
    tag(q, "QUEUE BIND next TO orders")
    with qproxy.wire(db) as other, direct.cursor() as root:
        root.execute("BEGIN")
        root.execute("SELECT queue.drop('next')")
        tag(other, "BEGIN")
        other.query("QUEUE PUBLISH orders '2'")
        until_blocked(direct)
        root.execute("COMMIT")
        (e,) = [m.fields for m in other.until("Z") if m.type == "E"]
        assert (e["C"], e["M"]) == ("42P01", 'queue "next" does not exist' if kind == "queue" else "the stream does not exist any more") and e["H"]
        tag(other, "ROLLBACK")
        assert tag(other, "QUEUE PUBLISH orders '2'") == "INSERT 0 0"
