-- The functions of one queue: queue._push_<number>, _push_more_<number>, _take_<number>,
-- _done_<number>.
--
-- Postgres keeps the plans of their statements for the session; the same statements by EXECUTE
-- are planned anew in every call, which costs more than running them (doc/decisions/001). Only
-- the three verbs of every job are done so; the others are rare enough.
--
-- They check nothing: queue._push, queue._take and queue._done do. The table's name is quoted
-- by %I in the text of the function, and that text as a whole by %L.

CREATE OR REPLACE FUNCTION queue._generate_one(head text, settings text, body text, tab text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('CREATE OR REPLACE FUNCTION queue.%s LANGUAGE plpgsql
		SET search_path = pg_catalog, pg_temp %s AS %L', head, settings,
		replace(body, '@table@', tab));
END
$$;

CREATE OR REPLACE FUNCTION queue._generate(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(name);
	pinned CONSTANT text := 'SET enable_seqscan = off SET enable_bitmapscan = off';
BEGIN
	PERFORM queue._generate_one(format('_push_%s(payloads text[], prio int4, start timestamptz,
		head jsonb) RETURNS SETOF int8', number), '', $body$
BEGIN
	RETURN QUERY
		INSERT INTO @table@ (state, priority, run_at, headers, payload, pushed_at)
		SELECT CASE WHEN start > clock_timestamp() THEN 'later' ELSE 'ready' END, prio, start,
			head, p::jsonb, clock_timestamp()
		FROM unnest(payloads) AS p RETURNING id;
END
$body$, tab);

	-- the same with what few pushes say: the other stays as fast as it is
	PERFORM queue._generate_one(format('_push_more_%s(payloads text[], prio int4,
		start timestamptz, head jsonb, until timestamptz, most int4) RETURNS SETOF int8', number),
		'', $body$
BEGIN
	RETURN QUERY
		INSERT INTO @table@ (state, priority, run_at, headers, payload, pushed_at, expires_at,
			max_attempts)
		SELECT CASE WHEN start > clock_timestamp() THEN 'later' ELSE 'ready' END, prio, start,
			head, p::jsonb, clock_timestamp(), until, most
		FROM unnest(payloads) AS p RETURNING id;
END
$body$, tab);

	-- The rows are found again by their ctid: they are locked, so they stay where they are. (One
	-- that somebody moved between our snapshot and our lock is left for the next call.)
	-- The time is a variable: a volatile function would not be looked up in the index.
	-- One job needs no sorting, and its statement is so much the cheaper.
	PERFORM queue._generate_one(replace($head$_take_@n@(q queue.queues, lim int4, lease interval,
		who text, pop bool)
		RETURNS TABLE (id int8, token text, queue text, attempt int4, payload jsonb, headers jsonb,
			key text, "group" text, priority int4, pushed_at timestamptz, lease_until timestamptz,
			policy text, due_ms int8)$head$, '@n@', number::text), pinned, replace($body$
#variable_conflict use_column
DECLARE
	moment timestamptz := clock_timestamp();
	mine CONSTANT int4 := queue._proxy(q.on_disconnect);
BEGIN
	IF EXISTS (SELECT FROM @table@ WHERE state IN ('later', 'leased')
			AND coalesce(lease_until, run_at) <= moment) THEN
		PERFORM queue._promote(q, least(greatest(lim, 200), 1000));
	END IF;
	IF EXISTS (SELECT FROM @table@ WHERE state IN ('ready', 'later')
			AND expires_at <= moment) THEN
		PERFORM queue._expire(q, least(greatest(lim, 200), 1000));
	END IF;
	IF pop THEN
		RETURN QUERY
			WITH job AS (
				DELETE FROM @table@ WHERE ctid = ANY (ARRAY(
					SELECT ctid FROM @table@
					WHERE state = 'ready' AND (expires_at > moment OR expires_at IS NULL)
					ORDER BY priority DESC, position LIMIT lim FOR UPDATE SKIP LOCKED))
				RETURNING *)
			SELECT id, NULL::text, q.name, attempt + 1, payload, headers, key, "group", priority,
				pushed_at, NULL::timestamptz, q.on_disconnect, NULL::int8
			FROM job ORDER BY priority DESC, position;
	ELSIF lim = 1 THEN
		RETURN QUERY
			UPDATE @table@ SET state = 'leased', attempt = attempt + 1, worker = who, proxy = mine,
				lease_until = clock_timestamp() + lease,
				token = right(gen_random_uuid()::text, 12) || left(gen_random_uuid()::text, 4)
			WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM @table@
				WHERE state = 'ready' AND (expires_at > moment OR expires_at IS NULL)
				ORDER BY priority DESC, position LIMIT 1 FOR UPDATE SKIP LOCKED))
			RETURNING id, '@n@-' || id || '-' || token, q.name, attempt, payload, headers, key,
				"group", priority, pushed_at, lease_until, q.on_disconnect, NULL::int8;
	ELSE
		RETURN QUERY
			WITH job AS (
				UPDATE @table@ SET state = 'leased', attempt = attempt + 1, worker = who, proxy = mine,
					lease_until = clock_timestamp() + lease,
					token = right(gen_random_uuid()::text, 12) || left(gen_random_uuid()::text, 4)
				WHERE ctid = ANY (ARRAY(
					SELECT ctid FROM @table@
					WHERE state = 'ready' AND (expires_at > moment OR expires_at IS NULL)
					ORDER BY priority DESC, position LIMIT lim FOR UPDATE SKIP LOCKED))
				RETURNING *)
			SELECT id, '@n@-' || id || '-' || token, q.name, attempt, payload, headers, key,
				"group", priority, pushed_at, lease_until, q.on_disconnect, NULL::int8
			FROM job ORDER BY priority DESC, position;
	END IF;
END
$body$, '@n@', number::text), tab);

	PERFORM queue._generate_one(format('_done_%s(ids int8[], tokens text[]) RETURNS int8[]',
		number), pinned, $body$
DECLARE
	still int8[];
BEGIN
	WITH job AS (
		DELETE FROM @table@ WHERE id = ANY (ids)
			AND token = (tokens)[width_bucket(id, ids)] AND lease_until > clock_timestamp()
			AND again IS NULL
		RETURNING id)
	SELECT array_agg(id) INTO still FROM job;
	RETURN still;
END
$body$, tab);
	EXECUTE format('GRANT EXECUTE ON FUNCTION queue._push_%1$s, queue._push_more_%1$s,
		queue._take_%1$s, queue._done_%1$s TO PUBLIC', number);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_generated(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('DROP FUNCTION IF EXISTS queue._push_%1$s, queue._push_more_%1$s,
		queue._take_%1$s, queue._done_%1$s', number);
END
$$;
