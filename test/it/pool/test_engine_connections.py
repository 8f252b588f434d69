"""Connections of the queue engine's own: who gets them, what is pinned on them, who makes room for whom, how they end."""

import pytest

from proxy import wait_for
from queuetest import error, tag, take

AFTER = 3


def push(c, n=1):
    for _ in range(n):
        assert tag(c, "QUEUE PUSH mail '1'") == "INSERT 0 1"


def engines(proxy, db, user="app"):
    return [r for r in proxy.console("SHOW SERVERS")
            if r["database"] == db and r["user"] == user and r["engine"] == "1"]


def get_engine(proxy, db, c):
    """Pushes until there is one that is free, and gives its backend's pid."""
    def has():
        push(c)
        return [e for e in engines(proxy, db) if e["state"] == "idle"]
    return int(wait_for(has, "a connection of the engine's own")[0]["remote_pid"])


def pid(c):
    return int(c.rows("SELECT pg_backend_pid() AS p")[0]["p"])


@pytest.fixture
def made(qbouncer, db):
    """Makes a proxy and a client of it, with a queue."""
    clients = []

    def make(**settings):
        proxy = qbouncer(**dict({"queue_engine_after": AFTER}, **settings))
        clients.append(proxy.wire(db))
        tag(clients[-1], "QUEUE CREATE mail")
        return proxy, clients[-1]
    yield make
    for c in clients:
        c.close()


def test_one_comes_when_it_pays_and_no_client_gets_it(made, db, direct):
    proxy, c = made()
    push(c)
    assert not engines(proxy, db) and proxy.pool(db)["sv_engine"] == 0
    own = get_engine(proxy, db, c)
    assert proxy.pool(db)["sv_engine"] == 1
    name = direct.execute("SELECT application_name FROM pg_stat_activity WHERE pid = %s", (own,)).fetchone()
    assert name == ("qbouncer",)
    for _ in range(5):
        assert pid(c) != own
    others = [proxy.wire(db) for _ in range(3)]
    for o in others:
        tag(o, "BEGIN")
        assert pid(o) != own
    push(c)
    for o in others:
        o.close()


def test_none_with_zero(made, db):
    proxy, c = made(queue_engine_after=0)
    push(c, 200)
    assert not engines(proxy, db)


LOOKS = """
    CREATE TABLE public.seen (n serial, pid int, isolation text, path text, seq text, plans text);
    GRANT ALL ON public.seen, public.seen_n_seq TO PUBLIC;
    CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.seen (pid, isolation, path, seq, plans) VALUES (pg_backend_pid(),
            current_setting('transaction_isolation'), current_setting('search_path'),
            current_setting('enable_seqscan'), current_setting('plan_cache_mode'));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER look AFTER INSERT ON queue.q_mail DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.look();
"""


@pytest.mark.parametrize("by", ["role", "connect_query"])
def test_its_settings_are_pinned(made, db, direct, by, cluster):
    other = {"default_transaction_isolation": "serializable", "search_path": "public", "enable_seqscan": "on",
             "plan_cache_mode": "force_custom_plan"}
    more = {}
    if by == "role":
        for name, value in other.items():
            direct.execute("ALTER ROLE app IN DATABASE \"%s\" SET %s = '%s'" % (db, name, value))
    else:
        sets = "; ".join("SET %s = %s" % (kv[0], "'%s'" % kv[1]) for kv in other.items()).replace("'", "''")
        more["databases"] = {"*": "host=127.0.0.1 port=%d connect_query='%s'" % (cluster.port, sets)}
    proxy, c = made(**more)
    direct.execute(LOOKS)
    own = get_engine(proxy, db, c)
    push(c)
    rows = direct.execute("SELECT pid = %s, isolation, path, seq, plans FROM public.seen ORDER BY n", (own,)).fetchall()
    # (deferred: beyond the end of what the functions set)
    assert rows[0] == (False, "serializable", "public", "on", "force_custom_plan")
    assert rows[-1] == (True, "read committed", "pg_catalog, pg_temp", "off", "force_generic_plan")


def test_settings_of_clients_come_along(made, db):
    proxy, c = made(queue_pool_size=2)  # one at most, however busy it is
    own = get_engine(proxy, db, c)
    with proxy.wire(db) as odd:
        odd.simple("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'")
        push(odd, 3)
        assert take(odd, "QUEUE TAKE mail")["lease_until"].endswith("JST")
        odd.simple("SET search_path = pg_temp")  # not on one of the engine's own
        push(odd, 3)
    push(c)
    assert [int(e["remote_pid"]) for e in engines(proxy, db)] == [own]


def test_one_connection_is_enough(made, db):
    proxy, c = made(max_db_connections=1, default_pool_size=1)
    push(c, 20)
    assert not engines(proxy, db)
    pids = {pid(c) for _ in range(3)}
    push(c, 20)
    assert pids == {pid(c)}  # nobody logs in anew for each statement


def test_a_pool_of_one(made, db):
    proxy, c = made(default_pool_size=1)
    own = get_engine(proxy, db, c)
    with proxy.wire(db) as busy:
        tag(busy, "BEGIN")
        assert pid(busy) != own
        push(c, 5)
        tag(busy, "COMMIT")


@pytest.mark.parametrize("limit", ["max_db_connections", "max_user_connections"])
def test_it_makes_room_for_clients(made, db, limit):
    proxy, c = made(**{limit: 2})
    get_engine(proxy, db, c)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        tag(a, "BEGIN")
        tag(b, "BEGIN")
        assert pid(a) != pid(b)
        assert not engines(proxy, db)
        tag(a, "COMMIT")
        push(c, 10)
        tag(b, "COMMIT")
    push(c, 10)


def test_it_makes_room_for_another_pool(made, db):
    proxy, c = made(max_db_connections=2)
    get_engine(proxy, db, c)
    with proxy.wire(db, user="other") as o:
        assert o.rows("SELECT 1 AS one")[0]["one"] == "1"
    push(c, 10)


def test_one_that_clients_do_not_need_goes_for_it(made, db):
    proxy, c = made(max_db_connections=2)
    with proxy.wire(db) as a, proxy.wire(db) as b:
        for w in a, b:
            tag(w, "BEGIN")
            pid(w)
        for w in a, b:
            tag(w, "COMMIT")
        assert proxy.pool(db)["sv_idle"] == 2 and not engines(proxy, db)
        get_engine(proxy, db, c)
        proxy.wait_log("makes room for the queue engine")
        assert a.rows("SELECT 1 AS one")[0]["one"] == "1"


@pytest.mark.parametrize("limits", [{"queue_pool_size": 1}, {"queue_pool_size": 2}, {"max_db_connections": 2}])
def test_the_only_server_is_in_a_block(made, db, limits):
    """What the client that has it waits for needs another one, which is not the engine's."""
    proxy, c = made(default_pool_size=1, queue_engine_after=1, **limits)
    push(c, 20)
    for sql in ("QUEUE ALTER mail SET (max_attempts = 7)", "QUEUE REVOKE AWAIT ON mail FROM app", "QUEUE PUSH mail '1'",
                "QUEUE TAKE mail", "QUEUE STATS", "QUEUE JOB '1-1'"):
        for shape in ("BEGIN; %s", "SELECT 1; %s", "BEGIN; SELECT 1; %s", "SELECT 1; %s; SELECT 2"):
            assert c.simple(shape % sql)[-1].type == "Z"
            c.simple("ROLLBACK")
            push(c)
    if limits == {"queue_pool_size": 1}:
        assert not engines(proxy, db)


def test_fewer_than_queue_pool_size(made, db):
    proxy, c = made(queue_pool_size=3, queue_engine_after=1)
    with proxy.wire(db) as holder:
        get_engine(proxy, db, c)
        tag(holder, "BEGIN")
        holder.simple("LOCK TABLE queue.q_mail IN ACCESS EXCLUSIVE MODE")
        waiting = [proxy.wire(db) for _ in range(6)]
        for i, w in enumerate(waiting):
            w.query("QUEUE PUSH mail '1' PRIORITY %d" % i)
        wait_for(lambda: len([r for r in proxy.console("SHOW SERVERS")
                              if r["database"] == db and r["state"] == "active"]) > 3, "that some wait")
        assert len(engines(proxy, db)) <= 2
        tag(holder, "COMMIT")
        for w in waiting:
            assert [m.type for m in w.until("Z")][-1] == "Z"
            w.close()


def gone(proxy, db, own):
    wait_for(lambda: str(own) not in [e["remote_pid"] for e in engines(proxy, db)], "that it is closed")


@pytest.mark.parametrize("how", ["server_idle_timeout", "server_lifetime"])
def test_it_ends_in_time(made, db, how):
    proxy, c = made(**{how: 2})
    own = get_engine(proxy, db, c)
    gone(proxy, db, own)
    assert get_engine(proxy, db, c) != own


@pytest.mark.parametrize("command", ["RECONNECT", "KILL", "PAUSE", "RELOAD"])
def test_it_ends_by_command(made, db, command):
    proxy, c = made()
    own = get_engine(proxy, db, c)
    if command == "KILL":
        proxy.console("KILL " + db)
        gone(proxy, db, own)
        proxy.console("RESUME " + db)
        with proxy.wire(db) as again:
            get_engine(proxy, db, again)
        return
    if command == "PAUSE":
        proxy.console("PAUSE " + db)
        gone(proxy, db, own)
        proxy.console("RESUME " + db)
    elif command == "RECONNECT":
        proxy.console("RECONNECT " + db)
        gone(proxy, db, own)
    else:
        proxy.console("SET queue_engine_after = 0")
        proxy.console("RECONNECT " + db)
        gone(proxy, db, own)
        push(c, 10)
        assert not engines(proxy, db)
        proxy.console("SET queue_engine_after = %d" % AFTER)
    assert get_engine(proxy, db, c) != own


def test_suspended_it_is_given_to_nobody(made, db):
    proxy, c = made()
    get_engine(proxy, db, c)
    with proxy.wire("qbouncer", "admin", password=proxy.users.get("admin")) as console:
        console.simple("SUSPEND")
        c.query("QUEUE PUSH mail '1'")
        console.simple("RESUME")
    assert [m.type for m in c.until("Z")][-1] == "Z"
    push(c)


def test_a_backend_that_dies(made, db, direct):
    proxy, c = made()
    own = get_engine(proxy, db, c)
    direct.execute("SELECT pg_terminate_backend(%s)", (own,))
    gone(proxy, db, own)
    push(c)
    assert get_engine(proxy, db, c) != own


def test_the_server_wants_no_more(made, db, direct):
    proxy, c = made(default_pool_size=1)
    wait_for(lambda: direct.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND datname = %s "
                                    "AND application_name = ''", (db,)).fetchone() == (1,), "one connection")
    direct.execute("ALTER ROLE app CONNECTION LIMIT 1")
    try:
        push(c, 20)
        proxy.wait_log("no connection of the queue engine's own")
        push(c, 5)
        wait_for(lambda: not engines(proxy, db), "that none is left")
        assert c.rows("SELECT 1 AS one")[0]["one"] == "1"
    finally:
        direct.execute("ALTER ROLE app CONNECTION LIMIT -1")


def test_what_may_not_run_there_is_not_kept_waiting(made, db, direct):
    """The clients' servers are refused, the engine's lives: a statement that needs one of those hears why, at once."""
    proxy, c = made(default_pool_size=1, query_wait_timeout=60)
    own = get_engine(proxy, db, c)
    c.rows("SELECT 1")
    others = [r["remote_pid"] for r in proxy.console("SHOW SERVERS")
              if r["database"] == db and r["user"] == "app" and r["engine"] == "0"]
    direct.execute("ALTER ROLE app CONNECTION LIMIT 1")
    try:
        for one in others:
            direct.execute("SELECT pg_terminate_backend(%s)", (int(one),))
        wait_for(lambda: [r["remote_pid"] for r in proxy.console("SHOW SERVERS")
                          if r["database"] == db and r["user"] == "app"] == [str(own)], "the engine's alone")
        for sql in ("QUEUE STATS", "QUEUE JOB '1-1'", "QUEUE PUSH mail '1'::text"):
            assert "too many connections" in error(c, sql).message
        assert tag(c, "QUEUE PUSH mail '1'") == "INSERT 0 1"
    finally:
        direct.execute("ALTER ROLE app CONNECTION LIMIT -1")
