/*
 * TAKE and POP as they are executed: what becomes of one that waits is wait.c. Must not know: how it
 * is asked for jobs.
 *
 * Entry point: take().
 */
#include "count.h"
#include "deferred.h"
#include "park.h"
#include "queue_int.h"
#include "take.h"

/* We are about to end: it asks again, and waits, where it connects next. */
static enum exec_verdict take_elsewhere(struct exec *x, const struct qstmt *q)
{
	count_done(q->verb->id, 0);
	client_send_away(x->client);
	util_strlcpy(x->answer.tag, "SELECT 0", sizeof(x->answer.tag));
	return EXEC_ANSWER;
}

enum exec_verdict take(struct exec *x, const struct qstmt *q, struct qclient *qc)
{
	struct take_args a = {0};
	int n_columns;

	CHECK_QCLIENT(qc);
	qstmt_columns(q, &n_columns);
	a.since = deferred_since(qc, q);
	if (take_check(x, q, &qc->then_names, &a, &x->err)) {
		if (a.wait > 0 && park_must_leave(&qc->taker)) {
			take_args_free(&a);
			return take_elsewhere(x, q);
		}
		if (waiter_start(&qc->taker, &a, &x->bind, n_columns)) {
			x->forgets = true; /* the waiter has what it needs, and sets the columns */
			return EXEC_PARK;
		}
		pg_error_set(&x->err, "53200", "out of memory");
	}
	take_args_free(&a);
	return EXEC_ERROR;
}
