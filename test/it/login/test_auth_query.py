"""Users that auth_file does not have: auth_query, its connection, its cache."""

import subprocess
import urllib.request

import psycopg
import pytest

from pgwire import PgError
from proxy import free_port, wait_for

PASSWORD = "secret of the looked up"


@pytest.fixture(scope="module")
def roles(cluster):
    cluster.psql("""
        SET password_encryption = 'scram-sha-256';
        CREATE ROLE asker LOGIN SUPERUSER PASSWORD 'secret of asker';
        CREATE ROLE q_scram LOGIN PASSWORD '%(p)s';
        CREATE ROLE q_expired LOGIN PASSWORD '%(p)s' VALID UNTIL '2001-01-01';
        CREATE ROLE q_nologin NOLOGIN PASSWORD '%(p)s';
        CREATE ROLE q_nopassword LOGIN;
        SET password_encryption = 'md5';
        CREATE ROLE q_md5 LOGIN PASSWORD '%(p)s';
        """ % {"p": PASSWORD})
    yield
    cluster.psql("DROP ROLE asker, q_scram, q_expired, q_nologin, q_nopassword, q_md5")


def start(qbouncer, **more):
    settings = {"auth_type": "scram-sha-256", "auth_user": "asker", "users": {"asker": "secret of asker"}}
    settings.update(more)
    return qbouncer(**settings)


def refused(proxy, db, user, password=PASSWORD):
    with pytest.raises(PgError) as e:
        proxy.wire(db, user, password)
    return e.value


def who(proxy, db, user, password=PASSWORD):
    with proxy.wire(db, user, password) as c:
        return c.rows("SELECT current_user AS u")[0]["u"]


def test_scram_user_is_found(qbouncer, db, roles):
    proxy = start(qbouncer)
    assert who(proxy, db, "q_scram") == "q_scram"
    assert refused(proxy, db, "q_scram", "wrong").sqlstate == "28P01"


@pytest.mark.parametrize("method, user", [("md5", "q_md5"), ("md5", "q_scram"), ("plain", "q_md5"), ("plain", "q_scram")])
def test_methods(qbouncer, db, roles, method, user):
    proxy = start(qbouncer, auth_type=method)
    assert who(proxy, db, user) == user
    assert refused(proxy, db, user, "wrong").sqlstate == "28P01"


def test_trust_knows_the_looked_up(qbouncer, db, roles):
    proxy = start(qbouncer, auth_type="trust")
    assert who(proxy, db, "q_scram") == "q_scram"
    assert refused(proxy, db, "q_nosuch").sqlstate == "28P01"
    assert refused(proxy, db, "q_nologin").sqlstate == "28P01"


@pytest.mark.parametrize("user", ["q_expired", "q_nologin", "q_nopassword", "q_nosuch", "x" * 70])
def test_refused_alike(qbouncer, db, roles, user):
    """Nothing tells an unknown user from one who may not log in."""
    e = refused(start(qbouncer), db, user)
    assert e.sqlstate == "28P01"
    assert e.message == 'password authentication failed for user "%s"' % user


def test_the_keys_open_the_server(qbouncer, cluster, db, roles):
    """SCRAM of a looked-up user is passed through to a server that asks for it."""
    cluster.psql("SET password_encryption = 'scram-sha-256'; ALTER ROLE s_scram PASSWORD 'secret of scram'")
    line = "host=127.0.0.1 port=%d" % cluster.port
    proxy = start(qbouncer, databases={"*": line})
    assert who(proxy, db, "s_scram", "secret of scram") == "s_scram"
    assert refused(proxy, db, "s_scram", "wrong").sqlstate == "28P01"


def test_forced_user_does_not_get_the_keys(qbouncer, cluster, db, roles):
    line = "host=%s port=%d user=other" % (cluster.socket_dir, cluster.port)
    proxy = start(qbouncer, databases={db: line})
    assert who(proxy, db, "q_scram") == "other"


def test_password_is_rotated(qbouncer, cluster, db, roles):
    """The cache is old by an hour, and the new password works at the second attempt at the latest."""
    cluster.psql("CREATE ROLE q_rotates LOGIN PASSWORD 'one'")
    try:
        proxy = start(qbouncer, auth_query_cache=3600)
        assert who(proxy, db, "q_rotates", "one") == "q_rotates"
        cluster.psql("ALTER ROLE q_rotates PASSWORD 'two'")
        refused(proxy, db, "q_rotates", "two")
        assert who(proxy, db, "q_rotates", "two") == "q_rotates"
        assert refused(proxy, db, "q_rotates", "one").sqlstate == "28P01"
    finally:
        cluster.psql("DROP ROLE q_rotates")


def test_unknown_is_remembered_and_forgotten(qbouncer, cluster, db, roles):
    """A negative answer is used again; a failed login ends it, and so does RELOAD."""
    proxy = start(qbouncer, auth_query_cache=3600, auth_type="trust")
    refused(proxy, db, "q_late")
    cluster.psql("CREATE ROLE q_late LOGIN")
    try:
        refused(proxy, db, "q_late")
        proxy.console("RELOAD")
        assert who(proxy, db, "q_late") == "q_late"
    finally:
        cluster.psql("DROP ROLE q_late")


def test_answers_are_used_again(qbouncer, db, cluster, roles):
    sql = "SELECT usename, passwd FROM counted.lookup($1)"
    cluster.psql("""
        CREATE SCHEMA counted; CREATE TABLE counted.asked (name text);
        CREATE FUNCTION counted.lookup(name text, OUT usename text, OUT passwd text) LANGUAGE sql AS
        $$ INSERT INTO counted.asked VALUES (name);
           SELECT rolname, rolpassword FROM pg_authid WHERE rolname = name $$""", db)
    proxy = start(qbouncer, auth_query=sql, auth_query_cache=3600)
    for _ in range(3):
        assert who(proxy, db, "q_scram") == "q_scram"
    assert cluster.psql("SELECT count(*) FROM counted.asked", db) == "1"


def test_auth_dbname(qbouncer, cluster, db, roles):
    """The query runs where it is told to, also for the console and for a database of its own role."""
    proxy = start(qbouncer, auth_user="", auth_dbname="keys", admin_users="q_scram",
                  databases={"keys": "host=%s port=%d dbname=%s" % (cluster.socket_dir, cluster.port, db),
                             db: "host=%s port=%d auth_user=asker" % (cluster.socket_dir, cluster.port)})
    assert who(proxy, db, "q_scram") == "q_scram"
    rows = {(r["database"], r["user"]) for r in proxy_rows(proxy, "SHOW POOLS")}
    assert ("keys", "asker") in rows and (db, "asker") not in rows


def proxy_rows(proxy, sql):
    proxy.users["admin2"] = "x"
    proxy.settings["admin_users"] = "admin2"
    proxy.reload()
    return wait_for(lambda: attempt(proxy, sql), "the console")


def attempt(proxy, sql):
    try:
        with proxy.wire("qbouncer", "admin2", "x") as c:
            return c.rows(sql)
    except PgError:
        return None


def test_console_users_are_looked_up(qbouncer, db, roles):
    proxy = start(qbouncer, auth_dbname=db, admin_users="q_scram")
    with proxy.wire("qbouncer", "q_scram", PASSWORD) as c:
        assert c.rows("SHOW VERSION")
    assert refused(proxy, "qbouncer", "q_md5").sqlstate in ("28P01", "42501")


def test_lookup_fails(qbouncer, cluster, db, roles):
    """The reason is for the log, not for somebody who has not logged in."""
    proxy = start(qbouncer, auth_query="SELECT no_such_function($1)")
    e = refused(proxy, db, "q_scram")
    assert e.sqlstate == "08006" and "no_such_function" not in str(e.fields)
    proxy.wait_log("no_such_function")
    assert who(proxy, db, "app", "app-password") == "app"


def test_two_rows_are_none(qbouncer, db, roles):
    proxy = start(qbouncer, auth_query="SELECT $1::text, 'x' FROM generate_series(1, 2)")
    assert refused(proxy, db, "q_scram", "x").sqlstate == "08006"


def test_another_name_is_not_the_user(qbouncer, db, roles):
    proxy = start(qbouncer, auth_query="SELECT 'asker' || left($1, 0), 'x'")
    assert refused(proxy, db, "q_scram", "x").sqlstate == "28P01"


def test_name_is_a_value(qbouncer, db, roles):
    name = "x'; DROP TABLE t; --"
    proxy = start(qbouncer, auth_query="SELECT $1::text, 'x'", auth_type="plain")
    with psycopg.connect(proxy.cluster.dsn(db), autocommit=True) as c:
        c.execute('CREATE ROLE "%s" LOGIN' % name)
        try:
            assert who(proxy, db, name, "x") == name
        finally:
            c.execute('DROP ROLE "%s"' % name)


def test_expiry_ends_a_cached_answer(qbouncer, db, roles):
    """A third column says how long the secret lives: 0 s is over."""
    proxy = start(qbouncer, auth_query="SELECT $1::text, 'x', 0", auth_type="plain", auth_query_cache=3600)
    assert refused(proxy, db, "q_scram", "x").sqlstate == "28P01"


def test_clients_ask_together(qbouncer, db, roles):
    """Many logins of one user at once are one question."""
    proxy = start(qbouncer, auth_query="SELECT $1::text, 'x' FROM pg_sleep(0.3)", auth_type="plain", auth_query_cache=0)
    conns = [proxy.wire() for _ in range(10)]
    for c in conns:
        c.startup("app2", db, password="x", wait=False)
    for c in conns:
        assert c.recv().type == "R"
        c.close()
    # nobody has logged in: the pool is not shown, its connections are
    assert 1 <= len([r for r in proxy.console("SHOW SERVERS") if r["user"] == "asker"]) <= 2


def test_who_has_proved_nothing_makes_nothing(qbouncer, db, roles):
    """Where the client chooses the database that auth_query asks, its name alone makes no database, pool or metric."""
    port = free_port()
    proxy = start(qbouncer, metrics_port=port, server_login_retry=3600, autodb_idle_timeout=0)
    before = {r["name"] for r in proxy.console("SHOW DATABASES")}
    for n in range(70):
        assert refused(proxy, "made_up_%d" % n, "q_scram").sqlstate in ("08006", "3D000")
    assert refused(proxy, db, "q_scram", "wrong").sqlstate == "28P01"
    assert {r["name"] for r in proxy.console("SHOW DATABASES")} == before
    for what in ("POOLS", "STATS"):
        assert not {r["database"] for r in proxy.console("SHOW " + what)} - before - {"pgbouncer", "qbouncer"}
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=20) as r:
        text = r.read().decode()
    assert "made_up" not in text and db not in text and "auto-database" not in proxy.log_text()
    # so many names do not keep anybody out, and who comes in is shown
    assert who(proxy, db, "q_scram") == "q_scram"
    assert db in {r["name"] for r in proxy.console("SHOW DATABASES")}


def test_warning_where_the_client_chooses(qbouncer, db, roles):
    word = r'WARNING .*no "auth_dbname" a client chooses'
    start(qbouncer, auth_dbname=db).wait_log("started")
    proxy = start(qbouncer)
    proxy.wait_log(word)
    done = subprocess.run([proxy.program, "--check-config", proxy.ini], stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=30, check=False, cwd=proxy.dir, preexec_fn=proxy.become)
    assert done.returncode == 0 and 'no "auth_dbname" a client chooses' in done.stdout
    at = len(proxy.log_text())
    proxy.reload()
    proxy.wait_log(word, at)
    proxy.settings["auth_dbname"] = db
    at = len(proxy.log_text())
    proxy.reload()
    proxy.wait_log(r"the configuration is in force \(0 warnings\)", at)
