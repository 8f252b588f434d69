/* Writing messages: each builder against its bytes, offsets, errors, and lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "wire/build.h"
#include "wire/msg.h"

#define EXPECT(b, text) expect(b, text, sizeof(text) - 1)

static void expect(struct buf *b, const char *bytes, size_t len)
{
	assert_false(buf_failed(b));
	assert_int_equal(buf_used(b), len);
	assert_memory_equal(b->data + b->off, bytes, len);
	buf_free(b);
}

static void test_backend_messages(void **state)
{
	struct buf b = BUF_INIT;
	const uint32_t oids[] = {OID_INT4, OID_TEXT};
	const char *const options[] = {"_pq_.a"};

	(void)state;
	build_simple(&b, '1');
	EXPECT(&b, "1\0\0\0\4");
	build_ready(&b, 'T');
	EXPECT(&b, "Z\0\0\0\5T");
	build_complete(&b, "SELECT 1");
	EXPECT(&b, "C\0\0\0\15SELECT 1\0");
	build_parameter_status(&b, "a", "b");
	EXPECT(&b, "S\0\0\0\10a\0b\0");
	build_parameter_description(&b, oids, 2);
	EXPECT(&b, "t\0\0\0\16\0\2\0\0\0\27\0\0\0\31");
	build_auth(&b, 5, "salt", 4);
	EXPECT(&b, "R\0\0\0\14\0\0\0\5salt");
	build_auth(&b, 0, NULL, 0);
	EXPECT(&b, "R\0\0\0\10\0\0\0\0");
	build_key_data(&b, -2, "KEY!", 4);
	EXPECT(&b, "K\0\0\0\14\377\377\377\376KEY!");
	build_negotiate(&b, 2, options, 1);
	EXPECT(&b, "v\0\0\0\23\0\3\0\2\0\0\0\1_pq_.a\0");
	build_negotiate(&b, 0, NULL, 0);
	EXPECT(&b, "v\0\0\0\14\0\3\0\0\0\0\0\0");
}

static void test_rows(void **state)
{
	struct buf b = BUF_INIT;
	size_t start = build_row_begin(&b, 5);

	(void)state;
	build_row_text(&b, "ab");
	build_row_text(&b, NULL);
	build_row_text(&b, "");
	build_row_printf(&b, "%d-%s", 7, "x");
	build_row_value(&b, "\0\1", 2);
	build_row_end(&b, start);
	EXPECT(&b, "D\0\0\0\41\0\5\0\0\0\2ab\377\377\377\377\0\0\0\0\0\0\0\0037-x\0\0\0\2\0\1");
}

static void test_row_description(void **state)
{
	static const struct wire_field f[] = {{"a", OID_INT8}, {"b", OID_TEXT}};
	static const int16_t one[] = {1}, each[] = {0, 1};
	static const struct {
		const int16_t *formats;
		int n, want_a, want_b;
	} cases[] = {{NULL, 0, 0, 0}, {one, 1, 1, 1}, {each, 2, 0, 1}};
	struct buf b = BUF_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char want[] = "T\0\0\0\56\0\2"
			      "a\0\0\0\0\0\0\0\0\0\0\24\0\10\377\377\377\377\0?"
			      "b\0\0\0\0\0\0\0\0\0\0\31\377\377\377\377\377\377\0?";

		want[26] = (char)cases[i].want_a;
		want[46] = (char)cases[i].want_b;
		build_row_description(&b, f, 2, cases[i].formats, cases[i].n);
		EXPECT(&b, want);
	}
}

static void test_frontend_messages(void **state)
{
	struct buf b = BUF_INIT;
	const uint32_t oid = OID_JSONB;
	const char *const pairs[] = {"user", "u", "database", "d"};

	(void)state;
	build_query(&b, "x");
	EXPECT(&b, "Q\0\0\0\6x\0");
	build_parse(&b, "s", "select", 6, &oid, 1);
	EXPECT(&b, "P\0\0\0\23s\0select\0\0\1\0\0\16\332");
	build_parse(&b, "", "abc", 1, NULL, 0);
	EXPECT(&b, "P\0\0\0\11\0a\0\0\0");
	build_execute(&b, "p", 10);
	EXPECT(&b, "E\0\0\0\12p\0\0\0\0\12");
	build_close(&b, 'S', "n");
	EXPECT(&b, "C\0\0\0\7Sn\0");
	build_describe(&b, 'P', "");
	EXPECT(&b, "D\0\0\0\6P\0");
	build_startup(&b, 3 << 16, pairs, 2);
	EXPECT(&b, "\0\0\0\33\0\3\0\0user\0u\0database\0d\0\0");
	build_password(&b, "pw\0", 3);
	EXPECT(&b, "p\0\0\0\7pw\0");
	build_cancel(&b, 1, "abcd", 4);
	EXPECT(&b, "\0\0\0\20\4\322\26\56\0\0\0\1abcd");
}

/* Offsets stay right behind bytes that were already taken, and while the buffer grows. */
static void test_offsets(void **state)
{
	struct buf b = BUF_INIT;
	struct wire_msg m;
	size_t start;

	(void)state;
	buf_puts(&b, "taken");
	b.off = 5;
	start = build_begin(&b, 'd');
	for (int i = 0; i < 1000; i++)
		build_i32(&b, i);
	build_end(&b, start);
	assert_int_equal(wire_next(b.data + b.off, buf_used(&b), &m), WIRE_NEXT_OK);
	assert_int_equal(m.total, 4005);
	assert_true(wire_complete(&m));
	buf_free(&b);
}

static void test_error_fields(void **state)
{
	struct pg_error err;
	struct buf b = BUF_INIT;
	struct wire_notice n;

	(void)state;
	pg_error_set(&err, "42601", "bad %s", "thing");
	build_error(&b, &err);
	EXPECT(&b, "E\0\0\0\45SERROR\0VERROR\0C42601\0Mbad thing\0\0");
	pg_error_detail(&err, "d%d", 1);
	pg_error_hint(&err, "h");
	pg_error_severity(&err, "WARNING");
	err.position = 17;
	build_notice(&b, &err);
	EXPECT(&b, "N\0\0\0\64SWARNING\0VWARNING\0C42601\0Mbad thing\0Dd1\0Hh\0P17\0\0");
	pg_error_set(&err, "XX000", "%s", "");
	assert_string_equal(err.detail, "");
	assert_string_equal(err.hint, "");
	assert_int_equal(err.position, 0);
	build_error(&b, &err);
	wire_read_notice(b.data + 5, b.len - 5, &n);
	assert_string_equal(n.message, "");
	buf_free(&b);
}

/* A text that is too long is cut between characters. */
static void test_error_cut(void **state)
{
	static const char *const chars[] = {"a", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x90\x98"};
	char text[2048];
	struct pg_error err;

	(void)state;
	for (size_t c = 0; c < ARRAY_LEN(chars); c++) {
		size_t width = strlen(chars[c]);

		for (size_t shift = 0; shift < 4; shift++) {
			size_t n = shift;

			memset(text, 'x', shift);
			while (n < 1024) {
				memcpy(text + n, chars[c], width);
				n += width;
			}
			text[n] = '\0';
			pg_error_set(&err, "XX000", "%s", text);
			n = strlen(err.message);
			assert_true(n > sizeof(err.message) - 1 - width);
			assert_int_equal((n - shift) % width, 0);
			assert_memory_equal(err.message, text, n);
		}
	}
	/* Not UTF-8 at all: cut, but never harmed. */
	memset(text, 0x80, 1024);
	text[1024] = '\0';
	pg_error_detail(&err, "%s", text);
	assert_true(strlen(err.detail) > 500);
}

/* At each place: what was before it stays, and no half of a character. */
static void test_message_cut(void **state)
{
	static const char message[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z", hint[] = "h";
	struct pg_error err;
	struct buf whole = BUF_INIT;
	struct wire_msg m;

	(void)state;
	pg_error_set(&err, "22004", "%s", message);
	pg_error_hint(&err, "%s", hint);
	build_error(&whole, &err);
	assert_int_equal(wire_next(whole.data, whole.len, &m), WIRE_NEXT_OK);
	for (size_t at = 1; at < m.have; at++) {
		struct buf b = BUF_INIT;
		struct wire_msg cut;
		struct wire_notice n;
		const char *dots;

		assert_true(build_cut(&b, &m, at));
		assert_int_equal(wire_next(b.data, b.len, &cut), WIRE_NEXT_OK);
		assert_true(wire_complete(&cut) && cut.total == b.len && cut.type == 'E');
		wire_read_notice(cut.body, cut.have, &n);
		dots = strstr(n.message, "...");
		if (dots != NULL) {
			assert_memory_equal(n.message, message, (size_t)(dots - n.message));
			assert_true(((uint8_t)message[dots - n.message] & 0xc0) != 0x80);
			assert_null(n.hint);
		}
		if (n.message[0] != '\0')
			assert_string_equal(n.sqlstate, "22004");
		if (n.hint != NULL)
			assert_string_equal(n.message, message);
		assert_true(n.hint != NULL || at < m.have - 3);
		buf_free(&b);
	}
	buf_free(&whole);
}

static void test_no_memory(void **state)
{
	struct pg_error err;

	(void)state;
	pg_error_set(&err, "42601", "x");
	pg_error_detail(&err, "%0500d", 1);
	for (unsigned long n = 1; n < 10; n++) {
		struct buf b = BUF_INIT;

		mem_fail_after(n);
		build_error(&b, &err);
		build_query(&b, "select 1");
		build_ready(&b, 'I');
		mem_fail_after(0);
		if (n == 1)
			assert_true(buf_failed(&b));
		buf_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_backend_messages),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_row_description),
		cmocka_unit_test(test_frontend_messages),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_error_fields),
		cmocka_unit_test(test_error_cut),
		cmocka_unit_test(test_message_cut),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
