-- KEY and GROUP: what a queue has for them: indexes, and functions that go beyond the rights of who pushes or
-- finishes a job, and so do just one thing each.
--
-- GROUP: the jobs of a group one at a time, in the order of their pushes.
--
-- At most one job of a group is ready, later or leased: a unique index says so. The others are
-- "blocked", and no take looks at them. When the one ends, in whatever way, the first of the
-- blocked takes its place; triggers see to that. Other jobs pay little for them: WHEN
-- is read and prepared anew in each statement, so it is short, and a take sets no column that a trigger is
-- for: who dies sets ended_at, and who becomes blocked by an UPDATE gets a new position.
--
-- The end and the push of a successor may not see each other: each is in a transaction that the
-- other's snapshot does not hold. So a push that was blocked looks once more at its commit (a
-- deferred trigger), with a lock on the job it waits for: if that is being ended it waits for
-- the outcome; if not, whoever ends it comes after this commit, and sees the successor.

-- unique: one of a group at a time. Else it is for counting (flow_group.sql).
CREATE OR REPLACE FUNCTION queue._generate_group_index(number int4, name text, one bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('CREATE %s INDEX %I ON %s ("group" %s) WHERE "group" IS NOT NULL AND state IN (''ready'', ''later'', ''leased'')',
		CASE WHEN one THEN 'UNIQUE' ELSE '' END, format('n%s_group', number), queue._table(name),
		CASE WHEN one THEN '' ELSE ', state' END);
END
$$;

-- Is it the queue's own, of this kind? REINDEX CONCURRENTLY has two of them for a while, under names of its own, and when it
-- fails it leaves the new one.
CREATE OR REPLACE FUNCTION queue._is_index(name text, number int4, kind text) RETURNS bool
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
	SELECT name ~ ('^n' || number || '_(' || kind || ')(_cc(new|old)[0-9]*)?$');
$$;

CREATE OR REPLACE FUNCTION queue._generate_group_triggers(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format($sql$
		CREATE TRIGGER ended AFTER DELETE ON %1$s FOR EACH ROW
			WHEN (coalesce(OLD."group", OLD.followed) IS NOT NULL)
			EXECUTE FUNCTION queue._ended_%2$s();
		CREATE TRIGGER died AFTER UPDATE OF ended_at ON %1$s FOR EACH ROW
			WHEN (coalesce(OLD."group", OLD.followed) IS NOT NULL AND NEW.state = 'dead' AND OLD.state <> 'dead')
			EXECUTE FUNCTION queue._ended_%2$s();
		CREATE CONSTRAINT TRIGGER blocked AFTER INSERT OR UPDATE OF position ON %1$s
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'blocked')
			EXECUTE FUNCTION queue._blocked_%2$s();
	$sql$, queue._table(name), number);
END
$$;

-- What others look at. ordered: who waits behind the first of a group is blocked.
CREATE OR REPLACE FUNCTION queue._generate_group_looks(number int4, name text, ordered bool) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(name);
	settings CONSTANT text := 'SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off';
BEGIN
	-- Could the next one take the place of this group's first now? If so it is locked for that.
	PERFORM queue._generate_one(format('_may_end_%s(g text) RETURNS bool', number),
		'SET enable_seqscan = off SET enable_bitmapscan = off', replace($body$
DECLARE
	first CONSTANT int8 := (SELECT id FROM @table@ WHERE state = 'blocked' AND "group" = g
		ORDER BY "group", id LIMIT 1);
BEGIN
	IF first IS NULL OR NOT @ordered@ THEN
		RETURN true;
	END IF;
	PERFORM FROM @table@ WHERE id = first FOR UPDATE SKIP LOCKED;
	RETURN FOUND;
END
$body$, '@ordered@', ordered::text), tab);
	PERFORM queue._for_all('_may_end_' || number);

	-- For a push, which may not look at the jobs: what it has to know of the job with this key, and whether the
	-- group has one that goes before it. Who has PUSH may call it (rights.sql), and learns nothing by it that a
	-- push with this key would not tell.
	PERFORM queue._generate_one(format('_seek_%s(k text, g text, OUT old int8, OUT was text, OUT late bool,
		OUT busy bool, OUT kept int8, OUT version timestamptz)', number), settings, replace(replace($body$
BEGIN
	IF k IS NOT NULL THEN
		SELECT id, state, state <> 'leased' AND expires_at <= clock_timestamp(), t.version
			INTO old, was, late, version FROM @table@ AS t WHERE key = k AND state <> 'dead';
		IF old IS NULL THEN
			SELECT x.job, x.version INTO kept, version FROM queue.keys AS x
				WHERE x.queue = @n@ AND x.key = k AND x.until > clock_timestamp();
		END IF;
	END IF;
	-- behind those that wait, too: the one that they wait for may have ended since this
	-- transaction pushed them
	IF @ordered@ AND g IS NOT NULL AND old IS NULL THEN
		busy := EXISTS (SELECT FROM @table@ WHERE "group" = g AND state IN ('ready', 'later', 'leased'))
			OR EXISTS (SELECT FROM @table@ WHERE "group" = g AND state = 'blocked');
	END IF;
END
$body$, '@ordered@', ordered::text), '@n@', number::text), tab);
END
$$;

CREATE OR REPLACE FUNCTION queue._generate_group(number int4, name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(name);
	settings CONSTANT text := 'SECURITY DEFINER SET enable_seqscan = off SET enable_bitmapscan = off';
BEGIN
	EXECUTE format($sql$
		CREATE UNIQUE INDEX %2$I ON %1$s (key) WHERE key IS NOT NULL AND state <> 'dead';
		CREATE INDEX %3$I ON %1$s ("group", id) WHERE state = 'blocked';
	$sql$, tab, format('n%s_key', number), format('n%s_blocked', number));
	PERFORM queue._generate_group_index(number, name, true);

	-- The first that is blocked goes on, unless another one of the group has been faster. Who has it already, behind the
	-- one that was done with this token, has it leased now (lot.sql): then nothing has become ready.
	PERFORM queue._generate_one(format('_next_%s(g text, done text DEFAULT NULL) RETURNS bool', number), settings, replace($body$
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	held bool;
	index text;
BEGIN
	FOR round IN 1..100 LOOP	-- more than one are cancelled ones; that many are a trigger of the owner's, who wants it to stay
		UPDATE @table@ SET state = CASE WHEN run_at > moment THEN 'later' ELSE 'ready' END,
				due = CASE WHEN run_at > moment THEN least(run_at, expires_at) ELSE expires_at END,
				run_at = greatest(run_at, moment), position = DEFAULT
			WHERE id = (SELECT id FROM @table@ WHERE state = 'blocked' AND "group" = g
				ORDER BY "group", id LIMIT 1)
				AND state = 'blocked' AND token IS NULL;
		IF FOUND THEN
			RETURN true;
		END IF;
		-- the first was cancelled while we waited for it: then the next one
		EXIT WHEN NOT EXISTS (SELECT FROM @table@ WHERE state = 'blocked' AND "group" = g)
			OR EXISTS (SELECT FROM @table@
				WHERE "group" = g AND state IN ('ready', 'later', 'leased'));
		UPDATE @table@ AS t SET state = CASE WHEN l.ours THEN 'leased' WHEN run_at > moment THEN 'later' ELSE 'ready' END,
				run_at = greatest(run_at, moment), position = DEFAULT, token = CASE WHEN l.ours THEN l.token ELSE t.token END,
				lease_until = CASE WHEN l.ours THEN l.until END,
				due = CASE WHEN l.ours THEN l.until WHEN run_at > moment THEN least(run_at, expires_at) ELSE expires_at END,
				attempt = attempt + l.ours::int4, worker = CASE WHEN l.ours THEN l.worker ELSE t.worker END,
				proxy = CASE WHEN l.ours THEN l.proxy ELSE t.proxy END,
				first_taken_at = CASE WHEN l.ours THEN coalesce(first_taken_at, taken_at) ELSE first_taken_at END,
				taken_at = CASE WHEN l.ours THEN moment ELSE taken_at END
			FROM (SELECT id AS job, s.*, (s.last = done AND s.until > moment) IS TRUE AS ours
				FROM (SELECT id, token AS said FROM @table@ WHERE state = 'blocked' AND "group" = g
					ORDER BY "group", id LIMIT 1) AS first, LATERAL queue._lot_said(said) AS s) AS l
			WHERE t.id = l.job AND state = 'blocked' AND t.token IS NOT NULL RETURNING l.ours INTO held;
		IF FOUND THEN
			RETURN NOT held;
		END IF;
	END LOOP;
	RETURN false;
EXCEPTION WHEN unique_violation THEN
	GET STACKED DIAGNOSTICS index = CONSTRAINT_NAME;
	IF NOT queue._is_index(index, @n@, 'group') THEN	-- the owner's own
		RAISE;
	END IF;
	RETURN false;
END
$body$, '@n@', number::text), tab);

	PERFORM queue._generate_one(format('_ended_%s() RETURNS trigger', number), settings,
		replace(replace($body$
BEGIN
	-- who dies with another is seen to by who sees to that one
	IF OLD.followed IS NOT NULL AND (TG_OP = 'UPDATE' OR OLD.state <> 'dead')
			AND current_setting('qbouncer.gone', true) IS DISTINCT FROM 'followed' THEN
		PERFORM queue._followed('@n@-' || OLD.id, OLD.followed, CASE WHEN TG_OP = 'UPDATE' THEN 'dead'
				WHEN current_setting('qbouncer.gone', true) <> '' THEN current_setting('qbouncer.gone', true)
				WHEN left(OLD.token, 1) = 'x' THEN 'cancelled'
				WHEN OLD.state <> 'leased' AND OLD.expires_at <= clock_timestamp() THEN 'expired'
				ELSE 'done' END,
			CASE WHEN TG_OP = 'UPDATE' THEN NEW.error END,
			CASE WHEN TG_OP = 'DELETE' AND OLD.state IN ('ready', 'later', 'leased') THEN OLD."group" END);
	END IF;
	IF TG_OP = 'DELETE' AND right(OLD.followed, 1) = '+' AND OLD.state = 'dead' THEN
		DELETE FROM queue.followers WHERE queue = @n@ AND job = OLD.id;
	END IF;
	IF OLD."group" IS NOT NULL AND (TG_OP = 'UPDATE' OR OLD.state IN ('ready', 'later', 'leased'))
			AND queue._next_@n@(OLD."group", CASE WHEN TG_OP = 'DELETE' THEN OLD.token END)
			AND coalesce(strpos(current_setting('qbouncer.tell', true) || ' ', ' @n@ '), 0) = 0 THEN
		PERFORM queue._tell(@n@, @name@);	-- of one of many, that is
	END IF;
	RETURN NULL;
END
$body$, '@name@', queue._name_literal(name)), '@n@', number::text), tab);

	-- This is at the commit, and whoever made it blocked has told of the queue, or will. But a push that is
	-- merged with others tells of it only if it has to.
	PERFORM queue._generate_one(format('_blocked_%s() RETURNS trigger', number), settings,
		replace(replace($body$
BEGIN
	IF NEW."group" IS NULL THEN
		PERFORM queue._look_after(@n@, @name@, NEW.id, false);
		RETURN NULL;
	END IF;
	PERFORM FROM @table@ WHERE "group" = NEW."group" AND state IN ('ready', 'later', 'leased')
		FOR SHARE;
	IF NOT FOUND AND queue._next_@n@(NEW."group")
			AND left(current_setting('qbouncer.tell', true), 4) = 'here' THEN
		PERFORM queue._tell(@n@, @name@);
	END IF;
	RETURN NULL;
END
$body$, '@name@', queue._name_literal(name)), '@n@', number::text), tab);

	-- What was not taken in its time and keeps its key from the next one, whose push tells of the queue. Who has PUSH
	-- may call it: a stranger could keep the row locked, and pushes with this key waiting.
	PERFORM queue._generate_one(format('_late_%s(job int8) RETURNS void', number), settings,
		replace(replace($body$
DECLARE
	keeps CONSTANT bool := (SELECT retain_done > interval '0' FROM queue.queues WHERE number = @n@);
	dies CONSTANT bool := (SELECT on_expire = 'dead' FROM queue.queues WHERE number = @n@);
	was CONSTANT text := coalesce(current_setting('qbouncer.tell', true), '');
	n int8;
BEGIN
	PERFORM set_config('qbouncer.tell', 'nobody ' || was, true);
	IF dies THEN
		UPDATE @table@ SET state = 'dead', due = NULL, ended_at = clock_timestamp(), failed_at = clock_timestamp(), error = 'expired'
			WHERE id = job AND expires_at <= clock_timestamp() AND state IN ('ready', 'later', 'blocked');
		GET DIAGNOSTICS n = ROW_COUNT;
		PERFORM queue._died(@n@, n);
	ELSE
		WITH gone AS (
			DELETE FROM @table@ WHERE id = job AND expires_at <= clock_timestamp()
				AND state IN ('ready', 'later', 'blocked')
			RETURNING *)
		@keep@ WHERE keeps;
	END IF;
	PERFORM set_config('qbouncer.tell', was, true);
END
$body$, '@n@', number::text), '@keep@', queue._keep('@archive@', 'gone', 'expired')), tab);

	-- KEY ... FOR. Behind the insertion of a job with a key: is the key another's, for longer than that one's job is
	-- there? What was looked up before may have changed while the insertion waited for somebody's end. If so our job
	-- is deleted, and the other's id is given; a negative one was there before, and stays. With "keep" the key is ours
	-- now, for so long. A job that is not of this transaction is none of ours: who calls this himself deletes nothing. Where the transaction has one snapshot
	-- what is not in it is found by the attempt to insert it, which fails then (40001).
	PERFORM queue._generate_one(format('_kept_%s(k text, job int8, keep interval, newer timestamptz) RETURNS int8',
		number), settings, replace($body$
#variable_conflict use_column
DECLARE
	moment CONSTANT timestamptz := clock_timestamp();
	ours CONSTANT int8 := abs($2);
	last timestamptz := newer;
	top int8;
	maker int8;
	other int8;
BEGIN
	IF keep IS NOT NULL THEN
		IF newer IS NULL AND $2 < 0 THEN	-- an earlier push of this job has said it
			last := (SELECT t.version FROM @table@ AS t WHERE t.id = ours);
		END IF;
		INSERT INTO queue.keys AS x (queue, key, until, job, version) VALUES (@n@, k, moment + keep, ours, last)
			ON CONFLICT (queue, key) DO UPDATE SET job = ours,
				until = CASE WHEN x.until > moment THEN greatest(x.until, moment + keep) ELSE moment + keep END,
				version = CASE WHEN x.until > moment THEN coalesce(last, x.version) ELSE last END
			WHERE x.until <= moment OR x.job = ours OR newer > x.version;
		IF FOUND THEN
			RETURN NULL;
		END IF;
	ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		INSERT INTO queue.keys (queue, key, until, job) VALUES (@n@, k, '-infinity', ours) ON CONFLICT DO NOTHING;
		IF FOUND THEN
			DELETE FROM queue.keys WHERE queue = @n@ AND key = k;
			RETURN NULL;
		END IF;
	END IF;
	SELECT x.job INTO other FROM queue.keys AS x
		WHERE x.queue = @n@ AND x.key = k AND x.until > moment AND x.job <> ours AND (newer > x.version) IS NOT TRUE;
	IF other IS NULL THEN
		IF newer IS NOT NULL THEN
			UPDATE queue.keys AS x SET job = ours, version = newer
				WHERE x.queue = @n@ AND x.key = k AND x.until > moment;
		END IF;
		RETURN NULL;
	END IF;
	IF $2 < 0 THEN
		RETURN other;
	END IF;
	SELECT xmin::text::int8 INTO maker FROM @table@ WHERE id = ours AND key = k;
	top := pg_current_xact_id()::text::int8;
	maker := maker + (top & ~4294967295);		-- near to it, on either side
	maker := maker + CASE WHEN maker > top + 2147483647 THEN -4294967296 WHEN maker < top - 2147483648 THEN 4294967296 ELSE 0 END;
	IF pg_xact_status(maker::text::xid8) = 'in progress' THEN
		DELETE FROM @table@ WHERE id = ours;
	END IF;
	RETURN other;
END
$body$, '@n@', number::text), tab);

	-- Who calls it frees nothing that is not free. Who has TAKE may: pushes with these keys wait for his transaction.
	-- How many; of 0: in so many milliseconds the first is free, if there is one.
	PERFORM queue._generate_one(format('_free_keys_%s(most int8) RETURNS int8', number), settings, replace($body$
DECLARE
	gone int8;
BEGIN
	IF most = 0 THEN
		RETURN (SELECT greatest(1000 * extract(epoch FROM least(greatest(until, clock_timestamp()), clock_timestamp() + interval '1 year') - clock_timestamp()), 0)
			FROM queue.keys WHERE queue = @n@ ORDER BY queue, until LIMIT 1);
	END IF;
	DELETE FROM queue.keys WHERE ctid = ANY (ARRAY(SELECT ctid FROM queue.keys
		WHERE queue = @n@ AND until <= clock_timestamp() ORDER BY queue, until LIMIT most FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS gone = ROW_COUNT;
	RETURN gone;
END
$body$, '@n@', number::text), tab);

	PERFORM queue._generate_group_looks(number, name, true);

	EXECUTE format('REVOKE ALL ON FUNCTION queue._seek_%1$s, queue._late_%1$s, queue._kept_%1$s, queue._free_keys_%1$s, queue._next_%1$s,
		queue._ended_%1$s, queue._blocked_%1$s FROM PUBLIC', number);
	PERFORM queue._generate_group_triggers(number, name);
END
$$;

CREATE OR REPLACE FUNCTION queue._drop_group(number int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('DROP FUNCTION IF EXISTS queue._next_%1$s, queue._ended_%1$s, queue._blocked_%1$s,
		queue._may_end_%1$s, queue._late_%1$s, queue._seek_%1$s,
		queue._kept_%1$s, queue._free_keys_%1$s', number);
	PERFORM queue._drop_functions(ARRAY[format('_grouped_%s', number), format('_pushed_%s', number)]);
END
$$;
