"""psycopg 3, synchronous. Argument "autocommit": no BEGIN of its own."""

import sys

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from runner import DSN, Dbapi, in_thread, main, next_line, rows_of

AUTOCOMMIT = "autocommit" in sys.argv


# [producer]
def produce(conn, order):
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (%s)", (order,))
        conn.execute("QUEUE PUSH mail %s", (Jsonb({"order": order}),))
# [/producer]


# [worker]
def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds.
    The connection is in autocommit mode: psycopg.connect(dsn, autocommit=True)."""
    job = conn.execute("QUEUE TAKE mail WAIT '20s'").fetchone()
    if job is None:
        return False
    _, token, _, _, payload, *_ = job
    try:
        with conn.transaction():  # the work and DONE commit together, or not at all
            conn.execute("INSERT INTO sent VALUES (%s)", (payload["order"],))
            conn.execute("QUEUE DONE %s", (token,))
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            conn.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
        except psycopg.Error as late:
            if late.sqlstate not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                raise
    return True
# [/worker]


class Program(Dbapi):
    def connect(self):
        return psycopg.connect(DSN, autocommit=AUTOCOMMIT)

    def ended(self):
        if not AUTOCOMMIT:
            super().ended()

    def failed(self):
        if not AUTOCOMMIT:
            super().failed()

    def do_begin(self):
        if AUTOCOMMIT:
            self.conn.autocommit = False
        return super().do_begin()

    def do_commit(self):
        out = super().do_commit()
        self.conn.autocommit = AUTOCOMMIT
        return out

    def do_rollback(self):
        out = super().do_rollback()
        self.conn.autocommit = AUTOCOMMIT
        return out

    def do_prepare(self, sql, *params):
        out = self.result(self.conn.execute(self.sql(sql), params, prepare=True))
        self.ended()
        return out

    def do_binary(self, sql, *params):
        out = self.result(self.conn.execute(self.sql(sql), params, binary=True))
        self.ended()
        return out

    def do_cursor(self, sql, n):
        with self.conn.transaction(), self.conn.cursor("c") as cur:
            cur.itersize = n
            cur.execute(sql)
            rows = rows_of(cur)
        self.ended()
        return {"rows": rows}

    def do_stream(self, sql, *params):
        rows = rows_of(self.conn.cursor().stream(self.sql(sql), params))
        self.ended()
        return {"rows": rows}

    def do_batch(self, sql, *params):
        with self.conn.pipeline():
            cursors = [self.conn.execute(self.sql(sql), (p,)) for p in params]
        self.ended()
        return {"counts": [c.rowcount for c in cursors]}

    def do_pool(self, n):
        with ConnectionPool(DSN, min_size=1, max_size=1, open=True) as pool:
            for _ in range(int(n)):
                with pool.connection() as conn:
                    conn.execute("SELECT 1").fetchone()
        return {"ok": True}

    def do_cancel(self, sql):
        result = in_thread(lambda: self.conn.execute(sql))
        next_line()
        self.conn.cancel()
        result()

    def do_produce(self, n):
        with psycopg.connect(DSN, autocommit=AUTOCOMMIT) as conn:
            produce(conn, int(n))
        return {"ok": True}

    def do_work(self):
        with psycopg.connect(DSN, autocommit=True) as conn:
            return {"ok": work(conn)}


main(Program())
