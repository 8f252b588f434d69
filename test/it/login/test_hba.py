"""auth_type = hba: which rule decides, what each method asks, and what a reload does."""

import os
import pwd
import socket
import subprocess

import pytest

from fakedns import FakeDns
from pgwire import PgError, Wire
from proxy import free_port, wait_for


def hba(qbouncer, rules, ident="", **more):
    files = {"hba.conf": rules, "ident.conf": ident}
    files.update(more.pop("files", {}))
    return qbouncer(auth_type="hba", auth_hba_file="{dir}/hba.conf", auth_ident_file="{dir}/ident.conf",
                    files=files, **more)


def refused(proxy, db, user="app", password=None):
    with pytest.raises(PgError) as e:
        proxy.wire(db, user, password)
    return e.value


def login(proxy, db, user="app", password=None):
    with proxy.wire(db, user, password) as c:
        assert len(c.rows("SELECT 1 AS one")) == 1


def unix(proxy, db, user, password=None):
    with Wire(proxy.port, host=proxy.dir) as c:
        c.startup(user=user, database=db, password=password)


def test_first_rule_that_fits_decides(qbouncer, db):
    proxy = hba(qbouncer, """
# the order counts
host  all  other  127.0.0.1/32  reject
host  all  all    127.0.0.0     255.0.0.0  trust
""")
    login(proxy, db, "app")
    e = refused(proxy, db, "other")
    assert e.sqlstate == "28000" and "rejects" in e.message and e.fields["S"] == "FATAL"
    assert "hba.conf:3 rejects" in proxy.log_text()


def test_no_rule_is_no(qbouncer, db):
    proxy = hba(qbouncer, "host all all 10.0.0.0/8 trust\nhost all all ::1/128 trust\nlocal all all trust\n"
                          "hostssl all all all trust\n")
    e = refused(proxy, db)
    assert e.sqlstate == "28000" and 'no pg_hba.conf entry for host "127.0.0.1"' in e.message
    assert "auth_hba_file" in e.fields["H"]


@pytest.mark.parametrize("database, fits", [
    ("all", True), ("{db}", True), ('"{db}"', True), ("x,{db}", True), ("sameuser", False), ("nosuch", False),
    ('"all"', False), ("replication", False), ("@dbs", True), ("/^{db}$", True), ("/^x", False)])
def test_database_names(qbouncer, db, database, fits):
    proxy = hba(qbouncer, "host %s app all trust\n" % database.format(db=db),
                files={"dbs": "# some\none, two\n%s\n" % db})
    if fits:
        login(proxy, db)
    else:
        assert refused(proxy, db).sqlstate == "28000"


@pytest.mark.parametrize("user, fits", [
    ("app", True), ("other,app", True), ("APP", False), ('"app"', True), ("/^a", True), ("/b$", False),
    ("@users", True)])
def test_user_names(qbouncer, db, user, fits):
    proxy = hba(qbouncer, "host all %s samehost trust\n" % user, files={"users": "other\napp"})
    if fits:
        login(proxy, db)
    else:
        assert refused(proxy, db).sqlstate == "28000"


@pytest.mark.parametrize("method", ["password", "plain", "md5", "scram-sha-256"])
def test_methods_with_a_password(qbouncer, db, method):
    proxy = hba(qbouncer, "hostnossl all all all %s\n" % method)
    login(proxy, db, "app", "app-password")
    assert refused(proxy, db, "app", "wrong").sqlstate == "28P01"
    assert refused(proxy, db, "nobody", "wrong").sqlstate == "28P01"


def test_trust_needs_a_known_user(qbouncer, db):
    proxy = hba(qbouncer, "host all all all trust\n")
    assert refused(proxy, db, "nobody").sqlstate == "28P01"


def test_console_goes_by_the_rules(qbouncer, db):
    proxy = hba(qbouncer, "host qbouncer admin all trust\nhost all app all trust\n")
    assert proxy.console("SHOW VERSION")
    assert refused(proxy, "qbouncer", "stats").sqlstate == "28000"


def test_peer(qbouncer, cluster, db):
    """The kernel says which unix user it is: the same name, or one that the map allows."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    rules = "local all mapped,anyone,app,c_%s peer map=m\nlocal all all peer\n" % me
    ident = "m %s mapped\nm /^(?:\\w+@)?([\\w.-]+)$ c_\\1\nother %s app\n" % (me, me)
    proxy = hba(qbouncer, rules, ident, users={me: "", "mapped": "", "c_" + me: ""},
                databases={"*": "host=%s port=%d user=app" % (cluster.socket_dir, cluster.port)})
    unix(proxy, db, me)
    unix(proxy, db, "mapped")
    unix(proxy, db, "c_" + me)
    for user in "app", "other":
        with pytest.raises(PgError) as e:
            unix(proxy, db, user)
        assert e.value.sqlstate == "28000" and "Peer authentication failed" in e.value.message


def test_cert_needs_a_certificate(qbouncer, db):
    proxy = hba(qbouncer, "hostssl all all all cert\n")
    assert refused(proxy, db).sqlstate == "28000"


@pytest.mark.parametrize("line, why", [
    ("host all all 127.0.0.1/33 trust", "invalid mask"),
    ("host all all some_where! trust", "neither an address nor"),
    ("host all all 127.0.0.256 255.0.0.0 trust", "neither an address nor"),
    ("host all all host.test/24 trust", "has no mask"),
    ("host all all all", "method is missing"),
    ("host all all all gss", "unknown authentication method"),
    ("host all +staff all trust", "members of a role"),
    ("host samerole all all trust", "members of a role"),
    ("host all all all trust map=x", "map"),
    ("local all all peer map=nosuch", "no map"),
    ("host all all all peer", "local connections only"),
    ("host all /( all trust", "regular expression"),
    ("host all /^(.*++++++++)@x$ all trust", "a quantifier follows a quantifier"),
    ("host all @nosuchfile all trust", "cannot read"),
    ("tcp all all all trust", "unknown connection type"),
    ("include nosuchfile", "cannot read"),
])
def test_a_mistake_keeps_the_old_rules(qbouncer, db, line, why):
    proxy = hba(qbouncer, "host all app,admin all trust\n")
    proxy.files["hba.conf"] = "host all all all trust\n" + line + "\n"
    proxy.write()
    with pytest.raises(PgError) as e:
        proxy.console("RELOAD")
    assert e.value.sqlstate == "08P01"
    assert why in e.value.fields["D"]
    login(proxy, db)
    assert refused(proxy, db, "other").sqlstate == "28000"


def test_reload_changes_the_rules(qbouncer, db):
    proxy = hba(qbouncer, "host all app all trust\n")
    proxy.files["hba.conf"] = "include_if_exists nosuchfile\ninclude more.conf\n"
    proxy.files["more.conf"] = "host all \\\n  other all trust\n"
    proxy.reload()
    wait_for(lambda: "in force" in proxy.log_text(), "the reload")
    login(proxy, db, "other")
    assert refused(proxy, db, "app").sqlstate == "28000"


def test_include_that_cannot_be_read(qbouncer, db):
    """Only a file that is not there may be missing."""
    proxy = hba(qbouncer, "host all app,admin all trust\n")
    os.symlink("more.conf", proxy.dir + "/more.conf")
    proxy.files["hba.conf"] = "include_if_exists more.conf\nhost all all all trust\n"
    proxy.write()
    with pytest.raises(PgError):
        proxy.console("RELOAD")
    assert "more.conf" in proxy.log_text()
    assert refused(proxy, db, "other").sqlstate == "28000"


def test_include_dir_of_a_file_with_a_relative_name(program, qbouncer):
    proxy = qbouncer(start=False, auth_type="hba", auth_hba_file="sub/hba.conf")
    proxy.port = free_port()
    proxy.write()
    os.makedirs(proxy.dir + "/sub/hba.d")
    proxy._put(proxy.dir + "/sub/hba.conf", "include_dir hba.d\n")
    proxy._put(proxy.dir + "/sub/hba.d/1.conf", "host all all all trust\n")
    done = subprocess.run([program, "--check-config", proxy.ini], cwd=proxy.dir, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_include_dir(qbouncer, db):
    """Files that end in .conf, in the order of their names; others are left alone."""
    proxy = hba(qbouncer, "host all app all trust\n")
    os.mkdir(proxy.dir + "/hba.d")
    proxy.files.update({"hba.conf": "include_dir hba.d\n", "hba.d/20.conf": "host all all all trust\n",
                        "hba.d/10.conf": "host all app all reject\n", "hba.d/05.off": "nonsense\n",
                        "hba.d/.hidden.conf": "nonsense\n"})
    proxy.reload()
    wait_for(lambda: "in force" in proxy.log_text(), "the reload")
    login(proxy, db, "other")
    assert refused(proxy, db, "app").sqlstate == "28000"
    proxy.files["hba.conf"] = "include_dir nosuchdir\n"
    proxy.write()
    with pytest.raises(PgError) as e:
        proxy.console("RELOAD")
    assert "nosuchdir" in proxy.log_text() and e.value.fields["C"] == "08P01"


@pytest.fixture
def dns():
    with FakeDns() as server:
        yield server


def by_name(qbouncer, dns, rules, **more):
    return hba(qbouncer, "host all all 127.0.0.1/32 trust\n" + rules, resolv_conf="{dir}/resolv.conf",
               files={"resolv.conf": dns.resolv_conf}, **more)


def from_there(proxy, db, there="127.0.0.2", **more):
    with Wire(proxy.port, source=there) as c:
        c.startup(user="app", database=db, **more)
        assert len(c.rows("SELECT 1 AS one")) == 1


def refused_there(proxy, db, there="127.0.0.2"):
    with pytest.raises(PgError) as e:
        from_there(proxy, db, there)
    assert e.value.sqlstate == "28000" and "no pg_hba.conf entry" in e.value.message


@pytest.mark.parametrize("rule, fits", [
    ("app1.web.test", True), ("APP1.Web.Test", True), (".web.test", True), (".test", True), ("web.test", False),
    ("app1.web", False), ("1.web.test", False), (".app1.web.test", False), (".eb.test", False)])
def test_host_names(qbouncer, dns, db, rule, fits):
    """The name of the reverse lookup, when its forward lookup has the address; with a dot in front all below it."""
    dns.names["127.0.0.2"] = "app1.web.test"
    dns.addresses["app1.web.test"] = ["127.0.0.9", "127.0.0.2"]
    proxy = by_name(qbouncer, dns, "host all all %s trust\n" % rule)
    (from_there if fits else refused_there)(proxy, db)
    assert not proxy.console("SHOW DNS_HOSTS")  # those are the names of servers


def test_host_name_has_to_be_confirmed(qbouncer, dns, db):
    """Who owns an address may write any name in its reverse zone."""
    dns.names.update({"127.0.0.2": "app1.web.test", "127.0.0.3": "app1.web.test", "127.0.0.4": "127.0.0.4",
                      "127.0.0.5": "gone.web.test"})
    dns.addresses["app1.web.test"] = ["127.0.0.2"]
    proxy = by_name(qbouncer, dns, "host all all .test trust\n")
    from_there(proxy, db)
    for other in "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6":
        refused_there(proxy, db, other)


def test_host_name_of_an_ipv6_address(qbouncer, dns, db):
    with open("/etc/hosts", encoding="utf-8") as f:
        if any(line.split()[:1] == ["::1"] for line in f):
            pytest.skip("/etc/hosts names ::1")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6")
    dns.names["::1"] = "six.web.test"
    dns.addresses["six.web.test"] = ["::1"]
    proxy = by_name(qbouncer, dns, "host all app six.web.test trust\n", listen_addr="127.0.0.1,::1")
    with Wire(proxy.port, host="::1") as c:
        c.startup(user="app", database=db)
        assert len(c.rows("SELECT 1 AS one")) == 1


def test_host_name_of_the_hosts_file(qbouncer, dns, db):
    with open("/etc/hosts", encoding="utf-8") as f:
        lines = [line.split("#")[0].split() for line in f]
    name = next((words[1] for words in lines if words[:1] == ["127.0.0.1"] and len(words) > 1), None)
    if name is None:
        pytest.skip("/etc/hosts has no name for 127.0.0.1")
    proxy = hba(qbouncer, "host all all %s trust\n" % name, resolv_conf="{dir}/resolv.conf",
                files={"resolv.conf": dns.resolv_conf})
    login(proxy, db)
    assert not dns.asked


def test_host_names_are_asked_for_when_they_decide(qbouncer, dns, db):
    """Once for an address, and only when no rule before them fits."""
    dns.names["127.0.0.2"] = "app1.web.test"
    dns.addresses["app1.web.test"] = ["127.0.0.2"]
    proxy = by_name(qbouncer, dns, "host nosuch all elsewhere.test trust\nhost all all .web.test scram-sha-256\n")
    login(proxy, db)
    assert not dns.asked
    for _ in range(3):
        from_there(proxy, db, password="app-password")
    assert dns.asked == ["2.0.0.127.in-addr.arpa", "app1.web.test"]


def test_no_answer_is_no_name(qbouncer, dns, db):
    """Who waits for his name holds up nobody; a rule that names hosts does not fit him, the next one may."""
    dns.silent.add("2.0.0.127.in-addr.arpa")
    proxy = by_name(qbouncer, dns, "host all all .web.test reject\nhost all app 127.0.0.2/32 trust\n")
    with Wire(proxy.port, source="127.0.0.2") as waits, Wire(proxy.port, source="127.0.0.2") as leaves:
        waits.startup(user="app", database=db, wait=False)
        leaves.startup(user="app", database=db, wait=False)
        wait_for(lambda: dns.asked, "the question")
        leaves.close()
        login(proxy, db)
        waits.login("app")
    with Wire(proxy.port, source="127.0.0.2") as c:
        with pytest.raises(PgError):
            c.startup(user="other", database=db)


def test_without_file_it_does_not_start(qbouncer):
    proxy = qbouncer(start=False, auth_type="hba")
    with pytest.raises(AssertionError, match="auth_hba_file"):
        proxy.start()
    proxy.process = None
