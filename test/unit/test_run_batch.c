/* The jobs of a slot: order, those that are lost, and lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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

static void assert_array(const struct buf *have, int n, const char *const *texts)
{
	struct buf want = BUF_INIT;
	size_t start = array_begin(&want, OID_TEXT, false);

	for (int i = 0; i < n; i++)
		array_put_text(&want, texts[i]);
	array_end(&want, start, n);
	assert_int_equal(have->len, want.len);
	assert_memory_equal(have->data, want.data, want.len);
	buf_free(&want);
}

static void assert_comment(const struct buf *have, const char *want)
{
	assert_int_equal(have->len, strlen(want));
	assert_memory_equal(have->data, want, have->len);
}

/* Nothing is known of how they end until that is said. */
static void test_begun_together(void **state)
{
	struct run_batch b = {0};
	struct buf comment = BUF_INIT, tokens = BUF_INIT, again = BUF_INIT;
	struct batch_job job;

	(void)state;
	add(&b, "x", 1);
	add(&b, "1-2-b", 1);
	add(&b, "1-3-c", 1);
	batch_find(&b, "1-3-c")->again = true;
	assert_true(batch_next(&b, &job));
	assert_int_equal(batch_together(&b), 0);
	batch_begin(&b, &comment, &tokens, &again);
	assert_array(&tokens, 2, (const char *const[]){"1-2-b", "1-3-c"});
	assert_array(&again, 1, (const char *const[]){"1-3-c"});
	assert_comment(&comment, "/* qbouncer 1: 2-3 */ ");
	assert_true(b.whole);
	assert_int_equal(batch_together(&b), 2);
	assert_int_equal(batch_find(&b, "1-2-b")->outcome, OUTCOME_UNREAD);
	assert_int_equal(batch_find(&b, "1-3-c")->outcome, OUTCOME_UNREAD);
	batch_ended(&b);
	assert_false(b.whole);
	assert_int_equal(batch_left(&b), 0);
	batch_clear(&b);
	buf_free(&comment);
	buf_free(&tokens);
	buf_free(&again);
	batch_free(&b);
}

/* In the order of the queue, which need not be that of their ids. */
static void test_how_they_are_named(void **state)
{
	static const char *const tokens[] = {"12-7-a", "12-8-b", "12-9-c", "12-11-d", "12-3-e",
		"12-2-f", "12-123456789012345678-a", "12-123456789012345679-b"};
	struct run_batch b = {0};
	struct buf comment = BUF_INIT, all = BUF_INIT, again = BUF_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
		add(&b, tokens[i], 1);
	batch_begin(&b, &comment, &all, &again);
	assert_comment(
		&comment, "/* qbouncer 12: 7-9 11 3 2 123456789012345678-123456789012345679 */ ");
	assert_array(&again, 0, NULL);
	buf_free(&comment);
	buf_free(&all);
	buf_free(&again);
	batch_free(&b);
}

/* Only those of which it can be said are carried out together; the others are next, in their order, until none is left. */
static void test_more_than_can_be_named(void **state)
{
	struct run_batch b = {0};
	int64_t id = 0;
	int rounds = 0, done = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		char token[TOKEN_MAX];

		(void)snprintf(
			token, sizeof(token), "123456789-%lld-a", 123456789012340000LL + 2 * i);
		add(&b, token, 1);
	}
	while (batch_left(&b) > 0) {
		struct buf comment = BUF_INIT, tokens = BUF_INIT, again = BUF_INIT;
		int n;

		batch_begin(&b, &comment, &tokens, &again);
		n = batch_together(&b);
		assert_in_range(comment.len, 1, 1000);
		assert_true(n > 0 && n <= batch_left(&b));
		for (int i = b.at; i < b.upto; i++) {
			const char *job = token_job_id(b.jobs[i].token);

			assert_true(strtoll(job, NULL, 10) > id);
			id = strtoll(job, NULL, 10);
		}
		done += n;
		rounds++;
		batch_ended(&b);
		buf_free(&comment);
		buf_free(&tokens);
		buf_free(&again);
	}
	assert_int_equal(done, 1000);
	assert_in_range(rounds, 20, 40);
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
		cmocka_unit_test(test_how_they_are_named),
		cmocka_unit_test(test_more_than_can_be_named),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
