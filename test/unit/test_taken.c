/*
 * The rows of a take as its waiter keeps them, without memory: taken.c; how long their jobs had waited: waited.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/queue/wait_int.h"
#include "../../src/queue/figures.h"
#include "../../src/queue/lease.h"

#define COLUMNS (0 ROW_TAKEN(ROW_ONE, , JSONB))

static struct qdb db = {.magic = QDB_MAGIC};

/* A job as queue._take() gives it, and what others have put behind it. */
static struct buf row(const char *id, const char *token, int more)
{
	const char *const values[COLUMNS] = {id, token, "mail", "1"};
	struct buf b = BUF_INIT;
	size_t at = build_row_begin(&b, COLUMNS + HIDDEN_COLUMNS + more);

	for (int i = 0; i < COLUMNS; i++)
		build_row_text(&b, values[i]);
	build_row_text(&b, "release");
	build_row_text(&b, "5000");
	for (int i = 2; i < HIDDEN_COLUMNS + more; i++)
		build_row_text(&b, NULL);
	build_row_end(&b, at);
	return b;
}

static void got(struct waiter *w, const char *id, const char *token, int more)
{
	struct buf b = row(id, token, more);

	taken_row(w, b.data + 5, b.len - 5); /* behind type and length */
	buf_free(&b);
}

static void is_taken(const struct waiter *w, int i, int64_t id, const char *token)
{
	assert_int_equal(w->taken[i].id, id);
	assert_string_equal(w->taken[i].token, token);
	assert_string_equal(w->taken[i].queue, "mail");
	assert_int_equal(w->taken[i].policy, LEASE_RELEASE);
}

static void end(struct waiter *w)
{
	mem_fail_after(0);
	taken_free(w);
	buf_free(&w->answer.rows);
}

static void test_a_job_is_known_without_memory_for_its_row(void **state)
{
	struct buf first = row("17", "3-17-0123456789abcdef", 0),
		   second = row("18", "3-18-0123456789abcdef", 1);
	struct waiter w = {.magic = WAITER_MAGIC, .db = &db, .n_columns = COLUMNS};

	(void)state;
	assert_true(taken_reserve(&w, 2));
	mem_fail_after(1);
	taken_row(&w, first.data + 5, first.len - 5);
	assert_true(buf_failed(&w.answer.rows));
	mem_fail_after(1);
	taken_row(&w, second.data + 5, second.len - 5);
	assert_int_equal(w.n_taken, 2);
	is_taken(&w, 0, 17, "3-17-0123456789abcdef");
	is_taken(&w, 1, 18, "3-18-0123456789abcdef");
	end(&w);
	buf_free(&first);
	buf_free(&second);
}

static void test_more_than_was_expected(void **state)
{
	struct waiter w = {.magic = WAITER_MAGIC, .db = &db, .n_columns = COLUMNS};

	(void)state;
	assert_true(taken_reserve(&w, 1));
	got(&w, "1", "3-1-0123456789abcdef", 0);
	got(&w, "2", "3-2-0123456789abcdef", 1);
	assert_int_equal(w.n_taken, 2);
	assert_int_equal(w.answer.n_rows, 2);
	assert_int_equal(w.due_ms, 5000);
	is_taken(&w, 1, 2, "3-2-0123456789abcdef");
	end(&w);
}

static void test_no_memory_to_ask(void **state)
{
	struct waiter w = {.magic = WAITER_MAGIC, .db = &db, .n_columns = COLUMNS};

	(void)state;
	mem_fail_after(1);
	assert_false(taken_reserve(&w, 1));
	assert_true(taken_reserve(&w, 1));
	assert_true(taken_reserve(&w, 1));
	end(&w);
	assert_null(w.taken);
}

static int64_t waited(const char *pushed, const char *run, const char *taken)
{
	const char *const texts[COLUMNS] = {
		[TAKEN_pushed_at] = pushed, [TAKEN_run_at] = run, [TAKEN_taken_at] = taken};
	struct wire_col cols[COLUMNS];

	for (int i = 0; i < COLUMNS; i++)
		cols[i] = (struct wire_col){.data = (const uint8_t *)texts[i],
			.len = texts[i] != NULL ? (int32_t)strlen(texts[i]) : -1};
	return waited_us(cols, NULL, 0);
}

static void test_how_long_it_waited(void **state)
{
	static const struct {
		const char *pushed, *run, *taken;
		int64_t us;
	} cases[] = {
		{"2026-11-23 07:40:11.191856+00", NULL, "2026-11-23 07:40:11.191857+00", 1},
		{"2026-11-23 07:40:11.9+00", NULL, "2026-11-23 07:40:12+00", 100000},
		{"2026-11-23 07:40:59.999999+00", NULL, "2026-11-23 07:41:00+00", 1},
		{"2026-12-31 23:59:59+05:45", NULL, "2027-01-01 00:00:00.5+05:45", 1500000},
		{"2024-02-28 12:00:00+00", NULL, "2024-03-01 12:00:00+00", INT64_C(172800000000)},
		/* the hour that comes twice */
		{"2026-10-25 02:30:00+02", NULL, "2026-10-25 02:30:10+01", INT64_C(3610000000)},
		{"2026-10-25 02:30:00.12+02", NULL, "2026-10-25 02:30:10+01", INT64_C(3609880000)},
		/* from the later one; a clock that was set back */
		{"2026-11-23 07:40:11+00", "2026-11-23 07:40:15+00", "2026-11-23 07:40:17.25+00",
			2250000},
		{"2026-11-23 07:40:16+00", "2026-11-22 07:40:15+00", "2026-11-23 07:40:17+00",
			1000000},
		{"2026-11-23 07:40:16+00", "-infinity", "2026-11-23 07:40:17+00", 1000000},
		{"2026-11-23 07:40:18+00", NULL, "2026-11-23 07:40:17+00", 0},
		/* not to be read */
		{"23.11.2026 07:40:11.191856 UTC", NULL, "23.11.2026 07:40:11.191856 UTC", -1},
		{"11/23/2026 07:40:11.19 UTC", NULL, "11/23/2026 07:40:12.19 UTC", -1},
		{"Mon Nov 23 07:40:11 2026 UTC", NULL, "Mon Nov 23 07:40:11 2026 UTC", -1},
		{"2026-11-23 07:40:x1.19+00", NULL, "2026-11-23 07:40:12.19+00", -1},
		{"2026-11-23 07:40:11.19!00", NULL, "2026-11-23 07:40:12.19+00", -1},
		{NULL, NULL, "2026-11-23 07:40:17+00", -1},
		{"2026-11-23 07:40:18+00", NULL, NULL, -1},
		{"", NULL, "2026-11-23 07:40:17+00", -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(
			waited(cases[i].pushed, cases[i].run, cases[i].taken), cases[i].us);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_job_is_known_without_memory_for_its_row),
		cmocka_unit_test(test_more_than_was_expected),
		cmocka_unit_test(test_no_memory_to_ask),
		cmocka_unit_test(test_how_long_it_waited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
