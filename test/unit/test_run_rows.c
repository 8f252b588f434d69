/* The rows of a statement of a job: whatever a server sends, and however much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/queue/run_rows.h"
#include "base/mem.h"
#include "wire/build.h"
#include "wire/width.h"

static const enum run_form forms[] = {RUN_JSON, RUN_CSV, RUN_TEXT};

static void start(struct run_rows *r, enum run_form form)
{
	*r = (struct run_rows){.left = RUN_ROWS_MAX};
	r->format.form = form;
	r->format.header = true;
	r->format.delimiter = ',';
	r->format.quote = r->format.escape = '"';
}

/* The bodies of a RowDescription and of a DataRow: a number, and a text of two lines. */
static struct buf description(void)
{
	struct buf b = BUF_INIT;

	build_i16(&b, 2);
	for (int i = 0; i < 2; i++) {
		build_cstr(&b, i == 0 ? "n" : "a\nname");
		build_bytes(&b, "\0\0\0\0\0\0", 6);
		build_i32(&b, i == 0 ? OID_INT4 : OID_TEXT);
		build_bytes(&b, "\0\4\377\377\377\377\0\0", 8);
	}
	return b;
}

static struct buf row(const char *second)
{
	struct buf b = BUF_INIT;

	build_i16(&b, 2);
	build_row_value(&b, (const uint8_t *)"17", 2);
	build_row_value(&b, (const uint8_t *)second, second != NULL ? (int32_t)strlen(second) : -1);
	return b;
}

static char *outcome(struct run_rows *r, const char *tag)
{
	struct buf b = BUF_INIT;
	char *ret;

	run_rows_ended(r, tag);
	run_rows_outcome(r, &b);
	buf_putc(&b, '}');
	ret = strdup(buf_cstr(&b));
	buf_free(&b);
	return ret;
}

static void test_forms(void **state)
{
	static const char *const want[] = {
		"{\"tag\": \"SELECT 2\", \"count\": 2, \"names\": [\"n\", \"a\\u000aname\"], \"types\": [23, 25], "
		"\"values\": [[\"17\", \"x\\u0009y\"], [\"17\", null]]}",
		"{\"tag\": \"SELECT 2\", \"count\": 2, \"csv\": \"n,\\\"a\\u000aname\\\"\\u000a17,x\\u0009y\\u000a17,\\u000a\"}",
		"{\"tag\": \"SELECT 2\", \"count\": 2, \"text\": \" n  |     a    +\\u000a    |   name    \\u000a----+-----------\\u000a"
		" 17 | x       y\\u000a 17 | \\u000a(2 rows)\\u000a\\u000a\"}"};
	struct buf d = description(), one = row("x\ty"), two = row(NULL);
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct run_rows r;
		char *got;

		start(&r, forms[i]);
		assert_true(run_rows_columns(&r, d.data, d.len, &err));
		run_rows_add(&r, one.data, one.len);
		run_rows_add(&r, two.data, two.len);
		got = outcome(&r, "SELECT 2");
		assert_string_equal(got, want[i]);
		free(got);
		run_rows_free(&r);
	}
	buf_free(&d);
	buf_free(&one);
	buf_free(&two);
}

/* Each beginning of each message, and more than was said. */
static void test_hostile(void **state)
{
	struct buf d = description(), one = row("x\xFF\xE0\x80\n\n\xC3");
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		for (size_t cut = 0; cut < d.len; cut++) {
			struct run_rows r;

			start(&r, forms[i]);
			assert_false(run_rows_columns(&r, d.data, cut, &err));
			assert_string_equal(err.sqlstate, "08P01");
			run_rows_add(&r, one.data, one.len);
			free(outcome(&r, ""));
			run_rows_free(&r);
		}
		for (size_t cut = 0; cut <= one.len; cut++) {
			struct run_rows r;

			start(&r, forms[i]);
			run_rows_add(&r, one.data, one.len); /* before its columns */
			assert_true(run_rows_columns(&r, d.data, d.len, &err));
			run_rows_add(&r, one.data, cut);
			run_rows_add(&r, d.data, d.len);
			run_rows_add(&r, NULL, 2000000000);
			run_rows_add(&r, one.data, one.len);
			assert_int_equal(r.n, 4);
			free(outcome(&r, "FETCH 18446744073709551616"));
			run_rows_free(&r);
		}
	}
	buf_free(&d);
	buf_free(&one);
}

/* That is no fault of the server. */
static void test_no_memory(void **state)
{
	struct buf d = description();
	struct pg_error err;

	(void)state;
	for (unsigned long fail = 1; fail <= 2; fail++) {
		struct run_rows r;

		start(&r, RUN_JSON);
		mem_fail_after(fail);
		assert_false(run_rows_columns(&r, d.data, d.len, &err));
		mem_fail_after(0);
		assert_string_equal(err.sqlstate, "53200");
		run_rows_free(&r);
	}
	buf_free(&d);
}

/* Of all statements together. */
static void test_bound(void **state)
{
	char text[1001];
	struct buf d = description(), one;
	struct pg_error err;

	(void)state;
	memset(text, 'x', sizeof(text));
	text[1000] = '\0';
	one = row(text);
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct run_rows r;
		char *got;

		start(&r, forms[i]);
		for (int statement = 0; statement < 20; statement++) {
			assert_true(run_rows_columns(&r, d.data, d.len, &err));
			for (int n = 0; n < 100; n++)
				run_rows_add(&r, one.data, one.len);
			run_rows_ended(&r, "SELECT 100");
		}
		got = outcome(&r, "DELETE 3");
		assert_true(r.cut && r.count == 3 && r.statements == 21);
		assert_in_range(strlen(got), 900000, 1100000);
		free(got);
		run_rows_free(&r);
	}
	buf_free(&d);
	buf_free(&one);
}

/* So many columns, of which the first has this name; those behind it have another one. */
static struct buf columns(int n, const char *first, const char *others)
{
	struct buf b = BUF_INIT;

	build_i16(&b, n);
	for (int i = 0; i < n; i++) {
		build_cstr(&b, i == 0 ? first : others);
		build_bytes(&b, "\0\0\0\0\0\0", 6);
		build_i32(&b, OID_TEXT);
		build_bytes(&b, "\0\4\377\377\377\377\0\0", 8);
	}
	return b;
}

/* What is told of columns counts too, also where there are no rows. */
static void test_columns_are_bound(void **state)
{
	char name[64], lines[20001];
	struct buf names, header;
	struct pg_error err;

	(void)state;
	memset(name, 1, sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	memset(lines, '\n', sizeof(lines) - 1);
	lines[sizeof(lines) - 1] = '\0';
	names = columns(1600, name, name);
	header = columns(500, lines, "");
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct run_rows r;
		char *got;

		start(&r, forms[i]);
		for (int statement = 0; statement < 20; statement++) {
			const struct buf *d = statement == 0 ? &header : &names;

			assert_true(run_rows_columns(&r, d->data, d->len, &err));
			run_rows_ended(&r, "SELECT 0");
		}
		got = outcome(&r, "SELECT 0");
		assert_true(r.cut);
		assert_in_range(
			strlen(got), 1, forms[i] == RUN_CSV ? 7000000 : 2000000); /* \u0001 each */
		free(got);
		run_rows_free(&r);
	}
	buf_free(&names);
	buf_free(&header);
}

/* There is room for a row of many columns: a table has as many lines above it as the longest name. */
static void test_many_columns(void **state)
{
	struct buf d = columns(1000, "a name", "b"), one = BUF_INIT;
	struct run_rows r;
	struct pg_error err;
	char *got;

	(void)state;
	build_i16(&one, 1000);
	for (int i = 0; i < 1000; i++)
		build_row_value(&one, (const uint8_t *)"x", 1);
	start(&r, RUN_TEXT);
	assert_true(run_rows_columns(&r, d.data, d.len, &err));
	run_rows_add(&r, one.data, one.len);
	assert_false(r.full);
	got = outcome(&r, "SELECT 1");
	assert_non_null(strstr(got, " x      | x | x"));
	free(got);
	run_rows_free(&r);
	buf_free(&d);
	buf_free(&one);
}

static void test_width(void **state)
{
	static const struct {
		uint32_t c;
		int width;
	} cases[] = {{'a', 1}, {0, 0}, {'\n', -1}, {0x7F, -1}, {0x85, -1}, {0xA0, 1}, {0x301, 0},
		{0x1100, 2}, {0x65E5, 2}, {0xFF21, 2}, {0xFF71, 1}, {0x1F600, 2}, {0x200B, 0},
		{0x10FFFF, 1}, {0x110000, -1}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(width_of(cases[i].c), cases[i].width);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_columns_are_bound),
		cmocka_unit_test(test_many_columns),
		cmocka_unit_test(test_width),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
