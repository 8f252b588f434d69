/* The ini reader: sections, comments, quoting, %include, files that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "conf/conf.h"

static char dir[64];

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test_ini.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static const char *path_of(const char *name)
{
	static char path[4][160];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static void write_file(const char *name, const void *text, size_t len)
{
	FILE *f = fopen(path_of(name), "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text)
{
	write_file(name, text, strlen(text));
}

/* Loads text; the report must be exactly that. */
static struct conf *load(const char *text, size_t len, const char *want)
{
	struct conf_report report = {0};
	struct conf *c = conf_load_text("t", text, len, &report);

	assert_string_equal(buf_cstr(&report.text), want);
	assert_int_equal(c == NULL, report.errors > 0);
	buf_free(&report.text);
	return c;
}

static void expect(const char *text, const char *want)
{
	struct conf *c = load(text, strlen(text), want);

	conf_free(&c);
}

static void test_layout_of_lines(void **state)
{
	static const char *const texts[] = {
		"[qbouncer]\nlisten_port=1234\nadmin_users=a b",
		"\xef\xbb\xbf[qbouncer]\nlisten_port=1234\nadmin_users=a b\n",
		"[pgbouncer]\r\nlisten_port = 1234\r\nadmin_users = a b\r\n",
		"  [qbouncer]  \n\t listen_port\t=\t1234 \t\n\n\n  admin_users  =  a b  \n",
		"; c\n# c\n  ; c\n[qbouncer]\n;listen_port=1\n#listen_port=1\nlisten_port=1234\n"
		"admin_users=a b\n",
		"[pgbouncer]\nlisten_port=1\n[databases]\n[users]\n[qbouncer]\nlisten_port=1234\n"
		"admin_users=a b",
		"[qbouncer]\n\"listen_port\" = 1234\nadmin_users=a b",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct conf *c = load(texts[i], strlen(texts[i]), "");

		assert_int_equal(c->p.listen_port, 1234);
		assert_string_equal(c->p.admin_users, "a b");
		conf_free(&c);
	}
}

static void test_values_are_taken_whole(void **state)
{
	struct conf *c;
	const char *text = "[qbouncer]\nserver_reset_query = SELECT 'it''s'; # not = a comment\n"
			   "admin_users =\n";

	(void)state;
	c = load(text, strlen(text), "");
	assert_string_equal(c->p.server_reset_query, "SELECT 'it''s'; # not = a comment");
	assert_string_equal(c->p.admin_users, "");
	conf_free(&c);
}

static void test_mistakes_have_lines(void **state)
{
	(void)state;
	expect("\n\nlisten_port = 1\n",
		"t:3: error: \"listen_port\" stands before the first [section]\n");
	expect("[nonsense]\na = b\nc = d\n[users]\n", "t:1: error: unknown section [nonsense]\n");
	expect("[qbouncer\n", "t:1: error: a section is written [name]\n");
	expect("[qbouncer] x\n", "t:1: error: a section is written [name]\n");
	expect("[qbouncer]\nlisten_port\n", "t:2: error: expected key = value\n");
	expect("[qbouncer]\n= 1\n", "t:2: error: expected key = value\n");
	expect("[qbouncer]\n\"listen_port = 1\n", "t:2: error: expected key = value\n");
	expect("[qbouncer]\nlisten port = 1\n", "t:2: error: expected key = value\n");
	expect("[qbouncer]\n%include x\n%included\n",
		"t:2: error: %include is not possible here\n"
		"t:3: error: unknown directive, only %include is known\n");
	expect("[qbouncer]\nlisten_port = 0\npool_mode = x\n",
		"t:2: error: \"listen_port\": 0 is out of bounds, it must be between 1 and 65535\n"
		"t:3: error: \"pool_mode\": \"x\" is not one of session, transaction, statement\n");
	expect("[peers]\n1 = port=5\n", "t:2: error: the entry of peer \"1\" has no host\n");
}

static void test_nul_and_long_lines(void **state)
{
	static char text[70000];
	struct conf *c;

	(void)state;
	c = load("[qbouncer]\nuser = a\0b\n", 22, "t:2: error: the line contains a NUL byte\n");
	assert_null(c);
	memset(text, ' ', sizeof(text));
	memcpy(text, "[qbouncer]\n;", 12);
	c = load(text, 11 + 65536, "");
	conf_free(&c);
	c = load(text, 11 + 65537, "t:2: error: the line is longer than 65536 bytes\n");
	assert_null(c);
}

static void test_database_quoting(void **state)
{
	static const struct {
		const char *line, *name, *dbname, *password, *query;
	} cases[] = {
		{"app = dbname=x", "app", "x", NULL, NULL},
		{"app=", "app", NULL, NULL, NULL},
		{"app =  dbname = x   password\t=\ty ", "app", "x", "y", NULL},
		{"app = password='it''s' dbname='a b'", "app", "a b", "it's", NULL},
		{"app = connect_query='set work_mem to ''64MB'''", "app", NULL, NULL,
			"set work_mem to '64MB'"},
		{"app = password='' dbname=", "app", "", "", NULL},
		{"app = password=a'b dbname=x=y", "app", "x=y", "a'b", NULL},
		{"\"my \"\"db\"\"\" = dbname=x", "my \"db\"", "x", NULL, NULL},
		{"a.b-c_1 = dbname=x", "a.b-c_1", "x", NULL, NULL},
		{"caf\xc3\xa9 = dbname=x", "caf\xc3\xa9", "x", NULL, NULL},
		{"* = dbname=x", "*", "x", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[256];
		struct conf *c;
		const struct conf_database *d;

		snprintf(text, sizeof(text), "[databases]\n%s\n", cases[i].line);
		c = load(text, strlen(text), "");
		d = c->databases;
		assert_non_null(d);
		assert_null(d->next);
		assert_string_equal(d->name, cases[i].name);
		assert_int_equal(!d->dbname, !cases[i].dbname);
		assert_string_equal(
			d->dbname ? d->dbname : "", cases[i].dbname ? cases[i].dbname : "");
		assert_int_equal(!d->password, !cases[i].password);
		assert_string_equal(
			d->password ? d->password : "", cases[i].password ? cases[i].password : "");
		assert_string_equal(d->connect_query ? d->connect_query : "",
			cases[i].query ? cases[i].query : "");
		conf_free(&c);
	}
}

static void test_database_mistakes(void **state)
{
	static const char *const bad[] = {"host", "host=a port", "= x", "host='a", "host='a'b",
		"host='a''", "'host'=a", "host=a 'b'"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char text[128];

		snprintf(text, sizeof(text), "[databases]\napp = %s\n", bad[i]);
		expect(text,
			"t:2: error: the entry of database \"app\" is not a list of key=value or "
			"key='value'\n");
	}
}

static void test_include(void **state)
{
	struct conf_report report = {0};
	struct conf *c;

	(void)state;
	assert_int_equal(mkdir(path_of("sub"), 0700), 0);
	write_text("main.ini", "[databases]\n%include sub/dbs.ini\nlast = host=c\n"
			       "[qbouncer]\n%include   sub/more.ini  \nlisten_port = 7\n");
	write_text(
		"sub/dbs.ini", "first = host=a\n%include deeper.ini\n[users]\nu = pool_size=1\n");
	write_text("sub/deeper.ini", "second = host=b\n");
	write_text("sub/more.ini", "listen_port = 6\ndefault_pool_size = 3\n");
	c = conf_load(path_of("main.ini"), &report);
	assert_string_equal(buf_cstr(&report.text), "");
	assert_non_null(c);
	assert_string_equal(c->databases->name, "first");
	assert_string_equal(c->databases->next->name, "second");
	assert_string_equal(c->databases->next->next->name, "last");
	assert_string_equal(c->users->name, "u");
	assert_int_equal(c->p.listen_port, 7);
	assert_int_equal(c->p.default_pool_size, 3);
	assert_string_equal(c->p.conffile, path_of("main.ini"));
	conf_free(&c);

	/* A mistake is reported where it stands. */
	write_text("sub/deeper.ini", "\nsecond = nonsense=b\n");
	assert_null(conf_load(path_of("main.ini"), &report));
	assert_non_null(strstr(buf_cstr(&report.text), "/sub/deeper.ini:2: error: unknown key"));
	buf_free(&report.text);
}

/* Each allocation on the way through files fails once: an error and nothing lost. */
static void test_memory_runs_out(void **state)
{
	struct conf *c = NULL;

	(void)state;
	write_text("outer.ini", "[databases]\n%include inner.ini\nb = host=x\n");
	write_text("inner.ini", "a = host=y password='z'\n[users]\nu = pool_size=1\n");
	for (unsigned long n = 1; !c; n++) {
		struct conf_report report = {0};

		mem_fail_after(n);
		c = conf_load(path_of("outer.ini"), &report);
		mem_fail_after(0);
		assert_int_equal(c == NULL, report.errors > 0);
		buf_free(&report.text);
		assert_true(n < 10000);
	}
	assert_string_equal(c->databases->next->name, "b");
	conf_free(&c);
}

static void assert_unreadable(const char *path, const char *want)
{
	struct conf_report report = {0};

	assert_null(conf_load(path, &report));
	assert_true(report.errors > 0);
	if (!strstr(buf_cstr(&report.text), want))
		fail_msg("%s: %s", path, buf_cstr(&report.text));
	buf_free(&report.text);
}

static void test_unreadable_files(void **state)
{
	(void)state;
	assert_unreadable(path_of("missing"), "/missing: error: could not read: No such file");
	assert_unreadable(dir, "error: could not read: is a directory");
	assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
	assert_unreadable(path_of("fifo"), "is not a regular file");
	assert_unreadable("/dev/zero", "is not a regular file");
	write_text("gone.ini", "\n%include missing\n");
	assert_unreadable(path_of("gone.ini"), "/gone.ini:2: error: could not include \"");
	write_text("none.ini", "%include\n");
	assert_unreadable(path_of("none.ini"), "%include needs the name of a file");
	write_text("loop.ini", "%include loop.ini\n");
	assert_unreadable(path_of("loop.ini"), "too many files are included");
	write_text("wide.ini", "%include wide.ini\n%include wide.ini\n%include wide.ini\n");
	assert_unreadable(path_of("wide.ini"), "too many files are included");
	write_file("nul.ini", "[qbouncer]\n\0\n", 13);
	assert_unreadable(path_of("nul.ini"), "/nul.ini:2: error: the line contains a NUL byte");
}

static void test_empty_file(void **state)
{
	struct conf_report report = {0};
	struct conf *c;

	(void)state;
	write_text("empty.ini", "");
	c = conf_load(path_of("empty.ini"), &report);
	assert_non_null(c);
	assert_int_equal(c->p.listen_port, 6432);
	assert_int_equal(report.errors + report.warnings, 0);
	conf_free(&c);
	buf_free(&report.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout_of_lines),
		cmocka_unit_test(test_values_are_taken_whole),
		cmocka_unit_test(test_mistakes_have_lines),
		cmocka_unit_test(test_nul_and_long_lines),
		cmocka_unit_test(test_database_quoting),
		cmocka_unit_test(test_database_mistakes),
		cmocka_unit_test(test_include),
		cmocka_unit_test(test_memory_runs_out),
		cmocka_unit_test(test_unreadable_files),
		cmocka_unit_test(test_empty_file),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
