/* parse_bulk.c, rewrite_bulk.c: PUSH of a query or a copy; what is put around the client's text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "qlang/rewrite.h"
#include "base/mem.h"
#include "wire/sqllex.h"

static struct pg_error err;

static struct qstmt *parse(const char *sql, size_t len)
{
	memset(&err, 0, sizeof(err));
	return qstmt_parse(sql, len, true, NULL, 0, &err);
}

#define PUSH_1   "SELECT job.payload FROM (SELECT " PAYLOAD " FROM ("
#define PAYLOAD  "push.payload::pg_catalog.text::pg_catalog.jsonb AS payload"
#define CHECK(n) " WHERE true OR EXISTS (SELECT FROM (VALUES (push.*), (" n ")) AS columns)) AS job"
#define JOB(q)   "pg_catalog.concat((SELECT queue._bulk_number(" q ")), '-', id) AS job"

static const struct {
	const char *stmt, *sql;
} good[] = {
	{"QUEUE PUSH q SELECT 1;", "INSERT INTO queue.\"q_q\"(payload) " PUSH_1
				   "SELECT 1\n) AS push(payload)" CHECK("NULL")},
	{"queue push \"a\"\"B\" select ';' -- (", "INSERT INTO queue.\"q_a\"\"B\"(payload) " PUSH_1
						  "select ';'\n) AS push(payload)" CHECK("NULL")},
	{"QUEUE PUSH q WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM a UNION SELECT 3",
		"WITH a AS (SELECT 1), b AS (SELECT 2)  INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"SELECT * FROM a UNION SELECT 3\n) AS push(payload)" CHECK("NULL")},
	{"QUEUE PUSH q WITH a AS (SELECT 1) TABLE a",
		"WITH a AS (SELECT 1)  INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"TABLE a\n) AS push(payload)" CHECK("NULL")},
	{"QUEUE PUSH q WITH values AS (SELECT 1) VALUES (2)",
		"WITH values AS (SELECT 1)  INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"VALUES (2)\n) AS push(payload)" CHECK("NULL")},
	{"QUEUE PUSH q VALUES (1), (2)", "INSERT INTO queue.\"q_q\"(payload) " PUSH_1
					 "VALUES (1), (2)\n) AS push(payload)" CHECK("NULL")},
	{"QUEUE PUSH q (\"at\", Payload) SELECT $2, $1",
		"INSERT INTO queue.\"q_q\"(state, run_at, payload, due) SELECT made.*, queue._due("
		"made.state, NULL, made.run_at, NULL) FROM (SELECT queue._bulk_state(job.start) AS state,"
		" job.start AS run_at, job.payload FROM (SELECT queue._bulk_start("
		"push.run_at::pg_catalog.timestamptz) AS start, " PAYLOAD
		" FROM (SELECT $2, $1\n) AS push(run_at, payload)" CHECK("NULL, NULL") ") AS made"},
	{"QUEUE PUSH q (payload, expires) SELECT 1, '1s'",
		"INSERT INTO queue.\"q_q\"(payload, expires_at, due) SELECT made.*, queue._due('ready', NULL,"
		" NULL, made.expires_at) FROM (SELECT job.payload, queue._bulk_expires(NULL, job.expires)"
		" AS expires_at FROM (SELECT " PAYLOAD
		", push.expires::pg_catalog.interval AS expires"
		" FROM (SELECT 1, '1s'\n) AS push(payload, expires)" CHECK(
			"NULL, NULL") ") AS made"},
	{"QUEUE PUSH \"Q\" (key, payload, \"group\") ON DUPLICATE Replace SELECT 1, 2, 3",
		"INSERT INTO queue.\"b_Q\"(key_replace, payload, \"group\") SELECT push.key::pg_catalog.text, "
		"push.payload::pg_catalog.text::pg_catalog.jsonb, push.\"group\"::pg_catalog.text FROM ("
		"SELECT 1, 2, 3\n) AS push(key, payload, \"group\")"
		" WHERE true OR EXISTS (SELECT FROM (VALUES (push.*), (NULL, NULL, NULL)) AS columns)"},
	{"QUEUE PUSH q (payload, group, delay) SELECT 1, 'g', '1s'",
		"INSERT INTO queue.\"b_q\"(payload, \"group\", delay) SELECT "
		"push.payload::pg_catalog.text::pg_catalog.jsonb, push.\"group\"::pg_catalog.text, "
		"push.delay::pg_catalog.interval FROM (SELECT 1, 'g', '1s'\n) AS push(payload, \"group\", delay)"
		" WHERE true OR EXISTS (SELECT FROM (VALUES (push.*), (NULL, NULL, NULL)) AS columns)"},
	{"QUEUE PUSH q SELECT 1 RETURNING ID;",
		"INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"SELECT 1\n) AS push(payload)" CHECK("NULL") " RETURNING id"},
	{"QUEUE PUSH q VALUES (1) returning Job -- (",
		"INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"VALUES (1)\n) AS push(payload)" CHECK("NULL") " RETURNING " JOB("'q'")},
	{"QUEUE PUSH \"q'\\\" TABLE t RETURNING ID, JOB",
		"INSERT INTO queue.\"q_q'\\\"(payload) " PUSH_1
		"TABLE t\n) AS push(payload)" CHECK("NULL") " RETURNING id, " JOB("E'q''\\\\'")},
	{"QUEUE PUSH q SELECT 1 --;\nRETURNING job, id",
		"INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"SELECT 1\n) AS push(payload)" CHECK("NULL") " RETURNING " JOB("'q'") ", id"},
	{"QUEUE PUSH q WITH a AS (DELETE FROM t RETURNING x) SELECT x AS returning, t.returning FROM a RETURNING ID",
		"WITH a AS (DELETE FROM t RETURNING x)  INSERT INTO queue.\"q_q\"(payload) " PUSH_1
		"SELECT x AS returning, t.returning FROM a\n) AS push(payload)" CHECK(
			"NULL") " RETURNING id"},
	{"QUEUE PUSH q (key, payload) ON DUPLICATE RERUN SELECT 1, 2 RETURNING JOB, ID",
		"INSERT INTO queue.\"b_q\"(key_rerun, payload, with_old) SELECT push.key::pg_catalog.text, "
		"push.payload::pg_catalog.text::pg_catalog.jsonb, true FROM (SELECT 1, 2\n) AS push(key, payload)"
		" WHERE true OR EXISTS (SELECT FROM (VALUES (push.*), (NULL, NULL)) AS columns) RETURNING job, id"},
	{"QUEUE PUSH q (payload, key) ON DUPLICATE 'error' FROM STDIN CSV",
		"COPY queue.\"b_q\"(payload, key_error) FROM STDIN CSV"},
	{"QUEUE PUSH q (payload, key, attempts) FROM STDIN",
		"COPY queue.\"b_q\"(payload, key, max_attempts) FROM STDIN "},
	{"QUEUE PUSH q (payload, at, expires) FROM STDIN",
		"COPY queue.\"b_q\"(payload, run_at, expires) FROM STDIN "},
	{"QUEUE PUSH q FROM STDIN", "COPY queue.\"q_q\"(payload) FROM STDIN "},
	{"QUEUE PUSH q (priority, payload) FROM STDIN WITH (FORMAT csv) ;;",
		"COPY queue.\"q_q\"(priority, payload) FROM STDIN WITH (FORMAT csv)"},
};

static void check_spans(const struct qstmt *q, const char *sql, const struct qspan *spans)
{
	for (int i = 0; i < QBULK_SPANS; i++)
		assert_memory_equal(sql + spans[i].ours - (spans[i].len ? 1 : 0),
			q->text + spans[i].theirs - (spans[i].len ? 1 : 0), (size_t)spans[i].len);
}

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct qstmt *q = parse(good[i].stmt, strlen(good[i].stmt));
		struct qspan spans[QBULK_SPANS];
		struct buf b = BUF_INIT;

		if (!q)
			fail_msg("%s: %s", good[i].stmt, err.message);
		assert_true(qbulk_sql(q, &b, spans));
		assert_string_equal(buf_cstr(&b), good[i].sql);
		assert_int_equal(qstmt_has(q, QARG_RETURNING),
			strstr(good[i].sql, ") AS job RETURNING") != NULL ||
				strstr(good[i].sql, "with_old") != NULL);
		check_spans(q, buf_cstr(&b), spans);
		buf_free(&b);
		qstmt_free(&q);
	}
}

static const struct {
	const char *stmt, *sqlstate;
	int position;
} bad[] = {
	{"QUEUE PUSH q SELECT 1) FROM (SELECT 2", "42601", 22},
	{"QUEUE PUSH q SELECT (1", "42601", 23},
	{"QUEUE PUSH q SELECT (1; SELECT 2)", "42601", 23},
	{"QUEUE PUSH q SELECT 1; SELECT 2", "42601", 24},
	{"QUEUE PUSH q SELECT 'x", "42601", 21},
	{"QUEUE PUSH q SELECT 1 /* /* */", "42601", 23},
	{"QUEUE PUSH q SELECT $0", "42P02", 21},
	{"QUEUE PUSH $1 SELECT 1", "0A000", 12},
	{"QUEUE PUSH q () SELECT 1", "42601", 0},
	{"QUEUE PUSH q (payload SELECT 1", "42601", 0},
	{"QUEUE PUSH q (payload)", "42601", 23},
	{"QUEUE PUSH q (payload) DELAY '1s' SELECT 1", "42601", 24},
	{"QUEUE PUSH q (payload, sizes) SELECT 1", "42703", 24},
	{"QUEUE PUSH q (payload, \"Payload\") SELECT 1", "42703", 24},
	{"QUEUE PUSH q (priority) SELECT 1", "42601", 14},
	{"QUEUE PUSH q (payload, payload) SELECT 1", "42701", 24},
	{"QUEUE PUSH q (payload, delay, at) SELECT 1", "42601", 31},
	{"QUEUE PUSH q (payload, key) ON DUPLICATE maybe SELECT 1, 2", "22023", 42},
	{"QUEUE PUSH q (payload, key) ON DUPLICATE $1 SELECT 1, 2", "22023", 42},
	{"QUEUE PUSH q (payload, key) ON DUPLICATE", "42601", 41},
	{"QUEUE PUSH q (payload, key) ON CONFLICT DO NOTHING SELECT 1, 2", "42601", 32},
	{"QUEUE PUSH q (payload, group) ON DUPLICATE ERROR SELECT 1, 2", "22023", 31},
	{"QUEUE PUSH q (payload, key, key) SELECT 1, 2, 3", "42701", 29},
	{"QUEUE PUSH q FROM STDOUT", "42601", 19},
	{"QUEUE PUSH q FROM 'file'", "42601", 19},
	{"QUEUE PUSH q FROM STDIN (", "42601", 26},
	{"QUEUE PUSH q FROM STDIN )", "42601", 25},
	{"QUEUE PUSH q FROM STDIN; DROP TABLE x", "42601", 26},
	{"QUEUE PUSH q '1' SELECT 1", "42601", 18},
	{"QUEUE PUSH q SELECT 1 RETURNING", "42601", 32},
	{"QUEUE PUSH q SELECT 1 RETURNING *", "42601", 33},
	{"QUEUE PUSH q SELECT 1 RETURNING id, id", "42601", 37},
	{"QUEUE PUSH q SELECT 1 RETURNING id AS x", "42601", 36},
	{"QUEUE PUSH q SELECT 1 RETURNING id PRIORITY 5", "42601", 36},
	{"QUEUE PUSH q SELECT 1 RETURNING id UNION SELECT 2", "42601", 36},
	{"QUEUE PUSH q SELECT 1 RETURNING id; SELECT 2", "42601", 37},
	{"QUEUE PUSH q SELECT 1 RETURNING id RETURNING job", "42601", 36},
	{"QUEUE PUSH q (payload) RETURNING id", "42601", 24},
	{"QUEUE PUSH q FROM STDIN (FORMAT csv) RETURNING id", "0A000", 38},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct qstmt *q = parse(bad[i].stmt, strlen(bad[i].stmt));

		if (q)
			fail_msg("accepted: %s", bad[i].stmt);
		if (strcmp(err.sqlstate, bad[i].sqlstate) != 0 ||
			(bad[i].position && bad[i].position != err.position))
			fail_msg("%s: %s at %d: %s", bad[i].stmt, err.sqlstate, err.position,
				err.message);
	}
}

/* Values in parentheses stay values. */
static void test_not_bulk(void **state)
{
	static const char *const stmts[] = {"QUEUE PUSH q (NULL)", "QUEUE PUSH q (true), (false)",
		"QUEUE PUSH q ('5'::int8)", "QUEUE PUSH q (cast('1' AS text))",
		"QUEUE PUSH q ((($1)))", "QUEUE PUSH q (text 'x')", "QUEUE PUSH q (select 1)",
		"QUEUE PUSH q (values (1)), (table t)", "QUEUE PUSH q (now() + '1')"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(stmts); i++) {
		struct qstmt *q = parse(stmts[i], strlen(stmts[i]));

		if (!q)
			fail_msg("%s: %s", stmts[i], err.message);
		assert_int_equal(q->bulk.kind, QBULK_NONE);
		assert_true(qstmt_count(q, QARG_PAYLOAD) > 0);
		qstmt_free(&q);
	}
}

/* However a statement is cut, what is made of it is one statement, with nothing open. */
static void one_statement(const struct qstmt *q)
{
	struct qspan spans[QBULK_SPANS];
	struct buf b = BUF_INIT;
	struct sql_lexer lx;
	struct sql_token t;
	int depth = 0;

	assert_true(qbulk_sql(q, &b, spans));
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

			if (q && q->bulk.kind != QBULK_NONE)
				one_statement(q);
			qstmt_free(&q);
		}
}

static void test_parameters(void **state)
{
	static const char sql[] = "QUEUE PUSH q SELECT $3, '$9', $1";
	const uint32_t oids[] = {23};
	struct qstmt *q = qstmt_parse(sql, strlen(sql), true, oids, 1, &err);

	(void)state;
	assert_non_null(q);
	assert_int_equal(q->n_params, 3);
	assert_int_equal(q->param_oids[0], 23);
	assert_int_equal(q->param_oids[1], 0);
	assert_int_equal(q->param_oids[2], 0);
	qstmt_free(&q);
}

static void test_without_memory(void **state)
{
	static const char sql[] =
		"QUEUE PUSH \"A\"\"b\" (payload, U&\"p\\0072iority\") SELECT $1, 2";
	struct qstmt *q = NULL;
	struct qspan spans[QBULK_SPANS];

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
		ok = qbulk_sql(q, &b, spans);
		buf_free(&b);
		if (ok)
			break;
	}
	mem_fail_after(0);
	qstmt_free(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_not_bulk),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
