/* Names in other encodings than UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/queue/spelling.h"

#define UTF8   "m\xc3\xbcll"
#define LATIN1 "m\xfcll"

static void utf8(void **state)
{
	static const struct {
		const char *name;
		bool is;
	} cases[] = {{"", true}, {"mail", true}, {UTF8, true}, {LATIN1, false}, {"\xfc", false},
		{"\xc3", false}, {"a\xc3", false}, {"\xf0\x9f\x98\x80", true}, {"\xc0\x80", false},
		{"\xd3\xca\xbc\xfe", false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (spelling_is_utf8(cases[i].name) != cases[i].is)
			fail_msg("%zu", i);
}

static void one_name(void **state)
{
	static const struct {
		const char *a, *b;
		bool may;
	} cases[] = {{"mail", "mail", true}, {"mail", "mails", false}, {UTF8, UTF8, true},
		{UTF8, LATIN1, true}, {LATIN1, "m\xe4il", true}, {UTF8, "m\xc3\xa4il", false},
		{"mail", LATIN1, false}, {"mail", UTF8, false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (spelling_may_be(cases[i].a, cases[i].b) != cases[i].may ||
			spelling_may_be(cases[i].b, cases[i].a) != cases[i].may)
			fail_msg("%zu", i);
}

static void before(void **state)
{
	static const struct {
		const char *text, *name;
		size_t len;
	} cases[] = {{"a of s", "s", 1}, {"a of t", "s", 0}, {" of s", "s", 0}, {"s", "s", 0},
		{"a of b of s", "s", 6}, {"a of b of s", "b of s", 1}, {"a of " LATIN1, UTF8, 1},
		{"a of " UTF8, LATIN1, 1}, {"a of " UTF8, UTF8, 1}, {"a of m\xc3\xa4il", UTF8, 0},
		{LATIN1 " of s", "s", 4}, {"a of " LATIN1 " of " LATIN1, UTF8, 1},
		{"a of " LATIN1, "s", 0}, {" of " LATIN1, UTF8, 0}, {" of  of " LATIN1, UTF8, 4}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (spelling_before(cases[i].text, cases[i].name) != cases[i].len)
			fail_msg("%zu: %zu", i, spelling_before(cases[i].text, cases[i].name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8), cmocka_unit_test(one_name), cmocka_unit_test(before)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
