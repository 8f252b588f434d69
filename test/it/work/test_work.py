"""qbouncer-work: a command for each job. How each way in which a command ends becomes DONE, FAIL or RELEASE, and that
no command goes on when its job is no longer its own."""

import json
import os
import signal
import socket
import subprocess

import psycopg
import pytest

from proxy import USERS, wait_for
from queuetest import q, shared, shared_db, shared_proxy, tag  # noqa: F401
from worktest import error_of, gone, job, push, work, work_at, work_program  # noqa: F401


def test_done(q, work):
    name = push(q, '{"to": "a"}', " KEY 'k' GROUP 'g' PRIORITY 3 HEADERS '{\"h\": 1}'")
    w = work("cat >in; env | grep ^QUEUE_ | sort >env", "--drain", "-n", "me")
    w.wait()
    with open(os.path.join(w.folder, "in"), encoding="utf-8") as f:
        assert json.load(f) == {"to": "a"}
    with open(os.path.join(w.folder, "env"), encoding="utf-8") as f:
        env = dict(line.rstrip("\n").split("=", 1) for line in f)
    assert env.pop("QUEUE_TOKEN").startswith(name + "-") and env.pop("QUEUE_PUSHED_AT")
    assert env == dict(QUEUE_JOB=name, QUEUE_ID=name.split("-")[1], QUEUE_NAME="mail", QUEUE_ATTEMPT="1", QUEUE_KEY="k",
                       QUEUE_GROUP="g", QUEUE_PRIORITY="3", QUEUE_HEADERS='{"h": 1}')
    assert q.rows("QUEUE PEEK mail") == []


def test_drain_and_once(q, work):
    for i in range(5):
        push(q, i)
    work("echo x >>../n", "--once").wait()
    assert len(q.rows("QUEUE PEEK mail LIMIT 10")) == 4
    work("echo x >>../n", "--drain", "-c", "3").wait()
    assert q.rows("QUEUE PEEK mail LIMIT 10") == []


@pytest.mark.parametrize("script, state, text", [
    ("echo no such address >&2; exit 65", "dead", "exit status 65: no such address"),
    ("echo later >&2; exit 75", "later", "exit status 75: later"),
    ("exit 1", "later", "exit status 1"),
    ("kill -SEGV $$", "later", "ended by signal 11 (Segmentation fault)"),
    (["./not-there"], "later", 'exit status 127: qbouncer-work: cannot run "./not-there": No such file or directory'),
])
def test_failed(q, work, script, state, text):
    name = push(q)
    work(script, "--once").wait()
    assert error_of(q, name, state) == text


def test_payload_of_bytes(q, work):
    tag(q, "QUEUE CREATE files WITH (payload = 'bytea')")
    tag(q, "QUEUE PUSH files '\\x00ff41'")
    w = work("cat >in", "--once", queue="files")
    w.wait()
    with open(os.path.join(w.folder, "in"), "rb") as f:
        assert f.read() == b"\0\xffA"


def test_a_queue_with_a_strange_name(q, work):
    tag(q, 'QUEUE CREATE "Über mail"')
    tag(q, 'QUEUE PUSH "Über mail" \'1\'')
    work("cat", "--once", queue="Über mail").wait()
    assert q.rows('QUEUE PEEK "Über mail"') == []


@pytest.mark.parametrize("script, result", [
    ("echo '{\"a\": [1]}'", '{"a": [1]}'),
    ("printf 'sent \"it\"\\n\\n'", '"sent \\"it\\""'),
    ("printf 'a\\000b\\377\\001'", '"a\ufffdb\ufffd\\u0001"'),
    ("printf '\"\\\\u0000\"'", '"\\"\\\\u0000\\""'),
    ("true", None),
])
def test_result(q, work, script, result):
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q)
    work(script, "--once", "--result").wait()
    got = job(q, name)
    assert (got["state"], got["result"]) == ("done", result)


def test_result_too_long(q, work):
    name = push(q)
    work("head -c 10000000 /dev/zero", "--once", "--result", "--result-max", "1000").wait()
    assert error_of(q, name) == "the result is longer than 1000 bytes"


def test_a_hundred_megabytes(q, work):
    """On both at once, and no pipe is full for ever. Of stderr the end is kept, in whole characters."""
    name = push(q)
    w = work("head -c 100000000 /dev/zero & yes äöü | head -c 9999999 >&2; echo >&2; wait; echo the end >&2; exit 3", "--once",
             "--result")
    w.wait()
    text = error_of(q, name)
    assert text.startswith("exit status 3: ") and text.endswith("\nthe end") and 7800 < len(text.encode()) <= 8192
    assert set(text[len("exit status 3: "):-len("the end")]) <= set("äöü?\n")


def test_closes_stdin_early(q, work):
    big = json.dumps("x" * 5000000)
    push(q, big)
    w = work("exec <&-; echo closed >closed", "--once")
    w.wait()
    assert q.rows("QUEUE PEEK mail") == []
    push(q, big)
    w = work("wc -c >n", "--once")
    w.wait()
    assert int(w.file("n")) == len(big)


def test_timeout(q, work):
    name = push(q)
    w = work("echo begun >&2; sleep 1000 & wait", "--once", "--timeout", "1.5")
    w.wait()
    assert error_of(q, name) == "timed out after 1.5 s: begun"


def test_ignores_sigterm(q, work):
    """Then it is killed, and with it what it has started."""
    name = push(q)
    w = work("trap '' TERM; sleep 1000 & echo $! >pid; while :; do wait; done", "--once", "--timeout", "1.5", "--grace",
             "0.3")
    w.wait()
    assert error_of(q, name) == "timed out after 1.5 s"
    assert gone(w.file("pid"))


def test_grandchild_holds_the_pipes(q, work):
    """One of the group is killed; one that has left it may live, and nobody waits for it."""
    name = push(q)
    w = work("sleep 1000 & setsid sleep 1001 & echo $! >pid; echo '\"x\"'; exit 0", "--once", "--result")
    w.wait()
    assert job(q, name)["result"] == '"x"'
    pid = int(w.file("pid"))
    if not gone(pid):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end(q, work, qproxy, signo):
    """The running one finishes, the waiting slot ends, nothing else is taken."""
    push(q)
    w = work("echo $$ >pid; until [ -e go ]; do sleep 0.05; done", "-c", "2")
    w.file("pid")

    def connections():
        return len([c for c in qproxy.console("SHOW CLIENTS") if c["application_name"] == "qbouncer-work"])
    wait_for(lambda: connections() == 2, "the slot that waits")
    w.signal(signo)
    wait_for(lambda: connections() == 1, "its end")
    second = push(q)
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    w.wait()
    assert [j["job"] for j in q.rows("QUEUE PEEK mail")] == [second]
    assert job(q, second)["attempt"] == "0"


@pytest.mark.parametrize("how", ["twice", "grace"])
def test_told_to_end_now(q, work, how):
    """The job is given back, and its attempt does not count."""
    name = push(q)
    w = work("echo $$ >pid; sleep 1000 & wait", *(["--grace", "0.3"] if how == "grace" else []))
    pid = w.file("pid")
    w.signal(signal.SIGTERM)
    if how == "twice":
        w.signal(signal.SIGINT)
    w.wait()
    assert gone(pid)
    got = job(q, name)
    assert (got["state"], got["error"], got["failures"]) == ("ready", None, "0")


@pytest.mark.parametrize("code, state", [(0, "done"), (65, "dead"), (1, "ready")])
def test_told_to_end_now_and_says_how_it_went(q, work, code, state):
    """Who still says that the work is done, or cannot be done, is believed; anything else is no failure of the job."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q)
    w = work("trap 'exit %d' TERM; echo $$ >pid; sleep 1000 & wait" % code)
    w.file("pid")
    w.signal(signal.SIGTERM)
    w.signal(signal.SIGINT)
    w.wait()
    got = job(q, name)
    assert (got["state"], got["failures"]) == (state, "1" if state == "dead" else "0"), got


def test_done_after_the_timeout(q, work):
    """It was told to end, so it is not known what its 0 means."""
    name = push(q)
    work("trap 'exit 0' TERM; sleep 1000 & wait", "--once", "--timeout", "1.5").wait()
    assert error_of(q, name) == "timed out after 1.5 s"


def test_killed_itself(q, work):
    """SIGKILL of qbouncer-work: the job is given back by the end of its connection."""
    name = push(q)
    w = work("echo $$ >pid; exec sleep 1000")
    pid = int(w.file("pid"))
    w.p.kill()
    w.p.wait(20)
    wait_for(lambda: job(q, name)["state"] != "leased", "the job to come back")
    os.kill(pid, signal.SIGKILL)


def test_cancel(q, work):
    name = push(q)
    w = work("echo $$ >pid; sleep 1000 & wait", "--check", "0.1")
    pid = w.file("pid")
    tag(q, "QUEUE CANCEL '%s'" % name)
    wait_for(lambda: gone(pid), "the end of the command")
    wait_for(lambda: q.rows("QUEUE PEEK mail") == [], "the end of the job")
    push(q)
    wait_for(lambda: w.file("pid") != pid, "the next job")
    w.signal(signal.SIGTERM)
    w.signal(signal.SIGINT)
    w.wait()


def test_connection_is_cut(q, work, qproxy, db):
    """Somebody else gets the job, and the command that had it is ended; then it connects again."""
    name = push(q)
    w = work("echo $$ >pid; sleep 1000 & wait", "-n", "first")
    pid = w.file("pid")
    clients = qproxy.console("SHOW CLIENTS")
    (one,) = [c for c in clients if c["application_name"] == "qbouncer-work"]
    qproxy.console("KILL_CLIENT %s" % one["ptr"])
    wait_for(lambda: gone(pid), "the end of the command")
    again = wait_for(lambda: w.file("pid") != pid and w.file("pid"), "the job, once more")
    assert job(q, name)["takes"] == "2"
    w.signal(signal.SIGTERM)
    w.signal(signal.SIGINT)
    w.wait()
    assert gone(again)


def test_cancelled_before_done(q, work):
    """DONE is refused, and the next job comes."""
    first = push(q)
    w = work("cat >>jobs; echo >>jobs; until [ -e go ]; do sleep 0.05; done", "--check", "0")
    wait_for(lambda: w.file("jobs") == "1", "the first job")
    tag(q, "QUEUE CANCEL '%s'" % first)
    second = push(q, 2)
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    wait_for(lambda: q.rows("QUEUE PEEK mail") == [], "both to end")
    w.signal(signal.SIGTERM)
    text = w.wait()
    assert w.file("jobs") == "1\n2" and "job %s: ERROR" % first in text and second not in text, text


def test_lost_before_done(q, work):
    """Its lease was ended meanwhile: DONE is refused, and the job comes once more."""
    push(q)
    w = work("echo $QUEUE_TOKEN >>tokens; until [ -e go ]; do sleep 0.05; done", "--check", "0")
    token = w.file("tokens")
    tag(q, "QUEUE RELEASE '%s'" % token)
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    wait_for(lambda: q.rows("QUEUE PEEK mail") == [], "the job to end")
    w.signal(signal.SIGTERM)
    assert "the lease of job" in w.wait() and len(set(w.file("tokens").split())) == 2


def test_refused_done(q, work):
    """A job that cannot be ended is not taken for ever: it fails with what was said of its DONE."""
    name = push(q)
    work("head -c 1000000 /dev/zero | tr '\\0' '['", "--once", "--result").wait()
    assert "stack depth limit exceeded" in error_of(q, name)


def test_an_error_that_cannot_be_stored(qproxy, cluster, work_at):
    """The database has no such character: FAIL without it, or the job would come for ever."""
    cluster.psql("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0 OWNER app")
    with qproxy.connect("latin") as conn:
        conn.execute("QUEUE CREATE mail")
        conn.execute("QUEUE PUSH mail '1'")
        w = work_at(qproxy.dsn("latin"), "echo '中' >&2; exit 1", "--once")
        w.wait()
        (row,) = conn.execute("QUEUE ERRORS mail").fetchall()
        assert row[0] == "qbouncer-work could not store why; its standard error tells", row
    cluster.dropdb("latin")


def test_two_workers(q, work):
    """Of one queue: each job runs once."""
    for i in range(60):
        push(q, i)
    both = [work('echo "$(cat)" >>../n', "--drain", "-c", "2") for _ in range(2)]
    for w in both:
        w.wait()
    with open(os.path.join(os.path.dirname(both[0].folder), "n"), encoding="utf-8") as f:
        assert sorted(map(int, f.read().split())) == list(range(60))
    assert q.rows("QUEUE PEEK mail") == []


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_the_proxy_is_restarted(qbouncer, work_at, how, db):
    """The command that had the job is ended; with the new proxy everything goes on, and nothing is lost."""
    proxy = qbouncer(queue_heartbeat="20ms", queue_orphan_grace="200ms")
    with proxy.connect(db) as conn:
        conn.execute("QUEUE CREATE mail")
        conn.execute("QUEUE PUSH mail '1'")
        w = work_at(proxy.dsn(db), "echo $$ >>pid; [ -e go ] || sleep 1000 & wait")
        pid = w.file("pid")
    if how == "ended":
        proxy.stop()
    else:
        proxy.kill()
    wait_for(lambda: gone(pid), "the end of the command")
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    proxy.start()
    with proxy.connect(db) as conn:
        conn.execute("QUEUE PUSH mail '2'")
        wait_for(lambda: conn.execute("QUEUE PEEK mail").fetchall() == [], "both jobs to end")
    w.signal(signal.SIGTERM)
    w.wait()
    assert len(w.file("pid").split()) == 3


def test_looks_do_not_read_the_payload(q, work, qproxy):
    name = push(q, json.dumps("x" * 3000000))
    w = work("echo >begun; until [ -e go ]; do sleep 0.05; done", "--check", "0.05")
    w.file("begun")

    def sent():
        return sum(int(s["total_sent"]) for s in qproxy.console("SHOW STATS"))

    def queries():
        return sum(int(s["total_query_count"]) for s in qproxy.console("SHOW STATS"))
    bytes_before, before = sent(), queries()
    wait_for(lambda: queries() > before + 5, "some looks")
    assert sent() - bytes_before < 1000000
    tag(q, "QUEUE CANCEL '%s'" % name)
    wait_for(lambda: "cancelled" in w.text(), "a look that finds it cancelled")
    w.signal(signal.SIGTERM)
    w.wait()


@pytest.mark.parametrize("payload", ["text", "bytea"])
def test_cancel_of_other_payloads(q, work, payload):
    tag(q, "QUEUE CREATE files WITH (payload = '%s')" % payload)
    name = q.rows("QUEUE PUSH files 'x' RETURNING JOB")[0]["job"]
    w = work("echo >begun; sleep 1000 & wait", "--check", "0.1", "--once", queue="files")
    w.file("begun")
    tag(q, "QUEUE CANCEL '%s'" % name)
    assert "is cancelled" in w.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("option", [None, "--once", "--drain"])
def test_nobody_there(work_at, option):
    """A wrong port at the start: it says so and ends."""
    w = work_at("postgres://app@127.0.0.1:%d/x" % free_port(), "true", *([option] if option else []))
    text = w.wait(2)
    assert text.count("Connection refused") == 1 and "--wait" in text, text


@pytest.mark.parametrize("option", [None, "--drain"])
def test_waits_for_somebody(work_at, option):
    """Told to wait it tries again for ever."""
    w = work_at("postgres://app@127.0.0.1:%d/x" % free_port(), "true", "--wait", *([option] if option else []))
    wait_for(lambda: w.text().count("Connection refused") >= 5, "it to try again")
    w.signal(signal.SIGTERM)
    w.wait()


def test_nothing_answers_at_the_start(work_at):
    """Somebody listens there, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        text = work_at("postgres://app@127.0.0.1:%d/x?connect_timeout=1" % port, "true").wait(2)
    assert "no answer from 127.0.0.1, port %d, for 1 s" % port in text, text


def test_another_protocol_at_the_start(work_at):
    """What answers there is no PostgreSQL."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        w = work_at("postgres://app@127.0.0.1:%d/x?sslmode=disable&gssencmode=disable" % s.getsockname()[1], "true")
        client, _ = s.accept()
        client.recv(1000)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        client.close()
        assert "--wait" in w.wait(2)


def test_a_server_that_is_full(qbouncer, direct, db, work_at):
    """It answers, and cannot serve now: that goes away by itself."""
    proxy = qbouncer(max_client_conn=1)
    with proxy.connect(db) as conn:
        conn.execute("QUEUE CREATE mail")
        conn.execute("QUEUE PUSH mail '1'")
        w = work_at(proxy.dsn(db), "true")
        wait_for(lambda: "no more connections allowed" in w.text(), "it to be refused")
    wait_for(lambda: direct.execute("SELECT count(*) FROM queue.q_mail").fetchone()[0] == 0, "the job to end")
    w.signal(signal.SIGTERM)
    w.wait()


@pytest.mark.parametrize("busy", [True, False])
def test_a_silent_server(qbouncer, db, work_at, busy):
    """A proxy that is stopped says nothing, and its kernel that it is there: the command is ended, and when the proxy goes
    on so does the worker."""
    proxy = qbouncer()
    with proxy.connect(db) as conn:
        conn.execute("QUEUE CREATE mail")
        if busy:
            conn.execute("QUEUE PUSH mail '1'")
        w = work_at(proxy.dsn(db), "echo $$ >>pid; [ -e go ] || sleep 1000 & wait", "--silence", "1.5", "--check", "0.1", "-v")
        if busy:
            pid = w.file("pid")
        else:
            wait_for(lambda: "qbouncer-work" in str(proxy.console("SHOW CLIENTS")), "it to connect")
        proxy.process.send_signal(signal.SIGSTOP)
        try:
            wait_for(lambda: "no answer from 127.0.0.1, port %d, for 1.5 s" % proxy.port in w.text(), "it to be noticed")
            if busy:
                wait_for(lambda: gone(pid), "the end of the command")
            open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
        finally:
            proxy.process.send_signal(signal.SIGCONT)
        conn.execute("QUEUE PUSH mail '2'")
        wait_for(lambda: conn.execute("QUEUE PEEK mail").fetchall() == [], "the jobs to end")
    w.signal(signal.SIGTERM)
    w.wait()


def test_tls(qbouncer, db, pki, work_at):
    """verify-full: who is there is who it says, or nothing is sent. Data of some size, with looks beside."""
    proxy = qbouncer(client_tls_sslmode="require", client_tls_key_file=pki.server.key, client_tls_cert_file=pki.server.cert)
    tls = dict(host="localhost", sslmode="verify-full", sslrootcert=pki.ca.cert)
    big = json.dumps("x" * 3000000)
    with proxy.connect(db, sslmode="require") as conn:
        conn.execute("QUEUE CREATE mail WITH (retain_done = '1 h')")
        job_name = conn.execute("QUEUE PUSH mail '%s' RETURNING JOB" % big).fetchone()[0]
        w = work_at(proxy.dsn(db, **tls), "cat", "--once", "--result", "--result-max", "5000000", "--check", "0.01")
        w.wait()
        (row,) = conn.execute("SELECT state, length(result::text) FROM queue.job('%s')" % job_name).fetchall()
        assert row == ("done", len(big))
        for more, text in ((dict(host="127.0.0.1"), "does not match host name"), (dict(sslrootcert=pki.other_ca.cert), "certificate verify failed")):
            got = work_at(proxy.dsn(db, **dict(tls, **more)), "true").wait(2)
            assert text in got, got


@pytest.mark.parametrize("options", [(), ("--drain",)])
def test_no_such_queue(q, work, options):
    """What will not mend itself ends the program: who waits for it hears of it."""
    text = work("true", *options, queue="not_there").wait(2)
    assert "not_there" in text and "42P01" in text, text


def test_wrong_hold(q, work):
    assert "soon" in work("true", "--hold", "soon").wait(2)


@pytest.mark.parametrize("more, text", [
    (dict(user="nobody_there"), "28P01"),
    (dict(password="wrong"), "28P01"),
    (dict(password=None), "password"),
    (dict(dbname="not_there"), "does not exist"),
])
def test_refused_login(qbouncer, db, work_at, more, text):
    proxy = qbouncer(auth_type="scram-sha-256")
    more = dict(dict(dbname=db, password=USERS["app"]), **more)
    w = work_at(proxy.dsn(more.pop("dbname"), **more), "true")
    assert text in w.wait(2)


def test_a_queue_that_goes(q, work):
    """The slot that waits finds out, and ends the program; what runs in another may finish."""
    push(q)
    w = work("echo $$ >pid; until [ -e go ]; do sleep 0.05; done", "-c", "2")
    w.file("pid")
    tag(q, "QUEUE DROP mail")
    wait_for(lambda: "42P01" in w.text(), "the slot that waits to hear of it")
    assert w.p.poll() is None and not gone(w.file("pid"))
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    w.wait(2)


@pytest.mark.parametrize("arguments, code, text", [
    ([], 1, "-q is missing"),
    (["-q", "x"], 1, "the command is missing"),
    (["-q", "x", "--once", "--drain", "true"], 1, "exclude each other"),
    (["-q", "x", "-c", "0", "true"], 1, 'wrong value of an option: "0"'),
    (["--timeout", "soon", "-q", "x", "true"], 1, "wrong value"),
    (["-d", "postgres://[::1/a", "-q", "x", "true"], 1, "IPv6"),
    (["-d", "hst=x", "-q", "x", "true"], 1, 'invalid connection option "hst"'),
    (["--help"], 0, "--drain"),
    (["--version"], 0, "qbouncer-work 0"),
])
def test_command_line(work_program, arguments, code, text):
    got = subprocess.run([work_program, *arguments], capture_output=True, text=True, timeout=20, check=False)
    assert got.returncode == code and text in got.stdout + got.stderr


def test_a_role_that_may_not(q, qproxy, db, work_at):
    push(q)
    w = work_at(qproxy.dsn(db, user="other"), "true", "--drain")
    assert "permission denied" in w.wait(2)


def test_a_role_with_take_alone(q, qproxy, db, work_at):
    """TAKE is all that a role needs, also to hear that its job is cancelled."""
    tag(q, "QUEUE GRANT TAKE ON mail TO other")
    name = push(q)
    w = work_at(qproxy.dsn(db, user="other"), "echo $$ >pid; sleep 1000 & wait", "--once",
             "--check", "0.1")
    pid = w.file("pid")
    tag(q, "QUEUE CANCEL '%s'" % name)
    wait_for(lambda: gone(pid), "the end of the command")
    w.wait()
