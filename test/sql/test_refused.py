"""Moves of jobs that a trigger or a policy on the queue's table refuses: they hold up nothing that is behind them."""

import pytest

MANY = 1100  # more than one look has

REFUSE = """CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER refuse BEFORE {} ON queue.q_q FOR EACH ROW WHEN (OLD.payload = '0') EXECUTE FUNCTION public.refuse()"""

POLICY = """ALTER TABLE queue.q_q ENABLE ROW LEVEL SECURITY; ALTER TABLE queue.q_q FORCE ROW LEVEL SECURITY;
CREATE POLICY s ON queue.q_q FOR SELECT USING (true); CREATE POLICY i ON queue.q_q FOR INSERT WITH CHECK (true);
CREATE POLICY u ON queue.q_q FOR UPDATE USING ({}); CREATE POLICY d ON queue.q_q FOR DELETE USING (payload <> '0')"""

WAYS = {"delete": REFUSE.format("DELETE"), "state": REFUSE.format("DELETE OR UPDATE OF state"),
        "all": REFUSE.format("DELETE OR UPDATE"), "policy of DELETE": POLICY.format("true"),
        "policy": POLICY.format("payload <> '0'")}

OVER = "now() - interval '1 day' + id * interval '1 s'"
FRONT = {"expired": "expires_at = " + OVER, "ripe": "state = 'later', run_at = " + OVER,
         "lease": "state = 'leased', attempt = 1, token = 'a', lease_until = " + OVER,
         "cancelled": "state = 'leased', attempt = 1, token = 'xa', lease_until = " + OVER,
         "expired later": "state = 'later', run_at = now() + interval '1 day', expires_at = " + OVER}


def prepare(db, front, refused, **options):
    """Many that are due and may not be moved; behind them, minutes later, one of each kind that may."""
    db.create("q", **options)
    db.push("q", *["0"] * MANY)
    db.rows("UPDATE queue.q_q SET " + front)
    db.push("q", "1", "2", "3")
    db.rows("UPDATE queue.q_q SET state = 'later', run_at = now() - interval '3 min' WHERE payload = '1'")
    db.rows("UPDATE queue.q_q SET state = 'leased', attempt = 1, token = 'b', lease_until = now() - interval '2 min'"
            " WHERE payload = '2'")
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 min' WHERE payload = '3'")
    db.script(refused)


def left(db):
    return db.column("SELECT payload FROM queue.q_q WHERE payload <> '0' AND state <> 'dead' ORDER BY 1")


@pytest.mark.parametrize("on_expire", ["drop", "dead"])
@pytest.mark.parametrize("front, refused", [
    ("expired", "delete"), ("expired", "state"), ("expired", "all"), ("expired", "policy of DELETE"), ("expired", "policy"),
    ("expired later", "all"), ("ripe", "state"), ("ripe", "all"), ("ripe", "policy"), ("lease", "state"), ("lease", "all"),
    ("cancelled", "delete"), ("cancelled", "all")])
def test_what_is_refused_holds_up_nothing(db, front, refused, on_expire):
    prepare(db, FRONT[front], WAYS[refused], on_expire=on_expire)
    got = set()
    for _ in range(100):    # where nothing at all may be written, the look begins by chance
        got |= {job["payload"] for job in db.take("q", 10, worker="w") if job["payload"]}
        if got >= {1, 2} and left(db) == [1, 2]:
            break
    else:
        pytest.fail(str(got))
    db.rows("DROP TRIGGER IF EXISTS refuse ON queue.q_q")
    db.rows("ALTER TABLE queue.q_q DISABLE ROW LEVEL SECURITY")


def test_what_is_refused_is_tried_again_later(db):
    """Not by each look, and it goes as soon as it may: a minute later."""
    prepare(db, FRONT["expired"], WAYS["delete"])
    db.rows("CREATE TABLE public.tried (n int8); CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN INSERT INTO public.tried VALUES (OLD.id); RETURN NULL; END'")
    for _ in range(5):
        db.take("q", 10)
    assert db.value("SELECT count(*) FROM public.tried") == MANY
    assert db.value("SELECT count(*) FROM queue.q_q WHERE due <= now()") == 0
    assert db.value("SELECT max(due) FROM queue.q_q WHERE payload = '0'") <= db.value("SELECT clock_timestamp() + interval '1 min'")
    db.rows("DROP TRIGGER refuse ON queue.q_q")
    db.rows("WITH j AS (SELECT) UPDATE queue.q_q SET due = now() - interval '1 s' WHERE payload = '0'")
    for _ in range(6):
        db.take("q", 10)
    assert db.value("SELECT count(*) FROM queue.q_q WHERE payload = '0'") == 0


def test_maintenance_goes_behind_what_is_refused(db):
    """Dead jobs, the archive, and what expires."""
    db.create("q", retain_dead="1 hour", retain_done="1 hour")
    db.push("q", *["0"] * 30, *["1"] * 30)
    db.rows("UPDATE queue.q_q SET state = 'dead', ended_at = " + OVER)
    db.rows("INSERT INTO queue.a_q (id, state, payload, ended_at, pushed_at) SELECT id, 'done', payload, ended_at, ended_at FROM queue.q_q")
    db.push("q", *["0"] * 30, *["1"] * 30)
    db.rows("UPDATE queue.q_q SET expires_at = now() - interval '1 hour' + id * interval '1 s' WHERE state = 'ready'")
    db.script(WAYS["all"])
    db.rows("CREATE TRIGGER refuse BEFORE DELETE ON queue.a_q FOR EACH ROW WHEN (OLD.payload = '0') EXECUTE FUNCTION public.refuse()")
    for _ in range(500):
        db.rows("SELECT queue._maintain_one(c, 10, NULL) FROM queue.queues AS c")
        if db.rows("SELECT state, payload, count(*) FROM queue.q_q GROUP BY 1, 2 ORDER BY 1") == [("dead", 0, 30), ("ready", 0, 30)] \
                and db.rows("SELECT payload, count(*) FROM queue.a_q WHERE state = 'done' GROUP BY 1") == [(0, 30)]:
            break
    else:
        pytest.fail(str(db.rows("SELECT state, payload, count(*) FROM queue.q_q GROUP BY 1, 2 ORDER BY 1")))


@pytest.mark.parametrize("front", ["ripe", "expired"])
def test_many_of_one_time_hide_none_of_it(db, front):
    """What may not even be put off, pushed together with what may go."""
    db.create("q")
    db.push("q", *["0"] * 700, "1")
    db.rows("UPDATE queue.q_q SET " + FRONT[front].replace("id *", "0 *"))
    db.script(WAYS["all"])
    for _ in range(3):
        if front == "ripe":
            db.take("q", 1, worker="w")
        else:
            db.rows("SELECT queue._expire(c, 200) FROM queue.queues AS c")
    assert db.value("SELECT count(*) FROM queue.q_q WHERE payload = '1' AND state <> 'leased'") == 0


def test_what_ended_together_and_stays_hides_nothing(db):
    db.create("q", retain_dead="1 hour")
    db.push("q", *["0"] * 30, "1")
    db.rows("UPDATE queue.q_q SET state = 'dead', ended_at = now() - interval '1 day'")
    db.script(WAYS["delete"])
    db.rows("SELECT queue._maintain_one(c, 10, NULL) FROM queue.queues AS c")
    assert db.column("SELECT DISTINCT payload FROM queue.q_q") == [0]
