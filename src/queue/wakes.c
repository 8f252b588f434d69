/*
 * Which queues a transaction of a client has touched: they are woken when it is committed, or,
 * where it had locked jobs that takes have passed over, when it is rolled back. What transactions
 * have touched that were prepared (two phases), by whomever, is not known: all who wait look then.
 * Must not know: what the statements were.
 *
 * What the functions in the database tell of themselves (queue._tell) is added to it; of statements
 * of our own too, whose transaction ends with them.
 *
 * Entry points: touch(), touch_from(), touch_locked(), touched_*.
 */
#include <string.h>

#include "head.h"
#include "lease.h"
#include "mark.h"
#include "queue_int.h"
#include "schedule.h"
#include "siblings.h"
#include "stream.h"
#include "system.h"
#include "wakes.h"

#define TOLD_MAX 4096 /* queues of a transaction; anybody's SQL may say that there are more */

void touch(struct taker *taker, const char *queue, unsigned jobs)
{
	touch_from(taker, queue, jobs, head_unmarked, true);
}

/* Without memory (NULL) the periodic look finds the jobs. */
static struct wakes *wakes_get(struct wakes **list, const char *queue)
{
	struct wakes *t = *list;

	while (t != NULL && strcmp(t->queue, queue) != 0)
		t = t->next;
	if (t != NULL || (t = mem_zalloc(sizeof(*t) + strlen(queue) + 1)) == NULL)
		return t;
	t->mark = (struct head_mark){INT64_MAX, INT64_MAX};
	memcpy(t->queue, queue, strlen(queue) + 1);
	t->next = *list;
	*list = t;
	return t;
}

/* NULL without memory. */
static struct wakes *add(struct wakes **list, const char *queue, unsigned jobs,
	struct head_mark mark, bool locks, int64_t tx)
{
	struct wakes *t = wakes_get(list, queue);

	if (t == NULL)
		return NULL;
	head_mark_min(&t->mark, mark);
	t->locks |= locks;
	if (!t->makes_ready)
		t->jobs = jobs;
	else
		t->jobs = jobs > 0 && t->jobs > 0 ? t->jobs + jobs : 0;
	t->tx = t->makes_ready && t->tx == 0 ? 0 : tx;
	t->makes_ready = true;
	return t;
}

void touch_from(
	struct taker *taker, const char *queue, unsigned jobs, struct head_mark mark, bool locks)
{
	(void)add(&taker->wakes, queue, jobs, mark, locks, 0);
}

void touch_locked(struct taker *taker, const char *queue)
{
	struct wakes *t = wakes_get(&taker->wakes, queue);

	CHECK_TAKER(taker);
	if (t != NULL)
		t->locks = true;
}

static void drop(struct wakes **list)
{
	while (*list != NULL) {
		struct wakes *t = *list;

		*list = t->next;
		mem_free(t);
	}
}

/* What somebody else than those who wait for a queue is to hear. */
static bool is_of_others(const char *event)
{
	return strncmp(event, CANCELLED_EVENT, strlen(CANCELLED_EVENT)) == 0 ||
	       strncmp(event, ENDED_EVENT, strlen(ENDED_EVENT)) == 0;
}

/* What is pushed is for who takes, and who sleeps there does not; a schedule may be for one whose login is known there
 * alone, and a job that is cancelled is with him who has it. */
static void tell_others(struct qdb *db, const char *event)
{
	siblings_tell(db, event);
	if (strcmp(event, SCHEDULES_EVENT) == 0 ||
		strncmp(event, CANCELLED_EVENT, strlen(CANCELLED_EVENT)) == 0)
		system_notify_all(db, event);
	else
		system_notify(db, event);
}

static void wake(struct qdb *db, struct wakes **list)
{
	for (struct wakes *t = *list; t != NULL; t = t->next) {
		if (!t->makes_ready)
			continue;
		if (strcmp(t->queue, SCHEDULES_EVENT) == 0)
			schedules_event(db);
		else if (is_of_others(t->queue))
			system_heard(db, t->queue);
		else
			waitq_wake_from(db, t->queue, t->jobs, t->mark);
		tell_others(db, t->queue);
	}
	drop(list);
}

void wakes_drop(struct taker *taker)
{
	drop(&taker->wakes);
}

void wakes_wake(struct taker *taker)
{
	CHECK_TAKER(taker);
	if (taker->wakes != NULL)
		system_need(taker->db, taker->pool);
	wake(taker->db, &taker->wakes);
}

/* Those that may have been committed, though the statement that said so has failed. */
static struct wakes *take_staying(struct wakes **list)
{
	struct wakes *staying = NULL;

	while (*list != NULL) {
		struct wakes *t = *list;

		if (!t->stays) {
			list = &t->next;
			continue;
		}
		*list = t->next;
		t->next = staying;
		staying = t;
	}
	return staying;
}

void wakes_let_go(struct taker *taker)
{
	struct wakes *staying;
	struct qdb *db = taker->db;

	CHECK_TAKER(taker);
	staying = take_staying(&taker->wakes);
	if (staying != NULL)
		system_need(db, taker->pool);
	for (struct wakes *t = taker->wakes; t != NULL; t = t->next)
		if (t->locks)
			waitq_wake(taker->db, t->queue, 0);
	wakes_drop(taker);
	wake(db, &staying);
}

/* --- what the database says --- */

/* A job of the queue may be taken, by what has become of another one (queue._tell). It has just got
 * its place: what takes had told some time ago lies below it. */
static void hear(struct qdb *db, struct wakes **list, const char *queue, int64_t tx, bool stays)
{
	struct wakes *told = NULL;
	unsigned n = 0;

	for (const struct wakes *t = *list; t != NULL; t = t->next)
		n++;
	if (n >= TOLD_MAX || queue[0] == '\0')
		return;
	if (strcmp(queue, SCHEDULES_EVENT) == 0 || is_of_others(queue))
		(void)add(list, queue, 0, head_unmarked, false, tx);
	else if (strlen(queue) <= QSTMT_QUEUE_MAX)
		told = add(list, queue, 0, head_past(db, queue), false, tx);
	if (told != NULL && stays && tx != 0)
		told->stays = true;
}

/* A procedure may COMMIT and go on for long, and nothing is heard of that but the number of the next
 * transaction that says something. What was said before it is woken now: it was committed, or rolled
 * back, and then who looks in vain waits on. */
static struct wakes *take_ended(struct wakes **list, int64_t tx)
{
	struct wakes *ended = NULL;

	while (*list != NULL && tx != 0) {
		struct wakes *t = *list;

		if (t->tx == 0 || t->tx == tx || t->locks) {
			list = &t->next;
			continue;
		}
		*list = t->next;
		t->next = ended;
		ended = t;
	}
	return ended;
}

static struct wakes *heard(
	struct qdb *db, struct wakes **list, const char *queue, const char *tx, bool stays)
{
	struct wakes *ended;
	int64_t n;

	if (tx == NULL || !util_parse_i64(tx, strlen(tx), &n))
		n = 0;
	ended = take_ended(list, n);
	hear(db, list, queue, n, stays);
	return ended;
}

void wakes_event(
	struct qdb *db, struct pool *pool, struct wakes **list, const char *queue, const char *tx)
{
	struct wakes *ended = heard(db, list, queue, tx, false);

	/* who is told may end the list's owner */
	if (ended != NULL && pool != NULL)
		system_need(db, pool);
	wake(db, &ended);
}

void wakes_event_end(struct qdb *db, struct wakes **list, bool committed)
{
	struct wakes *moved = *list;

	/* who is told may end the list's owner, and come here again */
	*list = NULL;
	if (committed)
		wake(db, &moved);
	drop(&moved);
}

void wakes_event_of_client(struct client *c, const char *queue, const char *tx)
{
	struct qclient *qc =
		qclient_get(c); /* it need not have used QUEUE: a table may be tracked */
	struct wakes *ended;

	if (qc == NULL)
		return;
	client_watch_tx(c);
	ended = heard(qc->taker.db, &qc->taker.wakes, queue, tx, client_tx(c) == CLIENT_TX_IDLE);
	if (ended != NULL)
		system_need(qc->taker.db, qc->taker.pool);
	wake(qc->taker.db, &ended);
}

void wakes_task_event(struct pool *pool, const char *queue, const char *tx, void **kept)
{
	struct qdb *db = qdb_get(pool_database(pool));
	struct wakes *list = *kept, *ended;

	if (db == NULL)
		return;
	ended = heard(db, &list, queue, tx, false);
	*kept = list;
	if (ended != NULL)
		system_need(db, pool);
	wake(db, &ended);
}

void wakes_task_end(struct pool *pool, void **kept, bool committed)
{
	struct qdb *db = committed ? qdb_get(pool_database(pool)) : NULL;
	struct wakes *list = *kept;

	*kept = NULL;
	if (db != NULL)
		system_need(db, pool);
	wakes_event_end(db, &list, db != NULL);
}

/* While a statement of the system session runs. */
static void on_raised(struct qdb *db, const char *queue, const char *tx)
{
	wakes_event(db, NULL, &db->raised, queue, tx);
}

static void on_statement_ended(struct qdb *db, bool ok)
{
	wakes_event_end(db, &db->raised, ok);
}

/* --- news of any queue: two phases --- */

#define ANY_PAUSE (100 * USEC_MSEC)

static struct loop_tick *tick;

/* Who commits transactions of other kinds by the thousand, or notifies by hand, does not make each waiter look each time. */
static bool may_wake_all(struct any_news *news)
{
	usec_t now = loop_now();

	if (news->at != 0 && now - news->at < ANY_PAUSE) {
		news->due = true;
		loop_tick_at(tick, news->at + ANY_PAUSE);
		return false;
	}
	*news = (struct any_news){.at = now};
	return true;
}

void wakes_prepared_wake(struct qdb *db)
{
	CHECK_QDB(db);
	if (!may_wake_all(&db->prepared))
		return;
	waitqs_wake_all(db);
	siblings_tell(db, NULL);
	system_notify_any(db);
}

static void on_event_of_any(struct qdb *db)
{
	CHECK_QDB(db);
	if (may_wake_all(&db->heard))
		waitqs_wake_all(db);
}

static usec_t next_of(const struct any_news *news)
{
	return news->due ? news->at + ANY_PAUSE : USEC_NEVER;
}

static usec_t on_tick(void *arg, usec_t now)
{
	usec_t next = USEC_NEVER;

	(void)arg;
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		if (next_of(&db->prepared) <= now)
			wakes_prepared_wake(db);
		if (next_of(&db->heard) <= now)
			on_event_of_any(db);
		if (next_of(&db->prepared) < next)
			next = next_of(&db->prepared);
		if (next_of(&db->heard) < next)
			next = next_of(&db->heard);
	}
	return next;
}

bool wakes_start(void)
{
	static const struct system_listener listener = {.raised = on_raised,
		.statement_ended = on_statement_ended,
		.event_of_any = on_event_of_any};

	system_listen(&listener);
	tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	return tick != NULL;
}

void wakes_stop(void)
{
	loop_tick_free(&tick);
}
