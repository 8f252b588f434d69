"""What lets a job go is told (queue._tell): past the proxy by a notification, to the proxy by a message of the
connection."""

import pytest


@pytest.fixture
def q(db):
    db.create("q", retry="fixed 1s", max_attempts="1")
    return db


class Ear:
    """What is said while something is done: by notification, and on the connection."""

    def __init__(self, session):
        self.session, self.conn, self.heard = session, session.connect().conn, []
        self.conn.add_notify_handler(lambda n: self.heard.append(n.payload))
        self.conn.execute("LISTEN qbouncer")

    def until_now(self):
        self.conn.execute("SELECT pg_notify('qbouncer', '(end)')")
        while "(end)" not in self.heard:
            self.conn.execute("SELECT")
        heard = self.heard[:-1]
        self.heard.clear()
        return heard

    def of(self, *sql):
        self.until_now()
        self.session.notices.clear()
        for one in sql:
            self.session.rows(*([one] if isinstance(one, str) else one))
        return self.until_now(), list(self.session.notices)


def group(q, first="", state="leased"):
    """Two jobs of a group, the first of them taken: its token."""
    q.rows("SELECT queue.push('q', '1', \"group\" => 'g', key => 'k'%s)" % first)
    q.rows("SELECT queue.push('q', '2', \"group\" => 'g')")
    return q.take("q")[0]["token"] if state == "leased" else None


BY_TOKEN = {  # as anybody says it, as the proxy does
    "done": ("SELECT queue.done(%s)", "SELECT queue._done(ARRAY[%s], false)"),
    "result": ("SELECT queue.done(%s, '1')", "SELECT queue._done(ARRAY[%s], false, '1')"),
    "pairs": (None, "SELECT queue._done_pairs(ARRAY[%s, '1'])"),
    "given back": (None, "SELECT queue._give_back(ARRAY[%s], 'gone', true)"),
}


@pytest.mark.parametrize("again", (False, True))
@pytest.mark.parametrize("how", BY_TOKEN)
def test_of_a_lease(q, how, again):
    past, proxy = BY_TOKEN[how]
    ear = Ear(q)
    for sql, told in ((past, (["q"], [])), (proxy, ([], ["q"]))):
        if sql is None:
            continue
        if again:
            q.rows("SELECT queue.push('q', '1', key => 'k')")
            token = q.take("q")[0]["token"]
            q.rows("SELECT queue.push('q', '2', key => 'k', on_duplicate => 'rerun')")
        else:
            token = group(q)
        # a job that is given back is told of by the row
        assert ear.of((sql, token)) == (([], []) if again and how == "given back" else told)
        q.rows("TRUNCATE queue.q_q")


def test_fail(q):
    """Its queue is told of in any case."""
    ear = Ear(q)
    assert ear.of(("SELECT queue.fail(%s)", group(q))) == (["q"], [])
    q.rows("TRUNCATE queue.q_q")
    assert ear.of(("SELECT queue._fail(ARRAY[%s], NULL, NULL, true, false)", group(q))) == ([], [])


@pytest.mark.parametrize("past, proxy", (
    ("SELECT queue.cancel((SELECT min(id) FROM queue.q_q)::text)",
     "SELECT queue._cancel(ARRAY[(SELECT min(id) FROM queue.q_q)::text], false)"),
    ("SELECT queue.purge('q', 'ready')", "SELECT queue.purge('q', 'ready', false)"),
    ("SELECT queue.pop('q')", None),
    ("DELETE FROM queue.q_q WHERE state = 'ready'", None),
    ("SELECT queue.drop('q')", "SELECT queue.drop('q', false, false)"),
))
def test_of_one_that_waits(q, past, proxy):
    ear = Ear(q)
    group(q, state="ready")
    assert ear.of(past) == (["q"], [])
    if proxy is None:
        return
    if "drop" in past:
        q.create("q")
    q.rows("TRUNCATE queue.q_q")
    group(q, state="ready")
    assert ear.of(proxy) == ([], ["q"])


@pytest.mark.parametrize("sql", ("SELECT queue.take('q')", "SELECT queue.maintain()"))
def test_time_is_over(q, sql):
    ear = Ear(q)
    group(q, state="ready")
    q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE state = 'ready'")
    assert ear.of(sql) == (["q"], [])
    q.rows("TRUNCATE queue.q_q")
    group(q, state="ready")
    q.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE state = 'ready'")
    proxy = {"SELECT queue.maintain()": "SELECT * FROM queue._maintain_used('{}', 0, 100, 1000)"}.get(sql, """
        SELECT t.* FROM queue.queues AS c, LATERAL queue._take_1(c, 1, c.lease, 'w', NULL, false,
            '{}', '{}', 0, clock_timestamp()) AS t WHERE c.number = 1""")
    assert ear.of(proxy) == ([], ["q"])


def test_a_late_key(q):
    """The push tells of the queue anyway, or the proxy does."""
    ear = Ear(q)
    late = "UPDATE queue.q_q SET expires_at = now() - interval '1 s' WHERE state = 'ready'"
    group(q, state="ready")
    q.rows(late)
    assert ear.of("SELECT queue.push('q', '3', key => 'k')") == (["q"], [])
    q.rows("TRUNCATE queue.q_q")
    group(q, state="ready")
    q.rows(late)
    assert ear.of("SELECT queue._push('q', ARRAY['3'], 0, NULL, NULL, NULL, false, NULL, NULL, 'k')") == ([], [])
    assert q.column("SELECT state FROM queue.q_q ORDER BY id") == ["ready", "ready"]


def test_let_go_at_the_commit(q):
    """Of a blocked push: who has pushed has told. The proxy's merged pushes tell only then."""
    ear = Ear(q)
    for before, told in (((), ([], [])), (("SET LOCAL qbouncer.tell = here",), ([], ["q"]))):
        token, two = group(q), q.connect()
        q.rows("DELETE FROM queue.q_q WHERE state = 'blocked'")
        q.rows("BEGIN")
        for sql in before:
            q.rows(sql)
        q.rows("SELECT queue._push('q', ARRAY['3'], 0, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, 'g')")
        two.done(token)
        assert ear.of("COMMIT") == told
        assert q.column("SELECT state FROM queue.q_q") == ["ready"]
        q.rows("TRUNCATE queue.q_q")


def test_once_of_each_queue(q):
    """In a transaction; whatever the client wants to see of messages."""
    ear = Ear(q)
    q.create("r")
    for name in ("q", "r"):
        for g in ("g", "h"):
            for payload in ("1", "2"):
                q.rows("SELECT queue.push(%s, %s, \"group\" => %s)", name, payload, g)
    tokens = [job["token"] for job in q.take(["q", "r"], 9)]
    assert len(tokens) == 4
    q.rows("SET client_min_messages = error")
    heard, said = ear.of(("SELECT queue._done(%s::text[], false)", tokens))
    assert (heard, sorted(said)) == ([], ["q", "r"])


def test_taken_back_with_a_savepoint(q):
    ear = Ear(q)
    token = group(q)
    done = ("SELECT queue._done(ARRAY[%s], false)", token)
    assert ear.of("BEGIN", "SAVEPOINT a", done, "ROLLBACK TO a", done, "COMMIT") == ([], ["q", "q"])


def test_a_transaction_that_calls_both(q):
    """What is done by hand behind a call that is not the proxy's is notified."""
    ear = Ear(q)
    token = group(q)
    q.rows("SELECT queue.push('q', '1', \"group\" => 'h'), queue.push('q', '2', \"group\" => 'h')")
    assert ear.of("BEGIN", ("SELECT queue.done(%s)", token),
                  "DELETE FROM queue.q_q WHERE \"group\" = 'h' AND state = 'ready'", "COMMIT") == (["q"], [])


@pytest.mark.parametrize("more", ("", ", key => 'k'", ", delay => '1 h'"))
def test_of_a_push(db, more):
    """As it is said; by who is told to say it himself nothing is said."""
    db.create("q")
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    ear = Ear(db)
    for name in "qs":
        if name == "s" and "delay" in more:
            continue
        push = "SELECT queue.push('%s', '1'::jsonb%s)" % (name, more)
        assert ear.of(push) == ([name], [])
        # once for a transaction
        assert ear.of("BEGIN", "SET LOCAL qbouncer.tell = 'here'", push, push.replace("'k'", "'l'"), "COMMIT") == ([], [name])
        assert ear.of("BEGIN", "SET LOCAL qbouncer.tell = 'nobody'", push.replace("'k'", "'m'"), "COMMIT") == ([], [])
        assert ear.of("SELECT queue.push('%s', '1'::jsonb, notify => false)" % name) == ([], [])


@pytest.mark.parametrize("more", ("", ", key => 'k'"))
def test_of_a_publication(db, more):
    """Each queue and stream that has got something, once."""
    db.create("q")
    db.rows("SELECT queue.create('s', false, '{kind}', '{stream}')")
    db.rows("SELECT queue.create_topic('t'), queue.bind('q', 't.#'), queue.bind('s', 't.b'), queue._routes_of('t')")
    ear = Ear(db)
    publish = "SELECT queue.publish('t.%%s', '1'::jsonb%s)" % more
    here = ("BEGIN", "SET LOCAL qbouncer.tell = 'here'")
    a, b = (publish % word for word in "ab")
    assert ear.of(a) == (["q"], [])
    assert ear.of(b.replace("'k'", "'l'")) == (["q", "s"], [])
    assert ear.of(*here, a.replace("'k'", "'m'"), b.replace("'k'", "'n'"), b.replace("'k'", "'o'"), "COMMIT") == ([], ["q", "s"])
    assert ear.of("SELECT queue.publish('t.b', '1'::jsonb, notify => false)") == ([], [])
    assert ear.of("BEGIN", b.replace("'k'", "'p'"), "ROLLBACK") == ([], [])
