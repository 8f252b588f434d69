/*
 * A binary heap of deadlines; entries are embedded in their objects.
 */
#ifndef QB_QUEUE_HEAP_H
#define QB_QUEUE_HEAP_H

#include "base/util.h"

struct heap_node {
	usec_t when;
	unsigned pos; /* 1-based; 0: not in a heap */
};

struct heap {
	struct heap_node **nodes;
	unsigned count, cap;
};

/* Adds or moves. false without memory (only when added). */
MUST_CHECK bool heap_set(struct heap *h, struct heap_node *n, usec_t when);
void heap_remove(struct heap *h, struct heap_node *n); /* harmless when it is not in */
struct heap_node *heap_first(const struct heap *h);    /* NULL: empty */
usec_t heap_deadline(const struct heap *h);            /* USEC_NEVER: empty */
void heap_free(struct heap *h);

#endif
