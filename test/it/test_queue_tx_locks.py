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
