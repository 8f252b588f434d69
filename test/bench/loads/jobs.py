"""Jobs: one at a time, in batches, pushed only, drained; in one queue and in many.

For:     run.py.
Entry points: jobs, protocols, prepared, batches, push, libraries, publish, drain, queues, statements.
"""

import itertools
import math
import sys

from common import Failed
from contenders.hand import Hand
from contenders.libraries import Oban, River
from contenders.pgmq import Pgmq
from contenders.qbouncer import Published, Pushed, PushedWithHeaders, Qbouncer
from meter import NO_COST, changed_rows
from table import Goal, Table, median, number, ratio, ratio_of, spread, turns

QB = Qbouncer()
ALL = (QB, Hand("pgbouncer"), Hand("pgbouncer", "session"), Hand(), Pgmq("pgbouncer"), Pgmq())
SHORT = (QB, Hand("pgbouncer"), Pgmq("pgbouncer"))

# of pgbench, and who is compared; old pgbouncers have prepared statements in session pooling only
MODES = (("simple", (Hand("pgbouncer"), Hand(), Pgmq("pgbouncer"))),
         ("extended", (Hand("pgbouncer"),)),
         ("prepared", (Hand("pgbouncer", "session"), Hand(), Pgmq("pgbouncer", "session"))))

COST = ["proxy CPU", "Postgres CPU", "WAL bytes", "transactions"]

TEXT = ("Jobs per second, and how many times as many qbouncer does (medians; rounds of each: %d, of %g s, the "
        "order of the contenders alternating). Per job: microseconds of CPU of the pooler and of all of "
        "Postgres, bytes of WAL, transactions that write. ")


def _cost_cells(costs):
    def mid(field, form):
        return number(median([getattr(c, field) for c in costs]), form)
    return [mid("pooler_us", "%.1f"), mid("postgres_us", "%.1f"), mid("wal", "%.0f"),
            mid("transactions", "%.2f")]


def both_poolers(rig):
    """qbouncer and pgbouncer, running: a context that gives them by name."""
    class Both(dict):
        """name -> Pooler"""

        def __enter__(self):
            self.update({name: rig.pooler(name) for name in ("qbouncer", "pgbouncer")})
            return self

        def __exit__(self, *exc):
            for pooler in self.values():
                pooler.stop()
    return Both()


def compare(contenders, rounds, once):
    """once(contender) -> (rate, cost), in turns, of those who can be had: {contender: ([rate], [cost])}. A round that fails
    is told, and has no figures: the others' are worth the same."""
    contenders = [c for c in contenders if c.available()]
    got = {c: ([], []) for c in contenders}
    for order in turns(contenders, rounds):
        for c in order:
            try:
                rate, cost = once(c)
            except Failed as failed:
                print("%s: %s" % (c.label(), failed), file=sys.stderr)
                rate, cost = None, NO_COST
            got[c][0].append(rate)
            got[c][1].append(cost)
    return got


def rows_of(got, head):
    """The lines of a table, the first contender being the one whose ratio it is."""
    first = next(iter(got))
    return [[*head, c.label(), number(median(rates)),
             "" if c is first else ratio(got[first][0], rates), *_cost_cells(costs)]
            for c, (rates, costs) in got.items()]


def _cycle(rig, poolers, plan, clients, batch=1):
    def once(c):
        c.fresh(rig, poolers)
        got = c.loop(rig, poolers, clients, plan.seconds, batch=batch)
        return got["jobs"], got["cost"]
    return once


def jobs(rig, plan):
    """push, take, done one at a time"""
    rows, goals = [], []
    with both_poolers(rig) as poolers:
        for clients in plan.job_clients:
            most = clients == max(plan.job_clients)
            got = compare(ALL if most else SHORT, plan.rounds if most else plan.side_rounds + 1,
                          _cycle(rig, poolers, plan, clients))
            rows += rows_of(got, [clients])
            if most:
                goals.append(_goal(got))
    return Table(
        "Jobs one at a time",
        TEXT % (plan.rounds, plan.seconds) + "Each client pushes a job, takes one and finishes it, in "
        "three statements with three commits, over and over, in the simple protocol; one C process is "
        "all clients. (%d rounds with fewer clients.)" % (plan.side_rounds + 1),
        ["clients", "", "jobs/s", "qbouncer is x", *COST], rows, goals)


def _goal(got):
    def against(kind):
        rates = [got[c][0] for c in got if isinstance(c, kind) and c.via]
        rates = [r for r in rates if median(r) is not None]
        return ratio(got[QB][0], max(rates, key=median)) + " x" if rates else "not measured"
    return Goal("push + take + done one at a time, 100 clients",
                ">= 3.5 x hand-written SQL through pgbouncer, >= 8 x pgmq",
                "%s, %s (pgmq %s)" % (against(Hand), against(Pgmq), Pgmq.version))


def protocols(rig, plan):
    """the same by pgbench, in the modes of the protocol"""
    rows = []
    with both_poolers(rig) as poolers:
        for (mode, others), clients in itertools.product(MODES, plan.job_clients):
            def once(c, mode=mode, clients=clients):
                c.fresh(rig, poolers)
                c.fill(rig, poolers, 1000)
                return c.pgbench(rig, poolers, mode, clients, plan.seconds)
            rows += rows_of(compare((QB, *others), plan.side_rounds, once), [mode, clients])
    return Table(
        "Jobs one at a time, by pgbench",
        TEXT % (plan.side_rounds, math.ceil(plan.seconds)) + "pgbench (one thread) with a script of the three statements; 1 000 jobs are "
        "in the queue before, so that a take always finds one.",
        ["protocol", "clients", "", "jobs/s", "qbouncer is x", *COST], rows)


def prepared(rig, plan):
    """prepared statements of one client and of more, beside hand-written SQL, in many turns"""
    rows, told = [], []
    hands = (Hand("pgbouncer", "session"), *([Hand("pgbouncer")] if rig.prepares else []))
    with both_poolers(rig) as poolers:
        for clients in plan.prepared_clients:
            def once(c, clients=clients):
                c.fresh(rig, poolers)
                c.fill(rig, poolers, 1000)
                return c.pgbench(rig, poolers, "prepared", clients, plan.seconds)
            got = compare((QB, *hands), plan.prepared_rounds, once)
            rows += rows_of(got, [clients])
            best = max((got[h][0] for h in hands), key=lambda rates: median(rates) or 0)
            told.append("%s with %d" % (spread(got[QB][0], best), clients))
    return Table(
        "Jobs one at a time, prepared",
        TEXT % (plan.prepared_rounds, math.ceil(plan.seconds)) + "As by pgbench above, in so many turns that what disturbs one of "
        "them says nothing. The goal is beside the better one.",
        ["clients", "", "jobs/s", "qbouncer is x", *COST], rows,
        [Goal("push + take + done one at a time, prepared", ">= 1 x hand-written SQL through pgbouncer, >= 4 x with 100",
              ", ".join(told) + " (the middle half of %d turns)" % plan.prepared_rounds)])


def batches(rig, plan):
    """push, take and done of many jobs at a time"""
    rows, goals = [], []
    hand = Hand()
    with both_poolers(rig) as poolers:
        for batch in plan.batches:
            for clients in (1, 8):
                got = compare((QB, hand, Pgmq()), plan.side_rounds + 1,
                              _cycle(rig, poolers, plan, clients, batch))
                rows += rows_of(got, [batch, clients])
                if batch == 100:
                    goals.append("%.0f %% with %d client%s" % (
                        ratio_of(got[QB][0], got[hand][0]) * 100, clients, "s"[:clients > 1]))
    return Table(
        "Jobs in batches",
        TEXT % (plan.side_rounds + 1, plan.seconds) + "Each client pushes so many jobs with one statement, takes "
        "as many with one and finishes what it got with one. The SQL goes directly to Postgres.",
        ["batch", "clients", "", "jobs/s", "qbouncer is x", *COST], rows,
        [Goal("the same in batches (LIMIT 100)", ">= 80 % of the bare SQL batch rate",
              ", ".join(goals))])


def push(rig, plan):
    """push only"""
    rows = []
    with both_poolers(rig) as poolers:
        for clients, batch in ((1, 1), (100, 1), (1, 100)):
            def once(c, clients=clients, batch=batch):
                c.fresh(rig, poolers)
                got = c.loop(rig, poolers, clients, plan.seconds, load="push", batch=batch)
                return got["jobs"], got["cost"]
            rows += rows_of(compare(SHORT, plan.side_rounds, once), [clients, batch])
    return Table("Push only", TEXT % (plan.side_rounds, plan.seconds),
                 ["clients", "batch", "", "jobs/s", "qbouncer is x", *COST], rows)


def libraries(rig, plan):
    """the statements of River, Oban and pgmq: push, push + take + done, drain"""
    rows = []
    clients_of = sorted({1, 16, max(plan.outside_clients)})
    with both_poolers(rig) as poolers:
        for load, (clients, batch) in itertools.product(("push", "cycle", "drain"), [(c, 1) for c in clients_of] + [(8, 100)]):
            def once(c, load=load, clients=clients, batch=batch):
                c.fresh(rig, poolers)
                limit = 0
                if load == "drain":
                    limit = 10 ** 9
                    c.fill(rig, poolers, plan.outside_drain)
                    rig.psql("ANALYZE " + c.table)
                got = c.loop(rig, poolers, clients, 60 if limit else plan.seconds, load=load, batch=batch, limit=limit)
                return got["jobs"], got["cost"]
            rows += rows_of(compare((QB, River("pgbouncer"), Oban("pgbouncer"), Pgmq("pgbouncer")), plan.side_rounds, once), [load, clients, batch])
    return Table(
        "The SQL of libraries",
        TEXT % (plan.side_rounds, plan.seconds) + "River (Go) and Oban (Elixir): their tables, indexes and statements, sent by "
        "the same clients through pgbouncer; without the libraries, and without what they save by finishing jobs in batches. "
        "Their finished jobs stay in the table, ours and those of pgmq go. drain: %d jobs are there, taken and finished." % plan.outside_drain,
        ["load", "clients", "batch", "", "jobs/s", "qbouncer is x", *COST], rows)


def _all_cpu(costs):
    """Of proxy and Postgres, for each round."""
    return [None if x is NO_COST else x.pooler_us + x.postgres_us for x in costs]


def publish(rig, plan):
    """PUBLISH to a topic with one queue, beside PUSH"""
    rows, goals = [], []
    one = Pushed()
    with both_poolers(rig) as poolers:
        for clients, batch in ((1, 1), (16, 1), (100, 1), (1, 100)):
            def once(c, clients=clients, batch=batch):
                c.fresh(rig, poolers)
                c.loop(rig, poolers, clients, min(plan.seconds, 1), load="push", batch=batch)  # what is asked for first
                got = c.loop(rig, poolers, clients, plan.seconds, load="push", batch=batch)
                return got["jobs"], got["cost"]
            got = compare((one, Published(), PushedWithHeaders()), plan.rounds, once)
            for c, (rates, costs) in got.items():
                cpu = number(ratio_of(_all_cpu(costs), _all_cpu(got[one][1])), "%.2f")
                rows.append([clients, batch, c.label(), number(median(rates)), "" if c is one else cpu,
                             *_cost_cells(costs)])
                if isinstance(c, Published):
                    goals.append("%s x with %d clients%s" % (cpu, clients, " in hundreds" * (batch > 1)))
    return Table(
        "PUBLISH to one queue",
        "Jobs per second; how many times the CPU of PUSH (proxy and Postgres together) a PUBLISH costs whose topic has one "
        "queue: medians of the rounds' ratios (rounds of each: %d, of %g s, the order alternating). Per job: microseconds of "
        "CPU, bytes of WAL, transactions that write. A job that was published has its topic in its headers, which the third "
        "line has, too." % (plan.rounds, plan.seconds),
        ["clients", "batch", "", "jobs/s", "x CPU", *COST], rows,
        [Goal("PUBLISH to one queue", "<= 1.3 x PUSH", ", ".join(goals))])


def drain(rig, plan):
    """take and done of a full queue, and the dead rows of it"""
    rows = []
    for clients, batch, share in ((100, 1, 5), (8, 100, 1)):
        n = plan.drain // share
        dead = {}
        with both_poolers(rig) as poolers:
            def once(c, clients=clients, batch=batch, n=n):
                c.fresh(rig, poolers)
                c.fill(rig, poolers, n)
                rig.psql("VACUUM ANALYZE " + c.table)
                got = c.loop(rig, poolers, clients, 60, load="drain", batch=batch, limit=10 ** 9)
                dead[c] = got["rows"]
                return got["jobs"], got["cost"]
            # at least two takes and the rest: the first one of a queue asks for its number
            got = compare(SHORT, 1, once)
        for line, c in zip(rows_of(got, [n, clients, batch]), got):
            rows.append(line + [number(changed_rows(rig, c.table) / dead[c], "%.2f")])
    return Table(
        "Drain only",
        "So many jobs are in the queue (and it has been vacuumed and analysed); the clients take and "
        "finish them until there is none. One round. Dead rows: row versions made dead per job, by "
        "UPDATE and DELETE. The rest as above.",
        ["jobs", "clients", "batch", "", "jobs/s", "qbouncer is x", *COST, "dead rows"], rows)


def queues(rig, plan):
    """many queues, at first and later"""
    many = Qbouncer("many%d")
    one, first, later = (1, ""), (plan.queues, "at first"), (plan.queues, "later")
    got = {row: ([], [], []) for row in (one, first, later)}
    with both_poolers(rig) as poolers:
        def once(row):
            figures = (QB if row is one else many).loop(rig, poolers, 100, plan.seconds, queues=row[0])
            for column, figure in zip(got[row], (figures["jobs"], figures["cost"],
                                                 rig.postgres_memory() / 1048576)):
                column.append(figure)
        rig.statement(poolers["qbouncer"], *("QUEUE CREATE many%d IF NOT EXISTS" % i
                                             for i in range(plan.queues)))
        QB.fresh(rig, poolers)
    with both_poolers(rig) as poolers:  # anew: sessions keep what they have seen of the queues that they made
        once(first)
        many.loop(rig, poolers, 100, plan.warm, queues=plan.queues)
        for order in turns((one, later), plan.side_rounds):
            for row in order:
                once(row)
        # one queue is measured in sessions that have met the others
        rows = [[*row, number(median(rates)), number(median(rates) / median(got[one][0]), "%.2f"),
                 *_cost_cells(costs), "" if row is one else number(max(memory))] for row, (rates, costs, memory) in got.items()]
    return Table(
        "Many queues",
        "As one at a time with 100 clients; each job goes to one of so many queues, at random, and is "
        "taken from there. At first: %g s with sessions that know none of them; later: when the same has "
        "run for %g s more. The ratio is to one queue. MiB: what the processes of Postgres have for "
        "themselves at the most; a session plans the statements of each queue that it meets, and keeps "
        "the plans. The queues were made in other sessions." % (plan.seconds, plan.warm),
        ["queues", "", "jobs/s", "ratio", *COST, "MiB"], rows)


# -- instructions ----------------------------------------------------------------------------------


def statements(rig, plan):
    """user-space instructions per QUEUE statement (callgrind)"""
    count = plan.count
    scripts = {}
    for mode, token in (("simple", "':token'"), ("prepared", ":token")):
        take = "QUEUE TAKE %s \\gset\n" % QB.queue
        for name, text in (("push", QB.push(1) + ";\n"), ("take", take),
                           ("take and done", take + "QUEUE DONE %s;\n" % token)):
            scripts[mode, name] = "%s/%s-%s.sql" % (rig.dir, mode, name.replace(" ", "-"))
            rig.write(scripts[mode, name], text)

    def before(pooler):
        poolers = {"qbouncer": pooler}
        QB.fresh(rig, poolers)
        QB.fill(rig, poolers, 4 * count + 100)

    rows = []
    for (mode, name), script in scripts.items():
        got = rig.instructions("qbouncer", "tx", mode, 1, count, script=script, before=before)
        rows.append([name, mode, number(got)])
    return Table(
        "Instructions per QUEUE statement",
        "Instructions that qbouncer itself executes, without the kernel, counted by callgrind: one client, one job at "
        "a time. A take leaves its leases to the connection.",
        ["statement", "protocol", "instructions"], rows)
