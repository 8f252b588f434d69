/*
 * Leases as those hold them who took the jobs: the ledger of each. It says nothing to the database: what
 * is given back when a transaction or a connection ends is lease_end.c.
 */
#include "queue/stat.h"
#include "lease.h"
#include "queue_int.h"

/* --- the ledger of one who takes jobs --- */

/* A connection that takes jobs which others finish never hears of their end: the oldest leases are
 * forgotten, and run out by themselves if they are still there. */
#define LEASES_MAX (2 * LIMIT_MAX)

void lease_drop(struct taker *t, struct lease *l)
{
	CHECK_TAKER(t);
	INVARIANT(
		t->n_leases > 0 && t->n_cancelled <= t->n_leases, "more leases end than are held");
	HASH_DEL(t->by_token, l);
	DL_DELETE(t->leases, l);
	t->n_leases--;
	t->n_cancelled -= l->cancelled;
	mem_free(l->key);
	block_put(l, sizeof(*l));
}

struct lease *lease_add(struct taker *t, int64_t id, const char *token, const char *queue,
	enum lease_policy policy, bool in_tx)
{
	struct lease *l = block_zget(sizeof(*l));

	CHECK_TAKER(t);
	if (l == NULL)
		return NULL;
	l->id = id;
	l->in_tx = in_tx;
	l->answer = t->answers;
	l->policy = policy;
	l->taken_at = loop_now();
	util_strlcpy(l->token, token, sizeof(l->token));
	util_strlcpy(l->queue, queue, sizeof(l->queue));
	HASH_ADD_STR(t->by_token, token, l);
	if (l->hh.tbl == NULL) {
		block_put(l, sizeof(*l));
		return NULL;
	}
	DL_APPEND(t->leases, l);
	t->n_leases++;
	if (t->n_leases > LEASES_MAX && !t->leases->in_tx)
		lease_drop(t, t->leases);
	return l;
}

struct lease *lease_find(struct taker *t, const char *token)
{
	struct lease *l;

	HASH_FIND_STR(t->by_token, token, l);
	return l;
}

struct tally *lease_finish(
	struct taker *t, const char *token, bool by_done, bool in_tx, usec_t *ret_since)
{
	struct lease *l = lease_find(t, token);
	struct tally *tally;

	CHECK_TAKER(t);
	if (l == NULL)
		return NULL;
	tally = l->tally;
	*ret_since = l->taken_at;
	if (!in_tx) {
		lease_drop(t, l);
		return tally;
	}
	l->finishing = true;
	l->by_done = by_done;
	return tally;
}

void lease_free_all(struct taker *t)
{
	CHECK_TAKER(t);
	while (t->leases != NULL)
		lease_drop(t, t->leases);
}

void lease_lost(struct taker *t, const struct lease *l)
{
	if (t->ops->lost != NULL)
		t->ops->lost(t, l->token);
}

void lease_cancelled(struct taker *t, struct lease *l)
{
	CHECK_TAKER(t);
	lease_lost(t, l);
	l->cancelled = true;
	t->n_cancelled++;
}

/* --- snapshots --- */

static const char *const policy_names[] = {[LEASE_AUTO] = "auto",
	[LEASE_RELEASE] = "release",
	[LEASE_KEEP] = "keep",
	[LEASE_HOLD] = "hold"};

void lease_each(
	struct taker *t, void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg)
{
	struct lease *l;

	CHECK_TAKER(t);
	DL_FOREACH (t->leases, l) {
		struct queue_stat_lease st = {.kind = t->ops->kind,
			.client_id = t->ops->id(t),
			.database = t->db->name,
			.user = t->ops->user(t),
			.queue = l->queue,
			.address = t->ops->address(t),
			.token = l->token,
			.job_id = l->id,
			.policy = policy_names[l->policy],
			.held_us = loop_now() - l->taken_at,
			.in_transaction = l->in_tx};

		fn(&st, arg);
	}
}
