"""processes = N: several processes, one program for the operator and for clients."""

import os
import re
import signal
import threading
import time
import urllib.request

import pytest

from pgcluster import free_port
from pgwire import Closed, PgError, cancel, types
from proxy import running, wait_for

N = 3


def process_of(wire):
    """Which one a client came to: its cancel key says so."""
    return wire.pid & 0xff


def pids(proxy):
    """number -> process, of those that are there."""
    found = {}
    for pid, number in re.findall(r"\[(\d+)\] LOG process (\d+) of \d+ started", proxy.log_text()):
        found[int(number)] = int(pid)
    return found


@pytest.fixture
def many(qbouncer):
    proxy = qbouncer(processes=N)
    wait_for(lambda: len(pids(proxy)) == N, "all processes")
    return proxy


def clients(proxy, db, n=12):
    return [proxy.wire(db) for _ in range(n)]


def clients_of_both(proxy, db, n=8):
    """So many or more, of two processes."""
    wires = clients(proxy, db, n)
    while {process_of(w) for w in wires} != {1, 2}:
        wires.append(proxy.wire(db))
    return wires


def one_of_each(proxy, db):
    """A client at each process, by its number."""
    found, others = {}, []
    for _ in range(100):
        w = proxy.wire(db)
        if process_of(w) in found:
            others.append(w)
        else:
            found[process_of(w)] = w
        if len(found) == N:
            break
    for w in others:
        w.close()
    assert len(found) == N, "clients come to some only: %s" % sorted(found)
    return found


def test_clients_come_to_all_of_them(many, db):
    all_of_them = clients(many, db)
    parts = [sum(process_of(w) == i for w in all_of_them) for i in range(1, N + 1)]
    assert sum(parts) == 12 and min(parts) >= 2, parts
    for w in all_of_them:
        assert types(w.simple("SELECT 1")) == "TDCZ"
        w.close()


def test_cancel_reaches_the_process_of_the_client(many, db, direct):
    there = one_of_each(many, db)
    victim = there[1]
    for _ in range(2 * N):  # from whichever process it comes to
        victim.query("SELECT pg_sleep(30)")
        running(direct)
        cancel(victim)
        assert victim.until("Z")[-2].sqlstate == "57014"
        assert types(victim.simple("SELECT 1")) == "TDCZ"
        running(direct, 0)
    for w in there.values():
        w.close()


def test_one_that_is_killed_is_replaced(many, db):
    there = one_of_each(many, db)
    before = pids(many)
    os.kill(before[2], signal.SIGKILL)
    many.wait_log(r"process 2 \(%d\) was killed by signal 9" % before[2])
    there[2].closed()
    for i in (1, 3):
        assert types(there[i].simple("SELECT 1")) == "TDCZ"
    wait_for(lambda: pids(many)[2] != before[2], "another process 2")
    for w in there.values():
        w.close()
    for w in one_of_each(many, db).values():
        assert types(w.simple("SELECT 1")) == "TDCZ"
        w.close()


def test_reload_is_for_all(many, db):
    many.settings["max_prepared_statements"] = 7
    mark = len(many.log_text())
    many.reload()
    wait_for(lambda: len(re.findall("the configuration is in force", many.log_text(mark))) == N, "N reloads")


@pytest.mark.parametrize("signo, left", [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_end(many, db, signo, left):
    """SIGTERM waits for the clients of all; SIGINT for their transactions."""
    there = one_of_each(many, db)
    for w in there.values():
        w.simple("BEGIN; SELECT 1")
    many.signal(signo)
    wait_for(lambda: len(re.findall("shutdown: when", many.log_text())) == N, "a shutdown of each")
    for w in there.values():
        assert types(w.simple("COMMIT"))[:1] == "C"
        if left:
            assert types(w.simple("SELECT 1")) == "TDCZ"
            w.close()
    many.process.wait(10)
    assert many.process.returncode == 0
    assert not os.path.exists("%s/.s.PGSQL.%d" % (many.dir, many.port))


def test_they_end_with_the_one_that_started_them(many):
    started = pids(many)
    many.process.kill()
    many.process.wait()
    many.process = None
    for pid in started.values():
        wait_for(lambda: not os.path.exists("/proc/%d" % pid) or
                 open("/proc/%d/stat" % pid, encoding="ascii").read().split()[2] == "Z", "the end")


def test_shutdown_on_the_console_is_for_all(many, db):
    many.console("SHUTDOWN")
    many.process.wait(10)
    assert many.process.returncode == 0


def test_a_start_that_fails_leaves_nobody(qbouncer):
    proxy = qbouncer(start=False, processes=N, listen_addr="192.0.2.1")
    proxy.port = 6432
    proxy.write()
    proxy._launch()
    assert proxy.process.wait(10) == 1
    proxy.process = None


# --- the console ---

def test_show_answers_for_all(many, db):
    there = one_of_each(many, db)
    rows = many.console("SHOW CLIENTS")
    assert {int(r["process"]) for r in rows if r["database"] == db} == {1, 2, 3}
    assert list(rows[0])[-1] == "process"
    assert sum(int(r["cl_active"]) for r in many.console("SHOW POOLS") if r["database"] == db) == N
    assert {r["process"] for r in many.console("SHOW TOTALS")} == {"1", "2", "3"}
    ids = [r["id"] for r in rows]
    assert len(set(ids)) == len(ids)
    assert "process" not in many.console("SHOW CONFIG")[0]
    with many.connect("qbouncer", "admin") as console:  # extended, binary
        with console.cursor(binary=True) as cur:
            cur.execute("SHOW POOLS")
            assert cur.description[-1].name == "process"
            assert {r[-1] for r in cur.fetchall() if r[0] == db} == {1, 2, 3}
    for w in there.values():
        w.close()


def test_many_rows(many, db):
    """More than fit into one message between processes."""
    open_ones = clients(many, db, 150)
    rows = [r for r in many.console("SHOW SOCKETS") if r["database"] == db and r["type"] == "C"]
    assert len(rows) == 150
    for w in open_ones:
        w.close()


def test_commands_are_for_all(many, db, direct):
    there = one_of_each(many, db)
    for w in there.values():
        w.simple("SELECT 1")
    many.console("PAUSE " + db)
    assert {r["paused"] for r in many.console("SHOW DATABASES") if r["name"] == db} == {"1"}
    for w in there.values():
        w.query("SELECT 1")
    wait_for(lambda: sum(int(r["cl_waiting"]) for r in many.console("SHOW POOLS")) == N, "all wait")
    many.console("RESUME " + db)
    for w in there.values():
        assert types(w.until("Z")) == "TDCZ"
    many.console("SET query_timeout = 77")
    for _ in range(2 * N):
        assert {r["value"] for r in many.console("SHOW CONFIG") if r["key"] == "query_timeout"} == {"77"}
    many.console("RELOAD")
    for _ in range(2 * N):
        assert {r["value"] for r in many.console("SHOW CONFIG") if r["key"] == "query_timeout"} == {"0"}
    for number, w in there.items():
        row = next(r for r in many.console("SHOW CLIENTS")
                   if r["database"] == db and int(r["process"]) == number)
        many.console("KILL_CLIENT " + row["id"])
        w.closed()


def test_pause_waits_for_all(many, db):
    """It is complete when the transactions of all have ended."""
    there = one_of_each(many, db)
    for w in there.values():
        w.simple("BEGIN; SELECT 1")
    with many.wire("qbouncer", "admin", password=many.users["admin"]) as console:
        console.query("PAUSE")
        for w in there.values():
            many.wait_show("DATABASES", lambda r: r["name"] == db)
            console.silent(0.05)
            w.simple("COMMIT")
        assert types(console.until("Z"))[0] == "C"
    many.console("RESUME")
    for w in there.values():
        assert types(w.simple("SELECT 1")) == "TDCZ"
        w.close()


def test_a_new_process_knows_what_holds(many, db):
    there = one_of_each(many, db)
    many.console("PAUSE " + db)
    before = pids(many)
    os.kill(before[2], signal.SIGKILL)
    wait_for(lambda: pids(many)[2] != before[2], "another process 2")
    wait_for(lambda: [r["paused"] for r in many.console("SHOW DATABASES") if r["name"] == db] == ["1"] * N, "paused")
    many.console("RESUME " + db)
    for number in (1, 3):
        assert types(there[number].simple("SELECT 1")) == "TDCZ"
    for w in there.values():
        w.close()


def test_errors_of_commands(many):
    for sql in ("PAUSE nowhere", "KILL_CLIENT 12345", "SET nothing = 1", "RESUME", "TAKEOVER 1"):
        with many.wire("qbouncer", "admin", password=many.users["admin"]) as console:
            assert "E" in types(console.simple(sql)), sql


# --- limits ---

def most_servers(proxy, db):
    """That there were at a time, as all processes have said one after the other: a backend ends later than
    its connection."""
    there, most = set(), 0
    for server, what in re.findall(r"(S-0x\w+): %s/app@\S+ (new connection|closing because)" % db, proxy.log_text()):
        (there.add if what == "new connection" else there.discard)(server)
        most = max(most, len(there))
    return most


class Loop(threading.Thread):
    """Clients that ask one after the other, each a few times or until they are told to stop; what goes wrong is kept."""

    def __init__(self, wire, sql, times=1000000):
        super().__init__()
        self.wire, self.sql, self.times, self.rounds, self.failed = wire, sql, times, 0, None
        self.start()

    def run(self):
        try:
            while self.rounds < self.times:
                assert "E" not in types(self.wire.simple(self.sql))
                self.rounds += 1
        except Exception as e:  # the test says so
            self.failed = e


def end_all(loops):
    """... behind the statements under way."""
    for l in loops:
        l.times = 0
    for l in loops:
        l.join()
        l.wire.close()


def work_under(proxy, db, most, n=8, times=6):
    """All of them come in and work, and there are never more servers than that."""
    loops = [Loop(w, "SELECT pg_sleep(0.002)", times) for w in clients(proxy, db, n)]
    for l in loops:
        l.join()
        assert l.failed is None, l.failed
        l.wire.close()
    assert 0 < most_servers(proxy, db) <= most


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections", "default_pool_size"])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_limits_of_servers_are_exact(qbouncer, db, limit, most):
    proxy = qbouncer(processes=4, **{limit: most})
    work_under(proxy, db, most)


def test_two_users_with_a_place_for_each_process(qbouncer, db):
    """A place goes to who waits longest, and not to and fro without anybody being served."""
    proxy = qbouncer(processes=2, max_db_connections=2)
    with proxy.wire(db) as c:
        c.rows("QUEUE CREATE mail")     # so that there are statements of the proxy's own
    served = []

    def work(user):
        with proxy.wire(db, user) as w:
            for _ in range(15):
                w.rows("SELECT 1")
                served.append(user)

    threads = [threading.Thread(target=work, args=("other" if n % 5 == 0 else "app",)) for n in range(30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (served.count("app"), served.count("other")) == (24 * 15, 6 * 15)


def test_a_free_server_elsewhere_makes_room(qbouncer, db):
    """At once: nobody waits for a time-out."""
    proxy = qbouncer(processes=N, max_db_connections=1)
    there = one_of_each(proxy, db)
    began = time.monotonic()
    for _ in range(5):
        for w in there.values():
            assert types(w.simple("SELECT 1")) == "TDCZ"
    assert time.monotonic() - began < 3
    for w in there.values():
        w.close()


@pytest.mark.parametrize("busy", [False, True])
def test_a_process_whose_part_stays_in_use(qbouncer, db, busy):
    """Others have a server that is free, or that comes free again and again."""
    proxy = qbouncer(processes=N, max_db_connections=N, query_wait_timeout="10s")
    there = one_of_each(proxy, db)
    stop, failed = threading.Event(), []

    def work(w):
        try:
            while not stop.is_set():
                w.rows("SELECT pg_sleep(0.002)")
        except Exception as e:  # the test says so
            failed.append(e)

    with proxy.wire(db, "other") as first:      # who shares its process
        there[process_of(first)].rows("SELECT 1")
        for w in there.values():
            if w is not there[process_of(first)]:
                w.rows("SELECT 1")
        first.rows("BEGIN")
        first.rows("SELECT 1")
        wait_for(lambda: sum(int(r["sv_active"]) for r in proxy.console("SHOW POOLS") if r["user"] == "other") == 1, "its server")
        beside = [proxy.wire(db) for _ in range(12)] if busy else []
        threads = [threading.Thread(target=work, args=(w,)) for w in beside if process_of(w) != process_of(first)]
        for t in threads:
            t.start()
        for _ in range(3):
            there[process_of(first)].rows("SELECT 1")
        stop.set()
        for t in threads:
            t.join()
        assert not failed
        first.rows("COMMIT")
    for w in list(there.values()) + beside:
        w.close()


def test_slow_statements_do_not_hand_servers_round(qbouncer, db):
    """Who waits behind a statement of its own process waits for that: a login for each statement would be none the better."""
    proxy = qbouncer(processes=2, max_db_connections=2)
    wait_for(lambda: len(pids(proxy)) == 2, "all processes")
    wires = clients_of_both(proxy, db)
    for w in wires:
        w.rows("SELECT 1")
    mark = len(proxy.log_text())
    threads = [threading.Thread(target=lambda w=w: [w.rows("SELECT pg_sleep(0.15)") for _ in range(5)]) for w in wires]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    logins = len(re.findall("new connection to server", proxy.log_text(mark)))
    assert logins <= 10, logins    # 40 statements; at the beginning, and at the end, one may have what the other needs
    for w in wires:
        w.close()


def test_no_server_goes_for_one_who_lacks_two_places(qbouncer, db):
    """Of a limit of the database, for a client whose user has all that he may have in use."""
    proxy = qbouncer(processes=2, max_db_connections=2, max_user_connections=1, query_wait_timeout="60s")
    wait_for(lambda: len(pids(proxy)) == 2, "all processes")
    wires, others = [proxy.wire(db) for _ in range(16)], [proxy.wire(db, "other") for _ in range(16)]
    holder = wires[0]
    waiter = next(w for w in wires[1:] if process_of(w) == process_of(holder))
    worker = next(w for w in others if process_of(w) != process_of(holder))
    holder.rows("BEGIN")
    holder.rows("SELECT 1")
    worker.rows("SELECT 1")
    waits = threading.Thread(target=lambda: waiter.rows("SELECT 1"))
    waits.start()
    wait_for(lambda: sum(int(r["cl_waiting"]) for r in proxy.console("SHOW POOLS")) == 1, "the one who waits")
    mark = len(proxy.log_text())
    for _ in range(15):
        worker.rows("SELECT pg_sleep(0.1)")
    logins = len(re.findall("new connection to server", proxy.log_text(mark)))
    holder.rows("COMMIT")
    waits.join()
    assert logins <= 2, logins
    for w in wires + others:
        w.close()


def test_a_server_that_is_busy_has_places_of_two_limits(qbouncer, db):
    """They are handed on together, though it is free for no time at all between two statements."""
    proxy = qbouncer(processes=2, max_db_connections=1, max_user_connections=1)
    wait_for(lambda: len(pids(proxy)) == 2, "all processes")
    wires = clients_of_both(proxy, db)
    loops = [Loop(w, "SELECT pg_sleep(0.15)") for w in wires]
    try:
        wait_for(lambda: all(l.rounds >= 2 or l.failed is not None for l in loops), "an answer for each, twice", timeout=40)
    finally:
        end_all(loops)
    assert [l.failed for l in loops] == [None] * len(loops)


def at_process(proxy, db, user, number, n=1):
    """So many clients there."""
    wires, found = [], []
    while len(found) < n:
        wires.append(proxy.wire(db, user))
        found = [w for w in wires if process_of(w) == number]
    for w in set(wires) - set(found):
        w.close()
    return found


@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.3])
def test_two_limits_that_two_busy_others_have(qbouncer, db, cluster, seconds):
    """What one of them lets go is kept until the other does, though their servers never come free at once."""
    proxy = qbouncer(processes=2, max_db_connections=1, max_user_connections=1, query_wait_timeout="20s",
                     databases={"two": "host=%s port=%d dbname=%s" % (cluster.socket_dir, cluster.port, db)})
    wait_for(lambda: len(pids(proxy)) == 2, "all processes")
    waiter = at_process(proxy, db, "app", 2)[0]
    busy = at_process(proxy, db, "other", 1, 2) + at_process(proxy, "two", "app", 1, 2)
    loops = [Loop(w, "SELECT pg_sleep(%f)" % seconds) for w in busy]
    try:
        wait_for(lambda: all(l.rounds >= 2 or l.failed is not None for l in loops), "an answer for each, twice")
        for _ in range(3):
            waiter.rows("SELECT 1")
    finally:
        end_all(loops)
    assert [l.failed for l in loops] == [None] * len(loops)
    waiter.close()


def test_a_connection_that_listens_takes_no_place_of_the_pool(qbouncer, db):
    """Nor does it within one process."""
    proxy = qbouncer(processes=N, default_pool_size=1, query_wait_timeout="10s")
    there = one_of_each(proxy, db)
    there[1].simple("LISTEN news")
    for _ in range(2):
        for w in there.values():
            w.rows("SELECT 1")
    for w in there.values():
        w.close()


def test_who_logs_in_beside_tasks_of_another_process(qbouncer, db):
    """These have more servers than clients may have, and always want them; and where he is no server has greeted anybody."""
    proxy = qbouncer(processes=2, default_pool_size=1, queue_pool_size=4, queue_engine_after=0, query_wait_timeout="10s")
    wires = clients_of_both(proxy, db, 10)
    for i in range(5):
        wires[0].simple("QUEUE CREATE q%d" % i)
    proxy.console("RECONNECT " + db)
    wait_for(lambda: not any(r["database"] == db for r in proxy.console("SHOW SERVERS")), "the end of what has greeted them")
    ones = [w for w in wires if process_of(w) == 1][:5]
    loops = [Loop(w, "QUEUE PUSH q%d '1'" % i) for i, w in enumerate(ones)]
    try:
        wait_for(lambda: sum(r["database"] == db for r in proxy.console("SHOW SERVERS")) > 1, "more than clients may have")
        for w in clients_of_both(proxy, db, 4):
            w.rows("SELECT 1")
            w.close()
    finally:
        end_all(loops)
    assert [l.failed for l in loops] == [None] * len(loops)
    for w in set(wires) - set(ones):
        w.close()


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections"])
def test_who_listens_while_a_limit_is_full(qbouncer, db, limit):
    """As with one process, the connection that listens is had all the same, and takes the place of no other."""
    proxy = qbouncer(processes=N, query_wait_timeout="10s", **{limit: 1})
    there = one_of_each(proxy, db)
    there[1].simple("BEGIN; SELECT 1")
    assert types(there[2].simple("LISTEN news")) == "CZ"
    there[1].simple("COMMIT")
    there[1].simple("NOTIFY news")
    assert there[2].recv().type == "A"
    for w in there.values():
        w.rows("SELECT 1")
    there[2].simple("UNLISTEN news")
    for w in there.values():
        w.rows("SELECT 1")
        w.close()


class Reborn(Loop):
    """Comes again when its process is killed, and says so."""

    def __init__(self, proxy, db, user, sql):
        self.proxy, self.db, self.user, self.killed = proxy, db, user, 0
        super().__init__(proxy.wire(db, user), sql)

    def run(self):
        while self.rounds < self.times and self.failed is None:
            try:
                if self.killed > 0:
                    self.wire = self.proxy.wire(self.db, self.user)
            except (Closed, OSError):  # by one that was killed as it came
                continue
            super().run()
            if isinstance(self.failed, (Closed, OSError)) and self.killed < 10:
                self.failed = None
                self.killed += 1


@pytest.mark.parametrize("options", [dict(max_db_connections=2), dict(default_pool_size=1),
                                     dict(max_db_connections=2, max_user_connections=1)],
                         ids=["database", "pool", "both"])
def test_one_is_killed_while_all_claim_places(qbouncer, db, direct, options):
    """Again and again, in the middle of logins and claims: those of others go on, and all places are there at the end."""
    proxy = qbouncer(processes=N, query_wait_timeout="15s", **options)
    wait_for(lambda: len(pids(proxy)) == N, "all processes")
    loops = [Reborn(proxy, db, ("app", "other")[n % 2], "SELECT pg_sleep(0.002)") for n in range(12)]
    for n in range(6):
        number = 1 + n % N
        before = [l.rounds for l in loops]
        victim = pids(proxy)[number]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: pids(proxy)[number] != victim, "another process")
        wait_for(lambda: all(l.rounds > b or l.failed is not None for l, b in zip(loops, before)), "an answer for each")
    end_all(loops)
    assert [l.failed for l in loops] == [None] * len(loops)
    assert sum(l.killed for l in loops) > 0
    most = options.get("max_db_connections", 2)
    wait_for(lambda: direct.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename IN ('app', 'other')",
                                    [db]).fetchone()[0] <= most, "no more servers than there may be")
    # one has as many as there may be, in each process
    for number in range(1, N + 1):
        wires = [at_process(proxy, db, user, number)[0] for user in ("app", "other")]
        for w in wires:
            w.rows("BEGIN")
            w.rows("SELECT 1")
        for w in wires:
            w.rows("COMMIT")
            w.close()


def test_the_places_of_one_that_is_killed_are_free(qbouncer, db):
    proxy = qbouncer(processes=N, max_db_connections=1)
    there = one_of_each(proxy, db)
    assert types(there[2].simple("BEGIN; SELECT 1"))[-1] == "Z"
    there[1].query("SELECT 1")
    wait_for(lambda: any(r["cl_waiting"] == "1" for r in proxy.console("SHOW POOLS")), "one that waits")
    os.kill(pids(proxy)[2], signal.SIGKILL)
    assert types(there[1].until("Z")) == "TDCZ"
    for w in there.values():
        w.close()


@pytest.mark.parametrize("limit", ["max_client_conn", "max_db_client_connections", "max_user_client_connections"])
def test_limits_of_clients_are_exact(qbouncer, db, limit):
    proxy = qbouncer(processes=N, **{limit: 7})
    for _ in range(2):
        open_ones = clients(proxy, db, 7)
        with pytest.raises(PgError) as e:
            proxy.wire(db)
        assert e.value.sqlstate == "53300" and limit in str(e.value)
        for w in open_ones:
            w.close()
        wait_for(lambda: not [r for r in proxy.console("SHOW CLIENTS") if r["database"] == db], "all gone")


# --- figures ---


def scrape(proxy):
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % proxy.metrics_port, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def measured(qbouncer):
    port = free_port()
    proxy = qbouncer(processes=N, metrics_port=port)
    proxy.metrics_port = port
    wait_for(lambda: len(pids(proxy)) == N, "all processes")
    return proxy


def by_process(text, name):
    return {int(n): float(v) for n, v in re.findall(r'^qbouncer_%s{(?:.*,)?process="(\d)"} (\S+)$' % name, text, re.M)}


def test_metrics_are_those_of_all(measured, db):
    wires = one_of_each(measured, db)
    for n, w in wires.items():
        for _ in range(n):
            w.simple("SELECT 1")
    text = scrape(measured)
    assert by_process(text, "clients") == {1: 1, 2: 1, 3: 1}
    assert by_process(text, 'queries_total') == {1: 1, 2: 2, 3: 3}
    assert len(by_process(text, "process_open_fds")) == N
    heads = re.findall(r"^# TYPE (\S+)", text, re.M)
    assert len(heads) == len(set(heads))
    # a family's lines stand behind its head, of all processes
    name = None
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            name = line.split()[2]
        elif not line.startswith("#"):
            assert re.match(name + r"(_bucket|_sum|_count)?[{ ]", line), (name, line)
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_metrics_without_one_that_does_not_answer(measured, db):
    wires = one_of_each(measured, db)
    os.kill(pids(measured)[2], signal.SIGSTOP)
    try:
        assert sorted(by_process(scrape(measured), "clients")) == [1, 3]
    finally:
        os.kill(pids(measured)[2], signal.SIGCONT)
    wait_for(lambda: sorted(by_process(scrape(measured), "clients")) == [1, 2, 3], "the second process")
    assert wires[2].rows("SELECT 1") is not None


def test_jobs_are_counted_once(measured, db):
    """What stands in the database is the same for all processes."""
    wires = one_of_each(measured, db)
    wires[1].simple("QUEUE CREATE mail")
    wires[2].simple("QUEUE CREATE events WITH (kind = stream); QUEUE SUBSCRIBE a TO events")
    for w in wires.values():
        w.simple("QUEUE PUSH mail '1'")
        w.simple("QUEUE PUSH events '1'")
    line = 'qbouncer_queue_jobs{database="%s",queue="mail",state="ready"} 3' % db
    wait_for(lambda: line in scrape(measured), "the count")
    text = scrape(measured)
    assert text.count('queue_jobs{database="%s",queue="mail",state="ready"' % db) == 1
    pending = 'qbouncer_queue_subscription_pending{database="%s",stream="events",subscription="a"' % db
    wait_for(lambda: pending + "} 3\n" in scrape(measured), "the count of events")
    text = scrape(measured)
    for more in ("retries", "dead"):
        assert text.count(pending.replace("pending", more) + "} 0\n") == 1
    assert text.count(pending) == 1 and text.count("# TYPE qbouncer_queue_stream_events ") == 1
    assert sum(by_process(text, "queue_jobs_total").values()) >= 0


def test_many_scrapes_at_once(measured, db):
    one_of_each(measured, db)
    got = []
    threads = [threading.Thread(target=lambda: got.append(scrape(measured))) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [len(by_process(text, "clients")) for text in got] == [N] * 20
