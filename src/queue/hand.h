/*
 * Handing over: the takers who wait for what is being pushed. Their jobs are inserted leased to them,
 * by the statement that pushes; they are told when it is committed. Until then they keep their places
 * in their wait queues.
 */
#ifndef QB_QUEUE_HAND_H
#define QB_QUEUE_HAND_H

#include "wait_int.h"

/* Takers for the jobs of this push, longest waiter first; bytes[2], [3] and [4] become arrays with an
 * element for each job that is to be theirs: the number of the proxy, LEASE and AS. NULL: nobody, or no memory. */
struct hand *hand_begin(struct qdb *db, struct pool *pool, const char *queue, int jobs,
	struct merge_statement *st);
bool hand_row(void *hand, const uint8_t **body, size_t *len); /* see merge_shape.row */
/* It does not wait any more. false: a server has the push. */
MUST_CHECK bool hand_leave(struct waiter *w);
void hand_lost(void *hand, const char *queue, const struct merge_lost *lost); /* see merge_shape.lost */
void hand_end(void *hand, const struct pg_error *err);        /* frees it */
usec_t hand_sent_at(const struct hand *h); /* a server has the push since then; 0: none has it */

#endif
