-- LIST, STATS, PEEK, JOB, ERRORS and PURGE.

CREATE OR REPLACE FUNCTION queue.list()
RETURNS TABLE (queue text, lease text, max_attempts int4, retry text, on_disconnect text,
	durability text, owner text, created_at timestamptz, paused bool, max_length int4, unlogged bool,
	payload text, retain_done text, retain_dead text, number int4, max_run text, history int4,
	push_paused bool, on_change text, expires text,
	max_running int4, rate text, hours text, max_running_per_group int4, rate_per_group text, pause text,
	pause_per_group text, fair text, on_expire text, overflow text, max_per_transaction int4, dead_queue text, batches bool,
	single_consumer bool, consumer text, handler text, run text, timeout text, kind text, retain text, retain_max text,
	handler_batch int4, session text, session_jobs int4, session_time text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT c.name, c.lease::text, c.max_attempts, c.retry, c.on_disconnect, c.durability,
		pg_get_userbyid(c.owner)::text,
		c.created_at, c.paused, c.max_length, c.unlogged, c.payload,
		c.retain_done::text, c.retain_dead::text, c.number, c.max_run::text, c.history, c.push_paused, c.on_change,
		c.expires::text, c.max_running, c.rate, c.hours, c.max_running_per_group, c.rate_per_group,
		c.pause::text, c.pause_per_group::text, c.fair, c.on_expire, c.overflow, c.max_per_transaction,
		(SELECT d.name FROM queue.queues AS d WHERE d.number = c.dead_queue), c.batches,
		c.single_consumer, CASE WHEN c.single_consumer THEN queue._consumer(c.number) END,
		c.handler, c.run, c.timeout::text, 'queue', NULL, NULL, c.handler_batch,
		c.session, c.session_jobs, c.session_time::text
	FROM queue.queues AS c
	UNION ALL
	SELECT s.name, NULL, NULL, NULL, NULL, NULL, pg_get_userbyid(s.owner)::text, s.created_at, NULL, NULL, NULL, s.payload,
		NULL, NULL, s.number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
		NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'stream', s.retain::text, coalesce(s.retain_max::text, pg_size_pretty(s.retain_bytes)),
		NULL, NULL, NULL, NULL
	FROM queue.streams AS s
	ORDER BY 1
$$;

-- What a job's state is at this moment, as an expression: a take writes down what has become due
-- meanwhile (_promote, _expire), and nobody may take for hours. moment, most: of a timestamptz, and
-- of the attempts that the queue allows (retry = none: negative, and no job has attempts of its own). late: the queue's
-- on_expire. NULL: the job is over, though it is there.
CREATE OR REPLACE FUNCTION queue._state_at(moment text, most text, late text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format($sql$
		CASE WHEN state = 'leased' AND lease_until <= %1$s THEN
				CASE WHEN left(token, 1) = 'x' THEN NULL
					WHEN again IS NULL AND attempt >= CASE WHEN %2$s < 0 THEN -%2$s
						ELSE coalesce(max_attempts, %2$s) END THEN 'dead'
					WHEN again AND run_at > %1$s THEN 'later'
					ELSE 'ready' END
			WHEN state IN ('ready', 'later') AND expires_at <= %1$s THEN %3$s
			WHEN state = 'later' AND run_at <= %1$s THEN 'ready'
			ELSE state END
	$sql$, moment, most, CASE late WHEN 'dead' THEN '''dead''' ELSE 'NULL' END);
END
$$;

-- As above.
CREATE OR REPLACE FUNCTION queue._signed_attempts(cfg queue.queues) RETURNS int4
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN cfg.retry_kind = 'none' THEN -1 ELSE 1 END * queue._most_attempts(cfg);
END
$$;

-- How many of a group's blocked jobs a take would let in now, as _admit_<number> does it: "busy" of it are ready or run. g: the
-- group's newest row, or NULL, and when the last one of it ended of which no take has read.
CREATE OR REPLACE FUNCTION queue._group_free(cfg queue.queues, busy text, moment text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	free text := format('%s - %s', coalesce(cfg.max_running_per_group, 2147483647), busy);
BEGIN
	IF cfg.rate_per_group IS NOT NULL THEN
		free := format('least(%s, floor((%3$s - date_part(''epoch'', greatest(least(coalesce(g.tat, ''-infinity''), %2$s + make_interval(secs => %3$s)), %2$s)
			- %2$s)) / %4$s + 0.000001) - ready)', free, moment, (queue._rate(cfg.rate_per_group)).gap * (queue._rate(cfg.rate_per_group)).burst,
			(queue._rate(cfg.rate_per_group)).gap);
	END IF;
	IF cfg.pause_per_group IS NOT NULL THEN
		free := format('CASE WHEN least(coalesce(greatest(g.rests, g.ended + %3$L), ''-infinity''), %2$s + %3$L::interval) > %2$s THEN 0 ELSE %1$s END', free, moment,
			cfg.pause_per_group);
	END IF;
	RETURN free;
END
$$;

-- May the role see what is known of the queue's groups, where that has a part in it? Behind the queue's table, which an ALTER
-- locks that takes it away.
CREATE OR REPLACE FUNCTION queue._sees_groups(cfg queue.queues) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('SELECT FROM %s LIMIT 0', queue._table(cfg.name));
	RETURN cfg.rate_per_group IS NULL AND cfg.pause_per_group IS NULL
		OR coalesce(has_table_privilege(to_regclass(format('queue.%I', format('n%s_groups', cfg.number))), 'SELECT')
			AND has_table_privilege(to_regclass(format('queue.%I', format('n%s_noted', cfg.number))), 'SELECT'), false);
END
$$;

-- The states of a group's jobs that have its places.
CREATE OR REPLACE FUNCTION queue._group_busy(cfg queue.queues) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN cfg.max_running_per_group = 1 THEN '(''ready'', ''later'', ''leased'')' ELSE '(''ready'', ''leased'')' END;
END
$$;

-- The jobs of a queue with what they are now, for stats(): $2, $3 are the moment and attempts.
CREATE OR REPLACE FUNCTION queue._jobs_now(cfg queue.queues) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	now_is CONSTANT text := queue._state_at('$2', '$3', cfg.on_expire);
BEGIN
	IF NOT cfg.by_group OR NOT queue._sees_groups(cfg) THEN
		RETURN format('(SELECT *, %s AS now_is FROM %s)', now_is, queue._table(cfg.name));
	END IF;
	-- the first of a group that have a place: a take will let them in; where there is no order what is delayed takes none
	RETURN format($sql$(SELECT w.*, CASE WHEN now_was = 'blocked' AND %s
			THEN CASE WHEN run_at > $2 THEN 'later' ELSE 'ready' END ELSE now_was END AS now_is FROM (SELECT *, %s AS now_was,
				count(*) FILTER (WHERE state IN %s) OVER (PARTITION BY "group") AS busy,
				count(*) FILTER (WHERE state = 'ready') OVER (PARTITION BY "group") AS ready
			FROM %s) AS w %s)$sql$, format(CASE WHEN cfg.max_running_per_group = 1
				THEN 'row_number() OVER (PARTITION BY w."group", now_was ORDER BY id) <= %s'
				ELSE 'count(*) FILTER (WHERE (run_at > $2) IS NOT TRUE) OVER (PARTITION BY w."group", now_was ORDER BY id
					ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) < %s' END, queue._group_free(cfg, 'busy', '$2')),
			now_is, queue._group_busy(cfg), queue._table(cfg.name),
		CASE WHEN cfg.rate_per_group IS NULL AND cfg.pause_per_group IS NULL THEN '' ELSE format('LEFT JOIN (
			SELECT name, tat, rests, ended FROM (SELECT DISTINCT ON ("group") "group" AS name, tat, rests FROM queue.%I
				ORDER BY "group", seq DESC) AS k FULL JOIN (SELECT "group" AS name, max(ended) AS ended FROM queue.%I
				WHERE ended IS NOT NULL AND "group" IS NOT NULL GROUP BY "group") AS n USING (name)) AS g ON g.name = w."group"',
			format('n%s_groups', cfg.number), format('n%s_noted', cfg.number)) END);
END
$$;

-- Of the blocked jobs of a queue whose groups have places, for the metrics: how many a take would let in now, and since when
-- the first of them waits for one. Groups are looked at by the index, a thousand at most, until so many jobs are found.
CREATE OR REPLACE FUNCTION queue._gauge_groups(cfg queue.queues, most int4, OUT ready int8, OUT oldest timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
SET enable_sort = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	tab CONSTANT text := queue._table(cfg.name);
	last CONSTANT text := format('FROM queue.%I AS k WHERE k."group" = f.name ORDER BY k."group" DESC, k.seq DESC LIMIT 1',
		format('n%s_groups', cfg.number));
	noted CONSTANT regclass := to_regclass(format('queue.%I', format('n%s_noted', cfg.number)));
BEGIN
	IF NOT queue._sees_groups(cfg) THEN
		ready := 0;
		RETURN;
	ELSIF coalesce(cfg.max_running_per_group::text, cfg.rate_per_group, cfg.pause_per_group::text) IS NULL THEN
		EXECUTE format('SELECT count(*), min(greatest(run_at, pushed_at)) FROM (SELECT run_at, pushed_at FROM %s
			WHERE state = ''blocked'' AND (run_at > $2) IS NOT TRUE ORDER BY "group", id LIMIT $1) AS x', tab) INTO ready, oldest
			USING most, moment;
		RETURN;
	END IF;
	EXECUTE format($sql$
		WITH RECURSIVE ended AS MATERIALIZED (SELECT "group" AS name, max(ended) AS ended FROM (%5$s) AS m GROUP BY "group"),
		look AS (
			SELECT (SELECT "group" FROM %1$s WHERE state = 'blocked' ORDER BY "group", id LIMIT 1) AS name, 0::int8 AS jobs,
				NULL::timestamptz AS since, 0 AS n
			UNION ALL
			SELECT (SELECT "group" FROM %1$s WHERE state = 'blocked' AND "group" > f.name ORDER BY "group", id LIMIT 1),
				f.jobs + b.jobs, least(f.since, b.since), f.n + 1
			FROM look AS f,
				LATERAL (SELECT count(*) FILTER (WHERE state IN %2$s) AS busy, count(*) FILTER (WHERE state = 'ready') AS ready
					FROM %1$s WHERE "group" = f.name AND state IN ('ready', 'later', 'leased')) AS c,
				LATERAL (SELECT %3$s, (SELECT e.ended FROM ended AS e WHERE e.name = f.name) AS ended) AS g,
				LATERAL (SELECT greatest(least(%4$s, $1 - f.jobs), 0)::int8 AS free FROM (SELECT c.ready) AS x) AS a,
				LATERAL (SELECT count(*) AS jobs, min(greatest(run_at, pushed_at, g.ended)) AS since FROM (
					SELECT run_at, pushed_at FROM %1$s WHERE state = 'blocked' AND "group" = f.name %6$s ORDER BY "group", id LIMIT a.free) AS x
					WHERE (run_at > $2) IS NOT TRUE) AS b
			WHERE f.name IS NOT NULL AND f.jobs < $1 AND f.n < 1000)
		SELECT max(jobs), CASE WHEN min(since) > $2 THEN $2 ELSE min(since) END FROM look
	$sql$, tab, queue._group_busy(cfg), CASE WHEN cfg.rate_per_group IS NULL AND cfg.pause_per_group IS NULL
			THEN 'NULL::timestamptz AS tat, NULL::timestamptz AS rests' ELSE format('(SELECT k.tat %1$s) AS tat, (SELECT k.rests %1$s) AS rests', last) END,
		queue._group_free(cfg, 'c.busy', '$2'),
		CASE WHEN has_table_privilege(noted, 'SELECT')	-- of a place that was made since the last take
			THEN format('SELECT "group", ended FROM %s WHERE ended IS NOT NULL AND "group" IS NOT NULL ORDER BY xid DESC LIMIT $1', noted)
			ELSE 'SELECT NULL::text AS "group", NULL::timestamptz AS ended WHERE false' END,
		CASE WHEN cfg.max_running_per_group = 1 THEN '' ELSE 'AND (run_at > $2) IS NOT TRUE' END)
		INTO ready, oldest USING most, moment;
END
$$;

-- Has a queue no rows at all, as its tables have no pages? Then nobody needs to look into them: of ten thousand queues
-- most are like that. Who may not read them has to be told so.
CREATE OR REPLACE FUNCTION queue._is_empty(cfg queue.queues) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	jobs CONSTANT regclass := to_regclass(queue._table(cfg.name));
BEGIN
	RETURN has_table_privilege(jobs, 'SELECT') AND pg_relation_size(jobs) = 0
		AND (SELECT count(*) FILTER (WHERE r.relkind = 'r' AND NOT r.relhassubclass AND pg_relation_size(r.oid) = 0) = 2
		FROM pg_class AS r WHERE r.oid IN (jobs, to_regclass(queue._archive(cfg.name))));
END
$$;

-- The queues for who looks at them all, or at one: their tables, as they were when the look began, and what the role may.
-- whole: he may read the jobs, and both are tables whose pages are all there is. plain_archive: _ordinary().
--
-- bare, bare_archive: what such a table has on disk, indexes and TOAST with it, if it has no page; NULL: that is to be asked.
-- To open them all is most of what STATS of an empty queue costs, and a session keeps each. Each B-tree had one page, its
-- first, when that was counted last; with a row it gets a second one, a row needs a page of the table, and the vacuum that cuts
-- off the last of these counts those of the indexes. (A crash empties an unlogged table, and counts nothing.)
CREATE OR REPLACE FUNCTION queue._looked_at(q text)
RETURNS TABLE (cfg queue.queues, jobs regclass, archive regclass, may_archive bool, whole bool, plain_archive bool,
	bare int8, bare_archive int8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
	block CONSTANT int8 := current_setting('block_size');
BEGIN
	RETURN QUERY SELECT s.cfg, t.oid::regclass, a.oid::regclass, coalesce(has_table_privilege(a.oid, 'SELECT'), false),
			has_table_privilege(t.oid, 'SELECT') AND t.relkind = 'r' AND NOT t.relhassubclass AND a.relkind = 'r' AND NOT a.relhassubclass,
			a.relkind = 'r' AND NOT a.relhasrules AND NOT a.relrowsecurity AND NOT a.relhassubclass AND a.relowner = o.relowner,
			CASE WHEN t.relkind = 'r' AND t.relpersistence = 'p' THEN (SELECT count(*) * block FROM pg_index AS i, pg_class AS x
				WHERE i.indrelid IN (t.oid, t.reltoastrelid) AND x.oid = i.indexrelid
				HAVING bool_and(x.relpages = 1 AND x.relkind = 'i' AND x.relam = 403)) END,
			CASE WHEN a.relkind = 'r' AND a.relpersistence = 'p' THEN (SELECT count(*) * block FROM pg_index AS i, pg_class AS x
				WHERE i.indrelid IN (a.oid, a.reltoastrelid) AND x.oid = i.indexrelid
				HAVING bool_and(x.relpages = 1 AND x.relkind = 'i' AND x.relam = 403)) END
		FROM (SELECT c AS cfg FROM queue.queues AS c WHERE c.name = q	-- by the index, also in a plan that is kept
				UNION ALL SELECT c FROM queue.queues AS c WHERE q IS NULL) AS s
			CROSS JOIN (SELECT r.relowner FROM pg_class AS r WHERE r.oid = 'queue.queues'::regclass) AS o
			LEFT JOIN pg_class AS t ON t.oid = to_regclass(queue._table((s.cfg).name))
			LEFT JOIN pg_class AS a ON a.oid = to_regclass(queue._archive((s.cfg).name))
		WHERE q IS NOT NULL OR has_table_privilege(t.oid, 'SELECT')
		ORDER BY (s.cfg).name;
END
$$;

-- Of a table, as above.
CREATE OR REPLACE FUNCTION queue._bytes(rel regclass, bare int8) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN bare IS NOT NULL AND pg_relation_size(rel) = 0 THEN bare ELSE coalesce(pg_total_relation_size(rel), 0) END;
END
$$;

-- What is due counts as ready although nobody takes. oldest_ready: since when it may be taken. done:
-- what the archive holds, if the role may read it. new, retry: what is ready and was never taken, and the rest of it.
-- total: all that are there, with the dead ones. bytes: on disk, with the archive. Without a name: the queues that the role
-- may read, and then the streams.
--
-- Of thousands of queues most are empty. One without pages is not looked into; of one without a row, the figures are known.
CREATE OR REPLACE FUNCTION queue.stats(q text DEFAULT NULL)
RETURNS TABLE (queue text, ready int8, later int8, leased int8, dead int8,
	oldest_ready timestamptz, next_due timestamptz, blocked int8, done int8, number int4, new int8, retry int8,
	total int8, newest timestamptz, bytes int8, kind text, oldest timestamptz, partitions int4, pushed_rate float8)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	look record;
	cfg queue.queues;
	none bool;
	kept text;
	size int8;
	n int8;
BEGIN
	IF queue._is_stream(q) THEN
		RETURN QUERY SELECT * FROM queue._stats_of_streams(q);
		RETURN;
	ELSIF q IS NOT NULL THEN
		PERFORM queue._find(q);
	END IF;
	FOR look IN SELECT * FROM queue._looked_at(q) LOOP
		cfg := look.cfg;
		IF look.whole AND pg_relation_size(look.jobs) = 0 AND pg_relation_size(look.archive) = 0 THEN
			RETURN QUERY SELECT cfg.name, 0::int8, 0::int8, 0::int8, 0::int8, NULL::timestamptz, NULL::timestamptz, 0::int8,
				CASE WHEN look.may_archive THEN 0::int8 END, cfg.number, 0::int8, 0::int8, 0::int8, NULL::timestamptz,
				queue._bytes(look.jobs, look.bare) + queue._bytes(look.archive, look.bare_archive), 'queue', NULL::timestamptz, NULL::int4, NULL::float8;
			CONTINUE;
		END IF;
		BEGIN	-- of all queues: see _visited
			CONTINUE WHEN q IS NULL AND NOT queue._still(cfg.name);
			look.jobs := to_regclass(queue._table(cfg.name));
			look.archive := to_regclass(queue._archive(cfg.name));
			size := queue._bytes(look.jobs, look.bare) + queue._bytes(look.archive, look.bare_archive);
			-- what an archive that is no plain table has is told by its count alone
			kept := CASE WHEN has_table_privilege(look.archive, 'SELECT') IS NOT TRUE THEN 'NULL::int8'
				WHEN look.plain_archive AND pg_relation_size(look.archive) = 0 THEN '0::int8'
				ELSE format('(SELECT count(*) FROM %s)', queue._archive(cfg.name)) END;
			none := false;
			IF q IS NULL AND pg_stat_get_live_tuples(look.jobs) = 0 THEN
				EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', queue._table(cfg.name)) INTO none;
			END IF;
			IF none THEN
				n := CASE kept WHEN '0::int8' THEN 0 END;
				IF left(kept, 1) = '(' THEN
					EXECUTE 'SELECT ' || kept INTO n;
				END IF;
				RETURN QUERY SELECT cfg.name, 0::int8, 0::int8, 0::int8, 0::int8, NULL::timestamptz, NULL::timestamptz, 0::int8,
					n, cfg.number, 0::int8, 0::int8, 0::int8, NULL::timestamptz, size, 'queue', NULL::timestamptz, NULL::int4,
					NULL::float8;
			ELSE
				-- by groups: the state of each job is told once, and not for each figure
				RETURN QUERY EXECUTE format($sql$
					SELECT $1, coalesce(sum(jobs) FILTER (WHERE now_is = 'ready'), 0)::int8,
						coalesce(sum(jobs) FILTER (WHERE now_is = 'later'), 0)::int8,
						coalesce(sum(jobs) FILTER (WHERE now_is = 'leased'), 0)::int8,
						coalesce(sum(jobs) FILTER (WHERE now_is = 'dead'), 0)::int8,
						min(since) FILTER (WHERE now_is = 'ready'),
						nullif(min(due) FILTER (WHERE now_is IN ('later', 'leased')), 'infinity'),
						coalesce(sum(jobs) FILTER (WHERE now_is = 'blocked'), 0)::int8,
						%s, $4,
						coalesce(sum(fresh) FILTER (WHERE now_is = 'ready'), 0)::int8,
						coalesce(sum(jobs - fresh) FILTER (WHERE now_is = 'ready'), 0)::int8,
						coalesce(sum(jobs) FILTER (WHERE now_is IS NOT NULL), 0)::int8, max(newest) FILTER (WHERE now_is IS NOT NULL),
						$5, 'queue', min(oldest) FILTER (WHERE now_is IS NOT NULL), NULL::int4, NULL::float8
					FROM (SELECT now_is, count(*) AS jobs,
							min(CASE WHEN lease_until IS NULL THEN least(greatest(run_at, pushed_at), $2) ELSE lease_until END) AS since,
							min(coalesce(lease_until, run_at)) AS due,
							count(*) FILTER (WHERE state <> 'leased' AND attempt + coalesce(spent, 0) = 0) AS fresh,
							max(pushed_at) AS newest, min(pushed_at) AS oldest
						FROM %s AS j GROUP BY now_is) AS s
				$sql$, kept, queue._jobs_now(cfg))
					USING cfg.name, clock_timestamp(), queue._signed_attempts(cfg), cfg.number, size;
			END IF;
			PERFORM queue._visited() WHERE q IS NULL;
		EXCEPTION WHEN SQLSTATE 'QBSEE' THEN
			NULL;
		END;
	END LOOP;
	IF q IS NULL THEN
		RETURN QUERY SELECT * FROM queue._stats_of_streams(NULL);
	END IF;
END
$$;

-- Is the job leased, and its lease over, though nobody has found it yet (_promote)? That is a failure.
CREATE OR REPLACE FUNCTION queue._is_over(moment text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('(state = ''leased'' AND lease_until <= %s AND left(token, 1) <> ''x'')', moment);
END
$$;

-- The error of such a one; longest: the max_run of its queue.
CREATE OR REPLACE FUNCTION queue._why_over(longest interval) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('CASE WHEN lease_until >= taken_at + %L::interval THEN ''ran too long'' ELSE ''lease expired'' END', longest);
END
$$;

-- How long the last attempt ran that has ended otherwise than by being given back. (A lease that is over is found later.)
CREATE OR REPLACE FUNCTION queue._ran() RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'CASE WHEN failed_at >= taken_at AND error IS DISTINCT FROM ''expired'' THEN
		least(failed_at, CASE WHEN error IN (''lease expired'', ''ran too long'') THEN run_at END) - taken_at END';
END
$$;

-- The columns of a row that PEEK or JOB gives: of a job in the queue's table, at this moment, or of one that has ended
-- and is kept. One that is held has no time: there are drivers that cannot read infinity.
CREATE OR REPLACE FUNCTION queue._job_row(kind text, moment text, now_is text, longest interval, other text[]) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	over CONSTANT text := queue._is_over(moment);
BEGIN
	RETURN queue._row(kind, ARRAY['after', 'array_to_string(CASE WHEN left(behind[1], 1) = ''='' THEN behind[2:] ELSE behind END, '', '')',
		'group', queue._group_later(), 'result', 'NULL::jsonb', 'ran', format('CASE WHEN state = ''leased''
			THEN least(%s, lease_until) - taken_at ELSE %s END', moment, queue._ran()),
		'state', now_is,
		'failures', format('failures + coalesce(%s, false)::int4', over),
		'error', format('CASE WHEN %s THEN %s ELSE error END', over, queue._why_over(longest)),
		'failed_at', format('CASE WHEN %s THEN lease_until ELSE failed_at END', over),
		'run_at', format('nullif(CASE WHEN %s THEN greatest(CASE WHEN again THEN run_at END, lease_until) ELSE run_at END, ''infinity'')', over),
		'lease_until', format('CASE WHEN %s THEN NULL ELSE lease_until END', over),
		'ended_at', format('CASE WHEN %s AND %s = ''dead'' THEN lease_until ELSE ended_at END', over, now_is)] || other);
END
$$;

CREATE OR REPLACE FUNCTION queue._ended_row(kind text, other text[]) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._row(kind, ARRAY['after', 'NULL::text', 'run_at', 'nullif(run_at, ''infinity'')', 'lease_until', 'NULL::timestamptz', 'expires_at', 'NULL::timestamptz', 'ran',
		format('CASE WHEN state = ''done'' THEN ended_at - taken_at ELSE %s END', queue._ran())] || other);
END
$$;

-- (What is looked at by indexes alone looks so expensive to jit, where one has none, that it compiles each time.)
-- Looks without taking. Each state in its own order, by its index: what is taken next, what has become
-- due (a take will find it), what is due next, what died last. What has ended and is kept is shown only when asked for, the last first.
CREATE OR REPLACE FUNCTION queue.peek(q text, lim int4 DEFAULT 10, which text DEFAULT NULL)
RETURNS SETOF queue.peeked_jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET enable_sort = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	cfg queue.queues;
	wanted int4 := coalesce(lim, 10);
	got int4;
	part text;
	clause text;
BEGIN
	IF queue._is_delivery(q) AND NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.name = q) THEN
		RETURN QUERY SELECT * FROM queue._peek_delivery_jsonb(q, lim, which);
		RETURN;
	END IF;
	cfg := queue._find(q);
	PERFORM queue._check_payload(cfg, 'jsonb');
	IF wanted < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	ELSIF which NOT IN ('ready', 'leased', 'later', 'blocked', 'dead', 'done') THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('unknown state "%s"', left(which, 80)),
			HINT = 'States: ready, later, leased, blocked, dead, done.';
	ELSIF which = 'done' THEN
		RETURN QUERY EXECUTE format('SELECT %s FROM %s ORDER BY ended_at DESC LIMIT $1',
				queue._ended_row('peeked_jsonb', ARRAY['job', '$2 || ''-'' || id']), queue._archive(q))
			USING wanted, cfg.number;
		RETURN;
	END IF;
	FOR part, clause IN VALUES
			('ready', 'state = ''ready'' AND (expires_at > $2 OR expires_at IS NULL) ORDER BY priority DESC, position'),
			('due', 'due <= $2 AND (state = ''leased'' OR state = ''later'' AND run_at <= $2) AND now_is = coalesce($4, now_is) ORDER BY due'),
			('leased', 'due > $2 AND state = ''leased'' ORDER BY due'),
			('later', 'due > $2 AND state = ''later'' AND now_is = ''later'' ORDER BY due'),
			('late', 'due <= $2 AND expires_at <= $2 AND state IN (''ready'', ''later'') AND (state = ''ready'' OR run_at > $2) AND now_is = ''dead'' ORDER BY due'),
			('blocked', 'state = ''blocked'' ORDER BY "group", id'),
			('dead', 'ended_at IS NOT NULL AND state = ''dead'' ORDER BY ended_at DESC') LOOP
		CONTINUE WHEN part = 'late' AND cfg.on_expire <> 'dead' OR part <> which AND NOT (part = 'due' AND which IN ('ready', 'dead') OR part = 'late' AND which = 'dead');
		RETURN QUERY EXECUTE format('SELECT %s FROM (SELECT *, %s AS now_is FROM %s) AS j WHERE %s LIMIT $1',
			queue._job_row('peeked_jsonb', '$2', 'now_is', cfg.max_run, ARRAY['job', '$5 || ''-'' || id']), queue._state_at('$2', '$3', cfg.on_expire), queue._table(q), clause)
			USING wanted, moment, queue._signed_attempts(cfg), which, cfg.number;
		GET DIAGNOSTICS got = ROW_COUNT;
		wanted := wanted - got;
		EXIT WHEN wanted <= 0;
	END LOOP;
END
$$;

-- Everything about one job, also of one that has ended and is kept, but its token, which is its
-- worker's. Named by ref, by ref and its queue, or by its key and its queue.
CREATE OR REPLACE FUNCTION queue.job(ref text DEFAULT NULL, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS SETOF queue.shown_jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	place record;
	named CONSTANT text[] := queue._refs(queue._single(ref), q, k, 'JOB');
	ours CONSTANT text[] := ARRAY['job', '$1 || ''-'' || id', 'queue', '$2', 'max_attempts', 'coalesce(max_attempts, $4)'];
BEGIN
	SELECT l.*, c.max_attempts, c AS cfg INTO place FROM queue._locate(named[1], q, 'JOB') AS l
		JOIN queue.queues AS c ON c.number = l.number;
	PERFORM queue._check_payload(place.cfg, 'jsonb');
	RETURN QUERY EXECUTE format('SELECT %s FROM %s WHERE id = $3',
		queue._job_row('shown_jsonb', '$5', format('coalesce(%s, state)', queue._state_at('$5', '$6', (place.cfg).on_expire)),
			(place.cfg).max_run, ours || ARRAY['cancelled', '(left(token, 1) = ''x'') IS TRUE']), queue._table(place.name)) USING place.number, place.name, place.id,
		place.max_attempts, clock_timestamp(), queue._signed_attempts(place.cfg);
	IF FOUND THEN
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format('SELECT %s FROM %s WHERE id = $3 ORDER BY ended_at + interval ''0'' DESC LIMIT 1',
		queue._ended_row('shown_jsonb', ours || ARRAY['cancelled', 'false']), queue._archive(place.name)) USING place.number, place.name, place.id, place.max_attempts;
	IF NOT FOUND THEN
		PERFORM queue._no_job(place.number || '-' || place.id);
	END IF;
END
$$;

-- What became of the attempts at a job that did not end well, the oldest first: those that are kept (_remember), and
-- one whose lease is over though nobody has found it.
CREATE OR REPLACE FUNCTION queue.history(ref text DEFAULT NULL, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS TABLE (attempt int4, worker text, taken_at timestamptz, ended_at timestamptz, outcome text, error text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
	place record;
	past jsonb;
	found bool;
	named CONSTANT text[] := queue._refs(queue._single(ref), q, k, 'HISTORY');
BEGIN
	SELECT l.*, c.history AS most, c.max_run INTO place FROM queue._locate(named[1], q, 'HISTORY') AS l
		JOIN queue.queues AS c ON c.number = l.number;
	EXECUTE format($sql$
		SELECT true, CASE WHEN %s THEN queue._remember(history, greatest($2, 1), attempt, worker, taken_at, lease_until, 'expired', %s)
			ELSE history END
		FROM %s WHERE id = $1
	$sql$, queue._is_over('$3'), queue._why_over(place.max_run), queue._table(place.name)) INTO found, past
		USING place.id, place.most, clock_timestamp();
	IF found IS NULL THEN
		EXECUTE format('SELECT true, history FROM %s WHERE id = $1 ORDER BY ended_at + interval ''0'' DESC LIMIT 1',
			queue._archive(place.name)) INTO found, past USING place.id;
	END IF;
	IF found IS NULL THEN
		PERFORM queue._no_job(place.number || '-' || place.id);
	END IF;
	RETURN QUERY SELECT h.attempt, h.worker, h.taken_at, h.ended_at, h.outcome, h.error
		FROM jsonb_array_elements(past) WITH ORDINALITY AS e (one, n), LATERAL jsonb_to_record(e.one)
			AS h (attempt int4, worker text, taken_at timestamptz, ended_at timestamptz, outcome text, error text)
		ORDER BY e.n;
END
$$;

-- Who works on what: the leases that hold, the oldest first, and behind them who waits for a job, the longest first.
-- Without a name: in the queues that the role may read. known: what the proxy that asks knows of its own clients
-- (src/queue/known.c). It decides nothing but what is shown here, so anybody may say anything.
CREATE OR REPLACE FUNCTION queue._workers(q text, known text)
RETURNS TABLE (queue text, job text, worker text, attempt int4, cancelled bool, taken_at timestamptz,
	lease_until timestamptz, proxy int4, role text, address text, waits_since timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	cfg queue.queues;
	said text := convert_from(decode(known, 'hex'), 'SQL_ASCII');
	here jsonb; -- of each queue
	number int4;
BEGIN
	-- other encodings may not have its characters
	here := CASE WHEN getdatabaseencoding() = 'UTF8' THEN said ELSE regexp_replace(said, '\\u[0-9a-f]{4}', '?', 'g') END;
	number := nullif((here->>'proxy')::int4, 0);
	here := (SELECT jsonb_object_agg(k.queue, k.known) FROM (SELECT e.one->>'queue' AS queue, jsonb_agg(e.one) AS known
		FROM jsonb_array_elements(here->'known') AS e (one) GROUP BY 1) AS k);
	IF queue._is_stream(q) THEN
		RETURN QUERY SELECT * FROM queue._readers(q, here, number);
		RETURN;
	ELSIF q IS NOT NULL THEN
		PERFORM queue._find(q);
	END IF;
	FOR cfg IN SELECT * FROM queue.queues AS c WHERE c.name = q OR q IS NULL
			AND has_table_privilege(to_regclass(queue._table(c.name)), 'SELECT') ORDER BY c.name LOOP
		CONTINUE WHEN q IS NULL AND (here->cfg.name) IS NULL AND queue._has_no_pages(cfg.name);
		BEGIN	-- of all queues: see _visited
			CONTINUE WHEN q IS NULL AND NOT queue._still(cfg.name);
			RETURN QUERY EXECUTE format($sql$
				SELECT $1, $2 || '-' || j.id, j.worker, j.attempt, left(j.token, 1) = 'x', j.taken_at, j.lease_until, j.proxy,
					k.role, k.address, NULL::timestamptz
				FROM %s AS j LEFT JOIN jsonb_to_recordset($4) AS k (id int8, digits text, role text, address text)
					ON k.id = j.id AND k.digits = right(j.token, 4)
				WHERE j.due > $3 AND j.state = 'leased'
				ORDER BY j.taken_at, j.id
			$sql$, queue._table(cfg.name)) USING cfg.name, cfg.number, moment, here->cfg.name;
			RETURN QUERY SELECT cfg.name, NULL::text, k.worker, NULL::int4, NULL::bool, NULL::timestamptz, NULL::timestamptz,
					number, k.role, k.address, moment - k.waits * interval '1 s'
				FROM jsonb_to_recordset(here->cfg.name) AS k (waits float8, worker text, role text, address text)
				WHERE k.waits IS NOT NULL
				ORDER BY k.waits DESC;
			PERFORM queue._visited() WHERE q IS NULL;
		EXCEPTION WHEN SQLSTATE 'QBSEE' THEN
			NULL;
		END;
	END LOOP;
	IF q IS NULL THEN
		RETURN QUERY SELECT * FROM queue._readers(NULL, here, number);
	END IF;
END
$$;

-- The same of streams: deliveries that are out, of subscriptions of the role, and who waits for one.
CREATE OR REPLACE FUNCTION queue._readers(q text, here jsonb, number int4)
RETURNS TABLE (queue text, job text, worker text, attempt int4, cancelled bool, taken_at timestamptz,
	lease_until timestamptz, proxy int4, role text, address text, waits_since timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	s queue.streams;
BEGIN
	FOR s IN SELECT * FROM queue.streams AS t WHERE t.name = q OR q IS NULL
			AND has_table_privilege(to_regclass(format('queue.e%s_0', t.number)), 'SELECT') ORDER BY t.name LOOP
		IF NOT has_table_privilege(to_regclass(format('queue.e%s_0', s.number)), 'SELECT') THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for stream "%s"', s.name),
				HINT = format('QUEUE GRANT SUBSCRIBE ON %I TO %I;', s.name, current_user);
		END IF;
		RETURN QUERY SELECT s.name, d.sub || '-d' || d.id, d.worker, d.attempt, NULL::bool, d.taken_at, d.lease_until, d.proxy,
				k.role, k.address, NULL::timestamptz
			FROM queue.subscriptions AS u JOIN queue.deliveries AS d ON d.sub = u.number
				LEFT JOIN jsonb_to_recordset(here->s.name) AS k (digits text, role text, address text) ON k.digits = right(d.token, 4)
			WHERE u.stream = s.number AND d.lease_until > moment AND left(d.token, 1) <> 'w'	-- those wait for their next attempt
			ORDER BY d.taken_at, d.sub, d.id;
		RETURN QUERY SELECT s.name, NULL::text, k.worker, NULL::int4, NULL::bool, NULL::timestamptz, NULL::timestamptz, number, k.role,
				k.address, moment - k.waits * interval '1 s'
			FROM jsonb_to_recordset(here->s.name) AS k (waits float8, worker text, role text, address text)
			WHERE k.waits IS NOT NULL ORDER BY k.waits DESC;
	END LOOP;
END
$$;

-- The same as far as the database knows it.
CREATE OR REPLACE FUNCTION queue.workers(q text DEFAULT NULL)
RETURNS TABLE (queue text, job text, worker text, attempt int4, cancelled bool, taken_at timestamptz,
	lease_until timestamptz, proxy int4, role text, address text, waits_since timestamptz)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT * FROM queue._workers(q, NULL);
END
$$;

-- How often jobs of the queue have failed with which text (where it was, and what was told before, are no part of it), the last of each and which job that was, most frequent
-- first.
CREATE OR REPLACE FUNCTION queue.errors(q text)
RETURNS TABLE (error text, jobs int8, last timestamptz, job text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
BEGIN
	RETURN QUERY EXECUTE format($sql$
		SELECT why, count(*), max(at), $1 || '-' || (max(ARRAY[(extract(epoch FROM at) * 1000000)::int8, id]))[2]
		FROM (SELECT id, failures, CASE WHEN %1$s THEN %3$s
				ELSE split_part(split_part(error, E'\nCONTEXT:  ', 1), E'\nNOTICES:\n', 1) END AS why,
				CASE WHEN %1$s THEN lease_until ELSE failed_at END AS at, coalesce(%1$s, false) OR state = 'dead' AS over FROM %2$s) AS j
		WHERE failures > 0 OR over GROUP BY why ORDER BY 2 DESC, 3 DESC
	$sql$, queue._is_over('$2'), queue._table(q), queue._why_over(cfg.max_run)) USING cfg.number, clock_timestamp();
END
$$;

-- Deletes jobs, but none that somebody works on; states are those that the figures show (_state_at). done: what is kept of those that have ended.
-- ids: of these, of jobs that are not over, or with done of those that are kept.
-- older: since its end, of one that is dead or kept, or else since its push.
CREATE OR REPLACE FUNCTION queue.purge(q text, which text DEFAULT NULL, notify bool DEFAULT true,
	older interval DEFAULT NULL, ids int8[] DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	gone int8;
	kept int8 := 0;
	moment CONSTANT timestamptz := clock_timestamp();
	until timestamptz;
	those text;
BEGIN
	IF older < interval '0' OR older > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'OLDER THAN must be an interval, not negative, nor longer than 8000 years';
	END IF;
	-- what is older than that, the year 4714 BC is no more
	until := CASE WHEN older < interval '6000 years' THEN moment - older WHEN older IS NOT NULL THEN '-infinity' END;
	IF which NOT IN ('ready', 'later', 'blocked', 'dead', 'done') THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('jobs in state "%s" cannot be purged', left(which, 80)),
			HINT = 'States: ready, later, blocked, dead, done; without a state all of these.';
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM set_config('qbouncer.gone', 'purged', true);
	those := format($sql$(state <> 'leased' OR lease_until <= $2) AND ($1 IS NULL OR %s = $1)
			AND ($4 IS NULL OR CASE WHEN state = 'dead' THEN coalesce(ended_at, pushed_at) ELSE pushed_at END <= $4)
			AND ($5 IS NULL OR id = ANY ($5))$sql$, queue._state_at('$2', '$3', cfg.on_expire));
	EXECUTE CASE WHEN queue._has_blocked(q)
		THEN format('WITH those AS MATERIALIZED (%s) DELETE FROM %s USING those WHERE id = job', queue._in_order(q, those), queue._table(q))
		ELSE format('DELETE FROM %s WHERE %s', queue._table(q), those) END
		USING which, moment, queue._signed_attempts(cfg), until, ids;
	GET DIAGNOSTICS gone = ROW_COUNT;
	PERFORM set_config('qbouncer.gone', '', true);
	IF which = 'done' OR which IS NULL AND ids IS NULL THEN
		EXECUTE format('DELETE FROM %s WHERE ($1 IS NULL OR ended_at <= $1) AND ($2 IS NULL OR id = ANY ($2))',
			queue._archive(q)) USING until, ids;
		GET DIAGNOSTICS kept = ROW_COUNT;
	END IF;
	RETURN gone + kept;
END
$$;

-- Of one queue, as _gauges counts.
CREATE OR REPLACE FUNCTION queue._gauge(cfg queue.queues, most int4)
RETURNS TABLE (queue text, ready int8, later int8, leased int8, blocked int8, dead int8, oldest_ms int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET enable_sort = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	let_in int8 := 0;
	waits timestamptz;
BEGIN
	IF queue._is_empty(cfg) THEN
		RETURN QUERY SELECT cfg.name, 0::int8, 0::int8, 0::int8, 0::int8, 0::int8, NULL::int8;
		RETURN;
	END IF;
	IF cfg.by_group THEN
		SELECT g.ready, g.oldest INTO let_in, waits FROM queue._gauge_groups(cfg, most) AS g;
	END IF;
	RETURN QUERY EXECUTE format($sql$
		SELECT $1, least(r.jobs + d.ready + $5, $2::int8), d.later, d.leased, greatest(b.jobs - $5, 0),
			least(d.dead + (SELECT count(*) FROM (SELECT FROM %1$s WHERE ended_at IS NOT NULL AND state = 'dead'
				ORDER BY ended_at LIMIT $2) AS x), $2::int8),
			(extract(epoch FROM $3 - nullif(least(d.oldest, $6, (SELECT least(greatest(run_at, pushed_at), $3) FROM %1$s
				WHERE state = 'ready' AND (expires_at > $3 OR expires_at IS NULL)
				ORDER BY priority DESC, position LIMIT 1)), '-infinity')) * 1000)::int8
		FROM (SELECT count(*) FILTER (WHERE now_is IS NOT NULL) AS jobs
				FROM (SELECT %2$s AS now_is FROM %1$s WHERE state = 'ready'
					ORDER BY priority DESC, position LIMIT $2) AS h) AS r,
			(SELECT count(*) AS jobs FROM (SELECT FROM %1$s WHERE state = 'blocked' ORDER BY "group", id
				LIMIT $2 + CASE WHEN $5 < $2 THEN $5 ELSE 0 END) AS h) AS b,
			(SELECT count(*) FILTER (WHERE now_is = 'later') AS later,
				count(*) FILTER (WHERE now_is = 'leased') AS leased,
				count(*) FILTER (WHERE now_is = 'ready') AS ready,
				count(*) FILTER (WHERE now_is = 'dead') AS dead,
				min(since) FILTER (WHERE now_is = 'ready') AS oldest
			FROM (SELECT coalesce(lease_until, run_at) AS since, %2$s AS now_is FROM %1$s
				WHERE due IS NOT NULL AND state IN ('later', 'leased') ORDER BY due LIMIT $2) AS w) AS d
	$sql$, queue._table(cfg.name), queue._state_at('$3', '$4', cfg.on_expire))
	USING cfg.name, most, moment, queue._signed_attempts(cfg), let_in, waits;
END
$$;

-- Of a stream and of a subscription, as _gauges counts.
CREATE OR REPLACE FUNCTION queue._gauge_of_stream(s queue.streams, most int4) RETURNS queue._gauged
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	g queue._gauged;
BEGIN
	g.queue := s.name;
	g.number := s.number;
	SELECT w.events, w.bytes, extract(epoch FROM clock_timestamp() - w.oldest) * 1000, coalesce(greatest(w.last_id, s.gone_id), 0)
		INTO g.events, g.bytes, g.age_ms, g.total FROM queue._stream_state(s.number, most) AS w;
	RETURN g;
END
$$;

CREATE OR REPLACE FUNCTION queue._gauge_of_lane(u queue.subscriptions, most int4) RETURNS queue._gauged
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
	p queue.positions;
	g queue._gauged;
BEGIN
	SELECT name INTO g.queue FROM queue.streams WHERE number = u.stream;
	g.subscription := u.name;
	g.number := u.number;
	g.lost := (u.lost_at IS NOT NULL)::int4;
	SELECT * INTO p FROM queue.positions WHERE sub = u.number ORDER BY seq DESC LIMIT 1;
	IF FOUND THEN
		SELECT w.n, coalesce(extract(epoch FROM clock_timestamp() - w.first) * 1000, 0) INTO g.events, g.age_ms
			FROM queue._pending(u.stream, p, u.from_time, u.from_id, most, u.lanes, u.lane, u.ends) AS w;
		g.total := p.delivered;
		SELECT coalesce(sum(d.events), 0), coalesce(max(d.attempt), 0) INTO g."out", g.attempt
			FROM queue.deliveries AS d WHERE d.sub = u.number;
		SELECT w.waiting, w.dead INTO g.retries, g.given_up FROM queue._retries(u.number, most) AS w;
	END IF;
	RETURN g;
END
$$;

-- A subscription: what its lanes have together.
CREATE OR REPLACE FUNCTION queue._gauge_of_reader(u queue.subscriptions, most int4) RETURNS queue._gauged
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	g queue._gauged := queue._gauge_of_lane(u, most);
	l queue.subscriptions;
	one queue._gauged;
BEGIN
	IF u.lanes > 1 OR u.waits THEN
		FOR l IN SELECT * FROM queue.subscriptions AS t WHERE t.stream = u.stream AND t.name = u.name AND t.owner = u.owner AND t.number <> u.number LOOP
			one := queue._gauge_of_lane(l, most);
			g.events := g.events + one.events;
			g.age_ms := greatest(g.age_ms, one.age_ms);
			g.total := g.total + one.total;
			g."out" := g."out" + one."out";
			g.attempt := greatest(g.attempt, one.attempt);
			g.retries := g.retries + one.retries;
			g.given_up := g.given_up + one.given_up;
			g.lost := greatest(g.lost, one.lost);
		END LOOP;
		g.events := least(g.events, most);
	END IF;
	RETURN g;
END
$$;

-- For the proxy's metrics: how full each queue is that the role may read, and each stream, and how far its readers are.
-- Counts come from the partial indexes and end at "most": what this costs does not grow with the queue. What is due counts
-- as ready (above); oldest_ms is since when the job that is next may be taken, or one that became due before.
-- after, ms: from the queue, stream or subscription behind this number, for so long. used: as for _visits.
-- changes: of a queue without a job what _changes said of it before; NULL: it has some. known: numbers and changes of such, in
-- order: those are not looked into. A row without figures: somebody has locked it for longer than lock_timeout. One without a
-- name: so far it came, where the last ones are nothing to this role: no row is said behind the last one alone.
CREATE OR REPLACE FUNCTION queue._gauges(most int4, used text[] DEFAULT NULL, after int4 DEFAULT 0,
	ms int4 DEFAULT 2000000000, known int8[] DEFAULT '{}')
RETURNS SETOF queue._gauged
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
SET enable_sort = off
SET lock_timeout = '100ms'
AS $$
DECLARE
	next record;
	until CONSTANT timestamptz := clock_timestamp() + make_interval(secs => ms / 1000.0);
	k int4 := 1;
	now_changes int8;
	g record;
	passed int4;
	told int4;
	bare queue._gauged;
BEGIN
	FOR next IN
			SELECT c.number, c AS cfg, NULL::queue.streams AS s, NULL::queue.subscriptions AS u FROM queue.queues AS c
				WHERE c.number > after
			UNION ALL SELECT c.number, NULL, c, NULL FROM queue.streams AS c
				WHERE c.number > after AND (used IS NULL OR c.owner = quote_ident(current_user)::regrole)
					AND has_table_privilege(to_regclass(format('queue.e%s_0', c.number)), 'SELECT')
			UNION ALL SELECT c.number, NULL, NULL, c FROM queue.subscriptions AS c
				WHERE c.number > after AND c.lane = 0 AND c.ends IS NULL AND CASE WHEN used IS NULL THEN pg_has_role(c.owner, 'USAGE')
						ELSE c.owner = quote_ident(current_user)::regrole END
					AND has_table_privilege(to_regclass(format('queue.e%s_0', c.stream)), 'SELECT')
			ORDER BY 1 LOOP
		IF passed IS NOT NULL AND clock_timestamp() > until THEN
			IF passed IS DISTINCT FROM told THEN
				bare := NULL;
				bare.number := passed;
				RETURN NEXT bare;
			END IF;
			EXIT;
		END IF;
		passed := next.number;
		-- here: asked above it would be asked of all before the first of them comes
		CONTINUE WHEN (next.cfg).number IS NOT NULL AND NOT (queue._visits(next.cfg, used)
			AND coalesce(has_table_privilege(to_regclass(queue._table((next.cfg).name)), 'SELECT'), false));
		IF (next.cfg).number IS NOT NULL THEN
			now_changes := queue._changes(next.cfg);
			WHILE known[k] < next.number LOOP
				k := k + 2;
			END LOOP;
			IF known[k] = next.number AND known[k + 1] = now_changes THEN
				RETURN NEXT ((next.cfg).name, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
					next.number, now_changes)::queue._gauged;
				told := passed;
				CONTINUE;
			END IF;
		END IF;
		BEGIN
			IF (next.s).number IS NOT NULL THEN
				RETURN QUERY SELECT * FROM queue._gauge_of_stream(next.s, most);
			ELSIF (next.u).number IS NOT NULL THEN
				RETURN QUERY SELECT * FROM queue._gauge_of_reader(next.u, most);
			ELSE
				CONTINUE WHEN NOT queue._is_empty(next.cfg) AND NOT queue._still((next.cfg).name);
				FOR g IN SELECT * FROM queue._gauge(next.cfg, most) LOOP
					RETURN NEXT (g.queue, g.ready, g.later, g.leased, g.blocked, g.dead, g.oldest_ms, NULL, NULL, NULL, NULL, NULL, NULL,
						NULL, NULL, NULL, NULL, next.number,
						CASE WHEN g.ready + g.later + g.leased + g.blocked + g.dead = 0 THEN now_changes END)::queue._gauged;
				END LOOP;
			END IF;
			told := passed;
			PERFORM queue._visited();
		EXCEPTION WHEN SQLSTATE 'QBSEE' OR undefined_table OR undefined_function THEN
			NULL;	-- looked at, or dropped meanwhile
		WHEN lock_not_available THEN
			bare := NULL;
			bare.number := passed;
			bare.queue := coalesce((next.cfg).name, (next.s).name, (SELECT s.name FROM queue.streams AS s WHERE s.number = (next.u).stream));
			bare.subscription := (next.u).name;
			RETURN NEXT bare;
			told := passed;
		END;
	END LOOP;
END
$$;
