"""From the push to the delivery.

For:     run.py.
Entry points: latency.
"""

from common import files_allowed
from contenders import PAYLOAD
from table import Goal, Table, median, number

PUSHERS = {0: 64}   # connections that push, by rate; others: 16
FINISHERS = 8


def _commit(rig, pooler, plan):
    return rig.client(pooler, "commit", max(plan.latency / 4, 1), 100,
                      "INSERT INTO one_commit (payload) VALUES ('%s')" % PAYLOAD)


def _cells(got, name):
    return [number(got["%s_%s_us" % (name, q)] / 1000, "%.2f") for q in ("p50", "p99", "max")]


def _one(rig, plan, rate, waiters):
    with rig.pooler("qbouncer") as pooler:
        rig.statement(pooler, "QUEUE DROP latency IF EXISTS", "QUEUE CREATE latency")
        return rig.client(pooler, "latency", plan.latency, rate, "latency", 100,
                          PUSHERS.get(rate, 16), waiters, FINISHERS)


def latency(rig, plan):
    """from the push to the delivery"""
    rig.psql("CREATE TABLE IF NOT EXISTS one_commit (id bigserial PRIMARY KEY, payload jsonb)")
    with rig.pooler("qbouncer") as pooler:
        rig.statement(pooler, "SELECT 1")
        commits = [_commit(rig, pooler, plan)]
    rows, got = [], {}
    for waiters in plan.waiters:
        n = min(waiters, files_allowed() - 500)
        for rate in plan.latency_rates:
            one = got[rate, waiters] = _one(rig, plan, rate, n)
            rows.append([n, "saturation" if rate == 0 else rate, number(one["rate"]),
                         *_cells(one, "sent"), *_cells(one, "push")[:2]])
    with rig.pooler("qbouncer") as pooler:
        rig.statement(pooler, "SELECT 1")
        commits.append(_commit(rig, pooler, plan))
    commit = {k: median([c[k] for c in commits]) for k in commits[0]}
    rows.append(["one INSERT", 100, "100", *_cells(commit, "commit"), "", ""])
    return Table(
        "From push to delivery",
        "Jobs of 100 bytes are pushed on a schedule for %g s, or, at saturation, by 64 connections that "
        "each push again when their job has been delivered; so many clients wait and take, 8 others "
        "finish. Milliseconds from the push (from when it was due) to the row, and to the push's own "
        "answer. One process with one clock, all on the same cores. The last line is the yardstick: an "
        "INSERT of the same size through the same proxy, one at a time, the whole of it. (One waiter alone "
        "cannot take much more than 1 000 jobs per second one by one: what it does not take in time queues up.)"
        % plan.latency,
        ["waiters", "pushes/s", "delivered/s", "p50", "p99", "max", "answer p50", "answer p99"], rows,
        [_goal(got, commit)])


def _goal(got, commit):
    def figure(key, name):
        return got[key][name] / 1000 if key in got else None
    parts = []
    if (100, 1) in got:
        parts.append("commit + %.2f ms" % (figure((100, 1), "sent_p50_us") -
                                           commit["commit_p50_us"] / 1000))
    parts += ["p99 %s ms with %d" % (number(figure((1000, w), "sent_p99_us"), "%.2f"), w)
              for w in (1, 100, 10000) if (1000, w) in got]
    return Goal("push -> delivered to a waiting taker",
                "p50 <= one commit + 0.3 ms; p99 < 5 ms at 1 000/s", ", ".join(parts))
