-- Lone statements: PUSH, TAKE and DONE of one job as plain statements, without a function around them, which is a
-- third of what they cost. The proxy prepares them on connections of its own, whose settings are pinned (READ
-- COMMITTED, search_path, those of the planner); elsewhere, and for more than one job, it calls the functions of the
-- queue (generate.sql). Each text does what its function does in the usual case, under the same rights, and gives the
-- same rows; in any other case it gives none, or fails, and has changed nothing: the proxy calls the function then.
-- A verb whose function does more in this queue has no text.
--
-- They are made when the queue is made or changed, and kept in queue.lone: to make them takes ten times as long as to
-- read them, and of a thousand queues each is asked for.
--
-- What the functions read of the queue's row stands here as literals. So each text calls a function that is there as
-- long as they are right, _lone_<number>_<digest of the texts>: it is immutable and gone when the plan is made, but
-- Postgres plans anew when it was dropped, and does not find it (42883). Who changes what the texts say, changes its name.

-- The statements: what stands before that condition, and what behind it.
-- push: payload, priority. take: worker, proxy (a negative number: the connection), lease, seed, since (those of
-- _take_<number>), and when it may be at the earliest; behind its row stands the time, by which the proxy sees how long
-- it took. usual: another one, with the queue's own lease, whose proxy is none or no negative number, behind a low mark,
-- and within a time in which nothing has to be looked for: worker, proxy, seed, priority, low mark, and from when to
-- when that is. done: id, token.
CREATE OR REPLACE FUNCTION queue._lone_texts(cfg queue.queues, OUT push text[], OUT take text[], OUT usual text[],
	OUT done text[], OUT async bool)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET intervalstyle = postgres SET quote_all_identifiers = off	-- the same text in every session
AS $$
DECLARE
	tab CONSTANT text := queue._table(cfg.name);
	name CONSTANT text := format('%L::text', cfg.name);
	off CONSTANT text := ' AND set_config(''synchronous_commit'', ''off'', true) IS NOT NULL';
	unsafe CONSTANT text := CASE WHEN cfg.durability = 'async' THEN off ELSE '' END;
	own CONSTANT interval := least(cfg.lease, cfg.max_run);
	lease CONSTANT text := format(CASE WHEN cfg.max_run IS NULL THEN 'coalesce($3, %L::interval)'
		ELSE 'least(coalesce($3, %L::interval), %L::interval)' END, cfg.lease, cfg.max_run);
	look CONSTANT text := format('statement_timestamp() >= $6 AND NOT EXISTS (SELECT FROM %1$s
			WHERE due > $5 AND due <= statement_timestamp())', tab);
	-- The row by a sub-select: a join costs the planner more.
	job CONSTANT text := $text$UPDATE %1$s SET state = 'leased', attempt = attempt + 1, worker = left($1, 200),
			taken_at = statement_timestamp(), first_taken_at = coalesce(first_taken_at, taken_at), proxy = %2$s,
			lease_until = statement_timestamp() + %3$s, due = statement_timestamp() + %3$s,
			token = encode(int8send(uuid_hash_extended(encode(substr(sha256(int8send(%4$s)), 1, 16), 'hex')::uuid, id)), 'hex')
			WHERE ctid = (SELECT ctid FROM %1$s WHERE $text$;
	head CONSTANT text := $text$ AND state = 'ready' AND %2$s
					AND (expires_at > clock_timestamp() OR expires_at IS NULL)
				ORDER BY priority DESC, position LIMIT 1 FOR UPDATE SKIP LOCKED)%3$s RETURNING %4$s, priority$text$;
	marked CONSTANT text := $text$priority = $4 AND position >= $5 AND position <= 9223372036854775807
					AND NOT EXISTS (SELECT FROM %1$s WHERE state = 'ready' AND priority > $4)
					AND statement_timestamp() BETWEEN $6 AND $7$text$;
	row CONSTANT text[] := ARRAY['token', format('''%s-'' || id || ''-'' || token', cfg.number), 'queue', name,
			'policy', format('%L::text', cfg.on_disconnect)];
BEGIN
	async := cfg.durability = 'async';	-- which statements may share a transaction
	IF cfg.limited THEN
		RETURN;
	END IF;
	push := ARRAY[format('INSERT INTO %s (priority, headers, payload, pushed_at)
		SELECT coalesce($2, 0), NULL, $1::%s, clock_timestamp() WHERE ', tab, cfg.payload), unsafe || ' RETURNING id'];
	IF NOT cfg.paused AND NOT cfg.single_consumer THEN
		-- Nothing may be due, which is told by "edge". The time of the statement is before that look, and an index can
		-- use it; it is behind the locks on the table and the snapshot, so no job was pushed later than it was taken.
		-- From the front: to see that nothing of a higher priority is ready is another scan, which costs more than what
		-- few takes leave behind there. And where many do, the proxy sees how long it took.
		take := ARRAY[format(job, tab, CASE cfg.on_disconnect WHEN 'keep' THEN 'CASE WHEN $2 < 0 THEN -$2 END' ELSE 'abs($2)' END,
				lease, '$4'),
			format(head, tab, look || ' AND ($3 > interval ''0'' AND $3 <= interval ''8000 years'') IS NOT FALSE', off,
				queue._taken_row(format('ceil(date_part(''epoch'', %s) * 1000)::int8', lease),
					'(date_part(''epoch'', statement_timestamp()) * 1000000)::int8', row)) || ', clock_timestamp()'];
		-- each function, and each plan of a sub-select, costs also when it is not run
		usual := ARRAY[format(job, tab, CASE cfg.on_disconnect WHEN 'keep' THEN 'NULL' ELSE '$2' END, format('%L::interval', own), '$3'),
			format(head, tab, format(marked, tab), off,
				queue._taken_row(format('%s::int8', ceil(date_part('epoch', own) * 1000)::int8), 'NULL::int8', row))];
	END IF;
	IF cfg.retain_done = interval '0' THEN
		-- the end of one of a group, or of one that others wait for, makes another one ready: that is told here
		done := ARRAY[format($text$DELETE FROM %s WHERE id = $1 AND token = $2 AND lease_until > clock_timestamp()
			AND again IS NULL
			AND (coalesce("group", followed) IS NULL OR set_config('qbouncer.tell', 'here', true) IS NOT NULL)
			AND set_config('lock_timeout', '50ms', true) IS NOT NULL AND $text$, tab),
			format('%s RETURNING %s', unsafe, name)];
	END IF;
END
$$;

-- The function that says they are right; and for the routes of a topic, that its jobs are no SQL (route.sql).
CREATE OR REPLACE FUNCTION queue._lone_name(cfg queue.queues, texts record) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN '_lone_' || cfg.number || '_' || left(md5(concat(texts, cfg.run)), 16);
END
$$;

CREATE OR REPLACE FUNCTION queue._lone_name(cfg queue.queues) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN queue._lone_name(cfg, queue._lone_texts(cfg));
END
$$;

-- As the proxy prepares them.
CREATE OR REPLACE FUNCTION queue._lone(cfg queue.queues, OUT push text, OUT take text, OUT usual text, OUT done text, OUT async bool)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	texts CONSTANT record := queue._lone_texts(cfg);
	condition CONSTANT text := 'queue.' || queue._lone_name(cfg, texts) || '()';
BEGIN
	push := array_to_string(texts.push, condition);
	take := array_to_string(texts.take, condition);
	usual := array_to_string(texts.usual, condition);
	done := array_to_string(texts.done, condition);
	async := texts.async;
END
$$;

-- Of a queue that was made or changed. Texts that were right until now are refused from the commit on.
CREATE OR REPLACE FUNCTION queue._generate_lone(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET check_function_bodies = off
AS $$
DECLARE
	name CONSTANT text := queue._lone_name(cfg);
BEGIN
	IF to_regprocedure(format('queue.%I()', name)) IS NULL THEN
		PERFORM queue._drop_lone(cfg.number);
		EXECUTE format('CREATE FUNCTION queue.%1$I() RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE
			SET search_path = pg_catalog, pg_temp AS ''SELECT true''', name);
		PERFORM queue._for_all(name);
		INSERT INTO queue.lone (queue, push, take, usual, done, async)
			SELECT cfg.number, l.push, l.take, l.usual, l.done, l.async FROM queue._lone(cfg) AS l;
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_lone(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	it text;
BEGIN
	FOR it IN SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'queue'::regnamespace
			AND p.proname >= format('_lone_%s_', number)::name AND p.proname < format('_lone_%s`', number)::name LOOP
		EXECUTE format('DROP FUNCTION queue.%I', it);
	END LOOP;
	DELETE FROM queue.lone AS l WHERE l.queue = number;
END
$$;
