/* Who goes before whom to a place: demand.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pool/demand.h"

#define MS USEC_MSEC

static void test_who_goes_before(void **state)
{
	static const struct {
		usec_t since, starves_since;
		unsigned has;
		usec_t other;
		unsigned other_has;
		bool before;
	} cases[] = {
		{10, USEC_NEVER, 0, 20, 0, true}, /* longer */
		{20, USEC_NEVER, 0, 10, 5, false},
		{20, USEC_NEVER, 0, 20, 5, false}, /* or else two would change places for ever */
		{10, USEC_NEVER, 0, USEC_NEVER, 0, true}, /* nobody waits there */
		{10, USEC_NEVER, 1, 20, 1, false},        /* it would have more */
		{10, USEC_NEVER, 1, 20, 2, true},
		{10, 10, 7, 20, 0, true}, /* gets none of those */
		{10, 30, 7, 20, 0, false},
		{USEC_NEVER, USEC_NEVER, 0, USEC_NEVER, 9, false}, /* claims nothing */
		{USEC_NEVER, 10, 0, 20, 0, true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct demand c = {cases[i].since, cases[i].starves_since, cases[i].has};

		assert_int_equal(demand_goes_before(&c, cases[i].other, cases[i].other_has),
			cases[i].before);
	}
}

static void test_who_starves(void **state)
{
	(void)state;
	assert_false(demand_starves(1000 * MS, false, 1099 * MS));
	assert_true(demand_starves(1000 * MS, false, 1100 * MS));
	assert_false(demand_starves(1000 * MS, true, 1999 * MS));
	assert_true(demand_starves(1000 * MS, true, 2000 * MS));
}

/* The other limit's server came free 200 ms after the claim began: it may be waited for as long again. */
static void test_another_limit(void **state)
{
	usec_t since = 1000 * MS, at = 1200 * MS;

	(void)state;
	assert_true(demand_may_wait(since, at, at));
	assert_true(demand_may_wait(since, at, at + 199 * MS));
	assert_false(demand_may_wait(since, at, at + 200 * MS));
	assert_false(demand_may_wait(since, since, since)); /* not since it began */
	assert_false(demand_may_wait(since, 900 * MS, since));
	assert_false(demand_may_wait(USEC_NEVER, at, at)); /* nobody waits */
	/* in vain: the next one is waited for twice as long, and comes no sooner than that */
	assert_true(demand_may_wait(since, 1400 * MS, 1799 * MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_goes_before),
		cmocka_unit_test(test_who_starves),
		cmocka_unit_test(test_another_limit),
	};

	return cmocka_run_group_tests_name("demand", tests, NULL, NULL);
}
