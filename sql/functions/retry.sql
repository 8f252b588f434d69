-- Events of a stream that have failed by themselves: FAIL token EVENT, and what becomes of them. An event that is named is
-- copied, so that nothing of it keeps the log; it comes again as a delivery of its own, which is a row like any other, but
-- has no snapshots. The other events of its delivery are done.
--
-- A delivery that fails as a whole max_attempts times is copied, too, and comes in halves, those again in halves, until the
-- event that is guilty is alone; that one is dead.

CREATE OR REPLACE FUNCTION queue._event_pause(u queue.subscriptions, failures int4) RETURNS interval
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._pause(queue._retry_option(NULL::queue.queues, coalesce(u.retry, 'exponential 1s 1min')), greatest(failures, 1));
END
$$;

-- After how long; retry_in is what FAIL said.
CREATE OR REPLACE FUNCTION queue._event_again(u queue.subscriptions, failures int4, retry_in interval) RETURNS interval
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN retry_in IS NOT NULL THEN greatest(retry_in, interval '0') ELSE queue._event_pause(u, failures) END;
END
$$;

-- When one comes again that has failed so often; NULL: never.
CREATE OR REPLACE FUNCTION queue._event_due(u queue.subscriptions, failures int4, retry_in interval, final bool)
RETURNS timestamptz
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF final OR failures >= queue._event_attempts(u, retry_in) THEN
		RETURN NULL;
	END IF;
	RETURN clock_timestamp() + queue._event_again(u, failures, retry_in);
END
$$;

-- How often a delivery, or an event, may fail; NULL: for ever.
CREATE OR REPLACE FUNCTION queue._event_attempts(u queue.subscriptions, retry_in interval) RETURNS int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN u.retry = 'none' AND retry_in IS NULL THEN 1 ELSE u.max_attempts END;
END
$$;

-- How the events of a delivery are read, or of a window: the call, with these parameters before. chosen: those that have one
-- of these ids, which are known to be there (WHERE).
CREATE OR REPLACE FUNCTION queue._reader(k int4, u queue.subscriptions, parameters text, chosen text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN chosen IS NOT NULL THEN format('(SELECT * FROM (%s) AS c ORDER BY id)', queue._each_of_ring(k,
			format('SELECT id, xid, pushed_at, key, "group", headers, payload FROM @e@ WHERE id = ANY (%s)', chosen), ' UNION ALL '))
		WHEN u.lanes = 1 THEN format('queue._read_%s(%s)', k, parameters)
		ELSE format('queue._read_lane_%s(%s, %s, %s)', k, parameters, u.lanes, u.lane) END;
END
$$;

-- on_fail = block. Of each of these groups the first one that is there says when they come; it holds up the others also if
-- it is out, or dead.
CREATE OR REPLACE FUNCTION queue._order_groups(sub int4, groups text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
	UPDATE queue.retries AS r SET due_at = n.due
		FROM (SELECT o.id, CASE WHEN row_number() OVER (PARTITION BY o."group" ORDER BY o.id) > 1 THEN 'infinity'
					WHEN isfinite(o.due_at) THEN o.due_at
					ELSE coalesce(min(o.due_at) FILTER (WHERE isfinite(o.due_at) AND NOT o.dead AND o.delivery IS NULL)
						OVER (PARTITION BY o."group"), clock_timestamp()) END AS due
				FROM queue.retries AS o WHERE o.sub = $1 AND o.blocks AND o."group" = ANY (groups)) AS n
		WHERE r.sub = $1 AND r.id = n.id AND NOT r.dead AND r.delivery IS NULL AND r.due_at <> n.due;
END
$$;

-- The column of copies that has payloads of this stream.
CREATE OR REPLACE FUNCTION queue._copied_payload(k int4) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT 'payload_' || s.payload FROM queue.streams AS s WHERE s.number = k);
END
$$;

-- The same: which of the events of a window have to wait are copied behind those that they wait for. How many have not.
CREATE OR REPLACE FUNCTION queue._hold_back(k int4, u queue.subscriptions, lo xid8, w pg_snapshot, late xid8[], floor int8, last int8,
	upto int8, n int4, chosen int8[] DEFAULT NULL) RETURNS int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	free int4;
BEGIN
	EXECUTE format($sql$
		WITH events AS MATERIALIZED (SELECT e.* FROM %1$s AS e),
			held AS MATERIALIZED (SELECT e.* FROM events AS e WHERE EXISTS (SELECT FROM queue.retries AS r
				WHERE r.sub = ($1).number AND r.blocks AND r."group" = e."group")),
			copied AS (INSERT INTO queue.retries (sub, id, owner, due_at, attempt, xid, pushed_at, key, "group", headers, %2$I, blocks)
				SELECT ($1).number, h.id, ($1).owner, 'infinity', 0, h.xid, h.pushed_at, h.key, h."group", h.headers, h.payload, true FROM held AS h
				ON CONFLICT DO NOTHING)
		SELECT (SELECT count(*) FROM events) - (SELECT count(*) FROM held)
	$sql$, queue._reader(k, u, '$2, $3, $4, $5, $6, $7, $8, $9', CASE WHEN chosen IS NOT NULL THEN '$10' END), queue._copied_payload(k))
		INTO free USING u, lo, w, late, floor, last, upto, u.from_time, n, chosen;
	RETURN free;
END
$$;

-- These events of a delivery, which is locked, come again, or are dead. ids NULL: all of them, as none was named: if they
-- have no attempt left they come again in halves. The delivery itself, and what else it has, is the caller's. With on_fail =
-- block those behind them in their groups come again, too; the groups, which the caller orders when the others are gone.
CREATE OR REPLACE FUNCTION queue._retry_events(k int4, u queue.subscriptions, d queue.deliveries, ids int8[], error text,
	retry_in interval, final bool) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
	-- so many of them together, if it is not known which one has failed
	half CONSTANT int4 := CASE WHEN ids IS NULL AND d.events > 1 AND NOT final THEN (d.events + 1) / 2 END;
	said CONSTANT text := queue._error_text($5);
	most CONSTANT int4 := queue._event_attempts(u, $6);
	late CONSTANT xid8[] := CASE WHEN d.early THEN ARRAY(SELECT x FROM pg_snapshot_xip(d.s1) AS x WHERE pg_visible_in_snapshot(x, d.s2))
		ELSE '{}' END;
	chosen CONSTANT text := CASE WHEN d.chosen IS NOT NULL THEN '$18' END;
	found_ids int8[];
	stray int8;
	groups text[];
BEGIN
	IF d.s2 IS NULL THEN
		PERFORM queue._must_select(s) FROM queue.streams AS s WHERE s.number = k;
		IF u.blocks AND ids IS NOT NULL THEN
			UPDATE queue.retries AS r SET delivery = NULL, due_at = 'infinity'
				FROM (SELECT o."group", min(o.id) AS id FROM queue.retries AS o
					WHERE o.sub = d.sub AND o.delivery = d.id AND o.blocks AND o.id = ANY (ids) GROUP BY 1) AS f
				WHERE r.sub = d.sub AND r.delivery = d.id AND r.blocks AND r."group" = f."group" AND r.id > f.id AND r.id <> ALL (ids);
		END IF;
		WITH failed AS (UPDATE queue.retries AS r SET delivery = NULL, attempt = r.attempt + d.attempt, error = coalesce(said, r.error),
				together = CASE WHEN r.attempt + d.attempt >= most THEN half END,
				dead = n.due IS NULL, due_at = coalesce(n.due, clock_timestamp())
			FROM (SELECT o.id, CASE WHEN half IS NOT NULL AND o.attempt + d.attempt >= most THEN o.due_at
						WHEN d.attempt = 0 THEN clock_timestamp()	-- given back
						ELSE queue._event_due(u, o.attempt + d.attempt, retry_in, final) END AS due
					FROM queue.retries AS o WHERE o.sub = d.sub AND o.delivery = d.id AND (ids IS NULL OR o.id = ANY (ids))
					ORDER BY o.id) AS n
			WHERE r.sub = d.sub AND r.id = n.id RETURNING r.id)
		SELECT array_agg(f.id) INTO found_ids FROM failed AS f;
		IF u.blocks THEN
			groups := ARRAY(SELECT DISTINCT r."group" FROM queue.retries AS r WHERE r.sub = d.sub AND r.id = ANY (found_ids) AND r.blocks);
		END IF;
	ELSIF u.blocks THEN
		-- with those that are behind one that has failed, which have not; but none of those that were held back from the first
		EXECUTE format($sql$
			WITH events AS MATERIALIZED (SELECT e.*, min(e.id) FILTER (WHERE e.id = ANY ($17)) OVER (PARTITION BY e."group") AS first
				FROM %1$s AS e
				WHERE NOT EXISTS (SELECT FROM queue.retries AS r WHERE r.sub = $9 AND r.id = e.id AND r.blocks)),
			failed AS (INSERT INTO queue.retries AS r (sub, id, owner, due_at, dead, attempt, together, error, xid, pushed_at, key, "group", headers,
					%2$I, blocks)
				SELECT $9, e.id, $10, CASE WHEN n.fails THEN coalesce(n.due, clock_timestamp()) ELSE 'infinity' END, n.fails AND n.due IS NULL,
					CASE WHEN n.fails THEN $11 ELSE 0 END, $12, CASE WHEN n.fails THEN $13 END, e.xid, e.pushed_at, e.key, e."group", e.headers,
					e.payload, e."group" IS NOT NULL
				FROM events AS e, LATERAL (SELECT $17 IS NULL OR e.id = ANY ($17) AS fails,
					CASE WHEN $12 IS NOT NULL THEN clock_timestamp() ELSE queue._event_due($14, $11, $15, $16) END AS due) AS n
				WHERE n.fails OR e."group" IS NOT NULL AND e.id > e.first
				ON CONFLICT (sub, id) DO UPDATE SET due_at = EXCLUDED.due_at, dead = EXCLUDED.dead, delivery = NULL, attempt = EXCLUDED.attempt,
					together = EXCLUDED.together, error = EXCLUDED.error
				RETURNING r.id, r."group")
			SELECT array_agg(f.id), array_agg(DISTINCT f."group") FILTER (WHERE f."group" IS NOT NULL) FROM failed AS f
		$sql$, queue._reader(k, u, '$1, $2, $3, $4, $5, $6, $7, $8', chosen), queue._copied_payload(k)) INTO found_ids, groups USING pg_snapshot_xmax(d.s1), d.s2, late, d.floor, d.last, d.upto, u.from_time, d.events, d.sub, d.owner,
			d.attempt, half, coalesce(said, d.error), u, retry_in, coalesce(final, false), ids, d.chosen;
	ELSE
		EXECUTE format($sql$
			WITH failed AS (INSERT INTO queue.retries AS r (sub, id, owner, due_at, dead, attempt, together, error, xid, pushed_at, key, "group", headers, %2$I)
				SELECT $9, e.id, $10, coalesce(n.due, clock_timestamp()), n.due IS NULL, $11, $12, $13, e.xid, e.pushed_at, e.key, e."group", e.headers, e.payload
				FROM %1$s AS e,
					LATERAL (SELECT CASE WHEN $12 IS NOT NULL THEN clock_timestamp() ELSE queue._event_due($14, $11, $15, $16) END AS due) AS n
				WHERE $17 IS NULL OR e.id = ANY ($17)
				ON CONFLICT (sub, id) DO UPDATE SET due_at = EXCLUDED.due_at, dead = EXCLUDED.dead, delivery = NULL, attempt = EXCLUDED.attempt,
					together = EXCLUDED.together, error = EXCLUDED.error
				RETURNING r.id)
			SELECT array_agg(f.id) FROM failed AS f
		$sql$, queue._reader(k, u, '$1, $2, $3, $4, $5, $6, $7, $8', chosen), queue._copied_payload(k)) INTO found_ids USING pg_snapshot_xmax(d.s1), d.s2, late,
			d.floor, greatest(d.last, (SELECT min(i) - 1 FROM unnest(ids) AS i)), least(d.upto, (SELECT max(i) FROM unnest(ids) AS i)), u.from_time, d.events, d.sub, d.owner, d.attempt, half, coalesce(said, d.error), u, retry_in,
			coalesce(final, false), ids, d.chosen;
	END IF;
	SELECT i INTO stray FROM unnest(ids) AS i WHERE i <> ALL (coalesce(found_ids, '{}')) OR i IS NULL LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('event %s is not one of delivery %s-d%s', coalesce(stray::text, 'NULL'), d.sub, d.id),
			HINT = 'EVENT names events by the ids that TAKE returned with this token.';
	END IF;
	RETURN groups;
END
$$;

-- FAIL ... EVENT, and FAIL of a delivery of retries. events NULL: all of it.
CREATE OR REPLACE FUNCTION queue._fail_events(d record, u queue.subscriptions, events text[], error text, retry_in interval, final bool,
	notify bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	ids int8[];
	held queue.deliveries;
	groups text[];
BEGIN
	IF events IS NOT NULL THEN
		events := ARRAY(SELECT i FROM unnest(events) AS e,	-- an array is its text
			LATERAL unnest(CASE WHEN e ~ '^{[0-9, ]+}$' THEN e::text[] ELSE ARRAY[e] END) AS i);
		SELECT array_agg(DISTINCT CASE WHEN e ~ '^[0-9]{1,18}$' THEN e::int8 END) INTO ids FROM unnest(events) AS e;
		IF ids IS NULL OR array_position(ids, NULL) IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = coalesce('this is not the id of an event: '
					|| (SELECT coalesce(quote_literal(left(e, 80)), 'NULL') FROM unnest(events) AS e WHERE (e ~ '^[0-9]{1,18}$') IS NOT TRUE LIMIT 1),
					'EVENT names no event'),
				HINT = 'EVENT names events by the ids that TAKE returned with this token.';
		END IF;
	END IF;
	-- what is copied refers to its row, which who drops it locks before its deliveries
	PERFORM FROM queue.subscriptions AS t WHERE t.number = d.number FOR KEY SHARE;
	SELECT * INTO held FROM queue.deliveries AS t WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits
		AND t.lease_until > clock_timestamp() FOR UPDATE;
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	groups := queue._retry_events((d.s).number, u, held, ids, error, retry_in, coalesce(final, false));
	PERFORM queue._end_delivery(held.sub, held.id, held.s2 IS NULL);
	IF groups IS NOT NULL THEN
		PERFORM queue._order_groups(held.sub, groups);
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell((d.s).number, (d.s).name);
END
$$;

-- A delivery goes away, with the retries that it had out, if they were some.
CREATE OR REPLACE FUNCTION queue._end_delivery(sub int4, id int8, retries bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	INSERT INTO queue._gone VALUES ('deliveries', sub, id);
	IF retries THEN
		INSERT INTO queue._gone VALUES ('retries', sub, id);
	END IF;
END
$$;

-- Copies are read by who may read the stream, whoever has the subscription: the right may have been taken from him since.
CREATE OR REPLACE FUNCTION queue._may_read_copies(sub int4) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT has_table_privilege('queue.e' || u.stream || '_0', 'SELECT') FROM queue.subscriptions AS u WHERE u.number = sub);
END
$$;

-- A copy that is jsonb is read as such when it is made: the condition of a trigger fails where it is none. A CHECK would read it
-- at each attempt, too.
CREATE OR REPLACE FUNCTION queue._copy_is_no_jsonb() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = format('the payload of event %s is not jsonb', NEW.id);
END
$$;

DO $qbouncer_retries$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'queue.retries'::regclass AND t.tgname = 'a_jsonb') THEN
		CREATE TRIGGER a_jsonb BEFORE INSERT OR UPDATE OF payload_jsonb ON queue.retries FOR EACH ROW
			WHEN (NEW.payload_jsonb IS NOT NULL AND NEW.payload_jsonb::jsonb IS NULL) EXECUTE FUNCTION queue._copy_is_no_jsonb();
	END IF;
	IF NOT EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = 'queue.retries'::regclass) THEN
		CREATE POLICY own ON queue.retries USING (pg_has_role(owner, 'USAGE') AND queue._may_read_copies(sub));
	END IF;
END
$qbouncer_retries$;

-- The right SUBSCRIBE: an error where the policy would show nothing, and nothing would happen.
CREATE OR REPLACE FUNCTION queue._must_select(s queue.streams) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT has_table_privilege(format('queue.e%s_0', s.number), 'SELECT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for stream "%s"', s.name),
			HINT = format('QUEUE GRANT SUBSCRIBE ON %I TO %I;', s.name, current_user);
	END IF;
END
$$;

-- Those that are due, as a delivery: of TAKE, behind its lock.
CREATE OR REPLACE FUNCTION queue._take_retries_jsonb(s queue.streams, u queue.subscriptions, p queue.positions, lim int4, lease interval,
	who text, proxied int4) RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	most int4;
	ids int8[];
	d queue.deliveries;
	leased queue._delivered_jsonb;
BEGIN
	PERFORM queue._must_select(s);
	SELECT r.together INTO most FROM queue.retries AS r WHERE r.sub = u.number AND NOT r.dead AND r.delivery IS NULL
		ORDER BY r.due_at, r.id LIMIT 1;
	ids := ARRAY(SELECT r.id FROM queue.retries AS r WHERE r.sub = u.number AND NOT r.dead AND r.delivery IS NULL AND r.due_at <= moment
		AND r.together IS NOT DISTINCT FROM most ORDER BY r.due_at, r.id LIMIT least(lim, most) FOR UPDATE SKIP LOCKED);
	IF ids = '{}' THEN
		RETURN;
	END IF;
	IF u.blocks THEN	-- those that wait behind these come with them: of each group from its beginning
		ids := ids || ARRAY(SELECT o.id FROM queue.retries AS o WHERE o.sub = u.number AND o.blocks AND o.due_at = 'infinity' AND NOT o.dead
			AND o.delivery IS NULL AND o."group" IN (SELECT r."group" FROM queue.retries AS r WHERE r.sub = u.number AND r.id = ANY (ids))
			AND NOT EXISTS (SELECT FROM queue.retries AS b WHERE b.sub = u.number AND b.blocks AND b."group" = o."group" AND b.id < o.id
				AND (b.dead OR b.together IS DISTINCT FROM most OR b.due_at < 'infinity' AND b.id <> ALL (ids)))
			AND o.together IS NOT DISTINCT FROM most ORDER BY o.id LIMIT least(lim, most) - cardinality(ids) FOR UPDATE SKIP LOCKED);
		ids := ARRAY(SELECT o.id FROM queue.retries AS o WHERE o.sub = u.number AND o.id = ANY (ids) AND (o.due_at < 'infinity'
			OR NOT EXISTS (SELECT FROM queue.retries AS b WHERE b.sub = u.number AND b.blocks AND b."group" = o."group" AND b.id < o.id
				AND b.id <> ALL (ids))));
	END IF;
	INSERT INTO queue.deliveries VALUES (u.number, p.delivery + 1, u.owner, queue._delivery_digits(),
			NULL, NULL, 0, false, 0, 0, cardinality(ids), 1, moment + coalesce(lease, u.lease), moment, left(who, 200), NULL, proxied)
		RETURNING * INTO d;
	UPDATE queue.retries AS r SET delivery = d.id WHERE r.sub = d.sub AND r.id = ANY (ids);
	p.delivery := d.id;
	p := queue._move(p, u, 0, false);
	leased.token := d.sub || '-d' || d.id || '-' || d.token;
	leased."out" := queue._lasts(d);
	IF leased."out" IS NOT NULL THEN
		RETURN NEXT leased;
	END IF;
	RETURN QUERY SELECT r.id, leased.token, s.name, r.attempt + 1, r.payload_jsonb, r.headers, r.key, r."group",
			r.pushed_at, d.lease_until, r.xid, NULL::int8, NULL::text, NULL::int4[]
		FROM queue.retries AS r WHERE r.sub = d.sub AND r.delivery = d.id ORDER BY r.id;
END
$$;

-- How many there are, up to "most" of each kind.
CREATE OR REPLACE FUNCTION queue._retries(sub int4, most int4, OUT waiting int8, OUT dead int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
	SELECT count(*) INTO waiting FROM (SELECT FROM queue.retries AS r WHERE r.sub = $1 AND NOT r.dead AND r.delivery IS NULL LIMIT most) AS o;
	SELECT count(*) INTO dead FROM (SELECT FROM queue.retries AS r WHERE r.sub = $1 AND r.dead LIMIT most) AS o;
END
$$;

-- The numbers of its lanes, also of those that are about to go.
CREATE OR REPLACE FUNCTION queue._lanes(u queue.subscriptions) RETURNS int4[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN u.lanes = 1 AND NOT u.waits THEN ARRAY[u.number] ELSE ARRAY(SELECT t.number FROM queue.subscriptions AS t
		WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner ORDER BY t.lane) END;
END
$$;

-- PEEK ... FOR: what failed by itself, and waits (later), is out (leased), or is dead.
CREATE OR REPLACE FUNCTION queue.peek_for(q text, sub text, lim int4 DEFAULT 10, which text DEFAULT NULL)
RETURNS SETOF queue.peeked_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u CONSTANT queue.subscriptions := queue._find_subscription(s, sub);
	one queue.peeked_jsonb;
	r record;
BEGIN
	IF s.payload <> 'jsonb' THEN
		PERFORM queue._check_events(s, 'jsonb');
	END IF;
	PERFORM queue._must_read(u);
	PERFORM queue._must_select(s);
	IF lim < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	ELSIF which NOT IN ('ready', 'later', 'leased', 'dead') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown state "%s"', left(which, 80)),
			HINT = 'States of an event that has failed: ready, later, leased, dead.';
	END IF;
	FOR r IN SELECT t.*, d.lease_until AS leased, d.worker AS holder, d.attempt AS more, CASE WHEN t.dead THEN 'dead' WHEN t.delivery IS NOT NULL THEN 'leased'
				WHEN t.due_at <= clock_timestamp() THEN 'ready' ELSE 'later' END AS now_is
			FROM queue.retries AS t LEFT JOIN queue.deliveries AS d ON d.sub = t.sub AND d.id = t.delivery
			WHERE t.sub = ANY (queue._lanes(u)) AND (which IS NULL OR CASE which WHEN 'dead' THEN t.dead WHEN 'leased' THEN t.delivery IS NOT NULL
				WHEN 'ready' THEN NOT t.dead AND t.delivery IS NULL AND t.due_at <= clock_timestamp()
				ELSE NOT t.dead AND t.delivery IS NULL AND t.due_at > clock_timestamp() END)
			ORDER BY t.dead, CASE WHEN NOT t.dead THEN t.due_at END, t.due_at DESC, t.id LIMIT coalesce(lim, 10) LOOP
		one := NULL;
		one.id := r.id;
		one.state := r.now_is;
		one.attempt := r.attempt + coalesce(r.more, 0);
		one.failures := r.attempt;
		one.payload := r.payload_jsonb;
		one.headers := r.headers;
		one.run_at := nullif(r.due_at, 'infinity');	-- of those that wait for others nobody knows
		one.lease_until := r.leased;
		one.error := r.error;
		one.worker := r.holder;
		one.pushed_at := r.pushed_at;
		one.key := r.key;
		one."group" := r."group";
		one.ended_at := CASE WHEN r.dead THEN r.due_at END;
		RETURN NEXT one;
	END LOOP;
END
$$;

-- PEEK token: a delivery that is out, or has failed and comes again. The token, or what SUBSCRIPTIONS shows of it.
CREATE OR REPLACE FUNCTION queue._peek_delivery_jsonb(name text, lim int4, which text) RETURNS SETOF queue.peeked_jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
	of record;
	u queue.subscriptions;
	d queue.deliveries;
	one queue.peeked_jsonb;
	e record;
	events refcursor;
	waits bool;
BEGIN
	of := queue._delivery(CASE WHEN name ~ '-d[0-9]+$' THEN name || '-0000000000000000' ELSE name END);
	IF lim < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	ELSIF which IS NOT NULL THEN
		PERFORM queue._not_of_streams('PEEK of a delivery with STATE', 'All of its events are shown: QUEUE PEEK token.');
	END IF;
	SELECT * INTO d FROM queue.deliveries AS t WHERE t.sub = of.number AND t.id = of.id AND (t.token = of.digits OR name ~ '-d[0-9]+$');
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(of.number, of.id) WHERE current_setting('transaction_isolation') <> 'read committed';
		RAISE EXCEPTION USING ERRCODE = 'QB001', MESSAGE = format('delivery %s-d%s is not out', of.number, of.id),
			DETAIL = 'It was done, or its lease is over and its events come in another one, or there never was one.',
			HINT = 'QUEUE SUBSCRIPTIONS shows of each subscription the delivery that is out.';
	END IF;
	IF (of.s).payload <> 'jsonb' THEN
		PERFORM queue._check_events(of.s, 'jsonb');
	END IF;
	PERFORM queue._must_select(of.s);
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = d.sub;
	IF d.s2 IS NULL THEN
		OPEN events FOR SELECT r.id, r.attempt, r.error, r.pushed_at, r.key, r."group", r.headers, r.payload_jsonb AS payload
			FROM queue.retries AS r WHERE r.sub = d.sub AND r.delivery = d.id ORDER BY r.id LIMIT lim;
	ELSE
		OPEN events FOR EXECUTE format('SELECT e.id, 0 AS attempt, NULL::text AS error, e.pushed_at, e.key, e."group", e.headers, e.payload
				FROM %s AS e
				WHERE NOT EXISTS (SELECT FROM queue.retries AS r WHERE $9 AND r.sub = $10 AND r.id = e.id AND r.blocks) LIMIT $11',
				queue._reader((of.s).number, u, '$1, $2, $3, $4, $5, $6, $7, $8', CASE WHEN d.chosen IS NOT NULL THEN '$12' END))
			USING pg_snapshot_xmax(d.s1), d.s2, CASE WHEN d.early THEN ARRAY(SELECT x FROM pg_snapshot_xip(d.s1) AS x
				WHERE pg_visible_in_snapshot(x, d.s2)) ELSE '{}' END, d.floor, d.last, d.upto, u.from_time, d.events, u.blocks, d.sub, lim, d.chosen;
	END IF;
	LOOP
		FETCH events INTO e;
		EXIT WHEN NOT FOUND;
		one := NULL;
		one.id := e.id;
		waits := left(d.token, 1) = 'w';
		one.state := CASE WHEN d.lease_until <= clock_timestamp() THEN 'ready' WHEN waits THEN 'later' ELSE 'leased' END;
		one.attempt := e.attempt + d.attempt;
		one.failures := e.attempt + d.attempt - 1;
		one.payload := e.payload;
		one.headers := e.headers;
		one.run_at := CASE WHEN waits THEN d.lease_until END;	-- it comes again then
		one.lease_until := CASE WHEN NOT waits THEN d.lease_until END;
		one.error := coalesce(d.error, e.error);
		one.worker := d.worker;
		one.pushed_at := e.pushed_at;
		one.key := e.key;
		one."group" := e."group";
		one.taken_at := d.taken_at;
		RETURN NEXT one;
	END LOOP;
	CLOSE events;
END
$$;

-- REDRIVE ... FOR: with all their attempts.
CREATE OR REPLACE FUNCTION queue.redrive_for(q text, sub text, lim int4 DEFAULT NULL, notify bool DEFAULT true,
	ids int8[] DEFAULT NULL, which text DEFAULT 'dead', target text DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u CONSTANT queue.subscriptions := queue._find_subscription(s, sub);
	lanes CONSTANT int4[] := queue._lanes(u);
	moved int8;
	groups text[];
BEGIN
	PERFORM queue._must_read(u);
	PERFORM queue._must_select(s);
	IF lim < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	ELSIF which NOT IN ('dead', 'later') OR which IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('events in state "%s" cannot be redriven', left(coalesce(which, ''), 80)), HINT = 'States: dead, later.';
	ELSIF target IS NOT NULL THEN
		PERFORM queue._not_of_streams('REDRIVE ... TO', 'An event that has failed goes back to its subscription.');
	END IF;
	WITH redriven AS (
		UPDATE queue.retries AS r SET dead = false, attempt = CASE WHEN r.dead THEN 0 ELSE r.attempt END, together = NULL, due_at = clock_timestamp()
			WHERE r.sub = ANY (lanes) AND r.id = ANY (ARRAY(SELECT o.id FROM queue.retries AS o WHERE o.sub = ANY (lanes) AND o.delivery IS NULL
				AND o.dead = (which = 'dead') AND (ids IS NULL OR o.id = ANY (ids)) ORDER BY o.due_at, o.id LIMIT lim FOR UPDATE SKIP LOCKED))
			RETURNING r."group", r.blocks)
	SELECT count(*), array_agg(DISTINCT r."group") FILTER (WHERE r.blocks) INTO moved, groups FROM redriven AS r;
	IF groups IS NOT NULL THEN
		PERFORM queue._order_groups(l, groups) FROM unnest(lanes) AS l;
	END IF;
	IF moved > 0 THEN
		PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
		PERFORM queue._tell(s.number, q);
	END IF;
	RETURN moved;
END
$$;

-- PURGE ... FOR: those that are not out. OLDER THAN: by their death if they are dead, else by their push.
CREATE OR REPLACE FUNCTION queue.purge_for(q text, sub text, which text DEFAULT NULL, notify bool DEFAULT true,
	older interval DEFAULT NULL, ids int8[] DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
	u CONSTANT queue.subscriptions := queue._find_subscription(s, sub);
	moment CONSTANT timestamptz := clock_timestamp();
	until timestamptz;
	gone int8;
BEGIN
	PERFORM queue._must_read(u);
	PERFORM queue._must_select(s);
	IF older < interval '0' OR older > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'OLDER THAN must be an interval, not negative, nor longer than 8000 years';
	ELSIF which NOT IN ('ready', 'later', 'dead') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('events in state "%s" cannot be purged', left(which, 80)),
			HINT = 'States: ready, later, dead; without a state all of these.';
	END IF;
	until := CASE WHEN older < interval '6000 years' THEN moment - older WHEN older IS NOT NULL THEN '-infinity' END;
	INSERT INTO queue._gone SELECT 'retry', r.sub, r.id FROM queue.retries AS r
		WHERE r.sub = ANY (queue._lanes(u)) AND r.delivery IS NULL AND (ids IS NULL OR r.id = ANY (ids))
			AND (until IS NULL OR CASE WHEN r.dead THEN r.due_at ELSE r.pushed_at END <= until)
			AND (which IS NULL OR which = CASE WHEN r.dead THEN 'dead' WHEN r.due_at <= moment THEN 'ready' ELSE 'later' END)
		ORDER BY r.sub, r.id;	-- lanes are locked in the order of all who lock several
	GET DIAGNOSTICS gone = ROW_COUNT;
	IF gone > 0 AND u.blocks THEN	-- others have waited for them
		PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
		PERFORM queue._tell(s.number, q);
	END IF;
	RETURN gone;
END
$$;
