-- AFTER: jobs that wait until others are done, also of other queues.
--
-- Such a job is blocked and has the names of those that it still waits for ("behind"); each of these has its name in
-- turn ("followed"), so that the trigger of who ends (group.sql) has to look for nobody. A row that has many would be written
-- anew, and read, for each of them: beyond some it ends with "+", and the others are in queue.followers.
--
-- One that has a group, too, is not of it while it waits for others: the group stands before them in "behind", as
-- '=<group>'. When they are done it takes its place among the group's blocked jobs, which is that of its id.
--
-- A push locks the jobs that it names: they end before it, which it sees, or behind its commit, and then they know of
-- it. That is in the order of queues and ids. What ends by no statement of ours (DROP of the queue, TRUNCATE) is found
-- when somebody looks again: the maintenance, and the commit of whatever makes such a job blocked once more.

CREATE OR REPLACE FUNCTION queue._generate_after(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- For a push, whose role may await the jobs of this queue: locks one, and writes down who follows it. waits: it is not
	-- finished; dead; done: it was being worked on, and is not there any more; gone: it was there. NULL: it was not.
	PERFORM queue._generate_one(format('_follow_%s(job int8, follower text) RETURNS text', number),
		'SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off', replace($body$
#variable_conflict use_column
DECLARE
	was record;
	those text;
BEGIN
	SELECT state, left(token, 1) = 'x' OR lease_until <= clock_timestamp() AS over INTO was FROM @table@ WHERE id = job;
	SELECT followed INTO those FROM @table@ WHERE id = job AND state <> 'dead' FOR NO KEY UPDATE;
	IF FOUND THEN
		IF follower IS NULL THEN
			NULL;
		ELSIF coalesce(octet_length(those), 0) + octet_length(follower) < 1000 THEN
			UPDATE @table@ SET followed = coalesce(followed || ',', '') || follower WHERE id = job;
		ELSE
			IF right(those, 1) IS DISTINCT FROM '+' THEN
				UPDATE @table@ SET followed = coalesce(followed || ',', '') || '+' WHERE id = job;
			END IF;
			INSERT INTO queue.followers SELECT @n@, job, f FROM unnest(string_to_array(follower, ',')) AS f
				ON CONFLICT DO NOTHING;
		END IF;
		RETURN 'waits';
	ELSIF was.state IS NULL THEN
		RETURN NULL;
	ELSIF EXISTS (SELECT FROM @table@ WHERE id = job) THEN
		RETURN 'dead';
	END IF;
	RETURN CASE WHEN was.state = 'leased' AND NOT was.over THEN 'done' ELSE 'gone' END;
END
$body$, '@n@', number::text), queue._table(name));
	EXECUTE format('REVOKE ALL ON FUNCTION queue._follow_%s FROM PUBLIC', number);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_after(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('DROP FUNCTION IF EXISTS queue._follow_%s', number);
END
$$;

-- Queues whose groups have limits or turns have other triggers.
CREATE OR REPLACE FUNCTION queue._no_after(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF queue._group_mode(cfg) <> 'order' THEN
		RAISE EXCEPTION USING ERRCODE = '0A000',
			MESSAGE = format('AFTER is not possible with jobs of queue "%s"', cfg.name),
			DETAIL = 'Its groups have limits (max_running_per_group, rate_per_group, pause_per_group, fair).',
			HINT = 'Keep the stages of a pipeline in queues without these options.';
	END IF;
END
$$;

-- The group of a job that waits, and is not in it yet.
CREATE OR REPLACE FUNCTION queue._group_later() RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'coalesce("group", CASE WHEN left(behind[1], 1) = ''='' THEN substr(behind[1], 2) END)';
END
$$;

CREATE OR REPLACE FUNCTION queue._check_after(duplicate text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF lower(duplicate) IN ('replace', 'rerun') THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('AFTER and ON DUPLICATE %s cannot be given together', upper(duplicate)),
			HINT = 'With AFTER a KEY may be ON DUPLICATE IGNORE or ERROR.';
	END IF;
END
$$;

-- What the archive knows of the end of a job, or NULL.
CREATE OR REPLACE FUNCTION queue._ended_as(name text, job int8) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	how text;
BEGIN
	EXECUTE format('SELECT state FROM %s WHERE id = $1 ORDER BY ended_at + interval ''0'' DESC LIMIT 1', queue._archive(name))
		INTO how USING job;
	RETURN how;
END
$$;

-- Of the jobs that a push names those that are not done, locked; in their order.
CREATE OR REPLACE FUNCTION queue._after_which(refs text[]) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	one record;
	how text;
	ret text[] := '{}';
BEGIN
	IF array_position(refs, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a job must not be null';
	END IF;
	FOR one IN SELECT DISTINCT l.number, l.name, l.id FROM unnest(queue._list(refs)) AS r,
			LATERAL queue._locate(r, NULL, 'PUSH ... AFTER') AS l ORDER BY l.number, l.id LOOP
		IF NOT queue._awaitable(one.name) THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for queue "%s"', one.name),
				DETAIL = 'A job may be pushed AFTER jobs that may be awaited.',
				HINT = format('The owner of the queue can allow it: QUEUE GRANT AWAIT ON %I TO ...;', one.name);
		END IF;
		IF NOT queue._still(one.name) THEN
			PERFORM queue._no_job(one.number || '-' || one.id);
		END IF;
		PERFORM queue._no_after(queue._find(one.name));
		EXECUTE format('SELECT queue._follow_%s($1, NULL)', one.number) INTO how USING one.id;
		-- where dead jobs are pushed elsewhere, it need not have been done
		IF how IS NULL OR how = 'gone' OR how = 'done' AND (queue._find(one.name)).dead_queue IS NOT NULL THEN
			how := queue._ended_as(one.name, one.id);
		END IF;
		IF how IS NULL THEN
			PERFORM queue._no_job(one.number || '-' || one.id);
		ELSIF how = 'dead' THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('job %s-%s is dead', one.number, one.id),
				DETAIL = 'What waits for it would never start.',
				HINT = format('Run it again first: QUEUE RERUN ''%s-%s'';', one.number, one.id);
		ELSIF how NOT IN ('waits', 'done') THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('job %s-%s was %s', one.number, one.id, how),
				DETAIL = 'What waits for it would never start.';
		ELSIF how = 'waits' THEN
			ret := ret || (one.number || '-' || one.id);
		END IF;
	END LOOP;
	RETURN nullif(ret, '{}');
END
$$;

-- These jobs, which are locked, are followed by those that were just pushed.
CREATE OR REPLACE FUNCTION queue._after_follow(number int4, ids int8[], after text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	job text;
BEGIN
	FOREACH job IN ARRAY after LOOP
		EXECUTE format('SELECT queue._follow_%s($1, $2)', split_part(job, '-', 1))
			USING split_part(job, '-', 2)::int8, (SELECT string_agg(number || '-' || i, ',') FROM unnest(ids) AS i);
	END LOOP;
END
$$;

-- A job that others follow has ended: those that waited for nothing else go on, if it is done; otherwise they die, and
-- then those behind them: one after the other, as triggers within triggers are as deep as the stack. Whoever does not wait
-- for it is left alone, whatever stands in the list; so is who is in a group, which lets him go in its order.
-- its_group: that of the job that has ended, if its caller lets the next one of it go, who knows more than is known here:
-- with whom those behind it are (lot.sql).
CREATE OR REPLACE FUNCTION queue._followed(job text, followers text, how text, error text, its_group text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	one record;
	rest text[];
	g text;
	was text;
	next text;
	why text;
	jobs text[] := ARRAY[job];		-- that have ended, who follows them, and the errors of the dead
	lists text[] := ARRAY[followers];
	errors text[] := ARRAY[error];
	at int4 := 1;
	died int4[] := '{}';		-- the queues of those that die
	gone CONSTANT text := coalesce(current_setting('qbouncer.gone', true), '');
	moment CONSTANT timestamptz := clock_timestamp();
	shape CONSTANT text := '^[0-9]{1,9}-[0-9]{1,18}$';
BEGIN
	WHILE at <= cardinality(jobs) LOOP
		-- who may await a job may have written anything there
		FOR one IN SELECT DISTINCT c.number, c.name, f.id
				FROM (SELECT CASE WHEN name ~ shape THEN split_part(name, '-', 1)::int4 END AS number,
						CASE WHEN name ~ shape THEN split_part(name, '-', 2)::int8 END AS id
					FROM (SELECT unnest(string_to_array(lists[at], ',')) UNION ALL
						SELECT x.follower FROM queue.followers AS x
						WHERE x.queue = CASE right(lists[at], 1) WHEN '+' THEN split_part(jobs[at], '-', 1)::int4 END
							AND x.job = CASE right(lists[at], 1) WHEN '+' THEN split_part(jobs[at], '-', 2)::int8 END) AS n (name)) AS f
				JOIN queue.queues AS c ON c.number = f.number ORDER BY c.number, f.id LOOP
			EXECUTE format('SELECT state, behind FROM %s WHERE id = $1 AND $2 = ANY (behind) AND "group" IS NULL FOR UPDATE',
				queue._table(one.name)) INTO was, rest USING one.id, jobs[at];
			CONTINUE WHEN rest IS NULL;
			rest := nullif(array_remove(rest, jobs[at]), '{}');
			g := substring(rest[1] FROM '^=(.*)$');
			IF at > 1 OR how <> 'done' THEN
				IF was = 'blocked' THEN
					why := format('job %s, which it waited for, %s', jobs[at], CASE WHEN at > 1 OR how = 'dead'
						THEN 'is dead' || coalesce(': ' || left(errors[at], 1000), '') WHEN how = 'expired' THEN 'has expired'
						WHEN how = 'gone' THEN 'is gone' ELSE 'was ' || how END);
					PERFORM set_config('qbouncer.gone', 'followed', true);
					EXECUTE format($sql$UPDATE %s SET state = 'dead', due = NULL, ended_at = $2, failed_at = $2, failures = failures + 1,
						error = $3 WHERE id = $1 RETURNING followed$sql$, queue._table(one.name))
						INTO next USING one.id, moment, why;
					PERFORM set_config('qbouncer.gone', gone, true);
					died := died || one.number;
					IF next IS NOT NULL THEN
						jobs := jobs || (one.number || '-' || one.id);
						lists := lists || next;
						errors := errors || why;
					END IF;
				END IF;
			ELSIF was = 'blocked' AND g IS NOT NULL AND cardinality(rest) = 1 THEN
				-- and at the commit it looks again (_blocked_<number>)
				EXECUTE format('UPDATE %1$s SET behind = NULL, "group" = $2, position = DEFAULT WHERE id = $1;', queue._table(one.name))
					USING one.id, g;
				IF its_group IS DISTINCT FROM g OR one.number <> split_part(job, '-', 1)::int4 THEN
					EXECUTE format('SELECT queue._next_%s($1) WHERE NOT EXISTS (SELECT FROM %s WHERE "group" = $1
						AND state IN (''ready'', ''later'', ''leased''))', one.number, queue._table(one.name)) USING g;
					PERFORM queue._tell(one.number, one.name);
				END IF;
			ELSIF was = 'blocked' AND rest IS NULL THEN
				EXECUTE format($sql$UPDATE %s SET behind = NULL, state = CASE WHEN run_at > $2 THEN 'later' ELSE 'ready' END,
					due = CASE WHEN run_at > $2 THEN least(run_at, expires_at) ELSE expires_at END,
					run_at = greatest(run_at, $2), position = DEFAULT WHERE id = $1$sql$, queue._table(one.name))
					USING one.id, moment;
				PERFORM queue._tell(one.number, one.name);
			ELSIF g IS NOT NULL AND cardinality(rest) = 1 THEN	-- it is dead: run again, it is of its group
				EXECUTE format('UPDATE %s SET behind = NULL, "group" = $2 WHERE id = $1', queue._table(one.name)) USING one.id, g;
			ELSE
				EXECUTE format('UPDATE %s SET behind = $2 WHERE id = $1', queue._table(one.name)) USING one.id, rest;
			END IF;
		END LOOP;
		IF at = 1 AND how <> 'dead' AND right(followers, 1) = '+' THEN
			DELETE FROM queue.followers AS x
				WHERE x.queue = split_part(jobs[1], '-', 1)::int4 AND x.job = split_part(jobs[1], '-', 2)::int8;
		END IF;
		at := at + 1;
	END LOOP;
	PERFORM queue._died(d, count(*)) FROM unnest(died) AS d GROUP BY d;
END
$$;

-- Looks again at one that waits: are those that it waits for still there, and know of it? One that does not was not named
-- by a push, which locks it: nothing is told of it, as who wrote its name need not have a right to that. strict: then it
-- is gone. (Who is run again by hand does not wait for what nobody knows any more.) Who is right is not locked.
CREATE OR REPLACE FUNCTION queue._look_after(number int4, name text, id int8, strict bool) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	me CONSTANT text := number || '-' || id;
	jobs text[];
	job text;
	q text;
	was text;
	why text;
BEGIN
	EXECUTE format('SELECT behind FROM %s WHERE id = $1 AND state = ''blocked''', queue._table(name)) INTO jobs USING id;
	FOREACH job IN ARRAY coalesce(jobs, '{}') LOOP
		CONTINUE WHEN left(job, 1) = '=';
		was := NULL;
		why := NULL;
		IF job ~ '^[0-9]{1,9}-[0-9]{1,18}$' THEN
			SELECT c.name INTO q FROM queue.queues AS c WHERE c.number = split_part(job, '-', 1)::int4;
			IF FOUND THEN
				EXECUTE format('SELECT state, error FROM %s WHERE id = $1 AND ($2 = ANY (string_to_array(followed, '',''))
						OR right(followed, 1) = ''+'' AND EXISTS (SELECT FROM queue.followers AS x
							WHERE x.queue = $3 AND x.job = $1 AND x.follower = $2))',
					queue._table(q)) INTO was, why USING split_part(job, '-', 2)::int8, me, split_part(job, '-', 1)::int4;
			END IF;
		END IF;
		IF was IS NULL OR was = 'dead' THEN
			PERFORM queue._followed(job, me, coalesce(was, CASE WHEN strict THEN 'gone' ELSE 'done' END), why);
		END IF;
	END LOOP;
END
$$;

-- The same of a thousand of a queue, from anywhere on if there are more: nobody waits for ever. Anybody may look: what is
-- so is so.
CREATE OR REPLACE FUNCTION queue._look_after_all(number int4) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	name CONSTANT text := (SELECT c.name FROM queue.queues AS c WHERE c.number = $1);
	waits CONSTANT text := format('FROM %s WHERE state = ''blocked'' AND "group" IS NULL', queue._table(name));
	start int8 := 0;
	last int8;
	one int8;
	known bool;
	around bool := false;
BEGIN
	-- of jobs that are gone without their trigger (TRUNCATE); nobody follows any more what has no "+" in its row
	SELECT min(x.job), max(x.job) INTO last, one FROM queue.followers AS x WHERE x.queue = $1;
	start := last + (random() * (one - last))::int8;
	last := start - 1;
	FOR n IN 1 .. 1000 LOOP
		SELECT x.job INTO last FROM queue.followers AS x WHERE x.queue = $1 AND x.job > last ORDER BY x.queue, x.job LIMIT 1;
		IF NOT FOUND THEN
			EXIT WHEN around OR start IS NULL;
			around := true;
			last := -1;
			CONTINUE;
		END IF;
		EXIT WHEN around AND last >= start;
		EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id = $1 AND right(followed, 1) = ''+'')', queue._table(name)) INTO known USING last;
		IF NOT known THEN
			DELETE FROM queue.followers AS x WHERE x.queue = $1 AND x.job = last;
		END IF;
	END LOOP;
	start := 0;
	EXECUTE format('SELECT id %s ORDER BY id OFFSET 1000 LIMIT 1', waits) INTO last;
	IF last IS NOT NULL THEN
		EXECUTE format('SELECT min(id) - 1000, max(id) %s', waits) INTO start, last;
		start := start + (random() * (last - start))::int8;
	END IF;
	FOR one IN EXECUTE format('SELECT id %s AND id >= $1 ORDER BY id LIMIT 1000', waits) USING start LOOP
		PERFORM queue._look_after(number, name, one, true);
	END LOOP;
END
$$;
