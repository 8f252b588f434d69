-- What \d+ and \df+ show: a comment on each table, column and function that is for others than the proxy.
-- A test fails when one has none.

-- Columns of a queue's table, of its archive, and of the view for bulk pushes.
CREATE OR REPLACE FUNCTION queue._comment_queue(name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	rel regclass;
	col record;
BEGIN
	FOREACH rel IN ARRAY ARRAY[queue._table(name), queue._archive(name), format('queue.%I', 'b_' || name)]::regclass[] LOOP
		EXECUTE format('COMMENT ON %s %s IS %L',
			CASE (SELECT relkind FROM pg_class WHERE oid = rel) WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, rel,
			CASE left((SELECT relname FROM pg_class WHERE oid = rel), 2)
				WHEN 'q_' THEN format('Jobs of the queue "%s" that have not ended, and dead ones.', name)
				WHEN 'a_' THEN format('What is kept of jobs of the queue "%s" that have ended (retain_done, results).', name)
				ELSE format('For pushes by INSERT or COPY into the queue "%s", with keys, groups and delays.', name) END);
		FOR col IN
				SELECT a.attname, c.what FROM pg_attribute AS a
				LEFT JOIN (VALUES
					('id', 'Names the job within its queue; ascends with the pushes.'),
					('position', 'Order among ready jobs of one priority: by when they became ready.'),
					('pushed_at', 'Time of the push.'),
					('priority', 'Higher ones are taken first.'),
					('attempt', 'How often the job was taken, without those times that do not count.'),
					('taken_at', 'When it was taken last.'),
					('first_taken_at', 'When it was taken first, if that was before.'),
					('spent', 'How often it was taken besides: given back, or before its attempts began anew.'),
					('failures', 'How many attempts have failed.'),
					('losses', 'How many of them were no FAIL: the first is tried again at once.'),
					('state', 'ready, later, leased, blocked (behind the first of its group), dead; in the archive how it ended.'),
					('lease_until', 'End of the lease; nobody else gets the job before.'),
					('proxy', 'Number of the qbouncer that gives the lease back when its worker is gone; NULL: time alone ends it.'),
					('run_at', 'Not before this time; of a ready job: since when it is, unless since its push.'),
					('expires_at', 'Not taken after this time; the job goes away.'),
					('failed_at', 'Time of the last failure.'),
					('ended_at', 'Time of its end, or of its death.'),
					('max_attempts', 'Attempts of this job (ATTEMPTS); NULL: those of the queue.'),
					('again', 'It is to run once more when it has ended (ON DUPLICATE RERUN).'),
					('token', 'Names the lease; what its worker says is compared with it. With an x before it: cancelled.'),
					('worker', 'Who took it last.'),
					('error', 'Why the last attempt failed.'),
					('key', 'Unique among the unfinished jobs of the queue.'),
					('key_replace', 'KEY with ON DUPLICATE REPLACE.'),
					('key_rerun', 'KEY with ON DUPLICATE RERUN.'),
					('key_error', 'KEY with ON DUPLICATE ERROR.'),
					('group', 'Jobs of a group run one at a time, in the order of their pushes.'),
					('headers', 'What the push said besides the payload.'),
					('payload', 'What the job is about.'),
					('history', 'The attempts that did not end well: QUEUE HISTORY.'),
					('progress', 'What its worker last told of it: EXTEND ... PROGRESS.'),
					('version', 'Of its last push with IF NEWER.'),
					('result', 'RESULT of the DONE.'),
					('batch', 'Of these jobs QUEUE AWAIT BATCH waits together.'),
					('behind', 'The jobs that it still waits for.'),
					('followed', 'The jobs that wait for it, or did.'),
					('delay', 'Not before so long from now.'),
					('with_old', 'Tell of the job that is there and was left as it is, too (RETURNING).'),
					('job', 'Its name, for RETURNING.'),
					('expires', 'Not taken after so long from now.')) AS c (name, what) ON c.name = a.attname
				WHERE a.attrelid = rel AND a.attnum > 0 AND NOT a.attisdropped LOOP
			EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', rel, col.attname, col.what);
		END LOOP;
	END LOOP;
END
$$;

DO $qbouncer_comments$
DECLARE
	it record;
BEGIN
	IF pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'queue'), 'USAGE') THEN	-- or made for us
		COMMENT ON SCHEMA queue IS 'Job queues of qbouncer. Functions whose names begin with _ are its own.';
	END IF;
	COMMENT ON VIEW queue._right IS 'qbouncer''s own: how the owner of a queue gives rights on it.';
	COMMENT ON VIEW queue.proxies IS 'The proxies that are there. A role that may INSERT counts as one of theirs.';
	COMMENT ON TABLE queue.schedules IS 'Jobs that are pushed by the clock; each role sees its own.';
	COMMENT ON TABLE queue.keys IS 'Keys that stay taken when their job has ended: KEY ... FOR.';
	COMMENT ON TABLE queue.figures IS 'What happened to the jobs of each queue, as the proxies counted it: QUEUE STATS ... BY.';
	COMMENT ON TABLE queue.followers IS 'Who waits for a job, beyond those whose names stand in its row: PUSH ... AFTER.';
	COMMENT ON TABLE queue.queues IS 'One row for each queue; its jobs are in queue.q_<name>.';
	COMMENT ON VIEW queue._stream_right IS 'qbouncer''s own: how the owner of a stream gives rights on it.';
	COMMENT ON VIEW queue._ring IS 'qbouncer''s own: how events of a stream are kept, and go.';
	COMMENT ON VIEW queue._gone IS 'qbouncer''s own: how what belongs to a stream goes away, and a schedule.';
	COMMENT ON TABLE queue.streams IS 'One row for each stream; its events are in queue.e<number>_<0 to 3>.';
	COMMENT ON TABLE queue.subscriptions IS 'Who reads streams: QUEUE SUBSCRIBE.';
	COMMENT ON TABLE queue.positions IS 'What a subscription has seen; of its rows the one with the greatest seq counts.';
	COMMENT ON TABLE queue.deliveries IS 'Events that a subscription has out, and that are not done.';
	COMMENT ON TABLE queue.topics IS 'One row for each topic; who may publish has INSERT on queue.t_<number>.';
	COMMENT ON TABLE queue.bindings IS 'Which queues and streams get what is published to a topic: QUEUE BIND.';
	COMMENT ON VIEW queue._topic IS 'qbouncer''s own: how topics are made, bound, granted and dropped.';
	FOR it IN SELECT * FROM (VALUES
			('figures', 'queue', 'Number of the queue.'),
			('figures', 'at', 'When: the minute, or the hour.'),
			('figures', 'hourly', 'Of an hour; minutes become hours after a day.'),
			('figures', 'proxy', 'Who has counted; NULL: several.'),
			('figures', 'pushed', 'Jobs.'),
			('figures', 'taken', 'Jobs, also by POP.'),
			('figures', 'done', 'Jobs, also by POP.'),
			('figures', 'failed', 'Attempts that FAIL has ended.'),
			('figures', 'dead', 'Of these, the last ones.'),
			('figures', 'waited', 'Jobs of which it is known how long they waited.'),
			('figures', 'wait_sum', 'How long together, in microseconds.'),
			('figures', 'wait_max', 'How long at most.'),
			('figures', 'ran', 'Attempts of which it is known how long they took.'),
			('figures', 'run_sum', 'How long together, in microseconds.'),
			('figures', 'run_max', 'How long at most.'),
			('topics', 'number', 'Names its view; never used again.'),
			('topics', 'name', 'The first word of what is published to it.'),
			('topics', 'owner', 'May drop it, and gives rights on it.'),
			('topics', 'created_at', 'When it was created.'),
			('bindings', 'topic', 'Number of the topic.'),
			('bindings', 'queue', 'Number of the queue or stream.'),
			('bindings', 'pattern', 'As in QUEUE BIND.'),
			('bindings', 'regex', 'The pattern, where it has * or #.'),
			('bindings', 'headers', 'What the headers of a publication have to contain; NULL: nothing.'),
			('bindings', 'created_at', 'When it was bound.'),
			('_topic', 'what', 'create, drop, bind, unbind, grant, revoke, owner.'),
			('_topic', 'topic', 'Its number.'),
			('_topic', 'queue', 'Number of the queue or stream.'),
			('_topic', 'pattern', 'Of the binding; of create: the name.'),
			('_topic', 'headers', 'Of the binding.'),
			('_topic', 'kind', 'publish, bind.'),
			('_topic', 'role', 'Who gets or loses it.'),
			('streams', 'number', 'Names the tables of its events; never used again.'),
			('streams', 'name', 'As in QUEUE CREATE.'),
			('streams', 'payload', 'Type of the payloads.'),
			('streams', 'current', 'The table of its ring that is written.'),
			('streams', 'log', 'The first table of its ring: a restored dump has another one.'),
			('streams', 'system', 'The database system whose transaction numbers the events have.'),
			('streams', 'created_at', 'When it was created.'),
			('streams', 'owner', 'Has all rights on it, and gives them.'),
			('streams', 'retain', 'So long events are kept, and until each subscription has them; NULL: for ever.'),
			('streams', 'retain_max', 'Not longer, whoever has not seen them.'),
			('streams', 'retain_bytes', 'retain_max as a size.'),
			('streams', 'gone_id', 'The greatest id that was removed.'),
			('streams', 'gone_at', 'When the last event that was removed was pushed.'),
			('subscriptions', 'number', 'Names the subscription in tokens.'),
			('subscriptions', 'stream', 'Number of the stream.'),
			('subscriptions', 'name', 'As in QUEUE SUBSCRIBE.'),
			('subscriptions', 'owner', 'Its takers are members of this role.'),
			('subscriptions', 'lease', 'Of a TAKE that does not say.'),
			('subscriptions', 'from_id', 'Events before this one are not its own.'),
			('subscriptions', 'from_time', 'Events that were pushed before are not its own.'),
			('subscriptions', 'created_at', 'When it was created.'),
			('subscriptions', 'lost_at', 'Events that it had not seen were removed: QB005 until SEEK.'),
			('subscriptions', 'lost_id', 'Up to this id.'),
			('positions', 'sub', 'Number of the subscription.'),
			('positions', 'seq', 'The greatest one counts.'),
			('positions', 'owner', 'That of the subscription.'),
			('positions', 's1', 'What is visible in this snapshot has been seen.'),
			('positions', 's2', 'The window under way ends here.'),
			('positions', 'floor', 'The least id of the window, as far as it is known.'),
			('positions', 'early', 'The window has events of transactions that were open in s1.'),
			('positions', 'last', 'Up to here the window has been seen.'),
			('positions', 'delivery', 'Number of the last delivery.'),
			('positions', 'at', 'Since when it is here.'),
			('deliveries', 'sub', 'Number of the subscription.'),
			('deliveries', 'id', 'Counts the deliveries of the subscription.'),
			('deliveries', 'owner', 'That of the subscription.'),
			('deliveries', 'token', 'Whoever has it may end the delivery.'),
			('deliveries', 's1', 'Of the position that it began at.'),
			('deliveries', 's2', 'Of its window.'),
			('deliveries', 'floor', 'Of its window.'),
			('deliveries', 'early', 'Of its window.'),
			('deliveries', 'last', 'Its events are behind this id.'),
			('deliveries', 'upto', 'The id of its last event.'),
			('deliveries', 'events', 'How many it has.'),
			('deliveries', 'attempt', 'How often it was delivered.'),
			('deliveries', 'lease_until', 'Until then it is nobody else''s; a failed one comes again then.'),
			('deliveries', 'taken_at', 'When it was delivered last.'),
			('deliveries', 'worker', 'AS of the TAKE.'),
			('deliveries', 'error', 'Of the last FAIL.'),
			('_ring', 'what', 'options, turn.'),
			('_ring', 'number', 'Of the stream.'),
			('_ring', 'retain', 'As of queue.streams.'),
			('_ring', 'retain_max', 'As of queue.streams.'),
			('_ring', 'retain_bytes', 'As of queue.streams.'),
			('_ring', 'did', 'What a turn did: moved, emptied, refused.'),
			('_ring', 'lost', 'Subscriptions that lose events by it.'),
			('_stream_right', 'gives', 'Or takes away.'),
			('_stream_right', 'queue', 'Name of the stream.'),
			('_stream_right', 'kind', 'push, subscribe.'),
			('_stream_right', 'role', 'Or public.'),
			('_gone', 'what', 'stream, subscription, positions, deliveries, schedule.'),
			('_gone', 'number', 'Of the stream or subscription.'),
			('_gone', 'n', 'One position or delivery; NULL: all.'),
			('_gone', 'name', 'Of the schedule.'),
			('proxies', 'number', 'Is in the leases that end with a connection to it.'),
			('proxies', 'role', 'Of its session.'),
			('proxies', 'pid', 'Of its session.'),
			('proxies', 'since', 'Since when it has this session; NULL: for you to see it is not.'),
			('schedules', 'name', 'As in QUEUE SCHEDULE.'),
			('schedules', 'queue', 'Number of the queue that it pushes to.'),
			('schedules', 'owner', 'With a login of this role it is fired.'),
			('schedules', 'every', 'EVERY: the time from one to the next.'),
			('schedules', 'from_end', 'EVERY ... FROM END: from the end of the last job.'),
			('schedules', 'cron', 'CRON, as it was written.'),
			('schedules', 'bits', 'CRON, taken apart: seconds, minutes, hours, days, months, days of the week, and how they are meant.'),
			('schedules', 'zone', 'TIME ZONE of the CRON.'),
			('schedules', 'missed', 'What becomes of times at which nobody fired: one, skip, all.'),
			('schedules', 'overlap', 'skip: not while the last job has not ended.'),
			('schedules', 'starting', 'Not before.'),
			('schedules', 'until', 'Not after.'),
			('schedules', 'payload', 'Of its jobs.'),
			('schedules', 'payload_type', 'What the payload is: jsonb, text, bytea.'),
			('schedules', 'priority', 'Of its jobs.'),
			('schedules', 'delay', 'Of its jobs.'),
			('schedules', 'headers', 'Of its jobs; schedule and scheduled_at are added.'),
			('schedules', 'expires', 'Of its jobs.'),
			('schedules', 'attempts', 'Of its jobs.'),
			('schedules', 'key', 'Of its jobs.'),
			('schedules', 'duplicate', 'ON DUPLICATE of the key.'),
			('schedules', 'group', 'Of its jobs.'),
			('schedules', 'created_at', 'Time of the SCHEDULE.'),
			('schedules', 'paused', 'Pushes nothing.'),
			('schedules', 'home', 'In this database it is fired; not in a copy.'),
			('schedules', 'anchor', 'EVERY counts from here.'),
			('schedules', 'next_at', 'The next time that it is due; NULL: none, or not known before its job ends.'),
			('schedules', 'look_at', 'When a proxy looks at it; NULL: never.'),
			('schedules', 'last_at', 'The last time for which it pushed.'),
			('schedules', 'last_job', 'Id of the job that it pushed then.'),
			('schedules', 'runs', 'How often it has pushed.'),
			('schedules', 'skipped', 'How often it has not, by MISSED or OVERLAP.'),
			('schedules', 'error', 'Why the last push failed; it is tried again.'),
			('keys', 'queue', 'Its number.'),
			('keys', 'key', 'As in the PUSH.'),
			('keys', 'until', 'So long no other push with this key is one.'),
			('keys', 'job', 'Id of the job that has it.'),
			('keys', 'version', 'Of its last push with IF NEWER.'),
			('followers', 'queue', 'Number of the queue of the job.'),
			('followers', 'job', 'Id of the job.'),
			('followers', 'follower', 'Name of the job that waits for it, or did.'),
			('_right', 'gives', 'Or takes away.'),
			('_right', 'queue', 'Its name.'),
			('_right', 'kind', 'push, take, await.'),
			('_right', 'role', 'Or public.')) AS c (rel, name, what) LOOP
		EXECUTE format('COMMENT ON COLUMN queue.%I.%I IS %L', it.rel, it.name, it.what);
	END LOOP;
	FOR it IN SELECT * FROM (VALUES
			('number', 'Names the queue in jobs and tokens; never used again.'),
			('name', 'As in QUEUE CREATE.'),
			('lease', 'Of a TAKE that does not say.'),
			('max_attempts', 'Then a job that fails is dead.'),
			('retry', 'When a failed job is tried again, as it was written.'),
			('retry_kind', 'retry, taken apart: exponential, linear, arithmetic, fixed, list, none.'),
			('retry_base', 'retry, taken apart: the first pause, or the step.'),
			('retry_cap', 'retry, taken apart: the longest pause.'),
			('retry_factor', 'retry, taken apart: by which an exponential pause grows.'),
			('retry_steps', 'retry, taken apart: the list, or what an arithmetic pause grows by.'),
			('on_change', 'What becomes of a job that was changed while it ran and fails: retry, now.'),
			('on_disconnect', 'What becomes of the jobs of a worker that is gone: auto, release, keep.'),
			('retain_done', 'How long jobs that have ended are kept in queue.a_<name>.'),
			('retain_dead', 'How long dead jobs are kept.'),
			('expires', 'EXPIRES of pushes that do not say.'),
			('history', 'How many failed attempts are kept of a job.'),
			('max_run', 'How long an attempt may run, whatever EXTEND and HOLD say.'),
			('durability', 'sync, or async: a push does not wait for the disk.'),
			('on_expire', 'What becomes of those that were not taken in their time: drop, dead.'),
			('max_length', 'Unfinished jobs at most; NULL: no limit.'),
			('overflow', 'What becomes of a push beyond that: error, drop_oldest.'),
			('max_per_transaction', 'Jobs that a transaction may push; NULL: no limit.'),
			('dead_queue', 'The number of the queue to which jobs go that die; NULL: none.'),
			('max_running', 'Valid leases at once, at most; NULL: no limit.'),
			('rate', 'How many may be taken in an interval, and at once; NULL: no limit.'),
			('hours', 'When jobs may be taken: from, to, time zone; NULL: at all times.'),
			('max_running_per_group', 'Valid leases of a group at once, at most; 1: in the order of the pushes; NULL: no limit.'),
			('rate_per_group', 'How many of a group may be taken in an interval, and at once; NULL: no limit.'),
			('pause', 'From the end of a job to the start of the next one; NULL: none.'),
			('pause_per_group', 'From the end of a job to the start of the next one of its group; NULL: none.'),
			('fair', 'group: takes go round the groups; NULL: the oldest first.'),
			('by_group', 'Groups have limits, or turns: more than that their jobs come one at a time.'),
			('single_consumer', 'All jobs go to one connection, until it is gone.'),
			('batches', 'Batches can be awaited: there is an index of them.'),
			('limited', 'Takes go through a gate (functions/flow.sql).'),
			('unlogged', 'A crash of Postgres empties it.'),
			('payload', 'Type of the payloads: jsonb, text, bytea.'),
			('paused', 'Gives no jobs.'),
			('push_paused', 'Takes no pushes.'),
			('owner', 'The role that has all rights on its jobs, and may change and drop it.'),
			('created_at', 'Time of the CREATE.')) AS c (name, what)
			WHERE EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'queue.queues'::regclass AND attname = c.name) LOOP
		EXECUTE format('COMMENT ON COLUMN queue.queues.%I IS %L', it.name, it.what);
	END LOOP;
	FOR it IN SELECT p.oid::regprocedure AS f, c.what FROM pg_proc AS p JOIN (VALUES
			('push', 'Pushes a job; gives its id.'),
			('take', 'Takes up to lim jobs and leases them. Call it outside of the transaction that does the work.'),
			('pop', 'Takes jobs and ends them at once.'),
			('done', 'Ends a job; QB001 if its lease is lost.'),
			('done_partial', 'Ends the jobs whose lease is held; a row for each says which.'),
			('move', 'Ends a job and pushes its payload and headers to another queue; gives its id there.'),
			('fail', 'An attempt has failed: tried again by the policy of the queue, or dead.'),
			('release', 'Gives a job back; the attempt does not count.'),
			('extend', 'The lease ends so long from now, or then; tells how far the work is.'),
			('cancel', 'A job that waits goes away; the worker of one that runs gets QB002.'),
			('cancel_all', 'Cancels all jobs of a queue that are not dead, or these.'),
			('rerun', 'A dead job is ready again.'),
			('redrive', 'Dead jobs of a queue, or those that wait for their time, are ready now, there or in another queue.'),
			('await', 'What became of a job; no row: it has not ended.'),
			('await_batch', 'How many jobs of a batch are in which state; whether none is unfinished.'),
			('create', 'Makes a queue.'),
			('alter', 'Changes options of a queue.'),
			('alter_job', 'Changes a job that waits: when, with which priority, what.'),
			('drop', 'Drops a queue with its jobs.'),
			('pause', 'The queue gives no jobs.'),
			('resume', 'The queue gives jobs again.'),
			('grant', 'Lets roles push, take, await: {push,take,await,all}.'),
			('revoke', 'Takes rights away.'),
			('list', 'The queues and their options.'),
			('stats', 'How many jobs are in which state.'),
			('stats_by', 'What happened to the jobs of a queue in the last minutes, hours or days.'),
			('history', 'The attempts at a job that did not end well.'),
			('workers', 'Who works on which job, since when.'),
			('health', 'What is well and what is not, and what one does then.'),
			('peek', 'Looks at jobs without taking them.'),
			('job', 'Everything about one job.'),
			('errors', 'The last errors of jobs that have failed, most frequent first.'),
			('purge', 'Deletes jobs that nobody works on.'),
			('schedule', 'Pushes a job by the clock; an equal schedule that is there is left as it is.'),
			('unschedule', 'Removes a schedule.'),
			('pause_schedule', 'The schedule pushes nothing.'),
			('resume_schedule', 'The schedule pushes again, from now on.'),
			('trigger_schedule', 'Pushes the job of a schedule once more, now; gives its id.'),
			('schedules', 'The schedules of this role and those that it is a member of.'),
			('maintain', 'Deletes what has been kept for long enough; the proxy does it by itself.'),
			('subscribe', 'Begins to read a stream: from now, beginning, an id or a time.'),
			('unsubscribe', 'Removes a subscription.'),
			('seek', 'A subscription goes on elsewhere.'),
			('subscriptions', 'Streams and who reads them.'),
			('take_for', 'Takes the next events of a subscription, as one delivery.'),
			('create_topic', 'Makes a topic.'),
			('drop_topic', 'Drops a topic with its bindings.'),
			('give_topic', 'The topic belongs to another role.'),
			('grant_topic', 'Lets roles publish to a topic, or bind queues to it: {publish,bind,all}.'),
			('revoke_topic', 'Takes rights on a topic away.'),
			('bind', 'A queue or stream gets what is published to topics of this pattern.'),
			('unbind', 'Removes a binding.'),
			('routes', 'Which queues are bound to which topics; or where this one goes.'),
			('publish', 'Pushes a job to each queue that is bound to the topic.'),
			('version', 'Version of this schema.')) AS c (name, what)
				ON c.name = regexp_replace(p.proname, '_(text|bytea)$', '')
			WHERE p.pronamespace = 'queue'::regnamespace LOOP
		EXECUTE format('COMMENT ON FUNCTION %s IS %L', it.f, it.what);
	END LOOP;
END
$qbouncer_comments$;
