-- Limits of a queue: max_running, rate, hours. What a queue has for them: a table of one row, the gate, and a
-- _take_<number> of its own that goes through it. A queue without limits has neither, and pays nothing.
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
-- Read with a lock: in a transaction that sees an old state (REPEATABLE READ) that fails with 40001 when another take,
-- or an ALTER, was in between, so the limits are exact there, too.
--
-- Locks come in one order everywhere: the queue's table, then its gate; several queues by their numbers. A take that was
-- on its way while the limits came, or went, is another function than it should be: it fails with 40001, and is repeated
-- (by the proxy itself). For that the queue has a trigger, which lets no job be leased but through the gate.

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
			LATERAL queue.%I($1, 1, g.running, g.tat, clock_timestamp()) AS r',
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
			AND t.tgname IN ('freed_by_end', 'freed', 'gated', 'gated_hand') LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', it, queue._table(cfg.name));
	END LOOP;
END
$$;

-- The take, or the hand over, began before the queue had these limits, or none.
CREATE OR REPLACE FUNCTION queue._not_gated(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '40001',
		MESSAGE = format('the limits of queue "%s" have changed', name),
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
	locked int8;
BEGIN
	FOR cfg IN SELECT c.* FROM queue.queues AS c WHERE c.name = ANY (names) AND c.limited ORDER BY c.number LOOP
		EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', queue._table(cfg.name));
		IF to_regclass(format('queue.n%s_gate', cfg.number)) IS NOT NULL THEN
			LOOP	-- who waits here finds it gone, and looks again
				EXECUTE format('SELECT seq FROM queue.n%s_gate ORDER BY seq DESC LIMIT 1 FOR UPDATE', cfg.number)
					INTO locked;
				EXIT WHEN locked IS NOT NULL;
				EXECUTE format('SELECT seq FROM queue.n%s_gate LIMIT 1', cfg.number) INTO locked;
				EXIT WHEN locked IS NULL;	-- the take makes one
			END LOOP;
		END IF;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_flow(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF to_regclass(format('queue.%I', format('n%s_gate', cfg.number))) IS NOT NULL THEN
		PERFORM queue._drop_flow_triggers(cfg);
		EXECUTE format('DROP TABLE queue.%I', format('n%s_gate', cfg.number));
		EXECUTE format('DROP FUNCTION queue._take_%1$s, queue._room_%1$s;
			ALTER FUNCTION queue._free_%1$s RENAME TO _take_%1$s', cfg.number);
		EXECUTE format('DROP FUNCTION queue._freed_%1$s, queue._gated_%1$s', cfg.number);
	END IF;
END
$$;

-- Those who may take from the queue may use its gate. role: quoted. Empty, if there is none.
CREATE OR REPLACE FUNCTION queue._gate_right_sql(gives bool, cfg queue.queues, role text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	gate CONSTANT text := format('n%s_gate', cfg.number);
BEGIN
	RETURN CASE WHEN to_regclass(format('queue.%I', gate)) IS NULL THEN ''
		WHEN gives THEN format('GRANT SELECT, INSERT, UPDATE, DELETE ON queue.%I TO %s', gate, role)
		ELSE format('REVOKE ALL ON queue.%I FROM %s CASCADE', gate, role) END;
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

CREATE OR REPLACE FUNCTION queue._generate_flow(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	gate CONSTANT text := format('queue.%I', format('n%s_gate', cfg.number));
	pinned CONSTANT text := 'SET enable_seqscan = off SET enable_bitmapscan = off
		SET plan_cache_mode = force_generic_plan';
	is_new CONSTANT bool := to_regclass(gate) IS NULL;
BEGIN
	IF NOT cfg.limited THEN
		IF NOT is_new THEN
			PERFORM queue._drop_flow(cfg);
			PERFORM queue._tell(cfg.number, cfg.name);
		END IF;
		RETURN;
	END IF;
	PERFORM queue._until_hours(cfg.hours, clock_timestamp());	-- an error, if there is no such time zone
	-- waits for takes under way: what they have taken is running
	EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', tab);
	IF NOT is_new THEN
		IF (SELECT r.relpersistence = 'u' FROM pg_class AS r WHERE r.oid = gate::regclass) <> cfg.unlogged THEN
			EXECUTE format('ALTER TABLE %s SET %s', gate, CASE WHEN cfg.unlogged THEN 'UNLOGGED' ELSE 'LOGGED' END);
		END IF;
		-- who sees the old limits sees an old row, too
		EXECUTE format('WITH old AS (DELETE FROM %1$s RETURNING *)
			INSERT INTO %1$s SELECT coalesce(max(seq) FILTER (WHERE seq < 1152921504606846976), 0) + 1,
				ARRAY(SELECT id FROM %2$s WHERE state = ''leased''), coalesce(max(tat), ''-infinity'') FROM old',
			gate, tab);
	ELSE
		EXECUTE format('CREATE %s TABLE %s (seq int8 PRIMARY KEY, running int8[] NOT NULL, tat timestamptz NOT NULL)
			WITH (vacuum_truncate = off, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
				autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 2147483647)',
			CASE WHEN cfg.unlogged THEN 'UNLOGGED' ELSE '' END, gate);
		EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', gate);
		EXECUTE format('INSERT INTO %s SELECT 1, coalesce(array_agg(id), ''{}''), ''-infinity'' FROM %s WHERE state = ''leased''',
			gate, tab);
		PERFORM queue._grant_gate(cfg);
		EXECUTE format('ALTER FUNCTION queue._take_%1$s RENAME TO _free_%1$s', cfg.number);
	END IF;

	-- How many of lim may be taken, and if none, how long that lasts; and which of those that were running still are.
	-- next: the rate is used up to this time, at most. A lease that is over counts until its job is promoted.
	PERFORM queue._generate_one(format('_room_%s(q queue.queues, lim int4, running int8[], tat timestamptz,
		moment timestamptz, OUT room int4, OUT ms int8, OUT still int8[], OUT next timestamptz)',
		cfg.number), pinned, replace(replace($body$
DECLARE
	gap CONSTANT float8 := @gap@;	-- seconds
	ahead CONSTANT float8 := gap * @burst@;
	first_end timestamptz;
	free float8;
BEGIN
	room := lim;
	ms := 0;
	IF q.max_running IS NOT NULL THEN
		SELECT coalesce(array_agg(id), '{}'), min(lease_until) INTO still, first_end
			FROM @table@ WHERE id = ANY (running) AND state = 'leased';
		room := least(room, q.max_running - cardinality(still));
		IF room <= 0 THEN
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
	IF q.hours IS NOT NULL THEN
		IF queue._until_hours(q.hours, moment) > 0 THEN
			room := 0;
			ms := greatest(ms, queue._until_hours(q.hours, moment));
		END IF;
	END IF;
END
$body$, '@gap@', coalesce((queue._rate(cfg.rate)).gap::text, 'NULL')),
		'@burst@', coalesce((queue._rate(cfg.rate)).burst::text, 'NULL')), tab);

	PERFORM queue._generate_one(replace(replace($head$_take_@n@(q queue.queues, lim int4, lease interval,
		who text, said int4, pop bool, prios int8[], low_marks int8[], since int8, moment timestamptz,
		seed int8 DEFAULT NULL) RETURNS SETOF queue._taken_@payload@$head$, '@n@', cfg.number::text), '@payload@', cfg.payload),
		pinned, replace(replace(replace(replace($body$
#variable_conflict use_column
DECLARE
	gap CONSTANT float8 := @gap@;
	at int8;
	old_running int8[];
	old_tat timestamptz;
	may record;
	job queue._taken_@payload@;
	ids int8[] := '{}';
	instant timestamptz;
BEGIN
	IF q.paused OR lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM set_config('qbouncer.gate', '@n@', true);
		RETURN QUERY SELECT * FROM queue._free_@n@(q, lim, lease, who, said, pop, prios, low_marks, since, moment, seed);
		RETURN;
	END IF;
	LOCK TABLE @table@ IN ROW EXCLUSIVE MODE;
	IF to_regclass('@gate@') IS NULL THEN
		PERFORM queue._not_gated(q.name);
	END IF;
	-- before the gate: the end of an attempt may have to wait for somebody who has locked the next job of its group
	IF EXISTS (SELECT FROM @table@ WHERE state IN ('later', 'leased') AND coalesce(lease_until, run_at) <= moment) THEN
		PERFORM queue._promote(q, 1000);
	END IF;
	LOOP
		-- who waits here finds it gone, and looks again
		SELECT g.seq, g.running, g.tat INTO at, old_running, old_tat FROM @gate@ AS g ORDER BY g.seq DESC LIMIT 1 FOR UPDATE;
		IF FOUND THEN
			EXIT WHEN at < 1152921504606846976 AND cardinality(old_running) <= 10000;
			DELETE FROM @gate@;	-- not a row of ours
		ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
			PERFORM queue._not_gated(q.name);
		END IF;
		IF NOT EXISTS (SELECT FROM @gate@) THEN	-- of a table that a crash has emptied
			INSERT INTO @gate@ SELECT 1, ARRAY(SELECT id FROM @table@ WHERE state = 'leased' LIMIT 10000), '-infinity'
				ON CONFLICT DO NOTHING;
		END IF;
	END LOOP;
	instant := clock_timestamp();
	SELECT * INTO may FROM queue._room_@n@(q, lim, old_running, old_tat, instant);
	IF may.room > 0 THEN
		PERFORM set_config('qbouncer.gate', '@n@', true);
		FOR job IN SELECT * FROM queue._free_@n@(q, may.room, lease, who, said, pop, prios, low_marks, since,
				clock_timestamp(), seed) LOOP
			RETURN NEXT job;
			IF job.id IS NOT NULL THEN
				ids := ids || job.id;
			END IF;
		END LOOP;
		IF cardinality(ids) > 0 THEN
			INSERT INTO @gate@ VALUES (at + 1,
				CASE WHEN q.max_running IS NULL THEN '{}' ELSE may.still || CASE WHEN pop THEN '{}' ELSE ids END END,
				coalesce(may.next + make_interval(secs => gap * cardinality(ids)), '-infinity'));
			DELETE FROM @gate@ AS g WHERE g.seq <= at;
		END IF;
	ELSIF since >= 0 OR since IS NULL THEN
		job.due_ms := may.ms;
		RETURN NEXT job;
	ELSE
		RETURN NEXT job;
	END IF;
END
$body$, '@gap@', coalesce((queue._rate(cfg.rate)).gap::text, 'NULL')), '@gate@', gate),
		'@n@', cfg.number::text), '@payload@', cfg.payload), tab);

	-- An end makes room: those who wait are told. (Time does, too: they know when.)
	PERFORM queue._generate_one(format('_freed_%s() RETURNS trigger', cfg.number), '',
		replace(replace($body$
BEGIN
	IF coalesce(strpos(current_setting('qbouncer.tell', true) || ' ', ' @n@ '), 0) = 0 THEN
		PERFORM queue._tell(@n@, @name@);
	END IF;
	RETURN NULL;
END
$body$, '@name@', queue._name_literal(cfg.name)), '@n@', cfg.number::text), tab);
	PERFORM queue._generate_one(format('_gated_%s() RETURNS trigger', cfg.number), '',
		replace(replace($body$
BEGIN
	IF current_setting('qbouncer.gate', true) IS DISTINCT FROM '@n@' THEN
		PERFORM queue._not_gated(@name@);
	END IF;
	RETURN NEW;
END
$body$, '@name@', queue._name_literal(cfg.name)), '@n@', cfg.number::text), tab);
	EXECUTE format('GRANT EXECUTE ON FUNCTION queue._take_%1$s, queue._room_%1$s TO PUBLIC;
		REVOKE ALL ON FUNCTION queue._freed_%1$s, queue._gated_%1$s FROM PUBLIC', cfg.number);
	PERFORM queue._drop_flow_triggers(cfg);
	EXECUTE format('CREATE TRIGGER gated BEFORE UPDATE OF state ON %1$s FOR EACH ROW
			WHEN (NEW.state = ''leased'' AND OLD.state = ''ready'') EXECUTE FUNCTION queue._gated_%2$s();
		CREATE TRIGGER gated_hand BEFORE INSERT ON %1$s FOR EACH ROW
			WHEN (NEW.state = ''leased'') EXECUTE FUNCTION queue._gated_%2$s()', tab, cfg.number);
	IF cfg.max_running IS NOT NULL THEN
		EXECUTE format('CREATE TRIGGER freed_by_end AFTER DELETE ON %1$s FOR EACH ROW WHEN (OLD.state = ''leased'')
				EXECUTE FUNCTION queue._freed_%2$s();
			CREATE TRIGGER freed AFTER UPDATE OF state ON %1$s FOR EACH ROW
				WHEN (OLD.state = ''leased'' AND NEW.state <> ''leased'') EXECUTE FUNCTION queue._freed_%2$s()',
			tab, cfg.number);
	END IF;
	PERFORM queue._tell(cfg.number, cfg.name);	-- who waits may have what it waits for
END
$$;
