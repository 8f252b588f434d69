/*
 * What other proxies are to be told of: queues that have something new. While nobody there needs to hear it, it is kept
 * until one says that it does: what was told too early for it comes then. So no clock is needed: what is old costs who
 * hears it one look. Pure.
 */
#ifndef QB_QUEUE_OUTBOX_H
#define QB_QUEUE_OUTBOX_H

#include "base/hash.h"
#include "base/util.h"

#define OUTBOX_NAME_MAX 159 /* bytes: the name of a queue, or what none can have as its name */

struct outbox_entry {
	UT_hash_handle hh;
	char queue[];
};

struct outbox {
	struct outbox_entry *queues;
	unsigned n;
	bool any;    /* and there may be something in any */
	bool urgent; /* those who sleep need it, too */
};

/* Beyond so many, or without memory, it is news of any queue. */
void outbox_add(struct outbox *o, const char *queue, unsigned most);
bool outbox_is_empty(const struct outbox *o);
void outbox_take(struct outbox *o, struct outbox *from, unsigned most); /* all that is in the other one */
void outbox_take_first(struct outbox *o, struct outbox *from, unsigned n); /* so many names, and any */
void outbox_clear(struct outbox *o);

#endif
