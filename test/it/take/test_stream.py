"""Streams before the program: subscriptions that wait, what wakes them, and the transaction of a worker."""

import contextlib
import json
import os
import shutil
import subprocess

import psycopg
import pytest

from node import node_path
from proxy import wait_for
from queuetest import (  # noqa: F401
    error, parked, shared, shared_db, shared_proxy, stream, tag, take_events as take, woken)


def test_thin(c):
    assert tag(c, "QUEUE PUSH orders '1', '2', '3'") == "INSERT 0 3"
    token, payloads = take(c)
    assert payloads == ["1", "2", "3"]
    assert take(c) == (None, [])
    assert error(c, "QUEUE DONE '%s' KEEP" % token).sqlstate == "0A000"
    assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    assert take(c) == (None, [])


def test_done_in_the_transaction_of_the_work(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1', '2'")
    tag(c, "CREATE TABLE work (n int)")
    token, _ = take(c, "LIMIT 1")
    for end in ("ROLLBACK", "COMMIT"):
        tag(c, "BEGIN")
        tag(c, "INSERT INTO work VALUES (1)")
        assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
        if end == "COMMIT":
            refused = error(c, "QUEUE TAKE orders FOR bi")
            assert refused.sqlstate == "55000" and "COMMIT" in refused.fields["H"]
            tag(c, "ROLLBACK")
            tag(c, "BEGIN")
            tag(c, "INSERT INTO work VALUES (1)")
            tag(c, "QUEUE DONE '%s'" % token)
        tag(c, end)
    assert [r["n"] for r in c.rows("SELECT * FROM work")] == ["1"]
    assert take(c)[1] == ["2"]


def test_seen(c):
    tag(c, "QUEUE PUSH orders '1', '2', '3'")
    (row,) = [r for r in c.rows("QUEUE LIST") if r["queue"] == "orders"]
    assert (row["kind"], row["payload"], row["lease"]) == ("stream", "jsonb", None)
    (row,) = c.rows("QUEUE STATS orders")
    assert (row["kind"], row["total"], row["ready"], row["partitions"], row["pushed_rate"]) == ("stream", "3", None, "1", "0.05")
    assert "orders" in [r["queue"] for r in c.rows("QUEUE STATS")]
    (before,) = c.rows("QUEUE SUBSCRIPTIONS orders")
    take(c, "LIMIT 2")
    (row,) = c.rows("QUEUE SUBSCRIPTIONS orders")
    assert (row["pending"], row["events"], row["delivered"], row["rate"]) == ("1", "2", "2", "0.033")
    assert tag(c, "QUEUE SEEK bi ON orders TO '%s'" % before["position"]) == "SEEK"
    assert take(c)[1] == ["1", "2", "3"]


def test_figures(c, qproxy, db):
    """Events that are pushed, and deliveries."""
    def figures():
        (row,) = c.rows("QUEUE STATS orders BY DAY LAST 1")
        return tuple(int(row[n]) for n in ("pushed", "taken", "done", "failed", "dead")), row

    assert figures()[0] == (0, 0, 0, 0, 0)
    tag(c, "QUEUE PUSH orders '1', '2', '3'")
    tag(c, "BEGIN")
    tag(c, "QUEUE PUSH orders '4'")
    assert figures()[0] == (3, 0, 0, 0, 0)
    tag(c, "COMMIT")
    token, _ = take(c, "LIMIT 2")
    tag(c, "QUEUE FAIL '%s' RETRY IN '0 s'" % token)
    token, _ = take(c, "WAIT '30s'")
    tag(c, "BEGIN")
    tag(c, "QUEUE DONE '%s'" % token)
    tag(c, "ROLLBACK")
    assert figures()[0] == (4, 2, 0, 1, 0)
    tag(c, "QUEUE DONE '%s'" % token)
    counts, row = figures()
    assert counts == (4, 2, 1, 1, 0) and row["mean_run"] and row["mean_wait"] is None
    tag(c, "QUEUE DROP orders")
    tag(c, "QUEUE CREATE orders WITH (kind = stream)")
    assert figures()[0] == (0, 0, 0, 0, 0)


def test_workers(c, qproxy, db):
    """Who has a delivery out, and who waits for one, through this proxy with role and address."""
    tag(c, "QUEUE PUSH orders '1', '2'")
    token = c.rows("QUEUE TAKE orders FOR bi LIMIT 1 AS 'one'")[0]["token"]
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi AS 'two' WAIT '30s'")
        parked(w)
        for sql in ("QUEUE WORKERS orders", "QUEUE WORKERS"):
            out, waits = [r for r in c.rows(sql) if r["queue"] == "orders"]
            assert (out["job"], out["worker"], out["attempt"], out["role"], out["waits_since"]) == (
                token.rsplit("-", 1)[0], "one", "1", "app", None)
            assert (waits["job"], waits["worker"], waits["role"]) == (None, "two", "app") and waits["waits_since"] and out["address"]
        tag(c, "QUEUE DONE '%s'" % token)
        woken(w)
        assert [(r["worker"], r["waits_since"]) for r in c.rows("QUEUE WORKERS orders")] == [("two", None)]


def test_wait_is_woken(c, qproxy, db):
    with qproxy.wire(db) as w, qproxy.wire(db) as other:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        parked(w)
        tag(other, "BEGIN")
        tag(other, "QUEUE PUSH orders '1'")
        tag(other, "COMMIT")
        assert woken(w)["payload"] == "1"
        w.query("QUEUE TAKE orders FOR bi WAIT '100ms'")     # the other delivery is out
        assert [m.tag for m in w.until() if m.type == "C"] == ["SELECT 0"]


def test_a_done_wakes_the_next(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1', '2'")
    token, _ = take(c, "LIMIT 1")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        parked(w)
        tag(c, "QUEUE DONE '%s'" % token)
        assert woken(w)["payload"] == "2"


def test_a_lease_that_ends_wakes(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1'")
    take(c, "LEASE '300ms'")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        assert woken(w)["attempt"] == "2"


def test_woken_from_elsewhere(c, qproxy, db, shared):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        parked(w)
        wait_for(lambda: shared.direct.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name ="
                                               " 'qbouncer system'", (db,)).fetchone()[0], "the system session")
        shared.direct.execute("SELECT queue.push('orders', '7')")
        assert woken(w)["payload"] == "7"


def test_who_has_left_gets_nothing(c, qproxy, db):
    w = qproxy.wire(db)
    w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
    parked(w)
    w.close()
    tag(c, "QUEUE PUSH orders '1'")
    assert take(c, "WAIT '10s'")[1] == ["1"]


def test_of_many_who_wait_one_gets_it(c, qproxy, db):
    ws = [qproxy.wire(db) for _ in range(5)]
    for w in ws:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        parked(w)
    for n, w in enumerate(ws):
        tag(c, "QUEUE PUSH orders '%d'" % n)
        row = woken(w)
        assert row["payload"] == str(n)
        tag(c, "QUEUE DONE '%s'" % row["token"])
    for w in ws:
        w.close()


def test_at_least(c, qproxy, db):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi MIN 3 WITHIN '1 h' WAIT '30s'")
        parked(w)
        for n in range(3):
            tag(c, "QUEUE PUSH orders '%d'" % n)
        got = w.until()
        assert [m.tag for m in got if m.type == "C"] == ["SELECT 3"]


@pytest.mark.parametrize("sql, state", [
    ("QUEUE TAKE orders", "0A000"), ("QUEUE POP orders", "0A000"), ("QUEUE PEEK orders", "0A000"),
    ("QUEUE PUSH orders '1' DELAY '1s'", "0A000"), ("QUEUE PUSH orders '1' PRIORITY 3", "0A000"),
    ("QUEUE PUSH orders '1' BATCH 'b'", "0A000"), ("QUEUE PUSH orders '1' ATTEMPTS 2", "0A000"),
    ("QUEUE PUSH orders '1' KEY 'k' ON DUPLICATE REPLACE", "0A000"), ("QUEUE PUSH orders '1' RETURNING JOB", "0A000"),
    ("QUEUE PAUSE orders", "0A000"), ("QUEUE STATS orders BY WEEK", "22023"),
    ("QUEUE TAKE orders, orders FOR bi", "0A000"), ("QUEUE TAKE orders FOR bi HOLD", "0A000"), ("QUEUE TAKE orders MIN 3", "0A000"),
    ("QUEUE TAKE orders FOR bi RANK 3", "0A000"), ("QUEUE TAKE orders FOR bi GROUPED", "0A000"),
    ("QUEUE TAKE orders WHERE (id > 3)", "0A000"),
    ("QUEUE TAKE orders FOR nobody", "42704"), ("QUEUE TAKE nowhere FOR bi", "42P01"), ("QUEUE TAKE orders FOR bi MIN 3", "42601"),
    ("QUEUE SUBSCRIBE bi TO orders", "42710"), ("QUEUE SUBSCRIBE b2 TO orders WITH (parallel = 65)", "22023"),
    ("QUEUE SUBSCRIBE b2 TO orders FROM 'nowhere'", "22023"), ("QUEUE ALTER orders SET (lease = '1s')", "0A000"),
    ("QUEUE DONE '1-d1-0123456789abcdef' THEN TAKE orders FOR bi", "QB001"), ("QUEUE DONE '2-d1'", "22023"),
    ("QUEUE GRANT TAKE ON orders TO app", "0A000"), ("QUEUE CREATE o2 WITH (kind = stream, retain = 'soon')", "22023")])
def test_refused(c, sql, state):
    refused = error(c, sql)
    assert refused.sqlstate == state, refused.fields
    assert state in ("42601", "42710") or refused.fields["H"]


def test_key_and_group(c):
    tag(c, "QUEUE PUSH orders '1' KEY 'k' GROUP 'g' HEADERS '{\"h\": 1}'")
    tag(c, "QUEUE PUSH orders '1' KEY 'k'")
    assert c.rows("QUEUE PUSH orders '2' RETURNING ID") == [{"id": "3"}]
    rows = c.rows("QUEUE TAKE orders FOR bi")
    assert [(r["key"], r["group"], r["headers"]) for r in rows] == [("k", "g", '{"h": 1}'), ("k", None, None), (None, None, None)]


def test_seek_fail_and_the_rest(c):
    tag(c, "QUEUE PUSH orders '1', '2', '3'")
    assert tag(c, "QUEUE SUBSCRIBE all_of_it TO orders FROM BEGINNING WITH (lease = '5 min')") == "SUBSCRIBE"
    token, _ = take(c)
    assert tag(c, "QUEUE FAIL '%s' ERROR 'no luck' RETRY IN '0s'" % token) == "UPDATE 1"
    token, payloads = take(c)
    assert payloads == ["1", "2", "3"]
    assert tag(c, "QUEUE EXTEND '%s' LEASE '1 h'" % token) == "UPDATE 1"
    assert tag(c, "QUEUE RELEASE '%s'" % token) == "UPDATE 1"
    assert tag(c, "QUEUE SEEK bi ON orders TO 3") == "SEEK"
    assert take(c)[1] == ["3"]
    row = [r for r in c.rows("QUEUE SUBSCRIPTIONS orders") if r["subscription"] == "all_of_it"][0]
    assert (row["pending"], row["last_id"], row["owner"]) == ("3", "3", "app")
    assert tag(c, "QUEUE UNSUBSCRIBE all_of_it FROM orders") == "UNSUBSCRIBE"
    assert len(c.rows("QUEUE SUBSCRIPTIONS")) == 1


def test_unsubscribe_ends_a_wait(c, qproxy, db):
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        parked(w)
        tag(c, "QUEUE UNSUBSCRIBE bi FROM orders")
        assert [m.type for m in w.until(skip="SNA") if m.type in "EC"] == ["E"]


def test_rights(c, qproxy, db):
    with qproxy.wire(db, "other") as o:
        for sql in ("QUEUE PUSH orders '1'", "QUEUE SUBSCRIBE b TO orders", "QUEUE TAKE orders FOR bi", "QUEUE DROP orders"):
            assert error(o, sql).sqlstate == "42501", sql
        tag(c, "QUEUE GRANT PUSH, SUBSCRIBE ON orders TO other")
        tag(o, "QUEUE PUSH orders '1'")
        tag(o, "QUEUE SUBSCRIBE b TO orders FROM BEGINNING")
        assert len(o.rows("QUEUE TAKE orders FOR b")) == 1


@pytest.mark.parametrize("binary", [False, True])
def test_extended(c, qproxy, db, binary):
    dsn = "host=127.0.0.1 port=%d dbname=%s user=app" % (qproxy.port, db)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as p:
        cur = p.cursor(binary=binary)
        for _ in range(3):
            cur.execute("QUEUE PUSH orders %s", (json.dumps({"n": 1}),))
            cur.execute("QUEUE TAKE orders FOR bi LIMIT %s WAIT '5s'", (10,))
            assert [d.name for d in cur.description][:5] == ["id", "token", "queue", "attempt", "payload"]
            (row,) = cur.fetchall()
            assert row[4] == {"n": 1}
            with p.transaction():
                cur.execute("QUEUE DONE %s", (row[1],))
                assert cur.rowcount == 1


WORKER = """
const pg = require('pg');
(async () => {
  const c = new pg.Client(process.env.QB_URL);
  await c.connect();
  await c.query('CREATE TABLE seen (id int8 PRIMARY KEY, n int)');
  await c.query('QUEUE PUSH orders $1, $2, $3', [{ n: 1 }, { n: 2 }, { n: 3 }]);
  let batches = 0;
  for (;;) {
    const { rows } = await c.query({ name: 'take', text: "QUEUE TAKE orders FOR bi LIMIT 2 WAIT $1", values: ['100ms'] });
    if (rows.length === 0) break;
    await c.query('BEGIN');
    for (const e of rows) await c.query('INSERT INTO seen VALUES ($1, $2)', [e.id, e.payload.n]);
    await c.query('QUEUE DONE $1', [rows[0].token]);
    await c.query('COMMIT');
    batches++;
  }
  console.log(batches, (await c.query('SELECT string_agg(n::text, $1 ORDER BY id) AS s FROM seen', [','])).rows[0].s);
  await c.end();
})().catch(e => { console.log('failed', e); process.exit(1); });
"""


@pytest.mark.skipif(not shutil.which("node") or not node_path(), reason="node or its driver pg is missing")
def test_node(c, qproxy, db):
    url = "postgres://app@127.0.0.1:%d/%s" % (qproxy.port, db)
    done = subprocess.run(["node", "-e", WORKER], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=40, check=False,
                          env=dict(os.environ, QB_URL=url, NODE_PATH=node_path()))
    assert done.stdout.splitlines() == ["2 1,2,3"], done.stdout + done.stderr


def test_bulk(c, qproxy, db):
    """What a query gives, and a copy; key, group and headers in columns; told to who waits."""
    assert tag(c, "QUEUE PUSH orders SELECT to_jsonb(g) FROM generate_series(1, 3) AS g") == "INSERT 0 3"
    assert [r["id"] for r in c.rows("QUEUE PUSH orders (payload, key) SELECT to_jsonb(g), 'k' || g FROM generate_series(4, 5) AS g"
                                    " RETURNING ID")] == ["4", "5"]
    assert tag(c, "QUEUE PUSH orders (payload, headers) VALUES ('6', '{\"h\": 1}')") == "INSERT 0 1"
    rows = c.rows("QUEUE TAKE orders FOR bi")
    assert [(r["payload"], r["key"], r["headers"]) for r in rows] == [
        ("1", None, None), ("2", None, None), ("3", None, None), ("4", "k4", None), ("5", "k5", None), ("6", None, '{"h": 1}')]
    tag(c, "QUEUE DONE '%s'" % rows[0]["token"])
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi WAIT '30s'")
        parked(w)
        with psycopg.connect(qproxy.dsn(db), autocommit=True) as copier, copier.cursor() as cursor:
            with cursor.copy("QUEUE PUSH orders (payload, \"group\") FROM STDIN") as copy:
                copy.write(b'7\tg\n8\t\\N\n')
            assert cursor.rowcount == 2
        first = woken(w)
        assert (first["payload"], first["group"]) == ("7", "g")


@pytest.mark.parametrize("sql", [
    "QUEUE PUSH orders (payload, delay) SELECT '1', interval '1 s'", "QUEUE PUSH orders (payload, priority) SELECT '1', 5",
    "QUEUE PUSH orders (payload, attempts) SELECT '1', 5", "QUEUE PUSH orders (payload, key) ON DUPLICATE REPLACE SELECT '1', 'k'",
    "QUEUE PUSH orders (payload, expires) SELECT '1', interval '1 s'", "QUEUE PUSH orders SELECT '1' RETURNING JOB"])
def test_bulk_refused(c, sql):
    refused = error(c, sql)
    assert refused.sqlstate == "0A000" and "RETURNING ID" in refused.fields["H"], refused.fields
    assert take(c) == (None, [])


def test_bulk_rights(c, qproxy, db):
    with qproxy.wire(db, "other") as bob:
        assert error(bob, "QUEUE PUSH orders SELECT '1'").sqlstate == "42501"
        tag(c, "QUEUE GRANT PUSH ON orders TO other")
        assert tag(bob, "QUEUE PUSH orders SELECT '1'") == "INSERT 0 1"
        tag(bob, "BEGIN")
        tag(bob, "QUEUE PUSH orders SELECT '2'")
        tag(bob, "ROLLBACK")
    assert take(c)[1] == ["1"]


def test_its_number_is_not_asked_for_again_and_again(qbouncer, db, cluster, direct):
    """A stream has none; a queue that takes its name has one at once."""
    direct.execute("ALTER DATABASE %s SET log_statement = 'all'" % db)
    seen = len(cluster.log_text())

    def asked():
        return cluster.log_text()[seen:].count("SELECT q.name, number, payload")

    with qbouncer().wire(db) as w:
        tag(w, "QUEUE CREATE orders WITH (kind = stream)")
        for i in range(40):
            tag(w, "QUEUE PUSH orders '%d'" % i)
        assert asked() == 1
        tag(w, "QUEUE DROP orders")
        tag(w, "QUEUE CREATE orders")
        before = asked()
        for i in range(40):
            tag(w, "QUEUE PUSH orders '%d'" % i)
        wait_for(lambda: asked() > before, "the question")


@pytest.mark.parametrize("how", ["broken", "rolled back", "goodbye", "not read"])
def test_who_has_it_is_gone(c, qproxy, db, how):
    """It comes again at once, as jobs do; a goodbye keeps it."""
    tag(c, "QUEUE PUSH orders '1', '2'")
    with qproxy.wire(db) as w:
        if how == "rolled back":
            tag(w, "BEGIN")
        if how == "not read":
            w.query("QUEUE TAKE orders FOR bi WAIT '30s' LEASE '1 hour'")
        else:
            token = w.rows("QUEUE TAKE orders FOR bi LEASE '1 hour'")[0]["token"]
        if how == "rolled back":
            tag(w, "ROLLBACK")
        elif how == "goodbye":
            w.terminate()
        else:
            w.close()
        if how == "goodbye":
            assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
            return
        rows = c.rows("QUEUE TAKE orders FOR bi WAIT '20s'")
        assert [r["payload"] for r in rows] == ["1", "2"]
        assert how == "not read" or rows[0]["attempt"] == "2" and rows[0]["token"] != token
        assert tag(c, "QUEUE DONE '%s'" % rows[0]["token"]) == "UPDATE 1"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_what_was_done_is_not_given_back(c, qproxy, db, end):
    tag(c, "QUEUE PUSH orders '1'")
    with qproxy.wire(db) as w:
        token = w.rows("QUEUE TAKE orders FOR bi LEASE '1 hour'")[0]["token"]
        tag(w, "BEGIN")
        tag(w, "QUEUE DONE '%s'" % token)
        tag(w, end)
        w.close()
    rows = c.rows("QUEUE TAKE orders FOR bi WAIT '%s'" % ("100ms" if end == "COMMIT" else "20s"))
    assert [r["payload"] for r in rows] == ([] if end == "COMMIT" else ["1"])


@pytest.mark.parametrize("end", ["kill", "goodbye, kill"])
def test_its_proxy_is_gone(c, qproxy, db, qbouncer, end):
    """What it had out comes again at once; what a goodbye has left is a matter of time, whatever becomes of the proxy."""
    there = qbouncer(queue_orphan_grace="200ms")
    tag(c, "QUEUE PUSH orders '1', '2'")
    with there.wire(db) as idle:
        idle.query("QUEUE TAKE orders FOR nobody").until("Z")
        far = there.wire(db)
        proxy = "SELECT count(*) AS n FROM queue.deliveries WHERE proxy IS NOT NULL"
        token = far.rows("QUEUE TAKE orders FOR bi LEASE '1 hour'")[0]["token"]
        wait_for(lambda: c.rows(proxy)[0]["n"] == "1", "that it is known whose it is")
        if end != "kill":
            far.terminate()
            wait_for(lambda: c.rows(proxy)[0]["n"] == "0", "that it is nobody's")
            there.kill()
            assert tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
            return
        with qproxy.wire(db) as w:
            w.query("QUEUE TAKE orders FOR bi WAIT '60s'")
            parked(w)
            there.kill()
            row = woken(w)
            assert (row["payload"], row["attempt"]) == ("1", "2")
            assert error(c, "QUEUE DONE '%s'" % token).sqlstate == "QB001"


@pytest.mark.parametrize("binary", [False, True])
def test_events_fail_by_a_driver(c, qproxy, db, binary):
    """Each id as a parameter, or all as an array."""
    dsn = "host=127.0.0.1 port=%d dbname=%s user=app" % (qproxy.port, db)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as p:
        cur = p.cursor(binary=binary)
        for _ in range(2):
            tag(c, "QUEUE PUSH orders '1', '2', '3'")
            rows = cur.execute("QUEUE TAKE orders FOR bi LIMIT %s", (10,)).fetchall()
            with p.transaction():
                cur.execute("QUEUE FAIL %s EVENT %s, %s ERROR %s RETRY IN %s", (rows[0][1], rows[0][0], rows[2][0], "no", "0s"))
                assert cur.rowcount == 1
            again = cur.execute("QUEUE TAKE orders FOR bi").fetchall()
            assert [(r[0], r[3]) for r in again] == [(rows[0][0], 2), (rows[2][0], 2)]
            cur.execute("QUEUE FAIL %s EVENT %s FINAL", (again[0][1], [r[0] for r in again]))
            shown = cur.execute("QUEUE PEEK orders FOR %s STATE dead", ("bi",)).fetchall()
            assert len(shown) >= 2


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("heads", [["LAG '1 h'"], ["LIMIT 100 MIN 100 WITHIN '1 h'"], ["LAG '1 h'", "LAG '2 h'", "LIMIT 7 MIN 7 WITHIN '1 h'"]])
def test_who_waits_for_more_holds_up_nobody(qbouncer, cluster, heads, waits):
    """They came first, and what is there is not for them. There is no periodic look."""
    db = cluster.createdb(owner="app")
    proxy = qbouncer(queue_heartbeat="20ms", queue_rescan="1h")
    with contextlib.ExitStack() as all_of:
        c, other, *first = (all_of.enter_context(proxy.wire(db)) for _ in range(2 + len(heads)))
        tag(c, "QUEUE CREATE orders WITH (kind = stream)")
        tag(c, "QUEUE SUBSCRIBE bi TO orders")
        for w, head in zip(first, heads):
            w.query("QUEUE TAKE orders FOR bi %s WAIT '1 min'" % head)
            parked(w)
        for i in range(1, 4):
            if waits:
                other.query("QUEUE TAKE orders FOR bi WAIT '1 min'")
                parked(other)
                tag(c, "QUEUE PUSH orders '%d'" % i)
                row = woken(other)
            else:
                tag(c, "QUEUE PUSH orders '%d'" % i)
                (row,) = other.rows("QUEUE TAKE orders FOR bi WAIT '1 min'")
            assert row["payload"] == str(i)
            tag(other, "QUEUE DONE '%s'" % row["token"])
        if "MIN 7" in heads[-1] or "MIN 100" in heads[-1]:
            tag(c, "QUEUE PUSH orders SELECT to_jsonb(g) FROM generate_series(4, 103) AS g")
            assert woken(first[-1])["payload"] == "4"


def test_lag_is_woken_by_timer(c, qproxy, db):
    tag(c, "QUEUE PUSH orders '1'")
    assert take(c, "LAG '1 h'") == (None, [])
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE orders FOR bi LAG '500 ms' WAIT '1 min' LEASE '1 h'")
        parked(w)
        messages = w.until("Z")
    (told,) = [m for m in messages if m.type == "T"]
    (row,) = [dict(zip([n for n, *_ in told.columns], m.text_row)) for m in messages if m.type == "D"]
    assert row["payload"] == "1"
    assert c.rows("SELECT '%s'::timestamptz - interval '1 h' - '%s'::timestamptz >= interval '500 ms' AS old_enough" % (row["lease_until"], row["pushed_at"])) == [
        {"old_enough": "t"}]
    tag(c, "QUEUE CREATE jobs")
    assert error(c, "QUEUE TAKE jobs LAG '1 s'").sqlstate == "0A000"
    assert error(c, "QUEUE TAKE orders FOR bi LAG 'soon'").sqlstate == "22007"
    tag(c, "QUEUE DROP jobs")


@pytest.mark.parametrize("payload", ["jsonb", "text"])
def test_made_anew_by_somebody_else(c, qproxy, db, direct, payload):
    """What the program knows of the stream is not so any more: it asks by the name, and gets what there is."""
    for n in (1, 2):
        tag(c, "QUEUE PUSH orders '%d'" % n)
        token, payloads = take(c)
        assert payloads == [str(n)] and tag(c, "QUEUE DONE '%s'" % token) == "UPDATE 1"
    with direct.transaction():
        direct.execute("SET LOCAL ROLE app; SET LOCAL qbouncer.tell = 'nobody'")        # and the program is not told
        direct.execute("SELECT queue.drop('orders', notify => false)")
        direct.execute("SELECT queue.create('orders', false, '{kind,payload}', %s)", ("{stream,%s}" % payload,))
        direct.execute("SELECT queue.subscribe('bi', 'orders')")
        direct.execute("SELECT queue.push('orders', '\"new\"'::%s, notify => false)" % payload)
    rows = c.rows("QUEUE TAKE orders FOR bi")
    assert [r["payload"] for r in rows] == ['"new"'] and tag(c, "QUEUE DONE '%s'" % rows[0]["token"]) == "UPDATE 1"
