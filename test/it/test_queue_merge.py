"""Statements of many clients that become one.

A session that locks the table of the queue holds the first batch up, so that what comes meanwhile
gathers in the next one.
"""

import pytest

from pgwire import PgError
from queuetest import q, qproxy, tag  # noqa: F401


@pytest.fixture
def held(q, direct):
    """Holds all statements on the queue up; the function that it gives lets them go."""
    direct.autocommit = False
    direct.execute("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
    yield direct.rollback
    direct.rollback()


def send_all(qproxy, db, statements):
    wires = []
    for sql in statements:
        w = qproxy.wire(db)
        w.query(sql)
        wires.append(w)
    return wires


def results(wires):
    """Tag or SQLSTATE of each."""
    got = []
    for w in wires:
        messages = w.until("Z")
        errors = [m for m in messages if m.type == "E"]
        got.append(PgError(errors[0]).sqlstate if errors else [m.tag for m in messages if m.type == "C"][0])
    return got


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
