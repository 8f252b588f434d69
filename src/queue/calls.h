/*
 * THE functions of sql/ that the proxy calls by itself: a row for each statement, with the types of its parameters
 * and the columns that come. test/it/queue/test_queue_calls.py prepares each and compares. What a client's own
 * statement becomes is in qlang/verbs.h.
 *
 *   CALL(name, text, parameters, columns)
 *
 * @ in a text is the number of a queue (call_put); %d a number that stands in it. Functions of one queue are called
 * directly so; another text, which says the same by the queue's name, is the way when the number is not known.
 *
 * No include guard. What a row is: queue_call.h.
 */
#include "qlang/rows.h"

/* clang-format off */

/* --- columns --- */

/* Behind those of a client: how its lease ends with a connection, when it is over or something will be due, what the
 * row tells of the head (head.h). */
#define ROW_HIDDEN(COL, SEP) \
	COL(policy, TEXT) SEP \
	COL(due_ms, INT8) SEP \
	COL(place, INT8) SEP \
	COL(edge, INT8) SEP \
	COL(priority, INT4)

#define ROW_TAKE(COL, SEP, PAYLOAD) ROW_TAKEN(COL, SEP, PAYLOAD) SEP ROW_HIDDEN(COL, SEP)

#define ROW_PUBLISHED(COL, SEP) \
	COL(queue, TEXT) SEP \
	COL(number, INT4) SEP \
	COL(places, INT4_ARRAY) SEP \
	COL(ids, INT8_ARRAY)

#define ROW_GAUGES(COL, SEP) \
	COL(queue, TEXT) SEP \
	COL(ready, INT8) SEP \
	COL(later, INT8) SEP \
	COL(leased, INT8) SEP \
	COL(blocked, INT8) SEP \
	COL(dead, INT8) SEP \
	COL(oldest_ms, INT8) SEP \
	COL(subscription, TEXT) SEP \
	COL(events, INT8) SEP \
	COL(bytes, INT8) SEP \
	COL(age_ms, INT8) SEP \
	COL(total, INT8) SEP \
	COL(out, INT8) SEP \
	COL(attempt, INT4) SEP \
	COL(lost, INT4) SEP \
	COL(retries, INT8) SEP \
	COL(given_up, INT8) SEP \
	COL(number, INT4) SEP \
	COL(changes, INT8)

#define CALL_JOB_NAME(name, type) "job.\"" #name "\""
#define CALL_NAME(name, type)     #name

/* --- parts of texts --- */

/* Tells the functions that nothing else is in this transaction, for durability = async. It is a
 * lateral argument of the function so that it comes first. */
#define AUTONOMOUS_SQL "pg_catalog.set_config('qbouncer.autonomous', 'on', true) AS own"

/* A key, a group, or a job that somebody is about to cancel, may have to wait for his transaction:
 * not those who are merged with it. */
#define PATIENCE_SQL "pg_catalog.set_config('lock_timeout', '50ms', true)"

#define TAKE_SQL(suffix)  TAKE_SAID_SQL(suffix, "", "")
#define ALONE_SQL(suffix) \
	TAKE_SAID_SQL("_alone" suffix, "pg_catalog.set_config('qbouncer.consumer', $8, true) AS consumer, ", \
		"AND consumer IS NOT NULL ")
#define TAKE_SAID_SQL(suffix, more, is_said) \
	"SELECT " ROW_TAKE(CALL_JOB_NAME, ", ", ) " FROM " AUTONOMOUS_SQL ", " \
	"pg_catalog.set_config('qbouncer.proxy', $6, true) AS proxy, " \
	"pg_catalog.set_config('qbouncer.tell', 'here', true) AS tell, " \
	"pg_catalog.set_config('qbouncer.seed', $7, true) AS seed, " more \
	"LATERAL queue._take" suffix \
	"($1, $2, $3, $4, $5 AND own IS NOT NULL AND proxy IS NOT NULL AND tell IS NOT NULL " is_said \
	"AND seed IS NOT NULL) AS job"
#define TAKE_PARAMS(PARAM) PARAM(TEXT_ARRAY) PARAM(INT4) PARAM(INTERVAL) PARAM(TEXT) \
	PARAM(BOOL) PARAM(TEXT) PARAM(TEXT)

/* Bytes say that they are: nothing else shows it once they are written as a text. */
/* @: the only parameter of ours, behind the client's own (text[]: functions/where.sql); %s: the condition. Whatever that
 * is, it sees no names of ours but those of its row. IS TRUE: the first that fit are the first jobs, so it is asked of one
 * after the other; a subquery of a bare condition may become a join, in whatever order. */
#define TAKE_WHERE_SQL(kind) \
	"WITH fits AS MATERIALIZED (SELECT peek._queue, peek.id, peek._version FROM (SELECT l.* FROM " \
	"queue._look_steps($@) AS s, LATERAL queue._look_" kind "($@, s.q, s.skip, s.most) AS l) AS peek WHERE %s IS TRUE " \
	"LIMIT (($@)[1])::pg_catalog.int8 OPERATOR(pg_catalog.+) 20) " \
	"SELECT " ROW_TAKE(CALL_JOB_NAME, ", ", ) " FROM " AUTONOMOUS_SQL ", " \
	"pg_catalog.set_config('qbouncer.tell', 'here', true) AS tell, " \
	"LATERAL queue._take_where_" kind "(CASE WHEN own IS NOT NULL AND tell IS NOT NULL THEN $@ END, " \
	"ARRAY(SELECT ARRAY[(f._queue)::pg_catalog.int8, f.id, f._version] FROM fits AS f)) AS job"

#define PUSH_SQL(more) \
	"SELECT p AS id FROM " AUTONOMOUS_SQL \
	", LATERAL queue._push($1, $2, $3, $4, $5, $6, own IS NULL, $7, $8" more ") AS p"
#define PUSH_PARAMS(PARAM) PARAM(TEXT) PARAM(TEXT_ARRAY) PARAM(INT4) PARAM(INTERVAL) \
	PARAM(TIMESTAMPTZ) PARAM(TEXT) PARAM(INTERVAL) PARAM(INT4)

#define KEYED_SQL(patience, more) \
	"SELECT p AS id FROM " AUTONOMOUS_SQL patience \
	", LATERAL queue._push_keys($1, $2, $3, $4, $5, own IS NULL" more ") AS p"
#define KEYED_PARAMS(PARAM) PARAM(TEXT) PARAM(TEXT_ARRAY) PARAM(INT4) PARAM(TEXT) PARAM(BOOL)

#define DONE_SQL(patience, more) \
	"SELECT queue FROM " AUTONOMOUS_SQL patience ", LATERAL queue._done($1, own IS NULL" more ") AS queue"
#define DONE_PAIRS_SQL(patience, more) \
	"SELECT queue FROM " AUTONOMOUS_SQL patience \
	", LATERAL queue._done_pairs(CASE WHEN own IS NOT NULL" more " THEN $1 END) AS queue"
#define PATIENT ", " PATIENCE_SQL " AS patience"

#define OF_NUMBER "c.number OPERATOR(pg_catalog.=) @"
#define IF_ASYNC \
	"(c.durability OPERATOR(pg_catalog.<>) 'async' OR " \
	"pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL)"
#define TELL_HERE_SQL "pg_catalog.set_config('qbouncer.tell', 'here', true)"

/* A push whose first jobs go to those who wait: its own parameters, and behind them those of the handing. */
#define HAND_SQL(from, function, handing, more, seed) \
	"SELECT " ROW_TAKE(CALL_JOB_NAME, ", ", ) ", job.id FROM queue.queues AS c, " from \
	"LATERAL queue." function "(c, $2, coalesce($3, 0), " handing more ", seed => " seed ") AS job " \
	"WHERE " OF_NUMBER " AND " IF_ASYNC
#define HAND_PARAMS(PARAM) PARAM(INT4_ARRAY) PARAM(TEXT_ARRAY) PARAM(TEXT_ARRAY) PARAM(INT8) \
	PARAM(INT8_ARRAY) PARAM(INT8_ARRAY) PARAM(INT8) PARAM(INT8)

/* A queue that keeps what is finished has another function for it, and so has a result. */
#define DONE_KEEP_SQL(results, ...) \
	"queue._done_check(c.name, $1, $2, queue._done_keep_@($1, $2, " results ")" __VA_ARGS__ ")"
/* What becomes ready by it is told here, see queue._tell(). */
#define DONE_FROM \
	" AS queue FROM queue.queues AS c WHERE " OF_NUMBER " AND " TELL_HERE_SQL " IS NOT NULL AND " IF_ASYNC \
	" AND " PATIENCE_SQL " IS NOT NULL"

#define ROW_DELIVERY(COL, SEP, PAYLOAD) \
	ROW_DELIVERED(COL, SEP, PAYLOAD) SEP \
	COL(due_ms, INT8) SEP \
	COL(out, TEXT)
/* ... with WHERE: which lanes have been looked at */
#define ROW_SIFTED(COL, SEP, PAYLOAD) \
	ROW_DELIVERY(COL, SEP, PAYLOAD) SEP \
	COL(passed, INT4_ARRAY)

/* What all events of a delivery have is said once, before them: delivery.c. A join would copy each event. A payload that is jsonb
 * comes as its text, as it is kept. */
#define TAKE_FOR_SQL(suffix) \
	"SELECT " ROW_DELIVERY(CALL_JOB_NAME, ", ", ) " FROM queue._take_for" suffix "($1, $2, $3, $4, $5, $6, " \
	"CASE WHEN pg_catalog.set_config('qbouncer.proxy', $8, true) IS NOT NULL " \
	"AND pg_catalog.set_config('qbouncer.seed', $9, true) IS NOT NULL THEN $7 END, $10, true) AS job"
#define TAKE_FOR_PARAMS(PARAM) PARAM(TEXT) PARAM(TEXT) PARAM(INT4) PARAM(INT4) PARAM(INTERVAL) PARAM(INTERVAL) \
	PARAM(TEXT) PARAM(TEXT) PARAM(TEXT) PARAM(INTERVAL)

/* The same with a condition, as TAKE_WHERE_SQL (text[]: functions/sift.sql). */
#define LOOKED_AT_SQL(kind) \
	"(SELECT l.* FROM queue._look_for($@, '" kind "') AS s, LATERAL queue._look_at_" kind "(s.n, s.most) AS l) AS peek"
#define TAKE_FOR_WHERE_SQL(kind) \
	"WITH fits AS MATERIALIZED (SELECT peek.id FROM " LOOKED_AT_SQL(kind) " WHERE %s IS TRUE LIMIT (($@)[3])::pg_catalog.int8) " \
	"SELECT " ROW_SIFTED(CALL_JOB_NAME, ", ", ) " FROM pg_catalog.set_config('qbouncer.proxy', ($@)[8], true) AS proxy, " \
	"pg_catalog.set_config('qbouncer.seed', ($@)[9], true) AS seed, " \
	"LATERAL queue._take_where_for_" kind "(CASE WHEN proxy IS NOT NULL AND seed IS NOT NULL THEN $@ END, " \
	"ARRAY(SELECT f.id FROM fits AS f)) AS job"
/* At which event does it fail? Each is named before the condition sees it. */
#define FAILS_AT_SQL(kind) \
	"SELECT peek.id, CASE each._step WHEN 2 THEN %s END AS fits FROM " LOOKED_AT_SQL(kind) ", " \
	"LATERAL (VALUES (1, peek.id), (2, peek.id)) AS each (_step, _id)"

#define AWAIT_SQL(args) \
	"SELECT " ROW_AWAIT(CALL_NAME, ", ") " FROM queue._await(" args ") ORDER BY n"

/* --- the statements --- */

#define QUEUE_CALLS(CALL, PARAM, COL) \
	/* what is there */ \
	CALL(VERSION, "SELECT queue.version()", , COL(version, INT4)) \
	/* 0: a stream, or a delivery of one */ \
	CALL(NUMBERS, "SELECT q.name, number, payload, push, take, usual, done, async FROM queue.queues AS q" \
		" LEFT JOIN queue.lone AS l ON $2 AND l.queue OPERATOR(pg_catalog.=) q.number" \
		" WHERE q.name OPERATOR(pg_catalog.=) ANY ($1)" \
		" UNION ALL SELECT name, 0, payload, NULL, NULL, NULL, NULL, NULL FROM queue.streams" \
		" WHERE name OPERATOR(pg_catalog.=) ANY ($1)" \
		" UNION ALL SELECT name, 0, payload, NULL, NULL, NULL, NULL, NULL FROM queue._delivered_payloads($1)" \
		" WHERE $1::pg_catalog.text OPERATOR(pg_catalog.~~) '%-d%'", \
		PARAM(TEXT_ARRAY) PARAM(BOOL), \
		COL(name, TEXT) COL(number, INT4) COL(payload, TEXT) \
		COL(push, TEXT) COL(take, TEXT) COL(usual, TEXT) COL(done, TEXT) COL(async, BOOL)) \
	CALL(NUMBER_OF_JOB, \
		"SELECT c.name, c.number, c.payload FROM queue._locate($1, NULL, 'JOB') AS l" \
		" JOIN queue.queues AS c ON c.number OPERATOR(pg_catalog.=) l.number", \
		PARAM(TEXT), \
		COL(name, TEXT) COL(number, INT4) COL(payload, TEXT)) \
	CALL(LONE, "SELECT push, take, usual, done, async FROM queue.lone WHERE queue OPERATOR(pg_catalog.=) $1", PARAM(INT4), \
		COL(push, TEXT) COL(take, TEXT) COL(usual, TEXT) COL(done, TEXT) COL(async, BOOL)) \
	/* TAKE and POP, by the payload */ \
	CALL(TAKE, TAKE_SQL(""), TAKE_PARAMS(PARAM), ROW_TAKE(COL, , JSONB)) \
	CALL(TAKE_TEXT, TAKE_SQL("_text"), TAKE_PARAMS(PARAM), ROW_TAKE(COL, , TEXT)) \
	CALL(TAKE_BYTEA, TAKE_SQL("_bytea"), TAKE_PARAMS(PARAM), ROW_TAKE(COL, , BYTEA)) \
	CALL(TAKE_LOT, TAKE_SQL("_lot_jsonb"), TAKE_PARAMS(PARAM), ROW_TAKE(COL, , JSONB)) \
	CALL(TAKE_LOT_TEXT, TAKE_SQL("_lot_text"), TAKE_PARAMS(PARAM), ROW_TAKE(COL, , TEXT)) \
	CALL(TAKE_LOT_BYTEA, TAKE_SQL("_lot_bytea"), TAKE_PARAMS(PARAM), ROW_TAKE(COL, , BYTEA)) \
	CALL(TAKE_ALONE, ALONE_SQL("_jsonb"), TAKE_PARAMS(PARAM) PARAM(TEXT), ROW_TAKE(COL, , JSONB)) \
	CALL(TAKE_ALONE_TEXT, ALONE_SQL("_text"), TAKE_PARAMS(PARAM) PARAM(TEXT), ROW_TAKE(COL, , TEXT)) \
	CALL(TAKE_ALONE_BYTEA, ALONE_SQL("_bytea"), TAKE_PARAMS(PARAM) PARAM(TEXT), ROW_TAKE(COL, , BYTEA)) \
	CALL(TAKE_DIRECT, \
		"SELECT " ROW_TAKE(CALL_JOB_NAME, ", ", ) " FROM queue.queues AS c, " \
		"LATERAL queue._take_@(c, $2, least(coalesce($3, c.lease), c.max_run), pg_catalog.left($4, 200), $6, $5, " \
		"$7, $8, $9, pg_catalog.clock_timestamp(), $10) AS job WHERE " OF_NUMBER " AND " \
		/* it speaks of c so that it is done before the function is called */ \
		"(($5 AND c.durability OPERATOR(pg_catalog.<>) 'async') OR " \
		"pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL)", \
		PARAM(TEXT_ARRAY) PARAM(INT4) PARAM(INTERVAL) PARAM(TEXT) PARAM(BOOL) \
		PARAM(INT4) PARAM(INT8_ARRAY) PARAM(INT8_ARRAY) PARAM(INT8) PARAM(INT8), \
		ROW_TAKE(COL, , JSONB)) \
	CALL(TAKE_WHERE, TAKE_WHERE_SQL("jsonb"), PARAM(TEXT_ARRAY), ROW_TAKE(COL, , JSONB)) \
	CALL(TAKE_WHERE_TEXT, TAKE_WHERE_SQL("text"), PARAM(TEXT_ARRAY), ROW_TAKE(COL, , TEXT)) \
	CALL(TAKE_WHERE_BYTEA, TAKE_WHERE_SQL("bytea"), PARAM(TEXT_ARRAY), ROW_TAKE(COL, , BYTEA)) \
	/* PUSH */ \
	CALL(PUSH, PUSH_SQL(""), PUSH_PARAMS(PARAM), COL(id, INT8)) \
	CALL(PUSH_BYTES, PUSH_SQL(", NULL, NULL, NULL, false, 'bytea'"), PUSH_PARAMS(PARAM), COL(id, INT8)) \
	CALL(PUSH_BATCH, PUSH_SQL(", batch => $9"), PUSH_PARAMS(PARAM) PARAM(TEXT), COL(id, INT8)) \
	CALL(PUSH_BATCH_BYTES, PUSH_SQL(", stated => 'bytea', batch => $9"), PUSH_PARAMS(PARAM) PARAM(TEXT), COL(id, INT8)) \
	CALL(PUSH_DIRECT, \
		"SELECT queue._push_@($2, coalesce($3, 0), NULL, NULL) AS id FROM queue.queues AS c WHERE " \
		OF_NUMBER " AND " IF_ASYNC, \
		PUSH_PARAMS(PARAM), COL(id, INT8)) \
	CALL(HAND, HAND_SQL("", "_hand_@", "$9, $10, $11, $12, $13, $14, $15", "", "$16"), \
		PUSH_PARAMS(PARAM) HAND_PARAMS(PARAM), ROW_TAKE(COL, , JSONB) COL(id, INT8)) \
	CALL(HAND_OPTIONS, \
		HAND_SQL("", "_hand_@", "$9, $10, $11, $12, $13, $14, $15", \
			", $4, queue._check_push($6, $7, $8), $7, $8", "$16"), \
		PUSH_PARAMS(PARAM) HAND_PARAMS(PARAM), ROW_TAKE(COL, , JSONB) COL(id, INT8)) \
	CALL(KEYED, KEYED_SQL(PATIENT, " OR patience IS NULL"), KEYED_PARAMS(PARAM), COL(id, INT8)) \
	CALL(KEYED_WAITS, KEYED_SQL("", ""), KEYED_PARAMS(PARAM), COL(id, INT8)) \
	CALL(KEYED_BYTES, KEYED_SQL(PATIENT, " OR patience IS NULL, 'bytea'"), KEYED_PARAMS(PARAM), \
		COL(id, INT8)) \
	CALL(KEYED_BYTES_WAITS, KEYED_SQL("", ", 'bytea'"), KEYED_PARAMS(PARAM), COL(id, INT8)) \
	/* it waits for nobody's transaction, see merge_keyed() */ \
	CALL(HAND_KEYED, \
		HAND_SQL(PATIENCE_SQL " AS patience, " TELL_HERE_SQL " AS tell, ", "_hand_keys_@", \
			"$6, $7, $8, $9, $10, $11, $12", ", $4, $5 AND patience IS NOT NULL", "$13"), \
		KEYED_PARAMS(PARAM) HAND_PARAMS(PARAM), ROW_TAKE(COL, , JSONB) COL(id, INT8)) \
	/* PUBLISH: topic and payload of each. @: a topic, and not a queue */ \
	CALL(PUBLISH, "SELECT " ROW_PUBLISHED(CALL_NAME, ", ") " FROM queue._publish_each($1, $2, $3, $4)", \
		PARAM(TEXT_ARRAY) PARAM(TEXT) PARAM(INT4) PARAM(BOOL), ROW_PUBLISHED(COL, )) \
	CALL(PUBLISH_DIRECT, "SELECT " ROW_PUBLISHED(CALL_NAME, ", ") " FROM queue._publish_@($1, $2, $3, $4, $5)", \
		PARAM(TEXT_ARRAY) PARAM(TEXT_ARRAY) PARAM(TEXT) PARAM(INT4) PARAM(BOOL), ROW_PUBLISHED(COL, )) \
	CALL(PUBLISH_ONE, "SELECT queue._publish_one_@($1, $2, $3, $4, $5) AS made", \
		PARAM(TEXT) PARAM(TEXT) PARAM(TEXT) PARAM(INT4) PARAM(BOOL), COL(made, TEXT_ARRAY)) \
	CALL(ROUTES, "SELECT queue._routes_of($1) AS number", PARAM(TEXT), COL(number, INT4)) \
	/* DONE */ \
	CALL(DONE, DONE_SQL(PATIENT, " OR patience IS NULL"), PARAM(TEXT_ARRAY), COL(queue, TEXT)) \
	CALL(DONE_WAITS, DONE_SQL("", ""), PARAM(TEXT_ARRAY), COL(queue, TEXT)) \
	CALL(DONE_PAIRS, DONE_PAIRS_SQL(PATIENT, " AND patience IS NOT NULL"), PARAM(TEXT_ARRAY), COL(queue, TEXT)) \
	CALL(DONE_PAIRS_WAITS, DONE_PAIRS_SQL("", ""), PARAM(TEXT_ARRAY), COL(queue, TEXT)) \
	CALL(DONE_DIRECT, \
		"SELECT CASE WHEN c.retain_done OPERATOR(pg_catalog.>) '0' THEN " DONE_KEEP_SQL("NULL", "") \
		" WHEN queue._done_@($1, $2, c.name) IS NOT NULL THEN c.name END" DONE_FROM, \
		PARAM(INT8_ARRAY) PARAM(TEXT_ARRAY), COL(queue, TEXT)) \
	CALL(DONE_DIRECT_RESULTS, "SELECT " DONE_KEEP_SQL("$3", ", $3") DONE_FROM, \
		PARAM(INT8_ARRAY) PARAM(TEXT_ARRAY) PARAM(TEXT_ARRAY), COL(queue, TEXT)) \
	/* AWAIT */ \
	CALL(AWAIT, AWAIT_SQL("$1, $2, $3"), PARAM(TEXT_ARRAY) PARAM(TEXT) PARAM(BOOL), ROW_AWAIT(COL, )) \
	CALL(AWAIT_KEY, AWAIT_SQL("$1, $2, $3, $4"), \
		PARAM(TEXT_ARRAY) PARAM(TEXT) PARAM(BOOL) PARAM(BOOL), ROW_AWAIT(COL, )) \
	/* in front of it: of which queue the batch is */ \
	CALL(AWAIT_BATCH, \
		"SELECT number, " ROW_BATCH(CALL_NAME, ", ") " FROM queue._await_batch($1, $2, $3) ORDER BY n", \
		PARAM(TEXT_ARRAY) PARAM(TEXT) PARAM(BOOL), COL(number, INT4) ROW_BATCH(COL, )) \
	/* streams */ \
	CALL(TAKE_FOR, TAKE_FOR_SQL(""), TAKE_FOR_PARAMS(PARAM), ROW_DELIVERY(COL, , TEXT)) \
	CALL(TAKE_FOR_TEXT, TAKE_FOR_SQL("_text"), TAKE_FOR_PARAMS(PARAM), ROW_DELIVERY(COL, , TEXT)) \
	CALL(TAKE_FOR_BYTEA, TAKE_FOR_SQL("_bytea"), TAKE_FOR_PARAMS(PARAM), ROW_DELIVERY(COL, , BYTEA)) \
	/* @: a stream, and not a queue */ \
	CALL(TAKE_FOR_DIRECT, TAKE_FOR_SQL("_@"), TAKE_FOR_PARAMS(PARAM), ROW_DELIVERY(COL, , TEXT)) \
	CALL(TAKE_FOR_WHERE, TAKE_FOR_WHERE_SQL("jsonb"), PARAM(TEXT_ARRAY), ROW_SIFTED(COL, , TEXT)) \
	CALL(TAKE_FOR_WHERE_TEXT, TAKE_FOR_WHERE_SQL("text"), PARAM(TEXT_ARRAY), ROW_SIFTED(COL, , TEXT)) \
	CALL(TAKE_FOR_WHERE_BYTEA, TAKE_FOR_WHERE_SQL("bytea"), PARAM(TEXT_ARRAY), ROW_SIFTED(COL, , BYTEA)) \
	CALL(FAILS_AT, FAILS_AT_SQL("jsonb"), PARAM(TEXT_ARRAY), COL(id, INT8) COL(fits, BOOL)) \
	CALL(FAILS_AT_TEXT, FAILS_AT_SQL("text"), PARAM(TEXT_ARRAY), COL(id, INT8) COL(fits, BOOL)) \
	CALL(FAILS_AT_BYTEA, FAILS_AT_SQL("bytea"), PARAM(TEXT_ARRAY), COL(id, INT8) COL(fits, BOOL)) \
	/* leases */ \
	CALL(RENEW, "SELECT token, state FROM queue._renew($1, $2)", PARAM(TEXT_ARRAY) PARAM(INTERVAL), \
		COL(token, TEXT) COL(state, TEXT)) \
	CALL(OWN, "SELECT queue._own($1, $2)", PARAM(TEXT_ARRAY) PARAM(INT4), COL(_own, VOID)) \
	CALL(GIVE_BACK, "SELECT queue FROM queue._give_back($1, $2, $3) AS queue", \
		PARAM(TEXT_ARRAY) PARAM(TEXT) PARAM(BOOL), COL(queue, TEXT)) \
	CALL(GIVE_BACK_LOST, "SELECT queue FROM queue._give_back_lost($1, $2, $3, $4, $5, $6) AS queue", \
		PARAM(TEXT_ARRAY) PARAM(INTERVAL) PARAM(INT8) PARAM(INT4) PARAM(INTERVAL) PARAM(INT4), \
		COL(queue, TEXT)) \
	/* $3: these queues only, and those of $5 */ \
	CALL(ORPHANS, "SELECT queue, next, met FROM queue._orphans_step($1, $2, $3, $4, 200, $5)", \
		PARAM(INT4_ARRAY) PARAM(TEXT_ARRAY) PARAM(TEXT_ARRAY) PARAM(INT4) PARAM(TEXT_ARRAY), \
		COL(queue, TEXT) COL(next, INT4) COL(met, INT4)) \
	/* what the proxy does by itself: for so many rows, so many milliseconds */ \
	CALL(MAINTAIN, \
		"SELECT m.deleted, m.next, m.denied, (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r " \
		"WHERE r.rolname = current_user) AS super, current_user AS role, m.lost, m.clean " \
		"FROM queue._maintain_used($1, $2, %d, %d, $3) AS m", \
		PARAM(TEXT_ARRAY) PARAM(INT4) PARAM(INT8_ARRAY), \
		COL(deleted, INT8) COL(next, INT4) COL(denied, INT8) COL(super, BOOL) COL(role, NAME) COL(lost, TEXT) COL(clean, INT8_ARRAY)) \
	CALL(UNATTENDED, "SELECT owner, super, queues, example FROM queue._unattended($1, $2)", \
		PARAM(TEXT_ARRAY) PARAM(TEXT_ARRAY), \
		COL(owner, TEXT) COL(super, BOOL) COL(queues, INT8) COL(example, TEXT)) \
	CALL(SCHEDULES_DUE, "SELECT owner, ms FROM queue._schedules_due()", , COL(owner, TEXT) COL(ms, INT8)) \
	/* before any function of the schema is called with a login that no client has used */ \
	CALL(IS_SUPER, "SELECT pg_catalog.current_setting('is_superuser') AS super", , COL(super, TEXT)) \
	CALL(FIRE, "SELECT queue, jobs, failed FROM queue._fire(%d)", , \
		COL(queue, TEXT) COL(jobs, INT8) COL(failed, INT8)) \
	CALL(RUNS, "SELECT queue, owner, super, timeout_ms, run, batch, payload, session, session_jobs, session_ms FROM queue._runs()", , \
		COL(queue, TEXT) COL(owner, TEXT) COL(super, BOOL) COL(timeout_ms, INT8) COL(run, TEXT) \
		COL(batch, INT4) COL(payload, TEXT) COL(session, TEXT) COL(session_jobs, INT4) COL(session_ms, INT8)) \
	CALL(RUN_JOB, "SELECT queue, ended, sql FROM queue._run_job($1, pg_catalog.current_setting('search_path'), $2, $3, $4)", \
		PARAM(TEXT) PARAM(BOOL) PARAM(TEXT) PARAM(BOOL), COL(queue, TEXT) COL(ended, TEXT) COL(sql, TEXT)) \
	CALL(RUN_END, "SELECT queue FROM queue._run_end($1, $2, $3, $4) AS queue", PARAM(TEXT) PARAM(TEXT) PARAM(JSONB) PARAM(TEXT), \
		COL(queue, TEXT)) \
	CALL(RAN_THERE, "SELECT queue FROM queue._ran_there($1, $2, $3) AS queue", PARAM(TEXT) PARAM(JSONB) PARAM(TEXT), \
		COL(queue, TEXT)) \
	CALL(RAN_ALONE, "SELECT queue FROM queue._run_done($1, $2, $3) AS queue", PARAM(TEXT) PARAM(JSONB) PARAM(TEXT), \
		COL(queue, TEXT)) \
	CALL(RUN_BATCH, "SELECT job, ended FROM queue._run_batch($1, pg_catalog.current_setting('search_path'), $2, $3)", \
		PARAM(TEXT_ARRAY) PARAM(BOOL) PARAM(TEXT_ARRAY), COL(job, TEXT) COL(ended, TEXT)) \
	CALL(GAUGES, "SELECT " ROW_GAUGES(CALL_NAME, ", ") " FROM queue._gauges(%d, $1, $3, %d, $2)", \
		PARAM(TEXT_ARRAY) PARAM(INT8_ARRAY) PARAM(INT4), ROW_GAUGES(COL, )) \
	/* by the system session, from the queue, stream or subscription behind this number */ \
	CALL(GAUGES_STEP, "SELECT " ROW_GAUGES(CALL_NAME, ", ") " FROM queue._gauges(%d, NULL, %d, %d, '%s')", , \
		ROW_GAUGES(COL, )) \
	/* when (seconds since 1970), by which proxy; queues, or streams with subscriptions, and of each what enum figure says \
	 * (figures.h) */ \
	CALL(FIGURES, "SELECT nth FROM queue._counted($1, $2, $3, $4, $5, $6) AS nth", \
		PARAM(INT8) PARAM(INT4) PARAM(TEXT_ARRAY) PARAM(TEXT_ARRAY) PARAM(INT8_ARRAY) PARAM(BOOL), COL(nth, INT4)) \
	CALL(HELD, "SELECT about, name, substring(value FROM '^for [^,]*|^[0-9]+ transactions back') AS since, hint " \
		"FROM queue._holders('10 min', '10 min') WHERE NOT ok LIMIT 1", , \
		COL(about, TEXT) COL(name, TEXT) COL(since, TEXT) COL(hint, TEXT))

/* clang-format on */
