/* Rules and maps from files: what they decide, what they refuse, lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "auth/hba.h"
#include "base/mem.h"

static char dir[] = "/tmp/qb_hba_XXXXXX";

static const char *put(const char *name, const char *text)
{
	static char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	return path;
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	static const char *const names[] = {"hba", "ident", "names", "more"};
	char path[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

static const char rules[] =
	"# a comment\n"
	"local   all         postgres                     peer map=ops\n"
	"local   sameuser    all                          md5\n"
	"host    replication repl        10.0.0.0/8       scram-sha-256\n"
	"hostssl \"all\"       all         10.0.0.0/8       cert\n"
	"hostssl app,web     @names      10.1.0.0/16      trust clientcert=verify-full\n"
	"host    /^t[0-9]+$  \"a b\",/^u_  fe80::/10        password\n"
	"hostssl web        bob         .corp.test       trust\n"
	"include more\n"
	"host    all         all         192.168.1.7      255.255.255.255 \\\n"
	"        trust\n";

static void load(void)
{
	char err[300] = "", ident[64];
	struct hba *h;

	put("names", "carol, dave # and\nerin\n");
	put("more", "hostnossl all all all reject\n");
	strcpy(ident, put("ident", "ops root postgres\nops /^(.*)@corp$ \\1\nops /x$ all\n"));
	h = hba_read(put("hba", rules), ident, err, sizeof(err));
	assert_string_equal(err, "");
	assert_non_null(h);
	hba_install(h);
}

static int line_of(bool is_unix, bool tls, const char *address, const char *db, const char *user)
{
	struct hba_peer p = {
		.is_unix = is_unix, .tls = tls, .address = address, .database = db, .user = user};
	const struct hba_rule *r = hba_find(&p);

	return r ? r->line : 0;
}

static void test_find(void **state)
{
	struct hba_peer repl = {
		.address = "10.9.9.9", .database = "repl", .user = "repl", .replication = true};

	(void)state;
	load();
	assert_int_equal(line_of(true, false, "", "app", "postgres"), 2);
	assert_int_equal(line_of(true, false, "", "bob", "bob"), 3);
	assert_int_equal(line_of(true, false, "", "app", "bob"), 0);
	assert_int_equal(hba_find(&repl)->type, AUTH_SCRAM);
	assert_int_equal(line_of(false, true, "10.9.9.9", "all", "bob"), 5);
	assert_int_equal(line_of(false, true, "10.1.9.9", "web", "erin"), 6);
	assert_int_equal(line_of(false, true, "::ffff:10.1.9.9", "web", "dave"), 6);
	assert_int_equal(line_of(false, true, "10.1.9.9", "web", "bob"), 0);
	assert_int_equal(line_of(false, true, "fe80::1", "t12", "a b"), 7);
	assert_int_equal(line_of(false, true, "fe80::1", "t12", "u_x"), 7);
	assert_int_equal(line_of(false, true, "fe80::1", "t12x", "u_x"), 0);
	assert_int_equal(line_of(false, true, "192.168.1.7", "x", "y"), 10);
	assert_int_equal(line_of(false, true, "192.168.1.8", "x", "y"), 0);
	assert_int_equal(line_of(false, false, "192.168.1.7", "x", "y"), 1); /* of the other file */
	assert_int_equal(line_of(false, true, "no address", "x", "y"), 0);
	hba_install(NULL);
	assert_int_equal(line_of(true, false, "", "app", "postgres"), 0);
}

static void test_host_names(void **state)
{
	static const struct {
		const char *host;
		int line; /* 0: none, -1: the name is wanted */
	} cases[] = {{NULL, -1}, {"", 3}, {"a.web.test", 1}, {"A.Web.Test", 1}, {"b.web.test", 2},
		{".web.test", 3}, {"web.test", 3}, {"xweb.test", 3}, {"b.web.test.", 3}};
	struct hba_peer p = {.address = "10.0.0.1", .database = "app", .user = "bob"};
	const struct hba_rule *r;
	char err[300];
	struct hba *h;

	(void)state;
	h = hba_read(put("hba", "host all all a.web.test trust\nhost all all .WEB.test md5\n"
				"host app all all reject\n"),
		NULL, err, sizeof(err));
	assert_non_null(h);
	hba_install(h);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		p.host = cases[i].host;
		r = hba_find(&p);
		assert_int_equal(hba_wants_host(&p), cases[i].line < 0);
		assert_int_equal(r ? r->line : 0, cases[i].line > 0 ? cases[i].line : 0);
	}
	p.is_unix = true;
	p.host = NULL;
	assert_false(hba_wants_host(&p));
	hba_install(NULL);
}

static void test_maps(void **state)
{
	(void)state;
	load();
	assert_true(hba_map_allows(NULL, "a", "a"));
	assert_false(hba_map_allows(NULL, "a", "A"));
	assert_true(hba_map_allows("ops", "root", "postgres"));
	assert_false(hba_map_allows("ops", "root", "root"));
	assert_true(hba_map_allows("ops", "bob@corp", "bob"));
	assert_false(hba_map_allows("ops", "bob@corp", "carol"));
	assert_true(hba_map_allows("ops", "max", "anybody"));
	assert_false(hba_map_allows("nosuch", "root", "postgres"));
	hba_install(NULL);
	assert_false(hba_map_allows("ops", "root", "postgres"));
}

/* Two maps: name of the system, database user, may he. */
static void test_groups(void **state)
{
	static const struct {
		const char *line, *system_name, *user;
		bool good;
	} cases[] = {
		{"m /^(.*)@corp$ x_\\1_y", "bob@corp", "x_bob_y", true},
		{"m /^(.*)@corp$ x_\\1_y", "@corp", "x__y", true},
		{"m /^(.*)@corp$ x_\\1_y", "@corp", "x_\\1_y", false},
		{"m /^(x)?bob$ \\1", "bob", "\\1", false},
		{"m /^(x)?bob$ \\1", "bob", "", false},
		{"m /^(?i)bob$ /^(b)\\1$", "x", "bb", false}, /* not read */
		{"m /(?i)^bob$ /^(b)\\1$", "BOB", "bb", true},
		{"m /(?i)^bob$ /^(b)\\1$", "BOB", "b", false},
		{"m bob \\1", "bob", "\\1", true},
		{"m /^(\\w+)@(a|b)\\.test$ \\1", "bob@b.test", "bob", true},
		{"m /^(\\w+)@(a|b)\\.test$ \\1", "bob@b.test", "b", false},
		{"m /^(\\d+)$ \\1", "12", "12", true},
		{"m \"/^(.+), inc$\" \\1", "bob, inc", "bob", true},
		/* what cannot be decided is refused, whatever follows */
		{"m /^(a*)*[0-9]$ all\nm /^a all", "a0", "bob", true},
		{"m /^(a*)*[0-9]$ all\nm /^a all", "ab", "bob", true},
		{"m /^(a*)*[0-9]$ all\nm /^a all", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			"bob", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char err[300], ident[64];
		struct hba *h;

		strcpy(ident, put("ident", cases[i].line));
		h = hba_read(put("hba", "local all all peer\n"), ident, err, sizeof(err));
		hba_install(h);
		if (hba_map_allows("m", cases[i].system_name, cases[i].user) != cases[i].good)
			fail_msg("%s: %s, %s", cases[i].line, cases[i].system_name, cases[i].user);
	}
	hba_install(NULL);
}

/* A rule that cannot be decided might be the one that keeps him out. */
static void test_undecided(void **state)
{
	static const char *const files[] = {
		"local /^(a*)*[0-9]$ all reject\nlocal all all trust\n",
		"local all /^(a*)*[0-9]$ reject\nlocal all all trust\n",
		"local x,/^(a*)*[0-9]$ all trust\nlocal all all trust\n",
		"local /^(a*)*[0-9]$ /^(a*)*[0-9]$ reject\nlocal all all trust\n",
	};
	char name[256], err[300];

	(void)state;
	memset(name, 'a', 255);
	name[255] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		struct hba *h = hba_read(put("hba", files[i]), NULL, err, sizeof(err));

		assert_non_null(h);
		hba_install(h);
		assert_int_equal(line_of(true, false, "", name, name), 0);
		assert_int_equal(line_of(true, false, "", "bob", "bob"), 2);
	}
	/* another rule's, and one that another part of it decides */
	hba_install(hba_read(
		put("hba", "host /^(a*)*[0-9]$ all all reject\nlocal /^(a*)*[0-9]$ bob reject\n"
			   "local all all trust\n"),
		NULL, err, sizeof(err)));
	assert_int_equal(line_of(true, false, "", name, "carol"), 3);
	assert_int_equal(line_of(true, false, "", name, "bob"), 0);
	assert_int_equal(line_of(false, false, "10.0.0.1", name, "carol"), 0);
	hba_install(NULL);
}

/* Blanks on both sides of a comma are pgbouncer's; a comma too many is Postgres'. */
static void test_commas(void **state)
{
	static const char *const lines[] = {
		"local a,b u,v trust",
		"local a, b u, v trust",
		"local a ,b u ,v trust",
		"local a , b u , v trust",
		"local a,,b u,, v trust",
		"local a,\tb u \t,\tv trust",
		"local ,a,b u,v trust",
		", local ,a,b u,v trust",
		"local \"a\" , \"b\" \"u\",\"v\" trust",
		"local a,b u,v trust,",
		"local a,b u,v trust , # that is all",
		"local a,b @names trust",
	};
	char err[300] = "";

	(void)state;
	put("names", ", u , ,v ,\n");
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct hba *h = hba_read(put("hba", lines[i]), NULL, err, sizeof(err));

		if (h == NULL)
			fail_msg("%s: %s", lines[i], err);
		hba_install(h);
		for (const char *db = "abc"; *db != '\0'; db++)
			for (const char *user = "uvw"; *user != '\0'; user++) {
				const char d[] = {*db, '\0'}, u[] = {*user, '\0'};
				int want = *db != 'c' && *user != 'w';

				if (line_of(true, false, "", d, u) != want)
					fail_msg("%s: %s, %s", lines[i], d, u);
			}
	}
	hba_install(NULL);
}

static void test_mistakes(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"host all all 1.2.3.4/33 trust", "hba:1: invalid mask \"/33\""},
		{"\n\nhost all all 1.2.3.4 trust", "hba:3: invalid mask \"trust\""},
		{"host all all 1.2.3.4", "the mask of"},
		{"host all all 1.2.3.400 trust", "neither an address nor the name of a host"},
		{"host all all a.test/8 trust", "it has no mask"},
		{"host all all", "expected connection type"},
		{"local all all", "expected connection type"},
		{"host all , all trust", "expected connection type"},
		{"host,local all all all trust", "expected connection type"},
		{"local all all ,", "expected connection type"},
		{"host all all all trust x=y", "unknown option \"x\""},
		{"hostssl all all all cert clientcert=no-verify", "invalid value"},
		{"host all @hba all trust", "nested too deeply"},
		{"include hba", "nested too deeply"},
		{"local all all peer map=m", "there is no map"},
		{"# rules\nlocal /x++ all peer",
			"hba:2: invalid regular expression: a quantifier follows a quantifier: \"x++\""},
	};
	char err[300], ident[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *text = cases[i].text;

		if (strstr(text, "@hba"))
			text = "@hba";
		assert_null(hba_read(put("hba", text), NULL, err, sizeof(err)));
		if (!strstr(err, cases[i].why))
			fail_msg("%s: %s", cases[i].text, err);
	}
	assert_null(hba_read("/nosuchfile", NULL, err, sizeof(err)));
	strcpy(ident, put("ident", "a b"));
	assert_null(hba_read(put("hba", ""), ident, err, sizeof(err)));
	strcpy(ident,
		put("ident", "m a b\nm /^(.*++++++++++++++++++++++++++++++++++++++++)@x$ \\1"));
	assert_null(hba_read(put("hba", ""), ident, err, sizeof(err)));
	assert_non_null(strstr(err, "ident:2: invalid regular expression: a quantifier follows"));
	strcpy(ident, put("ident", "m /^bob$ \\1"));
	assert_null(hba_read(put("hba", ""), ident, err, sizeof(err)));
	assert_non_null(strstr(err, "has no group"));
	assert_null(hba_read(put("hba", ""), "/nosuchfile", err, sizeof(err)));
}

/* Each of them is named, in both files and in those that they name. */
static void test_all_mistakes(void **state)
{
	static const char *const want[] = {"ident:1: expected map", "ident:3: \\1 in",
		"hba:1: unknown", "hba:2: \"samerole\": members of a role",
		"hba:3: \"samegroup\": members", "hba:4: \"+ops\": members", "more:1: invalid mask",
		"more:2: expected connection type", "hba:6: cannot read",
		"hba:7: the authentication method", "hba:9: unknown option"};
	char err[2000], ident[64], *line, *rest = err;

	(void)state;
	strcpy(ident, put("ident", "a b\nm x y\nm /^bob$ \\1\n"));
	put("more", "host all all 10.0.0.0/40 trust\nhost ,a all\n");
	assert_null(hba_read(
		put("hba", "tcp all all all trust\nhost samerole all all trust\n"
			   "host samegroup all all trust\nhost all +ops all trust\ninclude more\n"
			   "include nosuchfile\nhost all all all\nlocal all all peer map=m\n"
			   "local all all peer map=unknown x=y\n"),
		ident, err, sizeof(err)));
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		line = strsep(&rest, "\n");
		if (!line || !strstr(line, want[i]))
			fail_msg("%s: %s", want[i], line ? line : "nothing");
	}
	assert_null(rest);
	/* files that name themselves again and again come to an end */
	assert_null(hba_read(put("hba", "include hba\ninclude hba\ninclude hba\ninclude hba\n"),
		NULL, err, sizeof(err)));
	assert_non_null(strstr(err, "hba:4: \""));
	assert_string_equal(err + strlen(err) - 4, "\n...");
}

static void test_no_memory(void **state)
{
	char err[300], ident[64], path[64];
	struct hba *h = NULL;
	int n = 0;

	(void)state;
	load();
	hba_install(NULL);
	snprintf(ident, sizeof(ident), "%s/ident", dir);
	snprintf(path, sizeof(path), "%s/hba", dir);
	while (!h) {
		mem_fail_after((unsigned long)++n);
		h = hba_read(path, ident, err, sizeof(err));
		assert_true(h || strstr(err, "out of memory"));
	}
	mem_fail_after(0);
	assert_true(n > 50);
	hba_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_host_names),
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_undecided),
		cmocka_unit_test(test_commas),
		cmocka_unit_test(test_mistakes),
		cmocka_unit_test(test_all_mistakes),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
