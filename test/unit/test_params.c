/* Each row of the parameter table: its default, its limits, garbage, units. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <inttypes.h>

#include "base/mem.h"
#include "conf/conf.h"

enum kind { STR, INT, BOOL, TIME, SIZE, ENUM };

static const struct row {
	const char *name;
	enum kind kind;
	const char *def;
	int64_t min, max;
	unsigned flags;
	const char *check, *help;
} rows[] = {
#define PARAM_STR(n, def, min, max, flags, check, help)                                            \
	{#n, STR, def, min, max, flags, #check, help},
#define PARAM_INT(n, def, min, max, flags, check, help)                                            \
	{#n, INT, def, min, max, flags, #check, help},
#define PARAM_BOOL(n, def, flags, check, help) {#n, BOOL, def, 0, 1, flags, #check, help},
#define PARAM_TIME(n, def, min, max, flags, check, help)                                           \
	{#n, TIME, def, (int64_t)(min), max, flags, #check, help},
#define PARAM_SIZE(n, def, min, max, flags, check, help)                                           \
	{#n, SIZE, def, min, max, flags, #check, help},
#define PARAM_ENUM(n, type, def, flags, check, help) {#n, ENUM, def, 0, 0, flags, #check, help},
#include "conf/params.h"
};

/* One line in [qbouncer]; what the parameter then is. */
struct outcome {
	int errors, warnings;
	char value[9000];
	char report[2000];
	const char *name;
};

static void find_value(const char *name, const char *value, const char *def, bool reloadable,
	const char *help, void *arg)
{
	struct outcome *o = arg;

	(void)def;
	(void)reloadable;
	(void)help;
	if (!strcmp(name, o->name))
		util_strlcpy(o->value, value, sizeof(o->value));
}

static struct outcome try_value(const char *name, const char *value)
{
	static char text[20000];
	struct conf_report report = {0};
	struct outcome o = {.name = name};
	struct conf *c;
	int len = snprintf(text, sizeof(text), "[qbouncer]\n%s = %s\n", name, value);

	c = conf_load_text("test.ini", text, (size_t)len, &report);
	o.errors = report.errors;
	o.warnings = report.warnings;
	util_strlcpy(o.report, buf_cstr(&report.text), sizeof(o.report));
	assert_int_equal(c == NULL, report.errors > 0);
	if (c)
		conf_each_param(&c->p, find_value, &o);
	conf_free(&c);
	buf_free(&report.text);
	return o;
}

static void number(const struct row *r, int64_t n, char text[64])
{
	if (r->kind == TIME)
		snprintf(text, 64, "%" PRId64 "us", n);
	else
		snprintf(text, 64, r->flags & PARAM_OCTAL ? "%" PRIo64 : "%" PRId64, n);
}

static void test_rows_are_sound(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];
		size_t len = strlen(r->help);

		assert_true(len > 3 && r->help[len - 1] == '.');
		assert_null(strchr(r->help, '\n'));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(rows[k].name, r->name);
	}
}

static void test_defaults(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct outcome o;

		if (rows[i].flags & PARAM_COMPUTED)
			continue;
		o = try_value(rows[i].name, rows[i].def);
		if (o.errors || o.warnings)
			fail_msg("default of %s: %s", rows[i].name, o.report);
	}
}

static void assert_refused(const struct row *r, const char *value)
{
	struct outcome o = try_value(r->name, value);
	char start[128];

	if (o.errors != 1)
		fail_msg("%s = %.60s was accepted", r->name, value);
	snprintf(start, sizeof(start), "test.ini:2: error: \"%s\"", r->name);
	if (strncmp(o.report, start, strlen(start)) != 0)
		fail_msg("%s = %.60s: %s", r->name, value, o.report);
}

static void assert_accepted(const struct row *r, const char *value)
{
	struct outcome o = try_value(r->name, value);

	if (o.errors)
		fail_msg("%s = %.60s: %s", r->name, value, o.report);
	if (o.warnings)
		fail_msg("%s = %.60s: %s", r->name, value, o.report);
}

static void test_limits(void **state)
{
	char text[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];

		if (r->kind != INT && r->kind != TIME && r->kind != SIZE)
			continue;
		/* A default wait longer than the longest wait is another error. */
		number(r, strcmp(r->name, "queue_wait_default") ? r->max : 3600 * (int64_t)USEC_SEC,
			text);
		assert_accepted(r, text);
		number(r, r->min, text);
		assert_accepted(r, text);
		number(r, r->max + 1, text);
		assert_refused(r, text);
		if (!(r->flags & PARAM_OCTAL))
			number(r, r->min - 1, text);
		else
			strcpy(text, "-1");
		assert_refused(r, text);
	}
}

static void test_garbage(void **state)
{
	static const char *const garbage[] = {"", "x", "1x", "--1", "1 2", "0x10", "nan", "1e3",
		".", "-", "99999999999999999999", "9223372036854775807h", "9223372036854775807GB",
		"1 1s", "s", "\xc3\xa9", "1;", "'1'"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].kind == STR)
			continue;
		for (size_t g = 0; g < ARRAY_LEN(garbage); g++)
			assert_refused(&rows[i], garbage[g]);
	}
}

static void test_lengths(void **state)
{
	static char text[10000];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];
		struct outcome o;

		if (r->kind != STR || (r->flags & PARAM_COMPUTED))
			continue;
		memset(text, 'x', sizeof(text));
		text[r->max + 1] = '\0';
		assert_refused(r, text);
		if (strcmp(r->check, "NULL") != 0)
			continue;
		text[r->max] = '\0';
		assert_accepted(r, text);
		o = try_value(r->name, text);
		assert_string_equal(o.value, r->flags & PARAM_SECRET ? "***" : text);
	}
}

static void test_values(void **state)
{
	static const struct {
		const char *name, *value, *shown; /* NULL: refused */
	} cases[] = {
		{"log_connections", "on", "1"},
		{"log_connections", "OFF", "0"},
		{"log_connections", "yes", "1"},
		{"log_connections", "no", "0"},
		{"log_connections", "True", "1"},
		{"log_connections", "false", "0"},
		{"log_connections", "2", NULL},
		{"server_lifetime", "1.5", "1.5"},
		{"server_lifetime", ".25", "0.25"},
		{"server_lifetime", "0.0000001", "0"},
		{"server_lifetime", "1us", "0.000001"},
		{"server_lifetime", "1500ms", "1.5"},
		{"server_lifetime", "30s", "30"},
		{"server_lifetime", "5min", "300"},
		{"server_lifetime", "5 min", "300"},
		{"server_lifetime", "1.5h", "5400"},
		{"server_lifetime", "7d", "604800"},
		{"server_lifetime", "5 MIN", NULL},
		{"server_lifetime", "5m", NULL},
		{"server_lifetime", "5MB", NULL},
		{"server_lifetime", "-0.5", NULL},
		{"queue_max_payload", "4096", "4096"},
		{"queue_max_payload", "4096B", "4096"},
		{"queue_max_payload", "64kB", "65536"},
		{"queue_max_payload", "64 KB", "65536"},
		{"queue_max_payload", "1GB", "1073741824"},
		{"queue_max_payload", "1.5MB", NULL},
		{"queue_max_payload", "1TB", NULL},
		{"queue_max_payload", "30s", NULL},
		{"queue_answer_max", "0", "0"},
		{"queue_answer_max", "256MB", "268435456"},
		{"queue_answer_max", "1024GB", "1099511627776"},
		{"queue_answer_max", "1025GB", NULL},
		{"queue_answer_max", "-1", NULL},
		{"queue_answers_max", "0", "0"},
		{"queue_answers_max", "1GB", "1073741824"},
		{"queue_answers_max", "1025GB", NULL},
		{"unix_socket_mode", "0700", "0700"},
		{"unix_socket_mode", "770", "0770"},
		{"unix_socket_mode", "0", "0"},
		{"unix_socket_mode", "0o700", NULL},
		{"unix_socket_mode", "8", NULL},
		{"pool_mode", "transaction", "transaction"},
		{"pool_mode", "TRANSACTION", "transaction"},
		{"auth_type", "scram-sha-256", "scram-sha-256"},
		{"auth_type", "hba", NULL},
		{"auth_type", "cert", "cert"},
		{"auth_type", "peer", NULL},
		{"client_tls_sslmode", "prefer", "prefer"},
		{"client_tls_sslmode", "require", "require"},
		{"client_tls_sslmode", "verify-full", "verify-full"},
		{"client_tls_sslmode", "yes", NULL},
		{"client_tls_dheparams", "legacy", "legacy"},
		{"client_tls_dheparams", "1024", NULL},
		{"server_tls_sslmode", "disable", "disable"},
		{"server_tls_sslmode", "verify-ca", "verify-ca"},
		{"server_tls_negotiation", "direct", "direct"},
		{"server_tls_negotiation", "now", NULL},
		{"syslog_facility", "local3", "local3"},
		{"syslog_facility", "nowhere", NULL},
		{"queue_wait_default", "2h", NULL}, /* beyond queue_wait_max */
		{"queue_password", "secret", "***"},
		{"queue_password", "", ""},
		{"server_reset_query", "  SELECT 'a''b' ; -- x  ", "SELECT 'a''b' ; -- x"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct outcome o = try_value(cases[i].name, cases[i].value);

		if (!cases[i].shown != (o.errors > 0))
			fail_msg("%s = %s: %s", cases[i].name, cases[i].value, o.report);
		if (cases[i].shown && strcmp(cases[i].shown, o.value) != 0)
			fail_msg("%s = %s is shown as %s", cases[i].name, cases[i].value, o.value);
	}
}

static void test_secrets_stay_out_of_messages(void **state)
{
	static char secret[6000];
	struct outcome o;

	(void)state;
	memset(secret, 'S', sizeof(secret) - 1);
	o = try_value("queue_password", secret);
	assert_int_equal(o.errors, 1);
	assert_null(strstr(o.report, "SSSS"));
}

static void test_unknown(void **state)
{
	static const struct {
		const char *name, *hint;
	} cases[] = {
		{"pool_mod", "pool_mode"},
		{"default_poolsize", "default_pool_size"},
		{"Listen_Port", "listen_port"},
		{"max_client_con", "max_client_conn"},
		{"server_idle_timeuot", "server_idle_timeout"},
		{"colour_of_the_shed", NULL},
		{"x", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct outcome o = try_value(cases[i].name, "1");
		char want[200];

		if (cases[i].hint)
			snprintf(want, sizeof(want),
				"test.ini:2: error: unknown parameter \"%s\"; did you mean \"%s\"?\n",
				cases[i].name, cases[i].hint);
		else
			snprintf(want, sizeof(want),
				"test.ini:2: error: unknown parameter \"%s\"\n", cases[i].name);
		assert_string_equal(o.report, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_are_sound),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_secrets_stay_out_of_messages),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
