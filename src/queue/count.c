/*
 * What QUEUE statements did, in numbers, since the start. Entry points: count_*, queue_stat_*.
 */
#include <string.h>

#include "queue/stat.h"
#include "count.h"
#include "queue_int.h"

#define TALLIES_MAX 10000 /* of a database: queues beyond are not counted one by one */

static struct queue_stat_verb counts[QVERB_COUNT];

void count_done(int verb, unsigned jobs)
{
	counts[verb].statements++;
	counts[verb].jobs += jobs;
}

void count_failed(int verb)
{
	counts[verb].failures++;
}

void queue_stat_each_verb(void (*fn)(const struct queue_stat_verb *st, void *arg), void *arg)
{
	for (int i = 0; i < QVERB_COUNT; i++) {
		struct queue_stat_verb st = counts[i];

		st.verb = qverbs[i].name;
		fn(&st, arg);
	}
}

/* --- of each queue --- */

static struct tally *tally_get(struct qdb *db, const char *queue)
{
	struct tally *t;

	HASH_FIND_STR(db->tallies, queue, t);
	if (t != NULL || HASH_COUNT(db->tallies) >= TALLIES_MAX)
		return t;
	t = mem_zalloc(sizeof(*t));
	if (t == NULL)
		return NULL;
	util_strlcpy(t->queue, queue, sizeof(t->queue));
	HASH_ADD_STR(db->tallies, queue, t);
	if (t->hh.tbl != NULL)
		return t;
	mem_free(t);
	return NULL;
}

void count_jobs_failed(struct qdb *db, const struct names *names)
{
	CHECK_QDB(db);
	NAMES_FOREACH (at, names) {
		struct tally *t = tally_get(db, at);

		if (t != NULL)
			t->failed++;
	}
}

const struct tally *count_of(const struct qdb *db, const char *queue)
{
	struct tally *t;

	HASH_FIND_STR(db->tallies, queue, t);
	return t;
}

void count_used(struct qdb *db, const char *queue, bool dropped)
{
	struct tally *t = tally_get(db, queue);

	CHECK_QDB(db);
	if (t != NULL)
		t->dropped = dropped;
}

void count_served(struct qdb *db, const char *queue, unsigned jobs)
{
	struct tally *t = tally_get(db, queue);

	CHECK_QDB(db);
	if (t == NULL)
		return;
	t->served += jobs;
	t->dropped = false; /* it is there again: somebody else made it */
}

void count_waitq_ended(struct qdb *db, const char *queue, const struct waitq_counts *n)
{
	struct tally *t = tally_get(db, queue);

	CHECK_QDB(db);
	if (t == NULL)
		return;
	t->waitqs.wakes += n->wakes;
	t->waitqs.fetches += n->fetches;
	t->waitqs.handed += n->handed;
}

void count_free(struct qdb *db)
{
	struct tally *t, *tmp;

	CHECK_QDB(db);
	HASH_ITER (hh, db->tallies, t, tmp) {
		HASH_DEL(db->tallies, t);
		mem_free(t);
	}
}

void queue_stat_each_failed(
	void (*fn)(const char *database, const char *queue, uint64_t failed, void *arg), void *arg)
{
	for (const struct qdb *db = qdb_first(); db != NULL; db = db->hh.next)
		for (const struct tally *t = db->tallies; t != NULL; t = t->hh.next)
			if (t->failed > 0)
				fn(db->name, t->queue, t->failed, arg);
}
