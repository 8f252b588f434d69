/* The HINT of a value that a statement cannot have: of which clause it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "qlang/explain.h"

static const struct {
	const char *statement, *sqlstate, *message, *hint; /* hint: "" none */
} cases[] = {
	{"QUEUE PUSH q '1' DELAY 'soon'", "22007",
		"invalid input syntax for type interval: \"soon\"",
		"DELAY takes an interval, such as '30 s', '5 min' or '2 h'."},
	{"QUEUE PUSH q '1' DELAY '1 s' EXPIRES 'soon'", "22007",
		"invalid input syntax for type interval: \"soon\"",
		"EXPIRES takes an interval, such as '30 s', '5 min' or '2 h'."},
	{"QUEUE PUSH q '1' DELAY $1 EXPIRES $2", "22007",
		"invalid input syntax for type interval: \"soon\"",
		"An interval is written '30 s', '5 min' or '2 h'."},
	{"QUEUE PUSH q '1' DELAY (x)", "42846", "cannot cast type integer to interval",
		"DELAY takes an interval, such as '30 s', '5 min' or '2 h'."},
	{"QUEUE PUSH q '1' AT 5", "42846", "cannot cast type integer to timestamp with time zone",
		"AT takes a time, such as '2030-01-31 12:00+00'."},
	{"QUEUE PUSH q '1' PRIORITY 'high' ATTEMPTS 3", "22P02",
		"ungültige Eingabesyntax für Typ integer: \"high\"",
		"PRIORITY takes a whole number, up to 2147483647."},
	{"QUEUE PUSH q '1' PRIORITY 9999999999", "22003",
		"value \"9999999999\" is out of range for type integer",
		"PRIORITY takes a whole number, up to 2147483647."},
	{"QUEUE PUSH q 'hello'", "22P02", "invalid input syntax for type json",
		"The payloads of this queue are JSON: a text is written '\"text\"'. A queue WITH (payload = text) takes any."},
	{"QUEUE PUSH q 'hello' HEADERS '{}'", "22P02", "invalid input syntax for type json",
		"JSON is written '{\"a\": 1}', a text in it '\"text\"'."},
	{"QUEUE RUN 'x' ON q PARAMS 'x'", "22P02", "invalid input syntax for type json",
		"PARAMS takes a JSON array, such as '[7, \"a text\", null]'."},
	{"QUEUE FAIL '1-1-a' RETRY IN 'soon'", "22007",
		"invalid input syntax for type interval: \"soon\"",
		"RETRY IN takes an interval, such as '30 s', '5 min' or '2 h'."},
	{"QUEUE DONE '1-1-a' THEN PUSH q '1' DELAY 'soon'", "22007",
		"invalid input syntax for type interval: \"soon\"",
		"DELAY takes an interval, such as '30 s', '5 min' or '2 h'."},
	{"QUEUE ALTER JOB 1 ON q SET (priority = 3, expires = 'soon')", "22007",
		"invalid input syntax for type interval: \"soon\"",
		"expires takes an interval, such as '30 s', '5 min' or '2 h'."},
	{"QUEUE CREATE $1", "42602", "queue name must not be empty",
		"QUEUE HELP CREATE shows how it is written."},
	/* what was said of something else */
	{"QUEUE PUSH q '1' DELAY 'soon'", "23505", "duplicate key \"interval\"", ""},
	{"QUEUE PUSH q '1' DELAY 'soon'", "P0001", "soon", ""},
	{"QUEUE PUSH q '1'", "22P02", "invalid input syntax for type uuid: \"x\"", ""},
};

static void test_cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct pg_error err, none;
		struct qstmt *q = qstmt_parse(
			cases[i].statement, strlen(cases[i].statement), true, NULL, 0, &none);

		if (q == NULL)
			fail_msg("%s: %s", cases[i].statement, none.message);
		pg_error_set(&err, cases[i].sqlstate, "%s", cases[i].message);
		assert_int_equal(explain_value(&err, q->verb, q), cases[i].hint[0] != '\0');
		assert_string_equal(err.hint, cases[i].hint);
		qstmt_free(&q);
	}
}

/* The statement may be gone; and a HINT that is there says more. */
static void test_without_a_statement(void **state)
{
	struct pg_error err;

	(void)state;
	pg_error_set(&err, "22007", "invalid input syntax for type interval: \"foo\"");
	assert_true(explain_value(&err, &qverbs[QVERB_TAKE], NULL));
	assert_string_equal(err.hint, "An interval is written '30 s', '5 min' or '2 h'.");
	assert_false(explain_value(&err, &qverbs[QVERB_PUSH], NULL));
	pg_error_set(&err, "22004", "the queue name must not be null");
	assert_true(explain_value(&err, &qverbs[QVERB_TAKE], NULL));
	assert_string_equal(err.hint, "QUEUE HELP TAKE shows how it is written.");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_without_a_statement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
