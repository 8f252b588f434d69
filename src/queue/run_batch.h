/*
 * The jobs that a slot (run_slots.h) has taken and not ended yet: of a queue with handler_batch there may be several,
 * which are done together, or, when that failed, one after the other.
 */
#ifndef QB_QUEUE_RUN_BATCH_H
#define QB_QUEUE_RUN_BATCH_H

#include "base/buf.h"
#include "token.h"

/* How the statement that carries out a job ended. */
enum outcome {
	OUTCOME_DONE,
	OUTCOME_FAILED,   /* queue.retry() */
	OUTCOME_RELEASED, /* ... of which the attempt does not count */
	OUTCOME_ALONE,    /* it was only looked up */
	OUTCOME_UNREAD,   /* no memory for that, or nothing was said of it */
};

struct batch_job {
	char token[TOKEN_MAX];
	int attempt;
	bool again; /* it was taken before, whether that counts or not: somebody may be at it still */
	bool lost; /* it is not its own any more */
	enum outcome outcome;
};

struct run_batch {
	struct batch_job *jobs; /* those from "at" on */
	int at, n, room;
	int upto;   /* with whole: those before this one */
	bool whole; /* they are carried out now, all together, or as many as can be named */
	bool each;  /* that has failed: each by itself */
};

#define BATCH_FOREACH(j, b) for ((j) = (b)->jobs + (b)->at; (j) < (b)->jobs + (b)->n; (j)++)

int batch_left(const struct run_batch *b);
int batch_together(const struct run_batch *b); /* so many of them are carried out together now */
/* false: memory */
MUST_CHECK bool batch_add(struct run_batch *b, const struct batch_job *job);
/* NULL: there is none. */
struct batch_job *batch_find(const struct run_batch *b, const char *token);
/* The first one, which is taken out. false: there is none. */
MUST_CHECK bool batch_next(struct run_batch *b, struct batch_job *ret);
/* Without those that are lost; each is told of before. Returns how many these were. */
int batch_drop_lost(struct run_batch *b, void (*fn)(void *arg, const char *token), void *arg);
/* Those that are carried out together: which they are, as a comment of SQL by which they are found if we are gone
 * (queue._is_in_batch); their tokens, and those that were taken before, as text[] in binary. From now on nothing is known
 * of how they end. */
void batch_begin(struct run_batch *b, struct buf *comment, struct buf *tokens, struct buf *again);
/* They have ended. */
void batch_ended(struct run_batch *b);
/* It is empty again. */
void batch_clear(struct run_batch *b);
void batch_free(struct run_batch *b);

#endif
