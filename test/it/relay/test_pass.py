"""Ordinary traffic passes as if nobody were in between."""

import os
import subprocess

import psycopg
import psycopg2
import psycopg2.extensions
import pytest

from pgcluster import pg_bin, pg_major
from proxy import wait_for
from pgwire import Wire, types


def run(program, *arguments, text=None, check=True):
    done = subprocess.run([os.path.join(pg_bin(), program), *arguments], input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50,
                          check=False)
    assert not check or done.returncode == 0, done.stdout
    return done.stdout


def psql(proxy, db, text, *more):
    return run("psql", "-X", "-A", "-t", "-q", proxy.dsn(db), *more, text=text)


def test_psql(proxy, db):
    assert psql(proxy, db, "SELECT 1, 'zwei', NULL;") == "1|zwei|\n"
    out = psql(proxy, db, """
        CREATE TABLE t (a int, b text);
        INSERT INTO t SELECT i, repeat('x', i) FROM generate_series(1, 100) i;
        SELECT count(*), sum(length(b)) FROM t;
        SELECT 1 \\; SELECT 2;
        SELECT nonsense;
        SELECT 'still here';
    """)
    both = "1\n2\n" if pg_major() >= 15 else "2\n"  # before, psql showed the last result of one Query
    assert "100|5050\n" + both in out
    assert 'column "nonsense" does not exist' in out
    assert out.endswith("still here\n")


def test_psql_transaction_and_savepoint(proxy, db):
    out = psql(proxy, db, """
        CREATE TABLE t (a int);
        BEGIN;
        INSERT INTO t VALUES (1);
        SAVEPOINT s;
        INSERT INTO t VALUES (2);
        ROLLBACK TO s;
        COMMIT;
        BEGIN;
        INSERT INTO t VALUES (3);
        ROLLBACK;
        SELECT a FROM t;
    """)
    assert out == "1\n"


def test_psql_autocommit_off_with_error_rollback(proxy, db):
    out = psql(proxy, db, """
        \\set AUTOCOMMIT off
        \\set ON_ERROR_ROLLBACK on
        CREATE TABLE t (a int);
        INSERT INTO t VALUES (1);
        SELECT 1/0;
        INSERT INTO t VALUES (2);
        COMMIT;
        SELECT sum(a) FROM t;
    """)
    assert out.endswith("3\n")


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_pgbench(proxy, db, protocol):
    run("pgbench", "-i", "-q", "-s", "1", proxy.dsn(db))
    # A thread per client: pgbench prepares synchronously, so with more clients than servers one
    # thread would wait for a server that its own other clients hold.
    out = run("pgbench", "-M", protocol, "-c", "10", "-j", "10", "-t", "40", proxy.dsn(db))
    assert "number of transactions actually processed: 400/400" in out
    out = run("pgbench", "-n", "-S", "-M", protocol, "-c", "10", "-t", "100", proxy.dsn(db))
    assert "1000/1000" in out


def test_pgbench_reconnects(proxy, db):
    run("pgbench", "-i", "-q", proxy.dsn(db))
    out = run("pgbench", "-n", "-S", "-C", "-c", "4", "-t", "10", proxy.dsn(db))
    assert "40/40" in out


def test_pgbench_pipeline(proxy, db, tmp_path):
    if pg_major() < 14:
        pytest.skip("pgbench has \\startpipeline since PostgreSQL 14")
    script = tmp_path / "pipeline.sql"
    script.write_text("\\startpipeline\nSELECT 1;\nSELECT 2;\nSELECT 3;\n\\endpipeline\n")
    out = run("pgbench", "-n", "-M", "extended", "-f", str(script), "-c", "4", "-t", "25",
              proxy.dsn(db))
    assert "100/100" in out


def test_psycopg(proxy, db):
    with proxy.connect(db, autocommit=False) as conn:
        conn.execute("CREATE TABLE t (a int, b jsonb, c bytea)")
        conn.execute("INSERT INTO t VALUES (%s, %s, %s)", (1, '{"x": [1]}', b"\0\1\xff"))
        conn.commit()
        assert conn.execute("SELECT a, b, c FROM t").fetchone() == (1, {"x": [1]}, b"\0\1\xff")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            conn.execute("SELECT 1")
        conn.rollback()
        with conn.cursor(binary=True) as cur:
            for i in range(12): # prepared from the sixth on
                assert cur.execute("SELECT %s + 1", (i,)).fetchone() == (i + 1,)
        conn.rollback()


def test_psycopg_pipeline(proxy, db):
    with proxy.connect(db) as conn, conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", (i,)) for i in range(50)]
        assert [c.fetchone()[0] for c in cursors] == list(range(50))


def test_server_side_cursor(proxy, db):
    with proxy.connect(db, autocommit=False) as conn:
        with conn.cursor(name="c") as cur:
            cur.itersize = 10
            cur.execute("SELECT generate_series(1, 95)")
            assert [r[0] for r in cur] == list(range(1, 96))


def test_psycopg2_large_object(proxy, db):
    """Large objects use FunctionCall messages."""
    with psycopg2.connect(proxy.dsn(db)) as conn:
        lob = conn.lobject(0, "wb")
        data = os.urandom(300000)
        lob.write(data)
        oid = lob.oid
        lob.close()
        assert conn.lobject(oid, "rb").read() == data
    conn.close()


def test_notice(proxy, db):
    with proxy.wire(db) as c:
        got = c.query("DO $$BEGIN RAISE NOTICE 'hello'; END$$").until("Z", skip="SA")
        assert types(got) == "NCZ"
        assert got[0].fields["M"] == "hello"


def test_notification_in_session_mode(qbouncer, db):
    proxy = qbouncer(pool_mode="session")
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("LISTEN ch")
        b.simple("NOTIFY ch, 'payload'")
        assert a.until("A", skip="")[-1].body.endswith(b"ch\0payload\0")


def test_statuses(proxy, db):
    with proxy.wire(db) as c:
        assert types(c.simple("")) == "IZ"
        assert types(c.simple("-- ping")) == "IZ"
        assert c.simple("BEGIN")[-1].status == "T"
        assert c.simple("SELECT 1/0")[-1].status == "E"
        got = c.simple("SELECT 1")
        assert got[0].sqlstate == "25P02" and got[-1].status == "E"
        assert c.simple("ROLLBACK")[-1].status == "I"
        assert types(c.sync().until("Z")) == "Z"


def test_parameter_status_at_login(proxy, db):
    with proxy.wire(db, application_name="it") as c:
        for name in ("server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone",
                     "IntervalStyle", "standard_conforming_strings", "integer_datetimes",
                     "is_superuser", "session_authorization"):
            assert name in c.parameters, name
        assert c.parameters["application_name"] == "it"
        assert c.pid is not None and len(c.key) >= 4


@pytest.mark.parametrize("asked, told", [
    ("UNICODE", "UNICODE"), ("unicode", "UTF8"), ("utf-8", "UTF8"), ("latin-1", "LATIN1")])
def test_encoding_by_the_name_that_postgres_reports(proxy, cluster, db, asked, told):
    """It leaves UNICODE as it is, in capitals only."""
    for port in (cluster.port, proxy.port):
        with Wire(port).startup(user="app", database=db, client_encoding=asked) as c:
            assert c.parameters["client_encoding"] == told
            assert c.rows("SHOW client_encoding") == [{"client_encoding": told}]


def test_extended_error_skips_to_sync(proxy, db):
    with proxy.wire(db) as c:
        c.hold()
        c.parse("", "SELECT 1/(random()*0)::int").bind().execute()
        c.parse("", "SELECT 2").bind().execute().sync()
        c.parse("", "SELECT 3").bind().execute().sync().push()
        first, second = c.until("Z"), c.until("Z")
        assert types(first) == "12EZ" and first[2].sqlstate == "22012"
        assert types(second) == "12DCZ" and second[2].text_row == ["3"]


def test_flush(proxy, db):
    with proxy.wire(db) as c:
        got = c.parse("", "SELECT 7").describe("S").flush().until("T")
        assert types(got) == "1tT"
        got = c.bind().execute().flush().until("C")
        assert types(got) == "2DC"
        assert c.silent()
        assert types(c.sync().until("Z")) == "Z"


def test_portal_with_row_limit(proxy, db):
    with proxy.wire(db) as c:
        c.parse("", "SELECT generate_series(1, 5)").bind("p").execute("p", 2).flush()
        assert types(c.until("s")) == "12DDs"
        c.execute("p", 2).flush()
        assert types(c.until("s")) == "DDs"
        got = c.execute("p", 2).sync().until("Z")
        assert types(got) == "DCZ"
        assert got[1].tag == "SELECT 1"


def test_query_in_the_middle_of_a_pipeline(proxy, db):
    with proxy.wire(db) as c:
        c.hold().parse("", "SELECT 1").bind().execute().query("SELECT 2").sync().push()
        assert types(c.until("Z")) == "12DCTDCZ"
        assert types(c.until("Z")) == "Z"


def test_many_messages_in_one_write(proxy, db):
    with proxy.wire(db) as c:
        c.hold()
        for i in range(500):
            c.query("SELECT %d" % i)
        c.push()
        for i in range(500):
            assert c.until("Z")[1].text_row == [str(i)]


def test_byte_by_byte(proxy, db):
    with proxy.wire() as c:
        c.hold().startup("app", db, wait=False).query("SELECT 'slow'")
        data, c.held = c.held, None
        for i in range(len(data)):
            c.sock.send(data[i:i + 1])
        c.login()
        assert c.until("Z")[1].text_row == ["slow"]


def test_unix_socket(proxy, db):
    with proxy.connect(db, host=proxy.dir) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_notify_version(proxy, db):
    """Protocol 3.2 and unknown _pq_ options are negotiated, not refused."""
    with proxy.wire() as c:
        c.startup("app", db, version=(3 << 16) | 9999, wait=False, **{"_pq_.nonsense": "1"})
        c.login()
        v = [m for m in c.log if m.type == "v"]
        assert len(v) == 1 and b"_pq_.nonsense\0" in v[0].body
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_ssl_and_gss_requests(proxy, db):
    from pgwire import GSS, SSL
    with proxy.wire() as c:
        c.packet(SSL)
        assert c.read_bytes(1) == b"N"
        c.packet(GSS)
        assert c.read_bytes(1) == b"N"
        c.startup("app", db)
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_startup_options_that_drivers_send(proxy, db):
    with proxy.wire(db, extra_float_digits="3", options="-c statement_timeout=12s") as c:
        assert c.rows("SHOW statement_timeout")[0]["statement_timeout"] in ("12s", "0")
    with proxy.wire(db, DateStyle="SQL, DMY", TimeZone="Asia/Tokyo") as c:
        assert c.rows("SHOW DateStyle")[0]["DateStyle"] == "SQL, DMY"
        assert c.rows("SHOW TimeZone")[0]["TimeZone"] == "Asia/Tokyo"


def test_a_client_that_vanishes(proxy, db, direct):
    """In the middle of a transaction: its server is not given to somebody else as it was."""
    with proxy.wire(db) as c:
        c.simple("CREATE TABLE t (a int)")
        c.simple("BEGIN")
        c.simple("INSERT INTO t VALUES (1)")
        c.close()
    proxy.wait_pool(db, cl_active=0, sv_active=0)
    with proxy.wire(db) as c:
        assert c.rows("SELECT count(*) FROM t") == [{"count": "0"}]
        assert c.simple("COMMIT")[-1].status == "I"
    wait_for(lambda: direct.execute("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass "
                                    "AND pid <> pg_backend_pid()").fetchone() == (0,), "the end of the rollback")
