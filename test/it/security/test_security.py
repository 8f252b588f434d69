"""Attacks by four roles on each other, on a superuser and on the proxy: doc/security.md, whose
sentences name these tests.

owner makes queues, taker takes from them, pusher pushes, nobody has no right at all. app has installed
the schema and has a queue of its own; postgres is the superuser who looks in now and then. An attack is
carried as far as Postgres lets it: what is refused on the way needs no further proof. What counts is
the loot: whatever ran with somebody else's rights has written who it was.
"""

import contextlib
import glob
import os
import re
import time

import psycopg
import pytest

from metrics import samples
from proxy import free_port, wait_for
from queuetest import error, parked, tag, take  # noqa: F401
from tree import ROOT

FAST = {"queue_maintenance": "50ms", "queue_orphan_grace": "200ms"}

ROLES = """
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['owner', 'taker', 'pusher', 'nobody'] LOOP
        IF to_regrole(r) IS NULL THEN
            EXECUTE format('CREATE ROLE %I LOGIN', r);
        END IF;
    END LOOP;
END $$
"""

# everybody may leave word here; steal() runs as whoever meets it
LOOT = """
CREATE SCHEMA evil AUTHORIZATION owner;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
SET ROLE owner;
CREATE TABLE evil.loot (who text DEFAULT current_user, login text DEFAULT session_user, how text);
GRANT ALL ON evil.loot TO PUBLIC;
CREATE FUNCTION evil.steal(how text) RETURNS bool LANGUAGE plpgsql AS
    'BEGIN INSERT INTO evil.loot (how) VALUES (how); RETURN true; END';
CREATE FUNCTION evil.look(how text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM evil.steal(how); RETURN true; END';
CREATE FUNCTION evil.trap() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM evil.steal(TG_OP || '' of '' || TG_TABLE_NAME); RETURN coalesce(NEW, OLD); END';
RESET ROLE;
"""

# with what the documentation gives, and with what it once gave
MAY_CREATE = "GRANT INSERT, UPDATE, DELETE ON queue.queues TO owner"
MAY_CREATE_OLD = MAY_CREATE + "; GRANT CREATE ON SCHEMA queue TO owner"


class Scene:
    """A proxy, and connections by role that do not pass through it."""

    def __init__(self, proxy, cluster, db):
        self.proxy, self.cluster, self.db, self.stack = proxy, cluster, db, contextlib.ExitStack()

    def direct(self, user):
        return self.stack.enter_context(psycopg.connect(self.cluster.dsn(self.db, user), autocommit=True))

    def wire(self, user):
        return self.stack.enter_context(self.proxy.wire(self.db, user))

    def loot(self):
        """What ran with the rights of others than the one who wrote it."""
        with psycopg.connect(self.cluster.dsn(self.db)) as conn:
            return conn.execute("SELECT DISTINCT who, login, how FROM evil.loot "
                                "WHERE who <> 'owner' OR login <> 'owner'").fetchall()

    def maintained(self, times=3):
        """Until maintenance has deleted something of app's, so often."""
        with psycopg.connect(self.cluster.dsn(self.db), autocommit=True) as conn:
            for _ in range(times):
                conn.execute("INSERT INTO queue.a_mail (id, pushed_at, ended_at, priority, attempt, failures, state, payload) "
                             "VALUES (1, now(), now() - interval '1 year', 0, 1, 0, 'done', '1')")
                wait_for(lambda: conn.execute("SELECT count(*) FROM queue.a_mail").fetchone() == (0,),
                         "a round of the maintenance", timeout=60)


def attempt(conn, *statements):
    """As far as it gets."""
    for sql in statements:
        with contextlib.suppress(psycopg.Error):
            conn.execute(sql)


@pytest.fixture
def scene(qbouncer, cluster, db):
    cluster.psql(ROLES)
    port = free_port()
    users = {name: "-" for name in ("postgres", "owner", "taker", "pusher", "nobody")}
    s = Scene(qbouncer(**FAST, metrics_port=port, users=users), cluster, db)
    s.metrics = port
    s.app = s.wire("app")
    tag(s.app, "QUEUE CREATE mail")
    cluster.psql(LOOT, db)
    with s.stack:
        yield s


@pytest.fixture(params=[MAY_CREATE, MAY_CREATE_OLD], ids=["granted", "granted more"])
def evil(request, scene):
    """owner, who may make queues, with one that everybody may use."""
    scene.request_id = request.node.name
    scene.cluster.psql(request.param, scene.db)
    conn = scene.direct("owner")
    attempt(conn, "SELECT queue.create('evil', false, '{retain_dead}', '{1 h}')",
            "SELECT queue.grant('evil', '{all}', '{public}')",
            "GRANT ALL ON queue.q_evil, queue.a_evil TO PUBLIC")
    return conn


def superuser_at_work(scene):
    """As one who uses a queue of app's, which is nobody's trap."""
    su = scene.wire("postgres")
    tag(su, "QUEUE PUSH mail '1'")
    tag(su, "QUEUE DONE '%s'" % take(su)["token"])
    return su


def dead_row(conn, queue="evil"):
    attempt(conn, "INSERT INTO queue.q_%s (state, ended_at, payload) VALUES ('dead', now() - interval '1 day', '1')" % queue,
            "INSERT INTO queue.q_%s (expires_at, payload) VALUES (now() - interval '1 day', '1')" % queue,
            "INSERT INTO queue.a_%s (id, pushed_at, ended_at, state, payload) "
            "VALUES (1, now(), now() - interval '1 year', 'done', '1')" % queue)


def set_traps(conn, queue="evil"):
    """Whatever a table can carry that runs when somebody changes it."""
    for t in ("q_" + queue, "a_" + queue):
        attempt(conn, "CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON queue.%s FOR EACH ROW "
                      "EXECUTE FUNCTION evil.trap()" % t,
                "CREATE TRIGGER traps AFTER INSERT OR UPDATE OR DELETE ON queue.%s FOR EACH STATEMENT "
                "EXECUTE FUNCTION evil.trap()" % t,
                "CREATE RULE trap AS ON UPDATE TO queue.%s DO ALSO SELECT evil.steal('rule')" % t,
                "ALTER TABLE queue.%s ADD CHECK (evil.look('check'))" % t)


def set_reading_traps(conn, queue="evil"):
    """Whatever runs when somebody reads it."""
    for t in ("q_" + queue, "a_" + queue):
        attempt(conn, "CREATE POLICY trap ON queue.%s USING (evil.look('policy of %s'))" % (t, t),
                "ALTER TABLE queue.%s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY" % t,
                "CREATE INDEX ON queue.%s ((1)) WHERE evil.look('index')" % t,
                "ALTER TABLE queue.%s RENAME TO hidden_%s" % (t, t),
                "CREATE VIEW queue.%s AS SELECT * FROM queue.hidden_%s WHERE evil.steal('view %s')" % (t, t, t),
                "GRANT ALL ON queue.%s TO PUBLIC" % t)


# -- what a role that makes queues can do to those who have nothing to do with them -----------------


def test_maintenance_runs_nobody_elses_code(scene, evil):
    set_traps(evil)
    dead_row(evil)
    superuser_at_work(scene)
    scene.maintained()
    assert scene.loot() == []


def test_orphans_run_nobody_elses_code(scene, evil):
    """A proxy that is none says that it is there, and goes; leases of it are in the trap."""
    set_traps(evil)
    attempt(evil, "INSERT INTO queue.q_evil (state, token, lease_until, proxy, payload) "
                  "VALUES ('leased', repeat('0', 16), now() + interval '1 h', 12345, '1')")
    for user in ("postgres", "taker"):
        tag(scene.wire(user), "QUEUE LIST")
    superuser_at_work(scene)
    tag(scene.app, "QUEUE PUSH mail '1'")
    job = take(scene.app)
    # a proxy whose session comes up writes its number into what was taken before
    wait_for(lambda: scene.cluster.psql("SELECT proxy FROM queue.q_mail", scene.db) != "", "the lease's number")
    scene.cluster.psql("UPDATE queue.q_mail SET proxy = 12345", scene.db)
    attempt(evil, "SELECT pg_advisory_lock_shared(1902276469, 12345)", "NOTIFY qbouncer, ''")
    wait_for(lambda: scene.cluster.psql("SELECT count(*) FROM pg_locks WHERE objid = 12345", scene.db) == "1", "the lock")
    evil.execute("SELECT pg_advisory_unlock_all()")
    w = scene.wire("app")
    w.query("QUEUE TAKE mail WAIT '60s'")
    assert w.until("Z")
    scene.maintained()
    assert scene.loot() == []
    assert job


def test_a_name_is_not_changed(scene, evil):
    """QUEUE PUSH mail is app's queue, whatever becomes of others."""
    attempt(evil, "UPDATE queue.queues SET name = 'old' WHERE name = 'mail'",
            "UPDATE queue.queues SET name = 'mail' WHERE name = 'evil'",
            "ALTER TABLE queue.q_evil RENAME TO q_mail",
            "UPDATE queue.queues SET number = DEFAULT WHERE name = 'evil'")
    number = evil.execute("SELECT max(number) FROM queue.queues").fetchone()[0]
    body = "LANGUAGE plpgsql AS $$BEGIN PERFORM evil.steal('push'); END$$"
    attempt(evil, "CREATE OR REPLACE FUNCTION queue._push_%d(payloads text[], prio int4, start timestamptz, head jsonb) "
                  "RETURNS SETOF int8 %s" % (number, body))
    su = superuser_at_work(scene)
    tag(scene.app, "QUEUE PUSH mail '1'")
    su.rows("SELECT queue.push('mail', '2'::text)")
    assert {r["queue"] for r in su.rows("QUEUE LIST")} == {"mail", "evil"}
    assert [c["payload"] for c in su.rows("SELECT payload FROM queue.q_mail ORDER BY id")] == ["1", "2"]
    assert scene.loot() == []


def test_a_name_is_not_changed_by_its_owner(scene, evil):
    for change in ("name = 'news'", "number = DEFAULT", "payload = 'text'"):
        with pytest.raises(psycopg.Error):
            evil.execute("UPDATE queue.queues SET %s WHERE name = 'evil'" % change)
    assert scene.app.rows("SELECT name FROM queue.queues ORDER BY name") == [{"name": "evil"}, {"name": "mail"}]


def test_rows_of_others_in_the_catalogue(scene, evil):
    """The right to make queues is none over those of others."""
    for sql in ("UPDATE queue.queues SET max_attempts = 1 WHERE name = 'mail'", "DELETE FROM queue.queues WHERE name = 'mail'",
                "UPDATE queue.queues SET owner = 'owner' WHERE name = 'mail'", "SELECT queue.drop('mail')",
                "SELECT queue.alter('mail', '{lease}', '{1 s}')", "SELECT queue.pause('mail')",
                "SELECT queue.grant('mail', '{all}', '{owner}')", "SELECT queue.revoke('mail', '{all}', '{app}')",
                "UPDATE queue.queues SET owner = 'app' WHERE name = 'evil'",
                "INSERT INTO queue.queues SELECT (c).* FROM (SELECT jsonb_populate_record(q, '{\"number\": 1000000, \"name\": \"n\"}') "
                "AS c FROM queue.queues AS q WHERE name = 'mail') AS x"):
        with pytest.raises(psycopg.Error):
            evil.execute(sql)
    assert scene.app.rows("QUEUE LIST")[1]["max_attempts"] != "1"


def test_looking_at_all_queues_runs_nobody_elses_code(scene, evil):
    set_reading_traps(evil)
    su = superuser_at_work(scene)
    for c in (su, scene.app):
        for sql in ("QUEUE STATS", "QUEUE LIST", "QUEUE HEALTH", "SELECT queue.maintain()", "SELECT * FROM queue._gauges(10)",
                    "SELECT * FROM queue._orphans('{}')", "QUEUE JOB '77'", "QUEUE CANCEL '77'", "QUEUE AWAIT 77"):
            c.simple(sql)
    assert scene.loot() == []


def test_gauges_run_nobody_elses_code(scene, evil):
    set_reading_traps(evil)
    superuser_at_work(scene)
    line = 'qbouncer_queue_jobs{database="%s",queue="mail",state="ready"}' % scene.db
    for n in range(1, 4):
        tag(scene.app, "QUEUE PUSH mail '1'")
        wait_for(lambda: samples(scene.metrics).get(line) == n, "the gauge", timeout=60)
    assert scene.loot() == []


def test_functions_of_the_same_name(scene, evil):
    """A function that fits a call better than ours does."""
    body = "LANGUAGE plpgsql AS $$BEGIN PERFORM evil.steal('overload'); END$$"
    number = scene.app.rows("SELECT number FROM queue.queues WHERE name = 'mail'")[0]["number"]
    if "granted more" in scene.request_id:
        pytest.skip("who may make functions in the schema is trusted by all: doc/security.md")
    attempt(evil, "CREATE FUNCTION queue.push(text, text) RETURNS int8 " + body,
            "CREATE FUNCTION queue.version(text DEFAULT '') RETURNS int4 " + body,
            "CREATE FUNCTION queue._push_%s(text[], int4) RETURNS SETOF int8 %s" % (number, body))
    su = superuser_at_work(scene)
    su.simple("SELECT queue.push('mail', '1')")
    assert scene.loot() == []


# -- what a role without any right can do to the proxy -------------------------------------------------


CLASS = 1902276469


def held(scene, number):
    return int(scene.cluster.psql("SELECT count(*) FROM pg_locks WHERE classid = %d AND objid = %d" % (CLASS, number), scene.db))


def number_of(scene):
    """Of the proxy that is there: who takes makes it a session."""
    scene.app.rows("QUEUE POP mail WAIT '10ms'")
    return wait_for(lambda: scene.app.rows("SELECT number FROM queue.proxies"), "the proxy")[0]["number"]


def test_pretended_proxies(scene):
    """They come and go, and nobody cares."""
    number_of(scene)
    mark = len(scene.proxy.log_text())
    nobody = scene.direct("nobody")
    nobody.execute("SELECT pg_advisory_lock_shared(%s, n) FROM generate_series(1, 3000) AS n" % CLASS)
    nobody.execute("NOTIFY qbouncer, ''")
    tag(scene.app, "QUEUE PUSH mail '1'")
    take(scene.app)
    scene.cluster.psql("UPDATE queue.q_mail SET proxy = 7", scene.db)
    assert held(scene, 7) == 1
    assert len(scene.app.rows("SELECT * FROM queue.proxies")) == 1
    assert scene.app.rows("SELECT queue._orphans(ARRAY[1])") == [{"_orphans": "mail"}]
    nobody.close()
    scene.maintained()
    assert "gone" not in scene.proxy.log_text(mark).replace("jobs of a proxy that is gone were given back", "")


def test_a_number_that_is_locked(scene):
    """Somebody waits for it alone, and has it when the session is cut: the proxy takes another one."""
    number = number_of(scene)
    nobody = scene.direct("nobody")
    nobody.pgconn.send_query(b"SELECT pg_advisory_lock(%d, %s)" % (CLASS, number.encode()))
    wait_for(lambda: held(scene, int(number)) == 2, "the request")
    scene.cluster.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'qbouncer system' "
                       "AND datname = '%s'" % scene.db)
    wait_for(lambda: [r["number"] for r in scene.app.rows("SELECT number FROM queue.proxies")] not in ([], [number]),
             "another number")
    while nobody.pgconn.get_result():   # has its lock
        pass
    now = number_of(scene)
    tag(scene.app, "QUEUE PUSH mail '1'")
    job = take(scene.app)
    wait_for(lambda: scene.app.rows("SELECT proxy FROM queue.q_mail")[0]["proxy"] == now, "the number in its lease")
    assert tag(scene.app, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"


def test_a_superuser_does_not_listen(qbouncer, cluster, db):
    """Neither for the first client nor as queue_user; unless he is asked for."""
    session = ("SELECT coalesce(string_agg(usename, ' '), '') FROM pg_stat_activity WHERE application_name = 'qbouncer system' "
               "AND datname = '%s'" % db)
    first = qbouncer(users={"postgres": "-"})
    with first.wire(db, "postgres") as su:
        tag(su, "QUEUE CREATE mail")
        tag(su, "QUEUE PUSH mail '1'")
        assert tag(su, "QUEUE DONE %s" % take(su)["id"]) == "UPDATE 1"
        first.wait_log("no system session: postgres is a superuser")
        assert cluster.psql(session) == ""
        tag(su, "QUEUE GRANT TAKE ON mail TO app")
        with first.wire(db) as w:   # somebody else will do
            w.query("QUEUE TAKE mail WAIT '60s'")
            wait_for(lambda: cluster.psql(session) == "app", "the session of another role")
            cluster.psql("SELECT queue.push('mail', '1')", db)
            assert w.until("Z")
    first.stop()
    for permit, who in (("0", ""), ("1", "postgres")):
        named = qbouncer(queue_user="postgres", queue_user_superuser=permit)
        with named.wire(db) as w:
            w.rows("QUEUE POP mail LIMIT 10")
            w.rows("QUEUE POP mail WAIT '10ms'")
            named.wait_log("superuser" if permit == "0" else "system session is up")
            assert cluster.psql(session) == who
        named.stop()


def test_news_by_hand(qbouncer, cluster, db):
    """Whoever may connect may NOTIFY: neither do all who wait look for each, nor is it asked each time who has come."""
    def looked():
        return sum(int(r["probes"]) for r in proxy.console("SHOW QUEUES"))

    def asked():
        return cluster.log_text()[start:].count("l.locktype = 'advisory'")

    cluster.psql("ALTER DATABASE %s SET log_statement = 'all'" % db)
    start = len(cluster.log_text())
    proxy = qbouncer(queue_rescan="1h", queue_heartbeat="20ms")
    with proxy.wire(db) as c, proxy.wire(db) as w, proxy.wire(db) as v, \
            psycopg.connect(cluster.dsn(db, "other"), autocommit=True) as nobody:
        for wire, queue in ((w, "mail"), (v, "sms")):
            tag(c, "QUEUE CREATE " + queue)
            wire.query("QUEUE TAKE %s WAIT '60s'" % queue)
            parked(wire)
        wait_for(asked, "the first look at who is there")
        for payload, count in (("of any queue: a prepared transaction was committed", looked), ("", asked)):
            before, since = count(), time.monotonic()
            for _ in range(300):
                nobody.execute("SELECT pg_notify('qbouncer', %s)", (payload,))
            cluster.psql("SELECT queue.push('mail', '1')", db)
            assert w.until("Z")     # what came before is behind it
            assert count() - before <= 4 * (5 + (time.monotonic() - since) / 0.1)    # 300 otherwise
            w.query("QUEUE TAKE mail WAIT '60s'")
            parked(w)
        for odd in ("x" * 7999, "mail\nsms", "\u00e4\U0001f600" * 20, "of no queue: ended for ", "of no queue: ended for  of ",
                    "of no queue: ended for a of mail of", "of no queue: a schedule was made or changed"):
            nobody.execute("SELECT pg_notify('qbouncer', %s)", (odd,))
        cluster.psql("SELECT queue.push('sms', '1')", db)
        assert v.until("Z")


def test_each_sentence_has_its_test():
    """The names in doc/security.md."""
    with open(os.path.join(ROOT, "doc", "security.md"), encoding="utf-8") as page:
        named = set(re.findall(r"\[(test_\w+)\]", page.read()))
    there = set()
    for name in glob.glob(os.path.join(ROOT, "test", "**", "test_*.py"), recursive=True):
        with open(name, encoding="utf-8") as text:
            there.update(re.findall(r"^def (test_\w+)", text.read(), re.M))
    assert named and named <= there, named - there
