/*
 * Leases as connections hold them: which job a bare id means, and what is given back when a
 * transaction rolls back or a connection breaks.
 */
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
	if (l->policy == LEASE_HOLD)
		hold_end(l);
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

/* Gives back those of a client that `which` picks, and forgets them. */
static void give_back_some(struct qclient *qc,
	bool (*which)(const struct qclient *qc, const struct lease *l), const char *error)
{
	const char **tokens = mem_alloc((qc->n_leases + 1) * sizeof(*tokens));
	struct lease *l, *tmp;
	int64_t place = INT64_MAX;
	int n = 0;

	/* without memory the leases run out by themselves */
	if (tokens == NULL)
		return;
	DL_FOREACH (qc->leases, l)
		if (which(qc, l)) {
			tokens[n++] = l->token;
			place = l->place < place ? l->place : place;
		}
	if (n > 0)
		give_back(qc->db, client_pool(qc->client), tokens, n, place, error);
	mem_free(tokens);
	DL_FOREACH_SAFE (qc->leases, l, tmp)
		if (which(qc, l))
			lease_drop(qc, l);
}

static bool taken_in_tx(const struct qclient *qc, const struct lease *l)
{
	(void)qc;
	return l->in_tx;
}

/*
 * When a part was rolled back, nobody here knows which: a lease stays in the ledger as if it had
 * not been finished, where it does no harm, and a repeated DONE is decided by the database.
 */
void lease_tx_ended(struct qclient *qc, bool committed)
{
	bool in_part = client_tx_in_part(qc->client);
	struct lease *l, *tmp;

	CHECK_QCLIENT(qc);
	if (!committed)
		give_back_some(qc, taken_in_tx, "transaction rolled back");
	DL_FOREACH_SAFE (qc->leases, l, tmp) {
		l->in_tx = false;
		if (l->finishing && committed && !in_part) {
			if (l->by_done)
				done_remember(l->token);
			lease_drop(qc, l);
		} else {
			l->finishing = false;
		}
	}
}

static bool broken_back(const struct qclient *qc, const struct lease *l)
{
	(void)qc;
	return l->policy != LEASE_KEEP;
}

static bool closed_back(const struct qclient *qc, const struct lease *l)
{
	(void)qc;
	return l->policy == LEASE_RELEASE || l->policy == LEASE_HOLD || l->in_tx;
}

static bool hold_is_over(const struct qclient *qc, const struct lease *l)
{
	(void)qc;
	return l->policy == LEASE_HOLD && l->hold_until <= loop_now() && !l->finishing &&
	       !l->cancelled;
}

void lease_hold_over(struct qclient *qc, usec_t now)
{
	struct lease *l;

	CHECK_QCLIENT(qc);
	DL_FOREACH (qc->leases, l)
		if (l->policy == LEASE_HOLD && l->hold_until <= now)
			break;
	if (l != NULL)
		give_back_some(qc, hold_is_over, "lease expired");
}

/* The worker learns it from whatever it says of the job next. */
void lease_cancelled(struct qclient *qc, struct lease *l)
{
	CHECK_QCLIENT(qc);
	l->cancelled = true;
	qc->n_cancelled++;
}

static bool not_delivered(const struct qclient *qc, const struct lease *l)
{
	return l->answer == qc->answers;
}

/* What a goodbye leaves leased is a matter of time alone, whatever becomes of this proxy. */
static void disown(struct qclient *qc)
{
	const char **tokens = mem_alloc((qc->n_leases + 1) * sizeof(*tokens));
	struct lease *l;
	int n = 0;

	if (tokens == NULL)
		return;
	DL_FOREACH (qc->leases, l)
		if (l->stamped && !done_known(l->token))
			tokens[n++] = l->token;
	if (n > 0)
		registry_own(qc->db, client_pool(qc->client), tokens, n, 0);
	mem_free(tokens);
}

/*
 * on_disconnect: a goodbye keeps the leases of `auto`, a broken connection gives them back. What a
 * goodbye gives back is no failed attempt: workers that are sent away and replaced kill no job.
 */
void lease_client_ended(struct qclient *qc, enum client_end how)
{
	CHECK_QCLIENT(qc);
	if (qc->leases == NULL)
		return;
	/* rows that were not written as a whole were never taken */
	if (!client_has_sent(qc->client, qc->answer_end))
		give_back_some(qc, not_delivered, NULL);
	if (how == CLIENT_END_BROKEN)
		give_back_some(qc, broken_back, "worker disconnected");
	else
		give_back_some(qc, closed_back, NULL);
	if (qc->leases != NULL)
		disown(qc);
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
