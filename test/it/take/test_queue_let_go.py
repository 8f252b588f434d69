"""What a transaction has locked and lets go when it is rolled back or has failed is found at once, by who waits.

Notifications leave with a COMMIT only, so of a ROLLBACK past the proxy nobody hears. There is no periodic look here.
"""

import psycopg
import pytest

from queuetest import parked, q, shared, shared_db, shared_proxy, tag, take, woken  # noqa: F401

WAIT = "QUEUE TAKE mail WAIT '15s'"

LOCKS = {
    "cancel": "SELECT queue.cancel((SELECT '%d-1'))",
    "take": "SELECT * FROM queue.take('mail')",
    "pop": "SELECT * FROM queue.pop('mail')",
    "purge": "SELECT queue.purge('mail')",
    "row": "SELECT FROM queue.q_mail WHERE id = 1 FOR UPDATE",
}


@pytest.fixture
def other(q, qproxy, db):
    with qproxy.wire(db) as w:
        yield w


def number(c):
    return c.rows("SELECT number FROM queue.queues WHERE name = 'mail'")[0]["number"]


@pytest.fixture
def direct(cluster, db):
    with psycopg.connect(cluster.dsn(db)) as conn:
        yield conn


def locks(conn, c, how):
    sql = LOCKS[how]
    conn.execute(sql % int(number(c)) if "%d" in sql else sql)


@pytest.mark.parametrize("how", LOCKS)
def test_past_the_proxy(q, other, direct, how):
    tag(q, "QUEUE PUSH mail '1'")
    locks(direct, q, how)
    other.query(WAIT)
    parked(other)
    direct.rollback()
    assert woken(other)["payload"] == "1"


@pytest.mark.parametrize("how", ("cancel", "row"))
@pytest.mark.parametrize("clauses", ("", " PRIORITY 7"))
def test_passed_over(q, other, direct, how, clauses):
    """Others behind it have been taken meanwhile: takes begin behind those."""
    tag(q, "QUEUE PUSH mail '1'" + clauses)
    locks(direct, q, how)
    tag(q, "QUEUE PUSH mail '2'" + clauses)
    assert take(q)["payload"] == "2"
    for i in range(6):    # so often that its number is known
        tag(q, "QUEUE PUSH mail '3'" + clauses)
        assert take(q)["payload"] == "3"
    other.query(WAIT)
    parked(other)
    direct.rollback()
    assert woken(other)["payload"] == "1"


@pytest.mark.parametrize("sql", ("QUEUE CANCEL '%s-1'", "QUEUE PURGE mail"))
@pytest.mark.parametrize("end", ("ROLLBACK", "ROLLBACK TO s; COMMIT", "SELECT 1/0"))
def test_in_a_transaction(q, other, sql, end):
    tag(q, "QUEUE PUSH mail '1'")
    one = sql % number(q) if "%s" in sql else sql
    tag(q, "BEGIN")
    tag(q, "SELECT 1")
    tag(q, "SAVEPOINT s")
    tag(q, one)
    other.query(WAIT)
    parked(other)
    if end.startswith("SELECT"):
        q.query("RELEASE s")
        q.until("Z")
    for s in end.split(";"):
        q.query(s)
        q.until("Z")
    assert woken(other)["payload"] == "1"
    if end.startswith("SELECT"):
        tag(q, "ROLLBACK")


@pytest.mark.parametrize("sql", ("QUEUE CANCEL '%s-1'", "QUEUE PURGE mail"))
@pytest.mark.parametrize("end", ("ROLLBACK", "ROLLBACK TO s; COMMIT"))
def test_passed_over_in_a_transaction(q, other, sql, end):
    """Who takes next gets it, also without a WAIT."""
    one = sql % number(q) if "%s" in sql else sql
    tag(q, "QUEUE PUSH mail '1'")
    tag(q, "BEGIN")
    tag(q, "SAVEPOINT s")
    tag(q, one)
    for i in range(7):    # so often that the queue's number is known
        tag(other, "QUEUE PUSH mail '2'")
        assert take(other)["payload"] == "2"
    for s in end.split("; "):
        tag(q, s)
    assert take(other)["payload"] == "1"


@pytest.mark.parametrize("policy", ("REPLACE", "RERUN"))
def test_passed_over_while_it_is_pushed_again(q, other, policy):
    """It keeps its place, which is further to the front than what takes have told of."""
    for i in range(7):    # so often that the queue's number is known
        tag(q, "QUEUE PUSH mail '0'")
        tag(q, "QUEUE DONE '%s'" % take(q)["token"])
    tag(q, "QUEUE PUSH mail '1' KEY 'k'")
    tag(q, "QUEUE PUSH mail '2'")
    first = take(q)
    assert take(q)["payload"] == "2"
    tag(q, "QUEUE RELEASE '%s'" % first["token"])
    tag(q, "BEGIN")
    tag(q, "QUEUE PUSH mail '1' KEY 'k' ON DUPLICATE " + policy)
    tag(other, "QUEUE PUSH mail '3'")
    assert take(other)["payload"] == "3"
    tag(q, "COMMIT")
    assert take(other)["payload"] == "1"


def test_cancel_of_a_running_job(q, other, qproxy, db):
    tag(q, "QUEUE PUSH mail '1'")
    job = take(other, "QUEUE TAKE mail LEASE '1h'")
    tag(q, "BEGIN")
    tag(q, "QUEUE CANCEL '%s'" % job["token"])
    tag(q, "ROLLBACK")
    tag(other, "QUEUE RELEASE '%s'" % job["token"])
    assert take(q)["payload"] == "1"


@pytest.mark.parametrize("end", ("DONE", "FAIL", "RELEASE", "EXTEND"))
def test_lease_is_over_meanwhile(q, other, qproxy, db, end):
    """The job is locked when its lease ends: nobody gets it before the ROLLBACK, and then at once."""
    tag(q, "QUEUE PUSH mail '1'")
    job = take(q, "QUEUE TAKE mail LEASE '1500ms'")
    tag(q, "BEGIN")
    tag(q, "QUEUE %s '%s'" % (end, job["token"]))
    q.rows("SELECT pg_sleep_until(lease_until + '50ms') FROM (SELECT '%s'::timestamptz AS lease_until) AS s" % job["lease_until"])
    other.query(WAIT)
    parked(other)
    tag(q, "ROLLBACK")
    assert woken(other)["attempt"] == "2"


@pytest.mark.parametrize("end", ("COMMIT", "ROLLBACK"))
def test_pop_beside_a_cancel_of_the_next_one(q, other, end):
    """It would have to wait for that transaction, which may be its own client's."""
    tag(q, "QUEUE PUSH mail '1', '2' GROUP 'g'")
    tag(q, "QUEUE PUSH mail '3'")
    cancel = "QUEUE CANCEL '%s-2'" % number(q)
    tag(q, "BEGIN")
    tag(q, cancel)
    assert [row["payload"] for row in q.rows("QUEUE POP mail LIMIT 9")] == ["3"]
    other.query("QUEUE POP mail LIMIT 9 WAIT '15s'")
    parked(other)
    tag(q, end)
    assert woken(other)["payload"] == "1"
    assert len(q.rows("QUEUE POP mail")) == (end == "ROLLBACK")
