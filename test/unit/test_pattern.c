/* Regular expressions: what Postgres says they mean, what is refused, and the bounds of a match. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "../../src/auth/pattern.h"
#include "base/mem.h"

/* The answers are those of regexp_match() of Postgres. */
static void test_meaning(void **state)
{
	static const struct {
		const char *text, *name;
		const char
			*group; /* NULL: does not fit; "": fits without a group, or an empty one */
	} cases[] = {
		{"^(.*)@corp$", "bob@corp", "bob"},
		{"^(.*)@corp$", "bob@corp\n", NULL},
		{"^(.*)@corp$", "bob@corpo", NULL},
		{"^(.+?)@(.+)$", "bob@a@b", "bob"},
		{"^(?:CN=)?([^,]+)", "CN=bob,O=x", "bob"},
		{"^(\\w+)\\.(\\d{2,3})$", "a_b.123", "a_b"},
		{"^(\\w+)\\.(\\d{2,3})$", "a_b.1", NULL},
		{"^t[[:digit:]]+$", "t12", ""},
		{"^t[[:digit:]]+$", "t", NULL},
		{"^[]x]+([^]a-c]+)$", "]xd", "d"},
		{"^[\\w.-]+$", "a.b-c", ""},
		{"^(a|b)\\1$", "bb", "b"},
		{"^(a|b)\\1$", "ba", NULL},
		{"\\mbob\\M", "x bob y", ""},
		{"\\mbob\\M", "bobby", NULL},
		{"\\ybob\\Y", "bobby", ""},
		{"[[:<:]]bob[[:>:]]", "a bob", ""},
		{"\\Abob\\Z", "bob", ""},
		{"\\Abob\\Z", "bob\n", NULL},
		{"a\\Bb", "a\\b", ""},
		{"a\\bb", "a\bb", ""},
		{"a\\bb", "ab", NULL},
		{"[\\b\\B]", "\\", ""},
		{"a.b", "a\nb", ""},
		{"(?i)^BOB$", "bOb", ""},
		{"(?ic)^BOB$", "bob", NULL},
		{"(?i)", "x", ""},
		{"", "x", ""},
		{"^(?=.*x)(?!y).{3}$", "abx", ""},
		{"^(?=.*x)(?!y).{3}$", "ybx", NULL},
		{"(?<=a)b(?<!x)", "ab", ""},
		{"^(x)?(.*)$", "abc", ""},
		{"^a{2}$|^a{4,}?$", "aaaaa", ""},
		{"^a{2}$|^a{4,}$", "aaa", NULL},
		{"a{,3}", "a{,3}", ""},
		{"^{x}$", "{x}", ""},
		{"^\\x41\\.\\*$", "A.*", ""},
		{"[\\x61]\\141", "aa", ""},
		{"^(?=(admin|dba))(.*)@corp$", "admin_x@corp", "admin_x"},
		{"^(?!((x)|y)+)(?:(?<=(^))(a))(b)\\2$", "abb", "a"},
		{"^[[:word:][:ascii:]]+$", "ab", ""},
		{"\\mx*bob", "bob", ""},
		{"^\303\244$", "\303\244", ""},
		{"^..$", "\303\244", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct pattern_group group = {.text = "unset", .len = 5};
		const char *want = cases[i].group;
		char err[200] = "";
		struct pattern *p = pattern_new(cases[i].text, err, sizeof(err));
		enum pattern_fit fit;

		if (!p)
			fail_msg("%s: %s", cases[i].text, err);
		fit = pattern_match(p, cases[i].name, &group);
		if (fit != (want ? PATTERN_YES : PATTERN_NO))
			fail_msg("%s: %s: %d", cases[i].text, cases[i].name, (int)fit);
		if (want && (group.len != strlen(want) ||
				    (group.len && memcmp(group.text, want, group.len) != 0)))
			fail_msg("%s: %s: %.*s", cases[i].text, cases[i].name, (int)group.len,
				group.text);
		pattern_free(&p);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"(", "missing closing parenthesis"},
		{"a)", "unmatched closing parenthesis"},
		{"*a", "quantifier does not follow a repeatable item"},
		{"a**", "a quantifier follows a quantifier"},
		{"^(.*++++++++++++++++++++++++++++++++++++++++)@x$",
			"a quantifier follows a quantifier"},
		{"a{2}{3}", "a quantifier follows a quantifier"},
		{"a+?+", "a quantifier follows a quantifier"},
		{"a{2", "invalid interval"},
		{"a{3,2}", "invalid interval"},
		{"a{1,x}", "invalid interval"},
		{"a{256}", "too many repetitions"},
		{"a{99999999999999999999,}", "invalid interval"},
		{"a{99999999999999999999}", "too many repetitions"},
		{"((((a{1,99}){1,99}){1,99}){1,99}){1,99}", "too large"},
		{"[a", "a bracket is not closed"},
		{"[]", "a bracket is not closed"},
		{"[", "a bracket is not closed"},
		{"[^", "a bracket is not closed"},
		{"[[:nosuch:]]", "unknown POSIX class name"},
		{"[[.a.]]", "collating elements"},
		{"[[:", "invalid character class"},
		{"[[:a](*ACCEPT)b:]]", "invalid character class"},
		{"[[:^digit:]]", "invalid character class"},
		{"[[=a=]]", "collating elements"},
		{"a$*", "a quantifier follows a condition"},
		{"^?a", "a quantifier follows a condition"},
		{"\\m*a", "a quantifier follows a condition"},
		{"(?=a)?a", "a quantifier follows a condition"},
		{"(?=(?!b)?a)a", "a quantifier follows a condition"},
		{"[[:<:]]*a", "a quantifier follows a condition"},
		{"(a)(?=\\1)", "a back-reference in a condition"},
		{"\\x61dmin", "invalid \\x"},
		{"\\x{61}", "invalid \\x"},
		{"[\\x]", "invalid \\x"},
		{"[\\", "a bracket is not closed"},
		{"[\\y]", "unknown escape in a bracket"},
		{"\\", "\\ at end of pattern"},
		{"\\Q", "unknown escape"},
		{"\\K", "unknown escape"},
		{"\\C", "unknown escape"},
		{"\\p{L}", "unknown escape"},
		{"\\cA", "unknown escape"},
		{"(*UTF)a", "a quantifier has nothing to repeat"},
		{"(?R)", "unknown option"},
		{"a(?1)", "unknown kind of group"},
		{"(?>a)", "unknown kind of group"},
		{"(?<n>a)", "unknown kind of group"},
		{"(?", "unknown kind of group"},
		{"(?x)a", "unknown option"},
		{"(?i", "a parenthesis is not closed"},
		{"a(?i)b", "unknown kind of group"},
		{"***=a", "quantifier does not follow a repeatable item"},
		{"(a)\\2", "reference to non-existent subpattern"},
	};
	char *text = malloc(20000), err[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (strncmp(cases[i].text, "***", 3) == 0)
			assert_null(pattern_new(cases[i].text, err, sizeof(err)));
		else if (pattern_new(cases[i].text, err, sizeof(err)))
			fail_msg("%s: taken", cases[i].text);
		else if (!strstr(err, cases[i].why))
			fail_msg("%s: %s", cases[i].text, err);
	}
	assert_non_null(text);
	memset(text, '(', 101);
	memset(text + 101, ')', 101);
	text[202] = '\0';
	assert_null(pattern_new(text, err, sizeof(err)));
	memset(text, 'a', 20000 - 1);
	text[19999] = '\0';
	assert_null(pattern_new(text, err, sizeof(err)));
	assert_string_equal(err, "too long");
	free(text);
}

static void test_groups(void **state)
{
	struct pattern_group group;
	struct pattern *p;
	char err[200];

	(void)state;
	p = pattern_new("^(?:a)$", err, sizeof(err));
	assert_non_null(p);
	assert_false(pattern_has_group(p));
	assert_int_equal(pattern_match(p, "a", &group), PATTERN_YES);
	assert_null(group.text);
	pattern_free(&p);
	p = pattern_new("^(a)?(b)(c)(d)$", err, sizeof(err));
	assert_non_null(p);
	assert_true(pattern_has_group(p));
	assert_int_equal(pattern_match(p, "bcd", &group), PATTERN_YES);
	assert_null(group.text);
	assert_int_equal(pattern_match(p, "abcd", &group), PATTERN_YES);
	assert_int_equal(group.len, 1);
	pattern_free(&p);
	pattern_free(&p);
}

static double cpu(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Without a bound each of them needs longer than anybody lives. */
static void test_bounds(void **state)
{
	static const char *const texts[] = {"^(a*)*[0-9]$", "(a+)+[0-9]$", "^((a|a)(a|a)|a)*[0-9]$",
		"^(a?){60}a{60}[0-9]", "^(()?){1,199}$", "^(.*)(\\1\\1|\\1)*[0-9]$",
		"(.*)(.*)(.*)(.*)(.*)(.*)[0-9]$"};
	char name[257], err[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct pattern *p = pattern_new(texts[i], err, sizeof(err));
		double begun = cpu();

		assert_non_null(p);
		for (size_t len = 63; len < sizeof(name); len += 64) {
			memset(name, 'a', len);
			name[len] = '\0';
			if (pattern_match(p, name, NULL) == PATTERN_YES)
				fail_msg("%s fits", texts[i]);
		}
		assert_int_equal(pattern_match(p, name, NULL), PATTERN_UNDECIDED);
		assert_true(cpu() - begun < 20);
		pattern_free(&p);
	}
	/* what is written by people is far from it */
	name[63] = '\0';
	for (size_t i = 0; i < 2; i++) {
		static const char *const plain[] = {"^(.+)\\.([a-z]+)@(.+)$|^a+$", "a[a-z]*b|a$"};
		struct pattern *p = pattern_new(plain[i], err, sizeof(err));

		assert_non_null(p);
		assert_int_equal(pattern_match(p, name, NULL), PATTERN_YES);
		pattern_free(&p);
	}
	/* longer than any name */
	{
		struct pattern *p = pattern_new("a", err, sizeof(err));

		assert_non_null(p);
		memset(name, 'a', 256);
		name[256] = '\0';
		assert_int_equal(pattern_match(p, name, NULL), PATTERN_UNDECIDED);
		pattern_free(&p);
	}
}

static void test_no_memory(void **state)
{
	struct pattern *p = NULL;
	char err[200];
	int n = 0;

	(void)state;
	while (!p) {
		mem_fail_after((unsigned long)++n);
		p = pattern_new("^(a|b[\\w])*\\Z", err, sizeof(err));
		assert_true(p || strcmp(err, "out of memory") == 0);
	}
	assert_true(n > 4);
	mem_fail_after(1);
	assert_int_equal(pattern_match(p, "a", NULL), PATTERN_UNDECIDED);
	mem_fail_after(2);
	assert_int_equal(pattern_match(p, "a", NULL), PATTERN_UNDECIDED);
	mem_fail_after(0);
	assert_int_equal(pattern_match(p, "a", NULL), PATTERN_YES);
	pattern_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_meaning),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
