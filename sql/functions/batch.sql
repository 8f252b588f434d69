-- Batches: jobs that were pushed with one name, and are awaited together.
--
-- The name is a column of the jobs. Who waits counts those that are unfinished, by an index that only queues with the
-- option "batches" have: no DONE writes anything for it, and queues without it pay nothing.

CREATE OR REPLACE FUNCTION queue._generate_batches(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	jobs CONSTANT text := format('n%s_batch', cfg.number);
	ended CONSTANT text := format('n%s_batched', cfg.number);
BEGIN
	IF cfg.batches THEN
		EXECUTE format('CREATE INDEX %I ON %s (batch) WHERE batch IS NOT NULL; CREATE INDEX %I ON %s (batch) WHERE batch IS NOT NULL',
			jobs, queue._table(cfg.name), ended, queue._archive(cfg.name));
	ELSIF to_regclass(format('queue.%I', jobs)) IS NOT NULL THEN
		EXECUTE format('DROP INDEX queue.%I, queue.%I', jobs, ended);
	END IF;
END
$$;

-- A row for each of these batches of a queue. ended: no job of it that is committed is unfinished; then, or if "counts"
-- says so, also how many are in which state. done, cancelled and expired are those of the archive: NULL if the queue
-- keeps none.
CREATE OR REPLACE FUNCTION queue._await_batch(batches text[], q text, counts bool)
RETURNS TABLE (n int8, batch text, queue text, ended bool, ready int8, later int8, leased int8, blocked int8, dead int8,
	done int8, cancelled int8, expired int8, number int4)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	keeps CONSTANT bool := cfg.retain_done > interval '0';
	moment CONSTANT timestamptz := clock_timestamp();
	late int8;
BEGIN
	IF array_position(batches, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the name of a BATCH must not be null';
	ELSIF NOT cfg.batches THEN
		RAISE EXCEPTION USING ERRCODE = '55000',
			MESSAGE = format('batches of queue "%s" cannot be awaited', q),
			DETAIL = 'It has no index of them.',
			HINT = format('The owner of the queue can make one: QUEUE ALTER %I SET (batches = true);', q);
	END IF;
	queue := cfg.name;
	number := cfg.number;
	FOR n, batch IN SELECT u.n, u.batch FROM unnest(batches) WITH ORDINALITY AS u (batch, n) LOOP
		EXECUTE format($sql$
			SELECT NOT EXISTS (SELECT FROM %s WHERE batch = $1 AND state <> 'dead'
				AND (state NOT IN ('ready', 'later') OR (expires_at <= $2) IS NOT TRUE))
		$sql$, queue._table(q)) INTO ended USING batch, moment;
		IF ended OR counts THEN
			EXECUTE format($sql$
				SELECT count(*) FILTER (WHERE now_is = 'ready'), count(*) FILTER (WHERE now_is = 'later'),
					count(*) FILTER (WHERE now_is = 'leased'), count(*) FILTER (WHERE now_is = 'blocked'),
					count(*) FILTER (WHERE now_is = 'dead'), count(*) FILTER (WHERE now_is = 'expired')
				FROM (SELECT CASE WHEN state IN ('ready', 'later') AND expires_at <= $2 THEN 'expired'
						WHEN state = 'later' AND run_at <= $2 THEN 'ready' ELSE state END AS now_is
					FROM %s WHERE batch = $1) AS j
			$sql$, queue._table(q)) INTO ready, later, leased, blocked, dead, late USING batch, moment;
			EXECUTE format($sql$
				SELECT $2 + count(*) FILTER (WHERE state = 'dead'), count(*) FILTER (WHERE state = 'done'),
					count(*) FILTER (WHERE state = 'cancelled'), count(*) FILTER (WHERE state = 'expired')
				FROM %s WHERE batch = $1
			$sql$, queue._archive(q)) INTO dead, done, cancelled, expired USING batch, dead;	-- those of a dead_queue
			done := CASE WHEN keeps THEN done END;
			cancelled := CASE WHEN keeps THEN cancelled END;
			expired := CASE WHEN keeps THEN expired + late END;
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;
