-- What ends or moves a lease: DONE, FAIL, RELEASE, EXTEND, and the proxy's giving back.
--
-- Each compares the token, and each but the last refuses a lease whose time is over, whether
-- or not somebody has noticed yet. Jobs are locked in the order of their ids (a scan of the
-- key with a sorted array; width_bucket finds a job's place in it).

-- The names of the queues of these jobs, one row each, in their order.
CREATE OR REPLACE FUNCTION queue._names(jobs text[]) RETURNS SETOF text
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.name FROM unnest(jobs) WITH ORDINALITY AS j(job, n)
		JOIN queue.queues AS c ON c.number = split_part(job, '-', 1)::int4
		ORDER BY n
$$;

CREATE OR REPLACE FUNCTION queue._done(jobs text[], notify bool) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	still int8[];
BEGIN
	FOR part IN SELECT s.*, c.durability FROM queue._split(jobs) AS s
			LEFT JOIN queue.queues AS c ON c.number = s.number LOOP
		IF part.name IS NULL THEN
			PERFORM queue._lost(NULL, part.ids, part.tokens, NULL);
		END IF;
		IF part.durability = 'async' THEN
			PERFORM queue._commit_async();
		END IF;
		EXECUTE format($sql$
			WITH job AS (
				DELETE FROM queue.%I WHERE id = ANY ($1)
					AND token = ($2)[width_bucket(id, $1)] AND lease_until > clock_timestamp()
				RETURNING id)
			SELECT array_agg(id) FROM job
		$sql$, 'q_' || part.name) INTO still USING part.ids, part.tokens;
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			PERFORM queue._lost(part.name, part.ids, part.tokens, still);
		END IF;
	END LOOP;
	RETURN QUERY SELECT queue._names(jobs);
END
$$;

-- The pause before the next attempt, after so many failures; +-10 %, so that what failed
-- together does not come back together.
CREATE OR REPLACE FUNCTION queue._pause(kind text, base interval, cap interval, failures int4)
RETURNS interval
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT make_interval(secs => (0.9 + 0.2 * random()) * least(
		extract(epoch FROM cap)::float8,
		extract(epoch FROM base)::float8 * CASE kind
			WHEN 'exponential' THEN power(2, least(failures, 100) - 1)
			WHEN 'linear' THEN failures
			ELSE 1 END))
$$;

-- Errors are kept up to 8 kB.
CREATE OR REPLACE FUNCTION queue._error_text(error text) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$SELECT CASE WHEN octet_length(error) <= 8192 THEN error
	WHEN octet_length(left(error, 8192)) <= 8192 THEN left(error, 8192)
	ELSE left(error, 2048) END$$;

CREATE OR REPLACE FUNCTION queue._fail(jobs text[], error text, retry_in interval, final bool,
	notify bool) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	still int8[];
BEGIN
	IF retry_in IS NOT NULL AND final THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = 'RETRY IN and FINAL cannot be given together', HINT = 'Give one of them.';
	ELSIF retry_in > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'RETRY IN is too long';
	END IF;
	FOR part IN SELECT s.*, c.max_attempts, c.retry_kind, c.retry_base, c.retry_cap
			FROM queue._split(jobs) AS s LEFT JOIN queue.queues AS c ON c.number = s.number LOOP
		IF part.name IS NULL THEN
			PERFORM queue._lost(NULL, part.ids, part.tokens, NULL);
		END IF;
		EXECUTE format($sql$
			WITH job AS (
				UPDATE %s SET
					state = CASE WHEN $3 OR attempt >= $4 THEN 'dead'
						WHEN $5 <= interval '0' THEN 'ready' ELSE 'later' END,
					position = DEFAULT,
					run_at = CASE WHEN $3 OR attempt >= $4 THEN run_at
						ELSE clock_timestamp() + coalesce($5, queue._pause($6, $7, $8, failures + 1)) END,
					ended_at = CASE WHEN $3 OR attempt >= $4 THEN clock_timestamp() END,
					failures = failures + 1, error = $9, token = NULL, lease_until = NULL
				WHERE id = ANY ($1) AND token = ($2)[width_bucket(id, $1)]
					AND lease_until > clock_timestamp()
				RETURNING id)
			SELECT array_agg(id) FROM job
		$sql$, queue._table(part.name)) INTO still
			USING part.ids, part.tokens,
				coalesce(final, false) OR (part.retry_kind = 'none' AND retry_in IS NULL),
				part.max_attempts, retry_in, part.retry_kind, part.retry_base, part.retry_cap,
				queue._error_text(error);
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			PERFORM queue._lost(part.name, part.ids, part.tokens, still);
		END IF;
		IF notify THEN
			PERFORM pg_notify('qbouncer', part.name);
		END IF;
	END LOOP;
	RETURN QUERY SELECT queue._names(jobs);
END
$$;

-- A released job keeps its place: it is the next one again, as if it had not been taken. With
-- a delay it gets a new place when its time comes.
CREATE OR REPLACE FUNCTION queue._release(jobs text[], delay interval, notify bool)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	still int8[];
BEGIN
	IF delay > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'DELAY is too long';
	END IF;
	FOR part IN SELECT * FROM queue._split(jobs) LOOP
		IF part.name IS NULL THEN
			PERFORM queue._lost(NULL, part.ids, part.tokens, NULL);
		END IF;
		EXECUTE format($sql$
			WITH job AS (
				UPDATE %s SET state = CASE WHEN $3 > interval '0' THEN 'later' ELSE 'ready' END,
					run_at = CASE WHEN $3 > interval '0' THEN clock_timestamp() + $3 ELSE run_at END,
					attempt = attempt - 1, token = NULL, lease_until = NULL
				WHERE id = ANY ($1) AND token = ($2)[width_bucket(id, $1)]
					AND lease_until > clock_timestamp()
				RETURNING id)
			SELECT array_agg(id) FROM job
		$sql$, queue._table(part.name)) INTO still USING part.ids, part.tokens, delay;
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			PERFORM queue._lost(part.name, part.ids, part.tokens, still);
		END IF;
		IF notify THEN
			PERFORM pg_notify('qbouncer', part.name);
		END IF;
	END LOOP;
	RETURN QUERY SELECT queue._names(jobs);
END
$$;

-- The lease ends so long after now, be that later or earlier than before.
CREATE OR REPLACE FUNCTION queue._extend(jobs text[], lease interval) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	still int8[];
BEGIN
	IF lease <= interval '0' OR lease > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LEASE must be longer than zero',
			HINT = 'To give the job back: QUEUE RELEASE.';
	END IF;
	FOR part IN SELECT s.*, c.lease AS usual FROM queue._split(jobs) AS s
			LEFT JOIN queue.queues AS c ON c.number = s.number LOOP
		IF part.name IS NULL THEN
			PERFORM queue._lost(NULL, part.ids, part.tokens, NULL);
		END IF;
		EXECUTE format($sql$
			WITH job AS (
				UPDATE %s SET lease_until = clock_timestamp() + $3
				WHERE id = ANY ($1) AND token = ($2)[width_bucket(id, $1)]
					AND lease_until > clock_timestamp()
				RETURNING id)
			SELECT array_agg(id) FROM job
		$sql$, queue._table(part.name)) INTO still
			USING part.ids, part.tokens, coalesce(lease, part.usual);
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			PERFORM queue._lost(part.name, part.ids, part.tokens, still);
		END IF;
	END LOOP;
	RETURN QUERY SELECT queue._names(jobs);
END
$$;

-- For the proxy: the jobs of a transaction that was rolled back, of a connection that broke, or
-- whose rows nobody got. What is stale is passed over. Jobs keep their places; a counted one is
-- a failed attempt and is ready at once, or dead.
CREATE OR REPLACE FUNCTION queue._give_back(tokens text[], error text, counted bool)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	still int8[];
BEGIN
	FOR part IN SELECT s.*, CASE WHEN c.retry_kind = 'none' THEN 1 ELSE c.max_attempts END AS most
			FROM queue._split(tokens) AS s JOIN queue.queues AS c ON c.number = s.number LOOP
		EXECUTE format($sql$
			WITH job AS (
				UPDATE %s SET
					state = CASE WHEN $3 AND attempt >= $4 THEN 'dead' ELSE 'ready' END,
					ended_at = CASE WHEN $3 AND attempt >= $4 THEN clock_timestamp() END,
					attempt = CASE WHEN $3 THEN attempt ELSE attempt - 1 END,
					failures = CASE WHEN $3 THEN failures + 1 ELSE failures END,
					error = CASE WHEN $3 THEN $5 ELSE error END,
					token = NULL, lease_until = NULL
				WHERE id = ANY ($1) AND token = ($2)[width_bucket(id, $1)]
				RETURNING id)
			SELECT array_agg(id) FROM job
		$sql$, queue._table(part.name)) INTO still
			USING part.ids, part.tokens, coalesce(counted, true), part.most,
				queue._error_text(error);
		IF still IS NOT NULL THEN
			RETURN NEXT part.name;
		END IF;
	END LOOP;
END
$$;
