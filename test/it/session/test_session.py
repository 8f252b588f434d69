"""Transaction pooling: what a session holds beyond its transactions follows its client, or keeps it on its server, and never
reaches another client."""

import pytest

from pgwire import types
from proxy import wait_for
from sessiontest import errors, extended, pinned, stat, tags


def pid(c):
    return c.rows("SELECT pg_backend_pid()")[0]["pg_backend_pid"]


def show(c, name):
    return list(c.rows("SHOW " + name)[0].values())[0]


@pytest.fixture
def one(qbouncer):
    """One server for all."""
    return qbouncer(default_pool_size=1)


@pytest.fixture
def pair(one, db):
    with one.wire(db) as a, one.wire(db) as b:
        yield a, b


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["simple", "extended"])
@pytest.mark.parametrize("name, sql, value", [
    ("work_mem", "SET work_mem = '7MB'", "7MB"),
    ("work_mem", "set session work_mem to 7168", "7MB"),
    ("search_path", "SET search_path = pg_catalog, \"$user\"", "pg_catalog, \"$user\""),
    ("search_path", "SELECT set_config('search_path', 'x', false)", "x"),
    ("statement_timeout", "SET statement_timeout = 54321", "54321ms"),
    ("role", "SET ROLE other", "other"),
    ("extra_float_digits", "SET extra_float_digits = -3", "-3"),
    ("app.who", "SET app.who = 'it''s \\me'", "it's \\me"),
    ("app.who", "SELECT set_config('app.who', 'x', false)", "x"),
    ("default_transaction_isolation", "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", "serializable"),
    ("work_mem", "DO $$ BEGIN SET work_mem = '7MB'; END $$", "7MB"),
    ("app.done", "DO $$ BEGIN PERFORM set_config('app.done', 'x', false); END $$", "x"),
    ("TimeZone", "SET TIME ZONE 'Asia/Tokyo'", "Asia/Tokyo"),
    ("work_mem", "BEGIN; SET work_mem = '7MB'; COMMIT", "7MB"),
    ("work_mem", "BEGIN; SET work_mem = '7MB'; SAVEPOINT s; SET work_mem = '8MB'; ROLLBACK TO s; COMMIT", "7MB"),
])
def test_setting_follows(pair, direct, db, name, sql, value, run):
    a, b = pair
    direct.execute("GRANT other TO app")
    if run == "extended" and ";" in sql.replace("$$ BEGIN", "").split("$$")[0]:
        pytest.skip("several statements")
    others = None if name.startswith("app.") else show(b, name)
    got = a.simple(sql) if run == "simple" else extended(a, sql)
    assert not errors(got)
    for _ in range(2):
        assert show(a, name) == value
        if others is None:
            assert b.rows("SELECT coalesce(current_setting('%s', true), '') AS v" % name) == [{"v": ""}]
        else:
            assert show(b, name) == others
    a.simple("RESET ALL")
    a.simple("RESET ROLE")
    if others is not None:
        assert show(a, name) == others


@pytest.mark.parametrize("sql", [
    "BEGIN; SET work_mem = '7MB'; ROLLBACK",
    "BEGIN; SET LOCAL work_mem = '7MB'; COMMIT",
    "SET LOCAL work_mem = '7MB'",
    "SET work_mem = '7MB'; SELECT 1/0",
    "SELECT set_config('work_mem', '7MB', true)",
    "BEGIN; SAVEPOINT s; SET work_mem = '7MB'; ROLLBACK TO s; COMMIT",
    "SET work_mem = 'nonsense'",
    "SET work_mem = '7MB'; RESET work_mem",
])
def test_setting_that_does_not_last(pair, sql):
    a, b = pair
    before = show(b, "work_mem")
    a.simple(sql)
    for c in (a, b, a):
        assert show(c, "work_mem") == before


def test_setting_beside_queue_statements(pair):
    """In one string; and in the part before a TAKE that ends it."""
    a, b = pair
    a.rows("QUEUE CREATE q")
    assert tags(a.simple("SET work_mem = '7MB'; QUEUE PUSH q '1'")) == ["SET", "INSERT 0 1"]
    assert show(b, "work_mem") != "7MB" and show(a, "work_mem") == "7MB"
    assert tags(a.simple("BEGIN; SET work_mem = '8MB'; QUEUE TAKE q")) == ["BEGIN", "SET", "SELECT 1"]
    a.simple("COMMIT")
    assert show(b, "work_mem") != "8MB" and show(a, "work_mem") == "8MB"


def test_setting_at_the_end_of_a_long_string(pair):
    """It is forwarded as it comes: what it does at its end is seen all the same."""
    a, b = pair
    long = "SELECT '%s'; " % ("x" * 1500000)
    a.simple(long + "SET work_mem = '7MB'; CREATE TEMP TABLE t (i int)")
    assert show(a, "work_mem") == "7MB"
    a.simple("DROP TABLE t")
    assert show(b, "work_mem") == "4MB"
    assert show(a, "work_mem") == "7MB"


def test_setting_in_a_block(pair):
    """Statement by statement, also rolled back."""
    a, b = pair
    for end, expected in (("ROLLBACK", "4MB"), ("COMMIT", "7MB")):
        a.simple("BEGIN")
        a.simple("SET work_mem = '7MB'")
        assert show(a, "work_mem") == "7MB"
        a.simple(end)
        assert show(b, "work_mem") == "4MB"
        assert show(a, "work_mem") == expected


def test_reset_goes_back_to_the_start_up_packet(one, db):
    options = {"options": "-c work_mem=7MB -c app.x=mine", "TimeZone": "Asia/Tokyo", "application_name": "first"}
    with one.wire(db, **options) as a, one.wire(db) as b:
        for undo in ("RESET ALL", "DISCARD ALL", "RESET work_mem; RESET app.x; RESET TimeZone; RESET application_name"):
            for busy in (False, True):
                a.simple("SET work_mem = '9MB'")
                a.simple("SET app.x = 'other'")
                a.simple("SET TimeZone = 'UTC'")
                a.simple("SET application_name = 'second'")
                assert show(a, "work_mem") == "9MB" and show(a, "TimeZone") == "UTC"
                assert show(b, "work_mem") == "4MB"
                if busy:
                    a.simple("SELECT pg_advisory_lock(1)")
                a.simple(undo)
                if busy:
                    a.simple("SELECT pg_advisory_unlock_all()")
                assert show(b, "application_name") == ""
                assert show(a, "work_mem") == "7MB" and show(a, "app.x") == "mine"
                assert show(a, "TimeZone") == "Asia/Tokyo" and show(a, "application_name") == "first"
                a.query("SELECT 1").until("Z")
                assert a.parameters["TimeZone"] == "Asia/Tokyo" and a.parameters["application_name"] == "first"


def test_reset_goes_back_to_the_own_start_up_packet(one, db):
    """Clients that begin alike share what they go back to; those before and behind them do not."""
    begun = [dict(application_name="a", options="-c work_mem=7MB"), dict(application_name="a", options="-c work_mem=7MB"),
             dict(application_name="b", options="-c work_mem=7MB"), dict(application_name="a", options="-c work_mem=8MB"),
             dict(application_name="a"), dict(application_name="a", options="-c work_mem=7MB")]
    clients = [one.wire(db, **more) for more in begun]
    for c in clients:
        c.simple("SET work_mem = '9MB'")
        c.simple("SET application_name = 'changed'")
    for c, more in zip(clients, begun):
        c.simple("RESET ALL")
        expected = more.get("options", "-c work_mem=4MB").split("=")[1]
        assert (show(c, "work_mem"), show(c, "application_name")) == (expected, more["application_name"])
        c.close()


def test_session_authorization(qbouncer, cluster, direct, db):
    direct.execute("GRANT other TO app")
    proxy = qbouncer(default_pool_size=1, databases={"super": "host=%s port=%d dbname=%s user=postgres" % (
        cluster.socket_dir, cluster.port, db)})
    who = "SELECT session_user AS s, current_user AS c"
    with proxy.wire("super") as a, proxy.wire("super") as b:
        a.simple("SET SESSION AUTHORIZATION app")
        assert a.rows(who) == [{"s": "app", "c": "app"}]
        assert b.rows(who) == [{"s": "postgres", "c": "postgres"}]
        a.simple("SET ROLE other")
        assert b.rows(who) == [{"s": "postgres", "c": "postgres"}]
        assert a.rows(who) == [{"s": "app", "c": "other"}]
        a.simple("RESET ROLE")
        assert b.rows(who) == [{"s": "postgres", "c": "postgres"}]
        assert a.rows(who) == [{"s": "app", "c": "app"}]
        a.simple("SET ROLE other")
        assert b.rows(who) == [{"s": "postgres", "c": "postgres"}]
        a.simple("RESET SESSION AUTHORIZATION")
        assert b.rows(who) == a.rows(who) == [{"s": "postgres", "c": "postgres"}]


def test_role_that_is_refused_runs_nothing(pair, direct, db):
    """What follows does not run as the role that has logged in."""
    a, b = pair
    direct.execute("GRANT other TO app")
    a.simple("CREATE TABLE seen (who text)")
    a.simple("GRANT INSERT ON seen TO other")
    a.simple("SET ROLE other")
    assert show(b, "role") == "none"
    direct.execute("REVOKE other FROM app")
    a.query("INSERT INTO seen VALUES (current_user)")
    assert errors(a.closed()) == ["42501"]
    assert b.rows("SELECT * FROM seen") == []


def test_setting_in_a_bound_parameter(one, pair, db):
    """Its name cannot be seen: the client keeps its server until DISCARD ALL."""
    a, b = pair
    assert not errors(extended(a, "SELECT set_config($1, $2, false)", ["app.hidden", "x"]))
    assert show(a, "app.hidden") == "x"
    assert pinned(one, db) == ["unknown setting"]
    b.query("SELECT coalesce(current_setting('app.hidden', true), '') AS v")
    a.simple("DISCARD ALL")
    assert [m.text_row for m in b.until("Z") if m.type == "D"] == [[""]]
    assert pinned(one, db) == []


def test_too_many_settings_of_ones_own(one, pair, db):
    """No more names are kept than fit into a question; a client with more keeps its server."""
    a, b = pair
    a.simple("BEGIN")
    for i in range(40):
        a.simple("".join("SET app.a_setting_of_ones_own_%d = 'x';" % j for j in range(20 * i, 20 * i + 20)))
    a.simple("COMMIT")
    assert show(a, "app.a_setting_of_ones_own_0") == show(a, "app.a_setting_of_ones_own_799") == "x"
    assert pinned(one, db) == ["unknown setting"]
    b.query("SELECT coalesce(current_setting('app.a_setting_of_ones_own_799', true), '') AS v")
    a.simple("DISCARD ALL")
    assert [m.text_row for m in b.until("Z") if m.type == "D"] == [[""]]
    assert pinned(one, db) == []


def test_hostile_search_path(pair):
    """Operators of the client's own do not deceive the question about its settings."""
    a, b = pair
    a.simple("CREATE SCHEMA evil")
    a.simple("CREATE FUNCTION evil.never(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false'")
    a.simple("CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never)")
    a.simple("BEGIN; SET search_path = evil, pg_catalog; SET work_mem = '7MB'; COMMIT")
    assert show(b, "work_mem") == "4MB" and show(b, "search_path") == '"$user", public'
    assert show(a, "work_mem") == "7MB" and show(a, "search_path") == "evil, pg_catalog"


def test_pipelined_behind_a_set(one, db):
    with one.wire(db) as a, one.wire(db) as b:
        b.simple("SET work_mem = '5MB'")
        a.hold().query("BEGIN").query("SET work_mem = '7MB'").query("COMMIT").query("SHOW work_mem").push()
        got = [a.until("Z") for _ in range(4)]
        assert got[3][1].text_row == ["7MB"]
        assert show(b, "work_mem") == "5MB" and show(a, "work_mem") == "7MB"


def test_client_that_leaves_right_behind_its_set(one, db):
    with one.wire(db) as b:
        for goodbye in (True, False):
            a = one.wire(db)
            a.query("BEGIN; SET work_mem = '7MB'; SELECT pg_advisory_lock(1); COMMIT").until("Z")
            a.terminate() if goodbye else a.reset()
            assert show(b, "work_mem") == "4MB"
            assert b.rows("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'") == [{"n": "0"}]


@pytest.mark.parametrize("sql", ["SET work_mem = '7MB'", "PREPARE p AS SELECT 1"])
def test_goodbye_in_the_same_packet(one, db, sql):
    """The answer comes when nobody is there to whom it counts."""
    with one.wire(db) as b:
        for _ in range(3):
            one.wire(db).hold().query(sql).send("X").push()
            assert show(b, "work_mem") == "4MB"
            assert not errors(b.simple("PREPARE p AS SELECT 2; DEALLOCATE p"))


def test_statement_timeout_ends_a_wait(one, db, direct):
    with one.wire(db) as a:
        a.simple("QUEUE CREATE q")
        a.simple("SET statement_timeout = '200ms'")
        got = a.simple("QUEUE TAKE q WAIT '30s'")
        assert errors(got) == ["57014"]


# -- what pins ------------------------------------------------------------------------------------


@pytest.mark.parametrize("do, check, undo, why", [
    (["CREATE TEMP TABLE mine (a int)"], "SELECT count(*) FROM mine", "DROP TABLE mine", "temporary table"),
    (["SELECT 1 AS a INTO TEMP mine"], "SELECT count(*) FROM mine", "DISCARD TEMP", "temporary table"),
    (["CREATE TABLE pg_temp.mine (a int)"], "SELECT count(*) FROM mine", "DISCARD ALL", "temporary table"),
    (["SELECT pg_advisory_lock(7)"], "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
     "SELECT pg_advisory_unlock(7)", "advisory lock"),
    (["SELECT pg_try_advisory_lock(7)", "SELECT pg_advisory_lock(8)"], "SELECT 1", "SELECT pg_advisory_unlock_all()",
     "advisory lock"),
    (["BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 9)", "COMMIT"], "FETCH 1 FROM c", "CLOSE c",
     "cursor with hold"),
    (["PREPARE p AS SELECT pg_advisory_lock(1)"], "EXECUTE p", "DISCARD ALL", "advisory lock, prepare"),
    (["SELECT 1", "DO $$ BEGIN EXECUTE 'PREPARE p AS SELECT 42'; END $$"], "EXECUTE p", "DEALLOCATE p", "prepare"),
    (["SELECT 1", "DO $$ BEGIN EXECUTE 'PREPARE p AS SELECT 42'; END $$"], "EXECUTE p", "DEALLOCATE ALL", "prepare"),
])
@pytest.mark.parametrize("run", ["simple", "extended"])
def test_pinned(one, pair, db, do, check, undo, why, run):
    a, b = pair
    said = a.simple if run == "simple" else lambda sql: extended(a, sql)
    before = stat(one, db, "total_pin_count")
    for sql in do:
        assert not errors(said(sql)), sql
    b.query("SELECT 'b'")
    for _ in range(3):
        assert not errors(said(check))
    assert pinned(one, db) == [why]
    assert b.silent()
    assert not errors(said(undo))
    assert b.until("Z")[1].text_row == ["b"]
    assert pinned(one, db) == []
    assert stat(one, db, "total_pin_count") == before + 1
    assert types(a.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("sql", [
    "BEGIN; CREATE TEMP TABLE x (a int) ON COMMIT DROP; COMMIT",
    "BEGIN; CREATE TEMP TABLE x (a int); ROLLBACK",
    "SELECT pg_advisory_xact_lock(1)",
    "SELECT pg_advisory_lock(1); SELECT pg_advisory_unlock(1)",
    "PREPARE x AS SELECT 1; EXECUTE x; DEALLOCATE x",
    "BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT",
])
def test_not_pinned(one, pair, db, sql):
    a, b = pair
    assert not errors(a.simple(sql))
    assert types(b.simple("SELECT 1")) == "TDCZ"
    assert pinned(one, db) == []


@pytest.mark.parametrize("goodbye", [True, False])
def test_pinned_client_that_leaves(one, db, goodbye):
    with one.wire(db) as b:
        a = one.wire(db)
        first = pid(a)
        a.simple("CREATE TEMP TABLE mine (a int)")
        a.simple("SELECT pg_advisory_lock(7)")
        a.simple("SET app.x = 'secret'")
        resets = stat(one, db, "total_reset_count")
        a.terminate() if goodbye else a.reset()
        assert pid(b) == first, "the server was thrown away"
        assert errors(b.simple("SELECT * FROM mine")) == ["42P01"]
        assert b.rows("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'") == [{"n": "0"}]
        assert b.rows("SELECT coalesce(current_setting('app.x', true), '') AS v") == [{"v": ""}]
        assert stat(one, db, "total_reset_count") == resets + 1


# -- what needs no server -------------------------------------------------------------------------------


@pytest.mark.parametrize("sql, expected", [
    ("DISCARD ALL", ["DISCARD ALL"]), ("RESET ALL", ["RESET"]), ("ROLLBACK", ["ROLLBACK"]), ("COMMIT", ["COMMIT"]),
    ("", []), ("-- ping", []), (";", []), ("DEALLOCATE ALL", ["DEALLOCATE ALL"]), ("CLOSE ALL", ["CLOSE CURSOR ALL"]),
    ("SET application_name = 'new'", ["SET"]), ("RESET application_name", ["RESET"]), ("UNLISTEN *", ["UNLISTEN"]),
    ("SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;", ["SELECT 1", "CLOSE CURSOR ALL", "UNLISTEN", "RESET"]),
    ("RESET ALL;CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP",
     ["RESET", "CLOSE CURSOR ALL", "UNLISTEN", "SELECT 1", "DISCARD SEQUENCES", "DISCARD TEMP"]),
])
@pytest.mark.parametrize("run", ["simple", "extended"])
def test_needs_no_server(one, pair, db, sql, expected, run):
    a, b = pair
    a.simple("SELECT 1")
    b.simple("BEGIN")
    b.simple("SELECT 1")
    if run == "simple":
        got = a.simple(sql)
    elif len(expected) > 1 or "unlock" in sql:
        return
    else:
        got = extended(a, sql)
    assert not errors(got) and tags(got) == expected
    assert types(a.sync().until("Z")) == "Z"
    b.simple("COMMIT")


def test_discard_all_in_a_block(pair):
    a, _ = pair
    a.simple("BEGIN")
    assert errors(a.simple("DISCARD ALL")) == ["25001"]
    a.simple("ROLLBACK")
    assert errors(extended(a, "DISCARD ALL")) == []


def test_application_name(pair):
    a, b = pair
    a.simple("SET application_name = 'here'")
    assert a.parameters["application_name"] == "here"
    assert show(a, "application_name") == "here" and show(b, "application_name") == ""
    a.simple("SET application_name TO DEFAULT")
    assert show(a, "application_name") == ""


# -- abandoned ---------------------------------------------------------------------------------------------


def test_abandoned_block_keeps_the_server(one, db):
    with one.wire(db) as b:
        first = pid(b)
        b.simple("CREATE TABLE t (a int)")
        a = one.wire(db)
        a.simple("BEGIN")
        a.simple("INSERT INTO t VALUES (1)")
        a.reset()
        assert b.rows("SELECT count(*) AS n FROM t") == [{"n": "0"}]
        assert pid(b) == first


def test_abandoned_query_is_cancelled(one, db, direct):
    a = one.wire(db)
    a.query("SELECT pg_sleep(600)")
    running = "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"
    wait_for(lambda: direct.execute(running + " AND state = 'active'").fetchone()[0] == 1)
    a.reset()
    wait_for(lambda: direct.execute(running + " AND state = 'active'").fetchone()[0] == 0)


# -- LISTEN -----------------------------------------------------------------------------------------------------


def notified(c, n=1):
    """The next n notifications as (pid, channel, payload)."""
    out = []
    for _ in range(n):
        m = c.until("A", skip="SN")[-1]
        channel, payload, _ = m.body[4:].split(b"\0")
        out.append((int.from_bytes(m.body[:4], "big"), channel.decode(), payload.decode()))
    return out


def notify_self(c, sql):
    """The notification may come before or behind the end of the statement."""
    c.query(sql)
    got = [c.recv() for _ in range(2)]
    while sorted(m.type for m in got if m.type in "AZ") != ["A", "Z"]:
        got.append(c.recv())
    m = [m for m in got if m.type == "A"][0]
    channel, payload, _ = m.body[4:].split(b"\0")
    return int.from_bytes(m.body[:4], "big"), channel.decode(), payload.decode()


def no_notification(c):
    """Nothing is delivered with, or behind, a statement."""
    return not [m for m in c.query("SELECT 1").until("Z", skip="") if m.type == "A"] and c.silent(0.05)


def listeners(proxy, db):
    return len([s for s in proxy.console("SHOW SERVERS") if s["database"] == db])


@pytest.mark.parametrize("run", ["simple", "extended"])
def test_listen(one, db, run):
    """Many listen, on one connection; none of them needs a server."""
    clients = [one.wire(db) for _ in range(5)]
    for c in clients[:4]:
        got = c.simple("LISTEN x") if run == "simple" else extended(c, "LISTEN x")
        assert tags(got) == ["LISTEN"]
    assert pinned(one, db) == [] and listeners(one, db) <= 2
    clients[4].simple("NOTIFY x, 'hello'")
    for c in clients[:4]:
        pid_, channel, payload = notified(c)[0]
        assert (channel, payload) == ("x", "hello") and pid_ != c.pid
    assert tags(clients[0].simple("UNLISTEN x")) == ["UNLISTEN"]
    assert tags(clients[1].simple("UNLISTEN *")) == ["UNLISTEN"]
    assert tags(clients[2].simple("DISCARD ALL")) == ["DISCARD ALL"]
    clients[4].simple("NOTIFY x, 'again'")
    assert notified(clients[3])[0][1:] == ("x", "again")
    assert all(no_notification(c) for c in clients[:3] + clients[4:])
    for c in clients:
        c.close()
    wait_for(lambda: not [s for s in one.console("SHOW SERVERS") if s["database"] == db and s["state"] == "active"])


def test_listen_counts_from_the_commit(pair):
    a, b = pair
    for end in ("ROLLBACK", "COMMIT"):
        a.simple("BEGIN")
        assert tags(a.simple("LISTEN x")) == ["LISTEN"]
        if end == "COMMIT":
            a.simple("SELECT 1")
            b.query("NOTIFY x, 'before'")
            a.simple(end)
            b.until("Z")
            b.simple("NOTIFY x, 'after'")
            assert notified(a)[-1][2] in ("before", "after")
        else:
            b.simple("NOTIFY x, 'before'")
            a.simple(end)
            b.simple("NOTIFY x, 'after'")
            assert no_notification(a)


def test_listen_in_a_failed_block(pair):
    a, b = pair
    a.simple("BEGIN")
    a.simple("SELECT 1/0")
    assert errors(a.simple("LISTEN x")) == ["25P02"]
    a.simple("ROLLBACK")
    a.simple("BEGIN")
    a.simple("LISTEN x")
    a.simple("SELECT 1/0")
    a.simple("COMMIT")
    b.simple("NOTIFY x")
    assert no_notification(a)


def test_notifications_come_between_transactions(qbouncer, db):
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as a, proxy.wire(db) as b, proxy.wire(db) as c:
        a.simple("LISTEN x")
        c.simple("LISTEN x")
        a.simple("BEGIN")
        a.simple("SELECT 1")
        b.simple("NOTIFY x, '1'")
        assert notified(c)[0][2] == "1"
        assert not [m for m in a.query("SELECT 1").until("Z", skip="") if m.type == "A"]
        got = a.query("COMMIT").until("Z", skip="S")
        assert types(got) == "CAZ"


def test_own_notification_has_the_own_pid(one, db):
    with one.wire(db) as a:
        a.simple("LISTEN x")
        assert notify_self(a, "NOTIFY x, 'me'") == (a.pid, "x", "me")
        assert notify_self(a, "SELECT pg_notify('x', 'me too')") == (a.pid, "x", "me too")


def test_names_of_channels(one, db):
    with one.wire(db) as a, one.wire(db) as b:
        for said, name in (("Abc", "abc"), ('"Abc"', "Abc"), ('"a ""b"" ;"', 'a "b" ;')):
            assert not errors(a.simple("LISTEN " + said))
            b.simple("NOTIFY " + said)
            assert notified(a)[0][1] == name
        assert errors(a.simple("LISTEN")) == ["42601"]


def test_several_listens_in_one_string(one, pair, db):
    """As libraries say them: no server is kept."""
    a, b = pair
    assert tags(a.simple('LISTEN "jobs:insert"; LISTEN "worker:migrate"; -- both\n')) == ["LISTEN", "LISTEN"]
    assert pinned(one, db) == [] and listeners(one, db) <= 2
    b.simple("SELECT pg_notify('jobs:insert', '1'), pg_notify('worker:migrate', '2')")
    assert [n[1:] for n in notified(a, 2)] == [("jobs:insert", "1"), ("worker:migrate", "2")]
    assert tags(a.simple('UNLISTEN "jobs:insert";LISTEN x;UNLISTEN y;LISTEN y;UNLISTEN y;LISTEN "x"')) == [
        "UNLISTEN", "LISTEN", "UNLISTEN", "LISTEN", "UNLISTEN", "LISTEN"]
    b.simple("SELECT pg_notify('jobs:insert', '1'), pg_notify('y', '2'), pg_notify('x', '3'), pg_notify('worker:migrate', '4')")
    assert [n[1:] for n in notified(a, 2)] == [("x", "3"), ("worker:migrate", "4")]
    assert tags(a.simple("LISTEN z; UNLISTEN *; LISTEN w")) == ["LISTEN", "UNLISTEN", "LISTEN"]
    b.simple("NOTIFY x; NOTIFY z; NOTIFY w, 'w'")
    assert notified(a)[0][1:] == ("w", "w") and no_notification(a)
    assert pinned(one, db) == []


def test_several_listens_in_a_block(pair):
    a, b = pair
    for end in ("ROLLBACK", "COMMIT"):
        a.simple("BEGIN")
        assert tags(a.simple("LISTEN x; LISTEN y")) == ["LISTEN", "LISTEN"]
        b.simple("NOTIFY y, 'before'")
        assert no_notification(a)
        a.simple(end)
        b.simple("NOTIFY x, '1'; NOTIFY y, '2'")
        if end == "ROLLBACK":
            assert no_notification(a)
        else:
            assert [n[2] for n in notified(a, 2)] == ["1", "2"]
    a.simple("BEGIN")
    a.simple("SELECT 1/0")
    assert errors(a.simple("UNLISTEN x; UNLISTEN y")) == ["25P02"]
    a.simple("ROLLBACK")
    b.simple("NOTIFY x, '3'")
    assert notified(a)[0][2] == "3"


def test_listens_beside_those_of_a_server_of_ones_own(one, pair, db, direct):
    a, b = pair
    a.simple("LISTEN y; SELECT 1")
    wait_for(lambda: pinned(one, db) == ["listen"])
    assert tags(a.simple("LISTEN x; LISTEN z")) == ["LISTEN", "LISTEN"]
    direct.execute("NOTIFY x, '1'")
    assert notified(a)[0][1:] == ("x", "1")
    assert tags(a.simple("UNLISTEN x; UNLISTEN *")) == ["UNLISTEN", "UNLISTEN"]
    wait_for(lambda: pinned(one, db) == [])
    b.simple("NOTIFY x; NOTIFY y; NOTIFY z")
    assert no_notification(a)


def test_listen_that_is_not_alone_pins(one, pair, db):
    a, _ = pair
    a.simple("LISTEN y; SELECT 1")
    wait_for(lambda: pinned(one, db) == ["listen"])
    assert notify_self(a, "NOTIFY y, 'own'")[1:] == ("y", "own")
    assert tags(a.simple("UNLISTEN y")) == ["UNLISTEN"]
    wait_for(lambda: pinned(one, db) == [])


def test_connection_that_listens_is_lost(one, db, direct):
    """Notifications may have been missed: the client hears of it as from Postgres."""
    with one.wire(db) as a, one.wire(db) as b:
        a.simple("LISTEN x")
        b.simple("SELECT 1")
        direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
                       " AND application_name <> 'qbouncer system'")
        assert errors(a.closed()) == ["08006"]
        assert types(b.simple("SELECT 1")) == "TDCZ"
    with one.wire(db) as a, one.wire(db) as b:
        a.simple("LISTEN x")
        b.simple("NOTIFY x")
        assert notified(a)[0][1] == "x"


@pytest.mark.parametrize("make, undo", [
    ("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"),
    ("CREATE TEMP TABLE t (i int)", "DROP TABLE t"),
])
def test_what_is_undone_at_once(one, pair, db, make, undo):
    """While the server is still asked what the first has left."""
    a, _ = pair
    for _ in range(20):
        assert not errors(a.simple(make)) and not errors(a.simple(undo))
    wait_for(lambda: pinned(one, db) == [])


def test_own_reset_query_does_not_replace_ours(qbouncer, db):
    proxy = qbouncer(default_pool_size=1, server_reset_query_always=1, server_reset_query="RESET ALL")
    with proxy.wire(db) as a:
        a.simple("CREATE TEMP TABLE t (i int)")
    with proxy.wire(db) as b:
        assert b.rows("SELECT to_regclass('t') IS NULL AS gone") == [{"gone": "t"}]


def test_connection_that_listens_is_renewed(one, db):
    """It would not hear of what another host is notified of."""
    with one.wire(db) as a:
        a.simple("LISTEN x")
        one.console("RECONNECT " + db)
        assert errors(a.closed()) == ["08006"]


def test_listen_while_paused(one, db):
    with one.wire(db) as a, one.wire(db) as b:
        one.console("PAUSE " + db)
        a.query("LISTEN x")
        assert a.silent(0.2)
        one.console("RESUME " + db)
        assert tags(a.until("Z")) == ["LISTEN"]
        b.simple("NOTIFY x")
        assert notified(a)[0][1] == "x"


def test_listen_through_psycopg(one, db):
    import psycopg
    with psycopg.connect(one.dsn(db), autocommit=True) as a, psycopg.connect(one.dsn(db)) as b:
        a.execute("LISTEN chan")
        b.execute("NOTIFY chan, 'from b'")
        b.commit()
        note = next(a.notifies())
        assert (note.channel, note.payload) == ("chan", "from b")
        assert note.pid != a.info.backend_pid


# -- statements whose columns change ----------------------------------------------------------------------------------


@pytest.mark.parametrize("renew", [False, True])
def test_plan_whose_result_changes(qbouncer, db, renew):
    """One error, as from Postgres; then the statement works again, under its name or under a new one, on every server."""
    proxy = qbouncer(default_pool_size=2)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("CREATE TABLE t AS SELECT 1 AS a")
        a.parse("s", "SELECT * FROM t").sync().until("Z")
        b.parse("s", "SELECT * FROM t").sync().until("Z")
        b.simple("BEGIN")
        for c in (b, a):
            assert not errors(c.bind("", "s").execute().sync().until("Z"))
        b.simple("COMMIT")
        a.simple("ALTER TABLE t ADD b int DEFAULT 2")
        assert errors(a.bind("", "s").execute().sync().until("Z")) == ["0A000"]
        b.simple("BEGIN")
        b.simple("SELECT 1")
        name = "s"
        if renew:
            name = "s2"
            assert not errors(a.parse("s2", "SELECT * FROM t").sync().until("Z"))
        for c in (a, b):
            got = c.bind("", name if c is a else "s").describe("P").execute().sync().until("Z")
            assert [m.text_row for m in got if m.type == "D"] == [["1", "2"]], got
        b.simple("COMMIT")


# -- how many may be pinned ------------------------------------------------------------------------------


PINNING = ["CREATE TEMP TABLE mine (a int)", "SELECT pg_advisory_lock(99)", "LOAD 'plpgsql'",
           "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT"]


@pytest.mark.parametrize("run", ["simple", "extended"])
def test_pinned_clients_leave_a_server(qbouncer, db, run):
    proxy = qbouncer(default_pool_size=3)
    with proxy.wire(db) as a, proxy.wire(db) as b, proxy.wire(db) as c, proxy.wire(db) as d:
        said = c.simple if run == "simple" else lambda sql: extended(c, sql)
        for w in (a, b):
            assert not errors(w.simple("CREATE TEMP TABLE mine (a int)"))
        wait_for(lambda: len(pinned(proxy, db)) == 2, "two pinned clients")
        for sql in PINNING[:3] if run == "extended" else PINNING:
            got = said(sql)
            assert errors(got) == ["53400"], sql
            assert [m.fields["H"] for m in got if m.type == "E" and "max_pinned_servers" in m.fields["H"]]
        for sql in ("CREATE TEMP TABLE x (a int) ON COMMIT DROP", "SELECT 'temp'", "SET work_mem = '7MB'", "PREPARE x AS SELECT 1"):
            assert not errors(said(sql)), sql
        wait_for(lambda: len(pinned(proxy, db)) == (3 if run == "extended" else 2), "what is left behind")
        if run == "extended":
            assert not errors(said("DEALLOCATE x"))
        assert show(d, "work_mem") == "4MB" and show(c, "work_mem") == "7MB"
        assert not errors(a.simple("CREATE TEMP TABLE more (a int)")), "who is pinned may do more"
        assert [r["sv_pinned"] for r in proxy.console("SHOW POOLS") if r["database"] == db] == ["2"]
        b.close()
        wait_for(lambda: len(pinned(proxy, db)) == 1, "the second one to be gone")
        assert not errors(said(PINNING[0]))


def test_refused_inside_of_a_block(qbouncer, db):
    """As any error: the block fails, and the client goes on behind it."""
    proxy = qbouncer(default_pool_size=2, max_pinned_servers=0)
    with proxy.wire(db) as a:
        for sql in PINNING[:2]:
            for begin in ("BEGIN", "BEGIN; SELECT 1"):
                a.simple(begin)
                assert errors(a.simple(sql)) == ["53400"]
                assert errors(a.simple("SELECT 1")) == ["25P02"]
                assert tags(a.simple("COMMIT")) == ["ROLLBACK"]
        assert errors(extended(a, PINNING[0])) == ["53400"]
        assert pinned(proxy, db) == [] and types(a.simple("SELECT 1")) == "TDCZ"
        proxy.console("SET max_pinned_servers = 1")
        assert not errors(a.simple(PINNING[0]))
    proxy = qbouncer(default_pool_size=2, max_pinned_servers=0, pool_mode="session")
    with proxy.wire(db) as a:
        assert not errors(a.simple(PINNING[0]))


STARTUP = {"TimeZone": "Asia/Tokyo", "work_mem": "7MB", "application_name": "starts"}


def settings_of(c):
    return {name: c.rows("SELECT current_setting('%s') AS v" % name)[0]["v"] for name in STARTUP}


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("reset", ["RESET ALL", "reset all;", "DISCARD ALL",
                                   "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;", "RESET timezone; RESET work_mem; RESET application_name"])
def test_reset_goes_back_to_the_startup_packet(qbouncer, db, mode, reset):
    """As in Postgres, and the client is told what its reported settings are."""
    proxy = qbouncer(pool_mode=mode, default_pool_size=1)
    with proxy.wire(db, **STARTUP) as c:
        assert settings_of(c) == STARTUP
        for sql in "SET timezone = 'Europe/Rome'", "SET work_mem = '9MB'", "SET application_name = 'other'", "SET geqo = off":
            assert tags(c.simple(sql)) == ["SET"]
        assert settings_of(c) == {"TimeZone": "Europe/Rome", "work_mem": "9MB", "application_name": "other"}
        for one in reset.split("; "):
            assert not errors(c.simple(one))
        assert settings_of(c) == STARTUP
        assert c.parameters["TimeZone"] == "Asia/Tokyo" and c.parameters["application_name"] == "starts"
        assert c.rows("SHOW geqo")[0]["geqo"] == ("on" if "ALL" in reset.upper() else "off")
        # and the next one gets none of it
    with proxy.wire(db) as c:
        got = settings_of(c)
        assert got["work_mem"] != "7MB" and got["application_name"] == "" and got["TimeZone"] != "Asia/Tokyo"


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("reset", ["RESET ALL", "RESET timezone", "SET timezone TO DEFAULT", "DO $$BEGIN RESET timezone; END$$"])
def test_reset_in_a_block_counts_for_the_next_statement(qbouncer, db, mode, reset):
    """Also when that comes at once, while the server is asked what the block has left behind."""
    with qbouncer(pool_mode=mode, default_pool_size=1).wire(db, **STARTUP) as c:
        for _ in range(3):
            for sql in "BEGIN", reset, "COMMIT":
                assert not errors(c.simple(sql))
            assert c.rows("SHOW timezone")[0]["TimeZone"] == "Asia/Tokyo"
            assert settings_of(c) == STARTUP


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("reset", ["RESET ALL", "RESET work_mem", "SET work_mem TO DEFAULT", "DISCARD ALL"])
def test_reset_in_the_extended_protocol(qbouncer, db, mode, reset):
    with qbouncer(pool_mode=mode, default_pool_size=1).wire(db, **STARTUP) as c:
        for _ in range(2):
            assert not errors(c.simple("SET work_mem = '9MB'"))
            assert not errors(extended(c, reset))
            assert settings_of(c) == STARTUP
        if reset == "DISCARD ALL":
            return
        # prepared long ago
        c.hold().parse("r", reset).sync().push()
        assert not errors(c.until("Z"))
        for _ in range(2):
            assert not errors(c.simple("SET work_mem = '9MB'"))
            c.hold().bind("", "r").execute().sync().push()
            assert not errors(c.until("Z"))
            assert settings_of(c) == STARTUP


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_reset_all_leaves_the_role(qbouncer, direct, db, mode):
    direct.execute("GRANT other TO app")
    proxy = qbouncer(pool_mode=mode, default_pool_size=1)
    with proxy.wire(db, TimeZone="Asia/Tokyo") as c:
        assert not errors(c.simple("SET ROLE other")) and not errors(c.simple("RESET ALL"))
        assert c.rows("SELECT current_user AS u, current_setting('TimeZone') AS z") == [{"u": "other", "z": "Asia/Tokyo"}]


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("cleaning", ["RESET ROLE; RESET ALL", "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;"
                                      "SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP"])
def test_the_role_goes_with_what_connection_pools_send(qbouncer, direct, db, mode, cleaning):
    """Also for statements of the queue, which run on other servers."""
    direct.execute("GRANT other TO app")
    with qbouncer(pool_mode=mode, default_pool_size=1).wire(db, TimeZone="Asia/Tokyo") as c:
        for sql in "QUEUE CREATE mail", "SET ROLE other":
            assert not errors(c.simple(sql))
        assert errors(c.simple("QUEUE TAKE mail")) == ["42501"]
        assert not errors(c.simple(cleaning))
        assert not errors(c.simple("QUEUE TAKE mail"))
        assert c.rows("SELECT current_user AS u, current_setting('TimeZone') AS z") == [{"u": "app", "z": "Asia/Tokyo"}]
        # and where the role stays, it does for both
        assert not errors(c.simple("SET ROLE other")) and not errors(c.simple("CLOSE ALL; RESET ALL"))
        assert errors(c.simple("QUEUE TAKE mail")) == ["42501"]
        assert c.rows("SELECT current_user AS u") == [{"u": "other"}]


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("how", ["extended", "prepared", "block", "string"])
def test_the_role_of_statements_of_the_queue(qbouncer, direct, db, mode, how):
    """TAKE runs on another server: under the role of the moment, however that was set."""
    direct.execute("GRANT other TO app")
    with qbouncer(pool_mode=mode, default_pool_size=1).wire(db) as c:
        assert not errors(c.simple("QUEUE CREATE mail"))
        if how == "prepared":
            c.hold().parse("other", "SET ROLE other").parse("none", "RESET ROLE").sync().push()
            assert not errors(c.until("Z"))
        for _ in range(2):
            for name, sql, refused in ("other", "SET ROLE other", ["42501"]), ("none", "RESET ROLE", []):
                if how == "extended":
                    assert not errors(extended(c, sql))
                elif how == "prepared":
                    c.hold().bind("", name).execute().sync().push()
                    assert not errors(c.until("Z"))
                elif how == "block":
                    for one in "BEGIN", sql, "COMMIT":
                        assert not errors(c.simple(one))
                else:
                    assert not errors(c.simple("SELECT 1; " + sql))
                assert errors(c.simple("QUEUE TAKE mail")) == refused
