/* verbs.c: the table is sound, and its names are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/error.h"
#include "qlang/verb.h"

static void test_rows(void **state)
{
	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		const struct qverb *v = &qverbs[i];
		unsigned seen[QARG_COUNT] = {0};

		assert_int_equal(strncmp(v->usage, "QUEUE ", 6), 0);
		if (v->flags & QVERB_BEHIND)
			assert_non_null(strstr(v->usage, v->name));
		else
			assert_int_equal(strncmp(v->usage + 6, v->name, strlen(v->name)), 0);
		/* with the words before it, it must fit into a hint */
		assert_true(strlen(v->usage) + 120 < sizeof(((struct pg_error *)0)->hint));
		for (const char *p = v->usage; *p; p++)
			assert_true((unsigned char)*p < 0x80);
		assert_true(v->help[0] && v->tag_text[0]);
		assert_int_equal(v->columns == NULL, v->n_columns == 0);
		for (int j = 0; j < v->n_args; j++) {
			assert_int_equal(seen[v->args[j].id]++, 0);
			if (v->args[j].keyword)
				assert_non_null(strstr(v->usage, v->args[j].keyword));
		}
	}
}

static void test_find(void **state)
{
	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		char lower[20];
		size_t n = util_strlcpy(lower, qverbs[i].name, sizeof(lower));

		for (size_t j = 0; j < n; j++)
			lower[j] = (char)tolower((unsigned char)lower[j]);
		assert_ptr_equal(qverb_find(lower, n), &qverbs[i]);
		assert_ptr_equal(qverb_nearest(lower, n), &qverbs[i]);
		/* SCHEDULE begins SCHEDULES */
		if (qverbs[i].id != QVERB_SCHEDULES)
			assert_null(qverb_find(lower, n - 1));
	}
	assert_null(qverb_find("", 0));
}

/* A verb of two words is found by its first one, which says so. */
static void test_second(void **state)
{
	int begin[QVERB_COUNT] = {0};

	(void)state;
	for (int i = 0; i < QVERB_COUNT; i++) {
		const char *blank = strchr(qverbs[i].name, ' ');
		const struct qverb *first;

		if (!blank)
			continue;
		first = qverb_find(qverbs[i].name, (size_t)(blank - qverbs[i].name));
		assert_non_null(first);
		assert_ptr_equal(qverb_second(first, blank + 1, strlen(blank + 1)), &qverbs[i]);
		begin[first->id] = QVERB_BEGINS;
	}
	for (int i = 0; i < QVERB_COUNT; i++)
		assert_int_equal(qverbs[i].flags & QVERB_BEGINS, begin[i]);
	assert_null(qverb_second(qverb_find("push", 4), "job", 3));
}

static void test_nearest(void **state)
{
	static const struct {
		const char *word, *verb;
	} cases[] = {{"psuh", "PUSH"}, {"psh", "PUSH"}, {"pussh", "PUSH"}, {"rellease", "RELEASE"},
		{"createe", "CREATE"}, {"dne", "DONE"}, {"insert", NULL}, {"x", NULL}, {"", NULL},
		{"abcdefghijklmnopq", NULL}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct qverb *v = qverb_nearest(cases[i].word, strlen(cases[i].word));

		assert_int_equal(v != NULL, cases[i].verb != NULL);
		if (v)
			assert_string_equal(v->name, cases[i].verb);
	}
}

static void count_row(void *arg, const char *verb, const char *usage, const char *help)
{
	++*(int *)arg;
	assert_true(verb[0] && usage[0] && help[0]);
}

static void test_help(void **state)
{
	int rows = 0;

	(void)state;
	assert_int_equal(qverb_help(NULL, 0, count_row, &rows), QVERB_COUNT);
	assert_int_equal(rows, QVERB_COUNT);
	assert_int_equal(qverb_help("Push", 4, count_row, &rows), 1);
	assert_int_equal(qverb_help("nothing", 7, count_row, &rows), 0);
	assert_int_equal(rows, QVERB_COUNT + 1);
}

/* The fuzzer's dictionary has every word of the table. */
static void require_words(const char *dict, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, " ");
		char entry[40];

		snprintf(entry, sizeof(entry), "\"%.*s\"\n", (int)n, words);
		if (!strstr(dict, entry))
			fail_msg("test/fuzz/queue.dict lacks %s", entry);
		words += n + (words[n] == ' ');
	}
}

static void test_dictionary(void **state)
{
	const char *top = getenv("QB_SRCDIR");
	char path[4096], dict[8192];
	size_t n;
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/test/fuzz/queue.dict", top ? top : ".");
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(dict, 1, sizeof(dict) - 1, f);
	fclose(f);
	dict[n] = '\0';
	for (int i = 0; i < QVERB_COUNT; i++) {
		require_words(dict, qverbs[i].name);
		for (int j = 0; j < qverbs[i].n_args; j++)
			require_words(
				dict, qverbs[i].args[j].keyword ? qverbs[i].args[j].keyword : "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_second),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_dictionary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
