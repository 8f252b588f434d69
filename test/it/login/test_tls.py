"""TLS on both sides, with certificates made here: every sslmode, client certificates, direct TLS,
channel binding, rotation of certificates, bytes put in front of the handshake, slow handshakes."""

import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading

import psycopg
import pytest

from pgcluster import Cluster
from pgwire import SSL
from proxy import wait_for

SSL_REQUEST = struct.pack("!II", 8, SSL)


@pytest.fixture(scope="module")
def secure(pki):
    """A Postgres that takes TLS only over TCP."""
    hba = ["hostssl all s_scram 127.0.0.1/32 scram-sha-256",
           "hostssl all s_cert 127.0.0.1/32 cert map=certs",
           "hostssl all all 127.0.0.1/32 trust",
           "hostnossl all all 127.0.0.1/32 reject"]
    settings = {"ssl": "on", "ssl_cert_file": pki.server.cert, "ssl_key_file": pki.server.key,
                "ssl_ca_file": pki.ca.cert}
    with Cluster(settings=settings, hba=hba) as pg:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE s_cert LOGIN;"
                "SET password_encryption = 'scram-sha-256';"
                "CREATE ROLE s_scram LOGIN PASSWORD 'secret of scram'")
        with open(os.path.join(pg.data, "pg_ident.conf"), "w", encoding="ascii") as out:
            out.write("certs app s_cert\n")
        pg.reload()
        yield pg


@pytest.fixture
def tls(qbouncer, pki):
    """Makes proxies that take TLS: tls(key=value, ...)."""
    def make(**more):
        settings = {"client_tls_sslmode": "allow", "client_tls_key_file": pki.server.key,
                    "client_tls_cert_file": pki.server.cert}
        settings.update(more)
        return qbouncer(**settings)
    return make


def one(conn, sql="SELECT 1"):
    return conn.execute(sql).fetchone()[0]


def tls_socket(proxy, alpn=("postgresql",), ask=False, **more):
    """A TLS connection to the proxy, direct or after SSLRequest."""
    plain = socket.create_connection(("127.0.0.1", proxy.port), 20)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for key, value in more.items():
        setattr(context, key, value)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if ask:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
    try:
        return context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise


def startup(user, database):
    body = struct.pack("!I", 3 << 16) + b"user\0%s\0database\0%s\0\0" % (user.encode(), database.encode())
    return struct.pack("!I", len(body) + 4) + body


def read_all(sock):
    """Until the other side ends it."""
    got = b""
    while True:
        try:
            part = sock.recv(65536)
        except (ConnectionResetError, ssl.SSLError):
            return got
        if not part:
            return got
        got += part


# -- clients: sslmode ---------------------------------------------------------------------------

@pytest.mark.parametrize("mode,plain,encrypted", [
    ("disable", True, False), ("allow", True, True), ("prefer", True, True), ("require", False, True)])
def test_client_sslmode(tls, db, mode, plain, encrypted):
    p = tls(client_tls_sslmode=mode)
    for sslmode, ok in (("disable", plain), ("require", encrypted)):
        if ok:
            with p.connect(db, sslmode=sslmode) as conn:
                assert one(conn) == 1
                assert conn.pgconn.ssl_in_use == (sslmode == "require")
        else:
            with pytest.raises(psycopg.OperationalError) as e:
                p.connect(db, sslmode=sslmode)
            assert ("SSL required" if mode == "require" else "does not support SSL") in str(e.value)
    with p.connect(db, sslmode="prefer") as conn:
        assert conn.pgconn.ssl_in_use == encrypted


def test_unix_sockets_need_no_tls(tls, db):
    p = tls(client_tls_sslmode="require")
    with p.connect(db, host=p.dir) as conn:
        assert one(conn) == 1


def test_the_client_verifies_the_proxy(tls, pki, db):
    p = tls()
    with p.connect(db, host="localhost", sslmode="verify-full", sslrootcert=pki.ca.cert) as conn:
        assert one(conn) == 1
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        p.connect(db, host="localhost", sslmode="verify-ca", sslrootcert=pki.other_ca.cert)
    p.wait_log("TLS handshake failed: .*unknown ca")


def test_certificates_of_clients(tls, pki, db):
    p = tls(client_tls_sslmode="verify-ca", client_tls_ca_file=pki.ca.cert)
    with p.connect(db, sslmode="require", sslcert=pki.app.cert, sslkey=pki.app.key) as conn:
        assert one(conn) == 1
    with pytest.raises(psycopg.OperationalError):
        p.connect(db, sslmode="require", sslcert=pki.stranger.cert, sslkey=pki.stranger.key)
    p.wait_log("TLS handshake failed: certificate verify failed")
    with pytest.raises(psycopg.OperationalError):
        p.connect(db, sslmode="require", sslcert="/nowhere")
    p.wait_log("TLS handshake failed: .*peer did not return a certificate")


def test_auth_type_cert(tls, pki, db):
    p = tls(client_tls_sslmode="verify-full", client_tls_ca_file=pki.ca.cert, auth_type="cert")
    files = {"sslmode": "require", "sslcert": pki.app.cert, "sslkey": pki.app.key}
    with p.connect(db, **files) as conn:
        assert one(conn, "SELECT current_user") == "app"
    with pytest.raises(psycopg.OperationalError, match='certificate authentication failed for user "other"'):
        p.connect(db, user="other", **files)
    with pytest.raises(psycopg.OperationalError, match="certificate authentication failed"):
        p.connect(db, host=p.dir)


def check_config(program, proxy):
    """Of what the object holds now: exit code and output."""
    proxy.write()
    done = subprocess.run([program, "--check-config", proxy.ini], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, preexec_fn=proxy.become)
    return done.returncode, done.stdout


def test_auth_type_cert_with_optional_certificates(tls, pki, db):
    """Asked for, not demanded: one that is not verified comes in, and proves nothing."""
    p = tls(client_tls_sslmode="require", client_tls_ca_file=pki.ca.cert, auth_type="cert")
    with p.connect(db, sslmode="require", sslcert=pki.app.cert, sslkey=pki.app.key) as conn:
        assert one(conn) == 1
    for pair in (pki.stranger.cert, pki.stranger.key), ("/nowhere", "/nowhere"):
        with pytest.raises(psycopg.OperationalError, match="ertificate authentication failed"):
            p.connect(db, sslmode="require", sslcert=pair[0], sslkey=pair[1])


def test_versions_and_ciphers(tls, db):
    p = tls(client_tls_protocols="tlsv1.2", client_tls_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384",
            client_tls_ecdhcurve="prime256v1")
    with p.connect(db, sslmode="require") as conn:
        row = next(r for r in p.console("SHOW CLIENTS") if r["database"] == db)
        assert row["tls"] == "TLSv1.2/ECDHE-ECDSA-AES256-GCM-SHA384/ECDH=prime256v1"
        assert one(conn) == 1
    with pytest.raises(psycopg.OperationalError):
        p.connect(db, sslmode="require", ssl_min_protocol_version="TLSv1.3")
    p.settings.update(client_tls_protocols="secure", client_tls13_ciphers="TLS_AES_128_GCM_SHA256")
    p.reload()
    with p.connect(db, sslmode="require"):
        row = next(r for r in p.console("SHOW SOCKETS") if r["database"] == db)
        assert row["tls"].startswith("TLSv1.3/TLS_AES_128_GCM_SHA256")
        p.wait_log(r"login attempt: db=%s user=app tls=TLSv1\.3/TLS_AES_128_GCM_SHA256" % db)


# -- channel binding ----------------------------------------------------------------------------

@pytest.mark.parametrize("binding", ["require", "prefer", "disable"])
def test_scram_of_clients(tls, db, binding):
    p = tls(auth_type="scram-sha-256")
    with p.connect(db, sslmode="require", channel_binding=binding, password="app-password") as conn:
        assert one(conn) == 1
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        p.connect(db, sslmode="require", channel_binding=binding, password="wrong")


def test_no_channel_binding_without_tls(tls, db):
    p = tls(auth_type="scram-sha-256")
    with pytest.raises(psycopg.OperationalError, match="channel binding"):
        p.connect(db, sslmode="disable", channel_binding="require", password="app-password")


def test_a_client_that_was_not_offered_plus_is_told(tls, db):
    """Gs2 flag y: the client can bind, and believes that we cannot."""
    p = tls(auth_type="scram-sha-256")
    with tls_socket(p, ask=True) as s:
        s.sendall(startup("app", db))
        offer = s.recv(4096)
        assert b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0" in offer
        first = b"y,,n=,r=abcdefgh"
        body = b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first
        s.sendall(b"p" + struct.pack("!i", len(body) + 4) + body)
        answer = read_all(s)
        assert answer.startswith(b"E") and b"channel binding negotiation error" in answer


# -- direct TLS ---------------------------------------------------------------------------------

def test_direct_tls(tls, db):
    p = tls()
    with tls_socket(p) as s:
        assert s.selected_alpn_protocol() == "postgresql"
        s.sendall(startup("app", db))
        assert s.recv(9) == b"R\0\0\0\x08\0\0\0\0"
    with tls_socket(p, ask=True, alpn=("h2", "postgresql")) as s:
        assert s.selected_alpn_protocol() == "postgresql"


def test_direct_tls_needs_alpn(tls):
    p = tls()
    with tls_socket(p, alpn=()) as s:
        assert read_all(s) == b""
    p.wait_log("TLS handshake failed: direct TLS without the application protocol")
    with pytest.raises(ssl.SSLError):
        tls_socket(p, alpn=("h2",))
    with tls_socket(p, alpn=(), ask=True) as s:
        s.sendall(startup("app", "nowhere"))
        assert s.recv(1) in b"RE"


def client_hello():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["postgresql"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_truncated_direct_hello_times_out(tls):
    p = tls(client_login_timeout=1, tcp_defer_accept=0)
    hello = client_hello()
    for cut in (1, 3, 5, 9, len(hello) - 1):
        with socket.create_connection(("127.0.0.1", p.port), 20) as s:
            s.sendall(hello[:cut])
            assert read_all(s) == b""
    assert p.log_text().count("closing because: client_login_timeout") == 5


def test_direct_hello_in_pieces(tls):
    p = tls(tcp_defer_accept=0)
    hello = client_hello()
    for cut in (1, 3, 5, 9, len(hello) - 1):
        with socket.create_connection(("127.0.0.1", p.port), 20) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(hello[:cut])
            p.wait_show("LISTS", lambda row: row["list"] == "login_clients" and row["items"] == "1")
            s.sendall(hello[cut:])
            assert s.recv(1) == b"\x16"


def test_direct_tls_when_tls_is_off(proxy):
    with pytest.raises(OSError):
        tls_socket(proxy)


# -- what is not as it should be -----------------------------------------------------------------

def test_security_bytes_behind_ssl_request(tls, db):
    """CVE-2021-3935: in the same packet, and after the answer."""
    p = tls()
    with socket.create_connection(("127.0.0.1", p.port), 20) as s:
        s.sendall(SSL_REQUEST + startup("app", db))
        got = read_all(s)
        assert got.startswith(b"E") and b"received unencrypted data after SSL request" in got
    with socket.create_connection(("127.0.0.1", p.port), 20) as s:
        s.sendall(SSL_REQUEST)
        assert s.recv(1) == b"S"
        s.sendall(startup("app", db))
        got = read_all(s)
        assert b"R\0\0\0" not in got and b"Z\0\0\0" not in got
    p.wait_log("TLS handshake failed")
    with tls_socket(p, ask=True) as s:
        s.sendall(SSL_REQUEST)
        assert b"TLS has begun already" in read_all(s)


def test_slow_handshakes(tls, db):
    """Half of a ClientHello holds up nobody, and ends at client_login_timeout."""
    p = tls(client_login_timeout="1")
    socks = []
    for n in range(40):
        s = socket.create_connection(("127.0.0.1", p.port), 20)
        s.sendall(SSL_REQUEST)
        assert s.recv(1) == b"S"
        if n % 2:
            s.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        socks.append(s)
    with p.connect(db, sslmode="require") as conn:
        assert one(conn) == 1
    for s in socks:
        s.settimeout(20)
        assert read_all(s) == b""
        s.close()
    with p.connect(db, sslmode="require") as conn:
        assert one(conn) == 1


def test_clients_that_leave_in_the_handshake(tls, db):
    p = tls()
    for n in (0, 3, 7):
        with socket.create_connection(("127.0.0.1", p.port), 20) as s:
            s.sendall(SSL_REQUEST)
            assert s.recv(1) == b"S"
            s.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[:n])
    wait_for(lambda: p.log_text().count("TLS handshake failed: the peer closed the connection") == 3)
    with p.connect(db, sslmode="require") as conn:
        assert one(conn) == 1


# -- many bytes ---------------------------------------------------------------------------------

def test_big_values_both_ways(tls, secure):
    p = tls(databases={"db": "host=localhost port=%d dbname=postgres" % secure.port},
            server_tls_sslmode="require")
    text = "x" * 9_000_001
    with p.connect("db", sslmode="require") as conn:
        assert one(conn, "SELECT repeat('x', 9000001)") == text
        assert conn.execute("SELECT length(%s::text)", (text,)).fetchone()[0] == len(text)
        with conn.cursor() as cur:
            rows = 0
            with cur.copy("COPY (SELECT g, repeat('z', 100) FROM generate_series(1, 100000) g) TO STDOUT") as copy:
                for data in copy:
                    rows += bytes(data).count(b"\n")
            assert rows == 100000


def test_pipelines_and_small_messages(tls, db):
    p = tls()
    with p.connect(db, sslmode="require") as conn, conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", (n,)) for n in range(500)]
        assert [c.fetchone()[0] for c in cursors] == list(range(500))


def test_a_client_that_does_not_read(tls, db):
    """The server is held back; nothing piles up here, and no byte is lost."""
    p = tls()
    before = p.rss_kib()
    with tls_socket(p, ask=True) as s:
        s.sendall(startup("app", db))
        sql = b"SELECT repeat('r', 1000) FROM generate_series(1, 30000)\0"
        s.sendall(b"Q" + struct.pack("!i", len(sql) + 4) + sql)
        p.wait_show("SERVERS", lambda r: r["state"] == "active" and r["database"] == db)
        with p.connect(db, sslmode="require") as conn:
            assert one(conn) == 1
        assert p.rss_kib() - before < 20000
        got, last = 0, b""
        while not last.endswith(b"Z\0\0\0\x05I") or got < 30_000_000:
            part = s.recv(65536)
            assert part
            got += len(part)
            last = (last + part)[-6:]


# -- certificates change -------------------------------------------------------------------------

def fingerprint(proxy):
    with tls_socket(proxy, ask=True) as s:
        return s.getpeercert(binary_form=True)


def test_reload_of_rotated_certificates(tls, pki, db):
    files = {}
    for kind, source in (("key", pki.server.key), ("crt", pki.server.cert)):
        files[kind] = os.path.join(pki.folder, "rotated." + kind)
        shutil.copy2(source, files[kind])
        shutil.chown(files[kind], os.stat(source).st_uid, os.stat(source).st_gid)
    p = tls(client_tls_key_file=files["key"], client_tls_cert_file=files["crt"])
    with p.connect(db, sslmode="require") as conn:
        assert one(conn) == 1
        first = fingerprint(p)
        new = pki.ca.issue("renewed", san="DNS:localhost")
        for kind, source in (("key", new.key), ("crt", new.cert)):
            shutil.copy(source, files[kind])
        p.reload()
        second = wait_for(lambda: (lambda now: now != first and now)(fingerprint(p)))
        assert one(conn, "SELECT 2") == 2
        # A pair that does not fit changes nothing.
        shutil.copy(pki.app.key, files["key"])
        mark = len(p.log_text())
        p.reload()
        p.wait_log('client_tls_key_file: .*is not the key of|values mismatch', mark)
        p.wait_log("nothing was changed", mark)
        assert fingerprint(p) == second
        assert one(conn, "SELECT 3") == 3
    with p.connect(db, sslmode="require", channel_binding="prefer") as conn:
        assert one(conn) == 1


def test_check_config_reads_the_files(program, tls, pki):
    p = tls()
    for key, value, told in (
            ("client_tls_cert_file", "/nowhere/cert", 'cannot read "/nowhere/cert": No such file'),
            ("client_tls_key_file", pki.app.key, "is not the key of|values mismatch"),
            ("client_tls_ca_file", pki.server.key, "no certificate"),
            ("client_tls_protocols", "sslv3", "is not a list of secure"),
            ("client_tls_ciphers", "NOSUCH", "no cipher match"),
            ("client_tls13_ciphers", "NOSUCH", "no cipher match"),
            ("client_tls_ecdhcurve", "nosuch", "is not a known curve"),
            ("client_tls_dheparams", "512", "use auto or none"),
            ("client_tls_sslmode", "verify-ca", "client_tls_ca_file: is needed"),
            ("server_tls_sslmode", "verify-ca", "server_tls_ca_file: is needed"),
            ("server_tls_key_file", pki.app.key, "server_tls_cert_file: is missing"),
            ("server_tls_negotiation", "direct", "needs server_tls_sslmode = require")):
        old = p.settings.get(key)
        p.settings[key] = value
        code, text = check_config(program, p)
        assert code == 1 and re.search(told, text), text
        p.settings[key] = old
        if old is None:
            del p.settings[key]
    assert check_config(program, p)[0] == 0


# -- servers -------------------------------------------------------------------------------------

IN_USE = "SELECT ssl::text || ' ' || coalesce(client_dn, '-') FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


def server(secure, host="localhost", **more):
    keys = dict({"host": host, "port": secure.port, "dbname": "postgres"}, **more)
    return {"db": " ".join("%s=%s" % pair for pair in keys.items())}


@pytest.mark.parametrize("mode", ["allow", "prefer", "require", "verify-ca", "verify-full"])
def test_server_sslmode(qbouncer, pki, secure, mode):
    p = qbouncer(databases=server(secure), server_tls_sslmode=mode, server_tls_ca_file=pki.ca.cert)
    with p.connect("db") as conn:
        assert one(conn, IN_USE) == "true -"
        assert one(conn) == 1
        row = next(r for r in p.console("SHOW SERVERS") if r["database"] == "db")
        assert row["tls"].startswith("TLSv1.3/TLS_")


def test_server_ciphers(qbouncer, pki, secure):
    cipher = "SELECT cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    for name in "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256":
        p = qbouncer(databases=server(secure), server_tls_sslmode="require", server_tls13_ciphers=name)
        with p.connect("db") as conn:
            assert one(conn, cipher) == name


@pytest.mark.parametrize("mode,host,ca,reason", [
    ("disable", "localhost", "ca", "pg_hba.conf rejects connection|no encryption"),
    ("verify-ca", "localhost", "other_ca", "certificate verify failed"),
    ("verify-full", "localhost", "other_ca", "certificate verify failed"),
    ("verify-full", "127.0.0.1", "ca", 'does not match the host name "127.0.0.1"'),
])
def test_servers_that_do_not_prove_themselves(qbouncer, pki, secure, mode, host, ca, reason):
    p = qbouncer(databases=server(secure, host), server_tls_sslmode=mode,
                 server_tls_ca_file=getattr(pki, ca).cert)
    with pytest.raises(psycopg.OperationalError) as e:
        p.connect("db")
    assert re.search(reason, str(e.value)), str(e.value)


def test_verify_ca_does_not_look_at_the_name(qbouncer, pki, secure):
    p = qbouncer(databases=server(secure, "127.0.0.1"), server_tls_sslmode="verify-ca",
                 server_tls_ca_file=pki.ca.cert)
    with p.connect("db") as conn:
        assert one(conn, IN_USE) == "true -"


def test_a_server_without_tls(qbouncer, cluster, db):
    where = {"db": "host=127.0.0.1 port=%d dbname=%s" % (cluster.port, db)}
    p = qbouncer(databases=where)
    with p.connect("db") as conn:
        assert one(conn, IN_USE) == "false -"
    p = qbouncer(databases=where, server_tls_sslmode="require")
    with pytest.raises(psycopg.OperationalError, match="the server does not support TLS"):
        p.connect("db")


def test_our_certificate_for_servers(qbouncer, pki, secure):
    p = qbouncer(databases=server(secure, user="s_cert"), server_tls_sslmode="verify-full",
                 server_tls_ca_file=pki.ca.cert, server_tls_key_file=pki.app.key,
                 server_tls_cert_file=pki.app.cert)
    with p.connect("db") as conn:
        assert one(conn, "SELECT current_user") == "s_cert"
        assert one(conn, IN_USE) == "true /CN=app"


def test_scram_plus_to_servers(qbouncer, secure):
    """Postgres offers SCRAM-SHA-256-PLUS over TLS, and checks what it is bound to."""
    p = qbouncer(databases=server(secure, user="s_scram", password="'secret of scram'"),
                 server_tls_sslmode="require")
    with p.connect("db") as conn:
        assert one(conn, "SELECT current_user") == "s_scram"
    p = qbouncer(databases=server(secure, user="s_scram", password="'wrong'"),
                 server_tls_sslmode="require")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        p.connect("db")


def test_each_database_has_its_own_rules(qbouncer, pki, secure, cluster, db):
    both = {"strict": server(secure, server_tls_sslmode="verify-full",
                             server_tls_ca_file=pki.ca.cert)["db"],
            "wrong": server(secure, server_tls_sslmode="verify-full",
                            server_tls_ca_file=pki.other_ca.cert)["db"],
            "plain": "host=127.0.0.1 port=%d dbname=%s" % (cluster.port, db)}
    p = qbouncer(databases=both, server_tls_sslmode="disable")
    with p.connect("strict") as conn:
        assert one(conn, IN_USE) == "true -"
    with p.connect("plain") as conn:
        assert one(conn, IN_USE) == "false -"
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        p.connect("wrong")


def test_cancel_over_tls(tls, secure):
    """The request goes to the server encrypted, which takes nothing else."""
    p = tls(databases=server(secure), server_tls_sslmode="require")
    with p.connect("db", sslmode="require") as conn, p.connect("db", sslmode="require") as watch:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        done = []

        def cancel():
            wait_for(lambda: one(watch, asleep) > 0)
            conn.cancel()
            done.append(True)
        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("SELECT pg_sleep(60)")
        thread.join()
        assert done and one(conn) == 1


def test_the_system_session_uses_tls(qbouncer, pki, secure):
    """The session that listens goes by libpq: it follows the same rules."""
    p = qbouncer(databases=server(secure, queue_user="postgres"), queue_user_superuser="1", server_tls_sslmode="verify-full",
                 server_tls_ca_file=pki.ca.cert)
    with p.connect("db", user="app") as conn:
        secure.psql("DROP SCHEMA IF EXISTS queue CASCADE; ALTER DATABASE postgres OWNER TO app")
        conn.execute("QUEUE CREATE tls_q")
        conn.execute("QUEUE PUSH tls_q '1'")
        assert conn.execute("QUEUE TAKE tls_q").fetchone()
        wait_for(lambda: secure.psql("SELECT count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) "
                                     "WHERE application_name = 'qbouncer system' AND ssl") == "1")


class Server(threading.Thread):
    """One connection of a server that a test plays: talk(socket) in a thread."""

    def __init__(self, talk):
        super().__init__(daemon=True)
        self.talk = talk
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(20)
        self.port = self.socket.getsockname()[1]
        self.got = None
        self.start()

    def run(self):
        conn, _ = self.socket.accept()
        with conn:
            conn.settimeout(20)
            self.got = self.talk(conn)

    def result(self):
        self.join(20)
        self.socket.close()
        return self.got


def test_direct_tls_to_servers(qbouncer, pki):
    def talk(conn):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki.server.cert, pki.server.key)
        context.set_alpn_protocols(["postgresql"])
        with context.wrap_socket(conn, server_side=True) as s:
            return s.selected_alpn_protocol(), s.recv(4096)
    fake = Server(talk)
    p = qbouncer(databases={"db": "host=localhost port=%d" % fake.port}, server_tls_sslmode="verify-full",
                 server_tls_negotiation="direct", server_tls_ca_file=pki.ca.cert)
    with pytest.raises(psycopg.OperationalError):
        p.connect("db")
    protocol, first = fake.result()
    assert protocol == "postgresql" and b"user\0app\0database\0db\0" in first


@pytest.mark.parametrize("answer,reason", [
    (b"SR\0\0\0\x08\0\0\0\0", "received unencrypted data after SSL response"),
    (b"NR\0\0\0\x08\0\0\0\0", "received unencrypted data after SSL response"),
    (b"E", "the server did not understand SSLRequest"),
    (b"S", "TLS handshake with the server failed: (the peer closed|Connection reset)"),
])
def test_security_bytes_behind_the_answer_of_a_server(qbouncer, answer, reason):
    """The sister of CVE-2021-3935: what comes with S or N was not encrypted."""
    def talk(conn):
        assert conn.recv(8) == SSL_REQUEST
        conn.sendall(answer)
        if answer == b"S":
            conn.recv(1)
            return b""
        return conn.recv(100)
    fake = Server(talk)
    p = qbouncer(databases={"db": "host=127.0.0.1 port=%d" % fake.port})
    with pytest.raises(psycopg.OperationalError) as e:
        p.connect("db")
    assert re.search(reason, str(e.value))
    assert fake.result() == b""


def test_a_server_that_is_mute_in_the_handshake(qbouncer):
    def talk(conn):
        conn.recv(8)
        conn.sendall(b"S")
        while conn.recv(4096):
            pass
    fake = Server(talk)
    p = qbouncer(databases={"db": "host=127.0.0.1 port=%d" % fake.port}, server_connect_timeout="1")
    with pytest.raises(psycopg.OperationalError):
        p.connect("db")
    fake.result()


def test_reload_of_server_rules(qbouncer, secure):
    """Sessions under the old rules end when they are free."""
    p = qbouncer(databases=server(secure), server_tls_sslmode="require", server_tls_protocols="tlsv1.2")
    with p.connect("db") as conn:
        version = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert one(conn, version) == "TLSv1.2"
        p.settings["server_tls_protocols"] = "tlsv1.3"
        p.reload()
        assert wait_for(lambda: one(conn, version) == "TLSv1.3")


def test_takeover_leaves_it_where_it_is(tls, db):
    """TLS cannot be handed over: the old process serves it to its end, the plain connection goes."""
    p = tls()
    with p.connect(db, sslmode="require") as conn, p.connect(db, sslmode="disable") as plain:
        assert one(conn) == one(plain) == 1
        first = p.process
        p._launch("-R")
        p.wait_log("takeover: process %d takes over" % p.process.pid)
        wait_for(lambda: p.pool(db), "the client that has moved")
        assert one(conn) == one(plain) == 1
        assert first.poll() is None
    wait_for(lambda: first.poll() is not None, "the end of the old process", 30)
    assert first.returncode == 0
