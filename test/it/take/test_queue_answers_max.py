"""queue_answers_max: clients that do not read what they have taken fill the proxy up to that, and lose nothing."""

import select

import pytest

from proxy import wait_for
from pgwire import PgError, Wire
from queuetest import stats, tag

SIZE = 400_000
CLIENTS, EACH = 12, 10      # 48 MB
TOO_MUCH = "the answers that are kept for clients are larger than queue_answers_max (8 MB)"


@pytest.fixture
def qproxy(qbouncer, freed_at_once):
    return qbouncer(queue_answers_max="8MB", queue_safety_poll="100ms")


@pytest.fixture
def q(qproxy, db):
    with qproxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (payload = text)")
        tag(c, "QUEUE CREATE small")
        tag(c, "QUEUE PUSH small '1', '2'")
        tag(c, "QUEUE PUSH mail SELECT repeat('x', %d) FROM generate_series(1, %d)" % (SIZE, CLIENTS * EACH))
        yield c


@pytest.fixture
def clients(qproxy, db):
    """They do not read by themselves."""
    wires = [Wire(qproxy.port, rcvbuf=4096) for _ in range(CLIENTS)]
    for w in wires:
        w.startup(user="app", database=db)
    yield wires
    for w in wires:
        w.close()


def read(w):
    """Jobs, or an error."""
    messages = w.until("Z")
    for m in messages:
        if m.type == "E":
            return PgError(m)
    return sum(m.type == "D" for m in messages)


def test_nobody_reads(qproxy, q, clients):
    before = qproxy.rss_kib()
    for w in clients:
        w.query("QUEUE TAKE mail LIMIT %d" % EACH)
    wait_for(lambda: len(select.select([w.sock for w in clients], [], [], 0)[0]) == CLIENTS, "all answered")
    # who asks for little is served all the time
    assert len(q.rows("QUEUE POP small LIMIT 2")) == 2
    held = stats(q)["leased"]
    assert 0 < held < CLIENTS * EACH
    answers = [read(w) for w in clients]
    errors = [a for a in answers if isinstance(a, PgError)]
    assert sum(a for a in answers if not isinstance(a, PgError)) == held
    assert errors and {(e.sqlstate, e.message) for e in errors} == {("53000", TOO_MUCH)}
    assert stats(q) == {"ready": CLIENTS * EACH - held, "later": 0, "leased": held, "dead": 0}
    # nothing was counted for what was not given
    rows = q.rows("QUEUE TAKE mail LIMIT %d" % EACH)
    assert {r["attempt"] for r in rows} == {"1"} and len(rows) == EACH
    assert qproxy.peak_kib() - before < 30 * 1024


def test_those_who_wait_are_served_when_others_have_read(qproxy, q, clients):
    for w in clients:
        w.query("QUEUE TAKE mail LIMIT %d WAIT '60 s'" % EACH)
    wait_for(lambda: stats(q)["leased"] > 0, "the first one")
    assert [read(w) for w in clients] == [EACH] * CLIENTS
    assert stats(q)["leased"] == CLIENTS * EACH


def test_jobs_that_run_by_themselves(qproxy, q):
    """Their payloads are of no use to the proxy."""
    q.simple("CREATE SCHEMA app; CREATE TABLE app.done (n int);"
             "CREATE FUNCTION app.work(payload text) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.done VALUES (length(payload)) $$")
    before = qproxy.rss_kib()
    tag(q, "QUEUE CREATE jobs WITH (payload = text, handler = 'app.work', handler_batch = 50)")
    tag(q, "QUEUE PUSH jobs SELECT repeat('x', 1000000) FROM generate_series(1, 50)")
    wait_for(lambda: q.rows("SELECT count(*) AS n FROM app.done") == [{"n": "50"}], "the jobs to have run")
    assert qproxy.peak_kib() - before < 20 * 1024
