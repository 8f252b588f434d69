-- qbouncer: removes the schema "queue" with every queue and every job in it.
-- Waits for the transactions that use it. Not installed: it does nothing.
DO $qbouncer_uninstall$
BEGIN
	PERFORM pg_catalog.pg_advisory_xact_lock(7598543210001);
	IF pg_catalog.to_regprocedure('queue.version()') IS NULL THEN
		RETURN;
	END IF;
	EXECUTE 'DROP SCHEMA queue CASCADE';
END
$qbouncer_uninstall$;
