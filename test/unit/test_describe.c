/* The tables as text: every key once, in the order of the tables, with what the manual prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conf/conf.h"
#include "conf/describe.h"

static const char *const names[] = {
#define PARAM_STR(name, ...)  #name,
#define PARAM_INT(name, ...)  #name,
#define PARAM_BOOL(name, ...) #name,
#define PARAM_TIME(name, ...) #name,
#define PARAM_SIZE(name, ...) #name,
#define PARAM_ENUM(name, ...) #name,
#include "conf/params.h"
};

static void each_sound(const struct conf_key *k, void *arg)
{
	size_t *n = arg;

	assert_true(*k->name && *k->type && *k->help);
	if (!strcmp(k->section, "qbouncer")) {
		assert_true(*n < ARRAY_LEN(names));
		assert_string_equal(k->name, names[*n]);
		assert_non_null(k->group);
		assert_non_null(k->def);
	} else {
		assert_true(*n >= ARRAY_LEN(names));
		assert_null(k->group);
		assert_null(k->def);
	}
	++*n;
}

static void test_all(void **state)
{
	size_t n = 0;

	(void)state;
	conf_describe(each_sound, &n);
	assert_true(n > ARRAY_LEN(names) + 30);
}

struct wanted {
	const char *section, *name, *type, *bounds, *def;
	bool restart, computed;
	int found;
};

static void each_compare(const struct conf_key *k, void *arg)
{
	struct wanted *w = arg;

	if (strcmp(k->section, w->section) != 0 || strcmp(k->name, w->name) != 0)
		return;
	w->found++;
	assert_string_equal(k->type, w->type);
	assert_string_equal(k->bounds, w->bounds);
	assert_string_equal(k->def ? k->def : "", w->def);
	assert_int_equal(k->restart, w->restart);
	assert_int_equal(k->computed, w->computed);
}

static void test_some(void **state)
{
	struct wanted rows[] = {
		{"qbouncer", "listen_port", "number", "1 to 65535", "6432", true, false, 0},
		{"qbouncer", "unix_socket_mode", "octal", "0 to 0777", "0777", true, false, 0},
		{"qbouncer", "pool_mode", "session, transaction, statement", "", "session", false,
			false, 0},
		{"qbouncer", "queue_wait_max", "time", "from 0", "1h", false, false, 0},
		{"qbouncer", "queue_max_payload", "size", "1 to 1073741824", "16MB", false, false,
			0},
		{"qbouncer", "queue_answer_max", "size", "0 to 1099511627776", "256MB", false,
			false, 0},
		{"qbouncer", "log_stats", "bool", "", "1", false, false, 0},
		{"qbouncer", "suspend_timeout", "time", "from 0", "10", false, false, 0},
		{"qbouncer", "conffile", "text", "", "", false, true, 0},
		{"databases", "port", "number", "1 to 65535", "", false, false, 0},
		{"databases", "auth_query", "text", "", "", false, false, 0},
		{"users", "query_timeout", "time", "from 0", "", false, false, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		conf_describe(each_compare, &rows[i]);
		assert_int_equal(rows[i].found, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_some),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
