/*
 * One who is parked in the proxy: it waits for an answer, holds no server, and may have a deadline. What it waits for is its kind's matter (wait.c: a job; await.c: the end of one).
 *
 * Every end of a wait passes through the kind's leave().
 */
#ifndef QB_QUEUE_PARK_H
#define QB_QUEUE_PARK_H

#include "queue/stat.h"
#include "heap.h"
#include "queue_int.h"

struct park;

/* An answer comes in a moment, or it takes long: then nobody waits for it, neither those behind, nor who has waited long
 * enough. */
#define STUCK_AFTER (1 * USEC_SEC)

struct park_kind {
	/* Who waits; NULL: it is not interested any more, only a statement still runs. */
	struct taker *(*taker)(const struct park *p);
	/* Its time is over. true: it can end now; false: by itself, when the statement that runs has ended. */
	bool (*expire)(struct park *p);
	/* Nobody is to wait any more. true: it can end now; false: by itself, when the statement that runs has ended, whose
	 * jobs could not be given back: it is stopped, if cancelled. NULL: it can always. */
	bool (*lets_go)(struct park *p, bool cancelled);
	/* Out of everything that it waits in, and freed, if no statement runs. Gives who waited, to be answered by
	 * the caller; NULL: nobody is there. */
	struct taker *(*leave)(struct park *p);
	/* Ends it with what it knows, which may be nothing: zero rows. */
	void (*answer)(struct park *p);
	/* Who waits has read what it was shown. Or NULL. */
	void (*drained)(struct park *p);
	void (*stat)(const struct park *p, struct queue_stat_waiter *st, struct buf *names);
};

#define CHECK_PARK(p) INVARIANT((p)->kind != NULL, "no park, or one that was not begun")

struct park {
	const struct park_kind *kind;
	struct heap_node deadline;
	struct park *prev, *next; /* all parked ones, the one whose heartbeat is due first in front; prev NULL: not parked */
	usec_t started, entered, beaten; /* beaten: its last sign of life */
	usec_t wait;               /* 0: not at all */
	int verb;                  /* to be counted as */
	bool behind_done;          /* jobs were done before it: who reads its error has to know */
	bool by_statement_timeout; /* its statement_timeout is shorter than its WAIT */
};

MUST_CHECK bool park_start(void);
void park_free(void);
void parks_reloaded(void); /* queue_heartbeat may be another */

/* From now on (since 0) or then; as Postgres would, statement_timeout ends the wait with an error. */
void park_init(struct park *p, const struct park_kind *kind, const struct taker *t, int verb, usec_t wait, usec_t since);
/* Sets the deadline. false: memory. */
MUST_CHECK bool park_limit(struct park *p);
/* The same until its first question has been answered: with a very short WAIT, too, it looks once, if a server
 * can be had within a second. */
MUST_CHECK bool park_limit_asking(struct park *p);
/* Its kind's expire() is asked once more then. false: memory. */
MUST_CHECK bool park_again_at(struct park *p, usec_t when);
/* expire() of who loses nothing by it: he waits for a statement since then (0: for none) a little longer. true: it can end. */
MUST_CHECK bool park_is_over(struct park *p, usec_t since);
/* It waits, and shows signs of life. Harmless when it is parked. */
void park_enter(struct park *p);
/* For leave(): no deadline, no signs of life. */
void park_leave(struct park *p);

void park_fail(struct park *p, const struct pg_error *err);
void park_no_memory(struct park *p);
/* Its time is over: zero rows, or the error of statement_timeout. */
void park_over(struct park *p);
/* We are about to end: it goes elsewhere to wait. */
void park_send_away(struct park *p);

/* Those who may wait go on waiting while the database is away. */
bool park_may_try_again(const struct park *p, const struct pg_error *err);

/* Nobody waits any more, or only whoever holds jobs. */
void parks_shutdown(void);

/* Ends the wait with the error of a cancel, unless its kind does not let go: then it ends by park_cancelled() or with an answer. */
void park_cancel(struct taker *t);
void park_cancelled(struct park *p);
void park_taker_ended(struct taker *t);
/* We are about to end: it goes elsewhere to wait. One that holds jobs stays: it finishes them here. */
bool park_must_leave(const struct taker *t);

#endif
