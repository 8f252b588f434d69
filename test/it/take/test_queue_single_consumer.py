"""single_consumer: all jobs of a queue go to one connection until it is gone."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, parked, q, shared, shared_db, shared_proxy, tag, woken  # noqa: F401


@pytest.fixture
def one(q):
    tag(q, "QUEUE CREATE one WITH (single_consumer = true)")
    return q


def take(c, more="", verb="TAKE"):
    return [row["payload"] for row in c.rows("QUEUE %s one %s" % (verb, more))]


def waits(proxy, db, more="", verb="TAKE"):
    w = proxy.wire(db)
    w.query("QUEUE %s one WAIT '60s' %s" % (verb, more))
    parked(w)
    return w


def push(c, *payloads):
    tag(c, "QUEUE PUSH one %s" % ", ".join("'%s'" % p for p in payloads))


def test_the_first_gets_all(one, qproxy, db):
    push(one, "1", "2", "3")
    other = qproxy.wire(db)
    assert take(one) == ["1"] and take(other) == [] and take(other, "LIMIT 9", "POP") == []
    assert take(one, "", "POP") == ["2"] and take(one, "LIMIT 5") == ["3"]
    one.close()
    assert wait_for(lambda: take(other, "LIMIT 9"), "the next one follows") == ["1", "3"]


@pytest.mark.parametrize("verb", ["TAKE", "POP"])
def test_others_wait(one, qproxy, db, verb):
    first = waits(qproxy, db, "AS 'first'" if verb == "TAKE" else "", verb)
    second, third = waits(qproxy, db, verb=verb), waits(qproxy, db, verb=verb)
    for n in range(5):
        push(one, str(n))
        job = woken(first)
        assert job["payload"] == str(n)
        if verb == "TAKE":
            tag(first, "QUEUE DONE '%s'" % job["token"])
        first.query("QUEUE %s one WAIT '60s'%s" % (verb, " AS 'first'" if verb == "TAKE" else ""))
        parked(first)
    row = next(row for row in one.rows("QUEUE LIST") if row["queue"] == "one")
    assert row["single_consumer"] == "t" and "a connection of proxy " in row["consumer"]
    assert verb == "POP" or row["consumer"].startswith('"first", ')
    first.close()
    for n in range(5, 8):
        push(one, str(n))
        assert woken(second)["payload"] == str(n)
        second.query("QUEUE %s one WAIT '60s'" % verb)
        parked(second)
    second.close()
    push(one, "8")
    assert woken(third)["payload"] == ("8" if verb == "POP" else "5")


def test_while_it_works(one, qproxy, db):
    push(one, "1", "2")
    assert take(one) == ["1"]
    other = waits(qproxy, db)
    push(one, "3")
    assert take(one, "LIMIT 9") == ["2", "3"]
    push(one, "4")
    one.close()
    assert woken(other)["payload"] in ("1", "2", "3", "4")


def test_in_a_transaction_that_is_rolled_back(one, qproxy, db):
    push(one, "1", "2")
    tag(one, "BEGIN")
    assert take(one) == ["1"]
    tag(one, "ROLLBACK")
    assert wait_for(lambda: take(one, "LIMIT 9"), "it is given back")[0] in ("1", "2")
    assert take(qproxy.wire(db)) == []


@pytest.mark.parametrize("end", ["close", "kill", "stop"])
def test_two_proxies(one, qproxy, db, qbouncer, end):
    there = qbouncer(queue_heartbeat="20ms")
    far = waits(there, db)
    here = waits(qproxy, db)
    for n in range(3):
        push(one, str(n))
        assert woken(far)["payload"] == str(n)
        far.query("QUEUE TAKE one WAIT '60s'")
        parked(far)
    if end == "close":
        far.close()
    elif end == "kill":
        there.kill()
    else:
        far.close()
        there.stop()
    push(one, "3")
    assert woken(here)["payload"] in "0123"


def test_pushed_past_the_proxy(one, qproxy, db, shared):
    first, second = waits(qproxy, db), waits(qproxy, db)
    shared.direct.execute("SELECT queue.push('one', '5'::jsonb)")
    assert woken(first)["payload"] == "5"
    with psycopg.connect(shared.cluster.dsn(db), autocommit=True) as conn:
        assert conn.execute("SELECT * FROM queue.take('one')").fetchall() == []
    second.close()


def test_a_session_of_plain_sql(one, qproxy, db, shared):
    conn = psycopg.connect(shared.cluster.dsn(db, "app"), autocommit=True)
    push(one, "1", "2")
    assert len(conn.execute("SELECT * FROM queue.take('one')").fetchall()) == 1
    here = waits(qproxy, db)
    conn.close()
    assert woken(here)["payload"] == "2"


def test_becomes_one_and_is_none_any_more(q, qproxy, db):
    tag(q, "QUEUE CREATE one")
    them = {name: waits(qproxy, db, "AS '%s'" % name) for name in "ab"}
    tag(q, "QUEUE ALTER one SET (single_consumer = true)")
    who = wait_for(lambda: [r["consumer"] for r in q.rows("QUEUE LIST") if r["queue"] == "one"][0], "one of them is it")[1]
    it, other = them.pop(who), them.popitem()[1]
    push(q, "1")
    job = woken(it)
    it.query("QUEUE DONE '%s'" % job["token"])
    it.until()
    push(q, "2")
    assert take(it) == ["2"]
    tag(q, "QUEUE ALTER one RESET (single_consumer)")
    push(q, "3")
    assert woken(other)["payload"] == "3"


@pytest.mark.parametrize("verb", ["TAKE", "POP"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_is_none_any_more_while_a_take_waits(one, qproxy, db, shared, qbouncer, verb, known):
    """The take has begun as that of a single consumer, and waits behind the ALTER."""
    proxy = qproxy if known else qbouncer()
    push(one, "1", "2")
    with proxy.wire(db) as taker, psycopg.connect(shared.cluster.dsn(db, "app")) as conn:
        if known:
            assert take(taker) == ["1"]
        conn.execute("SELECT queue.alter('one', '{}', '{}', '{single_consumer}')")
        taker.query("QUEUE %s one" % verb)
        wait_for(lambda: shared.direct.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                               " AND datname = current_database()").fetchall(), "the take to wait")
        conn.commit()
        assert woken(taker)["payload"] == ("2" if known else "1")


def test_given_back_while_the_queue_of_another_job_is_dropped(one, qproxy, db, shared):
    """The jobs of one connection are given back together: those of the queue that stays, too."""
    tag(one, "QUEUE CREATE other")
    tag(one, "QUEUE PUSH other '1'")
    push(one, "2")
    with qproxy.wire(db) as taker, psycopg.connect(shared.cluster.dsn(db, "app")) as conn:
        assert take(taker) == ["2"] and len(taker.rows("QUEUE TAKE other")) == 1
        conn.execute("SELECT queue.drop('one')")
        taker.sock.close()
        wait_for(lambda: shared.direct.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                               " AND datname = current_database() AND query LIKE '%give_back%'").fetchall(),
                 "it to be given back")  # fmt: skip
        conn.commit()
    assert wait_for(lambda: one.rows("QUEUE TAKE other"), "the other one")


@pytest.mark.parametrize("sql", ["TAKE one, mail", "TAKE mail, one", "POP one, mail", "TAKE one, mail GROUPED", "TAKE one WHERE (true)"])
def test_refused(one, sql):
    e = error(one, "QUEUE " + sql)
    assert e.sqlstate == "0A000" and e.fields["H"]


def test_then_take(one, qproxy, db):
    push(one, "1", "2")
    job = one.rows("QUEUE TAKE one")[0]
    assert [j["payload"] for j in one.rows("QUEUE DONE '%s' THEN TAKE" % job["token"])] == ["2"]


def test_text(one, qproxy, db):
    tag(one, "QUEUE CREATE words WITH (single_consumer = on, payload = text)")
    tag(one, "QUEUE PUSH words 'a', 'b'")
    assert [j["payload"] for j in one.rows("QUEUE TAKE words")] == ["a"]
    assert qproxy.wire(db).rows("QUEUE TAKE words") == []


def test_the_servers_are_closed(one, qproxy, db):
    first, other = waits(qproxy, db), waits(qproxy, db)
    for n in range(3):
        qproxy.console("RECONNECT")
        push(one, str(n))
        assert woken(first)["payload"] == str(n)
        first.query("QUEUE TAKE one WAIT '60s'")
        parked(first)
    assert take(one) == []
    other.close()


def test_the_next_one_finds_what_is_given_back(one, qproxy, db, shared):
    """Not what is behind it, as long as the end of the consumer waits for somebody else."""
    push(one, "1", "2")
    assert take(one) == ["1"]
    other = qproxy.wire(db)
    other.query("QUEUE TAKE one LIMIT 2 WAIT '60s'")
    parked(other)
    with psycopg.connect(shared.cluster.dsn(db)) as conn:
        conn.execute("SELECT FROM queue.q_one WHERE state = 'leased' FOR UPDATE")
        one.sock.close()
        wait_for(lambda: shared.direct.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                               " AND datname = current_database() AND query LIKE '%give_back%'").fetchall(),
                 "it to be given back")  # fmt: skip
        parked(*[other] * 20)
    assert [m.text_row[4] for m in other.until("Z") if m.type == "D"] == ["1", "2"]


@pytest.mark.parametrize("how", ["GROUPED", "limited", "GROUPED limited"])
def test_lists_and_limits(one, qproxy, db, qbouncer, how):
    """Of one connection, also beside another proxy; the next one follows, and gets what the limits allow."""
    grouped = " GROUPED" if "GROUPED" in how else ""
    if "limited" in how:
        tag(one, "QUEUE ALTER one SET (max_running = 2, rate = '100/s burst 100')")
    for n in range(4):
        tag(one, "QUEUE PUSH one '%d'%s" % (n, " GROUP 'g'" if grouped else ""))
    sql = "QUEUE TAKE one%s LIMIT 3" % grouped
    first = [r["payload"] for r in one.rows(sql)]
    assert first == (["0", "1"] if "limited" in how else ["0", "1", "2"])
    other = qbouncer()
    with qproxy.wire(db) as b, other.wire(db) as c:
        assert b.rows(sql) == [] == c.rows(sql)
        b.query(sql + " WAIT '60s'")
        parked(b)
        one.sock.close()
        got = [m.text_row[4] for m in b.until("Z") if m.type == "D"]
        # with a connection that is gone its jobs are given back
        assert set(got) <= set("0123") and 1 <= len(got) <= (2 if "limited" in how else 3)
        assert c.rows(sql) == []
