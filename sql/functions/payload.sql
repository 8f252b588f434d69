-- What gives payloads, once more for each type that is not jsonb: the type of a function's rows is part
-- of it. queue.take_text is queue.take with another word in these places, and so on.
DO $qbouncer_payload$
DECLARE
	kind text;
	f text;
	quoting CONSTANT text := current_setting('quote_all_identifiers');
	push CONSTANT oid := (SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = 'queue'::regnamespace
		AND p.proname = 'push' AND p.proargtypes[1] = 'jsonb'::regtype);
BEGIN
	PERFORM set_config('quote_all_identifiers', 'off', true);
	FOREACH kind IN ARRAY ARRAY['text', 'bytea'] LOOP
		FOREACH f IN ARRAY ARRAY['_take', 'take', 'pop', 'peek', 'job', '_take_retries_jsonb', '_peek_delivery_jsonb', '_look_at_jsonb', '_deliver_chosen_jsonb', '_take_where_for_jsonb', '_take_long_jsonb', '_take_for', 'take_for', 'peek_for'] LOOP
			EXECUTE replace(replace(replace(replace(replace(replace(pg_get_functiondef(('queue.' || f)::regproc),
				'FUNCTION queue.' || f || '(', 'FUNCTION queue.' || replace(f, '_jsonb', '') || '_' || kind || '('),
				'_jsonb', '_' || kind),
				'payload::jsonb', 'payload::' || kind),
				quote_literal('jsonb'), quote_literal(kind)),
				'FROM queue._take(', 'FROM queue._take_' || kind || '('),
				'FROM queue._take_for(', 'FROM queue._take_for_' || kind || '(');
		END LOOP;
	END LOOP;
	EXECUTE replace(replace(pg_get_functiondef(push), 'payload jsonb', 'payload bytea'),
		quote_literal('jsonb'), quote_literal('bytea'));
	PERFORM set_config('quote_all_identifiers', quoting, true);
END
$qbouncer_payload$;
