"""What a stream goes through: its database is dumped and restored, a server dies beside a prepared transaction, a standby is promoted;
and very many who wait. Nothing is skipped, nothing comes twice that was done.
"""

import contextlib
import os
import resource
import select
import subprocess

import psycopg
import pytest

from pgcluster import Cluster, Standby
from proxy import wait_for
from queuetest import error, parked, tag


def make(c, *subs, parallel=1):
    tag(c, "QUEUE CREATE s WITH (kind = stream)")
    for name in subs:
        tag(c, "QUEUE SUBSCRIBE %s TO s WITH (parallel = %d)" % (name, parallel))


def take(c, sub="a", more=""):
    """The token and the payloads."""
    rows = c.rows("QUEUE TAKE s FOR %s %s" % (sub, more))
    return (rows[0]["token"] if rows else None), [int(r["payload"]) for r in rows]


def drain(c, sub="a"):
    got = []
    while True:
        token, payloads = take(c, sub)
        if token is None:
            return got
        got += payloads
        tag(c, "QUEUE DONE '%s'" % token)


def names_are_taken(c):
    """Those of streams and queues, until they are dropped; which leaves as many as there are."""
    for name, kind in (("s", ""), ("s", " WITH (kind = stream)"), ("mail", ""), ("mail", " WITH (kind = stream)")):
        assert error(c, "QUEUE CREATE %s%s" % (name, kind)).sqlstate == "42P07"
    for kind in (" WITH (kind = stream)", ""):
        tag(c, "QUEUE CREATE other" + kind)
        tag(c, "QUEUE DROP other")


def test_a_restored_dump(qbouncer, cluster):
    """Its xids are not those of here: it says so, rather than to skip or repeat anything; then it is made anew."""
    old, new = cluster.createdb(owner="app"), cluster.createdb(owner="app")
    proxy = qbouncer()
    with proxy.wire(old) as c:
        make(c, "a", "b")
        for i in range(3):
            tag(c, "QUEUE PUSH s '%d'" % i)
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE DONE '%s'" % take(c, "a", "LIMIT 1")[0])
        tag(c, "QUEUE FAIL '%s' EVENT 1" % take(c, "b")[0])
        take(c, "a")
    dump = subprocess.run([os.path.join(cluster.bin, "pg_dump"), cluster.dsn(old, "postgres")], check=True, capture_output=True, text=True).stdout
    subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", cluster.dsn(new, "postgres")], input=dump, text=True, check=True,
                   capture_output=True)
    with proxy.wire(new) as c:
        for sql in ("QUEUE PUSH s '4'", "QUEUE TAKE s FOR a", "QUEUE TAKE s FOR b", "QUEUE TAKE s FOR a WAIT '1 min'",
                    "QUEUE SUBSCRIBE d TO s", "QUEUE SEEK a ON s TO BEGINNING", "QUEUE PUSH s (payload) SELECT '5'::jsonb"):
            assert error(c, sql).sqlstate == "55000", sql
        number = c.rows("SELECT number FROM queue.streams")[0]["number"]
        assert [r["payload"] for r in c.rows("SELECT payload FROM queue.e%s_0 ORDER BY id" % number)] == ["0", "1", "2"]
        assert len(c.rows("QUEUE SUBSCRIPTIONS s")) == 2
        names_are_taken(c)
        tag(c, "QUEUE DROP s")
        make(c, "a")
        tag(c, "QUEUE PUSH s '6'")
        assert drain(c) == [6]
    with proxy.wire(old) as c:                      # which has noticed nothing
        tag(c, "QUEUE PUSH s '7'")
        assert drain(c, "b")[-1] == 7


@pytest.fixture(scope="module")
def private():
    """It may be killed."""
    with Cluster({"wal_level": "logical"}) as one:
        one.psql("CREATE ROLE app LOGIN")
        yield one


def proxy_of(qbouncer, one, **settings):
    return qbouncer(databases={"*": "host=%s port=%d" % (one.socket_dir, one.port)}, server_login_retry=0.1, queue_rescan="200ms",
                    queue_heartbeat="20ms", **settings)


def comes_back(proxy, db):
    def works():
        try:
            with proxy.wire(db) as c:
                return tag(c, "SELECT 1")
        except Exception:   # noqa: BLE001: whatever there is to say while it is not there
            return None
    wait_for(works, "the server")


@pytest.mark.parametrize("end", ["COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'"])
def test_a_server_dies_beside_a_prepared_transaction(qbouncer, private, end):
    """Readers go on past it; what it has pushed comes when it is committed, however late, and once."""
    db = private.createdb(owner="app")
    proxy = proxy_of(qbouncer, private)
    with proxy.wire(db) as c:
        make(c, "a", "b")
        tag(c, "BEGIN")
        tag(c, "QUEUE PUSH s '1'")
        tag(c, "PREPARE TRANSACTION 'x'")
        tag(c, "QUEUE PUSH s '2'")
        assert drain(c) == [2]
        tag(c, "QUEUE PUSH s '3'")
        held, events = take(c)                      # out while the server dies
        assert events == [3]
        c.terminate()                               # which gives nothing back
    private.kill()
    private.start()
    comes_back(proxy, db)
    with proxy.wire(db) as c, proxy.wire(db) as w, psycopg.connect(private.dsn(db), autocommit=True) as root:
        tag(c, "QUEUE PUSH s '4'")
        if root.execute("SELECT count(*) FROM queue.deliveries").fetchone()[0]:
            tag(c, "QUEUE DONE '%s'" % held)        # a take commits asynchronously: it may be there or not
        assert drain(c) in ([4], [3, 4])
        assert drain(c, "b") == [2, 3, 4]
        w.query("QUEUE TAKE s FOR b WAIT '30s'")
        parked(w)
        root.execute(end)                           # past the proxy: the next look finds it
        if end.startswith("COMMIT"):
            assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["1"]
            assert drain(c) == [1]
        tag(c, "QUEUE PUSH s '5'")
        assert drain(c) == [5]
        if end.startswith("ROLLBACK"):
            assert [m.text_row[4] for m in w.until("Z") if m.type == "D"] == ["5"]


def test_xids_of_the_next_epoch(qbouncer, private):
    """The 32 bits of Postgres' xids have begun anew since a subscription was there: what counts are all 64."""
    db = private.createdb(owner="app")
    proxy = proxy_of(qbouncer, private)
    with proxy.wire(db) as c:
        make(c, "a", "b")
        for i in (1, 2, 3):
            tag(c, "QUEUE PUSH s '%d'" % i)
        token, events = take(c, "a", "LIMIT 1")     # within its window
        assert events == [1]
        tag(c, "QUEUE DONE '%s'" % token)
        (before,) = c.rows("SELECT max(xid)::text AS xid FROM queue.e%s_0" % c.rows("SELECT number FROM queue.streams")[0]["number"])
        (place,) = [r["position"] for r in c.rows("QUEUE SUBSCRIPTIONS s") if r["subscription"] == "a"]
    private.stop()
    private.reset("-e", "1")
    private.start()
    comes_back(proxy, db)
    with proxy.wire(db) as c:
        tag(c, "BEGIN")
        tag(c, "QUEUE PUSH s '4'")
        with proxy.wire(db) as other:
            tag(other, "QUEUE PUSH s '5'")
            assert drain(other) == [2, 3, 5]
        tag(c, "COMMIT")
        (after,) = c.rows("SELECT max(xid)::text AS xid FROM queue.e%s_0" % c.rows("SELECT number FROM queue.streams")[0]["number"])
        assert int(after["xid"]) - int(before["xid"]) > 1 << 32
        assert drain(c) == [4]
        assert drain(c, "b") == [1, 2, 3, 4, 5]
        tag(c, "QUEUE SEEK a ON s TO '%s'" % place)
        assert sorted(drain(c)) == [2, 3, 4, 5]
        tag(c, "QUEUE SEEK a ON s TO BEGINNING")
        assert drain(c) == [1, 2, 3, 4, 5]


def test_a_logical_copy(qbouncer, private):
    """Its rows are there with the xids of another database: it says so, rather than to skip or repeat anything."""
    old, new = private.createdb(owner="app"), private.createdb(owner="app")
    proxy = proxy_of(qbouncer, private)
    with proxy.wire(old) as c:
        make(c, "a")
        tag(c, "QUEUE PUSH s '1', '2', '3'")
        tag(c, "QUEUE DONE '%s'" % take(c, "a", "LIMIT 1")[0])
    dump = subprocess.run([os.path.join(private.bin, "pg_dump"), "--schema-only", private.dsn(old, "postgres")], check=True, capture_output=True, text=True).stdout
    subprocess.run(["psql", "-qX", "-v", "ON_ERROR_STOP=1", private.dsn(new, "postgres")], input=dump, text=True, check=True,
                   capture_output=True)
    with psycopg.connect(private.dsn(old), autocommit=True) as source, psycopg.connect(private.dsn(new), autocommit=True) as copy:
        source.execute("CREATE PUBLICATION all_of_it FOR ALL TABLES WITH (publish = 'insert')")
        source.execute("SELECT pg_create_logical_replication_slot('copies', 'pgoutput')")   # in the same cluster: by hand
        copy.execute("CREATE SUBSCRIPTION copies CONNECTION '%s' PUBLICATION all_of_it WITH (create_slot = false, slot_name = 'copies')"
                     % private.dsn(old).replace("'", "''"))
        try:
            (number,) = source.execute("SELECT number FROM queue.streams").fetchone()
            with proxy.wire(old) as c:
                tag(c, "QUEUE PUSH s '4'")
            wait_for(lambda: copy.execute("SELECT array_agg(payload::text ORDER BY id) FROM queue.e%d_0" % number).fetchone()[0]
                     == ["1", "2", "3", "4"], "the copy of the events")
            wait_for(lambda: copy.execute("SELECT count(*) FROM queue.subscriptions").fetchone()[0], "the copy of the subscription")
            wait_for(lambda: copy.execute("SELECT count(*) FROM queue.positions").fetchone()[0], "the copy of its position")
            with proxy.wire(new) as c:
                for sql in ("QUEUE PUSH s '5'", "QUEUE TAKE s FOR a", "QUEUE SUBSCRIBE d TO s", "QUEUE SEEK a ON s TO BEGINNING"):
                    assert error(c, sql).sqlstate == "55000", sql
        finally:
            copy.execute("DROP SUBSCRIPTION copies")
    with proxy.wire(old) as c:
        assert drain(c) == [2, 3, 4]


def test_a_promoted_standby(qbouncer):
    """With a slot, so that nothing is lost: positions, deliveries that are out and what failed go on where they were."""
    with Cluster(settings={"synchronous_standby_names": "*", "synchronous_commit": "local"}) as primary:
        primary.psql("CREATE ROLE app LOGIN")
        db = primary.createdb(owner="app")
        with contextlib.ExitStack() as stack:
            standby = Standby(primary)
            standby.settings = dict(primary.settings)
            stack.enter_context(standby)
            with psycopg.connect(primary.dsn(db), autocommit=True) as root:
                root.execute("SELECT pg_create_physical_replication_slot('after', true)")
            proxy = qbouncer(databases={"*": "host=%s,%s port=%d target_session_attrs=primary" % (
                primary.socket_dir, standby.socket_dir, primary.port)}, server_login_retry=0.1, queue_rescan="200ms",
                             queue_heartbeat="20ms")
            with proxy.wire(db) as c:
                make(c, "a", "b", "retries")
                tag(c, "QUEUE CREATE mail")
                for i in range(3):
                    tag(c, "QUEUE PUSH mail '%d'" % i)
                for i in range(6):
                    tag(c, "QUEUE PUSH s '%d'" % i)
                token, events = take(c, "a", "LIMIT 2")
                tag(c, "QUEUE DONE '%s'" % token)
                held, events = take(c, "a", "LIMIT 2 LEASE '10 min'")
                assert events == [2, 3]
                tag(c, "QUEUE FAIL '%s' EVENT 3 RETRY IN '0 s'" % take(c, "retries")[0])
                c.terminate()                       # which gives nothing back
            with psycopg.connect(primary.dsn(db), autocommit=True) as root:
                root.execute("SELECT txid_current()")       # and all before it is on disk
                lsn = root.execute("SELECT pg_current_wal_flush_lsn()").fetchone()[0]
                wait_for(lambda: root.execute("SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= %s", (lsn,)).fetchone(), "the standby")
            with proxy.wire(db) as w:
                w.query("QUEUE TAKE s FOR a WAIT '60s'")     # a reader that waits meanwhile
                parked(w)
                primary.kill()
                standby.promote()
                comes_back(proxy, db)
                with proxy.wire(db) as c:
                    tag(c, "QUEUE PUSH s '6'")
                    tag(c, "QUEUE DONE '%s'" % held)
                    rows = [m.text_row for m in w.until("Z") if m.type == "D"]
                    assert [int(r[4]) for r in rows] == [4, 5]      # the rest of what the take before it has seen
                    tag(w, "QUEUE DONE '%s'" % rows[0][1])
                    assert drain(c) == [6]
                    assert drain(c, "retries") == [2, 6] and drain(c, "b") == [0, 1, 2, 3, 4, 5, 6]
                    names_are_taken(c)
                    tag(c, "QUEUE PUSH mail '3'")
                    assert [c.rows("QUEUE POP mail")[0]["payload"] for _ in range(4)] == ["0", "1", "2", "3"]


SUBSCRIPTIONS = 100
WAITERS = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1000)


def answered(wires, n):
    """The first n of them that have an answer: which, and the payloads."""
    poll, at, got = select.poll(), {w.sock.fileno(): i for i, w in enumerate(wires)}, {}
    for w in wires:
        poll.register(w.sock, select.POLLIN)
    while len(got) < n:
        for fd, _ in poll.poll():
            w = wires[at[fd]]
            m = w.recv()
            while m.type == "S" and w.data:         # a heartbeat
                m = w.recv()
            if m.type != "S":
                got[at[fd]] = tuple(m.text_row[4] for m in [m] + w.until("Z") if m.type == "D")
    return got


@pytest.mark.parametrize("parallel", [1, 4])
def test_very_many_who_wait(qbouncer, cluster, parallel):
    """None of them has a server; of each subscription as many are woken by a push as there are lanes, and the rest stays."""
    db = cluster.createdb(owner="app")
    proxy = qbouncer(max_client_conn=WAITERS + 100, default_pool_size=4, queue_pool_size=2, queue_rescan="1h",
                     queue_heartbeat="2s", log_connections=0, log_disconnections=0)
    names = ["s%d" % i for i in range(SUBSCRIPTIONS)]
    with contextlib.ExitStack() as stack:
        c = stack.enter_context(proxy.wire(db))
        make(c, *names, parallel=parallel)
        waiting = [stack.enter_context(proxy.wire(db)) for _ in range(WAITERS)]
        for i, w in enumerate(waiting):
            w.query("QUEUE TAKE s FOR %s WAIT '10 min'" % names[i % SUBSCRIPTIONS])
        parked(*waiting)
        pool = proxy.pool(db)
        assert pool["sv_active"] + pool["sv_idle"] + pool["sv_used"] <= 4 + 2
        events = ["%d" % i for i in range(parallel)]
        tag(c, "QUEUE PUSH s " + ", ".join("'%s'" % e for e in events))
        served = answered(waiting, SUBSCRIPTIONS * parallel)
        assert sorted((i % SUBSCRIPTIONS, *got) for i, got in served.items()) == sorted((i, e) for i in range(SUBSCRIPTIONS) for e in events)
        assert len(c.rows("SELECT FROM queue.deliveries")) == SUBSCRIPTIONS * parallel
