-- Schedules: jobs that are pushed by the clock.
--
-- A schedule is a row of its owner's, whom alone it concerns: its payload may be a secret, so others do not see it. A
-- proxy fires what is due with a login of the owner (_fire); which owners have something due, and when the next
-- one has, it asks as anybody (_schedules_due). Each occurrence is pushed in the transaction that moves the
-- schedule on, on the clock of the database: once in each history that survives, whoever fires.
--
-- Two times: next_at is the next occurrence; look_at, which has the index, is when somebody has to look. It is the later
-- one after an error, and while a job is waited for, and NULL of what is paused, over, or in a copy of the database.

-- What a copy of the database does not have: schedules in it do nothing until RESUME. A promoted standby has it.
CREATE OR REPLACE FUNCTION queue._here() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT s.system_identifier || '/' || d.oid FROM pg_control_system() AS s, pg_database AS d
		WHERE d.datname = current_database());
END
$$;

CREATE OR REPLACE FUNCTION queue._find_schedule(name text) RETURNS queue.schedules
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.schedules;
BEGIN
	IF name IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the schedule''s name must not be null';
	END IF;
	SELECT * INTO s FROM queue.schedules AS x WHERE x.name = _find_schedule.name FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('schedule "%s" does not exist, or is another role''s', left(name, 80)),
			HINT = 'QUEUE SCHEDULES shows those that there are.';
	END IF;
	RETURN s;
END
$$;

-- The occurrence behind this one; NULL: none.
CREATE OR REPLACE FUNCTION queue._occurrence(s queue.schedules, after timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	next CONSTANT timestamptz := CASE WHEN s.from_end THEN NULL
		WHEN s.every IS NOT NULL THEN queue._every_next(s.anchor, s.every, after)
		ELSE queue._cron_next(s.bits, s.zone, after) END;
BEGIN
	RETURN CASE WHEN next > s.until THEN NULL ELSE next END;
END
$$;

-- The last occurrence that is not later than `moment`, if there is one from `first` on, which is one.
CREATE OR REPLACE FUNCTION queue._last_occurrence(s queue.schedules, first timestamptz, moment timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t timestamptz := first;
	next timestamptz;
	middle timestamptz;
	later timestamptz := moment;	-- behind this there is none
BEGIN
	-- not one by one, there may be millions: half of the time that is left goes by each time
	LOOP
		next := queue._occurrence(s, t);
		EXIT WHEN next IS NULL OR next > moment;
		middle := next + (later - next) / 2;
		t := queue._occurrence(s, middle);
		IF t IS NULL OR t > moment THEN
			t := next;
			later := middle;
		END IF;
	END LOOP;
	RETURN t;
END
$$;

-- Pushes the job of an occurrence, or publishes it: with the rights that the caller has now. made: the queues and streams
-- that got something by a PUBLISH.
CREATE OR REPLACE FUNCTION queue._push_schedule(s queue.schedules, scheduled_at timestamptz, triggered bool, notify bool,
	OUT job int8, OUT made text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO'
AS $$
DECLARE
	head CONSTANT jsonb := coalesce(s.headers, '{}') || jsonb_build_object('schedule', s.name, 'scheduled_at', scheduled_at)
		|| CASE WHEN triggered THEN '{"triggered": true}' ELSE '{}' END::jsonb;
BEGIN
	IF s.topic IS NOT NULL THEN
		made := ARRAY(SELECT p.queue FROM queue._publish(s.topic, ARRAY[s.payload], s.priority, s.delay, NULL, head::text,
			notify, false, s.expires, s.attempts, s.key, NULL, s.duplicate, s."group", NULL, nullif(s.payload_type, 'text')) AS p);
		RETURN;
	END IF;
	job := (SELECT max(p) FROM queue._push(
		(SELECT c.name FROM queue.queues AS c WHERE c.number = s.queue), ARRAY[s.payload], s.priority, s.delay, NULL,
		head::text, notify, s.expires, s.attempts, s.key, s.duplicate, s."group", true,
		CASE WHEN s.payload_type = 'bytea' THEN 'bytea' END) AS p);
END
$$;

-- Is the job of the last occurrence not at an end? Else: when was that, as far as is known; NULL: it is not known.
CREATE OR REPLACE FUNCTION queue._job_of(s queue.schedules, OUT unfinished bool, OUT ended_at timestamptz)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name CONSTANT text := (SELECT c.name FROM queue.queues AS c WHERE c.number = s.queue);
BEGIN
	unfinished := false;
	IF s.last_job IS NULL THEN
		RETURN;
	END IF;
	EXECUTE format('SELECT j.state <> ''dead'', j.ended_at FROM %s AS j WHERE j.id = $1', queue._table(name))
		INTO unfinished, ended_at USING s.last_job;
	IF unfinished IS NULL THEN
		unfinished := false;
		EXECUTE format('SELECT j.ended_at FROM %s AS j WHERE j.id = $1', queue._archive(name)) INTO ended_at USING s.last_job;
	END IF;
END
$$;

-- When a new one, or one with another rule, is due first. What is over is not caught up with.
CREATE OR REPLACE FUNCTION queue._begin_schedule(s queue.schedules, moment timestamptz) RETURNS queue.schedules
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	s.anchor := coalesce(s.starting, moment);
	s.next_at := CASE WHEN s.from_end THEN greatest(s.starting, moment + CASE WHEN s.starting IS NULL THEN s.every ELSE '0' END)
		WHEN s.every IS NOT NULL AND s.starting > moment THEN s.starting
		WHEN s.every IS NOT NULL THEN queue._every_next(s.anchor, s.every, moment)
		ELSE queue._cron_next(s.bits, s.zone, greatest(moment, s.starting - interval '1 us')) END;
	IF s.next_at IS NULL OR s.next_at > s.until THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('schedule "%s" is never due', s.name),
			DETAIL = CASE WHEN s.until IS NOT NULL THEN format('It ends at %s.', s.until) END,
			HINT = 'Give a later UNTIL, or none.';
	END IF;
	s.look_at := s.next_at;
	RETURN s;
END
$$;

-- SCHEDULE. An equal one is left as it is; one that is changed keeps what has been, and when it is due next
-- unless that is what was changed.
CREATE OR REPLACE FUNCTION queue._schedule(name text, q text, every interval, from_end bool, cron text, zone text,
	missed text, overlap text, starting timestamptz, until timestamptz, payloads text[], priority int4, delay interval,
	headers text, expires interval, attempts int4, key text, duplicate text, "group" text, notify bool,
	stated text DEFAULT NULL, topic text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
	moment CONSTANT timestamptz := clock_timestamp();
	new queue.schedules;
	old queue.schedules;
	watched CONSTANT bool := coalesce(from_end, false) OR coalesce(lower(overlap) = 'skip', false);
BEGIN
	IF topic IS NULL AND q IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42601', MESSAGE = 'a schedule needs a queue, or a topic to publish to',
			HINT = 'QUEUE SCHEDULE name ON q ..., or without ON: ... PUBLISH ''topic'' payload.';
	ELSIF topic IS NULL THEN
		cfg := queue._find(q, format('Create it with: QUEUE CREATE %I;', q));
	ELSIF q IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a schedule pushes to a queue or publishes, not both',
			HINT = 'PUBLISH goes without ON: what is bound to the topic gets it.';
	END IF;
	IF name IS NULL OR name = '' OR octet_length(name) > 63 THEN
		RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = 'the name of a schedule has 1 to 63 bytes';
	ELSIF (every IS NULL) = (cron IS NULL) THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a schedule has either an interval or a cron expression',
			HINT = 'EVERY ''5 min'', or CRON ''*/5 * * * *''.';
	ELSIF coalesce(from_end, false) AND every IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'FROM END belongs to EVERY';
	ELSIF zone IS NOT NULL AND cron IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'TIME ZONE belongs to CRON',
			HINT = 'EVERY counts in hours of 60 minutes and days of 24 hours, wherever that is.';
	ELSIF every < interval '1 s' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('EVERY %L is too often', every), HINT = 'At least one second.';
	ELSIF lower(missed) NOT IN ('one', 'skip', 'all') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown value %L of MISSED', left(missed, 40)), HINT = 'Allowed: ONE, SKIP, ALL.';
	ELSIF lower(overlap) NOT IN ('allow', 'skip') THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('unknown value %L of OVERLAP', left(overlap, 40)), HINT = 'Allowed: ALLOW, SKIP.';
	ELSIF NOT isfinite(starting) OR NOT isfinite(until) THEN
		RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'STARTING and UNTIL must be finite times';
	ELSIF payloads IS NULL OR cardinality(payloads) <> 1 OR payloads[1] IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a schedule pushes one payload, which is not null';
	ELSIF topic IS NOT NULL AND watched THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'FROM END and OVERLAP SKIP are not possible with PUBLISH',
			DETAIL = 'They look at the job of the last time: there may be one in each queue that is bound, or none.',
			HINT = 'PUSH to a queue whose worker publishes.';
	ELSIF topic IS NULL AND NOT has_table_privilege(to_regclass(queue._table(cfg.name)), 'INSERT')
			AND NOT has_column_privilege(to_regclass(queue._table(cfg.name)), 'payload', 'INSERT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for queue "%s"', cfg.name),
			HINT = format('QUEUE GRANT PUSH ON %I TO %I;', cfg.name, current_user);
	ELSIF watched AND NOT has_column_privilege(to_regclass(queue._table(cfg.name)), 'state', 'SELECT') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for jobs of queue "%s"', cfg.name),
			DETAIL = 'FROM END and OVERLAP SKIP look at what became of them.',
			HINT = format('QUEUE GRANT AWAIT ON %I TO %I;', cfg.name, current_user);
	END IF;
	PERFORM queue._check_push(headers, expires, attempts);
	IF topic IS NULL THEN
		PERFORM queue._check_payload(cfg, stated);
		EXECUTE format('SELECT $1::%s', cfg.payload) USING payloads[1];	-- is it one?
	ELSE
		PERFORM queue._may_publish(topic, duplicate);
	END IF;
	IF key IS NOT NULL OR duplicate IS NOT NULL OR "group" IS NOT NULL THEN
		PERFORM queue._check_key(payloads, key, duplicate, "group");
	END IF;

	new.name := name;
	new.queue := cfg.number;
	new.topic := topic;
	new.owner := quote_ident(current_user)::regrole;
	new.every := every;
	new.from_end := coalesce(from_end, false);
	new.cron := btrim(cron, E' \t');
	IF cron IS NOT NULL THEN
		new.bits := queue._cron(cron);
		new.zone := coalesce(zone, current_setting('TimeZone'));
		PERFORM moment AT TIME ZONE new.zone;	-- is it one?
	END IF;
	new.missed := coalesce(lower(missed), 'one');
	new.overlap := coalesce(lower(overlap), 'allow');
	new.starting := starting;
	new.until := until;
	new.payload := payloads[1];
	new.payload_type := coalesce(cfg.payload, stated, 'text');
	new.priority := priority;
	new.delay := delay;
	new.headers := headers;
	new.expires := expires;
	new.attempts := attempts;
	new.key := key;
	new.duplicate := lower(duplicate);
	new."group" := "group";

	new.created_at := moment;
	new.paused := false;
	new.home := queue._here();
	new.runs := 0;
	new.skipped := 0;
	new := queue._begin_schedule(new, moment);
	-- several instances of a program may say so at once, when they start: one makes it, the others find it
	INSERT INTO queue.schedules SELECT new.* ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		SELECT * INTO old FROM queue.schedules AS x WHERE x.name = _schedule.name FOR UPDATE;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = format('schedule "%s" exists and is another role''s', name),
				HINT = 'Take another name: they are shared by all roles of a database.';
		END IF;
		IF (old.every, old.from_end, old.bits, old.zone, old.starting, old.until)
				IS NOT DISTINCT FROM (new.every, new.from_end, new.bits, new.zone, new.starting, new.until) THEN
			IF (old.queue, old.topic, old.cron, old.missed, old.overlap, old.payload, old.priority, old.delay, old.headers, old.expires,
						old.attempts, old.key, old.duplicate, old."group")
					IS NOT DISTINCT FROM (new.queue, new.topic, new.cron, new.missed, new.overlap, new.payload, new.priority, new.delay,
						new.headers, new.expires, new.attempts, new.key, new.duplicate, new."group") THEN
				RETURN;
			END IF;
			new.anchor := old.anchor;
			new.next_at := old.next_at;
			new.look_at := old.look_at;
		ELSIF old.look_at IS NULL AND old.next_at IS NOT NULL THEN	-- paused, or a copy
			new.look_at := NULL;
		END IF;
		-- of whoever's it is, whichever of his members says it; what has been is kept
		UPDATE queue.schedules AS x SET queue = new.queue, topic = new.topic, every = new.every, from_end = new.from_end, cron = new.cron,
			bits = new.bits, zone = new.zone, missed = new.missed, overlap = new.overlap, starting = new.starting,
			until = new.until, payload = new.payload, payload_type = new.payload_type, priority = new.priority,
			delay = new.delay, headers = new.headers, expires = new.expires, attempts = new.attempts, key = new.key,
			duplicate = new.duplicate, "group" = new."group", anchor = new.anchor, next_at = new.next_at,
			look_at = new.look_at, error = NULL,
			last_job = CASE WHEN x.queue = new.queue THEN x.last_job END
			WHERE x.name = new.name;
		new.owner := old.owner;
	END IF;
	IF NOT (SELECT r.rolcanlogin FROM pg_roles AS r WHERE r.oid = new.owner) THEN
		RAISE WARNING USING ERRCODE = '01000', MESSAGE = format('role "%s" cannot log in: schedule "%s" will not be fired', pg_get_userbyid(new.owner), name),
			HINT = 'A schedule is fired with a login of its owner. Make it as a role that has one.';
	END IF;
	PERFORM queue._tell_schedules(notify);
END
$$;

-- The proxies look when something is due; it may be sooner than they know. No queue has this name (src/queue/queue_int.h).
CREATE OR REPLACE FUNCTION queue._tell_schedules(notify bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell(0, 'of no queue: a schedule was made or changed');
END
$$;

CREATE OR REPLACE FUNCTION queue.unschedule(name text, if_exists bool DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT coalesce(if_exists, false) OR EXISTS (SELECT FROM queue.schedules AS x WHERE x.name = unschedule.name) THEN
		PERFORM queue._find_schedule(name);
		INSERT INTO queue._gone (what, name) VALUES ('schedule', name);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue.pause_schedule(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._find_schedule(name);
	UPDATE queue.schedules AS x SET paused = true, look_at = NULL WHERE x.name = pause_schedule.name;
END
$$;

-- What was not due while it was paused is not made up for. In a copy of the database: from now on it is due here.
CREATE OR REPLACE FUNCTION queue.resume_schedule(name text, notify bool DEFAULT true) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	s queue.schedules := queue._find_schedule(name);
BEGIN
	IF NOT s.paused AND s.home = queue._here() THEN
		RETURN;
	END IF;
	s.paused := false;
	s.home := queue._here();
	IF s.next_at <= moment THEN
		s.next_at := CASE WHEN s.from_end THEN moment ELSE queue._occurrence(s, moment) END;
	END IF;
	UPDATE queue.schedules AS x SET paused = false, home = s.home, next_at = s.next_at,
		look_at = CASE WHEN s.from_end THEN coalesce(s.next_at, moment) ELSE s.next_at END
		WHERE x.name = resume_schedule.name;
	PERFORM queue._tell_schedules(notify);
END
$$;

-- Once more, now; when it is due next stays as it is.
CREATE OR REPLACE FUNCTION queue.trigger_schedule(name text, notify bool DEFAULT true) RETURNS int8
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s CONSTANT queue.schedules := queue._find_schedule(name);
	pushed record;
BEGIN
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	IF NOT notify THEN
		PERFORM queue._tell(c.number, c.name) FROM queue.queues AS c WHERE c.number = s.queue;
	END IF;
	pushed := queue._push_schedule(s, clock_timestamp(), true, notify);
	IF NOT notify THEN
		PERFORM queue._tell(queue._number_of(q), q) FROM (SELECT DISTINCT unnest(pushed.made)) AS m (q);
	END IF;
	RETURN pushed.job;
END
$$;

CREATE OR REPLACE FUNCTION queue.schedules()
RETURNS TABLE (schedule text, queue text, "when" text, next_at timestamptz, last_at timestamptz, last_job text,
	runs int8, skipped int8, state text, error text, missed text, overlap text, owner text, payload text, created_at timestamptz,
	topic text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT s.name, c.name,
		CASE WHEN s.every IS NOT NULL THEN format('EVERY %L', s.every) || CASE WHEN s.from_end THEN ' FROM END' ELSE '' END
			ELSE format('CRON %L TIME ZONE %L', s.cron, s.zone) END
			|| CASE WHEN s.starting IS NULL THEN '' ELSE format(' STARTING %L', s.starting) END
			|| CASE WHEN s.until IS NULL THEN '' ELSE format(' UNTIL %L', s.until) END,
		s.next_at, s.last_at, s.queue || '-' || s.last_job, s.runs, s.skipped,
		CASE WHEN s.home <> queue._here() THEN 'copied' WHEN s.paused THEN 'paused'
			WHEN s.look_at IS NULL THEN 'ended' WHEN s.error IS NOT NULL THEN 'failing'
			WHEN s.next_at IS NULL THEN 'running'
			WHEN (SELECT r.rolcanlogin FROM pg_roles AS r WHERE r.oid = s.owner) IS NOT TRUE THEN 'no login'
			ELSE 'active' END,
		s.error, s.missed, s.overlap, pg_get_userbyid(s.owner)::text, s.payload, s.created_at,
		s.topic
	FROM queue.schedules AS s LEFT JOIN queue.queues AS c ON c.number = s.queue
	WHERE c.number IS NOT NULL OR s.topic IS NOT NULL ORDER BY s.name;
END
$$;

-- One schedule that is due: how many jobs it pushed. s is what it is then. What cannot be pushed (a queue that is full) is
-- tried again in ten seconds: that occurrence and those behind it.
CREATE OR REPLACE FUNCTION queue._fire_one(INOUT s queue.schedules, moment timestamptz, OUT jobs int4,
	OUT made text[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	missed_since CONSTANT timestamptz := moment - interval '1 min';	-- what is later than that is late, not missed
	catch_up CONSTANT int4 := 1000;	-- more of MISSED ALL are left out
	due timestamptz := s.next_at;
	job record;
	pushed record;
BEGIN
	jobs := 0;
	IF s.from_end AND due IS NULL THEN
		job := queue._job_of(s);
		IF job.unfinished THEN
			s.look_at := moment + interval '1 s';
			RETURN;
		END IF;
		due := CASE WHEN isfinite(job.ended_at) THEN job.ended_at ELSE moment END + s.every;
		IF due > s.until THEN
			s.look_at := NULL;
			RETURN;
		END IF;
	END IF;
	WHILE due <= moment LOOP
		IF due < missed_since AND NOT s.from_end THEN
			IF s.missed = 'skip' THEN
				s.skipped := s.skipped + 1;
				due := queue._occurrence(s, missed_since - interval '1 us');
				CONTINUE;
			ELSIF s.missed = 'one' OR jobs >= catch_up THEN
				due := queue._last_occurrence(s, due, moment);
			END IF;
		END IF;
		s.next_at := due;
		IF s.overlap = 'skip' AND (queue._job_of(s)).unfinished THEN
			s.skipped := s.skipped + 1;
		ELSE
			BEGIN
				pushed := queue._push_schedule(s, due, false, false);
				s.last_job := pushed.job;
				made := made || pushed.made;
			EXCEPTION WHEN serialization_failure OR deadlock_detected OR admin_shutdown OR crash_shutdown THEN
				RAISE;
			WHEN lock_not_available THEN	-- DROP or ALTER is at it
				s.look_at := moment + interval '1 s';
				RETURN;
			WHEN OTHERS THEN
				s.error := format('%s: %s', SQLSTATE, left(SQLERRM, 1000));
				s.look_at := moment + interval '10 s';
				RETURN;
			END;
			s.last_at := due;
			s.runs := s.runs + 1;
			jobs := jobs + 1;
		END IF;
		due := CASE WHEN s.from_end THEN NULL ELSE queue._occurrence(s, due) END;
	END LOOP;
	s.next_at := due;
	s.look_at := CASE WHEN due IS NULL AND s.from_end THEN moment + least(s.every, interval '1 s') ELSE due END;
END
$$;

-- For the proxy, with a login of the owner: fires what is due, so many schedules at most. A row for each queue that
-- got jobs; the first one says how many schedules failed.
CREATE OR REPLACE FUNCTION queue._fire(most int4) RETURNS TABLE (queue text, jobs int8, failed int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET lock_timeout = '500ms'
AS $$
DECLARE
	here CONSTANT text := queue._here();
	moment CONSTANT timestamptz := clock_timestamp();
	-- what takes longer is left for the next call: other owners wait, and a limit of the role's own may end this one
	time CONSTANT interval := least('1 s', nullif(current_setting('statement_timeout')::interval, '0') / 4);
	me CONSTANT oid := (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = current_user);
	s queue.schedules;
	one record;
	made jsonb := '{}';
	published text[];
BEGIN
	PERFORM set_config('qbouncer.tell', 'here', true);
	failed := 0;
	FOR s IN SELECT * FROM queue.schedules AS x WHERE x.look_at <= moment AND x.owner = me
			ORDER BY x.look_at LIMIT most FOR UPDATE SKIP LOCKED LOOP
		IF s.topic IS NULL AND NOT EXISTS (SELECT FROM queue.queues AS c WHERE c.number = s.queue) THEN
			INSERT INTO queue._gone (what, name) VALUES ('schedule', s.name);
			CONTINUE;
		ELSIF s.home <> here THEN
			s.look_at := NULL;
			RAISE WARNING USING ERRCODE = '01000', MESSAGE = format('schedule "%s" was made in another database and is not fired in this copy', s.name),
				HINT = format('QUEUE RESUME SCHEDULE %I; if it is to be.', s.name);
		ELSE
			s.error := NULL;
			BEGIN
				one := queue._fire_one(s, moment);
				s := one.s;
				published := published || one.made;
				IF one.jobs > 0 AND s.queue IS NOT NULL THEN
					made := jsonb_set(made, ARRAY[s.queue::text], to_jsonb(coalesce((made ->> s.queue::text)::int8, 0) + one.jobs));
				END IF;
			EXCEPTION WHEN serialization_failure OR deadlock_detected OR admin_shutdown OR crash_shutdown THEN
				RAISE;
			WHEN OTHERS THEN	-- it may not even look at the last job
				s.error := format('%s: %s', SQLSTATE, left(SQLERRM, 1000));
				s.look_at := moment + interval '10 s';
			END;
			failed := failed + (s.error IS NOT NULL)::int4;
		END IF;
		UPDATE queue.schedules AS x SET next_at = s.next_at, look_at = s.look_at, last_at = s.last_at, last_job = s.last_job,
			runs = s.runs, skipped = s.skipped, error = s.error WHERE x.name = s.name;
		EXIT WHEN clock_timestamp() - moment > time;
	END LOOP;
	RETURN QUERY SELECT m.name, m.n, CASE row_number() OVER () WHEN 1 THEN _fire.failed ELSE 0 END
		FROM (SELECT c.name, e.value::int8 AS n FROM jsonb_each_text(made) AS e
				LEFT JOIN queue.queues AS c ON c.number = e.key::int4
			UNION ALL SELECT p, count(*) FROM unnest(published) AS p GROUP BY p) AS m;
	IF NOT FOUND AND failed > 0 THEN
		RETURN NEXT;
	END IF;
END
$$;

-- For the proxy: which roles have something due, and in how many milliseconds the next one will have. Names and
-- times alone, for anybody. A row without a name: there are queues that run by themselves (run.sql).
CREATE OR REPLACE FUNCTION queue._schedules_due() RETURNS TABLE (owner text, ms int8)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
BEGIN
	-- from owner to owner: nobody hides another one behind a million rows. The proxy takes the first hundred: whose
	-- turn it is is drawn, so that those with whom nothing can be done do not keep the others out
	IF EXISTS (SELECT FROM queue.schedules AS x WHERE x.look_at <= moment) THEN
		RETURN QUERY WITH RECURSIVE o (role) AS (
				(SELECT x.owner::oid FROM queue.schedules AS x WHERE x.look_at IS NOT NULL ORDER BY x.owner LIMIT 1)
				UNION ALL SELECT (SELECT x.owner::oid FROM queue.schedules AS x
					WHERE x.look_at IS NOT NULL AND x.owner > o.role ORDER BY x.owner LIMIT 1) FROM o WHERE o.role IS NOT NULL)
			SELECT r.rolname::text, 0::int8 FROM o JOIN pg_roles AS r ON r.oid = o.role
			WHERE EXISTS (SELECT FROM queue.schedules AS x WHERE x.owner = o.role AND x.look_at <= moment)
			ORDER BY r.rolcanlogin DESC, random() LIMIT 1000;
	END IF;
	IF EXISTS (SELECT FROM queue.queues AS c WHERE c.handler IS NOT NULL OR c.run IS NOT NULL) THEN
		RETURN QUERY SELECT '', 0::int8;
	END IF;
	RETURN QUERY SELECT NULL::text, least(1e12, ceil(extract(epoch FROM x.look_at - moment) * 1000))::int8
		FROM queue.schedules AS x WHERE x.look_at > moment ORDER BY x.look_at LIMIT 1;
END
$$;

CREATE OR REPLACE FUNCTION queue.schedule(name text, q text, payload text, every interval DEFAULT NULL,
	cron text DEFAULT NULL, zone text DEFAULT NULL, from_end bool DEFAULT false, missed text DEFAULT 'one',
	overlap text DEFAULT 'allow', starting timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL,
	priority int4 DEFAULT 0, delay interval DEFAULT NULL, headers jsonb DEFAULT NULL, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, on_duplicate text DEFAULT NULL, "group" text DEFAULT NULL, topic text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._schedule(name, q, every, from_end, cron, zone, missed, overlap, starting, until, ARRAY[payload], priority, delay, headers::text, expires, attempts, key, on_duplicate, "group", true, NULL, topic);
END
$$;

CREATE OR REPLACE FUNCTION queue.schedule(name text, q text, payload jsonb, every interval DEFAULT NULL,
	cron text DEFAULT NULL, zone text DEFAULT NULL, from_end bool DEFAULT false, missed text DEFAULT 'one',
	overlap text DEFAULT 'allow', starting timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL,
	priority int4 DEFAULT 0, delay interval DEFAULT NULL, headers jsonb DEFAULT NULL, expires interval DEFAULT NULL,
	attempts int4 DEFAULT NULL, key text DEFAULT NULL, on_duplicate text DEFAULT NULL, "group" text DEFAULT NULL, topic text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM queue._schedule(name, q, every, from_end, cron, zone, missed, overlap, starting, until, ARRAY[payload::text],
		priority, delay, headers::text, expires, attempts, key, on_duplicate, "group", true, 'jsonb', topic);
END
$$;
