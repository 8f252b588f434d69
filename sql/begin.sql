-- qbouncer: installs the schema "queue". One string, without psql commands: it can be sent as
-- one simple Query, which makes it one transaction. Installed and current: it does nothing.
-- Needs CREATE on the database (or on an empty schema "queue" made for it); no superuser, no
-- extension; PostgreSQL 13 and later.
DO $qbouncer_install$
DECLARE
	wanted CONSTANT pg_catalog.int4 := 1;
	installed pg_catalog.int4;
	path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
BEGIN
	-- two proxies that install at once: the second waits here and finds it done
	PERFORM pg_catalog.pg_advisory_xact_lock(7598543210001);
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

	IF pg_catalog.to_regprocedure('queue.version()') IS NOT NULL THEN
		EXECUTE 'SELECT queue.version()' INTO installed;
	END IF;
	IF installed >= wanted THEN
		PERFORM pg_catalog.set_config('search_path', path, true);
		RETURN;
	END IF;
	IF installed IS NULL AND pg_catalog.to_regclass('queue.queues') IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42P06',
			MESSAGE = 'schema "queue" exists and is not qbouncer''s',
			HINT = 'Rename it: ALTER SCHEMA queue RENAME TO ...; qbouncer needs this name.';
	END IF;
	IF pg_catalog.to_regnamespace('queue') IS NULL THEN
		EXECUTE 'CREATE SCHEMA queue';
	END IF;

	-- tables: made once; a later version brings them up to date in a step of its own below
	IF installed IS NULL THEN
		EXECUTE $qbouncer_schema$
