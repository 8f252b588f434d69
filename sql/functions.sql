		$qbouncer_schema$;
	END IF;

	-- functions: replaced as a whole by every new version
	EXECUTE $qbouncer_functions$
