/*
 * Rows that are kept until their statement has ended: of more than queue_answer_max the server is asked to stop. What comes
 * until it has stopped is kept too, as the statement may be committed all the same, and then it is the answer. It is asked
 * again when as much more has come and nobody asks it at the moment, as a cancel may be lost. One row is never too much.
 */
#ifndef QB_QUEUE_BOUND_H
#define QB_QUEUE_BOUND_H

#include "pool/task.h"

struct bound {
	size_t kept, asked; /* asked: what was kept when the server was asked last */
	int64_t over; /* the bound that it is over, so that the server was asked; 0: it is not */
};

/* A row of its statement, so long, is kept. In row() of the task. */
void bound_row(struct bound *b, struct task *t, size_t len);
#define BOUND_LIMIT "Ask for fewer at once with LIMIT."

/* What it ended by; of one that was stopped, what its client is told. hint: what that may do. */
const struct pg_error *bound_error(const struct bound *b, const struct pg_error *err, const char *hint);
void bound_exceeded(struct pg_error *err, int64_t bound, const char *hint);

#endif
