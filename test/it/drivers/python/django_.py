"""Django's database layer: cursors and transaction.atomic()."""

import json

import django
from django.conf import settings

from runner import DATABASE, HOST, PASSWORD, PORT, USER, Dbapi, in_thread, main, next_line, rows_of

settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "HOST": HOST, "PORT": PORT, "NAME": DATABASE, "USER": USER,
    "PASSWORD": PASSWORD, "DISABLE_SERVER_SIDE_CURSORS": False}}, USE_TZ=True)
django.setup()

from django.db import DatabaseError, connection, models, transaction  # noqa: E402


class T(models.Model):
    a = models.IntegerField(primary_key=True)
    b = models.TextField()

    class Meta:
        app_label = "suite"
        db_table = "t"


# [producer]
def produce(order):
    with transaction.atomic(), connection.cursor() as cur:
        cur.execute("INSERT INTO orders VALUES (%s)", [order])
        cur.execute("QUEUE PUSH mail %s", [json.dumps({"order": order})])
# [/producer]


# [worker]
def work():
    """One turn: call it in a loop. False if there was nothing to do for 20 seconds."""
    with connection.cursor() as cur:
        cur.execute("QUEUE TAKE mail WAIT '20s'")
        job = cur.fetchone()
    if job is None:
        return False
    token, payload = job[1], json.loads(job[4])
    try:
        with transaction.atomic(), connection.cursor() as cur:  # the work and DONE commit together
            cur.execute("INSERT INTO sent VALUES (%s)", [payload["order"]])
            cur.execute("QUEUE DONE %s", [token])
    except Exception as e:  # whatever it was: nobody else gives the job back
        try:
            with connection.cursor() as cur:
                cur.execute("QUEUE FAIL %s ERROR %s", [token, str(e)])
        except DatabaseError as late:
            if late.__cause__.pgcode not in ("QB001", "QB002"):  # else it is not our job any more, or cancelled
                raise
    return True
# [/worker]


class Program(Dbapi):
    def connect(self):
        connection.ensure_connection()
        return connection

    def ended(self):
        pass

    def failed(self):
        pass

    def sqlstate(self, e):
        return getattr(e.__cause__, "pgcode", None)

    def do_begin(self):
        connection.set_autocommit(False)
        return {"ok": True}

    def do_commit(self):
        connection.commit()
        connection.set_autocommit(True)
        return {"ok": True}

    def do_rollback(self):
        connection.rollback()
        connection.set_autocommit(True)
        return {"ok": True}

    def do_cursor(self, sql, n):
        """QuerySet.iterator(): a server-side cursor, WITH HOLD outside of transactions; of raw SQL there is none."""
        if "FROM t" in sql and "nonsense" not in sql:
            with transaction.atomic():
                return {"rows": rows_of((t.a, t.b) for t in T.objects.order_by("a").iterator(chunk_size=n))}
        with connection.chunked_cursor() if "nonsense" in sql else connection.cursor() as cur:
            cur.execute(sql)
            return {"rows": rows_of(cur.fetchall())}

    def do_batch(self, sql, *params):
        with transaction.atomic(), connection.cursor() as cur:
            cur.executemany(self.sql(sql), [(p,) for p in params])
        return {"ok": True}

    def do_cancel(self, sql):
        raw = connection.connection
        cur = connection.cursor()
        result = in_thread(lambda: cur.cursor.execute(sql))  # Django's own cursors stay in their thread
        next_line()
        raw.cancel()
        try:
            result()
        except Exception as e:
            raise DatabaseError("cancelled") from e

    def do_produce(self, n):
        produce(int(n))
        return {"ok": True}

    def do_work(self):
        return {"ok": work()}


main(Program())
