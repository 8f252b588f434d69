/* The jobs of a slot: order, those that are lost, and lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/queue/run_batch.h"
#include "base/mem.h"
#include "wire/array.h"

static void add(struct run_batch *b, const char *token, int attempt)
{
	struct batch_job job = {.attempt = attempt, .outcome = OUTCOME_DONE};

	(void)snprintf(job.token, sizeof(job.token), "%s", token);
	assert_true(batch_add(b, &job));
}

/* Their tokens, as they follow. */
static void assert_left(const struct run_batch *b, const char *want)
{
	char text[200] = "";
	size_t at = 0;
	const struct batch_job *j;

	BATCH_FOREACH (j, b)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ", j->token);
	assert_string_equal(text, want);
}

static void note_lost(void *arg, const char *token)
{
	char *text = arg;

	(void)snprintf(text + strlen(text), 100 - strlen(text), "%s ", token);
}

static void test_in_the_order_in_which_they_were_taken(void **state)
{
	struct run_batch b = {0};
	struct batch_job job;

	(void)state;
	assert_int_equal(batch_left(&b), 0);
	assert_false(batch_next(&b, &job));
	for (int round = 0; round < 2; round++) {
		add(&b, "1-1-a", 1);
		add(&b, "1-2-b", 7);
		add(&b, "1-3-c", 1);
		assert_int_equal(batch_left(&b), 3);
		assert_true(batch_next(&b, &job));
		assert_string_equal(job.token, "1-1-a");
		assert_left(&b, "1-2-b 1-3-c ");
		assert_null(batch_find(&b, "1-1-a")); /* it was taken out */
		assert_ptr_equal(batch_find(&b, "1-2-b"), b.jobs + 1);
		assert_null(batch_find(&b, "1-2"));
		assert_true(batch_next(&b, &job));
		assert_int_equal(job.attempt, 7);
		b.each = true;
		batch_clear(&b);
		assert_int_equal(batch_left(&b), 0);
		assert_false(b.each);
	}
	batch_free(&b);
}

static void test_the_lost_ones_are_told_of(void **state)
{
	struct run_batch b = {0};
	struct batch_job job;
	char told[100] = "";

	(void)state;
	for (const char *t = "abcde"; *t != '\0'; t++)
		add(&b, (const char[]){*t, '\0'}, 1);
	assert_int_equal(batch_drop_lost(&b, note_lost, told), 0);
	assert_true(batch_next(&b, &job)); /* it is none of them any more */
	batch_find(&b, "b")->lost = true;
	batch_find(&b, "d")->lost = true;
	assert_int_equal(batch_drop_lost(&b, note_lost, told), 2);
	assert_string_equal(told, "b d ");
	assert_left(&b, "c e ");
	batch_find(&b, "c")->lost = batch_find(&b, "e")->lost = true;
	assert_int_equal(batch_drop_lost(&b, note_lost, told), 2);
	assert_int_equal(batch_left(&b), 0);
	assert_false(batch_next(&b, &job));
	batch_free(&b);
}

/* Nothing is known of how they end until that is said. */
static void test_begun_together(void **state)
{
	struct run_batch b = {0};
	struct buf tokens = BUF_INIT, want = BUF_INIT;
	struct batch_job job;
	size_t start;

	(void)state;
	add(&b, "x", 1);
	add(&b, "1-2-b", 1);
	add(&b, "1-3-c", 1);
	assert_true(batch_next(&b, &job));
	batch_begin(&b, &tokens);
	start = array_begin(&want, OID_TEXT, false);
	array_put_text(&want, "1-2-b");
	array_put_text(&want, "1-3-c");
	array_end(&want, start, 2);
	assert_int_equal(tokens.len, want.len);
	assert_memory_equal(tokens.data, want.data, want.len);
	assert_true(b.whole);
	assert_int_equal(batch_find(&b, "1-2-b")->outcome, OUTCOME_UNREAD);
	assert_int_equal(batch_find(&b, "1-3-c")->outcome, OUTCOME_UNREAD);
	batch_clear(&b);
	assert_false(b.whole);
	buf_free(&tokens);
	buf_free(&want);
	batch_free(&b);
}

/* What does not fit any more was not added; the others stay. */
static void test_without_memory(void **state)
{
	struct run_batch b = {0};
	const struct batch_job job = {.token = "1-9-z"};

	(void)state;
	mem_fail_after(1);
	assert_false(batch_add(&b, &job));
	mem_fail_after(0);
	assert_int_equal(batch_left(&b), 0);
	for (int n = 0; n < 4; n++)
		add(&b, "1-1-a", n);
	mem_fail_after(1);
	assert_false(batch_add(&b, &job));
	mem_fail_after(0);
	assert_left(&b, "1-1-a 1-1-a 1-1-a 1-1-a ");
	assert_null(batch_find(&b, "1-9-z"));
	batch_free(&b);
	assert_int_equal(batch_left(&b), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_the_order_in_which_they_were_taken),
		cmocka_unit_test(test_the_lost_ones_are_told_of),
		cmocka_unit_test(test_begun_together),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
