"""A worker in each of psql, psycopg with and without autocommit, psycopg2: it waits, wakes, finishes,
and is fenced when it is late. The one in Node is test_queue_node.py."""

import json
import os
import queue
import select
import subprocess
import threading

import psycopg
import psycopg2
import pytest

from pgcluster import pg_bin, pg_major
from proxy import wait_for
from queuetest import HEARTBEAT, error, q, stats, tag, take  # noqa: F401


@pytest.fixture
def qproxy(qbouncer):
    return qbouncer(queue_heartbeat=HEARTBEAT, queue_rescan="1h")


def wait_for_waiter(proxy):
    wait_for(lambda: proxy.console("SHOW WAITERS"), "a waiter")


class Psql:
    """psql at a pipe, line by line."""

    def __init__(self, proxy, db):
        self.p = subprocess.Popen([os.path.join(pg_bin(), "psql"), "-X", "-q", "-A", "-t", proxy.dsn(db)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.seen = b""

    def send(self, text):
        self.p.stdin.write(text.encode() + b"\n\\echo READY\n")
        self.p.stdin.flush()

    def read(self):
        """What it printed up to READY; waits."""
        while b"READY\n" not in self.seen:
            assert select.select([self.p.stdout], [], [], 20)[0], self.seen
            got = os.read(self.p.stdout.fileno(), 65536)
            assert got, self.seen
            self.seen += got
        out, self.seen = self.seen.split(b"READY\n", 1)
        return out.decode().strip()

    def __call__(self, text):
        self.send(text)
        return self.read()

    def end(self):
        self.p.stdin.close()
        self.p.wait(20)
        self.p.stdout.close()


@pytest.mark.parametrize("mode", ["autocommit", "no autocommit", "error rollback"])
def test_psql(qproxy, db, q, mode):
    psql = Psql(qproxy, db)
    try:
        if mode == "no autocommit":
            psql("\\set AUTOCOMMIT off")
        if mode == "error rollback":
            psql("\\set ON_ERROR_ROLLBACK on")
        psql.send("QUEUE TAKE mail WAIT '30s' LEASE '10 min' AS 'psql' \\gset job_")
        wait_for_waiter(qproxy)
        tag(q, "QUEUE PUSH mail '{\"to\": \"a\"}'")
        assert psql.read() == ""
        assert json.loads(psql("\\echo :job_payload")) == {"to": "a"}
        assert psql("QUEUE DONE :'job_token';\nCOMMIT;") in ("", "WARNING:  there is no transaction in progress")
        assert stats(q) == dict(ready=0, later=0, leased=0, dead=0)
        # late
        tag(q, "QUEUE PUSH mail '1'")
        psql("QUEUE TAKE mail LEASE '50ms' \\gset job_\nCOMMIT;")
        job = take(q, "QUEUE TAKE mail WAIT '10s'")
        assert job["attempt"] == "2"
        out = psql("QUEUE DONE :'job_token';\n\\echo :SQLSTATE\nROLLBACK;")
        assert "QB001" in out and "the lease of job" in out
        assert tag(q, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
        # the work and the next job in one transaction
        psql("BEGIN;\nCREATE TABLE done_work (a int);\nQUEUE PUSH mail '2';\nROLLBACK;")
        assert stats(q)["ready"] == 0
        psql("BEGIN;\nCREATE TABLE done_work (a int);\nQUEUE PUSH mail '3';\nCOMMIT;")
        assert take(q)["payload"] == "3"
        assert "QUEUE TAKE" in psql("QUEUE HELP;")
        both = "1\n2" if pg_major() >= 15 else "2"  # before, psql showed the last result of one Query
        assert psql("SELECT 1 \\; QUEUE PUSH mail '4' \\; SELECT 2;") == both
    finally:
        psql.end()


def run_worker(proxy, connect, script):
    """script(conn) in a thread; gives a function that waits for what it returns."""
    out = queue.Queue()

    def run():
        try:
            conn = connect()
            try:
                out.put(script(conn))
            finally:
                conn.close()
        except Exception as e: # noqa: BLE001
            out.put(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        got = out.get(timeout=25)
        thread.join(5)
        if isinstance(got, Exception):
            raise got
        return got
    return result


def worker(conn, work):
    """Waits for a job, works and finishes in one transaction; then is late with the second job."""
    cur = conn.cursor()
    seen = []
    cur.execute("QUEUE TAKE mail WAIT '30s'")
    job = dict(zip([d[0] for d in cur.description], cur.fetchone()))
    cur.execute("INSERT INTO work VALUES (%s)", (work,))
    cur.execute("QUEUE DONE %s", (job["token"],))
    seen.append((job["payload"], job["attempt"], cur.rowcount))
    conn.commit()
    cur.execute("QUEUE TAKE mail WAIT '30s' LEASE '50ms'")
    job = cur.fetchone()
    conn.commit()
    cur.execute("QUEUE TAKE mail WAIT '30s'") # it comes back to itself, as somebody else's would
    again = cur.fetchone()
    conn.commit()
    try:
        cur.execute("INSERT INTO work VALUES (%s)", ("late",))
        cur.execute("QUEUE DONE %s", (job[1],))
        conn.commit()
        seen.append("not fenced")
    except (psycopg.Error, psycopg2.Error) as e:
        seen.append(getattr(e, "sqlstate", None) or e.pgcode)
        conn.rollback()
    cur.execute("QUEUE DONE %s", (again[1],))
    conn.commit()
    seen.append((again[0] == job[0], again[3]))
    return seen


WORKERS = {
    "psycopg": lambda dsn: psycopg.connect(dsn),
    "psycopg autocommit": lambda dsn: psycopg.connect(dsn, autocommit=True),
    "psycopg prepared": lambda dsn: psycopg.connect(dsn, prepare_threshold=0),
    "psycopg autocommit prepared": lambda dsn: psycopg.connect(dsn, autocommit=True, prepare_threshold=0),
    "psycopg2": lambda dsn: psycopg2.connect(dsn),
}


@pytest.mark.parametrize("kind", WORKERS)
def test_python(qproxy, db, q, direct, kind):
    direct.execute("CREATE TABLE work (a text); GRANT ALL ON work TO app")
    result = run_worker(qproxy, lambda: WORKERS[kind](qproxy.dsn(db)), lambda conn: worker(conn, kind))
    wait_for_waiter(qproxy)
    wait_for(lambda: direct.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state <> 'idle' AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'", (db,)).fetchone() == (0,), "that it holds no server")
    with qproxy.connect(db, autocommit=False) as conn:
        conn.execute("QUEUE PUSH mail %s", (json.dumps({"n": 1}),))
        conn.commit()
        conn.execute("QUEUE PUSH mail %s", (json.dumps({"n": 2}),))
        conn.commit()
    assert result() == [({"n": 1}, 1, 1), "QB001", (True, 2)]
    rows = [r[0] for r in direct.execute("SELECT a FROM work ORDER BY a")]
    # without a transaction the work of the late one stays: what autocommit means
    assert rows == ([kind] if "autocommit" not in kind else sorted([kind, "late"]))
    wait_for(lambda: stats(q) == dict(ready=0, later=0, leased=0, dead=0), "that all is done")


def test_psycopg_cancel(qproxy, db, q):
    """Ctrl-C in the driver."""
    conn = qproxy.connect(db)
    result = run_worker(qproxy, lambda: conn, lambda c: c.execute("QUEUE TAKE mail WAIT '30s'").fetchall())
    wait_for_waiter(qproxy)
    conn.cancel()
    with pytest.raises(psycopg.errors.QueryCanceled):
        result()


def test_psycopg_row_by_row(qproxy, db, q):
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    with qproxy.connect(db) as conn:
        with conn.cursor() as cur:
            assert [r[4] for r in cur.stream("QUEUE TAKE mail LIMIT 3")] == [1, 2, 3]
        with pytest.raises(psycopg.errors.SyntaxError):
            conn.execute("BEGIN")
            with conn.cursor("named") as cur:
                cur.execute("QUEUE TAKE mail")


def test_executemany(qproxy, db, q):
    with qproxy.connect(db) as conn:
        with conn.cursor() as cur:
            cur.executemany("QUEUE PUSH mail %s PRIORITY %s", [(str(n), n % 3) for n in range(50)])
            assert cur.rowcount in (50, 1)
        assert stats(q)["ready"] == 50
        rows = conn.execute("QUEUE TAKE mail LIMIT 100").fetchall()
        assert [r[8] for r in rows] == sorted([n % 3 for n in range(50)], reverse=True)
        with conn.cursor() as cur:
            cur.executemany("QUEUE DONE %s", [(r[1],) for r in rows])
        assert stats(q)["leased"] == 0


def test_show_waiters_names_the_worker(qproxy, db):
    with qproxy.wire(db) as a, qproxy.wire(db) as b:
        tag(a, "QUEUE CREATE mail")
        a.query("QUEUE TAKE mail WAIT '1 min' AS 'mailer on host7'")
        b.query("QUEUE TAKE mail WAIT '1 min'")
        wait_for(lambda: sorted(str(r["worker"]) for r in qproxy.console("SHOW WAITERS")) ==
                 ["None", "mailer on host7"], "two waiters, one with a name")
