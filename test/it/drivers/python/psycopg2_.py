"""psycopg2: simple queries with the parameters in the text."""

import json

import psycopg2
import psycopg2.extras
import psycopg2.pool

from runner import DSN, Dbapi, in_thread, main, next_line


# [producer]
def produce(conn, order):
    with conn, conn.cursor() as cur:  # one transaction
        cur.execute("INSERT INTO orders VALUES (%s)", (order,))
        cur.execute("QUEUE PUSH mail %s", (json.dumps({"order": order}),))
# [/producer]


# [worker]
def work(conn):
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds."""
    with conn, conn.cursor() as cur:
        cur.execute("QUEUE TAKE mail WAIT '20s'")
        jobs = [(token, payload) for _, token, _, _, payload, *_ in cur]
    for token, payload in jobs:
        try:
            with conn, conn.cursor() as cur:  # the work and DONE commit together, or not at all
                cur.execute("INSERT INTO sent VALUES (%s)", (payload["order"],))
                cur.execute("QUEUE DONE %s", (token,))
        except Exception as e:  # whatever it was: nobody else gives the job back
            try:
                with conn, conn.cursor() as cur:
                    cur.execute("QUEUE FAIL %s ERROR %s", (token, str(e)))
            except psycopg2.Error as late:
                if late.pgcode not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                    raise
    return bool(jobs)
# [/worker]


class Program(Dbapi):
    produce = staticmethod(produce)
    work = staticmethod(work)

    def connect(self):
        return psycopg2.connect(DSN)

    def do_cursor(self, sql, n):
        """A named cursor: DECLARE, FETCH."""
        with self.conn.cursor("c") as cur:
            cur.itersize = n
            cur.execute(sql)
            rows = [[None if v is None else str(v) for v in row] for row in cur]
        self.ended()
        return {"rows": rows}

    def do_batch(self, sql, *params):
        cur = self.conn.cursor()
        psycopg2.extras.execute_batch(cur, self.sql(sql), [(p,) for p in params])
        self.ended()
        return {"ok": True}

    def do_pool(self, n):
        pool = psycopg2.pool.ThreadedConnectionPool(1, 1, DSN)
        for _ in range(int(n)):
            conn = pool.getconn()
            self.run(conn, "SELECT 1", ())
            pool.putconn(conn)  # rolls back
        pool.closeall()
        return {"ok": True}

    def do_cancel(self, sql):
        result = in_thread(lambda: self.run(self.conn, sql, ()))
        next_line()
        self.conn.cancel()
        result()


main(Program())
