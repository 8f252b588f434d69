/*
 * Wait queues: the waiters of a queue of a database, and the times at which to look. A wait queue is woken by a
 * push that was committed, by a notification, by the time at which something becomes due, and now
 * and then to be sure; it then lets its waiters ask again, the longest first, one for each job that
 * is known to be there. What asking means, and what becomes of a waiter, are its ops.
 */
#include <string.h>

#include "wire/array.h"
#include "queue/stat.h"
#include "count.h"
#include "head.h"
#include "heap.h"
#include "mark.h"
#include "park.h"
#include "spelling.h"
#include "system.h"
#include "wait_int.h"
#include "wakes.h"

static struct {
	struct heap timers;
	struct loop_tick *tick;
	struct waitq *ready, **ready_tail;
	waitq_also_fn *also; /* the readers of streams, if a database has some */
} waitqs = {.ready_tail = &waitqs.ready};

struct waitq *waitq_find(struct qdb *db, const char *name)
{
	struct waitq *r;

	HASH_FIND_STR(db->waitqs, name, r);
	return r;
}

struct waitq *waitq_get(struct qdb *db, const char *name)
{
	struct waitq *r = waitq_find(db, name);

	CHECK_QDB(db);
	if (r != NULL)
		return r;
	r = mem_zalloc(sizeof(*r));
	if (r == NULL)
		return NULL;
	r->magic = WAITQ_MAGIC;
	r->db = db;
	qdb_is_spelt(db, name);
	r->due_at = r->look_at = USEC_NEVER;
	util_strlcpy(r->name, name, sizeof(r->name));
	HASH_ADD_STR(db->waitqs, name, r);
	if (r->hh.tbl != NULL)
		return r;
	mem_free(r);
	return NULL;
}

void waitq_unready(struct waitq *r)
{
	struct waitq **at = &waitqs.ready;

	CHECK_WAITQ(r);
	if (!r->ready_marked)
		return;
	while (*at != r)
		at = &(*at)->ready_next;
	*at = r->ready_next;
	if (waitqs.ready_tail == &r->ready_next)
		waitqs.ready_tail = at;
	r->ready_marked = false;
}

void waitq_free(struct waitq *r)
{
	CHECK_WAITQ(r);
	INVARIANT(
		r->members == NULL && r->n_members == 0, "a wait queue is freed that has waiters");
	waitq_unready(r);
	heap_remove(&waitqs.timers, &r->timer);
	HASH_DEL(r->db->waitqs, r);
	count_waitq_ended(r->db, r->name, &r->n);
	r->magic = 0;
	mem_free(r);
}

void waitq_ready(struct waitq *r)
{
	CHECK_WAITQ(r);
	if (r->ready_marked || (r->credits == 0 && !r->looks))
		return;
	r->ready_marked = true;
	r->ready_next = NULL;
	*waitqs.ready_tail = r;
	waitqs.ready_tail = &r->ready_next;
}

/* Looks again when something is due, and after a while in any case. */
void waitq_schedule(struct waitq *r)
{
	const struct params *p = &conf_current()->p;
	usec_t at = loop_now() + (system_is_up(r->db) ? p->queue_rescan : p->queue_safety_poll);

	CHECK_WAITQ(r);
	if (r->due_at < at)
		at = r->due_at;
	if (r->look_at < at)
		at = r->look_at;
	/* without memory for the timer the next push or notification has to do */
	if (heap_set(&waitqs.timers, &r->timer, at))
		loop_tick_at(waitqs.tick, at);
}

void waitq_wake_one(struct waitq *r, unsigned jobs)
{
	CHECK_WAITQ(r);
	r->gen++;
	r->n.wakes++;
	if (r->event_at == 0)
		r->event_at = loop_now();
	if (jobs == 0 && !r->unknown)
		r->found = 0;
	if (jobs == 0)
		r->unknown = true;
	r->credits += jobs > 0 ? jobs : 1;
	if (r->credits > waitq_n_plain(r))
		r->credits = waitq_n_plain(r);
	INVARIANT(r->credits <= r->n_members, "more waiters may ask than wait");
	waitq_ready(r);
}

/* Something was found, and more may be there: as many ask as have found something since the wake. */
void waitq_go_on(struct waitq *r)
{
	CHECK_WAITQ(r);
	r->credits = r->found > 0 ? r->found : 1;
	if (r->credits > waitq_n_plain(r))
		r->credits = waitq_n_plain(r);
}

/* Those who wait for it in another encoding. */
static void wake_spelt(struct qdb *db, const char *queue)
{
	struct waitq *r, *tmp;

	heads_event_spelt(db, queue);
	HASH_ITER (hh, db->waitqs, r, tmp) {
		if (r->n_members == 0 || strcmp(r->name, queue) == 0 ||
			!spelling_may_be(r->name, queue))
			continue;
		looks_news(r, 0);
		waitq_wake_one(r, 0);
	}
}

/* low: the place of the first of these jobs, or 0: not known. */
static void wake(struct qdb *db, const char *queue, unsigned jobs, int64_t low)
{
	struct waitq *r = waitq_find(db, queue);

	db->wakes++;
	if (db->streams != NULL)
		waitqs.also(db, queue, jobs);
	if (qdb_may_be_spelt(db, queue))
		wake_spelt(db, queue);
	if (r == NULL || r->n_members == 0)
		return;
	if (r->n_where > 0)
		looks_news(r, low);
	waitq_wake_one(r, jobs);
}

void waitq_wake(struct qdb *db, const char *queue, unsigned jobs)
{
	CHECK_QDB(db);
	head_suspect(db, queue);
	wake(db, queue, jobs, 0);
}

void waitq_wake_from(struct qdb *db, const char *queue, unsigned jobs, struct head_mark mark)
{
	CHECK_QDB(db);
	if (mark.place == HEAD_UNMARKED)
		head_suspect(db, queue);
	else
		head_lower(db, queue, mark);
	/* what is not a push that was counted may have got its place long before */
	wake(db, queue, jobs, mark.place == HEAD_UNMARKED || jobs == 0 ? 0 : mark.place);
}

/* It came from another session. */
static void waitq_event(struct qdb *db, const char *queue)
{
	CHECK_QDB(db);
	head_event(db, queue);
	wake(db, queue, 0, 0);
}

int waitqs_put(struct buf *b, const struct qdb *db, int most)
{
	int n = 0;

	CHECK_QDB(db);
	for (const struct waitq *r = db->waitqs; r != NULL && n < most; r = r->hh.next) {
		if (r->n_members == 0)
			continue;
		array_put_text(b, r->name);
		n++;
	}
	return n;
}

void waitqs_wake_all(struct qdb *db)
{
	struct waitq *r, *tmp;

	CHECK_QDB(db);
	db->wakes++;
	head_suspect_all(db);
	HASH_ITER (hh, db->waitqs, r, tmp) {
		looks_news(r, 0);
		waitq_wake_one(r, 0);
	}
	if (db->streams != NULL)
		waitqs.also(db, NULL, 0);
}

/*
 * The longest waiter first. One that asks already asked before the wait queue was woken: it will ask
 * again, so its credit is kept for it and not given to those behind, unless its answer does not
 * come. Those behind who would wait for that answer anyway, since theirs is the same statement, ask with it then: they
 * would be before it otherwise. Who cannot ask leaves its wait queues, and the last one of a wait queue ends it: r is not
 * looked at again then.
 */
static bool serve_waitq(struct waitq *r)
{
	unsigned left = r->credits;
	const struct member *first = NULL;
	const struct waiter *again = NULL; /* the first one that will ask again */
	struct member *m;
	bool any = false;

	if (r->n_where > 0 && !looks_serve(r, &first, &any))
		return any;
	if (r->look_at != USEC_NEVER)
		waitq_schedule(r);
	for (m = r->members; m != NULL && left > 0; m = m->next) {
		struct waiter *w = m->waiter;

		CHECK_WAITER(w);
		INVARIANT(
			m->waitq == r && w->taker != NULL, "one waits in a wait queue for nobody");
		if (m == first) /* what is there may be for it */
			break;
		if (w->args.where != NULL)
			continue;
		if (waiter_is_stuck(w) || (waiter_is_busy(w) && m->gen == r->gen))
			continue;
		left--;
		if (again == NULL && w->item != NULL)
			again = w;
		if (waiter_is_busy(w) || (again != NULL && w->ops->asks_with(w, again)))
			continue;
		any = true;
		w->event_at = r->event_at;
		if (--r->credits == 0)
			r->event_at = 0;
		if (w->ops->ask(w))
			continue;
		waitq_ready(r);
		w->ops->ask_failed(w);
		return any;
	}
	/* kept for one whose answer is to come */
	if ((r->credits > 0 || r->looks) && r->due_at > loop_now() + STUCK_AFTER) {
		r->due_at = loop_now() + STUCK_AFTER;
		r->due_told = false;
		waitq_schedule(r);
	}
	return any;
}

/* The loop phase: lets waiters ask. */
static bool serve_ready(void *arg, usec_t now)
{
	struct waitq *r;
	bool any = false;

	(void)arg;
	(void)now;
	while ((r = waitqs.ready) != NULL) {
		CHECK_WAITQ(r);
		INVARIANT(r->ready_marked && (r->credits > 0 || r->looks),
			"a wait queue is served that nobody has woken");
		CHECK_WAITQ(r);
		waitqs.ready = r->ready_next;
		if (waitqs.ready == NULL)
			waitqs.ready_tail = &waitqs.ready;
		r->ready_marked = false;
		any |= serve_waitq(r);
	}
	return any;
}

/*
 * What becomes due: one asks, and then others as long as something is found. With a rate that is so all the time: twice as
 * many ask as have found something the last time.
 */
static void wake_by_clock(struct waitq *r, bool is_due)
{
	unsigned most = is_due ? 2 * r->found : 0;

	CHECK_WAITQ(r);
	if (r->n_where > 0)
		looks_news(r, 0);
	waitq_wake_one(r, 0);
	r->found = 0;
	if (most > waitq_n_plain(r))
		most = waitq_n_plain(r);
	if (r->credits < most)
		r->credits = most;
}

static usec_t on_tick(void *arg, usec_t now)
{
	struct heap_node *n;

	(void)arg;
	while ((n = heap_first(&waitqs.timers)) != NULL && n->when <= now) {
		struct waitq *r = CONTAINER_OF(n, struct waitq, timer);

		bool is_due = r->due_told && r->due_at <= now;

		if (r->look_at <= now) {
			r->look_at = USEC_NEVER;
			r->looks = true;
			waitq_ready(r);
			if (r->due_at > now) {
				waitq_schedule(r);
				continue;
			}
		}
		r->due_at = USEC_NEVER;
		r->due_told = false;
		wake_by_clock(r, is_due);
		waitq_schedule(r);
	}
	return heap_deadline(&waitqs.timers);
}

void waitq_also(waitq_also_fn *fn)
{
	waitqs.also = fn;
}

bool waitq_start(void)
{
	static const struct system_listener listener = {
		.up = waitqs_wake_all, .event = waitq_event};

	system_listen(&listener);
	waitqs.tick = loop_tick_new(on_tick, NULL, USEC_NEVER);
	loop_phase(LOOP_PHASE_QUEUES, serve_ready, NULL);
	return waitqs.tick != NULL;
}

void waitq_stop(void)
{
	loop_tick_free(&waitqs.tick);
	heap_free(&waitqs.timers);
}

/* --- snapshots --- */

static unsigned count_asking(const struct waitq *r)
{
	const struct member *m;
	unsigned n = 0;

	DL_FOREACH (r->members, m)
		n += waiter_is_busy(m->waiter);
	return n;
}

static const char *others_of(const struct qdb *db)
{
	static const char *const names[] = {[OTHERS_UNKNOWN] = "unknown",
		[OTHERS_NONE] = "none",
		[OTHERS_ASLEEP] = "asleep",
		[OTHERS_AWAKE] = "awake"};

	return names[system_others(db)];
}

/* Either may be NULL: nobody waits now, nothing has happened yet. */
static struct queue_stat_queue stat_of(
	const struct qdb *db, const struct waitq *r, const struct tally *t)
{
	struct queue_stat_queue st = {.database = db->name,
		.queue = r != NULL ? r->name : t->name,
		.system = system_state(db),
		.others = others_of(db),
		.asleep = asleep_is_said(&db->asleep),
		.next_due_us = -1};

	if (r != NULL) {
		st.waiters = r->n_members;
		st.fetching = count_asking(r);
		if (r->due_at != USEC_NEVER)
			st.next_due_us = (int64_t)(r->due_at - loop_now());
		st.wakes = r->n.wakes;
		st.fetches = r->n.fetches;
		st.handed = r->n.handed;
	}
	if (t != NULL) {
		st.wakes += t->waitqs.wakes;
		st.fetches += t->waitqs.fetches;
		st.handed += t->waitqs.handed;
		st.served = t->served;
		st.failed = t->failed;
		st.used = t->used + t->served;
	}
	return st;
}

/* Those that are waited for, then the others that statements have been about. */
void queue_stat_each_queue(void (*fn)(const struct queue_stat_queue *st, void *arg), void *arg)
{
	for (struct qdb *db = qdb_first(); db != NULL; db = db->hh.next) {
		for (const struct waitq *r = db->waitqs; r != NULL; r = r->hh.next) {
			struct queue_stat_queue st = stat_of(db, r, count_of(db, r->name, NULL));

			fn(&st, arg);
		}
		for (const struct tally *t = db->tallies; t != NULL; t = t->hh.next) {
			struct queue_stat_queue st = stat_of(db, NULL, t);

			if (!t->dropped && waitq_find(db, t->name) == NULL)
				fn(&st, arg);
		}
	}
}
