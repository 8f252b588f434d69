"""Changes of a tracked table that come through the program: whoever waits is woken at once, without a NOTIFY in the transaction
of who writes, who sees nothing of it. There is no periodic look here.
"""

import contextlib
import json
import socket
import struct
import threading

import psycopg
import pytest

from played import Played
from proxy import wait_for
from queuetest import Listener, parked, shared, shared_db, shared_proxy, tag, woken  # noqa: F401

TAKE = "QUEUE TAKE changes FOR cache WAIT '30s'"


def prepare(c, kind="stream"):
    tag(c, "QUEUE CREATE changes" + (" WITH (kind = stream)" if kind == "stream" else ""))
    if kind == "stream":
        tag(c, "QUEUE SUBSCRIBE cache TO changes")
    tag(c, "CREATE TABLE items (id int8 PRIMARY KEY, name text)")
    tag(c, "QUEUE TRACK items IN changes")


@pytest.fixture
def c(qproxy, db):
    with qproxy.wire(db) as one:
        prepare(one)
        yield one
        one.simple("ROLLBACK")


@pytest.fixture
def other(c, qproxy, db):
    with qproxy.wire(db) as w:
        yield w


@pytest.fixture
def listener(cluster, db):
    with psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        yield Listener(conn)


def waits(other):
    other.query(TAKE)
    parked(other)


def said(messages):
    """What came of its own accord."""
    return [m.type for m in messages if m.type in "NA"]


def run(c, *statements):
    """All that is answered."""
    return [m for sql in statements for m in c.query(sql).until("Z", skip="S")]


def rest(c):
    return c.until("Z", skip="S")


def key_of(w):
    return json.loads(woken(w)["payload"])["key"]["id"]


INSERT = "INSERT INTO items VALUES (1, 'a')"


def by_query(c):
    return run(c, INSERT)


def by_parse(c):
    return c.hold().parse("", "INSERT INTO items VALUES ($1)").bind("", "", ["1"]).execute().sync().push().until("Z", skip="S")


def pipelined(c):
    c.hold().parse("s", "INSERT INTO items VALUES ($1)").bind("", "s", ["1"]).execute().bind("", "s", ["2"]).execute()
    return c.sync().push().until("Z", skip="S")


def by_copy(c):
    got = c.query("COPY items FROM STDIN").until("G", skip="S")
    c.copy_data(b"1\ta\n2\tb\n").copy_done()
    return got + rest(c)


def in_a_block(c):
    return run(c, "BEGIN", INSERT, "UPDATE items SET name = 'b'", "COMMIT")


def in_one_text(c):
    return run(c, "BEGIN; " + INSERT + "; COMMIT; SELECT 1")


def behind_a_savepoint(c):
    return run(c, "BEGIN", "SAVEPOINT a", "INSERT INTO items VALUES (7)", "ROLLBACK TO a", INSERT, "COMMIT")


def by_a_function(c):
    tag(c, "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN BEGIN INSERT INTO items VALUES (7); RAISE 'x'; "
           "EXCEPTION WHEN OTHERS THEN " + INSERT + "; END; END $$")
    return run(c, "SELECT f()")


def by_a_procedure(c):
    tag(c, "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN " + INSERT + "; COMMIT; PERFORM 1; END $$")
    return run(c, "CALL p()")


WAYS = [by_query, by_parse, pipelined, by_copy, in_a_block, in_one_text, behind_a_savepoint, by_a_function, by_a_procedure]


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_is_told(c, other, listener, way):
    waits(other)
    listener.heard()
    assert said(way(c)) == []
    assert key_of(other) == 1
    assert listener.heard() == []


def test_what_is_rolled_back(c, other, listener):
    waits(other)
    tag(c, "BEGIN")
    tag(c, INSERT)
    tag(c, "ROLLBACK")
    tag(c, "INSERT INTO items VALUES (2)")
    assert key_of(other) == 2
    assert listener.heard() == []


def test_who_has_never_said_queue(c, other, listener, qproxy, db):
    waits(other)
    listener.heard()
    with qproxy.wire(db) as w:
        assert said(run(w, INSERT)) == []
    assert key_of(other) == 1
    assert listener.heard() == []


@pytest.mark.parametrize("reset", ["DISCARD ALL", "RESET ALL", "RESET qbouncer.tell", "SET qbouncer.tell = DEFAULT"])
def test_what_is_reset(c, other, listener, reset):
    waits(other)
    tag(c, "SET qbouncer.tell = 'nobody'")
    tag(c, reset)
    listener.heard()
    tag(c, INSERT)
    assert key_of(other) == 1
    assert listener.heard() == []


def test_what_the_client_has_set(c, listener, qproxy, db):
    """Stronger than ours, and his alone."""
    with qproxy.wire(db) as w:
        tag(w, "SET qbouncer.tell = ''")
        listener.heard()
        tag(w, INSERT)
        assert [n[1] for n in listener.heard()] == ["changes"]
        tag(w, "SET qbouncer.tell = 'nobody'")
        assert said(run(w, "INSERT INTO items VALUES (2)")) == []
        assert listener.heard() == []
        assert w.rows("SHOW qbouncer.tell") == [{"qbouncer.tell": "nobody"}]
        assert c.rows("SHOW qbouncer.tell") == [{"qbouncer.tell": "here"}]


@pytest.mark.parametrize("settings", [{"server_reset_query_always": 1}, {"pool_mode": "session"}])
def test_pools_that_reset(qbouncer, cluster, settings):
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_rescan="1h", default_pool_size=3, **settings)
    with proxy.wire(db) as c, psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        prepare(c)
        for i in range(3):
            with proxy.wire(db) as w:
                tag(w, "INSERT INTO items VALUES (%d)" % i)
        listener = Listener(conn)
        for i in range(3, 6):
            with proxy.wire(db) as w:
                tag(w, "INSERT INTO items VALUES (%d)" % i)
        assert listener.heard() == []


def test_two_phases(c, other):
    """PREPARE TRANSACTION refuses a transaction that has notified."""
    waits(other)
    for sql in ("BEGIN", INSERT, "PREPARE TRANSACTION 'track'"):
        tag(c, sql)
    tag(c, "COMMIT PREPARED 'track'")
    assert key_of(other) == 1


def test_who_says_goodbye_at_once(c, other, qproxy, db):
    waits(other)
    with qproxy.wire(db) as w:
        w.hold().query("INSERT INTO items SELECT 1 FROM pg_sleep(0.05)").send("X", b"").push()
        assert key_of(other) == 1


def test_past_the_proxies(c, other, cluster, listener, db):
    waits(other)
    wait_for(lambda: listener.conn.execute("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name ="
                                           " 'qbouncer system'").fetchall(), "the system session")
    listener.heard()
    listener.conn.execute(INSERT)
    assert key_of(other) == 1
    assert [n[1] for n in listener.heard()] == ["changes"]


def test_jobs(qproxy, db, listener):
    with qproxy.wire(db) as c, qproxy.wire(db) as other:
        prepare(c, "queue")
        other.query("QUEUE TAKE changes WAIT '30s'")
        parked(other)
        listener.heard()
        assert said(run(c, INSERT)) == []
        assert key_of(other) == 1
        assert listener.heard() == []


def test_a_topic(c, other, listener):
    tag(c, "QUEUE CREATE TOPIC shop")
    tag(c, "QUEUE BIND changes TO 'shop.#'")
    tag(c, "QUEUE UNTRACK items")
    tag(c, "QUEUE TRACK items IN shop")
    waits(other)
    listener.heard()
    assert said(run(c, INSERT)) == []
    assert key_of(other) == 1
    assert listener.heard() == []


def test_another_proxy_is_told(qbouncer, cluster):
    """By the proxy's own session, once it is committed."""
    db = cluster.createdb(owner="app")
    one, more = (qbouncer(queue_heartbeat="20ms", queue_rescan="1h") for _ in range(2))
    with one.wire(db) as c, more.wire(db) as other, psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        prepare(c)
        waits(other)
        listener = Listener(conn)
        tag(c, "QUEUE CREATE first")
        wait_for(lambda: tag(c, "QUEUE PUSH first '1'") and listener.heard(), "that one knows of the other")
        tag(c, "BEGIN")
        tag(c, INSERT)
        assert [n for n in listener.heard() if n[1] != "first"] == []
        tag(c, "COMMIT")
        assert key_of(other) == 1
        pids = {r[0] for r in conn.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                                           "AND application_name = 'qbouncer system'")}
        heard = wait_for(lambda: [n for n in listener.heard() if n[1] != "first"], "a notification")
        assert {n[1] for n in heard} == {"changes"} and {n[0] for n in heard} <= pids


def test_the_first_of_a_proxy(qbouncer, cluster):
    """It does not know yet whether there are others: who only writes, and has never said QUEUE."""
    db = cluster.createdb(owner="app")
    one, more = (qbouncer(queue_heartbeat="20ms", queue_rescan="1h") for _ in range(2))
    with more.wire(db) as other:
        prepare(other)
        waits(other)
        with one.wire(db) as c:
            tag(c, INSERT)
            assert key_of(other) == 1


def test_who_makes_it_up(qproxy, cluster):
    """A database without queues: a message that looks like ours does no harm, and does not reach the client."""
    db = cluster.createdb(owner="app")
    with psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        conn.execute("DROP SCHEMA IF EXISTS queue CASCADE")
    with qproxy.wire(db) as c:
        for text in ("mail", "x" * 500, ""):
            assert said(run(c, "DO $$ BEGIN RAISE INFO USING ERRCODE = 'QB100', MESSAGE = '%s'; END $$" % text)) == []
        assert c.rows("SELECT 1 AS a") == [{"a": "1"}]


class Pooler(Played):
    """It refuses what it does not know in a start-up packet, as other poolers do, and then passes everything."""

    at_once = True

    def __init__(self, port):
        super().__init__()
        self.target, self.refused, self.passed = port, 0, 0
        self.start()

    def serve(self, conn):
        head = conn.recv(4, socket.MSG_WAITALL)
        start = conn.recv(struct.unpack("!I", head)[0] - 4, socket.MSG_WAITALL)
        if b"qbouncer.tell" in start:
            self.refused += 1
            body = b"SFATAL\0C08P01\0Munsupported startup parameter: qbouncer.tell\0\0"
            conn.sendall(b"E" + struct.pack("!I", len(body) + 4) + body)
            return
        self.passed += 1
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            server.sendall(head + start)
            back = threading.Thread(target=pump, args=(server, conn), daemon=True)
            back.start()
            pump(conn, server)
            back.join()


def pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def test_behind_another_pooler(qbouncer, cluster):
    """It is asked again without, once and for all: what is written notifies."""
    db = cluster.createdb(owner="app")
    with contextlib.closing(Pooler(cluster.port)) as pooler:
        proxy = qbouncer(databases={"*": "host=127.0.0.1 port=%d" % pooler.port}, queue_rescan="1h", server_tls_sslmode="disable")
        with proxy.wire(db) as c, proxy.wire(db) as other, psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
            prepare(c)
            waits(other)
            listener = Listener(conn)
            assert said(run(c, INSERT)) == []
            assert [n[1] for n in listener.heard()] == ["changes"]
            assert key_of(other) == 1
        assert pooler.refused == 1


@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("push", ["SELECT queue.push('changes', '1'::jsonb)", "SELECT queue.push('changes', '1'::jsonb, key => 'k')",
                                  "DO $$BEGIN PERFORM queue.push('changes', '1'::jsonb); END$$", "INSERT INTO words VALUES (1)",
                                  "SELECT queue.publish('shop.sold', '1')", "SELECT queue.publish('shop', '1'::jsonb)"])
def test_a_push_by_a_function(qproxy, db, listener, kind, push):
    """In a statement that is none of QUEUE: of a procedure, or of a trigger that somebody has written."""
    with qproxy.wire(db) as c, qproxy.wire(db) as other:
        prepare(c, kind)
        run(c, "CREATE TABLE words (n int)", "CREATE FUNCTION says() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM queue.push('changes', to_jsonb(NEW.n)); RETURN NULL; END$$",
            "CREATE TRIGGER says AFTER INSERT ON words FOR EACH ROW EXECUTE FUNCTION says()")
        run(c, "QUEUE CREATE TOPIC shop", "QUEUE BIND changes TO 'shop.#'")
        other.query(TAKE if kind == "stream" else "QUEUE TAKE changes WAIT '30s'")
        parked(other)
        listener.heard()
        assert said(run(c, "BEGIN", push, "ROLLBACK")) == []
        assert said(run(c, push)) == []
        assert woken(other)["payload"] == "1"
        assert listener.heard() == []
        assert run(c, "BEGIN", push, "PREPARE TRANSACTION 'said'")[-1].type == "Z"      # a NOTIFY would be refused
        assert [m.tag for m in run(c, "COMMIT PREPARED 'said'") if m.type in "CE"] == ["COMMIT PREPARED"]


@pytest.mark.parametrize("option, job", [("handler = 'app.says'", "1"), ("run = sql", '{"sql": "SELECT app.says(\'\'1\'\')"}'),
                                         ("run = sql", '{"sql": "SELECT app.says(\'\'1\'\')", "transaction": false}')])
def test_a_push_by_a_job_that_runs_by_itself(qproxy, db, option, job):
    with qproxy.wire(db) as c, qproxy.wire(db) as other:
        prepare(c, "queue")
        run(c, "CREATE SCHEMA app", "CREATE FUNCTION app.says(p jsonb) RETURNS void LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM queue.push('changes', p); END$$")
        tag(c, "QUEUE CREATE works WITH (%s)" % option)
        other.query("QUEUE TAKE changes WAIT '30s'")
        parked(other)
        tag(c, "QUEUE PUSH works '%s'" % job)
        assert woken(other)["payload"] == "1"


# --- transactions that end before their statement does: nothing is heard of that but what the next one says

PUSH, LOCK = "PERFORM queue.push('%s', '%d'::jsonb);", "PERFORM pg_advisory_xact_lock_shared(15);"
BODIES = {
    "two of one queue": PUSH % ("changes", 1) + " COMMIT; " + PUSH % ("changes", 2) + LOCK,
    "two queues": PUSH % ("changes", 1) + " COMMIT; " + PUSH % ("more", 2) + LOCK,
    "behind a rollback": PUSH % ("changes", 7) + " ROLLBACK; " + PUSH % ("changes", 1) + " COMMIT; " + PUSH % ("changes", 2) + LOCK,
    "a table": "INSERT INTO items VALUES (1); COMMIT; INSERT INTO items VALUES (2);" + LOCK,
}
TEXTS = {
    "two blocks": "BEGIN; SELECT queue.push('changes', '1'); COMMIT; BEGIN; SELECT queue.push('changes', '2'); %s; COMMIT",
    "a chain": "BEGIN; SELECT queue.push('changes', '1'); COMMIT AND CHAIN; SELECT queue.push('changes', '2'); %s; COMMIT",
    "no block": "SELECT queue.push('changes', '1'); COMMIT; SELECT queue.push('changes', '2'); %s",
}


@contextlib.contextmanager
def held(listener):
    listener.conn.execute("SELECT pg_advisory_lock(15)")
    try:
        yield
    finally:
        listener.conn.execute("SELECT pg_advisory_unlock(15)")


def first_of(w):
    got = json.loads(woken(w)["payload"])
    return got["key"]["id"] if isinstance(got, dict) else got


@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("way", ["CALL", "DO"])
@pytest.mark.parametrize("body", BODIES)
def test_a_procedure_that_commits(qproxy, db, listener, kind, way, body):
    """It goes on, and waits for a lock: what it has committed is delivered."""
    with qproxy.wire(db) as c, qproxy.wire(db) as other:
        prepare(c, kind)
        tag(c, "QUEUE CREATE more")
        tag(c, "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN " + BODIES[body] + " END $$")
        other.query(TAKE if kind == "stream" else "QUEUE TAKE changes WAIT '30s'")
        parked(other)
        listener.heard()
        with held(listener):
            c.query("CALL p()" if way == "CALL" else "DO $$ BEGIN " + BODIES[body] + " END $$")
            assert first_of(other) == 1
        assert said(rest(c)) == []
        assert listener.heard() == []


@pytest.mark.parametrize("way", ["CALL", "DO"])
def test_a_procedure_that_fails_behind_its_commit(qbouncer, cluster, way):
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_rescan="1h", queue_safety_poll="1h")
    with proxy.wire(db) as c, proxy.wire(db) as other:
        prepare(c, "queue")
        body = "BEGIN " + PUSH % ("changes", 1) + " COMMIT; RAISE EXCEPTION 'no'; END"
        tag(c, "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ " + body + " $$")
        other.query("QUEUE TAKE changes WAIT '30s'")
        proxy.wait_show("QUEUES", lambda r: r["database"] == db and r["queue"] == "changes" and r["waiters"] == "1")
        c.query("CALL p()" if way == "CALL" else "DO $$ " + body + " $$")
        assert first_of(other) == 1
        assert [m.fields["C"] for m in rest(c) if m.type == "E"] == ["P0001"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_commits(c, other, listener, text):
    waits(other)
    with held(listener):
        c.query(TEXTS[text] % "SELECT pg_advisory_xact_lock_shared(15)")
        assert first_of(other) == 1
    assert [m for m in rest(c) if m.type == "E"] == []
    assert listener.heard() == []


def test_a_pipeline_that_commits(c, other, listener):
    waits(other)
    with held(listener):
        c.hold()
        for sql in ("BEGIN", "SELECT queue.push('changes', '1')", "COMMIT", "SELECT queue.push('changes', '2')",
                    "SELECT pg_advisory_xact_lock_shared(15)"):
            c.parse("", sql).bind("", "").execute()
        c.sync().push()
        assert first_of(other) == 1
    assert [m for m in rest(c) if m.type == "E"] == []


def test_a_job_that_commits(qproxy, db, listener):
    with qproxy.wire(db) as c, qproxy.wire(db) as other:
        prepare(c, "queue")
        tag(c, "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN " + BODIES["two of one queue"] + " END $$")
        tag(c, "QUEUE CREATE works WITH (run = sql)")
        other.query("QUEUE TAKE changes WAIT '30s'")
        parked(other)
        with held(listener):
            tag(c, "QUEUE RUN 'CALL p()' ON works NO TRANSACTION")
            assert first_of(other) == 1


def test_another_proxy_hears_of_a_procedure(qbouncer, cluster):
    db = cluster.createdb(owner="app")
    one, more = (qbouncer(queue_heartbeat="20ms", queue_rescan="1h") for _ in range(2))
    with one.wire(db) as c, more.wire(db) as other, psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        prepare(c)
        tag(c, "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN " + BODIES["two of one queue"] + " END $$")
        waits(other)
        listener = Listener(conn)
        tag(c, "QUEUE CREATE first")
        wait_for(lambda: tag(c, "QUEUE PUSH first '1'") and listener.heard(), "that one knows of the other")
        with held(listener):
            c.query("CALL p()")
            assert first_of(other) == 1
        assert said(rest(c)) == []
