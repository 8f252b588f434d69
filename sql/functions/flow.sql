-- Limits of a queue: max_running, rate, pause, hours; those of its groups are in flow_group.sql. What a queue has for them: a
-- table of one row, the gate, and a _take_<number> of its own that goes through it. A queue without limits has neither, and
-- pays nothing.
--
-- All takes of a limited queue, of all proxies, come one after the other: who takes holds the row of the gate until its
-- commit. Takes are merged, so that is one row for a batch. The row has the ids that may be running, and the time up
-- to which the rate is used up (tat, "theoretical arrival time", of the generic cell rate algorithm). It is replaced by
-- a newer one, never updated: under a snapshot that somebody holds, versions of one row would be read again by each
-- take; the newest of several is found at once.
--
-- Nobody else writes there. Which of the ids still run is looked up, by their primary key: an end, a lease that is over,
-- a crash need not be counted, and an end that is not committed counts as running. A take that is rolled back gives
-- back what it has used.
--
-- The jobs behind the first of a lot (lot.sql) run, too, as long as they are held: they have their places, and their share of
-- the rate. Of the end of that nobody tells; they are looked up, in a row that says there are some (lots).
--
-- What a take has to know of others, and cannot look up, is noted by them, each in a row of its own (n<number>_noted) that the
-- next take deletes: when a job has ended (pause), which groups have changed, what was taken and not delivered (rate), and of
-- many that may run, which have ended. Read from the transaction on that was the oldest when it was read before: under a
-- snapshot that somebody holds, what was read stays there, and is passed over.
--
-- Read with a lock: in a transaction that sees an old state (REPEATABLE READ) that fails with 40001 when another take,
-- or an ALTER, was in between, so the limits are exact there, too.
--
-- Locks come in one order everywhere: the queue's table, then its gate; several queues by their numbers. A take that was
-- on its way while the limits came, or went, is another function than it should be: it fails with 40001, and is repeated
-- (by the proxy itself). For that the queue has a trigger, which lets no job be leased but through the gate. One that waited
-- while they changed looks behind the lock whether it is made for those that the queue has now, and ends so, too.

-- '5/s', '100/min burst 20': so many in an interval, and at once. NULL: no rate.
CREATE OR REPLACE FUNCTION queue._rate(rate text, OUT gap float8, OUT burst int8)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part CONSTANT text[] := regexp_match(rate, '^([0-9]+)/(s|min|h|d)( burst ([0-9]+))?$');
BEGIN
	gap := CASE part[2] WHEN 's' THEN 1 WHEN 'min' THEN 60 WHEN 'h' THEN 3600 ELSE 86400 END / part[1]::float8;
	-- who comes late by a moment must not lose what he could have had: 50 ms of it
	burst := coalesce(part[4]::int8, greatest(1, floor(0.05 / gap)::int8));
	IF burst * gap > 366 * 86400 THEN
		PERFORM queue._bad_option('rate', rate, 'A burst is at most what a year brings.');
	END IF;
END
$$;

-- '22:00-06:00 Europe/Berlin': milliseconds until a moment that is within; 0: this one is.
CREATE OR REPLACE FUNCTION queue._until_hours(hours text, moment timestamptz) RETURNS int8
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part CONSTANT text[] := regexp_match(hours, '^(\d\d:\d\d)-(\d\d:\d\d) (.*)$');
	starts CONSTANT time := part[1];
	ends CONSTANT time := part[2];
	here CONSTANT timestamp := moment AT TIME ZONE part[3];
	next timestamptz;
BEGIN
	IF here::time >= starts AND here::time < ends OR starts > ends AND (here::time >= starts OR here::time < ends) THEN
		RETURN 0;
	END IF;
	-- where the clocks change, the hour that is left out begins with the next one, and one that comes twice counts
	-- both times
	FOR day IN 0 .. 2 LOOP
		next := (here::date + day + starts) AT TIME ZONE part[3];
		EXIT WHEN next > moment;
	END LOOP;
	RETURN greatest(ceil(date_part('epoch', next - moment) * 1000)::int8, 1);
END
$$;

-- How long nothing can be taken, in milliseconds: 0, if something can. Looks, and locks nothing.
CREATE OR REPLACE FUNCTION queue._closed_ms(cfg queue.queues) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ms int8;
BEGIN
	IF cfg.limited THEN
		EXECUTE format('SELECT r.ms FROM (SELECT * FROM queue.%I ORDER BY seq DESC LIMIT 1) AS g,
			LATERAL queue.%I($1, 1, g.running, g.tat, g.rests, clock_timestamp(), g.lots) AS r',
			format('n%s_gate', cfg.number), format('_room_%s', cfg.number)) INTO ms USING cfg;
	END IF;
	RETURN coalesce(ms, 0);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_flow_triggers(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	it text;
BEGIN
	FOR it IN SELECT t.tgname FROM pg_trigger AS t WHERE t.tgrelid = to_regclass(queue._table(cfg.name))
			AND t.tgname IN ('freed_by_end', 'freed', 'gated', 'gated_hand', 'gated_pop') LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', it, queue._table(cfg.name));
	END LOOP;
END
$$;

-- The take, or the hand over, began before the queue had these limits, or none; anew: who has waited for a queue's table has
-- that of another queue of this name now.
CREATE OR REPLACE FUNCTION queue._began_before(name text, anew bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '40001',
		MESSAGE = format(CASE WHEN anew THEN 'queue "%s" was dropped and created anew' ELSE 'the limits of queue "%s" have changed' END, name),
		DETAIL = 'The statement began before.', HINT = 'Say it again.';
END
$$;

-- Gates of several queues are locked by their numbers, before the first take.
CREATE OR REPLACE FUNCTION queue._lock_gates(names text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
BEGIN
	FOR cfg IN SELECT c.* FROM queue.queues AS c WHERE c.name = ANY (names) AND c.limited ORDER BY c.number LOOP
		EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', queue._table(cfg.name));
		IF to_regclass(format('queue.n%s_gate', cfg.number)) IS NOT NULL THEN
			EXECUTE format('SELECT queue._enter_%s()', cfg.number);
		END IF;
	END LOOP;
END
$$;

-- The tables of a limited queue, and their columns.
CREATE OR REPLACE FUNCTION queue._flow_tables(cfg queue.queues) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN ARRAY(SELECT format('queue.%I', format('n%s_%s', cfg.number, what)) FROM unnest('{gate, noted, groups}'::text[]) AS what);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_flow(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF to_regclass(format('queue.%I', format('n%s_gate', cfg.number))) IS NOT NULL THEN
		PERFORM queue._drop_flow_triggers(cfg);
		EXECUTE 'DROP TABLE ' || array_to_string(queue._flow_tables(cfg), ', ');
		EXECUTE format('DROP FUNCTION queue._take_%1$s, queue._room_%1$s, queue._enter_%1$s;
			ALTER FUNCTION queue._free_%1$s RENAME TO _take_%1$s', cfg.number);
		EXECUTE format('DROP FUNCTION queue._freed_%1$s, queue._freed_by_end_%1$s, queue._gated_%1$s, queue._gated_pop_%1$s', cfg.number);
		PERFORM queue._drop_functions(ARRAY[format('_admit_%s', cfg.number)]);
	END IF;
END
$$;

-- Those who may take from the queue may use its gate. role: quoted. Empty, if there is none.
CREATE OR REPLACE FUNCTION queue._gate_right_sql(gives bool, cfg queue.queues, role text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tables CONSTANT text[] := ARRAY(SELECT t FROM unnest(queue._flow_tables(cfg) || queue._consumer_table(cfg.number)) AS t
		WHERE to_regclass(t) IS NOT NULL);
BEGIN
	RETURN CASE WHEN tables = '{}' THEN ''
		WHEN gives THEN format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s', array_to_string(tables, ', '), role)
		ELSE format('REVOKE ALL ON %s FROM %s CASCADE', array_to_string(tables, ', '), role) END;
END
$$;

CREATE OR REPLACE FUNCTION queue._grant_gate(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	taker oid;
BEGIN
	FOR taker IN SELECT DISTINCT a.grantee FROM pg_class AS r, aclexplode(r.relacl) AS a
			WHERE r.oid = queue._table(cfg.name)::regclass AND a.privilege_type = 'UPDATE' AND a.grantee <> r.relowner LOOP
		EXECUTE queue._gate_right_sql(true, cfg,
			CASE taker WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(taker)) END);
	END LOOP;
END
$$;

-- As _generate_one: with the tables of a limited queue, its number, its name as a literal.
CREATE OR REPLACE FUNCTION queue._generate_flow_one(cfg queue.queues, head text, settings text, body text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tables CONSTANT text[] := queue._flow_tables(cfg);
	word text[];
BEGIN
	FOREACH word SLICE 1 IN ARRAY ARRAY[['@gate@', tables[1]], ['@noted@', tables[2]], ['@groups@', tables[3]],
			['@n@', cfg.number::text], ['@payload@', cfg.payload], ['@name@', queue._name_literal(cfg.name)]] LOOP
		head := replace(head, word[1], word[2]);
		body := replace(body, word[1], word[2]);
	END LOOP;
	PERFORM queue._generate_one(head, settings, body, queue._table(cfg.name));
END
$$;

CREATE OR REPLACE FUNCTION queue._create_gate(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tables CONSTANT text[] := queue._flow_tables(cfg);
	short_lived CONSTANT text := 'vacuum_truncate = off, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
		autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2147483647';
BEGIN
	EXECUTE format($sql$
		CREATE %4$s TABLE %1$s (seq int8 PRIMARY KEY, running int8[] NOT NULL, tat timestamptz NOT NULL,
			rests timestamptz NOT NULL DEFAULT '-infinity', read xid8 NOT NULL DEFAULT '0',
			opened timestamptz NOT NULL DEFAULT '-infinity', swept timestamptz NOT NULL DEFAULT '-infinity',
			lots bool NOT NULL DEFAULT false) WITH (%5$s);
		CREATE %4$s TABLE %2$s (xid xid8 NOT NULL DEFAULT pg_current_xact_id(), id int8, "group" text, ended timestamptz,
			back int4, blocked int8) WITH (%5$s);
		CREATE INDEX ON %2$s (xid);
		CREATE %4$s TABLE %3$s ("group" text, seq int8, tat timestamptz NOT NULL, rests timestamptz NOT NULL,
			opens timestamptz, head int8, inside int8[], stale timestamptz NOT NULL, PRIMARY KEY ("group", seq)) WITH (%5$s);
		CREATE INDEX ON %3$s (opens) WHERE opens IS NOT NULL;
		CREATE INDEX ON %3$s (stale);
		REVOKE ALL ON %1$s, %2$s, %3$s FROM PUBLIC;
		INSERT INTO %1$s SELECT 1, coalesce(array_agg(id), '{}'), '-infinity' FROM %6$s WHERE state = 'leased';
	$sql$, tables[1], tables[2], tables[3], CASE WHEN cfg.unlogged THEN 'UNLOGGED' ELSE '' END, short_lived,
		queue._table(cfg.name));
END
$$;

-- What a take of a limited queue is made for. prefix: of each name.
CREATE OR REPLACE FUNCTION queue._limits(prefix text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT string_agg(prefix || name, ', ' ORDER BY n) FROM unnest(
		'{max_running, rate, hours, pause, max_running_per_group, rate_per_group, pause_per_group, fair}'::text[])
		WITH ORDINALITY AS u (name, n));
END
$$;

-- The take of a limited queue. many: ends are noted with their ids.
CREATE OR REPLACE FUNCTION queue._generate_gated_take(cfg queue.queues, many bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	notes CONSTANT bool := many OR cfg.by_group OR cfg.pause IS NOT NULL OR cfg.rate IS NOT NULL;
	-- what was taken lets others of its group in, or uses its rate up
	used CONSTANT bool := cfg.by_group AND (cfg.max_running_per_group IS NULL OR cfg.fair IS NOT NULL
		OR cfg.rate_per_group IS NOT NULL OR cfg.pause_per_group IS NOT NULL);
	of_all CONSTANT bool := cfg.max_running IS NOT NULL OR cfg.rate IS NOT NULL OR cfg.pause IS NOT NULL OR cfg.hours IS NOT NULL;
	straight CONSTANT bool := queue._let_in_straight(cfg);
BEGIN
	PERFORM queue._generate_flow_one(cfg, '_take_@n@(q queue.queues, lim int4, lease interval,
		who text, said int4, pop bool, prios int8[], low_marks int8[], since int8, moment timestamptz,
		seed int8 DEFAULT NULL) RETURNS SETOF queue._taken_@payload@',
		'SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan',
		replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace($body$
#variable_conflict use_column
DECLARE
	gap CONSTANT float8 := @gap@;
	mine record;
	may record;
	told record;
	job queue._taken_@payload@;
	nothing queue._taken_@payload@;
	ids int8[] := '{}';
	groups text[];
	open text[];
	instant timestamptz;
	wanted int4;
	got int4;
	soonest timestamptz;
	edge int8;
	usual bool;
	more bool := false;
	heard bool := false;	-- of groups
	changed bool := false;
	after xid8;
	oldest xid8;
@let_in@
BEGIN
	IF q.paused OR lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM set_config('qbouncer.gate', '@n@', true);
		RETURN QUERY SELECT * FROM queue._free_@n@(q, lim, lease, who, said, pop, prios, low_marks, since, moment, seed);
		RETURN;
	END IF;
	LOCK TABLE @table@ IN ROW EXCLUSIVE MODE;
	-- who has waited here for an ALTER has the row of before, and may be the function of before
	IF to_regclass('@gate@') IS NULL OR (@limits_q@) IS DISTINCT FROM (@limits@)
			OR NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.number = @n@ AND (@limits_c@) IS NOT DISTINCT FROM (@limits@)) THEN
		PERFORM queue._began_before(q.name);
	END IF;
	soonest := coalesce(to_timestamp(abs(since)::float8 / 1000000), '-infinity');
	IF soonest > moment + interval '1 s' THEN
		soonest := '-infinity';	-- the clock was set back
	END IF;
	-- before the gate: the end of an attempt may have to wait for somebody who has locked the next job of its group
	IF EXISTS (SELECT FROM @table@ WHERE due > soonest AND due <= moment) THEN
		IF since IS NOT NULL THEN
			PERFORM set_config('qbouncer.tell', 'here', true);
		END IF;
		PERFORM queue._promote(q, 1000);
	ELSIF since IS NOT NULL AND soonest < moment - interval '20 ms' THEN
		edge := (date_part('epoch', moment) * 1000000)::int8;
		since := CASE WHEN since < 0 THEN -edge ELSE edge END;	-- nobody need look again
	END IF;
	-- as _enter_<number> does it, which is for what there is seldom
	IF has_table_privilege('@gate@'::regclass, 'UPDATE') THEN
		SELECT g.* INTO mine FROM @gate@ AS g ORDER BY g.seq DESC LIMIT 1 FOR UPDATE;
		usual := mine.seq < 1152921504606846976 AND cardinality(mine.running) <= 10000;
	END IF;
	IF usual IS NOT TRUE THEN
		SELECT * INTO mine FROM queue._enter_@n@();
	END IF;
	instant := clock_timestamp();
	wanted := lim;
	LOOP
@read@
		IF may IS NULL THEN
			SELECT * INTO may FROM @room@;
@ends@
			IF mine.tat > may.next THEN	-- it was clamped: to this moment, not to that of each take
				changed := true;
			END IF;
			wanted := CASE WHEN pop AND q.pause IS NOT NULL THEN least(may.room, 1) ELSE may.room END;
			EXIT WHEN wanted <= 0;
		ELSIF NOT heard THEN
			EXIT;	-- nobody was let in since
		END IF;
		PERFORM set_config('qbouncer.gate', '@n@', true);
		got := 0;
		heard := false;
		groups := '{}';
		IF low_marks IS NOT NULL OR prios IS NULL THEN
@free@
		ELSIF prios = '{}' THEN	-- GROUPED (_take_lot)
			FOR job IN SELECT * FROM queue._lot_@payload@(q, wanted, lease, who, said, seed) LOOP
				RETURN NEXT job;
				ids := ids || job.id;
				groups := groups || job."group";
				got := got + 1;
			END LOOP;
		ELSE	-- of some jobs (_take_where)
			FOR job IN SELECT * FROM queue._chosen_@payload@(q, prios[: cardinality(prios) / 2], prios[cardinality(prios) / 2 + 1 :],
					wanted, lease, who, said, pop, seed) LOOP
				RETURN NEXT job;
				ids := ids || job.id;
				groups := groups || job."group";
				got := got + 1;
			END LOOP;
		END IF;
		wanted := wanted - got;
@used@
		EXIT WHEN wanted <= 0 OR NOT q.by_group OR got = 0 AND NOT more;
	END LOOP;
@sweep@
	IF @spent@ OR changed THEN
		INSERT INTO @gate@ (seq, running, tat, rests, read, opened, swept, lots) VALUES (mine.seq + 1,
			CASE WHEN q.max_running IS NULL THEN '{}' ELSE may.still || CASE WHEN pop THEN '{}' ELSE ids END END,
			coalesce(may.next + make_interval(secs => gap * cardinality(ids)), '-infinity'),
			CASE WHEN pop AND cardinality(ids) > 0 AND q.pause IS NOT NULL THEN clock_timestamp() + q.pause ELSE mine.rests END,
			mine.read, mine.opened, mine.swept, may.lots OR coalesce(prios = '{}', false));
		DELETE FROM @gate@ AS g WHERE g.seq = mine.seq;	-- below it are but dead ones, which a held snapshot keeps
	END IF;
	IF cardinality(ids) = 0 THEN
		nothing.edge := greatest(nothing.edge, edge);
		IF since >= 0 OR since IS NULL THEN
			IF may.room <= 0 THEN
				nothing.due_ms := may.ms;
			END IF;
@opens@
		END IF;
		RETURN NEXT nothing;
@next@
	END IF;
END
$body$,
	'@read@', CASE WHEN notes THEN $read$
		-- of another history of transactions, as a restored dump is
		after := CASE WHEN mine.read > pg_snapshot_xmax(pg_current_snapshot()) THEN '0' ELSE mine.read END;
		oldest := pg_snapshot_xmin(pg_current_snapshot());
		SELECT count(*) AS n, array_agg(place) AS places, array_agg(id) AS ids, array_agg("group") AS groups, array_agg(ended) AS ends,
				array_agg(back) AS backs, array_agg(blocked) AS firsts, max(ended) AS ended, sum(back)::int4 AS back
			INTO told FROM (SELECT *, ctid AS place FROM @noted@ WHERE xid >= after ORDER BY xid @most@) AS n;
		instant := clock_timestamp();	-- behind all ends that were read
		more := @by_group@ AND told.n >= 1000;
		IF told.n > 0 THEN
			DELETE FROM @noted@ WHERE ctid = ANY (told.places);	-- takes alone do that, one after the other
			changed := true;
			IF NOT more THEN
				mine.read := oldest;
			END IF;
@ended@
			IF may IS NULL THEN
				mine.tat := mine.tat - make_interval(secs => coalesce(gap * told.back, 0));
			ELSE
				may.next := may.next - make_interval(secs => coalesce(gap * told.back, 0));
			END IF;
			mine.rests := greatest(mine.rests, told.ended + q.pause);
		END IF;
		IF mine.rests > instant + q.pause THEN	-- the clock was set back
			mine.rests := instant + q.pause;
			changed := true;
		END IF;
@admit@$read$ ELSE '' END),
	-- an end that was committed since the notes were read is seen there, and its pause is not
	'@ends@', CASE WHEN cfg.pause IS NOT NULL AND cfg.max_running IS NOT NULL THEN $ends$
			WHILE cardinality(may.still) < cardinality(mine.running) LOOP
				mine.running := may.still;
				mine.rests := greatest(mine.rests, (SELECT max(n.ended) FROM @noted@ AS n WHERE n.xid >= after) + q.pause);
				SELECT * INTO may FROM queue._room_@n@(q, lim, mine.running, mine.tat, mine.rests, instant, mine.lots, @after@);
			END LOOP;$ends$ ELSE '' END),
	'@ended@', CASE WHEN many THEN $ended$
			IF may IS NULL THEN
				mine.running := ARRAY(SELECT unnest(mine.running) EXCEPT ALL SELECT unnest(told.ids));
			ELSE
				may.still := ARRAY(SELECT unnest(may.still) EXCEPT ALL SELECT unnest(told.ids));
			END IF;$ended$ ELSE '' END),
	'@admit@', CASE WHEN cfg.by_group THEN $admit$
		groups := told.groups;
		IF may IS NULL THEN
			-- those before that have been looked at; also when the clock was set back
			mine.opened := least(mine.opened, instant);
			open := ARRAY(SELECT g."group" FROM @groups@ AS g WHERE g.opens >= mine.opened AND g.opens <= instant
				ORDER BY g.opens LIMIT 1000);
			IF cardinality(open) < 1000 THEN
				mine.opened := instant;
			END IF;
			groups := groups || open;
		END IF;
		IF groups <> '{}' THEN
@admit_call@
			heard := true;
		END IF;$admit$ ELSE '' END),
	'@let_in@', CASE WHEN straight THEN $let_in$
	lease_ms CONSTANT int8 := ceil(date_part('epoch', lease) * 1000);
	secret CONSTANT uuid := CASE WHEN seed IS NULL THEN gen_random_uuid()
		ELSE encode(substr(sha256(int8send(seed)), 1, 16), 'hex')::uuid END;
	top CONSTANT int4 := coalesce(prios[1], 0);
	low CONSTANT int8 := coalesce(low_marks[1], -9223372036854775808);
	let_in record;
	leased int8[] := '{}';
	free int4;$let_in$ ELSE '' END),
	-- Those that are let in are leased at once, as far as what is ready leaves room for them: they come behind it. Not if
	-- there are several priorities.
	'@admit_call@', CASE WHEN straight THEN $call$
			free := 0;
			IF NOT pop AND @known@ THEN
				free := (SELECT CASE WHEN EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority > top)
						OR EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority < top) THEN 0
					ELSE wanted - (SELECT count(*)::int4 FROM (SELECT FROM @table@ WHERE state = 'ready' AND priority = top
						AND position >= low AND position <= 9223372036854775807 LIMIT wanted) AS r) END);
			END IF;
			let_in := queue._admit_@n@(q, groups, told.ends, told.backs, told.firsts, instant, after, mine.seq + 1,
				free, top, lease, who, said, secret);
			more := more OR let_in.again;
			leased := coalesce(let_in.leased, '{}');
			IF let_in.others THEN
				free := 0;
			END IF;$call$
		ELSE '			more := queue._admit_@n@(q, groups, told.ends, told.backs, told.firsts, instant, after, mine.seq + 1) OR more;' END),
	'@free@', CASE WHEN straight THEN $straight$
			-- where all of them could be leased nothing else is ready; and who asks when there is nothing, and does not wait for it,
			-- wants to know no more than that
			IF leased = '{}' AND (since < 0 AND @known@ AND NOT EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority = top
							AND position >= low AND position <= 9223372036854775807)
						AND NOT EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority > top)
						AND NOT EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority < top)) IS NOT TRUE
					OR free < wanted AND cardinality(leased) BETWEEN 1 AND wanted - 1 THEN
@of_ready@
				IF leased <> '{}' THEN	-- a lease may be so short that it is over
					leased := ARRAY(SELECT l.job FROM unnest(leased) AS l (job), LATERAL (SELECT FROM @table@
						WHERE id = l.job AND state || '' = 'leased' OFFSET 0) AS r);
				END IF;
			END IF;
			IF leased <> '{}' THEN
				RETURN QUERY SELECT r.* FROM unnest(leased) AS l (job), LATERAL (SELECT @row@ FROM @table@ WHERE id = l.job OFFSET 0) AS r;
				ids := ids || leased;
				got := got + cardinality(leased);
				leased := '{}';
			END IF;$straight$ ELSE '@of_ready@' END),
	'@known@', 'coalesce(cardinality(prios), 0) <= 1 AND (low_marks IS NOT NULL OR prios IS NULL)'),
	'@of_ready@', replace($ready$
			FOR job IN SELECT * FROM queue._free_@n@(q, wanted@less@, lease, who, said, pop, prios, low_marks, since,
					clock_timestamp(), seed) LOOP
				IF job.id IS NULL THEN
					nothing := job;
				ELSE
					job.edge := greatest(job.edge, edge);
					RETURN NEXT job;
					ids := ids || job.id;
					groups := groups || job."group";
					got := got + 1;
				END IF;
			END LOOP;$ready$, '@less@', CASE WHEN straight THEN ' - cardinality(leased)' ELSE '' END)),
	'@row@', queue._taken_row('lease_ms', 'edge')),
	'@used@', CASE WHEN used THEN $used$
		IF got > 0 THEN
			more := queue._admit_@n@(q, groups, CASE WHEN pop THEN array_fill(instant, ARRAY[got]) END,
				array_fill(-1, ARRAY[got]), NULL, instant, after, mine.seq + 1) OR more;
			heard := true;
		END IF;$used$ ELSE '' END),
	-- what is known of groups that nothing was heard of for a while: ten times a second, and if there are more than these
	-- the next take goes on. None that is to open, of which nobody would hear any more: it is not older than that
	'@sweep@', CASE WHEN cfg.by_group THEN $sweep$
	mine.swept := least(mine.swept, mine.opened);
	IF mine.swept < mine.opened - interval '100 ms' AND (changed OR cardinality(ids) > 0 AND random() < 0.05) THEN
		WITH gone AS (DELETE FROM @groups@ WHERE ctid = ANY (ARRAY(SELECT g.ctid FROM @groups@ AS g
				WHERE g.stale >= mine.swept AND g.stale <= mine.opened ORDER BY g.stale
				LIMIT 20 + 2 * (cardinality(ids) + coalesce(told.n, 0)))) RETURNING stale)
			SELECT coalesce(max(stale), mine.opened) AS swept, count(*) > 0 AS some INTO told FROM gone;
		mine.swept := told.swept;
		changed := changed OR told.some;
	END IF;$sweep$ ELSE '' END),
	-- what is taken is in the row, or what it uses up; of limits of groups alone, that is known already
	'@spent@', CASE WHEN of_all OR used THEN 'cardinality(ids) > 0' ELSE 'false' END),
	'@room@', CASE WHEN of_all THEN 'queue._room_@n@(q, lim, mine.running, mine.tat, mine.rests, instant, mine.lots, @after@)' ELSE '(SELECT mine.lots AS lots, lim AS room, 0::int8 AS ms,
		NULL::int8[] AS still, NULL::timestamptz AS next) AS r' END),
	'@opens@', CASE WHEN cfg.by_group THEN $opens$
			IF may.room > 0 THEN
				nothing.due_ms := least(nothing.due_ms, @opens_ms@);
			END IF;$opens$ ELSE '' END),
	-- who waits behind those who got something hears when there is more
	'@next@', CASE WHEN cfg.rate IS NOT NULL OR cfg.by_group OR cfg.pause IS NOT NULL THEN $next$
	ELSIF since >= 0 AND (q.max_running > cardinality(may.still) + cardinality(ids)) IS NOT FALSE THEN
		nothing := NULL;
		IF gap IS NOT NULL THEN
			nothing.due_ms := greatest(ceil((date_part('epoch', may.next - clock_timestamp())
				+ gap * (cardinality(ids) + 1 - @burst@)) * 1000), 1);
		END IF;
@opens_next@
		IF pop AND q.pause IS NOT NULL THEN
			nothing.due_ms := greatest(nothing.due_ms, ceil(date_part('epoch', q.pause) * 1000));
		END IF;
		IF nothing.due_ms IS NOT NULL THEN
			RETURN NEXT nothing;
		END IF;$next$ ELSE '' END),
	'@opens_next@', CASE WHEN cfg.by_group THEN '		nothing.due_ms := least(nothing.due_ms, @opens_ms@);' ELSE '' END),
	-- _opens_ms, which makes a plan in each call
	'@opens_ms@', '(SELECT greatest(ceil(date_part(''epoch'', least(g.opens - clock_timestamp(), interval ''1 year'')) * 1000), 1)
					FROM @groups@ AS g WHERE g.opens >= mine.opened ORDER BY g.opens LIMIT 1)'),
	'@gap@', coalesce((queue._rate(cfg.rate)).gap::text, 'NULL')), '@burst@', coalesce((queue._rate(cfg.rate)).burst::text, 'NULL')),
		'@by_group@', cfg.by_group::text),
		'@most@', CASE WHEN cfg.by_group THEN 'LIMIT 1000' ELSE '' END),
		'@after@', CASE WHEN notes THEN 'after' ELSE quote_literal('0') END),
		'@limits_q@', queue._limits('q.')), '@limits_c@', queue._limits('c.')),
		'@limits@', format('%L::int4, %L::text, %L::text, %L::interval, %L::int4, %L::text, %L::interval, %L::text', cfg.max_running,
			cfg.rate, cfg.hours, cfg.pause, cfg.max_running_per_group, cfg.rate_per_group, cfg.pause_per_group, cfg.fair)));
END
$$;

-- An end makes room: it is noted, where that is needed, and those who wait are told. (Time makes room, too: they know when.)
-- Not by the rights of who ends a job: they need none on the notes.
CREATE OR REPLACE FUNCTION queue._generate_freed(cfg queue.queues, many bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	notes CONSTANT bool := many OR cfg.by_group OR cfg.pause IS NOT NULL;
	-- of limits of groups alone: the end of a job without one is nobody's news
	of_all CONSTANT bool := cfg.max_running IS NOT NULL OR cfg.pause IS NOT NULL;
BEGIN
	PERFORM queue._generate_flow_one(cfg, '_freed_@n@() RETURNS trigger', 'SECURITY DEFINER', replace($body$
BEGIN
@note@
	IF coalesce(strpos(current_setting('qbouncer.tell', true) || ' ', ' @n@ '), 0) = 0 THEN
		PERFORM queue._tell(@n@, @name@);
	END IF;
	RETURN NULL;
END
$body$, '@note@', CASE WHEN notes THEN replace(replace($note$
	IF (OLD.state <> 'ready' OR current_setting('qbouncer.admit', true) IS DISTINCT FROM '@n@')@which@ THEN
		INSERT INTO @noted@ (id, "group", ended, blocked) VALUES (@id@, OLD."group",
			CASE WHEN OLD.state = 'leased' THEN clock_timestamp() END,
			CASE WHEN TG_OP = 'UPDATE' AND NEW.state = 'blocked' THEN OLD.id END);
	END IF;$note$, '@id@', CASE WHEN many THEN 'CASE WHEN OLD.state = ''leased'' THEN OLD.id END' ELSE 'NULL' END),
		'@which@', CASE WHEN many OR cfg.pause IS NOT NULL THEN '' ELSE ' AND OLD."group" IS NOT NULL' END) ELSE '' END));
	-- of one statement: a note for each would cost as much as the end itself
	PERFORM queue._generate_flow_one(cfg, '_freed_by_end_@n@() RETURNS trigger', 'SECURITY DEFINER',
		replace(replace($body$
BEGIN
@note@
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	IF coalesce(strpos(current_setting('qbouncer.tell', true) || ' ', ' @n@ '), 0) = 0 THEN
		PERFORM queue._tell(@n@, @name@);
	END IF;
	RETURN NULL;
END
$body$, '@note@', CASE WHEN notes THEN format($note$
	INSERT INTO @noted@ (id, "group", ended)
		SELECT %s, "group", CASE WHEN state = 'leased' THEN clock_timestamp() END FROM ended WHERE %s;$note$,
		CASE WHEN many THEN 'CASE WHEN state = ''leased'' THEN id END' ELSE 'NULL::int8' END, '@which@')
		ELSE '	PERFORM FROM ended WHERE @which@ LIMIT 1;' END),
		'@which@', concat_ws(' OR ', CASE WHEN of_all THEN 'state = ''leased''' END,
			CASE WHEN cfg.by_group THEN '"group" IS NOT NULL AND state IN (''ready'', ''later'', ''leased'')' END, 'false')));
	PERFORM queue._generate_flow_one(cfg, '_gated_@n@() RETURNS trigger', '', $body$
BEGIN
	IF current_setting('qbouncer.gate', true) IS DISTINCT FROM '@n@' THEN
		PERFORM queue._began_before(@name@);
	END IF;
	RETURN NEW;
END
$body$);
	-- who deletes what is ready: a pop, or one who may
	PERFORM queue._generate_flow_one(cfg, '_gated_pop_@n@() RETURNS trigger', '', $body$
DECLARE
	stack text;
BEGIN
	IF current_setting('qbouncer.gate', true) IS DISTINCT FROM '@n@' THEN
		GET DIAGNOSTICS stack = PG_CONTEXT;
		IF stack ~ ' queue\._(take|alone|free)_@n@\(' AND stack !~ ' queue\._expire\(' THEN
			PERFORM queue._began_before(@name@);
		END IF;
	END IF;
	RETURN OLD;
END
$body$);
	PERFORM queue._for_all('_take_' || cfg.number, '_room_' || cfg.number, '_enter_' || cfg.number);
	EXECUTE format('REVOKE ALL ON FUNCTION queue._freed_%1$s, queue._freed_by_end_%1$s, queue._gated_%1$s, queue._gated_pop_%1$s FROM PUBLIC', cfg.number);
	PERFORM queue._drop_flow_triggers(cfg);
	-- who comes through the gate calls no function for each job
	EXECUTE format('CREATE TRIGGER gated BEFORE UPDATE OF state ON %1$s FOR EACH ROW
			WHEN (NEW.state = ''leased'' AND OLD.state = ''ready'' AND %3$s) EXECUTE FUNCTION queue._gated_%2$s();
		CREATE TRIGGER gated_hand BEFORE INSERT ON %1$s FOR EACH ROW
			WHEN (NEW.state = ''leased'') EXECUTE FUNCTION queue._gated_%2$s();
		CREATE TRIGGER gated_pop BEFORE DELETE ON %1$s FOR EACH ROW
			WHEN (OLD.state = ''ready'' AND %3$s) EXECUTE FUNCTION queue._gated_pop_%2$s()', tab, cfg.number,
		format('current_setting(''qbouncer.gate'', true) IS DISTINCT FROM %L', cfg.number::text));
	IF of_all OR cfg.by_group THEN
		EXECUTE format('CREATE TRIGGER freed_by_end AFTER DELETE ON %1$s REFERENCING OLD TABLE AS ended FOR EACH STATEMENT
				EXECUTE FUNCTION queue._freed_by_end_%2$s();
			CREATE TRIGGER freed AFTER UPDATE OF state ON %1$s FOR EACH ROW WHEN (%3$s) EXECUTE FUNCTION queue._freed_%2$s()',
			tab, cfg.number,
			concat_ws(' OR ', CASE WHEN of_all THEN 'OLD.state = ''leased'' AND NEW.state <> ''leased''' END,
				CASE WHEN cfg.by_group THEN 'OLD."group" IS NOT NULL AND NEW.state <> OLD.state
					AND (OLD.state = ''leased'' OR OLD.state = ''ready'' AND NEW.state <> ''leased'' OR NEW.state = ''blocked'')' END));
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_flow(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	gate CONSTANT text := format('queue.%I', format('n%s_gate', cfg.number));
	noted CONSTANT text := format('queue.%I', format('n%s_noted', cfg.number));
	groups CONSTANT text := format('queue.%I', format('n%s_groups', cfg.number));
	pinned CONSTANT text := 'SET enable_seqscan = off SET enable_bitmapscan = off
		SET plan_cache_mode = force_generic_plan';
	is_new CONSTANT bool := to_regclass(gate) IS NULL;
	-- ends of many are noted: to look so many up costs more
	many CONSTANT bool := coalesce(cfg.max_running > 500, false);
	it text;
BEGIN
	IF NOT cfg.limited THEN
		IF NOT is_new THEN
			PERFORM queue._drop_flow(cfg);
			PERFORM queue._tell(cfg.number, cfg.name);
		END IF;
		RETURN;
	END IF;
	PERFORM queue._until_hours(cfg.hours, clock_timestamp());	-- an error, if there is no such time zone
	-- waits for takes under way: what they have taken is running. To drop triggers takes the stronger one, and who asks for
	-- that behind this one is in a circle with who has begun to read
	EXECUTE format('LOCK TABLE %s IN %s MODE', tab, CASE WHEN is_new THEN 'SHARE ROW EXCLUSIVE' ELSE 'ACCESS EXCLUSIVE' END);
	IF NOT is_new THEN
		IF (SELECT r.relpersistence = 'u' FROM pg_class AS r WHERE r.oid = gate::regclass) <> cfg.unlogged THEN
			FOREACH it IN ARRAY queue._flow_tables(cfg) LOOP
				EXECUTE format('ALTER TABLE %s SET %s', it, CASE WHEN cfg.unlogged THEN 'UNLOGGED' ELSE 'LOGGED' END);
			END LOOP;
		END IF;
		-- who sees the old limits sees an old row, too
		EXECUTE format('WITH old AS (DELETE FROM %1$s RETURNING *)
			INSERT INTO %1$s SELECT coalesce(max(seq) FILTER (WHERE seq < 1152921504606846976), 0) + 1,
				ARRAY(SELECT id FROM %2$s WHERE state = ''leased''), coalesce(max(tat), ''-infinity''),
				coalesce(max(rests), ''-infinity'') FROM old', gate, tab);
		EXECUTE format('UPDATE %s SET id = NULL WHERE id IS NOT NULL', noted);	-- those are not in the row
		EXECUTE format('UPDATE %s SET head = NULL, inside = NULL', groups);	-- what groups are may be another thing now
	ELSE
		PERFORM queue._create_gate(cfg);
		PERFORM queue._grant_gate(cfg);
		EXECUTE format('ALTER FUNCTION queue._take_%1$s RENAME TO _free_%1$s', cfg.number);
	END IF;

	-- The newest row, locked.
	PERFORM queue._generate_flow_one(cfg, '_enter_@n@(OUT seq int8, OUT running int8[], OUT tat timestamptz, OUT rests timestamptz,
		OUT read xid8, OUT opened timestamptz, OUT swept timestamptz, OUT lots bool)', pinned, $body$
#variable_conflict use_column
BEGIN
	IF NOT has_table_privilege('@gate@'::regclass, 'UPDATE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = 'permission denied for table q_' || @name@,
			DETAIL = 'The queue has limits: a right on its table alone is not enough.',
			HINT = format('Its owner can allow it: QUEUE GRANT TAKE ON %I TO %I;', @name@, current_user);
	END IF;
	LOOP
		-- who waits here finds it gone, and looks again
		SELECT g.seq, g.running, g.tat, g.rests, g.read, g.opened, g.swept, g.lots
			INTO seq, running, tat, rests, read, opened, swept, lots
			FROM @gate@ AS g ORDER BY g.seq DESC LIMIT 1 FOR UPDATE;
		IF FOUND THEN
			EXIT WHEN seq < 1152921504606846976 AND cardinality(running) <= 10000;
			DELETE FROM @gate@;	-- not a row of ours
		ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
			PERFORM queue._began_before(@name@);
		END IF;
		IF NOT EXISTS (SELECT FROM @gate@) THEN	-- of a table that a crash has emptied
			INSERT INTO @gate@ SELECT 1, ARRAY(SELECT id FROM @table@ WHERE state = 'leased' LIMIT 10000), '-infinity'
				ON CONFLICT DO NOTHING;
		END IF;
	END LOOP;
END
$body$);

	-- How many of lim may be taken, and if none, how long that lasts; and which of those that were running still are.
	-- next: the rate is used up to this time, at most. A lease that is over counts until its job is promoted.
	-- Nothing is looked up as long as there is room even if all of them were running.
	PERFORM queue._generate_flow_one(cfg, '_room_@n@(q queue.queues, lim int4, running int8[], tat timestamptz,
		rests timestamptz, moment timestamptz, INOUT lots bool, OUT room int4, OUT ms int8, OUT still int8[], OUT next timestamptz,
		after xid8 DEFAULT ''0'')', pinned, replace(replace(replace(replace($body$
DECLARE
	gap CONSTANT float8 := @gap@;	-- seconds
	ahead CONSTANT float8 := gap * @burst@;
	first_end timestamptz;
	free float8;
	rest int8[];
	tokens text[];
	gone bool := false;
BEGIN
	room := lim;
	ms := 0;
	IF q.max_running IS NOT NULL THEN
		still := running;
		-- of many what has ended is noted, which may be less, if rows went by hand
		IF @many@ AND q.max_running - cardinality(still) < 1 THEN
			gone := NOT EXISTS (SELECT FROM @table@ WHERE id = ANY (running) AND state = 'leased');
		END IF;
		IF q.max_running - cardinality(still) < (CASE WHEN @many@ AND NOT lots THEN 1 ELSE lim END)
				AND (NOT @many@ OR lots OR gone OR random() < 0.01) THEN
			SELECT coalesce(array_agg(id) FILTER (WHERE state = 'leased'), '{}')@unread@, array_agg(id) FILTER (WHERE state <> 'leased'),
					array_agg(substr(token, 2, 16)) FILTER (WHERE state <> 'leased') INTO still, rest, tokens FROM @table@
				WHERE id = ANY (running) AND (state = 'leased' OR lots AND state = 'blocked' AND left(token, 1) = 'g');
			lots := rest IS NOT NULL;
			IF lots THEN	-- of those behind the first of a lot nobody tells when they are given back
				rest := queue._lot_held(q, rest, tokens);
				still := still || rest;
			END IF;
		END IF;
		room := least(room, q.max_running - cardinality(still));
		IF room <= 0 THEN
			IF @many@ THEN
				SELECT due INTO first_end FROM (SELECT due, state FROM @table@ WHERE due IS NOT NULL ORDER BY due LIMIT 1000) AS x
					WHERE state IN ('later', 'leased') ORDER BY due LIMIT 1;
				IF NOT FOUND THEN	-- very many that are ready expire first
					SELECT due INTO first_end FROM @table@ WHERE due IS NOT NULL ORDER BY due OFFSET 999 LIMIT 1;
				END IF;
			ELSE
				SELECT min(lease_until) INTO first_end FROM @table@ WHERE id = ANY (still) AND state = 'leased';
			END IF;
			IF rest <> '{}' THEN
				first_end := least(first_end, (SELECT min(l.until) FROM @table@, LATERAL queue._lot_said(token) AS l WHERE id = ANY (rest)));
			END IF;
			ms := CASE WHEN first_end > moment
				THEN ceil(date_part('epoch', least(first_end, moment + interval '1 year') - moment) * 1000)
				ELSE 100 END;	-- it is locked by somebody
		END IF;
	END IF;
	IF gap IS NOT NULL THEN
		-- a clock that was set back: nothing is used up for longer than the burst lasts
		next := greatest(least(tat, moment + make_interval(secs => ahead)), moment);
		free := floor((ahead - date_part('epoch', next - moment)) / gap + 0.000001);
		IF free < 1 THEN
			ms := greatest(ms, ceil((date_part('epoch', next - moment) + gap - ahead) * 1000), 1);
		END IF;
		room := least(room, free);
	END IF;
	IF rests > moment AND q.pause IS NOT NULL THEN
		room := 0;
		ms := greatest(ms, ceil(date_part('epoch', least(rests - moment, q.pause)) * 1000));
	END IF;
	IF q.hours IS NOT NULL THEN
		IF queue._until_hours(q.hours, moment) > 0 THEN
			room := 0;
			ms := greatest(ms, queue._until_hours(q.hours, moment));
		END IF;
	END IF;
END
$body$, '@gap@', coalesce((queue._rate(cfg.rate)).gap::text, 'NULL')),
		'@burst@', coalesce((queue._rate(cfg.rate)).burst::text, 'NULL')),
		-- whose end is noted and was not read yet is there until it is read, which takes one of its id away: it may have been
		-- taken again by then
		'@unread@', CASE WHEN many THEN $unread$
					|| ARRAY(SELECT n.id FROM @noted@ AS n WHERE n.xid >= after AND n.id = ANY (running))$unread$ ELSE '' END),
		'@many@', many::text));
	IF cfg.by_group THEN
		PERFORM queue._generate_admit(cfg);
	END IF;
	PERFORM queue._generate_gated_take(cfg, many);
	PERFORM queue._generate_freed(cfg, many);
	PERFORM queue._tell(cfg.number, cfg.name);	-- who waits may have what it waits for
END
$$;
