"""The same while something is in the way: open transactions, a backlog, a slow disk.

For:     run.py.
Entry points: disturb, backlog, slowdisk.
"""

from contenders import PAYLOAD
from contenders.hand import Hand
from contenders.qbouncer import Qbouncer
from loads.jobs import COST, TEXT, both_poolers, compare, rows_of
from table import Goal, Table, median, number, ratio_of, turns

# what the other session does, and through whom
DISTURBANCES = (
    ("REPEATABLE READ snapshot", None,
     "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pgbench_branches;"),
    ("idle transaction with an xid", None, "BEGIN; SELECT txid_current();"),
    ("open transaction that pushed", "qbouncer", "BEGIN; QUEUE PUSH jobs '{\"open\": true}';"),
)

LOADS = ((100, 1), (8, 100))   # clients, batch


def finish(rig, poolers, contender, n):
    """n jobs through the queue, in large batches."""
    contender.loop(rig, poolers, 2, 600, batch=500, limit=n)


def _rounds(rig, poolers, pair, plan, clients, batch):
    """[(rates, Postgres' microseconds per job)] of both, in turns."""
    got = {c: ([], []) for c in pair}
    for order in turns(pair, plan.rounds):
        for c in order:
            one = c.loop(rig, poolers, clients, plan.seconds, batch=batch)
            got[c][0].append(one["jobs"])
            got[c][1].append(one["cost"].postgres_us)
    return [got[c] for c in pair]


def _shares(first, second):
    """Cells: rates of both, the second's share, CPU of both, its ratio; and the last two figures."""
    share, cost = ratio_of(second[0], first[0]), ratio_of(second[1], first[1])
    return ([number(median(first[0])), number(median(second[0])), number(share * 100, "%.0f %%"),
             number(median(first[1]), "%.1f"), number(median(second[1]), "%.1f"),
             number(cost, "%.2f")], share, cost)


def _pair(rig, poolers, plan, pair, disturbance, finished):
    """[(quiet rates, noisy rates)] for each of LOADS. What holds back the dead rows of one database
    does nothing to another: so both are measured at the same time."""
    _, via, sql = disturbance
    for c in pair:
        c.fresh(rig, poolers)
    with rig.session(poolers.get(via)) as other:
        other.run(sql)
        for c in pair:
            finish(rig, poolers, c, finished)
        return [_rounds(rig, poolers, pair, plan, *load) for load in LOADS]


def disturb(rig, plan):
    """the same while another session holds a transaction open"""
    rows, shares = [], []
    ours = (Qbouncer(database="quiet"), Qbouncer())
    theirs = (Hand("pgbouncer", "quiet"), Hand("pgbouncer"))
    with both_poolers(rig) as poolers:
        for disturbance in DISTURBANCES:
            for pair, finished in ((ours, plan.finished), (theirs, plan.hand_finished)):
                if pair is theirs and disturbance is not DISTURBANCES[0]:
                    continue
                got = _pair(rig, poolers, plan, pair, disturbance, finished)
                for load, (quiet, noisy) in zip(LOADS, got):
                    cells, share, _ = _shares(quiet, noisy)
                    rows.append([disturbance[0], pair[0].name, finished, *load, *cells])
                    if pair is ours:
                        shares.append("%.0f" % (share * 100))
    return Table(
        "With a transaction held open",
        "Another session holds a transaction open from before the first job until the end. So many jobs "
        "have then been pushed, taken and finished, in batches of 500; after that push, take and done "
        "are measured as above (%d rounds of %g s in turns). Undisturbed is a second database of the "
        "same Postgres, with the same past and the same queue, whose dead rows that transaction does "
        "not hold back, in the same rounds. Jobs per second; microseconds of CPU of Postgres per job."
        % (plan.rounds, plan.seconds),
        ["held open", "", "jobs finished before", "clients", "batch", "undisturbed", "disturbed",
         "share", "CPU", "CPU, disturbed", "ratio"], rows,
        [Goal("with a snapshot, or a writer, held open for the whole run",
              ">= 95 % of the undisturbed rate", "%s %% (a snapshot, an xid, a pusher; %d clients "
              "one at a time, %d in batches of %d)" % (", ".join(shares), LOADS[0][0], *LOADS[1]))])


# -- backlog ---------------------------------------------------------------------------------------


def backlog(rig, plan):
    """a queue with millions of delayed and ready jobs"""
    empty, full = Qbouncer("empty"), Qbouncer("full")
    rows, shares = [], []
    with both_poolers(rig) as poolers:
        for c in (empty, full):
            c.fresh(rig, poolers)
        _preload(rig, poolers, plan.delayed, "now() + interval '1 day' + i * interval '1 ms'")
        _preload(rig, poolers, plan.ready, "NULL::timestamptz")
        rig.psql("VACUUM ANALYZE queue.q_full")
        for clients, batch in LOADS:
            cells, _, cost = _shares(*_rounds(rig, poolers, (empty, full), plan, clients, batch))
            shares.append("%+.0f %%" % ((cost - 1) * 100))
            rows.append([clients, batch, *cells])
        for c in (empty, full):
            rig.statement(poolers["qbouncer"], "QUEUE DROP %s" % c.queue)
    return Table(
        "With a backlog",
        "One queue has %d delayed and %d ready jobs, the other none, when push, take and done are "
        "measured in both (%d rounds of %g s in turns; what is taken is the oldest of the backlog). Jobs "
        "per second, and microseconds of CPU of Postgres per job."
        % (plan.delayed, plan.ready, plan.rounds, plan.seconds),
        ["clients", "batch", "empty", "full", "share", "CPU, empty", "CPU, full", "ratio"], rows,
        [Goal("%g M delayed + %g M ready jobs" % (plan.delayed / 1e6, plan.ready / 1e6),
              "take cost within 10 % of an empty queue's",
              "%s CPU of Postgres per job (%d clients one at a time, %d in batches of %d)"
              % (", ".join(shares), LOADS[0][0], *LOADS[1]))])


def _preload(rig, poolers, n, at):
    """Jobs into the queue "full", in transactions of half a million."""
    step = 500000
    for first in range(0, n, step):
        rig.statement(poolers["qbouncer"], "QUEUE PUSH full (payload, at) SELECT '%s'::jsonb, %s FROM "
                      "generate_series(%d, %d) AS i"
                      % (PAYLOAD, at, first + 1, min(first + step, n)))


# -- slow disk -------------------------------------------------------------------------------------


def slowdisk(rig, plan):
    """a disk that takes 2 ms longer to sync"""
    rows = []
    rig.restart(preload=rig.slow_disk)
    try:
        with both_poolers(rig) as poolers:
            for clients in plan.job_clients:
                def once(c, clients=clients):
                    c.fresh(rig, poolers)
                    got = c.loop(rig, poolers, clients, plan.seconds)
                    return got["jobs"], got["cost"]
                rows += rows_of(compare((Qbouncer(), Hand("pgbouncer")), plan.side_rounds, once),
                                [clients])
    finally:
        rig.restart()
    return Table(
        "On a slow disk",
        TEXT % (plan.side_rounds, plan.seconds) + "One at a time, as above, with 2 ms more for each fdatasync "
        "of Postgres.",
        ["clients", "", "jobs/s", "qbouncer is x", *COST], rows)
