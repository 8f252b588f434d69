/*
 * Those who take jobs, of whatever kind, one after the other. Knows nothing of what becomes of them.
 */
#include "taker.h"

#include "count.h"
#include "lease.h"

static struct taker *all; /* for those who look at each ledger */

struct taker *takers(void)
{
	return all;
}

void takers_changed(void)
{
	struct taker *t;

	DL_FOREACH (all, t)
		if (t->ops->changed != NULL)
			t->ops->changed(t);
}

void taker_begin(struct taker *t, const struct taker_ops *ops, struct qdb *db, struct pool *pool)
{
	INVARIANT(t->magic == 0 && ops != NULL && db != NULL, "one who takes jobs begins twice");
	t->magic = TAKER_MAGIC;
	t->ops = ops;
	t->db = db;
	t->pool = pool;
	DL_APPEND(all, t);
}

void taker_end(struct taker *t)
{
	CHECK_TAKER(t);
	INVARIANT(t->leases == NULL && t->n_leases == 0 && t->wakes == NULL,
		"one who takes jobs leaves and holds some");
	INVARIANT(t->park == NULL && t->request == NULL, "one who takes jobs leaves and waits on");
	count_tx_ended(t, false);
	buf_free(&t->ended);
	DL_DELETE(all, t);
	t->magic = 0;
}
