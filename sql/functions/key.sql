-- PUSH with KEY or GROUP. Slower than the others, which pay nothing for it.
--
-- KEY is unique among the jobs of a queue that are not dead. What happens when there is one:
--   ignore   nothing; the one that is there counts
--   replace  it gets the new payload and options, and all its attempts again
--   rerun    one that is being worked on runs once more when it has ended
--   error    23505
-- With FOR the key stays taken for so long, also when the job has ended (group.sql); a push with this key is none then.
-- A job that is leased and replaced runs once more too: its worker has the old payload. However that run ends (finish.sql,
-- take.sql), "again" ends with it, and it does not begin before the time that it was given.

-- ended: it has the key by FOR alone.
CREATE OR REPLACE FUNCTION queue._key_taken(q text, k text, id int8, ended bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF ended THEN
		RAISE EXCEPTION USING ERRCODE = '23505',
			MESSAGE = format('the key "%s" of queue "%s" is still taken', left(k, 200), q),
			DETAIL = format('Job %s has ended, but was pushed with the key FOR longer.', id),
			HINT = 'Push with another key, with ON DUPLICATE IGNORE, or later.';
	END IF;
	RAISE EXCEPTION USING ERRCODE = '23505',
		MESSAGE = format('queue "%s" has a job with the key "%s" already', q, left(k, 200)),
		DETAIL = format('It is job %s.', id),
		HINT = 'ON DUPLICATE IGNORE leaves it as it is; PUSH and RUN also have REPLACE and RERUN.';
END
$$;

-- KEY ... FOR, and IF NEWER.
CREATE OR REPLACE FUNCTION queue._check_once(key text, duplicate text, keep_for interval, newer timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF key IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s needs a KEY', CASE WHEN newer IS NULL THEN 'FOR' ELSE 'IF NEWER' END);
	ELSIF keep_for <= interval '0' OR keep_for > interval '8000 years' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'FOR must be longer than zero';
	ELSIF newer IS NOT NULL AND lower(duplicate) <> 'replace' IS NOT FALSE THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'IF NEWER needs ON DUPLICATE REPLACE';
	END IF;
END
$$;

-- Of a push by whoever may not: he would read the name of a function that he has never called.
CREATE OR REPLACE FUNCTION queue._no_push(q text, duplicate text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for queue "%s"', q),
		HINT = format('The owner of the queue can allow it: QUEUE GRANT %s ON %I TO ...;',
			CASE WHEN lower(duplicate) IN ('replace', 'rerun') THEN 'PUSH, TAKE' ELSE 'PUSH' END, q);
END
$$;

CREATE OR REPLACE FUNCTION queue._check_key(payloads text[], key text, duplicate text, "group" text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF lower(duplicate) NOT IN ('ignore', 'replace', 'rerun', 'error') THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('unknown ON DUPLICATE "%s"', left(duplicate, 80)),
			HINT = 'Give IGNORE, REPLACE, RERUN or ERROR.';
	ELSIF duplicate IS NOT NULL AND key IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ON DUPLICATE needs a KEY';
	ELSIF key IS NOT NULL AND cardinality(payloads) > 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('a KEY is of one job, but there are %s payloads', cardinality(payloads)),
			HINT = 'Push them one by one, each with its KEY.';
	ELSIF octet_length(key) > 1000 OR octet_length("group") > 1000 THEN
		RAISE EXCEPTION USING ERRCODE = '22001',
			MESSAGE = 'KEY and GROUP have at most 1000 bytes each';
	END IF;
END
$$;

-- queue._push_key_<number>: one job. Its id, or NULL: nothing was pushed. with_old: also the id of a job that
-- was there and was left as it is. queue._hand_key_<number> is the same: if its job may be taken at once, it is
-- leased (tok, until, who, mine).
--
-- There is a look before each insertion: one that fails leaves a dead row and a hole in the ids.
CREATE OR REPLACE FUNCTION queue._generate_key(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(name);
	kind CONSTANT text := (SELECT c.payload FROM queue.queues AS c WHERE c.number = $1);
	pinned CONSTANT text := 'SET enable_seqscan = off SET enable_bitmapscan = off
		SET plan_cache_mode = force_generic_plan';
	body CONSTANT text := replace(replace(replace(replace(replace($body$
DECLARE
	word text := CASE WHEN start > clock_timestamp() THEN 'later' ELSE 'ready' END;
	first CONSTANT text := word;
	comes CONSTANT timestamptz := CASE word WHEN 'later' THEN least(start, until) ELSE until END;
	old int8;
	before int8;
	was text;
	late bool;
	busy bool;
	new int8;
	index text;
	kept int8;
	last timestamptz;
BEGIN
	IF NOT has_function_privilege('queue._seek_@n@(text,text)'::regprocedure, 'EXECUTE') THEN
		PERFORM queue._no_push(@name@, duplicate);
	END IF;
	-- each round ends with a job of ours or with one that was there; another one is needed only
	-- when that one has ended between two statements. Nobody comes and goes so often: from the third one on it is the
	-- owner's doing, a trigger that wants none, or an index of his own
	FOR round IN 1..100 LOOP
		IF k IS NOT NULL OR g IS NOT NULL THEN
			SELECT s.old, s.was, s.late, s.busy, s.kept, s.version INTO old, was, late, busy, kept, last FROM queue._seek_@n@(k, g) AS s;
		END IF;
		IF late THEN	-- it would never be taken
			IF round > 2 AND old = before THEN
				PERFORM queue._key_taken(@name@, k, old, false);
			END IF;
			PERFORM queue._late_@n@(old);
			@late@
		ELSIF old IS NULL AND kept IS NOT NULL AND (newer > last) IS NOT TRUE THEN	-- its job has ended
			IF duplicate = 'error' THEN
				PERFORM queue._key_taken(@name@, k, kept, true);
			END IF;
			RETURN CASE WHEN with_old THEN kept END;
		ELSIF old IS NULL THEN
			word := @first@;
			IF busy OR a IS NOT NULL THEN
				word := 'blocked';
			END IF;
			LOOP
				@insert@ ON CONFLICT DO NOTHING RETURNING id INTO new;
				-- a key, or another job of the group, has come in between
				EXIT WHEN new IS NOT NULL OR g IS NULL OR word = 'blocked';
				word := 'blocked';
			END LOOP;
			-- looked at again, as it has let us through: with another's key we have pushed nothing. Where no key was ever
			-- kept there is nothing to look at: a row that we do not see makes the file larger, too
			IF new IS NOT NULL AND @lasts@ THEN
				RETURN new;
			ELSIF new IS NULL AND round > 2 THEN
				BEGIN
					@insert@ RETURNING id INTO new;
					IF new IS NULL OR @lasts@ THEN
						RETURN new;
					END IF;
				EXCEPTION WHEN unique_violation THEN
					GET STACKED DIAGNOSTICS index = CONSTRAINT_NAME;
					IF NOT queue._is_index(index, @n@, 'key|group') THEN
						RAISE;
					END IF;
					new := NULL;	-- it is wanted
				END;
			END IF;
		ELSIF duplicate = 'error' THEN
			PERFORM queue._key_taken(@name@, k, old, false);
		ELSIF duplicate = 'ignore' OR newer <= last THEN
			RETURN CASE WHEN with_old THEN old END;
		ELSE
			IF duplicate = 'rerun' THEN
				UPDATE @table@ SET again = CASE WHEN state = 'leased' THEN true END, token = CASE WHEN state = 'leased' THEN token END
					WHERE id = old AND key = k AND state <> 'dead' RETURNING id INTO new;
			ELSE
				-- it keeps its place if it can. A new one is the column's default, for which nobody
				-- needs a right on the sequence, as for nextval()
				UPDATE @table@ SET run_at = coalesce(start, run_at), headers = head, payload = body::@type@,
						due = CASE first WHEN 'later' THEN least(coalesce(start, run_at), until) ELSE until END, expires_at = until, max_attempts = most, failures = 0, losses = NULL, attempt = 0, again = NULL,
						spent = nullif(coalesce(spent, 0) + attempt, 0), version = coalesce(newer, version)
					WHERE id = old AND key = k AND state = first AND priority = prio AND (newer <= version) IS NOT TRUE
					RETURNING id INTO new;
				IF new IS NULL THEN
					UPDATE @table@ SET
							again = CASE WHEN state = 'leased' THEN true END,
							token = CASE WHEN state = 'leased' THEN token END,	-- of a lot: not what was taken
							state = CASE WHEN state IN ('leased', 'blocked') THEN state ELSE first END,
							due = CASE state WHEN 'leased' THEN due WHEN 'blocked' THEN NULL ELSE comes END,
							position = DEFAULT,
							priority = prio, headers = head,
							run_at = CASE WHEN state = 'later' THEN coalesce(start, clock_timestamp()) ELSE start END, payload = body::@type@,
							expires_at = until, max_attempts = most,
							attempt = CASE WHEN state = 'leased' THEN attempt ELSE 0 END,
							spent = CASE WHEN state = 'leased' THEN spent
								ELSE nullif(coalesce(spent, 0) + attempt, 0) END,
							failures = CASE WHEN state = 'leased' THEN failures ELSE 0 END,
							losses = CASE WHEN state = 'leased' THEN losses END,
							version = coalesce(newer, version)
						WHERE id = old AND key = k AND state <> 'dead' AND (newer <= version) IS NOT TRUE RETURNING id INTO new;
				END IF;
			END IF;
			IF new IS NOT NULL THEN
				IF keep_for IS NOT NULL OR newer IS NOT NULL THEN
					PERFORM queue._kept_@n@(k, -new, keep_for, newer);
				END IF;
				RETURN CASE WHEN duplicate = 'replace' OR with_old OR was = 'leased' THEN new END;
			ELSIF round > 2 AND old = before THEN
				RETURN CASE WHEN with_old THEN old END;
			END IF;
		END IF;
		before := old;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = '40001',
		MESSAGE = format('could not push to queue "%s": jobs with %s come and go', @name@,
			coalesce(format('the key "%s"', left(k, 200)), 'this group')), HINT = 'Try again.';
END
$body$, '@insert@', $insert$INSERT INTO @table@ (state, priority, run_at, headers, payload, pushed_at, expires_at,
						max_attempts, key, "group", batch, version, behind, due @columns@)
					VALUES (word, prio, start, head, body::@type@, clock_timestamp(), until, most, k, g, b, newer, a,
						CASE WHEN word <> 'blocked' THEN @comes@ END @values@)$insert$), '@lasts@', $lasts$(k IS NULL OR keep_for IS NULL AND pg_relation_size('queue.keys') = 0
					OR queue._kept_@n@(k, new, keep_for, newer) IS NULL)$lasts$),
		'@name@', queue._name_literal(name)), '@n@', number::text),
		'@type@', (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
			WHERE a.attrelid = to_regclass(tab) AND a.attname = 'payload'));
	args CONSTANT text := 'body text, prio int4, start timestamptz, head jsonb, until timestamptz, most int4,
		k text, duplicate text, g text, with_old bool';
	-- few say more than these: the batch, how long the key is kept, and the jobs that it comes after
	more CONSTANT text := ', b text DEFAULT NULL, keep_for interval DEFAULT NULL, newer timestamptz DEFAULT NULL,
		a text[] DEFAULT NULL';
BEGIN
	PERFORM queue._generate_one(format('_push_key_%s(%s%s) RETURNS int8', number, args, more), pinned,
		replace(replace(replace(replace(replace(body, '@first@', 'first'), '@late@', ''), '@columns@', ''),
			'@values@', ''), '@comes@', 'comes'), tab);

	-- what was late may have been the first of its group: another one is ready then, and goes before ours
	PERFORM queue._generate_one(format('_hand_key_%s(%s, tok text, lease_end timestamptz, who text, mine int4%s)
		RETURNS int8', number, args, more), pinned, replace(replace(replace(replace(replace(body,
		'@comes@', 'CASE word WHEN ''leased'' THEN lease_end ELSE comes END'), '@first@', 'CASE WHEN tok IS NULL THEN first ELSE ''leased'' END'), '@late@', 'tok := NULL;'),
		'@columns@', ', attempt, worker, proxy, lease_until, token, taken_at'),
		'@values@', $values$, (word = 'leased')::int4, CASE WHEN word = 'leased' THEN who END,
						CASE WHEN word = 'leased' THEN mine END,
						CASE WHEN word = 'leased' THEN lease_end END,
						CASE WHEN word = 'leased' THEN tok END,
						CASE WHEN word = 'leased' THEN clock_timestamp() END$values$), tab);

	-- The same of several, handed over to those who wait (queue._hand_<number>), one after the other: who is
	-- not given a job that turns out to be there, or behind others of its group, is given the next one, as
	-- long as nothing has become ready by these pushes. One row for each job; without a token it is nobody's,
	-- without an id nothing was pushed. One that is blocked has that as its policy: it is nobody's news, who lets
	-- it go on tells of it.
	PERFORM queue._generate_one(replace(replace($head$_hand_keys_@n@(q queue.queues, jobs text[], prio int4,
		proxies int4[], leases text[], whos text[], low int8, prios int8[], low_marks int8[], since int8,
		duplicate text, with_old bool, seed int8 DEFAULT NULL) RETURNS SETOF queue._taken_@payload@$head$, '@n@', number::text),
		'@payload@', kind), pinned, replace(replace(replace(replace(replace($body$
#variable_conflict use_column
DECLARE
	secret CONSTANT uuid := CASE WHEN seed IS NULL THEN gen_random_uuid()
		ELSE encode(substr(sha256(int8send(seed)), 1, 16), 'hex')::uuid END;
	moment CONSTANT timestamptz := clock_timestamp();
	after timestamptz;
	known int8;
	free bool;
	turn int4 := 1;
	ours text;
	new int8;
	one record;
	job queue._taken_@payload@;
BEGIN
	IF NOT q.paused AND NOT q.limited AND has_table_privilege(@literal@::regclass, 'UPDATE')
			AND has_column_privilege(@literal@::regclass, 'token', 'INSERT') THEN
@free@
	ELSIF (q.by_group OR q.max_running_per_group IS NULL) AND queue._without_keys(jobs) THEN
		FOR job.id IN SELECT queue._push_grouped_@n@(jobs, prio, q.by_group) LOOP
			RETURN NEXT job;
		END LOOP;
		RETURN;
	END IF;
	FOR one IN SELECT * FROM queue._triples(jobs) LOOP
		ours := CASE WHEN free AND turn <= cardinality(proxies)
			THEN encode(int8send(uuid_hash_extended(secret, turn)), 'hex') END;
		IF ours IS NULL THEN	-- who may not take may not say more than a push does
			new := queue._push_key_@n@(one.p, prio, NULL, NULL, NULL, NULL, one.k, duplicate, one.g, with_old);
		ELSE
			new := queue._hand_key_@n@(one.p, prio, NULL, NULL, NULL, NULL, one.k, duplicate, one.g, with_old,
			ours, moment + least(coalesce(leases[turn]::interval, q.lease), q.max_run), left(whos[turn], 200),
			CASE WHEN proxies[turn] < 0 THEN -proxies[turn]
				WHEN q.on_disconnect <> 'keep' THEN nullif(proxies[turn], 0) END);
		END IF;
		job := NULL;
		IF ours IS NOT NULL THEN
			SELECT @row@ INTO job FROM @table@ WHERE id = new AND token = ours;
			IF FOUND THEN
				turn := turn + 1;
			ELSIF new IS NOT NULL THEN
				free := EXISTS (SELECT FROM @table@ WHERE id = new AND state = 'blocked');
				job.policy := CASE WHEN free THEN 'blocked' END;
			END IF;
		END IF;
		job.id := new;
		RETURN NEXT job;
	END LOOP;
END
$body$, '@free@', queue._hand_free('true')), '@row@', queue._hand_row()), '@n@', number::text),
		'@payload@', kind), '@literal@', queue._name_literal(tab)), tab);
	-- Jobs without a key, in a queue where groups have no order: nobody is looked at, so one statement pushes them all.
	-- Groups may have got an order while it waited for that: then all are pushed anew. places: those of a group are blocked
	-- (flow_group.sql), which a trigger sees to otherwise, one after the other.
	PERFORM queue._generate_one(format('_push_grouped_%s(jobs text[], prio int4, places bool) RETURNS SETOF int8', number), pinned,
		replace(replace(replace($body$
DECLARE
	n int8;
BEGIN
	IF NOT has_function_privilege('queue._seek_@n@(text,text)'::regprocedure, 'EXECUTE') THEN
		PERFORM queue._no_push(@name@, 'ignore');
	END IF;
	RETURN QUERY INSERT INTO @table@ (state, priority, payload, pushed_at, "group")
		SELECT CASE WHEN places AND j.g IS NOT NULL THEN 'blocked' ELSE 'ready' END, prio, j.p::@type@, clock_timestamp(), j.g
		FROM queue._triples(jobs) AS j
		ON CONFLICT DO NOTHING RETURNING id;
	GET DIAGNOSTICS n = ROW_COUNT;
	IF NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.number = @n@ AND (c.by_group OR c.max_running_per_group IS NULL)) THEN
		PERFORM queue._began_before(@name@);
	ELSIF n * 3 < cardinality(jobs) THEN
		-- the owner's doing, a trigger or an index of his own: where none is accepted a plain INSERT says what it is. Of
		-- some of them it is seen when each is alone
		IF n = 0 THEN
			RETURN QUERY INSERT INTO @table@ (state, priority, payload, pushed_at, "group")
				SELECT CASE WHEN places AND j.g IS NOT NULL THEN 'blocked' ELSE 'ready' END, prio, j.p::@type@, clock_timestamp(), j.g
				FROM queue._triples(jobs) AS j RETURNING id;
			GET DIAGNOSTICS n = ROW_COUNT;
		END IF;
		IF n = 0 THEN
			RETURN QUERY SELECT NULL::int8 FROM queue._triples(jobs);
		ELSIF n * 3 < cardinality(jobs) THEN
			RAISE EXCEPTION USING ERRCODE = '23000', MESSAGE = format('queue "%s" does not accept each of these jobs', @name@),
				HINT = 'Push them one by one.';
		END IF;
	END IF;
END
$body$, '@name@', queue._name_literal(name)), '@n@', number::text),
		'@type@', (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
			WHERE a.attrelid = to_regclass(tab) AND a.attname = 'payload')), tab);
	PERFORM queue._for_all('_push_key_' || number, '_hand_key_' || number, '_hand_keys_' || number, '_push_grouped_' || number);
END
$$;

-- Payload, key and group of each job.
CREATE OR REPLACE FUNCTION queue._triples(jobs text[]) RETURNS TABLE (p text, k text, g text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	FOR i IN 1..cardinality(jobs) BY 3 LOOP
		p := jobs[i];
		k := jobs[i + 1];
		g := jobs[i + 2];
		IF octet_length(k) > 1000 OR octet_length(g) > 1000 THEN
			PERFORM queue._check_key(NULL, k, NULL, g);
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._without_keys(jobs text[]) RETURNS bool
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	FOR i IN 2..cardinality(jobs) BY 3 LOOP
		IF jobs[i] IS NOT NULL THEN
			RETURN false;
		END IF;
	END LOOP;
	RETURN true;
END
$$;

-- For the proxy: the pushes of several clients. One row for each job, NULL where nothing was pushed.
CREATE OR REPLACE FUNCTION queue._push_keys(q text, jobs text[], priority int4, duplicate text,
	with_old bool, notify bool, stated text DEFAULT NULL) RETURNS SETOF int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
BEGIN
	SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
	IF NOT FOUND THEN
		IF NOT queue._is_stream(q) THEN	-- nor would an empty list say it
			PERFORM queue._no_queue(q);
		END IF;
		RETURN QUERY SELECT queue._push_event(q, ARRAY[p], NULL, notify, k, g, stated, CASE
				WHEN priority <> 0 THEN 'PRIORITY' WHEN lower(duplicate) <> 'ignore' THEN 'ON DUPLICATE' END)	-- which the proxy always says
			FROM queue._triples(jobs);
		RETURN;
	END IF;
	IF (stated = 'bytea') <> (cfg.payload = 'bytea') THEN
		PERFORM queue._check_payload(cfg, stated);
	END IF;
	IF cfg.durability = 'async' THEN
		PERFORM queue._commit_async();
	END IF;
	IF (cfg.by_group OR cfg.max_running_per_group IS NULL) AND queue._without_keys(jobs) THEN
		RETURN QUERY EXECUTE 'SELECT queue._push_grouped_' || cfg.number || '($1, $2, $3)' USING jobs, coalesce(priority, 0),
			cfg.by_group;
	ELSE
		RETURN QUERY EXECUTE 'SELECT queue._push_key_' || cfg.number
				|| '(p, $2, NULL, NULL, NULL, NULL, k, $3, g, $4) FROM queue._triples($1)'
			USING jobs, coalesce(priority, 0), duplicate, with_old;
	END IF;
	IF notify THEN
		PERFORM queue._tell(cfg.number, q);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_key(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('DROP FUNCTION IF EXISTS queue._push_key_%1$s, queue._hand_key_%1$s,
		queue._hand_keys_%1$s, queue._push_grouped_%1$s', number);
END
$$;

-- Jobs that ended and are to run once more.
CREATE OR REPLACE FUNCTION queue._run_again(cfg queue.queues, ids int8[], tokens text[])
RETURNS int8[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
	still int8[];
BEGIN
	EXECUTE queue._set_held(cfg.name, queue._set_due($sql$CASE WHEN run_at > clock_timestamp() THEN 'later' ELSE 'ready' END$sql$,
			'greatest(run_at, clock_timestamp())') || $sql$,
			position = DEFAULT, token = NULL, lease_until = NULL,
			again = NULL, spent = coalesce(spent, 0) + attempt, attempt = 0, failures = 0, losses = NULL, error = NULL
		$sql$, 'again') INTO still USING ids, tokens;
	IF still IS NOT NULL THEN
		PERFORM queue._tell(cfg.number, cfg.name);
	END IF;
	RETURN still;
END
$$;
