/*
 * A taker of the proxy's own (worker.c): it takes jobs with the login of a role, as a client would with QUEUE TAKE ...
 * HOLD WAIT, and finishes them as one would with QUEUE DONE and FAIL. Like a client it does one thing at a time.
 */
#ifndef QB_QUEUE_WORKER_H
#define QB_QUEUE_WORKER_H

#include "qlang/payload.h"
#include "wire/error.h"
#include "wire/row.h"
#include "base/util.h"

struct worker;

/* All are called from the loop, never from inside. In job() and lost() the worker may not be freed. */
struct worker_ops {
	bool bare; /* payloads and headers are of no use: job() gets none, and none are kept */
	/* A job that it holds now: enum taken_column (queue_call.h), as text. Borrowed. */
	void (*job)(void *arg, const struct wire_col *cols);
	/* It is not to work on this job any more: it was cancelled, its lease has ended, or was given back as the process
	 * is about to end, or the database was removed. */
	void (*lost)(void *arg, const char *token);
	/* The end of a take, behind its jobs (none: WAIT is over, or the process is about to end), of a DONE or a FAIL. */
	void (*ended)(void *arg, const struct pg_error *err);
};

/* Who makes one frees it, before pooler_free(). NULL: there is no such database or role, or memory. */
struct worker *worker_new(const char *database, const char *user, const struct worker_ops *ops, void *arg);
/* Waits so long for at most so many jobs, and holds them so long at most. false: memory. */
MUST_CHECK bool worker_take(struct worker *w, const char *queue, enum qpayload payload, int limit, usec_t wait,
	usec_t hold);
/* result, error: or NULL. final: another attempt would be in vain. false: err says why it cannot be. */
MUST_CHECK bool worker_done(struct worker *w, const char *token, const char *result, struct pg_error *err);
MUST_CHECK bool worker_fail(struct worker *w, const char *token, const char *error, bool final, struct pg_error *err);
/* Of a job that it holds, and which was worked on beside it: it is done, in a transaction that was committed, or was put
 * back in that, as a failed attempt or as none; it is to be somebody else's at once, or gone if it was cancelled. */
void worker_was_done(struct worker *w, const char *token);
void worker_was_put_back(struct worker *w, const char *token, bool failed);
void worker_give_back(struct worker *w, const char *token);
/* Is it its own still, as far as time tells? A process that was stopped has not renewed its leases. */
bool worker_holds(struct worker *w, const char *token);
void worker_give_back_all(struct worker *w);
/* What is under way, if it can be stopped: ended() comes with 57014. */
void worker_cancel(struct worker *w);
/* Gives back what it holds, and what is on its way when that comes. A job whose DONE is on its way is done or given
 * back, as with a client that leaves. */
void worker_free(struct worker **w);

#endif
