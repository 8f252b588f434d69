"""FORMAT of SQL jobs: what may be said. What comes of it: test/it/queue/test_queue_run_format.py."""

import json

import pytest


@pytest.fixture
def q(db):
    db.create("q", run="sql", retain_done="1 h")
    return db


@pytest.mark.parametrize("format, given", [
    ("xml", None), ("json", {"header": True}), (None, {"header": True}), ("csv", {"headr": True}), ("csv", {"header": "perhaps"}),
    ("csv", {"delimiter": ";;"}), ("csv", {"delimiter": "ä"}), ("csv", {"delimiter": ""}), ("csv", {"delimiter": "\n"}),
    ("csv", {"delimiter": '"'}), ("csv", {"null": "a,b"}), ("csv", {"null": None}), ("csv", {"delimiter": None}), ("csv", [1]), ("text", {"header": True}),
    ("csv", {"null": "x" * 31})])
def test_what_is_refused(q, format, given):
    q.fails("22023", "SELECT queue.run('q', 'SELECT 1', format => %s, format_with => %s)", format, json.dumps(given) if given is not None else None)


@pytest.mark.parametrize("given, want", [
    ("*", ["*"]), ("", []), ("a", ["a"]), ("(A, b)", ["a", "b"]), ('"B, ""c""", d', ['B, "c"', "d"]), (["B c", "d"], ["B c", "d"]), ([], [])])
def test_columns_to_quote(q, given, want):
    assert q.value("SELECT queue._run_format('csv', %s) -> 'force_quote'", json.dumps({"force_quote": given})) == want


def test_columns_that_are_none(q):
    for given in ("a b", "a,", "(a", '"a', "a;b", "*, a"):
        q.fails("22023", "SELECT queue._run_format('csv', %s)", json.dumps({"force_quote": given}))
