"""Each driver's program, command by command: what its user is told.

What is not QUEUE is done twice, directly and through the proxy: the answers and the bytes are the same."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import JOB_COLUMNS
from record import Recorder, compare

NAMES = [name for name, _ in JOB_COLUMNS]
OIDS = [oid for _, oid in JOB_COLUMNS]

# What drivers call the types, in their own words or by OID.
TYPES = {"20": 20, "int8": 20, "bigint": 20, "25": 25, "text": 25, "23": 23, "int4": 23, "integer": 23,
         "3802": 3802, "jsonb": 3802, "1184": 1184, "timestamptz": 1184, "timestamp with time zone": 1184}

# (command, what it must give: a list is the rows, a text an SQLSTATE, None whatever Postgres gives)
ROWS = [[str(i), "row %d" % i] for i in range(1, 8)]
PLAIN = [
    (("query", "SELECT 1 AS one, 'x'::text AS two, NULL::text AS three"), [["1", "x", None]]),
    (("query", "SELECT 'öäü €'::text AS a, ''::text AS b"), [["öäü €", ""]]),
    (("exec", "DELETE FROM t"), None),
    (("exec", "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 7) i"), 7),
    (("exec", "INSERT INTO t VALUES ($1, $2)", "i:8", "s:it's"), 1),
    (("query", "SELECT b FROM t WHERE a = $1", "i:8"), [["it's"]]),
    (("exec", "UPDATE t SET b = $1 WHERE a = $2", "s:new", "i:8"), 1),
    (("exec", "UPDATE t SET b = $1 WHERE a = $2", "n:", "i:800"), 0),
    (("exec", "DELETE FROM t WHERE a = $1", "i:8"), 1),
    (("query", "SELECT a, b FROM t ORDER BY a"), ROWS),
    (("query", "SELECT a, b FROM t WHERE a > $1", "i:100"), []),
    (("query", "SELECT count(*) FROM t"), [["7"]]),
    (("query", "SELECT 1/0"), "22012"),
    (("query", "SELECT * FROM nosuch"), "42P01"),
    (("exec", "INSERT INTO t VALUES ($1, $2)", "i:1", "s:again"), "23505"),
    (("exec", "nonsense"), "42601"),
    (("query", "SELECT 2"), [["2"]]),
    (("query", "SELECT repeat('x', 100000)"), [["x" * 100000]]),
    (("query", "SELECT i FROM generate_series(1, 2000) i"), [[str(i)] for i in range(1, 2001)]),
    (("ping",), None),
    (("begin",), None),
    (("exec", "UPDATE t SET b = b"), 7),
    (("query", "SELECT a FROM t WHERE a = $1", "i:3"), [["3"]]),
    (("commit",), None),
    (("begin",), None),
    (("exec", "DELETE FROM t"), 7),
    (("rollback",), None),
    (("begin",), None),
    (("query", "SELECT 1/0"), "22012"),
    (("query", "SELECT 3"), "25P02"),
    (("rollback",), None),
    (("begin",), None),
    (("commit",), None),
    (("query", "SELECT a FROM t ORDER BY a LIMIT 1"), [["1"]]),
] + [(("prepare", "SELECT b FROM t WHERE a = $1", "i:%d" % i), [["row %d" % i]]) for i in range(1, 8)] + [
    (("prepare", "SELECT b FROM t WHERE b = $1", "s:row 2"), [["row 2"]]),
    (("binary", "SELECT a, b FROM t ORDER BY a"), ROWS),
    (("stream", "SELECT a, b FROM t ORDER BY a"), ROWS),
    (("cursor", "SELECT a, b FROM t ORDER BY a", "i:3"), ROWS),
    (("cursor", "SELECT nonsense FROM t", "i:3"), "42703"),
    (("batch", "UPDATE t SET b = b WHERE a = $1", "i:1", "i:2", "i:3"), None),
    (("batch", "INSERT INTO t VALUES ($1, 'x')", "i:20", "i:1", "i:21"), "23505"),
    (("pool", "3"), None),
    (("reconnect",), None),
    (("query", "SELECT count(*) FROM t WHERE a < 20"), [["7"]]),
    (("prepare", "SELECT b FROM t WHERE a = $1", "i:4"), [["row 4"]]),
]

OPTIONAL = {"ping": "ping", "prepare": "prepared", "binary": "binary", "stream": "stream", "cursor": "limited",
            "batch": "batch", "pool": "pool", "begin": "transactions", "commit": "transactions",
            "rollback": "transactions"}


def able(driver, verb):
    return verb not in OPTIONAL or bool(getattr(driver, OPTIONAL[verb]))


def check(driver, command, got, expected):
    """The answer is what any driver must give."""
    if not able(driver, command[0]):
        assert got == {"skip": command[0]}, "%s is able to %s: %s" % (driver.name, command[0], got)
    elif isinstance(expected, str):
        assert got.get("error") == expected, (command, got)
    else:
        assert "error" not in got and "skip" not in got, (command, got)
        if isinstance(expected, list):
            assert got["rows"] == expected, (command, got)
        if isinstance(expected, int) and driver.push is not None:
            count = got["tag"].split()[-1] if "tag" in got else got["count"]
            assert str(count) == str(expected) or (expected == 0 and count == "0E0"), (command, got)


def play(bench, port):
    """All of PLAIN by a program of its own: its answers and its conversations."""
    bench.wire.rows("TRUNCATE t")
    with Recorder(port) as recorder:
        program = bench.start(recorder.port)
        answers = []
        for command, expected in PLAIN:
            if expected == "25P02" and not (bench.driver.transactions and bench.driver.aborts):
                continue
            got = program.ask(*command)
            check(bench.driver, command, got, expected)
            answers.append((command, got))
        program.close()
    return answers, [c.comparable(bench.driver.varying) for c in recorder.conversations]


def test_same_conversation(bench, cluster, open_door):
    """Not QUEUE: what the user sees and what goes over the wire are the same, byte for byte. A pool that
    picks its connections as its threads happen to run gets three tries at doing so alike."""
    for left in reversed(range(3 if bench.driver.pool else 1)):
        said, wires = play(bench, cluster.port)
        said_by_proxy, proxied = play(bench, open_door.port)
        for a, b in zip(said, said_by_proxy):
            assert a == b
        differs = compare(wires, proxied)
        if not differs or not left:
            break
    assert not differs, differs


# --- QUEUE -------------------------------------------------------------------------------------------


def count(driver, got):
    return got.get("tag", got.get("count"))


def take(program, queue, more=""):
    """The one job, as a dict."""
    got = program.ok("query", "QUEUE TAKE %s%s" % (queue, more))
    assert len(got["rows"]) == 1, got
    return dict(zip(NAMES, got["rows"][0]))


def payloads(got):
    return [row[NAMES.index("payload")] for row in got["rows"]]


def test_push(bench):
    p, q = bench.program(), bench.queue()
    driver = bench.driver
    assert count(driver, p.ok("exec", "QUEUE PUSH %s '1'" % q)) == driver.push
    assert count(driver, p.ok("exec", "QUEUE PUSH %s $1" % q, 's:{"to": "it\'s"}')) == driver.push
    for command in (("QUEUE PUSH %s '3' RETURNING ID" % q,), ("QUEUE PUSH %s $1 RETURNING ID" % q, "s:4")):
        got = p.ok("query", *command)
        assert [len(row) for row in got["rows"]] == [1] and got["rows"][0][0].isdigit(), got
        assert got.get("columns", ["id"]) == ["id"]
    got = p.ask("query", "QUEUE PUSH nosuch '1' RETURNING ID")
    assert got["error"] == "42P01", got
    assert p.ask("exec", "QUEUE PUSH %s 'no json'" % q)["error"] == "22P02"
    assert bench.stats(q) == {"ready": 4}
    assert [r["payload"] for r in bench.wire.rows("QUEUE PEEK %s LIMIT 9" % q)] == ["1", '{"to": "it\'s"}', "3", "4"]


def test_take(bench):
    """Rows, none, several; the columns and their types are told also of none."""
    p, q = bench.program(), bench.queue()
    none = p.ok("query", "QUEUE TAKE " + q)
    assert none["rows"] == []
    bench.push(q, "1", "2", "3")
    one = p.ok("query", "QUEUE TAKE " + q)
    assert payloads(one) == ["1"]
    assert payloads(p.ok("query", "QUEUE TAKE %s LIMIT $1" % q, "s:5")) == ["2", "3"]
    for got in (one, none) if none.get("columns") else (one,):
        assert got["columns"] == NAMES
        if bench.driver.types:
            assert [TYPES[t.lower()] for t in got["types"]] == OIDS
        else:
            assert not got.get("types")


def test_take_by_prepared_statement(bench):
    p, q = bench.program(), bench.queue()
    if not bench.driver.prepared:
        pytest.skip("prepares nothing")
    bench.push(q, *map(str, range(7)))
    for i in range(7):
        assert payloads(p.ok("prepare", "QUEUE TAKE %s WAIT $1" % q, "s:1s")) == [str(i)]
    assert p.ok("prepare", "QUEUE TAKE %s WAIT $1" % q, "s:20ms")["rows"] == []
    ids = {p.ok("prepare", "QUEUE PUSH %s $1 RETURNING ID" % q, "s:7")["rows"][0][0] for _ in range(6)}
    assert len(ids) == 6


def test_wait(bench):
    p, q = bench.program(), bench.queue()
    assert p.ok("query", "QUEUE TAKE %s WAIT '20ms'" % q)["rows"] == []
    for command in (("QUEUE TAKE %s WAIT '60s'" % q,), ("QUEUE TAKE %s WAIT $1" % q, "s:60s")):
        p.send("query", *command)
        bench.parked()
        bench.push(q, "5")
        assert payloads(p.answer()) == ["5"]
    assert p.ok("query", "SELECT 6")["rows"] == [["6"]]


def test_row_limited_take(bench):
    """A fetch of two rows at a time is no way to take more than two, and loses nothing."""
    p, q = bench.program(), bench.queue()
    if bench.driver.limited is None:
        pytest.skip("has no cursors")
    bench.push(q, *map(str, range(5)))
    got = p.ask("cursor", "QUEUE TAKE %s LIMIT 5" % q, "i:2")
    if isinstance(bench.driver.limited, str):
        assert got["error"] == bench.driver.limited, got
        assert bench.stats(q) == {"ready": 5}
    else:
        n = bench.driver.limited
        assert payloads(got) == [str(i) for i in range(n)], got
        wait_for(lambda: bench.stats(q) == {k: v for k, v in (("ready", 5 - n), ("leased", n)) if v}, "the rest")
    assert p.ok("query", "SELECT 6")["rows"] == [["6"]]


def test_first_row(bench):
    """A fetch of one row only (asyncpg's fetchrow is an Execute with that limit)."""
    p, q = bench.program(), bench.queue()
    bench.push(q, "1", "2")
    got = p.ask("first", "QUEUE TAKE %s LIMIT 2" % q)
    if "skip" in got:
        pytest.skip("has no such thing")
    assert payloads(got) == ["1"]
    assert bench.stats(q) == {"ready": 1, "leased": 1}


def test_take_by_stream_and_binary(bench):
    p, q = bench.program(), bench.queue()
    ways = [way for way in ("stream", "binary") if getattr(bench.driver, way)]
    if not ways:
        pytest.skip("has neither")
    for way in ways:
        bench.push(q, "1")
        assert payloads(p.ok(way, "QUEUE TAKE " + q)) == ["1"]


def test_end_of_jobs(bench):
    """DONE by token and by id, FAIL, and too late."""
    p, q, driver = bench.program(), bench.queue(), bench.driver
    p.ok("reconnect")  # the ids of its other jobs would be as short
    bench.push(q, "1", "2", "3", "4")
    first, second, third, fourth = (take(p, q) for _ in range(4))
    assert count(driver, p.ok("exec", "QUEUE DONE $1", "s:" + first["token"])) == driver.done
    assert count(driver, p.ok("exec", "QUEUE DONE " + second["id"])) == driver.done
    assert count(driver, p.ok("exec", "QUEUE FAIL $1 ERROR $2", "s:" + third["token"], "s:it's gone")) == driver.done
    assert bench.stats(q) == {"later": 1, "leased": 1}
    assert bench.wire.rows("QUEUE PEEK %s STATE later" % q)[0]["error"] == "it's gone"
    assert count(driver, p.ok("exec", "QUEUE RELEASE '%s'" % fourth["token"])) == driver.done
    late = p.ask("exec", "QUEUE DONE $1", "s:" + fourth["token"])
    assert late["error"] == "QB001", late
    assert p.ask("exec", "QUEUE DONE $1", "s:" + third["token"])["error"] == "QB001"
    assert bench.stats(q) == {"later": 1, "ready": 1}


def test_batch(bench):
    """Several pushes at once, as the driver does it."""
    if not bench.driver.batch:
        pytest.skip("has no batches")
    p, q = bench.program(), bench.queue()
    p.ok("batch", "QUEUE PUSH %s $1" % q, *("s:%d" % i for i in range(10)))
    assert bench.stats(q) == {"ready": 10}
    assert p.ask("batch", "QUEUE PUSH %s $1" % q, "s:1", "s:no json", "s:3")["error"] == "22P02"


def test_transaction(bench):
    """BEGIN, the wait, which holds no server, the work and DONE; then the same undone."""
    if not bench.driver.transactions:
        pytest.skip("has no transactions of its own")
    p, q, driver = bench.program(), bench.queue(), bench.driver
    p.ok("begin")
    p.send("query", "QUEUE TAKE %s WAIT '60s'" % q)
    bench.parked()
    wait_for(lambda: not [s for s in bench.proxy.console("SHOW SERVERS")
                          if s["database"] == bench.db and s["state"] == "active"], "no server is held")
    bench.push(q, "1")
    job = dict(zip(NAMES, p.answer()["rows"][0]))
    p.ok("exec", "INSERT INTO orders VALUES ($1)", "i:1")
    p.ok("exec", "QUEUE PUSH %s $1" % q, "s:2")
    p.ok("exec", "QUEUE DONE $1", "s:" + job["token"])
    assert bench.stats(q) == {"leased": 1}  # nothing is committed
    p.ok("commit")
    assert bench.stats(q) == {"ready": 1}

    p.ok("begin")
    job = take(p, q)
    p.ok("exec", "QUEUE DONE $1", "s:" + job["token"])
    p.ok("exec", "QUEUE PUSH %s $1" % q, "s:3")
    p.ok("rollback")
    assert bench.given_back(q)["error"] == "transaction rolled back"
    assert take(p, q, " WAIT '30s'")["attempt"] == "2"  # the table may know of it before the proxy does

    p.ok("begin")
    p.ok("query", "SELECT 1")
    refused = p.ask("query", "QUEUE TAKE %s WAIT '60s'" % q)
    assert refused["error"] == "25001", refused
    if driver.aborts:
        assert p.ask("query", "QUEUE TAKE " + q)["error"] == "25P02"
    p.ok("rollback")
    assert p.ok("query", "QUEUE TAKE " + q)["rows"] == []


def test_cancel(bench):
    """The driver's own way to cancel ends the wait; the connection goes on, and no job is lost."""
    p, q, driver = bench.program(), bench.queue(), bench.driver
    if driver.cancel is None:
        assert "skip" in p.ask("cancel", "SELECT 1")
        pytest.skip("has no cancel")
    p.send("cancel", "QUEUE TAKE %s WAIT '60s'" % q)
    bench.parked()
    p.send("now")
    got = p.answer()
    assert got.get("error") == driver.cancel, got
    bench.nobody_waits()
    bench.push(q, "1")
    assert bench.stats(q) == {"ready": 1}
    if p.ask("query", "SELECT 6").get("rows") != [["6"]]:
        p.ok("reconnect")
    assert payloads(p.ok("query", "QUEUE TAKE " + q)) == ["1"]


def test_client_side_timeout(bench):
    """What the driver does when it has waited for long enough, and what then becomes of the connection."""
    p, q, driver = bench.program(), bench.queue(), bench.driver
    if driver.timeout is None:
        assert "skip" in p.ask("timeout", "SELECT 1")
        pytest.skip("has no time-out")
    got = p.ask("timeout", "QUEUE TAKE %s WAIT '60s'" % q)
    assert got.get("error") == driver.timeout, got
    if driver.after == "blocked":
        bench.parked()
        bench.push(q, "1")  # the wait that nobody listens to gets it
        assert p.ok("query", "SELECT 6")["rows"] == [["6"]]
        wait_for(lambda: bench.stats(q) == {"leased": 1}, "the job went to nobody")
        return
    if driver.after in ("goes on", "closed"):
        bench.nobody_waits()
    usable = p.ask("query", "SELECT 6").get("rows") == [["6"]]
    assert usable == (driver.after in ("goes on", "replaced")), "%s: is usable: %s" % (driver.name, usable)
    if not usable:
        p.ok("reconnect")
    bench.nobody_waits()
    bench.push(q, "1")
    assert payloads(p.ok("query", "QUEUE TAKE " + q)) == ["1"]


def test_goodbye_keeps_the_lease(bench):
    q = bench.queue()
    bench.push(q, "1")
    p = bench.start()
    take(p, q)
    p.close()
    wait_for(lambda: bench.stats(q) == {"leased": 1}, "the lease is kept")


def test_death_gives_the_job_back(bench):
    q = bench.queue()
    bench.push(q, "1", "2")
    p = bench.start()
    take(p, q)
    p.kill()
    assert bench.given_back(q)["error"] == "worker disconnected"
    assert bench.stats(q) == {"ready": 2}


def test_death_while_waiting(bench):
    """Nobody is given the job."""
    q = bench.queue()
    p = bench.start()
    p.send("query", "QUEUE TAKE %s WAIT '60s'" % q)
    bench.parked()
    p.kill()
    bench.nobody_waits()
    bench.push(q, "1")
    assert bench.stats(q) == {"ready": 1}


def test_worker_and_producer(bench, cluster):
    """The code that doc/drivers.md shows."""
    if not bench.driver.example:
        pytest.skip("has no example of its own")
    p = bench.program()
    with psycopg.connect(cluster.dsn(bench.db), autocommit=True) as direct:
        direct.execute("TRUNCATE orders")
        for i in (1, -2, 3):
            p.ok("produce", str(i))
        assert direct.execute("SELECT a FROM orders ORDER BY a").fetchall() == [(-2,), (1,), (3,)]
        for _ in range(3):
            assert p.ok("work") == {"ok": True}
        assert direct.execute("SELECT a FROM sent ORDER BY a").fetchall() == [(1,), (3,)]
    left = bench.wire.rows("QUEUE PEEK mail LIMIT 9")
    assert len(left) == 1 and left[0]["state"] == "later", left
    assert "sent_a_check" in left[0]["error"]


def test_worker_goes_on(bench, cluster):
    """The same code, when its lease is lost under it (what it then says of the job is QB001, which is no reason to
    end), and when what fails is not the database."""
    if not bench.driver.example:
        pytest.skip("has no example of its own")
    p = bench.program()
    with psycopg.connect(cluster.dsn(bench.db), autocommit=True) as direct:
        direct.execute("""TRUNCATE sent;
            CREATE OR REPLACE FUNCTION longer_than_the_lease() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$;
            DROP TRIGGER IF EXISTS long ON sent;
            CREATE TRIGGER long BEFORE INSERT ON sent FOR EACH ROW EXECUTE FUNCTION longer_than_the_lease()""")
    bench.wire.rows("QUEUE ALTER mail SET (lease = '1ms', retry = 'fixed 1h', max_attempts = 1000)")
    p.ok("produce", "1")
    assert p.ok("work") == {"ok": True}
    bench.wire.rows("QUEUE ALTER mail SET (lease = '5min')")
    bench.wire.rows("QUEUE PURGE mail")
    p.ok("produce", "3")
    assert p.ok("work") == {"ok": True}
    with psycopg.connect(cluster.dsn(bench.db), autocommit=True) as direct:
        assert direct.execute("SELECT DISTINCT a FROM sent").fetchall() == [(3,)]
    if bench.driver.language == "Python":
        bench.wire.rows("QUEUE PUSH mail '[]'")
        assert p.ok("work") == {"ok": True}
        (left,) = bench.wire.rows("QUEUE PEEK mail")
        assert left["state"] == "later" and left["error"], left
