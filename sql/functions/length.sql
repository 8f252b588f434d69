-- max_length: what a limited queue has for it: two triggers, their function, and a sequence. A queue
-- without a limit has none of them and pays nothing.
--
-- The length is how many jobs are not finished: ready, later, leased, blocked. Nothing counts it in a row,
-- which every push would wait for. A push looks whether there can be too many: a count that found n
-- jobs when the last id was i allows ids up to i + most - n, however few jobs have ended since. The
-- sequence n<number>_room holds that id: it is shared by all sessions, and waits for nobody. Beyond it
-- somebody counts again, in the indexes, up to the limit.
--
-- So nobody is refused unless a count has found the queue full, and a push that sees a full queue is
-- refused; but pushes that have not committed do not see each other, and may together exceed the limit
-- by what they push. Counting costs as much as the queue is long. With limits above 1000, so that a queue at its
-- limit is not counted in every push: a count allows at least a hundredth of the limit, and a full queue
-- is not counted again for ten times as long as that took, at most a second (a negative value of
-- the sequence: until this millisecond of the epoch).
--
-- overflow = drop_oldest: what is too much goes away, after the push, of what waits: first what is ready, of the lowest
-- priority what is next, then what is delayed, then what is blocked. What runs stays; if that is as much as there may be,
-- the push is refused. With limits above 1000 a hundredth more goes, so that not every push counts.
--
-- Before the statement, so that what is refused was never written; and after it, for many rows.

CREATE OR REPLACE FUNCTION queue._is_full(name text, most int4, why text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = 'QB004',
		MESSAGE = format('queue "%s" is full', name),
		DETAIL = format('Its max_length is %s, %s.', most, why),
		HINT = format('Push again later, or: QUEUE ALTER %I SET (max_length = ...);', name);
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_length(number int4, name text, most int4, overflow text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(name);
	ids CONSTANT text := format('queue.%I', format('n%s_id', number));
	room CONSTANT text := format('queue.%I', format('n%s_room', number));
	full_fn CONSTANT text := format('queue._full_%s', number);
BEGIN
	IF most IS NULL THEN
		IF to_regclass(room) IS NOT NULL THEN
			EXECUTE format('DROP TRIGGER full_before ON %1$s; DROP TRIGGER full_after ON %1$s;
				DROP SEQUENCE %2$s; DROP FUNCTION %3$s()', tab, room, full_fn);
		END IF;
		RETURN;
	END IF;
	PERFORM queue._generate_one(format('_full_%s() RETURNS trigger', number), 'SECURITY DEFINER
		SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan',
		replace(replace(replace(replace(replace(replace(CASE overflow WHEN 'error' THEN $body$
DECLARE
	most CONSTANT int4 := @most@;
	began CONSTANT timestamptz := clock_timestamp();
	began_ms CONSTANT int8 := floor(date_part('epoch', began) * 1000);
	more CONSTANT int4 := (TG_WHEN = 'BEFORE')::int4;	-- one at least, or they are there already
	ids int8;
	allowed int8;
	n int8;
BEGIN
	SELECT last_value - (NOT is_called)::int4 INTO ids FROM @ids@;
	SELECT last_value INTO allowed FROM @room@;
	-- more than the limit: the ids began anew, which those of an unlogged table do after a crash
	IF allowed BETWEEN ids + more AND ids + most THEN
		RETURN NULL;
	ELSIF allowed < 0 AND -allowed BETWEEN began_ms AND began_ms + 1000 THEN
		n := most + 1;
	ELSE
		SELECT count(*) INTO n FROM (
			(SELECT 1 FROM @table@ WHERE state = 'ready' ORDER BY priority DESC, position LIMIT most + 1)
			UNION ALL (SELECT 1 FROM @table@ WHERE due IS NOT NULL AND state IN ('later', 'leased') LIMIT most + 1)
			UNION ALL (SELECT 1 FROM @table@ WHERE state = 'blocked' ORDER BY "group", id LIMIT most + 1)
			LIMIT most + 1) AS unfinished;
		IF n + more <= most THEN
			PERFORM setval('@room@', ids + greatest(most - n, CASE WHEN most > 1000 THEN most / 100 END));
			RETURN NULL;
		ELSIF most > 1000 THEN
			PERFORM setval('@room@', -began_ms - least(1000,
				(date_part('epoch', clock_timestamp() - began) * 10000)::int8));
		END IF;
	END IF;
	PERFORM queue._is_full(@name@, most, 'of unfinished jobs');
	RETURN NULL;
END
$body$ ELSE $body$
DECLARE
	most CONSTANT int4 := @most@;
	slack CONSTANT int4 := CASE WHEN most > 1000 THEN most / 100 ELSE 0 END;
	keeps CONSTANT bool := (SELECT retain_done > interval '0' FROM queue.queues WHERE number = @n@);
	was CONSTANT text := coalesce(current_setting('qbouncer.tell', true), '');
	why CONSTANT text := coalesce(current_setting('qbouncer.gone', true), '');	-- of what this may be a part of
	ids int8;
	allowed int8;
	n int8;
	running int8;
	over int8;
	before int8;
	gone int8;
	prio int8;
BEGIN
	IF TG_WHEN = 'BEFORE' THEN
		RETURN NULL;
	END IF;
	SELECT last_value - (NOT is_called)::int4 INTO ids FROM @ids@;
	SELECT last_value INTO allowed FROM @room@;
	IF allowed BETWEEN ids AND ids + most THEN
		RETURN NULL;
	END IF;
	SELECT count(*), count(*) FILTER (WHERE unfinished.state = 'leased') INTO n, running FROM (
		SELECT state FROM @table@ WHERE state = 'ready'
		UNION ALL SELECT state FROM @table@ WHERE due IS NOT NULL AND state IN ('later', 'leased')
		UNION ALL SELECT state FROM @table@ WHERE state = 'blocked') AS unfinished;
	IF n <= most THEN
		PERFORM setval('@room@', ids + greatest(most - n, slack));
		RETURN NULL;
	ELSIF running >= most THEN
		PERFORM queue._is_full(@name@, most, 'and as many run');
	END IF;
	PERFORM set_config('qbouncer.tell', 'nobody ' || was, true);
	PERFORM set_config('qbouncer.gone', 'dropped', true);
	over := least(n - most + slack, n - running);
	-- again, as what has gone lets others of its group go on, which are ready now
	LOOP
		before := over;
		prio := -3000000000;
		LOOP
			SELECT priority INTO prio FROM @table@ WHERE state = 'ready' AND priority > prio
				ORDER BY priority, position DESC LIMIT 1;
			EXIT WHEN NOT FOUND OR over <= 0;
			WITH gone AS (DELETE FROM @table@ WHERE ctid = ANY (ARRAY(SELECT ctid FROM @table@
				WHERE state = 'ready' AND priority = prio ORDER BY priority DESC, position LIMIT over FOR UPDATE SKIP LOCKED)) RETURNING *),
			kept AS (@keep@ WHERE keeps)
			SELECT count(*) INTO gone FROM gone;
			over := over - gone;
		END LOOP;
		IF over > 0 THEN
			WITH gone AS (DELETE FROM @table@ WHERE ctid = ANY (ARRAY(SELECT ctid FROM @table@
				WHERE due IS NOT NULL AND state = 'later' ORDER BY due
				LIMIT over FOR UPDATE SKIP LOCKED)) RETURNING *),
			kept AS (@keep@ WHERE keeps)
			SELECT count(*) INTO gone FROM gone;
			over := over - gone;
		END IF;
		IF over > 0 THEN
			WITH gone AS (DELETE FROM @table@ WHERE ctid = ANY (ARRAY(SELECT ctid FROM @table@
				WHERE state = 'blocked' ORDER BY id LIMIT over FOR UPDATE SKIP LOCKED)) RETURNING *),
			kept AS (@keep@ WHERE keeps)
			SELECT count(*) INTO gone FROM gone;
			over := over - gone;
		END IF;
		EXIT WHEN over <= 0 OR over = before;
	END LOOP;
	PERFORM set_config('qbouncer.gone', why, true);
	PERFORM set_config('qbouncer.tell', was, true);
	PERFORM setval('@room@', ids + slack);
	RETURN NULL;
END
$body$ END, '@most@', most::text), '@ids@', ids), '@room@', room), '@name@', queue._name_literal(name)), '@n@', number::text),
		'@keep@', queue._keep('@archive@', 'gone', 'dropped')), tab);
	EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', full_fn);
	IF to_regclass(room) IS NULL THEN
		EXECUTE format('CREATE SEQUENCE %s MINVALUE -9223372036854775807 START 0', room);
		EXECUTE format('ALTER SEQUENCE %2$s OWNED BY %1$s.id;
			CREATE TRIGGER full_before BEFORE INSERT ON %1$s EXECUTE FUNCTION %3$s();
			CREATE TRIGGER full_after AFTER INSERT ON %1$s EXECUTE FUNCTION %3$s()', tab, room, full_fn);
	ELSE
		-- waits for pushes that go by the old limit, which would note how many ids that allows
		EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', tab);
		PERFORM setval(room, 0);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_length(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF to_regprocedure(format('queue._full_%s()', number)) IS NOT NULL THEN	-- else a notice says so
		EXECUTE format('DROP FUNCTION queue._full_%s', number);
	END IF;
END
$$;

-- max_per_transaction: how many jobs a transaction may push, as a guard against loops that do not end. What it has pushed
-- by now is in a setting of the transaction, which a rollback to a savepoint sets back. Pushes of several clients that the
-- proxy has put into one transaction are made one by one if they are too many.
CREATE OR REPLACE FUNCTION queue._count_pushed() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	setting CONSTANT text := 'qbouncer.pushed_' || TG_ARGV[0];
	most CONSTANT int8 := TG_ARGV[1];
	now_is CONSTANT int8 := greatest(nullif(current_setting(setting, true), '')::int8, 0) + (SELECT count(*) FROM pushed);
BEGIN
	IF now_is > most THEN
		RAISE EXCEPTION USING ERRCODE = 'QB004',
			MESSAGE = format('a transaction may push %s jobs to queue "%s" at most', most, substr(TG_TABLE_NAME, 3)),
			HINT = format('Push them in several transactions, or: QUEUE ALTER %I SET (max_per_transaction = ...);',
				substr(TG_TABLE_NAME, 3));
	END IF;
	PERFORM set_config(setting, now_is::text, true);
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_most(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = to_regclass(queue._table(cfg.name)) AND t.tgname = 'most') THEN
		EXECUTE format('DROP TRIGGER most ON %s', queue._table(cfg.name));
	END IF;
	IF cfg.max_per_transaction IS NOT NULL THEN
		EXECUTE format('CREATE TRIGGER most AFTER INSERT ON %s REFERENCING NEW TABLE AS pushed
			FOR EACH STATEMENT EXECUTE FUNCTION queue._count_pushed(%L, %L)', queue._table(cfg.name), cfg.number,
			cfg.max_per_transaction);
	END IF;
END
$$;
