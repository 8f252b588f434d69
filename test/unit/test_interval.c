/* interval.c: the texts that waits and leases are given in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "wire/sqllex.h"

#define SEC  INT64_C(1000000)
#define MIN  (60 * SEC)
#define HOUR (60 * MIN)
#define DAY  (24 * HOUR)

static const struct {
	const char *text;
	int64_t usec;
} good[] = {
	{"30s", 30 * SEC},
	{"30", 30 * SEC},
	{" 30 s ", 30 * SEC},
	{"0", 0},
	{"1.5", 1500000},
	{".5s", 500000},
	{"-5s", -5 * SEC},
	{"+5s", 5 * SEC},
	{"1 hour 5 min", 65 * MIN},
	{"1h5m", 65 * MIN},
	{"1 Day", DAY},
	{"1.5 days", 36 * HOUR},
	{"2 weeks", 14 * DAY},
	{"1 month", 30 * DAY},
	{"1 year 1 mon", 390 * DAY},
	{"100ms", 100000},
	{"250 us", 250},
	{"5 minutes ago", -5 * MIN},
	{"@ 1 minute 2 seconds ago", -62 * SEC},
	{"00:00:30", 30 * SEC},
	{"1:30", 90 * MIN},
	{"1:30.5", 90500000},
	{"-01:00:00.25", -HOUR - 250000},
	{"1 day 02:03:04", DAY + 2 * HOUR + 3 * MIN + 4 * SEC},
	{"1 2:03:04", DAY + 2 * HOUR + 3 * MIN + 4 * SEC},
	{"1 -2:00", DAY - 2 * HOUR},
	{"1 day -2:00", DAY - 2 * HOUR},
	{"1-2", 14 * 30 * DAY},
	{"0 mons 0 days 00:00:30.000000", 30 * SEC},
	{"1 day 30", DAY + 30 * SEC},
	{"PT30S", 30 * SEC},
	{"P1DT2H3M4.5S", DAY + 2 * HOUR + 3 * MIN + 4500000},
	{"P1Y2M3W4D", (360 + 60 + 21 + 4) * DAY},
	{"PT-5S", -5 * SEC},
	{"P-1DT2H", -DAY + 2 * HOUR},
};

static const char *const bad[] = {"", " ", "s", "abc", "5 foo", "1:", "1:2:", "1:60", "1:00:61",
	"5 5", "P", "PT", "P1", "P1S", "PT1D", "P1DT", "ago", "1-", "1-12", "- ", "@", "1 day x",
	"infinity", "99999999999999 years", "1e", "--5", "5s;", "1 2 3", "1:2:3:4"};

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		int64_t usec = -1;

		assert_true(sql_interval_usec(good[i].text, strlen(good[i].text), &usec));
		assert_int_equal(usec, good[i].usec);
	}
}

/* What is written for Postgres is read here, too. */
static void test_written(void **state)
{
	static const int64_t usecs[] = {1, SEC / 2, 30 * SEC, 90 * MIN, 400 * DAY};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(usecs); i++) {
		char text[40];
		size_t len = sql_interval_text(text, sizeof(text), usecs[i]);
		int64_t usec = -1;

		assert_int_equal(len, strlen(text));
		assert_true(sql_interval_usec(text, len, &usec));
		assert_int_equal(usec, usecs[i]);
	}
}

static void test_bad(void **state)
{
	int64_t usec = 7;
	char digits[500];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_false(sql_interval_usec(bad[i], strlen(bad[i]), &usec));
		assert_int_equal(usec, 7);
	}
	memset(digits, '9', sizeof(digits));
	assert_false(sql_interval_usec(digits, sizeof(digits), &usec));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_written),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
