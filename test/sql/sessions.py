"""Sessions for the tests of the SQL functions: short ways to call them, errors as values, and
calls that run beside each other."""

import os
import threading
import time

import psycopg
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Session:
    """One connection, autocommit."""

    def __init__(self, dsn):
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.notices = []
        self.conn.add_notice_handler(lambda diag: self.notices.append(diag.message_primary))

    @property
    def pid(self):
        return self.conn.info.backend_pid

    def rows(self, sql, *args):
        cursor = self.conn.execute(sql, args or None)
        return cursor.fetchall() if cursor.description is not None else []  # rows may have no columns

    def row(self, sql, *args):
        found = self.rows(sql, *args)
        assert len(found) == 1, found
        return found[0]

    def value(self, sql, *args):
        return self.row(sql, *args)[0]

    def column(self, sql, *args):
        return [row[0] for row in self.rows(sql, *args)]

    def fails(self, sqlstate, sql, *args):
        """Must end with this SQLSTATE; gives the error's fields."""
        with pytest.raises(psycopg.Error) as caught:
            self.rows(sql, *args)
        assert caught.value.sqlstate == sqlstate, caught.value
        return caught.value.diag

    def script(self, text):
        """A string as one simple Query; gives the error text."""
        return self.conn.pgconn.exec_(text.encode()).error_message.decode()

    # the functions, as the proxy calls them

    def push(self, queue, *payloads, priority=None, delay=None, at=None, headers=None,
             notify=False):
        return self.column("SELECT * FROM queue._push(%s, %s::text[], %s, %s::interval, "
                           "%s::timestamptz, %s, %s)",
                           queue, list(payloads), priority, delay, at, headers, notify)

    def take(self, queues, limit=1, lease=None, worker=None, pop=False):
        """The jobs, as dictionaries; none: []."""
        return [job for job in self.take_raw(queues, limit, lease, worker, pop)
                if job["id"] is not None]

    def take_raw(self, queues, limit=1, lease=None, worker=None, pop=False):
        queues = [queues] if isinstance(queues, str) else queues
        cursor = self.conn.execute(
            "SELECT * FROM queue._take(%s::text[], %s, %s::interval, %s, %s)",
            (queues, limit, lease, worker, pop))
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def due_ms(self, queues):
        """Nothing is there; in how many ms may something be?"""
        found = self.take_raw(queues)
        assert len(found) == 1 and found[0]["id"] is None, found
        return found[0]["due_ms"]

    def done(self, *tokens):
        return self.column("SELECT * FROM queue._done(%s::text[], false)", list(tokens))

    def job(self, queue, number):
        """The row of a job as it is stored, None if there is none."""
        cursor = self.conn.execute('SELECT * FROM queue."q_%s" WHERE id = %%s' % queue, (number,))
        row = cursor.fetchone()
        return row and dict(zip([column.name for column in cursor.description], row))

    def create(self, queue, **options):
        self.rows("SELECT queue.create(%s, false, %s::text[], %s::text[])", queue,
                  list(options), [str(value) for value in options.values()])

    def expire(self, queue):
        """Every lease of the queue is over, and every time has come."""
        self.rows('UPDATE queue."q_%s" SET lease_until = lease_until - interval \'100 years\', '
                  "run_at = run_at - interval '100 years'" % queue)

    def beside(self, function, *args, **named):
        """Runs function in a thread of its own."""
        return Beside(function, args, named)


class Beside(threading.Thread):
    """A call that runs at the same time; result() waits for it and gives or raises what it did."""

    def __init__(self, function, args, named):
        super().__init__(daemon=True)
        self.call = (function, args, named)
        self.outcome = self.error = None
        self.start()

    def run(self):
        function, args, named = self.call
        try:
            self.outcome = function(*args, **named)
        except BaseException as error:  # handed to the caller of result()
            self.error = error

    def result(self):
        self.join(60)
        assert not self.is_alive(), "still blocked"
        if self.error:
            raise self.error
        return self.outcome

    def error_of(self, sqlstate):
        with pytest.raises(psycopg.Error) as caught:
            self.result()
        assert caught.value.sqlstate == sqlstate, caught.value
        return caught.value.diag


class Database(Session):
    """A database of app's; itself a session of app."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.sessions = cluster, name, []
        super().__init__(cluster.dsn(name, "app"))

    def connect(self, user="app"):
        session = Session(self.cluster.dsn(self.name, user))
        self.sessions.append(session)
        return session

    def until_blocked(self, session, call=None):
        """Returns when the session waits for a lock that another one holds; or when the call that does not wait for
        long has ended."""
        watch = self.connect("postgres")
        end = time.monotonic() + 60
        while not watch.value("SELECT cardinality(pg_blocking_pids(%s))", session.pid):
            if call and not call.is_alive():
                return
            assert watch.value("SELECT state FROM pg_stat_activity WHERE pid = %s",
                               session.pid) in ("active", "idle", "idle in transaction")
            assert time.monotonic() < end, "it does not wait for anybody"

    def close(self):
        for session in self.sessions + [self]:
            session.conn.close()
        self.cluster.dropdb(self.name)
