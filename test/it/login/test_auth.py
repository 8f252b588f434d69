"""Who may come in, and how the proxy comes into the server."""

import struct

import psycopg
import pytest

from pgwire import PgError, cstr
from proxy import wait_for

PASSWORD = "pencil 'with\" quotes"
# the secrets that Postgres itself would store
MD5 = "md5%s"
METHODS = ["trust", "plain", "md5", "scram-sha-256"]


def secret(cluster, kind):
    """PASSWORD as the user file may have it."""
    if kind == "plain":
        return PASSWORD
    cluster.psql("SET password_encryption = '%s'; ALTER ROLE other PASSWORD '%s'"
                 % (kind, PASSWORD.replace("'", "''")))
    return cluster.psql("SELECT rolpassword FROM pg_authid WHERE rolname = 'other'")


@pytest.mark.parametrize("method", METHODS)
def test_password(qbouncer, db, method):
    proxy = qbouncer(auth_type=method, users={"other": PASSWORD})
    with proxy.connect(db, "other", password=PASSWORD) as conn:
        assert conn.execute("SELECT current_user").fetchone() == ("other",)


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("user", ["other", "nobody"])
def test_refused(qbouncer, db, method, user):
    """A wrong password and an unknown user look the same."""
    proxy = qbouncer(auth_type=method, users={"other": PASSWORD})
    with pytest.raises(PgError) as e:
        proxy.wire(db, user, "wrong")
    assert e.value.sqlstate == "28P01"
    assert e.value.fields["S"] == "FATAL"
    assert e.value.message == 'password authentication failed for user "%s"' % user


def rounds(proxy, db, user):
    """What a client that begins with SCRAM is told."""
    with proxy.wire() as c:
        c.startup(user, db, wait=False)
        c.until("R")
        first = b"n,,n=,r=abcdefgh"
        c.send("p", cstr("SCRAM-SHA-256") + struct.pack("!i", len(first)) + first)
        return dict(p.split("=", 1) for p in c.recv().body[4:].decode().split(","))["i"]


def test_scram_iterations(qbouncer, db):
    """Also a reload, and users that there are not: they look the same."""
    proxy = qbouncer(auth_type="scram-sha-256", users={"other": PASSWORD}, scram_iterations=5000)
    assert rounds(proxy, db, "other") == rounds(proxy, db, "nobody") == "5000"
    with proxy.connect(db, "other", password=PASSWORD) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
    proxy.settings["scram_iterations"] = 6000
    proxy.reload()
    wait_for(lambda: rounds(proxy, db, "other") == "6000", "the new rounds")
    assert rounds(proxy, db, "nobody") == "6000"
    with proxy.connect(db, "other", password=PASSWORD) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("method", METHODS[1:])
def test_empty_password_is_refused(qbouncer, db, method):
    proxy = qbouncer(auth_type=method, users={"other": ""})
    with pytest.raises(PgError):
        proxy.wire(db, "other", "")


@pytest.mark.parametrize("stored", ["plain", "md5", "scram-sha-256"])
@pytest.mark.parametrize("method", ["plain", "md5", "scram-sha-256"])
def test_stored_secrets(qbouncer, cluster, db, method, stored):
    proxy = qbouncer(auth_type=method, users={"other": secret(cluster, stored)})
    if method == "scram-sha-256" and stored == "md5":
        with pytest.raises(PgError): # an md5 hash cannot prove a SCRAM login
            proxy.wire(db, "other", PASSWORD)
        return
    with proxy.wire(db, "other", PASSWORD) as c:
        assert c.rows("SELECT current_user") == [{"current_user": "other"}]
    with pytest.raises(PgError) as e:
        proxy.wire(db, "other", "wrong")
    assert e.value.sqlstate == "28P01"


@pytest.mark.parametrize("user, kind", [("s_scram", "scram"), ("s_md5", "md5"), ("s_plain", "plain")])
def test_server_asks(qbouncer, cluster, db, user, kind):
    """The proxy proves itself to the server, with the password of the user file."""
    tcp = {"*": "host=127.0.0.1 port=%d" % cluster.port}
    proxy = qbouncer(databases=tcp, users={user: "secret of " + kind})
    with proxy.wire(db, user) as c:
        assert c.rows("SELECT current_user") == [{"current_user": user}]


@pytest.mark.parametrize("user, kind", [("s_scram", "scram"), ("s_md5", "md5"), ("s_plain", "plain")])
def test_server_password_of_the_database(qbouncer, cluster, db, user, kind):
    """user= and password= of [databases]: all clients share that login."""
    line = "host=127.0.0.1 port=%d user=%s password='secret of %s'" % (cluster.port, user, kind)
    proxy = qbouncer(databases={db: line})
    with proxy.wire(db, "app") as c:
        assert c.rows("SELECT current_user") == [{"current_user": user}]


def test_scram_pass_through(qbouncer, cluster, db):
    """Only the SCRAM secret is known: the client's own proof opens the server."""
    stored = cluster.psql("SELECT rolpassword FROM pg_authid WHERE rolname = 's_scram'")
    assert stored.startswith("SCRAM-SHA-256$")
    tcp = {"*": "host=127.0.0.1 port=%d" % cluster.port}
    proxy = qbouncer(auth_type="scram-sha-256", databases=tcp, users={"s_scram": stored})
    with proxy.connect(db, "s_scram", password="secret of scram") as conn:
        assert conn.execute("SELECT current_user").fetchone() == ("s_scram",)
    with pytest.raises(psycopg.OperationalError):
        proxy.connect(db, "s_scram", password="wrong")


def test_server_refuses_the_password(qbouncer, cluster, db):
    tcp = {"*": "host=127.0.0.1 port=%d" % cluster.port}
    proxy = qbouncer(databases=tcp, users={"s_scram": "not it"})
    with pytest.raises(PgError) as e:
        proxy.wire(db, "s_scram").rows("SELECT 1")
    assert e.value.sqlstate in ("28P01", "08006")
    assert "password" in e.value.message


def test_server_rejects_the_user(qbouncer, cluster, db):
    tcp = {"*": "host=127.0.0.1 port=%d" % cluster.port}
    proxy = qbouncer(databases=tcp, users={"s_none": "x"})
    with pytest.raises(PgError) as e:
        proxy.wire(db, "s_none").rows("SELECT 1")
    assert e.value.sqlstate == "28000"


def test_trust_needs_a_known_user(qbouncer, db):
    proxy = qbouncer(auth_type="trust")
    with pytest.raises(PgError) as e:
        proxy.wire(db, "nobody")
    assert e.value.fields["S"] == "FATAL"


def test_any_takes_the_user_of_the_database(qbouncer, cluster, db):
    line = "host=%s port=%d user=other" % (cluster.socket_dir, cluster.port)
    proxy = qbouncer(auth_type="any", databases={db: line})
    with proxy.wire(db, "whoever") as c:
        assert c.rows("SELECT current_user") == [{"current_user": "other"}]


def test_no_such_database(qbouncer, db):
    proxy = qbouncer(databases={"*": "host=/nowhere", "only": "host=/nowhere"})
    del proxy.databases["*"]
    proxy.reload()
    with pytest.raises(PgError) as e:
        proxy.wire("nosuch")
    assert e.value.sqlstate == "3D000"
    assert 'nosuch' in e.value.message


def test_database_missing_on_the_server(proxy):
    with pytest.raises(PgError) as e:
        proxy.wire("not_on_the_server").rows("SELECT 1")
    assert e.value.sqlstate == "3D000"


SCRAM_GARBAGE = [
    cstr("SCRAM-SHA-256") + struct.pack("!i", 0xFFFFFFF),
    cstr("SCRAM-SHA-256") + struct.pack("!i", -2),
    cstr("SCRAM-SHA-256") + struct.pack("!I", 0xFFFFFFFF) + b"n,,n=,r=x",
    cstr("SCRAM-SHA-256") + struct.pack("!i", 2) + b"n,",
    cstr("SCRAM-SHA-256-PLUS") + struct.pack("!i", 9) + b"n,,n=,r=x",
    cstr("NONSENSE") + struct.pack("!i", 9) + b"n,,n=,r=x",
    b"SCRAM-SHA-256",
    b"",
    cstr("SCRAM-SHA-256") + struct.pack("!i", 60000) + b"n,,n=,r=" + b"x" * 59992,
    cstr("SCRAM-SHA-256") + struct.pack("!i", 17) + b"p=tls-unique,,n=,",
]


@pytest.mark.parametrize("body", SCRAM_GARBAGE)
def test_garbled_scram(qbouncer, db, body):
    proxy = qbouncer(auth_type="scram-sha-256")
    with proxy.wire() as c:
        c.startup("app", db, wait=False)
        assert c.until("R")
        c.send("p", body)
        last = c.closed()
        assert last and last[-1].type == "E" and last[-1].fields["S"] == "FATAL"
        assert last[-1].sqlstate in ("08P01", "28P01", "28000")
