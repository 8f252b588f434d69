-- The options of a queue: their defaults, their checks, and how they are set.

CREATE OR REPLACE FUNCTION queue._defaults() RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg queue.queues;
BEGIN
	cfg.lease := '5 min';
	cfg.max_attempts := 25;
	cfg.retry := 'exponential 10s 1h';
	cfg.retry_kind := 'exponential';
	cfg.retry_base := '10 s';
	cfg.retry_cap := '1 h';
	cfg.retry_factor := 2;
	cfg.on_change := 'retry';
	cfg.on_disconnect := 'auto';
	cfg.retain_done := '0';
	cfg.retain_dead := '30 days';
	cfg.durability := 'sync';
	cfg.history := 10;
	cfg.expires := NULL;
	cfg.on_expire := 'drop';
	cfg.max_run := NULL;
	cfg.max_length := NULL;
	cfg.overflow := 'error';
	cfg.max_per_transaction := NULL;
	cfg.dead_queue := NULL;
	cfg.max_running := NULL;
	cfg.rate := NULL;
	cfg.hours := NULL;
	cfg.max_running_per_group := 1;
	cfg.rate_per_group := NULL;
	cfg.pause := NULL;
	cfg.pause_per_group := NULL;
	cfg.fair := NULL;
	cfg.batches := false;
	cfg.single_consumer := false;
	cfg.handler := NULL;
	cfg.run := NULL;
	cfg.timeout := NULL;
	cfg.handler_batch := 1;
	cfg.session := 'clean';
	cfg.session_jobs := NULL;
	cfg.session_time := NULL;
	cfg.unlogged := false;
	cfg.payload := 'jsonb';
	RETURN cfg;
END
$$;

-- The columns of the catalogue that are options: all but what a queue is and has become.
CREATE OR REPLACE FUNCTION queue._option_columns() RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN QUERY SELECT a.attname::text FROM pg_attribute AS a
		WHERE a.attrelid = 'queue.queues'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
			AND a.attname NOT IN ('number', 'name', 'paused', 'push_paused', 'created_at', 'owner') ORDER BY a.attnum;
END
$$;

-- ... as a list, each with this before it.
CREATE OR REPLACE FUNCTION queue._option_list(prefix text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (SELECT string_agg(prefix || quote_ident(o), ', ') FROM queue._option_columns() AS o);
END
$$;

-- Without retries the first failure is the last, of whatever kind it is.
CREATE OR REPLACE FUNCTION queue._most_attempts(cfg queue.queues) RETURNS int4
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN cfg.retry_kind = 'none' THEN 1 ELSE cfg.max_attempts END;
END
$$;

CREATE OR REPLACE FUNCTION queue._bad_option(option text, value text, hint text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22023',
		MESSAGE = format('invalid value for option "%s": %s', option,
			coalesce(quote_literal(left(value, 80)), 'NULL')),
		HINT = hint;
END
$$;

CREATE OR REPLACE FUNCTION queue._later_option(option text, value text, hint text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '0A000',
		MESSAGE = format('option "%s" = %s is not supported yet', option,
			quote_literal(left(value, 80))),
		HINT = hint;
END
$$;

-- Postgres itself reads the interval; what it finds wrong becomes 22023 with our hint.
-- whole: the value that it is a part of.
CREATE OR REPLACE FUNCTION queue._interval_option(option text, value text, least_value interval,
	hint text, whole text DEFAULT NULL, most interval DEFAULT '8000 years') RETURNS interval
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	result interval;
BEGIN
	BEGIN
		result := value::interval;
	EXCEPTION WHEN data_exception THEN
		PERFORM queue._bad_option(option, coalesce(whole, value), hint);
	END;
	-- the year 9999 is as good as never, and adding it to now still gives a time
	IF result < least_value OR result > most THEN
		PERFORM queue._bad_option(option, coalesce(whole, value), hint);
	END IF;
	RETURN result;
END
$$;

-- 'exponential 10s 1h x3' | 'arithmetic 1min 2min 1h' | 'linear 5min' | 'fixed 1min' | 'list 1s, 1min, 1h' | 'none'.
-- Blanks end an interval, but not those between a number and its unit: 'linear 10 min 1 h'.
CREATE OR REPLACE FUNCTION queue._retry_option(cfg queue.queues, value text) RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	hint CONSTANT text := 'Allowed: ''exponential <first> <most> [x<factor>]'', ''arithmetic <first> <step> [<most>]'', '
		'''linear <step> [<most>]'', ''fixed <pause>'', ''list <pause>, <pause>, ...'', ''none''; intervals of a number '
		'and its unit, such as 10s, 5 min or 1h.';
	said CONSTANT text := regexp_replace(btrim(lower(value)), '([0-9]) +([a-wyz])', E'\\1\\2', 'g');
	word text[] := regexp_split_to_array(said, ' +');
	n int4 := cardinality(word);
	factor CONSTANT text := CASE WHEN word[1] = 'exponential' AND word[4] ~ '^x[0-9]{1,3}([.][0-9]{1,6})?$' THEN substr(word[4], 2) END;
BEGIN
	IF word[1] = 'list' THEN
		word := 'list'::text || regexp_split_to_array(substr(said, 5), ' *, *');
		n := least(cardinality(word), 22);
	ELSIF factor IS NOT NULL THEN
		n := n - 1;
	END IF;
	IF NOT (word[1] = 'none' AND n = 1 OR word[1] = 'fixed' AND n = 2
			OR word[1] = 'linear' AND n IN (2, 3) OR word[1] = 'exponential' AND n = 3
			OR word[1] = 'arithmetic' AND n IN (3, 4) OR word[1] = 'list' AND n BETWEEN 2 AND 21)
			OR octet_length(value) > 500 OR factor::float8 NOT BETWEEN 1 AND 100 THEN
		PERFORM queue._bad_option('retry', value, hint);
	END IF;
	cfg.retry_kind := word[1];
	cfg.retry_base := '0';
	cfg.retry_cap := '0';
	cfg.retry_factor := coalesce(factor::float8, 2);
	cfg.retry_steps := NULL;
	IF word[1] = 'list' THEN
		FOR i IN 2 .. n LOOP
			word[i] := btrim(word[i]);
			cfg.retry_steps := cfg.retry_steps || queue._interval_option('retry', word[i], '1 ms', hint, value);
		END LOOP;
		cfg.retry := 'list ' || array_to_string(word[2:], ', ');
		cfg.retry_cap := '8000 years';
	ELSE
		IF word[1] = 'arithmetic' THEN
			cfg.retry_steps := ARRAY[queue._interval_option('retry', word[3], '1 ms', hint, value)];
		END IF;
		cfg.retry := array_to_string(word, ' ');
		IF n > 1 THEN
			cfg.retry_base := queue._interval_option('retry', word[2], '1 ms', hint, value);
			cfg.retry_cap := queue._interval_option('retry', coalesce(CASE word[1] WHEN 'arithmetic' THEN word[4] ELSE word[3] END,
				'100 years'), '1 ms', hint, value);
		END IF;
	END IF;
	IF cfg.retry_cap < cfg.retry_base THEN
		PERFORM queue._bad_option('retry', value,
			'The last interval is the longest pause: it cannot be shorter than the first.');
	END IF;
	RETURN cfg;
END
$$;

-- '5/s', '100 / min burst 20', as it is kept.
CREATE OR REPLACE FUNCTION queue._rate_option(option text, value text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part CONSTANT text[] := regexp_match(lower(value),
		'^ *([1-9][0-9]{0,4}) */ *(s|sec|second|min|minute|h|hour|d|day)( +burst +([1-9][0-9]{0,8}))? *$');
BEGIN
	IF part IS NULL THEN
		PERFORM queue._bad_option(option, value, format('Allowed: ''<number>/<s|min|h|d>'' or ''<number>/<s|min|h|d> burst <number>'', '
			'up to 99999, such as ''5/s'' or ''100/min burst 20''. Without a limit: RESET (%s).', option));
	END IF;
	RETURN part[1] || '/' || CASE left(part[2], 1) WHEN 's' THEN 's' WHEN 'm' THEN 'min' ELSE left(part[2], 1) END
		|| coalesce(' burst ' || part[4], '');
END
$$;

-- '22:00-06:00', '9:00 - 17:30 Europe/Berlin', as it is kept: with the time zone, that of the session if none is said.
CREATE OR REPLACE FUNCTION queue._hours_option(value text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part CONSTANT text[] := regexp_match(value,
		'^ *(\d?\d):(\d\d) *- *(\d?\d):(\d\d)(?: +([^ ]+))? *$');
	zone CONSTANT text := coalesce(part[5], current_setting('TimeZone'));
	hours text;
BEGIN
	IF part[1]::int4 <= 23 AND part[2]::int4 <= 59 AND part[3]::int4 <= 23 AND part[4]::int4 <= 59
			AND octet_length(zone) <= 80 THEN
		hours := format('%s:%s-%s:%s %s', lpad(part[1], 2, '0'), part[2], lpad(part[3], 2, '0'), part[4], zone);
	END IF;
	IF hours IS NULL OR left(hours, 5) = substr(hours, 7, 5) THEN
		PERFORM queue._bad_option('hours', value, 'Allowed: ''<from>-<to>'' or ''<from>-<to> <time zone>'', two different times, '
			'such as ''22:00-06:00'' or ''9:00-17:30 Europe/Berlin''. At all times: RESET (hours).');
	END IF;
	BEGIN
		PERFORM queue._until_hours(hours, clock_timestamp());
	EXCEPTION WHEN invalid_parameter_value THEN
		PERFORM queue._bad_option('hours', value, format('There is no time zone "%s".', zone));
	END;
	RETURN hours;
END
$$;

CREATE OR REPLACE FUNCTION queue._unknown_option(option text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = '22023',
		MESSAGE = format('unknown option "%s"', left(option, 80)),
		HINT = 'Options: lease, max_attempts, retry, on_change, on_disconnect, retain_done, retain_dead, '
			'durability, payload, expires, on_expire, history, max_run, max_length, overflow, max_per_transaction, dead_queue, '
			'max_running, rate, pause, hours, max_running_per_group, rate_per_group, pause_per_group, fair, batches, '
			'single_consumer, unlogged, handler, handler_batch, run, timeout, session, session_jobs, session_time.';
END
$$;

CREATE OR REPLACE FUNCTION queue._set_option(cfg queue.queues, option text, value text)
RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	word CONSTANT text := lower(btrim(value));
	pause interval;
BEGIN
	IF value IS NULL AND option IS NOT NULL THEN
		PERFORM queue._bad_option(option, value,
			'To go back to the default: QUEUE ALTER ... RESET (...).');
	END IF;
	CASE option
	WHEN 'lease' THEN
		cfg.lease := queue._interval_option(option, value, '1 ms',
			'Allowed: an interval longer than zero, such as ''5 min''.');
	WHEN 'max_attempts' THEN
		IF word !~ '^[0-9]{1,9}$' OR word::int4 < 1 THEN
			PERFORM queue._bad_option(option, value,
				'Allowed: a whole number from 1 to 999999999.');
		END IF;
		cfg.max_attempts := word::int4;
	WHEN 'retry' THEN
		cfg := queue._retry_option(cfg, value);
	WHEN 'on_change' THEN
		IF word NOT IN ('retry', 'now') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: retry, now.');
		END IF;
		cfg.on_change := word;
	WHEN 'on_disconnect' THEN
		IF word NOT IN ('auto', 'release', 'keep') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: auto, release, keep.');
		END IF;
		cfg.on_disconnect := word;
	WHEN 'retain_done' THEN
		cfg.retain_done := queue._interval_option(option, value, '0',
			'Allowed: an interval from zero on, such as ''7 days''; ''0'' deletes at once.');
	WHEN 'retain_dead' THEN
		cfg.retain_dead := queue._interval_option(option, value, '0',
			'Allowed: an interval from zero on, such as ''30 days''.');
	WHEN 'durability' THEN
		IF word NOT IN ('sync', 'async') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: sync, async.');
		END IF;
		cfg.durability := word;
	WHEN 'payload' THEN
		IF word NOT IN ('jsonb', 'text', 'bytea') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: jsonb, text, bytea.');
		END IF;
		cfg.payload := word;
	WHEN 'history' THEN
		IF word !~ '^[0-9]{1,3}$' OR word::int4 > 100 THEN
			PERFORM queue._bad_option(option, value, 'Allowed: a whole number from 0 to 100.');
		END IF;
		cfg.history := word::int4;
	WHEN 'expires' THEN
		cfg.expires := queue._interval_option(option, value, '1 ms',
			'Allowed: an interval longer than zero, such as ''1 day''. Without: RESET (expires).');
	WHEN 'on_expire' THEN
		IF word NOT IN ('drop', 'dead') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: drop, dead.');
		END IF;
		cfg.on_expire := word;
	WHEN 'max_run' THEN
		cfg.max_run := queue._interval_option(option, value, '1 ms',
			'Allowed: an interval longer than zero, such as ''1 h''. Without a limit: RESET (max_run).');
	WHEN 'max_length' THEN
		IF word !~ '^[0-9]{1,9}$' OR word::int4 < 1 THEN
			PERFORM queue._bad_option(option, value,
				'Allowed: a whole number from 1 to 999999999. Without a limit: RESET (max_length).');
		END IF;
		cfg.max_length := word::int4;
	WHEN 'overflow' THEN
		IF word NOT IN ('error', 'drop_oldest') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: error, drop_oldest.');
		END IF;
		cfg.overflow := word;
	WHEN 'max_per_transaction' THEN
		IF word !~ '^[0-9]{1,9}$' OR word::int4 < 1 THEN
			PERFORM queue._bad_option(option, value,
				'Allowed: a whole number from 1 to 999999999. Without a limit: RESET (max_per_transaction).');
		END IF;
		cfg.max_per_transaction := word::int4;
	WHEN 'dead_queue' THEN
		cfg.dead_queue := (queue._find(value)).number;
	WHEN 'max_running' THEN
		IF word !~ '^[0-9]{1,5}$' OR word::int4 NOT BETWEEN 1 AND 10000 THEN
			PERFORM queue._bad_option(option, value,
				'Allowed: a whole number from 1 to 10000. Without a limit: RESET (max_running).');
		END IF;
		cfg.max_running := word::int4;
	WHEN 'rate' THEN
		cfg.rate := queue._rate_option(option, value);
	WHEN 'rate_per_group' THEN
		cfg.rate_per_group := queue._rate_option(option, value);
	WHEN 'max_running_per_group' THEN
		IF word <> 'none' AND (word !~ '^[0-9]{1,5}$' OR word::int4 NOT BETWEEN 1 AND 10000) THEN
			PERFORM queue._bad_option(option, value,
				'Allowed: a whole number from 1, which keeps the order within a group, to 10000; none.');
		END IF;
		cfg.max_running_per_group := nullif(word, 'none')::int4;
	WHEN 'pause', 'pause_per_group' THEN
		pause := queue._interval_option(option, value, '1 ms', format(
			'Allowed: an interval longer than zero, of a year at most, such as ''5 s''. Without: RESET (%s).', option),
			most => '366 days');
		IF option = 'pause' THEN
			cfg.pause := pause;
		ELSE
			cfg.pause_per_group := pause;
		END IF;
	WHEN 'fair' THEN
		IF word NOT IN ('group', 'none') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: group, none.');
		END IF;
		cfg.fair := nullif(word, 'none');
	WHEN 'hours' THEN
		cfg.hours := queue._hours_option(value);
	WHEN 'batches' THEN
		IF word NOT IN ('true', 'on', 'yes', '1', 'false', 'off', 'no', '0') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: true, false.');
		END IF;
		cfg.batches := word::bool;
	WHEN 'single_consumer' THEN
		IF word NOT IN ('true', 'on', 'yes', '1', 'false', 'off', 'no', '0') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: true, false.');
		END IF;
		cfg.single_consumer := word::bool;
	WHEN 'handler' THEN
		cfg.handler := queue._handler_option(value);
	WHEN 'run' THEN
		IF word <> 'sql' THEN
			PERFORM queue._bad_option(option, value, 'Allowed: sql. Without: RESET (run).');
		END IF;
		cfg.run := word;
	WHEN 'timeout' THEN
		cfg.timeout := queue._interval_option(option, value, '1 ms',
			'Allowed: an interval longer than zero, of a year at most, such as ''10 min''. Without: RESET (timeout).', most => '366 days');
	WHEN 'handler_batch' THEN
		IF word !~ '^[0-9]{1,4}$' OR word::int4 NOT BETWEEN 1 AND 1000 THEN
			PERFORM queue._bad_option(option, value, 'Allowed: a whole number from 1 to 1000.');
		END IF;
		cfg.handler_batch := word::int4;
	WHEN 'session' THEN
		IF word NOT IN ('clean', 'keep') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: clean, keep.');
		END IF;
		cfg.session := word;
	WHEN 'session_jobs' THEN
		IF word !~ '^[0-9]{1,7}$' OR word::int4 NOT BETWEEN 1 AND 1000000 THEN
			PERFORM queue._bad_option(option, value, 'Allowed: a whole number from 1 to 1000000. Without: RESET (session_jobs).');
		END IF;
		cfg.session_jobs := word::int4;
	WHEN 'session_time' THEN
		cfg.session_time := queue._interval_option(option, value, '1 ms',
			'Allowed: an interval longer than zero, of a year at most, such as ''10 min''. Without: RESET (session_time).', most => '366 days');
	WHEN 'unlogged' THEN
		IF word NOT IN ('true', 'on', 'yes', '1', 'false', 'off', 'no', '0') THEN
			PERFORM queue._bad_option(option, value, 'Allowed: true, false.');
		END IF;
		cfg.unlogged := word::bool;
	ELSE
		PERFORM queue._unknown_option(option);
	END CASE;
	RETURN cfg;
END
$$;

CREATE OR REPLACE FUNCTION queue._reset_option(cfg queue.queues, option text)
RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	def CONSTANT jsonb := to_jsonb(queue._defaults());
BEGIN
	IF option LIKE 'retry\_%' OR NOT EXISTS (SELECT FROM queue._option_columns() AS o WHERE o = option) THEN
		PERFORM queue._unknown_option(option);
	ELSIF option = 'retry' THEN
		RETURN queue._retry_option(cfg, def ->> option);
	END IF;
	cfg := jsonb_populate_record(cfg, jsonb_build_object(option, def -> option));
	RETURN cfg;
END
$$;

-- Resets first, then sets. An option may be named once in the whole statement.
CREATE OR REPLACE FUNCTION queue._apply_options(cfg queue.queues, names text[], vals text[],
	resets text[]) RETURNS queue.queues
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	every CONSTANT text[] := coalesce(names, '{}') || coalesce(resets, '{}');
	option text;
BEGIN
	IF coalesce(cardinality(names), 0) <> coalesce(cardinality(vals), 0) THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'options and values differ in number';
	END IF;
	SELECT o INTO option FROM unnest(every) AS o GROUP BY o HAVING count(*) > 1 LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('option "%s" is given twice', left(option, 80)),
			HINT = 'Name each option once.';
	END IF;
	FOREACH option IN ARRAY coalesce(resets, '{}') LOOP
		cfg := queue._reset_option(cfg, option);
	END LOOP;
	FOR i IN 1 .. coalesce(cardinality(names), 0) LOOP
		cfg := queue._set_option(cfg, names[i], vals[i]);
	END LOOP;
	RETURN cfg;
END
$$;
