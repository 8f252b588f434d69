/*
 * Between engine.c (requests: alone, their answers, their end) and engine_merge.c (which of them are merged).
 */
#ifndef QB_QUEUE_ENGINE_INT_H
#define QB_QUEUE_ENGINE_INT_H

#include "bound.h"
#include "engine.h"
#include "merge.h"
#include "queue_int.h"

struct request {
	struct taker *taker; /* NULL: the client is gone */
	struct qstmt *q;     /* borrowed while the client is parked */
	struct call call;
	struct then *then;       /* what comes after it, or NULL */
	struct task *task;       /* alone, or */
	struct merge_item *item; /* merged */
	bool binary_id; /* PUSH ... RETURNING ID, merged: the client wants the id in binary */
	struct answer answer;
	struct bound bound; /* of its rows, while it is alone */
	unsigned rows;
	int n_formats;
	int16_t *formats; /* of the rows that it keeps, while it is alone */
	int n_payloads;
	bool keeps_rows;
	int again;           /* how often it was sent once more, for payloads of another type */
	int tries;           /* and because others' transactions were in its way */
	bool wakes, is_done; /* of the verb, for when the client is gone and q with it */
	bool lost;           /* the connection was: nobody knows what became of it */
	bool cancelled;      /* too late, as it was on its way; it is not sent again */
	int64_t value;
	struct qdb *db;
};

/* With others' that differ only in their values. NULL: it goes alone. */
MUST_CHECK struct merge_item *request_merge(
	struct request *r, const struct bind_values *bind, const struct merge_ops *ops);

#endif
