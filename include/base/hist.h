/*
 * A histogram with one bucket per power of two, for times in microseconds and for sizes: adding
 * costs a few instructions, and it never grows.
 */
#ifndef QB_BASE_HIST_H
#define QB_BASE_HIST_H

#include "base/util.h"

#define HIST_BUCKETS 28

struct hist {
	/* [i]: values up to 2^i; the last one holds all that are larger. Not cumulative. */
	uint64_t bucket[HIST_BUCKETS + 1];
	uint64_t sum;
};

static inline void hist_add(struct hist *h, uint64_t value)
{
	int i = value <= 1 ? 0 : 64 - __builtin_clzll(value - 1);

	h->bucket[i < HIST_BUCKETS ? i : HIST_BUCKETS]++;
	h->sum += value;
}

/* to += from */
void hist_merge(struct hist *to, const struct hist *from);

#endif
