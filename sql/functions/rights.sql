-- GRANT and REVOKE: who may push to a queue, who may take from it. They are rights on its table.
--
-- PUSH is INSERT, and to see the ids that it makes; TAKE is everything that happens to a job
-- afterwards, and to look at it, also at what is kept of it.

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
		IF lower(word) IN ('push', 'take', 'all') IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = '22023',
				MESSAGE = format('unknown right "%s"', left(word, 80)),
				HINT = 'Rights: PUSH, TAKE, ALL.';
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

CREATE OR REPLACE FUNCTION queue.grant(q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	role text;
BEGIN
	PERFORM queue._check_rights(q, rights, roles);
	FOREACH role IN ARRAY roles LOOP
		IF lower(rights::text)::text[] && '{push,all}' THEN
			EXECUTE format('GRANT INSERT, SELECT (id, state, key, "group", expires_at) ON %s TO %s', queue._table(q),
				queue._role(role));
		END IF;
		IF lower(rights::text)::text[] && '{take,all}' THEN
			EXECUTE format('GRANT SELECT, UPDATE, DELETE ON %s TO %s', queue._table(q),
				queue._role(role));
			EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s', queue._archive(q),
				queue._role(role));
		END IF;
	END LOOP;
END
$$;

-- To revoke SELECT takes also what there is of it on single columns: a role that may still push
-- gets that back.
CREATE OR REPLACE FUNCTION queue.revoke(q text, rights text[], roles text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	tab CONSTANT text := queue._table(q);
	role text;
BEGIN
	PERFORM queue._check_rights(q, rights, roles);
	FOREACH role IN ARRAY roles LOOP
		IF lower(rights::text)::text[] && '{push,all}' THEN
			EXECUTE format('REVOKE INSERT, SELECT (id, state, key, "group", expires_at) ON %s FROM %s', tab, queue._role(role));
		END IF;
		IF lower(rights::text)::text[] && '{take,all}' THEN
			EXECUTE format('REVOKE SELECT, UPDATE, DELETE ON %s FROM %s', tab, queue._role(role));
			EXECUTE format('REVOKE SELECT, INSERT, UPDATE, DELETE ON %s FROM %s', queue._archive(q),
				queue._role(role));
			IF EXISTS (SELECT FROM pg_class AS r, LATERAL aclexplode(r.relacl) AS a
					WHERE r.oid = to_regclass(tab) AND a.privilege_type = 'INSERT'
					AND CASE a.grantee WHEN 0 THEN 'PUBLIC'
						ELSE quote_ident(pg_get_userbyid(a.grantee)) END = queue._role(role)) THEN
				EXECUTE format('GRANT SELECT (id, state, key, "group", expires_at) ON %s TO %s', tab, queue._role(role));
			END IF;
		END IF;
	END LOOP;
END
$$;
