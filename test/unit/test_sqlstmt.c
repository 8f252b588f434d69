/* sqlstmt.c, sqltext.c: cutting statements, and what they do to the transaction; a text is read once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "wire/sqltext.h"

#define CREATE_F "create or replace function f() returns int language sql begin atomic "

static const struct {
	const char *sql, *statements; /* with | between them */
} cut_cases[] = {
	{"", ""},
	{" ; ;; -- x\n ;", ""},
	{"select 1", "select 1"},
	{"select 1;", "select 1"},
	{" a ; b;c ", "a|b|c"},
	{"a;/* hint */ b /* tail */; c -- end", "a|/* hint */ b|c"},
	{"a ';' \";\" $$;$$ E'\\';' b; c", "a ';' \";\" $$;$$ E'\\';' b|c"},
	{"a '\\'; b'; c", "a '\\'|b'; c"},
	{"a 'x\n;'\n';' b; c", "a 'x\n;'\n';' b|c"},
	{"a /* ; /* ; */ ; */ b; c", "a /* ; /* ; */ ; */ b|c"},
	{"a -- ;\n b; c", "a -- ;\n b|c"},
	{"create rule r as on insert to t do (a; b); c",
		"create rule r as on insert to t do (a; b)|c"},
	{"a); b", "a)|b"},
	{"a ((;); b); c", "a ((;); b)|c"},
	{CREATE_F "select 1; select case when true then 1 end; end; queue list",
		CREATE_F "select 1; select case when true then 1 end; end|queue list"},
	{"CREATE PROCEDURE p() BEGIN ATOMIC a; b; END; c",
		"CREATE PROCEDURE p() BEGIN ATOMIC a; b; END|c"},
	{"create table begin (a int); b", "create table begin (a int)|b"},
	{"begin; queue push q 'x'; end; c", "begin|queue push q 'x'|end|c"},
	{"create function f() as $$ begin; end $$; b", "create function f() as $$ begin; end $$|b"},
	{"a 'open; b", "a 'open; b"},
	{"a; /* open ; b", "a|/* open ; b"},
};

static void check_cut(const char *sql, bool standard_strings, const char *statements)
{
	const char *stmt;
	struct buf got = BUF_INIT;
	size_t pos = 0, n;

	while (sql_statement_next(sql, strlen(sql), &pos, standard_strings, &stmt, &n)) {
		if (got.len)
			buf_putc(&got, '|');
		buf_put(&got, stmt, n);
	}
	assert_int_equal(pos, strlen(sql));
	assert_string_equal(buf_cstr(&got), statements);
	buf_free(&got);
}

static void test_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cut_cases); i++)
		check_cut(cut_cases[i].sql, true, cut_cases[i].statements);
	check_cut("a '\\'; b'; c", false, "a '\\'; b'|c");
}

static const struct {
	const char *sql;
	bool yes;
} any_cases[] = {
	{"queue list", true},
	{"select 1; queue list", true},
	{"select 1;QUEUE list", true},
	{"select 1; /* x */ -- y\n Queue list", true},
	{";queue list", true},
	{"", false},
	{"select 1", false},
	{"select 1; select 2", false},
	{"select queue; select 2", false},
	{"select 1; select queue", false},
	{"select 1; queues", false},
	{"select '; queue list'", false},
	{"select $$; queue list$$; select 1", false},
	{"select 1 /* ; queue list */", false},
	{CREATE_F "select 1; queue list; end", false},
	{"select 1; quequeue; queue", true},
};

static void test_any(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(any_cases); i++) {
		const char *sql = any_cases[i].sql;
		struct sql_text t;

		sql_text_init(&t, sql, strlen(sql), SQL_STANDARD, SQL_OF_QUERY);
		assert_int_equal(sql_has_statement(&t, SQL_WORD_QUEUE), any_cases[i].yes);
		assert_int_equal(sql_has_statement(&t, SQL_WORD_QUEUE), any_cases[i].yes);
		sql_text_free(&t);
	}
}

static const struct {
	const char *sql;
	enum sql_tx kind;
	const char *tag;
} tx_cases[] = {
	{"begin", SQL_TX_BEGIN, "BEGIN"},
	{" /* x */ BEGIN ; ", SQL_TX_BEGIN, "BEGIN"},
	{"begin work", SQL_TX_BEGIN, "BEGIN"},
	{"BEGIN TRANSACTION", SQL_TX_BEGIN, "BEGIN"},
	{"begin isolation level serializable", SQL_TX_BEGIN, "BEGIN"},
	{"begin transaction isolation level repeatable read read only", SQL_TX_BEGIN, "BEGIN"},
	{"begin read write, not deferrable", SQL_TX_BEGIN, "BEGIN"},
	{"begin isolation level read uncommitted, deferrable", SQL_TX_BEGIN, "BEGIN"},
	{"begin;;", SQL_TX_BEGIN, "BEGIN"},
	{"start transaction", SQL_TX_BEGIN, "START TRANSACTION"},
	{"START TRANSACTION ISOLATION LEVEL READ COMMITTED", SQL_TX_BEGIN, "START TRANSACTION"},
	{"start", SQL_TX_OTHER, ""},
	{"begin start transaction", SQL_TX_OTHER, ""},
	{"begin isolation", SQL_TX_OTHER, ""},
	{"begin read", SQL_TX_OTHER, ""},
	{"begin read only,", SQL_TX_OTHER, ""},
	{"begin , read only", SQL_TX_OTHER, ""},
	{"begin foo", SQL_TX_OTHER, ""},
	{"begin; select 1", SQL_TX_OTHER, ""},
	{"begin commit", SQL_TX_OTHER, ""},
	{"begin transaction work", SQL_TX_OTHER, ""},
	{"commit", SQL_TX_COMMIT, "COMMIT"},
	{"END;", SQL_TX_COMMIT, "COMMIT"},
	{"commit work and no chain", SQL_TX_COMMIT, "COMMIT"},
	{"commit and chain", SQL_TX_OTHER, ""},
	{"commit prepared 'x'", SQL_TX_OTHER, ""},
	{"rollback", SQL_TX_ROLLBACK, "ROLLBACK"},
	{"Abort Transaction", SQL_TX_ROLLBACK, "ROLLBACK"},
	{"rollback to savepoint a", SQL_TX_OTHER, ""},
	{"rollback and chain", SQL_TX_OTHER, ""},
	{"rollback work and no chain ;", SQL_TX_ROLLBACK, "ROLLBACK"},
	{"", SQL_TX_EMPTY, ""},
	{" -- x", SQL_TX_EMPTY, ""},
	{";;", SQL_TX_EMPTY, ""},
	{"/* x", SQL_TX_OTHER, ""},
	{"select 1", SQL_TX_OTHER, ""},
	{"\"begin\"", SQL_TX_OTHER, ""},
	{"beginning", SQL_TX_OTHER, ""},
	{"insert into t values (1)", SQL_TX_OTHER, ""},
};

static void test_tx(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(tx_cases); i++) {
		const char *sql = tx_cases[i].sql;
		struct sql_text t;

		sql_text_init(&t, sql, strlen(sql), SQL_STANDARD, SQL_OF_PARSE);
		assert_int_equal(sql_tx(&t), tx_cases[i].kind);
		assert_string_equal(sql_tx_tag(sql_tx(&t), &t), tx_cases[i].tag);
		/* who knows what follows */
		sql_text_init(&t, sql, strlen(sql), SQL_STANDARD, SQL_OF_PART);
		assert_int_equal(sql_tx(&t), SQL_TX_OTHER);
		sql_text_free(&t);
	}
}

static const struct {
	const char *sql;
	bool one, plain, literals;
} byte_cases[] = {
	{"", true, true, false},
	{";", true, true, false},
	{" \n", true, true, false},
	{"select 1", true, true, false},
	{"select 1; ", true, true, false},
	{"select 1;;", false, true, false},
	{"select 1; -- x", false, true, false},
	{"select 1;select 2", false, true, false},
	{"; select 1 and what is more than sixteen bytes", false, true, false},
	{"select 1 and what is more than sixteen bytes; x", false, true, false},
	{"select $1", true, true, false},
	{"select $12345678 from somewhere", true, true, false},
	{"select $$x$$", true, true, true},
	{"select $", true, true, true},
	{"select 'x'", true, true, true},
	{"select \\", true, false, false},
	{"select \xc3\xa4", true, false, true},
};

/* Each text without any byte behind it, and with some in front of it, so that a mark stands at every
 * place of what is looked at in one go. */
static void test_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(byte_cases); i++)
		for (size_t shift = 0; shift < 40; shift++) {
			size_t len = strlen(byte_cases[i].sql);
			char *copy = mem_alloc(shift + len + (shift + len == 0));
			struct sql_text t;

			assert_non_null(copy);
			memset(copy, 'x', shift);
			memcpy(copy + shift, byte_cases[i].sql, len);
			sql_text_init(&t, copy, shift + len, SQL_STANDARD, SQL_OF_QUERY);
			for (int again = 0; again < 2; again++) {
				assert_int_equal(sql_is_one(&t), byte_cases[i].one);
				assert_int_equal(sql_is_plain(&t), byte_cases[i].plain);
				assert_int_equal(sql_has_literals(&t), byte_cases[i].literals);
			}
			sql_text_free(&t);
			mem_free(copy);
		}
}

/* What is known of a text goes with it, and is not read again: what it says by then does not matter. */
static void test_once(void **state)
{
	char sql[] = "set app.name to 'x' -- execute p, discard, xmloption";
	const struct buf *names, *executed;
	struct sql_text t, moved;

	(void)state;
	sql_text_init(&t, sql, sizeof(sql) - 1, SQL_STANDARD, SQL_OF_QUERY);
	for (int again = 0; again < 2; again++) {
		struct sql_text *at = again ? &moved : &t;

		assert_int_equal(at->word, SQL_WORD_SET);
		assert_int_equal(sql_touches(at), SQL_TOUCH_SETTINGS);
		assert_int_equal(sql_session(at)->kind, SQL_SESSION_SET);
		assert_string_equal((const char *)sql_session(at)->name.data, "app.name");
		assert_string_equal((const char *)sql_session(at)->value.data, "x");
		assert_int_equal(sql_custom_names(at, &names), 0);
		assert_string_equal((const char *)names->data, "app.name");
		assert_true(sql_executed(at, &executed));
		assert_string_equal((const char *)executed->data, "p");
		assert_true(sql_may_execute(at) && sql_may_reset(at) && sql_names_rare(at));
		assert_true(sql_is_one(at) && sql_is_plain(at) && sql_has_literals(at));
		if (again)
			break;
		sql_text_move(&moved, &t, sql);
		memset(sql, '-', sizeof(sql) - 1);
		sql_text_free(&t);
	}
	sql_text_free(&moved);
}

/* A text of a Parse is one statement, or nothing. */
static void test_of(void **state)
{
	static const char sql[] = "select 1; listen x; queue list";
	struct sql_text t;

	(void)state;
	sql_text_init(&t, sql, sizeof(sql) - 1, SQL_STANDARD, SQL_OF_QUERY);
	assert_int_equal(sql_touches(&t), SQL_TOUCH_LISTEN);
	assert_true(sql_has_statement(&t, SQL_WORD_QUEUE));
	assert_true(sql_has_statement(&t, SQL_WORD_SELECT));
	assert_false(sql_has_statement(&t, SQL_WORD_SET));
	sql_text_init(&t, sql, sizeof(sql) - 1, SQL_STANDARD, SQL_OF_PARSE);
	assert_int_equal(sql_touches(&t), 0);
	assert_false(sql_has_statement(&t, SQL_WORD_QUEUE));
	sql_text_init(&t, "discard all", 11, SQL_STANDARD, SQL_OF_PART);
	assert_int_equal(t.word, SQL_WORD_DISCARD);
	assert_false(sql_forgets_all(&t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_any),
		cmocka_unit_test(test_tx),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
