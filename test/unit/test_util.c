/* Comparison, numbers, hex, copies, secrets. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/util.h"

static void test_print_i64(void **state)
{
	const int64_t cases[] = {
		0, 1, -1, 9, 10, -10, 4711, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN};
	char got[UTIL_I64_SIZE], wanted[UTIL_I64_SIZE];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int len = util_print_i64(got, cases[i]);

		assert_int_equal(
			len, snprintf(wanted, sizeof(wanted), "%lld", (long long)cases[i]));
		assert_string_equal(got, wanted);
	}
}

static void test_parse_i64(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		int64_t value;
	} cases[] = {
		{"0", true, 0},
		{"-0", true, 0},
		{"+7", true, 7},
		{"007", true, 7},
		{"9223372036854775807", true, INT64_MAX},
		{"-9223372036854775808", true, INT64_MIN},
		{"9223372036854775808", false, 0},
		{"-9223372036854775809", false, 0},
		{"99999999999999999999", false, 0},
		{"", false, 0},
		{"-", false, 0},
		{"+", false, 0},
		{"--1", false, 0},
		{" 1", false, 0},
		{"1 ", false, 0},
		{"1a", false, 0},
		{"0x1", false, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t v = 42;
		bool ok = util_parse_i64(cases[i].text, strlen(cases[i].text), &v);

		assert_int_equal(ok, cases[i].ok);
		assert_true(v == (ok ? cases[i].value : 42));
	}
	/* The length counts, not a terminator. */
	int64_t v;

	assert_true(util_parse_i64("12345", 3, &v));
	assert_int_equal(v, 123);
	assert_false(util_parse_i64("1\0002", 3, &v));
}

static void test_casecmp(void **state)
{
	static const struct {
		const char *a, *b;
		int sign;
	} cases[] = {
		{"", "", 0},
		{"Queue", "qUEUE", 0},
		{"a", "ab", -1},
		{"ab", "a", 1},
		{"A", "b", -1},
		{"[", "a", -1}, /* between Z and a */
		{"\xc4", "\xe4", -1},
		{"a", "\xe4", -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int c = util_strcasecmp(cases[i].a, cases[i].b);

		assert_int_equal((c > 0) - (c < 0), cases[i].sign);
	}
	assert_int_equal(util_memcasecmp("TAKEx", "takeY", 4), 0);
	assert_true(util_memcasecmp("TAKEx", "takeY", 5) < 0);
	assert_int_equal(util_memcasecmp("a", "b", 0), 0);
}

static void test_utf8_len(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} cases[] = {
		{"", 0},
		{"a\xe9", 1},
		{"\x7f", 1},
		{"\xc3\xa9", 2},
		{"\xe2\x82\xac", 3},
		{"\xf0\x9f\x90\x98", 4},
		{"\xf4\x8f\xbf\xbf", 4},
		{"\x80", 0},
		{"\xe9", 0},
		{"\xc3", 0},
		{"\xe2\x82", 0},
		{"\xf0\x9f\x90", 0},
		{"\xc0\x80", 0},
		{"\xe0\x80\x80", 0},
		{"\xf0\x80\x80\x80", 0}, /* over-long */
		{"\xed\xa0\x80", 0},
		{"\xf4\x90\x80\x80", 0},
		{"\xff", 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(util_utf8_len(cases[i].text), cases[i].len);
}

static void test_strlcpy(void **state)
{
	char dst[4] = "zzz";

	(void)state;
	assert_int_equal(util_strlcpy(dst, "ab", sizeof(dst)), 2);
	assert_string_equal(dst, "ab");
	assert_int_equal(util_strlcpy(dst, "abc", sizeof(dst)), 3);
	assert_string_equal(dst, "abc");
	assert_int_equal(util_strlcpy(dst, "abcdef", sizeof(dst)), 6);
	assert_string_equal(dst, "abc");
	assert_int_equal(util_strlcpy(dst, "x", 0), 1);
	assert_string_equal(dst, "abc");
}

static void test_add_line(void **state)
{
	char text[16] = "";

	(void)state;
	assert_true(util_add_line(text, sizeof(text), "one"));
	assert_true(util_add_line(text, sizeof(text), "two"));
	assert_string_equal(text, "one\ntwo");
	assert_false(util_add_line(text, sizeof(text), "three"));
	assert_string_equal(text, "one\ntwo\n...");
	text[0] = '\0';
	assert_false(util_add_line(text, sizeof(text), "0123456789abcdef"));
	assert_string_equal(text, "0123456789abcde");
	assert_false(util_add_line(text, sizeof(text), "x"));
	assert_string_equal(text, "0123456789abcde");
}

static void test_hex(void **state)
{
	char dst[9];

	(void)state;
	util_hex(dst, "\x00\x7f\xa0\xff", 4);
	assert_string_equal(dst, "007fa0ff");
	util_hex(dst, "", 0);
	assert_string_equal(dst, "");
}

static void test_secrets(void **state)
{
	uint8_t a[32], b[32];
	char zero[8] = "secret!";

	(void)state;
	util_random(a, sizeof(a));
	util_random(b, sizeof(b));
	assert_false(util_equal_secret(a, b, sizeof(a)));
	memcpy(b, a, sizeof(a));
	assert_true(util_equal_secret(a, b, sizeof(a)));
	b[31] ^= 0x80;
	assert_false(util_equal_secret(a, b, sizeof(a)));
	assert_true(util_equal_secret(a, b, 31));
	util_random(a, 0);
	util_erase(zero, sizeof(zero));
	assert_memory_equal(zero, "\0\0\0\0\0\0\0", sizeof(zero));
	util_erase(NULL, 0);
}

static sigjmp_buf faulted;
static void *volatile fault_at;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	fault_at = info->si_addr;
	siglongjmp(faulted, 1);
}

/* Where two secrets differ makes no difference: it goes on to the end, which lies here where nobody
 * may read. */
static void test_secrets_are_read_to_the_end(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct sigaction catch = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, segv, bus;
	uint8_t *area =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t own[8] = {0};

	(void)state;
	assert_ptr_not_equal(area, MAP_FAILED);
	assert_int_equal(mprotect(area + page, page, PROT_NONE), 0);
	for (int at = 0; at < 4; at++) {
		area[page - 4 + at] = 1;
		fault_at = NULL;
		assert_int_equal(sigaction(SIGSEGV, &catch, &segv), 0);
		assert_int_equal(sigaction(SIGBUS, &catch, &bus), 0);
		if (sigsetjmp(faulted, 1) == 0)
			(void)!util_equal_secret(area + page - 4, own, sizeof(own));
		sigaction(SIGSEGV, &segv, NULL);
		sigaction(SIGBUS, &bus, NULL);
		assert_true(fault_at == area + page);
		assert_false(util_equal_secret(area + page - 4, own, 4));
		area[page - 4 + at] = 0;
	}
	assert_true(util_equal_secret(area + page - 4, own, 4));
	munmap(area, 2 * page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_print_i64),
		cmocka_unit_test(test_parse_i64),
		cmocka_unit_test(test_casecmp),
		cmocka_unit_test(test_utf8_len),
		cmocka_unit_test(test_strlcpy),
		cmocka_unit_test(test_add_line),
		cmocka_unit_test(test_hex),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_secrets_are_read_to_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
