"""A result, and how figures become text in it.

For:     loads/, report.py.
Must not know: what is measured, where it is printed.
Entry points: Table, Goal, median, ratio, ratio_of, spread, number, turns.
"""

import statistics
from collections import namedtuple


class Table(namedtuple("Table", "title text columns rows goals part", defaults=((), None))):
    """goals: of doc/bench.md's first table, those that this part measures. part: its name on the command line."""


# what: of the project's goals; goal: the text of it; measured: the text of what it is
Goal = namedtuple("Goal", "what goal measured")


def median(values):
    """None when there is nothing."""
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio_of(ours, theirs):
    """Median of the ratios of each round: what disturbs a round disturbs both of its halves."""
    return median([a / b for a, b in zip(ours, theirs) if a is not None and b])


def ratio(ours, theirs):
    """The same as text."""
    return number(ratio_of(ours, theirs), "%.2f")


def spread(ours, theirs):
    """The median of the ratios of each round, and between what their middle half is, as text."""
    ratios = [a / b for a, b in zip(ours, theirs) if a is not None and b]
    if len(ratios) < 4:
        return number(median(ratios), "%.2f x")
    low, middle, high = statistics.quantiles(ratios, n=4)
    return "%.2f x (%.2f to %.2f)" % (middle, low, high)


def number(value, form="%.0f"):
    """A dash where there is no figure."""
    return "-" if value is None else form % value


def turns(names, rounds):
    """Rounds in which the order of the contenders alternates."""
    for i in range(rounds):
        yield list(names) if i % 2 == 0 else list(reversed(names))
