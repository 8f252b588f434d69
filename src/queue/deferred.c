/*
 * Statements that cannot be executed yet: is the schema there, what are the payloads of these
 * queues? The pool keeps the statement while that is asked (EXEC_WAIT), and its time runs: its WAIT
 * ends it, or a statement_timeout that is shorter; a cancel does. One that may not wait is ended by
 * query_wait_timeout, as whatever waits for a server is; statement_timeout is then the server's
 * matter, which has not seen it yet. Must not know: what is asked.
 *
 * Entry points: deferred_*.
 */
#include <string.h>

#include "count.h"
#include "deferred.h"
#include "head.h"
#include "park.h"
#include "schema_int.h"
#include "take.h"

struct deferred {
	struct park park; /* for its deadline; never parked */
	struct qclient *qc;
	bool over; /* its WAIT: it is answered when it is executed again */
};

static void stop_asking(struct qclient *qc)
{
	if (qc->asking_schema)
		schema_forget_client(qc->taker.db, qc);
	heads_forget_client(qc);
}

void deferred_end(struct qclient *qc)
{
	struct deferred *e = qc->deferred;

	CHECK_QCLIENT(qc);
	if (e == NULL)
		return;
	qc->deferred = NULL;
	park_leave(&e->park);
	mem_free(e);
}

static void fail(struct qclient *qc, const struct pg_error *err)
{
	if (qc->deferred != NULL)
		count_failed(qc->deferred->park.verb);
	stop_asking(qc);
	deferred_end(qc);
	client_refuse(qc->client, err);
}

static bool expire(struct park *p)
{
	struct deferred *e = CONTAINER_OF(p, struct deferred, park);
	struct pg_error err;

	if (p->by_statement_timeout) {
		pg_error_set(&err, "57014", "canceling statement due to statement timeout");
		fail(e->qc, &err);
		return false;
	}
	e->over = true;
	stop_asking(e->qc);
	client_again(e->qc->client);
	return false;
}

usec_t deferred_since(const struct qclient *qc, const struct qstmt *q)
{
	CHECK_QCLIENT(qc);
	if (qc->deferred != NULL)
		return qc->deferred->park.started;
	return q->described_at == loop_now() ? q->asked_since : 0;
}

void deferred_described(struct qclient *qc, struct qstmt *q)
{
	CHECK_QCLIENT(qc);
	q->asked_since = qc->deferred != NULL ? qc->deferred->park.started : 0;
	q->described_at = loop_now();
	deferred_end(qc);
}

void deferred_begin(
	struct qclient *qc, const struct qstmt *q, const struct bind_values *b, bool may_wait)
{
	static const struct park_kind kind = {.expire = expire};
	struct take_args args = {0};
	struct pg_error ignored; /* it is found again when the statement is executed */
	struct deferred *e;

	CHECK_QCLIENT(qc);
	if (qc->deferred != NULL || (e = mem_zalloc(sizeof(*e))) == NULL)
		return;
	may_wait = may_wait && (q->verb->flags & QVERB_AUTONOMOUS) != 0;
	if (may_wait && !take_wait(&args, qstmt_one(q, QARG_WAIT), b, &ignored))
		args.wait = 0;
	e->qc = qc;
	park_init(&e->park, &kind, &qc->taker, q->verb->id, args.wait, deferred_since(qc, q));
	qc->deferred = e;
	/* without memory query_wait_timeout has to do */
	if (e->park.wait > 0)
		(void)!park_limit_asking(&e->park);
}

bool deferred_waits_on(struct qclient *qc, const struct qstmt *q, const struct bind_values *b,
	bool may_wait, const struct pg_error *err)
{
	CHECK_QCLIENT(qc);
	deferred_begin(qc, q, b, may_wait);
	return qc->deferred != NULL && park_may_try_again(&qc->deferred->park, err);
}

bool deferred_is_over(struct qclient *qc)
{
	CHECK_QCLIENT(qc);
	if (qc->deferred != NULL && !client_repeats(qc->client))
		deferred_end(qc);
	return qc->deferred != NULL && qc->deferred->over;
}

enum exec_verdict deferred_answer(struct exec *x, const struct qstmt *q)
{
	struct take_args a = {0};
	bool ok = take_check(x, q, NULL, &a, &x->err);

	take_args_free(&a);
	if (!ok)
		return EXEC_ERROR;
	count_done(q->verb->id, 0);
	util_strlcpy(x->answer.tag, "SELECT 0", sizeof(x->answer.tag));
	return EXEC_ANSWER;
}

/* query_wait_timeout, of one that may not wait for longer. */
static bool is_limit(const struct qclient *qc, const struct pg_error *err)
{
	return err != NULL && qc->deferred != NULL && qc->deferred->park.wait == 0 &&
	       strcmp(err->sqlstate, "53300") == 0;
}

enum head_answered deferred_answered(
	struct qclient *qc, const struct pg_error *err, usec_t asked_at)
{
	CHECK_QCLIENT(qc);
	if (!is_limit(qc, err))
		return HEAD_ANSWERED;
	if (qc->deferred->park.started > asked_at) /* it was for one that had waited for longer */
		return HEAD_AGAIN;
	fail(qc, err);
	return HEAD_NOBODY;
}

void deferred_cancel(struct qclient *qc)
{
	struct pg_error err;

	CHECK_QCLIENT(qc);
	pg_error_set(&err, "57014", "canceling statement due to user request");
	fail(qc, &err);
}
