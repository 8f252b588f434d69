/*
 * The engine: statements on the merged path. A request is one QUEUE statement of one client; it
 * runs on a server of the same database and role, beside the client's pool, and is answered after
 * its commit. PUSH and DONE of many clients are merged (merge.c); the others are statements of
 * their own.
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
#include "bound.h"
#include "queue_call.h"
#include "count.h"
#include "engine.h"
#include "head.h"
#include "jobs.h"
#include "lease.h"
#include "merge.h"
#include "publish.h"
#include "queue_int.h"
#include "registry.h"
#include "schema_int.h"
#include "siblings.h"
#include "system.h"
#include "token.h"
#include "types.h"
#include "wakes.h"

#define NOTICES_MAX 65536 /* bytes that are kept for a client, of what its statement raises */

/* --- requests --- */

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

/* --- merging --- */

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

/* The text of an argument, when it can be known here: literals without casts, parameters. */
static bool plain_text(
	const struct qvalue *v, const struct bind_values *bind, struct buf *out, bool *null)
{
	struct qbind qb = bind_read(bind);

	*null = false;
	if (v->cast)
		return false;
	switch (qvalue_eval(v, &qb, out)) {
	case QEVAL_OK:
		return !buf_failed(out);
	case QEVAL_NULL:
		*null = true;
		return true;
	case QEVAL_BAD:
		break;
	}
	return false;
}

/* Options of a PUSH: equal in all of a batch, so they are in its key. */
struct push_options {
	struct buf text[8];
	struct bind_param params[9];
};

/* One of them, as a parameter; what makes it another one stands in the key. */
static bool option_read(const struct qvalue *v, const struct bind_values *bind, struct buf *text,
	struct bind_param *param, struct buf *key)
{
	bool null = true;

	if (v != NULL && !plain_text(v, bind, text, &null))
		return false;
	*param = (struct bind_param){.len = -1};
	buf_putc(key, null ? 'n' : 't');
	if (null)
		return true;
	*param = (struct bind_param){.data = text->data, .len = (int32_t)text->len};
	build_i32(key, (int64_t)text->len);
	buf_put(key, text->data, text->len);
	return true;
}

static bool push_options_read(struct push_options *o, const struct qstmt *q,
	const struct bind_values *bind, struct buf *key)
{
	static const enum qarg_id ids[] = {QARG_QUEUE, QARG_PRIORITY, QARG_DELAY, QARG_AT,
		QARG_HEADERS, QARG_EXPIRES, QARG_ATTEMPTS, QARG_BATCH};
	static const int at[] = {0, 2, 3, 4, 5, 6, 7, 8};

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		if (!option_read(qstmt_one(q, ids[i]), bind, &o->text[i], &o->params[at[i]], key))
			return false;
	}
	return true;
}

/* Has it nothing but payloads and a priority? */
static bool push_is_plain(const struct push_options *o)
{
	for (size_t i = 3; i < ARRAY_LEN(o->params); i++)
		if (o->params[i].len >= 0)
			return false;
	return true;
}

/* An interval that is zero, as far as its text shows it. */
static bool is_zero(const struct bind_param *p)
{
	bool any = false;

	for (int32_t i = 0; i < p->len; i++) {
		if (p->data[i] >= '1' && p->data[i] <= '9')
			return false;
		any |= p->data[i] == '0';
	}
	return any;
}

/* Are its jobs ready as they come? */
static bool push_is_now(const struct push_options *o)
{
	const struct bind_param *delay = &o->params[3], *at = &o->params[4];

	return at->len < 0 && (delay->len < 0 || is_zero(delay));
}

static void push_options_free(struct push_options *o)
{
	for (size_t i = 0; i < ARRAY_LEN(o->text); i++)
		buf_free(&o->text[i]);
}

/* Payloads as elements of the array. A NULL is left to the statement alone, which refuses it. */
static bool push_payloads(const struct qstmt *q, const struct bind_values *bind, struct buf *values)
{
	int n = qstmt_count(q, QARG_PAYLOAD);
	struct buf text = BUF_INIT;
	bool null = false, ok = true;

	for (int i = 0; i < n && ok; i++) {
		buf_reset(&text);
		ok = plain_text(qstmt_value(q, QARG_PAYLOAD, i), bind, &text, &null) && !null;
		if (ok)
			build_row_value(values, text.data, (int32_t)text.len);
	}
	buf_free(&text);
	return ok;
}

#define KEY_SIZE 256 /* most of them */

static void begin_key(
	struct buf *key, char kind, const struct request *r, const struct task_settings *s)
{
	struct pool *pool = r->taker->pool;

	buf_reserve(key, KEY_SIZE);
	buf_put(key, &pool, sizeof(pool));
	buf_putc(key, kind);
	if (s != NULL)
		task_settings_key(s, key);
}

static struct merge_item *merge_push(struct request *r, const struct bind_values *bind)
{
	bool batch = qstmt_has(r->q, QARG_BATCH);
	const struct queue_call *call =
		&queue_calls[r->q->bytes ? batch ? CALL_PUSH_BATCH_BYTES : CALL_PUSH_BYTES
			     : batch     ? CALL_PUSH_BATCH
					 : CALL_PUSH];
	struct push_options o = {0};
	struct merge_spec spec = {.sql = call->sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = 1,
		.count_param = -1,
		.params = o.params,
		.kind = head_kind('P', r->call.queue),
		.settings = r->taker->ops->settings(r->taker),
		.split = true};
	struct buf key = BUF_INIT, values = BUF_INIT;
	struct merge_item *i = NULL;
	int n = qstmt_count(r->q, QARG_PAYLOAD);

	r->binary_id = bind->n_formats > 0 && bind->formats[0] == 1;
	if (spec.settings != NULL) {
		begin_key(&key, r->q->bytes ? 'B' : 'P', r, spec.settings);
		buf_putc(&key, batch ? 'b' : '-');
		if (push_options_read(&o, r->q, bind, &key) && push_payloads(r->q, bind, &values)) {
			if (push_is_now(&o) && !batch && r->call.queue[0] != '\0')
				spec.shape_arg = shape_push(r->db, r->taker->pool, r->call.queue,
					push_is_plain(&o) ? SHAPE_PLAIN : SHAPE_OPTIONS);
			spec.shape = spec.shape_arg != NULL ? &head_push : NULL;
			i = merge_add(r->taker->pool, &key, &spec, &values, n, n, &merged_ops, r);
		}
	}
	merge_spec_free(&spec);
	push_options_free(&o);
	buf_free(&key);
	buf_free(&values);
	return i;
}

/* What is not NULL is text. */
static bool put_element(struct buf *values, const struct qvalue *v, const struct bind_values *bind)
{
	struct buf text = BUF_INIT;
	bool null = true, ok = v == NULL || plain_text(v, bind, &text, &null);

	if (ok)
		build_row_value(values, text.data, null ? -1 : (int32_t)text.len);
	buf_free(&text);
	return ok;
}

/* Payload, key and group of each job. A statement with a key has one. */
static bool push_triples(const struct qstmt *q, const struct bind_values *bind, struct buf *values)
{
	int n = qstmt_count(q, QARG_PAYLOAD);

	for (int i = 0; i < n; i++) {
		struct buf payload = BUF_INIT;
		bool null = true, ok;

		ok = plain_text(qstmt_value(q, QARG_PAYLOAD, i), bind, &payload, &null) && !null;
		if (ok)
			build_row_value(values, payload.data, (int32_t)payload.len);
		buf_free(&payload);
		if (!ok || !put_element(values, qstmt_one(q, QARG_KEY), bind) ||
			!put_element(values, qstmt_one(q, QARG_GROUP), bind))
			return false;
	}
	return n == 1 || !qstmt_has(q, QARG_KEY);
}

/* What happens to a job that is there; NULL: not one of these, or of no key. */
static const char *push_policy(const struct qstmt *q, const struct bind_values *bind)
{
	static const char *const policies[] = {"ignore", "replace", "rerun", "error"};
	const struct qvalue *v = qstmt_one(q, QARG_DUPLICATE);
	const char *found = v == NULL ? policies[0] : NULL;
	struct buf text = BUF_INIT;
	bool null;

	if (v != NULL && qstmt_has(q, QARG_KEY) && plain_text(v, bind, &text, &null) && !null)
		for (size_t i = 0; i < ARRAY_LEN(policies); i++)
			if (text.len == strlen(policies[i]) &&
				!util_memcasecmp((const char *)text.data, policies[i], text.len))
				found = policies[i];
	buf_free(&text);
	return found;
}

static struct merge_item *merge_keyed(struct request *r, const struct bind_values *bind)
{
	const struct queue_call *call = &queue_calls[r->q->bytes ? CALL_KEYED_BYTES : CALL_KEYED];
	const char *policy = push_policy(r->q, bind);
	bool with_old = qstmt_has(r->q, QARG_RETURNING);
	struct push_options o = {0};
	struct bind_param params[5] = {{0}};
	struct merge_spec spec = {.sql = call->sql,
		.patient_sql =
			queue_calls[r->q->bytes ? CALL_KEYED_BYTES_WAITS : CALL_KEYED_WAITS].sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = 1,
		.count_param = -1,
		.params = params,
		.kind = head_kind('K', r->call.queue),
		.settings = r->taker->ops->settings(r->taker),
		.in_order = true,
		.split = true};
	struct buf key = BUF_INIT, values = BUF_INIT;
	struct merge_item *i = NULL;
	int n = qstmt_count(r->q, QARG_PAYLOAD);

	r->binary_id = bind->n_formats > 0 && bind->formats[0] == 1;
	if (spec.settings != NULL && policy != NULL) {
		begin_key(&key, r->q->bytes ? 'k' : 'K', r, spec.settings);
		buf_puts(&key, policy);
		buf_putc(&key, with_old ? 'o' : 'n');
		if (push_options_read(&o, r->q, bind, &key) && push_is_plain(&o) &&
			push_triples(r->q, bind, &values)) {
			params[0] = o.params[0];
			params[2] = o.params[2];
			params[3] = (struct bind_param){
				.data = (const uint8_t *)policy, .len = (int32_t)strlen(policy)};
			params[4] = (struct bind_param){
				.data = (const uint8_t *)(with_old ? "t" : "f"), .len = 1};
			if (r->call.queue[0] != '\0')
				spec.shape_arg = shape_push(
					r->db, r->taker->pool, r->call.queue, SHAPE_KEYED);
			spec.shape = spec.shape_arg != NULL ? &head_push : NULL;
			i = merge_add(
				r->taker->pool, &key, &spec, &values, 3 * n, n, &merged_ops, r);
		}
	}
	merge_spec_free(&spec);
	push_options_free(&o);
	buf_free(&key);
	buf_free(&values);
	return i;
}

/* The topic before each payload. */
static bool publish_pairs(const struct qstmt *q, const struct bind_values *bind, struct buf *values)
{
	const struct qvalue *v = qstmt_one(q, QARG_TOPIC);
	int n = qstmt_count(q, QARG_PAYLOAD);
	struct buf topic = BUF_INIT, payload = BUF_INIT;
	bool null = false, ok = plain_text(v, bind, &topic, &null) && !null;

	for (int i = 0; i < n && ok; i++) {
		buf_reset(&payload);
		ok = plain_text(qstmt_value(q, QARG_PAYLOAD, i), bind, &payload, &null) && !null;
		if (!ok)
			break;
		build_row_value(values, topic.data, (int32_t)topic.len);
		build_row_value(values, payload.data, (int32_t)payload.len);
	}
	buf_free(&topic);
	buf_free(&payload);
	return ok;
}

static bool all_common(const uint8_t *body, size_t len)
{
	(void)body;
	(void)len;
	return true;
}

static struct merge_item *merge_publish(struct request *r, const struct bind_values *bind)
{
	static const int16_t formats[] = {0, 1, 1, 1};
	const struct queue_call *call = &queue_calls[CALL_PUBLISH];
	const char *mandatory = qstmt_has(r->q, QARG_MANDATORY) ? "t" : "f";
	struct buf headers = BUF_INIT, priority = BUF_INIT;
	struct bind_param params[4] = {{0}};
	struct merge_spec spec = {.sql = call->sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = 0,
		.count_param = -1,
		.params = params,
		.n_formats = ARRAY_LEN(formats),
		.formats = formats,
		.kind = head_kind('U', r->call.topic),
		.settings = r->taker->ops->settings(r->taker),
		.is_common = all_common,
		.split = true};
	struct buf key = BUF_INIT, values = BUF_INIT;
	struct merge_item *i = NULL;
	int n = qstmt_count(r->q, QARG_PAYLOAD);

	params[3] = (struct bind_param){.data = (const uint8_t *)mandatory, .len = 1};
	if (spec.settings != NULL) {
		begin_key(&key, 'U', r, spec.settings);
		buf_puts(&key, r->call.topic);
		buf_putc(&key, '\0');
		buf_puts(&key, mandatory);
		if (option_read(qstmt_one(r->q, QARG_HEADERS), bind, &headers, &params[1], &key) &&
			option_read(qstmt_one(r->q, QARG_PRIORITY), bind, &priority, &params[2],
				&key) &&
			publish_pairs(r->q, bind, &values)) {
			spec.shape_arg = publish_shape_new(r->db, r->taker->pool, r->call.topic);
			spec.shape = spec.shape_arg != NULL ? &publish_shape : NULL;
			i = merge_add(
				r->taker->pool, &key, &spec, &values, 2 * n, n, &merged_ops, r);
		}
	}
	merge_spec_free(&spec);
	buf_free(&headers);
	buf_free(&priority);
	buf_free(&key);
	buf_free(&values);
	return i;
}

/* Of nothing but payloads, a priority and headers. */
static bool is_plain_publish(const struct request *r)
{
	static const enum qarg_id others[] = {QARG_DELAY, QARG_AT, QARG_EXPIRES, QARG_ATTEMPTS,
		QARG_KEY, QARG_KEEP_FOR, QARG_DUPLICATE, QARG_GROUP, QARG_BATCH};

	if (r->q->verb->id != QVERB_PUBLISH || r->q->bytes || r->call.topic[0] == '\0')
		return false;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (qstmt_has(r->q, others[i]))
			return false;
	return true;
}

/* The number of the queue that all of them are of; 0: of several, or they are no tokens. */
static int jobs_number(const struct jobs *j)
{
	int64_t number = j->n > 0 ? token_strict_number(j->tokens[0]) : 0;

	for (int i = 1; i < j->n && number != 0; i++)
		if (token_strict_number(j->tokens[i]) != number)
			number = 0;
	return (int)number;
}

/* The tokens as elements of an array, each followed by the result if there is one. */
static void done_values(const struct request *r, const struct buf *result, struct buf *values)
{
	for (int j = 0; j < r->call.jobs.n; j++) {
		const char *token = r->call.jobs.tokens[j];

		array_put_text(values, token);
		if (result != NULL)
			build_row_value(values, result->data, (int32_t)result->len);
	}
}

/* One array holds it all: with the same result for many jobs that may be too much. */
static bool results_fit(const struct request *r, const struct buf *result)
{
	return result->len * (size_t)r->call.jobs.n <= MERGE_BYTES_MAX || r->call.jobs.n == 1;
}

/* result NULL: without one. */
static struct merge_item *merge_done_with(struct request *r, const struct buf *result)
{
	const struct queue_call *call = &queue_calls[result == NULL ? CALL_DONE : CALL_DONE_PAIRS];
	struct bind_param none = {.len = -1};
	struct merge_spec spec = {.sql = call->sql,
		.patient_sql =
			queue_calls[result == NULL ? CALL_DONE_WAITS : CALL_DONE_PAIRS_WAITS].sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = 0,
		.count_param = -1,
		.params = &none,
		.settings = r->taker->ops->settings(r->taker),
		.split = true};
	struct buf key = BUF_INIT, values = BUF_INIT;
	struct merge_item *i = NULL;
	int n = r->call.jobs.n, number = jobs_number(&r->call.jobs);

	if (number > 0) {
		spec.shape_arg = shape_done(r->db, r->taker->pool, number);
		spec.kind = (uint64_t)number << 2 | (result == NULL ? 1 : 3);
	}
	if (spec.shape_arg != NULL)
		spec.shape = result == NULL ? &head_done : &head_done_results;
	if (spec.settings != NULL) {
		begin_key(&key, result == NULL ? 'D' : 'R', r, spec.settings);
		buf_put(&key, &number, sizeof(number));
		done_values(r, result, &values);
		i = merge_add(r->taker->pool, &key, &spec, &values, result == NULL ? n : 2 * n, n,
			&merged_ops, r);
	}
	merge_spec_free(&spec);
	buf_free(&key);
	buf_free(&values);
	return i;
}

static struct merge_item *merge_done(struct request *r, const struct bind_values *bind)
{
	const struct qvalue *v = qstmt_one(r->q, QARG_RESULT);
	struct buf result = BUF_INIT;
	struct merge_item *i = NULL;
	bool null = true;

	if (v == NULL || (plain_text(v, bind, &result, &null) && (null || results_fit(r, &result))))
		i = merge_done_with(r, null ? NULL : &result);
	buf_free(&result);
	return i;
}

/* A DONE that is nothing else. */
static bool is_plain_done(const struct request *r)
{
	return r->q->verb->id == QVERB_DONE && !qstmt_then_pushes(r->q) &&
	       !qstmt_has(r->q, QARG_KEEP) && !qstmt_has(r->q, QARG_PARTIAL) &&
	       r->call.jobs.n > 0 && !r->call.jobs.elsewhere &&
	       (r->then == NULL || !r->then->needs_names);
}

static bool submit_merged(struct request *r, const struct bind_values *bind)
{
	bool once = qstmt_has(r->q, QARG_KEEP_FOR) || qstmt_has(r->q, QARG_NEWER);
	bool keyed = qstmt_has(r->q, QARG_KEY) || qstmt_has(r->q, QARG_GROUP) ||
		     qstmt_has(r->q, QARG_DUPLICATE);

	if (r->q->verb->id == QVERB_PUSH && r->q->returning == QRETURN_ID && !once &&
		!qstmt_has(r->q, QARG_AFTER))
		r->item = keyed ? merge_keyed(r, bind) : merge_push(r, bind);
	else if (is_plain_done(r))
		r->item = merge_done(r, bind);
	else if (is_plain_publish(r))
		r->item = merge_publish(r, bind);
	return r->item != NULL;
}

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
	if (submit_merged(r, bind))
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
