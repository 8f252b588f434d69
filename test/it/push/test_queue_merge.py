"""Statements of many clients that become one.

A session that locks the table of the queue holds the first batch up, so that what comes meanwhile
gathers in the next one.
"""

import pytest

from pgwire import types
from queuetest import error, q, qproxy, results, send_all, tag  # noqa: F401


@pytest.fixture
def held(q, direct):
    """Holds all statements on the queue up; the function that it gives lets them go."""
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    yield direct.rollback
    direct.rollback()


def test_one_bad_payload_is_alone(qproxy, db, q, held):
    good = ["QUEUE PUSH mail '%d'" % n for n in range(8)]
    wires = send_all(qproxy, db, good[:4] + ["QUEUE PUSH mail '{bad'", "QUEUE PUSH mail NULL"] + good[4:])
    held()
    assert results(wires) == ["INSERT 0 1"] * 4 + ["22P02", "22004"] + ["INSERT 0 1"] * 4
    assert sorted(r["payload"] for r in q.rows("QUEUE TAKE mail LIMIT 100")) == [str(n) for n in range(8)]


def test_ids_go_to_their_clients(qproxy, db, q, held):
    wires = send_all(qproxy, db, ["QUEUE PUSH mail '%d', '%d' RETURNING ID" % (n, n + 100) for n in range(10)])
    held()
    ids = [[m.text_row[0] for m in w.until("Z") if m.type == "D"] for w in wires]
    by_id = {r["id"]: r["payload"] for r in q.rows("QUEUE TAKE mail LIMIT 100")}
    assert [[by_id[i] for i in pair] for pair in ids] == [[str(n), str(n + 100)] for n in range(10)]


def test_takes_share_what_is_there(qproxy, db, q, held):
    wires = send_all(qproxy, db, ["QUEUE TAKE mail LIMIT 2"] * 4)
    pusher = send_all(qproxy, db, ["QUEUE PUSH mail '1', '2', '3'"])
    held()
    results(pusher)
    first = sum((m.type == "D") for w in wires for m in w.until("Z"))
    rest = len(q.rows("QUEUE TAKE mail LIMIT 10"))
    assert first + rest == 3


def test_the_same_token_twice(qproxy, db, q, direct):
    tag(q, "QUEUE PUSH mail '1', '2'")
    one, two = [r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 2")]
    stale = one[:-1] + ("0" if one[-1] != "0" else "1")
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    first = send_all(qproxy, db, ["QUEUE DONE '%s'" % two])
    wires = send_all(qproxy, db, ["QUEUE DONE '%s', '%s'" % (one, one), "QUEUE DONE '%s'" % one])
    stranger = send_all(qproxy, db, ["QUEUE DONE '%s'" % stale])
    direct.rollback()
    assert results(first) == ["UPDATE 1"]
    # a repeated DONE is no error within the memory of the proxy, here within one batch or cut in two
    assert results(wires)[0] == "UPDATE 1"
    assert results(stranger) == ["QB001"]
    assert q.rows("QUEUE TAKE mail LIMIT 10") == []


def test_many_tokens_each_twice(q):
    tag(q, "QUEUE PUSH mail SELECT i FROM generate_series(1, 5000) AS i")
    tokens = ["'%s'" % r["token"] for r in q.rows("QUEUE TAKE mail LIMIT 5000")]
    assert tag(q, "QUEUE DONE " + ", ".join(tokens + tokens[::-1])) == "UPDATE 5000"
    assert q.rows("QUEUE STATS mail")[0]["leased"] == "0"


def test_clients_that_leave_take_nothing_along(qproxy, db, q, held):
    wires = send_all(qproxy, db, ["QUEUE TAKE mail"] * 3)
    pusher = send_all(qproxy, db, ["QUEUE PUSH mail '1', '2'"])
    for w in wires[:2]:
        w.close()
    held()
    assert results(pusher) == ["INSERT 0 2"]
    taken = [m.text_row[4] for m in wires[2].until("Z") if m.type == "D"]
    # what the first two got before they left is given back, so that waiting finds it
    while len(taken) < 2:
        rows = q.rows("QUEUE TAKE mail LIMIT 10 WAIT '10s'")
        assert rows, taken
        taken += [r["payload"] for r in rows]
    assert sorted(taken) == ["1", "2"]


# --- keys and groups --------------------------------------------------------------------------------

HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT pg_try_advisory_xact_lock_shared(17) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER hold BEFORE INSERT ON queue.q_mail FOR EACH ROW WHEN (NEW.payload = '"first"') EXECUTE FUNCTION hold();
SELECT pg_advisory_lock(17)
"""


@pytest.mark.parametrize("policy, answers, left", [
    ("IGNORE", ["INSERT 0 0"] * 3 + ["INSERT 0 1"] * 3, "0xy"),
    ("RERUN", ["INSERT 0 0"] * 3 + ["INSERT 0 1"] * 3, "0xy"),
    ("REPLACE", ["INSERT 0 1"] * 6, "1xy"),
    ("ERROR", ["23505"] * 3 + ["INSERT 0 1"] * 3, "0xy")])
def test_keys_are_merged(qproxy, db, q, direct, policy, answers, left):
    """The answers are those of as many statements, in some order."""
    tag(q, "QUEUE PUSH mail '0' KEY 'old'")
    direct.execute(HOLD)
    dup = " ON DUPLICATE " + policy
    wires = send_all(qproxy, db, ["QUEUE PUSH mail '\"first\"' KEY 'first'" + dup])
    wires += send_all(qproxy, db, [sql + dup for sql in [
        "QUEUE PUSH mail '1' KEY 'old'", "QUEUE PUSH mail '\"x\"' KEY 'new'", "QUEUE PUSH mail '\"x\"' KEY 'new'",
        "QUEUE PUSH mail '\"x\"' KEY 'new'", "QUEUE PUSH mail '\"y\"' KEY 'g' GROUP 'g'", "QUEUE PUSH mail '{' KEY 'bad'",
        "QUEUE PUSH mail '1', '2' KEY 'two'", "QUEUE PUSH mail '1'", "QUEUE PUSH mail '1' KEY '%s'" % ("x" * 1001)]])
    direct.execute("SELECT pg_advisory_unlock(17)")
    got = results(wires)
    assert sorted(got[:6]) == sorted(answers)
    assert got[6:] == ["22P02", "22023", "22023", "22001"]
    rows = q.rows("SELECT payload FROM queue.q_mail WHERE payload <> '\"first\"' ORDER BY payload")
    assert "".join(r["payload"].strip('"') for r in rows) in (left, "xy" + left[0])


def test_groups_are_merged(qproxy, db, q, direct):
    direct.execute(HOLD)
    wires = send_all(qproxy, db, ["QUEUE PUSH mail '\"first\"' GROUP 'first'"])
    wires += send_all(qproxy, db, ["QUEUE PUSH mail '%d', '%d' GROUP 'g%d'" % (n, n + 10, n % 3) for n in range(9)])
    direct.execute("SELECT pg_advisory_unlock(17)")
    assert results(wires) == ["INSERT 0 1"] + ["INSERT 0 2"] * 9
    rows = q.rows("SELECT payload, \"group\", state FROM queue.q_mail WHERE \"group\" ~ 'g' ORDER BY id")
    # the two of one statement stand together, and the first of each group is ready
    assert all(int(b["payload"]) == int(a["payload"]) + 10 for a, b in zip(rows[::2], rows[1::2]))
    assert sorted(r["group"] for r in rows if r["state"] == "ready") == ["g0", "g1", "g2"]
    assert all(next(r for r in rows if r["group"] == g)["state"] == "ready" for g in ("g0", "g1", "g2"))


@pytest.mark.parametrize("order", ["1", "none"])
def test_an_index_of_the_owners_is_in_the_way_of_one(qproxy, db, q, direct, order):
    """Who pushes into its way is told of it, and nobody else."""
    tag(q, "QUEUE ALTER mail SET (max_running_per_group = %s)" % order)
    tag(q, "QUEUE PUSH mail '3'")
    direct.execute("CREATE UNIQUE INDEX of_the_owner ON queue.q_mail ((payload::text))")
    direct.execute(HOLD)
    wires = send_all(qproxy, db, ["QUEUE PUSH mail '\"first\"' GROUP 'first'"])
    wires += send_all(qproxy, db, ["QUEUE PUSH mail '%d' GROUP 'g%d'" % (n, n % 3) for n in range(9)])
    direct.execute("SELECT pg_advisory_unlock(17)")
    assert results(wires) == ["INSERT 0 1"] * 4 + ["23505"] + ["INSERT 0 1"] * 5
    rows = q.rows("SELECT payload FROM queue.q_mail ORDER BY payload")
    assert sorted(r["payload"] for r in rows) == sorted(['"first"'] + [str(n) for n in range(9)])
    e = error(q, "QUEUE PUSH mail '3' GROUP 'g'")
    assert "of_the_owner" in e.message and error(q, "QUEUE PUSH mail '3' KEY 'k'").message == e.message


def test_returning_ids_of_keys(qproxy, db, q):
    for _ in range(3):
        wires = [qproxy.wire(db).hold().parse("", "QUEUE PUSH mail $1 KEY $2 RETURNING ID").bind("", "", [str(n), "k%d" % (n % 4)],
                                                                                              results=[n % 2])
                 .execute().sync().push() for n in range(8)]
        got = []
        for n, w in enumerate(wires):
            messages = w.until("Z")
            assert [m.tag for m in messages if m.type == "C"] == ["INSERT 0 1"]
            (row,) = [m.row for m in messages if m.type == "D"]
            got.append(int.from_bytes(row[0], "big") if n % 2 else int(row[0]))
            w.close()
        assert got[:4] == got[4:] and len(set(got)) == 4


def test_who_waits_for_a_key_waits_alone(qproxy, db, q, direct):
    """Somebody's transaction has pushed the key and does not end."""
    direct.autocommit = False
    direct.execute("SELECT queue.push('mail', '1', key => 'held')")
    direct.execute("SELECT queue.push('mail', '1', \"group\" => 'held')")
    waiting = send_all(qproxy, db, ["QUEUE PUSH mail '2' KEY 'held'", "QUEUE PUSH mail '3' KEY 'held' ON DUPLICATE REPLACE",
                                    "QUEUE PUSH mail '4' GROUP 'held'"])
    for n in range(5):
        with qproxy.wire(db) as w:
            assert tag(w, "QUEUE PUSH mail '5' KEY 'k%d' GROUP 'g%d'" % (n, n)) == "INSERT 0 1"
    assert all(w.silent(0.01) for w in waiting)
    direct.commit()
    assert results(waiting) == ["INSERT 0 0", "INSERT 0 1", "INSERT 0 1"]
    assert q.rows("SELECT payload, state FROM queue.q_mail WHERE \"group\" = 'held' ORDER BY id") == [
        {"payload": "1", "state": "ready"}, {"payload": "4", "state": "blocked"}]


def test_each_push_has_its_own(qproxy, db, q):
    """Pushes that arrive together and say different things."""
    said = ["", " ATTEMPTS 2", " ATTEMPTS 3", " EXPIRES '1 hour'", " EXPIRES 7200"]
    wires = [qproxy.wire(db) for _ in range(20)]
    for n, w in enumerate(wires):
        w.query("QUEUE PUSH mail '%d'%s RETURNING ID" % (n, said[n % 5]))
    ids = [next(m for m in w.until("Z") if m.type == "D").text_row[0] for w in wires]
    for n, number in enumerate(ids):
        assert q.rows("SELECT payload, max_attempts AS a, extract(hour FROM expires_at - pushed_at + '1 min') AS h "
                      "FROM queue.q_mail WHERE id = %s" % number) == [
            {"payload": str(n), "a": [None, "2", "3", None, None][n % 5], "h": [None, None, None, "1", "2"][n % 5]}]
    for w in wires:
        w.close()


def extended(wire, sql, end="S"):
    wire.parse("", sql).bind().execute().send(end)


@pytest.mark.parametrize("first, got", [("SELECT 1", "12DCZ"), ("QUEUE TAKE seen", "12DCZ"), ("BEGIN", "12CZ")])
def test_an_answer_is_not_kept_back_by_the_next_statement(qproxy, db, q, direct, first, got):
    """What is behind a Sync of a pipeline may wait for long: what was before it is shown at once."""
    tag(q, "QUEUE CREATE seen")
    tag(q, "QUEUE PUSH seen '1'")
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    with qproxy.wire(db) as c:
        c.hold()
        extended(c, first)
        extended(c, "QUEUE PUSH mail '1'")
        c.push()
        assert types(c.until("Z")) == got
        direct.rollback()
        assert types(c.until("Z")) == "12CZ"


def test_an_answer_is_not_kept_back_behind_a_flush(qproxy, db, q, direct):
    tag(q, "QUEUE CREATE seen")
    tag(q, "QUEUE PUSH seen '1'")
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    with qproxy.wire(db) as c:
        c.hold()
        extended(c, "QUEUE TAKE seen", "H")
        extended(c, "QUEUE PUSH mail '1'")
        c.push()
        assert types(c.until("C")) == "12DC"
        direct.rollback()
        assert types(c.until("Z")) == "12CZ"
