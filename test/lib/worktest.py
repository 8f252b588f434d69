"""What the tests of qbouncer-work share.

For:     test/it/work.
Entry points: fixtures work_program, work, work_at; push, job, error_of, gone.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import uuid

import pytest

from conftest import find_program
from proxy import wait_for


@pytest.fixture(scope="module")
def work_program():
    """A copy beside that of qbouncer: $QB_BUILD may be in a folder that is not everybody's."""
    path = os.path.join(os.path.dirname(find_program()), "qbouncer-work")
    folder = tempfile.mkdtemp(prefix="qbwork", dir="/tmp")
    yield shutil.copy(path, folder)
    shutil.rmtree(folder, ignore_errors=True)


class Work:
    """A running qbouncer-work; its commands, and theirs, have its mark in their environment."""

    def __init__(self, program, dsn, folder, script, *options, queue="mail"):
        self.folder = folder
        self.mark = "QB_TEST_WORK=%s" % uuid.uuid4().hex
        self.err = open(os.path.join(folder, "stderr"), "ab+")
        command = ["sh", "-c", script] if isinstance(script, str) else script
        env = dict(os.environ, **dict([self.mark.split("=")]))
        self.p = subprocess.Popen([program, "-d", dsn, "-q", queue, *options, "--", *command], stdin=subprocess.DEVNULL,
                                  stderr=self.err, cwd=folder, env=env)

    def left(self):
        """The processes that it has started, and what these have: also those that are nobody's children any more."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open("/proc/%s/environ" % pid, "rb") as f:
                if self.mark.encode() in f.read().split(b"\0") and int(pid) != self.p.pid:
                    found.append(int(pid))
        return found

    def end(self):
        """Whatever state it is in: SIGKILL for it, then for each that it has left."""
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait(20)
        while self.left():
            for pid in self.left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        text = self.text()
        self.err.close()
        return text

    def text(self):
        self.err.seek(0)
        return self.err.read().decode(errors="replace")

    def wait(self, code=0):
        assert self.p.wait(30) == code, self.text()
        return self.text()

    def signal(self, signo):
        self.p.send_signal(signo)

    def file(self, name):
        """What the command wrote to a file in its folder, when the line is whole."""
        def look():
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8") as f:
                    got = f.read()
            except FileNotFoundError:
                return None
            return got if got.endswith("\n") else None
        return wait_for(look, name).strip()


@pytest.fixture
def work_at(work_program, tmp_path):
    """Starts one: work_at(dsn, script, *options, queue=). Each has a folder of its own, and all end with the test."""
    made = []

    def make(dsn, script, *options, **more):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Work(work_program, dsn, str(folder), script, *options, **more))
        return made[-1]
    yield make
    texts = [w.end() for w in made]
    for text in texts:
        assert "Sanitizer" not in text and "runtime error" not in text, text


@pytest.fixture
def work(work_at, qproxy, db):
    def make(script, *options, **more):
        return work_at(qproxy.dsn(db), script, *options, **more)
    return make


def push(q, payload="1", more=""):
    return q.rows("QUEUE PUSH mail '%s'%s RETURNING JOB" % (payload, more))[0]["job"]


def job(q, name):
    return q.rows("QUEUE JOB '%s'" % name)[0]


def error_of(q, name, state="later"):
    got = job(q, name)
    assert got["state"] == state, got
    return got["error"]


def gone(pid):
    """Nobody has this number, or it waits for its parent to hear of it."""
    try:
        with open("/proc/%s/stat" % pid, encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
