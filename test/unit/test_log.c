/* The log: form of a line, escaping, levels, reopening, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"

static char dir[64], file[96], moved[96];

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test_log.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/log", dir);
	snprintf(moved, sizeof(moved), "%s/log.1", dir);
	return log_open(&(struct log_target){.file = file}) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	log_close();
	unlink(file);
	unlink(moved);
	return rmdir(dir);
}

/* In the place of those of libc (syslog.h is not included: with FORTIFY they are inline there). The
 * last line is kept. */
void openlog(const char *ident, int option, int facility);
void closelog(void);
void syslog(int priority, const char *fmt, ...) PRINTF_LIKE(2, 3);
void __syslog_chk(int priority, int flag, const char *fmt, ...) PRINTF_LIKE(3, 4);

static struct {
	bool is_open;
	char ident[32], line[200];
	int option, facility, priority, n_lines;
} sys;

void openlog(const char *ident, int option, int facility)
{
	sys.is_open = true;
	snprintf(sys.ident, sizeof(sys.ident), "%s", ident);
	sys.option = option;
	sys.facility = facility;
}

void closelog(void)
{
	sys.is_open = false;
}

static void PRINTF_LIKE(2, 0) sys_keep(int priority, const char *fmt, va_list ap)
{
	sys.n_lines++;
	sys.priority = priority;
	vsnprintf(sys.line, sizeof(sys.line), fmt, ap);
}

void syslog(int priority, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	sys_keep(priority, fmt, ap);
	va_end(ap);
}

void __syslog_chk(int priority, int flag, const char *fmt, ...)
{
	va_list ap;

	(void)flag;
	va_start(ap, fmt);
	sys_keep(priority, fmt, ap);
	va_end(ap);
}

/* The whole file. */
static const char *content(const char *name)
{
	static char text[64 * 1024];
	FILE *f = fopen(name, "r");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static void assert_ends(const char *text, const char *end)
{
	assert_true(strlen(text) >= strlen(end));
	assert_string_equal(text + strlen(text) - strlen(end), end);
}

static void test_form(void **state)
{
	int y, mo, d, h, mi, s, ms, pid, end = 0;
	char zone[16], level[16];

	(void)state;
	log_info("hello %d", 7);
	assert_int_equal(
		sscanf(content(file), "%4d-%2d-%2d %2d:%2d:%2d.%3d %15s [%d] %15s hello 7\n%n", &y,
			&mo, &d, &h, &mi, &s, &ms, zone, &pid, level, &end),
		10);
	assert_int_equal(pid, getpid());
	assert_string_equal(level, "LOG");
	assert_int_equal(end, strlen(content(file)));
	log_write(LOG_LVL_WARNING, "C-0x1: db/user@host:1", "closing because: %s", "x");
	assert_ends(content(file), "] WARNING C-0x1: db/user@host:1 closing because: x\n");
	log_write(LOG_LVL_FATAL, "", "dead");
	assert_ends(content(file), "] FATAL dead\n");
}

static void test_escapes(void **state)
{
	(void)state;
	log_error("a\nb\tc\x01\x7f\x1b[31m d\xc3\xa9");
	assert_ends(content(file), "] ERROR a\\x0Ab\\x09c\\x01\\x7F\\x1B[31m d\xc3\xa9\n");
	log_write(LOG_LVL_ERROR, "pre\nfix", "x");
	assert_ends(content(file), "] ERROR pre\\x0Afix x\n");
}

static void test_json(void **state)
{
	static char wide[20000];
	const char *text;

	(void)state;
	assert_true(log_open(&(struct log_target){.file = file, .json = true}));
	log_write(LOG_LVL_WARNING, "C-1: \"a\\b\"", "new\nline \x7f caf\xc3\xa9 \xf0\x9f\x98\x80");
	assert_ends(content(file),
		"\"level\":\"WARNING\",\"object\":\"C-1: \\\"a\\\\b\\\"\","
		"\"message\":\"new\\u000aline \\u007f caf\xc3\xa9 \xf0\x9f\x98\x80\"}\n");
	/* not UTF-8: cut, over-long, a surrogate, too large, a stray continuation */
	log_info("\xc3|\xc0\xaf|\xe0\x80\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\x80|\xf0\x9f");
	text = strstr(content(file), "\xef\xbf\xbd|");
	assert_non_null(text);
	for (; *text != '\0'; text += util_utf8_len(text))
		assert_true(util_utf8_len(text) > 0);
	memset(wide, '"', sizeof(wide) - 1);
	log_write(LOG_LVL_INFO, wide, "%s", wide);
	assert_ends(content(file), "\"}\n");
	assert_true(log_open(&(struct log_target){.file = file}));
}

static void test_long_lines(void **state)
{
	static char wide[20000];
	size_t before = strlen(content(file));
	const char *text;

	(void)state;
	memset(wide, 'w', sizeof(wide) - 1);
	log_info("%s", wide);
	assert_ends(content(file), "www...\n");
	before = strlen(content(file));
	memset(wide, '\n', sizeof(wide) - 1);
	log_write(LOG_LVL_INFO, wide, "%s", wide);
	text = content(file);
	assert_ends(text, "...\n");
	assert_true(strlen(text) - before <= 8192);
	assert_int_equal(strchr(text + before, '\n') - text, strlen(text) - 1);
}

static void test_levels(void **state)
{
	size_t before = strlen(content(file));

	(void)state;
	assert_true(log_enabled(LOG_LVL_INFO));
	assert_false(log_enabled(LOG_LVL_DEBUG));
	log_debug("hidden");
	log_write(LOG_LVL_NOISE, NULL, "hidden");
	assert_int_equal(strlen(content(file)), before);
	assert_true(log_open(&(struct log_target){.file = file, .verbose = 1}));
	assert_true(log_enabled(LOG_LVL_DEBUG));
	assert_false(log_enabled(LOG_LVL_NOISE));
	log_debug("seen");
	assert_ends(content(file), "] DEBUG seen\n");
}

static void test_reopen(void **state)
{
	(void)state;
	log_info("old");
	assert_int_equal(rename(file, moved), 0);
	log_info("still old");
	assert_ends(content(moved), "still old\n");
	log_reopen();
	log_info("new");
	assert_ends(content(file), "new\n");
	assert_ends(content(moved), "still old\n");
}

static void test_open_fails(void **state)
{
	(void)state;
	assert_false(log_open(&(struct log_target){.file = "/nonexistent/dir/log"}));
	log_info("the old one stays");
	assert_ends(content(file), "the old one stays\n");
	for (int n = 1; n <= 2; n++) {
		mem_fail_after((unsigned long)n);
		assert_false(log_open(&(struct log_target){
			.file = file, .syslog_ident = "x", .to_stderr = false}));
	}
	mem_fail_after(0);
	log_info("and again");
	assert_ends(content(file), "and again\n");
}

static void test_syslog(void **state)
{
	enum { PID = 1, DAEMON = 3 << 3, LOCAL3 = 19 << 3, ERR = 3, WARNING = 4, INFO = 6 };
	struct log_target t = {.file = file, .to_syslog = true};

	(void)state;
	log_info("not there");
	assert_int_equal(sys.n_lines, 0);
	assert_true(log_open(&t));
	assert_true(sys.is_open);
	assert_string_equal(sys.ident, "qbouncer");
	assert_int_equal(sys.option, PID);
	assert_int_equal(sys.facility, DAEMON);
	log_write(LOG_LVL_ERROR, "C-1:", "100%%d %s", "a\nb%s");
	assert_int_equal(sys.priority, ERR);
	assert_string_equal(
		sys.line, "C-1: 100%d a\\x0Ab%s"); /* time, pid and level are syslog's own */
	assert_ends(content(file), "C-1: 100%d a\\x0Ab%s\n");
	log_warning("w");
	assert_int_equal(sys.priority, WARNING);
	log_debug("too much");
	assert_int_equal(sys.n_lines, 2);
	t = (struct log_target){.file = file,
		.to_syslog = true,
		.json = true,
		.syslog_ident = "pool",
		.syslog_facility = "local3"};
	assert_true(log_open(&t));
	assert_string_equal(sys.ident, "pool");
	assert_int_equal(sys.facility, LOCAL3);
	log_info("plain \"words\"");
	assert_int_equal(sys.priority, INFO);
	assert_string_equal(sys.line, "plain \"words\"");
	assert_true(log_open(&(struct log_target){.file = file}));
	assert_false(sys.is_open);
	log_info("no more");
	assert_int_equal(sys.n_lines, 3);
}

static void test_facilities(void **state)
{
	(void)state;
	assert_true(log_facility_known("daemon"));
	assert_true(log_facility_known("LOCAL7"));
	assert_false(log_facility_known("local8"));
	assert_false(log_facility_known(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_form),
		cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_long_lines),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_reopen),
		cmocka_unit_test(test_open_fails),
		cmocka_unit_test(test_syslog),
		cmocka_unit_test(test_facilities),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
