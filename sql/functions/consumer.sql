-- single_consumer: all jobs of a queue go to one connection until it is gone; then the next one follows.
--
-- A row of n<number>_consumer says which one it is: for clients of a proxy its token, which nobody else has, and the
-- number of that proxy; else the process of the server. A take shares that row for its own time, so nobody follows while
-- one is under way. A connection that ends gives the row back, as it does with its leases (_give_back): by a token of the
-- job 0, which there is not. That of a proxy that is gone (its lock is away, hold.sql) may be had some seconds later.
--
-- Such a queue has a take of its own around the usual one (or that of a limited queue), which is called _alone_<number>, and
-- hands nothing over; the others do not know of it.

CREATE OR REPLACE FUNCTION queue._consumer_table(number int4) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('queue.%I', format('n%s_consumer', number));
END
$$;

-- Who asks: a client of a proxy says so by qbouncer.consumer, "<token> <number of the proxy> <number of the queue>". NULL: the
-- queue is his. Else whose it is, "<proxy> <token>".
CREATE OR REPLACE FUNCTION queue._consume(number int4, who text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	tab CONSTANT text := queue._consumer_table(number);
	said CONSTANT text := nullif(current_setting('qbouncer.consumer', true), '');
	me CONSTANT text := coalesce(split_part(said, ' ', 1), 'pid ' || pg_backend_pid());
	mine CONSTANT int4 := nullif(split_part(said, ' ', 2), '');
	one record;
	there bool;
BEGIN
	EXECUTE format('SELECT * FROM %s', tab) INTO one;
	IF one.number IS NULL THEN	-- of a table that a crash has emptied
		EXECUTE format('INSERT INTO %s (number) VALUES ($1) ON CONFLICT DO NOTHING', tab) USING number;
	ELSIF one.token = me THEN
		EXECUTE format('SELECT * FROM %s WHERE token = $1 FOR SHARE SKIP LOCKED', tab) INTO one USING me;
		IF one.token IS NOT NULL AND (one.gone IS NOT NULL OR one.proxy IS DISTINCT FROM mine) THEN
			EXECUTE format('UPDATE %s SET gone = NULL, proxy = $2 WHERE token = $1', tab) USING me, mine;
		END IF;
		RETURN CASE WHEN one.token IS NULL THEN '0 ' END;
	ELSIF one.token IS NOT NULL THEN
		there := CASE WHEN one.pid IS NOT NULL THEN EXISTS (SELECT FROM pg_stat_activity AS a
				WHERE a.pid = one.pid AND a.usesysid = one.role AND (a.backend_start > one.since) IS NOT TRUE)
			ELSE EXISTS (SELECT FROM queue.proxies AS p WHERE p.number = one.proxy) END;
		IF there AND one.gone IS NULL OR NOT there AND one.gone > moment - interval '3 s' THEN
			RETURN coalesce(one.proxy, 0) || ' ' || one.token;
		ELSIF there OR one.pid IS NULL AND one.gone IS NULL THEN
			EXECUTE format('UPDATE %1$s SET gone = $2 WHERE ctid IN (SELECT ctid FROM %1$s WHERE token = $1 FOR UPDATE SKIP LOCKED)', tab)
				USING one.token, CASE WHEN NOT there THEN moment END;
			RETURN coalesce(one.proxy, 0) || ' ' || one.token;
		END IF;
	END IF;
	-- it is free, or that one is gone; whoever takes now has a share of the row, and it is not
	EXECUTE format('UPDATE %1$s SET token = $2, proxy = $3, pid = $4, role = $5::regrole, worker = $6, since = $7, gone = NULL
			WHERE ctid IN (SELECT ctid FROM %1$s WHERE token IS NOT DISTINCT FROM $1 FOR UPDATE SKIP LOCKED) RETURNING true', tab)
		INTO there USING one.token, me, mine, CASE WHEN said IS NULL THEN pg_backend_pid() END, quote_ident(session_user),
			left(who, 200), moment;
	RETURN CASE WHEN there IS NULL THEN '0 ' END;
END
$$;

-- Those of these tokens that are a consumer's.
CREATE OR REPLACE FUNCTION queue._consumed(number int4, tokens text[]) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	n int8;
BEGIN
	EXECUTE format('UPDATE %s SET token = NULL WHERE token = ANY ($1)', queue._consumer_table(number)) USING tokens;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN n > 0;
EXCEPTION WHEN undefined_table THEN	-- it has none any more: who waits is told by that ALTER
	RETURN false;
END
$$;

-- Who it is, for people.
CREATE OR REPLACE FUNCTION queue._consumer(number int4) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	one record;
BEGIN
	IF has_table_privilege(to_regclass(queue._consumer_table(number)), 'SELECT') IS NOT TRUE THEN
		RETURN NULL;
	END IF;
	EXECUTE format('SELECT * FROM %s', queue._consumer_table(number)) INTO one;
	RETURN CASE WHEN one.token IS NOT NULL THEN format('%s%s since %s', CASE WHEN one.worker <> '' THEN format('"%s", ', one.worker) ELSE '' END,
		CASE WHEN one.pid IS NOT NULL THEN 'process ' || one.pid ELSE 'a connection of proxy ' || coalesce(one.proxy::text, '?') END,
		date_trunc('second', one.since)) END;
EXCEPTION WHEN undefined_table THEN	-- it has none any more
	RETURN NULL;
END
$$;

-- Around the takes of a queue. What it is around has another name then, and is as it was.
CREATE OR REPLACE FUNCTION queue._wrap_consumer(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names CONSTANT text[] := '{take,alone,hand,handed,hand_keys,handed_keys}';
	args text;
	given text;
	params text;
BEGIN
	FOR i IN 1 .. 3 LOOP
		EXECUTE format('ALTER FUNCTION queue.%I RENAME TO %I',
			format('_%s_%s', names[2 * i - 1], cfg.number), format('_%s_%s', names[2 * i], cfg.number));
		SELECT pg_get_function_arguments(p.oid), array_to_string(p.proargnames[1:p.pronargs], ', '),
				(SELECT string_agg('$' || n, ', ' ORDER BY n) FROM generate_series(1, p.pronargs) AS n) INTO args, given, params FROM pg_proc AS p
			WHERE p.pronamespace = 'queue'::regnamespace AND p.proname = format('_%s_%s', names[2 * i], cfg.number);
		PERFORM queue._generate_one(format('_%s_%s(%s) RETURNS SETOF queue.%I', names[2 * i - 1], cfg.number, args,
			'_taken_' || cfg.payload), '', replace(replace(replace(replace(replace(replace(replace(CASE i WHEN 1 THEN $body$
DECLARE
	nothing queue._taken_@payload@;
BEGIN
	-- a proxy that does not know of it has not said who asks, nor asked for one alone
	IF seed IS NOT NULL AND split_part(current_setting('qbouncer.consumer', true), ' ', 3) IS DISTINCT FROM '@n@' THEN
		RAISE EXCEPTION USING ERRCODE = 'QBONE', MESSAGE = '@n@', HINT = 'The queue has a single consumer.';
	END IF;
	LOCK TABLE @table@ IN ROW EXCLUSIVE MODE;	-- first, as who drops it does
	IF to_regclass('@consumer@') IS NULL THEN	-- the ALTER that was waited for has made it a queue like others: its take
		SELECT c.* INTO q FROM queue.queues AS c WHERE c.number = @n@;
		IF NOT FOUND THEN
			PERFORM queue._began_before(@literal@, true);
		END IF;
		IF prios = '{}' AND NOT q.limited THEN
			RETURN QUERY SELECT * FROM queue._lot_@payload@(q, lim, lease, who, said, seed);
		ELSE
			RETURN QUERY EXECUTE 'SELECT * FROM queue._take_@n@(@params@)' USING @given@;
		END IF;
		RETURN;
	END IF;
	nothing.policy := queue._consume(@n@, who);
	IF nothing.policy IS NULL AND prios = '{}' AND NOT q.limited THEN	-- GROUPED (_take_lot)
		RETURN QUERY SELECT * FROM queue._lot_@payload@(q, lim, lease, who, said, seed);
		RETURN;
	ELSIF nothing.policy IS NULL THEN
		RETURN QUERY SELECT * FROM queue._alone_@n@(@given@);
		RETURN;
	END IF;
	nothing.due_ms := 1000;		-- the other one may be gone by then, and nobody tells
	RETURN NEXT nothing;
END
$body$ ELSE $body$
BEGIN
	q.paused := true;
	RETURN QUERY SELECT * FROM queue.@name@(@given@);
END
$body$ END, '@name@', format('_%s_%s', names[2 * i], cfg.number)), '@given@', given), '@params@', params),
			'@consumer@', queue._consumer_table(cfg.number)), '@payload@', cfg.payload), '@n@', cfg.number::text), '@literal@', queue._name_literal(cfg.name)),
			queue._table(cfg.name));
		PERFORM queue._for_all(format('_%s_%s', names[2 * i - 1], cfg.number));
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._unwrap_consumer(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	names CONSTANT text[] := '{take,alone,hand,handed,hand_keys,handed_keys}';
BEGIN
	FOR i IN 1 .. 3 LOOP
		EXECUTE format('DROP FUNCTION queue.%I; ALTER FUNCTION queue.%I RENAME TO %1$I',
			format('_%s_%s', names[2 * i - 1], number), format('_%s_%s', names[2 * i], number));
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_consumer(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._consumer_table(cfg.number);
	there_is CONSTANT bool := to_regclass(tab) IS NOT NULL;
BEGIN
	IF cfg.single_consumer = there_is THEN
		RETURN;
	END IF;
	-- waits for takes under way
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', queue._table(cfg.name));
	IF cfg.single_consumer THEN
		PERFORM queue._wrap_consumer(cfg);
		-- a token is one that its proxy, or whoever looks for the process, can say to be nobody's any more
		EXECUTE format('CREATE TABLE %s (number int4 PRIMARY KEY, token text CHECK (token ~ ''^([0-9a-f]{16}|pid [0-9]+)$''),
			proxy int4, pid int4, role oid, worker text, since timestamptz, gone timestamptz) WITH (autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);
			REVOKE ALL ON %1$s FROM PUBLIC;
			INSERT INTO %1$s (number) VALUES (%2$s)', tab, cfg.number);
		PERFORM queue._grant_gate(cfg);
	ELSE
		PERFORM queue._unwrap_consumer(cfg.number);
		EXECUTE 'DROP TABLE ' || tab;
	END IF;
	PERFORM queue._tell(cfg.number, cfg.name);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_consumer(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF to_regclass(queue._consumer_table(number)) IS NOT NULL THEN
		EXECUTE format('DROP TABLE %s; DROP FUNCTION IF EXISTS queue.%I, queue.%I, queue.%I', queue._consumer_table(number),
			format('_alone_%s', number), format('_handed_%s', number), format('_handed_keys_%s', number));
	END IF;
END
$$;

-- For the proxy, which says who asks (qbouncer.consumer): a take of one queue; GROUPED, if a fourth word says so.
CREATE OR REPLACE FUNCTION queue._take_alone_jsonb(queues text[], lim int4, lease interval, worker text, pop bool)
RETURNS SETOF queue._taken_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(queues[1], NULL);
BEGIN
	IF coalesce(lim, 1) < 1 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must be at least 1';
	ELSIF lease <= interval '0' OR lease > interval '8000 years' THEN
		PERFORM queue._bad_lease();
	ELSIF cfg.payload <> 'jsonb' THEN
		PERFORM queue._check_payload(cfg, 'jsonb');
	END IF;
	IF split_part(current_setting('qbouncer.consumer', true), ' ', 4) = 'grouped' THEN
		RETURN QUERY SELECT * FROM queue._take_lot_jsonb(queues, lim, lease, worker, pop);
		RETURN;
	ELSIF pop IS NOT TRUE THEN
		PERFORM set_config('synchronous_commit', 'off', true);	-- see _take
	ELSIF cfg.durability = 'async' THEN
		PERFORM queue._commit_async();
	END IF;
	RETURN QUERY EXECUTE 'SELECT * FROM queue._take_' || cfg.number
			|| '($1, $2, $3, $4, $5, $6, NULL, NULL, NULL, clock_timestamp(), $7)'
		USING cfg, coalesce(lim, 1), least(coalesce(lease, cfg.lease), cfg.max_run), left(worker, 200),
			nullif(current_setting('qbouncer.proxy', true), '')::int4, coalesce(pop, false),
			nullif(current_setting('qbouncer.seed', true), '')::int8;
END
$$;

-- The same for the other types of payload.
DO $qbouncer_alone$
DECLARE
	kind text;
	quoting CONSTANT text := current_setting('quote_all_identifiers');
BEGIN
	PERFORM set_config('quote_all_identifiers', 'off', true);
	FOREACH kind IN ARRAY ARRAY['text', 'bytea'] LOOP
		EXECUTE replace(replace(pg_get_functiondef('queue._take_alone_jsonb'::regproc), '_jsonb', '_' || kind),
			quote_literal('jsonb'), quote_literal(kind));
	END LOOP;
	PERFORM set_config('quote_all_identifiers', quoting, true);
END
$qbouncer_alone$;
