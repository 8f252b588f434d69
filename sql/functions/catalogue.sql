-- Who may change the catalogue, and what a change of it does.
--
-- The tables and functions of all queues belong to the role that has installed the schema, so that nobody
-- else can put code where others run it: no trigger, rule, policy or view on a queue's table, no other body
-- of its functions. A queue's owner is a column of the catalogue. He has all rights on the jobs, and makes,
-- changes and drops the queue by changing his row.
--
-- Two triggers for that. The first runs as whoever changes the row and says whether he may: in the second,
-- a SECURITY DEFINER function, nobody can tell any more who it was. That one does it, with the rights of the
-- installer; what goes into its statements is checked by the table, or quoted.

-- What belonged to a role that was dropped is left to the installer.
CREATE OR REPLACE FUNCTION queue._must_own(name text, owner oid) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	gone CONSTANT bool := NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = owner);
BEGIN
	IF pg_has_role(CASE WHEN gone THEN (SELECT c.relowner FROM pg_class AS c WHERE c.oid = 'queue.queues'::regclass)
			ELSE owner END, 'USAGE') THEN
		RETURN;
	ELSIF gone THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('must be owner of queue "%s"', name),
			DETAIL = 'It belonged to a role that was dropped.',
			HINT = format('Who has installed the schema, or a superuser, gives it to another: '
				'UPDATE queue.queues SET owner = ''...'' WHERE name = %L;', name);
	END IF;
	RAISE EXCEPTION USING ERRCODE = '42501',
		MESSAGE = format('must be owner of queue "%s"', name),
		DETAIL = format('It belongs to role "%s".', pg_get_userbyid(owner));
END
$$;

CREATE OR REPLACE FUNCTION queue._row_may_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_OP <> 'INSERT' THEN
		PERFORM queue._must_own(OLD.name, OLD.owner);
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	-- the table is made by the installer, where the caller's setting says
	IF TG_OP = 'INSERT' AND EXISTS (SELECT FROM pg_tablespace AS t WHERE t.spcname = current_setting('default_tablespace')
			AND NOT has_tablespace_privilege(t.oid, 'CREATE')
			AND t.oid <> (SELECT d.dattablespace FROM pg_database AS d WHERE d.datname = current_database())) THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('permission denied for tablespace %s', current_setting('default_tablespace'));
	END IF;
	IF NOT pg_has_role(NEW.owner, 'USAGE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('must be member of role "%s"', pg_get_userbyid(NEW.owner));
	ELSIF TG_OP = 'UPDATE' AND (NEW.number, NEW.name, NEW.payload) IS DISTINCT FROM
			(OLD.number, OLD.name, OLD.payload) THEN
		RAISE EXCEPTION USING ERRCODE = '0A000',
			MESSAGE = 'number, name and type of payloads of a queue cannot be changed',
			HINT = 'Create another queue, or drop this one and create it anew.';
	END IF;
	IF (NEW.handler IS NOT NULL OR NEW.run IS NOT NULL) AND (TG_OP = 'INSERT'
			OR (NEW.handler, NEW.run, NEW.owner) IS DISTINCT FROM (OLD.handler, OLD.run, OLD.owner)) THEN
		PERFORM queue._check_runs(NEW);
	ELSIF NEW.handler IS NULL AND NEW.run IS NULL AND (NEW.handler_batch > 1 OR NEW.timeout IS NOT NULL OR NEW.session <> 'clean')
			AND (TG_OP = 'INSERT'
			OR (NEW.handler_batch, NEW.timeout, NEW.session) IS DISTINCT FROM (OLD.handler_batch, OLD.timeout, OLD.session)) THEN
		PERFORM queue._runs_nothing(CASE WHEN NEW.handler_batch > 1 THEN 'handler_batch' WHEN NEW.timeout IS NOT NULL THEN 'timeout'
			ELSE 'session' END);
	ELSIF TG_OP = 'UPDATE' AND NEW.run IS NULL AND OLD.run IS NOT NULL AND NEW.dead_queue IS NOT NULL THEN
		PERFORM queue._check_dead_queue(NEW);
	END IF;
	IF NEW.session = 'clean' AND (NEW.session_jobs IS NOT NULL OR NEW.session_time IS NOT NULL) AND (TG_OP = 'INSERT'
			OR (NEW.session_jobs, NEW.session_time) IS DISTINCT FROM (OLD.session_jobs, OLD.session_time)) THEN
		PERFORM queue._keeps_nothing(CASE WHEN NEW.session_jobs IS NOT NULL THEN 'session_jobs' ELSE 'session_time' END);
	END IF;
	RETURN NEW;
END
$$;

-- A number is never used again: it is drawn here, and by nobody who changes rows.
CREATE OR REPLACE FUNCTION queue._row_number() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue.queues'::regclass OR NEW.number IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '428C9', MESSAGE = 'the number of a queue cannot be chosen';
	END IF;
	INSERT INTO queue.names VALUES (NEW.name) ON CONFLICT DO NOTHING;	-- behind who is making, or dropping, one of this name
	IF NOT FOUND AND NOT EXISTS (SELECT FROM queue.streams AS s WHERE s.name = NEW.name) THEN
		RETURN NULL;	-- there is one, or was until now: no row is made, which queue.create() sees
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '42P07', MESSAGE = format('stream "%s" already exists', NEW.name),
			HINT = 'A queue needs a name of its own; or drop the stream first.';
	END IF;
	NEW.number := nextval(pg_get_serial_sequence('queue.queues', 'number'));
	RETURN NEW;
END
$$;

-- All rights on its jobs, and to give them on; but not to put triggers there.
CREATE OR REPLACE FUNCTION queue._give_owner(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF cfg.owner <> quote_ident(current_user)::regrole THEN
		EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON %1$s, %2$s TO %3$I WITH GRANT OPTION;
			GRANT SELECT ON SEQUENCE queue.%4$I TO %3$I WITH GRANT OPTION;
			GRANT EXECUTE ON FUNCTION queue.%5$I(text, text), queue.%6$I(int8), queue.%7$I(text, int8, interval, timestamptz),
				queue.%8$I(int8, text), queue.%9$I(int8) TO %3$I WITH GRANT OPTION',
			queue._table(cfg.name), queue._archive(cfg.name), pg_get_userbyid(cfg.owner),
			format('n%s_id', cfg.number), format('_seek_%s', cfg.number), format('_late_%s', cfg.number), format('_kept_%s', cfg.number),
			format('_follow_%s', cfg.number), format('_free_keys_%s', cfg.number));
		EXECUTE queue._gate_right_sql(true, cfg, quote_ident(pg_get_userbyid(cfg.owner)));
	END IF;
END
$$;

-- Who has given his queue away keeps nothing of it, as with a table; and what he gave on by a GRANT of his own
-- goes with it. A role that is gone has nothing.
CREATE OR REPLACE FUNCTION queue._take_owner(cfg queue.queues) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF cfg.owner <> quote_ident(current_user)::regrole AND EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = cfg.owner) THEN
		EXECUTE format('REVOKE ALL ON %1$s, %2$s FROM %3$I CASCADE; REVOKE ALL ON SEQUENCE queue.%4$I FROM %3$I CASCADE;
			REVOKE ALL ON FUNCTION queue.%5$I(text, text), queue.%6$I(int8), queue.%7$I(text, int8, interval, timestamptz),
				queue.%8$I(int8, text), queue.%9$I(int8) FROM %3$I CASCADE',
			queue._table(cfg.name), queue._archive(cfg.name), pg_get_userbyid(cfg.owner),
			format('n%s_id', cfg.number), format('_seek_%s', cfg.number), format('_late_%s', cfg.number), format('_kept_%s', cfg.number),
			format('_follow_%s', cfg.number), format('_free_keys_%s', cfg.number));
		EXECUTE queue._gate_right_sql(false, cfg, quote_ident(pg_get_userbyid(cfg.owner)));
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._row_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
BEGIN
	IF TG_RELID <> 'queue.queues'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	ELSIF TG_OP = 'INSERT' THEN
		PERFORM queue._create_table(cfg);
		PERFORM queue._generate(cfg.number, cfg.name);
		PERFORM queue._generate_group(cfg.number, cfg.name);
		PERFORM queue._generate_after(cfg.number, cfg.name);
		PERFORM queue._generate_key(cfg.number, cfg.name);
		PERFORM queue._generate_bulk(cfg.number, cfg.name);
		PERFORM queue._generate_length(cfg.number, cfg.name, cfg.max_length, cfg.overflow);
		PERFORM queue._generate_most(cfg);
		PERFORM queue._generate_archive(cfg.number, cfg.name);
		PERFORM queue._generate_paused(cfg.name, cfg.push_paused);
		PERFORM queue._generate_expires(cfg.name, cfg.expires);
		IF queue._group_mode(cfg) <> 'order' THEN
			PERFORM queue._regroup(cfg);
		END IF;
		PERFORM queue._generate_flow(cfg);
		PERFORM queue._generate_dead(cfg);
		PERFORM queue._generate_batches(cfg);
		PERFORM queue._generate_consumer(cfg);
		PERFORM queue._generate_lone(cfg);
		PERFORM queue._comment_queue(cfg.name);
		PERFORM queue._give_owner(cfg);
		IF cfg.handler IS NOT NULL OR cfg.run IS NOT NULL THEN
			PERFORM queue._tell_schedules(true);
		END IF;
	ELSIF TG_OP = 'UPDATE' THEN
		IF NEW.run IS NOT NULL AND (NEW.run, NEW.owner) IS DISTINCT FROM (OLD.run, OLD.owner)
				OR NEW.handler IS NOT NULL AND (OLD.handler IS NULL AND OLD.run IS NULL OR NEW.owner <> OLD.owner) THEN
			PERFORM queue._must_be_empty(cfg);
		END IF;
		-- one is content with a lock that the next one is not: a take that waits behind the first would be in its way
		IF (SELECT count(*) FROM unnest(ARRAY[NEW.single_consumer <> OLD.single_consumer, NEW.unlogged <> OLD.unlogged, NEW.batches <> OLD.batches,
				NEW.push_paused <> OLD.push_paused, NEW.expires IS DISTINCT FROM OLD.expires, NEW.dead_queue IS DISTINCT FROM OLD.dead_queue,
				NEW.max_per_transaction IS DISTINCT FROM OLD.max_per_transaction,
				(NEW.max_length, NEW.overflow) IS DISTINCT FROM (OLD.max_length, OLD.overflow),
				(NEW.max_running, NEW.rate, NEW.hours, NEW.pause, NEW.max_running_per_group, NEW.rate_per_group, NEW.pause_per_group, NEW.fair)
					IS DISTINCT FROM (OLD.max_running, OLD.rate, OLD.hours, OLD.pause, OLD.max_running_per_group, OLD.rate_per_group,
						OLD.pause_per_group, OLD.fair)]) AS changes WHERE changes) > 1 THEN
			EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', queue._table(cfg.name));
		END IF;
		IF NOT NEW.single_consumer THEN
			PERFORM queue._generate_consumer(cfg);
		END IF;
		IF NEW.owner <> OLD.owner THEN
			PERFORM queue._take_owner(OLD);
			PERFORM queue._give_owner(cfg);
			UPDATE queue.bindings AS b SET owner = NEW.owner, mark = DEFAULT WHERE b.queue = NEW.number;
		END IF;
		IF (NEW.max_length, NEW.overflow) IS DISTINCT FROM (OLD.max_length, OLD.overflow) THEN
			PERFORM queue._generate_length(cfg.number, cfg.name, cfg.max_length, cfg.overflow);
		END IF;
		IF NEW.max_per_transaction IS DISTINCT FROM OLD.max_per_transaction THEN
			PERFORM queue._generate_most(cfg);
		END IF;
		IF NEW.dead_queue IS DISTINCT FROM OLD.dead_queue THEN
			PERFORM queue._generate_dead(cfg);
		END IF;
		IF NEW.expires IS DISTINCT FROM OLD.expires THEN
			PERFORM queue._generate_expires(cfg.name, cfg.expires);
		END IF;
		IF NEW.batches <> OLD.batches THEN
			PERFORM queue._generate_batches(cfg);
		END IF;
		IF NEW.push_paused <> OLD.push_paused THEN
			PERFORM queue._generate_paused(cfg.name, cfg.push_paused);
		END IF;
		IF (NEW.max_running, NEW.rate, NEW.hours, NEW.pause, NEW.max_running_per_group, NEW.rate_per_group,
					NEW.pause_per_group, NEW.fair, NEW.unlogged) IS DISTINCT FROM
				(OLD.max_running, OLD.rate, OLD.hours, OLD.pause, OLD.max_running_per_group, OLD.rate_per_group,
					OLD.pause_per_group, OLD.fair, OLD.unlogged) THEN
			IF NEW.single_consumer AND OLD.single_consumer THEN	-- it is around what changes
				EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', queue._table(cfg.name));
				PERFORM queue._unwrap_consumer(cfg.number);
			END IF;
			IF (NEW.max_running_per_group, NEW.rate_per_group, NEW.pause_per_group, NEW.fair) IS DISTINCT FROM
					(OLD.max_running_per_group, OLD.rate_per_group, OLD.pause_per_group, OLD.fair) THEN
				PERFORM queue._regroup(cfg);
			END IF;
			PERFORM queue._generate_flow(cfg);
			PERFORM queue._note_groups(cfg);
			IF NEW.single_consumer AND OLD.single_consumer THEN
				PERFORM queue._wrap_consumer(cfg);
			END IF;
		END IF;
		IF NEW.single_consumer THEN
			PERFORM queue._generate_consumer(cfg);
		END IF;
		IF (NEW.handler, NEW.run, NEW.timeout, NEW.handler_batch, NEW.session, NEW.session_jobs, NEW.session_time) IS DISTINCT FROM
				(OLD.handler, OLD.run, OLD.timeout, OLD.handler_batch, OLD.session, OLD.session_jobs, OLD.session_time)
				OR NEW.owner <> OLD.owner AND (NEW.handler IS NOT NULL OR NEW.run IS NOT NULL) THEN
			PERFORM queue._tell_schedules(true);
		END IF;
		IF NEW.unlogged <> OLD.unlogged THEN	-- writes the whole table anew
			EXECUTE format('ALTER TABLE %s SET %3$s; ALTER TABLE %2$s SET %3$s', queue._table(cfg.name),
				queue._archive(cfg.name), CASE WHEN cfg.unlogged THEN 'UNLOGGED' ELSE 'LOGGED' END);
		END IF;
	ELSE
		IF to_regclass(queue._table(cfg.name)) IS NOT NULL THEN
			EXECUTE 'DROP TABLE ' || queue._table(cfg.name);
		END IF;
		PERFORM queue._drop_flow(cfg);
		PERFORM queue._drop_generated(cfg.number);
		PERFORM queue._drop_consumer(cfg.number);
		PERFORM queue._drop_group(cfg.number);
		PERFORM queue._drop_after(cfg.number);
		PERFORM queue._drop_bulk(cfg.number, cfg.name);
		PERFORM queue._drop_key(cfg.number);
		PERFORM queue._drop_length(cfg.number);
		PERFORM queue._drop_archive(cfg.number, cfg.name);
		DELETE FROM queue.keys AS k WHERE k.queue = cfg.number;
		IF cfg.handler IS NOT NULL OR cfg.run IS NOT NULL THEN
			PERFORM queue._tell_schedules(true);
		END IF;
		-- one that somebody has locked, or is about to insert, is deleted when it is fired
		DELETE FROM queue.schedules WHERE name = ANY (ARRAY(
			SELECT s.name FROM queue.schedules AS s WHERE s.queue = cfg.number FOR UPDATE SKIP LOCKED));
		DELETE FROM queue.followers AS f WHERE f.queue = cfg.number;
		DELETE FROM queue.figures WHERE ctid = ANY (ARRAY(	-- those that somebody folds now are not waited for
			SELECT f.ctid FROM queue.figures AS f WHERE f.queue = cfg.number FOR UPDATE SKIP LOCKED));
		DELETE FROM queue.bindings AS b WHERE b.queue = cfg.number;
		PERFORM queue._drop_lone(cfg.number);
		DELETE FROM queue.names AS n WHERE n.name = cfg.name;
	END IF;
	RETURN NULL;
END
$$;

-- Whatever is changed: what is prepared may say it.
CREATE OR REPLACE FUNCTION queue._row_lone() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue.queues'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	END IF;
	PERFORM queue._generate_lone(NEW);
	RETURN NULL;
END
$$;

-- The rights on a queue are given the same way: by an INSERT into this view, which keeps nothing. So all
-- of them are given by one role, and whoever may take them away does.
--
-- What the caller owns he may have looked up in an old snapshot. So the row is locked, which fails in a transaction
-- with a snapshot in which it is another one, and elsewhere it is looked up again behind that. A row of a queue alone
-- gives nothing: it locks.
CREATE OR REPLACE FUNCTION queue._right_may_change() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(NEW.queue);
BEGIN
	PERFORM queue._must_own(cfg.name, cfg.owner);
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION queue._right_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_RELID <> 'queue._right'::regclass THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'not a trigger for other tables';
	END IF;
	PERFORM FROM queue.queues AS c WHERE c.name = NEW.queue FOR SHARE;
	IF NEW.kind IS NOT NULL THEN
		EXECUTE queue._right_sql(NEW.gives, queue._find(NEW.queue), NEW.kind, NEW.role);
	END IF;
	RETURN NEW;
END
$$;

DO $qbouncer_catalogue$
BEGIN
	IF to_regclass('queue._right') IS NULL THEN
		CREATE VIEW queue._right AS SELECT NULL::bool AS gives, NULL::text AS queue, NULL::text AS kind,
			NULL::text AS role;
		REVOKE ALL ON queue._right FROM PUBLIC;
		GRANT INSERT ON queue._right TO PUBLIC;
		CREATE TRIGGER a_may INSTEAD OF INSERT ON queue._right FOR EACH ROW
			EXECUTE FUNCTION queue._right_may_change();
		CREATE TRIGGER b_does INSTEAD OF INSERT ON queue._right FOR EACH ROW
			EXECUTE FUNCTION queue._right_changed();
		CREATE TRIGGER a_may BEFORE INSERT OR UPDATE OR DELETE ON queue.queues FOR EACH ROW
			EXECUTE FUNCTION queue._row_may_change();
		CREATE TRIGGER b_number BEFORE INSERT ON queue.queues FOR EACH ROW
			EXECUTE FUNCTION queue._row_number();
		CREATE TRIGGER c_does AFTER INSERT OR UPDATE OF max_length, overflow, max_per_transaction, dead_queue, max_running,
				rate, hours, pause, max_running_per_group, rate_per_group, pause_per_group, fair, unlogged, expires,
				batches, single_consumer, push_paused, handler, run, timeout,
				handler_batch, session, session_jobs, session_time, owner OR DELETE
			ON queue.queues
			FOR EACH ROW EXECUTE FUNCTION queue._row_changed();
		CREATE TRIGGER d_lone AFTER UPDATE ON queue.queues FOR EACH ROW EXECUTE FUNCTION queue._row_lone();
	END IF;
	IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'queue._right'::regclass AND t.tgname = 'c_still') THEN
		CREATE TRIGGER c_still INSTEAD OF INSERT ON queue._right FOR EACH ROW
			EXECUTE FUNCTION queue._right_may_change();
	END IF;
END
$qbouncer_catalogue$;
