/*
 * Who has looked in vain is quiet for a while, twice as long each time; one that has not looked for long begins anew. So a
 * condition that fits nothing costs a small and bounded part of the time.
 */
#ifndef QB_QUEUE_QUIET_H
#define QB_QUEUE_QUIET_H

#include "base/util.h"

#define QUIET_MIN       (1 * USEC_MSEC)
#define QUIET_MAX       (100 * USEC_MSEC)
#define QUIET_FORGOTTEN (1 * USEC_SEC) /* after so long without a look */

struct quiet {
	usec_t length, until; /* 0: it never was */
};

static inline void quiet_longer(struct quiet *q, usec_t now)
{
	if (now >= q->until + QUIET_FORGOTTEN)
		q->length = 0;
	q->length = q->length > 0 ? 2 * q->length : QUIET_MIN;
	if (q->length > QUIET_MAX)
		q->length = QUIET_MAX;
	q->until = now + q->length;
}

#endif
