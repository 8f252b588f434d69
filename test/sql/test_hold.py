"""What the proxy does with leases that follow a connection: renewal, owner, orphans."""

import pytest

CLASS = 1902276469


@pytest.fixture
def q(db):
    db.create("q")
    return db


def take_as(session, proxy, queue="q", limit=1, **more):
    """A take by this proxy."""
    with session.conn.transaction():
        session.rows("SELECT set_config('qbouncer.proxy', %s, true)", str(proxy))
        return session.take(queue, limit, **more)


def renew(session, *tokens, lease="1 min"):
    return session.rows("SELECT token, state FROM queue._renew(%s::text[], %s::interval)", list(tokens), lease)


def orphans(session, *here):
    return session.column("SELECT queue._orphans(%s::int4[])", list(here))


def left(session, number, queue="q"):
    return session.value('SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 '
                         'FROM queue."q_%s" WHERE id = %%s' % queue, number)


# --- whose a lease is -----------------------------------------------------------------------------


def test_a_take_by_nobody(q):
    q.push("q", "1")
    q.take("q")
    assert q.job("q", 1)["proxy"] is None


@pytest.mark.parametrize("policy, held, owner", [
    ("auto", False, 7), ("release", False, 7), ("keep", False, None), ("keep", True, 7), ("auto", True, 7)])
@pytest.mark.parametrize("limit", [1, 2])
def test_owner(q, policy, held, owner, limit):
    q.rows("SELECT queue.alter('q', '{on_disconnect}', ARRAY[%s])", policy)
    q.push("q", "1", "2")
    assert len(take_as(q, -7 if held else 7, limit=limit)) == limit
    assert [q.job("q", n + 1)["proxy"] for n in range(limit)] == [owner] * limit


def test_the_next_take_owns_it(q):
    q.push("q", "1")
    token = take_as(q, 7)[0]["token"]
    q.rows("SELECT queue._release(ARRAY[%s], NULL, false)", token)
    q.take("q")
    assert q.job("q", 1)["proxy"] is None


def test_own(q):
    q.push("q", "1", "2", "3")
    a, b, c = [j["token"] for j in take_as(q, 7, limit=3)]
    q.done(b)
    q.rows("SELECT queue._own(ARRAY[%s, %s, '99-1-0123456789abcdef'], NULL)", a, b)
    assert [q.job("q", n)["proxy"] for n in (1, 3)] == [None, 7]
    q.rows("SELECT queue._own(ARRAY[%s, %s], 8)", a, c[:-1] + ("0" if c[-1] != "0" else "1"))
    assert [q.job("q", n)["proxy"] for n in (1, 3)] == [8, 7]


# --- renewal --------------------------------------------------------------------------------------


def test_renew(q):
    q.create("r")
    q.push("q", "1", "2")
    q.push("r", "3")
    tokens = [j["token"] for j in q.take(["q", "r"], 3, lease="10 s")]
    assert renew(q, *tokens, lease="1 h") == []
    assert all(3500 < left(q, n) <= 3600 for n in (1, 2)) and 3500 < left(q, 1, "r") <= 3600
    # never shorter
    assert renew(q, *tokens, lease="10 s") == []
    assert 3500 < left(q, 1) <= 3600


def test_renew_says_what_is_lost(q):
    q.push("q", *"123456")
    jobs = q.take("q", 6)
    kept, done, cancelled, released, again, dead = [j["token"] for j in jobs]
    q.done(done)
    q.rows("SELECT queue._cancel(ARRAY[%s], false)", cancelled)
    q.rows("SELECT queue._release(ARRAY[%s, %s], NULL, false)", released, again)
    q.rows("SELECT queue._fail(ARRAY[%s], 'no', NULL, true, false)", dead)
    q.rows("UPDATE queue.q_q SET priority = 9 WHERE id = %s", jobs[4]["id"])
    new = q.take("q")[0]["token"]
    got = renew(q, kept, done, cancelled, released, again, dead, new, "99-1-0123456789abcdef", lease="1 h")
    assert sorted(got) == sorted([(done, "lost"), (cancelled, "cancelled"), (released, "lost"), (again, "lost"),
                                  (dead, "lost")])
    assert left(q, jobs[0]["id"]) > 3500 and left(q, jobs[4]["id"]) > 3500
    assert left(q, jobs[2]["id"]) <= 300


def test_renew_brings_back_what_nobody_took(q):
    q.push("q", "1")
    token = q.take("q")[0]["token"]
    q.expire("q")
    assert renew(q, token) == []
    assert left(q, 1) > 50
    assert q.done(token) == ["q"]


def test_renew_does_not_wait(q):
    """The worker's own DONE is not committed yet."""
    q.push("q", "1", "2")
    a, b = [j["token"] for j in q.take("q", 2, lease="1 min")]
    worker = q.connect()
    with worker.conn.transaction():
        worker.done(a)
        q.rows("SET lock_timeout = '5s'")
        assert renew(q, a, b, lease="1 h") == []
        q.rows("SELECT queue._own(ARRAY[%s, %s], 5)", a, b)
        assert left(q, 1) < 60 and left(q, 2) > 3500
    assert renew(q, a, b) == [(a, "lost")]


def test_renew_without_the_right(q):
    """One queue's right was taken away: the others are renewed."""
    q.create("r")
    for name in "qr":
        q.rows("SELECT queue.grant(%s, '{take}', '{bob}')", name)
        q.push(name, "1")
    bob = q.connect("bob")
    a, b = [j["token"] for j in bob.take(["q", "r"], 2)]
    q.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    assert renew(bob, a, b, lease="1 h") == [(a, "lost")]
    bob.rows("SELECT queue._own(ARRAY[%s, %s], 5)", a, b)
    assert left(q, 1, "r") > 3500 and left(q, 1) < 301


# --- orphans --------------------------------------------------------------------------------------


def test_orphans_in_steps(db):
    """What was found does not wait for ten thousand queues; and of those that a role is new to no other is looked into."""
    for name in ("a", "b", "c"):
        db.create(name)
        db.push(name, "1")
        take_as(db, 77, name)
    step = "SELECT queue, next FROM queue._orphans_step('{}', '{b}', %s, %s, %s) WHERE queue IS NOT NULL OR next IS NOT NULL"
    db.rows("SELECT queue.grant('b', '{take}', '{bob}')")
    assert db.rows(step, ["b"], 0, 10000) == []     # his own: with the others
    assert [tuple(r) for r in db.connect("bob").rows(step, ["a", "b"], 0, 10000)] == [("b", None)]
    take_as(db, 77, "b")
    assert [tuple(r) for r in db.rows(step, None, 0, -1)] == [("a", None), (None, 1)]
    assert [tuple(r) for r in db.rows(step, None, 1, -1)] == [("b", None), (None, 2)]
    assert [tuple(r) for r in db.rows(step, None, 2, -1)] == [("c", None)]


def test_orphans_of_which_somebody_waits(db):
    """They come before all others."""
    for name in ("a", "b", "c"):
        db.create(name)
        db.push(name, "1")
        take_as(db, 77, name)
    step = "SELECT queue, next FROM queue._orphans_step('{}', '{}', NULL, %s, %s, %s) WHERE queue IS NOT NULL OR next IS NOT NULL"
    assert [tuple(r) for r in db.rows(step, 0, 10000, ["c", "b", "nothing"])] == [("b", None), ("c", None), ("a", None)]
    assert db.rows(step, 0, -1, ["b"])[0][0] is None
    assert all(queue is None for queue, _ in db.rows(step, 1, -1, ["b"]))


def test_those_of_which_somebody_waits_are_bounded_too(db):
    """When the time of a step is over they have their turn with all others."""
    for name in ("a", "b", "c"):
        db.create(name)
        db.push(name, "1")
        take_as(db, 77, name)
    assert [tuple(r) for r in db.rows("SELECT queue, next FROM queue._orphans_step('{}', '{}', NULL, 0, -1, '{b,c}')"
                                      " WHERE queue IS NOT NULL OR next IS NOT NULL")] == [("b", None), ("a", None), (None, 1)]


def test_orphans(q):
    q.create("r")
    q.push("q", *"12345")
    q.push("r", "6")
    gone = take_as(q, 1)[0]
    here = take_as(q, 2)[0]
    locked = take_as(q, 3)[0]
    nobody = q.take("q")[0]
    take_as(q, 1, "r")
    proxy = q.connect()
    proxy.rows("SELECT pg_advisory_lock_shared(%s, 3)", CLASS)
    assert sorted(orphans(q, 2)) == ["q", "r"]
    row = q.job("q", gone["id"])
    assert (row["state"], row["error"], row["failures"], row["token"]) == ("ready", "worker disconnected", 1, None)
    assert [q.job("q", j["id"])["state"] for j in (here, locked, nobody)] == ["leased"] * 3
    assert orphans(q, 2) == []
    q.fails("QB001", "SELECT queue._done(ARRAY[%s], false)", gone["token"])
    again = q.take("q")[0]
    assert (again["id"], again["attempt"]) == (gone["id"], 2)
    assert orphans(q, 2) == []
    proxy.conn.close()
    watch = q.connect()
    assert any(not watch.rows("SELECT FROM pg_locks WHERE classid = %s", CLASS) for _ in range(100000))
    assert orphans(q, 2) == ["q"]
    assert orphans(q) == ["q"]
    assert q.job("q", nobody["id"])["state"] == "leased"
    assert orphans(q) == []


def test_orphans_that_were_cancelled(q):
    q.push("q", "1")
    token = take_as(q, 1)[0]["token"]
    q.rows("SELECT queue._cancel(ARRAY[%s], false)", token)
    assert orphans(q) == []
    assert q.job("q", 1) is None


def test_orphans_that_somebody_has_locked(q):
    """What the dead proxy's connection is still doing is not waited for; again soon."""
    q.push("q", "1", "2")
    a, b = [j["token"] for j in take_as(q, 1, limit=2)]
    worker = q.connect()
    with worker.conn.transaction():
        worker.done(a)
        q.rows("SET lock_timeout = '5s'")
        assert orphans(q) == ["q", None]
    assert orphans(q) == []
    assert q.job("q", 1) is None and q.job("q", 2)["state"] == "ready"


@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])
def test_orphans_beside_a_queue_that_is_locked(q, mode):
    """Whole, as by VACUUM FULL or an ALTER that waits, or against changes: it holds up no other queue, and has its turn later."""
    for name in ("r", "s"):
        q.create(name)
    for name in ("q", "r", "s"):
        q.push(name, "1")
        take_as(q, 1, name)
    other = q.connect()
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.q_r IN %s MODE" % mode)
        assert sorted(orphans(q), key=str) == [None, "q", "s"]
        assert orphans(q) == [None]
    assert orphans(q) == ["r"]
    assert orphans(q) == []


def test_orphans_beside_a_queue_that_is_dropped(q):
    for name in ("r", "s"):
        q.create(name)
    for name in ("q", "r", "s"):
        q.push(name, "1")
        take_as(q, 1, name)
    other, looks = q.connect(), q.connect()
    other.rows("BEGIN")
    other.rows("SELECT queue.drop('r')")
    assert orphans(looks) == ["q", None, "s"]
    other.rows("COMMIT")
    assert orphans(looks) == []


def test_orphans_of_a_queue_whose_trigger_refuses(q):
    """Its error is told, and holds up no other queue."""
    q.create("r")
    for name in "qr":
        q.push(name, "1")
        take_as(q, 1, name)
    q.rows("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not that''; END'")
    q.rows("CREATE TRIGGER mine BEFORE UPDATE ON queue.q_q FOR EACH ROW EXECUTE FUNCTION fail()")
    assert sorted(orphans(q), key=str) == [None, "r"]
    assert any("not that" in n for n in q.notices)
    q.rows("DROP TRIGGER mine ON queue.q_q")
    assert orphans(q) == ["q"]


def test_orphans_beside_one_that_is_refused(q):
    """They are given back by one, and when one is refused the others are all the same; each once."""
    for name in "rst":
        q.create(name)
    for name in "qrst":
        q.push(name, "1", "2")
        take_as(q, 1, name)
    q.rows("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not that''; END'")
    q.rows("CREATE TRIGGER mine BEFORE UPDATE ON queue.q_s FOR EACH ROW EXECUTE FUNCTION fail()")
    look = "SELECT queue, next FROM queue._orphans_step('{}', '{}', NULL, 0, 10000) WHERE queue IS NOT NULL"
    assert sorted(q.rows(look), key=str) == [("q", None), ("r", None), ("s", 0), ("t", None)]
    assert [q.job(name, 1)["failures"] for name in "qrst"] == [1, 1, 0, 1]
    assert sum("not that" in n for n in q.notices) == 1
    assert q.rows(look) == [("s", 0)]


def test_orphans_of_many_queues(q):
    """More than are given back by one, one of them cancelled, and some of a proxy that is there."""
    names = ["m%02d" % n for n in range(25)]
    for name in names:
        q.create(name)
        q.push(name, "1", "2")
        take_as(q, 1, name)
        take_as(q, 2, name)
    number = q.value("SELECT number FROM queue.queues WHERE name = 'm07'")
    q.rows("SELECT queue.cancel(%s)", "%d-1" % number)
    proxy = q.connect()
    proxy.rows("SELECT pg_advisory_lock_shared(%s, 2)", CLASS)
    assert sorted(orphans(q)) == [name for name in names if name != "m07"]
    assert [[q.job(name, n)["state"] for n in (1, 2)] for name in names if name != "m07"] == [["ready", "leased"]] * 24
    assert q.job("m07", 1) is None and q.job("m07", 2)["state"] == "leased"
    assert orphans(q) == []


def test_a_trigger_that_refuses_is_told_once(q):
    """Not again with each look at what was left."""
    q.push("q", "1")
    take_as(q, 1)
    q.rows("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not that''; END'")
    q.rows("CREATE TRIGGER mine BEFORE UPDATE ON queue.q_q FOR EACH ROW EXECUTE FUNCTION fail()")
    look = "SELECT queue, next FROM queue._orphans_step('{}', '{}', %s, 0, 10000, '{q}') WHERE queue IS NOT NULL"
    for these, told in [(None, 1), ([], 1), ([], 1), (None, 2)]:
        assert set(q.rows(look, these)) == {("q", 0)}
        assert sum("not that" in n for n in q.notices) == told


def test_orphans_beside_deliveries_that_are_locked(q):
    """Those of streams are left, and hold up no queue."""
    q.push("q", "1")
    take_as(q, 1)
    other = q.connect()
    with other.conn.transaction():
        other.rows("LOCK TABLE queue.deliveries IN ACCESS EXCLUSIVE MODE")
        assert orphans(q) == [None, "q"]
        assert q.rows("SELECT queue, next FROM queue._orphans_step('{}', '{}', '{}', 0, 10000, ARRAY['']) WHERE queue IS NOT NULL"
                      ) == [("", 0)]
    assert orphans(q) == []


def test_a_proxy_that_comes_during_a_look(q):
    """What it has taken in a queue that the look has not come to is not given back."""
    for name in ("s", "r"):
        q.create(name)
    for name in ("q", "s", "r"):
        q.push(name, "1")
    take_as(q, 1)
    held = take_as(q, 1, "s")[0]["token"]
    worker = q.connect()
    worker.rows("BEGIN")
    worker.done(held)   # before what is locked is told, all that was found is given back
    q.rows("CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS "
           "'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'")
    q.rows("CREATE TRIGGER mine BEFORE UPDATE ON queue.q_q FOR EACH ROW EXECUTE FUNCTION waits()")
    q.rows("SELECT pg_advisory_lock(1)")
    looks = q.connect()
    look = looks.beside(orphans, looks)
    q.until_blocked(looks)
    proxy = q.connect()
    proxy.rows("SELECT pg_advisory_lock_shared(%s, 9)", CLASS)
    job = take_as(q, 9, "r")[0]
    q.rows("SELECT pg_advisory_unlock(1)")
    assert look.result() == ["q", None]
    worker.rows("COMMIT")
    assert q.job("r", job["id"])["state"] == "leased"
    # one beside it that is an orphan
    q.push("r", "2")
    take_as(q, 2, "r")
    assert orphans(q) == ["r"]
    assert [q.job("r", n)["state"] for n in (1, 2)] == ["leased", "ready"]


def test_a_look_keeps_no_locks_where_all_is_locked(q):
    q.push("q", "1")
    token = take_as(q, 1)[0]["token"]
    worker = q.connect()
    with worker.conn.transaction():
        worker.done(token)
        with q.conn.transaction():
            assert orphans(q) == [None]
            assert not q.rows("SELECT FROM pg_locks WHERE relation = 'queue.q_q'::regclass AND pid = pg_backend_pid()")


def test_orphans_of_queues_that_are_not_mine(q):
    q.create("r")
    for name in "qr":
        q.push(name, "1")
        take_as(q, 1, name)
    q.rows("SELECT queue.grant('r', '{take}', '{bob}')")
    bob = q.connect("bob")
    assert orphans(bob) == ["r"]
    assert q.job("q", 1)["state"] == "leased"


def test_orphans_of_queues_that_were_used(q):
    """By the proxy: those that the role owns, or has taken from."""
    for name in ("r", "s"):
        q.create(name)
        q.rows("SELECT queue.grant(%s, '{take}', '{bob}')", name)
    for name in "qrs":
        q.push(name, "1")
        take_as(q, 1, name)
    bob, root = q.connect("bob"), q.connect("postgres")
    assert bob.column("SELECT queue._orphans('{}', '{}')") == []
    assert bob.column("SELECT queue._orphans('{}', '{q,r}')") == ["r"]
    assert root.column("SELECT queue._orphans('{}', '{q,r,s}')") == []
    assert q.column("SELECT queue._orphans('{}', '{}')") == ["q", "s"]


def test_whose_lock_counts(q):
    """Of a role that takes, or makes queues, or was told to be a proxy's."""
    q.push("q", "1")
    take_as(q, 7)
    bob, mallory = q.connect("bob"), q.connect("mallory")
    for session in (bob, mallory):
        session.rows("SELECT pg_advisory_lock_shared(%s, 7)", CLASS)
    seen = "SELECT number, role FROM queue.proxies"
    assert q.rows(seen) == []
    for give, take in [("SELECT queue.grant('q', '{take}', '{bob}')", "SELECT queue.revoke('q', '{take}', '{bob}')"),
                       ("GRANT INSERT ON queue.queues TO bob", "REVOKE INSERT ON queue.queues FROM bob"),
                       ("GRANT INSERT ON queue.proxies TO bob", "REVOKE INSERT ON queue.proxies FROM bob")]:
        q.rows(give)
        assert mallory.rows(seen) == [(7, "bob")]
        assert orphans(q) == []
        q.rows(take)
        assert mallory.rows(seen) == []
    assert orphans(q) == ["q"]


def test_orphans_and_a_lock_of_somebody_else(q):
    """Any number may stand in a lock of this class."""
    other = q.connect()
    other.rows("SELECT pg_advisory_lock_shared(%s, -1)", CLASS)
    q.push("q", "1")
    take_as(q, 1)
    assert orphans(q) == ["q"]


# --- what was leased by an answer that was lost -----------------------------------------------------

SEED = 8171615141312111


def take_by_seed(session, seed=SEED, queue="q", limit=1, **more):
    with session.conn.transaction():
        session.rows("SELECT set_config('qbouncer.seed', %s, true)", str(seed))
        return session.take(queue, limit, **more)


def give_back_lost(session, names=("q",), lease=None, seed=SEED, handed=0, age="0 s", process=-1):
    return session.column("SELECT queue._give_back_lost(%s::text[], %s::interval, %s, %s, %s::interval, %s)",
                          list(names), lease, seed, handed, age, process)


@pytest.mark.parametrize("lease", [None, "20 days"])
def test_leases_of_a_lost_answer(q, lease):
    q.push("q", "1", "2", "3", "4")
    other = take_by_seed(q, seed=4711, lease=lease)
    mine = take_by_seed(q, limit=2, lease=lease)
    q.create("keep", on_disconnect="keep")
    q.push("keep", "5")
    take_by_seed(q, queue="keep", lease=lease)
    assert sorted(give_back_lost(q, names=("q", "keep", "nothing"), lease=lease)) == ["keep", "q"]
    assert [j["token"] is None and j["state"] == "ready" and j["attempt"] == 0
            for j in (q.job("q", m["id"]) for m in mine)] == [True, True]
    assert q.job("keep", 1)["state"] == "ready"
    assert q.job("q", other[0]["id"])["state"] == "leased"
    assert give_back_lost(q, names=("q", "keep"), lease=lease) == []


def test_a_lost_answer_is_asked_about_until_its_process_is_gone(q):
    pid = q.value("SELECT pg_backend_pid()")
    assert give_back_lost(q, process=pid) == [None]
    q.push("q", "1")
    take_by_seed(q)
    assert give_back_lost(q, process=pid) == ["q", None]


def test_a_lost_answer_of_a_while_ago(q):
    q.push("q", "1")
    take_by_seed(q, lease="1 hour")
    q.rows('UPDATE queue.q_q SET lease_until = lease_until - interval \'5 min\'')
    assert give_back_lost(q, lease="1 hour") == []
    assert give_back_lost(q, lease="1 hour", age="5 min") == ["q"]


def test_a_lost_answer_of_a_cancelled_job(q):
    q.push("q", "1")
    job = take_by_seed(q)[0]
    q.rows("SELECT queue._cancel(ARRAY[%s], false)", job["token"])
    give_back_lost(q)
    assert q.rows("SELECT FROM queue.q_q") == []


def test_a_lost_answer_of_others(q):
    """Who may not take changes nothing."""
    q.push("q", "1")
    take_by_seed(q)
    with pytest.raises(Exception) as e:
        give_back_lost(q.connect("bob"))
    assert e.value.sqlstate == "42501"
    assert q.job("q", 1)["state"] == "leased"
