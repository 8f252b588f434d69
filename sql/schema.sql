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
		CHECK (octet_length(retry) <= 200),
	retry_kind text NOT NULL CHECK (retry_kind IN ('exponential', 'linear', 'fixed', 'none')),
	retry_base interval NOT NULL CHECK (retry_base BETWEEN '0' AND '8000 years'),
	retry_cap interval NOT NULL CHECK (retry_cap BETWEEN '0' AND '8000 years'),
	on_disconnect text NOT NULL CHECK (on_disconnect IN ('auto', 'release', 'keep')),
	retain_done interval NOT NULL CHECK (retain_done BETWEEN '0' AND '8000 years'),
	retain_dead interval NOT NULL CHECK (retain_dead BETWEEN '0' AND '8000 years'),
	durability text NOT NULL CHECK (durability IN ('sync', 'async')),
	max_length int4				-- NULL: no limit
		CHECK (max_length BETWEEN 1 AND 999999999),
	unlogged bool NOT NULL,
	payload text NOT NULL			-- the column's type
		CHECK (payload IN ('jsonb', 'text', 'bytea')),
	paused bool NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp() CHECK (isfinite(created_at)),
	owner regrole NOT NULL DEFAULT quote_ident(current_user)::regrole
);
ALTER SEQUENCE queue.queues_number_seq OWNED BY queue.queues.number;
REVOKE ALL ON queue.queues FROM PUBLIC;
GRANT SELECT ON queue.queues TO PUBLIC;
GRANT USAGE ON SCHEMA queue TO PUBLIC;

-- The rows of the functions that take, for each type of payload. A type with a name is looked up;
-- columns that a function returns as its own are put together from its declaration in each call.
CREATE TYPE queue._taken_jsonb AS (id int8, token text, queue text, attempt int4, payload jsonb,
	headers jsonb, key text, "group" text, priority int4, pushed_at timestamptz,
	lease_until timestamptz, policy text, due_ms int8, place int8, edge int8);
CREATE TYPE queue._taken_text AS (id int8, token text, queue text, attempt int4, payload text,
	headers jsonb, key text, "group" text, priority int4, pushed_at timestamptz,
	lease_until timestamptz, policy text, due_ms int8, place int8, edge int8);
CREATE TYPE queue._taken_bytea AS (id int8, token text, queue text, attempt int4, payload bytea,
	headers jsonb, key text, "group" text, priority int4, pushed_at timestamptz,
	lease_until timestamptz, policy text, due_ms int8, place int8, edge int8);
