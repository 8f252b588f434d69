"""What went wrong in other poolers, and the rule that follows from it: a test for each. The names are those
of the weaknesses and of the rules; what a rule means in detail is tested where its subject is."""

import os
import re
import socket
import struct
import time

import pytest

from pgwire import SSL, Closed, PgError, Wire, cstr, types
from played import Played
from proxy import USERS, wait_for
from tree import ROOT


def alive(proxy, db, user="app", password=None):
    with proxy.wire(db, user, password) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def refused(proxy, db, user="app", password=None, **more):
    with pytest.raises(PgError) as e:
        proxy.wire(db, user, password, **more)
    return e.value


class Server(Played):
    """A server that says what it likes: speak(conn, start-up packet) for each connection."""

    def __init__(self, speak, tls=b"N"):
        super().__init__()
        self.speak = speak
        self.tls = tls
        self.start()

    def serve(self, conn):
        conn.settimeout(20)
        try:
            first = conn.recv(10000)
            if first[4:8] == struct.pack("!I", SSL):
                conn.sendall(self.tls)
                first = conn.recv(10000)
            self.speak(conn, first)
        except OSError:
            pass


@pytest.fixture
def hostile():
    made = []

    def make(speak, **more):
        made.append(Server(speak, **more))
        return made[-1]
    yield make
    for server in made:
        server.close()


def message(kind, body=b""):
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def auth(code, body=b""):
    return message("R", struct.pack("!I", code) + body)


def with_server(qbouncer, server, **more):
    return qbouncer(databases={"bad": "host=127.0.0.1 port=%d" % server.port}, server_login_retry=0, **more)


# --- weaknesses with a number -----------------------------------------------------------------------------


def test_cve_2012_4575_long_database_name(proxy, db):
    for length in 63, 64, 65, 200, 5000:
        refused(proxy, "d" * length)
    alive(proxy, db)


def test_cve_2015_4054_password_before_startup(proxy, db):
    with proxy.wire() as c:
        c.send("p", cstr("x")).closed()
    alive(proxy, db)


def asker(cluster, **more):
    cluster.psql("DO $$ BEGIN CREATE ROLE rule_asker LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    return dict({"auth_user": "rule_asker", "auth_query_cache": 3600}, **more)


def test_cve_2015_6817_unknown_user_is_not_auth_user(qbouncer, cluster, db):
    for method in "trust", "plain", "md5", "scram-sha-256":
        proxy = qbouncer(**asker(cluster, auth_type=method))
        assert refused(proxy, db, "no_such_role", "x").sqlstate == "28P01"
        proxy.stop()


def test_cve_2021_3935_clear_text_behind_ssl_request(proxy, db):
    with proxy.wire() as c:
        c.hold().packet(SSL).packet(3 << 16, b"user\0app\0database\0" + db.encode() + b"\0\0").push()
        assert all(m.type not in "RZ" for m in after_byte(c))
    alive(proxy, db)


def after_byte(c):
    first = c.read_bytes(1)
    return [] if first in (b"S", b"N") and c.closed() == [] else c.closed()


def test_cve_2025_2291_valid_until(qbouncer, cluster, db):
    cluster.psql("CREATE ROLE rule_late LOGIN PASSWORD 'x' VALID UNTIL '2001-01-01'")
    try:
        proxy = qbouncer(**asker(cluster, auth_type="scram-sha-256"))
        assert refused(proxy, db, "rule_late", "x").sqlstate == "28P01"
    finally:
        cluster.psql("DROP ROLE rule_late")


def test_cve_2025_12819_startup_settings_do_not_reach_auth_query(qbouncer, cluster, db):
    """The query tells which search_path it ran with, as the password."""
    query = "SELECT $1::pg_catalog.text, pg_catalog.current_setting('search_path')"
    proxy = qbouncer(**asker(cluster, auth_type="plain", auth_query=query))
    refused(proxy, db, "someone", "evil", search_path="evil", options="-c search_path=evil")
    # that of the server for auth_user: so names without a schema are found as in pgbouncer
    assert refused(proxy, db, "someone", '"$user", public', search_path="evil").sqlstate != "28P01"


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFF, 0x80000000, 1000, 5])
def test_cve_2026_6664_length_of_sasl(qbouncer, db, length):
    proxy = qbouncer(auth_type="scram-sha-256")
    with proxy.wire() as c:
        c.startup("app", db, wait=False)
        assert c.recv().type == "R"
        c.send("p", cstr("SCRAM-SHA-256") + struct.pack("!I", length) + b"n,,")
        c.sock.shutdown(socket.SHUT_WR)
        assert all(m.type in "ER" for m in c.closed())
    alive(proxy, db, "app", "app-password")


def test_cve_2026_6665_nonce_of_the_server(qbouncer, db, hostile):
    def speak(conn, first):
        conn.sendall(auth(10, b"SCRAM-SHA-256\0\0"))
        nonce = re.search(rb"r=(.*)", conn.recv(10000)).group(1)
        conn.sendall(auth(11, b"r=" + nonce + b"A" * 20000 + b",s=c2FsdA==,i=4096"))
        conn.recv(10000)
    server = hostile(speak)
    proxy = with_server(qbouncer, server)
    e = refused(proxy, "bad")
    assert e.sqlstate in ("08P01", "28P01")
    alive(proxy, db)


def test_cve_2026_6666_error_without_sqlstate(qbouncer, db, hostile):
    bodies = [b"\0", b"SFATAL\0\0", b"Mtext\0\0", b"C\0M\0\0", b"SERROR\0C28P01\0", b""]
    turn = iter(bodies * 100)
    server = hostile(lambda conn, first: conn.sendall(message("E", next(turn))))
    proxy = with_server(qbouncer, server)
    for _ in bodies:
        refused(proxy, "bad")
    alive(proxy, db)


def test_cve_2026_6667_kill_client_needs_an_admin(proxy, db):
    with proxy.wire(db) as c:
        victim = next(r["id"] for r in proxy.console("SHOW CLIENTS") if r["database"] == db)
        with pytest.raises(PgError) as e:
            proxy.console("KILL_CLIENT " + victim, "stats")
        assert e.value.sqlstate == "08P01"
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_cve_2021_43767_clear_text_behind_the_servers_answer(qbouncer, db, hostile):
    """A server's 'S' with more behind it: nothing of that is believed."""
    answer = b"S" + auth(0) + message("Z", b"I")
    server = hostile(lambda conn, first: conn.sendall(answer), tls=answer)
    proxy = with_server(qbouncer, server)
    refused(proxy, "bad")
    alive(proxy, db)


def test_cve_2022_auth_query_is_bound(qbouncer, cluster, db, direct):
    direct.execute("CREATE TABLE victim ()")
    proxy = qbouncer(**asker(cluster, auth_type="plain"))
    for name in "x'; DROP TABLE victim; --", "'||pg_sleep(60)||'", "$1", "\\'; DROP TABLE victim; --":
        assert refused(proxy, db, name, "x").sqlstate == "28P01"
    assert direct.execute("SELECT count(*) FROM victim").fetchone() == (0,)


def test_cve_2023_22332_secrets_in_shows(qbouncer, cluster):
    proxy = qbouncer(queue_password="hidden-one", auth_ldap_options="",
                     databases={"x": "host=%s user=app password=hidden-two queue_password=hidden-three" % cluster.socket_dir},
                     users={"app": "hidden-four"})
    for what in "CONFIG DATABASES USERS POOLS CLIENTS SERVERS SOCKETS LISTS STATE MEM".split():
        assert "hidden" not in str(proxy.console("SHOW " + what)), what
    assert "hidden" not in proxy.log_text()


def test_cve_2024_45624_answers_are_cached_with_all_they_depend_on(qbouncer, cluster, db):
    """The same user in two databases with two queries has two secrets."""
    line = "host=%s port=%d user=app auth_query='SELECT $1::text, ''of %%s'''" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(databases={"one": line % "one" + " dbname=postgres", "two": line % "two" + " dbname=postgres"},
                     **asker(cluster, auth_type="plain"))
    for _ in range(2):
        alive(proxy, "one", "someone", "of one")
        alive(proxy, "two", "someone", "of two")
        assert refused(proxy, "one", "someone", "of two").sqlstate == "28P01"


METHODS = ["trust", "reject", "md5", "scram-sha-256", "password", "cert", "peer"]


@pytest.mark.parametrize("kind", ["hostssl", "hostnossl", "local"])
def test_cve_2025_46801_no_combination_skips_authentication(qbouncer, db, kind):
    """Every method with a user who is known, unknown, and without password: who has not proved anything stays out."""
    rules = ""
    for method in METHODS:
        if method == "peer" and kind != "local" or method == "cert" and kind != "hostssl":
            continue
        rules += "%s all u_%s,%s_nopw %s %s\n" % (kind, method, method, "" if kind == "local" else "all", method)
    users = {}
    for method in METHODS:
        users["u_" + method] = "right"
        users[method + "_nopw"] = ""
    proxy = qbouncer(auth_type="hba", auth_hba_file="{dir}/hba.conf", files={"hba.conf": rules}, users=users,
                     login_failure_delay=0)
    host = proxy.dir if kind == "local" else "127.0.0.1"
    for method in METHODS:
        for user, password in (("u_" + method, "wrong"), (method + "_nopw", "x"), ("nobody", "x")):
            if method == "trust" and user != "nobody" and kind != "hostssl":
                continue
            with Wire(proxy.port, host=host) as c:
                with pytest.raises(PgError) as e:
                    c.startup(user, "nosuchdb", password=password)
                assert e.value.sqlstate.startswith("28"), (user, e.value)


def test_cve_2026_42198_iterations_of_the_server(qbouncer, db, hostile):
    def speak(conn, first):
        conn.sendall(auth(10, b"SCRAM-SHA-256\0\0"))
        nonce = re.search(rb"r=(.*)", conn.recv(10000)).group(1)
        conn.sendall(auth(11, b"r=" + nonce + b"AAAAAAAAAAAA,s=c2FsdA==,i=2147483647"))
        conn.recv(10000)
    server = hostile(speak)
    proxy = with_server(qbouncer, server)
    refused(proxy, "bad")
    alive(proxy, db)


# --- weaknesses without a number ----------------------------------------------------------------------------


def test_late_copy_messages(proxy, db):
    """CopyData and CopyDone when no COPY is under way are dropped, and use up nothing."""
    with proxy.wire(db) as c:
        for _ in range(20):
            c.send("d", b"x").send("c")
        assert types(c.simple("SELECT 1")) == "TDCZ"
        c.send("d", b"x")
    proxy.wait_pool(db, sv_active=0, cl_active=0)
    alive(proxy, db)


@pytest.mark.parametrize("method", ["plain", "md5", "scram-sha-256"])
def test_oversized_and_cut_passwords(qbouncer, db, method):
    proxy = qbouncer(auth_type=method, login_failure_delay=0)
    bodies = [b"x" * 70000, b"x" * 60000 + b"\0", b"", b"\0", b"x", b"x\0y\0"]
    for body in bodies:
        with proxy.wire() as c:
            c.startup("app", db, wait=False)
            assert c.recv().type == "R"
            c.send("p", body)
            assert all(m.type in "ER" for m in c.closed())
    alive(proxy, db, "app", "app-password")


def test_nothing_tells_which_users_exist(qbouncer, cluster, db):
    proxy = qbouncer(**asker(cluster, auth_type="scram-sha-256"))
    seen = set()
    for user in "app", "nobody", "rule_asker":
        with proxy.wire() as c:
            c.startup(user, db, wait=False)
            first = c.recv()
            c.send("p", cstr("SCRAM-SHA-256") + struct.pack("!I", 31) + b"n,,n=,r=abcdefghijklmnopqrstuvw")
            second = c.recv()
            seen.add((first.type, first.body, second.type, len(second.body)))
        e = refused(proxy, db, user, "wrong")
        seen.add((e.sqlstate, e.message.replace(user, "?")))
    assert len(seen) == 2, seen


def test_role_does_not_survive_reset(qbouncer, cluster, db):
    """RESET ALL leaves the role; the next client has its own."""
    cluster.psql("GRANT other TO app")
    proxy = qbouncer(default_pool_size=1, pool_mode="session")
    for sql in "SET ROLE other", "SET SESSION AUTHORIZATION app; SET ROLE other", "SELECT set_config('role', 'other', false)":
        with proxy.wire(db) as a:
            a.simple(sql)
            a.simple("RESET ALL")
        with proxy.wire(db) as b:
            assert b.rows("SELECT current_user AS u")[0]["u"] == "app", sql


def test_notify_payload_is_a_value(qbouncer, db):
    proxy = qbouncer(pool_mode="session")
    with proxy.wire(db) as c:
        c.simple("LISTEN \"a'b\"")
        got = c.query("NOTIFY \"a'b\", 'it''s; DROP TABLE x'").until("Z", skip="SN")
        assert any(m.type == "A" and b"it's; DROP TABLE x" in m.body for m in got)


def test_one_negotiation_with_auth_query(qbouncer, cluster, db):
    """The start-up packet is looked at again when the secret has come; NegotiateProtocolVersion is sent once."""
    cluster.psql("CREATE ROLE rule_negotiates LOGIN PASSWORD 'x'")
    try:
        proxy = qbouncer(**asker(cluster, auth_type="scram-sha-256"))
        with proxy.wire() as c:
            c.startup("rule_negotiates", db, "x", version=(3 << 16) | 9999, **{"_pq_.nonsense": "1"})
            assert types(c.log).count("v") == 1
    finally:
        cluster.psql("DROP ROLE rule_negotiates")


def test_rewritten_statement_names(proxy, db):
    """A name is as long as its client likes; on the server it has another, of another length."""
    with proxy.wire(db) as c:
        for length in 1, 7, 8, 31, 32, 33, 63, 64, 127, 128, 1000, 9900:
            name = "n" * length
            c.send("P", cstr(name) + cstr("SELECT $1::text") + struct.pack("!h", 0))
            c.send("B", cstr("p" * length) + cstr(name) + struct.pack("!hhi2sh", 0, 1, 2, b"ab", 0))
            c.send("D", b"S" + cstr(name)).send("E", cstr("p" * length) + struct.pack("!i", 0))
            c.send("C", b"S" + cstr(name)).send("S")
            assert types(c.until("Z")) == "12tTDC3Z", length
    alive(proxy, db)


@pytest.mark.parametrize("method", ["plain", "scram-sha-256"])
def test_a_length_before_the_login_is_not_waited_for(qbouncer, db, method):
    """Nothing is kept for what nobody who has not logged in may send; the connection ends at once."""
    proxy = qbouncer(auth_type=method, client_login_timeout="1h")
    for length in 0, 3, 65540, 1 << 24, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF:
        with proxy.wire() as c:
            c.raw(struct.pack("!II", length, 3 << 16) if length < 4 or length > 10000 else b"")
            assert all(m.type == "E" for m in c.closed())
        with proxy.wire() as c:
            c.startup("app", db, wait=False)
            assert c.recv().type == "R"
            c.raw(b"p" + struct.pack("!I", length))
            assert all(m.type == "E" for m in c.closed())
    alive(proxy, db, "app", "app-password")


# --- the rules in one list -----------------------------------------------------------------------------------


def test_closing_a_client_leaves_the_input_of_others_alone(proxy, db):
    """What a client has sent, and nobody has read when it is closed, is not read as what the admin says."""
    with proxy.wire(db) as victim, proxy.wire("qbouncer", "admin") as admin:
        proxy.console("PAUSE " + db)
        victim.query("SELECT 1")
        proxy.wait_pool(db, cl_waiting=1)
        victim.raw(b"Q\0\0\0\x13SHOW CONFIG    \0" * 3000)
        which = [r["id"] for r in proxy.console("SHOW CLIENTS") if r["database"] == db]
        admin.hold().query("KILL_CLIENT %s" % which[0]).query("SHOW VERSION").push()
        assert types(admin.until("Z")) == "CZ"
        got = admin.until("Z")
        assert types(got) == "TDCZ" and [x[0] for x in got[0].columns] == ["version"]
        admin.silent()
    proxy.console("RESUME " + db)


def test_rule_01_lengths_are_checked_before_use(proxy, db):
    for length in 0, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF:
        with proxy.wire() as c:
            c.raw(struct.pack("!II", length, 3 << 16))
            assert all(m.type == "E" for m in c.closed())
    before = proxy.rss_kib()
    held = []
    for _ in range(20):
        c = proxy.wire(db)
        c.raw(b"Q" + struct.pack("!I", 1 << 30) + b"SELECT")
        held.append(c)
    alive(proxy, db)
    assert proxy.rss_kib() - before < 50000
    for c in held:
        c.close()


def test_rule_02_messages_have_their_state(qbouncer, db):
    proxy = qbouncer(auth_type="scram-sha-256", login_failure_delay=0)
    for kind in "QPBDECSHFXdcfp":
        with proxy.wire() as c:
            c.startup("app", db, wait=False)
            c.send(kind, cstr("x") + cstr("SELECT 1") + struct.pack("!h", 0))
            assert all(m.type in "RE" for m in c.closed())
    alive(proxy, db, "app", "app-password")


def test_rule_03_empty_buffer_when_tls_starts(proxy, db):
    with proxy.wire() as c:
        c.hold().packet(SSL).raw(b"\x16\x03\x01\x00\x05hello").push()
        after_byte(c)
    alive(proxy, db)


def test_rule_04_nothing_reaches_a_server_before_authentication(qbouncer, cluster, db, direct):
    proxy = qbouncer(auth_type="scram-sha-256", login_failure_delay=0)
    for _ in range(3):
        refused(proxy, db, "app", "wrong", application_name="intruder")
    assert direct.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                          (db,)).fetchone() == (0,)


def test_rule_05_sql_is_bound_or_quoted(qbouncer, db, direct):
    """Settings of the start-up packet become SQL on the server."""
    direct.execute("CREATE TABLE victim ()")
    proxy = qbouncer()
    for value in "x'); DROP TABLE victim; --", "x\\'); DROP TABLE victim; --", "\\", "'":
        with proxy.wire(db, application_name=value) as c:
            assert c.rows("SHOW application_name")[0]["application_name"] == value
    assert direct.execute("SELECT count(*) FROM victim").fetchone() == (0,)


def test_rule_06_secrets_are_not_logged(qbouncer, db):
    proxy = qbouncer(auth_type="plain", verbose=2, login_failure_delay=0)
    alive(proxy, db, "app", "app-password")
    refused(proxy, db, "app", "a wrong password")
    assert "app-password" not in proxy.log_text() and "a wrong password" not in proxy.log_text()


def test_rule_07_caches_have_an_age(qbouncer, cluster, db):
    cluster.psql("CREATE ROLE rule_old LOGIN PASSWORD 'one'")
    try:
        proxy = qbouncer(**asker(cluster, auth_type="scram-sha-256", auth_query_cache="100ms"))
        alive(proxy, db, "rule_old", "one")
        cluster.psql("ALTER ROLE rule_old PASSWORD 'two'")

        def gone():
            try:
                proxy.wire(db, "rule_old", "one").close()
            except PgError as e:
                return e.sqlstate == "28P01"
        wait_for(gone, "the end of the old password")
    finally:
        cluster.psql("DROP ROLE rule_old")


def test_rule_08_default_is_deny(proxy):
    for command in "RELOAD", "SHUTDOWN", "PAUSE", "KILL", "SET verbose = 1", "SUSPEND", "SHOW FDS", "NOSUCHCOMMAND":
        with pytest.raises(PgError):
            proxy.console(command, "stats")
        with pytest.raises(PgError):
            proxy.console(command, "other")
    assert proxy.console("SHOW VERSION")


def test_rule_09_servers_are_not_believed(qbouncer, db, hostile):
    answers = [auth(0) + b"Z\0\0\0\0", b"\0" * 100, auth(0) + message("D", b"\xff\xff"), b"E" + struct.pack("!I", 0xFFFFFFFF),
               message("Z", b"I"), auth(0) + message("S", b"no zero"), auth(0) + message("K", b"\0"), auth(5, b"\0"),
               auth(10, b"SCRAM-SHA-256"), auth(12, b"v=x"), auth(11, b"r=x"), b"HTTP/1.1 400 Bad Request\r\n\r\n"]
    turn = iter(answers * 100)
    server = hostile(lambda conn, first: conn.sendall(next(turn)))
    proxy = with_server(qbouncer, server, server_connect_timeout=5)
    for _ in answers:
        refused(proxy, "bad")
    alive(proxy, db)


def test_rule_10_no_input_ends_the_program(proxy, db):
    for data in b"", b"\0", b"\xff" * 5000, b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"x" * 500:
        with proxy.wire() as c:
            try:
                c.raw(data)
            except (Closed, OSError):
                pass
    alive(proxy, db)


def test_rule_11_nothing_of_a_session_is_left(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, pool_mode="session")
    with proxy.wire(db) as a:
        a.simple("CREATE TEMP TABLE left_over (); SELECT pg_advisory_lock(42); LISTEN left_over; "
                 "SET search_path = left_over; PREPARE left_over AS SELECT 1")
        pid = a.rows("SELECT pg_backend_pid() AS p")[0]["p"]
    proxy.wait_pool(db, sv_idle=1)
    with proxy.wire(db) as b:
        got = b.rows("""SELECT pg_backend_pid() AS p, to_regclass('pg_temp.left_over') AS t,
            (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS l,
            (SELECT count(*) FROM pg_listening_channels()) AS c, current_setting('search_path') AS s,
            (SELECT count(*) FROM pg_prepared_statements) AS n""")[0]
    assert got["p"] == pid
    assert (got["t"], got["l"], got["c"], got["n"]) == (None, "0", "0", "0")
    assert "left_over" not in got["s"]


def wrong_logins(proxy, db, n, host="127.0.0.1"):
    """They wait for their answers all at once."""
    held = []
    for _ in range(n):
        c = Wire(proxy.port, host=host)
        c.startup("app", db, wait=False)
        assert c.recv().type == "R"
        c.send("p", cstr("wrong"))
        held.append(c)
    return held


def test_rule_12_failed_logins_become_slow(qbouncer, db):
    """From the fourth on the answer waits. Nobody is turned away: a right password comes in, however many wrong ones
    come from the same address."""
    proxy = qbouncer(auth_type="plain", login_failure_delay=2)
    for _ in range(3):
        assert refused(proxy, db, "app", "wrong").sqlstate == "28P01"
    held = wrong_logins(proxy, db, 60)
    with proxy.wire(db, password="app-password") as c:
        c.simple("SELECT 1")
    for c in held:
        assert c.recv().sqlstate == "28P01"
        c.close()


def test_rule_12_who_hangs_up_has_guessed_too(qbouncer, db):
    """A guesser need not wait for his answers: they count. Then each attempt waits before it is looked at, and the right
    one with them: for login_failure_delay, or half of client_login_timeout."""
    proxy = qbouncer(auth_type="plain", login_failure_delay=60, client_login_timeout=4)
    for c in wrong_logins(proxy, db, 30):
        c.close()
    # from another address, or it would have to wait itself
    with Wire(proxy.port, host=proxy.dir) as own:
        own.startup("admin", "qbouncer", password=USERS["admin"])
        wait_for(lambda: dict(m.text_row[:2] for m in own.simple("SHOW LISTS") if m.type == "D")["login_clients"] == "0",
                 "the end of them")
    began = time.monotonic()
    with Wire(proxy.port) as c:
        c.startup("app", db, password="app-password")
        c.simple("SELECT 1")
    assert time.monotonic() - began > 1.5


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another unix user")
def test_rule_12_unix_users_apart(qbouncer, db):
    """The unix socket is not one address for everybody: who guesses slows down himself."""
    proxy = qbouncer(auth_type="plain", login_failure_delay=3600, client_login_timeout=0, unix_socket_mode="0777")
    uid = os.fork()
    if uid == 0:
        try:
            os.setuid(65534)
            for c in wrong_logins(proxy, db, 40, proxy.dir):
                c.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(uid, 0)[1] == 0
    with Wire(proxy.port, host=proxy.dir) as c:
        c.startup("app", db, password="app-password")
        c.simple("SELECT 1")


def test_rule_12_unauthenticated_connections_are_bounded(qbouncer, db):
    """Those that say nothing do not keep others out for long."""
    proxy = qbouncer(max_unauthenticated_conn=5, tcp_defer_accept=0, client_login_timeout=60)
    mute = [proxy.wire() for _ in range(12)]
    alive(proxy, db)
    for c in mute:
        c.close()


def test_rule_13_parsers_have_fuzz_targets():
    have = {f[5:-2] for f in os.listdir(os.path.join(ROOT, "test", "fuzz")) if f.startswith("fuzz_") and f.endswith(".c")}
    assert have >= {"startup", "scram", "frontend", "backend", "queue", "ini", "sqllex", "access", "console", "tls"}
