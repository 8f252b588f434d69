
-- Not those of one queue: some of them are nobody's to call, and each is granted where it is made. Nor the
-- triggers that act with the installer's rights: nobody puts them on a table of his own.
DO $qbouncer_grant$
DECLARE
	f regprocedure;
	definer bool;
BEGIN
	FOR f, definer IN SELECT p.oid, p.prosecdef FROM pg_proc AS p
			WHERE p.pronamespace = 'queue'::regnamespace AND p.proname !~ '_[0-9]+$' LOOP
		-- but who has something due is no secret, and to look again changes nothing that is right
		EXECUTE format(CASE WHEN definer AND f NOT IN ('queue._schedules_due()'::regprocedure,
				'queue._look_after_all(int4)'::regprocedure, 'queue._left_behind(int4)'::regprocedure,
				'queue._fold_figures(interval)'::regprocedure) THEN 'REVOKE ALL ON FUNCTION %s FROM PUBLIC'
			ELSE 'GRANT EXECUTE ON FUNCTION %s TO PUBLIC' END, f);
	END LOOP;
END
$qbouncer_grant$;
	$qbouncer_functions$;
	PERFORM pg_catalog.set_config('search_path', path, true);
END
$qbouncer_install$;
