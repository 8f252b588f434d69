-- What happened to the jobs of a queue by the minute, hour and day, as the proxies have counted it (src/queue/figures.c). Of a
-- stream: to its events, which are pushed, and to deliveries of all its subscriptions.

-- Who may read the jobs of a queue may read its figures; who may push to it or take from it writes what he did there. Those
-- of a subscription are for who may take for it.
CREATE OR REPLACE FUNCTION queue._may_figure(number int4, writes bool, sub text) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	jobs CONSTANT regclass := (SELECT to_regclass(queue._table(c.name)) FROM queue.queues AS c WHERE c.number = $1);
	events CONSTANT regclass := CASE WHEN jobs IS NULL
		THEN (SELECT to_regclass(format('queue.e%s_0', s.number)) FROM queue.streams AS s WHERE s.number = $1) END;
BEGIN
	IF sub IS NOT NULL THEN
		RETURN EXISTS (SELECT FROM queue.subscriptions AS u WHERE u.stream = $1 AND u.name = sub AND u.lane = 0 AND u.ends IS NULL
			AND pg_has_role(u.owner, 'USAGE'));
	ELSIF events IS NOT NULL THEN	-- who reads it takes
		RETURN has_table_privilege(events, 'SELECT') OR writes AND has_any_column_privilege(events, 'INSERT');
	END IF;
	RETURN CASE WHEN writes THEN has_any_column_privilege(jobs, 'INSERT') OR has_any_column_privilege(jobs, 'UPDATE')
		ELSE has_table_privilege(jobs, 'SELECT') END;
END
$$;

DO $qbouncer_figures$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = 'queue.figures'::regclass) THEN
		CREATE POLICY read ON queue.figures FOR SELECT USING (queue._may_figure(queue, false, subscription));
		CREATE POLICY write ON queue.figures FOR INSERT WITH CHECK (queue._may_figure(queue, true, subscription));
	END IF;
END
$qbouncer_figures$;

-- What comes of adding up figures: anybody who may push has written some of them, and those of others are not to suffer
-- from numbers that are none.
CREATE OR REPLACE FUNCTION queue._figure(n numeric) RETURNS int8
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN greatest(least(n, 900000000000000000), 0);
END
$$;

-- Rows of minutes that are over for a day become one for each hour, and rows of hours go after 90 days; it asks nobody
-- whether he may, as it does nothing else. In another proxy's way: what that has deleted is not there any more for this
-- one, so nothing counts twice. Nobody is waited for: anybody may call it, in a transaction that he leaves open.
-- late: only if rows are there for so long, as nobody has done it.
CREATE OR REPLACE FUNCTION queue._fold_figures(late interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
	IF late IS NOT NULL AND NOT EXISTS (SELECT FROM queue.figures AS f WHERE NOT f.hourly AND f.at < clock_timestamp() - late) THEN
		RETURN;
	END IF;
	WITH old AS (
		DELETE FROM queue.figures WHERE ctid = ANY (ARRAY(SELECT f.ctid FROM queue.figures AS f
			WHERE NOT f.hourly AND f.at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED)) RETURNING *)
	INSERT INTO queue.figures (queue, at, hourly, proxy, pushed, taken, done, failed, dead, waited, wait_sum, wait_max,
			ran, run_sum, run_max, subscription)
		SELECT queue, date_trunc('hour', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', true, NULL, queue._figure(sum(pushed)),
			queue._figure(sum(taken)), queue._figure(sum(done)), queue._figure(sum(failed)), queue._figure(sum(dead)),
			queue._figure(sum(waited)), queue._figure(sum(wait_sum)), queue._figure(max(wait_max)),
			queue._figure(sum(ran)), queue._figure(sum(run_sum)), queue._figure(max(run_max)), subscription
		FROM old WHERE EXISTS (SELECT FROM queue.queues AS c WHERE c.number = old.queue)
			OR EXISTS (SELECT FROM queue.streams AS s WHERE s.number = old.queue) GROUP BY 1, 2, subscription;
	DELETE FROM queue.figures WHERE ctid = ANY (ARRAY(SELECT f.ctid FROM queue.figures AS f,
			(SELECT number FROM queue.queues UNION ALL SELECT number FROM queue.streams) AS c
		WHERE f.queue = c.number AND f.at < clock_timestamp() - interval '90 days' FOR UPDATE OF f SKIP LOCKED));
END
$$;

-- For the proxy: writes what it has counted up to "seconds", of queues by their names, and of streams also of these
-- subscriptions (NULL: of all of it), and gives the places of those of which no more is to be said: written, or gone. The
-- others are for another role.
CREATE OR REPLACE FUNCTION queue._counted(seconds int8, proxy int4, names text[], subs text[], figures int8[], folds bool)
RETURNS SETOF int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	n CONSTANT int4 := 11;	-- figures of each
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	IF folds THEN
		PERFORM queue._fold_figures();
	END IF;
	RETURN QUERY
		WITH said AS MATERIALIZED (
			SELECT s.nth::int4, s.sub, s.number, s.may, (s.nth - 1)::int4 * n AS at
			FROM (SELECT x.nth, x.sub, c.number, queue._may_figure(c.number, true, x.sub) AS may
				FROM unnest(names, subs) WITH ORDINALITY AS x (name, sub, nth)
					LEFT JOIN (SELECT name, number FROM queue.queues UNION ALL SELECT name, number FROM queue.streams) AS c
						ON c.name = x.name
				OFFSET 0) AS s	-- it is asked once
			WHERE s.number IS NULL OR s.may OR s.sub IS NOT NULL AND NOT EXISTS (SELECT
				FROM queue.subscriptions AS u WHERE u.stream = s.number AND u.name = s.sub)),
		written AS (
			INSERT INTO queue.figures (queue, at, proxy, pushed, taken, done, failed, dead, waited, wait_sum, wait_max,
					ran, run_sum, run_max, subscription)
				SELECT s.number, date_trunc('minute', to_timestamp(seconds)), nullif($2, 0), figures[s.at + 1], figures[s.at + 2],
					figures[s.at + 3], figures[s.at + 4], figures[s.at + 5], figures[s.at + 6], figures[s.at + 7],
					figures[s.at + 8], figures[s.at + 9], figures[s.at + 10], figures[s.at + 11], s.sub
				FROM said AS s WHERE s.number IS NOT NULL AND s.may)
		SELECT s.nth FROM said AS s;
END
$$;

-- Jobs that died otherwise than by a FAIL, of which the proxy hears nothing: a lease that has ended, a connection that is
-- gone, a time that is over. The proxy counts those of FAIL. Where nobody wants figures the database has a setting that
-- says so: it does not know what the proxies are told (queue_figures).
CREATE OR REPLACE FUNCTION queue._died(number int4, n int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF n > 0 AND lower(current_setting('qbouncer.figures', true)) IS DISTINCT FROM 'off' THEN
		INSERT INTO queue.figures (queue, at, pushed, taken, done, failed, dead, waited, wait_sum, wait_max, ran, run_sum, run_max)
			VALUES (number, date_trunc('minute', clock_timestamp()), 0, 0, 0, 0, n, 0, 0, 0, 0, 0, 0);
	END IF;
END
$$;

-- The last so many minutes, hours or days, this one among them; nothing happened in those that are all zeros. sub: of this
-- subscription. known: what the proxy that asks has counted and not written; anybody may say anything, it is shown to him.
CREATE OR REPLACE FUNCTION queue._figures_of(number int4, sub text, by text, last int4, known text) RETURNS SETOF queue.figured
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	unit CONSTANT text := lower(by);
	most CONSTANT int4 := coalesce(last, CASE unit WHEN 'minute' THEN 60 WHEN 'hour' THEN 24 ELSE 30 END);
	here CONSTANT int8[] := convert_from(decode(known, 'hex'), 'SQL_ASCII');
	step CONSTANT interval := '1 ' || unit;
	until CONSTANT timestamptz := date_trunc(unit, clock_timestamp());
BEGIN
	RETURN QUERY
		SELECT p.since, coalesce(f.pushed, 0), coalesce(f.taken, 0), coalesce(f.done, 0), coalesce(f.failed, 0),
			coalesce(f.dead, 0), f.wait_sum / nullif(f.waited, 0) * interval '1 us', CASE WHEN f.waited > 0 THEN f.wait_max * interval '1 us' END,
			f.run_sum / nullif(f.ran, 0) * interval '1 us', CASE WHEN f.ran > 0 THEN f.run_max * interval '1 us' END
		FROM generate_series(until - (most - 1) * step, until, step) AS p (since)
		LEFT JOIN (SELECT date_trunc(unit, a.at) AS since, queue._figure(sum(a.pushed)) AS pushed, queue._figure(sum(a.taken)) AS taken,
				queue._figure(sum(a.done)) AS done, queue._figure(sum(a.failed)) AS failed, queue._figure(sum(a.dead)) AS dead,
				queue._figure(sum(a.waited)) AS waited, queue._figure(sum(a.wait_sum))::float8 AS wait_sum,
				queue._figure(max(a.wait_max)) AS wait_max, queue._figure(sum(a.ran)) AS ran,
				queue._figure(sum(a.run_sum))::float8 AS run_sum, queue._figure(max(a.run_max)) AS run_max
			FROM (SELECT at, pushed, taken, done, failed, dead, waited, wait_sum, wait_max, ran, run_sum, run_max
					FROM queue.figures WHERE queue = $1 AND subscription IS NOT DISTINCT FROM $2 AND at >= until - (most - 1) * step AND (NOT hourly OR unit <> 'minute')
				UNION ALL SELECT to_timestamp(here[1]), here[2], here[3], here[4], here[5], here[6], here[7], here[8], here[9],
					here[10], here[11], here[12] WHERE here IS NOT NULL) AS a
			GROUP BY 1) AS f ON f.since = p.since
		ORDER BY p.since;
END
$$;

-- What is asked for of them: a mistake is told before anything is looked up.
CREATE OR REPLACE FUNCTION queue._check_figures(by text, last int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	unit CONSTANT text := lower(by);
	most CONSTANT int4 := coalesce(last, 30);
BEGIN
	IF unit IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = CASE WHEN last IS NULL THEN 'FOR needs BY' ELSE 'LAST needs BY' END, HINT = 'BY MINUTE, BY HOUR or BY DAY.';
	ELSIF unit NOT IN ('minute', 'hour', 'day') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('there are no figures by "%s"', left(by, 80)),
			HINT = 'BY MINUTE, BY HOUR or BY DAY.';
	ELSIF most NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LAST must be between 1 and 10000';
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._stats_by(q text, by text, last int4, known text) RETURNS SETOF queue.figured
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams;
	of int4;
BEGIN
	PERFORM queue._check_figures(by, last);
	IF q IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'BY needs a queue', HINT = 'QUEUE STATS q BY HOUR; QUEUE LIST shows the queues.';
	END IF;
	IF queue._is_stream(q) THEN
		s := queue._find_stream(q);
		PERFORM queue._must_select(s);
		of := s.number;
	ELSE
		of := (queue._find(q)).number;
		EXECUTE format('SELECT state FROM %s LIMIT 0', queue._table(q));	-- may the role read it?
	END IF;
	RETURN QUERY SELECT * FROM queue._figures_of(of, NULL, by, last, known);
END
$$;

-- Of one subscription: deliveries, and as pushed the events that it was given, those that came again among them.
CREATE OR REPLACE FUNCTION queue._stats_by_for(q text, sub text, by text, last int4, known text) RETURNS SETOF queue.figured
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.streams := queue._find_stream(q);
BEGIN
	PERFORM queue._check_figures(by, last);
	PERFORM queue._must_read(queue._find_subscription(s, sub));
	RETURN QUERY SELECT * FROM queue._figures_of(s.number, sub, by, last, known);
END
$$;

-- The same as far as it was written.
CREATE OR REPLACE FUNCTION queue.stats_by(q text, by text, last int4 DEFAULT NULL) RETURNS SETOF queue.figured
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM queue._stats_by(q, by, last, NULL);
END
$$;

CREATE OR REPLACE FUNCTION queue.stats_by_for(q text, sub text, by text, last int4 DEFAULT NULL) RETURNS SETOF queue.figured
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM queue._stats_by_for(q, sub, by, last, NULL);
END
$$;
