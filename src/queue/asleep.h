/*
 * A proxy that nobody takes from need not be told what is pushed elsewhere: it sleeps in a database, and other proxies
 * see that (asleep.c).
 */
#ifndef QB_QUEUE_ASLEEP_H
#define QB_QUEUE_ASLEEP_H

#include "base/util.h"

struct qdb;

/* Class of the advisory lock of one that sleeps, "qbor"; the object is its number (registry.c). */
#define ASLEEP_CLASS "1902276466"

/* Of a database. */
struct asleep {
	unsigned takers;   /* takes and waits that have not ended */
	usec_t since;      /* the last of them has ended, or the session has come up */
	bool on;           /* others may leave us untold: what is remembered of heads is old */
	bool said;         /* the session may hold the lock */
	bool locked;       /* it does, as the answer says */
	bool wakes;        /* the statement under way gives it up */
	usec_t next_sleep; /* not before */
	usec_t next_wake;
};

/* The others can see that we sleep. */
static inline bool asleep_is_said(const struct asleep *a)
{
	return a->on && a->said && a->locked;
}

/* Around each take and each wait, whoever it is for. The first one wakes the proxy, before it looks. */
void taking_begins(struct qdb *db);
void taking_ended(struct qdb *db);
void asleep_start(void);

#endif
