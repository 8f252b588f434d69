/*
 * Which queues a transaction has touched (wakes.c), and the wait queues that are woken (waitq.c).
 */
#ifndef QB_QUEUE_WAKES_H
#define QB_QUEUE_WAKES_H

#include "queue_int.h"
#include "mark.h"

/* Queues to be woken when the transaction under way commits. */
struct wakes {
	struct wakes *next;
	bool locks;     /* takes may have passed over what it has locked: a rollback is news */
	bool makes_ready; /* a commit is, too */
	struct head_mark mark; /* nothing that it made ready lies below */
	unsigned jobs; /* made ready; 0: unknown */
	int64_t tx;    /* in which the database said so; 0: not told, or it is the client's statement that did it */
	bool stays;    /* said outside of a block: a procedure may have committed it, and failed later */
	char queue[];
};

void touch(struct taker *t, const char *queue, unsigned jobs); /* remembers for the commit */
void touch_from(struct taker *t, const char *queue, unsigned jobs, struct head_mark mark, bool locks);
void touch_locked(struct taker *t, const char *queue); /* news only if it is rolled back */
void wakes_wake(struct taker *t);
/* It was rolled back: what it had locked, and takes have passed over, is there again. A plain push has locked
 * nothing. */
void wakes_let_go(struct taker *t);
void wakes_drop(struct taker *t);
/* What the database says of a queue, in a transaction that has not ended (a list of those), and its end. tx: see
 * interceptor.event: what was said in another one is woken, for that has ended. */
void wakes_event(struct qdb *db, struct pool *pool, struct wakes **list, const char *queue, const char *tx);
void wakes_event_end(struct qdb *db, struct wakes **list, bool committed);
/* interceptor.event and the others */
void wakes_event_of_client(struct client *c, const char *queue, const char *tx);
void wakes_task_event(struct pool *pool, const char *queue, const char *tx, void **kept);
void wakes_task_end(struct pool *pool, void **kept, bool committed);
/* One that was prepared, here or elsewhere, is committed: all who wait look, at other proxies too. */
void wakes_prepared_wake(struct qdb *db);
MUST_CHECK bool wakes_start(void);
void wakes_stop(void);

/* --- waking (waitq.c) --- */

/* The queue that a row of names or a touched list speaks of has news. */
void waitq_wake(struct qdb *db, const char *queue, unsigned jobs);
/* ... and nothing of it lies below the mark, if it is one. */
void waitq_wake_from(struct qdb *db, const char *queue, unsigned jobs, struct head_mark mark);
/* The queues that somebody waits for, so many at most, as elements of a text[] in binary: their number. */
int waitqs_put(struct buf *b, const struct qdb *db, int most);
void waitqs_wake_all(struct qdb *db); /* LISTEN was set up anew: anything may have happened */
/* Readers of streams hear of it, too. queue NULL: any. jobs: so many were pushed; 0: nobody knows what is new. */
typedef void waitq_also_fn(struct qdb *db, const char *queue, unsigned jobs);
void waitq_also(waitq_also_fn *fn);
MUST_CHECK bool waitq_start(void);
void waitq_stop(void);

#endif
