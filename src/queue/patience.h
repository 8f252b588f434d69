/*
 * A reader with MIN that waits for more events: when is it worth while to ask? What is pushed through this proxy is counted.
 * Between the look being sent and its answer nobody knows whether it has seen what was counted: that counts as news only if
 * nothing follows. Others' pushes come uncounted, and are not known here. Pure.
 */
#ifndef QB_QUEUE_PATIENCE_H
#define QB_QUEUE_PATIENCE_H

#include "base/util.h"

struct patience {
	int64_t missing;     /* so many more are wanted; 0: not known, so any news is worth a look */
	usec_t within;       /* after which the first that came is delivered anyway */
	bool some;           /* are there: the answer said when these are */
	uint64_t sent, seen; /* so many had been counted when it was asked, and answered */
	usec_t first;        /* when the first was counted that may be new; 0: none was */
	usec_t doubt;        /* look then: with those that it may have seen there are enough; 0 */
};

/* Numbers that an answer has said: pause, missing, ms of WITHIN. */
enum { PATIENCE_PAUSE, PATIENCE_MISSING, PATIENCE_WITHIN, PATIENCE_NUMBERS };

void patience_sent(struct patience *p, uint64_t counted);
void patience_told(struct patience *p, const int64_t numbers[PATIENCE_NUMBERS]);
/* Behind the answer, and when more were counted: when to look; USEC_NEVER: nothing is known that is worth it. */
usec_t patience_answered(struct patience *p, uint64_t counted, usec_t now);
usec_t patience_counted(struct patience *p, uint64_t counted, usec_t now);

#endif
