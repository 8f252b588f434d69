/*
 * The parser of QUEUE statements: hand-written, driven by the verb table. It knows syntax only: no
 * queue, no session, no catalogue. Entry points: qstmt_parse, qstmt_free and the readers below.
 */
#ifndef QB_QLANG_PARSE_H
#define QB_QLANG_PARSE_H

#include "qlang/verb.h"
#include "wire/error.h"

#define QSTMT_TEXT_MAX  ((size_t)16 * 1024 * 1024) /* bytes of one statement; lengths in it have 32 bits */
#define QSTMT_LIST_MAX  10000 /* payloads, jobs, queues, options of one statement */
#define QSTMT_QUEUE_MAX 40    /* bytes of a queue's name */

enum qvalue_kind {
	QV_NULL,    /* NULL, also with casts */
	QV_LITERAL, /* string, number, TRUE, FALSE */
	QV_PARAM,   /* $n */
	QV_NAME,    /* identifier: queues, states, option names, verbs */
	QV_EXPRESSION, /* the client's own SQL, in parentheses; only the server knows its value */
};

struct qvalue {
	enum qvalue_kind kind;
	uint32_t src_len, text_len, option_len;
	const char *src; /* the client's bytes, with parentheses and casts; borrows the statement */
	const char *text; /* LITERAL, NAME: the value without quotes and casts; not terminated */
	const char *option; /* OPTIONS: the option's name, folded; not terminated */
	int param;   /* PARAM: n, from 1 */
	int nth;     /* EXPRESSION: which of those of the statement, from 0 */
	bool number; /* LITERAL: written as a number, not in quotes */
	bool cast;   /* a cast stands somewhere in src */
	bool list;   /* in ANY(...): an array */
	uint32_t cast_oid; /* PARAM: the type of the first cast; 0: none, or not one that we know */
};

struct qarg {
	uint16_t first; /* values[first] .. */
	uint16_t n : 15, given : 1; /* n is 0 for FLAG */
};

/* The columns of a bulk push, by the names of the clauses. */
enum qcolumn {
	QCOLUMN_PAYLOAD,
	QCOLUMN_PRIORITY,
	QCOLUMN_DELAY,
	QCOLUMN_AT,
	QCOLUMN_EXPIRES,
	QCOLUMN_HEADERS,
	QCOLUMN_ATTEMPTS,
	QCOLUMN_KEY,
	QCOLUMN_GROUP,
	QCOLUMN_BATCH,
	QCOLUMN_COUNT
};

/* ON DUPLICATE of a bulk push. */
enum qduplicate { QDUP_IGNORE, QDUP_REPLACE, QDUP_RERUN, QDUP_ERROR, QDUP_COUNT };

enum qbulk_kind { QBULK_NONE, QBULK_QUERY, QBULK_COPY };

/* PUSH q [(column, ...)] [ON DUPLICATE policy] {SELECT ... | WITH ... | FROM STDIN [options]}: the client's own text. */
struct qbulk {
	enum qbulk_kind kind;
	const char *text; /* the query, or what follows STDIN; borrows the statement */
	size_t len;
	size_t with_len; /* QUERY: bytes of it before its main SELECT; 0: it cannot be told apart */
	uint8_t columns[QCOLUMN_COUNT]; /* enum qcolumn */
	int n_columns;
	enum qduplicate duplicate; /* of the column key */
};

bool qbulk_has(const struct qbulk *b, enum qcolumn column);

struct qchunk;

/* Owns everything its pointers show. Immutable after qstmt_parse, but for what types.c finds out. */
struct qstmt {
	const struct qverb *verb;
	const struct qverb *then; /* DONE ... THEN: PUSH, TAKE or MOVE; NULL: none. Their arguments have
				     no id in common with those of DONE */
	struct qarg args[QARG_COUNT];
	struct qvalue *values; /* few, or allocated */
	int n_values, cap_values;
	struct qvalue few[2]; /* as many as nearly all have */
	uint32_t *param_oids;  /* as the client declared them; text where it did not (bulk: 0) */
	bool *param_free;      /* its type was not declared */
	int n_params;          /* highest $n, at least the number of declared types */
	int n_expressions;
	enum qpayload payload; /* of its queue, as far as it is known */
	bool described;        /* the client was told so */
	usec_t described_at, asked_since; /* then, after this had been asked since then; 0: had not (deferred.c) */
	bool differs;          /* queues of different payloads, or another one than was told */
	enum qreturning returning; /* with QARG_RETURNING */
	bool bytes;       /* a payload was bound as bytes, and cannot be read as anything else */
	struct qbulk bulk;     /* instead of payloads */
	struct qchunk *chunks; /* decoded values that could not borrow */
	bool standard_strings;
	size_t text_len;
	char text[]; /* the statement, terminated */
};

/*
 * Parses one statement: comments anywhere, optional ';'. param_oids may be NULL when n_oids is 0;
 * an oid of 0 means undeclared. NULL: err is filled, its position in characters of UTF-8.
 */
MUST_CHECK struct qstmt *qstmt_parse(const char *sql, size_t len, bool standard_strings,
	const uint32_t *param_oids, int n_oids, struct pg_error *err);
void qstmt_free(struct qstmt **p);

static inline bool qstmt_has(const struct qstmt *q, enum qarg_id id)
{
	return q->args[id].given;
}
/* STATS ... BY; LAST belongs to it, and FOR. */
static inline bool qstmt_by_time(const struct qstmt *q)
{
	return qstmt_has(q, QARG_BY) || qstmt_has(q, QARG_LAST) ||
	       (q->verb->id == QVERB_STATS && qstmt_has(q, QARG_WHOSE));
}
static inline int qstmt_count(const struct qstmt *q, enum qarg_id id)
{
	return q->args[id].n;
}
static inline const struct qvalue *qstmt_value(const struct qstmt *q, enum qarg_id id, int i)
{
	ASSERT(i >= 0 && i < q->args[id].n);
	return &q->values[q->args[id].first + i];
}
/* The value of an argument that takes one; NULL: not given. */
static inline const struct qvalue *qstmt_one(const struct qstmt *q, enum qarg_id id)
{
	return q->args[id].n ? &q->values[q->args[id].first] : NULL;
}

/* SQL of the client's own stands in it, which the client's own server alone can describe. */
static inline bool qstmt_own_sql(const struct qstmt *q)
{
	return q->bulk.kind != QBULK_NONE || q->n_expressions > 0;
}

/* ... and it runs there always; but for the condition of a TAKE, which is asked with by who waits. */
static inline bool qstmt_own_server(const struct qstmt *q)
{
	return qstmt_own_sql(q) && ((q->then ? q->then : q->verb)->flags & QVERB_AUTONOMOUS) == 0;
}

static inline bool qstmt_then(const struct qstmt *q, int verb)
{
	return q->then && q->then->id == verb;
}
/* In one statement with the DONE. */
static inline bool qstmt_then_pushes(const struct qstmt *q)
{
	return qstmt_then(q, QVERB_PUSH) || qstmt_then(q, QVERB_MOVE);
}
/* The verb whose answer is that of the statement. */
static inline const struct qverb *qstmt_last(const struct qstmt *q)
{
	return q->then ? q->then : q->verb;
}

/* Where each parameter stands; uses: n_params of them. */
enum { QPARAM_VALUE = 1, QPARAM_IN_SQL = 2 };
void qstmt_param_uses(const struct qstmt *q, uint8_t *uses);

/* The columns that the client sees; NULL and 0: no rows. */
const struct wire_field *qstmt_columns(const struct qstmt *q, int *ret_n);

#endif
