/*
 * The jobs that a statement is about: how they are named (name.c), which of them are done (partial.c), and which may be
 * (doubt.c).
 */
#ifndef QB_QUEUE_JOBS_H
#define QB_QUEUE_JOBS_H

#include "queue_int.h"
#include "lease.h"
#include "token.h"

/* Job arguments as they are at the moment of execution. */
struct jobs {
	int n, cap;
	char (*tokens)[TOKEN_MAX]; /* of the leases */
	char **texts; /* what stands for each value, with arrays among them; or NULL, each may be NULL */
	int n_texts;
	bool elsewhere; /* the database has to say whether they are of the queue that ON names */
};
unsigned jobs_distinct(struct jobs *j); /* sorts their tokens */

/* name.c: how jobs are named */
MUST_CHECK bool jobs_resolve(struct taker *t, const struct qstmt *q, const struct bind_values *bind, struct jobs *ret,
	struct pg_error *err);
const char *jobs_text(const struct jobs *j, int i); /* in the place of value i; NULL: what the client wrote */
void jobs_free(struct jobs *j);
/* A job that this connection holds, by whatever names it; terminated. queue: of an id, or NULL. NULL: none, or several. */
struct lease *lease_named(struct taker *t, const char *text, size_t len, const char *queue);
/* The jobs of a value, which may be an array of them; nothing where it cannot be read (false). */
typedef void each_job_fn(void *arg, const char *text, size_t len);
bool each_job(const struct qvalue *v, const struct bind_values *b, each_job_fn *fn, void *arg);
bool each_job_text(const char *text, size_t len, each_job_fn *fn, void *arg);

/* partial.c: DONE ... PARTIAL */
/* Row i of the database, as the client gets it; a job that is not done loses its token. */
void partial_row(
	struct taker *t, struct jobs *j, int i, const uint8_t *body, size_t len, struct buf *rows);
void partial_ended(struct jobs *j); /* leaves those that are done */
bool partial_is_ok(const uint8_t *body, size_t len);

/* doubt.c: a DONE of which nobody knows whether it was committed. t: whose leases they are, or may be. NULL: its
 * client has left. */
void doubt_remember(struct taker *t, const struct jobs *jobs);
/* One that says the same is refused, as the jobs are gone: was it that DONE that ended them? */
bool doubt_is_over(const struct jobs *jobs);
void doubt_forget(const char *token); /* this lease may end, or has ended, otherwise than by its time or a DONE */
void doubt_forget_all(void);

#endif
