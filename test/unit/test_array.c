/* Arrays of one dimension: binary against its bytes, text read and written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "wire/array.h"

#define EXPECT(b, text) expect(b, text, sizeof(text) - 1)

static void expect(struct buf *b, const char *bytes, size_t len)
{
	assert_false(buf_failed(b));
	assert_int_equal(buf_used(b), len);
	assert_memory_equal(b->data + b->off, bytes, len);
	buf_free(b);
}

static void test_binary(void **state)
{
	const char *const texts[] = {"ab", ""};
	struct buf b = BUF_INIT;
	size_t at;

	(void)state;
	array_texts(&b, texts, 2);
	EXPECT(&b, "\0\0\0\1\0\0\0\0\0\0\0\31\0\0\0\2\0\0\0\1\0\0\0\2ab\0\0\0\0");
	array_texts(&b, NULL, 0);
	EXPECT(&b, "\0\0\0\0\0\0\0\0\0\0\0\31");
	at = array_begin(&b, OID_TEXT, true);
	array_put_text(&b, NULL);
	array_end(&b, at, 1);
	EXPECT(&b, "\0\0\0\1\0\0\0\1\0\0\0\31\0\0\0\1\0\0\0\1\xff\xff\xff\xff");
	buf_putc(&b, 'x'); /* behind something else */
	at = array_begin(&b, OID_INT4, false);
	array_put_i32(&b, -2);
	array_end(&b, at, 1);
	EXPECT(&b, "x\0\0\0\1\0\0\0\0\0\0\0\27\0\0\0\1\0\0\0\1\0\0\0\4\xff\xff\xff\xfe");
	at = array_begin(&b, OID_INT8, false);
	array_put_i64(&b, (int64_t)1 << 32 | 2);
	array_end(&b, at, 1);
	EXPECT(&b, "\0\0\0\1\0\0\0\0\0\0\0\24\0\0\0\1\0\0\0\1\0\0\0\10\0\0\0\1\0\0\0\2");
}

static void test_binary_without_memory(void **state)
{
	const char *const texts[] = {"ab"};
	struct buf b = BUF_INIT;

	(void)state;
	mem_fail_after(1);
	array_texts(&b, texts, 1);
	mem_fail_after(0);
	assert_true(buf_failed(&b));
	buf_free(&b);
}

static const struct {
	const char *text, *elements; /* parted by '|'; NULL: it is none */
	bool null;
} reads[] = {
	{"{}", "", false},
	{"{ }", "", false},
	{"{a}", "a|", false},
	{"{a,b c}", "a|b c|", false},
	{"{ a , b }", "a|b|", false},
	{"{\"a,b\",\"\"}", "a,b||", false},
	{"{\"a\\\"b\\\\\"}", "a\"b\\|", false},
	{"{NULL}", "NULL|", true},
	{"{a,null}", "a|null|", true},
	{"{\"NULL\"}", "NULL|", false},
	{"", NULL, false},
	{"{", NULL, false},
	{"a", NULL, false},
	{"{a", NULL, false},
	{"{a,}", NULL, false},
	{"{,a}", NULL, false},
	{"{a,,b}", NULL, false},
	{"{{a}}", NULL, false},
	{"{a}b}", NULL, false},
	{"{\"a}", NULL, false},
	{"{\"a\"b}", NULL, false},
	{"{a\"b\"}", NULL, false},
	{"{a\\b}", NULL, false},
	{"[1:1]={a}", NULL, false},
};

static void test_text_is_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
		struct names list = {0};
		char got[64] = "";
		bool null, ok;
		int n, seen = 0;

		ok = array_read(reads[i].text, strlen(reads[i].text), &list, &n, &null);
		assert_int_equal(ok, reads[i].elements != NULL);
		NAMES_FOREACH (at, &list) {
			strcat(got, at);
			strcat(got, "|");
			seen++;
		}
		if (ok) {
			assert_string_equal(got, reads[i].elements);
			assert_int_equal(n, seen);
			assert_int_equal(null, reads[i].null);
		}
		names_free(&list);
	}
}

static void test_text_is_written(void **state)
{
	static const char *const of[] = {"3-1", "", "a b", "a,b", "null", "{x}", "a\"b\\", "nulls"};
	struct buf b = BUF_INIT;
	struct names list = {0};
	bool null;
	int n, i = 0;

	(void)state;
	array_text_begin(&b);
	for (size_t k = 0; k < ARRAY_LEN(of); k++)
		array_text_put(&b, of[k]);
	array_text_end(&b);
	assert_string_equal(
		buf_cstr(&b), "{3-1,\"\",\"a b\",\"a,b\",\"null\",\"{x}\",\"a\\\"b\\\\\",nulls}");
	assert_true(array_read(buf_cstr(&b), b.len, &list, &n, &null));
	assert_false(null);
	NAMES_FOREACH (at, &list)
		assert_string_equal(at, of[i++]);
	assert_int_equal(i, ARRAY_LEN(of));
	names_free(&list);
	buf_reset(&b);
	array_text_begin(&b);
	array_text_put(&b, NULL);
	array_text_put(&b, "a");
	array_text_end(&b);
	assert_string_equal(buf_cstr(&b), "{NULL,a}");
	buf_free(&b);
}

static void test_text_without_memory(void **state)
{
	struct names list = {0};
	bool null;
	int n;

	(void)state;
	mem_fail_after(1);
	assert_false(array_read("{a,b}", 5, &list, &n, &null));
	mem_fail_after(0);
	names_free(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_binary),
		cmocka_unit_test(test_binary_without_memory),
		cmocka_unit_test(test_text_is_read),
		cmocka_unit_test(test_text_is_written),
		cmocka_unit_test(test_text_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
