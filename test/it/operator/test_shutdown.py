"""The three ends of pgbouncer: SIGTERM, SIGINT, SIGQUIT, and what is told to whom in each."""

import os
import signal
import threading

import psycopg
import pytest

from pgwire import Closed, Wire, types
from proxy import wait_for


def ended(proxy):
    wait_for(lambda: proxy.process.poll() is not None, "the end", 30)
    assert proxy.process.returncode == 0


def begun(proxy, how):
    proxy.wait_log("shutdown: when the %s" % how)


def unix(proxy, database, user="app"):
    return psycopg.connect(proxy.dsn(database, user, host=proxy.dir), autocommit=True)


@pytest.mark.parametrize("signo, mode", [(signal.SIGTERM, "transaction"), (signal.SIGINT, "transaction"),
                                         (signal.SIGINT, "session")], ids=lambda x: getattr(x, "name", x))
def test_worker_that_loops_is_sent_away(qbouncer, db, signo, mode):
    """Its wait ends with zero rows, once, and the goodbye stands behind them: it never gets to ask again."""
    proxy = qbouncer(pool_mode=mode)
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE q")
    empty, codes = [], []

    def worker():
        with proxy.wire(db) as w:
            w.simple("SELECT 1")
            while True:
                # all in one packet: what stands behind the first is not begun either
                w.hold().query("QUEUE TAKE q WAIT '10min'").query("QUEUE TAKE q WAIT '10min'").push()
                got = w.closed()
                empty.append([m.tag for m in got if m.type == "C"])
                codes.append([m.sqlstate for m in got if m.type == "E"])
                return

    workers = [threading.Thread(target=worker) for _ in range(3)]
    for w in workers:
        w.start()
    for _ in workers:
        wait_for(lambda: len([r for r in proxy.console("SHOW WAITERS") if r["database"] == db]) == 3, "the waiters")
    proxy.signal(signo)
    for w in workers:
        w.join(20)
    assert empty == [["SELECT 0"]] * 3 and codes == [["57P01"]] * 3
    ended(proxy)


def test_ends_while_clients_are_busy(proxy, db):
    """Nobody begins another transaction, so that it ends when those under way have."""
    codes = []

    def busy():
        with psycopg.connect(proxy.dsn(db), autocommit=True) as c:
            try:
                while True:
                    with c.transaction():
                        c.execute("SELECT 1")
                        c.execute("SELECT 2")
            except psycopg.Error as e:
                codes.append(e.sqlstate)

    threads = [threading.Thread(target=busy) for _ in range(6)]
    for t in threads:
        t.start()
    wait_for(lambda: (proxy.pool(db) or {"cl_active": 0})["cl_active"] >= 6 or codes, "the clients")
    proxy.signal(signal.SIGINT)
    for t in threads:
        t.join(30)
    ended(proxy)
    # who was between two statements of libpq may find the connection closed
    assert len(codes) == 6 and set(codes) <= {"57P01", None}


@pytest.mark.parametrize("command", ["SHUTDOWN WAIT_FOR_SERVERS", "SHUTDOWN WAIT_FOR_CLIENTS"])
def test_console_and_unix_socket_stay(proxy, db, command):
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        with proxy.wire("qbouncer", "admin") as console:
            console.simple(command)
            begun(proxy, "servers" if "SERVERS" in command else "clients")
            assert types(console.simple("SHOW POOLS")).endswith("CZ")
            with pytest.raises(ConnectionRefusedError):
                Wire(proxy.port)
            with unix(proxy, "qbouncer", "admin") as other:
                assert other.execute("SHOW STATE").fetchall()
            with pytest.raises(psycopg.OperationalError, match="shutting down"):
                unix(proxy, db)
            assert types(c.simple("SELECT 2")) == "TDCZ"
            assert [m.tag for m in c.simple("COMMIT") if m.type == "C"] == ["COMMIT"]
            if "CLIENTS" in command:
                c.terminate()
            ended(proxy)
    assert not os.path.exists("%s/.s.PGSQL.%d" % (proxy.dir, proxy.port))


def test_who_reads_slowly_gets_the_whole_answer(qbouncer, db):
    """The proxy has it already, and the jobs are taken. The goodbye stands behind it."""
    jobs, size = 8, 1_000_000
    proxy = qbouncer()
    with proxy.wire(db) as c, Wire(proxy.port, rcvbuf=4096) as slow:
        c.simple("QUEUE CREATE q WITH (payload = text)")
        c.simple("QUEUE PUSH q " + ", ".join(["'%s'" % ("x" * size)] * jobs))
        slow.startup(user="app", database=db)
        slow.query("QUEUE TAKE q LIMIT %d" % jobs)
        wait_for(lambda: any(int(r["send_avail"]) > size for r in proxy.console("SHOW SOCKETS")), "an answer that is not read")
        proxy.signal(signal.SIGINT)
        begun(proxy, "servers")
        got = slow.closed()
    assert [b"x" * size in m.row for m in got if m.type == "D"] == [True] * jobs
    assert [m.tag for m in got if m.type == "C"] == ["SELECT %d" % jobs]
    assert [m.sqlstate for m in got if m.type == "E"] == ["57P01"]
    ended(proxy)


def test_who_waits_is_told(qbouncer, db):
    proxy = qbouncer(default_pool_size="1", reserve_pool_size="0")
    with proxy.wire(db) as c, proxy.wire(db) as waits:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        waits.query("SELECT 2")
        wait_for(lambda: proxy.pool(db)["cl_waiting"] == 1, "the client that waits")
        proxy.signal(signal.SIGINT)
        got = waits.closed()
        assert [m.sqlstate for m in got if m.type == "E"] == ["57P01"] and "D" not in types(got)
        proxy.wait_log("closing because: server shutting down")
        c.simple("COMMIT")
        ended(proxy)


def test_session_pooling_lets_clients_finish(qbouncer, db):
    """Who has a server has it until it leaves; who is idle without one is sent away."""
    proxy = qbouncer(pool_mode="session")
    with proxy.wire(db) as c, proxy.wire(db) as idle:
        c.simple("SELECT 1")
        proxy.signal(signal.SIGINT)
        assert idle.closed()[-1].sqlstate == "57P01"
        for n in range(3):
            assert types(c.simple("SELECT %d" % n)) == "TDCZ"
        assert proxy.process.poll() is None
        c.terminate()
        ended(proxy)


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_jobs_held_are_given_back(qbouncer, db, direct, signo):
    """What a connection holds with HOLD is ready again before the process is gone."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE q")
        c.simple("QUEUE PUSH q '1'")
        assert len(c.rows("QUEUE TAKE q HOLD '10min'")) == 1
        proxy.signal(signo)
        if signo == signal.SIGTERM:
            begun(proxy, "clients")
            c.close()
        else:
            assert c.closed()[-1].sqlstate == "57P01"
        ended(proxy)
    assert direct.execute("SELECT state FROM queue.q_q").fetchall() == [("ready",)]


def test_jobs_held_are_given_back_over_a_new_connection(qbouncer, db, direct):
    """Who is sent away leaves work behind: the end waits for it, though no server is there to begin it at once."""
    proxy = qbouncer(server_lifetime="0") # each is closed when it has been used
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE q")
        c.simple("QUEUE PUSH q '1'")
        assert len(c.rows("QUEUE TAKE q HOLD '10min'")) == 1
        proxy.wait_pool(db, sv_idle=0, sv_active=0)
        proxy.signal(signal.SIGINT)
        assert c.closed()[-1].sqlstate == "57P01"
        ended(proxy)
    assert direct.execute("SELECT state FROM queue.q_q").fetchall() == [("ready",)]


def test_pushes_under_way_are_answered(proxy, db, direct):
    """What was acknowledged is there, and nothing that was not, whatever the moment."""
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE q")
    told = []

    def pusher(n):
        with proxy.wire(db) as c:
            for i in range(100000):
                c.query("QUEUE PUSH q '%d'" % (n * 100000 + i))
                if "C" in types(c.until("Z")):
                    told.append(n * 100000 + i)

    threads = [threading.Thread(target=lambda n=n: quiet(pusher, n)) for n in range(4)]
    for t in threads:
        t.start()
    wait_for(lambda: len(told) > 50, "some pushes")
    proxy.signal(signal.SIGINT)
    for t in threads:
        t.join(30)
    ended(proxy)
    there = {int(r[0]) for r in direct.execute("SELECT payload #>> '{}' FROM queue.q_q").fetchall()}
    assert there == set(told)


def quiet(fn, *arguments):
    try:
        fn(*arguments)
    except (OSError, Closed):
        pass


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_jobs_that_cannot_be_given_back(qbouncer, cluster, db, direct, signo):
    """Of a client that is gone, from a table that somebody has locked: the end does not wait for that, and another proxy gives
    them back."""
    proxy = qbouncer()
    with psycopg.connect(cluster.dsn(db, "postgres")) as locker:
        with proxy.wire(db) as c:
            c.simple("QUEUE CREATE q")
            c.simple("QUEUE PUSH q '1'")
            assert len(c.rows("QUEUE TAKE q LEASE '10min'")) == 1
            locker.execute("LOCK TABLE queue.q_q IN SHARE MODE")
            c.reset()
        wait_for(lambda: direct.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall(), "it to be asked for")
        proxy.signal(signo)
        ended(proxy)
        assert direct.execute("SELECT state FROM queue.q_q").fetchall() == [("leased",)]
    with qbouncer(queue_orphan_grace="100ms").wire(db) as c:
        c.query("QUEUE TAKE q WAIT '30 s'")
        assert [m.type for m in c.until("Z", skip="S") if m.type == "D"] == ["D"]
