/*
 * How far a queue had been read (head.h).
 */
#ifndef QB_QUEUE_MARK_H
#define QB_QUEUE_MARK_H

#include "base/util.h"

#define HEAD_UNMARKED (-1)

/* The highest position, and the time until which nothing was due. 0: the ground. */
struct head_mark {
	int64_t place, since;
};
extern const struct head_mark head_unmarked; /* not known */
void head_mark_min(struct head_mark *mark, struct head_mark to);

#endif
