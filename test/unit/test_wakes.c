/*
 * What is told of queues in a transaction, and the end of it: wakes.c. Who is told is here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../../src/queue/head.h"
#include "../../src/queue/lease.h"
#include "../../src/queue/queue_int.h"
#include "../../src/queue/schedule.h"
#include "../../src/queue/siblings.h"
#include "../../src/queue/system.h"
#include "../../src/queue/mark.h"
#include "../../src/queue/wakes.h"

static struct wakes *list;
static int woken, notified, notified_all;

const struct head_mark head_unmarked = {0};

void head_mark_min(struct head_mark *mark, struct head_mark to)
{
	*mark = to;
}

struct head_mark head_past(struct qdb *db, const char *queue)
{
	(void)db, (void)queue;
	return head_unmarked;
}

void waitq_wake(struct qdb *db, const char *queue, unsigned jobs)
{
	(void)db, (void)queue, (void)jobs;
}

void waitq_wake_from(struct qdb *db, const char *queue, unsigned jobs, struct head_mark mark)
{
	(void)db, (void)queue, (void)jobs, (void)mark;
	woken++;
}

void system_listen(const struct system_listener *l)
{
	(void)l;
}

static int scheduled;

void schedules_event(struct qdb *db)
{
	(void)db;
	scheduled++;
}

void system_need(struct qdb *db, struct pool *pool)
{
	(void)db, (void)pool;
}

void system_heard(struct qdb *db, const char *queue)
{
	(void)db, (void)queue;
}

/* The session breaks while it is to tell others: its list ends with it. */
void system_notify(struct qdb *db, const char *queue)
{
	(void)queue;
	notified++;
	wakes_event_end(db, &list, false);
}

void system_notify_all(struct qdb *db, const char *event)
{
	notified_all++;
	system_notify(db, event);
}

static struct qdb prepared_db = {.magic = QDB_MAGIC};
static usec_t now = USEC_SEC;
static int all_woken, any_notified;
static usec_t (*ticking)(void *arg, usec_t now);
static usec_t tick_at = USEC_NEVER;

struct qdb *qdb_first(void)
{
	return &prepared_db;
}

void waitqs_wake_all(struct qdb *db)
{
	(void)db;
	all_woken++;
}

void siblings_tell(const struct qdb *db, const char *queue)
{
	(void)db;
	(void)queue;
}

void system_notify_any(struct qdb *db)
{
	(void)db;
	any_notified++;
}

usec_t loop_now(void)
{
	return now;
}

struct loop_tick *loop_tick_new(usec_t (*tick)(void *arg, usec_t now), void *arg, usec_t first)
{
	(void)arg, (void)first;
	ticking = tick;
	return (struct loop_tick *)&ticking;
}

void loop_tick_at(struct loop_tick *t, usec_t when)
{
	(void)t;
	tick_at = when < tick_at ? when : tick_at;
}

void loop_tick_free(struct loop_tick **p)
{
	*p = NULL;
}

struct qdb *qdb_get(const char *name)
{
	(void)name;
	return NULL;
}

struct qclient *qclient_get(struct client *c)
{
	(void)c;
	return NULL;
}

struct pool *client_pool(const struct client *c)
{
	(void)c;
	return NULL;
}

const char *pool_database(const struct pool *p)
{
	(void)p;
	return NULL;
}

void client_watch_tx(struct client *c)
{
	(void)c;
}

enum client_tx client_tx(const struct client *c)
{
	(void)c;
	return CLIENT_TX_IDLE;
}

static void test_the_list_ends_while_it_is_told(void **state)
{
	(void)state;
	wakes_event(NULL, NULL, &list, "a", NULL);
	wakes_event(NULL, NULL, &list, "b", NULL);
	wakes_event(NULL, NULL, &list, "b", NULL);
	wakes_event(NULL, NULL, &list, "", NULL);
	wakes_event_end(NULL, &list, true);
	assert_null(list);
	assert_int_equal(woken, 2);
	assert_int_equal(notified, 2);
}

static void test_taken_back(void **state)
{
	(void)state;
	woken = 0;
	wakes_event(NULL, NULL, &list, "a", NULL);
	wakes_event_end(NULL, &list, false);
	assert_null(list);
	assert_int_equal(woken, 0);
}

/* Of a procedure that commits, and says more. */
static void test_the_next_transaction(void **state)
{
	struct taker taker = {.magic = TAKER_MAGIC};
	struct wakes *said = NULL;

	(void)state;
	woken = notified = 0;
	wakes_event(NULL, NULL, &said, "a", "10");
	wakes_event(NULL, NULL, &said, "b", "10");
	wakes_event(NULL, NULL, &said, "a", "10"); /* behind a savepoint */
	wakes_event(NULL, NULL, &said, "c", "");
	assert_int_equal(woken, 0);
	wakes_event(NULL, NULL, &said, "a", "11");
	assert_int_equal(woken, 2);
	wakes_event(NULL, NULL, &said, "a", "12");
	assert_int_equal(woken, 3);
	wakes_event(NULL, NULL, &said, "b", "no number");
	assert_int_equal(woken, 3);
	wakes_event_end(NULL, &said, true); /* c, a, b */
	assert_int_equal(woken, 6);

	/* what a statement of the client's has done is not known to have ended */
	woken = 0;
	touch_from(&taker, "a", 1, head_unmarked, false);
	touch_locked(&taker, "b");
	wakes_event(NULL, NULL, &taker.wakes, "a", "10");
	wakes_event(NULL, NULL, &taker.wakes, "b", "10");
	wakes_event(NULL, NULL, &taker.wakes, "c", "11");
	assert_int_equal(woken, 0);
	wakes_event_end(NULL, &taker.wakes, true);
	assert_int_equal(woken, 3);
}

/* What is no queue's, and longer than any name: other proxies are told, nobody who waits for a queue is woken. */
static void test_schedules(void **state)
{
	(void)state;
	woken = notified = notified_all = 0;
	wakes_event(NULL, NULL, &list, SCHEDULES_EVENT, NULL);
	wakes_event(NULL, NULL, &list, "of no queue: and of nothing else that is known", NULL);
	wakes_event_end(NULL, &list, true);
	assert_int_equal(scheduled, 1);
	assert_int_equal(notified, 1);
	assert_int_equal(notified_all, 1);
	assert_int_equal(woken, 0);
}

/* Who sleeps may hold a job, and is told that it is cancelled; not of pushes. */
static void test_who_is_told(void **state)
{
	(void)state;
	notified = notified_all = 0;
	wakes_event(NULL, NULL, &list, CANCELLED_EVENT "mail", NULL);
	wakes_event_end(NULL, &list, true);
	assert_int_equal(notified, 1);
	assert_int_equal(notified_all, 1);
	wakes_event(NULL, NULL, &list, "mail", NULL);
	wakes_event_end(NULL, &list, true);
	assert_int_equal(notified, 2);
	assert_int_equal(notified_all, 1);
}

/* The first of many commits makes all look at once, the others together a moment later. */
static void test_prepared(void **state)
{
	(void)state;
	assert_true(wakes_start());
	for (int i = 0; i < 100; i++)
		wakes_prepared_wake(&prepared_db);
	assert_int_equal(all_woken, 1);
	assert_int_equal(any_notified, 1);
	assert_true(tick_at == now + 100 * USEC_MSEC);
	now = tick_at;
	assert_true(ticking(NULL, now) == USEC_NEVER);
	assert_int_equal(all_woken, 2);
	assert_int_equal(any_notified, 2);
	now += USEC_SEC;
	assert_true(ticking(NULL, now) == USEC_NEVER);
	assert_int_equal(all_woken, 2);
	wakes_prepared_wake(&prepared_db);
	assert_int_equal(all_woken, 3);
	wakes_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_list_ends_while_it_is_told),
		cmocka_unit_test(test_taken_back),
		cmocka_unit_test(test_the_next_transaction),
		cmocka_unit_test(test_schedules),
		cmocka_unit_test(test_who_is_told),
		cmocka_unit_test(test_prepared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
