"""Restarts that nobody notices: two processes on one port, a takeover, sockets that somebody else keeps."""

import fcntl
import os
import signal
import socket
import subprocess
import threading

import psycopg
import pytest

from pgwire import cancel, types
from proxy import free_port, wait_for
from test_cancel import running


def told_to_end(proxy, mark=0):
    proxy.wait_log("shutdown: when the clients have left", mark)


def ended(process):
    wait_for(lambda: process.poll() is not None, "the end of the old process", 30)
    assert process.returncode == 0


@pytest.fixture
def pair(qbouncer):
    """Starts the first, then the second process on one port; each has a unix socket where peers find it."""
    port = free_port()
    both = [qbouncer(start=False, listen_port=str(port), so_reuseport="1", peer_id=n, queue_heartbeat="20ms")
            for n in (1, 2)]
    for proxy in both:
        proxy.sections = "[peers]\n" + "".join("%d = host=%s port=%d\n" % (n, p.dir, port) for n, p in enumerate(both, 1))
    left = iter(both)
    return lambda: next(left).start()


def test_waiting_clients_go_to_the_new_one(pair, db):
    """Zero rows, then 57P01 once idle. Who holds a job finishes it on the old one."""
    one = pair()
    with one.wire(db) as c:
        c.simple("QUEUE CREATE q")
    waiting, holding, busy = one.wire(db), one.wire(db), one.wire(db)
    busy.simple("QUEUE PUSH q '1'")
    job = holding.rows("QUEUE TAKE q LEASE '10min'")[0]["id"]
    waiting.query("QUEUE TAKE q WAIT '10min'")
    one.wait_show("WAITERS", lambda r: r["database"] == db)
    busy.simple("BEGIN")
    two = pair()
    one.signal(signal.SIGTERM)
    told_to_end(one)
    assert [m.tag for m in waiting.until("Z") if m.type == "C"] == ["SELECT 0"]
    assert waiting.closed()[-1].sqlstate == "57P01"
    # new connections come to the new process
    with one.wire(db) as c:
        assert two.pool(db)["cl_active"] == 1
        assert types(c.simple("SELECT 1")) == "TDCZ"
    # the others go on, as long as they like
    assert types(busy.simple("SELECT 1")) == "TDCZ" and types(busy.simple("COMMIT")) == "CZ"
    assert [m.tag for m in holding.simple("QUEUE DONE %s" % job) if m.type == "C"] == ["UPDATE 1"]
    # now it holds nothing, and waits elsewhere
    assert [m.tag for m in holding.simple("QUEUE TAKE q WAIT '10min'") if m.type == "C"] == ["SELECT 0"]
    assert holding.closed()[-1].sqlstate == "57P01"
    assert one.process.poll() is None
    busy.close()
    ended(one.process)
    with two.wire(db) as c:
        assert [m.tag for m in c.simple("QUEUE TAKE q") if m.type == "C"] == ["SELECT 0"]


def test_job_of_one_who_waits_stays_leased(pair, db):
    """A worker that holds a job waits on for the next one."""
    one = pair()
    with one.wire(db) as c:
        c.simple("QUEUE CREATE q")
        c.simple("QUEUE PUSH q '1'")
        job = c.rows("QUEUE TAKE q LEASE '10min'")[0]["id"]
        c.query("QUEUE TAKE q WAIT '10min'")
        one.wait_show("WAITERS", lambda r: r["database"] == db)
        two = pair()
        one.signal(signal.SIGTERM)
        told_to_end(one)
        with two.wire(db) as d:
            d.simple("QUEUE PUSH q '2'")
            assert c.until("Z")[1].text_row[0] != job
            assert d.simple("QUEUE TAKE q")[1].tag == "SELECT 0"
        assert c.simple("QUEUE DONE %s" % job)[0].tag == "UPDATE 1"


def test_cancel_request_finds_the_old_one(pair, db, direct):
    one = pair()
    with one.wire(db) as c:
        c.query("SELECT pg_sleep(60)")
        running(direct)
        pair()
        one.signal(signal.SIGTERM)
        told_to_end(one)
        cancel(c)
        assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["57014"]


def test_nothing_is_lost(pair, db):
    """Workers and a producer that connect again when they are told to; the process changes under them."""
    one = pair()
    with one.wire(db) as c:
        c.simple("QUEUE CREATE q")
    done, stop, problems = [], threading.Event(), []

    def worker():
        while not stop.is_set():
            try:
                with psycopg.connect(one.dsn(db), autocommit=True) as conn:
                    while not stop.is_set():
                        for row in conn.execute("QUEUE TAKE q WAIT '5s'").fetchall():
                            conn.execute("QUEUE DONE %s" % row[0])
                            done.append(row[4])
            except psycopg.OperationalError as e:
                if e.sqlstate not in ("57P01", None):
                    problems.append(e)
            except psycopg.Error as e:
                problems.append(e)

    workers = [threading.Thread(target=worker) for _ in range(4)]
    for w in workers:
        w.start()
    one.wait_show("WAITERS", lambda r: r["database"] == db)
    for n in range(1, 21):
        with psycopg.connect(one.dsn(db), autocommit=True) as conn:
            conn.execute("QUEUE PUSH q '%d'" % n)
        if n == 10:
            two = pair()
            one.signal(signal.SIGTERM)
    ended(one.process)
    wait_for(lambda: len(done) == 20, "all jobs")
    stop.set()
    for n in range(4):
        with psycopg.connect(two.dsn(db), autocommit=True) as conn:
            conn.execute("QUEUE PUSH q '0'")
    for w in workers:
        w.join(20)
    assert not problems and sorted(d for d in done if d) == list(range(1, 21))


def test_idle_clients_are_sent_to_the_new_one(pair, db):
    """SIGINT: who is idle connects again, who is in a transaction ends it first."""
    one = pair()
    idle, busy = one.wire(db), one.wire(db)
    busy.simple("BEGIN")
    busy.simple("SELECT 1")
    pair()
    one.signal(signal.SIGINT)
    assert idle.closed()[-1].sqlstate == "57P01"
    assert types(busy.simple("SELECT 2")) == "TDCZ"
    busy.simple("COMMIT")
    assert busy.closed()[-1].sqlstate == "57P01"
    ended(one.process)


# --- takeover --------------------------------------------------------------------------------------------


def test_takeover(qbouncer, db):
    """qbouncer -R beside the one that runs: same files, same port, same unix socket."""
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid", metrics_port=free_port())
    proxy.start()
    first, mark = proxy.process, len(proxy.log_text())
    path = os.path.join(proxy.dir, "pid")
    pid = lambda: open(path, encoding="ascii").read().strip()
    wait_for(lambda: os.path.exists(path) and pid() == str(first.pid), "the pid file")
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        proxy._launch("-R")
        proxy.wait_log("takeover: process %d" % first.pid, mark)
        told_to_end(proxy, mark)
        assert pid() == str(proxy.process.pid)
        for host in "127.0.0.1", proxy.dir:
            with psycopg.connect(proxy.dsn(db, host=host)) as new:
                assert new.execute("SELECT 1").fetchone() == (1,)
        assert first.poll() is None and types(c.simple("COMMIT")) == "CZ"
    ended(first)
    # what it removes at its end is not ours
    assert os.path.exists("%s/.s.PGSQL.%d" % (proxy.dir, proxy.port)) and pid() == str(proxy.process.pid)
    with psycopg.connect(proxy.dsn(db, host=proxy.dir)) as new:
        assert new.execute("SELECT 1").fetchone() == (1,)
    assert not os.path.exists("%s/.s.PGSQL.%d.new" % (proxy.dir, proxy.port))
    assert "Sanitizer" not in proxy.log_text()


def test_takeover_that_fails_changes_nothing(program, qbouncer, db):
    """The one that runs keeps the unix socket's name and its pid file."""
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid")
    proxy.start()
    path = os.path.join(proxy.dir, "pid")
    pid = lambda: open(path, encoding="ascii").read().strip()
    wait_for(lambda: os.path.exists(path) and pid() == str(proxy.process.pid), "the pid file")
    proxy.settings["logfile"] = "{dir}/nosuchdir/log"
    proxy.write()
    run = subprocess.run([program, "-R", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=30, check=False, preexec_fn=proxy.become)
    assert run.returncode == 1 and "nosuchdir" in run.stdout
    with psycopg.connect(proxy.dsn(db, host=proxy.dir)) as c:
        assert c.execute("SELECT 1").fetchone() == (1,)
    assert not os.path.exists("%s/.s.PGSQL.%d.new" % (proxy.dir, proxy.port))
    assert pid() == str(proxy.process.pid) and proxy.process.poll() is None


def test_takeover_of_nobody(qbouncer, db):
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid")
    proxy.start("-R")
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("lives", [True, False])
def test_takeover_of_a_stranger(qbouncer, db, lives):
    """A pid file that a crash left behind names a process that is not ours: it is not told to end."""
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid")
    path = os.path.join(proxy.dir, "pid")
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            if not lives:
                stranger.kill()
                stranger.wait()
            proxy._put(path, "%d\n" % stranger.pid)
            with open(path, encoding="ascii") as watched:
                # anybody may hold it who may read it
                fcntl.lockf(watched, fcntl.LOCK_SH)
                proxy.start("-R")
                wait_for(lambda: open(path, encoding="ascii").read() == "%d\n" % proxy.process.pid, "the pid file")
                with proxy.wire(db) as c:
                    assert types(c.simple("SELECT 1")) == "TDCZ"
            assert "takeover" not in proxy.log_text()
            assert (stranger.poll() is None) == lives
        finally:
            stranger.kill()


def test_second_takeover(qbouncer, db):
    """The one that took over is taken over from, and a takeover that failed does not change whom the file names."""
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid")
    proxy.start()
    for _ in range(2):
        before, mark = proxy.process, len(proxy.log_text())
        proxy._launch("-R")
        proxy.wait_log("takeover: process %d" % before.pid, mark)
        ended(before)
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("missing", ["pidfile", "so_reuseport"])
def test_takeover_says_what_it_needs(program, qbouncer, missing):
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid")
    del proxy.settings[missing]
    proxy.port = free_port()
    proxy.write()
    run = subprocess.run([program, "-R", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=30, check=False, preexec_fn=proxy.become)
    assert run.returncode == 1 and missing in run.stdout


def test_takeover_from_one_without_so_reuseport(program, qbouncer):
    proxy = qbouncer(pidfile="{dir}/qb.pid")
    proxy.settings["so_reuseport"] = "1"
    proxy.write()
    run = subprocess.run([program, "-R", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=60, check=False, preexec_fn=proxy.become)
    assert run.returncode == 1 and "Address already in use (who is there" in run.stdout and "so_reuseport" in run.stdout


# --- sockets that somebody else keeps -------------------------------------------------------------------------


def activated(proxy, listener):
    """Starts it as systemd would, with the socket as descriptor 3."""
    def child():
        os.dup2(listener.fileno(), 3)
        proxy.become()

    script = 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"'
    with open(proxy.log_file, "ab") as log:
        return subprocess.Popen(["sh", "-c", script, proxy.program, proxy.ini], stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, cwd=proxy.dir, preexec_fn=child, pass_fds=(3,))


@pytest.mark.parametrize("more", [{"unix_socket_dir": ""}, {"unix_socket_dir": "", "listen_addr": ""}], ids=["addr", "nothing"])
def test_socket_activation(qbouncer, db, more):
    """Who connects while nobody serves waits, and is not refused. The settings may name nothing to listen on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        proxy = qbouncer(start=False, **more)
        proxy.port = listener.getsockname()[1]
        proxy.write()
        proxy.process = activated(proxy, listener)
        with proxy.wire(db) as c:
            assert types(c.simple("SELECT 1")) == "TDCZ"
        first = proxy.process
        first.send_signal(signal.SIGINT)
        ended(first)
        with proxy.wire() as c:
            c.startup(user="app", database=db, wait=False)
            proxy.process = activated(proxy, listener)
            c.until("Z")
            assert types(c.simple("SELECT 1")) == "TDCZ"
