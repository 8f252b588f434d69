"""psql, as at a terminal: it has one, so that a cancel by its user (SIGINT) is no end of it.

Commands in, answers out: ../README.md. psql (15) has no parameters of the protocol: its variables are literals that
it quotes itself, :'name'.
"""

import csv
import ctypes
import io
import os
import pty
import re
import signal
import subprocess
import sys
import tty

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

from runner import DATABASE, HOST, PASSWORD, PORT, USER, Runner, main, next_line  # noqa: E402

PRODUCE = r"""
-- [producer]
-- psql -v order=1 -v payload='{"order": 1}' -f this
BEGIN;
INSERT INTO orders VALUES (:order);
QUEUE PUSH mail :'payload';
COMMIT; -- both, or neither: after an error COMMIT is a ROLLBACK
-- [/producer]
"""

WORK = r"""
-- [worker]
-- One turn. The job is in the variables job_id, job_token, job_payload ...
\unset job_token
QUEUE TAKE mail WAIT '20s' \gset job_
\if :{?job_token}
  BEGIN;
  INSERT INTO sent VALUES ((:'job_payload'::jsonb ->> 'order')::int);
  \if :ERROR
    \set reason :LAST_ERROR_MESSAGE
    ROLLBACK;
    QUEUE FAIL :'job_token' ERROR :'reason';
  \else
    QUEUE DONE :'job_token'; -- the work and DONE commit together, or not at all
    COMMIT;
  \endif
\endif
-- [/worker]
"""

MARK = "--- end of the answer ---"
NULL = "(nothing)"
PR_SET_PDEATHSIG = 1


def quoted(text):
    """As \\set reads it."""
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "''")


class Psql(Runner):
    def __init__(self):
        self.master, terminal = pty.openpty()
        tty.setraw(terminal)
        env = dict(os.environ, PGPASSWORD=PASSWORD, PGHOST=HOST, PGPORT=str(PORT), PGUSER=USER, PGDATABASE=DATABASE,
                   PGAPPNAME="psql")
        prompts = [w for n in "123" for w in ("-v", "PROMPT%s=" % n)]
        # it dies with its program, without a word: no end of the terminal tells it before
        prctl = ctypes.CDLL(None).prctl
        self.process = subprocess.Popen(
            ["psql", "-X", "-q", "-n", "-P", "pager=off", "-P", "format=csv", "-P", "null=" + NULL] + prompts,
            stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL, env=env,
            pass_fds=[self.master],
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        os.close(terminal)
        self.read = b""
        self.say("")
        self.answered()  # it has connected

    def say(self, sql):
        os.write(self.master, ("%s\n\\echo '%s' :ERROR :SQLSTATE :ROW_COUNT :LAST_ERROR_MESSAGE\n" % (sql, MARK))
                 .encode())

    def answered(self):
        """What it has printed for the statement; error or not, SQLSTATE, number of rows, message."""
        end = re.compile(re.escape(MARK.encode()) + rb" (\S+) (\S+) (\S+) ?([^\n]*)\n")
        while not end.search(self.read):
            self.read += os.read(self.master, 1 << 16)
        found = end.search(self.read)
        out, self.read = self.read[:found.start()], self.read[found.end():]
        return (out.decode(),) + tuple(w.decode() for w in found.groups())

    def result(self):
        out, error, state, count, message = self.answered()
        if error == "true":
            return {"error": state, "class": "ERROR", "message": message}
        lines = list(csv.reader(io.StringIO(out)))
        rows = [[None if v == NULL else v for v in line] for line in lines[1:]]
        return {"count": int(count), "columns": lines[0] if lines else [], "rows": rows}

    def written(self, sql, params):
        """The statement with variables in the place of its parameters."""
        before = ""
        for i, v in enumerate(params, 1):
            if isinstance(v, str):
                before += "\\set p%d %s\n" % (i, quoted(v))
            word = "NULL" if v is None else str(v) if isinstance(v, int) else ":'p%d'" % i
            sql = re.sub(r"\$%d\b" % i, word, sql)
        return before, sql

    def ask(self, sql, params=(), end=";"):
        before, sql = self.written(sql, params)
        self.say(before + sql + end)
        return self.result()

    def do_query(self, sql, *params):
        return self.ask(sql, params)

    do_exec = do_query

    def do_cursor(self, sql, n):
        """FETCH_COUNT: a cursor for what begins with SELECT."""
        self.say("\\set FETCH_COUNT %d\n%s;\n\\unset FETCH_COUNT" % (n, sql))
        return self.result()

    def do_stream(self, sql):
        return self.do_cursor(sql, 2)

    def do_batch(self, sql, *params):
        """Several statements in one string."""
        parts = [re.sub(r"\$1\b", "$%d" % i, sql) for i in range(1, len(params) + 1)]
        return self.done(self.ask(" \\; ".join(parts), params))

    @staticmethod
    def done(got):
        return got if "error" in got else {"ok": True}

    def do_begin(self):
        return self.done(self.ask("BEGIN"))

    def do_commit(self):
        return self.done(self.ask("COMMIT"))

    def do_rollback(self):
        return self.done(self.ask("ROLLBACK"))

    def do_cancel(self, sql):
        self.say(sql + ";")
        next_line()
        self.process.send_signal(signal.SIGINT)
        return self.result()

    def do_reconnect(self):
        self.ask("\\c", end="")
        return {"ok": True}

    def do_produce(self, n):
        self.say("\\set order %s\n\\set payload '{\"order\": %s}'%s" % (n, n, PRODUCE))
        return self.done(self.result())

    def do_work(self):
        self.say(WORK + "\\echo took :{?job_token}")
        return {"ok": "took TRUE" in self.answered()[0]}

    def close(self):
        os.write(self.master, b"\\q\n")
        self.process.wait()


if __name__ == "__main__":
    main(Psql())
