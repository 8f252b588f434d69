"""Streams beside PgQ, whose notion they are.

For:     run.py.
Entry points: streams.

PgQ runs as it comes: pgqd looks each second, and a tick is due each 3 s, or 500 events; and once more with a tick each 10 ms. It
is called without a pooler, as that would only cost it something. A batch of PgQ is what lies between two ticks; ours is what is
asked for. Of both whole events are read, as PgQ's own consumer does (pgq in Python: SELECT * FROM pgq.get_batch_events()). The
payload of PgQ is text, ours is jsonb: so a drain of a stream of text is measured, too.

A drain of 100 000 events is over within a third of a second, in which a machine may be half as fast as in the next one. So all
logs are filled first, with a subscription for each turn, and then read by turns; what is told is the median of the ratios of
each turn, and how wide their middle half is. The first turn, which finds no hint bits and no plans, is not counted. What several
workers may gain depends on how many cores one keeps busy, and on what an event costs: so that is told, too.
"""

import contextlib
import importlib
import os
import sys
import threading
import time

from common import Failed
from contenders import PAYLOAD
from contenders.outside import Missing
from contenders.pgq import Pgq
from meter import Meter
from programs import install
from table import Goal, Table, median, number, ratio, ratio_of, spread, turns

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


def push_step(log, n=1):
    return "QUEUE PUSH %s %s" % (log, ", ".join(["'%s'" % PAYLOAD] * n))


class Ours:
    """A stream with one subscription, or more; of one with several workers as many lanes."""

    def __init__(self, rig, pooler, workers=1, payload="jsonb", log="events", size=LIMIT, then=False):
        self.rig, self.pooler, self.workers, self.payload, self.log, self.size, self.then = rig, pooler, workers, payload, log, size, then
        self.label = "qbouncer" if workers == 1 else "qbouncer, parallel = %d" % workers
        self.push, self.fill_step = push_step(log), push_step(log, AT_ONCE)
        self.client_us = None   # what an event of the last drain has cost the client

    def fresh(self, readers=1):
        self.drop()
        self.rig.statement(self.pooler, "QUEUE CREATE %s WITH (kind = stream, payload = %s)" % (self.log, self.payload),
                           *("QUEUE SUBSCRIBE r%d TO %s WITH (parallel = %d)" % (i, self.log, self.workers) for i in range(readers)))

    def drop(self):
        self.rig.statement(self.pooler, "QUEUE DROP %s IF EXISTS" % self.log)

    def forget(self, readers):
        """What was pushed until now is read by nobody."""
        self.rig.statement(self.pooler, *("QUEUE SEEK r%d ON %s TO NOW" % (i, self.log) for i in range(readers)))

    def drain(self, reader, limit):
        """Events per second."""
        if self.then:
            return self._drain_by_then(reader, limit)
        # a worker that finds nothing has come while another one had all that there was, and waits
        return self._read(reader, "LIMIT %d%s" % (self.size, "" if self.workers == 1 else " WAIT '1 s'"), 600, limit, self.workers)

    def _drain_by_then(self, reader, limit):
        """One statement that acknowledges and takes the next; as often as ten deliveries need it."""
        take = "TAKE %s FOR r%d LIMIT %d" % (self.log, reader, self.size)
        return self._got(self.rig.client(self.pooler, "loop", 1, 600, limit, 1, "", 1, 0, "QUEUE %s" % take,
                                         *["QUEUE DONE '%%1' THEN %s" % take] * 9, "QUEUE DONE '%1'"), limit)

    def work(self, deliveries):
        """Events per second whose deliveries are worked on while they are out."""
        got = self.rig.client(self.pooler, "loop", self.workers, 600, deliveries * (WORKED + 1), 1, "", 1, 0,
                              "QUEUE TAKE %s FOR r0 LIMIT %d WAIT '1 s'" % (self.log, WORKED), "SELECT 1, '%1' FROM pg_sleep(0.01)", "QUEUE DONE '%1'")
        return (got["rows"] - got["turns"]) / got["seconds"]

    def wait(self, reader, seconds):
        """As many readers do that are in no hurry."""
        return self._read(reader, "LIMIT %d MIN 100 WITHIN '50 ms' WAIT '1 s'" % LIMIT, seconds, 0, self.workers)

    def _read(self, reader, how, seconds, limit, clients):
        got = self.rig.client(self.pooler, "loop", clients, seconds, limit, 1, "", 1, 0,
                              "QUEUE TAKE %s FOR r%d %s" % (self.log, reader, how), "QUEUE DONE '%1'")
        return self._got(got, limit)

    def _got(self, got, limit):
        if limit and got["rows"] < limit:
            raise Failed("%s: %d events of %d were delivered" % (self.label, got["rows"], limit))
        self.client_us = got["cpu"] / max(got["rows"], 1) * 1e6
        return got["rows"] / got["seconds"]

    def receive(self, connection):
        """The payloads of the next delivery; none: nothing has come."""
        with connection.cursor() as c:
            c.execute("QUEUE TAKE %s FOR r0 WAIT '1 s'" % self.log)
            rows = c.fetchall()
            at = time.monotonic()
            if rows:
                c.execute("QUEUE DONE %s", (rows[0][1],))
        return at, [row[4] for row in rows]

    def send(self, connection, text):
        with connection.cursor() as c:
            c.execute("QUEUE PUSH %s %%s" % self.log, (text,))


class Theirs:
    """A queue of PgQ with one consumer, or more. lag: between its ticks, None: as it comes."""

    def __init__(self, rig, pgq, lag, log="events"):
        self.rig, self.pgq, self.lag, self.log = rig, pgq, lag, log
        self.label = "PgQ, a tick each %s" % lag if lag else "PgQ, as it comes"
        self.push = "SELECT pgq.insert_event('%s', 'event', '%s')" % (log, PAYLOAD)
        self.fill_step = "SELECT count(pgq.insert_event('%s', 'event', '%s')) FROM generate_series(1, %d)" % (log, PAYLOAD, AT_ONCE)

    def fresh(self, readers=1):
        self.drop()
        for sql in ("SELECT pgq.create_queue('%s')" % self.log,
                    *(("SELECT pgq.set_queue_config('%s', 'ticker_max_lag', '%s')" % (self.log, self.lag),
                       "SELECT pgq.set_queue_config('%s', 'ticker_max_count', '%d')" % (self.log, LIMIT)) if self.lag else ()),
                    *("SELECT pgq.register_consumer('%s', 'r%d')" % (self.log, i) for i in range(readers))):
            self._patiently(sql)
        self.pgq.looks_each(0.01 if self.lag else 1)

    def drop(self):
        self.pgq.rests()
        self._patiently("SELECT pgq.drop_queue('%s', true) FROM pgq.queue WHERE queue_name = '%s'" % (self.log, self.log))

    def forget(self, readers):
        self.tick()
        for i in range(readers):
            self._patiently("SELECT pgq.unregister_consumer('%s', 'r%d'), pgq.register_consumer('%s', 'r%d')" % (self.log, i, self.log, i))

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
        return ("SELECT pgq.next_batch('%s', 'r%d')" % (self.log, reader),
                "SELECT b, e.* FROM (SELECT %1::int8 AS b) AS x LEFT JOIN LATERAL pgq.get_batch_events(b) AS e ON true",
                "SELECT pgq.finish_batch(%1)")

    def tick(self):
        """Now, also where pgqd has not heard of the queue yet."""
        self._patiently("SELECT pgq.force_tick('%s')" % self.log)
        self._patiently("SELECT pgq.ticker('%s')" % self.log)

    def drain(self, reader, limit):
        got = self.rig.client(None, "loop", 1, 600, 2 * limit, 0, "", 1, 0, *self._steps(reader))
        # the number of the batch is a row too, once per batch, and again where one has no event
        events = got["rows"] - got["turns"]
        if events < limit:
            raise Failed("%s: %d events of %d were delivered" % (self.label, events, limit))
        return events / got["seconds"]

    def wait(self, reader, seconds):
        return self.rig.client(None, "loop", 1, seconds, 0, 0, "", 1, 50, *self._steps(reader))["rate"]

    def receive(self, connection):
        with connection.cursor() as c:
            c.execute("SELECT pgq.next_batch('%s', 'r0')" % self.log)
            batch = c.fetchone()[0]
            if batch is None:
                time.sleep(0.002)   # its consumers poll
                return time.monotonic(), []
            c.execute("SELECT ev_data FROM pgq.get_batch_events(%s)", (batch,))
            rows = [row[0] for row in c.fetchall()]
            at = time.monotonic()
            c.execute("SELECT pgq.finish_batch(%s)", (batch,))
        return at, rows

    def send(self, connection, text):
        with connection.cursor() as c:
            c.execute("SELECT pgq.insert_event(%s, 'event', %s)", (self.log, text))


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


def _drained(rig, plan, loads):
    """Of each of these loads, name: contender, the rates of so many turns; and for ours the CPU of an event in us, of Postgres,
    of the proxy and of the client, and how many cores that has kept busy."""
    got = {name: [] for name in loads}
    cpu = {name: [] for name in loads}
    for c in {c.log: c for c in loads.values()}.values():
        c.fresh((plan.drains + 1) * sum(c.log == d.log for d in loads.values()))
        _push(rig, c, 4, 600, plan.events // AT_ONCE, c.fill_step)
        if isinstance(c, Theirs):
            c.tick()
    rig.psql("CHECKPOINT")
    first = {name: sum(d.log == c.log for d in list(loads.values())[:i]) for i, (name, c) in enumerate(loads.items())}
    for i, order in enumerate(turns(loads, plan.drains + 1)):
        for name in order:
            c = loads[name]
            each = sum(d.log == c.log for d in loads.values())
            meter, began = Meter(rig, c.pooler), time.monotonic()
            got[name].append(c.drain(i * each + first[name], plan.events))
            if isinstance(c, Ours):
                cost, took = meter.read(plan.events), time.monotonic() - began
                each_us = (cost.postgres_us, cost.pooler_us, c.client_us)
                cpu[name].append((*each_us, sum(each_us) * plan.events / 1e6 / took))
    for c in loads.values():
        c.drop()
    return {name: rates[1:] for name, rates in got.items()}, {name: costs[1:] for name, costs in cpu.items()}


def _spent(cpu):
    """What an event has cost, and how many cores that has kept busy, as text: who waits for the disk leaves some to others."""
    each = [median([cost[i] for cost in cpu]) for i in range(4)]
    return "%.1f us of CPU an event (Postgres %.1f, qbouncer %.1f, client %.1f), %.1f cores busy" % (
        sum(each[:3]), *each)


def _round(rig, plan, c, got, psycopg2):
    c.fresh()
    got["push"].append(_push(rig, c, CLIENTS, plan.seconds))
    if isinstance(c, Ours):
        c.fresh()
        _push(rig, c, 4, 600, plan.events // AT_ONCE, c.fill_step)
        got["work"].append(c.work(plan.events // 2 // WORKED))
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
             Goal("%d workers of a subscription" % WORKERS, "faster than one", "%s; %s; one %s; of %d" % (
                 spread(got[parallel]["drain"], got[ours]["drain"]), _spent(got[parallel]["cpu"]),
                 _spent(got[ours]["cpu"]), len(os.sched_getaffinity(0)))),
             Goal("%d workers, 10 ms of work for each %d events" % (WORKERS, WORKED), "faster than one",
                  "%.2f x" % ratio_of(got[parallel]["work"], got[ours]["work"]))]
    if theirs:
        goals = [Goal("push to a stream, %d clients" % CLIENTS, ">= 3 x pgq.insert_event",
                      "%.2f x" % ratio_of(got[ours]["push"], got[theirs[0]]["push"])),
                 Goal("one consumer of a stream", "as fast as PgQ's",
                      "%s, with THEN TAKE %s, in deliveries of %d %s; of text, as PgQ's, %s and %s (the middle half of %d turns)" % (
                          *(spread(got[ours][of], got[theirs[0]]["drain"]) for of in ("drain", "then")), LARGE,
                          *(spread(got[ours][of], got[theirs[0]]["drain"]) for of in ("large", "text", "large text")),
                          len(got[ours]["drain"]))), *goals]
    return goals


def _measured(rig, plan, all_of_them, psycopg2):
    ours, parallel, *theirs = all_of_them
    got = {c: {of: [] for of in ("push", "work", "beside", "way", "behind", *PACED)} for c in all_of_them}
    copied = []
    pooler = ours.pooler
    drained, cpu = _drained(rig, plan, {
        "drain": Ours(rig, pooler, log="drained"), "then": Ours(rig, pooler, log="drained", then=True),
        "large": Ours(rig, pooler, log="drained", size=LARGE), "text": Ours(rig, pooler, payload="text", log="texts"),
        "large text": Ours(rig, pooler, payload="text", log="texts", size=LARGE), parallel: Ours(rig, pooler, WORKERS, log="shared"),
        **{c: Theirs(rig, c.pgq, c.lag, "drained%d" % i) for i, c in enumerate(theirs)}})
    for of in ("drain", "then", "large", "text", "large text"):
        got[ours][of] = drained[of]
    for c in (parallel, *theirs):
        got[c]["drain"] = drained[c]
    got[ours]["cpu"], got[parallel]["cpu"] = cpu["drain"], cpu[parallel]
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
    for of, what in (("then", "DONE ... THEN TAKE"), ("large", "deliveries of %d" % LARGE), ("text", "payload = text"),
                     ("large text", "deliveries of %d, payload = text" % LARGE)):
        rows.append(["qbouncer, " + what, "", "",
                     number(median(got[ours][of])), ratio(got[ours]["drain"], got[ours][of]), *[""] * 7])
    rows.append(["COPY into a bare table", "", "", number(median(copied)), ratio(got[ours]["drain"], copied), *[""] * 7])
    return Table(
        "Streams",
        "Events per second: pushed by %d clients one at a time; %d events, pushed by transactions of %d, read by one consumer in "
        "deliveries of %d (of PgQ: between two ticks), with parallel by %d workers of it; further lines have one statement that "
        "acknowledges and takes the next, larger deliveries, and a stream of text, which events of PgQ are, too (ours are jsonb). "
        "All logs are read by turns, %d times; x is the median of the ratios of each turn. COPY writes as many. Beside readers: the "
        "rate of pushes while %d consumers read all of it (MIN 100 WITHIN '50 ms'), by the rate without them, by turns. A third: "
        "what a push takes at a third of the rate, the median in ms, alone and beside these consumers; and at %d a second. Way: 100 "
        "events per second, the median in ms, from before the push to the delivery; behind: from the answer to the push. PgQ is "
        "called directly, its consumers poll each 2 ms (where pushes are measured each 50 ms). A goal has workers that sleep 10 ms "
        "on each delivery of %d before its DONE."
        % (CLIENTS, plan.events, AT_ONCE, LIMIT, WORKERS, plan.drains, READERS, SLOWLY, WORKED),
        ["", "push/s", "qbouncer is x", "read/s", "qbouncer is x", "beside readers", "a third", "and beside", "%d/s" % SLOWLY, "and beside", "way", "behind"], rows,
        _goals(got, ours, parallel, theirs))
