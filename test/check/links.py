"""Two ways to a database, by raw messages and by psycopg, with one face.

For:     worker.py and model.py.
Must not know: logs, the checker.
Entry points: Raw, Driver (run, copy, close, crash), Refused, Lost, Stuck.

run(sql, params, how) gives (rows as dicts of texts, tag). how: simple, extended, prepared. A statement that
the other side refused is Refused; when it cannot be known what became of it, Lost.
"""

import json
import re
import socket
import struct
import time

import psycopg
from psycopg.rows import dict_row

from pgwire import Closed, PgError, Wire

HOW = ("simple", "extended", "prepared")


class Refused(Exception):
    """An error of a session that lives on."""

    def __init__(self, code, text):
        super().__init__("%s %s" % (code, text))
        self.code = code


class Stuck(Exception):
    """There was no answer in a time in which there must be one."""


class Lost(Exception):
    """The session is over, and with it the answer."""


def literal(v):
    if v is None:
        return "NULL"
    return "'%s'" % str(v).replace("'", "''")


def interpolated(sql, params):
    """$1 ... as literals; none inside quotes."""
    return re.sub(r"\$(\d+)", lambda m: literal(params[int(m.group(1)) - 1]), sql)


def is_end(code):
    """The session ends with it; whether its last statement was carried out is not known."""
    return code is None or code[:2] == "08" or code[:3] == "57P"


class Raw:
    def __init__(self, port, user, database, timeout=60):
        self.prepared, self.n = {}, 0
        self.patience = timeout
        self.came = []        # of an answer that is not whole
        try:
            self.w = Wire(port, timeout=timeout)
            self.w.startup(user=user, database=database)
        except (OSError, Closed, PgError) as e:
            raise Lost(str(e)) from e

    def run(self, sql, params=(), how="simple"):
        try:
            if how == "simple":
                self.w.query(interpolated(sql, params))
            else:
                name = self.prepared.get(sql, "") if how == "prepared" else ""
                self.w.hold()
                if not name:
                    if how == "prepared":
                        self.n += 1
                        name = self.prepared[sql] = "s%d" % self.n
                    self.w.parse(name, sql)
                self.w.bind("", name, [None if p is None else str(p) for p in params])
                self.w.describe("P", "").execute().sync().push()
            return self.answer()
        except TimeoutError as e:
            raise Stuck(sql) from e
        except Refused:
            self.prepared.pop(sql, None) # it may not exist
            raise
        except (OSError, Closed) as e:
            raise Lost(str(e)) from e

    def answer(self):
        """Of what was sent. What only says that it is waited for is no answer."""
        if not self.has_answer(self.patience):
            raise Stuck("nothing in %s s" % self.patience)
        messages, self.came = self.came, []
        return self._answer(messages)

    def has_answer(self, seconds=0):
        """Is all of it there, or comes it in that time?"""
        before, until = self.w.sock.gettimeout(), time.monotonic() + seconds
        try:
            while not self.came or self.came[-1].type != "Z":
                self.w.sock.settimeout(max(until - time.monotonic(), 0.001))
                self.came.append(self.w.recv())
            return True
        except TimeoutError:
            return False
        finally:
            self.w.sock.settimeout(before)

    def _answer(self, messages):
        columns, rows, tags = [], [], [""]
        for m in messages:
            if m.type == "T":
                columns = [c[0] for c in m.columns]
            elif m.type == "D":
                rows.append(dict(zip(columns, m.text_row)))
            elif m.type == "C":
                tags.append(m.tag)
            elif m.type == "E":
                if is_end(m.sqlstate) or m.fields.get("S") == "FATAL":
                    raise Lost(repr(m))
                raise Refused(m.sqlstate, m.fields.get("M"))
        return rows, tags[-1]

    def copy(self, sql, lines):
        try:
            got = self.w.query(sql).until("GZ")
            if got[-1].type == "G":
                self.w.copy_data("".join(x + "\n" for x in lines).encode()).copy_done()
                got = self.w.until("Z")
            return self._answer(got)[1]
        except (OSError, Closed) as e:
            raise Lost(str(e)) from e

    def close(self):
        """With a goodbye."""
        try:
            self.w.terminate()
        except OSError:
            self.w.close()

    def crash(self):
        self.w.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.w.close()


def text(v):
    """As Postgres would write it, as far as it matters here."""
    if isinstance(v, (dict, list, bool)):
        return json.dumps(v)
    if isinstance(v, bytes):
        return "\\x" + v.hex()
    return None if v is None else str(v)


class Driver:
    """psycopg; transactions are the caller's."""

    def __init__(self, dsn):
        try:
            self.c = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        except psycopg.Error as e:
            raise Lost(str(e)) from e

    def run(self, sql, params=(), how="simple"):
        try:
            if how == "simple" or not params:
                cur = self.c.execute(interpolated(sql, params))
            else:
                cur = self.c.execute(re.sub(r"\$\d+", "%s", sql), [None if p is None else str(p) for p in params],
                                     prepare=how == "prepared")
            rows = cur.fetchall() if cur.description else []
            return [{k: text(v) for k, v in r.items()} for r in rows], cur.statusmessage
        except psycopg.Error as e:
            raise self._error(e) from e

    def _error(self, e):
        if self.c.broken or self.c.closed or is_end(e.sqlstate):
            return Lost(str(e))
        return Refused(e.sqlstate, str(e))

    def copy(self, sql, lines):
        try:
            with self.c.cursor() as cur:
                with cur.copy(sql) as copy:
                    for x in lines:
                        copy.write(x + "\n")
                return cur.statusmessage
        except psycopg.Error as e:
            raise self._error(e) from e

    def close(self):
        self.c.close()

    def crash(self):
        # libpq says goodbye when it closes: the socket has to go first
        fd = socket.socket(fileno=self.c.fileno())
        fd.shutdown(socket.SHUT_RDWR)
        fd.detach()
        self.c.close()
