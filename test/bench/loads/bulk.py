"""Much data through the poolers: rows and statements of 100 MB, COPY.

For:     run.py.
Entry points: rows, copy.
"""

from table import Table, median, number, ratio, turns

NAMES = ("qbouncer", "pgbouncer", "direct")
BOTH = NAMES[:2]

COLUMNS = ["", "clients", "direct MB/s", "qbouncer MB/s", "pgbouncer MB/s", "ratio", "qbouncer CPU", "pgbouncer CPU", "ratio",
           "qbouncer MiB", "pgbouncer MiB"]

TEXT = ("Megabytes per second; seconds of the pooler's CPU for a gigabyte; by how much its resident memory grew at the most, "
        "MiB. Medians of %d rounds, the order of the contenders alternating, and medians of the rounds' ratios. Client and "
        "pooler speak TCP, pooler and Postgres a unix socket. ")

# a line of the COPY, as long as those of clients/bulk.c
LINE = 7999


class _Got:
    """What one contender did in each round."""

    def __init__(self):
        self.rate, self.cpu, self.memory = [], [], []

    def add(self, figures, cpu, memory):
        """A round."""
        self.rate.append(figures["bytes"] / figures["seconds"] / 1e6)
        self.cpu.append(cpu / figures["bytes"] * 1e9 if cpu is not None else None)
        self.memory.append(memory)


def _once(rig, name, load, got):
    """A fresh pooler each time, whose peak is that of this load."""
    if name == "direct":
        got.add(rig.client(None, *load), None, None)
        return
    with rig.pooler(name) as pooler:
        rig.statement(pooler, "SELECT 1")
        memory, cpu = pooler.rss(), pooler.cpu()
        got.add(rig.client(pooler, *load), pooler.cpu() - cpu, (pooler.peak() - memory) / 2 ** 20)


def _row(rig, label, load, rounds):
    got = {name: _Got() for name in NAMES}
    for order in turns(NAMES, rounds):
        for name in order:
            _once(rig, name, load, got[name])
    ours, theirs = got["qbouncer"], got["pgbouncer"]
    return [label, load[1], *(number(median(got[name].rate)) for name in ("direct", *BOTH)), ratio(ours.rate, theirs.rate),
            *(number(median(got[name].cpu), "%.2f") for name in BOTH), ratio(ours.cpu, theirs.cpu),
            *(number(median(got[name].memory), "%.1f") for name in BOTH)]


def rows(rig, plan):
    """rows and statements of 100 MB"""
    size, times = plan.big, plan.big_times
    loads = [("a row to the client", ("read", n, times, "SELECT repeat('x', %d)" % size)) for n in plan.big_clients]
    loads.append(("a statement from the client", ("write", 1, times, size, "SELECT length('%s')")))
    return Table("Rows of %d MB" % (size / 1e6), TEXT % plan.bulk_rounds + "Each client does it %d times." % times, COLUMNS,
                 [_row(rig, label, load, plan.bulk_rounds) for label, load in loads])


def copy(rig, plan):
    """COPY in and out, as fast as it goes"""
    rig.psql("CREATE TABLE IF NOT EXISTS sink (line text)")
    lines = plan.copy // (LINE + 1)
    out = "COPY (SELECT repeat('x', %d) FROM generate_series(1, %d)) TO STDOUT" % (LINE, lines)
    loads = (("COPY TO STDOUT", ("read", 1, 1, out)), ("COPY TO STDOUT", ("read", 4, 1, out)),
             ("COPY FROM STDIN", ("write", 1, 1, plan.copy, "COPY sink FROM STDIN WHERE false")))
    return Table("COPY", TEXT % plan.bulk_rounds + "Lines of %d bytes, %d MB of each client; what comes in is read by Postgres and "
                 "not kept, so that the way is measured and not the disk." % (LINE + 1, plan.copy / 1e6), COLUMNS,
                 [_row(rig, label, load, plan.bulk_rounds) for label, load in loads])
