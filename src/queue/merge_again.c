/*
 * What becomes of a batch whose statement has failed, or has done nothing: it is sent as the spec has it, or once more as it
 * is, waits for a lock by itself, or is cut in two until the guilty request is alone. Must not know: what the requests are.
 *
 * Entry points: merge_goes_on(); merge_tell_lost(), merge_given_up(); merge_may_repeat(), also for what is in no batch.
 */
#include <string.h>

#include "merge_int.h"

#define TRIES_MAX 25 /* of what others' transactions were in the way of */

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
	struct batch *second = block_zget(sizeof(*second));
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
bool merge_may_repeat(const struct pg_error *err, int tries)
{
	return err != NULL && tries < TRIES_MAX &&
	       (strcmp(err->sqlstate, "40001") == 0 || strcmp(err->sqlstate, "40P01") == 0);
}

/* A table that is dropped for good: once. */
static bool may_go_without(const struct batch *b, const struct pg_error *err)
{
	const struct merge_shape *shape = b->group->spec.shape;

	return err != NULL && strcmp(err->sqlstate, "42P01") == 0 && shape != NULL &&
	       shape->without_gone && b->tries == 0;
}

static bool send_serially(struct batch *b, const struct pg_error *err)
{
	if (!merge_may_repeat(err, b->tries) && !may_go_without(b, err))
		return false;
	b->tries++;
	b->direct = b->patient = false;
	send_again(b);
	return true;
}

/* It waits for somebody's transaction: the others need not. */
static bool send_patient(struct batch *b, const struct pg_error *err)
{
	struct group *g = b->group;

	if (err == NULL || b->n_items > 1 || b->patient || !is_lock_timeout(b, err))
		return false;
	item_again(b->items);
	b->patient = true;
	b->cancelled = false;
	if (!merge_send(b))
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

/* Too much for all of them need not be for each; nor for the others, what is for one. */
static bool is_too_much(const struct batch *b, const struct pg_error *err)
{
	return err != NULL && b->rows.over != 0 &&
	       (strcmp(err->sqlstate, "54000") == 0 || strcmp(err->sqlstate, BOUND_STATE) == 0);
}

/* In one way or another: nobody is answered yet. */
bool merge_goes_on(struct batch *b, const struct pg_error *err)
{
	if (send_not_lone(b, err))
		return true;
	if (send_serially(b, err))
		return true;
	if (is_too_much(b, err))
		return b->n_items > 1 && cut(b);
	if (is_refused(b, err)) {
		send_long_way(b, err);
		return true;
	}
	return send_patient(b, err) || (err != NULL && b->group->spec.split && b->n_items > 1 &&
					       !is_connection_error(err) && cut(b));
}

/* Nobody knows what became of it: whoever has a part in it is told. */
void merge_tell_lost(struct batch *b, const struct task *t)
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

/* What the cancel of one has done to all, or that of too many rows. */
const struct pg_error *merge_given_up(struct batch *b, const struct pg_error *err)
{
	static struct pg_error why;

	if (err == NULL || !b->cancelled || strcmp(err->sqlstate, "57014") != 0)
		return bound_error(&b->rows, err, b->group->spec.bounded);
	return pg_error_set(
		&why, "57P03", "the statement was given up for one of those who share it");
}
