-- TAKE and POP.

-- Makes ready what is due: delayed jobs, retries, and jobs whose lease has ended, which counts
-- as a failed attempt. At most "most" of them, so that no call takes long; rows that somebody
-- works on are left alone. The jobs get their places at the end of the queue, in the order of
-- their times.
CREATE OR REPLACE FUNCTION queue._promote(cfg queue.queues, most int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
BEGIN
	EXECUTE format($sql$
		WITH due AS MATERIALIZED (
			SELECT id AS due_id, state = 'leased' AS expired,
				state = 'leased' AND attempt >= $2 AS dead
			FROM %1$s
			WHERE state IN ('later', 'leased')
				AND coalesce(lease_until, run_at) <= clock_timestamp()
			ORDER BY coalesce(lease_until, run_at)
			LIMIT $1 FOR UPDATE SKIP LOCKED)
		UPDATE %1$s SET
			state = CASE WHEN dead THEN 'dead' ELSE 'ready' END,
			position = DEFAULT,
			lease_until = NULL,
			token = NULL,
			failures = failures + expired::int4,
			error = CASE WHEN expired THEN 'lease expired' ELSE error END,
			ended_at = CASE WHEN dead THEN clock_timestamp() END
		FROM due WHERE id = due_id
	$sql$, queue._table(cfg.name))
	USING most, CASE WHEN cfg.retry_kind = 'none' THEN 1 ELSE cfg.max_attempts END;
END
$$;

-- Milliseconds until a job of this queue may become ready by itself, NULL if none will. A job
-- whose time is over and which could not be promoted is locked by somebody: asked about again
-- soon, but not at once.
CREATE OR REPLACE FUNCTION queue._due_ms(name text) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
	now timestamptz := clock_timestamp();
	due timestamptz;
	ms int8;
BEGIN
	EXECUTE format($sql$
		SELECT coalesce(lease_until, run_at) FROM %1$s
			WHERE state IN ('later', 'leased') AND coalesce(lease_until, run_at) > $1
			ORDER BY coalesce(lease_until, run_at) LIMIT 1
	$sql$, queue._table(name)) INTO due USING now;
	ms := greatest(ceil(extract(epoch FROM due - now) * 1000), 1)::int8;
	EXECUTE format($sql$
		SELECT coalesce(lease_until, run_at) FROM %1$s
			WHERE state IN ('later', 'leased') AND coalesce(lease_until, run_at) <= $1
			LIMIT 1
	$sql$, queue._table(name)) INTO due USING now;
	RETURN CASE WHEN due IS NULL THEN ms ELSE least(ms, 100) END;
END
$$;

CREATE OR REPLACE FUNCTION queue._take(queues text[], lim int4, lease interval, worker text,
	pop bool)
RETURNS TABLE (id int8, token text, queue text, attempt int4, payload jsonb, headers jsonb,
	key text, "group" text, priority int4, pushed_at timestamptz, lease_until timestamptz,
	policy text, due_ms int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
	cfg queue.queues;
	q text;
	due bool;
	async bool := NOT pop;
	wanted int4 := coalesce(lim, 1);
	got int4;
BEGIN
	IF wanted < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must be at least 1';
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LEASE must be longer than zero';
	ELSIF cardinality(queues) = 0 THEN
		PERFORM queue._no_queue(NULL);
	END IF;
	FOREACH q IN ARRAY queues LOOP
		SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
		IF NOT FOUND THEN
			PERFORM queue._no_queue(q);
		END IF;
		IF async OR cfg.durability = 'async' THEN
			PERFORM queue._commit_async();
		END IF;
		EXECUTE format('SELECT EXISTS (SELECT FROM queue.%I WHERE state IN (''later'', ''leased'')
			AND coalesce(lease_until, run_at) <= clock_timestamp())', 'q_' || q) INTO due;
		IF due THEN
			PERFORM queue._promote(cfg, least(greatest(wanted, 200), 1000));
		END IF;
		IF pop THEN
			RETURN QUERY EXECUTE format($sql$
				WITH job AS (
					DELETE FROM queue.%1$I WHERE id = ANY (ARRAY(
						SELECT id FROM queue.%1$I WHERE state = 'ready'
						ORDER BY priority DESC, position LIMIT $1 FOR UPDATE SKIP LOCKED))
					RETURNING *)
				SELECT id, NULL::text, $2, attempt + 1, payload, headers, key, "group", priority,
					pushed_at, NULL::timestamptz, $3, NULL::int8
				FROM job ORDER BY priority DESC, position
			$sql$, 'q_' || q) USING wanted, q, cfg.on_disconnect;
		ELSE
			RETURN QUERY EXECUTE format($sql$
				WITH job AS (
					UPDATE queue.%1$I SET state = 'leased', attempt = attempt + 1,
						lease_until = clock_timestamp() + $4, worker = left($5, 200),
						token = right(gen_random_uuid()::text, 12) || left(gen_random_uuid()::text, 4)
					WHERE id = ANY (ARRAY(
						SELECT id FROM queue.%1$I WHERE state = 'ready'
						ORDER BY priority DESC, position LIMIT $1 FOR UPDATE SKIP LOCKED))
					RETURNING *)
				SELECT id, $6 || id || '-' || token, $2, attempt, payload, headers, key, "group",
					priority, pushed_at, lease_until, $3, NULL::int8
				FROM job ORDER BY priority DESC, position
			$sql$, 'q_' || q) USING wanted, q, cfg.on_disconnect, coalesce(lease, cfg.lease),
				worker, cfg.number || '-';
		END IF;
		GET DIAGNOSTICS got = ROW_COUNT;
		wanted := wanted - got;
		EXIT WHEN wanted <= 0;
	END LOOP;
	IF wanted = coalesce(lim, 1) THEN
		SELECT min(queue._due_ms(n)) INTO due_ms FROM unnest(queues) AS n;
		RETURN NEXT;
	END IF;
END
$$;
