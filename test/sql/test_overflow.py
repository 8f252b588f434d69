"""The options overflow, max_per_transaction and on_expire."""

import pytest


@pytest.fixture
def q(db):
    db.create("q", max_length=3, overflow="drop_oldest")
    return db


def ids(session):
    return session.column("SELECT id FROM queue.q_q ORDER BY id")


def test_the_oldest_goes(q):
    assert q.push("q", "1", "2") == [1, 2]
    assert ids(q) == [1, 2]
    q.push("q", "3", "4")
    assert ids(q) == [2, 3, 4]
    q.push("q", *map(str, range(10)))
    assert ids(q) == [12, 13, 14]
    q.rows("SELECT queue.alter('q', '{}', '{}', '{overflow}')")
    q.fails("QB004", "SELECT queue.push('q', '1')")
    assert q.value("SELECT overflow FROM queue.list()") == "error"


def test_of_the_lowest_priority(q):
    for priority in 5, 1, 3:
        q.push("q", "1", priority=priority)
    q.push("q", "1", priority=3)
    assert ids(q) == [1, 3, 4]
    q.push("q", "1", priority=3)
    assert ids(q) == [1, 4, 5]


def test_what_runs_stays(q):
    q.push("q", "1", "2", "3")
    jobs = q.take("q", 2)
    q.push("q", "4", "5")
    assert ids(q) == [1, 2, 5]
    q.take("q")
    assert "as many run" in q.fails("QB004", "SELECT queue.push('q', '6')").message_detail
    q.done(*[job["token"] for job in jobs])
    q.push("q", "7", "8", "9")
    assert len(ids(q)) == 3 and 5 in ids(q)


def test_delayed_and_blocked_ones_go_last(q):
    q.push("q", "1", delay="1 h")
    q.push("q", "2", delay="2 h")
    q.push("q", "3")
    q.push("q", "4")
    assert ids(q) == [1, 2, 4]
    q.rows("DELETE FROM queue.q_q WHERE id = 4")
    q.rows("SELECT queue.push('q', '1', \"group\" => 'g', delay => '3 h')")
    q.rows("SELECT queue.push('q', '2', \"group\" => 'g')")
    assert q.column("SELECT payload FROM queue.q_q WHERE \"group\" = 'g' ORDER BY id") == [1, 2]
    assert q.value("SELECT count(*) FROM queue.q_q") == 3


def test_the_next_of_a_group_goes_on(q):
    for i in range(4):
        q.rows("SELECT queue.push('q', %s, \"group\" => 'g')", str(i))
    assert q.rows("SELECT id, state FROM queue.q_q ORDER BY id") == [(2, "ready"), (3, "blocked"), (4, "blocked")]


def test_so_many_stay_though_groups_go_on(q):
    """What goes lets the next one of its group be ready, which goes, too."""
    q.rows("SELECT queue.alter('q', '{max_length}', '{10}')")
    for group in "abc":
        for i in range(2):
            q.rows("SELECT queue.push('q', %s, \"group\" => %s)", str(i), group)
    q.rows("SELECT queue.alter('q', '{max_length}', '{1}')")
    q.push("q", "1")
    assert len(ids(q)) == 1


def test_a_key_is_free_again(q):
    q.rows("SELECT queue.push('q', '1', key => 'k')")
    q.push("q", "2", "3", "4")
    assert q.value("SELECT queue.push('q', '1', key => 'k')") > 4


def test_they_are_kept(q):
    q.rows("SELECT queue.alter('q', '{retain_done}', '{1 h}')")
    q.push("q", "1", "2", "3", "4")
    assert q.rows("SELECT id, state FROM queue.a_q") == [(1, "dropped")]
    assert q.value("SELECT state FROM queue.await('1', 'q')") == "dropped"


def test_who_waits_for_one_that_is_dropped_does_not_go_on(q):
    q.create("next")
    q.push("q", "1")
    q.rows("SELECT queue._push('next', '{1}', 0, NULL, NULL, NULL, false, after => ARRAY[queue.number || '-1'])"
           " FROM queue.queues AS queue WHERE name = 'q'")
    q.push("q", "2", "3", "4")
    assert ids(q) == [2, 3, 4]
    assert q.row("SELECT state, error LIKE '%%dropped%%' FROM queue.q_next WHERE id = %s", 1) == ("dead", True)


def test_what_is_dropped_meanwhile_changes_nothing_for_the_rest(q):
    """Jobs are purged; those that waited for them die and go to a full dead_queue, which drops others."""
    q.create("first")
    q.create("next", dead_queue="q")
    q.push("q", "1", "2", "3")
    q.push("first", "1", "2")
    for id in "12":
        q.rows("SELECT queue._push('next', '{1}', 0, NULL, NULL, NULL, false, after => ARRAY[queue.number || '-' || %s])"
               " FROM queue.queues AS queue WHERE name = 'first'", id)
    assert q.value("SELECT queue.purge('first')") == 2
    assert q.column("SELECT state FROM queue.q_next") == []
    assert q.column("SELECT headers -> 'dead' ->> 'error' LIKE '%%purged' FROM queue.q_q ORDER BY id") == [None, True, True]


def test_who_may_only_push(q):
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    bob.push("q", "1", "2", "3", "4")
    assert ids(q) == [2, 3, 4]


def test_pushes_at_the_same_time(q):
    q.push("q", "1", "2", "3")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    one.push("q", "4")
    two.push("q", "5")
    one.rows("COMMIT")
    assert ids(q) == [3, 4, 5]


def test_a_large_one_is_not_counted_each_time(q):
    q.create("large", max_length=5000, overflow="drop_oldest")
    q.rows("INSERT INTO queue.q_large (payload) SELECT to_jsonb(i) FROM generate_series(1, 6000) AS i")
    assert q.value("SELECT count(*) FROM queue.q_large") == 4950
    assert q.value("SELECT min(id) FROM queue.q_large") == 1051
    q.rows("INSERT INTO queue.q_large (payload) SELECT to_jsonb(i) FROM generate_series(1, 50) AS i")
    assert q.value("SELECT count(*) FROM queue.q_large") == 5000
    q.push("large", "1")
    assert q.value("SELECT count(*) FROM queue.q_large") == 4950


@pytest.mark.parametrize("option, value", [("overflow", "x"), ("on_expire", "x"), ("max_per_transaction", "0"),
                                           ("max_per_transaction", "x"), ("max_per_transaction", "9999999999")])
def test_wrong_values(q, option, value):
    q.fails("22023", "SELECT queue.alter('q', %s, %s)", [option], [value])


# -- max_per_transaction -----------------------------------------------------------------------


@pytest.fixture
def few(db):
    db.create("few", max_per_transaction=3)
    return db


def test_so_many_in_a_transaction(few):
    few.push("few", "1", "2", "3")
    few.push("few", "1", "2", "3")
    diag = few.fails("QB004", "SELECT queue._push('few', '{1,2,3,4}', 0, NULL, NULL, NULL, false)")
    assert "3 jobs" in diag.message_primary and "max_per_transaction" in diag.message_hint
    few.rows("BEGIN")
    few.push("few", "1", "2")
    few.rows("SAVEPOINT s")
    few.push("few", "1")
    few.rows("ROLLBACK TO s")
    few.rows("SELECT queue.push('few', '1', key => 'k')")
    few.rows("SELECT queue.push('few', '1', key => 'k')")       # is none
    few.rows("SAVEPOINT s")
    few.fails("QB004", "INSERT INTO queue.q_few (payload) SELECT '1'")
    few.rows("ROLLBACK TO s")
    few.fails("QB004", "INSERT INTO queue.b_few (payload, key) VALUES ('1', 'l')")
    few.rows("ROLLBACK")
    few.rows("SELECT queue.alter('few', '{max_per_transaction}', '{4}')")
    few.push("few", "1", "2", "3", "4")
    few.rows("SELECT queue.alter('few', '{}', '{}', '{max_per_transaction}')")
    few.push("few", *map(str, range(10)))
    assert few.value("SELECT max_per_transaction FROM queue.list()") is None


# -- on_expire ---------------------------------------------------------------------------------


def test_who_was_not_taken_in_time_dies(db):
    db.create("q", on_expire="dead", retain_done="1 h")
    db.push("q", "1", "2")
    db.push("q", "3", delay="1 h")
    db.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s' WHERE id IN (1, 3)")
    # as figures say before anybody has looked
    assert db.row("SELECT ready, later, dead, total FROM queue.stats('q')") == (1, 0, 2, 3)
    assert db.column("SELECT id FROM queue.peek('q', 10, 'dead') ORDER BY id") == [1, 3]
    assert db.row("SELECT state, error FROM queue.await('1', 'q')") == ("dead", "expired")
    assert [job["id"] for job in db.take("q", 5)] == [2]
    assert db.rows("SELECT id, error FROM queue.peek('q', 10, 'dead') ORDER BY id") == [(1, "expired"), (3, "expired")]
    assert db.row("SELECT error, jobs FROM queue.errors('q')") == ("expired", 2)
    assert db.row("SELECT state, error FROM queue.await('1', 'q')") == ("dead", "expired")
    assert db.value("SELECT count(*) FROM queue.a_q") == 0
    # who runs it again means it
    assert db.value("SELECT queue.redrive('q', 1)") == 1
    db.rows("SELECT queue.rerun('3', 'q')")
    assert sorted(job["id"] for job in db.take("q", 5)) == [1, 3]


def test_its_key_is_free_and_its_group_goes_on(db):
    db.create("q", on_expire="dead")
    db.rows("SELECT queue.push('q', '1', key => 'k', \"group\" => 'g')")
    db.rows("SELECT queue.push('q', '2', \"group\" => 'g')")
    db.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s' WHERE id = 1")
    assert db.value("SELECT queue.push('q', '3', key => 'k')") == 3
    assert db.rows("SELECT id, state FROM queue.q_q ORDER BY id") == [(1, "dead"), (2, "ready"), (3, "ready")]
