/* The first packet: every kind, every cut, every odd length; parameters and options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire/startup.h"

struct packet {
	const char *what;
	const char *bytes;
	size_t len;
	enum startup_kind want;
	const char *sqlstate, *message; /* of BAD */
};

#define BYTES(text) (text), sizeof(text) - 1
#define V3          "\0\3\0\0"
#define LAYOUT      "invalid startup packet layout: expected terminator as last byte"
#define LENGTH      "invalid length of startup packet"
#define SERVES      ": server supports 3.0 to 3.2"

static const struct packet packets[] = {
	{"ssl", BYTES("\0\0\0\10\4\322\26\57"), STARTUP_SSL, NULL, NULL},
	{"gss", BYTES("\0\0\0\10\4\322\26\60"), STARTUP_GSS, NULL, NULL},
	{"tls", BYTES("\26"), STARTUP_TLS, NULL, NULL},
	{"cancel", BYTES("\0\0\0\20\4\322\26\56\0\0\0\7abcd"), STARTUP_CANCEL, NULL, NULL},
	{"cancel long", BYTES("\0\0\0\24\4\322\26\56\0\0\0\7abcdefgh"), STARTUP_CANCEL, NULL, NULL},
	{"session", BYTES("\0\0\0\22" V3 "user\0ann\0\0"), STARTUP_SESSION, NULL, NULL},
	{"no user", BYTES("\0\0\0\11" V3 "\0"), STARTUP_SESSION, NULL, NULL},
	{"3.2", BYTES("\0\0\0\11\0\3\0\2\0"), STARTUP_SESSION, NULL, NULL},
	{"grease", BYTES("\0\0\0\11\0\3\47\17\0"), STARTUP_SESSION, NULL, NULL},
	{"empty value", BYTES("\0\0\0\14" V3 "a\0\0\0"), STARTUP_SESSION, NULL, NULL},
	{"ssl with body", BYTES("\0\0\0\11\4\322\26\57"), STARTUP_BAD, "08P01", LENGTH},
	{"gss with body", BYTES("\0\0\0\11\4\322\26\60"), STARTUP_BAD, "08P01", LENGTH},
	{"cancel short", BYTES("\0\0\0\17\4\322\26\56"), STARTUP_BAD, "08P01", LENGTH},
	{"cancel huge", BYTES("\0\0\1\15\4\322\26\56"), STARTUP_BAD, "08P01", LENGTH},
	{"length 0", BYTES("\0\0\0\0"), STARTUP_BAD, "08P01", LENGTH},
	{"length 7", BYTES("\0\0\0\7"), STARTUP_BAD, "08P01", LENGTH},
	{"length 10001", BYTES("\0\0\47\21"), STARTUP_BAD, "08P01", LENGTH},
	{"length negative", BYTES("\377\377\377\377"), STARTUP_BAD, "08P01", LENGTH},
	{"length minimum", BYTES("\200\0\0\0"), STARTUP_BAD, "08P01", LENGTH},
	{"http", BYTES("GET / HTTP/1.1\r\n"), STARTUP_BAD, "08P01",
		"this port speaks the PostgreSQL protocol, not HTTP"},
	{"http post", BYTES("POST"), STARTUP_BAD, "08P01",
		"this port speaks the PostgreSQL protocol, not HTTP"},
	{"http head", BYTES("HEAD"), STARTUP_BAD, "08P01",
		"this port speaks the PostgreSQL protocol, not HTTP"},
	{"2.0", BYTES("\0\0\1\50\0\2\0\0"), STARTUP_BAD, "0A000",
		"unsupported frontend protocol 2.0" SERVES},
	{"4.1", BYTES("\0\0\0\11\0\4\0\1"), STARTUP_BAD, "0A000",
		"unsupported frontend protocol 4.1" SERVES},
	{"unknown special", BYTES("\0\0\0\10\4\322\26\61"), STARTUP_BAD, "0A000",
		"unsupported frontend protocol 1234.5681" SERVES},
	{"nothing behind version", BYTES("\0\0\0\10" V3), STARTUP_BAD, "08P01", LAYOUT},
	{"no terminator", BYTES("\0\0\0\20" V3 "user\0ann"), STARTUP_BAD, "08P01", LAYOUT},
	{"no final terminator", BYTES("\0\0\0\20" V3 "user\0an\0"), STARTUP_BAD, "08P01", LAYOUT},
	{"name without value", BYTES("\0\0\0\15" V3 "user\0"), STARTUP_BAD, "08P01", LAYOUT},
	{"bytes behind the end", BYTES("\0\0\0\13" V3 "\0x\0"), STARTUP_BAD, "08P01", LAYOUT},
};

/* As startup_read, on a copy that ends where the data ends. */
static enum startup_kind read_cut(
	const struct packet *p, size_t cut, struct startup *s, struct pg_error *err, uint8_t **copy)
{
	*copy = malloc(cut ? cut : 1);
	memcpy(*copy, p->bytes, cut);
	return startup_read(*copy, cut, s, err);
}

static void test_packets(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(packets); i++) {
		const struct packet *p = &packets[i];
		enum startup_kind kind = STARTUP_MORE;

		/* More bytes never change an answer: MORE until some point, then the same for good.
		 */
		for (size_t cut = 0; cut <= p->len; cut++) {
			struct startup s;
			struct pg_error err;
			uint8_t *copy;
			enum startup_kind now = read_cut(p, cut, &s, &err, &copy);

			if (kind != STARTUP_MORE && now != kind)
				fail_msg("%s: changed at %zu", p->what, cut);
			kind = now;
			if (kind == STARTUP_BAD) {
				assert_string_equal(err.sqlstate, p->sqlstate);
				assert_string_equal(err.message, p->message);
				assert_string_equal(err.severity, "FATAL");
			} else if (kind != STARTUP_MORE && kind != STARTUP_TLS) {
				assert_int_equal(s.size, p->len);
			}
			free(copy);
		}
		if (kind != p->want)
			fail_msg("%s: %d instead of %d", p->what, kind, p->want);
	}
}

static void test_trailing_bytes_are_not_taken(void **state)
{
	static const uint8_t two[] = "\0\0\0\10\4\322\26\57\0\0\0\11\0\3\0\0";
	struct startup s;
	struct pg_error err;

	(void)state;
	assert_int_equal(startup_read(two, sizeof(two), &s, &err), STARTUP_SSL);
	assert_int_equal(s.size, 8);
	assert_int_equal(startup_read(two + 8, sizeof(two) - 8, &s, &err), STARTUP_SESSION);
	assert_int_equal(s.size, 9);
}

static void test_cancel(void **state)
{
	static const uint8_t p[] = "\0\0\0\24\4\322\26\56\200\0\0\1abcdefgh";
	struct startup s;
	struct pg_error err;

	(void)state;
	assert_int_equal(startup_read(p, 20, &s, &err), STARTUP_CANCEL);
	assert_int_equal(s.pid, INT32_MIN + 1);
	assert_int_equal(s.key_len, 8);
	assert_memory_equal(s.key, "abcdefgh", 8);
}

static void test_cancel_longest(void **state)
{
	uint8_t p[268] = "\0\0\1\14\4\322\26\56";
	struct startup s;
	struct pg_error err;

	(void)state;
	assert_int_equal(startup_read(p, sizeof(p) - 1, &s, &err), STARTUP_MORE);
	assert_int_equal(startup_read(p, sizeof(p), &s, &err), STARTUP_CANCEL);
	assert_int_equal(s.key_len, 256);
}

static void test_session_largest(void **state)
{
	uint8_t *p = calloc(1, STARTUP_MAX);
	struct startup s;
	struct pg_error err;

	(void)state;
	memcpy(p, "\0\0\47\20\0\3\0\0", 8);
	memset(p + 8, 'x', STARTUP_MAX - 8);
	p[100] = p[STARTUP_MAX - 2] = p[STARTUP_MAX - 1] = 0;
	assert_int_equal(startup_read(p, STARTUP_MAX - 1, &s, &err), STARTUP_MORE);
	assert_int_equal(startup_read(p, STARTUP_MAX, &s, &err), STARTUP_SESSION);
	free(p);
}

static void test_params(void **state)
{
	static const uint8_t p[] = "\0\0\0\45\0\3\0\2user\0ann\0_pq_.x\0\0database\0d\0";
	struct startup s;
	struct pg_error err;
	const char *name, *value;
	size_t pos = 0;

	(void)state;
	assert_int_equal(startup_read(p, sizeof(p), &s, &err), STARTUP_SESSION);
	assert_int_equal(s.minor, 2);
	assert_true(startup_next(&s, &pos, &name, &value));
	assert_string_equal(name, "user");
	assert_string_equal(value, "ann");
	assert_true(startup_next(&s, &pos, &name, &value));
	assert_string_equal(name, "_pq_.x");
	assert_string_equal(value, "");
	assert_true(startup_next(&s, &pos, &name, &value));
	assert_string_equal(name, "database");
	assert_string_equal(value, "d");
	assert_false(startup_next(&s, &pos, &name, &value));
	assert_false(startup_next(&s, &pos, &name, &value));
}

static void test_options(void **state)
{
	static const struct {
		const char *options;
		const char *want; /* "name=value;..." and "!" when the rest is bad */
	} cases[] = {
		{"", ""},
		{"   ", ""},
		{"-c a=b", "a=b;"},
		{"-ca=b", "a=b;"},
		{"--a=b", "a=b;"},
		{"--work-mem=1", "work_mem=1;"},
		{" -c  a=b \t--c=d\n-ce=f ", "a=b;c=d;e=f;"},
		{"-c a=x\\ y\\\\z", "a=x y\\z;"},
		{"-c a\\=b", "a=b;"},
		{"-c a=b=c", "a=b=c;"},
		{"-c a=", "a=;"},
		{"-c a=b\\", "a=b;"},
		{"-c", "!"},
		{"-c ", "!"},
		{"-c a", "!"},
		{"-c =b", "!"},
		{"--", "!"},
		{"-", "!"},
		{"a=b", "!"},
		{"-d 5", "!"},
		{"-c a=b -B 3", "a=b;!"},
		{"-c a=b x", "a=b;!"},
		{"-c 0123456789012345=b", "!"},
		{"-c 012345678901234=b", "012345678901234=b;"},
		{"-c a=0123456789012345", "!"},
		{"-c a=012345678901234", "a=012345678901234;"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char name[16], value[16], got[128] = "";
		size_t pos = 0;
		bool bad = true;

		while (startup_option_next(
			cases[i].options, &pos, name, sizeof(name), value, sizeof(value), &bad)) {
			strcat(strcat(strcat(strcat(got, name), "="), value), ";");
			assert_false(bad);
		}
		if (bad)
			strcat(got, "!");
		assert_string_equal(got, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packets),
		cmocka_unit_test(test_trailing_bytes_are_not_taken),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_cancel_longest),
		cmocka_unit_test(test_session_largest),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
