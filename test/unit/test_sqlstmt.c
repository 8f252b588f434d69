/* sqlstmt.c: cutting statements, and what kind they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "wire/sqllex.h"

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

		assert_int_equal(
			sql_any_statement_is(sql, strlen(sql), true, "queue"), any_cases[i].yes);
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
		enum sql_tx kind = sql_tx_classify(sql, strlen(sql));

		assert_int_equal(kind, tx_cases[i].kind);
		assert_string_equal(sql_tx_tag(kind, sql, strlen(sql)), tx_cases[i].tag);
	}
}

static const struct {
	const char *sql;
	enum sql_prep kind;
	const char *name;
} prep_cases[] = {
	{"deallocate Foo", SQL_PREP_DEALLOCATE, "foo"},
	{"DEALLOCATE PREPARE \"Foo\";", SQL_PREP_DEALLOCATE, "Foo"},
	{"deallocate prepare", SQL_PREP_DEALLOCATE, "prepare"},
	{"deallocate prepare;", SQL_PREP_DEALLOCATE, "prepare"},
	{"deallocate \"all\"", SQL_PREP_DEALLOCATE, "all"},
	{"deallocate all", SQL_PREP_DEALLOCATE_ALL, ""},
	{"deallocate prepare all", SQL_PREP_DEALLOCATE_ALL, ""},
	{"discard all ;", SQL_PREP_DISCARD_ALL, ""},
	{"/**/discard all", SQL_PREP_DISCARD_ALL, ""},
	{"discard plans", SQL_PREP_NONE, ""},
	{"discard all; select 1", SQL_PREP_NONE, ""},
	{"deallocate", SQL_PREP_NONE, ""},
	{"deallocate a b", SQL_PREP_NONE, ""},
	{"deallocate prepare; select", SQL_PREP_NONE, ""},
	{"deallocate a; select 1", SQL_PREP_NONE, ""},
	{"deallocate 'a'", SQL_PREP_NONE, ""},
	{"delete from t", SQL_PREP_NONE, ""},
	{"select 1", SQL_PREP_NONE, ""},
	{"", SQL_PREP_NONE, ""},
};

static void test_prep(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(prep_cases); i++) {
		const char *sql = prep_cases[i].sql;
		struct buf name = BUF_INIT;

		assert_int_equal(sql_prep_classify(sql, strlen(sql), &name), prep_cases[i].kind);
		assert_string_equal(buf_cstr(&name), prep_cases[i].name);
		assert_int_equal(sql_prep_classify(sql, strlen(sql), NULL), prep_cases[i].kind);
		buf_free(&name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_any),
		cmocka_unit_test(test_tx),
		cmocka_unit_test(test_prep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
