/*
 * What is sent: the statement of a batch, as the spec of its group has it or as its shape makes it of the values of all, and
 * the task that carries it. Must not know: which requests share a batch, and what becomes of it.
 *
 * Entry points: merge_send(), merge_change(); merge_seed().
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "wire/array.h"
#include "merge_int.h"

static struct hist batch_sizes;

int64_t merge_seed(struct batch *b)
{
	CHECK_BATCH(b);
	while (b->seed == 0)
		util_random(&b->seed, sizeof(b->seed));
	return b->seed;
}

void merge_end_flight(struct batch *b, const struct pg_error *err)
{
	void *flight = b->flight;

	b->flight = NULL;
	if (flight != NULL)
		b->group->spec.shape->end(flight, err);
}

static int count_values(const struct batch *b)
{
	const struct merge_item *i;
	int n = 0;

	DL_FOREACH (b->items, i)
		n += i->n_values;
	return n;
}

/* A binary text[] of all values. */
static void put_array(struct buf *array, const struct batch *b)
{
	size_t start = array_begin(array, OID_TEXT, false);
	const struct merge_item *i;

	DL_FOREACH (b->items, i)
		buf_put(array, i->values.data, i->values.len);
	array_end(array, start, count_values(b));
}

static int wanted(const struct batch *b)
{
	const struct merge_item *i;
	int n = 0;

	DL_FOREACH (b->items, i)
		n += i->n;
	return n;
}

#define ARRAY_HEAD 20 /* bytes before the elements of an array of one dimension */

/* What its shape makes of it. A batch that was refused so goes as the spec has it. */
static void fill(struct batch *b, struct merge_statement *st, const struct buf *array)
{
	struct group *g = b->group;
	struct buf values = *array;
	bool refused = b->direct;

	b->direct = b->risky = false;
	if (b->lone != LONE_NOT)
		b->lone = LONE_MAY;
	st->batch = b;
	if (g->spec.shape == NULL || buf_failed(array))
		return;
	if (array->len > ARRAY_HEAD) {
		values.data += ARRAY_HEAD;
		values.len -= ARRAY_HEAD;
	}
	st->n_values = count_values(b);
	st->values = &values;
	if (!refused && !b->patient)
		g->spec.shape->fill(g->spec.shape_arg, st);
	b->direct = st->direct;
	b->risky = st->risky;
	if (st->lone)
		b->lone = LONE_SENT;
	b->flight = st->flight;
}

static struct bind_param number_text(char dst[MERGE_NUMBER_MAX], int64_t n)
{
	return (struct bind_param){.data = (const uint8_t *)dst, .len = util_print_i64(dst, n)};
}

static void put_own_array(struct buf *array, struct batch *b)
{
	const struct merge_own *o = b->group->spec.own;
	char count[MERGE_NUMBER_MAX], seed[MERGE_NUMBER_MAX];
	size_t start = array_begin(array, OID_TEXT, true);

	(void)number_text(count, wanted(b));
	(void)number_text(seed, merge_seed(b));
	array_put_text(array, count);
	array_put_text(array, seed);
	buf_put(array, o->array.data, o->array.len);
	array_end(array, start, o->n_array + 2);
}

/* The same of one that is not one of few. */
static bool make_own(struct batch *b)
{
	struct group *g = b->group;
	size_t n = (size_t)g->spec.n_params;
	struct bind_param *params = mem_dup(g->params, n * sizeof(*params));
	struct task_spec spec = {.ops = &merge_batch_ops,
		.arg = b,
		.settings = g->spec.settings,
		.time = TASK_UNLIMITED,
		.leaves = g->spec.own->leaves,
		.sql = g->spec.own->sql,
		.oids = g->spec.own->oids,
		.n_params = (int)n,
		.params = params,
		.n_formats = g->spec.n_formats,
		.formats = g->formats};
	struct buf array = BUF_INIT;
	bool ok;

	b->at = b->items;
	b->seed = 0;
	b->lone = LONE_NOT;
	put_own_array(&array, b);
	ok = params != NULL && !buf_failed(&array);
	if (ok) {
		params[n - 1] = (struct bind_param){
			.data = array.data, .len = (int32_t)array.len, .format = 1};
		ok = b->task == NULL ? (b->task = task_submit(g->pool, &spec)) != NULL
				     : task_change(b->task, &spec);
	}
	buf_free(&array);
	mem_free(params);
	return ok;
}

static void begin(struct merge_statement *st, const struct group *g)
{
	memset(st, 0, offsetof(struct merge_statement, formats));
	st->oids = g->spec.oids;
	st->n_params = g->spec.n_params;
	st->n_formats = g->spec.n_formats;
	st->settings = g->spec.settings;
	st->kind = g->spec.kind;
}

/* The statement of the batch, as it is now: submitted, or in the place of the one that it had. */
static bool make(struct batch *b, bool lone)
{
	struct group *g = b->group;
	struct merge_statement st;
	struct task_spec spec = {.ops = &merge_batch_ops,
		.arg = b,
		.settings = g->spec.settings,
		.prepare = true,
		.engine = true,
		.params = st.params,
		.formats = st.formats};
	struct buf array = BUF_INIT;
	struct pg_error err;
	char count[MERGE_NUMBER_MAX], seed[MERGE_NUMBER_MAX];
	bool ok;

	if ((size_t)g->spec.n_params > ARRAY_LEN(st.params))
		return false;
	begin(&st, g);
	st.may_be_lone = lone;
	memcpy(st.formats, g->formats, sizeof(st.formats));
	memcpy(st.params, g->params, (size_t)g->spec.n_params * sizeof(st.params[0]));
	if (g->spec.array_param >= 0) {
		put_array(&array, b);
		st.params[g->spec.array_param] = (struct bind_param){
			.data = array.data, .len = (int32_t)array.len, .format = 1};
	}
	if (g->spec.count_param >= 0)
		st.params[g->spec.count_param] = number_text(count, wanted(b));
	b->at = b->items;
	b->seed = 0;
	if (g->spec.seed_param > 0)
		st.params[g->spec.seed_param] = number_text(seed, merge_seed(b));
	fill(b, &st, &array);
	spec.kind = st.kind;
	spec.together = st.together;
	spec.text = st.known;
	spec.sql = b->direct ? buf_cstr(&st.text) : b->patient ? g->spec.patient_sql : g->spec.sql;
	spec.oids = st.oids;
	spec.n_params = st.n_params;
	spec.n_formats = st.n_formats;
	ok = !buf_failed(&array) && !buf_failed(&st.text);
	for (size_t i = 0; i < ARRAY_LEN(st.bytes); i++)
		ok = ok && !buf_failed(&st.bytes[i]);
	if (ok && b->task == NULL)
		ok = (b->task = task_submit(g->pool, &spec)) != NULL;
	else if (ok)
		ok = task_change(b->task, &spec);
	if (!ok) {
		pg_error_set(&err, "53200", "out of memory");
		merge_end_flight(b, &err);
	}
	buf_free(&array);
	buf_free(&st.text);
	for (size_t i = 0; i < ARRAY_LEN(st.bytes); i++)
		buf_free(&st.bytes[i]);
	return ok;
}

/* Is it worth a plain statement? */
static bool may_be_lone(const struct batch *b)
{
	const struct group *g = b->group;

	return b->n_items == 1 && b->lone != LONE_NOT && g->spec.shape != NULL &&
	       g->spec.shape->refused_lone != NULL && pool_has_engine(g->pool, g->spec.settings);
}

static bool make_either(struct batch *b, bool lone)
{
	return b->group->spec.own != NULL ? make_own(b) : make(b, lone);
}

bool merge_send(struct batch *b)
{
	CHECK_BATCH(b);
	if (!make_either(b, may_be_lone(b)))
		return false;
	hist_add(&batch_sizes, (uint64_t)b->n_items);
	return true;
}

bool merge_change(struct batch *b, bool engine)
{
	CHECK_BATCH(b);
	return make_either(b, engine && b->n_items == 1 && b->lone != LONE_NOT);
}

const struct hist *queue_stat_batches(void)
{
	return &batch_sizes;
}
