"""What a load costs: CPU, WAL, transactions.

For:     loads/.
Must not know: which load.
Entry points: Meter, NO_COST, changed_rows.

    meter = Meter(rig, pooler)
    ... n jobs ...
    cost = meter.read(n)        # per job: .postgres_us .pooler_us .wal .transactions
"""

from collections import namedtuple

Cost = namedtuple("Cost", "postgres_us pooler_us wal transactions")

# of what could not be measured
NO_COST = Cost(None, None, None, None)

# transactions that write: each takes a number
COUNTERS = ("SELECT pg_current_wal_insert_lsn() - '0/0', "
            "txid_snapshot_xmax(txid_current_snapshot())")


class Meter:
    """Counts from its making on."""

    def __init__(self, rig, pooler=None):
        self.rig = rig
        self.pooler = pooler
        self.before = self._now()

    def _now(self):
        wal, xids = self.rig.psql(COUNTERS).split("|")
        return (self.rig.postgres_cpu(), self.pooler.cpu() if self.pooler else None, float(wal),
                float(xids))

    def read(self, jobs):
        """Cost: of each of that many jobs."""
        then, now = self.before, self._now()
        pooler = (now[1] - then[1]) / jobs * 1e6 if self.pooler else None
        return Cost((now[0] - then[0]) / jobs * 1e6, pooler, (now[2] - then[2]) / jobs,
                    (now[3] - then[3]) / jobs)


def changed_rows(rig, table):
    """Row versions that were made dead in a table until now: by UPDATE and DELETE. Sessions tell
    it when they end or rest: those of a pooler that has been stopped have."""
    return float(rig.psql("SELECT n_tup_upd + n_tup_del FROM pg_stat_user_tables "
                          "WHERE relid = '%s'::regclass" % table))
