"""Who may do what, and hostile neighbours."""

import re

import psycopg
import pytest

from schema import install_script


@pytest.fixture
def q(db):
    db.create("q")
    db.push("q", '"secret"', '"secret"')
    return db


CALLS = [
    "SELECT * FROM queue.push('q', '1')", "SELECT * FROM queue.take('q')",
    "SELECT * FROM queue.take('q', 5)", "SELECT * FROM queue.pop('q')",
    "SELECT * FROM queue.peek('q')", "SELECT * FROM queue.stats('q')", "SELECT * FROM queue.workers('q')",
    "SELECT * FROM queue.history('1')",
    "SELECT * FROM queue.purge('q')", "SELECT * FROM queue.q_q",
    "SELECT * FROM queue._promote((SELECT c FROM queue.queues AS c), 5)",
    "SELECT * FROM queue._push_1(ARRAY['1'], 0, NULL, NULL)",
    "SELECT * FROM queue._done_1(ARRAY[1], ARRAY['x'])",
]


@pytest.mark.parametrize("sql", CALLS)
def test_a_stranger_may_not(q, sql):
    number = q.value("SELECT number FROM queue.queues")
    bob = q.connect("bob")
    assert bob.rows("SELECT * FROM queue.stats()") == []
    assert bob.rows("SELECT * FROM queue.workers()") == []
    diag = bob.fails("42501", sql.replace("_1(", "_%d(" % number))
    assert diag.message_primary == "permission denied for table q_q"


def test_a_stranger_with_a_token_may_not(q):
    token = q.take("q")[0]["token"]
    bob = q.connect("bob")
    for sql in ["done(%s)", "fail(%s)", "release(%s)", "extend(%s)",
                "_give_back(ARRAY[%s], 'x', true)"]:
        diag = bob.fails("42501", "SELECT queue." + sql, token)
        assert diag.message_primary == "permission denied for table q_q"
    assert q.done(token) == ["q"]


def test_a_stranger_may_not_define(q):
    bob = q.connect("bob")
    diag = bob.fails("42501", "SELECT queue.create('r')")
    assert "table queues" in diag.message_primary and "GRANT" in diag.message_hint
    assert bob.fails("42501", "SELECT queue.drop('q')").message_primary == \
        'must be owner of queue "q"'
    bob.fails("42501", "SELECT queue.alter('q', ARRAY['lease'], ARRAY['1 s'])")
    bob.fails("42501", "UPDATE queue.queues SET lease = '1 s'")
    bob.fails("42501", "DELETE FROM queue.queues")
    bob.fails("42501", "CREATE FUNCTION queue.x() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    bob.rows("SELECT queue.create('q', true)")
    assert bob.rows("SELECT queue, owner FROM queue.list()") == [("q", "app")]


def test_push_needs_insert_only(q):
    q.rows("GRANT INSERT, SELECT (id) ON queue.q_q TO bob")
    bob = q.connect("bob")
    assert bob.value("SELECT queue.push('q', '1')") == 3
    bob.fails("42501", "SELECT queue.take('q')")
    bob.fails("42501", "SELECT payload FROM queue.q_q")


def test_who_pushes_sees_ids_only(q):
    """Keys and groups are business data: customers, orders. PUSH works with them and shows none."""
    q.rows("SELECT queue.push('q', '1', key => 'order 7', \"group\" => 'customer 5')")
    q.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    bob = q.connect("bob")
    columns = [r[0] for r in q.rows("SELECT attname FROM pg_attribute WHERE attrelid = 'queue.q_q'::regclass AND attnum > 0")]
    assert {"key", "group", "payload", "token", "state"} <= set(columns)
    for name in columns:
        sql = 'SELECT "%s" FROM queue.q_q' % name
        if name == "id":
            assert len(bob.rows(sql)) == 3
        else:
            assert bob.fails("42501", sql).message_primary == "permission denied for table q_q"
    bob.fails("42501", "SELECT 1 FROM queue.q_q WHERE key LIKE 'order%'")
    bob.fails("42501", "SELECT count(*) FROM queue.q_q AS j GROUP BY j")
    bob.fails("42501", "SELECT * FROM queue.a_q")
    assert bob.rows("SELECT * FROM pg_stats WHERE tablename = 'q_q' AND attname IN ('key', 'group')") == []
    # and it does its work
    assert bob.value("SELECT queue.push('q', '1', key => 'order 7')") == 3
    new = bob.value("SELECT queue.push('q', '1', key => 'order 8', \"group\" => 'customer 5')")
    assert q.value("SELECT state FROM queue.q_q WHERE id = %s", new) == "blocked"
    diag = bob.fails("23505", "SELECT queue.push('q', '1', key => 'order 7', on_duplicate => 'error')")
    assert "customer" not in str(diag.message_detail)
    bob.fails("42501", "SELECT queue.push('q', '1', key => 'order 7', on_duplicate => 'replace')")
    # neither the raw insertion tells what is there
    diag = bob.fails("23505", "INSERT INTO queue.q_q (payload, \"group\") VALUES ('1', 'customer 5')")
    assert diag.message_detail is None
    # with the right goes what belongs to it
    q.rows("SELECT queue.revoke('q', '{push}', '{bob}')")
    number = q.value("SELECT number FROM queue.queues")
    for sql in ["SELECT queue.push('q', '1', key => 'order 9')", "SELECT id FROM queue.q_q",
                "SELECT * FROM queue._seek_%d('order 7', NULL)" % number]:
        bob.fails("42501", sql)


@pytest.mark.parametrize("duplicate, rights", [("ignore", "PUSH"), ("error", "PUSH"), ("Replace", "PUSH, TAKE"), ("rerun", "PUSH, TAKE")])
def test_the_right_to_push_with_a_key(q, duplicate, rights):
    """Who has none, or one on the table that was given by hand, reads of the queue: not of a function that he has never called."""
    bob = q.connect("bob")
    for grant in ("", "GRANT INSERT, SELECT (id) ON queue.q_q TO bob"):
        if grant:
            q.rows(grant)
        for sql in ("SELECT queue.push('q', '1', key => 'k', on_duplicate => %s)",
                    "SELECT queue._push_keys('q', '{1,k,NULL}', 0, %s, false, false)"):
            diag = bob.fails("42501", sql, duplicate)
            assert diag.message_primary == 'permission denied for queue "q"'
            assert diag.message_hint == "The owner of the queue can allow it: QUEUE GRANT %s ON q TO ...;" % rights


def test_a_stranger_may_not_seek(q):
    """What PUSH may call is nobody else's: a stranger could try keys."""
    number = q.value("SELECT number FROM queue.queues")
    bob = q.connect("bob")
    diag = bob.fails("42501", "SELECT * FROM queue._seek_%d('k', NULL)" % number)
    assert diag.message_primary == "permission denied for function _seek_%d" % number
    q.rows("SELECT queue.grant('q', '{take,await}', '{bob}')")
    bob.fails("42501", "SELECT * FROM queue._seek_%d('k', NULL)" % number)


def test_tokens_of_one_take(q):
    """Not a function of 64 bits that any one of them gives away: the same ids with the same time differ, nothing repeats."""
    seen = set()
    for _ in range(20):
        q.rows("SELECT queue.push('q', '1') FROM generate_series(1, 50)")
        tokens = [j["token"].rsplit("-", 1)[1] for j in q.take("q", 50)]
        assert all(len(t) == 16 and int(t, 16) >= 0 for t in tokens)
        assert not seen & set(tokens) and len(set(tokens)) == len(tokens)
        seen |= set(tokens)


def test_taker_cannot_push(q):
    q.rows("GRANT SELECT, UPDATE, DELETE ON queue.q_q TO bob")
    bob = q.connect("bob")
    (job,) = bob.take("q")
    assert bob.done(job["token"]) == ["q"]
    (job,) = bob.take("q")
    bob.rows("SELECT queue.fail(%s, 'e', '0')", job["token"])
    assert len(bob.take("q", pop=True)) == 1
    bob.fails("42501", "SELECT queue.push('q', '1')")


def test_another_role_with_queues_of_its_own(q):
    q.rows("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob")
    bob = q.connect("bob")
    bob.create("r")
    bob.push("r", "1")
    assert len(bob.take("r")) == 1
    assert bob.rows("SELECT queue, owner FROM queue.list()") == [("q", "app"), ("r", "bob")]
    bob.fails("42501", "SELECT queue.drop('q')")
    q.connect("mallory").fails("42501", "SELECT queue.push('r', '1')")
    bob.rows("SELECT queue.drop('r')")
    assert q.column("SELECT relname FROM pg_class WHERE relnamespace = 'queue'::regnamespace "
                    "AND relname ~ '^(._r|n2_.*)$'") == []


@pytest.fixture
def two(q):
    """bob and mallory may make queues and did: r, s."""
    q.rows("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob, mallory")
    bob, mallory = q.connect("bob"), q.connect("mallory")
    bob.create("r", max_length=10)
    mallory.create("s")
    return bob, mallory


def test_the_row_of_a_queue_is_its_owners(two):
    bob, mallory = two
    for sql in ["UPDATE queue.queues SET max_attempts = 1 WHERE name = 'r'", "DELETE FROM queue.queues WHERE name = 'r'",
                "DELETE FROM queue.queues", "UPDATE queue.queues SET owner = 'mallory'", "SELECT queue.drop('r')",
                "SELECT queue.grant('r', '{all}', '{mallory}')", "SELECT queue.pause('r')",
                "SELECT queue._change_right(true, 'r', 'take', 'mallory')",
                "INSERT INTO queue._right VALUES (true, 'r', 'take', 'mallory')",
                "UPDATE queue.queues SET owner = 'bob' WHERE name = 's'"]:
        mallory.fails("42501", sql)
    bob.rows("UPDATE queue.queues SET max_attempts = 3 WHERE name = 'r'")
    assert bob.value("SELECT max_attempts FROM queue.queues WHERE name = 'r'") == 3


def test_what_a_queue_is_does_not_change(two):
    bob, _ = two
    for change in ("name = 'other'", "number = DEFAULT", "payload = 'text'"):
        bob.fails("0A000", "UPDATE queue.queues SET %s WHERE name = 'r'" % change)


ROW = """INSERT INTO queue.queues (%s name, lease, max_attempts, retry, retry_kind, retry_base, retry_cap, on_disconnect,
        retain_done, retain_dead, durability, unlogged, payload)
    SELECT %s, lease, max_attempts, retry, retry_kind, retry_base, retry_cap, on_disconnect, retain_done, retain_dead,
        durability, unlogged, %s FROM queue.queues WHERE name = 's'"""


def test_rows_made_by_hand(two):
    """A row of the catalogue is a queue, or an error."""
    _, mallory = two
    mallory.fails("428C9", ROW.replace("SELECT", "OVERRIDING SYSTEM VALUE SELECT", 1) % ("number,", "1000, 'x'", "payload"))
    for payload in ("'int4'", "'text); DROP TABLE queue.q_r; --'"):
        mallory.fails("23514", ROW % ("", "'x'", payload))
    mallory.fails("23514", ROW % ("", "repeat('x', 41)", "payload"))
    mallory.fails("42501", ROW % ("owner,", "'bob', 'x'", "payload"))
    # values that no option can have, and which would be errors for whoever looks at all queues
    for column, value in [("lease", "'-1 s'"), ("lease", "'9000 years'"), ("max_attempts", "0"), ("retry", "repeat('x', 1000)"),
                          ("retry_kind", "'x'"), ("retry_kind", "'list'"), ("retry_kind", "'arithmetic'"), ("retry_base", "'-1 h'"), ("retry_cap", "'-1 h'"), ("on_disconnect", "'x'"),
                          ("retain_done", "'-1 s'"), ("retain_dead", "'-290000 years'"), ("durability", "'x'")]:
        mallory.fails("23514", "UPDATE queue.queues SET %s = %s WHERE name = 's'" % (column, value))
    mallory.fails("23514", "UPDATE queue.queues SET max_length = -1 WHERE name = 's'")
    mallory.fails("23514", "UPDATE queue.queues SET created_at = 'infinity' WHERE name = 's'")
    # nor the number of one that is gone
    mallory.create("x")
    number = mallory.value("SELECT number FROM queue.queues WHERE name = 'x'")
    mallory.rows("SELECT queue.drop('x')")
    for how in ("OVERRIDING SYSTEM VALUE ", ""):
        mallory.fails("428C9", ROW.replace("SELECT", how + "SELECT", 1) % ("number,", "%d, 'x'" % number, "payload"))
    mallory.rows(ROW % ("", "'x'", "payload"))
    assert mallory.push("x", "1") == [1]
    mallory.rows("DELETE FROM queue.queues WHERE name = 'x'")
    assert mallory.value("SELECT to_regclass('queue.q_x')") is None


def test_no_code_on_a_queue(two):
    """Its owner has the jobs; the table is not his."""
    bob, _ = two
    bob.rows("CREATE SCHEMA bob") if bob.value("SELECT has_database_privilege(current_database(), 'CREATE')") else None
    for sql in ["ALTER TABLE queue.q_r ADD CHECK (true)", "ALTER TABLE queue.q_r RENAME TO x", "DROP TABLE queue.q_r",
                "ALTER TABLE queue.q_r ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON queue.q_r", "CREATE INDEX ON queue.q_r ((1))",
                "CREATE RULE r AS ON UPDATE TO queue.q_r DO ALSO NOTHING", "CREATE STATISTICS s ON id, state FROM queue.q_r",
                "CREATE TRIGGER t BEFORE DELETE ON queue.q_r FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                "CREATE TEMP TABLE c () INHERITS (queue.q_r)", "ALTER FUNCTION queue._push_2 RENAME TO x",
                "CREATE OR REPLACE FUNCTION queue._full_2() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'",
                "CREATE FUNCTION queue.push(text, text) RETURNS int8 LANGUAGE sql AS 'SELECT 1'"]:
        bob.fails("42501", sql)
    bob.rows("CREATE TEMP TABLE mine (LIKE queue.queues INCLUDING ALL)")
    for function in ("_row_changed", "_row_number", "_right_changed", "_ended_2", "_full_2"):
        bob.fails("42501", "CREATE TRIGGER t BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION queue.%s()" % function)


def test_rights_have_one_giver(two, q):
    """Given by the superuser, by a plain GRANT: the owner takes them away."""
    bob, mallory = two
    root = q.connect("postgres")
    root.rows("SELECT queue.grant('r', '{push, take}', '{mallory}')")
    assert mallory.push("r", "1") and mallory.take("r")
    bob.rows("SELECT queue.revoke('r', '{take}', '{mallory}')")
    assert mallory.push("r", "1")
    mallory.fails("42501", "SELECT * FROM queue.take('r')")
    bob.rows("GRANT SELECT, UPDATE, DELETE ON queue.q_r TO mallory")
    assert mallory.take("r")
    bob.rows("SELECT queue.revoke('r', '{take}', '{mallory}')")
    mallory.fails("42501", "SELECT * FROM queue.take('r')")
    bob.rows("SELECT queue.revoke('r', '{all}', '{mallory}')")
    mallory.fails("42501", "SELECT queue.push('r', '1')")


def test_who_has_given_a_queue_away_keeps_nothing(two, q):
    """As with a table: neither what he had, nor what he gave on by a GRANT of his own, nor the right to give it."""
    bob, mallory = two
    root = q.connect("postgres")
    bob.rows("SELECT queue.push('r', '1')")
    bob.rows("GRANT SELECT ON queue.q_r TO PUBLIC")
    bob.rows("SELECT queue.grant('r', '{push}', '{app}')")
    root.rows("UPDATE queue.queues SET owner = 'mallory' WHERE name = 'r'")
    for sql in ["SELECT id FROM queue.q_r", "SELECT id FROM queue.a_r", "TRUNCATE queue.q_r", "DELETE FROM queue.q_r",
                "SELECT queue.push('r', '1', key => 'k')", "SELECT last_value FROM queue.n2_id",
                "GRANT SELECT ON queue.q_r TO bob"]:
        bob.fails("42501", sql)
    assert q.connect("app").push("r", "1")
    mallory.rows("SELECT queue.grant('r', '{push}', '{bob}')")
    mallory.rows("SELECT queue.revoke('r', '{all}', '{bob}')")
    # a role that is gone owned it
    root.rows("CREATE ROLE gone; GRANT INSERT, UPDATE, DELETE ON queue.queues TO gone")
    root.rows("UPDATE queue.queues SET owner = 'gone' WHERE name = 'r'")
    root.rows("DROP OWNED BY gone; DROP ROLE gone")
    assert root.rows("SELECT * FROM queue.list()") and root.rows("SELECT * FROM queue.stats('r')")
    mallory.fails("42501", "UPDATE queue.queues SET owner = 'mallory' WHERE name = 'r'")
    root.rows("UPDATE queue.queues SET owner = 'mallory' WHERE name = 'r'")
    assert len(mallory.take("r", 5)) == 2


def test_an_old_snapshot_gives_no_right(two, q):
    """It shows a queue of hers; by now the name is another's."""
    bob, mallory = two
    mallory.create("mail")
    mallory.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    mallory.rows("SELECT * FROM queue.queues")
    other = q.connect("mallory")
    other.rows("SELECT queue.drop('mail')")
    bob.create("mail")
    for kind in ("push", "take", "await"):
        mallory.rows("SAVEPOINT s")
        for gives in ("true", "false"):
            with pytest.raises(psycopg.Error) as caught:
                mallory.rows("INSERT INTO queue._right VALUES (%s, 'mail', '%s', 'mallory')" % (gives, kind))
            assert caught.value.sqlstate == "40001"
            mallory.rows("ROLLBACK TO s")
    mallory.rows("COMMIT")
    other.fails("42501", "SELECT * FROM queue.take('mail')")
    other.fails("42501", "SELECT queue.push('mail', '1')")


RIGHT = "INSERT INTO queue._right VALUES (%s, 's', '%s', 'mallory')"


def test_a_former_owner_with_an_old_snapshot(two, q):
    """It shows a queue that is hers; the row, with its number, has been given to another since."""
    _, mallory = two
    mallory.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    mallory.rows("SELECT * FROM queue.queues")
    q.connect("postgres").rows("UPDATE queue.queues SET owner = 'bob' WHERE name = 's'")
    for sql in [RIGHT % (gives, kind) for gives in ("true", "false") for kind in ("push", "take", "await")] + [
            "UPDATE queue.queues SET owner = 'mallory' WHERE name = 's'", "DELETE FROM queue.queues WHERE name = 's'"]:
        mallory.rows("SAVEPOINT s")
        mallory.fails("40001", sql)
        mallory.rows("ROLLBACK TO s")
    mallory.fails("40001", "SELECT queue.grant('s', '{all}', '{mallory}')")
    mallory.rows("ROLLBACK")
    mallory.fails("42501", "SELECT * FROM queue.take('s')")
    mallory.fails("42501", "SELECT queue.push('s', '1')")


def test_a_former_owner_at_the_same_time(two, q):
    """What she gives waits for the row that is being given away, and is looked at again behind that."""
    _, mallory = two
    root = q.connect("postgres")
    root.rows("BEGIN")
    root.rows("UPDATE queue.queues SET owner = 'bob' WHERE name = 's'")
    gift = mallory.beside(mallory.rows, RIGHT % ("true", "take"))
    q.until_blocked(mallory)
    root.rows("COMMIT")
    gift.error_of("42501")
    mallory.fails("42501", "SELECT * FROM queue.take('s')")


def test_a_revoke_in_an_old_snapshot_gives_nothing_back(two, q):
    """REVOKE gives again what is to stay: not what somebody else has taken away since."""
    bob, mallory = two
    bob.rows("SELECT queue.grant('r', '{push,take,await}', '{mallory}')")
    old = q.connect("bob")
    old.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
    old.rows("SELECT * FROM queue.queues")
    bob.rows("SELECT queue.revoke('r', '{take,await}', '{mallory}')")
    old.rows("SELECT queue.revoke('r', '{push}', '{mallory}')")
    old.rows("COMMIT")
    mallory.fails("42501", "SELECT * FROM queue.take('r')")
    mallory.fails("42501", "SELECT queue.push('r', '1')")
    mallory.fails("42501", "SELECT result FROM queue.a_r")


def test_the_owner_was_dropped(two, q):
    """His queues are left to who has installed the schema, who gives them to somebody or drops them. REASSIGN OWNED does not know of them."""
    bob, mallory = two
    root = q.connect("postgres")
    root.rows("CREATE ROLE gone LOGIN; GRANT INSERT, UPDATE, DELETE ON queue.queues TO gone")
    gone = q.connect("gone")
    for name in ("g", "h"):
        gone.create(name)
        gone.push(name, "1")
    gone.rows("SELECT queue.grant('g', '{take}', '{bob}')")
    gone.conn.close()
    root.fails("2BP01", "DROP ROLE gone")
    root.rows("REASSIGN OWNED BY gone TO bob")
    assert q.column("SELECT owner::text FROM queue.queues WHERE name = 'g'") == ["gone"]
    root.rows("DROP OWNED BY gone")
    root.rows("DROP ROLE gone")
    assert q.column("SELECT example FROM queue._unattended('{}', '{g}') WHERE owner IS NULL") == ["h"]
    for sql in ("SELECT queue.drop('g')", "SELECT queue.grant('g', '{all}', '{mallory}')",
                "UPDATE queue.queues SET owner = 'mallory' WHERE name = 'g'"):
        diag = mallory.fails("42501", sql)
        assert "dropped" in diag.message_detail and "SET owner" in diag.message_hint
    assert len(bob.take("g")) == 1
    # app has installed it
    q.rows("UPDATE queue.queues SET owner = 'app' WHERE name = 'g'")
    assert q.push("g", "2") and q.rows("SELECT queue, owner FROM queue.list() WHERE queue = 'g'") == [("g", "app")]
    q.rows("SELECT queue.drop('h')")


def test_a_pusher_writes_what_a_push_does(two):
    """Not what a take adds to, which would be an error in each take; nor the ids that others' pushes get."""
    bob, mallory = two
    bob.rows("SELECT queue.grant('r', '{push}', '{mallory}')")
    for name, value in [("id", "2"), ("position", "-1"), ("attempt", "2147483647"), ("failures", "2147483647"),
                        ("losses", "32767"), ("token", "'0000000000000000'"), ("lease_until", "'infinity'"), ("proxy", "1"),
                        ("worker", "'w'"), ("error", "'e'"), ("again", "true"), ("failed_at", "now()"), ("ended_at", "now()")]:
        mallory.fails("42501", "INSERT INTO queue.q_r (payload, priority, %s) VALUES ('1', 2147483647, %s)" % (name, value))
    mallory.rows("INSERT INTO queue.q_r (payload, priority) VALUES ('1', 5)")
    assert mallory.rows("SELECT queue.push('r', '1', expires => '1 h', attempts => 3, headers => '{}', delay => '1 s')")
    assert mallory.rows("SELECT queue.push('r', '1', key => 'k', \"group\" => 'g')")
    assert bob.take("r")[0]["priority"] == 5


@pytest.mark.parametrize("values", ["'1', 'later', 'infinity', now()", "'1', 'later', '-infinity', now()", "'1', 'leased', NULL, now()",
                                    "'1', 'ready', NULL, '-infinity'", "'1', 'ready', NULL, 'infinity'", "'1', 'nonsense', NULL, now()"])
def test_rows_of_a_pusher_stop_nobody(two, values):
    bob, mallory = two
    bob.rows("SELECT queue.grant('r', '{push}', '{mallory}')")
    mallory.rows("INSERT INTO queue.q_r (payload, state, run_at, pushed_at) VALUES (%s)" % values)
    for sql in ["SELECT id FROM queue._take('{r}', 1, NULL, NULL, NULL)"] * 2 + ["SELECT id FROM queue.take('r')",
                "SELECT id FROM queue.pop('r')", "SELECT ready FROM queue.stats()", "SELECT id FROM queue.peek('r')",
                "SELECT ready FROM queue._gauges(10)", "SELECT queue.maintain()", "SELECT queue._orphans('{}')",
                "SELECT id FROM queue.take('r')", "SELECT queue.purge('r')"]:
        bob.rows(sql)
    bob.rows("SELECT queue.push('r', '7')")
    assert bob.column("SELECT payload FROM queue.take('r', 5)")[-1] == 7


def test_a_late_job_is_not_locked_by_a_stranger(two):
    """A push with its key would wait for her."""
    bob, mallory = two
    bob.rows("SELECT queue.push('r', '1', key => 'k', expires => '1 ms')")
    number = bob.value("SELECT number FROM queue.queues WHERE name = 'r'")
    mallory.fails("42501", "SELECT queue._late_%d(1)" % number)
    bob.rows("SELECT queue.grant('r', '{push}', '{mallory}')")
    bob.rows("UPDATE queue.q_r SET expires_at = now() - interval '1 s'")
    assert mallory.value("SELECT queue.push('r', '2', key => 'k')") > 1


def test_a_queue_in_a_tablespace(two, q):
    """The installer makes the table, where the caller's setting says: not where only the installer may."""
    _, mallory = two
    root = q.connect("postgres")
    root.rows("SET allow_in_place_tablespaces = on")
    root.rows("CREATE TABLESPACE elsewhere OWNER app LOCATION ''")
    try:
        mallory.rows("SET default_tablespace = elsewhere")
        assert "tablespace" in mallory.fails("42501", "SELECT queue.create('t')").message_primary
        root.rows("GRANT CREATE ON TABLESPACE elsewhere TO mallory")
        mallory.create("t")
        mallory.rows("SELECT queue.drop('t')")
    finally:
        root.rows("DROP TABLESPACE elsewhere")


def test_a_queue_for_another_owner(two, q):
    bob, mallory = two
    root = q.connect("postgres")
    root.rows("UPDATE queue.queues SET owner = 'mallory' WHERE name = 'r'")
    assert mallory.push("r", "1") and mallory.take("r")
    bob.fails("42501", "SELECT queue.drop('r')")
    mallory.rows("SELECT queue.drop('r')")


def functions_for(db, role, q):
    """Those of a queue, or of a stream, that he may call, without its number."""
    n = db.value("SELECT number FROM queue.queues WHERE name = %s UNION ALL SELECT number FROM queue.streams WHERE name = %s", q, q)
    return {re.sub("_[0-9a-f]{8,}$", "", name).replace("_%d" % n, "_N") for name in db.column(
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'queue'::regnamespace AND proname ~ %s"
        " AND has_function_privilege(%s, oid, 'EXECUTE')", "_%d(_|$)" % n, role)}


KINDS = {"plain": {}, "stream": {"kind": "stream"}, "limited": {"max_running": "3"}, "alone": {"single_consumer": "true"},
         "groups": {"max_running_per_group": "2"}, "full": {"max_length": "9"}, "kept": {"retain_done": "1 day"}}


def test_functions_are_for_all_whatever_the_default_privileges(db):
    db.connect("bob")
    for name, options in KINDS.items():
        db.create(name, **options)
    db.rows("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    for name, options in KINDS.items():
        db.create(name + "2", **options)
        assert functions_for(db, "bob", name + "2") == functions_for(db, "bob", name), name
    assert {"_push_N", "_done_keep_N", "_bulk_N", "_push_key_N", "_lone_N"} <= functions_for(db, "bob", "plain")


def test_default_privileges_do_not_open_the_table(db):
    db.rows("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC")
    db.rows("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    db.create("q")
    bob = db.connect("bob")
    bob.fails("42501", "SELECT * FROM queue.q_q")
    db.rows("GRANT INSERT, SELECT (id) ON queue.q_q TO bob")
    assert bob.value("SELECT queue.push('q', '1')") == 1


TRAPS = """
CREATE FUNCTION public.trap() RETURNS bool LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'trapped as %', current_user; END$$;
"""
TRAP_FUNCTIONS = [
    "format(text, text)", "format(text, VARIADIC text[])", "clock_timestamp()", "now()",
    "gen_random_uuid()", "set_config(text, text, boolean)", "pg_notify(text, text)",
    "cardinality(text[])", "cardinality(bigint[])", "array_position(text[], text)",
    "right(text, int)", "left(text, int)", "split_part(text, text, int)", "unnest(text[])",
    "width_bucket(bigint, bigint[])", "array_agg(bigint)", "lower(text)", "btrim(text)",
    "octet_length(text)", "current_setting(text, boolean)", "current_setting(text)",
    "to_regclass(text)", "greatest_trap()", "random()", "isfinite(timestamptz)",
    "jsonb_typeof(jsonb)", "pg_advisory_xact_lock(bigint)", "transaction_timestamp()",
    "make_interval(int, int, int, int, int, int, double precision)", "pg_get_userbyid(oid)",
    "has_schema_privilege(text, text)", "regexp_split_to_array(text, text)",
]
TRAP_OPERATORS = [("=", "text", "text"), ("=", "int", "int"), ("=", "bigint", "bigint"),
                  ("||", "text", "text"), ("||", "text", "bigint"), ("~", "text", "text"),
                  ("<=", "timestamptz", "timestamptz"), (">", "timestamptz", "timestamptz"),
                  ("+", "int", "int"), ("-", "int", "int"), ("+", "timestamptz", "interval"),
                  ("<>", "text", "text"), (">=", "int", "int"), ("<", "int", "int"),
                  ("<=", "interval", "interval"), ("<=", "int", "int"), ("*", "float8", "float8")]


def set_traps(root):
    """mallory may create in public, and shadows all that the functions use."""
    root.rows("GRANT CREATE ON SCHEMA public TO mallory")
    mallory = root.connect("mallory")
    mallory.rows(TRAPS)
    for signature in TRAP_FUNCTIONS:
        name, args = signature[:-1].split("(", 1)
        mallory.rows("CREATE FUNCTION public.%s(%s) RETURNS text LANGUAGE plpgsql AS "
                     "$$BEGIN RAISE EXCEPTION 'trapped'; END$$" % (name, args))
    for n, (symbol, left, right) in enumerate(TRAP_OPERATORS):
        mallory.rows("CREATE FUNCTION public.op%d(%s, %s) RETURNS bool LANGUAGE plpgsql AS "
                     "$$BEGIN RAISE EXCEPTION 'trapped'; END$$" % (n, left, right))
        mallory.rows("CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.op%d)"
                     % (symbol, left, right, n))
    mallory.rows("CREATE TABLE public.queues (name text, number int, x int)")
    mallory.rows("CREATE DOMAIN public.text AS int4")
    mallory.rows("CREATE DOMAIN public.jsonb AS int4")
    mallory.rows("CREATE DOMAIN public.timestamptz AS int4")


def enter(session):
    session.rows("SET search_path = public, pg_catalog")
    # the traps are armed
    assert "trapped" in session.fails("P0001", "SELECT pg_catalog.now()::pg_catalog.text = ''::"
                                      "pg_catalog.text").message_primary
    assert "trapped" in session.fails("P0001", "SELECT clock_timestamp()").message_primary
    session.rows("CREATE TEMP TABLE queues (name pg_catalog.text)")
    session.rows("CREATE TEMP TABLE q_q (id pg_catalog.int8)")
    session.rows("CREATE DOMAIN pg_temp.interval AS int4")


def life(session):
    """Every function once, arguments typed so that the calls themselves meet no trap."""
    t = "::pg_catalog.text"
    session.conn.execute("SELECT queue.create('z'%s, false, ARRAY['lease', 'retry']%s[], "
                         "ARRAY['1 h', 'fixed 1s']%s[])" % (t, t, t))
    session.conn.execute("SELECT queue.alter('z'%s, ARRAY['max_attempts']%s[], ARRAY['3']%s[])"
                         % (t, t, t))
    session.conn.execute("SELECT queue._push('z', ARRAY['1', '2', '3', '4', '5']%s[], 1, NULL, "
                         "NULL, '{}', true)" % t)
    session.conn.execute("SELECT queue.push('z', '6', delay => '1 h')")
    tokens = [row[1] for row in session.conn.execute(
        "SELECT id, token FROM queue.take('z', 4)").fetchall()]
    session.conn.execute("SELECT queue.pop('z')")
    session.conn.execute("SELECT queue.take('z')")
    for call in ["SELECT queue.extend('%s')" % tokens[0], "SELECT queue.done('%s')" % tokens[0],
                 "SELECT queue.fail('%s', 'e')" % tokens[1],
                 "SELECT queue.release('%s')" % tokens[2],
                 "SELECT queue._give_back(ARRAY['%s']%s[], 'x', true)" % (tokens[3], t),
                 "SELECT * FROM queue.list()", "SELECT * FROM queue.stats()",
                 "SELECT * FROM queue.peek('z')", "SELECT queue.purge('z')",
                 "SELECT queue.version()", "SELECT queue.drop('z')"]:
        session.conn.execute(call)


def test_search_path_attack(q):
    set_traps(q)
    victim = q.connect()
    enter(victim)
    life(victim)


def test_search_path_attack_on_the_installation(bare):
    set_traps(bare)
    victim = bare.connect()
    enter(victim)
    assert victim.script(install_script()) == ""
    life(victim)


INJECTIONS = ["'", "''", "\\'", "'; DROP TABLE queue.queues; --", "$$; DROP TABLE queue.queues; $$",
              "%s", "%I", "%1$I", "{}", "{\"a\":1}", "a', 'b", "\"", "q_q; --", "$sql$", "$body$",
              "@table@", "@n@"]


@pytest.mark.parametrize("text", INJECTIONS)
def test_no_text_becomes_a_statement(q, text):
    q.fails("42P01", "SELECT queue.push(%s, '1')", text)
    q.fails("42P01", "SELECT queue.take(%s)", text)
    q.fails("42P01", "SELECT queue.drop(%s)", text)
    for verb in ("done", "fail", "release", "extend", "cancel", "rerun", "job", "await"):
        q.fails("22023", "SELECT queue.%s(%%s)" % verb, text)
    q.fails("22023", "SELECT queue.create('r', false, ARRAY[%s], ARRAY['1'])", text)
    for option in ("lease", "retry", "max_attempts", "on_disconnect", "retain_dead", "durability"):
        q.fails("22023", "SELECT queue.create('r', false, ARRAY[%s], ARRAY[%s])", option, text)
    q.fails("22023", "SELECT queue.peek('q', 1, %s)", text)
    q.fails("22023", "SELECT queue.purge('q', %s)", text)
    job = q.take("q", worker=text)[0]
    assert q.job("q", job["id"])["worker"] == text
    q.rows("SELECT queue.fail(%s, %s)", job["token"], text)
    assert q.job("q", job["id"])["error"] == text
    assert q.column("SELECT queue FROM queue.list()") == ["q"]


# -- grant and revoke --------------------------------------------------------------------------

def rights(session, role="bob"):
    """What the role has on the table of q, by table and by column."""
    table = session.column("SELECT a.privilege_type FROM pg_class AS r, LATERAL aclexplode(r.relacl) AS a "
                           "WHERE r.relname = 'q_q' AND a.grantee = %s::regrole ORDER BY 1", role)
    column = session.column("SELECT DISTINCT c.attname FROM pg_attribute AS c, LATERAL aclexplode(c.attacl) AS a "
                            "WHERE c.attrelid = 'queue.q_q'::regclass AND a.grantee = %s::regrole ORDER BY 1", role)
    return table, column


# what who may push sees, the id that he made, and writes; what who may take adds to it when he pushes what he is handed
SEEN = sorted(["id", "state", "priority", "run_at", "headers", "payload", "pushed_at", "expires_at", "max_attempts", "key", "group",
               "batch", "version", "behind", "due"])
HANDED = ["attempt", "lease_until", "proxy", "taken_at", "token", "worker"]


def test_grant_and_revoke(q):
    def call(verb, *words):
        q.rows("SELECT queue.%s('q', %%s, '{bob}')" % verb, list(words))

    call("grant", "push")
    assert rights(q) == ([], SEEN)
    call("grant", "TAKE")
    assert rights(q) == (["DELETE", "SELECT", "UPDATE"], sorted(SEEN + HANDED))
    call("revoke", "take")
    assert rights(q) == ([], SEEN)
    call("revoke", "push")
    assert rights(q) == ([], [])
    call("grant", "All", "push")
    call("revoke", "push")
    assert rights(q) == (["DELETE", "SELECT", "UPDATE"], HANDED)
    call("revoke", "take")
    call("grant", "push", "take")
    call("revoke", "all")
    assert rights(q) == ([], [])


def test_grant_and_revoke_await(q):
    def call(verb, *words):
        q.rows("SELECT queue.%s('q', %%s, '{bob}')" % verb, list(words))
    await_only = ["attempt", "batch", "ended_at", "error", "expires_at", "id", "progress", "run_at", "state"]
    archive = "SELECT has_any_column_privilege('bob', 'queue.a_q', 'SELECT')"

    call("grant", "await")
    assert rights(q) == ([], await_only) and q.value(archive)
    call("grant", "push", "take")
    call("revoke", "take")
    assert rights(q) == ([], sorted(set(await_only + SEEN))) and q.value(archive)
    call("revoke", "await")
    assert rights(q) == ([], SEEN) and not q.value(archive)
    call("grant", "await")
    call("revoke", "push")
    assert rights(q) == ([], await_only) and q.value(archive)
    call("revoke", "all")
    assert rights(q) == ([], []) and not q.value(archive)
    assert not q.value("SELECT has_sequence_privilege('bob', 'queue.n1_id', 'SELECT')")


def test_grant_to_everybody(q):
    bob = q.connect("bob")
    q.rows("SELECT queue.grant('q', '{push,take}', '{PUBLIC,mallory}')")
    assert bob.push("q", "1") and bob.take("q")
    q.rows("SELECT queue.revoke('q', '{take}', '{public}')")
    assert bob.push("q", "1")
    bob.fails("42501", "SELECT * FROM queue.take('q')")
    assert q.connect("mallory").take("q")


def test_grant_errors(q):
    for verb in ("grant", "revoke"):
        for words in (["eat"], ["push", "x"], [None], [""]):
            assert q.fails("22023", "SELECT queue.%s('q', %%s, '{bob}')" % verb, words).message_hint
        q.fails("42P01", "SELECT queue.%s('x', '{push}', '{bob}')" % verb)
        q.fails("42704", "SELECT queue.%s('q', '{push}', %%s)" % verb, ["no; DROP TABLE x"])
        q.fails("22004", "SELECT queue.%s('q', '{push}', ARRAY[NULL]::text[])" % verb)
        bob = q.connect("bob")
        assert bob.fails("42501", "SELECT queue.%s('q', '{push}', '{bob}')" % verb).message_primary == \
            'must be owner of queue "q"'
    assert rights(q) == ([], [])


def lockable(session, role):
    """What this role could lock so that others cannot write: LOCK TABLE asks for one of these, of the whole table."""
    return session.column("""SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'queue'::regnamespace
        AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND has_table_privilege(%s, c.oid, 'UPDATE, DELETE, TRUNCATE')
        ORDER BY 1""", role)


def test_nobody_locks_what_others_need(q):
    """Takers the tables of their queue alone. Who may make queues is trusted with the catalogue."""
    q.rows("SELECT queue.create('limited', option_names => '{max_running,max_running_per_group,retain_done}',"
           " option_values => '{3,2,1 h}')")
    q.rows("SELECT queue.create('log', option_names => '{kind}', option_values => '{stream}')")
    q.rows("SELECT queue.subscribe('sub', 'log')")
    q.rows("SELECT queue.schedule('tick', 'q', '1', every => '1 h')")
    assert lockable(q, "bob") == []
    q.rows("SELECT queue.grant('log', '{all}', '{bob}')")
    q.rows("SELECT queue.grant('q', '{push,await}', '{bob}')")
    assert lockable(q, "bob") == []
    q.rows("SELECT queue.grant('limited', '{all}', '{bob}')")
    k = q.value("SELECT number FROM queue.queues WHERE name = 'limited'")
    assert lockable(q, "bob") == ["a_limited", f"n{k}_gate", f"n{k}_groups", f"n{k}_noted", "q_limited"]
    bob = q.connect("bob")
    bob.rows("SELECT queue.schedule('bobs', 'limited', '1', every => '1 h')")
    bob.rows("BEGIN")
    bob.fails("42501", "LOCK TABLE queue.schedules IN SHARE MODE")
