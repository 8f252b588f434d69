-- qbouncer: removes the schema "queue" with every queue and every job in it.
-- Waits for the transactions that use it. Not installed: it does nothing.
DO $qbouncer_uninstall$
BEGIN
	FOR i IN 1 .. 100 LOOP
		EXIT WHEN pg_catalog.pg_try_advisory_xact_lock(7598543210001);
		PERFORM pg_catalog.pg_sleep(0.1);
	END LOOP;
	IF pg_catalog.to_regprocedure('queue.version()') IS NULL THEN
		RETURN;
	END IF;
	EXECUTE 'DROP SCHEMA queue CASCADE';
END
$qbouncer_uninstall$;
