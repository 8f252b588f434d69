"""single_consumer: all jobs go to one connection until it is gone."""

import pytest

CLASS = 1902276469
ONE, TWO = "00000000000000a1", "00000000000000a2"


@pytest.fixture
def q(db):
    db.create("q", single_consumer="true")
    db.push("q", *[str(n) for n in range(9)])
    return db


def ask(session, token, proxy=77, pop=False, number=1):
    """As a proxy does: the jobs, or whose the queue is."""
    with session.conn.transaction():
        session.rows("SELECT set_config('qbouncer.consumer', %s, true), set_config('qbouncer.seed', '5', true),"
                     "set_config('qbouncer.proxy', %s, true)", "%s %s %s" % (token, proxy, number), str(proxy))
        row = session.rows("SELECT id, policy FROM queue._take_alone_jsonb(ARRAY['q'], 1, NULL, 'w', %s)", pop)[0]
        return row[0] if row[0] is not None else row[1]


def proxy(db, number):
    session = db.connect()
    session.rows("SELECT pg_advisory_lock_shared(%s, %s)", CLASS, number)
    return session


def take(session):
    return session.column("SELECT id FROM queue.take('q')")


def gone(db, seconds):
    db.rows("UPDATE queue.n1_consumer SET gone = gone - %s * interval '1 s'", seconds)


def test_of_one_proxy(q):
    proxy(q, 77)
    assert ask(q, ONE) == 1
    assert ask(q, TWO) == "77 " + ONE
    assert ask(q, ONE) == 2 and ask(q, ONE, pop=True) == 3
    assert take(q) == []
    assert q.column("SELECT * FROM queue._give_back(%s, '', false)", ["1-0-" + TWO]) == []
    assert q.column("SELECT * FROM queue._give_back(%s, '', false)", ["1-0-" + ONE]) == ["q"]
    assert ask(q, TWO) == 4 and ask(q, ONE) == "77 " + TWO


def test_a_proxy_that_is_gone(q):
    one = proxy(q, 77)
    assert ask(q, ONE) == 1
    one.conn.close()
    while q.value("SELECT count(*) FROM queue.proxies"):
        pass
    assert ask(q, TWO, 78) == "77 " + ONE
    gone(q, 1)
    assert ask(q, TWO, 78) == "77 " + ONE
    # it comes back
    assert ask(q, ONE) == 2 and q.value("SELECT gone FROM queue.n1_consumer") is None
    assert ask(q, TWO, 78) == "77 " + ONE
    again = proxy(q, 77)
    assert ask(q, TWO, 78) == "77 " + ONE and q.value("SELECT gone FROM queue.n1_consumer") is None
    again.conn.close()
    while q.value("SELECT count(*) FROM queue.proxies"):
        pass
    assert ask(q, TWO, 78) == "77 " + ONE
    gone(q, 9)
    assert ask(q, TWO, 78) == 3
    proxy(q, 78)
    assert ask(q, ONE) == "78 " + TWO


def test_another_number_of_the_same(q):
    proxy(q, 77)
    assert ask(q, ONE) == 1 and ask(q, ONE, 99) == 2
    assert q.value("SELECT proxy FROM queue.n1_consumer") == 99


def test_sessions_of_plain_sql(q):
    one, two = q.connect(), q.connect()
    assert take(one) == [1] and take(two) == [] and take(one) == [2]
    assert two.rows("SELECT * FROM queue.pop('q')") == []
    pid = one.pid
    one.conn.close()
    while q.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid):
        pass
    assert take(two) == [3] and take(q) == []


def test_nobody_follows_while_it_takes(q):
    one, two = q.connect(), q.connect()
    with one.conn.transaction():
        assert take(one) == [1]
        assert take(two) == []
    assert take(two) == [] and take(one) == [2]
    with two.conn.transaction():
        assert take(two) == []
        assert take(one) == [3]
    with one.conn.transaction():
        assert take(one) == [4]
        q.rows("SET lock_timeout = '100 ms'")
        q.fails("55P03", "UPDATE queue.n1_consumer SET pid = 1, token = 'pid 1'")
    q.rows("UPDATE queue.n1_consumer SET pid = 1, token = 'pid 1'")
    assert take(two) == [5]


def test_a_proxy_that_does_not_know(q):
    q.fails("QBONE", "SELECT * FROM (SELECT set_config('qbouncer.seed', '5', true)) AS s, queue._take(ARRAY['q'], 1, NULL, NULL, s IS NULL)")
    with pytest.raises(Exception) as caught:
        ask(q, ONE, number=2)
    assert caught.value.sqlstate == "QBONE"


def test_nothing_is_handed_over(q):
    q.rows("DELETE FROM queue.q_q")
    rows = q.rows("SELECT h.id, h.token FROM queue.queues AS c, queue._hand_1(c, ARRAY['5'], 0, ARRAY[7], ARRAY[NULL::text],"
                  "ARRAY['w'], 0, '{}', '{}', 0) AS h")
    assert [token for _, token in rows] == [None]
    q.rows("SELECT h.id FROM queue.queues AS c, queue._hand_keys_1(c, ARRAY['5', 'k', NULL], 0, ARRAY[7], ARRAY[NULL::text],"
           "ARRAY['w'], 0, '{}', '{}', 0, 'ignore', true) AS h")
    assert q.column("SELECT state FROM queue.q_q") == ["ready", "ready"]


def test_on_and_off(q):
    assert take(q) == [1] and take(q.connect()) == []
    assert q.row("SELECT single_consumer, consumer LIKE 'process %' FROM queue.list()") == (True, True)
    for _ in range(2):
        q.rows("SELECT queue.alter('q', reset_names => '{single_consumer}')")
        assert take(q.connect()) != []
        assert q.value("SELECT to_regclass('queue.n1_consumer')") is None
        q.rows("SELECT queue.alter('q', '{single_consumer}', '{on}')")
        assert q.value("SELECT consumer FROM queue.list()") is None
        assert take(q) != [] and take(q.connect()) == []
    q.rows("SELECT queue.drop('q')")
    assert q.rows("SELECT FROM pg_class WHERE relname LIKE 'n1%'") == []
    assert q.rows("SELECT FROM pg_proc WHERE pronamespace = 'queue'::regnamespace AND proname LIKE '%\\_1'") == []


def lot(session):
    return session.column("SELECT id FROM queue.take('q', 9, grouped => true)")


@pytest.mark.parametrize("first", ["consumer", "limits", "together"])
def test_limits(q, first):
    """Whichever comes first, and goes first."""
    if first == "consumer":
        q.rows("SELECT queue.alter('q', '{max_running,rate}', '{3,100/d burst 100}')")
    else:
        q.rows("SELECT queue.alter('q', '{}', '{}', '{single_consumer}')")
        if first == "limits":
            q.rows("SELECT queue.alter('q', '{max_running,rate}', '{3,100/d burst 100}')")
            q.rows("SELECT queue.alter('q', '{single_consumer}', '{true}')")
        else:
            q.rows("SELECT queue.alter('q', '{single_consumer,max_running}', '{true,3}')")
    other = q.connect()
    assert q.column("SELECT id FROM queue.take('q', 9)") == [1, 2, 3]
    assert take(other) == [] == take(q)
    q.rows("SELECT queue.cancel('9', 'q')")
    q.rows("SELECT queue.done(token) FROM (SELECT '1-' || id || '-' || token AS token FROM queue.q_q WHERE id = 1) t")
    assert take(other) == [] and take(q) == [4]
    q.rows("SELECT queue.alter('q', '{max_running}', '{4}')")
    assert take(other) == [] and take(q) == [5] and take(q) == []
    q.rows("SELECT queue.alter('q', '{}', '{}', %s)", ["single_consumer"] if first == "consumer" else ["max_running", "rate"])
    if first == "consumer":
        assert take(other) == [] and q.rows("SELECT to_regclass('queue.n1_consumer')") == [(None,)]
        q.rows("SELECT queue.alter('q', '{}', '{}', '{max_running,rate}')")
        assert take(other) == [6]
    else:
        assert take(other) == [] and take(q) == [6] and q.value("SELECT to_regclass('queue.n1_gate')") is None
    q.rows("SELECT queue.drop('q')")
    assert q.rows("SELECT FROM pg_class WHERE relname LIKE 'n1%%'") == []
    assert q.rows("SELECT FROM pg_proc WHERE pronamespace = 'queue'::regnamespace AND proname LIKE '%%\\_1'") == []


def test_both_are_dropped(db):
    db.create("q", single_consumer="true", max_running="3")
    db.rows("SELECT queue.drop('q')")
    assert db.rows("SELECT FROM pg_class WHERE relname LIKE 'n1%%'") == []
    assert db.rows("SELECT FROM pg_proc WHERE pronamespace = 'queue'::regnamespace AND proname LIKE '%%\\_1'") == []


def test_limits_of_groups(db):
    db.create("q", single_consumer="true", max_running_per_group="none", fair="group")
    db.rows("SELECT queue.push('q', '1', \"group\" => 'g' || n / 3) FROM generate_series(0, 5) AS n")
    assert db.column("SELECT id FROM queue.take('q', 4) ORDER BY id") == [1, 2, 4, 5]
    assert take(db.connect()) == []
    db.fails("22023", "SELECT queue.alter('q', '{single_consumer}', '{maybe}')")


def test_rights_on_both(db):
    db.create("q", single_consumer="true", max_running="3")
    db.push("q", "1", "2")
    bob = db.connect("bob")
    bob.fails("42501", "SELECT * FROM queue.take('q')")
    db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    assert take(bob) == [1]
    db.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    for name in ("consumer", "gate"):
        bob.fails("42501", "SELECT * FROM queue.n1_" + name)


@pytest.mark.parametrize("limit", [None, 3])
def test_grouped(q, limit):
    if limit:
        q.rows("SELECT queue.alter('q', '{max_running}', '{3}')")
    q.rows("DELETE FROM queue.q_q")
    q.rows("SELECT queue.push('q', '1', \"group\" => 'g') FROM generate_series(1, 5)")
    jobs = lot(q)
    assert len(jobs) == (limit or 5)
    assert lot(q.connect()) == [] == take(q.connect())
    # of a proxy: only with its name
    q.fails("QBONE", "SELECT * FROM (SELECT set_config('qbouncer.seed', '5', true)) AS s,"
                     " queue._take_lot_jsonb(ARRAY['q'], 1, NULL, NULL, s IS NULL)")


def test_rights(q):
    bob = q.connect("bob")
    bob.fails("42501", "SELECT * FROM queue.take('q')")
    q.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    assert take(bob) == [1] and take(q) == []
    q.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    bob.fails("42501", "SELECT * FROM queue.n1_consumer")
    assert bob.value("SELECT consumer FROM queue.list()") is None


def test_granted_before(db):
    db.create("q")
    db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    db.rows("SELECT queue.alter('q', '{single_consumer}', '{true}')")
    db.push("q", "1")
    assert take(db.connect("bob")) == [1]


def test_not_with(q):
    q.fails("0A000", "SELECT * FROM queue.take('q', ids => '{1}')")


@pytest.mark.parametrize("name", ["forged", "00000000000000A1", "pid", ""])
def test_a_name_that_nobody_can_give_back(q, name):
    """Who may take could say one, and the queue would be his when he is long gone, as long as that proxy is there."""
    proxy(q, 77)
    q.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    bob = q.connect("bob")
    bob.rows("SELECT set_config('qbouncer.consumer', %s, false)", name + " 77 1")
    bob.fails("23514", "SELECT * FROM queue.take('q')")
    bob.fails("23514", "UPDATE queue.n1_consumer SET token = %s, proxy = 77", name)
    assert ask(q, ONE) == 1
