/*
 * The work of each scanner of client text grows as the text does, whatever is in it: a form field
 * may stand in it. What is counted is the blocks of code that are entered, as the compiler sees
 * them, and the bytes that libc looks at (counted.h): no clock, and the same each time. The
 * scanners are a part of this program, compiled for it (Makefile.am).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "qlang/rewrite.h"
#include "base/mem.h"
#include "wire/sqltext.h"

/* A step is about an instruction or a few; the slowest scanner of ordinary text takes 30 for a
 * byte. */
#define STEPS_MAX 300

uint64_t counted_steps;

#ifdef __clang__
#define NOT_COUNTED __attribute__((no_sanitize("coverage")))
#else
#define NOT_COUNTED __attribute__((no_sanitize_coverage))
#endif

void __sanitizer_cov_trace_pc(void);

NOT_COUNTED void __sanitizer_cov_trace_pc(void)
{
	counted_steps++;
}

/* --- the scanners --- */

typedef void (*scanner)(const char *text, size_t len, unsigned dialect);

static void first_word(const char *text, size_t len, unsigned dialect)
{
	(void)dialect;
	(void)sql_first_word(text, len, true);
}

static void tokens(const char *text, size_t len, unsigned dialect)
{
	struct sql_lexer lx;
	struct sql_token t;

	sql_lex_init(&lx, text, len, dialect);
	do {
		struct buf value = BUF_INIT;

		sql_lex_next(&lx, &t);
		(void)!sql_token_value(&t, dialect, &value);
		buf_free(&value);
	} while (t.kind != SQL_END && t.kind != SQL_BAD);
}

/* All that is ever asked of a text; in the order in which it costs most. */
static void ask(struct sql_text *t)
{
	const struct buf *names;

	(void)sql_tx(t);
	(void)sql_session(t);
	(void)sql_forgets_all(t);
	for (unsigned word = 0; word < SQL_WORD_COUNT; word++)
		(void)sql_has_statement(t, word);
	(void)sql_is_plain(t);
	(void)sql_has_literals(t);
	(void)sql_names_rare(t);
	(void)sql_may_reset(t);
	(void)sql_may_execute(t);
	(void)sql_touches(t);
	(void)sql_custom_names(t, &names);
	(void)sql_executed(t, &names);
}

/* Over and over, as of a statement that is bound: what is known is known. */
static void ask_often(const char *text, size_t len, unsigned dialect, enum sql_of of)
{
	struct sql_text t;

	sql_text_init(&t, text, len, dialect, of);
	for (int i = 0; i < 100; i++)
		ask(&t);
	sql_text_free(&t);
}

static void text_of_query(const char *text, size_t len, unsigned dialect)
{
	ask_often(text, len, dialect, SQL_OF_QUERY);
}

static void text_of_parse(const char *text, size_t len, unsigned dialect)
{
	ask_often(text, len, dialect, SQL_OF_PARSE);
}

static void text_of_part(const char *text, size_t len, unsigned dialect)
{
	ask_often(text, len, dialect, SQL_OF_PART);
}

static void statements(const char *text, size_t len, unsigned dialect)
{
	struct sql_text t, one;
	size_t pos = 0;

	sql_text_init(&t, text, len, dialect, SQL_OF_QUERY);
	while (sql_text_next(&t, &pos, &one)) {
		(void)sql_tx(&one);
		(void)sql_session(&one);
		sql_text_free(&one);
	}
	sql_text_free(&t);
}

static void interval(const char *text, size_t len, unsigned dialect)
{
	int64_t usec;

	(void)dialect;
	(void)!sql_interval_usec(text, len, &usec);
}

static void queue(const char *text, size_t len, unsigned dialect)
{
	struct pg_error err = {.severity = NULL};
	struct qstmt *q = qstmt_parse(text, len, dialect & SQL_STANDARD, NULL, 0, &err);
	struct qspan spans[QBULK_SPANS];
	struct buf sql = BUF_INIT;

	if (q == NULL)
		return;
	if (q->bulk.kind != QBULK_NONE)
		(void)!qbulk_sql(q, &sql, spans);
	else if (q->verb->sql)
		(void)!qstmt_sql(q, NULL, NULL, &sql, &err);
	buf_free(&sql);
	qstmt_free(&q);
}

static const struct {
	const char *name;
	scanner fn;
} scanners[] = {
	{"first word", first_word},
	{"tokens", tokens},
	{"text of a query", text_of_query},
	{"text of a Parse", text_of_parse},
	{"part of a text", text_of_part},
	{"statements", statements},
	{"interval", interval},
	{"QUEUE", queue},
};

/* --- the texts --- */

/* In front of what is repeated: it is then inside of something, or not. */
static const char *const openers[] = {"", "SELECT '", "SELECT E'", "DO $$", "/*",
	"SET a.b = ", "QUEUE PUSH q ", "QUEUE PUSH q (payload) VALUES ",
	"QUEUE PUSH q '1' AT (1 + "};

static const char *const pieces[] = {"a", " ", "\n", ";", "'", "''", "\"", "$", "$$", "$a$", "$a$b",
	"$1", "\\", "\\'", "/*", "*/", "--", "--\n", "'\n'", "' --\n", "(", ")", ",", ".", "_", "&",
	"U&\"", "u&'", "E'", "e'\\", "x'", "1", "1e", ".1.", "::", "\x95\\", "\x81_", "\x81\x30",
	"\xFF", "pg_settings ", "pg_settings update ", "set_config(", "SET_CONFIG(", "set_config('",
	"set_config($1,", "set_config('a','b',", "set_config('a',$1,true) ", "set_config(a,",
	"_config", "_advisory_lock", "query_to_xml", "pg_temp", "temp", "tem", "set ", "set a.b",
	"set a.b;", "set \"", "set \"a\".", "set a", "set session ", "set local.", "set/**/", "s",
	"execute ", "execute \"", "execute a ", "do ", "do $$", "create ",
	"create function f() begin atomic ", "case ", "end;", "begin;", "begin ", "prepare a as ",
	"select ", "select 1 into ", "explain ", "with ", "declare hold ", "reset", "drop table a;",
	"deallocate a;", "discard all;", "queue push q '1';", "QUEUE ", "(1),", "('a', 'b'),",
	"'1', ", "KEY 'a' ", "(1 + $1), ", "(1", "AT (now()) ", "((", "'1'::text", "1 day ", "12:"};

static char *repeat(const char *opener, const char *unit, size_t len)
{
	char *text = mem_alloc(len + 1);
	size_t at = strlen(opener), n = strlen(unit);

	assert_non_null(text);
	(memcpy)(text, opener, at);
	for (; at < len; at++)
		text[at] = unit[(at - strlen(opener)) % n];
	text[len] = '\0';
	return text;
}

static uint64_t steps_of(
	scanner fn, const char *opener, const char *unit, size_t len, unsigned dialect)
{
	char *text = repeat(opener, unit, len);

	counted_steps = 0;
	fn(text, len, dialect);
	mem_free(text);
	return counted_steps;
}

static unsigned failures;

/* Of a text four times as long it is four times as much. A quote more may make a literal of what
 * was none, which is another work: what grows faster does so twice. */
static bool grows(uint64_t less, uint64_t more)
{
	return more > less * 5 + 4000;
}

static void check(const char *opener, const char *unit, size_t len, unsigned dialect)
{
	for (size_t i = 0; i < ARRAY_LEN(scanners) && failures < 5; i++) {
		scanner fn = scanners[i].fn;
		uint64_t one = steps_of(fn, opener, unit, len, dialect);
		uint64_t four = steps_of(fn, opener, unit, len * 4, dialect), more = 0;

		if (grows(one, four))
			more = steps_of(fn, opener, unit, len * 16, dialect);
		if (!grows(four, more) && four <= len * 4 * STEPS_MAX + 4000)
			continue;
		failures++;
		print_error(
			"%s: \"%s\" and \"%s\" over and over, dialect %u: %llu steps for %zu bytes, %llu for %zu\n",
			scanners[i].name, opener, unit, dialect, (unsigned long long)one, len,
			(unsigned long long)four, len * 4);
	}
}

static const unsigned dialects[] = {
	SQL_STANDARD, 0, SQL_STANDARD | SQL_WIDE_GB18030, SQL_WIDE_SJIS | SQL_WIDE_JIS_2004};

static void test_pieces(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
		for (size_t j = 0; j < ARRAY_LEN(openers); j++)
			check(openers[j], pieces[i], 2048, dialects[(i + j) % ARRAY_LEN(dialects)]);
	assert_int_equal(failures, 0);
}

/* Two to five of them make what is repeated: the same ones each time. */
static void test_combinations(void **state)
{
	uint32_t seed = 1;
	char unit[256];

	(void)state;
	for (int i = 0; i < 600; i++) {
		size_t len = 0;

		for (unsigned n = 2 + (unsigned)i % 4; n > 0; n--) {
			const char *piece;

			seed = seed * 1664525 + 1013904223;
			piece = pieces[(seed >> 8) % ARRAY_LEN(pieces)];
			(memcpy)(unit + len, piece, strlen(piece) + 1);
			len += strlen(piece);
		}
		check(openers[(seed >> 20) % ARRAY_LEN(openers)], unit, 2048,
			dialects[(unsigned)i % ARRAY_LEN(dialects)]);
	}
	assert_int_equal(failures, 0);
}

/* Those that stopped everybody, at sizes at which they did. */
static void test_large(void **state)
{
	static const char *const known[] = {"pg_settings ", "set_config(", "set_config('",
		"SET_CONFIG($1,", "set a.b ", "$a$", "select 1;", "queue push q '1';"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		check("SELECT '", known[i], 16384, SQL_STANDARD);
		check("", known[i], 65536, SQL_STANDARD);
	}
	assert_int_equal(failures, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_combinations),
		cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
