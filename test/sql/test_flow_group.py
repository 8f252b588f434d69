"""max_running_per_group, rate_per_group, pause, pause_per_group, fair: what groups are, and what each may have."""

import threading
import time

import psycopg
import pytest

TAKE = "SELECT id, \"group\" FROM queue.take('q', %s)"


def pushed(db, **counts):
    """Jobs of groups, one group after the other; '_': of none."""
    for group, n in counts.items():
        db.rows("SELECT queue.push('q', to_jsonb(n), \"group\" => %s) FROM generate_series(1, %s) n", group.strip("_") or None, n)


def take(s, n=100):
    return s.rows(TAKE, n)


def taken(s, n=100):
    """How many of each group."""
    found = {}
    for _, group in take(s, n):
        found[group] = found.get(group, 0) + 1
    return found


def end(db, id, how="SELECT queue.done(%s)"):
    db.rows(how, db.value("SELECT (SELECT number FROM queue.queues) || '-' || id || '-' || token FROM queue.q_q WHERE id = %s", id))


def aged(db, interval):
    """As if all that groups have used up, and their pauses, were so long ago."""
    n = db.value("SELECT number FROM queue.queues")
    db.rows(f"UPDATE queue.n{n}_groups SET tat = tat - %s::interval, rests = rests - %s::interval, opens = opens - %s::interval",
            interval, interval, interval)
    db.rows(f"UPDATE queue.n{n}_gate SET tat = tat - %s::interval, rests = rests - %s::interval, opened = '-infinity'", interval, interval)


def test_so_many_of_a_group(db):
    db.create("q", max_running_per_group=2)
    pushed(db, a=5, b=1, _=3)
    assert taken(db) == {"a": 2, "b": 1, None: 3}
    assert taken(db.connect()) == {}
    end(db, 1)
    assert take(db) == [(3, "a")]
    end(db, 2, "SELECT queue.fail(%s, 'x', retry_in => '1 h')")
    end(db, 6)
    assert take(db) == [(4, "a")]


def test_what_could_run_is_ready_although_nobody_takes(db):
    figures = "SELECT ready, leased, blocked, new, retry, total, oldest_ready IS NULL FROM queue.stats('q')"
    db.create("q", max_running_per_group=3)
    pushed(db, a=8)
    assert db.row(figures) == (3, 0, 5, 3, 0, 8, False)
    assert len(take(db, 2)) == 2
    assert db.row(figures)[:3] == (1, 2, 5)
    end(db, 1)
    assert db.row(figures)[:3] == (2, 1, 4)
    end(db, 2, "SELECT queue.fail(%s, 'x', retry_in => '1 h')")
    assert db.row(figures)[:3] == (3, 0, 3)
    pushed(db, b=2, _=1)
    assert db.row(figures)[:3] == (6, 0, 3)
    db.rows("SELECT queue.alter('q', ARRAY['max_running_per_group'], ARRAY['4'])")
    assert db.row(figures)[:3] == (7, 0, 2)
    db.rows("SELECT queue.alter('q', ARRAY['max_running_per_group', 'fair'], ARRAY['none', 'group'])")
    assert db.row(figures)[:3] == (9, 0, 0)


def shown(db, q="q"):
    """Ready and blocked, as STATS says, and as the metrics say, which have to say the same."""
    row = db.row("SELECT ready, blocked, later FROM queue.stats(%s)", q)
    gauge = db.row("SELECT ready, blocked, later, oldest_ms IS NULL FROM queue._gauges(100) WHERE queue = %s", q)
    assert gauge[3] == (row[0] == 0) and gauge[1] == row[1] + row[2] - gauge[2] and gauge[0] == row[0]
    return row[:2]


@pytest.mark.parametrize("most", ["1", "3", "none"])
def test_the_rate_lets_in_so_many_although_nobody_takes(db, most):
    db.create("q", max_running_per_group=most, rate_per_group="10/h burst 2")
    pushed(db, a=5, b=1, _=4)
    # in order one at a time; else as the rate allows
    n = 1 if most == "1" else 2
    assert shown(db) == (n + 1 + 4, 5 - n)
    assert len(take(db)) == n + 5
    if n == 1:
        assert shown(db) == (0, 4)
        end(db, 1)
        assert shown(db) == (1, 3) and take(db) == [(2, "a")]
        end(db, 2)
    else:
        end(db, 1)
    assert shown(db) == (0, 3) and take(db) == []
    aged(db, "6 min")
    assert shown(db) == (1, 2)
    aged(db, "3 h")
    assert shown(db) == ((1, 2) if most == "1" else (2, 1))


def test_the_pause_lets_in_none_although_nobody_takes(db):
    db.create("q", max_running_per_group=2, pause_per_group="1 h")
    pushed(db, a=4, b=1)
    assert shown(db) == (3, 2)
    assert sorted(id for id, _ in take(db)) == [1, 2, 5]
    assert shown(db) == (0, 2)
    end(db, 1)
    # no take has read of the end yet
    assert shown(db) == (0, 2)
    assert take(db) == [] and shown(db) == (0, 2)
    aged(db, "2 h")
    assert shown(db) == (1, 1) and take(db) == [(3, "a")]


def test_a_delayed_one_in_order_is_later(db):
    db.create("q", rate_per_group="9/s burst 99")
    db.rows("SELECT queue.push('q', '1', \"group\" => 'a', delay => '1 h')")
    pushed(db, a=2)
    assert db.row("SELECT ready, later, blocked FROM queue.stats('q')") == (0, 1, 2)
    assert db.row("SELECT ready, oldest_ms FROM queue._gauges(100)") == (0, None)


@pytest.mark.parametrize("most, more, ready", [("2", {}, 2), ("none", {"rate_per_group": "9/h burst 2"}, 2), ("none", {"fair": "group"}, 3)])
def test_what_is_delayed_has_no_place_where_there_is_no_order(db, most, more, ready):
    """It was blocked in its group while that was one."""
    db.create("q")
    pushed(db, a=1)
    for _ in range(2):
        db.rows("SELECT queue.push('q', '0', \"group\" => 'a', delay => '1 h')")
    pushed(db, a=3)
    assert take(db, 1) == [(1, "a")]
    end(db, 1, "SELECT queue.fail(%s, 'x', retry_in => '1 h')")
    options = dict({"max_running_per_group": most}, **more)
    db.rows("SELECT queue.alter('q', %s, %s)", list(options), list(options.values()))
    assert shown(db) == (ready, 3 - ready)
    assert len(take(db)) == ready and shown(db) == (0, 3 - ready)


def test_who_may_not_see_the_groups(db):
    """Who has nothing but SELECT on the jobs sees those that are not let in as what they are in the table."""
    db.create("q", max_running_per_group="none", rate_per_group="10/h burst 2")
    db.create("r", max_running_per_group=2)
    pushed(db, a=5)
    db.rows("SELECT queue.push('r', '1', \"group\" => 'a') FROM generate_series(1, 5)")
    db.rows("GRANT SELECT ON queue.q_q, queue.q_r TO bob")
    bob = db.connect("bob")
    assert shown(db) == (2, 3) and shown(bob) == (0, 5)
    assert shown(db, "r") == shown(bob, "r") == (2, 3)


def test_metrics_of_groups_are_bounded(db):
    db.create("q", max_running_per_group=3)
    db.create("f", max_running_per_group="none", fair="group")
    db.create("order")
    for q in ("q", "f", "order"):
        db.rows("SELECT queue.push(%s, '1', \"group\" => (n %% 1200)::text) FROM generate_series(1, 6000) n", q)
    gauges = "SELECT queue, ready, blocked FROM queue._gauges(%s) ORDER BY 1"
    assert db.rows(gauges, 10) == [("f", 10, 0), ("order", 10, 10), ("q", 10, 0)]
    # a thousand groups are looked at
    assert db.rows(gauges, 10000) == [("f", 6000, 0), ("order", 1200, 4800), ("q", 3000, 3000)]
    assert db.rows(gauges, 3500)[2] == ("q", 3000, 3000)
    assert db.rows(gauges, 4)[1] == ("order", 4, 4)
    assert db.row("SELECT ready, blocked FROM queue.stats('q')") == (3600, 2400)


def test_since_when_there_is_a_place(db):
    """Not since the push of a job that waited for the one before it."""
    db.create("q", max_running_per_group=2)
    pushed(db, a=3)
    db.rows("UPDATE queue.q_q SET pushed_at = now() - interval '1 h', run_at = NULL")
    oldest = "SELECT oldest_ms FROM queue._gauges(100)"
    assert db.value(oldest) > 3590_000
    assert len(take(db)) == 2 and db.value(oldest) is None
    end(db, 1)
    assert db.value(oldest) < 60_000


def test_a_retry_takes_a_place(db):
    db.create("q", max_running_per_group=2)
    pushed(db, a=4)
    assert taken(db) == {"a": 2}
    end(db, 1, "SELECT queue.fail(%s, 'x', retry_in => '0')")
    assert taken(db) == {"a": 1}
    end(db, 2, "SELECT queue.release(%s)")
    assert taken(db) == {"a": 1}
    assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") == 2


def test_a_label(db):
    db.create("q", max_running_per_group="none")
    pushed(db, a=5, b=2)
    assert [id for id, _ in take(db)] == [1, 2, 3, 4, 5, 6, 7]
    end(db, 1, "SELECT queue.fail(%s, 'x', final => true)")
    db.rows("SELECT queue.rerun('1-1')")
    db.rows("SELECT queue.push('q', '1', \"group\" => 'a', delay => '1 h', key => 'k')")
    assert take(db) == [(1, "a")]
    assert db.column("SELECT state FROM queue.q_q WHERE key = 'k'") == ["later"]
    assert not db.value("SELECT limited FROM queue.queues")


def test_delayed_ones_take_no_place(db):
    db.create("q", max_running_per_group=2)
    db.rows("SELECT queue.push('q', '1', \"group\" => 'a', delay => '1 h') FROM generate_series(1, 3)")
    pushed(db, a=3)
    assert [id for id, _ in take(db)] == [4, 5]
    db.rows("UPDATE queue.q_q SET run_at = now() - interval '1 s' WHERE id = 1")
    assert take(db) == []
    end(db, 4)
    assert take(db) == [(1, "a")]


def test_a_lease_that_is_over_and_a_dead_one_make_room(db):
    db.create("q", max_running_per_group=1, rate_per_group="9/s burst 99", max_attempts=1)
    pushed(db, a=3)
    assert take(db) == [(1, "a")] and take(db) == []
    db.expire("q")
    assert take(db) == [(2, "a")]
    end(db, 2, "SELECT queue.fail(%s, 'x')")
    assert take(db) == [(3, "a")]


def test_in_order_with_a_rate(db):
    """A retry holds up those behind it, as without a rate."""
    db.create("q", rate_per_group="9/s burst 99")
    pushed(db, a=3)
    assert take(db) == [(1, "a")]
    end(db, 1, "SELECT queue.fail(%s, 'x', retry_in => '1 h')")
    assert take(db) == []
    db.rows("UPDATE queue.q_q SET run_at = now() WHERE id = 1")
    assert take(db) == [(1, "a")]
    end(db, 1)
    assert take(db) == [(2, "a")]


def test_rate_per_group(db):
    db.create("q", rate_per_group="10/h burst 2", max_running_per_group="none")
    pushed(db, a=9, b=1)
    assert taken(db) == {"a": 2, "b": 1}
    assert take(db) == []
    due = db.value("SELECT queue._opens_ms(c) FROM queue.queues c")
    assert 350_000 < due <= 360_000
    aged(db, "6 min")
    assert taken(db) == {"a": 1}
    aged(db, "3 h")
    assert taken(db) == {"a": 2}


def test_rate_per_group_of_pop_and_of_what_is_rolled_back(db):
    db.create("q", rate_per_group="10/h burst 2", max_running_per_group=5)
    pushed(db, a=9)
    other = db.connect()
    with pytest.raises(ZeroDivisionError):
        with other.conn.transaction():
            assert taken(other) == {"a": 2}
            raise ZeroDivisionError
    assert len(db.rows("SELECT id FROM queue.pop('q', 5)")) == 2
    assert db.rows("SELECT id FROM queue.pop('q', 5)") == []


@pytest.mark.parametrize("rate", ["rate", "rate_per_group"])
def test_what_was_not_delivered_gives_its_token_back(db, rate):
    db.create("q", max_running_per_group="none", **{rate: "10/h burst 2"})
    pushed(db, a=9)
    assert taken(db, 1) == {"a": 1} and taken(db, 1) == {"a": 1} and take(db) == []
    tokens = db.column("SELECT (SELECT number FROM queue.queues) || '-' || id || '-' || token FROM queue.q_q WHERE state = 'leased'")
    db.rows("SELECT queue._give_back(%s, NULL, false)", tokens[:1])
    assert taken(db) == {"a": 1}
    # who has got it, and went, has had it
    db.rows("SELECT queue._give_back(%s, '', false)", tokens[1:])
    db.rows("SELECT queue._give_back(%s, 'worker disconnected', true)", tokens[1:])
    assert take(db) == []


def test_a_token_given_back_is_none_that_was_used(db):
    """Also of a group in which nobody waits for it."""
    db.create("q", rate_per_group="10/h burst 2")
    pushed(db, a=1)
    assert taken(db) == {"a": 1}
    token = db.value("SELECT (SELECT number FROM queue.queues) || '-' || id || '-' || token FROM queue.q_q WHERE state = 'leased'")
    db.rows("SELECT queue._give_back(%s, NULL, false)", [token])
    assert taken(db) == {"a": 1}
    end(db, 1)
    pushed(db, a=2)
    assert taken(db) == {"a": 1}
    end(db, 2)
    assert take(db) == []


def test_pause(db):
    db.create("q", pause="10 min", max_running=2)
    pushed(db, _=5)
    assert len(take(db)) == 2
    end(db, 1)
    assert take(db) == []
    assert 590_000 < db.value("SELECT due_ms FROM queue._take('{q}', 1, NULL, NULL, false)") <= 600_000
    aged(db, "10 min")
    assert len(take(db)) == 1
    db.rows("SELECT queue.alter('q', reset_names => '{pause}')")
    end(db, 2)
    assert len(take(db)) == 1


def test_pause_of_pop(db):
    db.create("q", pause="10 min")
    pushed(db, _=5)
    assert len(db.rows("SELECT id FROM queue.pop('q', 5)")) == 1
    assert db.rows("SELECT id FROM queue.pop('q', 5)") == []
    aged(db, "10 min")
    assert len(db.rows("SELECT id FROM queue.pop('q', 5)")) == 1


@pytest.mark.parametrize("places", [1, 3, "none"])
def test_pause_per_group(db, places):
    db.create("q", pause_per_group="10 min", max_running_per_group=places)
    pushed(db, a=9, b=9)
    first = taken(db, 4)
    assert first == ({"a": 1, "b": 1} if places == 1 else {"a": 2, "b": 2})
    end(db, 1)
    assert "a" not in taken(db, 1)
    aged(db, "10 min")
    assert "a" in taken(db, 9)


def test_fair(db):
    db.create("q", max_running_per_group="none", fair="group")
    pushed(db, big=500, small=10)
    order = [group for _, group in take(db, 20)]
    assert order == ["big", "small"] * 10
    assert taken(db, 50) == {"big": 50}
    db.rows("SELECT queue.push('q', '1', \"group\" => 'new')")
    assert "new" in taken(db, 2)


def test_fair_with_places(db):
    db.create("q", max_running_per_group=3, fair="group")
    pushed(db, a=9, b=9, c=1)
    assert [group for _, group in take(db)] == ["a", "b", "c", "a", "b", "a", "b"]


def test_expired_ones_hold_up_nobody(db):
    db.create("q", max_running_per_group="none", fair="group")
    db.rows("SELECT queue.push('q', '1', \"group\" => 'a', expires => '1 ms') FROM generate_series(1, 1500)")
    pushed(db, a=2)
    assert taken(db) == {"a": 2}


@pytest.mark.parametrize("was,becomes,busy", [
    ({}, {"max_running_per_group": "3"}, {"a": 3}),
    ({"max_running_per_group": 3}, {"max_running_per_group": "2"}, {"a": 3}),
    ({}, {"max_running_per_group": "none"}, {"a": 9}),
    ({"max_running_per_group": "none"}, {"max_running_per_group": "2"}, {"a": 2}),
    ({"max_running_per_group": 4}, {"max_running_per_group": "none"}, {"a": 9}),
    ({"max_running_per_group": 4}, {"rate_per_group": "9/d burst 2"}, {"a": 4}),
])
def test_altered_with_jobs_inside(db, was, becomes, busy):
    db.create("q", **was)
    pushed(db, a=9, b=1)
    held = taken(db, 3)
    db.rows("SELECT queue.alter('q', %s, %s)", list(becomes), list(becomes.values()))
    for group, n in taken(db).items():
        held[group] = held.get(group, 0) + n
    assert held.get("a") == max(busy["a"], 3) and held["b"] == 1
    assert db.value("SELECT count(*) FROM queue.q_q WHERE \"group\" = 'a' AND state = 'leased'") <= max(busy["a"], 3)


def test_in_order_again(db):
    db.create("q", max_running_per_group=2)
    pushed(db, a=5, b=3)
    assert taken(db) == {"a": 2, "b": 2}
    error = db.fails("55006", "SELECT queue.alter('q', '{max_running_per_group}', '{1}')")
    assert "PAUSE q TAKE" in error.message_hint
    for id in (1, 6):
        end(db, id)
    db.rows("SELECT queue.alter('q', '{max_running_per_group}', '{1}')")
    assert take(db) == []
    end(db, 2)
    end(db, 7)
    assert take(db) == [(3, "a"), (8, "b")]
    assert not db.value("SELECT limited FROM queue.queues")


def test_dropped_whole(db):
    db.create("q", max_running_per_group=2, rate_per_group="5/s", pause="1 s")
    number = db.value("SELECT number FROM queue.queues")
    pushed(db, a=5)
    take(db)
    db.rows("SELECT queue.drop('q')")
    assert db.column("SELECT proname FROM pg_proc WHERE pronamespace = 'queue'::regnamespace AND proname ~ '_%s$'" % number) == []
    assert db.column("SELECT relname FROM pg_class WHERE relname ~ '^n%s_'" % number) == []


@pytest.mark.parametrize("option,value", [
    ("max_running_per_group", "0"), ("max_running_per_group", "10001"), ("max_running_per_group", "all"),
    ("rate_per_group", "5"), ("pause", "0"), ("pause", "2 years"), ("pause_per_group", "-1 s"), ("fair", "tenant"),
])
def test_bad_values(db, option, value):
    assert db.fails("22023", "SELECT queue.create('q', false, ARRAY[%s], ARRAY[%s])", option, value).message_hint


def test_a_queue_without_them_has_nothing(db):
    db.create("q")
    db.create("r", fair="group")
    assert db.column("SELECT limited OR by_group FROM queue.queues") == [False, False]
    assert db.value("SELECT count(*) FROM pg_class WHERE relname ~ '^n\\d+_(gate|noted|groups)$'") == 0


def test_rights(db):
    db.create("q", max_running_per_group=2)
    bob = db.connect("bob")
    db.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    bob.rows("SELECT queue.push('q', '1', \"group\" => 'a') FROM generate_series(1, 5)")
    bob.fails("42501", TAKE, 1)
    bob.fails("42501", "SELECT * FROM queue.n%s_noted" % db.value("SELECT number FROM queue.queues"))
    # set by hand, it lets nothing in
    bob.rows("SET qbouncer.admit = '%s'" % db.value("SELECT number FROM queue.queues"))
    bob.rows("SELECT queue.push('q', '1', \"group\" => 'a') FROM generate_series(1, 5)")
    db.rows("SELECT queue.grant('q', '{take}', '{bob}')")
    assert taken(bob) == {"a": 2}
    end(bob, 1)
    assert taken(bob) == {"a": 1}


def test_a_grant_by_hand_says_what_is_missing(db):
    db.create("q", max_running=2)
    pushed(db, _=1)
    db.rows("GRANT SELECT, INSERT, UPDATE, DELETE ON queue.q_q TO bob")
    error = db.connect("bob").fails("42501", TAKE, 1)
    assert error.message_primary == "permission denied for table q_q" and "QUEUE GRANT TAKE ON q TO bob" in error.message_hint


def test_a_pop_that_began_before_the_limit(db):
    db.create("q")
    pushed(db, _=5)
    popper, alters = db.connect(), db.connect()
    db.rows("BEGIN")
    db.rows("LOCK TABLE queue.q_q IN SHARE MODE")
    altered = alters.beside(alters.rows, "SELECT queue.alter('q', '{max_running}', '{1}')")
    db.until_blocked(alters)
    popped = popper.beside(popper.rows, "SELECT id FROM queue.pop('q', 3)")
    db.until_blocked(popper)
    db.rows("COMMIT")
    altered.result()
    popped.error_of("40001")
    assert len(db.rows("SELECT id FROM queue.pop('q', 3)")) == 1
    # who deletes them otherwise may
    db.rows("SELECT queue.cancel('1-3')")
    db.rows("SELECT queue.purge('q')")
    assert db.value("SELECT count(*) FROM queue.q_q") == 0


def test_a_push_and_an_end_that_do_not_see_each_other(db):
    db.create("q", max_running_per_group=1, rate_per_group="90000/s burst 99999")
    pushed(db, a=1)
    take(db)
    pusher, ender = db.connect(), db.connect()
    for first, last in ((pusher, ender), (ender, pusher)):
        id = db.value("SELECT id FROM queue.q_q WHERE state = 'leased'")
        pusher.rows("BEGIN")
        ender.rows("BEGIN")
        pusher.rows("SELECT queue.push('q', '1', \"group\" => 'a')")
        end(ender, id)
        first.rows("COMMIT")
        found = take(db)
        last.rows("COMMIT")
        assert found + take(db) == [(id + 1, "a")]


def test_two_ends_of_a_group_wait_for_nothing(db):
    db.create("q", max_running_per_group=2)
    pushed(db, a=4)
    take(db)
    one, two = db.connect(), db.connect()
    one.rows("BEGIN")
    two.rows("BEGIN")
    end(one, 1)
    end(two, 2)
    assert take(db) == []
    two.rows("COMMIT")
    assert take(db) == [(3, "a")]
    one.rows("ROLLBACK")
    assert take(db) == []


def test_never_more_than_the_limit(db):
    """Six who push, take and end at once."""
    db.create("q", max_running_per_group=2, max_running=5)
    problems, ended = [], []

    def work(n, s):
        try:
            while len(ended) < 200:
                s.rows("SELECT queue.push('q', '1', \"group\" => %s)", "abc"[len(ended) % 3])
                for token in s.column("SELECT token FROM queue.take('q', 3)"):
                    most = s.value("SELECT max(n) FROM (SELECT count(*) AS n FROM queue.q_q WHERE state = 'leased' GROUP BY \"group\") g")
                    if most > 2 or s.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") > 5:
                        problems.append(most)
                    how = ("done(%s)", "release(%s)", "fail(%s, 'x', retry_in => '0')")[len(ended) % 3 if n % 2 else 0]
                    s.rows("SELECT queue." + how, token)
                    ended.append(token)
        except psycopg.Error as e:
            problems.append(repr(e))

    threads = [threading.Thread(target=work, args=(n, db.connect())) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert problems == []
    # and nothing is left behind
    until = time.monotonic() + 30
    while db.value("SELECT count(*) FROM queue.q_q") and time.monotonic() < until:
        for token in db.column("SELECT token FROM queue.take('q', 10)"):
            db.rows("SELECT queue.done(%s)", token)
    assert db.value("SELECT count(*) FROM queue.q_q") == 0


def test_many_at_once(db):
    """So many that ends are noted."""
    db.create("q", max_running=1000)
    db.rows("INSERT INTO queue.q_q (payload) SELECT to_jsonb(n) FROM generate_series(1, 3000) n")
    tokens = db.column("SELECT token FROM queue.take('q', 2000)")
    assert len(tokens) == 1000 and take(db) == []
    db.rows("SELECT queue.done(%s)", tokens[0])
    other = db.connect()
    other.rows("BEGIN")
    other.rows("SELECT queue.done(%s)", tokens[1])
    assert len(take(db)) == 1 and take(db) == []
    other.rows("ROLLBACK")
    assert take(db) == []
    db.rows("SELECT queue.fail(t, 'x') FROM unnest(%s::text[]) t", tokens[1:501])
    assert len(take(db, 2000)) == 500
    assert db.value("SELECT count(*) FROM queue.q_q WHERE state = 'leased'") == 1000
    db.rows("SELECT queue.alter('q', '{max_running}', '{400}')")
    assert take(db) == []


def test_restored_elsewhere(db):
    """Numbers of transactions begin anew."""
    db.create("q", max_running_per_group=2)
    pushed(db, a=3)
    db.rows("UPDATE queue.n%s_gate SET read = '99999999999'" % db.value("SELECT number FROM queue.queues"))
    assert taken(db) == {"a": 2}
    assert db.value("SELECT read::text FROM queue.n%s_gate" % db.value("SELECT number FROM queue.queues")) != "99999999999"


@pytest.mark.parametrize("places", ["none", "3"])
def test_not_with_jobs_that_wait_for_others(db, places):
    db.create("q")
    db.rows("SELECT queue.push('q', '1')")
    db.rows("SELECT queue.push('q', '2'::jsonb, after => ARRAY['1-1'])")
    sql = "SELECT queue.alter('q', '{max_running_per_group}', ARRAY[%s])"
    assert db.fails("55006", sql, places).message_hint
    db.rows("SELECT queue.alter('q', '{max_running}', '{5}')")
    for id in (1, 2):
        assert take(db) == [(id, None)]
        end(db, id)
    db.rows(sql, places)


@pytest.mark.parametrize("options", [{"max_running_per_group": 2}, {"rate_per_group": "90000/s burst 1000"},
                                     {"max_running_per_group": "none", "fair": "group"}], ids=str)
def test_a_held_snapshot_keeps_nothing_that_is_read_again(db, options):
    """What has been of a group is not what is looked for."""
    db.create("q", **options)
    holder, watch = db.connect(), db.connect("postgres")
    with holder.conn.transaction():
        holder.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.rows("SELECT FROM queue.queues")
        for _ in range(150):
            pushed(db, g=2)
            assert taken(db, 2)["g"] >= 1
            db.rows("SELECT queue.done('1-' || id || '-' || token) FROM queue.q_q WHERE state = 'leased'")
        pushed(db, g=2)
        for _ in range(2):  # the second time everything is planned
            plan = watch.value("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT queue._admit_1(c, '{g}', NULL, NULL, NULL,"
                               " clock_timestamp(), '0', 1000000) FROM queue.queues AS c")  # fmt: skip
    assert plan[0]["Plan"]["Shared Hit Blocks"] < 200


def test_what_is_known_of_a_group_is_forgotten_and_found_again(db):
    db.create("q", max_running_per_group=2)
    pushed(db, a=5, b=3)
    assert taken(db) == {"a": 2, "b": 2}
    db.rows("UPDATE queue.n1_groups SET stale = now() - interval '1 s'")
    db.rows("UPDATE queue.n1_gate SET swept = '-infinity'")
    pushed(db, c=1)
    assert taken(db) == {"c": 1}
    assert db.column('SELECT "group" FROM queue.n1_groups') == ["c"]
    for id in (1, 2):
        end(db, id)
    assert taken(db) == {"a": 2} and db.value("SELECT inside FROM queue.n1_groups WHERE \"group\" = 'a'") == [3, 4]


def test_one_that_is_given_back_comes_before_those_behind_it(db):
    """Its number is lower than where the blocked ones begin."""
    db.create("q", rate_per_group="1000/s burst 100")
    pushed(db, g=4)
    for id in (1, 2):
        assert take(db) == [(id, "g")]
        end(db, id, "SELECT queue.release(%s)")
        assert take(db) == [(id, "g")]
        end(db, id, "SELECT queue.fail(%s, 'x', '0')" if id == 1 else "SELECT queue.done(%s)")
        if id == 1:
            assert take(db) == [(1, "g")]
            end(db, 1)


@pytest.mark.parametrize("by_hand", [
    "UPDATE queue.q_q SET \"group\" = 'a' WHERE \"group\" = 'b'",
    "UPDATE queue.n%s_groups SET inside = '{}' WHERE \"group\" = 'a'",
])
def test_a_job_under_way_that_its_group_does_not_know_of(db, by_hand):
    """It made each take fail, for good."""
    db.create("q", max_running_per_group=1, rate_per_group="1000/s burst 1000")
    if "n%s" in by_hand:
        pushed(db, a=1)
        by_hand = by_hand % db.value("SELECT number FROM queue.queues")
    else:
        pushed(db, a=1, b=1)
    job = max(id for id, _ in take(db))
    if job == 2:
        end(db, 1)
        assert take(db) == []
    db.rows(by_hand)
    pushed(db, a=1, c=1)
    assert taken(db) == {"c": 1}
    pushed(db, d=1)
    assert taken(db) == {"d": 1}
    end(db, job)
    assert taken(db) == {"a": 1}


def test_one_of_a_group_that_is_redriven_for_later(db):
    db.create("q", max_running_per_group=1, rate_per_group="1000/s burst 1000", max_attempts=1)
    pushed(db, a=1)
    take(db)
    end(db, 1, "SELECT queue.fail(%s, 'x')")
    db.rows("UPDATE queue.q_q SET state = 'later', run_at = clock_timestamp() + interval '1 h', ended_at = NULL WHERE state = 'dead'")
    pushed(db, a=1, c=1)
    assert taken(db) == {"c": 1}
    assert taken(db) == {}


GROUPED = "SELECT queue._push_keys('q', %s, 0, 'ignore', true, false)"


def grouped(*groups):
    """As the proxy says them: payload, key, group."""
    return [x for g in groups for x in ("1", None, g)]


def written(db, *tables):
    """Rows that this session has inserted into these of the queue's tables, and not told the statistics of yet."""
    n = db.value("SELECT number FROM queue.queues")
    return [db.value("SELECT pg_stat_get_xact_tuples_inserted(%s::regclass)", f"queue.n{n}_{t}") for t in tables]


def test_jobs_of_no_group_write_nothing_of_groups(db):
    db.create("q", max_running_per_group=3)
    before = written(db, "noted", "groups", "gate")
    db.rows("BEGIN")
    for _ in range(40):
        pushed(db, _=2)
        for token in db.column("SELECT token FROM queue.take('q', 2)"):
            db.rows("SELECT queue.done(%s)", token)
    assert db.value("SELECT count(*) FROM queue.q_q") == 0
    assert written(db, "noted", "groups", "gate") == before
    pushed(db, a=1)
    assert taken(db) == {"a": 1}
    assert written(db, "noted", "groups", "gate") == [n + 1 for n in before]
    db.rows("COMMIT")


def test_pushes_of_many_groups_are_one_statement(db):
    db.create("q", max_running_per_group=2)
    assert db.column(GROUPED, grouped("a", "b", None, "a", "a")) == [1, 2, 3, 4, 5]
    assert take(db) == [(3, None), (1, "a"), (4, "a"), (2, "b")]
    db.rows("SELECT queue.alter('q', ARRAY['max_running_per_group'], ARRAY['none'])")
    assert db.column(GROUPED, grouped("a", "a")) == [6, 7]
    assert len(take(db)) == 3
    # a key is looked at one by one
    jobs = ["1", "k", "a", "1", None, "a", "1", "k", "b"]
    assert db.column(GROUPED, jobs) == [8, 9, 8]


@pytest.mark.parametrize("options", [{}, {"max_running_per_group": "none"}, {"max_running_per_group": 2},
                                     {"max_running_per_group": 2, "fair": "group"}, {"rate_per_group": "5/h burst 3"}])
@pytest.mark.parametrize("trigger", ["a_first", "z_last"])
def test_an_owners_trigger_takes_the_group_away(db, trigger, options):
    """Behind the push, or our trigger, has seen one: the job is of no group then, and waits for nobody."""
    db.create("q", **options)
    db.rows("CREATE FUNCTION public.own() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.\"group\" := nullif(NEW.\"group\", 'no'); RETURN NEW; END $$")
    db.rows("CREATE TRIGGER %s BEFORE INSERT ON queue.q_q FOR EACH ROW EXECUTE FUNCTION public.own()" % trigger)
    assert db.column(GROUPED, grouped("no", "a", "no", "no")) == [1, 2, 3, 4]
    db.rows("SELECT queue.push('q', '1', \"group\" => 'no'), queue.push('q', '1', \"group\" => 'no', delay => '1 h')")
    assert sorted(take(db)) == [(1, None), (2, "a"), (3, None), (4, None), (5, None)]
    assert db.rows("SELECT id, state FROM queue.q_q WHERE state <> 'leased'") == [(6, "later")]


def test_no_rows_of_a_push_that_the_queue_refuses(db):
    db.create("q", max_running_per_group=2)
    db.fails("22P02", GROUPED, ["1", None, "a", "{", None, "b"])
    db.fails("22001", GROUPED, grouped("a", "b" * 1001))
    bob = db.connect("bob")
    bob.fails("42501", GROUPED, grouped("a"))
    assert db.value("SELECT count(*) FROM queue.q_q") == 0


def test_groups_that_get_an_order_while_a_push_waits(db):
    """It had been told that they had none."""
    db.create("q", max_running_per_group=2)
    db.rows("BEGIN")
    db.rows("SELECT queue.alter('q', ARRAY['max_running_per_group'], ARRAY['1'])")
    other = db.connect()
    push = other.beside(other.rows, GROUPED, grouped("a", "b", "a"))
    db.until_blocked(other)
    db.rows("COMMIT")
    push.error_of("40001")
    assert db.value("SELECT count(*) FROM queue.q_q") == 0
    assert other.column(GROUPED, grouped("a", "b", "a")) == [4, 5, 6]
    assert db.rows("SELECT id, state FROM queue.q_q ORDER BY id") == [(4, "ready"), (5, "ready"), (6, "blocked")]


@pytest.mark.parametrize("most", ["1", "2"])
def test_what_is_for_later_has_no_place_of_those_that_run(db, most):
    """A take goes on behind it, as often as there are such ones, and in order it waits for it."""
    db.create("q", max_running_per_group=most, **({"rate_per_group": "99/s burst 99"} if most == "1" else {}))
    pushed(db, a=6, b=3)
    db.rows("UPDATE queue.q_q SET run_at = clock_timestamp() + interval '1 h' WHERE id IN (1, 2, 4, 7)")
    assert sorted(take(db)) == ([] if most == "1" else [(3, "a"), (5, "a"), (8, "b"), (9, "b")])
    assert db.column("SELECT id FROM queue.q_q WHERE state = 'later' ORDER BY id") == ([1, 7] if most == "1" else [1, 2, 4, 7])
    assert db.column("SELECT id FROM queue.q_q WHERE state = 'blocked' ORDER BY id") == (
        [2, 3, 4, 5, 6, 8, 9] if most == "1" else [6])


def test_groups_are_let_in_as_they_were_heard_of(db):
    """And not by the numbers of their jobs."""
    db.create("q", max_running_per_group=2)
    pushed(db, a=4, b=4, c=4)
    assert taken(db) == {"a": 2, "b": 2, "c": 2}
    for id in (9, 1, 5):
        end(db, id)
    assert take(db) == [(11, "c"), (3, "a"), (7, "b")]


def test_many_groups_end_and_begin_at_once(db):
    """More than a note each: all are let in by one take, and known afterwards."""
    db.create("q", max_running_per_group=2)
    groups = [f"g{n}" for n in range(300)]
    db.column(GROUPED, grouped(*groups * 3))
    assert sorted(taken(db, 1000).items()) == sorted((g, 2) for g in groups)
    tokens = db.column("SELECT (SELECT number FROM queue.queues) || '-' || id || '-' || token FROM queue.q_q WHERE state = 'leased'")
    db.rows("SELECT queue.done(%s::text[])", tokens)
    assert sorted(taken(db, 1000).items()) == sorted((g, 1) for g in groups)
    n = db.value("SELECT number FROM queue.queues")
    assert db.row(f"SELECT count(*), count(*) FILTER (WHERE cardinality(inside) = 1 AND head IS NULL) FROM queue.n{n}_groups") == (300, 300)


def test_a_group_that_opens_while_a_take_runs_is_not_forgotten(db):
    """What is known of it is old enough for that at the same moment, when it waits longer than 30 s."""
    db.create("q", max_running_per_group="none", rate_per_group="1/min")
    pushed(db, a=2, b=1)
    assert taken(db) == {"a": 1, "b": 1} and taken(db) == {}
    db.rows("""CREATE FUNCTION public.waits() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END';
        CREATE TRIGGER waits BEFORE UPDATE ON queue.q_q FOR EACH ROW WHEN (NEW.state = 'leased') EXECUTE FUNCTION public.waits()""")
    pushed(db, c=1)
    db.rows("SELECT pg_advisory_lock(7)")
    other = db.connect()
    take_c = other.beside(taken, other)
    db.until_blocked(other)
    db.rows("UPDATE queue.n1_groups SET (tat, opens, stale) = (SELECT m, m, m FROM clock_timestamp() AS m) WHERE \"group\" = 'a'")
    db.rows("SELECT pg_advisory_unlock(7)")
    assert take_c.result() == {"c": 1}
    assert taken(db) == {"a": 1}


def test_more_groups_open_than_a_take_looks_at(db):
    """Nobody has taken for a while: what is known of them is old, and they wait none the less."""
    db.create("q", max_running_per_group="none", rate_per_group="1/min")
    groups = [f"g{n}" for n in range(1100)]
    db.column(GROUPED, grouped(*groups * 2))
    assert len(take(db, 2000)) == 1100 and take(db) == []
    aged(db, "1 h")
    db.rows("UPDATE queue.n1_groups SET stale = opens")
    db.rows("UPDATE queue.n1_gate SET swept = '-infinity'")
    pushed(db, new=1)
    assert sum(len(take(db, 100)) for _ in range(13)) == 1101


def updated(db):
    return db.value("SELECT pg_stat_get_xact_tuples_updated('queue.q_q'::regclass)")


def test_who_is_let_in_is_leased_at_once(db):
    """And not written as ready before. What is there of it is what any take writes."""
    db.create("q", max_running_per_group=2)
    pushed(db, a=3, b=1)
    db.rows("BEGIN")
    before = updated(db)
    assert take(db, 3) == [(1, "a"), (2, "a"), (4, "b")]
    assert updated(db) - before == 3
    db.rows("COMMIT")
    other = "SELECT (to_jsonb(j) - '{id, position, pushed_at, taken_at, lease_until, due, token, payload, group, run_at}'::text[])::text FROM queue.%s AS j WHERE state = 'leased'"
    first = set(db.column(other % "q_q"))
    db.create("r")
    db.rows("SELECT queue.push('r', '1')")
    assert len(db.rows("SELECT queue.take('r', 1)")) == 1
    assert first == set(db.column(other % "q_r"))
    db.rows("SELECT queue.drop('r')")
    assert db.row("SELECT bool_and(length(token) = 16 AND due = lease_until AND lease_until - taken_at = (SELECT lease FROM queue.queues WHERE name = 'q')), count(DISTINCT token)"
                  " FROM queue.q_q WHERE state = 'leased'") == (True, 3)
    for id, how in ((1, "SELECT queue.done(%s)"), (2, "SELECT queue.fail(%s, 'x', '0')"), (4, "SELECT queue.release(%s)")):
        end(db, id, how)
    assert sorted(take(db)) == [(2, "a"), (3, "a"), (4, "b")]
    assert db.rows("SELECT id, attempt, failures, first_taken_at IS NULL FROM queue.q_q ORDER BY id") == [
        (2, 2, 1, False), (3, 1, 0, True), (4, 1, 0, False)]


def test_what_is_ready_comes_before_those_that_are_let_in(db):
    """As far as it is asked for; and nothing that stays ready has a place in front of one that was taken."""
    db.create("q", max_running_per_group=3)
    pushed(db, _=2, a=4, b=2)
    assert take(db, 3) == [(1, None), (2, None), (3, "a")]
    states = "SELECT id, state FROM queue.q_q WHERE state <> 'leased' ORDER BY position"
    assert db.rows(states)[-4:] == [(4, "ready"), (5, "ready"), (7, "ready"), (8, "ready")]
    pushed(db, c=1, _=1)
    assert take(db, 2) == [(4, "a"), (5, "a")]
    assert take(db, 9) == [(7, "b"), (8, "b"), (10, None), (9, "c")]
    assert db.rows("SELECT id, state FROM queue.q_q WHERE state <> 'leased'") == [(6, "blocked")]
    assert db.value("SELECT max(position) FROM queue.q_q WHERE id = 9") > db.value("SELECT max(position) FROM queue.q_q WHERE id <> 9")


def test_the_proxy_begins_behind_those_that_were_let_in(db):
    """What it has seen is where the next take begins: nothing is passed over."""
    db.create("q", max_running_per_group=2)
    groups = [f"g{n % 20}" for n in range(200)]
    db.column(GROUPED, grouped(*groups))
    take_some = """SELECT t.id, t.token, t.place FROM queue.queues AS c, LATERAL queue._take_1(c, %s, '1 h', 'w', NULL, false, '{0}',
        ARRAY[%s::int8], -(extract(epoch FROM clock_timestamp()) * 1000000)::int8, clock_timestamp(), NULL) AS t WHERE t.id IS NOT NULL"""
    place, seen = 0, []
    for n in range(1000):
        jobs = db.rows(take_some, n % 7 + 1, place)
        for id, token, at in jobs:
            seen.append(id)
            place = max(place, at + 1)
            db.rows("SELECT queue.done(%s)", token)
        if not jobs:
            break
        if n % 3 == 0 and n < 30:
            pushed(db, _=2, g3=1)
    assert len(seen) == len(set(seen)) == 230 and db.value("SELECT count(*) FROM queue.q_q") == 0


@pytest.mark.parametrize("ready", [True, False])
def test_who_is_let_in_has_its_priority(db, ready):
    db.create("q", max_running_per_group=2)
    if ready:
        db.rows("SELECT queue.push('q', '1', priority => 3)")
    for group, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 7)):
        db.rows("SELECT queue.push('q', '1', \"group\" => %s, priority => %s)", group, priority)
    order = [g for _, g in take(db, 2) + take(db, 1) + take(db, 2)]
    assert order == (["d", "b", None, "a", "c"] if ready else ["d", "b", "a", "c"])


def test_what_may_not_be_taken_is_not_leased(db):
    """For later, or late: it makes room for the next one of its group."""
    db.create("q", max_running_per_group=2)
    pushed(db, a=6)
    db.rows("UPDATE queue.q_q SET run_at = clock_timestamp() + interval '1 h' WHERE id = 2")
    db.rows("UPDATE queue.q_q SET expires_at = clock_timestamp() - interval '1 s' WHERE id = 3")
    assert take(db, 9) == [(1, "a"), (4, "a")]
    assert db.rows("SELECT id, state FROM queue.q_q ORDER BY id") == [(1, "leased"), (2, "later"), (4, "leased"), (5, "blocked"), (6, "blocked")]
    # whom somebody has locked is passed over
    locks = db.connect()
    locks.rows("BEGIN")
    locks.rows("SELECT FROM queue.q_q WHERE id = 5 FOR UPDATE")
    end(db, 1)
    assert take(db, 9) == [(6, "a")]
    locks.rows("ROLLBACK")
    end(db, 4)
    assert take(db, 9) == [(5, "a")]


def test_an_end_of_which_nobody_waits_writes_nothing_of_its_group(db):
    db.create("q", max_running_per_group=2)
    pushed(db, a=2, b=1)
    assert taken(db) == {"a": 2, "b": 1}
    end(db, 1)
    end(db, 3)
    db.rows("BEGIN")
    before = written(db, "groups")
    assert taken(db) == {}
    assert written(db, "groups") == before
    db.rows("COMMIT")
    pushed(db, a=3, b=3)
    assert taken(db) == {"a": 1, "b": 2}
    assert db.rows('SELECT "group", inside FROM queue.n1_groups ORDER BY 1') == [("a", [2, 4]), ("b", [7, 8])]


@pytest.mark.parametrize("then", [{"rate_per_group": "99/s burst 99"}, {"max_running": 50}, {"fair": "group"}, {"max_running_per_group": 3}])
def test_other_limits_and_back(db, then):
    """What takes call has other parameters then."""
    db.create("q", max_running_per_group=2)
    pushed(db, a=9)
    assert taken(db) == {"a": 2}
    name, value = then.copy().popitem()
    db.rows("SELECT queue.alter('q', ARRAY[%s], ARRAY[%s])", name, str(value))
    for id in (1, 2):
        end(db, id)
    assert len(take(db, 1)) == 1
    if name == "max_running_per_group":
        db.rows("SELECT queue.alter('q', ARRAY['max_running_per_group'], ARRAY['2'])")
    else:
        db.rows("SELECT queue.alter('q', '{}', '{}', ARRAY[%s])", name)
    assert taken(db) == {"a": 1}


def test_who_does_not_wait_and_finds_nothing(db):
    """It asks of nothing more, and hears what came since."""
    found = """SELECT t.id, t.edge IS NOT NULL FROM queue.queues AS c, LATERAL queue._take_1(c, 5, '1 h', 'w', NULL, false, %s, %s,
        %s, clock_timestamp(), NULL) AS t"""
    db.create("q", max_running_per_group=2)
    pushed(db, a=3)
    assert [id for id, _ in db.rows(found, [0], [0], -1)] == [1, 2]
    for prios, low_marks in (([0], [0]), ([], []), ([5], [0]), ([0], [99])):
        assert db.rows(found, prios, low_marks, -1) == [(None, True)]
    pushed(db, _=1)
    assert db.rows(found, [5], [0], -1) == [(4, True)]
    db.rows("SELECT queue.push('q', '1', priority => 7)")
    assert db.rows(found, [0], [99], -1) == [(5, True)]
    end(db, 4, "SELECT queue.fail(%s, 'x', '0')")
    assert db.rows(found, [0], [0], -1)[0][0] == 4
    end(db, 1)
    assert [id for id, _ in db.rows(found, [0], [99], -1)] == [3]


def test_a_lease_that_is_over_within_its_take(db):
    """What is let in is leased before what is ready: by then such a lease may be over, and the job was given without a token."""
    db.create("q", max_running_per_group=2, retry="fixed 1 h")
    pushed(db, a=2, _=1)
    first = db.take("q", 10, lease="1 microsecond")
    assert first and all(job["token"] for job in first)
    assert len({job["token"] for job in first}) == len(first)
    db.expire("q")
    rest = db.take("q", 10)
    assert sorted(job["id"] for job in rest) == [1, 2, 3] and all(job["token"] for job in rest)


def test_what_is_let_in_behind_what_is_delayed(db):
    """A second look lets in more, of the priority that may be leased at once: those of the first one are taken, too."""
    db.create("q", max_running_per_group=1)
    for priority, delay in ((0, "1 h"), (0, "1 h"), (5, None), (0, None), (0, None)):
        db.rows("SELECT queue.push('q', '1'::jsonb, priority => %s, delay => %s::interval, \"group\" => 'a')", priority, delay)
    db.rows("SELECT queue.alter('q', ARRAY['max_running_per_group'], ARRAY['3'])")
    assert sorted(job["id"] for job in db.take("q", 10)) == [3, 4, 5]
