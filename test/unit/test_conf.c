/* Loading whole configurations, installing, SET, look-ups, memory running out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "conf/conf.h"

static const char full[] =
	"[databases]\n"
	"app = host=10.0.0.1 port=5433 dbname=real user=u password=p pool_size=7 "
	"min_pool_size=1 reserve_pool=2 pool_mode=transaction max_db_connections=9 "
	"max_db_client_connections=90 server_lifetime=1h query_wait_timeout=3 "
	"connect_query='select 1' client_encoding=UTF8 datestyle=ISO timezone=UTC "
	"application_name=x queue=1 queue_user=q queue_password=qp\n"
	"plain =\n"
	"* = host=fallback\n"
	"[users]\n"
	"alice = pool_mode=statement pool_size=3 reserve_pool_size=1 "
	"max_user_connections=4 max_user_client_connections=5 query_timeout=1 "
	"query_wait_timeout=2 idle_transaction_timeout=3 transaction_timeout=4 "
	"client_idle_timeout=5\n"
	"bob =\n"
	"[qbouncer]\n"
	"listen_port = 7000\n"
	"auth_type = scram-sha-256\n"
	"admin_users = root, alice\n"
	"default_pool_size = 11\n"
	"queue_password = hush\n";

static struct conf *load(const char *text, struct conf_report *report)
{
	return conf_load_text("t", text, strlen(text), report);
}

static struct conf *load_good(const char *text)
{
	struct conf_report report = {0};
	struct conf *c = load(text, &report);

	assert_non_null(c);
	assert_string_equal(buf_cstr(&report.text), "");
	buf_free(&report.text);
	return c;
}

static void expect(const char *text, const char *want)
{
	struct conf_report report = {0};
	struct conf *c = load(text, &report);

	assert_string_equal(buf_cstr(&report.text), want);
	assert_int_equal(c == NULL, report.errors > 0);
	conf_free(&c);
	buf_free(&report.text);
}

static void test_full(void **state)
{
	struct conf *c = load_good(full);
	const struct conf_database *d = conf_find_database(c, "app");
	const struct conf_user *u = conf_find_user(c, "alice");

	(void)state;
	assert_string_equal(d->host, "10.0.0.1");
	assert_int_equal(d->port, 5433);
	assert_string_equal(d->dbname, "real");
	assert_string_equal(d->user, "u");
	assert_string_equal(d->password, "p");
	assert_int_equal(d->pool_size, 7);
	assert_int_equal(d->min_pool_size, 1);
	assert_int_equal(d->reserve_pool_size, 2);
	assert_int_equal(d->pool_mode, POOL_MODE_TRANSACTION);
	assert_int_equal(d->max_db_connections, 9);
	assert_int_equal(d->max_db_client_connections, 90);
	assert_true(d->server_lifetime == 3600 * USEC_SEC);
	assert_true(d->query_wait_timeout == 3 * USEC_SEC);
	assert_string_equal(d->connect_query, "select 1");
	assert_true(d->queue);
	assert_string_equal(d->queue_user, "q");
	assert_string_equal(d->queue_password, "qp");
	assert_int_equal(u->pool_mode, POOL_MODE_STATEMENT);
	assert_int_equal(u->pool_size, 3);
	assert_true(u->client_idle_timeout == 5 * USEC_SEC);
	assert_int_equal(c->p.listen_port, 7000);
	assert_int_equal(c->p.auth_type, AUTH_SCRAM);
	assert_int_equal(c->p.default_pool_size, 11);
	assert_string_equal(c->p.conffile, "t");
	conf_free(&c);
	assert_null(c);
	conf_free(&c);
}

static void test_unset(void **state)
{
	struct conf *c = load_good(full);
	const struct conf_database *d = conf_find_database(c, "plain");
	const struct conf_user *u = conf_find_user(c, "bob");

	(void)state;
	assert_null(d->host);
	assert_null(d->password);
	assert_int_equal(d->port, -1);
	assert_int_equal(d->pool_size, -1);
	assert_int_equal(d->reserve_pool_size, -1);
	assert_int_equal(d->pool_mode, POOL_MODE_UNSET);
	assert_true(d->server_lifetime == USEC_NEVER);
	assert_int_equal(u->pool_mode, POOL_MODE_UNSET);
	assert_int_equal(u->max_user_connections, -1);
	assert_true(u->query_timeout == USEC_NEVER);
	assert_string_equal(c->p.auth_file, "");
	conf_free(&c);
}

static void test_find(void **state)
{
	struct conf *c = load_good(full), *none = load_good("[databases]\na=\n");

	(void)state;
	assert_string_equal(conf_find_database(c, "app")->name, "app");
	assert_string_equal(conf_find_database(c, "APP")->name, "*");
	assert_string_equal(conf_find_database(c, "other")->name, "*");
	assert_null(conf_find_database(none, "other"));
	assert_null(conf_find_user(c, "carol"));
	conf_free(&c);
	conf_free(&none);
}

static void test_entries(void **state)
{
	char text[256];
	char name[65];

	(void)state;
	expect("[databases]\na = host=1\nb =\na = host=2\n",
		"t:4: warning: database \"a\" was given before, this entry counts\n");
	expect("[users]\na =\na =\n",
		"t:3: warning: user \"a\" was given before, this entry counts\n");
	expect("[databases]\npgbouncer =\nqbouncer = host=x\n",
		"t:2: error: database name \"pgbouncer\" is reserved for the console\n"
		"t:3: error: database name \"qbouncer\" is reserved for the console\n");
	expect("[databases]\na = prot=1\nb = zzzzzz=1\n",
		"t:2: error: unknown key \"prot\" in the entry of database \"a\"; did you mean "
		"\"port\"?\n"
		"t:3: error: unknown key \"zzzzzz\" in the entry of database \"b\"\n");
	expect("[users]\na = pool_size=0\n",
		"t:2: error: in the entry of user \"a\": \"pool_size\": 0 is out of bounds, it must "
		"be between 1 and 2147483647\n");
	expect("[databases]\na = load_balance_hosts=sometimes\n",
		"t:2: error: in the entry of database \"a\": \"load_balance_hosts\": \"sometimes\" is "
		"not one of round-robin, disable\n");
	expect("[peers]\n1 = host=x port=1\n1 = host=y pool_size=2\n",
		"t:3: warning: peer 1 was given before, this entry counts\n");
	expect("[peers]\nx = host=x\n2 =\n16384 = host=x\n",
		"t:2: error: a peer is a number from 1 to 16383, not \"x\"\n"
		"t:3: error: the entry of peer \"2\" has no host\n"
		"t:4: error: a peer is a number from 1 to 16383, not \"16384\"\n");
	expect("[databases]\n\"\" = host=x\n",
		"t:2: error: the name of a database has 1 to 63 bytes\n");
	memset(name, 'n', sizeof(name));
	name[64] = '\0';
	snprintf(text, sizeof(text), "[users]\n%s =\n", name);
	expect(text, "t:2: error: the name of a user has 1 to 63 bytes\n");
	snprintf(text, sizeof(text), "[users]\n%s =\n", name + 1);
	expect(text, "");
}

static void test_duplicates_keep_the_later(void **state)
{
	struct conf_report report = {0};
	struct conf *c = load("[databases]\na = host=1\nb =\na = host=2\nc =\n", &report);

	(void)state;
	assert_non_null(c);
	assert_string_equal(conf_find_database(c, "a")->host, "2");
	assert_string_equal(c->databases->next->name, "b");
	assert_string_equal(c->databases->next->next->name, "c");
	assert_null(c->databases->next->next->next);
	conf_free(&c);
	buf_free(&report.text);
}

static void test_conflicts(void **state)
{
	(void)state;
	/* systemd may listen */
	expect("[qbouncer]\nunix_socket_dir =\n", "");
	expect("[qbouncer]\nqueue_wait_default = 10\nqueue_wait_max = 9\n",
		"t: error: \"queue_wait_default\" is longer than \"queue_wait_max\"\n");
	expect("[qbouncer]\nconffile = x\n",
		"t:2: warning: \"conffile\" cannot be set, it is ignored\n");
}

static void test_install(void **state)
{
	struct conf_report report = {0};
	struct conf *c;

	(void)state;
	conf_install(load_good(full), &report);
	assert_string_equal(buf_cstr(&report.text), "");
	assert_int_equal(conf_current()->generation, 1);

	/* A bad file changes nothing. */
	c = load("[qbouncer]\ndefault_pool_size = 99\nlisten_prt = 1\n", &report);
	assert_null(c);
	assert_int_equal(conf_current()->p.default_pool_size, 11);
	assert_int_equal(conf_current()->generation, 1);
	buf_reset(&report.text);

	/* A good one does, but for what only a restart changes. */
	c = load_good("[qbouncer]\nlisten_port = 7001\nlisten_addr = *\ndefault_pool_size = 12\n");
	conf_install(c, &report);
	assert_string_equal(buf_cstr(&report.text),
		"warning: \"listen_addr\" cannot be changed without restart\n"
		"warning: \"listen_port\" cannot be changed without restart\n");
	assert_int_equal(conf_current()->p.default_pool_size, 12);
	assert_int_equal(conf_current()->p.listen_port, 7000);
	assert_string_equal(conf_current()->p.listen_addr, "");
	assert_int_equal(conf_current()->generation, 2);
	assert_null(conf_find_database(conf_current(), "app"));
	conf_uninstall();
	assert_null(conf_current());
	conf_uninstall();
	buf_free(&report.text);
}

static void test_set(void **state)
{
	static const struct {
		const char *key, *value, *err; /* NULL: accepted */
	} cases[] = {
		{"default_pool_size", "33", NULL},
		{"default_pool_size", "0",
			"\"default_pool_size\": 0 is out of bounds, it must be between 1 and "
			"2147483647"},
		{"admin_users", "someone", NULL},
		{"server_lifetime", "2h", NULL},
		{"listen_port", "1", "\"listen_port\" cannot be changed without restart"},
		{"conffile", "x", "\"conffile\" cannot be set"},
		{"nonsense", "x", "unknown parameter \"nonsense\""},
		{"queue_wait_default", "3601",
			"\"queue_wait_default\" is longer than \"queue_wait_max\""},
	};
	struct conf_report report = {0};
	char err[300];

	(void)state;
	conf_install(load_good(full), &report);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool ok = conf_set(cases[i].key, cases[i].value, err, sizeof(err));

		assert_int_equal(ok, !cases[i].err);
		if (!ok)
			assert_string_equal(err, cases[i].err);
	}
	assert_int_equal(conf_current()->p.default_pool_size, 33);
	assert_string_equal(conf_current()->p.admin_users, "someone");
	assert_true(conf_current()->p.server_lifetime == 7200 * USEC_SEC);
	assert_true(conf_current()->p.queue_wait_default == 0);
	assert_int_equal(conf_current()->p.auth_type, AUTH_SCRAM);
	mem_fail_after(1);
	assert_false(conf_set("admin_users", "other", err, sizeof(err)));
	assert_string_equal(err, "out of memory");
	assert_string_equal(conf_current()->p.admin_users, "someone");
	conf_uninstall();
}

struct shown {
	int count, restart;
	bool hush;
	char value[64], def[64];
};

static void show(const char *name, const char *value, const char *def, bool reloadable,
	const char *help, void *arg)
{
	struct shown *s = arg;

	assert_non_null(help);
	s->count++;
	s->restart += !reloadable;
	if (strstr(value, "hush"))
		s->hush = true;
	if (!strcmp(name, "queue_wait_max")) {
		strcpy(s->value, value);
		strcpy(s->def, def);
	}
}

static void test_each_param(void **state)
{
	struct conf *c = load_good(full);
	struct shown s = {0};

	(void)state;
	conf_each_param(&c->p, show, &s);
	assert_true(s.count > 101);
	assert_true(s.restart > 10);
	assert_false(s.hush);
	assert_string_equal(s.value, "3600");
	assert_string_equal(s.def, "3600"); /* 1h in the table */
	conf_free(&c);
}

static void test_lists(void **state)
{
	static const struct {
		const char *list, *name;
		bool has;
	} cases[] = {
		{"", "a", false},
		{NULL, "a", false},
		{"a", "a", true},
		{"a", "", false},
		{"a,,b", "", false},
		{" a , b\t,c", "b", true},
		{" a , b\t,c", "c", true},
		{"ab,c", "a", false},
		{"a,bc", "c", false},
		{"a b,c", "a b", true},
		{"A", "a", false},
		{",,a,", "a", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(conf_list_has(cases[i].list, cases[i].name), cases[i].has);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(pool_mode_name(POOL_MODE_TRANSACTION), "transaction");
	assert_string_equal(pool_mode_name(POOL_MODE_UNSET), "");
	assert_string_equal(auth_type_name(AUTH_SCRAM), "scram-sha-256");
}

/* Each allocation of a load fails once: an error, nothing lost (the sanitizer looks), and the next
 * load is as good as ever. */
static void test_memory_runs_out(void **state)
{
	struct conf *c = NULL;
	unsigned long n;

	(void)state;
	for (n = 1; !c; n++) {
		struct conf_report report = {0};

		mem_fail_after(n);
		c = load(full, &report);
		mem_fail_after(0);
		assert_int_equal(c == NULL, report.errors > 0);
		buf_free(&report.text);
		assert_true(n < 10000);
	}
	assert_true(n > 60);
	assert_int_equal(conf_find_database(c, "app")->pool_size, 7);
	conf_free(&c);
}

static void test_reports_are_bounded(void **state)
{
	struct buf text = BUF_INIT;
	struct conf_report report = {0};

	(void)state;
	buf_puts(&text, "[qbouncer]\n");
	for (int i = 0; i < 20000; i++)
		buf_puts(&text, "nonsense = 1\n");
	assert_null(conf_load_text("t", (char *)text.data, text.len, &report));
	assert_int_equal(report.errors, 20000);
	assert_true(report.text.len < 100000);
	buf_free(&text);
	buf_free(&report.text);
}

/* The sample loads as it is; with all comments of parameters taken away it still does. */
static void test_sample(void **state)
{
	const char *srcdir = getenv("QB_SRCDIR");
	struct conf_report report = {0};
	struct buf text = BUF_INIT;
	char path[4096], line[4096];
	struct conf *c;
	FILE *f;

	(void)state;
	if (!srcdir)
		skip();
	snprintf(path, sizeof(path), "%s/etc/qbouncer.ini", srcdir);
	c = conf_load(path, &report);
	assert_string_equal(buf_cstr(&report.text), "");
	conf_free(&c);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		buf_puts(&text, line + (line[0] == ';' && line[1] != ' ' && line[1] != ';' &&
					       strncmp(line, ";conffile", 9)));
	fclose(f);
	c = conf_load_text("sample", (char *)text.data, text.len, &report);
	assert_string_equal(buf_cstr(&report.text), "");
	assert_string_equal(conf_find_database(c, "reports")->password, "it's secret");
	conf_free(&c);
	buf_free(&text);
	buf_free(&report.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_unset),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_duplicates_keep_the_later),
		cmocka_unit_test(test_conflicts),
		cmocka_unit_test(test_install),
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_each_param),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_memory_runs_out),
		cmocka_unit_test(test_reports_are_bounded),
		cmocka_unit_test(test_sample),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
