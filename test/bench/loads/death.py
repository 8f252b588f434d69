"""How soon a job is there again when its worker is killed, or the proxy that its worker was at.

For:     run.py.
Entry points: death.
"""

import os
import signal
import time

from common import Failed
from table import Goal, Table, median, number


def _await(holder, rows, seconds):
    """The time when that many rows are there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holder.counted()[0] >= rows:
            return time.monotonic()
        time.sleep(0.0005)
    raise Failed("a job did not come back")


def _queue(rig, pooler):
    rig.statement(pooler, "QUEUE DROP death IF EXISTS", "QUEUE CREATE death")
    rig.statement(pooler, "QUEUE PUSH death '1'")


def _worker(rig):
    with rig.pooler("qbouncer") as pooler:
        _queue(rig, pooler)
        with rig.hold(pooler, "park", 1, "QUEUE TAKE death WAIT '10s'") as victim:
            _await(victim, 1, 10)
            with rig.hold(pooler, "park", 1, "QUEUE TAKE death WAIT '1 min'") as other:
                pooler.settled()
                began = time.monotonic()
                victim.kill()
                return _await(other, 1, 30) - began


def _proxy(rig):
    with rig.pooler("qbouncer") as ours, rig.pooler("qbouncer") as theirs:
        _queue(rig, theirs)
        with rig.hold(ours, "park", 1, "QUEUE TAKE death WAIT '10s' HOLD") as worker:
            _await(worker, 1, 10)
            with rig.hold(theirs, "park", 1, "QUEUE TAKE death WAIT '1 min'") as other:
                theirs.settled()
                began = time.monotonic()
                os.kill(ours.pid, signal.SIGKILL)
                return _await(other, 1, 40) - began


def death(rig, plan):
    """a worker or a proxy is killed: when is its job there again?"""
    worker = [_worker(rig) for _ in range(plan.deaths)]
    proxy = [_proxy(rig) for _ in range(max(plan.deaths // 3, 1))]

    def cells(times):
        return [len(times), number(median(times) * 1000, "%.1f"), number(max(times) * 1000, "%.1f")]
    return Table(
        "After a death",
        "A job is taken, and its worker (or the proxy that the worker is at, while another worker waits "
        "at a second proxy) is killed by SIGKILL. Milliseconds until the other worker has the job.",
        ["killed", "times", "median ms", "max ms"],
        [["worker", *cells(worker)], ["proxy", *cells(proxy)]],
        [Goal("worker killed", "its jobs are ready again in < 100 ms",
              "%.1f ms at most" % (max(worker) * 1000)),
         Goal("proxy killed", "its jobs are ready again in < 5 s; nothing acknowledged is lost",
              "%.1f s at most (what is lost is tested, not measured)" % max(proxy))])
