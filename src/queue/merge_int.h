/*
 * Between merge.c (groups, items, which batch is next), merge_send.c (the statement of a batch) and merge_again.c (what is
 * sent again). Who shares a batch is decided in the first one alone.
 */
#ifndef QB_QUEUE_MERGE_INT_H
#define QB_QUEUE_MERGE_INT_H

#include <utlist.h>

#include "base/check.h"
#include "base/hash.h"
#include "bound.h"
#include "merge.h"

#define ITEM_MAGIC     0x5117e147u
#define BATCH_MAGIC    0x51ba7c47u
#define CHECK_ITEM(i)  INVARIANT_IS(i, ITEM_MAGIC, "no request of a batch, or one that has ended")
#define CHECK_BATCH(b) INVARIANT_IS(b, BATCH_MAGIC, "no batch, or one that has ended")

struct merge_item {
	uint32_t magic;
	struct merge_item *prev,
		*next; /* of the group while it waits, of the batch when it is sent */
	struct group *group;
	struct batch *batch; /* NULL: waits */
	const struct merge_ops *ops;
	void *arg;
	struct buf values;
	int n_values;
	int n, got; /* rows it may get, rows it got */
	bool dropped;
	bool told; /* a row that belongs to all */
};

struct batch {
	uint32_t magic;
	struct batch *next; /* of the group: cut pieces that go before what waits */
	struct group *group;
	struct merge_item *items, *at; /* at: the first item that may still get rows */
	int n_items;
	bool direct; /* sent as its shape has it */
	bool risky;  /* and any refusal is answered by sending it as the spec has it */
	enum {
		LONE_MAY,
		LONE_SENT,
		LONE_ROW,
		LONE_NOT
	} lone;         /* as a plain statement: sent, with a row; of no use */
	bool patient;   /* sent by patient_sql */
	bool stale;     /* its statement is not right any more: somebody has left */
	bool cancelled; /* by merge_cancel() */
	struct bound rows;
	bool sent;      /* a server has it */
	int64_t seed;   /* of this sending; 0: none */
	int tries;      /* times that it was sent again as it was */
	void *flight;   /* of the shape */
	struct task *task;
};

struct group {
	UT_hash_handle hh;
	struct pool *pool;
	struct merge_item *waiting;
	struct batch *pieces;
	unsigned under_way; /* batches that were sent */
	unsigned unsent;    /* of these: wait for a server */
	usec_t sent_at;     /* when the last one got a server */
	unsigned patient;   /* those that wait for a lock, beside the others */
	unsigned held;      /* its items are being told: it stays */
	struct merge_spec spec;
	int16_t formats[MERGE_COLUMNS_MAX];
	size_t size; /* with its key and parameters */
	size_t key_len;
	const uint8_t *key;         /* behind its parameters */
	struct bind_param params[]; /* copies, with their bytes behind them */
};

/* merge.c: what a batch hears of its statement. */
extern const struct task_ops merge_batch_ops;

/* merge_send.c. false: memory. */
MUST_CHECK bool merge_send(struct batch *b);               /* submits its statement, as it is now */
MUST_CHECK bool merge_change(struct batch *b, bool engine); /* puts another one in its place; engine: on one of its own */
void merge_end_flight(struct batch *b, const struct pg_error *err);

/* merge_again.c, of a batch that has ended. */
MUST_CHECK bool merge_goes_on(struct batch *b, const struct pg_error *err); /* it is sent again, and nobody is answered yet */
void merge_tell_lost(struct batch *b, const struct task *t);
const struct pg_error *merge_given_up(struct batch *b, const struct pg_error *err);

#endif
