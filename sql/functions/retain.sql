-- Retention of streams: a ring of tables, of which one is written. What is no longer to be kept is emptied whole, table by
-- table, so that no event is ever deleted by itself; and nobody is waited for.
--
-- Each table may be written or read by somebody whose transaction has not ended, a prepared one too: he has a lock on it,
-- and the emptying is refused. Behind the lock each position and delivery is asked whether it has all that is there.
-- Who writes a table that is not the current one any more, as his snapshot is an old one, is no danger: readers look at
-- all tables. Who makes a subscription, or moves one, holds a lock on all of them from before his position is read.

-- retain, retain_max: an interval; or, of retain_max, a size.
CREATE OR REPLACE FUNCTION queue._retain_options(s queue.streams, names text[], vals text[], resets text[] DEFAULT '{}')
RETURNS queue.streams
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	hint CONSTANT text := 'Allowed: an interval such as ''30 days'', or a size such as ''10 GB''.';
	value text;
BEGIN
	FOR i IN 1 .. coalesce(cardinality(names), 0) LOOP
		value := btrim(vals[i]);
		IF names[i] = 'retain' THEN
			s.retain := queue._interval_option('retain', vals[i], '0', 'Allowed: an interval from zero on, such as ''7 days''; '
				'''0'': until each subscription has it. For ever: RESET (retain).');
		ELSIF names[i] = 'retain_max' AND value ~* '^[0-9]{1,9} *[kmgt]b$' THEN
			s.retain_bytes := pg_size_bytes(value);
			s.retain_max := NULL;
			IF s.retain_bytes < 1048576 THEN
				PERFORM queue._bad_option('retain_max', vals[i], 'A size is at least ''1 MB''.');
			END IF;
		ELSIF names[i] = 'retain_max' THEN
			s.retain_max := queue._interval_option('retain_max', vals[i], '1 s', hint);
			s.retain_bytes := NULL;
		END IF;
	END LOOP;
	s.retain := CASE WHEN 'retain' = ANY (resets) THEN NULL ELSE s.retain END;
	IF 'retain_max' = ANY (resets) THEN
		s.retain_max := NULL;
		s.retain_bytes := NULL;
	END IF;
	IF s.retain_max < s.retain THEN
		PERFORM queue._bad_option('retain_max', s.retain_max::text, 'It is not shorter than retain.');
	END IF;
	RETURN s;
END
$$;

-- What happens to a ring is said to a view, as with queue._gone: only its owner may, and it is done with the rights of the
-- schema's. did: what there was to do.
CREATE OR REPLACE FUNCTION queue._ring_may_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
BEGIN
	SELECT * INTO s FROM queue.streams AS t WHERE t.number = NEW.number;
	IF NOT FOUND THEN
		RETURN NULL;	-- dropped just now
	ELSIF NEW.what = 'hold' AND has_table_privilege(to_regclass(format('queue.e%s_0', s.number)), 'SELECT') THEN
		RETURN NEW;
	END IF;
	PERFORM queue._must_own(s.name, s.owner);
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION queue._ring_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue._ring'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	ELSIF NEW.what = 'options' THEN
		UPDATE queue.streams AS s SET retain = NEW.retain, retain_max = NEW.retain_max, retain_bytes = NEW.retain_bytes
			WHERE s.number = NEW.number;
	ELSIF NEW.what = 'hold' THEN
		PERFORM FROM queue.streams AS s WHERE s.number = NEW.number FOR KEY SHARE;
		NEW.did := CASE WHEN FOUND THEN 'held' END;
	ELSIF NEW.what = 'turn' THEN
		SELECT t.did, t.lost INTO NEW.did, NEW.lost FROM queue._turn(NEW.number) AS t;
	END IF;
	RETURN NEW;
END
$$;

DO $qbouncer_streams$
BEGIN
	IF to_regclass('queue._ring') IS NULL THEN
		CREATE VIEW queue._ring AS SELECT NULL::text AS what, NULL::int4 AS number, NULL::interval AS retain,
			NULL::interval AS retain_max, NULL::int8 AS retain_bytes, NULL::text AS did, NULL::text AS lost;
		REVOKE ALL ON queue._ring FROM PUBLIC;
		GRANT SELECT, INSERT ON queue._ring TO PUBLIC;
		CREATE TRIGGER a_may INSTEAD OF INSERT ON queue._ring FOR EACH ROW EXECUTE FUNCTION queue._ring_may_change();
		CREATE TRIGGER b_does INSTEAD OF INSERT ON queue._ring FOR EACH ROW EXECUTE FUNCTION queue._ring_changes();
	END IF;
END
$qbouncer_streams$;

-- Is all that is in this table, up to this xid and none of these, visible in s1? In a table that nobody writes.
CREATE OR REPLACE FUNCTION queue._has_seen(log regclass, s1 pg_snapshot) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	seen bool;
BEGIN
	EXECUTE format('SELECT coalesce((SELECT xid FROM %1$s ORDER BY xid DESC LIMIT 1) < pg_snapshot_xmax($1), true)
		AND NOT EXISTS (SELECT FROM pg_snapshot_xip($1) AS x WHERE EXISTS (SELECT FROM %1$s AS e WHERE e.xid = x))', log)
		INTO seen USING s1;
	RETURN seen;
END
$$;

-- Who needs what is in this table: the numbers of subscriptions. Quickly, at ends of indexes; so one that has begun to
-- read there may need it a bit longer than it has to. exactly: of one whose events are about to be removed that is not
-- said without need.
CREATE OR REPLACE FUNCTION queue._needed_by(log regclass, k int4, exactly bool) RETURNS int4[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	u queue.subscriptions;
	p queue.positions;
	d queue.deliveries;
	needs bool;
	ids record;
	result int4[] := '{}';
BEGIN
	FOR u IN SELECT * FROM queue.subscriptions AS t WHERE t.stream = k AND t.lost_at IS NULL LOOP
		SELECT * INTO p FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
		CONTINUE WHEN NOT FOUND;	-- TAKE says that it has none
		needs := NOT queue._has_seen(log, p.s1);
		IF needs AND exactly THEN
			EXECUTE format('SELECT max(id) AS last, (SELECT e.pushed_at FROM %1$s AS e ORDER BY id DESC LIMIT 1) AS at FROM %1$s', log)
				INTO ids;
			needs := coalesce(ids.last >= u.from_id, true) AND coalesce(ids.at >= u.from_time, true)
				AND NOT (p.s2 IS NOT NULL AND ids.last <= p.last AND queue._has_seen(log, p.s2))
				AND (u.lanes = 1 OR queue._has_of_lane(log, u, p));
		END IF;
		FOR d IN SELECT * FROM queue.deliveries WHERE sub = u.number AND s1 IS NOT NULL LOOP
			EXIT WHEN needs;
			needs := NOT queue._has_seen(log, d.s1);
			IF needs AND exactly THEN
				EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id > $1 AND id <= $2 AND bucket BETWEEN %s AND %s)', VARIADIC
						log::text || queue._lane_buckets('$3', '$4')) INTO needs USING d.last, d.upto, u.lanes, u.lane;
			END IF;
		END LOOP;
		result := CASE WHEN needs THEN result || u.number ELSE result END;
	END LOOP;
	RETURN result;
END
$$;

-- Has it something of this lane that is not seen? Beyond so many that are others' it is said to have.
CREATE OR REPLACE FUNCTION queue._has_of_lane(log regclass, u queue.subscriptions, p queue.positions) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	most CONSTANT int4 := 100000;
	has bool;
BEGIN
	EXECUTE format('SELECT count(*) = $5 OR bool_or(bucket BETWEEN %2$s AND %3$s AND NOT pg_visible_in_snapshot(xid, $1)
				AND NOT (id <= $2 AND $6 IS NOT NULL AND pg_visible_in_snapshot(xid, $6)))
			FROM (SELECT id, xid, bucket FROM %1$s ORDER BY id DESC LIMIT $5) AS e', VARIADIC log::text || queue._lane_buckets('$3', '$4'))
		INTO has USING p.s1, p.last, u.lanes, u.lane, most, p.s2;
	RETURN has;
END
$$;

-- Empties one table, if that is due; by force: whoever needs it. Refused (55P03) while anybody is at it.
CREATE OR REPLACE FUNCTION queue._empty(s queue.streams, log regclass, force bool, OUT did text, OUT lost text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	who int4[];
	u queue.subscriptions;
	newest record;
BEGIN
	IF NOT force AND cardinality(queue._needed_by(log, s.number, false)) > 0 THEN
		RETURN;		-- no lock for nothing
	END IF;
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', log);
	EXECUTE format('SELECT id, pushed_at, (SELECT xid FROM %1$s ORDER BY xid DESC LIMIT 1) AS xid FROM %1$s ORDER BY id DESC LIMIT 1', log)
		INTO newest;
	IF newest.pushed_at + least(coalesce(s.retain, '8000 years'), CASE WHEN force THEN interval '0' END) > clock_timestamp() THEN
		RETURN;		-- somebody has written there meanwhile
	END IF;
	who := queue._needed_by(log, s.number, force);
	IF NOT force AND cardinality(who) > 0 THEN
		RETURN;
	END IF;
	-- one lane has lost something: its subscription has
	FOR u IN SELECT * FROM queue.subscriptions AS t WHERE t.stream = s.number
			AND (t.name, t.owner) IN (SELECT o.name, o.owner FROM queue.subscriptions AS o WHERE o.number = ANY (who)) ORDER BY t.number FOR NO KEY UPDATE NOWAIT LOOP
		UPDATE queue.subscriptions SET lost_at = clock_timestamp(), lost_id = newest.id WHERE number = u.number;
		CONTINUE WHEN u.lane > 0 OR u.ends IS NOT NULL;
		lost := concat_ws(', ', lost, s.name || '/' || u.name);
		RAISE WARNING USING ERRCODE = 'QB005', MESSAGE = format('subscription "%s" of stream "%s" loses events by retain_max',
				u.name, s.name),
			DETAIL = format('Events up to id %s are removed.', newest.id),
			HINT = format('QUEUE SEEK %I ON %I TO BEGINNING;', u.name, s.name);
	END LOOP;
	EXECUTE format('TRUNCATE %s', log);
	IF newest.id IS NOT NULL THEN
		UPDATE queue.streams AS t SET gone_id = greatest(t.gone_id, newest.id), gone_at = greatest(t.gone_at, newest.pushed_at),
				gone_xid = greatest(t.gone_xid, newest.xid)
			WHERE t.number = s.number;
	END IF;
	did := 'emptied';
END
$$;

CREATE OR REPLACE FUNCTION queue._ring_bytes(k int4) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT sum(pg_total_relation_size(to_regclass(format('queue.e%s_%s', k, i)))) FROM generate_series(0, 3) AS i);
END
$$;

-- One turn of the ring, if it is time: a table emptied, or another one written from now on. A table is written for
-- half of retain, and not for less than a minute; a small one for an hour, as each turn is a row that pushes read past while
-- a snapshot is held.
CREATE OR REPLACE FUNCTION queue._turn(k int4, OUT did text, OUT lost text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
	s queue.streams;
	t record;
	tables int4[];
	i int4;
	free int4;
	size int8;
	over bool;
	moment CONSTANT timestamptz := clock_timestamp();
	span interval;
	refused bool := false;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RETURN;		-- who needs a table has to be looked at behind its lock
	END IF;
	SELECT * INTO s FROM queue.streams AS x WHERE x.number = k FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND OR coalesce(s.retain, s.retain_max) IS NULL AND s.retain_bytes IS NULL OR NOT queue._is_this_era(s) THEN
		RETURN;
	END IF;
	span := greatest(least(s.retain / 2, s.retain_max / 3), interval '1 min');
	size := queue._ring_bytes(k);
	-- the oldest first, and last the one that is written; all read before: what a query has open cannot be emptied
	EXECUTE format('SELECT array_agg(i ORDER BY i = $1, oldest NULLS FIRST, (i - $1 + 4) %% 4) FROM (%s) AS u',
		queue._each_of_ring(k, 'SELECT @i@ AS i, (SELECT e.pushed_at FROM @e@ AS e ORDER BY id LIMIT 1) AS oldest',
			' UNION ALL ')) INTO tables USING s.current;
	FOREACH i IN ARRAY tables LOOP
		EXECUTE format('SELECT ''%1$s''::regclass AS log, pg_relation_size(''%1$s'') AS has, pg_total_relation_size(''%1$s'') AS bytes,
			(SELECT e.pushed_at FROM %1$s AS e ORDER BY id LIMIT 1) AS oldest,
			(SELECT e.pushed_at FROM %1$s AS e ORDER BY id DESC LIMIT 1) AS newest', format('queue.e%s_%s', k, i)) INTO t;
		IF i = s.current THEN
			IF free IS NOT NULL AND (moment - t.oldest >= span AND (t.bytes >= 1048576 OR moment - t.oldest >= interval '1 hour')
					OR t.bytes >= s.retain_bytes / 4 OR t.oldest IS NULL AND t.bytes > 1048576) THEN
				UPDATE queue.streams AS x SET current = free WHERE x.number = k;
				did := 'moved';
				RETURN;
			END IF;
			EXIT;
		ELSIF t.has = 0 THEN
			free := coalesce(free, i);
			CONTINUE;
		END IF;
		over := coalesce(t.newest + s.retain_max <= moment, false) OR coalesce(size > s.retain_bytes AND NOT refused, false);
		IF over OR t.oldest IS NULL OR t.newest + s.retain <= moment THEN
			BEGIN
				SELECT e.did, e.lost INTO did, lost FROM queue._empty(s, t.log, over) AS e;
			EXCEPTION WHEN lock_not_available THEN
				refused := true;
			END;
			IF did IS NOT NULL THEN
				RETURN;
			END IF;
		END IF;
	END LOOP;
	did := CASE WHEN refused THEN 'refused' END;
END
$$;

-- For maintenance: a turn of the ring of one stream that has something to do, of those behind "after". again: look once
-- more soon.
CREATE OR REPLACE FUNCTION queue._turn_rings(all_of bool, OUT again bool, OUT refused bool, OUT lost text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
	one text;
BEGIN
	again := false;
	refused := false;
	FOR s IN SELECT * FROM queue.streams AS t WHERE (t.retain IS NOT NULL OR t.retain_max IS NOT NULL OR t.retain_bytes IS NOT NULL)
			AND CASE WHEN t.owner = quote_ident(current_user)::regrole THEN true
				WHEN all_of OR NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user)
					THEN pg_has_role(t.owner, 'USAGE') END ORDER BY t.number LOOP
		INSERT INTO queue._ring (what, number) VALUES ('turn', s.number) RETURNING did, _ring.lost INTO one, lost;
		refused := refused OR one = 'refused' IS TRUE;
		IF one IN ('emptied', 'moved') THEN
			again := true;		-- its locks end with this transaction
			RETURN;
		END IF;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._alter_stream(q text, names text[], vals text[], resets text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams := queue._find_stream(q);
BEGIN
	PERFORM queue._must_own(s.name, s.owner);
	PERFORM queue._stream_option(o) FROM unnest(names || resets) AS o;
	IF 'kind' = ANY (names || resets) OR 'payload' = ANY (names || resets) THEN
		PERFORM queue._not_of_streams('to change kind or payload', 'Of a stream these are changed: retain, retain_max.');
	END IF;
	s := queue._retain_options(s, names, vals, resets);
	INSERT INTO queue._ring VALUES ('options', s.number, s.retain, s.retain_max, s.retain_bytes);
END
$$;

-- Nobody drops it, or empties a table of it, until this transaction ends; for who reads a position behind this. Its row first,
-- then subscriptions, then the tables: so DROP takes them, too.
CREATE OR REPLACE FUNCTION queue._hold_ring(s queue.streams) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	held text;
BEGIN
	-- who may not is told so later
	IF has_table_privilege(to_regclass(format('queue.e%s_0', s.number)), 'SELECT') IS NOT FALSE THEN
		INSERT INTO queue._ring (what, number) VALUES ('hold', s.number) RETURNING did INTO held;
		IF held IS NULL THEN	-- it was dropped just now
			PERFORM queue._no_stream(s.name);
		END IF;
		EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', queue._each_of_ring(s.number, '@e@', ', '));
	END IF;
END
$$;

-- A place of which something may have been removed: is all of that seen in a position, or is it before an id or a time?
CREATE OR REPLACE FUNCTION queue._tell_gone(number int4, from_id int8, from_time timestamptz, s1 pg_snapshot, s2 pg_snapshot,
	last int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
	w pg_snapshot;
BEGIN
	SELECT * INTO s FROM queue.streams AS t WHERE t.number = $1;
	w := CASE WHEN s.gone_id <= last AND s2 IS NOT NULL THEN s2 ELSE s1 END;
	IF from_id <= s.gone_id OR from_time <= s.gone_at
			OR pg_snapshot_xmax(w) > '3' AND (s.gone_xid >= pg_snapshot_xmax(w) OR s.gone_xid >= pg_snapshot_xmin(w)
				AND EXISTS (SELECT FROM pg_snapshot_xip(w) AS x WHERE x <= s.gone_xid)) THEN
		RAISE WARNING USING ERRCODE = 'QB005', MESSAGE = format('events of stream "%s" from there on have been removed', s.name),
			DETAIL = format('Removed were events up to id %s, pushed up to %s.', s.gone_id, s.gone_at),
			HINT = 'It begins with the oldest that is kept.';
	END IF;
END
$$;

-- How full it is. events: exactly up to "most", beyond as their ids tell, some of which were rolled back. rate: pushed in
-- a second, in the last minute. NULLs: it is just being dropped.
CREATE OR REPLACE FUNCTION queue._stream_state(k int4, most int4, OUT events int8, OUT oldest timestamptz, OUT newest timestamptz,
	OUT partitions int4, OUT bytes int8, OUT rate float8, OUT last_id int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	of_ids int8;
	pushed record;
BEGIN
	EXECUTE format('SELECT min(oldest), max(newest), sum(last - first + 1), max(last) FROM (%s) AS u', queue._each_of_ring(k,
			'SELECT min(id) AS first, max(id) AS last, (SELECT pushed_at FROM @e@ ORDER BY id LIMIT 1) AS oldest,
				(SELECT pushed_at FROM @e@ ORDER BY id DESC LIMIT 1) AS newest FROM @e@', ' UNION ALL '))
		INTO oldest, newest, of_ids, last_id;
	EXECUTE format('SELECT count(*) FROM (SELECT FROM (%s) AS u LIMIT $1) AS v', queue._each_of_ring(k, 'SELECT FROM @e@', ' UNION ALL '))
		INTO events USING most;
	events := CASE WHEN events < most THEN events ELSE greatest(of_ids, events) END;
	EXECUTE format('SELECT count(*) AS n, min(pushed_at) AS first FROM (%s) AS u WHERE pushed_at > $1', queue._each_of_ring(k,
			'(SELECT pushed_at FROM @e@ ORDER BY id DESC LIMIT
				CASE WHEN (SELECT pushed_at FROM @e@ ORDER BY id DESC LIMIT 1) > $1 THEN $2 ELSE 0 END)', ' UNION ALL '))
		INTO pushed USING moment - interval '1 min', least(most, 10000);
	rate := pushed.n / CASE WHEN pushed.n < least(most, 10000) THEN 60
		ELSE greatest(extract(epoch FROM moment - pushed.first)::float8, 0.001) END;
	SELECT sum(pg_total_relation_size(t)), count(*) FILTER (WHERE pg_relation_size(t) > 0) INTO bytes, partitions
		FROM (SELECT to_regclass(format('queue.e%s_%s', k, i)) AS t FROM generate_series(0, 3) AS i) AS u;
END
$$;

-- Of one stream, or of those that the role may read.
CREATE OR REPLACE FUNCTION queue._stats_of_streams(q text)
RETURNS TABLE (queue text, ready int8, later int8, leased int8, dead int8,
	oldest_ready timestamptz, next_due timestamptz, blocked int8, done int8, number int4, new int8, retry int8,
	total int8, newest timestamptz, bytes int8, kind text, oldest timestamptz, partitions int4, pushed_rate float8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s queue.streams;
BEGIN
	FOR s IN SELECT * FROM queue.streams AS t WHERE t.name = q
			OR q IS NULL AND has_table_privilege(to_regclass(format('queue.e%s_0', t.number)), 'SELECT') ORDER BY t.name LOOP
		BEGIN	-- of all streams: see _visited
			SELECT w.events, w.newest, w.bytes, w.oldest, w.partitions, w.rate INTO total, newest, bytes, oldest, partitions, pushed_rate
				FROM queue._stream_state(s.number, 100000) AS w;
			PERFORM queue._visited() WHERE q IS NULL;
		EXCEPTION WHEN SQLSTATE 'QBSEE' THEN
			NULL;
		WHEN undefined_table THEN	-- dropped meanwhile
			CONTINUE;
		END;
		queue := s.name;
		number := s.number;
		kind := 'stream';
		RETURN NEXT;
	END LOOP;
END
$$;
