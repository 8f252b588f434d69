/*
 * Between head.c (what is known of a queue), head_ask.c (how it is asked for) and shape.c (what its statements become).
 */
#ifndef QB_QUEUE_HEAD_INT_H
#define QB_QUEUE_HEAD_INT_H

#include "head.h"
#include "mark.h"

#define HEAD_MAGIC   0x51ead047u
#define FLIGHT_MAGIC 0x51f11647u
#define CHECK_HEAD(l)   INVARIANT_IS(l, HEAD_MAGIC, "no head of a queue, or a freed one")
#define CHECK_FLIGHT(f) INVARIANT_IS(f, FLIGHT_MAGIC, "no flight, or one that has ended")

#define LOW_MARKS_MAX 8 /* priorities whose low marks are remembered; the others are read from the front */

struct low_mark {
	int32_t priority;
	int64_t place;
};

struct head {
	uint32_t magic;
	UT_hash_handle hh, by_number;
	struct qdb *db;
	unsigned refs;   /* shapes, flights and questions */
	unsigned uses;   /* while the number is not known */
	struct question *question; /* that is under way; of several the last */
	unsigned forgotten; /* so many times; what was asked before does not count */
	bool suspect;    /* something may lie below the low marks */
	int64_t number;  /* 0: not known, and then nothing is of the payload */
	enum qpayload payload;
	usec_t absent_at; /* that there is no such queue was the answer then; 0: was not */
	bool stream;      /* ... but a stream */
	int64_t stream_number; /* 0: not known */
	enum qpayload stream_payload;
	int n_low_marks;
	struct low_mark low_marks[LOW_MARKS_MAX];
	int64_t since;   /* microseconds, the database's clock; 0: not known */
	usec_t since_at; /* by our clock it was not before this */
	unsigned alike;  /* takes for which that was lately enough, one after the other */
	unsigned dear;   /* so many takes from the front, one after the other, took long */
	bool drained;    /* the last take has found nothing, and nothing was pushed here since */
	struct head_mark reached; /* the highest place and time that were ever told */
	struct head_mark past[2]; /* the same some time ago: the second at past_at, the first before */
	usec_t past_at;
	usec_t full_at;  /* the next take from the front */
	bool unproven;   /* takes since the last one from the front have raised low marks, perhaps over what was locked */
	usec_t event_at; /* not before this when it is suspect */
	struct flight *flights;
	struct lone *lone; /* its plain statements; NULL: not asked for */
	char name[QSTMT_QUEUE_MAX + 1];
};

/* A take that is under way, or a push whose jobs are handed over. */
struct flight {
	uint32_t magic;
	struct flight *next;
	struct head *head;
	struct head_mark from; /* the lowest low mark with which it began */
	struct head_mark cap; /* what low marks were lowered to meanwhile */
	bool full;
	bool pushes; /* it passes nothing over, and what it locks nobody else sees */
	bool stale; /* it asks a queue that is gone */
	bool front; /* it is a plain statement that reads from the front, and tells what that took */
	int n_seen;
	struct low_mark seen[LOW_MARKS_MAX];
	int64_t edge;
	int64_t since; /* the latest that had been told when it began */
	usec_t began;
};

struct head *head_find(struct qdb *db, const char *queue); /* NULL: nothing is known of it */
struct head *head_find_number(struct qdb *db, int64_t number); /* the same by the number in tokens */
struct head *head_ref(struct qdb *db, const char *queue); /* NULL without memory */
void head_unref(struct head *l);
void head_used(struct head *l, struct pool *pool); /* asks, when it is used again and again */
void head_renew(struct head *l, int64_t number); /* 0: not known. Another queue than it was */

struct flight *flight_begin(struct head *l); /* NULL without memory: read from the front */
struct flight *flight_of_push(struct head *l); /* NULL without memory */
void flight_sent(struct flight *f); /* its time begins */
/* May it read from the front though low marks are known? Not where others found much there. */
bool flight_may_front(const struct flight *f);
void flight_spent(struct flight *f, int64_t usec); /* inside the server, in doing so */
void flight_saw(struct flight *f, int32_t priority, int64_t place);
void flight_end(struct flight *f, bool ok);

#endif
