"""Random programs of protocol messages, run directly and through the proxy: the answers are equal.

A program is a list of steps, each one message. It runs in one write cut at random points, or step by
step with a wait after each message that has an answer. What fails is made shorter before it is shown.

Environment: QB_DIFF_PROGRAMS (how many per pool mode, 250), QB_DIFF_SEED (where to begin; a seed that is
given alone is run alone with QB_DIFF_ONE=1)."""

import os
import random
import re
import socket
import time

import pytest

from pgwire import Closed, Wire

PROGRAMS = int(os.environ.get("QB_DIFF_PROGRAMS", "250"))
SEED = int(os.environ.get("QB_DIFF_SEED", "1"))
ONE = bool(os.environ.get("QB_DIFF_ONE"))

SETUP = """
CREATE TABLE IF NOT EXISTS t (a int PRIMARY KEY, b text, UNIQUE (b) DEFERRABLE INITIALLY DEFERRED);
TRUNCATE t;
INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 5) i;
"""

END = b"the end of the program"

SIMPLE = ["SELECT 1", "SELECT 2, 'x'", "", ";", "SELECT 1; SELECT 2", "SELECT 1/0", "SELEC", "SELECT a FROM t ORDER BY a",
          "BEGIN", "BEGIN", "begin;", "START TRANSACTION", "COMMIT", "COMMIT", "END", "ROLLBACK", "ROLLBACK", "ABORT",
          "SAVEPOINT x", "ROLLBACK TO x", "RELEASE x", "COMMIT AND CHAIN", "BEGIN READ ONLY",
          "INSERT INTO t VALUES (101, 'new')", "INSERT INTO t VALUES (1, 'twice')",
          "INSERT INTO t VALUES (102, 'row 1')", "DELETE FROM t WHERE a > 100", "begin; SELECT 3", "SELECT 4; COMMIT",
          "SET DateStyle = 'German'", "SET TimeZone = 'Asia/Tokyo'", "SET LOCAL TimeZone = 'Asia/Kabul'", "SHOW TimeZone",
          "RESET TimeZone", "SHOW DateStyle", "DISCARD ALL", "DEALLOCATE ALL", "DEALLOCATE s1", "DEALLOCATE PREPARE s2",
          "COPY t TO STDOUT", "COPY t (a, b) FROM STDIN", "COPY t (a, b) FROM STDIN; SELECT 5",
          "DO $$BEGIN RAISE NOTICE 'hello'; END$$", "SELECT repeat('x', 20000)", "/* nothing */", "-- nothing",
          "SELECT count(*) FROM t", "SELECT pg_notify('nobody', 'x')"]

# The state of the session: each asks for what others leave.
SESSION = ["SET work_mem = '7MB'", "SET work_mem = 9216", "set session work_mem to '5MB'", "SET LOCAL work_mem = '6MB'", "SHOW work_mem",
           "SHOW work_mem", "RESET work_mem", "SET work_mem TO DEFAULT", "SET work_mem = 'nonsense'", "RESET ALL",
           "SELECT set_config('work_mem', '8MB', false)", "SELECT set_config('work_mem', '10MB', true)", "SET search_path = pg_catalog, public",
           "SHOW search_path", "SET app.x = 'it''s'", "RESET app.x", "SELECT nullif(current_setting('app.x', true), '')",
           "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "PREPARE p AS SELECT 8", "EXECUTE p", "DEALLOCATE p",
           "CREATE TEMP TABLE tt (a int)", "INSERT INTO tt VALUES (1)", "SELECT count(*) FROM tt", "DROP TABLE tt", "DISCARD TEMP",
           "DECLARE h CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a", "FETCH 2 FROM h", "CLOSE h", "CLOSE ALL",
           "SELECT pg_advisory_lock(9)", "SELECT pg_advisory_unlock(9)", "SELECT pg_advisory_unlock_all()",
           "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", "LISTEN x", "UNLISTEN x", "UNLISTEN *",
           "DISCARD ALL", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT x", "ROLLBACK TO x", "SELECT 1/0",
           "BEGIN; SET work_mem = '11MB'; COMMIT", "SET work_mem = '12MB'; SHOW work_mem", "SET application_name = 'me'", "SHOW application_name",
           "RESET application_name", "SET application_name TO DEFAULT", "DO $$BEGIN SET work_mem = '13MB'; END$$"]

PREPARED = ["SELECT $1::int", "SELECT $1::int", "SELECT a, b FROM t ORDER BY a", "SELECT 1/$1::int", "SELECT 7", "SELEC", "",
            "INSERT INTO t VALUES ($1::int + 200, 'p')", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT x",
            "COPY t (a, b) FROM STDIN", "COPY t TO STDOUT", "SELECT 1; SELECT 2", "INSERT INTO t VALUES (103, 'row 2')",
            "DISCARD ALL", "DEALLOCATE ALL", "SELECT repeat('y', 30000)", "SHOW TimeZone", "SET TimeZone = 'Asia/Kabul'"]

TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK", "")

NAMES = ["", "", "", "s1", "s1", "s2"]
PORTALS = ["", "", "", "", "p1"]
COPY_ROWS = [b"50\tfifty\n", b"51\tx\n52\ty\n", b"bad\n", b"50\tfifty", b"", b"1\tagain\n", b"53\t" + b"z" * 5000 + b"\n"]


class Step:
    """One message. answers: something comes back for it."""

    def __init__(self, text, data, answers=False):
        self.text, self.data, self.answers = text, data, answers

    def __repr__(self):
        return self.text


class Maker:
    """Writes steps with the methods of Wire."""

    def __init__(self, rng, session=False):
        self.rng = rng
        self.session = session
        self.about_session = rng.random() < 0.4
        self.steps = []
        self.wire = Wire.__new__(Wire)

    def add(self, method, *args, answers=False, **more):
        self.wire.held = bytearray()
        getattr(self.wire, method)(*args, **more)
        text = "%s%r" % (method, args) + (" %r" % more if more else "")
        self.steps.append(Step(text if len(text) < 200 else text[:200] + "...", bytes(self.wire.held), answers))

    def query(self):
        self.add("query", self.rng.choice(SESSION if self.about_session else SIMPLE), answers=True)

    def sql_and_values(self):
        sql = self.rng.choice(SESSION if self.about_session else PREPARED)
        values = [self.rng.choice(["1", "2", "0", "3", None])] if "$1" in sql else []
        if self.rng.random() < 0.03:
            values = values + ["9"] if self.rng.random() < 0.5 else []
        if values and self.rng.random() < 0.05:
            values[0] = "not a number"
        return sql, values

    def statement(self):
        """Parse to Execute, some of it left out."""
        rng = self.rng
        name, portal = rng.choice(NAMES), rng.choice(PORTALS)
        sql, values = self.sql_and_values()
        if self.session and name and sql in TRANSACTION:
            name = "t1"  # in session pooling the server has its names, and the proxy those of these
        if rng.random() < 0.85:
            if name and rng.random() < 0.5:
                self.add("close_object", "S", name)
            self.add("parse", name, sql)
        if rng.random() < 0.2:
            self.add("describe", "S", name)
        if rng.random() < 0.9:
            self.add("bind", portal, name, values, results=rng.choice([[], [], [0], [1]]) if "COPY" not in sql else [])
        if rng.random() < 0.5:
            self.add("describe", "P", portal)
        for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 2, 3])):
            self.add("execute", portal, rng.choice([0, 0, 0, 0, 1, 2, 100]))
        if rng.random() < 0.1:
            self.add("close_object", "P", portal)
        if "COPY" in sql and rng.random() < 0.8:
            if rng.random() < 0.3:
                self.sync()
            self.copy()

    def sync(self):
        self.add("sync", answers=True)

    def copy(self):
        rng = self.rng
        for _ in range(rng.randrange(3)):
            self.add("copy_data", rng.choice(COPY_ROWS))
        kind = rng.random()
        if kind < 0.75:
            self.add("copy_done", answers=True)
        elif kind < 0.95:
            self.add("copy_fail", "no more", answers=True)

    def odd(self):
        rng = self.rng
        kind = rng.randrange(9)
        if kind == 0:
            self.add("flush", answers=True)
        elif kind == 1:
            self.add("close_object", rng.choice("SP"), rng.choice(["", "s1", "s2", "p1", "nosuch"]))
        elif kind == 2:
            self.add("describe", rng.choice("SP"), rng.choice(["", "s1", "s2", "p1", "nosuch"]))
        elif kind == 3:
            self.add("execute", rng.choice(["", "p1", "nosuch"]), rng.choice([0, 1]))
        elif kind == 4:
            self.add("bind", rng.choice(["", "p1"]), rng.choice(["", "s1", "s2", "nosuch"]), rng.choice([[], ["1"]]))
        elif kind == 5:
            body = b"\0\0\x06\xb0" + b"\0\1\0\1" + b"\0\1" + b"\0\0\0\4" + b"\0\0\0\5" + b"\0\1"
            self.add("send", "F", body if rng.random() < 0.6 else b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0", answers=True)
        elif kind == 6:
            self.sync()
        elif kind == 7:
            sql = rng.choice(PREPARED)
            self.add("parse", "" if sql in TRANSACTION else rng.choice(NAMES), sql)
        else:
            self.copy()

    def program(self):
        rng = self.rng
        for _ in range(rng.randrange(1, 9)):
            kind = rng.random()
            if kind < 0.3:
                self.query()
                if "FROM STDIN" in self.steps[-1].text and rng.random() < 0.9:
                    self.copy()
            elif kind < 0.85:
                for _ in range(rng.choice([1, 1, 1, 2, 3])):
                    self.statement()
                if rng.random() < 0.9:
                    self.sync()
            else:
                self.odd()
        return self.steps

    def ending(self):
        """Brings both sides to rest whatever came before, and asks for a last row."""
        self.steps = []
        self.add("copy_fail", "the end", answers=True)
        self.sync()
        self.add("query", "ROLLBACK", answers=True)
        self.add("query", "SELECT '%s'" % END.decode(), answers=True)
        return self.steps


class Run:
    """One run of a program: answers, and how many had come at each wait."""

    def __init__(self, port, db, timeout=6):
        self.wire = Wire(port, timeout=timeout).startup(user="app", database=db)
        self.answers = []
        self.counts = []
        self.closed = False

    def _take(self, m):
        if m.type not in "KSA":
            self.answers.append(m)

    def _wait(self, wanted):
        """wanted None: until ReadyForQuery or a copy begins, or nothing comes for a moment."""
        try:
            while wanted is None or len(self.answers) < wanted:
                if wanted is None and not self.wire.data and self.wire.silent(0.03):
                    break
                m = self.wire.recv()
                self._take(m)
                if wanted is None and m.type in "ZG":
                    break
        except (Closed, ConnectionError):
            self.closed = True
        self.counts.append(len(self.answers))

    def _to_end(self, length=None):
        """Up to the last row of the program and its ReadyForQuery."""
        try:
            while True:
                m = self.wire.recv()
                self._take(m)
                if m.type == "Z" and len(self.answers) > 2 and self.answers[-3].type == "D" \
                        and self.answers[-3].body.endswith(END):
                    return
        except (Closed, ConnectionError):
            self.closed = True

    def play(self, steps, ending, stepwise, rng, like=None, neighbour=None):
        """neighbour: another client, with settings of its own, that uses the servers between the steps."""
        try:
            if stepwise:
                waits = iter(like.counts) if like else None
                for s in steps:
                    self.wire.raw(s.data)
                    if s.answers and not self.closed:
                        self._wait(next(waits, 0) if like else None)
                    if neighbour and s.answers:
                        neighbour.simple("SELECT 1")
                self.wire.raw(b"".join(s.data for s in ending))
            else:
                data = b"".join(s.data for s in steps + ending)
                cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
                for a, b in zip([0] + cuts, cuts + [len(data)]):
                    self.wire.raw(data[a:b])
        except ConnectionError:
            pass
        if not self.closed:
            self._to_end()
        self.wire.close()
        return self


def comparable(messages):
    """Of errors and notices all but file, line and routine of Postgres' source, and the names that
    statements have on the server."""
    out = []
    for m in messages:
        if m.type in "EN":
            fields = {k: v for k, v in m.fields.items() if k not in "FLR"}
            fields["M"] = re.sub(r'statement "(qb_\d+|s\d)"', 'statement "s"', fields.get("M", ""))
            # since PostgreSQL 18 one or the other, by what was in front of it in the batch
            fields["M"] = fields["M"].replace("cannot be executed within a pipeline", "cannot run inside a transaction block")
            out.append((m.type, fields))
        else:
            out.append((m.type, m.body))
    return out


# Several things are wrong with one message: which of them is told may differ. (directly, through the proxy)
EITHER = {("26000", "25P02"), ("26000", "42P03"), ("42601", "42P05"), ("42601", "25P02"), ("25P02", "42P05"), ("25P02", "26000"), ("08P01", "25P02"),
          ("42P01", "42P05"), ("25P02", "34000"), ("08P01", "42P03"), ("3B001", "25P02"),
          ("25P02", "42P03")}


def equal(ours, theirs):
    """Are the answers of two runs the same?"""
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs):
        if a != b and not (a[0] == b[0] == "E" and (a[1]["C"], b[1]["C"]) in EITHER):
            return False
    return True


def only_the_servers(answers):
    """Is this about how a version of PostgreSQL treats such a program, which the proxy does not imitate? Up to 13 a session went
    on after a message that has no place in a copy; since 14, and with the proxy, it ends. With 18 a Query in the middle of a
    batch leaves a transaction behind that the Sync does not end, and the next statement fails by it."""
    errors = [(m.sqlstate, m.fields["M"]) for m in answers if m.type == "E"]
    return any(state == "08P01" and text.endswith("during COPY from stdin") or state == "XX000" and "unexpected state STARTED" in text
               for state, text in errors)


class Differ:
    def __init__(self, cluster, proxy, direct, db):
        self.cluster, self.proxy, self.direct, self.db = cluster, proxy, direct, db
        self.neighbour, self.apart = None, True

    def reset(self):
        self.direct.execute("SET lock_timeout = '5s'; SET ROLE app")
        self.direct.execute(SETUP)
        self.direct.execute("RESET ROLE")

    def differs(self, steps, seed, stepwise):
        """None, or both lists of answers."""
        ending = Maker(random.Random(seed)).ending()
        runs = []
        if self.neighbour is None:
            self.neighbour = self.proxy.wire(self.db, TimeZone="Asia/Dubai", options="-c work_mem=77MB -c search_path=nowhere -c app.x=secret")
        for port in (self.cluster.port, self.proxy.port):
            self.reset()
            run = Run(port, self.db)
            runs.append(run)
            try:
                run.play(steps, ending, stepwise, random.Random(seed), runs[0] if len(runs) == 2 else None,
                         self.neighbour if len(runs) == 2 and self.apart else None)
            except socket.timeout:
                run.wire.close()
                if len(runs) == 1:
                    return None  # a program that waits for ever: not ours to judge
                run.answers.append("TIMEOUT")
                return runs
            if len(runs) == 1 and only_the_servers(run.answers):
                return None
        if runs[0].closed:
            return None if runs[1].closed else runs  # how much of the last words arrives is chance
        if runs[1].closed or not equal(comparable(runs[0].answers), comparable(runs[1].answers)):
            return runs
        return None

    def shorter(self, steps, seed, stepwise):
        """Steps are left out while the answers differ."""
        size = max(1, len(steps) // 2)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            at, found = 0, False
            while at < len(steps):
                less = steps[:at] + steps[at + size:]
                if less and self.differs(less, seed, stepwise):
                    steps, found = less, True
                else:
                    at += size
            if size == 1 and not found:
                break
            size = max(1, size // 2)
        return steps


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_random_programs(qbouncer, cluster, direct, db, mode):
    proxy = qbouncer(pool_mode=mode, default_pool_size=2, max_prepared_statements=3)
    differ = Differ(cluster, proxy, direct, db)
    differ.apart = mode == "transaction"
    for seed in range(SEED, SEED + (1 if ONE else PROGRAMS)):
        rng = random.Random(seed)
        steps = Maker(rng, mode == "session").program()
        stepwise = rng.random() < 0.4
        if differ.differs(steps, seed, stepwise):
            steps = differ.shorter(steps, seed, stepwise)
            runs = differ.differs(steps, seed, stepwise)
            text = ["seed %d, %s, %s pooling; program:" % (seed, "step by step" if stepwise else "one write", mode)]
            text += ["    %r" % s for s in steps]
            for name, run in zip(("directly:", "through the proxy:"), runs or ()):
                text += [name] + ["    %r" % m for m in run.answers] + (["    (closed)"] if run.closed else [])
            pytest.fail("\n".join(text), pytrace=False)
