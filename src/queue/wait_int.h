/*
 * Between waitq.c (wait queues and their timers), fetch.c (asking the database), taken.c (the jobs that come),
 * handoff.c (what is handed over) and wait.c (the life of a waiter), which all of them reach through its ops.
 */
#ifndef QB_QUEUE_WAIT_INT_H
#define QB_QUEUE_WAIT_INT_H

#include "queue_call.h"
#include "count.h"
#include "heap.h"
#include "lease.h"
#include "merge.h"
#include "park.h"
#include "queue_int.h"
#include "quiet.h"
#include "take.h"
#include "token.h"

#define LOOK_AGAIN     (1 * USEC_SEC) /* after a take, for what may have come that was not announced \
				       */

#define TAKEN_AHEAD 100

#define DUE_NEVER   (-1)
#define DUE_UNKNOWN (-2) /* the rows went to others of the same batch */

struct waitq;

#define WAITER_MAGIC 0x5143a147u
#define WAITQ_MAGIC  0x5143a047u
#define CHECK_WAITER(w) INVARIANT_IS(w, WAITER_MAGIC, "no waiter, or one that has ended")
#define CHECK_WAITQ(r)  INVARIANT_IS(r, WAITQ_MAGIC, "no wait queue, or a freed one")

struct member {
	struct member *prev, *next; /* of the wait queue: higher rank first, then longest waiter first */
	struct waitq *waitq;
	struct waiter *waiter;
	uint64_t gen; /* of the wait queue when its waiter last asked */
	/* Of one with a condition (looks.c): what is ready below this place does not fit; INT64_MAX: nothing does. */
	int64_t low, asked_low; /* asked_low: with which it last asked */
	bool news;              /* something may fit since */
};

struct waitq {
	uint32_t magic;
	UT_hash_handle hh;
	struct heap_node timer; /* the next time to look */
	struct qdb *db;
	struct member *members;
	unsigned n_members;
	unsigned n_where; /* of these, with a condition */
	unsigned credits; /* waiters that may ask now, of those without */
	bool looks;       /* those with one may have something to look at */
	usec_t look_at;   /* one of them waits until then before it looks again */
	bool unknown;     /* more may be there than credits say: go on while something is found */
	unsigned found;   /* so many have found something since they were woken for what is not known */
	bool ready_marked;
	struct waitq *ready_next;
	uint64_t gen;  /* counts wakes */
	usec_t event_at; /* the first wake that nobody has asked after yet; 0: none */
	usec_t due_at; /* when something becomes ready by itself, as last heard */
	bool due_told; /* an answer has said so: it is not a look to be sure */
	struct waitq_counts n;
	char name[QSTMT_QUEUE_MAX + 1];
};

struct taken {
	int64_t id, place;
	int64_t lease_ms; /* rounded up; 0: not known */
	int64_t waited;   /* waited_us() */
	struct tally *tally; /* of its queue, once it is counted */
	size_t key_at; /* its key in the rows of the answer */
	int32_t key_len; /* -1: none */
	enum lease_policy policy;
	char token[TOKEN_MAX];
	char queue[QSTMT_QUEUE_MAX + 1];
};

struct waiter;

/* What a waiter does when it is its turn, and when what it waits for has come: wait.c. */
struct waiter_ops {
	bool (*ask)(struct waiter *w); /* never ends it before it returns; false: memory */
	/* Are their takes one statement, as far as is known before it is made? */
	bool (*asks_with)(const struct waiter *a, const struct waiter *b);
	void (*ask_failed)(struct waiter *w); /* that is said to who takes */
	void (*handed)(struct waiter *w, bool ok); /* the end of a push that may have been its job */
	struct merge_ops fetch;
};
extern const struct waiter_ops waiter_ops;

#define STOPPED_MAX 3 /* the last time it asks by itself */

struct waiter {
	uint32_t magic;
	const struct waiter_ops *ops;
	struct park park;   /* parked when it is in the wait queues */
	struct taker *taker; /* NULL: nobody is interested; only the task still runs */
	struct qdb *db;
	struct pool *pool;
	struct take_args args;
	struct member *members;  /* args.n_queues, or NULL: not in the wait queues */
	struct merge_item *item; /* asks; NULL: does not */
	uint64_t number;         /* in the order in which they came */
	struct handoff *handoff; /* a push that may be its job is on its way; or NULL */
	struct batch *handing;   /* the batch that this is */
	int16_t *formats;
	int n_formats, n_columns;
	enum { OVER_NOT, OVER_EXPIRED, OVER_CANCELLED } over; /* while a statement runs that is waited for */
	int again; /* how often it asked once more, for payloads of another type, or as there was no answer */
	int stopped; /* ... as its statement was stopped for one of those who shared it */
	struct {
		struct buf rows;
		int n_rows;
	} answer;
	struct taken *taken;
	int n_taken, cap_taken;
	usec_t taken_since; /* their leases began after that; 0: not known */
	int32_t stamp;  /* the number of the proxy, as its last take wrote it */
	int64_t due_ms; /* when the next job becomes due; DUE_NEVER, DUE_UNKNOWN */
	/* With a condition: */
	struct quiet quiet;   /* it has looked in vain */
	usec_t refused_until; /* it was too much for all together */
	int64_t saw, saw_number;   /* the last place, of the queue of this number */
	bool looked_in_part;       /* some of what fits was somebody's for a moment, or a queue is paused */
	bool cut;                  /* more is ready than it may look at */
	bool look_again;           /* at once: so it was, or something has become due */
	int looks_again;
	/* Of a queue with a single consumer (consumer.c): */
	bool alone;
	bool others; /* that is another one */
	char consumer[64];
	uint64_t wakes; /* of the database when it last asked */
	usec_t event_at; /* why it asked last was known; 0: it had not waited */
};

/* waitq.c */
struct waitq *waitq_find(struct qdb *db, const char *name);
struct waitq *waitq_get(struct qdb *db, const char *name); /* makes it; NULL without memory */
void waitq_free(struct waitq *r);
void waitq_ready(struct waitq *r);
void waitq_go_on(struct waitq *r); /* something was found, and more may be there */
void waitq_unready(struct waitq *r);
void waitq_schedule(struct waitq *r);
void waitq_wake_one(struct waitq *r, unsigned jobs);

static inline bool waiter_is_busy(const struct waiter *w)
{
	return w->item != NULL || w->handoff != NULL;
}

/* When a server got its statement; 0: none has one of it. */
static inline usec_t waiter_asks_since(const struct waiter *w)
{
	if (w->item != NULL)
		return merge_sent_at(w->item);
	return w->handoff != NULL ? merge_batch_sent_at(w->handing) : 0;
}

static inline bool waiter_is_stuck(const struct waiter *w)
{
	usec_t since = waiter_asks_since(w);

	CHECK_WAITER(w);
	return since != 0 && loop_now() - since >= STUCK_AFTER;
}

/* looks.c: those with a condition */
bool looks_serve(struct waitq *r, const struct member **ret_first, bool *ret_any);
void looks_news(struct waitq *r, int64_t low); /* from this place on something may fit */
void looks_begin(struct waiter *w);            /* it asks */
bool looks_vain(struct waiter *w);             /* ... has found nothing; true: it asks again at once */
void looks_failed(struct waiter *w);           /* ... and there was no answer */
static inline unsigned waitq_n_plain(const struct waitq *r)
{
	return r->n_members - r->n_where;
}

/* where.c: the statement that asks with a condition. false: memory. */
struct merge_spec;
MUST_CHECK bool where_spec(struct waiter *w, const char *proxy, struct merge_spec *spec);

/* fetch.c: never calls back before it returns; false: memory. */
bool fetch_start(struct waiter *w);
bool fetch_is_shared(const struct waiter *a, const struct waiter *b); /* waiter_ops.asks_with */

/* taken.c */
/* Room for so many jobs, before they are taken: out of memory, what is known of a job can be given back, and
 * what is not cannot. More than TAKEN_AHEAD are made room for as they come. false: memory. */
MUST_CHECK bool taken_reserve(struct waiter *w, int n);
void taken_free(struct waiter *w);
int32_t taken_proxy(const struct waiter *w);
void taken_formats(const struct waiter *w, int16_t formats[MERGE_COLUMNS_MAX]);
void taken_row(void *waiter, const uint8_t *body, size_t len); /* a job for it, or when there may be one */

#endif
