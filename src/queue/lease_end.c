/*
 * What becomes of the leases of a connection: when its transaction ends, when it says goodbye or
 * breaks, when the longest time of a held one is over. Must not know: how giving back is done.
 *
 * Entry points: lease_tx_ended(), lease_client_ended(), lease_hold_over().
 */
#include "back.h"
#include "lease.h"
#include "queue_int.h"
#include "registry.h"

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
