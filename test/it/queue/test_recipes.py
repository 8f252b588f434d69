"""doc/recipes.md is run as it stands: each section in a database of its own, each prompt a psql through the proxy.

What it prints has to be what the document says, but for times, tokens, blanks, and what stands behind `...`.
"""

import os
import re
import select
import signal
import subprocess
import sys

import pytest

from pgcluster import pg_bin
from proxy import wait_for
from queuetest import tag
from tree import ROOT

PROMPT = re.compile(r"(\w+)=> (.*)")
WAITS = re.compile(r"\s+-- waits$")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+\d\d")
TOKEN = re.compile(r"\b(\d+-\d+)-[0-9a-f]{16}\b")


class Statement:
    """What one connection says, and what is printed then."""

    def __init__(self, who, text):
        self.who, self.text, self.prints = who, WAITS.sub("", text), []
        self.waits = bool(WAITS.search(text))

    def is_whole(self):
        if self.text.count("$$") % 2:
            return False
        return self.waits or self.text.startswith("\\") or bool(re.search(r";$|\\g\w*( [^;]*)?$", self.text))


class Program:
    def __init__(self, text):
        self.text = text


def sections():
    """Title and steps of each."""
    with open(os.path.join(ROOT, "doc", "recipes.md"), encoding="utf-8") as f:
        parts = re.split(r"^## (.*)\n", f.read(), flags=re.M)[1:]
    return [(title, steps(text)) for title, text in zip(parts[::2], parts[1::2])]


def steps(text):
    made, open_one, program = [], None, None
    for line in text.splitlines():
        if line.startswith("```"):
            if program is None:
                program = []
            else:
                made.append(Program("\n".join(program) + "\n"))
                program = None
        elif program is not None:
            program.append(line)
        elif not line.startswith("    "):
            open_one = None
        else:
            line = line[4:]
            said = PROMPT.match(line)
            if said:
                open_one = Statement(*said.groups())
                made.append(open_one)
            elif not open_one.is_whole():
                open_one.text += "\n" + line
            else:
                open_one.prints.append(line)
    return made


def plain(lines):
    """As it is compared."""
    text = "\n".join(re.sub(r"\s*-{2,}[-+]*", "", re.sub(r" +", " ", x)).strip() for x in lines)
    return [x for x in TOKEN.sub(r"\1-TOKEN", TIME.sub("TIME", text)).split("\n") if x]


def is_like(says, printed):
    says, printed = plain(says), plain(printed)
    return len(says) == len(printed) and all(
        p.startswith(s[:-3]) if s.endswith("...") else p == s for s, p in zip(says, printed))


class Psql:
    def __init__(self, proxy, db):
        self.p = subprocess.Popen([os.path.join(pg_bin(), "psql"), "-X", "-P", "pager=off", proxy.dsn(db)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=dict(os.environ, PGTZ="UTC"))
        self.seen = b""
        self.owes = []

    def send(self, statement):
        self.owes.append(statement)
        self.p.stdin.write(statement.text.encode() + b"\n\\echo READY\n")
        self.p.stdin.flush()

    def check(self):
        """What it has been told is what it has printed; waits for that."""
        while self.owes:
            while b"READY\n" not in self.seen:
                assert select.select([self.p.stdout], [], [], 60)[0], self.seen
                got = os.read(self.p.stdout.fileno(), 65536)
                assert got, self.seen
                self.seen += got
            out, self.seen = self.seen.split(b"READY\n", 1)
            statement = self.owes.pop(0)
            printed = out.decode().splitlines()
            assert is_like(statement.prints, printed), "%s\nprints\n%s" % (statement.text, "\n".join(printed))

    def end(self):
        self.p.stdin.close()
        self.p.wait(20)
        self.p.stdout.close()


def run_program(proxy, db, text):
    subprocess.run([sys.executable, "-c", "DSN = %r\n" % proxy.dsn(db) + text], check=True, timeout=60)


@pytest.mark.parametrize("title,steps", [x for x in sections() if x[0] != "A worker that stops gracefully"],
                         ids=lambda x: x if isinstance(x, str) else "")
def test_section(qbouncer, db, title, steps):
    proxy = qbouncer(queue_rescan="1h")
    by_name = {}
    try:
        for step in steps:
            if isinstance(step, Program):
                run_program(proxy, db, step.text)
                continue
            one = by_name.get(step.who) or by_name.setdefault(step.who, Psql(proxy, db))
            one.send(step)
            if step.waits:
                wait_for(lambda: proxy.console("SHOW WAITERS"), "a waiter")
            else:
                one.check()
        for one in by_name.values():
            one.check()
    finally:
        for one in by_name.values():
            one.end()


def test_all_sections_are_named():
    with open(os.path.join(ROOT, "doc", "recipes.md"), encoding="utf-8") as f:
        listed = re.findall(r"^- \[(.*?)\]", f.read(), re.M)
    assert listed == [title for title, _ in sections()]


HANDLE = """
import os, sys
def handle(payload):
    print("working", flush=True)
    sys.stdin.readline()
"""


def read_line(program):
    assert select.select([program.stdout], [], [], 30)[0]
    return program.stdout.readline()


@pytest.mark.parametrize("moment", ["waits", "works"])
def test_graceful(qbouncer, db, moment):
    """Stopped while it waits it ends at once; while it works, behind its DONE."""
    (program,) = [s for title, made in sections() if title == "A worker that stops gracefully" for s in made]
    proxy = qbouncer(queue_rescan="1h")
    with proxy.wire(db) as w:
        tag(w, "QUEUE CREATE mail")
        p = subprocess.Popen([sys.executable, "-c", "DSN = %r\n" % proxy.dsn(db) + HANDLE + program.text],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            if moment == "works":
                tag(w, "QUEUE PUSH mail '1', '2'")
                assert read_line(p) == b"working\n"
            else:
                wait_for(lambda: proxy.console("SHOW WAITERS"), "a waiter")
            p.send_signal(signal.SIGTERM)
            p.stdin.write(b"\n")
            p.stdin.flush()
            assert p.wait(20) == 0
            (left,) = w.rows("SELECT ready, leased FROM queue.stats('mail')")
            assert left == dict(ready="1" if moment == "works" else "0", leased="0")
        finally:
            p.kill()
            p.wait()
            p.stdin.close()
            p.stdout.close()
