/*
 * Groups, batches, items. Knows nothing of verbs: what a statement is and whose rows are whose
 * comes with the spec.
 */
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include "base/check.h"
#include "base/hash.h"
#include "conf/conf.h"
#include "net/loop.h"
#include "queue/stat.h"
#include "wire/array.h"
#include "wire/row.h"
#include "merge.h"

#define TRIES_MAX      25             /* of a batch that others' transactions were in the way of */
#define BESIDE_AFTER   (1 * USEC_SEC) /* one that takes so long does not hold up the next ... */
#define BESIDE_MAX     3              /* ... so many of which may be under way beside it */
#define BESIDE_LOOK    (100 * USEC_MSEC)

#define ITEM_MAGIC     0x5117e147u
#define BATCH_MAGIC    0x51ba7c47u
#define CHECK_ITEM(i)  INVARIANT_IS(i, ITEM_MAGIC, "no request of a batch, or one that has ended")
#define CHECK_BATCH(b) INVARIANT_IS(b, BATCH_MAGIC, "no batch, or one that has ended")

struct merge_item {
	uint32_t magic;
	struct merge_item *prev,
		*next; /* of the group while it waits, of the batch when it is sent */
	struct group *group;
	struct batch *batch; /* NULL: waits */
	const struct merge_ops *ops;
	void *arg;
	struct buf values;
	int n_values;
	int n, got; /* rows it may get, rows it got */
	bool dropped;
	bool told; /* a row that belongs to all */
};

struct batch {
	uint32_t magic;
	struct batch *next; /* of the group: cut pieces that go before what waits */
	struct group *group;
	struct merge_item *items, *at; /* at: the first item that may still get rows */
	int n_items;
	bool direct; /* sent as its shape has it */
	bool risky;  /* and any refusal is answered by sending it as the spec has it */
	enum {
		LONE_MAY,
		LONE_SENT,
		LONE_ROW,
		LONE_NOT
	} lone;         /* as a plain statement: sent, with a row; of no use */
	bool patient;   /* sent by patient_sql */
	bool stale;     /* its statement is not right any more: somebody has left */
	bool cancelled; /* by merge_cancel() */
	bool sent;      /* a server has it */
	int64_t seed;   /* of this sending; 0: none */
	int tries;      /* times that it was sent again as it was */
	void *flight;   /* of the shape */
	struct task *task;
};

struct group {
	UT_hash_handle hh;
	struct pool *pool;
	struct merge_item *waiting;
	struct batch *pieces;
	unsigned under_way; /* batches that were sent */
	unsigned unsent;    /* of these: wait for a server */
	usec_t sent_at;     /* when the last one got a server */
	unsigned patient;   /* those that wait for a lock, beside the others */
	unsigned held;      /* its items are being told: it stays */
	struct merge_spec spec;
	struct bind_param *params; /* copies, with their bytes behind them */
	int16_t formats[MERGE_COLUMNS_MAX];
	size_t key_len;
	uint8_t key[];
};

static struct {
	struct group *groups;
	struct hist batch_sizes;
	struct loop_tick *tick;
	bool delays_expected; /* the tick will come */
} merging;

/* While so many are under way the next one gathers. */
static unsigned in_flight_limit(const struct group *g)
{
	return g->spec.one_at_a_time ? 1 : (unsigned)conf_current()->p.queue_batches;
}

/* May another one go beside those that are under way? Each of them takes long, and order does not
 * forbid it. */
static bool may_go_beside(const struct group *g)
{
	return !g->spec.in_order && g->under_way > 0 && g->unsent == 0 &&
	       g->under_way < in_flight_limit(g) + BESIDE_MAX &&
	       loop_now() - g->sent_at >= BESIDE_AFTER;
}

static bool may_run(const struct group *g)
{
	return g->under_way < in_flight_limit(g) || may_go_beside(g);
}

static bool run(struct group *g);
static void expect_delay(const struct group *g);

/* --- groups --- */

static struct group *group_get(struct pool *pool, const struct buf *key, struct merge_spec *spec)
{
	struct group *g;

	HASH_FIND(hh, merging.groups, key->data, key->len, g);
	if (g != NULL)
		return g;
	g = mem_alloc(sizeof(*g) + key->len);
	if (g == NULL)
		return NULL;
	memset(g, 0, sizeof(*g));
	g->pool = pool;
	g->spec = *spec;
	g->params = merge_spec_params(spec);
	if (g->params == NULL || spec->n_formats > (int)ARRAY_LEN(g->formats)) {
		mem_free(g->params);
		mem_free(g);
		return NULL;
	}
	if (spec->n_formats > 0)
		memcpy(g->formats, spec->formats, (size_t)spec->n_formats * sizeof(g->formats[0]));
	g->spec.formats = g->formats;
	g->spec.params = g->params;
	spec->settings = NULL;
	spec->shape_arg = NULL;
	spec->own = NULL;
	g->key_len = key->len;
	memcpy(g->key, key->data, key->len);
	HASH_ADD_KEYPTR(hh, merging.groups, g->key, g->key_len, g);
	if (g->hh.tbl != NULL)
		return g;
	merge_spec_free(&g->spec);
	mem_free(g->params);
	mem_free(g);
	return NULL;
}

static void group_drop_if_empty(struct group *g)
{
	if (g->waiting != NULL || g->pieces != NULL || g->under_way > 0 || g->patient > 0 ||
		g->held > 0)
		return;
	HASH_DEL(merging.groups, g);
	merge_spec_free(&g->spec);
	mem_free(g->params);
	mem_free(g);
}

/* --- items --- */

static void item_end(struct merge_item *i, const struct pg_error *err)
{
	const struct merge_ops *ops = i->ops;
	void *arg = i->arg;

	CHECK_ITEM(i);
	buf_free(&i->values);
	i->magic = 0;
	mem_free(i);
	ops->done(arg, err);
}

struct merge_item *merge_add(struct pool *pool, const struct buf *key, struct merge_spec *spec,
	struct buf *values, int n_values, int n, const struct merge_ops *ops, void *arg)
{
	struct group *g = buf_failed(key) || buf_failed(values) ? NULL : group_get(pool, key, spec);
	struct merge_item *i = g != NULL ? mem_zalloc(sizeof(*i)) : NULL;

	merge_spec_free(spec);
	if (i == NULL) {
		if (g != NULL)
			group_drop_if_empty(g);
		return NULL;
	}
	i->magic = ITEM_MAGIC;
	i->group = g;
	i->ops = ops;
	i->arg = arg;
	i->values = *values;
	*values = BUF_INIT;
	i->n_values = n_values;
	i->n = n;
	DL_APPEND(g->waiting, i);
	if (!may_run(g)) {
		expect_delay(g);
	} else if (!run(g)) {
		merge_drop(i);
		return NULL;
	}
	return i;
}

static bool is_waiting(const struct batch *b)
{
	return b->task != NULL && !task_is_sent(b->task);
}

bool merge_is_running(const struct merge_item *i)
{
	return i->batch != NULL && i->batch->task != NULL && task_is_sent(i->batch->task);
}

usec_t merge_batch_sent_at(const struct batch *b)
{
	return b->task != NULL ? task_sent_at(b->task) : 0;
}

usec_t merge_sent_at(const struct merge_item *i)
{
	return i->batch != NULL ? merge_batch_sent_at(i->batch) : 0;
}

void merge_cancel(struct merge_item *i)
{
	CHECK_ITEM(i);
	if (!merge_is_running(i) || i->batch->cancelled)
		return;
	i->batch->cancelled = true;
	task_cancel(i->batch->task);
}

int64_t merge_seed(struct batch *b)
{
	CHECK_BATCH(b);
	while (b->seed == 0)
		util_random(&b->seed, sizeof(b->seed));
	return b->seed;
}

bool merge_refill(struct batch *b)
{
	CHECK_BATCH(b);
	if (!is_waiting(b))
		return false;
	b->stale = true;
	return true;
}

static void take_next(struct batch *b);

static void end_flight(struct batch *b, const struct pg_error *err)
{
	void *flight = b->flight;

	b->flight = NULL;
	if (flight != NULL)
		b->group->spec.shape->end(flight, err);
}

/* Nobody is left: what waits behind it takes its place. */
static void leave_batch(struct merge_item *i)
{
	struct batch *b = i->batch;
	struct group *g = b->group;
	struct pg_error err;

	DL_DELETE(b->items, i);
	b->n_items--;
	b->stale = true;
	if (b->n_items > 0)
		return;
	if (!b->patient)
		take_next(b);
	if (b->n_items > 0)
		return;
	task_drop(&b->task);
	pg_error_set(&err, "57014", "nobody wants it any more");
	end_flight(b, &err);
	if (b->patient) {
		INVARIANT(g->patient > 0, "more batches end than wait for locks");
		g->patient--;
	} else {
		INVARIANT(g->under_way > 0, "more batches are taken back than were sent");
		g->under_way--;
		if (!b->sent) { /* once more, for those that it shared a transaction with */
			INVARIANT(g->unsent > 0,
				"more batches are taken back than wait for a server");
			g->unsent--;
		}
	}
	b->magic = 0;
	mem_free(b);
}

/* Cut off, and its turn has not come. */
static bool is_piece(const struct batch *b)
{
	const struct batch *p = b->group->pieces;

	while (p != NULL && p != b)
		p = p->next;
	return p != NULL;
}

static void leave_piece(struct merge_item *i)
{
	struct batch *b = i->batch;

	DL_DELETE(b->items, i);
	if (--b->n_items > 0)
		return;
	LL_DELETE(b->group->pieces, b);
	mem_free(b);
}

bool merge_drop(struct merge_item *i)
{
	struct group *g = i->group;

	CHECK_ITEM(i);
	if (i->batch != NULL && is_piece(i->batch)) {
		leave_piece(i);
	} else if (i->batch != NULL && !is_waiting(i->batch)) {
		i->dropped = true;
		return false;
	} else if (i->batch != NULL) {
		leave_batch(i);
	} else {
		DL_DELETE(g->waiting, i);
	}
	buf_free(&i->values);
	i->magic = 0;
	mem_free(i);
	group_drop_if_empty(g);
	return true;
}

/* --- batches --- */

static void batch_add(struct batch *b, struct merge_item *i)
{
	DL_APPEND(b->items, i);
	i->batch = b;
	b->n_items++;
}

static void gather_into(struct batch *b)
{
	struct group *g = b->group;
	size_t bytes = 0;
	int values = 0;

	while (g->waiting != NULL && values < MERGE_ITEMS_MAX && bytes < MERGE_BYTES_MAX) {
		struct merge_item *i = g->waiting;

		if (b->n_items > 0 && bytes + i->values.len > MERGE_BYTES_MAX)
			break;
		DL_DELETE(g->waiting, i);
		batch_add(b, i);
		bytes += i->values.len;
		values += i->n;
	}
}

/* The next piece, or without one what has gathered: nobody else would send it. */
static void take_next(struct batch *b)
{
	struct batch *piece = b->group->pieces;

	if (piece == NULL) {
		gather_into(b);
		return;
	}
	b->group->pieces = piece->next;
	while (piece->items != NULL) {
		struct merge_item *i = piece->items;

		DL_DELETE(piece->items, i);
		batch_add(b, i);
	}
	mem_free(piece);
}

/* What has gathered, up to the bounds. */
static struct batch *gather(struct group *g)
{
	struct batch *b = mem_zalloc(sizeof(*b));

	if (b == NULL)
		return NULL;
	b->magic = BATCH_MAGIC;
	b->group = g;
	gather_into(b);
	return b;
}

/* Back to the front of those that wait, in their order. */
static void ungather(struct batch *b)
{
	struct group *g = b->group;

	while (b->items != NULL) {
		struct merge_item *i = b->items->prev;

		DL_DELETE(b->items, i);
		i->batch = NULL;
		DL_PREPEND(g->waiting, i);
	}
	mem_free(b);
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

static void on_row(void *arg, const uint8_t *body, size_t len)
{
	struct batch *b = arg;
	struct merge_item *i;
	bool handed;

	if (b->lone == LONE_SENT && wire_row_is_null(body, len))
		return;
	if (b->lone == LONE_SENT)
		b->lone = LONE_ROW;
	handed = b->flight != NULL && b->group->spec.shape->row(b->flight, &body, &len);

	if (b->group->spec.is_common != NULL && b->group->spec.is_common(body, len)) {
		int first = 0;

		DL_FOREACH (b->items, i) {
			i->told = true;
			i->ops->common(i->arg, body, len, first);
			first += i->n;
		}
		return;
	}
	while (b->at != NULL &&
		(b->at->got >= b->at->n || (b->at->dropped && !b->group->spec.split)))
		b->at = b->at->next;
	i = b->at;
	if (i == NULL) {
		/* only dropped ones are left: one of them gives it back */
		DL_FOREACH (b->items, i)
			if (i->dropped && i->got < i->n)
				break;
		if (i == NULL)
			return;
	}
	CHECK_ITEM(i);
	INVARIANT(i->batch == b, "a row for a request of another batch");
	i->got++;
	i->ops->row(i->arg, body, len);
	if (handed && i->ops->handed != NULL)
		i->ops->handed(i->arg);
}

static bool is_connection_error(const struct pg_error *err)
{
	return strncmp(err->sqlstate, "08", 2) == 0 || strncmp(err->sqlstate, "57", 2) == 0 ||
	       strncmp(err->sqlstate, "53", 2) == 0;
}

static void item_again(struct merge_item *i)
{
	if ((i->got > 0 || i->told) && i->ops->again != NULL)
		i->ops->again(i->arg);
	i->got = 0;
	i->told = false;
}

/* Two pieces, to be sent one after the other before anything else. false: memory. */
static bool cut(struct batch *b)
{
	struct group *g = b->group;
	struct batch *second = mem_zalloc(sizeof(*second));
	struct merge_item *i;
	int half = b->n_items / 2;

	if (second == NULL)
		return false;
	INVARIANT(b->n_items > 1, "a batch of one is cut");
	second->magic = BATCH_MAGIC;
	second->group = g;
	second->tries = b->tries;
	for (; b->n_items > half; b->n_items--) {
		i = b->items->prev;
		DL_DELETE(b->items, i);
		item_again(i);
		i->batch = second;
		DL_PREPEND(second->items, i);
		second->n_items++;
	}
	DL_FOREACH (b->items, i)
		item_again(i);
	b->next = second;
	second->next = g->pieces;
	g->pieces = b;
	return true;
}

/* Somebody's transaction holds a key or a group that it needs. */
static bool is_lock_timeout(const struct batch *b, const struct pg_error *err)
{
	return b->group->spec.patient_sql != NULL && strcmp(err->sqlstate, "55P03") == 0;
}

static bool is_refused(const struct batch *b, const struct pg_error *err)
{
	return err != NULL && b->direct && !is_connection_error(err) && !is_lock_timeout(b, err) &&
	       (b->risky || strcmp(err->sqlstate, "42883") == 0);
}

/* Once more, before anything else. */
static void send_again(struct batch *b)
{
	struct group *g = b->group;
	struct merge_item *i;

	DL_FOREACH (b->items, i)
		item_again(i);
	b->next = g->pieces;
	g->pieces = b;
}

static void send_long_way(struct batch *b, const struct pg_error *err)
{
	struct group *g = b->group;

	if (strcmp(err->sqlstate, "42883") == 0)
		g->spec.shape->refused(g->spec.shape_arg);
	send_again(b);
}

/* It is a transaction of its own that nobody else has a part in, so who asked need not repeat it:
 * where transactions are SERIALIZABLE by default, takes and pushes would fail all the time. */
static bool send_serially(struct batch *b, const struct pg_error *err)
{
	if (err == NULL || b->tries >= TRIES_MAX ||
		(strcmp(err->sqlstate, "40001") != 0 && strcmp(err->sqlstate, "40P01") != 0))
		return false;
	b->tries++;
	b->direct = b->patient = false;
	send_again(b);
	return true;
}

static void batch_end(struct batch *b, const struct pg_error *err)
{
	while (b->items != NULL) {
		struct merge_item *i = b->items;

		DL_DELETE(b->items, i);
		item_end(i, err);
	}
	b->magic = 0;
	mem_free(b);
}

/* There is no memory to send anything: nobody is left waiting for it. */
static void fail_all(struct group *g)
{
	struct pg_error err;

	pg_error_set(&err, "53200", "out of memory");
	g->held++;
	while (g->pieces != NULL) {
		struct batch *b = g->pieces;

		g->pieces = b->next;
		batch_end(b, &err);
	}
	while (g->waiting != NULL) {
		struct merge_item *i = g->waiting;

		DL_DELETE(g->waiting, i);
		item_end(i, &err);
	}
	g->held--;
}

static bool send(struct batch *b);

/* It waits for somebody's transaction: the others need not. */
static bool send_patient(struct batch *b, const struct pg_error *err)
{
	struct group *g = b->group;

	if (err == NULL || b->n_items > 1 || b->patient || !is_lock_timeout(b, err))
		return false;
	item_again(b->items);
	b->patient = true;
	b->cancelled = false;
	if (!send(b))
		return false;
	g->patient++;
	return true;
}

/* Of a value, or of somebody's rights: others' statements are right. */
static bool is_the_clients(const struct pg_error *err)
{
	return strncmp(err->sqlstate, "22", 2) == 0 || strncmp(err->sqlstate, "23", 2) == 0 ||
	       strcmp(err->sqlstate, "42501") == 0;
}

/* It has found nothing that it could do so, or is not right any more. */
static bool send_not_lone(struct batch *b, const struct pg_error *err)
{
	struct group *g = b->group;

	if (b->lone != LONE_SENT || (err != NULL && !is_refused(b, err)))
		return false;
	if (err != NULL && !is_the_clients(err))
		g->spec.shape->refused_lone(g->spec.shape_arg);
	b->lone = LONE_NOT;
	b->direct = false;
	send_again(b);
	return true;
}

/* In one way or another: nobody is answered yet. */
static bool goes_on(struct batch *b, const struct pg_error *err)
{
	if (send_not_lone(b, err))
		return true;
	if (send_serially(b, err))
		return true;
	if (is_refused(b, err)) {
		send_long_way(b, err);
		return true;
	}
	return send_patient(b, err) || (err != NULL && b->group->spec.split && b->n_items > 1 &&
					       !is_connection_error(err) && cut(b));
}

/* Nobody knows what became of it: whoever has a part in it is told. */
static void tell_lost(struct batch *b, const struct task *t)
{
	const struct merge_shape *shape = b->group->spec.shape;
	struct merge_lost lost = {
		.seed = b->seed, .pid = task_lost_in(t), .sent_at = task_sent_at(t)};
	struct merge_item *i;

	if (b->flight != NULL && shape->lost != NULL)
		shape->lost(b->flight, &lost);
	DL_FOREACH (b->items, i)
		if (i->ops->lost != NULL)
			i->ops->lost(i->arg, &lost);
}

/* What the cancel of one has done to all. */
static const struct pg_error *given_up(struct batch *b, const struct pg_error *err)
{
	static struct pg_error why;

	if (err == NULL || !b->cancelled || strcmp(err->sqlstate, "57014") != 0)
		return err;
	return pg_error_set(
		&why, "57P03", "the statement was given up for one of those who share it");
}

/* The next batch is sent before the answers of this one are written. */
static void on_done(void *arg, const struct pg_error *err)
{
	struct batch *b = arg;
	struct group *g = b->group;
	bool again, patient = b->patient;

	CHECK_BATCH(b);
	INVARIANT(b->task != NULL && b->n_items > 0, "the end of a batch that was not sent");
	INVARIANT(patient ? g->patient > 0 : g->under_way > 0, "more batches end than were sent");
	if (task_lost_in(b->task) != 0)
		tell_lost(b, b->task);
	b->task = NULL;
	err = given_up(b, err);
	if (!patient && !b->sent)
		g->unsent--;
	end_flight(b, err);
	again = goes_on(b, err);
	if (patient)
		g->patient--;
	else
		g->under_way--;
	g->held++;
	while ((g->pieces != NULL || g->waiting != NULL) && may_run(g))
		if (!run(g)) {
			fail_all(g);
			break;
		}
	if (!again)
		batch_end(b, err);
	g->held--;
	group_drop_if_empty(g);
}

static bool on_start(void *arg, bool engine);

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

static const struct task_ops batch_ops = {.row = on_row, .done = on_done, .starts = on_start};

static struct bind_param number_text(char dst[MERGE_NUMBER_MAX], int64_t n)
{
	int len = snprintf(dst, MERGE_NUMBER_MAX, "%lld", (long long)n);

	return (struct bind_param){.data = (const uint8_t *)dst, .len = len};
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
	struct task_spec spec = {.ops = &batch_ops,
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

/* The statement of the batch, as it is now: submitted, or in the place of the one that it had. */
static bool make(struct batch *b, bool lone)
{
	struct group *g = b->group;
	struct merge_statement st = {.text = BUF_INIT,
		.oids = g->spec.oids,
		.n_params = g->spec.n_params,
		.n_formats = g->spec.n_formats,
		.settings = g->spec.settings,
		.kind = g->spec.kind,
		.may_be_lone = lone,
		.bytes = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT}};
	struct task_spec spec = {.ops = &batch_ops,
		.arg = b,
		.settings = g->spec.settings,
		.prepare = true,
		.engine = true,
		.params = st.params,
		.formats = st.formats};
	struct buf array = BUF_INIT;
	struct pg_error err;
	char count[16], seed[MERGE_NUMBER_MAX];
	bool ok;

	if ((size_t)g->spec.n_params > ARRAY_LEN(st.params))
		return false;
	memcpy(st.formats, g->formats, sizeof(st.formats));
	memcpy(st.params, g->params, (size_t)g->spec.n_params * sizeof(st.params[0]));
	if (g->spec.array_param >= 0) {
		put_array(&array, b);
		st.params[g->spec.array_param] = (struct bind_param){
			.data = array.data, .len = (int32_t)array.len, .format = 1};
	}
	if (g->spec.count_param >= 0)
		st.params[g->spec.count_param] = (struct bind_param){.data = (const uint8_t *)count,
			.len = (int32_t)snprintf(count, sizeof(count), "%d", wanted(b))};
	b->at = b->items;
	b->seed = 0;
	if (g->spec.seed_param > 0)
		st.params[g->spec.seed_param] = (struct bind_param){.data = (const uint8_t *)seed,
			.len = (int32_t)snprintf(
				seed, sizeof(seed), "%lld", (long long)merge_seed(b))};
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
		end_flight(b, &err);
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

static bool send(struct batch *b)
{
	if (!(b->group->spec.own != NULL ? make_own(b) : make(b, may_be_lone(b))))
		return false;
	hist_add(&merging.batch_sizes, (uint64_t)b->n_items);
	return true;
}

/* A server is there. Who has left since it was made is left out. */
static bool on_start(void *arg, bool engine)
{
	struct batch *b = arg;
	struct group *g = b->group;
	const struct merge_shape *shape = g->spec.shape;
	struct pg_error err;

	CHECK_BATCH(b);
	if (!b->patient && !b->sent) {
		INVARIANT(g->unsent > 0, "more batches get a server than wait for one");
		g->unsent--;
		g->sent_at = loop_now();
	}
	b->sent = true;
	if (b->stale || (b->lone == LONE_SENT && !engine)) {
		b->stale = b->direct = false;
		pg_error_set(&err, "57014", "the statement is made anew");
		end_flight(b, &err);
		if (!(g->spec.own != NULL
				    ? make_own(b)
				    : make(b, engine && b->n_items == 1 && b->lone != LONE_NOT)))
			return false;
	}
	if (b->flight != NULL && shape->sent != NULL)
		shape->sent(b->flight);
	return true;
}

/* Sends the next batch. false: memory; what was to be sent still waits. */
static bool run(struct group *g)
{
	struct batch *b = g->pieces;

	if (b != NULL)
		g->pieces = b->next;
	else
		b = gather(g);
	if (b == NULL)
		return false;
	b->next = NULL;
	b->sent = b->cancelled = false;
	if (!send(b)) {
		ungather(b);
		return false;
	}
	g->under_way++;
	g->unsent++;
	return true;
}

/* --- time --- */

/* Something gathers, and nobody looks yet whether it may go. */
static void expect_delay(const struct group *g)
{
	if (g->spec.in_order || merging.delays_expected || merging.tick == NULL)
		return;
	merging.delays_expected = true;
	loop_tick_at(merging.tick, loop_now() + BESIDE_AFTER);
}

/* What gathers behind one that takes long. */
static usec_t on_tick(void *arg, usec_t now)
{
	struct group *g, *tmp;

	(void)arg;
	merging.delays_expected = false;
	HASH_ITER (hh, merging.groups, g, tmp) {
		if (g->waiting == NULL && g->pieces == NULL)
			continue;
		/* without memory it is tried again */
		if (may_go_beside(g))
			(void)!run(g);
		merging.delays_expected = merging.delays_expected || !g->spec.in_order;
	}
	return merging.delays_expected ? now + BESIDE_LOOK : USEC_NEVER;
}

bool merge_start(void)
{
	merging.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return merging.tick != NULL;
}

void merge_stop(void)
{
	loop_tick_free(&merging.tick);
	merging.delays_expected = false;
}

const struct hist *queue_stat_batches(void)
{
	return &merging.batch_sizes;
}
