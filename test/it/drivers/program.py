"""One running driver program.

For:     test_drivers.py.
Must not know: the proxy; what a driver can do.
Entry points: Program (ask, send, answer, kill, close).
"""

import json
import os
import select
import subprocess
import tempfile
import time

LIMIT = 60  # of an answer, seconds: a machine may be slow, a driver that hangs is a failure


class Program:
    """A command is a verb and its words; the answer is one line of JSON: see README.md."""

    def __init__(self, driver, host, port, dbname, user="app", password="app-password"):
        self.driver = driver
        self.errors = tempfile.TemporaryFile("w+")
        env = dict(os.environ, QB_HOST=host, QB_PORT=str(port), QB_DB=dbname, QB_USER=user, QB_PASSWORD=password,
                   **driver.environment())
        for name in [n for n in env if n.startswith("PG") and n != "PGSYSCONFDIR"]:
            del env[name]
        self.process = subprocess.Popen(driver.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=env, cwd="/", bufsize=0)
        self.read = b""

    def send(self, *words):
        """A command, or the word that one waits for."""
        assert not any("\n" in w or "\t" in w for w in words), words
        self.process.stdin.write(("\t".join(words) + "\n").encode())

    def answer(self, limit=LIMIT):
        """What the program says to the oldest command that it has not answered."""
        deadline = time.monotonic() + limit
        while b"\n" not in self.read:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert ready, "%s does not answer in %d s\n%s" % (self.driver.name, limit, self.noise())
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            assert piece, "%s ended\n%s" % (self.driver.name, self.noise())
            self.read += piece
        line, self.read = self.read.split(b"\n", 1)
        return json.loads(line)

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def ok(self, *words):
        """The answer of a command that must not fail."""
        got = self.ask(*words)
        assert "error" not in got and "skip" not in got, "%s: %s" % (words, got)
        return got

    def noise(self):
        self.errors.seek(0)
        return self.errors.read()[-4000:]

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        """As if its machine were gone: no goodbye."""
        self.process.kill()
        self.end()

    def close(self):
        """The program closes its connection and exits."""
        try:
            self.process.stdin.close()
            code = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("%s does not end\n%s" % (self.driver.name, self.noise()))
        noise = self.noise()
        self.end()
        assert code == 0, "%s: exit code %d\n%s" % (self.driver.name, code, noise)

    def end(self):
        self.process.wait()
        for f in (self.process.stdin, self.process.stdout, self.errors):
            f.close()
