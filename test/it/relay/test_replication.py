"""Replication connections pass through, each on a server connection of its own."""

import os
import struct
import subprocess

import pytest

from pgwire import PgError, types


@pytest.fixture
def walsender(cluster):
    cluster.psql("ALTER ROLE app REPLICATION")
    yield "app"
    cluster.psql("ALTER ROLE app NOREPLICATION")


@pytest.mark.parametrize("mode", ["true", "on", "1", "database"])
def test_identify_system(qbouncer, cluster, db, walsender, mode):
    proxy = qbouncer(pool_mode="transaction")
    with proxy.wire(db, walsender, replication=mode) as c:
        row = c.rows("IDENTIFY_SYSTEM")[0]
        assert row["systemid"] == cluster.psql("SELECT system_identifier FROM pg_control_system()")
        assert row["dbname"] == (db if mode == "database" else None)
        c.terminate()
    proxy.wait_pool(db, sv_idle=0, sv_active=0)


def test_sql_in_a_database(proxy, db, walsender):
    with proxy.wire(db, walsender, replication="database", application_name="slot reader") as c:
        assert c.rows("SELECT current_setting('application_name') AS a")[0]["a"] == "slot reader"
        assert types(c.simple("SELECT 1; SELECT 2")) == "TDCTDCZ"


def test_off_is_an_ordinary_connection(proxy, db):
    with proxy.wire(db, replication="false") as c:
        assert types(c.simple("SELECT 1")) == "TDCZ"


def test_wrong_value(proxy, db):
    with pytest.raises(PgError) as e:
        proxy.wire(db, replication="perhaps")
    assert e.value.sqlstate == "22023"


def test_role_that_may_not(proxy, db):
    with pytest.raises(PgError) as e:
        proxy.wire(db, "other", replication="true")
    assert e.value.sqlstate == "42501" or e.value.sqlstate == "28000"


def test_stream(proxy, cluster, db, walsender):
    """Both directions at once: WAL comes, the client's status goes."""
    with proxy.wire(db, walsender, replication="true") as c:
        start = c.rows("IDENTIFY_SYSTEM")[0]["xlogpos"]
        c.query("START_REPLICATION %s" % start)
        assert c.recv().type == "W"
        cluster.psql("CREATE TABLE streamed AS SELECT generate_series(1, 20000) AS n; DROP TABLE streamed")
        size = 0
        while size < 100000:
            m = c.recv()
            assert m.type == "d"
            size += len(m.body)
            if m.body[:1] == b"k":
                c.send("d", b"r" + struct.pack("!qqqqb", 0, 0, 0, 0, 0))
        c.send("c")
        kinds = types(c.until("Z"))
        assert kinds.lstrip("d").startswith("c")


def test_backup(proxy, cluster, db, walsender, tmp_path):
    """A whole program, with two connections."""
    os.chmod(tmp_path, 0o777)
    done = subprocess.run([os.path.join(cluster.bin, "pg_basebackup"), "-d", proxy.dsn(db, walsender), "-D",
                           str(tmp_path / "base"), "-X", "stream", "-c", "fast", "--no-slot"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "base" / "PG_VERSION").exists()


def test_never_pooled(qbouncer, db, walsender):
    """What a replication client leaves behind is nobody's; ordinary clients of the role are not disturbed."""
    proxy = qbouncer(default_pool_size=1)
    with proxy.wire(db, walsender) as a, proxy.wire(db, walsender, replication="database") as r:
        one = r.rows("SELECT pg_backend_pid() AS p")[0]["p"]
        assert a.rows("SELECT pg_backend_pid() AS p")[0]["p"] != one
        r.simple("SET search_path = nowhere")
        r.terminate()
        assert a.rows("SHOW search_path")[0]["search_path"] != "nowhere"


def test_rules_know_replication(qbouncer, db, walsender):
    proxy = qbouncer(auth_type="hba", auth_hba_file="{dir}/hba.conf",
                     files={"hba.conf": "host all app all trust\nhost replication other all trust\n"})
    with pytest.raises(PgError) as e:
        proxy.wire(db, walsender, replication="true")
    assert e.value.sqlstate == "28000"
    proxy.wire(db, walsender, replication="database").close()
