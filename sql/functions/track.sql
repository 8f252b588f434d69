-- TRACK: what changes in a table is pushed, by a trigger, in the transaction that changes it.
--
-- The trigger's function is the tracker's own, beside the table: SECURITY DEFINER, so that it pushes with the tracker's
-- right and no other, and whoever writes to the table needs none. It is made for one table and one stream or queue, and
-- nobody else may make a trigger of it. It is not ours: it makes JSON of rows, for which Postgres calls casts that the owner
-- of a type has written, and HEADERS and WHEN are the tracker's SQL.
--
-- By row: so a row's changes come in their order whatever other triggers do, partitions have it, and those to come.
--
-- All that there is to know is kept by Postgres: which triggers there are, and what was said, in the comment of the function.

CREATE OR REPLACE FUNCTION queue._track_trigger(number int4) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- before other names: what they change in turn comes behind
	RETURN '_queue_track_' || number;
END
$$;

-- Columns that there are, in the order of the table.
CREATE OR REPLACE FUNCTION queue._track_columns(relation regclass, names text[], what text) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	word text;
BEGIN
	FOREACH word IN ARRAY coalesce(names, '{}') LOOP
		IF NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = word AND a.attnum > 0 AND NOT a.attisdropped) THEN
			RAISE EXCEPTION USING ERRCODE = '42703', MESSAGE = format('column "%s" of %s does not exist', left(word, 80), relation),
				HINT = format('%s (...) names columns of the table.', what);
		END IF;
	END LOOP;
	RETURN ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = ANY (names)
		AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum);
END
$$;

-- What a row is known by, if nothing is said: the primary key, or what REPLICA IDENTITY names.
CREATE OR REPLACE FUNCTION queue._track_key(relation regclass) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce((SELECT array_agg(a.attname::text ORDER BY k.n)
		FROM (SELECT x.indkey FROM pg_index AS x WHERE x.indrelid = relation AND (x.indisprimary OR x.indisreplident)
				ORDER BY x.indisprimary DESC LIMIT 1) AS i,
			LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
			JOIN pg_attribute AS a ON a.attrelid = relation AND a.attnum = k.attnum), '{}');
END
$$;

-- The settings that decide how values of these columns are written, if any do: an event says the same whoever wrote the row.
CREATE OR REPLACE FUNCTION queue._track_settings(relation regclass) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT coalesce(string_agg(DISTINCT s.setting, ' '), '')
		FROM pg_attribute AS a JOIN (VALUES
			('timestamptz', 'SET timezone = ''UTC'''), ('timetz', 'SET timezone = ''UTC'''), ('interval', 'SET intervalstyle = ''postgres'''),
			('bytea', 'SET bytea_output = ''hex'''), ('float4', 'SET extra_float_digits = 1'), ('float8', 'SET extra_float_digits = 1'),
			('', 'SET timezone = ''UTC'''), ('', 'SET intervalstyle = ''postgres'''), ('', 'SET bytea_output = ''hex'''),
			('', 'SET extra_float_digits = 1'), ('', 'SET datestyle = ''ISO, YMD''')) AS s (type, setting)
			ON s.type = CASE WHEN a.atttypid IN ('timestamptz'::regtype, 'timetz'::regtype, 'interval'::regtype, 'bytea'::regtype,
					'float4'::regtype, 'float8'::regtype) THEN (SELECT t.typname FROM pg_type AS t WHERE t.oid = a.atttypid)
				WHEN a.atttypid IN ('bool'::regtype, 'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype,
					'text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, '"char"'::regtype, 'name'::regtype, 'uuid'::regtype, 'oid'::regtype,
					'json'::regtype, 'jsonb'::regtype, 'date'::regtype, 'time'::regtype, 'timestamp'::regtype, 'inet'::regtype,
					'cidr'::regtype, 'macaddr'::regtype) THEN 'none'
				ELSE '' END	-- arrays, ranges, domains, composites: whatever is in them
		WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped);
END
$$;

-- Before the first push of a transaction: where what is pushed to was dropped while this waited for that, there is nothing to
-- push, and no error of who writes. The lock on its table, of which no row is read, stays: later ones need no look, and with it
-- the push does not wait for a DROP that waits. What a savepoint has locked is forgotten with it, as the setting is. push: of a
-- queue, whose table another one of its name may have by now.
CREATE OR REPLACE FUNCTION queue._track_guard(number int4, tab text, push text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format($f$IF strpos(current_setting('qbouncer.tracked', true), ' %1$s ') > 0 IS NOT TRUE THEN
			BEGIN
				PERFORM id FROM %2$s LIMIT 0;
				%3$sPERFORM set_config('qbouncer.tracked', concat(current_setting('qbouncer.tracked', true), ' %1$s '), true);
			EXCEPTION WHEN undefined_table THEN
				IF to_regclass(%2$L) IS NULL THEN
					RETURN NULL;
				END IF;
				RAISE;
			END;
		END IF;
$f$, number, tab, 'IF to_regproc(' || quote_literal(push) || ') IS NULL THEN RETURN NULL; END IF;
				');
END
$$;

-- The function's text. "said": what TRACK was told, as its comment keeps it.
CREATE OR REPLACE FUNCTION queue._track_body(relation regclass, number int4, said jsonb) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	keys CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(said -> 'key'));
	columns CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(said -> 'columns'));
	ignored CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(said -> 'ignore'));
	named CONSTANT text[] := ARRAY(SELECT DISTINCT c FROM unnest(keys || columns || ignored) AS c ORDER BY c);
	kind CONSTANT text := said ->> 'kind';
	is_partitioned CONSTANT bool := (SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = relation);
	-- jsonb has no \u0000, and json has; what is there comes as the character for what cannot be shown
	has_json CONSTANT bool := EXISTS (SELECT FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
		WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND (t.oid = 'json'::regtype OR t.typtype IN ('c', 'd') OR t.typcategory = 'A'));
	group_of CONSTANT text := CASE cardinality(keys) WHEN 0 THEN NULL WHEN 1 THEN format('qb_key ->> %L', keys[1])
		ELSE (SELECT format('jsonb_build_array(%s)::text', string_agg(format('qb_key -> %L', k), ', ')) FROM unnest(keys) AS k) END;
	converted text := 'IF TG_OP <> ''INSERT'' THEN qb_old := to_jsonb(OLD); END IF;
			IF TG_OP <> ''DELETE'' THEN qb_new := to_jsonb(NEW); END IF;';
	payload text;
	publish text;
	body text;
BEGIN
	IF has_json THEN
		converted := format($f$BEGIN
				%s
			EXCEPTION WHEN untranslatable_character THEN
				IF TG_OP <> 'INSERT' THEN qb_old := regexp_replace(row_to_json(OLD)::text, %2$L, %3$L, 'g'); END IF;
				IF TG_OP <> 'DELETE' THEN qb_new := regexp_replace(row_to_json(NEW)::text, %2$L, %3$L, 'g'); END IF;
			END;$f$, converted, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd');
	END IF;
	body := format($f$
DECLARE
	qb_at int4;
	qb_log oid;
	qb_key jsonb;
	qb_new jsonb;
	qb_old jsonb;
	qb_head jsonb;
	qb_group text;
	qb_name text;
	qb_how text;
BEGIN
	%s
	IF NOT FOUND THEN
		IF %s IS NOT NULL THEN
			PERFORM queue._track_too_old();
		END IF;
		RETURN NULL;	-- dropped
	END IF;
	IF TG_OP <> 'TRUNCATE' THEN
$f$, CASE kind
		WHEN 'stream' THEN format('SELECT s.current, s.log, s.name INTO qb_at, qb_log, qb_name FROM queue.streams AS s WHERE s.number = %s;', number)
		WHEN 'topic' THEN format('SELECT t.name INTO qb_name FROM queue.topics AS t WHERE t.number = %s;', number)
		ELSE format('SELECT c.name INTO qb_name FROM queue.queues AS c WHERE c.number = %s;', number) END,
		format(CASE kind WHEN 'stream' THEN 'to_regproc(''queue._push_event_%s'')' WHEN 'topic' THEN 'to_regclass(''queue.t_%s'')'
			ELSE 'to_regproc(''queue._push_%s'')' END, number));
	IF said ? 'when' THEN
		body := body || format(E'\t\tIF (%s\n) IS NOT TRUE THEN RETURN NULL; END IF;\n', said ->> 'when');
	END IF;
	body := body || E'\t\t' || converted || E'\n';
	IF cardinality(named) > 0 THEN
		body := body || format(E'\t\tIF NOT coalesce(qb_new, qb_old) ?& %L::text[] THEN PERFORM queue._track_renamed(TG_RELID, coalesce(qb_new, qb_old), %1$L::text[]); END IF;\n', named);
	END IF;
	IF cardinality(keys) > 0 THEN
		body := body || (SELECT format(E'\t\tqb_key := %s;\n', string_agg(format('jsonb_build_object(%s)', c.pairs), ' || '))
			FROM (SELECT string_agg(format('%L, coalesce(qb_old, qb_new) -> %1$L', k), ', ' ORDER BY n) AS pairs
				FROM unnest(keys) WITH ORDINALITY AS u (k, n) GROUP BY n / 40) AS c);
		body := body || format(E'\t\tqb_group := %s;\n', group_of)
			|| E'\t\tIF octet_length(qb_group) > 1000 THEN qb_group := md5(qb_group); END IF;\n';
	END IF;
	IF cardinality(columns) > 0 THEN
		body := body || (SELECT string_agg(format(E'\t\tIF %1$s IS NOT NULL THEN %1$s := %2$s; END IF;\n', v, (
				SELECT string_agg(format('jsonb_build_object(%s)', c.pairs), ' || ') FROM (
					SELECT string_agg(format('%L, %s -> %1$L', k, v), ', ') AS pairs FROM unnest(columns) WITH ORDINALITY AS u (k, n) GROUP BY n / 40) AS c)), '')
			FROM unnest('{qb_old,qb_new}'::text[]) AS v);
	ELSIF cardinality(ignored) > 0 THEN
		body := body || format(E'\t\tqb_old := qb_old - %L::text[];\n\t\tqb_new := qb_new - %1$L::text[];\n', ignored);
	END IF;
	IF cardinality(columns) + cardinality(ignored) > 0 THEN
		-- as text: 1.0 and 1.00 are equal, and not the same
		body := body || E'\t\tIF qb_old::text = qb_new::text THEN RETURN NULL; END IF;\n';
	END IF;
	IF said ? 'headers' THEN
		body := body || format(E'\t\tqb_head := (%s\n)::jsonb;\n', said ->> 'headers')
			|| E'\t\tIF jsonb_typeof(qb_head) <> ''object'' THEN PERFORM queue._check_push(qb_head::text, NULL, NULL); END IF;\n';
	END IF;
	payload := format('jsonb_build_object(''op'', lower(TG_OP), ''table'', %s, ''key'', qb_key, ''new'', qb_new, ''old'', qb_old, ''xid'', pg_current_xact_id()::text)',
		CASE WHEN is_partitioned THEN '(SELECT a.relid::text FROM pg_partition_ancestors(TG_RELID) AS a JOIN pg_trigger AS t
			ON t.tgrelid = a.relid AND t.tgname = TG_NAME AND t.tgparentid = 0 LIMIT 1)' ELSE 'TG_RELID::regclass::text' END);
	body := body || E'\tEND IF;\n';
	IF kind = 'stream' THEN
		body := body || format($f$	IF %2$s
	END IF;
	-- what queue._tell does, without the call where nothing is to be said: once for each row
	qb_how := coalesce(current_setting('qbouncer.tell', true), '');
	IF qb_how = '' THEN
		PERFORM pg_notify('qbouncer', qb_name);
	ELSIF strpos(qb_how || ' ', ' %1$s ') = 0 THEN
		PERFORM queue._tell(%1$s, qb_name);
	END IF;
	RETURN NULL;
END
$f$, number, queue._each_of_ring(number, format($part$qb_at = @i@ THEN
		%2$sIF qb_log IS DISTINCT FROM 'queue.e%3$s_0'::regclass::oid THEN
			PERFORM queue._other_era(qb_name);
		END IF;
		IF qb_group IS NULL THEN
			INSERT INTO @e@ (headers, payload) VALUES (qb_head, %1$s::text);
		ELSE
			INSERT INTO @e@ ("group", bucket, headers, payload) VALUES (qb_group, hashtextextended(qb_group, 0) & 32767, qb_head, %1$s::text);
		END IF;
$part$, payload, queue._track_guard(number, '@e@'), number), '	ELSIF '));
	ELSIF kind = 'topic' THEN
		publish := format('PERFORM queue._tell(number, name) FROM (SELECT p.queue FROM queue._publish(qb_name || ''.'' || lower(TG_OP), ARRAY[%s::text],
			NULL, NULL, NULL, qb_head::text, false, false, NULL, NULL, NULL, NULL, NULL, qb_group, NULL, ''tracked'') AS p) AS p
		JOIN (SELECT number, name FROM queue.queues UNION ALL SELECT number, name FROM queue.streams) AS c ON c.name = p.queue;', payload);
		-- as queue._track_guard: the topic may have been dropped while this waited. Of what is bound its trigger sees to that.
		body := body || format($f$	IF strpos(current_setting('qbouncer.tracked', true), ' %1$s ') > 0 IS NOT TRUE THEN
		BEGIN
			%2$s
			PERFORM set_config('qbouncer.tracked', concat(current_setting('qbouncer.tracked', true), ' %1$s '), true);
			RETURN NULL;
		EXCEPTION WHEN undefined_table THEN
			IF to_regclass('queue.t_%1$s') IS NULL THEN
				RETURN NULL;
			END IF;
			RAISE;
		END;
	END IF;
	%2$s
	RETURN NULL;
END
$f$, number, publish);
	ELSE
		body := body || format($f$	%sPERFORM queue._push(qb_name, ARRAY[%s::text], NULL, NULL, NULL, qb_head::text, false, "group" => qb_group);
	PERFORM queue._tell(%s, qb_name);
	RETURN NULL;
END
$f$, (SELECT queue._track_guard($2, queue._table(c.name), format('queue._push_%s', $2)) FROM queue.queues AS c WHERE c.number = $2), payload, number);
	END IF;
	RETURN body;
END
$$;

-- What is named is not there any more. It is an error of who writes to the table: without the column the events would lack a
-- key, or have what they must not.
CREATE OR REPLACE FUNCTION queue._track_renamed(relation oid, r jsonb, named text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '42703',
		MESSAGE = format('%s is tracked, and has no column "%s" any more', relation::regclass,
			(SELECT c FROM unnest(named) AS c WHERE NOT r ? c ORDER BY c LIMIT 1)),
		HINT = 'Say again what to track: QUEUE UNTRACK, then QUEUE TRACK with its new name.';
END
$$;

-- The stream is there, and cannot be seen: it was made, and the table tracked, since this transaction has taken its snapshot.
CREATE OR REPLACE FUNCTION queue._track_too_old() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'could not serialize access due to concurrent QUEUE TRACK',
		HINT = 'Repeat the transaction.';
END
$$;

-- What is tracked. queue: NULL: it was dropped.
CREATE OR REPLACE FUNCTION queue.tracked(wanted regclass DEFAULT NULL)
RETURNS TABLE (relation text, queue text, kind text, events text[], key text[], columns text[], ignore text[], headers text,
	condition text, owner text, enabled bool, function text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT t.tgrelid::regclass::text, n.name, s.said ->> 'kind', ARRAY(SELECT jsonb_array_elements_text(s.said -> 'events')),
			ARRAY(SELECT jsonb_array_elements_text(s.said -> 'key')), ARRAY(SELECT jsonb_array_elements_text(s.said -> 'columns')),
			ARRAY(SELECT jsonb_array_elements_text(s.said -> 'ignore')), s.said ->> 'headers', s.said ->> 'when',
			pg_get_userbyid(p.proowner)::text, t.tgenabled <> 'D', p.oid::regprocedure::text
		FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid,
			LATERAL (SELECT substring(t.tgname::text FROM '^_queue_track_([0-9]{1,9})')::int4 AS number) AS k
			LEFT JOIN (SELECT number, name FROM queue.queues UNION ALL SELECT number, name FROM queue.streams
				UNION ALL SELECT number, name FROM queue.topics) AS n USING (number),
			LATERAL (SELECT queue._track_said(p.oid) AS said) AS s
		WHERE t.tgname::text ~ '^_queue_track_[0-9]{1,9}$' AND t.tgparentid = 0 AND s.said IS NOT NULL
			AND t.tgrelid = coalesce(wanted, t.tgrelid)
		ORDER BY 1, 2;
END
$$;

-- The comment of a function, if it is what TRACK has written.
CREATE OR REPLACE FUNCTION queue._track_said(f oid) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	comment CONSTANT text := obj_description(f, 'pg_proc');
	said jsonb;
BEGIN
	IF comment IS NULL OR left(comment, 12) <> 'QUEUE TRACK ' THEN
		RETURN NULL;
	END IF;
	said := substr(comment, 13);
	-- somebody may have written it himself
	IF EXISTS (SELECT FROM unnest('{events,key,columns,ignore}'::text[]) AS k WHERE jsonb_typeof(said -> k) IS DISTINCT FROM 'array') THEN
		RETURN NULL;
	END IF;
	RETURN said;
EXCEPTION WHEN data_exception THEN
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION queue._track_table(relation regclass) RETURNS pg_class
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	c pg_class;
BEGIN
	SELECT * INTO c FROM pg_class AS x WHERE x.oid = relation;
	IF relation IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the table must not be null';
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42P01', MESSAGE = format('relation with OID %s does not exist', relation::oid);
	ELSIF c.relkind NOT IN ('r', 'p') THEN
		RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('"%s" is not a table', c.relname),
			HINT = 'Tables are tracked, also partitioned ones.';
	ELSIF c.relpersistence = 't' THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('"%s" is a temporary table', c.relname),
			HINT = 'What happens in it nobody else can see.';
	ELSIF c.relnamespace IN ('queue'::regnamespace, 'pg_catalog'::regnamespace) THEN
		RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('"%s" cannot be tracked', c.relname),
			HINT = 'Tables of qbouncer and of Postgres itself are not.';
	END IF;
	RETURN c;
END
$$;

-- As CREATE TRIGGER and DROP TRIGGER lock it, but at first: they hold a weaker lock while they wait for this one, and two of
-- them each other's. Who has nothing but TRIGGER on it may not lock it.
CREATE OR REPLACE FUNCTION queue._track_lock(c pg_class, drops bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') THEN
		EXECUTE format('LOCK TABLE %s%s IN %s MODE', CASE WHEN c.relkind <> 'p' THEN 'ONLY ' ELSE '' END, c.oid::regclass,
			CASE WHEN drops THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
	END IF;
END
$$;

-- What events are pushed to: its number and kind, if this role may push there.
CREATE OR REPLACE FUNCTION queue._track_target(q text, role name, OUT number int4, OUT kind text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	cfg queue.queues;
	may bool;
BEGIN
	SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
	IF FOUND THEN
		number := cfg.number;
		kind := 'queue';
		IF cfg.run IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('jobs of queue "%s" are SQL', q),
				HINT = 'A change of a table is none: CREATE a queue WITH (handler = ...), or without.';
		ELSIF cfg.payload = 'bytea' THEN
			RAISE EXCEPTION USING ERRCODE = '42804', MESSAGE = format('payloads of queue "%s" are bytea, not jsonb', q);
		END IF;
		may := queue._has_right(q, 'push', role);
	ELSIF queue._is_stream(q) THEN
		number := (queue._find_stream(q)).number;
		kind := 'stream';
		IF (queue._find_stream(q)).payload = 'bytea' THEN
			RAISE EXCEPTION USING ERRCODE = '42804', MESSAGE = format('payloads of stream "%s" are bytea, not jsonb', q);
		END IF;
		may := has_column_privilege(role, format('queue.e%s_0', number), 'payload', 'INSERT');
	ELSE
		SELECT t.number INTO number FROM queue.topics AS t WHERE t.name = q;
		IF NOT FOUND THEN
			PERFORM queue._no_queue(q);
		END IF;
		kind := 'topic';
		may := has_table_privilege(role, queue._topic_view(number), 'INSERT');
	END IF;
	IF NOT may THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for %s "%s"', kind, q),
			DETAIL = format('Changes are pushed with the rights of role "%s".', role),
			HINT = format(CASE kind WHEN 'topic' THEN 'QUEUE GRANT PUBLISH ON TOPIC %I TO %I;' ELSE 'QUEUE GRANT PUSH ON %I TO %I;' END, q, role);
	END IF;
END
$$;

-- HEADERS and WHEN, now rather than when somebody writes to the table.
CREATE OR REPLACE FUNCTION queue._track_expression(relation regclass, expression text, used text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('SELECT (%s
		)%s FROM (SELECT (r).* FROM (SELECT NULL::%s AS r) AS x) AS new, (SELECT (r).* FROM (SELECT NULL::%3$s AS r) AS x) AS old,
		(SELECT ''''::text AS tg_op) AS tg LIMIT 0', expression, used, relation);
END
$$;

CREATE OR REPLACE FUNCTION queue.track(relation regclass, q text, events text[] DEFAULT NULL, columns text[] DEFAULT NULL,
	ignore text[] DEFAULT NULL, key text[] DEFAULT NULL, headers text DEFAULT NULL, condition text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	c CONSTANT pg_class := queue._track_table(relation);
	schema CONSTANT text := (SELECT n.nspname FROM pg_namespace AS n WHERE n.oid = c.relnamespace);
	-- a superuser's would be all that whoever owns the table, and so what is in it, might like
	role CONSTANT name := CASE WHEN (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user)
		THEN pg_get_userbyid(c.relowner) ELSE current_user END;
	target record;
	names text[];
	said jsonb;
	old record;
	fn text;
	word text;
BEGIN
	target := queue._track_target(q, role);
	names := coalesce(nullif(lower(events::text)::text[], '{}'), '{insert,update,delete,truncate}');
	FOREACH word IN ARRAY names LOOP
		IF word IN ('insert', 'update', 'delete', 'truncate') IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown event "%s"', left(word, 80)),
				HINT = 'FOR INSERT, UPDATE, DELETE, TRUNCATE: one of them, or several.';
		END IF;
	END LOOP;
	IF cardinality(columns) > 0 AND cardinality(ignore) > 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'COLUMNS and IGNORE cannot be given together', HINT = 'Give one of them.';
	END IF;
	said := jsonb_strip_nulls(jsonb_build_object('kind', target.kind, 'events', ARRAY(SELECT e FROM unnest('{insert,update,delete,truncate}'::text[]) AS e WHERE e = ANY (names)),
		'key', CASE WHEN cardinality(key) > 0 THEN queue._track_columns(relation, key, 'KEY') ELSE queue._track_key(relation) END,
		'columns', queue._track_columns(relation, columns, 'COLUMNS'), 'ignore', queue._track_columns(relation, ignore, 'IGNORE'),
		'headers', headers, 'when', condition));
	IF headers IS NOT NULL THEN
		PERFORM queue._track_expression(relation, headers, '::jsonb');
	END IF;
	IF condition IS NOT NULL THEN
		PERFORM queue._track_expression(relation, condition, ' IS NOT TRUE');
	END IF;
	FOR i IN 1 .. 2 LOOP	-- once more behind the lock, for which it waited for others who did this
		SELECT p.oid, p.prosrc, pg_get_userbyid(p.proowner) AS owner, queue._track_said(p.oid) AS said INTO old
			FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
			WHERE t.tgrelid = relation AND t.tgname = queue._track_trigger(target.number);
		IF FOUND AND old.said = said AND old.owner = role AND old.prosrc = queue._track_body(relation, target.number, said) THEN
			RAISE NOTICE USING ERRCODE = '42710', MESSAGE = format('%s is already tracked so, skipping', relation);
			RETURN;
		END IF;
		EXIT WHEN i = 2;
		PERFORM queue._track_lock(c, old.said IS NOT NULL);
	END LOOP;
	IF old.said IS NOT NULL THEN
		PERFORM queue.untrack(relation, q);
	END IF;
	IF NOT has_schema_privilege(current_user, schema, 'CREATE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for schema %s', quote_ident(schema)),
			DETAIL = 'The function of the trigger is made there, and belongs to who tracks.',
			HINT = format('GRANT CREATE ON SCHEMA %I TO %I;', schema, current_user);
	END IF;
	fn := format('_queue_track_%s_%s', target.number, left(regexp_replace(c.relname, '[^a-zA-Z0-9_]', '', 'g'), 25));
	WHILE EXISTS (SELECT FROM pg_proc AS p WHERE p.proname = fn AND p.pronamespace = c.relnamespace) LOOP
		fn := fn || '_';
	END LOOP;
	fn := format('%I.%I', schema, fn);
	EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp %s AS %L',
		fn, queue._track_settings(relation), queue._track_body(relation, target.number, said));
	EXECUTE format('REVOKE ALL ON FUNCTION %s() FROM PUBLIC', fn);
	EXECUTE format('COMMENT ON FUNCTION %s() IS %L', fn, 'QUEUE TRACK ' || said::text);
	names := array_remove(names, 'truncate');
	IF cardinality(names) > 0 THEN
		EXECUTE format('CREATE TRIGGER %I AFTER %s ON %s FOR EACH ROW EXECUTE FUNCTION %s()', queue._track_trigger(target.number),
			array_to_string(names, ' OR '), relation, fn);
	END IF;
	IF said -> 'events' ? 'truncate' THEN
		EXECUTE format('CREATE TRIGGER %I AFTER TRUNCATE ON %s EXECUTE FUNCTION %s()', queue._track_trigger(target.number) || CASE WHEN cardinality(names) > 0 THEN '_truncate' ELSE '' END,
			relation, fn);
	END IF;
	IF role <> current_user THEN
		EXECUTE format('ALTER FUNCTION %s() OWNER TO %I', fn, role);
	END IF;
END
$$;

-- q: NULL: all of them, also of what was dropped. By who tracks, or who owns the table.
CREATE OR REPLACE FUNCTION queue.untrack(relation regclass, q text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	c CONSTANT pg_class := queue._track_table(relation);
	found bool := false;
	f record;
	t name;
BEGIN
	IF q IS NOT NULL AND NOT EXISTS (SELECT FROM queue.topics AS x WHERE x.name = q) THEN
		PERFORM queue._number_of(q);
	END IF;
	IF EXISTS (SELECT FROM pg_trigger AS x WHERE x.tgrelid = relation AND x.tgname::text ~ '^_queue_track_[0-9]') THEN
		PERFORM queue._track_lock(c, true);
	END IF;
	FOR f IN
			SELECT p.oid, p.proowner, array_agg(x.tgname ORDER BY x.tgname DESC) AS triggers FROM pg_trigger AS x JOIN pg_proc AS p ON p.oid = x.tgfoid
			WHERE x.tgrelid = relation AND x.tgname::text ~ '^_queue_track_[0-9]{1,9}(_truncate)?$' AND queue._track_said(p.oid) IS NOT NULL
				AND (q IS NULL OR substring(x.tgname::text FROM '^_queue_track_([0-9]+)')::int4 = coalesce(
					(SELECT n.number FROM queue.queues AS n WHERE n.name = q), (SELECT n.number FROM queue.streams AS n WHERE n.name = q),
					(SELECT n.number FROM queue.topics AS n WHERE n.name = q)))
			GROUP BY p.oid, p.proowner LOOP
		found := true;
		IF pg_has_role(c.relowner, 'USAGE') THEN
			FOREACH t IN ARRAY f.triggers LOOP
				EXECUTE format('DROP TRIGGER %I ON %s', t, relation);
			END LOOP;
		END IF;
		IF pg_has_role(f.proowner, 'USAGE') THEN
			EXECUTE format('DROP FUNCTION %s CASCADE', f.oid::regprocedure);
		ELSIF NOT pg_has_role(c.relowner, 'USAGE') THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of table %s', relation),
				DETAIL = format('Or be role "%s", which tracks it.', pg_get_userbyid(f.proowner));
		END IF;
	END LOOP;
	IF NOT found THEN
		RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('%s is not tracked', relation) || coalesce(format(' in "%s"', q), ''),
			HINT = 'QUEUE TRACKED shows what is.';
	END IF;
END
$$;
