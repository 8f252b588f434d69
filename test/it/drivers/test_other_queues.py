"""Queues that are libraries of Node run behind transaction pooling as they are: graphile-worker, which needs LISTEN, and
pg-boss. Fewer servers than they have connections. Then their jobs are moved over, as doc/coming-from.md has it.
"""

import os
import shutil
import subprocess

import pytest

from moving import moves
from tree import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = os.path.join(ROOT, "build", "drivers", "node", "node_modules")

PRINTS = {
    "graphile-worker": ["migrated", "woken by LISTEN", "many 21 21", "job key", "tried again", "never false", "stopped"],
    "pg-boss": ["started", "sent true", "fetched 5", "worked 16", "once true true", "failed retry", "schedules 1",
                "stopped well"],
}

MOVED = {
    "graphile-worker": ({"to": "moved"}, "later", 5, "m", "line", 7),
    "pg-boss": ({"to": "moved"}, "later", 5, "m", None, 7),
}


@pytest.mark.parametrize("servers", [3, 1])
@pytest.mark.parametrize("library", PRINTS)
def test_library(qbouncer, db, tmp_path, library, servers):
    if not os.path.isdir(os.path.join(MODULES, library)):
        pytest.skip("npm has not fetched " + library)
    proxy = qbouncer(pool_mode="transaction", default_pool_size=servers)
    program = shutil.copy(os.path.join(HERE, "node", library + ".mjs"), tmp_path)
    os.symlink(MODULES, os.path.join(tmp_path, "node_modules"))
    out = subprocess.run(["node", program], capture_output=True, text=True, timeout=90,
                         env=dict(os.environ, QB_URL=f"postgres://app:x@127.0.0.1:{proxy.port}/{db}"))
    assert out.stdout.splitlines() == PRINTS[library], out.stderr + out.stdout
    with proxy.connect(db) as conn:
        conn.execute("QUEUE CREATE mail")
        for statement in moves(library):
            conn.execute(statement)
        assert conn.execute("""SELECT p.payload, p.state, p.priority, p.key, p."group", q.max_attempts
            FROM queue.peek('mail') p JOIN queue.q_mail q USING (id)""").fetchall() == [MOVED[library]]
