-- TAKE ... FOR: what most takes are, in few statements whose plans a session keeps (deliver.sql says what a delivery is). What
-- is otherwise goes the long way (take_long.sql), before anything was done: something of the subscription has failed, is over,
-- or was lost, LAG, on_fail = block, parallel is being changed.
--
-- Events are read once. Ids are mostly without gaps, so of the next n ids all events are read, and the delivery ends with the
-- last of these ids. Only where some are missing (rolled back, others' lanes, not of this window) the rest is looked at first,
-- and then read. How far the window reaches was told when it began, as its "top": nothing behind it is looked at.

-- The window of a position: its least id, the greatest one, how many events it may have, in which tables of the ring they are (a
-- bit for each); for MIN ("counts") its events alone, exactly so many, and since when there is one; and the least id of
-- transactions that were open before ("late"). In one table of the ring, or in all.
CREATE OR REPLACE FUNCTION queue._window_bounds(k int4, late bool, counts bool, ring int4 DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	own CONSTANT text := CASE WHEN counts THEN ' AND id + 0 > last AND pushed_at >= since' ELSE '' END;
	part text := format('SELECT id + 0 AS id, 1 << @i@ AS ring%s FROM @e@ WHERE ', CASE WHEN counts THEN ', pushed_at' ELSE '' END);
BEGIN
	part := CASE WHEN late THEN replace(part, ' FROM', ', true AS late FROM') || 'xid = ANY (late)' || own || ' UNION ALL '
				|| replace(part, ' FROM', ', false FROM') ELSE part END
		|| 'xid >= lo AND xid < hi' || CASE WHEN counts THEN ' AND (xid < safe OR pg_visible_in_snapshot(xid, w))' ELSE '' END || own;
	RETURN 'SELECT min(b.id)' || CASE WHEN late THEN ' FILTER (WHERE NOT b.late)' ELSE '' END || ', max(b.id), count(*), '
		|| coalesce((1 << ring)::text, 'bit_or(b.ring)') || CASE WHEN counts THEN ', min(b.pushed_at)' ELSE ', NULL::timestamptz' END
		|| CASE WHEN late THEN ', min(b.id) FILTER (WHERE b.late)' ELSE ', NULL::int8' END
		|| ' INTO least_id, top, seen, p.rings, oldest, least_late FROM (' || queue._each_of_ring(k, part, ' UNION ALL ', ring) || ') AS b;';
END
$$;

-- Which table of the ring has all that there is: its bit; 15: several do. An empty one has no size.
CREATE OR REPLACE FUNCTION queue._filled_rings(k int4) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	there text[] := ARRAY(SELECT format('pg_relation_size(''queue.e%s_%s''::regclass) > 0', k, i) FROM generate_series(0, 3) AS i);
BEGIN
	RETURN format('CASE WHEN %1$s THEN CASE WHEN %2$s OR %3$s OR %4$s THEN 15 ELSE 1 END WHEN %2$s THEN CASE WHEN %3$s OR %4$s THEN 15 ELSE 2 END
		WHEN %3$s THEN CASE WHEN %4$s THEN 15 ELSE 4 END ELSE 8 END', VARIADIC there);
END
$$;

-- A statement for each table of the ring, if that has all that there is, and for several of them.
CREATE OR REPLACE FUNCTION queue._by_rings(single text[], several text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('IF p.rings = 1 THEN %s ELSIF p.rings = 2 THEN %s ELSIF p.rings = 4 THEN %s ELSIF p.rings = 8 THEN %s ELSE %s END IF;',
		VARIADIC single || several);
END
$$;

-- Those of a window, with those of transactions that were open before, in all tables of the ring or in one.
CREATE OR REPLACE FUNCTION queue._both_events(k int4, cols text, further text, ring int4 DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._window_events(k, cols, further, 'n', ring) || ' UNION ALL ' || queue._late_events(k, cols, further, 'n', ring);
END
$$;

-- A statement with the events of a window, or with late ones, too: of all, or of a lane; or of a lane in any case.
CREATE OR REPLACE FUNCTION queue._of_window(k int4, form text, cols text, late bool DEFAULT false, lane bool DEFAULT false) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	mine CONSTANT text := ' AND bucket BETWEEN bucket_from AND bucket_to';
	texts text[];
	further text;
	ring int4;
BEGIN
	FOREACH further IN ARRAY ARRAY['', mine] LOOP
		FOREACH ring IN ARRAY '{0,1,2,3,NULL}'::int4[] LOOP
			texts := texts || format(form, CASE WHEN late THEN queue._both_events(k, cols, further, ring)
				ELSE queue._window_events(k, cols, further, 'n', ring) END);
		END LOOP;
	END LOOP;
	IF lane THEN
		RETURN queue._by_rings(texts[6:9], texts[10]);
	END IF;
	RETURN format('IF lanes = 1 THEN %s ELSE %s END IF;', queue._by_rings(texts[1:4], texts[5]), queue._by_rings(texts[6:9], texts[10]));
END
$$;

-- Lanes in which nothing was found, and how far was looked there: "last", or NULL for to the end of the window. Their positions go
-- there, if they have not moved since, and read as far as they did (till). Whether one did.
CREATE OR REPLACE FUNCTION queue._move_idle(idle queue.positions[], till pg_snapshot DEFAULT NULL) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
	locked int4[];
BEGIN
	locked := ARRAY(SELECT t.number FROM unnest(idle) AS p, queue.subscriptions AS t WHERE t.number = p.sub AND NOT t.waits
		AND t.lost_at IS NULL AND t.ends::text IS NOT DISTINCT FROM till::text FOR NO KEY UPDATE OF t SKIP LOCKED);
	UPDATE queue.positions AS t SET seq = t.seq + 1, at = clock_timestamp(), rate = t.rate * queue._fades(t.at),
			s1 = CASE WHEN p.last IS NULL THEN p.s2 ELSE p.s1 END, s2 = CASE WHEN p.last IS NOT NULL THEN p.s2 END,
			floor = CASE WHEN p.last IS NULL THEN 0 ELSE p.floor END, early = p.last IS NOT NULL AND p.early,
			last = coalesce(p.last, u.from_id - 1, 0), top = CASE WHEN p.last IS NOT NULL THEN p.top END,
			rings = CASE WHEN p.last IS NOT NULL THEN p.rings END
		FROM unnest(idle) AS p JOIN queue.subscriptions AS u ON u.number = p.sub
		WHERE t.sub = p.sub AND t.seq = p.seq AND p.sub = ANY (locked);	-- as _move
	RETURN FOUND;
END
$$;

-- A take keeps the lock of no lane but that of its delivery, which may be read slowly, while others take from the other lanes. So a
-- lane is looked at first, and what was seen holds as long as its position has not moved. If it has nothing its position moves when
-- no other has anything either. If it is far behind it is locked at once, as it will have something; should it have nothing it has
-- moved, and another one that has something is left to the next take: the proxy asks once more, and such lanes come last. With
-- MIN a lane is looked at in any case; if it is so far behind that the look does not reach to the end and finds nothing it moves
-- at once, too: otherwise the same ids would be looked at each time, as long as another lane has something.
--
-- All rows of a delivery have the same token and so on; brief: these are said once, in a row without an id before the others,
-- whose due_ms is the number of the stream. It may turn out that no event comes behind it: then the row that follows counts. One that tells that there is
-- nothing says in due_ms when to ask again, 0: at once; and has in its "out" a delivery that is out; or, with MIN, three numbers: before so many ms it is not worth while to ask
-- again; so many events are missing; and the ms of WITHIN. These stand in the row before the events, too, behind the ms of the
-- lease, if nothing is left behind them: who counts what is pushed need not ask before.
CREATE OR REPLACE FUNCTION queue._generate_take_for(k int4, kind text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cut_cols CONSTANT text := 'id, pushed_at';
	read_cols CONSTANT text := 'id, xid, pushed_at, key, "group", headers, payload';
	read_from CONSTANT text := 'RETURN QUERY SELECT id, d.token, d.queue, d.attempt, payload, headers, key, "group", pushed_at, d.lease_until, xid,
				NULL::int8, NULL::text, NULL::int4[] FROM (%s) AS e ORDER BY id LIMIT n;';
	has_from CONSTANT text := 'SELECT count(*) INTO part FROM (SELECT FROM (%s) AS e LIMIT n) AS cut;';
	cut_from CONSTANT text := 'SELECT count(*), max(id), min(pushed_at) INTO part, ends, oldest FROM (SELECT id, pushed_at FROM (%s) AS e
				ORDER BY id LIMIT n) AS cut;';
	body text := $take$
#variable_conflict use_variable
DECLARE
	u queue.subscriptions;
	p queue.positions;
	free int4[];	-- parallel: the lanes that have nothing out
	outs text[];
	odd bool;
	place record;
	w pg_snapshot;
	lo xid8;
	hi xid8;
	safe xid8;
	late xid8[];
	top int8;
	seen int8;	-- so many events the window has at most; NULL: not known
	counted bool;	-- exactly so many
	least_id int8;
	least_late int8;
	fresh bool;
	above int8;
	last int8;
	upto int8;
	since timestamptz;
	lanes int8;
	bucket_from int2;	-- those of a lane
	bucket_to int2;
	n int8;
	part int8;
	got int8;
	ends int8;
	oldest timestamptz;
	dense bool;
	begun queue.positions;	-- parallel: the window that was looked at for another lane, or by it
	begun_new bool;	-- it reaches to now
	begun_seen int8;
	begun_far bool;	-- many xids
	past bool;	-- ... and its position goes past another one
	idle queue.positions[] := '{}';	-- ... of lanes that have nothing
	held int4;	-- ... a lane that is locked, and had nothing
	waits interval;
	pause int8;	-- MIN: as fast as they have come there will be enough after so many ms
	more int8;	-- ... so many are missing
	within_ms int8;
	digits text;
	setting text;	-- by an assignment: PERFORM would be a statement
	leased queue._delivered_@kind@;	-- its token and so on
	d queue._delivered_@kind@;	-- what is said of them with each event
	nothing queue._delivered_@kind@;
BEGIN
	<<short>>
	BEGIN
		EXIT short WHEN lag IS NOT NULL OR (lim BETWEEN 1 AND 10000) IS NOT TRUE OR lease <= interval '0' OR lease > interval '8000 years'
			OR (least_events IS NULL) <> (within IS NULL) OR least_events NOT BETWEEN 1 AND lim
			OR current_setting('transaction_isolation') <> 'read committed';
		SELECT t.* INTO u FROM queue.streams AS s JOIN queue.subscriptions AS t ON t.stream = s.number
			WHERE s.number = @k@ AND s.name = q AND s.log = 'queue.e@k@_0'::regclass::oid AND s.system = queue._system()
				AND t.name = sub AND t.lane = 0 AND t.ends IS NULL AND t.lanes = 1 AND NOT t.waits AND NOT t.blocks AND t.lost_at IS NULL
				AND pg_has_role(t.owner, 'USAGE')	-- no policy asks the installer
			FOR NO KEY UPDATE OF t SKIP LOCKED;
		IF FOUND THEN
			free := ARRAY[u.number];
		ELSE
			SELECT array_agg(l.number ORDER BY l.at, l.number) FILTER (WHERE NOT l.busy), array_agg(l.name), bool_or(l.odd),
					CASE WHEN bool_or(l.busy)
						THEN greatest(ceil(least(extract(epoch FROM min(l.lease_until) - clock_timestamp()), 31536000) * 1000), 1) END
				INTO free, outs, odd, nothing.due_ms
				FROM (SELECT t.number, o.at, x.lease_until, x.sub || '-d' || x.id AS name, x.id IS NOT NULL AS busy,
						t.lanes = 1 OR t.ends IS NOT NULL OR t.waits OR t.blocks OR t.lost_at IS NOT NULL OR o.at IS NULL
							OR coalesce(x.lease_until <= clock_timestamp(), false)
							OR EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = t.number AND NOT r.dead AND r.delivery IS NULL) AS odd
					FROM queue.streams AS s JOIN queue.subscriptions AS z ON z.stream = s.number
						JOIN queue.subscriptions AS t ON t.stream = z.stream AND t.name = z.name AND t.owner = z.owner
						LEFT JOIN LATERAL (SELECT v.delivery, v.at FROM queue.positions AS v WHERE v.sub = t.number ORDER BY v.seq DESC LIMIT 1)
							AS o ON true
						LEFT JOIN queue.deliveries AS x ON x.sub = t.number AND x.id = o.delivery
					WHERE s.number = @k@ AND s.name = q AND s.log = 'queue.e@k@_0'::regclass::oid AND s.system = queue._system()
						AND z.name = sub AND z.lane = 0 AND z.ends IS NULL AND pg_has_role(z.owner, 'USAGE')) AS l;
			EXIT short WHEN odd IS NOT FALSE;
			IF free IS NULL THEN
				FOREACH nothing."out" IN ARRAY outs LOOP
					RETURN NEXT nothing;
				END LOOP;
				RETURN;
			END IF;
		END IF;
		setting := set_config('synchronous_commit', 'off', true);	-- as in _take_long_jsonb
		leased.queue := q;
		leased.attempt := 1;
		IF least_events > 1 THEN
			more := least_events;
			within_ms := ceil(least(extract(epoch FROM within), 31536000) * 1000);
		END IF;
		<<each>>
		FOR i IN 1 .. cardinality(free) LOOP
			IF outs IS NOT NULL THEN	-- there are several
				SELECT t AS u, o.p, EXISTS (SELECT FROM queue.deliveries AS x WHERE x.sub = t.number AND x.id = (o.p).delivery)
						OR EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = t.number AND NOT r.dead AND r.delivery IS NULL) AS waits
					INTO place FROM queue.subscriptions AS t,
						LATERAL (SELECT v AS p FROM queue.positions AS v WHERE v.sub = t.number ORDER BY v.seq DESC LIMIT 1) AS o
					WHERE t.number = free[i] AND t.lanes > 1 AND t.ends IS NULL AND NOT t.waits AND NOT t.blocks AND t.lost_at IS NULL;
				IF place.waits IS NOT FALSE THEN	-- somebody was faster, or it was changed just now
					nothing.due_ms := least(nothing.due_ms, 100);
					CONTINUE;
				END IF;
				u := place.u;
				past := false;
			ELSE
				SELECT t AS p, EXISTS (SELECT FROM queue.deliveries AS o WHERE o.sub = t.sub AND o.id = t.delivery)
						OR EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = t.sub AND NOT r.dead AND r.delivery IS NULL) AS waits
					INTO place FROM queue.positions AS t WHERE t.sub = u.number ORDER BY t.seq DESC LIMIT 1;
				EXIT short WHEN place.waits IS NOT FALSE;
			END IF;
			p := place.p;
			lanes := u.lanes;
			bucket_from := @bucket_from@;
			bucket_to := @bucket_to@;
			since := coalesce(u.from_time, '-infinity');
			-- the rest of the window, and the next one behind it
			LOOP
				fresh := p.s2 IS NULL;
				lo := pg_snapshot_xmax(p.s1);
				seen := NULL;
				counted := false;
				IF fresh AND outs IS NOT NULL THEN	-- another lane may have looked there
					IF begun.s1::text = p.s1::text THEN
						seen := begun_seen;
						fresh := begun_new;
					ELSE
						begun_new := false;
						begun_seen := NULL;
						SELECT o.* INTO begun FROM queue.subscriptions AS t,
								LATERAL (SELECT v.* FROM queue.positions AS v WHERE v.sub = t.number ORDER BY v.seq DESC LIMIT 1) AS o
							WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND t.number <> u.number
								AND o.s2 IS NOT NULL AND o.top IS NOT NULL AND o.s1::text = p.s1::text LIMIT 1;
						fresh := NOT FOUND;
					END IF;
					IF begun.s2 IS NOT NULL THEN
						p.s2 := begun.s2;
						p.floor := begun.floor;
						p.early := begun.early;
						p.top := begun.top;
						p.rings := begun.rings;
						p.last := coalesce(u.from_id - 1, 0);
						EXIT WHEN p.top IS NULL;
					END IF;
				END IF;
				w := coalesce(p.s2, queue._position());
				late := '{}';
				IF pg_snapshot_xmin(p.s1) < lo AND (p.s2 IS NULL OR p.early) THEN
					late := ARRAY(SELECT x FROM pg_snapshot_xip(p.s1) AS x WHERE pg_visible_in_snapshot(x, w));
				END IF;
				IF p.s2 IS NULL THEN
					hi := pg_snapshot_xmax(w);
					EXIT short WHEN hi < lo;
					safe := pg_snapshot_xmin(w);
					last := coalesce(u.from_id - 1, 0);
					counted := least_events > 1 AND lanes = 1 AND lo > '3';
					p.rings := @filled@;
					IF lo <= '3' THEN	-- from the beginning: all that there is, uncounted
						@bounds_all@
					ELSIF cardinality(late) > 0 AND counted THEN
						@bounds_late_counted@
					ELSIF cardinality(late) > 0 THEN
						@bounds_late@
					ELSIF counted THEN
						@bounds_counted@
					ELSE
						@bounds@
					END IF;
					p.s2 := w;
					p.floor := coalesce(least_id, 9223372036854775807);
					p.early := least_late IS NOT NULL;
					p.top := top;
					p.last := last;
					IF outs IS NOT NULL THEN
						begun := p;
						begun_new := true;
						begun_seen := seen;
						begun_far := cardinality(late) > 0 OR hi::text::numeric - lo::text::numeric > 1000;
						EXIT WHEN top IS NULL;
					ELSIF top IS NULL THEN
						IF cardinality(late) > 0 OR hi::text::numeric - lo::text::numeric > 1000 THEN	-- the next one looks at fewer xids
							p := queue._move(p, u, 0, true);
						END IF;
						CONTINUE each;
					END IF;
					late := CASE WHEN p.early THEN late ELSE '{}' END;
				END IF;
				top := coalesce(p.top, 9223372036854775807);
				safe := pg_snapshot_xmin(w);
				last := p.last;
				above := greatest(last, p.floor - 1);
				got := 0;
				-- parallel: what is not looked at in one go
				EXIT short WHEN lanes > 1 AND cardinality(late) > 0 AND (seen <= lim) IS NOT TRUE;
				IF least_events > 1 THEN
					n := least_events;
					upto := CASE WHEN lanes = 1 OR seen <= lim THEN top ELSE above + least(top - above, lanes * lim * 2 + 1000) END;
					IF counted THEN
						part := least(seen, n);
					ELSIF cardinality(late) > 0 THEN
						@cut_late@
					ELSE
						@cut@
					END IF;
					IF part > 0 AND part < n AND oldest + within > clock_timestamp() THEN
						EXIT short WHEN upto < top;
						waits := oldest + within - clock_timestamp();
						nothing.due_ms := least(nothing.due_ms, greatest(ceil(least(extract(epoch FROM waits), 31536000) * 1000), 1));
						pause := least(pause, greatest(ceil(extract(epoch FROM least((clock_timestamp() - oldest) * ((n - part)::float8 / part), within / 4,
							interval '20 ms', waits)) * 1000), 1));
						more := least(more, n - part);
						CONTINUE each;
					END IF;
				END IF;
				IF outs IS NOT NULL THEN
					IF least_events > 1 THEN
						NULL;	-- "part" of it is its own
					ELSIF cardinality(late) > 0 THEN
						n := 1;
						upto := top;
						@has_late@
					ELSIF held IS NOT NULL OR top - above <= 16 * lanes OR p.top IS NULL THEN
						n := 1;
						upto := above + least(top - above, lanes * lim * 2 + 1000);
						@has@
					ELSE
						part := 1;	-- most probably
					END IF;
					IF part = 0 THEN
						EXIT short WHEN p.top IS NULL;
						IF upto < top THEN
							p.last := upto;
							IF held IS NOT NULL THEN
								nothing.due_ms := 1;	-- there may be more
								EXIT;
							ELSIF queue._move_idle(ARRAY[p]) THEN
								held := p.sub;
								nothing.due_ms := 1;
							ELSE	-- another take has it, or it was changed just now
								IF queue._has_changed(p, NULL) THEN
									held := p.sub;
								END IF;
								nothing.due_ms := least(nothing.due_ms, 100);
							END IF;
							CONTINUE each;
						END IF;
						p.last := NULL;
						EXIT WHEN fresh;
						past := true;
						p.s1 := p.s2;
						p.s2 := NULL;
						CONTINUE;
					END IF;
					IF held <> p.sub AND brief THEN
						IF cardinality(idle) > 0 THEN
							setting := queue._move_idle(idle);
						END IF;
						nothing.due_ms := 0;
						RETURN NEXT nothing;
						RETURN;
					END IF;
					-- with its position: if that has moved the row is not found; what changes just then leaves it locked
					SELECT t.* INTO u FROM queue.subscriptions AS t, queue.positions AS o WHERE t.number = p.sub AND t.ends IS NULL AND NOT t.waits
						AND NOT t.blocks AND t.lost_at IS NULL AND o.sub = p.sub AND o.seq = p.seq FOR NO KEY UPDATE SKIP LOCKED;
					IF NOT FOUND THEN	-- another take, which gets what there is; or it was changed just now
						IF queue._has_changed(p, NULL) THEN
							held := p.sub;
						END IF;
						nothing.due_ms := least(nothing.due_ms, 100);
						CONTINUE each;
					END IF;
				END IF;
				digits := queue._delivery_digits();
				leased.token := p.sub || '-d' || p.delivery + 1 || '-' || digits;
				leased.lease_until := clock_timestamp() + coalesce(lease, u.lease);
				IF brief THEN
					leased.due_ms := @k@;
					leased."out" := floor(extract(epoch FROM least(coalesce(lease, u.lease), interval '1 year')) * 1000)::int8;
					IF within_ms IS NOT NULL AND fresh AND lanes = 1 AND seen <= lim THEN
						leased."out" := leased."out" || ' 0 ' || least_events || ' ' || within_ms;
					END IF;
					RETURN NEXT leased;
				ELSE
					d := leased;
				END IF;
				IF cardinality(late) > 0 THEN
					n := lim;
					upto := top;
					IF (seen <= lim) IS NOT TRUE THEN
						@cut_late@
						upto := CASE WHEN part = n THEN ends ELSE top END;
					END IF;
					@read_late@
					GET DIAGNOSTICS got = ROW_COUNT;
					above := upto;
				ELSE
					dense := true;
					WHILE got < lim AND above < top LOOP
						n := lim - got;
						IF seen <= lim THEN
							upto := top;
						ELSIF dense THEN	-- of a lane less, by 2 sqrt(n), at most an eighth: it may have more than others
							upto := above + least(CASE WHEN lanes = 1 THEN n ELSE lanes * (n - least(n / 8, 2 * sqrt(n)::int8)) END, top - above);
						ELSE
							upto := CASE WHEN lanes = 1 THEN top ELSE above + least(top - above, lanes * n * 2 + 1000) END;
							@cut@
							upto := CASE WHEN part = n THEN ends ELSE upto END;
							above := CASE WHEN part = 0 THEN upto ELSE above END;
							EXIT WHEN part = 0;
						END IF;
						@read@
						GET DIAGNOSTICS part = ROW_COUNT;
						IF part = n AND lanes > 1 AND dense AND (seen <= lim) IS NOT TRUE THEN
							@cut@
							upto := ends;
						END IF;
						got := got + part;
						above := upto;
						EXIT WHEN NOT dense;
						dense := lanes = 1 AND part > n / 2;
					END LOOP;
				END IF;
				IF got > 0 THEN
					INSERT INTO queue.deliveries VALUES (p.sub, p.delivery + 1, p.owner, digits, p.s1, p.s2, p.floor, p.early, last, above, got, 1,
						leased.lease_until, clock_timestamp(), left(who, 200), NULL, nullif(current_setting('qbouncer.proxy', true), '')::int4);
					p.delivery := p.delivery + 1;
				END IF;
				IF above >= top THEN
					p.s1 := p.s2;
					p.s2 := NULL;
					p.floor := 0;
					p.early := false;
					above := coalesce(u.from_id - 1, 0);
					p.top := NULL;
					p.rings := NULL;
				END IF;
				UPDATE queue.positions AS t SET seq = t.seq + 1, s1 = p.s1, s2 = p.s2, floor = p.floor, early = p.early, last = above,
						top = p.top, rings = p.rings, delivery = p.delivery, at = clock_timestamp(), delivered = t.delivered + got,
						rate = t.rate * queue._fades(t.at) + got / 60.0
					WHERE t.sub = p.sub AND t.seq = p.seq;	-- as _move
				IF got > 0 THEN
					RETURN;
				END IF;
				EXIT short WHEN p.s2 IS NOT NULL AND p.top IS NULL;
				IF outs IS NOT NULL THEN
					held := p.sub;
					IF p.s2 IS NOT NULL THEN
						nothing.due_ms := 1;
						CONTINUE each;
					END IF;
				END IF;
				CONTINUE each WHEN fresh;
				p.seq := p.seq + 1;
				p.last := above;
			END LOOP;
			-- parallel: it has nothing
			IF p.top IS NULL THEN
				p.last := NULL;
				IF NOT begun_far THEN
					CONTINUE WHEN NOT past;
					p.s2 := p.s1;
				END IF;
			END IF;
			idle := idle || p;
		END LOOP;
		IF cardinality(idle) > 0 THEN
			setting := queue._move_idle(idle);
		END IF;
		nothing."out" := coalesce(pause, 0) || ' ' || more || ' ' || within_ms;	-- NULL: no MIN
		RETURN NEXT nothing;
		RETURN;
	END;
	IF held IS NOT NULL AND brief THEN
		nothing.due_ms := 0;
		RETURN NEXT nothing;
		RETURN;
	END IF;
	RETURN QUERY SELECT * FROM queue._take_long_@kind@(q, sub, lim, least_events, within, lease, who, lag, brief);
END
$take$;
	rings CONSTANT int4[] := '{0,1,2,3}';
	buckets CONSTANT text[] := queue._lane_buckets('lanes', 'u.lane');
	part text[];
BEGIN
	FOREACH part SLICE 1 IN ARRAY ARRAY[
			['@filled@', queue._filled_rings(k)],
			['@bounds_all@', 'SELECT min(b.id), max(b.id), NULL::int8, bit_or(b.ring), NULL::timestamptz, NULL::int8
				INTO least_id, top, seen, p.rings, oldest, least_late FROM (' || queue._each_of_ring(k,
					'(SELECT min(id) AS id, 1 << @i@ AS ring FROM @e@ HAVING min(id) IS NOT NULL) UNION ALL (SELECT max(id), 0 FROM @e@)',
					' UNION ALL ') || ') AS b;'],
			['@bounds_late_counted@', queue._by_rings(ARRAY(SELECT queue._window_bounds(k, true, true, i) FROM unnest(rings) AS i),
				queue._window_bounds(k, true, true))],
			['@bounds_late@', queue._by_rings(ARRAY(SELECT queue._window_bounds(k, true, false, i) FROM unnest(rings) AS i),
				queue._window_bounds(k, true, false))],
			['@bounds_counted@', queue._by_rings(ARRAY(SELECT queue._window_bounds(k, false, true, i) FROM unnest(rings) AS i),
				queue._window_bounds(k, false, true))],
			['@bounds@', queue._by_rings(ARRAY(SELECT queue._window_bounds(k, false, false, i) FROM unnest(rings) AS i),
				queue._window_bounds(k, false, false))],
			['@has_late@', queue._of_window(k, has_from, 'id', true, true)], ['@has@', queue._of_window(k, has_from, 'id', false, true)],
			['@cut_late@', queue._of_window(k, cut_from, cut_cols, true)], ['@cut@', queue._of_window(k, cut_from, cut_cols)],
			['@read_late@', queue._of_window(k, read_from, read_cols, true)], ['@read@', queue._of_window(k, read_from, read_cols)],
			['@bucket_from@', buckets[1]], ['@bucket_to@', buckets[2]], ['@kind@', kind], ['@k@', k::text]] LOOP
		body := replace(body, part[1], part[2]);
	END LOOP;
	EXECUTE format('CREATE FUNCTION queue._take_for_%s(q text, sub text, lim int4, least_events int4, within interval, lease interval,
			who text, lag interval, brief bool) RETURNS SETOF queue._delivered_%s LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
			SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS %L', k, kind, body);
END
$$;
