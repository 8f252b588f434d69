-- dead_queue: a job that dies is pushed to another queue, in the transaction in which it dies. A trigger of the
-- queues that have the option; others pay nothing. However a job dies, that sets ended_at: FAIL, an attempt that was
-- the last (take.sql, finish.sql), a time that is over (on_expire = dead).
--
-- It is the queue's owner who pushes, as the one who has set the option: whoever fails a job needs no right there.
-- What does not go (that queue is full, paused, gone, of another type, locked, the owner may not push there any more)
-- stays, dead where it is, and the statement that it died of succeeds. For one that is locked a transaction waits once:
-- many may die in it.

-- When it is set, or the type or owner could make it wrong: said to the one who sets it. The queues behind this one are
-- locked against a change that would close the circle.
CREATE OR REPLACE FUNCTION queue._check_dead_queue(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	there queue.queues;
	next queue.queues;
	at int4 := cfg.dead_queue;
BEGIN
	WHILE at IS NOT NULL LOOP
		SELECT * INTO next FROM queue.queues AS c WHERE c.number = at FOR SHARE;
		EXIT WHEN NOT FOUND;
		IF there.number IS NULL THEN
			there := next;
		END IF;
		IF next.number = cfg.number THEN
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = format('the dead jobs of queue "%s" would come back to it', cfg.name),
				DETAIL = format('It is the dead_queue of queue "%s", or behind it.', there.name);
		END IF;
		at := next.dead_queue;
	END LOOP;
	IF there.number IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42P01', MESSAGE = format('there is no queue with the number %s', cfg.dead_queue);
	ELSIF there.payload <> cfg.payload THEN
		RAISE EXCEPTION USING ERRCODE = '42804',
			MESSAGE = format('payloads of queue "%s" are %s, not %s', there.name, there.payload, cfg.payload),
			HINT = format('The dead_queue of queue "%s" has to be of its type.', cfg.name);
	ELSIF there.run IS NOT NULL AND cfg.run IS NULL THEN
		PERFORM queue._not_run(there.name, 'what dies', 'Choose a dead_queue without run = sql.');
	ELSIF NOT has_column_privilege(cfg.owner, queue._table(there.name), 'payload', 'INSERT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('permission denied for queue "%s"', there.name),
			DETAIL = format('Dead jobs are pushed there as role "%s", the owner of queue "%s".', pg_get_userbyid(cfg.owner), cfg.name),
			HINT = format('Its owner can allow it: QUEUE GRANT PUSH ON %I TO %I;', there.name, pg_get_userbyid(cfg.owner));
	END IF;
END
$$;

-- All that are locked by an ALTER of dead_queue, in one order: who says "one, two" at the same time as another "two, one" is
-- told that this is a circle.
CREATE OR REPLACE FUNCTION queue._lock_dead_queues(q text, dead_queue text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	one record;
BEGIN
	FOR one IN
			WITH RECURSIVE chain AS (
				SELECT c.number, c.name, c.dead_queue FROM queue.queues AS c WHERE c.name IN (q, $2)
				UNION SELECT c.number, c.name, c.dead_queue FROM chain AS b JOIN queue.queues AS c ON c.number = b.dead_queue)
			SELECT c.number, c.name FROM chain AS c ORDER BY c.number LOOP
		IF one.name = q THEN
			PERFORM FROM queue.queues AS c WHERE c.number = one.number FOR UPDATE;
		ELSE
			PERFORM FROM queue.queues AS c WHERE c.number = one.number FOR SHARE;
		END IF;
	END LOOP;
END
$$;

-- It waits for a lock there for no longer than the caller would, who may have others meanwhile, nor than a second.
-- Those who wait there are told as usual (_tell), also where nobody is to be told of the queue that the job was in.
CREATE OR REPLACE FUNCTION queue._bury() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
	patience CONSTANT text := current_setting('lock_timeout');
	how CONSTANT text := coalesce(current_setting('qbouncer.tell', true), '');
	locked CONSTANT text := coalesce(current_setting('qbouncer.locked', true), '');	-- numbers of such queues
	here queue.queues;
	there queue.queues;
	runs bool;	-- who runs it there looks whether somebody is at it still (_attempts)
BEGIN
	SELECT * INTO here FROM queue.queues AS c WHERE c.name = substr(TG_TABLE_NAME, 3);
	IF NOT FOUND OR to_regclass(queue._table(here.name)) <> TG_RELID THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	END IF;
	SELECT * INTO there FROM queue.queues AS c WHERE c.number = here.dead_queue;
	IF there.payload IS DISTINCT FROM here.payload
			OR NOT has_column_privilege(here.owner, to_regclass(queue._table(there.name)), 'payload', 'INSERT')
			OR there.number::text = ANY (string_to_array(locked, ' ')) THEN
		RETURN NULL;
	END IF;
	runs := there.handler IS NOT NULL OR there.run IS NOT NULL;
	BEGIN
		IF patience = '0' OR patience::interval > interval '1 s' THEN
			PERFORM set_config('lock_timeout', '1s', true);	-- an error takes it back
		END IF;
		EXECUTE format($sql$
			WITH gone AS (DELETE FROM %s WHERE id = $1 AND state = 'dead' RETURNING *) %s
			INSERT INTO %s (pushed_at, priority, headers, payload%s)
			SELECT clock_timestamp(), priority, coalesce(nullif(headers, 'null'), '{}') || jsonb_build_object('parent', $2 || '-' || id,
				'dead', jsonb_strip_nulls(jsonb_build_object('queue', $3, 'error', left(error, 1000), 'attempts', attempt,
					'key', key, 'group', %s))), payload%s FROM gone
		$sql$, queue._table(here.name), queue._with_keep(here, 'gone', 'dead'), queue._table(there.name),
			CASE WHEN runs THEN ', spent' ELSE '' END, queue._group_later(),
			CASE WHEN runs THEN ', nullif(attempt + coalesce(spent, 0), 0)' ELSE '' END)
			USING NEW.id, here.number, here.name;
		IF there.run IS NULL AND queue._runs_since(there.number) THEN
			PERFORM queue._changed_since(there.name);
		END IF;
		PERFORM set_config('lock_timeout', patience, true);
	EXCEPTION
		WHEN lock_not_available THEN
			PERFORM set_config('qbouncer.locked', locked || ' ' || there.number, true);
			RETURN NULL;
		WHEN OTHERS THEN
			RETURN NULL;
	END;
	IF left(how, 6) = 'nobody' THEN
		PERFORM set_config('qbouncer.tell', ltrim(substr(how, 7)), true);
	END IF;
	PERFORM queue._tell(there.number, there.name);
	IF left(how, 6) = 'nobody' THEN
		PERFORM set_config('qbouncer.tell', btrim('nobody ' || current_setting('qbouncer.tell')), true);
	END IF;
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_dead(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	there_is CONSTANT bool := EXISTS (SELECT FROM pg_trigger AS t
		WHERE t.tgrelid = to_regclass(queue._table(cfg.name)) AND t.tgname = 'buried');
BEGIN
	IF cfg.dead_queue IS NOT NULL THEN
		PERFORM queue._check_dead_queue(cfg);
	END IF;
	IF there_is AND cfg.dead_queue IS NULL THEN
		EXECUTE format('DROP TRIGGER buried ON %s', queue._table(cfg.name));
	ELSIF NOT there_is AND cfg.dead_queue IS NOT NULL THEN
		EXECUTE format('CREATE TRIGGER buried AFTER UPDATE OF ended_at ON %s FOR EACH ROW
			WHEN (NEW.state = ''dead'' AND OLD.state <> ''dead'') EXECUTE FUNCTION queue._bury()', queue._table(cfg.name));
	END IF;
END
$$;
