/* The md5 scheme against values that PostgreSQL computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire/scram.h"

static void test_secret(void **state)
{
	static const struct {
		const char *password, *user, *want;
	} cases[] = {
		{"secret", "alice", "md54a0a68b43b6cd5cf266fa02f196e2371"},
		{"", "", "md5d41d8cd98f00b204e9800998ecf8427e"},
		{"p\xC3\xA4ss", "u", "md51af9a60b0ac8ca5bccc33e1c6141ed6c"},
	};
	char got[36];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		md5_secret(got, cases[i].password, cases[i].user);
		assert_string_equal(got, cases[i].want);
	}
}

static void test_response(void **state)
{
	static const uint8_t salt[4] = {1, 0, 255, 4};
	char stored[36], got[36];

	(void)state;
	md5_secret(stored, "secret", "alice");
	md5_response(got, stored, salt);
	assert_string_equal(got, "md50cb06034f9cfaa2b7e32a404ad84d569");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret),
		cmocka_unit_test(test_response),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
