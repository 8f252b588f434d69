"""Schedules: what those cost that are not due, and how late those are that are due at once.

For:     run.py.
Entry points: schedules.
"""

import time

from common import Failed
from table import Goal, Table, number

MANY, AT_ONCE = 10000, 1000
# rows of the table that were read or written, transactions of the database
READ = ("SELECT s.seq_tup_read + s.idx_tup_fetch, s.n_tup_ins + s.n_tup_upd + s.n_tup_del, d.xact_commit "
        "FROM pg_stat_user_tables AS s, pg_stat_database AS d "
        "WHERE s.relid = 'queue.schedules'::regclass AND d.datname = current_database()")
LATE = ("SELECT count(*), percentile_disc(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY "
        "extract(epoch FROM pushed_at - (headers ->> 'scheduled_at')::timestamptz) * 1000)::int8[] FROM queue.q_ticked")


def _figures(rig, pooler):
    read, written, transactions = map(int, rig.psql(READ, "quiet").split("|"))
    return read, written, transactions, pooler.cpu(), rig.postgres_cpu()


def _watch(rig, pooler, seconds):
    """The differences in that time."""
    time.sleep(2)      # what was told of before is counted
    before = _figures(rig, pooler)
    time.sleep(seconds)
    return [b - a for a, b in zip(before, _figures(rig, pooler))]


def _at_once(rig, pooler):
    """Milliseconds behind their second: the median, 99 of 100, the last."""
    rig.statement(pooler, "SELECT FROM generate_series(1, %d) AS n, LATERAL queue.schedule('due' || n, 'ticked', '1'::jsonb, "
                  "every => '1 day', starting => date_trunc('second', now()) + '8 s')" % AT_ONCE,
                  # the functions notify, which a proxy whose role is a superuser does not hear
                  "QUEUE SCHEDULE told ON ticked EVERY '1 day' PUSH '1'", database="quiet")
    for _ in range(300):
        n, late = rig.psql(LATE, "quiet").split("|")
        if int(n) >= AT_ONCE:
            return [int(ms) for ms in late.strip("{}").split(",")]
        time.sleep(0.1)
    raise Failed("%s of %d schedules were fired" % (n, AT_ONCE))


def schedules(rig, plan):
    """schedules: what those cost that are not due, how late a thousand are that are due at once"""
    seconds = {"quick": 10, "publish": 65}.get(plan.name, 130)
    with rig.pooler("qbouncer") as pooler:
        rig.statement(pooler, "QUEUE DROP ticked IF EXISTS", "QUEUE CREATE ticked", database="quiet")
        none = _watch(rig, pooler, seconds)
        rig.statement(pooler, "SELECT FROM generate_series(1, %d) AS n, LATERAL queue.schedule('far' || n, 'ticked', '1'::jsonb, "
                      "every => '1 day')" % MANY, database="quiet")
        many = _watch(rig, pooler, seconds)
        late = _at_once(rig, pooler)
        rig.statement(pooler, "QUEUE DROP ticked", database="quiet")
    rows = [[what, number(read), number(written), number(transactions), number(ours * 1e3, "%.0f ms"), number(theirs * 1e3, "%.0f ms")]
            for what, (read, written, transactions, ours, theirs) in (("none", none), ("%d, none of them due" % MANY, many))]
    rows.append(["%d due at the same second, beside those" % AT_ONCE, "median %d ms late" % late[0], "99 of 100: %d ms" % late[1],
                 "the last: %d ms" % late[2], "", ""])
    return Table(
        "Schedules",
        "What happens in %d seconds in which nothing is due: rows of queue.schedules that are read and written, transactions of the "
        "database (with those that measure), CPU of the pooler and of Postgres. Last: how late the jobs are of a thousand that "
        "are due at the same second." % seconds,
        ["schedules", "rows read", "rows written", "transactions", "pooler", "Postgres"], rows,
        [Goal("rows written for 10 000 schedules that are not due", "none", number(many[1])),
         Goal("1 000 schedules due at the same second", "within 1 s", "%d ms" % late[2])])
