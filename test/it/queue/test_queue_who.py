"""QUEUE WORKERS: who works on what and who waits, from the database and from what the proxy knows of its clients."""

import pytest

from proxy import wait_for
from queuetest import parked, q, qproxy, tag, take, shared, shared_db, shared_proxy  # noqa: F401


def shown(c, sql="QUEUE WORKERS", *columns):
    columns = columns or ("queue", "job", "worker", "role", "address")
    return [tuple(r[n] and r[n].partition("-")[2] if n == "job" else r[n] for n in columns) for r in c.rows(sql)]


def waits(c, *columns):
    return [r for r in c.rows("QUEUE WORKERS") if r["waits_since"] is not None]


def test_who_works_and_who_waits(qproxy, db, q):
    tag(q, "QUEUE CREATE sms")
    tag(q, "QUEUE PUSH mail '1'")
    q.rows("QUEUE TAKE mail AS 'me'")
    with qproxy.wire(db) as w, qproxy.wire(db) as v:
        w.query("QUEUE TAKE sms, mail WAIT '30s' AS 'w\u00e9\"\\x\U0001f600'")
        parked(w)
        v.query("QUEUE POP mail WAIT '30s'")
        parked(v)
        name = 'w\u00e9"\\x\U0001f600'
        assert shown(q) == [
            ("mail", "1", "me", "app", "127.0.0.1"), ("mail", None, name, "app", "127.0.0.1"),
            ("mail", None, None, "app", "127.0.0.1"), ("sms", None, name, "app", "127.0.0.1")]
        assert shown(q, "QUEUE WORKERS sms") == [("sms", None, name, "app", "127.0.0.1")]
        row = q.rows("QUEUE WORKERS sms")[0]
        assert (row["attempt"], row["cancelled"], row["taken_at"], row["lease_until"]) == (None,) * 4
        assert row["proxy"] == q.rows("QUEUE WORKERS mail")[0]["proxy"]
        assert q.rows("SELECT '%s' BETWEEN now() - interval '10 s' AND now() AS since" % row["waits_since"]) == [
            {"since": "t"}]
    wait_for(lambda: waits(q) == [], "that nobody waits")
    # plain SQL knows what the database knows
    assert q.rows("SELECT role, address, waits_since FROM queue.workers()") == [
        {"role": None, "address": None, "waits_since": None}]


@pytest.mark.parametrize("how", ["block", "string", "prepared", "prepared in a block", "savepoint"])
def test_in_each_way(qproxy, db, q, how):
    """Who asks is in a transaction, or names the queue by a parameter."""
    tag(q, "QUEUE PUSH mail '1'")
    q.rows("QUEUE TAKE mail AS 'it''s'")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        if "block" in how or how == "savepoint":
            q.simple("BEGIN; CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1")
        if how == "savepoint":
            q.simple("SAVEPOINT a; SELECT 1/0")
            q.simple("ROLLBACK TO a")
        if how == "string":
            rows = [m.text_row for m in q.simple("SELECT 1 WHERE false; QUEUE WORKERS mail") if m.type == "D"]
        elif how.startswith("prepared"):
            q.hold().parse("s", "QUEUE WORKERS $1").sync().push().until("Z")
            for _ in range(2):
                q.hold().bind("", "s", [b"mail"]).execute().sync()
                rows = [m.text_row for m in q.push().until("Z") if m.type == "D"]
        else:
            rows = [m.text_row for m in q.simple("QUEUE WORKERS mail") if m.type == "D"]
        assert [(r[0], r[2], r[8], r[9], r[10] is None) for r in rows] == [
            ("mail", "it's", "app", "127.0.0.1", True), ("mail", None, "app", "127.0.0.1", False)]
        q.simple("ROLLBACK")


def test_what_others_may_see(qproxy, db, q):
    """Queues that one may read; addresses of one's own role."""
    tag(q, "QUEUE CREATE sms")
    tag(q, "QUEUE GRANT ALL ON mail TO other")
    tag(q, "QUEUE PUSH mail '1', '2'")
    with qproxy.wire(db, user="other") as other, qproxy.wire(db) as w, qproxy.wire(db, user="other") as v:
        other.rows("QUEUE TAKE mail")
        q.rows("QUEUE TAKE mail")
        w.query("QUEUE TAKE sms, mail WAIT '30s'")
        parked(w)
        v.query("QUEUE TAKE mail WAIT '30s'")
        parked(v)
        assert shown(other, "QUEUE WORKERS", "queue", "job", "role", "address") == [
            ("mail", "1", "other", "127.0.0.1"), ("mail", "2", "app", None),
            ("mail", None, "app", None), ("mail", None, "other", "127.0.0.1")]
        assert [m.sqlstate for m in other.simple("QUEUE WORKERS sms") if m.type == "E"] == ["42501"]
        # who may see them on the console may see them here
        qproxy.console("SET stats_users = 'stats, other'")
        try:
            assert {r[3] for r in shown(other, "QUEUE WORKERS", "queue", "job", "role", "address")} == {"127.0.0.1"}
        finally:
            qproxy.console("SET stats_users = 'stats'")


def test_a_lease_that_is_another_now(qproxy, db, q):
    """What was taken over is not shown with the connection that had it before."""
    tag(q, "QUEUE PUSH mail '1'")
    token = take(q)["token"]
    q.rows("UPDATE queue.q_mail SET lease_until = now() - interval '1 s', due = now() - interval '1 s', token = token")
    with qproxy.wire(db, user="app") as w:
        again = w.rows("SELECT * FROM queue.take('mail', worker => 'direct')")
        assert again[0]["token"] != token
        assert shown(q) == [("mail", "1", "direct", None, None)]


def test_a_queue_with_any_name(qproxy, db, q):
    tag(q, "QUEUE CREATE 'a, b''\\'")
    with qproxy.wire(db) as w:
        w.query("QUEUE TAKE 'a, b''\\' WAIT '30s'")
        parked(w)
        assert [r["queue"] for r in waits(q)] == ["a, b'\\"]


def test_another_encoding(qproxy, db, q):
    """What one says in its encoding and another cannot read is no error."""
    with qproxy.wire(db, client_encoding="LATIN1") as w:
        w.send("Q", b"QUEUE TAKE mail WAIT '30s' AS 'caf\xe9'\0")
        parked(w)
        assert shown(q) == [("mail", None, "caf?", "app", "127.0.0.1")]


def test_two_proxies(qbouncer, cluster):
    """Each shows those who wait at it; leases are seen from both, with the role where they are."""
    db = cluster.createdb(owner="app")
    one, more = (qbouncer() for _ in range(2))
    with one.wire(db) as c, more.wire(db) as d, more.wire(db) as w:
        tag(c, "QUEUE CREATE mail")
        tag(c, "QUEUE PUSH mail '1'")
        d.rows("QUEUE TAKE mail AS 'd'")
        w.query("QUEUE TAKE mail WAIT '30s'")
        parked(w)
        assert shown(c) == [("mail", "1", "d", None, None)]
        assert shown(d) == [("mail", "1", "d", "app", "127.0.0.1"), ("mail", None, None, "app", "127.0.0.1")]
