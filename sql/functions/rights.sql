-- GRANT and REVOKE: who may push to a queue, who may take from it, who may await its jobs. They are
-- rights on its tables.
--
-- PUSH is INSERT into the columns that a push writes, and to see the ids that it makes; for KEY and GROUP, to call a function that looks for one
-- key and one group, with the rights of who has installed the schema: SELECT would show those of all jobs. TAKE is everything that happens to a job
-- afterwards, and to look at it, also at what is kept of it. AWAIT is to see what became of jobs,
-- results included, but not what they are about.

CREATE OR REPLACE FUNCTION queue._check_rights(q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	cfg CONSTANT queue.queues := queue._find(q);
	word text;
BEGIN
	FOREACH word IN ARRAY coalesce(rights, '{}') LOOP
		IF lower(word) IN ('push', 'take', 'await', 'all') IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = format('unknown right "%s"', left(word, 80)),
				HINT = 'Rights: PUSH, TAKE, AWAIT, ALL.';
		END IF;
	END LOOP;
	IF array_position(roles, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the role must not be null';
	ELSIF array_position(roles, '') IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = 'the name of the role must not be empty';
	END IF;
	PERFORM queue._must_own(cfg.name, cfg.owner);
	-- the row first, as ALTER and DROP do
	INSERT INTO queue._right (queue) VALUES (q);
	-- one after the other, and not beside ALTER or DROP: GRANT itself locks nothing, and fails when the
	-- same is changed at the same time. Who uses the queue does not wait.
	EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', queue._table(q));
END
$$;

CREATE OR REPLACE FUNCTION queue._role(name text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- no role can have this name
	RETURN CASE WHEN lower(name) = 'public' THEN 'PUBLIC' ELSE quote_ident(name) END;
END
$$;

-- The columns that PUSH writes, and who is handed a job that he pushes himself: not the id, nor anything that a
-- take adds to. Those that AWAIT reads of the queue's table and of the archive.
CREATE OR REPLACE FUNCTION queue._columns(kind text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE kind
		WHEN 'push' THEN 'state, priority, run_at, due, headers, payload, pushed_at, expires_at, max_attempts, key, "group", batch, version, behind'
		WHEN 'hand' THEN 'attempt, worker, proxy, lease_until, token, taken_at'
		WHEN 'await' THEN 'id, state, expires_at, error, attempt, ended_at, progress, batch, run_at'
		WHEN 'archive' THEN 'id, state, error, result, attempt, ended_at, progress, batch' END;
END
$$;

-- The statements that give or take a right. The role as its name.
CREATE OR REPLACE FUNCTION queue._right_sql(gives bool, cfg queue.queues, kind text, role text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	verb CONSTANT text := CASE WHEN gives THEN 'GRANT' ELSE 'REVOKE' END;
	tab CONSTANT text := queue._table(cfg.name);
	arc CONSTANT text := queue._archive(cfg.name);
	whom CONSTANT text := CASE WHEN gives THEN 'TO ' ELSE 'FROM ' END || queue._role(role);
	-- which ids there have been, and to push what comes after one
	ids CONSTANT text := format('; %1$s SELECT ON SEQUENCE queue.%2$I %4$s; %1$s EXECUTE ON FUNCTION queue.%3$I(int8, text) %4$s',
		verb, format('n%s_id', cfg.number), format('_follow_%s', cfg.number), whom);
BEGIN
	IF kind = 'push' THEN
		-- what was given by hand may be the right on all columns
		RETURN format('%1$s INSERT %2$s, SELECT (id) ON %3$s %6$s;
			%1$s EXECUTE ON FUNCTION queue.%4$I(text, text), queue.%5$I(int8),
				queue.%7$I(text, int8, interval, timestamptz) %6$s', verb,
			CASE WHEN gives THEN format('(%s)', queue._columns('push')) ELSE '' END, tab,
			format('_seek_%s', cfg.number), format('_late_%s', cfg.number), whom, format('_kept_%s', cfg.number));
	ELSIF kind = 'take' THEN
		RETURN format('%1$s SELECT, UPDATE, DELETE, INSERT (%5$s) ON %2$s %4$s;
			%1$s SELECT, INSERT, UPDATE, DELETE ON %3$s %4$s; %1$s EXECUTE ON FUNCTION queue.%6$I(int8) %4$s',
			verb, tab, arc, whom, queue._columns('hand'), format('_free_keys_%s', cfg.number)) || ids || '; '
			|| queue._gate_right_sql(gives, cfg, queue._role(role));
	END IF;
	RETURN format('%1$s SELECT (%2$s) ON %3$s %6$s; %1$s SELECT (%4$s) ON %5$s %6$s', verb, queue._columns('await'), tab,
		queue._columns('archive'), arc, whom) || ids;
END
$$;

-- By the role that all rights come from (catalogue.sql); and what the owner has given by a GRANT of his own
-- is taken by himself.
CREATE OR REPLACE FUNCTION queue._change_right(gives bool, q text, kind text, role text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	INSERT INTO queue._right VALUES (gives, q, kind, role);
	IF NOT gives AND queue._is_granted(q, kind, queue._role(role)) THEN
		EXECUTE queue._right_sql(false, queue._find(q), kind, role);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue.grant(q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role text;
	kind text;
BEGIN
	IF queue._is_stream(q) THEN
		PERFORM queue._stream_rights(true, q, rights, roles);
		RETURN;
	END IF;
	PERFORM queue._check_rights(q, rights, roles);
	IF lower(rights::text)::text[] && '{push, take, all}' AND EXISTS (SELECT FROM queue.queues AS c
			WHERE c.name = q AND (c.handler IS NOT NULL OR c.run IS NOT NULL)) THEN
		RAISE WARNING USING ERRCODE = '01000', MESSAGE = format('jobs of queue "%s" run as its owner', q),
			DETAIL = 'Who may push or take writes their payloads.',
			HINT = 'With run = sql, that is to give away all that the owner may do.';
	END IF;
	FOREACH role IN ARRAY roles LOOP
		FOREACH kind IN ARRAY ARRAY['push', 'take', 'await'] LOOP
			-- who has TAKE need not be given AWAIT
			IF lower(rights::text)::text[] && ARRAY[kind, CASE WHEN kind <> 'await' THEN 'all' END] THEN
				PERFORM queue._change_right(true, q, kind, role);
			END IF;
		END LOOP;
	END LOOP;
END
$$;

-- Has the role been given this itself? A name as GRANT takes it.
CREATE OR REPLACE FUNCTION queue._is_granted(q text, kind text, role text) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	acl aclitem[];
BEGIN
	IF kind = 'await' THEN
		SELECT c.attacl INTO acl FROM pg_attribute AS c
			WHERE c.attrelid = to_regclass(queue._archive(q)) AND c.attname = 'result';
	ELSE
		SELECT r.relacl || c.attacl INTO acl FROM pg_class AS r JOIN pg_attribute AS c ON c.attrelid = r.oid
			WHERE r.oid = to_regclass(queue._table(q)) AND c.attname = 'payload';
	END IF;
	RETURN EXISTS (SELECT FROM aclexplode(acl) AS a
		WHERE a.privilege_type = CASE kind WHEN 'push' THEN 'INSERT' WHEN 'take' THEN 'UPDATE' ELSE 'SELECT' END
			AND CASE a.grantee WHEN 0 THEN 'PUBLIC'
				ELSE quote_ident(pg_get_userbyid(a.grantee)) END = role);
END
$$;

-- Has it that now, itself or as a member of others? That is asked of no snapshot.
CREATE OR REPLACE FUNCTION queue._has_right(q text, kind text, role text) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	who CONSTANT text := CASE WHEN lower(role) = 'public' THEN 'public' ELSE role END;
BEGIN
	IF kind = 'await' THEN
		RETURN has_column_privilege(who, queue._archive(q), 'result', 'SELECT');
	END IF;
	RETURN has_column_privilege(who, queue._table(q), 'payload', CASE kind WHEN 'push' THEN 'INSERT' ELSE 'UPDATE' END);
END
$$;

-- The rights have columns in common, and to revoke SELECT takes also what there is of it on single
-- columns: what the role keeps it is given again.
CREATE OR REPLACE FUNCTION queue.revoke(q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role text;
	kind text;
	stays text[];
BEGIN
	IF queue._is_stream(q) THEN
		PERFORM queue._stream_rights(false, q, rights, roles);
		RETURN;
	END IF;
	PERFORM queue._check_rights(q, rights, roles);
	FOREACH role IN ARRAY roles LOOP
		stays := ARRAY(SELECT k FROM unnest(ARRAY['push', 'take', 'await']) AS k
			WHERE NOT lower(rights::text)::text[] && ARRAY[k, 'all']
				AND queue._is_granted(q, k, queue._role(role)) AND queue._has_right(q, k, role));
		FOREACH kind IN ARRAY ARRAY['push', 'take', 'await'] LOOP
			IF lower(rights::text)::text[] && ARRAY[kind, 'all'] THEN
				PERFORM queue._change_right(false, q, kind, role);
			END IF;
		END LOOP;
		FOREACH kind IN ARRAY stays LOOP
			PERFORM queue._change_right(true, q, kind, role);
		END LOOP;
	END LOOP;
END
$$;
