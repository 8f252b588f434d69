-- PUSH.
--
-- Payloads travel as texts, which become what the queue holds. "stated": what the caller says they
-- were; bytes are not JSON or text, whatever they may look like as one, and the other way round.

-- The headers, if what a push says is right.
CREATE OR REPLACE FUNCTION queue._check_push(headers text, expires interval, attempts int4)
RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	head CONSTANT jsonb := headers;
BEGIN
	IF jsonb_typeof(head) NOT IN ('object', 'null') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'headers must be a JSON object',
			HINT = 'For example: HEADERS ''{"trace": "4711"}''.';
	ELSIF expires <= interval '0' OR expires > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'EXPIRES must be longer than zero';
	ELSIF attempts < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ATTEMPTS must be at least 1';
	END IF;
	RETURN head;
END
$$;

CREATE OR REPLACE FUNCTION queue._push(q text, payloads text[], priority int4, delay interval,
	run_at timestamptz, headers text, notify bool, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, duplicate text DEFAULT NULL,
	"group" text DEFAULT NULL, with_old bool DEFAULT false, stated text DEFAULT NULL, batch text DEFAULT NULL,
	keep_for interval DEFAULT NULL, newer timestamptz DEFAULT NULL, after text[] DEFAULT NULL)
RETURNS SETOF int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
	start timestamptz := run_at;
	head jsonb;
	behind text[];
	ids int8[];
BEGIN
	SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
	IF NOT FOUND THEN
		RETURN QUERY SELECT queue._push_event(q, payloads, headers, notify, key, "group", stated, CASE
			WHEN priority <> 0 THEN 'PRIORITY' WHEN delay IS NOT NULL THEN 'DELAY' WHEN run_at IS NOT NULL THEN 'AT'
			WHEN expires IS NOT NULL THEN 'EXPIRES' WHEN attempts IS NOT NULL THEN 'ATTEMPTS'
			WHEN duplicate IS NOT NULL THEN 'ON DUPLICATE' WHEN batch IS NOT NULL THEN 'BATCH'
			WHEN keep_for IS NOT NULL THEN 'KEY ... FOR' WHEN newer IS NOT NULL THEN 'IF NEWER'
			WHEN after IS NOT NULL THEN 'AFTER' END);
		RETURN;
	END IF;
	IF payloads IS NULL OR array_position(payloads, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the payload must not be null',
			HINT = CASE cfg.payload WHEN 'jsonb' THEN 'The JSON value null is written ''null''.'
				ELSE 'An empty payload is written ''''.' END;
	ELSIF (stated = 'bytea') <> (cfg.payload = 'bytea') THEN
		PERFORM queue._check_payload(cfg, stated);
	END IF;
	IF delay IS NOT NULL THEN
		IF run_at IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = 'DELAY and AT cannot be given together', HINT = 'Give one of them.';
		END IF;
		start := clock_timestamp() + delay;
	END IF;
	IF NOT isfinite(start) THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'the time of a job must be finite';
	END IF;
	IF headers IS NOT NULL OR expires IS NOT NULL OR attempts IS NOT NULL THEN
		head := queue._check_push(headers, expires, attempts);
	END IF;
	IF cfg.durability = 'async' THEN
		PERFORM queue._commit_async();
	END IF;
	IF key IS NOT NULL OR duplicate IS NOT NULL OR "group" IS NOT NULL THEN
		PERFORM queue._check_key(payloads, key, duplicate, "group");
	END IF;
	IF batch IS NOT NULL THEN
		PERFORM queue._bulk_batch(batch);
	END IF;
	IF keep_for IS NOT NULL OR newer IS NOT NULL THEN
		PERFORM queue._check_once(key, duplicate, keep_for, newer);
	END IF;
	IF after IS NOT NULL THEN
		PERFORM queue._check_after(duplicate);
		PERFORM queue._no_after(cfg);
		behind := queue._after_which(after);
	END IF;
	IF behind IS NOT NULL THEN
		EXECUTE 'SELECT array_agg(k) FROM unnest($1) AS p, LATERAL queue._push_key_' || cfg.number
				|| '(p, $2, $3, $4, $5, $6, $7, $8, NULL, $9, $10, $11, $12, $13) AS k WHERE k IS NOT NULL' INTO ids
			USING payloads, coalesce(priority, 0), start, head, greatest(start, clock_timestamp()) + expires, attempts,
				key, lower(coalesce(duplicate, 'ignore')), with_old, batch, keep_for, newer,
				CASE WHEN "group" IS NOT NULL THEN ARRAY['=' || "group"] ELSE '{}' END || behind;
		PERFORM queue._after_follow(cfg.number, ids, behind);
		RETURN QUERY SELECT unnest(ids);
	ELSIF expires IS NULL AND attempts IS NULL AND key IS NULL AND "group" IS NULL AND batch IS NULL THEN
		RETURN QUERY EXECUTE 'SELECT queue._push_' || cfg.number || '($1, $2, $3, $4)'
			USING payloads, coalesce(priority, 0), start, head;
	ELSIF key IS NOT NULL OR "group" IS NOT NULL THEN
		RETURN QUERY EXECUTE 'SELECT k FROM unnest($1) AS p, LATERAL queue._push_key_' || cfg.number
				|| '(p, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) AS k WHERE k IS NOT NULL'
			USING payloads, coalesce(priority, 0), start, head,
				greatest(start, clock_timestamp()) + expires, attempts, key,
				lower(coalesce(duplicate, 'ignore')), "group", with_old, batch, keep_for, newer;
	ELSE
		RETURN QUERY EXECUTE 'SELECT queue._push_more_' || cfg.number || '($1, $2, $3, $4, $5, $6, $7)'
			USING payloads, coalesce(priority, 0), start, head,
				greatest(start, clock_timestamp()) + expires, attempts, batch;
	END IF;
	IF notify THEN
		PERFORM queue._tell(cfg.number, q);
	END IF;
END
$$;

-- The same with the names of the jobs. The queue's table is locked by then: it is the queue that was pushed to.
CREATE OR REPLACE FUNCTION queue._push_jobs(q text, payloads text[], priority int4, delay interval,
	run_at timestamptz, headers text, notify bool, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, duplicate text DEFAULT NULL,
	"group" text DEFAULT NULL, with_old bool DEFAULT false, stated text DEFAULT NULL, batch text DEFAULT NULL,
	keep_for interval DEFAULT NULL, newer timestamptz DEFAULT NULL, after text[] DEFAULT NULL)
RETURNS TABLE (id int8, job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ids CONSTANT int8[] := ARRAY(SELECT queue._push(q, payloads, priority, delay, run_at, headers, notify, expires,
		attempts, key, duplicate, "group", with_old, stated, batch, keep_for, newer, after));
	number CONSTANT int4 := (SELECT c.number FROM queue.queues AS c WHERE c.name = q);
BEGIN
	IF number IS NULL THEN
		PERFORM queue._not_of_streams('RETURNING JOB', 'An event is no job: RETURNING ID.');
	END IF;
	RETURN QUERY SELECT i, number || '-' || i FROM unnest(ids) AS i;
END
$$;
