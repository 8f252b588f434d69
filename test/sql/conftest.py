"""Fixtures for tests of the SQL functions alone: one cluster per run, a database per test.

    def test_it(db):                # db.conn: a session of app, who owns database and queues
        db.create("mail")
        one, two = db.connect(), db.connect("bob")
"""

import os
import sys

import psycopg
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "test", "lib")]

from pgcluster import Cluster  # noqa: E402
from schema import install_script  # noqa: E402
from sessions import Database  # noqa: E402


@pytest.fixture(scope="session")
def cluster():
    with Cluster() as pg:
        pg.psql("CREATE ROLE app LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE mallory LOGIN")
        pg.createdb("installed", owner="app")
        with psycopg.connect(pg.dsn("installed", "app"), autocommit=True) as conn:
            conn.pgconn.exec_(install_script().encode())
        yield pg


@pytest.fixture
def db(cluster):
    """A database of app's with the schema installed."""
    made = Database(cluster, cluster.createdb(template="installed", owner="app"))
    yield made
    made.close()


@pytest.fixture
def bare(cluster):
    """A database of app's without the schema."""
    made = Database(cluster, cluster.createdb(owner="app"))
    yield made
    made.close()
