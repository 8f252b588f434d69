/*
 * Handing over: the takers who wait for what is being pushed. Their jobs are inserted leased to them,
 * by the statement that pushes; they are told when it is committed. Until then they keep their places
 * in their wait queues.
 */
#ifndef QB_QUEUE_HANDOFF_H
#define QB_QUEUE_HANDOFF_H

#include "wait_int.h"

/* Takers for the jobs of this push, longest waiter first; bytes[2], [3] and [4] become arrays with an
 * element for each job that is to be theirs: the number of the proxy, LEASE and AS. NULL: nobody, or no memory. */
struct handoff *handoff_begin(struct qdb *db, struct pool *pool, const char *queue, int jobs,
	struct merge_statement *st);
bool handoff_row(void *handoff, const uint8_t **body, size_t *len); /* see merge_shape.row */
/* It does not wait any more. false: a server has the push. */
MUST_CHECK bool handoff_leave(struct waiter *w);
void handoff_lost(void *handoff, const char *queue, const struct merge_lost *lost); /* see merge_shape.lost */
void handoff_end(void *handoff, const struct pg_error *err);        /* frees it */

#endif
