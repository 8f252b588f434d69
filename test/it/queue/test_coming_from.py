"""doc/coming-from.md: jobs of other queues are moved over; those that run stay where they are.

The tables have the columns that these queues document, and PgQ the functions. graphile-worker's and pg-boss's own are in
../drivers/test_other_queues.py. Brokers are played here: what a program has not acknowledged comes once more.
"""

import json
import re

import pytest

from moving import COMING_FROM, moves, program
from queuetest import qproxy, tag  # noqa: F401

TABLES = {
    "River": ("""CREATE TABLE river_job (id bigserial PRIMARY KEY, kind text, state text, args jsonb, priority smallint,
            scheduled_at timestamptz, max_attempts smallint, attempt smallint);
        INSERT INTO river_job (kind, state, args, priority, scheduled_at, max_attempts, attempt) VALUES
            ('mail', 'available', '{"n": 1}', 1, now(), 25, 0),
            ('mail', 'retryable', '{"n": 2}', 4, now() + interval '1 hour', 25, 3),
            ('mail', 'running', '{"n": 3}', 1, now(), 25, 1), ('print', 'available', '{"n": 4}', 1, now(), 25, 0)""",
              [('{"n": 1}', "ready", -1, 25), ('{"n": 2}', "later", -4, 22)], "SELECT count(*) FROM river_job", 2),
    "Oban": ("""CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state text, queue text, worker text, args jsonb,
            priority int, scheduled_at timestamp DEFAULT timezone('UTC', now()), max_attempts int, attempt int);
        INSERT INTO oban_jobs (state, queue, worker, args, priority, max_attempts, attempt) VALUES
            ('available', 'mail', 'App.Mail', '{"n": 1}', 0, 20, 0), ('executing', 'mail', 'App.Mail', '{}', 0, 20, 1);
        UPDATE oban_jobs SET scheduled_at = timezone('UTC', now() - interval '1 min')""",
             [('{"args": {"n": 1}, "worker": "App.Mail"}', "ready", 0, 20)], "SELECT count(*) FROM oban_jobs", 1),
    "pgmq": ("""CREATE SCHEMA pgmq; CREATE TABLE pgmq.q_mail (msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            read_ct int DEFAULT 0, enqueued_at timestamptz DEFAULT now(), vt timestamptz, message jsonb);
        INSERT INTO pgmq.q_mail (vt, message) VALUES (now(), '{"n": 1}'), (now() + interval '1 hour', '{"n": 2}')""",
             [('{"n": 1}', "ready", 0, None), ('{"n": 2}', "later", 0, None)], "SELECT count(*) FROM pgmq.q_mail", 0),
    "A table of your own with SKIP LOCKED": (
        """CREATE TABLE my_jobs (id int, state text, payload jsonb);
        INSERT INTO my_jobs VALUES (2, 'new', '2'), (1, 'new', '1'), (3, 'running', '3')""",
        [("1", "ready", 0, None), ("2", "ready", 0, None)], "SELECT count(*) FROM my_jobs", 1),
}


PGQ = """CREATE SCHEMA pgq;
    CREATE TABLE pgq.events (ev_id bigint, ev_type text, ev_data text); CREATE TABLE pgq.finished (batch bigint);
    INSERT INTO pgq.events VALUES (1, 'insert', 'a=1'), (2, 'delete', 'a=2');
    CREATE FUNCTION pgq.next_batch(queue text, consumer text) RETURNS bigint LANGUAGE sql AS 'SELECT 4711::bigint';
    CREATE FUNCTION pgq.get_batch_events(batch bigint) RETURNS SETOF pgq.events LANGUAGE sql AS 'SELECT * FROM pgq.events WHERE batch = 4711';
    CREATE FUNCTION pgq.finish_batch(batch bigint) RETURNS int LANGUAGE sql AS 'INSERT INTO pgq.finished VALUES (batch) RETURNING 1'"""
PEERS = ["graphile-worker", "pg-boss", "River", "Oban", "Celery", "Sidekiq", "pgmq", "PgQ", "SQS", "RabbitMQ",
         "A table of your own with SKIP LOCKED"]


class Stopped(Exception):
    """Of a program, before it acknowledges for the second time."""


class Broker:
    """Redis, SQS and a channel of RabbitMQ, as far as programs of the document use them. It stops the first one."""

    def __init__(self):
        self.lists = {"queue:mail": [json.dumps({"class": "Mail", "args": [n], "jid": "j%d" % n, "queue": "mail"}) for n in (2, 1)]}
        self.sets = {"schedule": {json.dumps({"class": "Mail", "args": [3], "jid": "j3", "queue": "mail"}): 4e9,
                                  json.dumps({"class": "Print", "args": [9], "jid": "j9", "queue": "print"}): 4e9},
                     "retry": {json.dumps({"class": "Mail", "args": [4], "jid": "j4", "queue": "mail"}): 1e9}}
        self.messages = {"j%d" % n: json.dumps({"n": n}) for n in (1, 2, 3)}
        self.patience = 1

    def acknowledged(self):
        self.patience -= 1
        if self.patience == -1:
            raise Stopped

    # Redis
    def lindex(self, name, at):
        return self.lists[name][at].encode() if self.lists[name] else None

    def rpop(self, name):
        self.acknowledged()
        self.lists[name].pop()

    def zrange(self, name, first, last, withscores):
        assert (first, last, withscores) == (0, -1, True)
        return sorted(((k.encode(), at) for k, at in self.sets[name].items()), key=lambda x: x[1])

    def zrem(self, name, one):
        self.acknowledged()
        del self.sets[name][one.decode()]

    # SQS
    def receive_message(self, QueueUrl, MaxNumberOfMessages, WaitTimeSeconds):
        some = list(self.messages.items())[:MaxNumberOfMessages]
        return {"Messages": [{"MessageId": k, "Body": v, "ReceiptHandle": k} for k, v in some]} if some else {}

    def delete_message(self, QueueUrl, ReceiptHandle):
        self.acknowledged()
        del self.messages[ReceiptHandle]

    # RabbitMQ
    def consume(self, queue, inactivity_timeout):
        for name, body in list(self.messages.items()):
            self.message_id = self.delivery_tag = name
            yield self, self, body.encode()
        yield None, None, None

    def basic_ack(self, delivery_tag):
        self.acknowledged()
        del self.messages[delivery_tag]


@pytest.mark.parametrize("title, wanted", [
    ("Sidekiq", [("[1]", "ready"), ("[2]", "ready"), ("[3]", "later"), ("[4]", "ready")]),
    ("SQS", [('{"n": %d}' % n, "ready") for n in (1, 2, 3)]),
    ("RabbitMQ", [('{"n": %d}' % n, "ready") for n in (1, 2, 3)]),
])  # fmt: skip
def test_a_program_moves_all_of_them_once(qproxy, db, title, wanted):  # noqa: F811
    broker = Broker()
    with qproxy.connect(db, autocommit=True) as pg:
        pg.execute("QUEUE CREATE mail")
        names = dict(pg=pg, json=json, redis=broker, sqs=broker, channel=broker, url="https://sqs.example.org/mail")
        with pytest.raises(Stopped):
            exec(program(title), names)
        exec(program(title), names)
        assert pg.execute("SELECT payload::text, state FROM queue.peek('mail') ORDER BY 1").fetchall() == wanted
    if title == "Sidekiq":
        assert (broker.lists, len(broker.sets["schedule"]), len(broker.sets["retry"])) == ({"queue:mail": []}, 1, 0)
    else:
        assert broker.messages == {}


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_batches_of_pgq(qproxy, db, kind):  # noqa: F811
    with qproxy.connect(db, autocommit=True) as conn:
        conn.execute("QUEUE CREATE orders" + (" WITH (kind = stream)" if kind == "stream" else ""))
        conn.execute(PGQ)
        if kind == "stream":
            conn.execute("QUEUE SUBSCRIBE bi TO orders")
        tags = [conn.execute(statement).statusmessage for statement in moves("PgQ")]
        assert tags == ["BEGIN", "SELECT 1", "INSERT 0 2", "SELECT 1", "COMMIT"]
        assert conn.execute("SELECT * FROM pgq.finished").fetchall() == [(4711,)]
        got = conn.execute("QUEUE TAKE orders FOR bi" if kind == "stream" else "QUEUE TAKE orders LIMIT 9").fetchall()
        assert len(got) == 2 and {"type": "insert", "data": "a=1"} in got[0]


def test_of_each_is_said_what_it_has_that_we_have_not():
    with open(COMING_FROM, encoding="utf-8") as f:
        sections = re.split(r"^## (.*)\n", f.read(), flags=re.M)[1:]
    found = dict(zip(sections[::2], sections[1::2]))
    assert list(found) == ["In general"] + PEERS
    for peer in PEERS:
        assert "It has, and qbouncer has not:" in found[peer], peer


@pytest.mark.parametrize("title", TABLES)
def test_moved(qproxy, db, title):  # noqa: F811
    tables, wanted, left_sql, left = TABLES[title]
    with qproxy.connect(db) as conn:
        conn.execute("QUEUE CREATE mail")
        conn.execute("SET timezone = 'Asia/Tokyo'")
        conn.execute(tables)
        for statement in moves(title):
            conn.execute(statement)
        got = conn.execute("SELECT payload::text, state, priority, (SELECT max_attempts FROM queue.q_mail q WHERE q.id = p.id)"
                           " FROM queue.peek('mail') p ORDER BY id").fetchall()
        assert [x[:3] for x in got] == [x[:3] for x in wanted]
        assert [x[3] for x in got] == [x[3] for x in wanted]
        assert conn.execute(left_sql).fetchone() == (left,)
