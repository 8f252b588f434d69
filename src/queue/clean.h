/*
 * Queues in which maintenance found nothing to do, of one role, or metrics nothing to count: while nobody changes them,
 * and until something of theirs falls due, they are passed over (clean.c).
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
/* The same of one. It is known for an hour at most, and with the same changes not for longer than it was. */
MUST_CHECK bool clean_keep(struct clean *c, int32_t number, int64_t changes, uint64_t ms);
/* int8[] in binary: number and changes of those behind this number that are clean, in order, so many at most. */
#define CLEAN_STEP 2000 /* more than a step passes over in its time */
void clean_put(struct buf *b, struct clean *c, int32_t after, size_t most);
/* The same as a text: {1,2}. */
void clean_put_text(struct buf *b, struct clean *c, int32_t after, size_t most);
void clean_free(struct clean *c);

#endif
