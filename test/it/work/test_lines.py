"""qbouncer-work --lines: a command that stays, and reads and writes lines of JSON. Whatever it writes, and however it
ends, each job is answered once, and no answer is taken for that of another job."""

import hashlib
import json
import os
import re
import shutil
import signal
import sys

import pytest

from proxy import wait_for
from queuetest import q, shared, shared_db, shared_proxy, tag  # noqa: F401
from tree import ROOT
from worktest import error_of, gone, job, push, work, work_at, work_program  # noqa: F401

HEAD = """
import json, os, sys, time
def jobs():
    with open("pids", "a") as f:
        print(os.getpid(), file=f)
    for line in sys.stdin:
        yield json.loads(line)
def say(text):
    sys.stdout.write(text); sys.stdout.flush()
def answer(**a):
    say(json.dumps(a) + "\\n")
"""


def python(text):
    return [sys.executable, "-ES", "-c", HEAD + text]  # it begins sooner without the installed packages


def pids(w):
    return w.file("pids").split()


def test_a_job_is_a_line(q, work):
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    first = push(q, '{"to": "a\\n\u00e4"}', " KEY 'k\"' GROUP 'g' PRIORITY 3 HEADERS '{\"h\": 1}'")
    second = push(q, "null")
    w = work(python("""
for j in jobs():
    answer(done={"seen": j, "env": sorted(k for k in os.environ if k.startswith("QUEUE_"))})
"""), "--lines", "--drain")
    w.wait()
    assert len(pids(w)) == 1
    got = json.loads(job(q, first)["result"])
    assert got["env"] == ["QUEUE_NAME"]
    seen = got["seen"]
    assert seen.pop("token").startswith(first + "-") and seen.pop("pushed_at")
    assert seen == dict(job=first, id=int(first.split("-")[1]), queue="mail", attempt=1, key='k"', group="g", priority=3,
                        headers={"h": 1}, payload={"to": "a\n\u00e4"})
    seen = json.loads(job(q, second)["result"])["seen"]
    assert (seen["key"], seen["headers"], seen["payload"]) == (None, None, None)


@pytest.mark.parametrize("payload, pushed, seen", [
    ("text", 'two\nlines "x"', 'two\nlines "x"'),
    ("bytea", "\\x00ff41", "\\x00ff41"),
])
def test_other_payloads(q, work, payload, pushed, seen):
    tag(q, "QUEUE CREATE files WITH (payload = '%s', retain_done = '1 h')" % payload)
    name = q.rows("QUEUE PUSH files '%s' RETURNING JOB" % pushed)[0]["job"]
    work(python("for j in jobs(): answer(done=j['payload'])"), "--lines", "--drain", queue="files").wait()
    assert json.loads(job(q, name)["result"]) == seen


@pytest.mark.parametrize("answer, state, error, result", [
    ('{"done": null}', "done", None, None),
    (' { "done" : [1, "}"] } ', "done", None, '[1, "}"]'),
    ('{"fail": "no \\u00e4"}', "later", "no \u00e4", None),
    ('{"fail": {"code": 7}}', "later", '{"code": 7}', None),
    ('{"fail": "never", "final": true}', "dead", "never", None),
    ('{"final": false, "retry": null, "fail": "x"}', "later", "x", None),
    ('{"fail": "soon", "retry": "1 h"}', "later", "soon", None),
    ('{"release": "1 h"}', "later", None, None),
    # What is no answer fails the job.
    ('', "later", 'the command answered what is no answer: ""', None),
    ('done', "later", 'the command answered what is no answer: "done"', None),
    ('{"done": 1, "fail": "x"}', "later", 'the command answered what is no answer: "{\\"done\\": 1, \\"fail\\": \\"x\\"}"',
     None),
    ('{"fail": "x", "rety": "5s"}', "later", "no answer", None),
    ('{"fail": "x", "retry": 5}', "later", "no answer", None),
    ('{"fail": "x", "retry": "5s", "final": true}', "later", "no answer", None),
    ('{"done": 1, "final": true}', "later", "no answer", None),
    ('{"progress": 1, "done": 1}', "later", "no answer", None),
    ('{"progress": 1, "retry": "5s"}', "later", "no answer", None),
    ('{"done": 1} {"done": 1}', "later", "no answer", None),
    ('{"done": "\\u0000"}', "later", "\\u0000 cannot be converted to text", None),
    ('{"done": nonsense}', "later", "invalid input syntax for type json", None),
    ('{"fail": "x", "retry": "when?"}', "later", "when?", None),
    ('{"release": "when?"}', "later", "when?", None),
    ('{"fail": "' + "x" * 20000 + '"}', "later", "xxx", None),
], ids=range(23))
def test_answers(q, work, answer, state, error, result):
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h', retry = 'fixed 1 h')")
    name = push(q)
    work(python("for j in jobs(): say(%r)" % (answer + "\n")), "--lines", "--once").wait()
    got = job(q, name)
    assert (got["state"], got["result"]) == (state, result), got
    assert got["error"] == error or error is not None and error in got["error"], got


def test_progress(q, work):
    """It is shown while the job goes on; the answer that follows is that of the job."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q)
    w = work(python("""
for j in jobs():
    for i in range(3):
        answer(progress={"pages": i})
        while not os.path.exists("go%d" % i):
            time.sleep(0.01)
    say('{"progress": 8}\\n{"progress": "nearly"}\\n{"done": 7}\\n')
"""), "--lines", "--drain")
    for i in range(3):
        wait_for(lambda: job(q, name)["progress"] == '{"pages": %d}' % i, "the progress")
        assert job(q, name)["state"] == "leased"
        open(os.path.join(w.folder, "go%d" % i), "w", encoding="utf-8").close()
    w.wait()
    got = job(q, name)
    assert (got["state"], got["result"], got["progress"]) == ("done", "7", '"nearly"') and len(pids(w)) == 1


def test_much_progress(q, work):
    """More than the pipe holds, and faster than the server takes it: the last one counts, and the job is not lost."""
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1 h')")
    names = [push(q, i) for i in range(2)]
    w = work(python("""
for j in jobs():
    for i in range(100000):
        say('{"progress": %d}\\n' % i)
    answer(fail="no")
"""), "--lines", "--drain")
    w.wait()
    for name in names:
        assert (error_of(q, name), job(q, name)["progress"]) == ("no", "99999")
    assert len(pids(w)) == 1


@pytest.mark.parametrize("line, text", [
    ('{"progress": nonsense}', "the progress is not stored: ERROR:  22"),
    ('{"progress": "\\u0000"}', "the progress is not stored: ERROR:  22"),
])
def test_progress_that_is_none(q, work, line, text):
    """The job goes on: it is told on standard error."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q)
    w = work(python("for j in jobs():\n    say(%r)\n    answer(done=1)" % (line + "\n")), "--lines", "--drain")
    assert text in w.wait() and job(q, name)["state"] == "done"


def test_progress_of_a_job_that_is_cancelled(q, work):
    """It learns so, without a look."""
    name = push(q)
    w = work(python("""
for j in jobs():
    open("begun", "w").write("x\\n")
    while True:
        answer(progress=1)
        time.sleep(0.02)
"""), "--lines", "--check", "0")
    w.file("begun")
    tag(q, "QUEUE CANCEL '%s'" % name)
    wait_for(lambda: gone(pids(w)[0]), "the end of the command")
    w.signal(signal.SIGTERM)
    assert "is cancelled" in w.wait()


def test_progress_and_no_answer(q, work):
    """What it has said last is known, and the job fails."""
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1 h')")
    name = push(q)
    work(python("for j in jobs():\n    answer(progress=5)\n    os._exit(3)"), "--lines", "--once").wait()
    assert (error_of(q, name), job(q, name)["progress"]) == ("exit status 3 without an answer", "5")


def test_garbage(q, work):
    """Bytes of any kind: each job fails once with what it was, and nothing is left."""
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1 h')")
    names = [push(q, i) for i in range(12)]
    w = work(python("""
import random
for j in jobs():
    rnd = random.Random(j["payload"])
    data = bytes(rnd.randrange(256) for _ in range(rnd.choice((1, 50, 100000)))) + b"\\n"
    try:
        os.write(1, data)
    except BrokenPipeError:
        pass
    time.sleep(1000)
"""), "--lines", "--drain", "-c", "2", "--result-max", "5000")
    w.wait()
    for name in names:
        assert "answer" in error_of(q, name)
    assert all(gone(p) for p in pids(w)) and len(pids(w)) == 12


def test_release(q, work):
    """The attempt does not count."""
    name = push(q)
    w = work(python("""
for j in jobs():
    answer(**({"done": None} if os.path.exists("again") else {"release": None}))
    open("again", "w").close()
    assert j["attempt"] == 1
"""), "--lines")
    wait_for(lambda: q.rows("QUEUE PEEK mail") == [], "the job to end")
    w.signal(signal.SIGTERM)
    w.wait()
    assert len(pids(w)) == 1 and name


def test_retry(q, work):
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1 h')")
    push(q)
    w = work(python("""
for j in jobs():
    answer(**({"done": None} if j["attempt"] == 2 else {"fail": "x", "retry": "1 ms"}))
"""), "--lines")
    wait_for(lambda: q.rows("QUEUE PEEK mail") == [], "the job to end")
    w.signal(signal.SIGTERM)
    w.wait()


@pytest.mark.parametrize("how, error", [
    ("os._exit(3)", "exit status 3 without an answer: begun"),
    ("os._exit(0)", "exit status 0 without an answer: begun"),
    ("os.kill(os.getpid(), 11)", "ended by signal 11 (Segmentation fault) without an answer: begun"),
    ("say('{\"done\"'); os._exit(0)", "exit status 0 in the middle of an answer: begun"),
    ("say('{\"done\": 1'); time.sleep(1000)", "timed out after 3 s: begun"),
    ("time.sleep(1000)", "timed out after 3 s: begun"),
    ("os.close(1); time.sleep(1000)", "ended by signal 9 (Killed) without an answer: begun"),
    ("say('x' * 100000000)", "the command's answer is longer than 5000 bytes"),
    ("say('\\n' * 100000000)", 'the command answered what is no answer: ""'),
    ("say('\\0\\n'); time.sleep(1000)", 'the command answered what is no answer: "\ufffd"'),
], ids=range(10))
def test_no_answer(q, work, how, error):
    """The job fails, and the next one has a command of its own."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h', retry = 'fixed 1 h')")
    bad, good = push(q, '"bad"'), push(q, '"good"')
    w = work(python("""
for j in jobs():
    if j["payload"] == "bad":
        print("begun", file=sys.stderr, flush=True)
        %s
    answer(done=j["payload"])
""" % how), "--lines", "--drain", "--timeout", "3" if "timed out" in error else "60", "--result-max", "5000")
    w.wait()
    assert error_of(q, bad) == error
    assert (job(q, good)["state"], job(q, good)["result"]) == ("done", '"good"')
    assert len(pids(w)) == 2 and all(gone(p) for p in pids(w))


def test_cannot_be_run(q, work):
    name = push(q)
    work(["./not-there"], "--lines", "--once").wait()
    assert error_of(q, name).startswith("exit status 127 without an answer: qbouncer-work: cannot run")


@pytest.mark.parametrize("closed", ["0", "1"])
def test_a_pipe_is_closed(q, work, closed):
    """It can no more be asked, or answer: it is ended, and its job fails before the timeout."""
    tag(q, "QUEUE ALTER mail SET (retry = 'fixed 1 h')")
    name = push(q, json.dumps("x" * 1000000))
    w = work(python("""
os.close(%s)
open("pids", "a").write("%%d\\n" %% os.getpid())
time.sleep(1000)
""" % closed), "--lines", "--once")
    w.wait()
    assert error_of(q, name) == "ended by signal 9 (Killed) without an answer"


def test_more_than_an_answer(q, work):
    """The second line is not the answer of the next job."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    names = [push(q, i) for i in range(3)]
    w = work(python("""
for j in jobs():
    say('{"done": %d}\\n{"done": "wrong"}\\n' % j["payload"])
"""), "--lines", "--drain")
    w.wait()
    assert [job(q, n)["result"] for n in names] == ["0", "1", "2"]


def test_unasked(q, work):
    """So with what is written while there is no job."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    first = push(q, 1)
    w = work(python("""
for j in jobs():
    answer(done=j["payload"])
    if j["payload"] == 1:
        while not os.path.exists("go"):
            time.sleep(0.01)
        answer(done="wrong")
"""), "--lines")
    wait_for(lambda: job(q, first)["state"] == "done", "the first job")
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    wait_for(lambda: "without being asked" in w.text(), "it to be noticed")
    second = push(q, 2)
    wait_for(lambda: job(q, second)["state"] == "done", "the second job")
    w.signal(signal.SIGTERM)
    w.wait()
    assert job(q, second)["result"] == "2" and len(pids(w)) == 2


def test_ends_between_two_jobs(q, work):
    """A command may leave after some jobs: one that it was given and did not read is for the next one, without an
    attempt."""
    for i in range(8):
        push(q, i)
    w = work(["sh", "-c", """
echo $$ >>pids
read -r line
echo "$line" | sed 's/.*"attempt": \\([0-9]*\\).*"payload": \\([0-9]*\\).*/\\2 \\1/' >>jobs
echo '{"done": null}'
sleep 0.02
"""], "--lines", "--drain")
    w.wait()
    assert sorted(w.file("jobs").split("\n")) == ["%d 1" % i for i in range(8)]
    assert len(pids(w)) == 8 and q.rows("QUEUE PEEK mail") == []


def test_many_jobs(q, work):
    """One command for each slot."""
    tag(q, "QUEUE PUSH mail SELECT to_jsonb(i) FROM generate_series(1, 500) AS i")
    w = work(python("""
for j in jobs():
    open("jobs", "a").write("%s\\n" % j["payload"])
    answer(done=None)
"""), "--lines", "--drain", "-c", "3")
    w.wait()
    assert sorted(map(int, w.file("jobs").split())) == list(range(1, 501))
    assert len(pids(w)) <= 3


@pytest.mark.parametrize("language, page", [("python", "work.md"), ("sh", "work.md"), ("python3", "qbouncer-work.1"),
                                            ("sh", "qbouncer-work.1")])
def test_examples(q, work, tmp_path, language, page):
    """Those of the documentation, as they are there."""
    if language == "sh" and not shutil.which("jq"):
        pytest.skip("jq is not installed")
    with open(os.path.join(ROOT, "doc", page), encoding="utf-8") as f:
        text = f.read()
    if page.endswith(".1"):
        text = text[text.index("With\n.BR \\-\\-lines ,"):].replace("\\-", "-").replace("\\e", "\\")
        (script,) = re.findall(r"^#!\S*(?: |/)%s\n(.*?)(?=^$|^\.fi$)" % language, text, re.S | re.M)
    else:
        (script,) = re.findall(r"^```%s\n(.*?)^```$" % language, text[text.index("## --lines"):], re.S | re.M)
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    (tmp_path / "abc").write_text("abc", encoding="utf-8")
    there, not_there = push(q, json.dumps({"file": str(tmp_path / "abc")})), push(q, '{"file": "/not there"}')
    work(script if language == "sh" else [sys.executable, "-c", script], "--lines", "--drain").wait()
    assert json.loads(job(q, there)["result"]) == {"sha256": hashlib.sha256(b"abc").hexdigest()}
    assert job(q, not_there)["state"] == "later", job(q, not_there)


@pytest.mark.parametrize("busy", [True, False])
def test_told_to_end(q, work, busy):
    """Its job may finish; then it reads the end of its input and ends by itself."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q)
    w = work(python("""
for j in jobs():
    open("begun", "w").write("x\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
    answer(done=None)
open("end", "w").write("orderly\\n")
"""), "--lines")
    w.file("begun")
    if busy:
        w.signal(signal.SIGTERM)
    open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
    if not busy:
        wait_for(lambda: job(q, name)["state"] == "done", "the job to end")
        w.signal(signal.SIGTERM)
    w.wait()
    assert job(q, name)["state"] == "done" and w.file("end") == "orderly"


@pytest.mark.parametrize("how", ["hangs", "answers"])
def test_told_to_end_now(q, work, how):
    """It has SIGTERM: its job is given back, unless it still answers."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q)
    w = work(python("""
import signal
if "%s" == "answers":
    signal.signal(signal.SIGTERM, lambda *_: (answer(done="late"), os._exit(1)))
for j in jobs():
    open("begun", "w").write("x\\n")
    time.sleep(1000)
""" % how), "--lines")
    w.file("begun")
    w.signal(signal.SIGTERM)
    w.signal(signal.SIGINT)
    w.wait()
    got = job(q, name)
    assert (got["state"], got["failures"], got["result"]) == (
        ("done", "0", '"late"') if how == "answers" else ("ready", "0", None))
    assert gone(pids(w)[0])


def test_stays_after_its_input(q, work):
    """One that does not end by itself has --grace, and again, as any other."""
    push(q)
    w = work(python("""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for j in jobs():
    answer(done=None)
time.sleep(1000)
"""), "--lines", "--drain", "--grace", "0.2")
    w.wait()
    assert gone(pids(w)[0])


def test_cancel(q, work):
    """The command has to end, and the next job has another one."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")
    name = push(q, 1)
    w = work(python("""
for j in jobs():
    open("begun", "w").write("x\\n")
    while j["payload"] == 1:
        time.sleep(0.01)
    answer(done=None)
"""), "--lines", "--check", "0.1")
    w.file("begun")
    tag(q, "QUEUE CANCEL '%s'" % name)
    second = push(q, 2)
    wait_for(lambda: job(q, second)["state"] == "done", "the next job")
    w.signal(signal.SIGTERM)
    w.wait()
    assert len(pids(w)) == 2


def test_connection_is_cut(q, work, qproxy):
    """With a job its command is ended; without one it stays."""
    tag(q, "QUEUE ALTER mail SET (retain_done = '1 h')")

    def cut():
        def connected():
            return [c for c in qproxy.console("SHOW CLIENTS") if c["application_name"] == "qbouncer-work"]
        qproxy.console("KILL_CLIENT %s" % wait_for(connected, "its connection")[0]["ptr"])
    first = push(q, 1)
    w = work(python("""
for j in jobs():
    first = j["payload"] == 2 and not os.path.exists("begun")
    if first:
        open("begun", "w").write("x\\n")
    while first:
        time.sleep(0.01)
    answer(done=None)
"""), "--lines")
    wait_for(lambda: job(q, first)["state"] == "done", "the first job")
    cut()
    wait_for(lambda: len(w.text()) > 0, "it to be noticed")
    second = push(q, 2)
    w.file("begun")
    assert len(pids(w)) == 1
    cut()
    wait_for(lambda: job(q, second)["state"] == "done", "its second attempt")
    w.signal(signal.SIGTERM)
    w.wait()
    assert len(pids(w)) == 2


def test_an_answer_that_could_not_be_told(qbouncer, db, direct, work_at):
    """The proxy was gone before DONE: it is not the answer of the next attempt, which has none."""
    proxy = qbouncer(queue_heartbeat="20ms", queue_orphan_grace="200ms")
    with proxy.connect(db) as conn:
        conn.execute("QUEUE CREATE mail WITH (retain_done = '1 h', retry = 'fixed 1 h')")
        conn.execute("QUEUE PUSH mail '1'")
    w = work_at(proxy.dsn(db), python("""
for j in jobs():
    if os.path.exists("said"):
        os._exit(3)
    open("begun", "w").write("x\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
    answer(done="of the first")
    open("said", "w").write("x\\n")
"""), "--lines", "--check", "0.1")
    w.file("begun")
    with direct.transaction():
        direct.execute("LOCK TABLE %s" % direct.execute("SELECT queue._table('mail')").fetchone()[0])
        wait_for(lambda: direct.execute("SELECT 1 FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) "
                                        "WHERE NOT l.granted AND a.query ~ 'takes FROM queue.job'").fetchall(),
                 "a look that does not end")
        open(os.path.join(w.folder, "go"), "w", encoding="utf-8").close()
        w.file("said")
        proxy.kill()
        wait_for(lambda: "qbouncer-work[1]: " in w.text(), "the end of the connection")
    proxy.start()
    with proxy.connect(db) as conn:
        wait_for(lambda: "exit status 3 without an answer" in str(conn.execute("QUEUE ERRORS mail").fetchall()),
                 "the second attempt to fail")
    w.signal(signal.SIGTERM)
    w.wait()
