"""More clients than may rest do not read their deliveries, at one proxy, at two, and at two processes of one."""

import pytest

from proxy import wait_for
from pgwire import PgError, Wire
from queuetest import tag
from slowreader import SIZE, STUCK

EVENTS = 20
NAMES = "abcdef"
TOO_MUCH = "the answers that are kept for clients are larger than queue_answers_max (8 MB)"
SETTINGS = {"queue_pool_size": 4, "queue_answers_max": "8MB"}
TAKE = "QUEUE TAKE s FOR %s LIMIT 20"


@pytest.fixture(params=["one", "two", "processes"])
def proxies(request, qbouncer, freed_at_once):
    """Where who is slow goes, and the others."""
    first = qbouncer(**SETTINGS, **({"processes": 2} if request.param == "processes" else {}))
    yield first, qbouncer(**SETTINGS) if request.param == "two" else first


def test_nobody_reads(proxies, db):
    there, others = proxies
    with others.wire(db) as c:
        tag(c, "QUEUE CREATE s WITH (kind = stream, payload = text)")
        tag(c, "QUEUE CREATE mail")
        for name in NAMES:
            tag(c, "QUEUE SUBSCRIBE %s TO s" % name)
        tag(c, "QUEUE PUSH s SELECT repeat('x', %d) FROM generate_series(1, %d)" % (SIZE, EVENTS))
        before = there.rss_kib()
        slow = []
        for name in NAMES:
            slow.append(Wire(there.port, rcvbuf=4096))
            slow[-1].startup(user="app", database=db)
            slow[-1].query(TAKE % name)
        wait_for(lambda: len(c.rows(STUCK)) >= 2, "two that rest")
        for _ in range(20):
            assert tag(c, "QUEUE PUSH mail '1'") == "INSERT 0 1"
            assert len(c.rows("QUEUE TAKE mail")) == 1
        assert there.peak_kib() - before < 50_000   # all of them are 120 MB
        for name, w in zip(NAMES, slow):
            messages = w.until("Z")
            rows = [m.row for m in messages if m.type == "D"]
            error = [PgError(m) for m in messages if m.type == "E"]
            if error:
                assert [(e.sqlstate, e.message) for e in error] == [("53000", TOO_MUCH)]
            else:
                assert [int(r[0]) for r in rows] == list(range(1, EVENTS + 1))
                assert tag(w, "QUEUE DONE '%s'" % rows[0][1].decode()) == "UPDATE 1"
        for name, w in zip(NAMES, slow):
            rows = c.rows(TAKE % name)
            assert {r["attempt"] for r in rows} <= {"1"} and len(rows) in (0, EVENTS)
            if rows:
                assert tag(c, "QUEUE DONE '%s'" % rows[0]["token"]) == "UPDATE 1"
            assert c.rows(TAKE % name) == []
            w.close()
