-- What most publications are: payloads, a priority, headers, and nothing else. Two functions of each topic do them with
-- plain INSERTs, one for each queue that is bound: queue._publish_one_<number> of one payload, queue._publish_<number> of
-- many with a topic each, which the proxy merges. Anything else goes through the trigger of the topic's view (topic.sql).
--
-- They act with the installer's rights, and who may PUBLISH may call them. They do what the trigger does, or nothing: each
-- has in it what it was made for, and compares. That are the marks of the bindings whose owners may BIND, which are drawn
-- anew with each change; and of each queue that it pushes to, that it is there and its jobs are no SQL, also where an old
-- snapshot did not see the binding (_lone_name), and behind the lock of its table, for which the push may have waited. So a
-- binding counts from its commit, at every proxy and in every snapshot, and nobody who binds waits for another one. What is
-- not right any more is said by NULL, or by error 42883 if something is pushed already, and the caller goes the long way.
-- mandatory: NULL: by queue._publish(), which looks at that itself; it can undo nothing, so its caller has to repeat it. The
-- proxy asks from time to time (queue._routes_of), and then they are made anew.
--
-- A setting of a function (search_path) costs a tenth of a push, so the one for one payload has none: each name and operator
-- in it says its schema.

CREATE OR REPLACE FUNCTION queue._route_functions(number int4) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('queue._publish_%1$s(text[], text[], text, int4, bool), queue._publish_one_%1$s(text, text, text, int4, bool)', number);
END
$$;

-- Of one queue or stream: what has to hold of a publication that it is pushed there, the topic's name known. said, head: the
-- expressions of its topic and its headers. They are not put in afterwards: a pattern may have any word in it.
CREATE OR REPLACE FUNCTION queue._route_condition(topic int4, number int4, said text, head text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN string_agg(concat_ws(' AND ', CASE
				WHEN b.pattern = t.name || '.#' THEN CASE WHEN b.headers IS NULL THEN 'true' END
				WHEN b.regex IS NULL THEN format('%s OPERATOR(pg_catalog.=) %L', said, b.pattern)
				ELSE format('%s OPERATOR(pg_catalog.~) %L', said, b.regex) END,
			head || ' OPERATOR(pg_catalog.@>) ' || quote_literal(b.headers) || '::pg_catalog.jsonb'), ' OR ' ORDER BY b.pattern)
		FROM queue.bindings AS b, queue.topics AS t WHERE b.topic = $1 AND b.queue = $2 AND t.number = $1;
END
$$;

-- The bodies of its functions; NULL: it has too many queues for that.
CREATE OR REPLACE FUNCTION queue._route_bodies(topic int4, OUT one text, OUT many text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off SET bytea_output = hex	-- the same text in every session
AS $$
DECLARE
	queues_max CONSTANT int4 := 30;
	view CONSTANT text := queue._topic_view(topic);
	t queue.topics;
	q record;
	current text;
	ones text := '';
	manys text := '';
	many_condition text;
	said text;		-- what its names are like
	alone text;
	-- what is pushed to a queue or a stream: of one, and of those of many for which the condition holds
	push text;
	n int4 := 0;
BEGIN
	SELECT * INTO t FROM queue.topics AS x WHERE x.number = topic;
	said := '^' || queue._topic_literal(t.name) || '(?:\.[^.*#]+)*$';
	SELECT format('ARRAY(SELECT b.mark FROM queue.bindings AS b WHERE b.topic OPERATOR(pg_catalog.=) %s
				AND pg_catalog.has_table_privilege(b.owner, %L::pg_catalog.regclass, ''REFERENCES'') ORDER BY b.queue, b.pattern)
			OPERATOR(pg_catalog.=) %L', topic, view,
			ARRAY(SELECT b.mark FROM queue.bindings AS b WHERE b.topic = t.number AND has_table_privilege(b.owner, view::regclass, 'REFERENCES')
				ORDER BY b.queue, b.pattern)) INTO current;
	FOR q IN SELECT c.number, c.name, c.is_stream, c.payload, c.still FROM (
				SELECT x.number, x.name, x.owner, false AS is_stream, x.payload,
						'queue.' || quote_ident(queue._lone_name(x)) AS still
					FROM queue.queues AS x WHERE x.run IS NULL
				UNION ALL SELECT s.number, s.name, s.owner, true, 'jsonb', 'queue._push_event_' || s.number FROM queue.streams AS s) AS c
			WHERE EXISTS (SELECT FROM queue.bindings AS b WHERE b.topic = t.number AND b.queue = c.number)
				AND has_table_privilege(c.owner, view::regclass, 'REFERENCES')
			ORDER BY c.number LOOP
		n := n + 1;
		push := CASE WHEN q.is_stream THEN format($push$
		PERFORM queue._push_event_%1$s(s.current, s.log, %%s, %%s, NULL, NULL) FROM queue.streams AS s
			WHERE s.number OPERATOR(pg_catalog.=) %1$s AND %2$s
				AND pg_catalog.has_table_privilege(s.owner, %3$L::pg_catalog.regclass, 'REFERENCES');$push$, q.number, current, view)
			ELSE format($push$
		INSERT INTO %1$s AS q (priority, headers, payload, pushed_at)
			SELECT coalesce(priority, 0), head, payload::pg_catalog.%2$s, pg_catalog.clock_timestamp()
				WHERE %3$s AND (pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
					OR pg_catalog.to_regproc(%4$L) IS NOT NULL)
			RETURNING q.id INTO id;$push$, queue._table(q.name), q.payload, current, q.still) END;
		ones := ones || format($step$
	IF %1$s THEN
		still := pg_catalog.to_regproc(%5$L) IS NOT NULL;
		IF still THEN%2$s
			still := FOUND;
		END IF;
		IF NOT still THEN
			IF pg_catalog.cardinality(made) OPERATOR(pg_catalog.=) 0 THEN
				RETURN NULL;
			END IF;
			PERFORM queue._routes_changed(topic, mandatory IS NULL);
		END IF;
		made := made OPERATOR(pg_catalog.||) ARRAY[%3$L, %4$s];
	END IF;$step$, queue._route_condition(topic, q.number, 'topic', 'head'),
			CASE WHEN q.is_stream THEN format(push, 'ARRAY[payload]', 'head') ELSE push END,
			q.name, CASE WHEN q.is_stream THEN 'NULL' ELSE format('pg_catalog.concat(''%s-'', id)', q.number) END, q.still);
		-- Each expression costs in each transaction what a row in an index does. So where nothing else is bound, and nothing is
		-- asked of headers, the INSERT itself looks at all that is looked at; what follows says why it has done nothing.
		alone := CASE WHEN NOT q.is_stream AND NOT EXISTS (SELECT FROM queue.bindings AS b
				WHERE b.topic = t.number AND b.headers IS NOT NULL) THEN format($alone$
	IF headers IS NULL AND pg_catalog.to_regproc(%5$L) IS NOT NULL AND (%4$s) THEN
		INSERT INTO %1$s AS q (priority, headers, payload, pushed_at)
			SELECT coalesce(priority, 0), pg_catalog.jsonb_build_object('topic', topic), payload::pg_catalog.%2$s,
					pg_catalog.clock_timestamp()
				WHERE topic OPERATOR(pg_catalog.~) %3$L AND payload IS NOT NULL AND %6$s
					AND (pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
						OR pg_catalog.to_regproc(%5$L) IS NOT NULL)
			RETURNING ARRAY[%7$L, '%8$s-' OPERATOR(pg_catalog.||) q.id::pg_catalog.text] INTO made;
		IF made IS NOT NULL THEN
			RETURN made;
		END IF;
	END IF;$alone$, queue._table(q.name), q.payload, said, queue._route_condition(topic, q.number, 'topic', 'NULL'),
			q.still, current, q.name, q.number) END;
		-- in the order of the array; what is made of it comes in the same. said: the headers, if all have the same topic
		many_condition := queue._route_condition(topic, q.number, 'u.t', '(head || jsonb_build_object(''topic'', u.t))');
		manys := manys || format($step$
	places := CASE WHEN said IS NULL THEN ARRAY(SELECT u.n FROM unnest(topics) WITH ORDINALITY AS u (t, n) WHERE %1$s)
		WHEN %6$s THEN every ELSE '{}' END;
	IF cardinality(places) > 0 THEN
		IF %2$s THEN
			PERFORM queue._routes_changed(topics[1]);
		END IF;%3$s
		queue := %4$L;
		number := %5$s;
		hits := hits || CASE WHEN mandatory THEN places ELSE '{}' END;
		RETURN NEXT;
	END IF;$step$, many_condition,
			format('to_regproc(%L) IS NULL', q.still) || CASE WHEN q.is_stream THEN format(' OR NOT EXISTS (SELECT FROM queue.streams AS s
				WHERE s.number = %s AND has_table_privilege(s.owner, %L::regclass, ''REFERENCES''))', q.number, view) ELSE '' END,
			CASE WHEN q.is_stream THEN format($push$
		IF said IS NOT NULL THEN
			PERFORM queue._push_event_%1$s(s.current, s.log, payloads, said, NULL, NULL)
				FROM queue.streams AS s WHERE s.number = %1$s;
		ELSE
			PERFORM queue._push_event_%1$s(s.current, s.log, payloads[p : p], head || jsonb_build_object('topic', topics[p]), NULL, NULL)
				FROM queue.streams AS s, unnest(places) AS p WHERE s.number = %1$s;
		END IF;
		ids := array_fill(NULL::int8, ARRAY[cardinality(places)]);$push$, q.number)
				ELSE format($push$
		WITH made AS (INSERT INTO %1$s AS q (priority, headers, payload, pushed_at)
				SELECT coalesce(prio, 0), coalesce(said, head || jsonb_build_object('topic', u.t)), u.p::%2$s, clock_timestamp()
				FROM unnest(topics, payloads) AS u (t, p) WHERE said IS NOT NULL OR (%3$s) RETURNING q.id)
			SELECT array_agg(m.id) INTO ids FROM made AS m;
		IF to_regproc(%4$L) IS NULL THEN
			PERFORM queue._routes_changed(topics[1]);
		END IF;$push$, queue._table(q.name), q.payload, many_condition, q.still) END,
			q.name, CASE WHEN q.is_stream THEN 'NULL' ELSE q.number::text END,
			queue._route_condition(topic, q.number, 'topics[1]', 'said'));
	END LOOP;
	IF n > queues_max THEN
		RETURN;
	END IF;
	one := format($body$
#variable_conflict use_variable
DECLARE
	made pg_catalog.text[];
	head pg_catalog.jsonb;
	id pg_catalog.int8;
	still pg_catalog.bool;
BEGIN%4$s
	IF (topic OPERATOR(pg_catalog.~) %1$L) IS NOT TRUE OR payload IS NULL THEN
		RETURN NULL;
	END IF;
	made := '{}';
	head := pg_catalog.jsonb_build_object('topic', topic);
	IF headers IS NOT NULL THEN
		head := queue._publish_headers(headers) OPERATOR(pg_catalog.||) head;
	END IF;%2$s
	IF pg_catalog.cardinality(made) OPERATOR(pg_catalog.=) 0 AND (mandatory OR NOT (%3$s)) THEN
		RETURN NULL;
	END IF;
	RETURN made;
END
$body$, said, ones, current, CASE WHEN n = 1 THEN alone END);
	many := format($body$
#variable_conflict use_variable
DECLARE
	head CONSTANT jsonb := queue._publish_headers(headers);
	prio CONSTANT int4 := priority;
	said CONSTANT jsonb := CASE WHEN topics[1] = ALL (topics) THEN head || jsonb_build_object('topic', topics[1]) END;
	every CONSTANT int4[] := ARRAY(SELECT generate_series(1, cardinality(topics)));
	hits int4[] := '{}';
BEGIN
	IF NOT (%3$s) OR EXISTS (SELECT FROM unnest(CASE WHEN said IS NULL THEN topics ELSE topics[1:1] END) AS u (t)
			WHERE (u.t ~ %1$L) IS NOT TRUE) THEN
		PERFORM queue._routes_changed(topics[1]);
	END IF;%2$s
	IF mandatory AND (said IS NULL OR hits = '{}') AND (SELECT count(DISTINCT h) FROM unnest(hits) AS h) < cardinality(topics) THEN
		PERFORM queue._routes_changed(topics[1]);
	END IF;
END
$body$, said, manys, current);
END
$$;

CREATE OR REPLACE FUNCTION queue._topic_literal(name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN regexp_replace(name, '([]^$*+?(){}|[\\.])', '\\\1', 'g');
END
$$;

CREATE OR REPLACE FUNCTION queue._publish_headers(headers text) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(nullif(queue._check_push(headers, NULL, NULL), 'null'), '{}');
END
$$;

-- Nobody sees it: who has called goes the long way. repeat: he cannot.
CREATE OR REPLACE FUNCTION queue._routes_changed(topic text, repeat bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF repeat THEN
		RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('what is bound to "%s" was changed meanwhile', left(topic, 80)),
			HINT = 'Repeat the transaction.';
	END IF;
	RAISE EXCEPTION USING ERRCODE = '42883', MESSAGE = format('what is bound to "%s" has changed', left(topic, 80));
END
$$;

-- true: they are right now. Rights on them stay as they are.
CREATE OR REPLACE FUNCTION queue._generate_routes(topic int4) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET check_function_bodies = off
AS $$
DECLARE
	b record;
BEGIN
	SELECT * INTO b FROM queue._route_bodies(topic);
	IF b.one IS NULL THEN
		RETURN false;
	END IF;
	IF EXISTS (SELECT FROM pg_proc AS p WHERE p.oid = to_regprocedure(format('queue._publish_one_%s(text, text, text, int4, bool)', topic))
				AND p.prosrc = b.one)
			AND EXISTS (SELECT FROM pg_proc AS p WHERE p.oid = to_regprocedure(format('queue._publish_%s(text[], text[], text, int4, bool)', topic))
				AND p.prosrc = b.many) THEN
		RETURN true;
	END IF;
	EXECUTE format('CREATE OR REPLACE FUNCTION queue._publish_one_%s(topic text, payload text, headers text, priority int4, mandatory bool)
			RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER AS %L', topic, b.one);
	EXECUTE format('CREATE OR REPLACE FUNCTION queue._publish_%s(topics text[], payloads text[], headers text, priority int4, mandatory bool)
			RETURNS TABLE (queue text, number int4, places int4[], ids int8[]) LANGUAGE plpgsql SECURITY DEFINER
			SET search_path = pg_catalog, pg_temp AS %L', topic, b.many);
	RETURN true;
END
$$;

-- By the trigger of the topic's view, for somebody who may PUBLISH. NULL: they are not right, and cannot be made so now.
-- Nobody is waited for: who is about to change the topic, or its rights, has it locked.
CREATE OR REPLACE FUNCTION queue._look_at_routes(topic int4) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('transaction_read_only')::bool THEN
		RETURN NULL;
	END IF;
	PERFORM FROM queue.topics AS t WHERE t.number = topic FOR NO KEY UPDATE SKIP LOCKED;
	RETURN CASE WHEN FOUND AND queue._generate_routes(topic) THEN 'right' END;
END
$$;

-- For the proxy: the number of the topic, if its functions are right.
CREATE OR REPLACE FUNCTION queue._routes_of(topic text) RETURNS int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	number CONSTANT int4 := (SELECT t.number FROM queue.topics AS t WHERE t.name = topic);
	said text;
BEGIN
	IF number IS NOT NULL THEN
		EXECUTE format('INSERT INTO %s (stated) VALUES (''routes'') RETURNING stated', queue._topic_view(number)) INTO said;
	END IF;
	RETURN CASE said WHEN 'right' THEN number END;
END
$$;

-- What several say together, one behind the other: topic and payload of each. A row for each job or event: for the proxy,
-- where it does not know the functions of the topic.
CREATE OR REPLACE FUNCTION queue._publish_each(pairs text[], headers text, priority int4, mandatory bool)
RETURNS TABLE (queue text, number int4, places int4[], ids int8[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	FOR i IN 1 .. cardinality(pairs) / 2 LOOP
		RETURN QUERY SELECT p.queue, split_part(p.job, '-', 1)::int4, ARRAY[i], ARRAY[split_part(p.job, '-', 2)::int8]
			FROM queue._publish(pairs[2 * i - 1], pairs[2 * i : 2 * i], priority, NULL, NULL, headers, false, mandatory, NULL, NULL, NULL,
				NULL, NULL, NULL, NULL) AS p;
	END LOOP;
END
$$;
