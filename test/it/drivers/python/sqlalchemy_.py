"""SQLAlchemy: text() with bound parameters, an engine with its pool."""

import json
import re

import sqlalchemy
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from runner import URL, Dbapi, in_thread, main, next_line, rows_of


# [producer]
def produce(engine, order):
    with engine.begin() as conn:  # one transaction
        conn.execute(text("INSERT INTO orders VALUES (:a)"), {"a": order})
        conn.execute(text("QUEUE PUSH mail :job"), {"job": json.dumps({"order": order})})
# [/producer]


# [worker]
def work(engine):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds."""
    with engine.begin() as conn:
        job = conn.execute(text("QUEUE TAKE mail WAIT '20s'")).first()
    if job is None:
        return False
    try:
        with engine.begin() as conn:  # the work and DONE commit together, or not at all
            conn.execute(text("INSERT INTO sent VALUES (:a)"), {"a": job.payload["order"]})
            conn.execute(text("QUEUE DONE :token"), {"token": job.token})
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            with engine.begin() as conn:
                conn.execute(text("QUEUE FAIL :token ERROR :error"), {"token": job.token, "error": str(e)})
        except DBAPIError as late:
            if late.orig.pgcode not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                raise
    return True
# [/worker]


class Program(Dbapi):
    """The connection of the commands; engine.begin() of the examples checks out another one."""

    def connect(self):
        self.engine = sqlalchemy.create_engine(URL, future=True)
        return self.engine.connect()

    def sqlstate(self, e):
        return getattr(getattr(e, "orig", None), "pgcode", None)

    def run(self, conn, sql, params):
        names = {"p%d" % (i + 1): p for i, p in enumerate(params)}
        return conn.execute(text(re.sub(r"(?<!:):(?=:)", r"\\:", re.sub(r"::", r"\\:\\:", sql)).replace("$", ":p")
                                 if params else sql.replace(":", "\\:")), names)

    def result(self, cur):
        return {"columns": list(cur.keys()), "types": [str(d[1]) for d in cur.cursor.description],
                "count": cur.rowcount, "rows": rows_of(cur.fetchall())}

    def do_cursor(self, sql, n):
        got = self.conn.execute(text(sql), execution_options={"stream_results": True, "max_row_buffer": n})
        rows = rows_of(got)
        self.ended()
        return {"rows": rows}

    def do_batch(self, sql, *params):
        self.conn.execute(text(sql.replace("$1", ":a")), [{"a": p} for p in params])
        self.ended()
        return {"ok": True}

    def do_pool(self, n):
        for _ in range(int(n)):
            with self.engine.connect() as conn:
                conn.execute(text("SELECT 1")).all()
        return {"ok": True}

    def do_cancel(self, sql):
        raw = self.conn.connection.connection
        result = in_thread(lambda: self.run(self.conn, sql, ()))
        next_line()
        raw.cancel()
        result()

    def do_produce(self, n):
        produce(self.engine, int(n))
        return {"ok": True}

    def do_work(self):
        return {"ok": work(self.engine)}

    def do_reconnect(self):
        self.close()
        return super().do_reconnect()

    def close(self):
        self.conn.close()
        self.engine.dispose()


main(Program())
