#!/usr/bin/python3
"""The checker of jobs that run by themselves: handlers, one by one and with handler_batch, and SQL, in a transaction and
without. Pushers commit jobs and roll some back, handlers fail, ask to be called again and push further jobs, while proxies
are killed with -9 or stopped for a while, backends are terminated, and connections are cut before their answers or go
silent. In the history that is there in the end each job that was committed has its effect once, and never did a job run
twice at once.

    /usr/bin/python3 test/check/runs.py --build DIR --seconds 300
    /usr/bin/python3 test/check/runs.py --build DIR --seconds 300 --crashes     backends are killed: the server recovers

For:     the command line and test/it/queue/test_run_checker.py.
Must not know: how anything is done.
Entry points: Runs (setup, begin, mishaps, drain, verdict), judge, main.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib")]

import psycopg  # noqa: E402

import check  # noqa: E402
from pgcluster import Cluster  # noqa: E402
from proxy import Proxy, runnable, wait_for  # noqa: E402

RETRY = "max_attempts = 1000000, retry = 'fixed 20ms', retain_done = '1 hour'"
QUEUES = {
    "one": "handler = 'public.act', " + RETRY,
    "many": "handler = 'public.act', handler_batch = 50, " + RETRY,
    "few": "handler = 'public.act', handler_batch = 20, max_running = 7, timeout = '300 ms', " + RETRY,
    "single": "handler = 'public.act', handler_batch = 5, single_consumer = true, " + RETRY,
    "stated": "run = sql, " + RETRY,
    "alone": "run = sql, " + RETRY,     # NO TRANSACTION
}
SETTINGS = {**check.SETTINGS, "queue_hold_lease": "2s", "queue_run_pool_size": 4}
WAITING = 400    # jobs at most, so that the end is near
STOPPED = (0.2, 5)    # seconds that a proxy is stopped; its leases last for 2

# What a job does, beside its work for a moment: all of it is part of the transaction of its DONE. "moods" of a payload are
# those of its first attempts.
SETUP = """
CREATE TABLE pushed (uid text PRIMARY KEY, queue text);
CREATE TABLE effects (uid text, attempt int);
CREATE TABLE asked (uid text);
CREATE SEQUENCE overlapped;   -- which no rollback takes back
-- Holds what nobody else can have who does the same at the same time.
CREATE FUNCTION is_here(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(payload ->> 'uid', 0)) THEN
        PERFORM nextval('overlapped');
    END IF;
END $$;
CREATE FUNCTION act(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    job CONSTANT jsonb := queue.current_job();
    mood CONSTANT text := payload -> 'moods' ->> (job ->> 'attempt')::int - 1;
    child CONSTANT text := payload ->> 'uid' || ' child';
BEGIN
    IF job ->> 'queue' IN ('one', 'stated') THEN
        PERFORM is_here(payload);
    END IF;
    PERFORM pg_sleep(random() * CASE mood WHEN 'long' THEN 0.5 ELSE 0.005 END);
    IF mood = 'again' THEN
        INSERT INTO asked VALUES (payload ->> 'uid');
        RETURN queue.retry('1 ms', 'not yet', random() < 0.5);
    END IF;
    INSERT INTO effects VALUES (payload ->> 'uid', (job ->> 'attempt')::int);
    IF mood = 'bad' THEN
        RAISE EXCEPTION 'a bad mood';
    ELSIF mood = 'gone' THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    ELSIF mood = 'parent' THEN
        INSERT INTO pushed VALUES (child, 'many');
        PERFORM queue.push('many', jsonb_build_object('uid', child, 'moods', '[]'::jsonb));
    END IF;
    RETURN to_jsonb(payload ->> 'uid');
END $$;
-- It may be carried out more than once.
CREATE FUNCTION act_alone(payload jsonb, mood text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM is_here(payload), pg_sleep(random() * CASE mood WHEN 'long' THEN 0.5 ELSE 0.005 END);
    INSERT INTO effects SELECT payload ->> 'uid', 0 WHERE NOT EXISTS (SELECT FROM effects WHERE uid = payload ->> 'uid');
    IF mood = 'gone' AND random() < 0.7 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
END $$
"""
MOODS = ("good",) * 30 + ("bad", "again", "long", "parent", "gone")
MOODS_OF_SQL = tuple(m for m in MOODS if m != "again")


def judge(pushed, effects, ends, left):
    """pushed: uids that were committed; effects: a uid for each; ends: (uid, state) of what is kept; left: uids. Sentences."""
    said, n, how = [], {}, {}
    for uid in effects:
        n[uid] = n.get(uid, 0) + 1
    for uid, state in ends:
        how.setdefault(uid, []).append(state)
    for uid in sorted(pushed):
        if n.get(uid, 0) != 1 and uid not in left:
            said.append("effect: %s has %d" % (uid, n.get(uid, 0)))
        elif uid in left:
            said.append("left: %s, with %d effects" % (uid, n.get(uid, 0)))
        if uid not in left and how.get(uid) != ["done"]:
            said.append("end: %s is %s" % (uid, how.get(uid, "nowhere")))
    for uid in sorted((set(n) | set(how) | set(left)) - set(pushed)):
        said.append("rolled back: %s was not committed and is there" % uid)
    return said


class Runs:
    """proxies are running, before a database whose first owner is app. where: gives the conninfo of the server that there is now,
    past them; relay: between the two, or None."""

    def __init__(self, proxies, db, where, seed, relay=None, say=print):
        self.proxies, self.db, self.where, self.relay, self.say = proxies, db, where, relay, say
        self.random = random.Random(seed)
        self.over = threading.Event()
        self.threads, self.wrong = [], []
        self.counts = {"kill": 0, "stop": 0, "terminate": 0, "crash": 0, "cut": 0, "silent": 0}
        self.asleep, self.until = None, 0   # a proxy that is stopped, and how long
        self.crash_after = None             # seconds: backends are killed, too
        say("seed %r" % seed)

    def setup(self):
        with self.proxies[0].connect(self.db) as conn:
            conn.execute("QUEUE LIST")
            conn.execute(SETUP)
            for queue, options in QUEUES.items():
                conn.execute("QUEUE CREATE %s WITH (%s)" % (queue, options))
        self.visit()

    def visit(self):
        """A process runs the jobs of a database once somebody has come."""
        for proxy in self.proxies:
            def came(proxy=proxy):
                try:
                    with proxy.connect(self.db) as conn:
                        return conn.execute("QUEUE LIST").fetchall()
                except psycopg.Error:
                    return None     # it was killed, or its server
            wait_for(came, "a proxy that answers", timeout=60)

    # --- who pushes -------------------------------------------------------------------------------

    def push_some(self, conn, rng, name, n):
        uids = ["%s.%d.%d" % (name, n, i) for i in range(rng.choice((1, 1, 3, 20)))]
        conn.execute("BEGIN")
        for uid in uids:
            queue = rng.choice(list(QUEUES))
            moods = [rng.choice(MOODS_OF_SQL if queue == "stated" else MOODS) for _ in range(3)]
            payload = psycopg.types.json.Jsonb({"uid": uid, "moods": moods})
            conn.execute("INSERT INTO pushed VALUES (%s, %s)", (uid, queue))
            if queue == "stated":
                conn.execute("SELECT queue.run('stated', 'SELECT act($1::jsonb)', jsonb_build_array(%s::jsonb))", (payload,))
            elif queue == "alone":
                conn.execute("SELECT queue.run('alone', 'SELECT act_alone($1, $2)', jsonb_build_array(%s::jsonb, %s::text), no_transaction => true)",
                             (payload, moods[0]))
            else:
                conn.execute('SELECT queue.push(%s, %s, "group" => %s)', (queue, payload, rng.choice((None, None, "g1", "g2"))))
        conn.execute("ROLLBACK" if rng.random() < 0.15 else "COMMIT")

    def pusher(self, name, seed):
        rng, n = random.Random(seed), 0
        while not self.over.is_set():
            try:
                with psycopg.connect(self.where(), user="app", autocommit=True) as conn:
                    while not self.over.is_set():
                        n += 1
                        self.push_some(conn, rng, name, n)
                        while not self.over.wait(0.02) and conn.execute(self.waiting()).fetchone()[0] > WAITING:
                            pass
            except psycopg.Error as e:
                if (e.sqlstate or "")[:2] in ("22", "23", "42", "P0", "XX"):
                    self.wrong.append("pusher: %s" % e)
                self.over.wait(0.05)

    @staticmethod
    def waiting():
        return "SELECT " + " + ".join("(SELECT count(*) FROM queue.q_%s)" % q for q in QUEUES)

    def begin(self):
        for i in range(3):
            self.threads.append(threading.Thread(target=self.pusher, args=("p%d" % i, self.random.random())))
            self.threads[-1].start()

    # --- mishaps ----------------------------------------------------------------------------------

    def terminate_one(self, direct):
        self.counts["terminate"] += len(direct.execute(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' ORDER BY strpos(query, '_run_') = 0 OR state <> 'active', random() LIMIT 1) AS one",
            (self.db,)).fetchall())

    def lose_one(self):
        how = self.random.choice(("cut", "cut", "silent", "never"))
        self.relay.arm(None, how)
        self.counts["cut" if how == "cut" else "silent"] += 1

    def crash(self, direct):
        """All backends end, and what was not written to the log of the server is gone."""
        (pid,) = direct.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                                " ORDER BY random() LIMIT 1", (self.db,)).fetchone() or (0,)
        if pid:
            os.kill(pid, signal.SIGKILL)
            self.counts["crash"] += 1

    def stop_one(self):
        self.asleep = self.random.choice(self.proxies)
        self.until = time.monotonic() + self.random.uniform(*STOPPED)
        self.asleep.signal(signal.SIGSTOP)
        self.counts["stop"] += 1

    def wake(self):
        if self.asleep:
            self.asleep.signal(signal.SIGCONT)
        self.asleep = None

    def kill_one(self):
        self.wake()
        proxy = self.random.choice(self.proxies)
        proxy.kill()
        proxy.start()
        self.counts["kill"] += 1
        self.visit()

    def mishaps(self, seconds):
        until, kill_at = time.monotonic() + seconds, time.monotonic() + 3
        crash_at = time.monotonic() + self.crash_after if self.crash_after else float("inf")
        while time.monotonic() < until:
            try:
                with psycopg.connect(self.where(), autocommit=True) as direct:
                    self.terminate_one(direct)
                    if time.monotonic() > crash_at:
                        self.crash(direct)
                        crash_at = time.monotonic() + self.random.uniform(0.5, 2) * self.crash_after
            except psycopg.OperationalError:
                if not self.crash_after:
                    raise
            if self.asleep and time.monotonic() > self.until:
                self.wake()
            elif not self.asleep and self.random.random() < 0.1:
                self.stop_one()
            if self.relay and self.random.random() < 0.3:
                self.lose_one()
            if time.monotonic() > kill_at:
                self.kill_one()
                kill_at = time.monotonic() + self.random.uniform(1, 4)
            self.over.wait(0.1)    # the pace of the mishaps

    # --- the verdict ------------------------------------------------------------------------------

    def end(self):
        self.wake()
        self.over.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive(), "a pusher does not end"

    def drain(self, patience=90):
        """What is there comes to its end without mishaps."""
        self.end()
        if self.relay:
            self.relay.disarm()
            self.relay.forget_silent()
        self.visit()
        with psycopg.connect(self.where(), autocommit=True) as direct:
            try:
                wait_for(lambda: direct.execute(self.waiting()).fetchone()[0] == 0, "the end of all jobs", timeout=patience)
            except AssertionError:
                pass    # the verdict names them

    def verdict(self):
        """What went wrong: sentences."""
        with psycopg.connect(self.where(), autocommit=True) as direct:
            def column(sql):
                return [r[0] for r in direct.execute(sql).fetchall()]
            uid = "CASE WHEN payload ? 'sql' THEN payload -> 'params' -> 0 ELSE payload END ->> 'uid'"
            pushed, effects = column("SELECT uid FROM pushed"), column("SELECT uid FROM effects")
            left = {u for q in QUEUES for u in column("SELECT %s FROM queue.q_%s" % (uid, q))}
            ends = [r for q in QUEUES for r in direct.execute("SELECT %s, state FROM queue.a_%s" % (uid, q)).fetchall()]
            of_queue = dict(direct.execute("SELECT queue, count(*) FROM pushed GROUP BY 1").fetchall())
            asked, = direct.execute("SELECT count(*) FROM asked").fetchone()
            overlaps, = direct.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM overlapped").fetchone()
            together, = direct.execute("SELECT count(*) FROM (SELECT FROM effects GROUP BY xmin::text HAVING count(*) > 1) AS x").fetchone()
        said = self.wrong + judge(pushed, effects, ends, left)
        said += ["nothing: no job of %s" % q for q in QUEUES if q not in of_queue]
        if overlaps:
            said.append("overlap: %d times a job ran that ran already" % overlaps)
        if together == 0:
            said.append("nothing: never were two jobs done together")
        self.say("%d jobs, %d asked to be called again, %d batches; %s" % (
            len(pushed), asked, together, ", ".join("%d %s" % (n, what) for what, n in self.counts.items())))
        return said

    def run(self, seconds):
        self.setup()
        self.begin()
        try:
            self.mishaps(seconds)
        finally:
            self.end()
        self.drain()


def main():
    p = argparse.ArgumentParser(description="Kill what runs jobs, and see whether each is done once.")
    p.add_argument("--build", default=os.environ.get("QB_BUILD", "."), help="where qbouncer is")
    p.add_argument("--seconds", type=float, default=300)
    p.add_argument("--seed", default=str(random.randrange(10 ** 6)))
    p.add_argument("--crashes", action="store_true", help="kill backends, so that the server recovers")
    a = p.parse_args()
    with Cluster() as pg, runnable(os.path.join(a.build, "qbouncer")) as program:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE admin LOGIN")
        db = pg.createdb(owner="app")
        relay = check.relay_to(pg.port)
        proxies = [Proxy(program, pg, databases=check.through(relay), **SETTINGS) for _ in range(2)]
        try:
            for proxy in proxies:
                proxy.start()
            runs = Runs(proxies, db, lambda: pg.dsn(db), a.seed, relay)
            runs.crash_after = 8 if a.crashes else None
            runs.run(a.seconds)
            said = runs.verdict()
            for proxy in proxies:
                proxy.stop()
        finally:
            for proxy in proxies:
                proxy.remove()
            relay.stop()
    print("\n".join(check.few_of_each(said)) or "all is well")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
