-- What is done to jobs by others than their worker: CANCEL, RERUN, REDRIVE; and how they are named.
--
-- A job is named by "<queue number>-<id>", which is its name, or by the token of any of its leases, of which
-- only these two parts count; with its queue also by its id or its KEY. An id alone is enough where there is no
-- other queue. It is never looked for: what one queue has by chance is not what was meant of another.

CREATE OR REPLACE FUNCTION queue._no_job(ref text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = 'QB003', MESSAGE = format('there is no job %s', ref),
		HINT = 'A job that has ended is gone; if its queue keeps it (retain_done), QUEUE JOB shows it.';
END
$$;

-- What a job is named by: the number of its queue and its id. A bare id: the number is NULL.
CREATE OR REPLACE FUNCTION queue._ref(ref text, OUT number int4, OUT id int8)
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF ref ~ '^[0-9]{1,9}-[0-9]{1,18}(-[0-9a-f]{16})?$' THEN
		number := split_part(ref, '-', 1)::int4;
		id := split_part(ref, '-', 2)::int8;
	ELSIF ref ~ '^[0-9]{1,18}$' THEN
		id := ref::int8;
	ELSIF ref IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a job must not be null';
	ELSE
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('"%s" is not a job', left(ref, 80)),
			HINT = 'Pass the job, ''<queue number>-<id>'', or a token that TAKE returned, or its id with ON and the queue.';
	END IF;
END
$$;

-- The queue of a bare id that nobody has named: the only one. verb: of the statement that the hint spells.
CREATE OR REPLACE FUNCTION queue._only_queue(ref text, verb text) RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
	names text[];
	several CONSTANT int8 := (SELECT count(*) FROM (SELECT FROM queue.queues LIMIT 2) AS c);
BEGIN
	IF several = 0 THEN
		PERFORM queue._no_job(ref);
	ELSIF several = 1 THEN
		SELECT * INTO cfg FROM queue.queues AS c;
		RETURN cfg;
	END IF;
	-- those that the role may look into; their jobs are not looked at
	SELECT array_agg(c.name) INTO names FROM (SELECT name FROM queue.queues
		WHERE has_any_column_privilege(to_regclass(queue._table(name)), 'SELECT') ORDER BY name LIMIT 4) AS c;
	RAISE EXCEPTION USING ERRCODE = '22023',
		MESSAGE = format('job %s is of which queue?', ref),
		DETAIL = 'Each queue counts its ids by itself, and there are several queues.',
		HINT = CASE WHEN names IS NULL THEN format('Name its queue: QUEUE %s %s ON ...;', verb, ref) ELSE
			format('Name its queue: QUEUE %s %s ON %I;', verb, ref, names[1])
			|| coalesce(' Or ON ' || (SELECT string_agg(quote_ident(n), ', ') FROM unnest(names[2:3]) AS n)
				|| CASE WHEN cardinality(names) > 3 THEN ', or another one (QUEUE LIST).' ELSE '.' END, '') END;
END
$$;

-- The job of this queue that has the key and is not finished; of RERUN the dead one, and of JOB that too, if there
-- is no other.
CREATE OR REPLACE FUNCTION queue._by_key(k text, q text, verb text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	seek CONSTANT regprocedure := to_regprocedure(format('queue._seek_%s(text, text)', cfg.number));
	found int8;
BEGIN
	IF k IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the key of a job must not be null';
	END IF;
	IF verb = 'AWAIT' AND NOT has_column_privilege(to_regclass(queue._table(q)), 'key', 'SELECT')
			AND has_function_privilege(seek, 'EXECUTE') THEN
		-- who may push may ask about one key, and may be given no more than to await
		EXECUTE format('SELECT s.old FROM queue._seek_%s($1, NULL) AS s', cfg.number) INTO found USING k;
	ELSIF verb <> 'RERUN' THEN
		EXECUTE format('SELECT id FROM %s WHERE key = $1 AND state <> %L', queue._table(q), 'dead')
			INTO found USING k;
	END IF;
	IF found IS NULL AND verb IN ('RERUN', 'JOB', 'HISTORY') THEN
		EXECUTE format('SELECT id FROM %s WHERE ended_at IS NOT NULL AND state = %L AND key = $1 ORDER BY ended_at DESC LIMIT 1',
			queue._table(q), 'dead') INTO found USING k;
	END IF;
	IF found IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'QB003',
			MESSAGE = format('queue "%s" has no %sjob with the key "%s"', q,
				CASE verb WHEN 'RERUN' THEN 'dead ' WHEN 'JOB' THEN '' WHEN 'HISTORY' THEN '' ELSE 'unfinished ' END, left(k, 200)),
			HINT = 'A key names a job until it is done, dead or cancelled.';
	END IF;
	RETURN cfg.number || '-' || found;
END
$$;

-- The job that is meant; whether it is there is not looked at. q: its queue, or NULL.
CREATE OR REPLACE FUNCTION queue._locate(ref text, q text, verb text)
RETURNS TABLE (number int4, name text, id int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	cfg queue.queues;
	said int4;
BEGIN
	IF q IS NOT NULL THEN
		cfg := queue._find(q);
	END IF;
	SELECT r.number, r.id INTO said, id FROM queue._ref(ref) AS r;
	IF said <> cfg.number THEN
		PERFORM queue._other_queue(ref, q, cfg.number);
	ELSIF said IS NOT NULL THEN
		SELECT * INTO cfg FROM queue.queues AS c WHERE c.number = said;
	ELSIF q IS NULL THEN
		cfg := queue._only_queue(ref, verb);
	END IF;
	IF cfg.name IS NULL THEN
		PERFORM queue._no_job(ref);
	END IF;
	number := cfg.number;
	name := cfg.name;
	RETURN NEXT;
END
$$;

-- The jobs that a statement names; k: the key of one, instead.
CREATE OR REPLACE FUNCTION queue._refs(refs text[], q text, k text, verb text) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF refs IS NOT NULL THEN
		RETURN queue._list(refs);
	ELSIF q IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a job must not be null';
	END IF;
	RETURN ARRAY[queue._by_key(k, q, verb)];
END
$$;

-- The jobs to be changed, each once, locked in the order that all functions keep to.
CREATE OR REPLACE FUNCTION queue._lock(refs text[], q text, verb text)
RETURNS TABLE (number int4, name text, id int8, state text, leased bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
	FOR number, name, id IN
			SELECT DISTINCT l.number, l.name, l.id
			FROM unnest(refs) AS r, LATERAL queue._locate(r, q, verb) AS l ORDER BY 1, 3 LOOP
		EXECUTE format('SELECT state, state = ''leased'' AND lease_until > clock_timestamp()
			FROM %s WHERE id = $1 FOR UPDATE', queue._table(name)) INTO state, leased USING id;
		-- who has waited for the table may have that of another queue of this name
		IF state IS NULL OR NOT EXISTS (SELECT FROM queue.queues AS c
				WHERE c.number = _lock.number AND c.name = _lock.name) THEN
			PERFORM queue._no_job(number || '-' || id);
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;

-- The proxies that renew leases of this queue look at once whether they still may. No queue has this name
-- (src/queue/lease.h); its number is told apart from that of the queue's own events. Of a lease without a proxy nobody
-- would know what to do with it.
CREATE OR REPLACE FUNCTION queue._tell_cancelled(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._tell(-number, 'of no queue: cancelled in ' || number);
END
$$;

-- A job that waits goes away. One that somebody works on is marked, by an x before its token: that
-- makes everything its worker may say of it QB002 (_lost), and it goes away when the lease ends.
CREATE OR REPLACE FUNCTION queue._cancel(refs text[], notify bool, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS TABLE (queue text, job text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	one record;
	held bool;
BEGIN
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM set_config('qbouncer.gone', 'cancelled', true);
	FOR one IN SELECT * FROM queue._lock(queue._refs(refs, q, k, 'CANCEL'), q, 'CANCEL') LOOP
		IF one.state = 'dead' THEN
			RAISE EXCEPTION USING ERRCODE = '55000',
				MESSAGE = format('job %s-%s is dead already', one.number, one.id),
				HINT = format('Dead jobs are deleted by: QUEUE PURGE %I STATE dead;', one.name);
		ELSIF one.leased THEN
			EXECUTE format($sql$UPDATE %s SET token = 'x' || ltrim(token, 'x'), key = NULL WHERE id = $1
				RETURNING proxy IS NOT NULL$sql$, queue._table(one.name)) INTO held USING one.id;
			IF held THEN
				PERFORM queue._tell_cancelled(one.number);
			END IF;
		ELSE
			IF one.state = 'blocked' THEN
				PERFORM queue._lot_without(queue._find(one.name), one.id);
			END IF;
			EXECUTE format('WITH gone AS (DELETE FROM %s WHERE id = $1 RETURNING *) %s SELECT FROM gone',
				queue._table(one.name), queue._with_keep(queue._find(one.name), 'gone', 'cancelled'))
				USING one.id;
		END IF;
		queue := one.name;
		job := one.number || '-' || one.id;
		RETURN NEXT;
	END LOOP;
	PERFORM set_config('qbouncer.gone', '', true);
END
$$;

-- What locks jobs of a queue in the order in which DONE of several lets the next ones of their groups go: what is behind
-- the first of a group has the place of that one. columns: what else it gives of them.
CREATE OR REPLACE FUNCTION queue._in_order(name text, which text, columns text DEFAULT '') RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN format($sql$
		SELECT id AS job%3$s FROM %1$s AS t LEFT JOIN (
				SELECT "group" AS of, min(id) AS head FROM %1$s
				WHERE "group" IS NOT NULL AND state IN ('ready', 'later', 'leased') GROUP BY 1) AS f ON state = 'blocked' AND of = "group"
			WHERE %2$s ORDER BY coalesce(head, id), id FOR UPDATE OF t$sql$, queue._table(name), which, columns);
END
$$;

-- Has this queue some that wait for others? Who deletes the jobs of one that has none need not look for an order.
CREATE OR REPLACE FUNCTION queue._has_blocked(name text) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	ret bool;
BEGIN
	EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE state = ''blocked'')', queue._table(name)) INTO ret;
	RETURN ret;
END
$$;

-- All jobs of a queue that are not dead, or of these: as _cancel does it with each. What is marked already is not counted.
CREATE OR REPLACE FUNCTION queue.cancel_all(q text, notify bool DEFAULT true, ids int8[] DEFAULT NULL) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	changed int8;
	held bool;
BEGIN
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM set_config('qbouncer.gone', 'cancelled', true);
	EXECUTE format($sql$
		WITH those AS MATERIALIZED (
			%3$s),
		marked AS (UPDATE %1$s SET token = 'x' || ltrim(token, 'x'), key = NULL FROM those WHERE id = job AND runs
			RETURNING id, proxy IS NOT NULL AS held),
		gone AS (DELETE FROM %1$s AS d USING those WHERE d.id = job AND NOT runs RETURNING d.*) %2$s
		SELECT (SELECT count(*) FROM marked) + (SELECT count(*) FROM gone), EXISTS (SELECT FROM marked AS m WHERE m.held)
	$sql$, queue._table(q), queue._with_keep(cfg, 'gone', 'cancelled'), queue._in_order(q, $sql$
				state <> 'dead' AND ($1 IS NULL OR id = ANY ($1)) AND (left(token, 1) = 'x' AND lease_until > $2) IS NOT TRUE$sql$,
			$sql$, state = 'leased' AND lease_until > $2 AS runs$sql$)) INTO changed, held USING ids, clock_timestamp();
	IF held THEN
		PERFORM queue._tell_cancelled(cfg.number);
	END IF;
	PERFORM set_config('qbouncer.gone', '', true);
	RETURN changed;
END
$$;

-- What changes when a dead job is run again: behind others, or of a group, it waits until it is let in.
CREATE OR REPLACE FUNCTION queue._set_rerun() RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._set_due('CASE WHEN "group" IS NULL AND behind IS NULL THEN ''ready'' ELSE ''blocked'' END', 'clock_timestamp()',
		expires_at => 'CASE WHEN expires_at > clock_timestamp() THEN expires_at END');
END
$$;

-- A dead job starts afresh, behind what is ready now. Its last error stays to be seen.
CREATE OR REPLACE FUNCTION queue._rerun(refs text[], notify bool, q text DEFAULT NULL, k text DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	job record;
	index text;
BEGIN
	FOR job IN SELECT * FROM queue._lock(queue._refs(refs, q, k, 'RERUN'), q, 'RERUN') LOOP
		IF job.state <> 'dead' THEN
			RAISE EXCEPTION USING ERRCODE = '55000',
				MESSAGE = format('job %s-%s is not dead', job.number, job.id),
				DETAIL = format('Its state is %s.', job.state),
				HINT = 'Only dead jobs can be run again.';
		END IF;
		BEGIN
			EXECUTE format('UPDATE %s SET %s, position = DEFAULT, ended_at = NULL, spent = coalesce(spent, 0) + attempt, attempt = 0, failures = 0, losses = NULL
				WHERE id = $1', queue._table(job.name), queue._set_rerun())
				USING job.id;
		EXCEPTION WHEN unique_violation THEN
			GET STACKED DIAGNOSTICS index = CONSTRAINT_NAME;
			IF NOT queue._is_index(index, job.number, 'key') THEN
				RAISE;
			END IF;
			RAISE EXCEPTION USING ERRCODE = '23505',
				MESSAGE = format('queue "%s" has another job with the key of job %s-%s', job.name, job.number, job.id),
				HINT = 'Run it again when that one has ended.';
		END;
		IF notify THEN
			PERFORM pg_notify('qbouncer', job.name);
		END IF;
		RETURN NEXT job.name;
	END LOOP;
END
$$;

-- What ALTER JOB may set, each as its text; set: which of them are said.
CREATE OR REPLACE FUNCTION queue._job_changes(names text[], vals text[], OUT set text[], OUT priority int4,
	OUT start timestamptz, OUT payload text, OUT headers jsonb, OUT expires interval, OUT attempts int4)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	val text;
BEGIN
	set := coalesce(names, '{}');
	IF cardinality(set) = 0 OR cardinality(set) IS DISTINCT FROM cardinality(vals)
			OR (SELECT count(DISTINCT n) FROM unnest(set) AS n) <> cardinality(set) THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'what is to be changed has to be named, each once, with its value';
	END IF;
	FOR i IN 1 .. cardinality(set) LOOP
		val := vals[i];
		IF val IS NULL AND set[i] IN ('priority', 'at', 'payload') THEN
			RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = format('%s must not be null', set[i]);
		END IF;
		CASE set[i]
		WHEN 'priority' THEN
			priority := val;
		WHEN 'at' THEN
			start := CASE WHEN lower(btrim(val)) = 'now' THEN clock_timestamp()::text ELSE val END;
			IF start = '-infinity' THEN
				RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'the time of a job must not be -infinity',
					HINT = 'At once: at = ''now''; not before somebody says so: at = ''infinity''.';
			END IF;
		WHEN 'payload' THEN
			payload := val;
		WHEN 'headers' THEN
			headers := queue._check_push(val, NULL, NULL);
		WHEN 'expires' THEN
			expires := val;
			PERFORM queue._check_push(NULL, expires, NULL);
		WHEN 'attempts' THEN
			attempts := val;
			PERFORM queue._check_push(NULL, NULL, attempts);
		ELSE
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = format('a job has no "%s" that can be changed', left(coalesce(set[i], ''), 80)),
				HINT = 'Allowed: priority, at, payload, headers, expires, attempts.';
		END CASE;
	END LOOP;
END
$$;

-- Changes jobs that wait, also those that wait for a retry. Who is told another time or priority goes behind what is
-- ready by then, as a push would; the others keep their places. at = infinity: held until somebody says another time.
CREATE OR REPLACE FUNCTION queue._alter_job(refs text[], names text[], vals text[], notify bool, q text DEFAULT NULL,
	k text DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	job record;
	said record;
	cfg queue.queues;
	lost text;
	was CONSTANT text := coalesce(current_setting('qbouncer.tell', true), '');
BEGIN
	SELECT c.* INTO said FROM queue._job_changes(names, vals) AS c;
	FOR job IN SELECT * FROM queue._lock(queue._refs(refs, q, k, 'ALTER JOB'), q, 'ALTER JOB') LOOP
		cfg := queue._find(job.name);
		IF job.state = 'leased' AND NOT job.leased THEN	-- its lease is over, which nobody has found
			EXECUTE format('SELECT $1 || ''-'' || id || ''-'' || ltrim(token, ''x'') FROM %s WHERE id = $2',
				queue._table(job.name)) INTO lost USING job.number, job.id;
			PERFORM queue._give_back(ARRAY[lost], 'lease expired', true);
			PERFORM set_config('qbouncer.tell', was, true);
			EXECUTE format('SELECT state FROM %s WHERE id = $1', queue._table(job.name)) INTO job.state USING job.id;
		END IF;
		IF job.state IS NULL THEN
			PERFORM queue._no_job(job.number || '-' || job.id);
		ELSIF job.state IN ('leased', 'dead') OR job.state = 'blocked' AND queue._lot_has(cfg, job.id) THEN
			RAISE EXCEPTION USING ERRCODE = '55000',
				MESSAGE = format(CASE job.state WHEN 'dead' THEN 'job %s-%s is dead' ELSE 'job %s-%s is being worked on' END,
					job.number, job.id),
				DETAIL = 'Only jobs that wait can be changed.',
				HINT = format(CASE job.state WHEN 'dead' THEN 'Run it again first: QUEUE RERUN ''%s-%s'';'
					ELSE 'To stop its worker: QUEUE CANCEL ''%s-%s''; what has a KEY can be pushed again: ON DUPLICATE REPLACE.' END,
					job.number, job.id);
		END IF;
		EXECUTE format($sql$
			UPDATE %1$s SET %2$s %4$s,
				priority = coalesce($5, priority),
				payload = coalesce($6::%3$s, payload),
				headers = CASE WHEN 'headers' = ANY ($2) THEN nullif($7, 'null') ELSE headers END,
				max_attempts = CASE WHEN 'attempts' = ANY ($2) THEN $9 ELSE max_attempts END
			WHERE id = $1
		$sql$, queue._table(job.name),
			CASE WHEN job.state <> 'blocked' AND said.set && '{at, priority}' THEN 'position = DEFAULT,' ELSE '' END, cfg.payload,
			queue._set_due('CASE WHEN state = ''blocked'' OR $4 IS NULL THEN state WHEN $4 > $3 THEN ''later'' ELSE ''ready'' END',
				'CASE WHEN $4 IS NULL THEN run_at ELSE greatest($4, $3) END', expires_at =>
				'CASE WHEN ''expires'' = ANY ($2) THEN greatest($4, CASE WHEN $4 IS NULL THEN run_at END, $3) + $8 ELSE expires_at END'))
			USING job.id, said.set, clock_timestamp(), said.start, said.priority, said.payload, said.headers, said.expires,
				said.attempts;
		IF notify THEN
			PERFORM pg_notify('qbouncer', job.name);
		END IF;
		RETURN NEXT job.name;
	END LOOP;
END
$$;

-- Jobs go to another queue, as by DONE ... THEN MOVE: payload and headers, and where they came from; their priorities,
-- too. Here they have ended: dead, or cancelled.
CREATE OR REPLACE FUNCTION queue._redrive_to(here queue.queues, target text, lim int4, ids int8[], which text) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
	there CONSTANT queue.queues := queue._find(target);
	counts bool;
	moved int8;
BEGIN
	IF there.number = here.number THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the jobs are in queue "%s" already', here.name),
			HINT = format('To run them there: QUEUE REDRIVE %I;', here.name);
	ELSIF there.payload <> here.payload THEN
		RAISE EXCEPTION USING ERRCODE = '42804',
			MESSAGE = format('payloads of queue "%s" are %s, not %s', there.name, there.payload, here.payload),
			HINT = 'Jobs can be moved to queues of the same type.';
	ELSIF there.run IS NOT NULL AND here.run IS NULL THEN
		PERFORM queue._not_moved(there.name);
	ELSIF NOT has_column_privilege(to_regclass(queue._table(there.name)), 'payload', 'INSERT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for queue "%s"', there.name),
			HINT = format('The owner of the queue can allow it: QUEUE GRANT PUSH ON %I TO ...;', there.name);
	END IF;
	PERFORM set_config('qbouncer.gone', 'moved', true);
	-- for who runs it there (_attempts); who may only push there does not write it
	counts := (there.handler IS NOT NULL OR there.run IS NOT NULL) AND has_column_privilege(queue._table(there.name)::regclass, 'spent', 'INSERT');
	EXECUTE format($sql$
		WITH those AS MATERIALIZED (
			SELECT id AS job FROM %1$s WHERE %7$s IS NOT NULL AND state = $3 AND ($2 IS NULL OR id = ANY ($2))
			ORDER BY %2$s, id LIMIT $1 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM %1$s AS d USING those WHERE d.id = job RETURNING d.*) %3$s
		INSERT INTO %4$s (pushed_at, priority, headers, payload%5$s)
		SELECT clock_timestamp(), priority, coalesce(nullif(headers, 'null'), '{}') || jsonb_build_object('parent', $4 || '-' || id),
			payload%6$s FROM gone ORDER BY %2$s, id
	$sql$, queue._table(here.name), CASE which WHEN 'dead' THEN 'ended_at' ELSE 'run_at' END,
		queue._with_keep(here, 'gone', CASE which WHEN 'dead' THEN 'dead' ELSE 'cancelled' END), queue._table(there.name),
		CASE WHEN counts THEN ', spent' ELSE '' END, CASE WHEN counts THEN ', nullif(attempt + coalesce(spent, 0), 0)' ELSE '' END,
		CASE which WHEN 'dead' THEN 'ended_at' ELSE 'due' END)
		USING lim, ids, which, here.number;
	GET DIAGNOSTICS moved = ROW_COUNT;
	PERFORM set_config('qbouncer.gone', '', true);
	IF here.run IS NULL AND queue._runs_since(there.number) THEN
		PERFORM queue._changed_since(there.name);
	END IF;
	IF moved > 0 THEN
		PERFORM queue._tell(there.number, there.name);
	END IF;
	RETURN moved;
END
$$;

-- All dead jobs of a queue, or the first so many that died. They keep that order. Of those with one
-- key it is the last, if no other job has the key: looked up in indexes, each by itself, and not by
-- reading the queue once for each.
-- ids: of these alone. which: dead, or later: those that wait for a retry or their time need not wait any more, the
-- first to be due first. target: the queue that they go to.
CREATE OR REPLACE FUNCTION queue.redrive(q text, lim int4 DEFAULT NULL, notify bool DEFAULT true,
	ids int8[] DEFAULT NULL, which text DEFAULT 'dead', target text DEFAULT NULL)
RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	moved int8;
BEGIN
	IF lim < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'LIMIT must not be negative';
	ELSIF which NOT IN ('dead', 'later') OR which IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('jobs in state "%s" cannot be redriven', left(coalesce(which, ''), 80)), HINT = 'States: dead, later.';
	END IF;
	IF target IS NOT NULL THEN
		PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
		RETURN queue._redrive_to(cfg, target, lim, ids, which);
	ELSIF which = 'later' THEN
		EXECUTE format($sql$
			WITH later AS MATERIALIZED (
				SELECT id AS later_id FROM %1$s WHERE due IS NOT NULL AND state = 'later' AND ($2 IS NULL OR id = ANY ($2))
				ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
			UPDATE %1$s SET state = 'ready', due = expires_at, position = DEFAULT, run_at = clock_timestamp() FROM later WHERE id = later_id
		$sql$, queue._table(q)) USING lim, ids;
	ELSE
		EXECUTE format($sql$
			WITH dead AS MATERIALIZED (
				SELECT id AS dead_id FROM %1$s AS d WHERE ended_at IS NOT NULL AND state = 'dead' AND ($2 IS NULL OR id = ANY ($2))
					AND (key IS NULL OR id IN (SELECT max(id) FROM %1$s
							WHERE ended_at IS NOT NULL AND state = 'dead' AND key IS NOT NULL GROUP BY key)
						-- not EXISTS: that may be hashed, by reading the whole table
						AND (SELECT o.id FROM %1$s AS o WHERE o.key = d.key AND o.state <> 'dead' LIMIT 1) IS NULL)
				ORDER BY ended_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
			UPDATE %1$s SET %2$s, position = DEFAULT, ended_at = NULL, spent = coalesce(spent, 0) + attempt, attempt = 0,
				failures = 0, losses = NULL
			FROM dead WHERE id = dead_id
		$sql$, queue._table(q), queue._set_rerun()) USING lim, ids;
	END IF;
	GET DIAGNOSTICS moved = ROW_COUNT;
	IF notify AND moved > 0 THEN
		PERFORM pg_notify('qbouncer', q);
	END IF;
	RETURN moved;
END
$$;
