/*
 * Queues with a single consumer (consumer.c).
 */
#ifndef QB_QUEUE_CONSUMER_H
#define QB_QUEUE_CONSUMER_H

#include "queue_int.h"

struct waiter;

/* The state of an error that says that a queue is such a one; its message is the queue's number. */
#define CONSUMER_STATE "QBONE"

/* Remembers that. false: memory. */
MUST_CHECK bool consumer_learn(struct qdb *db, const char *queue, const char *number);
/* It is about to ask: if its queue is such a one it asks alone, and says who asks; *ret stays as long as the waiter.
 * false: memory. */
MUST_CHECK bool consumer_asks(struct waiter *w, const char **ret);
/* The queue is another's, "<proxy> <token>": if that one was ours, and has left, nobody else knows. */
void consumer_is(struct waiter *w, const void *holder, int32_t len);
/* Its answer came when nobody waited for it any more. */
void consumer_late(const struct waiter *w);
void consumers_free(struct qdb *db);

#endif
