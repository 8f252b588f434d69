/* Base64: known values both ways, and all that a strict reader refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/wire/scram_int.h"

static void test_known_values(void **state)
{
	/* RFC 4648, section 10 */
	static const char *const cases[][2] = {
		{"", ""},
		{"f", "Zg=="},
		{"fo", "Zm8="},
		{"foo", "Zm9v"},
		{"foob", "Zm9vYg=="},
		{"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"},
		{"\xFB\xFF\xBF", "+/+/"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf b = BUF_INIT;
		uint8_t got[16];
		size_t n = 99, len = strlen(cases[i][0]);

		base64_put(&b, (const uint8_t *)cases[i][0], len);
		assert_string_equal(buf_cstr(&b), cases[i][1]);
		assert_true(base64_get(cases[i][1], strlen(cases[i][1]), got, len, &n));
		assert_int_equal(n, len);
		assert_memory_equal(got, cases[i][0], len);
		if (len > 0)
			assert_false(
				base64_get(cases[i][1], strlen(cases[i][1]), got, len - 1, &n));
		buf_free(&b);
	}
}

static void test_refused(void **state)
{
	static const char *const cases[] = {"Z", "Zg", "Zg=", "Zm8",
		"====", "Z===", "Zg==Zg==", "Zm9v Zg=", "Zm9v\n", "Zh==", "Zm9=", "Zm-v",
		"Zm9v=", "\xFF\xFF\xFF\xFF", "=Zm9"};
	uint8_t got[16];
	size_t n;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (base64_get(cases[i], strlen(cases[i]), got, sizeof(got), &n))
			fail_msg("accepted: %s", cases[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_values),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
