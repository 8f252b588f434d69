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
-- Before the statement, so that what is refused was never written; and after it, for many rows.

CREATE OR REPLACE FUNCTION queue._generate_length(number int4, name text, most int4) RETURNS void
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
		replace(replace(replace(replace($body$
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
			UNION ALL (SELECT 1 FROM @table@ WHERE state IN ('later', 'leased') LIMIT most + 1)
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
	RAISE EXCEPTION USING ERRCODE = 'QB004',
		MESSAGE = format('queue "%s" is full', @name@),
		DETAIL = format('Its max_length is %s, of unfinished jobs.', most),
		HINT = format('Push again later, or: QUEUE ALTER %I SET (max_length = ...);', @name@);
END
$body$, '@most@', most::text), '@ids@', ids), '@room@', room), '@name@', queue._name_literal(name)), tab);
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
