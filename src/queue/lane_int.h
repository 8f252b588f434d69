/*
 * Between lane.c (what is known of a queue) and shape.c (what its statements become).
 */
#ifndef QB_QUEUE_LANE_INT_H
#define QB_QUEUE_LANE_INT_H

#include "lane.h"

#define FLOORS_MAX 8 /* priorities whose floors are remembered; the others are read from the front */

struct floor {
	int32_t priority;
	int64_t place;
};

struct lane {
	UT_hash_handle hh;
	struct qdb *db;
	unsigned refs;   /* shapes, flights and questions */
	unsigned uses;   /* while the number is not known */
	struct question *question; /* that is under way; of several the last */
	unsigned forgotten; /* so many times; what was asked before does not count */
	bool suspect;    /* something may lie below the floors */
	int64_t number;  /* 0: not known, and then nothing is of the payload */
	enum qpayload payload;
	usec_t absent_at; /* that there is no such queue was the answer then; 0: was not */
	int n_floors;
	struct floor floors[FLOORS_MAX];
	int64_t since;   /* microseconds, the database's clock; 0: not known */
	struct lane_mark reached; /* the highest place and time that were ever told */
	struct lane_mark past[2]; /* the same some time ago: the second at past_at, the first before */
	usec_t past_at;
	usec_t full_at;  /* the next take from the front */
	bool unproven;   /* takes since the last one from the front have raised floors, perhaps over what was locked */
	usec_t event_at; /* not before this when it is suspect */
	struct flight *flights;
	char name[QSTMT_QUEUE_MAX + 1];
};

/* A take that is under way, or a push whose jobs are handed over. */
struct flight {
	struct flight *next;
	struct lane *lane;
	struct lane_mark from; /* the lowest floor with which it began */
	struct lane_mark cap; /* what floors were lowered to meanwhile */
	bool full;
	bool pushes; /* it passes nothing over, and what it locks nobody else sees */
	bool stale; /* it asks a queue that is gone */
	int n_seen;
	struct floor seen[FLOORS_MAX];
	int64_t edge;
	int64_t since; /* the latest that had been told when it began */
	usec_t began;
};

struct lane *lane_ref(struct qdb *db, const char *queue); /* NULL without memory */
void lane_unref(struct lane *l);
void lane_used(struct lane *l, struct pool *pool);
void lane_renew(struct lane *l, int64_t number); /* 0: not known. Another queue than it was */

struct flight *flight_begin(struct lane *l); /* NULL without memory: read from the front */
struct flight *flight_of_push(struct lane *l); /* NULL without memory */
void flight_sent(struct flight *f); /* its time begins */
void flight_saw(struct flight *f, int32_t priority, int64_t place);
void flight_end(struct flight *f, bool ok);

#endif
