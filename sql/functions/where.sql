-- TAKE and POP with WHERE: of what is ready only what fits a condition of the client's own.
--
-- The condition is not for these functions to run: it stands in the statement that calls them, as the client's SQL
-- with the client's rights and search_path (src/queue/calls.h), between a look and a take. The look locks and
-- changes nothing, so a condition that takes long, or fails, holds up nobody. It reads under the statement's own
-- snapshot, and says of each job which version of it was seen: what somebody has changed since is not taken.
--
-- said: what the proxy has to say, in one parameter beside the client's: how many jobs, the seed of their tokens, pop, LEASE,
-- AS, the proxy; then of each queue its name, and below which position nothing fits.

-- As many of the first jobs of a queue are looked at.
CREATE OR REPLACE FUNCTION queue._look_most() RETURNS int4
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 10000;
END
$$;

-- In which order is looked: mostly, what is wanted is in front.
CREATE OR REPLACE FUNCTION queue._look_steps(said text[]) RETURNS TABLE (q int4, skip int4, most int4)
LANGUAGE plpgsql STABLE ROWS 1		-- else it is "expensive", and each look compiled (jit)
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	few CONSTANT int4 := least(2 * said[1]::int8 + 40, queue._look_most() / 2);
	cfg queue.queues;
BEGIN
	PERFORM set_config('qbouncer.cut', '', true), set_config('qbouncer.seen', '0', true);
	FOR i IN 1 .. (cardinality(said) - 6) / 2 LOOP
		PERFORM queue._find(said[5 + 2 * i], NULL);
	END LOOP;
	FOR i IN 1 .. (cardinality(said) - 6) / 2 LOOP
		q := i;
		skip := 0;
		most := few;
		RETURN NEXT;
		skip := few;
		most := queue._look_most() - few;
		RETURN NEXT;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._look_jsonb(said text[], nth int4, skip int4, most int4) RETURNS SETOF queue._looked_jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET enable_sort = off
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(said[5 + 2 * nth], NULL);
	got int4;
	last int8;
BEGIN
	IF cfg.payload <> 'jsonb' THEN
		PERFORM queue._check_payload(cfg, 'jsonb');
	END IF;
	IF cfg.paused THEN
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format('SELECT %s FROM %s WHERE state = ''ready'' AND position >= $3 AND (expires_at > $1 OR expires_at IS NULL)
			ORDER BY priority DESC, position LIMIT $5 OFFSET $4',
			queue._job_row('_looked_jsonb', '$1', 'state', cfg.max_run, ARRAY['job', '$2 || ''-'' || id', '_queue', '$2',
				'_version', queue._version()]), queue._table(cfg.name))
		USING clock_timestamp(), cfg.number, said[6 + 2 * nth]::int8, skip, most;
	GET DIAGNOSTICS got = ROW_COUNT;
	IF got = most AND skip > 0 THEN
		PERFORM set_config('qbouncer.cut', 'on', true);
	END IF;
	-- what is pushed from now on lies above
	IF got > 0 THEN
		EXECUTE format('SELECT max(position) FROM (SELECT position FROM %s WHERE state = ''ready'' AND position >= $1
				ORDER BY priority DESC, position LIMIT $2) AS l', queue._table(cfg.name))
			INTO last USING said[6 + 2 * nth]::int8, skip + most;
		PERFORM set_config('qbouncer.seen', greatest(last, nullif(current_setting('qbouncer.seen', true), '')::int8)::text, true);
	END IF;
END
$$;

-- Where a version of a row is, as a number.
CREATE OR REPLACE FUNCTION queue._version() RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN '((ctid::text::point)[0]::int8 << 16 | (ctid::text::point)[1]::int8)';
END
$$;

-- Those of these that are ready, and as they were seen. (A version without number: however it is.)
CREATE OR REPLACE FUNCTION queue._chosen_jsonb(q queue.queues, ids int8[], versions int8[], wanted int4, lease interval,
	who text, said int4, pop bool, seed int8) RETURNS SETOF queue._taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	secret CONSTANT uuid := CASE WHEN seed IS NULL THEN gen_random_uuid()
		ELSE encode(substr(sha256(int8send(seed)), 1, 16), 'hex')::uuid END;
	tab CONSTANT text := queue._table(q.name);
	head CONSTANT text := format('(SELECT ctid AS c FROM %1$s WHERE id = ANY ($1) AND state = ''ready''
			AND %2$s = coalesce(($2)[array_position($1, id)], %2$s) AND (expires_at > $4 OR expires_at IS NULL) %3$s
			ORDER BY priority DESC, position LIMIT $3 FOR UPDATE SKIP LOCKED) AS found', tab, queue._version(),
		CASE WHEN pop THEN format('AND ("group" IS NULL OR queue._may_end_%s("group"))', q.number) ELSE '' END);
	ours CONSTANT text[] := ARRAY['queue', '$7', 'policy', '$8', 'place', 'position', 'edge', 'NULL::int8'];
	ended CONSTANT text[] := ARRAY['attempt', 'attempt + 1', 'taken_at', '$4', 'first_taken_at', 'coalesce(first_taken_at, taken_at)'];
BEGIN
	RETURN QUERY EXECUTE CASE WHEN pop THEN format('
			WITH job AS (DELETE FROM %1$s USING %2$s WHERE ctid = c RETURNING %1$s.*) %3$s
			SELECT %4$s FROM job ORDER BY priority DESC, position', tab, head,
			CASE WHEN q.retain_done > interval '0'
				THEN format(', kept AS (%s)', queue._keep(queue._archive(q.name), 'job', 'done', ended || ARRAY['worker', '$5']))
				ELSE '' END,
			queue._row('_taken_jsonb', ended || ours || ARRAY['token', 'NULL::text', 'lease_until', 'NULL::timestamptz',
				'takes', 'attempt + 1 + coalesce(spent, 0)', 'due_ms', 'NULL::int8']))
		ELSE format('
			UPDATE %1$s SET state = ''leased'', attempt = attempt + 1, worker = $5, taken_at = $4,
				first_taken_at = coalesce(first_taken_at, taken_at),
				proxy = CASE WHEN $6 < 0 THEN -$6 WHEN $8 <> ''keep'' THEN $6 END, lease_until = $4 + $9, due = $4 + $9,
				token = encode(int8send(uuid_hash_extended($10, id)), ''hex'')
			FROM %2$s WHERE ctid = c RETURNING %3$s', tab, head,
			queue._row('_taken_jsonb', ours || ARRAY['token', '$11 || ''-'' || id || ''-'' || token', 'due_ms', '$12'])) END
		USING ids, versions, wanted, moment, left(who, 200), said, q.name, q.on_disconnect, lease, secret, q.number,
			ceil(date_part('epoch', lease) * 1000)::int8;
END
$$;

-- fits: of each job its queue, its id, its version. due: what has become due may be among them.
--
-- Nothing taken is a row, too: when there may be something (due_ms); of one queue, the last place that was looked at (place);
-- what else was seen (edge): 1 not all that is ready; 2 what others have locked, or taken since; 4 what has become due;
-- 8 a pause, which hides what is there.
CREATE OR REPLACE FUNCTION queue._take_where_jsonb(said text[], fits int8[], due bool DEFAULT false)
RETURNS SETOF queue._taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	queues CONSTANT text[] := ARRAY(SELECT said[5 + 2 * i] FROM generate_series(1, (cardinality(said) - 6) / 2) AS i ORDER BY i);
	pop CONSTANT bool := said[3]::bool;
	lease CONSTANT interval := said[4]::interval;
	wanted int4 := coalesce(said[1]::int4, 1);
	cfg queue.queues;
	q text;
	ids int8[];
	versions int8[];
	got int4;
	next int8;
	nothing queue._taken_jsonb;
BEGIN
	IF wanted < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must be at least 1';
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM queue._bad_lease();
	END IF;
	IF due THEN
		PERFORM queue._look_due(c) FROM queue.queues AS c WHERE c.name = ANY (queues);
	END IF;
	IF cardinality(queues) > 1 THEN
		PERFORM queue._lock_gates(queues);
	END IF;
	FOREACH q IN ARRAY queues LOOP
		cfg := queue._find(q, NULL);
		IF NOT cfg.paused THEN	-- it may be waited for an ALTER here, or for one who drops it and makes it anew
			EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', queue._table(q));
			cfg := queue._find(q, NULL);
		END IF;
		IF cfg.payload <> 'jsonb' THEN
			PERFORM queue._check_payload(cfg, 'jsonb');
		END IF;
		SELECT array_agg(fits[n][2] ORDER BY n), array_agg(fits[n][3] ORDER BY n) INTO ids, versions
			FROM generate_series(1, array_length(fits, 1)) AS n WHERE fits[n][1] = cfg.number;
		IF cfg.single_consumer THEN
			RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('WHERE is not possible with queue "%s"', cfg.name),
				DETAIL = 'It has a single consumer: what that one leaves would be nobody''s.', HINT = 'Take without WHERE.';
		END IF;
		CONTINUE WHEN cfg.paused OR ids IS NULL;
		IF NOT pop THEN
			PERFORM set_config('synchronous_commit', 'off', true);	-- see _take
		ELSIF cfg.durability = 'async' THEN
			PERFORM queue._commit_async();
		END IF;
		RETURN QUERY EXECUTE CASE WHEN cfg.limited
				THEN format('SELECT * FROM queue._take_%s($1, $4, $5, $6, $7, $8, $2 || $3, NULL, NULL, clock_timestamp(), $9) AS t
					WHERE t.id IS NOT NULL', cfg.number)
				ELSE 'SELECT * FROM queue._chosen_jsonb($1, $2, $3, $4, $5, $6, $7, $8, $9)' END
			USING cfg, ids, versions, wanted, least(coalesce(lease, cfg.lease), cfg.max_run), left(said[5], 200),
				nullif(said[6], '')::int4, pop, said[2]::int8;
		GET DIAGNOSTICS got = ROW_COUNT;
		wanted := wanted - got;
		EXIT WHEN wanted <= 0;
	END LOOP;
	IF wanted < coalesce(said[1]::int4, 1) THEN
		RETURN;
	END IF;
	nothing.edge := CASE WHEN current_setting('qbouncer.cut', true) = 'on' THEN 1 ELSE 0 END
		+ CASE WHEN cardinality(fits) > 0 THEN 2 ELSE 0 END
		+ CASE WHEN EXISTS (SELECT FROM queue.queues AS c WHERE c.name = ANY (queues) AND c.paused) THEN 8 ELSE 0 END;
	IF cardinality(queues) = 1 THEN
		nothing.place := nullif(current_setting('qbouncer.seen', true), '')::int8;
	END IF;
	FOR cfg IN SELECT * FROM queue.queues AS c WHERE c.name = ANY (queues) AND NOT c.paused ORDER BY c.number LOOP
		next := queue._closed_ms(cfg);
		IF next <= 0 THEN
			IF queue._look_due(cfg) THEN
				nothing.edge := nothing.edge | 4;
			END IF;
			next := least(queue._look_ms(cfg.name), queue._opens_ms(cfg), CASE WHEN cardinality(fits) > 0 THEN 100 END);
		END IF;
		nothing.due_ms := least(nothing.due_ms, next);
	END LOOP;
	RETURN NEXT nothing;
END
$$;

-- For queue.take and queue.pop: of these jobs.
CREATE OR REPLACE FUNCTION queue._take_ids_jsonb(q text, lim int4, lease interval, worker text, pop bool, ids int8[])
RETURNS SETOF queue.taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q, NULL);
BEGIN
	RETURN QUERY SELECT w.* FROM queue._take_where_jsonb(ARRAY[coalesce(lim, 1)::text, nullif(current_setting('qbouncer.seed', true), ''),
			coalesce(pop, false)::text, lease::text, worker, nullif(current_setting('qbouncer.proxy', true), ''), q, '0'],
			ARRAY(SELECT ARRAY[cfg.number, id, NULL] FROM unnest(ids) AS id WHERE id IS NOT NULL), true) AS t,
		LATERAL queue._without(t) AS w WHERE t.id IS NOT NULL;
END
$$;

-- What has become due is made ready. After the look: the condition may take long, and holds no locks.
CREATE OR REPLACE FUNCTION queue._look_due(cfg queue.queues) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	there bool;
BEGIN
	EXECUTE format($sql$
		SELECT EXISTS (SELECT FROM %1$s WHERE due <= $1)
	$sql$, queue._table(cfg.name)) INTO there USING moment;
	IF there THEN
		PERFORM queue._promote(cfg, 1000);
	END IF;
	RETURN there;
END
$$;

-- Milliseconds until a job may become ready by itself. What is due by now is locked by somebody.
CREATE OR REPLACE FUNCTION queue._look_ms(name text) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	due timestamptz;
BEGIN
	EXECUTE format($sql$
		SELECT coalesce((SELECT due FROM (SELECT due, state FROM %1$s WHERE due > '-infinity' ORDER BY due LIMIT 1000) AS x
				WHERE state IN ('later', 'leased') ORDER BY due LIMIT 1), (SELECT due FROM %1$s WHERE due > '-infinity' ORDER BY due OFFSET 999 LIMIT 1))
	$sql$, queue._table(name)) INTO due;
	RETURN CASE WHEN due <= moment THEN 100
		WHEN due IS NOT NULL THEN greatest(ceil(extract(epoch FROM least(due, moment + interval '1 year') - moment) * 1000), 1)::int8 END;
END
$$;

-- The same for the other types of payload.
DO $qbouncer_where$
DECLARE
	kind text;
	f text;
	quoting CONSTANT text := current_setting('quote_all_identifiers');
BEGIN
	PERFORM set_config('quote_all_identifiers', 'off', true);
	FOREACH kind IN ARRAY ARRAY['text', 'bytea'] LOOP
		FOREACH f IN ARRAY ARRAY['_look_jsonb', '_chosen_jsonb', '_take_where_jsonb', '_take_ids_jsonb'] LOOP
			EXECUTE replace(replace(pg_get_functiondef(('queue.' || f)::regproc), '_jsonb', '_' || kind),
				quote_literal('jsonb'), quote_literal(kind));
		END LOOP;
	END LOOP;
	PERFORM set_config('quote_all_identifiers', quoting, true);
END
$qbouncer_where$;
