-- GRANT and REVOKE: who may push to a queue, who may take from it, who may await its jobs. They are
-- rights on its tables.
--
-- PUSH is INSERT, and to see the ids that it makes; TAKE is everything that happens to a job
-- afterwards, and to look at it, also at what is kept of it. AWAIT is to see what became of jobs,
-- results included, but not what they are about.

CREATE OR REPLACE FUNCTION queue._check_rights(q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	word text;
	owner oid;
BEGIN
	PERFORM queue._find(q);
	FOREACH word IN ARRAY coalesce(rights, '{}') LOOP
		IF lower(word) IN ('push', 'take', 'await', 'all') IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = format('unknown right "%s"', left(word, 80)),
				HINT = 'Rights: PUSH, TAKE, AWAIT, ALL.';
		END IF;
	END LOOP;
	IF array_position(roles, NULL) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'the role must not be null';
	END IF;
	SELECT r.relowner INTO owner FROM pg_class AS r
		WHERE r.oid = to_regclass(queue._table(q));
	IF NOT pg_has_role(owner, 'USAGE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501',
			MESSAGE = format('must be owner of queue "%s"', q),
			DETAIL = format('It belongs to role "%s".', pg_get_userbyid(owner));
	END IF;
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

-- The columns that PUSH and AWAIT need of the queue's table, and AWAIT of the archive.
CREATE OR REPLACE FUNCTION queue._columns(kind text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE kind WHEN 'push' THEN 'id, state, key, "group", expires_at'
		WHEN 'await' THEN 'id, state, expires_at, error, attempt, ended_at'
		WHEN 'archive' THEN 'id, state, result, attempt, ended_at' END;
END
$$;

-- verb: GRANT or REVOKE.
CREATE OR REPLACE FUNCTION queue._change_right(verb text, q text, kind text, role text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(q);
	arc CONSTANT text := queue._archive(q);
	whom CONSTANT text := CASE verb WHEN 'GRANT' THEN 'TO ' ELSE 'FROM ' END || role;
BEGIN
	IF kind = 'push' THEN
		EXECUTE format('%s INSERT, SELECT (%s) ON %s %s', verb, queue._columns('push'), tab, whom);
		RETURN;
	ELSIF kind = 'take' THEN
		EXECUTE format('%s SELECT, UPDATE, DELETE ON %s %s', verb, tab, whom);
		EXECUTE format('%s SELECT, INSERT, UPDATE, DELETE ON %s %s', verb, arc, whom);
	ELSE
		EXECUTE format('%s SELECT (%s) ON %s %s', verb, queue._columns('await'), tab, whom);
		EXECUTE format('%s SELECT (%s) ON %s %s', verb, queue._columns('archive'), arc, whom);
	END IF;
	EXECUTE format('%s SELECT ON SEQUENCE queue.%I %s', verb,	-- which ids there have been
		format('n%s_id', (queue._find(q)).number), whom);
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
	PERFORM queue._check_rights(q, rights, roles);
	FOREACH role IN ARRAY roles LOOP
		FOREACH kind IN ARRAY ARRAY['push', 'take', 'await'] LOOP
			-- who has TAKE need not be given AWAIT
			IF lower(rights::text)::text[] && ARRAY[kind, CASE WHEN kind <> 'await' THEN 'all' END] THEN
				PERFORM queue._change_right('GRANT', q, kind, queue._role(role));
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
		SELECT r.relacl INTO acl FROM pg_class AS r WHERE r.oid = to_regclass(queue._table(q));
	END IF;
	RETURN EXISTS (SELECT FROM aclexplode(acl) AS a
		WHERE a.privilege_type = CASE kind WHEN 'push' THEN 'INSERT' WHEN 'take' THEN 'UPDATE' ELSE 'SELECT' END
			AND CASE a.grantee WHEN 0 THEN 'PUBLIC'
				ELSE quote_ident(pg_get_userbyid(a.grantee)) END = role);
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
	PERFORM queue._check_rights(q, rights, roles);
	FOREACH role IN ARRAY roles LOOP
		stays := ARRAY(SELECT k FROM unnest(ARRAY['push', 'take', 'await']) AS k
			WHERE NOT lower(rights::text)::text[] && ARRAY[k, 'all']
				AND queue._is_granted(q, k, queue._role(role)));
		FOREACH kind IN ARRAY ARRAY['push', 'take', 'await'] LOOP
			IF lower(rights::text)::text[] && ARRAY[kind, 'all'] THEN
				PERFORM queue._change_right('REVOKE', q, kind, queue._role(role));
			END IF;
		END LOOP;
		FOREACH kind IN ARRAY stays LOOP
			PERFORM queue._change_right('GRANT', q, kind, queue._role(role));
		END LOOP;
	END LOOP;
END
$$;
