-- AWAIT: what has become of a job. Waiting is the proxy's matter: it asks again and again, for many
-- jobs at once.

-- May the role ask? All that the answer is made of, and not more, is what the right AWAIT gives.
CREATE OR REPLACE FUNCTION queue._awaitable(name text) RETURNS bool
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN has_column_privilege(to_regclass(queue._table(name)), 'error', 'SELECT')
		AND has_column_privilege(to_regclass(queue._archive(name)), 'result', 'SELECT');
END
$$;

-- Has the queue, which is still there, given out this id? Who may not know gets true.
CREATE OR REPLACE FUNCTION queue._was_given(number int4, id int8) RETURNS bool
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ids CONSTANT regclass := to_regclass(format('queue.%I', format('n%s_id', number)));
BEGIN
	IF has_sequence_privilege(ids, 'SELECT') IS NOT TRUE THEN
		RETURN true;
	END IF;
	RETURN id BETWEEN 1 AND coalesce(pg_sequence_last_value(ids), 0);
END
$$;

-- The job that is meant; one that was never given out is an error.
CREATE OR REPLACE FUNCTION queue._await_find(ref text, q text)
RETURNS TABLE (number int4, name text, id int8)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
	SELECT l.number, l.name, l.id INTO number, name, id FROM queue._locate(ref, q, 'AWAIT') AS l;
	IF NOT queue._still(name) OR NOT queue._was_given(number, id) THEN
		PERFORM queue._no_job(ref);
	END IF;
	RETURN NEXT;
END
$$;

-- A row for each of these jobs; its state is NULL as long as it has not ended. One statement for all
-- of a queue. gone: it has ended, and nothing of it is kept. known: they were found before and are
-- named "<queue number>-<id>"; whatever became of them and of their queues is no error. keys: refs are keys.
-- The archive is sorted by a sum that no index has: an archive that was not analysed yet would be read
-- in the order of its times, from the end on, for each job.
CREATE OR REPLACE FUNCTION queue._await(refs text[], q text, known bool, keys bool DEFAULT false)
RETURNS TABLE (n int8, job text, id int8, queue text, state text, result jsonb, error text,
	attempt int4, ended_at timestamptz, progress jsonb)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
	part record;
BEGIN
	FOR part IN
			SELECT f.number, f.name, array_agg(f.id ORDER BY f.n) AS ids,
				array_agg(f.n ORDER BY f.n) AS places
			FROM (SELECT f.number, f.name, f.id, r.n
					FROM unnest(refs) WITH ORDINALITY AS r (ref, n),
						LATERAL queue._await_find(CASE WHEN keys THEN queue._by_key(r.ref, q, 'AWAIT')
							ELSE r.ref END, q) AS f
					WHERE known IS NOT TRUE
				UNION ALL
				SELECT k.number, c.name, k.id, k.n
					FROM (SELECT split_part(ref, '-', 1)::int4 AS number,
							split_part(ref, '-', 2)::int8 AS id, n
						FROM unnest(refs) WITH ORDINALITY AS r (ref, n) WHERE known) AS k
					LEFT JOIN queue.queues AS c ON c.number = k.number) AS f
			GROUP BY f.number, f.name LOOP
		IF part.name IS NULL THEN
			RETURN QUERY SELECT w.n, part.number || '-' || w.id, w.id, NULL::text, 'gone'::text,
					NULL::jsonb, NULL::text, NULL::int4, NULL::timestamptz, NULL::jsonb
				FROM unnest(part.ids, part.places) AS w (id, n);
			CONTINUE;
		END IF;
		RETURN QUERY EXECUTE format($sql$
			SELECT w.n, $1 || '-' || w.id, w.id, $2,
				CASE WHEN t.id IS NULL THEN coalesce(a.state, 'gone')
					WHEN t.state = 'dead' THEN 'dead'
					WHEN t.state <> 'leased' AND t.expires_at <= $5 THEN CASE WHEN $6 THEN 'dead' ELSE 'expired' END END,
				a.result, CASE WHEN t.state = 'dead' THEN t.error WHEN a.state = 'dead' THEN a.error
					WHEN $6 AND t.state <> 'leased' AND t.expires_at <= $5 THEN 'expired' END,
				coalesce(t.attempt, a.attempt), coalesce(t.ended_at, a.ended_at),
				coalesce(t.progress, a.progress)
			FROM unnest($3, $4) AS w (id, n)
			LEFT JOIN LATERAL (
				SELECT id, state, expires_at, error, attempt, ended_at, progress FROM %1$s AS x
				WHERE x.id = w.id) AS t ON true
			LEFT JOIN LATERAL (
				SELECT state, error, result, attempt, ended_at, progress FROM %2$s AS x
				WHERE x.id = w.id ORDER BY ended_at + interval '0' DESC LIMIT 1) AS a ON t.id IS NULL
		$sql$, queue._table(part.name), queue._archive(part.name))
		USING part.number, part.name, part.ids, part.places, clock_timestamp(),
			(SELECT c.on_expire = 'dead' FROM queue.queues AS c WHERE c.number = part.number);
	END LOOP;
END
$$;
