"""Jobs that a transaction has changed are passed over by takes; when it is rolled back they are first again."""

import pytest

from queuetest import parked, q, qproxy, tag, take  # noqa: F401

CHANGES = {policy: "QUEUE PUSH mail '9' KEY 'k' ON DUPLICATE " + policy for policy in ("REPLACE", "RERUN")}


@pytest.fixture
def other(q, qproxy, db):
    with qproxy.wire(db) as w:
        yield w


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_first_again(q, other, change, part):
    c = q
    tag(c, "QUEUE PUSH mail '1' KEY 'k'")
    tag(c, "QUEUE PUSH mail '2', '3'")
    tag(c, "BEGIN")
    tag(c, "SAVEPOINT s")
    tag(c, CHANGES[change])
    assert take(other, "QUEUE TAKE mail")["payload"] == "2"
    assert take(other, "QUEUE TAKE mail")["payload"] == "3"
    tag(c, "ROLLBACK TO s" if part else "ROLLBACK")
    if part:
        tag(c, "COMMIT")
    tag(c, "QUEUE PUSH mail '4'")
    assert take(other, "QUEUE TAKE mail")["payload"] == "1"


@pytest.mark.parametrize("change", CHANGES)
def test_who_waits_is_told(q, other, change):
    c, w = q, other
    tag(c, "QUEUE PUSH mail '1' KEY 'k'")
    tag(c, "BEGIN")
    tag(c, CHANGES[change])
    w.query("QUEUE TAKE mail WAIT '60s'")
    parked(w)
    tag(c, "ROLLBACK")
    assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["1"]


@pytest.mark.parametrize("result", ["", " RESULT '{}'"])
def test_done_of_others_does_not_wait(q, other, qproxy, db, result):
    """A transaction that is not over cancels a job: its DONE waits for that, and nobody else's."""
    tag(q, "QUEUE PUSH mail '1', '2', '3'")
    with qproxy.wire(db) as worker:
        first, second, third = (take(worker, "QUEUE TAKE mail") for _ in range(3))
        tag(q, "BEGIN")
        tag(q, f"QUEUE CANCEL '{first['token'].rsplit('-', 1)[0]}'")
        other.query(f"QUEUE DONE '{first['token']}'{result}")
        for job in (second, third):
            assert tag(worker, f"QUEUE DONE '{job['token']}'{result}") == "UPDATE 1"
        tag(q, "COMMIT")
        assert [m.fields["C"] for m in other.until("Z") if m.type == "E"] == ["QB002"]
