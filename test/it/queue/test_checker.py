"""The checker (test/check): a short run of it, and that it sees what it is there to see."""

import copy
import os
import sys

import pytest

from tree import ROOT

sys.path.insert(0, os.path.join(ROOT, "test", "check"))

import check  # noqa: E402
from judge import judge  # noqa: E402


def good():
    """A run without a fault: pushes and their fates, ends of leases, an effect, a death."""
    a = [
        dict(e="open", t=1, c="c"),
        dict(e="push", t=2, x="x1", u={"j1": 0, "j2": 0}, pop=False), dict(e="ok", t=3, x="x1"),
        dict(e="begin", t=4, x="x2"), dict(e="push", t=4, x="x2", u={"j3": 0}, pop=False),
        dict(e="roll", t=5, x="x2"), dict(e="no", t=5, x="x2"),
        dict(e="push", t=6, x="x3", u={"j4": 20}, pop=False), dict(e="ok", t=7, x="x3"),
        dict(e="push", t=7, x="x4", u={"p1": 0}, pop=True), dict(e="ok", t=8, x="x4"),
        dict(e="close", t=9, clean=True),
    ]
    b = [
        dict(e="open", t=1, c="c"),
        dict(e="take", t=10, i="t1", x=None, pop=False),
        dict(e="got", t=11, i="t1", jobs=[["j1", "T1", 15, 1], ["j2", "T2", 15, 1]]),
        dict(e="fin", t=12, k="k1", tok="T1", how="fail", x=None, len=2), dict(e="fin+", t=12.5, k="k1"),
        dict(e="begin", t=13, x="x5"),
        dict(e="fin", t=13, k="k2", tok="T2", how="done", x="x5", len=0), dict(e="fin+", t=13, k="k2"),
        dict(e="commit", t=14, x="x5"), dict(e="ok", t=14, x="x5"),
        dict(e="take", t=22, i="t2", x=None, pop=False),
        dict(e="got", t=22, i="t2", jobs=[["j4", "T4", 27, 1]]),
        dict(e="fin", t=23, k="k3", tok="T4", how="extend", x=None, len=10), dict(e="fin+", t=23, k="k3"),
        dict(e="fin", t=30, k="k4", tok="T4", how="done", x=None, len=0), dict(e="fin+", t=31, k="k4"),
        dict(e="close", t=40, clean=True),
    ]
    c = [
        dict(e="open", t=1, c="c"),
        dict(e="take", t=15, i="t1", x=None, pop=False),
        dict(e="got", t=16, i="t1", jobs=[["j1", "T1b", 20, 2]]),
    ]
    d = [
        dict(e="open", t=1, c="c"),
        dict(e="take", t=16, i="t1", x=None, pop=False),
        dict(e="got", t=17.5, i="t1", jobs=[["j1", "T1c", 30, 3]]),
        dict(e="fin", t=18, k="k1", tok="T1c", how="done", x=None, len=0), dict(e="fin+", t=19, k="k1"),
        dict(e="fin", t=19, k="k2", tok="T1c", how="done", x=None, len=0), dict(e="fin+", t=19, k="k2"),
        dict(e="take", t=19, i="t2", x=None, pop=True), dict(e="got", t=19, i="t2", jobs=[["p1", None, None, 1]]),
        dict(e="close", t=40, clean=True),
    ]
    logs = {"a": a, "b": b, "c": c, "d": d, "control": [dict(e="kill", t=17, w="c")]}
    return logs, {"left": [], "effects": {"j2": 1}}


def event(log, **wanted):
    return next(e for e in log if all(e.get(k) == v for k, v in wanted.items()))


def drop(log, **wanted):
    log.remove(event(log, **wanted))


def lost(logs, final):
    drop(logs["d"], k="k1", e="fin")
    drop(logs["d"], k="k1", e="fin+")
    drop(logs["d"], k="k2", e="fin")
    drop(logs["d"], k="k2", e="fin+")


def rolled_back_delivered(logs, final):
    event(logs["d"], i="t2", e="got")["jobs"].append(["j3", "T3", 30, 1])


def rolled_back_left(logs, final):
    final["left"].append("j3")


def savepoint_delivered(logs, final):
    logs["a"].append(dict(e="undo", t=9, u=["j4"]))


def invented(logs, final):
    event(logs["d"], i="t2", e="got")["jobs"].append(["j9", "T9", 30, 1])


def done_twice(logs, final):
    logs["b"].append(dict(e="fin", t=13, k="k9", tok="T1", how="done", x=None, len=0))
    logs["b"].append(dict(e="fin+", t=13, k="k9"))


def delivered_after_done(logs, final):
    logs["d"].append(dict(e="take", t=35, i="t9", x=None, pop=False))
    logs["d"].append(dict(e="got", t=36, i="t9", jobs=[["j4", "T4b", 39, 2]]))


def popped_twice(logs, final):
    event(logs["d"], i="t2", e="got")["jobs"].append(["p1", None, None, 1])


def overlap(logs, final):
    drop(logs["control"], w="c") # nobody killed it: its lease holds


def overlap_after_goodbye(logs, final):
    drop(logs["control"], w="c")
    logs["c"].append(dict(e="close", t=17, clean=True))


def overlap_extended(logs, final):
    logs["d"].append(dict(e="take", t=28, i="t9", x=None, pop=False))
    logs["d"].append(dict(e="got", t=29, i="t9", jobs=[["j4", "T4b", 39, 2]]))


def token_twice(logs, final):
    event(logs["d"], i="t1", e="got")["jobs"][0][1] = "T1b"


def early(logs, final):
    event(logs["b"], i="t2", e="got")["t"] = 19


def retried_early(logs, final):
    event(logs["b"], k="k1", e="fin")["len"] = 5


def stale_after_expiry(logs, final):
    drop(logs["b"], k="k3", e="fin+")
    event(logs["b"], k="k3", e="fin")["len"] = 4
    event(logs["b"], k="k3", e="fin")["how"] = "release"


def stale_after_another(logs, final):
    logs["b"].append(dict(e="fin", t=13, k="k9", tok="T1", how="release", x=None, len=0))
    logs["b"].append(dict(e="fin+", t=13, k="k9"))


def stale_after_taken_again(logs, final):
    event(logs["b"], i="t1", e="got")["jobs"][0][2] = 100
    drop(logs["b"], k="k1", e="fin+")
    logs["b"].append(dict(e="fin", t=39, k="k9", tok="T1", how="extend", x=None, len=5))
    logs["b"].append(dict(e="fin+", t=39, k="k9"))


def held_and_lost(logs, final):
    event(logs["b"], i="t1", e="take")["hold"] = True
    event(logs["b"], k="k1", e="fin+").update(e="fin-", code="QB001")
    event(logs["b"], k="k1", e="fin")["how"] = "extend"


def group_out_of_order(logs, final):
    a = logs["a"]
    event(a, x="x1", e="push").update(u={"j1": 0}, group="g")
    a.insert(3, dict(e="push", t=3, x="x9", u={"j2": 0}, pop=False, group="g"))
    a.insert(4, dict(e="ok", t=3, x="x9"))


def effect_missing(logs, final):
    del final["effects"]["j2"]


def effect_twice(logs, final):
    final["effects"]["j2"] = 2


def odd_refusal(logs, final):
    event(logs["b"], k="k4", e="fin+").update(e="fin-", code="XX000")


FAULTS = {
    lost: "lost", rolled_back_delivered: "rolled back", rolled_back_left: "rolled back",
    savepoint_delivered: "rolled back", invented: "invented", done_twice: "done twice",
    delivered_after_done: "delivered after done", popped_twice: "popped twice", overlap: "overlap",
    overlap_after_goodbye: "overlap", overlap_extended: "overlap", token_twice: "token", early: "early", retried_early: "early",
    stale_after_expiry: "stale", stale_after_another: "stale", stale_after_taken_again: "stale",
    held_and_lost: "hold", group_out_of_order: "group", effect_missing: "effect", effect_twice: "effect", odd_refusal: "unexpected",
}


def test_the_judge_is_content():
    assert judge(*good())[0] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_the_judge_sees(fault):
    logs, final = copy.deepcopy(good())
    fault(logs, final)
    said = judge(logs, final)[0]
    assert any(s.startswith(FAULTS[fault] + ": ") for s in said), said


def run(qbouncer, db, direct, seconds, before=None, **more):
    relay = more.get("relay")
    where = {"databases": check.through(relay)} if relay else {}
    proxies = [qbouncer(**where, **check.SETTINGS) for _ in range(2)]
    one = check.Check(proxies, db, direct, 1, **more)
    if before:
        setup = one.setup

        def broken():
            setup()
            before(direct)
        one.setup = broken
    one.run(seconds)
    said = one.verdict()
    if not said:
        one.remove()
    return one, said


@pytest.mark.timeout(240)
@pytest.mark.parametrize("limits", [False, True])
def test_a_short_run(qbouncer, db, direct, cluster, limits):
    with check.relay_to(cluster.port) as relay:
        one, said = run(qbouncer, db, direct, 15, restarts=True, relay=relay, limits=limits)
        assert not said, "\n".join(said[:50])
        assert one.counts["kill"] > 0 and one.counts["restart"] > 0 and relay.n_lost > 0


# What an engine may do wrong, done to its table whatever it does: an acknowledged job is gone, a job is given away and
# there all the same, and a lease that was ended is as good as before.
SABOTAGE = """
CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF random() < 0.1 THEN
        DELETE FROM queue.q_work WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER forget AFTER INSERT ON queue.q_work FOR EACH ROW EXECUTE FUNCTION public.forget();
CREATE FUNCTION public.spoil() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'ready' AND NEW.state = 'leased' AND random() < 0.2 THEN
        NEW.state := 'ready';
        NEW.due := NEW.expires_at;
    ELSIF OLD.token IS NOT NULL AND NEW.token IS NULL AND NEW.state = 'ready' THEN
        NEW.token := OLD.token;
        NEW.lease_until := now() + interval '1 hour';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER spoil BEFORE UPDATE ON queue.q_work FOR EACH ROW EXECUTE FUNCTION public.spoil()
"""
SEEN = ("lost", "overlap", "stale")


def sabotage(conn):
    conn.execute(SABOTAGE)


@pytest.mark.timeout(120)
def test_a_broken_engine_is_seen(qbouncer, db, direct):
    one, said = run(qbouncer, db, direct, 4, before=sabotage, workers=15, patience=5)
    one.remove()
    for rule in SEEN:
        assert any(s.startswith(rule + ": ") for s in said), said
