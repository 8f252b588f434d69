"""What a user of pgbouncer brings and expects, against the list of all that pgbouncer has, and against doc/pgbouncer.md."""

import os
import re
import subprocess

import pytest

import pgbouncer_facts as facts
from pgwire import PgError
from tree import ROOT


def sections():
    """doc/pgbouncer.md: heading -> {first cell without quotes: row}."""
    out, rows = {}, {}
    with open(os.path.join(ROOT, "doc", "pgbouncer.md"), encoding="utf-8") as f:
        for line in f:
            if line.startswith("## "):
                rows = out.setdefault(line[3:].strip(), {})
            elif line.startswith("| `"):
                cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
                rows[cells[0].strip("` ")] = cells
    return out


def check(proxy, text):
    path = os.path.join(proxy.dir, "check.ini")
    proxy._put(path, text)
    done = subprocess.run([proxy.program, "--check-config", path], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False,
                          cwd=proxy.dir, preexec_fn=proxy.become)
    return done.returncode, done.stdout


def test_every_setting_is_known_with_its_default(proxy):
    ours = {r["key"]: r for r in proxy.console("SHOW CONFIG")}
    rows = sections()["Settings"]
    assert set(rows) == set(facts.SETTINGS)
    for key, (default, _) in facts.SETTINGS.items():
        assert key in ours, key
        have = re.sub(r"^(\d+)(us|ms|s|min|h|d|kB|MB|GB)$", number, ours[key]["default"])
        if "The default is" not in rows[key][2] or key == "auth_query":
            assert have in (default, default or "0"), key


def number(m):
    units = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "kB": 1024, "MB": 1024 ** 2, "GB": 1024 ** 3}
    return "%g" % (int(m.group(1)) * units[m.group(2)]) if units[m.group(2)] < 1024 else str(int(m.group(1)) * units[m.group(2)])


def test_what_can_be_changed_is_the_same(proxy):
    ours = {r["key"]: r["changeable"] for r in proxy.console("SHOW CONFIG")}
    for key, (_, reload) in facts.SETTINGS.items():
        if key != "conffile":
            assert ours[key] == ("yes" if reload else "no"), key


def test_ini_with_every_setting_starts_without_a_complaint(qbouncer, cluster):
    """As the sample of pgbouncer has them: all keys with their defaults, in its own section."""
    idle = qbouncer(start=False)
    lines = ["[databases]", "* = host=%s" % cluster.socket_dir, "[pgbouncer]"]
    lines += ["%s = %s" % (k, d or {"verbose": "0"}.get(k, "")) for k, (d, _) in facts.SETTINGS.items() if k != "conffile"]
    code, out = check(idle, "\n".join(lines) + "\n")
    assert code == 0 and "0 errors, 0 warnings" in out, out


def test_ini_of_an_operator_starts_without_a_complaint(qbouncer, cluster):
    """The settings that its manual and its sample show, most of them changed."""
    idle = qbouncer(start=False, files={"hba.conf": "host all all 127.0.0.1/32 scram-sha-256\n", "ident.conf": "m a b\n"})
    idle.port = 6432
    idle.write()
    text = """
;; database name = connect string
[databases]
foodb =
bardb = host=localhost dbname=bazdb
forcedb = host=localhost port=300 user=baz password=foo client_encoding=UNICODE datestyle=ISO connect_query='SELECT 1'
nondefaultdb = pool_size=50 reserve_pool=10 min_pool_size=1 pool_mode=session max_db_connections=60
more = host=127.0.0.1 auth_user=pgbouncer auth_query='SELECT usename, passwd FROM p.user_lookup($1)' auth_dbname=foodb
limits = host=10.0.0.1 max_db_client_connections=10 server_lifetime=60 query_wait_timeout=5 timezone=UTC
* = host=testserver

[users]
user1 = pool_size=5 reserve_pool_size=2 pool_mode=transaction max_user_connections=10 max_user_client_connections=20
user2 = query_timeout=10 query_wait_timeout=20 idle_transaction_timeout=30 transaction_timeout=40 client_idle_timeout=50

[pgbouncer]
logfile = {dir}/pgbouncer.log
pidfile = {dir}/pgbouncer.pid
listen_addr = 127.0.0.1
listen_port = 6432
unix_socket_dir = {dir}
unix_socket_mode = 0777
unix_socket_group =
auth_type = hba
auth_file = {dir}/userlist.txt
auth_hba_file = {dir}/hba.conf
auth_ident_file = {dir}/ident.conf
auth_dbname = foodb
auth_user = pgbouncer
auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename=$1
admin_users = user2, someadmin, otheradmin
stats_users = stats, root
pool_mode = transaction
max_prepared_statements = 100
server_reset_query = DISCARD ALL
server_reset_query_always = 0
ignore_startup_parameters = extra_float_digits, options
server_check_query = select 1
server_check_delay = 10
application_name_add_host = 1
max_client_conn = 500
default_pool_size = 50
min_pool_size = 1
reserve_pool_size = 5
reserve_pool_timeout = 3
max_db_connections = 100
max_user_connections = 100
max_db_client_connections = 400
max_user_client_connections = 300
server_round_robin = 1
log_connections = 1
log_disconnections = 0
log_pooler_errors = 1
stats_period = 30
log_stats = 0
server_lifetime = 1200
server_idle_timeout = 60
server_connect_timeout = 15
server_login_retry = 1
query_timeout = 60
query_wait_timeout = 30
query_wait_notify = 5
cancel_wait_timeout = 10
client_idle_timeout = 600
client_login_timeout = 30
autodb_idle_timeout = 1800
idle_transaction_timeout = 60
transaction_timeout = 120
pool_idle_timeout = 600
login_notify_message = hello
pkt_buf = 8192
listen_backlog = 256
max_packet_size = 2147483647
sbuf_loopcnt = 10
so_reuseport = 1
scram_iterations = 8192
tcp_defer_accept = 1
tcp_socket_buffer = 0
tcp_keepalive = 1
tcp_keepcnt = 3
tcp_keepidle = 30
tcp_keepintvl = 5
tcp_user_timeout = 1000
dns_max_ttl = 30
dns_nxdomain_ttl = 30
dns_zone_check_period = 10
disable_pqexec = 0
verbose = 1
syslog = 0
syslog_ident = pgbouncer
syslog_facility = daemon
server_fast_close = 1
job_name = pooler
service_name = pooler
"""
    code, out = check(idle, text.replace("{dir}", idle.dir))
    assert code == 0 and "0 errors, 0 warnings" in out, out


@pytest.mark.parametrize("section, heading, keys", [
    ("databases", "Keys of [databases]", facts.DATABASE_KEYS), ("users", "Keys of [users]", facts.USER_KEYS),
    ("peers", "Keys of [peers]", facts.PEER_KEYS)])
def test_every_key_of_an_entry_is_known(qbouncer, section, heading, keys):
    """A key that is not known is an error, so each is written once."""
    values = {"load_balance_hosts": "disable", "pool_mode": "session", "host": "/tmp", "timezone": "UTC",
              "client_encoding": "UTF8", "datestyle": "ISO"}
    assert set(sections()[heading]) == set(keys)
    entry = " ".join("%s=%s" % (k, values.get(k, "5")) for k in keys if k != "reserve_pool")
    code, out = check(qbouncer(start=False), "[databases]\n* = host=/tmp\n[qbouncer]\n[%s]\n1 = %s\n" % (section, entry))
    assert code == 0, out


def test_every_command_is_known(proxy):
    ours = {r["command"].split()[0] for r in help_rows()}
    assert set(sections()["Commands of the console"]) == set(facts.COMMANDS)
    assert ours >= set(facts.COMMANDS)


def help_rows():
    with open(os.path.join(ROOT, "doc", "console.md"), encoding="utf-8") as f:
        for line in f:
            m = re.match(r"\| `([A-Z_]+)[^`]*` \| (stats|admin) \|", line)
            if m:
                yield {"command": m.group(1)}


@pytest.mark.parametrize("what", sorted(facts.SHOWS))
def test_columns(proxy, what):
    row = sections()["SHOW"][what]
    assert row[1].split(", ") == facts.SHOWS[what]
    with proxy.wire("qbouncer", "admin") as c:
        got = c.query("SHOW " + what).until("Z")
    if "Not supported" in row[2]:
        assert got[0].type == "E" and got[0].sqlstate == "0A000"
        return
    assert got[0].type == "T"
    columns = [name for name, _, _ in got[0].columns]
    assert columns[:len(facts.SHOWS[what])] == facts.SHOWS[what], "columns of ours come behind"


def test_lists_has_its_rows(proxy):
    rows = [r["list"] for r in proxy.console("SHOW LISTS")]
    assert rows == """databases users peers pools peer_pools free_clients used_clients login_clients free_servers
        used_servers dns_names dns_zones dns_queries dns_pending""".split()


def test_the_log_has_the_words_of_pgbouncer(qbouncer, db):
    """The lines by which programs that read its log (pgbadger, fail2ban) know what happens."""
    proxy = qbouncer(stats_period="1")
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
    with pytest.raises(PgError):
        proxy.wire(db, "nobody")
    for command in "PAUSE " + db, "RESUME " + db, "PAUSE", "RESUME", "RELOAD":
        proxy.console(command)
    head = r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC \[\d+\] "
    who = r"C-0x[0-9a-f]+: %s/%s@127\.0\.0\.1:\d+ "
    for line in (head + r"LOG listening on 127\.0\.0\.1:%d$" % proxy.port,
                 head + "LOG " + who % (db, "app") + r"login attempt: db=%s user=app tls=no$" % db,
                 head + r"LOG S-0x[0-9a-f]+: %s/app@unix:%d new connection to server$" % (db, proxy.cluster.port),
                 head + "LOG " + who % (db, "app") + r"closing because: client unexpected eof \(age=\d+s\)$",
                 head + "WARNING " + who % (db, "nobody") + r'pooler error: "trust" authentication failed$',
                 head + "LOG " + who % ("qbouncer", "admin") + "PAUSE '%s' command issued$" % db,
                 head + "LOG " + who % ("qbouncer", "admin") + "RESUME command issued$",
                 head + "LOG " + who % ("qbouncer", "admin") + "RELOAD command issued$",
                 head + r"LOG stats: \d+ xacts/s, \d+ queries/s, in \d+ B/s, out \d+ B/s, xact \d+ us, query \d+ us, wait \d+ us"):
        proxy.wait_log(line)


@pytest.mark.parametrize("method", ["pam", "ldap"])
def test_methods_that_are_not_built_in_are_refused(qbouncer, program, method):
    """And --version tells which are there."""
    assert method in sections()["Methods of authentication"]
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    code, out = check(qbouncer(start=False), "[databases]\n* =\n[qbouncer]\nauth_type = %s\n"
                      "auth_ldap_options = ldapserver=x ldapprefix=y\n" % method)
    assert (code == 0) == (method.upper() in version), out
    assert code == 0 or "built without " + method.upper() in out


def test_console_by_its_old_name(proxy):
    assert proxy.console("SHOW VERSION", dbname="pgbouncer")
    with pytest.raises(PgError):
        proxy.console("SHOW NOSUCH", dbname="pgbouncer")
