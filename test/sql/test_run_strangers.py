"""What was pushed by who may not do so any more, or to a queue whose jobs were no SQL, does not run as the owner of one that has
begun to run them: whatever way it comes, and whoever is faster. bob publishes, fails or moves; app owns the queues."""

import psycopg
import pytest

ALTER = "SELECT queue.alter('mail', '{%s}', '{%s}')"
RUN = ALTER % ("run", "sql")
HANDLER = ALTER % ("handler", "h.f")
EVIL = '"DROP TABLE x"'


@pytest.fixture
def q(db):
    """app's queue mail; bob may PUBLISH to a topic that it is bound to, and no more."""
    db.script("""CREATE SCHEMA h; CREATE FUNCTION h.f(payload jsonb) RETURNS void LANGUAGE sql AS '';
        CREATE FUNCTION h.g(payload jsonb) RETURNS void LANGUAGE sql AS ''""")
    db.create("mail")
    db.rows("SELECT queue.create_topic('orders'), queue.bind('mail', 'orders.#'), queue.grant_topic('orders', '{publish}', '{bob}')")
    assert db.value("SELECT queue._routes_of('orders')") is not None
    return db


def jobs(db, queue="mail"):
    return db.value('SELECT count(*) FROM queue."q_%s"' % queue)


def publish(bob, **more):
    more["notify"] = "false"  # NOTIFY cannot be prepared
    return bob.rows("SELECT * FROM queue.publish('orders.x', '%s'::jsonb%s)" % (EVIL, "".join(", %s => '%s'" % pair for pair in more.items())))


@pytest.mark.parametrize("change", [RUN, HANDLER])
@pytest.mark.parametrize("end", ["COMMIT", "PREPARE TRANSACTION"])
def test_published_and_not_committed(q, change, end):
    """It is waited for, and found."""
    bob, owner = q.connect("bob"), q.connect()
    bob.rows("BEGIN")
    assert publish(bob)
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    name = "strangers_%s" % q.name
    if end == "PREPARE TRANSACTION":
        bob.rows("PREPARE TRANSACTION '%s'" % name)
    alter = owner.beside(owner.rows, change)
    q.until_blocked(owner)
    bob.rows("COMMIT PREPARED '%s'" % name if end == "PREPARE TRANSACTION" else end)
    said = alter.error_of("55000")
    assert said.message_primary == 'queue "mail" has jobs, which would run as "app"' and "QUEUE CANCEL ALL ON mail" in said.message_hint
    assert q.row("SELECT run, handler FROM queue.queues WHERE name = 'mail'") == (None, None)
    q.rows("SELECT queue.cancel_all('mail')")
    owner.rows(change)


def test_who_waits_for_it_is_not_kept(q):
    bob, owner = q.connect("bob"), q.connect()
    bob.rows("BEGIN")
    assert publish(bob)
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    owner.rows("SET lock_timeout = '50 ms'")
    owner.fails("55P03", RUN)
    bob.rows("ROLLBACK")
    owner.rows(RUN)


STATES = {"ready": "", "leased": "SELECT queue.take('mail')", "later": "UPDATE queue.q_mail SET state = 'later', run_at = now() + interval '1 h'",
          "dead": "SELECT queue.fail(token, 'x', final => true) FROM queue.take('mail')"}


@pytest.mark.parametrize("state", STATES)
def test_a_job_that_is_there(q, state):
    """One that is dead could be run again: that is SQL then, but no more than a payload for a handler."""
    q.push("mail", EVIL)
    if STATES[state]:
        q.rows(STATES[state])
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    assert q.column("SELECT state FROM queue.q_mail") == [state]
    hint = q.fails("55000", RUN).message_hint
    assert ("QUEUE PURGE mail STATE dead" in hint) == (state == "dead")
    if state == "dead":
        q.rows(HANDLER)
        q.fails("55000", "SELECT queue.alter('mail', '{run}', '{sql}', '{handler}')")
        q.rows("SELECT queue.purge('mail', 'dead')")
        q.rows("SELECT queue.alter('mail', '{run}', '{sql}', '{handler}')")
    else:
        q.fails("55000", HANDLER)


def test_one_that_is_blocked(q):
    q.rows("SELECT queue.push('mail', '1'::jsonb, \"group\" => 'g'), queue.push('mail', '2'::jsonb, \"group\" => 'g')")
    q.rows("SELECT queue.unbind('mail', 'orders.#'); DELETE FROM queue.q_mail WHERE state = 'ready'")
    q.fails("55000", HANDLER)


def test_what_may_be_changed_while_jobs_wait(q):
    """Another function, options, no handler any more; not SQL, and not the handler that it had once."""
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    q.rows(HANDLER)
    q.push("mail", EVIL)
    q.rows(ALTER % ("handler", "h.g"))
    q.rows(ALTER % ("timeout", "1 s"))
    q.fails("55000", "SELECT queue.alter('mail', '{run}', '{sql}', '{handler}')")
    q.rows("SELECT queue.alter('mail', '{}', '{}', '{handler}')")
    q.fails("55000", HANDLER)
    q.rows("UPDATE queue.queues SET retain_done = '1 h' WHERE name = 'mail'")


def test_sql_for_a_handler(q):
    """Who could push SQL could do whatever a handler does."""
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    q.rows(RUN)
    q.rows("SELECT queue.run('mail', 'SELECT 1')")
    q.rows("SELECT queue.alter('mail', '{handler}', '{h.f}', '{run}')")


@pytest.mark.parametrize("what", ["sql", "handler", "neither"])
def test_another_owner(q, what):
    """Jobs of the former one, also such as he has not committed, would run in the logins of the new one."""
    root, late = q.connect("postgres"), q.connect()
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    if what != "neither":
        q.rows(RUN if what == "sql" else HANDLER)
    root.script("ALTER FUNCTION h.f OWNER TO postgres; GRANT ALL ON SCHEMA h TO PUBLIC")
    give = "UPDATE queue.queues SET owner = 'bob' WHERE name = 'mail'"
    late.rows("BEGIN")
    late.push("mail", '"GRANT bob TO app"')
    if what == "neither":
        root.rows(give)
        root.rows("GRANT INSERT, UPDATE, DELETE ON queue.queues TO bob")
        late.rows("COMMIT")
        bob = q.connect("bob")
        bob.fails("55000", RUN)
        return
    given = root.beside(root.rows, give)
    q.until_blocked(root)
    late.rows("COMMIT")
    assert given.error_of("55000").message_primary == 'queue "mail" has jobs, which would run as "bob"'
    q.rows("SELECT queue.cancel_all('mail')")
    root.rows(give)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_not_in_an_old_snapshot(q, level):
    owner = q.connect()
    owner.rows("BEGIN ISOLATION LEVEL " + level)
    owner.rows("SELECT count(*) FROM queue.queues")
    assert publish(q.connect("bob"))
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    owner.fails("0A000", HANDLER)
    owner.rows("ROLLBACK; BEGIN ISOLATION LEVEL %s" % level)
    owner.rows("SELECT queue.create('own', false, '{run}', '{sql}')")
    owner.rows("COMMIT")


# --- who publishes while the queue becomes one of SQL ---

NUMBER = "(SELECT number FROM queue.topics)"
WAYS = {
    "publish": "SELECT * FROM queue.publish('orders.x', '%s'::jsonb)" % EVIL,
    "with a key": "SELECT * FROM queue.publish('orders.x', '%s'::jsonb, key => 'k')" % EVIL,
    "one": "SELECT queue._publish_one_%%s('orders.x', '%s', NULL, NULL, false)" % EVIL,
    "many": "SELECT * FROM queue._publish_%%s('{orders.x,orders.y}', ARRAY['%s', '%s'], NULL, NULL, false)" % (EVIL, EVIL),
    "each": "SELECT * FROM queue._publish_each(ARRAY['orders.x', '%s'], NULL, NULL, false)" % EVIL,
}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("way", WAYS)
def test_who_waits_for_the_change(q, way, level):
    """He has looked what is bound, and waits for the table: behind that lock it is another queue."""
    q.create("log")
    q.rows("SELECT queue.bind('log', 'orders.#')")
    sql = WAYS[way]
    if "%s" in sql:
        number = q.value("SELECT queue._routes_of('orders')")
        sql %= number
    bob = q.connect("bob")
    bob.rows("BEGIN ISOLATION LEVEL " + level)
    bob.rows("SELECT count(*) FROM queue.bindings")
    with q.conn.transaction():
        q.rows("SELECT queue.unbind('mail', 'orders.#')")
        q.rows(RUN)
        published = bob.beside(bob.rows, sql)
        q.until_blocked(bob)
    try:
        published.result()
        bob.rows("COMMIT")
    except psycopg.Error as e:
        assert e.sqlstate in ("40001", "42883"), e
        assert e.sqlstate == "40001" or way in ("one", "many")
        bob.rows("ROLLBACK")
    assert jobs(q) == 0
    publish(bob)
    assert jobs(q) == 0 and jobs(q, "log") >= 1


def test_who_waits_elsewhere_meanwhile(q):
    """... between what he has looked up and the push: at the key of another queue that is bound."""
    q.create("first")
    q.create("second")  # the one with the lower number comes first
    q.rows("SELECT queue.unbind('mail', 'orders.#'), queue.bind('first', 'orders.#'), queue.bind('second', 'orders.#')")
    q.rows("SELECT queue.grant('first', '{push}', '{mallory}')")
    mallory, bob = q.connect("mallory"), q.connect("bob")
    mallory.rows("BEGIN")
    mallory.rows("SELECT queue.push('first', '1'::jsonb, key => 'k')")
    published = bob.beside(publish, bob, key="k")
    q.until_blocked(bob)
    q.rows("SELECT queue.unbind('second', 'orders.#')")
    q.rows("SELECT queue.alter('second', '{run}', '{sql}')")
    mallory.rows("ROLLBACK")
    published.error_of("40001")
    assert jobs(q, "second") == 0 and jobs(q, "first") == 0


# --- what dies, and what is moved ---


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_what_dies_behind_an_old_snapshot(q, level):
    """... goes where dead jobs go now, or stays where it is."""
    q.create("inbox", dead_queue="mail", max_attempts=1)
    q.create("grave")
    q.rows("SELECT queue.unbind('mail', 'orders.#'), queue.grant('inbox', '{push,take}', '{bob}')")
    bob = q.connect("bob")
    bob.push("inbox", EVIL)
    (job,) = bob.take("inbox")
    bob.rows("BEGIN ISOLATION LEVEL " + level)
    bob.rows("SELECT count(*) FROM queue.queues")
    q.rows("SELECT queue.alter('inbox', '{dead_queue}', '{grave}')")
    q.rows(RUN)
    bob.rows("SELECT queue.fail(%s, 'x')", job["token"])
    bob.rows("COMMIT")
    assert jobs(q) == 0 and jobs(q, "grave") == (level == "READ COMMITTED")
    assert q.column("SELECT state FROM queue.q_inbox") == ["dead"] * (level != "READ COMMITTED")


def test_moved(q):
    """To a queue of SQL nothing is moved from one that has none."""
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    q.create("inbox")
    q.create("nightly", run="sql")
    q.rows(RUN)
    q.push("inbox", EVIL, EVIL)
    one, two = q.take("inbox", 2)
    move = "SELECT * FROM queue._move(ARRAY[%s], NULL, false, 'mail', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    assert "QUEUE RUN ... ON mail" in q.fails("42501", move, one["token"]).message_hint
    q.rows("SELECT queue.fail(%s, 'x', final => true)", two["token"])
    q.fails("42501", "SELECT queue.redrive('inbox', target => 'mail')")
    assert jobs(q) == 0 and jobs(q, "inbox") == 2
    q.rows("SELECT queue.run('nightly', 'SELECT 1'), queue.run('nightly', 'SELECT 2')")
    three, four = q.take("nightly", 2)
    q.rows(move, three["token"])
    q.rows("SELECT queue.fail(%s, 'x', final => true)", four["token"])
    q.rows("SELECT queue.redrive('nightly', target => 'mail')")
    assert jobs(q) == 2


@pytest.mark.parametrize("how", ["move", "redrive"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_moved_meanwhile(q, how, level):
    """... also while it becomes one."""
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    q.create("inbox")
    q.push("inbox", EVIL)
    (job,) = q.take("inbox")
    sql = "SELECT * FROM queue._move(ARRAY['%s'], NULL, false, 'mail', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)" % job["token"]
    if how == "redrive":
        q.rows("SELECT queue.fail(%s, 'x', final => true)", job["token"])
        sql = "SELECT queue.redrive('inbox', target => 'mail')"
    worker = q.connect()
    worker.rows("BEGIN ISOLATION LEVEL " + level)
    worker.rows("SELECT count(*) FROM queue.queues")
    with q.conn.transaction():
        q.rows(RUN)
        moved = worker.beside(worker.rows, sql)
        q.until_blocked(worker)
    moved.error_of("40001")
    worker.rows("ROLLBACK")
    assert jobs(q) == 0 and jobs(q, "inbox") == 1


# --- what pushes by itself ---


def test_changes_of_a_table_are_no_sql(q):
    """QUEUE TRACK of before: whatever others write into the table."""
    q.rows("SELECT queue.unbind('mail', 'orders.#')")
    q.script("CREATE TABLE t (sql text, database text); GRANT INSERT ON t TO bob")
    q.rows("SELECT queue.track('t', 'mail')")
    q.rows(RUN)
    q.connect("bob").rows("INSERT INTO t VALUES ('DROP TABLE x', 'y')")
    (job,) = q.take("mail")
    assert q.fails("22023", "SELECT * FROM queue._run_job(%s, 'public', false)", job["token"]).message_primary == "the payload is no SQL"
    q.create("texts", payload="text")
    q.rows("SELECT queue.track('t', 'texts')")
    q.rows("SELECT queue.alter('texts', '{run}', '{sql}')")
    q.connect("bob").rows("INSERT INTO t VALUES ('DROP TABLE x', 'y')")
    assert q.value("SELECT payload FROM queue.q_texts").startswith("{")


def test_a_schedule_of_who_may_not_push_any_more(q):
    q.rows("SELECT queue.unbind('mail', 'orders.#'), queue.grant('mail', '{push}', '{bob}')")
    bob = q.connect("bob")
    bob.rows("SELECT queue.schedule('evil', 'mail', '%s'::text, every => '1 day')" % EVIL)
    q.rows("SELECT queue.revoke('mail', '{push}', '{bob}')")
    q.rows(RUN)
    bob.fails("42501", "SELECT queue.trigger_schedule('evil')")
    assert jobs(q) == 0
