-- qbouncer: installs the schema "queue". One string, without psql commands: it can be sent as
-- one simple Query, which makes it one transaction. Installed and current: it does nothing.
-- Needs CREATE on the database (or on an empty schema "queue" that the owner of the database or a superuser has
-- made for it); no superuser, no extension; PostgreSQL 13 and later.
DO $qbouncer_install$
DECLARE
	wanted CONSTANT pg_catalog.int4 := 1;
	installed pg_catalog.int4;
	path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
	stranger pg_catalog.text;
BEGIN
	-- two proxies that install at once: the second waits here and finds it done. Anybody can hold such a lock, so
	-- not for ever: then the schema's name lets only one of two through
	FOR i IN 1 .. 100 LOOP
		EXIT WHEN pg_catalog.pg_try_advisory_xact_lock(7598543210001);
		PERFORM pg_catalog.pg_sleep(0.1);
	END LOOP;
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

	-- Who owns the schema, or what is in it, puts there what he likes: nothing of it is called, and nothing is
	-- installed into it, unless it is somebody's who could have his code run in this database anyway.
	SELECT r.rolname INTO stranger FROM pg_namespace AS n LEFT JOIN pg_proc AS p ON p.pronamespace = n.oid,
			pg_roles AS r, pg_database AS d
		WHERE n.nspname = 'queue' AND d.datname = current_database() AND r.oid IN (n.nspowner, p.proowner)
			AND r.rolname <> current_user AND NOT pg_has_role(r.oid, d.datdba, 'MEMBER') LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('schema "queue" belongs to role "%s"', stranger),
			DETAIL = 'Who owns the schema can do whatever those who use queues can do: it has to be this role, the owner of the database or a superuser.',
			HINT = 'If it is empty: ALTER SCHEMA queue OWNER TO ...; if it is not qbouncer''s: ALTER SCHEMA queue RENAME TO ...';
	END IF;
	IF to_regprocedure('queue.version()') IS NOT NULL THEN
		EXECUTE 'SELECT queue.version()' INTO installed;
	END IF;
	IF installed >= wanted THEN
		PERFORM pg_catalog.set_config('search_path', path, true);
		RETURN;
	END IF;
	-- a function of this name that is there would be replaced, and stay its owner's
	IF installed IS NULL AND EXISTS (SELECT FROM pg_depend AS d WHERE d.refclassid = 'pg_namespace'::regclass
			AND d.refobjid = to_regnamespace('queue') AND d.deptype = 'n') THEN
		RAISE EXCEPTION USING ERRCODE = '42P06',
			MESSAGE = 'schema "queue" exists and is not qbouncer''s',
			HINT = 'Rename it: ALTER SCHEMA queue RENAME TO ...; qbouncer needs this name.';
	END IF;
	IF pg_catalog.to_regnamespace('queue') IS NULL THEN
		BEGIN
			EXECUTE 'CREATE SCHEMA queue';
		EXCEPTION WHEN unique_violation OR duplicate_schema THEN	-- somebody else has, while we waited for him
			IF pg_catalog.to_regprocedure('queue.version()') IS NOT NULL THEN
				PERFORM pg_catalog.set_config('search_path', path, true);
				RETURN;
			END IF;
			RAISE;
		END;
	END IF;

	-- tables: made once; a later version brings them up to date in a step of its own below
	IF installed IS NULL THEN
		EXECUTE $qbouncer_schema$
