"""Who may do what, and hostile neighbours."""

import pytest

from sessions import install_script


@pytest.fixture
def q(db):
    db.create("q")
    db.push("q", '"secret"', '"secret"')
    return db


CALLS = [
    "SELECT * FROM queue.push('q', '1')", "SELECT * FROM queue.take('q')",
    "SELECT * FROM queue.take('q', 5)", "SELECT * FROM queue.pop('q')",
    "SELECT * FROM queue.peek('q')", "SELECT * FROM queue.stats('q')",
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
    assert "schema queue" in diag.message_primary and "GRANT" in diag.message_hint
    assert bob.fails("42501", "SELECT queue.drop('q')").message_primary == \
        'must be owner of queue "q"'
    bob.fails("42501", "SELECT queue.alter('q', ARRAY['lease'], ARRAY['1 s'])")
    bob.fails("42501", "UPDATE queue.queues SET lease = '1 s'")
    bob.fails("42501", "DELETE FROM queue.queues")
    bob.fails("42501", "CREATE FUNCTION queue.x() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    bob.rows("SELECT queue.create('q', true)")
    assert bob.rows("SELECT queue, owner FROM queue.list()") == [("q", "app")]


def test_push_needs_insert_only(q):
    q.rows("GRANT INSERT, SELECT (id, state, key, \"group\", expires_at) ON queue.q_q TO bob")
    bob = q.connect("bob")
    assert bob.value("SELECT queue.push('q', '1')") == 3
    bob.fails("42501", "SELECT queue.take('q')")
    bob.fails("42501", "SELECT payload FROM queue.q_q")


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
    q.rows("GRANT CREATE ON SCHEMA queue TO bob")
    q.rows("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob")
    bob = q.connect("bob")
    bob.create("r")
    bob.push("r", "1")
    assert len(bob.take("r")) == 1
    assert bob.rows("SELECT queue, owner FROM queue.list()") == [("q", "app"), ("r", "bob")]
    bob.fails("42501", "SELECT queue.drop('q')")
    q.fails("42501", "SELECT queue.push('r', '1')")
    bob.rows("SELECT queue.drop('r')")


def test_default_privileges_do_not_open_the_table(db):
    db.rows("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC")
    db.rows("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    db.create("q")
    bob = db.connect("bob")
    bob.fails("42501", "SELECT * FROM queue.q_q")
    db.rows("GRANT INSERT, SELECT (id, state, key, \"group\", expires_at) ON queue.q_q TO bob")
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
    q.fails("22023", "SELECT queue.done(%s)", text)
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
    column = session.column("SELECT c.attname FROM pg_attribute AS c, LATERAL aclexplode(c.attacl) AS a "
                            "WHERE c.attrelid = 'queue.q_q'::regclass AND a.grantee = %s::regrole ORDER BY 1", role)
    return table, column


# what who may push sees: the id that he made, and what KEY and GROUP look at
SEEN = ["expires_at", "group", "id", "key", "state"]


def test_grant_and_revoke(q):
    def call(verb, *words):
        q.rows("SELECT queue.%s('q', %%s, '{bob}')" % verb, list(words))

    call("grant", "push")
    assert rights(q) == (["INSERT"], list(SEEN))
    call("grant", "TAKE")
    assert rights(q) == (["DELETE", "INSERT", "SELECT", "UPDATE"], list(SEEN))
    call("revoke", "take")
    assert rights(q) == (["INSERT"], list(SEEN))
    call("revoke", "push")
    assert rights(q) == ([], [])
    call("grant", "All", "push")
    call("revoke", "push")
    assert rights(q) == (["DELETE", "SELECT", "UPDATE"], [])
    call("revoke", "take")
    call("grant", "push", "take")
    call("revoke", "all")
    assert rights(q) == ([], [])


def test_grant_and_revoke_await(q):
    def call(verb, *words):
        q.rows("SELECT queue.%s('q', %%s, '{bob}')" % verb, list(words))
    await_only = ["attempt", "ended_at", "error", "expires_at", "id", "state"]
    archive = "SELECT has_any_column_privilege('bob', 'queue.a_q', 'SELECT')"

    call("grant", "await")
    assert rights(q) == ([], await_only) and q.value(archive)
    call("grant", "push", "take")
    call("revoke", "take")
    assert rights(q) == (["INSERT"], sorted(set(await_only + SEEN))) and q.value(archive)
    call("revoke", "await")
    assert rights(q) == (["INSERT"], SEEN) and not q.value(archive)
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
