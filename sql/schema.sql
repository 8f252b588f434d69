-- The catalogue: one row per queue. Tokens begin with the number, which is never used again;
-- the jobs of a queue are in queue."q_<name>". Everybody may read it: names and settings are
-- no secret, jobs are. A row is changed by its owner alone, and its changes make, change and drop the
-- queue (functions/catalogue.sql): what is checked here goes into their statements, and a row that was made
-- by hand is as good as one of queue.create.
CREATE SEQUENCE queue.queues_number_seq AS int4;
CREATE TABLE queue.queues (
	number int4 PRIMARY KEY,		-- drawn by a trigger, never chosen
	name text NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 40),
	lease interval NOT NULL CHECK (lease > '0' AND lease <= '8000 years'),
	max_attempts int4 NOT NULL CHECK (max_attempts BETWEEN 1 AND 999999999),
	retry text NOT NULL			-- as the user wrote it, and taken apart:
		CHECK (octet_length(retry) <= 600),
	retry_kind text NOT NULL CHECK (retry_kind IN ('exponential', 'linear', 'arithmetic', 'fixed', 'list', 'none')),
	retry_base interval NOT NULL CHECK (retry_base BETWEEN '0' AND '8000 years'),
	retry_cap interval NOT NULL CHECK (retry_cap BETWEEN '0' AND '8000 years'),
	retry_factor float8 NOT NULL DEFAULT 2 CHECK (retry_factor BETWEEN 1 AND 100),	-- exponential
	retry_steps interval[]			-- list: all; arithmetic: what is added
		CHECK (array_position(retry_steps, NULL) IS NULL AND '0' <= ALL (retry_steps)
			AND '8000 years' >= ALL (retry_steps)),
	on_change text NOT NULL DEFAULT 'retry' CHECK (on_change IN ('retry', 'now')),
	on_disconnect text NOT NULL CHECK (on_disconnect IN ('auto', 'release', 'keep')),
	retain_done interval NOT NULL CHECK (retain_done BETWEEN '0' AND '8000 years'),
	retain_dead interval NOT NULL CHECK (retain_dead BETWEEN '0' AND '8000 years'),
	durability text NOT NULL CHECK (durability IN ('sync', 'async')),
	history int4 NOT NULL DEFAULT 10	-- failed attempts that are kept of a job
		CHECK (history BETWEEN 0 AND 100),
	expires interval			-- of pushes that do not say; NULL: never
		CHECK (expires > '0' AND expires <= '8000 years'),
	on_expire text NOT NULL DEFAULT 'drop' CHECK (on_expire IN ('drop', 'dead')),
	max_run interval			-- NULL: no limit
		CHECK (max_run > '0' AND max_run <= '8000 years'),
	max_length int4				-- NULL: no limit
		CHECK (max_length BETWEEN 1 AND 999999999),
	overflow text NOT NULL DEFAULT 'error' CHECK (overflow IN ('error', 'drop_oldest')),
	max_per_transaction int4		-- pushes; NULL: no limit
		CHECK (max_per_transaction BETWEEN 1 AND 999999999),
	dead_queue int4				-- its number, which no other queue will ever have; NULL: none
		CHECK (dead_queue <> number),
	max_running int4 CHECK (max_running BETWEEN 1 AND 10000),	-- NULL, of these limits: none
	rate text CHECK (rate ~ '^[1-9][0-9]{0,4}/(s|min|h|d)( burst [1-9][0-9]{0,8})?$'),
	hours text CHECK (octet_length(hours) <= 100
		AND hours ~ '^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9] [^ ]+$' AND left(hours, 5) <> substr(hours, 7, 5)),
	max_running_per_group int4 DEFAULT 1	-- 1: in order
		CHECK (max_running_per_group BETWEEN 1 AND 10000),
	rate_per_group text CHECK (rate_per_group ~ '^[1-9][0-9]{0,4}/(s|min|h|d)( burst [1-9][0-9]{0,8})?$'),
	pause interval CHECK (pause > '0' AND pause <= '366 days'),
	pause_per_group interval CHECK (pause_per_group > '0' AND pause_per_group <= '366 days'),
	fair text CHECK (fair = 'group'),
	by_group bool NOT NULL GENERATED ALWAYS AS (rate_per_group IS NOT NULL OR pause_per_group IS NOT NULL
		OR fair IS NOT NULL AND max_running_per_group IS DISTINCT FROM 1 OR coalesce(max_running_per_group > 1, false)) STORED,
	limited bool NOT NULL GENERATED ALWAYS AS (max_running IS NOT NULL OR rate IS NOT NULL OR hours IS NOT NULL
		OR pause IS NOT NULL OR rate_per_group IS NOT NULL OR pause_per_group IS NOT NULL
		OR fair IS NOT NULL AND max_running_per_group IS DISTINCT FROM 1 OR coalesce(max_running_per_group > 1, false)) STORED,
	batches bool NOT NULL DEFAULT false,	-- AWAIT BATCH is possible
	single_consumer bool NOT NULL DEFAULT false,	-- one connection gets all jobs until it is gone
	handler text				-- a function that is called with each payload; NULL: none
		CHECK (octet_length(handler) <= 260),
	run text CHECK (run = 'sql'),		-- payloads are SQL; NULL: they are not
	timeout interval CHECK (timeout > '0' AND timeout <= '366 days'),	-- of what runs by itself; NULL: none
	handler_batch int4 NOT NULL DEFAULT 1	-- jobs that it does in one transaction
		CHECK (handler_batch BETWEEN 1 AND 1000),
	session text NOT NULL DEFAULT 'clean'	-- of what runs by itself: what a job leaves there
		CHECK (session IN ('clean', 'keep')),
	session_jobs int4			-- keep: so many; NULL: no limit
		CHECK (session_jobs BETWEEN 1 AND 1000000),
	session_time interval CHECK (session_time > '0' AND session_time <= '366 days'),	-- keep: so long; NULL: no limit
	unlogged bool NOT NULL,
	payload text NOT NULL			-- the column's type
		CHECK (payload IN ('jsonb', 'text', 'bytea')),
	paused bool NOT NULL DEFAULT false,
	push_paused bool NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp() CHECK (isfinite(created_at)),
	owner regrole NOT NULL DEFAULT quote_ident(current_user)::regrole,
	CHECK (retry_kind NOT IN ('arithmetic', 'list') OR coalesce(cardinality(retry_steps), 0) > 0)
);
ALTER SEQUENCE queue.queues_number_seq OWNED BY queue.queues.number;
REVOKE ALL ON queue.queues FROM PUBLIC;
GRANT SELECT ON queue.queues TO PUBLIC;
GRANT USAGE ON SCHEMA queue TO PUBLIC;

-- What functions give of a job, for each type of payload: TAKE and POP, the proxy's own with what it needs behind, PEEK,
-- JOB. A column is that of the queue's table which has its name, unless the function says otherwise (queue._row);
-- new ones come last. A type with a name is looked up; columns that a function returns as its own are put
-- together from its declaration in each call.
DO $qbouncer_rows$
DECLARE
	kind text;
BEGIN
	FOREACH kind IN ARRAY '{jsonb, text, bytea}'::text[] LOOP
		EXECUTE replace($row$
			CREATE TYPE queue.taken_@kind@ AS (id int8, token text, queue text, attempt int4, payload @kind@,
				headers jsonb, key text, "group" text, priority int4, pushed_at timestamptz,
				lease_until timestamptz, run_at timestamptz, taken_at timestamptz, first_taken_at timestamptz,
				takes int4);
			CREATE TYPE queue.peeked_@kind@ AS (id int8, state text, attempt int4, failures int4, payload @kind@,
				headers jsonb, priority int4, run_at timestamptz, lease_until timestamptz, error text, worker text,
				pushed_at timestamptz, key text, "group" text, ended_at timestamptz, result jsonb, job text,
				taken_at timestamptz, first_taken_at timestamptz, takes int4, ran interval, batch text, after text);
			CREATE TYPE queue.shown_@kind@ AS (job text, id int8, queue text, state text, cancelled bool, attempt int4,
				max_attempts int4, failures int4, priority int4, payload @kind@, headers jsonb, key text,
				"group" text, pushed_at timestamptz, run_at timestamptz, lease_until timestamptz,
				expires_at timestamptz, failed_at timestamptz, ended_at timestamptz, worker text, error text,
				result jsonb, taken_at timestamptz, first_taken_at timestamptz, takes int4, ran interval,
				progress jsonb, batch text, after text);
		$row$, '@kind@', kind);
		EXECUTE (SELECT format('CREATE TYPE queue.%I AS (%s, policy text, due_ms int8, place int8, edge int8)',
				'_taken_' || kind, string_agg(format('%I %s', attname, format_type(atttypid, NULL)), ', ' ORDER BY attnum))
			FROM pg_attribute WHERE attrelid = ('queue.taken_' || kind)::regclass);
		EXECUTE (SELECT format('CREATE TYPE queue.%I AS (%s, _queue int4, _version int8)',
				'_looked_' || kind, string_agg(format('%I %s', attname, format_type(atttypid, NULL)), ', ' ORDER BY attnum))
			FROM pg_attribute WHERE attrelid = ('queue.peeked_' || kind)::regclass);
	END LOOP;
END
$qbouncer_rows$;

-- Schedules: what is pushed by the clock (functions/schedule.sql). A payload may be a secret: each role sees its own and
-- those of roles that it is a member of.
CREATE TABLE queue.schedules (
	name text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 63),
	queue int4,		-- no foreign key: who inserts a row here, in a transaction that stays open, would hold up the DROP
	topic text,		-- instead of a queue, with all its words
	owner regrole NOT NULL DEFAULT quote_ident(current_user)::regrole,
	every interval CHECK (every BETWEEN '1 s' AND '8000 years'),
	from_end bool NOT NULL DEFAULT false,
	cron text,			-- as the user wrote it, and taken apart:
	bits int8[] CHECK (array_length(bits, 1) = 7 AND array_position(bits, NULL) IS NULL),
	zone text,
	missed text NOT NULL DEFAULT 'one' CHECK (missed IN ('one', 'skip', 'all')),
	overlap text NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip')),
	starting timestamptz CHECK (isfinite(starting)),
	until timestamptz CHECK (isfinite(until)),
	payload text NOT NULL,
	payload_type text NOT NULL,
	priority int4,
	delay interval,
	headers jsonb,
	expires interval,
	attempts int4,
	key text,
	duplicate text,
	"group" text,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	paused bool NOT NULL DEFAULT false,
	home text NOT NULL,		-- the database where it is fired
	anchor timestamptz NOT NULL CHECK (isfinite(anchor)),	-- EVERY counts from here
	next_at timestamptz CHECK (isfinite(next_at)),
	look_at timestamptz CHECK (isfinite(look_at)),
	last_at timestamptz,
	last_job int8,
	runs int8 NOT NULL DEFAULT 0,
	skipped int8 NOT NULL DEFAULT 0,
	error text,
	CHECK ((every IS NULL) = (cron IS NOT NULL) AND (cron IS NULL) = (bits IS NULL) AND (cron IS NULL) = (zone IS NULL)),
	CHECK (NOT from_end OR every IS NOT NULL),
	CHECK ((queue IS NULL) = (topic IS NOT NULL) AND (topic IS NULL OR NOT from_end AND overlap = 'allow'))
);
CREATE INDEX ON queue.schedules (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX ON queue.schedules (owner, look_at) WHERE look_at IS NOT NULL;
CREATE INDEX ON queue.schedules (queue);
REVOKE ALL ON queue.schedules FROM PUBLIC;
-- No DELETE, and no UPDATE of the whole table: see queue._gone.
GRANT SELECT, INSERT, UPDATE (queue, topic, owner, every, from_end, cron, bits, zone, missed, overlap, starting, until, payload,
	payload_type, priority, delay, headers, expires, attempts, key, duplicate, "group", paused, home, anchor, next_at,
	look_at, last_at, last_job, runs, skipped, error) ON queue.schedules TO PUBLIC;
ALTER TABLE queue.schedules ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON queue.schedules USING (pg_has_role(owner, 'USAGE'));

-- KEY ... FOR: keys that stay taken when their job has ended, until then (functions/group.sql). Whose they are is nobody's
-- to read: a key may be a secret.
CREATE TABLE queue.keys (
	queue int4 NOT NULL,
	key text NOT NULL,
	until timestamptz NOT NULL,
	job int8 NOT NULL,
	version timestamptz,		-- of the last push with IF NEWER
	PRIMARY KEY (queue, key)
);
CREATE INDEX ON queue.keys (queue, until);
REVOKE ALL ON queue.keys FROM PUBLIC;

-- PUSH ... AFTER: who follows a job, beyond the first ones, whose names stand in its row (functions/after.sql).
CREATE TABLE queue.followers (
	queue int4 NOT NULL,
	job int8 NOT NULL,
	follower text NOT NULL,
	PRIMARY KEY (queue, job, follower)
);
REVOKE ALL ON queue.followers FROM PUBLIC;

-- The plain statements of each queue (functions/lone.sql): NULL where a verb's function does more.
CREATE TABLE queue.lone (
	queue int4 PRIMARY KEY,
	push text,
	take text,
	usual text,	-- a take in the usual case
	done text,
	async bool NOT NULL	-- what they do need not survive a crash
);
REVOKE ALL ON queue.lone FROM PUBLIC;
GRANT SELECT ON queue.lone TO PUBLIC;

-- What happened to the jobs of a queue, by the minute or the hour (functions/figures.sql): counted by the proxies, each
-- writes rows of its own. Times in microseconds; waited, ran: of how many they are. The queue of a row may be gone.
CREATE TABLE queue.figures (
	queue int4 NOT NULL,
	at timestamptz NOT NULL CHECK (isfinite(at)),
	hourly bool NOT NULL DEFAULT false,
	proxy int4,
	pushed int8 NOT NULL,
	taken int8 NOT NULL,
	done int8 NOT NULL,
	failed int8 NOT NULL,
	dead int8 NOT NULL,
	waited int8 NOT NULL,
	wait_sum int8 NOT NULL,
	wait_max int8 NOT NULL,
	ran int8 NOT NULL,
	run_sum int8 NOT NULL,
	run_max int8 NOT NULL,
	subscription text	-- of a stream; NULL: of all of it, or of a queue
);
CREATE INDEX ON queue.figures (queue, at);
CREATE INDEX ON queue.figures (at) WHERE NOT hourly;
REVOKE ALL ON queue.figures FROM PUBLIC;
-- No DELETE: who has it may lock all others out.
GRANT SELECT, INSERT ON queue.figures TO PUBLIC;
ALTER TABLE queue.figures ENABLE ROW LEVEL SECURITY;	-- policies: functions/figures.sql
CREATE TYPE queue.figured AS (since timestamptz, pushed int8, taken int8, done int8, failed int8, dead int8, mean_wait interval,
	max_wait interval, mean_run interval, max_run interval);	-- what is shown of them

-- Queues and streams have their names together: a row of each, which is made before anything else of it, so who makes the
-- same one waits for the other's end, and nobody else does.
CREATE TABLE queue.names (
	name text PRIMARY KEY
);
REVOKE ALL ON queue.names FROM PUBLIC;

-- Streams: logs that any number of subscriptions read (functions/stream.sql). Their names and numbers, and the numbers of
-- subscriptions, are in one space with those of queues. The events are in a ring of tables, queue.e<number>_<0 to 3>, of
-- which "current" is written.
CREATE TABLE queue.streams (
	number int4 PRIMARY KEY,		-- drawn by a trigger, never chosen
	name text NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 40),
	payload text NOT NULL DEFAULT 'jsonb' CHECK (payload IN ('jsonb', 'text', 'bytea')),
	current int4 NOT NULL DEFAULT 0 CHECK (current BETWEEN 0 AND 3),
	-- Where the xids of the events count: a restored dump has other tables, or is on another system.
	log oid,
	system int8,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp() CHECK (isfinite(created_at)),
	owner regrole NOT NULL DEFAULT quote_ident(current_user)::regrole,
	-- How long events are kept, if not for ever: at least, and at most (functions/retain.sql).
	retain interval CHECK (retain >= '0'),
	retain_max interval CHECK (retain_max > '0'),
	retain_bytes int8 CHECK (retain_bytes > 0),
	gone_id int8,			-- of the events that were removed the greatest, and when the last of them was pushed
	gone_at timestamptz,
	gone_xid xid8,			-- of their transactions the last one
	CHECK (retain_max >= retain)
);
REVOKE ALL ON queue.streams FROM PUBLIC;
GRANT SELECT, INSERT (name, payload, owner, retain, retain_max, retain_bytes) ON queue.streams TO PUBLIC;	-- a trigger says who may

CREATE TABLE queue.subscriptions (
	number int4 PRIMARY KEY,
	stream int4 NOT NULL REFERENCES queue.streams (number) ON DELETE CASCADE,
	name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 63),
	owner regrole NOT NULL DEFAULT quote_ident(current_user)::regrole,
	lease interval NOT NULL DEFAULT '1 min' CHECK (lease > '0' AND lease <= '8000 years'),
	from_id int8,			-- earlier events are never its own
	from_time timestamptz,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	lost_at timestamptz,		-- events that it needed were removed then, up to this id: no TAKE until SEEK
	lost_id int8,
	max_attempts int4 CHECK (max_attempts > 0),	-- NULL: as often as it takes
	retry text,			-- pauses between them, as of queues; NULL: those of functions/retry.sql
	blocks bool NOT NULL DEFAULT false,	-- on_fail = block: later events of its group wait behind one that has failed
	-- parallel = n: n rows, each of which reads a part of the stream, and has a position and a delivery of its own
	lanes int4 NOT NULL DEFAULT 1 CHECK (lanes BETWEEN 1 AND 64),
	lane int4 NOT NULL DEFAULT 0 CHECK (lane >= 0 AND lane < lanes),
	ends pg_snapshot,		-- parallel was changed: this lane reads so far, and then goes
	waits bool NOT NULL DEFAULT false,	-- ... and this one begins when those are gone
	sought int8,			-- SEEK has taken away what was out, up to this delivery
	CHECK (ends IS NULL OR NOT waits),
	UNIQUE (stream, name, owner, lanes, lane),
	UNIQUE (number, owner)
);
CREATE UNIQUE INDEX ON queue.subscriptions (stream, name) WHERE lane = 0 AND ends IS NULL;

-- Where a subscription is: it has seen what is visible in s1; of what has become visible since, up to s2, the ids up to
-- "last". The row with the greatest seq counts; who changes it gives it a greater one.
CREATE TABLE queue.positions (
	sub int4 NOT NULL,
	seq int8 NOT NULL,
	owner regrole NOT NULL,
	s1 pg_snapshot NOT NULL,
	s2 pg_snapshot,			-- NULL: the next window has not begun
	floor int8 NOT NULL DEFAULT 0,	-- of this window: below there is nothing of an xid from xmax(s1) on
	early bool NOT NULL DEFAULT false,	-- ... and there is something of an xid that was open in s1
	last int8 NOT NULL DEFAULT 0,
	top int8,			-- behind this id it has nothing; NULL: not known
	rings int2,			-- a bit for each table where it has something; NULL: not known
	delivery int8 NOT NULL DEFAULT 0,	-- the last one that was made
	at timestamptz NOT NULL DEFAULT clock_timestamp(),
	delivered int8 NOT NULL DEFAULT 0,	-- events, in all; and how many a second, at that time
	rate float8 NOT NULL DEFAULT 0,
	PRIMARY KEY (sub, seq),
	FOREIGN KEY (sub, owner) REFERENCES queue.subscriptions (number, owner) ON DELETE CASCADE
);

-- A delivery that is out, or failed and comes again: the events of a window with an id above "last", up to "upto".
CREATE TABLE queue.deliveries (
	sub int4 NOT NULL,
	id int8 NOT NULL,
	owner regrole NOT NULL,
	token text NOT NULL,
	s1 pg_snapshot,			-- NULL, as s2: of events that failed by themselves, which have its id
	s2 pg_snapshot,
	floor int8 NOT NULL,
	early bool NOT NULL,
	last int8 NOT NULL,
	upto int8 NOT NULL,
	events int4 NOT NULL,
	attempt int4 NOT NULL,
	lease_until timestamptz NOT NULL,
	taken_at timestamptz NOT NULL,
	worker text,
	error text,
	proxy int4,			-- which took it: it comes back when that is gone
	chosen int8[],			-- WHERE: the ids of its events; NULL: all of them
	PRIMARY KEY (sub, id),
	FOREIGN KEY (sub, owner) REFERENCES queue.subscriptions (number, owner) ON DELETE CASCADE
);

-- Events that failed by themselves, and those of deliveries that have failed too often: copies, which keep nothing in the log.
CREATE TABLE queue.retries (
	sub int4 NOT NULL,
	id int8 NOT NULL,		-- of the event
	owner regrole NOT NULL,
	due_at timestamptz NOT NULL,	-- of dead ones: since when
	dead bool NOT NULL DEFAULT false,
	delivery int8,			-- that has it out
	attempt int4 NOT NULL,		-- how often it has failed, or was delivered, before that
	together int4,			-- with how many others at most it may come; NULL: any number
	error text,
	xid xid8 NOT NULL,
	pushed_at timestamptz NOT NULL,
	key text,
	"group" text,
	headers jsonb,
	payload_jsonb text,		-- one of them, as the stream's are
	payload_text text,
	payload_bytea bytea,
	CHECK (num_nonnulls(payload_jsonb, payload_text, payload_bytea) = 1),	-- that it is jsonb: functions/retry.sql
	-- with on_fail = block: of its group; the first of them by id says when they come, the others are due at infinity
	blocks bool NOT NULL DEFAULT false CHECK (NOT blocks OR "group" IS NOT NULL),
	PRIMARY KEY (sub, id),
	FOREIGN KEY (sub, owner) REFERENCES queue.subscriptions (number, owner) ON DELETE CASCADE
);
CREATE INDEX ON queue.retries (sub, "group", id) WHERE blocks;
CREATE INDEX ON queue.retries (sub, due_at, id) WHERE NOT dead AND delivery IS NULL;
CREATE INDEX ON queue.retries (sub, delivery) WHERE delivery IS NOT NULL;
CREATE INDEX ON queue.retries (sub, due_at, id) WHERE dead;
REVOKE ALL ON queue.subscriptions, queue.positions, queue.deliveries, queue.retries FROM PUBLIC;
-- None has DELETE, or UPDATE of a whole table: with it LOCK TABLE would stop everybody. See queue._gone.
GRANT SELECT, INSERT, UPDATE (lease, from_id, from_time, lost_at, lost_id, max_attempts, retry, ends, waits, sought) ON queue.subscriptions TO PUBLIC;
GRANT SELECT, INSERT, UPDATE (seq, s1, s2, floor, early, last, top, rings, delivery, at, delivered, rate) ON queue.positions TO PUBLIC;
GRANT SELECT, INSERT, UPDATE (token, attempt, lease_until, taken_at, worker, error, proxy) ON queue.deliveries TO PUBLIC;
GRANT SELECT, INSERT, UPDATE (sub, due_at, dead, delivery, attempt, together, error) ON queue.retries TO PUBLIC;
ALTER TABLE queue.subscriptions ENABLE ROW LEVEL SECURITY;
ALTER TABLE queue.positions ENABLE ROW LEVEL SECURITY;
ALTER TABLE queue.deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE queue.retries ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON queue.subscriptions FOR SELECT USING (true);
CREATE POLICY own ON queue.subscriptions USING (pg_has_role(owner, 'USAGE'));
CREATE POLICY own ON queue.positions USING (pg_has_role(owner, 'USAGE'));
CREATE POLICY own ON queue.deliveries USING (pg_has_role(owner, 'USAGE'));
-- that of queue.retries, which has what was pushed: functions/retry.sql

-- Events, and deliveries of them; the last but one is what the proxy gets. A jsonb of a stream is kept as its text, and becomes one
-- where SQL sees it (functions/stream.sql).
DO $qbouncer_events$
DECLARE
	kind text;
BEGIN
	FOREACH kind IN ARRAY '{jsonb, text, bytea}'::text[] LOOP
		EXECUTE replace(replace($types$
			CREATE TYPE queue._event_@kind@ AS (id int8, xid xid8, pushed_at timestamptz, key text, "group" text, headers jsonb, payload @kept@);
			CREATE TYPE queue.delivered_@kind@ AS (id int8, token text, queue text, attempt int4, payload @kind@, headers jsonb, key text,
				"group" text, pushed_at timestamptz, lease_until timestamptz, xid int8);
			CREATE TYPE queue._delivered_@kind@ AS (id int8, token text, queue text, attempt int4, payload @kept@, headers jsonb, key text,
				"group" text, pushed_at timestamptz, lease_until timestamptz, xid xid8, due_ms int8, "out" text, passed int4[]);
			CREATE TYPE queue._sighted_@kind@ AS (id int8, payload @kind@, headers jsonb, key text, "group" text, pushed_at timestamptz,
				xid int8);	-- what a condition sees (functions/sift.sql)
		$types$, '@kind@', kind), '@kept@', CASE kind WHEN 'jsonb' THEN 'text' ELSE kind END);
	END LOOP;
END
$qbouncer_events$;

-- What a look for a condition was at, and how far it got (functions/sift.sql): a position with its window; "rest": of one that
-- had begun; before: LAG; young: when the event was pushed that is not old enough. sub: NULL if there is nothing. seen: the lanes
-- that it knew; passed: those that have been looked at; idle: of these, how many have nothing.
CREATE TYPE queue._look AS (sub int4, seq int8, ends text, stream int4, lo xid8, w pg_snapshot, late xid8[], floor int8, early bool,
	last int8, rest bool, since timestamptz, before timestamptz, reach int8, ended bool, young timestamptz, seen int4[], passed int4[], idle int4);

-- The columns of the tables q_<name> and a_<name> of each queue and of its view b_<name>: for their comments alone
-- (functions/comments.sql).
CREATE TYPE queue.job_columns AS (id int8, position int8, pushed_at timestamptz, priority int4, attempt int4, failures int4,
	state text, proxy int4, due timestamptz, lease_until timestamptz, taken_at timestamptz, first_taken_at timestamptz, spent int4,
	run_at timestamptz, expires_at timestamptz, failed_at timestamptz, ended_at timestamptz, max_attempts int4, losses int2,
	again bool, token text, worker text, error text, key text, "group" text, headers jsonb, payload jsonb, history jsonb,
	progress jsonb, batch text, version timestamptz, behind text[], followed text, result jsonb, delay interval, expires interval,
	key_replace text, key_rerun text, key_error text, with_old bool, job text);

-- What the metrics show: of a queue, of a stream, or of a subscription (_gauges).
CREATE TYPE queue._gauged AS (queue text, ready int8, later int8, leased int8, blocked int8, dead int8, oldest_ms int8, subscription text,
	events int8, bytes int8, age_ms int8, total int8, "out" int8, attempt int4, lost int4, retries int8, given_up int8, number int4, changes int8);

-- Topics, and which queues and streams get what is published to them (functions/topic.sql). Names of queues and patterns are
-- no secret. Changed by triggers alone.
CREATE TABLE queue.topics (
	number int4 PRIMARY KEY,		-- of the sequence of queues; never used again
	name text NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 40 AND name !~ '[.*#]'),
	owner regrole NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE queue.bindings (
	topic int4 NOT NULL,
	queue int4 NOT NULL,	-- or stream; no foreign key, as in queue.schedules
	pattern text NOT NULL CHECK (octet_length(pattern) BETWEEN 1 AND 255),
	regex text,		-- of the pattern; NULL: it has no * and no #
	headers jsonb CHECK (jsonb_typeof(headers) = 'object'),
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	owner regrole NOT NULL,	-- of the queue
	mark int8 NOT NULL GENERATED BY DEFAULT AS IDENTITY,	-- another one with each change (functions/route.sql)
	PRIMARY KEY (topic, queue, pattern)
);
CREATE INDEX ON queue.bindings (queue);
REVOKE ALL ON queue.topics, queue.bindings FROM PUBLIC;
GRANT SELECT ON queue.topics, queue.bindings TO PUBLIC;
