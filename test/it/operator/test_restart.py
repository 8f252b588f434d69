"""Restarts that nobody notices: two processes on one port, a takeover, sockets that somebody else keeps."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading

import psycopg
import pytest

from pgwire import cancel, types
from proxy import free_port, running, wait_for
from queuetest import tag, take
from tree import ROOT

PEER = os.path.join(ROOT, "test", "lib", "takeover_peer.py")


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

    def produce(n):
        """Who connects while the old process closes its socket may be reset by the kernel."""
        while True:
            try:
                with psycopg.connect(one.dsn(db), autocommit=True) as conn:
                    conn.execute("QUEUE PUSH q '%d' KEY '%d'" % (n, n))
                return
            except psycopg.OperationalError as e:
                assert e.sqlstate in ("57P01", None), e

    for n in range(1, 21):
        produce(n)
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


def pid_in(proxy):
    try:
        with open(os.path.join(proxy.dir, "pid"), encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return None


def takeover(proxy, *arguments):
    """Starts the next one with -R, until the one before says that it gives; that one."""
    before, mark = proxy.process, len(proxy.log_text())
    proxy._launch("-R", *arguments)
    proxy.wait_log("takeover: process %d takes over" % proxy.process.pid, mark)
    return before


@pytest.fixture
def one(qbouncer):
    proxy = qbouncer(start=False, pidfile="{dir}/pid", metrics_port=free_port(), log_connections="0")
    proxy.start()
    wait_for(lambda: pid_in(proxy) == str(proxy.process.pid), "the pid file")
    return proxy


def test_takeover(one, db):
    """Same files, same port, same unix socket; the client stays connected, and the old process ends."""
    with one.wire(db) as c, one.wire(db) as d:
        backend = c.rows("SELECT pg_backend_pid() AS pid")[0]["pid"]
        c.simple("SET work_mem = '7MB'")
        c.simple("SET application_name = 'me'")
        d.parse("s", "SELECT $1::int + 1 AS n").sync()
        d.until("Z")
        d.parse("q", "QUEUE HELP").sync()
        d.until("Z")
        d.simple("SET DateStyle = 'ISO, DMY'")
        d.parse("month", "SELECT extract(month FROM '01/02/2024'::date)::text").sync()
        d.until("Z")
        d.simple("SET DateStyle = 'ISO, MDY'")
        first = takeover(one)
        ended(first)
        assert pid_in(one) == str(one.process.pid)
        assert {r["id"] for r in one.console("SHOW CLIENTS") if r["database"] == db} and one.pool(db)["cl_active"] == 2
        # the server connection came along
        assert c.rows("SELECT pg_backend_pid() AS pid")[0]["pid"] == backend
        assert c.rows("SHOW work_mem")[0]["work_mem"] == "7MB"
        assert c.rows("SHOW application_name")[0]["application_name"] == "me"
        d.bind("", "s", ["41"]).execute().sync()
        assert [m.text_row for m in d.until("Z") if m.type == "D"] == [["42"]]
        d.bind("", "month").execute().sync() # as it was parsed
        assert [m.text_row for m in d.until("Z") if m.type == "D"] == [["2"]]
        d.bind("", "q", []).execute().sync()
        assert "D" in types(d.until("Z"))
        for host in "127.0.0.1", one.dir:
            with psycopg.connect(one.dsn(db, host=host)) as new:
                assert new.execute("SELECT 1").fetchone() == (1,)
    assert os.path.exists("%s/.s.PGSQL.%d" % (one.dir, one.port))
    assert "Sanitizer" not in one.log_text()


def test_takeover_while_busy(one, db):
    """Who is in a transaction goes when it has ended; until then the old one serves it."""
    with one.wire(db) as c:
        c.simple("BEGIN")
        c.simple("CREATE TEMP TABLE t (a int) ON COMMIT DROP")
        first = takeover(one)
        assert types(c.simple("INSERT INTO t VALUES (1)")) == "CZ"
        assert first.poll() is None
        assert types(c.simple("COMMIT")) == "CZ"
        ended(first)
        assert types(c.simple("SELECT 1")) == "TDCZ"
        assert one.pool(db)["cl_active"] == 1


def test_takeover_behind_a_takeover(one, db, direct):
    """Who could not leave the first process goes through the second one, which stays for that, to the third; its cancel requests come the
    other way."""
    with one.wire(db) as busy, one.wire(db) as sleeping:
        busy.simple("BEGIN")
        busy.simple("SELECT 1")
        sleeping.query("SELECT pg_sleep(60)")
        running(direct)
        first = takeover(one)
        second = takeover(one)
        cancel(sleeping)
        assert [m.sqlstate for m in sleeping.until("Z") if m.type == "E"] == ["57014"]
        assert types(busy.simple("COMMIT")) == "CZ"
        ended(first)
        ended(second)
        assert types(busy.simple("SELECT 1")) == types(sleeping.simple("SELECT 1")) == "TDCZ"
        assert one.pool(db)["cl_active"] == 2


def test_takeover_whose_middle_dies(one, db):
    """The first process does not serve again: the place is that of the third."""
    with one.wire(db) as busy, one.wire(db) as between:
        busy.simple("BEGIN")
        busy.simple("SELECT 1")
        first = takeover(one)
        wait_for(lambda: one.pool(db), "the client that has moved")
        between.simple("BEGIN")
        between.simple("SELECT 1")
        second = takeover(one)
        mark = len(one.log_text())
        second.kill()
        second.wait()
        one.wait_log(r"\[%d\].*takeover: process %d has ended" % (first.pid, second.pid), mark)
        assert pid_in(one) == str(one.process.pid) and "serves again" not in one.log_text()
        assert types(busy.simple("COMMIT")) == "CZ"
    ended(first)
    with one.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_takeover_of_a_session(qbouncer, db, mode):
    """Who has a server of its own takes it along, with all that is there."""
    proxy = qbouncer(pool_mode=mode)
    with proxy.wire(db) as c:
        c.simple("CREATE TEMP TABLE t (a int)")
        c.simple("INSERT INTO t VALUES (7)")
        c.parse("s", "SELECT a FROM t").sync()
        c.until("Z")
        ended(takeover(proxy))
        for _ in range(2):
            assert c.rows("SELECT a FROM t")[0]["a"] == "7"
            c.bind("", "s", []).execute().sync()
            assert [m.text_row for m in c.until("Z") if m.type == "D"] == [["7"]]
        assert proxy.pool(db)["sv_active"] == 1
    # what it had is not the next one's
    wait_for(lambda: proxy.pool(db)["sv_active"] == 0, "the server")
    with proxy.wire(db) as d:
        assert [m.sqlstate for m in d.simple("SELECT a FROM t") if m.type == "E"] == ["42P01"]


def test_takeover_cancel_keys(one, db, direct):
    """A cancel request finds its client where it is, moved or not."""
    with one.wire(db) as c, one.wire(db) as busy:
        c.simple("SELECT 1")
        busy.query("SELECT pg_sleep(60)")
        running(direct)
        first = takeover(one)
        wait_for(lambda: one.pool(db), "the client that has moved")
        cancel(busy)
        assert [m.sqlstate for m in busy.until("Z") if m.type == "E"] == ["57014"]
        ended(first)
        c.query("SELECT pg_sleep(60)")
        running(direct)
        cancel(c)
        assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["57014"]


def test_takeover_of_workers(one, db):
    """A wait ends with zero rows, once, and the worker goes on in the new process; who holds a job finishes it first."""
    with one.wire(db) as w, one.wire(db) as holder, one.wire(db) as q:
        q.simple("QUEUE CREATE q")
        q.simple("QUEUE PUSH q '1'")
        job = holder.rows("QUEUE TAKE q LEASE '10min'")[0]["id"]
        w.query("QUEUE TAKE q WAIT '10min'")
        one.wait_show("WAITERS", lambda r: r["database"] == db)
        first = takeover(one)
        assert [m.tag for m in w.until("Z") if m.type == "C"] == ["SELECT 0"]
        w.query("QUEUE TAKE q WAIT '10min'")
        one.wait_show("WAITERS", lambda r: r["database"] == db)
        assert first.poll() is None
        q.simple("QUEUE PUSH q '2'")
        assert w.until("Z")[1].type == "D"
        assert [m.tag for m in holder.simple("QUEUE DONE %s" % job) if m.type == "C"] == ["UPDATE 1"]
        ended(first)
        assert [m.tag for m in holder.simple("QUEUE TAKE q") if m.type == "C"] == ["SELECT 0"]


def test_takeover_while_jobs_cannot_be_given_back(one, cluster, db, direct):
    """Of a client that is gone, from a table that somebody has locked: the next process gives them back."""
    with psycopg.connect(cluster.dsn(db, "postgres")) as locker:
        with one.wire(db) as c:
            tag(c, "QUEUE CREATE q")
            tag(c, "QUEUE PUSH q '1'")
            assert take(c, "QUEUE TAKE q LEASE '10min'")["payload"] == "1"
            locker.execute("LOCK TABLE queue.q_q IN SHARE MODE")
            c.reset()
        wait_for(lambda: direct.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall(), "it to be asked for")
        ended(takeover(one))
        assert direct.execute("SELECT state FROM queue.q_q").fetchall() == [("leased",)]
    with one.wire(db) as c:
        assert take(c, "QUEUE TAKE q WAIT '30 s'")["payload"] == "1"


@pytest.mark.parametrize("stream", [False, True])
def test_takeover_of_done_then_take(one, db, stream):
    """The DONE holds, the TAKE ends with zero rows, and what comes is not given to the process that goes."""
    take = "QUEUE TAKE q" + (" FOR a" if stream else "")
    with one.wire(db) as w, one.wire(db) as q:
        q.simple("QUEUE CREATE q" + (" WITH (kind = stream)" if stream else ""))
        if stream:
            q.simple("QUEUE SUBSCRIBE a TO q")
        q.simple("QUEUE PUSH q '1'")
        token = w.rows(take)[0]["token"]
        w.query("QUEUE DONE '%s' THEN %s WAIT '10min'" % (token, take[len("QUEUE "):]))
        one.wait_show("WAITERS", lambda r: r["database"] == db)
        first = takeover(one)
        assert [m.tag for m in w.until("Z") if m.type in "CE"] == ["SELECT 0"]
        ended(first)
        assert [m.sqlstate for m in w.simple("QUEUE DONE '%s'" % token) if m.type == "E"] == ["QB001"]  # what the other one has heard
        q.simple("QUEUE PUSH q '2'")
        rows = w.rows(take)
        assert [r["payload"] for r in rows] == ["2"]
        assert [m.tag for m in w.simple("QUEUE DONE '%s'" % rows[0]["token"]) if m.type == "C"] == ["UPDATE 1"]
        assert w.rows(take) == []


def test_takeover_beside_another_proxy(one, qbouncer, db):
    """Who waits there is told of what is pushed to the new one at once; a worker whom the old one still serves loses nothing."""
    beside = qbouncer(queue_orphan_grace="500ms")
    with one.wire(db) as c, one.wire(db) as worker, beside.wire(db) as waits:
        c.simple("QUEUE INSTALL")
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        job = take(worker)
        waits.query("QUEUE TAKE mail WAIT '60s'")
        for proxy in one, beside:
            proxy.wait_log("system session is up")
        first = takeover(one)
        tag(c, "QUEUE PUSH mail '2'")
        assert types(waits.until("Z")) == "TDCZ"
        assert tag(worker, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
        ended(first)
        beside.wait_log("another proxy is gone")
        assert waits.rows("SELECT state, payload, failures FROM queue.q_mail") == [{"state": "leased", "payload": "2", "failures": "0"}]
        assert types(worker.simple("SELECT 1")) == "TDCZ"


def test_takeover_while_what_the_role_owns_is_dropped(one, cluster, db):
    """Who waits, who has a job, and who is in a transaction: each hears of it in its own time, and goes to the new one."""
    with one.wire(db) as waits, one.wire(db) as worker, one.wire(db) as busy:
        waits.simple("QUEUE INSTALL")
        tag(waits, "QUEUE CREATE mail")
        tag(busy, "QUEUE PUSH mail '1'")
        assert types(worker.simple("QUEUE TAKE mail HOLD")) == "TDCZ"
        busy.simple("BEGIN")
        busy.simple("SELECT 1")
        waits.query("QUEUE TAKE mail WAIT '60s'")
        first = takeover(one)
        cluster.psql("DROP OWNED BY app CASCADE", db)
        assert "E" in types(busy.simple("QUEUE PUSH mail '2'"))
        busy.simple("ROLLBACK")
        assert waits.until("Z")[-1].type == "Z"
        worker.terminate()
        ended(first)
        for c in busy, waits:
            assert types(c.simple("SELECT 1")) == "TDCZ"
            assert "E" in types(c.simple("QUEUE TAKE mail"))
    assert "invariant" not in one.log_text() and "Sanitizer" not in one.log_text()


def test_takeover_under_load(one, db):
    """Clients that connect, ask and leave, and clients that stay: none sees an error."""
    stop, problems, counts = threading.Event(), [], []

    def stays(prepare):
        with psycopg.connect(one.dsn(db), autocommit=True, prepare_threshold=0 if prepare else None) as c:
            n = 0
            while not stop.is_set():
                with c.transaction():
                    assert c.execute("SELECT %s::int + 1", (n,)).fetchone() == (n + 1,)
                assert c.execute("SELECT 1").fetchone() == (1,)
                n += 1
            counts.append(n)

    def comes():
        while not stop.is_set():
            with psycopg.connect(one.dsn(db), autocommit=True) as c:
                assert c.execute("SELECT 1").fetchone() == (1,)

    def guarded(fn, *arguments):
        try:
            fn(*arguments)
        except Exception as e:  # whatever a driver may make of it
            problems.append(repr(e))

    threads = [threading.Thread(target=guarded, args=a, daemon=True)
               for a in [(stays, True), (stays, True), (stays, False), (stays, False), (comes,), (comes,)]]
    for t in threads:
        t.start()
    for _ in range(3):
        ended(takeover(one))
    stop.set()
    for t in threads:
        t.join(30)
    assert not problems and len(counts) == 4


def test_takeover_of_many(one, db):
    """More connections than the channel takes at once, with names prepared and input that is half here."""
    clients = [one.wire(db) for _ in range(60)]
    for n, c in enumerate(clients):
        c.parse("s%d" % n, "SELECT %d, $1::text /* %s */" % (n, "x" * 3000)).sync()
        c.until("Z")
        c.sock.sendall(b"Q\0\0")
    ended(takeover(one))
    for n, c in enumerate(clients):
        sql = b"SELECT %d\0" % n
        c.sock.sendall((len(sql) + 4).to_bytes(4, "big")[2:] + sql)
        assert [m.text_row for m in c.until("Z") if m.type == "D"] == [[str(n)]]
        c.bind("", "s%d" % n, ["a"]).execute().sync()
        assert [m.text_row for m in c.until("Z") if m.type == "D"] == [[str(n), "a"]]
        c.close()


def test_takeover_listener_stays(one, db):
    """LISTEN: its notifications come over a session of the old process, which stays for it."""
    with one.wire(db) as c, one.wire(db) as d:
        c.simple("LISTEN news")
        d.simple("SELECT 1")
        first = takeover(one)
        wait_for(lambda: one.pool(db), "the client that has moved")
        d.simple("NOTIFY news, 'x'")
        assert c.until("A")[-1].type == "A"
        assert first.poll() is None
        c.simple("UNLISTEN news")
        ended(first)
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_takeover_scram(qbouncer, db):
    """The keys that logins taught come along: a new server connection is made with them."""
    proxy = qbouncer(auth_type="scram-sha-256")
    with proxy.wire(db, "app", password=proxy.users["app"]) as c:
        c.simple("SELECT 1")
        ended(takeover(proxy))
        proxy.console("RECONNECT")
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_takeover_that_fails_changes_nothing(program, one, db):
    """The one that runs keeps its sockets and its pid file, and its clients."""
    one.settings["logfile"] = "{dir}/nosuchdir/log"
    one.write()
    with one.wire(db) as c:
        run = subprocess.run([program, "-R", one.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=30, check=False, preexec_fn=one.become)
        assert run.returncode == 1 and "nosuchdir" in run.stdout
        one.wait_log("takeover: process .* did not start: nothing has changed")
        for host in "127.0.0.1", one.dir:
            with psycopg.connect(one.dsn(db, host=host)) as new:
                assert new.execute("SELECT 1").fetchone() == (1,)
        assert types(c.simple("SELECT 1")) == "TDCZ"
    assert pid_in(one) == str(one.process.pid) and one.process.poll() is None


def test_takeover_by_one_that_dies(one, db):
    """It had the sockets, and some of the clients: the others, and new ones, are served by the old process again."""
    with one.wire(db) as busy, one.wire(db) as c:
        busy.simple("BEGIN")
        busy.simple("SELECT 1")
        first = takeover(one)
        wait_for(lambda: one.pool(db), "the client that has moved")
        one.kill()
        one.process = first
        one.wait_log("is gone before its time: this one serves again")
        assert c.closed() is not None
        assert types(busy.simple("COMMIT")) == "CZ" and types(busy.simple("SELECT 1")) == "TDCZ"
        for host in "127.0.0.1", one.dir:
            with psycopg.connect(one.dsn(db, host=host)) as new:
                assert new.execute("SELECT 1").fetchone() == (1,)
        wait_for(lambda: pid_in(one) == str(first.pid), "the pid file")
    # and once more
    with one.wire(db) as c:
        c.simple("SELECT 1")
        ended(takeover(one))
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_takeover_is_for_ourselves(one):
    """Not over TCP, not by another unix user, not twice at once, and not in another language."""
    with one.wire("qbouncer", "admin") as c:
        assert [m.sqlstate for m in c.simple("TAKEOVER 3") if m.type == "E"] == ["42501"]
    with psycopg.connect(one.dsn("qbouncer", "admin", host=one.dir), autocommit=True) as c:
        with pytest.raises(psycopg.Error):
            c.execute("TAKEOVER 999")


def test_takeover_of_nobody(qbouncer, db):
    proxy = qbouncer(start=False, pidfile="{dir}/pid")
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


def peer(proxy, *side):
    """takeover_peer.py"""
    return subprocess.Popen([sys.executable, "-c", open(PEER, encoding="utf-8").read(), side[0], proxy.dir, str(proxy.port), *side[1:]],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/tmp", preexec_fn=proxy.become)


def test_takeover_that_is_not_confirmed(program, qbouncer):
    """The one that ran is gone, or deals with another one: the pid file is as it was."""
    proxy = qbouncer(start=False, pidfile="{dir}/pid", listen_addr="127.0.0.1")
    proxy.port = free_port()
    proxy.write()
    path = os.path.join(proxy.dir, "pid")
    proxy._put(path, "1\n")
    with peer(proxy, "old") as before:
        assert before.stdout.readline() == "ready\n"
        run = subprocess.run([program, "-R", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=60, check=False, preexec_fn=proxy.become)
        assert before.stdout.readline() == "R\n"
    assert run.returncode == 1 and "has not handed over" in run.stdout
    assert pid_in(proxy) == "1" and [n for n in os.listdir(proxy.dir) if n.startswith("pid")] == ["pid"]


def test_takeover_server_on_its_way(one, db):
    """The old process ends before the new one has said that it has a server: nothing is said to that."""
    with one.wire(db) as c:
        c.simple("SELECT 1")
    wait_for(lambda: one.pool(db)["sv_idle"] == 1, "the server")
    with peer(one, "new", "S") as after:
        assert after.stdout.readline() == "it came\n"
        ended(one.process)
        assert after.communicate()[0] == "answer T\n"


def test_takeover_client_on_its_way(qbouncer, cluster, db):
    """It has no server, and its pool nobody else: that is kept for its return."""
    there = "host=%s port=%d dbname=%s" % (cluster.socket_dir, cluster.port, db)
    proxy = qbouncer(databases={"a": there, "b": there}, pool_mode="transaction", pool_idle_timeout="1")
    with proxy.wire("a") as c, proxy.wire("b") as d:
        c.simple("SELECT 1")
        d.simple("SELECT 1")
        d.close()
        wait_for(lambda: proxy.pool("a")["sv_idle"] == 1 and proxy.pool("b")["sv_idle"] == 1, "the servers")
        with peer(proxy, "new", "C") as after:
            assert after.stdout.readline() == "it came\n"
            proxy.wait_log("cleaning up idle pool: b/app")
            after.communicate()
        proxy.wait_log("is gone before its time: this one serves again")
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_takeover_suspended_meanwhile(one, db):
    """A client that was sent is not read any more: also not when a SUSPEND is over."""
    with one.wire(db) as c, psycopg.connect(one.dsn("qbouncer", "admin"), autocommit=True) as console:
        c.simple("SELECT 1")
        with peer(one, "new", "C") as after:
            assert after.stdout.readline() == "it came\n"
            console.execute("SUSPEND")
            console.execute("RESUME")
            c.query("SELECT 1")
            # the process that runs has seen whatever was there
            console.execute("SHOW VERSION")
            assert after.communicate("hear")[0] == "heard Q\n"


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_takeover_to_another_place(qbouncer, cluster, db, mode):
    """An entry that names something else in the new file: none of the old connections is given to anybody."""
    there = "host=%s port=%d dbname=%%s" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(databases={"a": there % db}, pool_mode=mode)
    with proxy.wire("a") as c, proxy.wire("a") as d:
        with proxy.wire("a") as e:
            e.simple("SELECT 1")
        assert d.rows("SELECT current_database() AS n")[0]["n"] == db
        proxy.databases["a"] = there % "postgres"
        proxy.write()
        ended(takeover(proxy))
        with proxy.wire("a") as e:
            assert e.rows("SELECT current_database() AS n")[0]["n"] == "postgres"
        # who had none of its own goes where the entry leads
        assert c.rows("SELECT current_database() AS n")[0]["n"] == "postgres"
        # in session pooling a session ends where it began
        assert d.rows("SELECT current_database() AS n")[0]["n"] == (db if mode == "session" else "postgres")


# --- beside the one that runs: it cannot hand over -------------------------------------------------------------


def test_beside(qbouncer, db):
    """Without a unix socket: the new one listens beside it, and tells it to end when its clients have left."""
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid", unix_socket_dir="")
    proxy.start()
    first, mark = proxy.process, len(proxy.log_text())
    wait_for(lambda: pid_in(proxy) == str(first.pid), "the pid file")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy._launch("-R")
        proxy.wait_log("takeover: process %d is told to end" % first.pid, mark)
        told_to_end(proxy, mark)
        assert pid_in(proxy) == str(proxy.process.pid)
        with psycopg.connect(proxy.dsn(db)) as new:
            assert new.execute("SELECT 1").fetchone() == (1,)
        assert first.poll() is None and types(c.simple("SELECT 1")) == "TDCZ"
    ended(first)


@pytest.mark.parametrize("missing", ["pidfile", "so_reuseport"])
def test_beside_says_what_it_needs(program, qbouncer, missing):
    proxy = qbouncer(start=False, so_reuseport="1", pidfile="{dir}/pid", unix_socket_dir="")
    del proxy.settings[missing]
    proxy.port = free_port()
    proxy.write()
    run = subprocess.run([program, "-R", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=30, check=False, preexec_fn=proxy.become)
    assert run.returncode == 1 and missing in run.stdout


def test_beside_one_without_so_reuseport(program, qbouncer):
    proxy = qbouncer(pidfile="{dir}/qb.pid", unix_socket_dir="")
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
