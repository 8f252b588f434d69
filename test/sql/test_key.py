"""PUSH with KEY: one unfinished job of a key, whatever others do at the same time."""

import psycopg
import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


def push(session, payload="1", key="k", duplicate=None, **more):
    """The ids that PUSH ... RETURNING ID gives."""
    named = {"key": key, "duplicate": duplicate, "with_old": True, **more}
    return session.column("SELECT queue._push('q', ARRAY[%s], NULL, NULL, NULL, NULL, false, " % "'%s'" % payload
                          + ", ".join('"%s" => %s' % (k, "%s") for k in named) + ")", *named.values())


def jobs(session):
    return session.rows("SELECT id, state, payload::text FROM queue.q_q ORDER BY id")


def test_ignore_is_the_default(q):
    assert push(q, "1") == push(q, "2") == push(q, "3", duplicate="ignore") == [1]
    assert push(q, "4", with_old=False) == []
    assert jobs(q) == [(1, "ready", "1")]
    assert push(q, "5", key="other") != [1]
    assert q.value("SELECT queue.push('q', '6', key => 'k')") == 1


def test_a_finished_one_is_not_in_the_way(q):
    push(q)
    q.done(q.take("q")[0]["token"])
    second = push(q)
    assert second != [1]
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.fail(%s, 'no', final => true)", token)
    assert push(q) != second


def test_error(q):
    push(q)
    e = q.fails("23505", "SELECT queue.push('q', '2', key => 'k', on_duplicate => 'error')")
    assert "job 1" in e.message_detail and "IGNORE" in e.message_hint


def test_replace_one_that_waits(q):
    push(q, "1")
    assert push(q, "2", duplicate="replace", expires="1 h", attempts=3) == [1]
    assert jobs(q) == [(1, "ready", "2")]
    assert q.rows("SELECT max_attempts, expires_at > now() FROM queue.q_q") == [(3, True)]
    q.rows("SELECT queue.push('q', '3', key => 'k', on_duplicate => 'replace', delay => '1 h')")
    assert jobs(q) == [(1, "later", "3")]
    push(q, "4", duplicate="replace")
    assert [j["payload"] for j in q.take("q", 9)] == [4]


def test_replace_one_that_runs(q):
    """Its worker has the old payload, so it runs once more, with the new one."""
    push(q, "1")
    token = q.take("q")[0]["token"]
    assert push(q, "2", duplicate="replace") == [1]
    assert q.take("q") == []
    q.done(token)
    job = q.take("q")[0]
    assert (job["id"], job["payload"], job["attempt"]) == (1, 2, 1)
    q.done(job["token"])
    assert jobs(q) == []


def test_replace_one_that_was_given_back_runs_once(q):
    """It had been replaced while it ran: what comes now is the last of it."""
    push(q, "1")
    token = q.take("q")[0]["token"]
    push(q, "2", duplicate="replace")
    q.rows("SELECT queue.release(%s)", token)
    push(q, "3", duplicate="replace")
    q.done(q.take("q")[0]["token"])
    assert jobs(q) == []


def test_rerun(q):
    push(q, "1")
    assert push(q, "2", duplicate="rerun") == [1]
    token = q.take("q")[0]["token"]
    q.done(token)
    assert jobs(q) == []  # it waited: nothing to run again
    second = push(q, "3")
    token = q.take("q")[0]["token"]
    for _ in range(3):
        assert push(q, "4", duplicate="rerun") == second
    q.done(token)
    job = q.take("q")[0]
    assert (job["id"], job["payload"]) == (second[0], 3)
    q.done(job["token"])
    assert jobs(q) == []


@pytest.mark.parametrize("end", ["fail", "expire", "give back"])
def test_rerun_of_one_that_dies(q, end):
    q.rows("SELECT queue.alter('q', ARRAY['max_attempts'], ARRAY['1'], '{}')")
    push(q, "1")
    token = q.take("q")[0]["token"]
    push(q, "1", duplicate="rerun")
    if end == "fail":
        q.rows("SELECT queue.fail(%s, 'no', retry_in => '0')", token)
    elif end == "expire":
        q.expire("q")
    else:
        q.rows("SELECT queue._give_back(ARRAY[%s], 'gone', true)", token)
    token = q.take("q")[0]["token"]
    q.rows("SELECT queue.fail(%s, 'no')", token)
    assert jobs(q) == [(1, "dead", "1")]


def test_expired_but_still_there(q):
    """It will never be taken: the push must not be lost to it."""
    push(q, "1", expires="1 h")
    q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s'")
    assert push(q, "2") != [1]
    assert [p for _, _, p in jobs(q)] == ["2"]


def test_cancelled_while_it_runs(q):
    push(q, "1")
    q.take("q")
    q.rows("SELECT queue._cancel(ARRAY['1'], false)")
    assert push(q, "2") != [1]


def test_a_trigger_that_wants_none_and_groups_without_order(q):
    """None is pushed, however many they are; of some of them it is said."""
    q.rows("SELECT queue.alter('q', '{max_running_per_group}', '{none}', '{}')")
    q.rows("CREATE FUNCTION public.wants_none() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
           "RETURN CASE WHEN NEW.payload::text = '9' THEN NEW END; END $$")
    q.rows("CREATE TRIGGER wants_none BEFORE INSERT ON queue.q_q FOR EACH ROW EXECUTE FUNCTION public.wants_none()")
    assert push_grouped(q, "1") == [None]
    assert push_grouped(q, "1", "2") == [None, None]
    assert "one by one" in q.fails("23000", "SELECT queue._push_keys('q', ARRAY['1', NULL, 'g', '9', NULL, 'g'], 0, 'ignore', "
                                   "false, false)").message_hint
    assert [payload for _, _, payload in jobs(q)] == []


def test_bad(q):
    q.fails("22023", "SELECT queue.push('q', '1', on_duplicate => 'ignore')")
    q.fails("22023", "SELECT queue.push('q', '1', key => 'k', on_duplicate => 'x')")
    q.fails("22001", "SELECT queue.push('q', '1', key => repeat('x', 1001))")
    e = q.fails("22023", "SELECT queue._push('q', ARRAY['1', '2'], 0, NULL, NULL, NULL, false, key => 'k')")
    assert "one by one" in e.message_hint


def test_rerun_and_redrive_of_dead_ones(q):
    for _ in range(2):
        push(q)
        q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    assert q.value("SELECT queue.redrive('q')") == 1  # the last of a key
    assert [s for _, s, _ in jobs(q)].count("ready") == 1
    assert q.value("SELECT queue.redrive('q')") == 0
    e = q.fails("23505", "SELECT queue.rerun('1')")
    assert "has another job with the key of job" in e.message_primary and "has ended" in e.message_hint


# -- at the same time ------------------------------------------------------------------------------

def beside_push(session, payload="2"):
    return session.beside(session.rows, "SELECT queue.push('q', %s, key => 'k')", payload)


def test_two_at_once(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    first = push(one, "1")
    waits = beside_push(two)
    q.until_blocked(two)
    one.rows("COMMIT")
    assert waits.result() == [(first[0],)]
    assert len(jobs(q)) == 1


def test_the_first_is_rolled_back(q):
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    push(one, "1")
    waits = beside_push(two)
    q.until_blocked(two)
    one.rows("ROLLBACK")
    waits.result()
    assert [p for _, _, p in jobs(q)] == ["2"]


def test_the_first_is_being_finished(q):
    """IGNORE does not wait: the job was not finished yet. What is to change it waits."""
    for end in ("ROLLBACK", "COMMIT"):
        first = push(q, "1")
        token = q.take("q")[0]["token"]
        one, two = q.connect(), q.connect()
        one.rows("BEGIN")
        one.done(token)
        assert push(two) == first
        waits = two.beside(two.rows, "SELECT queue.push('q', '2', key => 'k', on_duplicate => 'replace')")
        q.until_blocked(two)
        one.rows(end)
        assert (waits.result() == [(first[0],)]) == (end == "ROLLBACK")
        assert [p for _, _, p in jobs(q)] == ["2"]
        q.rows("DELETE FROM queue.q_q")


def test_replace_and_take(q):
    push(q, "1")
    one, two = q.connect(), q.connect()
    one.rows("BEGIN")
    push(one, "2", duplicate="replace")
    assert two.take("q") == []
    one.rows("COMMIT")
    assert two.take("q")[0]["payload"] == 2


def test_repeatable_read(q):
    one = q.connect()
    one.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    one.rows("SELECT 1")
    push(q, "1")
    with pytest.raises(psycopg.errors.SerializationFailure):
        push(one, "2")


def test_who_may_only_push(q):
    q.rows("SELECT queue.grant('q', ARRAY['push'], ARRAY['bob'])")
    bob = q.connect("bob")
    assert push(bob) == push(bob) == [1]
    bob.fails("23505", "SELECT queue.push('q', '2', key => 'k', on_duplicate => 'error')")
    bob.fails("42501", "SELECT queue.push('q', '2', key => 'k', on_duplicate => 'replace')")
    bob.fails("42501", "SELECT payload FROM queue.q_q")
    q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s'")
    assert push(bob) != [1]


def test_who_may_push_and_take_may_replace(q):
    q.rows("SELECT queue.grant('q', ARRAY['push', 'take'], ARRAY['bob'])")
    bob = q.connect("bob")
    push(bob)
    for more in ("priority => 5", "priority => 5, delay => '1 h'"):
        assert bob.value("SELECT queue.push('q', '2', key => 'k', on_duplicate => 'replace', %s)" % more) == 1
    assert push(bob, "4", duplicate="replace") == [1]
    token = bob.take("q")[0]["token"]
    assert push(bob, "5", duplicate="replace") == [1]
    bob.done(token)
    assert bob.take("q")[0]["payload"] == 5


def test_one_that_is_replaced_keeps_its_place(q):
    push(q, "1")
    q.push("q", "2")
    push(q, "3", duplicate="replace")
    assert [j["payload"] for j in q.take("q", 9)] == [3, 2]


def hand(session, jobs, takers=1, duplicate="ignore", with_old=False):
    """Pushes that are handed over to so many who wait: (id, is it theirs?) of each job, a payload, a key and a
    group."""
    return session.rows(
        "SELECT id, token IS NOT NULL FROM queue._hand_keys_1((SELECT c FROM queue.queues AS c WHERE number = 1), %s, 0, "
        "array_fill(7, ARRAY[%s]), array_fill('1 h'::text, ARRAY[%s]), array_fill('w'::text, ARRAY[%s]), 0, '{}', '{}', "
        "NULL, %s, %s)", [x for job in jobs for x in job], takers, takers, takers, duplicate, with_old)


def states(session):
    return session.rows("SELECT payload::text, state, attempt, token IS NOT NULL, lease_until - pushed_at > '59 min', "
                        "worker, proxy FROM queue.q_q ORDER BY payload::text")


LEASED, READY, BLOCKED = (("leased", 1, True, True, "w", 7), ("ready", 0, False, None, None, None),
                          ("blocked", 0, False, None, None, None))


def test_hand_over(q):
    """Who is not given one is given the next, as long as nothing has become ready."""
    got = hand(q, [("1", "a", None), ("2", "a", None), ("3", None, "g"), ("4", None, "g"), ("5", "b", "h"),
                   ("6", "c", None), ("7", None, "i")], 3)
    assert [theirs for _, theirs in got] == [True, False, True, False, True, False, False]
    assert [i is None for i, _ in got] == [False, True] + [False] * 5
    assert states(q) == [(n,) + s for n, s in zip("134567", (LEASED, LEASED, BLOCKED, LEASED, READY, READY))]
    # what was left over goes first
    assert [theirs for _, theirs in hand(q, [("8", "d", None)])] == [False]


def test_hand_over_what_is_there(q):
    (number,) = push(q, key="a")
    q.rows("UPDATE queue.q_q SET state = 'later', run_at = now() + interval '1 h'")
    assert hand(q, [("2", "a", None)]) == [(None, False)]
    assert hand(q, [("2", "a", None)], with_old=True) == [(number, False)]
    got = hand(q, [("2", "a", None), ("3", "b", None)], 2, "replace")
    assert got[0] == (number, False) and not got[1][1]
    assert [s[:2] for s in states(q)] == [("2", "ready"), ("3", "ready")]
    q.fails("23505", "SELECT * FROM queue._hand_keys_1((SELECT c FROM queue.queues AS c WHERE number = 1), "
            "ARRAY['4', 'a', NULL], 0, '{7}', '{1 h}', '{w}', 0, '{}', '{}', NULL, 'error', false)")


def test_hand_over_behind_what_it_sets_free(q):
    """One whose time is over has the key, and was the first of a group."""
    push(q, expires="1 microsecond", group="g")
    push(q, "2", key=None, group="g")
    q.rows("UPDATE queue.q_q SET state = 'later', run_at = now() + interval '1 h' WHERE state = 'ready'")
    assert [theirs for _, theirs in hand(q, [("3", "k", None), ("4", "l", None)], 2)] == [False, False]
    assert [job["payload"] for job in q.take("q", 9)] == [2, 3, 4]


def test_hand_over_the_next_of_a_group(q):
    """The trigger that lets it go on does not care how the first was leased."""
    hand(q, [("1", None, "g"), ("2", None, "g"), ("3", None, "g")], 3)
    for n in (1, 2, 3):
        token = q.value("SELECT '1-' || id || '-' || token FROM queue.q_q WHERE state = 'leased'")
        assert q.value("SELECT payload::text FROM queue.q_q WHERE state = 'leased'") == str(n)
        q.done(token)
        assert len(q.take("q", 5)) == (n < 3)


def test_hand_over_by_who_may_not_take(q):
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    assert [theirs for _, theirs in hand(q.connect("bob"), [("1", "a", None), ("2", None, "g")], 2)] == [False, False]
    q.rows("DELETE FROM queue.q_q")
    q.rows("SELECT queue.pause('q')")
    assert [theirs for _, theirs in hand(q, [("1", "a", None)])] == [False]


UNWANTED = """
    CREATE FUNCTION unwanted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN CASE WHEN NEW.payload <> ''1'' THEN NEW END; END';
    CREATE TRIGGER unwanted BEFORE INSERT ON queue.q_q FOR EACH ROW EXECUTE FUNCTION unwanted();"""


@pytest.mark.parametrize("options", [
    "", "\"group\" => 'g'", "key => 'k'", "key => 'k', on_duplicate => 'replace'", "key => 'k', on_duplicate => 'error'",
    "key => 'k', \"group\" => 'g'", "key => 'k', keep_for => '1h'", "after => ARRAY['1-1']", "batch => 'b'"])
def test_a_trigger_that_wants_none(q, options):
    """It is no job, and no error, however it is pushed; others are pushed as ever."""
    q.rows("SELECT queue.push('q', '0')")
    q.rows(UNWANTED)
    more = ", " + options if options else ""
    assert q.value("SELECT queue.push('q', '1'%s)" % more) is None
    assert q.value("SELECT queue.push('q', '2'%s)" % more) is not None
    assert q.column("SELECT payload::text FROM queue.q_q ORDER BY id") == ["0", "2"]
    assert q.value("SELECT max(id) FROM queue.q_q") < 20


OWN_INDEX = "CREATE UNIQUE INDEX of_the_owner ON queue.q_q ((payload::text)) WHERE state <> 'blocked'"


@pytest.mark.parametrize("options", [
    "", "\"group\" => 'g'", "key => 'k'", "key => 'k', on_duplicate => 'replace'", "key => 'k', on_duplicate => 'rerun'",
    "key => 'k', on_duplicate => 'error'", "key => 'k', \"group\" => 'g'", "key => 'k', keep_for => '1h'", "batch => 'b'"])
def test_an_index_of_the_owners(q, options):
    """Its own error, and soon, however a job is pushed; others are pushed as ever."""
    q.rows("SELECT queue.push('q', '1')")
    q.rows(OWN_INDEX)
    more = ", " + options if options else ""
    assert q.fails("23505", "SELECT queue.push('q', '1'%s)" % more).constraint_name == "of_the_owner"
    assert q.value("SELECT queue.push('q', '2'%s)" % more) is not None
    assert q.column("SELECT payload::text FROM queue.q_q ORDER BY id") == ["1", "2"]
    assert q.value("SELECT max(id) FROM queue.q_q") < 20


def test_an_exclusion_constraint_of_the_owners(q):
    q.rows("SELECT queue.push('q', '1')")
    q.rows("ALTER TABLE queue.q_q ADD CONSTRAINT apart EXCLUDE (priority WITH =)")
    assert q.fails("23P01", "SELECT queue.push('q', '2', key => 'k')").constraint_name == "apart"
    assert q.value("SELECT queue.push('q', '2', key => 'k', priority => 1)") is not None


def push_grouped(session, *payloads):
    """As the proxy pushes several of groups that have no order."""
    return session.column("SELECT queue._push_keys('q', %s::text[], 0, 'ignore', false, false)",
                          [word for payload in payloads for word in (payload, None, "g")])


def test_an_index_of_the_owners_and_groups_without_order(q):
    """One that is refused by its own error; of several it is said that one is: the proxy looks for it."""
    q.rows("SELECT queue.alter('q', '{max_running_per_group}', '{none}', '{}')")
    q.rows("SELECT queue.push('q', '1')")
    q.rows(OWN_INDEX)
    assert q.fails("23505", "SELECT queue._push_keys('q', ARRAY['1', NULL, 'g'], 0, 'ignore', false, false)").constraint_name \
        == "of_the_owner"
    assert "one by one" in q.fails("23000", "SELECT queue._push_keys('q', ARRAY['1', NULL, 'g', '2', NULL, 'g'], 0, 'ignore', "
                                   "false, false)").message_hint
    assert len(push_grouped(q, "2", "3")) == 2
    assert q.column("SELECT payload::text FROM queue.q_q ORDER BY id") == ["1", "2", "3"]


def test_a_trigger_that_wants_none_and_groups_without_order(q):
    q.rows("SELECT queue.alter('q', '{max_running_per_group}', '{none}', '{}')")
    q.rows(UNWANTED)
    assert push_grouped(q, "1") == [None]
    q.fails("23000", "SELECT queue._push_keys('q', ARRAY['1', NULL, 'g', '2', NULL, 'g'], 0, 'ignore', false, false)")
    assert push_grouped(q, "2", "3") != [None, None]
    assert q.column("SELECT payload::text FROM queue.q_q ORDER BY id") == ["2", "3"]


UNCHANGED = """
    CREATE FUNCTION unchanged() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER unchanged BEFORE UPDATE OR DELETE ON queue.q_q FOR EACH ROW EXECUTE FUNCTION unchanged();"""


@pytest.mark.parametrize("duplicate", ["replace", "rerun"])
def test_a_trigger_that_wants_no_change(q, duplicate):
    """The job that is there counts, as it is."""
    first = push(q, "1")
    q.rows(UNCHANGED)
    assert push(q, "2", duplicate=duplicate) == first
    assert push(q, "2", duplicate=duplicate, with_old=False) == []
    assert jobs(q) == [(first[0], "ready", "1")]


def test_a_trigger_that_keeps_what_was_late(q):
    """It will never be taken, and has the key."""
    push(q, "1", expires="1 microsecond")
    q.rows(UNCHANGED)
    q.fails("23505", "SELECT queue.push('q', '2', key => 'k')")


def test_a_trigger_that_holds_a_group(q):
    """Who ends its first does not look for the next one for ever."""
    push(q, "1", key=None, group="g")
    push(q, "2", key=None, group="g")
    q.rows(UNCHANGED.replace(" OR DELETE", "").replace("FOR EACH ROW", "FOR EACH ROW WHEN (OLD.state = 'blocked')"))
    q.rows("SET statement_timeout = '20 s'")
    q.done(q.take("q")[0]["token"])
    assert jobs(q) == [(2, "blocked", "2")]


def test_an_index_of_the_owners_and_the_next_of_a_group(q):
    """Whoever would make it ready is told: nobody would look for it again."""
    push(q, "1", key=None, group="g")
    push(q, "2", key=None, group="g")
    q.rows("SELECT queue.push('q', '2')")
    q.rows(OWN_INDEX)
    token = q.take("q")[0]["token"]
    assert q.fails("23505", "SELECT * FROM queue._done(%s::text[], false)", [token]).constraint_name == "of_the_owner"
    q.rows("DELETE FROM queue.q_q WHERE state = 'ready'")
    q.done(token)
    assert jobs(q) == [(2, "ready", "2")]


def test_an_index_of_the_owners_and_one_that_is_run_again(q):
    """It is not the key that is in the way."""
    push(q, "1")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    q.rows("CREATE UNIQUE INDEX of_the_owner ON queue.q_q ((payload::text)) WHERE state = 'ready'")
    q.rows("SELECT queue.push('q', '1')")
    assert q.fails("23505", "SELECT queue.rerun('1')").constraint_name == "of_the_owner"


REINDEXED = ["_ccold", "_ccnew", "_ccnew1"]


def rename_index(q, index, suffix):
    """As REINDEX CONCURRENTLY does meanwhile, or when it has failed."""
    q.rows("ALTER INDEX queue.%s RENAME TO %s%s" % (index, index, suffix))


@pytest.mark.parametrize("suffix", REINDEXED)
def test_an_index_that_is_built_anew_and_one_that_is_run_again(q, suffix):
    push(q, "1")
    q.rows("SELECT queue.fail(%s, 'no', final => true)", q.take("q")[0]["token"])
    push(q, "2")
    rename_index(q, "n1_key", suffix)
    assert "another job with the key of job 1-1" in q.fails("23505", "SELECT queue.rerun('1')").message_primary


@pytest.mark.parametrize("suffix", REINDEXED)
def test_an_index_that_is_built_anew_and_the_next_of_a_group(q, suffix):
    """Another one of the group becomes ready beside it: then the end has nothing more to do."""
    push(q, "1", key=None, group="g")
    push(q, "2", key=None, group="g")
    push(q, "3", key=None, group="g")
    rename_index(q, "n1_group", suffix)
    q.rows("UPDATE queue.q_q SET \"group\" = 'h' WHERE id = 1")
    q.rows("UPDATE queue.q_q SET state = 'ready' WHERE id = 2")
    assert q.value("SELECT queue._next_1('g')") is False
    assert [s for _, s, _ in jobs(q)] == ["ready", "ready", "blocked"]


# The first inserts are passed over, as if others' jobs had come and gone; then there is another one with the key.
IN_BETWEEN = """
CREATE SEQUENCE public.tries;
CREATE FUNCTION public.passed_over() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE n int8 := nextval('public.tries'); BEGIN
    IF n > 4 THEN RETURN NEW; END IF;
    IF n = 4 THEN RAISE unique_violation USING CONSTRAINT = '%s'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER passed_over BEFORE INSERT ON queue.q_q FOR EACH ROW EXECUTE FUNCTION public.passed_over();
"""


@pytest.mark.parametrize("index, ours", [("n1_key", True), ("n1_key_ccold", True), ("n1_key_ccnew2", True), ("n1_group_ccnew", True),
                                         ("n11_key", False), ("n1_key_old", False)])
def test_an_index_that_is_built_anew_and_a_push(q, index, ours):
    q.rows(IN_BETWEEN % index)
    if ours:
        (new,) = push(q, "1")
        assert jobs(q) == [(new, "ready", "1")]
    else:
        assert q.fails("23505", "SELECT queue.push('q', '1', key => 'k')").constraint_name == index


@pytest.mark.parametrize("options", ["", ", key => 'k'", ", \"group\" => 'g'"])
def test_an_index_of_the_owners_and_a_topic(q, options):
    q.rows("SELECT queue.create_topic('t')")
    q.rows("SELECT queue.bind('q', 't.#')")
    q.rows("SELECT queue.push('q', '1')")
    q.rows(OWN_INDEX)
    assert q.fails("23505", "SELECT queue.publish('t.x', '1'::text%s)" % options).constraint_name == "of_the_owner"
