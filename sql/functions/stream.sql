-- Streams: CREATE, DROP and rights, and what is pushed. A stream is a log: its events are written once, and never
-- updated or deleted one by one. Who reads, and how far, is in subscribe.sql and deliver.sql.
--
-- An event has the xid of the transaction that pushed it, its top one: what a subscription has seen is a snapshot. Ids
-- are drawn before commits, so "above the last id" would skip what a slow transaction commits later.

CREATE OR REPLACE FUNCTION queue._is_stream(q text) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM queue.streams AS s WHERE s.name = q);
END
$$;

CREATE OR REPLACE FUNCTION queue._find_stream(q text) RETURNS queue.streams
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
BEGIN
	SELECT * INTO s FROM queue.streams AS t WHERE t.name = q;
	IF NOT FOUND THEN
		IF EXISTS (SELECT FROM queue.queues AS c WHERE c.name = q) THEN
			RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('queue "%s" is not a stream', q),
				HINT = format('Streams are made so: QUEUE CREATE %I WITH (kind = stream); from a queue jobs are taken: '
					'QUEUE TAKE %I;', 'name', q);
		ELSIF q IS NULL THEN
			PERFORM queue._no_queue(NULL);
		END IF;
		PERFORM queue._no_stream(q);
	END IF;
	RETURN s;
END
$$;

CREATE OR REPLACE FUNCTION queue._no_stream(q text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '42P01', MESSAGE = format('stream "%s" does not exist', q),
		HINT = format('Create it with: QUEUE CREATE %I WITH (kind = stream);', q);
END
$$;

-- Is this what names a delivery: its token, or what SUBSCRIPTIONS shows of it?
CREATE OR REPLACE FUNCTION queue._is_delivery(name text) RETURNS bool
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN name ~ '^[0-9]{1,9}-d[0-9]{1,18}(-[0-9a-f]{16})?$';
END
$$;

-- What the payloads are of the deliveries among these names (PEEK token).
CREATE OR REPLACE FUNCTION queue._delivered_payloads(names text[]) RETURNS TABLE (name text, payload text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	word text;
BEGIN
	FOREACH word IN ARRAY names LOOP
		CONTINUE WHEN queue._is_delivery(word) IS NOT TRUE;
		RETURN QUERY SELECT word, s.payload FROM queue.subscriptions AS u JOIN queue.streams AS s ON s.number = u.stream
			WHERE u.number = split_part(word, '-', 1)::int4;
	END LOOP;
END
$$;

-- What there is of queues, and not of streams.
CREATE OR REPLACE FUNCTION queue._not_of_streams(what text, hint text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('%s is not possible with a stream', what), HINT = hint;
END
$$;

-- The xids of the events mean nothing in another era: on another system, or in tables that were restored from a dump.
-- Refused, as there some would be skipped and others come twice, silently.
CREATE OR REPLACE FUNCTION queue._other_era(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT queue._is_stream(name) THEN	-- dropped just now
		PERFORM queue._no_stream(name);
	END IF;
	RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('stream "%s" was restored from a dump, or upgraded', name),
		DETAIL = 'What its subscriptions have seen is not known here: transaction numbers have begun anew.',
		HINT = format('Its events can be read from the tables queue.%I to queue.%I; drop it and create it anew.',
			'e' || s.number || '_0', 'e' || s.number || '_3') FROM queue.streams AS s WHERE s.name = $1;
END
$$;

-- --- making ---

CREATE OR REPLACE FUNCTION queue._stream_may_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT has_table_privilege('queue.queues', 'INSERT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'permission denied for table queues',
			DETAIL = format('Role "%s" may not create queues.', current_user),
			HINT = format('GRANT INSERT, UPDATE, DELETE ON queue.queues TO %I;', current_user);
	ELSIF NOT pg_has_role(NEW.owner, 'USAGE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('must be member of role "%s"', pg_get_userbyid(NEW.owner));
	END IF;
	RETURN NEW;
END
$$;

-- Its name is not that of a queue, see queue.names.
CREATE OR REPLACE FUNCTION queue._stream_number() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue.streams'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	END IF;
	INSERT INTO queue.names VALUES (NEW.name) ON CONFLICT DO NOTHING;
	IF NOT FOUND AND NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.name = NEW.name) THEN
		RETURN NULL;
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42P07', MESSAGE = format('queue "%s" already exists', NEW.name),
			HINT = 'A stream needs a name of its own; or drop the queue first.';
	END IF;
	NEW.number := nextval(pg_get_serial_sequence('queue.queues', 'number'));
	NEW.log := NULL;
	NEW.system := (SELECT c.system_identifier FROM pg_control_system() AS c);
	RETURN NEW;
END
$$;

-- The same text for each table of the ring, or for one of them; and between them this.
CREATE OR REPLACE FUNCTION queue._each_of_ring(number int4, part text, between_them text, ring int4 DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT string_agg(replace(replace(part, '@e@', format('queue.e%s_%s', number, i)), '@i@', i::text), between_them
		ORDER BY i) FROM generate_series(coalesce(ring, 0), coalesce(ring, 3)) AS i);
END
$$;

-- A lane's first bucket and its last one, as SQL: those for which "bucket * lanes >> 15 = lane". So they are a condition of the
-- index on the ids, which has the bucket behind them. A negative one, which nobody has but who writes events by hand, is of
-- lane 0: a CHECK, which each push prepares, made one of one event dearer by 7 %.
CREATE OR REPLACE FUNCTION queue._lane_buckets(lanes text, lane text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ARRAY[format('CASE WHEN %1$s > 0 THEN (%1$s * 32768 + %2$s - 1) / %2$s ELSE -32768 END', lane, lanes),
		format('((%s * 32768 + 32768 + %s - 1) / %2$s - 1)', lane, lanes)];
END
$$;

-- A function that gives payloads of another type than those of the stream.
CREATE OR REPLACE FUNCTION queue._check_events(s queue.streams, wanted text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF wanted <> s.payload THEN
		RAISE EXCEPTION USING ERRCODE = '42804',
			MESSAGE = format('payloads of stream "%s" are %s, not %s', s.name, s.payload, wanted),
			DETAIL = format('The stream was created with payload = %s.', s.payload),
			HINT = format('Call the function for %1$s: queue.take_for%2$s, peek_for%2$s.',
				s.payload, CASE WHEN s.payload <> 'jsonb' THEN '_' || s.payload END);
	END IF;
END
$$;

-- The events of a window with an xid from lo on, above both ids; and those of xids that are late, above the last one. In the
-- order of their ids, "most" of each table, or of one alone; as text, with the variables of who reads. The CASE is there for the
-- plan: what it asks is not for the index on xid.
CREATE OR REPLACE FUNCTION queue._window_events(k int4, cols text, further text DEFAULT '', most text DEFAULT 'n', ring int4 DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._each_of_ring(k, format('(SELECT %s FROM @e@ WHERE id > above AND id <= upto%s
		AND CASE WHEN xid >= lo THEN (xid < safe OR pg_visible_in_snapshot(xid, w)) AND pushed_at >= since END
		ORDER BY id LIMIT %s)', cols, further, most), ' UNION ALL ', ring);
END
$$;

-- Of each of the late ones by the index on xid and id, whose order this is: by that on id the log would be walked from its beginning.
CREATE OR REPLACE FUNCTION queue._late_events(k int4, cols text, further text DEFAULT '', most text DEFAULT 'n', ring int4 DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._each_of_ring(k, format('(SELECT mine.* FROM unnest(late) AS slow (of), LATERAL (SELECT %s FROM @e@
		WHERE (xid, id) > (slow.of, last) AND (xid, id) <= (slow.of, upto) AND pushed_at >= since%s
		ORDER BY xid, id LIMIT %s) AS mine ORDER BY mine.id LIMIT %3$s)', cols, further, most), ' UNION ALL ', ring);
END
$$;

-- How the payloads of a stream are kept. A jsonb stays the text that was pushed, which a CHECK reads as jsonb, also where somebody
-- inserts by hand: readers get it as it is. To write it anew was 40 % of what an event costs a reader.
CREATE OR REPLACE FUNCTION queue._kept(kind text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE kind WHEN 'jsonb' THEN 'text' ELSE kind END;
END
$$;

-- Its functions: a push with a static branch for each table, and two readers, which look at all of them. "xid + 0" and the
-- like are the plan: without them the index on xid is taken and the whole window sorted, or the ids are walked to find the
-- least one of some xids.
CREATE OR REPLACE FUNCTION queue._generate_stream(k int4, kind text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET check_function_bodies = off	-- as of queues (generate.sql)
AS $$
DECLARE
	pinned CONSTANT text := 'SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
		SET plan_cache_mode = force_generic_plan';
	cols CONSTANT text := 'id, xid, pushed_at, key, "group", headers, payload';
	mine CONSTANT text := ' AND bucket BETWEEN bucket_from AND bucket_to';
	read_all CONSTANT text := 'RETURN QUERY SELECT * FROM (%s) AS u ORDER BY id LIMIT n;';
	buckets CONSTANT text[] := queue._lane_buckets('lanes', 'lane');
	reader record;
	visible text;
BEGIN
	EXECUTE format('CREATE FUNCTION queue._push_event_%s(at int4, log oid, payloads text[], head jsonb, k text, g text)
		RETURNS SETOF int8 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
		SET plan_cache_mode = force_generic_plan AS %L', k,
		format($f$
DECLARE
	b CONSTANT int2 := hashtextextended(g, 0) & 32767;	-- else the default, which is made of the id
BEGIN
	IF log IS DISTINCT FROM 'queue.e%1$s_0'::regclass::oid THEN
		PERFORM queue._other_era(s.name) FROM queue.streams AS s WHERE s.number = %1$s;
	END IF;
	IF %2$s END IF;
END
$f$, k, queue._each_of_ring(k, $part$at = @i@ AND g IS NULL THEN
		RETURN QUERY INSERT INTO @e@ (key, headers, payload)
			SELECT k, head, p::$part$ || queue._kept(kind) || $part$ FROM unnest(payloads) AS p RETURNING id;
	ELSIF at = @i@ THEN
		RETURN QUERY INSERT INTO @e@ (key, "group", bucket, headers, payload)
			SELECT k, g, b, head, p::$part$ || queue._kept(kind) || $part$ FROM unnest(payloads) AS p RETURNING id;
$part$, ' ELSIF ')));

	EXECUTE format('CREATE FUNCTION queue._floor_%s(lo xid8, hi xid8, late xid8[], OUT floor int8, OUT early int8)
		LANGUAGE plpgsql STABLE %s AS %L', k, pinned, format($f$
BEGIN
	IF lo <= '3' THEN	-- from the beginning: all of it
		SELECT min(m) INTO floor FROM (%1$s) AS u;
	ELSE
		SELECT min(m) INTO floor FROM (%2$s) AS u;
	END IF;
	IF cardinality(late) > 0 THEN
		SELECT min(m) INTO early FROM (%3$s) AS u;
	END IF;
END
$f$, queue._each_of_ring(k, 'SELECT min(id) AS m FROM @e@', ' UNION ALL '),
		queue._each_of_ring(k, 'SELECT min(id + 0) AS m FROM @e@ WHERE xid >= lo AND xid < hi', ' UNION ALL '),
		queue._each_of_ring(k, 'SELECT min(id + 0) AS m FROM @e@ WHERE xid = ANY (late)', ' UNION ALL ')));

	-- First how many they are and which is the last, which is looked at before anything is said; then themselves, which are not
	-- carried about until then.
	FOR reader IN SELECT * FROM (VALUES
			('_cut_%s', 'OUT events int4, OUT ends int8, OUT oldest timestamptz', 'id, pushed_at',
				'SELECT count(*), max(id), min(pushed_at) INTO events, ends, oldest FROM (SELECT id, pushed_at FROM (', ') AS u ORDER BY id LIMIT n) AS cut'),
			('_read_%s', NULL, cols, 'RETURN QUERY SELECT * FROM (', ') AS u ORDER BY id LIMIT n')) AS r (name, result, cols, before, behind) LOOP
		EXECUTE format('CREATE FUNCTION queue.%s(lo xid8, w pg_snapshot, late xid8[], floor int8, last int8, upto int8,
			since timestamptz, n int4%s) %s LANGUAGE plpgsql STABLE %s AS %L', format(reader.name, k), ', ' || reader.result,
			CASE WHEN reader.result IS NULL THEN 'RETURNS SETOF queue._event_' || kind ELSE '' END, pinned,
			format($f$
DECLARE
	safe CONSTANT xid8 := pg_snapshot_xmin(w);
	above CONSTANT int8 := greatest(last, floor - 1);
BEGIN
	since := coalesce(since, '-infinity');
	IF cardinality(late) > 0 THEN
		%3$s %1$s UNION ALL %2$s %4$s;
	ELSE
		%3$s %1$s %4$s;
	END IF;
END
$f$, queue._window_events(k, reader.cols), queue._late_events(k, reader.cols), reader.before, reader.behind));
	END LOOP;
	-- The same of a lane (parallel). It looks at "most" events for its own, then it has looked as far as "reach". Among as many ids
	-- are no more events than that: where its own are there, others' are not looked at.
	FOR reader IN SELECT * FROM (VALUES ('_cut_lane_%s', ', most int4, OUT events int4, OUT ends int8, OUT oldest timestamptz, OUT reach int8', $f$
		SELECT count(*), max(id), min(pushed_at) INTO events, ends, oldest FROM (SELECT id, pushed_at FROM (SELECT * FROM (
			%1$s) AS u ORDER BY id LIMIT most) AS looked WHERE bucket BETWEEN bucket_from AND bucket_to ORDER BY id LIMIT n) AS cut;
		IF events < n AND most IS NOT NULL THEN
			SELECT id INTO reach FROM (%1$s) AS u ORDER BY id OFFSET most - 1 LIMIT 1;
		END IF;$f$, $f$
		upto := above + least(upto - above, most);
		%2$s
		IF events < n AND most IS NOT NULL THEN
			upto := till;
			SELECT id INTO reach FROM (%1$s) AS u ORDER BY id OFFSET most - 1 LIMIT 1;
			upto := coalesce(reach, till);
			%2$s
		END IF;$f$), ('_read_lane_%s', NULL, '%s', '%s')) AS r (name, result, with_late, without) LOOP
		IF reader.result IS NULL THEN
			visible := queue._window_events(k, cols, mine);
			reader.with_late := format(read_all, visible || ' UNION ALL ' || queue._late_events(k, cols, mine));
			reader.without := format(read_all, visible);
		ELSE
			visible := queue._window_events(k, 'id, pushed_at, bucket', most => 'most');
			reader.with_late := format(reader.with_late, visible || ' UNION ALL ' || queue._late_events(k, 'id, pushed_at, bucket', most => 'most'));
			reader.without := format(reader.without, visible, format('SELECT count(*), max(id), min(pushed_at) INTO events, ends, oldest
				FROM (SELECT id, pushed_at FROM (%s) AS u ORDER BY id LIMIT n) AS cut;', queue._window_events(k, 'id, pushed_at', mine)));
		END IF;
		EXECUTE format('CREATE FUNCTION queue.%s(lo xid8, w pg_snapshot, late xid8[], floor int8, last int8, upto int8,
			since timestamptz, n int4, lanes int4, lane int4%s) %s LANGUAGE plpgsql STABLE %s AS %L', format(reader.name, k), reader.result,
			CASE WHEN reader.result IS NULL THEN 'RETURNS SETOF queue._event_' || kind ELSE '' END, pinned,
			format($f$
DECLARE
	safe CONSTANT xid8 := pg_snapshot_xmin(w);
	above CONSTANT int8 := greatest(last, floor - 1);
	till CONSTANT int8 := upto;
	bucket_from CONSTANT int2 := %s;
	bucket_to CONSTANT int2 := %s;
BEGIN
	since := coalesce(since, '-infinity');
	IF cardinality(late) > 0 THEN
		%s
	ELSE
		%s
	END IF;
END
$f$, buckets[1], buckets[2], reader.with_late, reader.without));
	END LOOP;
	PERFORM queue._generate_take_for(k, kind);
	EXECUTE format('GRANT EXECUTE ON FUNCTION queue._push_event_%1$s, queue._floor_%1$s, queue._cut_%1$s, queue._read_%1$s,
		queue._cut_lane_%1$s, queue._read_lane_%1$s, queue._take_for_%1$s TO PUBLIC', k);
END
$$;

-- What each right is. PUSH: INSERT of what a push says; the rest are defaults, which nobody chooses. SUBSCRIBE: SELECT.
CREATE OR REPLACE FUNCTION queue._stream_right_sql(gives bool, k int4, kind text, role text, further text DEFAULT '')
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	verb CONSTANT text := CASE WHEN gives THEN 'GRANT' ELSE 'REVOKE' END;
	tables CONSTANT text := queue._each_of_ring(k, '@e@', ', ');
	whom CONSTANT text := CASE WHEN gives THEN ' TO ' ELSE ' FROM ' END || queue._role(role) || further;
BEGIN
	IF kind = 'push' THEN
		RETURN format('%1$s INSERT (key, "group", bucket, headers, payload), SELECT (id) ON %2$s%3$s; %1$s USAGE ON SEQUENCE queue.%4$I%3$s',
			verb, tables, whom, format('e%s_id', k));
	END IF;
	RETURN format('%s SELECT ON %s%s', verb, tables, whom);
END
$$;

-- What a bulk push goes to, by the names that it has of a queue: a query is an INSERT there, FROM STDIN a COPY. What a push
-- to a stream cannot say is an error of the row that says it.
CREATE OR REPLACE FUNCTION queue._bulk_event() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	NEW.id := queue._push_event(TG_ARGV[0], ARRAY[NEW.payload::text], NEW.headers::text, false, coalesce(NEW.key, NEW.key_error),
		NEW."group", NULL, CASE
			WHEN NEW.key_replace IS NOT NULL OR NEW.key_rerun IS NOT NULL THEN 'ON DUPLICATE'
			WHEN NEW.priority <> 0 THEN 'PRIORITY'
			WHEN NEW.delay IS NOT NULL OR NEW.run_at IS NOT NULL THEN 'DELAY or AT'
			WHEN NEW.expires IS NOT NULL OR NEW.expires_at IS NOT NULL THEN 'EXPIRES'
			WHEN NEW.max_attempts IS NOT NULL THEN 'ATTEMPTS'
			WHEN NEW.batch IS NOT NULL THEN 'BATCH' END);
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_stream_bulk(number int4, name text, payload text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	kind text[];
BEGIN
	FOREACH kind SLICE 1 IN ARRAY '{{q,jsonb},{b,text}}'::text[] LOOP
		EXECUTE format($sql$
			CREATE VIEW queue.%1$I AS SELECT NULL::%4$s AS payload, NULL::int4 AS priority, NULL::interval AS delay,
				NULL::text AS state, NULL::timestamptz AS run_at, NULL::interval AS expires, NULL::timestamptz AS expires_at, NULL::timestamptz AS due,
				NULL::%2$s AS headers, NULL::int4 AS max_attempts, NULL::text AS key, NULL::text AS key_replace,
				NULL::text AS key_rerun, NULL::text AS key_error, NULL::text AS "group", NULL::text AS batch, NULL::bool AS with_old,
				NULL::int8 AS id, NULL::text AS job;
			REVOKE ALL ON queue.%1$I FROM PUBLIC;
			GRANT INSERT, SELECT (id, job) ON queue.%1$I TO PUBLIC;
			CREATE TRIGGER push INSTEAD OF INSERT ON queue.%1$I FOR EACH ROW EXECUTE FUNCTION queue._bulk_event(%3$L);
			COMMENT ON VIEW queue.%1$I IS 'For pushes by INSERT or COPY into a stream.';
		$sql$, kind[1] || '_' || name, kind[2], name, payload);
		EXECUTE (SELECT string_agg(format('COMMENT ON COLUMN queue.%I.%I IS %L', kind[1] || '_' || name, a.attname,
				CASE WHEN a.attname IN ('id', 'job') THEN 'For RETURNING.'
					WHEN a.attname IN ('payload', 'key', 'key_error', 'group', 'headers') THEN 'Of the event.'
					ELSE 'Not of streams.' END), '; ')
			FROM pg_attribute AS a WHERE a.attrelid = to_regclass(format('queue.%I', kind[1] || '_' || name)) AND a.attnum > 0);
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._stream_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue.streams'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	ELSIF TG_OP = 'DELETE' THEN
		EXECUTE format('DROP VIEW IF EXISTS queue.%I, queue.%I', 'q_' || OLD.name, 'b_' || OLD.name);
		DELETE FROM queue.bindings AS b WHERE b.queue = OLD.number;
		DELETE FROM queue.names AS n WHERE n.name = OLD.name;
		DELETE FROM queue.figures WHERE ctid = ANY (ARRAY(	-- as of a queue
			SELECT f.ctid FROM queue.figures AS f WHERE f.queue = OLD.number FOR UPDATE SKIP LOCKED));
		EXECUTE format('DROP TABLE IF EXISTS %s; DROP SEQUENCE IF EXISTS queue.%I;
			DROP FUNCTION IF EXISTS queue._push_event_%s, queue._floor_%3$s, queue._cut_%3$s, queue._read_%3$s,
				queue._cut_lane_%3$s, queue._read_lane_%3$s, queue._take_for_%3$s',
			queue._each_of_ring(OLD.number, '@e@', ', '), format('e%s_id', OLD.number), OLD.number);
		RETURN NULL;
	END IF;
	-- CACHE 1: what is pushed later has a greater id, as far as its transactions do not overlap. Without a group the bucket is made of
	-- the id, which is set just before: its last 8 bits, the other way round, so of any 2, 4, 8 ids behind one another each has
	-- another lane. (A byte is turned round by copies of it, 0x0202020202, of which some bits are taken, 0x010884422010, and added up
	-- by the rest modulo 1023.) It is in the index on the id, where a lane passes over what others have. So that key does not hold
	-- ids apart by itself: the sequence does. Who may write an id by hand, the owner of the table, says the bucket as well: the
	-- default is made of what this session has drawn last.
	EXECUTE format('CREATE SEQUENCE queue.%1$I CACHE 1; REVOKE ALL ON SEQUENCE queue.%1$I FROM PUBLIC',
		format('e%s_id', NEW.number)) || '; ' || queue._each_of_ring(NEW.number, format($t$
		CREATE TABLE @e@ (
			xid xid8 NOT NULL DEFAULT pg_current_xact_id() CHECK (xid >= '%1$s'%4$s),
			id int8 NOT NULL DEFAULT nextval('queue.%2$I'),
			pushed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
			bucket int2 NOT NULL DEFAULT ((currval('queue.%2$I') & 255) * 8623620610 & 1136090292240) %% 1023 << 7,
			key text,
			"group" text,
			headers jsonb,
			payload %3$s NOT NULL,
			PRIMARY KEY (id, bucket)
		);
		CREATE INDEX ON @e@ (xid, id);
		REVOKE ALL ON @e@ FROM PUBLIC;
		COMMENT ON TABLE @e@ IS 'Events of a stream. Read them by QUEUE TAKE ... FOR: an order by id alone skips some.';
		COMMENT ON COLUMN @e@.xid IS 'The transaction that pushed it.';
		COMMENT ON COLUMN @e@.id IS 'Drawn at the push: a later one may be committed earlier.';
		COMMENT ON COLUMN @e@.pushed_at IS 'When it was pushed.';
		COMMENT ON COLUMN @e@.bucket IS 'By which workers share events: a hash of its group, or of its id.';
		COMMENT ON COLUMN @e@.key IS 'KEY of the push.';
		COMMENT ON COLUMN @e@."group" IS 'GROUP of the push.';
		COMMENT ON COLUMN @e@.headers IS 'HEADERS of the push.';
		COMMENT ON COLUMN @e@.payload IS 'What was pushed.'
	$t$, pg_current_xact_id(), format('e%s_id', NEW.number), queue._kept(NEW.payload),
			CASE NEW.payload WHEN 'jsonb' THEN ' AND payload::jsonb IS NOT NULL' END), '; ');
	PERFORM queue._generate_stream(NEW.number, NEW.payload);
	PERFORM queue._generate_stream_bulk(NEW.number, NEW.name, NEW.payload);
	EXECUTE format('UPDATE queue.streams SET log = %L::regclass WHERE number = %s', format('queue.e%s_0', NEW.number), NEW.number);
	IF NEW.owner <> quote_ident(current_user)::regrole THEN
		EXECUTE queue._stream_right_sql(true, NEW.number, 'push', pg_get_userbyid(NEW.owner), ' WITH GRANT OPTION');
		EXECUTE queue._stream_right_sql(true, NEW.number, 'subscribe', pg_get_userbyid(NEW.owner), ' WITH GRANT OPTION');
	END IF;
	RETURN NULL;
END
$$;

DO $qbouncer_streams$
BEGIN
	IF to_regclass('queue._stream_right') IS NULL THEN
		CREATE VIEW queue._stream_right AS SELECT NULL::bool AS gives, NULL::text AS queue, NULL::text AS kind, NULL::text AS role,
			NULL::int4 AS number;	-- whichever is said: of the one that was looked at
		REVOKE ALL ON queue._stream_right FROM PUBLIC;
		GRANT INSERT ON queue._stream_right TO PUBLIC;
		CREATE TRIGGER a_may BEFORE INSERT ON queue.streams FOR EACH ROW EXECUTE FUNCTION queue._stream_may_change();
		CREATE TRIGGER b_number BEFORE INSERT ON queue.streams FOR EACH ROW EXECUTE FUNCTION queue._stream_number();
		CREATE TRIGGER c_does AFTER INSERT OR DELETE ON queue.streams FOR EACH ROW EXECUTE FUNCTION queue._stream_changed();
	END IF;
END
$qbouncer_streams$;

CREATE OR REPLACE FUNCTION queue._stream_option(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF name IN ('kind', 'payload', 'retain', 'retain_max') THEN
		RETURN;
	ELSIF name NOT IN ('parallel', 'on_fail') AND NOT EXISTS (SELECT FROM queue._option_columns() AS o WHERE o = name) THEN
		PERFORM queue._unknown_option(name);
	END IF;
	PERFORM queue._not_of_streams(format('option "%s"', name),
		'Options of a stream: kind, payload, retain, retain_max; those of its readers are said with QUEUE SUBSCRIBE, and QUEUE ALTER stream FOR subscription.');
END
$$;

-- kind = stream, of CREATE.
CREATE OR REPLACE FUNCTION queue._create_stream(q text, if_not_exists bool, names text[], vals text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
	kind text := 'jsonb';
BEGIN
	FOR i IN 1 .. cardinality(names) LOOP
		PERFORM queue._stream_option(names[i]);
		IF names[i] = 'payload' THEN
			kind := lower(btrim(vals[i]));
			IF kind IN ('jsonb', 'text', 'bytea') IS NOT TRUE THEN
				PERFORM queue._bad_option('payload', vals[i], 'Allowed: jsonb, text, bytea.');
			END IF;
		END IF;
	END LOOP;
	IF queue._is_stream(q) THEN
		IF if_not_exists THEN
			RAISE NOTICE USING ERRCODE = '42P07', MESSAGE = format('stream "%s" already exists, skipping', q);
			RETURN;
		END IF;
		RAISE EXCEPTION USING ERRCODE = '42P07', MESSAGE = format('stream "%s" already exists', q),
			HINT = 'Use QUEUE CREATE IF NOT EXISTS ...';
	END IF;
	s := queue._retain_options(s, names, vals);
	INSERT INTO queue.streams (name, payload, retain, retain_max, retain_bytes) VALUES (q, kind, s.retain, s.retain_max, s.retain_bytes)
		ON CONFLICT (name) DO NOTHING;
	IF NOT FOUND AND if_not_exists THEN
		RAISE NOTICE USING ERRCODE = '42P07', MESSAGE = format('stream "%s" already exists, skipping', q);
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42P07', MESSAGE = format('stream "%s" already exists', q),
			HINT = 'Use QUEUE CREATE IF NOT EXISTS ...';
	END IF;
END
$$;

-- false: somebody else has dropped it, just now.
CREATE OR REPLACE FUNCTION queue._drop_stream(q text) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
BEGIN
	PERFORM queue._must_own(s.name, s.owner);
	INSERT INTO queue._gone VALUES ('stream', s.number);
	IF FOUND THEN
		PERFORM queue._tell(s.number, q);
		RETURN true;
	END IF;
	RETURN false;
END
$$;

-- --- rights ---

CREATE OR REPLACE FUNCTION queue._stream_right_may_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(NEW.queue);
BEGIN
	PERFORM queue._must_own(s.name, s.owner);
	NEW.number := s.number;
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION queue._stream_right_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue._stream_right'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	END IF;
	PERFORM FROM queue.streams AS t WHERE t.number = NEW.number FOR NO KEY UPDATE;
	IF NOT FOUND THEN	-- one of its name that was made since may be somebody else's
		PERFORM queue._no_stream(NEW.queue);
	END IF;
	EXECUTE queue._stream_right_sql(NEW.gives, NEW.number, NEW.kind, NEW.role);
	RETURN NEW;
END
$$;

DO $qbouncer_streams$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'queue._stream_right'::regclass) THEN
		CREATE TRIGGER a_may INSTEAD OF INSERT ON queue._stream_right FOR EACH ROW
			EXECUTE FUNCTION queue._stream_right_may_change();
		CREATE TRIGGER b_does INSTEAD OF INSERT ON queue._stream_right FOR EACH ROW
			EXECUTE FUNCTION queue._stream_right_changed();
	END IF;
END
$qbouncer_streams$;

-- GRANT and REVOKE. SUBSCRIBE is SELECT of whole events, of which PUSH has a column too: who keeps it gets it again.
CREATE OR REPLACE FUNCTION queue._stream_rights(gives bool, q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	first CONSTANT text := format('queue.e%s_0', s.number);
	kinds text[];
	word text;
	role text;
BEGIN
	PERFORM queue._must_own(s.name, s.owner);
	FOREACH word IN ARRAY rights LOOP
		IF lower(word) IN ('take', 'await') THEN
			PERFORM queue._not_of_streams(format('right %s', upper(word)), 'Rights on a stream: PUSH, SUBSCRIBE, ALL.');
		ELSIF lower(word) IN ('push', 'subscribe', 'all') IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown right "%s"', left(word, 80)),
				HINT = 'Rights on a stream: PUSH, SUBSCRIBE, ALL.';
		END IF;
		kinds := kinds || CASE lower(word) WHEN 'all' THEN '{subscribe,push}'::text[] ELSE ARRAY[lower(word)] END;
	END LOOP;
	FOREACH role IN ARRAY roles LOOP
		FOREACH word IN ARRAY kinds LOOP
			INSERT INTO queue._stream_right VALUES (gives, q, word, role);
		END LOOP;
		IF NOT gives AND NOT 'push' = ANY (kinds) AND has_column_privilege(
				CASE WHEN lower(role) = 'public' THEN 'public' ELSE role END, first, 'payload', 'INSERT') THEN
			INSERT INTO queue._stream_right VALUES (true, q, 'push', role);
		END IF;
	END LOOP;
END
$$;

-- --- PUSH ---

-- What queue._push and queue._push_keys do when there is no queue of this name.
CREATE OR REPLACE FUNCTION queue._push_event(q text, payloads text[], headers text, notify bool, key text, "group" text,
	stated text, other text DEFAULT NULL) RETURNS SETOF int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
BEGIN
	SELECT * INTO s FROM queue.streams AS t WHERE t.name = q;
	IF NOT FOUND THEN
		PERFORM queue._no_queue(q);
	ELSIF other IS NOT NULL THEN
		PERFORM queue._not_of_streams(other, 'What is said with a push to a stream: HEADERS, KEY, GROUP, RETURNING ID; an event is there at once, for ever and once.');
	ELSIF payloads IS NULL OR array_position(payloads, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the payload must not be null',
			HINT = 'The JSON value null is written ''null''.';
	ELSIF (stated = 'bytea') <> (s.payload = 'bytea') THEN
		PERFORM queue._check_events(s, stated);
	END IF;
	RETURN QUERY EXECUTE format('SELECT queue._push_event_%s($1, $2, $3, $4, $5, $6)', s.number)
		USING s.current, s.log, payloads, queue._check_push(headers, NULL, NULL), key, "group";
	IF notify THEN
		PERFORM queue._tell(s.number, q);
	END IF;
END
$$;
