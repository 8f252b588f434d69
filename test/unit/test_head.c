/*
 * Where takes begin to read, and what lowers that: head.c without its statements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../../src/queue/head_int.h"
#include "../../src/queue/mark.h"

static struct qdb db = {.magic = QDB_MAGIC};

static int setup(void **state)
{
	*state = head_ref(&db, "mail");
	return *state == NULL;
}

static int teardown(void **state)
{
	head_unref(*state);
	heads_free(&db);
	return 0;
}

/* A take is sent ... */
static struct flight *begun(struct head *l, bool full)
{
	struct flight *f;

	l->full_at = full ? 0 : USEC_NEVER;
	f = flight_begin(l);
	assert_non_null(f);
	assert_int_equal(f->full, full);
	return f;
}

/* ... because of what has happened. */
static struct flight *begun_at_the_front(struct head *l)
{
	struct flight *f;

	l->full_at = USEC_NEVER;
	f = flight_begin(l);
	assert_non_null(f);
	assert_true(f->full);
	return f;
}

/* ... and has told the position of a job, and the time until which nothing is due. */
static void ended(struct flight *f, int64_t place, int64_t edge)
{
	flight_saw(f, 0, place);
	f->edge = edge;
	flight_end(f, true);
}

static void low_marks_are(const struct head *l, int64_t place, int64_t since)
{
	assert_int_equal(l->n_low_marks, 1);
	assert_int_equal(l->low_marks[0].place, place);
	assert_int_equal(l->since, since);
}

static void a_take_raises(void **state)
{
	ended(begun(*state, false), 10, 1000);
	low_marks_are(*state, 11, 1000);
	ended(begun(*state, false), 12, 1001);
	low_marks_are(*state, 13, 1001);
}

/* What a server may say, though no job has it. */
static void the_last_position(void **state)
{
	ended(begun(*state, false), INT64_MAX, 1000);
	low_marks_are(*state, INT64_MAX, 1000);
}

static void a_late_commit_lowers(void **state)
{
	struct head_mark mark;
	struct flight *f;

	ended(begun(*state, false), 10, 1000);
	mark = head_now(&db, "mail"); /* the push is sent */
	ended(begun(*state, false), 20, 1002);
	f = begun(*state, false);
	head_lower(&db, "mail", mark); /* and committed */
	low_marks_are(*state, 11, 1000);
	/* what is under way may have begun before the commit */
	ended(f, 21, 1003);
	low_marks_are(*state, 11, 1000);
	ended(begun(*state, false), 22, 1004);
	low_marks_are(*state, 23, 1004);
}

/* The times of then lie ahead: nothing is known of them. */
static void the_clock_is_set_back(void **state)
{
	const int64_t day = (int64_t)86400 * 1000000;
	struct flight *other;

	ended(begun(*state, false), 10, 2 * day);
	/* not by what two takes see in another order */
	ended(begun(*state, false), 11, 2 * day - 500000);
	low_marks_are(*state, 12, 2 * day);
	other = begun(*state, false);
	ended(begun(*state, false), 12, day);
	low_marks_are(*state, 13, day);
	assert_int_equal(head_now(&db, "mail").since, day);
	ended(other, 13, 2 * day + 1);
	low_marks_are(*state, 14, day);
	head_suspect(&db, "mail");
	((struct head *)*state)->reached.since = 2 * day;
	((struct head *)*state)->past[1].since = 2 * day;
	ended(begun(*state, true), 20, day + 1);
	low_marks_are(*state, 21, day + 1);
	assert_int_equal(head_now(&db, "mail").since, day + 1);
	/* what news lowers the low_marks to is not of then either */
	assert_true(((struct head *)*state)->past[1].since == day + 1);
}

/* Pushes that follow each other closely, as those of many clients do: one is always under way. */
static void pushes_during_a_take_from_the_front(void **state)
{
	struct head_mark mark, next;
	struct flight *f;

	ended(begun(*state, false), 10, 1000);
	f = begun(*state, true);
	mark = head_now(&db, "mail");
	ended(f, 20, 1001);
	for (int i = 1; i <= 3; i++) {
		f = begun(*state, false);
		head_lower(&db, "mail", mark);
		next = head_now(&db, "mail");
		ended(f, 20 + i, 1001 + i);
		mark = next;
	}
	assert_true(((struct head *)*state)->low_marks[0].place >= 21);
	assert_true(((struct head *)*state)->since >= 1001);
}

/* It did not look where the one from the front looks: what was given back lies below its low_mark. */
static void begun_before_a_take_from_the_front(void **state)
{
	struct flight *before, *front;

	ended(begun(*state, false), 100, 1000);
	before = begun(*state, false);
	head_suspect(&db, "mail");
	front = begun(*state, true);
	ended(before, 110, 1001);
	ended(front, 50, 1002);
	low_marks_are(*state, 51, 1002);
	before = begun(*state, false);
	head_suspect(&db, "mail");
	front = begun(*state, true);
	ended(front, 60, 1003);
	ended(before, 120, 1004);
	low_marks_are(*state, 61, 1003);
	ended(begun(*state, false), 121, 1005);
	low_marks_are(*state, 122, 1005);
}

/* Another take has passed over what it had locked. */
static void a_take_that_fails(void **state)
{
	struct flight *f;

	ended(begun(*state, false), 10, 1000);
	f = begun(*state, false);
	ended(begun(*state, false), 20, 1001);
	flight_end(f, false);
	low_marks_are(*state, 11, 1000);
	assert_false(((struct head *)*state)->suspect);
	ended(begun(*state, false), 21, 1002);
	low_marks_are(*state, 22, 1002);
}

/* Of a priority that had no low_mark when it began it may have locked jobs further to the front. */
static void a_take_of_another_priority_that_fails(void **state)
{
	struct head *l = *state;
	struct flight *fails, *beside;

	ended(begun(l, false), 100, 1000);
	fails = begun(l, false);
	beside = begun(l, false);
	flight_saw(beside, -5, 60);
	flight_end(beside, true);
	assert_int_equal(l->n_low_marks, 2);
	assert_int_equal(l->low_marks[1].place, 61);
	flight_end(fails, false);
	assert_int_equal(l->low_marks[0].place, 0);
	assert_int_equal(l->low_marks[1].place, 0);
}

static void what_is_given_back_to_its_place(void **state)
{
	struct head *l = *state;
	struct flight *f;

	ended(begun(l, false), 10, 1000);
	l->number = 7;
	f = begun(l, false);
	head_lower_number(&db, 8, (struct head_mark){2, INT64_MAX});
	low_marks_are(l, 11, 1000);
	head_lower_number(&db, 7, (struct head_mark){3, INT64_MAX});
	low_marks_are(l, 3, 1000);
	ended(f, 12, 1001);
	low_marks_are(l, 3, 1001);
	assert_false(l->suspect);
	assert_int_equal(head_now_number(&db, 7).place, 13);
	assert_int_equal(head_now_number(&db, 8).place, 0);
}

/* A transaction that another session has just committed, be it short or long. */
static void news_from_elsewhere(void **state)
{
	struct head *l = *state;

	for (int i = 1; i <= 4; i++) {
		l->past_at = 0; /* long ago */
		ended(begun(l, false), i * 10, 1000 + i);
	}
	l->event_at = USEC_NEVER;
	head_event(&db, "mail");
	low_marks_are(l, 21, 1002);
	assert_true(l->suspect);
	assert_int_equal(l->event_at, USEC_NEVER); /* the ground is not for each of them */
	ended(begun(l, false), 45, 1005);
	low_marks_are(l, 46, 1005);
	l->event_at = 0;
	ended(begun_at_the_front(l), 50, 1006);
	assert_false(l->suspect);
	head_renew(l, 2);
	assert_int_equal(l->past[0].place + l->past[1].place, 0);
}

/* A take that need not look for what is due relies on the time that is known, not on when somebody looked last. */
static void how_lately_somebody_looked(void **state)
{
	struct head *l = *state;
	struct flight *f;

	for (int i = 1; i <= 4; i++) {
		l->past_at = 0; /* long ago */
		f = begun(l, false);
		f->began = 100 + i;
		ended(f, i * 10, 1000 + i);
	}
	assert_int_equal(l->since_at, 104);
	l->event_at = USEC_NEVER;
	f = begun(l, false);
	head_event(&db, "mail");
	low_marks_are(l, 21, 1002);
	assert_int_equal(l->since_at, 0);
	ended(f, 45, 1005);
	low_marks_are(l, 21, 1002);
	assert_int_equal(l->since_at, 0);
	f = begun(l, false);
	f->began = 106;
	ended(f, 46, 1006);
	assert_int_equal(l->since_at, 106);
	f = begun(l, true);
	f->began = 107;
	head_event(&db, "mail");
	ended(f, 47, 1007);
	assert_true(l->since > 0 && l->since < 1007);
	assert_int_equal(l->since_at, 0);
}

/* Its job was leased as it came: nothing of its priority was ready before it. */
static void a_push_that_is_handed_over(void **state)
{
	struct head *l = *state;
	struct flight *f;

	ended(begun(l, false), 10, 1000);
	l->unproven = false;
	f = flight_of_push(l);
	assert_non_null(f);
	flight_saw(f, 0, 20);
	flight_end(f, true);
	low_marks_are(l, 21, 1000);
	assert_int_equal(head_now(&db, "mail").place, 21);
	assert_false(l->unproven);
	f = flight_of_push(l);
	assert_non_null(f);
	head_lower(&db, "mail", (struct head_mark){15, INT64_MAX});
	flight_saw(f, 0, 30);
	flight_end(f, true);
	low_marks_are(l, 15, 1000);
	f = flight_of_push(l);
	assert_non_null(f);
	flight_saw(f, 0, 40);
	flight_end(f, false);
	low_marks_are(l, 15, 1000);
}

static void a_queue_made_anew(void **state)
{
	struct flight *f;

	ended(begun(*state, false), 1000, 1000);
	f = begun(*state, false);
	head_renew(*state, 2);
	low_marks_are(*state, 0, 0);
	assert_int_equal(head_now(&db, "mail").place, 0);
	ended(f, 1001, 1001); /* it was sent to the old one */
	low_marks_are(*state, 0, 0);
}

/* It was not told for a while: what it knew is worth nothing, also to a take that has begun before. */
static void untold(void **state)
{
	struct head *l = *state;
	struct flight *f;

	ended(begun(l, false), 20, 1000);
	l->event_at = USEC_NEVER;
	f = begun(l, false);
	heads_to_ground(&db);
	low_marks_are(l, 0, 0);
	ended(f, 30, 2000);
	low_marks_are(l, 0, 0);
	ended(begun_at_the_front(l), 40, 3000);
	low_marks_are(l, 41, 3000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_take_raises),
		T(the_last_position),
		T(a_late_commit_lowers),
		T(the_clock_is_set_back),
		T(pushes_during_a_take_from_the_front),
		T(begun_before_a_take_from_the_front),
		T(a_take_that_fails),
		T(a_take_of_another_priority_that_fails),
		T(what_is_given_back_to_its_place),
		T(news_from_elsewhere),
		T(how_lately_somebody_looked),
		T(a_push_that_is_handed_over),
		T(a_queue_made_anew),
		T(untold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
