"""psqlODBC, by pyodbc."""

import json

import pyodbc

from runner import DATABASE, HOST, PASSWORD, PORT, USER, Dbapi, in_thread, main, next_line, rows_of

DSN = ("DRIVER={PostgreSQL Unicode};SERVER=%s;PORT=%d;DATABASE=%s;UID=%s;PWD=%s"
       % (HOST, PORT, DATABASE, USER, PASSWORD))


# [producer]
def produce(conn, order):
    conn.autocommit = False
    conn.execute("INSERT INTO orders VALUES (?)", order)
    conn.execute("QUEUE PUSH mail ?", json.dumps({"order": order}))
    conn.commit()  # both, or neither
    conn.autocommit = True
# [/producer]


# [worker]
def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds.
    The connection is in autocommit mode: pyodbc.connect(dsn, autocommit=True)."""
    job = conn.execute("QUEUE TAKE mail WAIT '20s'").fetchone()
    if job is None:
        return False
    conn.autocommit = False
    try:
        conn.execute("INSERT INTO sent VALUES (?)", json.loads(job.payload)["order"])
        conn.execute("QUEUE DONE ?", job.token)  # the work and DONE commit together, or not at all
        conn.commit()
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            conn.rollback()
            conn.execute("QUEUE FAIL ? ERROR ?", job.token, str(e))
            conn.commit()
        except pyodbc.Error as late:
            conn.rollback()
            if late.args[0] not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                raise
    conn.autocommit = True
    return True
# [/worker]


class Program(Dbapi):
    paramstyle = "?"
    produce = staticmethod(produce)
    work = staticmethod(work)

    def connect(self):
        return pyodbc.connect(DSN, autocommit=True)

    def ended(self):
        pass

    def failed(self):
        pass

    def do_begin(self):
        self.conn.autocommit = False
        return {"ok": True}

    def do_commit(self):
        self.conn.commit()
        self.conn.autocommit = True
        return {"ok": True}

    def do_rollback(self):
        self.conn.rollback()
        self.conn.autocommit = True
        return {"ok": True}

    def sqlstate(self, e):
        return e.args[0]

    def result(self, cur):
        out = super().result(cur)
        del out["types"]  # classes of Python
        return out

    def do_cancel(self, sql):
        cur = self.conn.cursor()
        result = in_thread(lambda: cur.execute(sql))
        next_line()
        cur.cancel()
        return self.result(result())

    do_prepare = Dbapi.do_query  # SQLPrepare, SQLExecute

    def do_cursor(self, sql, n):
        cur = self.run(self.conn, sql, ())
        rows = []
        while True:
            some = cur.fetchmany(n)
            if not some:
                break
            rows += rows_of(some)
        self.ended()
        return {"rows": rows}

    def do_batch(self, sql, *params):
        cur = self.conn.cursor()
        cur.fast_executemany = False
        cur.executemany(self.sql(sql), [(p,) for p in params])
        self.ended()
        return {"ok": True}


main(Program())
