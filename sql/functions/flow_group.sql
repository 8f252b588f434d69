-- What groups are in a queue: max_running_per_group, rate_per_group, pause_per_group, fair. One of three:
--
-- In order (max_running_per_group = 1, and no other of these options): group.sql alone. One of a group is ready, later or
-- leased, the others are blocked behind it.
--
-- A label (max_running_per_group = none): nothing is blocked.
--
-- With places: of each group so many are ready or leased, the others are blocked until a take lets them in, at the end of
-- what is ready. So what is ready has at most a few of each group, and a take finds what it may take at once, however many
-- wait behind; and as each goes to the end, takes go round the groups.
--
-- Takes alone let in, and all takes of a queue come one after the other (flow.sql): nobody races for a place. Whoever
-- makes a job that may run, or ends one, notes its group (n<number>_noted), and the next take looks at that. A job that would become ready
-- by another's doing is blocked instead: triggers see to that. n<number>_groups has what is known of each group: which jobs
-- were let in, before which none is blocked, up to which time its rate or its pause is used up, and when the next one may be
-- let in, if some wait for that.
--
-- fair: one of a group is ready at most, so the turn goes to the next group with each job that is taken.

-- For those that look for what is ahead of a push, and behind the first (group.sql).
CREATE OR REPLACE FUNCTION queue._group_mode(cfg queue.queues) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN cfg.by_group THEN 'places' WHEN cfg.max_running_per_group IS NULL THEN 'label' ELSE 'order' END;
END
$$;

-- Those that there are.
CREATE OR REPLACE FUNCTION queue._drop_functions(names text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	it regprocedure;
BEGIN
	FOR it IN SELECT p.oid::regprocedure FROM pg_proc AS p
			WHERE p.pronamespace = 'queue'::regnamespace AND p.proname = ANY (names) LOOP
		EXECUTE 'DROP FUNCTION ' || it;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._not_blocked() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	NEW.state := CASE WHEN NEW.run_at > clock_timestamp() THEN 'later' ELSE 'ready' END;
	RETURN NEW;
END
$$;

-- Lets in what may come of these groups. ends: when one of it has ended. backs: how many of its rate are given back, or,
-- negative, used. firsts: jobs that were blocked. since: where the notes begin. mark: of the rows that are written. True: look for
-- notes once more.
--
-- What is known of a group is a row of n<number>_groups, replaced by a newer one and never updated, as that of the gate:
-- inside, the jobs that were let in, which are looked up by their primary key; head, before which none is blocked (NULL:
-- none is known). To find these by the group would be to read, under a snapshot that somebody holds, all that there have
-- been. Of a group without a row, or with one that does not say so, they are found by the group.
CREATE OR REPLACE FUNCTION queue._generate_admit(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ordered CONSTANT bool := cfg.max_running_per_group IS NOT DISTINCT FROM 1;
BEGIN
	PERFORM queue._generate_flow_one(cfg, '_admit_@n@(q queue.queues, names text[], ends timestamptz[], backs int4[],
		firsts int8[], instant timestamptz, since xid8, mark int8) RETURNS bool',
		'SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan',
		replace(replace(replace(replace(replace(replace(replace(replace($body$
#variable_conflict use_column
DECLARE
	gap CONSTANT float8 := @gap@;
	ahead CONSTANT float8 := gap * @burst@;
	one record;
	was record;
	jobs record;
	now_tat timestamptz;
	now_rests timestamptz;
	now_opens timestamptz;
	now_head int8;
	inside int8[];
	slots int8;
	let_in record;
	again bool := false;
BEGIN
@try@
	PERFORM set_config('qbouncer.admit', '@n@', true);
	FOR one IN SELECT u.name, max(u.ended) AS ended, sum(u.back) AS back, min(u.job) AS job
			FROM unnest(names, ends, backs, firsts) WITH ORDINALITY AS u (name, ended, back, job, n)
			WHERE u.name IS NOT NULL GROUP BY u.name ORDER BY min(u.n) LOOP
		SELECT g.seq, g.tat, g.rests, g.opens, g.head, g.inside INTO was FROM @groups@ AS g
			WHERE g."group" = one.name ORDER BY g."group" DESC, g.seq DESC LIMIT 1;
		now_tat := coalesce(was.tat, '-infinity');
		now_rests := coalesce(was.rests, '-infinity');
		now_opens := NULL;
		IF was.inside IS NULL THEN
			SELECT coalesce(array_agg(id), '{}') AS ids, count(*) FILTER (WHERE state = 'ready') AS ready,
					count(*) FILTER (WHERE state = 'leased') AS leased INTO jobs
				FROM @table@ WHERE "group" = one.name AND state IN (@states@);
			now_head := 0;
		ELSE
			SELECT coalesce(array_agg(id) FILTER (WHERE state IN (@states@)), '{}') AS ids,
					count(*) FILTER (WHERE state = 'ready') AS ready, count(*) FILTER (WHERE state = 'leased') AS leased,
					min(id) FILTER (WHERE state = 'blocked') AS back INTO jobs
				FROM @table@ WHERE id = ANY (was.inside);
			now_head := least(was.head, one.job, jobs.back);
		END IF;
		inside := jobs.ids;
		slots := @places@;
		IF q.pause_per_group IS NOT NULL THEN
			-- a clock that was set back: no longer than the pause
			now_rests := least(greatest(now_rests, one.ended + q.pause_per_group), instant + q.pause_per_group);
			IF now_rests > instant THEN
				now_opens := now_rests;
				slots := 0;
				WITH went AS (
					UPDATE @table@ SET state = 'blocked' WHERE id = ANY (ARRAY(SELECT id FROM @table@
						WHERE id = ANY (inside) AND state || '' = 'ready' FOR UPDATE SKIP LOCKED)) AND state || '' = 'ready'
					RETURNING id)
				SELECT ARRAY(SELECT unnest(inside) EXCEPT SELECT id FROM went), least(now_head, (SELECT min(id) FROM went))
					INTO inside, now_head;
			END IF;
		END IF;
		-- one that has ended since the notes were read
		IF slots > 0 AND q.pause_per_group IS NOT NULL
				AND EXISTS (SELECT FROM @noted@ AS n WHERE n.xid >= since AND n."group" = one.name AND n.ended IS NOT NULL) THEN
			slots := 0;
			again := true;
		END IF;
		IF gap IS NOT NULL THEN
			now_tat := greatest(least(now_tat, instant + make_interval(secs => ahead)), instant)
				- make_interval(secs => gap * coalesce(one.back, 0));
			slots := least(slots, floor((ahead - date_part('epoch', greatest(now_tat, instant) - instant)) / gap + 0.000001)::int8
				- jobs.ready);
			IF slots < 1 AND jobs.ready = 0 THEN
				now_opens := greatest(now_opens, now_tat + make_interval(secs => gap - ahead));
			END IF;
		END IF;
		WHILE slots > 0 AND now_head IS NOT NULL LOOP
			WITH went AS (
				UPDATE @table@ SET state = CASE WHEN run_at > instant THEN 'later' ELSE 'ready' END,
					run_at = greatest(run_at, instant), position = DEFAULT
				WHERE id = ANY (ARRAY(@first@ FOR UPDATE SKIP LOCKED)) AND state || '' = 'blocked'	-- by the id, not by an index of states
				RETURNING id, state, expires_at)
			SELECT count(*) AS n, count(*) FILTER (WHERE state = 'ready' OR @strict@) AS places,
				coalesce(array_agg(id) FILTER (WHERE state IN (@states@)), '{}') AS ids,
				coalesce(bool_or(expires_at <= instant), false) AS late INTO let_in FROM went;
			slots := slots - let_in.places;
			inside := inside || let_in.ids;
			again := again OR let_in.late;
			EXIT WHEN let_in.n = 0;
		END LOOP;
		IF now_head IS NOT NULL THEN
			now_head := (SELECT id FROM @table@ WHERE state = 'blocked' AND "group" = one.name AND id >= now_head
				ORDER BY "group", id LIMIT 1);
		END IF;
		IF (slots > 0 OR now_opens IS NOT NULL) AND now_head IS NOT NULL THEN
			-- somebody has locked it
			now_opens := coalesce(now_opens, instant + interval '100 ms');
		ELSE
			now_opens := NULL;
		END IF;
		IF (now_tat, now_rests, now_opens, now_head, inside)
				IS DISTINCT FROM (was.tat, was.rests, was.opens, was.head, was.inside) THEN
			IF was.seq IS NOT NULL THEN
				DELETE FROM @groups@ AS g WHERE g."group" = one.name AND g.seq = was.seq;
			END IF;
			IF was.seq IS NOT NULL OR inside <> '{}' OR now_head IS NOT NULL OR now_tat > instant OR now_rests > instant THEN
				INSERT INTO @groups@ VALUES (one.name, mark, now_tat, now_rests, now_opens, now_head, inside,
					greatest(instant + interval '30 s', now_tat, now_rests, now_opens));
			END IF;
		END IF;
	END LOOP;
	PERFORM set_config('qbouncer.admit', '', true);
@caught@
	IF again THEN
		PERFORM queue._expire(q, 1000);
	END IF;
	RETURN again;
END
$body$, '@places@', CASE WHEN ordered THEN 'CASE WHEN inside = ''{}'' THEN 1 ELSE 0 END'
			WHEN cfg.max_running_per_group IS NULL THEN '1 - jobs.ready'
			ELSE CASE WHEN cfg.fair IS NOT NULL OR cfg.pause_per_group IS NOT NULL THEN 'least(1, q.max_running_per_group'
				ELSE '(q.max_running_per_group' END || ' - jobs.leased) - jobs.ready' END),
		-- the next one of a group that has an order, and no other
		'@first@', CASE WHEN ordered THEN $first$SELECT id FROM @table@ WHERE id = (SELECT id FROM @table@
					WHERE state = 'blocked' AND "group" = one.name AND id >= now_head ORDER BY "group", id LIMIT 1)$first$
			ELSE $first$SELECT id FROM @table@
					WHERE state = 'blocked' AND "group" = one.name AND id >= now_head ORDER BY "group", id LIMIT slots$first$ END),
		'@gap@', coalesce((queue._rate(cfg.rate_per_group)).gap::text, 'NULL')),
		'@burst@', coalesce((queue._rate(cfg.rate_per_group)).burst::text, 'NULL')),
		'@strict@', ordered::text),
		-- the index says that one of a group is under way of whom the group's row does not know: somebody has changed jobs
		-- by hand. Without this no take would succeed any more.
		'@try@', CASE WHEN ordered THEN '	BEGIN' ELSE '' END),
		'@caught@', CASE WHEN ordered THEN $caught$
	EXCEPTION WHEN unique_violation THEN
		UPDATE @groups@ SET head = NULL, inside = NULL WHERE "group" = ANY (names) AND inside IS NOT NULL;
		IF NOT FOUND THEN
			RAISE;
		END IF;
		RETURN queue._admit_@n@(q, names, ends, backs, firsts, instant, since, mark);
	END;$caught$ ELSE '' END),
		'@states@', CASE WHEN ordered THEN '''ready'', ''later'', ''leased''' ELSE '''ready'', ''leased''' END));
	EXECUTE format('GRANT EXECUTE ON FUNCTION queue._admit_%s TO PUBLIC', cfg.number);
END
$$;

-- Milliseconds until a group lets one in by itself; NULL: none does.
CREATE OR REPLACE FUNCTION queue._opens_ms(cfg queue.queues, since timestamptz DEFAULT '-infinity') RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	opens timestamptz;
BEGIN
	IF cfg.by_group THEN
		EXECUTE format('SELECT g.opens FROM queue.%I AS g WHERE g.opens >= $1 ORDER BY g.opens LIMIT 1',
			format('n%s_groups', cfg.number)) INTO opens USING since;
	END IF;
	IF opens IS NULL THEN
		RETURN NULL;
	END IF;
	RETURN greatest(ceil(date_part('epoch', least(opens - clock_timestamp(), interval '1 year')) * 1000), 1);
END
$$;

-- Triggers of a queue whose groups have places.
CREATE OR REPLACE FUNCTION queue._generate_places(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
BEGIN
	PERFORM queue._generate_flow_one(cfg, '_grouped_@n@() RETURNS trigger', '', $body$
BEGIN
	IF TG_OP = 'INSERT' OR current_setting('qbouncer.admit', true) IS DISTINCT FROM '@n@' THEN
		NEW.state := 'blocked';
	END IF;
	RETURN NEW;
END
$body$);
	PERFORM queue._generate_flow_one(cfg, '_pushed_@n@() RETURNS trigger', 'SECURITY DEFINER', $body$
BEGIN
	INSERT INTO @noted@ ("group", blocked) SELECT "group", min(id) FROM pushed WHERE state = 'blocked' GROUP BY "group";
	RETURN NULL;
END
$body$);
	EXECUTE format($sql$
		REVOKE ALL ON FUNCTION queue._grouped_%2$s, queue._pushed_%2$s FROM PUBLIC;
		CREATE TRIGGER grouped_push BEFORE INSERT ON %1$s FOR EACH ROW
			WHEN (NEW."group" IS NOT NULL AND NEW.state IN ('ready' %3$s)) EXECUTE FUNCTION queue._grouped_%2$s();
		CREATE TRIGGER grouped BEFORE UPDATE OF state ON %1$s FOR EACH ROW
			WHEN (NEW."group" IS NOT NULL AND NEW.state = 'ready' AND OLD.state <> 'ready')
			EXECUTE FUNCTION queue._grouped_%2$s();
		CREATE TRIGGER pushed AFTER INSERT ON %1$s REFERENCING NEW TABLE AS pushed FOR EACH STATEMENT
			EXECUTE FUNCTION queue._pushed_%2$s()
	$sql$, tab, cfg.number, CASE WHEN cfg.max_running_per_group = 1 THEN ', ''later''' ELSE '' END);
END
$$;

-- What groups are has changed, or they are new: the triggers, the index, and the jobs that are there. Nobody uses the queue
-- meanwhile.
CREATE OR REPLACE FUNCTION queue._regroup(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	mode CONSTANT text := queue._group_mode(cfg);
	ordered CONSTANT bool := cfg.max_running_per_group IS NOT DISTINCT FROM 1;
	moment CONSTANT timestamptz := clock_timestamp();
	it text;
	busy int8;
BEGIN
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', tab);
	IF ordered THEN
		EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE state = ''leased'' AND "group" IS NOT NULL
			GROUP BY "group" HAVING count(*) > 1) AS g', tab) INTO busy;
		IF busy > 0 THEN
			RAISE EXCEPTION USING ERRCODE = '55006',
				MESSAGE = format('several jobs of one group of queue "%s" are being worked on', cfg.name),
				DETAIL = format('So it is with %s groups; with max_running_per_group = 1 there is one at a time.', busy),
				HINT = format('QUEUE PAUSE %1$I TAKE; and say it again when they have ended; then QUEUE RESUME %1$I TAKE;', cfg.name);
		END IF;
	END IF;
	IF mode <> 'order' THEN	-- nobody tells these of an end then
		EXECUTE format('SELECT count(*) FROM %s WHERE behind IS NOT NULL OR followed IS NOT NULL', tab) INTO busy;
		IF busy > 0 THEN
			RAISE EXCEPTION USING ERRCODE = '55006',
				MESSAGE = format('%s jobs of queue "%s" wait for others, or are waited for', busy, cfg.name),
				DETAIL = 'AFTER is not possible in queues whose groups have limits.',
				HINT = 'Say it again when they have ended.';
		END IF;
	END IF;
	FOR it IN SELECT t.tgname FROM pg_trigger AS t WHERE t.tgrelid = tab::regclass
			AND t.tgname IN ('ended', 'died', 'blocked', 'grouped_push', 'grouped', 'pushed', 'freed', 'freed_by_end') LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', it, tab);
	END LOOP;
	PERFORM queue._drop_functions(ARRAY[format('_grouped_%s', cfg.number), format('_pushed_%s', cfg.number)]);
	EXECUTE format('DROP INDEX queue.%I', format('n%s_group', cfg.number));
	IF mode = 'label' THEN
		EXECUTE format('UPDATE %s SET state = CASE WHEN run_at > $1 THEN ''later'' ELSE ''ready'' END, position = DEFAULT
			WHERE state = ''blocked''', tab) USING moment;
	ELSE
		EXECUTE format('UPDATE %s SET state = ''blocked'' WHERE "group" IS NOT NULL AND state IN (''ready'' %s)', tab,
			CASE WHEN ordered THEN ', ''later''' ELSE '' END);
	END IF;
	IF mode = 'order' THEN
		EXECUTE format('UPDATE %1$s AS q SET state = CASE WHEN run_at > $1 THEN ''later'' ELSE ''ready'' END, position = DEFAULT
			WHERE id IN (SELECT min(id) FROM %1$s WHERE state = ''blocked'' GROUP BY "group") AND NOT EXISTS (
				SELECT FROM %1$s AS o WHERE o."group" = q."group" AND o.state = ''leased'')', tab) USING moment;
	END IF;
	PERFORM queue._generate_group_index(cfg.number, cfg.name, ordered AND mode <> 'label');
	PERFORM queue._generate_group_looks(cfg.number, cfg.name, mode = 'order');
	IF mode = 'order' THEN
		PERFORM queue._generate_group_triggers(cfg.number, cfg.name);
	ELSIF mode = 'places' THEN
		PERFORM queue._generate_places(cfg);
	ELSE
		EXECUTE format($sql$
			CREATE TRIGGER grouped_push BEFORE INSERT ON %1$s FOR EACH ROW WHEN (NEW.state = 'blocked')
				EXECUTE FUNCTION queue._not_blocked();
			CREATE TRIGGER grouped BEFORE UPDATE OF state ON %1$s FOR EACH ROW WHEN (NEW.state = 'blocked')
				EXECUTE FUNCTION queue._not_blocked()
		$sql$, tab);
	END IF;
END
$$;

-- Behind _generate_flow: the next take looks at all groups.
CREATE OR REPLACE FUNCTION queue._note_groups(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF cfg.by_group THEN
		EXECUTE format('INSERT INTO queue.%I ("group", blocked) SELECT "group", min(id) FROM %s WHERE state = ''blocked'' GROUP BY "group"',
			format('n%s_noted', cfg.number), queue._table(cfg.name));
	END IF;
	PERFORM queue._tell(cfg.number, cfg.name);
END
$$;
