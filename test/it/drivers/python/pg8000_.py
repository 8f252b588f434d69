"""pg8000: all in Python, everything prepared, portals of 100 rows."""

import json

import pg8000

from runner import DATABASE, HOST, PASSWORD, PORT, USER, Dbapi, main, rows_of


# [producer]
def produce(conn, order):
    cur = conn.cursor()  # BEGIN is sent with the first statement
    cur.execute("INSERT INTO orders VALUES (%s)", (order,))
    cur.execute("QUEUE PUSH mail %s", (json.dumps({"order": order}),))
    conn.commit()
# [/producer]


# [worker]
def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds."""
    cur = conn.cursor()
    cur.execute("QUEUE TAKE mail WAIT '20s'")
    job = cur.fetchone()
    conn.commit()
    if job is None:
        return False
    token, payload = job[1], job[4]
    try:
        cur.execute("INSERT INTO sent VALUES (%s)", (payload["order"],))
        cur.execute("QUEUE DONE %s", (token,))  # the work and DONE commit together, or not at all
        conn.commit()
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            conn.rollback()
            cur.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
            conn.commit()
        except pg8000.Error as late:
            conn.rollback()
            if "QB00" not in str(late.args):  # QB001, QB002: it is not our job any more, or cancelled
                raise
    return True
# [/worker]


class Program(Dbapi):
    produce = staticmethod(produce)
    work = staticmethod(work)

    def connect(self):
        return pg8000.connect(host=HOST, port=PORT, user=USER, password=PASSWORD, database=DATABASE)

    def sqlstate(self, e):
        return e.args[0].get("C") if e.args and isinstance(e.args[0], dict) else (e.args + (None,) * 3)[2]

    def result(self, cur):
        out = super().result(cur)
        out["columns"] = [c.decode() if isinstance(c, bytes) else c for c in out["columns"]]
        return out

    do_prepare = Dbapi.do_query  # every statement is prepared

    def do_cursor(self, sql, n):
        cur = self.conn.cursor()
        cur.arraysize = n
        cur.execute(sql)
        rows = []
        while True:
            some = cur.fetchmany()
            if not some:
                break
            rows += rows_of(some)
        self.ended()
        return {"rows": rows}

    def do_batch(self, sql, *params):
        self.conn.cursor().executemany(self.sql(sql), [(p,) for p in params])
        self.ended()
        return {"ok": True}


main(Program())
