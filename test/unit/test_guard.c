/*
 * What is let to libpq in a login: guard.c. Each message whole, byte by byte, and behind each
 * other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/queue/guard.h"
#include "base/buf.h"
#include "wire/build.h"
#include "wire/scram.h"

#define ROUNDS "r=abcdefgh,s=c2FsdA==,i="

static struct buf auth(int32_t code, const char *data)
{
	struct buf b = BUF_INIT;

	build_auth(&b, code, data, strlen(data));
	return b;
}

static enum guard_verdict look(struct guard *g, int32_t code, const char *data)
{
	struct buf b = auth(code, data);
	enum guard_verdict v = guard_look(g, b.data, b.len);

	buf_free(&b);
	return v;
}

static const struct login {
	const char *name;
	struct step {
		int32_t code;
		const char *data;
	} steps[4];
	int let; /* so many; the next one is refused */
	const char *why;
} logins[] = {
	{"trust", {{0, ""}}, 1, NULL},
	{"password", {{3, ""}, {0, ""}}, 2, NULL},
	{"md5", {{5, "salt"}, {0, ""}}, 2, NULL},
	{"scram", {{10, "SCRAM-SHA-256"}, {11, ROUNDS "4096"}, {12, "v="}, {0, ""}}, 4, NULL},
	{"at the limit", {{10, ""}, {11, ROUNDS "100000"}}, 2, NULL},
	{"above it", {{10, ""}, {11, ROUNDS "100001"}}, 1,
		"100001 rounds of SCRAM; max_scram_iterations allows 100000"},
	{"all there are", {{10, ""}, {11, ROUNDS "2147483647"}}, 1, "2147483647 rounds"},
	{"more than an int", {{10, ""}, {11, ROUNDS "4294967297"}}, 1, "4294967297 rounds"},
	{"more than all", {{10, ""}, {11, ROUNDS "99999999999999999999"}}, 1, "malformed SCRAM"},
	{"none", {{10, ""}, {11, ROUNDS "0"}}, 1, "malformed SCRAM"},
	{"in words", {{10, ""}, {11, ROUNDS "4096x"}}, 1, "malformed SCRAM"},
	{"hidden", {{10, ""}, {11, "r=abc,i=1,s=c2FsdA==,i=9999999"}}, 1, "malformed SCRAM"},
	{"no SCRAM", {{10, ""}, {11, "x"}}, 1, "malformed SCRAM"},
	{"rounds first", {{11, ROUNDS "4096"}}, 0, "code 11"},
	{"twice", {{10, ""}, {10, ""}}, 1, "out of order"},
	{"md5 behind SCRAM", {{10, ""}, {5, "salt"}}, 1, "out of order"},
	{"SCRAM behind md5", {{5, "salt"}, {10, ""}}, 1, "out of order"},
	{"rounds behind md5", {{5, "salt"}, {11, ROUNDS "4096"}}, 1, "out of order"},
	{"md5 twice", {{5, "salt"}, {5, "salt"}}, 1, "out of order"},
	{"end before rounds", {{10, ""}, {12, "v="}}, 1, "out of order"},
	{"GSSAPI", {{7, ""}}, 0, "code 7"},
	{"SSPI", {{9, ""}}, 0, "code 9"},
	{"Kerberos", {{2, ""}}, 0, "code 2"},
};

static void test_logins(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(logins); i++) {
		const struct login *l = &logins[i];
		struct guard g = {0};

		for (int k = 0; k < l->let; k++)
			if (look(&g, l->steps[k].code, l->steps[k].data) != GUARD_LET)
				fail_msg("%s: message %d was not let: %s", l->name, k, g.why);
		if (l->why == NULL)
			continue;
		if (look(&g, l->steps[l->let].code, l->steps[l->let].data) != GUARD_REFUSE)
			fail_msg("%s was not refused", l->name);
		if (strstr(g.why, l->why) == NULL)
			fail_msg("%s: it says: %s", l->name, g.why);
	}
}

/* In pieces: nothing is let before it is whole, and nothing is decided by what stands behind it. */
static void test_pieces(void **state)
{
	struct buf rounds = auth(11, ROUNDS "4096");
	size_t whole = rounds.len;

	(void)state;
	buf_puts(&rounds, "R and what not");
	for (size_t n = 0; n <= rounds.len; n++) {
		struct guard g = {.state = GUARD_SCRAM};

		assert_int_equal(
			guard_look(&g, rounds.data, n), n < whole ? GUARD_WAIT : GUARD_LET);
		assert_int_equal(g.state, n < whole ? GUARD_SCRAM : GUARD_PASSED);
	}
	/* a message whose beginning libpq has read already */
	for (size_t n = 1; n < whole; n++) {
		struct guard g = {.state = GUARD_SCRAM};

		assert_int_equal(guard_look(&g, rounds.data + n, rounds.len - n), GUARD_REFUSE);
	}
	buf_free(&rounds);
}

static void test_heads(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		enum guard_verdict v;
	} heads[] = {
		{"", 0, GUARD_WAIT},
		{"R", 1, GUARD_WAIT},
		{"N\0\0\0\5\0", 6, GUARD_REFUSE},
		{"v\0\0\0\5\0", 6, GUARD_REFUSE},
		{"S\0\0\0\5\0", 6, GUARD_REFUSE},
		{"R\0\0\0\7\0\0\0", 8, GUARD_REFUSE},
		{"R\0\0\0\0", 5, GUARD_REFUSE},
		{"R\xff\xff\xff\xff", 5, GUARD_REFUSE},
		{"R\0\0\x20\0", 5, GUARD_REFUSE},
		{"R\0\0\x1f\xff", 5, GUARD_WAIT},
		{"E\0\0\0\5\0", 6, GUARD_LET},
		{"E\0\0\0\3", 5, GUARD_REFUSE},
		{"Eno memory\n", 11, GUARD_REFUSE},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		struct guard g = {0};

		if (guard_look(&g, (const uint8_t *)heads[i].bytes, heads[i].len) != heads[i].v)
			fail_msg("head %zu", i);
	}
}

/* libpq has the error; nothing comes behind it. */
static void test_nothing_behind_an_error(void **state)
{
	struct guard g = {.state = GUARD_SCRAM};

	(void)state;
	assert_int_equal(guard_look(&g, (const uint8_t *)"E\0\0\0\5\0", 6), GUARD_LET);
	assert_int_equal(look(&g, 11, ROUNDS "4096"), GUARD_REFUSE);
}

static int set_limit(void **state)
{
	(void)state;
	scram_set_limit(100000);
	return 0;
}

static void test_the_limit_is_the_setting(void **state)
{
	struct guard g = {.state = GUARD_SCRAM};

	scram_set_limit(5000);
	assert_int_equal(look(&g, 11, ROUNDS "5001"), GUARD_REFUSE);
	assert_int_equal(look(&g, 11, ROUNDS "5000"), GUARD_LET);
	(void)set_limit(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logins),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_nothing_behind_an_error),
		cmocka_unit_test(test_the_limit_is_the_setting),
	};

	return cmocka_run_group_tests_name("guard", tests, set_limit, NULL);
}
