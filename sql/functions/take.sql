-- TAKE and POP.

-- Makes ready what is due: delayed jobs, retries, and jobs whose lease has ended, which counts
-- as a failed attempt. At most "most" of them, so that no call takes long; rows that somebody
-- works on are left alone. What was cancelled while it was worked on goes away, and so do jobs that nobody took in their time
-- (_expire): all that is due is one or the other, so nothing is passed over. The jobs get their
-- places at the end of the queue, in the order of their times. after: nothing that became due until
-- then is left; under a transaction that stays open, what has been there is not read again. Who has written a job by
-- himself may have written a "due" that is not so: it is put right, or each take would look again. What a trigger or a
-- policy does not let go is tried again later (_put_off), and what is behind it has its turn.
CREATE OR REPLACE FUNCTION queue._promote(cfg queue.queues, most int4,
	after timestamptz DEFAULT '-infinity') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	died int8;
	late int8[];
	those int8[];
	stuck int8[] := '{}';		-- may not even be put off
	refused int8;
	last timestamptz;
BEGIN
	FOR n IN 1 .. 5 LOOP
		-- the time is a parameter: a volatile function would not be looked up in the index
		EXECUTE format($sql$
			WITH these AS MATERIALIZED (
				SELECT id AS due_id, due AS was_due, state = 'leased' AS expired,
					state = 'leased' AND again IS NULL
						AND attempt >= coalesce(CASE WHEN $4 THEN max_attempts END, $2) AS dead,
					(left(token, 1) = 'x') IS TRUE AS over, %3$s AND NOT %5$s AS ripe, %5$s AS late
				FROM %1$s
				WHERE due > $5 AND due <= $3 AND id <> ALL ($8)
				ORDER BY due
				LIMIT $1 FOR UPDATE SKIP LOCKED),
			righted AS (UPDATE %1$s SET due = %4$s FROM these WHERE id = due_id AND NOT ripe AND NOT late RETURNING id),
			gone AS (DELETE FROM %1$s USING these WHERE id = due_id AND ripe AND over RETURNING *) %2$s,
			job AS (UPDATE %1$s SET
				due = CASE WHEN NOT dead THEN CASE WHEN again AND run_at > $3 THEN least(run_at, expires_at) ELSE expires_at END END,
				state = CASE WHEN dead THEN 'dead' WHEN again AND run_at > $3 THEN 'later' ELSE 'ready' END,
				position = DEFAULT,
				run_at = greatest(CASE WHEN again THEN run_at END, coalesce(lease_until, run_at)),
				lease_until = NULL,
				token = NULL,
				again = NULL,
				failures = failures + expired::int4,
				history = CASE WHEN expired THEN queue._remember(history, $7, attempt, worker, taken_at, lease_until, 'expired',
					CASE WHEN lease_until >= taken_at + $6 THEN 'ran too long' ELSE 'lease expired' END) ELSE history END,
				error = CASE WHEN NOT expired THEN error WHEN lease_until >= taken_at + $6 THEN 'ran too long'
					ELSE 'lease expired' END,
				failed_at = CASE WHEN expired THEN clock_timestamp() ELSE failed_at END,
				ended_at = CASE WHEN dead THEN clock_timestamp() END
			FROM these WHERE id = due_id AND ripe AND NOT over RETURNING id, state, expires_at)
			SELECT (SELECT count(*) FROM job WHERE state = 'dead'), (SELECT array_agg(x) FROM (
				SELECT due_id AS x FROM these WHERE these.late
				UNION ALL SELECT id FROM job WHERE state <> 'dead' AND expires_at <= $3) AS y),
				array_agg(due_id), max(was_due), count(*) FILTER (WHERE NOT late) - (SELECT count(*) FROM righted)
					- (SELECT count(*) FROM gone) - (SELECT count(*) FROM job)
			FROM these
		$sql$, queue._table(cfg.name), queue._with_keep(cfg, 'gone', 'cancelled'),
			'coalesce(state = ''leased'' AND lease_until <= $3 OR state = ''later'' AND run_at <= $3, false)',
			'queue._due(state, lease_until, run_at, expires_at)',
			'coalesce(state IN (''ready'', ''later'') AND expires_at <= $3, false)')
		INTO died, late, those, last, refused USING most, queue._most_attempts(cfg), moment, cfg.retry_kind <> 'none', after, cfg.max_run,
			cfg.history, stuck;
		PERFORM queue._died(cfg.number, died);
		IF late IS NOT NULL THEN
			refused := refused + cardinality(late) - queue._expire(cfg, cardinality(late), late);
		END IF;
		EXIT WHEN refused = 0;
		IF NOT queue._put_off(cfg, those, moment) THEN
			stuck := stuck || those;
			after := queue._behind(after, last, moment, n);
		END IF;
	END LOOP;
END
$$;

-- What is due and is not let go (a trigger, a policy: of who has installed the schema) is looked at again in a minute. Are
-- all of them out of the way, or may not even that be written?
CREATE OR REPLACE FUNCTION queue._put_off(cfg queue.queues, ids int8[], moment timestamptz) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	still bool;
BEGIN
	EXECUTE format('UPDATE %s SET due = $2 + interval ''1 min'' WHERE id = ANY ($1) AND due <= $2', queue._table(cfg.name))
		USING ids, moment;
	EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id = ANY ($1) AND due <= $2)', queue._table(cfg.name))
		INTO still USING ids, moment;
	RETURN NOT still;
END
$$;

-- Where the look goes on that began behind "after" and has seen "last", when nothing of it could go: there, without those that
-- it has seen, as many may have the same time, and at the end anywhere, as it may be so with all the next ones.
CREATE OR REPLACE FUNCTION queue._behind(after timestamptz, last timestamptz, until timestamptz, round int4) RETURNS timestamptz
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN round < 4 THEN greatest(last - interval '1 us', after)
		ELSE last + power(random(), 8) * (until - last) END;
END
$$;

-- Jobs that nobody took in their time go away, or die (on_expire), as many at a time as above. Gives their number. late: those,
-- which are locked; NULL: they are looked for, and what is not let go is put off.
CREATE OR REPLACE FUNCTION queue._expire(cfg queue.queues, most int4, late int8[] DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	gone int8 := 0;
	went int8;
	after timestamptz := '-infinity';
	last timestamptz;
	stuck int8[] := '{}';
BEGIN
	IF late IS NULL THEN
		FOR n IN 1 .. 5 LOOP
			EXECUTE format($sql$
				SELECT array_agg(id), max(due) FROM (SELECT id, due FROM %1$s
					WHERE due > $3 AND due <= $2 AND state IN ('ready', 'later') AND expires_at <= $2 AND id <> ALL ($4)
					ORDER BY due LIMIT $1 FOR UPDATE SKIP LOCKED) AS x
			$sql$, queue._table(cfg.name)) INTO late, last USING most - gone, moment, after, stuck;
			EXIT WHEN late IS NULL;
			went := queue._expire(cfg, most, late);
			gone := gone + went;
			EXIT WHEN went = cardinality(late);
			IF NOT queue._put_off(cfg, late, moment) THEN
				stuck := stuck || late;
				after := queue._behind(after, last, moment, n);
			END IF;
		END LOOP;
		RETURN gone;
	END IF;
	EXECUTE format($sql$
		WITH gone AS (%1$s WHERE id = ANY ($1) RETURNING *) %2$s
		SELECT count(*) FROM gone
	$sql$, CASE cfg.on_expire WHEN 'dead' THEN format('UPDATE %s SET state = ''dead'', due = NULL,
				ended_at = clock_timestamp(), failed_at = clock_timestamp(), error = ''expired''', queue._table(cfg.name))
			ELSE format('DELETE FROM %s', queue._table(cfg.name)) END,
		CASE cfg.on_expire WHEN 'drop' THEN queue._with_keep(cfg, 'gone', 'expired') ELSE '' END)
	INTO gone USING late;
	IF cfg.on_expire = 'dead' THEN
		PERFORM queue._died(cfg.number, gone);
	END IF;
	RETURN gone;
END
$$;

-- Milliseconds until a job of this queue may become ready by itself, NULL if none will. A job
-- whose time is over and which could not be promoted is locked by somebody, and so is one that is
-- ready and was not taken: asked about again soon, but not at once. Where a thousand that are ready expire first it is the time
-- of one of those: then it is asked about again.
CREATE OR REPLACE FUNCTION queue._due_ms(name text) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	moment timestamptz := clock_timestamp();
	due timestamptz;
	ms int8;
BEGIN
	EXECUTE format($sql$
		SELECT coalesce((SELECT due FROM (SELECT due, state FROM %1$s WHERE due > $1 ORDER BY due LIMIT 1000) AS x
				WHERE state IN ('later', 'leased') ORDER BY due LIMIT 1), (SELECT due FROM %1$s WHERE due > $1 ORDER BY due OFFSET 999 LIMIT 1))
	$sql$, queue._table(name)) INTO due USING moment;
	IF due IS NOT NULL THEN
		ms := greatest(ceil(extract(epoch FROM least(due, moment + interval '1 year') - moment) * 1000), 1)::int8;
	END IF;
	EXECUTE format($sql$
		SELECT due FROM %1$s WHERE due <= $1 AND state IN ('later', 'leased') LIMIT 1
	$sql$, queue._table(name)) INTO due USING moment;
	IF due IS NULL THEN
		EXECUTE format('SELECT clock_timestamp() WHERE EXISTS (SELECT FROM %1$s WHERE state = ''ready'')',
			queue._table(name)) INTO due;
	END IF;
	RETURN CASE WHEN due IS NULL THEN ms ELSE least(ms, 100) END;
END
$$;

CREATE OR REPLACE FUNCTION queue._bad_lease() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LEASE must be longer than zero';
END
$$;

-- The lease need not survive a crash: a lost one means that the job is delivered again, under
-- another token. So this transaction's commit doesn't wait for the disk; it is meant to be a
-- transaction of its own. (queue.take, which may be called anywhere, undoes that.)
--
-- Nothing found is one row too: without an id, but with the time until there may be something.
CREATE OR REPLACE FUNCTION queue._take(queues text[], lim int4, lease interval, worker text,
	pop bool) RETURNS SETOF queue._taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	cfg queue.queues;
	q text;
	wanted int4 := coalesce(lim, 1);
	got int4;
	nothing queue._taken_jsonb;
BEGIN
	IF wanted < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must be at least 1';
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM queue._bad_lease();
	ELSIF cardinality(queues) = 0 THEN
		PERFORM queue._no_queue(NULL);
	ELSIF cardinality(queues) > 1 THEN
		-- one that is misspelt is noticed at once, not when the others are empty
		SELECT u.q INTO q FROM unnest(queues) WITH ORDINALITY AS u (q, n)
			WHERE NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.name = u.q) ORDER BY u.n LIMIT 1;
		IF FOUND THEN
			PERFORM queue._no_queue(q);
		END IF;
		PERFORM queue._lock_gates(queues);
	END IF;
	FOREACH q IN ARRAY queues LOOP
		SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
		IF NOT FOUND THEN
			PERFORM queue._no_queue(q);
		END IF;
		IF cfg.payload <> 'jsonb' THEN
			PERFORM queue._check_payload(cfg, 'jsonb');
		END IF;
		CONTINUE WHEN cfg.paused;
		IF cfg.limited THEN	-- behind an ALTER that is under way they may be others
			EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', queue._table(q));
			SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
			IF NOT FOUND THEN
				PERFORM queue._no_queue(q);
			ELSIF cfg.payload <> 'jsonb' THEN
				PERFORM queue._check_payload(cfg, 'jsonb');
			END IF;
		END IF;
		IF pop IS NOT TRUE THEN
			-- for the transaction, not for the function: a SET clause would end before the commit
			PERFORM set_config('synchronous_commit', 'off', true);
		ELSIF cfg.durability = 'async' THEN
			PERFORM queue._commit_async();
		END IF;
		RETURN QUERY EXECUTE 'SELECT * FROM queue._take_' || cfg.number
				|| '($1, $2, $3, $4, $5, $6, NULL, NULL, NULL, clock_timestamp(), $7) AS t WHERE t.id IS NOT NULL'
			USING cfg, wanted, least(coalesce(lease, cfg.lease), cfg.max_run), left(worker, 200),
				nullif(current_setting('qbouncer.proxy', true), '')::int4, coalesce(pop, false),
				nullif(current_setting('qbouncer.seed', true), '')::int8;
		GET DIAGNOSTICS got = ROW_COUNT;
		wanted := wanted - got;
		EXIT WHEN wanted <= 0;
	END LOOP;
	IF wanted = coalesce(lim, 1) THEN
		-- nothing becomes ready in a queue that is paused: RESUME says when there may be something
		SELECT min(CASE WHEN f.closed > 0 THEN f.closed ELSE least(queue._due_ms(c.name), queue._opens_ms(c)) END) INTO nothing.due_ms
			FROM queue.queues AS c, LATERAL (SELECT queue._closed_ms(c) AS closed OFFSET 0) AS f
			WHERE c.name = ANY (queues) AND NOT c.paused;
		RETURN NEXT nothing;
	END IF;
END
$$;

-- A row of it without what only the proxy needs.
DO $qbouncer_shown$
DECLARE
	kind text;
BEGIN
	FOREACH kind IN ARRAY '{jsonb, text, bytea}'::text[] LOOP
		EXECUTE format($f$
			CREATE OR REPLACE FUNCTION queue._without(t queue.%1$I) RETURNS queue.%2$I
			LANGUAGE sql IMMUTABLE
			SET search_path = pg_catalog, pg_temp
			AS 'SELECT %3$s FROM (SELECT t.*) AS j'
		$f$, '_taken_' || kind, 'taken_' || kind, queue._row('taken_' || kind, '{takes, takes}'));
	END LOOP;
END
$qbouncer_shown$;
