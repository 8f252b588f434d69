"""SQL jobs that run in another database: QUEUE RUN ... DATABASE, on another server."""

import json
import urllib.request

import psycopg
import pytest

from pgcluster import Cluster, Standby
from proxy import free_port, wait_for
from queuetest import error, shared, shared_db, tag  # noqa: F401
from relay import Relay

TABLES = """
CREATE TABLE effect (n int, who text DEFAULT session_user, place text DEFAULT current_database());
ALTER TABLE effect OWNER TO app;
"""


@pytest.fixture(scope="module")
def far():
    """Another server, which has no queues."""
    with Cluster() as pg:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE other LOGIN")
        yield pg


@pytest.fixture
def reports(far):
    """A database there, and a connection to it."""
    name = far.createdb(owner="app")
    far.psql(TABLES, name)
    with psycopg.connect(far.dsn(name), autocommit=True) as conn:
        yield conn
    far.dropdb(name)


def entry(conn, roles="app", port=None, **more):
    where = "host=127.0.0.1 port=%d" % port if port else "host=%s port=%s" % (conn.info.host, conn.info.port)
    more = "".join(" %s=%s" % pair for pair in more.items())
    return "%s dbname=%s%s%s" % (where, conn.info.dbname, " queue_run_roles=%s" % roles if roles else "", more)


@pytest.fixture
def two(qbouncer, db, reports):
    proxy = qbouncer(databases={"reports": entry(reports)})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        yield proxy, c


def end_of(c, statement, how="DATABASE reports", queue="nightly", wait="30 s"):
    (job,) = c.rows("QUEUE RUN %s ON %s %s RETURNING JOB" % (literal(statement), queue, how))
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '%s'" % (job["job"], wait))
    return end


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def result(end):
    assert (end["state"], end["error"]) == ("done", None)
    return json.loads(end["result"])


def kept(end):
    """Without the tag."""
    found = result(end)
    del found["tag"]
    return found


def effects(conn):
    return [n for n, in conn.execute("SELECT n FROM effect ORDER BY 1")]


def running(conn, n=1, what="pg_sleep"):
    sql = """SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^qbouncer nightly ' AND state = 'active'
        AND wait_event IS NOT NULL AND pid <> pg_backend_pid()"""

    def look():
        pids = [pid for pid, in conn.execute(sql)]
        return (pids,) if len(pids) == n else None
    (pids,) = wait_for(look, "%d that run" % n)
    return pids


def test_it_runs_there(two, reports, direct):
    """In a login of the owner, with its values; each outcome is what it would be here."""
    _, c = two
    assert kept(end_of(c, "INSERT INTO effect VALUES (1), (2)")) == {"count": 2}
    assert reports.execute("SELECT DISTINCT who, place FROM effect").fetchall() == [("app", reports.info.dbname)]
    for how in ("DATABASE reports", ""):
        assert kept(end_of(c, "SELECT $1::int + 1 AS n, $2::jsonb AS j, $3::text IS NULL AS nothing",
                             "PARAMS '[7, {\"a\": [1]}, null]' " + how)) == {"count": 1, "rows": [{"n": 8, "j": {"a": [1]}, "nothing": True}]}
        assert kept(end_of(c, "SELECT a, b FROM (VALUES (1, 'x;y'), (2, NULL)) AS t (a, b)",
                             how + " FORMAT csv WITH (delimiter = ';', header = true)")) == {"count": 2, "csv": 'a;b\n1;"x;y"\n2;\n'}
        assert kept(end_of(c, "SELECT 1 AS \"a b\" WHERE false", how + " FORMAT csv WITH (header = true)")) == {"count": 0, "csv": "a b\n"}
        assert kept(end_of(c, "SELECT 1 AS a, 'x' AS b", how + " FORMAT text")) == {"count": 1, "text": " a | b \n---+---\n 1 | x\n(1 row)\n\n"}
    several = result(end_of(c, "INSERT INTO effect VALUES (3); DELETE FROM effect WHERE n < 3; UPDATE effect SET n = 4"))
    assert several["count"] == 1 and [s["tag"] for s in several["statements"]] == ["INSERT 0 1", "DELETE 2", "UPDATE 1"]
    assert kept(end_of(c, "DELETE FROM effect RETURNING n, who")) == {"count": 1, "rows": [{"n": 4, "who": "app"}]}
    assert kept(end_of(c, "SELECT 'ä' AS a, E'\\\\ \"'::text AS b")) == {"count": 1, "rows": [{"a": "ä", "b": "\\ \""}]}
    assert direct.execute("SELECT to_regclass('effect')").fetchone() == (None,)


def test_types_of_another_server(two, reports, direct):
    """Types that were made there are texts here, whatever has their numbers."""
    _, c = two
    reports.execute("CREATE TYPE pair AS (a int, b int); CREATE DOMAIN small AS int; CREATE TYPE mood AS ENUM ('ok')")
    got = kept(end_of(c, "SELECT ROW(1, 2)::pair AS p, 'ok'::mood AS m, ARRAY['ok'::mood] AS ms, '{\"a\": 1}'::jsonb AS j, ARRAY[1, 2] AS ns, '2026-01-02'::date AS d, 2.50 AS n"))
    assert got["rows"] == [{"p": "(1,2)", "m": "ok", "ms": "{ok}", "j": {"a": 1}, "ns": [1, 2], "d": "2026-01-02", "n": 2.5}]


def test_ways_to_say_it(two, db, reports):
    """A word, a string, a value, queue.run(), a payload, a schedule."""
    proxy, c = two
    assert end_of(c, "INSERT INTO effect VALUES (1)", "DATABASE 'reports'")["state"] == "done"
    with proxy.connect(db) as p:
        p.execute("QUEUE RUN %s ON nightly DATABASE %s", ("INSERT INTO effect VALUES (2)", "reports"))
        p.execute("SELECT queue.run('nightly', 'INSERT INTO effect VALUES (3)', database => 'reports')")
    tag(c, "QUEUE PUSH nightly '{\"sql\": \"INSERT INTO effect VALUES (4)\", \"database\": \"reports\"}'")
    tag(c, "QUEUE SCHEDULE s ON nightly EVERY '1 h' RUN 'INSERT INTO effect VALUES ($1::int)' PARAMS '[5]' DATABASE reports TIMEOUT '1 min'")
    tag(c, "QUEUE TRIGGER SCHEDULE s")
    wait_for(lambda: effects(reports) == [1, 2, 3, 4, 5], "all of them")
    assert error(c, "QUEUE RUN 'SELECT 1' ON nightly DATABASE ''").sqlstate == "22023"
    assert error(c, "QUEUE RUN 'SELECT 1' ON nightly DATABASE %s" % ("x" * 64)).sqlstate == "22023"


def test_its_own_database_is_no_other(two, db, direct):
    """It is one transaction with its DONE, as without DATABASE, and nobody has to be allowed."""
    _, c = two
    tag(c, "CREATE TABLE here (x xid8)")
    assert kept(end_of(c, "INSERT INTO here SELECT pg_current_xact_id()", "DATABASE " + db)) == {"count": 1}
    assert direct.execute("SELECT here.x::xid = a.xmin FROM here, queue.a_nightly AS a").fetchall() == [(True,)]


def test_who_may_elsewhere(qbouncer, db, reports):
    """What the ini says: nobody, unless the entry names the role, of any database or of this one."""
    proxy = qbouncer(databases={
        "reports": entry(reports, "etl,app"), "nobody": entry(reports, None), "theirs": entry(reports, "other"), "ours": entry(reports, "app@%s" % db),
        "from_another": entry(reports, "app@reports"), "near": entry(reports, "ap,appp,pp")})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        for name in ("reports", "ours"):
            assert end_of(c, "INSERT INTO effect VALUES (1)", "DATABASE " + name)["state"] == "done", name
        for name in ("nobody", "theirs", "from_another", "near"):
            end = end_of(c, "INSERT INTO effect VALUES (2)", "DATABASE " + name)
            assert end["state"] == "dead" and end["error"] == (
                'jobs of role "app" may not run in database "%s" (42501)\nHINT:  The ini of the proxy has to say that they may: '
                'queue_run_roles=app@%s in the entry of "%s".' % (name, db, name)), end
        assert effects(reports) == [1, 1]
        # "*" says nothing of it either
        assert "(42501)" in end_of(c, "SELECT 1", "DATABASE postgres")["error"]
        del proxy.databases["*"]
        proxy.databases[db] = "host=%s port=%d" % (proxy.cluster.socket_dir, proxy.cluster.port)
        proxy.reload()
        end = end_of(c, "SELECT 1", "DATABASE nowhere")
        assert end["state"] == "dead" and end["error"].startswith('there is no database "nowhere" where jobs could run (3D000)\nHINT:  ')
        # taken back
        proxy.databases["reports"] = entry(reports, None)
        proxy.reload()
        assert "(42501)" in end_of(c, "INSERT INTO effect VALUES (3)")["error"]
        assert effects(reports) == [1, 1]


def test_a_superuser_there(qbouncer, db, reports, far):
    """What logs in there may do everything: it does not, unless the ini allows it."""
    proxy = qbouncer(databases={"reports": entry(reports, user="postgres")})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        for how in ("", " NO TRANSACTION"):
            end = end_of(c, "INSERT INTO effect VALUES (1)", "DATABASE reports" + how)
            assert end["error"] and end["error"].startswith(
                "the login that the job would run in is a superuser (42501)\nHINT:  "), (end, reports.execute("SELECT * FROM effect").fetchall())
        assert effects(reports) == []
        proxy.settings["queue_run_superuser"] = 1
        proxy.reload()
        assert end_of(c, "INSERT INTO effect VALUES (1)")["state"] == "done"
        assert reports.execute("SELECT who FROM effect").fetchall() == [("postgres",)]


def test_a_superuser_who_does_not_look_like_one(qbouncer, db, reports, far):
    """His sessions begin as another role, which each job could leave."""
    proxy = qbouncer(databases={"reports": entry(reports, user="postgres")})
    far.psql("ALTER ROLE postgres IN DATABASE %s SET role = 'other'" % reports.info.dbname)
    try:
        with proxy.wire(db) as c:
            tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
            for how in ("", " NO TRANSACTION"):
                end = end_of(c, "RESET ROLE; INSERT INTO effect VALUES (1)" if not how else "SELECT 1", "DATABASE reports" + how)
                assert end["error"] and "is a superuser (42501)" in end["error"], end
            assert effects(reports) == []
    finally:
        far.psql("ALTER ROLE postgres IN DATABASE %s RESET role" % reports.info.dbname)


def test_the_queues_database_does_not_allow_it(qbouncer, db, reports, direct):
    """Whatever its functions say, and who may change them there: what may be done on another server is not theirs to say."""
    proxy = qbouncer(databases={"reports": entry(reports, user="postgres")})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        direct.execute("""ALTER FUNCTION queue._run_what RENAME TO _run_was;
            CREATE FUNCTION queue._run_what(cfg queue.queues, id int8, session text, payload jsonb, entry text) RETURNS TABLE (what text, value text)
            LANGUAGE plpgsql AS $$BEGIN RETURN QUERY SELECT * FROM queue._run_was(cfg, id, session, payload, entry) AS w WHERE w.what IN ('database', 'session');
                RETURN QUERY VALUES ('before', 'SELECT 1'), ('supers', 'true'), ('is_superuser', 'off');
                RETURN QUERY SELECT * FROM queue._run_was(cfg, id, session, payload, entry) AS w WHERE w.what NOT IN ('database', 'session'); END$$""")
        end = end_of(c, "INSERT INTO effect VALUES (1)")
        assert end["error"] and "is a superuser (42501)" in end["error"], end
        assert effects(reports) == []


@pytest.mark.parametrize("sql, code", [
    ("COMMIT", "0A000"), ("INSERT INTO effect VALUES (1); COMMIT", "0A000"), ("BEGIN", "0A000"), ("DO 'BEGIN COMMIT; END'", "2D000"),
    ("INSERT INTO effect VALUES (1); PREPARE TRANSACTION 'x'", "0A000"), ("SET ROLE postgres", "42501"), ("INSERT INTO effect VALUES (1); SELECT 1/0", "22012"),
    ("VACUUM", "25001"), ("COPY effect TO STDOUT", "0A000"), ("SELEKT", "42601"), ("SELECT pg_terminate_backend(pg_backend_pid())", "57P01"),
    ("DO $$BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'QB001'; END$$", "QB001")])
def test_what_fails_leaves_nothing(two, reports, sql, code):
    _, c = two
    end = end_of(c, sql)
    assert end["state"] == "dead" and "(%s)" % code in end["error"], end
    assert effects(reports) == []
    assert "qbouncer.run" not in end["error"] and "is_json" not in end["error"]
    assert end_of(c, "INSERT INTO effect VALUES (7)")["state"] == "done"
    assert effects(reports) == [7]


def test_a_failure_at_the_commit(two, reports):
    _, c = two
    reports.execute("""CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not at all'; END$$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()""")
    end = end_of(c, "INSERT INTO effect VALUES (1)")
    assert end["state"] == "dead" and end["error"].startswith("not at all (P0001)")
    assert effects(reports) == []


def test_no_transaction(two, reports):
    _, c = two
    assert result(end_of(c, "VACUUM effect", "DATABASE reports NO TRANSACTION")) == {"tag": "VACUUM", "count": 0}
    assert result(end_of(c, "INSERT INTO effect VALUES ($1)", "PARAMS '[5]' DATABASE reports NO TRANSACTION")) == {"tag": "INSERT 0 1", "count": 1}
    assert result(end_of(c, "SELECT n, who FROM effect", "DATABASE reports NO TRANSACTION"))["rows"] == [{"n": 5, "who": "app"}]
    assert result(end_of(c, "SELECT n FROM effect", "DATABASE reports NO TRANSACTION FORMAT csv WITH (header = true)"))["csv"] == "n\n5\n"
    many = result(end_of(c, "SELECT repeat('x', 100) AS x FROM generate_series(1, 100000)", "DATABASE reports NO TRANSACTION"))
    assert (many["count"], many["cut"]) == (100000, True) and len(json.dumps(many)) < 1200000
    reports.execute("CREATE PROCEDURE steps(n int) LANGUAGE plpgsql AS $$BEGIN INSERT INTO effect VALUES (n); COMMIT; INSERT INTO effect VALUES (n + 1); END$$")
    assert end_of(c, "CALL steps(8)", "DATABASE reports NO TRANSACTION")["state"] == "done"
    assert effects(reports) == [5, 8, 9]
    assert "(22012)" in end_of(c, "SELECT 1/0", "DATABASE reports NO TRANSACTION")["error"]


def test_nothing_is_left_for_the_next_one(two, reports):
    _, c = two
    for how in ("", " NO TRANSACTION"):
        for statement in ("SELECT pg_advisory_lock(77)", "PREPARE p AS SELECT 1", "CREATE TEMP TABLE effect (a int)", "SET work_mem = '77MB'",
                          "SELECT set_config('search_path', 'pg_temp', false)", "SELECT set_config('qbouncer.run', '{}', false)",
                          "SELECT set_config('qbouncer.outcome', '{\"count\": 99}', false)"):
            assert end_of(c, statement, "DATABASE reports" + how)["state"] == "done"
            (seen,) = result(end_of(c, """SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77) AS locks,
                (SELECT count(*) FROM pg_prepared_statements WHERE name = 'p') AS prepared, to_regclass('pg_temp.effect') AS temp,
                current_setting('work_mem') AS mem, current_setting('search_path') AS path"""))["rows"]
            assert seen == {"locks": 0, "prepared": 0, "temp": None, "mem": "4MB", "path": '"$user", public'}, statement
    assert reports.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^qbouncer nightly' AND state ~ 'transaction'").fetchone() == (0,)


def test_a_strange_search_path_there(two, reports, far):
    """The proxy's own part means what it says, whatever functions and operators the role has before those of the system."""
    _, c = two
    reports.execute("""CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO app;
        CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE sql AS 'SELECT 5000000'; CREATE FUNCTION evil.eq(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true';
        CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
        CREATE FUNCTION evil.to_jsonb(anyelement) RETURNS jsonb LANGUAGE sql AS $$SELECT '"evil"'::jsonb$$;
        CREATE TYPE evil.jsonb AS (a int); CREATE TYPE evil.text AS (a int); CREATE VIEW evil.pg_stat_activity AS SELECT 1 AS a""")
    reports.execute('ALTER ROLE app IN DATABASE "%s" SET search_path = evil, pg_catalog, public' % reports.info.dbname)
    assert kept(end_of(c, "SELECT 7 AS n")) == {"count": 1, "rows": [{"n": 7}]}
    assert kept(end_of(c, "SELECT 7 AS n", "DATABASE reports FORMAT csv")) == {"count": 1, "csv": "7\n"}
    assert result(end_of(c, "SELECT current_setting('search_path') AS p"))["rows"] == [{"p": "evil, pg_catalog, public"}]


def test_many_rows(two):
    """1 MB of them is kept, as here; the statement is carried out to its end."""
    _, c = two
    for how in ("", " FORMAT csv"):
        end = result(end_of(c, "SELECT n, repeat('x', 50) AS x FROM generate_series(1, 300000) AS n", "DATABASE reports" + how))
        here = result(end_of(c, "SELECT n, repeat('x', 50) AS x FROM generate_series(1, 300000) AS n", how))
        assert end["count"] == 300000 and end["cut"] is True and len(json.dumps(end)) < 1300000
        kept = [len(e["rows"] if "rows" in e else e["csv"].split("\n")) for e in (end, here)]
        assert kept[0] == kept[1]


def test_timeout_and_cancel(two, reports):
    """They end what runs there, and not the next one."""
    proxy, c = two
    for how in ("", " NO TRANSACTION"):
        end = end_of(c, "SELECT pg_sleep(600)", "DATABASE reports%s TIMEOUT '100 ms'" % how)
        assert end["state"] == "dead" and end["error"].startswith("timeout: the job ran longer than it may"), end
        running(reports, 0)
    proxy.settings["queue_hold_lease"] = "1s"
    proxy.reload()
    (job,) = c.rows("QUEUE RUN 'SELECT pg_sleep(600)' ON nightly DATABASE reports RETURNING JOB")
    (pid,) = running(reports)
    (row,) = [r for r in proxy.console("SHOW RUNNING") if r["state"] == "running"]
    assert (row["job"], row["runs_in"], row["pid"], row["user"]) == (job["job"], "reports", str(pid), "app")
    other_proxy_free = c.rows("SELECT 1 AS n")
    assert other_proxy_free == [{"n": "1"}]
    tag(c, "QUEUE CANCEL '%s'" % job["job"])
    running(reports, 0)
    assert end_of(c, "INSERT INTO effect VALUES (1)")["state"] == "done"


def test_a_cancel_from_another_proxy(qbouncer, db, reports):
    one = qbouncer(databases={"reports": entry(reports)}, queue_hold_lease="1s")
    two = qbouncer(databases={"reports": entry(reports)}, queue_run_pool_size=0, queue_hold_lease="1s")
    with one.wire(db) as c, two.wire(db) as d:
        tag(c, "QUEUE CREATE nightly WITH (run = sql)")
        (job,) = d.rows("QUEUE RUN 'SELECT pg_sleep(600)' ON nightly DATABASE reports RETURNING JOB")
        running(reports)
        tag(d, "QUEUE CANCEL '%s'" % job["job"])
        running(reports, 0)
        wait_for(lambda: one.console("SHOW RUNNING") == [], "its end")


def test_a_server_that_is_down(qbouncer, db, reports):
    """It is a failed attempt, with its error and its pause, and others run; when it is back it is done."""
    port = free_port()
    proxy = qbouncer(databases={"reports": entry(reports), "down": entry(reports, port=port)})
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 3, retry = 'fixed 10ms', retain_done = '1 h')")
        end = end_of(c, "INSERT INTO effect VALUES (1)", "DATABASE down")
        assert end["state"] == "dead" and "(08" in end["error"] and 'database "down"' in end["error"], end
        tag(c, "QUEUE ALTER nightly SET (max_attempts = 1000)")
        (job,) = c.rows("QUEUE RUN 'INSERT INTO effect VALUES (2)' ON nightly DATABASE down RETURNING JOB")
        assert end_of(c, "INSERT INTO effect VALUES (3)")["state"] == "done"
        proxy.databases["down"] = entry(reports)
        proxy.reload()
        assert c.rows("QUEUE AWAIT '%s' WAIT '30 s'" % job["job"])[0]["state"] == "done"
        assert effects(reports) == [2, 3]


def test_a_backend_that_is_killed(two, reports):
    """Nobody knows how it ended: it is carried out again."""
    _, c = two
    tag(c, "QUEUE ALTER nightly SET (max_attempts = 3, retry = 'fixed 1ms')")
    reports.execute("SELECT pg_advisory_lock(7)")
    (job,) = c.rows("QUEUE RUN 'INSERT INTO effect VALUES (1); SELECT pg_advisory_xact_lock(7)' ON nightly DATABASE reports RETURNING JOB")
    (pid,) = running(reports)
    reports.execute("SELECT pg_terminate_backend(%s)", [pid])
    wait_for(lambda: running(reports) != [pid], "another attempt")
    reports.execute("SELECT pg_advisory_unlock(7)")
    (end,) = c.rows("QUEUE AWAIT '%s' WAIT '30 s'" % job["job"])
    assert (end["state"], end["attempt"], effects(reports)) == ("done", "2", [1])


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_an_orphan_is_ended_first(qbouncer, db, direct, reports, how):
    """Its proxy is killed; nobody has told the server where it runs. There are never two."""
    databases = {"reports": entry(reports)}
    doomed = qbouncer(databases=databases, queue_orphan_grace="200ms")
    c = doomed.wire(db)
    tag(c, "QUEUE CREATE nightly WITH (run = sql, retry = 'fixed 1ms')")
    reports.execute("SELECT pg_advisory_lock(7); CREATE TABLE seen (n int); ALTER TABLE seen OWNER TO app")
    tag(c, "QUEUE RUN %s ON nightly DATABASE reports%s" % (literal(
        """WITH x AS (SELECT pg_advisory_xact_lock(7)) INSERT INTO seen SELECT (SELECT count(*) FROM pg_stat_activity
           WHERE application_name = current_setting('application_name')) FROM x"""), how))
    (pid,) = running(reports)
    other = qbouncer(databases=databases, queue_orphan_grace="200ms")
    with other.wire(db) as w:
        w.simple("QUEUE STATS")
        doomed.kill()
        assert reports.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() == (1,)
        wait_for(lambda: [p for p in running(reports) if p != pid], "the second attempt", timeout=60)
        reports.execute("SELECT pg_advisory_unlock(7)")
        wait_for(lambda: direct.execute("SELECT count(*) FROM queue.q_nightly").fetchone() == (0,), "its end", timeout=30)
    assert reports.execute("SELECT n FROM seen").fetchall() == [(1,)]


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_a_lost_lease(qbouncer, db, direct, reports, how):
    """The job is somebody else's: what runs is ended, and what it did is not told."""
    proxy = qbouncer(databases={"reports": entry(reports)}, queue_hold_lease="1s")   # of who waits already, too
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        tag(c, "QUEUE RUN 'SELECT pg_sleep(600)' ON nightly DATABASE reports" + how)
    running(reports)
    direct.execute("DELETE FROM queue.q_nightly")
    running(reports, 0)
    wait_for(lambda: proxy.console("SHOW RUNNING") == [], "its end")


def test_pause_kill_and_a_reload_without_it(two, db, reports, direct):
    """PAUSE of the entry holds what comes; KILL and RECONNECT do not spoil it; removed, it fails what waits and what runs."""
    proxy, c = two
    proxy.databases = {"reports": proxy.databases["reports"], db: proxy.databases["*"]}
    proxy.reload()
    assert end_of(c, "INSERT INTO effect VALUES (1)")["state"] == "done"
    proxy.console("PAUSE reports")
    (job,) = c.rows("QUEUE RUN 'INSERT INTO effect VALUES (2)' ON nightly DATABASE reports RETURNING JOB")
    proxy.wait_show("RUNNING", lambda r: (r["job"], r["state"], r["runs_in"]) == (job["job"], "waiting", "reports"))
    assert effects(reports) == [1]
    proxy.console("RESUME reports")
    assert c.rows("QUEUE AWAIT '%s' WAIT '30 s'" % job["job"])[0]["state"] == "done"
    proxy.console("RECONNECT reports")
    assert end_of(c, "INSERT INTO effect VALUES (3)")["state"] == "done"
    proxy.console("DISABLE reports")
    assert "(57P03)" in end_of(c, "INSERT INTO effect VALUES (4)")["error"]
    proxy.console("ENABLE reports")
    (job,) = c.rows("QUEUE RUN 'SELECT pg_sleep(600)' ON nightly DATABASE reports RETURNING JOB")
    running(reports)
    proxy.console("KILL reports")
    (late,) = c.rows("QUEUE RUN 'INSERT INTO effect VALUES (5)' ON nightly DATABASE reports RETURNING JOB")
    proxy.wait_show("RUNNING", lambda r: (r["job"], r["state"]) == (late["job"], "waiting"))
    del proxy.databases["reports"]
    proxy.reload()
    for one, why in ((job, "server closed the connection unexpectedly (08006)"), (late, "database removed (57P01)")):
        (end,) = c.rows("QUEUE AWAIT '%s' WAIT '30 s'" % one["job"])
        assert end["state"] == "dead" and end["error"].startswith(why), end
    assert effects(reports) == [1, 2, 3]
    assert end_of(c, "SELECT 1", "DATABASE " + direct.info.dbname)["state"] == "done"


def test_no_place_there(qbouncer, db, reports):
    """max_db_connections of the entry: it waits as long as a client would, and has failed; the queue's own database has its."""
    proxy = qbouncer(databases={"reports": entry(reports, max_db_connections=1)}, query_wait_timeout=1)
    with proxy.wire(db) as c, proxy.wire("reports") as holder:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        tag(holder, "BEGIN")
        tag(holder, "SELECT 1")
        end = end_of(c, "INSERT INTO effect VALUES (1)")
        assert end["state"] == "dead" and end["error"].startswith("query_wait_timeout (53300)") and "max_db_connections" in end["error"], end
        tag(holder, "COMMIT")
        assert end_of(c, "INSERT INTO effect VALUES (2)")["state"] == "done"
        assert effects(reports) == [2]


def test_a_silent_server(qbouncer, db, far, reports):
    """Its time is over and it does not even answer to the cancel: it is given up, and the job is tried again, where the first attempt is ended first."""
    with Relay(far.port) as relay:
        proxy = qbouncer(databases={"reports": entry(reports, port=relay.port)}, queue_engine_timeout="1s", server_tls_sslmode="disable")
        with proxy.wire(db) as c:
            tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 2, retry = 'fixed 1ms', retain_done = '1 h')")
            assert end_of(c, "SELECT 1")["state"] == "done"
            relay.arm(b"INSERT INTO effect", "silent")
            (job,) = c.rows("QUEUE RUN 'INSERT INTO effect VALUES (1)' ON nightly DATABASE reports TIMEOUT '500 ms' RETURNING JOB")
            assert relay.lost.wait(20)
            (end,) = c.rows("QUEUE AWAIT '%s' WAIT '30 s'" % job["job"])
            assert (end["state"], end["attempt"]) == ("done", "2"), end
            assert effects(reports) == [1], "the first one was not committed"


@pytest.mark.parametrize("lost, attempts", [("silent", 1), ("never", 2)])
def test_the_queues_own_server_is_silent(cluster, qbouncer, db, reports, lost, attempts):
    """... when it is told what became of the job: that has an end. What it has done before is done; what it was not told is tried again."""
    with Relay(cluster.port) as relay:
        proxy = qbouncer(databases={"*": "host=127.0.0.1 port=%d" % relay.port, "reports": entry(reports)}, queue_engine_timeout="500ms", server_tls_sslmode="disable")
        with proxy.wire(db) as c:
            tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 2, retry = 'fixed 1ms', retain_done = '1 h')")
            assert end_of(c, "SELECT 1")["state"] == "done"
            relay.arm(b"queue._ran_there", lost)
            (job,) = c.rows("QUEUE RUN 'INSERT INTO effect VALUES (1)' ON nightly DATABASE reports RETURNING JOB")
            assert relay.lost.wait(20)
            proxy.wait_log("a statement of the queue engine has no answer")
            wait_for(lambda: proxy.console("SHOW RUNNING") == [], "its end")
            (end,) = c.rows("QUEUE AWAIT '%s' WAIT '30 s'" % job["job"])
            assert (end["state"], end["attempt"]) == ("done", str(attempts)), end
            assert effects(reports) == [1] * attempts
            assert end_of(c, "SELECT 1")["state"] == "done"


def test_figures(qbouncer, db, reports):
    port = free_port()
    proxy = qbouncer(databases={"reports": entry(reports)}, metrics_port=port)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        end_of(c, "SELECT pg_sleep(0.05)")
        end_of(c, "SELECT 1/0")

        def figures():
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
                return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines() if "_run_" in line and line[0] != "#"}

        of = 'database="%s",queue="nightly"' % db
        name = "qbouncer_queue_run_jobs_total{%s,outcome=\"%%s\"}" % of
        wait_for(lambda: figures().get(name % "done") == 1 and figures().get(name % "failed") == 1, "the ends")
        assert 0.05 < figures()["qbouncer_queue_run_seconds_total{%s}" % of] < 60


def test_in_another_encoding(qbouncer, db, far):
    """Texts are those of the queue's database on both ways."""
    far.psql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' OWNER app")
    try:
        with psycopg.connect(far.dsn("latin"), autocommit=True) as conn:
            proxy = qbouncer(databases={"reports": entry(conn)})
            with proxy.wire(db) as c:
                tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
                assert kept(end_of(c, "SELECT 'ä' AS a, length('ä') AS n, $1 AS p", "PARAMS '[\"ö\"]' DATABASE reports"))["rows"] == [{"a": "ä", "n": 1, "p": "ö"}]
                assert "ü" in end_of(c, "SELECT 'ü'::int")["error"]
                assert "(22P05)" in end_of(c, "SELECT '\u20ac'")["error"]
    finally:
        far.dropdb("latin")


@pytest.mark.parametrize("how", ["", " NO TRANSACTION"])
def test_what_cannot_be_stored(qbouncer, cluster, reports, how):
    """The queue's database has no such character: the job ends all the same, or it would be carried out for ever."""
    def run(c, level):
        return end_of(c, "DO $$ BEGIN RAISE %s 'no %%', chr(20013); END $$" % level, "DATABASE reports" + how, wait="8 s")

    cluster.psql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' OWNER app")
    try:
        proxy = qbouncer(databases={"reports": entry(reports)})
        with proxy.wire("latin") as c:
            tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 2, retry = 'fixed 1ms', retain_done = '1 h')")
            end = run(c, "EXCEPTION")
            assert (end["state"], end["attempt"]) == ("dead", "2") and end["error"].startswith("no ??? (P0001)"), end
            end = run(c, "NOTICE")
            if how:
                assert result(end) == {"tag": "DO", "notices": "NOTICE:  no ???"}
            else:  # its outcome would be in the transaction of DONE
                assert end["state"] == "dead" and "(22P05)" in end["error"], end
            wait_for(lambda: proxy.console("SHOW RUNNING") == [], "its end")
    finally:
        cluster.dropdb("latin")


def test_dates_of_another_style(two, far, reports):
    """Day and month are not taken for each other: what is not ISO is a text."""
    _, c = two
    days = "SELECT date '2026-11-05' AS d, timestamp '2026-11-05 10:00' AS t, date 'infinity' AS i, NULL::date AS n"
    far.psql("ALTER DATABASE %s SET datestyle = 'SQL, DMY'" % reports.info.dbname)
    assert kept(end_of(c, days))["rows"] == [{"d": "05/11/2026", "t": "05/11/2026 10:00:00", "i": "infinity", "n": None}]
    assert result(end_of(c, "SET LOCAL datestyle = 'ISO'; " + days))["statements"][1]["rows"] == [
        {"d": "2026-11-05", "t": "2026-11-05T10:00:00", "i": "infinity", "n": None}]


def test_a_standby(qbouncer, db):
    """It reads there, in each format, and is told what it may not do."""
    with Cluster() as primary:
        primary.psql("CREATE ROLE app LOGIN")
        name = primary.createdb(owner="app")
        primary.psql(TABLES + "INSERT INTO effect VALUES (7)", name)
        with Standby(primary) as standby:
            with psycopg.connect(standby.dsn(name), autocommit=True) as there:
                wait_for(lambda: there.execute("SELECT to_regclass('effect')").fetchone()[0], "the table, there too")
                proxy = qbouncer(databases={"reports": entry(there)})
            with proxy.wire(db) as c:
                tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
                reads = "SELECT n, pg_is_in_recovery() AS copy FROM effect"
                assert kept(end_of(c, reads)) == {"count": 1, "rows": [{"n": 7, "copy": True}]}
                assert kept(end_of(c, reads, "DATABASE reports FORMAT csv")) == {"count": 1, "csv": "7,t\n"}
                end = end_of(c, "INSERT INTO effect VALUES (8)")
                assert end["state"] == "dead" and end["error"].startswith("cannot execute INSERT in a read-only transaction (25006)"), end


def test_with_several_processes(qbouncer, db, reports):
    """The ini's word holds in each of them, also after it has changed."""
    proxy = qbouncer(databases={"reports": entry(reports)}, processes=3)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE nightly WITH (run = sql, max_attempts = 1, retain_done = '1 h')")
        for i in range(12):
            tag(c, "QUEUE RUN 'INSERT INTO effect SELECT %d FROM pg_sleep(0.01)' ON nightly DATABASE reports" % i)
        wait_for(lambda: effects(reports) == list(range(12)), "all of them")
        proxy.databases["reports"] = entry(reports, None)
        mark = len(proxy.log_text())
        proxy.reload()
        wait_for(lambda: proxy.log_text(mark).count("the configuration is in force") == 3, "each process has read it")
        ends = [end_of(c, "INSERT INTO effect VALUES (99)") for _ in range(6)]
        assert {end["state"] for end in ends} == {"dead"} and effects(reports) == list(range(12))
