"""The checker of limits, AFTER, dead_queue, single_consumer and KEY ... FOR (test/check/flows.py): a short run of it, and that it sees what it
is there to see."""

import os
import sys

import pytest

from tree import ROOT

sys.path.insert(0, os.path.join(ROOT, "test", "check"))

import check  # noqa: E402
import flows  # noqa: E402

AT = 1000.0


class Story:
    """What a database may have written down."""

    def __init__(self):
        self.audit, self.ends, self.fate, self.job = [], [], {}, 0
        self.at = AT
        self.batches, self.closes = [], AT + 1e6
        running = [self.begin("lim") for _ in range(flows.RUNNING)]
        for job in running:
            self.done(job)
        tenants = [self.begin("fair", "t%d" % (i % 2)) for i in range(flows.FAIR_RUNNING)]
        for job in tenants:
            self.done(job)
        self.done(self.begin("rests"))

    def write(self, job, was, now, **more):
        self.at += more.pop("wait", 0.01)
        queue, group, number = job
        self.audit.append(dict({"q": queue, "number": list(flows.QUEUES).index(queue), "job": number, "uid": "u%d" % number,
                                "group": group, "key": None, "was": was, "is": now, "attempt": 1, "at": self.at,
                                "behind": None, "worker": "w"}, **more))  # fmt: skip

    def push(self, queue, group=None, **more):
        self.job += 1
        job = (queue, group, self.job)
        self.fate["u%d" % self.job] = ("sure", queue)
        self.write(job, None, "blocked" if more.get("behind") else "ready", **more)
        return job

    def begin(self, queue, group=None, **more):
        job = self.push(queue, group)
        self.write(job, "ready", "leased", **more)
        return job

    def done(self, job, **more):
        self.write(job, "leased", None, **more)
        self.ends.append([job[0], job[2], "u%d" % job[2], "done"])

    def die(self, job, was="leased"):
        self.write(job, was, "dead")
        self.ends.append([job[0], job[2], "u%d" % job[2], "dead"])

    def name(self, job):
        return "%d-%d" % (list(flows.QUEUES).index(job[0]), job[2])

    def said(self):
        return flows.judge_audit(sorted(self.audit, key=lambda e: e["at"]), self.ends, self.fate, AT + 1e6, self.batches, self.closes)


def one_too_many(s):
    for job in [s.begin("lim") for _ in range(flows.RUNNING + 1)]:
        s.done(job)


def one_of_a_group_too_many(s):
    for job in [s.begin("fair", "t1") for _ in range(flows.FAIR_GROUP + 1)]:
        s.done(job)


def too_soon(s):
    s.done(s.begin("rests", wait=1))
    s.done(s.begin("rests", wait=flows.PAUSE / 4))


def too_soon_in_its_group(s):
    s.done(s.begin("slow", "g1", wait=1))
    s.done(s.begin("slow", "g1"))


def too_many_in_a_time(s):
    for _ in range(3 * flows.GROUP_BURST + 3):
        job = s.push("rated", "g1", wait=0)
        s.write(job, "ready", "leased", wait=0.001)
        s.done(job, wait=0)


def nobody_took_it(s):
    s.push("lim")
    s.done(s.begin("lim"))
    s.done(s.begin("lim", wait=flows.STALL + 10))


def one_tenant_alone(s):
    jobs = [s.push("fair", "t2") for _ in range(4)]
    for job in jobs:
        for _ in range(100):
            s.done(s.begin("fair", "big"))
        s.write(job, "ready", "leased")
        s.done(job)


def begun_before_the_other_was_done(s):
    first = s.push("first")
    second = s.push("second", behind=[s.name(first)])
    s.write(second, "ready", "leased")
    s.done(second)
    s.write(first, "ready", "leased")
    s.done(first)


def done_behind_a_dead_one(s):
    first = s.begin("first")
    second = s.push("second", behind=[s.name(first)])
    s.die(first)
    s.write(second, "ready", "leased")
    s.done(second)


def dead_behind_one_that_was_done(s):
    first = s.begin("first")
    second = s.push("second", behind=[s.name(first)])
    s.done(first)
    s.die(second, "blocked")


def waits_for_ever(s):
    first = s.begin("first")
    s.push("second", behind=[s.name(first)])
    s.done(first)


def dead_in_two_places(s):
    job = s.begin("risky")
    s.die(job)
    s.ends.append(["morgue", 7, "u%d" % job[2], "there"])


def dead_nowhere(s):
    job = s.begin("risky")
    s.write(job, "leased", None)


def a_key_twice(s):
    for _ in range(2):
        job = s.push("keyed", key="k1")
        s.write(job, "ready", "leased", key="k1")
        s.done(job, key="k1")


def forgotten(s):
    s.fate["u0"] = ("sure", "lim")


def rolled_back_and_there(s):
    job = s.begin("lim")
    s.done(job)
    s.fate["u%d" % job[2]] = ("never", "lim")


def begun_outside_of_its_hours(s):
    s.done(s.begin("shut"))


def begun_after_its_hours(s):
    s.closes = s.at
    s.done(s.begin("timed", wait=flows.LATE + 1))


def two_consumers(s):
    for who in ("a", "b", "a"):
        s.done(s.begin("single", worker=who))


def no_consumer(s):
    s.push("single")
    s.done(s.begin("single"))
    s.done(s.begin("single", wait=flows.STALL + 10))


def a_batch_that_has_not_ended(s):
    job = s.push("lot")
    s.batches.append({"b": "b", "u": ["u%d" % job[2]], "ended": True, "n": 1, "t": s.at + 0.001})
    s.write(job, "ready", "leased")
    s.done(job)


def a_batch_with_one_too_few(s):
    job = s.begin("lot")
    s.batches.append({"b": "b", "u": ["u%d" % job[2]], "ended": False, "n": 0, "t": s.at})
    s.done(job)


FAULTS = {
    one_too_many: "limit", one_of_a_group_too_many: "limit", too_soon: "pause", too_soon_in_its_group: "pause",
    too_many_in_a_time: "rate", nobody_took_it: "stall", one_tenant_alone: "fair", begun_before_the_other_was_done: "after",
    done_behind_a_dead_one: "after", dead_behind_one_that_was_done: "after", waits_for_ever: "lost", dead_in_two_places: "dead",
    dead_nowhere: "dead", a_key_twice: "key", forgotten: "lost", rolled_back_and_there: "rolled back",
    begun_outside_of_its_hours: "hours", begun_after_its_hours: "hours", a_batch_that_has_not_ended: "batch",
    a_batch_with_one_too_few: "batch", two_consumers: "single", no_consumer: "stall",
}  # fmt: skip


def test_the_judge_is_content():
    s = Story()
    first = s.begin("first")
    follower, doomed = s.push("second", behind=[s.name(first)]), s.begin("first")
    dead = s.push("second", behind=[s.name(first), s.name(doomed)])
    s.done(first)
    s.write(follower, "blocked", "ready")
    s.write(follower, "ready", "leased")
    s.done(follower)
    s.die(doomed)
    s.die(dead, "blocked")
    s.done(s.begin("rests", wait=flows.PAUSE))
    for who in "aab":
        s.done(s.begin("single", worker=who))
    assert s.said() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_the_judge_sees(fault):
    s = Story()
    fault(s)
    said = s.said()
    assert any(one.startswith(FAULTS[fault] + ": ") for one in said), said


@pytest.mark.timeout(240)
def test_a_short_run(qbouncer, db, direct, cluster):
    with check.relay_to(cluster.port) as relay:
        proxies = [qbouncer(databases=check.through(relay), **check.SETTINGS) for _ in range(2)]
        one = flows.FlowCheck(proxies, db, direct, 1, restarts=True, relay=relay)
        one.run(12)
        said = one.verdict()
        assert not said, "\n".join(said[:50])
        one.remove()
