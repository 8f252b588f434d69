/*
 * Leases as takers hold them: the ledger (lease.c), what becomes of them at an end (lease_end.c), those that are
 * held (hold.c), and those that were finished (done.c).
 */
#ifndef QB_QUEUE_LEASE_H
#define QB_QUEUE_LEASE_H

#include "queue/stat.h"
#include "queue_int.h"
#include "token.h"

/* What CANCEL of held jobs says, followed by the number of their queue (queue._tell_cancelled): no queue has this name. */
#define CANCELLED_EVENT "of no queue: cancelled in "

enum lease_policy { LEASE_AUTO, LEASE_RELEASE, LEASE_KEEP, LEASE_HOLD };

struct lease {
	UT_hash_handle hh; /* by token */
	struct lease *prev, *next;
	int64_t id;
	int64_t place;   /* its position in the queue; 0: not known */
	bool in_tx;      /* taken in the transaction under way */
	bool finishing;  /* finished in the transaction under way */
	bool by_done;    /* and by DONE, which may be repeated after the commit */
	bool stamped;    /* our number is in it: other proxies give it back when we are gone */
	bool cancelled;  /* HOLD: a renewal said so */
	unsigned answer; /* which answer it came with */
	enum lease_policy policy;
	usec_t taken_at, until; /* until: the lease does not end before; 0: not known, EXTEND may have moved it */
	/* HOLD: when it was renewed for how long, when it ends for good; the renewal under way, or 0 */
	usec_t renewed_at, span, hold_until, again_at;
	unsigned renewal;
	bool look; /* once more, when that has ended */
	struct tally *tally; /* of its queue, or NULL */
	char *key; /* or NULL */
	char token[TOKEN_MAX];
	char queue[QSTMT_QUEUE_MAX + 1];
};

/* lease.c */
/* NULL without memory. */
struct lease *lease_add(struct taker *t, int64_t id, const char *token, const char *queue, enum lease_policy policy,
	bool in_tx);
void lease_drop(struct taker *t, struct lease *l);
void lease_cancelled(struct taker *t, struct lease *l);
void lease_lost(struct taker *t, const struct lease *l); /* it hears of it */
struct lease *lease_find(struct taker *t, const char *token);
/* Gives the tally of its queue, and since when it was held; NULL: it is not held here. */
struct tally *lease_finish(struct taker *t, const char *token, bool by_done, bool in_tx, usec_t *ret_since);
void lease_free_all(struct taker *t);
void lease_each(struct taker *t, void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg);
/* lease_end.c */
/* in_part: something in it was rolled back before. */
void lease_tx_ended(struct taker *t, bool committed, bool in_part);
/* It leaves. broken: without a goodbye; delivered: it got its last answer. */
void lease_taker_ended(struct taker *t, bool broken, bool delivered);
/* Held ones whose longest time is over are given back. */
void lease_hold_over(struct taker *t, usec_t now);
/* done.c: the memory of tokens that were finished: a repeated DONE is not an error. */
void done_remember(const char *token);
bool done_known(const char *token);
void done_forget_all(void);

/* hold.c: leases that are renewed while their connection lives */
MUST_CHECK bool hold_start(void);
void hold_free(void);
/* Held so long at most; leased for span, since then at the latest. */
void hold_begin(struct lease *l, usec_t since, usec_t hold, usec_t span);
void hold_extended(struct lease *l, bool in_tx);

#endif
