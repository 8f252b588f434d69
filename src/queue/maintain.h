/*
 * Deleting what was kept for long enough (maintain.c).
 */
#ifndef QB_QUEUE_MAINTAIN_H
#define QB_QUEUE_MAINTAIN_H

#include "qlang/parse.h"

struct qdb;

struct maintenance {
	usec_t at;     /* of the next step */
	usec_t since;  /* queues are used; 0: not yet */
	usec_t ended_at; /* the last round */
	uint64_t round;
	int32_t after; /* the number of the queue that had its turn */
	bool in_round, busy, goes_on;
	unsigned found; /* roles whose turn has not been in this round */
	bool succeeded; /* some role was there, in this round */
	bool warned, late; /* that is said */
	uint64_t of_round, denied; /* in this round: what it deleted, queues that it may not clean */
	int64_t skipped, told, left_out; /* queues that nobody is there for: as it is asked, as it was said, of the last round */
	uint64_t deleted, lost;    /* since the start; tables of streams with events that somebody had not seen */
	char owner[64], example[QSTMT_QUEUE_MAX + 1];
	char why[160];
};

MUST_CHECK bool maintain_start(void);
void maintain_stop(void);
void maintain_need(struct qdb *db); /* there are queues */

#endif
