"""Lone statements: PUSH, TAKE and DONE of one job as plain statements on the engine's own connections. They are what
the functions are, and nothing stale is ever carried out."""

import psycopg
import pytest

from proxy import wait_for
from queuetest import error, tag, take

PUSH = "QUEUE PUSH mail '{\"a\": 1}'"


class Warm:
    """A proxy whose engine has a connection, and a client of it."""

    def __init__(self, qbouncer, db, direct):
        self.proxy = qbouncer(queue_engine_after=1)
        self.db, self.direct = db, direct
        self.c = self.proxy.wire(db)

    def last(self):
        """The statements that the engine's connections have run last."""
        pids = [int(r["remote_pid"]) for r in self.proxy.console("SHOW SERVERS")
                if r["database"] == self.db and r["engine"] == "1"]
        return [r[0] for r in self.direct.execute(
            "SELECT query FROM pg_stat_activity WHERE pid = ANY (%s)", (pids,)).fetchall()]

    def ran(self, verb):
        """Whether the last statement was this lone one."""
        return any(q.startswith(verb) and "_lone_" in q for q in self.last())

    def warm(self, push=PUSH):
        """Pushes, takes and finishes until each has been a lone statement."""
        todo = dict.fromkeys(("INSERT", "UPDATE", "DELETE"))

        def note(verb):
            if self.ran(verb):
                todo.pop(verb, None)

        def cycle():
            for _ in range(3):
                assert tag(self.c, push) == "INSERT 0 1"
            note("INSERT")
            # the first looks for what is due, the others follow soon enough
            jobs = [take(self.c) for _ in range(3)]
            note("UPDATE")
            for job in jobs:
                assert tag(self.c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
            note("DELETE")
            return not todo
        wait_for(cycle, "lone statements")


@pytest.fixture
def warm(qbouncer, db, direct):
    made = []

    def make(options="", push=PUSH):
        w = Warm(qbouncer, db, direct)
        made.append(w)
        if not made[1:]:
            tag(w.c, "QUEUE CREATE mail" + options)
        w.warm(push)
        return w
    yield make
    for w in made:
        w.c.close()


def test_all_three(warm):
    w = warm()
    assert tag(w.c, PUSH) == "INSERT 0 1"
    job = take(w.c, "QUEUE TAKE mail LEASE '1 h' AS 'me'")
    assert job["payload"] == '{"a": 1}' and job["queue"] == "mail" and job["attempt"] == "1"
    # its number comes later, if the proxy had none yet
    wait_for(lambda: w.direct.execute("SELECT state, worker, attempt, lease_until - taken_at = '1 h', proxy > 0 FROM queue.q_mail")
             .fetchone() == ("leased", "me", 1, True, True), "the lease")
    assert tag(w.c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    assert w.direct.execute("SELECT count(*) FROM queue.q_mail").fetchone() == (0,)


def test_takes_that_follow_each_other_are_usual_ones(warm):
    """They do not look for what is due. With a lease of its own, or for a connection, it is the other statement; and what
    becomes due comes all the same."""
    w = warm()

    def some(sql="QUEUE TAKE mail"):
        for _ in range(8):
            tag(w.c, PUSH)
        jobs = [take(w.c) for _ in range(7)] + [take(w.c, sql)]
        texts = [text for text in w.last() if text.startswith("UPDATE")]
        leases = w.direct.execute("SELECT lease_until - taken_at FROM queue.q_mail WHERE state = 'leased' ORDER BY id").fetchall()
        for job in jobs:
            tag(w.c, "QUEUE DONE '%s'" % job["token"])
        return any("BETWEEN $6" in text for text in texts), [str(lease) for (lease,) in leases]

    wait_for(lambda: some() == (True, ["0:05:00"] * 8), "a usual take")
    for other, lease in (("QUEUE TAKE mail LEASE '1 h'", "1:00:00"), ("QUEUE TAKE mail HOLD", "0:01:00")):
        assert some(other) == (False, ["0:05:00"] * 7 + [lease]), other
    wait_for(lambda: some()[0], "a usual take")
    tag(w.c, "QUEUE PUSH mail '2' DELAY '30 ms' PRIORITY 1")

    def late():
        tag(w.c, PUSH)
        job = take(w.c)
        tag(w.c, "QUEUE DONE '%s'" % job["token"])
        return job["payload"] == "2"
    wait_for(late, "the job that has become due")


def test_a_front_that_is_dear_is_left_alone(warm, cluster, db):
    """A take reads from the front; where that takes long, as somebody's snapshot keeps what was taken from being
    cleaned up, the function goes on from where the last one was."""
    w = warm()

    def cycle():
        tag(w.c, PUSH)
        job = take(w.c, "QUEUE TAKE mail LEASE '1 min'")
        last = [q for q in w.last() if "_take_1(" in q or q.startswith("UPDATE")]
        assert tag(w.c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
        return {q.startswith("UPDATE") for q in last}

    wait_for(lambda: cycle() == {True}, "takes from the front")
    with psycopg.connect(cluster.dsn(db), autocommit=True) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM queue.q_mail")
        w.direct.execute("INSERT INTO queue.q_mail (payload) SELECT '1' FROM generate_series(1, 30000)")
        w.direct.execute("DELETE FROM queue.q_mail")
        wait_for(lambda: False in cycle(), "a take that goes on")
        old.execute("ROLLBACK")
    w.direct.execute("VACUUM queue.q_mail")
    wait_for(lambda: cycle() == {True}, "takes from the front")


def test_errors_are_those_of_the_functions(warm):
    w = warm()
    cold = w.proxy.wire(w.db)
    cold.simple("SET search_path = pg_temp")  # its statements do not run on the engine's connections
    gone = take_one(w)
    w.direct.execute("DELETE FROM queue.q_mail")
    late = take_one(w)
    w.direct.execute("UPDATE queue.q_mail SET lease_until = now() - interval '1 s', due = now() - interval '1 s'")
    for sql in ("QUEUE PUSH mail '{'", "QUEUE DONE '%s'" % gone,
                "QUEUE DONE '%s'" % late, "QUEUE DONE '%s-x'" % late.rpartition("-")[0], "QUEUE TAKE mail LEASE '-1 s'"):
        got, wanted = error(w.c, sql), error(cold, sql)
        assert (got.sqlstate, str(got), got.args) == (wanted.sqlstate, str(wanted), wanted.args), sql
    cold.close()


def take_one(w):
    tag(w.c, PUSH)
    return take(w.c)["token"]


def test_a_group_goes_on(warm):
    w = warm()
    for n in range(2):
        tag(w.c, "QUEUE PUSH mail '%d' GROUP 'g'" % n)
    first = take(w.c)
    assert not w.c.rows("QUEUE TAKE mail")
    other = w.proxy.wire(w.db)
    other.query("QUEUE TAKE mail WAIT '10 s'")
    assert tag(w.c, "QUEUE DONE '%s'" % first["token"]) == "UPDATE 1"
    assert [m.text_row[4] for m in other.until() if m.type == "D"] == ["1"]
    other.close()


ALTERS = {
    "lease": ("QUEUE ALTER mail SET (lease = '2 h')",
              "SELECT lease_until - taken_at = '2 h' FROM queue.q_mail WHERE state = 'leased'"),
    "max_run": ("QUEUE ALTER mail SET (max_run = '1 min')",
                "SELECT lease_until - taken_at = '1 min' FROM queue.q_mail WHERE state = 'leased'"),
    "on_disconnect": ("QUEUE ALTER mail SET (on_disconnect = keep)",
                      "SELECT proxy IS NULL FROM queue.q_mail WHERE state = 'leased'"),
    "max_running": ("QUEUE ALTER mail SET (max_running = 5)",
                    "SELECT cardinality(running) = 1 FROM queue.n1_gate"),
    "expires": ("QUEUE ALTER mail SET (expires = '1 h')",
                "SELECT expires_at IS NOT NULL FROM queue.q_mail"),
}


@pytest.mark.parametrize("option", ALTERS)
def test_altered_by_another_proxy(warm, option):
    one, two = warm(), warm()
    alter, holds = ALTERS[option]
    tag(two.c, alter)
    tag(one.c, PUSH)
    job = take(one.c)
    assert one.direct.execute(holds).fetchall() == [(True,)]
    assert tag(one.c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    # and what is as it was is so with the old text
    tag(two.c, alter.replace("SET (", "RESET (").split(" =")[0] + ")")
    one.warm()
    two.warm()


def test_archive_comes(warm):
    one, two = warm(), warm()
    token = take_one(one)
    tag(two.c, "QUEUE ALTER mail SET (retain_done = '1 h')")
    assert tag(one.c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    assert one.direct.execute("SELECT count(*) FROM queue.a_mail").fetchone() == (1,)


def test_paused(warm):
    one, two = warm(), warm()
    tag(one.c, PUSH)
    take(one.c)
    tag(one.c, PUSH)
    tag(two.c, "QUEUE PAUSE mail")
    assert not one.c.rows("QUEUE TAKE mail")
    tag(two.c, "QUEUE PAUSE mail PUSH")
    assert error(one.c, PUSH).sqlstate == "QB006"
    tag(two.c, "QUEUE RESUME mail")
    assert tag(one.c, PUSH) == "INSERT 0 1" and take(one.c)["queue"] == "mail"


@pytest.mark.parametrize("payload", ["jsonb", "text", "bytea"])
def test_dropped_and_made_anew(warm, payload):
    one, two = warm(), warm()
    token = take_one(one)
    tag(two.c, "QUEUE DROP mail")
    assert error(one.c, PUSH).sqlstate == "42P01"
    assert error(one.c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
    tag(two.c, "QUEUE CREATE mail WITH (payload = %s)" % payload)
    value = "E'\\\\x6869'" if payload == "bytea" else "'[1]'"
    assert tag(one.c, "QUEUE PUSH mail %s" % value) == "INSERT 0 1"
    job = take(one.c)
    assert job["payload"] == ("\\x6869" if payload == "bytea" else "[1]") and job["token"].startswith("2-")
    assert error(one.c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"
    assert tag(one.c, "QUEUE DONE '%s'" % job["token"]) == "UPDATE 1"
    one.warm("QUEUE PUSH mail %s" % value)


def test_rights_are_gone(qbouncer, db, direct, warm):
    w = warm()
    tag(w.c, "QUEUE GRANT ALL ON mail TO other")
    other = Warm.__new__(Warm)
    other.proxy, other.db, other.direct = w.proxy, db, direct
    other.c = w.proxy.wire(db, user="other")
    other.warm()
    token = take_one(other)
    tag(w.c, "QUEUE REVOKE ALL ON mail FROM other")
    for sql in (PUSH, "QUEUE TAKE mail", "QUEUE DONE '%s'" % token):
        assert error(other.c, sql).sqlstate == "42501", sql
    other.c.close()


def test_the_texts_are_the_same_in_every_session(warm):
    w = warm(" WITH (max_run = '1 day 2 hours', lease = '90 min')")
    sql = "SELECT l.push, l.take, l.usual, l.done FROM queue.queues AS c, queue._lone(c) AS l"
    usual = w.direct.execute(sql).fetchall()
    assert usual == w.direct.execute("SELECT push, take, usual, done FROM queue.lone").fetchall()
    w.direct.execute("SET intervalstyle = sql_standard; SET quote_all_identifiers = on; SET datestyle = German")
    assert w.direct.execute(sql).fetchall() == usual


def test_the_texts_are_kept(warm, db):
    """And nobody but the functions of the schema puts any there: who used the queue would run them."""
    w = warm()
    made = "SELECT count(*) FROM queue.lone AS k JOIN queue.queues AS c ON c.number = k.queue, queue._lone(c) AS l " \
        "WHERE (k.push, k.take, k.usual, k.done, k.async) IS NOT DISTINCT FROM (l.push, l.take, l.usual, l.done, l.async)"
    assert w.direct.execute(made).fetchone() == (1,)
    for sql in ("QUEUE ALTER mail SET (retain_done = '1 h', durability = async)", "QUEUE PAUSE mail", "QUEUE RESUME mail",
                "QUEUE ALTER mail SET (max_running = 3)"):
        tag(w.c, sql)
        assert w.direct.execute(made).fetchone() == (1,), sql
        assert w.direct.execute("SELECT done IS NULL, async FROM queue.lone").fetchone() == (True, True)
    with w.proxy.wire(db, user="other") as other:
        assert other.rows("SELECT count(*) AS n FROM queue.lone") == [{"n": "1"}]
        for sql in ("INSERT INTO queue.lone (queue, push, async) VALUES (7, 'SELECT 1', false)", "DELETE FROM queue.lone",
                    "UPDATE queue.lone SET push = 'SELECT 1'",
                    "SELECT queue._generate_lone(jsonb_populate_record(c, '{\"run\": \"sql\"}')) FROM queue.queues AS c"):
            assert error(other, sql).sqlstate == "42501", sql
    tag(w.c, "QUEUE DROP mail")
    assert w.direct.execute("SELECT count(*) FROM queue.lone").fetchone() == (0,)


def test_odd_names(qbouncer, db, direct):
    w = Warm(qbouncer, db, direct)
    for name in ("a\"b'c\\\\d%s@n@", "Ärger 1"):
        quoted = '"%s"' % name.replace('"', '""')
        tag(w.c, "QUEUE CREATE %s" % quoted)
        for _ in range(3):
            tag(w.c, "QUEUE PUSH %s '1'" % quoted)
        for _ in range(3):
            job = take(w.c, "QUEUE TAKE %s" % quoted)
            assert job["queue"] == name
            tag(w.c, "QUEUE DONE '%s'" % job["token"])
    w.c.close()


def test_the_end_of_one_that_others_wait_for_is_told_here(warm):
    """As the function does: nobody else's commit waits for a notification."""
    w = warm()
    token = take_one(w)
    tag(w.c, "QUEUE PUSH mail '2' AFTER '%s'" % token)
    told = []
    w.direct.add_notice_handler(lambda n: told.append((n.sqlstate, n.message_primary)))
    (text,) = w.direct.execute("SELECT done FROM queue.lone").fetchone()
    w.direct.execute("PREPARE done (int8, text) AS " + text)
    _, id, digits = token.split("-")
    assert w.direct.execute("EXECUTE done (%s, '%s')" % (id, digits)).fetchall() == [("mail",)]
    assert told == [("QB100", "mail")]
    assert take(w.c)["payload"] == "2"


def test_what_clients_do_wrong_leaves_the_texts(warm, db):
    w = warm()
    other = w.proxy.wire(db, user="other")
    for c, sql, state in ((w.c, "QUEUE PUSH mail '{'", "22P02"), (other, PUSH, "42501")):
        for _ in range(3):
            assert error(c, sql).sqlstate == state
            assert tag(w.c, PUSH) == "INSERT 0 1"
            assert w.ran("INSERT")
    other.close()


def test_what_becomes_due_is_found(warm):
    """By takes that have enough to do with what is ready."""
    w = warm()
    tag(w.c, "QUEUE PUSH mail '\"later\"' DELAY '300 ms'")
    tag(w.c, PUSH)
    lost = take(w.c, "QUEUE TAKE mail LEASE '200 ms'")

    def cycle():
        tag(w.c, PUSH)
        tag(w.c, PUSH)
        job = take(w.c)
        tag(w.c, "QUEUE DONE '%s'" % job["token"])
        return [r[0] for r in w.direct.execute("SELECT state FROM queue.q_mail WHERE payload = '\"later\"' OR id = %s ORDER BY id",
                                               (lost["id"],)).fetchall()]
    wait_for(lambda: set(cycle()) == {"ready"}, "both are ready again")
    seen = set()
    while w.direct.execute("SELECT count(*) FROM queue.q_mail").fetchone()[0] > 0:
        job = take(w.c)
        seen.add((job["payload"], job["attempt"]))
        tag(w.c, "QUEUE DONE '%s'" % job["token"])
    assert ('"later"', "1") in seen and ('{"a": 1}', "2") in seen


def test_what_is_too_late_is_not_taken(warm):
    w = warm()
    tag(w.c, "QUEUE PUSH mail '\"late\"' EXPIRES '100 ms'")
    wait_for(lambda: w.direct.execute("SELECT expires_at < clock_timestamp() FROM queue.q_mail").fetchone() == (True,), "its time is over")
    tag(w.c, PUSH)
    assert take(w.c)["payload"] == '{"a": 1}'
    assert w.direct.execute("SELECT count(*) FROM queue.q_mail WHERE state = 'ready'").fetchone() == (0,)


def test_a_higher_priority_goes_first(warm):
    """One that came past the proxy."""
    w = warm()
    tag(w.c, PUSH)
    w.direct.execute("SELECT queue.push('mail', '\"first\"', priority => 5)")
    wait_for(lambda: take(w.c)["payload"] == '"first"' or tag(w.c, PUSH) and False, "it is taken")


def test_what_is_given_back_keeps_its_place(warm):
    w = warm()
    for i in range(3):
        tag(w.c, "QUEUE PUSH mail '%d'" % i)
    first = take(w.c)
    assert [take(w.c)["payload"]] == ["1"]
    assert tag(w.c, "QUEUE RELEASE '%s'" % first["token"]) == "UPDATE 1"
    assert [take(w.c)["payload"] for _ in range(2)] == ["0", "2"]
