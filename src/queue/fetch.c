/*
 * Asking the database: the take of a waiter, merged with those that are alike. Knows nothing of wait
 * queues but that they count, and nothing of the rows that come (taken.c).
 */
#include <stdio.h>
#include <string.h>

#include "wire/array.h"
#include "wire/row.h"
#include "bound.h"
#include "consumer.h"
#include "head.h"
#include "registry.h"
#include "take.h"
#include "wait_int.h"

static void put_queues(struct buf *b, const struct take_args *a)
{
	size_t start = array_begin(b, OID_TEXT, false);

	for (int i = 0; i < a->n_queues; i++)
		array_put_text(b, a->queues[i]);
	array_end(b, start, a->n_queues);
}

static struct bind_param text_param(const char *s)
{
	return (struct bind_param){
		.data = (const uint8_t *)s, .len = s != NULL ? (int32_t)strlen(s) : -1};
}

static void put_key_text(struct buf *key, const char *s)
{
	buf_putc(key, s != NULL ? 't' : 'n');
	if (s != NULL)
		buf_put(key, s, strlen(s) + 1);
}

#define KEY_SIZE 256 /* most of them */

/* A worker of ours has bounds of its own, and nobody there who could ask for fewer. */
static const char *bounded(const struct waiter *w)
{
	return w->taker->ops->part != NULL ? BOUND_LIMIT : NULL;
}

/* Takes that are alike in everything but how many jobs they want become one. */
static void put_key(struct buf *key, const struct waiter *w, const struct task_settings *settings,
	const int16_t *formats, int n_formats)
{
	buf_reserve(key, KEY_SIZE);
	buf_put(key, &w->pool, sizeof(w->pool));
	buf_putc(key, w->args.pop ? 'p' : 't');
	task_settings_key(settings, key);
	buf_put(key, formats, (size_t)n_formats * sizeof(*formats));
	put_key_text(key, w->args.lease);
	put_key_text(key, w->args.as);
	buf_putc(key, w->args.hold > 0 ? 'h' : 'l');
	buf_putc(key, bounded(w) != NULL ? 'b' : 'u');
	/* each by itself: a group's jobs are for one of them; who was stopped too often for others */
	if (w->args.grouped || w->alone || w->stopped == STOPPED_MAX)
		buf_put(key, &w->number, sizeof(w->number));
	if (w->alone)
		put_key_text(key, w->consumer);
	buf_putc(key, (char)('0' + w->args.payload));
	buf_put(key, &w->stamp, sizeof(w->stamp));
	for (int i = 0; i < w->args.n_queues; i++)
		put_key_text(key, w->args.queues[i]);
}

/* What put_key() puts, without their settings and formats. */
bool fetch_is_shared(const struct waiter *a, const struct waiter *b)
{
	const struct take_args *x = &a->args, *y = &b->args;

	if (a->pool != b->pool || a->alone || b->alone || x->where != NULL || y->where != NULL ||
		x->grouped || y->grouped || x->pop != y->pop || (x->hold > 0) != (y->hold > 0) ||
		x->payload != y->payload || !take_same_text(x->lease, y->lease) ||
		!take_same_text(x->as, y->as) || x->n_queues != y->n_queues)
		return false;
	for (int i = 0; i < x->n_queues; i++)
		if (strcmp(x->queues[i], y->queues[i]) != 0)
			return false;
	return true;
}

static const enum call_id take_calls[QPAYLOAD_COUNT] = {
	[QPAYLOAD_JSONB] = CALL_TAKE,
	[QPAYLOAD_TEXT] = CALL_TAKE_TEXT,
	[QPAYLOAD_BYTEA] = CALL_TAKE_BYTEA,
};
static const enum call_id grouped_calls[QPAYLOAD_COUNT] = {
	[QPAYLOAD_JSONB] = CALL_TAKE_LOT,
	[QPAYLOAD_TEXT] = CALL_TAKE_LOT_TEXT,
	[QPAYLOAD_BYTEA] = CALL_TAKE_LOT_BYTEA,
};
static const enum call_id alone_calls[QPAYLOAD_COUNT] = {
	[QPAYLOAD_JSONB] = CALL_TAKE_ALONE,
	[QPAYLOAD_TEXT] = CALL_TAKE_ALONE_TEXT,
	[QPAYLOAD_BYTEA] = CALL_TAKE_ALONE_BYTEA,
};

static struct merge_item *ask(
	struct waiter *w, const struct bind_param *params, const int16_t *formats)
{
	const enum call_id *calls = w->alone          ? alone_calls
				    : w->args.grouped ? grouped_calls
						      : take_calls;
	const struct queue_call *call = &queue_calls[calls[w->args.payload]];
	struct merge_spec spec = {.sql = call->sql,
		.oids = call->oids,
		.n_params = call->n_params,
		.array_param = -1,
		.count_param = 1,
		.seed_param = 6,
		.one_at_a_time = true,
		.bounded = bounded(w),
		.params = params,
		.n_formats = w->n_columns + HIDDEN_COLUMNS,
		.formats = formats,
		.settings = w->taker->ops->settings(w->taker),
		.is_common = wire_row_is_null}; /* no id: it says what will become due */
	struct buf key = BUF_INIT, none = BUF_INIT;
	struct merge_item *i = NULL;

	/* the head of one queue is known, those of several are not */
	if (w->args.n_queues == 1)
		spec.kind = head_kind(calls == take_calls ? 'T' : 'G', w->args.queues[0]);
	if (w->args.n_queues == 1 && w->args.limit > 0 && calls == take_calls)
		spec.shape_arg = shape_take(w->db, w->pool, w->args.queues[0], w->args.payload);
	spec.shape = spec.shape_arg != NULL ? &head_take : NULL;
	if (spec.settings != NULL) {
		put_key(&key, w, spec.settings, formats, spec.n_formats);
		/* who waits counts as a value (shape.c) */
		i = merge_add(w->pool, &key, &spec, &none, w->args.wait > 0, w->args.limit,
			&w->ops->fetch, w);
	}
	merge_spec_free(&spec);
	buf_free(&key);
	return i;
}

/* With a condition: those that are equal, and have looked at the same, become one. */
static struct merge_item *ask_where(struct waiter *w, const char *proxy, const int16_t *formats)
{
	struct merge_spec spec = {.one_at_a_time = true,
		.bounded = bounded(w),
		.n_formats = w->n_columns + HIDDEN_COLUMNS,
		.formats = formats,
		.settings = w->taker->ops->settings(w->taker),
		.is_common = wire_row_is_null};
	struct buf key = BUF_INIT, none = BUF_INIT;
	struct merge_item *i = NULL;

	if (spec.settings != NULL && where_spec(w, proxy, &spec)) {
		put_key(&key, w, spec.settings, formats, spec.n_formats);
		for (int n = 0; w->members != NULL && n < w->args.n_queues; n++)
			buf_put(&key, &w->members[n].asked_low, sizeof(w->members[n].asked_low));
		buf_putc(&key, w->members != NULL ? 'm' : 'f');
		take_where_key(w->args.where, &key);
		i = merge_add(w->pool, &key, &spec, &none, w->args.wait > 0, w->args.limit,
			&w->ops->fetch, w);
	}
	merge_spec_free(&spec);
	buf_free(&key);
	return i;
}

/* Never calls back before it returns. false: memory. */
bool fetch_start(struct waiter *w)
{
	int16_t formats[MERGE_COLUMNS_MAX];
	struct buf queues = BUF_INIT;
	struct bind_param params[8];
	char proxy[UTIL_I64_SIZE] = "";
	const char *consumer = NULL;
	bool ok = w->db->alone == NULL || consumer_asks(w, &consumer);

	CHECK_WAITER(w);
	put_queues(&queues, &w->args);
	params[0] =
		(struct bind_param){.data = queues.data, .len = (int32_t)queues.len, .format = 1};
	params[1] = text_param(NULL); /* how many: the sum of the batch */
	params[2] = text_param(w->args.lease);
	params[3] = text_param(w->args.as);
	params[4] = text_param(w->args.pop ? "t" : "f");
	w->stamp = w->args.pop ? 0 : registry_stamp(w->db);
	if (taken_proxy(w) != 0)
		(void)util_print_i64(proxy, taken_proxy(w));
	params[5] = text_param(proxy);
	params[6] = text_param(NULL); /* of each batch its own */
	params[7] = text_param(consumer);
	taken_formats(w, formats);
	if (w->args.where != NULL)
		looks_begin(w);
	for (int i = 0; w->members != NULL && i < w->args.n_queues; i++) {
		w->members[i].gen = w->members[i].waitq->gen;
		w->members[i].waitq->n.fetches++;
	}
	w->n_taken = 0;
	w->due_ms = DUE_UNKNOWN;
	w->wakes = w->db->wakes;
	w->db->fetches++;
	if (ok && !buf_failed(&queues) && taken_reserve(w, w->args.limit))
		w->item = w->args.where != NULL ? ask_where(w, proxy, formats)
						: ask(w, params, formats);
	buf_free(&queues);
	return w->item != NULL;
}
