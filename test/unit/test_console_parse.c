/*
 * Console commands from text, by the tables: every row, in every spelling; what is refused; any cut
 * of a good text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "../../src/admin/admin_int.h"

static bool parse(const char *sql, struct command *cmd, struct pg_error *err)
{
	return console_parse(sql, strlen(sql), true, cmd, err);
}

static const struct {
	const char *sql;
	enum console_command id;
	const char *name, *value;
} good[] = {
	{"RELOAD", CMD_RELOAD, "", NULL},
	{"reload ;", CMD_RELOAD, "", NULL},
	{" ;; /* a /* b */ */ Reload -- c\n ; ", CMD_RELOAD, "", NULL},
	{"PAUSE", CMD_PAUSE, "", NULL},
	{"PAUSE;", CMD_PAUSE, "", NULL},
	{"PAUSE Db", CMD_PAUSE, "Db", NULL},
	{"PAUSE my-db.x;", CMD_PAUSE, "my-db.x", NULL},
	{"PAUSE 12ab", CMD_PAUSE, "12ab", NULL},
	{"PAUSE \"My \"\"Db\"\";\"", CMD_PAUSE, "My \"Db\";", NULL},
	{"RESUME x", CMD_RESUME, "x", NULL},
	{"DISABLE x", CMD_DISABLE, "x", NULL},
	{"ENABLE x", CMD_ENABLE, "x", NULL},
	{"RECONNECT x", CMD_RECONNECT, "x", NULL},
	{"WAIT_CLOSE", CMD_WAIT_CLOSE, "", NULL},
	{"KILL x", CMD_KILL, "x", NULL},
	{"INSTALL x", CMD_INSTALL, "x", NULL},
	{"SUSPEND;", CMD_SUSPEND, "", NULL},
	{"SET verbose = '2'", CMD_SET, "verbose", "2"},
	{"SET VERBOSE TO 2;", CMD_SET, "verbose", "2"},
	{"SET a='it''s'", CMD_SET, "a", "it's"},
	{"SET a = E'x\\ty'", CMD_SET, "a", "x\ty"},
	{"SET a = ''", CMD_SET, "a", ""},
	{"SET a = 30s", CMD_SET, "a", "30s"},
	{"SET a = 5 min ;", CMD_SET, "a", "5 min"},
	{"SET a = -1", CMD_SET, "a", "-1"},
	{"SET a =-1", CMD_SET, "a", "-1"},
	{"SET \"a b\" = c", CMD_SET, "a b", "c"},
	{"select 1;", CMD_PROBE, "", NULL},
	{"SET  extra_float_digits = 3", CMD_PROBE, "", NULL},
	{"set session Application_Name to 'x'", CMD_PROBE, "", NULL},
	{"SHOW timezone", CMD_PROBE, "", NULL},
	{"BEGIN WORK", CMD_PROBE, "", NULL},
};

static void test_good(void **state)
{
	struct command cmd;
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		if (!parse(good[i].sql, &cmd, &err))
			fail_msg("%s: %s", good[i].sql, err.message);
		assert_int_equal(cmd.id, good[i].id);
		assert_string_equal(cmd.name, good[i].name);
		if (good[i].value != NULL)
			assert_string_equal(cmd.value, good[i].value);
		else
			assert_null(cmd.value);
		console_command_clear(&cmd);
	}
}

static void test_shows(void **state)
{
	static const char *const forms[] = {
		"SHOW %s", "show \"%s\";", "SELECT %s", "ShOw\t%s -- x"};
	struct command cmd;
	struct pg_error err;
	char sql[128];

	(void)state;
	for (size_t i = 0; i < SHOW_COUNT; i++)
		for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
			snprintf(sql, sizeof(sql), forms[f], shows[i].name);
			if (!parse(sql, &cmd, &err))
				fail_msg("%s: %s", sql, err.message);
			assert_int_equal(cmd.id, CMD_SHOW);
			assert_int_equal(cmd.show, i);
			console_command_clear(&cmd);
		}
}

static const struct {
	const char *sql;
	enum pooler_shutdown how;
	uint64_t number;
} numbers[] = {
	{"SHUTDOWN", SHUTDOWN_NOW, 0},
	{"SHUTDOWN WAIT_FOR_SERVERS;", SHUTDOWN_WAIT_SERVERS, 0},
	{"shutdown wait_for_clients", SHUTDOWN_WAIT_CLIENTS, 0},
	{"KILL_CLIENT 12", SHUTDOWN_NONE, 12},
	{"KILL_CLIENT 0x1F;", SHUTDOWN_NONE, 31},
};

static void test_numbers(void **state)
{
	struct command cmd;
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		assert_true(parse(numbers[i].sql, &cmd, &err));
		assert_int_equal(cmd.how, numbers[i].how);
		assert_int_equal(cmd.number, numbers[i].number);
		console_command_clear(&cmd);
	}
}

static const char *const bad[] = {"", ";", "nonsense", "SHOW", "SHOW;", "SHOW nosuch",
	"SHOW pools x", "SHOW 'pools'", "SELECT * FROM x", "RELOAD x", "RELOAD; RELOAD",
	"PAUSE a b", "PAUSE 'a'", "PAUSE \"\"", "PAUSE \"a", "DISABLE", "DISABLE ;", "ENABLE",
	"INSTALL", "SUSPEND x", "KILL_CLIENT", "KILL_CLIENT x", "KILL_CLIENT 1.5",
	"KILL_CLIENT 99999999999999999999", "KILL_CLIENT 0xg", "SHUTDOWN soon",
	"SHUTDOWN WAIT_FOR_CLIENTS x", "SET", "SET a", "SET a =", "SET a = ;", "SET a = 'x' y",
	"SET a = 'x", "SET a b", "SET = b", "SET a = 'x'; RELOAD", "'", "\"pause\"", "$1",
	"PAUSE $1 x", "/* open",
	("PAUSE \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
	 "123456789012345678901234567890123456789\"")};

static void test_bad(void **state)
{
	struct command cmd;
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (parse(bad[i], &cmd, &err))
			fail_msg("taken: %s", bad[i]);
		assert_string_equal(err.sqlstate, "08P01");
		assert_true(err.hint[0] != '\0');
		assert_null(cmd.value);
	}
}

/* A long text is cut in the message, between characters. */
static void test_long(void **state)
{
	char sql[2000];
	struct command cmd;
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i + 1 < sizeof(sql); i += 2)
		memcpy(sql + i, "\xc3\xa4", 2);
	sql[sizeof(sql) - 2] = '\0';
	assert_false(parse(sql, &cmd, &err));
	assert_true(strlen(err.message) < 120);
}

/* Whatever a text is cut to, it is read without a fault; the bytes are exactly those given. */
static void test_cuts(void **state)
{
	struct command cmd;
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		for (size_t n = 0; n <= strlen(good[i].sql); n++) {
			char *text = mem_dup(good[i].sql, n);

			assert_non_null(text);
			if (console_parse(text, n, true, &cmd, &err))
				console_command_clear(&cmd);
			mem_free(text);
		}
}

static void test_no_memory(void **state)
{
	struct command cmd;
	struct pg_error err;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		for (unsigned long n = 1; n <= 4; n++) {
			mem_fail_after(n);
			if (parse(good[i].sql, &cmd, &err))
				console_command_clear(&cmd);
			mem_fail_after(0);
		}
}

/* Nobody but an admin may run what the row does not open. */
static void test_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < CMD_PROBE; i++) {
		const struct console_command_row *row = &console_commands[i];

		assert_true(row->help[strlen(row->help) - 1] == '.');
		assert_memory_equal(row->usage, row->name, strlen(row->name));
		assert_int_equal(row->who, i == CMD_SHOW ? WHO_STATS : WHO_ADMIN);
	}
	for (size_t i = 0; i < SHOW_COUNT; i++)
		assert_int_equal(shows[i].who, i == SHOW_FDS ? WHO_ADMIN : WHO_STATS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_shows),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
