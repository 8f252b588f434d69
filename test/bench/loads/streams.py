"""Streams beside PgQ, whose notion they are.

For:     run.py.
Entry points: streams.

PgQ runs as its makers do it, with pgqd, whose ticks are 0.1 s apart, and once more with a tick each 10 ms. It is called without
a pooler, as that would only cost it something. A batch of PgQ is what lies between two ticks; ours is what is asked for.
"""

import contextlib
import importlib
import subprocess
import sys
import threading
import time

from common import Failed
from contenders import PAYLOAD
from contenders.outside import Missing
from contenders.pgq import Pgq
from programs import install
from table import Goal, Table, median, number, ratio, ratio_of, turns

CLIENTS = 100
READERS = 10
AT_ONCE = 100       # events of a transaction that fills
LIMIT = 1000        # events of a delivery
LATENCIES = 200     # events whose way is measured


class Ours:
    """A stream with one subscription, or more."""

    label = "qbouncer"
    push = "QUEUE PUSH events '%s'" % PAYLOAD
    fill_step = "QUEUE PUSH events %s" % ", ".join(["'%s'" % PAYLOAD] * AT_ONCE)

    def __init__(self, rig, pooler):
        self.rig, self.pooler = rig, pooler

    def fresh(self, readers=1):
        self.rig.statement(self.pooler, "QUEUE DROP events IF EXISTS", "QUEUE CREATE events WITH (kind = stream)",
                           *("QUEUE SUBSCRIBE r%d TO events" % i for i in range(readers)))

    def drain(self, seconds, limit):
        return self._read(0, "LIMIT %d" % LIMIT, seconds, limit)

    def wait(self, reader, seconds):
        """As many readers do that are in no hurry."""
        return self._read(reader, "LIMIT %d MIN 100 WITHIN '50 ms' WAIT '1 s'" % LIMIT, seconds, 0)

    def _read(self, reader, how, seconds, limit):
        got = self.rig.client(self.pooler, "loop", 1, seconds, limit, 1, "", 1, 0,
                              "QUEUE TAKE events FOR r%d %s" % (reader, how), "QUEUE DONE '%1'")
        return got["rows"] / got["seconds"]

    def receive(self, connection):
        """The payloads of the next delivery; none: nothing has come."""
        with connection.cursor() as c:
            c.execute("QUEUE TAKE events FOR r0 WAIT '1 s'")
            rows = c.fetchall()
            if rows:
                c.execute("QUEUE DONE %s", (rows[0][1],))
        return [row[4] for row in rows]

    @staticmethod
    def send(connection, text):
        with connection.cursor() as c:
            c.execute("QUEUE PUSH events %s", (text,))


class Theirs:
    """A queue of PgQ with one consumer, or more."""

    push = "SELECT pgq.insert_event('events', 'event', '%s')" % PAYLOAD
    fill_step = "SELECT count(pgq.insert_event('events', 'event', '%s')) FROM generate_series(1, %d)" % (PAYLOAD, AT_ONCE)

    def __init__(self, rig, lag):
        self.rig, self.lag = rig, lag
        self.label = "PgQ, a tick each %s" % lag

    def fresh(self, readers=1):
        for sql in ("SELECT pgq.drop_queue('events', true) FROM pgq.queue WHERE queue_name = 'events'",
                    "SELECT pgq.create_queue('events')",
                    "SELECT pgq.set_queue_config('events', 'ticker_max_lag', '%s')" % self.lag,
                    "SELECT pgq.set_queue_config('events', 'ticker_max_count', '%d')" % LIMIT,
                    *("SELECT pgq.register_consumer('events', 'r%d')" % i for i in range(readers))):
            self._patiently(sql)

    def _patiently(self, sql):
        """A tick of pgqd may lock the other way round."""
        for chance in (2, 1, 0):
            try:
                self.rig.psql(sql)
                return
            except (Failed, RuntimeError) as failed:
                if chance == 0 or "deadlock detected" not in str(failed):
                    raise

    pooler = None

    def _steps(self, reader):
        return ("SELECT pgq.next_batch('events', 'r%d')" % reader,
                "SELECT b, ev_id, ev_data FROM (SELECT %1::int8 AS b) AS x LEFT JOIN LATERAL pgq.get_batch_events(b) ON true",
                "SELECT pgq.finish_batch(%1)")

    def drain(self, seconds, limit):
        # the last tick, also where pgqd has not heard of the queue yet
        self.rig.psql("SELECT pgq.force_tick('events')")
        self.rig.psql("SELECT pgq.ticker('events')")
        got = self.rig.client(None, "loop", 1, seconds, limit, 0, "", 1, 0, *self._steps(0))
        # the number of the batch is a row too, once per batch
        return max(got["rows"] - got["turns"], 0) / got["seconds"]

    def wait(self, reader, seconds):
        return self.rig.client(None, "loop", 1, seconds, 0, 0, "", 1, 50, *self._steps(reader))["rate"]

    def receive(self, connection):
        with connection.cursor() as c:
            c.execute("SELECT pgq.next_batch('events', 'r0')")
            batch = c.fetchone()[0]
            if batch is None:
                time.sleep(0.002)   # its consumers poll
                return []
            c.execute("SELECT ev_data FROM pgq.get_batch_events(%s)", (batch,))
            rows = [row[0] for row in c.fetchall()]
            c.execute("SELECT pgq.finish_batch(%s)", (batch,))
        return rows

    @staticmethod
    def send(connection, text):
        with connection.cursor() as c:
            c.execute("SELECT pgq.insert_event('events', 'event', %s)", (text,))


def _push(rig, c, clients, seconds, limit=0, step=None):
    return rig.client(c.pooler, "loop", clients, seconds, limit, 0, "", 1, 0, step or c.push)["rate"]


def _copy(rig, n):
    """Events per second that COPY writes into a bare table."""
    rig.psql("DROP TABLE IF EXISTS copied; CREATE TABLE copied (id bigserial PRIMARY KEY, payload jsonb)")
    began = time.monotonic()
    rig.psql("COPY copied (payload) FROM PROGRAM 'yes ''%s'' | head -n %d'" % (PAYLOAD, n))
    return n / (time.monotonic() - began)


def _pushed_beside_readers(rig, c, plan):
    """The rate of pushes while nobody reads, and with so many that read all of it."""
    c.fresh(READERS)
    alone = _push(rig, c, CLIENTS, plan.seconds)
    c.fresh(READERS)
    readers = [threading.Thread(target=c.wait, args=(i, plan.seconds * 1.5)) for i in range(READERS)]
    for t in readers:
        t.start()
    beside = _push(rig, c, CLIENTS, plan.seconds)
    for t in readers:
        t.join()
    return beside / alone


def _latency(rig, c, psycopg2):
    """Milliseconds from before the push to behind the delivery, of events that come one by one: the median."""
    host, port, user, database = rig.target(c.pooler)
    c.fresh()
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(contextlib.closing(psycopg2.connect(host=host, port=port, user=user, dbname=database)))
                    for _ in range(2))
        one.autocommit = two.autocommit = True
        took, sent = [], {}

        def read():
            while len(took) < LATENCIES:
                for event in c.receive(two):
                    at = sent.get(event["n"] if isinstance(event, dict) else int(event))
                    if at is not None:
                        took.append(time.monotonic() - at)
        reader = threading.Thread(target=read)
        reader.start()
        for n in range(LATENCIES):
            sent[n] = time.monotonic()
            c.send(one, '{"n": %d}' % n if c.pooler else str(n))
            time.sleep(0.01)    # the rate: 100 per second
        reader.join()
    return median(took) * 1000


def _psycopg2():
    try:
        return importlib.import_module("psycopg2")
    except ImportError:
        install("python3-psycopg2")
        return importlib.import_module("psycopg2")


def _contenders(rig, pooler):
    """Ours and, if it can be had, PgQ; what is to be ended behind it."""
    ours = [Ours(rig, pooler)]
    pgq = Pgq(rig)
    try:
        pgq.start()
    except Missing as missing:
        print("PgQ is left out: %s" % missing, file=sys.stderr)
        return ours, pgq
    return ours + [Theirs(rig, "100 ms"), Theirs(rig, "10 ms")], pgq


def streams(rig, plan):
    """streams, beside PgQ"""
    psycopg2 = _psycopg2()
    with rig.pooler("qbouncer") as pooler:
        all_of_them, pgq = _contenders(rig, pooler)
        try:
            return _measured(rig, plan, all_of_them, psycopg2)
        finally:
            pgq.stop()


def _round(rig, plan, c, got):
    c.fresh()
    got[c]["push"].append(_push(rig, c, CLIENTS, plan.seconds))
    c.fresh()
    _push(rig, c, 4, 600, plan.events // AT_ONCE, c.fill_step)
    got[c]["drain"].append(c.drain(600, plan.events))
    got[c]["beside"].append(_pushed_beside_readers(rig, c, plan))


def _measured(rig, plan, all_of_them, psycopg2):
    ours, theirs = all_of_them[0], all_of_them[1:]
    got = {c: {"push": [], "drain": [], "beside": []} for c in all_of_them}
    for order in turns(all_of_them, plan.side_rounds):
        for c in order:
            _round(rig, plan, c, got)
    ways = {c: _latency(rig, c, psycopg2) for c in all_of_them}
    rows = []
    for c in all_of_them:
        mine = got[c]
        rows.append([c.label, *(cell for load in ("push", "drain") for cell in (
            number(median(mine[load])), "" if c is ours else ratio(got[ours][load], mine[load]))),
            number(median(mine["beside"]), "%.2f"), number(ways[c], "%.1f")])
    rows.append(["COPY into a bare table", "", "", number(_copy(rig, plan.events)), "", "", ""])
    goals = [Goal("ten consumers of a stream", "a push takes at most 3 % more",
                  "%.2f of its rate" % median(got[ours]["beside"]))]
    if theirs:
        goals = [Goal("push to a stream, 100 clients", ">= 3 x pgq.insert_event",
                      "%.2f x" % ratio_of(got[ours]["push"], got[theirs[0]]["push"])),
                 Goal("one consumer of a stream", "as fast as PgQ's",
                      "%.2f x" % ratio_of(got[ours]["drain"], got[theirs[0]]["drain"])), *goals]
    return Table(
        "Streams",
        "Events per second: pushed by %d clients one at a time; %d events, pushed by transactions of %d, read by one consumer in "
        "deliveries of %d (of PgQ: between two ticks). Beside readers: the rate of pushes while %d consumers read all of it, of "
        "the rate without them. Way: from before the push to behind the delivery, 100 events per second, the median in ms. PgQ is "
        "called directly, its consumers poll each 2 ms (where pushes are measured each 50 ms)."
        % (CLIENTS, plan.events, AT_ONCE, LIMIT, READERS),
        ["", "push/s", "qbouncer is x", "read/s", "qbouncer is x", "beside readers", "way"], rows, goals)
