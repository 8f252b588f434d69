/*
 * Statements that cannot be executed yet (deferred.c).
 */
#ifndef QB_QUEUE_DEFERRED_H
#define QB_QUEUE_DEFERRED_H

#include "head.h"
#include "queue_int.h"

/* It waits from now on, unless it does already: for EXEC_WAIT. b: NULL if not known. may_wait: for its WAIT. */
void deferred_begin(struct qclient *qc, const struct qstmt *q, const struct bind_values *b, bool may_wait);
/* It may wait until what was asked for can be had: its WAIT is not over, and a server may be back by then. */
bool deferred_waits_on(struct qclient *qc, const struct qstmt *q, const struct bind_values *b, bool may_wait,
	const struct pg_error *err);
bool deferred_is_over(struct qclient *qc); /* its WAIT: to be answered with nothing */
enum exec_verdict deferred_answer(struct exec *x, const struct qstmt *q);
void deferred_cancel(struct qclient *qc);
void deferred_end(struct qclient *qc); /* it waits no more; harmless when it did not */
/* The end of a Describe: an Execute that comes with it has been waiting since that began. */
void deferred_described(struct qclient *qc, struct qstmt *q);
usec_t deferred_since(const struct qclient *qc, const struct qstmt *q); /* 0: it has not waited */
head_answered_fn deferred_answered;

#endif
