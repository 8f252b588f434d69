"""CREATE, ALTER, DROP and their options."""

import pytest

NAMES = ["mail", "Mail", "a b", 'quo"te', "semi;colon", "'; DROP TABLE x; --", "$$", "@table@",
         "@archive@", "@keep@", "@n@", "@payload@", "'@table@'", "\\'@archive@", "%s %I", "\\", "x_id_seq", "ä" * 20, "line\nbreak", "select", "pkey"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name(db, name):
    db.create(name)
    assert db.column("SELECT queue FROM queue.list()") == [name]
    assert db.push(name, "1", "2", "3") == [1, 2, 3]
    first, second = db.take(name, 2)
    assert first["queue"] == name
    assert db.done(first["token"]) == [name]
    assert db.column("SELECT queue FROM queue._fail(ARRAY[%s], 'e', '0', false, false)",
                     second["token"]) == [name]
    assert [job["id"] for job in db.take([name], 5, pop=True)] == [3, 2]
    assert db.rows("SELECT ready, later, leased, dead FROM queue.stats(%s)", name) == [(0, 0, 0, 0)]
    assert db.rows("SELECT * FROM queue.peek(%s)", name) == []
    assert db.value("SELECT queue.purge(%s)", name) == 0
    db.rows("SELECT queue.drop(%s)", name)
    assert db.rows("SELECT * FROM queue.list()") == []
    assert db.rows("SELECT proname FROM pg_proc WHERE proname ~ '_[0-9]+$' "
                   "AND pronamespace = 'queue'::regnamespace") == []


@pytest.mark.parametrize("name", ["@table@", "a@n@b", "it's @name@", "\\'@table@"])
def test_names_in_messages(db, name):
    db.create(name, max_length=1)
    push = "SELECT queue.push(%s, '1', key => 'k', on_duplicate => 'error')"
    db.rows(push, name)
    assert 'queue "%s"' % name in db.fails("23505", push, name).message_primary
    assert 'queue "%s"' % name in db.fails("QB004", "SELECT queue.push(%s, '1')", name).message_primary


def test_all_names_together(db):
    for name in NAMES:
        db.create(name)
    for n, name in enumerate(NAMES):
        db.push(name, str(n))
    assert [job["payload"] for job in db.take(NAMES, 100)] == list(range(len(NAMES)))


def test_bad_names(db):
    db.fails("42602", "SELECT queue.create('')")
    db.fails("22004", "SELECT queue.create(NULL)")
    assert "40" in db.fails("42622", "SELECT queue.create(%s)", "a" * 41).message_detail
    db.fails("42622", "SELECT queue.create(%s)", "ä" * 21)
    db.create("a" * 40)


def test_exists(db):
    db.create("mail")
    diag = db.fails("42P07", "SELECT queue.create('mail')")
    assert diag.message_primary == 'queue "mail" already exists'
    assert "IF NOT EXISTS" in diag.message_hint
    db.rows("SELECT queue.create('mail', true, '{}', '{}')")
    assert db.notices == \
        ['queue "mail" already exists, skipping']


def test_unknown_queue_everywhere(db):
    for sql in ["SELECT queue._push('x y', ARRAY['1'], NULL, NULL, NULL, NULL, false)",
                "SELECT queue._push_keys('x y', '{}', 0, NULL, false, false)",
                "SELECT queue._take(ARRAY['x y'], 1, NULL, NULL, false)",
                "SELECT queue._take(ARRAY['x y'], 1, NULL, NULL, true)",
                "SELECT queue.push('x y', '1')", "SELECT queue.take('x y')",
                "SELECT queue.pop('x y')", "SELECT queue.alter('x y')", "SELECT queue.drop('x y')",
                "SELECT queue.pause('x y')", "SELECT queue.resume('x y')",
                "SELECT queue.redrive('x y')", "SELECT queue.errors('x y')",
                "SELECT queue.purge('x y')", "SELECT queue.peek('x y')",
                "SELECT queue.stats('x y')"]:
        diag = db.fails("42P01", sql)
        assert diag.message_primary == 'queue "x y" does not exist'
        if "push" in sql or "take" in sql or "pop" in sql:
            assert diag.message_hint == 'Create it with: QUEUE CREATE "x y";'
        else:
            assert diag.message_hint.startswith("QUEUE LIST shows the queues that there are"), sql
        if "stats" not in sql:
            db.fails("22004", sql.replace("'x y'", "NULL"))
    db.fails("22004", "SELECT queue._take(NULL, 1, NULL, NULL, false)")
    db.fails("22004", "SELECT queue._take('{}', 1, NULL, NULL, false)")
    db.rows("SELECT queue.drop('x y', true)")
    assert "skipping" in db.notices[0]


def test_options_are_stored(db):
    db.create("q", lease="90 s", max_attempts="3", retry=" Exponential 1s  2min ",
              on_disconnect="KEEP", retain_done="0", retain_dead="1 day", durability="async",
              payload="jsonb", unlogged="false")
    assert db.rows("SELECT queue, lease, max_attempts, retry, on_disconnect, durability, owner "
                   "FROM queue.list()") == [
        ("q", "00:01:30", 3, "exponential 1s 2min", "keep", "async", "app")]
    db.rows("SELECT queue.alter('q', ARRAY['retry', 'lease'], ARRAY['none', '1 h'], "
            "ARRAY['max_attempts', 'durability', 'on_disconnect'])")
    assert db.rows("SELECT lease, max_attempts, retry, on_disconnect, durability "
                   "FROM queue.list()") == [("01:00:00", 25, "none", "auto", "sync")]
    db.rows("SELECT queue.alter('q', '{}', '{}', ARRAY['lease', 'retry', 'retain_dead', "
            "'retain_done', 'payload', 'max_length', 'unlogged'])")
    assert db.rows("SELECT lease, retry FROM queue.list()") == [("00:05:00", "exponential 10s 1h")]
    # an alter that fails changes nothing
    db.fails("22023", "SELECT queue.alter('q', ARRAY['lease', 'x'], ARRAY['1 min', 'y'])")
    assert db.value("SELECT lease FROM queue.list()") == "00:05:00"


BAD = [("lease", "0", "22023"), ("lease", "-1 s", "22023"), ("lease", "soon", "22023"),
       ("lease", "", "22023"), ("lease", "9999999999 years", "22023"),
       ("lease", "9000 years", "22023"), ("lease", "1 min'; DROP TABLE x", "22023"),
       ("max_attempts", "0", "22023"), ("max_attempts", "-1", "22023"),
       ("max_attempts", "many", "22023"), ("max_attempts", "99999999999999", "22023"),
       ("max_attempts", "1.5", "22023"), ("max_attempts", "", "22023"),
       ("retry", "", "22023"), ("retry", "sometimes", "22023"), ("retry", "fixed", "22023"),
       ("retry", "fixed 0", "22023"), ("retry", "fixed x", "22023"), ("retry", "none 1s", "22023"),
       ("retry", "linear", "22023"), ("retry", "exponential 10s", "22023"),
       ("retry", "exponential 1h 10s", "22023"), ("retry", "exponential 10s 1h 3", "22023"),
       ("retry", "exponential 10s 1h x0", "22023"), ("retry", "exponential 10s 1h x101", "22023"), ("retry", "exponential 10s x3", "22023"),
       ("retry", "arithmetic 1min", "22023"), ("retry", "arithmetic 1h 1s 1min", "22023"), ("retry", "arithmetic 1s 0 1h", "22023"),
       ("retry", "list", "22023"), ("retry", "list 1s,", "22023"), ("retry", "list 1s 2s", "22023"), ("retry", "list 1s, 0", "22023"),
       ("retry", "list " + ", ".join(["1s"] * 21), "22023"), ("retry", "lists 1s", "22023"), ("retry", "fixed 1s" + 500 * " " + "1s", "22023"), ("on_change", "later", "22023"),
        ("retry", "exponential 1s 2s 3s", "22023"),
       ("on_disconnect", "never", "22023"), ("durability", "maybe", "22023"),
       ("retain_dead", "-1 day", "22023"), ("retain_dead", "x", "22023"),
       ("retain_done", "x", "22023"), ("retain_done", "-1 day", "22023"),
       ("payload", "xml", "22023"), ("payload", "", "22023"),
       ("max_length", "0", "22023"), ("max_length", "-1", "22023"), ("max_length", "x", "22023"),
       ("max_length", "9999999999", "22023"), ("unlogged", "x", "22023")]


@pytest.mark.parametrize("option,value,sqlstate", BAD)
def test_bad_options(db, option, value, sqlstate):
    db.create("q")
    for sql in ["SELECT queue.create('p', false, ARRAY[%s], ARRAY[%s])",
                "SELECT queue.alter('q', ARRAY[%s], ARRAY[%s], '{}')"]:
        diag = db.fails(sqlstate, sql, option, value)
        assert '"%s"' % option in diag.message_primary
        assert diag.message_hint
    assert db.column("SELECT queue FROM queue.list()") == ["q"]


def test_option_lists(db):
    diag = db.fails("22023", "SELECT queue.create('p', false, ARRAY['leese'], ARRAY['1 min'])")
    assert diag.message_primary == 'unknown option "leese"'
    assert "lease, max_attempts, retry" in diag.message_hint
    db.fails("22023", "SELECT queue.create('p', false, ARRAY['lease', 'lease'], ARRAY['1s', '2s'])")
    db.fails("22023", "SELECT queue.create('p', false, ARRAY['lease'], '{}')")
    db.fails("22023", "SELECT queue.create('p', false, ARRAY['lease'], ARRAY[NULL]::text[])")
    db.fails("22023", "SELECT queue.create('p', false, ARRAY[NULL]::text[], ARRAY['1'])")
    db.create("p")
    db.fails("22023", "SELECT queue.alter('p', ARRAY['lease'], ARRAY['1 s'], ARRAY['lease'])")
    assert "unknown option" in db.fails(
        "22023", "SELECT queue.alter('p', '{}', '{}', ARRAY['x'])").message_primary


def test_linear_with_a_cap(db):
    db.create("p", retry="linear 5min 1h")
    assert db.value("SELECT retry FROM queue.list()") == "linear 5min 1h"
    for retry, shown in [(" List 1 s,2min ,1 h", "list 1s, 2min, 1h"), ("Exponential 1 s 1 h X3", "exponential 1s 1h x3"),
                         ("arithmetic 1 min  2 min", "arithmetic 1min 2min"), ("list " + ",".join(["1s"] * 20), None)]:
        db.rows("SELECT queue.alter('p', '{retry}', ARRAY[%s])", retry)
        assert shown is None or db.value("SELECT retry FROM queue.list()") == shown


def test_name_comes_back_with_new_number(db):
    db.create("q")
    db.push("q", "1")
    old = db.take("q")[0]["token"]
    db.rows("SELECT queue.drop('q')")
    diag = db.fails("QB001", "SELECT queue.done(%s)", old)
    assert diag.message_detail == "The queue was dropped."
    db.create("q")
    db.push("q", "1")
    assert db.take("q")[0]["token"].split("-")[0] != old.split("-")[0]
    db.fails("QB001", "SELECT queue.done(%s)", old)


@pytest.mark.parametrize("options", ["{}", "{max_length}", "{retain_done}"])
def test_drop_says_nothing(db, options):
    db.rows("SELECT queue.create('q', false, %s, %s)", options,
            {"{}": "{}", "{max_length}": "{10}", "{retain_done}": "{1 day}"}[options])
    db.rows("SELECT queue.drop('q')")
    assert db.notices == []


def test_drop_by_hand_is_survived(db):
    db.create("q")
    db.rows("DROP TABLE queue.q_q")
    assert db.column("SELECT queue FROM queue.list()") == ["q"]
    assert db.rows("SELECT * FROM queue.stats()") == []
    db.rows("SELECT queue.drop('q')")
    db.create("q")
