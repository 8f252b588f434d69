/*
 * THE verb table. One row per verb of the QUEUE language; grammar, error hints, QUEUE HELP, the SQL
 * text, result columns, command tags, the fuzzer's dictionary and the tests all come from the rows.
 *
 * A new verb is one row here (and a filler in the engine when it is AUTONOMOUS or LOCAL). A new
 * clause is one ARG in a row, and one name in enum qarg_id when no other verb has it.
 *
 * The usage texts are ASCII because they travel in error hints, whatever the client's encoding.
 */
#ifndef QB_QLANG_VERBS_H
#define QB_QLANG_VERBS_H

#include "wire/build.h"

/* What an argument is: which syntax the parser accepts and which type the rewriter casts to. */
enum qarg_kind {
	QKIND_QUEUE,     /* identifier, literal or parameter; text */
	QKIND_QUEUES,    /* one or more of them */
	QKIND_PAYLOADS,  /* one or more values; text[] of JSON texts */
	QKIND_JOBS,      /* one or more values, or arrays of them: jobs that this connection holds; text[] */
	QKIND_REFS,      /* the same of jobs that it need not hold; text[] */
	QKIND_REF,       /* one of these; text */
	QKIND_INT,       /* int4 */
	QKIND_INTERVAL,  /* interval */
	QKIND_MAY_INTERVAL, /* interval, or nothing: the keyword alone */
	QKIND_TIMESTAMP, /* timestamptz */
	QKIND_JSON,      /* text that holds JSON */
	QKIND_TEXT,      /* text */
	QKIND_STATE,     /* a bare word or a value; text */
	QKIND_WORDS,     /* one or more bare words or values; text[] */
	QKIND_FLAG,      /* the keyword alone; bool */
	QKIND_OPTIONS,   /* (name = value, ...); two text[] */
	QKIND_NAMES,     /* (name, ...); text[] */
	QKIND_VERB,      /* the name of a verb */
	QKIND_RETURNING, /* ID, JOB, or both */
	QKIND_THEN,      /* PUSH, TAKE or MOVE with its arguments, up to the end of the statement */
};

enum qarg_id {
	QARG_QUEUE,
	QARG_PAYLOAD,
	QARG_JOB,
	QARG_REF,
	QARG_BY_KEY,
	QARG_ON,
	QARG_VERB,
	QARG_RIGHT,
	QARG_ROLE,
	QARG_PRIORITY,
	QARG_DELAY,
	QARG_AT,
	QARG_HEADERS,
	QARG_EXPIRES,
	QARG_ATTEMPTS,
	QARG_KEY,
	QARG_DUPLICATE,
	QARG_GROUP,
	QARG_RETURNING,
	QARG_LIMIT,
	QARG_WAIT,
	QARG_LEASE,
	QARG_HOLD,
	QARG_AS,
	QARG_ERROR,
	QARG_RETRY_IN,
	QARG_RESULT,
	QARG_KEEP,
	QARG_PARTIAL,
	QARG_FINAL,
	QARG_STATE,
	QARG_IF_NOT_EXISTS,
	QARG_IF_EXISTS,
	QARG_WITH,
	QARG_SET,
	QARG_RESET,
	QARG_THEN,
	QARG_COUNT
};

enum qarg_need { QNEED_MUST, QNEED_MAY };

struct qverb_arg {
	enum qarg_id id;
	const char *name;    /* placeholder in the SQL text, word in messages */
	const char *keyword; /* upper case, words separated by one blank; NULL: positional */
	enum qarg_kind kind;
	enum qarg_need need;
	int alt; /* not 0: of the arguments with this number only one may be given, and any
		    satisfies MUST */
};

enum qverb_flag {
	QVERB_AUTONOMOUS = 1, /* served by the engine, never in place (TAKE, POP) */
	QVERB_LOCAL = 2,      /* answered without a database (HELP) */
	QVERB_DEFINITION = 4, /* changes the set of queues or their options */
	QVERB_WAKES = 8,      /* may make a job ready, or ready sooner */
	QVERB_PAYLOAD = 16,   /* its rows have payloads: columns are a list for each enum qpayload */
	QVERB_BEHIND = 32,    /* no statement of its own: it stands behind DONE ... THEN */
};

/* What the payloads of a queue are: an option of the queue, and the type of a column. */
enum qpayload { QPAYLOAD_JSONB, QPAYLOAD_TEXT, QPAYLOAD_BYTEA, QPAYLOAD_COUNT };

struct qpayload_type {
	const char *name;   /* as the option has it, and SQL */
	const char *suffix; /* of the SQL functions that give such payloads */
	uint32_t oid;
};
extern const struct qpayload_type qpayloads[QPAYLOAD_COUNT];
bool qpayload_read(const char *name, size_t len, enum qpayload *ret); /* by name; false: there is no such */

enum qverb_tag {
	QTAG_FIXED, /* tag_text is the whole tag */
	QTAG_ROWS,  /* tag_text, blank, number of rows that the SQL text returned */
	QTAG_VALUE, /* tag_text, blank, the number in the first column of its only row */
};

struct qverb {
	int id;           /* enum qverb_id */
	const char *name; /* upper case */
	unsigned flags;   /* enum qverb_flag */
	enum qverb_tag tag;
	const char *tag_text;
	const struct wire_field
		*columns; /* NULL: the client gets no rows (PUSH: see qstmt_columns) */
	int n_columns;
	const struct qverb_arg *args;
	int n_args;
	const char *sql;   /* {name} is the argument; more words in rewrite.c; NULL: AUTONOMOUS, LOCAL or BEHIND */
	const char *usage; /* lines, without a final semicolon or newline */
	const char *help;  /* one line */
};

/*
 * VERB(name, flags, tag kind, tag text, columns, arguments, SQL text, usage, help)
 * ARG(id, name in the SQL text, keyword, kind, need, alternative)
 */
/* clang-format off */
#define QUEUE_VERBS(VERB, ARG) \
	VERB(CREATE, QVERB_DEFINITION, FIXED, "CREATE TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(IF_NOT_EXISTS, "exists", "IF NOT EXISTS", FLAG, MAY, 0) \
		ARG(WITH, "with", "WITH", OPTIONS, MAY, 0), \
		"SELECT queue.create({queue}, {exists}, {with})", \
		"QUEUE CREATE [IF NOT EXISTS] q [WITH (option = value, ...)]", \
		"Create a queue. Options: lease ('5 min'), max_attempts (25), retry ('exponential 10s 1h' |" \
		" 'linear 1min [1h]' | 'fixed 1min' | 'none'), on_disconnect (auto | release | keep)," \
		" retain_done ('0'), retain_dead ('30 days'), durability (sync | async), payload (jsonb |" \
		" text | bytea), max_length (a number), unlogged (true | false).") \
	VERB(DROP, QVERB_DEFINITION, FIXED, "DROP TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(IF_EXISTS, "exists", "IF EXISTS", FLAG, MAY, 0), \
		"SELECT queue.drop({queue}, {exists}, false)", \
		"QUEUE DROP [IF EXISTS] q", \
		"Drop a queue with all its jobs.") \
	VERB(ALTER, QVERB_DEFINITION | QVERB_WAKES, FIXED, "ALTER TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(SET, "set", "SET", OPTIONS, MUST, 1) \
		ARG(RESET, "reset", "RESET", NAMES, MUST, 1), \
		"SELECT queue.alter({queue}, {set}, {reset})", \
		"QUEUE ALTER q {SET (option = value, ...) | RESET (option, ...)}", \
		"Change the options of a queue; QUEUE HELP CREATE names them.") \
	VERB(PAUSE, QVERB_DEFINITION, FIXED, "ALTER TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0), \
		"SELECT queue.pause({queue})", \
		"QUEUE PAUSE q", \
		"Give no more jobs of a queue to anybody.") \
	VERB(RESUME, QVERB_DEFINITION | QVERB_WAKES, FIXED, "ALTER TABLE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0), \
		"SELECT queue.resume({queue}, false)", \
		"QUEUE RESUME q", \
		"End the pause of a queue.") \
	VERB(GRANT, QVERB_DEFINITION, FIXED, "GRANT", NONE, \
		ARG(RIGHT, "rights", NULL, WORDS, MUST, 0) \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 0) \
		ARG(ROLE, "roles", "TO", WORDS, MUST, 0), \
		"SELECT queue.grant({queue}, {rights}, {roles})", \
		"QUEUE GRANT {PUSH | TAKE | AWAIT | ALL} [, ...] ON q TO role [, ...]", \
		"Let roles push to a queue, take from it, or await its jobs.") \
	VERB(REVOKE, QVERB_DEFINITION, FIXED, "REVOKE", NONE, \
		ARG(RIGHT, "rights", NULL, WORDS, MUST, 0) \
		ARG(QUEUE, "queue", "ON", QUEUE, MUST, 0) \
		ARG(ROLE, "roles", "FROM", WORDS, MUST, 0), \
		"SELECT queue.revoke({queue}, {rights}, {roles})", \
		"QUEUE REVOKE {PUSH | TAKE | AWAIT | ALL} [, ...] ON q FROM role [, ...]", \
		"Take these rights away.") \
	VERB(LIST, 0, ROWS, "SELECT", LIST, , \
		"SELECT * FROM queue.list()", \
		"QUEUE LIST", \
		"Show all queues and their options.") \
	VERB(STATS, 0, ROWS, "SELECT", STATS, \
		ARG(QUEUE, "queue", NULL, QUEUE, MAY, 0), \
		"SELECT * FROM queue.stats({queue})", \
		"QUEUE STATS [q]", \
		"Count the jobs of one queue, or of each queue, by state.") \
	VERB(PUSH, QVERB_WAKES, ROWS, "INSERT 0", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(PAYLOAD, "payload", NULL, PAYLOADS, MUST, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 1) \
		ARG(AT, "at", "AT", TIMESTAMP, MAY, 1) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0) \
		ARG(RETURNING, "returning", "RETURNING", RETURNING, MAY, 0), \
		"SELECT {returned} FROM queue._push{jobs}({queue}, {payload}, {priority}, {delay}, {at}," \
		" {headers}, false, {expires}, {attempts}, {key}, {duplicate}, {group}, {returning}{stated}) AS p", \
		"QUEUE PUSH q payload [, payload ...] [PRIORITY n] [DELAY interval | AT timestamptz]\n" \
		"    [EXPIRES interval] [HEADERS jsonb] [ATTEMPTS n] [GROUP text]\n" \
		"    [KEY text [ON DUPLICATE {IGNORE | REPLACE | RERUN | ERROR}]]\n" \
		"    [RETURNING {ID | JOB} [, ...]]\n" \
		"QUEUE PUSH q [(payload, column ...)] [ON DUPLICATE ...]\n" \
		"    {{SELECT | VALUES | TABLE | WITH} ... [RETURNING ...] | FROM STDIN [options]}", \
		"Add jobs to a queue, in the current transaction. A value may also be an expression in parentheses: AT (now() + interval '1 h').") \
	VERB(TAKE, QVERB_AUTONOMOUS | QVERB_PAYLOAD, ROWS, "SELECT", JOBS, \
		ARG(QUEUE, "queue", NULL, QUEUES, MUST, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(WAIT, "wait", "WAIT", INTERVAL, MAY, 0) \
		ARG(LEASE, "lease", "LEASE", INTERVAL, MAY, 1) \
		ARG(HOLD, "hold", "HOLD", MAY_INTERVAL, MAY, 1) \
		ARG(AS, "as", "AS", TEXT, MAY, 0), \
		NULL, \
		"QUEUE TAKE q [, q2 ...] [LIMIT n] [WAIT interval]\n" \
		"    [LEASE interval | HOLD [interval]] [AS text]", \
		"Lease jobs; finish each with QUEUE DONE, FAIL or RELEASE.") \
	VERB(POP, QVERB_AUTONOMOUS | QVERB_PAYLOAD, ROWS, "SELECT", JOBS, \
		ARG(QUEUE, "queue", NULL, QUEUES, MUST, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(WAIT, "wait", "WAIT", INTERVAL, MAY, 0), \
		NULL, \
		"QUEUE POP q [, q2 ...] [LIMIT n] [WAIT interval]", \
		"Take and finish jobs at once (at most once delivery).") \
	VERB(DONE, 0, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(RESULT, "result", "RESULT", JSON, MAY, 0) \
		ARG(KEEP, "keep", "KEEP", FLAG, MAY, 0) \
		ARG(PARTIAL, "partial", "PARTIAL", FLAG, MAY, 8) \
		ARG(THEN, "then", "THEN", THEN, MAY, 8), \
		"SELECT queue FROM queue._done({job}, false, {result}{kept}) AS queue", \
		"QUEUE DONE {job [, job ...] [ON q] | KEY text ON q} [RESULT jsonb] [KEEP]\n" \
		"    [PARTIAL | THEN PUSH q payload [, payload ...] [options of PUSH]\n" \
		"    | THEN MOVE TO q [options of PUSH] | THEN TAKE [q [, q2 ...]] [options of TAKE]]", \
		"Finish jobs; push the next ones with it, or take the next one after it. A job: its token; or" \
		" of a lease that this connection holds also '<queue number>-<id>', id [ON q], KEY k ON q." \
		" Several: a list, or ANY(array). PARTIAL: those whose lease is held, with a row for each." \
		" KEEP: in the archive, whatever retain_done says.") \
	VERB(MOVE, QVERB_WAKES | QVERB_BEHIND, ROWS, "INSERT 0", NONE, \
		ARG(QUEUE, "queue", "TO", QUEUE, MUST, 0) \
		ARG(PRIORITY, "priority", "PRIORITY", INT, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 1) \
		ARG(AT, "at", "AT", TIMESTAMP, MAY, 1) \
		ARG(HEADERS, "headers", "HEADERS", JSON, MAY, 0) \
		ARG(EXPIRES, "expires", "EXPIRES", INTERVAL, MAY, 0) \
		ARG(ATTEMPTS, "attempts", "ATTEMPTS", INT, MAY, 0) \
		ARG(KEY, "key", "KEY", TEXT, MAY, 0) \
		ARG(DUPLICATE, "duplicate", "ON DUPLICATE", STATE, MAY, 0) \
		ARG(GROUP, "group", "GROUP", TEXT, MAY, 0) \
		ARG(RETURNING, "returning", "RETURNING", RETURNING, MAY, 0), \
		NULL, \
		"QUEUE DONE job [, job ...] [RESULT jsonb] [KEEP] THEN MOVE TO q [PRIORITY n]\n" \
		"    [DELAY interval | AT timestamptz] [EXPIRES interval] [HEADERS jsonb] [ATTEMPTS n]\n" \
		"    [GROUP text] [KEY text [ON DUPLICATE ...]] [RETURNING {ID | JOB} [, ...]]", \
		"Finish jobs and push their payloads and headers to another queue, both or neither.") \
	VERB(FAIL, QVERB_WAKES, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(ERROR, "error", "ERROR", TEXT, MAY, 0) \
		ARG(RETRY_IN, "retry", "RETRY IN", INTERVAL, MAY, 1) \
		ARG(FINAL, "final", "FINAL", FLAG, MAY, 1), \
		"SELECT queue FROM queue._fail({job}, {error}, {retry}, {final}, false) AS queue", \
		"QUEUE FAIL {job [, job ...] [ON q] | KEY text ON q} [ERROR text]\n" \
		"    [RETRY IN interval | FINAL]", \
		"Report a failed attempt; the job is retried, or dead.") \
	VERB(RELEASE, QVERB_WAKES, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(DELAY, "delay", "DELAY", INTERVAL, MAY, 0), \
		"SELECT queue FROM queue._release({job}, {delay}, false) AS queue", \
		"QUEUE RELEASE {job [, job ...] [ON q] | KEY text ON q} [DELAY interval]", \
		"Give jobs back; the attempt is not counted.") \
	VERB(EXTEND, 0, ROWS, "UPDATE", NONE, \
		ARG(JOB, "job", NULL, JOBS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(LEASE, "lease", "LEASE", INTERVAL, MAY, 0), \
		"SELECT queue FROM queue._extend({job}, {lease}) AS queue", \
		"QUEUE EXTEND {job [, job ...] [ON q] | KEY text ON q} [LEASE interval]", \
		"Move the end of a lease.") \
	VERB(CANCEL, 0, ROWS, "UPDATE", NONE, \
		ARG(REF, "job", NULL, REFS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT queue, job FROM queue._cancel({job}, false{named}) AS c", \
		"QUEUE CANCEL {job [, job ...] [ON q] | KEY text ON q}", \
		"Remove jobs that wait; tell the workers of those that run.") \
	VERB(RERUN, QVERB_WAKES, ROWS, "UPDATE", NONE, \
		ARG(REF, "job", NULL, REFS, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT queue FROM queue._rerun({job}, false{named}) AS queue", \
		"QUEUE RERUN {job [, job ...] [ON q] | KEY text ON q}", \
		"Make dead jobs ready again, with all their attempts.") \
	VERB(REDRIVE, QVERB_WAKES, VALUE, "UPDATE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0), \
		"SELECT queue.redrive({queue}, {limit}, false)", \
		"QUEUE REDRIVE q [LIMIT n]", \
		"Make the dead jobs of a queue ready again.") \
	VERB(PEEK, QVERB_PAYLOAD, ROWS, "SELECT", PEEK, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(LIMIT, "limit", "LIMIT", INT, MAY, 0) \
		ARG(STATE, "state", "STATE", STATE, MAY, 0), \
		"SELECT * FROM queue.peek{of}({queue}, {limit}, {state})", \
		"QUEUE PEEK q [LIMIT n] [STATE {ready | later | leased | blocked | dead | done}]", \
		"Look at jobs without taking them. done: what the archive holds.") \
	VERB(JOB, QVERB_PAYLOAD, ROWS, "SELECT", JOB, \
		ARG(REF, "job", NULL, REF, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0), \
		"SELECT * FROM queue.job{of}({job}{named})", \
		"QUEUE JOB {job [ON q] | KEY text ON q}", \
		"Show everything about one job.") \
	VERB(AWAIT, QVERB_AUTONOMOUS, ROWS, "SELECT", AWAIT, \
		ARG(REF, "job", NULL, REF, MUST, 9) \
		ARG(BY_KEY, "by_key", "KEY", TEXT, MUST, 9) \
		ARG(ON, "on", "ON", QUEUE, MAY, 0) \
		ARG(WAIT, "wait", "WAIT", INTERVAL, MAY, 0), \
		NULL, \
		"QUEUE AWAIT {job [ON q] | KEY text ON q} [WAIT interval]", \
		"Wait for the end of a job, and show its result.") \
	VERB(ERRORS, 0, ROWS, "SELECT", ERRORS, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0), \
		"SELECT * FROM queue.errors({queue})", \
		"QUEUE ERRORS q", \
		"Count the jobs that have failed, by the text of their last error.") \
	VERB(PURGE, 0, VALUE, "DELETE", NONE, \
		ARG(QUEUE, "queue", NULL, QUEUE, MUST, 0) \
		ARG(STATE, "state", "STATE", STATE, MAY, 0), \
		"SELECT queue.purge({queue}, {state}, false)", \
		"QUEUE PURGE q [STATE {ready | later | blocked | dead | done}]", \
		"Delete jobs that are not leased.") \
	VERB(HELP, QVERB_LOCAL, ROWS, "SELECT", HELP, \
		ARG(VERB, "verb", NULL, VERB, MAY, 0), \
		NULL, \
		"QUEUE HELP [verb]", \
		"Show the verbs of the QUEUE language.")
/* clang-format on */

/*
 * DONE ... THEN PUSH: {done} is the SQL text of the DONE. The push speaks of it, so that it comes
 * after it.
 */
#define QUEUE_THEN_PUSH_SQL \
	"SELECT {returned} FROM (SELECT pg_catalog.count(*) AS jobs FROM ({done}) AS job) AS done," \
	" LATERAL queue._push{jobs}({queue}, {payload}, {priority}, {delay}, {at}, {headers}, jobs IS NULL," \
	" {expires}, {attempts}, {key}, {duplicate}, {group}, {returning}{stated}) AS p"

/* DONE ... THEN MOVE: one function, which reads what it moves before that is gone. */
#define QUEUE_THEN_MOVE_SQL \
	"SELECT {returned} FROM queue._move({job}, {result}, {keep}, {queue}, {priority}, {delay}, {at}," \
	" {headers}, {expires}, {attempts}, {key}, {duplicate}, {group}, {returning}) AS p"

/* DONE ... PARTIAL */
#define QUEUE_PARTIAL_SQL "SELECT job, ok, sqlstate FROM queue._done_partial({job}, {result}{kept}) AS d"

enum qverb_id {
#define QVERB_ENUM(name, ...) QVERB_##name,
#define QVERB_NO_ARG(...)
	QUEUE_VERBS(QVERB_ENUM, QVERB_NO_ARG)
#undef QVERB_ENUM
#undef QVERB_NO_ARG
		QVERB_COUNT
};

extern const struct qverb qverbs[QVERB_COUNT];

/* By name in any case; NULL: no such verb (yet). */
const struct qverb *qverb_find(const char *name, size_t len);
/* The verb that was probably meant, or NULL. */
const struct qverb *qverb_nearest(const char *name, size_t len);

/* The rows of QUEUE HELP: of one verb, or of all (verb NULL). Returns the number of rows. */
typedef void qverb_help_fn(void *arg, const char *verb, const char *usage, const char *help);
int qverb_help(const char *verb, size_t len, qverb_help_fn *fn, void *arg);

/* The columns of a verb with PAYLOAD, of which there are verb->n_columns. */
const struct wire_field *qverb_columns(const struct qverb *verb, enum qpayload payload);

/* What RETURNING names, in which order. */
enum qreturning { QRETURN_ID, QRETURN_JOB, QRETURN_ID_JOB, QRETURN_JOB_ID, QRETURN_COUNT };
extern const struct wire_field qverb_push_columns[QRETURN_COUNT][2];

/* The columns of DONE ... PARTIAL. */
extern const struct wire_field qverb_partial_columns[3];

#endif
