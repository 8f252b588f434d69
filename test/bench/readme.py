"""The figures of README.md, out of the tables of a run.

For:     run.py.
Must not know: how they are measured.
Entry points: update.

A line of README's table is known by its first cell. What a run has not measured stays as it was.
"""

import re


class Absent(Exception):
    """The run has no such figure."""


class _Run:
    """Its tables by the name of their part."""

    def __init__(self, tables):
        self.tables = {table.part: table for table in tables}

    def cell(self, part, column, *row):
        """The text in that column of the first row that begins so."""
        table = self.tables.get(part)
        for cells in table.rows if table else ():
            if list(map(str, cells[:len(row)])) == list(map(str, row)):
                return str(cells[table.columns.index(column)])
        raise Absent

    def rate(self, part, *row):
        """Jobs per second, in three digits: 12 200."""
        value = int(self.cell(part, "jobs/s", *row))
        digits = max(len(str(value)) - 3, 0)
        return "{:,d}".format(round(value, -digits)).replace(",", " ")


SQL, PGMQ = "hand-written SQL", "pgmq"
POOLED = ", pgbouncer (tx)"
SNAPSHOT = "REPEATABLE READ snapshot"


def _one_by_one(run, _pgbouncer, clients, by):
    return (run.rate("jobs", clients, "qbouncer") + " jobs/s",
            "%s by %s, %s by pgmq" % (run.rate("jobs", clients, SQL + POOLED), by, run.rate("jobs", clients, PGMQ + POOLED)))


def _batches(run, _pgbouncer):
    return (run.rate("batches", 100, 8, "qbouncer") + " jobs/s", "%s by SQL without a pooler, %s by pgmq" % (
        run.rate("batches", 100, 8, SQL + ", direct"), run.rate("batches", 100, 8, PGMQ + ", direct")))


def _snapshot(run, _pgbouncer):
    return ("%s of its rate" % run.cell("disturb", "share", SNAPSHOT, "qbouncer"),
            "%s of its rate is left to SQL" % run.cell("disturb", "share", SNAPSHOT, SQL))


def _waiting(run, _pgbouncer):
    return ("no server connection, %s KiB each, %s of a core" % (
        run.cell("park", "KiB", "default", 10000), run.cell("park", "idle CPU", "default", 10000)), "")


def _killed(run, _pgbouncer):
    for goal in run.tables["death"].goals if "death" in run.tables else ():
        if goal.what == "worker killed":
            return "its job is with another one after %s" % goal.measured.replace(" at most", ""), ""
    raise Absent


def _select(run, pgbouncer):
    at = [run.cell("select", "ratio", "simple, transaction", n) for n in (16, 100)]
    return "%s and %s × its rate" % tuple(at), pgbouncer.replace("PgBouncer", "pgbouncer")


LINES = {
    "100 clients push, take and finish a job, one at a time":
        lambda run, p: _one_by_one(run, p, 100, "SKIP LOCKED SQL through pgbouncer"),
    "the same in batches of 100 by 8 clients": _batches,
    "one client alone, one at a time": lambda run, p: _one_by_one(run, p, 1, "SQL"),
    "100 clients, while another session holds a snapshot": _snapshot,
    "10 000 workers wait": _waiting,
    "a worker is killed": _killed,
    "`pgbench -S`, 16 and 100 clients": _select,
}


def update(text, tables, pgbouncer):
    """README's text with the figures of these tables. pgbouncer: what it calls itself."""
    run = _Run(tables)
    for first, figures in LINES.items():
        try:
            line = "| %s | %s | %s |" % (first, *figures(run, pgbouncer))
        except Absent:
            continue
        text, found = re.subn(r"^\| %s \|.*\|$" % re.escape(first), lambda _, line=line: line.replace("|  |", "| |"), text,
                              flags=re.M)
        if found != 1:
            raise ValueError("README.md has %d lines of: %s" % (found, first))
    return text
