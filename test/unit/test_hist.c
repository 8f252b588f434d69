/* base/hist: which bucket a value goes to, and sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hist.h"

static void test_buckets(void **state)
{
	static const struct {
		uint64_t value;
		int bucket;
	} cases[] = {{0, 0}, {1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {1024, 10}, {1025, 11},
		{1ull << (HIST_BUCKETS - 1), HIST_BUCKETS - 1},
		{(1ull << (HIST_BUCKETS - 1)) + 1, HIST_BUCKETS}, {UINT64_MAX, HIST_BUCKETS}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct hist h = {0};

		hist_add(&h, cases[i].value);
		assert_int_equal(h.bucket[cases[i].bucket], 1);
		assert_true(h.sum == cases[i].value);
	}
}

static void test_merge(void **state)
{
	struct hist a = {0}, b = {0};

	(void)state;
	hist_add(&a, 7);
	hist_add(&b, 8);
	hist_add(&b, 100);
	hist_merge(&a, &b);
	assert_int_equal(a.bucket[3], 2);
	assert_int_equal(a.bucket[7], 1);
	assert_int_equal(a.sum, 115);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_merge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
