/*
 * What runs: as a call of the database (call.c), on the merged path (engine.c), or in place (in_place.c, bulk.c).
 */
#ifndef QB_QUEUE_ENGINE_H
#define QB_QUEUE_ENGINE_H

#include "base/names.h"
#include "queue_int.h"
#include "jobs.h"
#include "mark.h"

/* What both paths run: SQL text, types, values. */
struct call {
	struct buf sql;
	uint32_t *oids;
	struct bind_param *params;
	int n_params;
	struct jobs jobs;
	char queue[QSTMT_QUEUE_MAX + 1]; /* PUSH, ALTER ...: evaluated name, "" when it has none */
	struct names ends;  /* CANCEL: its jobs as its rows name them */
	struct names dead;  /* FAIL: the queues of those that are dead now */
	struct names names; /* the queues of the jobs, as its rows name them */
	bool in_rows;     /* its rows do, and somebody wants to know */
	bool no_ends;     /* what stands behind the queue in a row has not ended */
	bool fails;       /* FAIL: they name the queues of dead ones, too */
	bool only_names;  /* the jobs were done before: nothing else is asked for */
	struct buf known; /* WORKERS: what is known here (known.h) */
	char topic[QSTMT_QUEUE_MAX + 1]; /* PUBLISH: the first word of it, "" when it cannot be told */
	struct head_mark mark;           /* of that queue, before it is sent */
	struct head_mark jobs_mark;      /* of the queue of its jobs */
	unsigned handed;                 /* of the jobs that it pushed: leased already */
};
MUST_CHECK bool call_make(struct taker *t, const struct qstmt *q, const struct bind_values *bind, struct call *ret,
	struct pg_error *err);
/* Only to be described: of which jobs it is, nobody knows yet. */
MUST_CHECK bool call_describe(const struct qstmt *q, struct call *ret, struct pg_error *err);
/* Its text, which a merged one does not need. */
MUST_CHECK bool call_sql(struct call *call, const struct qstmt *q, struct pg_error *err);
/* THEN TAKE of jobs that were done before: asks for nothing but their queues. */
MUST_CHECK bool call_ask_queues(struct call *call, const struct qstmt *q, struct pg_error *err);
/* DONE: nothing but jobs whose DONE succeeded before. */
bool all_done_before(const struct qstmt *q, const struct call *call);
void call_free(struct call *c);
/* A row that the call returned: body of DataRow. */
void call_row(struct call *call, const uint8_t *body, size_t len);
void call_forget_rows(struct call *call);
/* After success: leases, memory of done, queues to wake. in_tx: at the commit. */
void call_succeeded(struct taker *t, const struct qstmt *q, struct call *call, unsigned rows, bool in_tx);

/* --- the engine: statements on the merged path --- */

/* What comes after a request, and answers its client: it has been committed. */
struct then;
typedef void then_fn(struct taker *t, struct then *then, const struct names *names); /* frees it */
struct then {
	then_fn *go_on; /* names: the queues of the jobs, if it needs them */
	void (*free)(struct then *then);
	bool needs_names, cancelled;
};
/* Takes the contents of call, and then (or NULL) if it succeeds. */
MUST_CHECK bool engine_submit(struct taker *t, struct qstmt *q, struct call *call, const struct bind_values *bind,
	struct then *then, struct pg_error *err);
void engine_cancel(struct taker *t);
void engine_taker_ended(struct taker *t);

/* --- on the client's own server --- */

/* in_place.c */
enum exec_verdict run_in_place(struct exec *x, struct qstmt *q, struct qclient *qc, struct call *call);
/* bulk.c: PUSH of a query or a copy, on the client's own server */
enum exec_verdict bulk_execute(struct exec *x, const struct qstmt *q, struct qclient *qc);

#endif
