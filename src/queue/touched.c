/*
 * Which queues a transaction of a client has touched: they are woken when it is committed, or,
 * where it had locked jobs that takes have passed over, when it is rolled back. Those of
 * transactions that were prepared (two phases) are remembered for the database. Must not know: what
 * the statements were.
 *
 * Entry points: touch(), touch_from(), touch_locked(), touched_*.
 */
#include <string.h>

#include "queue_int.h"

void touch(struct qclient *qc, const char *queue, unsigned jobs)
{
	touch_from(qc, queue, jobs, lane_unmarked, true);
}

/* Without memory (NULL) the periodic look finds the jobs. */
static struct touched *touched_get(struct qclient *qc, const char *queue)
{
	struct touched *t = qc->touched;

	while (t != NULL && strcmp(t->queue, queue) != 0)
		t = t->next;
	if (t != NULL || (t = mem_zalloc(sizeof(*t) + strlen(queue) + 1)) == NULL)
		return t;
	t->mark = (struct lane_mark){INT64_MAX, INT64_MAX};
	memcpy(t->queue, queue, strlen(queue) + 1);
	t->next = qc->touched;
	qc->touched = t;
	return t;
}

void touch_from(
	struct qclient *qc, const char *queue, unsigned jobs, struct lane_mark mark, bool locks)
{
	struct touched *t = touched_get(qc, queue);

	if (t == NULL)
		return;
	lane_mark_min(&t->mark, mark);
	t->locks |= locks;
	if (!t->makes_ready)
		t->jobs = jobs;
	else
		t->jobs = jobs > 0 && t->jobs > 0 ? t->jobs + jobs : 0;
	t->makes_ready = true;
}

void touch_locked(struct qclient *qc, const char *queue)
{
	struct touched *t = touched_get(qc, queue);

	if (t != NULL)
		t->locks = true;
}

void touched_drop(struct qclient *qc)
{
	while (qc->touched != NULL) {
		struct touched *t = qc->touched;

		qc->touched = t->next;
		mem_free(t);
	}
}

void touched_wake(struct qclient *qc)
{
	if (qc->touched != NULL)
		system_need(qc->db, client_pool(qc->client));
	for (struct touched *t = qc->touched; t != NULL; t = t->next) {
		if (!t->makes_ready)
			continue;
		room_wake_from(qc->db, t->queue, t->jobs, t->mark);
		system_notify(qc->db, t->queue);
	}
	touched_drop(qc);
}

void touched_let_go(struct qclient *qc)
{
	for (struct touched *t = qc->touched; t != NULL; t = t->next)
		if (t->locks)
			room_wake(qc->db, t->queue, 0);
	touched_drop(qc);
}

/* --- two phases
 * ------------------------------------------------------------------------------------------------
 */

#define PREPARED_MAX 1000

void touched_prepared(struct qdb *db, const char *queue)
{
	size_t size = strlen(queue) + 1;
	struct touched *t;
	int n = 0;

	for (t = db->prepared; t != NULL; t = t->next, n++)
		if (strcmp(t->queue, queue) == 0)
			return;
	t = n < PREPARED_MAX ? mem_zalloc(sizeof(*t) + size) : NULL;
	if (t == NULL)
		return; /* the periodic look finds the jobs */
	memcpy(t->queue, queue, size);
	t->next = db->prepared;
	db->prepared = t;
}

void touched_prepared_wake(struct qdb *db)
{
	for (struct touched *t = db->prepared; t != NULL; t = t->next) {
		room_wake(db, t->queue, 0);
		system_notify(db, t->queue);
	}
}

void touched_prepared_free(struct qdb *db)
{
	while (db->prepared != NULL) {
		struct touched *t = db->prepared;

		db->prepared = t->next;
		mem_free(t);
	}
}
