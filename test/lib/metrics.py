"""The page of metrics, read as Prometheus reads it.

For:     test/it.
Entry points: get, samples.
"""

import http.client
import re

LINE = re.compile(r'^(qbouncer_[a-z_]+)(?:\{([a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*)\})? (-?[0-9.e+-]+|NaN)$')


def get(port, path, method="GET", host="127.0.0.1"):
    c = http.client.HTTPConnection(host, port, timeout=15)
    c.request(method, path)
    r = c.getresponse()
    body = r.read().decode()
    c.close()
    return r.status, body, r.getheader("Content-Type")


def samples(port):
    """name and labels -> value; checks the format on the way."""
    status, body, kind = get(port, "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    typed, out = {}, {}
    for line in body.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, what = line.split(" ")
            assert name not in typed, line
            typed[name] = what
        elif not line.startswith("# HELP "):
            m = LINE.match(line)
            assert m, line
            family = m.group(1)
            if family not in typed:
                family = re.sub(r"_(bucket|sum|count)$", "", family)
                assert typed[family] == "histogram", line
            if typed[family] == "counter":
                assert family.endswith("_total"), line
            key = m.group(1) + ("{%s}" % m.group(2) if m.group(2) else "")
            assert key not in out, key
            out[key] = float(m.group(3))
    return out
