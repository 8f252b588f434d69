"""Streams beside PgQ, whose notion they are.

For:     run.py.
Entry points: streams.

PgQ runs as it comes: pgqd looks each second, and a tick is due each 3 s, or 500 events; and once more with a tick each 10 ms. It
is called without a pooler, as that would only cost it something. A batch of PgQ is what lies between two ticks; ours is what is
asked for. Of both whole events are read, as PgQ's own consumer does (pgq in Python: SELECT * FROM pgq.get_batch_events()). The
payload of PgQ is text, ours is jsonb, which Postgres writes anew for each reader: so a drain of a stream of text is measured, too.
"""

import contextlib
import importlib
import sys
import threading
import time

from common import Failed
from contenders import PAYLOAD
from contenders.outside import Missing
from contenders.pgq import Pgq
from meter import Meter
from programs import install
from table import Goal, Table, median, number, ratio, ratio_of, turns

CLIENTS = 100
READERS = 10
WORKERS = 4
AT_ONCE = 100       # events of a transaction that fills
LIMIT = 1000        # events of a delivery
LARGE = 10000       # and of one that is as large as may be, as batches of PgQ are that has much to read
WORKED = 100        # events of a delivery, each of which is 10 ms of work that is not this server's
LATENCIES = 200     # events whose way is measured
SLOWLY = 2000       # pushes per second that leave cores idle, of PgQ too
PACED = tuple(at + how + of for at in ("third ", "slowly ") for how in ("alone ", "beside ") for of in ("rate", "takes", "wal", "cpu"))
PATIENCE = 60       # seconds after which they do not come any more


class Beside(threading.Thread):
    """A call that runs at the same time; its end tells what went wrong."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.call, self.failed = (function, args), None
        self.start()

    def run(self):
        function, args = self.call
        try:
            function(*args)
        except BaseException as failed:     # handed to who waits for it
            self.failed = failed

    def end(self):
        self.join()
        if self.failed:
            raise self.failed


class Ours:
    """A stream with one subscription, or more; of one with several workers as many lanes."""

    push = "QUEUE PUSH events '%s'" % PAYLOAD
    fill_step = "QUEUE PUSH events %s" % ", ".join(["'%s'" % PAYLOAD] * AT_ONCE)

    def __init__(self, rig, pooler, workers=1, payload="jsonb"):
        self.rig, self.pooler, self.workers, self.payload = rig, pooler, workers, payload
        self.label = "qbouncer" if workers == 1 else "qbouncer, parallel = %d" % workers

    def fresh(self, readers=1):
        self.rig.statement(self.pooler, "QUEUE DROP events IF EXISTS",
                           "QUEUE CREATE events WITH (kind = stream, payload = %s)" % self.payload,
                           *("QUEUE SUBSCRIBE r%d TO events WITH (parallel = %d)" % (i, self.workers) for i in range(readers)))

    def forget(self, readers):
        """What was pushed until now is read by nobody."""
        self.rig.statement(self.pooler, *("QUEUE SEEK r%d ON events TO NOW" % i for i in range(readers)))

    def drain(self, seconds, limit, events=LIMIT):
        # a worker that finds nothing has come while another one had all that there was, and waits
        return self._read(0, "LIMIT %d%s" % (events, "" if self.workers == 1 else " WAIT '1 s'"), seconds, limit, self.workers)

    def work(self, deliveries):
        """Events per second whose deliveries are worked on while they are out."""
        got = self.rig.client(self.pooler, "loop", self.workers, 600, deliveries * (WORKED + 1), 1, "", 1, 0,
                              "QUEUE TAKE events FOR r0 LIMIT %d WAIT '1 s'" % WORKED, "SELECT 1, '%1' FROM pg_sleep(0.01)", "QUEUE DONE '%1'")
        return (got["rows"] - got["turns"]) / got["seconds"]

    def wait(self, reader, seconds):
        """As many readers do that are in no hurry."""
        return self._read(reader, "LIMIT %d MIN 100 WITHIN '50 ms' WAIT '1 s'" % LIMIT, seconds, 0, self.workers)

    def _read(self, reader, how, seconds, limit, clients):
        got = self.rig.client(self.pooler, "loop", clients, seconds, limit, 1, "", 1, 0,
                              "QUEUE TAKE events FOR r%d %s" % (reader, how), "QUEUE DONE '%1'")
        if limit and got["rows"] < limit:
            raise Failed("%s: %d events of %d were delivered" % (self.label, got["rows"], limit))
        return got["rows"] / got["seconds"]

    def receive(self, connection):
        """The payloads of the next delivery; none: nothing has come."""
        with connection.cursor() as c:
            c.execute("QUEUE TAKE events FOR r0 WAIT '1 s'")
            rows = c.fetchall()
            at = time.monotonic()
            if rows:
                c.execute("QUEUE DONE %s", (rows[0][1],))
        return at, [row[4] for row in rows]

    @staticmethod
    def send(connection, text):
        with connection.cursor() as c:
            c.execute("QUEUE PUSH events %s", (text,))


class Theirs:
    """A queue of PgQ with one consumer, or more. lag: between its ticks, None: as it comes."""

    push = "SELECT pgq.insert_event('events', 'event', '%s')" % PAYLOAD
    fill_step = "SELECT count(pgq.insert_event('events', 'event', '%s')) FROM generate_series(1, %d)" % (PAYLOAD, AT_ONCE)

    def __init__(self, rig, pgq, lag):
        self.rig, self.pgq, self.lag = rig, pgq, lag
        self.label = "PgQ, a tick each %s" % lag if lag else "PgQ, as it comes"

    def fresh(self, readers=1):
        self.pgq.rests()
        for sql in ("SELECT pgq.drop_queue('events', true) FROM pgq.queue WHERE queue_name = 'events'",
                    "SELECT pgq.create_queue('events')",
                    *(("SELECT pgq.set_queue_config('events', 'ticker_max_lag', '%s')" % self.lag,
                       "SELECT pgq.set_queue_config('events', 'ticker_max_count', '%d')" % LIMIT) if self.lag else ()),
                    *("SELECT pgq.register_consumer('events', 'r%d')" % i for i in range(readers))):
            self._patiently(sql)
        self.pgq.looks_each(0.01 if self.lag else 1)

    def forget(self, readers):
        self._tick()
        for i in range(readers):
            self._patiently("SELECT pgq.unregister_consumer('events', 'r%d'), pgq.register_consumer('events', 'r%d')" % (i, i))

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
                "SELECT b, e.* FROM (SELECT %1::int8 AS b) AS x LEFT JOIN LATERAL pgq.get_batch_events(b) AS e ON true",
                "SELECT pgq.finish_batch(%1)")

    def _tick(self):
        """Now, also where pgqd has not heard of the queue yet."""
        self._patiently("SELECT pgq.force_tick('events')")
        self._patiently("SELECT pgq.ticker('events')")

    def drain(self, seconds, limit):
        self._tick()
        got = self.rig.client(None, "loop", 1, seconds, 2 * limit, 0, "", 1, 0, *self._steps(0))
        # the number of the batch is a row too, once per batch, and again where one has no event
        events = got["rows"] - got["turns"]
        if events < limit:
            raise Failed("%s: %d events of %d were delivered" % (self.label, events, limit))
        return events / got["seconds"]

    def wait(self, reader, seconds):
        return self.rig.client(None, "loop", 1, seconds, 0, 0, "", 1, 50, *self._steps(reader))["rate"]

    def receive(self, connection):
        with connection.cursor() as c:
            c.execute("SELECT pgq.next_batch('events', 'r0')")
            batch = c.fetchone()[0]
            if batch is None:
                time.sleep(0.002)   # its consumers poll
                return time.monotonic(), []
            c.execute("SELECT ev_data FROM pgq.get_batch_events(%s)", (batch,))
            rows = [row[0] for row in c.fetchall()]
            at = time.monotonic()
            c.execute("SELECT pgq.finish_batch(%s)", (batch,))
        return at, rows

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


def _pushed_beside_readers(rig, c, seconds):
    """The rate of pushes while so many read all of it, by that while nobody does: by turns, in one log."""
    c.fresh(READERS)
    rates = {True: [], False: []}
    for read in (False, True, True, False):
        c.forget(READERS)
        readers = [Beside(c.wait, i, seconds * 1.2) for i in range(READERS if read else 0)]
        rates[read].append(_push(rig, c, CLIENTS, seconds))
        for reader in readers:
            reader.end()
    return sum(rates[True]) / sum(rates[False])


def _paced_beside_readers(rig, c, rate, seconds):
    """Pushes at that rate, while so many read all of it and while nobody does, by turns in one log: of each of both ways how many
    a second were answered, the median of what one takes in ms, and its WAL in bytes and Postgres' CPU in us, with what the readers
    cost."""
    c.fresh(READERS)
    got = {True: [], False: []}
    for read in (False, True, True, False):
        c.forget(READERS)
        readers = [Beside(c.wait, i, seconds * 1.5) for i in range(READERS if read else 0)]
        meter = Meter(rig)
        paced = rig.client(c.pooler, "pace", CLIENTS, seconds, rate, c.push)
        cost = meter.read(paced["count"])
        got[read].append((paced["rate"], paced["answer_p50_us"] / 1000, cost.wal, cost.postgres_us))
        for reader in readers:
            reader.end()
    return {read: tuple(sum(of) / len(of) for of in zip(*got[read])) for read in got}


def _latency(rig, c, psycopg2):
    """Milliseconds, medians, of events that come one by one: from before the push to the delivery, and from its answer, which
    is that of the commit, to there."""
    host, port, user, database = rig.target(c.pooler)
    c.fresh()
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(contextlib.closing(psycopg2.connect(host=host, port=port, user=user, dbname=database)))
                    for _ in range(2))
        one.autocommit = two.autocommit = True
        sent, answered, got = {}, {}, {}
        end = time.monotonic() + PATIENCE

        def read():
            while len(got) < LATENCIES:
                if time.monotonic() > end:
                    raise Failed("%s: %d events of %d have come" % (c.label, len(got), LATENCIES))
                at, events = c.receive(two)
                for event in events:
                    got.setdefault(event["n"] if isinstance(event, dict) else int(event), at)
        reader = Beside(read)
        for n in range(LATENCIES):
            sent[n] = time.monotonic()
            c.send(one, '{"n": %d}' % n if c.pooler else str(n))
            answered[n] = time.monotonic()
            time.sleep(0.01)    # the rate: 100 per second
        reader.end()
    return tuple(median([(got[n] - since[n]) * 1000 for n in range(LATENCIES)]) for since in (sent, answered))


def _psycopg2():
    try:
        return importlib.import_module("psycopg2")
    except ImportError:
        install("python3-psycopg2")
        return importlib.import_module("psycopg2")


def _contenders(rig, pooler):
    """Ours and, if it can be had, PgQ; what is to be ended behind it."""
    ours = [Ours(rig, pooler), Ours(rig, pooler, WORKERS)]
    pgq = Pgq(rig)
    try:
        pgq.start()
    except Missing as missing:
        print("PgQ is left out: %s" % missing, file=sys.stderr)
        return ours, pgq
    return ours + [Theirs(rig, pgq, None), Theirs(rig, pgq, "10 ms")], pgq


def streams(rig, plan):
    """streams, beside PgQ"""
    psycopg2 = _psycopg2()
    with rig.pooler("qbouncer") as pooler:
        all_of_them, pgq = _contenders(rig, pooler)
        try:
            return _measured(rig, plan, all_of_them, psycopg2)
        finally:
            pgq.stop()


def _round(rig, plan, c, got, psycopg2):
    c.fresh()
    got["push"].append(_push(rig, c, CLIENTS, plan.seconds))
    c.fresh()
    _push(rig, c, 4, 600, plan.events // AT_ONCE, c.fill_step)
    got["drain"].append(c.drain(600, plan.events))
    if isinstance(c, Ours):
        _push(rig, c, 4, 600, plan.events // AT_ONCE, c.fill_step)
        got["large"].append(c.drain(600, plan.events, LARGE))
        _push(rig, c, 4, 600, plan.events // AT_ONCE, c.fill_step)
        got["work"].append(c.work(plan.events // 2 // WORKED))
        text = Ours(rig, c.pooler, payload="text")
        for of, limit in (("text", LIMIT), ("large text", LARGE)) if c.workers == 1 else ():
            text.fresh()
            _push(rig, text, 4, 600, plan.events // AT_ONCE, text.fill_step)
            got[of].append(text.drain(600, plan.events, limit))
    got["beside"].append(_pushed_beside_readers(rig, c, max(plan.seconds / 2, 1)))
    for at, rate in (("third ", got["push"][-1] / 3), ("slowly ", SLOWLY)):
        paced = _paced_beside_readers(rig, c, rate, max(plan.seconds / 2, 1))
        for i, name in enumerate(("rate", "takes", "wal", "cpu")):
            got[at + "alone " + name].append(paced[False][i])
            got[at + "beside " + name].append(paced[True][i])
    way, behind = _latency(rig, c, psycopg2)
    got["way"].append(way)
    got["behind"].append(behind)


def _goals(got, ours, parallel, theirs):
    goals = [Goal("ten consumers of a stream, pushes at %s" % words, "a push takes at most 3 % more",
                  "%.1f %% (%.2f of the rate; WAL %.0f and %.0f bytes; Postgres' CPU %.0f and %.0f us)" % (
                      100 * ratio_of(got[ours][at + "beside takes"], got[ours][at + "alone takes"]) - 100,
                      ratio_of(got[ours][at + "beside rate"], got[ours][at + "alone rate"]),
                      *(median(got[ours][at + how + of]) for of in ("wal", "cpu") for how in ("alone ", "beside "))))
             for at, words in (("third ", "a third of their rate"), ("slowly ", "%d a second" % SLOWLY))]
    goals += [
             Goal("ten consumers of a stream, pushes as fast as they can", "told, without a goal: they share the cores",
                  "%.2f of the rate" % median(got[ours]["beside"])),
             Goal("from the commit of an event to its delivery", "p50 <= 1 ms", "%.2f ms" % median(got[ours]["behind"])),
             Goal("%d workers of a subscription" % WORKERS, "faster than one", "%.2f x" % ratio_of(got[parallel]["drain"], got[ours]["drain"])),
             Goal("%d workers, 10 ms of work for each %d events" % (WORKERS, WORKED), "faster than one",
                  "%.2f x" % ratio_of(got[parallel]["work"], got[ours]["work"]))]
    if theirs:
        goals = [Goal("push to a stream, %d clients" % CLIENTS, ">= 3 x pgq.insert_event",
                      "%.2f x" % ratio_of(got[ours]["push"], got[theirs[0]]["push"])),
                 Goal("one consumer of a stream", "as fast as PgQ's",
                      "%.2f x, in deliveries of %d %.2f x; of text, as PgQ's, %.2f x and %.2f x" % (
                          ratio_of(got[ours]["drain"], got[theirs[0]]["drain"]), LARGE,
                          *(ratio_of(got[ours][of], got[theirs[0]]["drain"]) for of in ("large", "text", "large text")))), *goals]
    return goals


def _measured(rig, plan, all_of_them, psycopg2):
    ours, parallel, *theirs = all_of_them
    got = {c: {of: [] for of in ("push", "drain", "large", "text", "large text", "work", "beside", "way", "behind", *PACED)}
           for c in all_of_them}
    copied = []
    for order in turns(all_of_them, plan.side_rounds):
        for c in order:
            _round(rig, plan, c, got[c], psycopg2)
        copied.append(_copy(rig, plan.events))
    rows = []
    for c in all_of_them:
        mine = got[c]
        rows.append([c.label, *(cell for load in ("push", "drain") for cell in (
            number(median(mine[load])), "" if c is ours else ratio(got[ours][load], mine[load]))),
            number(median(mine["beside"]), "%.3f"), *(number(median(mine[at + how]), "%.2f") for at in ("third ", "slowly ")
                                                      for how in ("alone takes", "beside takes")),
            number(median(mine["way"]), "%.1f"), number(median(mine["behind"]), "%.1f")])
    for of, limit in (("large", LARGE), ("text", LIMIT), ("large text", LARGE)):
        rows.append(["qbouncer, deliveries of %d%s" % (limit, ", payload = text" if "text" in of else ""), "", "",
                     number(median(got[ours][of])), ratio(got[ours]["drain"], got[ours][of]), *[""] * 7])
    rows.append(["COPY into a bare table", "", "", number(median(copied)), ratio(got[ours]["drain"], copied), *[""] * 7])
    return Table(
        "Streams",
        "Events per second: pushed by %d clients one at a time; %d events, pushed by transactions of %d, read by one consumer in "
        "deliveries of %d (of PgQ: between two ticks), with parallel by %d workers of it; further lines have larger deliveries, and "
        "a stream of text, which events of PgQ are, too (ours are jsonb). COPY writes as many. Beside readers: the "
        "rate of pushes while %d consumers read all of it (MIN 100 WITHIN '50 ms'), by the rate without them, by turns. A third: "
        "what a push takes at a third of the rate, the median in ms, alone and beside these consumers; and at %d a second. Way: 100 "
        "events per second, the median in ms, from before the push to the delivery; behind: from the answer to the push. PgQ is "
        "called directly, its consumers poll each 2 ms (where pushes are measured each 50 ms). A goal has workers that sleep 10 ms "
        "on each delivery of %d before its DONE."
        % (CLIENTS, plan.events, AT_ONCE, LIMIT, WORKERS, READERS, SLOWLY, WORKED),
        ["", "push/s", "qbouncer is x", "read/s", "qbouncer is x", "beside readers", "a third", "and beside", "%d/s" % SLOWLY, "and beside", "way", "behind"], rows,
        _goals(got, ours, parallel, theirs))
