"""Tables as text for the terminal and as Markdown for doc/bench.md.

For:     run.py.
Must not know: what the figures are.
Entry points: as_text, facts_as_text, write.
"""

import textwrap


def _cells(table):
    return [[str(c) for c in table.columns]] + [[str(c) for c in row] for row in table.rows]


def as_text(table):
    """Columns under each other, the first to the left, figures to the right."""
    cells = _cells(table)
    width = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = ["== " + table.title, textwrap.fill(table.text, 100), ""]
    for row in cells:
        lines.append("  ".join(c.ljust(w) if i == 0 else c.rjust(w)
                               for i, (c, w) in enumerate(zip(row, width))).rstrip())
    return "\n".join(lines)


def facts_as_text(known):
    """Names and values, a line each."""
    return "\n".join("%-12s %s" % pair for pair in known)


def _markdown(table):
    head, *rows = _cells(table)
    lines = ["## " + table.title, "", textwrap.fill(table.text, 100), "",
             "| " + " | ".join(head) + " |",
             "|" + "|".join("---" if i == 0 else "---:" for i in range(len(head))) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def write(path, known, tables, command):
    """doc/bench.md anew."""
    parts = [
        "# Figures",
        "Written by `%s` (or `make bench BENCH_FLAGS=--write`). Both poolers stand before the same "
        "Postgres, on the same machine, in the same run, with the same settings; clients, poolers and "
        "Postgres share its cores. Ratios travel between machines, the figures themselves do not."
        % command,
        "| | |\n|---|---|\n" + "\n".join("| %s | %s |" % pair for pair in known),
    ] + [_markdown(t) for t in tables]
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n\n".join(textwrap.fill(p, 100) if not p.startswith(("|", "#")) else p
                              for p in parts) + "\n")
