
-- Not those of one queue: some of them are nobody's to call, and each is granted where it is made.
DO $qbouncer_grant$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc AS p
			WHERE p.pronamespace = 'queue'::regnamespace AND p.proname !~ '_[0-9]+$' LOOP
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', f);
	END LOOP;
END
$qbouncer_grant$;
	$qbouncer_functions$;
	PERFORM pg_catalog.set_config('search_path', path, true);
END
$qbouncer_install$;
