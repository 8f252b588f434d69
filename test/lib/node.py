"""Node, for tests that run a program in it.

For:     test/it.
Entry points: node_path.
"""

import os

from tree import ROOT


def node_path():
    """Where the driver `pg` is, or None: QB_NODE_PATH, what test/run.sh has fetched, Debian's."""
    for path in (os.environ.get("QB_NODE_PATH"), os.path.join(ROOT, "build", "node", "node_modules"),
                 "/usr/share/nodejs"):
        if path and os.path.isdir(os.path.join(path, "pg")):
            return path
    return None
