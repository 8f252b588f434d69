"""Who looks at all queues: what it locks does not grow with their number."""

import pytest

LOOKS = {
    "stats": "SELECT * FROM queue.stats()",
    "workers": "SELECT * FROM queue.workers()",
    "health": "SELECT * FROM queue.health()",
    "gauges": "SELECT * FROM queue._gauges(10)",
    "orphans": "SELECT queue._orphans('{}', '{}')",
    "maintain": "SELECT queue.maintain()",
    "maintain by the proxy": "SELECT * FROM queue._maintain(0, 100, 10000, '{}')",
}


def locks_of(db, sql):
    """How many locks the session holds behind a look, and what it saw."""
    db.rows("BEGIN")
    seen = db.rows(sql)
    held = db.value("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()")
    db.rows("ROLLBACK")
    return held, seen


@pytest.fixture(name="many")
def _many(db):
    for k in range(12):
        db.create("q%02d" % k)
        db.push("q%02d" % k, "1", "2")
        db.take("q%02d" % k, 1)
    return db


@pytest.mark.parametrize("look", LOOKS)
def test_locks_do_not_grow_with_the_queues(many, look):
    locks_of(many, LOOKS[look])     # what is planned and cached once
    held, seen = locks_of(many, LOOKS[look])
    assert held < 60, held          # of one queue: some fifteen
    if look in ("stats", "workers", "gauges", "health"):
        assert sum("q07" in map(str, row.values() if isinstance(row, dict) else row) for row in seen) > 0


@pytest.mark.parametrize("look", ["stats", "health"])
def test_a_look_at_one_is_not_one_at_all(many, look):
    """Also by a plan that is kept."""
    root = many.connect("postgres")
    root.rows("SET track_functions = 'all'")
    root.rows("BEGIN")
    root.rows("SELECT count(*) FROM generate_series(1, 8) AS n, queue.%s('q' || to_char(n, 'FM00'))" % look)
    assert root.value("SELECT pg_stat_get_xact_function_calls('queue._archive(text)'::regprocedure)") <= 8 * 4  # of all: 12 each time
    root.rows("COMMIT")


def test_what_was_seen_stays(many):
    rows = many.rows("SELECT queue, ready, leased FROM queue.stats() ORDER BY queue")
    assert [tuple(r.values() if isinstance(r, dict) else r) for r in rows] == [("q%02d" % k, 1, 1) for k in range(12)]
    assert len(many.rows("SELECT queue FROM queue.workers()")) == 12


def test_maintenance_that_deletes_goes_on(many):
    many.rows("UPDATE queue.q_q03 SET expires_at = now() - interval '1 s' WHERE state = 'ready'")
    many.rows("UPDATE queue.q_q09 SET expires_at = now() - interval '1 s' WHERE state = 'ready'")
    assert many.value("SELECT queue.maintain()") == 2
    assert many.value("SELECT count(*) FROM queue.q_q03") == 1
    assert many.value("SELECT count(*) FROM queue.q_q09") == 1


@pytest.mark.parametrize("look", ["stats", "gauges"])
def test_one_without_rows_looks_like_one_that_lost_them(db, look):
    """Who has no pages is not looked into."""
    db.create("never")
    db.create("lost")
    db.push("lost", "1")
    db.rows("DELETE FROM queue.q_lost")
    never, lost = (db.value("SELECT to_jsonb(x) - '{queue,number,bytes,changes}'::text[] FROM (%s) AS x WHERE x.queue = %%s"
                            % LOOKS[look], name) for name in ("never", "lost"))
    assert never == lost


def test_one_without_rows_in_health(db):
    db.create("q")
    ok, value = db.row("SELECT ok, value FROM queue.health() WHERE about = 'queue'")
    assert ok and value.startswith("nothing is ready, 0 dead rows beside 0, ")
    assert value.endswith(", never vacuumed")


@pytest.mark.parametrize("look", ["SELECT * FROM queue.stats('q')", "SELECT * FROM queue.health('q')"])
def test_one_without_rows_is_nobody_elses(db, look):
    """Also that there is nothing is told to those alone who may read."""
    db.create("q")
    db.connect("mallory").fails("42501", look)
    assert all("q" not in map(str, row) for row in db.connect("mallory").rows(look.replace("'q'", "")))


@pytest.mark.parametrize("look", ["SELECT * FROM queue._schedules_due()", "SELECT * FROM queue._runs()", "SELECT queue._orphans('{}')",
                                  "SELECT * FROM queue._maintain_used('{}', 0, 100, 1000)"])
def test_what_proxies_ask_is_not_compiled(db, look):
    """A scan of the queues is "expensive" where scans are off; jit took 60 ms of each question what is due."""
    db.create("q")
    db.push("q", "1")
    root = db.connect("postgres")
    for setting in ("log_min_duration = 0", "log_nested_statements = on", "log_analyze = on", "log_level = 'notice'"):
        root.rows("LOAD 'auto_explain'; SET auto_explain.%s" % setting)
    root.notices.clear()
    root.rows(look)
    text = "\n".join(root.notices)
    assert "queues" in text and "JIT:" not in text, text
