"""The checker of jobs that run by themselves (test/check/runs.py): a short run of it, a standby that is promoted meanwhile, and that
it sees what it is there to see."""

import os
import sys

import psycopg
import pytest

from pgcluster import Cluster, Standby
from proxy import wait_for
from tree import ROOT

sys.path.insert(0, os.path.join(ROOT, "test", "check"))

import check  # noqa: E402
import runs  # noqa: E402


def test_the_judge_is_content():
    assert runs.judge({"a", "b"}, ["b", "a"], [("a", "done"), ("b", "done")], set()) == []


@pytest.mark.parametrize("pushed, effects, ends, left, rule", [
    ({"a"}, ["a", "a"], [("a", "done")], set(), "effect"), ({"a"}, [], [("a", "done")], set(), "effect"),
    ({"a"}, ["a"], [], set(), "end"), ({"a"}, ["a"], [("a", "done"), ("a", "done")], set(), "end"),
    ({"a"}, ["a"], [("a", "dead")], set(), "end"), ({"a"}, [], [], {"a"}, "left"), ({"a"}, ["a"], [], {"a"}, "left"),
    (set(), ["a"], [], set(), "rolled back"), (set(), [], [("a", "done")], set(), "rolled back"), (set(), [], [], {"a"}, "rolled back")])  # fmt: skip
def test_the_judge_sees(pushed, effects, ends, left, rule):
    assert [s.partition(":")[0] for s in runs.judge(pushed, effects, ends, left)] == [rule]


def a_run(qbouncer, db, cluster, seconds, plant=None):
    with check.relay_to(cluster.port) as relay:
        proxies = [qbouncer(databases=check.through(relay), **runs.SETTINGS) for _ in range(2)]
        one = runs.Runs(proxies, db, lambda: cluster.dsn(db), 1, relay)
        one.setup()
        if plant:
            plant()
        one.begin()
        try:
            one.mishaps(seconds)
        finally:
            one.end()
        one.drain()
        return one.verdict()


@pytest.mark.timeout(240)
def test_a_short_run(qbouncer, db, cluster):
    said = a_run(qbouncer, db, cluster, 15)
    assert not said, "\n".join(said[:50])


PLANTED = "results := results || outcome::text;"
INSTEAD = """results := results || outcome::text;
    IF random() < 0.5 THEN
        done := done[1:cardinality(done) - 1];
        results := results[1:cardinality(results) - 1];
    END IF;"""


@pytest.mark.timeout(240)
def test_a_fault_is_found(qbouncer, db, cluster, direct):
    """A job whose effect is committed, and its end is not."""
    def plant():
        text = direct.execute("SELECT pg_get_functiondef('queue._run_batch'::regproc)").fetchone()[0]
        assert PLANTED in text
        direct.execute(text.replace(PLANTED, INSTEAD))
    said = a_run(qbouncer, db, cluster, 4, plant)
    assert any(s.startswith("effect: ") for s in said), said


@pytest.mark.timeout(240)
def test_a_standby_is_promoted(qbouncer):
    """The primary dies while jobs run. In the history that goes on, which may have lost the last of it, each has its effect once."""
    with Cluster(settings={"listen_addresses": ""}) as primary:
        primary.psql("CREATE ROLE app LOGIN; CREATE ROLE admin LOGIN")
        db = primary.createdb("moved", owner="app")
        with Standby(primary) as standby:
            now = [primary]
            line = "host=%s,%s port=%d target_session_attrs=primary" % (primary.socket_dir, standby.socket_dir, primary.port)
            proxies = [qbouncer(databases={db: line}, **runs.SETTINGS) for _ in range(2)]
            one = runs.Runs(proxies, db, lambda: now[0].dsn(db), 1)
            one.setup()
            one.begin()
            try:
                one.mishaps(3)
                with psycopg.connect(standby.dsn(db), autocommit=True) as copy:
                    wait_for(lambda: copy.execute("SELECT to_regclass('effects')").fetchone()[0]
                             and copy.execute("SELECT count(*) > 20 FROM effects").fetchone()[0], "effects, there too", timeout=60)
                primary.kill()
                standby.promote()
                now[0] = standby
                one.mishaps(3)
            finally:
                one.end()
            one.drain()
            said = one.verdict()
            assert not said, "\n".join(said[:50])
            for proxy in proxies:
                proxy.stop()
