/*
 * Snapshots of the queue for the console: SHOW QUEUES, WAITERS, LEASES. Strings are valid during the
 * call of fn.
 */
#ifndef QB_QUEUE_STAT_H
#define QB_QUEUE_STAT_H

#include "base/util.h"

struct queue_stat_queue {
	const char *database, *queue;
	const char *system; /* state of the LISTEN session: "up", "connecting", "down: why", "off" */
	unsigned waiters;
	unsigned probing;   /* of them, asking the database now */
	int64_t next_due_us; /* from now; -1: nothing known to become due */
	uint64_t wakes, probes, served; /* since the first waiter */
};

struct queue_stat_waiter {
	uint64_t client_id;
	const char *database, *user, *queues; /* names, separated by ", " */
	const char *state; /* "parked" or "asking" */
	int limit;
	usec_t waited_us;
	usec_t left_us;
};

struct queue_stat_lease {
	uint64_t client_id;
	const char *database, *user, *queue;
	int64_t job_id;
	const char *policy; /* "auto", "release", "keep" */
	usec_t held_us;
	bool in_transaction; /* given back if its transaction rolls back */
};

void queue_stat_each_queue(void (*fn)(const struct queue_stat_queue *st, void *arg), void *arg);
void queue_stat_each_waiter(void (*fn)(const struct queue_stat_waiter *st, void *arg), void *arg);
void queue_stat_each_lease(void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg);

#endif
