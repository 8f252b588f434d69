-- Topics: what is published to one is pushed to each queue and stream that is bound to it, in the publisher's transaction.
--
-- A topic has a view, queue.t_<number>, that holds nothing: INSERT on it is the right PUBLISH, REFERENCES the right BIND,
-- and a publication is an INSERT into it, which Postgres itself refuses to others. A trigger of it pushes, with the
-- installer's rights: a publisher needs none on the queues. What it runs are functions of ours alone; of a binding only data
-- comes in, a pattern and what the headers have to contain.
--
-- Whose queue it is said that it is bound. It is as long as the owner of the queue may BIND: that is looked at by each
-- publication, so it holds when the right is taken back, and when the queue is somebody else's. So is that its jobs are no
-- SQL (run.sql): who makes it one in an old snapshot does not see what was bound meanwhile.

CREATE OR REPLACE FUNCTION queue._topic_view(number int4) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'queue.t_' || number;
END
$$;

CREATE OR REPLACE FUNCTION queue._find_topic(topic text) RETURNS queue.topics
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t queue.topics;
BEGIN
	SELECT * INTO t FROM queue.topics AS x WHERE x.name = topic;
	IF NOT FOUND THEN
		IF topic IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the topic''s name must not be null';
		END IF;
		RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('topic "%s" does not exist', left(topic, 80)),
			HINT = format('QUEUE ROUTES shows the topics that there are. Create it with: QUEUE CREATE TOPIC %I;', left(topic, 80));
	END IF;
	RETURN t;
END
$$;

CREATE OR REPLACE FUNCTION queue._must_own_topic(t queue.topics) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	owner CONSTANT oid := coalesce((SELECT r.oid FROM pg_roles AS r WHERE r.oid = t.owner),
		(SELECT c.relowner FROM pg_class AS c WHERE c.oid = 'queue.topics'::regclass));
BEGIN
	IF NOT pg_has_role(owner, 'USAGE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of topic "%s"', t.name),
			DETAIL = format('It belongs to role "%s".', pg_get_userbyid(owner));
	END IF;
END
$$;

-- Words with dots between them. In a pattern * is any one word, # any number of them, but not the first, which names the
-- topic.
CREATE OR REPLACE FUNCTION queue._check_topic(topic text, pattern bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	words CONSTANT text[] := string_to_array(topic, '.');
BEGIN
	IF topic IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the topic must not be null';
	ELSIF octet_length(topic) NOT BETWEEN 1 AND 255 OR octet_length(words[1]) > 40 OR '' = ANY (words) THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid topic: "%s"', left(topic, 80)),
			DETAIL = 'It has up to 255 bytes, its first word up to 40, and none of its words is empty.',
			HINT = 'Words with dots between them: ''orders.eu.paid''.';
	ELSIF words[1] IN ('*', '#') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid topic: "%s"', left(topic, 80)),
			HINT = 'The first word is the name of a topic, not a pattern.';
	ELSIF EXISTS (SELECT FROM unnest(words) AS w WHERE w ~ '[*#]' AND NOT (pattern AND w IN ('*', '#'))) THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid topic: "%s"', left(topic, 80)),
			HINT = CASE WHEN pattern THEN '* and # stand for whole words: ''orders.*.paid'', ''orders.#''.'
				ELSE '* and # are for patterns: QUEUE BIND q TO ''orders.#''.' END;
	END IF;
END
$$;

-- NULL: the pattern is what it says.
CREATE OR REPLACE FUNCTION queue._topic_regex(pattern text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	words CONSTANT text[] := string_to_array(pattern, '.');
	regex text;
BEGIN
	IF NOT words && '{*,#}' THEN
		RETURN NULL;
	END IF;
	SELECT string_agg(CASE w.word WHEN '*' THEN '\.[^.]+' WHEN '#' THEN '(?:\.[^.]+)*'
			ELSE CASE WHEN w.n > 1 THEN '\.' ELSE '' END || regexp_replace(w.word, '([]^$*+?(){}|[\\])', '\\\1', 'g') END, '' ORDER BY w.n)
		INTO regex FROM unnest(words) WITH ORDINALITY AS w (word, n)
		WHERE w.n = 1 OR w.word <> '#' OR words[w.n - 1] <> '#';
	RETURN '^' || regex || '$';
END
$$;

-- --- changes: by an INSERT into a view, which keeps nothing (see catalogue.sql, _right) ---

-- As the caller: may he? Once more behind the change, where what was looked up in an old snapshot is locked.
CREATE OR REPLACE FUNCTION queue._topic_may() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t queue.topics;
	q record;
BEGIN
	IF NEW.what = 'create' THEN
		IF NOT has_table_privilege('queue.queues', 'INSERT') THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'permission denied for table queues',
				DETAIL = format('Role "%s" may not create queues, nor topics.', current_user),
				HINT = format('GRANT INSERT, UPDATE, DELETE ON queue.queues TO %I;', current_user);
		END IF;
		NEW.role := current_user;
		RETURN NEW;
	END IF;
	SELECT * INTO t FROM queue.topics AS x WHERE x.number = NEW.topic;
	IF t.number IS NULL AND TG_NAME = 'c_still' THEN
		RETURN NEW;	-- dropped, as was asked for
	ELSIF NEW.what IN ('drop', 'grant', 'revoke', 'owner') THEN
		PERFORM queue._must_own_topic(t);
		IF NEW.what = 'owner' AND NOT pg_has_role(NEW.role, 'USAGE') THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be member of role "%s"', NEW.role);
		END IF;
		RETURN NEW;
	ELSIF NEW.what NOT IN ('bind', 'unbind') IS NOT FALSE THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'there is no such change of a topic';
	END IF;
	SELECT c.name, c.owner, c.run INTO q FROM queue.queues AS c WHERE c.number = NEW.queue
		UNION ALL SELECT s.name, s.owner, NULL FROM queue.streams AS s WHERE s.number = NEW.queue;
	NEW.kind := CASE WHEN NEW.what = 'unbind' AND pg_has_role(t.owner, 'USAGE') THEN 'topic' END;	-- by what right
	IF NEW.kind = 'topic' THEN
		RETURN NEW;
	END IF;
	PERFORM queue._must_own(q.name, q.owner);
	IF NEW.what = 'bind' AND q.run IS NOT NULL THEN
		PERFORM queue._not_run(q.name, 'what is published', 'A handler can work off what is published.');
	ELSIF NEW.what = 'bind' AND NOT has_table_privilege(queue._topic_view(t.number), 'REFERENCES') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for topic "%s"', t.name),
			HINT = format('Its owner can allow it: QUEUE GRANT BIND ON TOPIC %I TO %I;', t.name, current_user);
	ELSIF NEW.what = 'bind' AND NOT has_table_privilege(q.owner, queue._topic_view(t.number), 'REFERENCES') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for topic "%s"', t.name),
			DETAIL = format('Queue "%s" belongs to role "%s", which may not BIND.', q.name, pg_get_userbyid(q.owner)),
			HINT = format('Its owner can allow it: QUEUE GRANT BIND ON TOPIC %I TO %I;', t.name, pg_get_userbyid(q.owner));
	END IF;
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION queue._topic_right_sql(gives bool, number int4, kind text, role text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format(CASE WHEN gives THEN 'GRANT %s ON %s TO %s' ELSE 'REVOKE %s ON %s FROM %s' END,
			CASE kind WHEN 'publish' THEN 'INSERT, SELECT' ELSE 'REFERENCES' END, queue._topic_view(number), queue._role(role))
		|| CASE kind WHEN 'publish' THEN format(CASE WHEN gives THEN '; GRANT EXECUTE ON FUNCTION %s TO %s'
			ELSE '; REVOKE EXECUTE ON FUNCTION %s FROM %s' END, queue._route_functions(number), queue._role(role)) ELSE '' END;
END
$$;

CREATE OR REPLACE FUNCTION queue._topic_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	v text;
	whose regrole;
BEGIN
	IF TG_RELID <> 'queue._topic'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	ELSIF NEW.what = 'create' THEN
		INSERT INTO queue.topics (number, name, owner)
			VALUES (nextval(pg_get_serial_sequence('queue.queues', 'number')), NEW.pattern, quote_ident(NEW.role)::regrole)
			ON CONFLICT (name) DO NOTHING RETURNING number INTO NEW.topic;
		IF NEW.topic IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('topic "%s" already exists', NEW.pattern),
				HINT = 'Use QUEUE CREATE TOPIC IF NOT EXISTS ...';
		END IF;
		v := queue._topic_view(NEW.topic);
		EXECUTE format('CREATE VIEW %1$s AS SELECT NULL::text AS topic, NULL::text[] AS payloads, NULL::int4 AS priority,
				NULL::interval AS delay, NULL::timestamptz AS run_at, NULL::text AS headers, NULL::interval AS expires,
				NULL::int4 AS attempts, NULL::text AS key, NULL::interval AS keep_for, NULL::text AS duplicate,
				NULL::text AS "group", NULL::text AS batch, NULL::text AS stated, NULL::text[] AS made;
			REVOKE ALL ON %1$s FROM PUBLIC;
			CREATE TRIGGER routes INSTEAD OF INSERT ON %1$s FOR EACH ROW EXECUTE FUNCTION queue._route();
			COMMENT ON VIEW %1$s IS %2$L', v, format('The topic "%s": who may INSERT here may PUBLISH, who has REFERENCES may BIND. It holds nothing.', NEW.pattern));
		PERFORM queue._generate_routes(NEW.topic);
		EXECUTE 'REVOKE ALL ON FUNCTION ' || queue._route_functions(NEW.topic) || ' FROM PUBLIC';
		EXECUTE queue._topic_right_sql(true, NEW.topic, 'publish', NEW.role);
		EXECUTE queue._topic_right_sql(true, NEW.topic, 'bind', NEW.role);
		RETURN NEW;
	END IF;
	-- Of a row that is not the caller's no more is locked than has to be: who binds keeps the topic from being dropped
	-- meanwhile, and nobody else waits for him; a queue is locked for its owner alone.
	IF NEW.what = 'bind' THEN
		PERFORM FROM queue.topics AS t WHERE t.number = NEW.topic FOR KEY SHARE;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = 'there is no such topic';
		END IF;
		SELECT c.owner INTO whose FROM queue.queues AS c WHERE c.number = NEW.queue FOR SHARE;
		IF NOT FOUND THEN
			SELECT s.owner INTO whose FROM queue.streams AS s WHERE s.number = NEW.queue FOR KEY SHARE;
			IF NOT FOUND THEN	-- dropped just now
				RAISE EXCEPTION USING ERRCODE = '42P01', MESSAGE = 'there is no such queue any more';
			END IF;
		END IF;
		PERFORM queue._check_topic(NEW.pattern, true);
		INSERT INTO queue.bindings AS b (topic, queue, pattern, regex, headers, owner)
			VALUES (NEW.topic, NEW.queue, NEW.pattern, queue._topic_regex(NEW.pattern), NEW.headers, whose)
			ON CONFLICT (topic, queue, pattern) DO UPDATE SET headers = EXCLUDED.headers, mark = DEFAULT
				WHERE b.headers IS DISTINCT FROM EXCLUDED.headers;
		RETURN NEW;
	ELSIF NEW.what = 'unbind' THEN
		IF NEW.kind = 'topic' THEN
			PERFORM FROM queue.topics AS t WHERE t.number = NEW.topic FOR SHARE;
		ELSE
			PERFORM FROM queue.queues AS c WHERE c.number = NEW.queue FOR SHARE;
		END IF;
		DELETE FROM queue.bindings AS b WHERE b.topic = NEW.topic AND b.queue = NEW.queue AND b.pattern = NEW.pattern;
		NEW.role := CASE WHEN FOUND THEN 'found' END;
		RETURN NEW;
	END IF;
	IF NEW.what = 'drop' THEN	-- before anything of it: who binds holds it
		PERFORM FROM queue.topics AS t WHERE t.number = NEW.topic FOR UPDATE;
	ELSE
		PERFORM FROM queue.topics AS t WHERE t.number = NEW.topic FOR NO KEY UPDATE;
	END IF;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = 'there is no such topic any more';
	ELSIF NEW.what IN ('grant', 'revoke') THEN
		EXECUTE queue._topic_right_sql(NEW.what = 'grant', NEW.topic, NEW.kind, NEW.role);
	ELSIF NEW.what = 'owner' THEN
		EXECUTE queue._topic_right_sql(true, NEW.topic, 'publish', NEW.role);
		EXECUTE queue._topic_right_sql(true, NEW.topic, 'bind', NEW.role);
		UPDATE queue.topics AS t SET owner = quote_ident(NEW.role)::regrole WHERE t.number = NEW.topic;
	ELSIF NEW.what = 'drop' THEN
		EXECUTE format('DROP VIEW IF EXISTS %s; DROP FUNCTION IF EXISTS %s', queue._topic_view(NEW.topic), queue._route_functions(NEW.topic));
		DELETE FROM queue.bindings AS b WHERE b.topic = NEW.topic;
		DELETE FROM queue.topics AS t WHERE t.number = NEW.topic;
	END IF;
	RETURN NEW;
END
$$;

DO $qbouncer_topics$
BEGIN
	IF to_regclass('queue._topic') IS NULL THEN
		CREATE VIEW queue._topic AS SELECT NULL::text AS what, NULL::int4 AS topic, NULL::int4 AS queue, NULL::text AS pattern,
			NULL::jsonb AS headers, NULL::text AS kind, NULL::text AS role;
		REVOKE ALL ON queue._topic FROM PUBLIC;
		GRANT INSERT, SELECT ON queue._topic TO PUBLIC;
		CREATE TRIGGER a_may INSTEAD OF INSERT ON queue._topic FOR EACH ROW EXECUTE FUNCTION queue._topic_may();
		CREATE TRIGGER b_does INSTEAD OF INSERT ON queue._topic FOR EACH ROW EXECUTE FUNCTION queue._topic_change();
		CREATE TRIGGER c_still INSTEAD OF INSERT ON queue._topic FOR EACH ROW EXECUTE FUNCTION queue._topic_may();
	END IF;
END
$qbouncer_topics$;

CREATE OR REPLACE FUNCTION queue.create_topic(topic text, if_not_exists bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._check_topic(topic, false);
	IF strpos(topic, '.') > 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid topic: "%s"', left(topic, 80)),
			HINT = format('A topic is made by its first word, and is for all that begin with it: QUEUE CREATE TOPIC %I;', split_part(topic, '.', 1));
	ELSIF if_not_exists AND EXISTS (SELECT FROM queue.topics AS t WHERE t.name = topic) THEN
		RAISE NOTICE USING ERRCODE = '42710', MESSAGE = format('topic "%s" already exists, skipping', topic);
		RETURN;
	END IF;
	INSERT INTO queue._topic (what, pattern) VALUES ('create', topic);
END
$$;

CREATE OR REPLACE FUNCTION queue.drop_topic(topic text, if_exists bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF if_exists AND NOT EXISTS (SELECT FROM queue.topics AS t WHERE t.name = topic) THEN
		RAISE NOTICE USING ERRCODE = '42704', MESSAGE = format('topic "%s" does not exist, skipping', left(topic, 80));
		RETURN;
	END IF;
	INSERT INTO queue._topic (what, topic) VALUES ('drop', (queue._find_topic(topic)).number);
END
$$;

-- Who had it keeps the rights that he had as a role among others.
CREATE OR REPLACE FUNCTION queue.give_topic(topic text, role text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	INSERT INTO queue._topic (what, topic, role) VALUES ('owner', (queue._find_topic(topic)).number, role);
END
$$;

CREATE OR REPLACE FUNCTION queue._topic_rights(gives bool, topic text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t CONSTANT queue.topics := queue._find_topic(topic);
	word text;
	role text;
	kind text;
BEGIN
	FOREACH word IN ARRAY coalesce(rights, '{}') LOOP
		IF lower(word) IN ('publish', 'bind', 'all') IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown right "%s"', left(word, 80)),
				HINT = 'Rights on a topic: PUBLISH, BIND, ALL.';
		END IF;
	END LOOP;
	IF array_position(roles, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the role must not be null';
	ELSIF array_position(roles, '') IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = 'the name of the role must not be empty';
	END IF;
	FOREACH role IN ARRAY roles LOOP
		FOREACH kind IN ARRAY '{publish,bind}'::text[] LOOP
			IF lower(rights::text)::text[] && ARRAY[kind, 'all'] THEN
				INSERT INTO queue._topic (what, topic, kind, role)
					VALUES (CASE WHEN gives THEN 'grant' ELSE 'revoke' END, t.number, kind, role);
			END IF;
		END LOOP;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue.grant_topic(topic text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._topic_rights(true, topic, rights, roles);
END
$$;

CREATE OR REPLACE FUNCTION queue.revoke_topic(topic text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._topic_rights(false, topic, rights, roles);
END
$$;

-- The number of a queue or of a stream.
CREATE OR REPLACE FUNCTION queue._number_of(q text) RETURNS int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	number CONSTANT int4 := coalesce((SELECT c.number FROM queue.queues AS c WHERE c.name = q),
		(SELECT s.number FROM queue.streams AS s WHERE s.name = q));
BEGIN
	IF number IS NULL THEN
		PERFORM queue._no_queue(q);
	END IF;
	RETURN number;
END
$$;

-- headers: what those of a publication have to contain. Said again with other ones it is changed.
CREATE OR REPLACE FUNCTION queue.bind(q text, pattern text, headers jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	number CONSTANT int4 := queue._number_of(q);
BEGIN
	PERFORM queue._check_topic(pattern, true);
	IF jsonb_typeof(headers) <> 'object' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'headers must be a JSON object',
			HINT = 'For example: WHEN headers @> ''{"kind": "urgent"}''.';
	END IF;
	INSERT INTO queue._topic (what, topic, queue, pattern, headers)
		VALUES ('bind', (queue._find_topic(split_part(pattern, '.', 1))).number, number, pattern, headers);
END
$$;

CREATE OR REPLACE FUNCTION queue.unbind(q text, pattern text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	number CONSTANT int4 := queue._number_of(q);
	found text;
BEGIN
	PERFORM queue._check_topic(pattern, true);
	INSERT INTO queue._topic (what, topic, queue, pattern)
		VALUES ('unbind', (queue._find_topic(split_part(pattern, '.', 1))).number, number, pattern) RETURNING role INTO found;
	IF found IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('queue "%s" is not bound to "%s"', q, left(pattern, 80)),
			HINT = 'QUEUE ROUTES shows what is bound.';
	END IF;
END
$$;

-- active: it gets what is published. It does not while the owner of the queue may not BIND.
CREATE OR REPLACE FUNCTION queue.routes(wanted text DEFAULT NULL)
RETURNS TABLE (topic text, pattern text, queue text, headers jsonb, active bool, owner text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	IF wanted IS NOT NULL THEN
		PERFORM queue._check_topic(wanted, false);
		PERFORM queue._find_topic(split_part(wanted, '.', 1));
	END IF;
	RETURN QUERY SELECT t.name, b.pattern, b.name, b.headers,
			has_table_privilege(b.owner, queue._topic_view(t.number), 'REFERENCES') AND b.run IS NULL, pg_get_userbyid(t.owner)::text
		FROM queue.topics AS t LEFT JOIN (
			SELECT x.topic, x.pattern, x.regex, x.headers, c.name, c.owner, c.run FROM queue.bindings AS x
				JOIN (SELECT number, name, owner, run FROM queue.queues UNION ALL SELECT number, name, owner, NULL FROM queue.streams) AS c
					ON c.number = x.queue
			) AS b ON b.topic = t.number
		WHERE wanted IS NULL OR t.name = split_part(wanted, '.', 1) AND (b.pattern = wanted OR wanted ~ b.regex)
		ORDER BY t.name, b.pattern, b.name;
END
$$;

-- --- PUBLISH ---

-- What there is of a job that is there already: a publisher has no right to change it. Looked at by the trigger, which is
-- what stands between him and the queues.
CREATE OR REPLACE FUNCTION queue._check_publish(duplicate text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF lower(duplicate) NOT IN ('ignore', 'error') THEN
		RAISE EXCEPTION USING ERRCODE = '0A000',
			MESSAGE = format('PUBLISH has no ON DUPLICATE %s', upper(left(duplicate, 80))),
			DETAIL = 'A job that is there is not the publisher''s to change.', HINT = 'Allowed: IGNORE, ERROR.';
	END IF;
END
$$;

-- For a schedule, when it is made; when it is fired its rights are looked at anew.
CREATE OR REPLACE FUNCTION queue._may_publish(topic text, duplicate text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t queue.topics;
BEGIN
	PERFORM queue._check_topic(topic, false);
	t := queue._find_topic(split_part(topic, '.', 1));
	IF NOT has_table_privilege(queue._topic_view(t.number), 'INSERT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for topic "%s"', t.name),
			HINT = format('Its owner can allow it: QUEUE GRANT PUBLISH ON TOPIC %I TO %I;', t.name, current_user);
	END IF;
	IF duplicate IS NOT NULL THEN
		PERFORM queue._check_publish(duplicate);
	END IF;
END
$$;

-- Of who writes to a table that is tracked, before the first push of his transaction to this queue or stream: is it still there?
-- As queue._track_guard, which says why; here it is looked up by each row where that goes.
CREATE OR REPLACE FUNCTION queue._route_is_there(number int4, name text, is_stream bool) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	log CONSTANT text := CASE WHEN is_stream THEN (SELECT format('queue.e%s_%s', s.number, s.current) FROM queue.streams AS s WHERE s.number = $1)
		ELSE queue._table(name) END;
BEGIN
	IF log IS NULL THEN
		RETURN false;
	END IF;
	EXECUTE format('SELECT id FROM %s LIMIT 0', log);
	IF NOT is_stream AND to_regproc('queue._push_' || number) IS NULL THEN	-- another one has its name
		RETURN false;
	END IF;
	PERFORM set_config('qbouncer.tracked', concat(current_setting('qbouncer.tracked', true), format(' %s ', number)), true);
	RETURN true;
EXCEPTION WHEN undefined_table THEN
	RETURN false;
END
$$;

-- made: queue, job, queue, job, ...; NULL: none is bound. An event has neither time nor attempts: what is said of these is
-- for the queues.
CREATE OR REPLACE FUNCTION queue._route() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t queue.topics;
	q record;
	head text;
	tracked CONSTANT bool := NEW.stated = 'tracked';
BEGIN
	SELECT * INTO t FROM queue.topics AS x WHERE x.number = substring(TG_TABLE_NAME FROM '^t_([0-9]{1,9})$')::int4;
	IF NOT FOUND OR to_regclass(queue._topic_view(t.number)) IS DISTINCT FROM TG_RELID::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	ELSIF NEW.topic IS NULL AND NEW.stated = 'routes' THEN	-- by queue._routes_of()
		NEW.stated := queue._look_at_routes(t.number);
		RETURN NEW;
	ELSIF split_part(NEW.topic, '.', 1) <> t.name IS NOT FALSE THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('"%s" is not of topic "%s"', left(NEW.topic, 80), t.name);
	END IF;
	IF NEW.duplicate IS NOT NULL THEN
		PERFORM queue._check_publish(NEW.duplicate);
	END IF;
	head := (queue._publish_headers(NEW.headers) || jsonb_build_object('topic', NEW.topic))::text;
	NEW.stated := CASE WHEN NOT tracked THEN NEW.stated END;
	NEW.made := NULL;
	FOR q IN
			SELECT c.number, c.name, c.is_stream FROM (
				SELECT number, name, owner, false AS is_stream FROM queue.queues WHERE run IS NULL
				UNION ALL SELECT number, name, owner, true FROM queue.streams) AS c
			WHERE c.number = ANY (ARRAY(SELECT b.queue FROM queue.bindings AS b WHERE b.topic = t.number
					AND (b.pattern = NEW.topic OR NEW.topic ~ b.regex)
					AND (b.headers IS NULL OR head::jsonb @> b.headers)))
				AND has_table_privilege(c.owner, TG_RELID, 'REFERENCES')
			ORDER BY c.number LOOP
		-- dropped, which an old snapshot does not see
		CONTINUE WHEN to_regproc(format('queue._push%s_%s', CASE WHEN q.is_stream THEN '_event' END, q.number)) IS NULL;
		IF tracked AND strpos(current_setting('qbouncer.tracked', true), format(' %s ', q.number)) > 0 IS NOT TRUE THEN
			CONTINUE WHEN NOT queue._route_is_there(q.number, q.name, q.is_stream);
		END IF;
		IF q.is_stream THEN
			NEW.made := coalesce(NEW.made, '{}') || ARRAY(SELECT x FROM queue._push_event(q.name, NEW.payloads, head, false, NEW.key, NEW."group",
				NEW.stated) AS e, LATERAL unnest(ARRAY[q.name, NULL]) AS x);
		ELSE
			NEW.made := coalesce(NEW.made, '{}') || ARRAY(SELECT x FROM queue._push(q.name, NEW.payloads, NEW.priority, NEW.delay, NEW.run_at, head,
				false, NEW.expires, NEW.attempts, NEW.key, NEW.duplicate, NEW."group", false, NEW.stated, NEW.batch, NEW.keep_for) AS id,
				LATERAL unnest(ARRAY[q.name, q.number || '-' || id]) AS x WHERE id IS NOT NULL);
			IF queue._runs_since(q.number) THEN	-- behind the push, which may have waited
				PERFORM queue._changed_since(q.name);
			END IF;
		END IF;
	END LOOP;
	RETURN NEW;
END
$$;

-- A row for each job. notify: those who wait are told by us; else the caller does, of the queues in the rows.
CREATE OR REPLACE FUNCTION queue._publish(topic text, payloads text[], priority int4, delay interval, run_at timestamptz,
	headers text, notify bool, mandatory bool, expires interval, attempts int4, key text, keep_for interval, duplicate text,
	"group" text, batch text, stated text DEFAULT NULL)
RETURNS TABLE (queue text, job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	t queue.topics;
	made text[];
	name text;
BEGIN
	SELECT * INTO t FROM queue.topics AS x WHERE x.name = split_part(topic, '.', 1);
	IF NOT FOUND OR topic ~ '[*#]|[.][.]|[.]$' OR octet_length(topic) > 255 THEN
		PERFORM queue._check_topic(topic, false);
		PERFORM queue._find_topic(split_part(topic, '.', 1));
	ELSIF payloads IS NULL OR array_position(payloads, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the payload must not be null',
			HINT = 'The JSON value null is written ''null''.';
	ELSIF NOT has_table_privilege(queue._topic_view(t.number), 'INSERT') THEN
		PERFORM queue._may_publish(topic, NULL);
	END IF;
	IF cardinality(payloads) = 1 AND coalesce(delay::text, run_at::text, expires::text, attempts::text, key, keep_for::text, duplicate,
				"group", batch, stated) IS NULL
			AND has_function_privilege(format('queue._publish_one_%s(text, text, text, int4, bool)', t.number), 'EXECUTE') THEN
		EXECUTE 'SELECT queue._publish_one_' || t.number || '($1, $2, $3, $4, $5)' INTO made
			USING topic, payloads[1], headers, priority, NULL::bool;
	END IF;
	IF cardinality(made) = 0 THEN
		made := NULL;	-- none is bound
	ELSIF made IS NULL THEN
		EXECUTE 'INSERT INTO queue.t_' || t.number || ' (topic, payloads, priority, delay, run_at, headers, expires, attempts, key,
				keep_for, duplicate, "group", batch, stated)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) RETURNING made' INTO made
			USING topic, payloads, priority, delay, run_at, headers, expires, attempts, key, keep_for, duplicate, "group", batch, stated;
	END IF;
	IF made IS NULL AND mandatory THEN
		RAISE EXCEPTION USING ERRCODE = 'QB007', MESSAGE = format('no queue is bound to "%s"', topic),
			HINT = 'QUEUE ROUTES shows what is bound. Without MANDATORY this is no error.';
	ELSIF made IS NULL OR cardinality(made) = 0 THEN
		RETURN;
	END IF;
	FOR i IN 1 .. cardinality(made) BY 2 LOOP
		queue := made[i];
		job := made[i + 1];
		RETURN NEXT;
		IF notify AND queue IS DISTINCT FROM name THEN
			name := queue;
			PERFORM queue._tell(coalesce(split_part(job, '-', 1)::int4, queue._number_of(name)), name);	-- of an event there is no job
		END IF;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue.publish(topic text, payload text, priority int4 DEFAULT NULL, delay interval DEFAULT NULL,
	run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL, mandatory bool DEFAULT false, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, keep_for interval DEFAULT NULL, on_duplicate text DEFAULT NULL,
	"group" text DEFAULT NULL, batch text DEFAULT NULL, notify bool DEFAULT true)
RETURNS TABLE (queue text, job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM queue._publish(topic, ARRAY[payload], priority, delay, run_at, headers::text, coalesce(notify, true),
		coalesce(mandatory, false), expires, attempts, key, keep_for, on_duplicate, "group", batch);
END
$$;

CREATE OR REPLACE FUNCTION queue.publish(topic text, payload jsonb, priority int4 DEFAULT NULL, delay interval DEFAULT NULL,
	run_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL, mandatory bool DEFAULT false, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, keep_for interval DEFAULT NULL, on_duplicate text DEFAULT NULL,
	"group" text DEFAULT NULL, batch text DEFAULT NULL, notify bool DEFAULT true)
RETURNS TABLE (queue text, job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM queue._publish(topic, ARRAY[payload::text], priority, delay, run_at, headers::text,
		coalesce(notify, true), coalesce(mandatory, false), expires, attempts, key, keep_for, on_duplicate, "group", batch, 'jsonb');
END
$$;
