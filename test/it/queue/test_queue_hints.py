"""What a newcomer sees who has written something wrong: each error has its SQLSTATE and says what to write instead."""

import json
import os
import subprocess

import pytest

from proxy import wait_for
from queuetest import Shared, error, tag

INTERVAL = "%s takes an interval, such as '30 s', '5 min' or '2 h'."
NO_INTERVAL = '22007: invalid input syntax for type interval: "%s"'
JSON = "22P02: invalid input syntax for type json"

# statement, error, HINT
WRONG = [
    ("QUEUE PUSH q '1' DELAY 'soon'", NO_INTERVAL % "soon", INTERVAL % "DELAY"),
    ("QUEUE PUSH q '1' DELAY '1 s' EXPIRES 'never'", NO_INTERVAL % "never", INTERVAL % "EXPIRES"),
    ("QUEUE PUSH q '1' AT 'tomorrow at noon'", '22007: invalid input syntax for type timestamp with time zone: "tomorrow at noon"',
     "AT takes a time, such as '2030-01-31 12:00+00'."),
    ("QUEUE PUSH q '1' PRIORITY 'high'", '22P02: invalid input syntax for type integer: "high"', "PRIORITY takes a whole number, up to 2147483647."),
    ("QUEUE PUSH q '1' PRIORITY 9999999999", '22003: value "9999999999" is out of range for type integer',
     "PRIORITY takes a whole number, up to 2147483647."),
    ("QUEUE PUSH q 'hello'", JSON,
     "The payloads of this queue are JSON: a text is written '\"text\"'. A queue WITH (payload = text) takes any."),
    ("QUEUE PUSH q '1' ATTEMPTS 0", "22023: ATTEMPTS must be at least 1", "QUEUE HELP PUSH shows how it is written."),
    ("QUEUE ALTER JOB 1 ON q SET (priority = 3, expires = 'soon')", NO_INTERVAL % "soon", INTERVAL % "expires"),
    ("QUEUE FAIL '1-1-0123456789abcdef' RETRY IN 'soon'", NO_INTERVAL % "soon", INTERVAL % "RETRY IN"),
    ("QUEUE RUN 'SELECT 1' ON sql PARAMS 'x'", JSON, "PARAMS takes a JSON array, such as '[7, \"a text\", null]'."),
    ("QUEUE RUN 'SELECT 1' ON sql TIMEOUT 'x'", NO_INTERVAL % "x", INTERVAL % "TIMEOUT"),
    ("QUEUE RUN 'SELECT 1' ON sql FORMAT CSV WITH (force_quote = -1)", '22023: invalid value "-1" for force_quote',
     "Allowed: '*', or names of columns: 'a, \"B c\"'."),
    ("QUEUE TAKE q LIMIT 0", "22023: LIMIT must be between 1 and 10000", "QUEUE HELP TAKE shows how it is written."),
    ("QUEUE TAKE q LEASE 'foo'", NO_INTERVAL % "foo", "An interval is written '30 s', '5 min' or '2 h'."),
    ("QUEUE TAKE st FOR sub LAG 'foo'", NO_INTERVAL % "foo", "An interval is written '30 s', '5 min' or '2 h'."),
    ("QUEUE TAKE st FOR ''", "22004: the name of the subscription is missing", "QUEUE HELP TAKE shows how it is written."),
    ("QUEUE SCHEDULE r EVERY '1 h' RUN 'x'", "42601: a schedule that runs SQL needs a queue",
     "QUEUE SCHEDULE name ON q EVERY interval RUN sql: q is a queue WITH (run = sql)."),
    ("QUEUE SCHEDULE r ON q EVERY 'daily' PUSH '1'", NO_INTERVAL % "daily", INTERVAL % "EVERY"),
    ("QUEUE SCHEDULE '' ON q EVERY '1 h' PUSH '1'", "42602: the name of a schedule has 1 to 63 bytes", "QUEUE HELP SCHEDULE shows how it is written."),
    ("QUEUE CREATE n WITH (handler_batch = 5)", "22023: handler_batch needs a handler",
     "Give it with the handler: handler = 'schema.function', handler_batch = ... Of a job that a worker holds: max_run."),
    ("QUEUE ALTER q SET (timeout = '1 min')", "22023: timeout needs a handler, or run = sql",
     "Give it with the handler: handler = 'schema.function', timeout = ... Of a job that a worker holds: max_run."),
    ("QUEUE CREATE n WITH (session = keep)", "22023: session needs a handler, or run = sql",
     "Give it with the handler: handler = 'schema.function', session = ..."),
    ("QUEUE ALTER sql SET (session_jobs = 5)", "22023: session_jobs needs session = keep", "SET (session = keep, session_jobs = ...)"),
    ("QUEUE CREATE n WITH (run = sql, session_time = '5 min')", "22023: session_time needs session = keep", "SET (session = keep, session_time = ...)"),
    ("QUEUE PEEK '999-d1'", "QB001: delivery 999-d1 is not out", "QUEUE SUBSCRIPTIONS shows of each subscription the delivery that is out."),
    ("QUEUE PUBLISH 'top.a' '1' KEY 'k' ON DUPLICATE ERROR", '23505: queue "q" has a job with the key "k" already',
     "ON DUPLICATE IGNORE leaves it as it is; PUSH and RUN also have REPLACE and RERUN."),
    ("QUEUE ERRORS ''", "42602: queue name must not be empty", "Usage: QUEUE ERRORS q"),
    ("QUEUE ERRORS " + 41 * "q", "42622: queue name is too long", "Usage: QUEUE ERRORS q"),
    ("QUEUE CANCEL '{3'", '22P02: malformed array of jobs: "{3"', "A job is named '3-17', several are '{3-17,3-18}'."),
    ("QUEUE STATS q BY ''", '22023: there are no figures by ""', "BY MINUTE, BY HOUR or BY DAY."),
    ("QUEUE GRANT PUSH ON q TO ''", "42602: the name of the role must not be empty", "QUEUE HELP GRANT shows how it is written."),
    ("QUEUE GRANT PUBLISH ON TOPIC top TO ''", "42602: the name of the role must not be empty", "QUEUE HELP GRANT shows how it is written."),
    ("QUEUE ALTER st FOR NULL SET (lease = '1 min')", "22004: the name of the subscription must not be null",
     "QUEUE SUBSCRIPTIONS st; shows those that there are."),
    ("QUEUE SUBSCRIBE s2 TO st WITH (lease = NULL)", "22023: invalid value for option \"lease\": 'NULL'",
     "Allowed: an interval longer than zero, such as '1 min'."),
    ("QUEUE PUSH q '1' DELAY true", NO_INTERVAL % "true", INTERVAL % "DELAY"),
]


@pytest.fixture(scope="module")
def one(program, cluster):
    """A database with a few things in it, and a proxy before it."""
    one = Shared(program, cluster)
    with one.wire(one.name) as c:
        for statement in ["QUEUE CREATE q", "QUEUE CREATE sql WITH (run = sql)", "QUEUE CREATE st WITH (kind = stream)",
                          "QUEUE SUBSCRIBE sub TO st", "QUEUE CREATE TOPIC top", "QUEUE BIND q TO 'top.#'",
                          "QUEUE PUSH q '1' KEY 'k' DELAY '1 h'"]:
            tag(c, statement)
    yield one
    one.end()


def psql(one, *statements):
    """What it says of errors, but where in the source of Postgres they are."""
    args = [word for statement in statements for word in ("-c", statement)]
    done = subprocess.run(["psql", "-X", "-q", "-v", "VERBOSITY=verbose", *args, one.proxy.dsn(one.name)],
                          env=dict(os.environ, LC_ALL="C", PGCLIENTENCODING="UTF8"), capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if not line.startswith("LOCATION:")]


@pytest.mark.parametrize("statement, said, hint", WRONG, ids=[w[0] for w in WRONG])
def test_it_says_what_to_write(one, statement, said, hint):
    lines = psql(one, statement)
    assert lines[0] == "ERROR:  " + said
    assert [line for line in lines if line.startswith("HINT:")] == ["HINT:  " + hint], lines
    assert not [line for line in lines if line.startswith("CONTEXT:") and "PL/pgSQL" in line], lines


@pytest.mark.parametrize("statement, said, hint", WRONG[:10], ids=[w[0] for w in WRONG[:10]])
def test_in_a_transaction_too(one, statement, said, hint):
    lines = psql(one, "BEGIN", statement, "ROLLBACK")
    assert lines[0].startswith("ERROR:  " + said[:6]), lines
    assert lines[-1] == "HINT:  " + hint, lines


def test_an_expression_of_the_client_is_left_alone(one):
    """The error is his own SQL's, and Postgres shows where."""
    (first, line, place) = psql(one, "QUEUE PUSH q '1' DELAY (interval 'soon' + interval '1 s')")
    assert first == "ERROR:  22007: invalid input syntax for type interval: \"soon\""
    assert line.startswith("LINE 1: QUEUE PUSH") and place.strip() == "^"


def test_bound_values_too(one):
    with one.wire(one.name) as c:
        c.parse("", "QUEUE PUSH q $1 DELAY $2").bind(values=[b"1", b"soon"]).execute().sync()
        (e,) = [m for m in c.until("Z") if m.type == "E"]
    assert (e.sqlstate, e.fields["H"]) == ("22007", INTERVAL % "DELAY")


def test_handler_batch_is_given_with_its_handler(qbouncer, cluster, db):
    """Both at once, or the handler first; and without it any more the option may stay, for the next one."""
    with qbouncer().wire(db) as c:
        c.simple("CREATE SCHEMA app; CREATE FUNCTION app.f(jsonb) RETURNS void LANGUAGE sql AS ''")
        tag(c, "QUEUE CREATE q WITH (handler_batch = 5, handler = 'app.f', timeout = '1 min')")
        tag(c, "QUEUE ALTER q RESET (handler)")
        assert error(c, "QUEUE ALTER q SET (handler_batch = 6)").sqlstate == "22023"
        tag(c, "QUEUE ALTER q SET (lease = '1 min')")
        tag(c, "QUEUE ALTER q SET (handler_batch = 6, handler = 'app.f')")
        tag(c, "QUEUE CREATE sql WITH (run = sql, timeout = '1 min')")


def test_what_a_payload_says_in_vain_is_dead_at_once(qbouncer, db):
    """SQL that cannot be understood: not 25 attempts, of which each would fail so."""
    with qbouncer().wire(db) as c:
        tag(c, "QUEUE CREATE q WITH (run = sql)")
        for payload in ['{"sql": "SELECT 1", "foo": 1}', '{"sql": "SELECT 1", "timeout": "soon"}', '7']:
            tag(c, "QUEUE PUSH q '%s'" % payload)
        dead = wait_for(lambda: len(rows := c.rows("QUEUE PEEK q STATE dead")) == 3 and rows, "three dead jobs")
    assert {r["failures"] for r in dead} == {"1"}
    assert [r for r in dead if '"foo" beside "sql" is not supported (0A000)' in r["error"]], dead    # they end in any order


def test_a_delivery_that_waits_is_nobodys(qbouncer, db):
    """One that has failed is not worked on, and its token is worth nothing."""
    with qbouncer().wire(db) as c:
        tag(c, "QUEUE CREATE st WITH (kind = stream)")
        tag(c, "QUEUE SUBSCRIBE sub TO st")
        tag(c, "QUEUE PUSH st '{\"n\": 1}'")
        (event,) = c.rows("QUEUE TAKE st FOR sub WAIT '10 s' AS 'me'")
        (worker,) = c.rows("QUEUE WORKERS st")
        assert worker["worker"] == "me"
        name = worker["job"]
        (peeked,) = c.rows("QUEUE PEEK '%s'" % name)
        assert (peeked["state"], peeked["run_at"], peeked["lease_until"] is None) == ("leased", None, False)
        tag(c, "QUEUE FAIL '%s' ERROR 'no' RETRY IN '1 h'" % event["token"])
        assert c.rows("QUEUE WORKERS st") == []
        (peeked,) = c.rows("QUEUE PEEK '%s'" % name)
        assert (peeked["state"], peeked["run_at"] is None, peeked["lease_until"], peeked["error"]) == ("later", False, None, "no")
        assert error(c, "QUEUE DONE '%s'" % event["token"]).sqlstate == "QB001"
        assert c.rows("QUEUE TAKE st FOR sub") == []
        tag(c, "QUEUE SEEK sub ON st TO BEGINNING")
        (event,) = c.rows("QUEUE TAKE st FOR sub WAIT '10 s'")
        tag(c, "QUEUE RELEASE '%s' DELAY '1 h'" % event["token"])
        assert c.rows("QUEUE WORKERS st") == []
        assert json.loads(event["payload"]) == {"n": 1}
