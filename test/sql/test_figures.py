"""What proxies have counted: written, put together, read."""

import pytest

NONE = [0] * 11


@pytest.fixture
def q(db):
    db.create("q")
    return db


def counted(session, names, figures, ago="0", folds=False, subs=None):
    """Of which no more is to be said."""
    done = session.column("SELECT queue._counted((extract(epoch FROM now() - %s::interval))::int8, 7, %s::text[], %s::text[], %s::int8[], %s)",
                          ago, names, subs or [None] * len(names), figures, folds)
    return [names[i - 1] for i in done]


def total(session, by="day", last=400, q="q"):
    return session.row("SELECT sum(pushed)::int4, sum(done)::int4, max(max_wait)::text FROM queue.stats_by(%s, %s, %s)", q, by, last)


def test_written_and_read(q):
    assert counted(q, ["q", "gone"], [5, 4, 3, 2, 1, 2, 3000000, 2000000, 1, 4000000, 4000000] + NONE) == ["q", "gone"]
    assert counted(q, ["q"], [1, 0, 0, 0, 0, 1, 9000000, 9000000, 0, 0, 0]) == ["q"]
    assert counted(q, [], []) == []
    row = q.row("SELECT pushed, taken, done, failed, dead, mean_wait::text, max_wait::text, mean_run::text, max_run::text "
                "FROM queue.stats_by('q', 'DAY', 1)")
    assert row == (6, 4, 3, 2, 1, "00:00:04", "00:00:09", "00:00:04", "00:00:04")
    q.create("other")
    assert total(q, q="other") == (0, 0, None)


def test_minutes_become_hours(q):
    for ago in ("25 h", "24 h 30 min", "3 min", "91 days"):
        counted(q, ["q"], [1, 0, 2, 0, 0, 1, 5, 5, 0, 0, 0], ago)
    assert total(q) == (4, 8, "00:00:00.000005")
    for _ in range(2):
        counted(q, [], [], folds=True)
    # one of an hour only if both were in the same; what was of 91 days ago is gone
    assert q.value("SELECT count(*) FROM queue.figures WHERE hourly") in (1, 2)
    assert q.value("SELECT count(*) FROM queue.figures WHERE NOT hourly") == 1
    assert total(q) == (3, 6, "00:00:00.000005")
    assert total(q, "hour", 30) == (3, 6, "00:00:00.000005")
    assert total(q, "minute", 3000) == (1, 2, "00:00:00.000005")


def test_a_queue_that_is_dropped(q):
    counted(q, ["q"], [1] + NONE[1:])
    q.rows("SELECT queue.drop('q')")
    assert q.connect("postgres").value("SELECT count(*) FROM queue.figures") == 0


def test_rights(q):
    bob = q.connect("bob")
    assert counted(bob, ["q"], [1] + NONE[1:], folds=True) == []
    bob.fails("42501", "SELECT * FROM queue.stats_by('q', 'day')")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    assert counted(bob, ["q"], [1] + NONE[1:]) == ["q"]
    bob.fails("42501", "SELECT * FROM queue.stats_by('q', 'day')")
    assert bob.rows("SELECT * FROM queue.figures") == []
    for sql in ("DELETE FROM queue.figures", "UPDATE queue.figures SET done = 1", "DO $$ BEGIN LOCK TABLE queue.figures IN SHARE MODE; END $$"):
        bob.fails("42501", sql)
    q.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    assert total(bob) == total(q) == (1, 0, None)


def test_mistakes(q):
    for sql in ("'q', 'week'", "'q', NULL", "'q', 'day', 0", "'q', 'day', 10001", "NULL, 'day'"):
        q.fails("22023", "SELECT * FROM queue.stats_by(%s)" % sql)
    q.fails("42P01", "SELECT * FROM queue.stats_by('nosuch', 'day')")


def test_of_a_stream(q):
    q.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    bob = q.connect("bob")
    bob.fails("42501", "SELECT * FROM queue.stats_by('s', 'day')")
    assert counted(bob, ["s"], [1] * 11) == []      # another role may
    q.rows("SELECT queue.grant('s', '{push}', '{bob}')")
    counted(bob, ["s"], [3] + NONE[1:])
    counted(bob, ["s"], [4] + NONE[1:], "30 h")
    bob.fails("42501", "SELECT * FROM queue.stats_by('s', 'day')")
    q.rows("SELECT queue.grant('s', '{subscribe}', '{bob}')")
    counted(bob, ["s"], [0, 2, 1, 1] + NONE[4:])
    counted(q, ["s"], [0, 1, 1] + NONE[3:])
    counted(q, [], [], folds=True)
    for session in (bob, q):
        assert session.row("SELECT sum(pushed), sum(taken), sum(done), sum(failed) FROM queue.stats_by('s', 'hour', 48)") == (7, 3, 2, 1)
    assert q.value("SELECT count(*) FROM queue.figures WHERE hourly") == 1
    counted(q, ["s"], [9] + NONE[1:], "91 days")
    counted(q, [], [], folds=True)
    counted(q, [], [], folds=True)
    assert q.value("SELECT sum(pushed) FROM queue.stats_by('s', 'day', 200)") == 7
    q.rows("SELECT queue.drop('s')")
    assert q.value("SELECT count(*) FROM queue.figures") == 0


def test_of_a_subscription(q):
    """They are of who may take for it: written, read, put together; and go with it."""
    bob, root = q.connect("bob"), q.connect("postgres")
    q.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    q.rows("SELECT queue.grant('s', '{push,subscribe}', '{bob}')")
    q.rows("SELECT queue.subscribe('a', 's', 'now', '{parallel}', '{3}')")
    bob.rows("SELECT queue.subscribe('b', 's')")

    def of(session, sub, by="day", last=400):
        return session.row("SELECT sum(pushed), sum(taken), sum(done), sum(failed) FROM queue.stats_by_for('s', %s, %s, %s)", sub, by, last)

    assert counted(q, ["s", "s", "s"], [5, 2, 2] + NONE[3:] + [9, 2, 1, 1] + NONE[4:] + NONE, subs=[None, "a", "b"]) == ["s", "s"]
    assert counted(q, ["s"], [1] + NONE[1:], subs=["gone"]) == ["s"]
    assert counted(bob, ["s", "s"], [1, 1] + NONE[2:] + [4, 1] + NONE[2:], subs=["b", "a"]) == ["s"]
    assert of(q, "a") == (9, 2, 1, 1) and of(bob, "b") == (1, 1, 0, 0)
    assert q.row("SELECT sum(pushed), sum(taken) FROM queue.stats_by('s', 'day')") == (5, 2)
    bob.fails("42501", "SELECT * FROM queue.stats_by_for('s', 'a', 'day')")
    q.fails("42501", "SELECT * FROM queue.stats_by_for('s', 'b', 'day')")
    assert bob.column("SELECT DISTINCT subscription FROM queue.figures ORDER BY 1") == ["b", None]
    bob.fails("42501", "INSERT INTO queue.figures SELECT number, now(), false, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 'a' FROM queue.streams")
    for sql, state in (("'s', NULL, 'day'", "22004"), ("'s', 'nosuch', 'day'", "42704"), ("'q', 'a', 'day'", "0A000"),
                       ("'s', 'a', NULL", "22023"), ("'s', 'a', 'week'", "22023"), ("'nosuch', 'a', 'day'", "42P01")):
        q.fails(state, "SELECT * FROM queue.stats_by_for(%s)" % sql)
    counted(q, ["s", "s"], [5, 1] + NONE[2:] + [7, 1] + NONE[2:], "30 h", subs=["a", None])
    counted(q, ["s"], [2, 1] + NONE[2:], "30 h", subs=["a"])
    counted(q, [], [], folds=True)
    assert root.value("SELECT count(*) FROM queue.figures WHERE hourly") == 2
    assert of(q, "a", "hour") == (16, 4, 1, 1)
    q.rows("SELECT queue.alter_for('s', 'a', '{parallel}', '{1}')")     # other lanes, the same subscription
    q.rows("SELECT * FROM queue.take_for('s', 'a')")
    assert root.value("SELECT count(*) FROM queue.subscriptions WHERE name = 'a'") == 1 and of(q, "a") == (16, 4, 1, 1)
    q.rows("SELECT queue.unsubscribe('a', 's')")
    q.rows("SELECT queue.subscribe('a', 's')")
    assert of(q, "a") == (0, 0, 0, 0) and of(bob, "b") == (1, 1, 0, 0)
    q.rows("SELECT queue.drop('s')")
    assert root.value("SELECT count(*) FROM queue.figures") == 0


def test_rubbish_of_one_spoils_nothing_for_others(q):
    """Who may push may write figures: none that cannot be added up, or are none."""
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    bob = q.connect("bob")
    most = [2 ** 63 - 1] * 11
    for _ in range(3):
        counted(bob, ["q"], most, "25 h")
        counted(bob, ["q"], most)
    for _ in range(3):
        counted(bob, ["q"], [-n for n in most], "26 h")
    q.create("other")
    counted(q, ["other"], [1] + NONE[1:], "25 h")
    counted(q, [], [], folds=True)
    assert q.value("SELECT count(*) FROM queue.figures WHERE hourly") == 3
    assert q.value("SELECT max(pushed) FROM queue.stats_by('q', 'day', 400)") == 9 * 10 ** 17
    assert q.value("SELECT min(pushed) FROM queue.stats_by('q', 'hour', 400)") == 0
    assert total(q, q="other") == (1, 0, None)


def lease_over(q):
    q.take("q")
    q.rows("UPDATE queue.q_q SET lease_until = clock_timestamp() - interval '1 s' WHERE state = 'leased'")
    assert q.take("q") == []


def gone(q, counted="true"):
    q.rows("SELECT queue._give_back(ARRAY[%s], 'gone', " + counted + ")", q.take("q")[0]["token"])


def too_late(q):
    q.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s'")
    q.rows("SELECT queue.maintain()")
    assert q.take("q") == []


def too_late_with_key(q):
    q.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s', key = 'k'")
    q.rows("SELECT queue.push('q', '2', key => 'k', delay => '1 h')")


def behind_another(q):
    q.rows("SELECT queue.push('q', '2', after => ARRAY['1-1'])")
    gone(q)


@pytest.mark.parametrize("how, n", [(lease_over, 1), (gone, 1), (too_late, 1), (too_late_with_key, 1), (behind_another, 2)])
def test_the_dead(q, how, n):
    """Who dies otherwise than by FAIL, of which the proxy counts the dead, is counted once, where it happens."""
    q.rows("SELECT queue.alter('q', '{max_attempts,on_expire}', '{1,dead}')")
    q.rows("SELECT queue.push('q', '1')")
    how(q)
    q.take("q")
    q.rows("SELECT queue.maintain()")
    assert q.value("SELECT count(*) FROM queue.q_q WHERE state = 'dead'") == n
    assert q.value("SELECT sum(dead) FROM queue.stats_by('q', 'day', 2)") == n


def test_nobody_wants_figures(q):
    """A proxy that writes none cannot say so to the database: a setting does, which the operator makes."""
    q.rows("SELECT queue.alter('q', '{max_attempts,on_expire}', '{1,dead}')")
    name = q.value("SELECT current_database()")
    q.connect("postgres").rows(f"ALTER DATABASE {name} SET qbouncer.figures = off")
    quiet = q.connect()
    q.rows("SELECT queue.push('q', '1')")
    lease_over(quiet)
    quiet.rows("SELECT queue.maintain()")
    assert q.value("SELECT count(*) FROM queue.q_q WHERE state = 'dead'") == 1
    assert q.value("SELECT count(*) FROM queue.figures") == 0


def test_maintenance_folds_what_no_proxy_folds(q):
    counted(q, ["q"], [1] + NONE[1:], "24.5 h")
    q.rows("SELECT queue.maintain()")
    assert q.column("SELECT hourly FROM queue.figures") == [False]
    counted(q, ["q"], [2] + NONE[1:], "26 h")
    counted(q, ["q"], [4] + NONE[1:], "80 days")
    before = total(q)
    q.rows("SELECT queue.maintain()")
    assert set(q.column("SELECT hourly FROM queue.figures")) == {True}
    assert total(q) == before and before[0] == 3 + 4


def test_who_does_not_die(q):
    q.rows("SELECT queue.alter('q', '{max_attempts,retry}', '{2,none}')")
    q.rows("SELECT queue.push('q', '1', attempts => 2)")
    gone(q, "false")
    q.rows("SELECT queue.alter('q', '{retry}', '{fixed 1s}')")
    gone(q)
    assert q.value("SELECT state FROM queue.q_q") == "ready"
    assert q.value("SELECT count(*) FROM queue.figures") == 0


def test_a_taker_writes_of_the_dead(q):
    """Who has nothing but TAKE has the right to it."""
    q.rows("SELECT queue.alter('q', '{max_attempts}', '{1}')")
    q.rows("SELECT queue.push('q', '1')")
    q.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    lease_over(q.connect("bob"))
    assert q.value("SELECT sum(dead) FROM queue.stats_by('q', 'day', 2)") == 1


def test_who_folds_holds_up_nobody(q):
    """Anybody may fold, and leave his transaction open."""
    counted(q, ["q"], [1] + NONE[1:], "25 h")
    counted(q, ["q"], [1] + NONE[1:], "100 days")
    counted(q, [], [], folds=True)
    counted(q, ["q"], [1] + NONE[1:], "26 h")
    root = q.connect("postgres")
    root.rows("UPDATE queue.figures SET at = at - interval '100 days' WHERE hourly")
    mallory = q.connect("mallory")
    q.rows("SET lock_timeout = '5 s'")
    with mallory.conn.transaction():
        mallory.rows("SELECT queue._fold_figures()")
        assert counted(q, ["q"], [1] + NONE[1:], folds=True) == ["q"]
        q.rows("SELECT queue.drop('q')")
