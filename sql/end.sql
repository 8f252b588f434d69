GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA queue TO PUBLIC;
	$qbouncer_functions$;
	PERFORM pg_catalog.set_config('search_path', path, true);
END
$qbouncer_install$;
