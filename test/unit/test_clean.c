/*
 * Clean queues: what is noted of a step, and what the next one is told (src/queue/clean.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/queue/clean.h"

#define HEAD 20 /* of an array in binary */
#define PAIR 24 /* two numbers with their lengths */

static usec_t now = 1000000;

usec_t loop_now(void)
{
	return now;
}

static bool note(struct clean *c, const char *text)
{
	return clean_note(c, text, strlen(text));
}

/* The nth pair that a step is told. */
static void is_known(
	struct clean *c, int32_t after, size_t n, size_t of, uint8_t number, uint8_t changes)
{
	struct buf b = BUF_INIT;

	clean_put(&b, c, after, CLEAN_STEP);
	assert_int_equal(b.len, of > 0 ? HEAD + of * PAIR : b.len);
	if (of > 0) {
		assert_int_equal(b.data[HEAD + n * PAIR + 11], number);
		assert_int_equal(b.data[HEAD + n * PAIR + 23], changes);
	} else {
		assert_int_equal(b.data[3], 0); /* no dimension */
	}
	buf_free(&b);
}

static void test_in_order(void **state)
{
	struct clean c = {0};

	(void)state;
	is_known(&c, 0, 0, 0, 0, 0);
	assert_true(note(&c, "{7,70,100000,9,90,100000}"));
	assert_true(note(&c, "{3,30,100000,8,80,100000}"));
	is_known(&c, 0, 0, 4, 3, 30);
	is_known(&c, 0, 2, 4, 8, 80);
	is_known(&c, 7, 0, 2, 8, 80);
	is_known(&c, 9, 0, 0, 0, 0);
	clean_free(&c);
	is_known(&c, 0, 0, 0, 0, 0);
}

static void test_changes(void **state)
{
	struct clean c = {0};

	(void)state;
	assert_true(note(&c, "{1,10,100000,2,20,100000,3,30,100000}"));
	assert_true(note(&c, "{1,11,100000,2,0,0,4,0,0}"));
	is_known(&c, 0, 0, 2, 1, 11);
	is_known(&c, 0, 1, 2, 3, 30);
	assert_true(note(&c, "{2,21,2000000000000}")); /* for ever: bounded */
	is_known(&c, 0, 1, 3, 2, 21);
	clean_free(&c);
}

static void test_many(void **state)
{
	struct clean c = {0};
	char text[64];
	struct buf b = BUF_INIT;

	(void)state;
	for (int k = 5000; k > 0; k--) {
		snprintf(text, sizeof(text), "{%d,-%d,100000}", k, k);
		assert_true(note(&c, text));
	}
	clean_put(&b, &c, 1000, CLEAN_STEP);
	assert_int_equal(b.len, HEAD + 2000 * PAIR); /* no more than a step needs */
	assert_int_equal(b.data[HEAD + 10] << 8 | b.data[HEAD + 11], 1001);
	buf_free(&b);
	clean_free(&c);
}

static void test_one(void **state)
{
	struct clean c = {0};
	struct buf b = BUF_INIT;

	(void)state;
	assert_true(clean_keep(&c, 7, -70, UINT64_MAX));
	assert_true(clean_keep(&c, 3, 30, 100000));
	assert_true(clean_keep(&c, 5, 50, 100000));
	assert_true(clean_keep(&c, 5, 0, 0)); /* not any more */
	is_known(&c, 0, 0, 2, 3, 30);
	clean_put_text(&b, &c, 0, CLEAN_STEP);
	buf_putc(&b, ' ');
	clean_put_text(&b, &c, 3, CLEAN_STEP);
	buf_putc(&b, ' ');
	clean_put_text(&b, &c, 7, CLEAN_STEP);
	buf_putc(&b, ' ');
	clean_put_text(&b, &c, 0, 1);
	assert_int_equal(b.len, strlen("{3,30,7,-70} {7,-70} {} {3,30}"));
	assert_memory_equal(b.data, "{3,30,7,-70} {7,-70} {} {3,30}", b.len);
	buf_free(&b);
	clean_free(&c);
}

/* Who is passed over because it is known is not known for longer by that. */
static void test_not_prolonged(void **state)
{
	struct clean c = {0};

	(void)state;
	assert_true(clean_keep(&c, 1, 10, 1));
	now += 2 * USEC_MSEC;
	assert_true(clean_keep(&c, 1, 10, 100000));
	is_known(&c, 0, 0, 0, 0, 0);
	assert_true(clean_keep(&c, 1, 10, 100000)); /* looked into */
	is_known(&c, 0, 0, 1, 1, 10);
	assert_true(clean_keep(&c, 2, 20, 1));
	assert_true(clean_keep(&c, 2, 21, 100000));
	is_known(&c, 0, 1, 2, 2, 21);
	clean_free(&c);
}

static void test_nonsense(void **state)
{
	static const char *const texts[] = {"", "{", "{1}", "{1,2}", "{1,2,3,4}", "{a,2,3}",
		"{-1,2,3}", "{1,2,NULL}", "{99999999999,2,3}", "{{1,2,3}}"};
	struct clean c = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_false(note(&c, texts[i]));
	assert_true(note(&c, "{}"));
	is_known(&c, 0, 0, 0, 0, 0);
	clean_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_not_prolonged),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
