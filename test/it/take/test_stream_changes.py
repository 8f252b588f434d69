"""Readers and pushers of a stream at two proxies while everything about it is changed at random, and server processes are killed:
SEEK, UNSUBSCRIBE, DROP, ALTER, UNBIND, UNTRACK beside deliveries that are out. Nobody gets an error that says something is wrong
with us, nobody hangs, and afterwards what is pushed is delivered.
"""

import contextlib
import random
import threading
import time

import psycopg
import pytest

SECONDS = 4
# what was changed under somebody, what is not there any more, what was killed; never 22, 23, 42601, 42883, XX
EXPECTED = {"QB001", "QB005", "QB007", "42P01", "42704", "42710", "42P07", "55000", "55P03", "40001", "40P01", "25P02",
            "57P01", "57P03", "08006", "08003", None}
SETUP = ["QUEUE CREATE jobs", "QUEUE CREATE s WITH (kind = stream)", "QUEUE CREATE TOPIC t", "QUEUE BIND s TO 't.#'", "QUEUE BIND jobs TO 't.a.#'",
         "QUEUE SUBSCRIBE x TO s WITH (retry = 'fixed 5ms')", "QUEUE SUBSCRIBE y TO s WITH (parallel = 4, retry = 'fixed 5ms')",
         "CREATE TABLE tab (id int PRIMARY KEY, v int)", "QUEUE TRACK tab IN s",
         "CREATE PROCEDURE p(n int) LANGUAGE plpgsql AS $$BEGIN FOR i IN 1..n LOOP PERFORM queue.push('s', to_jsonb(i), \"group\" => (i % 3)::text); "
         "IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF; END LOOP; END$$"]
ENDS = ["QUEUE DONE '{token}'"] * 5 + ["QUEUE FAIL '{token}' RETRY IN '1 ms'", "QUEUE FAIL '{token}' EVENT {event}", "QUEUE FAIL '{token}' FINAL",
                                       "QUEUE RELEASE '{token}'", "QUEUE EXTEND '{token}' LEASE '1 s'", "QUEUE PEEK '{token}'", ""]
PUSHES = ["QUEUE PUSH s '1' GROUP 'a'", "QUEUE PUSH s '1', '2'", "QUEUE PUBLISH 't.a' '1'", "SELECT queue.publish('t.a', '1')", "CALL p(7)",
          "SELECT queue.publish('t.b', '1'::jsonb)", "INSERT INTO tab VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = tab.v + 1",
          "QUEUE PUSH s SELECT to_jsonb(g) FROM generate_series(1, 50) AS g", "QUEUE POP jobs LIMIT 50",
          "BEGIN|QUEUE PUSH s '7'|QUEUE PUBLISH 't.b' '2' MANDATORY|COMMIT", "BEGIN ISOLATION LEVEL REPEATABLE READ|QUEUE PUSH s '7'|ROLLBACK"]
ANEW = "|".join(["QUEUE DROP s", "QUEUE CREATE s WITH (kind = stream, retain_max = '2 s')", "QUEUE SUBSCRIBE x TO s", "QUEUE SUBSCRIBE y TO s WITH (parallel = 2)",
                 "QUEUE BIND s TO 't.#'", "QUEUE TRACK tab IN s"])
CHANGES = ["QUEUE SEEK x ON s TO BEGINNING", "QUEUE SEEK y ON s TO NOW", "QUEUE UNSUBSCRIBE x FROM s|QUEUE SUBSCRIBE x TO s FROM BEGINNING WITH (on_fail = block)",
           "QUEUE UNSUBSCRIBE y FROM s|QUEUE SUBSCRIBE y TO s FROM BEGINNING WITH (parallel = 2)", "BEGIN|" + ANEW + "|COMMIT", "BEGIN|" + ANEW + "|ROLLBACK",
           "QUEUE ALTER s FOR y SET (parallel = 1)", "QUEUE ALTER s FOR y SET (parallel = 4)", "QUEUE ALTER s FOR x SET (parallel = 2)",
           "QUEUE ALTER s SET (retain = '0', retain_max = '1 s')", "QUEUE ALTER s SET (retain = '0', retain_max = '1 h')", "SELECT queue.maintain()",
           "QUEUE SUBSCRIPTIONS", "QUEUE STATS", "QUEUE HEALTH", "QUEUE PEEK s FOR x STATE dead", "QUEUE REDRIVE s FOR x", "QUEUE REDRIVE s FOR y",
           "QUEUE UNBIND s FROM 't.#'|QUEUE BIND s TO 't.#'", "QUEUE UNBIND jobs FROM 't.a.#'|QUEUE BIND jobs TO 't.a.#'", "QUEUE UNTRACK tab|QUEUE TRACK tab IN s",
           "BEGIN ISOLATION LEVEL REPEATABLE READ|SELECT count(*) FROM tab|QUEUE SUBSCRIPTIONS|QUEUE TAKE s FOR x|ROLLBACK"]


class Chaos:
    def __init__(self, proxies, db, seed):
        self.proxies, self.db, self.seed = proxies, db, seed
        self.wrong, self.end = [], time.monotonic() + SECONDS

    def over(self):
        return time.monotonic() > self.end

    def say(self, c, sql):
        """Its rows; none: it has failed, as it may."""
        try:
            cur = c.execute(sql)
            return cur.fetchall() if cur.description else []
        except psycopg.Error as e:
            if e.sqlstate not in EXPECTED:
                self.wrong.append((sql, e.sqlstate, str(e)))
            if c.broken:
                raise
            return []

    def read(self, c, rng):
        how = rng.choice(["", "LAG '50 ms'", "LAG '1 h'", "MIN 5 WITHIN '100 ms' LIMIT 10", "LIMIT 1"])
        take = "FOR %s %s %s LEASE '%s' %s" % (rng.choice("xy"), how, rng.choice(["", "WAIT '300 ms'"]), rng.choice(["200 ms", "1 min"]),
                                               rng.choice(["", "", "WHERE (payload::text <> '7')", "WHERE (\"group\" = 'a')"]))
        rows = self.say(c, "QUEUE TAKE s " + take)
        while rows and rng.random() < 0.3:
            rows = self.say(c, "QUEUE DONE '%s' THEN TAKE s %s" % (rows[0][1], take))
        if not rows:
            return
        if rng.random() < 0.1:
            c.close()   # with what it has
            return
        end = rng.choice(ENDS).format(token=rows[0][1], event=rows[-1][0])
        inside = rng.random() < 0.4
        for sql in [rng.choice(["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"])] * inside + [end] * bool(end) + [rng.choice(["COMMIT", "ROLLBACK"])] * inside:
            self.say(c, sql)

    def push(self, c, rng):
        for sql in rng.choice(PUSHES).split("|"):
            self.say(c, sql)

    def change(self, c, rng):
        for sql in rng.choice(CHANGES).split("|"):
            self.say(c, sql)

    def act(self, what, n):
        rng = random.Random("%s %s %s" % (self.seed, what.__name__, n))
        while not self.over():
            with contextlib.suppress(psycopg.Error), psycopg.connect(rng.choice(self.proxies).dsn(self.db), autocommit=True,
                                                                    prepare_threshold=rng.choice([None, 0, 5])) as c:
                while not self.over() and not c.closed:
                    what(c, rng)

    def kill(self, dsn):
        with psycopg.connect(dsn, autocommit=True) as c:
            while not self.over():
                c.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() "
                          "ORDER BY random() LIMIT 1", (self.db,))
                c.execute("SELECT pg_sleep(0.3)")


@pytest.mark.parametrize("seed", [1, 2])
def test_changes_beside_deliveries(qbouncer, cluster, db, seed):
    proxies = [qbouncer(queue_heartbeat="20ms", queue_rescan="300ms", queue_maintenance="1s") for _ in range(2)]
    with psycopg.connect(proxies[0].dsn(db), autocommit=True) as c:
        for sql in SETUP:
            c.execute(sql)
    chaos = Chaos(proxies, db, seed)
    threads = [threading.Thread(target=chaos.act, args=(what, n), daemon=True)
               for what, many in ((chaos.read, 6), (chaos.push, 3), (chaos.change, 2)) for n in range(many)]
    threads.append(threading.Thread(target=chaos.kill, args=(cluster.dsn(db, "postgres"),), daemon=True))
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS + 40)
    assert [t for t in threads if t.is_alive()] == [] and chaos.wrong == []
    with psycopg.connect(proxies[0].dsn(db), autocommit=True) as c, psycopg.connect(proxies[1].dsn(db), autocommit=True) as d:
        for sql in ("QUEUE UNSUBSCRIBE x FROM s", "QUEUE SUBSCRIBE x TO s"):
            chaos.say(c, sql)
        c.execute("QUEUE PUSH s '\"the last\"'")
        assert d.execute("QUEUE TAKE s FOR x WAIT '30 s'").fetchall()[-1][4] == "the last"
    assert chaos.wrong == []
