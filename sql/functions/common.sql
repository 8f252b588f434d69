-- What the other functions share: the version, the way from a name to its queue, and tokens.
--
-- Every function pins search_path: somebody else's public."=" is never seen. Names of tables
-- are made here and nowhere else, by format('%I').

CREATE OR REPLACE FUNCTION queue.version() RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'SELECT 1';

-- The table of a queue, schema included, quoted.
CREATE OR REPLACE FUNCTION queue._table(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$SELECT format('queue.%I', 'q_' || name)$$;

CREATE OR REPLACE FUNCTION queue._no_queue(q text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF q IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the queue''s name must not be null';
	END IF;
	RAISE EXCEPTION USING ERRCODE = '42P01',
		MESSAGE = format('queue "%s" does not exist', q),
		HINT = format('Create it with: QUEUE CREATE %I;', q);
END
$$;

CREATE OR REPLACE FUNCTION queue._find(q text) RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
BEGIN
	SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
	IF NOT FOUND THEN
		PERFORM queue._no_queue(q);
	END IF;
	RETURN cfg;
END
$$;

-- A commit that need not wait for the disk, if this statement is the whole transaction so far.
-- In a transaction that does something else as well, the user's own data is in it: those
-- commits stay as durable as the user asked. (A function's SET clause would end before the
-- commit; this lasts until it.)
CREATE OR REPLACE FUNCTION queue._commit_async() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF transaction_timestamp() = statement_timestamp()
			AND pg_current_xact_id_if_assigned() IS NULL THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END
$$;

-- Tokens "<queue number>-<id>-<16 hex digits>", by queue: ids ascending, each with its digits.
-- All functions that lock several jobs lock them in this order. name is NULL for a queue that
-- is gone. One token given twice counts once.
CREATE OR REPLACE FUNCTION queue._split(jobs text[])
RETURNS TABLE (number int4, name text, ids int8[], tokens text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	bad text;
BEGIN
	IF jobs IS NULL OR array_position(jobs, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a job must not be null',
			HINT = 'Pass the token that TAKE returned.';
	END IF;
	SELECT j INTO bad FROM unnest(jobs) AS j
		WHERE j !~ '^[0-9]{1,9}-[0-9]{1,18}-[0-9a-f]{16}$' LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('"%s" is not the token of a job', left(bad, 80)),
			HINT = 'Pass the token that TAKE returned; a bare id works only on the connection that holds the job.';
	END IF;
	RETURN QUERY
		SELECT s.number, max(c.name), array_agg(s.id ORDER BY s.id, s.token),
			array_agg(s.token ORDER BY s.id, s.token)
		FROM (SELECT DISTINCT split_part(j, '-', 1)::int4 AS number,
				split_part(j, '-', 2)::int8 AS id, split_part(j, '-', 3) AS token
			FROM unnest(jobs) AS j) AS s
		LEFT JOIN queue.queues AS c ON c.number = s.number
		GROUP BY s.number ORDER BY s.number;
END
$$;

-- Says why the first of these jobs that is not in "still" is lost. Nothing of the statement
-- has happened then: the error takes it all back.
CREATE OR REPLACE FUNCTION queue._lost(name text, ids int8[], tokens text[], still int8[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	at int4 := 1;
	job record;
	why text := 'The queue was dropped.';
BEGIN
	WHILE ids[at] = ANY (still) AND at < cardinality(ids) LOOP
		at := at + 1;
	END LOOP;
	IF name IS NOT NULL THEN
		EXECUTE format('SELECT state, token, lease_until, error FROM %s WHERE id = $1',
			queue._table(name)) INTO job USING ids[at];
		why := CASE
			WHEN job.state IS NULL THEN 'The job is finished and gone.'
			WHEN job.state = 'leased' AND job.token = tokens[at]
				THEN format('The lease ended at %s.', job.lease_until)
			WHEN job.state = 'leased'
				THEN 'The lease expired or was given back, and the job has been taken again.'
			WHEN job.error IS NOT NULL
				THEN format('The job is %s now; its last error: %s', job.state, left(job.error, 200))
			ELSE format('The job was released and is %s now.', job.state) END;
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'QB001',
		MESSAGE = format('the lease of job %s is lost', ids[at]),
		DETAIL = why,
		HINT = 'Nothing was changed. Take with a longer LEASE, or EXTEND it before it ends.';
END
$$;
