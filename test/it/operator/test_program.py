"""The program in its system: options, user, pid file, background, immediate ends. Signals that wait:
test_reload.py."""

import os
import pwd
import signal
import socket
import subprocess
import time

import pytest

from proxy import free_port, wait_for


def run(program, *arguments, **more):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=30, check=False, **more)


@pytest.mark.parametrize("arguments", [[], ["--nonsense"], ["-u"], ["a.ini", "b.ini"]])
def test_usage(program, arguments):
    done = run(program, *arguments)
    assert done.returncode == 1 and "Usage:" in done.stderr and done.stdout == ""


def test_check_config(program, qbouncer):
    proxy = qbouncer(start=False)
    proxy.port = free_port()
    proxy.write()
    assert run(program, "--check-config", proxy.ini).returncode == 0
    proxy.settings["default_pool_size"] = "many"
    proxy.write()
    done = run(program, "--check-config", proxy.ini)
    assert done.returncode == 1 and "qbouncer.ini:" in done.stderr and "default_pool_size" in done.stderr
    del proxy.settings["default_pool_size"]
    proxy.write()
    os.remove(proxy.settings["auth_file"])
    assert run(program, "--check-config", proxy.ini).returncode == 1
    assert run(program, "--check-config", proxy.ini + ".none").returncode == 1


def test_check_config_without_anything_to_listen_on(program, qbouncer):
    """systemd may listen: a start without it says what is missing."""
    proxy = qbouncer(start=False, listen_addr="", unix_socket_dir="")
    proxy.port = free_port()
    proxy.write()
    done = run(program, "--check-config", proxy.ini)
    assert done.returncode == 0 and "nowhere to listen" in done.stderr and "(0 errors, 1 warnings)" in done.stdout
    done = run(program, proxy.ini, preexec_fn=proxy.become)
    assert done.returncode == 1 and "nothing to listen on" in done.stderr


def test_check_config_names_every_mistake(program, qbouncer):
    proxy = qbouncer(start=False, auth_type="hba", auth_hba_file="{dir}/hba.conf", auth_ident_file="{dir}/ident.conf",
                     files={"hba.conf": "host all all 10.0.0.0/40 trust\nhost samerole all all trust\n"
                                        "host all +ops all trust\nlocal all all peer map=m\n",
                            "ident.conf": "m root app\nm /(x root\n"})
    proxy.port = free_port()
    proxy.write()
    with open(proxy.settings["auth_file"].format(dir=proxy.dir), "w", encoding="utf-8") as f:
        f.write('"app" "x"\napp\n"app"\n')
    done = run(program, "--check-config", proxy.ini)
    assert done.returncode == 1 and "(6 errors, 0 warnings)" in done.stdout, done
    lines = done.stderr.splitlines()
    for line, what in zip(lines, ["ident.conf:2: invalid regular expression", "hba.conf:1: invalid mask",
                                  'hba.conf:2: "samerole": members of a role are not known here',
                                  'hba.conf:3: "+ops": members of a role are not known here',
                                  ":2: expected a user name", ":3: expected a password"], strict=True):
        assert line.startswith("error: auth_") and what in line, done.stderr
    assert all("auth_hba_file" in line for line in lines[:4]) and "auth_file" in lines[4]
    proxy.settings["auth_type"] = "md5"  # nobody needs the rules
    proxy.write()
    done = run(program, "--check-config", proxy.ini)
    assert done.stderr.startswith("warning: auth_hba_file: ") and "(6 errors, 0 warnings)" not in done.stdout


@pytest.mark.parametrize("line, error", [
    ("x = host=localhost,port=5432", '"port="'), ("x = dbname=a,user=b", '"user="'), ("x = host=a,b,dbname=c", '"dbname="')])
def test_a_comma_in_place_of_a_blank(program, qbouncer, line, error):
    """It would be a host (or a database) of that name, and the default port."""
    proxy = qbouncer(start=False)
    proxy.port = free_port()
    proxy.write()
    proxy._put(proxy.ini, "[databases]\nok = host=a,b port=1 connect_query='select 1 as a,port=2 as user'\n%s\n" % line)
    done = run(program, "--check-config", proxy.ini)
    assert done.returncode == 1 and "(1 errors, 0 warnings)" in done.stdout, done
    assert ":3: error:" in done.stderr and "a comma stands in place of a blank before " + error in done.stderr


def test_check_config_names_the_files_with_the_rest(program, qbouncer):
    """A mistake in the ini hides none of the files that are missing, and no file hides another."""
    proxy = qbouncer(start=False, default_pool_size="many", client_tls_sslmode="require", client_tls_key_file="/no/key",
                     client_tls_cert_file="/no/cert", server_tls_sslmode="verify-ca", server_tls_ca_file="/no/ca",
                     auth_file="/no/users")
    proxy.port = free_port()
    proxy.write()
    done = run(program, "--check-config", proxy.ini)
    assert done.returncode == 1 and "(5 errors, 0 warnings)" in done.stdout, done
    for what in ("default_pool_size", 'TLS setup failed: client_tls_cert_file: cannot read "/no/cert"',
                 'TLS setup failed: client_tls_key_file: cannot read "/no/key"',
                 'TLS setup failed: server_tls_ca_file: cannot read "/no/ca"', 'auth_file: cannot read "/no/users"'):
        assert what in done.stderr, done.stderr


def test_secrets_that_others_can_read(program, qbouncer):
    """Told by --check-config and at the start, once for each file; without a secret nobody cares."""
    proxy = qbouncer(start=False, users={"ann": "secret"}, databases={"a": "password=x", "b": "password=y"})
    proxy.port = free_port()
    proxy.write()
    users = proxy.settings["auth_file"]
    assert "0 warnings" in run(program, "--check-config", proxy.ini).stdout
    os.chmod(proxy.ini, 0o644)
    os.chmod(users, 0o644)
    done = run(program, "--check-config", proxy.ini)
    assert done.returncode == 0 and "(0 errors, 2 warnings)" in done.stdout
    assert done.stderr.count("every user of this machine can read") == 2, done.stderr
    assert 'so "password"' in done.stderr and users in done.stderr
    os.chmod(proxy.ini, 0o640)
    proxy._put(users, '"ann" ""\n')
    os.chmod(users, 0o644)
    assert "0 warnings" in run(program, "--check-config", proxy.ini).stdout


def test_a_start_warns_of_secrets_that_others_can_read(qbouncer):
    proxy = qbouncer(users={"ann": "secret"})
    assert "can read the secrets" not in proxy.log_text()
    os.chmod(proxy.settings["auth_file"], 0o644)
    proxy.signal(signal.SIGHUP)
    proxy.wait_log("WARNING auth_file: every user of this machine can read the secrets")


# --- core files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings, arguments, allowed", [({}, [], False), ({"core_dumps": 1}, [], True), ({}, ["-v"], True)])
def test_core_files(qbouncer, settings, arguments, allowed):
    """What the kernel does not dump is root's in /proc."""
    proxy = qbouncer(start=False, **settings)
    proxy.start(*arguments)
    owner = os.stat("/proc/%d/environ" % proxy.process.pid).st_uid
    assert owner == ((proxy.owner.pw_uid if proxy.owner else os.getuid()) if allowed else 0)


# --- user ------------------------------------------------------------------------------------------


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@root_only
def test_root_is_refused(program, qbouncer):
    proxy = qbouncer(start=False)
    proxy.port = free_port()
    proxy.write()
    done = run(program, proxy.ini)
    assert done.returncode == 1 and "-u" in done.stderr
    done = run(program, "-u", "root", proxy.ini)
    assert done.returncode == 1 and "is root" in done.stderr
    done = run(program, "-u", "no-such-user", proxy.ini)
    assert done.returncode == 1 and "does not exist" in done.stderr


@root_only
def test_user_is_changed(program, qbouncer):
    proxy = qbouncer(start=False)
    proxy.become = lambda: None
    proxy.settings["user"] = proxy.owner.pw_name
    proxy.start()

    def ids():
        with open("/proc/%d/status" % proxy.process.pid, encoding="ascii") as status:
            return dict(line.split(":", 1) for line in status)

    # the kernel takes connections as soon as it listens, which is before the user changes
    wait_for(lambda: set(ids()["Uid"].split()) == {str(proxy.owner.pw_uid)}, "the change of the user")
    lines = ids()
    assert set(lines["Gid"].split()) == {str(proxy.owner.pw_gid)}
    assert "0" not in lines["Groups"].split()
    path = "%s/.s.PGSQL.%d" % (proxy.dir, proxy.port)
    assert pwd.getpwuid(os.stat(path).st_uid).pw_name == proxy.owner.pw_name
    proxy.stop()
    assert not os.path.exists(path)


# --- pid file and background --------------------------------------------------------------------------


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def test_pidfile(program, qbouncer):
    proxy = qbouncer(start=False)
    path = proxy.settings["pidfile"] = os.path.join(proxy.dir, "pid")
    gone = subprocess.Popen(["true"])
    gone.wait()
    proxy._put(path, "%d\n" % gone.pid)
    proxy.start()
    wait_for(lambda: open(path, encoding="ascii").read() == "%d\n" % proxy.process.pid, "the pid file")
    second = run(program, proxy.ini, preexec_fn=proxy.become)
    assert second.returncode == 1 and "is running" in second.stderr
    with open(path, encoding="ascii") as file:
        assert file.read() == "%d\n" % proxy.process.pid
    proxy.stop()
    assert not os.path.exists(path)


def test_pidfile_with_the_number_of_a_stranger(program, qbouncer):
    """Left behind by a crash: the number has gone to another program, which is no reason not to start."""
    proxy = qbouncer(start=False)
    path = proxy.settings["pidfile"] = os.path.join(proxy.dir, "pid")
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            proxy._put(path, "%d\n" % stranger.pid)
            proxy.start()
            wait_for(lambda: open(path, encoding="ascii").read() == "%d\n" % proxy.process.pid, "the pid file")
            assert "process %d, which it names, is another program" % stranger.pid in proxy.log_text()
            proxy.process.kill()
            proxy.process.wait()
            with open(path, encoding="ascii") as file:
                assert file.read() == "%d\n" % proxy.process.pid
            proxy.start()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_daemon(program, qbouncer):
    proxy = qbouncer(start=False)
    proxy.port = free_port()
    proxy.write()
    assert run(program, "-d", proxy.ini, preexec_fn=proxy.become).returncode == 1
    log = os.path.join(proxy.dir, "daemon.log")
    proxy.settings["logfile"] = log
    proxy.write()
    assert "pidfile" in run(program, "-d", proxy.ini, preexec_fn=proxy.become).stderr
    path = proxy.settings["pidfile"] = os.path.join(proxy.dir, "pid")
    proxy.write()
    started = run(program, "-d", proxy.ini, preexec_fn=proxy.become)
    assert started.returncode == 0, started.stderr
    # listening and written before the start returns
    with open(path, encoding="ascii") as file:
        pid = int(file.read())
    socket.create_connection(("127.0.0.1", proxy.port), 5).close()
    assert os.getsid(pid) != os.getsid(0) and os.getsid(pid) != pid
    again = run(program, "-d", proxy.ini, preexec_fn=proxy.become)
    assert again.returncode == 1 and "is running" in again.stderr
    os.kill(pid, signal.SIGQUIT)
    wait_for(lambda: not alive(pid), "the end")
    with open(log, encoding="utf-8") as file:
        text = file.read()
    assert "started" in text and "shutdown: complete" in text and "Sanitizer" not in text
    assert not os.path.exists(path)


def test_daemon_that_cannot_listen(program, qbouncer):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        proxy = qbouncer(start=False)
        proxy.port = taken.getsockname()[1]
        proxy.settings.update(logfile=os.path.join(proxy.dir, "daemon.log"),
                              pidfile=os.path.join(proxy.dir, "pid"))
        proxy.write()
        done = run(program, "-d", proxy.ini, preexec_fn=proxy.become)
        assert done.returncode == 1 and "ddress already in use" in done.stderr


# --- signals ----------------------------------------------------------------------------------------------


def ended(proxy, code=0):
    wait_for(lambda: proxy.process.poll() is not None, "the end")
    assert proxy.process.returncode == code


@pytest.mark.parametrize("signals", [[signal.SIGQUIT], [signal.SIGTERM, signal.SIGTERM],
                                     [signal.SIGINT, signal.SIGINT], [signal.SIGTERM, signal.SIGINT, signal.SIGINT]])
def test_at_once(proxy, db, signals):
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        for n, signo in enumerate(signals):
            proxy.signal(signo)
            proxy.wait_log("(?s)" + ".*".join("got " + s.name for s in signals[:n + 1]))
        ended(proxy)
        c.closed()


def test_shutdown_with_a_waiter(proxy, db):
    """Who waits for a job does not hold up the end."""
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE q")
        c.query("QUEUE TAKE q WAIT '60s'")
        proxy.wait_show("WAITERS", lambda r: r["database"] == db)
        start = time.monotonic()
        proxy.signal(signal.SIGINT)
        assert c.closed()
        ended(proxy)
        assert time.monotonic() - start < 10


def test_hup_opens_the_log_again(qbouncer):
    proxy = qbouncer(start=False)
    log = proxy.settings["logfile"] = os.path.join(proxy.dir, "own.log")
    proxy.start()
    wait_for(lambda: os.path.exists(log), "the log")
    os.rename(log, log + ".1")
    proxy.reload()
    wait_for(lambda: os.path.exists(log) and "in force" in open(log, encoding="utf-8").read(), "the new log")


def test_quiet(qbouncer):
    proxy = qbouncer(start=False)
    proxy.start("-q")
    proxy.wire("qbouncer", "admin").simple("SHOW VERSION")
    assert proxy.log_text() == ""
