-- Bulk pushes. What a row alone decides is an INSERT or COPY into the queue's table by the role
-- that pushes; these functions are its columns where they are more than a cast. KEY and GROUP, and
-- what COPY cannot compute, go to a view of the queue, queue."b_<name>": its trigger pushes each row
-- with the rights of whoever inserts it, so that everybody may have the right to.

CREATE OR REPLACE FUNCTION queue._bulk_start(start timestamptz) RETURNS timestamptz
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT isfinite(start) THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'the time of a job must be finite';
	END IF;
	RETURN start;
END
$$;

CREATE OR REPLACE FUNCTION queue._bulk_state(start timestamptz) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN start > clock_timestamp() THEN 'later' ELSE 'ready' END;
END
$$;

CREATE OR REPLACE FUNCTION queue._bulk_expires(start timestamptz, expires interval)
RETURNS timestamptz
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF expires <= interval '0' OR expires > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'EXPIRES must be longer than zero';
	END IF;
	RETURN greatest(start, clock_timestamp()) + expires;
END
$$;

CREATE OR REPLACE FUNCTION queue._bulk_headers(headers text) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	head CONSTANT jsonb := headers::jsonb;
BEGIN
	IF jsonb_typeof(head) NOT IN ('object', 'null') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'headers must be a JSON object',
			HINT = 'For example: {"trace": "4711"}';
	END IF;
	RETURN head;
END
$$;

CREATE OR REPLACE FUNCTION queue._bulk_attempts(attempts int4) RETURNS int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF attempts < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ATTEMPTS must be at least 1';
	END IF;
	RETURN attempts;
END
$$;

CREATE OR REPLACE FUNCTION queue._bulk_batch(batch text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF octet_length(batch) > 1000 THEN
		RAISE EXCEPTION USING ERRCODE = '22001', MESSAGE = 'the name of a BATCH has at most 1000 bytes';
	END IF;
	RETURN batch;
END
$$;

-- What the names of the queue's jobs begin with. That of its table as it is now: queue.queues may be read as of an
-- older snapshot.
CREATE OR REPLACE FUNCTION queue._bulk_number(q text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF queue._is_stream(q) THEN
		PERFORM queue._not_of_streams('RETURNING JOB', 'An event is no job: RETURNING ID.');
	END IF;
	RETURN substring(pg_get_serial_sequence(queue._table(q), 'id') FROM 'n([0-9]+)_id$');
END
$$;

-- The view and its trigger. A key is in the column that says what happens to a job that has it. No row:
-- nothing was pushed, or, with_old, nothing is there either. id and job are for RETURNING.
CREATE OR REPLACE FUNCTION queue._generate_bulk(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._generate_one(format('_bulk_%s() RETURNS trigger', number), '',
		replace($body$
DECLARE
	k CONSTANT text := coalesce(NEW.key, NEW.key_replace, NEW.key_rerun, NEW.key_error);
	start timestamptz := coalesce(NEW.run_at, clock_timestamp() + NEW.delay);
BEGIN
	IF start IS NOT NULL THEN
		start := queue._bulk_start(start);
	END IF;
	IF octet_length(k) > 1000 OR octet_length(NEW."group") > 1000 THEN
		PERFORM queue._check_key(NULL, k, NULL, NEW."group");
	END IF;
	NEW.id := queue._push_key_@n@(NEW.payload::text, coalesce(NEW.priority, 0), start,
			CASE WHEN NEW.headers IS NOT NULL THEN queue._bulk_headers(NEW.headers) END,
			CASE WHEN NEW.expires IS NOT NULL THEN queue._bulk_expires(start, NEW.expires) END,
			CASE WHEN NEW.max_attempts IS NOT NULL THEN queue._bulk_attempts(NEW.max_attempts) END, k,
			CASE WHEN NEW.key IS NOT NULL THEN 'ignore' WHEN NEW.key_replace IS NOT NULL THEN 'replace'
				WHEN NEW.key_rerun IS NOT NULL THEN 'rerun' ELSE 'error' END,
			NEW."group", NEW.with_old IS TRUE, CASE WHEN NEW.batch IS NOT NULL THEN queue._bulk_batch(NEW.batch) END);
	IF NEW.id IS NULL THEN
		RETURN NULL;
	END IF;
	NEW.job := '@n@-' || NEW.id;
	RETURN NEW;
END
$body$, '@n@', number::text), '');
	EXECUTE format($sql$
		CREATE VIEW queue.%1$I AS SELECT NULL::%2$s AS payload, NULL::int4 AS priority,
			NULL::interval AS delay, NULL::timestamptz AS run_at, NULL::interval AS expires,
			NULL::text AS headers, NULL::int4 AS max_attempts, NULL::text AS key,
			NULL::text AS key_replace, NULL::text AS key_rerun, NULL::text AS key_error,
			NULL::text AS "group", NULL::text AS batch, NULL::bool AS with_old, NULL::int8 AS id, NULL::text AS job;
		CREATE TRIGGER push INSTEAD OF INSERT ON queue.%1$I FOR EACH ROW
			EXECUTE FUNCTION queue.%3$I();
		GRANT INSERT, SELECT (id, job) ON queue.%1$I TO PUBLIC;
	$sql$, 'b_' || name, (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
			WHERE a.attrelid = to_regclass(queue._table(name)) AND a.attname = 'payload'),
		format('_bulk_%s', number));
	PERFORM queue._for_all(format('_bulk_%s', number));
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_bulk(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('DROP VIEW IF EXISTS queue.%I; DROP FUNCTION IF EXISTS queue.%I', 'b_' || name,
		format('_bulk_%s', number));
END
$$;
