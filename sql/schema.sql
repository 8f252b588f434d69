-- The catalogue: one row per queue. Tokens begin with the number, which is never used again;
-- the jobs of a queue are in queue."q_<name>". Everybody may read it: names and settings are
-- no secret, jobs are.
CREATE TABLE queue.queues (
	number int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE,
	lease interval NOT NULL,
	max_attempts int4 NOT NULL,
	retry text NOT NULL,			-- as the user wrote it, and taken apart:
	retry_kind text NOT NULL,		-- exponential | linear | fixed | none
	retry_base interval NOT NULL,
	retry_cap interval NOT NULL,
	on_disconnect text NOT NULL,		-- auto | release | keep
	retain_done interval NOT NULL,
	retain_dead interval NOT NULL,
	durability text NOT NULL,		-- sync | async
	max_length int4,			-- NULL: no limit
	unlogged bool NOT NULL,
	payload text NOT NULL,			-- jsonb | text | bytea: the column's type
	paused bool NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
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
