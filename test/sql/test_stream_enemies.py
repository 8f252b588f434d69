"""Who may SUBSCRIBE, and no more, writes rows of his own by hand: nobody else's retention, maintenance or figures stop for it."""

import pytest

from test_retain import later, ring, turns
from test_stream import put

BIG, FAR = 9223372036854775807, "'9223372036854775806:9223372036854775807:9223372036854775806'"

POSITIONS = {
    "none": None,
    "far": f"({{u}}, 9, 'mallory', {FAR}, {FAR}, 0, false, 0)",
    "the last one": f"({{u}}, {BIG}, 'mallory', '3:3:', NULL, 0, false, 0)",
    "backwards": "({u}, 9, 'mallory', '900:900:', '3:3:', 0, true, 0)",
    "much that was open": "({u}, 9, 'mallory', (SELECT ('3:9000:' || string_agg(g::text, ',' ORDER BY g))::pg_snapshot FROM generate_series(3, 8999) AS g), "
                          "'9000:9000:', 0, true, 0)",
    "far places": f"({{u}}, 9, 'mallory', '3:3:', '900:900:', {BIG}, true, {BIG})",
    "low places": f"({{u}}, 9, 'mallory', '3:3:', '900:900:', {-BIG}, true, {-BIG})",
}
DELIVERY = "INSERT INTO queue.deliveries VALUES ({u}, %s, 'mallory', '%s', %s, %s, %s, true, %s, %s, %s, %s, %s, now(), 'w', 'e', 99)"
DELIVERIES = {
    "far": DELIVERY % (BIG, "x", FAR, FAR, BIG, BIG, -BIG, 2147483647, 2147483647, "'infinity'"),
    "none": DELIVERY % (-BIG, "0123456789abcdef", "'3:3:'", "NULL", -BIG, -BIG, BIG, -2147483648, -2147483648, "'-infinity'"),
    "odd": DELIVERY % (1, "-", "NULL", "'3:3:'", 0, 0, 0, 0, 0, "'infinity'"),
}


@pytest.fixture
def enemy(db):
    """mallory, with a subscription of hers, where something waits that she does not read."""
    db.rows("SELECT queue.create('s', false, '{kind,retain_max}', '{stream,1 h}'), queue.grant('s', '{subscribe}', '{mallory}')")
    mallory = db.connect("mallory")
    mallory.rows("SELECT queue.subscribe('m', 's', 'beginning')")
    put(db, 1, 2, 3)
    return mallory


@pytest.fixture
def number(enemy):
    return enemy.value("SELECT number FROM queue.subscriptions")


def everybody_goes_on(db):
    """With a superuser's eyes, who sees all rows, and with those of the stream's owner."""
    root = db.connect("postgres")
    for who in root, db:
        for sql in "queue.subscriptions()", "queue.stats()", "queue.health()", "queue._gauges(1000)":
            who.rows("SELECT x::text FROM %s AS x" % sql)
    later(db)
    assert turns(db) == ["moved", "emptied"] and sum(ring(db)[0]) == 0


@pytest.mark.parametrize("what", POSITIONS)
def test_positions(db, enemy, number, what):
    if POSITIONS[what]:
        enemy.rows("INSERT INTO queue.positions (sub, seq, owner, s1, s2, floor, early, last) VALUES " + POSITIONS[what].format(u=number))
    everybody_goes_on(db)


@pytest.mark.parametrize("what", ["at", "rate", "delivered", "delivery"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_figures_of_positions(db, enemy, number, what, sign):
    far = {"at": "'%sinfinity'", "rate": "'%sinfinity'", "delivered": "'%s9223372036854775807'", "delivery": "'%s9223372036854775807'"}[what] % sign
    enemy.rows("INSERT INTO queue.positions (sub, seq, owner, s1, %s) VALUES (%s, 9, 'mallory', '3:3:', %s)" % (what, number, far))
    everybody_goes_on(db)


@pytest.mark.parametrize("what", DELIVERIES)
def test_deliveries(db, enemy, number, what):
    enemy.rows(DELIVERIES[what].format(u=number))
    everybody_goes_on(db)


@pytest.mark.parametrize("columns, values", [
    ("due_at, dead, attempt, pushed_at", "'infinity', false, 2147483647, 'infinity'"),
    ("due_at, dead, attempt, pushed_at", "'-infinity', true, -2147483648, '-infinity'"),
    ("due_at, dead, attempt, pushed_at, \"group\", blocks", "'-infinity', false, 0, now(), 'g', true")])
def test_retries(db, enemy, number, columns, values):
    enemy.rows("INSERT INTO queue.retries (sub, id, owner, xid, payload_jsonb, %s) VALUES (%s, 1, 'mallory', '3', '1', %s)" % (columns, number, values))
    everybody_goes_on(db)


@pytest.mark.parametrize("change", ["from_id = 9223372036854775807", "from_id = -9223372036854775807", "from_time = 'infinity'",
                                    "from_time = '-infinity'", "lost_at = 'infinity'", "lost_id = 9223372036854775807", "retry = 'nonsense'",
                                    "lease = '8000 years'", "max_attempts = 2147483647", "ends = '3:3:'", "waits = true", "ends = " + FAR])
def test_subscriptions(db, enemy, number, change):
    enemy.rows("UPDATE queue.subscriptions SET %s WHERE number = %s" % (change, number))
    everybody_goes_on(db)


def test_names(db, enemy):
    """As many, and as odd, as she likes."""
    enemy.rows("INSERT INTO queue.subscriptions (stream, name) SELECT number, 'x' || g || chr(10) FROM queue.streams, generate_series(1, 50) AS g")
    enemy.rows("INSERT INTO queue.positions (sub, seq, owner, s1) SELECT number, 1, 'mallory', '3:3:' FROM queue.subscriptions WHERE name LIKE 'x%'")
    everybody_goes_on(db)


def test_what_belongs_to_proxies_that_are_gone(db, enemy, number):
    """A token that cannot be one is left alone, and what others have comes back; nothing is left to be looked at again."""
    db.rows("SELECT queue.subscribe('a', 's', 'beginning')")
    db.rows("SET qbouncer.proxy = '77'")
    token = db.rows("SELECT token FROM queue.take_for('s', 'a')")[0][0]
    for i, odd in enumerate(("", "-", "0123456789ABCDEF", "0123456789abcdef-", "x" * 100)):
        enemy.rows("INSERT INTO queue.deliveries VALUES (%s, %s, 'mallory', %s, '3:3:', '3:3:', 0, false, 0, 1, 1, 1, 'infinity', now(), 'w', NULL, 99)",
                   number, 10 + i, odd)
    root = db.connect("postgres")
    assert root.row("SELECT * FROM queue._orphaned_deliveries('{0}', 3)") == (["s"], False)
    assert db.value("SELECT count(*) FROM queue.deliveries WHERE token = %s", token.split("-")[2]) == 0


def test_what_others_have_out_and_where_they_are(db, enemy, number):
    """Rows of his own a role may end and move by hand, and nobody else's."""
    db.rows("SELECT queue.subscribe('a', 's', 'beginning')")
    assert len(db.rows("SELECT * FROM queue.take_for('s', 'a')")) == 3 and len(enemy.rows("SELECT * FROM queue.take_for('s', 'm')")) == 3
    subs = dict(db.rows("SELECT name, number FROM queue.subscriptions"))
    enemy.rows("INSERT INTO queue._ended VALUES (%s, 1), (%s, 1)", subs["a"], subs["m"])
    enemy.rows("UPDATE queue.positions SET last = 99, seq = seq + 1")
    enemy.fails("42501", "UPDATE queue.positions SET sub = %s", subs["a"])
    root = db.connect("postgres")
    assert root.column("SELECT sub FROM queue.deliveries") == [subs["a"]]
    assert root.rows("SELECT sub, last = 99 FROM queue.positions ORDER BY sub") == sorted((n, name == "m") for name, n in subs.items())


def test_who_has_installed_it_is_nobody_special(db, enemy, number):
    """No policy holds for the owner of the tables."""
    db.rows("SELECT queue.subscribe('a', 's', 'beginning')")
    token = enemy.rows("SELECT token FROM queue.take_for('s', 'm')")[0][0]
    assert db.value("SELECT relowner = current_user::regrole AND NOT rolsuper FROM pg_class, pg_roles WHERE rolname = current_user"
                    " AND pg_class.oid = 'queue.deliveries'::regclass")
    db.fails("42501", "SELECT queue.take_for('s', 'm')")
    db.fails("42501", "SELECT queue.done(%s)", token)
    assert enemy.value("SELECT count(*) FROM queue.deliveries") == 1


PUSHED = {
    "a group in several buckets": """("group", bucket, payload) VALUES ('g', 1, '1'), ('g', 20000, '1'), ('g', 32767, '1')""",
    "a bucket of no lane": """("group", bucket, payload) VALUES ('g', -32768, '1')""",
    "a group that is long": """("group", bucket, payload) SELECT string_agg(md5(i::text), ''), 5, '1' FROM generate_series(1, 1000) AS i""",
    "a key that is long": """(key, payload) SELECT string_agg(md5(i::text), ''), '1' FROM generate_series(1, 1000) AS i""",
    "a group that is empty": """("group", bucket, payload) VALUES ('', 5, '1')""",
    "headers that are none": """(headers, payload) VALUES ('[1]', '1'), ('1', '1')""",
}


@pytest.mark.parametrize("options", [("on_fail", "block"), ("on_fail,parallel", "block,4")])
@pytest.mark.parametrize("what", PUSHED)
def test_rows_that_were_not_pushed(db, what, options):
    """Who may push writes them into its table. Each is read once, whatever becomes of its deliveries, and those of others are, too."""
    db.rows("SELECT queue.create('s', false, '{kind,retain_max}', '{stream,1 h}'), queue.grant('s', '{push}', '{mallory}')")
    db.rows("SELECT queue.subscribe('a', 's', 'beginning', %s, %s)", *("{%s}" % o for o in options))
    log = "queue.e%d_0" % db.value("SELECT number FROM queue.streams")
    db.rows("SELECT queue.push('s', '1', \"group\" => 'g')")
    db.connect("mallory").rows("INSERT INTO %s %s" % (log, PUSHED[what]))
    db.rows("SELECT queue.push('s', '1', \"group\" => 'g')")
    ends = iter(["fail(%s, retry_in => '0')", "fail(%s, events => ARRAY[{}], retry_in => '0')", "release(%s)"])
    done = []
    while events := db.rows("SELECT id, token FROM queue.take_for('s', 'a')"):
        end = next(ends, "done(%s)")
        db.rows("SELECT queue." + end.format(events[0][0]), events[0][1])
        if end == "done(%s)":
            done += [e[0] for e in events]
        elif "events" in end:  # with it those of its group
            done += [e[0] for e in events[1:] if not db.value("SELECT EXISTS (SELECT FROM queue.retries WHERE id = %s)", e[0])]
    assert sorted(done) == db.column("SELECT id FROM %s ORDER BY id" % log)
    everybody_goes_on(db)
