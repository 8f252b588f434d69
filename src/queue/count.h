/*
 * What was done (count.c), and how full queues are (gauge.c).
 */
#ifndef QB_QUEUE_COUNT_H
#define QB_QUEUE_COUNT_H

#include "base/hash.h"
#include "base/names.h"
#include "queue_int.h"

/* gauge.c */
MUST_CHECK bool gauge_start(void);
void gauge_stop(void);
void gauge_free(struct qdb *db);

/* What happened to those who waited for a queue. */
struct waitq_counts {
	uint64_t wakes, fetches, handed;
};

/* What is known of a queue since the start. */
struct tally {
	UT_hash_handle hh;
	uint64_t failed;
	uint64_t served;          /* jobs that were given to clients */
	struct waitq_counts waitqs;   /* of those that have ended */
	bool dropped;
	char queue[QSTMT_QUEUE_MAX + 1];
};

/* count.c: what was done */
void count_done(int verb, unsigned jobs);
void count_failed(int verb);
/* A FAIL that succeeded: the queue of each of its jobs. */
void count_jobs_failed(struct qdb *db, const struct names *names);
/* A statement about the queue has succeeded; the last was to drop it. */
void count_used(struct qdb *db, const char *queue, bool dropped);
void count_served(struct qdb *db, const char *queue, unsigned jobs);
void count_waitq_ended(struct qdb *db, const char *queue, const struct waitq_counts *n);
const struct tally *count_of(const struct qdb *db, const char *queue); /* NULL: nothing happened */
void count_free(struct qdb *db);

#endif
