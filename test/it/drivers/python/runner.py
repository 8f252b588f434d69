"""What the Python programs of the suite share: commands in, answers out.

For:     the programs in this folder; README.md in the folder above has the commands.
Must not know: which driver it is.
Entry points: Runner (a driver fills in its do_* methods), Dbapi, main.
"""

import datetime
import json
import os
import re
import sys
import threading
import types

HOST, PORT = os.environ["QB_HOST"], int(os.environ["QB_PORT"])
DATABASE, USER, PASSWORD = os.environ["QB_DB"], os.environ["QB_USER"], os.environ["QB_PASSWORD"]
DSN = "host=%s port=%d dbname=%s user=%s password=%s" % (HOST, PORT, DATABASE, USER, PASSWORD)
URL = "postgresql://%s:%s@%s:%d/%s" % (USER, PASSWORD, HOST, PORT, DATABASE)


class Unsupported(Exception):
    """The driver has no such thing."""


def value(field):
    """A parameter of a command: i:7, s:text, n:"""
    kind, text = field[:1], field[2:]
    return {"i": lambda: int(text), "s": lambda: text, "n": lambda: None}[kind]()


def text(v):
    if v is None or isinstance(v, str):
        return v
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, (dict, list)):
        return json.dumps(v, sort_keys=True)
    if isinstance(v, (bytes, memoryview)):
        return bytes(v).hex()
    if isinstance(v, datetime.datetime):
        return v.isoformat()
    return str(v)


def rows_of(rows):
    return [[text(v) for v in row] for row in rows]


def next_line():
    """The word of the test in the middle of a command."""
    return sys.stdin.readline().strip()


def in_thread(work):
    """Starts it; the function that is given waits for its end and gives or raises what came of it."""
    got = []

    def run():
        try:
            got.append((work(), None))
        except Exception as e:  # pylint: disable=broad-except
            got.append((None, e))

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join()
        if got[0][1]:
            raise got[0][1]
        return got[0][0]
    return result


class Runner:
    def sqlstate(self, e):
        return getattr(e, "sqlstate", None) or getattr(e, "pgcode", None)

    def failed(self):
        """After an error of a command."""

    def answer(self, words):
        method = getattr(self, "do_" + words[0], None)
        if method is None:
            return {"skip": words[0]}
        try:
            return method(words[1], *map(value, words[2:])) if len(words) > 1 else method()
        except Unsupported as e:
            return {"skip": str(e)}
        except Exception as e:  # pylint: disable=broad-except
            self.failed()
            return {"error": self.sqlstate(e), "class": type(e).__name__, "message": str(e).split("\n", maxsplit=1)[0]}

    def close(self):
        pass


class Dbapi(Runner):
    """Drivers of PEP 249 in their default mode: a transaction begins by itself, commit ends it."""
    paramstyle = "%s"
    conn = None

    def __init__(self):
        self.in_block = False
        self.conn = self.connect()

    def connect(self):
        raise NotImplementedError

    def sql(self, sql):
        return re.sub(r"\$\d+", self.paramstyle, sql)

    def run(self, conn, sql, params):
        cur = conn.cursor()
        cur.execute(self.sql(sql), params) if params else cur.execute(self.sql(sql))
        return cur

    def ended(self):
        if not self.in_block:
            self.conn.commit()

    def failed(self):
        if not self.in_block:
            self.conn.rollback()

    def result(self, cur):
        return {"columns": [d[0] for d in cur.description], "types": [str(d[1]) for d in cur.description],
                "count": cur.rowcount, "rows": rows_of(cur.fetchall())}

    def do_exec(self, sql, *params):
        count = self.run(self.conn, sql, params).rowcount
        self.ended()
        return {"count": count}

    def do_query(self, sql, *params):
        out = self.result(self.run(self.conn, sql, params))
        self.ended()
        return out

    def do_begin(self):
        self.in_block = True
        return {"ok": True}

    def do_commit(self):
        self.in_block = False
        self.conn.commit()
        return {"ok": True}

    def do_rollback(self):
        self.in_block = False
        self.conn.rollback()
        return {"ok": True}

    def do_reconnect(self):
        self.conn.close()
        self.in_block = False
        self.conn = self.connect()
        return {"ok": True}

    def do_produce(self, n):
        self.produce(self.conn, int(n))
        return {"ok": True}

    def do_work(self):
        return {"ok": self.work(self.conn)}

    def close(self):
        self.conn.close()


def main(runner):
    for line in iter(sys.stdin.readline, ""):
        answer = runner.answer(line.rstrip("\n").split("\t"))
        if isinstance(answer, types.CoroutineType):
            raise TypeError("an answer was not awaited")
        print(json.dumps(answer), flush=True)
    runner.close()


async def async_main(runner):
    """The same for coroutines; the commands are read without blocking the loop."""
    import asyncio
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            break
        words = line.rstrip("\n").split("\t")
        try:
            answer = runner.answer(words)
            if asyncio.iscoroutine(answer):
                answer = await answer
        except Unsupported as e:
            answer = {"skip": str(e)}
        except asyncio.TimeoutError:
            await runner.async_failed()
            answer = {"error": "timeout", "class": "TimeoutError", "message": ""}
        except Exception as e:  # pylint: disable=broad-except
            await runner.async_failed()
            answer = {"error": runner.sqlstate(e), "class": type(e).__name__,
                      "message": str(e).split("\n", maxsplit=1)[0]}
        print(json.dumps(answer), flush=True)
    await runner.async_close()
