"""A crowd of clients on a few servers: each statement carries a word that only its client knows, and its answer has to bring it
back. Meanwhile statements fail, run out of time, are cancelled; clients break off, servers are killed.

Environment: QB_STRESS_SECONDS (5), QB_STRESS_CLIENTS (2000: that many have a connection at a time, at most)."""

import os
import random
import select
import struct
import time

import pytest

from pgwire import Closed, PgError, Wire, cancel, types
from proxy import wait_for

SECONDS = float(os.environ.get("QB_STRESS_SECONDS", "5"))
CLIENTS = int(os.environ.get("QB_STRESS_CLIENTS", "2000"))
AT_ONCE = 60  # statements under way
SERVERS = 6
SERVER_GONE = {"57P01", "08006"}  # of a QUEUE statement: it was none of the client's own


class Member:
    """One of the crowd. ask() sends, answer() reads and checks; between them others have their turn."""

    number = 0

    def __init__(self, proxy, db, rng, kills):
        Member.number += 1
        self.name = "m%d" % Member.number
        self.proxy, self.db, self.rng, self.kills = proxy, db, rng, kills
        self.wire = None
        self.count = self.answers = self.sessions = 0
        self.pushed = []
        self.forget()

    def forget(self):
        """What a session has is gone with it."""
        self.prepared, self.sql_prepared, self.setting = None, None, ""
        self.listens = self.cancelled = False
        self.expected, self.ends, self.allowed, self.done = [], 0, set(), lambda: None

    def word(self):
        self.count += 1
        return "%s-%d" % (self.name, self.count)

    # -- what it may ask -----------------------------------------------------------------------

    def simple(self, w):
        self.expected = [self.word()]
        w.query("SELECT '%s'" % self.expected[0])
        return 1

    def several_in_one(self, w):
        self.expected = [self.word() for _ in range(3)]
        w.query("; ".join("SELECT '%s'" % x for x in self.expected))
        return 1

    def pipeline_of_queries(self, w):
        self.expected = [self.word() for _ in range(4)]
        for x in self.expected:
            w.query("SELECT '%s'" % x)
        return 4

    def unnamed(self, w):
        self.expected = [self.word()]
        w.parse("", "SELECT $1::text").bind("", "", self.expected).describe("P").execute().sync()
        return 1

    def named(self, w):
        if self.prepared is None:
            self.prepared = "s"
            w.parse("s", "SELECT $1::text || ''")
        self.expected = [self.word() for _ in range(3)]
        for x in self.expected:
            w.bind("", "s", [x]).execute()
        w.sync()
        return 1

    def batches(self, w):
        """Several Syncs in one go, in one of them an error."""
        self.expected = [self.word(), self.word()]
        self.allowed = {"22012"}
        w.parse("", "SELECT $1::text").bind("", "", self.expected[:1]).execute().sync()
        w.parse("", "SELECT 1/$1::int").bind("", "", ["0"]).execute().parse("", "SELECT 'not seen'").bind().execute().sync()
        w.parse("", "SELECT $1::text").bind("", "", self.expected[1:]).execute().sync()
        return 3

    def fails(self, w):
        self.expected = [self.word()]
        self.allowed = {"22012"}
        w.query("SELECT '%s'; SELECT 1/0; SELECT 'not seen'" % self.expected[0])
        return 1

    def block(self, w):
        self.expected = [self.word(), self.word()]
        end = self.rng.choice(["COMMIT", "ROLLBACK"])
        for sql in ("BEGIN", "SELECT '%s'" % self.expected[0], "SELECT '%s', pg_sleep(0.001)" % self.expected[1], end):
            w.query(sql)
        return 4

    def runs_out_of_time(self, w):
        self.allowed = {"57014", "25P02"}
        w.query("BEGIN").query("SET LOCAL statement_timeout = '1ms'").query("SELECT 'x', pg_sleep(5)").query("ROLLBACK")
        return 4

    def copy_out(self, w):
        self.expected = [self.word()]
        w.query("COPY (SELECT '%s') TO STDOUT" % self.expected[0])
        return 1

    def copy_in(self, w):
        """The data is sent ahead; what was stored is asked for behind it."""
        self.expected = [self.word()]
        x = self.expected[0]
        w.query("COPY crowd FROM STDIN").copy_data(x.encode() + b"\n").copy_done()
        w.query("SELECT v FROM crowd WHERE v = '%s'" % x)
        return 2

    def queue_in_a_pipeline(self, w):
        """Answers of the proxy between those of the server."""
        self.allowed = SERVER_GONE
        x = self.word()
        self.expected = [self.word(), self.word()]
        self.done = lambda: self.pushed.append(x)
        w.parse("", "SELECT $1::text").bind("", "", self.expected[:1]).execute()
        w.parse("", "QUEUE PUSH crowd $1").bind("", "", ['"%s"' % x]).execute()
        w.parse("", "SELECT $1::text").bind("", "", self.expected[1:]).execute().sync()
        return 1

    def queue_between(self, w):
        self.allowed = SERVER_GONE
        x = self.word()
        self.expected = [self.word()]
        self.done = lambda: self.pushed.append(x)
        w.query("QUEUE PUSH crowd '\"%s\"'" % x).query("SELECT '%s'" % self.expected[0]).query("QUEUE TAKE nothing")
        return 3

    def queue_in_a_block(self, w):
        x = self.word()
        self.expected = [self.word()]
        self.done = lambda: self.pushed.append(x)
        for sql in ("BEGIN", "SELECT '%s'" % self.expected[0], "QUEUE PUSH crowd '\"%s\"'" % x, "COMMIT"):
            w.query(sql)
        return 4

    def prepared_in_sql(self, w):
        fresh = self.sql_prepared is None
        if fresh:  # one that was cancelled may be there nevertheless: each has a name of its own
            self.sql_prepared = self.word()
        name = "\"%s\"" % self.sql_prepared
        if fresh:
            w.query("PREPARE %s AS SELECT '%s'" % (name, self.sql_prepared))
            self.expected = [self.sql_prepared]
            w.query("EXECUTE " + name)
            return 2
        self.expected = [self.sql_prepared] * 2
        w.query("EXECUTE " + name).parse("", "EXECUTE " + name).bind().execute().sync()
        return 2

    def setting_of_its_own(self, w):
        if not self.setting:
            self.setting = self.word()
            w.query("SET app.mine = '%s'" % self.setting)
            self.expected = [self.setting]
            w.query("SHOW app.mine")
            return 2
        self.expected = [self.setting]
        w.query("SHOW app.mine")
        return 1

    def notifies_itself(self, w):
        self.allowed = {"08006"} if self.kills else set()  # the connection that listens for all may be the one that is killed
        w.query("LISTEN %s" % self.name).query("NOTIFY %s, '%s'" % (self.name, self.word()))
        self.listens = True
        return 2

    def needs_no_server(self, w):
        w.query("").query("BEGIN").query("ROLLBACK").sync()
        return 4

    KINDS = (simple, several_in_one, pipeline_of_queries, unnamed, named, batches, fails, block, runs_out_of_time, copy_out,
             copy_in, queue_in_a_pipeline, queue_between, queue_in_a_block, prepared_in_sql, setting_of_its_own,
             notifies_itself, needs_no_server)

    # -- asking and being answered -------------------------------------------------------------

    def ask(self):
        if self.wire is None:
            self.forget()
            self.wire = Wire(self.proxy.port).startup(user="app", database=self.db)
            self.sessions += 1
        self.expected, self.allowed, self.done = [], set(), lambda: None
        self.wire.hold()
        self.kind = self.rng.choice(self.KINDS)
        self.ends = self.kind(self, self.wire)
        self.wire.push()
        self.mishap()

    def mishap(self):
        chance = self.rng.random()
        if chance < 0.03:
            cancel(self.wire)
            self.cancelled = True
        elif chance < 0.05:
            self.leave(self.wire.reset)
        elif chance < 0.06:
            self.wire.raw(b"Q" + struct.pack("!i", 1000) + b"SELECT 'half of")
            self.leave(self.wire.close)
        elif chance < 0.08:
            self.leave(self.wire.terminate)

    def leave(self, how):
        try:
            how()
        except OSError:
            pass
        self.wire, self.ends = None, 0

    def answer(self):
        """All that was asked for, in its order, and nothing else."""
        got, failed = [], False
        for _ in range(self.ends):
            for m in self.wire.until("Z", skip="SN"):
                if m.type == "E":
                    self.error(m)
                    failed = True
                elif m.type == "A":
                    assert self.listens and self.name.encode() in m.body, "%s: %r" % (self.name, m)
                elif m.type == "D":
                    got.append(m.row[0].decode())
                elif m.type == "d":
                    got.append(m.body.decode().strip())
        if failed:
            # its SET, too, may have been cancelled
            rest = iter(self.expected + [""] * self.cancelled)
            assert all(x in rest for x in got), "%s %s: %r of %r" % (self.name, self.kind.__name__, got, self.expected)
        else:
            assert got == self.expected, "%s %s: %r, not %r" % (self.name, self.kind.__name__, got, self.expected)
            self.done()
        self.answers += 1

    def error(self, m):
        """Who is cancelled may lose any of its statements, and what depends on it; nobody else may."""
        if m.fields.get("S") == "FATAL":
            assert m.sqlstate in SERVER_GONE, m
            raise Closed()
        if self.cancelled:
            self.prepared, self.sql_prepared, self.setting = None, None, ""
            assert m.sqlstate in self.allowed | {"57014", "25P02", "26000", "42704", "42P05"}, "%s: %r" % (self.kind.__name__, m)
        else:
            assert m.sqlstate in self.allowed, "%s %s: %r" % (self.name, self.kind.__name__, m)

    def stray(self):
        """What has come without being asked for, but for notifications of its own and parameters."""
        poll = select.poll()
        poll.register(self.wire.sock, select.POLLIN)
        while self.wire.data or poll.poll(0):
            m = self.wire.recv()
            if m.type == "A":
                assert self.listens and self.name.encode() in m.body, m
            else:
                assert m.type in "SN" or (m.type == "E" and m.fields["S"] == "FATAL"), "%s: stray %r" % (self.name, m)


def turn(members, act):
    """Who was disconnected begins anew."""
    for m in members:
        try:
            if m.wire is not None or act == Member.ask:
                act(m)
        except TimeoutError as e:
            raise AssertionError("%s: no answer to %s" % (m.name, m.kind.__name__)) from e
        except (Closed, PgError, OSError):
            m.leave(m.wire.close if m.wire else lambda: None)


@pytest.mark.parametrize("kills", [False, True], ids=["", "servers are killed"])
def test_crowd(qbouncer, direct, db, kills):
    """At the end everybody is at rest, and every job that was acknowledged is there."""
    proxy = qbouncer(default_pool_size=SERVERS, max_client_conn=CLIENTS + 200, max_prepared_statements=3, log_connections=0,
                     log_disconnections=0)
    with proxy.wire(db) as c:
        for sql in ("QUEUE CREATE crowd", "QUEUE CREATE nothing", "CREATE TABLE crowd (v text)"):
            assert not [m for m in c.simple(sql) if m.type == "E"], sql
    rng = random.Random(4)
    crowd = [Member(proxy, db, rng, kills) for _ in range(CLIENTS)]
    until = time.monotonic() + SECONDS / 2
    while time.monotonic() < until:
        some = rng.sample(crowd, min(AT_ONCE, len(crowd)))
        turn(some, Member.ask)
        if kills and rng.random() < 0.3:
            direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"
                           " AND query !~ 'queue' ORDER BY random() LIMIT 1")
        rng.shuffle(some)
        turn(some, Member.answer)
    wait_for(lambda: works(proxy, db), "an answer after the last kill")
    turn(crowd, Member.stray)
    assert sum(m.answers for m in crowd) > 50 and sum(m.sessions for m in crowd) > 50
    there = {row[0] for row in direct.execute("SELECT payload #>> '{}' FROM queue.q_crowd")}
    lost = [x for m in crowd for x in m.pushed if x not in there]
    assert not lost, lost[:5]
    for m in crowd:
        m.leave(m.wire.close if m.wire else lambda: None)


def works(proxy, db):
    try:
        with proxy.wire(db) as c:
            return types(c.simple("SELECT 1")) == "TDCZ"
    except (Closed, PgError):
        return False
