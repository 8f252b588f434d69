-- For the proxy: leases that follow a connection (HOLD), and those of a proxy that is gone.
--
-- A proxy that is there holds a shared advisory lock of the class 1902276469 ("qbou") in each
-- database; the lock's second number is its own, and is written into the leases that end with
-- a connection. It says so with a take (_take_<number>), or before it by the setting qbouncer.proxy
-- (_take); a negative number is for leases that are held, whatever on_disconnect of the queue is.

-- Jobs are looked up by the arrays, not by a join with them, and the state is not compared by an
-- operator that an index could serve: where few rows are alive the planner would begin with the table
-- or with the index of the leases, and read all that a transaction that is held open keeps there.

-- The statement that changes the jobs $1 whose leases are $2. What somebody else has locked (the worker's own
-- DONE that is not committed) is passed over.
CREATE OR REPLACE FUNCTION queue._set_leased(name text, change text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format($sql$
		UPDATE %1$s SET %2$s
		WHERE id = ANY (ARRAY(SELECT id FROM %1$s
			WHERE id = ANY ($1) AND token = ANY ($2) AND state IS NOT DISTINCT FROM 'leased'
			FOR UPDATE SKIP LOCKED))
	$sql$, queue._table(name), change);
END
$$;

-- Moves the ends of these leases, never to an earlier time. A lease whose time is over but whose
-- job nobody has taken is alive again. Gives those that cannot be renewed: lost or cancelled.
CREATE OR REPLACE FUNCTION queue._renew(tokens text[], lease interval)
RETURNS TABLE (token text, state text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
	part record;
	cfg queue.queues;
BEGIN
	-- a renewal that a crash forgets is made again
	PERFORM set_config('synchronous_commit', 'off', true);
	FOR part IN SELECT * FROM queue._split(tokens, false) LOOP
		cfg := part.cfg;
		IF NOT has_table_privilege(queue._table(cfg.name), 'UPDATE') THEN
			RETURN QUERY SELECT format('%s-%s-%s', cfg.number, w.id, w.token), 'lost'::text
				FROM unnest(part.ids, part.tokens) AS w (id, token);
			CONTINUE;
		END IF;
		EXECUTE queue._set_leased(cfg.name,
			queue._set_due(lease_until => 'greatest(lease_until, least(clock_timestamp() + $3, taken_at + $4))'))
			USING part.ids, part.tokens, lease, cfg.max_run;
		RETURN QUERY EXECUTE format($sql$
			SELECT format('%%s-%%s-%%s', $3, w.id, w.token),
				CASE WHEN q.token = 'x' || w.token THEN 'cancelled' ELSE 'lost' END
			FROM unnest($1, $2) AS w (id, token) LEFT JOIN %1$s AS q ON q.id = w.id
			WHERE q.token IS DISTINCT FROM w.token
				AND (left(q.token, 17) = 'g' || w.token AND w.id = ANY (ARRAY(SELECT unnest(	-- once (lot.sql)
					queue._lot_extend($4, $1, $2, NULL, $5, false, NULL, false))))) IS NOT TRUE
		$sql$, queue._table(cfg.name)) USING part.ids, part.tokens, cfg.number, cfg, clock_timestamp() + lease;
	END LOOP;
END
$$;

-- Makes these leases the proxy's, or nobody's (NULL): those of a connection that said goodbye
-- are a matter of time alone.
CREATE OR REPLACE FUNCTION queue._own(tokens text[], owner int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
	part record;
	cfg queue.queues;
	n int8;
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	IF array_to_string(tokens, ' ') ~ '-d' THEN	-- of streams
		PERFORM queue._own_deliveries(tokens, owner);
		tokens := ARRAY(SELECT t FROM unnest(tokens) AS t WHERE t !~ '^[0-9]{1,9}-d');
	END IF;
	FOR part IN SELECT * FROM queue._split(tokens, false) LOOP
		cfg := part.cfg;
		CONTINUE WHEN NOT has_table_privilege(queue._table(cfg.name), 'UPDATE');
		EXECUTE queue._set_leased(cfg.name, 'proxy = $3') USING part.ids, part.tokens, owner;
		GET DIAGNOSTICS n = ROW_COUNT;
		IF n < cardinality(part.ids) THEN
			PERFORM queue._lot_own(cfg, part.ids, part.tokens, owner);
		END IF;
	END LOOP;
END
$$;

-- Has it a row, as far as Postgres has counted?
CREATE OR REPLACE FUNCTION queue._has_rows(name text) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN pg_stat_get_live_tuples(to_regclass('queue.' || quote_ident('q_' || name))) > 0;
END
$$;

-- Does this error end the work of who goes through all queues (his session, his transaction, the disk, the memory)? Any other
-- is one queue's: of a trigger, or of what somebody has changed there.
CREATE OR REPLACE FUNCTION queue._ends_all(state text) RETURNS bool
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN left(state, 2) IN ('25', '40', '53', '57', '58');
END
$$;

-- Whose lock counts: those of roles that take, or may make queues, or were told to be a proxy's. Anybody can hold
-- a lock. The proxy looks itself, and in the same way (src/queue/system.c).
CREATE OR REPLACE FUNCTION queue._is_proxy(role oid) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN has_table_privilege(role, 'queue.queues'::regclass, 'INSERT')
		OR has_table_privilege(role, 'queue.proxies'::regclass, 'INSERT')
		OR EXISTS (SELECT FROM pg_class AS r WHERE r.relnamespace = 'queue'::regnamespace AND r.relkind = 'r'
			AND left(r.relname, 2) = 'q_' AND has_table_privilege(role, r.oid, 'UPDATE'));
END
$$;

DO $qbouncer_proxies$
BEGIN
	IF to_regclass('queue.proxies') IS NULL THEN
		CREATE VIEW queue.proxies AS
			SELECT l.objid::int8::int4 AS number, a.usename AS role, l.pid, a.backend_start AS since
			FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
			WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1902276469 AND l.objsubid = 2
				AND l.objid::int8 BETWEEN 1 AND 2147483647
				AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
				AND a.usesysid IN (SELECT r.role FROM (SELECT DISTINCT b.usesysid AS role FROM pg_stat_activity AS b
					WHERE b.datname = current_database() OFFSET 0) AS r WHERE queue._is_proxy(r.role));
		REVOKE ALL ON queue.proxies FROM PUBLIC;
		GRANT SELECT ON queue.proxies TO PUBLIC;
	END IF;
END
$qbouncer_proxies$;

-- Of these leases, whose rows are locked, those of proxies that are not there now: since the look began one may have come, and
-- taken. It locks its number before it takes. Whose a lock is, is dear, and asked only if one of their numbers is locked: a
-- transaction sees the sessions as it has seen them first, unless it forgets them.
CREATE OR REPLACE FUNCTION queue._of_nobody_there(tokens text[], owners int4[]) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1902276469
			AND l.objsubid = 2 AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
			AND l.objid::int8 = ANY (owners::int8[])) THEN
		RETURN tokens;
	END IF;
	PERFORM pg_stat_clear_snapshot();
	RETURN (SELECT array_agg(w.token) FROM unnest(tokens, owners) AS w (token, owner)
		WHERE w.owner NOT IN (SELECT p.number FROM queue.proxies AS p));
END
$$;

-- In one queue, locked; where there is none the locks are let go (_visited). remain: something is left. likely: there is one.
-- met: its table was looked into. told: as for _orphans_back. cancelled: some are.
CREATE OR REPLACE FUNCTION queue._orphans_of(q queue.queues, there int4[], likely bool, told bool,
	OUT tokens text[], OUT owners int4[], OUT cancelled bool, OUT remain bool, OUT met bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	most CONSTANT int4 := 5000;
	held int8;
BEGIN
	remain := false;
	met := false;
	BEGIN
		IF queue._has_no_pages(q.name) OR NOT queue._still(q.name) THEN
			RETURN;
		END IF;
		met := true;
		EXECUTE format($sql$
			SELECT array_agg(format('%%s-%%s-%%s', $3, id, ltrim(token, 'x'))), array_agg(proxy), bool_or(left(token, 1) = 'x'), %2$s
			FROM (SELECT id, token, proxy FROM %1$s
				WHERE due IS NOT NULL AND proxy <> ALL ($1) AND state = 'leased'
				LIMIT $2 FOR UPDATE SKIP LOCKED) AS o
		$sql$, queue._table(q.name), CASE WHEN likely THEN 'NULL::int8'	-- what is locked is found later
			ELSE format('(SELECT count(*) FROM (SELECT FROM %s WHERE due IS NOT NULL AND proxy <> ALL ($1) AND state = ''leased''
				LIMIT $2 + 1) AS s)', queue._table(q.name)) END) INTO tokens, owners, cancelled, held USING there, most, q.number;
		remain := held <> coalesce(cardinality(tokens), 0);
		PERFORM queue._visited() WHERE tokens IS NULL;
	EXCEPTION WHEN SQLSTATE 'QBSEE' THEN
		remain := coalesce(remain, false);
	WHEN lock_not_available THEN
		remain := true;
	WHEN OTHERS THEN
		IF queue._ends_all(SQLSTATE) THEN
			RAISE;
		END IF;
		remain := true;
		IF told THEN
			PERFORM queue._orphans_stay(q.name, SQLSTATE, SQLERRM);
		END IF;
	END;
	remain := coalesce(remain, false);
END
$$;

CREATE OR REPLACE FUNCTION queue._orphans_stay(name text, state text, why text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE WARNING USING ERRCODE = state,
		MESSAGE = format('jobs of a proxy that is gone in queue "%s" cannot be given back: %s', name, why);
END
$$;

-- Gives back what is locked, of several queues: who is there now is asked once for all of them, which is as dear as there are
-- locks. If it fails, each queue by itself. told: of these what a trigger refuses. stay: these are left.
CREATE OR REPLACE FUNCTION queue._orphans_back(tokens text[], owners int4[], cancelled bool, told text[],
	OUT back text[], OUT stay text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part record;
BEGIN
	back := '{}';
	stay := '{}';
	tokens := queue._of_nobody_there(tokens, owners);
	IF tokens IS NULL THEN
		RETURN;
	END IF;
	BEGIN
		back := ARRAY(SELECT b FROM queue._give_back(tokens, 'worker disconnected', true, cancelled) AS b);
		RETURN;
	EXCEPTION WHEN OTHERS THEN
		IF queue._ends_all(SQLSTATE) THEN
			RAISE;
		END IF;
		back := '{}';
	END;
	FOR part IN SELECT c.name, array_agg(t.token) AS tokens FROM unnest(tokens) AS t (token), queue.queues AS c
			WHERE c.number = split_part(t.token, '-', 1)::int4 GROUP BY c.number, c.name ORDER BY c.number LOOP
		BEGIN
			back := back || ARRAY(SELECT b FROM queue._give_back(part.tokens, 'worker disconnected', true, cancelled) AS b);
		EXCEPTION WHEN lock_not_available THEN
			stay := stay || part.name;
		WHEN OTHERS THEN
			IF queue._ends_all(SQLSTATE) THEN
				RAISE;
			END IF;
			stay := stay || part.name;
			IF part.name = ANY (told) THEN
				PERFORM queue._orphans_stay(part.name, SQLSTATE, SQLERRM);
			END IF;
		END;
	END LOOP;
END
$$;

-- Of streams, as _orphans_step says it.
CREATE OR REPLACE FUNCTION queue._orphans_of_streams(there int4[], told bool) RETURNS TABLE (queue text, next int4, met int4)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	streams text[];
	remain bool := true;
BEGIN
	BEGIN
		-- in a DECLARE it is not caught
		SELECT o.names, o.again INTO streams, remain FROM queue._orphaned_deliveries(there, 5000) AS o;
		PERFORM queue._visited() WHERE cardinality(streams) = 0;
	EXCEPTION WHEN SQLSTATE 'QBSEE' OR lock_not_available THEN
		NULL;
	WHEN OTHERS THEN
		IF queue._ends_all(SQLSTATE) THEN
			RAISE;
		END IF;
		IF told THEN
			RAISE WARNING USING ERRCODE = SQLSTATE,
				MESSAGE = format('deliveries of a proxy that is gone cannot be given back: %s', SQLERRM);
		END IF;
	END;
	RETURN QUERY SELECT s, NULL::int4, NULL::int4 FROM unnest(streams) AS s;
	IF remain THEN
		RETURN QUERY SELECT '', 0, NULL::int4;
	END IF;
END
$$;

-- Gives back what proxies held that are gone: all but those here and those that are there now.
-- Only in queues that the caller may take from, and of those the ones that he owns or has used. Gives the names of queues in
-- which something became ready. next 0: this queue is left, as it, or something of it, is locked, or an error ends it ('': the
-- deliveries of streams): the caller says it again some time ("rest"). It waits for nobody for long.
-- these: not in other queues than these and the rest; of streams nothing then. Steps of so many milliseconds, as with ten
-- thousand queues it takes seconds, and what was found is not to wait for the end: "after" is 0, then what the last row says
-- ("next" without a name). met: into so many queues it has looked.
--
-- A session's first look into a queue is 1 to 2 ms. So the rest comes first, for which somebody may wait; then those (negative
-- numbers) in which there is a row, as far as Postgres has counted: it counts late, and may have forgotten it all, so all
-- others follow (positive ones). If most have rows it is all in one.
--
-- Leases are found by their ends, among all that is delayed or expires: an index of them would cost each take and each
-- push, and a proxy dies seldom.
CREATE OR REPLACE FUNCTION queue._orphans_step(here int4[], used text[], these text[], after int4, ms int4,
	rest text[] DEFAULT '{}')
RETURNS TABLE (queue text, next int4, met int4)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET lock_timeout = '50ms'
AS $$
#variable_conflict use_column
DECLARE
	until CONSTANT timestamptz := clock_timestamp() + make_interval(secs => ms / 1000.0);
	most_changed CONSTANT int4 := CASE WHEN ms < 1000000 THEN 50 ELSE 2000000000 END;	-- their locks are held until the end
	me CONSTANT oid := quote_ident(current_user)::regrole;
	there int4[];
	q queue.queues;
	-- 0: the rest alone; 1: with rows
	phase int4 := CASE WHEN these IS NOT NULL OR after > 0 THEN 2 WHEN after < 0 THEN 1 ELSE 0 END;
	behind int4 := abs(after);
	any_passed bool := false;
	seen int4 := 0;
	changed int4 := 0;
	looked record;
	given record;
	tokens text[] := '{}';	-- that are locked, of n queues
	owners int4[] := '{}';
	n int4 := 0;
	cancelled bool := false;
	told text[] := '{}';
	ends bool := false;
BEGIN
	-- 0: nobody's number. Without an element a lease of nobody (NULL) would be one of those gone
	SELECT coalesce(here, '{}') || 0 || coalesce(array_agg(DISTINCT p.number), '{}') INTO there FROM queue.proxies AS p;
	IF after = 0 AND (these IS NULL OR '' = ANY (rest)) THEN
		RETURN QUERY SELECT * FROM queue._orphans_of_streams(there, these IS NULL);
	END IF;
	LOOP
		FOR q IN SELECT * FROM queue.queues AS c
				WHERE c.number > behind AND (these IS NULL AND phase > 0 OR c.name = ANY (these) AND c.owner <> me OR c.name = ANY (rest))
					AND (phase <> 1 OR queue._has_rows(c.name))
				ORDER BY c.number LOOP	-- by the index: a scan would be "expensive", and compiled (jit)
			ends := any_passed AND (clock_timestamp() > until OR changed >= most_changed);
			EXIT WHEN ends;
			behind := q.number;
			any_passed := true;
			CONTINUE WHEN NOT queue._visits(q, used) OR NOT has_table_privilege(to_regclass(queue._table(q.name)), 'UPDATE')
				OR NOT has_table_privilege(to_regclass(queue._table(q.name)), 'DELETE');
			-- what goes on to be refused is told once in each look into all
			IF phase > 0 AND (these IS NULL OR q.name <> ALL (rest)) THEN
				told := told || q.name;
			END IF;
			looked := queue._orphans_of(q, there, phase = 1, q.name = ANY (told));
			seen := seen + looked.met::int4;
			IF looked.tokens IS NOT NULL THEN
				tokens := tokens || looked.tokens;
				owners := owners || looked.owners;
				cancelled := cancelled OR looked.cancelled;
				n := n + 1;
				changed := changed + 1;
			END IF;
			IF n >= 10 OR cardinality(tokens) >= 5000 OR n > 0 AND looked.remain THEN
				given := queue._orphans_back(tokens, owners, cancelled, told);
				RETURN QUERY SELECT b, NULL::int4, NULL::int4 FROM unnest(given.back) AS b
					UNION ALL SELECT b, 0, NULL FROM unnest(given.stay) AS b WHERE b <> q.name OR NOT looked.remain;
				tokens := '{}';
				owners := '{}';
				n := 0;
				cancelled := false;
			END IF;
			told := CASE WHEN n > 0 THEN told ELSE '{}' END;
			IF looked.remain THEN
				RETURN QUERY SELECT q.name, 0, NULL::int4;
			END IF;
		END LOOP;
		IF n > 0 THEN
			given := queue._orphans_back(tokens, owners, cancelled, told);
			RETURN QUERY SELECT b, NULL::int4, NULL::int4 FROM unnest(given.back) AS b
				UNION ALL SELECT b, 0, NULL FROM unnest(given.stay) AS b;
			tokens := '{}';
			owners := '{}';
			n := 0;
			cancelled := false;
			told := '{}';
		END IF;
		IF ends AND phase <> 0 THEN	-- of the rest the others have their turn with all
			RETURN QUERY SELECT NULL::text, CASE phase WHEN 1 THEN -behind ELSE behind END, seen;
			RETURN;
		END IF;
		EXIT WHEN phase = 2;
		phase := CASE WHEN phase = 0
			AND (SELECT 2 * count(*) FILTER (WHERE queue._has_rows(c.name)) < count(*) FROM queue.queues AS c) THEN 1 ELSE 2 END;
		behind := 0;
		any_passed := false;	-- 0 is the beginning of all
		ends := false;
	END LOOP;
	RETURN QUERY SELECT NULL::text, NULL::int4, seen;
END
$$;

-- All at once. NULL: something is left.
CREATE OR REPLACE FUNCTION queue._orphans(here int4[], used text[] DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT CASE WHEN o.next IS NULL THEN o.queue END FROM queue._orphans_step(here, used, NULL, 0, 2000000000) AS o
		WHERE o.queue IS NOT NULL;
END
$$;

-- Gives back, uncounted, what a take of the proxy has leased whose answer was lost: its tokens are made of the seed
-- (_take_<number>, _take_for), or of a push that handed over to so many at most (_hand_<number>). They are found by the
-- ends of their leases: the statement was sent "age" ago. A row of NULL says that its process is there, so that more may
-- come.
CREATE OR REPLACE FUNCTION queue._give_back_lost(names text[], lease interval, seed int8, handed int4,
	age interval, process int4) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	slack CONSTANT interval := '10 s';
	secret CONSTANT uuid := encode(substr(sha256(int8send(seed)), 1, 16), 'hex');	-- as in _take_<number>
	-- first: what it has done until it is gone is seen below
	there CONSTANT bool := EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = process);
	digits CONSTANT text[] := ARRAY(SELECT encode(int8send(uuid_hash_extended(secret, n)), 'hex')
		FROM generate_series(1, handed) AS n);
	q queue.queues;
	lost text[];
BEGIN
	FOR q IN SELECT * FROM queue.queues AS c WHERE c.name = ANY (names) ORDER BY c.number LOOP
		EXECUTE format($sql$
			SELECT array_agg(format('%%s-%%s-%%s', $1, id, ltrim(token, 'x')))
			FROM (SELECT id, token FROM %s
				WHERE due BETWEEN $2 AND $3
					AND state = 'leased' AND (ltrim(token, 'x') = ANY ($4)
						OR ltrim(token, 'x') = encode(int8send(uuid_hash_extended($5, id)), 'hex'))
				FOR UPDATE SKIP LOCKED) AS l
		$sql$, queue._table(q.name)) INTO lost
			USING q.number, clock_timestamp() + least(coalesce(lease, q.lease), q.max_run) - age - slack,
				clock_timestamp() + least(coalesce(lease, q.lease), q.max_run) + slack, digits, secret;
		CONTINUE WHEN lost IS NULL;
		RETURN QUERY SELECT * FROM queue._give_back(lost, NULL, false);
	END LOOP;
	SELECT array_agg(d.sub || '-d' || d.id || '-' || d.token) INTO lost
		FROM queue.streams AS s JOIN queue.subscriptions AS u ON u.stream = s.number JOIN queue.deliveries AS d ON d.sub = u.number
		WHERE s.name = ANY (names) AND d.token = encode(substr(sha256(int8send(seed)), 1, 8), 'hex');
	IF lost IS NOT NULL THEN
		RETURN QUERY SELECT * FROM queue._give_back(lost, NULL, false);
	END IF;
	IF there THEN
		RETURN NEXT NULL;
	END IF;
END
$$;
