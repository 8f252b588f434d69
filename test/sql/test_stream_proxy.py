"""Deliveries and the proxy that has them out: when it is gone they come again at once."""

import pytest

from test_stream import done, make, put, take

OURS, GONE = 4711, 4712


def take_by(session, proxy, sub="a", **more):
    session.rows("SELECT set_config('qbouncer.proxy', %s, false)", "" if proxy is None else str(proxy))
    return take(session, sub, **more)[0]


def orphans(session, here=(OURS,)):
    return session.column("SELECT * FROM queue._orphans(%s, '{}')", list(here))


def proxies(db):
    return db.rows("SELECT u.name, d.proxy, d.attempt, d.error FROM queue.deliveries AS d JOIN queue.subscriptions AS u"
                   " ON u.number = d.sub ORDER BY 1")


def test_what_a_dead_proxy_had_out(db):
    make(db, "a", "b", "c", "d")
    put(db, 1)
    ours, gone = take_by(db, OURS, "a"), take_by(db, GONE, "b")
    take_by(db, None, "c")
    take_by(db, -GONE, "d")
    assert proxies(db) == [("a", OURS, 1, None), ("b", GONE, 1, None), ("c", None, 1, None), ("d", -GONE, 1, None)]
    assert orphans(db) == ["s"]
    assert proxies(db) == [("a", OURS, 1, None), ("b", None, 1, "worker disconnected"), ("c", None, 1, None),
                           ("d", None, 1, "worker disconnected")]
    assert orphans(db) == []
    assert take(db, "b")[1] == [1] and take(db, "a")[1] == [] and take(db, "c")[1] == []
    db.fails("QB001", "SELECT queue.done(%s)", gone)
    assert done(db, ours) == ["s"]


def test_two_in_a_row_wait(db):
    """The first loss is free, as of jobs; a batch that takes its proxies along does not take all of them within a second."""
    make(db, "a")
    put(db, 1)
    take_by(db, GONE)
    orphans(db)
    take_by(db, GONE)
    orphans(db)
    assert db.row("SELECT attempt, lease_until > clock_timestamp() FROM queue.deliveries") == (2, True)
    assert take(db)[1] == []


@pytest.mark.parametrize("end", ["fail", "release", "extend", "done"])
def test_what_was_ended_is_nobodys(db, end):
    make(db, "a")
    put(db, 1)
    token = take_by(db, GONE)
    db.rows("SELECT queue.%s(%%s)" % end, token)
    before = proxies(db)
    assert orphans(db) == (["s"] if end == "extend" else [])
    assert end == "extend" or proxies(db) == before


def test_own(db):
    make(db, "a", "b")
    put(db, 1)
    a, b = take_by(db, None, "a"), take_by(db, GONE, "b")
    stale = a[:-4] + ("0000" if a[-4:] != "0000" else "1111")
    db.create("q")
    db.push("q", "1")
    job = db.take("q")[0]["token"]
    db.rows("SELECT queue._own(%s, %s)", [a, job, stale], OURS)
    db.rows("SELECT queue._own(%s, NULL)", [b])
    assert [p[:2] for p in proxies(db)] == [("a", OURS), ("b", None)]
    assert db.value("SELECT proxy FROM queue.q_q") == OURS
    db.rows("SELECT queue._own(%s, %s)", [stale], GONE)
    assert ("b", None) == proxies(db)[1][:2]


def test_only_those_of_the_callers_subscriptions(db):
    make(db, "a")
    put(db, 1)
    token = take_by(db, GONE)
    bob = db.connect("bob")
    assert orphans(bob) == []
    bob.rows("SELECT queue._own(%s, 5)", [token])
    assert proxies(db) == [("a", GONE, 1, None)]
    assert orphans(db) == ["s"]


def test_what_is_locked_comes_later(db):
    """A DONE that is not committed is waited for by nobody."""
    make(db, "a", "b")
    put(db, 1)
    a, _ = take_by(db, GONE, "a"), take_by(db, GONE, "b")
    worker = db.connect()
    worker.rows("BEGIN")
    done(worker, a)
    assert orphans(db) == ["s", None]
    worker.rows("COMMIT")
    assert orphans(db) == []
    assert [p[0] for p in proxies(db)] == ["b"]


def test_a_proxy_that_has_come_since_the_look_began(db):
    """The list of those that are there is older than what it has out."""
    make(db, "a", "b")
    put(db, 1)
    proxy = db.connect()
    proxy.rows("SELECT pg_advisory_lock_shared(1902276469, 9)")
    take_by(db, 9, "a")
    look = "SELECT * FROM queue._orphaned_deliveries('{0}', 10)"
    assert db.row(look) == ([], False)
    take_by(db, GONE, "b")
    assert db.row(look) == (["s"], False)
    assert [p[:2] for p in proxies(db)] == [("a", 9), ("b", None)]


def test_a_lease_that_is_over_is_no_orphan(db):
    make(db, "a")
    put(db, 1)
    take_by(db, GONE, lease="1 ms")
    while not db.value("SELECT lease_until < clock_timestamp() FROM queue.deliveries"):
        pass
    assert orphans(db) == []
    assert take_by(db, OURS) and proxies(db)[0][1:3] == (OURS, 2)
