/* own_sql.c, parse_value.c, rewrite.c: expressions as values of a PUSH: how far they go, what is
 * put around them, where their errors are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "qlang/rewrite.h"
#include "base/mem.h"
#include "wire/sqllex.h"

#define SPANS_MAX 8

static struct pg_error err;

static struct qstmt *parse(const char *sql, size_t len)
{
	memset(&err, 0, sizeof(err));
	return qstmt_parse(sql, len, true, NULL, 0, &err);
}

/* What stands in place of them in the call: a number for each. */
static const struct {
	const char *stmt;
	const char *src[3]; /* in the order of the statement */
} good[] = {
	{"QUEUE PUSH q '1' AT (now() + interval '1 hour')", {"(now() + interval '1 hour')"}},
	{"QUEUE PUSH q '1' AT (now()+$1)::date RETURNING ID;", {"(now()+$1)::date"}},
	{"QUEUE PUSH q '1' DELAY ($1 * '1s'::interval) PRIORITY (1 + 2)",
		{"($1 * '1s'::interval)", "(1 + 2)"}},
	{"QUEUE PUSH q (jsonb_build_object('a', $2)), '2', (select ')' /* ) */ -- )\n) KEY ('a' || $$)$$)",
		{"(jsonb_build_object('a', $2))", "(select ')' /* ) */ -- )\n)", "('a' || $$)$$)"}},
	{"QUEUE PUSH q '1' GROUP (E'\\')' || \")\" || U&'\\0029') EXPIRES ((('1s')) + '1s')",
		{"(E'\\')' || \")\" || U&'\\0029')", "((('1s')) + '1s')"}},
	{"QUEUE PUSH q '\xC3\xA4' HEADERS (\"\xC3\xB6\" || '\xE2\x82\xAC') ATTEMPTS (least(1, $1))",
		{"(\"\xC3\xB6\" || '\xE2\x82\xAC')", "(least(1, $1))"}},
	{"QUEUE PUSH q (payload || 1)", {"(payload || 1)"}},
};

static void check_span(
	const struct qstmt *q, const char *sql, const struct qspan *span, const char *src)
{
	const char *ours = strstr(sql, src), *theirs = strstr(q->text, src);

	assert_non_null(ours);
	assert_int_equal(span->ours, sql_char_position(sql, ours));
	assert_int_equal(span->theirs, sql_char_position(q->text, theirs));
	assert_int_equal(span->len, sql_char_position(src, src + strlen(src)) - 1);
	assert_int_equal(ours[-1], '(');
	assert_memory_equal(ours + strlen(src), ")::pg_catalog.", 14);
}

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct qstmt *q = parse(good[i].stmt, strlen(good[i].stmt));
		struct qspan spans[SPANS_MAX] = {{0}};
		struct buf b = BUF_INIT;
		int n = 0;

		if (!q)
			fail_msg("%s: %s", good[i].stmt, err.message);
		assert_true(qstmt_own_sql(q));
		assert_true(qstmt_expressions_sql(q, &b, spans, &err));
		for (; n < 3 && good[i].src[n]; n++)
			check_span(q, buf_cstr(&b), &spans[n], good[i].src[n]);
		assert_int_equal(q->n_expressions, n);
		buf_free(&b);
		qstmt_free(&q);
	}
}

/* However a statement is cut, what is made of it is one statement, with nothing open. */
static void one_statement(const struct qstmt *q)
{
	struct qspan spans[SPANS_MAX];
	struct buf b = BUF_INIT;
	struct sql_lexer lx;
	struct sql_token t;
	int depth = 0;

	assert_true(q->n_expressions <= SPANS_MAX);
	assert_true(qstmt_expressions_sql(q, &b, spans, &err));
	sql_lex_init(&lx, (const char *)b.data, b.len, true);
	for (sql_lex_next(&lx, &t); t.kind != SQL_END; sql_lex_next(&lx, &t)) {
		assert_true(t.kind != SQL_SEMICOLON && t.kind != SQL_BAD);
		if (t.kind == SQL_OTHER)
			depth += (*t.text == '(') - (*t.text == ')');
		assert_true(depth >= 0);
	}
	assert_int_equal(depth, 0);
	buf_free(&b);
}

static void test_cut_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		for (size_t n = 0; n <= strlen(good[i].stmt); n++) {
			struct qstmt *q = parse(good[i].stmt, n);

			if (q && q->bulk.kind == QBULK_NONE)
				one_statement(q);
			qstmt_free(&q);
		}
}

/* Each byte of it another one. */
static void test_spoiled_anywhere(void **state)
{
	static const char bytes[] = "()';$\"-/*\\\n1a,:";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		for (size_t at = 0; at < strlen(good[i].stmt); at++)
			for (const char *with = bytes; *with; with++) {
				char sql[200];
				struct qstmt *q;

				assert_true(strlen(good[i].stmt) < sizeof(sql));
				util_strlcpy(sql, good[i].stmt, sizeof(sql));
				sql[at] = *with;
				q = parse(sql, strlen(sql));
				if (q && q->bulk.kind == QBULK_NONE)
					one_statement(q);
				qstmt_free(&q);
			}
}

static const struct {
	const char *stmt;
	int position;
} bad[] = {
	{"QUEUE PUSH q '1' AT (now()", 27},
	{"QUEUE PUSH q '1' AT (now()))", 28},
	{"QUEUE PUSH q '1' AT ()", 22},
	{"QUEUE PUSH q '1' AT (now(); SELECT 1)", 27},
	{"QUEUE PUSH q '1' AT (now() || 'x)", 31},
	{"QUEUE PUSH q '1' AT (now() /* x)", 28},
	{"QUEUE PUSH q '1' AT now()", 21},
	{"QUEUE PUSH q '1' AT (now()) + '1s'", 29},
	{"QUEUE PUSH q '1' AT (now()) AT (now())", 29},
	{"QUEUE PUSH q '1' AT (now() + $0)", 30},
	{"QUEUE PUSH q '1' KEY ('a' || 'b') ON DUPLICATE ('a' || 'b')", 53},
	{"QUEUE PUSH ('a' || 'b') '1'", 17},
	{"QUEUE TAKE q WAIT ('1s' + '1s')", 25},
	{"QUEUE TAKE q WHERE (true) ) ; DROP TABLE x", 27},
	{"QUEUE POP q WHERE (", 20},
	{"QUEUE DONE ('1' || '2')", 17},
	{"QUEUE DONE 17 RESULT (1 + 2)", 25},
	{"QUEUE DONE 17 THEN PUSH q (1 + 2)", 30},
	{"QUEUE DONE 17 THEN MOVE TO q AT (now() + '1s')", 34},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct qstmt *q = parse(bad[i].stmt, strlen(bad[i].stmt));

		if (q)
			fail_msg("accepted: %s", bad[i].stmt);
		if (err.position != bad[i].position || !err.hint[0] != (err.sqlstate[2] == 'P'))
			fail_msg("%s: %s at %d: %s (%s)", bad[i].stmt, err.sqlstate, err.position,
				err.message, err.hint);
	}
}

/* What is no expression is as it was: a value, described here and merged. */
static void test_values(void **state)
{
	static const char *const stmts[] = {
		"QUEUE PUSH q ('1'), (2), ((NULL)) AT ('2030-01-01'::date)",
		"QUEUE PUSH q (cast('1' AS text)) DELAY (interval '1s') PRIORITY (-(-5))",
		"QUEUE PUSH q (($1::text)) KEY (($2)) AT ($3)::timestamptz"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(stmts); i++) {
		struct qstmt *q = parse(stmts[i], strlen(stmts[i]));

		if (!q)
			fail_msg("%s: %s", stmts[i], err.message);
		assert_false(qstmt_own_sql(q));
		qstmt_free(&q);
	}
}

/* Those in expressions are the server's to find out; the others are texts, as ever. */
static void test_parameters(void **state)
{
	static const char sql[] =
		"QUEUE PUSH q $1 AT (now() + $2) PRIORITY $3 KEY ('$5' || $4) GROUP $4 HEADERS $6::jsonb";
	const uint32_t oids[] = {0, 0, 23, 0, 0};
	const uint32_t wanted[] = {OID_TEXT, 0, 23, 0, OID_TEXT, OID_JSONB};
	struct qstmt *q = qstmt_parse(sql, strlen(sql), true, oids, 5, &err);

	(void)state;
	assert_non_null(q);
	assert_int_equal(q->n_params, ARRAY_LEN(wanted));
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		assert_int_equal(q->param_oids[i], wanted[i]);
	qstmt_free(&q);
}

static void test_without_memory(void **state)
{
	static const char sql[] =
		"QUEUE PUSH q (E'\\n' || $1), (1 + 1), (2 + 2), (3 + 3), (4 + 4) AT (now() + $2)";
	struct qstmt *q = NULL;
	struct qspan spans[SPANS_MAX];

	(void)state;
	for (unsigned long n = 1; !q; n++) {
		mem_fail_after(n);
		q = parse(sql, strlen(sql));
		assert_true(q || !strcmp(err.sqlstate, "53200"));
	}
	for (unsigned long n = 1;; n++) {
		struct buf b = BUF_INIT;
		bool ok;

		mem_fail_after(n);
		ok = qstmt_expressions_sql(q, &b, spans, &err);
		buf_free(&b);
		if (ok)
			break;
		assert_string_equal(err.sqlstate, "53200");
	}
	mem_fail_after(0);
	qstmt_free(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_spoiled_anywhere),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
