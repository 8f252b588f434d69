/* What others are to be told of, while it is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../src/queue/outbox.h"

static void each_once(void **state)
{
	struct outbox o = {0};

	(void)state;
	assert_true(outbox_is_empty(&o));
	outbox_add(&o, "mail", 2);
	outbox_add(&o, "mail", 2);
	outbox_add(&o, "other", 2);
	assert_int_equal(o.n, 2);
	assert_false(o.any);
	outbox_add(&o, "mail", 2);
	assert_false(o.any);
	outbox_clear(&o);
	assert_true(outbox_is_empty(&o));
}

static void too_many(void **state)
{
	struct outbox o = {0};

	(void)state;
	outbox_add(&o, "mail", 1);
	outbox_add(&o, "other", 1);
	assert_int_equal(o.n, 1);
	assert_true(o.any);
	outbox_clear(&o);
	assert_false(o.any);
}

static void nothing_but_any(void **state)
{
	struct outbox o = {.any = true};

	(void)state;
	assert_false(outbox_is_empty(&o));
	outbox_clear(&o);
	assert_true(outbox_is_empty(&o));
}

/* What is left says no more that there is something in any. */
static void the_first_of_them(void **state)
{
	struct outbox o = {.any = true, .urgent = true}, first = {0};

	(void)state;
	outbox_add(&o, "mail", 10);
	outbox_add(&o, "other", 10);
	outbox_add(&o, "third", 10);
	outbox_take_first(&first, &o, 2);
	assert_int_equal(first.n, 2);
	assert_true(first.any && first.urgent);
	assert_int_equal(o.n, 1);
	assert_string_equal(o.queues->queue, "third");
	assert_true(o.urgent && !o.any);
	outbox_take_first(&first, &o, 2);
	assert_int_equal(first.n, 3);
	assert_true(outbox_is_empty(&o) && !o.urgent);
	outbox_clear(&first);
}

/* Whoever raises it in the database decides how long it is. */
static void a_long_name(void **state)
{
	struct outbox o = {0};
	char name[4 * OUTBOX_NAME_MAX];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	outbox_add(&o, name, 10);
	outbox_add(&o, name, 10);
	assert_int_equal(o.n, 1);
	assert_int_equal(strlen(o.queues->queue), OUTBOX_NAME_MAX);
	outbox_clear(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_once),
		cmocka_unit_test(too_many),
		cmocka_unit_test(nothing_but_any),
		cmocka_unit_test(the_first_of_them),
		cmocka_unit_test(a_long_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
