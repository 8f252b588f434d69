/*
 * Which server a task of some kind is given, and when it waits for one: affinity.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pool/rooms.h"

#define SERVERS 4
#define MORE    9 /* for one test */
#define LONG    (10 * USEC_SEC)

static struct pool pool;
static struct server server[MORE];
static usec_t now;

static void comes(int i)
{
	server[i].magic = SERVER_MAGIC;
	server[i].pool = &pool;
	server[i].state = SERVER_IDLE;
	server[i].conn = (struct conn *)&server[i]; /* it is only asked whether there is one */
	DL_APPEND(pool.servers[SERVER_IDLE].head, &server[i]);
}

/* Server 0 is the one that was used last. */
static int setup(void **state)
{
	(void)state;
	memset(&pool, 0, sizeof(pool));
	memset(server, 0, sizeof(server));
	pool.magic = POOL_MAGIC;
	now = LONG;
	for (int i = 0; i < SERVERS; i++)
		comes(i);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	affinity_free(&pool);
	for (int i = 0; i < MORE; i++)
		assert_int_equal(server[i].n_kinds, 0);
	return 0;
}

static void becomes(int i, enum server_state to)
{
	DL_DELETE(pool.servers[server[i].state].head, &server[i]);
	server[i].state = (uint8_t)to;
	server[i].request_time = now;
	DL_PREPEND(pool.servers[to].head, &server[i]);
}

/* The number of the server that such a task gets at once; -1: it waits. */
static int gets(uint64_t kind)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = kind};
	struct server *s = affinity_choose(&t, now);

	return s != NULL ? (int)(s - server) : -1;
}

/* Of all kinds together. */
static unsigned affinities(void)
{
	unsigned n = 0;

	for (int i = 0; i < MORE; i++)
		n += server[i].n_kinds;
	return n;
}

/* So many more kinds. */
static void others(uint64_t n)
{
	for (uint64_t kind = 1000; kind < 1000 + n; kind++)
		assert_true(gets(kind) >= 0);
}

/* So long it waits for its server, and then gets it. */
static void waits(uint64_t kind, int mine, usec_t time)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = kind};

	becomes(mine, SERVER_TASK);
	assert_null(affinity_choose(&t, now));
	now += time;
	becomes(mine, SERVER_IDLE);
	assert_ptr_equal(affinity_choose(&t, now), &server[mine]);
}

static void takes(uint64_t kind, bool first, usec_t time)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = kind, .first = first};

	affinity_took(&t, time);
}

static void test_it_comes_back(void **state)
{
	(void)state;
	assert_int_equal(gets(7), 0);
	becomes(1, SERVER_ACTIVE);
	becomes(1, SERVER_IDLE); /* now the first of the list */
	assert_int_equal(gets(7), 0);
	assert_int_equal(gets(8), 1);
	assert_int_equal(gets(7), 0);
}

static void test_it_does_not_wait_for_a_client(void **state)
{
	(void)state;
	assert_int_equal(gets(7), 0);
	becomes(0, SERVER_ACTIVE);
	assert_int_equal(gets(7), 1);
	becomes(0, SERVER_IDLE);
	/* it has been there last */
	assert_int_equal(gets(7), 1);
	becomes(1, SERVER_ACTIVE);
	assert_int_equal(gets(7), 0);
}

static void test_it_waits_for_what_a_first_call_costs(void **state)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = 7};

	(void)state;
	takes(7, true, 12 * USEC_MSEC);
	takes(7, false, 2 * USEC_MSEC);
	assert_int_equal(gets(7), 0);
	others(100);
	becomes(0, SERVER_TASK);
	assert_null(affinity_choose(&t, now));
	now += 17 * USEC_MSEC; /* 10 that it gains, and four times the usual */
	assert_null(affinity_choose(&t, now));
	now += 2 * USEC_MSEC;
	assert_ptr_equal(affinity_choose(&t, now), &server[1]);
	assert_true(t.first);
}

/* What waits is not sent to others, which would have to plan it, because many share a transaction there. */
static void test_it_waits_longer_for_several(void **state)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = 7, .engine = true};
	struct task last = {.magic = TASK_MAGIC, .pool = &pool, .kind = 9, .first = true};
	struct task more = {.magic = TASK_MAGIC, .pool = &pool, .kind = 8, .after = &last};
	struct task leader = {.magic = TASK_MAGIC, .pool = &pool, .kind = 6, .after = &more};

	(void)state;
	takes(7, true, 12 * USEC_MSEC);
	takes(7, false, 2 * USEC_MSEC);
	assert_int_equal(gets(7), 0);
	others(100);
	becomes(0, SERVER_TASK);
	affinity_began(&leader, &server[0]);
	now += 43 * USEC_MSEC; /* twice the 10 that it gains, and of three four times the usual */
	assert_null(affinity_choose(&t, now));
	now += 2 * USEC_MSEC;
	assert_ptr_equal(affinity_choose(&t, now), &server[1]);
	affinity_began(&last, &server[0]);
	assert_int_equal(server[0].usual, 0);
}

/* The first calls are what they take longer. */
static void test_what_several_take(void **state)
{
	struct task last = {.magic = TASK_MAGIC, .pool = &pool, .kind = 9, .first = true};
	struct task more = {.magic = TASK_MAGIC, .pool = &pool, .kind = 8, .after = &last};
	struct task leader = {.magic = TASK_MAGIC, .pool = &pool, .kind = 6, .after = &more};

	(void)state;
	affinity_took(&last, 9 * USEC_MSEC);
	last.first = false;
	affinity_took(&leader, 6 * USEC_MSEC);
	assert_int_equal(pool.first_call, 9 * USEC_MSEC);
	assert_int_equal(pool.later_call, 2 * USEC_MSEC);
	last.first = true;
	affinity_took(&leader, (4 + 9 + 16) * USEC_MSEC);
	assert_int_equal(pool.later_call, 2 * USEC_MSEC);
	assert_in_range(pool.first_call, 10 * USEC_MSEC - 9, 10 * USEC_MSEC);
	affinity_took(&leader, 1 * USEC_MSEC); /* less than the others alone: it says nothing */
	assert_in_range(pool.first_call, 10 * USEC_MSEC - 9, 10 * USEC_MSEC);
}

static void test_it_does_not_wait_for_ever(void **state)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = 7};
	int turns = 0;

	(void)state;
	assert_int_equal(gets(7), 0);
	while (affinity_choose(&t, now) == NULL || turns == 0) {
		becomes(0, SERVER_TASK); /* always another's */
		now += USEC_MSEC / 2;
		assert_true(++turns < 100);
	}
	assert_int_equal(gets(7), 1);
}

/* How often kind 7, used to server 0, waits until it gets one more, when it is asked for all the
 * time. */
static int waits_for_another(void)
{
	unsigned before = affinities();
	int turns = 0;

	while (affinities() == before) {
		assert_true(turns++ < 1000);
		becomes(0, SERVER_TASK);
		if (gets(7) < 0) {
			becomes(0, SERVER_IDLE);
			waits(7, 0, USEC_MSEC / 2);
		}
	}
	return turns;
}

static void test_a_busy_kind_gets_one_more(void **state)
{
	(void)state;
	assert_int_equal(gets(7), 0);
	assert_true(waits_for_another() < 10);
	assert_int_equal(affinities(), 2);
	/* none waits while one of them is free */
	assert_int_equal(gets(7), 1);
	becomes(1, SERVER_TASK);
	becomes(0, SERVER_IDLE);
	assert_int_equal(gets(7), 0);
}

/* Eight servers are remembered; more servers than that may be needed at the same time. */
static void test_a_kind_is_not_confined_to_its_servers(void **state)
{
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = 7};
	struct server *s;

	(void)state;
	for (int i = SERVERS; i < MORE; i++)
		comes(i);
	takes(7, true, USEC_SEC / 2);
	takes(7, false, USEC_SEC / 2);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(gets(7), i);
		becomes(i, SERVER_ACTIVE);
	}
	for (int i = 0; i < 8; i++)
		becomes(i, SERVER_TASK);
	while ((s = affinity_choose(&t, now)) == NULL) {
		now += USEC_MSEC;
		assert_true(now < LONG + USEC_SEC / 10);
	}
	assert_ptr_equal(s, &server[8]);
	assert_int_equal(affinities(), 8);
}

/* A ninth server comes in the place of the one that was used longest ago, which is like any other one then. */
static void test_the_server_used_longest_ago_is_forgotten(void **state)
{
	static const int order[] = {3, 0, 1, 2, 4, 5, 6, 7};
	struct task t = {.magic = TASK_MAGIC, .pool = &pool, .kind = 7};

	(void)state;
	for (int i = SERVERS; i < MORE; i++)
		comes(i);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(gets(7), i);
		becomes(i, SERVER_ACTIVE);
	}
	for (size_t i = 0; i < ARRAY_LEN(order);
		i++) { /* the first of these is what was used longest ago */
		becomes(order[i], SERVER_IDLE);
		assert_int_equal(gets(7), order[i]);
		becomes(order[i], SERVER_ACTIVE);
	}
	assert_int_equal(gets(7), 8);
	assert_int_equal(affinities(), 8);
	assert_int_equal(server[order[0]].n_kinds, 0);
	for (size_t i = 1; i < ARRAY_LEN(order); i++)
		assert_int_equal(server[order[i]].n_kinds, 1);
	becomes(8, SERVER_TASK);
	becomes(order[0],
		SERVER_IDLE); /* before those where its kind is it counts as one of them no more */
	becomes(order[7], SERVER_IDLE);
	assert_ptr_equal(affinity_choose(&t, now), &server[order[7]]);
	assert_false(t.first);
}

static void test_not_so_soon_when_there_are_many(void **state)
{
	(void)state;
	assert_int_equal(gets(7), 0);
	others(300);
	assert_true(waits_for_another() > 100);
}

static void test_a_rare_kind_keeps_to_its_server(void **state)
{
	(void)state;
	assert_int_equal(gets(7), 0);
	others(100);
	for (int i = 0; i < 1000; i++) {
		waits(7, 0, USEC_MSEC / 2);
		now += USEC_SEC / 50;
	}
	assert_int_equal(affinities(), 101);
}

static void test_kinds_are_spread(void **state)
{
	(void)state;
	for (uint64_t kind = 1; kind <= 64; kind++)
		assert_true(gets(kind) >= 0);
	for (int i = 0; i < SERVERS; i++)
		assert_int_equal(server[i].n_kinds, 16);
}

static void test_a_server_that_is_gone(void **state)
{
	(void)state;
	assert_int_equal(gets(7), 0);
	assert_int_equal(gets(8), 0);
	becomes(0, SERVER_DEAD);
	affinity_lost(&server[0]);
	assert_int_equal(server[0].n_kinds, 0);
	assert_int_equal(gets(7), 1);
	server[1].close_needed = true;
	assert_int_equal(gets(7), 2);
}

static void test_the_oldest_are_forgotten(void **state)
{
	(void)state;
	for (uint64_t kind = 1; kind <= 30000; kind++)
		assert_true(gets(kind) >= 0);
	assert_int_equal(affinities(), 20000);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

static int gets_engine(uint64_t kind)
{
	struct task t = {
		.magic = TASK_MAGIC, .pool = &pool, .kind = kind, .engine = true, .together = 1};
	struct server *s = affinity_choose(&t, now);

	return s != NULL ? (int)(s - server) : -1;
}

/* Two of the engine's own that are never idle for long: what waits for one of them is not given the other one, for
 * which others wait. Each would come to know everything. */
static void test_nobody_is_given_what_others_wait_for(void **state)
{
	struct task t = {
		.magic = TASK_MAGIC, .pool = &pool, .kind = 7, .engine = true, .together = 1};
	struct task other = {
		.magic = TASK_MAGIC, .pool = &pool, .kind = 107, .engine = true, .together = 1};

	(void)state;
	server[0].use.engine = server[1].use.engine = true;
	pool.engines.n = 2;
	for (int i = 0; i < 2; i++) {
		becomes(1 - i, SERVER_TASK);
		for (uint64_t kind = 0; kind < 10; kind++)
			assert_int_equal(gets_engine((uint64_t)i * 100 + kind + 1), i);
		becomes(1 - i, SERVER_IDLE);
	}
	takes(7, false, 50 * USEC_MSEC);
	becomes(0, SERVER_TASK);
	assert_null(affinity_choose(&t, now));
	now += 100 * USEC_MSEC;
	becomes(0, SERVER_IDLE);
	becomes(0, SERVER_TASK); /* it has another one at once */
	DL_APPEND(pool.tasks, &t);
	DL_APPEND(pool.tasks, &other);
	assert_null(affinity_choose(&t, now));
	assert_int_equal(server[1].n_kinds, 10);
	DL_DELETE(pool.tasks, &other);
	assert_ptr_equal(affinity_choose(&t, now), &server[1]);
	assert_int_equal(server[1].n_kinds, 11);
}

/* Each verb of a queue came to a connection of its own when there were many; what then comes one after the other goes
 * where the others are. */
static void test_what_is_alone_goes_to_one(void **state)
{
	(void)state;
	pool.engines.n = 3;
	for (int i = 0; i < 3; i++)
		server[i].use.engine = true;
	for (int i = 0; i < 3; i++) {
		becomes((i + 1) % 3, SERVER_TASK);
		becomes((i + 2) % 3, SERVER_TASK);
		assert_int_equal(gets_engine((uint64_t)i + 1), i);
		becomes((i + 1) % 3, SERVER_IDLE);
		becomes((i + 2) % 3, SERVER_IDLE);
	}
	for (int turn = 0; turn < 1000; turn++)
		for (uint64_t kind = 1; kind <= 3; kind++) {
			int i = gets_engine(kind);

			assert_in_range(i, 0, 2);
			now += USEC_MSEC;
			becomes(i, SERVER_TASK);
			becomes(i, SERVER_IDLE);
			if (turn < 10) /* not at once */
				assert_int_equal(i, (int)kind - 1);
		}
	assert_int_equal(gets_engine(1), gets_engine(2));
	assert_int_equal(gets_engine(1), gets_engine(3));
	assert_true(affinities() <= 5);
}

/* While others run, each keeps to its own. */
static void test_what_is_not_alone_stays(void **state)
{
	(void)state;
	pool.engines.n = 3;
	for (int i = 0; i < 3; i++)
		server[i].use.engine = true;
	becomes(1, SERVER_TASK);
	becomes(2, SERVER_TASK);
	assert_int_equal(gets_engine(1), 0);
	becomes(1, SERVER_IDLE);
	becomes(0, SERVER_TASK);
	assert_int_equal(gets_engine(2), 1);
	becomes(0, SERVER_IDLE);
	for (int turn = 0; turn < 1000; turn++)
		for (int kind = 1; kind <= 2; kind++) {
			assert_int_equal(gets_engine((uint64_t)kind), kind - 1);
			now += USEC_MSEC;
			becomes(kind - 1, SERVER_TASK);
			becomes(kind - 1, SERVER_IDLE);
		}
	assert_int_equal(affinities(), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_comes_back),
		T(it_does_not_wait_for_a_client),
		T(it_waits_for_what_a_first_call_costs),
		T(it_waits_longer_for_several),
		T(what_several_take),
		T(it_does_not_wait_for_ever),
		T(a_busy_kind_gets_one_more),
		T(a_kind_is_not_confined_to_its_servers),
		T(the_server_used_longest_ago_is_forgotten),
		T(not_so_soon_when_there_are_many),
		T(a_rare_kind_keeps_to_its_server),
		T(kinds_are_spread),
		T(a_server_that_is_gone),
		T(what_is_alone_goes_to_one),
		T(what_is_not_alone_stays),
		T(the_oldest_are_forgotten),
		T(nobody_is_given_what_others_wait_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
