-- Deliveries of a stream: TAKE ... FOR, and what ends them. TAKE makes one, of what has become visible between two
-- snapshots, and moves the position behind it; DONE deletes its row and touches nothing else, so an open transaction of a
-- worker holds up no TAKE.
--
-- What TAKE has looked at before its lock it asks for again behind it, in a statement with a snapshot of its own: under READ COMMITTED
-- alone. Its ways are in take_for.sql and take_long.sql.

-- What ends the token of one that is taken. A proxy says of what it is made, so that it finds what it has taken though the
-- answer was lost (_give_back_lost); that is as good as random.
CREATE OR REPLACE FUNCTION queue._delivery_digits() RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN encode(coalesce(substr(sha256(int8send(nullif(current_setting('qbouncer.seed', true), '')::int8)), 1, 8),
		substr(uuid_send(gen_random_uuid()), 9)), 'hex');
END
$$;

-- For the proxy, in a row with the token and without an id that stands before the events: how long the lease lasts since the
-- statement was begun, as a text of milliseconds. NULL: nobody asks for it.
CREATE OR REPLACE FUNCTION queue._lasts(d queue.deliveries) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN CASE WHEN current_setting('qbouncer.seed', true) <> ''
		THEN floor(extract(epoch FROM least(d.lease_until - d.taken_at, interval '1 year')) * 1000)::int8 END;
END
$$;

-- By the name of the stream.
CREATE OR REPLACE FUNCTION queue._take_for(q text, sub text, lim int4, least_events int4, within interval, lease interval, who text,
	lag interval DEFAULT NULL, brief bool DEFAULT false) RETURNS SETOF queue._delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s queue.streams := queue._find_stream(q);
BEGIN
	IF to_regproc('queue._take_for_' || s.number) IS NULL THEN	-- it was made anew since
		s := queue._find_stream(q);
	END IF;
	IF s.payload <> 'jsonb' THEN
		PERFORM queue._check_events(s, 'jsonb');
	END IF;
	RETURN QUERY EXECUTE format('SELECT * FROM queue._take_for_%s($1, $2, $3, $4, $5, $6, $7, $8, $9)', s.number)
		USING q, sub, lim, least_events, within, lease, who, lag, brief;
END
$$;

CREATE OR REPLACE FUNCTION queue.take_for(q text, sub text, lim int4 DEFAULT 100, least_events int4 DEFAULT NULL,
	within interval DEFAULT NULL, lease interval DEFAULT NULL, worker text DEFAULT NULL, lag interval DEFAULT NULL)
	RETURNS SETOF queue.delivered_jsonb
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	before CONSTANT text := current_setting('synchronous_commit');
BEGIN
	RETURN QUERY SELECT t.id, t.token, t.queue, t.attempt, t.payload::jsonb, t.headers, t.key, t."group", t.pushed_at, t.lease_until, t.xid::text::int8
		FROM queue._take_for(q, sub, lim, least_events, within, lease, worker, lag) AS t WHERE t.id IS NOT NULL;
	PERFORM set_config('synchronous_commit', before, true);	-- as in take
END
$$;

-- --- the ends ---

-- The delivery of a token, or an error: also of one that is not the caller's.
CREATE OR REPLACE FUNCTION queue._delivery(token text, OUT number int4, OUT id int8, OUT digits text, OUT s queue.streams)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	u queue.subscriptions;
BEGIN
	IF token !~ '^[0-9]{1,9}-d[0-9]{1,18}-[0-9a-f]{16}$' THEN
		RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('"%s" is not the token of a delivery', left(token, 80)),
			HINT = 'Pass the token that TAKE returned.';
	END IF;
	number := split_part(token, '-', 1)::int4;
	id := substr(split_part(token, '-', 2), 2)::int8;
	digits := split_part(token, '-', 3);
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = split_part($1, '-', 1)::int4;
	IF FOUND THEN
		PERFORM queue._must_read(u);
	END IF;
	SELECT * INTO s FROM queue.streams AS t WHERE t.number = u.stream;
END
$$;

-- Of a delivery that has failed, or was given back, and waits for its next attempt: a token that nobody has, or could have.
CREATE OR REPLACE FUNCTION queue._waiting_token() RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN 'w' || encode(substr(uuid_send(gen_random_uuid()), 9), 'hex');
END
$$;

-- Nothing was changed: is it so, or does an old snapshot say it? The proxy reads the detail when a DONE is repeated of whose end
-- it has not heard: done and gone.
CREATE OR REPLACE FUNCTION queue._delivery_lost(number int4, id int8) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	u queue.subscriptions;
	d queue.deliveries;
	why text;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('delivery %s-d%s is not there in this transaction', number, id),
			DETAIL = 'Its snapshot may be older than the delivery, or its lease is over.',
			HINT = 'TAKE before BEGIN, or use READ COMMITTED; then repeat the transaction.';
	END IF;
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = $1;
	SELECT * INTO d FROM queue.deliveries AS t WHERE t.sub = $1 AND t.id = $2;
	why := CASE WHEN u.number IS NULL THEN 'The subscription is gone, or parallel was changed.'
		WHEN d.lease_until <= clock_timestamp() AND d.token ~ '^[0-9a-f]' THEN format('It was over at %s.', d.lease_until)
		WHEN d.id IS NOT NULL THEN 'It was over, or given back; its events are delivered again.'
		WHEN $2 <= u.sought THEN 'The subscription was moved by SEEK.'
		WHEN $2 <= (SELECT max(p.delivery) FROM queue.positions AS p WHERE p.sub = $1) THEN 'The delivery is done and gone.'
		ELSE 'There has never been such a delivery.' END;
	RAISE EXCEPTION USING ERRCODE = 'QB001', MESSAGE = format('the lease of delivery %s-d%s is lost', $1, $2), DETAIL = why,
		HINT = 'Roll back what was done for it: its events are delivered again, unless they are done.';
END
$$;

CREATE OR REPLACE FUNCTION queue._done_delivery(token text, other text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
	d record;
	there bool := false;
	tell text;	-- by an assignment: PERFORM would be a statement
BEGIN
	IF other IS NULL AND $1 ~ '^[0-9]{1,9}-d[0-9]{1,18}-[0-9a-f]{16}$' THEN
		SELECT t.sub, t.id, t.s2 IS NULL AS retries, s.number, s.name, u.name AS of INTO d FROM queue.deliveries AS t
			JOIN queue.subscriptions AS u ON u.number = t.sub JOIN queue.streams AS s ON s.number = u.stream
			WHERE t.sub = split_part($1, '-', 1)::int4 AND t.id = substr(split_part($1, '-', 2), 2)::int8 AND t.token = split_part($1, '-', 3)
				AND t.lease_until > clock_timestamp() AND pg_has_role(t.owner, 'USAGE') FOR UPDATE OF t;
		there := FOUND;
	END IF;
	IF NOT there THEN	-- what is wrong?
		d := queue._delivery($1);
		IF other IS NOT NULL THEN
			PERFORM queue._not_of_streams(other, 'A delivery leaves nothing behind: DONE token.');
		END IF;
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	INSERT INTO queue._ended VALUES (d.sub, d.id);
	IF d.retries THEN
		INSERT INTO queue._gone VALUES ('retries', d.sub, d.id);
	END IF;
	tell := queue._tell(-d.sub, 'of no queue: ended for ' || d.of || ' of ' || d.name);	-- to who waits for its end
	RETURN d.name;
END
$$;

-- All of it again, after a while: twice as long each time, up to a minute, unless "retry" says otherwise. Or these events
-- alone; and those of a delivery of retries, each of which has its own time.
CREATE OR REPLACE FUNCTION queue._fail_delivery(token text, error text, retry_in interval, final bool, notify bool, events text[])
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	d CONSTANT record := queue._delivery(token);
	u queue.subscriptions;
BEGIN
	SELECT * INTO u FROM queue.subscriptions AS t WHERE t.number = d.number;
	IF events IS NOT NULL OR final OR EXISTS (SELECT FROM queue.deliveries AS t WHERE t.sub = d.number AND t.id = d.id AND t.s2 IS NULL) THEN
		PERFORM queue._fail_events(d, u, events, error, retry_in, final, notify);
		RETURN (d.s).name;
	END IF;
	UPDATE queue.deliveries AS t SET token = queue._waiting_token(), proxy = NULL, error = left($2, 10000),
			lease_until = clock_timestamp() + queue._event_again(u, t.attempt, retry_in)
		WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits AND t.lease_until > clock_timestamp();
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell((d.s).number, (d.s).name);
	RETURN (d.s).name;
END
$$;

CREATE OR REPLACE FUNCTION queue._release_delivery(token text, delay interval, notify bool) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	d CONSTANT record := queue._delivery(token);
BEGIN
	UPDATE queue.deliveries AS t SET token = queue._waiting_token(), proxy = NULL, attempt = t.attempt - 1,
			lease_until = clock_timestamp() + coalesce(greatest(delay, interval '0'), interval '0')
		WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits AND t.lease_until > clock_timestamp();
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	PERFORM set_config('qbouncer.tell', CASE WHEN notify THEN '' ELSE 'here' END, true);
	PERFORM queue._tell((d.s).number, (d.s).name);
	RETURN (d.s).name;
END
$$;

-- Whoever had it is gone. The name of the stream; nothing: it is not out any more.
CREATE OR REPLACE FUNCTION queue._give_back_delivery(token text, error text, counted bool) RETURNS SETOF text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	reader CONSTANT int4 := split_part($1, '-', 1)::int4;
BEGIN
	UPDATE queue.deliveries AS t SET token = queue._waiting_token(), proxy = NULL,
			attempt = CASE WHEN counted THEN t.attempt ELSE t.attempt - 1 END,
			error = CASE WHEN counted THEN left($2, 10000) ELSE t.error END,
			lease_until = clock_timestamp() + CASE WHEN counted AND t.attempt > 1	-- the first time at once
				THEN make_interval(secs => least(60, power(2, least(t.attempt, 10) - 2))) ELSE interval '0' END
		WHERE t.sub = reader AND t.id = substr(split_part($1, '-', 2), 2)::int8 AND t.token = split_part($1, '-', 3)
			AND t.lease_until > clock_timestamp();
	IF FOUND THEN
		RETURN QUERY SELECT s.name FROM queue.streams AS s JOIN queue.subscriptions AS u ON u.stream = s.number
			WHERE u.number = reader;
	END IF;
END
$$;

-- Makes these deliveries the proxy's, or nobody's (_own).
CREATE OR REPLACE FUNCTION queue._own_deliveries(tokens text[], owner int4) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
	UPDATE queue.deliveries AS t SET proxy = $2 FROM (SELECT d.sub, d.id FROM unnest(tokens) AS w (token), queue.deliveries AS d
			WHERE w.token ~ '^[0-9]{1,9}-d[0-9]{1,18}-' AND d.sub = split_part(w.token, '-', 1)::int4
				AND d.id = substr(split_part(w.token, '-', 2), 2)::int8 AND d.token = split_part(w.token, '-', 3)
			FOR UPDATE OF d SKIP LOCKED) AS own
		WHERE t.sub = own.sub AND t.id = own.id;
END
$$;

-- Gives back those of proxies that are not there, of subscriptions that are the caller's. Nothing of anybody else is
-- executed by that, so it is not asked who has used what (_orphans). One whose token is none, which somebody has written by
-- hand, would be looked at for ever, in the place of others.
CREATE OR REPLACE FUNCTION queue._orphaned_deliveries(there int4[], most int4, OUT names text[], OUT again bool)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = on	-- a row for each delivery that is out, and who calls has it off: that is "expensive", and compiled (jit)
AS $$
DECLARE
	held int8;
	orphans text[];
	owners int4[];
BEGIN
	names := '{}';
	again := false;
	SELECT count(*) INTO held FROM (SELECT FROM queue.deliveries AS d WHERE d.proxy <> ALL (there)
		AND d.lease_until > clock_timestamp() AND pg_has_role(d.owner, 'USAGE') AND d.token ~ '^[0-9a-f]{16}$' LIMIT most + 1) AS o;
	IF held > 0 THEN
		SELECT array_agg(o.token), array_agg(o.proxy) INTO orphans, owners
			FROM (SELECT d.sub || '-d' || d.id || '-' || d.token AS token, d.proxy FROM queue.deliveries AS d
			WHERE d.proxy <> ALL (there) AND d.lease_until > clock_timestamp() AND pg_has_role(d.owner, 'USAGE')
				AND d.token ~ '^[0-9a-f]{16}$' LIMIT most FOR UPDATE SKIP LOCKED) AS o;
		again := held > coalesce(cardinality(orphans), 0);
		orphans := queue._of_nobody_there(orphans, owners);
		names := ARRAY(SELECT DISTINCT g FROM unnest(orphans) AS t, LATERAL queue._give_back_delivery(t, 'worker disconnected', true) AS g);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION queue._extend_delivery(token text, lease interval, until timestamptz, progress text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
	d CONSTANT record := queue._delivery(token);
BEGIN
	IF progress IS NOT NULL THEN
		PERFORM queue._not_of_streams('PROGRESS', 'EXTEND token LEASE interval.');
	END IF;
	UPDATE queue.deliveries AS t SET lease_until = coalesce(until, clock_timestamp() + coalesce($2,
			(SELECT u.lease FROM queue.subscriptions AS u WHERE u.number = d.number)))
		WHERE t.sub = d.number AND t.id = d.id AND t.token = d.digits AND t.lease_until > clock_timestamp();
	IF NOT FOUND THEN
		PERFORM queue._delivery_lost(d.number, d.id);
	END IF;
	RETURN (d.s).name;
END
$$;
