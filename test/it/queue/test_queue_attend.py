"""queue = 1 in [databases]: attended from start-up, though no client comes."""

import subprocess

import psycopg
import pytest

from proxy import wait_for
from queuetest import tag

pytestmark = pytest.mark.bare


@pytest.fixture
def scheduled(program, cluster, db):
    """A queue with a schedule that is due each second, made past any proxy: those of its owner, app."""
    script = subprocess.run([program, "--print-schema"], check=True, capture_output=True, text=True).stdout
    with psycopg.connect(cluster.dsn(db, "app"), autocommit=True) as app:
        app.execute(script)
        app.execute("SELECT queue.create('mail')")
        app.execute("SELECT queue.schedule('tick', 'mail', '1'::jsonb, every => '1 s')")
    return db


def entry(cluster, db, more="queue=1"):
    return {db: "host=%s port=%d %s" % (cluster.socket_dir, cluster.port, more)}


def pushed(direct):
    return direct.execute("SELECT count(*) FROM queue.q_mail").fetchone()[0]


def system_there(direct):
    """The role of the system session, or None."""
    row = direct.execute("SELECT usename FROM pg_stat_activity WHERE datname = current_database()"
                         " AND application_name = 'qbouncer system'").fetchone()  # fmt: skip
    return row and row[0]


def test_schedules_without_a_client(qbouncer, cluster, scheduled, direct):
    proxy = qbouncer(databases=entry(cluster, scheduled), queue_user="stats")
    wait_for(lambda: pushed(direct) >= 2, "jobs")
    proxy.wait_log("attended as role stats")
    proxy.wait_log("system session is up")
    # what it does not know of yet it is told
    direct.execute("SELECT queue.unschedule('tick')")
    before = pushed(direct)
    with psycopg.connect(cluster.dsn(scheduled, "app"), autocommit=True) as app:
        app.execute("SELECT queue.schedule('later', 'mail', '2'::jsonb, every => '1 s')")
    wait_for(lambda: pushed(direct) > before, "jobs of the new one")


def test_who_has_no_login_here(qbouncer, cluster, scheduled, direct):
    """What changes rows is done with the owner's login alone, and there is none."""
    direct.execute("GRANT USAGE ON SCHEMA queue TO stats")
    proxy = qbouncer(databases=entry(cluster, scheduled), queue_user="stats", users={"app": "x"}, start=False)
    proxy.users = {"stats": "x"}
    proxy.start()
    proxy.wait_log("schedules of role app are due, and nobody here can log in as this role")
    assert pushed(direct) == 0
    # his password is there
    proxy.users["app"] = "x"
    proxy.reload()
    wait_for(lambda: pushed(direct) > 0, "jobs", timeout=30)


def test_reload(qbouncer, cluster, scheduled, direct):
    proxy = qbouncer(databases=entry(cluster, scheduled, ""), queue_user="stats")
    proxy.databases = entry(cluster, scheduled)
    proxy.reload()
    wait_for(lambda: pushed(direct) >= 1, "jobs")
    proxy.wait_log("system session is up")
    proxy.databases = entry(cluster, scheduled, "")
    proxy.reload()
    proxy.wait_log("no longer attended")
    wait_for(lambda: not system_there(direct), "the end of the session")
    before = direct.execute("SELECT next_at FROM queue.schedules").fetchone()
    wait_for(lambda: direct.execute("SELECT clock_timestamp() > %s::timestamptz + interval '1500 ms'", before).fetchone()[0], "a second")
    assert direct.execute("SELECT next_at FROM queue.schedules").fetchone() == before
    # and once more; and then a client comes, with whom it stays
    proxy.databases = entry(cluster, scheduled)
    proxy.reload()
    have = pushed(direct)
    wait_for(lambda: pushed(direct) > have, "jobs")
    with proxy.wire(scheduled) as c:
        tag(c, "QUEUE PUSH mail '1'")
    proxy.databases = entry(cluster, scheduled, "")
    proxy.reload()
    have = pushed(direct)
    wait_for(lambda: pushed(direct) > have, "jobs")


def test_a_schema_that_comes_later(qbouncer, cluster, db, direct, program):
    """Nothing is installed by itself, and a client's first statement does not wait for that."""
    proxy = qbouncer(databases=entry(cluster, db), queue_user="stats")
    proxy.wait_log("the queue schema is not installed")
    assert direct.execute("SELECT to_regnamespace('queue')").fetchone() == (None,)
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
    wait_for(lambda: pushed(direct) >= 1, "jobs")
    proxy.wait_log("attended as role stats")


@pytest.mark.parametrize("permit", ["0", "1"])
def test_no_superuser(qbouncer, cluster, scheduled, direct, permit):
    proxy = qbouncer(databases=entry(cluster, scheduled), queue_user="postgres", queue_user_superuser=permit)
    if permit == "1":
        wait_for(lambda: pushed(direct) >= 1, "jobs")
    else:
        proxy.wait_log("not attended as role postgres .*: it is a superuser")
        assert pushed(direct) == 0


def test_a_password_of_its_own(qbouncer, cluster, scheduled, direct):
    """queue_password, for a role that auth_file does not have."""
    where = {scheduled: "host=127.0.0.1 port=%d queue=1 queue_user=s_scram queue_password='secret of scram'" % cluster.port}
    proxy = qbouncer(databases=where)
    proxy.wait_log("attended as role s_scram")
    wait_for(lambda: pushed(direct) >= 1, "jobs")


def test_the_server_comes_back(qbouncer, cluster, scheduled, direct):
    proxy = qbouncer(databases=entry(cluster, scheduled), queue_user="stats")
    proxy.wait_log("system session is up")
    direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
    have = pushed(direct)
    wait_for(lambda: pushed(direct) > have, "jobs", timeout=30)
    wait_for(lambda: system_there(direct) == "stats", "the session", timeout=30)


@pytest.mark.parametrize("database, settings, message", [
    ("*", {"queue_user": "stats"}, 'not for "*"'), ("app", {}, 'of database "app" needs "queue_user"'),
])  # fmt: skip
def test_mistakes(qbouncer, database, settings, message):
    proxy = qbouncer(start=False, databases={database: "host=/nowhere queue=1"}, **settings)
    proxy.port = 1
    proxy.write()
    done = subprocess.run([proxy.program, "--check-config", proxy.ini], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)  # fmt: skip
    assert done.returncode != 0 and message in done.stdout


def test_maintained(qbouncer, cluster, scheduled, direct):
    """With the login of the queue's owner, who has not been here; nobody is told that he is missing."""
    with psycopg.connect(cluster.dsn(scheduled, "app"), autocommit=True) as app:
        app.execute("SELECT queue.create('old')")
        app.execute("SELECT queue.push('old', '1'::jsonb, expires => '1 ms')")
    proxy = qbouncer(databases=entry(cluster, scheduled), queue_user="stats")
    wait_for(lambda: direct.execute("SELECT count(*) = 0 FROM queue.q_old").fetchone()[0], "the end of what is expired", timeout=30)
    assert "maintenance leaves out" not in proxy.log_text()


def test_a_wrong_password_holds_up_nobody(qbouncer, cluster, db, direct):
    where = {db: "host=127.0.0.1 port=%d queue=1 queue_user=s_scram queue_password=wrong" % cluster.port}
    proxy = qbouncer(databases=where)
    proxy.wait_log("not attended as role s_scram")
    with proxy.wire(db) as c:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE SCHEDULE tick ON mail EVERY '1 s' PUSH '1'")
    wait_for(lambda: pushed(direct) >= 1, "jobs")
