"""RELOAD and SIGHUP: all of it or nothing of it. Signals, options, exit codes."""

import os
import signal
import subprocess

import pytest

from pgwire import PgError, types
from proxy import wait_for


def config(proxy):
    return {r["key"]: r["value"] for r in proxy.console("SHOW CONFIG")}


def memory_has(pid, secret):
    """Is it in memory that the process may write? Without the shadow of a sanitizer."""
    with open("/proc/%d/maps" % pid, encoding="ascii") as maps, open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in maps:
            where, rights = line.split()[:2]
            start, end = (int(n, 16) for n in where.split("-"))
            if not rights.startswith("rw") or end - start > 256 << 20:
                continue
            mem.seek(start)
            try:
                if secret in mem.read(end - start):
                    return True
            except OSError:
                continue  # mapped, but not to be read
    return False


def test_secrets_that_are_replaced_are_erased(program, qbouncer, db):
    """Of the rules, the user file and the configuration: no copy of their text stays behind."""
    with_ldap = "LDAP" in subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout

    def put(word):
        proxy.files["hba.conf"] = "host all all all trust\n" + "# nothing to see\n" * 600 + (
            'hostssl all x all ldap ldapserver=h ldapbasedn="o=x" ldapbindpasswd=%s-in-rule\n' % word if with_ldap else "")
        proxy.users["more"] = word + "-in-file"
        proxy.databases["other"] = "host=/nowhere password=%s-in-ini" % word

    proxy = qbouncer(start=False, auth_type="hba", auth_hba_file="{dir}/hba.conf", core_dumps=1)
    put("Tabernakel")
    proxy.start()
    pid = proxy.process.pid
    assert memory_has(pid, b"Tabernakel-in-ini") and memory_has(pid, b"Tabernakel-in-file")
    assert not with_ldap or memory_has(pid, b"Tabernakel-in-rule")
    put("Kathedrale")
    proxy.reload()
    wait_for(lambda: memory_has(pid, b"Kathedrale-in-ini"), "the reload")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
    assert not memory_has(pid, b"Tabernakel")


def test_sighup(proxy, db):
    proxy.settings["query_wait_timeout"] = "77"
    proxy.write()
    proxy.signal(signal.SIGHUP)
    wait_for(lambda: config(proxy)["query_wait_timeout"] == "77", "the new value")


def test_reload_command(proxy, db):
    proxy.settings["query_wait_timeout"] = "78"
    proxy.write()
    with proxy.wire("qbouncer", "admin") as c:
        got = c.simple("RELOAD")
        assert got[-2].type == "C" and got[-2].tag == "RELOAD"
    assert config(proxy)["query_wait_timeout"] == "78"


@pytest.mark.parametrize("bad", ["query_wait_timeout = soon", "no_such_key = 1",
                                 "pool_mode = sometimes", "[nosuchsection]", "listen_port"])
def test_all_or_nothing(proxy, db, bad):
    """Good lines before a bad one have no effect either."""
    proxy.settings["server_idle_timeout"] = "99"
    proxy.sections = bad + "\n"
    proxy.write()
    with proxy.wire("qbouncer", "admin") as c:
        got = c.simple("RELOAD")
        if bad.startswith("no_such_key"):
            return # reported with its line, not necessarily an error
        assert got[0].type == "E", got
    proxy.wait_log(r"qbouncer\.ini:\d+")
    assert config(proxy)["server_idle_timeout"] == "600"
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


def test_bad_user_file_changes_nothing(qbouncer, db):
    proxy = qbouncer(auth_type="plain")
    proxy.settings["server_idle_timeout"] = "99"
    proxy.write()
    with open(os.path.join(proxy.dir, "userlist.txt"), "a", encoding="utf-8") as f:
        f.write('"unterminated\n')
    with proxy.wire("qbouncer", "admin", "admin-password") as c:
        assert c.simple("RELOAD")[0].type == "E"
        rows = {r["key"]: r["value"] for r in c.rows("SHOW CONFIG")}
        assert rows["server_idle_timeout"] == "600"
    with proxy.wire(db, "app", "app-password") as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_new_user_and_database(qbouncer, cluster, db):
    proxy = qbouncer(auth_type="plain")
    with pytest.raises(PgError):
        proxy.wire("alias", "other", "pw")
    proxy.users["other"] = "pw"
    proxy.databases["alias"] = "host=%s port=%d dbname=%s" % (cluster.socket_dir, cluster.port, db)
    proxy.write()
    proxy.signal(signal.SIGHUP)

    def works():
        try:
            with proxy.wire("alias", "other", "pw") as c:
                return c.rows("SELECT current_database() AS d")[0]["d"] == db
        except PgError:
            return False
    wait_for(works, "the new user and database")


def test_pool_mode_that_changes(qbouncer, db):
    """A client keeps the mode in which it got its server: its names and its session stay, and reach nobody."""
    proxy = qbouncer(pool_mode="session", default_pool_size=2)

    def reload(mode):
        proxy.settings["pool_mode"] = mode
        proxy.write()
        proxy.console("RELOAD")
        assert proxy.pool(db)["pool_mode"] == mode

    def mine(c):
        return c.rows("SELECT current_setting('work_mem') AS m, pg_backend_pid() AS pid, "
                      "to_regclass('pg_temp.mine') IS NOT NULL AS t")[0]

    with proxy.wire(db) as a, proxy.wire(db) as other:
        a.rows("SET work_mem = '7MB'")
        a.rows("CREATE TEMP TABLE mine (a int)")
        a.hold().parse("s1", "SELECT 41 + $1::int").sync().push()
        assert types(a.until("Z")) == "1Z"
        before = mine(a)
        reload("transaction")
        for _ in range(2):
            assert mine(other)["m"] != "7MB" and mine(other)["t"] == "f"
            assert mine(a) == before and before["m"] == "7MB" and before["t"] == "t"
            a.hold().bind("", "s1", ["1"]).execute().sync().push()
            assert a.until("Z")[1].text_row == ["42"]
        other.hold().parse("s1", "SELECT 1").bind("", "s1").execute().sync().push()
        assert types(other.until("Z")) == "12DCZ"
        reload("session")
        other.hold().bind("", "s1").execute().sync().push()
        assert types(other.until("Z")) == "2DCZ"
        assert mine(a) == before
        reload("transaction")
    with proxy.wire(db) as b, proxy.wire(db) as c:
        b.rows("BEGIN")
        c.rows("BEGIN")
        assert [mine(x)["t"] for x in (b, c)] == ["f", "f"] and "7MB" not in (mine(b)["m"], mine(c)["m"])


def test_clients_live_through_a_reload(proxy, db):
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        proxy.settings["query_wait_timeout"] = "79"
        proxy.write()
        proxy.signal(signal.SIGHUP)
        wait_for(lambda: config(proxy)["query_wait_timeout"] == "79", "the new value")
        assert c.simple("SELECT 1")[-1].status == "T"
        c.simple("COMMIT")


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_ends_at_once_when_idle(qbouncer, signo):
    qbouncer().stop(signo)


def test_sigint_lets_transactions_finish(proxy, db):
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.simple("BEGIN")
        c.simple("INSERT INTO t VALUES (1)")
        proxy.signal(signal.SIGINT)
        proxy.wait_log("(?i)shut")
        assert c.simple("INSERT INTO t VALUES (2)")[-1].status == "T"
        assert c.simple("COMMIT")[0].tag == "COMMIT"
    wait_for(lambda: proxy.process.poll() is not None, "the end")


def test_sigint_twice_is_immediate(proxy, db):
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        proxy.signal(signal.SIGINT)
        proxy.wait_log("(?i)shut")
        proxy.signal(signal.SIGINT)
        wait_for(lambda: proxy.process.poll() is not None, "the end")


def test_sigterm_waits_for_clients(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.signal(signal.SIGTERM)
        proxy.wait_log("(?i)shut")
        assert types(c.simple("SELECT 1")) == "TDCZ"
        assert proxy.process.poll() is None
        c.terminate()
    wait_for(lambda: proxy.process.poll() is not None, "the end")


def test_pause_and_resume_by_signals(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.signal(signal.SIGUSR1)
        wait_for(lambda: any(r["paused"] == "1" for r in proxy.console("SHOW DATABASES"))
                 or proxy.console("SHOW STATE")[1]["value"] in ("yes", "no"), "paused")
        proxy.wait_log("(?i)paus")
        c.query("SELECT 2")
        assert c.silent()
        proxy.signal(signal.SIGUSR2)
        assert types(c.until("Z")) == "TDCZ"


def run(proxy, *arguments, become=True):
    return subprocess.run([proxy.program, *arguments], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False,
                          cwd="/", preexec_fn=proxy.become if become else None)


def test_version_and_help(qbouncer):
    proxy = qbouncer(start=False)
    done = run(proxy, "--version")
    assert done.returncode == 0 and done.stdout.startswith("qbouncer ")
    done = run(proxy, "--help")
    assert done.returncode == 0
    for option in ("--check-config", "--daemon", "--print-schema", "--user", "--quiet", "--verbose"):
        assert option in done.stdout, option


def test_print_schema(qbouncer, cluster, db):
    proxy = qbouncer(start=False)
    done = run(proxy, "--print-schema")
    assert done.returncode == 0 and "CREATE" in done.stdout
    cluster.psql(done.stdout, db)
    assert cluster.psql("SELECT queue.version()", db) == "1"


def test_check_config(qbouncer):
    proxy = qbouncer(start=False)
    proxy.port = 1
    proxy.write()
    done = run(proxy, "--check-config", proxy.ini)
    assert done.returncode == 0, done.stdout
    proxy.settings["query_wait_timeout"] = "soon"
    proxy.write()
    done = run(proxy, "--check-config", proxy.ini)
    assert done.returncode != 0
    line = open(proxy.ini, encoding="utf-8").read().split("\n").index("query_wait_timeout = soon") + 1
    assert "qbouncer.ini:%d" % line in done.stdout


def test_missing_config(qbouncer):
    proxy = qbouncer(start=False)
    done = run(proxy, os.path.join(proxy.dir, "nosuch.ini"))
    assert done.returncode == 1 and "nosuch.ini" in done.stdout


def test_port_in_use(qbouncer):
    first = qbouncer()
    second = qbouncer(start=False, unix_socket_dir="")
    second.port = first.port
    second.write()
    done = run(second, second.ini)
    assert done.returncode == 1
    assert "in use" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_refuses_root(qbouncer):
    proxy = qbouncer(start=False)
    proxy.port = 1
    proxy.write()
    done = run(proxy, proxy.ini, become=False)
    assert done.returncode == 1 and "root" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_changes_user_and_daemon(qbouncer, db):
    """-d -u: the daemon runs as that user, writes its pid file and log file, and ends well."""
    from proxy import free_port
    proxy = qbouncer(start=False)
    proxy.port = free_port()
    pidfile = os.path.join(proxy.dir, "pid")
    logfile = os.path.join(proxy.dir, "daemon.log")
    proxy.settings.update(pidfile=pidfile, logfile=logfile)
    proxy.write()
    done = run(proxy, "-d", "-u", "postgres", proxy.ini, become=False)
    assert done.returncode == 0, done.stdout
    pid = wait_for(lambda: os.path.exists(pidfile) and open(pidfile, encoding="ascii").read().strip(),
                   "the pid file")
    try:
        def answers():
            try:
                return types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"
            except ConnectionError:
                return False
        wait_for(answers, "an answer")
        with open("/proc/%s/status" % pid, encoding="ascii") as status:
            assert "\nUid:\t%d\t" % proxy.owner.pw_uid in status.read()
    finally:
        os.kill(int(pid), signal.SIGQUIT)
    wait_for(lambda: not os.path.exists("/proc/" + pid) or open(
        "/proc/%s/stat" % pid, encoding="ascii").read().split()[2] == "Z", "the end")
    assert not os.path.exists(pidfile)
    assert os.path.getsize(logfile) > 0
