/* How much is told at once, and after which pause again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "../../src/queue/telling.h"

static void add(struct telling *t, unsigned n)
{
	char name[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "q%u", i);
		outbox_add(&t->next, name, TELL_MAX);
	}
}

/* In vain, so often: how many were said at once, the last time, and when is the next one? */
static unsigned in_vain(struct telling *t, enum telling_failure how, unsigned times)
{
	unsigned n = 0;

	for (unsigned i = 0; i < times; i++) {
		telling_begins(t);
		n = t->told.n;
		telling_failed(t, how, 0);
		assert_true(outbox_is_empty(&t->told));
	}
	return n;
}

static void all_at_once(void **state)
{
	struct telling t = {0};

	(void)state;
	add(&t, 41);
	t.next.urgent = true;
	telling_begins(&t);
	assert_int_equal(t.told.n, 41);
	assert_true(t.told.urgent && outbox_is_empty(&t.next));
	telling_ended(&t);
	assert_true(outbox_is_empty(&t.told));
	assert_int_equal(t.at, 0);
	assert_int_equal(telling_most(&t), TELL_MAX);
}

/* Half as many each time, down to one; twice as many behind each that was told. */
static void fewer_when_refused(void **state)
{
	struct telling t = {0};

	(void)state;
	add(&t, 41);
	assert_int_equal(in_vain(&t, TELLING_REFUSED, 1), 41);
	assert_int_equal(in_vain(&t, TELLING_REFUSED, 1), 20);
	assert_int_equal(in_vain(&t, TELLING_REFUSED, 5), 1);
	assert_int_equal(t.next.n, 41);
	telling_begins(&t);
	telling_ended(&t);
	assert_int_equal(telling_most(&t), 2);
	assert_int_equal(t.next.n, 40);
	for (unsigned i = 0; i < 20; i++) {
		telling_begins(&t);
		telling_ended(&t);
	}
	assert_int_equal(telling_most(&t), TELL_MAX);
	assert_true(outbox_is_empty(&t.next));
	telling_clear(&t);
}

static void pauses_grow(void **state)
{
	struct telling t = {0};
	const usec_t pauses[] = {1, 2, 4, 8, 16, 30, 30};

	(void)state;
	add(&t, 1);
	for (size_t i = 0; i < ARRAY_LEN(pauses); i++) {
		(void)in_vain(&t, TELLING_REFUSED, 1);
		assert_int_equal(t.at, pauses[i] * USEC_SEC);
	}
	telling_begins(&t);
	telling_ended(&t);
	add(&t, 1);
	(void)in_vain(&t, TELLING_REFUSED, 1);
	assert_int_equal(t.at, TELL_AGAIN);
	telling_clear(&t);
}

/* The session comes back by itself; if it is cut off by the same once more, that has time. */
static void cut_off(void **state)
{
	struct telling t = {0};

	(void)state;
	add(&t, 8);
	assert_int_equal(in_vain(&t, TELLING_CUT_OFF, 1), 8);
	assert_int_equal(t.at, 0);
	assert_int_equal(in_vain(&t, TELLING_CUT_OFF, 1), 4);
	assert_int_equal(t.at, TELL_AGAIN);
	telling_clear(&t);
}

/* All others are told by their names, without a pause. */
static void one_is_unfit(void **state)
{
	struct telling t = {0};
	struct outbox_entry *bad;
	unsigned told = 0;

	(void)state;
	add(&t, 41);
	for (unsigned i = 0; i < 200 && !outbox_is_empty(&t.next); i++) {
		telling_begins(&t);
		HASH_FIND_STR(t.told.queues, "q17", bad);
		if (bad != NULL) {
			if (t.told.n > 1)
				assert_int_equal(t.at, 0);
			telling_failed(&t, TELLING_UNFIT, 0);
			continue;
		}
		told += t.told.n;
		assert_true(t.told.n > 0 || t.told.any);
		telling_ended(&t);
	}
	assert_int_equal(told, 40);
	assert_true(outbox_is_empty(&t.next));
	telling_clear(&t);
}

static void nothing_fails(void **state)
{
	struct telling t = {0};

	(void)state;
	telling_failed(&t, TELLING_CUT_OFF, USEC_SEC);
	assert_int_equal(t.at, 0);
	assert_int_equal(telling_most(&t), TELL_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_at_once),
		cmocka_unit_test(fewer_when_refused),
		cmocka_unit_test(pauses_grow),
		cmocka_unit_test(cut_off),
		cmocka_unit_test(one_is_unfit),
		cmocka_unit_test(nothing_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
