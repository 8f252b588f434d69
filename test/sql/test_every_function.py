"""Each function of the schema that anybody may execute, called by a role without any right, with arguments that fit: nothing
of what others have changes, and nothing of what was pushed is told, nor by an error.
"""

import psycopg
import pytest

SECRET = "geheim"
STATE = """SELECT md5(string_agg(t.x, ';' ORDER BY t.x)) FROM (
    SELECT concat(c.oid, c.relname, c.relowner, c.relacl, c.relfilenode, c.reltriggers) AS x FROM (SELECT c.*, (SELECT count(*) FROM pg_trigger AS g
            WHERE g.tgrelid = c.oid) AS reltriggers FROM pg_class AS c WHERE c.relnamespace = 'queue'::regnamespace) AS c
    UNION ALL SELECT concat(p.oid, p.proname, p.proowner, p.proacl, p.prosrc) FROM pg_proc AS p WHERE p.pronamespace = 'queue'::regnamespace
    %s) AS t"""


@pytest.fixture
def world(db):
    """A queue, a stream, a topic, a schedule of app's, and everything in use."""
    db.create("mail", retry="none", max_attempts="1")
    for i in range(4):
        db.rows("SELECT queue.push('mail', to_jsonb(%s::text), headers => jsonb_build_object('h', %s::text), key => %s, \"group\" => 'g' || %s)",
                SECRET, SECRET, "k%d" % i, i)
    jobs = db.take("mail", 2)
    db.rows("SELECT queue.fail(%s, %s)", jobs[1]["token"], SECRET)
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}'), queue.subscribe('a', 's', 'beginning')")
    db.rows("SELECT queue.create_topic('orders'), queue.bind('mail', 'orders.#'), queue.bind('s', 'orders.#'), queue._routes_of('orders')")
    db.rows("SELECT queue.push('s', to_jsonb(%s::text), headers => jsonb_build_object('h', %s::text), key => %s, \"group\" => %s) FROM generate_series(1, 6)",
            SECRET, SECRET, SECRET, SECRET)
    (first, *_) = db.column("SELECT token FROM queue.take_for('s', 'a', 2)")
    db.rows("SELECT queue.fail(%s, %s, final => true)", first, SECRET)
    (out, *_) = db.column("SELECT token FROM queue.take_for('s', 'a', 2)")
    db.rows("SELECT queue.schedule('nightly', 'mail', to_jsonb(%s::text), every => '1 h')", SECRET)
    numbers = {name: n for name, n in db.rows("SELECT name, number FROM queue.queues UNION ALL SELECT name, number FROM queue.streams "
                                              "UNION ALL SELECT name, number FROM queue.topics UNION ALL SELECT name, number FROM queue.subscriptions")}
    return {"job": jobs[0]["token"], "delivery": out, "numbers": numbers, "ids": {"mail": jobs[0]["id"], "s": 1}}


WORDS = {"sub": "a", "reader": "a", "topic": "orders.x", "wanted": "orders.x", "pattern": "orders.#", "start": "beginning", "which": "dead",
         "kind": "push", "role": "mallory", "topics": "orders.x", "rights": "all", "roles": "mallory", "state": "dead", "payload": "1",
         "payloads": "1", "pairs": None, "schedule": "nightly", "error": "x", "worker": "w", "who": "w", "stated": None, "name": None,
         "batch": None, "condition": None, "headers": None}


def value(about, world, name, kind):
    """A value that fits, as SQL; about: a queue, a stream or a topic."""
    thing = {"mail": "mail", "s": "s", "orders": "orders"}[about]
    token = world["delivery"] if about == "s" else world["job"]
    number = world["numbers"]["a"] if name in ("sub", "reader") else world["numbers"][thing]
    if kind in ("text", "text[]", "name"):
        word = WORDS.get(name, thing)
        if name.startswith(("token", "job")) or name in ("orphans", "names") and kind == "text[]":
            word = token
        elif name == "topic" and about == "orders":
            word = "orders"
        elif name == "pairs":
            return "ARRAY['orders.x', '1']"
        if word is None:
            word = thing if name == "name" else None
        quoted = "NULL" if word is None else "'%s'" % word
        return "ARRAY[%s]::text[]" % quoted if kind == "text[]" else quoted
    return {
        "integer": "1" if name in ("lim", "most", "n", "limit", "at") else str(number), "bigint": str(world["ids"].get(about, 1)),
        "integer[]": "ARRAY[%d]" % number, "bigint[]": "ARRAY[%d]::int8[]" % world["ids"].get(about, 1),
        "boolean": "true" if name == "final" else "false", "interval": "interval '1 h'", "timestamp with time zone": "clock_timestamp()",
        "jsonb": "NULL::jsonb", "regclass": "'queue.%s'::regclass" % ("e%d_0" % world["numbers"]["s"] if about == "s" else "q_mail"),
        "oid": "'queue.e%d_0'::regclass::oid" % world["numbers"]["s"], "pg_snapshot": "'3:3:'::pg_snapshot", "xid8": "'3'::xid8",
        "xid8[]": "'{}'::xid8[]", "smallint": "1::int2", "double precision": "1.0::float8", "regrole": "'app'::regrole", "uuid": "gen_random_uuid()",
        "queue.queues": "(SELECT x FROM queue.queues AS x LIMIT 1)", "queue.streams": "(SELECT x FROM queue.streams AS x LIMIT 1)",
        "queue.subscriptions": "(SELECT x FROM queue.subscriptions AS x LIMIT 1)", "queue.topics": "(SELECT x FROM queue.topics AS x LIMIT 1)",
    }.get(kind, "NULL::%s" % kind)


def functions(root):
    return root.rows("""SELECT p.oid, format('queue.%I', p.proname), p.oid::regprocedure::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, n) ORDER BY n),
            coalesce(p.proargnames, '{}'), p.provariadic <> 0
        FROM pg_proc AS p WHERE p.pronamespace = 'queue'::regnamespace AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
            AND p.prokind = 'f' AND has_function_privilege('mallory', p.oid, 'EXECUTE') ORDER BY 2, 3""")


RIGHTS = {
    "none": None,
    "push": "SELECT queue.grant('mail', '{push}', '{mallory}'), queue.grant('s', '{push}', '{mallory}')",
    "publish and bind": "SELECT queue.grant_topic('orders', '{publish,bind}', '{mallory}')",
}


@pytest.mark.parametrize("about", ["mail", "s", "orders"])
@pytest.mark.parametrize("right", RIGHTS)
def test_nobody_gets_or_changes_anything(db, world, right, about):
    """Who may push, publish or bind changes something by that, and is told nothing of what is there."""
    if RIGHTS[right]:
        db.rows(RIGHTS[right])
    root = db.connect("postgres")
    tables = root.column("SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relnamespace = 'queue'::regnamespace AND c.relkind = 'r' AND c.relname NOT IN ('figures')")
    state = STATE % "".join(" UNION ALL SELECT '%s' || x::text FROM %s AS x" % (t.replace("'", "''"), t) for t in tables)
    before = root.value(state)
    seen, found, calls = [], functions(root), 0
    assert len(found) > 300
    for _, name, full, kinds, names, _ in found:
        names = list(names) + [""] * len(kinds)
        sql = "SELECT x::text FROM %s(%s) AS x" % (name, ", ".join(value(about, world, n, k) for n, k in zip(names, kinds)))
        root.rows("BEGIN; SET LOCAL ROLE mallory; SET LOCAL lock_timeout = '1 s'; SET LOCAL statement_timeout = '20 s'")
        root.notices.clear()
        try:
            said = repr(root.conn.execute(sql.encode()).fetchall())
            calls += 1
            root.rows("RESET ROLE")
            if right == "none" and root.value(state) != before:
                seen.append("changed: " + sql)
        except psycopg.Error as err:
            said = repr([getattr(err.diag, part) for part in ("message_primary", "message_detail", "message_hint", "context")])
            if err.sqlstate in ("57014", "XX000", None):
                seen.append("%s: %s %s" % (err.sqlstate, sql, err))
        if SECRET in said or SECRET in repr(root.notices):
            seen.append("told: %s: %s" % (sql, said[:200]))
        root.rows("ROLLBACK")
    assert seen == []
    assert calls > 80
