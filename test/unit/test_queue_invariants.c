/* What is wrong in the queue's own state is found where it comes in, and where a state changes. */
#include "invariants.h"

#include "../../src/queue/head_int.h"
#include "../../src/queue/wait_int.h"
#include "../../src/queue/lease.h"
#include "../../src/queue/park.h"
#include "../../src/queue/wakes.h"

static struct qdb db = {.magic = QDB_MAGIC, .name = "app"};

static void freed_database(void)
{
	struct qdb gone = {.name = "app"};

	waitq_wake(&gone, "mail", 1);
}

static void client_has_left(void)
{
	struct taker t = {.db = &db};

	wakes_wake(&t);
}

static void freed_head(void)
{
	struct head l = {.refs = 1};

	head_unref(&l);
}

static void let_go_too_often(void)
{
	struct head *l = head_ref(&db, "mail");

	head_unref(l);
	head_unref(l);
}

static void flight_ends_twice(void)
{
	struct flight f = {0};

	flight_end(&f, true);
}

static void freed_with_waiters(void)
{
	struct waitq *r = waitq_get(&db, "mail");

	r->n_members = 1;
	waitq_free(r);
}

static void waiter_has_ended(void)
{
	struct waiter w = {0};

	waiter_ops.handed(&w, false);
}

static void handed_while_it_asks(void)
{
	struct waiter w = {.magic = WAITER_MAGIC, .handoff = (struct handoff *)&db};

	waiter_ops.fetch.done(&w, NULL);
}

static void park_without_a_kind(void)
{
	struct park p = {0};

	park_leave(&p);
}

static void more_leases_end(void)
{
	struct taker t = {.magic = TAKER_MAGIC, .db = &db};
	struct lease *l = lease_add(&t, 1, "3-1-ab", "mail", LEASE_KEEP, false);

	t.n_leases = 0;
	lease_drop(&t, l);
}

static void test_broken(void **state)
{
	(void)state;
	breaks(freed_database, "no database of queues, or a freed one");
	breaks(client_has_left, "nobody who takes jobs, or one that has left");
	breaks(freed_head, "no head of a queue, or a freed one");
	breaks(let_go_too_often, "a head is let go by more than hold it");
	breaks(flight_ends_twice, "no flight, or one that has ended");
	breaks(freed_with_waiters, "a wait queue is freed that has waiters");
	breaks(waiter_has_ended, "no waiter, or one that has ended");
	breaks(handed_while_it_asks, "a waiter asks while it is handed something");
	breaks(park_without_a_kind, "no park, or one that was not begun");

	breaks(more_leases_end, "more leases end than are held");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
