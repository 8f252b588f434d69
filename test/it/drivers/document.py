"""Writes doc/drivers.md from the catalogue and from the examples in the tested programs.

    /usr/bin/python3 test/it/drivers/document.py        # test_document.py fails when it is not current

For:     whoever changed a program or the catalogue.
Must not know: whether the drivers are there.
Entry points: text(), PATH.
"""

import os
import re
import textwrap

from catalogue import DRIVERS, HERE, ROOT, TOOLS

PATH = os.path.join(ROOT, "doc", "drivers.md")
FENCES = {"Python": "python", "Node": "js", "Java": "java", "Go": "go", "Rust": "rust", "Ruby": "ruby", "Perl": "perl",
          "PHP": "php", "Tcl": "tcl", "C": "c", "C++": "cpp", "SQL": "sql"}

LIMITED = {2: "two jobs", 5: "all at once", "42601": "42601", None: "–"}


def example(driver, part):
    """What stands between the marks in its program."""
    with open(driver.source, encoding="utf-8") as f:
        found = re.search(r"\n[^\n]*\[%s\][^\n]*\n(.*?)\n[^\n]*\[/%s\]" % (part, part), f.read(), re.S)
    return textwrap.dedent(found.group(1).expandtabs(4)).strip("\n")


def cell(v):
    return {True: "yes", False: "–", None: "–"}.get(v, str(v)) if not isinstance(v, int) or isinstance(v, bool) else str(v)


def table():
    lines = ["| driver | language | PUSH of one reports | prepares | TAKE by cursor, 2 rows at a time | batches | pool | "
             "cancel | time-out | and the connection then |", "|" + "---|" * 10]
    for d in DRIVERS + TOOLS:
        lines.append("| %s |" % " | ".join([
            d.name, d.language, "`%s`" % d.push if d.push is not None else "–", cell(d.prepared), LIMITED[d.limited], cell(d.batch), cell(d.pool),
            cell(d.cancel), cell(d.timeout), d.after or "–"]))
    return "\n".join(lines)


def examples():
    out = []
    for d in DRIVERS:
        if d.example:
            code = "\n\n".join(example(d, part) for part in ("producer", "worker"))
            out.append("### %s, %s\n\n```%s\n%s\n```" % (d.language, d.name, FENCES[d.language], code))
    return "\n\n".join(out)


def text():
    with open(os.path.join(HERE, "drivers.md.in"), encoding="utf-8") as f:
        return f.read().replace("@table@", table()).replace("@examples@", examples())


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as out_file:
        out_file.write(text())
