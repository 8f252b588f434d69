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
	NEW.due := queue._due(NEW.state, NEW.lease_until, NEW.run_at, NEW.expires_at);
	RETURN NEW;
END
$$;

-- Groups with places, and no other limits: a take leases as it lets in.
CREATE OR REPLACE FUNCTION queue._let_in_straight(cfg queue.queues) RETURNS bool
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(cfg.max_running_per_group > 1, false) AND num_nonnulls(cfg.fair, cfg.rate_per_group, cfg.pause_per_group,
		cfg.max_running, cfg.rate, cfg.pause, cfg.hours) = 0;
END
$$;

-- Lets in what may come of these groups. ends: when one of it has ended. backs: how many of its rate are given back, or,
-- negative, used. firsts: jobs that were blocked. since: where the notes begin. mark: of the rows that are written. again: look for
-- notes once more. A take calls it, and has the settings that its plans need.
--
-- Where groups have places and nothing else, so many ("free") of those that come may be leased at once, if all have the priority
-- "top" (leased; what is written is what _take_<number> writes). others: some are ready.
--
-- What is known of a group is a row of n<number>_groups, replaced by a newer one and never updated, as that of the gate:
-- inside, the jobs that were let in, which are looked up by their primary key; head, before which none is blocked (NULL:
-- none is known). To find these by the group would be to read, under a snapshot that somebody holds, all that there have
-- been. Of a group without a row, or with one that does not say so, they are found by the group.
--
-- One statement does it for all groups: each that was one of its own would cost as much as the jobs. What is read there is as
-- it was before it: what went is left out where the next one is looked for. Rows are found again by their ctid, for which
-- there is no plan that reads others: jobs are locked, and groups' rows are changed behind the gate alone.
CREATE OR REPLACE FUNCTION queue._generate_admit(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ordered CONSTANT bool := cfg.max_running_per_group IS NOT DISTINCT FROM 1;
	rests CONSTANT bool := cfg.pause_per_group IS NOT NULL;
	paced CONSTANT bool := cfg.rate_per_group IS NOT NULL;
	straight CONSTANT bool := queue._let_in_straight(cfg);
	body text := $body$
#variable_conflict use_column
DECLARE
	gap CONSTANT float8 := @gap@;
	ahead CONSTANT float8 := gap * @burst@;
	told record;
BEGIN
	again := false;
	IF array_remove(names, NULL) = '{}' IS NOT FALSE THEN
		RETURN;
	END IF;
@try@
	PERFORM set_config('qbouncer.admit', '@n@', true);
@pause@
	LOOP
		WITH heard AS (
			@heard@),
		known AS MATERIALIZED (
			SELECT h.name, h.turn, h.back, g.seq, g.place, g.tat AS was_tat, g.rests AS was_rests, g.opens AS was_opens,
				g.head AS was_head, g.inside AS was_inside, @tat@ AS tat, @rests@ AS rests,
				CASE WHEN g.inside IS NULL THEN 0 ELSE least(g.head, h.job, j.back) END AS head, j.ids, j.ready, j.leased
			FROM heard AS h LEFT JOIN LATERAL (@newest@) AS g ON true,
				LATERAL (SELECT coalesce(array_agg(i.id) FILTER (WHERE i.state IN (@states@)), '{}') AS ids,
						count(*) FILTER (WHERE i.state = 'ready') AS ready, count(*) FILTER (WHERE i.state = 'leased') AS leased,
						min(i.id) FILTER (WHERE i.state = 'blocked') AS back
					FROM (SELECT id, state FROM @table@ WHERE id = ANY (g.inside)
						UNION ALL SELECT id, state FROM @table@
							WHERE g.inside IS NULL AND "group" = h.name AND state IN (@states@)) AS i) AS j@who_waits@),
		places AS MATERIALIZED (
			SELECT k.*, @slots@),
		went AS (
			UPDATE @table@ AS t SET state = CASE @when_leased@WHEN t.run_at > instant THEN 'later' ELSE 'ready' END,
				due = CASE @when_due@WHEN t.run_at > instant THEN least(t.run_at, t.expires_at) ELSE t.expires_at END,
				run_at = greatest(t.run_at, instant), position = DEFAULT@lease@
			FROM (@chosen@ OFFSET 0) AS f
			WHERE t.ctid = f.place AND t.state || '' = 'blocked'	-- by the ctid, not by an index of states
			RETURNING t.id, t."group", t.state, t.expires_at),
		let_in AS (
			SELECT "group" AS name, count(*) FILTER (WHERE state <> 'later' OR @strict@) AS n, array_agg(id) AS ids,
				array_agg(id) FILTER (WHERE state IN (@states@)) AS inside, bool_or(expires_at <= instant) AS late
			FROM went GROUP BY "group"),
		left_over AS MATERIALIZED (
			SELECT p.*, l.ids AS came, l.late, p.slots - coalesce(l.n, 0) AS free, p.ids || coalesce(l.inside, '{}') AS inside,
				CASE WHEN p.head IS NOT NULL THEN (SELECT id FROM @table@ WHERE state = 'blocked' AND "group" = p.name
					AND id >= p.head AND (l.ids IS NULL OR id <> ALL (l.ids)) ORDER BY "group", id LIMIT 1) END AS next
			FROM places AS p LEFT JOIN let_in AS l ON l.name = p.name),
		news AS MATERIALIZED (
			SELECT * FROM (SELECT *, CASE WHEN (free > 0 OR closed IS NOT NULL) AND next IS NOT NULL
					-- somebody has locked it
					THEN coalesce(closed, instant + interval '100 ms') END AS opens FROM left_over) AS n
			WHERE (tat, rests, opens, next, inside) IS DISTINCT FROM (was_tat, was_rests, was_opens, was_head, was_inside)),
		gone AS (DELETE FROM @groups@ AS g USING news AS n WHERE g.ctid = n.place RETURNING 1),
		put AS (INSERT INTO @groups@ ("group", seq, tat, rests, opens, head, inside, stale)
			SELECT name, mark, tat, rests, opens, next, inside, greatest(instant + interval '30 s', tat, rests, opens)
			FROM news, (SELECT count(*) FROM gone) AS behind_it	-- it may have the same mark
			WHERE seq IS NOT NULL OR inside <> '{}' OR next IS NOT NULL OR tat > instant OR rests > instant)
		SELECT coalesce(bool_or(late), false) AS late, coalesce(bool_or(unheard), false) AS unheard,
			array_agg(name) FILTER (WHERE came IS NOT NULL AND free > 0 AND next IS NOT NULL) AS names@leased_now@ INTO told FROM left_over;
		again := again OR told.late OR told.unheard;@leased_then@
		EXIT WHEN told.names IS NULL;
		-- of what came some is for later, and has no place
		names := told.names;
		ends := NULL;
		backs := NULL;
		firsts := NULL;
	END LOOP;
	PERFORM set_config('qbouncer.admit', '', true);
@caught@
	IF again THEN
		PERFORM queue._expire(q, 1000);
	END IF;
END
$body$;
	word text[];
BEGIN
	PERFORM queue._drop_functions(ARRAY[format('_admit_%s', cfg.number)]);	-- it may have other parameters
	FOREACH word SLICE 1 IN ARRAY ARRAY[
		-- an end in a group of which nobody waits: what is known of it may stay as it is
		['@who_waits@', CASE WHEN NOT rests AND NOT paced THEN $waits$
				WHERE h.job IS NOT NULL OR g.head IS NOT NULL OR g.inside IS NULL$waits$ ELSE '' END],
		['@when_leased@', CASE WHEN straight THEN $when$WHEN f.straight THEN 'leased' $when$ ELSE '' END],
		['@when_due@', CASE WHEN straight THEN $when$WHEN f.straight THEN instant + lease $when$ ELSE '' END],
		-- as a take does it (generate.sql)
		['@lease@', CASE WHEN straight THEN $lease$, attempt = t.attempt + f.straight::int4,
				worker = CASE WHEN f.straight THEN who ELSE t.worker END,
				taken_at = CASE WHEN f.straight THEN instant ELSE t.taken_at END,
				first_taken_at = CASE WHEN f.straight THEN coalesce(t.first_taken_at, t.taken_at) ELSE t.first_taken_at END,
				proxy = CASE WHEN NOT f.straight THEN t.proxy WHEN said < 0 THEN -said WHEN q.on_disconnect <> 'keep' THEN said END,
				lease_until = CASE WHEN f.straight THEN instant + lease ELSE t.lease_until END,
				token = CASE WHEN f.straight THEN encode(int8send(uuid_hash_extended(secret, t.id)), 'hex') ELSE t.token END$lease$ ELSE '' END],
		-- what is leased comes first: nothing that is ready has a place in front of it
		['@chosen@', CASE WHEN straight THEN $chosen$SELECT c.place, c.fits AND c.alike AND row_number() OVER w <= free AS straight
				FROM (SELECT f.*, p.turn, (f.run_at > instant) IS NOT TRUE AND (f.expires_at <= instant) IS NOT TRUE AS fits,
						bool_and(f.priority = top) OVER () AS alike
					FROM places AS p, LATERAL (@first@ FOR UPDATE SKIP LOCKED) AS f
					WHERE p.slots > 0 AND p.head IS NOT NULL OFFSET 0) AS c
				WINDOW w AS (ORDER BY c.fits DESC, c.turn, c.id) ORDER BY c.fits DESC, c.turn, c.id$chosen$
			ELSE $chosen$SELECT f.place FROM places AS p, LATERAL (@first@ FOR UPDATE SKIP LOCKED) AS f
				WHERE p.slots > 0 AND p.head IS NOT NULL ORDER BY p.turn, f.id$chosen$ END],
		['@leased_now@', CASE WHEN straight THEN $now$,
			(SELECT array_agg(id) FILTER (WHERE state = 'leased') FROM went) AS leased,
			(SELECT bool_or(state = 'ready') FROM went) AS others$now$ ELSE '' END],
		['@leased_then@', CASE WHEN straight THEN $then$
		leased := leased || told.leased;
		others := others IS TRUE OR told.others IS TRUE;
		free := free - coalesce(cardinality(told.leased), 0);$then$ ELSE '' END],
		-- who rests has none that is ready
		['@pause@', CASE WHEN rests THEN $pause$
	UPDATE @table@ SET state = 'blocked', due = NULL WHERE id = ANY (ARRAY(SELECT r.id
			FROM (@heard@) AS h LEFT JOIN LATERAL (@newest@) AS g ON true,
				LATERAL (SELECT id FROM @table@ WHERE id = ANY (coalesce(g.inside, ARRAY(SELECT id FROM @table@
					WHERE "group" = h.name AND state IN (@states@)))) AND state || '' = 'ready' FOR UPDATE SKIP LOCKED) AS r
			WHERE @rests@ > instant))
		AND state || '' = 'ready';$pause$ ELSE '' END],
		['@heard@', 'SELECT u.name, max(u.ended) AS ended, sum(u.back) AS back, min(u.job) AS job, min(u.n) AS turn
				FROM unnest(names, ends, backs, firsts) WITH ORDINALITY AS u (name, ended, back, job, n)
				WHERE u.name IS NOT NULL GROUP BY u.name'],
		['@newest@', 'SELECT n.ctid AS place, n.* FROM @groups@ AS n WHERE n."group" = h.name ORDER BY n."group" DESC, n.seq DESC LIMIT 1'],
		['@tat@', CASE WHEN paced THEN 'greatest(least(coalesce(g.tat, ''-infinity''), instant + make_interval(secs => ahead)), instant)
				- make_interval(secs => gap * coalesce(h.back, 0))' ELSE 'coalesce(g.tat, ''-infinity'')' END],
		-- a clock that was set back: no longer than the pause
		['@rests@', CASE WHEN rests THEN 'least(greatest(coalesce(g.rests, ''-infinity''), h.ended + q.pause_per_group),
				instant + q.pause_per_group)' ELSE 'coalesce(g.rests, ''-infinity'')' END],
		['@slots@', CASE WHEN NOT rests AND NOT paced THEN 'NULL::timestamptz AS closed, false AS unheard, @places@ AS slots FROM known AS k'
			ELSE 'c.closed, u.unheard, s.slots FROM known AS k,
				-- one that has ended since the notes were read
				LATERAL (SELECT ' || CASE WHEN rests THEN 'k.rests <= instant AND @places@ > 0
					AND EXISTS (SELECT FROM @noted@ AS n WHERE n.xid >= since AND n."group" = k.name AND n.ended IS NOT NULL)'
					ELSE 'false' END || ' AS unheard OFFSET 0) AS u,
				LATERAL (SELECT least(CASE WHEN u.unheard' || CASE WHEN rests THEN ' OR k.rests > instant' ELSE '' END
					|| ' THEN 0 ELSE @places@ END' || CASE WHEN paced THEN ', floor((ahead - date_part(''epoch'',
						greatest(k.tat, instant) - instant)) / gap + 0.000001)::int8 - k.ready' ELSE '' END || ') AS slots OFFSET 0) AS s,
				LATERAL (SELECT ' || concat_ws(', ', 'greatest(NULL::timestamptz',
					CASE WHEN rests THEN 'CASE WHEN k.rests > instant THEN k.rests END' END,
					CASE WHEN paced THEN 'CASE WHEN s.slots < 1 AND k.ready = 0
						THEN k.tat + make_interval(secs => gap - ahead) END' END) || ') AS closed) AS c' END],
		['@places@', CASE WHEN ordered THEN 'CASE WHEN k.ids = ''{}'' THEN 1 ELSE 0 END'
			WHEN cfg.max_running_per_group IS NULL THEN '1 - k.ready'
			ELSE format(CASE WHEN cfg.fair IS NOT NULL OR rests THEN '(least(1, %s - k.leased) - k.ready)'
				ELSE '(%s - k.leased - k.ready)' END, cfg.max_running_per_group) END],
		-- the next one of a group that has an order, and no other
		['@first@', CASE WHEN ordered THEN $first$SELECT id, ctid AS place FROM @table@ WHERE id = (SELECT id FROM @table@
					WHERE state = 'blocked' AND "group" = p.name AND id >= p.head ORDER BY "group", id LIMIT 1)$first$
			ELSE $first$SELECT id, ctid AS place, priority, run_at, expires_at FROM @table@
					WHERE state = 'blocked' AND "group" = p.name AND id >= p.head ORDER BY "group", id LIMIT p.slots$first$ END],
		['@gap@', coalesce((queue._rate(cfg.rate_per_group)).gap::text, 'NULL')],
		['@burst@', coalesce((queue._rate(cfg.rate_per_group)).burst::text, 'NULL')],
		['@strict@', ordered::text],
		-- the index says that one of a group is under way of whom the group's row does not know: somebody has changed jobs
		-- by hand. Without this no take would succeed any more.
		['@try@', CASE WHEN ordered THEN '	BEGIN' ELSE '' END],
		['@caught@', CASE WHEN ordered THEN $caught$
	EXCEPTION WHEN unique_violation THEN
		UPDATE @groups@ SET head = NULL, inside = NULL WHERE "group" = ANY (names) AND inside IS NOT NULL;
		IF NOT FOUND THEN
			RAISE;
		END IF;
		again := queue._admit_@n@(q, names, ends, backs, firsts, instant, since, mark);
		RETURN;
	END;$caught$ ELSE '' END],
		['@states@', CASE WHEN ordered THEN '''ready'', ''later'', ''leased''' ELSE '''ready'', ''leased''' END]] LOOP
		body := replace(body, word[1], word[2]);
	END LOOP;
	PERFORM queue._generate_flow_one(cfg, '_admit_@n@(q queue.queues, names text[], ends timestamptz[], backs int4[],
		firsts int8[], instant timestamptz, since xid8, mark int8, OUT again bool' || CASE WHEN straight THEN ', OUT leased int8[],
		OUT others bool, free int4 DEFAULT 0, top int4 DEFAULT 0, lease interval DEFAULT NULL, who text DEFAULT NULL, said int4 DEFAULT NULL,
		secret uuid DEFAULT NULL' ELSE '' END || ')', '', body);
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
	NEW.state := 'blocked';
	NEW.due := NULL;
	RETURN NEW;
END
$body$);
	PERFORM queue._generate_flow_one(cfg, '_pushed_@n@() RETURNS trigger', 'SECURITY DEFINER', replace($body$
BEGIN
	INSERT INTO @noted@ ("group", blocked)
		SELECT "group", min(id) FROM pushed WHERE state = 'blocked' GROUP BY "group" ORDER BY min(id);
	-- the owner's trigger has taken its group away: nobody would let it in
	IF EXISTS (SELECT FROM pushed WHERE state = 'blocked' AND "group" IS NULL) THEN
		UPDATE @table@ SET @becomes@, position = DEFAULT
			WHERE id = ANY (ARRAY(SELECT id FROM pushed WHERE state = 'blocked' AND "group" IS NULL)) AND state = 'blocked';
	END IF;
	RETURN NULL;
END
$body$, '@becomes@', queue._set_due($sql$CASE WHEN run_at > clock_timestamp() THEN 'later' ELSE 'ready' END$sql$)));
	EXECUTE format($sql$
		REVOKE ALL ON FUNCTION queue._grouped_%2$s, queue._pushed_%2$s FROM PUBLIC;
		CREATE TRIGGER grouped_push BEFORE INSERT ON %1$s FOR EACH ROW
			WHEN (NEW."group" IS NOT NULL AND NEW.state IN ('ready' %3$s)) EXECUTE FUNCTION queue._grouped_%2$s();
		CREATE TRIGGER grouped BEFORE UPDATE OF state ON %1$s FOR EACH ROW
			WHEN (NEW.state = 'ready' AND OLD.state <> 'ready' AND NEW."group" IS NOT NULL
				AND current_setting('qbouncer.admit', true) IS DISTINCT FROM '%2$s')
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
	comes CONSTANT text := queue._set_due($sql$CASE WHEN run_at > $1 THEN 'later' ELSE 'ready' END$sql$);
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
		EXECUTE format('UPDATE %s SET %s, position = DEFAULT WHERE state = ''blocked''', tab, comes) USING moment;
	ELSE
		EXECUTE format('UPDATE %s SET state = ''blocked'', due = NULL WHERE "group" IS NOT NULL AND state IN (''ready'' %s)', tab,
			CASE WHEN ordered THEN ', ''later''' ELSE '' END);
	END IF;
	IF mode = 'order' THEN
		EXECUTE format('UPDATE %1$s AS q SET %2$s, position = DEFAULT
			WHERE id IN (SELECT min(id) FROM %1$s WHERE state = ''blocked'' GROUP BY "group") AND NOT EXISTS (
				SELECT FROM %1$s AS o WHERE o."group" = q."group" AND o.state = ''leased'')', tab, comes) USING moment;
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
