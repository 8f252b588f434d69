-- TAKE ... FOR, the long way: whatever is not as most takes are (take_for.sql). Something of the subscription has failed, is over, or
-- was lost; LAG, on_fail = block, WHERE (sift.sql); parallel is being changed. deliver.sql says what a delivery is.
--
-- Here, too, a take keeps the lock of no lane but that of its delivery. Of several lanes none is locked before something was found
-- there: what was seen holds as long as the position has not moved, which is asked with the lock. One that has nothing moves when no
-- other one has anything either. One that was locked and had nothing after all (each event has to wait for others of its group) is
-- another one than before; what the next lane has is then left to the next take: who is brief, the proxy, is told to ask at once (due_ms 0).
-- What somebody may have locked beside the lane, a delivery that is over, or retries, is tried in a subtransaction, with the lane.

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

-- A lane is locked, if it is as it was looked at, and its position has not moved: the row. NULL: another take has it, which gets what
-- there is, or it is gone, or parallel was changed just now.
CREATE OR REPLACE FUNCTION queue._hold_lane(p queue.positions, ends pg_snapshot) RETURNS queue.subscriptions
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	held queue.subscriptions;
BEGIN
	SELECT t.* INTO held FROM queue.subscriptions AS t, queue.positions AS o WHERE t.number = p.sub AND NOT t.waits AND t.lost_at IS NULL
		AND t.ends::text IS NOT DISTINCT FROM $2::text AND o.sub = t.number AND o.seq = p.seq FOR NO KEY UPDATE SKIP LOCKED;
	RETURN held;
END
$$;

-- ... NULL: what has changed between the snapshot of that statement and its lock, a position, or parallel, is seen behind the lock only,
-- and the lane stays locked. Has it? Then this take may have it, whatever it is told.
CREATE OR REPLACE FUNCTION queue._has_changed(p queue.positions, ends pg_snapshot) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NOT EXISTS (SELECT FROM queue.subscriptions AS t, queue.positions AS o WHERE t.number = p.sub AND NOT t.waits AND t.lost_at IS NULL
		AND t.ends::text IS NOT DISTINCT FROM $2::text AND o.sub = t.number AND o.seq = p.seq);
END
$$;

-- A delivery that is over, with its lane; NULL: neither is locked, as somebody is about to take it, to end or to extend it.
CREATE OR REPLACE FUNCTION queue._hold_over(p queue.positions, ends pg_snapshot) RETURNS queue.deliveries
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	d queue.deliveries;
BEGIN
	IF (queue._hold_lane(p, ends)).number IS NOT NULL THEN
		SELECT * INTO d FROM queue.deliveries AS t WHERE t.sub = p.sub AND t.id = p.delivery FOR UPDATE SKIP LOCKED;
		IF d.lease_until <= clock_timestamp() THEN
			RETURN d;
		END IF;
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'QBLET', MESSAGE = 'it is somebody else''s';
EXCEPTION WHEN SQLSTATE 'QBLET' THEN
	RETURN NULL;
END
$$;

-- So many milliseconds from now.
CREATE OR REPLACE FUNCTION queue._ms_until(due timestamptz) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN greatest(ceil(least(extract(epoch FROM due - clock_timestamp()), 31536000) * 1000), 1);
END
$$;

-- The next events of a subscription, or of a lane of it: of the rest of its window, or of the next one behind it. Nothing is locked, or
-- changed. p: its position, with the window that was looked at. got: so many, up to the id "ends"; then it has been looked up to
-- "reach", or to the end. 0: none, or not before due_ms; moves: then p says where it may go; goes: it has read all that it shall. begun:
-- the window that was looked at of another lane, or now; its floor is NULL if it has nothing at all.
CREATE OR REPLACE FUNCTION queue._next_events(s queue.streams, u queue.subscriptions, lim int4, least_events int4, within interval, lag interval,
	INOUT p queue.positions, INOUT begun queue.positions, OUT got int4, OUT ends int8, OUT reach int8, OUT due_ms int8, OUT goes bool, OUT moves bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	fresh bool;
	past bool := false;	-- the window that had begun has nothing more
	lo xid8;
	late xid8[];
	fl int8;
	early int8;
	cut record;
	old record;
	young timestamptz;	-- LAG: when the first event was pushed that is not old enough
	full_at timestamptz;	-- MIN: then there are enough, however few
BEGIN
	LOOP
		fresh := p.s2 IS NULL;
		lo := pg_snapshot_xmax(p.s1);
		got := 0;
		IF fresh THEN
			IF p.s1::text = u.ends::text THEN
				goes := true;
				moves := past;
				p.s2 := p.s1;
				p.last := NULL;
				RETURN;
			END IF;
			IF begun.s1::text = p.s1::text THEN
				late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, begun.s2));
			ELSE
				begun := p;
				begun.s2 := coalesce(u.ends, queue._position());
				IF pg_snapshot_xmax(begun.s2) < lo THEN
					PERFORM queue._other_era(s.name);
				END IF;
				late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, begun.s2));
				EXECUTE format('SELECT floor, early FROM queue._floor_%s($1, $2, $3)', s.number) INTO fl, early
					USING lo, pg_snapshot_xmax(begun.s2), late;
				begun.early := early IS NOT NULL;
				begun.floor := CASE WHEN begun.early THEN coalesce(fl, 9223372036854775807) ELSE fl END;
			END IF;
			IF begun.floor IS NULL THEN
				goes := u.ends IS NOT NULL;
				-- a position moves if that saves work: the next one looks at fewer xids
				moves := cardinality(late) > 0 OR pg_snapshot_xmax(begun.s2)::text::numeric - lo::text::numeric > 1000 OR u.ends IS NOT NULL;
				p.s2 := CASE WHEN moves THEN begun.s2 ELSE p.s1 END;
				p.last := NULL;
				moves := moves OR past;
				RETURN;
			END IF;
			p.s2 := begun.s2;
			p.early := begun.early;
			p.floor := begun.floor;
			p.last := coalesce(u.from_id - 1, 0);
			p.top := NULL;
			p.rings := NULL;
		ELSIF p.early THEN
			late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, p.s2));
		END IF;
		late := CASE WHEN p.early THEN late ELSE '{}' END;
		EXECUTE format(CASE WHEN u.lanes = 1 THEN 'SELECT * FROM queue._cut_%s($1, $2, $3, $4, $5, $6, $7, $8)'
				ELSE 'SELECT * FROM queue._cut_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s, %s)' END,
				s.number, u.lanes, u.lane, u.lanes * lim * 2 + 1000)
			INTO cut USING lo, p.s2, late, p.floor, p.last, 9223372036854775807, u.from_time, lim;
		got := cut.events;
		reach := NULL;
		IF u.lanes > 1 THEN
			reach := cut.reach;
		END IF;
		IF lag > interval '0' AND got > 0 THEN
			old := queue._cut_old(s.number, u, lo, p.s2, late, p.floor, p.last, cut.ends, got, clock_timestamp() - lag);
			young := old.young;
			IF young IS NOT NULL THEN
				got := old.events;
				cut.ends := old.ends;
				cut.oldest := old.oldest;
			END IF;
		END IF;
		full_at := CASE WHEN got > 0 THEN cut.oldest + coalesce(lag, interval '0') + within END;
		IF got = 0 AND young IS NOT NULL OR got > 0 AND got < least_events AND full_at > clock_timestamp() THEN
			due_ms := queue._ms_until(least(young + lag, full_at));
			got := 0;
			moves := past;
			p.s2 := p.s1;
			p.last := NULL;
			RETURN;
		ELSIF got > 0 THEN
			ends := cut.ends;
			reach := CASE WHEN got = lim OR young IS NOT NULL THEN ends ELSE reach END;
			RETURN;
		END IF;
		p.last := reach;
		moves := true;
		goes := fresh AND reach IS NULL AND u.ends IS NOT NULL;
		EXIT WHEN fresh OR reach IS NOT NULL;
		past := true;
		p.s1 := p.s2;
		p.s2 := NULL;
	END LOOP;
END
$$;

-- fits: with WHERE, what fits of what was looked at (l).
CREATE OR REPLACE FUNCTION queue._take_long_jsonb(q text, sub text, lim int4, least_events int4, within interval, lease interval,
	who text, lag interval DEFAULT NULL, brief bool DEFAULT false, fits int8[] DEFAULT NULL, l queue._look DEFAULT NULL)
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
	reader queue.subscriptions;	-- all of it, or its first lane
	several bool;
	free record;
	numbers int4[];
	one int4;
	finished bool;	-- lanes have read all that they shall
	held int4;	-- a lane that is locked, and had nothing; 0: one may be
	idle queue.positions[] := '{}';	-- of lanes that have nothing: where they go
	till pg_snapshot;	-- all lanes that were looked at read so far
	begun queue.positions;
	place record;
	u queue.subscriptions;
	p queue.positions;
	d queue.deliveries;
	look record;
	sifted record;
	barred bool;	-- what is due of those that failed by themselves, somebody else has locked
	again bool := false;	-- the same events
	ready int4;	-- so many need not wait for others
	own_ms int8;
	passes bool := false;	-- WHERE: of what it has looked at nothing comes now, and the other lanes are asked for at once
	lo xid8;
	late xid8[];
	cut record;
	groups text[];
	proxied CONSTANT int4 := nullif(current_setting('qbouncer.proxy', true), '');
	nothing queue._delivered_jsonb;
	leased queue._delivered_jsonb;	-- its token, and how long it lasts; no event
BEGIN
	s := queue._find_stream(q);
	SELECT * INTO reader FROM queue.subscriptions AS t WHERE t.stream = s.number AND t.name = sub AND t.lane = 0 AND t.ends IS NULL;
	IF NOT FOUND THEN	-- or the stream was made anew since
		s := queue._find_stream(q);
		reader := queue._find_subscription(s, sub);
	END IF;
	IF s.payload <> 'jsonb' THEN
		PERFORM queue._check_events(s, 'jsonb');
	END IF;
	PERFORM queue._must_read(reader);
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
	-- one that a crash takes back comes again, and its token is worth nothing (see _take)
	PERFORM set_config('synchronous_commit', 'off', true);
	several := reader.lanes > 1 OR reader.waits;
	IF NOT several THEN
		PERFORM FROM queue.subscriptions AS t WHERE t.number = reader.number FOR NO KEY UPDATE SKIP LOCKED;
		IF NOT FOUND THEN	-- another take, which gets what there is; or it is gone
			nothing.due_ms := 100;
			RETURN NEXT nothing;
			RETURN;
		END IF;
		numbers := ARRAY[reader.number];
	END IF;
	<<search>>
	FOR round IN 1 .. 3 LOOP
		finished := false;
		begun := NULL;
		IF several THEN
			IF reader.waits AND (queue._changes_lanes(s, reader)).changed AND brief THEN	-- which locks others
				nothing.due_ms := 0;
				RETURN NEXT nothing;
				RETURN;
			END IF;
			free := queue._free_lanes(reader);
			nothing.due_ms := free.due_ms;
			IF free.outs IS NOT NULL THEN
				FOREACH nothing."out" IN ARRAY free.outs LOOP
					RETURN NEXT nothing;
				END LOOP;
				RETURN;
			END IF;
			numbers := free.numbers;
			finished := numbers IS NULL;
			IF l.sub = ANY (numbers) THEN	-- WHERE: that which was looked at comes first
				numbers := l.sub || array_remove(numbers, l.sub);
			ELSIF l.sub IS NOT NULL THEN	-- ... it is somebody's since, and the others were not looked at
				nothing.due_ms := 0;
			END IF;
		END IF;
		IF NOT numbers <@ l.seen THEN	-- WHERE: lanes are free, or there, since the look
			nothing.due_ms := 0;
		END IF;
		<<each>>
		FOREACH one IN ARRAY coalesce(numbers, '{}') LOOP
			barred := false;
			FOR i IN 1 .. 3 LOOP
				SELECT t AS u, o.p, x AS d, (SELECT r.due_at FROM queue.retries AS r WHERE r.sub = t.number AND NOT r.dead AND r.delivery IS NULL
							ORDER BY r.due_at, r.id LIMIT 1) AS due
					INTO place FROM queue.subscriptions AS t
						LEFT JOIN LATERAL (SELECT v AS p FROM queue.positions AS v WHERE v.sub = t.number ORDER BY v.seq DESC LIMIT 1) AS o ON true
						LEFT JOIN queue.deliveries AS x ON x.sub = t.number AND x.id = (o.p).delivery
					WHERE t.number = one;
				u := place.u;
				p := place.p;
				d := place.d;
				IF u.number IS NULL OR u.waits THEN	-- it is gone, or parallel was changed just now
					nothing.due_ms := least(nothing.due_ms, 100);
					CONTINUE each;
				ELSIF u.ends::text IS DISTINCT FROM till::text THEN
					-- the first one; or parallel was changed meanwhile: what was looked at until now may lie behind its end
					till := u.ends;
					begun := NULL;
					idle := '{}';
				END IF;
				IF u.lost_at IS NOT NULL THEN
					RAISE EXCEPTION USING ERRCODE = 'QB005', MESSAGE = format('subscription "%s" of stream "%s" has lost events', sub, q),
						DETAIL = format('Events up to id %s were removed by retain_max at %s.', u.lost_id, u.lost_at),
						HINT = format('Go on with the oldest that is kept: QUEUE SEEK %I ON %I TO BEGINNING;', sub, q);
				ELSIF p.sub IS NULL THEN
					RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('subscription "%s" of stream "%s" has lost its position', sub, q),
						HINT = format('QUEUE SEEK %I ON %I TO ...;', sub, q);
				ELSIF d.lease_until > clock_timestamp() THEN
					nothing."out" := CASE WHEN NOT several THEN d.sub || '-d' || d.id END;
					nothing.due_ms := least(nothing.due_ms, CASE WHEN several AND l.sub = one THEN 0 ELSE queue._ms_until(d.lease_until) END);
					CONTINUE each;
				END IF;
				look := NULL;
				sifted := NULL;
				own_ms := NULL;
				IF d.id IS NULL AND (place.due > clock_timestamp() OR place.due IS NULL OR barred) THEN
					own_ms := CASE WHEN barred THEN 100 WHEN isfinite(place.due) THEN queue._ms_until(place.due) END;
					nothing.due_ms := least(nothing.due_ms, own_ms);
					IF l.sub = one AND l.w IS NULL THEN	-- what comes again of it was seen
						passes := passes OR barred;
						nothing.due_ms := CASE WHEN barred THEN nothing.due_ms ELSE 0 END;
						CONTINUE each;
					ELSIF fits IS NOT NULL THEN
						sifted := queue._is_sifted(s, u, p, fits, l, least_events, within, lag, own_ms);
						IF NOT sifted.acts THEN
							finished := finished OR sifted.goes;
							passes := passes OR sifted.passes;
							nothing.due_ms := least(nothing.due_ms, sifted.due_ms);
							CONTINUE each;
						END IF;
					ELSE
						look := queue._next_events(s, u, lim, least_events, within, lag, p, begun);
						begun := look.begun;
						IF look.got = 0 THEN
							finished := finished OR coalesce(look.goes, false);
							nothing.due_ms := least(nothing.due_ms, look.due_ms);
							CONTINUE each WHEN NOT look.moves;
							p := look.p;
							IF NOT several OR held = one THEN
								p := queue._move(p, u, 0, p.last IS NULL);
							ELSIF p.last IS NULL OR held IS NOT NULL THEN
								idle := idle || p;
							-- at once, where the end was not seen: the same ids would be looked at each time, as long as another lane has something
							ELSIF queue._move_idle(ARRAY[p], till) THEN
								held := one;
							ELSE	-- another take has it, or it was changed just now
								IF queue._has_changed(p, till) THEN
									held := coalesce(held, 0);
								END IF;
								nothing.due_ms := least(nothing.due_ms, 100);
								CONTINUE each;
							END IF;
							IF p.last IS NOT NULL THEN	-- there may be more
								nothing.due_ms := least(nothing.due_ms, 1);
							END IF;
							CONTINUE each;
						END IF;
					END IF;
				END IF;
				-- it has something
				IF held <> one AND brief THEN
					PERFORM queue._move_idle(idle, till);
					nothing.due_ms := 0;
					RETURN NEXT nothing;
					RETURN;
				ELSIF d.id IS NOT NULL THEN
					d := queue._hold_over(p, u.ends);
					IF d.id IS NULL THEN
						nothing."out" := CASE WHEN NOT several THEN p.sub || '-d' || p.delivery END;
						passes := passes OR l.sub = one;
						nothing.due_ms := least(nothing.due_ms, 100);
						CONTINUE each;
					END IF;
					IF d.s2 IS NULL OR d.attempt >= u.max_attempts OR u.retry = 'none' AND d.attempt > 0 THEN
						groups := queue._retry_events(s.number, u, d, NULL, CASE WHEN d.attempt > 0 THEN coalesce(d.error, 'lease expired') END, NULL, false);
						INSERT INTO queue._gone VALUES ('deliveries', d.sub, d.id);
						IF groups IS NOT NULL THEN
							PERFORM queue._order_groups(u.number, groups);
						END IF;
						held := one;
						CONTINUE;
					END IF;
					-- the same events again: nothing of them goes away, and what is visible in a snapshot never changes
					UPDATE queue.deliveries SET attempt = d.attempt + 1, token = queue._delivery_digits(),
						lease_until = clock_timestamp() + coalesce(lease, u.lease), taken_at = clock_timestamp(), worker = left(who, 200), proxy = proxied
						WHERE sub = d.sub AND id = d.id RETURNING * INTO d;
					again := true;
					EXIT search;
				ELSIF look IS NULL AND sifted IS NULL THEN
					BEGIN
						u := queue._hold_lane(p, u.ends);
						IF u.number IS NOT NULL THEN
							RETURN QUERY SELECT * FROM queue._take_retries_jsonb(s, u, p, lim, lease, who, proxied);
							IF FOUND THEN
								RETURN;
							END IF;
						END IF;
						RAISE EXCEPTION USING ERRCODE = 'QBLET', MESSAGE = 'they are somebody else''s';
					EXCEPTION WHEN SQLSTATE 'QBLET' THEN
						barred := true;
					END;
					CONTINUE WHEN u.number IS NOT NULL;
					passes := passes OR l.sub = one;
					nothing.due_ms := least(nothing.due_ms, 100);
					CONTINUE each;
				END IF;
				IF several AND held IS DISTINCT FROM one THEN
					u := queue._hold_lane(p, till);
					IF u.number IS NULL THEN
						IF queue._has_changed(p, till) THEN
							held := coalesce(held, 0);
							nothing.due_ms := CASE WHEN l.sub = one THEN 0 ELSE nothing.due_ms END;
						ELSE
							passes := passes OR l.sub = one;
						END IF;
						nothing.due_ms := least(nothing.due_ms, 100);
						CONTINUE each;
					END IF;
				END IF;
				IF fits IS NOT NULL THEN
					sifted := queue._sift(s, u, p, fits, l, lim, lease, who, lag, proxied, own_ms);
					d := sifted.d;
					EXIT search WHEN d.id IS NOT NULL;
					held := one;
					finished := finished OR sifted.goes;
					passes := passes OR sifted.passes;
					nothing.due_ms := least(nothing.due_ms, sifted.due_ms);
					CONTINUE each;
				END IF;
				p := look.p;
				ready := look.got;
				IF u.blocks THEN
					lo := pg_snapshot_xmax(p.s1);
					late := CASE WHEN p.early THEN ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, p.s2)) ELSE '{}' END;
					ready := queue._hold_back(s.number, u, lo, p.s2, late, p.floor, p.last, look.ends, look.got);
				END IF;
				IF ready > 0 THEN
					INSERT INTO queue.deliveries VALUES (p.sub, p.delivery + 1, p.owner,
							queue._delivery_digits(), p.s1, p.s2, p.floor, p.early, p.last,
							look.ends, look.got, 1, clock_timestamp() + coalesce(lease, u.lease), clock_timestamp(), left(who, 200), NULL, proxied)
						RETURNING * INTO d;
					p.delivery := d.id;
				END IF;
				p.last := look.reach;
				p := queue._move(p, u, look.got, p.last IS NULL);
				EXIT search WHEN ready > 0;
				held := one;
				nothing.due_ms := least(nothing.due_ms, 1);	-- there may be more
			END LOOP;
		END LOOP;
		IF cardinality(idle) > 0 THEN
			PERFORM queue._move_idle(idle, till);
			held := coalesce(held, 0);
			idle := '{}';
		END IF;
		IF l.idle > 0 AND round = 1 THEN
			PERFORM queue._move_idle(current_setting('qbouncer.idle')::queue.positions[], l.ends::pg_snapshot);
			held := coalesce(held, 0);
			finished := finished OR l.ends IS NOT NULL;
		END IF;
		IF NOT finished OR round = 3 THEN
			IF finished THEN
				nothing.due_ms := 100;
			ELSIF round > 1 AND fits IS NOT NULL THEN	-- those that follow were not looked at
				nothing.due_ms := 0;
			ELSIF passes AND nothing.due_ms IS DISTINCT FROM 0 AND NOT numbers <@ (l.passed || l.sub) THEN
				nothing.passed := l.passed || l.sub;
			END IF;
			RETURN NEXT nothing;
			RETURN;
		END IF;
	END LOOP;
	IF d.chosen IS NOT NULL THEN
		RETURN QUERY SELECT * FROM queue._deliver_chosen_jsonb(s, u, d);
		RETURN;
	END IF;
	lo := pg_snapshot_xmax(d.s1);
	late := CASE WHEN d.early THEN ARRAY(SELECT x FROM pg_snapshot_xip(d.s1) AS x WHERE pg_visible_in_snapshot(x, d.s2)) ELSE '{}' END;
	IF again THEN
		EXECUTE format(CASE WHEN u.lanes = 1 THEN 'SELECT * FROM queue._cut_%s($1, $2, $3, $4, $5, $6, $7, $8)'
				ELSE 'SELECT * FROM queue._cut_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s, NULL)' END, s.number, u.lanes, u.lane)
			INTO cut USING lo, d.s2, late, d.floor, d.last, d.upto, u.from_time, d.events;
		IF cut.events <> d.events THEN
			RAISE EXCEPTION USING ERRCODE = 'QB005', MESSAGE = format('events of delivery %s-d%s are lost', d.sub, d.id),
				DETAIL = format('It had %s events, of which there are %s.', d.events, cut.events),
				HINT = format('Go on behind them: QUEUE SEEK %I ON %I TO ...;', sub, q);
		END IF;
	END IF;
	leased.token := d.sub || '-d' || d.id || '-' || d.token;
	leased."out" := queue._lasts(d);
	IF leased."out" IS NOT NULL THEN
		RETURN NEXT leased;
	END IF;
	RETURN QUERY EXECUTE format('SELECT e.id, $9, $10, $11, e.payload, e.headers, e.key, e."group", e.pushed_at, $12, e.xid,
			NULL::int8, NULL::text, NULL::int4[] FROM queue.' || CASE WHEN u.lanes = 1 THEN '_read_%s($1, $2, $3, $4, $5, $6, $7, $8) AS e'
				ELSE '_read_lane_%s($1, $2, $3, $4, $5, $6, $7, $8, %s, %s) AS e' END, s.number, u.lanes, u.lane)
			|| CASE WHEN u.blocks THEN ' WHERE NOT EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = $13 AND r.id = e.id AND r.blocks)' ELSE '' END
		USING lo, d.s2, late, d.floor, d.last, d.upto, u.from_time, d.events,
			leased.token, q, d.attempt, d.lease_until, u.number;
END
$$;
