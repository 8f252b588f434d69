"""doc/coming-from.md: jobs of other queues are moved over; those that run stay where they are.

The tables have the columns that these queues document. graphile-worker's and pg-boss's own are in
../drivers/test_other_queues.py.
"""

import pytest

from moving import moves
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
