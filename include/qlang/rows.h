/*
 * The rows of the language: a list for each kind, a line for each column, COL(name, type). What clients are told of
 * them (src/qlang/verbs.c), what the proxy selects (src/queue/calls.h) and where it finds a column come from here.
 * test/it/queue/test_queue_calls.py compares them with the functions of sql/.
 *
 * SEP stands between two columns, PAYLOAD is the type of payloads.
 *
 * No include guard.
 */
/* clang-format off */

/* TAKE and POP. */
#define ROW_TAKEN(COL, SEP, PAYLOAD) \
	COL(id, INT8) SEP \
	COL(token, TEXT) SEP \
	COL(queue, TEXT) SEP \
	COL(attempt, INT4) SEP \
	COL(payload, PAYLOAD) SEP \
	COL(headers, JSONB) SEP \
	COL(key, TEXT) SEP \
	COL(group, TEXT) SEP \
	COL(priority, INT4) SEP \
	COL(pushed_at, TIMESTAMPTZ) SEP \
	COL(lease_until, TIMESTAMPTZ) SEP \
	COL(run_at, TIMESTAMPTZ) SEP \
	COL(taken_at, TIMESTAMPTZ) SEP \
	COL(first_taken_at, TIMESTAMPTZ) SEP \
	COL(takes, INT4)

/* TAKE ... FOR: an event of a delivery. */
#define ROW_DELIVERED(COL, SEP, PAYLOAD) \
	COL(id, INT8) SEP \
	COL(token, TEXT) SEP \
	COL(queue, TEXT) SEP \
	COL(attempt, INT4) SEP \
	COL(payload, PAYLOAD) SEP \
	COL(headers, JSONB) SEP \
	COL(key, TEXT) SEP \
	COL(group, TEXT) SEP \
	COL(pushed_at, TIMESTAMPTZ) SEP \
	COL(lease_until, TIMESTAMPTZ) SEP \
	COL(xid, INT8)

#define ROW_SUBSCRIPTIONS(COL, SEP) \
	COL(stream, TEXT) SEP \
	COL(subscription, TEXT) SEP \
	COL(owner, TEXT) SEP \
	COL(pending, INT8) SEP \
	COL(lag, INTERVAL) SEP \
	COL(delivery, TEXT) SEP \
	COL(events, INT4) SEP \
	COL(attempt, INT4) SEP \
	COL(worker, TEXT) SEP \
	COL(taken_at, TIMESTAMPTZ) SEP \
	COL(lease_until, TIMESTAMPTZ) SEP \
	COL(error, TEXT) SEP \
	COL(last_taken, TIMESTAMPTZ) SEP \
	COL(position, TEXT) SEP \
	COL(lease, INTERVAL) SEP \
	COL(created_at, TIMESTAMPTZ) SEP \
	COL(oldest, TIMESTAMPTZ) SEP \
	COL(last_id, INT8) SEP \
	COL(bytes, INT8) SEP \
	COL(lost_at, TIMESTAMPTZ) SEP \
	COL(lost_id, INT8) SEP \
	COL(delivered, INT8) SEP \
	COL(rate, FLOAT8) SEP \
	COL(retries, INT8) SEP \
	COL(dead, INT8) SEP \
	COL(parallel, INT4) SEP \
	COL(lane, INT4)

#define ROW_TRACKED(COL, SEP) \
	COL(relation, TEXT) SEP \
	COL(queue, TEXT) SEP \
	COL(kind, TEXT) SEP \
	COL(events, TEXT_ARRAY) SEP \
	COL(key, TEXT_ARRAY) SEP \
	COL(columns, TEXT_ARRAY) SEP \
	COL(ignore, TEXT_ARRAY) SEP \
	COL(headers, TEXT) SEP \
	COL(condition, TEXT) SEP \
	COL(owner, TEXT) SEP \
	COL(enabled, BOOL) SEP \
	COL(function, TEXT)

#define ROW_PEEK(COL, SEP, PAYLOAD) \
	COL(id, INT8) SEP \
	COL(state, TEXT) SEP \
	COL(attempt, INT4) SEP \
	COL(failures, INT4) SEP \
	COL(payload, PAYLOAD) SEP \
	COL(headers, JSONB) SEP \
	COL(priority, INT4) SEP \
	COL(run_at, TIMESTAMPTZ) SEP \
	COL(lease_until, TIMESTAMPTZ) SEP \
	COL(error, TEXT) SEP \
	COL(worker, TEXT) SEP \
	COL(pushed_at, TIMESTAMPTZ) SEP \
	COL(key, TEXT) SEP \
	COL(group, TEXT) SEP \
	COL(ended_at, TIMESTAMPTZ) SEP \
	COL(result, JSONB) SEP \
	COL(job, TEXT) SEP \
	COL(taken_at, TIMESTAMPTZ) SEP \
	COL(first_taken_at, TIMESTAMPTZ) SEP \
	COL(takes, INT4) SEP \
	COL(ran, INTERVAL) SEP \
	COL(batch, TEXT) SEP \
	COL(after, TEXT)

#define ROW_JOB(COL, SEP, PAYLOAD) \
	COL(job, TEXT) SEP \
	COL(id, INT8) SEP \
	COL(queue, TEXT) SEP \
	COL(state, TEXT) SEP \
	COL(cancelled, BOOL) SEP \
	COL(attempt, INT4) SEP \
	COL(max_attempts, INT4) SEP \
	COL(failures, INT4) SEP \
	COL(priority, INT4) SEP \
	COL(payload, PAYLOAD) SEP \
	COL(headers, JSONB) SEP \
	COL(key, TEXT) SEP \
	COL(group, TEXT) SEP \
	COL(pushed_at, TIMESTAMPTZ) SEP \
	COL(run_at, TIMESTAMPTZ) SEP \
	COL(lease_until, TIMESTAMPTZ) SEP \
	COL(expires_at, TIMESTAMPTZ) SEP \
	COL(failed_at, TIMESTAMPTZ) SEP \
	COL(ended_at, TIMESTAMPTZ) SEP \
	COL(worker, TEXT) SEP \
	COL(error, TEXT) SEP \
	COL(result, JSONB) SEP \
	COL(taken_at, TIMESTAMPTZ) SEP \
	COL(first_taken_at, TIMESTAMPTZ) SEP \
	COL(takes, INT4) SEP \
	COL(ran, INTERVAL) SEP \
	COL(progress, JSONB) SEP \
	COL(batch, TEXT) SEP \
	COL(after, TEXT)

#define ROW_LIST(COL, SEP) \
	COL(queue, TEXT) SEP \
	COL(lease, TEXT) SEP \
	COL(max_attempts, INT4) SEP \
	COL(retry, TEXT) SEP \
	COL(on_disconnect, TEXT) SEP \
	COL(durability, TEXT) SEP \
	COL(owner, TEXT) SEP \
	COL(created_at, TIMESTAMPTZ) SEP \
	COL(paused, BOOL) SEP \
	COL(max_length, INT4) SEP \
	COL(unlogged, BOOL) SEP \
	COL(payload, TEXT) SEP \
	COL(retain_done, TEXT) SEP \
	COL(retain_dead, TEXT) SEP \
	COL(number, INT4) SEP \
	COL(max_run, TEXT) SEP \
	COL(history, INT4) SEP \
	COL(push_paused, BOOL) SEP \
	COL(on_change, TEXT) SEP \
	COL(expires, TEXT) SEP \
	COL(max_running, INT4) SEP \
	COL(rate, TEXT) SEP \
	COL(hours, TEXT) SEP \
	COL(max_running_per_group, INT4) SEP \
	COL(rate_per_group, TEXT) SEP \
	COL(pause, TEXT) SEP \
	COL(pause_per_group, TEXT) SEP \
	COL(fair, TEXT) SEP \
	COL(on_expire, TEXT) SEP \
	COL(overflow, TEXT) SEP \
	COL(max_per_transaction, INT4) SEP \
	COL(dead_queue, TEXT) SEP \
	COL(batches, BOOL) SEP \
	COL(single_consumer, BOOL) SEP \
	COL(consumer, TEXT) SEP \
	COL(handler, TEXT) SEP \
	COL(run, TEXT) SEP \
	COL(timeout, TEXT) SEP \
	COL(kind, TEXT) SEP \
	COL(retain, TEXT) SEP \
	COL(retain_max, TEXT) SEP \
	COL(handler_batch, INT4) SEP \
	COL(session, TEXT) SEP \
	COL(session_jobs, INT4) SEP \
	COL(session_time, TEXT)

#define ROW_SCHEDULES(COL, SEP) \
	COL(schedule, TEXT) SEP \
	COL(queue, TEXT) SEP \
	COL(when, TEXT) SEP \
	COL(next_at, TIMESTAMPTZ) SEP \
	COL(last_at, TIMESTAMPTZ) SEP \
	COL(last_job, TEXT) SEP \
	COL(runs, INT8) SEP \
	COL(skipped, INT8) SEP \
	COL(state, TEXT) SEP \
	COL(error, TEXT) SEP \
	COL(missed, TEXT) SEP \
	COL(overlap, TEXT) SEP \
	COL(owner, TEXT) SEP \
	COL(payload, TEXT) SEP \
	COL(created_at, TIMESTAMPTZ) SEP \
	COL(topic, TEXT)

#define ROW_STATS(COL, SEP) \
	COL(queue, TEXT) SEP \
	COL(ready, INT8) SEP \
	COL(later, INT8) SEP \
	COL(leased, INT8) SEP \
	COL(dead, INT8) SEP \
	COL(oldest_ready, TIMESTAMPTZ) SEP \
	COL(next_due, TIMESTAMPTZ) SEP \
	COL(blocked, INT8) SEP \
	COL(done, INT8) SEP \
	COL(number, INT4) SEP \
	COL(new, INT8) SEP \
	COL(retry, INT8) SEP \
	COL(total, INT8) SEP \
	COL(newest, TIMESTAMPTZ) SEP \
	COL(bytes, INT8) SEP \
	COL(kind, TEXT) SEP \
	COL(oldest, TIMESTAMPTZ) SEP \
	COL(partitions, INT4) SEP \
	COL(pushed_rate, FLOAT8)

#define ROW_AWAIT(COL, SEP) \
	COL(job, TEXT) SEP \
	COL(id, INT8) SEP \
	COL(queue, TEXT) SEP \
	COL(state, TEXT) SEP \
	COL(result, JSONB) SEP \
	COL(error, TEXT) SEP \
	COL(attempt, INT4) SEP \
	COL(ended_at, TIMESTAMPTZ) SEP \
	COL(progress, JSONB)

/* AWAIT BATCH */
#define ROW_BATCH(COL, SEP) \
	COL(batch, TEXT) SEP \
	COL(queue, TEXT) SEP \
	COL(ended, BOOL) SEP \
	COL(ready, INT8) SEP \
	COL(later, INT8) SEP \
	COL(leased, INT8) SEP \
	COL(blocked, INT8) SEP \
	COL(dead, INT8) SEP \
	COL(done, INT8) SEP \
	COL(cancelled, INT8) SEP \
	COL(expired, INT8)

/* STATS ... BY */
#define ROW_FIGURES(COL, SEP) \
	COL(since, TIMESTAMPTZ) SEP \
	COL(pushed, INT8) SEP \
	COL(taken, INT8) SEP \
	COL(done, INT8) SEP \
	COL(failed, INT8) SEP \
	COL(dead, INT8) SEP \
	COL(mean_wait, INTERVAL) SEP \
	COL(max_wait, INTERVAL) SEP \
	COL(mean_run, INTERVAL) SEP \
	COL(max_run, INTERVAL)

#define ROW_ERRORS(COL, SEP) \
	COL(error, TEXT) SEP \
	COL(jobs, INT8) SEP \
	COL(last, TIMESTAMPTZ) SEP \
	COL(job, TEXT)

#define ROW_HISTORY(COL, SEP) \
	COL(attempt, INT4) SEP \
	COL(worker, TEXT) SEP \
	COL(taken_at, TIMESTAMPTZ) SEP \
	COL(ended_at, TIMESTAMPTZ) SEP \
	COL(outcome, TEXT) SEP \
	COL(error, TEXT)

#define ROW_WORKERS(COL, SEP) \
	COL(queue, TEXT) SEP \
	COL(job, TEXT) SEP \
	COL(worker, TEXT) SEP \
	COL(attempt, INT4) SEP \
	COL(cancelled, BOOL) SEP \
	COL(taken_at, TIMESTAMPTZ) SEP \
	COL(lease_until, TIMESTAMPTZ) SEP \
	COL(proxy, INT4) SEP \
	COL(role, TEXT) SEP \
	COL(address, TEXT) SEP \
	COL(waits_since, TIMESTAMPTZ)

#define ROW_HEALTH(COL, SEP) \
	COL(about, TEXT) SEP \
	COL(name, TEXT) SEP \
	COL(ok, BOOL) SEP \
	COL(value, TEXT) SEP \
	COL(hint, TEXT)

#define ROW_HELP(COL, SEP) \
	COL(verb, TEXT) SEP \
	COL(usage, TEXT) SEP \
	COL(description, TEXT)

/* DONE ... PARTIAL */
#define ROW_PARTIAL(COL, SEP) \
	COL(job, TEXT) SEP \
	COL(ok, BOOL) SEP \
	COL(sqlstate, TEXT)

#define ROW_ROUTES(COL, SEP) \
	COL(topic, TEXT) SEP \
	COL(pattern, TEXT) SEP \
	COL(queue, TEXT) SEP \
	COL(headers, JSONB) SEP \
	COL(active, BOOL) SEP \
	COL(owner, TEXT)

/* PUBLISH ... RETURNING */
#define ROW_ROUTED(COL, SEP) \
	COL(queue, TEXT) SEP \
	COL(job, TEXT)

/* For COL: as data, and to count. */
#define ROW_FIELD(name, type) {#name, OID_##type},
#define ROW_ONE(name, type)   +1

/* clang-format on */
