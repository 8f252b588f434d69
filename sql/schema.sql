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
