"""Tables as text for the terminal and as Markdown for doc/bench.md.

For:     run.py.
Must not know: what the figures are.
Entry points: as_text, facts_as_text, goals_table, write, rewrite.
"""

import os
import re
import textwrap

from table import Table


def _cells(table):
    return [[str(c) for c in table.columns]] + [[str(c) for c in row] for row in table.rows]


def _is_text(cells, i):
    """Whether a column is words: to the left then."""
    return i == 0 or any(re.search("[A-Za-z]{3}", row[i]) for row in cells[1:])


def as_text(table):
    """Columns under each other, words to the left, figures to the right."""
    cells = _cells(table)
    columns = range(len(table.columns))
    width = [max(len(row[i]) for row in cells) for i in columns]
    words = [_is_text(cells, i) for i in columns]
    lines = ["== " + table.title, textwrap.fill(table.text, 100), ""]
    for row in cells:
        lines.append("  ".join(row[i].ljust(width[i]) if words[i] else row[i].rjust(width[i])
                               for i in columns).rstrip())
    return "\n".join(lines)


def facts_as_text(known):
    """Names and values, a line each."""
    return "\n".join("%-12s %s" % pair for pair in known)


def goals_table(tables):
    """What was measured of the project's goals; None when nothing was."""
    rows = [list(goal) for table in tables for goal in table.goals]
    if not rows:
        return None
    return Table("Goals", "What the project set out to reach, and what was measured here; the tables "
                 "below say how.", ["", "goal", "measured"], rows)


def _of(facts, main):
    """What differs from the facts of the newest run, but for the time that it took."""
    differs = [pair for pair in facts if pair not in main and pair[0] not in ("took", "missing", "load before")]
    words = [value if value.split(" ")[0] == name else "%s %s" % (name, value) for name, value in differs]
    return " Of an earlier run: %s." % ", ".join(words) if differs else ""


def _markdown(table, facts=(), main=()):
    cells = _cells(table)
    head, *rows = cells
    marks = ["---" if _is_text(cells, i) else "---:" for i in range(len(head))]
    lines = ["## " + table.title, "", textwrap.fill(table.text, 100), ""]
    if table.part:
        lines += [textwrap.fill("This part alone: `test/bench/run.py %s`.%s" % (table.part, _of(facts, main)), 116,
                                break_on_hyphens=False), ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "|".join(marks) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def write(path, known, measured, command):
    """doc/bench.md anew. known: facts of the newest run; measured: tables with the facts of theirs."""
    goals = goals_table([table for table, _ in measured])
    intro = ("Written by `%s`. What a table compares stands before the same Postgres, on the same machine, in the same "
             "run, the poolers with the same settings; clients, poolers and Postgres share its cores. Ratios "
             "travel between machines, the figures themselves do not." % command)
    parts = ["# Figures", textwrap.fill(intro, 100),
             "| | |\n|---|---|\n" + "\n".join("| %s | %s |" % pair for pair in known)]
    parts += [_markdown(goals)] if goals else []
    parts += [_markdown(table, facts, known) for table, facts in measured]
    _put(path, "\n\n".join(parts) + "\n")


def _put(path, text):
    """As a whole, or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(path + ".new", path)


def rewrite(path, change):
    """A file whose text becomes change(text)."""
    with open(path, encoding="utf-8") as old:
        _put(path, change(old.read()))
