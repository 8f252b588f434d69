"""Logins that PAM or LDAP decide about: who may come in, what stands in the way, and that nobody else waits for it."""

import os
import shutil
import socket
import subprocess

import psycopg
import pytest

from pgwire import PgError, Wire, types
from proxy import free_port, wait_for

BUILT = {}


def built_in(program, method):
    """Does --version name the library?"""
    if program not in BUILT:
        BUILT[program] = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return method in BUILT[program]


def outcome(proxy, db, user, password, **more):
    """SQLSTATE of the login; None: it is good, and a query goes through."""
    try:
        with proxy.wire(db, user, password, **more) as c:
            assert types(c.simple("SELECT 1")) == "TDCZ"
            return None
    except PgError as e:
        return e.fields["C"]


# --- PAM -------------------------------------------------------------------------------------------------

SCRIPT = """#!/bin/sh
# what pam_exec calls: the password comes on stdin, with a zero byte behind it
read -r password
case $PAM_USER in
slow) : >{dir}/asked.$$; while [ ! -e {dir}/go ]; do read -r _ <{dir}/fifo || :; done ;;
esac
echo "$PAM_USER $PAM_RHOST" >>{dir}/seen
[ "$password" = "secret of $PAM_USER" ]
"""


@pytest.fixture
def pam(request, qbouncer, program, cluster):
    if not built_in(program, "PAM"):
        pytest.skip("built without PAM")
    if not shutil.which("sh") or not any(os.path.exists(d + "/security/pam_exec.so")
                                         for d in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64",
                                                   "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu")):
        pytest.skip("no pam_exec.so")

    def make(hba=None, services=("qbouncer",), **settings):
        proxy = qbouncer(start=False, auth_type="hba" if hba else "pam", auth_pam_dir="{dir}/pam.d",
                         login_failure_delay="0", **settings)
        if hba:
            proxy.settings["auth_hba_file"] = "{dir}/hba.conf"
            proxy.files["hba.conf"] = hba
        os.mkdir(proxy.dir + "/pam.d")
        script = proxy.dir + "/check.sh"
        proxy._put(script, SCRIPT.replace("{dir}", proxy.dir))
        os.chmod(script, 0o755)
        os.mkfifo(proxy.dir + "/fifo", 0o666)
        os.chmod(proxy.dir + "/fifo", 0o666)
        for service in services:
            proxy._put(proxy.dir + "/pam.d/" + service,
                       "auth required pam_exec.so expose_authtok quiet %s\naccount required %s\n"
                       % (script, "pam_deny.so" if service == "closed" else "pam_permit.so"))
        return proxy.start()
    return make


def test_pam(pam, db):
    proxy = pam()
    assert outcome(proxy, db, "app", "secret of app") is None
    assert outcome(proxy, db, "app", "wrong") == "28000"
    assert outcome(proxy, db, "app", "") == "28P01"
    with open(proxy.dir + "/seen", encoding="ascii") as file:
        assert set(file.read().splitlines()) == {"app 127.0.0.1"}
    assert "secret of" not in proxy.log_text() and 'PAM service "qbouncer"' in proxy.log_text()


def test_pam_error_is_that_of_postgres(pam, db):
    with pytest.raises(psycopg.OperationalError, match='PAM authentication failed for user "app"'):
        psycopg.connect(pam().dsn(db, password="wrong"))


def test_pam_account_is_asked(pam, db):
    """The password is good, the account is not."""
    proxy = pam(hba="host all all 127.0.0.1/32 pam pamservice=closed\n", services=("closed",))
    assert outcome(proxy, db, "app", "secret of app") == "28000"


def test_pam_services(pam, db):
    """pamservice= of a rule; else qbouncer, else that of pgbouncer."""
    proxy = pam(hba="host all other 127.0.0.1/32 pam pamservice=own\nhost all all 127.0.0.1/32 pam\n",
                services=("own", "pgbouncer"))
    assert outcome(proxy, db, "other", "secret of other") is None
    assert outcome(proxy, db, "app", "secret of app") is None
    os.remove(proxy.dir + "/pam.d/own")
    os.remove(proxy.dir + "/pam.d/pgbouncer")
    assert outcome(proxy, db, "other", "secret of other") == "28000"


def asked(proxy):
    return [f for f in os.listdir(proxy.dir) if f.startswith("asked.")]


def release(proxy):
    """Lets the scripts that wait go on."""
    proxy._put(proxy.dir + "/go", "")
    while True:
        try:
            fd = os.open(proxy.dir + "/fifo", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(fd, b"go\n")
        except BrokenPipeError:
            pass  # the last one that read has left meanwhile
        os.close(fd)
        os.sched_yield()


def test_pam_that_hangs_stalls_nobody(pam, db):
    """Other logins and queries go on; a client that leaves leaves nothing behind."""
    proxy = pam()
    try:
        with proxy.wire(db, "app", "secret of app") as c:
            waiting = []
            for _ in range(3):
                w = proxy.wire()
                w.startup(user="slow", database=db, wait=False)
                assert w.recv().type == "R"
                w.send("p", b"secret of slow\0")
                waiting.append(w)
            wait_for(lambda: len(asked(proxy)) == 3, "three questions")
            assert types(c.simple("SELECT 1")) == "TDCZ"
            assert outcome(proxy, db, "app", "secret of app") is None
            waiting.pop().close()
            waiting.pop().reset()
            assert types(c.simple("SELECT 1")) == "TDCZ"
    finally:
        release(proxy)
    # there is no such role behind it, but PAM has let it in
    got = waiting[0].closed()
    assert got[-1].sqlstate == "28000" and "PAM" not in got[-1].fields["M"]


def slow_login(proxy, db, source):
    w = Wire(proxy.port, source=source)
    w.startup(user="slow", database=db, wait=False)
    assert w.recv().type == "R"
    return w.send("p", b"secret of slow\0")


def test_pam_is_shared_by_addresses(pam, db):
    """Who floods the threads and their queue from one address shuts out nobody else."""
    proxy = pam(max_client_conn="1000", max_unauthenticated_conn="500")
    flood = []
    try:
        for _ in range(8):
            flood.append(slow_login(proxy, db, "127.0.0.2"))
        wait_for(lambda: len(asked(proxy)) == 6, "its share of the threads")
        assert outcome(proxy, db, "app", "secret of app") is None
        flood += [slow_login(proxy, db, "127.0.0.2") for _ in range(254)]
        # the queue is full: a login from there is refused, one from elsewhere takes the place of one
        one_more = slow_login(proxy, db, "127.0.0.2")
        assert one_more.closed()[-1].sqlstate == "53300"
        assert outcome(proxy, db, "app", "secret of app") is None
        got = flood[-1].closed()
        assert got[-1].sqlstate == "53300" and "Too many" in got[-1].fields["D"]
        assert len(asked(proxy)) == 6
    finally:
        for w in flood:
            w.close()
        release(proxy)


# --- LDAP --------------------------------------------------------------------------------------------------

ENTRY = """dn: uid=%s,ou=people,dc=example,dc=net
objectClass: person
objectClass: uidObject
uid: %s
cn: %s
sn: x
userPassword: secret of %s

"""


class Slapd:
    """One directory for this file; skipped where there is no slapd."""

    def __init__(self, owner_of):
        self.port = free_port()
        self.dir = owner_of.dir
        schema = "/etc/ldap/schema"
        text = "".join("include %s/%s.schema\n" % (schema, s) for s in ("core", "cosine"))
        text += ("modulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {d}/slapd.pid\ndatabase mdb\n"
                 "suffix dc=example,dc=net\nrootdn cn=Manager,dc=example,dc=net\nrootpw secret\ndirectory {d}/ldap\n"
                 "access to attrs=userPassword by anonymous auth\naccess to * by * read\n"
                 ).format(d=self.dir)
        data = ("dn: dc=example,dc=net\nobjectClass: domain\ndc: example\n\n"
                "dn: ou=people,dc=example,dc=net\nobjectClass: organizationalUnit\nou: people\n\n")
        data += "".join(ENTRY % ((u,) * 4) for u in ("app", "other"))
        data += ENTRY.replace("uid=%s,ou=people", "uid=%s+cn=twin,ou=people") % ("other", "other", "twin", "other")
        owner_of._put(self.dir + "/slapd.conf", text)
        owner_of._put(self.dir + "/data.ldif", data)
        os.mkdir(self.dir + "/ldap")
        if owner_of.owner:
            os.chown(self.dir + "/ldap", owner_of.owner.pw_uid, owner_of.owner.pw_gid)
        subprocess.run(["/usr/sbin/slapadd", "-f", self.dir + "/slapd.conf", "-l", self.dir + "/data.ldif"], check=True,
                       preexec_fn=owner_of.become, stdin=subprocess.DEVNULL)
        self.log = open(self.dir + "/slapd.log", "wb")
        self.process = subprocess.Popen(
            ["/usr/sbin/slapd", "-f", self.dir + "/slapd.conf", "-h", "ldap://127.0.0.1:%d" % self.port, "-d", "0"],
            preexec_fn=owner_of.become, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_for(self.listens, "slapd")

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


@pytest.fixture
def ldap(qbouncer, program):
    if not built_in(program, "LDAP"):
        pytest.skip("built without LDAP")
    if not os.path.exists("/usr/sbin/slapd"):
        pytest.skip("slapd is not installed")
    servers = []

    def make(options=None, hba=None, files=None, **settings):
        proxy = qbouncer(start=False, login_failure_delay="0", **settings)
        server = Slapd(proxy)
        servers.append(server)
        proxy.server = server
        proxy.settings["auth_type"] = "hba" if hba else "ldap"
        if hba:
            proxy.settings["auth_hba_file"] = "{dir}/hba.conf"
            proxy.files["hba.conf"] = hba.replace("{port}", str(server.port))
        else:
            proxy.settings["auth_ldap_options"] = options.replace("{port}", str(server.port))
        return proxy.start()
    yield make
    for server in servers:
        server.stop()


SEARCH = 'ldapurl="ldap://127.0.0.1:{port}/dc=example,dc=net?uid?sub"'


def test_ldap_search(ldap, db):
    """As pgbouncer's manual writes auth_ldap_options."""
    proxy = ldap(SEARCH)
    assert outcome(proxy, db, "app", "secret of app") is None
    assert outcome(proxy, db, "app", "wrong") == "28000"
    assert outcome(proxy, db, "app", "") == "28P01"
    assert outcome(proxy, db, "nobody", "secret of nobody") == "28000"
    # two entries fit
    assert outcome(proxy, db, "other", "secret of other") == "28000"
    # more than a name in a filter
    assert outcome(proxy, db, "a*", "secret of app") == "28000"
    assert "secret of" not in proxy.log_text() and "several users fit" in proxy.log_text()


def test_ldap_rules(ldap, db):
    """The ways of the rules: prefix and suffix, a search as somebody, a filter; and what is wrong with the server."""
    proxy = ldap(hba="""
host prefix all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport={port} ldapprefix="uid=" ldapsuffix=",ou=people,dc=example,dc=net"
host search all 127.0.0.1/32 ldap ldapserver="127.0.0.1" ldapport={port} ldapbasedn="ou=people,dc=example,dc=net" ldapbinddn="cn=Manager,dc=example,dc=net" ldapbindpasswd=secret ldapsearchattribute=uid
host filter all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport={port} ldapbasedn="dc=example,dc=net" ldapsearchfilter="(&(uid=$username)(!(cn=twin)))"
host narrow all 127.0.0.1/32 ldap ldapurl="ldap://127.0.0.1:{port}/dc=example,dc=net?uid?sub?(!(cn=twin))"
host nobody all 127.0.0.1/32 ldap ldapurl="ldap://127.0.0.1:{port}/dc=example,dc=net?uid?sub?cn=twin"
host badbind all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport={port} ldapbasedn="dc=example,dc=net" ldapbinddn="cn=Manager,dc=example,dc=net" ldapbindpasswd=wrong
host away all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport=1 ldapprefix=a
host several all 127.0.0.1/32 ldap ldapserver="127.0.0.2 127.0.0.1" ldapport={port} ldapbasedn="dc=example,dc=net" ldapsearchfilter="(&(uid=$username)(!(cn=twin)))"
host notls all 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport={port} ldaptls=1 ldapprefix="uid=" ldapsuffix=",ou=people,dc=example,dc=net"
""", databases={"*": "host=127.0.0.1"})
    for name in "prefix", "search", "filter", "narrow", "nobody", "badbind", "away", "several", "notls":
        proxy.databases[name] = "host=%s port=%d dbname=%s" % (proxy.cluster.socket_dir, proxy.cluster.port, db)
    proxy.reload()
    for name in "prefix", "search", "filter", "narrow", "several":
        assert outcome(proxy, name, "app", "secret of app") is None, name
        assert outcome(proxy, name, "app", "wrong") == "28000", name
    assert outcome(proxy, "filter", "other", "secret of other") is None
    # a filter that does not name the user narrows what the attribute finds
    assert outcome(proxy, "narrow", "other", "secret of other") is None
    assert outcome(proxy, "nobody", "app", "secret of app") == "28000"
    assert outcome(proxy, "prefix", "app,ou=people,dc=example,dc=net", "secret of app") == "28000"
    for name in "badbind", "away", "notls":
        assert outcome(proxy, name, "app", "secret of app") == "28000", name
    assert "bind for the search" in proxy.log_text()


def test_ldap_server_that_is_silent_stalls_nobody(ldap, db):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        proxy = ldap(hba='host all slow 127.0.0.1/32 ldap ldapserver=127.0.0.1 ldapport=%d ldapprefix=a\n'
                         'host all all 127.0.0.1/32 ldap ldapurl="ldap://127.0.0.1:{port}/dc=example,dc=net?uid?sub"\n'
                         % silent.getsockname()[1])
        with proxy.wire() as slow:
            slow.startup(user="slow", database=db, wait=False)
            assert slow.recv().type == "R"
            slow.send("p", b"x\0")
            peer, _ = silent.accept()
            assert outcome(proxy, db, "app", "secret of app") is None
            # the answer does not come: it gives up by itself
            got = slow.closed()
            assert got[-1].sqlstate == "28000" and "LDAP authentication failed" in got[-1].fields["M"]
            peer.close()


@pytest.mark.parametrize("options, why", [("", "ldapserver or ldapurl"), ("ldapserver=x", "is needed"),
                                          ("ldapserver=x ldapprefix=a ldapbasedn=b", "together"), ("ldapnonsense=1", "not known"),
                                          ("ldapurl=http://x", "ldapurl"),
                                          ("ldapurl=ldap:///dc=x", "name of a server"), ("ldapserver=x ldapprefix=a ldaptls=2", "ldaptls")])
def test_ldap_options_are_checked(program, qbouncer, options, why):
    if not built_in(program, "LDAP"):
        pytest.skip("built without LDAP")
    for hba in False, True:
        proxy = qbouncer(start=False, files={"hba.conf": "host all all 0.0.0.0/0 ldap %s\n" % options})
        proxy.port = free_port()
        proxy.settings.update({"auth_type": "hba", "auth_hba_file": "{dir}/hba.conf"} if hba else
                              {"auth_type": "ldap", "auth_ldap_options": options})
        proxy.write()
        done = subprocess.run([program, "--check-config", proxy.ini], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        assert done.returncode == 1 and why in done.stdout, done.stdout
