/*
 * From a parsed QUEUE statement to the call of its SQL function, and to the values of its
 * arguments. Pure: text in, text out. The client's bytes are spliced as they are and never quoted
 * anew; what we quote ourselves are identifiers and tokens.
 */
#ifndef QB_QLANG_REWRITE_H
#define QB_QLANG_REWRITE_H

#include "base/buf.h"
#include "qlang/parse.h"

/*
 * For job argument i (from 0), a literal with the decoded text: the token to put in its place
 * ([0-9a-f-] only, terminated, alive until the next call), or NULL: leave the client's bytes. The same for what the
 * proxy has to say of itself, as QTOKEN_KNOWN.
 */
#define QTOKEN_KNOWN (-1)
typedef const char *qjob_token_fn(void *arg, int i, const char *text, size_t len);

/* A stretch of the client's text in ours; in characters, from 1. */
struct qspan {
	int ours, theirs, len;
};

/*
 * Appends the SQL text of a verb that has one (verb->sql). fn may be NULL. $n keep their numbers.
 * false: err is filled (memory).
 */
MUST_CHECK bool qstmt_sql(
	const struct qstmt *q, qjob_token_fn *fn, void *arg, struct buf *sql, struct pg_error *err);

/* The same, of a statement with expressions: where each of them stands in it. sql is empty before. */
MUST_CHECK bool qstmt_expressions_sql(
	const struct qstmt *q, struct buf *sql, struct qspan *spans, struct pg_error *err);

/* The same for a statement that tells the queues of its jobs, and does nothing. */
MUST_CHECK bool qstmt_names_sql(
	const struct qstmt *q, qjob_token_fn *fn, void *arg, struct buf *sql, struct pg_error *err);

/* A string constant that means the same whatever standard_conforming_strings is. */
void qsql_put_quoted(struct buf *sql, const char *text, size_t len);

#define QBULK_SPANS 2

/*
 * Appends the statement that a bulk push is: an INSERT whose source is the client's query, or a
 * COPY. spans: where the client's text stands in it; len 0: not used. false: memory.
 */
MUST_CHECK bool qbulk_sql(const struct qstmt *q, struct buf *sql, struct qspan spans[QBULK_SPANS]);

/* The parameter types for the server's Parse: oids holds q->n_params entries. */
void qstmt_server_oids(const struct qstmt *q, uint32_t *oids);

/* A parameter as Bind brought it; borrows. */
struct qparam {
	const uint8_t *data;
	int32_t len;    /* -1: NULL */
	int16_t format; /* 0 text, 1 binary */
	uint32_t oid;
};
struct qbind {
	int n;
	const struct qparam *params;
};

enum qeval { QEVAL_OK, QEVAL_NULL, QEVAL_BAD };

/*
 * Appends the text value of an argument. BAD: the parameter is missing or of a binary format that
 * is not text, integer, json, bytea or interval. The caller checks buf_failed(out).
 */
MUST_CHECK enum qeval qvalue_eval(
	const struct qvalue *v, const struct qbind *bind, struct buf *out);

#endif
