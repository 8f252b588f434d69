/*
 * Names, one behind the other in one piece of memory, each with its terminator.
 */
#ifndef QB_BASE_NAMES_H
#define QB_BASE_NAMES_H

#include "base/buf.h"

/* Zeroed: none. */
struct names {
	struct buf buf;
};

void names_add(struct names *n, const char *name);
void names_add_bytes(struct names *n, const void *name, size_t len); /* without a zero among them */
void names_free(struct names *n);  /* leaves none */
void names_reset(struct names *n); /* the same, and keeps the memory */
/* Gives away what it holds, and holds none. */
struct names names_take(struct names *n);

/* An allocation failed: what it holds counts for nothing. */
static inline bool names_failed(const struct names *n)
{
	return buf_failed(&n->buf);
}
static inline bool names_none(const struct names *n)
{
	return n->buf.len == 0;
}

/* The first one, and the one behind it; NULL: there is no more, or memory failed. They stay where they are until
 * another is added. */
const char *names_first(const struct names *n);
const char *names_next(const struct names *n, const char *at);
#define NAMES_FOREACH(at, n) for (const char *at = names_first(n); at != NULL; at = names_next(n, at))

#endif
