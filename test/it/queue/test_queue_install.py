"""The schema: installed at first use, by whom, and what a role may do with it."""

import subprocess
import threading

import pytest

from pgwire import PgError, types
from proxy import wait_for
from queuetest import HEARTBEAT, error, parked, peek, stats, tag, take, woken  # noqa: F401

pytestmark = pytest.mark.bare

FIRST = ["QUEUE CREATE mail", "QUEUE LIST", "QUEUE STATS", "SELECT 1; QUEUE CREATE mail",
         "QUEUE CREATE mail; QUEUE PUSH mail '1'"]


@pytest.mark.parametrize("first", FIRST)
def test_at_first_use(proxy, db, first):
    with proxy.wire(db) as c:
        assert "E" not in types(c.simple(first))
        assert c.rows("SELECT queue.version()") == [{"version": "1"}]


@pytest.mark.parametrize("first", ["QUEUE TAKE mail", "QUEUE PUSH mail '1'", "QUEUE TAKE mail WAIT '5s'"])
def test_first_use_of_a_queue_that_is_not_there(proxy, db, first):
    with proxy.wire(db) as c:
        e = error(c, first)
        assert e.sqlstate == "42P01" and "QUEUE CREATE mail" in e.fields["H"]


def test_first_statement_in_a_transaction(proxy, db):
    """The installation is not part of it."""
    with proxy.wire(db) as c:
        tag(c, "BEGIN")
        tag(c, "CREATE TABLE t (a int)")
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        tag(c, "ROLLBACK")
        assert c.rows("QUEUE LIST") == []
        assert c.rows("SELECT to_regclass('t') IS NULL AS gone") == [{"gone": "t"}]


def test_first_statement_in_a_serializable_transaction(proxy, db):
    """A snapshot from before the installation: an error or the queue, and the session lives."""
    with proxy.wire(db) as c:
        tag(c, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        tag(c, "SELECT count(*) FROM pg_class")
        c.simple("QUEUE CREATE mail")
        c.simple("ROLLBACK")
        tag(c, "QUEUE CREATE mail IF NOT EXISTS")
        tag(c, "QUEUE PUSH mail '1'")
        assert take(c)["payload"] == "1"


def test_first_statement_in_a_batch(proxy, db):
    with proxy.wire(db) as c:
        c.hold().parse("", "SELECT 1").bind().execute()
        c.parse("", "QUEUE CREATE mail").bind().execute()
        c.parse("", "QUEUE PUSH mail $1").bind("", "", ["1"]).execute()
        c.parse("", "SELECT 2").bind().execute().sync()
        c.parse("", "QUEUE TAKE mail WAIT '5s'").bind().execute().sync().push()
        assert types(c.until("Z")) == "12DC12C12C12DCZ"
        assert types(c.until("Z")) == "12DCZ"


def test_many_first_statements_at_once(proxy, db):
    wires = [proxy.wire(db) for _ in range(20)]
    for w in wires:
        w.query("QUEUE CREATE mail IF NOT EXISTS")
    for w in wires:
        assert types(w.until("Z")) in ("CZ", "NCZ")
        w.close()


def test_two_proxies_at_once(qbouncer, db):
    for _ in range(2):
        one, two = qbouncer(), qbouncer()
        with one.wire(db) as a, two.wire(db) as b:
            a.query("QUEUE LIST")
            b.query("QUEUE LIST")
            assert types(a.until("Z")) == "TCZ" and types(b.until("Z")) == "TCZ"
            a.simple("DROP SCHEMA queue CASCADE")


def test_client_goes_while_the_schema_is_installed(proxy, db):
    for n in range(5):
        w = proxy.wire(db)
        w.query("QUEUE LIST")
        w.reset() if n % 2 else w.close()
    with proxy.wire(db) as c:
        assert c.rows("QUEUE LIST") == []


def no_schema(e, db):
    return e.sqlstate == "3F000" and "--print-schema" in e.fields["H"] and db in e.message


@pytest.mark.parametrize("sql", ["QUEUE CREATE mail", "QUEUE TAKE mail WAIT '5s'", "SELECT 1; QUEUE LIST"])
def test_role_without_rights(proxy, db, sql):
    with proxy.wire(db, "other") as o, proxy.wire(db) as c:
        e = error(o, sql)
        assert no_schema(e, db) and 'not for "other"' in e.fields["D"]
        assert o.rows("SELECT 1 AS a") == [{"a": "1"}]
        got = o.hold().parse("", "QUEUE LIST").bind().execute().sync().push().until("Z")
        assert types(got) == "12EZ" and got[2].sqlstate == "3F000"
        tag(o, "BEGIN")
        assert error(o, "QUEUE LIST").sqlstate == "3F000"
        assert tag(o, "COMMIT") == "ROLLBACK"
        # one that may comes
        wait_for(lambda: "E" not in types(c.simple("QUEUE CREATE mail IF NOT EXISTS")), "the installation")
        wait_for(lambda: error(o, "QUEUE PUSH mail '1'").sqlstate == "42501", "that it is seen")


def test_what_one_role_may_not_another_may(proxy, db):
    """... at once: that it failed is remembered of the role."""
    with proxy.wire(db, "other") as bob, proxy.wire(db) as app:
        assert error(bob, "QUEUE LIST").sqlstate == "3F000"
        assert app.rows("QUEUE LIST") == [] and bob.rows("QUEUE LIST") == []


def test_a_stranger_does_not_install(qbouncer, db, cluster):
    """CREATE on the database would be enough; but whoever installs is trusted by all who use queues."""
    cluster.psql('GRANT CREATE ON DATABASE "%s" TO other' % db)
    with qbouncer().wire(db, "other") as o:
        e = error(o, "QUEUE CREATE mail")
        assert no_schema(e, db) and '("app")' in e.fields["D"] and "AS app" in e.fields["H"]
        assert o.rows("SELECT to_regnamespace('queue') IS NULL AS none") == [{"none": "t"}]
    # the operator may name that role
    proxy = qbouncer(queue_user="other")
    with proxy.wire(db, "other") as o, proxy.wire(db) as c:
        assert o.rows("QUEUE LIST") == [] and c.rows("QUEUE LIST") == []


SQUAT = """
CREATE SCHEMA queue; GRANT USAGE ON SCHEMA queue TO PUBLIC;
CREATE TABLE queue.loot (who text, what text); GRANT ALL ON queue.loot TO PUBLIC;
CREATE FUNCTION queue.version() RETURNS int4 LANGUAGE sql AS
    'INSERT INTO queue.loot VALUES (current_user, ''version''); SELECT 1';
CREATE FUNCTION queue.list() RETURNS TABLE (queue text) LANGUAGE sql AS
    'INSERT INTO queue.loot VALUES (current_user, ''list''); SELECT ''x''::text';
CREATE FUNCTION queue.push(q text, payload text) RETURNS int8 LANGUAGE sql AS
    'INSERT INTO queue.loot VALUES (current_user, payload); SELECT 1::int8';
"""


def test_a_schema_of_a_stranger(qbouncer, db, cluster):
    """With CREATE on the database she makes one that looks like it: nothing of it is called, by whoever says QUEUE."""
    proxy = qbouncer(users={name: "-" for name in ("postgres", "app", "stats", "other", "admin")})
    cluster.psql('GRANT CREATE ON DATABASE "%s" TO other' % db)
    cluster.psql(SQUAT, db, "other")
    for user in ("postgres", "app", "stats"):
        with proxy.wire(db, user) as c:
            for sql in ("QUEUE STATS", "QUEUE LIST", "QUEUE PUSH mail '\"secret\"'", "SELECT 1; QUEUE LIST"):
                e = error(c, sql)
                assert e.sqlstate == "42501" and '"other"' in e.message and "queue_user = other" in e.fields["H"]
    assert cluster.psql("SELECT * FROM queue.loot", db) == ""
    assert 'queues are not used: the queue schema of database "%s" belongs to role "other"' % db in proxy.log_text()
    # one that she has really installed is hers, too
    cluster.psql("DROP SCHEMA queue CASCADE", db)
    with proxy.wire("qbouncer", "admin") as admin:
        admin.simple("INSTALL %s AS other" % db)
    with proxy.wire(db) as c:
        wait_for(lambda: error(c, "QUEUE LIST").sqlstate == "42501", "that it is seen")
        cluster.psql("DROP SCHEMA queue CASCADE", db)
        wait_for(lambda: "E" not in types(c.simple("QUEUE CREATE mail")), "the installation by the owner")


def test_a_stranger_who_may_create(qbouncer, db, cluster):
    """... functions in the schema: one that fits better would be called."""
    with qbouncer().wire(db) as c:
        tag(c, "QUEUE CREATE mail")
    for role in ("other", "PUBLIC"):
        cluster.psql("GRANT CREATE ON SCHEMA queue TO %s" % role, db)
        with qbouncer().wire(db) as c:
            e = error(c, "QUEUE LIST")
            assert e.sqlstate == "42501" and '"%s"' % role in e.message and "FROM %s;" % role in e.fields["H"]
            cluster.psql("REVOKE CREATE ON SCHEMA queue FROM %s" % role, db)
            wait_for(lambda: "E" not in types(c.simple("QUEUE LIST")), "that it is seen")


def test_a_function_of_a_predefined_role(qbouncer, db, cluster):
    """Postgres does not note what it owns; its members may have made it."""
    with qbouncer().wire(db) as c:
        tag(c, "QUEUE CREATE mail")
    cluster.psql("GRANT pg_monitor TO other; GRANT CREATE, USAGE ON SCHEMA queue TO pg_monitor", db)
    try:
        with qbouncer().wire(db) as c:
            cluster.psql("SET ROLE pg_monitor; CREATE FUNCTION queue.list(x int4) RETURNS int4 LANGUAGE sql AS 'SELECT 1'", db, "other")
            cluster.psql("REVOKE CREATE ON SCHEMA queue FROM pg_monitor", db)
            e = error(c, "QUEUE LIST")
            assert e.sqlstate == "42501" and '"pg_monitor"' in e.message
            cluster.psql("DROP FUNCTION queue.list(int4)", db)
            wait_for(lambda: "E" not in types(c.simple("QUEUE LIST")), "that it is seen")
    finally:
        cluster.psql("REVOKE pg_monitor FROM other", db)


def test_not_by_itself(qbouncer, db, cluster, program):
    proxy = qbouncer(queue_auto_install=0)
    with proxy.wire(db) as c:
        e = error(c, "QUEUE LIST")
        assert no_schema(e, db) and "queue_auto_install" in e.fields["D"]
        assert c.rows("SELECT to_regnamespace('queue') IS NULL AS none") == [{"none": "t"}]
        schema = subprocess.run([program, "--print-schema"], stdout=subprocess.PIPE, text=True, check=True,
                                preexec_fn=proxy.become).stdout
        cluster.psql(schema, db, "app")
        wait_for(lambda: "E" not in types(c.simple("QUEUE CREATE mail")), "that it is seen")


def test_schema_is_dropped(qbouncer, db, direct):
    """The statement that finds out fails; then it is there again."""
    proxy = qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="100ms")
    with proxy.wire(db) as c, proxy.wire(db) as w:
        for sql in ("QUEUE CREATE mail", "QUEUE LIST", "QUEUE TAKE mail", "SELECT 1; QUEUE CREATE mail",
                    "BEGIN; QUEUE CREATE mail", "QUEUE PUSH mail '1'"):
            tag(c, "QUEUE CREATE mail IF NOT EXISTS")
            w.query("QUEUE TAKE mail WAIT '30s'")
            parked(w)
            direct.execute("DROP SCHEMA queue CASCADE")
            got = [m.sqlstate for m in w.until("Z") if m.type == "E"]
            assert got and got[0] in ("3F000", "42883", "42P01"), got
            c.simple(sql)
            c.simple("ROLLBACK")
            wait_for(lambda: "E" not in types(c.simple("QUEUE CREATE mail IF NOT EXISTS")), "the schema after " + sql)
            w.query("QUEUE TAKE mail WAIT '30s'")
            parked(w)
            tag(c, "QUEUE PUSH mail '1'")
            assert woken(w)["payload"] == "1"


@pytest.mark.parametrize("way", ["block", "batch", "string"])
def test_schema_is_dropped_and_nothing_but_blocks_follow(qbouncer, db, direct, way):
    proxy = qbouncer(queue_heartbeat=HEARTBEAT)
    with proxy.wire(db) as c:
        def go():
            if way == "block":
                c.simple("BEGIN")
                got = c.simple("QUEUE CREATE mail IF NOT EXISTS")
                c.simple("COMMIT")
            elif way == "batch":
                c.hold().parse("", "SELECT 1").bind().execute()
                got = c.parse("", "QUEUE CREATE mail IF NOT EXISTS").bind().execute().sync().push().until("Z")
            else:
                got = c.simple("SELECT 1; QUEUE CREATE mail IF NOT EXISTS")
            return "E" not in types(got)
        assert go()
        direct.execute("DROP SCHEMA queue CASCADE")
        wait_for(go, "the schema")


# --- roles ----------------------------------------------------------------------------------------


def grant(c):
    tag(c, "GRANT USAGE ON SCHEMA queue TO other")
    tag(c, "GRANT ALL ON ALL TABLES IN SCHEMA queue TO other")
    tag(c, "GRANT ALL ON ALL SEQUENCES IN SCHEMA queue TO other")


VERBS = ["QUEUE PUSH mail '1'", "QUEUE TAKE mail", "QUEUE TAKE mail WAIT '5s'", "QUEUE POP mail", "QUEUE PEEK mail",
         "QUEUE PURGE mail", "QUEUE DROP mail", "QUEUE ALTER mail SET (max_attempts = 1)", "QUEUE CREATE mine",
         "QUEUE STATS mail"]


def test_role_without_grants(proxy, db):
    with proxy.wire(db) as c, proxy.wire(db, "other") as o:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        token = take(c)["token"]
        tag(c, "QUEUE PUSH mail '2'")
        before = [{k: v for k, v in row.items() if k != "ran"} for row in peek(c)]
        for sql in VERBS + ["QUEUE %s '%s'" % (v, token) for v in ("DONE", "FAIL", "RELEASE", "EXTEND")]:
            for block in ("", "BEGIN"):
                if block:
                    tag(o, block)
                if block and "WAIT" in sql:
                    tag(o, "ROLLBACK")
                    continue
                e = error(o, sql)
                assert e.sqlstate == "42501", (sql, e.fields)
                if block:
                    tag(o, "ROLLBACK")
        assert [{k: v for k, v in row.items() if k != "ran"} for row in peek(c)] == before


def test_role_with_grants(proxy, db):
    """Its statements are its own, also when others are merged with them."""
    with proxy.wire(db) as c, proxy.wire(db, "other") as o:
        tag(c, "QUEUE CREATE mail")
        grant(c)
        tag(c, "CREATE TABLE who (name text)")
        tag(c, "GRANT INSERT ON who TO other")
        tag(c, "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
               "INSERT INTO public.who VALUES (TG_OP || ' ' || current_user); RETURN NULL; END $$")
        tag(c, "CREATE TRIGGER note AFTER INSERT OR DELETE ON queue.q_mail FOR EACH ROW EXECUTE FUNCTION note()")
        wires = [proxy.wire(db, user) for user in ("app", "other") * 5]
        for w in wires:
            w.query("QUEUE PUSH mail '1'")
        for w in wires:
            assert types(w.until("Z")) == "CZ"
            w.close()
        counts = c.rows("SELECT name, count(*) FROM who GROUP BY name ORDER BY name")
        assert counts == [{"name": "INSERT app", "count": "5"}, {"name": "INSERT other", "count": "5"}]
        token = take(o)["token"]
        tag(o, "QUEUE DONE '%s'" % token)
        assert c.rows("SELECT count(*) FROM who WHERE name = 'DELETE other'") == [{"count": "1"}]


def test_good_and_bad_roles_at_once(proxy, db):
    """One that may not does not spoil the batch of those that may."""
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        wires = [(user, proxy.wire(db, user)) for user in ("app", "other") * 8]
        for user, w in wires:
            w.query("QUEUE PUSH mail '1'")
        for user, w in wires:
            got = w.until("Z")
            assert types(got) == ("CZ" if user == "app" else "EZ")
            w.close()
        assert stats(c)["ready"] == 8


def test_good_and_bad_pushes_at_once(proxy, db):
    """The guilty one of a merged batch is alone with its error."""
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        wires = [proxy.wire(db) for _ in range(24)]
        for n, w in enumerate(wires):
            w.query("QUEUE PUSH mail '%s' RETURNING ID" % (n if n % 5 else "bad %d" % n))
        for n, w in enumerate(wires):
            got = w.until("Z")
            assert types(got) == ("TDCZ" if n % 5 else "EZ"), (n, got)
            if not n % 5:
                assert got[0].sqlstate == "22P02"
        assert sorted(int(r["payload"]) for r in peek(c)) == [n for n in range(24) if n % 5]
        tokens = [r["token"] for r in c.rows("QUEUE TAKE mail LIMIT 50")]
        tokens[3] = tokens[7] = "1-1-0000000000000000"
        for w, t in zip(wires, tokens):
            w.query("QUEUE DONE '%s'" % t)
        for n, (w, t) in enumerate(zip(wires, tokens)):
            got = w.until("Z")
            assert types(got) == ("EZ" if n in (3, 7) else "CZ")
        assert stats(c)["leased"] == 2
        for w in wires:
            w.close()


def test_set_role_in_a_block(proxy, db, cluster):
    cluster.psql("GRANT other TO app")
    try:
        with proxy.wire(db) as c:
            tag(c, "QUEUE CREATE mail")
            tag(c, "BEGIN; SET LOCAL ROLE other")
            assert error(c, "QUEUE PUSH mail '1'").sqlstate == "42501"
            tag(c, "ROLLBACK")
            tag(c, "QUEUE PUSH mail '1'")
    finally:
        cluster.psql("REVOKE other FROM app")


def test_forced_user(qbouncer, db, cluster):
    """user= of a database: everybody's statements run as that role, waiting included."""
    proxy = qbouncer(databases={"forced": "host=%s port=%d dbname=%s user=app" % (cluster.socket_dir, cluster.port, db)},
                     queue_heartbeat=HEARTBEAT, queue_rescan="1h")
    with proxy.wire("forced", "other") as o, proxy.wire("forced", "app") as c, proxy.wire(db, "app") as d:
        tag(o, "QUEUE CREATE mail")
        assert o.rows("QUEUE LIST")[0]["owner"] == "app"
        o.query("QUEUE TAKE mail WAIT '30s'")
        parked(o)
        tag(c, "QUEUE PUSH mail '1'")
        assert woken(o)["payload"] == "1"
        # another name of the same database: its notification
        o.query("QUEUE TAKE mail WAIT '30s'")
        parked(o)
        tag(d, "QUEUE PUSH mail '2'")
        assert woken(o)["payload"] == "2"


def test_system_session_of_another_role(qbouncer, db, cluster):
    """queue_user listens, for everybody; the work runs as each client's own role."""
    proxy = qbouncer(queue_user="stats", queue_heartbeat=HEARTBEAT, queue_rescan="1h")
    with proxy.wire(db) as c, proxy.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        wait_for(lambda: cluster.psql("SELECT usename FROM pg_stat_activity WHERE application_name = 'qbouncer system' "
                                      "AND datname = '%s'" % db) == "stats", "the system session")
        cluster.psql("SELECT queue.push('mail', '1')", db)
        assert woken(w)["payload"] == "1"


def test_system_session_follows_the_configuration(qbouncer, db, cluster):
    """RELOAD: the entry is another database now, and the role of the session another one."""
    def entry(name):
        return "host=%s port=%d dbname=%s" % (cluster.socket_dir, cluster.port, name)

    def session(name):
        return cluster.psql("SELECT string_agg(usename, ' ') FROM pg_stat_activity WHERE application_name = "
                            "'qbouncer system' AND datname = '%s'" % name)

    second = cluster.createdb(owner="app")
    try:
        proxy = qbouncer(databases={"moves": entry(db)}, queue_user="stats", queue_rescan="1h",
                         queue_heartbeat=HEARTBEAT)
        with proxy.wire("moves") as c, proxy.wire("moves") as w, proxy.wire(second) as there:
            # the number of the queue is another one there
            tag(there, "QUEUE CREATE first")
            tag(there, "QUEUE CREATE mail")
            tag(c, "QUEUE CREATE mail")
            w.query("QUEUE TAKE mail WAIT '60s'")
            parked(w)
            wait_for(lambda: session(db) == "stats", "the system session")
            proxy.databases["moves"] = entry(second)
            proxy.settings["queue_user"] = "other"
            proxy.reload()
            wait_for(lambda: session(second) == "other", "its new place")
            assert session(db) == ""
            tag(c, "QUEUE PUSH mail '1'")
            assert woken(w)["payload"] == "1"
            w.query("QUEUE TAKE mail WAIT '60s'")
            parked(w)
            cluster.psql("SELECT queue.push('mail', '2')", second)
            assert woken(w)["payload"] == "2"
        proxy.stop()
    finally:
        cluster.dropdb(second)


def test_first_statements_by_threads_of_all_kinds(proxy, db):
    """At once: in a block, in a batch, as a string, waiting."""
    problems = []

    def run(fn):
        try:
            with proxy.wire(db) as c:
                fn(c)
        except (PgError, AssertionError, OSError) as e:
            problems.append(e)

    def block(c):
        tag(c, "BEGIN")
        tag(c, "SELECT 1")
        tag(c, "QUEUE LIST")
        tag(c, "COMMIT")

    def string(c):
        tag(c, "SELECT 1; QUEUE LIST")

    def wait(c):
        assert error(c, "QUEUE TAKE mail WAIT '5s'").sqlstate == "42P01"

    def plain(c):
        tag(c, "QUEUE LIST")

    threads = [threading.Thread(target=run, args=(fn,)) for fn in (block, string, wait, plain) * 3]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems
