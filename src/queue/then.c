/*
 * DONE ... THEN TAKE: two statements in one round trip. Outside of a transaction the done is
 * committed first, on the merged path like any other, and then the client goes on as a waiter of
 * the take. Inside of one the done is part of it: the client's own server runs it, and the pool
 * executes the statement once more when that has succeeded.
 *
 * Without a queue the take is from the queues of the jobs: the leases of the connection tell which
 * these are, or else the rows of the done. The take may be that of a stream (stream.c). Entry point: then_take.
 */
#include <string.h>

#include "engine.h"
#include "lease.h"
#include "queue_int.h"
#include "stream.h"
#include "take.h"

struct take_after {
	struct then then;
	struct take_args args;
	struct reader *reader; /* FOR: instead of the rest */
	int16_t *formats;
	int n_formats, n_columns;
};

static void free_one(struct then *then)
{
	struct take_after *t = CONTAINER_OF(then, struct take_after, then);

	take_args_free(&t->args);
	stream_reader_free(&t->reader);
	mem_free(t->formats);
	mem_free(t);
}

static then_fn go_on;

/* Takes the contents of args, and the reader. NULL without memory. */
static struct take_after *take_after_new(
	struct take_args *args, struct reader **reader, const struct exec *x, const struct qstmt *q)
{
	struct take_after *t = mem_zalloc(sizeof(*t));
	size_t n = (size_t)x->bind.n_formats;

	if (t == NULL)
		return NULL;
	if (n > 0 && (t->formats = mem_dup(x->bind.formats, n * sizeof(*t->formats))) == NULL) {
		mem_free(t);
		return NULL;
	}
	t->n_formats = x->bind.n_formats;
	qstmt_columns(q, &t->n_columns);
	ASSERT(qstmt_then(q, QVERB_TAKE));
	t->args = *args;
	t->args.behind_done = true;
	*args = (struct take_args){0};
	t->reader = *reader;
	*reader = NULL;
	t->then = (struct then){.go_on = go_on, .free = free_one};
	t->then.needs_names =
		t->reader != NULL ? !stream_reader_knows(t->reader) : t->args.n_queues == 0;
	return t;
}

static bool start(
	struct taker *taker, struct take_after *t, const struct names *names, struct pg_error *err)
{
	struct bind_values bind = {.n_formats = t->n_formats, .formats = t->formats};

	if (t->reader != NULL)
		return stream_begin_behind_done(&t->reader, names, err);
	if (t->args.n_queues == 0 && !take_args_queues(&t->args, names)) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	if (t->args.n_queues == 0) {
		pg_error_set(err, "42P01", "the queue of the jobs does not exist any more");
		return false;
	}
	if (waiter_start(taker, &t->args, &bind, t->n_columns))
		return true;
	pg_error_set(err, "53200", "out of memory");
	return false;
}

/* The jobs are done; the client gets its answer from the take. */
static void go_on(struct taker *taker, struct then *then, const struct names *names)
{
	struct take_after *t = CONTAINER_OF(then, struct take_after, then);
	struct pg_error err;
	bool ok = false;

	CHECK_TAKER(taker);
	if (then->cancelled)
		pg_error_set(&err, "57014", "canceling statement due to user request");
	else
		ok = start(taker, t, names, &err);
	free_one(then);
	if (ok)
		return;
	pg_error_detail(&err, "The jobs are done; none was taken.");
	taker->ops->fail(taker, &err);
}

/* The queues of jobs that this connection holds. false: it does not hold all of them. */
static bool queues_held(struct taker *taker, const struct call *call, struct names *names)
{
	for (int i = 0; i < call->jobs.n; i++) {
		const struct lease *l = lease_find(taker, call->jobs.tokens[i]);

		if (l == NULL)
			return false;
		names_add(names, l->queue);
	}
	return !names_failed(names);
}

/* Committed by itself, as the take. */
static enum exec_verdict apart(struct exec *x, struct qstmt *q, struct qclient *qc,
	struct take_args *args, struct reader **reader, struct call *call)
{
	bool known = all_done_before(q, call);
	struct names names = {0};
	struct take_after *t = NULL;

	if (args->n_queues > 0 || (*reader != NULL && stream_reader_knows(*reader)) ||
		!queues_held(&qc->taker, call, &names) ||
		(*reader != NULL ? stream_reader_of(*reader, &names)
				 : take_args_queues(args, &names)))
		t = take_after_new(args, reader, x, q);
	names_free(&names);
	if (t == NULL)
		goto no_memory;
	if (known && !t->then.needs_names) {
		if (start(&qc->taker, t, NULL, &x->err)) {
			free_one(&t->then);
			return EXEC_PARK;
		}
	} else if ((!known || call_ask_queues(call, q, &x->err)) &&
		   engine_submit(&qc->taker, q, call, &x->bind, &t->then, &x->err)) {
		return EXEC_PARK;
	}
	free_one(&t->then);
no_memory:
	pg_error_set(&x->err, "53200", "out of memory");
	return EXEC_ERROR;
}

enum exec_verdict then_take(struct exec *x, struct qstmt *q, struct qclient *qc)
{
	bool own = !x->first || client_tx(x->client) != CLIENT_TX_IDLE;
	bool reads = qstmt_has(q, QARG_READER);
	struct reader *reader = NULL;
	struct take_args args = {0};
	struct call call = {0};
	enum exec_verdict v = EXEC_ERROR;

	CHECK_QCLIENT(qc);
	if (x->again) {
		v = reads ? stream_take(x, q, qc) : take(x, q, qc);
		names_free(&qc->then_names);
		return v;
	}
	if (own)
		x->first = false;
	if (reads ? (reader = stream_reader(x, q, qc, NULL)) == NULL
		  : !take_check(x, q, NULL, &args, &x->err))
		goto out;
	if (!call_make(&qc->taker, q, &x->bind, &call, &x->err))
		goto out;
	if (own)
		v = run_in_place(x, q, qc, &call);
	else
		v = apart(x, q, qc, &args, &reader, &call);
out:
	take_args_free(&args);
	stream_reader_free(&reader);
	call_free(&call);
	return v;
}
