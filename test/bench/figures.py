"""What was measured, part by part, for doc/bench.md: a run of some parts leaves those of the others as they are.

For:     run.py.
Must not know: how it is printed.
Entry points: Figures.

The file is JSON: of each part its table, and the facts of the run that it is of (a list of names and values). A row of a
table has a line, so a difference shows what was measured anew.
"""

import json
import os

from table import Goal, Table


def _json(value, indent=""):
    """Its text; what has nothing inside it, as a row has, is one line."""
    further = indent + " "
    if isinstance(value, dict):
        inside, ends = ["%s: %s" % (_json(name), _json(of, further)) for name, of in value.items()], "{}"
    elif isinstance(value, (list, tuple)) and any(isinstance(of, (dict, list, tuple)) for of in value):
        inside, ends = [_json(of, further) for of in value], "[]"
    else:
        return json.dumps(value, ensure_ascii=False)
    return "%s\n%s%s\n%s%s" % (ends[0], further, (",\n" + further).join(inside), indent, ends[1])


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
            out.write(_json(self.parts) + "\n")
        os.replace(self.path + ".new", self.path)
