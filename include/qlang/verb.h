/*
 * What a row of the verb table is (qlang/verbs.h has the rows), and how verbs are looked up.
 */
#ifndef QB_QLANG_VERB_H
#define QB_QLANG_VERB_H

#include "qlang/payload.h"
#include "qlang/verbs.h"
#include "wire/build.h"

/* What an argument is: which syntax the parser accepts and which type the rewriter casts to. */
enum qarg_kind {
	QKIND_QUEUE,     /* identifier, literal or parameter; text */
	QKIND_QUEUES,    /* one or more of them */
	QKIND_PAYLOADS,  /* one or more values; text[] of JSON texts */
	QKIND_JOBS,      /* one or more values, or arrays of them: jobs that this connection holds; text[] */
	QKIND_EVENTS,    /* the same of events; text[] */
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
	QKIND_ROUTED,    /* QUEUE, JOB */
	QKIND_CONTAINED, /* @> and a value; text that holds JSON */
	QKIND_TABLE,     /* a name, with its schema or without, or a value; text */
	QKIND_SQL,       /* the client's own SQL in parentheses, which is kept; text */
	QKIND_PUBLISHED, /* a topic, as a STATE, and a payload */
	QKIND_CONDITION, /* the client's own SQL: in parentheses, or all that is left */
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
	QARG_KEEP_FOR,
	QARG_NEWER,
	QARG_DUPLICATE,
	QARG_GROUP,
	QARG_BATCH,
	QARG_AFTER,
	QARG_RETURNING,
	QARG_STATEMENT,
	QARG_PARAMS,
	QARG_ELSEWHERE,
	QARG_ALONE,
	QARG_TIMEOUT,
	QARG_KEEPS,
	QARG_FORMAT,
	QARG_TOPIC,
	QARG_PATTERN,
	QARG_CONTAINS,
	QARG_MANDATORY,
	QARG_ROUTED,
	QARG_LIMIT,
	QARG_WAIT,
	QARG_ANY,
	QARG_ALL,
	QARG_LEASE,
	QARG_HOLD,
	QARG_AS,
	QARG_READER,
	QARG_WHOSE,
	QARG_LEAST,
	QARG_WITHIN,
	QARG_LAG,
	QARG_START,
	QARG_ERROR,
	QARG_RETRY_IN,
	QARG_RESULT,
	QARG_KEEP,
	QARG_PARTIAL,
	QARG_EVENT,
	QARG_FINAL,
	QARG_STATE,
	QARG_IF_NOT_EXISTS,
	QARG_IF_EXISTS,
	QARG_WITH,
	QARG_SET,
	QARG_RESET,
	QARG_NAME,
	QARG_SCHEDULE,
	QARG_SCHEDULED,
	QARG_PUBLISHED,
	QARG_EVERY,
	QARG_FROM_END,
	QARG_CRON,
	QARG_ZONE,
	QARG_MISSED,
	QARG_OVERLAP,
	QARG_STARTING,
	QARG_UNTIL,
	QARG_PROGRESS,
	QARG_OLDER,
	QARG_TO,
	QARG_WHERE,
	QARG_RANK,
	QARG_GROUPED,
	QARG_TAKES,
	QARG_PUSHES,
	QARG_BY,
	QARG_LAST,
	QARG_TABLE,
	QARG_EVENTS,
	QARG_COLUMNS,
	QARG_IGNORE,
	QARG_KNOWN_BY,
	QARG_COMPUTED,
	QARG_WHEN,
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
	QVERB_NUMBERS = 64,   /* a queue gets or loses its number */
	QVERB_MOVES = 128,    /* leases of its jobs end at another time than was known */
	QVERB_ENDS = 256,     /* the attempt at its jobs has ended, and it may be the last */
	QVERB_RETURNS = 512,  /* the attempt has ended, and they are not done */
	QVERB_DELETES = 1024, /* what is ready may be deleted */
	QVERB_BEGINS = 2048,  /* another verb is this word and a second one */
};

enum qverb_tag {
	QTAG_FIXED, /* tag_text is the whole tag */
	QTAG_ROWS,  /* tag_text, blank, number of rows that the SQL text returned */
	QTAG_VALUE, /* tag_text, blank, the number in the first column of its only row */
};

struct qverb {
	int id;           /* enum qverb_id */
	const char *name; /* upper case, of one word or two */
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
/* The verb of two words that begins with this one, or NULL. */
const struct qverb *qverb_second(const struct qverb *first, const char *word, size_t len);
/* The verb that was probably meant, or NULL. */
const struct qverb *qverb_nearest(const char *name, size_t len);
/* There is no such verb: 42601, with a hint. */
void qverb_unknown(const char *name, size_t len, struct pg_error *err);

/* The rows of QUEUE HELP: of one verb, or of all (verb NULL). Returns the number of rows. */
typedef void qverb_help_fn(void *arg, const char *verb, const char *usage, const char *help);
int qverb_help(const char *verb, size_t len, qverb_help_fn *fn, void *arg);

/* The columns of a verb with PAYLOAD, of which there are verb->n_columns. */
const struct wire_field *qverb_columns(const struct qverb *verb, enum qpayload payload);

/* What RETURNING names, in which order. */
enum qreturning { QRETURN_ID, QRETURN_JOB, QRETURN_ID_JOB, QRETURN_JOB_ID, QRETURN_COUNT };
extern const struct wire_field qverb_push_columns[QRETURN_COUNT][2];

/* The columns of PUBLISH ... RETURNING QUEUE, JOB. */
extern const struct wire_field qverb_routed_columns[2];

/* The columns of DONE ... PARTIAL. */
extern const struct wire_field qverb_partial_columns[3];

/* The columns of TAKE ... FOR. */
extern const struct wire_field qverb_delivered_columns[QPAYLOAD_COUNT][11];

/* The columns of STATS ... BY. */
extern const struct wire_field qverb_figures_columns[10];

/* The columns of AWAIT BATCH. */
extern const struct wire_field qverb_batch_columns[11];

#endif
