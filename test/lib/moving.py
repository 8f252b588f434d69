"""doc/coming-from.md: the statements, or the programs, that move jobs over from another queue.

For:     test/it.
Entry points: moves, program, COMING_FROM.
"""

import os
import re

from tree import ROOT


COMING_FROM = os.path.join(ROOT, "doc", "coming-from.md")


def program(title):
    """What is indented in a section."""
    with open(COMING_FROM, encoding="utf-8") as f:
        (section,) = re.findall(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), f.read(), re.M | re.S)
    return "\n".join(line[4:] for line in section.splitlines() if line.startswith("    ")) + "\n"


def moves(title):
    """The statements of a section, in their order."""
    text = re.sub(r"--.*", "", program(title))
    return [s.strip() for s in re.findall(r"[^;]+", text) if s.strip()]
