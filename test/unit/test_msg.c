/* Reading messages: the reader, wire_next at every cut, names, the fields of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire/msg.h"

static void test_reader_gets(void **state)
{
	static const uint8_t data[] = {1, 0xFF, 0xFE, 0x80, 0, 0, 1, 'a', 'b', 0, 9, 8};
	struct wire_reader r;
	size_t len = 99;

	(void)state;
	wire_reader_init(&r, data, sizeof(data));
	assert_int_equal(wire_get_u8(&r), 1);
	assert_int_equal(wire_get_i16(&r), -2);
	assert_int_equal(wire_get_i32(&r), INT32_MIN + 1);
	assert_string_equal(wire_get_cstr(&r, &len), "ab");
	assert_int_equal(len, 2);
	assert_int_equal(wire_left(&r), 2);
	assert_false(wire_done(&r));
	assert_ptr_equal(wire_get_bytes(&r, 2), data + 10);
	assert_true(wire_done(&r));
	assert_non_null(wire_get_bytes(&r, 0));
	assert_true(wire_done(&r));
}

static void test_reader_overrun_sticks(void **state)
{
	static const uint8_t data[] = {1, 2, 3};
	struct wire_reader r;
	size_t len = 99;

	(void)state;
	wire_reader_init(&r, data, sizeof(data));
	assert_int_equal(wire_get_u32(&r), 0);
	assert_true(r.failed);
	assert_int_equal(wire_get_u8(&r), 0);
	assert_int_equal(wire_get_i16(&r), 0);
	assert_int_equal(wire_get_i32(&r), 0);
	assert_null(wire_get_bytes(&r, 0));
	assert_string_equal(wire_get_cstr(&r, &len), "");
	assert_int_equal(len, 0);
	assert_int_equal(wire_left(&r), 0);
	assert_false(wire_done(&r));

	wire_reader_init(&r, data, sizeof(data));
	assert_null(wire_get_bytes(&r, SIZE_MAX));
	assert_true(r.failed);
	wire_reader_init(&r, data, sizeof(data));
	assert_string_equal(wire_get_cstr(&r, NULL), "");
	assert_true(r.failed);
	wire_reader_init(&r, NULL, 0);
	assert_true(wire_done(&r));
	assert_int_equal(wire_get_u8(&r), 0);
	assert_true(r.failed);
}

static void test_next_lengths(void **state)
{
	static const struct {
		uint8_t head[5];
		enum wire_next want;
		uint32_t total;
	} cases[] = {
		{{'Q', 0, 0, 0, 4}, WIRE_NEXT_OK, 5},
		{{'Q', 0, 0, 0, 3}, WIRE_NEXT_BAD, 0},
		{{'Q', 0, 0, 0, 0}, WIRE_NEXT_BAD, 0},
		{{'Q', 0xFF, 0xFF, 0xFF, 0xFF}, WIRE_NEXT_BAD, 0},
		{{'Q', 0xFF, 0xFF, 0xFF, 0xFE}, WIRE_NEXT_BAD, 0},
		{{'Q', 0x80, 0, 0, 0}, WIRE_NEXT_BAD, 0},
		{{'Q', 0x7F, 0xFF, 0xFF, 0xFF}, WIRE_NEXT_BAD, 0},
		{{'d', 0x7F, 0xFF, 0xFF, 0xFE}, WIRE_NEXT_OK, INT32_MAX},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct wire_msg m;

		assert_int_equal(wire_next(cases[i].head, 5, &m), cases[i].want);
		if (cases[i].want != WIRE_NEXT_OK)
			continue;
		assert_int_equal(m.type, cases[i].head[0]);
		assert_int_equal(m.total, cases[i].total);
		assert_int_equal(m.have, 0);
		assert_int_equal(wire_complete(&m), cases[i].total == 5);
	}
}

/* Two messages, cut at every point: the same view as soon as the header is here. */
static void test_next_every_cut(void **state)
{
	static const uint8_t two[] = {'Q', 0, 0, 0, 8, 'a', 'b', 'c', 0, 'S', 0, 0, 0, 4};

	(void)state;
	for (size_t cut = 0; cut <= sizeof(two); cut++) {
		uint8_t *part = malloc(cut + 1); /* exactly as much as there is, for ASan */
		struct wire_msg m;
		size_t body = cut < 5 ? 0 : cut - 5 > 4 ? 4 : cut - 5;

		part = realloc(part, cut ? cut : 1);
		memcpy(part, two, cut);
		if (cut < 5) {
			assert_int_equal(wire_next(part, cut, &m), WIRE_NEXT_MORE);
		} else {
			assert_int_equal(wire_next(part, cut, &m), WIRE_NEXT_OK);
			assert_int_equal(m.total, 9);
			assert_ptr_equal(m.data, part);
			assert_ptr_equal(m.body, part + 5);
			assert_int_equal(m.have, body);
			assert_int_equal(wire_complete(&m), body == 4);
		}
		free(part);
	}
}

static void test_type_names(void **state)
{
	(void)state;
	assert_string_equal(wire_type_name('Q', true), "Query");
	assert_string_equal(wire_type_name('S', true), "Sync");
	assert_string_equal(wire_type_name('S', false), "ParameterStatus");
	assert_string_equal(wire_type_name('Z', false), "ReadyForQuery");
	for (int t = 0; t < 256; t++) {
		assert_non_null(wire_type_name((uint8_t)t, true));
		assert_non_null(wire_type_name((uint8_t)t, false));
	}
	assert_string_equal(wire_type_name(200, true), "unknown");
}

static void test_notice_fields(void **state)
{
	static const char full[] = "SFEHLER\0VERROR\0C42P01\0Mno such\0Ddetail\0Hhint\0P12\0\0";
	struct wire_notice n;

	(void)state;
	wire_read_notice((const uint8_t *)full, sizeof(full) - 1, &n);
	assert_string_equal(n.severity, "ERROR");
	assert_string_equal(n.sqlstate, "42P01");
	assert_string_equal(n.message, "no such");
	assert_string_equal(n.detail, "detail");
	assert_string_equal(n.hint, "hint");
}

static void test_notice_absent_and_garbled(void **state)
{
	static const struct {
		const char *body;
		size_t len;
		const char *severity, *sqlstate, *message;
	} cases[] = {
		{"", 0, "ERROR", "XX000", ""},
		{"\0", 1, "ERROR", "XX000", ""},
		{"SPANIC\0\0", 8, "PANIC", "XX000", ""},
		{"C123\0\0", 6, "ERROR", "XX000", ""},
		{"C42P01toolong\0\0", 15, "ERROR", "XX000", ""},
		{"Mcut", 4, "ERROR", "XX000", ""},
		{"Mwhole\0", 7, "ERROR", "XX000", "whole"},
		{"M\0\0", 3, "ERROR", "XX000", ""},
		{"\xFFodd\0Mx\0\0", 9, "ERROR", "XX000", "x"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct wire_notice n;

		wire_read_notice((const uint8_t *)cases[i].body, cases[i].len, &n);
		assert_string_equal(n.severity, cases[i].severity);
		assert_string_equal(n.sqlstate, cases[i].sqlstate);
		assert_string_equal(n.message, cases[i].message);
		assert_null(n.detail);
		assert_null(n.hint);
	}
}

/* Cut at every point, nothing is read behind the cut and every text ends. */
static void test_notice_every_cut(void **state)
{
	static const char full[] = "SERROR\0VERROR\0C42P01\0Mno such\0Ddetail\0Hhint\0\0";

	(void)state;
	for (size_t cut = 0; cut < sizeof(full); cut++) {
		uint8_t *part = malloc(cut ? cut : 1);
		struct wire_notice n;

		memcpy(part, full, cut);
		wire_read_notice(part, cut, &n);
		assert_true(strlen(n.sqlstate) == 5);
		assert_true(strlen(n.severity) == 5);
		assert_true(strlen(n.message) == 0 || strlen(n.message) == 7);
		free(part);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reader_gets),
		cmocka_unit_test(test_reader_overrun_sticks),
		cmocka_unit_test(test_next_lengths),
		cmocka_unit_test(test_next_every_cut),
		cmocka_unit_test(test_type_names),
		cmocka_unit_test(test_notice_fields),
		cmocka_unit_test(test_notice_absent_and_garbled),
		cmocka_unit_test(test_notice_every_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
