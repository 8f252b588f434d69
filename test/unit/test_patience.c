/* When a reader with MIN looks: by what was counted, by WITHIN, and when it is in doubt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../src/queue/patience.h"

#define NOW    (1000 * USEC_MSEC)
#define WITHIN (50 * USEC_MSEC)

/* Asked when 10 had been counted, answered when so many had: so many are missing. */
static struct patience told(int64_t pause, int64_t missing, uint64_t counted, usec_t *at)
{
	const int64_t numbers[PATIENCE_NUMBERS] = {pause, missing, WITHIN / USEC_MSEC};
	struct patience p;

	patience_sent(&p, 10);
	patience_told(&p, numbers);
	*at = patience_answered(&p, counted, NOW);
	return p;
}

static void test_enough(void **state)
{
	usec_t at;
	struct patience p = told(7, 3, 10, &at);

	(void)state;
	assert_true(at == USEC_NEVER);
	assert_true(patience_counted(&p, 10, NOW) == USEC_NEVER);
	assert_true(patience_counted(&p, 12, NOW + 1) == USEC_NEVER);
	assert_true(patience_counted(&p, 13, NOW + 2) == NOW + 2);
}

/* The first that comes behind nothing: the answer has said nothing of when. */
static void test_within(void **state)
{
	usec_t at;
	struct patience p = told(0, 3, 10, &at);

	(void)state;
	assert_true(at == USEC_NEVER);
	assert_true(patience_counted(&p, 11, NOW + 5) == NOW + 5 + WITHIN);
	assert_true(patience_counted(&p, 12, NOW + 9) == NOW + 5 + WITHIN);
	assert_true(patience_counted(&p, 14, NOW + 20) == NOW + 20);
}

/* Counted while it was asked: it may have seen them. If nothing follows it looks all the same. */
static void test_doubt(void **state)
{
	usec_t at, doubt;
	struct patience p = told(7, 3, 12, &at);

	(void)state;
	assert_true(at == USEC_NEVER);
	doubt = patience_counted(&p, 13, NOW + 1);
	assert_true(doubt > NOW + 1 && doubt <= NOW + WITHIN / 2);
	assert_true(patience_counted(&p, 14, NOW + 2) == doubt);
	assert_true(patience_counted(&p, 15, NOW + 3) == NOW + 3);

	p = told(7, 3, 14, &at);
	assert_true(at == NOW + (doubt - NOW - 1));
	p = told(0, 3, 11, &at);
	assert_true(at == NOW + WITHIN);
}

/* Nothing was told: whatever comes is worth a look. */
static void test_not_told(void **state)
{
	struct patience p;

	(void)state;
	patience_sent(&p, 10);
	assert_true(patience_answered(&p, 10, NOW) == USEC_NEVER);
	assert_true(patience_counted(&p, 11, NOW + 1) == NOW + 1);
	patience_sent(&p, 11);
	assert_true(patience_answered(&p, 12, NOW) == NOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_enough),
		cmocka_unit_test(test_within), cmocka_unit_test(test_doubt),
		cmocka_unit_test(test_not_told)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
