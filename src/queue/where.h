/*
 * A statement of calls.h with the condition of a TAKE in it (where.c).
 */
#ifndef QB_QUEUE_WHERE_H
#define QB_QUEUE_WHERE_H

#include "pool/task.h"
#include "queue_call.h"
#include "take.h"

struct where_statement {
	char *sql;                 /* owned */
	const uint32_t *oids;      /* of the condition */
	struct bind_param *params; /* owned; the client's, whose bytes are not; behind them what is said */
	int n_params;
	enum task_leaves leaves;
	struct buf said; /* owned */
};

/* said: an array of texts, which is taken. false: memory; it is freed all the same. */
MUST_CHECK bool where_statement(
	const struct take_where *w, enum call_id id, struct buf *said, struct where_statement *ret);
void where_statement_free(struct where_statement *st);

#endif
