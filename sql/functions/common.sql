-- What the other functions share: the version, the way from a name to its queue, and tokens.
--
-- PL/pgSQL throughout, also where SQL would be shorter: it keeps plans, SQL functions do not.
--
-- Every function pins search_path: somebody else's public."=" is never seen. Names of tables
-- are made here and nowhere else, by format('%I').

CREATE OR REPLACE FUNCTION queue.version() RETURNS int4
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'SELECT 1';

-- The table of a queue, schema included, quoted.
CREATE OR REPLACE FUNCTION queue._table(name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format('queue.%I', 'q_' || name);
END
$$;

-- hint: of a verb for which a new queue would be of no use.
CREATE OR REPLACE FUNCTION queue._no_queue(q text, hint text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF q IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the queue''s name must not be null';
	ELSIF queue._is_stream(q) THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('"%s" is a stream, on which this is not possible', q),
			HINT = format('A stream is read through subscriptions: QUEUE SUBSCRIBE name TO %I; QUEUE TAKE %1$I FOR name;', q);
	END IF;
	RAISE EXCEPTION USING ERRCODE = '42P01',
		MESSAGE = format('queue "%s" does not exist', q),
		HINT = coalesce(hint, format('Create it with: QUEUE CREATE %I;', q));
END
$$;

-- Columns as a list for a SELECT. other: of some an expression: column, expression, column, ...
CREATE OR REPLACE FUNCTION queue._select(names text[], other text[]) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	instead CONSTANT jsonb := jsonb_object(other);
BEGIN
	RETURN (SELECT string_agg(coalesce(instead ->> u.name, quote_ident(u.name)), ', ' ORDER BY u.n)
		FROM unnest(names) WITH ORDINALITY AS u (name, n));
END
$$;

-- As above: those of the rows that a function gives (schema.sql). takes: also the attempts that do not count.
CREATE OR REPLACE FUNCTION queue._row(kind text, other text[] DEFAULT '{}') RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._select(ARRAY(SELECT attname::text FROM pg_attribute
		WHERE attrelid = ('queue.' || kind)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
		ARRAY['takes', 'attempt + coalesce(spent, 0)'] || other);
END
$$;

-- When a job becomes due by itself (its column "due", of which there is an index): its lease ends, its time has come, or
-- it expires.
CREATE OR REPLACE FUNCTION queue._due(state text, lease_until timestamptz, run_at timestamptz, expires_at timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE state WHEN 'leased' THEN lease_until WHEN 'later' THEN least(run_at, expires_at) WHEN 'ready' THEN expires_at END;
END
$$;

-- For the SET of an UPDATE that changes one of these: they and what follows from them. What is NULL stays as it is;
-- each expression is computed once. What happens to each job (take, lone statements, groups) has it written out.
CREATE OR REPLACE FUNCTION queue._set_due(state text DEFAULT NULL, run_at text DEFAULT NULL, lease_until text DEFAULT NULL,
	expires_at text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format($sql$(%s, due) = (SELECT %s, CASE s WHEN 'leased' THEN l WHEN 'later' THEN least(r, e) WHEN 'ready' THEN e END
		FROM (SELECT %s AS s, %s AS r, %s AS l, %s AS e OFFSET 0) AS d)$sql$,
		concat_ws(', ', CASE WHEN state IS NOT NULL THEN 'state' END, CASE WHEN run_at IS NOT NULL THEN 'run_at' END,
			CASE WHEN lease_until IS NOT NULL THEN 'lease_until' END, CASE WHEN expires_at IS NOT NULL THEN 'expires_at' END),
		concat_ws(', ', CASE WHEN state IS NOT NULL THEN 's' END, CASE WHEN run_at IS NOT NULL THEN 'r' END,
			CASE WHEN lease_until IS NOT NULL THEN 'l' END, CASE WHEN expires_at IS NOT NULL THEN 'e' END),
		coalesce(state, 'state'), coalesce(run_at, 'run_at'), coalesce(lease_until, 'lease_until'), coalesce(expires_at, 'expires_at'));
END
$$;

-- For the verbs that are about what is there already, unless the hint is said to be NULL.
CREATE OR REPLACE FUNCTION queue._find(q text,
	hint text DEFAULT 'QUEUE LIST shows the queues that there are.') RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
BEGIN
	SELECT * INTO cfg FROM queue.queues AS c WHERE c.name = q;
	IF NOT FOUND THEN
		PERFORM queue._no_queue(q, hint);
	END IF;
	RETURN cfg;
END
$$;

-- Does it read nothing but a table? What a SELECT of it runs is nobody's: no view or foreign table, no rule, no
-- policy, no child, and its owner is that of the catalogue, to whom these functions belong too. NULL: there is
-- no such table.
CREATE OR REPLACE FUNCTION queue._ordinary(rel regclass) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT r.relkind = 'r' AND NOT r.relhasrules AND NOT r.relrowsecurity AND NOT r.relhassubclass
			AND r.relowner = c.relowner
		FROM pg_class AS r, pg_class AS c WHERE r.oid = rel AND c.oid = 'queue.queues'::regclass);
END
$$;

-- For those who look at all queues: is its table still there? If so it is from now on, for the rest of the
-- transaction: DROP and ALTER wait for us. One that is no ordinary table is none: looked at before, as already
-- to lock a view runs what is in it, and after, when nobody can change it any more. Also whoever comes to a queue by another way, its sequence or its
-- archive, says this first: they lock the table first, too, so nobody waits in a circle. LOCK opens no index, a plan opens
-- all nine, of which the session keeps each; but it is not for who may read some columns alone.
CREATE OR REPLACE FUNCTION queue._still(name text) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rel CONSTANT regclass := to_regclass(queue._table(name));
BEGIN
	IF queue._ordinary(rel) IS NOT TRUE THEN
		RETURN false;
	ELSIF has_table_privilege(rel, 'SELECT') THEN
		EXECUTE 'LOCK TABLE ONLY ' || queue._table(name) || ' IN ACCESS SHARE MODE';
	ELSE
		EXECUTE format('SELECT FROM %s LIMIT 0', queue._table(name));
	END IF;
	RETURN queue._ordinary(to_regclass(queue._table(name))) IS TRUE;
EXCEPTION WHEN undefined_table THEN
	RETURN false;
END
$$;

-- Who only looks at all queues, one by one, has looked at this one: what it was locked with is let go. A queue is some
-- fifteen locks, and of a thousand queues they are more than Postgres has room for (max_locks_per_transaction), for
-- anybody. Rows that a function has returned by then stay returned.
CREATE OR REPLACE FUNCTION queue._visited() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = 'QBSEE', MESSAGE = 'looked at';
END
$$;

-- Anybody may call these. A new function is anybody's to call, unless default privileges say otherwise: to write that into
-- the catalogue once more, for each function of each queue, is a twentieth of a CREATE.
CREATE OR REPLACE FUNCTION queue._for_all(VARIADIC functions text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF EXISTS (SELECT FROM pg_default_acl) THEN
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC',
			(SELECT string_agg(format('queue.%I', f), ', ') FROM unnest(functions) AS f));
	END IF;
END
$$;

-- Has its table never had a job, or has vacuum cut it off since? Then it need not be read, nor locked for longer than this
-- takes: who looks at all queues would run out of locks (max_locks_per_transaction) with a thousand of them.
CREATE OR REPLACE FUNCTION queue._has_no_pages(name text) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN coalesce(pg_relation_size(to_regclass(queue._table(name))) = 0, false);
END
$$;

-- May the proxy visit this queue with the caller's login, which has not named it now? It is his own, or he has
-- taken from it (these he has used), but no superuser's visit to what is not his. used NULL: he calls us
-- himself, and means all queues.
CREATE OR REPLACE FUNCTION queue._visits(cfg queue.queues, used text[]) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN used IS NULL OR cfg.owner = quote_ident(current_user)::regrole OR cfg.name = ANY (used)
		AND NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user);
END
$$;

-- Rows of a function have one type: there is a function for each type of payloads (payload.sql).
-- The proxy reads the detail.
CREATE OR REPLACE FUNCTION queue._check_payload(cfg queue.queues, wanted text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF wanted <> cfg.payload THEN
		RAISE EXCEPTION USING ERRCODE = '42804',
			MESSAGE = format('payloads of queue "%s" are %s, not %s', cfg.name, cfg.payload, wanted),
			DETAIL = format('The queue was created with payload = %s.', cfg.payload),
			HINT = format('Call the function for %1$s: queue.take%2$s, pop%2$s, peek%2$s, job%2$s.',
				cfg.payload, CASE WHEN cfg.payload <> 'jsonb' THEN '_' || cfg.payload END);
	END IF;
END
$$;

-- For durability = async: a commit that does not wait for the disk, but only if this statement
-- is all of its transaction. With something else in it, that would lose its durability too. A
-- simple Query has just begun its transaction when the two times are equal; in the extended
-- protocol they never are, so the proxy says it of its own connections by a setting. What follows
-- in the same transaction cannot be seen: so the Query must be one SELECT that calls us itself,
-- not a string of statements, not a trigger or a function that calls us before it writes.
CREATE OR REPLACE FUNCTION queue._commit_async() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF current_setting('qbouncer.autonomous', true) = 'on'
			OR (transaction_timestamp() = statement_timestamp()
				AND pg_current_xact_id_if_assigned() IS NULL AND pg_trigger_depth() = 0
				AND current_query() ~*
					'^[[:space:]]*select([[:space:]]|[^;]*[^;a-z0-9_])queue[.][^;]*;?[[:space:]]*$') THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END
$$;

-- A job of this queue may be taken now, by what became of another one: those who wait for it are told.
-- How, the setting qbouncer.tell says:
--   (nothing)  by a notification, which all proxies hear; that takes a lock at the commit which all wait for
--              who notify in the database
--   here       by a message of this connection: a proxy has sent the statement, keeps the message for itself,
--              and tells the others when it is committed. Once of each queue: their numbers are put behind it
--   nobody     the caller tells of the queue in any case; how of others (_bury), is behind it
-- What the proxy calls sets it until the end of the transaction, in which the proxy hears all that is said. It
-- is in no SET clause: only a superuser may give one with a setting that Postgres does not know.
CREATE OR REPLACE FUNCTION queue._tell(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	how CONSTANT text := coalesce(current_setting('qbouncer.tell', true), '');
BEGIN
	IF left(how, 4) = 'here' THEN
		IF strpos(how || ' ', ' ' || number || ' ') = 0 THEN
			PERFORM set_config('qbouncer.tell', how || ' ' || number, true);
			-- it goes to the client whatever client_min_messages says
			-- of which transaction: a procedure may have several
			RAISE INFO USING ERRCODE = 'QB100', MESSAGE = name, DETAIL = coalesce(pg_current_xact_id_if_assigned()::text, '');
		END IF;
	ELSIF left(how, 6) <> 'nobody' THEN
		PERFORM pg_notify('qbouncer', name);
	END IF;
END
$$;

-- A token is "<queue number>-<id>-<16 hex digits>".
CREATE OR REPLACE FUNCTION queue._bad_token(job text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF job IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a job must not be null',
			HINT = 'Pass the token that TAKE returned.';
	ELSIF job ~ '^[0-9]{1,9}-d[0-9]{1,18}-' THEN
		RAISE EXCEPTION USING ERRCODE = '0A000',
			MESSAGE = format('%s is a delivery of a stream, with which this is not possible', left(job, 80)),
			HINT = 'A delivery is ended alone, by a QUEUE DONE, FAIL, RELEASE or EXTEND of its own.';
	END IF;
	RAISE EXCEPTION USING ERRCODE = '22023',
		MESSAGE = format('"%s" is not the token of a job', left(job, 80)),
		HINT = 'Pass the token that TAKE returned; a bare id works only on the connection '
			'that holds the job.';
END
$$;

-- Jobs as a statement lists them: one that begins with a brace is an array of them, as a parameter may be.
CREATE OR REPLACE FUNCTION queue._list(jobs text[]) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF strpos(array_to_string(jobs, ''), '{') > 0 THEN
		RETURN coalesce((SELECT array_agg(e.job ORDER BY j.n, e.n)
			FROM unnest(jobs) WITH ORDINALITY AS j (list, n),
				LATERAL unnest(CASE WHEN left(j.list, 1) = '{' THEN j.list::text[] ELSE ARRAY[j.list] END)
					WITH ORDINALITY AS e (job, n)), '{}');
	END IF;
	RETURN jobs;
END
$$;

-- One job, as the functions for everybody take it: not a list.
CREATE OR REPLACE FUNCTION queue._single(job text) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF left(job, 1) = '{' THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('"%s" is not a job', left(job, 80)),
			HINT = 'Pass one job; for several there is a function that takes text[].';
	END IF;
	RETURN CASE WHEN job IS NOT NULL THEN ARRAY[job] END;
END
$$;

CREATE OR REPLACE FUNCTION queue._other_queue(job text, q text, number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22023',
		MESSAGE = format('job %s is not one of queue "%s"', left(job, 80), q),
		HINT = coalesce((SELECT format('It is one of queue "%s"; a job that is named whole needs no ON.', c.name)
				FROM queue.queues AS c WHERE c.number = split_part(job, '-', 1)::int4),
			format('The jobs of queue "%s" begin with %s-.', q, number));
END
$$;

-- Tokens of jobs of this queue, or an error.
CREATE OR REPLACE FUNCTION queue._of(jobs text[], q text) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	list CONSTANT text[] := queue._list(jobs);
	job text;
BEGIN
	FOREACH job IN ARRAY list LOOP
		IF job ~ '^[0-9]{1,9}-' AND split_part(job, '-', 1)::int4 <> cfg.number THEN
			PERFORM queue._other_queue(job, q, cfg.number);
		END IF;
	END LOOP;
	RETURN list;
END
$$;

-- Tokens by queue: ids ascending, each with its digits. All functions that lock several jobs
-- lock them in this order. A token given twice counts once. A queue that is gone: strict, the
-- job is lost; otherwise it is passed over.
CREATE OR REPLACE FUNCTION queue._split(jobs text[], strict bool)
RETURNS TABLE (cfg queue.queues, ids int8[], tokens text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	job text;
	part record;
BEGIN
	IF jobs IS NULL THEN
		PERFORM queue._bad_token(NULL);
	END IF;
	FOREACH job IN ARRAY jobs LOOP
		IF job ~ '^[0-9]{1,9}-[0-9]{1,18}-[0-9a-f]{16}$' IS NOT TRUE THEN
			PERFORM queue._bad_token(job);
		END IF;
	END LOOP;
	IF cardinality(jobs) = 1 THEN	-- by far the most frequent
		SELECT c.* INTO cfg FROM queue.queues AS c WHERE c.number = split_part(job, '-', 1)::int4;
		ids := ARRAY[split_part(job, '-', 2)::int8];
		tokens := ARRAY[split_part(job, '-', 3)];
		IF FOUND THEN
			RETURN NEXT;
		ELSIF strict THEN
			PERFORM queue._lost(NULL, ids, tokens, NULL, split_part(job, '-', 1)::int4);
		END IF;
		RETURN;
	END IF;
	FOR part IN
			SELECT c, s.number, s.ids, s.tokens
			FROM (SELECT j.number, array_agg(j.id ORDER BY j.id, j.token) AS ids,
					array_agg(j.token ORDER BY j.id, j.token) AS tokens
				FROM (SELECT DISTINCT split_part(t, '-', 1)::int4 AS number,
						split_part(t, '-', 2)::int8 AS id, split_part(t, '-', 3) AS token
					FROM unnest(jobs) AS t) AS j
				GROUP BY j.number) AS s
			LEFT JOIN queue.queues AS c ON c.number = s.number ORDER BY s.number LOOP
		cfg := part.c;
		ids := part.ids;
		tokens := part.tokens;
		IF cfg.number IS NOT NULL THEN
			RETURN NEXT;
		ELSIF strict THEN
			PERFORM queue._lost(NULL, ids, tokens, NULL, part.number);
		END IF;
	END LOOP;
END
$$;

-- The names of the queues of these jobs, or of the streams of these deliveries, one row each, in their order.
CREATE OR REPLACE FUNCTION queue._names(jobs text[]) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT coalesce(c.name, s.name) FROM unnest(queue._list(jobs)) WITH ORDINALITY AS j(job, n)
		LEFT JOIN queue.queues AS c ON c.number = split_part(job, '-', 1)::int4
		LEFT JOIN queue.subscriptions AS u ON u.number = split_part(job, '-', 1)::int4
		LEFT JOIN queue.streams AS s ON s.number = u.stream
		WHERE c.number IS NOT NULL OR s.number IS NOT NULL
		ORDER BY n;
END
$$;

-- What has become of a job whose row is gone, as far as that is known: it may be kept, and the ids
-- that there have been are known, to who may see these.
-- The proxy reads the detail when a DONE is repeated of whose end it has not heard: done, or gone.
CREATE OR REPLACE FUNCTION queue._why_gone(cfg queue.queues, id int8, OUT why text, OUT hint text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	kept record;
BEGIN
	IF NOT queue._was_given(cfg.number, id) THEN
		why := 'There has never been such a job.';
		hint := format('Pass the token as TAKE returned it; the last id of queue "%s" is lower.', cfg.name);
		RETURN;
	END IF;
	IF has_table_privilege(to_regclass(queue._archive(cfg.name)), 'SELECT') THEN
		EXECUTE format('SELECT state, ended_at, worker FROM %s WHERE id = $1
			ORDER BY ended_at + interval ''0'' DESC LIMIT 1', queue._archive(cfg.name)) INTO kept USING id;
	END IF;
	IF kept.state = 'done' THEN
		why := format('The job was done at %s%s.', kept.ended_at, coalesce(', taken by ' || kept.worker, ''));
		hint := 'Nothing was changed. It was done with this lease, or the lease had ended and another worker took the job.';
	ELSIF kept.state IS NOT NULL THEN
		why := format('The job was %s at %s.', kept.state, kept.ended_at);
		hint := 'Nothing was changed. Stop the work: nobody wants it any more.';
	ELSE
		why := 'The job is finished and gone.';
		hint := format('Nothing was changed. It was done, cancelled or purged, by this worker or by another that '
			'took it after the lease had ended; with retain_done queue "%s" would know which.', cfg.name);
	END IF;
END
$$;

-- Says why the first of these jobs that is not in "still" is lost. Nothing of the statement
-- has happened then: the error takes it all back.
CREATE OR REPLACE FUNCTION queue._lost(name text, ids int8[], tokens text[], still int8[],
	number int4 DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	at int4 := 1;
	job record;
	why text := 'The queue was dropped.';
	hint text := 'Nothing was changed. QUEUE LIST shows the queues that there are, with the numbers that tokens begin with.';
	numbers CONSTANT regclass := pg_get_serial_sequence('queue.queues', 'number');
BEGIN
	WHILE ids[at] = ANY (still) AND at < cardinality(ids) LOOP
		at := at + 1;
	END LOOP;
	IF name IS NOT NULL THEN
		EXECUTE format('SELECT state, token, lease_until, error, worker FROM %s WHERE id = $1',
			queue._table(name)) INTO job USING ids[at];
		IF job.token = 'x' || tokens[at] THEN
			RAISE EXCEPTION USING ERRCODE = 'QB002',
				MESSAGE = format('job %s is cancelled', ids[at]),
				HINT = 'Nothing was changed. Stop the work: the job goes away by itself.';
		ELSIF left(job.token, 17) = 'g' || tokens[at] THEN
			PERFORM queue._lot_lost(queue._find(name), ids[at], tokens[at]);
		ELSIF job.state IS NULL THEN
			SELECT w.why, w.hint INTO why, hint FROM queue._why_gone(queue._find(name), ids[at]) AS w;
		ELSIF job.state = 'leased' AND job.token = tokens[at] THEN
			why := format('The lease ended at %s.', job.lease_until);
			hint := 'Nothing was changed. Take with a longer LEASE or with HOLD, or EXTEND the lease before it ends.';
		ELSIF job.state = 'leased' THEN
			why := 'The lease expired or was given back, and the job has been taken again.';
			hint := format('Nothing was changed. Stop the work: %s does it now. With a longer LEASE, an EXTEND or HOLD '
				'it would not have been taken.', coalesce(format('worker "%s"', left(job.worker, 80)), 'another worker'));
		ELSIF job.error IS NOT NULL THEN
			why := format('The job is %s now; its last error: %s', job.state, left(job.error, 200));
			hint := CASE WHEN job.state = 'dead' THEN 'Nothing was changed. Dead jobs are run again by QUEUE RERUN.'
				WHEN job.error = 'ran too long' THEN
					'Nothing was changed. The queue lets no attempt run longer: QUEUE ALTER ... SET (max_run = ...).'
				WHEN job.error = 'lease expired' THEN
					'Nothing was changed. Take with a longer LEASE or with HOLD, or EXTEND the lease before it ends.'
				ELSE 'Nothing was changed. The attempt has ended; the job will be taken again.' END;
		ELSE
			why := format('The job was released and is %s now.', job.state);
			hint := 'Nothing was changed. It will be taken again.';
		END IF;
	ELSIF has_sequence_privilege(numbers, 'SELECT') THEN
		IF number > coalesce(pg_sequence_last_value(numbers), 0) THEN
			why := 'There has never been such a queue.';
		END IF;
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'QB001',
		MESSAGE = format('the lease of job %s is lost', ids[at]),
		DETAIL = why,
		HINT = hint;
END
$$;
