"""The HTTP side: metrics for Prometheus, and signs of life for load balancers."""

import json
import re
import signal
import socket

import pytest

from metrics import get, samples
from pgwire import V3_0, PgError
from proxy import free_port, wait_for
from queuetest import take


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def proxy(qbouncer, port):
    return qbouncer(metrics_port=port, metrics_queue_interval="1s")


def test_off_by_default(qbouncer):
    assert "metrics on" not in qbouncer().log_text()


def test_traffic(proxy, port, db):
    with proxy.wire(db) as c:
        for _ in range(5):
            c.simple("SELECT 1")
        c.simple("SELECT 1/0")
        s = samples(port)
    label = '{database="%s"}' % db
    assert s["qbouncer_queries_total" + label] == 6
    assert s["qbouncer_transactions_total" + label] == 6
    assert s["qbouncer_client_logins_total" + label] == 1
    assert s["qbouncer_query_seconds_count" + label] == 6
    assert s['qbouncer_query_seconds_bucket{database="%s",le="+Inf"}' % db] == 6
    assert s["qbouncer_query_seconds_sum" + label] > 0
    assert s['qbouncer_pool_clients{database="%s",user="app",state="active"}' % db] == 1
    assert s['qbouncer_pool_servers{database="%s",user="app",state="idle"}' % db] == 1
    assert s['qbouncer_errors_total{sqlstate="22012"}'] == 1
    assert s["qbouncer_clients"] == 1
    assert s["qbouncer_process_resident_memory_bytes"] > 1e6
    assert 5 < s["qbouncer_process_open_fds"] < s["qbouncer_process_max_fds"]


STATS = {"server_assignment_count": "server_assignments_total", "xact_count": "transactions_total",
         "query_count": "queries_total", "bytes_received": "received_bytes_total", "bytes_sent": "sent_bytes_total",
         "xact_time": "transaction_seconds_sum", "query_time": "query_seconds_sum", "wait_time": "client_wait_seconds_sum",
         "client_parse_count": "client_parses_total", "server_parse_count": "server_parses_total",
         "bind_count": "binds_total", "client_login_count": "client_logins_total", "pin_count": "session_pins_total",
         "look_count": "session_looks_total", "replay_count": "session_replays_total",
         "reset_count": "session_resets_total"}
POOLS = {"cl_active": 'clients{%s,state="active"}', "cl_waiting": 'clients{%s,state="waiting"}',
         "sv_active": 'servers{%s,state="active"}', "sv_being_canceled": 'servers{%s,state="being_canceled"}',
         "sv_idle": 'servers{%s,state="idle"}', "sv_used": 'servers{%s,state="used"}',
         "sv_tested": 'servers{%s,state="tested"}', "sv_login": 'servers{%s,state="login"}', "maxwait": "wait_max_seconds{%s}",
         "sv_pinned": "servers_pinned{%s}", "sv_engine": "servers_engine{%s}", "sv_kept": 'servers{%s,state="kept"}'}
# always 0: a cancel request has a connection of its own; text; part of maxwait
NOT_THERE = {"database", "user", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active_cancel", "maxwait_us", "pool_mode",
             "load_balance_hosts"}


def test_all_of_show_stats_and_pools(proxy, port, db):
    """Each figure that the console shows is a metric as well."""
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        c.simple("LISTEN x")
        shown = next(r for r in proxy.console("SHOW STATS_TOTALS") if r.pop("database") == db)
        pool = next(r for r in proxy.console("SHOW POOLS") if r["database"] == db)
        got = samples(port)
    assert set(shown) == set(STATS)
    for column, metric in STATS.items():
        key = 'qbouncer_%s{database="%s"}' % (metric, db)
        assert key in got, key
        if column.endswith("count"):
            assert got[key] == int(shown[column]), key
    assert set(pool) - NOT_THERE == set(POOLS)
    for column, metric in POOLS.items():
        key = "qbouncer_pool_" + metric % ('database="%s",user="app"' % db)
        assert key in got, key
        if column != "maxwait":
            assert got[key] == int(pool[column]), key


def test_names_that_are_no_text(proxy, port):
    """Anybody may name a database; a label that is not UTF-8 would spoil all of the answer."""
    with proxy.wire() as c, pytest.raises(PgError):
        c.packet(V3_0, b"user\0app\0database\0caf\xe9 \xc3\xa9\0\0")
        c.login()
    assert 'qbouncer_queries_total{database="caf\\\\xE9 \u00e9"}' in samples(port)


def test_histograms_add_up(proxy, port, db):
    with proxy.wire(db) as c:
        c.simple("SELECT pg_sleep(0.01)")
        s = samples(port)
    buckets = [(k, v) for k, v in s.items() if k.startswith('qbouncer_query_seconds_bucket{database="%s"' % db)]
    counts = [v for _, v in buckets]
    assert counts == sorted(counts) and counts[-1] == 1
    assert s['qbouncer_query_seconds_bucket{database="%s",le="0.008192"}' % db] == 0


def test_queue(proxy, port, db):
    with proxy.wire(db) as c, proxy.wire(db) as w:
        c.simple("QUEUE CREATE mail")
        c.simple("QUEUE PUSH mail '1', '2', '3'")
        c.simple("QUEUE PUSH mail '4' DELAY '1h'")
        take(c)
        c.simple("QUEUE DONE '1-1-0000000000000000'")
        w.query("QUEUE TAKE other WAIT '30s'").until("Z")
        s = samples(port)
        assert s['qbouncer_queue_statements_total{verb="push"}'] == 2
        assert s['qbouncer_queue_jobs_total{verb="push"}'] == 4
        assert s['qbouncer_queue_jobs_total{verb="take"}'] == 1
        assert s['qbouncer_queue_failures_total{verb="done"}'] == 1
        assert s['qbouncer_errors_total{sqlstate="QB001"}'] == 1
        assert s["qbouncer_queue_batch_statements_count"] >= 3

        def depth(state):
            return samples(port).get('qbouncer_queue_jobs{database="%s",queue="mail",state="%s"}' % (db, state))
        wait_for(lambda: depth("ready") == 2, "the count of ready jobs")
        assert depth("later") == 1 and depth("leased") == 1 and depth("dead") == 0 == depth("blocked")
        c.simple("QUEUE PUSH mail '5', '6', '7' GROUP 'g'")
        wait_for(lambda: (depth("ready"), depth("blocked")) == (3, 2), "the count of blocked jobs")
        c.simple("QUEUE ALTER mail SET (max_running_per_group = 2)")  # though nobody takes
        wait_for(lambda: (depth("ready"), depth("blocked")) == (4, 1), "the second one that has a place")
        c.simple("QUEUE PURGE mail")
        wait_for(lambda: depth("ready") == 0, "that the jobs are gone")


def of_queue(s, db, family, **labels):
    """The value of the queue with these labels, or of the others."""
    return s.get("qbouncer_queue_%s{%s}" % (family, ",".join('%s="%s"' % pair for pair in {"database": db, **labels}.items())))


@pytest.mark.parametrize("user", [None, "app"])
def test_at_most_so_many_are_named(qbouncer, port, db, user):
    """A queue for each tenant: the most used ones have lines, the others one for all, and nothing is lost."""
    proxy = qbouncer(metrics_port=port, metrics_queue_interval="1s", metrics_queues=2, **({"queue_user": user} if user else {}))
    with proxy.wire(db) as c:
        for k in range(5):
            c.simple("QUEUE CREATE t%d" % k)
        for k in range(5):
            for _ in range(k + 1):
                c.simple("QUEUE PUSH t%d '1'" % k)
        for k in (0, 4):
            c.simple("QUEUE FAIL '%s' RETRY IN '1h'" % take(c, "QUEUE TAKE t%d" % k)["token"])
        wait_for(lambda: of_queue(samples(port), db, "jobs", state="ready") == 0 + 2 + 3, "the others")
        s = samples(port)
        assert [of_queue(s, db, "jobs", queue="t%d" % k, state="ready") for k in range(5)] == [None, None, None, 4, 4]
        assert of_queue(s, db, "jobs", state="later") == 1 == of_queue(s, db, "jobs", queue="t4", state="later")
        assert sum(v for k, v in s.items() if k.startswith("qbouncer_queue_jobs{") and 'state="ready"' in k) == 13
        assert of_queue(s, db, "unnamed") == 3
        assert of_queue(s, db, "failed_jobs_total") == 1 == of_queue(s, db, "failed_jobs_total", queue="t4")
        assert 0 < of_queue(s, db, "oldest_ready_seconds") < 60 > of_queue(s, db, "oldest_ready_seconds", queue="t3") > 0
        for _ in range(3):  # t2 is used more than t3 now, but t3 has been named
            c.simple("QUEUE PUSH t2 '1'")
        wait_for(lambda: of_queue(samples(port), db, "jobs", state="ready") == 0 + 2 + 6, "the others")
        for _ in range(20):
            c.simple("QUEUE PUSH t2 '1'")
        wait_for(lambda: of_queue(samples(port), db, "jobs", queue="t2", state="ready") == 26, "that t2 is named")
        assert of_queue(samples(port), db, "unnamed") == 3
        proxy.settings["metrics_queues"] = 1000
        proxy.reload()
        s = samples(port)
        assert [of_queue(s, db, "jobs", queue="t%d" % k, state="ready") for k in range(5)] == [0, 2, 26, 4, 4]
        assert of_queue(s, db, "unnamed") is None is of_queue(s, db, "jobs", state="ready")
        proxy.settings["metrics_queues"] = 0
        proxy.reload()
        s = samples(port)
        assert not [k for k in s if "queue=" in k]
        assert of_queue(s, db, "unnamed") == 5 and of_queue(s, db, "jobs", state="ready") == 36


def test_streams_that_are_not_named(qbouncer, port, db):
    """Events are added up; of ages there is the greatest."""
    proxy = qbouncer(metrics_port=port, metrics_queue_interval="1s", metrics_queues=0)
    with proxy.wire(db) as c:
        for k in range(2):
            c.simple("QUEUE CREATE s%d WITH (kind = stream); QUEUE SUBSCRIBE a TO s%d FROM BEGINNING; QUEUE PUSH s%d '1', '2'" % (k, k, k))
        wait_for(lambda: of_queue(samples(port), db, "stream_events") == 4, "the events")
        s = samples(port)
        assert of_queue(s, db, "subscription_pending") == 4 and of_queue(s, db, "subscription_lost") == 0
        assert 0 <= of_queue(s, db, "subscription_lag_seconds") < 60
        assert of_queue(s, db, "unnamed") == 4


@pytest.mark.parametrize("user", [None, "app"])
def test_queues_without_a_job_are_not_looked_into(qbouncer, port, db, direct, user):
    """Ten thousand that were used once cost a count as much as those that are used now."""
    proxy = qbouncer(metrics_port=port, metrics_queue_interval="1s", **({"queue_user": user} if user else {}))
    with proxy.wire(db) as c:
        for q in ("idle", "busy"):
            c.simple("QUEUE CREATE %s" % q)
            c.simple("QUEUE PUSH %s '1'" % q)
        c.simple("QUEUE POP idle")

        def ready(q):
            return of_queue(samples(port), db, "jobs", queue=q, state="ready")

        def scans(q):
            samples(port)
            return direct.execute("SELECT sum(idx_scan) FROM pg_stat_all_indexes WHERE relname = 'q_%s'" % q).fetchone()[0]
        wait_for(lambda: (ready("idle"), ready("busy")) == (0, 1), "the count")

        def rests():
            idle, busy = scans("idle"), scans("busy")
            wait_for(lambda: scans("busy") > busy, "a count")
            busy = scans("busy")
            wait_for(lambda: scans("busy") > busy, "another count")
            return scans("idle") == idle
        wait_for(rests, "that it is passed over")
        c.simple("QUEUE PUSH idle '1'")
        wait_for(lambda: ready("idle") == 1, "that it has a job again")


@pytest.mark.parametrize("user", [None, "app"])
def test_who_is_locked_holds_up_nobody(qbouncer, port, db, direct, user):
    """More of them than a step waits for: what is behind them is counted, and they stay as they were."""
    proxy = qbouncer(metrics_port=port, metrics_queue_interval="1s", **({"queue_user": user} if user else {}))
    with proxy.wire(db) as c:
        for k in range(14):
            c.simple("QUEUE CREATE q%d; QUEUE PUSH q%d '1'" % (k, k))

        def ready(k):
            return of_queue(samples(port), db, "jobs", queue="q%d" % k, state="ready")
        wait_for(lambda: [ready(k) for k in range(14)] == [1] * 14, "the count")
        c.simple("QUEUE PUSH q0 '2'; QUEUE PUSH q13 '2'")
        with direct.transaction():
            for k in range(13):
                direct.execute("LOCK TABLE queue.q_q%d" % k)
            wait_for(lambda: ready(13) == 2, "the count of what is not locked", timeout=40)
            assert [ready(k) for k in range(13)] == [1] * 13
        wait_for(lambda: ready(0) == 2, "the count of what was locked", timeout=40)


def of_stream(port, db, name, stream="orders", sub=None):
    more = ',subscription="%s"' % sub if sub else ""
    return samples(port).get('qbouncer_queue_%s{database="%s",stream="%s"%s}' % (name, db, stream, more))


@pytest.mark.parametrize("user", [None, "app"])
def test_streams(qbouncer, port, db, user):
    """Counted by the role of each pool, and by queue_user where there is one; nothing of it is said as of a queue."""
    proxy = qbouncer(metrics_port=port, metrics_queue_interval="1s", **({"queue_user": user} if user else {}))
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE mail; QUEUE CREATE orders WITH (kind = stream, retain_max = '1 MB'); QUEUE SUBSCRIBE a TO orders")
        c.simple("QUEUE CREATE more WITH (kind = stream); QUEUE SUBSCRIBE a TO more; QUEUE SUBSCRIBE b TO orders")
        c.simple("QUEUE PUSH orders '1', '2', '3', '4'")
        c.simple("QUEUE PUSH mail '1', '2'")
        c.simple("QUEUE TAKE orders FOR a LIMIT 3")
        wait_for(lambda: of_stream(port, db, "stream_events") == 4, "the count of events")
        wait_for(lambda: of_stream(port, db, "subscription_out", sub="a") == 3, "the delivery")
        s = samples(port)

    def values(name, stream, sub=None):
        more = ',subscription="%s"' % sub if sub else ""
        return s['qbouncer_queue_%s{database="%s",stream="%s"%s}' % (name, db, stream, more)]
    assert [values("subscription_" + f, "orders", "a") for f in ("pending", "out", "attempt", "delivered_total", "lost")] == [1, 3, 1, 3, 0]
    assert [values("subscription_" + f, "orders", "b") for f in ("pending", "out", "attempt", "delivered_total", "lost")] == [4, 0, 0, 0, 0]
    assert values("subscription_pending", "more", "a") == 0 == values("subscription_lag_seconds", "more", "a")
    assert 0 < values("subscription_lag_seconds", "orders", "b") <= values("stream_oldest_seconds", "orders") + 5 < 60
    assert values("stream_pushed_total", "orders") == 4 and values("stream_bytes", "orders") > values("stream_bytes", "more") >= 0
    assert s['qbouncer_queue_jobs{database="%s",queue="mail",state="ready"}' % db] == 2
    assert not [k for k in s if "orders" in k and "stream=" not in k]
    assert 'qbouncer_queue_stream_oldest_seconds{database="%s",stream="more"}' % db not in s


def test_subscriptions_of_others(qbouncer, port, db, cluster):
    """A role tells of what it may read, and of nothing else."""
    cluster.psql("DO $$BEGIN CREATE ROLE m_reader LOGIN; EXCEPTION WHEN duplicate_object THEN END$$")
    proxy = qbouncer(metrics_port=port, metrics_queue_interval="1s", users={"m_reader": "-"})
    with proxy.wire(db) as c, proxy.wire(db, "m_reader") as bob:
        c.simple("QUEUE CREATE orders WITH (kind = stream); QUEUE SUBSCRIBE mine TO orders; QUEUE PUSH orders '1'")
        c.simple("QUEUE CREATE secret WITH (kind = stream); QUEUE GRANT SUBSCRIBE ON orders TO m_reader")
        bob.simple("QUEUE SUBSCRIBE his TO orders FROM BEGINNING")
        bob.simple("QUEUE TAKE orders FOR his")
        wait_for(lambda: of_stream(port, db, "subscription_out", sub="his") == 1, "his subscription")
        wait_for(lambda: of_stream(port, db, "subscription_pending", sub="mine") == 1, "mine")
        c.simple("QUEUE UNSUBSCRIBE mine FROM orders")
        wait_for(lambda: of_stream(port, db, "subscription_pending", sub="mine") is None, "that it is gone")
        c.simple("QUEUE DROP orders")


def test_failures_of_a_queue(proxy, port, db):
    """Counted for each job, in simple and extended protocol, inside a transaction too; nothing for an error."""
    key = 'qbouncer_queue_failed_jobs_total{database="%s",queue="%%s"}' % db
    with proxy.wire(db) as c:
        c.simple("QUEUE CREATE mail; QUEUE CREATE post")
        c.simple("QUEUE PUSH mail '1', '2', '3'; QUEUE PUSH post '4'")
        jobs = [r["token"] for r in c.rows("QUEUE TAKE mail LIMIT 3")]
        (other,) = [r["token"] for r in c.rows("QUEUE TAKE post")]
        assert key % "mail" not in samples(port)
        c.simple("QUEUE FAIL '%s', '%s' ERROR 'no'" % (jobs[0], other))
        c.parse("", "QUEUE FAIL $1 FINAL").bind(values=[jobs[1]]).execute().sync().until("Z")
        c.simple("BEGIN")
        c.simple("QUEUE FAIL '%s'" % jobs[2])
        c.simple("COMMIT")
        c.simple("QUEUE FAIL '%s'" % jobs[2])
        s = samples(port)
        assert (s[key % "mail"], s[key % "post"]) == (3, 1)
        with proxy.wire(db) as w:
            w.query("QUEUE TAKE mail WAIT '60s'")
            row = proxy.wait_show("QUEUES", lambda r: r["queue"] == "mail" and r["database"] == db)
            assert row["failed"] == "3"


def test_waiters(proxy, port, db):
    with proxy.wire(db) as c, proxy.wire(db) as w:
        c.simple("QUEUE CREATE mail")
        w.query("QUEUE TAKE mail WAIT '60s'")
        key = 'qbouncer_queue_waiters{database="%s",queue="mail"}' % db
        wait_for(lambda: samples(port).get(key) == 1, "the waiter")
        assert samples(port)['qbouncer_pool_clients{database="%s",user="app",state="parked"}' % db] == 1


def test_delivery(proxy, port, db):
    """Each job that found somebody waiting is counted once; what was there before is not."""
    with proxy.wire(db) as c, proxy.wire(db) as w:
        c.simple("QUEUE CREATE q")
        c.simple("QUEUE PUSH q '1'")
        w.simple("QUEUE TAKE q WAIT '30s'")
        for n in range(3):
            w.query("QUEUE TAKE q WAIT '30s'")
            proxy.wait_show("WAITERS", lambda r: r["database"] == db and r["state"] == "parked")
            c.simple("QUEUE PUSH q '2'")
            w.until("Z")
    count, total = 'qbouncer_queue_delivery_seconds_count{database="%s"}' % db, 'qbouncer_queue_delivery_seconds_sum{database="%s"}' % db
    got = samples(port)
    assert got[count] == 3 and 0 <= got[total] < 30


def test_labels_are_escaped(qbouncer, port, cluster):
    name = 'a"b\\c'
    proxy = qbouncer(metrics_port=port, databases={'"%s"' % name.replace('"', '""'):
                                                   "host=%s port=%d dbname=postgres" % (cluster.socket_dir, cluster.port)})
    with proxy.wire(name) as c:
        c.simple("SELECT 1")
        assert samples(port)['qbouncer_queries_total{database="a\\"b\\\\c"}'] == 1


def test_health(proxy, port, db):
    assert get(port, "/healthz")[:2] == (200, "ok\n")
    assert get(port, "/readyz")[:2] == (200, "ok\n")
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics", "POST")[0] in (405, 501)
    assert get(port, "/healthz", "HEAD")[:2] == (200, "")
    proxy.console("PAUSE")
    assert get(port, "/readyz")[:2] == (503, "paused\n")
    proxy.console("RESUME")
    assert get(port, "/readyz")[0] == 200
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
        proxy.process.send_signal(signal.SIGTERM)
        wait_for(lambda: get(port, "/readyz")[:2] == (503, "shutting down\n"), "the shutdown")
        assert get(port, "/healthz")[0] == 200


def test_bad_requests(proxy, port, db):
    for text in (b"\r\n\r\n", b"GET\r\n\r\n", b"\x00\xff" * 100 + b"\r\n\r\n", b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 4000,
                 b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n", b"GET " + b"/" * 100000):
        s = socket.create_connection(("127.0.0.1", port), 15)
        try:
            s.sendall(text)
            s.recv(1000)
        except OSError:
            pass
        s.close()
    with proxy.wire(db) as c:
        c.simple("SELECT 1")
    assert get(port, "/healthz")[0] == 200


def test_address(qbouncer, port):
    """metrics_addr: there, and nowhere else; a reload moves it."""
    proxy = qbouncer(metrics_port=port, metrics_addr="127.0.0.2")
    assert get(port, "/healthz", host="127.0.0.2")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz")
    proxy.settings["metrics_addr"] = "127.0.0.1"
    proxy.reload()

    def moved():
        try:
            return get(port, "/healthz")[0] == 200
        except ConnectionRefusedError:
            return False
    wait_for(moved, "the new address")
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz", host="127.0.0.2")


def test_reload(qbouncer, port):
    proxy = qbouncer()
    proxy.settings["metrics_port"] = port
    proxy.reload()
    wait_for(lambda: "metrics on" in proxy.log_text(), "the metrics")
    assert get(port, "/healthz")[0] == 200
    proxy.settings["metrics_port"] = 0
    proxy.reload()

    def closed():
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return True
        return False
    wait_for(closed, "the end of the metrics")


def test_json_log(qbouncer, db):
    proxy = qbouncer(log_style="json")
    with proxy.wire(db, application_name='say "x"') as c:
        c.simple("SELECT 1")
    proxy.wait_log("closing because")
    lines = [json.loads(line) for line in proxy.log_text().splitlines()[1:]]
    assert {"time", "pid", "level", "message"} <= set(lines[0])
    assert any(x["message"].startswith("login attempt: db=%s user=app" % db) and x["object"].startswith("C-")
               for x in lines)


def test_taken_port(qbouncer):
    """The proxy works without its metrics, and says why there are none."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        proxy = qbouncer(metrics_port=s.getsockname()[1])
        proxy.wait_log("cannot listen for metrics")


def test_many_silent_connections(qbouncer, port, db):
    """Who opens connections and says nothing takes a few descriptors, and stops nobody."""
    proxy = qbouncer(metrics_port=port)
    silent = []
    try:
        for i in range(300):
            s = socket.create_connection(("127.0.0.1", port), 15)
            s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            silent.append(s)
        assert get(port, "/healthz")[:2] == (200, "ok\n")
        assert samples(port)["qbouncer_process_open_fds"] < 64 + 60
        with proxy.wire(db) as c:
            c.simple("SELECT 1")
        assert len(re.findall("metrics: more than 64 connections", proxy.log_text())) == 1
    finally:
        for s in silent:
            s.close()
