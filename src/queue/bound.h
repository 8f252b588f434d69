/*
 * Rows that are kept until their statement has ended: of more than queue_answer_max the server is asked to stop. What comes
 * until it has stopped is kept too, as the statement may be committed all the same, and then it is the answer. It is asked
 * again when as much more has come and nobody asks it at the moment, as a cancel may be lost. One row is never too much.
 *
 * So it is when all that is kept, and what clients have not read, is more than queue_answers_max: for who has more than
 * little, or for those who share it, for each of them, be it one row, as long as anything is kept for others, or it may be cut.
 */
#ifndef QB_QUEUE_BOUND_H
#define QB_QUEUE_BOUND_H

#include "pool/task.h"

struct bound {
	size_t kept, asked; /* asked: what was kept when the server was asked last */
	size_t counted;     /* what of it is counted with that of all */
	int64_t over; /* the bound that it is over, so that the server was asked; 0: it is not */
	bool of_all;  /* that is the one of all together */
	int others;   /* so many more share it, and it may be cut */
};

/* A row of its statement, so long, is kept. In row() of the task. */
void bound_row(struct bound *b, struct task *t, size_t len);
/* The same, of which so much is kept now. It may be any size for itself. */
void bound_part(struct bound *b, struct task *t, size_t kept);
/* Nothing comes, and so much is kept: true, and it is an error, if that is too much for all together. */
bool bound_keeps(struct bound *b, size_t kept, struct pg_error *err);
void bound_end(struct bound *b); /* nothing is kept any more; or what is, is for its client to read */
#define BOUND_LIMIT "Ask for fewer at once with LIMIT."
#define BOUND_STATE "53000" /* of all together: it may be asked for again */

/* What it ended by; of one that was stopped, what its client is told. hint: what that may do. */
const struct pg_error *bound_error(const struct bound *b, const struct pg_error *err, const char *hint);
void bound_exceeded(struct pg_error *err, int64_t bound, const char *hint);

#endif
