"""The console: columns that exporters parse, commands, who may do what."""

import os
import re
import shutil
import signal
import socket
import subprocess

import psycopg
import pytest

from node import node_path
from proxy import wait_for
from pgwire import PgError, Wire, types
from tree import ROOT

SESSION = ("type user database replication state addr port local_addr local_port connect_time "
           "request_time wait wait_us close_needed ptr link remote_pid tls application_name "
           "prepared_statements id")
BUFFERS = " recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail"
FIGURES = ("server_assignment_count xact_count query_count {} {} xact_time query_time wait_time "
           "client_parse_count server_parse_count bind_count client_login_count")


def figures(prefix, *names):
    return " ".join(prefix + n for n in FIGURES.format(*names).split())


# What monitoring reads by name, in pgbouncer's order; then ours.
COLUMNS = {
    "VERSION": "version",
    "STATE": "key value",
    "CONFIG": "key value default changeable",
    "MEM": "name size used free memtotal",
    "DATABASES": "name host port database force_user pool_size min_pool_size reserve_pool_size "
                 "server_lifetime pool_mode load_balance_hosts max_connections current_connections "
                 "max_client_connections current_client_connections paused disabled",
    "USERS": "name pool_size reserve_pool_size pool_mode max_user_connections "
             "current_connections max_user_client_connections current_client_connections",
    "POOLS": "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req "
             "sv_active sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login "
             "maxwait maxwait_us pool_mode load_balance_hosts sv_pinned sv_engine sv_kept",
    "CLIENTS": SESSION + " pinned",
    "SERVERS": SESSION + " engine",
    "SOCKETS": SESSION + BUFFERS,
    "ACTIVE_SOCKETS": SESSION + BUFFERS,
    "LISTS": "list items",
    "STATS": "database " + figures("total_", "received", "sent") + " " + figures("avg_", "recv", "sent")
    + " total_pin_count total_look_count total_replay_count total_reset_count",
    "STATS_TOTALS": "database " + figures("", "bytes_received", "bytes_sent")
    + " pin_count look_count replay_count reset_count",
    "STATS_AVERAGES": "database " + " ".join(
        ("avg_" if i > 7 else "") + n for i, n in enumerate(
            figures("", "bytes_received", "bytes_sent").split())),
    "TOTALS": "name value",
    "PEERS": "peer_id host port pool_size",
    "PEER_POOLS": "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login",
    "DNS_HOSTS": "hostname ttl addrs",
    "DNS_ZONES": "zonename serial count",
    "QUEUES": "database queue waiters probing next_due_us wakes probes handed served system failed others asleep",
    "WAITERS": "id database user queues state limit waited_us left_us worker kind rank",
    "RUNNING": "database user queue job attempt state pid running_us left_us runs_in before",
    "LEASES": "id database user queue job policy held_us in_transaction kind",
}


@pytest.mark.parametrize("what", sorted(COLUMNS))
def test_columns(proxy, what):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.simple("SHOW " + what)
        assert got[0].type == "T", got
        assert [x[0] for x in got[0].columns] == COLUMNS[what].split()
        assert got[-2].tag == "SHOW"


@pytest.mark.parametrize("what", [
    "POOLS", "CLIENTS", "SERVERS", "USERS", "STATS", "STATS_TOTALS", "STATS_AVERAGES", "TOTALS",
    "QUEUES", "WAITERS", "LEASES", "RUNNING"])
def test_show(proxy, db, what):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        for user in ("admin", "stats"):
            for name in ("qbouncer", "pgbouncer"):
                rows = proxy.console("SHOW " + what, user, name)
                assert rows is not None


def test_queues(proxy, db):
    """Those that were used, whether somebody waits for them or not; not those that are not there."""
    def shown():
        rows = [r for r in proxy.console("SHOW QUEUES") if r["database"] == db]
        return {r["queue"]: (r["waiters"], r["served"]) for r in rows}

    with proxy.wire(db) as c, proxy.wire(db) as w:
        c.simple("QUEUE CREATE mail; QUEUE CREATE post; QUEUE CREATE gone")
        c.simple("QUEUE PUSH gone '1'")
        c.simple("BEGIN")
        c.simple("QUEUE PUSH post '1', '2', '3'")
        c.simple("COMMIT")
        c.simple("QUEUE TAKE nosuch WAIT '60s'")
        c.simple("QUEUE PUSH nosuch '1'")
        w.query("QUEUE TAKE mail WAIT '60s'")
        proxy.wait_show("QUEUES", lambda r: r["database"] == db and r["waiters"] == "1")
        c.parse("", "QUEUE PUSH $1 $2").bind(values=["mail", "1"]).execute().sync().until("Z")
        w.until("Z")
        c.simple("QUEUE POP post LIMIT 2")
        c.simple("QUEUE DROP gone")
        assert shown() == {"mail": ("0", "1"), "post": ("0", "2")}
        # one that somebody else makes anew is there when a job of it is given
        c.simple("SELECT queue.create('gone'); SELECT queue.push('gone', '1')")
        assert "gone" not in shown()
        c.simple("QUEUE TAKE gone")
        assert shown()["gone"] == ("0", "1")
        c.simple("QUEUE DROP gone")
        w.query("QUEUE TAKE mail WAIT '60s'")
        proxy.wait_show("QUEUES", lambda r: r["database"] == db and r["waiters"] == "1")
        assert shown() == {"mail": ("1", "1"), "post": ("0", "2")}


def test_show_help(proxy):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.query("SHOW HELP").until("Z", skip="SA")
        assert types(got) == "NCZ"
        assert "SHOW" in got[0].fields["D"]


def test_pools(proxy, db):
    with proxy.wire(db) as a, proxy.wire(db) as b:
        a.simple("BEGIN")
        a.simple("SELECT 1")
        b.simple("SELECT 1")
        row = proxy.wait_pool(db, cl_active=2, sv_active=1)
        assert row["pool_mode"] == "transaction"
        servers = [r for r in proxy.console("SHOW SERVERS") if r["database"] == db]
        assert sorted(r["state"] for r in servers) == ["active", "idle"]
        clients = [r for r in proxy.console("SHOW CLIENTS") if r["database"] == db]
        assert len(clients) == 2


def test_stats_count(proxy, db):
    with proxy.wire(db) as c:
        for _ in range(10):
            c.simple("SELECT 1")
    row = next(r for r in proxy.console("SHOW STATS") if r["database"] == db)
    assert int(row["total_query_count"]) >= 10
    assert int(row["total_received"]) > 0 and int(row["total_sent"]) > 0


def test_averages_are_those_of_all_users(qbouncer, db):
    """The mean over the queries of a database, and over all databases: not the sum of the means of its users."""
    proxy = qbouncer(stats_period="1h")

    def stats(what, key):
        return {k: int(v) for r in proxy.console("SHOW " + what) if r[key] == db or key == "name"
                for k, v in ([(r["name"], r["value"])] if key == "name" else r.items()) if v.isdigit()}

    def both():
        proxy.console("SET stats_period = '1h'")
        before = stats("STATS", "database")
        for user in "app", "other":
            with proxy.wire(db, user) as c:
                for _ in range(3):
                    c.simple("SELECT pg_sleep(0.05)")
        now = stats("STATS", "database")
        proxy.console("SET stats_period = 2")
        wait_for(lambda: stats("STATS", "database")["avg_query_time"], "the period's end")
        got = stats("STATS", "database"), stats("TOTALS", "name")
        mean = {k: (now["total_" + k] - before.get("total_" + k, 0)) // 6 for k in ("query_time", "xact_time")}
        if any(x["avg_query_time"] == 0 for x in got):
            return None  # too slow: another period has ended, nothing happened in it
        assert now["total_query_count"] - before.get("total_query_count", 0) == 6
        for x in got:
            assert {k: x["avg_" + k] for k in mean} == mean
        return True
    wait_for(both, "the averages", 60)


def test_states_and_processes_of_sockets(proxy, db):
    """pgbouncer's words; and the process at the other end of a unix socket."""
    with proxy.wire(db) as c, Wire(proxy.port, host=proxy.dir) as d:
        c.simple("SELECT 1")
        d.startup("app", db)
        rows = [r for r in proxy.console("SHOW SOCKETS") if r["database"] == db]
        assert {r["state"] for r in rows if r["type"] == "C"} == {"cl_active"}
        assert {r["state"] for r in rows if r["type"] == "S"} == {"sv_idle"}
        rows = [r for r in proxy.console("SHOW CLIENTS") if r["database"] == db]
        assert {(r["state"], r["addr"], r["remote_pid"]) for r in rows} == {
            ("idle", "127.0.0.1", "0"), ("idle", "unix", str(os.getpid()))}


@pytest.mark.parametrize("command", ["RELOAD", "PAUSE", "RESUME", "KILL x", "SHUTDOWN", "RECONNECT",
                                     "DISABLE x", "ENABLE x", "SET verbose = '1'", "SUSPEND"])
def test_stats_user_may_only_look(proxy, command):
    with pytest.raises(PgError):
        proxy.console(command, "stats")
    assert proxy.console("SHOW VERSION", "stats")


# Every command, and what becomes of it for an admin and for one who may only look.
DENIED = REFUSED = "08P01"  # as pgbouncer has it for all of its commands
RIGHTS = [("SHOW " + what, None, None) for what in COLUMNS] + [
    ("SHOW HELP", None, None), ("SELECT POOLS", None, None), ("SHOW FDS", None, DENIED),
    ("SET verbose = '0'", None, DENIED), ("RELOAD", None, DENIED), ("PAUSE", None, DENIED),
    ("RESUME", None, DENIED), ("DISABLE {db}", None, DENIED), ("ENABLE {db}", None, DENIED),
    ("PAUSE {db}", None, DENIED), ("RESUME {db}", None, DENIED), ("RECONNECT", None, DENIED),
    ("RECONNECT {db}", None, DENIED), ("WAIT_CLOSE {db}", None, DENIED),
    ("WAIT_CLOSE", None, DENIED), ("KILL {db}", None, DENIED), ("RESUME {db}", None, DENIED),
    ("KILL", None, DENIED), ("RESUME", None, DENIED), ("KILL_CLIENT 123456", REFUSED, DENIED),
    ("SUSPEND", None, DENIED), ("RESUME", None, DENIED), ("TAKEOVER 999", "0A000", DENIED), ("INSTALL nosuchdb", "55000", DENIED),
    ("SHUTDOWN WAIT_FOR_CLIENTS", None, DENIED), ("SHUTDOWN WAIT_FOR_SERVERS", None, DENIED),
    ("SHUTDOWN", None, DENIED)]


def outcome(connection, command):
    got = connection.query(command).until("Z")
    return next((m.sqlstate for m in got if m.type == "E"), None)


@pytest.mark.parametrize("kind", ["admin", "stats", "own"])
def test_rights(qbouncer, cluster, kind):
    proxy = qbouncer(databases={"one": "host=%s port=%d dbname=postgres" % (cluster.socket_dir, cluster.port)})
    if kind == "own":
        got = as_own_user(proxy, [c.format(db="one") for c, _, _ in RIGHTS[:-3]])
    else:
        with proxy.wire("qbouncer", kind) as c:
            got = [outcome(c, command.format(db="one")) for command, _, _ in RIGHTS[:-3]]
    wanted = [stats if kind == "stats" else admin for _, admin, stats in RIGHTS[:-3]]
    assert list(zip([r[0] for r in RIGHTS], got)) == list(zip([r[0] for r in RIGHTS], wanted))


def test_rights_has_every_command():
    """The manual, which is made from the tables, names nothing that is not tried there; and who may is what it says."""
    with open(os.path.join(ROOT, "doc", "console.md"), encoding="utf-8") as manual:
        text = manual.read()
    commands = dict(re.findall(r"^\| `(\w+)[^|`]*(?:\\\|[^|`]*)*` \| (admin|stats) \|", text, re.M))
    assert len(commands) > 10
    tried = {}
    for command, _, stats in RIGHTS:
        tried.setdefault(command.split()[0], set()).add(stats)
    assert set(tried) - {"SELECT"} == set(commands)
    for command, who in commands.items():
        assert tried[command] - ({DENIED} if command == "SHOW" else set()) == {None if who == "stats" else DENIED}
    shown = set(re.findall(r"^\| `(\w+)` \|", text[text.index("| `HELP` |"):], re.M))
    assert len(shown) > 20 and shown == {c.split()[1] for c, _, _ in RIGHTS if c.startswith("SHOW ")}


def test_stats_user_by_extended_protocol(proxy, db):
    """Parse, or Execute at the latest, is refused, with and without a name; nothing of it is done."""
    with proxy.wire("qbouncer", "stats") as c:
        for command, _, stats in RIGHTS:
            for name in "", "s":
                got = c.parse(name, command.format(db=db)).bind("", name).execute().sync().until("Z")
                assert next((m.sqlstate for m in got if m.type == "E"), None) == stats, command
                c.close_object("S", name).sync().until("Z")
    assert {r["key"]: r["value"] for r in proxy.console("SHOW STATE")} == {"active": "yes", "paused": "no", "suspended": "no"}


@pytest.mark.parametrize("command", [r[0] for r in RIGHTS[-3:]])
def test_stats_user_cannot_end_it(proxy, command):
    with proxy.wire("qbouncer", "stats") as c:
        assert outcome(c, command) == DENIED
        assert outcome(c, "SHOW VERSION") is None


def as_own_user(proxy, commands):
    """By psql of the unix user that the proxy runs as, without a password: SQLSTATEs."""
    text = "\\set VERBOSITY sqlstate\n" + "".join(c + ";\n\\echo =\n" for c in commands)
    run = subprocess.run(["psql", "-X", "-q", "-h", proxy.dir, "-p", str(proxy.port), "-U", "pgbouncer",
                          "-o", "/dev/null", "pgbouncer"], input=text, preexec_fn=proxy.become,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    parts = run.stdout.split("=\n")[:-1]
    assert len(parts) == len(commands), run.stdout
    return [(re.findall(r"ERROR:\s+(\w{5})", p) or [None])[0] for p in parts]


@pytest.mark.parametrize("name", ["qbouncer", "pgbouncer"])
def test_own_user_only_by_unix_socket(proxy, name):
    """The name alone opens nothing."""
    with pytest.raises(PgError):
        proxy.console("SHOW VERSION", name)


def test_others_may_not(proxy):
    with pytest.raises(PgError) as e:
        proxy.console("SHOW VERSION", "app")
    assert e.value.fields["S"] == "FATAL"


@pytest.mark.parametrize("command", ["NONSENSE", "SHOW NONSENSE", "SHOW", "PAUSE nosuchdb",
                                     "SET nosuchkey = '1'", "SET query_wait_timeout = 'soon'", "'",
                                     "SHOW " + "x" * 10000])
def test_wrong_command(proxy, command):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.simple(command)
        assert types(got) == "EZ" and got[0].fields["S"] == "ERROR"
        assert types(c.simple("SHOW VERSION")) == "TDCZ"


def test_pause_and_resume(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.console("PAUSE " + db)
        c.query("SELECT 2")
        assert c.silent()
        row = next(r for r in proxy.console("SHOW DATABASES") if r["name"] in (db, "*"))
        assert row
        proxy.console("RESUME " + db)
        assert types(c.until("Z")) == "TDCZ"


def test_pause_waits_for_transactions(proxy, db):
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        admin.query("PAUSE " + db)
        assert admin.silent()
        c.simple("COMMIT")
        assert types(admin.until("Z")) == "CZ"
        proxy.console("RESUME " + db)


def test_disable_and_enable(proxy, db):
    proxy.wire(db).simple("SELECT 1")
    proxy.console("DISABLE " + db)
    with pytest.raises(PgError):
        proxy.wire(db)
    proxy.console("ENABLE " + db)
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


def test_kill_and_resume(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.console("KILL " + db)
        got = c.closed()
        assert got and got[-1].type == "E" and got[-1].fields["S"] == "FATAL"
        proxy.console("RESUME " + db)
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"


def test_end_behind_a_kill(qbouncer, db):
    """What the queue would like to ask then waits for the RESUME. When that fails it is not tried again."""
    proxy = qbouncer()
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE mail; QUEUE PUSH mail '1'")
        assert len(c.rows("QUEUE TAKE mail")) == 1
        proxy.wait_show("QUEUES", lambda r: r["system"] == "up")
        proxy.console("KILL " + db)
        c.closed()
    proxy.stop()


def test_reconnect(proxy, db):
    sql = "SELECT pg_backend_pid() AS p"
    with proxy.wire(db) as c:
        first = c.rows(sql)[0]["p"]
        proxy.console("RECONNECT " + db)
        assert c.rows(sql)[0]["p"] != first


def test_set(proxy):
    proxy.console("SET query_wait_timeout = '33'")
    rows = {r["key"]: r["value"] for r in proxy.console("SHOW CONFIG")}
    assert rows["query_wait_timeout"] in ("33", "33s")


@pytest.mark.parametrize("command", ["SHUTDOWN", "SHUTDOWN WAIT_FOR_SERVERS",
                                     "SHUTDOWN WAIT_FOR_CLIENTS"])
def test_shutdown(proxy, command):
    from proxy import wait_for
    try:
        proxy.console(command)
    except Exception: # the immediate form may end before it answers
        assert command == "SHUTDOWN"
    wait_for(lambda: proxy.process.poll() is not None, "the end")
    # who said it, and how
    assert re.search(r"LOG C-0x[0-9a-f]+: qbouncer/admin@127\.0\.0\.1:\d+ SHUTDOWN command issued\n", proxy.log_text())


@pytest.mark.parametrize("on", [True, False])
def test_log_disconnections(qbouncer, db, on):
    """Of clients, and of servers, with the reason and how long they were there."""
    proxy = qbouncer(log_disconnections=int(on))
    with proxy.wire(db) as c:
        c.rows("SELECT 1")
    wait_for(lambda: not [r for r in proxy.console("SHOW CLIENTS") if r["database"] == db], "that the client is gone")
    proxy.console("RECONNECT")
    wait_for(lambda: proxy.console("SHOW SERVERS") == [], "that the servers are gone")
    for kind in "CS":
        line = r"LOG %s-0x[0-9a-f]+: %s/app@\S+ closing because: .+ \(age=\d+s\)\n" % (kind, db)
        if on:
            proxy.wait_log(line)
        else:
            assert not re.search(line, proxy.log_text())


def test_psycopg_extended(proxy):
    """A driver that uses the extended protocol for everything."""
    with proxy.connect("qbouncer", "admin") as conn:
        cur = conn.execute("SHOW POOLS", (), prepare=True)
        assert [d.name for d in cur.description][:2] == ["database", "user"]
        conn.execute("SHOW VERSION", ())
    with psycopg.connect(proxy.dsn("pgbouncer", "admin"), autocommit=True) as conn:
        assert "qbouncer" in conn.execute("SHOW VERSION").fetchone()[0].lower()


def test_secrets_are_not_shown(qbouncer, cluster, db):
    line = "host=%s port=%d password=hush-hush" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(databases={db: line}, users={"other": "hush-hush"})
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        for what in list(COLUMNS) + ["POOLS", "CLIENTS", "SERVERS", "USERS"]:
            assert "hush-hush" not in str(proxy.console("SHOW " + what)), what
    assert "hush-hush" not in proxy.log_text()


# --- the protocol ----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", sorted(COLUMNS))
def test_extended(proxy, db, what):
    """The same rows in both protocols; binary values are those of the text."""
    with proxy.wire(db) as w, proxy.wire("qbouncer", "admin") as c:
        w.simple("SELECT 1")
        got = c.parse("s", "SHOW " + what).describe("S", "s").bind("", "s").execute().sync().until("Z")
        assert types(got).rstrip("DCZ") == "1tT2", got
        assert [x[0] for x in got[2].columns] == COLUMNS[what].split()
        binary = c.bind("", "s", results=[1]).describe("P").execute().sync().until("Z")
        assert types(binary)[:2] == "2T" and all(x[2] == 1 for x in binary[1].columns)
        for m in binary:
            if m.type == "D":
                for (name, oid, _), value in zip(binary[1].columns, m.row):
                    assert value is None or len(value) == {23: 4, 20: 8}.get(oid, len(value)), name


def test_row_limit(proxy):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.parse("", "SHOW CONFIG").bind().execute(limit=3).execute().sync().until("Z")
        assert types(got).startswith("12DDDsD") and types(got).endswith("DCZ")


def test_formats_must_fit(proxy):
    with proxy.wire("qbouncer", "admin") as c:
        got = c.parse("", "SHOW STATE").bind(results=[0, 1, 0]).execute().sync().until("Z")
        assert got[-2].sqlstate == "08P01"
        assert types(c.simple("SHOW STATE")) == "TDDDCZ"


def test_what_only_a_server_can_do(proxy):
    """Nothing of it reaches for a pool that the console does not have."""
    with proxy.wire("qbouncer", "admin") as c:
        for send in (lambda: c.bind("", "nosuch"), lambda: c.bind("", ""), lambda: c.describe("S", "nosuch"),
                     lambda: c.describe("P", "nosuch"), lambda: c.execute("nosuch"),
                     lambda: c.parse("", "DEALLOCATE x")):
            send()
            got = c.sync().until("Z")
            assert types(got) == "EZ", got
        c.send("F", b"\0\0\0\1" + b"\0\0" + b"\0\0" + b"\0\0")
        assert types(c.until("Z")) == "EZ"
        c.copy_data(b"x").copy_done()
        assert types(c.close_object("S", "nosuch").sync().until("Z")) == "3Z"
        assert types(c.simple("DEALLOCATE x")) == "EZ"
        assert types(c.simple("SHOW VERSION")) == "TDCZ"


def test_transactions(proxy):
    """psycopg opens one before the first statement."""
    with proxy.wire("qbouncer", "admin") as c:
        assert [m.status for m in c.simple("BEGIN") if m.type == "Z"] == ["T"]
        assert types(c.query("BEGIN").until("Z", skip="SA")) == "NCZ"
        assert types(c.simple("SHOW VERSION")) == "TDCZ"
        assert c.simple("NONSENSE")[-1].status == "E"
        assert c.simple("SHOW VERSION")[0].sqlstate == "25P02"
        assert c.simple("ROLLBACK")[-1].status == "I"
        assert types(c.simple("")) == "IZ"
        assert types(c.simple("-- ping")) == "IZ"
    with proxy.connect("qbouncer", "admin", autocommit=False) as conn:
        assert conn.execute("SHOW STATE").fetchall()
        conn.commit()


@pytest.mark.parametrize("sql, tag", [
    ("SELECT 1", "SELECT 1"), ("select version();", "SELECT 1"), ("SHOW client_encoding", "SHOW"),
    ("SHOW default_transaction_isolation", "SHOW"), ("SHOW TRANSACTION ISOLATION LEVEL", "SHOW"),
    ("SHOW standard_conforming_strings", "SHOW"), ("SHOW datestyle", "SHOW"), ("SHOW timezone", "SHOW"),
    ("SET extra_float_digits = 3", "SET"), ("SET application_name TO 'x y'", "SET"),
    ("SET SESSION timezone = 'UTC'", "SET"), ("SET datestyle TO 'ISO'", "SET"), ("RESET ALL", "RESET"),
    ("DISCARD ALL", "DISCARD ALL"), ("SELECT pg_catalog.pg_is_in_recovery()", "SELECT 1")])
def test_probes(proxy, sql, tag):
    for user in ("admin", "stats"):
        with proxy.wire("qbouncer", user) as c:
            assert c.simple(sql)[-2].tag == tag


@pytest.mark.parametrize("command", [
    "show version;", "  SHOW\tVERSION ; ", "/* a */ SHOW -- b\n VERSION", ";SHOW VERSION",
    'SHOW "version"', "select version"])
def test_spellings(proxy, command):
    with proxy.wire("qbouncer", "admin") as c:
        assert types(c.simple(command)) == "TDCZ"


@pytest.mark.parametrize("command", ["SHOW VERSION; SHOW VERSION", "SHOW VERSION x", "PAUSE a b", "RELOAD x",
                                     "DISABLE", "SHUTDOWN SOON", "SET a", "SELECT * FROM x"])
def test_syntax(proxy, command):
    with proxy.wire("qbouncer", "admin") as c:
        e = c.simple(command)[0]
        assert e.sqlstate == REFUSED and "use SHOW HELP;" in e.fields["M"] and e.fields["H"]


def test_errors(proxy, db):
    def fails(command):
        with proxy.wire("qbouncer", "admin") as c:
            got = c.simple(command)
            assert types(got) == "EZ"
            return got[0].sqlstate, got[0].fields["M"]
    proxy.wire(db).simple("SELECT 1")
    assert fails("PAUSE nosuchdb") == (REFUSED, "no such database: nosuchdb")
    assert fails("RESUME") == (REFUSED, "pooler is not paused/suspended")
    assert fails("RESUME " + db) == (REFUSED, "database %s is not paused" % db)
    proxy.console("PAUSE " + db)
    assert fails("PAUSE " + db) == (REFUSED, "already suspended/paused")
    for wrong in "nosuchkey = '1'", "listen_port = '1'", "default_pool_size = 'many'":
        assert fails("SET " + wrong) == (REFUSED, "SET failed")
    for wrong in "KILL_CLIENT", "KILL_CLIENT x", "KILL_CLIENT 0xg":
        assert fails(wrong) == (REFUSED, "invalid client pointer supplied")
    assert fails("KILL_CLIENT 123456") == (REFUSED, "client not found")
    proxy.wait_log("WARNING C-0x.* pooler error: client not found\n")


def test_resume_in_a_shutdown(qbouncer, db):
    """The words say why, whether or not something is paused."""
    proxy = qbouncer()
    with proxy.wire(db), proxy.wire("qbouncer", "admin") as admin:
        admin.simple("PAUSE")
        proxy.console("SHUTDOWN WAIT_FOR_CLIENTS")
        e = admin.simple("RESUME")[0]
        assert (e.sqlstate, e.fields["M"]) == (REFUSED, "pooler is shutting down")


# --- its own rows ---------------------------------------------------------------------------------------


def own_row(proxy, what, key="database"):
    return next(r for r in proxy.console("SHOW " + what) if r[key] == "pgbouncer")


@pytest.mark.parametrize("name", ["pgbouncer", "qbouncer"])
def test_the_console_has_rows_of_its_own(qbouncer, name):
    """As in pgbouncer, by whichever name one comes to it: monitoring knows them."""
    proxy = qbouncer(max_db_client_connections="7")
    row = own_row(proxy, "DATABASES", "name")
    assert row["database"] == row["force_user"] == "pgbouncer" and row["host"] is None
    assert (row["port"], row["pool_mode"]) == (str(proxy.port), "statement")
    assert (row["max_client_connections"], row["current_client_connections"]) == ("7", "1")
    with proxy.wire(name, "admin") as admin:
        assert own_row(proxy, "DATABASES", "name")["current_client_connections"] == "2"
        pool = own_row(proxy, "POOLS")
        assert (pool["user"], pool["cl_active"], pool["pool_mode"]) == ("pgbouncer", "2", "statement")
        assert {v for k, v in pool.items() if k[:3] == "sv_"} == {"0"}
        before = own_row(proxy, "STATS_TOTALS")
        admin.simple("SHOW VERSION")
        admin.simple("NONSENSE")
        after = own_row(proxy, "STATS_TOTALS")
        for column in "query_count", "xact_count":
            assert int(after[column]) - int(before[column]) == 3
        assert int(after["client_login_count"]) - int(before["client_login_count"]) == 1
    rows = {r["list"]: r["items"] for r in proxy.console("SHOW LISTS")}
    for what in "DATABASES", "POOLS":
        assert rows[what.lower()] == str(len(proxy.console("SHOW " + what)))
    total = next(r["value"] for r in proxy.console("SHOW TOTALS") if r["name"] == "total_query_count")
    assert int(total) == int(own_row(proxy, "STATS")["total_query_count"]) - 1


# --- commands that take time --------------------------------------------------------------------------


def test_pause_cancelled(proxy, db):
    from pgwire import cancel
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        admin.query("PAUSE " + db)
        assert admin.silent()
        cancel(admin)
        assert admin.until("Z")[0].sqlstate == "57014"
        assert next(r for r in proxy.console("SHOW DATABASES") if r["name"] == db)["paused"] == "1"


def test_pause_and_its_client_leaves(proxy, db):
    with proxy.wire(db) as c:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        admin = proxy.wire("qbouncer", "admin")
        admin.query("PAUSE")
        assert admin.silent()
        admin.close()
        proxy.wait_show("STATE", lambda r: r["key"] == "paused" and r["value"] == "yes")
        c.simple("COMMIT")
        proxy.console("RESUME")
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_pause_ended_by_another(proxy, db):
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        admin.query("PAUSE " + db)
        assert admin.silent()
        proxy.console("RESUME " + db)
        assert admin.until("Z")[0].sqlstate == "55000"
        assert types(c.simple("COMMIT")) == "CZ"


def state(admin):
    return {r["key"]: r["value"] for r in admin.rows("SHOW STATE")}


def test_suspend(qbouncer, db):
    """Nothing is read and nobody comes in; what runs, runs on."""
    proxy = qbouncer()
    with proxy.wire("qbouncer", "admin") as admin, proxy.wire(db) as c, proxy.wire(db) as d:
        d.query("SELECT pg_sleep(0.2), 1")
        c.simple("SELECT 1")
        assert types(admin.simple("SUSPEND")) == "CZ"
        assert state(admin) == {"active": "no", "paused": "no", "suspended": "yes"}
        c.query("SELECT 2")
        late = proxy.wire()
        late.startup(user="app", database=db, wait=False)
        assert c.silent() and late.silent() and d.silent()
        for command in "SUSPEND", "PAUSE":
            assert outcome(admin, command) == REFUSED
        assert outcome(admin, "SHOW POOLS") is None
        assert types(admin.simple("RESUME")) == "CZ"
        assert c.until("Z")[1].text_row == ["2"] and types(d.until("Z")) == "TDCZ"
        late.until("Z")
        late.close()
        assert state(admin)["active"] == "yes"


def test_maxwait_of_who_waits_for_the_first_server(qbouncer):
    """He is one of cl_waiting, and waits."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        proxy = qbouncer(databases={"mute": "host=127.0.0.1 port=%d" % mute.getsockname()[1]})
        with proxy.wire() as c:
            c.startup(user="app", database="mute", wait=False)
            proxy.wait_show("POOLS", lambda r: r["database"] == "mute" and r["cl_waiting"] == "1"
                            and int(r["maxwait"]) * 1000000 + int(r["maxwait_us"]) > 0, timeout=4)


def test_suspend_is_ended_by_a_signal(proxy, db):
    with proxy.wire(db) as c:
        assert proxy.console("SUSPEND") == []
        c.query("SELECT 2")
        assert c.silent()
        proxy.signal(signal.SIGUSR2)
        assert types(c.until("Z")) == "TDCZ"


def test_suspend_and_one_who_does_not_read(qbouncer, db):
    """suspend_timeout ends what holds it up."""
    proxy = qbouncer(suspend_timeout="1", tcp_socket_buffer="16384")
    with proxy.wire(db) as c, proxy.wire(db) as d, proxy.wire("qbouncer", "admin") as admin:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.query("SELECT repeat('x', 1000000) FROM generate_series(1, 30)")
        # the kernel takes no more, and nothing more is read from the server
        proxy.wait_show("SOCKETS", lambda r: r["database"] == db and int(r["send_avail"]) >= 65536)
        assert types(admin.simple("SUSPEND")) == "CZ"
        proxy.wait_log("suspend_timeout")
        admin.simple("RESUME")
        assert types(d.simple("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_suspend_and_a_statement_of_a_queue(qbouncer, db, direct, begin):
    """What waits for its answer does not hold it up, though the beginning of that was written already."""
    proxy = qbouncer(suspend_timeout="1")
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("QUEUE CREATE slow")
        with direct.transaction():
            direct.execute("LOCK TABLE queue.q_slow IN ACCESS EXCLUSIVE MODE")
            if begin:
                c.simple(begin)
            c.parse("", "QUEUE PUSH slow '1'").bind().execute().sync()
            wait_for(lambda: direct.execute("SELECT FROM pg_locks WHERE NOT granted AND relation = 'queue.q_slow'::regclass").fetchall(),
                     "the push to wait")
            assert types(admin.simple("SUSPEND")) == "CZ"
            proxy.wait_log("LOG suspended")
            admin.simple("RESUME")
        assert types(c.until("Z")) == "12CZ"


def test_suspend_with_a_paused_database(proxy, db):
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("SELECT 1")
        admin.simple("PAUSE " + db)
        assert outcome(admin, "SUSPEND") == REFUSED
        admin.simple("RESUME " + db)
        assert outcome(admin, "SUSPEND") is None and outcome(admin, "RESUME") is None
        assert outcome(admin, "RESUME") == REFUSED


@pytest.mark.parametrize("text", ["HELP", "help;", " Help ; "])
def test_help(proxy, text):
    with proxy.wire("qbouncer", "stats") as c:
        got = c.query(text).until("Z", skip="SA")
        assert types(got) == "NCZ" and "SHOW CLIENTS" in got[0].fields["D"]
        got = c.query("HELP PAUSE").until("Z")
        assert got[0].type == "E"


def test_fds(qbouncer, db):
    proxy = qbouncer(core_dumps=1)
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        rows = admin.rows("SHOW FDS")
        client = next(r for r in rows if r["task"] == "client" and r["database"] == db)
        server = next(r for r in rows if r["task"] == "server" and r["database"] == db)
        assert (client["link"], server["link"]) == (server["fd"], client["fd"])
        assert client["password"] is None and client["cancel"] == "0" and client["client_encoding"] == "UTF8"
        assert {r["addr"] for r in rows if r["task"] == "pooler"} == {"127.0.0.1", "unix"}
        open_now = os.listdir("/proc/%d/fd" % proxy.process.pid)
        assert {r["fd"] for r in rows} <= set(open_now)


def test_wait_close(proxy, db):
    with proxy.wire(db) as c, proxy.wire("qbouncer", "admin") as admin:
        c.simple("BEGIN")
        c.simple("SELECT 1")
        proxy.console("RECONNECT " + db)
        admin.query("WAIT_CLOSE " + db)
        assert admin.silent()
        c.simple("COMMIT")
        assert admin.until("Z")[0].tag == "WAIT_CLOSE"


def test_kill_client(proxy, db):
    with proxy.wire(db) as c, proxy.wire(db) as other:
        ids = [r for r in proxy.console("SHOW CLIENTS") if r["database"] == db]
        c.simple("BEGIN")
        c.simple("SELECT 1")
        one = next(r for r in proxy.console("SHOW CLIENTS") if r["database"] == db and r["link"])
        assert len(ids) == 2
        proxy.console("KILL_CLIENT " + one["id"])
        assert c.closed()[-1].sqlstate == "57P01"
        assert types(other.simple("SELECT 1")) == "TDCZ"
        rest = next(r for r in proxy.console("SHOW CLIENTS") if r["database"] == db)
        proxy.console("KILL_CLIENT " + rest["ptr"])
        assert other.closed()


@pytest.mark.bare
def test_install(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        with proxy.wire("qbouncer", "admin") as admin:
            for _ in range(2):
                got = admin.simple("INSTALL " + db)
                assert types(got) == "CZ" and got[0].tag == "INSTALL"
                assert '(asked for as role "app")' in [m for m in admin.log if m.type == "N"][-1].fields["M"]
            admin.simple("INSTALL %s AS postgres" % db)
            assert '"postgres"' in [m for m in admin.log if m.type == "N"][-1].fields["M"]
            e = admin.simple("INSTALL %s AS nobody_here" % db)[0]
            assert e.type == "E" and '"nobody_here"' in e.fields["D"] + e.fields["M"]
            for bad in ("INSTALL %s AS", "INSTALL %s TO app", "INSTALL %s AS app x"):
                assert admin.simple(bad % db)[0].sqlstate == REFUSED
        assert c.rows("SELECT queue.version() AS v")[0]["v"] == "1"


def test_reload_that_fails(proxy):
    proxy.settings["default_pool_size"] = "many"
    proxy.write()
    with proxy.wire("qbouncer", "admin") as c:
        e = c.simple("RELOAD")[0]
        assert e.sqlstate == REFUSED and "default_pool_size" in e.fields["D"]
        proxy.settings["default_pool_size"] = "7"
        proxy.write()
        assert c.simple("RELOAD")[0].tag == "RELOAD"
        assert {r["key"]: r["value"] for r in c.rows("SHOW CONFIG")}["default_pool_size"] == "7"


def test_reload_with_a_bad_user_file(proxy):
    """Nothing of the configuration is taken either."""
    proxy.settings["default_pool_size"] = "7"
    proxy.write()
    os.remove(proxy.settings["auth_file"])
    with proxy.wire("qbouncer", "admin") as c:
        assert c.simple("RELOAD")[0].sqlstate == REFUSED
        assert {r["key"]: r["value"] for r in c.rows("SHOW CONFIG")}["default_pool_size"] == "5"


# --- programs ------------------------------------------------------------------------------------------


def test_psql(proxy):
    run = subprocess.run(["psql", "-X", "-A", proxy.dsn("qbouncer", "admin"), "-c", "SHOW LISTS", "-c", "SHOW HELP"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    assert "free_clients|" in run.stdout and "KILL_CLIENT id" in run.stdout


def test_psycopg_binary(proxy, db):
    proxy.wire(db).simple("SELECT 1")
    with proxy.connect("qbouncer", "admin") as conn:
        with conn.cursor(binary=True) as cur:
            for what in COLUMNS:
                cur.execute("SHOW " + what, prepare=True)
                rows = cur.fetchall()
                text = conn.execute("SHOW " + what).fetchall()
                assert [[type(v) for v in r] for r in rows] == [[type(v) for v in r] for r in text], what
            cur.execute("SHOW STATS_TOTALS")
            row = next(r for r in cur if r[0] == db)
            assert row[3] == 1


NODE = """
const {Client} = require("pg");
(async () => {
    const c = new Client({connectionString: process.argv[1]});
    await c.connect();
    const simple = await c.query("SHOW POOLS"), extended = await c.query({text: "SHOW LISTS", values: []});
    const named = await c.query({name: "n", text: "SHOW VERSION"});
    console.log(simple.fields[0].name, extended.rows.length, named.rows[0].version);
    await c.end();
})();
"""


@pytest.mark.skipif(not shutil.which("node") or not node_path(), reason="node or its driver pg is missing")
def test_node(proxy):
    run = subprocess.run(["node", "-e", NODE, "postgres://admin@127.0.0.1:%d/qbouncer" % proxy.port],
                         stdout=subprocess.PIPE, text=True, check=True, timeout=30,
                         env=dict(os.environ, NODE_PATH=node_path()))
    assert re.match(r"database 14 qbouncer \d", run.stdout)


# --- signals ---------------------------------------------------------------------------------------------


def test_pause_by_signal(proxy, db):
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.signal(signal.SIGUSR1)
        proxy.wait_show("STATE", lambda r: r["key"] == "paused" and r["value"] == "yes")
        c.query("SELECT 2")
        assert c.silent()
        proxy.signal(signal.SIGUSR2)
        assert types(c.until("Z")) == "TDCZ"
