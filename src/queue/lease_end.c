/*
 * What becomes of the leases of a taker: when its transaction ends, when it says goodbye or
 * breaks, when the longest time of a held one is over. Must not know: how giving back is done.
 *
 * Entry points: lease_tx_ended(), lease_taker_ended(), lease_hold_over().
 */
#include "back.h"
#include "lease.h"
#include "queue_int.h"
#include "registry.h"

static const struct names nothing;

typedef bool (*lease_which)(const struct taker *t, const struct lease *l);

static bool none_of_them(const struct taker *t, const struct lease *l)
{
	(void)t;
	(void)l;
	return false;
}

/* Gives back those that `which` picks, and forgets them; by the same statement those that nobody got, before an empty
 * text. consumes: the queues whose single consumer it was go with them: who follows there finds all these jobs. */
static void give_back_some(struct taker *t, lease_which nobodys, lease_which which,
	const char *error, const struct names *consumes)
{
	struct lease *l, *tmp;
	int64_t place = INT64_MAX;
	const char **tokens;
	int n = 1;

	NAMES_FOREACH (at, consumes)
		n++;
	tokens = mem_alloc((t->n_leases + (size_t)n) * sizeof(*tokens));
	/* without memory the leases run out by themselves */
	if (tokens == NULL)
		return;
	n = 0;
	DL_FOREACH (t->leases, l)
		if (nobodys(t, l))
			tokens[n++] = l->token;
	if (n > 0)
		tokens[n++] = "";
	NAMES_FOREACH (at, consumes)
		tokens[n++] = at;
	DL_FOREACH (t->leases, l) {
		if (which(t, l) && !nobodys(t, l))
			tokens[n++] = l->token;
		if (which(t, l) || nobodys(t, l))
			place = l->place < place ? l->place : place;
	}
	if (n > 0)
		give_back(t->db, t->pool, tokens, n, place, error);
	mem_free(tokens);
	DL_FOREACH_SAFE (t->leases, l, tmp)
		if (which(t, l) || nobodys(t, l))
			lease_drop(t, l);
}

static bool taken_in_tx(const struct taker *t, const struct lease *l)
{
	(void)t;
	return l->in_tx;
}

/*
 * When a part was rolled back, nobody here knows which: a lease stays in the ledger as if it had
 * not been finished, where it does no harm, and a repeated DONE is decided by the database.
 */
void lease_tx_ended(struct taker *t, bool committed, bool in_part)
{
	struct lease *l, *tmp;

	CHECK_TAKER(t);
	if (!committed)
		give_back_some(t, none_of_them, taken_in_tx, "transaction rolled back", &nothing);
	DL_FOREACH_SAFE (t->leases, l, tmp) {
		l->in_tx = false;
		if (l->finishing && committed && !in_part) {
			if (l->by_done)
				done_remember(l->token);
			lease_drop(t, l);
		} else {
			l->finishing = false;
		}
	}
}

static bool broken_back(const struct taker *t, const struct lease *l)
{
	(void)t;
	return l->policy != LEASE_KEEP;
}

static bool closed_back(const struct taker *t, const struct lease *l)
{
	(void)t;
	return l->policy == LEASE_RELEASE || l->policy == LEASE_HOLD || l->in_tx;
}

static bool hold_is_over(const struct taker *t, const struct lease *l)
{
	(void)t;
	return l->policy == LEASE_HOLD && l->hold_until <= loop_now() && !l->finishing &&
	       !l->cancelled;
}

void lease_hold_over(struct taker *t, usec_t now)
{
	struct lease *l;

	CHECK_TAKER(t);
	DL_FOREACH (t->leases, l)
		if (l->policy == LEASE_HOLD && l->hold_until <= now)
			break;
	if (l == NULL)
		return;
	DL_FOREACH (t->leases, l)
		if (hold_is_over(t, l))
			lease_lost(t, l);
	give_back_some(t, none_of_them, hold_is_over, "lease expired", &nothing);
}

static bool not_delivered(const struct taker *t, const struct lease *l)
{
	return l->answer == t->answers;
}

/* What a goodbye leaves leased is a matter of time alone, whatever becomes of this proxy. */
static void disown(struct taker *t)
{
	const char **tokens = mem_alloc((t->n_leases + 1) * sizeof(*tokens));
	struct lease *l;
	int n = 0;

	if (tokens == NULL)
		return;
	DL_FOREACH (t->leases, l)
		if (l->stamped && !done_known(l->token))
			tokens[n++] = l->token;
	if (n > 0)
		registry_own(t->db, t->pool, tokens, n, 0);
	mem_free(tokens);
}

/*
 * on_disconnect: a goodbye keeps the leases of `auto`, a broken connection gives them back. What a
 * goodbye gives back is no failed attempt: workers that are sent away and replaced kill no job.
 */
void lease_taker_ended(struct taker *t, bool broken, bool delivered)
{
	CHECK_TAKER(t);
	if (t->leases == NULL && names_none(&t->consumes))
		return;
	/* rows that were not written as a whole were never taken */
	give_back_some(t, delivered ? none_of_them : not_delivered,
		broken ? broken_back : closed_back, broken ? "worker disconnected" : "",
		&t->consumes);
	names_free(&t->consumes);
	if (t->leases != NULL)
		disown(t);
}
