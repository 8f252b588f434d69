"""Fixtures: one Postgres per run, a database per test, proxies that must end well.

    def test_it(proxy, db):                         # defaults of proxy.py
    def test_it(qbouncer, db):
        p = qbouncer(pool_mode="session")           # keys of the ini

    @pytest.mark.bare                               # the schema is not in the database
    def test_it(proxy, db):

The program is $QB_BUILD/qbouncer; without QB_BUILD that of build/asan, build/release or the
current directory.
"""

import os
import shutil
import sys

import psycopg
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "test", "lib"))
pytest.register_assert_rewrite("metrics", "queuetest", "verbways")

from pgcluster import Cluster  # noqa: E402
from pki import Authority  # noqa: E402
from proxy import Proxy, runnable  # noqa: E402
from schema import install_script  # noqa: E402

# Logins at the server that are not "trust", by user name.
HBA = [
    "host all s_scram 127.0.0.1/32 scram-sha-256",
    "host all s_md5 127.0.0.1/32 md5",
    "host all s_plain 127.0.0.1/32 password",
    "host all s_none 127.0.0.1/32 reject",
]

ROLES = """
CREATE ROLE app LOGIN;
CREATE ROLE other LOGIN;
CREATE ROLE admin LOGIN;
CREATE ROLE stats LOGIN;
CREATE ROLE s_none LOGIN;
SET password_encryption = 'scram-sha-256';
CREATE ROLE s_scram LOGIN PASSWORD 'secret of scram';
CREATE ROLE s_plain LOGIN PASSWORD 'secret of plain';
SET password_encryption = 'md5';
CREATE ROLE s_md5 LOGIN PASSWORD 'secret of md5';
"""


def pytest_configure(config):
    config.addinivalue_line("markers", "bare: its database is without the schema of queues")


def find_program():
    told = os.environ.get("QB_BUILD")
    places = [told] if told else [os.path.join(ROOT, "build", "asan"),
                                  os.path.join(ROOT, "build", "release"), ROOT]
    for place in places:
        path = os.path.join(place, "qbouncer")
        if os.access(path, os.X_OK):
            return path
    raise pytest.UsageError("no program qbouncer in " + ", ".join(places))


@pytest.fixture(scope="session")
def program():
    with runnable(find_program()) as copy:
        yield copy


@pytest.fixture(scope="session")
def cluster():
    with Cluster(hba=HBA) as pg:
        pg.psql(ROLES)
        yield pg


def installed(cluster):
    """The name of a database of app's in which the schema is, as a template: made once."""
    if not getattr(cluster, "installed", None):
        name = cluster.createdb("installed", owner="app")
        with psycopg.connect(cluster.dsn(name, "app"), autocommit=True) as conn:
            assert not conn.pgconn.exec_(install_script().encode()).error_message
        cluster.installed = name
    return cluster.installed


@pytest.fixture
def db(request, cluster):
    """A fresh database that belongs to the role app: its name. The schema is in it, unless the test is marked
    `bare`."""
    bare = request.node.get_closest_marker("bare")
    name = cluster.createdb(owner="app", template="template1" if bare else installed(cluster))
    yield name
    cluster.dropdb(name)


@pytest.fixture
def direct(cluster, db):
    """A psycopg connection to the database that does not pass through the proxy."""
    with psycopg.connect(cluster.dsn(db), autocommit=True) as conn:
        yield conn


@pytest.fixture
def qbouncer(request, program, cluster, db):
    """Makes proxies: qbouncer(key=value, ...) starts one. At the end each must exit with 0 and
    without a report of a sanitizer."""
    made = []
    request.node.proxies = made

    def make(start=True, **options):
        proxy = Proxy(program, cluster, **options)
        made.append(proxy)
        return proxy.start() if start else proxy

    yield make
    problems = []
    for proxy in made:
        try:
            proxy.stop()
        except AssertionError as e:
            problems.append(str(e))
        proxy.final_log = proxy.log_text()
        proxy.remove()
    assert not problems, "\n".join(problems)


@pytest.fixture
def freed_at_once(monkeypatch):
    """What a proxy has freed is not held back by the sanitizers: its memory is measured."""
    monkeypatch.setenv("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "")
                       + ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0")


@pytest.fixture
def proxy(qbouncer):
    return qbouncer()


@pytest.fixture(scope="module")
def pki():
    """Two authorities; of the first: a server, a server for addresses, two clients."""
    class Pki:
        pass
    folder = "/tmp/qbpki%d" % os.getpid()
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    p = Pki()
    p.folder = folder
    p.ca = Authority(folder, "root")
    p.other_ca = Authority(folder, "other_root")
    p.server = p.ca.issue("server", san="DNS:localhost")
    p.app = p.ca.issue("app", cn="app")
    p.stranger = p.other_ca.issue("stranger", cn="app")
    yield p
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """The logs of the proxies go with a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for n, proxy in enumerate(getattr(item, "proxies", [])):
            text = proxy.log_text() or getattr(proxy, "final_log", "")
            report.sections.append(("log of qbouncer %d" % (n + 1), text[-8000:]))
