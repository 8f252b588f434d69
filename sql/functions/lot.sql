-- TAKE ... GROUPED: of a group also the jobs behind its first, in their order, to one worker: a lot.
--
-- At most one of a group is leased (group.sql), so the first of a lot is, and the others stay blocked. What their lease
-- will be stands in their token, and nowhere else:
--
--     g<token><token of the job in front of it> <end of the lease, in microseconds> <proxy> =<worker>
--
-- Nobody who says <token> finds such a job: those who do not take so pay nothing. When the job in front is done, and only
-- then, the next one takes its place leased instead of ready (_next_<number>): its token says what was in front of it. Whatever else becomes of that one (it fails, is
-- given back, lost, taken again under another token), this one's token is of no worth any more: it waits, as it did
-- before, and nobody has counted anything. So nothing has to be undone, by anybody.
--
-- A lot: what is valid of a group, one behind the other without a gap.

-- What such a token says. last: of the job in front.
CREATE OR REPLACE FUNCTION queue._lot_said(said text, OUT token text, OUT last text, OUT until timestamptz, OUT proxy int4,
	OUT worker text)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF left(said, 1) = 'g' THEN
		token := substr(said, 2, 16);
		last := substr(said, 18, 16);
		until := 'epoch'::timestamptz + split_part(said, ' ', 2)::int8 * interval '1 microsecond';
		proxy := nullif(split_part(said, ' ', 3), '')::int4;
		worker := substring(said FROM '^[^=]*=(.*)$');
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._lot_token(token text, last text, until timestamptz, proxy int4, worker text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'g' || token || last || ' ' || (extract(epoch FROM until) * 1000000)::int8 || ' ' || coalesce(proxy::text, '') || ' '
		|| coalesce('=' || worker, '');
END
$$;

-- Those of these jobs that are in a lot, in the place that their tokens say. still: others of them, which the caller's own
-- statement has changed: these may have been in front until then.
CREATE OR REPLACE FUNCTION queue._lot_held(cfg queue.queues, ids int8[], tokens text[], still int8[] DEFAULT NULL) RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	tab CONSTANT text := queue._table(cfg.name);
	gone CONSTANT text[] := ARRAY(SELECT u.token FROM unnest(ids, tokens) AS u (id, token) WHERE u.id = ANY (still));
	held int8[] := '{}';
	names text[];
	g text;
	one record;
	last text;
BEGIN
	EXECUTE format('SELECT ARRAY(SELECT DISTINCT t."group" FROM unnest($1, $2) AS w (id, token), LATERAL (SELECT "group", token
			FROM %s WHERE id = w.id) AS t WHERE left(t.token, 17) = ''g'' || w.token)', tab) INTO names USING ids, tokens;
	FOREACH g IN ARRAY names LOOP
		-- the first of the group; when that one has died it is the first of the lot
		EXECUTE format('SELECT t.id, t.state, t.token AS said, t.lease_until, l.* FROM %s AS t, LATERAL queue._lot_said(t.token) AS l
			WHERE t."group" = $1 AND t.state IN (''ready'', ''later'', ''leased'')', tab) INTO one USING g;
		IF one.state = 'leased' AND one.lease_until > moment THEN
			last := one.said;
		ELSIF one.last = ANY (gone) THEN
			last := one.token;
			held := held || one.id;
		ELSE
			last := NULL;
		END IF;
		FOR one IN EXECUTE format('SELECT t.id, l.* FROM %s AS t, LATERAL queue._lot_said(t.token) AS l
				WHERE t.state = ''blocked'' AND t."group" = $1 ORDER BY t."group", t.id', tab) USING g LOOP
			EXIT WHEN (one.last = last OR one.last = ANY (gone)) IS NOT TRUE OR one.until <= moment;
			last := one.token;
			held := held || one.id;
		END LOOP;
	END LOOP;
	RETURN ARRAY(SELECT u.id FROM unnest(ids) AS u (id) WHERE u.id = ANY (held));
END
$$;

CREATE OR REPLACE FUNCTION queue._lot_has(cfg queue.queues, job int8) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	said text;
BEGIN
	EXECUTE format('SELECT token FROM %s WHERE id = $1 AND left(token, 1) = ''g''', queue._table(cfg.name)) INTO said USING job;
	RETURN said IS NOT NULL AND cardinality(queue._lot_held(cfg, ARRAY[job], ARRAY[substr(said, 2, 16)])) > 0;
END
$$;

-- Why a job of this token cannot be done (_lost).
CREATE OR REPLACE FUNCTION queue._lot_lost(cfg queue.queues, job int8, token text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF cardinality(queue._lot_held(cfg, ARRAY[job], ARRAY[token])) > 0 THEN
		RAISE EXCEPTION USING ERRCODE = '55000',
			MESSAGE = format('job %s is behind others of its group that are not done', job),
			DETAIL = 'They were taken together (GROUPED).',
			HINT = 'Nothing was changed. Finish them in the order in which they came, or in one statement: QUEUE DONE a, b, c.';
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'QB001',
		MESSAGE = format('the lease of job %s is lost', job),
		DETAIL = 'A job in front of it was not done, or its lease has ended: those behind it were given back with it.',
		HINT = 'Nothing was changed. Stop the work: it will be taken again, behind that one.';
END
$$;

-- DONE of these: each makes the next one leased. Those that were done.
CREATE OR REPLACE FUNCTION queue._lot_done(cfg queue.queues, ids int8[], tokens text[], results text[], keep bool, still int8[])
RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	done int8[] := still;
	more int8[] := still;
	rest_ids int8[];
	rest_tokens text[];
	rest_results text[];
BEGIN
	WHILE cardinality(more) > 0 AND cardinality(done) < cardinality(ids) LOOP
		SELECT array_agg(u.id ORDER BY u.n), array_agg(u.token ORDER BY u.n), array_agg(u.result ORDER BY u.n)
			INTO rest_ids, rest_tokens, rest_results
			FROM unnest(ids, tokens, results) WITH ORDINALITY AS u (id, token, result, n) WHERE u.id <> ALL (done);
		IF results IS NULL AND NOT keep AND cfg.retain_done = interval '0' THEN
			EXECUTE 'SELECT queue._done_' || cfg.number || '($1, $2)' INTO more USING rest_ids, rest_tokens;
		ELSE
			EXECUTE 'SELECT queue._done_keep_' || cfg.number || '($1, $2, $3)' INTO more
				USING rest_ids, rest_tokens, CASE WHEN results IS NOT NULL THEN rest_results END;
		END IF;
		done := done || more;
	END LOOP;
	RETURN done;
END
$$;

-- FAIL of some: they become as leased ones are, but for the state, and the caller changes them.
CREATE OR REPLACE FUNCTION queue._lot_open(cfg queue.queues, ids int8[], tokens text[], still int8[]) RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	held CONSTANT int8[] := queue._lot_held(cfg, ids, tokens, still);
BEGIN
	EXECUTE format('UPDATE %s AS t SET token = l.token, lease_until = l.until, worker = l.worker, proxy = l.proxy,
			attempt = t.attempt + 1, first_taken_at = coalesce(t.first_taken_at, t.taken_at), taken_at = clock_timestamp()
		FROM (SELECT id AS job, s.* FROM %1$s, LATERAL queue._lot_said(token) AS s WHERE id = ANY ($1)) AS l WHERE t.id = l.job',
		queue._table(cfg.name)) USING held;
	RETURN held;
END
$$;

CREATE OR REPLACE FUNCTION queue._lot_release(cfg queue.queues, ids int8[], tokens text[], still int8[], delay interval)
RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	held CONSTANT int8[] := queue._lot_held(cfg, ids, tokens, still);
BEGIN
	EXECUTE format('UPDATE %s SET token = NULL, run_at = CASE WHEN $2 > interval ''0'' THEN clock_timestamp() + $2 ELSE run_at END
		WHERE id = ANY ($1)', queue._table(cfg.name)) USING held, delay;
	RETURN held;
END
$$;

-- EXTEND (earlier: also to an earlier time), and the renewal of HOLD, which waits for nobody.
CREATE OR REPLACE FUNCTION queue._lot_extend(cfg queue.queues, ids int8[], tokens text[], still int8[], until timestamptz,
	earlier bool, progress jsonb, waits bool) RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	held CONSTANT int8[] := queue._lot_held(cfg, ids, tokens, still);
	most CONSTANT timestamptz := least(until, clock_timestamp() + cfg.max_run);	-- it runs when its turn comes
BEGIN
	EXECUTE format('UPDATE %1$s AS t SET progress = coalesce($4, t.progress), token = (SELECT queue._lot_token(l.token, l.last,
			CASE WHEN $3 THEN $2 ELSE greatest(l.until, $2) END, l.proxy, l.worker) FROM queue._lot_said(t.token) AS l)
		WHERE id = ANY (ARRAY(SELECT id FROM %1$s WHERE id = ANY ($1) AND state = ''blocked'' ORDER BY id FOR UPDATE %2$s))',
		queue._table(cfg.name), CASE WHEN waits THEN '' ELSE 'SKIP LOCKED' END) USING held, most, earlier, progress;
	RETURN held;
END
$$;

-- One is cancelled: what was behind it is behind the one in front of it.
CREATE OR REPLACE FUNCTION queue._lot_without(cfg queue.queues, job int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
	IF queue._lot_has(cfg, job) THEN
		EXECUTE format('UPDATE %1$s AS t SET token = overlay(t.token PLACING gone.last FROM 18)
			FROM (SELECT j."group" AS name, l.* FROM %1$s AS j, LATERAL queue._lot_said(j.token) AS l WHERE j.id = $1) AS gone
			WHERE t.state = ''blocked'' AND t."group" = gone.name AND t.id > $1 AND substr(t.token, 18, 16) = gone.token',
			queue._table(cfg.name)) USING job;
	END IF;
END
$$;

-- Leases of another proxy now, or of none.
CREATE OR REPLACE FUNCTION queue._lot_own(cfg queue.queues, ids int8[], tokens text[], owner int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
	EXECUTE format('UPDATE %1$s AS t SET token = (SELECT queue._lot_token(l.token, l.last, l.until, $3, l.worker)
			FROM queue._lot_said(t.token) AS l)
		WHERE id = ANY (ARRAY(SELECT id FROM %1$s WHERE id = ANY ($1) AND left(token, 17) = ANY ($2) FOR UPDATE SKIP LOCKED))',
		queue._table(cfg.name))
		USING ids, ARRAY(SELECT 'g' || u FROM unnest(tokens) AS u), owner;
END
$$;

CREATE OR REPLACE FUNCTION queue._no_lot(with_what text, hint text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('GROUPED is not possible with %s', with_what), HINT = hint;
END
$$;

-- May a queue be taken from so?
CREATE OR REPLACE FUNCTION queue._lot_check(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF queue._group_mode(cfg) <> 'order' THEN
		RAISE EXCEPTION USING ERRCODE = '0A000',
			MESSAGE = format('GROUPED is not possible with queue "%s"', cfg.name),
			DETAIL = CASE WHEN cfg.max_running_per_group IS DISTINCT FROM 1
				THEN 'The jobs of its groups need not run one behind the other (max_running_per_group).'
				WHEN cfg.pause_per_group IS NOT NULL THEN 'With pause_per_group the next job of a group comes a while after the end of the one before.'
				ELSE 'With rate_per_group the next job of a group comes when the time for it is there.' END,
			HINT = CASE WHEN cfg.max_running_per_group IS DISTINCT FROM 1
				THEN 'Take without GROUPED, with LIMIT: that gives several jobs of a group at once.'
				ELSE 'Take without GROUPED: that gives the next job of the group as soon as it may run.' END;
	END IF;
END
$$;

-- The jobs of one queue: the first that is ready, those behind it, the next that is ready, and so on.
CREATE OR REPLACE FUNCTION queue._lot_jsonb(q queue.queues, wanted int4, lease interval, who text, said int4, seed int8)
RETURNS SETOF queue._taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	secret CONSTANT uuid := CASE WHEN seed IS NULL THEN gen_random_uuid()
		ELSE encode(substr(sha256(int8send(seed)), 1, 16), 'hex')::uuid END;	-- as in _take_<number>
	tab CONSTANT text := queue._table(q.name);
	behind CONSTANT text := format('SELECT id FROM %s WHERE state = ''blocked'' AND "group" = $1 ORDER BY "group", id LIMIT $2', tab);
	-- of those behind, what would not be ready now ends the lot, as does what somebody has locked
	fit CONSTANT text := format('SELECT id FROM %s WHERE id = ANY ($1) AND state = ''blocked'' AND "group" = $2 AND behind IS NULL
		AND (run_at IS NULL OR run_at <= $3) AND (expires_at IS NULL OR expires_at > $3) ORDER BY id FOR UPDATE SKIP LOCKED', tab);
	heads CONSTANT refcursor := 'qbouncer lot';
	head record;
	jobs int8[] := '{}';
	fronts int8[] := '{}';
	line int8[];
	free int8[];
	n int4;
BEGIN
	OPEN heads FOR EXECUTE format('SELECT id, "group" AS name FROM %s WHERE state = ''ready'' AND (expires_at > $1 OR expires_at IS NULL)
		ORDER BY priority DESC, position FOR UPDATE SKIP LOCKED', tab) USING moment;
	WHILE cardinality(jobs) < wanted LOOP
		FETCH heads INTO head;
		EXIT WHEN NOT FOUND;
		jobs := jobs || head.id;
		fronts := fronts || NULL::int8;
		CONTINUE WHEN head.name IS NULL OR cardinality(jobs) = wanted;
		EXECUTE format('SELECT ARRAY(%s)', behind) INTO line USING head.name, wanted - cardinality(jobs);
		CONTINUE WHEN cardinality(line) = 0;
		EXECUTE format('SELECT ARRAY(%s)', fit) INTO free USING line, head.name, moment;
		n := 1;
		WHILE n <= cardinality(free) AND free[n] = line[n] LOOP
			fronts := fronts || jobs[cardinality(jobs)];
			jobs := jobs || free[n];
			n := n + 1;
		END LOOP;
	END LOOP;
	CLOSE heads;
	RETURN QUERY EXECUTE format($sql$
		WITH chosen AS (
			SELECT u.job, u.front, u.n, encode(int8send(uuid_hash_extended($8, u.job)), 'hex') AS own,
				encode(int8send(uuid_hash_extended($8, u.front)), 'hex') AS last
			FROM unnest($1, $2) WITH ORDINALITY AS u (job, front, n)),
		job AS (
			UPDATE %1$s SET state = CASE WHEN front IS NULL THEN 'leased' ELSE state END,
				due = CASE WHEN front IS NULL THEN $4 + $7 ELSE due END,
				token = CASE WHEN front IS NULL THEN own ELSE queue._lot_token(own, last, $4 + $7, $6, $5) END,
				attempt = attempt + (front IS NULL)::int4,
				worker = CASE WHEN front IS NULL THEN $5 ELSE worker END,
				taken_at = CASE WHEN front IS NULL THEN $4 ELSE taken_at END,
				first_taken_at = CASE WHEN front IS NULL THEN coalesce(first_taken_at, taken_at) ELSE first_taken_at END,
				proxy = CASE WHEN front IS NULL THEN $6 ELSE proxy END,
				lease_until = CASE WHEN front IS NULL THEN $4 + $7 ELSE lease_until END
			FROM chosen WHERE id = chosen.job RETURNING *)
		SELECT %2$s FROM job ORDER BY n
	$sql$, tab, queue._row('_taken_jsonb', ARRAY['token', '$9 || ''-'' || id || ''-'' || own', 'queue', '$3', 'policy', '$10',
			'due_ms', '$11', 'place', 'position', 'edge', 'NULL::int8', 'attempt', 'attempt + (front IS NOT NULL)::int4',
			'lease_until', '$4 + $7', 'taken_at', '$4',
			'first_taken_at', 'CASE WHEN front IS NULL THEN first_taken_at ELSE coalesce(first_taken_at, taken_at) END',
			'takes', 'attempt + (front IS NOT NULL)::int4 + coalesce(spent, 0)']))
		USING jobs, fronts, q.name, moment, left(who, 200), CASE WHEN said < 0 THEN -said WHEN q.on_disconnect <> 'keep' THEN said END,
			lease, secret, q.number, q.on_disconnect, ceil(date_part('epoch', lease) * 1000)::int8;
END
$$;

-- As _take.
CREATE OR REPLACE FUNCTION queue._take_lot_jsonb(queues text[], lim int4, lease interval, worker text, pop bool)
RETURNS SETOF queue._taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	wanted int4 := coalesce(lim, 1);
	cfg queue.queues;
	q text;
	got int4;
	job queue._taken_jsonb;
	nothing queue._taken_jsonb;
BEGIN
	IF wanted < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must be at least 1';
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM queue._bad_lease();
	ELSIF cardinality(queues) = 0 THEN
		PERFORM queue._no_queue(NULL);
	END IF;
	IF pop THEN
		PERFORM queue._no_lot('POP', 'Take the jobs, and finish them: QUEUE DONE a, b, c.');
	END IF;
	FOREACH q IN ARRAY queues LOOP
		cfg := queue._find(q, NULL);
		IF cfg.payload <> 'jsonb' THEN
			PERFORM queue._check_payload(cfg, 'jsonb');
		END IF;
		PERFORM queue._lot_check(cfg);
	END LOOP;
	IF cardinality(queues) > 1 THEN
		PERFORM queue._lock_gates(queues);
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);	-- see _take
	FOREACH q IN ARRAY queues LOOP
		cfg := queue._find(q, NULL);
		CONTINUE WHEN cfg.paused;
		-- it may be waited for an ALTER here, or for one who drops it and makes it anew
		EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', queue._table(q));
		cfg := queue._find(q, NULL);
		IF cfg.payload <> 'jsonb' THEN
			PERFORM queue._check_payload(cfg, 'jsonb');
		END IF;
		PERFORM queue._lot_check(cfg);
		CONTINUE WHEN cfg.paused;
		PERFORM queue._look_due(cfg);
		IF cfg.limited OR cfg.single_consumer THEN	-- by its own take, which calls what is called here
			got := 0;
			FOR job IN EXECUTE format('SELECT * FROM queue._take_%s($1, $2, $3, $4, $5, false, ''{}'', NULL, NULL, clock_timestamp(), $6)',
					cfg.number)
				USING cfg, wanted, least(coalesce(lease, cfg.lease), cfg.max_run), left(worker, 200),
					nullif(current_setting('qbouncer.proxy', true), '')::int4, nullif(current_setting('qbouncer.seed', true), '')::int8 LOOP
				IF job.id IS NOT NULL THEN
					RETURN NEXT job;
					got := got + 1;
				ELSIF job.policy IS NOT NULL THEN	-- it is another's
					nothing := job;
				END IF;
			END LOOP;
		ELSE
			RETURN QUERY SELECT * FROM queue._lot_jsonb(cfg, wanted, least(coalesce(lease, cfg.lease), cfg.max_run), worker,
				nullif(current_setting('qbouncer.proxy', true), '')::int4, nullif(current_setting('qbouncer.seed', true), '')::int8);
			GET DIAGNOSTICS got = ROW_COUNT;
		END IF;
		wanted := wanted - got;
		EXIT WHEN wanted <= 0;
	END LOOP;
	IF wanted = coalesce(lim, 1) AND nothing.policy IS NOT NULL AND cardinality(queues) = 1 THEN
		RETURN NEXT nothing;
	ELSIF wanted = coalesce(lim, 1) THEN
		SELECT least(nothing.due_ms, min(CASE WHEN f.closed > 0 THEN f.closed ELSE queue._due_ms(c.name) END)) INTO nothing.due_ms
			FROM queue.queues AS c, LATERAL (SELECT queue._closed_ms(c) AS closed OFFSET 0) AS f
			WHERE c.name = ANY (queues) AND NOT c.paused;
		RETURN NEXT nothing;
	END IF;
END
$$;

-- The same for the other types of payload.
DO $qbouncer_lot$
DECLARE
	kind text;
	f text;
	quoting CONSTANT text := current_setting('quote_all_identifiers');
BEGIN
	PERFORM set_config('quote_all_identifiers', 'off', true);
	FOREACH kind IN ARRAY ARRAY['text', 'bytea'] LOOP
		FOREACH f IN ARRAY ARRAY['_lot_jsonb', '_take_lot_jsonb'] LOOP
			EXECUTE replace(replace(pg_get_functiondef(('queue.' || f)::regproc), '_jsonb', '_' || kind),
				quote_literal('jsonb'), quote_literal(kind));
		END LOOP;
	END LOOP;
	PERFORM set_config('quote_all_identifiers', quoting, true);
END
$qbouncer_lot$;
