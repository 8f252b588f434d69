-- TAKE ... FOR with WHERE: a delivery has the events that fit, and the position passes the others.
--
-- As with jobs (where.sql) the condition is not for these functions to run: it stands in the statement that calls them, as
-- the client's SQL with the client's rights and search_path (src/queue/calls.h), between a look and a take. The look locks
-- nothing, so a condition that takes long, or fails, holds up nobody: what it has looked at is a position and a window, and
-- the take, behind the lock of the subscription, does nothing if that has moved.
--
-- A look is at some thousand events; the next one goes on behind them, in another transaction.
--
-- Of several lanes one is looked at, the first that has something. If nothing of that comes now, as nothing fits, or it has to wait
-- (MIN, LAG), or is somebody's, the proxy is told which lanes have been looked at ("passed"), and asks at once about the others. Those
-- that have nothing at all are found in the same look, and move with the take, if that has nothing either.
--
-- said: stream, subscription, LIMIT, MIN, WITHIN, LEASE, AS, the proxy, the seed of the token, LAG, which lanes have been looked at.

-- How many events are looked at, step by step: mostly, what fits is in front. No rows: there is nothing to look at. What
-- comes again comes first, whatever the condition is: it was chosen before, and take knows.
CREATE OR REPLACE FUNCTION queue._look_for(said text[], kind text) RETURNS TABLE (n int4, most int4)
LANGUAGE plpgsql ROWS 1		-- else it is "expensive", and each look compiled (jit)
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(said[1]);
	u queue.subscriptions := queue._find_subscription(s, said[2]);
	p queue.positions;
	l queue._look;
	found queue._look;
	fl int8;
	early int8;
	numbers int4[] := ARRAY[u.number];
	one int4;
	several CONSTANT bool := u.lanes > 1 OR u.waits;
	idle queue.positions[] := '{}';	-- of lanes that have nothing: where they go
	begun text;	-- the position of which the window was looked at
	cut record;
	none bool;	-- it has nothing
	leased timestamptz;
BEGIN
	IF s.payload <> kind THEN
		PERFORM queue._check_events(s, kind);
	END IF;
	PERFORM queue._must_read(u);
	PERFORM queue._must_select(s);
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM queue._needs_read_committed('TAKE ... FOR');
	END IF;
	PERFORM queue._same_era(s);
	IF several THEN
		numbers := coalesce((queue._free_lanes(u)).numbers, '{}');
	END IF;
	found.seen := numbers;
	found.passed := coalesce(said[11]::int4[], '{}');
	FOREACH one IN ARRAY numbers LOOP
		CONTINUE WHEN one = ANY (found.passed);
		SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = one;
		SELECT * INTO p FROM queue.positions AS t WHERE t.sub = one ORDER BY t.seq DESC LIMIT 1;
		CONTINUE WHEN u.number IS NULL;		-- it is gone
		EXIT WHEN p.sub IS NULL OR u.lost_at IS NOT NULL;	-- take tells that
		SELECT d.lease_until INTO leased FROM queue.deliveries AS d WHERE d.sub = one AND d.id = p.delivery;
		CONTINUE WHEN several AND leased > clock_timestamp();	-- it was taken just now
		IF leased IS NOT NULL OR EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = one AND NOT r.dead AND r.delivery IS NULL
				AND r.due_at <= clock_timestamp()) THEN
			found.sub := one;
			EXIT;
		END IF;
		CONTINUE WHEN u.waits OR p.s2 IS NULL AND p.s1::text = u.ends::text;
		IF l.ends IS DISTINCT FROM u.ends::text OR begun IS DISTINCT FROM p.s1::text OR p.s2 IS NOT NULL THEN
			begun := NULL;
			IF cardinality(idle) = 0 THEN
				found.ends := u.ends;
			END IF;
			l := NULL;
			l.ends := u.ends;
			l.stream := s.number;
			l.lo := pg_snapshot_xmax(p.s1);
			l.since := u.from_time;
			l.before := CASE WHEN said[10]::interval > interval '0' THEN clock_timestamp() - said[10]::interval END;
			l.rest := p.s2 IS NOT NULL;
			IF l.rest THEN
				l.w := p.s2;
				l.floor := p.floor;
				l.early := p.early;
				l.last := p.last;
				l.ended := false;
			ELSE
				l.w := coalesce(u.ends, queue._position());
				IF pg_snapshot_xmax(l.w) < l.lo THEN
					PERFORM queue._other_era(s.name);
				END IF;
			END IF;
			l.late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, l.w));
			IF NOT l.rest THEN	-- of another lane it may be the same
				EXECUTE format('SELECT floor, early FROM queue._floor_%s($1, $2, $3)', s.number) INTO fl, early
					USING l.lo, pg_snapshot_xmax(l.w), l.late;
				begun := p.s1;
				l.floor := coalesce(fl, 9223372036854775807);
				l.early := early IS NOT NULL;
				l.last := coalesce(u.from_id - 1, 0);
				l.ended := fl IS NULL AND early IS NULL;
			END IF;
		END IF;
		IF several AND NOT l.rest THEN
			none := l.ended;
			IF NOT l.ended AND u.lanes > 1 THEN	-- is any of it its own?
				EXECUTE format('SELECT * FROM queue._cut_lane_%s($1, $2, $3, $4, $5, $6, $7, 1, %s, %s, 2000)', l.stream, u.lanes, u.lane)
					INTO cut USING l.lo, l.w, CASE WHEN l.early THEN l.late ELSE '{}' END, l.floor, l.last, 9223372036854775807, l.since;
				none := cut.events = 0 AND cut.reach IS NULL;
			END IF;
			IF none THEN
				found.passed := found.passed || one;
				IF found.ends IS NOT DISTINCT FROM l.ends AND (NOT l.ended OR cardinality(l.late) > 0 OR u.ends IS NOT NULL
						OR pg_snapshot_xmax(l.w)::text::numeric - l.lo::text::numeric > 1000) THEN
					p.s2 := l.w;
					p.last := NULL;
					idle := idle || p;
				END IF;
				CONTINUE;
			END IF;
		END IF;
		l.seen := found.seen;
		l.passed := found.passed;
		l.sub := one;
		l.seq := p.seq;
		IF l.ends IS DISTINCT FROM found.ends THEN
			idle := '{}';
		END IF;
		found := l;
		EXIT;
	END LOOP;
	found.idle := cardinality(idle);
	IF found.idle > 0 THEN
		PERFORM set_config('qbouncer.idle', idle::text, true);
	END IF;
	PERFORM set_config('qbouncer.looked', found::text, true);
	IF NOT found.ended THEN
		RETURN QUERY SELECT i, CASE i WHEN 1 THEN least(2 * said[3]::int4 + 40, 1000) ELSE 1000 END FROM generate_series(1, 10) AS i;
	END IF;
END
$$;

-- The next events, in order. Of one with several lanes those of its own; then it looks past others, too.
CREATE OR REPLACE FUNCTION queue._look_at_jsonb(n int4, most int4) RETURNS SETOF queue._sighted_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
	l queue._look := nullif(current_setting('qbouncer.looked', true), '')::queue._look;
	u queue.subscriptions;
	cut record;
	old record;
	at CONSTANT int8 := coalesce(l.reach, l.last);
	late CONSTANT xid8[] := CASE WHEN l.early THEN l.late ELSE '{}' END;
	past int8;		-- of a lane: so far was looked, if not to the end
BEGIN
	IF l.ended IS DISTINCT FROM false OR l.young IS NOT NULL THEN
		RETURN;
	END IF;
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = l.sub;
	IF NOT FOUND THEN	-- it is gone since the look: take tells that
		RETURN;
	END IF;
	IF u.lanes > 1 THEN
		EXECUTE format('SELECT * FROM queue._cut_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s, 2000)', l.stream, u.lanes, u.lane)
			INTO cut USING l.lo, l.w, late, l.floor, at, 9223372036854775807, l.since, most;
		past := cut.reach;
	ELSE
		EXECUTE format('SELECT * FROM queue._cut_%s($1, $2, $3, $4, $5, $6, $7, $8)', l.stream)
			INTO cut USING l.lo, l.w, late, l.floor, at, 9223372036854775807, l.since, most;
	END IF;
	IF l.before IS NOT NULL AND cut.events > 0 THEN
		old := queue._cut_old(l.stream, u, l.lo, l.w, late, l.floor, at, cut.ends, cut.events, l.before);
		l.young := old.young;
		IF l.young IS NOT NULL THEN
			cut.events := old.events;
			cut.ends := old.ends;
		END IF;
	END IF;
	l.ended := l.young IS NULL AND cut.events < most AND past IS NULL;
	l.reach := CASE WHEN l.young IS NULL AND cut.events < most AND past IS NOT NULL THEN past ELSE coalesce(cut.ends, l.reach) END;
	PERFORM set_config('qbouncer.looked', l::text, true);
	IF cut.events > 0 THEN
		RETURN QUERY EXECUTE format('SELECT e.id, e.payload::jsonb, e.headers, e.key, e."group", e.pushed_at, e.xid::text::int8 FROM %s AS e',
				queue._reader(l.stream, u, '$1, $2, $3, $4, $5, $6, $7, $8'))
			USING l.lo, l.w, late, l.floor, at, cut.ends, l.since, cut.events;
	END IF;
END
$$;

-- The events of a delivery that has chosen ones.
CREATE OR REPLACE FUNCTION queue._deliver_chosen_jsonb(s queue.streams, u queue.subscriptions, d queue.deliveries)
RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	there int4;
	leased queue._delivered_jsonb;
BEGIN
	EXECUTE format('SELECT count(*) FROM (%s) AS c', queue._each_of_ring(s.number, 'SELECT FROM @e@ WHERE id = ANY ($1)', ' UNION ALL '))
		INTO there USING d.chosen;
	IF there <> d.events THEN
		RAISE EXCEPTION USING ERRCODE = 'QB005', MESSAGE = format('events of delivery %s-d%s are lost', d.sub, d.id),
			DETAIL = format('It had %s events, of which there are %s.', d.events, there),
			HINT = format('Go on behind them: QUEUE SEEK %I ON %I TO ...;', u.name, s.name);
	END IF;
	leased.token := d.sub || '-d' || d.id || '-' || d.token;
	leased."out" := queue._lasts(d);
	IF leased."out" IS NOT NULL THEN
		RETURN NEXT leased;
	END IF;
	RETURN QUERY EXECUTE format('SELECT e.id, $2, $3, $4, e.payload, e.headers, e.key, e."group", e.pushed_at, $5, e.xid,
				NULL::int8, NULL::text, NULL::int4[]
			FROM %s AS e WHERE NOT $6 OR NOT EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = $7 AND r.id = e.id AND r.blocks)
			ORDER BY e.id', queue._reader(s.number, u, NULL, '$1'))
		USING d.chosen, leased.token, s.name, d.attempt, d.lease_until, u.blocks, u.number;
END
$$;

-- Of TAKE, before it locks anything: is this the lane that was looked at, as it was then, and is there something to be done? Else when
-- there may be something; 0: at once, as there is more to look at. goes: it has read all that it shall. passes: not before due_ms, and
-- other lanes may have what need not wait. own_ms: when something of it comes again.
CREATE OR REPLACE FUNCTION queue._is_sifted(s queue.streams, u queue.subscriptions, p queue.positions, fits int8[], l queue._look,
	least_events int4, within interval, lag interval, own_ms int8, OUT acts bool, OUT goes bool, OUT passes bool, OUT due_ms int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
	oldest timestamptz;
BEGIN
	acts := false;
	passes := false;
	goes := coalesce(p.s2 IS NULL AND p.s1::text = u.ends::text, false);
	due_ms := own_ms;
	IF goes THEN
		RETURN;
	ELSIF l.sub IS DISTINCT FROM u.number THEN	-- it was not looked at
		RETURN;
	ELSIF l.seq <> p.seq OR l.ends IS DISTINCT FROM u.ends::text THEN
		due_ms := 0;
	ELSE
		IF cardinality(fits) BETWEEN 1 AND least_events - 1 THEN
			EXECUTE format('SELECT min(pushed_at) FROM (%s) AS c', queue._each_of_ring(s.number,
				'SELECT pushed_at FROM @e@ WHERE id = ANY ($1)', ' UNION ALL ')) INTO oldest USING fits;
			oldest := oldest + coalesce(lag, interval '0') + within;
			IF oldest > clock_timestamp() THEN
				passes := true;
				due_ms := least(own_ms, queue._ms_until(least(oldest, l.young + lag)));
				RETURN;
			END IF;
		END IF;
		-- nothing was looked at: a position moves if that saves work, as without a condition
		acts := fits <> '{}' OR l.reach IS NOT NULL OR l.ended AND (l.rest OR cardinality(l.late) > 0 OR u.ends IS NOT NULL
			OR u.lanes > 1 AND (l.early OR l.floor < 9223372036854775807)	-- all of it is of other lanes: the next look is at one of them
			OR pg_snapshot_xmax(l.w)::text::numeric - l.lo::text::numeric > 1000);
		IF NOT acts AND l.young IS NOT NULL THEN
			passes := true;
			due_ms := least(own_ms, queue._ms_until(l.young + lag));
		ELSIF NOT acts AND NOT l.ended THEN
			due_ms := 0;
		END IF;
	END IF;
END
$$;

-- ... and behind its lock: a delivery of these, and the position moves behind what was looked at. goes, passes, due_ms: as there.
CREATE OR REPLACE FUNCTION queue._sift(s queue.streams, u queue.subscriptions, p queue.positions, fits int8[], l queue._look,
	lim int4, lease interval, who text, lag interval, proxied int4, own_ms int8, OUT d queue.deliveries, OUT goes bool, OUT passes bool,
	OUT due_ms int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_variable
DECLARE
	got CONSTANT int4 := cardinality(fits);
	free int4 := got;	-- of them, how many need not wait for others
BEGIN
	IF u.blocks AND got > 0 THEN
		free := queue._hold_back(s.number, u, l.lo, l.w, NULL, NULL, NULL, NULL, NULL, fits);
	END IF;
	IF free > 0 THEN
		INSERT INTO queue.deliveries VALUES (p.sub, p.delivery + 1, p.owner, queue._delivery_digits(), p.s1, l.w, l.floor, l.early, l.last,
				fits[got], got, 1, clock_timestamp() + coalesce(lease, u.lease), clock_timestamp(), left(who, 200), NULL, proxied, fits)
			RETURNING * INTO d;
		p.delivery := d.id;
	END IF;
	p.s2 := l.w;
	p.floor := l.floor;
	p.early := l.early;
	p.last := CASE WHEN got = lim THEN fits[got] ELSE coalesce(l.reach, l.last) END;
	p := queue._move(p, u, got, got < lim AND l.ended);
	due_ms := own_ms;
	goes := coalesce(p.s1::text = u.ends::text, false);
	IF NOT goes AND (got > 0 OR NOT l.ended OR l.rest) THEN	-- what is too young is told when nothing else moves
		due_ms := 0;
	END IF;
	passes := NOT goes AND (l.early OR l.floor < 9223372036854775807);
END
$$;

CREATE OR REPLACE FUNCTION queue._take_where_for_jsonb(said text[], fits int8[]) RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM queue._take_long_jsonb(said[1], said[2], said[3]::int4, said[4]::int4, said[5]::interval, said[6]::interval, said[7],
		said[10]::interval, true, ARRAY(SELECT DISTINCT f FROM unnest(fits) AS f ORDER BY f),
		nullif(current_setting('qbouncer.looked', true), '')::queue._look);
END
$$;
