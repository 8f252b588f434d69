-- PUSH with KEY or GROUP. Slower than the others, which pay nothing for it.
--
-- KEY is unique among the jobs of a queue that are not dead. What happens when there is one:
--   ignore   nothing; the one that is there counts
--   replace  it gets the new payload and options, and all its attempts again
--   rerun    one that is being worked on runs once more when it has ended
--   error    23505
-- A job that is leased and replaced runs once more too: its worker has the old payload.

CREATE OR REPLACE FUNCTION queue._key_taken(q text, k text, id int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '23505',
		MESSAGE = format('queue "%s" has a job with the key "%s" already', q, left(k, 200)),
		DETAIL = format('It is job %s.', id),
		HINT = 'Push with ON DUPLICATE IGNORE, REPLACE or RERUN.';
END
$$;

CREATE OR REPLACE FUNCTION queue._check_key(payloads text[], key text, duplicate text, "group" text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF lower(duplicate) NOT IN ('ignore', 'replace', 'rerun', 'error') THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('unknown ON DUPLICATE "%s"', left(duplicate, 80)),
			HINT = 'Give IGNORE, REPLACE, RERUN or ERROR.';
	ELSIF duplicate IS NOT NULL AND key IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ON DUPLICATE needs a KEY';
	ELSIF key IS NOT NULL AND cardinality(payloads) > 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('a KEY is of one job, but there are %s payloads', cardinality(payloads)),
			HINT = 'Push them one by one, each with its KEY.';
	ELSIF octet_length(key) > 1000 OR octet_length("group") > 1000 THEN
		RAISE EXCEPTION USING ERRCODE = '22001',
			MESSAGE = 'KEY and GROUP have at most 1000 bytes each';
	END IF;
END
$$;

-- A job that has this key, and this group, for itself; NULL when there is one in the way now. A look first:
-- an insertion that fails leaves a dead row and a hole in the ids.
CREATE OR REPLACE FUNCTION queue._insert_key(tab text, first text, payload text, prio int4,
	start timestamptz, head jsonb, until timestamptz, most int4, k text, g text) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	alone bool := true;
	new int8;
BEGIN
	IF g IS NOT NULL THEN
		EXECUTE format($sql$
			SELECT NOT EXISTS (SELECT FROM %s
				WHERE "group" = $1 AND state IN ('ready', 'later', 'leased'))
		$sql$, tab) INTO alone USING g;
	END IF;
	FOREACH first IN ARRAY CASE WHEN g IS NULL THEN ARRAY[first]
			WHEN alone THEN ARRAY[first, 'blocked'] ELSE ARRAY['blocked'] END LOOP
		EXECUTE format($sql$
			INSERT INTO %s (state, priority, run_at, headers, payload, pushed_at, expires_at,
				max_attempts, key, "group")
			VALUES ($1, $2, $3, $4, $5::jsonb, clock_timestamp(), $6, $7, $8, $9)
			ON CONFLICT DO NOTHING RETURNING id
		$sql$, tab) INTO new USING first, prio, start, head, payload, until, most, k, g;
		EXIT WHEN new IS NOT NULL;
	END LOOP;
	RETURN new;
END
$$;

-- One job. with_old: also the id of a job that was there and was left as it is.
CREATE OR REPLACE FUNCTION queue._push_key(cfg queue.queues, payload text, prio int4,
	start timestamptz, head jsonb, until timestamptz, most int4, k text, duplicate text, g text,
	with_old bool) RETURNS SETOF int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	first CONSTANT text := CASE WHEN start > clock_timestamp() THEN 'later' ELSE 'ready' END;
	old int8;
	was text;
	late bool;
	new int8;
BEGIN
	-- each round ends with a job of ours or with one that was there; another one is needed only
	-- when that one has ended between two statements
	FOR round IN 1..1000 LOOP
		old := NULL;
		late := false;
		IF k IS NOT NULL THEN
			EXECUTE format($sql$
				SELECT id, state, state <> 'leased' AND expires_at <= clock_timestamp() AS late
				FROM %s WHERE key = $1 AND state <> 'dead'
			$sql$, tab) INTO old, was, late USING k;
		END IF;
		IF late THEN	-- it would never be taken
			EXECUTE format('SELECT queue._late_%s($1)', cfg.number) USING old;
		ELSIF old IS NULL THEN
			new := queue._insert_key(tab, first, payload, prio, start, head, until, most, k, g);
			IF new IS NOT NULL THEN
				RETURN NEXT new;
				RETURN;
			END IF;
		ELSIF duplicate = 'error' THEN
			PERFORM queue._key_taken(cfg.name, k, old);
		ELSIF duplicate = 'ignore' THEN
			IF with_old THEN
				RETURN NEXT old;
			END IF;
			RETURN;
		ELSE
			EXECUTE format(CASE duplicate WHEN 'rerun' THEN $sql$
					UPDATE %s SET again = CASE WHEN state = 'leased' THEN true END
					WHERE id = $1 AND key = $2 AND state <> 'dead' RETURNING id
				$sql$ ELSE $sql$
					UPDATE %s SET
						again = CASE WHEN state = 'leased' THEN true END,
						state = CASE WHEN state IN ('leased', 'blocked') THEN state ELSE $3 END,
						position = CASE WHEN state = $3 AND priority = $4 THEN position
							ELSE nextval(%L::regclass) END,
						priority = $4, run_at = $5, headers = $6, payload = $7::jsonb,
						expires_at = $8, max_attempts = $9,
						attempt = CASE WHEN state = 'leased' THEN attempt ELSE 0 END,
						failures = CASE WHEN state = 'leased' THEN failures ELSE 0 END
					WHERE id = $1 AND key = $2 AND state <> 'dead' RETURNING id
				$sql$ END, tab, format('queue.n%s_position', cfg.number))
				INTO new USING old, k, first, prio, start, head, payload, until, most;
			IF new IS NOT NULL THEN
				IF duplicate = 'replace' OR with_old OR was = 'leased' THEN
					RETURN NEXT new;
				END IF;
				RETURN;
			END IF;
		END IF;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = '40001',
		MESSAGE = format('could not push to queue "%s": jobs with the key "%s" come and go', cfg.name,
			left(k, 200)), HINT = 'Try again.';
END
$$;

-- Jobs that ended and are to run once more.
CREATE OR REPLACE FUNCTION queue._run_again(cfg queue.queues, ids int8[], tokens text[])
RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	still int8[];
BEGIN
	EXECUTE format($sql$
		WITH job AS (
			UPDATE %s SET state = CASE WHEN run_at > clock_timestamp() THEN 'later' ELSE 'ready' END,
				position = DEFAULT, token = NULL, lease_until = NULL, again = NULL,
				attempt = 0, failures = 0, error = NULL
			WHERE id = ANY ($1) AND token = ($2)[width_bucket(id, $1)]
				AND lease_until > clock_timestamp() AND again
			RETURNING id)
		SELECT array_agg(id) FROM job
	$sql$, queue._table(cfg.name)) INTO still USING ids, tokens;
	IF still IS NOT NULL THEN
		PERFORM pg_notify('qbouncer', cfg.name);
	END IF;
	RETURN still;
END
$$;
