"""A queue is dropped and created anew in one transaction, with a job in it, while somebody waits for its table: he gets a
job of the new one, or an error after which to ask again; never a lease that nobody can end."""

import psycopg
import pytest

TAKES = {
    "take": "SELECT id, token FROM queue.take('q')",
    "_take": "SELECT id, token FROM queue._take('{q}', 1, NULL, 'w', false)",
    "two": "SELECT id, token FROM queue._take('{a,q}', 1, NULL, 'w', false)",
    "grouped": "SELECT id, token FROM queue._take_lot_jsonb('{q}', 1, NULL, 'w', false)",
    # as the proxy does it: what it knows of the queue, or nothing
    "known": "SELECT t.id, t.token FROM queue.queues AS c, queue._take_%(n)s(c, 1, '5 min', 'w', NULL, false, '{0}', '{0}',"
             " (date_part('epoch', clock_timestamp()) * 1000000)::int8, clock_timestamp()) AS t WHERE c.number = %(n)s",
    "unknown": "SELECT t.id, t.token FROM queue.queues AS c, queue._take_%(n)s(c, 1, '5 min', 'w', NULL, false, '{}', '{}',"
               " 0, clock_timestamp()) AS t WHERE c.number = %(n)s",
    "where": "SELECT id, token FROM queue._take_where_jsonb(ARRAY['1', NULL, 'false', NULL, 'w', NULL, 'q', NULL],"
             " '{{%(n)s,1,NULL}}')",
    "pop": "SELECT id, NULL FROM queue._take('{q}', 1, NULL, 'w', true)",
}
HAND = ("SELECT h.id, h.token FROM queue.queues AS c, queue._hand_%%(n)s(c, %s, 0, %s, %s, %s, 0, '{}', '{}',"
        " %s) AS h WHERE c.number = %%(n)s AND h.token IS NOT NULL")
HANDS = {
    "hand one": HAND % ("'{1}'", "'{0}'", "'{1 h}'", "'{w}'", "(date_part('epoch', clock_timestamp()) * 1000000)::int8"),
    "hand two": HAND % ("'{1,2}'", "'{0,0}'", "'{1 h,1 h}'", "'{w,w}'", "0"),
    "hand keys": "SELECT h.id, h.token FROM queue.queues AS c, queue._hand_keys_%(n)s(c, '{1,k,NULL}', 0, '{0}', '{1 h}',"
                 " '{w}', 0, '{}', '{}', 0, 'ignore', true) AS h WHERE c.number = %(n)s AND h.token IS NOT NULL",
}


def number(db):
    return db.value("SELECT number FROM queue.queues WHERE name = 'q'")


def made_anew(db, sql, warm, new, payloads=("1",)):
    """What the call gives that waits for a transaction in which q is dropped and created anew: rows, or the SQLSTATE."""
    one, two = db.connect(), db.connect()
    if warm:    # its plans are kept, for as many calls as it takes
        for _ in range(3):
            two.rows(sql)
        db.rows("SELECT queue.purge('q')")
    one.rows("BEGIN")
    one.rows("SELECT queue.drop('q')")
    one.create("q", **new)
    if payloads:
        one.push("q", *payloads)
    call = two.beside(two.rows, sql)
    db.until_blocked(two)
    one.rows("COMMIT")
    try:
        return call.result()
    except psycopg.Error as error:
        return error.sqlstate


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("how,options", [
    ("take", {}), ("_take", {}), ("_take", {"max_running": 5}), ("two", {}), ("grouped", {}), ("grouped", {"max_running": 5}),
    ("where", {}), ("known", {}), ("known", {"max_running": 5}), ("unknown", {}), ("pop", {}), ("pop", {"retain_done": "1 h"}),
    ("hand one", {}), ("hand two", {}), ("hand keys", {})])
def test_a_lease_is_one_of_the_new_queue(db, how, options, warm):
    db.create("a")
    db.create("q", **options)
    old = number(db)
    got = made_anew(db, (TAKES.get(how) or HANDS[how]) % {"n": old}, warm, options, () if how in HANDS else ("1",))
    if isinstance(got, str):
        assert got in ("42883", "40001"), got
    else:
        for job, token in got:
            if job is not None and how != "pop":
                assert token.startswith("%d-" % number(db))
                assert db.done(token) == ["q"]
    # whoever asks again has what there is; nothing is leased that nobody knows of
    assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") == 0
    while db.take("q"):
        pass


@pytest.mark.parametrize("warm", [False, True])
def test_grouped_takes_from_the_new_queue(db, warm):
    db.create("q")
    (job,) = made_anew(db, TAKES["grouped"], warm, {})
    assert job[1].startswith("%d-1-" % number(db))


@pytest.mark.parametrize("new,state", [
    ({"payload": "text"}, None), ({"max_running_per_group": 2}, "0A000"), ({"paused": "true"}, None)])
def test_grouped_of_a_new_queue_that_is_otherwise(db, new, state):
    db.create("q")
    paused = new.pop("paused", None)
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.drop('q')")
    one.create("q", **new)
    one.push("q", "1")
    if paused:
        one.rows("SELECT queue.pause('q')")
    call = two.beside(two.rows, TAKES["grouped"])
    db.until_blocked(two)
    one.rows("COMMIT")
    if paused:
        assert call.result() == [(None, None)]
    else:
        with pytest.raises(psycopg.Error) as caught:
            call.result()
        assert caught.value.sqlstate == (state or two_payloads(db)), caught.value
    assert db.value("SELECT state FROM queue.q_q") == "ready"


def two_payloads(db):
    """What a take of jsonb says of a queue of text."""
    with pytest.raises(psycopg.Error) as caught:
        db.rows(TAKES["grouped"])
    return caught.value.sqlstate


def test_grouped_waits_for_a_single_consumer(db):
    """It is the consumer then, or gets nothing."""
    db.create("q")
    db.push("q", "1", "2")
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.alter('q', '{single_consumer}', '{true}')")
    call = two.beside(two.rows, TAKES["grouped"])
    db.until_blocked(two)
    one.rows("COMMIT")
    assert [row[0] for row in call.result()] == [1]
    assert db.take("q") == []
    assert [job["id"] for job in two.take("q")] == [2]


@pytest.mark.parametrize("how", ["take", "pop", "grouped", "unknown", "known"])
@pytest.mark.parametrize("new", [{}, {"single_consumer": "true"}], ids=["plain", "single"])
def test_take_of_a_single_consumer(db, how, new):
    db.create("a")
    db.create("q", single_consumer="true")
    old = number(db)
    got = made_anew(db, TAKES[how] % {"n": old}, False, new)
    if isinstance(got, str):
        assert got == "40001"
    else:
        assert how == "grouped" and got[0][1].startswith("%d-" % number(db))


@pytest.mark.parametrize("verb", ["cancel(%s)", "alter_job(%s, '{priority}', '{5}')"])
def test_a_job_of_this_number_is_another(db, verb):
    db.create("q")
    db.push("q", "1")
    ref = "%d-1" % number(db)
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    one.rows("SELECT queue.drop('q')")
    one.create("q")
    one.push("q", "2")
    call = two.beside(two.rows, "SELECT queue." + verb, ref)
    db.until_blocked(two)
    one.rows("COMMIT")
    call.error_of("QB003")
    assert db.row("SELECT state, priority FROM queue.q_q") == ("ready", 0)
