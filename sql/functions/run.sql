-- Jobs that run by themselves: queues with a handler, or with run = sql, which qbouncer works off itself.
--
-- The work is done in a login of the queue's owner, and in no other: what somebody else may write into a function or a
-- statement runs with all that this login could do, SET ROLE is no boundary for it, nor is SECURITY DEFINER (a deferred
-- trigger runs at the COMMIT). So a handler belongs to the owner of the queue, or to a superuser.
--
-- Of a handler work and DONE are one statement; SQL is carried out by the proxy, statement by statement, in the transaction
-- of its DONE. What fails is rolled back; the proxy says FAIL behind it.

CREATE OR REPLACE FUNCTION queue._bad_handler(code text, message text, hint text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint;
END
$$;

-- Its name as it is kept: quoted where it has to be, with its schema.
CREATE OR REPLACE FUNCTION queue._handler_option(value text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part text[];
BEGIN
	BEGIN
		part := parse_ident(value);
	EXCEPTION WHEN invalid_parameter_value THEN
		part := NULL;
	END;
	IF cardinality(part) IS DISTINCT FROM 2 OR octet_length(part[1]) > 63 OR octet_length(part[2]) > 63 THEN
		PERFORM queue._bad_option('handler', value,
			'Allowed: a function with its schema, such as ''app.send_mail''. Without: RESET (handler).');
	END IF;
	RETURN format('%I.%I', part[1], part[2]);
END
$$;

-- The handler of a queue, if it may be called; gives: has it a result? Its name was checked by whoever made the row, or
-- was not. watched: somebody else owns the schema, who may put another function there; this is its version.
CREATE OR REPLACE FUNCTION queue._check_handler(cfg queue.queues, OUT f oid, OUT gives bool, OUT watched text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part CONSTANT text[] := parse_ident(queue._handler_option(cfg.handler));
	called CONSTANT text := format('%s(%s)', cfg.handler, cfg.payload);
	fn record;
BEGIN
	SELECT p.oid, p.prokind, p.proretset, p.prorettype, p.proowner, n.oid AS schema, n.nspowner, n.xmin AS version INTO fn
		FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
		WHERE n.nspname = part[1] AND p.proname = part[2] AND p.pronargs = 1 AND p.proargtypes[0] = cfg.payload::regtype
			AND p.provariadic = 0;
	IF NOT FOUND THEN
		PERFORM queue._bad_handler('42883', format('function %s does not exist', called),
			format('CREATE FUNCTION %s(payload %s) RETURNS void ...', cfg.handler, cfg.payload));
	ELSIF fn.prokind <> 'f' THEN
		PERFORM queue._bad_handler('42809', format('%s is not a function', called),
			'A handler is a function, which is part of the transaction that finishes the job.');
	ELSIF fn.proretset OR fn.prorettype NOT IN ('void'::regtype, 'jsonb'::regtype) THEN
		PERFORM queue._bad_handler('42P13', format('handler %s does not return void or jsonb', called),
			'What it returns is the result of the job: RETURNS jsonb, or RETURNS void.');
	ELSIF fn.proowner <> cfg.owner AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = fn.proowner) THEN
		PERFORM queue._bad_handler('42501', format('handler %s does not belong to the owner of the queue', called),
			format('Whoever owns it could do what "%s" may do: ALTER FUNCTION %s OWNER TO %1$I;',
				pg_get_userbyid(cfg.owner), called));
	ELSIF NOT has_schema_privilege(cfg.owner, fn.schema, 'USAGE') OR NOT has_function_privilege(cfg.owner, fn.oid, 'EXECUTE') THEN
		PERFORM queue._bad_handler('42501', format('the owner of the queue may not call %s', called),
			format('GRANT USAGE ON SCHEMA %I, and EXECUTE ON FUNCTION %s, TO %I.', part[1], called,
				pg_get_userbyid(cfg.owner)));
	END IF;
	f := fn.oid;
	gives := fn.prorettype = 'jsonb'::regtype;
	IF fn.nspowner <> cfg.owner AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = fn.nspowner) THEN
		watched := fn.version;
	END IF;
END
$$;

-- What is pushed to one queue by who may push there is no SQL for another one, by whatever way it comes there.
CREATE OR REPLACE FUNCTION queue._not_run(q text, why text, hint text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('%s would be run as SQL by queue "%s"', why, q),
		DETAIL = 'Jobs of run = sql may do all that the owner of the queue may do.', HINT = hint;
END
$$;

CREATE OR REPLACE FUNCTION queue._not_moved(q text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._not_run(q, 'what is moved', format('Who may push there says what is to be run: QUEUE RUN ... ON %I, QUEUE PUSH %1$I ...', q));
END
$$;

-- Behind a push to a queue whose jobs were no SQL when its row was looked up: are they SQL now? The push has locked the table,
-- so whoever makes it a queue of SQL has either committed, or waits and finds the job (_must_be_empty). Rows of an old snapshot
-- do not tell: there is the function that lone.sql has made for them.
CREATE OR REPLACE FUNCTION queue._runs_since(number int4) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.number = $1 AND c.run IS NULL
		AND (current_setting('transaction_isolation') = 'read committed'
			OR to_regproc('queue.' || quote_ident(queue._lone_name(c))) IS NOT NULL));
END
$$;

CREATE OR REPLACE FUNCTION queue._changed_since(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('queue "%s" was changed since this transaction began', name),
		HINT = 'Repeat the transaction.';
END
$$;

-- Nobody knows who has pushed what is in a queue: somebody who may not do so any more, a publisher, a former owner. So the
-- jobs of a queue do not begin to run by themselves, nor in the logins of somebody else, if there are any, or somebody is
-- about to push one: those who have pushed and not committed are waited for. Those that are dead can be run again, which
-- only matters where they are SQL.
CREATE OR REPLACE FUNCTION queue._must_be_empty(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	found text;
BEGIN
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		PERFORM queue._needs_read_committed('to have jobs run by themselves');
	END IF;
	EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', tab);
	EXECUTE format('SELECT state FROM %s%s LIMIT 1', tab, CASE WHEN cfg.run IS NULL THEN ' WHERE state <> ''dead''' ELSE '' END) INTO found;
	IF found IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('queue "%s" has jobs, which would run as "%s"', cfg.name, pg_get_userbyid(cfg.owner)),
			DETAIL = 'Nobody knows who has pushed them.',
			HINT = format(CASE found WHEN 'dead' THEN 'Those that are dead can be deleted (QUEUE PURGE %I STATE dead), or moved (QUEUE REDRIVE %1$I TO ...).'
				ELSE 'Have them worked off (QUEUE PAUSE %I PUSH keeps new ones away) or cancelled (QUEUE CANCEL ALL ON %1$I), or CREATE another queue.' END, cfg.name);
	END IF;
END
$$;

-- Who may write the payloads of a queue whose jobs run, other than its owner: he is told who makes it one. A taker
-- may change them.
CREATE OR REPLACE FUNCTION queue._warn_of_pushers(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	others text;
BEGIN
	SELECT string_agg(DISTINCT CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(x.grantee) END, ', ') INTO others
		FROM pg_class AS t JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attname = 'payload',
			LATERAL (SELECT * FROM aclexplode(t.relacl) UNION ALL SELECT * FROM aclexplode(a.attacl)) AS x
		WHERE t.oid = to_regclass(queue._table(cfg.name)) AND x.grantee NOT IN (cfg.owner, t.relowner)
			AND x.privilege_type IN ('INSERT', 'UPDATE');
	IF others IS NOT NULL THEN
		RAISE WARNING USING ERRCODE = '01000', MESSAGE = format('others may push to queue "%s", or take from it: %s', cfg.name, others),
			DETAIL = 'Its jobs run as its owner, and they can write the payloads.',
			HINT = 'With run = sql, that is to give away all that the owner may do.';
	END IF;
END
$$;

-- An option of queues whose jobs run by themselves, given to one whose jobs do not.
CREATE OR REPLACE FUNCTION queue._runs_nothing(option text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s needs a handler', option) || CASE WHEN option IN ('timeout', 'session') THEN ', or run = sql' ELSE '' END,
		DETAIL = 'The jobs of this queue are taken by workers: nothing is run here that could have it.',
		HINT = format('Give it with the handler: handler = ''schema.function'', %s = ...', option)
			|| CASE option WHEN 'session' THEN '' ELSE ' Of a job that a worker holds: max_run.' END;
END
$$;

-- How long a session is kept, of a queue that keeps none.
CREATE OR REPLACE FUNCTION queue._keeps_nothing(option text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s needs session = keep', option),
		DETAIL = 'With session = clean, what a job leaves in its session is discarded behind each job.',
		HINT = format('SET (session = keep, %s = ...)', option);
END
$$;

-- For the trigger of the catalogue that runs as whoever changes the row: it makes the owner's logins do something.
CREATE OR REPLACE FUNCTION queue._check_runs(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- to have a role's rights is less than to be it: there are its attributes
	IF NOT pg_has_role(cfg.owner, CASE WHEN current_setting('server_version_num')::int4 >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
		PERFORM queue._bad_handler('42501', format('must be able to SET ROLE "%s"', pg_get_userbyid(cfg.owner)),
			'The jobs of such a queue run as its owner.');
	ELSIF cfg.run IS NOT NULL AND cfg.payload = 'bytea' THEN
		PERFORM queue._bad_handler('0A000', 'payloads of type bytea are no SQL', 'Create the queue WITH (payload = jsonb), or text.');
	ELSIF cfg.run IS NOT NULL AND cfg.handler_batch > 1 THEN
		PERFORM queue._bad_handler('22023', 'a queue that runs SQL has no handler_batch', 'Each statement is a transaction: RESET (handler_batch).');
	ELSIF cfg.handler IS NOT NULL AND cfg.run IS NOT NULL THEN
		PERFORM queue._bad_handler('22023', 'a queue has a handler, or runs SQL: not both', 'Give one of handler and run.');
	ELSIF NOT (SELECT r.rolcanlogin FROM pg_roles AS r WHERE r.oid = cfg.owner) THEN
		PERFORM queue._bad_handler('28000', format('role "%s" cannot log in', pg_get_userbyid(cfg.owner)),
			'The jobs of such a queue run in a login of its owner. Make it as a role that has one.');
	END IF;
	IF cfg.handler IS NOT NULL THEN
		PERFORM queue._check_handler(cfg);
	ELSIF EXISTS (SELECT FROM queue.bindings AS b WHERE b.queue = cfg.number) THEN
		PERFORM queue._not_run(cfg.name, 'what is published to a topic',
			format('Without: QUEUE UNBIND, which QUEUE ROUTES shows, from queue "%s".', cfg.name));
	ELSIF EXISTS (SELECT FROM queue.queues AS d WHERE d.dead_queue = cfg.number AND d.run IS DISTINCT FROM cfg.run) THEN
		PERFORM queue._not_run(cfg.name, 'what dies in another queue', (SELECT format('QUEUE ALTER %I RESET (dead_queue);', d.name)
			FROM queue.queues AS d WHERE d.dead_queue = cfg.number AND d.run IS DISTINCT FROM cfg.run ORDER BY d.number LIMIT 1));
	END IF;
	PERFORM queue._warn_of_pushers(cfg);
END
$$;

-- For the proxy: which queues have something to run, whose they are, how long a job may take, and how many are done in one
-- transaction. session: jobs of which this is the same find what those before have left; NULL: nothing is left. For anybody,
-- as the catalogue is.
CREATE OR REPLACE FUNCTION queue._runs() RETURNS TABLE (queue text, owner text, super bool, timeout_ms int8, run text, batch int4, payload text,
	session text, session_jobs int4, session_ms int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT c.name, r.rolname::text, r.rolsuper, (extract(epoch FROM c.timeout) * 1000)::int8, c.run, c.handler_batch, c.payload,
			CASE c.session WHEN 'keep' THEN concat_ws(' ', c.number, c.owner::oid, coalesce(c.session_jobs, 0), coalesce(k.ms, 0), c.handler) END,
			c.session_jobs, k.ms
		FROM queue.queues AS c JOIN pg_roles AS r ON r.oid = c.owner,
			LATERAL (SELECT CASE WHEN c.session_time IS NOT NULL THEN greatest(1, extract(epoch FROM c.session_time) * 1000)::int8 END) AS k (ms)
		WHERE c.handler IS NOT NULL OR c.run IS NOT NULL ORDER BY c.number;
END
$$;

-- The payload of such a job; NULL: it has no values.
CREATE OR REPLACE FUNCTION queue._check_params(params jsonb) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF jsonb_typeof(params) <> 'array' THEN
		PERFORM queue._bad_handler('22023', 'params must be a JSON array',
			'The values of $1, $2 and so on, in this order: ''[7, "a text", null]''.');
	ELSIF jsonb_array_length(params) > 20 THEN
		PERFORM queue._bad_handler('54023', 'a job has at most 20 params', 'One of them can be an object: ($1::jsonb ->> ''id'')::int.');
	END IF;
END
$$;

-- How long a job may run; NULL: as long as its queue says.
CREATE OR REPLACE FUNCTION queue._run_timeout(value text) RETURNS interval
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._interval_option('timeout', value, '1 ms', 'Allowed: an interval longer than zero, of a year at most, such as ''10 min''.',
		most => '366 days');
END
$$;

-- What is kept of its outcome.
CREATE OR REPLACE FUNCTION queue._run_keep(value text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF lower(value) NOT IN ('result', 'error', 'always', 'none') THEN
		PERFORM queue._bad_handler('22023', format('invalid value "%s" for keep', value), 'Allowed: result, error, always, none.');
	END IF;
	RETURN lower(value);
END
$$;

-- Columns: '*', names as SQL has them ('a, "B"', also in parentheses), or an array of JSON.
CREATE OR REPLACE FUNCTION queue._force_quote(value text) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name CONSTANT text := '("(?:[^"]|"")+"|[^][(),"[:space:]]+)';
	names CONSTANT text := regexp_replace(value, '^[[:space:]]*\((.*)\)[[:space:]]*$', '\1');
BEGIN
	IF value = '*' THEN
		RETURN '{*}';
	ELSIF value ~ '^[[:space:]]*\[' THEN
		RETURN ARRAY(SELECT jsonb_array_elements_text(value::jsonb));
	ELSIF names ~ '(^|[(,[:space:]])[0-9$-]' OR names !~ format('^[[:space:]]*(%s([[:space:]]*,[[:space:]]*%s)*)?[[:space:]]*$', name, name) THEN
		PERFORM queue._bad_handler('22023', format('invalid value "%s" for force_quote', value), 'Allowed: ''*'', or names of columns: ''a, "B c"''.');
	END IF;
	RETURN ARRAY(SELECT (parse_ident(m[1]))[1] FROM regexp_matches(names, name, 'g') AS m);
END
$$;

-- How its rows are kept: as the proxy was told, with what COPY has where nothing was said. NULL: as JSON.
CREATE OR REPLACE FUNCTION queue._run_format(format text, given jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	allowed CONSTANT text[] := '{delimiter,"null",header,quote,escape,force_quote}';
	o jsonb;
	k text;
BEGIN
	IF format IS NOT NULL AND lower(format) NOT IN ('json', 'csv', 'text') THEN
		PERFORM queue._bad_handler('22023', format('invalid value "%s" for format', format), 'Allowed: json, csv, text.');
	ELSIF given IS NOT NULL AND lower(format) IS DISTINCT FROM 'csv' THEN
		PERFORM queue._bad_handler('22023', 'only the format csv has options', 'FORMAT csv WITH (delimiter = '';'', header = true)');
	ELSIF format IS NULL OR lower(format) = 'json' THEN
		RETURN NULL;
	ELSIF lower(format) = 'text' THEN
		RETURN '{"format": "text"}';
	ELSIF given IS NOT NULL AND jsonb_typeof(given) <> 'object' THEN
		PERFORM queue._bad_handler('22023', 'the options of the format are no JSON object', '{"delimiter": ";", "header": true}');
	END IF;
	SELECT jsonb_object_agg(lower(g.key), g.value) INTO o FROM jsonb_each_text(given) AS g;
	o := coalesce(o, '{}');
	IF o - allowed <> '{}' THEN
		PERFORM queue._bad_handler('22023', format('csv has no option "%s"', (SELECT min(n) FROM jsonb_object_keys(o - allowed) AS n)),
			'Allowed: delimiter, null, header, quote, escape, force_quote.');
	END IF;
	o := '{"delimiter": ",", "null": "", "header": "false", "force_quote": ""}' || jsonb_build_object('quote', '"') || o;
	o := jsonb_build_object('escape', o -> 'quote') || o;
	FOREACH k IN ARRAY '{delimiter,quote,escape}'::text[] LOOP
		IF octet_length(o ->> k) IS DISTINCT FROM 1 OR o ->> k IN (chr(10), chr(13)) THEN
			PERFORM queue._bad_handler('22023', format('%s must be one character of one byte, and no end of a line', k), 'As COPY has it.');
		END IF;
	END LOOP;
	IF o ->> 'delimiter' = o ->> 'quote' OR o ->> 'null' IS NULL OR o ->> 'null' ~ E'[\n\r]'
		OR strpos(o ->> 'null', o ->> 'delimiter') > 0 OR strpos(o ->> 'null', o ->> 'quote') > 0 THEN
		PERFORM queue._bad_handler('22023', 'delimiter, quote and null can be mistaken for each other', 'As COPY has it, they must be different.');
	ELSIF octet_length(o ->> 'null') > 30 THEN
		PERFORM queue._bad_handler('22023', 'null is longer than 30 bytes', 'A text that no value is, such as ''NULL''.');
	END IF;
	o := o || jsonb_build_object('format', 'csv', 'force_quote', queue._force_quote(o ->> 'force_quote'));
	BEGIN
		RETURN o || jsonb_build_object('header', (o ->> 'header')::bool);
	EXCEPTION WHEN invalid_text_representation THEN
		PERFORM queue._bad_handler('22023', format('invalid value "%s" for header', o ->> 'header'), 'Allowed: true, false.');
	END;
END
$$;

-- Where it is carried out: an entry of the proxy, which knows what there is, and who may.
CREATE OR REPLACE FUNCTION queue._run_database(value text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF octet_length(value) NOT BETWEEN 1 AND 63 THEN
		PERFORM queue._bad_handler('22023', format('invalid value "%s" for database', value),
			'The name of an entry of [databases] of the proxy.');
	END IF;
	RETURN value;
END
$$;

-- QUEUE RUN
CREATE OR REPLACE FUNCTION queue._sql_job(q text, statement text, params text, alone bool DEFAULT false,
	timeout interval DEFAULT NULL, keep text DEFAULT NULL, format text DEFAULT NULL, format_with jsonb DEFAULT NULL,
	database text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
BEGIN
	IF q IS NULL THEN
		PERFORM queue._bad_handler('42601', 'a schedule that runs SQL needs a queue',
			'QUEUE SCHEDULE name ON q EVERY interval RUN sql: q is a queue WITH (run = sql).');
	END IF;
	cfg := queue._find(q);
	IF cfg.run IS DISTINCT FROM 'sql' THEN
		PERFORM queue._bad_handler('55000', format('queue "%s" does not run SQL', cfg.name),
			format('Its owner can have it do so: QUEUE ALTER %I SET (run = sql);', cfg.name));
	ELSIF statement IS NULL THEN
		PERFORM queue._bad_handler('22004', 'the statement must not be null', 'QUEUE RUN ''SELECT ...'' ON q;');
	END IF;
	IF cfg.payload = 'text' AND (params IS NOT NULL OR alone OR timeout IS NOT NULL OR keep IS NOT NULL OR format IS NOT NULL OR format_with IS NOT NULL
		OR database IS NOT NULL) THEN
		PERFORM queue._bad_handler('0A000', format('the payloads of queue "%s" are texts: they hold a statement, and nothing besides', cfg.name),
			'For PARAMS, TIMEOUT, KEEP, FORMAT, DATABASE and NO TRANSACTION: a queue WITH (payload = jsonb).');
	ELSIF cfg.payload = 'text' THEN
		RETURN statement;
	END IF;
	PERFORM queue._check_params(params::jsonb), queue._run_timeout(timeout::text), queue._run_keep(keep), queue._run_database(database);
	PERFORM queue._run_format(format, format_with);
	RETURN jsonb_build_object('sql', statement) || CASE WHEN params IS NULL THEN '{}'
		ELSE jsonb_build_object('params', params::jsonb) END || CASE WHEN alone THEN '{"transaction": false}' ELSE '{}' END::jsonb
		|| CASE WHEN timeout IS NULL THEN '{}' ELSE jsonb_build_object('timeout', timeout::text) END
		|| CASE WHEN keep IS NULL THEN '{}' ELSE jsonb_build_object('keep', lower(keep)) END
		|| CASE WHEN format IS NULL THEN '{}' ELSE jsonb_build_object('format', lower(format)) END
		|| CASE WHEN format_with IS NULL THEN '{}' ELSE jsonb_build_object('with', format_with) END
		|| CASE WHEN database IS NULL THEN '{}' ELSE jsonb_build_object('database', database) END;
END
$$;

CREATE OR REPLACE FUNCTION queue.run(q text, statement text, params jsonb DEFAULT NULL, priority int4 DEFAULT NULL,
	delay interval DEFAULT NULL, run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL, notify bool DEFAULT true,
	expires interval DEFAULT NULL, attempts int4 DEFAULT NULL, key text DEFAULT NULL, on_duplicate text DEFAULT NULL,
	"group" text DEFAULT NULL, batch text DEFAULT NULL, after text[] DEFAULT NULL, keep_for interval DEFAULT NULL,
	newer timestamptz DEFAULT NULL, no_transaction bool DEFAULT false, timeout interval DEFAULT NULL,
	keep text DEFAULT NULL, format text DEFAULT NULL, format_with jsonb DEFAULT NULL, database text DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT max(p) FROM queue._push(q, ARRAY[queue._sql_job(q, statement, params::text, no_transaction, timeout, keep, format, format_with,
			database)],
		priority, delay, run_at,
		headers::text, coalesce(notify, true), expires, attempts, key, on_duplicate, "group", true, batch => batch,
		after => after, keep_for => keep_for, newer => newer) AS p);
END
$$;

-- What a job of run = sql does: its payload, a text or {"sql": text, "params": [...], "transaction": false, "timeout": "10 min", "keep": "error",
-- "format": "csv", "with": {"header": true}, "database": "reports"}.
CREATE OR REPLACE FUNCTION queue._sql_of(payload jsonb, OUT sql text, OUT params text[], OUT alone bool, OUT timeout interval, OUT keep text,
	OUT format jsonb, OUT database text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF jsonb_typeof(payload) = 'string' THEN
		sql := payload #>> '{}';
		RETURN;
	ELSIF jsonb_typeof(payload -> 'sql') IS DISTINCT FROM 'string' THEN
		PERFORM queue._bad_handler('22023', 'the payload is no SQL',
			'QUEUE RUN ''VACUUM'' ON q; or push a text, or {"sql": "...", "params": [...]}.');
	ELSIF payload - '{sql,params,transaction,timeout,keep,format,with,database}'::text[] <> '{}' THEN
		PERFORM queue._bad_handler('0A000', format('"%s" beside "sql" is not supported',
			(SELECT k FROM jsonb_object_keys(payload - '{sql,params,transaction,timeout,keep,format,with,database}'::text[]) AS k ORDER BY k LIMIT 1)),
			'There are "sql", "params", "transaction", "timeout", "keep", "format", "with" and "database".');
	ELSIF jsonb_typeof(payload -> 'transaction') <> 'boolean' THEN
		PERFORM queue._bad_handler('22023', '"transaction" is not true or false', 'Without it the job is one transaction with its DONE.');
	END IF;
	sql := payload ->> 'sql';
	alone := NOT (payload ->> 'transaction')::bool;
	IF payload ? 'timeout' THEN
		timeout := queue._run_timeout(payload ->> 'timeout');
	END IF;
	IF payload ? 'keep' THEN
		keep := queue._run_keep(payload ->> 'keep');
	END IF;
	IF payload ?| '{format,with}' THEN
		format := queue._run_format(payload ->> 'format', payload -> 'with');
	END IF;
	IF payload ? 'database' THEN
		database := queue._run_database(payload ->> 'database');
	END IF;
	IF payload ? 'params' THEN
		PERFORM queue._check_params(payload -> 'params');
		params := ARRAY(SELECT e FROM jsonb_array_elements_text(payload -> 'params') WITH ORDINALITY AS a (e, n) ORDER BY n);
	END IF;
END
$$;

-- The rows of a statement as JSON, of what the proxy has gathered: the texts of their values, and the types. Those whose JSON is
-- more than a text are made of it again; what cannot be stays one.
CREATE OR REPLACE FUNCTION queue._run_rows(one jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	told CONSTANT regtype[] := '{bool,int2,int4,int8,float4,float8,numeric,date,timestamp,timestamptz,json,jsonb}';
	columns text;
	texts text;
	rows jsonb;
	sql CONSTANT text := 'SELECT coalesce(jsonb_agg(to_jsonb(r.*) ORDER BY e.n), ''[]'')
		FROM jsonb_array_elements($1) WITH ORDINALITY AS e (v, n), LATERAL (SELECT %s) AS r';
BEGIN
	IF NOT one ? 'values' THEN
		RETURN one;
	END IF;
	SELECT string_agg(format('(e.v ->> %s)%s AS %I', c.n - 1, CASE
			WHEN t.oid = ANY (told) OR t.typtype = 'c' OR e.oid = ANY (told) OR e.typtype = 'c' OR (t.oid >= 16384 AND EXISTS (SELECT
				FROM pg_cast AS k WHERE k.castsource = t.oid AND k.casttarget = 'json'::regtype AND k.castmethod = 'f'))
			THEN '::' || format_type(t.oid, NULL) WHEN e.typdelim = ',' THEN '::text[]' WHEN e.oid IS NOT NULL THEN '::' || format_type(t.oid, NULL) ELSE '' END, c.name), ', ' ORDER BY c.n),
			string_agg(format('(e.v ->> %s) AS %I', c.n - 1, c.name), ', ' ORDER BY c.n)
		INTO columns, texts
		FROM ROWS FROM (jsonb_array_elements_text(one -> 'names'), jsonb_array_elements_text(one -> 'types')) WITH ORDINALITY AS c (name, type, n)
			LEFT JOIN pg_type AS t ON t.oid = c.type::oid LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A';
	BEGIN
		EXECUTE format(sql, coalesce(columns, '')) INTO rows USING one -> 'values';
	EXCEPTION WHEN OTHERS THEN
		EXECUTE format(sql, coalesce(texts, '')) INTO rows USING one -> 'values';
	END;
	RETURN (one - '{names,types,values}'::text[]) || jsonb_build_object('rows', rows);
END
$$;

-- application_name of the session that carries out a job. there: where jobs of other databases run too, of which one may have
-- the same name: this database's is a word more.
CREATE OR REPLACE FUNCTION queue._run_session(cfg queue.queues, id int8, there bool DEFAULT false) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job CONSTANT text := format(' %s-%s', cfg.number, id) || CASE WHEN there THEN ' ' || left(md5(queue._here()), 8) ELSE '' END;
	name text := cfg.name;
BEGIN
	-- 63 bytes, and what is not ASCII becomes something else in it
	name := regexp_replace(name, '[^ -~]', '?', 'g');
	RETURN 'qbouncer ' || left(name, 54 - length(job)) || job;
END
$$;

-- The text of a statement that carries out a batch says which jobs it has (src/queue/run_batch.c): is one of these there?
CREATE OR REPLACE FUNCTION queue._is_in_batch(query text, jobs text[]) RETURNS bool
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	said CONSTANT text[] := regexp_match(query, '^/\* qbouncer ([0-9]{1,9}):((?: [0-9]{1,18}(?:-[0-9]{1,18})?)+)');
BEGIN
	RETURN EXISTS (SELECT FROM regexp_split_to_table(ltrim(said[2]), ' ') AS r (ids), unnest(jobs) AS j
		WHERE split_part(j, '-', 1) = said[1]
			AND split_part(j, '-', 2)::int8 BETWEEN split_part(r.ids, '-', 1)::int8 AND substring(r.ids FROM '[0-9]+$')::int8);
END
$$;

-- Earlier attempts at these jobs ("<number>-<id>") may still be carried out, though their proxy is gone, or has lost the
-- connection: nobody tells the server. They are ended, and waited for, so that there are never two. Found by the name of their
-- session, or by the text of their statement, both of which are there before a lease is looked at. The caller is who they belong to.
CREATE OR REPLACE FUNCTION queue._end_orphans(jobs text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	until CONSTANT timestamptz := clock_timestamp() + interval '10 s';
	orphan int4;
BEGIN
	LOOP
		SELECT a.pid INTO orphan FROM pg_stat_get_activity(NULL) AS a WHERE a.pid <> pg_backend_pid()
			AND a.usesysid = quote_ident(session_user)::regrole
			AND a.datid = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
			AND (substring(a.application_name FROM '^qbouncer .* ([0-9]+-[0-9]+)$') = ANY (jobs)
				OR a.state = 'active' AND left(a.query, 12) = '/* qbouncer ' AND queue._is_in_batch(a.query, jobs)) LIMIT 1;
		EXIT WHEN NOT FOUND;
		IF clock_timestamp() > until THEN
			RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = 'an earlier attempt at this job still runs',
				DETAIL = format('Process %s was told to end, and does not.', orphan);
		END IF;
		PERFORM pg_terminate_backend(orphan);
		PERFORM pg_sleep(0.02);
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
END
$$;

-- What attempts at a job may be called that was taken before: by its own name, and, where it was moved here, by the one that it
-- had. about: as queue.current_job() has it. Whoever pushes can write headers: the other one counts if nobody works on it.
CREATE OR REPLACE FUNCTION queue._attempts(about jsonb) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parent CONSTANT text := about #>> '{headers,parent}';
	origin queue.queues;
	is_held bool := false;
BEGIN
	IF parent IS NULL OR parent !~ '^[0-9]{1,9}-[0-9]{1,18}$' THEN
		RETURN ARRAY[about ->> 'job'];
	END IF;
	SELECT * INTO origin FROM queue.queues AS c WHERE c.number = split_part(parent, '-', 1)::int4;
	IF FOUND AND origin.owner <> quote_ident(session_user)::regrole THEN	-- his sessions are not ours
		is_held := true;
	ELSIF FOUND THEN
		EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id = $1 AND state = ''leased'')', queue._table(origin.name)) INTO is_held
			USING split_part(parent, '-', 2)::int8;
	END IF;
	RETURN ARRAY[about ->> 'job'] || CASE WHEN is_held THEN '{}' ELSE ARRAY[parent] END;
END
$$;

-- What such a job is, for the proxy, which carries it out: what it is told before, then "sql", then each of its values. Of one that
-- is no part of the transaction of its DONE "alone", and the name of its session. Of one that has named a database other than
-- entry, which is what the proxy calls this one, where it runs; an earlier attempt is ended there by the proxy.
CREATE OR REPLACE FUNCTION queue._run_what(cfg queue.queues, id int8, session text, payload jsonb, entry text)
	RETURNS TABLE (what text, value text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	there text;
	job record;
BEGIN
	SELECT * INTO job FROM queue._sql_of(payload);
	there := nullif(job.database, coalesce(entry, ''));
	IF there IS NOT NULL THEN
		RETURN QUERY VALUES ('database', there), ('session', queue._run_session(cfg, id, true));
	END IF;
	RETURN QUERY SELECT 'timeout', (extract(epoch FROM job.timeout) * 1000)::int8::text WHERE job.timeout IS NOT NULL
		UNION ALL SELECT 'keep', job.keep WHERE job.keep IS NOT NULL
		UNION ALL SELECT f.key, f.value FROM jsonb_each_text(job.format) AS f WHERE f.key <> 'force_quote'
		UNION ALL SELECT CASE WHEN f = '*' THEN 'force_all' ELSE 'force_quote' END, f FROM jsonb_array_elements_text(job.format -> 'force_quote') AS f;
	IF job.alone THEN
		RETURN QUERY VALUES ('alone', job.sql), ('session', session);
	ELSE
		RETURN QUERY VALUES ('began', (extract(epoch FROM now()) * 1000000)::int8::text), ('sql', job.sql);
	END IF;
	RETURN QUERY SELECT 'value', v FROM unnest(job.params) AS v;
END
$$;

-- DONE of a job of SQL, with this outcome of its statements. Also for the proxy, of one whose statement was carried out by
-- itself.
CREATE OR REPLACE FUNCTION queue._run_done(token text, outcome jsonb, keep text) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part record;
	cfg queue.queues;
	result jsonb;
	still int8[];
BEGIN
	IF keep IN ('error', 'none') THEN	-- whatever its queue keeps
		PERFORM set_config('qbouncer.tell', 'here', true);
		SELECT * INTO part FROM queue._split(ARRAY[token], true);
		cfg := part.cfg;
		cfg.retain_done := '0';
		still := queue._done_part(cfg, part.ids, part.tokens, NULL, false);
		IF cardinality(still) IS DISTINCT FROM 1 THEN
			PERFORM queue._lost(cfg.name, part.ids, part.tokens, still);
		END IF;
		RETURN NEXT cfg.name;
		RETURN;
	END IF;
	result := queue._run_rows(outcome);
	IF result ? 'statements' THEN
		result := result || jsonb_build_object('statements', (SELECT jsonb_agg(queue._run_rows(s) ORDER BY n)
			FROM jsonb_array_elements(result -> 'statements') WITH ORDINALITY AS a (s, n)));
	END IF;
	RETURN QUERY SELECT f FROM queue._done(ARRAY[token], false, result::text, keep = 'always') AS f;
END
$$;

CREATE OR REPLACE FUNCTION queue._types_there(one jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN one || CASE WHEN one ? 'types' THEN jsonb_build_object('types', (SELECT coalesce(jsonb_agg(CASE WHEN t::int8 >= 10000
			OR t IN ('1082', '1114', '1184') AND EXISTS (SELECT FROM jsonb_array_elements(one -> 'values') AS v
				WHERE v ->> (n - 1)::int4 !~ '^([0-9]{4,}-|-?infinity$)')
			THEN 25 ELSE t::int8 END ORDER BY n), '[]')
		FROM jsonb_array_elements_text(one -> 'types') WITH ORDINALITY AS a (t, n))) ELSE '{}' END;
END
$$;

-- For the proxy: its statements were carried out in another database, with this outcome. A type that an installation has made has
-- another number there: it is a text. So is a date that is not written as ISO: day and month would be taken as DateStyle is here.
CREATE OR REPLACE FUNCTION queue._ran_there(token text, outcome jsonb, keep text) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT f FROM queue._run_done(token, queue._types_there(outcome) || CASE WHEN outcome ? 'statements'
		THEN jsonb_build_object('statements', (SELECT jsonb_agg(queue._types_there(s) ORDER BY n)
			FROM jsonb_array_elements(outcome -> 'statements') WITH ORDINALITY AS a (s, n))) ELSE '{}' END, keep) AS f;
END
$$;

-- For the proxy: its statements were carried out in this transaction, with this outcome; that is DONE. began: the time of the
-- transaction that they were to be part of.
CREATE OR REPLACE FUNCTION queue._run_end(token text, began text, outcome jsonb, keep text) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF current_setting('qbouncer.lease', true) IS DISTINCT FROM token OR (extract(epoch FROM now()) * 1000000)::int8::text <> began THEN
		RAISE EXCEPTION USING ERRCODE = '25000', MESSAGE = 'the job has ended its transaction';
	ELSIF session_user <> current_user THEN
		RAISE EXCEPTION USING ERRCODE = '25000', MESSAGE = 'the job has left another role in force',
			HINT = 'SET LOCAL ROLE in a function ends with the transaction: RESET ROLE at its end.';
	END IF;
	PERFORM set_config('qbouncer.job', '', true), set_config('qbouncer.lease', '', true);
	RETURN QUERY SELECT f FROM queue._run_done(token, outcome, keep) AS f;
END
$$;

-- May this session do the work of the queue?
CREATE OR REPLACE FUNCTION queue._run_may(cfg queue.queues, supers bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF session_user <> current_user OR cfg.owner <> quote_ident(session_user)::regrole THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('jobs of queue "%s" run in a login of its owner alone', cfg.name);
	ELSIF NOT coalesce(supers, false) AND (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = session_user) THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('queue "%s" belongs to a superuser', cfg.name),
			HINT = 'Give it to another role, or allow it with queue_run_superuser in the ini.';
	ELSIF cfg.handler IS NULL AND cfg.run IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('jobs of queue "%s" do not run by themselves any more', cfg.name);
	END IF;
END
$$;

-- The statement that gives the payload of the job with the token $1, if its lease holds, and what queue.current_job() says.
-- many: of those in the array $1, a row for each.
CREATE OR REPLACE FUNCTION queue._run_look(cfg queue.queues, many bool) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	one CONSTANT text := format($sql$
		SELECT %5$s, j.attempt + coalesce(j.spent, 0) AS tries, jsonb_build_object('job', '%1$s-' || j.id, 'id', j.id, 'queue', %2$L, 'attempt', j.attempt,
			'failures', j.failures, 'pushed_at', j.pushed_at, 'priority', j.priority, 'key', j.key, 'group', j."group",
			'headers', coalesce(j.headers, '{}'))::text AS about
		FROM %3$s AS j WHERE j.id = split_part(%4$s, '-', 2)::int8 AND j.token = split_part(%4$s, '-', 3)
			AND j.lease_until > clock_timestamp()
	$sql$, cfg.number, cfg.name, queue._table(cfg.name), CASE WHEN many THEN 't.token' ELSE '$1' END,
		-- of the same types whatever the payloads are, for the plans
		CASE cfg.payload WHEN 'jsonb' THEN 'j.payload AS json, NULL::text AS text, NULL::bytea AS bytes'
			WHEN 'text' THEN 'NULL::jsonb AS json, j.payload AS text, NULL::bytea AS bytes'
			ELSE 'NULL::jsonb AS json, NULL::text AS text, j.payload AS bytes' END);
BEGIN
	RETURN CASE WHEN many THEN 'SELECT t.token, j.* FROM unnest($1) WITH ORDINALITY AS t (token, n) LEFT JOIN LATERAL ('
		|| one || ' OFFSET 0) AS j ON true ORDER BY t.n' ELSE one END;
END
$$;

-- After the work: whose role is it now?
CREATE OR REPLACE FUNCTION queue._run_over() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM set_config('qbouncer.job', '', true), set_config('qbouncer.lease', '', true);
	IF session_user <> current_user THEN
		RAISE EXCEPTION USING ERRCODE = '25000', MESSAGE = 'the job has left another role in force',
			HINT = 'SET LOCAL ROLE in a function ends with the transaction: RESET ROLE at its end.';
	END IF;
END
$$;

-- The statement that calls the handler that was checked, or none: who owns its schema may put another one in its place at
-- any time, so it looks itself which function has the name, once; where it is another one the planner never sees its call,
-- and there is no array with what it returned.
CREATE OR REPLACE FUNCTION queue._run_call(cfg queue.queues, h record) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('SELECT CASE WHEN %2$s THEN ARRAY['
			|| CASE WHEN h.gives THEN '%1$s(%3$s)' ELSE 'pg_catalog.to_jsonb(%1$s(%3$s)::pg_catalog.text)' END || '] END', cfg.handler,
		format('%s::pg_catalog.oid OPERATOR(pg_catalog.=) %L::pg_catalog.regprocedure', h.f, format('%s(pg_catalog.%s)', cfg.handler, cfg.payload)),
		CASE cfg.payload WHEN 'jsonb' THEN '$1' WHEN 'text' THEN '$2' ELSE '$3' END);
END
$$;

-- call: as above. What comes in spite of that (there and back within the analysis of the statement) leaves the schema in
-- another version, and is rolled back.
CREATE OR REPLACE FUNCTION queue._run_handler(cfg queue.queues, h record, call text, as_json jsonb, as_text text, as_bytes bytea, path text) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	returned jsonb[];
	said text;	-- an assignment, where PERFORM would begin a query
BEGIN
	said := set_config('search_path', path, true);
	EXECUTE call INTO returned USING as_json, as_text, as_bytes;
	said := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	IF session_user <> current_user THEN
		PERFORM queue._run_over();
	ELSIF returned IS NULL OR h.watched IS NOT NULL AND queue._check_handler(cfg) IS DISTINCT FROM (h.f, h.gives, h.watched) THEN
		PERFORM queue._bad_handler('42501', format('%s(%s) was replaced meanwhile, or its schema was changed', cfg.handler, cfg.payload),
			'What it has done was rolled back. A schema that belongs to the owner of the queue is his to change.');
	END IF;
	RETURN CASE WHEN h.gives THEN returned[1] END;	-- a void function of PL/pgSQL gives an empty text
END
$$;

-- By queue.retry(): the job comes again.
CREATE OR REPLACE FUNCTION queue._run_put_back(cfg queue.queues, token text, outcome jsonb) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	again CONSTANT jsonb := outcome -> 'queue.retry';
	died text;
BEGIN
	IF (again ->> 'counts')::bool THEN
		SELECT f.dead INTO died FROM queue._fail(ARRAY[token], coalesce(again ->> 'reason', 'the handler asked to be called again'),
			(again ->> 'after')::interval, false, true) AS f;
		PERFORM queue._died(cfg.number, CASE WHEN died IS NULL THEN 0 ELSE 1 END);
		RETURN 'failed';
	END IF;
	PERFORM queue._release(ARRAY[token], (again ->> 'after')::interval, true);
	RETURN 'released';
END
$$;

-- For the proxy, which has taken the job in a login of the owner: the work, and its DONE. path: the search_path that the
-- session has without us. supers: the proxy may run what belongs to superusers.
-- "ended": done, failed (queue.retry), released; or, of SQL, which is the proxy's to carry out, a part of what it is (_run_what).
-- entry: what the proxy calls this database. as_sql: it takes the queue for one that runs SQL. Where it has a handler by now,
-- nothing is done but to say so ("handler"): how long that may take is another matter.
CREATE OR REPLACE FUNCTION queue._run_job(token text, path text, supers bool, entry text DEFAULT NULL, as_sql bool DEFAULT false) RETURNS TABLE (queue text, ended text, sql text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	part record;
	cfg queue.queues;
	session text;
	job record;
	h record;
	outcome jsonb;
BEGIN
	SELECT * INTO part FROM queue._split(ARRAY[token], true);
	cfg := part.cfg;
	PERFORM queue._run_may(cfg, supers);
	IF as_sql AND cfg.run IS NULL THEN
		RETURN QUERY SELECT cfg.name, 'handler', NULL::text;
		RETURN;
	END IF;
	session := queue._run_session(cfg, part.ids[1]);
	-- before the lease is looked at: who takes the job when that is over finds what runs here
	PERFORM set_config('application_name', session, true);
	EXECUTE queue._run_look(cfg, false) INTO job USING token;
	IF job.about IS NULL THEN
		PERFORM queue._lost(cfg.name, part.ids, part.tokens, '{}');
	END IF;
	IF job.tries > 1 THEN	-- also those that do not count any more, which were given back or are before a RERUN
		PERFORM queue._end_orphans(queue._attempts(job.about::jsonb));
	END IF;
	PERFORM set_config('qbouncer.job', job.about, true), set_config('qbouncer.lease', token, true);
	IF cfg.run = 'sql' THEN
		RETURN QUERY SELECT cfg.name, w.what, w.value FROM queue._run_what(cfg, part.ids[1], session,
			CASE WHEN cfg.payload = 'text' THEN to_jsonb(job.text) ELSE job.json END, entry) AS w;
		RETURN;
	ELSE
		h := queue._check_handler(cfg);
		outcome := queue._run_handler(cfg, h, queue._run_call(cfg, h), job.json, job.text, job.bytes, path);
	END IF;
	PERFORM queue._run_over();
	-- by queue.retry() itself: who pushes does not know the token
	IF cfg.handler IS NOT NULL AND outcome #>> '{queue.retry,of}' = token THEN
		RETURN QUERY SELECT cfg.name, queue._run_put_back(cfg, token, outcome), NULL;
	ELSE
		RETURN QUERY SELECT f, 'done', NULL FROM queue._done(ARRAY[token], false, outcome::text) AS f;
	END IF;
END
$$;

-- The same for several jobs of a queue with a handler, in one transaction. If one of them fails, or its lease is lost, all is
-- as before; then each is done by itself. again: those of them that were taken before. A row for each: done, failed or released.
CREATE OR REPLACE FUNCTION queue._run_batch(tokens text[], path text, supers bool, again text[] DEFAULT '{}') RETURNS TABLE (job text, ended text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	part record;
	cfg queue.queues;
	h record;
	call text;
	one record;
	outcome jsonb;
	done text[] := '{}';
	results text[] := '{}';
	said text;
	before text[] := '{}';
BEGIN
	SELECT * INTO part FROM queue._split(tokens, true);
	cfg := part.cfg;
	PERFORM queue._run_may(cfg, supers);
	IF cfg.handler IS NULL OR cardinality(part.ids) IS DISTINCT FROM cardinality(tokens) THEN
		RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('these jobs of queue "%s" are not done together', cfg.name);
	END IF;
	IF again <> '{}' THEN	-- before any of them begins: what one of them holds the others may need
		FOR one IN EXECUTE queue._run_look(cfg, true) USING again LOOP
			before := before || queue._attempts(one.about::jsonb);
		END LOOP;
		PERFORM queue._end_orphans(before);
	END IF;
	h := queue._check_handler(cfg);
	call := queue._run_call(cfg, h);
	FOR one IN EXECUTE queue._run_look(cfg, true) USING tokens LOOP
		IF one.about IS NULL THEN
			PERFORM queue._lost(cfg.name, ARRAY[split_part(one.token, '-', 2)::int8], ARRAY[split_part(one.token, '-', 3)], '{}');
		END IF;
		said := set_config('qbouncer.job', one.about, true);
		said := set_config('qbouncer.lease', one.token, true);
		outcome := queue._run_handler(cfg, h, call, one.json, one.text, one.bytes, path);
		IF outcome #>> '{queue.retry,of}' = one.token THEN
			job := one.token;
			ended := queue._run_put_back(cfg, one.token, outcome);
			RETURN NEXT;
		ELSE
			done := done || one.token;
			results := results || outcome::text;
		END IF;
	END LOOP;
	PERFORM queue._run_over();
	IF done <> '{}' THEN
		PERFORM set_config('qbouncer.tell', 'here', true);
		PERFORM queue._done_many(done, results);
		RETURN QUERY SELECT d, 'done' FROM unnest(done) AS d;
	END IF;
END
$$;

-- --- for handlers ---

-- The job that is carried out now, by the proxy; NULL: none.
CREATE OR REPLACE FUNCTION queue.current_job() RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN nullif(current_setting('qbouncer.job', true), '')::jsonb;
END
$$;

-- What a handler returns that wants to be called again. It is no error: what it has done stays.
CREATE OR REPLACE FUNCTION queue.retry(after interval DEFAULT NULL, reason text DEFAULT NULL, counts bool DEFAULT true) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF after < interval '0' THEN
		PERFORM queue._bad_handler('22023', 'after must not be negative', 'RETURN queue.retry(''5 min'');');
	END IF;
	RETURN jsonb_build_object('queue.retry', jsonb_build_object('after', after, 'reason', reason,
		'counts', coalesce(counts, true), 'of', current_setting('qbouncer.lease', true)));
END
$$;
