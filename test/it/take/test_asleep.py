"""A proxy at which nobody takes sleeps: others notify nobody of what they push. What it needs all the same it hears
late: when it says that it is awake. There is no periodic look here.
"""

import os
import re
import signal
import threading
import time

import psycopg
import pytest

from pgcluster import Cluster, Standby
from proxy import wait_for
from queuetest import Listener, parked, tag, take, woken
from relay import Relay

CLASS = 1902276466
NUMBERS = 1902276469
AWAKE = "of no queue: a proxy takes again, and is to be told"
WAIT = "QUEUE TAKE mail WAIT '30s'"


@pytest.fixture
def listener(cluster, db):
    with psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        yield Listener(conn)


class Pair:
    """Two proxies of a database: clients push at the first one, and take at the other one."""

    def __init__(self, qbouncer, db, direct, first=None, **other):
        quiet = dict(queue_heartbeat="20ms", queue_rescan="1h", queue_safety_poll="1h", queue_orphan_grace="1s",
                     server_login_retry="1s")
        self.db, self.direct = db, direct
        self.first = qbouncer(**{**quiet, **(first or {})})
        self.other = qbouncer(**{**quiet, "queue_sleep_after": "50ms", **other})
        self.pusher = self.first.wire(db)
        self.taker = self.other.wire(db)
        tag(self.pusher, "QUEUE CREATE mail")
        for w in (self.pusher, self.taker):
            w.rows("QUEUE POP mail WAIT '1ms'")     # makes the session

    def shown(self, proxy):
        return [(r["others"], r["asleep"]) for r in proxy.console("SHOW QUEUES") if r["queue"] == "mail"]

    def look(self):
        """At once, and not within a second."""
        self.direct.execute("SELECT pg_notify('qbouncer', %s)", [AWAKE])

    def sleeps(self):
        """The other one, and the first one has seen it."""
        looked = time.monotonic()

        def done():
            nonlocal looked
            if self.shown(self.other)[0][1] == "1" and {o for o, _ in self.shown(self.first)} == {"asleep"}:
                return True
            if time.monotonic() > looked + 0.2:     # until it has looked, others count as awake
                self.look()
                looked = time.monotonic()
            return False
        try:
            wait_for(done, "that it sleeps")
        except AssertionError as e:
            raise AssertionError("%s: %r, %r" % (e, self.shown(self.other), self.shown(self.first))) from e

    def wakes(self):
        wait_for(lambda: {o for o, _ in self.shown(self.first)} == {"awake"}, "that it is awake")

    def hears(self, n):
        """Who waits at the one that slept gets what is pushed at the other one."""
        self.taker.query(WAIT)
        parked(self.taker)
        self.wakes()
        tag(self.pusher, "QUEUE PUSH mail '%d'" % n)
        assert woken(self.taker)["payload"] == str(n)

    def system_pids(self):
        """Of the first one, and of the other one: by their numbers in the locks."""
        pids = [r[0] for r in self.direct.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s "
                                                  "AND application_name = 'qbouncer system'", [self.db])]
        asleep = {r[0] for r in self.direct.execute("SELECT pid FROM pg_locks WHERE classid = %s" % CLASS)}
        return [p for p in pids if p not in asleep], [p for p in pids if p in asleep]

    def rounds(self, pid):
        """The session has said all that it had to say: it looks after that."""
        for _ in range(2):
            was = self.started(pid)
            wait_for(lambda: self.started(pid) != was, "another look")

    def started(self, pid):
        return self.direct.execute("SELECT query_start FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()[0]

    def close(self):
        self.pusher.close()
        self.taker.close()


@pytest.fixture
def pair(qbouncer, db, direct):
    p = Pair(qbouncer, db, direct)
    yield p
    p.close()


def payloads(listener):
    return [n[1] for n in listener.heard() if n[1] != AWAKE]


def test_who_sleeps_is_not_told(pair, listener):
    pair.sleeps()
    (pid,), _ = pair.system_pids()
    pair.rounds(pid)
    listener.heard()
    for n in range(20):
        tag(pair.pusher, "QUEUE PUSH mail '%d'" % n)
        tag(pair.pusher, "QUEUE DONE '%s'" % take(pair.pusher)["token"])
    pair.rounds(pid)
    assert payloads(listener) == []


def test_who_takes_is_told(pair, listener):
    """Of what was pushed while it slept, late, and of what comes then; also without a wait."""
    pair.sleeps()
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    assert take(pair.taker)["payload"] == "1"
    wait_for(lambda: "mail" in payloads(listener), "the news that were kept")
    pair.taker.query(WAIT)
    parked(pair.taker)
    pair.wakes()
    tag(pair.pusher, "QUEUE PUSH mail '2'")
    assert woken(pair.taker)["payload"] == "2"
    wait_for(lambda: "mail" in payloads(listener), "the news")


def test_it_sleeps_again(pair, listener):
    for n in range(3):
        pair.sleeps()
        pair.taker.query(WAIT)
        parked(pair.taker)
        tag(pair.pusher, "QUEUE PUSH mail '%d'" % n)
        assert woken(pair.taker)["payload"] == str(n)
    pair.sleeps()
    # it does not say that it is awake while it is
    listener.heard()
    pair.taker.query(WAIT)
    parked(pair.taker)
    for n in range(5):
        tag(pair.pusher, "QUEUE PUSH mail '%d'" % n)
        assert woken(pair.taker)["payload"] == str(n)
        pair.taker.query(WAIT)
        parked(pair.taker)
    assert [n[1] for n in listener.heard()].count(AWAKE) == 1
    tag(pair.pusher, "QUEUE PUSH mail '6'")
    assert woken(pair.taker)["payload"] == "6"


def test_a_push_beside_the_take_that_wakes_it(pair):
    """Whichever is first: the push is seen by the look, told late, or told."""
    meet = threading.Barrier(2)
    problems = []

    def push(n):
        meet.wait(30)
        for _ in range(n % 7):
            pair.first.console("SHOW VERSION")      # later by a little
        tag(pair.pusher, "QUEUE PUSH mail '%d'" % n)

    for n in range(int(os.environ.get("QB_ROUNDS", "40"))):
        pair.sleeps()
        t = threading.Thread(target=push, args=(n,))
        t.start()
        meet.wait(30)
        pair.taker.query(WAIT)
        got = woken(pair.taker)["payload"]
        t.join()
        if got != str(n):
            problems.append((n, got))
    assert problems == []


def freeze(pair, pid):
    """The backend of a system session, while it does nothing: what it is told then it carries out later."""
    def frozen():
        was = pair.started(pid)
        wait_for(lambda: pair.started(pid) != was, "a look")
        wait_for(lambda: pair.direct.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()[0] ==
                 "idle", "its end")
        os.kill(pid, signal.SIGSTOP)
        if pair.direct.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()[0] == "idle":
            return True
        os.kill(pid, signal.SIGCONT)
        return False
    wait_for(frozen, "that it stands still")


@pytest.mark.parametrize("how", ("pushed", "committed", "prepared"))
def test_a_push_before_it_is_heard_that_it_is_awake(pair, how):
    """The take has looked, and the first one does not know of it: what it keeps is told when it hears."""
    w = pair.first.wire(pair.db)
    pair.sleeps()
    _, (pid,) = pair.system_pids()
    if how != "pushed":
        tag(w, "BEGIN")
        tag(w, "QUEUE PUSH mail '1'")
    if how == "prepared":
        tag(w, "PREPARE TRANSACTION 'asleep'")
    freeze(pair, pid)
    try:
        pair.taker.query(WAIT)
        parked(pair.taker)
        assert {o for o, _ in pair.shown(pair.first)} == {"asleep"}
        tag(w, {"pushed": "QUEUE PUSH mail '1'", "committed": "COMMIT", "prepared": "COMMIT PREPARED 'asleep'"}[how])
        assert {o for o, _ in pair.shown(pair.first)} == {"asleep"}
    finally:
        os.kill(pid, signal.SIGCONT)
    assert woken(pair.taker)["payload"] == "1"
    w.close()


def test_what_was_committed_late_below_what_was_taken(pair):
    """Who slept has forgotten where it had begun to read: takes without a wait, too. (Of several jobs: a take of one
    reads from the front anyway.)"""
    some = "QUEUE TAKE mail LIMIT 2"
    with pair.first.wire(pair.db) as w:
        tag(w, "QUEUE PUSH mail " + ", ".join("'0'" for _ in range(20)))
        for _ in range(8):
            pair.taker.rows(some)       # its number is known, and where takes begin
        tag(w, "BEGIN")
        tag(w, "QUEUE PUSH mail '1'")
        tag(pair.pusher, "QUEUE PUSH mail '2'")
        while [r["payload"] for r in pair.taker.rows(some)] != ["2"]:
            pass
        pair.sleeps()
        tag(w, "COMMIT")
        assert [r["payload"] for r in pair.taker.rows(some)] == ["1"]


# --- how much is told, and when

MANY = 2000


def test_a_push_to_many_queues(pair):
    """More than an answer can have columns; whichever queue somebody waits for. Most of them have no table, which costs
    nothing: they are told all the same.
    """
    raised = "RAISE INFO USING ERRCODE = 'QB100', MESSAGE = 'many' || n, DETAIL = pg_current_xact_id()::text;"
    waiters = {n: pair.other.wire(pair.db) for n in (0, MANY // 2, MANY)}
    for n, w in waiters.items():
        tag(pair.pusher, "QUEUE CREATE many%d" % n)
        w.query("QUEUE TAKE many%d WAIT '1h'" % n)
        parked(w)
    pair.wakes()
    tag(pair.pusher, "DO $$ BEGIN FOR n IN 0 .. %d LOOP IF n IN (%s) THEN PERFORM queue.push('many' || n, '1'::jsonb); "
        "ELSE %s END IF; END LOOP; END $$" % (MANY, ", ".join(map(str, waiters)), raised))
    for w in waiters.values():
        assert woken(w)["payload"] == "1"
        w.close()


def test_news_do_not_keep_it_from_saying_that_it_is_awake(qbouncer, db, direct, listener):
    """While its session tells something there is more to tell, and a take: it is said before that."""
    pair = Pair(qbouncer, db, direct, first=dict(queue_sleep_after="50ms"), queue_sleep_after="0")
    tag(pair.pusher, "QUEUE CREATE more")

    def in_turn():
        wait_for(lambda: pair.shown(pair.first) == [("awake", "1")] and len(pair.system_pids()[1]) == 1,
                 "that the first one sleeps alone")
        _, (pid,) = pair.system_pids()
        freeze(pair, pid)
        listener.heard()
        try:
            tag(pair.pusher, "QUEUE PUSH mail '1'")
            tag(pair.pusher, "QUEUE PUSH more '1'")
            take(pair.pusher)
        finally:
            os.kill(pid, signal.SIGCONT)
        heard = []
        wait_for(lambda: heard.extend(n[1] for n in listener.heard()) or {"mail", "more", AWAKE} <= set(heard),
                 "all of it")
        return heard == ["mail", AWAKE, "more"]     # or a look was under way, and both queues came together

    assert any(in_turn() for _ in range(5))
    pair.close()


# --- what is lost, and who pretends


def test_the_session_of_who_sleeps_is_cut(pair):
    pair.sleeps()
    _, (pid,) = pair.system_pids()
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    pair.direct.execute("SELECT pg_terminate_backend(%s)", [pid])
    pair.taker.query(WAIT)
    assert woken(pair.taker)["payload"] == "1"
    pair.taker.query(WAIT)
    parked(pair.taker)
    pair.wakes()
    tag(pair.pusher, "QUEUE PUSH mail '2'")
    assert woken(pair.taker)["payload"] == "2"
    pair.sleeps()


def test_the_session_of_who_keeps_is_cut(pair):
    """What it kept is told when it is back."""
    pair.sleeps()
    (first,), (pid,) = pair.system_pids()
    freeze(pair, pid)
    try:
        pair.taker.query(WAIT)
        parked(pair.taker)
        tag(pair.pusher, "QUEUE PUSH mail '1'")
        pair.direct.execute("SELECT pg_terminate_backend(%s)", [first])
    finally:
        os.kill(pid, signal.SIGCONT)
    assert woken(pair.taker)["payload"] == "1"


@pytest.fixture
def relay(cluster):
    with Relay(cluster.port) as one:
        yield one


def through(relay):
    return dict(databases={"*": "host=127.0.0.1 port=%d" % relay.port}, server_tls_sslmode="disable")


def session_of(relay, direct, pid):
    """The connection with that backend."""
    port = direct.execute("SELECT client_port FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()[0]
    return lambda pairs: [p for p in pairs if p.far.getsockname()[1] == port]


def test_news_that_are_lost_on_their_way(qbouncer, db, direct, relay):
    """Of a session that is cut while it tells them: it tells them when it is back."""
    pair = Pair(qbouncer, db, direct, first=through(relay))
    pair.taker.query(WAIT)
    parked(pair.taker)
    pair.wakes()
    for n in range(2):
        relay.arm(b"'qbouncer', q)", "never")
        tag(pair.pusher, "QUEUE PUSH mail '%d'" % n)
        assert relay.lost.wait(10)
        relay.forget_silent()
        assert woken(pair.taker)["payload"] == str(n)
        pair.taker.query(WAIT)
        parked(pair.taker)
        pair.wakes()
    pair.close()


def test_news_that_are_refused(pair, listener):
    """They are told once more, fewer at once, and those that come meanwhile with them."""
    tag(pair.pusher, "QUEUE CREATE more")
    with pair.other.wire(pair.db) as w:
        for c, queue in ((pair.taker, "mail"), (w, "more")):
            c.query("QUEUE TAKE %s WAIT '1h'" % queue)
            parked(c)
        pair.wakes()
        mark = len(pair.first.log_text())
        listener.heard()
        pair.direct.execute("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
        try:
            tag(pair.pusher, "DO $$ BEGIN FOR n IN 1 .. 41 LOOP RAISE INFO USING ERRCODE = 'QB100', MESSAGE = 'many' || n, "
                "DETAIL = pg_current_xact_id()::text; END LOOP; PERFORM queue.push('mail', '1'::jsonb); END $$")
            pair.first.wait_log("system session: .*permission denied", mark)
            tag(pair.pusher, "QUEUE PUSH more '2'")
        finally:
            pair.direct.execute("GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO PUBLIC")
        assert woken(pair.taker)["payload"] == "1"
        assert woken(w)["payload"] == "2"
        heard = []
        names = {"mail", "more"} | {"many%d" % n for n in range(1, 42)}
        wait_for(lambda: heard.extend(n[1] for n in listener.heard() if n[1] != AWAKE) or names <= set(heard), "all names")
        assert sorted(heard) == sorted(names)       # each once


def test_a_name_that_is_no_text(pair, listener):
    """It comes in the encoding of who pushes, and is no text in that of the session: any queue may be meant. The others are
    told by their names.
    """
    pair.taker.query(WAIT)
    parked(pair.taker)
    pair.wakes()
    listener.heard()
    with pair.first.wire(pair.db, client_encoding="LATIN1") as w:
        tag(w, "DO $$ BEGIN FOR n IN 1 .. 41 LOOP RAISE INFO USING ERRCODE = 'QB100', "
            "MESSAGE = CASE n WHEN 17 THEN 'm' || chr(252) || 'll' ELSE 'many' || n END, "
            "DETAIL = pg_current_xact_id()::text; END LOOP; END $$")
        heard = []
        names = {"many%d" % n for n in range(1, 42) if n != 17} | {"of any queue: a prepared transaction was committed"}
        wait_for(lambda: heard.extend(n[1] for n in listener.heard() if n[1] != AWAKE) or names <= set(heard), "all names")
        assert sorted(heard) == sorted(names)       # each once


def test_the_session_of_who_sleeps_falls_silent(qbouncer, db, direct, relay):
    """Its backend is there, and has both locks: nobody hears that it is awake, until it has another session. The old
    one silences it no more then.
    """
    pair = Pair(qbouncer, db, direct, **through(relay))
    pair.sleeps()
    _, (pid,) = pair.system_pids()
    relay.silence(session_of(relay, direct, pid))
    pair.taker.query(WAIT)
    parked(pair.taker)
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    assert woken(pair.taker)["payload"] == "1"
    assert pid in pair.system_pids()[1]
    for n in range(2, 4):
        pair.hears(n)
        pair.sleeps()
    relay.forget_silent()
    pair.close()


def test_the_session_of_who_keeps_falls_silent(qbouncer, db, direct, relay):
    """It does not hear that the other one is awake; what it kept is told by its next session."""
    pair = Pair(qbouncer, db, direct, first=through(relay))
    pair.sleeps()
    (pid,), _ = pair.system_pids()
    relay.silence(session_of(relay, direct, pid))
    pair.taker.query(WAIT)
    parked(pair.taker)
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    assert woken(pair.taker)["payload"] == "1"
    relay.forget_silent()
    pair.close()


def test_who_sleeps_has_no_session(pair, cluster):
    """Then it has no lock that others see, and does not say that it sleeps."""
    pair.sleeps()
    _, (pid,) = pair.system_pids()
    cluster.psql("ALTER DATABASE %s CONNECTION LIMIT 0" % pair.db)
    pair.direct.execute("SELECT pg_terminate_backend(%s)", [pid])
    shown = []

    def down():
        shown[:] = [(r["system"], r["asleep"]) for r in pair.other.console("SHOW QUEUES") if r["queue"] == "mail"]
        return shown[0][0].startswith("down")
    wait_for(down, "the end of the session")
    assert shown[0][1] == "0"
    cluster.psql("ALTER DATABASE %s CONNECTION LIMIT -1" % pair.db)
    pair.sleeps()


def test_the_primary_dies_while_one_sleeps(qbouncer):
    """A standby takes its place: what was kept until then is told there, and locks of before silence nobody."""
    with Cluster(settings={"synchronous_standby_names": "*", "synchronous_commit": "local"}) as primary:
        primary.psql("CREATE ROLE app LOGIN")
        db = primary.createdb(owner="app")
        standby = Standby(primary)
        standby.settings = dict(primary.settings)
        with standby:
            both = {"*": "host=%s,%s port=%d target_session_attrs=primary" % (
                primary.socket_dir, standby.socket_dir, primary.port)}
            with psycopg.connect(primary.dsn(db), autocommit=True) as direct:
                pair = Pair(qbouncer, db, direct, first=dict(databases=both, server_login_retry="100ms"), databases=both,
                            server_login_retry="100ms")
                pair.sleeps()
                tag(pair.pusher, "QUEUE PUSH mail '1'")
                direct.execute("SET synchronous_commit = remote_apply")
                direct.execute("SELECT txid_current()")     # and all before it is there
            primary.kill()
            standby.promote()
            pair.close()
            with psycopg.connect(standby.dsn(db), autocommit=True) as pair.direct:
                for name, proxy in (("pusher", pair.first), ("taker", pair.other)):
                    setattr(pair, name, wait_for(lambda: comes(proxy, db), "the server"))
                wait_for(lambda: sum(map(len, pair.system_pids())) == 2, "both sessions")
                assert take(pair.taker)["payload"] == "1"
                for n in range(2, 4):
                    pair.sleeps()
                    pair.hears(n)
                pair.close()


def comes(proxy, db):
    """A client, as soon as there is a server for one."""
    try:
        w = proxy.wire(db)
        tag(w, "SELECT 1")
        return w
    except Exception:   # noqa: BLE001: whatever there is to say while it is not there
        return None


def test_who_sleeps_is_killed(pair, qbouncer, listener):
    pair.sleeps()
    pair.other.kill()
    wait_for(lambda: {o for o, _ in pair.shown(pair.first)} == {"none"}, "that nobody is there")
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    again = qbouncer(queue_heartbeat="20ms", queue_rescan="1h", queue_safety_poll="1h")
    with again.wire(pair.db) as w:
        assert take(w)["payload"] == "1"
        w.query(WAIT)
        parked(w)
        pair.wakes()
        tag(pair.pusher, "QUEUE PUSH mail '2'")
        assert woken(w)["payload"] == "2"


def test_who_keeps_is_killed(pair):
    pair.sleeps()
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    pair.first.kill()
    pair.taker.query(WAIT)
    assert woken(pair.taker)["payload"] == "1"


def test_nobody_is_silenced(pair, cluster):
    """Who holds both locks of one who waits, in another session of its role: it is told all the same."""
    pair.taker.query(WAIT)
    parked(pair.taker)
    pair.wakes()
    number = pair.direct.execute("SELECT objid FROM pg_locks WHERE classid = %s" % NUMBERS).fetchall()
    with psycopg.connect(cluster.dsn(pair.db, "app"), autocommit=True) as liar:
        for (n,) in number:
            for c in (NUMBERS, CLASS):
                liar.execute("SELECT pg_advisory_lock_shared(%s, %s)", [c, n])
        for _ in range(3):
            liar.execute("NOTIFY qbouncer, ''")
            pair.look()
        (a, b), _ = pair.system_pids()[0], None
        for pid in (a, b):
            pair.rounds(pid)
        assert {o for o, _ in pair.shown(pair.first)} == {"awake"}
        tag(pair.pusher, "QUEUE PUSH mail '1'")
        assert woken(pair.taker)["payload"] == "1"


def test_nobody_can_sleep_whose_lock_is_taken(pair, cluster, listener):
    """He is told, as ever."""
    with psycopg.connect(cluster.dsn(pair.db, "other"), autocommit=True) as liar:
        pair.taker.query(WAIT)
        parked(pair.taker)
        pair.wakes()
        for (n,) in pair.direct.execute("SELECT objid FROM pg_locks WHERE classid = %s" % NUMBERS).fetchall():
            liar.execute("SELECT pg_advisory_lock(%s, %s)", [CLASS, n])
        tag(pair.pusher, "QUEUE PUSH mail '1'")
        assert woken(pair.taker)["payload"] == "1"
        for pid in pair.system_pids()[0]:
            pair.rounds(pid)
        assert {o for o, _ in pair.shown(pair.first)} == {"awake"}
        assert pair.shown(pair.other)[0][1] == "0"
        pids = pair.system_pids()[0]
        for pid in pids:
            freeze(pair, pid)
        try:        # it tries, and does not know yet
            assert {pair.shown(pair.other)[0][1] for _ in range(50)} == {"0"}
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        listener.heard()
        tag(pair.pusher, "QUEUE PUSH mail '2'")
        wait_for(lambda: "mail" in payloads(listener), "the news")


def test_who_says_that_others_are_awake(pair, cluster):
    """Anybody may: it costs looks, not more of them than the session can do, and what is kept is told."""
    pair.sleeps()
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    with psycopg.connect(cluster.dsn(pair.db, "other"), autocommit=True) as liar:
        for n in range(500):
            liar.execute("SELECT pg_notify('qbouncer', %s)", [AWAKE if n % 2 else ""])
    assert take(pair.pusher)["payload"] == "1"
    wait_for(lambda: pair.shown(pair.first) == [("asleep", "0")], "that the others are seen as they are")
    pair.taker.query(WAIT)
    parked(pair.taker)
    tag(pair.pusher, "QUEUE PUSH mail '2'")
    assert woken(pair.taker)["payload"] == "2"


# --- what they hear all the same, and what is set


def test_a_schedule_is_told_to_who_sleeps(pair, listener):
    """It may be the one that knows the owner's login."""
    pair.sleeps()
    listener.heard()
    tag(pair.pusher, "QUEUE SCHEDULE nightly ON mail EVERY '1 day' PUSH '1'")
    wait_for(lambda: any("schedule" in n for n in payloads(listener)), "the news")


def test_a_cancel_is_told_to_who_sleeps(pair, listener):
    """It has the job."""
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    job = take(pair.taker, "QUEUE TAKE mail HOLD")["token"]
    pair.sleeps()
    listener.heard()
    tag(pair.pusher, "QUEUE CANCEL '%s'" % job.rsplit("-", 1)[0])
    wait_for(lambda: any("cancelled in " in n for n in payloads(listener)), "the news")
    assert pair.shown(pair.other)[0][1] == "1"


def raised(w, texts):
    """As functions in the database tell of a queue: of these."""
    tag(w, "DO $$BEGIN %s END$$" % " ".join("RAISE INFO USING ERRCODE = 'QB100', MESSAGE = %s;" % t for t in texts))


def test_a_cancel_behind_all_that_is_kept(pair, listener):
    """More queues are not named to those who sleep; what is not of a queue is."""
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    job = take(pair.taker, "QUEUE TAKE mail HOLD")["token"]
    pair.sleeps()
    raised(pair.pusher, ["'q%d'" % n for n in range(1100)])
    listener.heard()
    tag(pair.pusher, "QUEUE CANCEL '%s'" % job.rsplit("-", 1)[0])
    wait_for(lambda: any("cancelled in " in n for n in payloads(listener)), "the news")


def test_names_that_the_server_does_not_take(qbouncer, cluster):
    """All others are told as they are, those of who sleeps, too."""
    cluster.psql("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' OWNER app")
    with psycopg.connect(cluster.dsn("latin"), autocommit=True) as direct:
        listener = Listener(direct)
        pair = Pair(qbouncer, "latin", direct)
        pair.sleeps()
        listener.heard()
        # where bytes are as they were they are the euro in UTF-8, which is not in LATIN1
        tag(pair.pusher, "SET client_encoding = 'LATIN1'")
        raised(pair.pusher, ["'one'", "chr(226) || chr(130) || chr(172)", "'two'", "'three'"])
        tag(pair.pusher, "QUEUE SCHEDULE nightly ON mail EVERY '1 day' PUSH '1'")
        told = []

        def all_told():
            told.extend(payloads(listener))
            return {"one", "two", "three"} <= set(told) and {"schedule", "any queue"} <= {
                w for w in ("schedule", "any queue") for n in told if w in n}
        wait_for(all_told, "the news")
        pair.close()
        for p in (pair.first, pair.other):
            p.stop()
    cluster.dropdb("latin")


def test_news_that_are_refused_again_and_again(pair, listener, cluster):
    """They are told in ever smaller parts, for which the server may have time, and nothing is missing in the end."""
    pair.taker.query(WAIT)
    parked(pair.taker)
    pair.wakes()
    listener.heard()
    names = ["small%d" % n for n in range(8)]
    mark = len(cluster.log_text())

    def tried():
        return [s.count("'small") for s in re.findall(r"STATEMENT: .*unnest\(ARRAY\[(.*)", cluster.log_text()[mark:])]
    pair.direct.execute("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
    try:
        raised(pair.pusher, ["'%s'" % n for n in names])
        wait_for(lambda: len(tried()) >= 3, "three that are refused")
    finally:
        pair.direct.execute("GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO PUBLIC")
    told = []

    def all_told():
        told.extend(payloads(listener))
        return set(names) <= set(told)
    wait_for(all_told, "all of them", 60)
    assert tried()[:3] == [1, 8, 4]     # the first one is told at once


def test_one_that_never_sleeps(qbouncer, db, direct, listener):
    pair = Pair(qbouncer, db, direct, queue_sleep_after="0")
    for pid in pair.system_pids()[0]:
        pair.rounds(pid)
    assert {o for o, _ in pair.shown(pair.first)} == {"awake"}
    listener.heard()
    tag(pair.pusher, "QUEUE PUSH mail '1'")
    wait_for(lambda: "mail" in payloads(listener), "the news")
    pair.close()


def test_reload_wakes_it(pair):
    pair.sleeps()
    pair.other.settings["queue_sleep_after"] = "0"
    pair.other.write()
    pair.other.reload()
    pair.wakes()
    assert {a for _, a in pair.shown(pair.other)} == {"0"}


def test_two_processes_beside_another_proxy(qbouncer, db, direct, listener):
    """One process sleeps and the other one does not; they tell each other without others."""
    pair = Pair(qbouncer, db, direct, first=dict(processes=2, queue_sleep_after="50ms"))
    pair.sleeps()
    clients = {}
    while len(clients) < 2:
        w = pair.first.wire(db)
        clients.setdefault(w.pid & 0xff, w)
    a, b = clients.values()
    for w in (a, b):
        w.rows("QUEUE POP mail WAIT '1ms'")
    pair.sleeps()
    # a push at one, a wait at the other one: the third one hears nothing
    b.query(WAIT)
    parked(b)
    listener.heard()
    tag(a, "QUEUE PUSH mail '1'")
    assert woken(b)["payload"] == "1"
    for pid in pair.system_pids()[0]:
        pair.rounds(pid)
    assert payloads(listener) == []
    # a push at the third one: one of the processes waits
    a.query(WAIT)
    parked(a)
    wait_for(lambda: {o for o, _ in pair.shown(pair.other)} == {"awake"}, "that one of them is awake")
    tag(pair.taker, "QUEUE PUSH mail '2'")
    assert woken(a)["payload"] == "2"
    # pushes at both, a wait at the third one
    for w in (a, b):
        pair.sleeps()
        pair.taker.query(WAIT)
        parked(pair.taker)
        tag(w, "QUEUE PUSH mail '3'")
        assert woken(pair.taker)["payload"] == "3"
    for w in (a, b):
        w.close()
    pair.close()
