"""The algorithm of pgmq as its documentation tells it, written by hand for this benchmark: a table
with a time until which a message is invisible, functions with dynamic SQL for send, read, delete.
(pgmq itself has no Debian package.)
"""

from contenders import PAYLOAD
from contenders.sql import Sql

TABLE = """
DROP SCHEMA IF EXISTS pgmq_like CASCADE;
CREATE SCHEMA pgmq_like;
CREATE TABLE pgmq_like.q_jobs (msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  read_ct int NOT NULL DEFAULT 0, enqueued_at timestamptz NOT NULL DEFAULT now(),
  vt timestamptz NOT NULL, message jsonb, headers jsonb);
CREATE INDEX ON pgmq_like.q_jobs (vt);
CREATE FUNCTION pgmq_like.send(queue text, message jsonb) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE format('INSERT INTO pgmq_like.%I (vt, message) VALUES (clock_timestamp(), $1)
    RETURNING msg_id', 'q_' || queue) USING message;
END $$;
CREATE FUNCTION pgmq_like.send_batch(queue text, messages jsonb[]) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE format('INSERT INTO pgmq_like.%I (vt, message)
    SELECT clock_timestamp(), m FROM unnest($1) AS m RETURNING msg_id', 'q_' || queue) USING messages;
END $$;
CREATE FUNCTION pgmq_like.read(queue text, vt int, qty int) RETURNS SETOF pgmq_like.q_jobs
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE format('WITH found AS (SELECT msg_id FROM pgmq_like.%1$I
      WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP LOCKED)
    UPDATE pgmq_like.%1$I AS m SET vt = clock_timestamp() + make_interval(secs => $2),
      read_ct = read_ct + 1 FROM found WHERE m.msg_id = found.msg_id RETURNING m.*', 'q_' || queue)
    USING qty, vt;
END $$;
CREATE FUNCTION pgmq_like.delete(queue text, ids bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE format('DELETE FROM pgmq_like.%I WHERE msg_id = ANY ($1) RETURNING msg_id',
    'q_' || queue) USING ids;
END $$;
"""


class Pgmq(Sql):
    """pgmq-like."""

    name = "pgmq-like"
    table = "pgmq_like.q_jobs"

    def fresh(self, rig, poolers):
        rig.psql(TABLE)

    def fill(self, rig, poolers, n):
        rig.psql("INSERT INTO pgmq_like.q_jobs (vt, message) SELECT now(), '%s' "
                 "FROM generate_series(1, %d)" % (PAYLOAD, n))

    def push(self, batch):
        if batch == 1:
            return "SELECT pgmq_like.send('jobs', '%s')" % PAYLOAD
        return "SELECT pgmq_like.send_batch('jobs', ARRAY[%s]::jsonb[])" % \
            ", ".join(["'%s'" % PAYLOAD] * batch)

    def take(self, batch):
        return "SELECT * FROM pgmq_like.read('jobs', 300, %d)" % batch

    def done(self, batch):
        return "SELECT pgmq_like.delete('jobs', '{%s}')"

    def script(self, mode):
        done = "'{:msg_id}'" if mode == "simple" else "ARRAY[:msg_id::bigint]"
        return "%s;\n%s \\gset\nSELECT pgmq_like.delete('jobs', %s);\n" % (
            self.push(1), self.take(1), done)
