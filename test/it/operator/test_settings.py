"""Settings that have no test of their own elsewhere: each does what it says."""

import grp
import os
import re
import socket
import stat
import subprocess

import pytest

from pgwire import PgError, Wire, types
from proxy import free_port, wait_for


def server_pid(c):
    return c.rows("SELECT pg_backend_pid() AS pid")[0]["pid"]


def test_login_notify_message(qbouncer, db):
    proxy = qbouncer(login_notify_message="closed on Sunday")
    with proxy.wire() as c:
        c.startup(user="app", database=db, wait=False)
        notices = [m for m in c.until("Z", skip="") if m.type == "N"]
        assert [(m.fields["S"], m.fields["M"]) for m in notices] == [("NOTICE", "closed on Sunday")]


@pytest.mark.parametrize("turns", ["0", "1"])
def test_server_round_robin(qbouncer, db, turns):
    """Without it the server used last is the first to be used again."""
    proxy = qbouncer(server_round_robin=turns)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        for c in a, b:
            c.simple("BEGIN")
        pids = {server_pid(a), server_pid(b)}
        assert len(pids) == 2
        for c in a, b:
            c.simple("COMMIT")
        used = [server_pid(a) for _ in range(4)]
        assert len(set(used)) == (2 if turns == "1" else 1)
        if turns == "1":
            assert used[0] != used[1] and used[:2] == used[2:]


def test_server_fast_close(qbouncer, db):
    """In session pooling: who is in a transaction ends it, the others go at once."""
    proxy = qbouncer(pool_mode="session", server_fast_close="1")
    with proxy.wire(db) as idle, proxy.wire(db) as busy:
        idle.simple("SELECT 1")
        busy.simple("BEGIN")
        busy.simple("SELECT 1")  # BEGIN alone waits for it
        proxy.console("RECONNECT " + db)
        assert idle.closed()[-1].sqlstate == "57P01"
        assert types(busy.simple("SELECT 1")) == "TDCZ"
        busy.query("COMMIT")
        got = busy.closed()
        assert types(got[:2]) == "CZ" and got[-1].sqlstate == "57P01"


def test_server_fast_close_is_off_by_default(qbouncer, db):
    proxy = qbouncer(pool_mode="session")
    with proxy.wire(db) as c:
        pid = server_pid(c)
        proxy.console("RECONNECT " + db)
        proxy.wait_show("SERVERS", lambda r: r["database"] == db and r["close_needed"] == "1")
        assert server_pid(c) == pid
    with proxy.wire(db) as c:
        assert server_pid(c) != pid


def test_application_name_add_host(qbouncer, db):
    proxy = qbouncer(application_name_add_host="1")
    with proxy.wire(db, application_name="app") as c:
        there = "127.0.0.1:%d" % c.sock.getsockname()[1]
        assert c.rows("SHOW application_name")[0]["application_name"] == "app - " + there


def test_disable_pqexec(qbouncer, db):
    proxy = qbouncer(disable_pqexec="1")
    with proxy.wire(db) as c:
        assert types(c.parse("", "SELECT 1").bind().execute().sync().until("Z")) == "12DCZ"
        c.query("SELECT 1")
        got = c.closed()
        assert got[-1].type == "E" and "disable_pqexec" in got[-1].fields["M"] + got[-1].fields.get("H", "")


def test_max_packet_size(qbouncer, db):
    """Of a client and of a server; the limit is for each message, not for all of the rows."""
    proxy = qbouncer(max_packet_size="4096")
    with proxy.wire(db) as c:
        assert len(c.rows("SELECT repeat('x', 3000) AS x FROM generate_series(1, 10)")) == 10
        c.query("SELECT repeat('x', 5000) AS x")
        got = c.closed()
        assert got[-1].sqlstate == "54000" and "max_packet_size" in got[-1].fields["M"]
    with proxy.wire(db) as c:
        c.query("SELECT '%s'" % ("x" * 5000))
        assert "max_packet_size" in c.closed()[-1].fields["M"]


def test_unix_socket_of_a_group(qbouncer):
    proxy = qbouncer(start=False, unix_socket_mode="0710")
    group = grp.getgrgid(proxy.owner.pw_gid if proxy.owner else os.getegid())
    proxy.settings["unix_socket_group"] = group.gr_name
    proxy.start()
    st = os.stat("%s/.s.PGSQL.%d" % (proxy.dir, proxy.port))
    assert stat.S_IMODE(st.st_mode) == 0o710 and st.st_gid == group.gr_gid


def test_unix_socket_of_a_group_that_is_not_there(qbouncer):
    proxy = qbouncer(start=False, unix_socket_group="nosuchgroup")
    with pytest.raises(AssertionError, match="nosuchgroup"):
        proxy.start()
    proxy.process = None


def test_databases_that_are_not_there_are_forgotten(qbouncer):
    """Whoever may name any database makes an entry of each: not for autodb_idle_timeout, an hour."""
    proxy = qbouncer(server_login_retry="0.1")
    for n in range(20):
        with pytest.raises(PgError) as e:
            proxy.wire("nosuch%d" % n)
        assert e.value.sqlstate == "3D000"
    wait_for(lambda: not any(r["name"].startswith("nosuch") for r in proxy.console("SHOW DATABASES")),
             "the end of what is not there")


def test_autodb_idle_timeout(qbouncer, db):
    """A database that came from the * entry is forgotten; one that has an entry stays."""
    proxy = qbouncer(databases={"named": "dbname=" + db}, autodb_idle_timeout="1", server_idle_timeout="1")
    known = lambda: {r["name"] for r in proxy.console("SHOW DATABASES")}
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        assert db in known()
    wait_for(lambda: db not in known(), "that it is forgotten", 30)
    assert "named" in known()


def test_max_auto_databases(qbouncer, cluster):
    """The number of what the * entry makes is bounded; what is not used makes room."""
    a, b, c = (cluster.createdb(owner="app") for _ in range(3))
    proxy = qbouncer(max_auto_databases=2)
    known = lambda: {r["name"] for r in proxy.console("SHOW DATABASES")}
    with proxy.wire(a) as one:
        with proxy.wire(b) as two:
            two.simple("SELECT 1")
            with pytest.raises(PgError) as e:
                proxy.wire(c)
            assert e.value.sqlstate == "53300" and "max_auto_databases = 2" in e.value.fields["H"]
            assert c not in known()
            # those that are there go on, and take more clients
            with proxy.wire(a) as more:
                more.simple("SELECT 1")

        def comes():
            try:
                proxy.wire(c).close()
            except PgError:
                return False
            return True
        wait_for(comes, "room")
        assert {a, c} <= known() and b not in known()
        one.simple("SELECT 1")


def test_stats_are_logged(qbouncer, db):
    proxy = qbouncer(stats_period="1", log_stats="1")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.wait_log(r"LOG stats: \d+ xacts/s, \d+ queries/s, in \d+ B/s, out \d+ B/s, xact \d+ us, query \d+ us, wait \d+ us, clients 1")


def keepalive_seconds(port, peer):
    """When the kernel will ask that peer of a socket whether it lives; None: it will not."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            f = line.split()
            if f[1].endswith(":%04X" % port) and f[2].endswith(":%04X" % peer):
                kind, when = f[5].split(":")
                return int(when, 16) / os.sysconf("SC_CLK_TCK") if kind == "02" else None
    return None


def test_tcp_keepidle(qbouncer, db):
    proxy = qbouncer(tcp_keepalive="1", tcp_keepidle="700", tcp_keepintvl="70", tcp_keepcnt="7", tcp_user_timeout="90000")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        peer = c.sock.getsockname()[1]
        assert 500 < wait_for(lambda: keepalive_seconds(proxy.port, peer), "the timer") <= 701
    proxy = qbouncer(tcp_keepalive="0")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        assert keepalive_seconds(proxy.port, c.sock.getsockname()[1]) is None


def test_ciphers_of_servers_are_checked(qbouncer, program):
    proxy = qbouncer(start=False, server_tls_sslmode="require", server_tls_ciphers="no-such-cipher")
    proxy.port = free_port()
    proxy.write()
    run = subprocess.run([program, "--check-config", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    assert run.returncode == 1 and "no-such-cipher" in run.stdout


def test_systemd_is_told(qbouncer, program, db, monkeypatch):
    """Type=notify-reload: ready, a reload with its time, ready again, and the end."""
    if "systemd" not in subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout:
        pytest.skip("built without systemd")
    proxy = qbouncer(start=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = proxy.dir + "/notify"
        manager.bind(path)
        os.chmod(path, 0o777)
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        proxy.start()
        assert b"READY=1" in manager.recv(4096)
        proxy.reload()
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+\n?", manager.recv(4096))
        assert b"READY=1" in manager.recv(4096)
        proxy.stop()
        assert b"STOPPING=1" in manager.recv(4096)
