-- The verbs for triggers and for connections that do not pass through qbouncer. They tell the
-- proxies by NOTIFY, in the caller's transaction.

-- notify => false: Postgres prepares no transaction (PREPARE TRANSACTION) that has notified. Takers that wait find the job when a
-- proxy hears of the COMMIT PREPARED, or looks by itself.
--
-- One for each type (of bytea: payload.sql). A literal, or a parameter whose type nobody says, is that of text: it becomes what the
-- queue holds, as a literal does in an INSERT.
CREATE OR REPLACE FUNCTION queue.push(q text, payload text, priority int4 DEFAULT 0,
	delay interval DEFAULT NULL, run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL,
	expires interval DEFAULT NULL, attempts int4 DEFAULT NULL, key text DEFAULT NULL,
	on_duplicate text DEFAULT NULL, "group" text DEFAULT NULL, notify bool DEFAULT true,
	batch text DEFAULT NULL,
	keep_for interval DEFAULT NULL, newer timestamptz DEFAULT NULL, after text[] DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._push(q, ARRAY[payload], priority, delay, run_at, headers::text, coalesce(notify, true),
		expires, attempts, key, on_duplicate, "group", true, NULL, batch, keep_for, newer, after);
END
$$;

CREATE OR REPLACE FUNCTION queue.push(q text, payload jsonb, priority int4 DEFAULT 0,
	delay interval DEFAULT NULL, run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL,
	expires interval DEFAULT NULL, attempts int4 DEFAULT NULL, key text DEFAULT NULL,
	on_duplicate text DEFAULT NULL, "group" text DEFAULT NULL, notify bool DEFAULT true,
	batch text DEFAULT NULL,
	keep_for interval DEFAULT NULL, newer timestamptz DEFAULT NULL, after text[] DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._push(q, ARRAY[payload::text], priority, delay, run_at, headers::text, coalesce(notify, true),
		expires, attempts, key, on_duplicate, "group", true, 'jsonb', batch, keep_for, newer, after);
END
$$;

CREATE OR REPLACE FUNCTION queue.take(q text, lim int4 DEFAULT 1, lease interval DEFAULT NULL,
	worker text DEFAULT NULL, ids int8[] DEFAULT NULL, grouped bool DEFAULT false) RETURNS SETOF queue.taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	before CONSTANT text := current_setting('synchronous_commit');
BEGIN
	IF ids IS NOT NULL THEN
		IF grouped THEN
			PERFORM queue._no_lot('ids', 'Take either these jobs, or those of a group.');
		END IF;
		RETURN QUERY SELECT * FROM queue._take_ids_jsonb(q, lim, lease, worker, false, ids);
		PERFORM set_config('synchronous_commit', before, true);
		RETURN;
	END IF;
	IF grouped THEN
		RETURN QUERY SELECT w.* FROM queue._take_lot_jsonb(ARRAY[q], lim, lease, worker, false) AS t, LATERAL queue._without(t) AS w
			WHERE t.id IS NOT NULL;
	ELSE
		RETURN QUERY
			SELECT w.* FROM queue._take(ARRAY[q], lim, lease, worker, false) AS t, LATERAL queue._without(t) AS w WHERE t.id IS NOT NULL;
	END IF;
	-- the caller's own work may be in this transaction: its commit stays as durable as it was
	PERFORM set_config('synchronous_commit', before, true);
END
$$;

CREATE OR REPLACE FUNCTION queue.pop(q text, lim int4 DEFAULT 1, ids int8[] DEFAULT NULL) RETURNS SETOF queue.taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF ids IS NOT NULL THEN
		RETURN QUERY SELECT * FROM queue._take_ids_jsonb(q, lim, NULL, NULL, true, ids);
		RETURN;
	END IF;
	RETURN QUERY
		SELECT w.* FROM queue._take(ARRAY[q], lim, NULL, NULL, true) AS t, LATERAL queue._without(t) AS w WHERE t.id IS NOT NULL;
END
$$;

CREATE OR REPLACE FUNCTION queue.done(token text, result jsonb DEFAULT NULL, keep bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._done(queue._single(token), true, result::text, keep);
END
$$;

CREATE OR REPLACE FUNCTION queue.done(tokens text[], result jsonb DEFAULT NULL, keep bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._done(tokens, true, result::text, keep);
END
$$;

CREATE OR REPLACE FUNCTION queue.done_partial(tokens text[], result jsonb DEFAULT NULL, keep bool DEFAULT false)
RETURNS TABLE (job text, ok bool, sqlstate text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT d.job, d.ok, d.sqlstate FROM queue._done_partial(tokens, result::text, keep, true) AS d;
END
$$;

-- The id of the job in the other queue.
CREATE OR REPLACE FUNCTION queue.move(token text, q text, priority int4 DEFAULT 0, delay interval DEFAULT NULL,
	run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, on_duplicate text DEFAULT NULL, "group" text DEFAULT NULL,
	result jsonb DEFAULT NULL, keep bool DEFAULT false, keep_for interval DEFAULT NULL,
	newer timestamptz DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT m.id FROM queue._move(queue._single(token), result::text, keep, q, priority, delay, run_at,
		headers::text, expires, attempts, key, on_duplicate, "group", true, true, keep_for, newer) AS m);
END
$$;

CREATE OR REPLACE FUNCTION queue.fail(token text, error text DEFAULT NULL,
	retry_in interval DEFAULT NULL, final bool DEFAULT false, events int8[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._fail(queue._single(token), error, retry_in, final, true, events::text[]);
END
$$;

CREATE OR REPLACE FUNCTION queue.cancel(job text DEFAULT NULL, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._cancel(queue._single(job), true, q, k);
END
$$;

CREATE OR REPLACE FUNCTION queue.cancel(jobs text[], q text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._cancel(jobs, true, q);
END
$$;

CREATE OR REPLACE FUNCTION queue.rerun(job text DEFAULT NULL, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._rerun(queue._single(job), true, q, k);
END
$$;

CREATE OR REPLACE FUNCTION queue.rerun(jobs text[], q text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._rerun(jobs, true, q);
END
$$;

-- names: priority, at, payload, headers, expires, attempts.
CREATE OR REPLACE FUNCTION queue.alter_job(job text DEFAULT NULL, names text[] DEFAULT '{}', vals text[] DEFAULT '{}',
	q text DEFAULT NULL, k text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._alter_job(queue._single(job), names, vals, true, q, k);
END
$$;

CREATE OR REPLACE FUNCTION queue.release(token text, delay interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._release(queue._single(token), delay, true);
END
$$;

CREATE OR REPLACE FUNCTION queue.extend(token text, lease interval DEFAULT NULL, until timestamptz DEFAULT NULL,
	progress jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._extend(queue._single(token), lease, until, progress::text);
END
$$;

-- What has become of a job, if it has ended; without waiting for it.
CREATE OR REPLACE FUNCTION queue.await(job text DEFAULT NULL, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS TABLE (id int8, queue text, state text, result jsonb, error text, attempt int4,
	ended_at timestamptz, progress jsonb)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT a.id, a.queue, a.state, a.result, a.error, a.attempt, a.ended_at, a.progress
		FROM queue._await(CASE WHEN job IS NULL AND k IS NOT NULL THEN ARRAY[k] ELSE coalesce(queue._single(job), ARRAY[NULL::text]) END, q, false,
			job IS NULL AND k IS NOT NULL) AS a WHERE a.state IS NOT NULL;
END
$$;

-- Of several: a row for each that has ended, in their order.
CREATE OR REPLACE FUNCTION queue.await(jobs text[], q text DEFAULT NULL)
RETURNS TABLE (job text, id int8, queue text, state text, result jsonb, error text, attempt int4,
	ended_at timestamptz, progress jsonb)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT a.job, a.id, a.queue, a.state, a.result, a.error, a.attempt, a.ended_at, a.progress
		FROM queue._await(queue._list(jobs), q, false) AS a WHERE a.state IS NOT NULL ORDER BY a.n;
END
$$;

-- How many jobs of a batch are in which state, and whether none of them is unfinished.
CREATE OR REPLACE FUNCTION queue.await_batch(batch text, q text)
RETURNS TABLE (queue text, ended bool, ready int8, later int8, leased int8, blocked int8, dead int8, done int8,
	cancelled int8, expired int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT a.queue, a.ended, a.ready, a.later, a.leased, a.blocked, a.dead, a.done, a.cancelled, a.expired
		FROM queue._await_batch(ARRAY[batch], q, true) AS a;
END
$$;
