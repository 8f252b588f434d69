/* sqltouch.c, sqlsess.c: what a text may do to the session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "wire/sqltext.h"

#define UNDO(t) ((t) << SQL_TOUCH_UNDO_SHIFT)

static const struct {
	const char *sql;
	unsigned touches;
} touch_cases[] = {
	{"", 0},
	{"select 1", 0},
	{"SELECT abalance FROM pgbench_accounts WHERE aid = 1;", 0},
	{"update t set a = 1", 0},
	{"insert into t select set_confi('a', 'b', false)", 0},
	{"select set_config('a', 'b', false)", SQL_TOUCH_SETTINGS},
	{"select pg_catalog.SET_CONFIG('a', f(1, ','), $1)", SQL_TOUCH_SETTINGS},
	{"select \"set_config\"('a', 'b', false)", SQL_TOUCH_SETTINGS},
	{"select set_config('a', 'b', true)", SQL_TOUCH_DIALECT},
	{"select SET_CONFIG ( 'request.jwt' :: text , $2::text,\nTRUE )", SQL_TOUCH_SETTINGS},
	{"select SET_CONFIG ( 'request.jwt'::text , $2::text,\nTRUE )", SQL_TOUCH_DIALECT},
	/* the argument that looks like the last is none */
	{"select set_config('role','bob',false --,true\n)", SQL_TOUCH_SETTINGS},
	{"select set_config('role','bob',false /*,true*/)", SQL_TOUCH_SETTINGS},
	{"select set_config('role','bob' /*'*/,false /*',true*/)", SQL_TOUCH_SETTINGS},
	{"select set_config('role',$$b,true)$$,false)", SQL_TOUCH_SETTINGS},
	{"select set_config('role',E'\\',true)',false)", SQL_TOUCH_SETTINGS},
	{"select set_config('role','\\',true)',false)", SQL_TOUCH_SETTINGS},
	{"select set_config('role','bob','false','a',true)", SQL_TOUCH_SETTINGS},
	{"select set_config(f('role','bob',true),$1,false)", SQL_TOUCH_SETTINGS},
	{"select set_config('a', set_config('b', 'c', false), true)", SQL_TOUCH_SETTINGS},
	/* names that are written otherwise */
	{"select U&\"set\\005fconfig\"('role','bob',false)", SQL_TOUCH_UNSEEN},
	{"select u&\"!0073et_conf!0069g\" uescape '!' ('role','bob',false)", SQL_TOUCH_UNSEEN},
	{"select u&'x'", 0},
	{"select query_to_xml('select set' || '_config(1)', true, true, '')", SQL_TOUCH_UNSEEN},
	{"select ts_stat('select set' || '_config(1)')", SQL_TOUCH_UNSEEN},
	{"select ts_rewrite(a, 'select set' || '_config(1)')", SQL_TOUCH_UNSEEN},
	{"select set_config('a', f('x', ')', 2), TRUE )", SQL_TOUCH_SETTINGS},
	{"select set_config('a', t.b, TRUE ), set_config($1, $2, true)", SQL_TOUCH_DIALECT},
	{"select set_config('a', 'b', true), set_config('a', 'b', false)",
		SQL_TOUCH_SETTINGS | SQL_TOUCH_DIALECT},
	{"select set_config('a', 'b', true", SQL_TOUCH_SETTINGS},
	{"_config set_config", SQL_TOUCH_SETTINGS},
	{"update pg_catalog.PG_settings set setting = 1", SQL_TOUCH_SETTINGS},
	{"select * from pg_settings", 0},
	{" (( select 1 as a into temp t))", SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"set a = 1", SQL_TOUCH_SETTINGS},
	{" /* x */ SET session a to 1", SQL_TOUCH_SETTINGS},
	{"set local a = 1", SQL_TOUCH_DIALECT},
	{"set local.tenant = '42'", SQL_TOUCH_SETTINGS},
	{"set local . tenant = '42'", SQL_TOUCH_SETTINGS},
	{"set names.x = '42'", SQL_TOUCH_SETTINGS},
	{"set time/**/.x = '42'", SQL_TOUCH_SETTINGS},
	{"set transaction.x = '42'", SQL_TOUCH_SETTINGS},
	{"set constraints.x = '42'", SQL_TOUCH_SETTINGS},
	{"set \"local\" = 1", SQL_TOUCH_SETTINGS},
	{"set session.x = '42'", SQL_TOUCH_SETTINGS},
	{"set transaction read only", 0},
	{"set constraints all deferred", 0},
	{"set names 'utf8'", SQL_TOUCH_DIALECT},
	{"set time zone 'UTC'", SQL_TOUCH_DIALECT},
	{"set role x", SQL_TOUCH_SETTINGS},
	{"reset all", SQL_TOUCH_SETTINGS},
	{"discard all", SQL_TOUCH_SETTINGS | UNDO(SQL_TOUCH_ALL)},
	{"discard temp", UNDO(SQL_TOUCH_TEMP)},
	{"discard plans", 0},
	{"prepare x as select 1", SQL_TOUCH_PREPARED},
	{"prepare x as select 1 as a into temp t",
		SQL_TOUCH_PREPARED | SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"prepare transaction 'x'", 0},
	{"deallocate x", UNDO(SQL_TOUCH_PREPARED)},
	{"listen x", SQL_TOUCH_LISTEN},
	{"unlisten *", UNDO(SQL_TOUCH_LISTEN)},
	{"load 'x'", SQL_TOUCH_LOAD},
	{"create table t (a int)", 0},
	{"create temp table t (a int)", SQL_TOUCH_TEMP},
	{"CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", SQL_TOUCH_TEMP},
	{"create local temp table t (a int)", SQL_TOUCH_TEMP},
	{"create table pg_temp.t (a int)", SQL_TOUCH_TEMP},
	{"create temp table t (a int) on commit DROP", SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"select 1 as a into temp t", SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"select * from temperature", SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"with x as (select 1) select * into TEMPORARY t from x", SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"drop table t", UNDO(SQL_TOUCH_TEMP)},
	{"declare c cursor with hold for select 1", SQL_TOUCH_CURSORS},
	{"declare c cursor for select 1", 0},
	{"close c", UNDO(SQL_TOUCH_CURSORS)},
	{"select pg_advisory_lock(1)", SQL_TOUCH_LOCKS},
	{"select pg_try_advisory_lock_shared(1)", SQL_TOUCH_LOCKS},
	{"select pg_advisory_xact_lock(1)", 0},
	{"select pg_advisory_unlock(1)", UNDO(SQL_TOUCH_LOCKS)},
	{"do $$begin end$$", SQL_TOUCH_ALL | SQL_TOUCH_GUESS},
	{"do language plpgsql $$begin end$$", SQL_TOUCH_ALL | SQL_TOUCH_GUESS},
	{"do language plperl $$begin end$$", SQL_TOUCH_UNSEEN},
	{"do $$begin execute 'se' || 't a.b = 1'; end$$", SQL_TOUCH_UNSEEN},
	{"do E'begin set\\x20a.b = 1; end'", SQL_TOUCH_UNSEEN},
	{"do U&'begin set!0020a.b = 1; end' uescape '!'", SQL_TOUCH_UNSEEN},
	{"call p()", SQL_TOUCH_ALL | SQL_TOUCH_GUESS},
	{"/**/ ((select 1 as a into temp t))", SQL_TOUCH_TEMP | SQL_TOUCH_GUESS},
	{"execute p", SQL_TOUCH_EXECUTE},
	{"explain analyze execute p", SQL_TOUCH_EXECUTE},
	{"create table x as execute p", SQL_TOUCH_EXECUTE},
	{"create temp table x as execute p", SQL_TOUCH_EXECUTE | SQL_TOUCH_TEMP},
	{"create trigger x execute function p()", 0},
	{"copy (select set_config('a', 'b', false)) to stdout", SQL_TOUCH_SETTINGS},
	{"with x as (select set_config('a', 'b', false)) select * from x", SQL_TOUCH_SETTINGS},
	{"alter role x set work_mem = '7MB'", 0},
	/* what follows it may have been taken for a part of it */
	{"create function f() returns int begin atomic select 1 as case; end; set role x",
		SQL_TOUCH_UNSEEN},
	{"create function begin() returns int as 'select 1'; set role x", SQL_TOUCH_SETTINGS},
	{"select 1; set a = 1; listen x", SQL_TOUCH_SETTINGS | SQL_TOUCH_LISTEN},
	{"select 'set a = 1; listen x'; select 1", 0},
};

static unsigned touches_of(const char *sql, size_t len, unsigned dialect, enum sql_of of)
{
	struct sql_text t;
	unsigned touches;

	sql_text_init(&t, sql, len, dialect, of);
	touches = sql_touches(&t);
	sql_text_free(&t);
	return touches;
}

static void test_touches(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(touch_cases); i++) {
		size_t len = strlen(touch_cases[i].sql);
		char *copy = mem_dup(touch_cases[i].sql, len + 1);
		unsigned got = touches_of(copy, len, SQL_STANDARD, SQL_OF_QUERY);

		if (got != touch_cases[i].touches)
			fail_msg("%s: 0x%x, expected 0x%x", touch_cases[i].sql, got,
				touch_cases[i].touches);
		/* nothing is read behind the end */
		for (size_t n = 0; n < len; n++) {
			char *part = mem_dup(copy, n + (n == 0));

			(void)touches_of(part, n, SQL_STANDARD, SQL_OF_QUERY);
			mem_free(part);
		}
		mem_free(copy);
	}
}

/* A backslash, or what is a byte of one, hides where a literal ends. */
static const struct {
	const char *sql;
	unsigned dialect, touches;
} dialect_cases[] = {
	{"select '\\'; set a = 1 --'", SQL_STANDARD, SQL_TOUCH_SETTINGS},
	{"select '\\'; set a = 1 --'", 0, 0},
	{"select '\\''; set a = 1 --'", SQL_STANDARD, 0},
	{"select '\\''; set a = 1 --'", 0, SQL_TOUCH_SETTINGS},
	{"select '\x95\\'; set a = 1 --'", 0, 0},
	{"select '\x95\\'; set a = 1 --'", SQL_WIDE_SJIS, SQL_TOUCH_SETTINGS},
	{"select E'\x95\\'; set a = 1 --'", SQL_STANDARD, 0},
	{"select E'\x95\\'; set a = 1 --'", SQL_STANDARD | SQL_WIDE, SQL_TOUCH_SETTINGS},
	{"select E'\xB1\\'; set a = 1 --'", SQL_STANDARD | SQL_WIDE, SQL_TOUCH_SETTINGS},
	{"select E'\xB1\\'; set a = 1 --'", SQL_STANDARD | SQL_WIDE_SJIS, 0},
	{"select E'\\\x95\\'; set a = 1 --'", SQL_STANDARD | SQL_WIDE, SQL_TOUCH_SETTINGS},
	{"select E'\x81\x30\x81\x35\\'; set a = 1 --'", SQL_STANDARD | SQL_WIDE_GB18030, 0},
	{"select E'\x81\x5F'; set a = 1 --'", SQL_STANDARD | SQL_WIDE_SJIS, SQL_TOUCH_SETTINGS},
	{"select E'\x81\x5F'; set a = 1 --'", SQL_STANDARD | SQL_WIDE_SJIS | SQL_WIDE_JIS_2004,
		SQL_TOUCH_UNSEEN},
	{"select E'\x81\x5F\\'; set a = 1 --'", SQL_STANDARD | SQL_WIDE_SJIS | SQL_WIDE_JIS_2004,
		SQL_TOUCH_UNSEEN},
	/* of an identifier */
	{"select 1 as \x95;; set a = 1", SQL_STANDARD, SQL_TOUCH_SETTINGS},
	{"select 1 as \x95;; set a = 1", SQL_STANDARD | SQL_WIDE, SQL_TOUCH_SETTINGS},
	{"create function f() returns int as $\x95;$; set a = 1; $\x95;$; select 1",
		SQL_STANDARD | SQL_WIDE, 0},
};

static void test_dialects(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(dialect_cases); i++) {
		const char *sql = dialect_cases[i].sql;
		unsigned got = touches_of(sql, strlen(sql), dialect_cases[i].dialect, SQL_OF_QUERY);

		if (got != dialect_cases[i].touches)
			fail_msg("%zu %s: 0x%x", i, sql, got);
	}
}

static const struct {
	const char *sql, *names; /* with a blank behind each */
	unsigned unknown;
} name_cases[] = {
	{"set a = 1", "", 0},
	{"set App.User = 1", "app.user ", 0},
	{"SET SESSION \"app\".x to 1", "app.x ", 0},
	{"set/**/app . /* x */ \"X\" to 1;", "app.x ", 0},
	{"set session.x to 1", "session.x ", 0},
	{"set local.x to 1", "local.x ", 0},
	{"select 1; set session.x to 1", "session.x ", 0},
	{"select 1; set session local.x to 1", "local.x ", 0},
	{"select 1; set\"a\".x to 1", "a.x ", 0},
	{"select 1; set a . x to 1", "a.x ", 0},
	{"select 1; set a.x to 1; set a.x to 2; set a.y to 3", "a.x a.y ", 0},
	{"select 1; set/**/a.x to 1", "", SQL_TOUCH_UNSEEN},
	{"select 1; set a/**/.x to 1", "", SQL_TOUCH_UNSEEN},
	{"select 1; set a./**/x to 1", "", SQL_TOUCH_UNSEEN},
	{"select 1; set --\na.x to 1", "", SQL_TOUCH_UNSEEN},
	{"select 1; set \"a b\".x to 1", "", SQL_TOUCH_UNSEEN},
	{"select 1; update t set (a, b) = (1, 2)", "", 0},
	{"set a.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb = 1", "",
		SQL_TOUCH_UNSEEN},
	{"select set_config('app.x', $1, false), set_config('a', $2, false)", "app.x ", 0},
	{"select set_config($1, $2, false)", "", SQL_TOUCH_UNNAMED},
	{"select set_config($1, $2, true)", "", 0},
	{"select set_config('a' || 'b.c', $2, false)", "", SQL_TOUCH_UNNAMED},
	{"select set_config('a' '.b', $2, false)", "", SQL_TOUCH_UNNAMED},
	{"select set_config(/**/ 'a.b', $2, false)", "", SQL_TOUCH_UNNAMED},
	{"select set_config /**/ ('a.b', $2, false)", "", SQL_TOUCH_UNNAMED},
	{"select set_config(E'a\\x2eb', $2, false)", "", SQL_TOUCH_UNNAMED},
	{"do $$ begin set app.y = 2; perform set_config('app.z', 'x', false); end $$",
		"app.y app.z ", 0},
	{"do ' begin perform set_config(''app.z'', ''x'', false); end '", "app.z ", 0},
	{"offset a.b", "", 0},
};

static void test_custom_names(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(name_cases); i++) {
		const char *sql = name_cases[i].sql;
		const struct buf *found;
		struct buf names = BUF_INIT;
		struct sql_text t;
		unsigned unknown;

		sql_text_init(&t, sql, strlen(sql), SQL_STANDARD, SQL_OF_QUERY);
		unknown = sql_custom_names(&t, &found);
		buf_put(&names, found->data, found->len);
		sql_text_free(&t);
		if (unknown != name_cases[i].unknown)
			fail_msg("%s: 0x%x", name_cases[i].sql, unknown);
		for (size_t n = 0; n < names.len; n++)
			if (names.data[n] == '\0')
				names.data[n] = ' ';
		assert_string_equal(buf_cstr(&names), name_cases[i].names);
		buf_free(&names);
	}
}

static const struct {
	const char *sql;
	enum sql_session_kind kind;
	const char *name, *value;
} kind_cases[] = {
	{"select 1", SQL_SESSION_OTHER, NULL, NULL},
	{"set a = 1", SQL_SESSION_SET, "a", "1"},
	{"SET SESSION Work_Mem TO '7MB' ;", SQL_SESSION_SET, "work_mem", "7MB"},
	{"set a = -1.5", SQL_SESSION_SET, "a", "-1.5"},
	{"set a = on", SQL_SESSION_SET, "a", "on"},
	{"set a = Word", SQL_SESSION_SET, "a", "word"},
	{"set a = 'it''s'", SQL_SESSION_SET, "a", "it's"},
	{"set a.b = E'x\\ny'", SQL_SESSION_SET, "a.b", "x\ny"},
	{"set \"A\".\"B\" = \"X\"", SQL_SESSION_SET, "a.b", "X"},
	{"set a = 1, 2", SQL_SESSION_OTHER, NULL, NULL},
	{"set search_path = x", SQL_SESSION_OTHER, NULL, NULL},
	{"set local a = 1", SQL_SESSION_OTHER, NULL, NULL},
	{"set time zone 'UTC'", SQL_SESSION_OTHER, NULL, NULL},
	{"set a = 1; select 1", SQL_SESSION_OTHER, NULL, NULL},
	{"set a = - x", SQL_SESSION_OTHER, NULL, NULL},
	{"set a", SQL_SESSION_OTHER, NULL, NULL},
	{"set role other", SQL_SESSION_SET, "role", "other"},
	{"set session role 'Other'", SQL_SESSION_SET, "role", "Other"},
	{"set role none", SQL_SESSION_SET, "role", "none"},
	{"set session authorization 'x'", SQL_SESSION_SET, "session_authorization", "x"},
	{"set session authorization default", SQL_SESSION_RESET, "session_authorization", NULL},
	{"set session characteristics as transaction read only", SQL_SESSION_OTHER, NULL, NULL},
	{"set a to default", SQL_SESSION_RESET, "a", NULL},
	{"reset a.B", SQL_SESSION_RESET, "a.b", NULL},
	{"reset time zone", SQL_SESSION_RESET, "timezone", NULL},
	{"reset session authorization", SQL_SESSION_RESET, "session_authorization", NULL},
	{"RESET ALL;", SQL_SESSION_RESET_ALL, NULL, NULL},
	{"discard all", SQL_SESSION_DISCARD_ALL, NULL, NULL},
	{"discard temporary", SQL_SESSION_DISCARD_PART, NULL, "DISCARD TEMP"},
	{"deallocate prepare all", SQL_SESSION_DEALLOCATE_ALL, NULL, NULL},
	{"deallocate x", SQL_SESSION_DEALLOCATE, "x", NULL},
	{"DEALLOCATE PREPARE \"X\";", SQL_SESSION_DEALLOCATE, "X", NULL},
	{"deallocate Foo", SQL_SESSION_DEALLOCATE, "foo", NULL},
	{"deallocate prepare", SQL_SESSION_DEALLOCATE, "prepare", NULL},
	{"deallocate prepare;", SQL_SESSION_DEALLOCATE, "prepare", NULL},
	{"deallocate \"all\"", SQL_SESSION_DEALLOCATE, "all", NULL},
	{"deallocate a2345678901234567890123456789012345678901234567890123456789012345",
		SQL_SESSION_DEALLOCATE,
		"a2345678901234567890123456789012345678901234567890123456789012345", NULL},
	{"deallocate all", SQL_SESSION_DEALLOCATE_ALL, NULL, NULL},
	{"deallocate", SQL_SESSION_OTHER, NULL, NULL},
	{"deallocate \"\"", SQL_SESSION_OTHER, NULL, NULL},
	{"deallocate a b", SQL_SESSION_OTHER, NULL, NULL},
	{"deallocate prepare; select", SQL_SESSION_OTHER, NULL, NULL},
	{"deallocate 'a'", SQL_SESSION_OTHER, NULL, NULL},
	{"discard all; select 1", SQL_SESSION_OTHER, NULL, NULL},
	{"/**/discard all ;", SQL_SESSION_DISCARD_ALL, NULL, NULL},
	{"deallocate x, y", SQL_SESSION_OTHER, NULL, NULL},
	{"prepare P as select 1", SQL_SESSION_PREPARE, "p", NULL},
	{"/* x */ PREPARE \"P\" (int, numeric(3,1)) AS SELECT ';' -- ;\n;", SQL_SESSION_PREPARE,
		"P", NULL},
	{"prepare p as select $a$;$a$, E'\\';' ; ;", SQL_SESSION_PREPARE, "p", NULL},
	{"prepare p as select 1; select 2", SQL_SESSION_OTHER, NULL, NULL},
	{"prepare transaction 'x'", SQL_SESSION_OTHER, NULL, NULL},
	{"prepare p", SQL_SESSION_OTHER, NULL, NULL},
	{"prepare 'p' as select 1", SQL_SESSION_OTHER, NULL, NULL},
	{"close all", SQL_SESSION_CLOSE_ALL, NULL, NULL},
	{"unlisten *", SQL_SESSION_UNLISTEN, NULL, NULL},
	{"unlisten X", SQL_SESSION_UNLISTEN, "x", NULL},
	{"listen \"X\"", SQL_SESSION_LISTEN, "X", NULL},
	{"listen a234567890123456789012345678901234567890123456789012345678901234",
		SQL_SESSION_OTHER, NULL, NULL},
	{"select pg_advisory_unlock_all();", SQL_SESSION_UNLOCK_ALL, NULL, NULL},
	{"select pg_catalog.pg_advisory_unlock_all()", SQL_SESSION_UNLOCK_ALL, NULL, NULL},
	{"select pg_advisory_unlock_all(), 1", SQL_SESSION_OTHER, NULL, NULL},
};

static void check_text(const struct buf *b, const char *expected)
{
	if (expected == NULL)
		return;
	assert_int_equal(b->len, strlen(expected) + 1);
	assert_string_equal((const char *)b->data, expected);
}

static void test_kinds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kind_cases); i++) {
		const char *sql = kind_cases[i].sql;
		const struct sql_session *s;
		struct sql_text t;

		sql_text_init(&t, sql, strlen(sql), SQL_STANDARD, SQL_OF_QUERY);
		s = sql_session(&t);
		if (s->kind != kind_cases[i].kind)
			fail_msg("%s: %d", sql, (int)s->kind);
		check_text(&s->name, kind_cases[i].name);
		check_text(&s->value, kind_cases[i].value);
		assert_int_equal(
			sql_forgets_all(&t), s->kind == SQL_SESSION_DISCARD_ALL ||
						     s->kind == SQL_SESSION_DEALLOCATE_ALL);
		sql_text_free(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_touches),
		cmocka_unit_test(test_dialects),
		cmocka_unit_test(test_custom_names),
		cmocka_unit_test(test_kinds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
