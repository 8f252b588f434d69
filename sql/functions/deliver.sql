-- Deliveries of a stream: TAKE ... FOR, and what ends them. TAKE makes one, of what has become visible between two
-- snapshots, and moves the position behind it; DONE deletes its row and touches nothing else, so an open transaction of a
-- worker holds up no TAKE.
--
-- TAKE locks first and looks in later statements, each with a snapshot of its own: under READ COMMITTED alone.

-- What ends the token of one that is taken. A proxy says of what it is made, so that it finds what it has taken though the
-- answer was lost (_give_back_lost); that is as good as random.
CREATE OR REPLACE FUNCTION queue._delivery_digits() RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN encode(coalesce(substr(sha256(int8send(nullif(current_setting('qbouncer.seed', true), '')::int8)), 1, 8),
		substr(uuid_send(gen_random_uuid()), 9)), 'hex');
END
$$;

-- LAG: of the events that would be delivered those before the first one that was not pushed before this time, as _cut says
-- it; and when that was. Ids follow each other nearly as times do: one may wait for another that is a little younger.
CREATE OR REPLACE FUNCTION queue._cut_old(k int4, u queue.subscriptions, lo xid8, w pg_snapshot, late xid8[], floor int8, last int8,
	upto int8, n int4, before timestamptz, OUT events int4, OUT ends int8, OUT oldest timestamptz, OUT young timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('SELECT count(*) FILTER (WHERE NOT is_young), max(id) FILTER (WHERE NOT is_young),
				min(pushed_at) FILTER (WHERE NOT is_young), (array_agg(pushed_at ORDER BY id) FILTER (WHERE is_young))[1]
			FROM (SELECT e.id, e.pushed_at, bool_or(e.pushed_at > $9) OVER (ORDER BY e.id) AS is_young
				FROM %s AS e) AS o', queue._reader(k, u, '$1, $2, $3, $4, $5, $6, $7, $8'))
		INTO events, ends, oldest, young USING lo, w, late, floor, last, upto, u.from_time, n, before;
END
$$;

-- For the proxy, in a row with the token and without an id that stands before the events: how long the lease lasts since the
-- statement was begun, as a text of milliseconds. NULL: nobody asks for it.
CREATE OR REPLACE FUNCTION queue._lasts(d queue.deliveries) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN current_setting('qbouncer.seed', true) <> ''
		THEN floor(extract(epoch FROM least(d.lease_until - d.taken_at, interval '1 year')) * 1000)::int8 END;
END
$$;

-- What most takes are has a function of each stream (_generate_take_for): of a subscription with one lane, of which nothing is
-- out or has failed. Everything else goes this way. lane: of a subscription that has several, the number of one. fits: with
-- WHERE, what fits of what was looked at (sift.sql).
CREATE OR REPLACE FUNCTION queue._take_long_jsonb(q text, sub text, lim int4, least_events int4, within interval, lease interval,
	who text, lag interval DEFAULT NULL, lane int4 DEFAULT NULL, fits int8[] DEFAULT NULL, l queue._look DEFAULT NULL)
RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
	s queue.streams;
	u queue.subscriptions;
	p queue.positions;
	d queue.deliveries;
	w pg_snapshot;
	lo xid8;
	late xid8[];
	fl int8;
	early int8;
	above int8;
	cut record;
	old record;
	young timestamptz;	-- LAG: when the first event was pushed that is not old enough
	got int4;
	reach int8;		-- of a lane: how far was looked, if not to the end
	free int4;		-- of them, how many need not wait for others
	groups text[];
	due timestamptz;	-- the first of those that failed by themselves
	proxied CONSTANT int4 := nullif(current_setting('qbouncer.proxy', true), '');
	nothing queue._delivered_jsonb;
	leased queue._delivered_jsonb;	-- its token, and how long it lasts; no event
BEGIN
	s := queue._find_stream(q);
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.stream = s.number AND t.name = sub AND t.lane = 0 AND t.ends IS NULL;
	IF NOT FOUND THEN	-- or the stream was made anew since
		s := queue._find_stream(q);
		u := queue._find_subscription(s, sub);
	END IF;
	IF s.payload <> 'jsonb' THEN
		PERFORM queue._check_events(s, 'jsonb');
	END IF;
	PERFORM queue._must_read(u);
	IF lim NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must be between 1 and 10000';
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM queue._bad_lease();
	ELSIF (least_events IS NULL) <> (within IS NULL) THEN
		RAISE EXCEPTION USING ERRCODE = '42601', MESSAGE = 'MIN and WITHIN are given together',
			HINT = 'For example: MIN 100 WITHIN ''50 ms''.';
	ELSIF least_events > lim OR least_events < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'MIN must be between 1 and LIMIT';
	ELSIF lag < interval '0' OR lag > interval '1000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LAG must not be negative, nor longer than 1000 years';
	ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM queue._needs_read_committed('TAKE ... FOR');
	END IF;
	PERFORM queue._same_era(s);
	IF lane IS NULL AND (u.lanes > 1 OR u.waits) THEN
		RETURN QUERY SELECT * FROM queue._take_lanes_jsonb(s, u, lim, least_events, within, lease, who, lag, fits, l);
		RETURN;
	END IF;
	-- once more, as it is behind the lock: SEEK changes it
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = coalesce($9, u.number) FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND OR u.waits THEN	-- another take, which gets what there is; or it is gone, or parallel was changed just now
		nothing.due_ms := 100;
		RETURN NEXT nothing;
		RETURN;
	END IF;
	IF u.lost_at IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'QB005', MESSAGE = format('subscription "%s" of stream "%s" has lost events', sub, q),
			DETAIL = format('Events up to id %s were removed by retain_max at %s.', u.lost_id, u.lost_at),
			HINT = format('Go on with the oldest that is kept: QUEUE SEEK %I ON %I TO BEGINNING;', sub, q);
	END IF;
	-- one that a crash takes back comes again, and its token is worth nothing (see _take)
	PERFORM set_config('synchronous_commit', 'off', true);
	SELECT * INTO p FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('subscription "%s" of stream "%s" has lost its position', sub, q),
			HINT = format('QUEUE SEEK %I ON %I TO ...;', sub, q);
	END IF;
	SELECT * INTO d FROM queue.deliveries WHERE sub = u.number AND id = p.delivery;
	IF FOUND THEN
		nothing."out" := d.sub || '-d' || d.id;
		IF d.lease_until <= clock_timestamp() THEN	-- over, if nobody is about to end or to extend it
			SELECT * INTO d FROM queue.deliveries WHERE sub = u.number AND id = p.delivery FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				d.lease_until := clock_timestamp() + interval '100 ms';
			END IF;
		END IF;
		IF d.lease_until > clock_timestamp() THEN
			nothing.due_ms := greatest(ceil(least(extract(epoch FROM d.lease_until - clock_timestamp()), 31536000) * 1000), 1);
			RETURN NEXT nothing;
			RETURN;
		END IF;
		IF d.s2 IS NULL OR d.attempt >= u.max_attempts OR u.retry = 'none' AND d.attempt > 0 THEN
			groups := queue._retry_events(s.number, u, d, NULL, CASE WHEN d.attempt > 0 THEN coalesce(d.error, 'lease expired') END, NULL, false);
			INSERT INTO queue._gone VALUES ('deliveries', d.sub, d.id);
			IF groups IS NOT NULL THEN
				PERFORM queue._order_groups(u.number, groups);
			END IF;
			d := NULL;
		END IF;
	END IF;
	IF d.id IS NULL THEN
		SELECT r.due_at INTO due FROM queue.retries AS r WHERE r.sub = u.number AND NOT r.dead AND r.delivery IS NULL
			ORDER BY r.due_at, r.id LIMIT 1;
		IF due <= clock_timestamp() THEN
			RETURN QUERY SELECT * FROM queue._take_retries_jsonb(s, u, p, lim, lease, who, proxied);
			IF FOUND THEN
				RETURN;
			END IF;
			due := clock_timestamp() + interval '100 ms';	-- somebody has them locked
		END IF;
		nothing."out" := NULL;
		nothing.due_ms := CASE WHEN isfinite(due)	-- NULL least() would pass over
			THEN greatest(ceil(least(extract(epoch FROM due - clock_timestamp()), 31536000) * 1000), 1) END;
	END IF;
	IF d.id IS NOT NULL THEN
		-- the same events again: nothing of them goes away, and what is visible in a snapshot never changes
		UPDATE queue.deliveries SET attempt = d.attempt + 1, token = queue._delivery_digits(),
			lease_until = clock_timestamp() + coalesce(lease, u.lease), taken_at = clock_timestamp(), worker = left(who, 200), proxy = proxied
			WHERE sub = d.sub AND id = d.id RETURNING * INTO d;
		IF d.chosen IS NOT NULL THEN
			RETURN QUERY SELECT * FROM queue._deliver_chosen_jsonb(s, u, d);
			RETURN;
		END IF;
		lo := pg_snapshot_xmax(d.s1);
		late := CASE WHEN d.early THEN ARRAY(SELECT x FROM pg_snapshot_xip(d.s1) AS x WHERE pg_visible_in_snapshot(x, d.s2))
			ELSE '{}' END;
		EXECUTE format(CASE WHEN u.lanes = 1 THEN 'SELECT * FROM queue._cut_%s($1, $2, $3, $4, $5, $6, $7, $8)'
				ELSE 'SELECT * FROM queue._cut_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s, NULL)' END, s.number, u.lanes, u.lane)
			INTO cut USING lo, d.s2, late, d.floor, d.last, d.upto, u.from_time, d.events;
		IF cut.events <> d.events THEN
			RAISE EXCEPTION USING ERRCODE = 'QB005', MESSAGE = format('events of delivery %s-d%s are lost', d.sub, d.id),
				DETAIL = format('It had %s events, of which there are %s.', d.events, cut.events),
				HINT = format('Go on behind them: QUEUE SEEK %I ON %I TO ...;', sub, q);
		END IF;
	ELSIF fits IS NOT NULL THEN
		RETURN QUERY SELECT * FROM queue._take_sifted_jsonb(s, u, p, fits, l, lim, least_events, within, lease, who, lag, proxied, nothing.due_ms);
		RETURN;
	ELSE
		-- the rest of the window, and the next one behind it
		FOR i IN 1 .. 2 LOOP
			lo := pg_snapshot_xmax(p.s1);
			IF p.s2 IS NULL THEN
				IF p.s1::text = u.ends::text THEN
					nothing.due_ms := 0;	-- it may go
					RETURN NEXT nothing;
					RETURN;
				END IF;
				w := coalesce(u.ends, queue._position());
				IF pg_snapshot_xmax(w) < lo THEN
					PERFORM queue._other_era(q);
				END IF;
				late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, w));
				EXECUTE format('SELECT floor, early FROM queue._floor_%s($1, $2, $3)', s.number) INTO fl, early
					USING lo, pg_snapshot_xmax(w), late;
				IF fl IS NULL AND early IS NULL THEN
					-- a position moves if that saves work: the next one looks at fewer xids
					IF cardinality(late) > 0 OR pg_snapshot_xmax(w)::text::numeric - lo::text::numeric > 1000 OR u.ends IS NOT NULL THEN
						p.s2 := w;
						p := queue._move(p, u, 0, true);
					END IF;
					nothing.due_ms := CASE WHEN u.ends IS NOT NULL THEN 0 ELSE nothing.due_ms END;
					RETURN NEXT nothing;
					RETURN;
				END IF;
				p.s2 := w;
				p.early := early IS NOT NULL;
				p.floor := coalesce(fl, 9223372036854775807);
				p.last := coalesce(u.from_id - 1, 0);
			ELSE
				late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE p.early AND pg_visible_in_snapshot(x, p.s2));
			END IF;
			EXECUTE format(CASE WHEN u.lanes = 1 THEN 'SELECT * FROM queue._cut_%s($1, $2, $3, $4, $5, $6, $7, $8)'
					ELSE 'SELECT * FROM queue._cut_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s, %s)' END,
					s.number, u.lanes, u.lane, u.lanes * lim * 2 + 1000)
				INTO cut USING lo, p.s2, CASE WHEN p.early THEN late ELSE '{}' END, p.floor, p.last, 9223372036854775807,
					u.from_time, lim;
			got := cut.events;
			IF u.lanes > 1 THEN
				reach := cut.reach;
			END IF;
			IF lag > interval '0' AND got > 0 THEN
				old := queue._cut_old(s.number, u, lo, p.s2, CASE WHEN p.early THEN late ELSE '{}' END, p.floor, p.last, cut.ends, got,
					clock_timestamp() - lag);
				young := old.young;
				IF young IS NOT NULL THEN
					got := old.events;
					cut.ends := old.ends;
					cut.oldest := old.oldest;
					reach := NULL;
				END IF;
			END IF;
			IF got = 0 AND young IS NOT NULL
					OR got > 0 AND got < least_events AND cut.oldest + coalesce(lag, interval '0') + within > clock_timestamp() THEN
				nothing.due_ms := least(nothing.due_ms, greatest(ceil(least(extract(epoch FROM least(young + lag,
					CASE WHEN got > 0 THEN cut.oldest + coalesce(lag, interval '0') + within END) - clock_timestamp()), 31536000) * 1000), 1));
				RETURN NEXT nothing;
				RETURN;
			END IF;
			free := got;
			IF u.blocks AND got > 0 THEN
				free := queue._hold_back(s.number, u, lo, p.s2, CASE WHEN p.early THEN late ELSE '{}' END, p.floor, p.last, cut.ends, got);
			END IF;
			IF free > 0 THEN
				INSERT INTO queue.deliveries VALUES (p.sub, p.delivery + 1, p.owner,
						queue._delivery_digits(), p.s1, p.s2, p.floor, p.early, p.last,
						cut.ends, got, 1, clock_timestamp() + coalesce(lease, u.lease), clock_timestamp(), left(who, 200), NULL, proxied)
					RETURNING * INTO d;
				p.delivery := d.id;
			END IF;
			IF got = lim OR young IS NOT NULL THEN
				p.last := cut.ends;
			ELSE
				p.last := reach;
			END IF;
			p := queue._move(p, u, got, p.last IS NULL);
			EXIT WHEN free > 0;
			IF got > 0 OR reach IS NOT NULL THEN		-- there may be more
				nothing.due_ms := 1;
			END IF;
		END LOOP;
		IF free = 0 THEN
			RETURN NEXT nothing;
			RETURN;
		END IF;
	END IF;
	leased.token := d.sub || '-d' || d.id || '-' || d.token;
	leased."out" := queue._lasts(d);
	IF leased."out" IS NOT NULL THEN
		RETURN NEXT leased;
	END IF;
	RETURN QUERY EXECUTE format('SELECT e.id, $9, $10, $11, e.payload, e.headers, e.key, e."group", e.pushed_at, $12, e.xid,
			NULL::int8, NULL::text FROM queue.' || CASE WHEN u.lanes = 1 THEN '_read_%s($1, $2, $3, $4, $5, $6, $7, $8) AS e'
				ELSE '_read_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s) AS e' END, s.number, u.lanes, u.lane)
			|| CASE WHEN u.blocks THEN ' WHERE NOT EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = $13 AND r.id = e.id AND r.blocks)' ELSE '' END
		USING lo, d.s2, CASE WHEN d.early THEN late ELSE '{}' END, d.floor, d.last, d.upto, u.from_time, d.events,
			leased.token, q, d.attempt, d.lease_until, u.number;
END
$$;

-- parallel: of one lane after the other, until there is something.
CREATE OR REPLACE FUNCTION queue._take_lanes_jsonb(s queue.streams, u queue.subscriptions, lim int4, least_events int4, within interval,
	lease interval, who text, lag interval, fits int8[] DEFAULT NULL, l queue._look DEFAULT NULL) RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free record;
	number int4;
	one queue._delivered_jsonb;
	nothing queue._delivered_jsonb;
	finished bool;
BEGIN
	FOR i IN 1 .. 3 LOOP
		free := queue._free_lanes(s, u);
		nothing.due_ms := free.due_ms;
		IF free.outs IS NOT NULL THEN
			FOREACH nothing."out" IN ARRAY free.outs LOOP
				RETURN NEXT nothing;
			END LOOP;
			RETURN;
		END IF;
		finished := free.numbers IS NULL;
		IF l.sub = ANY (free.numbers) THEN	-- WHERE: no other one is locked before that which was looked at
			free.numbers := l.sub || array_remove(free.numbers, l.sub);
		END IF;
		FOREACH number IN ARRAY coalesce(free.numbers, '{}') LOOP
			FOR one IN SELECT * FROM queue._take_long_jsonb(s.name, u.name, lim, least_events, within, lease, who, lag, number, fits, l) LOOP
				IF one.token IS NOT NULL THEN
					RETURN NEXT one;
				ELSIF one.due_ms = 0 THEN
					finished := true;
				ELSE
					nothing.due_ms := least(nothing.due_ms, one.due_ms);
				END IF;
			END LOOP;
			IF one.token IS NOT NULL THEN
				RETURN;
			END IF;
		END LOOP;
		IF NOT finished THEN
			IF i > 1 AND fits IS NOT NULL THEN	-- those that follow were not looked at
				nothing.due_ms := -1;
			END IF;
			EXIT;
		END IF;
		nothing.due_ms := 100;
	END LOOP;
	RETURN NEXT nothing;
END
$$;

-- By the name of the stream.
CREATE OR REPLACE FUNCTION queue._take_for(q text, sub text, lim int4, least_events int4, within interval, lease interval, who text,
	lag interval DEFAULT NULL, brief bool DEFAULT false) RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams := queue._find_stream(q);
BEGIN
	IF to_regproc('queue._take_for_' || s.number) IS NULL THEN	-- it was made anew since
		s := queue._find_stream(q);
	END IF;
	IF s.payload <> 'jsonb' THEN
		PERFORM queue._check_events(s, 'jsonb');
	END IF;
	RETURN QUERY EXECUTE format('SELECT * FROM queue._take_for_%s($1, $2, $3, $4, $5, $6, $7, $8, $9)', s.number)
		USING q, sub, lim, least_events, within, lease, who, lag, brief;
END
$$;

CREATE OR REPLACE FUNCTION queue.take_for(q text, sub text, lim int4 DEFAULT 100, least_events int4 DEFAULT NULL,
	within interval DEFAULT NULL, lease interval DEFAULT NULL, worker text DEFAULT NULL, lag interval DEFAULT NULL)
	RETURNS SETOF queue.delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	before CONSTANT text := current_setting('synchronous_commit');
BEGIN
	RETURN QUERY SELECT t.id, t.token, t.queue, t.attempt, t.payload::jsonb, t.headers, t.key, t."group", t.pushed_at, t.lease_until, t.xid::text::int8
		FROM queue._take_for(q, sub, lim, least_events, within, lease, worker, lag) AS t WHERE t.id IS NOT NULL;
	PERFORM set_config('synchronous_commit', before, true);	-- as in take
END
$$;

-- --- the ends ---

-- The delivery of a token, or an error: also of one that is not the caller's.
CREATE OR REPLACE FUNCTION queue._delivery(token text, OUT number int4, OUT id int8, OUT digits text, OUT s queue.streams)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	u queue.subscriptions;
BEGIN
	IF token !~ '^[0-9]{1,9}-d[0-9]{1,18}-[0-9a-f]{16}$' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('"%s" is not the token of a delivery', left(token, 80)),
			HINT = 'Pass the token that TAKE returned.';
	END IF;
	number := split_part(token, '-', 1)::int4;
	id := substr(split_part(token, '-', 2), 2)::int8;
	digits := split_part(token, '-', 3);
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = split_part($1, '-', 1)::int4;
	IF FOUND THEN
		PERFORM queue._must_read(u);
	END IF;
	SELECT * INTO s FROM queue.streams AS t WHERE t.number = u.stream;
END
$$;

-- Of a delivery that has failed, or was given back, and waits for its next attempt: a token that nobody has, or could have.
CREATE OR REPLACE FUNCTION queue._waiting_token() RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'w' || encode(substr(uuid_send(gen_random_uuid()), 9), 'hex');
END
$$;

-- Nothing was changed: is it so, or does an old snapshot say it? The proxy reads the detail when a DONE is repeated of whose end
-- it has not heard: done and gone.
CREATE OR REPLACE FUNCTION queue._delivery_lost(number int4, id int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	u queue.subscriptions;
	d queue.deliveries;
	why text;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('delivery %s-d%s is not there in this transaction', number, id),
			DETAIL = 'Its snapshot may be older than the delivery, or its lease is over.',
			HINT = 'TAKE before BEGIN, or use READ COMMITTED; then repeat the transaction.';
	END IF;
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = $1;
	SELECT * INTO d FROM queue.deliveries AS t WHERE t.sub = $1 AND t.id = $2;
	why := CASE WHEN u.number IS NULL THEN 'The subscription is gone, or parallel was changed.'
		WHEN d.lease_until <= clock_timestamp() AND d.token ~ '^[0-9a-f]' THEN format('It was over at %s.', d.lease_until)
		WHEN d.id IS NOT NULL THEN 'It was over, or given back; its events are delivered again.'
		WHEN $2 <= u.sought THEN 'The subscription was moved by SEEK.'
		WHEN $2 <= (SELECT max(p.delivery) FROM queue.positions AS p WHERE p.sub = $1) THEN 'The delivery is done and gone.'
		ELSE 'There has never been such a delivery.' END;
	RAISE EXCEPTION USING ERRCODE = 'QB001', MESSAGE = format('the lease of delivery %s-d%s is lost', $1, $2), DETAIL = why,
		HINT = 'Roll back what was done for it: its events are delivered again, unless they are done.';
END
$$;

CREATE OR REPLACE FUNCTION queue._done_delivery(token text, other text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
	d record;
	there bool := false;
	tell text;	-- by an assignment: PERFORM would be a statement
BEGIN
	IF other IS NULL AND $1 ~ '^[0-9]{1,9}-d[0-9]{1,18}-[0-9a-f]{16}$' THEN
		SELECT t.sub, t.id, t.s2 IS NULL AS retries, s.number, s.name, u.name AS of INTO d FROM queue.deliveries AS t
			JOIN queue.subscriptions AS u ON u.number = t.sub JOIN queue.streams AS s ON s.number = u.stream
			WHERE t.sub = split_part($1, '-', 1)::int4 AND t.id = substr(split_part($1, '-', 2), 2)::int8 AND t.token = split_part($1, '-', 3)
				AND t.lease_until > clock_timestamp() AND pg_has_role(t.owner, 'USAGE') FOR UPDATE OF t;
		there := FOUND;
	END IF;
	IF NOT there THEN	-- what is wrong?
		d := queue._delivery($1);
		IF other IS NOT NULL THEN
			PERFORM queue._not_of_streams(other, 'A delivery leaves nothing behind: DONE token.');
		END IF;
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	INSERT INTO queue._ended VALUES (d.sub, d.id);
	IF d.retries THEN
		INSERT INTO queue._gone VALUES ('retries', d.sub, d.id);
	END IF;
	tell := queue._tell(-d.sub, 'of no queue: ended for ' || d.of || ' of ' || d.name);	-- to who waits for its end
	RETURN d.name;
END
$$;

-- All of it again, after a while: twice as long each time, up to a minute, unless "retry" says otherwise. Or these events
-- alone; and those of a delivery of retries, each of which has its own time.
CREATE OR REPLACE FUNCTION queue._fail_delivery(token text, error text, retry_in interval, final bool, notify bool, events text[])
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	d CONSTANT record := queue._delivery(token);
	u queue.subscriptions;
BEGIN
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = d.number;
	IF events IS NOT NULL OR final OR EXISTS (SELECT FROM queue.deliveries AS t WHERE t.sub = d.number AND t.id = d.id AND t.s2 IS NULL) THEN
		PERFORM queue._fail_events(d, u, events, error, retry_in, final, notify);
		RETURN (d.s).name;
	END IF;
	UPDATE queue.deliveries AS t SET token = queue._waiting_token(), proxy = NULL, error = left($2, 10000),
			lease_until = clock_timestamp() + queue._event_again(u, t.attempt, retry_in)
		WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits AND t.lease_until > clock_timestamp();
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell((d.s).number, (d.s).name);
	RETURN (d.s).name;
END
$$;

CREATE OR REPLACE FUNCTION queue._release_delivery(token text, delay interval, notify bool) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	d CONSTANT record := queue._delivery(token);
BEGIN
	UPDATE queue.deliveries AS t SET token = queue._waiting_token(), proxy = NULL, attempt = t.attempt - 1,
			lease_until = clock_timestamp() + coalesce(greatest(delay, interval '0'), interval '0')
		WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits AND t.lease_until > clock_timestamp();
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell((d.s).number, (d.s).name);
	RETURN (d.s).name;
END
$$;

-- Whoever had it is gone. The name of the stream; nothing: it is not out any more.
CREATE OR REPLACE FUNCTION queue._give_back_delivery(token text, error text, counted bool) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	reader CONSTANT int4 := split_part($1, '-', 1)::int4;
BEGIN
	UPDATE queue.deliveries AS t SET token = queue._waiting_token(), proxy = NULL,
			attempt = CASE WHEN counted THEN t.attempt ELSE t.attempt - 1 END,
			error = CASE WHEN counted THEN left($2, 10000) ELSE t.error END,
			lease_until = clock_timestamp() + CASE WHEN counted AND t.attempt > 1	-- the first time at once
				THEN make_interval(secs => least(60, power(2, least(t.attempt, 10) - 2))) ELSE interval '0' END
		WHERE t.sub = reader AND t.id = substr(split_part($1, '-', 2), 2)::int8 AND t.token = split_part($1, '-', 3)
			AND t.lease_until > clock_timestamp();
	IF FOUND THEN
		RETURN QUERY SELECT s.name FROM queue.streams AS s JOIN queue.subscriptions AS u ON u.stream = s.number
			WHERE u.number = reader;
	END IF;
END
$$;

-- Makes these deliveries the proxy's, or nobody's (_own).
CREATE OR REPLACE FUNCTION queue._own_deliveries(tokens text[], owner int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
	UPDATE queue.deliveries AS t SET proxy = $2 FROM (SELECT d.sub, d.id FROM unnest(tokens) AS w (token), queue.deliveries AS d
			WHERE w.token ~ '^[0-9]{1,9}-d[0-9]{1,18}-' AND d.sub = split_part(w.token, '-', 1)::int4
				AND d.id = substr(split_part(w.token, '-', 2), 2)::int8 AND d.token = split_part(w.token, '-', 3)
			FOR UPDATE OF d SKIP LOCKED) AS own
		WHERE t.sub = own.sub AND t.id = own.id;
END
$$;

-- Gives back those of proxies that are not there, of subscriptions that are the caller's. Nothing of anybody else is
-- executed by that, so it is not asked who has used what (_orphans). One whose token is none, which somebody has written by
-- hand, would be looked at for ever, in the place of others.
CREATE OR REPLACE FUNCTION queue._orphaned_deliveries(there int4[], most int4, OUT names text[], OUT again bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = on	-- a row for each delivery that is out, and who calls has it off: that is "expensive", and compiled (jit)
AS $$
DECLARE
	held int8;
	orphans text[];
	owners int4[];
BEGIN
	names := '{}';
	again := false;
	SELECT count(*) INTO held FROM (SELECT FROM queue.deliveries AS d WHERE d.proxy <> ALL (there)
		AND d.lease_until > clock_timestamp() AND pg_has_role(d.owner, 'USAGE') AND d.token ~ '^[0-9a-f]{16}$' LIMIT most + 1) AS o;
	IF held > 0 THEN
		SELECT array_agg(o.token), array_agg(o.proxy) INTO orphans, owners
			FROM (SELECT d.sub || '-d' || d.id || '-' || d.token AS token, d.proxy FROM queue.deliveries AS d
			WHERE d.proxy <> ALL (there) AND d.lease_until > clock_timestamp() AND pg_has_role(d.owner, 'USAGE')
				AND d.token ~ '^[0-9a-f]{16}$' LIMIT most FOR UPDATE SKIP LOCKED) AS o;
		again := held > coalesce(cardinality(orphans), 0);
		orphans := queue._of_nobody_there(orphans, owners);
		names := ARRAY(SELECT DISTINCT g FROM unnest(orphans) AS t, LATERAL queue._give_back_delivery(t, 'worker disconnected', true) AS g);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._extend_delivery(token text, lease interval, until timestamptz, progress text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	d CONSTANT record := queue._delivery(token);
BEGIN
	IF progress IS NOT NULL THEN
		PERFORM queue._not_of_streams('PROGRESS', 'EXTEND token LEASE interval.');
	END IF;
	UPDATE queue.deliveries AS t SET lease_until = coalesce(until, clock_timestamp() + coalesce($2,
			(SELECT u.lease FROM queue.subscriptions AS u WHERE u.number = d.number)))
		WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits AND t.lease_until > clock_timestamp();
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	RETURN (d.s).name;
END
$$;
