/* The names of jobs: what they are, what they are made of, and which are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/queue/token.h"

#define LONG "12345678901234567890123456789012345678901234567890123456789012"

static void test_kinds(void **state)
{
	static const struct {
		const char *text;
		enum token_kind kind;
	} cases[] = {
		{"17", TOKEN_ID},
		{"3-17", TOKEN_JOB},
		{"3-17-0123456789abcdef", TOKEN_WHOLE},
		{"3-17-", TOKEN_WHOLE},
		{"", TOKEN_BAD},
		{"-17", TOKEN_BAD},
		{"a", TOKEN_BAD},
		{"3-a", TOKEN_BAD},
		{"3-17-0-1", TOKEN_BAD},
		{"3-17-ABC", TOKEN_BAD},
		{"3 17", TOKEN_BAD},
		{LONG "3", TOKEN_ID},
		{LONG "34", TOKEN_BAD},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(token_kind(cases[i].text, strlen(cases[i].text)), cases[i].kind);
}

static void test_parts(void **state)
{
	struct token t;

	(void)state;
	assert_true(token_read("3-17-0f-rest", 7, &t));
	assert_int_equal(t.id, 17);
	assert_int_equal(t.n_digits, 2);
	assert_memory_equal(t.digits, "0f", 2);
	assert_false(token_read("3-17-", 5, &t));
	assert_false(token_read("3-17", 4, &t));
	assert_false(token_read("3", 1, &t));
	assert_false(token_read("3-x-0f", 6, &t));
	assert_int_equal(token_number("31-17-0f"), 31);
}

static void test_strict(void **state)
{
	static const char *const bad[] = {"3-17-0123456789abcde", "3-17-0123456789abcdef0",
		"3-17-0123456789abcdeg", "3--0123456789abcdef", "-17-0123456789abcdef", "3-17", "3",
		"", "1234567890-17-0123456789abcdef", "3-1234567890123456789-0123456789abcdef"};

	(void)state;
	assert_int_equal(token_strict_number("3-17-0123456789abcdef"), 3);
	assert_int_equal(token_strict_number("123456789-17-0123456789abcdef"), 123456789);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(token_strict_number(bad[i]), 0);
}

static void test_jobs(void **state)
{
	char job[TOKEN_MAX], whole[2 * TOKEN_MAX];

	(void)state;
	assert_true(token_job("3-17-0f", job));
	assert_string_equal(job, "3-17");
	assert_true(token_job("3-17", job));
	assert_string_equal(job, "3-17");
	assert_false(token_job("17", job));
	strcpy(whole, "1-" LONG);
	assert_false(token_job(whole, job));
	token_job_put(3, 17, job);
	assert_string_equal(job, "3-17");
	assert_string_equal(token_job_id(job), "17");
	assert_null(token_job_id("17"));
	assert_true(token_is_of("3-17-0f", "3-17", 4));
	assert_false(token_is_of("3-170-0f", "3-17", 4));
	assert_false(token_is_of("3-1", "3-17", 4));
	assert_false(token_is_of("3-17", "3-17", 4));
}

static void test_order(void **state)
{
	const char up[3][TOKEN_MAX] = {"3-1", "3-2", "3-3"}, same[2][TOKEN_MAX] = {"3-1", "3-1"};

	(void)state;
	assert_true(tokens_ascend(up, 3));
	assert_true(tokens_ascend(same, 1));
	assert_true(tokens_ascend(NULL, 0));
	assert_false(tokens_ascend(same, 2));
	assert_true(token_order(up[0], up[1]) < 0);
	assert_true(token_order(up[1], up[0]) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_strict),
		cmocka_unit_test(test_jobs),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
