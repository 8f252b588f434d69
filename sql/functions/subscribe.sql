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

-- The subscription, if the caller may use it.
CREATE OR REPLACE FUNCTION queue._find_subscription(s queue.streams, sub text) RETURNS queue.subscriptions
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	u queue.subscriptions;
BEGIN
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.stream = s.number AND t.name = sub;
	IF NOT FOUND THEN
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

CREATE OR REPLACE FUNCTION queue._is_this_era(s queue.streams) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN s.log IS NOT DISTINCT FROM to_regclass(format('queue.e%s_0', s.number))::oid
		AND s.system IS NOT DISTINCT FROM (SELECT c.system_identifier FROM pg_control_system() AS c);
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
		WITH gone AS (DELETE FROM queue.retries AS t WHERE t.sub = NEW.number AND t.id = NEW.n AND t.delivery IS NULL RETURNING t.*)
			SELECT array_agg(DISTINCT g."group") INTO groups FROM gone AS g WHERE g.blocks;
	ELSIF NEW.what = 'retries' THEN
		WITH gone AS (DELETE FROM queue.retries AS t WHERE t.sub = NEW.number AND t.delivery = NEW.n RETURNING t.*)
			SELECT array_agg(DISTINCT g."group") INTO groups FROM gone AS g WHERE g.blocks;
	ELSIF NEW.what = 'subscription' THEN
		DELETE FROM queue.subscriptions AS t WHERE t.number = NEW.number;
	ELSIF NEW.what = 'stream' THEN
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
	END IF;
END
$qbouncer_subscriptions$;

CREATE OR REPLACE FUNCTION queue.subscribe(sub text, q text, start text DEFAULT NULL, option_names text[] DEFAULT '{}',
	option_values text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	place record;
	lease interval := '1 min';
	attempts int4;
	pauses text;
	holds bool := false;
	new_number int4;
BEGIN
	IF sub IS NULL OR octet_length(sub) NOT BETWEEN 1 AND 63 THEN
		RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = 'the name of a subscription has 1 to 63 bytes';
	END IF;
	FOR i IN 1 .. coalesce(cardinality(option_names), 0) LOOP
		IF option_names[i] = 'lease' THEN
			lease := queue._interval_option('lease', option_values[i], '1 ms',
				'Allowed: an interval longer than zero, such as ''1 min''.');
		ELSIF option_names[i] = 'max_attempts' THEN
			IF (option_values[i] ~ '^0*[1-9][0-9]{0,8}$') IS NOT TRUE THEN
				PERFORM queue._bad_option('max_attempts', option_values[i], 'Allowed: a number of at least 1.');
			END IF;
			attempts := option_values[i]::int4;
		ELSIF option_names[i] = 'retry' THEN
			pauses := (queue._retry_option(NULL::queue.queues, option_values[i])).retry;
		ELSIF option_names[i] = 'on_fail' THEN
			IF lower(btrim(option_values[i])) NOT IN ('continue', 'block') OR option_values[i] IS NULL THEN
				PERFORM queue._bad_option('on_fail', option_values[i], 'Allowed: continue, block.');
			END IF;
			holds := lower(btrim(option_values[i])) = 'block';
		ELSIF option_names[i] = 'parallel' THEN
			PERFORM queue._later_option(option_names[i], option_values[i],
				'A subscription has one delivery at a time, which comes again until it is done.');
		ELSE
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown option "%s"', left(option_names[i], 80)),
				HINT = 'Options of a subscription: lease, max_attempts, on_fail, retry.';
		END IF;
	END LOOP;
	PERFORM queue._same_era(s);
	PERFORM queue._hold_ring(s);
	place := queue._start(coalesce(start, 'now'));
	INSERT INTO queue.subscriptions (stream, name, lease, from_id, from_time, max_attempts, retry, blocks)
		VALUES (s.number, sub, lease, place.from_id, place.from_time, attempts, pauses, holds) ON CONFLICT DO NOTHING RETURNING number INTO new_number;
	IF new_number IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42710',
			MESSAGE = format('subscription "%s" of stream "%s" already exists', sub, q),
			HINT = format('To read from elsewhere: QUEUE SEEK %I ON %I TO ...;', sub, q);
	END IF;
	INSERT INTO queue.positions (sub, seq, owner, s1, s2, last, floor, early)
		SELECT new_number, 1, quote_ident(current_user)::regrole, place.s1, place.s2, place.last, f.floor, f.early
		FROM queue._window(s.number, place.s1, place.s2) AS f;
	PERFORM queue._tell_gone(s.number, place.from_id, place.from_time, place.s1, place.s2, place.last);
END
$$;

CREATE OR REPLACE FUNCTION queue.unsubscribe(sub text, q text, notify bool DEFAULT true) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u CONSTANT queue.subscriptions := queue._find_subscription(s, sub);
BEGIN
	IF NOT pg_has_role(s.owner, 'USAGE') THEN
		PERFORM queue._must_read(u);
	END IF;
	INSERT INTO queue._gone VALUES ('subscription', u.number);
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell(s.number, q);	-- who waits finds it gone
END
$$;

-- What is out there is nobody's any more.
CREATE OR REPLACE FUNCTION queue.seek(sub text, q text, start text, notify bool DEFAULT true) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u CONSTANT queue.subscriptions := queue._find_subscription(s, sub);
	place record;
	was queue.positions;
BEGIN
	PERFORM queue._must_read(u);
	PERFORM queue._must_select(s);
	PERFORM queue._same_era(s);
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM queue._needs_read_committed('SEEK');
	END IF;
	PERFORM FROM queue.subscriptions WHERE number = u.number FOR NO KEY UPDATE;
	PERFORM queue._hold_ring(s);
	place := queue._start(start);
	INSERT INTO queue._gone VALUES ('deliveries', u.number);
	UPDATE queue.retries AS r SET delivery = NULL WHERE r.sub = u.number AND r.delivery IS NOT NULL;
	SELECT * INTO was FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
	INSERT INTO queue._gone VALUES ('positions', u.number);
	-- the place is not that of the subscription, which a later row of it would forget: it is said with "last" and "floor"
	UPDATE queue.subscriptions SET from_id = place.from_id, from_time = place.from_time, lost_at = NULL, lost_id = NULL
		WHERE number = u.number;
	PERFORM queue._tell_gone(s.number, place.from_id, place.from_time, place.s1, place.s2, place.last);
	INSERT INTO queue.positions (sub, seq, owner, s1, s2, last, floor, early, delivery, delivered)
		SELECT u.number, coalesce(was.seq, 0) + 1, u.owner, place.s1, place.s2, place.last, f.floor, f.early, coalesce(was.delivery, 0),
			coalesce(was.delivered, 0)
		FROM queue._window(s.number, place.s1, place.s2) AS f;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
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

-- Streams and who reads them. pending: how many events are to come, up to a hundred thousand; events that are out are not
-- among them.
CREATE OR REPLACE FUNCTION queue.subscriptions(q text DEFAULT NULL)
RETURNS TABLE (stream text, subscription text, owner text, pending int8, lag interval, delivery text, events int4,
	attempt int4, worker text, taken_at timestamptz, lease_until timestamptz, error text, last_taken timestamptz,
	"position" text, lease interval, created_at timestamptz, oldest timestamptz, last_id int8, bytes int8,
	lost_at timestamptz, lost_id int8, delivered int8, rate float8, retries int8, dead int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s queue.streams;
	u record;
	p queue.positions;
	d queue.deliveries;
	may bool;
	of_stream record;
BEGIN
	IF q IS NOT NULL THEN
		PERFORM queue._find_stream(q);
	END IF;
	FOR s IN SELECT * FROM queue.streams AS t WHERE q IS NULL OR t.name = q ORDER BY t.name LOOP
		stream := s.name;
		oldest := NULL;
		bytes := queue._ring_bytes(s.number);
		last_id := NULL;
		may := has_table_privilege(to_regclass(format('queue.e%s_0', s.number)), 'SELECT');
		IF may THEN
			EXECUTE format('SELECT min(m), greatest(max(last), $1) FROM (%s) AS u', queue._each_of_ring(s.number, 'SELECT max(id) AS last,
					(SELECT pushed_at FROM @e@ ORDER BY id LIMIT 1) AS m FROM @e@', ' UNION ALL ')) INTO oldest, last_id USING s.gone_id;
		END IF;
		FOR u IN SELECT t.* FROM (SELECT s.number AS of) AS one LEFT JOIN queue.subscriptions AS t ON t.stream = one.of
				ORDER BY t.name LOOP
			subscription := u.name;
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
						FROM queue._pending(s.number, p, u.from_time, u.from_id, 100000) AS w;
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
			"position" := nullif(queue._place(p, u.from_id, u.from_time), '');
			delivered := p.delivered;
			rate := round((p.rate * queue._fades(p.at))::numeric, 3);
			RETURN NEXT;
		END LOOP;
	END LOOP;
END
$$;

-- How many events are to come, up to "most", and when the first of them was pushed. What is between the two snapshots of a
-- window is looked for behind "last", the rest behind the second one: never what has been seen. From the beginning nothing
-- was, and a time has no index: of the newest events those behind it.
CREATE OR REPLACE FUNCTION queue._pending(k int4, p queue.positions, since timestamptz, from_id int8, most int4, OUT n int8,
	OUT first timestamptz)
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
		rest := '(SELECT pushed_at, id FROM @e@ WHERE $3 IS NULL OR id >= $3 ORDER BY id DESC LIMIT $4)';
	ELSE
		rest := '(SELECT pushed_at, id FROM @e@ WHERE xid >= pg_snapshot_xmax($5) LIMIT $4)
			UNION ALL (SELECT pushed_at, id FROM @e@ WHERE xid = ANY (ARRAY(SELECT x FROM pg_snapshot_xip($5) AS x)) LIMIT $4)';
	END IF;
	IF p.s2 IS NOT NULL THEN
		rest := rest || ' UNION ALL (SELECT pushed_at, id FROM @e@ WHERE id > greatest(($1).last, ($1).floor - 1)
				AND coalesce(xid, $6) >= $6 AND pg_visible_in_snapshot(xid, $5) LIMIT $4)
			UNION ALL (SELECT pushed_at, id FROM @e@ WHERE xid = ANY ($7) AND id > ($1).last LIMIT $4)';
	END IF;
	EXECUTE format('SELECT count(*), min(pushed_at) FROM (SELECT pushed_at FROM (%s) AS u
			WHERE ($2 IS NULL OR pushed_at >= $2) AND ($3 IS NULL OR id >= $3) LIMIT $4) AS v', queue._each_of_ring(k, rest, ' UNION ALL '))
		INTO n, first USING p, since, from_id, most, w, lo, late;
END
$$;

-- What is left of a rate since then: a third after a minute.
CREATE OR REPLACE FUNCTION queue._fades(since timestamptz) RETURNS float8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN exp(-least(greatest(extract(epoch FROM clock_timestamp() - since)::float8, 0), 600) / 60);
END
$$;
