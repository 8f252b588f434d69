"""The benchmark's own code: that its parts run, count what they say, and that one that fails costs no other.

In the place of pgbouncer stands the proxy once more: whom it is compared with is not the question here.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psycopg
import pytest

from relay import Relay

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench")
sys.path.insert(0, BENCH)

import readme  # noqa: E402
import report  # noqa: E402
import run as bench  # noqa: E402
import simulate  # noqa: E402
from common import Failed  # noqa: E402
from contenders import marks  # noqa: E402
from contenders.outside import Outside  # noqa: E402
from figures import Figures  # noqa: E402
from loads import jobs, outside, soak  # noqa: E402
from meter import NO_COST, Cost  # noqa: E402
from plan import QUICK  # noqa: E402
from pooler import PASSWORD  # noqa: E402
from rig import Rig  # noqa: E402
from table import Goal, Table  # noqa: E402

TINY = QUICK.but(seconds=0.5, bystanders=10, big=20000000, big_clients=(2,), copy=10000000, soak_queries=20, soak_warm=1)


@pytest.fixture(scope="module")
def rig(program):
    rig = Rig(program, program, scale=1)
    try:
        rig.start()
        yield rig
    finally:
        rig.remove()


@pytest.fixture
def part(rig):
    """Runs one: its rows as {column: value}."""
    def run(name):
        table = bench.PARTS[name](rig, TINY)._replace(part=name)
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.title in report.as_text(table)
        assert not rig.running
        return [dict(zip(table.columns, row)) for row in table.rows], table.goals
    return run


def test_select(rig):
    """A few clients come in short turns, the CPU is that of all of them."""
    table = bench.PARTS["select"](rig, TINY.but(select_clients=(2,), select_rounds=1))
    assert "turns of 0.25 s, 2 of each" in table.text
    rows = [dict(zip(table.columns[:5], row), cpu=row[6]) for row in table.rows]
    assert [row["direct tps"] != "-" for row in rows] == [True, False, False, False]
    for row in rows:
        assert row["clients"] == 2 and int(row["qbouncer tps"]) > 0 and 0 < float(row["cpu"]) < 1000


def test_logins_of_a_client_that_keeps_its_keys(rig):
    """It proves that it has the password, and asks for the same proof."""
    with rig.pooler("qbouncer", auth="scram-sha-256") as pooler:
        assert rig.client(pooler, "login", 2, 0.3, PASSWORD)["count"] > 2
        with pytest.raises(Failed, match="28P01"):
            rig.client(pooler, "login", 1, 0.1, "another password")
    with rig.pooler("qbouncer") as pooler, pytest.raises(Failed, match="logged in without SCRAM"):
        rig.client(pooler, "login", 1, 0.1, PASSWORD)


def test_cancel(part):
    rows, goals = part("cancel")
    assert [row[""] for row in rows] == ["qbouncer", "pgbouncer", "direct"]
    for row in rows:
        assert int(row["heeded"]) > 0 and int(row["innocent"]) > 0
        assert (row["missed"], row["strays"]) == ("0", "0")
    assert goals[0].measured == "0 strays, 0 missed"


def test_strays_are_counted(rig):
    """Who cancels at random is found out."""
    ended = threading.Event()

    def at_random():
        with psycopg.connect(rig.cluster.dsn("bench"), autocommit=True) as conn:
            while not ended.is_set():
                conn.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query ~ 'innocent' "
                             "AND state = 'active' AND pid <> pg_backend_pid()")

    thread = threading.Thread(target=at_random)
    thread.start()
    try:
        got = rig.client(None, "cancel", 1, 10, 0.5, 0)
    finally:
        ended.set()
        thread.join()
    assert got["strays"] > 0


def test_a_request_that_does_not_arrive_is_an_error(rig):
    """The query ends by itself after 3 s, and nobody closes the connection of the request."""
    with Relay(rig.cluster.port) as relay:
        relay.arm(b"\x04\xd2\x16\x2e", "never")
        with pytest.raises(Failed, match="1 queries or requests did not end"):
            rig.run_client("cancel", ["127.0.0.1", relay.port, "bench", "bench"], 1, 0, 0.1, 0)


def test_rows(part):
    rows, _ = part("rows")
    assert [row["clients"] for row in rows] == [2, 1]
    for row in rows:
        assert int(row["qbouncer MB/s"]) > 0 and int(row["direct MB/s"]) > 0
        assert float(row["qbouncer MiB"]) < 15, "it has kept a row of 20 MB"


def test_all_bytes_are_counted(rig):
    got = rig.client(None, "read", 2, 3, "SELECT repeat('x', 1000000)")
    assert 6000000 < got["bytes"] < 6010000
    rig.psql("CREATE TABLE kept (line text)")
    got = rig.client(None, "write", 2, 1, 1000000, "COPY kept FROM STDIN")
    assert 2000000 < got["bytes"] < 2200000
    assert rig.psql("SELECT sum(length(line) + 1) FROM kept") == str(2 * 65536 * 16)
    assert rig.client(None, "write", 1, 1, 1000000, "DO 'BEGIN ASSERT length($$%s$$) = 1000000; END'")["bytes"] > 1e6


def test_an_error_ends_the_client(rig):
    with pytest.raises(Failed, match="division by zero"):
        rig.client(None, "read", 1, 1, "SELECT 1 / 0")


def test_an_error_comes_with_what_the_pooler_has_said(rig):
    with rig.pooler("qbouncer") as pooler, pytest.raises(Failed, match="(?s)57014.*started, process"):
        rig.client(pooler, "read", 1, 1, "DO $$BEGIN RAISE SQLSTATE '57014'; END$$")


def test_copy(part):
    rows, _ = part("copy")
    assert [row[""] for row in rows] == ["COPY TO STDOUT", "COPY TO STDOUT", "COPY FROM STDIN"]
    assert all(int(row["qbouncer MB/s"]) > 0 for row in rows)


def test_soak(part):
    rows, goals = part("soak")
    assert [(row[""], row["cycles"]) for row in rows] == [("qbouncer", 2), ("pgbouncer", 2)]
    assert all(int(row["descriptors, warm"]) > 5 and float(row["MiB, warm"]) > 1 for row in rows)
    assert goals[0].measured.startswith("memory ")


@pytest.mark.timeout(240)   # some take half a minute to start when nobody else works
@pytest.mark.parametrize("kind", [marks.Beanstalkd, marks.Redis, marks.Nats, marks.Rabbitmq])
def test_marks(rig, kind):
    """Others' queues, where they are installed: what is pushed is taken, and nothing stays behind."""
    if shutil.which(kind.name, path=os.environ["PATH"] + ":/usr/sbin") is None:
        pytest.skip("no %s" % kind.name)
    one = kind(rig)
    try:
        one.start()
        assert one.rate("cycle", 4, 0.3, 0) > 0
        assert one.rate("drain", 4, 0.3, 100) > 0
        assert one.rate("push", 4, 0.3, 0) > 0
    finally:
        one.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", one.port), 5)


def test_growth_is_seen():
    seen = [(i, 100 + max(i - 3, 0), 10) for i in range(1, 13)]
    assert soak.growth(seen, 3) == ((5, 102, 10), (12, 109, 10))
    assert soak.growth(seen[:4], 3) == (seen[2], seen[3])


# -- the simulation ----------------------------------------------------------------------------------


def test_the_document_has_what_the_simulation_says():
    with open(os.path.join(bench.REPO, "doc", "scale.md"), encoding="utf-8") as page:
        assert "\n".join(simulate.rows()) in page.read()


@pytest.mark.parametrize(("cores", "ends"), [(1, [3500, 4000, 4500]), (2, [1500, 2000, 2500]), (3, [1500, 1500, 1500])])
def test_cores_are_shared_in_slices(cores, ends):
    """Three threads with 1500 µs of work each: a slice of 1000, then the rest behind the others."""
    machine, ended = simulate.Machine(cores), []
    for _ in range(3):
        machine.thread().add(1500, lambda: ended.append(machine.now))
    while machine.timers:
        machine.step()
    assert ended == ends


def test_one_client_has_three_commits():
    costs = simulate.COSTS
    got = simulate.World(cores=8, clients=1, apart=True).run()
    assert got.commits == pytest.approx(3, rel=0.01)
    assert got.postgres_us == pytest.approx(3 * costs.commit + sum(costs.job.values()), rel=0.01)


def test_what_makes_batches_larger_and_what_slower():
    def world(clients, **more):
        return simulate.World(cores=8, clients=clients, apart=True, **more).run()

    slow_disk = SimpleNamespace(**{**vars(simulate.COSTS), "flush": 2000})
    usual = world(100)
    assert world(400).commits < usual.commits / 2 < world(10).commits / 4
    assert world(100, costs=slow_disk).rate < usual.rate / 2


# -- the command -------------------------------------------------------------------------------------


class NoRig:
    """Of a run that needs none."""

    tidied = 0

    def tidy(self):
        self.tidied += 1


def _good(_rig, _plan):
    """works"""
    return Table("Good", "It works.", ["", "figure"], [["one", "1"]], [Goal("it", "works", "yes")])


def _failed(_rig, _plan):
    """fails"""
    raise Failed("a program failed")


def _broken(_rig, _plan):
    """has a mistake"""
    raise KeyError("no such figure")


def _hangs(_rig, _plan):
    """hangs"""
    subprocess.run(["sleep", "100"], check=True)


def test_a_part_that_fails_costs_no_other(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "PARTS", {"failed": _failed, "broken": _broken, "hangs": _hangs, "good": _good})
    monkeypatch.setattr(bench, "PATIENCE", {"quick": 0.5})
    rig, told = NoRig(), []
    tables, missing = bench.measure(rig, list(bench.PARTS), TINY, time.monotonic() + 100,
                                    lambda tables, missing: told.append((len(tables), len(missing))))
    assert [table.title for table in tables] == ["Good"]
    assert missing == ["failed (failed)", "broken (failed)", "hangs (failed)"]
    assert told == [(0, 1), (0, 2), (0, 3), (1, 3)]
    assert rig.tidied == 3
    page = tmp_path / "bench.md"
    report.write(str(page), [("missing", ", ".join(missing))], [(table, []) for table in tables], "the command")
    text = page.read_text()
    assert "| missing | failed (failed), broken (failed), hangs (failed) |" in text
    assert "## Good" in text and "| it | works | yes |" in text
    assert "This part alone: `test/bench/run.py good`.\n" in text


def test_parts_that_are_not_measured_stay(tmp_path):
    path, page = tmp_path / "figures.json", tmp_path / "bench.md"
    old, new = ([("date", date), ("qbouncer", "qbouncer " + version), ("plan", "full")]
                for date, version in (("yesterday", "0.1"), ("today", "0.2")))
    first = Figures(str(path))
    for part in "gone", "two", "one":
        first.put(Table("Title of " + part, "Text.", ["a", ""], [[1, "b"], [2, ""]], [Goal(part, ">= 1", "1")], part), old)
    first.save()
    again = Figures(str(path))
    again.put(Table("Title of two", "Text.", ["a"], [[2]], [Goal("two", ">= 1", "2")], "two"), new)
    report.write(str(page), new, again.tables(["one", "two", "three"]), "the command")
    again.save()
    assert list(Figures(str(path)).parts) == ["one", "two"]
    assert Figures(str(path)).parts == json.loads(path.read_text()) == json.loads(json.dumps(again.parts))
    assert "\n   [1, \"b\"],\n   [2, \"\"]\n" in path.read_text(), "a row has a line"
    text = page.read_text()
    assert text.index("Title of one") < text.index("Title of two") and "gone" not in text
    assert "This part alone: `test/bench/run.py one`. Of an earlier run: date yesterday, qbouncer 0.1.\n" in text
    assert "This part alone: `test/bench/run.py two`.\n" in text
    assert "| one | >= 1 | 1 |" in text and "| two | >= 1 | 2 |" in text


def _measured():
    """Tables as a run gives them, as far as README's figures need them."""
    singly = [[n, who, str(rate), "", ""] for n in (1, 100) for who, rate in (
        ("qbouncer", 12345 * n), ("hand-written SQL, pgbouncer (tx)", 777), ("pgmq, pgbouncer (tx)", 55))]
    batches = [[100, 8, who, "36499"] for who in ("qbouncer", "hand-written SQL, direct", "pgmq, direct")]
    disturb = [["REPEATABLE READ snapshot", who, 1, 100, "%d %%" % share] for who, share in
               (("qbouncer", 99), ("hand-written SQL", 12))]
    return [
        Table("", "", ["clients", "", "jobs/s", "x", "cost"], singly)._replace(part="jobs"),
        Table("", "", ["batch", "clients", "", "jobs/s"], batches)._replace(part="batches"),
        Table("", "", ["held open", "", "before", "clients", "share"], disturb)._replace(part="disturb"),
        Table("", "", ["heartbeat", "clients", "KiB", "idle CPU"], [["default", 10000, "1.76", "0.67 %"]])._replace(part="park"),
        Table("", "", [], [], [Goal("worker killed", "", "5.5 ms at most")])._replace(part="death"),
        Table("", "", ["protocol", "clients", "ratio"], [["simple, transaction", n, "1.0%d" % (n % 9)] for n in (16, 100)])
        ._replace(part="select")]


def test_the_figures_of_the_readme():
    """Each line is there, and has what was measured; what was not measured stays."""
    with open(os.path.join(bench.REPO, "README.md"), encoding="utf-8") as page:
        before = page.read()
    after = readme.update(before, _measured(), "PgBouncer 1.26.1")
    lines = [line for line in after.splitlines() if line.split(" | ")[0][2:] in readme.LINES]
    assert len(lines) == len(readme.LINES)
    for text in ("| 1 230 000 jobs/s | 777 by SKIP LOCKED SQL through pgbouncer, 55 by pgmq |",
                 "| 36 500 jobs/s | 36 500 by SQL without a pooler, 36 500 by pgmq |", "| 12 300 jobs/s | 777 by SQL, 55 by pgmq |",
                 "| 99 % of its rate | 12 % of its rate is left to SQL |",
                 "| no server connection, 1.76 KiB each, 0.67 % of a core | |", "| its job is with another one after 5.5 ms | |",
                 "| 1.07 and 1.01 × its rate | pgbouncer 1.26.1 |"):
        assert sum(text in line for line in lines) == 1, text
    assert before.count("\n") == after.count("\n")
    assert readme.update(before, [], "PgBouncer 1.26.1") == before


class Contender:
    """One who fails each second time."""

    rounds = 0

    def label(self):
        return "a contender"

    def available(self):
        return True

    def once(self):
        self.rounds += 1
        if self.rounds % 2 == 0:
            raise Failed("it died")
        return 100, Cost(1, 2, 3, 4)


def test_a_round_that_fails_costs_no_other(capsys):
    ours, theirs = Contender(), Contender()
    theirs.rounds = 1
    got = jobs.compare((ours, theirs), 2, lambda c: c.once())
    assert got == {ours: ([100, None], [Cost(1, 2, 3, 4), NO_COST]), theirs: ([None, 100], [NO_COST, Cost(1, 2, 3, 4)])}
    assert jobs.rows_of(got, ["one"]) == [["one", "a contender", "100", "", "2.0", "1.0", "3", "4.00"],
                                          ["one", "a contender", "100", "-", "2.0", "1.0", "3", "4.00"]]
    assert capsys.readouterr().err.count("a contender: it died") == 2


class Good(Outside):
    """One of the other queues, which runs."""

    name = note = "good"

    def start(self):
        pass

    def rate(self, load, clients, seconds, jobs):
        return 50


class DoesNotStart(Good):
    """One that does not."""

    name = "does not start"

    def start(self):
        raise Failed("it does not start\nthis is why")


class DoesNotDrain(Good):
    """One that fails in one load."""

    name = "does not drain"

    def rate(self, load, clients, seconds, jobs):
        if load == "drain":
            raise Failed("nothing came")
        return 25


def test_another_queue_that_fails_costs_no_other(monkeypatch):
    monkeypatch.setattr(outside, "KINDS", (DoesNotStart, DoesNotDrain, Good))
    monkeypatch.setattr(outside, "_ours", lambda *_: {load: 100 for load in outside.LOADS})
    rig = NoRig()
    rig.running = []
    table = outside.outside(rig, TINY.but(outside_clients=(16,)))
    assert table.rows == [[16, "qbouncer", "100", "", "100", "", "100", ""],
                          [16, "does not drain (good)", "25", "4.00", "-", "", "25", "4.00"],
                          [16, "good (good)", "50", "2.00", "50", "2.00", "50", "2.00"]]
    assert "Skipped: does not start (it does not start)." in table.text
    assert rig.running == []


def test_no_part_begins_when_the_time_is_over(monkeypatch):
    monkeypatch.setattr(bench, "PARTS", {"good": _good})
    assert bench.measure(NoRig(), ["good"], TINY, 0) == ([], ["good (no time left)"])


def test_tidy_gives_a_rig_that_works(rig):
    rig.psql("ALTER SYSTEM SET log_statement = 'all'")
    rig.pooler("qbouncer")
    rig.cluster.stop()
    rig.tidy()
    assert not rig.running
    assert rig.psql("SHOW log_statement") == "none"


def test_each_part_says_what_it_is():
    assert all(function.__doc__ for function in bench.PARTS.values())
