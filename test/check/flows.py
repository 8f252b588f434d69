#!/usr/bin/python3
"""The checker of what holds jobs back and of where they go: limits of queues and of groups, fair, pause, hours, AFTER,
dead_queue, KEY ... FOR, BATCH, overflow, single_consumer. Workers as those of check.py, which are killed as those are; but here the database itself writes down each
change of a job, in the transaction that makes it, and that is judged.

    /usr/bin/python3 test/check/flows.py --build DIR --seconds 300

For:     the command line and test/it/queue/test_flow_checker.py.
Must not know: how anything is done.
Entry points: FlowCheck, judge_audit, main.
"""

import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib")]

import check  # noqa: E402
from links import Refused  # noqa: E402
from worker import Worker  # noqa: E402

RUNNING, RATE, BURST = 6, 150, 10                     # of "lim"
PAUSE, GROUP_PAUSE = 0.02, 0.2                        # of "rests", of "slow"
GROUP_RATE, GROUP_BURST = 30, 3                       # of "rated"
FAIR_RUNNING, FAIR_GROUP, TENANTS, BIG = 6, 3, 5, 1200    # of "fair"
FULL = 30                                             # max_length of "full"
OPEN = 120        # seconds that "timed" is open, from the minute in which it is made
LATE = 8          # one who was stopped behind his look at the clock
STALL = 15        # seconds in which somebody has to take what may be taken, whoever was killed and whatever stopped

RETRY = "max_attempts = 1000000, retry = 'fixed 200ms', lease = '5s', retain_done = '1 hour'"
QUEUES = {
    "lim": RETRY + ", max_running = %d, rate = '%d/s burst %d'" % (RUNNING, RATE, BURST),
    "rests": RETRY + ", max_running = 1, pause = '%d ms'" % (PAUSE * 1000),
    "slow": RETRY + ", pause_per_group = '%d ms'" % (GROUP_PAUSE * 1000),
    "rated": RETRY + ", max_running_per_group = none, rate_per_group = '%d/s burst %d'" % (GROUP_RATE, GROUP_BURST),
    "fair": RETRY + ", max_running = %d, max_running_per_group = %d, fair = group" % (FAIR_RUNNING, FAIR_GROUP),
    "first": "max_attempts = 2, retry = 'fixed 200ms', lease = '5s', retain_done = '1 hour'",
    "second": RETRY,
    "morgue": "",
    "risky": "max_attempts = 2, retry = 'fixed 200ms', lease = '5s', retain_done = '1 hour', dead_queue = morgue, "
             "on_expire = dead",
    "keyed": RETRY,
    "lot": RETRY + ", batches = true",
    "full": RETRY + ", max_length = %d, overflow = drop_oldest" % FULL,
    "single": RETRY + ", single_consumer = true",
    "timed": RETRY, "shut": RETRY,                    # their hours are of the day: hours()
}
WORKED = [q for q in QUEUES if q != "morgue"]
ENDING = [q for q in WORKED if q not in ("timed", "shut")]    # what is pushed to them comes to an end
GROUPED = {"slow": 4, "rated": 3}                     # how many groups their jobs have
LOTS = ("lim", "first")                               # queues whose groups are taken as lots, too
KEYS = 60

# Each change, with the time at which it was made. A take has the gate of its queue then, and an end is not seen by takes
# before it is committed: by these times there are never more at once than there may be. Its name is before those of the
# queue's own triggers. Its rows are nobody's but the database's: a role that works writes them, and can not know it.
AUDIT = """
CREATE TABLE audit (q text, number int, job int8, uid text, "group" text, key text, was text, "is" text, attempt int,
    at timestamptz, behind text[], worker text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    r record := coalesce(NEW, OLD);
BEGIN
    INSERT INTO public.audit VALUES (substr(TG_TABLE_NAME, 3), TG_ARGV[0]::int, r.id, r.payload ->> 'u', r."group", r.key,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.state END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.state END, r.attempt,
        clock_timestamp(), CASE WHEN TG_OP <> 'DELETE' THEN NEW.behind END, r.worker);
    RETURN NULL;
END $$;
CREATE TABLE effects (uid text)
"""
WATCH = """CREATE TRIGGER aaudit AFTER INSERT OR DELETE OR UPDATE OF state ON queue.q_{0}
    FOR EACH ROW EXECUTE FUNCTION audit({1})"""


def hours(begins, ends):
    """As the option of a queue; times are those of the clock."""
    return "%s-%s UTC" % tuple(time.strftime("%H:%M", time.gmtime(t)) for t in (begins, ends))


class FlowWorker(Worker):
    def __init__(self, *args):
        super().__init__(*args)
        self.known = []        # names of jobs that may be followed
        self.single = not self.pushes and self.random.random() < 0.2        # works for this queue alone

    def open(self):
        super().open()
        self.me = self.number("me")        # of each connection another

    def push_one(self, x):
        queue = self.random.choice(WORKED)
        uid = self.number("j")
        self.write("push", x=x, u=[uid], q=queue)
        more, params = "", [self.payload(uid)]
        if queue in GROUPED:
            more, params = " GROUP $2", params + ["g%d" % self.random.randrange(GROUPED[queue])]
        elif queue == "fair":
            more, params = " GROUP $2", params + ["t%d" % self.random.randrange(TENANTS)]
        elif queue in LOTS and self.random.random() < 0.5:
            more, params = " GROUP $2", params + ["g%d" % self.random.randrange(5)]
        elif queue == "keyed":
            more, params = " KEY $2 FOR '1 hour'", params + ["k%d" % self.random.randrange(KEYS)]
        elif queue == "risky" and self.random.random() < 0.2:
            more = " EXPIRES '300 ms'"
        elif queue == "second" and self.known:
            names = self.random.sample(self.known, min(len(self.known), self.random.choice((1, 1, 2, 3))))
            more, params = " AFTER " + ", ".join("$%d" % (i + 2) for i in range(len(names))), params + names
        rows = self.run("QUEUE PUSH %s $1%s RETURNING JOB" % (queue, more), *params)[0]
        if queue in ("first", "second") and rows:
            self.known = self.known[-12:] + [rows[0]["job"]]

    def batch(self):
        """Pushed together; by the time at which it is said to have ended they all have."""
        x, name, uids = self.number("x"), self.number("b"), [self.number("j") for _ in range(self.random.randint(1, 4))]
        self.write("push", x=x, u=uids, q="lot")
        if not self.transaction(x, [lambda u=u: self.run("QUEUE PUSH lot $1 BATCH $2", self.payload(u), name) for u in uids], True):
            return
        rows, _ = self.run("QUEUE AWAIT BATCH $1 ON lot WAIT $2", name, "%s s" % self.random.choice((0.2, 1, 3)))
        for row in rows:
            self.write("batch", b=name, u=uids, ended=str(row["ended"])[0] in "tT",
                       n=sum(int(row[k] or 0) for k in ("ready", "later", "leased", "blocked", "dead", "done", "cancelled", "expired")))

    def pushing(self):
        if self.random.random() < 0.05:
            self.batch()
            return
        x = self.number("x")
        known = list(self.known)
        try:
            if self.random.random() < 0.6:
                ok = self.alone(x, lambda: self.push_one(x))
            else:
                ok = self.transaction(x, [lambda: self.push_one(x) for _ in range(self.random.randint(1, 4))],
                                      self.random.random() < 0.8)
        except Exception:
            self.known = []        # what became of them is not known
            raise
        if not ok:
            self.known = known[:-1]        # it may have been refused because of one of them
        time.sleep(self.random.uniform(0, 0.1))

    def take_of(self, queue, limit, wait, lease):
        grouped = " GROUPED" if queue in LOTS and self.random.random() < 0.6 else ""
        rows, _ = self.run("QUEUE TAKE %s%s LIMIT $1 WAIT $2 LEASE $3 AS $4" % (queue, grouped), limit, "%s s" % wait,
                           "%s s" % lease, self.me)
        return [r["token"] for r in rows]

    def say(self, sql, *params):
        """Of a lease that may be over, or behind one of its group that is not done."""
        try:
            self.run(sql, *params)
        except Refused as e:
            if e.code not in ("QB001", "QB002", "55000"):
                raise

    def deal_with(self, token):
        r = self.random.random()
        if r < 0.7:
            self.say("QUEUE DONE $1", token)
        elif r < 0.8:
            x = self.number("x")
            self.transaction(x, [lambda: self.run("INSERT INTO effects VALUES ($1)", token),
                                 lambda: self.run("QUEUE DONE $1", token)], self.random.random() < 0.7)
        elif r < 0.88:
            self.say("QUEUE FAIL $1" + self.random.choice(("", " FINAL", " RETRY IN '0'")), token)
        elif r < 0.92:
            self.say("QUEUE RELEASE $1", token)
        elif r < 0.95:
            self.say("QUEUE CANCEL $1", token)
            self.say("QUEUE DONE $1", token)
        elif r < 0.97:
            self.close(False)
            self.open()
        # or forgotten

    def working(self):
        queue = "single" if self.single else self.random.choice([q for q in WORKED if q != "single"])
        limit = self.random.choice((1, 1, 3, 10))
        for token in self.take_of(queue, limit, self.random.choice((0, 0.2, 1)), self.random.choice((0.5, 2, 5))):
            self.deal_with(token)

    def drain(self, until):
        self.open()
        while not until():
            for queue in WORKED:
                try:
                    # some have many that come by threes
                    while tokens := self.take_of(queue, 50, 0, 30):
                        self.run("QUEUE DONE " + ", ".join("'%s'" % t for t in tokens))
                except check.worker.Lost:
                    self.open()
        self.close(True)


class FlowCheck(check.Check):
    worker = FlowWorker

    def setup(self):
        with self.proxies[0].connect(self.db) as conn:
            conn.execute(AUDIT)
            begins = time.time() // 60 * 60
            self.closes, self.longest = begins + OPEN, 0
            options = dict(QUEUES, timed=RETRY + ", hours = '%s'" % hours(begins, begins + OPEN),
                           shut=RETRY + ", hours = '%s'" % hours(begins + 3 * 3600, begins + 4 * 3600))
            for queue, options in options.items():
                conn.execute("QUEUE CREATE %s%s" % (queue, " WITH (%s)" % options if options else ""))
            for queue, number in self.direct.execute("SELECT name, number FROM queue.queues").fetchall():
                conn.execute(WATCH.format(queue, number))
            conn.execute("QUEUE PUSH lim SELECT json_build_object('u', 'lim' || i) FROM generate_series(1, 400) AS i")
            conn.execute("""QUEUE PUSH fair (payload, "group") SELECT json_build_object('u', 'big' || i), 'big'"""
                         " FROM generate_series(1, %d) AS i" % BIG)

    def left(self):
        """What is not at its end. That a job waits for nobody is seen by the maintenance at the latest."""
        return [uid for q in ENDING for uid, in self.direct.execute(
            "SELECT payload ->> 'u' FROM queue.q_%s WHERE state <> 'dead'" % q).fetchall()]

    def look_at_limits(self):
        """Those who have not committed do not see each other: together they may push so much more."""
        n, = self.direct.execute("SELECT count(*) FROM queue.q_full WHERE state <> 'dead'").fetchone()
        self.longest = max(self.longest, n)

    def ends(self):
        """(queue, job, uid, how): what has become of each job that has ended; "sent" to its dead_queue."""
        rows = []
        for q in QUEUES:
            rows += self.direct.execute(
                "SELECT %s, id, payload ->> 'u', state FROM queue.q_{0} WHERE state = 'dead' UNION ALL "
                "SELECT %s, id, payload ->> 'u', CASE state WHEN 'dead' THEN 'sent' ELSE state END"
                " FROM queue.a_{0}".format(q), (q, q)).fetchall()
        rows += self.direct.execute("SELECT 'morgue', id, payload ->> 'u', 'there' FROM queue.q_morgue").fetchall()
        return [list(r) for r in rows]

    def verdict(self):
        audit = [dict(zip(("q", "number", "job", "uid", "group", "key", "was", "is", "attempt", "at", "behind", "worker"), r))
                 for r in self.direct.execute("SELECT q, number, job, uid, \"group\", key, was, \"is\", attempt,"
                                              " extract(epoch FROM at)::float8, behind, worker FROM audit ORDER BY at").fetchall()]
        with open(os.path.join(self.folder, "final.json"), "w", encoding="utf-8") as out:
            json.dump({"audit": audit, "ends": self.ends()}, out)
        logs = check.judge.read(self.folder)
        said = judge_audit(audit, self.ends(), fates(logs), next(e["t"] for e in logs["control"] if e["e"] == "end"),
                           [e for log in logs.values() for e in log if e["e"] == "batch"], self.closes)
        if self.longest > FULL + 4 * len(self.born):
            said.append("full: %d jobs in a queue of %d" % (self.longest, FULL))
        said += ["unexpected: %s" % e["text"] for log in logs.values() for e in log if e["e"] == "refused"]
        said += ["left: %s is in a queue" % uid for uid in self.left()] + self.unrest()
        self.say("%d jobs, %d leases; %s" % (sum(e["was"] is None for e in audit), sum(e["is"] == "leased" for e in audit),
                                             ", ".join("%d %s" % (n, what) for what, n in self.counts.items())))
        return said


def fates(logs):
    """uid -> (sure | never, queue), where it is known."""
    fate = {}
    for events in logs.values():
        units = {kind: {e["x"] for e in events if e["e"] == kind} for kind in ("begin", "commit", "ok", "no")}
        for e in events:
            if e["e"] == "push":
                sure, never = e["x"] in units["ok"], e["x"] in units["no"] or (
                    e["x"] in units["begin"] and e["x"] not in units["commit"])
                for uid in e["u"]:
                    fate[uid] = ("sure" if sure else "never" if never else "maybe", e["q"])
    return fate


class Audit:
    def __init__(self, audit, ends, fate, until, batches, closes):
        self.audit, self.ends, self.fate, self.until, self.said = audit, ends, fate, until, []
        self.batches, self.closes = batches, closes
        self.of = {q: [e for e in audit if e["q"] == q] for q in QUEUES}

    def say(self, rule, text):
        self.said.append("%s: %s" % (rule, text))

    @staticmethod
    def leases(events):
        return [e for e in events if e["is"] == "leased" and e["was"] != "leased"]

    # --- limits -----------------------------------------------------------------------------------

    def at_most(self, events, most, what):
        """How many run at once. The greatest number."""
        running = greatest = 0
        for e in events:
            if e["was"] == "leased" and e["is"] != "leased":
                running -= 1
            elif e["is"] == "leased" and e["was"] != "leased":
                running += 1
                if running > most:
                    self.say("limit", "%d of %s at once at %f" % (running, what, e["at"]))
            greatest = max(greatest, running)
        return greatest

    def paused(self, events, pause, what):
        last = None
        for e in events:
            if e["was"] == "leased" and e["is"] != "leased":
                last = e["at"]
            elif e["is"] == "leased" and last is not None and e["at"] < last + pause:
                self.say("pause", "%s: %.1f ms after the end of the one before" % (what, (e["at"] - last) * 1000))

    def rated(self, events, rate, burst, what):
        """A process that is stopped in a take is late with what it has already had: a burst more at once. What was not
        delivered gives its token back."""
        back = set()
        last = {}
        for e in events:
            if e["is"] == "leased" and e["was"] != "leased":
                last[e["job"]] = e
            elif e["was"] == "leased" and e["job"] in last and e["is"] and e["attempt"] < last[e["job"]]["attempt"]:
                back.add(id(last[e["job"]]))
        times = [e["at"] for e in self.leases(events) if id(e) not in back]
        for i in range(len(times)):
            for j in range(i + burst, min(len(times), i + 200)):
                if j - i + 1 > 2 * burst + rate * (times[j] - times[i]) + 2:
                    self.say("rate", "%s: %d in %.3f s" % (what, j - i + 1, times[j] - times[i]))
                    return

    def used_up(self, events, most, what):
        """There are many who want them: what may be taken is, in a while."""
        running = ready = 0
        since = None
        for e in events:
            if since is not None and min(e["at"], self.until) - since > STALL:
                self.say("stall", "%s: %d wait and %d run, for %.1f s" % (what, ready, running, e["at"] - since))
            running += (e["is"] == "leased") - (e["was"] == "leased")
            ready += (e["is"] in ("ready", "blocked")) - (e["was"] in ("ready", "blocked"))
            if ready <= 0 or running >= most:
                since = None
            elif since is None or e["is"] == "leased":
                since = e["at"]

    def limits(self):
        for queue, most in (("lim", RUNNING), ("fair", FAIR_RUNNING), ("rests", 1)):
            greatest = self.at_most(self.of[queue], most, queue)
            if greatest < most:
                self.say("limit", "never more than %d of %d of %s" % (greatest, most, queue))
            self.used_up(self.of[queue], most, queue)
        self.rated(self.of["lim"], RATE, BURST, "lim")
        self.paused(self.of["rests"], PAUSE, "rests")
        for queue in ("fair", "slow", "rated"):
            for group in {e["group"] for e in self.of[queue]}:
                mine, what = [e for e in self.of[queue] if e["group"] == group], "%s %s" % (queue, group)
                if queue == "fair":
                    self.at_most(mine, FAIR_GROUP, what)
                elif queue == "slow":
                    self.at_most(mine, 1, what)
                    self.paused(mine, GROUP_PAUSE, what)
                    self.in_order(mine, what)
                else:
                    self.rated(mine, GROUP_RATE, GROUP_BURST, what)

    def in_order(self, events, what):
        """One before it that is there is taken first: of a group with an order."""
        there = {}
        for e in events:
            if e["is"] == "leased" and e["was"] != "leased":
                for job, since in there.items():
                    if job < e["job"] and since < e["at"] - 10:        # ids are older than commits
                        self.say("order", "%s: %d before %d" % (what, e["job"], job))
            if e["is"] in ("ready", "later", "blocked"):
                there.setdefault(e["job"], e["at"])
            elif e["job"] in there and e["is"] != "leased":
                there.pop(e["job"])

    def fair(self):
        """How many of the greatest tenant are begun while one of a small one waits: as a rule those that are before it in
        one round."""
        there, between, big = {}, [], 0
        for e in self.of["fair"]:
            if e["is"] == "leased" and e["group"] == "big":
                big += 1
            elif e["group"] != "big":
                first = there.setdefault(e["group"], {})
                if e["was"] is None:
                    first[e["job"]] = big if not first else None
                elif e["is"] == "leased" and first.get(e["job"]) is not None:
                    between.append(big - first[e["job"]])
                if e["is"] is None:
                    first.pop(e["job"], None)
                    if first:
                        first[next(iter(first))] = big
        if between and statistics.median(between) > 2 * FAIR_RUNNING + 10:
            self.say("fair", "as a rule %d of the great one before one of a small one" % statistics.median(between))

    def in_their_hours(self):
        for e in self.leases(self.of["shut"]):
            self.say("hours", "%d of shut was begun at %f" % (e["job"], e["at"]))
        for e in self.leases(self.of["timed"]):
            if e["at"] > self.closes + LATE:
                self.say("hours", "%d was begun %.1f s after the end of its hours" % (e["job"], e["at"] - self.closes))

    def one_at_a_time(self):
        """A connection that was followed is gone, and never comes back."""
        last, gone = None, set()
        for e in self.leases(self.of["single"]):
            if e["worker"] in gone:
                self.say("single", "%d was given to %s after %s had the queue" % (e["job"], e["worker"], last))
            elif e["worker"] != last:
                gone.add(last)
                last = e["worker"]
        self.used_up(self.of["single"], float("inf"), "single")

    # --- where they go ----------------------------------------------------------------------------

    def after(self):
        """None is begun before those that it waits for are done; it dies with them, and only with them."""
        how = {(e["number"], e["job"]): e for q in ("first", "second") for e in self.of[q] if e["is"] in (None, "dead")}
        ends = {}
        for queue, job, _, end in self.ends:
            ends[queue, job] = end
        name = {self.of[q][0]["number"]: q for q in ("first", "second") if self.of[q]}
        behind = {e["job"]: e["behind"] for e in self.of["second"] if e["was"] is None and e["behind"]}
        begun = {}
        for e in self.leases(self.of["second"]):
            begun.setdefault(e["job"], e["at"])
        for job, names in behind.items():
            good = True
            for one in names:
                number, ref = map(int, one.split("-"))
                end = ends.get((name[number], ref))
                good = good and end == "done"
                over = how[number, ref]["at"] if (number, ref) in how else float("inf")
                if job in begun and (end != "done" or begun[job] < over):
                    self.say("after", "%d was begun, and %s is %s" % (job, one, end))
            end = ends.get(("second", job))
            if good and job not in begun and end == "dead":
                self.say("after", "%d is dead, and what it waited for is done" % job)
            if not good and end != "dead":
                self.say("after", "%d is %s, and not all that it waited for is done" % (job, end))

    def one_place(self):
        """Of dead_queue: each job has one end, and one place."""
        places = {}
        for queue, job, uid, end in self.ends:
            if end != "sent":
                places.setdefault(uid, []).append((queue, end))
        for uid, (fate, queue) in self.fate.items():
            if queue == "risky" and fate == "sure" and len(places.get(uid, ())) != 1:
                self.say("dead", "%s is at %s" % (uid, places.get(uid)))
        for queue, _, uid, end in self.ends:
            if queue == "morgue" and [p for p in places[uid] if p[0] != "morgue"]:
                self.say("dead", "%s is at %s" % (uid, places[uid]))

    def keys_are_kept(self):
        """The run is shorter than they are."""
        seen = {}
        for e in self.of["keyed"]:
            if e["was"] is None:
                if e["key"] in seen:
                    self.say("key", "%s of %s, and of %s" % (e["key"], seen[e["key"]], e["uid"]))
                seen[e["key"]] = e["uid"]

    def batches_end(self):
        """t: when it was read that the batch has ended, or not yet."""
        last = {e["uid"]: e for e in self.of["lot"]}
        for b in self.batches:
            if b["n"] != len(b["u"]):
                self.say("batch", "%s has %d jobs, and was said to have %d" % (b["b"], len(b["u"]), b["n"]))
            for uid in b["u"] if b["ended"] else ():
                if uid not in last or last[uid]["is"] not in (None, "dead") or last[uid]["at"] > b["t"]:
                    self.say("batch", "%s was said to have ended, and %s has not" % (b["b"], uid))

    def nothing_is_lost(self):
        pushed = {}
        for e in self.audit:
            if e["was"] is None and e["q"] != "morgue":
                pushed[e["uid"]] = pushed.get(e["uid"], 0) + 1
        for uid, (fate, queue) in self.fate.items():
            if fate == "never" and uid in pushed:
                self.say("rolled back", "%s was not committed and is there" % uid)
            elif fate == "sure" and pushed.get(uid, 0) != 1 and queue != "keyed":
                self.say("lost", "%s was acknowledged and is there %d times" % (uid, pushed.get(uid, 0)))
        ended = {(q, job) for q, job, _, _ in self.ends} | {("risky", job) for job in {
            e["job"] for e in self.of["risky"] if e["is"] is None}}        # one_place() looks at those
        for e in self.audit:
            if e["was"] is None and e["q"] in ENDING and (e["q"], e["job"]) not in ended:
                self.say("lost", "%s %d has no end" % (e["q"], e["job"]))


def judge_audit(audit, ends, fate, until, batches=(), closes=float("inf")):
    """audit: in the order of times. ends: (queue, job, uid, how). fate: uid -> (sure | never | maybe, queue). until: there
    were workers. batches: what AWAIT BATCH said. closes: when the hours of "timed" end."""
    case = Audit(audit, ends, fate, until, batches, closes)
    case.limits()
    case.fair()
    case.after()
    case.one_place()
    case.keys_are_kept()
    case.in_their_hours()
    case.one_at_a_time()
    case.batches_end()
    case.nothing_is_lost()
    return case.said


if __name__ == "__main__":
    check.main(FlowCheck)
