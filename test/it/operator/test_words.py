"""The log in the words of pgbouncer: what greps, pgbadger and fail2ban look for."""

import os
import signal

import pytest

from pgwire import PgError
from proxy import wait_for


def fails(proxy, *args, **more):
    with pytest.raises(PgError) as e:
        proxy.wire(*args, **more)
    return e.value


def test_a_connection_to_a_server(qbouncer, cluster):
    proxy = qbouncer(databases={"tcp": "host=127.0.0.1 port=%d dbname=postgres" % cluster.port})
    with proxy.wire("tcp") as c:
        c.simple("SELECT 1")
    proxy.wait_log(r"LOG S-0x[0-9a-f]+: tcp/app@127\.0\.0\.1:%d new connection to server "
                   r"\(from 127\.0\.0\.1:\d+\)\n" % cluster.port)


def test_a_connection_that_is_not_made(qbouncer, cluster):
    proxy = qbouncer(databases={"refused": "host=127.0.0.1 port=1", "nameless": "host=no.such.name.invalid",
                                "nodb": "host=%s port=%d dbname=nosuch" % (cluster.socket_dir, cluster.port)})
    for name, reason in (("refused", "connect failed"), ("nameless", "server DNS lookup failed"),
                         ("nodb", 'database "nosuch" does not exist')):
        fails(proxy, name)
        proxy.wait_log(r"LOG S-0x[0-9a-f]+: %s/app@\S+ closing because: %s \(age=\d+s\)\n" % (name, reason))
    proxy.wait_log('WARNING nodb/app: server login failed: FATAL database "nosuch" does not exist\n')
    proxy.wait_log("WARNING DNS lookup failed: no.such.name.invalid: ")


def test_the_next_host_is_tried(qbouncer, cluster):
    """The host that is away is told of once, not by each connection that passes it by."""
    proxy = qbouncer(databases={"many": "host=no.such.name.invalid,127.0.0.1 port=%d dbname=postgres load_balance_hosts=disable"
                                        % cluster.port}, pool_mode="session")
    with proxy.wire("many") as one, proxy.wire("many") as two:
        one.simple("SELECT 1")
        two.simple("SELECT 1")
    assert proxy.log_text().count("closing because: server DNS lookup failed") == 1


def test_the_reserve(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout="100ms", pool_mode="session")
    with proxy.wire(db) as one, proxy.wire(db) as two:
        one.simple("SELECT 1")
        two.simple("SELECT 1")
    assert proxy.log_text().count("taking connection from reserve_pool") == 1
    proxy.wait_log(r"WARNING C-0x[0-9a-f]+: %s/app@\S+ taking connection from reserve_pool" % db)


def test_an_automatic_database_and_an_idle_pool(qbouncer, cluster, db):
    proxy = qbouncer(databases={"*": "host=%s port=%d" % (cluster.socket_dir, cluster.port)},
                     pool_idle_timeout="100ms", server_idle_timeout="100ms")
    with proxy.wire("postgres") as c:
        c.simple("SELECT 1")
    proxy.wait_log("registered new auto-database: postgres")
    proxy.wait_log("cleaning up idle pool: postgres/app")


def test_another_configuration(qbouncer, cluster):
    proxy = qbouncer(databases={"other": "host=%s port=%d dbname=postgres" % (cluster.socket_dir, cluster.port)})
    with proxy.wire("other") as c:
        c.simple("SELECT 1")
    proxy.databases["other"] += " user=app"
    proxy.reload()
    proxy.wait_log(r"S-0x[0-9a-f]+: other/app@\S+ closing because: database configuration changed")


def test_a_name_that_is_taken(qbouncer, db):
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.parse("twice", "SELECT 1").sync().until("Z")
        got = c.parse("twice", "SELECT 2").sync().until("Z")
        assert got[0].type == "E" and got[0].sqlstate == "42P05"
    proxy.wait_log("ERROR C-0x.* prepared statement 'twice' was already prepared\n")


def test_signals(qbouncer, db):
    proxy = qbouncer()
    for signo, words in ((signal.SIGUSR1, "got SIGUSR1, pausing all activity"),
                         (signal.SIGUSR1, "got SIGUSR1, but already paused/suspended"),
                         (signal.SIGUSR2, "got SIGUSR2, continuing from PAUSE"),
                         (signal.SIGUSR2, "got SIGUSR2, but not paused/suspended")):
        proxy.signal(signo)
        proxy.wait_log(words + "\n")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.signal(signal.SIGTERM)
        proxy.wait_log("got SIGTERM")
        proxy.signal(signal.SIGUSR2)
        proxy.wait_log("got SIGUSR2 while shutting down, ignoring\n")
    wait_for(lambda: proxy.process.poll() is not None, "its end")


def test_version_has_the_commit(qbouncer):
    proxy = qbouncer()
    (row,) = proxy.console("SHOW VERSION")
    assert row["version"].startswith("qbouncer ") and row["version"].endswith(")") and "(" in row["version"]


@pytest.mark.parametrize("auth", ["scram-sha-256", "md5", "plain"])
def test_why_a_login_failed(qbouncer, db, auth):
    """The log says it, the client does not: what it gets is the same for all of them."""
    proxy = qbouncer(auth_type=auth, users={"ann": "good", "bob": ""}, login_failure_delay=0)
    told = set()
    for user, reason in (("ann", "wrong password"), ("nobody", "no such user"),
                         ("bob", "the user has no password, or it has expired")):
        e = fails(proxy, db, user, password="bad")
        told.add((e.sqlstate, e.fields["M"].replace(user, "X"), e.fields.get("D"), e.fields.get("H")))
        proxy.wait_log(r"LOG C-0x[0-9a-f]+: %s/%s@\S+ login failed: db=%s user=%s: %s\n" % (db, user, db, user, reason))
    (only,) = told
    assert only[0] == "28P01" and only[2] == ("SASL authentication failed" if auth == "scram-sha-256" else None)
    proxy.wait_log("closing because: %s authentication failed" % ("SASL" if auth == "scram-sha-256" else "password"))


def test_a_secret_of_the_wrong_kind(qbouncer, db):
    proxy = qbouncer(auth_type="scram-sha-256", users={"ann": "md5" + 32 * "0"}, login_failure_delay=0)
    fails(proxy, db, "ann", password="x")
    proxy.wait_log("user=ann: SCRAM authentication failed: user has MD5 secret\n")


def test_no_such_database(qbouncer):
    proxy = qbouncer(start=False)
    proxy.databases = {"only": ""}
    proxy.start()
    e = fails(proxy, "nosuch")
    assert (e.sqlstate, e.fields["M"]) == ("3D000", 'database "nosuch" does not exist')
    proxy.wait_log(r"closing because: no such database: nosuch \(age=\d+s\)")


def test_an_obsolete_connection_is_not_given_out(qbouncer, cluster):
    """It is closed when somebody would have got it, not a tick later."""
    proxy = qbouncer(databases={"one": "host=%s port=%d dbname=postgres pool_size=1" % (cluster.socket_dir, cluster.port)})
    with proxy.wire("one") as c:
        before = c.rows("SELECT pg_backend_pid() AS pid")
        proxy.console("RECONNECT one")
        assert c.rows("SELECT pg_backend_pid() AS pid") != before
    proxy.wait_log(r"S-0x[0-9a-f]+: one/app@\S+ closing because: (obsolete connection|database configuration changed)")


def test_replication_that_is_not_allowed(qbouncer, db):
    proxy = qbouncer()
    assert fails(proxy, db, replication="database").sqlstate == "42501"
    for side in "S", "C":
        proxy.wait_log(r"%s-0x[0-9a-f]+: %s/app@\S+ closing because: login failed \(age=\d+s\)" % (side, db))


def test_ids_are_of_one_row(qbouncer, db):
    """Those of clients and those of servers are never the same."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        ids = [r["id"] for r in proxy.console("SHOW CLIENTS") + proxy.console("SHOW SERVERS")]
    assert len(ids) == len(set(ids)) >= 3


def test_reload_tells_of_the_error_not_of_a_warning(qbouncer):
    proxy = qbouncer(databases={"a": "password=x"})
    proxy.settings["default_pool_size"] = "many"
    proxy.write()
    os.chmod(proxy.ini, 0o644)
    with pytest.raises(PgError) as e:
        proxy.console("RELOAD")
    assert "default_pool_size" in e.value.fields["D"], e.value.fields


def test_a_server_that_asks_for_another_secret(qbouncer, cluster, db):
    cluster.psql("SET password_encryption = 'scram-sha-256'; ALTER ROLE s_scram PASSWORD 'secret of scram'")
    proxy = qbouncer(databases={db: "host=127.0.0.1 port=%d user=s_scram" % cluster.port}, auth_type="trust",
                     users={"s_scram": "md5" + 32 * "0", "app": ""})
    e = fails(proxy, db)
    assert e.fields["D"].startswith("server login failed: wrong password type: ")


def test_a_disabled_authentication_database(qbouncer, cluster, db):
    proxy = qbouncer(databases={"keys": "host=%s port=%d dbname=%s" % (cluster.socket_dir, cluster.port, db),
                                db: "host=%s port=%d" % (cluster.socket_dir, cluster.port)},
                     auth_type="md5", auth_user="asker", auth_dbname="keys", login_failure_delay=0)
    proxy.console("DISABLE keys")
    e = fails(proxy, db, "q_md5", password="x")
    assert e.fields["D"] == 'qbouncer config error: authentication database "keys" is disabled'
    proxy.wait_log('authentication database "keys" is disabled\n')


def test_a_reserved_authentication_database(qbouncer):
    proxy = qbouncer()
    proxy.settings["auth_dbname"] = "pgbouncer"
    proxy.write()
    with pytest.raises(PgError):
        proxy.console("RELOAD")
    proxy.wait_log('cannot use the reserved "pgbouncer" database as an auth_dbname')


def test_a_statement_that_gets_no_server(qbouncer, cluster, db):
    """The session lives, and the log has why the statement failed."""
    cluster.psql("CREATE ROLE w_late LOGIN")
    try:
        proxy = qbouncer(databases={db: "host=%s port=%d user=w_late" % (cluster.socket_dir, cluster.port)})
        with proxy.wire(db) as c:
            c.simple("SELECT 1")
            cluster.psql("ALTER ROLE w_late NOLOGIN")
            proxy.console("RECONNECT")
            wait_for(lambda: not proxy.console("SHOW SERVERS"), "that the server is closed")
            assert c.simple("SELECT 1")[0].fields["S"] == "ERROR"
            proxy.wait_log(r'WARNING C-0x[0-9a-f]+: %s/app@\S+ pooler error: role "w_late" is not permitted to log in\n' % db)
    finally:
        cluster.psql("DROP ROLE w_late")


@pytest.mark.parametrize("how", ["bind", "describe"])
def test_a_statement_that_is_not_prepared(qbouncer, db, how):
    proxy = qbouncer()
    with proxy.wire(db) as c:
        if how == "bind":
            got = c.bind("", "nosuch").sync().until("Z")
        else:
            got = c.describe("S", "nosuch").sync().until("Z")
        assert got[0].sqlstate == "26000"
    proxy.wait_log(r"WARNING C-0x[0-9a-f]+: %s/app@\S+ pooler error: prepared statement did not exist\n" % db)
