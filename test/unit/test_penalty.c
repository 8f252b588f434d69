/* How slow failed logins are answered: the first cost nothing, then twice as long each, until time
 * heals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "auth/penalty.h"
#include "base/mem.h"

#define MOST (3 * USEC_SEC)

static void test_grows(void **state)
{
	static const usec_t wanted[] = {0, 0, 0, 100, 200, 400, 800, 1600, 3000, 3000};
	usec_t now = 100 * USEC_SEC;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		assert_int_equal(penalty_failed("10.0.0.1", now, MOST), wanted[i] * USEC_MSEC);
	assert_int_equal(penalty_failed("10.0.0.2", now, MOST), 0);
	penalty_free();
}

static void test_heals(void **state)
{
	usec_t now = 100 * USEC_SEC;

	(void)state;
	for (int i = 0; i < 5; i++)
		(void)penalty_failed("a", now, MOST);
	assert_int_equal(penalty_failed("a", now + 20 * USEC_SEC, MOST), 100 * USEC_MSEC);
	assert_int_equal(penalty_failed("a", now + 3600 * USEC_SEC, MOST), 0);
	penalty_free();
}

/* Many failures in a short time: the next attempt waits, whatever it proves; it is not refused. */
static void test_deferral(void **state)
{
	usec_t now = 100 * USEC_SEC;
	int n = 0;

	(void)state;
	assert_int_equal(penalty_deferral("a", now, MOST), 0);
	while (penalty_deferral("a", now, MOST) == 0 && n < 1000) {
		(void)penalty_failed("a", now++, MOST);
		n++;
	}
	assert_in_range(n, 5, 100);
	assert_int_equal(penalty_deferral("a", now, MOST), MOST);
	assert_int_equal(penalty_deferral("b", now, MOST), 0);
	/* as long as they come so fast, and no longer */
	assert_int_equal(penalty_deferral("a", now + MOST, MOST), 0);
	/* who fails now and then slows nobody down */
	for (int i = 0; i < 200; i++)
		(void)penalty_failed("c", now + (usec_t)i * USEC_SEC, MOST);
	assert_int_equal(penalty_deferral("c", now + 200 * USEC_SEC, MOST), 0);
	penalty_free();
}

/* One host with IPv6 has a /64 to choose from. */
static void test_network(void **state)
{
	char text[64];

	(void)state;
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "2001:db8:1:2:%x::1", i);
		assert_int_equal(penalty_failed(text, 1, MOST), i < 3 ? 0 : 100 * USEC_MSEC);
	}
	assert_int_equal(penalty_failed("2001:db8:1:3::1", 1, MOST), 0);
	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "::ffff:10.0.0.%d", i);
		assert_int_equal(penalty_failed(text, 1, MOST), 0);
	}
	penalty_free();
}

/* An attacker with many addresses does not fill the memory. */
static void test_bounded(void **state)
{
	char text[32];

	(void)state;
	for (int i = 0; i < 30000; i++) {
		snprintf(text, sizeof(text), "10.%d.%d.1", i / 256, i % 256);
		assert_int_equal(penalty_failed(text, 1, MOST), 0);
	}
	penalty_free();
}

static void test_no_memory(void **state)
{
	(void)state;
	mem_fail_after(1);
	assert_int_equal(penalty_failed("a", 1, MOST), MOST);
	penalty_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_heals),
		cmocka_unit_test(test_deferral),
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
