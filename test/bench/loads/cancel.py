"""Cancel requests, many at once, and queries beside them that must not notice.

For:     run.py.
Entry points: cancel.
"""

from table import Goal, Table, median, number, ratio, turns

NAMES = ("qbouncer", "pgbouncer", "direct")

# fewer than a pool has servers, or a query would be cancelled while it waits for one
CANCELLERS = 16

COUNTS = ("heeded", "missed", "met", "innocent", "strays")


def storm(rig, pooler, plan, races):
    """The figures of clients/cancel.c, and the pooler's CPU for each request as "cpu"."""
    before = pooler.cpu() if pooler else 0
    got = rig.client(pooler, "cancel", CANCELLERS, plan.bystanders, plan.seconds, races)
    got["cpu"] = (pooler.cpu() - before) / got["requests"] * 1e6 if pooler else None
    return got


def _rates(rounds):
    """Of the storms without races: who drops what comes at the wrong moment has less to do then."""
    return [plain["rate"] for plain, _ in rounds]


def _row(name, rounds, ours):
    plain = [one for one, _ in rounds]
    times = [median([one[key] for one in plain]) / 1000 for key in ("cancel_p50_us", "cancel_p99_us")]
    return [name, number(median(_rates(rounds))), "" if rounds is ours else ratio(_rates(ours), _rates(rounds)),
            number(median([one["cpu"] for one in plain])), *("%.2f" % t for t in times),
            *(number(total(rounds, key)) for key in COUNTS)]


def total(rounds, key):
    """Of all storms."""
    return sum(plain[key] + raced[key] for plain, raced in rounds)


def cancel(rig, plan):
    """cancel storms: requests per second, and whom they hit"""
    got = {name: [] for name in NAMES}
    with rig.pooler("qbouncer") as ours, rig.pooler("pgbouncer") as theirs:
        poolers = {"qbouncer": ours, "pgbouncer": theirs, "direct": None}
        for name in NAMES[:2]:
            rig.pgbench(poolers[name], "tx", "simple", CANCELLERS, "-t", 20)
        for order in turns(NAMES, plan.cancel_rounds):
            for name in order:
                got[name].append([storm(rig, poolers[name], plan, races) for races in (0, 1)])
    mine = got["qbouncer"]
    return Table(
        "Cancel storms",
        "%d clients cancel what they run, each request by a connection of its own, and %d others have queries of a "
        "millisecond on the same pool of 20 (rounds of %g s, %d of each). Requests per second; microseconds of the pooler's "
        "CPU for one, with the queries; milliseconds from a request to the end of its query. Postgres starts a process for "
        "each request, which is most of it. Heeded and missed: queries that said that they run, and were cancelled then; the "
        "other columns are of storms in which queries are cancelled also at the moment when they are sent, and of these: met "
        "are those of which that was the end. Innocent: queries that nobody cancelled; strays: of these, those that were "
        "cancelled all the same." % (CANCELLERS, plan.bystanders, plan.seconds, plan.cancel_rounds),
        ["", "requests/s", "qbouncer is x", "CPU", "p50", "p99", *COUNTS], [_row(name, got[name], mine) for name in NAMES],
        [Goal("cancel storm", "no query is cancelled but the one that is meant",
              "%d strays, %d missed" % (total(mine, "strays"), total(mine, "missed")))])
