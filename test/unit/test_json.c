/* JSON by the line: members of an object, and strings in both directions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"

/* "name=value;" for each member, then "." or "!" for what is no object. The text ends where its memory does. */
static char *members(const char *text)
{
	static char got[1000];
	size_t len = strlen(text);
	char *exact = malloc(len + 1);
	struct json_member m = {.name = BUF_INIT};
	struct buf b = BUF_INIT;
	enum json_next next;

	memcpy(exact, text, len);
	exact = realloc(exact, len > 0 ? len : 1);
	struct json_reader r = json_begin(exact, len);
	while ((next = json_next(&r, &m)) == JSON_MEMBER)
		buf_printf(&b, "%s=%.*s;", buf_cstr(&m.name), (int)m.len, m.value);
	buf_putc(&b, next == JSON_END ? '.' : '!');
	strcpy(got, buf_cstr(&b));
	buf_free(&b);
	buf_free(&m.name);
	free(exact);
	return got;
}

static void test_members(void **state)
{
	(void)state;
	assert_string_equal(members("{}"), ".");
	assert_string_equal(members(" { } \r\n"), ".");
	assert_string_equal(members("{\"a\": 1}"), "a=1;.");
	assert_string_equal(
		members("{\"a\":null,\"b\" : {\"c\": [1, \"}\\\"]\"]} ,\"\\u00e4\":\"x\"}"),
		"a=null;b={\"c\": [1, \"}\\\"]\"]};\xc3\xa4=\"x\";.");
	assert_string_equal(members("{\"a\": [[[[]]]]}"), "a=[[[[]]]];.");
}

static void test_no_object(void **state)
{
	static const char *const bad[] = {"", " ", "1", "[]", "\"a\"", "{", "{\"", "{\"a", "{\"a\"",
		"{\"a\":", "{\"a\":}", "{\"a\": \"", "{\"a\": \"\\", "{\"a\": [", "{\"a\": [\"]}",
		"{a: 1}", "{,}", "{} x", "{\"\\u12\": 1}", "{\"a\": \"\n\"}", "{\"a\" 1}", NULL};

	(void)state;
	for (int i = 0; bad[i] != NULL; i++)
		assert_string_equal(members(bad[i]), "!");
	assert_string_equal(members("{\"a\": 1,}"), "a=1;!");
	assert_string_equal(members("{\"a\": 1"), "a=1;!");
	assert_string_equal(members("{\"a\": 1 \"b\": 2}"), "a=1;!");
	assert_string_equal(members("{\"a\": 1}}"), "a=1;!");
}

static const char *string_of(const char *value)
{
	static char got[1000];
	struct buf b = BUF_INIT;
	bool ok = json_string(value, strlen(value), &b);

	strcpy(got, ok ? buf_cstr(&b) : "!");
	buf_free(&b);
	return got;
}

static void test_string(void **state)
{
	(void)state;
	assert_string_equal(string_of("\"\""), "");
	assert_string_equal(string_of("\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\""), "a\"\\/\b\f\n\r\tz");
	assert_string_equal(string_of("\"\\u0041\\u00E4\\u20ac\\ud83d\\ude00\""),
		"A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	assert_string_equal(string_of("1"), "!");
	assert_string_equal(string_of("\""), "!");
	assert_string_equal(string_of("\"\\x\""), "!");
	assert_string_equal(string_of("\"\\\""), "!");
	assert_string_equal(string_of("\"\\u0000\""), "!");
	assert_string_equal(string_of("\"\\ud83d\""), "!");
	assert_string_equal(string_of("\"\\ud83dx\""), "!");
	assert_string_equal(string_of("\"\\ud83d\\u0041\""), "!");
	assert_string_equal(string_of("\"\\ude00\""), "!");
	assert_string_equal(string_of("\"\\u00g0\""), "!");
}

static void test_quote(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	json_quote(&b, "a\"\\\n\0\xff\xc3\xa4\x7f\xc3", 10);
	assert_string_equal(buf_cstr(&b),
		"\"a\\\"\\\\\\u000a\xef\xbf\xbd\xef\xbf\xbd\xc3\xa4\\u007f\xef\xbf\xbd\"");
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_no_object),
		cmocka_unit_test(test_string),
		cmocka_unit_test(test_quote),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
