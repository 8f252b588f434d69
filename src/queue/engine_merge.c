/*
 * Which requests are merged, and with which others: those whose values are known here, and that have equal options. The
 * others go alone (engine.c, which also has what becomes of both). What is done with those that are alike: merge.c.
 * Entry point: request_merge().
 */
#include <string.h>

#include "wire/array.h"
#include "engine_int.h"
#include "head.h"
#include "jobs.h"
#include "publish.h"
#include "queue_call.h"
#include "queue_int.h"
#include "token.h"

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

static struct merge_item *merge_push(
	struct request *r, const struct bind_values *bind, const struct merge_ops *ops)
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
			i = merge_add(r->taker->pool, &key, &spec, &values, n, n, ops, r);
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

static struct merge_item *merge_keyed(
	struct request *r, const struct bind_values *bind, const struct merge_ops *ops)
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
			i = merge_add(r->taker->pool, &key, &spec, &values, 3 * n, n, ops, r);
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

static struct merge_item *merge_publish(
	struct request *r, const struct bind_values *bind, const struct merge_ops *ops)
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
			i = merge_add(r->taker->pool, &key, &spec, &values, 2 * n, n, ops, r);
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
static struct merge_item *merge_done_with(
	struct request *r, const struct buf *result, const struct merge_ops *ops)
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
			ops, r);
	}
	merge_spec_free(&spec);
	buf_free(&key);
	buf_free(&values);
	return i;
}

static struct merge_item *merge_done(
	struct request *r, const struct bind_values *bind, const struct merge_ops *ops)
{
	const struct qvalue *v = qstmt_one(r->q, QARG_RESULT);
	struct buf result = BUF_INIT;
	struct merge_item *i = NULL;
	bool null = true;

	if (v == NULL || (plain_text(v, bind, &result, &null) && (null || results_fit(r, &result))))
		i = merge_done_with(r, null ? NULL : &result, ops);
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

struct merge_item *request_merge(
	struct request *r, const struct bind_values *bind, const struct merge_ops *ops)
{
	bool once = qstmt_has(r->q, QARG_KEEP_FOR) || qstmt_has(r->q, QARG_NEWER);
	bool keyed = qstmt_has(r->q, QARG_KEY) || qstmt_has(r->q, QARG_GROUP) ||
		     qstmt_has(r->q, QARG_DUPLICATE);

	INVARIANT(r->task == NULL && r->item == NULL, "a request that is under way is merged");
	if (r->q->verb->id == QVERB_PUSH && r->q->returning == QRETURN_ID && !once &&
		!qstmt_has(r->q, QARG_AFTER))
		return keyed ? merge_keyed(r, bind, ops) : merge_push(r, bind, ops);
	if (is_plain_done(r))
		return merge_done(r, bind, ops);
	if (is_plain_publish(r))
		return merge_publish(r, bind, ops);
	return NULL;
}
