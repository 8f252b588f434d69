/* Columns of a DataRow: whole, cut at every byte, of the wrong number; their values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire/build.h"
#include "wire/row.h"

/* Body of a row: "mail", NULL, "", "-7". */
static const uint8_t body[] = "\0\4\0\0\0\4mail\xff\xff\xff\xff\0\0\0\0\0\0\0\2-7";
enum { BODY = sizeof(body) - 1, COLUMNS = 4 };

static void test_columns(void **state)
{
	struct wire_col c[COLUMNS];
	struct wire_row r;
	int64_t n = 5;

	(void)state;
	assert_true(wire_row_read(body, BODY, c, COLUMNS));
	assert_true(wire_col_is(&c[0], "mail"));
	assert_false(wire_col_is(&c[0], "mai"));
	assert_int_equal(c[1].len, -1);
	assert_null(c[1].data);
	assert_false(wire_col_is(&c[1], ""));
	assert_int_equal(c[2].len, 0);
	assert_true(wire_col_is(&c[2], ""));
	assert_true(wire_col_number(&c[3], &n));
	assert_int_equal(n, -7);
	assert_false(wire_col_number(&c[0], &n) || wire_col_number(&c[1], &n) ||
		     wire_col_number(&c[2], &n));
	assert_int_equal(n, -7);
	assert_int_equal(wire_row_begin(&r, body, BODY), COLUMNS);
	for (int i = 0; i < COLUMNS; i++) {
		assert_false(wire_row_done(&r));
		wire_row_next(&r);
	}
	assert_true(wire_row_done(&r));
	assert_int_equal(wire_row_next(&r).len, -1);
	assert_true(r.failed);
}

static void test_written_again(void **state)
{
	struct wire_col c[COLUMNS];
	struct buf all = BUF_INIT, first = BUF_INIT, none = BUF_INIT;

	(void)state;
	assert_true(wire_row_read(body, BODY, c, COLUMNS));
	assert_int_equal(wire_row_size(c, COLUMNS), BODY - 2);
	build_row(&all, c, COLUMNS);
	build_row_first(&first, body, c, COLUMNS);
	assert_int_equal(all.len, 1 + 4 + BODY);
	assert_memory_equal(all.data, "D\0\0\0\34", 5);
	assert_memory_equal(all.data + 5, body, BODY);
	assert_int_equal(first.len, all.len);
	assert_memory_equal(first.data, all.data, all.len);
	buf_reset(&first);
	build_row_first(&first, body, c, 2);
	assert_int_equal(first.len, 19);
	assert_memory_equal(first.data, "D\0\0\0\22\0\2\0\0\0\4mail\xff\xff\xff\xff", 19);
	build_row(&none, c, 0);
	assert_int_equal(none.len, 7);
	buf_free(&all);
	buf_free(&first);
	buf_free(&none);
}

static void test_skipped(void **state)
{
	struct wire_row r;

	(void)state;
	for (int n = -1; n <= COLUMNS; n++) {
		wire_row_begin(&r, body, BODY);
		wire_row_skip(&r, n);
		assert_int_equal(r.left, n > 0 ? COLUMNS - n : COLUMNS);
		assert_int_equal(wire_row_done(&r), n == COLUMNS);
	}
	wire_row_begin(&r, body, BODY);
	wire_row_skip(&r, 3);
	assert_int_equal(wire_row_next(&r).len, 2);
	for (size_t len = 0; len < BODY; len++) {
		wire_row_begin(&r, body, len);
		wire_row_skip(&r, COLUMNS);
		assert_true(r.failed);
	}
	wire_row_begin(&r, body, BODY);
	wire_row_skip(&r, COLUMNS + 1);
	assert_true(r.failed);
	wire_row_begin(&r, (const uint8_t *)"\0\1\x7f\xff\xff\xffx", 7);
	wire_row_skip(&r, 1);
	assert_true(r.failed);
}

static void test_of_another_number(void **state)
{
	struct wire_col c[COLUMNS + 1];

	(void)state;
	assert_false(wire_row_read(body, BODY, c, COLUMNS - 1));
	assert_false(wire_row_read(body, BODY, c, COLUMNS + 1));
	assert_false(wire_row_read_first(body, BODY, c, COLUMNS + 1));
	assert_true(wire_row_read_first(body, BODY, c, 1));
	assert_true(wire_col_is(&c[0], "mail"));
}

static void test_cut_anywhere(void **state)
{
	struct wire_col c[COLUMNS];

	(void)state;
	for (size_t len = 0; len < BODY; len++) {
		assert_false(wire_row_read(body, len, c, COLUMNS));
		assert_false(wire_row_read_first(body, len, c, COLUMNS));
	}
	assert_false(wire_row_read(NULL, 0, c, 0));
	/* and with something behind it */
	assert_false(wire_row_read((const uint8_t *)"\0\1\0\0\0\0x", 7, c, 1));
	/* lengths that do not fit */
	assert_false(wire_row_read((const uint8_t *)"\0\1\x7f\xff\xff\xffx", 7, c, 1));
	assert_false(wire_row_read((const uint8_t *)"\xff\xff", 2, c, 1));
}

static void test_one_value(void **state)
{
	(void)state;
	assert_int_equal(wire_row_value((const uint8_t *)"\0\1\0\0\0\2ab", 8).len, 2);
	assert_int_equal(wire_row_value((const uint8_t *)"\0\1\xff\xff\xff\xff", 6).len, -1);
	assert_int_equal(wire_row_value(body, BODY).len, -1);
	assert_int_equal(wire_row_value(NULL, 0).len, -1);
	assert_true(wire_row_is_null((const uint8_t *)"\0\1\xff\xff\xff\xff", 6));
	assert_true(wire_row_is_null((const uint8_t *)"\0\2\xff\xff\xff\xff\0\0\0\0", 10));
	assert_false(wire_row_is_null((const uint8_t *)"\0\1\0\0\0\0", 6));
	assert_false(wire_row_is_null((const uint8_t *)"\0\1", 2));
	assert_false(wire_row_is_null(NULL, 0));
}

static void test_values_without_a_count(void **state)
{
	struct wire_row r;
	struct wire_col c;

	(void)state;
	wire_row_values(&r, (const uint8_t *)"\0\0\0\1a\0\0\0\1b", 10, 2);
	c = wire_row_next(&r);
	assert_true(wire_col_is(&c, "a"));
	c = wire_row_next(&r);
	assert_true(wire_col_is(&c, "b"));
	assert_true(wire_row_done(&r));
	wire_row_values(&r, NULL, 0, 1);
	wire_row_next(&r);
	assert_true(r.failed);
}

static void test_binary_integers(void **state)
{
	const struct wire_col four = {(const uint8_t *)"\xff\xff\xff\xfe", 4},
			      eight = {(const uint8_t *)"\xff\xff\xff\xff\0\0\0\1", 8},
			      null = {NULL, -1};
	int64_t v = 0;

	(void)state;
	assert_true(wire_col_int(&four, 4, &v));
	assert_int_equal(v, -2);
	assert_true(wire_col_int(&eight, 8, &v));
	assert_true(v == -4294967295);
	assert_false(wire_col_int(&four, 8, &v) || wire_col_int(&eight, 4, &v) ||
		     wire_col_int(&null, 4, &v));
}

static void test_copies(void **state)
{
	const struct wire_col mail = {(const uint8_t *)"mail", 4}, null = {NULL, -1};
	char dst[5];

	(void)state;
	assert_true(wire_col_copy(&mail, dst, sizeof(dst)));
	assert_string_equal(dst, "mail");
	assert_false(wire_col_copy(&mail, dst, 4));
	assert_string_equal(dst, "mai");
	assert_false(wire_col_copy(&null, dst, sizeof(dst)));
	assert_string_equal(dst, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_written_again),
		cmocka_unit_test(test_skipped),
		cmocka_unit_test(test_of_another_number),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_one_value),
		cmocka_unit_test(test_values_without_a_count),
		cmocka_unit_test(test_binary_integers),
		cmocka_unit_test(test_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
