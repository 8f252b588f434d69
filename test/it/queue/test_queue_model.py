"""Random programs against a model: the same few each time. test/check/model.py, orders.py and limits.py by themselves
make new ones; test/check/faults.py has the faults that they have to see."""

import os
import sys

import pytest

from tree import ROOT

sys.path.insert(0, os.path.join(ROOT, "test", "check"))

from faults import is_found  # noqa: E402
from limits import Limited  # noqa: E402
from model import QUIET, Mismatch, Program, linker  # noqa: E402
from orders import Ordered  # noqa: E402


@pytest.fixture
def proxy(qbouncer):
    return qbouncer(**QUIET)


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_a_program(proxy, db, direct, seed):
    Program(linker(proxy, db), direct, seed).run(300)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_program_of_orders(proxy, db, direct, seed):
    """With what is between jobs: AFTER, GROUPED, a single consumer, dead_queue."""
    Ordered(linker(proxy, db), direct, seed).run(300)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_a_program_of_limits(proxy, db, direct, seed):
    """With what holds jobs back, and how many there may be; of keys, of lengths, of queues, of groups, of all."""
    Limited(linker(proxy, db), direct, seed).run(300)


def test_a_wrong_answer_is_seen(proxy, db, direct):
    program = Program(linker(proxy, db), direct, 4)
    step, wrong = program.step, []
    program.patience = 1

    def spoilt():
        step()
        ready = [r for r in program.state.rows.values() if r.state == "ready" and not (r.group or r.expired)]
        if len(ready) > 5 and not wrong:
            queue = program.state.queues[ready[3].queue]
            wrong.append(direct.execute("DELETE FROM queue.q_%s WHERE payload::text = %%s" % queue.name,
                                        (queue.payload(ready[3].word),)).rowcount)
    program.step = spoilt
    with pytest.raises(Mismatch):
        program.run(300)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["max_length does not count what is blocked", "DONE wakes nobody"])
def test_a_fault_is_found(proxy, cluster, fault):
    assert is_found(cluster, proxy, fault, 100) is not None
