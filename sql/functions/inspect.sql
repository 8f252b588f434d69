-- LIST, STATS, PEEK, JOB, ERRORS and PURGE.

CREATE OR REPLACE FUNCTION queue.list()
RETURNS TABLE (queue text, lease text, max_attempts int4, retry text, on_disconnect text,
	durability text, owner text, created_at timestamptz, paused bool, max_length int4, unlogged bool,
	payload text, retain_done text, retain_dead text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.name, c.lease::text, c.max_attempts, c.retry, c.on_disconnect, c.durability,
		(SELECT pg_get_userbyid(r.relowner)::text FROM pg_class AS r
			WHERE r.oid = to_regclass(queue._table(c.name))),
		c.created_at, c.paused, c.max_length, c.unlogged, c.payload,
		c.retain_done::text, c.retain_dead::text
	FROM queue.queues AS c ORDER BY c.name
$$;

-- States as they are stored: a delayed job whose time has come is "later" until somebody takes
-- from the queue. done: what the archive holds, if the role may read it. Without a name: the queues
-- that the role may read.
CREATE OR REPLACE FUNCTION queue.stats(q text DEFAULT NULL)
RETURNS TABLE (queue text, ready int8, later int8, leased int8, dead int8,
	oldest_ready timestamptz, next_due timestamptz, blocked int8, done int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	n text;
BEGIN
	IF q IS NOT NULL THEN
		PERFORM queue._find(q);
	END IF;
	FOR n IN SELECT c.name FROM queue.queues AS c WHERE c.name = q OR q IS NULL
			AND has_table_privilege(to_regclass(queue._table(c.name)), 'SELECT') ORDER BY 1 LOOP
		CONTINUE WHEN q IS NULL AND NOT queue._still(n);
		RETURN QUERY EXECUTE format($sql$
			SELECT $1, count(*) FILTER (WHERE state = 'ready'),
				count(*) FILTER (WHERE state = 'later'),
				count(*) FILTER (WHERE state = 'leased'),
				count(*) FILTER (WHERE state = 'dead'),
				min(pushed_at) FILTER (WHERE state = 'ready'),
				min(coalesce(lease_until, run_at)) FILTER (WHERE state IN ('later', 'leased')),
				count(*) FILTER (WHERE state = 'blocked'),
				%s
			FROM %s
		$sql$, CASE WHEN has_table_privilege(to_regclass(queue._archive(n)), 'SELECT')
				THEN format('(SELECT count(*) FROM %s)', queue._archive(n)) ELSE 'NULL::int8' END,
			queue._table(n)) USING n;
	END LOOP;
END
$$;

-- Looks without taking. Each state in its own order, by its index: what is taken next, what is
-- due next, what died last. What has ended and is kept is shown only when asked for, the last first.
CREATE OR REPLACE FUNCTION queue.peek(q text, lim int4 DEFAULT 10, which text DEFAULT NULL)
RETURNS TABLE (id int8, state text, attempt int4, failures int4, payload jsonb, headers jsonb,
	priority int4, run_at timestamptz, lease_until timestamptz, error text, worker text,
	pushed_at timestamptz, key text, "group" text, ended_at timestamptz, result jsonb)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_sort = off
AS $$
DECLARE
	due CONSTANT text := 'state IN (''later'', ''leased'')';	-- as the index says it
	wanted int4 := coalesce(lim, 10);
	got int4;
	part text;
	clause text;
BEGIN
	PERFORM queue._check_payload(queue._find(q), 'jsonb');
	IF wanted < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	ELSIF which NOT IN ('ready', 'leased', 'later', 'blocked', 'dead', 'done') THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('unknown state "%s"', left(which, 80)),
			HINT = 'States: ready, later, leased, blocked, dead, done.';
	ELSIF which = 'done' THEN
		RETURN QUERY EXECUTE format('
			SELECT id, state, attempt, failures, payload, headers, priority, run_at,
				NULL::timestamptz, error, worker, pushed_at, key, "group", ended_at, result
			FROM %s ORDER BY ended_at DESC LIMIT $1', queue._archive(q)) USING wanted;
		RETURN;
	END IF;
	FOR part, clause IN VALUES
			('ready', 'state = ''ready'' ORDER BY priority DESC, position'),
			('leased', due || ' AND state = ''leased'' ORDER BY coalesce(lease_until, run_at)'),
			('later', due || ' AND state = ''later'' ORDER BY coalesce(lease_until, run_at)'),
			('blocked', 'state = ''blocked'' ORDER BY "group", id'),
			('dead', 'state = ''dead'' ORDER BY ended_at DESC') LOOP
		CONTINUE WHEN part <> which;
		RETURN QUERY EXECUTE format('
			SELECT id, state, attempt, failures, payload, headers, priority, run_at, lease_until,
				error, worker, pushed_at, key, "group", ended_at, NULL::jsonb
			FROM %s WHERE %s LIMIT $1', queue._table(q), clause) USING wanted;
		GET DIAGNOSTICS got = ROW_COUNT;
		wanted := wanted - got;
		EXIT WHEN wanted <= 0;
	END LOOP;
END
$$;

-- Everything about one job, also of one that has ended and is kept, but its token, which is its
-- worker's.
CREATE OR REPLACE FUNCTION queue.job(ref text)
RETURNS TABLE (job text, id int8, queue text, state text, cancelled bool, attempt int4,
	max_attempts int4, failures int4, priority int4, payload jsonb, headers jsonb, key text, "group" text,
	pushed_at timestamptz, run_at timestamptz, lease_until timestamptz, expires_at timestamptz,
	failed_at timestamptz, ended_at timestamptz, worker text, error text, result jsonb)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
	place record;
BEGIN
	SELECT l.*, c.max_attempts, c AS cfg INTO place FROM queue._locate(ref, NULL) AS l
		JOIN queue.queues AS c ON c.number = l.number;
	PERFORM queue._check_payload(place.cfg, 'jsonb');
	RETURN QUERY EXECUTE format($sql$
		SELECT $1 || '-' || id, id, $2, state, (left(token, 1) = 'x') IS TRUE, attempt,
			coalesce(max_attempts, $4), failures, priority, payload, headers, key, "group", pushed_at, run_at, lease_until, expires_at,
			failed_at, ended_at, worker, error, NULL::jsonb
		FROM %s WHERE id = $3
	$sql$, queue._table(place.name)) USING place.number, place.name, place.id, place.max_attempts;
	IF FOUND THEN
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format($sql$
		SELECT $1 || '-' || id, id, $2, state, false, attempt, coalesce(max_attempts, $4), failures,
			priority, payload, headers, key, "group", pushed_at, run_at, NULL::timestamptz,
			NULL::timestamptz, failed_at, ended_at, worker, error, result
		FROM %s WHERE id = $3 ORDER BY ended_at + interval '0' DESC LIMIT 1
	$sql$, queue._archive(place.name)) USING place.number, place.name, place.id, place.max_attempts;
	IF NOT FOUND THEN
		PERFORM queue._no_job(ref);
	END IF;
END
$$;

-- How often jobs of the queue have failed with which text, the last of each, most frequent first.
CREATE OR REPLACE FUNCTION queue.errors(q text)
RETURNS TABLE (error text, jobs int8, last timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	PERFORM queue._find(q);
	RETURN QUERY EXECUTE format('SELECT error, count(*), max(failed_at) FROM %s
		WHERE failures > 0 GROUP BY error ORDER BY 2 DESC, 3 DESC', queue._table(q));
END
$$;

-- Deletes jobs, but none that somebody works on. done: what is kept of those that have ended.
CREATE OR REPLACE FUNCTION queue.purge(q text, which text DEFAULT NULL, notify bool DEFAULT true)
RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	gone int8;
	kept int8 := 0;
BEGIN
	PERFORM queue._find(q);
	IF which NOT IN ('ready', 'later', 'blocked', 'dead', 'done') THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('jobs in state "%s" cannot be purged', left(which, 80)),
			HINT = 'States: ready, later, blocked, dead, done; without a state all of these.';
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	EXECUTE format('DELETE FROM %s WHERE state <> ''leased'' AND (state = $1 OR $1 IS NULL)',
		queue._table(q)) USING which;
	GET DIAGNOSTICS gone = ROW_COUNT;
	IF which = 'done' OR which IS NULL THEN
		EXECUTE 'DELETE FROM ' || queue._archive(q);
		GET DIAGNOSTICS kept = ROW_COUNT;
	END IF;
	RETURN gone + kept;
END
$$;

-- For the proxy's metrics: how full each queue is that the role may read. Counts come from the
-- partial indexes and end at "most": what this costs does not grow with the queue.
CREATE OR REPLACE FUNCTION queue._gauges(most int4)
RETURNS TABLE (queue text, ready int8, later int8, leased int8, dead int8, oldest_ms int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_sort = off
AS $$
DECLARE
	n text;
BEGIN
	FOR n IN SELECT c.name FROM queue.queues AS c
			WHERE has_table_privilege(to_regclass(queue._table(c.name)), 'SELECT') ORDER BY 1 LOOP
		CONTINUE WHEN NOT queue._still(n);
		RETURN QUERY EXECUTE format($sql$
			SELECT $1,
				(SELECT count(*) FROM (SELECT FROM %1$s WHERE state = 'ready'
					ORDER BY priority DESC, position LIMIT $2) AS r),
				d.later, d.leased,
				(SELECT count(*) FROM (SELECT FROM %1$s WHERE state = 'dead'
					ORDER BY ended_at LIMIT $2) AS x),
				(SELECT (extract(epoch FROM clock_timestamp() - pushed_at) * 1000)::int8 FROM %1$s
					WHERE state = 'ready' ORDER BY priority DESC, position LIMIT 1)
			FROM (SELECT count(*) FILTER (WHERE state = 'later') AS later,
					count(*) FILTER (WHERE state = 'leased') AS leased
				FROM (SELECT state FROM %1$s WHERE state IN ('later', 'leased')
					ORDER BY coalesce(lease_until, run_at) LIMIT $2) AS w) AS d
		$sql$, queue._table(n)) USING n, most;
	END LOOP;
END
$$;
