-- What is done to jobs by others than their worker: CANCEL, RERUN, REDRIVE.
--
-- A job is named by "<queue number>-<id>", by the token of any of its leases, of which only these
-- two parts count, or by its bare id, if no other queue has such a job.

CREATE OR REPLACE FUNCTION queue._no_job(ref text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = 'QB003', MESSAGE = format('there is no job %s', ref),
		HINT = 'A job that has ended is gone; if its queue keeps it (retain_done), QUEUE JOB shows it.';
END
$$;

-- What a job is named by: the number of its queue and its id. A bare id: the number is NULL.
CREATE OR REPLACE FUNCTION queue._ref(ref text, OUT number int4, OUT id int8)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF ref ~ '^[0-9]{1,9}-[0-9]{1,18}(-[0-9a-f]{16})?$' THEN
		number := split_part(ref, '-', 1)::int4;
		id := split_part(ref, '-', 2)::int8;
	ELSIF ref ~ '^[0-9]{1,18}$' THEN
		id := ref::int8;
	ELSIF ref IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a job must not be null';
	ELSE
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('"%s" is not a job', left(ref, 80)),
			HINT = 'Pass the job''s id, ''<queue number>-<id>'', or a token that TAKE returned.';
	END IF;
END
$$;

-- The queues that have a job with this id in such a state, of those that the role may read. Of
-- all states: also one that has ended and is kept.
CREATE OR REPLACE FUNCTION queue._queues_with(wanted int8, dead bool)
RETURNS TABLE (number int4, name text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
	found bool;
BEGIN
	FOR number, name IN SELECT c.number, c.name FROM queue.queues AS c
			WHERE has_table_privilege(to_regclass(queue._table(c.name)), 'SELECT')
			ORDER BY c.number LOOP
		CONTINUE WHEN NOT queue._still(name);
		EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id = $1
			AND ($2 IS NULL OR $2 = (state = ''dead'')))', queue._table(name))
			INTO found USING wanted, dead;
		IF dead IS NULL AND NOT found
				AND has_table_privilege(to_regclass(queue._archive(name)), 'SELECT') THEN
			EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id = $1)', queue._archive(name))
				INTO found USING wanted;
		END IF;
		IF found THEN
			RETURN NEXT;
		END IF;
	END LOOP;
END
$$;

-- dead: for a bare id, whether dead jobs or only the others are looked at; NULL: all.
CREATE OR REPLACE FUNCTION queue._locate(ref text, dead bool)
RETURNS TABLE (number int4, name text, id int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	said int4;
	places text[];
BEGIN
	SELECT r.number, r.id INTO said, id FROM queue._ref(ref) AS r;
	IF said IS NOT NULL THEN
		SELECT c.number, c.name INTO number, name FROM queue.queues AS c WHERE c.number = said;
	ELSE
		SELECT array_agg(format('''%s-%s'' (%s)', w.number, id, w.name)), min(w.number), min(w.name)
			INTO places, number, name FROM queue._queues_with(id, dead) AS w;
		IF cardinality(places) > 1 THEN
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = format('job %s is ambiguous', id),
				DETAIL = format('%s queues have a job with this id.', cardinality(places)),
				HINT = 'Name it with the number of its queue: '
					|| array_to_string(places[1:10], ', ') || '.';
		END IF;
	END IF;
	IF name IS NULL AND said IS NULL AND dead IS NOT NULL THEN
		SELECT array_agg(format('''%s-%s'' (%s)', w.number, id, w.name)) INTO places
			FROM queue._queues_with(id, NULL) AS w;
		IF places IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = 'QB003',
				MESSAGE = format('there is no job %s that is %s', id,
					CASE WHEN dead THEN 'dead' ELSE 'not finished' END),
				HINT = 'QUEUE JOB shows what there is: ' || array_to_string(places[1:10], ', ') || '.';
		END IF;
	END IF;
	IF name IS NULL THEN
		PERFORM queue._no_job(ref);
	END IF;
	RETURN NEXT;
END
$$;

-- The jobs to be changed, each once, locked in the order that all functions keep to.
CREATE OR REPLACE FUNCTION queue._lock(refs text[], of_dead bool)
RETURNS TABLE (number int4, name text, id int8, state text, leased bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
	FOR number, name, id IN
			SELECT DISTINCT l.number, l.name, l.id
			FROM unnest(refs) AS r, LATERAL queue._locate(r, of_dead) AS l ORDER BY 1, 3 LOOP
		EXECUTE format('SELECT state, state = ''leased'' AND lease_until > clock_timestamp()
			FROM %s WHERE id = $1 FOR UPDATE', queue._table(name)) INTO state, leased USING id;
		IF state IS NULL THEN
			PERFORM queue._no_job(number || '-' || id);
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;

-- A job that waits goes away. One that somebody works on is marked, by an x before its token: that
-- makes everything its worker may say of it QB002 (_lost), and it goes away when the lease ends.
CREATE OR REPLACE FUNCTION queue._cancel(refs text[], notify bool) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	job record;
BEGIN
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	FOR job IN SELECT * FROM queue._lock(refs, false) LOOP
		IF job.state = 'dead' THEN
			RAISE EXCEPTION USING ERRCODE = '55000',
				MESSAGE = format('job %s-%s is dead already', job.number, job.id),
				HINT = format('Dead jobs are deleted by: QUEUE PURGE %I STATE dead;', job.name);
		ELSIF job.leased THEN
			EXECUTE format('UPDATE %s SET token = ''x'' || ltrim(token, ''x''), key = NULL WHERE id = $1',
				queue._table(job.name)) USING job.id;
		ELSE
			EXECUTE format('WITH gone AS (DELETE FROM %s WHERE id = $1 RETURNING *) %s SELECT FROM gone',
				queue._table(job.name), queue._with_keep(queue._find(job.name), 'gone', 'cancelled'))
				USING job.id;
		END IF;
		RETURN NEXT job.name;
	END LOOP;
END
$$;

-- A dead job starts afresh, behind what is ready now. Its last error stays to be seen.
CREATE OR REPLACE FUNCTION queue._rerun(refs text[], notify bool) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	job record;
BEGIN
	FOR job IN SELECT * FROM queue._lock(refs, true) LOOP
		IF job.state <> 'dead' THEN
			RAISE EXCEPTION USING ERRCODE = '55000',
				MESSAGE = format('job %s-%s is not dead', job.number, job.id),
				DETAIL = format('Its state is %s.', job.state),
				HINT = 'Only dead jobs can be run again.';
		END IF;
		BEGIN
			EXECUTE format('UPDATE %s SET state = CASE WHEN "group" IS NULL THEN ''ready'' ELSE ''blocked'' END, position = DEFAULT,
				run_at = NULL, ended_at = NULL, attempt = 0, failures = 0 WHERE id = $1', queue._table(job.name))
				USING job.id;
		EXCEPTION WHEN unique_violation THEN
			RAISE EXCEPTION USING ERRCODE = '23505',
				MESSAGE = format('queue "%s" has another job with the key of job %s-%s', job.name, job.number, job.id),
				HINT = 'Run it again when that one has ended.';
		END;
		IF notify THEN
			PERFORM pg_notify('qbouncer', job.name);
		END IF;
		RETURN NEXT job.name;
	END LOOP;
END
$$;

-- All dead jobs of a queue, or the first so many that died. They keep that order. Of those with one
-- key it is the last, if no other job has the key: looked up in indexes, each by itself, and not by
-- reading the queue once for each.
CREATE OR REPLACE FUNCTION queue.redrive(q text, lim int4 DEFAULT NULL, notify bool DEFAULT true)
RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	moved int8;
BEGIN
	PERFORM queue._find(q);
	IF lim < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	END IF;
	EXECUTE format($sql$
		WITH dead AS MATERIALIZED (
			SELECT id AS dead_id FROM %1$s AS d WHERE state = 'dead'
				AND (key IS NULL OR id IN (SELECT max(id) FROM %1$s
						WHERE state = 'dead' AND key IS NOT NULL GROUP BY key)
					-- not EXISTS: that may be hashed, by reading the whole table
					AND (SELECT o.id FROM %1$s AS o WHERE o.key = d.key AND o.state <> 'dead' LIMIT 1) IS NULL)
			ORDER BY ended_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
		UPDATE %1$s SET state = CASE WHEN "group" IS NULL THEN 'ready' ELSE 'blocked' END, position = DEFAULT, run_at = NULL, ended_at = NULL,
			attempt = 0, failures = 0
		FROM dead WHERE id = dead_id
	$sql$, queue._table(q)) USING lim;
	GET DIAGNOSTICS moved = ROW_COUNT;
	IF notify AND moved > 0 THEN
		PERFORM pg_notify('qbouncer', q);
	END IF;
	RETURN moved;
END
$$;
