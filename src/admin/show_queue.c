/*
 * What SHOW shows of the queue. Tokens are never shown: who has one can finish the job.
 * Entry points: show.h.
 */
#include "show.h"

#include "queue/stat.h"

static void one_queue(const struct queue_stat_queue *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_text(r, st->database);
	row_text(r, st->queue);
	row_int(r, st->waiters);
	row_int(r, st->fetching);
	if (st->next_due_us >= 0)
		row_int(r, st->next_due_us);
	else
		row_null(r);
	row_int(r, (int64_t)st->wakes);
	row_int(r, (int64_t)st->fetches);
	row_int(r, (int64_t)st->handed);
	row_int(r, (int64_t)st->served);
	row_text(r, st->system);
	row_int(r, (int64_t)st->failed);
	row_end(r);
}

void show_queues(struct show_rows *r)
{
	queue_stat_each_queue(one_queue, r);
}

static void one_waiter(const struct queue_stat_waiter *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_int(r, (int64_t)st->client_id);
	row_text(r, st->database);
	row_text(r, st->user);
	row_text(r, st->queues);
	row_text(r, st->state);
	row_int(r, st->limit);
	row_int(r, (int64_t)st->waited_us);
	row_int(r, (int64_t)st->left_us);
	row_end(r);
}

void show_waiters(struct show_rows *r)
{
	queue_stat_each_waiter(one_waiter, r);
}

static void one_lease(const struct queue_stat_lease *st, void *arg)
{
	struct show_rows *r = arg;

	row_begin(r);
	row_int(r, (int64_t)st->client_id);
	row_text(r, st->database);
	row_text(r, st->user);
	row_text(r, st->queue);
	row_int(r, st->job_id);
	row_text(r, st->policy);
	row_int(r, (int64_t)st->held_us);
	row_bool(r, st->in_transaction);
	row_end(r);
}

void show_leases(struct show_rows *r)
{
	queue_stat_each_lease(one_lease, r);
}
