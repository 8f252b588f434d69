/* The growing buffer: contents, consuming, the sticky error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"

static void test_put(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	assert_string_equal(buf_cstr(&b), "");
	buf_puts(&b, "one");
	buf_putc(&b, ' ');
	buf_put(&b, "two\0three", 9);
	buf_put(&b, NULL, 0);
	assert_int_equal(buf_used(&b), 13);
	assert_memory_equal(b.data, "one two\0three", 13);
	assert_string_equal(buf_cstr(&b) + 8, "three");
	assert_int_equal(b.len, 13);
	buf_free(&b);
	assert_null(b.data);
	buf_free(&b);
}

static void test_grow(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < 100000; i++)
		buf_putc(&b, (char)(i % 251));
	assert_false(buf_failed(&b));
	assert_int_equal(b.len, 100000);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(b.data[i], i % 251);
	buf_reserve(&b, 1000000);
	assert_true(b.cap - b.len >= 1000000);
	buf_free(&b);
}

/* Another place for what grows, the old one empty: the sanitizer must see no use of it. */
static void test_secret(void **state)
{
	struct buf b = BUF_SECRET;

	(void)state;
	for (int i = 0; i < 1000; i++)
		buf_put(&b, "secret", 6);
	assert_int_equal(buf_used(&b), 6000);
	assert_memory_equal(b.data + 5994, "secret", 6);
	buf_free(&b);
	assert_true(b.secret && b.data == NULL);
	mem_fail_after(1);
	buf_puts(&b, "x");
	assert_true(buf_failed(&b) && b.secret);
	mem_fail_after(0);
	buf_free(&b);
}

static void test_printf(void **state)
{
	struct buf b = BUF_INIT;
	char wide[600];

	(void)state;
	memset(wide, 'w', sizeof(wide));
	wide[sizeof(wide) - 1] = '\0';
	for (int i = 0; i < 100; i++)
		buf_printf(&b, "%d,", i);
	buf_printf(&b, "%s", wide);
	buf_printf(&b, "%s", "");
	assert_int_equal(buf_used(&b), 10 * 2 + 90 * 3 + 599);
	assert_memory_equal(b.data, "0,1,2,3,", 8);
	assert_int_equal(b.data[b.len - 1], 'w');
	buf_free(&b);
}

static void test_consume(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	buf_puts(&b, "abcdef");
	b.off = 4;
	assert_int_equal(buf_used(&b), 2);
	assert_string_equal(buf_cstr(&b), "ef");
	/* Writing never moves what is there: offsets stay good. */
	for (int i = 0; i < 1000; i++)
		buf_puts(&b, "0123456789");
	assert_int_equal(b.off, 4);
	assert_memory_equal(b.data + 4, "ef0123", 6);
	buf_compact(&b);
	assert_int_equal(b.off, 0);
	assert_int_equal(b.len, 10002);
	assert_memory_equal(b.data, "ef0123", 6);
	b.off = b.len;
	buf_compact(&b);
	assert_int_equal(b.len, 0);
	buf_reset(&b);
	buf_compact(&b);
	assert_true(b.cap >= 10002);
	buf_free(&b);
}

static void test_failure_sticks(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	mem_fail_after(1);
	buf_puts(&b, "lost");
	assert_true(buf_failed(&b));
	buf_puts(&b, "more");
	buf_printf(&b, "%d", 1);
	buf_putc(&b, 'c');
	assert_int_equal(b.len, 0);
	assert_string_equal(buf_cstr(&b), "");
	buf_reset(&b);
	buf_puts(&b, "again");
	assert_false(buf_failed(&b));
	assert_string_equal(buf_cstr(&b), "again");
	mem_fail_after(1);
	buf_printf(&b, "%1000d", 1);
	assert_true(buf_failed(&b));
	buf_free(&b);
	assert_false(buf_failed(&b));
	buf_puts(&b, "x");
	buf_reserve(&b, SIZE_MAX - 1);
	assert_true(buf_failed(&b));
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_secret),
		cmocka_unit_test(test_printf),
		cmocka_unit_test(test_consume),
		cmocka_unit_test(test_failure_sticks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
