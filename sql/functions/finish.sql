-- What ends or moves a lease: DONE, FAIL, RELEASE, EXTEND, and the proxy's giving back.
--
-- Each compares the token, and each but the last refuses a lease whose time is over, whether
-- or not somebody has noticed yet. Jobs are locked in the order of their ids (a scan of the
-- key with a sorted array; width_bucket finds a job's place in it).

-- The results of these jobs of one queue, in their order, out of those of a statement: one for
-- each of its jobs, or one for all. NULL: there is none.
CREATE OR REPLACE FUNCTION queue._results(number int4, ids int8[], tokens text[], jobs text[],
	results text[]) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ret text[];
BEGIN
	IF cardinality(array_remove(results, NULL)) > 0 THEN
		FOR i IN 1 .. cardinality(ids) LOOP
			ret[i] := results[CASE WHEN cardinality(results) = 1 THEN 1 ELSE
				array_position(jobs, number || '-' || ids[i] || '-' || tokens[i]) END];
		END LOOP;
	END IF;
	RETURN ret;
END
$$;

-- Jobs of one queue; gives those that were done. results: one for each, or NULL.
CREATE OR REPLACE FUNCTION queue._done_part(cfg queue.queues, ids int8[], tokens text[], results text[], keep bool)
RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	still int8[];
BEGIN
	IF cfg.durability = 'async' THEN
		PERFORM queue._commit_async();
	END IF;
	IF results IS NULL AND NOT keep AND cfg.retain_done = interval '0' THEN
		EXECUTE 'SELECT queue._done_' || cfg.number || '($1, $2)' INTO still USING ids, tokens;
	ELSE
		EXECUTE 'SELECT queue._done_keep_' || cfg.number || '($1, $2, $3)' INTO still USING ids, tokens, results;
	END IF;
	IF cardinality(still) IS DISTINCT FROM cardinality(ids) THEN
		still := queue._lot_done(cfg, ids, tokens, results, keep, still);
		still := still || queue._run_again(cfg, ids, tokens);
	END IF;
	RETURN still;
END
$$;

-- results: as above. A job whose queue keeps what is finished, or which has a result, goes to the
-- archive; with keep any does.
CREATE OR REPLACE FUNCTION queue._done_many(jobs text[], results text[], keep bool DEFAULT false)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part record;
	cfg queue.queues;
	kept text[];
	still int8[];
BEGIN
	FOR part IN SELECT * FROM queue._split(jobs, true) LOOP
		cfg := part.cfg;
		kept := queue._results(cfg.number, part.ids, part.tokens, jobs, results);
		still := queue._done_part(cfg, part.ids, part.tokens, kept, keep);
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			PERFORM queue._lost(cfg.name, part.ids, part.tokens, still);
		END IF;
	END LOOP;
	RETURN QUERY SELECT * FROM queue._names(jobs);
END
$$;

CREATE OR REPLACE FUNCTION queue._done(jobs text[], notify bool, result text DEFAULT NULL,
	keep bool DEFAULT false) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
	still int8[];
	tell text;	-- by an assignment: PERFORM would be a statement
BEGIN
	tell := set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	-- one job, whose lease holds: what nearly every call is. Everything else goes the long way.
	IF cardinality(jobs) = 1 AND jobs[1] ~ '^[0-9]{1,9}-[0-9]{1,18}-[0-9a-f]{16}$' THEN
		SELECT * INTO cfg FROM queue.queues AS c
			WHERE c.number = split_part(jobs[1], '-', 1)::int4;
		IF FOUND AND result IS NULL AND NOT keep AND cfg.retain_done = interval '0' THEN
			IF cfg.durability = 'async' THEN
				PERFORM queue._commit_async();
			END IF;
			EXECUTE 'SELECT queue._done_' || cfg.number || '($1, $2)' INTO still
				USING ARRAY[split_part(jobs[1], '-', 2)::int8], ARRAY[split_part(jobs[1], '-', 3)];
			IF still IS NOT NULL THEN
				RETURN NEXT cfg.name;
				RETURN;
			END IF;
		END IF;
	ELSIF cardinality(jobs) = 1 AND jobs[1] ~ '^[0-9]{1,9}-d' THEN
		RETURN NEXT queue._done_delivery(jobs[1], CASE WHEN result IS NOT NULL THEN 'RESULT' WHEN keep THEN 'KEEP' END);
		RETURN;
	END IF;
	RETURN QUERY SELECT * FROM queue._done_many(queue._list(jobs), ARRAY[result], keep);
END
$$;

-- DONE ... THEN PUSH: the headers with parent, the name of the job that pushes; of several jobs, their names. What is wrong with
-- them the push will say.
CREATE OR REPLACE FUNCTION queue._parent(jobs text[], headers text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	head CONSTANT jsonb := coalesce(nullif(headers::jsonb, 'null'), '{}');
	names text[] := ARRAY[substring(jobs[1] FROM '^([0-9]+-[0-9]+)-')];
BEGIN
	IF cardinality(jobs) <> 1 OR names[1] IS NULL THEN
		names := ARRAY(SELECT substring(u.token FROM '^([0-9]+-[0-9]+)-') AS name
			FROM unnest(queue._list(jobs)) WITH ORDINALITY AS u (token, n) GROUP BY 1 ORDER BY min(u.n));
		names := array_remove(names, NULL);	-- deliveries of streams
	END IF;
	IF jsonb_typeof(head) <> 'object' OR names = '{}' THEN
		RETURN headers;
	END IF;
	RETURN head || jsonb_build_object('parent', CASE cardinality(names) WHEN 1 THEN to_jsonb(names[1]) ELSE to_jsonb(names) END);
END
$$;

-- DONE ... PARTIAL: those whose leases are held are done; one row for each, in their order. A job may be named
-- with several tokens, of which one is that of its lease.
CREATE OR REPLACE FUNCTION queue._done_partial(jobs text[], result text, keep bool DEFAULT false,
	notify bool DEFAULT false) RETURNS TABLE (job text, ok bool, sqlstate text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
	list CONSTANT text[] := queue._list(jobs);
	part record;
	held record;
	still int8[];
	ended text[] := '{}';
	cancelled text[] := '{}';
BEGIN
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	FOR part IN SELECT * FROM queue._split(list, false) LOOP
		LOOP
			EXECUTE format($sql$
				SELECT array_agg(w.id ORDER BY w.id) FILTER (WHERE t.token = w.token) AS ids,
					array_agg(w.token ORDER BY w.id) FILTER (WHERE t.token = w.token) AS tokens,
					array_agg($3 || '-' || w.id || '-' || w.token) FILTER (WHERE t.token = 'x' || w.token) AS cancelled,
					bool_or(left(t.token, 1) = 'g') AS behind
				FROM unnest($1, $2) AS w (id, token) JOIN %s AS t ON t.id = w.id
			$sql$, queue._table((part.cfg).name)) INTO held USING part.ids, part.tokens, (part.cfg).number;
			cancelled := cancelled || held.cancelled;
			EXIT WHEN held.ids IS NULL;
			still := queue._done_part(part.cfg, held.ids, held.tokens,
				CASE WHEN result IS NOT NULL THEN array_fill(result, ARRAY[cardinality(held.ids)]) END, keep);
			ended := ended || ARRAY(SELECT (part.cfg).number || '-' || h.id || '-' || h.token
				FROM unnest(held.ids, held.tokens) AS h (id, token) WHERE h.id IN (SELECT unnest(still)));
			-- those behind them of a lot: the next ones are leased now
			EXIT WHEN NOT held.behind OR still IS NULL;
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT split_part(j.token, '-', 1) || '-' || split_part(j.token, '-', 2), j.done,
			CASE WHEN NOT j.done THEN CASE WHEN j.token IN (SELECT unnest(cancelled)) THEN 'QB002' ELSE 'QB001' END END
		FROM (SELECT u.token, u.n, u.token IN (SELECT unnest(ended)) AS done
			FROM unnest(list) WITH ORDINALITY AS u (token, n)) AS j ORDER BY j.n;
END
$$;

-- DONE ... THEN MOVE TO q: what they hold is pushed there, with where it came from, in the order of the jobs.
CREATE OR REPLACE FUNCTION queue._move(jobs text[], result text, keep bool, q text, priority int4, delay interval,
	run_at timestamptz, headers text, expires interval, attempts int4, key text, duplicate text, "group" text,
	with_old bool DEFAULT false, notify bool DEFAULT false, keep_for interval DEFAULT NULL,
	newer timestamptz DEFAULT NULL) RETURNS TABLE (id int8, job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
	list CONSTANT text[] := queue._list(jobs);
	part record;
	one record;
	names text[] := '{}';
	payloads text[] := '{}';
	heads jsonb[] := '{}';
	kinds text[] := '{}';
	at int4;
	there CONSTANT queue.queues := queue._find(q, NULL);
	strange bool := false;	-- from a queue whose jobs are no SQL
BEGIN
	IF key IS NOT NULL AND cardinality(list) > 1 THEN
		PERFORM queue._check_key(list, key, duplicate, "group");
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	FOR part IN SELECT * FROM queue._split(list, true) LOOP
		strange := strange OR (part.cfg).run IS NULL;
		IF strange AND there.run IS NOT NULL THEN
			PERFORM queue._not_moved(there.name);
		END IF;
		FOR one IN EXECUTE format('SELECT id, token, again, payload::text AS payload, headers FROM %s
				WHERE id = ANY ($1) ORDER BY id FOR UPDATE', queue._table((part.cfg).name)) USING part.ids LOOP
			IF one.again AND one.token = ANY (part.tokens) THEN
				RAISE EXCEPTION USING ERRCODE = '55000',
					MESSAGE = format('job %s-%s was pushed again while it ran', (part.cfg).number, one.id),
					DETAIL = 'Its payload may be another one than that which was taken.',
					HINT = 'Nothing was changed. Push what was taken: QUEUE DONE ... THEN PUSH.';
			END IF;
			names := names || ((part.cfg).number || '-' || one.id);
			payloads := payloads || one.payload;
			heads := heads || coalesce(one.headers, '{}');
			kinds := kinds || (part.cfg).payload;
		END LOOP;
	END LOOP;
	PERFORM queue._done_many(list, ARRAY[result], keep);
	FOR one IN SELECT substring(u.token FROM '^[0-9]+-[0-9]+') AS name, min(u.n) AS n
			FROM unnest(list) WITH ORDINALITY AS u (token, n) GROUP BY 1 ORDER BY 2 LOOP
		at := array_position(names, one.name);
		RETURN QUERY SELECT p.id, p.job FROM queue._push_jobs(q, ARRAY[payloads[at]], priority, delay, run_at,
			(heads[at] || coalesce(nullif(headers::jsonb, 'null'), '{}')
				|| jsonb_build_object('parent', one.name))::text,
			notify, expires, attempts, key, duplicate, "group", with_old, kinds[at], NULL, keep_for, newer) AS p;
	END LOOP;
	IF strange AND queue._runs_since(there.number) THEN
		PERFORM queue._changed_since(there.name);
	END IF;
END
$$;

-- For the proxy, which calls the function of the queue itself: the queue's name, or an error if not
-- all of these jobs were finished.
CREATE OR REPLACE FUNCTION queue._done_check(name text, ids int8[], tokens text[], still int8[], results text[] DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ended int8[] := still;
	cfg queue.queues;
BEGIN
	IF cardinality(ended) IS DISTINCT FROM cardinality(ids) THEN
		cfg := queue._find(name);
		ended := queue._lot_done(cfg, ids, tokens, results, false, ended);
		ended := ended || queue._run_again(cfg, ids, tokens);
	END IF;
	IF cardinality(ended) IS DISTINCT FROM cardinality(ids) THEN
		PERFORM queue._lost(name, ids, tokens, ended);
	END IF;
	RETURN name;
END
$$;

-- For the proxy, which has one array for the jobs of many clients: a job, its result, a job, ...
CREATE OR REPLACE FUNCTION queue._done_pairs(pairs text[]) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM set_config('qbouncer.tell', 'here', true);
	RETURN QUERY SELECT queue._done_many(array_agg(p ORDER BY n) FILTER (WHERE n % 2 = 1),
			array_agg(p ORDER BY n) FILTER (WHERE n % 2 = 0))
		FROM unnest(pairs) WITH ORDINALITY AS u(p, n);
END
$$;

-- The pause before the next attempt, after so many failures; +-10 %, so that what failed
-- together does not come back together.
CREATE OR REPLACE FUNCTION queue._pause(cfg queue.queues, failures int4) RETURNS interval
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN make_interval(secs => (0.9 + 0.2 * random()) * least(
		extract(epoch FROM cfg.retry_cap)::float8,
		CASE cfg.retry_kind
			WHEN 'exponential' THEN extract(epoch FROM cfg.retry_base)::float8
				* power(cfg.retry_factor, least(failures, 100) - 1)
			WHEN 'linear' THEN extract(epoch FROM cfg.retry_base)::float8 * failures
			WHEN 'arithmetic' THEN extract(epoch FROM cfg.retry_base)::float8
				+ extract(epoch FROM cfg.retry_steps[1])::float8 * (failures - 1)
			WHEN 'list' THEN extract(epoch FROM cfg.retry_steps[least(failures, cardinality(cfg.retry_steps))])::float8
			ELSE extract(epoch FROM cfg.retry_base)::float8 END));
END
$$;

-- Errors are kept up to 8 kB, of longer ones the longest beginning that fits. A character has at most four bytes.
CREATE OR REPLACE FUNCTION queue._error_text(error text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	fits int4 := 2048;
	most int4 := 8192;
	half int4;
BEGIN
	IF octet_length(error) <= 8192 THEN
		RETURN error;
	END IF;
	WHILE fits < most LOOP
		half := (fits + most + 1) / 2;
		IF octet_length(left(error, half)) <= 8192 THEN
			fits := half;
		ELSE
			most := half - 1;
		END IF;
	END LOOP;
	RETURN left(error, fits);
END
$$;

-- What is kept of attempts that did not end well (QUEUE HISTORY): the last so many, the oldest first. With the error
-- that the job has, so no more is kept of it than the beginning.
CREATE OR REPLACE FUNCTION queue._remember(history jsonb, most int4, attempt int4, worker text, taken_at timestamptz,
	ended_at timestamptz, outcome text, error text) RETURNS jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF most = 0 THEN
		RETURN NULL;
	END IF;
	WHILE jsonb_array_length(history) >= most LOOP
		history := history - 0;
	END LOOP;
	RETURN coalesce(history, '[]') || jsonb_build_object('attempt', attempt, 'worker', worker, 'taken_at', taken_at,
		'ended_at', ended_at, 'outcome', outcome, 'error', left(error, 1000));
END
$$;

-- The statement that changes the jobs $1 of a queue whose leases $2 hold, and gives those that it has changed.
-- also: what else has to be so. told: what it gives beside them.
CREATE OR REPLACE FUNCTION queue._set_held(name text, change text, also text DEFAULT 'true', told text DEFAULT '')
RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format($sql$
		WITH job AS (
			UPDATE %s SET %s
			WHERE id = ANY ($1) AND token = ($2)[width_bucket(id, $1)]
				AND lease_until > clock_timestamp() AND %s
			RETURNING id, state)
		SELECT array_agg(id)%s FROM job
	$sql$, queue._table(name), change, also, told);
END
$$;

-- An error if not all of these jobs were changed.
CREATE OR REPLACE FUNCTION queue._all_held(name text, ids int8[], tokens text[], still int8[], notify bool)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF cardinality(still) IS DISTINCT FROM cardinality(ids) THEN
		PERFORM queue._lost(name, ids, tokens, still);
	END IF;
	IF notify THEN
		PERFORM pg_notify('qbouncer', name);
	END IF;
END
$$;

-- Gives the queue of each job, and beside these, of each that is dead now its queue once more.
CREATE OR REPLACE FUNCTION queue._fail(jobs text[], error text, retry_in interval, final bool,
	notify bool, events text[] DEFAULT NULL) RETURNS TABLE (queue text, dead text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	cfg queue.queues;
	still int8[];
	died int4;
	more int4;
	deaths text[] := '{}';
	list CONSTANT text[] := queue._list(jobs);
	behind int8[];
	-- all queues of these jobs are told of, below or by the proxy
	was CONSTANT text := coalesce(current_setting('qbouncer.tell', true), '');
	counting CONSTANT text := $sql$, count(*) FILTER (WHERE state = 'dead')$sql$;
	change CONSTANT text := queue._set_due($sql$
		CASE WHEN ($3 OR attempt >= coalesce(max_attempts, $4)) AND again IS NULL THEN 'dead'
			WHEN again AND run_at > clock_timestamp() THEN 'later'
			WHEN $5 <= interval '0' OR $9 AND again AND $5 IS NULL THEN 'ready'
			ELSE 'later' END$sql$, $sql$
		CASE WHEN ($3 OR attempt >= coalesce(max_attempts, $4)) AND again IS NULL THEN run_at
			ELSE greatest(CASE WHEN again THEN run_at END, clock_timestamp() + CASE WHEN $9 AND again AND $5 IS NULL THEN interval '0'
				ELSE coalesce($5, queue._pause($6, failures + 1)) END) END$sql$) || $sql$,
		position = DEFAULT,
		ended_at = CASE WHEN ($3 OR attempt >= coalesce(max_attempts, $4)) AND again IS NULL THEN clock_timestamp() END,
		history = queue._remember(history, $8, attempt, worker, taken_at, clock_timestamp(), 'failed', $7),
		again = NULL, failures = failures + 1, error = $7, failed_at = clock_timestamp(),
		token = NULL, lease_until = NULL
	$sql$;
BEGIN
	IF retry_in IS NOT NULL AND final THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = 'RETRY IN and FINAL cannot be given together', HINT = 'Give one of them.';
	ELSIF retry_in > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'RETRY IN is too long';
	END IF;
	IF cardinality(jobs) = 1 AND jobs[1] ~ '^[0-9]{1,9}-d' THEN
		queue := queue._fail_delivery(jobs[1], error, retry_in, final, notify, queue._list(events));
		RETURN NEXT;
		RETURN;
	ELSIF events IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'EVENT is of one delivery of a stream',
			HINT = 'QUEUE FAIL token EVENT id [, id ...], with the token that TAKE ... FOR returned.';
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN 'nobody' ELSE 'nobody here' END, true);
	FOR part IN SELECT * FROM queue._split(list, true) LOOP
		cfg := part.cfg;
		EXECUTE queue._set_held(cfg.name, change, told => counting) INTO still, died
			USING part.ids, part.tokens,
				coalesce(final, false) OR (cfg.retry_kind = 'none' AND retry_in IS NULL),
				cfg.max_attempts, retry_in, cfg, queue._error_text(error), cfg.history, cfg.on_change = 'now';
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN	-- behind others of their group (lot.sql)
			behind := queue._lot_open(cfg, part.ids, part.tokens, still);
			IF cardinality(behind) > 0 THEN
				EXECUTE queue._set_held(cfg.name, replace(change, 'WHEN again AND', 'WHEN state = ''blocked'' THEN state WHEN again AND'),
					told => counting) INTO behind, more
					USING part.ids, part.tokens,
						coalesce(final, false) OR (cfg.retry_kind = 'none' AND retry_in IS NULL),
						cfg.max_attempts, retry_in, cfg, queue._error_text(error), cfg.history, cfg.on_change = 'now';
				still := still || behind;
				died := died + more;
			END IF;
		END IF;
		deaths := deaths || array_fill(cfg.name, ARRAY[died]);
		PERFORM queue._all_held(cfg.name, part.ids, part.tokens, still, notify);
	END LOOP;
	PERFORM set_config('qbouncer.tell', was, true);
	RETURN QUERY SELECT n.name, d.name FROM queue._names(list) WITH ORDINALITY AS n (name, nth)
		LEFT JOIN unnest(deaths) WITH ORDINALITY AS d (name, nth) ON d.nth = n.nth ORDER BY n.nth;
END
$$;

-- A released job keeps its place: it is the next one again, as if it had not been taken. With
-- a delay it gets a new place when its time comes. One that was pushed again while it ran (key.sql) runs once, as if it had waited.
CREATE OR REPLACE FUNCTION queue._release(jobs text[], delay interval, notify bool)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	cfg queue.queues;
	still int8[];
	list CONSTANT text[] := queue._list(jobs);
BEGIN
	IF delay > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'DELAY is too long';
	END IF;
	IF cardinality(jobs) = 1 AND jobs[1] ~ '^[0-9]{1,9}-d' THEN
		RETURN NEXT queue._release_delivery(jobs[1], delay, notify);
		RETURN;
	END IF;
	FOR part IN SELECT * FROM queue._split(list, true) LOOP
		cfg := part.cfg;
		EXECUTE queue._set_held(cfg.name, queue._set_due(
				$sql$CASE WHEN $3 > interval '0' OR again AND run_at > clock_timestamp() THEN 'later' ELSE 'ready' END$sql$,
				$sql$greatest(CASE WHEN again THEN run_at END, clock_timestamp() + greatest($3, interval '0'))$sql$) || $sql$,
				attempt = attempt - 1, spent = coalesce(spent, 0) + 1, again = NULL, token = NULL, lease_until = NULL
			$sql$) INTO still USING part.ids, part.tokens, delay;
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			still := still || queue._lot_release(cfg, part.ids, part.tokens, still, delay);
		END IF;
		PERFORM queue._all_held(cfg.name, part.ids, part.tokens, still, notify);
	END LOOP;
	RETURN QUERY SELECT * FROM queue._names(list);
END
$$;

-- The lease ends so long after now, or then, be that later or earlier than before. Who tells of his progress and says
-- no time has it not cut.
CREATE OR REPLACE FUNCTION queue._extend(jobs text[], lease interval, until timestamptz DEFAULT NULL,
	progress text DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	part record;
	cfg queue.queues;
	still int8[];
	list CONSTANT text[] := queue._list(jobs);
BEGIN
	IF lease <= interval '0' OR lease > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LEASE must be longer than zero',
			HINT = 'To give the job back: QUEUE RELEASE.';
	ELSIF lease IS NOT NULL AND until IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = 'LEASE and UNTIL cannot be given together', HINT = 'Give one of them.';
	ELSIF until <= clock_timestamp() OR NOT isfinite(until) THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'UNTIL must be a time that is to come',
			HINT = 'To give the job back: QUEUE RELEASE.';
	END IF;
	IF cardinality(jobs) = 1 AND jobs[1] ~ '^[0-9]{1,9}-d' THEN
		RETURN NEXT queue._extend_delivery(jobs[1], lease, until, progress);
		RETURN;
	END IF;
	FOR part IN SELECT * FROM queue._split(list, true) LOOP
		cfg := part.cfg;
		EXECUTE queue._set_held(cfg.name, queue._set_due(lease_until => 'least(greatest(coalesce($5, clock_timestamp() + $3),
				CASE WHEN $6 THEN lease_until END), taken_at + $4)')
				|| CASE WHEN progress IS NOT NULL THEN ', progress = $7' ELSE '' END) INTO still
			USING part.ids, part.tokens, coalesce(lease, cfg.lease), cfg.max_run, until,
				progress IS NOT NULL AND lease IS NULL AND until IS NULL, progress::jsonb;
		IF cardinality(still) IS DISTINCT FROM cardinality(part.ids) THEN
			still := still || queue._lot_extend(cfg, part.ids, part.tokens, still, coalesce(until, clock_timestamp()
				+ coalesce(lease, cfg.lease)), progress IS NULL OR lease IS NOT NULL OR until IS NOT NULL, progress::jsonb, true);
		END IF;
		PERFORM queue._all_held(cfg.name, part.ids, part.tokens, still, false);
	END LOOP;
	RETURN QUERY SELECT * FROM queue._names(list);
END
$$;

-- For the proxy: the jobs of a transaction that was rolled back, of a connection that broke, or
-- whose rows nobody got. What is stale is passed over, what was cancelled goes away. A counted one is
-- a failed attempt: it is dead if it was the last, else ready at once if the job was never lost before, or
-- later, by the policy of its queue: what takes its worker along does not take one after the other. (The
-- end of a lease that was held is no loss: the lease was the wait.) Jobs that are ready keep their places. A
-- connection may name several leases of one job, an old one among them: any of its tokens counts. Those before an empty
-- token were not delivered. cancelled: there may be some that are.
CREATE OR REPLACE FUNCTION queue._give_back(tokens text[], error text, counted bool, cancelled bool DEFAULT true)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	dies CONSTANT text := '$3 AND again IS NULL AND attempt >= coalesce(CASE WHEN $6 THEN max_attempts END, $4)';
	falls CONSTANT text := '$8 AND again IS NULL AND losses > 0';
	part record;
	cfg queue.queues;
	still int8[];
	died int8;
	follows bool;
	cut CONSTANT int4 := array_position(tokens, '');
BEGIN
	PERFORM set_config('qbouncer.tell', 'here', true);
	IF cut IS NOT NULL THEN
		RETURN QUERY SELECT queue._give_back(tokens[: cut - 1], NULL, false) AS back;
		tokens := tokens[cut + 1 :];
	END IF;
	IF array_to_string(tokens, ' ') ~ '-d' THEN	-- of streams
		RETURN QUERY SELECT queue._give_back_delivery(t, error, coalesce(counted, true)) AS back FROM unnest(tokens) AS t
			WHERE t ~ '^[0-9]{1,9}-d';
		tokens := ARRAY(SELECT t FROM unnest(tokens) AS t WHERE t !~ '^[0-9]{1,9}-d');
	END IF;
	FOR part IN SELECT * FROM queue._split(tokens, false) LOOP
		cfg := part.cfg;
		EXECUTE format($sql$
			WITH %2$s job AS (
				UPDATE %1$s SET %5$s,
					ended_at = CASE WHEN %3$s THEN clock_timestamp() END,
					losses = CASE WHEN $8 THEN coalesce(losses, 0::int2) + 1::int2 ELSE losses END,
					again = NULL,
					attempt = CASE WHEN $3 THEN attempt ELSE attempt - 1 END,
					spent = CASE WHEN $3 THEN spent ELSE coalesce(spent, 0) + 1 END,
					failures = CASE WHEN $3 THEN failures + 1 ELSE failures END,
					history = CASE WHEN $3 THEN queue._remember(history, $9, attempt, worker, taken_at,
						least(lease_until, clock_timestamp()), CASE WHEN $8 THEN 'lost' ELSE 'expired' END, $5) ELSE history END,
					error = CASE WHEN $3 THEN $5 ELSE error END,
					failed_at = CASE WHEN $3 THEN clock_timestamp() ELSE failed_at END,
					token = NULL, lease_until = NULL
				WHERE id = ANY ($1) AND token = ANY ($2)
				RETURNING id, state)
			SELECT array_agg(id), count(*) FILTER (WHERE state = 'dead') FROM job
		$sql$, queue._table(cfg.name), CASE WHEN cancelled THEN format($sql$gone AS (
				DELETE FROM %s WHERE id = ANY ($1) AND left(token, 1) = 'x' AND substr(token, 2) = ANY ($2) RETURNING *
			)%s,$sql$, queue._table(cfg.name), queue._with_keep(cfg, 'gone', 'cancelled')) END,
			dies, falls, queue._set_due(
				format('CASE WHEN %s THEN ''dead'' WHEN %s OR again AND run_at > clock_timestamp() THEN ''later'' ELSE ''ready'' END',
					dies, falls),
				format('CASE WHEN %s THEN run_at WHEN %s THEN clock_timestamp() + queue._pause($7, failures + 1)
					ELSE greatest(CASE WHEN again THEN run_at END, clock_timestamp()) END', dies, falls))) INTO still, died
			USING part.ids, part.tokens, coalesce(counted, true), queue._most_attempts(cfg),
				queue._error_text(error), cfg.retry_kind <> 'none', cfg,
				coalesce(counted, true) AND (error NOT IN ('lease expired', 'ran too long')) IS NOT FALSE,
				cfg.history;
		-- with these the single consumer that had them: the next one, which follows, finds them
		follows := cfg.single_consumer AND part.ids[1] = 0 AND queue._consumed(cfg.number, part.tokens);
		IF still IS NOT NULL THEN
			PERFORM queue._died(cfg.number, died);
			-- an ALTER that was waited for may have taken its limits away
			cfg.limited := cfg.limited AND to_regclass(format('queue.%I', format('n%s_noted', cfg.number))) IS NOT NULL;
			IF NOT counted AND error IS NULL AND cfg.limited THEN	-- nobody got them: the rate gets them back
				EXECUTE format('INSERT INTO queue.%I ("group", back) SELECT "group", 1 FROM %s WHERE id = ANY ($1)',
					format('n%s_noted', cfg.number), queue._table(cfg.name)) USING still;
			END IF;
			IF NOT counted AND error IS NULL AND cfg.limited AND cfg.rate IS NOT NULL THEN	-- and those behind them (lot.sql)
				EXECUTE format('WITH gone AS (UPDATE %s SET token = NULL WHERE id = ANY ($1) AND state = ''blocked'' AND left(token, 17) = ANY ($2)
						RETURNING "group") INSERT INTO queue.%I ("group", back) SELECT "group", 1 FROM gone',
					queue._table(cfg.name), format('n%s_noted', cfg.number)) USING part.ids, ARRAY(SELECT 'g' || t FROM unnest(part.tokens) AS t);
			END IF;
			RETURN NEXT cfg.name;
		ELSIF follows THEN
			RETURN NEXT cfg.name;
		END IF;
	END LOOP;
END
$$;
