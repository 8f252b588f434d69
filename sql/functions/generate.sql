-- The functions of one queue: queue._push_<number>, _push_more_<number>, _hand_<number>,
-- _take_<number>, _done_<number>.
--
-- Postgres keeps the plans of their statements for the session; the same statements by EXECUTE
-- are planned anew in every call, which costs more than running them (doc/decisions/001). Only
-- the three verbs of every job are done so; the others are rare enough.
--
-- Who has waited for the table may have got that of a new queue of this name, dropped and made anew in one transaction: what
-- makes leases names its own function, as a literal, which is looked up when the plan is made, and costs no plan
-- anything. Postgres plans anew then, and does not find it (42883).
--
-- They check nothing: queue._push, queue._take and queue._done do. The tables' names are quoted
-- by %I in the text of the function (@table@, @archive@), and that text as a whole by %L. A name may
-- look like one of these words, or have one in it: nothing is replaced in it.

-- A name as a literal for such a text: without the character that the words begin with.
CREATE OR REPLACE FUNCTION queue._name_literal(name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'E''' || replace(replace(replace(name, E'\\', E'\\\\'), '''', ''''''), '@', E'\\100') || '''';
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_one(head text, settings text, body text, tab text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET check_function_bodies = off	-- it would compile each, for 0.9 MB of memory in this session and a third of the time
AS $$
BEGIN
	EXECUTE format('CREATE OR REPLACE FUNCTION queue.%s LANGUAGE plpgsql
		SET search_path = pg_catalog, pg_temp %s AS %L', head, settings,
		array_to_string(ARRAY(SELECT replace(part, '@table@', tab)
				FROM unnest(string_to_array(body, '@archive@')) WITH ORDINALITY AS u (part, n)
				ORDER BY n),
			regexp_replace(tab, 'q_', 'a_')));
END
$$;

-- Hand over: may the first of these jobs be leased? Not if something is ready or due that goes before it. "more":
-- and something else. In variables of its caller: free, after, known.
CREATE OR REPLACE FUNCTION queue._hand_free(more text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN replace($step$
	after := coalesce(to_timestamp(since::float8 / 1000000), '-infinity');
	known := greatest(prios[1], prio);
	free := NOT EXISTS (SELECT FROM @table@ WHERE due > after AND due <= moment)
			AND NOT EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority > known)
			AND NOT EXISTS (SELECT FROM @table@
				WHERE state = 'ready' AND priority = prio AND position >= low)
			AND @more@;
	IF free AND cardinality(prios) > 0 THEN
		free := NOT EXISTS (SELECT FROM unnest(prios, prios[2:] || prio::int8, low_marks)
					AS r (this, below, low_mark)
				WHERE EXISTS (SELECT FROM @table@
						WHERE state = 'ready' AND priority = this AND position >= low_mark)
					OR EXISTS (SELECT FROM @table@
						WHERE state = 'ready' AND priority < this AND priority > below));
	END IF;
$step$, '@more@', more);
END
$$;

-- The columns of a job as a take gives them. due_ms, edge: expressions. In variables of its caller: q.
CREATE OR REPLACE FUNCTION queue._taken_row(due_ms text, edge text, other text[] DEFAULT '{}') RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._row('_taken_jsonb', ARRAY['token', $e$'@n@-' || id || '-' || token$e$, 'queue', 'q.name',
		'policy', 'q.on_disconnect', 'due_ms', due_ms, 'place', 'position', 'edge', edge] || other);
END
$$;

-- Of one that was handed over.
CREATE OR REPLACE FUNCTION queue._hand_row() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._taken_row('ceil(date_part(''epoch'', lease_until - moment) * 1000)::int8', 'NULL::int8');
END
$$;

CREATE OR REPLACE FUNCTION queue._generate(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(name);
	kind CONSTANT text := (SELECT c.payload FROM queue.queues AS c WHERE c.number = $1);
	pinned CONSTANT text := 'SET enable_seqscan = off SET enable_bitmapscan = off
		SET plan_cache_mode = force_generic_plan';
	head CONSTANT text := $head$(SELECT ctid AS c FROM @table@
					WHERE state = 'ready' AND @which@
						AND (expires_at > moment OR expires_at IS NULL)
					ORDER BY priority DESC, position LIMIT wanted FOR UPDATE SKIP LOCKED) AS found$head$;
	take CONSTANT text := replace(replace($step$
			RETURN QUERY
				UPDATE @table@ SET state = 'leased', attempt = attempt + 1, worker = who,
					taken_at = moment, first_taken_at = coalesce(first_taken_at, taken_at),
					proxy = CASE WHEN said < 0 THEN -said
						WHEN q.on_disconnect <> 'keep' THEN said END,
					lease_until = moment + lease, due = moment + lease,
					token = encode(int8send(uuid_hash_extended(secret, id)), 'hex')
				FROM @head@ WHERE ctid = c
				RETURNING @row@;
$step$, '@head@', head), '@row@', queue._taken_row('lease_ms', 'edge'));
	popped CONSTANT text := queue._taken_row('NULL::int8', 'edge', ARRAY['token', 'NULL::text', 'attempt', 'attempt + 1',
		'lease_until', 'NULL::timestamptz', 'taken_at', 'moment', 'first_taken_at', 'coalesce(first_taken_at, taken_at)',
		'takes', 'attempt + 1 + coalesce(spent, 0)']);
	-- a pop ends them: not while somebody has locked the next one of the group, which it would wait for
	pop_head CONSTANT text := replace(head, 'AND (expires_at',
		'AND ("group" IS NULL OR queue._may_end_@n@("group")) AND (expires_at');
	-- a step of a take: as many of these as are still wanted
	step CONSTANT text := replace(replace(replace($step$
		IF NOT pop THEN
@take@
		ELSIF q.retain_done > interval '0' THEN
			RETURN QUERY
				WITH job AS (DELETE FROM @table@ USING @head@ WHERE ctid = c RETURNING @table@.*),
				kept AS (@keep@)
				SELECT @row@ FROM job ORDER BY priority DESC, position;
		ELSE
			RETURN QUERY
				DELETE FROM @table@ USING @head@ WHERE ctid = c RETURNING @row@;
		END IF;
		GET DIAGNOSTICS got = ROW_COUNT;
		wanted := wanted - got;
$step$, '@row@', popped), '@take@', take), '@head@', pop_head);
BEGIN
	PERFORM queue._generate_one(format('_push_%s(payloads text[], prio int4, start timestamptz,
		head jsonb) RETURNS SETOF int8', number), '', replace($body$
DECLARE
	word text;
	comes timestamptz;
BEGIN
	IF start IS NULL AND cardinality(payloads) = 1 THEN	-- as most are, and half the plan
		RETURN QUERY
			INSERT INTO @table@ (priority, headers, payload, pushed_at)
			VALUES (prio, head, payloads[1]::@payload@, clock_timestamp()) RETURNING id;
	ELSE
		IF start > clock_timestamp() THEN
			word := 'later';
			comes := start;
		ELSE
			word := 'ready';
		END IF;
		RETURN QUERY
			INSERT INTO @table@ (state, priority, run_at, due, headers, payload, pushed_at)
			SELECT word, prio, start, comes, head, p::@payload@, clock_timestamp()
			FROM (SELECT unnest(payloads) AS p) AS u RETURNING id;
	END IF;
END
$body$, '@payload@', kind), tab);

	-- the same with what few pushes say: the other stays as fast as it is
	PERFORM queue._generate_one(format('_push_more_%s(payloads text[], prio int4,
		start timestamptz, head jsonb, until timestamptz, most int4, b text DEFAULT NULL) RETURNS SETOF int8', number),
		'', replace($body$
DECLARE
	word CONSTANT text := CASE WHEN start > clock_timestamp() THEN 'later' ELSE 'ready' END;
	comes CONSTANT timestamptz := CASE word WHEN 'later' THEN least(start, until) ELSE until END;
BEGIN
	RETURN QUERY
		INSERT INTO @table@ (state, priority, run_at, due, headers, payload, pushed_at, expires_at,
			max_attempts, batch)
		SELECT word, prio, start, comes, head, p::@payload@, clock_timestamp(), until, most, b
		FROM unnest(payloads) AS p RETURNING id;
END
$body$, '@payload@', kind), tab);

	-- Hand over: a push of which the first jobs are leased as they come, to takers who wait for
	-- them: "proxies", "leases" and "whos" have an element for each job that has a taker. Not if
	-- something is ready or due that goes before them, and not in a queue that is paused or of
	-- which this role may not take: then they are pushed as ever, and the takers take. "low": the
	-- low_mark of this priority; "prios" and "low_marks": of the higher ones (see the take). The rows
	-- are those of a take; a job that nobody was given has no token. The usual case, one job and
	-- nothing known of higher priorities, has a statement of its own here too. "delay" is none or
	-- zero. One whose time is over by now is nobody's, as it would be for a take.
	PERFORM queue._generate_one(replace(replace($head$_hand_@n@(q queue.queues, payloads text[], prio int4,
		proxies int4[], leases text[], whos text[], low int8, prios int8[], low_marks int8[], since int8,
		delay interval DEFAULT NULL, head jsonb DEFAULT NULL, expires interval DEFAULT NULL,
		most int4 DEFAULT NULL, seed int8 DEFAULT NULL) RETURNS SETOF queue._taken_@payload@$head$, '@n@', number::text), '@payload@', kind), pinned,
		replace(replace(replace(replace(replace($body$
#variable_conflict use_column
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	secret CONSTANT uuid := CASE WHEN seed IS NULL THEN gen_random_uuid()
		ELSE encode(substr(sha256(int8send(seed)), 1, 16), 'hex')::uuid END;
	after timestamptz;
	known int8;
	free bool;
	nobodys queue._taken_@payload@;
BEGIN
	IF q.paused OR q.limited OR NOT has_table_privilege(@literal@::regclass, 'UPDATE')
			OR NOT has_column_privilege(@literal@::regclass, 'token', 'INSERT') THEN
		-- the statements below read and write what only a taker may
		FOR nobodys.id IN SELECT queue._push_more_@n@(payloads, prio, moment + delay, head, moment + expires, most) LOOP
			RETURN NEXT nobodys;
		END LOOP;
		RETURN;
	END IF;
	IF cardinality(payloads) = 1 AND cardinality(prios) = 0
			AND since + 20000 > date_part('epoch', moment) * 1000000 THEN
		RETURN QUERY
			INSERT INTO @table@ (state, priority, run_at, headers, payload, pushed_at, expires_at,
				max_attempts, attempt, worker, proxy, due, lease_until, token, taken_at)
			SELECT CASE WHEN go THEN 'leased' ELSE 'ready' END, prio, moment + delay, head,
				(payloads)[1]::@payload@, moment, moment + expires, most, go::int4,
				CASE WHEN go THEN left((whos)[1], 200) END,
				CASE WHEN NOT go OR mine = 0 THEN NULL WHEN mine < 0 THEN -mine
					WHEN q.on_disconnect <> 'keep' THEN mine END,
				CASE WHEN go THEN ends ELSE moment + expires END, CASE WHEN go THEN ends END,
				CASE WHEN go THEN encode(int8send(uuid_hash_extended(secret, 1)), 'hex') END,
				CASE WHEN go THEN moment END
			FROM (SELECT NOT EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority > prio)
				AND NOT EXISTS (SELECT FROM @table@
					WHERE state = 'ready' AND priority = prio AND position >= low)
				AND (moment + expires > clock_timestamp()) IS NOT FALSE AS go, (proxies)[1] AS mine,
				moment + least(coalesce((leases)[1]::interval, q.lease), q.max_run) AS ends
				OFFSET 0) AS g	-- evaluated once
			WHERE 'queue._hand_@n@'::regproc IS NOT NULL
			RETURNING @row@;
		RETURN;
	END IF;
@free@
	RETURN QUERY
		INSERT INTO @table@ (state, priority, run_at, headers, payload, pushed_at, expires_at,
			max_attempts, attempt, worker, proxy, due, lease_until, token, taken_at)
		SELECT CASE WHEN go THEN 'leased' ELSE 'ready' END, prio, moment + delay, head,
			p::@payload@, moment, moment + expires, most, go::int4,
			CASE WHEN go THEN left(who, 200) END,
			CASE WHEN NOT go OR mine = 0 THEN NULL WHEN mine < 0 THEN -mine
				WHEN q.on_disconnect <> 'keep' THEN mine END,
			CASE WHEN go THEN moment + least(coalesce(lease::interval, q.lease), q.max_run) ELSE moment + expires END,
			CASE WHEN go THEN moment + least(coalesce(lease::interval, q.lease), q.max_run) END,
			CASE WHEN go THEN encode(int8send(uuid_hash_extended(secret, n)), 'hex') END,
			CASE WHEN go THEN moment END
		FROM unnest(payloads, proxies, leases, whos) WITH ORDINALITY AS j (p, mine, lease, who, n),
			LATERAL (SELECT free AND mine IS NOT NULL AS go) AS g
		WHERE 'queue._hand_@n@'::regproc IS NOT NULL
		RETURNING @row@;
END
$body$, '@free@', queue._hand_free('(moment + expires > clock_timestamp()) IS NOT FALSE')),
			'@row@', queue._hand_row()), '@n@', number::text), '@payload@', kind),
			'@literal@', queue._name_literal(tab)), tab);

	-- The rows are found again by their ctid: they are locked, so they stay where they are. (One
	-- that somebody moved between our snapshot and our lock is left for the next call.) They come in
	-- the order in which they were locked: only a nested loop finds rows by a ctid.
	-- The times are variables: a volatile function would not be looked up in the index.
	-- The random part of a token is drawn once per call and mixed with each job's id: 122 bits or more, of which a
	-- token has 64, so that one does not tell the others (doc/decisions/010).
	--
	-- Where to begin: under a transaction that stays open, what was taken since is read again by
	-- every take that begins at the front. So the caller may say, of each priority that it knows
	-- ("prios", descending), below which position nothing is ready ("low_marks"); of the others
	-- nothing is assumed. "since": nothing becomes due at or before this time (microseconds of the epoch).
	-- Negative: so many, and nobody wants to know what will be due when there is nothing now. Under
	-- such a transaction that means reading the leases of all that was taken in the time of a lease.
	-- What is ready and locked may be let go by a rollback, which nobody announces: who waits looks again soon.
	-- Each row tells its position ("place") and, if it may be the next "since", the time ("edge").
	--
	-- "top" is above all positions: of a range the planner expects few rows, of a half-open one a third of
	-- the table, a plan so "expensive" that jit compiles it in each call when there are a million jobs.
	--
	-- Every statement and every expression has a price of its own, which is most of what a single
	-- job costs. So the usual case comes first, in one statement: one priority is known, nothing of
	-- a higher one is ready, and what is due was looked for less than 20 ms ago. If that is not
	-- enough, everything is looked at.
	-- "seed": of what the tokens are made, so that the proxy finds its leases when it has not heard of them
	-- (_give_back_lost).
	-- "said": the proxy that holds the job; a negative number: the connection holds it.
	-- Only the proxy says "since": what ends here, in a transaction of its own, it wants to be told (_tell).
	PERFORM queue._generate_one(replace(replace($head$_take_@n@(q queue.queues, lim int4, lease interval,
		who text, said int4, pop bool, prios int8[], low_marks int8[], since int8, moment timestamptz,
		seed int8 DEFAULT NULL) RETURNS SETOF queue._taken_@payload@$head$, '@n@', number::text), '@payload@', kind), pinned,
		replace(replace(replace(replace(replace(replace($body$
#variable_conflict use_column
DECLARE
	secret CONSTANT uuid := CASE WHEN seed IS NULL THEN gen_random_uuid()
		ELSE encode(substr(sha256(int8send(seed)), 1, 16), 'hex')::uuid END;
	top CONSTANT int8 := 9223372036854775807;
	lease_ms CONSTANT int8 := ceil(date_part('epoch', lease) * 1000);
	got int4;
	wanted int4;
	after timestamptz;
	edge int8;
	p int8;
	f int8;
	above int8;
	passed bool := false;	-- something that is ready: somebody has locked it
	nothing queue._taken_@payload@;
BEGIN
	IF NOT pop AND NOT q.paused AND cardinality(prios) = 1 AND lease > interval '0'
			AND lease <= interval '8000 years'
			AND abs(since) - date_part('epoch', moment) * 1000000 BETWEEN -20000 AND 1000000 THEN
@first@
		GET DIAGNOSTICS got = ROW_COUNT;
		IF got = lim THEN
			RETURN;
		END IF;
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM queue._bad_lease();
	ELSIF q.paused THEN
		RETURN NEXT nothing;
		RETURN;
	END IF;
	IF pop AND since IS NOT NULL THEN
		PERFORM set_config('qbouncer.tell', 'here', true);
	END IF;
	wanted := lim - coalesce(got, 0);
	after := coalesce(to_timestamp(abs(since)::float8 / 1000000), '-infinity');
	IF after > moment + interval '1 s' THEN
		after := '-infinity';	-- the clock was set back: what it says of then is not true any more
	END IF;
	IF EXISTS (SELECT FROM @table@ WHERE due > after AND due <= moment AND 'queue._take_@n@'::regproc IS NOT NULL) THEN
		IF since IS NOT NULL THEN
			PERFORM set_config('qbouncer.tell', 'here', true);
		END IF;
		PERFORM queue._promote(q, least(greatest(lim, 200), 1000), after);
	ELSE
		edge := (date_part('epoch', moment) * 1000000)::int8;
	END IF;
	above := 3000000000;	-- what follows is below this priority
	FOR i IN 1 .. coalesce(cardinality(prios), 0) LOOP
		p := prios[i];
		f := low_marks[i];
		IF EXISTS (SELECT FROM @table@
				WHERE state = 'ready' AND priority > p AND priority < above) THEN
@between@
			EXIT WHEN wanted <= 0;
			passed := true;
		END IF;
@from@
		EXIT WHEN wanted <= 0;
		above := p;
	END LOOP;
	IF wanted > 0 THEN
		IF EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority < above) THEN
			p := -3000000000;
@between@
			passed := wanted > 0;
		END IF;
	END IF;
	IF wanted = lim THEN
		IF since IS NULL OR since >= 0 THEN
			-- what is due and was not promoted is locked by somebody, or too much for one call
			SELECT greatest(ceil(extract(epoch FROM least(due, moment + interval '1 year') - moment) * 1000),
					CASE WHEN due > moment THEN 1 ELSE 100 END)
				INTO nothing.due_ms FROM (SELECT due, state FROM @table@ WHERE due > after ORDER BY due LIMIT 1000) AS x
				WHERE state IN ('later', 'leased') ORDER BY due LIMIT 1;
			IF NOT FOUND THEN	-- very many that are ready expire first
				SELECT greatest(ceil(extract(epoch FROM least(due, moment + interval '1 year') - moment) * 1000), 100) INTO nothing.due_ms
					FROM @table@ WHERE due > after ORDER BY due OFFSET 999 LIMIT 1;
			END IF;
			-- one by one: a join may read everything that is ready first
			FOR i IN 1 .. coalesce(cardinality(prios), 0) LOOP
				EXIT WHEN passed;
				p := prios[i];
				f := low_marks[i];
				passed := EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority = p
					AND position >= f AND position <= top);
			END LOOP;
			IF passed THEN
				nothing.due_ms := least(nothing.due_ms, 100);
			END IF;
		END IF;
		nothing.edge := edge;
		RETURN NEXT nothing;
	END IF;
END
$body$, '@first@', replace(replace(take, '@which@', $which$priority = (prios)[1]
					AND position >= (low_marks)[1] AND position <= top AND 'queue._take_@n@'::regproc IS NOT NULL
					AND NOT EXISTS (SELECT FROM @table@ WHERE state = 'ready' AND priority > (prios)[1])$which$), 'LIMIT wanted', 'LIMIT lim')),
		'@between@', replace(step, '@which@', 'priority > p AND priority < above')),
		'@from@', replace(step, '@which@', 'priority = p AND position >= f AND position <= top')),
		'@n@', number::text), '@payload@', kind), '@keep@',
		queue._keep('@archive@', 'job', 'done', ARRAY['attempt', 'attempt + 1', 'worker', 'who',
			'taken_at', 'moment', 'first_taken_at', 'coalesce(first_taken_at, taken_at)'])), tab);

	-- What was finished of these. With the queue's name: all of them, or an error (the proxy calls it so).
	PERFORM queue._generate_one(format('_done_%s(ids int8[], tokens text[], name text DEFAULT NULL)
		RETURNS int8[]', number), pinned, $body$
DECLARE
	still int8[];
BEGIN
	IF cardinality(ids) = 1 THEN
		DELETE FROM @table@ WHERE id = (ids)[1] AND token = (tokens)[1]
			AND lease_until > clock_timestamp() AND again IS NULL;
		IF FOUND THEN
			RETURN ids;
		END IF;
	ELSE
		WITH job AS (
			DELETE FROM @table@ WHERE id = ANY (ids)
				AND token = (tokens)[width_bucket(id, ids)] AND lease_until > clock_timestamp()
				AND again IS NULL
			RETURNING id)
		SELECT array_agg(id) INTO still FROM job;
		IF cardinality(still) = cardinality(ids) THEN
			RETURN still;
		END IF;
	END IF;
	IF name IS NOT NULL THEN
		PERFORM queue._done_check(name, ids, tokens, still);
		RETURN ids;
	END IF;
	RETURN still;
END
$body$, tab);
	PERFORM queue._for_all('_push_' || number, '_push_more_' || number, '_hand_' || number, '_take_' || number, '_done_' || number);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_generated(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('DROP FUNCTION IF EXISTS queue._push_%1$s, queue._push_more_%1$s,
		queue._hand_%1$s, queue._take_%1$s, queue._done_%1$s', number);
END
$$;
