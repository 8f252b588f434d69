-- The archive of a queue, queue."a_<name>": what is kept of jobs that have ended.
--
-- A table of its own: the one that jobs are taken from stays small, and deleting the oldest of the
-- archive is a range of its index. What comes here: everything that ends in a queue with
-- retain_done, and jobs with a RESULT in any queue. Dead jobs stay where they are: they may be
-- run again.

CREATE OR REPLACE FUNCTION queue._archive(name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('queue.%I', 'a_' || name);
END
$$;

-- How long: a result whose queue keeps nothing else is there for those who ask for it soon.
CREATE OR REPLACE FUNCTION queue._kept(retain_done interval) RETURNS interval
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN retain_done > interval '0' THEN retain_done ELSE interval '1 hour' END;
END
$$;

-- The columns of a queue's table that its archive has too. New ones come last.
CREATE OR REPLACE FUNCTION queue._kept_columns() RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN '{id, pushed_at, run_at, failed_at, ended_at, priority, attempt, max_attempts, failures, state, worker, error,
		key, group, headers, payload, taken_at, first_taken_at, spent, history, progress, batch}';
END
$$;

-- The statement that puts rows of the queue's table, of this source, into its archive. other: of some columns an
-- expression (_select). What is done has no error: that of an earlier attempt is not its own. What waits for others until
-- its end was to be of a group (after.sql).
CREATE OR REPLACE FUNCTION queue._keep(archive text, source text, state text, other text[] DEFAULT '{}')
RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names CONSTANT text[] := queue._kept_columns() || 'result'::text;
BEGIN
	RETURN format('INSERT INTO %s (%s) SELECT %s FROM %s ', archive, queue._select(names, '{}'),
		queue._select(names, ARRAY['state', quote_literal(state), 'ended_at', 'clock_timestamp()',
			'error', CASE WHEN state = 'done' THEN 'NULL' ELSE 'error' END, 'result', 'NULL',
			'group', CASE WHEN state = 'done' THEN '"group"' ELSE queue._group_later() END] || other), source);
END
$$;

-- The same as a part of a WITH, for what ends otherwise than by its worker; empty if the queue keeps
-- nothing. Source: deleted rows of the queue's table.
CREATE OR REPLACE FUNCTION queue._with_keep(cfg queue.queues, source text, state text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN cfg.retain_done > interval '0'
		THEN format(', kept_%s AS (%s)', state, queue._keep(queue._archive(cfg.name), source, state)) ELSE '' END;
END
$$;

-- Its columns are of the types that the queue's table has. An id may be there twice: those of an
-- unlogged table may begin anew after a crash. So it has no key, and a publication (FOR ALL TABLES)
-- needs to be told what names a row that is deleted: Postgres would refuse to delete it. Without one
-- that costs nothing.
CREATE OR REPLACE FUNCTION queue._generate_archive(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format($sql$
		CREATE %5$s TABLE %1$s WITH (vacuum_truncate = off, toast.vacuum_truncate = off,
			autovacuum_vacuum_scale_factor = 0.05)
		AS SELECT %6$s, NULL::jsonb AS result FROM %2$s WITH NO DATA;
		CREATE INDEX %3$I ON %1$s (id);
		CREATE INDEX %4$I ON %1$s (ended_at);
		ALTER TABLE %1$s REPLICA IDENTITY FULL;
		REVOKE ALL ON %1$s FROM PUBLIC;
	$sql$, queue._archive(name), queue._table(name), format('n%s_archive', number),
		format('n%s_ended', number), (SELECT CASE relpersistence WHEN 'u' THEN 'UNLOGGED' ELSE '' END
			FROM pg_class WHERE oid = to_regclass(queue._table(name))), queue._select(queue._kept_columns(), '{}'));

	-- _done_<number> for jobs that are kept: all of them, or those with a result
	PERFORM queue._generate_one(format('_done_keep_%s(ids int8[], tokens text[], results text[])
		RETURNS int8[]', number), 'SET enable_seqscan = off SET enable_bitmapscan = off
		SET plan_cache_mode = force_generic_plan', replace(replace($body$
DECLARE
	still int8[];
	keeps CONSTANT bool := results IS NULL OR array_position(results, NULL) IS NULL
		OR (SELECT retain_done > interval '0' FROM queue.queues WHERE number = @n@);
BEGIN
	WITH job AS (
		DELETE FROM @table@ WHERE id = ANY (ids)
			AND token = (tokens)[width_bucket(id, ids)] AND lease_until > clock_timestamp()
			AND again IS NULL
		RETURNING *),
	kept AS (@keep@ WHERE keeps OR (results)[width_bucket(id, ids)] IS NOT NULL)
	SELECT array_agg(id) INTO still FROM job;
	RETURN still;
END
$body$, '@n@', number::text), '@keep@', queue._keep('@archive@', 'job', 'done',
		ARRAY['result', '(results)[width_bucket(id, ids)]::jsonb'])), queue._table(name));
	PERFORM queue._for_all(format('_done_keep_%s', number));
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_archive(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF to_regclass(queue._archive(name)) IS NOT NULL THEN
		EXECUTE 'DROP TABLE ' || queue._archive(name);
	END IF;
	EXECUTE format('DROP FUNCTION IF EXISTS queue._done_keep_%s', number);
END
$$;
