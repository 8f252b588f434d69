"""Reads the logs of a run and says what went wrong in it.

For:     check.py and the test of the judge itself.
Must not know: databases, processes; only what was written down.
Entry points: read, judge.

judge(logs, final) gives a list of sentences, none for a good run. logs: name -> list of events, in the
order of writing (worker.py explains them; "control" holds kills and restarts). final: what the database
holds in the end: left (uids in queues), effects (uid -> number).

Between an intent and its outcome anything may have happened: each rule says only what is certain.
"""

import json
import math
import os

FOREVER = math.inf


def read(folder):
    logs = {}
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".log")):
        with open(os.path.join(folder, name), encoding="utf-8") as lines:
            # a killed process may leave half a line
            logs[name[:-4]] = [json.loads(line) for line in lines if line.endswith("\n")]
    return logs


class Job:
    def __init__(self, uid, not_before, fate, push):
        self.uid, self.not_before, self.fate = uid, not_before, fate
        self.pop, self.group, self.pushed = push["pop"], push.get("group"), push["t"]
        self.leases = []


class Lease:
    def __init__(self, uid, token, asked, got, until, attempt, hold):
        self.uid, self.token, self.asked, self.got, self.attempt = uid, token, asked, got, attempt
        self.hold = hold        # until its connection ends
        if hold:
            until = FOREVER
        self.until = until      # holds at least so long, unless something ends it
        self.until_most = until # and at most so long, with extensions that may have happened
        self.ended = FOREVER    # nothing has ended it before
        self.in_unit = False
        self.fins = []

    @property
    def end(self):
        return min(self.until, self.ended)

    def ends_not_before(self, t):
        self.ended = min(self.ended, t)


class Fin:
    """A verb that ends a lease, or moves its end."""

    def __init__(self, e):
        self.token, self.how, self.x, self.length, self.t = e["tok"], e["how"], e["x"], e["len"], e["t"]
        self.state = "maybe" # yes, no
        self.at = None       # yes: committed at the latest then
        self.refused = None  # no: known since


class Log:
    """One process: its units of work, leases and connections."""

    def __init__(self, name, events, case):
        self.name, self.case = name, case
        self.on_connection, self.in_unit = [], {}
        self.takes, self.fins = {}, {}
        self.last = 0.0 # the last certain sign of life of the connection
        before = 0.0
        for e in events:
            getattr(self, "on_" + NAMES.get(e["e"], e["e"]), self.nothing)(e)
            # an answer is read later than it was sent: what is sure is that there was somebody to be asked
            if e["e"] in ("open", "ok", "got", "fin+", "fin-"):
                self.last = before
            before = e["t"]
        self.broken(case.killed.get(name, FOREVER))
        committing = {e["x"] for e in events if e["e"] == "commit"}
        for fin in self.fins.values():
            if fin.x is not None and fin.x not in committing:
                fin.state = "no"

    def nothing(self, e):
        pass

    # --- connections ----------------------------------------------------------------------------

    def broken(self, t):
        """What the connection held may have been given back since."""
        for lease in self.on_connection:
            lease.ends_not_before(t)
        self.on_connection = []

    def on_lost(self, _):
        self.broken(self.last)

    def on_close(self, e):
        """A goodbye keeps the leases, but for those of a block that it breaks off, and those that are held."""
        if e["clean"]:
            self.on_connection = [x for x in self.on_connection if x.in_unit or x.hold]
        self.broken(e["t"])

    def on_refused(self, e):
        self.case.say("unexpected", "%s: %s" % (self.name, e["text"]))

    # --- units of work --------------------------------------------------------------------------

    def settled(self, x, state, t):
        for fin in self.fins.values():
            if fin.x == x and fin.state != "no":
                fin.state, fin.at = state, t
        for lease in self.in_unit.pop(x, ()):
            lease.in_unit = False
            if state == "no":
                lease.ends_not_before(t)

    def on_ok(self, e):
        self.settled(e["x"], "yes", e["t"])

    def on_no(self, e):
        self.settled(e["x"], "no", self.last)

    def on_roll(self, e):
        self.settled(e["x"], "no", e["t"])

    # --- leases ---------------------------------------------------------------------------------

    def on_take(self, e):
        self.takes[e["i"]] = e

    def on_got(self, e):
        asked = self.takes[e["i"]]
        for uid, token, until, attempt in e["jobs"]:
            lease = Lease(uid, token, asked["t"], e["t"], e["t"] if until is None else until, attempt,
                          asked.get("hold", False))
            if asked["x"] is not None:
                lease.in_unit = True
                self.in_unit.setdefault(asked["x"], []).append(lease)
            self.on_connection.append(lease)
            self.case.got(lease)

    def on_fin(self, e):
        fin = self.fins[e["k"]] = Fin(e)
        lease = self.case.by_token.get(e["tok"])
        if lease is not None:
            lease.fins.append(fin)

    def on_accepted(self, e):
        fin = self.fins[e["k"]]
        if fin.x is None:
            fin.state, fin.at = "yes", e["t"]

    def on_denied(self, e):
        fin = self.fins[e["k"]]
        fin.state, fin.refused = "no", e["t"]
        if e["code"] != "QB001":
            self.case.say("unexpected", "%s: %s of %s was refused with %s"
                          % (self.name, fin.how, fin.token, e["code"]))


NAMES = {"fin+": "accepted", "fin-": "denied"}


class Case:
    def __init__(self, logs, final):
        self.said = []
        self.jobs, self.by_token = {}, {}
        self.final = final
        control = logs.get("control", ())
        self.killed = {e["w"]: e["t"] for e in control if e["e"] == "kill"}
        self.restarts = [e["t"] for e in control if e["e"] == "restart"]
        processes = {name: events for name, events in logs.items() if name != "control"}
        for events in processes.values():
            self.pushed(events)
        for name, events in processes.items():
            Log(name, events, self)
        for lease in self.by_token.values():
            self.moved(lease)

    def say(self, rule, text):
        self.said.append("%s: %s" % (rule, text))

    def pushed(self, events):
        units = {kind: {e["x"] for e in events if e["e"] == kind} for kind in ("begin", "commit", "roll", "ok", "no")}
        undone = {uid for e in events if e["e"] == "undo" for uid in e["u"]}

        def fate(uid, x):
            if uid in undone or x in units["no"] or x in units["roll"]:
                return "never"
            if x in units["ok"]:
                return "sure"
            # a block that nobody committed is gone; a statement alone may have been carried out
            return "never" if x in units["begin"] and x not in units["commit"] else "maybe"

        for e in events:
            if e["e"] == "push":
                for uid, not_before in e["u"].items():
                    self.jobs[uid] = Job(uid, not_before, fate(uid, e["x"]), e)

    def got(self, lease):
        job = self.jobs.get(lease.uid)
        if job is None:
            self.say("invented", "%s was delivered and never pushed" % lease.uid)
            return
        job.leases.append(lease)
        if lease.token is not None:
            if lease.token in self.by_token:
                self.say("token", "%s was given twice" % lease.token)
            self.by_token[lease.token] = lease
        for t in self.restarts:
            if t > lease.asked:
                lease.ends_not_before(t)

    # --- the rules --------------------------------------------------------------------------------

    @staticmethod
    def moved(lease):
        """Extensions move the end of a lease, everything else may be it."""
        for fin in sorted(lease.fins, key=lambda f: f.t):
            if fin.state == "no":
                continue
            if fin.how != "extend":
                lease.ends_not_before(fin.t)
                continue
            if lease.hold:
                continue
            sure = fin.state == "yes"
            lease.until = fin.t + fin.length if sure else min(lease.until, fin.t + fin.length)
            lease.until_most = max(lease.until_most, (fin.at if sure else fin.t + 600) + fin.length)

    def rolled_back_is_not_delivered(self):
        for job in self.jobs.values():
            if job.fate == "never" and job.leases:
                self.say("rolled back", "%s was not committed and was delivered at %f"
                         % (job.uid, job.leases[0].got))

    def not_before_its_time(self):
        for job in self.jobs.values():
            for lease in job.leases:
                if lease.got < job.not_before:
                    self.say("early", "%s was delivered %f s before its time"
                             % (job.uid, job.not_before - lease.got))
            for earlier in job.leases:
                for fin in earlier.fins:
                    if fin.how != "fail" or fin.state != "yes":
                        continue
                    for later in job.leases:
                        if later.attempt > earlier.attempt and later.got < fin.t + fin.length:
                            self.say("early", "%s was retried after %f s" % (job.uid, later.got - fin.t))

    def done_once(self):
        for job in self.jobs.values():
            done = {f.token: f for l in job.leases for f in l.fins if f.how == "done" and f.state == "yes"}
            if len(done) > 1:
                self.say("done twice", "%s was done by %s" % (job.uid, ", ".join(sorted(done))))
            for fin in done.values():
                for lease in job.leases:
                    if lease.asked > fin.at:
                        self.say("delivered after done", "%s, %f s later" % (job.uid, lease.asked - fin.at))

    def popped_once(self):
        for job in self.jobs.values():
            pops = [l for l in job.leases if l.token is None]
            if len(pops) > 1:
                self.say("popped twice", "%s was popped %d times" % (job.uid, len(pops)))

    def leases_do_not_overlap(self):
        for job in self.jobs.values():
            leases = sorted(job.leases, key=lambda l: l.got)
            for i, a in enumerate(leases):
                for b in leases[i + 1:]:
                    # both were there when the later answer came
                    if b.got < a.end and b.got < b.end and a.token != b.token:
                        self.say("overlap", "%s: %s until %f, and %s since %f"
                                 % (job.uid, a.token, a.end, b.token, b.got))

    def stale_is_refused(self):
        for lease in self.by_token.values():
            over = [f for f in lease.fins if f.how != "extend" and f.state == "yes"]
            later = [l.got for l in self.jobs[lease.uid].leases if l.attempt > lease.attempt]
            for fin in lease.fins:
                if fin.state != "yes":
                    continue
                again = fin.how == "done" and any(f.how == "done" and f.t < fin.t for f in over)
                if again: # a repeated DONE is not an error
                    continue
                if fin.t > lease.until_most:
                    self.say("stale", "%s of %s was accepted %f s after its end"
                             % (fin.how, lease.token, fin.t - lease.until_most))
                if any(f is not fin and f.at < fin.t for f in over):
                    self.say("stale", "%s of %s was accepted after its end by another verb"
                             % (fin.how, lease.token))
                if any(got < fin.t for got in later):
                    self.say("stale", "%s of %s was accepted after the job was taken again"
                             % (fin.how, lease.token))

    def held_is_kept(self):
        for lease in self.by_token.values():
            for fin in lease.fins:
                if lease.hold and fin.refused is not None and fin.refused < lease.ended:
                    self.say("hold", "%s was refused, and its connection lives" % lease.token)

    def groups_are_in_order(self):
        """Of two jobs of a group the later one is not begun before the earlier one is over."""
        groups = {}
        for job in self.jobs.values():
            if job.group is not None and job.fate == "sure":
                groups.setdefault(job.group, []).append(job)
        for jobs in groups.values():
            jobs.sort(key=lambda j: j.pushed)
            for a, b in zip(jobs, jobs[1:]):
                over = min((f.t for l in a.leases for f in l.fins if f.how == "done" and f.state != "no"), default=FOREVER)
                begun = min((l.got for l in b.leases), default=FOREVER)
                if begun < over:
                    self.say("group", "%s was begun before %s was over" % (b.uid, a.uid))

    def nothing_is_lost(self):
        left = set(self.final["left"])
        for uid in sorted(left):
            if uid not in self.jobs or self.jobs[uid].fate == "never":
                self.say("rolled back", "%s was not committed and is in a queue" % uid)
        for job in self.jobs.values():
            # who takes by POP and never hears of it has taken it
            if job.fate != "sure" or job.uid in left or job.pop:
                continue
            ended = any(f.how == "done" and f.state != "no" for l in job.leases for f in l.fins)
            if not ended:
                self.say("lost", "%s was acknowledged, and is neither done nor there" % job.uid)

    def effects_fit(self):
        """What was written in the transaction of DONE."""
        effects = self.final["effects"]
        for uid, n in effects.items():
            if n > 1:
                self.say("effect", "%s took effect %d times" % (uid, n))
        for job in self.jobs.values():
            for fin in (f for l in job.leases for f in l.fins):
                if fin.how == "done" and fin.x is not None and fin.state == "yes" and effects.get(job.uid) != 1:
                    self.say("effect", "%s was done with an effect that is not there" % job.uid)


def judge(logs, final):
    case = Case(logs, final)
    case.rolled_back_is_not_delivered()
    case.not_before_its_time()
    case.done_once()
    case.popped_once()
    case.leases_do_not_overlap()
    case.stale_is_refused()
    case.held_is_kept()
    case.groups_are_in_order()
    case.nothing_is_lost()
    case.effects_fit()
    return case.said, case
