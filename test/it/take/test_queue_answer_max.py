"""queue_answer_max: an answer that would fill the proxy is rolled back, and its client hears how large it may be."""

import json

import pytest

from proxy import wait_for
from pgwire import PgError
from queuetest import error, parked, results, send_all, stats, tag, take

MAX = "100kB"
PAYLOAD = json.dumps("x" * 40_000)
N = 10
TOO_MUCH = "the answer is larger than queue_answer_max (100 kB)"

# A transaction that has changed more than three jobs waits before its commit while lock 7 is held. All of its rows have
# come by then but the end of the last one, and so has what is asked of the server: whether it stops is not left to chance.
SLOW_COMMIT = """
CREATE FUNCTION public.slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    n int := coalesce(nullif(current_setting('app.changed', true), ''), '0')::int + 1;
BEGIN
    PERFORM set_config('app.changed', n::text, true);
    IF n > 3 THEN
        PERFORM pg_advisory_xact_lock_shared(7);
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER slow_commit AFTER UPDATE OR DELETE ON queue.q_mail DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.slow_commit();
SELECT pg_advisory_lock(7);
"""


@pytest.fixture
def qproxy(qbouncer):
    return qbouncer(queue_answer_max=MAX, queue_heartbeat="20ms")


@pytest.fixture
def q(qproxy, db, direct):
    with qproxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (retain_done = '1 day')")
        direct.execute(SLOW_COMMIT)
        yield c


def push(c, n=N):
    """All at once, and not handed over."""
    tag(c, "BEGIN")
    assert tag(c, "QUEUE PUSH mail " + ", ".join(["'%s'" % PAYLOAD] * n)) == "INSERT 0 %d" % n
    tag(c, "COMMIT")


def is_too_much(e):
    assert (e.sqlstate, e.message) == ("54000", TOO_MUCH)
    assert e.fields["H"] == "Ask for fewer at once with LIMIT."


def untouched(c, n=N):
    """Nobody has them, nothing was counted, nothing was lost."""
    assert stats(c) == {"ready": n, "later": 0, "leased": 0, "dead": 0}
    rows = c.rows("QUEUE TAKE mail LIMIT 2")
    assert [(r["attempt"], r["payload"]) for r in rows] == [("1", PAYLOAD)] * 2
    for r in rows:
        assert tag(c, "QUEUE DONE '%s'" % r["token"]) == "UPDATE 1"
    assert stats(c)["ready"] == n - 2


def ask(c, sql, how):
    if how == "simple":
        c.query(sql)
    else:
        c.parse("", sql).bind(results=(1,) if how == "binary" else ()).execute(limit=5 if how == "limited" else 0).sync()


def fails(c):
    last = [m for m in c.until("Z") if m.type in "ECD"][-1]
    assert last.type == "E", last
    return PgError(last)


@pytest.mark.parametrize("how", ["simple", "extended", "binary", "limited"])
@pytest.mark.parametrize("verb", ["TAKE", "POP"])
def test_alone(q, verb, how):
    push(q)
    ask(q, "QUEUE %s mail LIMIT %d" % (verb, N), how)
    is_too_much(fails(q))
    untouched(q)


@pytest.mark.parametrize("sql", ["QUEUE TAKE mail LIMIT 10 WHERE payload IS NOT NULL", "QUEUE TAKE mail LIMIT 10 HOLD '1 h'",
                                 "QUEUE POP mail LIMIT 10 WAIT '20 s'"])
def test_other_takes(q, sql):
    push(q)
    is_too_much(error(q, sql))
    untouched(q)


@pytest.mark.parametrize("sql", ["QUEUE TAKE mail LIMIT 10 WAIT '20 s'", "QUEUE POP mail LIMIT 10 WAIT '20 s'"])
def test_who_waits(q, qproxy, db, sql):
    with qproxy.wire(db) as w:
        w.query(sql)
        parked(w)
        push(q)
        is_too_much(fails(w))
        untouched(q)
        assert len(w.rows("QUEUE TAKE mail LIMIT 2 WAIT '20 s'")) == 2


def test_in_a_transaction(q):
    """The lease is its own transaction, the client's has failed."""
    push(q)
    tag(q, "BEGIN")
    is_too_much(error(q, "QUEUE TAKE mail LIMIT 10"))
    q.simple("ROLLBACK")
    untouched(q)


def test_what_a_push_hands_over(q, qproxy, db):
    """No more than its client has sent."""
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail LIMIT 3 WAIT '20 s'")
        parked(w)
        assert tag(q, "QUEUE PUSH mail " + ", ".join(["'%s'" % PAYLOAD] * 3)) == "INSERT 0 3"
        assert len([m for m in w.until("Z") if m.type == "D"]) == 3


def test_one_row(q):
    """Of any size."""
    large = json.dumps("x" * 300_000)
    for _ in range(2):
        tag(q, "QUEUE PUSH mail '%s'" % large)
    assert len(q.rows("QUEUE PEEK mail LIMIT 1")) == 1
    got = q.rows("QUEUE TAKE mail LIMIT 1")
    assert [r["payload"] for r in got] == [large]
    assert [r["payload"] for r in q.rows("QUEUE POP mail LIMIT 5")] == [large]


def test_one_of_those_who_share_it(q, qproxy, db, direct):
    """Who asks for too much fails, the others get theirs, nobody anything twice."""
    push(q, 15)
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    limits = [1, 1, 8, 1, 1, 1]
    wires = send_all(qproxy, db, ["QUEUE TAKE mail LIMIT %d" % n for n in limits])
    wait_for(lambda: qproxy.pool(db)["cl_active"] >= len(limits), "all clients")
    direct.rollback()
    rows = []
    for n, w in zip(limits, wires):
        got = w.until("Z")
        if n > 1:
            is_too_much(PgError(got[-2]))
        else:
            assert [m.tag for m in got if m.type == "C"] == ["SELECT 1"]
            rows += [m.text_row[0] for m in got if m.type == "D"]
    assert len(set(rows)) == len(limits) - 1
    assert stats(q) == {"ready": 10, "later": 0, "leased": 5, "dead": 0}
    for w in wires:
        w.close()


def test_all_together(q, qproxy, db, direct):
    """None of them asks for too much: all get theirs, in several statements."""
    push(q, 12)
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    wires = send_all(qproxy, db, ["QUEUE TAKE mail"] * 12)
    wait_for(lambda: qproxy.pool(db)["cl_active"] >= 12, "all clients")
    direct.rollback()
    assert results(wires) == ["SELECT 1"] * 12
    assert stats(q)["leased"] == 12
    for w in wires:
        w.close()


def test_behind_done(q):
    """What was done is done, and stays so when it is said again."""
    push(q, N + 1)
    token = take(q)["token"]
    for _ in range(2):
        e = error(q, "QUEUE DONE '%s' THEN TAKE LIMIT 10" % token)
        is_too_much(e)
        assert e.fields["D"] == "The jobs of DONE are done."
    assert q.rows("SELECT count(*) AS n FROM queue.a_mail WHERE state = 'done'") == [{"n": "1"}]
    assert len(q.rows("QUEUE DONE '%s' THEN TAKE LIMIT 2" % token)) == 2
    assert stats(q) == {"ready": N - 2, "later": 0, "leased": 2, "dead": 0}


def test_results(q, direct):
    """AWAIT has no LIMIT."""
    direct.execute("SELECT pg_advisory_unlock(7)")
    jobs = []
    for _ in range(4):
        jobs.append(q.rows("QUEUE PUSH mail '1' RETURNING JOB")[0]["job"])
        tag(q, "QUEUE DONE '%s' RESULT '%s'" % (take(q)["token"], PAYLOAD))
    names = ["'%s'" % job for job in jobs]
    e = error(q, "QUEUE AWAIT %s" % ", ".join(names))
    assert (e.sqlstate, e.message, e.fields["H"]) == ("54000", TOO_MUCH, "Await fewer jobs at once.")
    assert [r["result"] for r in q.rows("QUEUE AWAIT %s" % ", ".join(names[:2]))] == [PAYLOAD] * 2


def test_by_itself(q, qproxy, db, direct):
    """Nobody could ask for fewer of jobs that run by themselves: handler_batch is their limit."""
    direct.execute("SELECT pg_advisory_unlock(7)")
    q.simple("CREATE SCHEMA app; CREATE TABLE app.done (n int);"
             "CREATE FUNCTION app.work(payload jsonb) RETURNS void LANGUAGE sql "
             "AS $$ INSERT INTO app.done VALUES (length(payload::text)) $$")
    tag(q, "QUEUE CREATE jobs WITH (handler = 'app.work', handler_batch = 50)")
    tag(q, "BEGIN")
    tag(q, "QUEUE PUSH jobs " + ", ".join(["'%s'" % PAYLOAD] * 50))
    tag(q, "COMMIT")
    wait_for(lambda: q.rows("SELECT count(*) AS n FROM app.done") == [{"n": "50"}], "the jobs to have run")


def test_reload(q, qproxy, direct):
    push(q)
    is_too_much(error(q, "QUEUE TAKE mail LIMIT 5"))
    qproxy.settings["queue_answer_max"] = "0"
    qproxy.reload()
    direct.execute("SELECT pg_advisory_unlock(7)")
    assert len(q.rows("QUEUE TAKE mail LIMIT 4")) == 4
    direct.execute("SELECT pg_advisory_lock(7)")
    qproxy.settings["queue_answer_max"] = "65000"
    qproxy.reload()
    assert error(q, "QUEUE POP mail LIMIT 6").message == "the answer is larger than queue_answer_max (65000 bytes)"
    assert stats(q) == {"ready": N - 4, "later": 0, "leased": 4, "dead": 0}
