"""Handing over: what is pushed while somebody waits is inserted leased to them, by the push itself, in the
order of waiting, and only if nothing that goes before it is there."""

import psycopg
import pytest

from pgwire import cancel
from proxy import wait_for
from queuetest import (JOB_COLUMNS, error, parked, q, qproxy, stats, tag, take, woken)  # noqa: F401


NOTES = """
CREATE TABLE notes (n serial, verb text, synchronous text);
GRANT ALL ON notes, notes_n_seq TO PUBLIC;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.notes (verb, synchronous)
        VALUES (TG_OP || coalesce(' ' || NEW.state, ''), current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON queue.q_mail
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
"""


@pytest.fixture
def hand(qproxy, db, q, direct):
    """A queue whose pushes are handed over; what happens to its jobs is noted at each commit."""
    direct.execute(NOTES)
    return Hand(qproxy, db, q, direct)


class Hand:
    """Clients of one queue, and how many jobs of it were handed over."""

    def __init__(self, proxy, db, pusher, direct):
        self.proxy, self.db, self.q, self.direct = proxy, db, pusher, direct
        self.anchor = self.wait("QUEUE TAKE mail, never WAIT '1h'", create=True)
        wait_for(self.known, "a push that is handed over")

    def wait(self, sql="QUEUE TAKE mail WAIT '30s'", user="app", create=False):
        """A client that waits."""
        if create:
            tag(self.q, "QUEUE CREATE never")
        w = self.proxy.wire(self.db, user=user)
        w.query(sql)
        parked(w)
        return w

    def known(self):
        """The number of a queue is asked for when it was used some times."""
        before = self.handed()
        tag(self.q, "QUEUE PUSH mail '0'")
        tag(self.q, "QUEUE DONE '%s'" % woken(self.anchor)["token"])
        after = self.handed()
        self.anchor.query("QUEUE TAKE mail, never WAIT '1h'")
        parked(self.anchor)
        return after > before

    def alone(self):
        """The waiter that holds the room open goes, when the others are there."""
        cancel(self.anchor)
        self.anchor.until("Z")

    def handed(self):
        return self.notes().count("INSERT leased")

    def notes(self, column="verb"):
        return [r[0] for r in self.direct.execute("SELECT %s FROM notes ORDER BY n" % column)]

    def waiters(self):
        return self.proxy.console("SHOW WAITERS")


def handed_over(hand, sql, push):
    """The job of a waiter, and the waiter: it may have been asking when the push came, then again."""
    def once():
        before = hand.handed()
        w = hand.wait(sql)
        tag(hand.q, push)
        job = woken(w)
        if hand.handed() > before:
            return job, w
        return tag(w, "QUEUE DONE %s" % job["id"]) != "UPDATE 1"
    hand.alone()
    return wait_for(once, "a push that is handed over")


def test_the_row_is_that_of_a_take(hand, direct):
    job, w = handed_over(hand, "QUEUE TAKE mail LEASE '1 hour' AS 'me' WAIT '30s'",
                         "QUEUE PUSH mail '{\"a\":  1}' PRIORITY 3")
    assert list(job) == [n for n, _ in JOB_COLUMNS]
    assert (job["payload"], job["priority"], job["attempt"], job["queue"]) == ('{"a": 1}', "3", "1", "mail")
    (row,) = direct.execute("SELECT state, attempt, worker, token, proxy, lease_until - pushed_at = '1 hour', "
                            "lease_until = %s FROM queue.q_mail", (job["lease_until"],)).fetchall()
    assert row[:3] == ("leased", 1, "me") and row[5:] == (True, True)
    assert job["token"].endswith("-" + row[3]) and len(row[3]) == 16
    assert row[4] > 0
    assert tag(w, "QUEUE DONE %s" % job["id"]) == "UPDATE 1"
    assert sum(stats(hand.q).values()) == 0


def test_the_order_of_waiting_and_what_is_left_over(hand):
    waiters = [hand.wait("QUEUE TAKE mail LIMIT %d WAIT '30s'" % n) for n in (1, 3, 2)]
    hand.alone()
    tag(hand.q, "QUEUE PUSH mail " + ", ".join("'%d'" % i for i in range(5)))
    got = [[m.text_row[4] for m in w.until("Z") if m.type == "D"] for w in waiters]
    assert got == [["0"], ["1", "2", "3"], ["4"]]
    tag(hand.q, "QUEUE PUSH mail 'null', 'null'")
    assert stats(hand.q)["ready"] == 2 and stats(hand.q)["leased"] == 5


def test_ids_for_who_pushes(hand):
    w = hand.wait()
    rows = hand.q.rows("QUEUE PUSH mail '1', '2', '3' RETURNING ID")
    assert woken(w)["id"] in [r["id"] for r in rows]
    assert len({r["id"] for r in rows}) == 3
    wait_for(lambda: (stats(hand.q)["leased"], stats(hand.q)["ready"]) == (2, 1), "two takers")


@pytest.mark.parametrize("priority, first", [(0, "old"), (5, "old"), (-5, "new")])
def test_what_goes_before_it(hand, direct, priority, first):
    """Nobody was told of what a direct INSERT pushed: the statement that hands over sees it."""
    w = hand.wait()
    hand.alone()
    direct.execute("INSERT INTO queue.q_mail (payload, priority) VALUES ('\"old\"', %s)", (priority,))
    tag(hand.q, "QUEUE PUSH mail '\"new\"'")
    assert woken(w)["payload"] == '"%s"' % first
    assert take(hand.q)["payload"] == '"%s"' % ("new" if first == "old" else "old")


def test_what_is_due_goes_first(hand, direct):
    w = hand.wait()
    hand.alone()
    direct.execute("INSERT INTO queue.q_mail (payload, state, run_at) VALUES ('1', 'later', now())")
    tag(hand.q, "QUEUE PUSH mail '2' PRIORITY -1")
    assert woken(w)["payload"] == "1"


@pytest.mark.parametrize("push, kept", [
    ("'1'", [("ready", None, None, None, None)]),
    ("'1', '2' HEADERS '{\"a\": 1}' EXPIRES '1 hour' ATTEMPTS 4 DELAY '0'", [("ready", {"a": 1}, 4, True, True)] * 2)])
def test_paused(hand, direct, push, kept):
    w = hand.wait()
    hand.alone()
    direct.execute("SELECT queue.pause('mail')")
    tag(hand.q, "QUEUE PUSH mail " + push)
    assert direct.execute("SELECT state, headers, max_attempts, expires_at - pushed_at <= '1 hour', run_at <= pushed_at "
                          "FROM queue.q_mail").fetchall() == kept
    tag(hand.q, "QUEUE RESUME mail")
    assert woken(w)["payload"] == "1"


@pytest.mark.parametrize("more", ["DELAY '1 ms'", "DELAY '0.001'", "HEADERS '{}' DELAY '00:00:00.001'", "AT '1999-01-01'"])
def test_a_delayed_push_is_not(hand, more):
    w = hand.wait()
    hand.alone()
    before = hand.handed()
    tag(hand.q, "QUEUE PUSH mail '1' " + more)
    assert woken(w)["payload"] == "1"
    assert hand.handed() == before


def test_pop(hand):
    w = hand.wait("QUEUE POP mail WAIT '30s'")
    hand.alone()
    tag(hand.q, "QUEUE PUSH mail '1'")
    assert woken(w)["token"] is None
    assert sum(stats(hand.q).values()) == 0


# What a job keeps of its push, but for its ids and times of its own.
KEPT = """SELECT state, priority, attempt, failures, max_attempts, headers, payload, worker, proxy, key, "group", again,
    run_at - pushed_at, expires_at - pushed_at, lease_until - pushed_at > interval '59 min' FROM queue.q_mail"""
# of these, what a job that is handed over has at once and another one a moment later
SAID = [("HEADERS '{\"trace\": 4711}'", "HEADERS $2", ['{"trace": 4711}']),
        ("HEADERS 'null'", "HEADERS $2", ["null"]),
        ("ATTEMPTS 3", "ATTEMPTS $2", ["3"]),
        ("EXPIRES '1 hour'", "EXPIRES $2", ["1 hour"]),
        ("DELAY '0'", "DELAY $2", ["00:00:00"]),
        ("DELAY 0 PRIORITY -2", "DELAY $2 PRIORITY $3", ["0 s", "-2"]),
        ("HEADERS '{\"a\": {}}' EXPIRES '1 day' ATTEMPTS 1 PRIORITY 7 DELAY '0 min'",
         "HEADERS $2 EXPIRES $3 ATTEMPTS $4 PRIORITY $5 DELAY $6", ['{"a": {}}', "1 day", "1", "7", "0 min"])]


def exact(hand, job):
    """What is in the table and what JOB and TAKE say of a job, without what differs from job to job."""
    row = [round(x.total_seconds()) if hasattr(x, "total_seconds") else x for x in hand.direct.execute(KEPT).fetchone()]
    (said,) = hand.q.rows("QUEUE JOB '%s'" % job["token"])
    mine = ("job", "id", "token", "pushed_at", "lease_until", "taken_at", "ran")
    times = ("run_at", "expires_at")
    return (row, {k: v is None if k in times else v for k, v in job.items() if k not in mine},
            {k: v is None if k in times else v for k, v in said.items() if k not in mine})


def push_bound(w, more, values):
    w.parse("", "QUEUE PUSH mail $1 " + more)
    w.bind(values=['{"n": 1}'] + values)
    w.describe("P").execute().sync()
    return [m.tag for m in w.until("Z") if m.type == "C"]


@pytest.mark.parametrize("text, bound, values", SAID, ids=[s[0] for s in SAID])
@pytest.mark.parametrize("extended", [False, True])
def test_what_a_push_says_of_its_jobs(hand, extended, text, bound, values):
    """It is handed over by one statement, and nobody can tell from the job."""
    take_sql = "QUEUE TAKE mail LEASE '1 hour' AS 'me'"
    hand.alone()

    def push():
        if extended:
            assert push_bound(hand.q, bound, values) == ["INSERT 0 1"]
        else:
            assert tag(hand.q, "QUEUE PUSH mail '{\"n\": 1}' " + text) == "INSERT 0 1"

    def once():
        before = len(hand.notes())
        w = hand.wait(take_sql + " WAIT '30s'")
        push()
        job = woken(w)
        notes, what = hand.notes()[before:], exact(hand, job)
        tag(w, "QUEUE DONE '%s'" % job["token"])
        w.terminate()
        return what if notes == ["INSERT leased"] else None
    handed = wait_for(once, "a push that is handed over")
    push()
    job = take(hand.q, take_sql)
    assert exact(hand, job) == handed
    assert hand.notes()[-2:] == ["INSERT ready", "UPDATE leased"]


def test_many_jobs_with_headers(hand):
    waiters = [hand.wait("QUEUE TAKE mail LIMIT %d WAIT '30s'" % n) for n in (2, 1)]
    hand.alone()
    rows = hand.q.rows("QUEUE PUSH mail '0', '1', '2', '3' HEADERS '{\"h\": 1}' ATTEMPTS 2 RETURNING ID")
    got = [[m.text_row[4:6] for m in w.until("Z") if m.type == "D"] for w in waiters]
    assert got == [[[n, '{"h": 1}'] for n in ns] for ns in (("0", "1"), ("2",))]
    assert len({r["id"] for r in rows}) == 4
    left = take(hand.q)
    assert (left["payload"], left["headers"], left["id"]) == ("3", '{"h": 1}', rows[3]["id"])


def test_the_last_attempt(hand):
    job, w = handed_over(hand, "QUEUE TAKE mail WAIT '30s'", "QUEUE PUSH mail '1' ATTEMPTS 1")
    assert tag(w, "QUEUE FAIL '%s' RETRY IN '0'" % job["token"]) == "UPDATE 1"
    assert stats(hand.q) == {"ready": 0, "later": 0, "leased": 0, "dead": 1}


def test_one_that_is_given_back_expires(hand, direct):
    job, w = handed_over(hand, "QUEUE TAKE mail WAIT '30s'", "QUEUE PUSH mail '1' EXPIRES '1 hour'")
    tag(w, "QUEUE RELEASE '%s'" % job["token"])
    assert direct.execute("SELECT state, attempt, expires_at - pushed_at = '1 hour' FROM queue.q_mail").fetchall() == [
        ("ready", 0, True)]


def test_what_has_expired_is_nobodys(hand):
    """Though it may be the push that does it all."""
    w = hand.wait()
    hand.alone()
    for payloads in ("'1'", "'2', '3'"):
        tag(hand.q, "QUEUE PUSH mail %s EXPIRES '1 microsecond'" % payloads)
        # who looks at this moment has begun before the next push, and would not know it for expired
        wait_for(lambda: [r["state"] for r in hand.waiters()] == ["parked"], "a look that found nothing")
    tag(hand.q, "QUEUE PUSH mail '4' EXPIRES '1 hour'")
    assert woken(w)["payload"] == "4"


WRONG = [("HEADERS '[1]'", "22023"), ("HEADERS '{'", "22P02"), ("HEADERS ''", "22P02"), ("EXPIRES '0'", "22023"),
         ("EXPIRES '-1 s'", "22023"), ("EXPIRES '9000 years'", "22023"), ("EXPIRES 'soon'", "22007"),
         ("ATTEMPTS 0", "22023"), ("ATTEMPTS 'x'", "22P02"), ("ATTEMPTS 3000000000", "22003"),
         ("DELAY '0 nonsense'", "22007"), ("DELAY '0' AT '1999-01-01'", "42601")]


def test_what_is_wrong_with_a_push(hand):
    """The same errors whether somebody waits or not; who waits is there for the next one."""
    hand.alone()
    alone = [error(hand.q, "QUEUE PUSH mail '1' " + more) for more, _ in WRONG]
    assert [e.sqlstate for e in alone] == [code for _, code in WRONG]
    w = hand.wait()
    with_waiter = [error(hand.q, "QUEUE PUSH mail '1' " + more) for more, _ in WRONG]
    assert [str(e) for e in with_waiter] == [str(e) for e in alone]
    tag(hand.q, "QUEUE PUSH mail '2' HEADERS '{}'")
    assert woken(w)["payload"] == "2"


KEYED = ["KEY 'k'", "KEY 'k' ON DUPLICATE REPLACE", "KEY 'k' ON DUPLICATE RERUN", "KEY 'k' ON DUPLICATE ERROR",
         "KEY 'k' RETURNING ID", "GROUP 'g'", "GROUP 'g' PRIORITY 3", "KEY 'k' GROUP 'g'"]


@pytest.mark.parametrize("said", KEYED)
def test_a_key_or_a_group_that_is_free(hand, said):
    """One statement; the job is as if it had been pushed and taken."""
    take_sql = "QUEUE TAKE mail LEASE '1 hour' AS 'me'"
    hand.alone()

    def once():
        before = len(hand.notes())
        w = hand.wait(take_sql + " WAIT '30s'")
        assert tag(hand.q, "QUEUE PUSH mail '1' " + said) == "INSERT 0 1"
        job = woken(w)
        notes, what = hand.notes()[before:], exact(hand, job)
        tag(w, "QUEUE DONE '%s'" % job["token"])
        w.terminate()
        return what if notes == ["INSERT leased"] else None
    handed = wait_for(once, "a push that is handed over")
    tag(hand.q, "QUEUE PUSH mail '1' " + said)
    assert exact(hand, take(hand.q, take_sql)) == handed
    assert hand.notes()[-2:] == ["INSERT ready", "UPDATE leased"]


def test_one_of_a_group_at_a_time(hand):
    """The first is handed over, the others come one by one as it ends, in the order of their pushes."""
    w = hand.wait()
    hand.alone()
    tag(hand.q, "QUEUE PUSH mail '1', '2', '3' GROUP 'g'")
    for n in (1, 2, 3):
        job = woken(w)
        assert (job["payload"], job["group"], job["attempt"]) == (str(n), "g", "1")
        worker, w = w, hand.wait()
        assert hand.direct.execute("SELECT state FROM queue.q_mail ORDER BY id").fetchall() == [
            ("leased",)] + [("blocked",)] * (3 - n)
        assert tag(worker, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    assert sum(stats(hand.q).values()) == 0


def test_one_behind_others_wakes_nobody(hand):
    """Who waits has nothing to ask after."""
    _, w = handed_over(hand, "QUEUE TAKE mail WAIT '30s'", "QUEUE PUSH mail '1' GROUP 'g'")

    def probes():
        return int([r for r in hand.proxy.console("SHOW QUEUES") if r["queue"] == "mail"][0]["probes"])

    def once():
        first, second = hand.wait(), hand.wait()
        before = probes()
        tag(hand.q, "QUEUE PUSH mail '2', '3' GROUP 'g'")
        tag(hand.q, "QUEUE PUSH mail '4'")
        payload, asked = woken(first)["payload"], probes() - before
        cancel(second)
        second.until("Z")
        return payload == "4" and asked == 0
    wait_for(once, "a push that asks nothing of those who wait")


def test_who_is_not_given_one_that_is_blocked_is_given_the_next(hand, cluster, db):
    """The pushes of several clients in one statement; a waiter for each of them."""
    waiters = [hand.wait() for _ in range(3)]
    hand.alone()
    pushers = [hand.proxy.wire(db) for _ in range(5)]
    with Stopped(cluster, db) as lock:
        pushers[0].query("QUEUE PUSH mail '0' GROUP 'g'")
        lock.stopped()
        for n, more in enumerate(("GROUP 'g'", "GROUP 'h'", "KEY 'a'", "KEY 'b'"), 1):
            pushers[n].query("QUEUE PUSH mail '%d' %s" % (n, more))
    for p in pushers:
        assert p.until("Z")[0].tag == "INSERT 0 1"
    got = {woken(w)["payload"] for w in waiters}
    assert "0" in got and "1" not in got and len(got) == 3
    assert stats(hand.q)["leased"] == 3 and stats(hand.q)["ready"] == 1


@pytest.mark.parametrize("policy, tags, payload, again", [
    ("IGNORE", ["INSERT 0 0", "INSERT 0 0"], 1, False), ("REPLACE", ["INSERT 0 1", "INSERT 0 1"], 3, True),
    ("RERUN", ["INSERT 0 1", "INSERT 0 1"], 1, True)])
def test_a_key_that_is_there(hand, policy, tags, payload, again):
    """Nobody who waits is given a job for it."""
    job, w = handed_over(hand, "QUEUE TAKE mail WAIT '30s'", "QUEUE PUSH mail '1' KEY 'k'")
    other = hand.wait("QUEUE TAKE mail WAIT '30s'")
    assert [tag(hand.q, "QUEUE PUSH mail '%d' KEY 'k' ON DUPLICATE %s" % (n, policy)) for n in (2, 3)] == tags
    assert hand.direct.execute("SELECT state, payload, again IS TRUE FROM queue.q_mail").fetchall() == [
        ("leased", payload, again)]
    assert error(hand.q, "QUEUE PUSH mail '4' KEY 'k' ON DUPLICATE ERROR").sqlstate == "23505"
    tag(w, "QUEUE DONE '%s'" % job["token"])
    if not again:
        tag(hand.q, "QUEUE PUSH mail '5' KEY 'k'")
    assert woken(other)["payload"] == str(payload if again else 5)


def test_a_group_that_a_transaction_holds(hand):
    """Who waits for it does so alone, and takers are there for others meanwhile."""
    waiters = [hand.wait() for _ in range(2)]
    hand.alone()
    tag(hand.q, "BEGIN")
    tag(hand.q, "QUEUE PUSH mail '1' GROUP 'g'")
    second, third = hand.proxy.wire(hand.db), hand.proxy.wire(hand.db)
    second.query("QUEUE PUSH mail '2' GROUP 'g'")
    tag(third, "QUEUE PUSH mail '3' GROUP 'h'")
    assert woken(waiters[0])["payload"] == "3"
    tag(hand.q, "COMMIT")
    assert second.until("Z")[0].tag == "INSERT 0 1"
    assert woken(waiters[1])["payload"] == "1"
    assert hand.direct.execute("SELECT payload, state FROM queue.q_mail ORDER BY 1").fetchall() == [
        (1, "leased"), (2, "blocked"), (3, "leased")]


def test_what_a_key_that_has_expired_sets_free_goes_first(hand, direct):
    """It was the first of a group: the next one of the group has been there for longer than what is pushed."""
    direct.execute("INSERT INTO queue.q_mail (payload, key, \"group\", expires_at) VALUES ('1', 'k', 'g', 'infinity')")
    direct.execute("INSERT INTO queue.q_mail (payload, \"group\", state) VALUES ('2', 'g', 'blocked')")
    direct.execute("SELECT queue.pause('mail')")
    first, second = hand.wait(), hand.wait()
    hand.alone()
    direct.execute("UPDATE queue.q_mail SET state = 'later', expires_at = now(), due = now(), run_at = now() + '1 h' WHERE key = 'k'")
    direct.execute("UPDATE queue.queues SET paused = false")
    tag(hand.q, "QUEUE PUSH mail '3' KEY 'k'")
    assert (woken(first)["payload"], woken(second)["payload"]) == ("2", "3")


def test_paused_with_a_key(hand, direct):
    w = hand.wait()
    hand.alone()
    direct.execute("SELECT queue.pause('mail')")
    tag(hand.q, "QUEUE PUSH mail '1' KEY 'k'")
    assert stats(hand.q)["ready"] == 1
    tag(hand.q, "QUEUE RESUME mail")
    assert woken(w)["payload"] == "1"


def test_what_goes_before_a_key(hand, direct):
    w = hand.wait()
    hand.alone()
    direct.execute("INSERT INTO queue.q_mail (payload) VALUES ('\"old\"')")
    tag(hand.q, "QUEUE PUSH mail '\"new\"' KEY 'k'")
    assert woken(w)["payload"] == '"old"'


def test_a_role_that_may_not_take_any_more(hand):
    """The push succeeds; who waits is told what a take would have been told."""
    tag(hand.q, "QUEUE GRANT ALL ON mail TO other")
    w = hand.wait(user="other")
    hand.alone()
    pusher = hand.proxy.wire(hand.db, user="other")
    tag(hand.q, "QUEUE REVOKE TAKE ON mail FROM other")
    tag(pusher, "QUEUE PUSH mail '1'")
    assert [m.sqlstate for m in w.until("Z") if m.type == "E"] == ["42501"]
    assert take(hand.q)["payload"] == "1"


def test_another_role_takes_for_itself(hand):
    tag(hand.q, "QUEUE GRANT TAKE ON mail TO other")
    w = hand.wait(user="other")
    hand.alone()
    before = hand.handed()
    tag(hand.q, "QUEUE PUSH mail '1'")
    assert woken(w)["payload"] == "1"
    assert hand.handed() == before


def test_what_cannot_be_pushed(hand):
    w = hand.wait()
    hand.alone()
    assert error(hand.q, "QUEUE PUSH mail '{'").sqlstate == "22P02"
    tag(hand.q, "QUEUE PUSH mail '1'")
    assert woken(w)["payload"] == "1"


class Stopped:
    """Statements that insert into the queue stop while it is there."""

    def __init__(self, cluster, db):
        self.cluster, self.db = cluster, db

    def __enter__(self):
        self.c = psycopg.connect(self.cluster.dsn(self.db))
        self.c.execute("LOCK TABLE queue.q_mail IN SHARE MODE")
        return self

    def stopped(self):
        """One of them."""
        n = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'queue.q_mail'::regclass"
        wait_for(lambda: self.c.execute(n).fetchone()[0] > 0, "a statement that waits for the lock")

    def __exit__(self, *exc):
        self.c.close()


def test_what_gathers_is_handed_over_together(hand, cluster, db):
    waiters = [hand.wait() for _ in range(3)]
    hand.alone()
    pushers = [hand.proxy.wire(db) for _ in range(3)]
    with Stopped(cluster, db) as lock:
        pushers[0].query("QUEUE PUSH mail '0'")
        lock.stopped()
        pushers[1].query("QUEUE PUSH mail '1'")
        pushers[2].query("QUEUE PUSH mail '2'")
    assert sorted(woken(w)["payload"] for w in waiters) == ["0", "1", "2"]
    for p in pushers:
        assert p.until("Z")[0].tag == "INSERT 0 1"


@pytest.mark.parametrize("how", ["close", "reset", "terminate", "cancel"])
def test_who_goes_before_it_is_committed(hand, cluster, db, direct, how):
    """Its job is given back, and is not an attempt."""
    w = hand.wait("QUEUE TAKE mail HOLD WAIT '30s'")
    hand.alone()
    with Stopped(cluster, db) as lock:
        hand.q.query("QUEUE PUSH mail '1'")
        lock.stopped()
        if how == "cancel":
            cancel(w)
            assert w.until("Z")[-2].sqlstate == "57014"
        else:
            getattr(w, how)()
            wait_for(lambda: not hand.waiters(), "that nobody waits")
    assert hand.q.until("Z")[0].tag == "INSERT 0 1"
    job = wait_for(lambda: hand.q.rows("QUEUE TAKE mail"), "the job")[0]
    assert (job["payload"], job["attempt"]) == ("1", "1")


def test_a_wait_that_ends_meanwhile(hand, cluster, db):
    """It ends in its time, also while the push that has found it is held up; the job is somebody else's then."""
    w = hand.wait("QUEUE TAKE mail WAIT '3s'")
    hand.alone()
    with Stopped(cluster, db) as lock:
        hand.q.query("QUEUE PUSH mail '1'")
        lock.stopped()
        assert [m.tag for m in w.until("Z") if m.type == "C"] == ["SELECT 0"]
    hand.q.until("Z")
    job = wait_for(lambda: hand.q.rows("QUEUE TAKE mail"), "the job")[0]
    assert (job["payload"], job["attempt"]) == ("1", "1")


def test_hold_ends_with_the_connection(hand):
    _, w = handed_over(hand, "QUEUE TAKE mail HOLD WAIT '30s'", "QUEUE PUSH mail '1'")
    w.terminate()
    job = wait_for(lambda: hand.q.rows("QUEUE TAKE mail"), "the job")[0]
    assert job["attempt"] == "1"    # a goodbye is no failed attempt


def test_inside_a_transaction(hand, direct):
    w = hand.wait()
    hand.alone()
    before = hand.handed()
    tag(hand.q, "BEGIN")
    tag(hand.q, "QUEUE PUSH mail '1'")
    assert direct.execute("SELECT count(*) FROM queue.q_mail").fetchone() == (0,)
    tag(hand.q, "COMMIT")
    assert woken(w)["payload"] == "1"
    assert hand.handed() == before


def test_a_commit_that_waits_for_the_disk(hand):
    """A push is acknowledged after one, whether it is handed over or not; a take need not wait."""
    job, w = handed_over(hand, "QUEUE TAKE mail WAIT '30s'", "QUEUE PUSH mail '1'")
    tag(w, "QUEUE DONE '%s'" % job["token"])
    tag(hand.q, "QUEUE PUSH mail '2'")
    tag(hand.q, "QUEUE DONE '%s'" % take(hand.q)["token"])
    assert list(zip(hand.notes(), hand.notes("synchronous")))[-5:] == [
        ("INSERT leased", "on"), ("DELETE", "on"), ("INSERT ready", "on"), ("UPDATE leased", "off"),
        ("DELETE", "on")]
