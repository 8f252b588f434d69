"""The ini file as a user of pgbouncer brings it."""

import os
import subprocess

import pytest

from pgwire import types
from tree import ROOT


def check(proxy, text):
    """--check-config of a text: exit code and what it said."""
    path = os.path.join(proxy.dir, "check.ini")
    proxy._put(path, text)
    done = subprocess.run([proxy.program, "--check-config", path], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False,
                          cwd=proxy.dir, preexec_fn=proxy.become)
    return done.returncode, done.stdout


@pytest.fixture
def idle(qbouncer):
    return qbouncer(start=False)


def test_sample(idle):
    with open(os.path.join(ROOT, "etc", "qbouncer.ini"), encoding="utf-8") as f:
        code, out = check(idle, f.read())
    assert code == 0, out


@pytest.mark.parametrize("section", ["qbouncer", "pgbouncer"])
def test_section_names(idle, section):
    code, out = check(idle, "[databases]\nx =\n[%s]\nlisten_port = 7000\n" % section)
    assert code == 0, out


@pytest.mark.parametrize("line", [
    "query_wait_timeout = 30", "query_wait_timeout = 30s", "query_wait_timeout = 5min",
    "query_wait_timeout=0.5", "server_idle_timeout = 1h", "default_pool_size = 10",
    "listen_addr = 127.0.0.1,::1", "pool_mode = transaction", "log_connections = off",
    "admin_users = 'it''s', b", "ignore_startup_parameters = extra_float_digits",
    "; comment", "# comment", "   listen_port   =   7000   ",
])
def test_good_lines(idle, line):
    code, out = check(idle, "[databases]\n* = host=/tmp\n[qbouncer]\n" + line + "\n")
    assert code == 0, out


@pytest.mark.parametrize("line", [
    "query_wait_timeout = soon", "query_wait_timeout = 30 parsecs", "default_pool_size = -1",
    "default_pool_size = many", "pool_mode = sometimes", "auth_type = nonsense", "listen_port = 99999999",
    "no equals sign", "log_connections = perhaps",
])
def test_bad_lines(idle, line):
    code, out = check(idle, "[databases]\n* = host=/tmp\n[qbouncer]\n" + line + "\n")
    assert code != 0
    assert "check.ini:4:" in out


def test_unknown_keys(idle):
    code, out = check(idle, "[databases]\n* = host=/tmp\n[qbouncer]\nno_such_key = 1\n"
                      "resolv_conf = /etc/other\n")
    assert "check.ini:4:" in out and "no_such_key" in out
    assert "check.ini:5:" not in out


@pytest.mark.parametrize("line", [
    "x = host=localhost port=5433 dbname=y user=z password=pw",
    "x = host='/with blanks' password='it''s'", "* = host=/tmp", "\"odd name\" = host=/tmp",
    "x = pool_mode=session pool_size=5 connect_query='SELECT 1'",
])
def test_databases(idle, line):
    code, out = check(idle, "[databases]\n" + line + "\n[qbouncer]\n")
    assert code == 0, out


@pytest.mark.parametrize("line", ["x = host", "x = nosuch=1", "x = port=abc", "x = host='unterminated",
                                  "x = pool_mode=sometimes"])
def test_bad_databases(idle, line):
    code, out = check(idle, "[databases]\n" + line + "\n[qbouncer]\n")
    assert code != 0 and "check.ini:2:" in out, out


def test_include(qbouncer, db):
    proxy = qbouncer(start=False)
    included = os.path.join(proxy.dir, "more.ini")
    proxy._put(included, "[qbouncer]\nquery_wait_timeout = 41\n")
    proxy.sections = "%include " + included + "\n"
    proxy.start()
    assert types(proxy.wire(db).simple("SELECT 1")) == "TDCZ"
    rows = {r["key"]: r["value"] for r in proxy.console("SHOW CONFIG")}
    assert rows["query_wait_timeout"] in ("41", "41s")


def test_include_of_itself(idle):
    path = os.path.join(idle.dir, "check.ini")
    code, out = check(idle, "[databases]\n* = host=/tmp\n[qbouncer]\n%%include %s\n" % path)
    assert code != 0 and "check.ini" in out


def test_users_section(qbouncer, db):
    proxy = qbouncer(sections="\n[users]\napp = pool_mode=session max_user_connections=3\n")
    with proxy.wire(db) as a:
        a.simple("CREATE TEMP TABLE mine (a int)")
        assert types(a.simple("TABLE mine")) == "TCZ"
