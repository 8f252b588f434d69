"""Nothing of one client reaches another, and one client cannot hold the proxy: leaks of settings and
data between the clients of a pool, pipelines without end, clients that do not read.

Environment: QB_STRESS_SECONDS (5)."""

import os
import random
import socket
import struct
import threading
import time

import pytest

from pgwire import Closed, PgError, Wire, cancel, types
from proxy import wait_for

SECONDS = float(os.environ.get("QB_STRESS_SECONDS", "5"))


class Worker(threading.Thread):
    """A client that asks for values only it knows, in all the ways there are."""

    def __init__(self, proxy, db, seed, until):
        super().__init__()
        self.proxy, self.db, self.until = proxy, db, until
        self.rng = random.Random(seed)
        self.wire = None
        self.seen = self.count = 0
        self.mine = ""
        self.problem = None

    def nonce(self):
        self.count += 1
        return "n%d-%d" % (id(self), self.count)

    def check(self, expected, messages):
        """Each row is one of ours, in our order."""
        got = [m.row[0].decode() for m in messages if m.type == "D"]
        wanted = iter(expected)
        for value in got:
            assert value.startswith("n%d-" % id(self)), "the answer of somebody else: %r" % value
            assert value in wanted, "out of order: %r in %r" % (got, expected)
        self.seen += len(got)

    def one(self):
        w, rng = self.wire, self.rng
        kind = rng.randrange(10)
        if kind >= 6:
            self.session_state(kind)
            return
        nonces = [self.nonce() for _ in range(rng.randrange(1, 6))]
        if kind == 0:
            self.check(nonces[:1], w.simple("SELECT '%s'" % nonces[0]))
            return
        if kind == 1:
            w.hold()
            for n in nonces:
                w.query("SELECT '%s'%s" % (n, ", 1/0" if rng.random() < 0.1 else ""))
            w.push()
            for _ in nonces:
                self.check(nonces, w.until("Z"))
            return
        if kind == 2:
            w.simple("BEGIN")
            self.check(nonces[:1], w.simple("SELECT '%s', pg_sleep(%s)" % (nonces[0], rng.choice(["0", "0.01"]))))
            w.simple(rng.choice(["COMMIT", "ROLLBACK"]))
            return
        name = rng.choice(["", "s"])
        w.hold()
        if name:
            w.close_object("S", name)
        w.parse(name, "SELECT $1::text" + (", pg_sleep(0.005)" if kind == 3 else ""))
        for n in nonces:
            w.bind("", name, ["x" * 20000 + n if kind == 4 else n]).execute()
            if rng.random() < 0.05:
                w.bind("", "nosuch")
        w.sync().push()
        rows = w.until("Z")
        if kind == 4:
            assert all(m.row[0].endswith(n.encode()) for m, n in zip([m for m in rows if m.type == "D"], nonces))
        else:
            self.check(nonces, rows)

    def row(self, sql):
        """The only value of a statement that has to succeed: who fails begins a new session."""
        got = self.wire.simple(sql)
        if [m for m in got if m.type == "E"]:
            raise Closed()
        return [m.text_row[0] for m in got if m.type == "D"]

    def session_state(self, kind):
        """Settings, temporary tables, locks and notifications: each has its own, and finds it again."""
        nonce, key = self.nonce(), id(self) % 1000003
        if kind == 6:
            end = self.rng.choice(["", "COMMIT", "ROLLBACK"])
            self.row("%sSET app.mine = '%s'; SET work_mem = '%dkB'" % ("BEGIN; " if end else "", nonce, 1000 + key % 1000))
            if end:
                self.row(end)
            if end != "ROLLBACK":
                self.mine = nonce
        elif kind == 7:
            self.row("CREATE TEMP TABLE mine AS SELECT '%s' AS v" % nonce)
            assert self.row("SELECT v FROM mine") == [nonce]
            self.row("DROP TABLE mine")
        elif kind == 8:
            assert self.row("SELECT pg_try_advisory_lock(%d)" % key) == ["t"], "somebody else has its lock"
            assert self.row("SELECT pg_advisory_unlock(%d)" % key) == ["t"]
        else:
            self.row("LISTEN n%d" % id(self))
            self.row("NOTIFY n%d, '%s'" % (id(self), nonce))
        assert self.row("SELECT coalesce(current_setting('app.mine', true), '')") == [self.mine], "somebody else's setting"
        self.seen += 1

    def at_rest(self):
        """No answer that nobody has asked for; notifications are its own."""
        for m in self.wire.log:
            assert m.type != "A" or b"n%d" % id(self) in m.body, m
        assert b"Z\0\0\0\5" not in bytes(self.wire.data), "a ReadyForQuery too many"

    def mishap(self):
        chance = self.rng.random()
        if chance < 0.02:
            self.wire.raw(b"Q" + struct.pack("!i", 1000) + b"SELECT '" + self.nonce().encode())
            self.wire.reset()
            self.wire = None
        elif chance < 0.04:
            self.wire.query("SELECT pg_sleep(0.05), '%s'" % self.nonce()).close()
            self.wire = None
        elif chance < 0.08:
            self.wire.query("SELECT pg_sleep(0.02)::text || '%s'" % self.nonce())
            cancel(self.wire)
            self.wire.until("Z")

    def run(self):
        try:
            while time.monotonic() < self.until:
                try:
                    if self.wire is None:
                        self.mine = ""
                        self.wire = Wire(self.proxy.port).startup(user="app", database=self.db)
                    self.one()
                    self.at_rest()
                    self.mishap()
                except socket.timeout:
                    raise
                except (Closed, PgError, OSError):
                    self.wire = None
        except Exception as e:  # pylint: disable=broad-except
            self.problem = e
        if self.wire:
            self.wire.close()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_answers_reach_who_asked(qbouncer, direct, db, mode):
    proxy = qbouncer(pool_mode=mode, default_pool_size=3, max_prepared_statements=4)
    until = time.monotonic() + SECONDS
    workers = [Worker(proxy, db, n, until) for n in range(3 if mode == "session" else 8)]
    for w in workers:
        w.start()
    while time.monotonic() < until:
        workers[0].join(0.3)  # the pace of the kills; it ends with the test
        direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' ORDER BY random() LIMIT 1")
    for w in workers:
        w.join(60)
    problems = [repr(w.problem) for w in workers if w.problem]
    assert not problems, problems
    assert sum(w.seen for w in workers) > 50
    wait_for(lambda: answers(proxy, db), "an answer after the last kill")


def answers(proxy, db):
    try:
        with proxy.wire(db) as c:
            return types(c.simple("SELECT 1")) == "TDCZ"
    except Closed:  # the last kill may come as late as this
        return False


def test_pipeline_without_end(proxy, db):
    """100 000 statements in one batch, read only afterwards: memory stays, the order holds."""
    n = 100000
    with proxy.wire(db) as c:
        c.sock.settimeout(60)
        message = Wire.__new__(Wire).hold()
        message.parse("", "SELECT 1").bind().execute()
        before = proxy.rss_kib()
        sender = threading.Thread(target=c.sock.sendall, args=(bytes(message.held) * (n // 3) + b"S\0\0\0\4",))
        sender.start()
        rows = sum(1 for m in c.until("Z") if m.type == "D")
        sender.join()
        assert rows == n // 3
        assert proxy.rss_kib() - before < 60000


def test_client_that_never_reads(proxy, db):
    """What the proxy answers itself does not gather in its memory without bound."""
    with proxy.wire(db) as c:
        c.sock.settimeout(1)
        sent = 0
        try:
            while sent < 100 << 20:
                c.raw(b"S\0\0\0\4" * 20000)
                sent += 100000
        except socket.timeout:
            pass
        assert sent < 100 << 20, "everything was taken"
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_copy_that_fails_in_the_middle_of_a_message(qbouncer, db):
    """The next client does not get a server that waits for the rest of it."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        c.simple("CREATE TABLE t (a int)")
        c.query("COPY t FROM STDIN").until("G")
        c.raw(b"d" + struct.pack("!i", 4 + 6) + b"wrong\n" + b"d" + struct.pack("!i", 4 + 100) + b"half")
        assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["22P02"]
        other.query("SELECT 'mine'")
        assert other.silent(0.2)
        c.raw(b"x" * 96)
        assert [m.row for m in other.until("Z") if m.type == "D"] == [[b"mine"]]
        c.query("COPY t FROM STDIN").until("G")
        c.raw(b"d" + struct.pack("!i", 4 + 6) + b"wrong\n" + b"d" + struct.pack("!i", 4 + 100) + b"half")
        c.until("Z")
        c.close()
        assert [m.row for m in other.simple("SELECT 'mine'") if m.type == "D"] == [[b"mine"]]


def test_reset_of_one_setting_keeps_the_others_from_leaking(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db, options="-c work_mem=77MB -c statement_timeout=54321") as c, proxy.wire(db) as other:
        assert c.rows("SHOW work_mem") == [{"work_mem": "77MB"}]
        c.simple("RESET statement_timeout")
        assert other.rows("SHOW work_mem") != [{"work_mem": "77MB"}]
        assert other.rows("SHOW statement_timeout") == [{"statement_timeout": "0"}]
        assert c.rows("SHOW work_mem") == [{"work_mem": "77MB"}]


def test_role_of_the_start_up_packet_does_not_leak(qbouncer, direct, db):
    proxy = qbouncer(default_pool_size=1)
    direct.execute("GRANT other TO app")
    with proxy.wire(db, options="-c role=other") as c, proxy.wire(db) as plain:
        assert c.rows("SELECT current_user") == [{"current_user": "other"}]
        assert plain.rows("SELECT current_user") == [{"current_user": "app"}]
        assert c.rows("SELECT current_user") == [{"current_user": "other"}]
    direct.execute("REVOKE other FROM app")


def test_unnamed_statement_of_somebody_else(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        c.parse("", "SELECT 'a secret'").sync().until("Z")
        other.parse("x", "SELECT 1").bind("", "").execute().sync()
        assert [m.sqlstate for m in other.until("Z") if m.type == "E"] == ["26000"]


def test_notifications_stay_with_who_listens(qbouncer, db):
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db) as c, proxy.wire(db) as other:
        c.simple("LISTEN x")
        other.simple("NOTIFY x, 'for c alone'")
        assert not [m for m in other.query("SELECT 1").until("Z", skip="") if m.type == "A"]


def test_idle_in_transaction_counts_from_the_last_statement(qbouncer, db):
    proxy = qbouncer(idle_transaction_timeout=2)
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        for _ in range(4):
            assert types(c.simple("SELECT pg_sleep(0.8)")) == "TDCZ"
        assert [m.sqlstate for m in c.closed() if m.type == "E"] == ["25P03"]


def test_statement_pooling_refuses_blocks(qbouncer, db):
    proxy = qbouncer(pool_mode="statement")
    with proxy.wire(db) as c:
        assert [m.sqlstate for m in c.simple("BEGIN") if m.type == "E"] == ["0A000"]
        assert types(c.simple("SELECT 1")) == "TDCZ"
        c.query("SELECT 1; BEGIN")
        assert [m.sqlstate for m in c.closed() if m.type == "E"] == ["0A000"]
    with proxy.wire(db) as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_bad_message_is_an_error_and_the_session_lives(proxy, db):
    with proxy.wire(db) as c:
        for bad in (b"B" + struct.pack("!I", 5) + b"\0", b"P" + struct.pack("!I", 4), b"D" + struct.pack("!I", 6) + b"Q\0"):
            c.raw(bad).sync()
            assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["08P01"]
        c.raw(b"Q" + struct.pack("!I", 12) + b"SELECT 1")
        assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["08P01"]
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_savepoint_of_an_aborted_block_by_a_named_statement(proxy, db):
    """In an aborted block the server says what it takes: ROLLBACK TO, prepared before or now, but no SELECT."""
    with proxy.wire(db) as c:
        c.parse("sel", "SELECT 1").parse("back", "ROLLBACK TO x").sync().until("Z")
        for name in ("back", "late"):
            c.simple("BEGIN; SAVEPOINT x")
            c.simple("SELECT 1/0")
            c.bind("", "sel").execute().sync()
            assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["25P02"]
            if name == "late":
                c.parse("late", "ROLLBACK TO x")
            assert types(c.bind("", name).execute().sync().until("Z")).endswith("2CZ")
            assert types(c.bind("", "sel").execute().sync().until("Z")) == "2DCZ"
            c.simple("ROLLBACK")


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_portal_ends_with_a_transaction_that_is_under_way(qbouncer, db, mode):
    """Also one of a statement that the proxy answers, when the answers before it have not come yet."""
    proxy = qbouncer(pool_mode=mode)
    with proxy.wire(db) as c:
        c.hold().parse("s", "SELECT 1").bind("", "s").execute().parse("e", "").bind("", "e").sync().execute("").sync().push()
        assert types(c.until("Z")) == "12DC12Z"
        assert [m.sqlstate for m in c.until("Z") if m.type == "E"] == ["34000"]
