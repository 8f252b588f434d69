/*
 * The engine: statements on the merged path. A request is one QUEUE statement of one client; it
 * runs on a server of the same database and role, beside the client's pool, and is answered after
 * its commit. Those of many clients that are alike are merged (engine_merge.c); the others are
 * statements of their own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qlang/explain.h"
#include "qlang/refusal.h"
#include "wire/array.h"
#include "wire/row.h"
#include "await.h"
#include "back.h"
#include "count.h"
#include "engine_int.h"
#include "head.h"
#include "jobs.h"
#include "lease.h"
#include "publish.h"
#include "registry.h"
#include "schema_int.h"
#include "siblings.h"
#include "system.h"
#include "types.h"
#include "wakes.h"

#define NOTICES_MAX 65536 /* bytes that are kept for a client, of what its statement raises */

/* --- requests --- */

static void request_free(struct request *r)
{
	if (r->taker != NULL)
		r->taker->request = NULL;
	call_free(&r->call);
	if (r->then != NULL)
		r->then->free(r->then);
	answer_free(&r->answer);
	bound_end(&r->bound);
	mem_free(r->formats);
	block_put(r, sizeof(*r));
}

static void note_value(struct request *r, const uint8_t *body, size_t len)
{
	struct wire_col value = wire_row_value(body, len);

	if (value.len > 0 && !wire_col_number(&value, &r->value))
		r->value = 0;
}

/* Merged rows are text; this client asked for binary. */
static void id_row(struct request *r, const uint8_t *body, size_t len)
{
	size_t row = build_row_begin(&r->answer.rows, 1);

	note_value(r, body, len);
	array_put_i64(&r->answer.rows, r->value);
	build_row_end(&r->answer.rows, row);
	r->answer.n_rows++;
}

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct request *r = arg;

	/* one row for each payload: NULL when the key was there */
	if (r->item != NULL && wire_row_is_null(body, len))
		return;
	if (r->q != NULL && r->taker != NULL && qstmt_has(r->q, QARG_PARTIAL)) {
		partial_row(
			r->taker, &r->call.jobs, r->answer.n_rows++, body, len, &r->answer.rows);
		return;
	}
	if (r->rows++ == 0 && !r->keeps_rows)
		note_value(r, body, len);
	if (len == 0) { /* there was no memory for it */
		r->answer.rows.failed = true;
		return;
	}
	call_row(&r->call, body, len);
	if (!r->keeps_rows)
		return;
	if (r->task != NULL)
		bound_row(&r->bound, r->task, len);
	if (r->item != NULL && r->binary_id) {
		id_row(r, body, len);
		return;
	}
	build_u8(&r->answer.rows, 'D');
	build_i32(&r->answer.rows, (int64_t)len + 4);
	build_bytes(&r->answer.rows, body, len);
	r->answer.n_rows++;
}

/* Of a statement that stands for one client: what it would have got alone. */
static void on_notice(void *arg, const uint8_t *body, size_t len)
{
	struct request *r = arg;

	if (r->answer.notices.len + len > NOTICES_MAX)
		return;
	build_u8(&r->answer.notices, 'N');
	build_i32(&r->answer.notices, (int64_t)len + 4);
	build_bytes(&r->answer.notices, body, len);
}

static void put_tag(struct request *r)
{
	const struct qverb *v = qstmt_last(r->q);

	switch (v->tag) {
	case QTAG_FIXED:
		util_strlcpy(r->answer.tag, v->tag_text, sizeof(r->answer.tag));
		break;
	case QTAG_ROWS:
		answer_tag(&r->answer, v->tag_text, r->rows);
		break;
	case QTAG_VALUE:
		answer_tag(&r->answer, v->tag_text, r->value);
		break;
	}
}

/* It was committed after its client had left: its jobs are there all the same. */
static void succeeded_for_nobody(const struct request *r)
{
	for (int i = 0; i < r->call.jobs.n && r->is_done; i++) {
		done_remember(r->call.jobs.tokens[i]);
		await_event(r->db, r->call.jobs.tokens[i], "done");
	}
	if (!r->wakes || (r->call.handed > 0 && r->call.handed == r->rows))
		return;
	wake_queues(r->db, &r->call.names, r->call.jobs_mark);
	if (r->call.queue[0] == '\0')
		return;
	waitq_wake_from(r->db, r->call.queue, 0, r->call.mark);
	siblings_tell(r->db, r->call.queue);
	system_notify(r->db, r->call.queue);
}

/* Done; the answer is that of the take. */
static void go_on(struct request *r)
{
	struct taker *t = r->taker;
	struct then *then = r->then;
	struct names names = names_take(&r->call.names);

	r->then = NULL;
	request_free(r);
	then->go_on(t, then, &names);
	names_free(&names);
}

static bool submit_alone(struct request *r);

static void forget_rows(struct request *r)
{
	buf_reset(&r->answer.rows);
	bound_end(&r->bound);
	r->answer.n_rows = 0;
	r->rows = 0;
	r->value = 0;
	r->call.handed = 0;
	if (r->call.topic[0] != '\0')
		names_reset(&r->call.names);
}

/* The statement has failed, and is sent once more: nothing of what it has said holds. */
static void begin_anew(struct request *r)
{
	forget_rows(r);
	call_forget_rows(&r->call);
	wakes_drop(r->taker);
	buf_reset(&r->answer.notices);
}

/* The queue's payloads are of another type than was thought. Who was not told of one gets the rows
 * as they are. */
static bool sent_again(struct request *r, const struct pg_error *cause)
{
	enum qpayload payload;
	struct pg_error err;

	if (r->again >= SENT_AGAIN_MAX || r->q->described || r->n_formats > 0)
		return false;
	r->again++;
	if (head_is_refusal(cause, &payload))
		r->q->payload = payload;
	buf_reset(&r->call.sql);
	begin_anew(r);
	return call_sql(&r->call, r->q, &err) && submit_alone(r);
}

/* As a batch is, but not for a client that has cancelled it or is gone (on_done). Rows of PARTIAL have been acted on: which
 * of its jobs were done is known by them. */
static bool repeated(struct request *r, const struct pg_error *err)
{
	if (r->cancelled || !merge_may_repeat(err, r->tries) ||
		(qstmt_has(r->q, QARG_PARTIAL) && r->answer.n_rows > 0))
		return false;
	r->tries++;
	begin_anew(r);
	return submit_alone(r);
}

/* --- outcomes that nobody knows --- */

static void now_lost(struct request *r)
{
	r->lost = true;
	if (r->is_done)
		doubt_remember(r->taker, &r->call.jobs);
}

static void on_lost(void *arg, const struct merge_lost *lost)
{
	(void)lost;
	now_lost(arg);
}

/* What its client may do. */
static void say_unknown(struct pg_error *err, const struct qstmt *q)
{
	switch (q->verb->id) {
	case QVERB_PUSH:
		pg_error_detail(err, "Whether it was pushed is not known.");
		pg_error_hint(err,
			"Look whether it is there before it is pushed again; with a KEY a push may be repeated.");
		break;
	case QVERB_DONE:
		pg_error_detail(err, "Whether the job is done is not known.");
		pg_error_hint(err, "Repeat it with the same token: it is answered as it ended.");
		break;
	default:
		if (q->verb->columns != NULL)
			return;
		pg_error_detail(err, "Whether the statement was carried out is not known.");
		pg_error_hint(err, "Look at the queue before it is repeated.");
	}
}

/* The same DONE was lost before, and its jobs are gone (queue._why_gone), or in the archive as
 * done; or its delivery is gone (queue._delivery_lost). */
static bool was_done(const struct request *r, const struct pg_error *err)
{
	static const char *const gone[] = {"The job is finished and gone.", "The job was done at ",
		"The delivery is done and gone."};
	bool said = false;

	for (size_t i = 0; i < ARRAY_LEN(gone); i++)
		said = said || strncmp(err->detail, gone[i], strlen(gone[i])) == 0;
	return said && r->is_done && strcmp(err->sqlstate, "QB001") == 0 &&
	       !registry_was_away(r->db) && doubt_is_over(&r->call.jobs);
}

/* As one that is repeated after its success. true: what comes after it is asked for; false: it can
 * be answered. */
static bool done_before(struct request *r)
{
	struct pg_error err;

	for (int i = 0; i < r->call.jobs.n; i++) {
		done_remember(r->call.jobs.tokens[i]);
		if (r->taker != NULL) {
			usec_t since;

			(void)lease_finish(r->taker, r->call.jobs.tokens[i], true, false, &since);
		}
	}
	if (r->taker == NULL || r->then == NULL || !r->then->needs_names)
		return false;
	return call_ask_queues(&r->call, r->q, &err) && submit_alone(r);
}

static void on_done(void *arg, const struct pg_error *err)
{
	struct request *r = arg;
	struct taker *t = r->taker;
	enum qpayload payload;
	bool merged = r->item != NULL, by_doubt = false;
	struct answer answer;

	INVARIANT((r->task != NULL) != merged, "the end of a request that runs nowhere, or twice");
	INVARIANT(t == NULL || t->request == r, "the end of a request that nobody has made");
	if (r->task != NULL && task_lost_in(r->task) != 0)
		now_lost(r);
	r->task = NULL;
	r->item = NULL;
	err = bound_error(&r->bound, err, BOUND_LIMIT);
	if (err != NULL && was_done(r, err)) {
		if (done_before(r))
			return;
		err = NULL;
		by_doubt = true;
	}
	if (err != NULL && strcmp(err->sqlstate, "3F000") == 0)
		schema_suspect(r->db);
	if (t == NULL) {
		if (err == NULL)
			succeeded_for_nobody(r);
		request_free(r);
		return;
	}
	if (!merged && repeated(r, err))
		return;
	if (err != NULL) {
		struct pg_error copy = *err;

		bool has_rows = (r->q->verb->flags & QVERB_PAYLOAD) != 0;

		if ((head_is_refusal(err, &payload) && !qstmt_then(r->q, QVERB_MOVE)) ||
			(has_rows && head_is_torn(err))) {
			types_forget(r->db, r->q, NULL);
			if (has_rows && sent_again(r, err))
				return;
			/* what looks so each time is an error of the client's own */
			if (r->again == 0 || !head_is_torn(err))
				types_changed(&copy);
		}
		if (!refusal_reword(&copy, refusal_rights(r->q)))
			(void)explain_value(&copy, r->q->verb, r->q);
		if (r->lost)
			say_unknown(&copy, r->q);
		count_failed(r->q->verb->id);
		wakes_drop(t);
		request_free(r);
		t->ops->fail(t, &copy);
		return;
	}
	if (qstmt_has(r->q, QARG_PARTIAL))
		partial_ended(&r->call.jobs);
	if (by_doubt ? !qstmt_then_pushes(r->q)
		     : (merged && r->q->verb->id == QVERB_DONE) || qstmt_has(r->q, QARG_PARTIAL))
		r->rows = jobs_distinct(&r->call.jobs);
	call_succeeded(t, r->q, &r->call, r->rows, false);
	if (r->then != NULL) {
		go_on(r);
		return;
	}
	put_tag(r);
	answer = r->answer;
	r->answer = (struct answer){0};
	request_free(r);
	t->ops->answer(t, &answer);
}

/* --- of those that are merged --- */

static void on_again(void *arg)
{
	forget_rows(arg);
}

/* Of a publication: a job, or an event. */
static void on_published(void *arg, const struct wire_col *queue, const char *job, bool another)
{
	struct request *r = arg;
	size_t row;

	r->rows++;
	if (another && queue->len > 0 && queue->len <= QSTMT_QUEUE_MAX)
		names_add_bytes(&r->call.names, queue->data, (size_t)queue->len);
	if (!r->keeps_rows)
		return;
	row = build_row_begin(&r->answer.rows, 2);
	build_row_value(&r->answer.rows, queue->data, queue->len);
	build_row_value(&r->answer.rows, job, job != NULL ? (int32_t)strlen(job) : -1);
	build_row_end(&r->answer.rows, row);
	r->answer.n_rows++;
}

static void on_common(void *arg, const uint8_t *body, size_t len, int first)
{
	struct request *r = arg;

	if (len == 0) /* there was no memory for it */
		r->answer.rows.failed = true;
	else
		published_row(body, len, first, r->n_payloads, on_published, r);
}

static void on_handed(void *arg)
{
	struct request *r = arg;

	r->call.handed++;
}

static const struct merge_ops merged_ops = {.row = on_row,
	.handed = on_handed,
	.common = on_common,
	.again = on_again,
	.lost = on_lost,
	.done = on_done};

/* --- submission --- */

/* Those about some jobs are brief. Others may have a whole table to do, or wait for who ends what
 * they come after. */
static enum task_time time_of(const struct qstmt *q)
{
	bool of_jobs = qstmt_count(q, QARG_JOB) + qstmt_count(q, QARG_REF) > 0;

	return (q->verb->id == QVERB_PUSH && !qstmt_has(q, QARG_AFTER)) || of_jobs ? TASK_BRIEF
										   : TASK_UNLIMITED;
}

static bool submit_alone(struct request *r)
{
	static const struct task_ops ops = {.row = on_row, .done = on_done, .notice = on_notice};
	struct task_spec spec = {.ops = &ops,
		.arg = r,
		.sql = buf_cstr(&r->call.sql),
		.prepare = r->q->n_params > 0 && r->call.known.len == 0,
		.time = time_of(r->q),
		.oids = r->call.oids,
		.n_params = r->call.n_params,
		.params = r->call.params,
		.n_formats = r->formats != NULL ? r->n_formats : 0,
		.formats = r->formats};

	INVARIANT(r->task == NULL && r->item == NULL, "a request that is under way is sent");
	bound_end(&r->bound);
	r->taker->ops->speaks(r->taker, &spec);
	r->task = task_submit(r->taker->pool, &spec);
	return r->task != NULL;
}

/* They outlast the client's message: it may be sent more than once. */
static bool keep_formats(struct request *r, const struct bind_values *bind)
{
	if (!r->keeps_rows || bind->n_formats == 0)
		return true;
	r->formats = mem_dup(bind->formats, (size_t)bind->n_formats * sizeof(*bind->formats));
	return r->formats != NULL;
}

bool engine_submit(struct taker *t, struct qstmt *q, struct call *call,
	const struct bind_values *bind, struct then *then, struct pg_error *err)
{
	struct request *r = block_zget(sizeof(*r));
	int n_columns;

	CHECK_TAKER(t);
	if (r == NULL) {
		pg_error_set(err, "53200", "out of memory");
		return false;
	}
	INVARIANT(t->request == NULL && t->park == NULL, "one has two requests");
	r->taker = t;
	r->db = t->db;
	r->q = q;
	r->call = *call;
	*call = (struct call){0};
	r->then = then;
	r->keeps_rows = qstmt_columns(q, &n_columns) != NULL && then == NULL;
	r->wakes = (qstmt_last(q)->flags & QVERB_WAKES) != 0;
	r->n_formats = bind->n_formats;
	r->n_payloads = qstmt_count(q, QARG_PAYLOAD);
	r->is_done = q->verb->id == QVERB_DONE;
	t->request = r;
	r->item = request_merge(r, bind, &merged_ops);
	if (r->item != NULL)
		return true;
	if (call_sql(&r->call, q, err)) {
		if (keep_formats(r, bind) && submit_alone(r))
			return true;
		pg_error_set(err, "53200", "out of memory");
	}
	r->then = NULL;
	request_free(r);
	return false;
}

/* Takes it back if nothing of it was sent. */
static bool take_back(struct request *r)
{
	if (r->item != NULL ? !merge_drop(r->item) : r->task == NULL || task_is_sent(r->task))
		return false;
	r->item = NULL;
	if (r->task != NULL)
		task_drop(&r->task);
	request_free(r);
	return true;
}

/* One that is on its way is too late to be cancelled: it ends as it ends, within a commit. */
void engine_cancel(struct taker *t)
{
	struct request *r = t->request;
	struct pg_error err;

	CHECK_TAKER(t);
	if ((r->item != NULL && merge_is_running(r->item)) || !take_back(r)) {
		r->cancelled = true;
		if (r->then != NULL)
			r->then->cancelled = true;
		return;
	}
	pg_error_set(&err, "57014", "canceling statement due to user request");
	t->ops->fail(t, &err);
}

/* What was sent runs on; what was not is forgotten. */
void engine_taker_ended(struct taker *t)
{
	struct request *r = t->request;

	CHECK_TAKER(t);
	if (r == NULL)
		return;
	t->request = NULL;
	r->taker = NULL;
	(void)take_back(r);
}
