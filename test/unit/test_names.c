/* Names one behind the other: order, none, and lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/names.h"

static void test_they_come_in_their_order(void **state)
{
	static const char *const want[] = {"mail", "", "print"};
	struct names n = {0}, taken;
	size_t i = 0;

	(void)state;
	assert_true(names_none(&n));
	assert_null(names_first(&n));
	names_add(&n, "mail");
	names_add(&n, "");
	names_add_bytes(&n, "printer", 5);
	NAMES_FOREACH (at, &n)
		assert_string_equal(at, want[i++]);
	assert_int_equal(i, 3);
	taken = names_take(&n);
	assert_true(names_none(&n));
	assert_string_equal(names_first(&taken), "mail");
	names_reset(&taken);
	assert_null(names_first(&taken));
	names_add(&taken, "x");
	assert_string_equal(names_first(&taken), "x");
	names_free(&taken);
	assert_true(names_none(&taken));
}

static void test_without_memory_there_are_none(void **state)
{
	struct names n = {0};

	(void)state;
	mem_fail_after(1);
	names_add(&n, "mail");
	mem_fail_after(0);
	names_add(&n, "print");
	assert_true(names_failed(&n));
	assert_null(names_first(&n));
	names_free(&n);
	assert_false(names_failed(&n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_come_in_their_order),
		cmocka_unit_test(test_without_memory_there_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
