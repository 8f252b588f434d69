/*
 * What other proxies are told, and when: what is to be said next, what is being said, and what becomes of it if that was in
 * vain. It is said once more, half as much at once, for it may be too much, or there may be a name among it that the server
 * does not take; and after pauses that grow. Pure.
 */
#ifndef QB_QUEUE_TELLING_H
#define QB_QUEUE_TELLING_H

#include "base/util.h"
#include "outbox.h"

#define TELL_AGAIN  (1 * USEC_SEC) /* it was refused; twice as long each time */
#define TELL_LAST   (30 * USEC_SEC)
#define TELL_MAX    10000          /* queues */
#define TELL_EVENTS (2 * TELL_MAX) /* with what is not of queues, which "any" would not say */

/* Zeros are one that has nothing to say. */
struct telling {
	struct outbox next;
	struct outbox told; /* by the statement under way */
	usec_t at;          /* not before */
	usec_t pause;       /* the next one; 0: what was said last was told */
	unsigned most;      /* names at once: fewer, when they were refused; 0: TELL_MAX */
};

enum telling_failure {
	TELLING_CUT_OFF, /* with its session, which needs a while to come back */
	TELLING_REFUSED,
	TELLING_UNFIT /* for what it says */
};

unsigned telling_most(const struct telling *t);  /* names that may be said at once */
void telling_begins(struct telling *t);          /* the first of them are said from now on */
void telling_ended(struct telling *t);           /* they were told */
/* They may not have been. A name that is unfit by itself is left out: it is news of any queue. */
void telling_failed(struct telling *t, enum telling_failure how, usec_t now);
void telling_clear(struct telling *t);

#endif
