-- QUEUE HEALTH: what a person who has been woken at night wants to know of a database. Nothing is changed. Each
-- row is about one thing: what it is, whether that is well, and what one does if it is not.

-- Of a queue: since when the first job waits (as _gauge says it), what vacuum has left, how big it is. Everything is counted by
-- statistics or read at an end of an index. empty: it has no rows, for sure.
CREATE OR REPLACE FUNCTION queue._health_of(cfg queue.queues, jobs regclass, archive regclass, bare int8, bare_archive int8, empty bool,
	OUT ok bool, OUT value text, OUT hint text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	forever CONSTANT interval := interval '5000 years';
	gone CONSTANT int8 := coalesce(pg_stat_get_dead_tuples(jobs), 0);
	live CONSTANT int8 := coalesce(pg_stat_get_live_tuples(jobs), 0);
	vacuumed CONSTANT timestamptz := greatest(pg_stat_get_last_vacuum_time(jobs), pg_stat_get_last_autovacuum_time(jobs));
	keeps CONSTANT bool := NOT empty AND has_table_privilege(archive, 'SELECT') AND queue._ordinary(archive)
		AND pg_relation_size(archive) > 0;
	waits timestamptz;
	oldest interval;
	works bool;
	overdue interval;
	beyond timestamptz;
BEGIN
	IF NOT empty AND live = 0 AND has_table_privilege(jobs, 'SELECT') THEN
		EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s)', queue._table(cfg.name)) INTO empty;
	END IF;
	IF NOT empty AND cfg.by_group THEN
		SELECT g.oldest INTO waits FROM queue._gauge_groups(cfg, 10000) AS g;
	END IF;
	IF NOT empty THEN
		EXECUTE format($sql$
			SELECT $2 - nullif(least(d.oldest, $5, (SELECT least(greatest(run_at, pushed_at), $2) FROM %1$s
					WHERE state = 'ready' AND (expires_at > $2 OR expires_at IS NULL)
					ORDER BY priority DESC, position LIMIT 1)), '-infinity'),
				d.works, $2 - (SELECT ended_at + $4 FROM %1$s WHERE ended_at <= $2 - $4 AND state = 'dead' ORDER BY ended_at LIMIT 1)
			FROM (SELECT min(since) FILTER (WHERE now_is = 'ready') AS oldest, bool_or(now_is = 'leased') AS works
				FROM (SELECT coalesce(lease_until, run_at) AS since, %2$s AS now_is FROM %1$s
					WHERE due IS NOT NULL AND state IN ('later', 'leased') ORDER BY due LIMIT $1) AS w) AS d
		$sql$, queue._table(cfg.name), queue._state_at('$2', '$3', cfg.on_expire)) INTO oldest, works, overdue
			USING 10000, moment, queue._signed_attempts(cfg), least(cfg.retain_dead, forever), waits;
	END IF;
	IF keeps THEN
		EXECUTE format('SELECT ended_at + $2 FROM %s WHERE ended_at <= $1 - $2 ORDER BY ended_at LIMIT 1', queue._archive(cfg.name))
			INTO beyond USING moment, least(queue._kept(cfg.retain_done), forever);
		overdue := greatest(overdue, moment - beyond);
	END IF;
	value := concat_ws(', ',
		CASE WHEN oldest IS NULL THEN 'nothing is ready' ELSE 'the oldest is ready for ' || queue._roughly(oldest) END,
		CASE WHEN cfg.paused THEN 'paused' END,
		gone || ' dead rows beside ' || live,
		pg_size_pretty(queue._bytes(jobs, bare) + queue._bytes(archive, bare_archive)),
		CASE WHEN vacuumed IS NULL THEN 'never vacuumed'
			ELSE 'vacuumed ' || queue._roughly(moment - vacuumed) || ' ago' END,
		'maintenance is behind by ' || queue._roughly(overdue));
	hint := CASE
		WHEN oldest > interval '1 min' AND works IS NOT TRUE AND NOT cfg.paused
			THEN format('Nobody works on its jobs. QUEUE WORKERS %I', cfg.name)
		WHEN gone > 10000 AND gone > 5 * live
			THEN 'Dead rows make every take slower: a snapshot holds them back, as shown here, or autovacuum does not keep up.'
		WHEN overdue > interval '10 min'
			THEN 'What is to be deleted by now is still there: no proxy attends it (queue = 1 in its configuration), or its owner has no login.' END;
	ok := hint IS NULL;
END
$$;

-- As a person says it: the two greatest units.
CREATE OR REPLACE FUNCTION queue._roughly(t interval) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT numeric := greatest(extract(epoch FROM t), 0);
BEGIN
	RETURN CASE
		WHEN s < 10 THEN round(s, 1) || ' s'
		WHEN s < 60 THEN trunc(s) || ' s'
		WHEN s < 3600 THEN trunc(s / 60) || ' min ' || trunc(mod(s, 60)) || ' s'
		WHEN s < 86400 THEN trunc(s / 3600) || ' h ' || trunc(mod(s, 3600) / 60) || ' min'
		ELSE trunc(s / 86400) || ' d ' || trunc(mod(s, 86400) / 3600) || ' h' END;
END
$$;

-- Who holds back vacuum in this database, the oldest first. The dead rows of every queue stay as long, and takes read
-- past them. Not those who hold for less than young, which anybody does; who does for longer than old is not ok, and
-- of whom no time is told (a slot; another role's session) by how many transactions he is behind.
CREATE OR REPLACE FUNCTION queue._holders(young interval DEFAULT '10 s', old interval DEFAULT '1 min',
	few int8 DEFAULT 1000, many int8 DEFAULT 100000)
RETURNS TABLE (about text, name text, ok bool, value text, hint text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
BEGIN
	RETURN QUERY
	SELECT h.kind, h.called, CASE WHEN h.since IS NULL THEN h.behind < many ELSE h.since > moment - old END,
		concat_ws(', ', 'for ' || queue._roughly(moment - h.since), h.behind || ' transactions back', h.doing), h.cure
	FROM (SELECT 'snapshot' AS kind, 'pid ' || a.pid AS called, a.xact_start AS since,
			greatest(age(a.backend_xmin), age(a.backend_xid))::int8 AS behind,
			concat_ws(', ', a.usename, nullif(a.application_name, ''), host(a.client_addr), a.state,
				nullif(left(regexp_replace(a.query, '\s+', ' ', 'g'), 60), '')) AS doing,
			format('SELECT pg_terminate_backend(%s)', a.pid) AS cure
		FROM pg_stat_activity AS a
		WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.pid <> pg_backend_pid()
			AND (a.datname = current_database() OR a.backend_type = 'walsender')
			-- NULL: of other roles' sessions it is not told
			AND coalesce(a.backend_type, '') NOT IN ('autovacuum worker', 'autovacuum launcher')
		UNION ALL
		SELECT 'prepared transaction', p.gid, p.prepared, age(p.transaction), p.owner::text,
			format('COMMIT PREPARED %1$L, or ROLLBACK PREPARED %1$L', p.gid)
		FROM pg_prepared_xacts AS p WHERE p.database = current_database()
		UNION ALL
		SELECT 'replication slot', s.slot_name::text, NULL, age(s.xmin),
			concat_ws(', ', s.slot_type, CASE WHEN s.active THEN 'in use' ELSE 'not in use' END),
			CASE WHEN s.active THEN format('Process %s sends to its reader, which is behind or has an old snapshot.', s.active_pid)
				ELSE format('Nobody reads it. SELECT pg_drop_replication_slot(%L)', s.slot_name) END
		FROM pg_replication_slots AS s WHERE s.xmin IS NOT NULL) AS h
	WHERE h.since < moment - young OR h.since IS NULL AND h.behind > few
	ORDER BY h.since NULLS LAST, h.behind DESC;
END
$$;

-- Slots that keep WAL, the most first: from so many bytes on, and not ok from ten times as many.
CREATE OR REPLACE FUNCTION queue._wal_holders(much numeric DEFAULT 1073741824)
RETURNS TABLE (about text, name text, ok bool, value text, hint text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	here CONSTANT pg_lsn := CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END;
BEGIN
	RETURN QUERY
	SELECT 'replication slot WAL', s.slot_name::text, s.kept < 10 * much,
		concat_ws(', ', pg_size_pretty(s.kept) || ' of WAL', s.slot_type, CASE WHEN s.active THEN 'in use' ELSE 'not in use' END),
		CASE WHEN s.active THEN format('Process %s sends to its reader, which is behind.', s.active_pid)
			ELSE format('Nobody reads it. SELECT pg_drop_replication_slot(%L)', s.slot_name) END
	FROM (SELECT *, pg_wal_lsn_diff(here, restart_lsn) AS kept FROM pg_replication_slots) AS s
	WHERE s.kept > much ORDER BY s.kept DESC;
END
$$;

-- Streams, and who reads them.
CREATE OR REPLACE FUNCTION queue._health_of_streams(q text)
RETURNS TABLE (about text, name text, ok bool, value text, hint text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	s queue.streams;
	u record;
	behind text;	-- the subscription that is behind most
	most interval;
	late bool;
BEGIN
	FOR s IN SELECT * FROM queue.streams AS t WHERE t.name = q OR q IS NULL
			AND has_table_privilege(to_regclass(format('queue.e%s_0', t.number)), 'SELECT') ORDER BY t.name LOOP
		BEGIN
			behind := NULL;
			most := NULL;
			FOR u IN SELECT h.subscription, least(sum(h.pending), 100000) AS pending, max(h.lag) AS lag, max(h.attempt) AS attempt, sum(h.dead) AS dead,
						max(h.last_taken) AS last_taken, max(h.lost_at) AS lost_at, min(h.taken_at) AS taken_at, max(h.delivery) AS delivery,
						(array_agg(h.error ORDER BY h.attempt DESC NULLS LAST))[1] AS error, max(h.bytes) AS bytes, max(h.oldest) AS oldest
					FROM queue.subscriptions(s.name) AS h GROUP BY h.subscription, h.owner ORDER BY h.subscription LOOP
				IF u.subscription IS NOT NULL THEN
					RETURN QUERY SELECT 'subscription', s.name || '/' || u.subscription, h.hint IS NULL, concat_ws(', ',
							CASE WHEN u.pending IS NULL THEN 'another role''s' WHEN u.pending = 0 THEN 'nothing is to come'
								WHEN u.pending >= 100000 THEN '100000 events or more are to come' ELSE u.pending || ' events are to come' END,
							'the first is ' || queue._roughly(u.lag) || ' old',
							CASE WHEN u.attempt > 1 THEN 'a delivery is at its attempt ' || u.attempt END,
							CASE WHEN u.dead > 0 THEN u.dead || ' are dead' END,
							CASE WHEN u.last_taken IS NOT NULL THEN 'taken ' || queue._roughly(moment - u.last_taken) || ' ago' END), h.hint
						FROM (SELECT CASE
							WHEN u.lost_at IS NOT NULL
								THEN format('It has lost events by retain_max: QUEUE SEEK %I ON %I TO BEGINNING', u.subscription, s.name)
							WHEN u.attempt > 5 THEN 'Its delivery fails again and again: ' || coalesce(u.error, 'its leases end')
							WHEN greatest(u.lag, moment - u.taken_at) > s.retain * 2 + interval '2 hours'
								THEN format('It keeps what retain would remove, for %s. If it is no longer needed: QUEUE UNSUBSCRIBE %I FROM %I',
									queue._roughly(greatest(u.lag, moment - u.taken_at)), u.subscription, s.name)
							WHEN u.lag > interval '1 min' AND u.delivery IS NULL
								THEN format('Nobody takes for it. If it is no longer needed: QUEUE UNSUBSCRIBE %I FROM %I', u.subscription, s.name) END)
							AS h (hint);
					IF u.lost_at IS NULL AND greatest(u.lag, moment - u.taken_at) > coalesce(most, '0') THEN
						most := greatest(u.lag, moment - u.taken_at);
						behind := u.subscription;
					END IF;
				END IF;
			END LOOP;
			CONTINUE WHEN NOT FOUND;	-- dropped meanwhile
			late := moment - u.oldest > greatest(s.retain, s.retain_max) * 2 + interval '2 hours' OR u.bytes > s.retain_bytes * 1.5;
			RETURN QUERY SELECT 'stream', s.name, late IS NOT TRUE, concat_ws(', ', pg_size_pretty(u.bytes),
					CASE WHEN u.oldest IS NULL THEN 'empty' ELSE 'the oldest event is ' || queue._roughly(moment - u.oldest) || ' old' END,
					CASE WHEN s.retain IS NULL AND s.retain_max IS NULL AND s.retain_bytes IS NULL THEN 'kept for ever' END),
				CASE WHEN late AND behind IS NOT NULL THEN format('It is kept for subscription %I.', behind)
					WHEN late THEN 'A transaction that has not ended holds it, as shown here; or no proxy maintains it, or its owner has no login.' END;
		EXCEPTION WHEN undefined_table THEN	-- dropped meanwhile
			IF q IS NOT NULL THEN
				RAISE;
			END IF;
		END;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue.health(q text DEFAULT NULL)
RETURNS TABLE (about text, name text, ok bool, value text, hint text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	late CONSTANT interval := interval '1 min';
	look record;
	h record;
BEGIN
	IF q IS NOT NULL AND NOT queue._is_stream(q) THEN
		PERFORM queue._find(q);
	END IF;
	FOR look IN SELECT * FROM queue._looked_at(q) LOOP
		about := 'queue';
		name := (look.cfg).name;
		IF look.whole AND pg_relation_size(look.jobs) = 0 AND pg_relation_size(look.archive) = 0 THEN
			h := queue._health_of(look.cfg, look.jobs, look.archive, look.bare, look.bare_archive, true);
			ok := h.ok;
			value := h.value;
			hint := h.hint;
			RETURN NEXT;
			CONTINUE;
		END IF;
		BEGIN	-- of all queues: see _visited
			CONTINUE WHEN q IS NULL AND NOT queue._still((look.cfg).name);
			h := queue._health_of(look.cfg, to_regclass(queue._table((look.cfg).name)), to_regclass(queue._archive((look.cfg).name)),
				look.bare, look.bare_archive, false);
			ok := h.ok;
			value := h.value;
			hint := h.hint;
			RETURN NEXT;
			PERFORM queue._visited() WHERE q IS NULL;
		EXCEPTION WHEN SQLSTATE 'QBSEE' THEN
			NULL;
		END;
	END LOOP;
	IF queue._is_stream(q) OR q IS NULL AND EXISTS (SELECT FROM queue.streams) THEN
		RETURN QUERY SELECT * FROM queue._health_of_streams(q);
	END IF;
	RETURN QUERY SELECT * FROM queue._holders();
	RETURN QUERY SELECT * FROM queue._wal_holders();
	RETURN QUERY SELECT 'schedule', s.schedule, h.hint IS NULL, s.state || coalesce(', next at ' || s.next_at, ''), h.hint
		FROM queue.schedules() AS s, LATERAL (SELECT CASE
			WHEN s.state = 'copied' THEN format('The database is a copy. QUEUE RESUME SCHEDULE %I', s.schedule)
			WHEN s.state = 'no login' THEN format('ALTER ROLE %I LOGIN: schedules are fired as their owner.', s.owner)
			WHEN s.state = 'failing' THEN s.error
			WHEN s.state = 'active' AND s.next_at < moment - late
				THEN format('Late by %s: no proxy attends this database with a login of %I. In the proxy''s configuration: '
					'queue = 1 in the entry of the database, and the password of that role in auth_file.',
					queue._roughly(moment - s.next_at), s.owner) END) AS h (hint)
		WHERE q IS NULL OR s.queue = q OR EXISTS (
			SELECT FROM queue.topics AS t JOIN queue.bindings AS b ON b.topic = t.number
			WHERE t.name = split_part(s.topic, '.', 1) AND (b.pattern = s.topic OR s.topic ~ b.regex)
				AND b.queue = (SELECT c.number FROM queue.queues AS c WHERE c.name = q
					UNION ALL SELECT c.number FROM queue.streams AS c WHERE c.name = q));
	RETURN QUERY SELECT 'proxy', p.number::text, true, concat_ws(', ', p.role, 'hears of pushes since ' || p.since), NULL::text
		FROM queue.proxies AS p ORDER BY p.number;
	IF NOT FOUND THEN
		RETURN QUERY SELECT 'proxy', NULL::text, false, 'none hears of pushes'::text,
			'Its session cannot log in or is not allowed to (see the log): waiting TAKEs look by themselves now and then.'::text;
	END IF;
END
$$;
