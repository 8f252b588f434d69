-- When is it time? The arithmetic of schedules: cron expressions and plain intervals, in a time zone.
--
-- An expression becomes seven numbers, which is what a schedule keeps: bits of the seconds, minutes, hours, days,
-- months and days of the week at which it is due, and how those are meant (the seventh). Nothing here reads a table.
--
-- Postgres turns a local time into one instant even where there are two of it or none (the hour that is repeated
-- in autumn: the later one; the hour that is left out in spring: as much later). Both are noticed by going there
-- and back, and what is due then is said here.

-- One field: 'a', 'a-b', '*', each with '/step', in a list. names: what may stand for low, low + 1, ...
CREATE OR REPLACE FUNCTION queue._cron_field(expr text, what text, field text, low int4, high int4, names text[])
RETURNS int8
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	hint CONSTANT text := format('Allowed: * or numbers of %s to %s, ranges (1-5), steps (*/15, 10-50/20) and lists of them (1,15)%s.',
		low, high, CASE WHEN cardinality(names) > 0 THEN format('; names (%s, ...)', names[1]) ELSE '' END);
	-- as many as there are values: */24 hours is once a day. Sunday has two numbers
	steps CONSTANT int4 := CASE high WHEN 7 THEN 7 ELSE high - low + 1 END;
	bits int8 := 0;
	item text;
	part text[];
	bound int4[];
	word text;
	step int4;
	i int4;
BEGIN
	FOREACH item IN ARRAY string_to_array(field, ',') LOOP
		part := regexp_match(item, '^(?:(\*)|([0-9]{1,4}|[a-z]{3})(?:-([0-9]{1,4}|[a-z]{3}))?)(?:/([0-9]{1,4}))?$');
		IF part IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = '22023', HINT = hint,
				MESSAGE = format('cron expression %L: %L is no %s', left(expr, 80), left(item, 40), what);
		END IF;
		bound := ARRAY[low, high];
		IF part[1] IS NULL THEN
			FOR i IN 1 .. 2 LOOP
				word := part[1 + i];
				-- a/n is from a to the end; a alone is a
				CONTINUE WHEN word IS NULL;
				bound[i] := CASE WHEN word ~ '^[0-9]' THEN word::int4
					ELSE array_position(names, word) - 1 + low END;
				-- 0 is Sunday, and so is 7: as the end of a range it is the later one
				IF what = 'day of the week' AND i = 2 AND bound[2] = 0 AND bound[1] > 0 THEN
					bound[2] := 7;
				END IF;
				IF bound[i] IS NULL OR bound[i] NOT BETWEEN low AND high THEN
					RAISE EXCEPTION USING ERRCODE = '22023', HINT = hint,
						MESSAGE = format('cron expression %L: %L is no %s', left(expr, 80), word, what);
				END IF;
			END LOOP;
			IF part[3] IS NULL AND part[4] IS NULL THEN
				bound[2] := bound[1];
			END IF;
		END IF;
		step := coalesce(part[4], '1');
		IF step NOT BETWEEN 1 AND steps THEN
			RAISE EXCEPTION USING ERRCODE = '22023', HINT = hint,
				MESSAGE = format('cron expression %L: the step of %L is not between 1 and %s', left(expr, 80), left(item, 40), steps);
		END IF;
		IF bound[1] > bound[2] THEN
			RAISE EXCEPTION USING ERRCODE = '22023', HINT = format('Write it as two: %s-%s,%s-%s.', bound[1], high, low, bound[2]),
				MESSAGE = format('cron expression %L: the range %L ends before it begins', left(expr, 80), left(item, 40));
		END IF;
		i := bound[1];
		WHILE i <= bound[2] LOOP
			bits := bits | (1::int8 << i);
			i := i + step;
		END LOOP;
	END LOOP;
	RETURN bits;
END
$$;

-- The seven numbers of an expression; what it says is checked. Of the seventh: 1, the hour is free (a * or a step in
-- it): local times that do not exist are left out and those that exist twice are due twice; 2, a day has to be right
-- both of the month and of the week (one of them begins with *, as in cron), else one of them is enough.
CREATE OR REPLACE FUNCTION queue._cron(expr text) RETURNS int8[]
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	months CONSTANT text[] := '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}';
	days CONSTANT text[] := '{sun,mon,tue,wed,thu,fri,sat}';
	said text := btrim(lower(expr), E' \t');
	f text[];
	dow int8;
	cron int8[];
BEGIN
	IF expr IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the cron expression must not be null';
	END IF;
	said := CASE said WHEN '@hourly' THEN '0 * * * *' WHEN '@daily' THEN '0 0 * * *'
		WHEN '@midnight' THEN '0 0 * * *' WHEN '@weekly' THEN '0 0 * * 0'
		WHEN '@monthly' THEN '0 0 1 * *' WHEN '@yearly' THEN '0 0 1 1 *'
		WHEN '@annually' THEN '0 0 1 1 *' ELSE said END;
	f := regexp_split_to_array(said, '[ \t]+');
	IF cardinality(f) = 5 THEN
		f := '0'::text || f;
	END IF;
	IF cardinality(f) <> 6 OR octet_length(expr) > 500 THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('%L is no cron expression', left(expr, 80)),
			HINT = 'Five fields: minute, hour, day of the month, month, day of the week, as in ''*/5 8-18 * * mon-fri''; '
				'six: seconds before them; or @hourly, @daily, @weekly, @monthly, @yearly.';
	END IF;
	dow := queue._cron_field(expr, 'day of the week', f[6], 0, 7, days);
	cron := ARRAY[
		queue._cron_field(expr, 'second', f[1], 0, 59, '{}'),
		queue._cron_field(expr, 'minute', f[2], 0, 59, '{}'),
		queue._cron_field(expr, 'hour', f[3], 0, 23, '{}'),
		queue._cron_field(expr, 'day of the month', f[4], 1, 31, '{}'),
		queue._cron_field(expr, 'month', f[5], 1, 12, months),
		(dow | (dow >> 7)) & 127,
		CASE WHEN f[3] ~ '[*/]' THEN 1 ELSE 0 END + CASE WHEN f[4] ~ '^\*' OR f[6] ~ '^\*' THEN 2 ELSE 0 END];
	IF queue._cron_local(cron, '2000-01-01') IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('cron expression %L is never due', left(expr, 80)),
			HINT = 'None of these months has such a day.';
	END IF;
	RETURN cron;
END
$$;

-- The first local time that fits, later than this one (whole seconds). NULL: none within 41 years, as for
-- 30 February; a Sunday that is 29 February comes after 40 at most.
CREATE OR REPLACE FUNCTION queue._cron_local(cron int8[], after timestamp) RETURNS timestamp
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	begins CONSTANT timestamp := after + interval '1 s';
	d date := begins;
	last CONSTANT date := d + 366 * 41;
	h int4 := extract(hour FROM begins);
	m int4 := extract(minute FROM begins);
	s int4 := extract(second FROM begins);
	by_month bool;
	by_week bool;
BEGIN
	WHILE d <= last LOOP
		IF cron[5] >> extract(month FROM d)::int4 & 1 = 0 THEN
			d := date_trunc('month', d::timestamp) + interval '1 month';
			h := 0; m := 0; s := 0;
			CONTINUE;
		END IF;
		by_month := cron[4] >> extract(day FROM d)::int4 & 1 = 1;
		by_week := cron[6] >> extract(dow FROM d)::int4 & 1 = 1;
		IF (CASE WHEN cron[7] & 2 <> 0 THEN by_month AND by_week ELSE by_month OR by_week END) THEN
			WHILE h < 24 LOOP
				IF cron[3] >> h & 1 = 1 THEN
					WHILE m < 60 LOOP
						IF cron[2] >> m & 1 = 1 THEN
							WHILE s < 60 LOOP
								IF cron[1] >> s & 1 = 1 THEN
									RETURN d + make_time(h, m, s);
								END IF;
								s := s + 1;
							END LOOP;
						END IF;
						m := m + 1; s := 0;
					END LOOP;
				END IF;
				h := h + 1; m := 0; s := 0;
			END LOOP;
		END IF;
		d := d + 1;
		h := 0; m := 0; s := 0;
	END LOOP;
	RETURN NULL;
END
$$;

-- How far a zone's clocks are ahead of UTC at an instant.
CREATE OR REPLACE FUNCTION queue._ahead(zone text, t timestamptz) RETURNS interval
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN t AT TIME ZONE zone - t AT TIME ZONE 'UTC';
END
$$;

-- The instant after which the zone's clocks are no longer as they were at `before`; at `later` they are not.
CREATE OR REPLACE FUNCTION queue._change_of_clocks(zone text, before timestamptz, later timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	was CONSTANT interval := queue._ahead(zone, before);
	low timestamptz := before;
	high timestamptz := later;
	middle timestamptz;
BEGIN
	WHILE high - low > interval '1 s' LOOP
		middle := low + make_interval(secs => floor(extract(epoch FROM high - low) / 2)::float8);
		IF queue._ahead(zone, middle) = was THEN
			low := middle;
		ELSE
			high := middle;
		END IF;
	END LOOP;
	RETURN high;
END
$$;

-- When a fixed local time is: the first of two; where there is none, when the clocks go on.
CREATE OR REPLACE FUNCTION queue._instant(zone text, l timestamp) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t CONSTANT timestamptz := l AT TIME ZONE zone;
	missing CONSTANT interval := t AT TIME ZONE zone - l;
	earlier interval;
BEGIN
	IF missing <> '0' THEN
		RETURN queue._change_of_clocks(zone, t - missing - interval '1 s', t);
	END IF;
	-- two days: the greatest change of clocks was one (a line of dates moved)
	earlier := queue._ahead(zone, t - interval '48 h') - queue._ahead(zone, t);
	IF earlier > '0' AND (t - earlier) AT TIME ZONE zone = l THEN
		RETURN t - earlier;
	END IF;
	RETURN t;
END
$$;

-- The first instant at which it is due, later than `after`; NULL: never. cron: of _cron().
CREATE OR REPLACE FUNCTION queue._cron_next(cron int8[], zone text, after timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- clocks change by at most a day, and not twice in so short a time
	window_size CONSTANT interval := '72 h';
	t timestamptz := date_trunc('second', after);
	b timestamp;	-- the local time at t
	l timestamp;	-- the next one that fits is later than this
	c timestamp;
	due timestamptz;
	until timestamptz;
	change timestamptz;
BEGIN
	IF NOT isfinite(after) THEN
		RETURN NULL;
	END IF;
	b := t AT TIME ZONE zone;
	l := b;
	IF cron[7] & 1 = 0 THEN
		LOOP
			l := queue._cron_local(cron, l);
			due := queue._instant(zone, l);
			EXIT WHEN due IS NULL OR due > after;
			-- it was due in the first of two equal hours, and this is the second: so was all until the clocks went back
			l := greatest(l, l + (queue._change_of_clocks(zone, due, t) - due) - interval '1 s');
		END LOOP;
		RETURN due;
	END IF;

	-- Within one offset local time runs like any other; where the clocks change it begins anew.
	LOOP
		c := queue._cron_local(cron, l);
		IF c IS NULL THEN
			RETURN NULL;
		END IF;
		due := t + (c - b);
		until := least(due, t + window_size);
		IF queue._ahead(zone, until) = queue._ahead(zone, t) THEN
			IF due = until THEN
				RETURN due;
			END IF;
			-- nothing in between fits: near it, before the clocks may change
			t := greatest(until, (c - window_size) AT TIME ZONE zone);
			b := t AT TIME ZONE zone;
			l := b;
			CONTINUE;
		END IF;
		change := queue._change_of_clocks(zone, t, until);
		IF due < change THEN
			RETURN due;
		END IF;
		t := change;
		b := t AT TIME ZONE zone;
		l := b - interval '1 s';
	END LOOP;
END
$$;

-- The first of start + n * every that is later than `after`. Months are counted from the start, so that what begins
-- on the 31st stays at the ends of months. In UTC: a day has 24 hours.
CREATE OR REPLACE FUNCTION queue._every_next(start timestamptz, every interval, after timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	utc CONSTANT timestamp := start AT TIME ZONE 'UTC';
	n int8;
BEGIN
	IF every IS NULL OR NOT (every >= interval '1 ms' AND every <= interval '8000 years')
			OR extract(year FROM every) < 0 OR extract(month FROM every) < 0 OR extract(day FROM every) < 0
			OR extract(hour FROM every) < 0 OR extract(second FROM every) < 0 OR extract(minute FROM every) < 0 THEN
		RAISE EXCEPTION USING ERRCODE = '22023',
			MESSAGE = format('%L is no interval to repeat by', every),
			HINT = 'Between 1 ms and 8000 years, as in EVERY ''5 min'' or EVERY ''1 month''.';
	END IF;
	IF NOT isfinite(start) OR NOT isfinite(after) OR after < start THEN
		RETURN start;
	END IF;
	-- months are 28 to 31 days: begin where it cannot be later yet
	n := greatest(0, floor(extract(epoch FROM after - start) / greatest(0.001,
		extract(epoch FROM every) + extract(month FROM every) * 86400 + extract(year FROM every) * 86400 * 7))::int8 - 1);
	WHILE (utc + every * n) AT TIME ZONE 'UTC' <= after LOOP
		n := n + 1;
	END LOOP;
	RETURN (utc + every * n) AT TIME ZONE 'UTC';
END
$$;
