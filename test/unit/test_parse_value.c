/* parse_value.c: values in every dress that drivers put on them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "qlang/parse.h"

static struct pg_error err;

static struct qstmt *parse_payload(const char *value, bool standard_strings)
{
	char sql[1000];
	int n = snprintf(sql, sizeof(sql), "queue push q %s", value);

	return qstmt_parse(sql, (size_t)n, standard_strings, NULL, 0, &err);
}

static const struct {
	const char *src, *text; /* NULL: the value is NULL */
	bool number, cast;
} literals[] = {
	{"'a'", "a", false, false},
	{"'it''s'", "it's", false, false},
	{"'back\\slash'", "back\\slash", false, false},
	{"''", "", false, false},
	{"E'a\\n'", "a\n", false, false},
	{"U&'\\0061'", "a", false, false},
	{"N'a'", "a", false, false},
	{"B'01'", "01", false, false},
	{"X'f'", "1111", false, false},
	{"$$it's$$", "it's", false, false},
	{"$tag$a$tag$", "a", false, false},
	{"$$$$", "", false, false},
	{"'a'\n'b'", "ab", false, false},
	{"'a' -- x\n 'b'", "ab", false, false},
	{"17", "17", true, false},
	{"-17", "-17", true, false},
	{"- /* x */ 17", "-17", true, false},
	{"+17", "17", true, false},
	{"-(-17)", "17", true, false},
	{"- - 17", "17", true, false},
	{"-(17::int8)", "-17", true, true},
	{"1.5E3", "1.5E3", true, false},
	{".5", ".5", true, false},
	{"TRUE", "true", false, false},
	{"False", "false", false, false},
	{"NULL", NULL, false, false},
	{"NULL::jsonb", NULL, false, true},
	{"(null)", NULL, false, false},
	{"'a'::text", "a", false, true},
	{"('5'::int8)", "5", false, true},
	{"((('5')))::pg_catalog.int8", "5", false, true},
	{"'a'::\"MyType\".\"x\"", "a", false, true},
	{"'a'::varchar(10)::text", "a", false, true},
	{"'1'::numeric(10, 2)", "1", false, true},
	{"'1'::double precision", "1", false, true},
	{"'1'::character varying(3)", "1", false, true},
	{"'1'::timestamp with time zone", "1", false, true},
	{"'1'::timestamp(3) without time zone", "1", false, true},
	{"'{}'::text[]", "{}", false, true},
	{"'{}'::int[3][]", "{}", false, true},
	{"CAST('5' AS int8)", "5", false, true},
	{"cast(cast('5' as text)::json as jsonb)", "5", false, true},
	{"interval '30s'", "30s", false, true},
	{"json '{\"a\": 1}'", "{\"a\": 1}", false, true},
	{"timestamptz E'now'", "now", false, true},
};

static void test_literals(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(literals); i++) {
		const char *src = literals[i].src, *text = literals[i].text;
		struct qstmt *q = parse_payload(src, true);
		const struct qvalue *v;

		if (!q)
			fail_msg("%s: %s", src, err.message);
		v = qstmt_one(q, QARG_PAYLOAD);
		assert_int_equal(v->kind, text ? QV_LITERAL : QV_NULL);
		assert_int_equal(v->src_len, strlen(src));
		assert_memory_equal(v->src, src, strlen(src));
		assert_int_equal(v->number, literals[i].number);
		assert_int_equal(v->cast, literals[i].cast);
		if (text) {
			assert_int_equal(v->text_len, strlen(text));
			assert_memory_equal(v->text, text, strlen(text));
		}
		qstmt_free(&q);
	}
}

static void test_nonstandard_strings(void **state)
{
	struct qstmt *q = parse_payload("'a\\'b', 'c'", false);

	(void)state;
	assert_non_null(q);
	assert_int_equal(qstmt_count(q, QARG_PAYLOAD), 2);
	assert_memory_equal(qstmt_value(q, QARG_PAYLOAD, 0)->text, "a'b", 3);
	assert_memory_equal(qstmt_value(q, QARG_PAYLOAD, 1)->text, "c", 1);
	qstmt_free(&q);
	assert_null(parse_payload("U&'a'", false));
}

static void test_params(void **state)
{
	static const char *const srcs[] = {"$3", "($3)", "$3::jsonb", "CAST($3 AS jsonb)"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(srcs); i++) {
		struct qstmt *q = parse_payload(srcs[i], true);
		const struct qvalue *v;

		assert_non_null(q);
		v = qstmt_one(q, QARG_PAYLOAD);
		assert_int_equal(v->kind, QV_PARAM);
		assert_int_equal(v->param, 3);
		assert_int_equal(v->src_len, strlen(srcs[i]));
		assert_int_equal(q->n_params, 3);
		assert_int_equal(v->cast, i >= 2);
		qstmt_free(&q);
	}
}

/* What is no value, with the position behind "queue push q ". */
static const struct {
	const char *src;
	int position;
} bad[] = {
	{"now()", 1},
	{"('a'", 5},
	{"()", 2},
	{"('a' || 'b'", 12},
	{"('a' || ('b')", 14},
	{"('a' || )b(", 10},
	{"('a'; 'b')", 5},
	{"(now() || 'b)", 11},
	{"(now() /* )", 8},
	{"(now() -- )", 12},
	{"(now() $$ )", 8},
	{"(now() + \")", 10},
	{"(now()) + 1", 9},
	{"-(now())", 3},
	{"'a' || 'b'", 5},
	{"'a'::", 6},
	{"'a'::int(", 10},
	{"'a'::int(x)", 10},
	{"'a'::int[x]", 10},
	{"'a'::a.", 8},
	{"'a'::timestamp with zone", 21},
	{"cast 'a'", 6},
	{"cast('a')", 9},
	{"cast('a' as)", 12},
	{"cast('a' as text", 17},
	{"-'a'", 1},
	{"-$1", 1},
	{"-null", 1},
	{"- ", 3},
	{"array['a']", 1},
	{"row('a')", 1},
	{"date 5", 1},
	{"default", 1},
	{"x", 1},
	{"1_000", 2},
	{"0x1F", 2},
	{"$1a", 3},
	{"'a' UESCAPE '!'", 5},
	{"'a';'b'", 5},
	{"*", 1},
	{"?", 1},
	{":name", 1},
	{"%s", 1},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct qstmt *q = parse_payload(bad[i].src, true);

		if (q)
			fail_msg("accepted: %s", bad[i].src);
		if (strcmp(err.sqlstate, "42601") != 0 || err.position != bad[i].position + 13)
			fail_msg("%s: %s at %d: %s", bad[i].src, err.sqlstate, err.position - 13,
				err.message);
		assert_true(err.hint[0] != '\0');
	}
}

static void test_depth(void **state)
{
	char value[300];

	(void)state;
	for (int depth = 40; depth <= 120; depth += 80) {
		struct qstmt *q;

		memset(value, '(', (size_t)depth);
		value[depth] = '1';
		memset(value + depth + 1, ')', (size_t)depth);
		value[2 * depth + 1] = '\0';
		q = parse_payload(value, true);
		assert_int_equal(q != NULL, depth == 40);
		qstmt_free(&q);
	}
	assert_string_equal(err.sqlstate, "54001");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_literals),
		cmocka_unit_test(test_nonstandard_strings),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
