"""Workers of streams at random, while server processes and proxies are killed, and proxies stopped for a while: each event that was committed has its effect once
in each subscription, those that were rolled back have none, and with on_fail = block the events of a group take effect in their
order; also those of cooperating workers, whose number is changed meanwhile, and of whose deliveries no two have a group. With
WHERE it is so of the events that fit, and the others have none. Who says DONE ... THEN TAKE, with his work elsewhere, may do it
again, and misses nothing.
"""

import collections
import contextlib
import random
import signal
import threading
import time

import psycopg
import pytest

from proxy import wait_for

SECONDS = 3
STOPPED = 2.5   # seconds; leases last for 2
SUBSCRIPTIONS = {"plain": "retry = 'fixed 5ms'", "strict": "retry = 'fixed 5ms', on_fail = block",
                 "four": "retry = 'fixed 5ms', parallel = 4", "strict4": "retry = 'fixed 5ms', on_fail = block, parallel = 4",
                 "sifted": "retry = 'fixed 5ms'", "sifted4": "retry = 'fixed 5ms', parallel = 4", "loop": "lease = '2 s'", "loop4": "parallel = 4"}
FITS = " WHERE ((payload #>> '{}') ~ '[02468]$')"
STRICT = [s for s in SUBSCRIPTIONS if s.startswith("strict")]
# Two deliveries that may have a group in common: of one lane, or of lanes before and behind a change.
TOGETHER = """
    SELECT u.name FROM queue.deliveries AS d JOIN queue.subscriptions AS u ON u.number = d.sub GROUP BY u.name, u.lanes, u.lane
        HAVING count(*) > 1
    UNION ALL SELECT u.name FROM queue.deliveries AS d JOIN queue.subscriptions AS u ON u.number = d.sub WHERE u.waits"""
MISSING = """
    SELECT s, p.uid FROM pushed AS p, unnest(%s::text[]) AS s
        WHERE (s !~ '^sifted' OR p.uid ~ '[02468]$') AND NOT EXISTS (SELECT FROM effects AS e WHERE (e.sub, e.uid) = (s, p.uid)) ORDER BY 1, 2"""
STATE = {"lanes": """
    SELECT u.number, u.name, u.lane, u.lanes, u.waits, u.ends, p AS position, d AS delivery, clock_timestamp() FROM queue.subscriptions AS u
        LEFT JOIN queue.positions AS p ON p.sub = u.number LEFT JOIN queue.deliveries AS d ON d.sub = u.number WHERE u.name = ANY (%s) ORDER BY 1""",
    "retries": """
    SELECT r.sub, r.id, r.due_at, r.dead, r.delivery, r.attempt, r.together, r.blocks, r."group", r.payload_jsonb FROM queue.retries AS r
        WHERE r.sub IN (SELECT number FROM queue.subscriptions WHERE name = ANY (%s)) ORDER BY 1, 2 LIMIT 50""",
    "events of": """
    SELECT u.name, e.id, e.xid, e.bucket, e."group", e.payload FROM queue.streams AS s, queue.subscriptions AS u, queue.{log} AS e
        WHERE u.name = ANY (%s) AND u.lane = 0 AND u.ends IS NULL AND NOT EXISTS (SELECT FROM effects AS f WHERE f.sub = u.name AND f.uid = e.payload::jsonb #>> '{{}}')
        ORDER BY 1, 2 LIMIT 50""",
    "sessions": """
    SELECT pid, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid), clock_timestamp() - xact_start, left(query, 100) FROM pg_stat_activity
        WHERE datname = current_database() AND cardinality(%s::text[]) > 0"""}
# Who has failed seven times, and then lost his connection, would come again after a minute.
SOON = """
    UPDATE queue.deliveries SET lease_until = clock_timestamp() WHERE token ~ '^w' AND lease_until > clock_timestamp() + interval '1 s'"""
SETUP = """
    CREATE TABLE pushed (uid text PRIMARY KEY);
    CREATE TABLE effects (n int8 GENERATED ALWAYS AS IDENTITY, sub text, uid text, PRIMARY KEY (sub, uid))"""


class Load:
    def __init__(self, proxies, db, seed):
        self.proxies, self.db, self.seed = proxies, db, seed
        self.pushing = self.failing = True
        self.ended = threading.Event()
        self.wrong = []     # errors that no lost connection explains
        self.heard = collections.deque(maxlen=40)   # who got which error, the last ones
        self.threads = []

    def go(self, name, act):
        rng = random.Random("%s %s" % (name, self.seed))

        def run():
            while not self.ended.is_set():
                try:
                    with psycopg.connect(rng.choice(self.proxies).dsn(self.db), autocommit=True) as c:
                        act(c, rng, name)
                except psycopg.Error as e:
                    self.heard.append("%s: %s %s" % (name, e.sqlstate, str(e).split("\n", 1)[0]))
                    if (e.sqlstate or "")[:2] in ("22", "23", "42", "P0", "XX"):
                        self.wrong.append(e)
        self.threads.append(threading.Thread(target=run, name=name))
        self.threads[-1].start()

    def end(self):
        self.ended.set()
        for t in self.threads:
            t.join(30)

    # --- who pushes: each has groups of his own, one transaction after the other, so that each has an order

    def push(self, c, rng, name):
        with contextlib.suppress(psycopg.errors.UndefinedObject):
            c.execute("COMMIT PREPARED '%s'" % name)    # of before: what overlaps has no order
        while self.pushing:
            n = c.execute("SELECT count(*) FROM pushed WHERE uid LIKE %s", (name + "%",)).fetchone()[0]
            how = rng.choice(["alone", "alone", "rollback", "savepoint", "slow", "prepared"])
            uids = ["%s %06d %d" % (name, n + i, rng.randrange(10 ** 9)) for i in range(rng.randint(1, 4))]
            c.execute("BEGIN")
            for uid in uids:
                if how == "savepoint":
                    c.execute("SAVEPOINT s")
                    c.execute("QUEUE PUSH s '\"never\"' GROUP 'g'")
                    c.execute("ROLLBACK TO s")
                c.execute("INSERT INTO pushed VALUES (%s)", (uid,))
                c.execute("QUEUE PUSH s '\"%s\"' GROUP '%s'" % (uid, name))
                if how == "slow":
                    c.execute("SELECT pg_sleep(0.01)")
            if how == "prepared":
                c.execute("PREPARE TRANSACTION '%s'" % name)
                c.execute("COMMIT PREPARED '%s'" % name)
            else:
                c.execute("ROLLBACK" if how == "rollback" else "COMMIT")
        self.ended.wait()

    # --- who works

    def loop(self, c, rng, name):
        """Each worker one round trip for a delivery. What he has done is there before he says so."""
        sub = name.split()[0]
        take = "TAKE s FOR %s LIMIT %d WAIT '50 ms' LEASE '2 s'" % (sub, rng.randint(1, 20))
        rows = []
        while not self.ended.is_set():
            rows = c.execute("QUEUE %s" % ("DONE '%s' THEN %s" % (rows[0][1], take) if rows else take)).fetchall()
            for r in rows:
                c.execute("INSERT INTO effects (sub, uid) VALUES (%s, %s) ON CONFLICT DO NOTHING", (sub, r[4]))

    def work(self, c, rng, name):
        sub = name.split()[0]
        where = FITS if sub.startswith("sifted") else ""
        while not self.ended.is_set():
            # with MIN: one that counts, and one that has not waited for long
            more = rng.choice(["WAIT '50 ms'", "WAIT '50 ms'", "MIN 2 WITHIN '20 ms' WAIT '50 ms'", "MIN 3 WITHIN '40 ms' WAIT '300 ms'"])
            rows = c.execute("QUEUE TAKE s FOR %s LIMIT %d %s LEASE '2 s'%s" % (sub, rng.randint(3, 20), more, where)).fetchall()
            if not rows:
                continue
            what = rng.choice(["done", "done", "events", "events", "fail", "release", "rollback", "gone"]) if self.failing else "done"
            if what == "gone":
                return
            bad = {r[0] for r in rng.sample(rows, rng.randint(1, len(rows)))} if what == "events" else set()
            stopped = set()
            c.execute("BEGIN")
            for r in rows:
                if r[0] in bad:
                    stopped.add(r[7])
                elif sub not in STRICT or r[7] not in stopped:
                    try:
                        c.execute("INSERT INTO effects (sub, uid) VALUES (%s, %s)", (sub, r[4]))
                    except psycopg.errors.UniqueViolation as twice:
                        self.late(c, r[1], twice)
                        return
            if what == "events":
                c.execute("QUEUE FAIL '%s' EVENT %s" % (rows[0][1], ", ".join(str(i) for i in bad)))
            elif what == "done":
                c.execute("QUEUE DONE '%s'" % rows[0][1])
            c.execute("COMMIT" if what in ("done", "events") else "ROLLBACK")
            if what in ("fail", "release"):
                c.execute("QUEUE %s '%s'" % (what.upper(), rows[0][1]))


    def late(self, c, token, twice):
        """Somebody else has done it: so its lease was over, or its proxy was thought to be gone."""
        c.execute("ROLLBACK")
        try:
            c.execute("QUEUE DONE '%s'" % token)
        except psycopg.Error as refused:
            if refused.sqlstate == "QB001":
                return
            raise       # its connection was lost
        raise twice

    # --- who changes how many work

    def change(self, c, rng, name):
        while self.failing:
            for sub in ("four", "strict4"):
                with contextlib.suppress(psycopg.errors.ObjectNotInPrerequisiteState):     # of before
                    c.execute("QUEUE ALTER s FOR %s SET (parallel = %d)" % (sub, rng.choice([1, 2, 3, 4, 4, 4])))
            self.ended.wait(0.05)
        self.ended.wait()


def said_of(load, root):
    """Which subscriptions lack which events, and how they are."""
    missing = root.execute(MISSING, (list(SUBSCRIPTIONS),)).fetchall()
    told = ["%s lacks %d: %s" % (sub, len(uids), uids[:20]) for sub in sorted({m[0] for m in missing})
            for uids in [[m[1] for m in missing if m[0] == sub]]]
    log = "e%d_0" % root.execute("SELECT number FROM queue.streams").fetchone()[0]
    for what, sql in STATE.items():
        told += ["--- %s" % what] + [str(row) for row in root.execute(sql.format(log=log), (sorted({m[0] for m in missing}),))]
    for proxy in load.proxies:
        told += ["--- waiters"] + [str(row) for row in proxy.console("SHOW WAITERS")]
    return "\n".join(told + ["--- errors"] + list(load.heard))


@pytest.mark.parametrize("seed", range(2))
def test_exactly_once(qbouncer, cluster, seed):
    db = cluster.createdb(owner="app")

    def proxy():
        return qbouncer(default_pool_size=8, queue_rescan="100ms", queue_heartbeat="20ms", queue_orphan_grace="100ms",
                        log_connections=0, log_disconnections=0)
    proxies = [proxy(), proxy()]
    with psycopg.connect(proxies[0].dsn(db), autocommit=True) as c:
        c.execute("QUEUE CREATE s WITH (kind = stream)")
        for sub, options in SUBSCRIPTIONS.items():
            c.execute("QUEUE SUBSCRIBE %s TO s WITH (%s)" % (sub, options))
        c.execute(SETUP)
    load, killed = Load(proxies, db, seed), 0
    with psycopg.connect(cluster.dsn(db), autocommit=True) as root:
        try:
            for i in range(3):
                load.go("push%d" % i, load.push)
            for sub in SUBSCRIPTIONS:
                for i in range(3):
                    load.go("%s %d" % (sub, i), load.loop if sub.startswith("loop") else load.work)
            load.go("change", load.change)
            until = time.monotonic() + SECONDS
            n = 0
            while time.monotonic() < until or root.execute("SELECT count(*) FROM pushed").fetchone()[0] <= 50:     # one, whenever there was an effect since the last
                n = wait_for(lambda: (lambda now: now > n and now)(root.execute("SELECT count(*) FROM effects").fetchone()[0]), "effects")
                root.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND datname = %s"
                             " ORDER BY random() LIMIT 1", (db,))
                assert root.execute(TOGETHER).fetchall() == []
                killed += 1
                if killed % 8 == 4:
                    gone = proxies.pop(0)
                    proxies.append(proxy())
                    gone.kill()
                elif killed % 8 == 0:       # nobody knows of it, and its leases end
                    proxies[0].signal(signal.SIGSTOP)
                    load.ended.wait(STOPPED)
                    proxies[0].signal(signal.SIGCONT)
            load.pushing = load.failing = False
            def all_there():
                if root.execute("SELECT 1 FROM pg_prepared_xacts WHERE database = current_database()").fetchone():
                    return False
                root.execute(SOON)
                return not root.execute(MISSING, (list(SUBSCRIPTIONS),)).fetchone()
            try:
                wait_for(all_there, "all effects", timeout=40)
            except AssertionError as late:
                raise AssertionError("%s\n%s" % (late, said_of(load, root))) from None
        finally:
            load.end()
        assert load.wrong == []
        assert root.execute("SELECT count(*) FROM effects AS e WHERE NOT EXISTS (SELECT FROM pushed AS p WHERE p.uid = e.uid)").fetchone()[0] == 0
        assert root.execute("SELECT count(*) FROM effects WHERE sub ~ '^sifted' AND uid !~ '[02468]$'").fetchone()[0] == 0
        assert root.execute("SELECT count(*) FROM queue.retries").fetchone()[0] == 0
        for sub in STRICT:
            for i in range(3):
                uids = [r[0] for r in root.execute("SELECT uid FROM effects WHERE sub = %s AND uid LIKE %s ORDER BY n", (sub, "push%d%%" % i))]
                assert uids == sorted(uids)
