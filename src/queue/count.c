/*
 * What QUEUE statements did, in numbers, since the start. Entry points: count_*, queue_stat_*.
 */
#include <string.h>

#include "queue/stat.h"
#include "count.h"
#include "queue_int.h"

#define TALLIES_MAX 10000 /* of a database: queues beyond are not counted one by one */
#define PARTS_MAX   1000  /* of a stream: nor subscriptions */

static struct {
	struct queue_stat_verb verbs[QVERB_COUNT];
	struct figures nowhere; /* of queues that are not counted one by one */
} counts;

void count_done(int verb, unsigned jobs)
{
	counts.verbs[verb].statements++;
	counts.verbs[verb].jobs += jobs;
}

void count_failed(int verb)
{
	counts.verbs[verb].failures++;
}

void queue_stat_each_verb(void (*fn)(const struct queue_stat_verb *st, void *arg), void *arg)
{
	for (int i = 0; i < QVERB_COUNT; i++) {
		struct queue_stat_verb st = counts.verbs[i];

		st.verb = qverbs[i].name;
		fn(&st, arg);
	}
}

/* --- of each queue --- */

static struct tally *get(struct tally **all, unsigned max, const char *name)
{
	struct tally *t;

	HASH_FIND_STR(*all, name, t);
	if (t != NULL || HASH_COUNT(*all) >= max)
		return t;
	t = mem_zalloc(sizeof(*t));
	if (t == NULL)
		return NULL;
	util_strlcpy(t->name, name, sizeof(t->name));
	HASH_ADD_STR(*all, name, t);
	if (t->hh.tbl != NULL)
		return t;
	mem_free(t);
	return NULL;
}

struct tally *count_get(struct qdb *db, const char *queue)
{
	return get(&db->tallies, TALLIES_MAX, queue);
}

struct tally *count_part(struct tally *whole, const char *subscription)
{
	struct tally *t;

	ASSERT(whole->whole == NULL && strlen(subscription) <= SUBSCRIPTION_MAX);
	t = get(&whole->parts, PARTS_MAX, subscription);
	if (t != NULL)
		t->whole = whole;
	return t;
}

void count_jobs_failed(
	struct taker *t, const struct names *names, const struct names *dead, bool in_tx)
{
	CHECK_QDB(t->db);
	NAMES_FOREACH (at, names) {
		struct tally *tally = count_get(t->db, at);

		if (tally != NULL)
			tally->failed++;
		count_in(t, tally, in_tx)->n[FIGURE_FAILED]++;
	}
	NAMES_FOREACH (at, dead)
		count_in(t, count_get(t->db, at), in_tx)->n[FIGURE_DEAD]++;
}

const struct tally *count_of(const struct qdb *db, const char *queue, const char *subscription)
{
	struct tally *t, *part;

	HASH_FIND_STR(db->tallies, queue, t);
	if (t == NULL || subscription == NULL)
		return t;
	HASH_FIND_STR(t->parts, subscription, part);
	return part;
}

struct tally *count_used(struct qdb *db, const char *queue, bool dropped)
{
	struct tally *t = count_get(db, queue);

	CHECK_QDB(db);
	if (t == NULL)
		return NULL;
	t->used++;
	t->dropped = dropped;
	if (dropped) {
		t->now = (struct figures){0};
		for (struct tally *part = t->parts; part != NULL; part = part->hh.next)
			part->now = (struct figures){0};
	}
	return t;
}

struct tally *count_served(struct qdb *db, const char *queue, unsigned jobs)
{
	struct tally *t = count_get(db, queue);

	CHECK_QDB(db);
	if (t == NULL)
		return NULL;
	t->served += jobs;
	t->dropped = false; /* it is there again: somebody else made it */
	return t;
}

/* --- of a transaction --- */

struct counted {
	struct counted *next;
	struct tally *tally;
	struct figures f;
};

/* Without memory it counts at once. */
struct figures *count_in(struct taker *t, struct tally *tally, bool in_tx)
{
	struct counted *c;

	if (tally == NULL)
		return &counts.nowhere;
	if (!in_tx)
		return &tally->now;
	for (c = t->counted; c != NULL; c = c->next)
		if (c->tally == tally)
			return &c->f;
	c = mem_zalloc(sizeof(*c));
	if (c == NULL)
		return &tally->now;
	c->tally = tally;
	c->next = t->counted;
	t->counted = c;
	return &c->f;
}

/* Where a part of it was rolled back nobody here knows which: it counts as a whole. */
void count_tx_ended(struct taker *t, bool committed)
{
	struct counted *c;

	while ((c = t->counted) != NULL) {
		t->counted = c->next;
		if (committed)
			figures_add(&c->tally->now, &c->f);
		mem_free(c);
	}
}

void count_waitq_ended(struct qdb *db, const char *queue, const struct waitq_counts *n)
{
	struct tally *t = count_get(db, queue);

	CHECK_QDB(db);
	if (t == NULL)
		return;
	t->waitqs.wakes += n->wakes;
	t->waitqs.fetches += n->fetches;
	t->waitqs.handed += n->handed;
}

static void free_all(struct tally **all)
{
	struct tally *t, *tmp;

	HASH_ITER (hh, *all, t, tmp) {
		HASH_DEL(*all, t);
		mem_free(t);
	}
}

void count_free(struct qdb *db)
{
	CHECK_QDB(db);
	for (struct tally *t = db->tallies; t != NULL; t = t->hh.next)
		free_all(&t->parts);
	free_all(&db->tallies);
}

void queue_stat_each_failed(
	void (*fn)(const char *database, const char *queue, uint64_t failed, void *arg), void *arg)
{
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		for (const struct tally *t = db->tallies; t != NULL; t = t->hh.next)
			if (t->failed > 0)
				fn(db->name, t->name, t->failed, arg);
}
