"""PUSH."""

import pytest


@pytest.fixture
def q(db):
    db.create("q")
    return db


def test_ids_in_order(q):
    assert q.push("q", '"a"', '"b"', '"c"') == [1, 2, 3]
    assert q.push("q") == []
    assert [job["payload"] for job in q.take("q", 10)] == ["a", "b", "c"]


def test_large_batch_keeps_order(q):
    ids = q.push("q", *[str(n) for n in range(5000)])
    assert ids == sorted(ids)
    assert [job["payload"] for job in q.take("q", 5000)] == list(range(5000))


def test_columns(q):
    q.push("q", '{"to": "a"}', priority=7, headers='{"h": 1}')
    job = q.job("q", 1)
    assert (job["state"], job["priority"], job["attempt"], job["failures"]) == ("ready", 7, 0, 0)
    assert job["headers"] == {"h": 1} and job["payload"] == {"to": "a"}
    assert all(job[name] is None for name in
               ("run_at", "lease_until", "token", "worker", "error", "key", "group", "expires_at"))
    assert q.value("SELECT pushed_at BETWEEN now() - interval '1 min' AND clock_timestamp() "
                   "FROM queue.q_q")


@pytest.mark.parametrize("payload", ["", "{", "nope", "{'a': 1}", '"\\u0000"', "1 2"])
def test_bad_json(q, payload):
    diag = q.fails("22P02" if "u0000" not in payload else "22P05",
                   "SELECT queue._push('q', ARRAY['1', %s], NULL, NULL, NULL, NULL, false)",
                   payload)
    assert diag.message_primary
    assert q.rows("SELECT * FROM queue.q_q") == []


def test_null_payload(q):
    q.fails("22004", "SELECT queue._push('q', ARRAY['1', NULL], NULL, NULL, NULL, NULL, false)")
    q.fails("22004", "SELECT queue._push('q', NULL, NULL, NULL, NULL, NULL, false)")
    q.push("q", "null")
    assert len(q.take("q")) == 1


def test_headers(q):
    q.fails("22P02", "SELECT queue._push('q', ARRAY['1'], NULL, NULL, NULL, '{', false)")
    diag = q.fails("22023", "SELECT queue._push('q', ARRAY['1'], NULL, NULL, NULL, '[1]', false)")
    assert diag.message_hint
    q.push("q", "1", headers="null")


def test_payload_is_only_data(q):
    for text in ["'; DROP TABLE queue.q_q; --", "$body$", "%s", "@table@", "\\"]:
        (number,) = q.push("q", q.value("SELECT to_jsonb(%s::text)::text", text))
        assert q.job("q", number)["payload"] == text


def test_later(q):
    q.push("q", "1", delay="1 hour")
    q.push("q", "2", at="2999-01-01")
    assert [q.job("q", n)["state"] for n in (1, 2)] == ["later", "later"]
    assert 3590000 < q.due_ms("q") <= 3600000


def test_time_in_the_past_is_now(q):
    q.push("q", "1", delay="-1 hour")
    q.push("q", "2", delay="0")
    q.push("q", "3", at="1999-01-01")
    assert [job["id"] for job in q.take("q", 5)] == [1, 2, 3]


def test_bad_times(q):
    call = "SELECT queue._push('q', ARRAY['1'], NULL, %s::interval, %s::timestamptz, NULL, false)"
    assert "together" in q.fails("22023", call, "1 s", "2999-01-01").message_primary
    q.fails("22008", call, None, "infinity")
    q.fails("22008", call, None, "-infinity")
    q.fails("22008", call, "300000 years", None)


def test_delay_counts_from_the_statement(q):
    """Not from the transaction's begin, which may be long ago."""
    with q.conn.transaction():
        begin = q.value("SELECT now()")
        q.value("SELECT count(*) FROM generate_series(1, 20000)")
        q.push("q", "1", delay="1 h")
    assert (q.job("q", 1)["run_at"] - begin).total_seconds() > 3600


def test_rolls_back_with_the_transaction(q):
    q.rows("BEGIN")
    q.push("q", "1")
    q.rows("SAVEPOINT s")
    q.push("q", "2")
    q.rows("ROLLBACK TO s")
    q.push("q", "3")
    q.rows("COMMIT")
    assert [job["payload"] for job in q.take("q", 5)] == [1, 3]


def test_notify(q):
    listener = q.connect()
    listener.rows("LISTEN qbouncer")
    q.push("q", "1", notify=False)
    q.rows("SELECT queue.push('q', '2')")
    q.create("end")
    q.push("end", "1", notify=True)
    heard = []
    for note in listener.conn.notifies():
        heard.append((note.channel, note.payload))
        if note.payload == "end":
            break
    assert heard == [("qbouncer", "q"), ("qbouncer", "end")]


def test_public_push(q):
    assert q.value("SELECT queue.push('q', '{\"a\": 1}')") == 1
    assert q.value("SELECT queue.push('q', '2', priority => 5, headers => '{\"h\": 1}')") == 2
    assert q.value("SELECT queue.push('q', '3', delay => '1 h')") == 3
    assert q.value("SELECT queue.push('q', '4', run_at => '1999-01-01')") == 4
    assert [job["id"] for job in q.take("q", 9)] == [2, 1, 4]
    q.fails("22004", "SELECT queue.push('q', NULL)")


def test_push_from_a_trigger(q):
    q.rows("CREATE TABLE orders (id int)")
    q.rows("CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS "
           "'BEGIN PERFORM queue.push(''q'', to_jsonb(new)); RETURN new; END'")
    q.rows("CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION t()")
    q.rows("INSERT INTO orders VALUES (1), (2)")
    assert [job["payload"] for job in q.take("q", 9)] == [{"id": 1}, {"id": 2}]


def test_async_only_for_itself(q):
    """durability async must not make the user's own data in the same transaction less durable."""
    q.create("fast", durability="async")
    q.rows("CREATE TABLE mine (x int)")
    sync = "SELECT current_setting('synchronous_commit')"
    both = "SELECT queue.push('fast', '1'), current_setting('synchronous_commit')"
    assert q.row("SELECT s FROM queue.push('fast', '1'), current_setting('synchronous_commit') AS s")
    assert q.row(both)[1] == "off"
    assert q.value(sync) == "on"
    with q.conn.transaction():
        q.rows("INSERT INTO mine VALUES (1)")
        assert q.row(both)[1] == "on"
    with q.conn.transaction():
        assert q.row(both)[1] == "on"
        q.rows("INSERT INTO mine VALUES (1)")
    assert q.row(both.replace("'fast'", "'q'"))[1] == "on"


def test_async_is_not_for_what_comes_after_it(q):
    q.create("fast", durability="async")
    q.rows("CREATE TABLE mine (x text)")
    sync = "current_setting('synchronous_commit')"
    q.rows("CREATE FUNCTION f() RETURNS text LANGUAGE plpgsql AS $$ BEGIN "
           "PERFORM queue.push('fast', '1'); RETURN %s; END $$" % sync)
    q.rows("CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
           "PERFORM queue.push('fast', '1'); NEW.x := %s; RETURN NEW; END $$" % sync)
    assert q.value("SELECT f()") == "on"
    q.script("SELECT queue.push('fast', '1'); INSERT INTO mine VALUES (%s)" % sync)
    q.rows("INSERT INTO mine SELECT %s FROM queue.push('fast', '1')" % sync)
    q.rows("CREATE TRIGGER t BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION t()")
    q.rows("INSERT INTO mine VALUES ('queue')")
    assert q.column("SELECT x FROM mine") == ["on"] * 3


def hand(session, payload, since="NULL", options="NULL, NULL, NULL, NULL"):
    """A push that is handed over to somebody who waits. since: a time ahead, and it does not look what
    is due. options: DELAY, HEADERS, EXPIRES, ATTEMPTS."""
    return session.row("SELECT id, token IS NOT NULL FROM queue._hand_1((SELECT c FROM queue.queues AS c WHERE number = 1), "
                       "ARRAY[%s], 0, '{0}', '{NULL}', '{w}', 0, '{}', '{}', " + since + ", " + options + ")", payload)


AHEAD = "(extract(epoch FROM clock_timestamp()) * 1000000)::int8 + 3600000000"


@pytest.mark.parametrize("since", ["NULL", AHEAD])
def test_hand_over(q, since):
    """Only if nothing is ready that goes before it."""
    assert hand(q, "1", since) == (1, True)
    job = q.job("q", 1)
    assert (job["state"], job["attempt"], job["worker"], job["proxy"]) == ("leased", 1, "w", None)
    assert len(job["token"]) == 16 and job["lease_until"] > job["pushed_at"]
    q.push("q", "2", priority=-1)
    assert hand(q, "3", since) == (3, True)
    q.push("q", "4")
    assert hand(q, "5", since) == (5, False)
    assert [job["payload"] for job in q.take("q", 2)] == [4, 5]
    q.push("q", "6", priority=1)
    assert hand(q, "7", since) == (7, False)
    assert [job["payload"] for job in q.take("q", 9)] == [6, 7, 2]
    q.push("q", "8", delay="1 h")
    q.rows("UPDATE queue.q_q SET run_at = clock_timestamp() WHERE state = 'later'")
    assert hand(q, "9", since) == (9, since != "NULL")


@pytest.mark.parametrize("since", ["NULL", AHEAD])
def test_hand_over_to_a_proxy(q, since):
    """As a take does it: with the lease that was asked for, and who holds the job."""
    call = ("SELECT j.token, j.due_ms FROM queue.queues AS c, queue._hand_1(c, '{1}', 0, ARRAY[%s], '{10 s}', "
            "'{NULL}', 0, '{}', '{}', " + since + ") AS j")
    token, due_ms = q.row(call, 4711)
    assert token.split("-")[:2] == ["1", "1"] and due_ms == 10000
    assert q.job("q", 1)["proxy"] == 4711
    assert q.done(token) == ["q"]
    q.row(call, -4712)
    assert q.job("q", 2)["proxy"] == 4712
    q.rows("SELECT queue.alter('q', '{on_disconnect}', '{keep}')")
    q.row(call, 4713)
    q.row(call, -4714)
    assert [q.job("q", n)["proxy"] for n in (3, 4)] == [None, 4714]


def test_hand_over_by_who_may_not_take(q):
    """He who waits may have lost the right since: the push goes on."""
    q.rows("SELECT queue.grant('q', '{push,take}', '{bob}')")
    bob = q.connect("bob")
    assert hand(bob, "1") == (1, True)
    q.rows("SELECT queue.revoke('q', '{take}', '{bob}')")
    assert hand(bob, "2") == (2, False)
    q.rows("SELECT queue.pause('q')")
    assert hand(q, "3") == (3, False)
    q.rows("SELECT queue.resume('q')")
    assert [job["payload"] for job in q.take("q", 9)] == [2, 3]


@pytest.mark.parametrize("since", ["NULL", AHEAD])
def test_hand_over_with_options(q, since):
    options = "'0', '{\"h\": 1}', '1 hour', 3"
    assert hand(q, "1", since, options) == (1, True)
    columns = "SELECT headers, max_attempts, expires_at - pushed_at <= '1 hour', run_at <= pushed_at, state FROM queue.q_q"
    assert q.rows(columns) == [({"h": 1}, 3, True, True, "leased")]
    assert hand(q, "2", since, "NULL, NULL, '1 microsecond', NULL") == (2, False)
    assert q.job("q", 2)["state"] == "ready"
    assert hand(q, "3", since, "NULL, NULL, NULL, 1") == (3, False)
    q.rows("SELECT queue.pause('q')")
    q.rows("DELETE FROM queue.q_q")
    assert hand(q, "4", since, options) == (4, False)
    assert q.rows(columns) == [({"h": 1}, 3, True, True, "ready")]
