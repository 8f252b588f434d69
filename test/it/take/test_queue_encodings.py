"""Clients whose encodings differ name one queue by other bytes, if its name is not ASCII: who waits hears of it all the same.
There is no periodic look here.
"""

import pytest

from proxy import wait_for
from queuetest import parked, tag

NAME = '"m\u00fcll"'


@pytest.fixture
def proxy(qbouncer):
    return qbouncer(queue_rescan="1h", queue_safety_poll="1h", queue_heartbeat="20ms")


class Speaker:
    """A client, whose strings are in this encoding."""

    def __init__(self, wire, encoding):
        self.wire, self.encoding = wire, {"UTF8": "utf-8", "LATIN1": "latin-1"}[encoding]

    def query(self, sql):
        self.wire.query(sql.encode(self.encoding))

    def say(self, sql):
        self.query(sql)
        got = self.wire.until("Z", skip="S")
        assert [m.sqlstate for m in got if m.type == "E"] == [], sql

    def waits(self, sql):
        self.query(sql)
        parked(self.wire)

    def gets(self, column=4):
        """What it waited for, of that a column: names are in its own encoding."""
        got = self.wire.until("Z", skip="S")
        assert [m.sqlstate for m in got if m.type == "E"] == []
        return [m.row[column].decode() for m in got if m.type == "D"]

    def token(self, sql="QUEUE TAKE %s" % NAME):
        self.query(sql)
        return self.gets(1)[0]


# What the one does before the other waits, and with what comes of it, then.
NEWS = {
    "push": (None, "QUEUE PUSH %s '7'"),
    "key": (None, "QUEUE PUSH %s '7' KEY 'k'"),
    "group": (None, "QUEUE PUSH %s '7' GROUP 'g'"),
    "copy": (None, "QUEUE PUSH %s SELECT '7'"),
    "in a transaction": (None, "BEGIN; QUEUE PUSH %s '7'; COMMIT"),
    "release": ("QUEUE PUSH %s '7'", "QUEUE RELEASE '{token}'"),
    "fail": ("QUEUE PUSH %s '7'", "QUEUE FAIL '{token}' RETRY IN '0'"),
    "done": ("QUEUE PUSH %s '1', '7' GROUP 'g'", "QUEUE DONE '{token}'"),
    "rolled back": ("QUEUE PUSH %s '7' KEY 'k'; BEGIN; QUEUE PUSH %s '9' KEY 'k' ON DUPLICATE REPLACE", "ROLLBACK"),
    "then push": ("QUEUE PUSH %s '1'", "QUEUE DONE '{token}' THEN PUSH %s '7'"),
    "publish": ("QUEUE CREATE TOPIC t; QUEUE BIND %s TO 't.#'", "QUEUE PUBLISH 't.x' '7'"),
    "publish to such a topic": ('QUEUE CREATE TOPIC "\u00fc"; QUEUE BIND %s TO \'\u00fc.#\'', "QUEUE PUBLISH '\u00fc.\u00e4' '7'"),
    "alter job": ("QUEUE PUSH %s '7' DELAY '1 h'", "QUEUE ALTER JOB 1 ON %s SET (at = 'now')"),
    "redrive": ("QUEUE PUSH %s '7' DELAY '1 h'", "QUEUE REDRIVE %s STATE later"),
    "resume": ("QUEUE PUSH %s '7'; QUEUE PAUSE %s", "QUEUE RESUME %s"),
    "past the proxy": (None, "SELECT queue.push('m\u00fcll', '7')"),
}


def begin(c, first):
    c.say("QUEUE CREATE %s" % NAME)
    for sql in (first or "").split("; "):
        if sql:
            c.say(sql.replace("%s", NAME))


def heard(proxy, w):
    """There is the session that hears of what others do: whoever waits then has looked for the last time."""
    tag(w, "QUEUE CREATE other IF NOT EXISTS")
    w.query("QUEUE TAKE other WAIT '1 h'")
    parked(w)
    wait_for(lambda: [r["system"] for r in proxy.console("SHOW QUEUES") if r["queue"] == "other"] == ["up"], "it")


@pytest.mark.parametrize("says, hears", [("LATIN1", "UTF8"), ("UTF8", "LATIN1")])
@pytest.mark.parametrize("news", NEWS)
def test_who_waits_hears(proxy, db, news, says, hears):
    first, sql = NEWS[news]
    with proxy.wire(db, client_encoding=says) as one, proxy.wire(db, client_encoding=hears) as two, proxy.wire(db) as three:
        one, two = Speaker(one, says), Speaker(two, hears)
        heard(proxy, three)
        begin(one, first)
        if "{token}" in sql:
            sql = sql.replace("{token}", one.token())
        two.waits("QUEUE TAKE %s WAIT '15 s'" % NAME)
        for part in sql.replace("%s", NAME).split("; "):
            one.say(part)
        assert two.gets() == ["7"]


@pytest.mark.parametrize("says, hears", [("LATIN1", "UTF8"), ("UTF8", "LATIN1")])
@pytest.mark.parametrize("news", ["push", "done", "of one with such a name"])
def test_who_reads_a_stream_hears(proxy, db, news, says, hears):
    sub = '"\u00e4 of b"' if news == "of one with such a name" else "a"
    with proxy.wire(db, client_encoding=says) as one, proxy.wire(db, client_encoding=hears) as two, proxy.wire(db) as three:
        one, two = Speaker(one, says), Speaker(two, hears)
        heard(proxy, three)
        one.say("QUEUE CREATE %s WITH (kind = stream)" % NAME)
        one.say("QUEUE SUBSCRIBE %s TO %s" % (sub, NAME))
        if news != "push":
            one.say("QUEUE PUSH %s '1'" % NAME)
            token = one.token("QUEUE TAKE %s FOR %s" % (NAME, sub))
            one.say("QUEUE PUSH %s '7'" % NAME)
        two.waits("QUEUE TAKE %s FOR %s WAIT '15 s'" % (NAME, sub))
        one.say("QUEUE PUSH %s '7'" % NAME if news == "push" else "QUEUE DONE '%s'" % token)
        assert two.gets() == ["7"]


@pytest.mark.parametrize("says", ["LATIN1", "UTF8"])
@pytest.mark.parametrize("hears", ["LATIN1", "UTF8"])
def test_at_another_proxy(qbouncer, db, says, hears):
    """It is told in UTF8, or that it may be any queue."""
    here, there = (qbouncer(queue_rescan="1h", queue_safety_poll="1h", queue_heartbeat="20ms") for _ in "12")
    with here.wire(db, client_encoding=says) as one, there.wire(db, client_encoding=hears) as two, \
            here.wire(db) as three, there.wire(db) as four:
        one, two = Speaker(one, says), Speaker(two, hears)
        heard(here, three)
        heard(there, four)
        one.say("QUEUE CREATE %s" % NAME)
        two.waits("QUEUE TAKE %s WAIT '15 s'" % NAME)
        one.say("QUEUE PUSH %s '7'" % NAME)
        assert two.gets() == ["7"]


def test_the_console_is_read(proxy, db):
    """Whatever clients call themselves, and queues, in their encodings."""
    with proxy.wire(db, client_encoding="LATIN1") as one:
        one = Speaker(one, "LATIN1")
        one.say("QUEUE CREATE %s" % NAME)
        one.waits("QUEUE TAKE %s WAIT '15 s' AS 'caf\u00e9'" % NAME)
        assert [r["queue"] for r in proxy.console("SHOW QUEUES")] == ["m\\xFCll"]
        assert [r["worker"] for r in proxy.console("SHOW WAITERS")] == ["caf\\xE9"]
