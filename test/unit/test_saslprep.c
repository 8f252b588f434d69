/* SASLprep: the examples of RFC 4013, and what stays as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/wire/scram_int.h"
#include "base/mem.h"

static void test_examples(void **state)
{
	static const struct {
		const char *password, *want; /* NULL: stays */
	} cases[] = {
		{"", NULL}, {"pencil", NULL}, {"with\x07 a bell", NULL},
		{"I\xC2\xADX", "IX"},      /* soft hyphen is mapped to nothing */
		{"\xC2\xAA", "a"},         /* NFKC of the feminine ordinal */
		{"\xE2\x85\xA8", "IX"},    /* roman numeral nine */
		{"a\xC2\xA0z", "a z"},     /* a space that does not break */
		{"e\xCC\x81", "\xC3\xA9"}, /* e and an accent */
		{"\xC3\xA9", "\xC3\xA9"}, {"a\xC2\x85z", NULL}, /* a control character */
		{"\xD8\xA7\x31", NULL}, /* against the rules of both directions */
		{"\xFF\xFE", NULL},     /* not UTF-8 */
		{"\xC2\xAD", NULL},     /* nothing would be left */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char *text;
		enum saslprep how = saslprep(cases[i].password, &text);

#ifdef HAVE_LIBIDN
		const char *want = cases[i].want;
#else
		const char *want = NULL;
#endif
		assert_int_equal(how, want ? SASLPREP_CHANGED : SASLPREP_SAME);
		if (want)
			assert_string_equal(text, want);
		else
			assert_null(text);
		mem_free(text);
	}
}

/* Both ways of writing the password make the same keys. */
static void test_keys(void **state)
{
	struct scram_keys one, two;

	(void)state;
	assert_true(scram_keys_derive(&one, "e\xCC\x81", (const uint8_t *)"salt", 4, 3));
	assert_true(scram_keys_derive(&two, "\xC3\xA9", (const uint8_t *)"salt", 4, 3));
#ifdef HAVE_LIBIDN
	assert_memory_equal(&one, &two, sizeof(one));
#else
	assert_memory_not_equal(&one, &two, sizeof(one));
#endif
}

static void test_no_memory(void **state)
{
#ifdef HAVE_LIBIDN
	struct scram_keys keys;
	char *text;

	mem_fail_after(1);
	assert_int_equal(saslprep("\xC3\xA9", &text), SASLPREP_NO_MEMORY);
	mem_fail_after(1);
	assert_false(scram_keys_derive(&keys, "\xC3\xA9", (const uint8_t *)"salt", 4, 3));
	mem_fail_after(0);
#endif
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
