/*
 * What is told of queues in a transaction, and the end of it: touched.c. Who is told is here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../../src/queue/lane.h"
#include "../../src/queue/queue_int.h"

static struct touched *list;
static int woken, notified;

const struct lane_mark lane_unmarked = {0};

void lane_mark_min(struct lane_mark *mark, struct lane_mark to)
{
	*mark = to;
}

struct lane_mark lane_past(struct qdb *db, const char *queue)
{
	(void)db, (void)queue;
	return lane_unmarked;
}

void room_wake(struct qdb *db, const char *queue, unsigned jobs)
{
	(void)db, (void)queue, (void)jobs;
}

void room_wake_from(struct qdb *db, const char *queue, unsigned jobs, struct lane_mark mark)
{
	(void)db, (void)queue, (void)jobs, (void)mark;
	woken++;
}

void system_need(struct qdb *db, struct pool *pool)
{
	(void)db, (void)pool;
}

/* The session breaks while it is to tell others: its list ends with it. */
void system_notify(struct qdb *db, const char *queue)
{
	(void)queue;
	notified++;
	touched_told_end(db, &list, false);
}

struct qdb *qdb_get(const char *name)
{
	(void)name;
	return NULL;
}

struct qclient *qclient_find(struct client *c)
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

static void test_the_list_ends_while_it_is_told(void **state)
{
	(void)state;
	touched_told(NULL, &list, "a");
	touched_told(NULL, &list, "b");
	touched_told(NULL, &list, "b");
	touched_told(NULL, &list, "");
	touched_told_end(NULL, &list, true);
	assert_null(list);
	assert_int_equal(woken, 2);
	assert_int_equal(notified, 2);
}

static void test_taken_back(void **state)
{
	(void)state;
	woken = 0;
	touched_told(NULL, &list, "a");
	touched_told_end(NULL, &list, false);
	assert_null(list);
	assert_int_equal(woken, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_list_ends_while_it_is_told),
		cmocka_unit_test(test_taken_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
