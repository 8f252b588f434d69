"""pgbench in its three modes: scripts of its own, which it runs again and again.

It tells nothing of rows but what a script takes into variables, and its variables are texts that it pastes (simple
mode) or binds: a job is named by its id, which its connection knows."""

import os
import re
import subprocess

import psycopg
import pytest

from proxy import wait_for
from record import Recorder, compare

LIMIT = 60  # seconds
TIMES = re.compile(r"^(latency|initial connection|tps|transaction type|duration).*\n?", re.M)


class Pgbench:
    """One run of it."""

    def __init__(self, bench, script, port=None, turns=1):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        env.update(PGHOST="127.0.0.1", PGPORT=str(port or bench.proxy.port), PGDATABASE=bench.db, PGUSER="app",
                   PGPASSWORD="app-password")
        read, write = os.pipe()
        os.write(write, script.encode())
        os.close(write)
        command = ["pgbench", "-n", "-c", "1", "-t", str(turns), "-M", bench.driver.argument,
                   "-f", "/dev/fd/%d" % read]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=env, text=True, pass_fds=[read])
        os.close(read)

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        """(exit code, what it printed)"""
        out = self.process.communicate(timeout=LIMIT)[0]
        return self.process.returncode, out


def run(bench, script, **how):
    """It must not fail."""
    code, out = Pgbench(bench, script, **how).end()
    assert code == 0, out


@pytest.fixture
def bench(request, tool_bench):
    request.node.proxies = [tool_bench.proxy]
    with psycopg.connect(tool_bench.cluster.dsn(tool_bench.db), autocommit=True) as direct:
        direct.execute("TRUNCATE t, orders, sent")
    return tool_bench


def sent(bench):
    with psycopg.connect(bench.cluster.dsn(bench.db)) as direct:
        return [a for a, in direct.execute("SELECT a FROM sent ORDER BY a")]


PLAIN = r"""
\set i 7
INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, :i) i;
SELECT 3 AS three, NULL AS nothing \gset x_
UPDATE t SET b = b WHERE a < :x_three;
BEGIN;
SELECT a FROM t WHERE a = :i \gset
DELETE FROM t WHERE a > :a - 7;
COMMIT;
BEGIN;
INSERT INTO t VALUES (:i, 'x');
ROLLBACK;
SELECT 1 AS one \; SELECT 2 AS two \aset
\if :two = 2
SELECT :two::int + 1;
\endif
"""
ONE_BY_ONE = PLAIN.replace(r"SELECT 1 AS one \; SELECT 2 AS two \aset", r"SELECT 2 AS two \aset")
PIPELINE = r"""
\startpipeline
INSERT INTO t VALUES (:client_id, 'x');
SELECT * FROM t;
DELETE FROM t;
\endpipeline
\startpipeline
BEGIN;
INSERT INTO t VALUES (:client_id, 'x');
ROLLBACK;
\endpipeline
"""
FAILS = "INSERT INTO t VALUES (1, 'x');\nSELECT 1;\nINSERT INTO t VALUES (1, 'y');\nSELECT 2;\n"


@pytest.mark.parametrize("script", ["plain", "pipeline", "fails"])
def test_same_conversation(bench, open_door, script):
    """Not QUEUE: the same bytes, and the same report."""
    if script == "pipeline" and not bench.driver.batch:
        pytest.skip("no pipelines in the simple protocol")
    text = {"plain": ONE_BY_ONE if bench.driver.batch else PLAIN, "pipeline": PIPELINE, "fails": FAILS}[script]
    runs = []
    for port in (bench.cluster.port, open_door.port):
        with psycopg.connect(bench.cluster.dsn(bench.db), autocommit=True) as direct:
            direct.execute("TRUNCATE t")
        with Recorder(port) as recorder:
            code, out = Pgbench(bench, text, port=recorder.port, turns=3).end()
        runs.append((code, TIMES.sub("", out), [c.comparable() for c in recorder.conversations]))
    (code, out, wires), (code_by_proxy, out_by_proxy, proxied) = runs
    assert code == (2 if script == "fails" else 0), out
    assert (code, out) == (code_by_proxy, out_by_proxy)
    differs = compare(wires, proxied)
    assert not differs, differs


def test_push(bench):
    """Literal, bound, returning."""
    q = bench.queue()
    run(bench, """
        \\set n 41 + 1
        QUEUE PUSH %s '{"a": "what?"}';
        QUEUE PUSH %s :n;
        QUEUE PUSH %s '3' RETURNING ID \\gset job_
        INSERT INTO sent VALUES (:job_id);
        """ % (q, q, q), turns=2)
    jobs = bench.wire.rows("QUEUE PEEK %s LIMIT 9" % q)
    assert [r["payload"] for r in jobs] == ['{"a": "what?"}', "42", "3"] * 2
    assert sent(bench) == [int(r["id"]) for r in jobs if r["payload"] == "3"]


def test_take_and_done(bench):
    """A worker: takes what there is, does it, and is done; two at once; none."""
    q = bench.queue()
    bench.push(q, *map(str, range(4)))
    run(bench, """
        \\set job_id 0
        QUEUE TAKE %s \\aset job_
        \\if :job_id > 0
        BEGIN;
        INSERT INTO sent VALUES (:job_id);
        QUEUE DONE :job_id;
        COMMIT;
        \\endif
        """ % q, turns=5)
    assert bench.stats(q) == {} and len(sent(bench)) == 4
    bench.push(q, "1", "2", "3")
    run(bench, "\\set n 2\nQUEUE TAKE %s LIMIT :n \\aset job_\nQUEUE FAIL :job_id ERROR 'no';\n" % q)
    assert bench.stats(q) == {"ready": 1, "leased": 1, "later": 1}  # it said goodbye


@pytest.mark.parametrize("block", [False, True])
def test_wait(bench, block):
    """Outside of a transaction, and as the first thing in one."""
    q = bench.queue()
    p = Pgbench(bench, """
        %s
        QUEUE TAKE %s WAIT '60s' \\gset job_
        INSERT INTO sent VALUES (:job_id);
        QUEUE DONE :job_id;
        %s
        """ % ("BEGIN;" if block else "", q, "COMMIT;" if block else ""))
    bench.parked()
    bench.push(q, "1")
    code, out = p.end()
    assert code == 0, out
    assert bench.stats(q) == {} and len(sent(bench)) == 1


def test_pipeline(bench):
    """Statements that are sent together: PUSH, TAKE and what is not QUEUE; a transaction of them."""
    if not bench.driver.batch:
        pytest.skip("no pipelines in the simple protocol")
    q = bench.queue()
    run(bench, """
        \\startpipeline
        INSERT INTO sent VALUES (:client_id + 1);
        QUEUE PUSH %s :client_id;
        INSERT INTO sent VALUES (:client_id + 2);
        \\endpipeline
        \\startpipeline
        BEGIN;
        INSERT INTO sent VALUES (:client_id + 3);
        QUEUE PUSH %s :client_id;
        ROLLBACK;
        \\endpipeline
        \\startpipeline
        QUEUE TAKE %s;
        SELECT 1;
        QUEUE TAKE %s;
        \\endpipeline
        """ % (q, q, q, q))
    assert sent(bench) == [1, 2]
    assert bench.stats(q) == {"leased": 1}


def test_late(bench):
    """DONE of a job that is not held any more fails the script, with qbouncer's words."""
    q = bench.queue()
    bench.push(q, "1")
    code, out = Pgbench(bench, "QUEUE TAKE %s \\gset job_\nQUEUE RELEASE :job_id;\nQUEUE DONE :job_id;\n" % q).end()
    assert code == 2 and re.search(r"aborted in command 2 .*job \d+ is not held by this connection", out)
    assert bench.stats(q) == {"ready": 1}


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_death(bench, end):
    """Its job is given back; where it waits, nobody is given one."""
    q = bench.queue()
    bench.push(q, "1")
    p = Pgbench(bench, "QUEUE TAKE %s \\gset job_\nQUEUE TAKE %s WAIT '60s';\n" % (q, q))
    bench.parked()
    getattr(p.process, end)()
    p.end()
    bench.nobody_waits()
    assert bench.given_back(q)["error"] == "worker disconnected"


def test_goodbye_keeps_the_lease(bench):
    q = bench.queue()
    bench.push(q, "1")
    run(bench, "QUEUE TAKE %s;\n" % q)
    wait_for(lambda: bench.stats(q) == {"leased": 1}, "the lease is kept")
