"""BATCH of a push; AWAIT BATCH: until none of its jobs is unfinished."""

import pytest

from pgwire import cancel
from proxy import wait_for
from queuetest import BOOL, HEARTBEAT, INT8, TEXT, error, parked, q, qproxy, tag, take  # noqa: F401
from verbways import each_way, iv, nothing, t

NUMBERS = ["ready", "later", "leased", "blocked", "dead", "done", "cancelled", "expired"]
COLUMNS = [("batch", TEXT), ("queue", TEXT), ("ended", BOOL)] + [(n, INT8) for n in NUMBERS]


def with_batches(c, name):
    tag(c, "QUEUE ALTER %s SET (batches = true)" % name)
    tag(c, "QUEUE PUSH %s '1' BATCH 'x'" % name)


VERBS = {
    "push": (nothing, "QUEUE PUSH {} {} BATCH {}", lambda name, s: [t(name), t("1"), t("x")], "INSERT 0 1", None, None),
    "await batch": (with_batches, "QUEUE AWAIT BATCH {} ON {}", lambda name, s: [t("x"), t(name)], "SELECT 1", COLUMNS, None),
    "await batch, and wait": (with_batches, "QUEUE AWAIT BATCH {} ON {} WAIT {}",
                              lambda name, s: [t("nothing"), t(name), iv("5s", 5)], "SELECT 1", COLUMNS, None),
    "await batch in vain": (with_batches, "QUEUE AWAIT BATCH {} ON {} WAIT {}",
                            lambda name, s: [t("x"), t(name), iv("10ms", 0.01)], "SELECT 0", COLUMNS, None),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_way(q, verb):
    each_way(q, *VERBS[verb])


def numbers(row):
    return row["ended"], {n: row[n] for n in NUMBERS if row[n] not in (None, "0")}


def now(c, batch="x", queue="mail"):
    (row,) = c.rows("QUEUE AWAIT BATCH '%s' ON %s" % (batch, queue))
    return numbers(row)


def begin(w, batch="x", queue="mail"):
    w.query("QUEUE AWAIT BATCH '%s' ON %s WAIT '60s'" % (batch, queue))
    parked(w)


def answer(w):
    """The row's values from ended on; None: no row."""
    row = None
    for m in w.until("Z"):
        assert m.type != "E", m.fields
        if m.type == "D":
            row = m.text_row[2:]
    return row


@pytest.fixture
def batches(q):
    tag(q, "QUEUE ALTER mail SET (batches = true, retain_done = '1 h')")
    return q


def test_a_whole_import(qproxy, db, batches):
    """The last of them wakes who waits; others do not."""
    tag(batches, "QUEUE PUSH mail '1', '2', '3' BATCH 'x'")
    tag(batches, "QUEUE PUSH mail '4' BATCH 'y'")
    tag(batches, "QUEUE PUSH mail '5'")
    with qproxy.wire(db) as w:
        begin(w)
        tokens = [r["token"] for r in batches.rows("QUEUE TAKE mail LIMIT 5")]
        tag(batches, "QUEUE DONE '%s', '%s', '%s'" % (tokens[0], tokens[3], tokens[4]))
        parked(w)
        tag(batches, "QUEUE FAIL '%s' FINAL" % tokens[1])
        tag(batches, "BEGIN; SELECT 1")
        tag(batches, "QUEUE DONE '%s'" % tokens[2])
        parked(w)
        tag(batches, "COMMIT")
        assert answer(w) == ["t", "0", "0", "0", "0", "1", "2", "0", "0"]
        assert now(batches, "y") == ("t", {"done": "1"})


def test_not_committed_is_not_there(qproxy, db, batches):
    with qproxy.wire(db) as w:
        tag(w, "BEGIN; SELECT 1")
        tag(w, "QUEUE PUSH mail '1' BATCH 'x'")
        assert now(batches) == ("t", {})
        tag(w, "SAVEPOINT a")
        tag(w, "QUEUE PUSH mail '2' BATCH 'x'")
        tag(w, "ROLLBACK TO a")
        tag(w, "COMMIT")
        assert now(batches) == ("f", {"ready": "1"})


def test_ends_past_the_proxy(qbouncer, db, direct):
    """Through another proxy, and by plain SQL."""
    one, two = qbouncer(queue_heartbeat=HEARTBEAT, queue_await_poll="250ms"), qbouncer()
    with one.wire(db) as w, two.wire(db) as c:
        tag(c, "QUEUE CREATE mail WITH (batches = true)")
        for end in ("two", "direct"):
            tag(c, "QUEUE PUSH mail '1' BATCH 'x'")
            begin(w)
            if end == "two":
                tag(c, "QUEUE DONE '%s'" % take(c)["token"])
            else:
                direct.execute("SELECT queue.done((SELECT token FROM queue.take('mail')))")
            assert answer(w)[0] == "t"


def test_merged_pushes(qproxy, db, batches):
    """Those of one batch are one statement, as pushes without are."""
    wires = [qproxy.wire(db) for _ in range(8)]
    for n, w in enumerate(wires * 5):
        w.query("QUEUE PUSH mail '%d' BATCH '%s'" % (n, "xy"[n % 2]))
    for w in wires * 5:
        w.until("Z")
    assert now(batches) == now(batches, "y") == ("f", {"ready": "20"})
    for w in wires:
        w.close()


def test_all_kinds_of_pushes(batches):
    for sql in ("QUEUE PUSH mail '1' BATCH 'x' KEY 'k'", "QUEUE PUSH mail '1' BATCH 'x' GROUP 'g' PRIORITY 3",
                "QUEUE PUSH mail '1' BATCH 'x' RETURNING JOB", "QUEUE PUSH mail '1' BATCH ('x' || '') DELAY '1 h'",
                "QUEUE PUSH mail (payload, batch) SELECT '1', 'x' FROM generate_series(1, 3)",
                "QUEUE PUSH mail (payload, batch, key) VALUES ('1', 'x', 'l')",
                "QUEUE PUSH mail '1' BATCH 'x' EXPIRES '1 h' ATTEMPTS 3 HEADERS '{\"a\": 1}'"):
        assert tag(batches, sql).startswith("INSERT 0 "), sql
    batches.query("QUEUE PUSH mail (payload, batch) FROM STDIN")
    batches.until("G")
    batches.send("d", b"1\tx\n2\tx\n")
    batches.send("c", b"")
    batches.until("Z")
    assert now(batches) == ("f", {"ready": "10", "later": "1"})
    token = take(batches)["token"]
    tag(batches, "QUEUE DONE '%s' THEN PUSH mail '2' BATCH 'x'" % token)
    assert now(batches) == ("f", {"ready": "10", "later": "1", "done": "1"})


def test_the_ways_out(qproxy, db, batches):
    tag(batches, "QUEUE PUSH mail '1' BATCH 'x'")
    with qproxy.wire(db) as w:
        begin(w)
        (row,) = qproxy.console("SHOW WAITERS")
        assert (row["state"], row["queues"]) == ("awaiting", "mail")
        cancel(w)
        assert [m.fields["C"] for m in w.until("Z") if m.type == "E"] == ["57014"]
        w.query("QUEUE AWAIT BATCH 'x' ON mail WAIT '50ms'")
        assert answer(w) is None
        begin(w)
        w.reset()
        wait_for(lambda: qproxy.console("SHOW WAITERS") == [], "the waiter to go")


def test_errors(q):
    for sql, state in (("QUEUE AWAIT BATCH 'x' ON mail", "55000"), ("QUEUE AWAIT BATCH 'x'", "42601"),
                       ("QUEUE AWAIT BATCH NULL ON mail", "22004"), ("QUEUE AWAIT BATCH 'x' ON nosuch", "42P01"),
                       ("QUEUE PUSH mail '1' BATCH", "42601"), ("QUEUE PUSH mail '1' BATCH 'x' BATCH 'y'", "42601"),
                       ("QUEUE PUSH mail '1' BATCH '%s'" % ("x" * 1001), "22001"),
                       ("QUEUE AWAIT BATCH 'x' KEY 'k' ON mail", "42601")):
        assert error(q, sql).sqlstate == state, sql
    assert "SET (batches = true)" in error(q, "QUEUE AWAIT BATCH 'x' ON mail").fields["H"]
    assert tag(q, "QUEUE PUSH mail '1' BATCH NULL") == "INSERT 0 1"


def test_rights(qproxy, db, batches):
    with qproxy.wire(db, user="other") as w:
        assert error(w, "QUEUE AWAIT BATCH 'x' ON mail").sqlstate == "42501"
        tag(batches, "QUEUE GRANT PUSH, AWAIT ON mail TO other")
        tag(w, "QUEUE PUSH mail '1' BATCH 'x'")
        assert now(w) == ("f", {"ready": "1"})


def test_the_queue_is_dropped(qproxy, db, batches):
    tag(batches, "QUEUE PUSH mail '1' BATCH 'x'")
    with qproxy.wire(db) as w:
        begin(w)
        tag(batches, "QUEUE DROP mail")
        assert [m.fields["C"] for m in w.until("Z") if m.type == "E"] == ["42P01"]
