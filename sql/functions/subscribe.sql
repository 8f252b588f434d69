-- Subscriptions of streams: SUBSCRIBE, UNSUBSCRIBE, SEEK, SUBSCRIPTIONS. A subscription is its owner's, takers are members
-- of him. Its position is a snapshot: what is visible in it has been seen.

-- Now, as a position. The caller's own transaction is not in its snapshot's list of those that are open, though it is:
-- what it pushes later would count as seen.
CREATE OR REPLACE FUNCTION queue._position() RETURNS pg_snapshot
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	own CONSTANT xid8 := pg_current_xact_id();
	w CONSTANT pg_snapshot := pg_current_snapshot();
BEGIN
	-- on a standby, or without an xid of its own: a snapshot has no list there that would be of use
	IF own >= pg_snapshot_xmax(w) OR NOT pg_visible_in_snapshot(own, w) THEN
		RETURN w;
	END IF;
	RETURN (least(pg_snapshot_xmin(w), own) || ':' || pg_snapshot_xmax(w) || ':' || (SELECT string_agg(x::text, ',' ORDER BY x)
		FROM (SELECT x FROM pg_snapshot_xip(w) AS x UNION SELECT own) AS u (x)))::pg_snapshot;
END
$$;

-- The subscription: of one with several lanes the first.
CREATE OR REPLACE FUNCTION queue._find_subscription(s queue.streams, sub text) RETURNS queue.subscriptions
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	u queue.subscriptions;
BEGIN
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.stream = s.number AND t.name = sub AND t.lane = 0 AND t.ends IS NULL;
	IF sub IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the name of the subscription must not be null',
			HINT = format('QUEUE SUBSCRIPTIONS %I; shows those that there are.', s.name);
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42704',
			MESSAGE = format('subscription "%s" of stream "%s" does not exist', sub, s.name),
			HINT = format('QUEUE SUBSCRIPTIONS %I; shows those that there are; QUEUE SUBSCRIBE %I TO %1$I; makes it.', s.name, sub);
	END IF;
	RETURN u;
END
$$;

CREATE OR REPLACE FUNCTION queue._must_read(u queue.subscriptions) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT pg_has_role(u.owner, 'USAGE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('permission denied for subscription "%s"', u.name),
			DETAIL = format('It belongs to role "%s".', pg_get_userbyid(u.owner)),
			HINT = format('Its takers are members of that role: GRANT %I TO ...;', pg_get_userbyid(u.owner));
	END IF;
END
$$;

-- Where a subscription is, as SUBSCRIPTIONS shows it and SEEK reads it: what it has seen; of the window under way up to
-- which id; and what is never its own.
CREATE OR REPLACE FUNCTION queue._place(p queue.positions, from_id int8, from_time timestamptz) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN concat_ws(' ', p.s1, p.s2, CASE WHEN p.s2 IS NOT NULL THEN p.last END,
		'from ' || coalesce(from_id::text, to_json(from_time) #>> '{}'));
END
$$;

-- Where it begins: beginning, now, an id, a time, or a position.
CREATE OR REPLACE FUNCTION queue._start(start text, OUT s1 pg_snapshot, OUT from_id int8, OUT from_time timestamptz,
	OUT s2 pg_snapshot, OUT last int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	word text := lower(btrim(start));
	parts text[];
BEGIN
	IF word = 'now' THEN
		s1 := queue._position();
		last := 0;
		RETURN;
	END IF;
	s1 := '3:3:';	-- nothing is seen; what is older than this row says is not its own
	BEGIN
		parts := regexp_match(word, '^([0-9]+:[0-9]+:[0-9,]*)( ([0-9]+:[0-9]+:[0-9,]*) ([0-9]{1,18}))?( from (.*))?$');
		IF parts IS NOT NULL THEN
			s1 := parts[1];
			s2 := parts[3];
			last := parts[4];
			IF greatest(pg_snapshot_xmax(s1), pg_snapshot_xmax(s2)) > pg_snapshot_xmax(pg_current_snapshot())
					OR pg_snapshot_xmax(s2) < pg_snapshot_xmax(s1) THEN
				RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('this is no position of this database: %L', left(start, 80)),
					DETAIL = 'It speaks of transactions that have not been.',
					HINT = 'A position is good in the database where QUEUE SUBSCRIPTIONS has shown it, and its physical copies.';
			END IF;
			word := parts[6];
		END IF;
		IF word ~ '^[0-9]{1,18}$' THEN
			from_id := word::int8;
		ELSIF word <> 'beginning' OR parts IS NOT NULL AND word IS NOT NULL THEN
			from_time := word::timestamptz;
		END IF;
	EXCEPTION WHEN data_exception THEN
		IF SQLERRM LIKE 'this is no position%' THEN
			RAISE;
		END IF;
		from_time := 'infinity';
	END;
	last := coalesce(last, from_id - 1, 0);
	IF NOT isfinite(from_time) OR start IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid place in a stream: %s',
			coalesce(quote_literal(left(start, 80)), 'NULL')),
			HINT = 'Allowed: BEGINNING, NOW, the id of an event, a time such as ''2026-01-31 12:00'', or a position of QUEUE SUBSCRIPTIONS.';
	END IF;
END
$$;

-- A position moves there, behind the lock of its subscription. window_read: its window was read to the end. The row gets a
-- greater seq, so who looks for the newest finds it first, however many older ones a held snapshot keeps.
CREATE OR REPLACE FUNCTION queue._move(p queue.positions, u queue.subscriptions, got int8, window_read bool, rated float8 DEFAULT NULL)
RETURNS queue.positions
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
	IF window_read THEN
		p.s1 := p.s2;
		p.s2 := NULL;
		p.floor := 0;
		p.early := false;
		p.last := coalesce(u.from_id - 1, 0);
		p.top := NULL;
		p.rings := NULL;
	END IF;
	UPDATE queue.positions AS t SET seq = t.seq + 1, s1 = p.s1, s2 = p.s2, floor = p.floor, early = p.early, last = p.last,
			top = p.top, rings = p.rings, delivery = p.delivery, at = clock_timestamp(), delivered = t.delivered + got,
			rate = t.rate * queue._fades(t.at) + coalesce(rated, got / 60.0)
		WHERE t.sub = p.sub AND t.seq = p.seq RETURNING t.* INTO p;
	RETURN p;
END
$$;

-- What a position says of its window, if that has begun.
CREATE OR REPLACE FUNCTION queue._window(k int4, s1 pg_snapshot, s2 pg_snapshot, OUT floor int8, OUT early bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	least_early int8;
BEGIN
	floor := 0;
	early := false;
	IF s2 IS NOT NULL THEN
		EXECUTE format('SELECT floor, early FROM queue._floor_%s($1, $2, $3)', k) INTO floor, least_early USING pg_snapshot_xmax(s1),
			pg_snapshot_xmax(s2), ARRAY(SELECT x FROM pg_snapshot_xip(s1) AS x WHERE pg_visible_in_snapshot(x, s2));
		floor := coalesce(floor, 9223372036854775807);
		early := least_early IS NOT NULL;
	END IF;
END
$$;

-- Of this server, which a session does not outlive: so it is immutable, and the file that has it is not read for each take.
CREATE OR REPLACE FUNCTION queue._system() RETURNS int8
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT c.system_identifier FROM pg_control_system() AS c);
END
$$;

CREATE OR REPLACE FUNCTION queue._is_this_era(s queue.streams) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN s.log IS NOT DISTINCT FROM to_regclass(format('queue.e%s_0', s.number))::oid AND s.system IS NOT DISTINCT FROM queue._system();
END
$$;

CREATE OR REPLACE FUNCTION queue._same_era(s queue.streams) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT queue._is_this_era(s) THEN
		PERFORM queue._other_era(s.name);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._subscription_number() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue.subscriptions'::regclass OR NEW.number IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '428C9', MESSAGE = 'the number of a subscription cannot be chosen';
	END IF;
	NEW.number := nextval(pg_get_serial_sequence('queue.queues', 'number'));
	RETURN NEW;
END
$$;

-- The right is to read the stream: also for those who write the row by hand.
CREATE OR REPLACE FUNCTION queue._may_subscribe() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
BEGIN
	SELECT * INTO s FROM queue.streams AS t WHERE t.number = NEW.stream;
	IF NOT has_table_privilege(format('queue.e%s_0', s.number), 'SELECT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for stream "%s"', s.name),
			HINT = format('QUEUE GRANT SUBSCRIBE ON %I TO %I;', s.name, current_user);
	ELSIF NEW.ends IS NOT NULL OR NEW.lane > 0 AND NOT EXISTS (SELECT FROM queue.subscriptions AS t WHERE t.stream = NEW.stream
			AND t.name = NEW.name AND t.owner = NEW.owner AND t.lanes = NEW.lanes AND t.lane = 0 AND t.ends IS NULL) THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('"%s" is not a subscription that gets further lanes', NEW.name);
	END IF;
	RETURN NEW;
END
$$;

DO $qbouncer_subscriptions$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'queue.subscriptions'::regclass AND t.tgname = 'b_number') THEN
		CREATE TRIGGER a_may BEFORE INSERT ON queue.subscriptions FOR EACH ROW EXECUTE FUNCTION queue._may_subscribe();
		CREATE TRIGGER b_number BEFORE INSERT ON queue.subscriptions FOR EACH ROW
			EXECUTE FUNCTION queue._subscription_number();
	END IF;
END
$qbouncer_subscriptions$;

-- What goes away is said to a view: who had DELETE on the tables, and all would need it, could also LOCK them, and stop
-- every push and take, and all schedules. n: one position or delivery; NULL: all of them. name: a schedule.
CREATE OR REPLACE FUNCTION queue._may_go() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
	u queue.subscriptions;
BEGIN
	IF NEW.what = 'schedule' THEN
		PERFORM queue._find_schedule(NEW.name);	-- by the policy of the table: his own; locked, it stays so
		RETURN NEW;
	ELSIF NEW.what = 'stream' THEN
		SELECT * INTO s FROM queue.streams AS t WHERE t.number = NEW.number;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
		PERFORM queue._must_own(s.name, s.owner);
		RETURN NEW;
	END IF;
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = NEW.number;
	IF NOT FOUND THEN
		RETURN NULL;	-- nor is one looked for again, which somebody may have made by then
	ELSIF NEW.what <> 'subscription' OR NOT pg_has_role((SELECT t.owner FROM queue.streams AS t WHERE t.number = u.stream), 'USAGE') THEN
		PERFORM queue._must_read(u);
	END IF;
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION queue._goes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	groups text[];	-- of events that were waited for
	gone queue.subscriptions;
BEGIN
	IF TG_RELID <> 'queue._gone'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	ELSIF NEW.what = 'positions' AND NEW.n IS NOT NULL THEN
		DELETE FROM queue.positions AS t WHERE t.sub = NEW.number AND t.seq = NEW.n;
	ELSIF NEW.what = 'positions' THEN
		DELETE FROM queue.positions AS t WHERE t.sub = NEW.number;
	ELSIF NEW.what = 'deliveries' AND NEW.n IS NOT NULL THEN
		DELETE FROM queue.deliveries AS t WHERE t.sub = NEW.number AND t.id = NEW.n;
	ELSIF NEW.what = 'deliveries' THEN
		DELETE FROM queue.deliveries AS t WHERE t.sub = NEW.number;
	ELSIF NEW.what = 'retry' THEN	-- not one that is out
		-- a take that still sees it would copy what is behind it in its group, and nobody would tell that when to come
		PERFORM FROM queue.subscriptions AS t WHERE t.number = NEW.number AND t.blocks FOR NO KEY UPDATE;
		WITH gone AS (DELETE FROM queue.retries AS t WHERE t.sub = NEW.number AND t.id = NEW.n AND t.delivery IS NULL RETURNING t.*)
			SELECT array_agg(DISTINCT g."group") INTO groups FROM gone AS g WHERE g.blocks;
	ELSIF NEW.what = 'retries' THEN
		WITH gone AS (DELETE FROM queue.retries AS t WHERE t.sub = NEW.number AND t.delivery = NEW.n RETURNING t.*)
			SELECT array_agg(DISTINCT g."group") INTO groups FROM gone AS g WHERE g.blocks;
	ELSIF NEW.what = 'subscription' THEN
		DELETE FROM queue.subscriptions AS t WHERE t.number = NEW.number RETURNING t.* INTO gone;
		DELETE FROM queue.figures WHERE gone.lane = 0 AND gone.ends IS NULL AND ctid = ANY (ARRAY(	-- as of a queue
			SELECT f.ctid FROM queue.figures AS f WHERE f.queue = gone.stream AND f.subscription = gone.name FOR UPDATE SKIP LOCKED));
	ELSIF NEW.what = 'stream' THEN	-- its row first, then what it deletes, in the order of who locks several
		PERFORM FROM queue.streams AS t WHERE t.number = NEW.number FOR UPDATE;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
		PERFORM FROM queue.subscriptions AS t WHERE t.stream = NEW.number ORDER BY t.number FOR UPDATE;
		DELETE FROM queue.streams AS t WHERE t.number = NEW.number;
	ELSIF NEW.what = 'schedule' THEN
		DELETE FROM queue.schedules AS t WHERE t.name = NEW.name;
	END IF;
	IF groups IS NOT NULL THEN	-- who is the first of them now comes
		UPDATE queue.retries AS t SET due_at = clock_timestamp()
			FROM unnest(groups) AS g (name), LATERAL (SELECT o.id FROM queue.retries AS o WHERE o.sub = NEW.number AND o.blocks
				AND o."group" = g.name ORDER BY o.id LIMIT 1) AS first
			WHERE t.sub = NEW.number AND t.id = first.id AND t.due_at = 'infinity' AND NOT t.dead AND t.delivery IS NULL;
	END IF;
	RETURN NEW;
END
$$;

DO $qbouncer_subscriptions$
BEGIN
	IF to_regclass('queue._gone') IS NULL THEN
		CREATE VIEW queue._gone AS SELECT NULL::text AS what, NULL::int4 AS number, NULL::int8 AS n, NULL::text AS name;
		REVOKE ALL ON queue._gone FROM PUBLIC;
		GRANT INSERT ON queue._gone TO PUBLIC;
		CREATE TRIGGER a_may INSTEAD OF INSERT ON queue._gone FOR EACH ROW EXECUTE FUNCTION queue._may_go();
		CREATE TRIGGER b_does INSTEAD OF INSERT ON queue._gone FOR EACH ROW EXECUTE FUNCTION queue._goes();
		-- of each delivery one: a rule is part of the statement, which triggers are not
		CREATE VIEW queue._ended AS SELECT NULL::int4 AS sub, NULL::int8 AS id;
		REVOKE ALL ON queue._ended FROM PUBLIC;
		GRANT INSERT ON queue._ended TO PUBLIC;
		CREATE RULE ends AS ON INSERT TO queue._ended DO INSTEAD DELETE FROM queue.deliveries AS d
			WHERE d.sub = NEW.sub AND d.id = NEW.id AND pg_has_role(d.owner, 'USAGE');
	END IF;
END
$qbouncer_subscriptions$;

CREATE OR REPLACE FUNCTION queue._subscription_options(u queue.subscriptions, names text[], vals text[])
RETURNS queue.subscriptions
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	FOR i IN 1 .. coalesce(cardinality(names), 0) LOOP
		IF names[i] = 'lease' THEN
			IF vals[i] IS NULL THEN
				PERFORM queue._bad_option('lease', 'NULL', 'Allowed: an interval longer than zero, such as ''1 min''.');
			END IF;
			u.lease := queue._interval_option('lease', vals[i], '1 ms', 'Allowed: an interval longer than zero, such as ''1 min''.');
		ELSIF names[i] = 'max_attempts' THEN
			IF (vals[i] ~ '^0*[1-9][0-9]{0,8}$') IS NOT TRUE THEN
				PERFORM queue._bad_option('max_attempts', vals[i], 'Allowed: a number of at least 1.');
			END IF;
			u.max_attempts := vals[i]::int4;
		ELSIF names[i] = 'retry' THEN
			u.retry := (queue._retry_option(NULL::queue.queues, vals[i])).retry;
		ELSIF names[i] = 'on_fail' THEN
			IF lower(btrim(vals[i])) NOT IN ('continue', 'block') OR vals[i] IS NULL THEN
				PERFORM queue._bad_option('on_fail', vals[i], 'Allowed: continue, block.');
			END IF;
			u.blocks := lower(btrim(vals[i])) = 'block';
		ELSIF names[i] = 'parallel' THEN
			IF (vals[i] ~ '^0*([1-9]|[1-5][0-9]|6[0-4])$') IS NOT TRUE THEN
				PERFORM queue._bad_option('parallel', vals[i], 'Allowed: a number from 1 to 64.');
			END IF;
			u.lanes := vals[i]::int4;
		ELSE
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown option "%s"', left(names[i], 80)),
				HINT = 'Options of a subscription: lease, max_attempts, on_fail, parallel, retry.';
		END IF;
	END LOOP;
	RETURN u;
END
$$;

-- Where each lane begins: all at the same place, or each at its own part of a position.
CREATE OR REPLACE FUNCTION queue._starts(start text, lanes int4) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parts CONSTANT text[] := string_to_array(start, ' | ');
BEGIN
	IF cardinality(parts) > 1 AND cardinality(parts) <> lanes THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('this is a position with parallel = %s, not %s', cardinality(parts), lanes),
			HINT = 'A position is good for a subscription with as many lanes as the one that has shown it.';
	END IF;
	RETURN CASE WHEN cardinality(parts) > 1 THEN parts ELSE array_fill(start, ARRAY[lanes]) END;
END
$$;

CREATE OR REPLACE FUNCTION queue.subscribe(sub text, q text, start text DEFAULT NULL, option_names text[] DEFAULT '{}',
	option_values text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u queue.subscriptions;
	place record;
	starts text[];
BEGIN
	IF sub IS NULL OR octet_length(sub) NOT BETWEEN 1 AND 63 THEN
		RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = 'the name of a subscription has 1 to 63 bytes';
	END IF;
	u.lease := '1 min';
	u.blocks := false;
	u.lanes := 1;
	u := queue._subscription_options(u, option_names, option_values);
	PERFORM queue._hold_ring(s);
	PERFORM queue._same_era(s);
	starts := queue._starts(coalesce(start, 'now'), u.lanes);
	FOR i IN 1 .. u.lanes LOOP
		place := queue._start(starts[i]);
		INSERT INTO queue.subscriptions (stream, name, lease, from_id, from_time, max_attempts, retry, blocks, lanes, lane)
			VALUES (s.number, sub, u.lease, place.from_id, place.from_time, u.max_attempts, u.retry, u.blocks, u.lanes, i - 1)
			ON CONFLICT DO NOTHING RETURNING number INTO u.number;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING ERRCODE = '42710',
				MESSAGE = format('subscription "%s" of stream "%s" already exists', sub, q),
				HINT = format('To read from elsewhere: QUEUE SEEK %I ON %I TO ...; to change its options: QUEUE ALTER %2$I FOR %1$I SET (...);', sub, q);
		END IF;
		INSERT INTO queue.positions (sub, seq, owner, s1, s2, last, floor, early)
			SELECT u.number, 1, quote_ident(current_user)::regrole, place.s1, place.s2, place.last, f.floor, f.early
			FROM queue._window(s.number, place.s1, place.s2) AS f;
		IF i = 1 OR starts[i] <> starts[1] THEN
			PERFORM queue._tell_gone(s.number, place.from_id, place.from_time, place.s1, place.s2, place.last);
		END IF;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue.unsubscribe(sub text, q text, notify bool DEFAULT true) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u queue.subscriptions := queue._find_subscription(s, sub);
BEGIN
	IF NOT pg_has_role(s.owner, 'USAGE') THEN
		PERFORM queue._must_read(u);
	END IF;
	LOOP	-- all its lanes, in the order in which others lock them, also those that somebody makes meanwhile
		SELECT * INTO u FROM queue.subscriptions AS t WHERE t.stream = s.number AND t.name = sub
			AND (t.owner = u.owner OR pg_has_role(s.owner, 'USAGE')) ORDER BY t.number LIMIT 1;
		EXIT WHEN NOT FOUND;
		INSERT INTO queue._gone VALUES ('subscription', u.number);
	END LOOP;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell(s.number, q);	-- who waits finds it gone
END
$$;

-- What is out there is nobody's any more. Lanes that were about to go are gone.
CREATE OR REPLACE FUNCTION queue.seek(sub text, q text, start text, notify bool DEFAULT true) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u queue.subscriptions := queue._find_subscription(s, sub);
	place record;
	was queue.positions;
	starts text[];
BEGIN
	PERFORM queue._must_read(u);
	PERFORM queue._must_select(s);
	PERFORM queue._same_era(s);
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM queue._needs_read_committed('SEEK');
	END IF;
	PERFORM queue._hold_ring(s);
	u := queue._lock_lanes(s, u);
	FOR u IN SELECT * FROM queue.subscriptions AS t WHERE t.stream = s.number AND t.name = $1 AND t.owner = u.owner
			ORDER BY t.ends IS NULL, t.lane LOOP
		INSERT INTO queue._gone VALUES ('deliveries', u.number);
		UPDATE queue.retries AS r SET delivery = NULL WHERE r.sub = u.number AND r.delivery IS NOT NULL;
		IF u.ends IS NOT NULL THEN
			PERFORM queue._dissolve(s, u);
			CONTINUE;
		END IF;
		starts := coalesce(starts, queue._starts(start, u.lanes));
		place := queue._start(starts[u.lane + 1]);
		SELECT * INTO was FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
		INSERT INTO queue._gone VALUES ('positions', u.number);
		-- the place is not that of the subscription, which a later row of it would forget: it is said with "last" and "floor"
		UPDATE queue.subscriptions SET from_id = place.from_id, from_time = place.from_time, lost_at = NULL, lost_id = NULL, waits = false,
				sought = coalesce(was.delivery, 0) WHERE number = u.number;
		IF u.lane = 0 OR starts[u.lane + 1] <> starts[1] THEN
			PERFORM queue._tell_gone(s.number, place.from_id, place.from_time, place.s1, place.s2, place.last);
		END IF;
		INSERT INTO queue.positions (sub, seq, owner, s1, s2, last, floor, early, delivery, delivered)
			SELECT u.number, coalesce(was.seq, 0) + 1, u.owner, place.s1, place.s2, place.last, f.floor, f.early, coalesce(was.delivery, 0),
				coalesce(was.delivered, 0)
			FROM queue._window(s.number, place.s1, place.s2) AS f;
	END LOOP;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell(s.number, q);
END
$$;

-- --- parallel = n: lanes ---
--
-- A lane is a subscription to a part of the stream: it has a number, a position, deliveries and retries of its own, so a
-- group is in one delivery at a time, and each lane in its order. When parallel changes the lanes that there are read up to
-- a snapshot, the new ones begin there, and not before those have ended.

-- Its lanes are locked, also those that were made while that waited: it may have been made anew, or parallel was changed. As it is
-- then; or it is not there any more.
CREATE OR REPLACE FUNCTION queue._lock_lanes(s queue.streams, u queue.subscriptions) RETURNS queue.subscriptions
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	locked int4[];
BEGIN
	LOOP
		locked := ARRAY(SELECT t.number FROM queue.subscriptions AS t WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner
			ORDER BY t.number FOR NO KEY UPDATE);
		u := queue._find_subscription(s, u.name);
		PERFORM queue._must_read(u);
		EXIT WHEN u.number = ANY (locked) AND NOT EXISTS (SELECT FROM queue.subscriptions AS t WHERE t.stream = u.stream AND t.name = u.name
			AND t.owner = u.owner AND t.number <> ALL (locked));
	END LOOP;
	RETURN u;
END
$$;

-- One that has read all that it shall goes, behind its lock; what failed there by itself comes in those that follow it.
CREATE OR REPLACE FUNCTION queue._dissolve(s queue.streams, u queue.subscriptions) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	was queue.positions;
	p queue.positions;
BEGIN
	PERFORM queue._must_select(s);		-- to whom may not read it nothing is shown to be moved
	UPDATE queue.retries AS r SET sub = t.number FROM queue.subscriptions AS t
		WHERE r.sub = u.number AND t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND t.ends IS NULL
			-- the lane of a bucket: what queue._lane_buckets says the other way round
			AND t.lane = coalesce((hashtextextended(r."group", 0) & 32767) * t.lanes >> 15, r.id % t.lanes);
	SELECT * INTO was FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
	SELECT p.* INTO p FROM queue.subscriptions AS t JOIN queue.positions AS p ON p.sub = t.number
		WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND t.ends IS NULL AND t.lane = 0 ORDER BY p.seq DESC LIMIT 1;
	IF FOUND THEN	-- what was delivered is counted once, and never less
		p := queue._move(p, u, coalesce(was.delivered, 0), false, coalesce(was.rate * queue._fades(was.at), 0));
	END IF;
	INSERT INTO queue._gone VALUES ('subscription', u.number);
END
$$;

-- Has it read all that it shall, and is nothing of it out?
CREATE OR REPLACE FUNCTION queue._has_ended(l queue.subscriptions) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
	RETURN NOT EXISTS (SELECT FROM queue.deliveries AS d WHERE d.sub = l.number)
		AND (SELECT p.s2 IS NULL AND p.s1::text = l.ends::text FROM queue.positions AS p WHERE p.sub = l.number ORDER BY p.seq DESC LIMIT 1);
END
$$;

-- Of TAKE: lanes that have read all that they shall go. Are there still some, and was anything changed? Else nothing is locked.
CREATE OR REPLACE FUNCTION queue._changes_lanes(s queue.streams, u queue.subscriptions, OUT remain bool, OUT changed bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	l queue.subscriptions;
BEGIN
	changed := false;
	FOR l IN SELECT * FROM queue.subscriptions AS t WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND t.ends IS NOT NULL
			ORDER BY t.number LOOP
		CONTINUE WHEN queue._has_ended(l) IS NOT TRUE;
		BEGIN
			-- each writes the position of the first lane that follows: one behind the other, and nobody waits
			IF (SELECT count(*) FROM (SELECT FROM queue.subscriptions AS t WHERE t.number = l.number OR t.stream = u.stream AND t.name = u.name
					AND t.owner = u.owner AND t.ends IS NULL AND t.lane = 0 FOR NO KEY UPDATE SKIP LOCKED) AS both_of) < 2
					OR queue._has_ended(l) IS NOT TRUE THEN
				RAISE EXCEPTION USING ERRCODE = 'QBLET', MESSAGE = 'somebody else has it';
			END IF;
			PERFORM queue._dissolve(s, l);
			changed := true;
		EXCEPTION WHEN SQLSTATE 'QBLET' THEN
			CONTINUE;
		END;
	END LOOP;
	remain := EXISTS (SELECT FROM queue.subscriptions AS t WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner
		AND t.ends IS NOT NULL);
	IF NOT remain THEN
		UPDATE queue.subscriptions AS t SET waits = false WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND t.waits;
		changed := changed OR FOUND;
	END IF;
END
$$;

-- Which lanes TAKE looks at, the longest not moved first: not at those that have a delivery out. outs: if they all have. No
-- numbers either: the lanes are not those any more that there were just now.
CREATE OR REPLACE FUNCTION queue._free_lanes(u queue.subscriptions, OUT numbers int4[], OUT due_ms int8, OUT outs text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	of_before CONSTANT bool := u.waits AND EXISTS (SELECT FROM queue.subscriptions AS t WHERE t.stream = u.stream AND t.name = u.name
		AND t.owner = u.owner AND t.ends IS NOT NULL);
	moment CONSTANT timestamptz := clock_timestamp();
BEGIN
	SELECT array_agg(l.number ORDER BY l.at NULLS FIRST, l.number) FILTER (WHERE NOT l.busy),
			CASE WHEN bool_or(l.busy) THEN queue._ms_until(min(l.lease_until) FILTER (WHERE l.busy)) END,
			CASE WHEN bool_and(l.busy) THEN array_agg(l.name) END
		INTO numbers, due_ms, outs
		FROM (SELECT t.number, p.at, d.lease_until, d.sub || '-d' || d.id AS name, coalesce(d.lease_until > moment, false) AS busy
			FROM queue.subscriptions AS t
				LEFT JOIN LATERAL (SELECT o.delivery, o.at FROM queue.positions AS o WHERE o.sub = t.number ORDER BY o.seq DESC LIMIT 1)
					AS p ON true
				LEFT JOIN queue.deliveries AS d ON d.sub = t.number AND d.id = p.delivery
			WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND (t.ends IS NOT NULL) = of_before) AS l;
END
$$;

-- ALTER ... FOR. parallel: what has become visible until now is read as it was begun.
CREATE OR REPLACE FUNCTION queue.alter_for(q text, sub text, option_names text[] DEFAULT '{}', option_values text[] DEFAULT '{}',
	resets text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u queue.subscriptions := queue._find_subscription(s, sub);
	was queue.subscriptions;
	place pg_snapshot;
BEGIN
	PERFORM queue._must_read(u);
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM queue._needs_read_committed('ALTER ... FOR');
	END IF;
	IF 'parallel' = ANY (option_names || resets) THEN
		PERFORM queue._hold_ring(s);
	END IF;
	was := queue._lock_lanes(s, u);
	u := queue._subscription_options(was, option_names, option_values);
	u := queue._subscription_options(u, array_agg(o), array_agg(CASE o WHEN 'lease' THEN '1 min' WHEN 'on_fail' THEN 'continue'
			WHEN 'parallel' THEN '1' WHEN 'retry' THEN 'exponential 1s 1min' ELSE '1' END)) FROM unnest(resets) AS o;
	u.max_attempts := CASE WHEN 'max_attempts' = ANY (resets) THEN NULL ELSE u.max_attempts END;
	u.retry := CASE WHEN 'retry' = ANY (resets) THEN NULL ELSE u.retry END;
	IF u.blocks <> was.blocks THEN
		PERFORM queue._not_of_streams('to change on_fail', 'Make another subscription, FROM the position of this one.');
	END IF;
	UPDATE queue.subscriptions AS t SET lease = u.lease, max_attempts = u.max_attempts, retry = u.retry
		WHERE t.stream = s.number AND t.name = $2 AND t.owner = u.owner;
	IF u.lanes <> was.lanes THEN
		PERFORM queue._must_select(s);
		PERFORM queue._same_era(s);
		IF was.waits AND (queue._changes_lanes(s, was)).remain THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('subscription "%s" of stream "%s" is being changed already', sub, q),
				DETAIL = 'What was taken before parallel was changed is not done, or there is more of it.',
				HINT = 'Take and end what is out, then repeat it; or SEEK, which forgets it.';
		END IF;
		place := queue._position();
		UPDATE queue.subscriptions AS t SET ends = place WHERE t.stream = s.number AND t.name = $2 AND t.owner = u.owner;
		FOR i IN 1 .. u.lanes LOOP
			INSERT INTO queue.subscriptions (stream, name, owner, lease, from_id, from_time, created_at, lost_at, lost_id, max_attempts, retry,
					blocks, lanes, lane, waits)
				VALUES (s.number, $2, u.owner, u.lease, u.from_id, u.from_time, u.created_at, u.lost_at, u.lost_id, u.max_attempts, u.retry,
					u.blocks, u.lanes, i - 1, true) RETURNING number INTO u.number;
			INSERT INTO queue.positions (sub, seq, owner, s1, last) VALUES (u.number, 1, u.owner, place, coalesce(u.from_id - 1, 0));
		END LOOP;
	END IF;
	PERFORM queue._tell(s.number, q);
END
$$;

CREATE OR REPLACE FUNCTION queue._needs_read_committed(what text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('%s is not possible in isolation level %s', what,
			upper(current_setting('transaction_isolation'))),
		DETAIL = 'What is locked has to be looked at behind the lock, not in an older snapshot.',
		HINT = 'Use READ COMMITTED.';
END
$$;

-- Where its lanes are, in their order, for SEEK; NULL while parallel is being changed.
CREATE OR REPLACE FUNCTION queue._places(u queue.subscriptions) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT string_agg(nullif(queue._place(p, t.from_id, t.from_time), ''), ' | ' ORDER BY t.lane)
		FROM queue.subscriptions AS t, LATERAL (SELECT o AS p FROM queue.positions AS o WHERE o.sub = t.number ORDER BY o.seq DESC LIMIT 1) AS l
		WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner HAVING count(*) = u.lanes);
END
$$;

-- Streams and who reads them, with a row for each lane. pending: how many events are to come, up to a hundred thousand; events
-- that are out are not among them.
CREATE OR REPLACE FUNCTION queue.subscriptions(q text DEFAULT NULL)
RETURNS TABLE (stream text, subscription text, owner text, pending int8, lag interval, delivery text, events int4,
	attempt int4, worker text, taken_at timestamptz, lease_until timestamptz, error text, last_taken timestamptz,
	"position" text, lease interval, created_at timestamptz, oldest timestamptz, last_id int8, bytes int8,
	lost_at timestamptz, lost_id int8, delivered int8, rate float8, retries int8, dead int8, parallel int4, lane int4)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s queue.streams;
	u queue.subscriptions;
	p queue.positions;
	d queue.deliveries;
	may bool;
	of_stream record;
BEGIN
	IF q IS NOT NULL THEN
		PERFORM queue._find_stream(q);
	END IF;
	FOR s IN SELECT * FROM queue.streams AS t WHERE q IS NULL OR t.name = q ORDER BY t.name LOOP
		BEGIN
			stream := s.name;
			oldest := NULL;
			bytes := queue._ring_bytes(s.number);
			last_id := NULL;
			may := has_table_privilege(to_regclass(format('queue.e%s_0', s.number)), 'SELECT');
			CONTINUE WHEN may IS NULL;	-- dropped meanwhile
			IF may THEN
				EXECUTE format('SELECT min(m), greatest(max(last), $1) FROM (%s) AS u', queue._each_of_ring(s.number, 'SELECT max(id) AS last,
						(SELECT pushed_at FROM @e@ ORDER BY id LIMIT 1) AS m FROM @e@', ' UNION ALL ')) INTO oldest, last_id USING s.gone_id;
			END IF;
			FOR u IN SELECT t.* FROM (SELECT s.number AS of) AS one LEFT JOIN queue.subscriptions AS t ON t.stream = one.of
					ORDER BY t.name, t.ends IS NULL, t.lane LOOP
				subscription := u.name;
				parallel := u.lanes;
				lane := u.lane + 1;
				owner := CASE WHEN u.number IS NULL THEN pg_get_userbyid(s.owner) ELSE pg_get_userbyid(u.owner) END;
				lease := u.lease;
				created_at := coalesce(u.created_at, s.created_at);
				lost_at := u.lost_at;
				lost_id := u.lost_id;
				p := NULL;
				d := NULL;
				pending := NULL;
				lag := NULL;
				retries := NULL;
				dead := NULL;
				IF u.number IS NOT NULL AND pg_has_role(u.owner, 'USAGE') THEN
					SELECT * INTO p FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
					SELECT * INTO d FROM queue.deliveries WHERE sub = u.number AND id = p.delivery;
					SELECT w.waiting, w.dead INTO retries, dead FROM queue._retries(u.number, 100000) AS w;
					IF may AND p.s1 IS NOT NULL THEN
						SELECT w.n, date_trunc('milliseconds', clock_timestamp() - w.first) INTO pending, lag
							FROM queue._pending(s.number, p, u.from_time, u.from_id, 100000, u.lanes, u.lane, u.ends) AS w;
					END IF;
				END IF;
				delivery := CASE WHEN d.id IS NOT NULL THEN d.sub || '-d' || d.id END;
				events := d.events;
				attempt := d.attempt;
				worker := d.worker;
				taken_at := d.taken_at;
				lease_until := d.lease_until;
				error := d.error;
				last_taken := CASE WHEN p.delivery > 0 THEN p.at END;
				"position" := CASE WHEN u.ends IS NOT NULL THEN NULL WHEN u.lanes > 1 OR u.waits THEN queue._places(u)
					ELSE nullif(queue._place(p, u.from_id, u.from_time), '') END;
				delivered := p.delivered;
				rate := round((p.rate * queue._fades(p.at))::numeric, 3);
				RETURN NEXT;
			END LOOP;
		EXCEPTION WHEN undefined_table THEN	-- dropped meanwhile
			IF q IS NOT NULL THEN
				RAISE;
			END IF;
		END;
	END LOOP;
END
$$;

-- How many events are to come, up to "most", and when the first of them was pushed. What is between the two snapshots of a
-- window is looked for behind "last", the rest behind the second one: never what has been seen. From the beginning nothing
-- was, and a time has no index: of the newest events those behind it. Of a lane: those that are its own among so many.
CREATE OR REPLACE FUNCTION queue._pending(k int4, p queue.positions, since timestamptz, from_id int8, most int4,
	lanes int4 DEFAULT 1, lane int4 DEFAULT 0, ends pg_snapshot DEFAULT NULL, OUT n int8, OUT first timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
	lo CONSTANT xid8 := pg_snapshot_xmax(p.s1);
	w CONSTANT pg_snapshot := coalesce(p.s2, p.s1);
	late CONSTANT xid8[] := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE p.early AND pg_visible_in_snapshot(x, p.s2));
	rest text;
BEGIN
	IF pg_snapshot_xmax(w) <= '3' THEN
		rest := '(SELECT pushed_at, id, bucket, xid FROM @e@ WHERE $3 IS NULL OR id >= $3 ORDER BY id DESC LIMIT $4)';
	ELSE
		rest := '(SELECT pushed_at, id, bucket, xid FROM @e@ WHERE xid >= pg_snapshot_xmax($5) LIMIT $4)
			UNION ALL (SELECT pushed_at, id, bucket, xid FROM @e@ WHERE xid = ANY (ARRAY(SELECT x FROM pg_snapshot_xip($5) AS x)) LIMIT $4)';
	END IF;
	IF p.s2 IS NOT NULL THEN
		rest := rest || ' UNION ALL (SELECT pushed_at, id, bucket, xid FROM @e@ WHERE id > greatest(($1).last, ($1).floor - 1)
				AND CASE WHEN xid >= $6 THEN pg_visible_in_snapshot(xid, $5) END LIMIT $4)
			UNION ALL (SELECT pushed_at, id, bucket, xid FROM @e@ WHERE xid = ANY ($7) AND id > ($1).last LIMIT $4)';
	END IF;
	EXECUTE format('SELECT count(*), min(pushed_at) FROM (SELECT pushed_at, id, bucket, xid FROM (%s) AS u
			WHERE ($2 IS NULL OR pushed_at >= $2) AND ($3 IS NULL OR id >= $3) LIMIT $4) AS v', queue._each_of_ring(k, rest, ' UNION ALL '))
			|| CASE WHEN lanes > 1 OR ends IS NOT NULL
				THEN format(' WHERE bucket BETWEEN %s AND %s AND ($10 IS NULL OR pg_visible_in_snapshot(xid, $10))',
					VARIADIC queue._lane_buckets('$8', '$9')) ELSE '' END
		INTO n, first USING p, since, from_id, most, w, lo, late, lanes, lane, ends;
END
$$;

-- What is left of a rate since then: a third after a minute.
CREATE OR REPLACE FUNCTION queue._fades(since timestamptz) RETURNS float8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- somebody may have written a row of his own by hand
	RETURN CASE WHEN isfinite(since) THEN exp(-least(greatest(extract(epoch FROM clock_timestamp() - since)::float8, 0), 600) / 60) ELSE 0 END;
END
$$;
