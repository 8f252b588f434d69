"""What was measured, part by part, for doc/bench.md: a run of some parts leaves those of the others as they are.

For:     run.py.
Must not know: how it is printed.
Entry points: Figures.

The file is JSON: of each part its table, and the facts of the run that it is of (a list of names and values).
"""

import json
import os

from table import Goal, Table


class Figures:
    """The parts that have been measured, each with the facts of its run."""

    def __init__(self, path):
        """path: of the file; there is none yet: nothing was measured."""
        self.path = path
        self.parts = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as old:
                self.parts = json.load(old)

    def put(self, table, facts):
        """The newest of its part."""
        self.parts[table.part] = dict(table._asdict(), facts=[list(pair) for pair in facts])

    def tables(self, order):
        """[(table, facts)], the parts in that order. One that is not in it is no part any more, and forgotten."""
        found = []
        for part in order:
            if part in self.parts:
                fields = dict(self.parts[part])
                facts = [tuple(pair) for pair in fields.pop("facts")]
                fields["goals"] = [Goal(*goal) for goal in fields["goals"]]
                found.append((Table(**fields), facts))
        self.parts = {table.part: self.parts[table.part] for table, _ in found}
        return found

    def save(self):
        """As a whole, or not at all."""
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            json.dump(self.parts, out, indent=1, ensure_ascii=False)
            out.write("\n")
        os.replace(self.path + ".new", self.path)
