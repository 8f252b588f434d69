/*
 * What was done (count.c), and how full queues are (gauge.c).
 */
#ifndef QB_QUEUE_COUNT_H
#define QB_QUEUE_COUNT_H

#include "base/hash.h"
#include "base/names.h"
#include "figures.h"
#include "queue_int.h"
#include "stream.h"

/* gauge.c */
MUST_CHECK bool gauge_start(void);
void gauge_stop(void);
void gauge_free(struct qdb *db);

/* What happened to those who waited for a queue. */
struct waitq_counts {
	uint64_t wakes, fetches, handed;
};

/* What is known of a queue since the start; or of a stream, and of a subscription of it. */
struct tally {
	UT_hash_handle hh;
	uint64_t failed;
	uint64_t used;            /* statements about it */
	uint64_t served;          /* jobs that were given to clients */
	struct waitq_counts waitqs;   /* of those that have ended */
	bool dropped;
	struct figures now; /* what was not written yet (figures.c) */
	struct tally *whole; /* of a subscription: that of its stream */
	struct tally *parts; /* of a stream: its subscriptions */
	char name[SUBSCRIPTION_MAX + 1];
};

/* count.c: what was done */
void count_done(int verb, unsigned jobs);
void count_failed(int verb);
/* A FAIL that succeeded: the queue of each of its jobs. */
void count_jobs_failed(struct taker *t, const struct names *names, const struct names *dead, bool in_tx);
/* A statement about the queue has succeeded; the last was to drop it. NULL: it is not counted. */
struct tally *count_used(struct qdb *db, const char *queue, bool dropped);
struct tally *count_served(struct qdb *db, const char *queue, unsigned jobs);
struct tally *count_get(struct qdb *db, const char *queue); /* makes it; NULL: memory, or too many */
/* Of this subscription: beside those of its stream, so what happens there counts in both. */
struct tally *count_part(struct tally *whole, const char *subscription);
/* Where what the taker does there is to be counted: what is in a transaction counts with its commit. Never NULL. */
struct figures *count_in(struct taker *t, struct tally *tally, bool in_tx);
void count_tx_ended(struct taker *t, bool committed);
void count_waitq_ended(struct qdb *db, const char *queue, const struct waitq_counts *n);
/* NULL: nothing happened. subscription: of this one, or NULL. */
const struct tally *count_of(const struct qdb *db, const char *queue, const char *subscription);
void count_free(struct qdb *db);

#endif
