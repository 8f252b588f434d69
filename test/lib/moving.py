"""doc/coming-from.md: the statements that move jobs over from another queue.

For:     test/it.
Entry points: moves.
"""

import os
import re

from tree import ROOT


def moves(title):
    """The statements of a section, in their order."""
    with open(os.path.join(ROOT, "doc", "coming-from.md"), encoding="utf-8") as f:
        (section,) = re.findall(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), f.read(), re.M | re.S)
    text = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    return [s.strip() for s in re.findall(r"[^;]+", text) if s.strip()]
