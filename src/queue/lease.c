/*
 * Leases as connections hold them: the ledger of each. It says nothing to the database: what is given
 * back when a transaction or a connection ends is lease_end.c.
 */
#include "queue/stat.h"
#include "lease.h"
#include "queue_int.h"

/* --- the ledger of a client --- */

/* A connection that takes jobs which others finish never hears of their end: the oldest leases are
 * forgotten, and run out by themselves if they are still there. */
#define LEASES_MAX (2 * LIMIT_MAX)

void lease_drop(struct qclient *qc, struct lease *l)
{
	CHECK_QCLIENT(qc);
	INVARIANT(qc->n_leases > 0 && qc->n_cancelled <= qc->n_leases,
		"more leases end than are held");
	HASH_DEL(qc->by_token, l);
	DL_DELETE(qc->leases, l);
	qc->n_leases--;
	qc->n_cancelled -= l->cancelled;
	mem_free(l->key);
	mem_free(l);
}

struct lease *lease_add(struct qclient *qc, int64_t id, const char *token, const char *queue,
	enum lease_policy policy, bool in_tx)
{
	struct lease *l = mem_zalloc(sizeof(*l));

	CHECK_QCLIENT(qc);
	if (l == NULL)
		return NULL;
	l->id = id;
	l->in_tx = in_tx;
	l->answer = qc->answers;
	l->policy = policy;
	l->taken_at = loop_now();
	util_strlcpy(l->token, token, sizeof(l->token));
	util_strlcpy(l->queue, queue, sizeof(l->queue));
	HASH_ADD_STR(qc->by_token, token, l);
	if (l->hh.tbl == NULL) {
		mem_free(l);
		return NULL;
	}
	DL_APPEND(qc->leases, l);
	qc->n_leases++;
	if (qc->n_leases > LEASES_MAX && !qc->leases->in_tx)
		lease_drop(qc, qc->leases);
	return l;
}

struct lease *lease_find(struct qclient *qc, const char *token)
{
	struct lease *l;

	HASH_FIND_STR(qc->by_token, token, l);
	return l;
}

void lease_finish(struct qclient *qc, const char *token, bool by_done, bool in_tx)
{
	struct lease *l = lease_find(qc, token);

	CHECK_QCLIENT(qc);
	if (l == NULL)
		return;
	if (!in_tx) {
		lease_drop(qc, l);
		return;
	}
	l->finishing = true;
	l->by_done = by_done;
}

void lease_free_all(struct qclient *qc)
{
	CHECK_QCLIENT(qc);
	while (qc->leases != NULL)
		lease_drop(qc, qc->leases);
}

/* The worker learns it from whatever it says of the job next. */
void lease_cancelled(struct qclient *qc, struct lease *l)
{
	CHECK_QCLIENT(qc);
	l->cancelled = true;
	qc->n_cancelled++;
}

/* --- snapshots --- */

static const char *const policy_names[] = {[LEASE_AUTO] = "auto",
	[LEASE_RELEASE] = "release",
	[LEASE_KEEP] = "keep",
	[LEASE_HOLD] = "hold"};

void lease_each(
	struct qclient *qc, void (*fn)(const struct queue_stat_lease *st, void *arg), void *arg)
{
	struct lease *l;

	CHECK_QCLIENT(qc);
	DL_FOREACH (qc->leases, l) {
		struct queue_stat_lease st = {.client_id = client_id(qc->client),
			.database = qc->db->name,
			.user = client_user(qc->client),
			.queue = l->queue,
			.job_id = l->id,
			.policy = policy_names[l->policy],
			.held_us = loop_now() - l->taken_at,
			.in_transaction = l->in_tx};

		fn(&st, arg);
	}
}
