/* sqllex.c: tokens and their values, and the first word in every way it can arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/sqllex.h"

/* --- tokens: "kind:text" with blanks between; kinds by one letter --- */

static char kind_letter(enum sql_token_kind kind)
{
	static const char letters[] = "$iqsbnp;o!";

	return letters[kind];
}

struct lex_case {
	const char *sql, *tokens;
};

static const struct lex_case lex_cases[] = {
	{"", ""},
	{" \t\n\r\f\v", ""},
	{"a B_1$ \xc3\xa9t\xc3\xa9", "i:a i:B_1$ i:\xc3\xa9t\xc3\xa9"},
	{"select-1", "i:select o:- n:1"},
	{"a--b\nc", "i:a i:c"},
	{"a--b\rc", "i:a i:c"},
	{"a--b", "i:a"},
	{"a - - b", "i:a o:- o:- i:b"},
	{"/*a*/b", "i:b"},
	{"/*a/*b*/c*/d", "i:d"},
	{"/*a/*b*/c", "!:/*a/*b*/c"},
	{"/*/ a", "!:/*/ a"},
	{"/**/a/***/b", "i:a i:b"},
	{"+/*x*/-", "o:+ o:-"},
	{"/ *", "o:/ o:*"},
	{"'a' \"b\"", "s:'a' q:\"b\""},
	{"'it''s'", "s:'it''s'"},
	{"'a", "!:'a"},
	{"'a''", "!:'a''"},
	{"\"a\"\"b\"c", "q:\"a\"\"b\" i:c"},
	{"\"a", "!:\"a"},
	{"'a\\' c'", "s:'a\\' i:c !:'"},
	{"E'a\\'b' e'\\\\'c", "s:E'a\\'b' s:e'\\\\' i:c"},
	{"E'a''b'", "s:E'a''b'"},
	{"E 'a'", "i:E s:'a'"},
	{"abce'x'", "i:abce s:'x'"},
	{"N'a\\' n'b'", "s:N'a\\' s:n'b'"},
	{"B'01' x'fF'", "b:B'01' b:x'fF'"},
	{"B'0''1'", "b:B'0' s:'1'"},
	{"U&'a\\0041''' u&\"x\"\"y\"z", "s:U&'a\\0041''' q:u&\"x\"\"y\" i:z"},
	{"u&a u& 'x' u", "i:u o:& i:a i:u o:& s:'x' i:u"},
	{"$$a'b$$c", "s:$$a'b$$ i:c"},
	{"$t$a$$b$tt$c$t$d", "s:$t$a$$b$tt$c$t$ i:d"},
	{"$t$ $T$ $t$", "s:$t$ $T$ $t$"},
	{"$a$b$a", "!:$a$b$a"},
	{"$$a$b$$", "s:$$a$b$$"},
	{"a$b$c$b$", "i:a$b$c$b$"},
	{"$1 $12$x$ $x$", "p:$1 p:$12 s:$x$ $x$"},
	{"$1a", "p:$1 i:a"},
	{"$ $a $1a$", "o:$ o:$ i:a p:$1 i:a$"},
	{"$\xc3\xa9$x$\xc3\xa9$", "s:$\xc3\xa9$x$\xc3\xa9$"},
	{"1 1.5 .5 5. 1e3 1.e-3 1E+2 1e 1e+",
		"n:1 n:1.5 n:.5 n:5. n:1e3 n:1.e-3 n:1E+2 n:1 i:e n:1 i:e o:+"},
	{"1..2", "n:1 o:. n:.2"},
	{"12ab", "n:12 i:ab"},
	{"a.b", "i:a o:. i:b"},
	{"a::b:c :: :=", "i:a o::: i:b o:: i:c o::: o:: o:="},
	{"(;);", "o:( ;:; o:) ;:;"},
	{"'a'\n'b'", "s:'a'\n'b'"},
	{"'a' 'b'", "s:'a' s:'b'"},
	{"'a' --x\n 'b'", "s:'a' --x\n 'b'"},
	{"'a'\n--x\n 'b'", "s:'a'\n--x\n 'b'"},
	{"'a'\n--x 'b'", "s:'a'"},
	{"'a' /*\n*/ 'b'", "s:'a' s:'b'"},
	{"'a'\n/**/'b'", "s:'a' s:'b'"},
	{"'a'\nE'b'", "s:'a' s:E'b'"},
	{"E'a'\n'\\'b'", "s:E'a'\n'\\'b'"},
	{"B'0'\n'1' U&'x'\r'y'", "b:B'0'\n'1' s:U&'x'\r'y'"},
	{"'a'\n'b", "!:'a'\n'b"},
	{"$$a$$\n'b'", "s:$$a$$ s:'b'"},
	{"\xc2\xa0queue", "i:\xc2\xa0queue"},
	{"@#~", "o:@ o:# o:~"},
};

/* standard_conforming_strings = off */
static const struct lex_case lex_cases_off[] = {
	{"'a\\' b'", "s:'a\\' b'"},
	{"'a\\", "!:'a\\"},
	{"U&'a\\'", "s:U&'a\\'"},
};

static void check_tokens(const struct lex_case *c, bool standard_strings)
{
	struct buf got = BUF_INIT;
	struct sql_lexer lx;
	struct sql_token t;

	sql_lex_init(&lx, c->sql, strlen(c->sql), standard_strings);
	for (sql_lex_next(&lx, &t); t.kind != SQL_END; sql_lex_next(&lx, &t)) {
		if (got.len)
			buf_putc(&got, ' ');
		buf_printf(&got, "%c:%.*s", kind_letter(t.kind), (int)t.len, t.text);
	}
	assert_string_equal(buf_cstr(&got), c->tokens);
	buf_free(&got);
}

static void test_tokens(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lex_cases); i++)
		check_tokens(&lex_cases[i], true);
	for (size_t i = 0; i < ARRAY_LEN(lex_cases_off); i++)
		check_tokens(&lex_cases_off[i], false);
}

/* Tokens cover the text in order, whatever it is and wherever it is cut. */
static void test_cut_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lex_cases); i++) {
		size_t len = strlen(lex_cases[i].sql);

		for (size_t n = 0; n <= len; n++) {
			char *copy = malloc(n + 1); /* exact size, so that ASan sees an overrun */
			const char *at;
			struct sql_lexer lx;
			struct sql_token t;

			assert_non_null(copy);
			memcpy(copy, lex_cases[i].sql, n);
			at = copy;
			sql_lex_init(&lx, copy, n, n & 1);
			do {
				sql_lex_next(&lx, &t);
				assert_true(t.text >= at && t.text + t.len <= copy + n);
				assert_true(t.kind == SQL_END || t.len > 0);
				at = t.text + t.len;
			} while (t.kind != SQL_END);
			free(copy);
		}
	}
}

static void test_params(void **state)
{
	static const struct {
		const char *sql;
		int n;
	} cases[] = {{"$0", 0}, {"$1", 1}, {"$65535", 65535}, {"$2147483647", INT32_MAX},
		{"$99999999999999999999", INT32_MAX}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct sql_lexer lx;
		struct sql_token t;

		sql_lex_init(&lx, cases[i].sql, strlen(cases[i].sql), true);
		sql_lex_next(&lx, &t);
		assert_int_equal(t.kind, SQL_PARAM);
		assert_int_equal(t.param, cases[i].n);
	}
}

/* --- values --- */

struct value_case {
	const char *sql, *value; /* NULL: not valid */
};

static const struct value_case value_cases[] = {
	{"AbC", "abc"},
	{"\xc3\x89T", "\xc3\x89t"},
	{"\"AbC\"", "AbC"},
	{"\"a\"\"b\"", "a\"b"},
	{"U&\"d\\0061t\\+000061\"", "data"},
	{"'it''s'", "it's"},
	{"''", ""},
	{"'a\\nb'", "a\\nb"},
	{"N'a\\n'", "a\\n"},
	{"'a'\n'b' --x\n'c'", "abc"},
	{"'a'''\n'''b'", "a''b"},
	{"E'\\b\\f\\n\\r\\t\\q\\\\\\''''", "\b\f\n\r\tq\\''"},
	{"E'\\101\\60\\7x\\1011'", "A0\7xA1"},
	{"E'\\x41\\x4g\\xg'", "A\4gxg"},
	{"E'\\u00e9\\U0001F600'", "\xc3\xa9\xf0\x9f\x98\x80"},
	{"E'\\uD83D\\uDE00'", "\xf0\x9f\x98\x80"},
	{"E'\\uD83Dx'", NULL},
	{"E'\\uD83D'", NULL},
	{"E'\\uDE00'", NULL},
	{"E'\\uD83D\\n'", NULL},
	{"E'\\u12'", NULL},
	{"E'\\u0000'", NULL},
	{"E'\\0'", NULL},
	{"E'\\x00'", NULL},
	{"E'\\U00110000'", NULL},
	{"E'\\UFFFFFFFF'", NULL},
	{"E'a\\n'\n'b\\n'", "a\nb\n"},
	{"U&'d\\0061t\\+000061\\\\'", "data\\"},
	{"U&'\\D83D\\DE00\\+00D83D\\+00DE00'", "\xf0\x9f\x98\x80\xf0\x9f\x98\x80"},
	{"U&'\\D83D\\\\'", NULL},
	{"U&'\\D83D''\\DE00'", NULL},
	{"U&'\\00'", NULL},
	{"U&'\\00'\n'41'", "A"},
	{"U&'\\D83D'\n'\\DE00'", "\xf0\x9f\x98\x80"},
	{"U&''", ""},
	{"E'\\uD83D'\n'\\uDE00'", NULL},
	{"U&'\\x'", NULL},
	{"U&'\\+110000'", NULL},
	{"$$it's$$", "it's"},
	{"$a$$b$$a$", "$b$"},
	{"$$$$", ""},
	{"B'0101'", "0101"},
	{"b'01'\n'1'", "011"},
	{"X'1f'", "00011111"},
	{"B'2'", NULL},
	{"X'g'", NULL},
	{"X''", ""},
	{"1.50", "1.50"},
	{"'a", NULL},
};

static const struct value_case value_cases_off[] = {
	{"'a\\nb'", "a\nb"},
	{"N'a\\n'", "a\n"},
	{"U&'a'", NULL},
	{"U&\"a\"", NULL},
};

static void check_value(const struct value_case *c, bool standard_strings)
{
	struct buf got = BUF_INIT;
	struct sql_lexer lx;
	struct sql_token t;
	bool ok;

	sql_lex_init(&lx, c->sql, strlen(c->sql), standard_strings);
	sql_lex_next(&lx, &t);
	assert_int_equal(t.len, strlen(c->sql));
	ok = sql_token_value(&t, standard_strings, &got);
	assert_int_equal(ok, c->value != NULL);
	if (ok)
		assert_string_equal(buf_cstr(&got), c->value);
	buf_free(&got);
}

static void test_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(value_cases); i++)
		check_value(&value_cases[i], true);
	for (size_t i = 0; i < ARRAY_LEN(value_cases_off); i++)
		check_value(&value_cases_off[i], false);
}

static void test_value_without_memory(void **state)
{
	static const char *const texts[] = {"'abc'", "U&'abc\\0041'", "U&\"a\"", "X'ff'", "abc"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		bool ok = false;

		for (unsigned long n = 1; !ok; n++) {
			struct buf got = BUF_INIT;
			struct sql_lexer lx;
			struct sql_token t;

			sql_lex_init(&lx, texts[i], strlen(texts[i]), true);
			sql_lex_next(&lx, &t);
			mem_fail_after(n);
			ok = sql_token_value(&t, true, &got);
			mem_fail_after(0);
			assert_int_equal(ok, !buf_failed(&got));
			assert_true(ok || n < 10);
			buf_free(&got);
		}
	}
}

static void test_positions(void **state)
{
	const char *sql = "\xc3\xa9\xe2\x82\xacx";

	(void)state;
	assert_int_equal(sql_char_position(sql, sql), 1);
	assert_int_equal(sql_char_position(sql, sql + 2), 2);
	assert_int_equal(sql_char_position(sql, sql + 5), 3);
}

/* --- the first word --- */

static const struct {
	const char *sql;
	bool yes;
} first_cases[] = {
	{"queue", true},
	{"QUEUE push", true},
	{"qUeUe;", true},
	{"queue'x'", true},
	{"queue\"x\"", true},
	{"queue/**/", true},
	{"queue--", true},
	{"queue(", true},
	{"queue.x", true},
	{" \t\r\n\f\vqueue ", true},
	{"-- x\nqueue ", true},
	{"-- x\rqueue ", true},
	{"/* a /* b */ c */queue ", true},
	{";;queue ", true},
	{" ; -- x\n ; /**/ queue ", true},
	{"", false},
	{"  ", false},
	{"que", false},
	{"queues", false},
	{"queue1", false},
	{"queue$", false},
	{"queue_", false},
	{"queue\xc3\xa9", false},
	{"\xc2\xa0queue", false},
	{"\xef\xbb\xbfqueue", false},
	{"\"queue\"", false},
	{"-queue", false},
	{"/queue", false},
	{"-- queue", false},
	{"/* queue", false},
	{"/* /* */ queue", false},
	{"$queue", false},
	{"(queue)", false},
	{"select queue", false},
	{"select 1; queue push", false},
	{"1", false},
	{"'", false},
	{"-", false},
	{"/", false},
};

static void test_first_word(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(first_cases); i++) {
		const char *sql = first_cases[i].sql;
		size_t len = strlen(sql);
		enum sql_word whole = sql_first_word(sql, len, true), known = SQL_WORD_MORE;

		assert_int_equal(whole == SQL_WORD_QUEUE, first_cases[i].yes);
		/* byte by byte: once known it stays, and it is what the whole says */
		for (size_t n = 0; n <= len; n++) {
			enum sql_word now;
			char *copy = malloc(n + 1);

			assert_non_null(copy);
			memcpy(copy, sql, n);
			now = sql_first_word(copy, n, false);
			free(copy);
			if (known != SQL_WORD_MORE)
				assert_int_equal(now, known);
			known = now;
		}
		if (known != SQL_WORD_MORE)
			assert_int_equal(known, whole);
	}
}

/* Any two texts put together: what the first alone decides holds for both. */
static void test_first_word_appended(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(first_cases); i++) {
		for (size_t j = 0; j < ARRAY_LEN(first_cases); j++) {
			struct buf b = BUF_INIT;
			enum sql_word first = sql_first_word(
				first_cases[i].sql, strlen(first_cases[i].sql), false);

			buf_puts(&b, first_cases[i].sql);
			buf_puts(&b, first_cases[j].sql);
			if (first != SQL_WORD_MORE)
				assert_int_equal(first, sql_first_word(buf_cstr(&b), b.len, true));
			buf_free(&b);
		}
	}
}

#define WORD_TEXT(name, text) [SQL_WORD_##name] = text,

static const char *const word_texts[SQL_WORD_COUNT] = {SQL_WORDS(WORD_TEXT)};

static enum sql_word first_of(const char *before, const char *word, const char *behind)
{
	struct buf b = BUF_INIT;
	enum sql_word found;

	buf_puts(&b, before);
	buf_puts(&b, word);
	buf_puts(&b, behind);
	found = sql_first_word((const char *)b.data, b.len, true);
	buf_free(&b);
	return found;
}

/* Each of them, in any case, near the end and far from it, cut at every point and one letter longer. */
static void test_words(void **state)
{
	static const char *const behind[] = {
		"", " ", ";", "(", "'x'", " and more than that follows"};
	static const char *const longer[] = {
		"s", "_", "1", "$", "\x80", "s and more than that follows"};

	(void)state;
	for (unsigned i = SQL_WORD_ABORT; i < SQL_WORD_COUNT; i++) {
		char large[16] = {0};
		size_t len = strlen(word_texts[i]);

		for (size_t n = 0; n < len; n++)
			large[n] = (char)(word_texts[i][n] - 32);
		for (size_t j = 0; j < ARRAY_LEN(behind); j++) {
			assert_int_equal(first_of("", word_texts[i], behind[j]), i);
			assert_int_equal(first_of("/**/;", large, behind[j]), i);
			assert_int_equal(first_of("\"", word_texts[i], behind[j]), SQL_WORD_OTHER);
			assert_int_equal(first_of("", word_texts[i], longer[j]), SQL_WORD_OTHER);
			assert_int_equal(first_of("x", word_texts[i], behind[j]), SQL_WORD_OTHER);
		}
		for (size_t n = 1; n < len; n++) {
			assert_int_equal(sql_first_word(word_texts[i], n, false), SQL_WORD_MORE);
			/* one of them may begin another: DO, DOUBT; it is that one, then */
			large[n] = '\0';
			assert_int_not_equal(first_of("", large, " and more than that follows"), i);
		}
		assert_int_equal(sql_first_word(word_texts[i], len, false), SQL_WORD_MORE);
	}
	assert_int_equal(first_of(" -- x\n", "", ""), SQL_WORD_NONE);
	assert_int_equal(first_of("", "", ""), SQL_WORD_NONE);
	assert_int_equal(first_of("(", "select", " 1)"), SQL_WORD_OTHER);
	assert_int_equal(first_of("", "insert into t values", " (1)"), SQL_WORD_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_params),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_value_without_memory),
		cmocka_unit_test(test_positions),
		cmocka_unit_test(test_first_word),
		cmocka_unit_test(test_first_word_appended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
