"""The schema of queues as the sources have it.

For:     tests that want it in a database before anything runs there.
Must not know: clusters, the proxy, pytest.
Entry points: parts, install_script.
"""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parts():
    with open(os.path.join(ROOT, "sql", "order"), encoding="utf-8") as order:
        lines = [line.split("#")[0].strip() for line in order]
    return [os.path.join(ROOT, "sql", line) for line in lines if line]


def install_script():
    """install.sql as the build makes it: the parts, one behind the other."""
    texts = []
    for path in parts():
        with open(path, encoding="utf-8") as part:
            texts.append(part.read())
    return "".join(texts)
