-- Maintenance: what has been kept for long enough is deleted, in steps that are short whatever there
-- is. The proxy makes them (src/queue/maintain.c); without one, somebody calls queue.maintain() now and
-- then.

-- Deletes the oldest of what ended until then; gives their number. What a trigger or a policy does not let go stays, and
-- what is behind it has its turn.
CREATE OR REPLACE FUNCTION queue._clean(tab text, clause text, until timestamptz, most int8) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	after timestamptz := '-infinity';
	last timestamptz;
	found int8;
	went int8;
	gone int8 := 0;
	those tid[];
	stuck tid[] := '{}';
BEGIN
	FOR n IN 1 .. 5 LOOP
		EXECUTE format($sql$
			WITH these AS MATERIALIZED (
				SELECT ctid AS place, ended_at AS at FROM %1$s WHERE ended_at > $1 AND ended_at <= $2 AND ctid <> ALL ($4) AND %2$s
				ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED),
			gone AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT place FROM these)) RETURNING 1)
			SELECT count(*), max(at), (SELECT count(*) FROM gone), array_agg(place) FROM these
		$sql$, tab, clause) INTO found, last, went, those USING after, until, most - gone, stuck;
		gone := gone + went;
		EXIT WHEN went = found;
		stuck := stuck || those;
		after := queue._behind(after, last, until, n);
	END LOOP;
	RETURN gone;
END
$$;

-- A look for rows that are not right is at so many pages: with an old snapshot what is dead costs no more than that.
CREATE OR REPLACE FUNCTION queue._step_pages() RETURNS int4
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN current_setting('server_version_num')::int4 >= 140000 THEN 64 ELSE 8 END;
END
$$;

-- In how many such looks has all of it been seen?
CREATE OR REPLACE FUNCTION queue._steps(cfg queue.queues) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(ceil(pg_relation_size(to_regclass(queue._table(cfg.name)))
		/ (current_setting('block_size')::float8 * queue._step_pages())), 0);
END
$$;

-- Who may push may write a row himself which no index has: with a delay and no "due", or in a state that there is not. It
-- would never come, nor be counted by max_length. A constraint would make each push dearer; so a part of the table is looked
-- at, this one (from 0 on), or NULL: the first one or any, and they get what is missing. Not before now, as takes do not look
-- there again. One by one: what is refused holds up no other.
CREATE OR REPLACE FUNCTION queue._put_right(cfg queue.queues, step int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	wrong CONSTANT text := $sql$(due = '-infinity' OR due IS NULL AND (state IN ('later', 'leased') OR state = 'ready' AND expires_at IS NOT NULL)
		OR state = 'dead' AND ended_at IS NULL OR state NOT IN ('ready', 'later', 'leased', 'blocked', 'dead'))$sql$;
	those int8[];
	one int8;
	n int8;
	told bool := false;
BEGIN
	step := coalesce(step, CASE WHEN random() < 0.5 THEN 0 ELSE floor(random() * queue._steps(cfg)) END);
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM %1$s WHERE %2$s AND (%3$s) ORDER BY random() LIMIT 50) AS x', queue._table(cfg.name),
		-- Postgres 13 has no scan of a range
		CASE WHEN current_setting('server_version_num')::int4 >= 140000 THEN 'ctid >= format(''(%s,0)'', $1)::tid AND ctid < format(''(%s,0)'', $2)::tid'
			ELSE 'ctid = ANY (ARRAY(SELECT format(''(%s,%s)'', p, i)::tid FROM generate_series($1, $2 - 1) AS p, generate_series(1, 300) AS i))' END,
		wrong) INTO those USING step * queue._step_pages(), (step + 1) * queue._step_pages();
	FOREACH one IN ARRAY coalesce(those, '{}') LOOP
		BEGIN
			EXECUTE format($sql$
				UPDATE %1$s SET state = CASE WHEN state IN ('later', 'leased', 'blocked', 'dead') THEN state ELSE 'ready' END,
					run_at = CASE WHEN state = 'later' THEN coalesce(run_at, $2) ELSE run_at END,
					lease_until = CASE WHEN state = 'leased' THEN coalesce(lease_until, $2) ELSE lease_until END,
					ended_at = CASE WHEN state = 'dead' THEN coalesce(ended_at, $2) END,
					due = CASE WHEN state IN ('blocked', 'dead') THEN NULL
						WHEN state = 'later' THEN greatest(least(coalesce(run_at, $2), expires_at), $2)
						WHEN state = 'leased' THEN greatest(lease_until, $2)
						WHEN expires_at IS NOT NULL THEN greatest(expires_at, $2) END
				WHERE id = (SELECT id FROM %1$s WHERE id = $1 AND %2$s FOR UPDATE SKIP LOCKED)
			$sql$, queue._table(cfg.name), wrong) USING one, clock_timestamp();
			GET DIAGNOSTICS n = ROW_COUNT;
			told := told OR n > 0;
		EXCEPTION WHEN lock_not_available THEN
			RAISE;
		WHEN OTHERS THEN
			IF queue._ends_all(SQLSTATE) THEN
				RAISE;
			END IF;
			PERFORM queue._put_away(cfg, one, wrong);
		END;
	END LOOP;
	PERFORM queue._tell(cfg.number, cfg.name) WHERE told;
END
$$;

-- A row that cannot be what it should be: an index does not let it in (another one is the first of its group, its "group" is
-- too long), or a trigger raises an error. It dies; what may not even do that stays as it is, and holds up nothing.
CREATE OR REPLACE FUNCTION queue._put_away(cfg queue.queues, one int8, wrong text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	died int8;
BEGIN
	EXECUTE format($sql$
		UPDATE %1$s SET state = 'dead', due = NULL, ended_at = $2, failed_at = $2, error = 'its state was ' || left(state, 100)
		WHERE id = (SELECT id FROM %1$s WHERE id = $1 AND %2$s FOR UPDATE SKIP LOCKED)
	$sql$, queue._table(cfg.name), wrong) USING one, clock_timestamp();
	GET DIAGNOSTICS died = ROW_COUNT;
	PERFORM queue._died(cfg.number, died);
EXCEPTION WHEN lock_not_available THEN
	RAISE;
WHEN OTHERS THEN
	IF queue._ends_all(SQLSTATE) THEN
		RAISE;
	END IF;
	RAISE WARNING USING ERRCODE = SQLSTATE, MESSAGE = format('job %s of queue "%s" has a state that is wrong, and keeps it: %s', one, cfg.name, SQLERRM);
END
$$;

-- Rows of the archive that are older than retain_done says, dead jobs that are older than
-- retain_dead says, jobs that nobody took in their time, and keys whose time is over. What somebody has locked is left for the
-- next time. The archive comes last: DROP and ALTER lock the queue's table first, as everybody does.
--
-- clean: where nothing was deleted, as _clean_for says. In most queues, busy ones too, nothing is due: that is one statement, all
-- of the rest five, which are planned each time.
CREATE OR REPLACE FUNCTION queue._maintain_one(cfg queue.queues, most int4, step int8, OUT gone int8, OUT clean int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	forever CONSTANT interval := interval '5000 years';	-- now() - retain_... would be out of range
	n int8;
BEGIN
	gone := 0;
	PERFORM queue._put_right(cfg, step);
	clean := queue._clean_for(cfg);
	IF clean IS DISTINCT FROM 0 AND NOT queue._left_behind(cfg.number) THEN
		RETURN;
	END IF;
	PERFORM queue._look_after_all(cfg.number);
	IF cfg.retain_dead < forever THEN
		gone := queue._clean(queue._table(cfg.name), 'state = ''dead''', clock_timestamp() - cfg.retain_dead, most);
	END IF;
	IF gone < most THEN
		gone := gone + queue._expire(cfg, (most - gone)::int4);
	END IF;
	IF gone < most AND has_function_privilege(format('queue._free_keys_%s(int8)', cfg.number), 'EXECUTE') THEN
		EXECUTE format('SELECT queue._free_keys_%s($1)', cfg.number) INTO n USING most - gone;
		gone := gone + n;
	END IF;
	IF gone < most THEN
		gone := gone + queue._clean(queue._archive(cfg.name), 'true',
			clock_timestamp() - least(queue._kept(cfg.retain_done), forever), most - gone);
	END IF;
	clean := CASE WHEN gone = 0 THEN queue._clean_for(cfg) ELSE 0 END;
END
$$;

-- What has happened to a queue, as one number: as long as it is the same nobody has changed a row of it, or its options.
-- NULL: that cannot be told, as nobody counts, or rows are in other tables. Counters begin anew, and may come back to what
-- they were: after a crash, with another server, when somebody has them reset; each of them shows in a time. No times
-- as text: each session may write them otherwise.
CREATE OR REPLACE FUNCTION queue._changes(cfg queue.queues) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	jobs CONSTANT oid := to_regclass(queue._table(cfg.name));
	kept CONSTANT oid := to_regclass(queue._archive(cfg.name));
	here CONSTANT oid := (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
BEGIN
	RETURN (SELECT hashtextextended(concat_ws(',', jobs, kept,
			(SELECT c.xmin::text || c.ctid FROM queue.queues AS c WHERE c.number = cfg.number),
			pg_stat_get_tuples_inserted(jobs), pg_stat_get_tuples_updated(jobs), pg_stat_get_tuples_deleted(jobs),
			pg_stat_get_tuples_inserted(kept), pg_stat_get_tuples_updated(kept), pg_stat_get_tuples_deleted(kept),
			(1000000 * extract(epoch FROM pg_postmaster_start_time()))::int8,
			(1000000 * extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))::int8,
			(1000000 * extract(epoch FROM pg_stat_get_db_stat_reset_time(here)))::int8), 0)
		WHERE current_setting('track_counts')::bool
			AND (SELECT count(*) FROM pg_class AS r WHERE r.oid IN (jobs, kept) AND r.relkind = 'r' AND NOT r.relhassubclass) = 2);
END
$$;

-- What a queue may have although its table is empty, as rows went without their triggers (TRUNCATE): keys that stay taken, and
-- who waits for jobs. Anybody may ask.
CREATE OR REPLACE FUNCTION queue._left_behind(number int4) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
	RETURN EXISTS (SELECT FROM queue.keys AS k WHERE k.queue = $1) OR EXISTS (SELECT FROM queue.followers AS f WHERE f.queue = $1);
END
$$;

-- In so many milliseconds there is something to clean in a queue that is clean now, if nothing changes: 0: at once, or it
-- is not known; NULL: never.
CREATE OR REPLACE FUNCTION queue._clean_for(cfg queue.queues) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	forever CONSTANT interval := interval '5000 years';
	due timestamptz;
	keys int8;
BEGIN
	IF queue._left_behind(cfg.number) AND has_function_privilege(format('queue._free_keys_%s(int8)', cfg.number), 'EXECUTE') THEN
		EXECUTE format('SELECT queue._free_keys_%s(0)', cfg.number) INTO keys;
	END IF;
	-- jobs that wait for others: who ends them may be forgotten (_look_after_all)
	EXECUTE format($sql$
		SELECT least(
			(SELECT '-infinity'::timestamptz FROM %1$s WHERE state = 'blocked' AND "group" IS NULL LIMIT 1),
			(SELECT ended_at + $1 FROM %1$s WHERE ended_at IS NOT NULL AND state = 'dead' AND $1 < $3 ORDER BY ended_at LIMIT 1),
			(SELECT least(min(greatest(due, expires_at)) FILTER (WHERE state IN ('ready', 'later')), CASE WHEN count(*) = 1000 THEN max(due) END)
				FROM (SELECT due, state, expires_at FROM %1$s WHERE due IS NOT NULL ORDER BY due LIMIT 1000) AS h),
			(SELECT ended_at + $2 FROM %2$s WHERE $2 < $3 ORDER BY ended_at LIMIT 1))
	$sql$, queue._table(cfg.name), queue._archive(cfg.name)) INTO due
		USING least(cfg.retain_dead, forever), least(queue._kept(cfg.retain_done), forever), forever;
	RETURN CASE WHEN due = '-infinity' THEN 0
		WHEN due < clock_timestamp() + interval '1 year' THEN least(greatest(1000 * extract(epoch FROM due - clock_timestamp()), 0)::int8, keys)
		ELSE keys END;
END
$$;

-- Queues in the order of their numbers, from the one behind "after", until so many rows are deleted
-- or so many milliseconds are over. next: where to go on; NULL: every queue had its turn. denied:
-- queues that the caller may not clean, which somebody has locked for longer than lock_timeout, or in which an error ends it.
-- clean: of each queue that had a turn its number, what _changes said of it before, and for how many milliseconds nothing
-- falls due; 0: it is not clean. known: numbers and changes of such, in order: those are passed over. Of one that never had
-- a job that is known without a look into it. The last 16 bits of the changes: 0, or the next part of it that is looked at
-- for rows which are not right (_put_right), from 1 on. As long as nothing changes all of them have their turn, once.
CREATE OR REPLACE FUNCTION queue._maintain(after int4, most int4, ms int4, used text[] DEFAULT NULL, known int8[] DEFAULT '{}')
RETURNS TABLE (deleted int8, next int4, denied int8, lost text, clean int8[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	streams CONSTANT int4 := 2147483600;		-- behind all queues: so often streams are looked at once more
	ring record;
	until CONSTANT timestamptz := clock_timestamp() + make_interval(secs => ms / 1000.0);
	most_locked CONSTANT int4 := CASE WHEN used IS NULL THEN 2000000000 ELSE 100 END;	-- who asks again for the others
	locked int4 := 0;
	gone int8;
	cfg queue.queues;
	k int4 := 1;
	changes int8;
	done record;
	is_clean int8;
	step int8;	-- what is looked at now, from 1 on; NULL: something has changed
BEGIN
	deleted := 0;
	denied := 0;
	clean := '{}';
	-- a deletion that a crash forgets is made again
	PERFORM set_config('synchronous_commit', 'off', true);
	FOR cfg IN SELECT * FROM queue.queues AS c WHERE c.number > after ORDER BY c.number LOOP
		CONTINUE WHEN NOT queue._visits(cfg, used);
		changes := CASE WHEN used IS NOT NULL THEN queue._changes(cfg) & -65536 END;
		WHILE known[k] < cfg.number LOOP
			k := k + 2;
		END LOOP;
		IF known[k] = cfg.number AND known[k + 1] = changes THEN
			IF clock_timestamp() > until THEN
				next := cfg.number;
				EXIT;
			END IF;
			CONTINUE;
		END IF;
		IF has_table_privilege(to_regclass(queue._table(cfg.name)), 'DELETE')
				AND has_table_privilege(to_regclass(queue._archive(cfg.name)), 'DELETE') THEN
			BEGIN
				IF changes IS NOT NULL AND queue._is_empty(cfg) AND NOT queue._left_behind(cfg.number) THEN
					clean := clean || ARRAY[cfg.number, changes, 2000000000];
				ELSE
					CONTINUE WHEN NOT queue._still(cfg.name);
					step := CASE WHEN known[k] = cfg.number AND known[k + 1] & -65536 = changes THEN known[k + 1] & 65535
						WHEN changes IS NOT NULL AND queue._steps(cfg) <= 1 THEN 1 END;
					done := queue._maintain_one(cfg, (most - deleted)::int4, step - 1);
					gone := done.gone;
					is_clean := CASE WHEN changes IS NOT NULL THEN coalesce(done.clean, 2000000000) ELSE 0 END;
					deleted := deleted + gone;
					-- it is looked into in the next round, too
					IF is_clean > 0 AND coalesce(step, 0) < least(queue._steps(cfg), 65535) THEN
						changes := changes + coalesce(step, 0) + 1;
						is_clean := 2000000000;
					END IF;
					clean := clean || ARRAY[cfg.number, coalesce(changes, 0), is_clean];
					-- nothing was written by anybody in this transaction
					PERFORM queue._visited() WHERE gone = 0 AND pg_current_xact_id_if_assigned() IS NULL;
					locked := locked + 1;
				END IF;
			EXCEPTION WHEN lock_not_available THEN
				denied := denied + 1;
			WHEN SQLSTATE 'QBSEE' THEN
				NULL;
			WHEN OTHERS THEN
				IF queue._ends_all(SQLSTATE) THEN
					RAISE;
				END IF;
				-- of a trigger, or of what somebody has changed: it holds up no other queue
				denied := denied + 1;
				RAISE WARNING USING ERRCODE = SQLSTATE, MESSAGE = format('queue "%s" cannot be cleaned: %s', cfg.name, SQLERRM);
			END;
		ELSE
			denied := denied + 1;
		END IF;
		IF deleted >= most THEN
			next := cfg.number - 1;		-- there may be more of it
			EXIT;
		ELSIF clock_timestamp() > until OR locked >= most_locked THEN
			next := cfg.number;
			EXIT;
		END IF;
	END LOOP;
	IF next IS NULL THEN
		-- also where no proxy writes figures: those of jobs that died by themselves are there nevertheless (_died)
		PERFORM queue._fold_figures('25 hours');
		ring := queue._turn_rings(used IS NULL);
		lost := ring.lost;
		IF ring.again THEN
			next := greatest(after, streams);
		ELSIF ring.refused AND after < 2147483640 THEN
			next := greatest(after, streams) + 1;
		END IF;
	END IF;
	RETURN NEXT;
END
$$;

-- For the proxy: the same for the queues that this role owns or has used. Several proxies may be at it: what
-- one has locked the other passes over. It waits for nobody.
CREATE OR REPLACE FUNCTION queue._maintain_used(used text[], after int4, most int4, ms int4, known int8[] DEFAULT '{}')
RETURNS TABLE (deleted int8, next int4, denied int8, lost text, clean int8[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '500ms'
AS $$
BEGIN
	PERFORM set_config('qbouncer.tell', 'here', true);
	RETURN QUERY SELECT * FROM queue._maintain(after, most, ms, coalesce(used, '{}'), known);
END
$$;

-- For the proxy: queues that belong to none of these roles and are none of these: how many of each owner, with
-- one of them. An owner that was dropped: NULL.
CREATE OR REPLACE FUNCTION queue._unattended(roles text[], used text[])
RETURNS TABLE (owner text, super bool, queues int8, example text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT CASE WHEN bool_and(r.oid IS NOT NULL) THEN pg_get_userbyid(c.owner)::text END, coalesce(bool_or(r.rolsuper), false), count(*), min(c.name)
		FROM (SELECT x.name, x.owner FROM queue.queues AS x UNION ALL SELECT x.name, x.owner FROM queue.streams AS x
			WHERE x.retain IS NOT NULL OR x.retain_max IS NOT NULL OR x.retain_bytes IS NOT NULL) AS c LEFT JOIN pg_roles AS r ON r.oid = c.owner
		WHERE pg_get_userbyid(c.owner) <> ALL (roles) AND c.name <> ALL (used) GROUP BY c.owner;
END
$$;

-- At most so many rows. How many it deleted: as many as it may, then there is probably more.
CREATE OR REPLACE FUNCTION queue.maintain(lim int4 DEFAULT 10000) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	before CONSTANT text := current_setting('synchronous_commit');
	gone int8;
BEGIN
	SELECT deleted INTO gone FROM queue._maintain(0, greatest(lim, 1), 2000000000);
	-- the caller's own work may be in this transaction: its commit stays as durable as it was
	PERFORM set_config('synchronous_commit', before, true);
	RETURN gone;
END
$$;
