/*
 * Groups, batches, items: who shares a statement, when the next one goes, and whose rows are whose. Knows nothing of verbs,
 * which come with the spec; nor how a statement is written (merge_send.c), and what is tried when it fails (merge_again.c).
 */
#include <string.h>

#include "conf/conf.h"
#include "net/loop.h"
#include "wire/row.h"
#include "merge_int.h"

#define BESIDE_AFTER (1 * USEC_SEC) /* one that takes so long does not hold up the next ... */
#define BESIDE_MAX   3              /* ... so many of which may be under way beside it */
#define BESIDE_LOOK  (100 * USEC_MSEC)

/* A commit that takes so long is the disk's, and others that are under way share it. So while they are few, nobody waits
 * first for one and then for his own. */
#define SLOW   (2 * USEC_MSEC)
#define FEW    8 /* of all groups: of many clients none is alone for long; they share the processor */

#define USUALS 256 /* kinds whose times are known; another one of the same place pushes one out */
#define SLOWER 4   /* one that took longer counts so much less: a disk stalls now and then */
#define FASTER 2

/* What a batch of one request took of late, from its sending to its end. */
struct usual {
	const struct pool *pool;
	uint64_t kind;
	usec_t time;
};

static struct {
	struct usual usual[USUALS];
	struct group *groups;
	struct loop_tick *tick;
	bool delays_expected; /* the tick will come */
	unsigned n_items;     /* of all groups */
} merging;

/* Always there: without any group the table would be made anew for each statement. */
static struct group nobody;

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

static struct usual *usual_of(const struct group *g)
{
	uint64_t at = (g->spec.kind ^ (uintptr_t)g->pool) * 0x9e3779b97f4a7c15u;

	return &merging.usual[(at >> 32) % USUALS];
}

/* Of a group, as batches of the same kind may run as other statements, in a transaction with others' too. */
static void note_time(const struct batch *b, const struct pg_error *err)
{
	const struct group *g = b->group;
	struct usual *u = usual_of(g);
	usec_t sent_at = merge_batch_sent_at(b), time = loop_now() - sent_at;

	if (err != NULL || b->n_items > 1 || b->patient || g->spec.own != NULL || sent_at == 0)
		return;
	if (u->pool != g->pool || u->kind != g->spec.kind)
		*u = (struct usual){g->pool, g->spec.kind, time};
	else if (time > u->time)
		u->time += (time - u->time) / SLOWER;
	else
		u->time -= (u->time - time) / FASTER;
}

static bool is_slow(const struct group *g)
{
	const struct usual *u = usual_of(g);

	return g->spec.own == NULL && u->pool == g->pool && u->kind == g->spec.kind &&
	       u->time >= SLOW;
}

static bool may_share_commit(const struct group *g)
{
	return !g->spec.in_order && !g->spec.one_at_a_time && g->unsent == 0 &&
	       merging.n_items <= FEW && g->under_way < in_flight_limit(g) + BESIDE_MAX &&
	       is_slow(g);
}

static bool may_run(const struct group *g)
{
	return g->under_way < in_flight_limit(g) || may_share_commit(g) || may_go_beside(g);
}

static bool run(struct group *g);
static void expect_delay(const struct group *g);
static void look_now(const struct group *g);

/* --- groups --- */

/* One block, with copies of what is borrowed. */
static struct group *group_new(
	struct pool *pool, const struct buf *key, const struct merge_spec *spec)
{
	size_t params = merge_spec_size(spec), size = sizeof(struct group) + params + key->len;
	struct group *g = NULL;

	if (spec->n_formats <= (int)ARRAY_LEN(g->formats))
		g = block_get(size);
	if (g == NULL)
		return NULL;
	memset(g, 0, sizeof(*g));
	g->size = size;
	g->pool = pool;
	g->spec = *spec;
	merge_spec_put(spec, g->params);
	if (spec->n_formats > 0)
		memcpy(g->formats, spec->formats, (size_t)spec->n_formats * sizeof(g->formats[0]));
	g->spec.formats = g->formats;
	g->spec.params = g->params;
	g->key_len = key->len;
	g->key = memcpy((uint8_t *)g->params + params, key->data, key->len);
	return g;
}

static struct group *group_get(struct pool *pool, const struct buf *key, struct merge_spec *spec)
{
	struct group *g;

	HASH_FIND(hh, merging.groups, key->data, key->len, g);
	if (g != NULL)
		return g;
	g = group_new(pool, key, spec);
	if (g == NULL)
		return NULL;
	HASH_ADD_KEYPTR(hh, merging.groups, g->key, g->key_len, g);
	if (g->hh.tbl == NULL) {
		block_put(g, g->size);
		return NULL;
	}
	spec->settings = NULL;
	spec->shape_arg = NULL;
	spec->own = NULL;
	return g;
}

static void group_drop_if_empty(struct group *g)
{
	if (g->waiting != NULL || g->pieces != NULL || g->under_way > 0 || g->patient > 0 ||
		g->held > 0)
		return;
	HASH_DEL(merging.groups, g);
	merge_spec_free(&g->spec);
	block_put(g, g->size);
}

/* --- items --- */

static void item_free(struct merge_item *i)
{
	INVARIANT(merging.n_items > 0, "more requests end than there are");
	merging.n_items--;
	buf_free(&i->values);
	i->magic = 0;
	block_put(i, sizeof(*i));
}

static void item_end(struct merge_item *i, const struct pg_error *err)
{
	const struct merge_ops *ops = i->ops;
	void *arg = i->arg;

	CHECK_ITEM(i);
	item_free(i);
	ops->done(arg, err);
}

struct merge_item *merge_add(struct pool *pool, const struct buf *key, struct merge_spec *spec,
	struct buf *values, int n_values, int n, const struct merge_ops *ops, void *arg)
{
	struct group *g = buf_failed(key) || buf_failed(values) ? NULL : group_get(pool, key, spec);
	struct merge_item *i = g != NULL ? block_zget(sizeof(*i)) : NULL;

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
	merging.n_items++;
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

bool merge_refill(struct batch *b)
{
	CHECK_BATCH(b);
	if (!is_waiting(b))
		return false;
	b->stale = true;
	return true;
}

static void take_next(struct batch *b);

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
	merge_end_flight(b, &err);
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
	block_put(b, sizeof(*b));
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
	b->magic = 0;
	block_put(b, sizeof(*b));
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
	item_free(i);
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
	piece->magic = 0;
	block_put(piece, sizeof(*piece));
}

/* What has gathered, up to the bounds. */
static struct batch *gather(struct group *g)
{
	struct batch *b = block_zget(sizeof(*b));

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
	b->magic = 0;
	block_put(b, sizeof(*b));
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
	b->rows.others = b->n_items - 1;
	if (b->group->spec.bounded != NULL)
		bound_row(&b->rows, b->task, len);
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

static void batch_end(struct batch *b, const struct pg_error *err)
{
	bound_end(&b->rows); /* an answer is its client's from here on */
	while (b->items != NULL) {
		struct merge_item *i = b->items;

		DL_DELETE(b->items, i);
		item_end(i, err);
	}
	b->magic = 0;
	block_put(b, sizeof(*b));
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

/* What gathers is sent with a newer snapshot, so it would find what those have just missed who came before. */
static void go_before_others(struct batch *b)
{
	struct group *g = b->group;
	const struct merge_item *behind = g->waiting;
	struct merge_item *i, *before;

	if (behind == NULL || g->pieces != NULL)
		return;
	for (i = b->items->prev; i != NULL; i = before) {
		before = i != b->items ? i->prev : NULL;
		if (i->got > 0 || i->dropped || i->ops != behind->ops || i->ops->asks_on == NULL ||
			!i->ops->asks_on(i->arg, behind->arg))
			continue;
		DL_DELETE(b->items, i);
		b->n_items--;
		i->batch = NULL;
		i->told = false;
		DL_PREPEND(g->waiting, i);
	}
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
		merge_tell_lost(b, b->task);
	note_time(b, err);
	b->task = NULL;
	err = merge_given_up(b, err);
	if (!patient && !b->sent)
		g->unsent--;
	merge_end_flight(b, err);
	again = merge_goes_on(b, err);
	if (again)
		bound_end(&b->rows);
	if (patient)
		g->patient--;
	else
		g->under_way--;
	g->held++;
	if (!again && err == NULL)
		go_before_others(b);
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
		look_now(g);
	}
	b->sent = true;
	if (b->stale || (b->lone == LONE_SENT && !engine)) {
		b->stale = b->direct = false;
		pg_error_set(&err, "57014", "the statement is made anew");
		merge_end_flight(b, &err);
		if (!merge_change(b, engine))
			return false;
	}
	if (b->flight != NULL && shape->sent != NULL)
		shape->sent(b->flight);
	return true;
}

const struct task_ops merge_batch_ops = {.row = on_row, .done = on_done, .starts = on_start};

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
	if (!merge_send(b)) {
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

/* What has gathered while one waited for a server may go beside it now; not before the servers' turn is over. */
static void look_now(const struct group *g)
{
	if ((g->waiting == NULL && g->pieces == NULL) || merging.tick == NULL || !may_run(g))
		return;
	merging.delays_expected = true;
	loop_tick_at(merging.tick, loop_now());
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
		if (may_run(g))
			(void)!run(g);
		merging.delays_expected = merging.delays_expected || !g->spec.in_order;
	}
	return merging.delays_expected ? now + BESIDE_LOOK : USEC_NEVER;
}

bool merge_start(void)
{
	nobody.key = (const uint8_t *)"";
	HASH_ADD_KEYPTR(hh, merging.groups, nobody.key, 0, &nobody);
	merging.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return merging.tick != NULL && nobody.hh.tbl != NULL;
}

void merge_stop(void)
{
	if (nobody.hh.tbl != NULL)
		HASH_DEL(merging.groups, &nobody);
	nobody.hh.tbl = NULL;
	loop_tick_free(&merging.tick);
	merging.delays_expected = false;
}
