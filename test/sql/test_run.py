"""Jobs that run by themselves, in the functions alone: queue._run_job and what is allowed. The program: test/it/queue/test_queue_run.py."""

import json

import pytest

HANDLER = """CREATE SCHEMA h; CREATE TABLE h.t (n int);
    CREATE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO h.t VALUES (1); RETURN jsonb_build_object('path', current_setting('search_path'), 'got', payload); END$$"""
RUN = "SELECT queue FROM queue._run_job(%s, %s, false)"


@pytest.fixture
def q(db):
    db.script(HANDLER)
    db.create("q", handler="h.f", retain_done="1 h")
    return db


def run(db, token, path="h, public"):
    return db.column(RUN, token, path)


def test_work_and_done(q):
    q.push("q", '{"a": 1}')
    (job,) = q.take("q")
    assert run(q, job["token"]) == ["q"]
    assert q.rows("SELECT state, result FROM queue.await(%s)", job["token"]) == [("done", {"path": "h, public", "got": {"a": 1}})]
    assert q.value("SELECT count(*) FROM h.t") == 1
    q.fails("QB001", RUN, job["token"], "public")
    assert q.value("SELECT count(*) FROM h.t") == 1


def test_a_lease_that_ends_meanwhile(q):
    """The work is taken back with it."""
    q.rows("""CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO h.t VALUES (1); UPDATE queue.q_q SET lease_until = now() - interval '1 s', due = now() - interval '1 s'; RETURN NULL; END$$""")
    q.push("q", "1")
    (job,) = q.take("q")
    q.fails("QB001", RUN, job["token"], "public")
    assert q.value("SELECT count(*) FROM h.t") == 0


def test_only_the_owners_login(q):
    q.rows("SELECT queue.grant('q', '{push, take}', '{bob}')")
    bob, root = q.connect("bob"), q.connect("postgres")
    bob.push("q", "1")
    (job,) = bob.take("q")
    bob.fails("42501", RUN, job["token"], "public")
    root.rows("SET ROLE app")
    root.fails("42501", RUN, job["token"], "public")
    assert q.value("SELECT count(*) FROM h.t") == 0


def test_who_may_make_one(q):
    """A member of the owner that cannot become it cannot make its logins do something."""
    root = q.connect("postgres")
    major = int(root.value("SHOW server_version_num")) // 10000
    root.rows("CREATE ROLE member LOGIN")
    try:
        root.rows("GRANT app TO member" + (" WITH SET FALSE, INHERIT TRUE" if major >= 16 else ""))
        member = q.connect("member")
        sql = "UPDATE queue.queues SET handler = 'h.g' WHERE name = 'q'"
        member.fails("42501" if major >= 16 else "42883", sql)
        q.connect("mallory").fails("42501", sql)
    finally:
        root.rows("DROP OWNED BY member; DROP ROLE member")


def test_names_that_are_code(q):
    """A row that was made by hand is as good as an option."""
    for bad in ("h.f(); DROP TABLE h.t; --", "h.f", "H.F", '"h"."f"', "f", "h.f.g", ""):
        if bad in ("h.f", '"h"."f"', "H.F"):
            q.rows("UPDATE queue.queues SET handler = %s WHERE name = 'q'", bad)
            continue
        q.fails("22023", "UPDATE queue.queues SET handler = %s WHERE name = 'q'", bad)
    assert q.value("SELECT to_regclass('h.t') IS NOT NULL")


def test_logins(q):
    root = q.connect("postgres")
    root.rows("CREATE ROLE crew NOLOGIN; GRANT crew TO app; GRANT ALL ON SCHEMA h TO crew")
    try:
        root.rows("ALTER FUNCTION h.f OWNER TO crew")
        q.fails("28000", "UPDATE queue.queues SET owner = 'crew' WHERE name = 'q'")
    finally:
        root.rows("DROP OWNED BY crew; DROP ROLE crew")


def begin(db, token):
    """What the proxy hears, and how long the transaction is."""
    told = {}
    for what, value in db.rows("SELECT ended, sql FROM queue._run_job(%s, 'public', false)", token):
        told[what] = told.get("value", []) + [value] if what == "value" else value
    return told


END = "SELECT queue FROM queue._run_end(%s, %s, %s::jsonb, %s) AS queue"


def test_sql(db):
    """The proxy is told what it is, in the transaction of the work; and says how it was."""
    db.create("q", run="sql", retain_done="1 h")
    db.rows("CREATE TABLE t (n int)")
    for payload in ({"sql": "SELECT $1"}, "SELECT $1"):
        db.push("q", json.dumps(payload))
        (job,) = db.take("q")
        with db.conn.transaction():
            told = begin(db, job["token"])
            assert told.pop("began") == db.value("SELECT (extract(epoch FROM now()) * 1000000)::int8::text")
            assert told == {"sql": "SELECT $1"}
            assert db.value("SHOW application_name") == "qbouncer q %s" % job["token"].rsplit("-", 1)[0]
            assert db.value("SELECT queue.current_job() ->> 'queue'") == "q"
            db.rows("INSERT INTO t VALUES (1)")
            assert db.column(END, job["token"], db.value("SELECT (extract(epoch FROM now()) * 1000000)::int8::text"), '{"tag": "X", "count": 0}', "result") == ["q"]
            assert db.value("SELECT queue.current_job()") is None
        assert db.rows("SELECT state, result FROM queue.await(%s)", job["token"]) == [("done", {"tag": "X", "count": 0})]
    for payload, code in (("1", "22023"), ('{"sql": 1}', "22023"), ("{}", "22023"), ('{"sql": "SELECT 1", "fromat": "csv"}', "0A000"),
                          ('{"sql": "SELECT 1", "format": "xml"}', "22023"), ('{"sql": "SELECT 1", "with": {}}', "22023"),
                          ('{"sql": "SELECT 1", "params": 1}', "22023"), (json.dumps({"sql": "SELECT 1", "params": [1] * 21}), "54023")):
        db.push("q", payload)
        (job,) = db.take("q")
        db.fails(code, RUN, job["token"], "public")


def test_the_end_of_another_transaction(db):
    """What the job has committed itself, whose it is, and what was taken from it: nothing of it is DONE."""
    db.create("q", run="sql", retain_done="1 h")
    db.rows("SELECT queue.run('q', 'SELECT 1')")
    (job,) = db.take("q")
    token, now = job["token"], "SELECT (extract(epoch FROM now()) * 1000000)::int8::text"
    began = begin(db, token)["began"]
    db.fails("25000", END, token, began, "{}", "result")
    with db.conn.transaction():
        began = begin(db, token)["began"]
        db.fails("25000", END, token + "0", began, "{}", "result")
    with db.conn.transaction():
        db.rows("SELECT set_config('qbouncer.lease', %s, true)", token)
        db.fails("25000", END, token, began, "{}", "result")
    with db.conn.transaction():
        began = begin(db, token)["began"]
        db.rows("UPDATE queue.q_q SET lease_until = now() - interval '1 s'")
        db.fails("QB001", END, token, db.value(now), "{}", "none")
    assert db.value("SELECT state FROM queue.q_q") == "leased"


@pytest.mark.parametrize("keep, retain, kept", [("result", "0", True), ("always", "0", True), ("error", "1 h", False), ("none", "1 h", False)])
def test_what_is_kept(db, keep, retain, kept):
    """... is what the job says, whatever its queue does."""
    db.create("q", run="sql", retain_done=retain)
    db.rows("SELECT queue.run('q', 'SELECT 1', keep => %s)", keep)
    (job,) = db.take("q")
    with db.conn.transaction():
        told = begin(db, job["token"])
        assert told.get("keep") == keep
        db.rows(END, job["token"], told["began"], '{"count": 1}', keep)
    assert db.value("SELECT count(*) FROM queue.q_q") == 0
    assert db.value("SELECT count(*) FROM queue.a_q") == kept


def test_rows_as_json(db):
    """As to_jsonb gives them, of the texts of their values; what cannot be read again stays a text."""
    db.rows(r"""CREATE TABLE kinds (a bool, b int2, c numeric, d float8, e text, f bpchar(3), g date, h timestamptz, i timestamp, j json, k jsonb, l int[],
        m text[], n bytea, o interval, p uuid, q regclass, r regclass[], s money, t name, u "char", v time, w point, x int4range, y xml, z box[], "ä ""b c" int2vector);
        INSERT INTO kinds VALUES (true, 1, 1.50, 'NaN', E'a"\\\n', 'x', '2026-01-02', '2026-01-02 03:04:05.6+01', '2026-01-02 03:04', '{"a": [1,  2]}',
            '{"b": null}', '{1,NULL}', '{"a,b",NULL}', '\x00ff', '1 day', '00000000-0000-0000-0000-000000000001', 'kinds', '{kinds}', '1.5', 'n', 'c', '01:02',
            '(1,2)', '[1,2)', '<a/>', '{(1,1),(0,0)}', '1 2');
        INSERT INTO kinds DEFAULT VALUES""")
    for sql in ("SELECT * FROM kinds", "SELECT k AS kinds FROM kinds AS k", "SELECT 1 AS a, 2 AS a", "SELECT FROM kinds", "SELECT 1 AS a WHERE false", "SELECT 1 AS r, 2 AS e, 3 AS v, 4 AS n"):
        want = db.value("SELECT coalesce(jsonb_agg(to_jsonb(t.*)), '[]') FROM (%s) AS t" % sql)
        with db.conn.cursor() as cur:
            cur.execute(sql)
            names, types, n = [d.name for d in cur.description or []], [d.type_code for d in cur.description or []], cur.pgresult.ntuples
            values = [[cur.pgresult.get_value(row, at) for at in range(len(names))] for row in range(n)]
        values = [[v.decode() if v is not None else None for v in row] for row in values]
        got = db.value("SELECT queue._run_rows(%s::jsonb)", json.dumps({"tag": "SELECT", "names": names, "types": types, "values": values}))
        assert [[(k, v, row[k]) for k, v in have.items() if v != row.get(k)] for have, row in zip(got["rows"], want)] == [[]] * len(want), sql
        assert got == {"tag": "SELECT", "rows": want}, sql
    got = db.value("SELECT queue._run_rows(%s::jsonb)", json.dumps({"names": ["r", "n"], "types": [2249, 23], "values": [["(1,2)", "7"]]}))
    assert got == {"rows": [{"r": "(1,2)", "n": 7}]}
    got = db.value("SELECT queue._run_rows(%s::jsonb)", json.dumps({"names": ["r", "n"], "types": [1082, 4294967295], "values": [["no date", "7"]]}))
    assert got == {"rows": [{"r": "no date", "n": "7"}]}


def test_texts_that_are_sql(db):
    """The payload is the statement; nothing can stand beside it."""
    db.rows("SELECT queue.create('q', false, '{payload, run}', '{text, sql}')")
    db.rows("SELECT queue.run('q', 'SELECT \"{\"')")
    ((token,),) = db.rows("SELECT token FROM queue.take_text('q')")
    with db.conn.transaction():
        told = begin(db, token)
        assert told["sql"] == 'SELECT "{"' and set(told) == {"sql", "began"}
    for more in ("'[1]'", "NULL, no_transaction => true", "NULL, timeout => '1 s'", "NULL, keep => 'none'", "NULL, format => 'csv'"):
        db.fails("0A000", "SELECT queue.run('q', 'SELECT 1', %s)" % more)
    db.fails("0A000", "SELECT queue.create('b', false, '{payload, run}', '{bytea, sql}')")


def test_handlers_of_texts_and_bytes(db):
    """One session runs all of them; each is a function of what its queue has."""
    db.script("""CREATE SCHEMA h; CREATE FUNCTION h.f(p jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_build_array(''json'', p)';
        CREATE FUNCTION h.f(p text) RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_build_array(''text'', p)';
        CREATE FUNCTION h.f(p bytea) RETURNS jsonb LANGUAGE sql AS 'SELECT jsonb_build_array(''bytes'', length(p))'; CREATE FUNCTION h.g(p jsonb) RETURNS void LANGUAGE sql AS ''""")
    for kind in ("text", "bytea"):
        e = db.fails("42883", "SELECT queue.create('x', false, '{payload, handler}', %s)", "{%s,h.g}" % kind)
        assert e.message_primary == "function h.g(%s) does not exist" % kind
    for _ in range(2):
        for kind, payload, want in (("jsonb", '{"a": 1}', ["json", {"a": 1}]), ("text", "{a", ["text", "{a"]), ("bytea", "\\x00ff", ["bytes", 2])):
            db.rows("SELECT queue.create(%s, true, '{payload, handler}', %s)", "q" + kind, "{%s,h.f}" % kind)
            db.rows("SELECT queue.push(%%s, %%s::%s)" % kind, "q" + kind, payload)
            token = db.value("SELECT token FROM queue.take%s(%%s)" % {"jsonb": "", "text": "_text", "bytea": "_bytea"}[kind], "q" + kind)
            assert run(db, token, "public") == ["q" + kind]
            assert db.value("SELECT result FROM queue.await(%s)", token) == want


def test_queues_without_are_not_looked_at(db):
    db.create("q")
    assert db.rows("SELECT * FROM queue._runs()") == [] and db.rows("SELECT * FROM queue._schedules_due()") == []
    db.create("r", run="sql", timeout="2 s")
    assert db.rows("SELECT * FROM queue._runs()") == [("r", "app", False, 2000, "sql", 1, "jsonb", None, None, None)]
    assert db.rows("SELECT * FROM queue._schedules_due()") == [("", 0)]


def test_whose_sessions_are_kept(db):
    """The proxy is told what makes a session another one's: anything that is changed."""
    db.script(HANDLER)
    said = []

    def told():
        ((of, jobs, ms),) = db.rows("SELECT session, session_jobs, session_ms FROM queue._runs()")
        return said.append(of) or (jobs, ms)

    db.create("r", run="sql", session="keep")
    assert told() == (None, None) and said[-1] is not None
    for options, values, want in [("{session_jobs}", "{7}", (7, None)), ("{session_time}", "{90 s}", (7, 90000)), ("{run,handler}", None, None)]:
        if values is None:
            db.rows("SELECT queue.alter('r', '{handler}', '{h.f}', '{run}')")
            want = (7, 90000)
        else:
            db.rows("SELECT queue.alter('r', %s, %s)", options, values)
        assert told() == want
    db.rows("SELECT queue.drop('r')")
    db.create("r", run="sql", session="keep")
    told()
    assert len(set(said)) == len(said) == 5
    before = said[-1]
    db.rows("SELECT queue.alter('r', '{lease}', '{1 h}')")
    told()
    assert said[-1] == before
    db.rows("SELECT queue.alter('r', '{}', '{}', '{session}')")
    assert told() == (None, None) and said[-1] is None
    # by hand: as strict as by its functions
    db.fails("23514", "UPDATE queue.queues SET session = 'dirty'")
    db.fails("23514", "UPDATE queue.queues SET session = 'keep', session_jobs = 0")
    db.fails("22023", "UPDATE queue.queues SET session_jobs = 5")
    db.rows("UPDATE queue.queues SET session = 'keep', session_time = '1 us'")
    assert told() == (None, 1)


def test_what_others_push_elsewhere_is_not_run(db):
    """Who may push to a queue, or publish, cannot have SQL run as the owner of another one: whatever comes first."""
    db.create("orders")
    db.create("nightly", run="sql")
    db.create("weekly", run="sql")
    db.rows("SELECT queue.create_topic('news')")
    e = db.fails("42501", "SELECT queue.alter('orders', '{dead_queue}', '{nightly}')")
    assert "run as SQL" in e.message_primary
    e = db.fails("42501", "SELECT queue.bind('nightly', 'news.#')")
    assert "run as SQL" in e.message_primary
    db.create("later")
    db.create("bound")
    db.rows("SELECT queue.alter('orders', '{dead_queue}', '{later}')")
    db.rows("SELECT queue.bind('bound', 'news.#')")
    db.fails("42501", "SELECT queue.alter('later', '{run}', '{sql}')")
    db.fails("42501", "SELECT queue.alter('bound', '{run}', '{sql}')")
    db.rows("SELECT queue.unbind('bound', 'news.#')")
    db.rows("SELECT queue.alter('bound', '{run}', '{sql}')")
    # among those that run SQL a pusher gets nothing that he does not have
    db.rows("SELECT queue.alter('weekly', '{dead_queue}', '{nightly}')")
    db.fails("42501", "SELECT queue.alter('weekly', '{}', '{}', '{run}')")
    # a handler chooses what it does with a payload
    db.script(HANDLER)
    db.rows("SELECT queue.alter('later', '{handler}', '{h.f}')")
    db.rows("SELECT queue.bind('later', 'news.#')")


@pytest.mark.parametrize("right", ["push", "take"])
def test_rights_that_are_there_are_told(db, right):
    """A taker may change what he could take."""
    db.create("mail")
    db.rows("SELECT queue.grant('mail', %s, '{bob}')", "{%s}" % right)
    db.notices.clear()
    db.rows("SELECT queue.alter('mail', '{run}', '{sql}')")
    assert db.notices == ['others may push to queue "mail", or take from it: bob']
    db.rows("SELECT queue.alter('mail', '{timeout}', '{1 s}')")
    db.rows("SELECT queue.revoke('mail', %s, '{bob}')", "{%s}" % right)
    db.rows("SELECT queue.alter('mail', '{}', '{}', '{run}')")
    db.rows("SELECT queue.alter('mail', '{run}', '{sql}')")
    assert len(db.notices) == 1


def test_values(db):
    db.create("q", run="sql")
    for params, want in [([7, "'; DROP TABLE t; --"], ["7", "'; DROP TABLE t; --"]), ([None, {"a": 5}, [1]], [None, '{"a": 5}', "[1]"]), ([], None),
                         (list(range(20)), [str(n) for n in range(20)])]:
        db.rows("SELECT queue.run('q', 'SELECT', %s::jsonb)", json.dumps(params))
        (job,) = db.take("q")
        assert begin(db, job["token"]).get("value") == want


def test_run_needs_such_a_queue_and_the_right(db):
    db.create("q", run="sql")
    db.create("other")
    db.fails("55000", "SELECT queue.run('other', 'SELECT 1')")
    db.fails("42P01", "SELECT queue.run('none', 'SELECT 1')")
    assert db.fails("22004", "SELECT queue.run('q', NULL)").message_primary == "the statement must not be null"
    db.fails("22023", "SELECT queue.run('q', 'SELECT 1', '{}')")
    db.fails("54023", "SELECT queue.run('q', 'SELECT 1', %s::jsonb)", json.dumps([1] * 21))
    bob = db.connect("bob")
    bob.fails("42501", "SELECT queue.run('q', 'SELECT 1')")
    db.rows("SELECT queue.grant('q', '{push}', '{bob}')")
    assert bob.value("SELECT queue.run('q', 'SELECT 1', NULL, 5, key => 'k')") == 1
    assert bob.value("SELECT queue.run('q', 'SELECT 1', NULL, 5, key => 'k')") == 1
    assert db.rows("SELECT payload, priority FROM queue.q_q") == [({"sql": "SELECT 1"}, 5)]


def test_a_handler_that_wants_to_be_called_again(q):
    """What it has done stays; an attempt that counts, or not."""
    q.rows("""CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO h.t VALUES (1);
        RETURN queue.retry((payload ->> 'after')::interval, payload ->> 'why', (payload ->> 'counts')::bool); END$$""")
    ended = "SELECT ended FROM queue._run_job(%s, 'public', false)"
    for payload, how, state, attempt, error in [
            ('{"after": "1 h", "why": "not yet"}', "failed", "later", 1, "not yet"), ('{"counts": true}', "failed", "later", 1, "the handler asked to be called again"),
            ('{"after": "1 h", "counts": false}', "released", "later", 0, None), ('{"counts": false}', "released", "ready", 0, None)]:
        q.push("q", payload)
        (job,) = q.take("q")
        assert q.value(ended, job["token"]) == how
        assert q.row("SELECT state, attempt, error FROM queue.q_q WHERE payload = %s::jsonb", payload) == (state, attempt, error), payload
        late = q.value("SELECT run_at > now() + interval '59 min' FROM queue.q_q WHERE payload = %s::jsonb", payload)
        assert bool(late) is ("after" in payload)
        q.connect("postgres").rows("DELETE FROM queue.q_q")
    assert q.value("SELECT count(*) FROM h.t") == 4
    q.fails("22023", "SELECT queue.retry('-1 s')")
    q.rows("SELECT queue.alter('q', '{max_attempts}', '{1}')")
    q.push("q", '{"after": "1 h"}')
    (job,) = q.take("q")
    assert q.value(ended, job["token"]) == "failed"
    assert q.value("SELECT state FROM queue.q_q") == "dead"


def test_who_pushes_cannot_ask_for_it(q):
    """A handler may return what it was given."""
    q.rows("CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT payload'")
    for of in ("null", '""', '"1-1"'):
        q.push("q", '{"queue.retry": {"counts": false, "after": "x", "of": %s}}' % of)
        (job,) = q.take("q")
        assert q.value("SELECT ended FROM queue._run_job(%s, 'public', false)", job["token"]) == "done"


def test_the_job_that_runs(q):
    q.rows("""CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT queue.current_job()'""")
    assert q.value("SELECT queue.current_job()") is None
    q.rows("SELECT queue.push('q', '1'::jsonb, priority => 7, headers => '{\"a\": 1}', key => 'k', \"group\" => 'g')")
    (job,) = q.take("q")
    with q.conn.transaction():
        run(q, job["token"], "public")
        assert q.value("SELECT queue.current_job()") is None
    ((got,),) = q.rows("SELECT result FROM queue.await('1-1')")
    assert got.pop("pushed_at")
    assert got == {"job": "1-1", "id": 1, "queue": "q", "attempt": 1, "failures": 0, "priority": 7, "key": "k", "group": "g", "headers": {"a": 1}}
    assert q.value("SELECT queue.current_job()") is None


def test_no_transaction_is_the_proxys(db):
    db.create("q", run="sql")
    db.rows("SELECT queue.run('q', 'VACUUM', '[1, null, {\"a\": 2}]', no_transaction => true)")
    (job,) = db.take("q")
    assert db.rows("SELECT * FROM queue._run_job(%s, 'public', false)", job["token"]) == [
        ("q", "alone", "VACUUM"), ("q", "session", "qbouncer q 1-1"), ("q", "value", "1"), ("q", "value", None), ("q", "value", '{"a": 2}')]
    assert db.value("SELECT state FROM queue.q_q") == "leased"
    db.rows("SELECT queue.run('q', 'SELECT 1', no_transaction => true, keep => 'none', format => 'csv', format_with => '{\"delimiter\": \";\"}')")
    (job,) = db.take("q")
    told = db.rows("SELECT ended, sql FROM queue._run_job(%s, 'public', false)", job["token"])
    assert told[0] == ("keep", "none") and told[-2:] == [("alone", "SELECT 1"), ("session", "qbouncer q 1-2")]
    assert {("format", "csv"), ("delimiter", ";"), ("header", "false")} < set(told[1:-2])
    db.push("q", '{"sql": "VACUUM", "transaction": 0}')
    (job,) = db.take("q")
    db.fails("22023", RUN, job["token"], "public")


def test_a_session_is_found_by_its_name(db):
    """63 bytes, and the job is in them whatever the queue is called."""
    for name in ("q", "q" * 40, "\u00e4" * 20, "a 'quoted' \"one\""):
        db.rows("SELECT queue.create(%s)", name)
        called = db.value("SELECT queue._run_session(c, 9223372036854775807) FROM queue.queues AS c WHERE c.name = %s", name)
        assert called.startswith("qbouncer ") and called.endswith("-9223372036854775807")
        other = db.connect()
        other.rows("SELECT set_config('application_name', %s, false)", called)
        assert other.value("SHOW application_name") == called
        pid = other.value("SELECT pg_backend_pid()")
        stranger = db.connect("bob")
        stranger.rows("SELECT set_config('application_name', %s, false)", called)
        db.rows("SELECT queue._end_orphans(ARRAY['1-9223372036854775807', %s])", called.rpartition(" ")[2])
        assert db.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == 0
        assert stranger.value("SELECT 1") == 1, "nobody else's"


@pytest.mark.parametrize("text, jobs, there", [
    ("/* qbouncer 3: 17 */ SELECT 1", ["3-17"], True), ("/* qbouncer 3: 17 */ SELECT 1", ["3-1", "3-7", "17-3", "4-17", "3-170"], False),
    ("/* qbouncer 3: 2 17-20 5 */ SELECT 1", ["3-17"], True), ("/* qbouncer 3: 2 17-20 5 */ SELECT 1", ["3-20"], True),
    ("/* qbouncer 3: 2 17-20 5 */ SELECT 1", ["1-1", "3-5"], True), ("/* qbouncer 3: 2 17-20 5 */ SELECT 1", ["3-16", "3-21", "3-3"], False),
    ("/* qbouncer 3: 2 17-20 5", ["3-19"], True), ("/* qbouncer 3: 9223372036854775807999999999 */", ["3-9"], False),
    ("/* qbouncer 3: */ SELECT 17", ["3-17"], False), (" /* qbouncer 3: 17 */", ["3-17"], False), ("SELECT 1", ["3-17"], False), ("", [], False)])
def test_which_jobs_a_batch_has(db, text, jobs, there):
    assert db.value("SELECT queue._is_in_batch(%s, %s::text[])", text, jobs) is there


def test_who_pushes_ends_nobody_elses_job(q):
    """Headers are what their pusher wants; a job that somebody works on is nobody's orphan, whatever they say."""
    ours = "SELECT queue._attempts(jsonb_build_object('job', '9-9', 'headers', %s::jsonb))"
    q.create("other", handler="h.f")
    q.push("other", "1")
    (job,) = q.take("other")
    name = job["token"].rpartition("-")[0]
    assert q.value(ours, json.dumps({"parent": name})) == ["9-9"]
    q.rows("SELECT queue.release(%s)", job["token"])
    assert q.value(ours, json.dumps({"parent": name})) == ["9-9", name]
    q.connect("postgres").rows("UPDATE queue.queues SET handler = NULL WHERE name = 'other'")
    q.connect("postgres").rows("UPDATE queue.queues SET owner = 'bob' WHERE name = 'other'")
    assert q.value(ours, json.dumps({"parent": name})) == ["9-9"]
    assert q.value(ours, json.dumps({"parent": "999999999-7"})) == ["9-9", "999999999-7"], "dropped since"
    for parent in ("9-9-abc", "x", "1-", "9999999999-1", "1-9999999999999999999", "1-1'; DROP TABLE x", [name], {"a": 1}, None, 7, ""):
        assert q.value(ours, json.dumps({"parent": parent})) == ["9-9"], parent
    assert q.value("SELECT queue._attempts('{\"job\": \"9-9\", \"headers\": {}}')") == ["9-9"]


@pytest.mark.parametrize("way", ["dead_queue", "redrive"])
def test_one_that_is_moved_has_been_taken_before(db, way):
    """Where it runs by itself; elsewhere takes are counted anew."""
    db.script(HANDLER)
    for name, options in (("runs", {"handler": "h.f"}), ("work", {})):
        db.create(name, **options)
        db.create("from_" + name, max_attempts="2", retry="fixed 1ms", **({"dead_queue": name} if way == "dead_queue" else {}))
        db.push("from_" + name, "1")
        for _ in range(2):
            (job,) = db.take("from_" + name)
            db.rows("SELECT queue.fail(%s, 'no')", job["token"])
            db.rows("UPDATE queue.q_from_%s SET state = 'ready', run_at = now() WHERE state = 'later'" % name)
        if way == "redrive":
            db.rows("SELECT queue.redrive(%s, target => %s)", "from_" + name, name)
        assert db.row("SELECT attempt, spent FROM queue.q_%s" % name) == (0, 2 if name == "runs" else None)


# --- several in one transaction ---

BATCH = "SELECT job, ended FROM queue._run_batch(%s, 'public', false)"


def test_a_batch(q):
    """Those that are called again are no part of the DONE of the others."""
    q.rows("""CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO h.t VALUES ((queue.current_job() ->> 'id')::int);
        RETURN CASE WHEN payload = '2' THEN queue.retry('1 h') WHEN payload = '3' THEN queue.retry('1 h', counts => false) ELSE payload END; END$$""")
    for n in range(1, 6):
        q.push("q", str(n))
    tokens = [job["token"] for job in q.take("q", 5)]
    assert dict(q.rows(BATCH, tokens)) == dict(zip(tokens, ("done", "failed", "released", "done", "done")))
    assert q.column("SELECT n FROM h.t") == [1, 2, 3, 4, 5]
    assert q.rows("SELECT id, attempt FROM queue.q_q ORDER BY id") == [(2, 1), (3, 0)]
    assert q.rows("SELECT id, result FROM queue.a_q ORDER BY id") == [(1, 1), (4, 4), (5, 5)]
    assert q.value("SELECT queue.current_job()") is None


def test_a_batch_is_whole_or_not_at_all(q):
    """One lease that is lost, one that is cancelled, one job twice, of two queues, of a queue that has no handler."""
    q.create("sql", run="sql")
    q.create("other", handler="h.f")
    q.push("sql", '"SELECT 1"')
    q.push("other", "1")
    for n in range(3):
        q.push("q", str(n))
    tokens = [job["token"] for job in q.take("q", 3)]
    (theirs,) = [job["token"] for job in q.take("other")]
    (statement,) = [job["token"] for job in q.take("sql")]
    q.fails("QB001", BATCH, [*tokens[:2], tokens[2][:-16] + "0" * 16])
    q.fails("55000", BATCH, [*tokens, tokens[0]])
    q.fails("55000", BATCH, [*tokens, theirs])
    q.fails("55000", BATCH, [statement])
    q.rows("SELECT queue.cancel(%s)", tokens[1].rpartition("-")[0])
    q.fails("QB002", BATCH, tokens)
    # lost while another one of them runs
    q.rows("""CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        UPDATE queue.q_q AS j SET lease_until = now() - interval '1 s', due = now() - interval '1 s' WHERE j.payload = '0'; INSERT INTO h.t VALUES (1); RETURN NULL; END$$""")
    q.fails("QB001", BATCH, [tokens[0], tokens[2]])
    q.rows("CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN SET LOCAL ROLE bob; RETURN NULL; END$$")
    q.connect("postgres").rows("GRANT bob TO app")
    q.fails("25000", BATCH, [tokens[0], tokens[2]])
    q.connect("postgres").rows("REVOKE bob FROM app")
    assert q.value("SELECT count(*) FROM h.t") == 0
    assert q.column("SELECT attempt FROM queue.q_q") == [1, 1, 1]
    q.connect("bob").fails("42501", BATCH, tokens)


# --- who owns the schema of the handler ---


@pytest.fixture
def theirs(q):
    """The schema is bob's, in it is a function of app's, and one of bob's that he would like to have called."""
    root = q.connect("postgres")
    root.script("""CREATE SCHEMA theirs AUTHORIZATION bob; GRANT USAGE ON SCHEMA theirs TO app; GRANT CREATE ON DATABASE "%s" TO bob;
        CREATE FUNCTION theirs.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
            INSERT INTO h.t VALUES (1); RETURN NULL; END$$;
        ALTER FUNCTION theirs.f(jsonb) OWNER TO app; GRANT USAGE ON SCHEMA h TO PUBLIC; GRANT ALL ON h.t TO PUBLIC""" % q.conn.info.dbname)
    q.create("w", handler="theirs.f")
    q.push("w", "1")
    (job,) = q.take("w")
    return q.connect("bob"), job["token"]


# what runs even where a plan is only made
EVIL = """CREATE FUNCTION %s.evil() RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM nextval('h.called'); RETURN '1'; END$$;
    CREATE FUNCTION %s.f(payload jsonb) RETURNS jsonb LANGUAGE %s"""
KINDS = ["plpgsql AS $$BEGIN PERFORM nextval('h.called'); RETURN '1'; END$$",
         "plpgsql IMMUTABLE AS $$BEGIN PERFORM nextval('h.called'); RETURN '1'; END$$",
         "sql IMMUTABLE AS 'SELECT evil.evil()'"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["drop", "rename"])
def test_a_handler_that_is_swapped_behind_its_check(q, theirs, how, kind):
    """Not even the planner calls what has the name now."""
    bob, _ = theirs
    q.connect("postgres").script("CREATE SEQUENCE h.called; GRANT ALL ON h.called TO PUBLIC")
    bob.script("CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO app;" + EVIL % ("evil", "evil", kind))
    checked = q.value("SELECT queue._check_handler(c)::text FROM queue.queues AS c WHERE name = 'w'")
    if how == "drop":
        bob.script("DROP FUNCTION theirs.f(jsonb); CREATE FUNCTION theirs.f(payload jsonb) RETURNS jsonb LANGUAGE " + kind)
    else:
        bob.script("ALTER SCHEMA theirs RENAME TO was; ALTER SCHEMA evil RENAME TO theirs")
        bob.script("CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO app;" + EVIL % ("evil", "evil", kind))
    q.rows("CREATE TYPE h.checked AS (f oid, gives bool, watched text)")
    q.fails("42501", """DO $do$ DECLARE cfg queue.queues; h h.checked := '%s'::h.checked; BEGIN
        SELECT * INTO cfg FROM queue.queues WHERE name = 'w'; PERFORM queue._run_handler(cfg, h, queue._run_call(cfg, h), '1', NULL, NULL, 'public'); END$do$""" % checked)
    assert q.value("SELECT is_called FROM h.called") is False
    assert q.value("SELECT count(*) FROM h.t") == 0


@pytest.mark.parametrize("change, state", [
    ("ALTER SCHEMA theirs RENAME TO was; ALTER SCHEMA was RENAME TO theirs", "42501"),
    ("ALTER SCHEMA theirs RENAME TO was; CREATE SCHEMA theirs", "42883"), ("DROP FUNCTION theirs.f(jsonb)", "42883")])
def test_a_schema_that_changes_while_its_handler_runs(q, theirs, change, state):
    """Was it ours that ran? All of it is taken back."""
    bob, token = theirs
    q.connect("postgres").rows("""CREATE OR REPLACE FUNCTION theirs.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO h.t VALUES (1); PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END$$""")
    bob.rows("SELECT pg_advisory_lock(7)")
    runs = q.beside(run, q, token)
    q.until_blocked(q)
    assert bob.script(change) == ""
    bob.rows("SELECT pg_advisory_unlock(7)")
    runs.error_of(state)
    assert q.value("SELECT count(*) FROM h.t") == 0
    assert q.value("SELECT state FROM queue.q_w") == "leased"


def test_ones_own_schema_may_change(q):
    """GRANT, and another body, while it runs."""
    q.rows("""CREATE OR REPLACE FUNCTION h.f(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO h.t VALUES (1); EXECUTE 'GRANT USAGE ON SCHEMA h TO PUBLIC'; EXECUTE 'ALTER FUNCTION h.f COST 77'; RETURN NULL; END$$""")
    q.push("q", "1")
    (job,) = q.take("q")
    assert run(q, job["token"]) == ["q"]


@pytest.mark.parametrize("kind, result", [
    ("jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'", None), ("jsonb LANGUAGE sql AS $$SELECT 'null'::jsonb$$", "null"),
    ("jsonb LANGUAGE sql IMMUTABLE AS $$SELECT '[1]'::jsonb$$", "[1]"), ("void LANGUAGE sql AS ''", None),
    ("void LANGUAGE plpgsql IMMUTABLE AS 'BEGIN END'", None)])
def test_what_a_handler_may_return(q, kind, result):
    q.rows("CREATE FUNCTION h.g(payload jsonb) RETURNS " + kind)
    q.create("g", handler="h.g", retain_done="1 h")
    for _ in range(3):
        q.push("g", "1")
    one, *two = [job["token"] for job in q.take("g", 3)]
    assert run(q, one) == ["g"]
    assert [how for _, how in q.rows(BATCH, two)] == ["done", "done"]
    assert q.column("SELECT result::text FROM queue.a_g") == [result] * 3
