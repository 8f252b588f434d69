/*
 * Queues in which maintenance found nothing to do, of one role: while nobody changes them, and until something of
 * theirs falls due, they are passed over (clean.c).
 */
#ifndef QB_QUEUE_CLEAN_H
#define QB_QUEUE_CLEAN_H

#include "queue_int.h"

struct clean {
	struct clean_queue *list; /* in the order of their numbers */
	size_t n, cap;
	size_t visited; /* of the last answer */
};

/* Of the queues that had a turn, as the server writes int8[]: number, changes, for how many milliseconds it is clean;
 * 0: it is not. false: that is no such text, or there is no memory for it. */
MUST_CHECK bool clean_note(struct clean *c, const char *text, size_t len);
/* int8[] in binary: number and changes of those behind this number that are clean, in order, as many as a step needs. */
void clean_put(struct buf *b, struct clean *c, int32_t after);
void clean_free(struct clean *c);

#endif
