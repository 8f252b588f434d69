"""contrib/streams: each program does what its head says, also when it is killed."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from node import node_path
from proxy import wait_for
from queuetest import tag
from tree import ROOT

NODE = pytest.mark.skipif(not shutil.which("node") or not node_path(), reason="node or its driver pg is missing")
LANGUAGES = ["py", pytest.param("js", marks=NODE)]


@pytest.fixture(params=LANGUAGES)
def start(request, qbouncer, db, direct):
    """Starts the program of this name, with what it needs; they end with the test."""
    proxy, started = qbouncer(), []

    def begin(name, *args, **env):
        path = os.path.join(ROOT, "contrib", "streams", name + "." + request.param)
        p = subprocess.Popen([sys.executable if request.param == "py" else "node", path, *args],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env=dict(os.environ, QB_URL="postgres://app@127.0.0.1:%d/%s" % (proxy.port, db),
                                      NODE_PATH=node_path() or "", **env))
        started.append(p)
        return p
    begin.client = proxy.wire(db)
    yield begin
    for p in started:
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()
    begin.client.close()


class Receiver(http.server.ThreadingHTTPServer):
    """Notes what it is sent; refuses as often as it is told to."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got, self.refuse = [], 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_port


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        refused = self.server.refuse > 0
        self.server.refuse -= refused
        self.server.got.append((self.path, self.headers["Idempotency-Key"], body, refused))
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    r = Receiver()
    yield r
    r.shutdown()
    r.server_close()


def test_projection(start, direct):
    c = start.client
    tag(c, "CREATE TABLE totals (customer text PRIMARY KEY, orders bigint NOT NULL, amount numeric NOT NULL)")
    tag(c, "QUEUE CREATE orders WITH (kind = stream)")
    tag(c, "QUEUE SUBSCRIBE totals TO orders FROM BEGINNING")

    def total():
        return direct.execute("SELECT coalesce(sum(orders), 0), coalesce(sum(amount), 0) FROM totals").fetchone()
    n = 0
    for _ in range(3):
        p = start("projection")
        for i in range(50):
            tag(c, "QUEUE PUSH orders '{\"customer\": \"c%d\", \"amount\": 2}'" % (i % 7))
        n += 50
        wait_for(lambda: total()[0] > n - 50, "it has begun")
        p.kill()
        p.wait()
    start("projection")
    wait_for(lambda: total() == (n, 2 * n), "the sum")
    assert direct.execute("SELECT count(*) FROM totals").fetchone() == (7,)


def test_cache(start, direct):
    c = start.client
    tag(c, "CREATE TABLE settings (name text PRIMARY KEY, value text NOT NULL)")
    tag(c, "QUEUE CREATE changes WITH (kind = stream, retain_max = '1 hour')")
    tag(c, "QUEUE TRACK settings IN changes")
    p = start("cache")

    def get(name):
        p.stdin.write(name.encode() + b"\n")
        p.stdin.flush()
        return p.stdout.readline().decode().strip()
    nothing = get("a")
    assert nothing in ("None", "null")
    for sql, name, value in (("INSERT INTO settings VALUES ('a', '1')", "a", "1"),
                             ("UPDATE settings SET value = '2'", "a", "2"),
                             ("UPDATE settings SET name = 'b'", "b", "2"),
                             ("TRUNCATE settings", "b", nothing)):
        get("a")
        get("b")
        direct.execute(sql)
        wait_for(lambda name=name, value=value: get(name) == value, sql)
    assert get("a") == nothing
    p.stdin.close()
    assert p.wait(20) == 0
    assert direct.execute("SELECT count(*) FROM queue.subscriptions").fetchone() == (0,)
    p.stdin = open(os.devnull, "wb")


def test_search(start, receiver):
    c = start.client
    tag(c, "CREATE TABLE articles (id int PRIMARY KEY, title text, body text)")
    tag(c, "QUEUE CREATE articles_changed WITH (kind = stream)")
    tag(c, "QUEUE TRACK articles IN articles_changed FOR INSERT, UPDATE, DELETE")
    tag(c, "QUEUE SUBSCRIBE search TO articles_changed")
    receiver.refuse = 1
    start("search", SEARCH_URL=receiver.url + "/articles")
    tag(c, "INSERT INTO articles VALUES (1, 'one', 'x'), (2, 'two', 'y')")
    tag(c, "UPDATE articles SET title = 'ONE' WHERE id = 1")
    tag(c, "DELETE FROM articles WHERE id = 2")

    def index():
        docs = {}
        for path, _key, body, refused in receiver.got:
            assert path == "/articles/_bulk"
            lines = [json.loads(line) for line in body.splitlines()]
            while lines and not refused:
                (what, about), = lines.pop(0).items()
                assert about["version_type"] == "external"
                doc = lines.pop(0) if what == "index" else None
                if about["version"] > docs.get(about["_id"], (0,))[0]:
                    docs[about["_id"]] = about["version"], doc
        return {k: v[1] for k, v in docs.items()}
    wait_for(lambda: index() == {"1": {"id": 1, "title": "ONE", "body": "x"}, "2": None}, "the index")
    assert receiver.refuse == 0


def test_webhook(start, receiver):
    c = start.client
    tag(c, "QUEUE CREATE orders WITH (kind = stream, retain = '7 days')")
    tag(c, "QUEUE SUBSCRIBE shop TO orders")
    receiver.refuse = 1
    start("webhook", "shop", HOOK_URL=receiver.url + "/events")
    tag(c, "QUEUE PUSH orders '1', '2', '3'")
    wait_for(lambda: len(receiver.got) == 4, "all of them")
    assert [(path, key, body) for path, key, body, refused in receiver.got if not refused] == [
        ("/events", "orders-%d" % n, str(n)) for n in (1, 2, 3)]
    assert receiver.got[0][3] and receiver.got[0][1] == "orders-1"
