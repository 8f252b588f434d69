"""Every verb at every place: each string and each batch ends, and the server is free afterwards.

The verbs come from QUEUE HELP, which comes from the verb table: one that has no statement here fails the test. Each is run
alone and at the first, middle and last place of a string and of a pipeline, with an error before and behind it, outside
of a transaction and in one that is open, failed, begun or ended by the same string. Judged is only what holds for all
of them: one ReadyForQuery for each Query and Sync, the status it tells, and that another client gets the only server.
"""

import psycopg
import pytest

from queuetest import *  # noqa: F403

# job: a token of a leased job; id: of one that waits
STATEMENTS = {
    "CREATE": ["QUEUE CREATE other IF NOT EXISTS"],
    "DROP": ["QUEUE DROP other IF EXISTS"],
    "ALTER": ["QUEUE ALTER q SET (max_attempts = 7)"],
    "ALTER JOB": ["QUEUE ALTER JOB '{job}' SET (priority = 3)"],
    "PAUSE": ["QUEUE PAUSE spare", "QUEUE PAUSE spare PUSH"],
    "RESUME": ["QUEUE RESUME spare"],
    "GRANT": ["QUEUE GRANT PUSH ON spare TO app"],
    "REVOKE": ["QUEUE REVOKE AWAIT ON spare FROM app"],
    "LIST": ["QUEUE LIST"],
    "STATS": ["QUEUE STATS", "QUEUE STATS q", "QUEUE STATS q BY HOUR LAST 3", "QUEUE STATS nosuch FOR s BY DAY"],
    "HEALTH": ["QUEUE HEALTH", "QUEUE HEALTH q"],
    "WORKERS": ["QUEUE WORKERS", "QUEUE WORKERS q"],
    "PUSH": ["QUEUE PUSH q '1'", "QUEUE PUSH q '1', '2' KEY NULL RETURNING ID", "QUEUE PUSH q SELECT 1", "QUEUE PUSH q FROM STDIN"],
    "TAKE": ["QUEUE TAKE q", "QUEUE TAKE q WHERE (id > 0)", "QUEUE TAKE q WHERE (nothing)", "QUEUE TAKE empty", "QUEUE TAKE empty WAIT '10 ms'", "QUEUE TAKE nosuch"],
    "MOVE": ["QUEUE DONE '1-1-0123456789abcdef' THEN MOVE TO spare"],
    "POP": ["QUEUE POP q", "QUEUE POP empty WAIT '10 ms'"],
    "DONE": ["QUEUE DONE '{job}'", "QUEUE DONE 'nonsense'", "QUEUE DONE '{job}' THEN PUSH q '1'", "QUEUE DONE '{job}' THEN TAKE q"],
    "FAIL": ["QUEUE FAIL '{job}' ERROR 'e'"],
    "RELEASE": ["QUEUE RELEASE '{job}'"],
    "EXTEND": ["QUEUE EXTEND '{job}'", "QUEUE EXTEND '{job}' PROGRESS '1'"],
    "CANCEL": ["QUEUE CANCEL '{job}'"],
    "CANCEL ALL": ["QUEUE CANCEL ALL ON spare"],
    "RERUN": ["QUEUE RERUN '{job}'"],
    "REDRIVE": ["QUEUE REDRIVE q", "QUEUE REDRIVE spare TO q"],
    "PEEK": ["QUEUE PEEK q", "QUEUE PEEK nosuch"],
    "JOB": ["QUEUE JOB '{job}'"],
    "AWAIT": ["QUEUE AWAIT '{job}' WAIT '10 ms'", "QUEUE AWAIT '{job}', '{job}' ANY", "QUEUE AWAIT '{job}'"],
    "HISTORY": ["QUEUE HISTORY '{job}'"],
    "ERRORS": ["QUEUE ERRORS q"],
    "PURGE": ["QUEUE PURGE spare"],
    "SCHEDULE": ["QUEUE SCHEDULE daily ON spare CRON '@daily' PUSH '1'"],
    "UNSCHEDULE": ["QUEUE UNSCHEDULE gone IF EXISTS"],
    "SCHEDULES": ["QUEUE SCHEDULES"],
    "TRIGGER": ["QUEUE TRIGGER SCHEDULE nosuch"],
    "CREATE TOPIC": ["QUEUE CREATE TOPIC IF NOT EXISTS events"],
    "DROP TOPIC": ["QUEUE DROP TOPIC IF EXISTS nosuch"],
    "RUN": ["QUEUE RUN 'SELECT 1' ON nosuch", "QUEUE RUN 'SELECT $1' ON mail PARAMS '[1]' RETURNING ID"],
    "PUBLISH": ["QUEUE PUBLISH 'nosuch' '1'", "QUEUE PUBLISH 'nosuch.x' '1', '2' RETURNING QUEUE, JOB"],
    "BIND": ["QUEUE BIND q TO 'nosuch.#'"],
    "UNBIND": ["QUEUE UNBIND q FROM 'nosuch.#'"],
    "ROUTES": ["QUEUE ROUTES"],
    "TRACK": ["QUEUE TRACK pg_temp.nosuch IN q WHEN (new.a > 1)"],
    "UNTRACK": ["QUEUE UNTRACK nosuch"],
    "TRACKED": ["QUEUE TRACKED", "QUEUE TRACKED nosuch"],
    "SUBSCRIBE": ["QUEUE SUBSCRIBE s TO nosuch"],
    "UNSUBSCRIBE": ["QUEUE UNSUBSCRIBE s FROM nosuch"],
    "SEEK": ["QUEUE SEEK s ON nosuch TO NOW"],
    "SUBSCRIPTIONS": ["QUEUE SUBSCRIPTIONS"],
    "HELP": ["QUEUE HELP", "QUEUE HELP push", "QUEUE HELP nosuch", "QUEUE HELP 'nosuch'"],
}
WRONG = ["QUEUE", "QUEUE NONSENSE q", "QUEUE PUSH", "QUEUE TAKE q LIMIT 0"]
STRINGS = ["{v}", "{v};", ";{v}", "{v}; SELECT 1", "SELECT 1; {v}", "SELECT 1; {v}; SELECT 2", "{v}; {v}", "{v}; QUEUE HELP; SELECT 1",
           "SELECT 1/0; {v}", "{v}; SELECT 1/0", "{v}; SELEC", "BEGIN; {v}", "BEGIN; {v}; COMMIT", "BEGIN; {v}; ROLLBACK; SELECT 1",
           "COMMIT; {v}", "{v}; BEGIN", "/* a */ {v} -- b", "SET application_name = 'x'; {v}"]
# V: the verb, D: Describe of it, S: Sync, F: Flush, E: an error, 1: SELECT 1; R: the verb, one row at a time
BATCHES = ["V", "DV", "VF", "V1", "1V", "1V1", "VV", "EV", "VE", "VSV", "VSE", "ESV", "1FV", "VF1", "R", "D"]
BEFORE = {"idle": "", "open": "BEGIN", "used": "BEGIN; SELECT 1", "failed": "BEGIN; SELECT 1/0"}


class Bench:
    def __init__(self, proxy, name, direct):
        self.direct = direct
        self.c = proxy.wire(name)
        self.other = proxy.wire(name)

    def fresh(self, sql):
        """With the token of a job of its own."""
        if "{job}" not in sql:
            return sql
        self.direct.execute("SELECT queue.push('jobs', '1')")
        token = self.direct.execute("SELECT token FROM queue.take('jobs')").fetchone()[0]
        return sql.replace("{job}", token)

    def end_of(self, what):
        """Up to ReadyForQuery; who asks for data gets its end."""
        while True:
            try:
                kind = self.c.until("ZG")[-1]
            except TimeoutError as e:
                raise AssertionError("no answer to %r" % (what,)) from e
            if kind.type == "Z":
                return kind.status
            self.c.copy_done()

    def string(self, sql):
        self.c.query(sql)
        return self.end_of(sql)

    def batch(self, sql, letters):
        syncs = 1
        c = self.c.hold()
        copies = "FROM STDIN" in sql
        for letter in letters:
            if letter == "S":
                c.sync()
                syncs += 1
            elif letter == "F":
                c.flush()
            else:
                c.parse("", {"1": "SELECT 1", "E": "SELECT 1/0"}.get(letter, sql)).bind()
                if letter == "D":
                    c.describe("S").describe("P")
                else:
                    c.execute("", 1 if letter == "R" else 0)
                if copies and letter in "VR":
                    c.copy_done()
        c.sync().push()
        for _ in range(syncs):
            status = self.end_of((sql, letters))
        return status

    def settle(self, status, what):
        if status != "I":
            assert self.string("ROLLBACK") == "I", what
        assert [m.tag for m in self.c.simple("SELECT 1") if m.type == "C"] == ["SELECT 1"], what
        # the only server of the pool
        assert [m.tag for m in self.other.simple("SELECT 1") if m.type == "C"] == ["SELECT 1"], what


@pytest.fixture(scope="module", params=["transaction", "session"])
def bench(request, program, cluster):
    name = cluster.createdb(owner="app")
    size = 1 if request.param == "transaction" else 3  # in session pooling each keeps its own
    proxy = Proxy(program, cluster, pool_mode=request.param, default_pool_size=size, queue_pool_size=1).start()
    direct = psycopg.connect(cluster.dsn(name, user="app"), autocommit=True)
    try:
        with proxy.wire(name) as c:
            for q in ("q", "spare", "empty", "jobs"):
                c.simple("QUEUE CREATE %s" % q)
            for _ in range(20):
                c.simple("QUEUE PUSH q '1', '2', '3'")
        b = Bench(proxy, name, direct)
        yield b
        b.c.close()
        b.other.close()
    finally:
        direct.close()
        proxy.stop()


def statements():
    return [pytest.param(sql, id=" ".join(sql.split()[:3])) for sql in sum(STATEMENTS.values(), []) + WRONG]


def test_all_verbs_are_here(bench):
    rows = [m.text_row[0] for m in bench.c.simple("QUEUE HELP") if m.type == "D"]
    assert set(rows) == set(STATEMENTS)


@pytest.mark.parametrize("sql", statements())
def test_strings(bench, sql):
    for state, before in BEFORE.items():
        for shape in STRINGS:
            if before:
                bench.string(before)
            what = (state, shape, sql)
            status = bench.string(bench.fresh(shape.replace("{v}", sql)))
            bench.settle(status, what)


@pytest.mark.parametrize("sql", statements())
def test_batches(bench, sql):
    for state, before in BEFORE.items():
        for letters in BATCHES:
            if before:
                bench.string(before)
            status = bench.batch(bench.fresh(sql), letters)
            bench.settle(status, (state, letters, sql))


def test_help_in_a_string(bench):
    """Its rows are those that it gives alone, between the others."""
    alone = [m.text_row for m in bench.c.simple("QUEUE HELP push") if m.type == "D"]
    got = bench.c.simple("SELECT 1; QUEUE HELP push; SELECT 2")
    assert [m.text_row for m in got if m.type == "D"] == [["1"]] + alone + [["2"]]
    assert [m.tag for m in got if m.type == "C"] == ["SELECT 1"] * 3
    columns = [m.columns for m in got if m.type == "T"][1]
    assert columns == [m.columns for m in bench.c.simple("QUEUE HELP push") if m.type == "T"][0]


def test_help_of_no_verb(bench):
    """However it is said: an error that names the nearest one, as of a statement with such a verb."""
    for sql in ("QUEUE HELP ttake", "QUEUE HELP 'ttake'", "SELECT 1; QUEUE HELP 'ttake'; SELECT 2"):
        (e,) = [m for m in bench.c.simple(sql) if m.type == "E"]
        assert (e.sqlstate, e.fields["M"]) == ("42601", 'unknown QUEUE verb "ttake"')
        assert e.fields["H"].startswith("Did you mean QUEUE TAKE? Usage: QUEUE TAKE ")
    said = {}
    for value in b"nosuch", b"", b"alter job", None:
        bench.c.parse("", "QUEUE HELP $1").bind(values=[value]).execute().sync()
        said[value] = [m.fields["H"][:14] if m.type == "E" else m.text_row[0] for m in bench.c.until("Z") if m.type in "ED"]
    every = [m.text_row[0] for m in bench.c.simple("QUEUE HELP") if m.type == "D"]
    assert said == {b"nosuch": ["The verbs are "], b"": ["The verbs are "], b"alter job": ["ALTER JOB"], None: every}
