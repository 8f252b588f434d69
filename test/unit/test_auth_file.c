/* auth_file: the grammar, all or nothing, reloads, what logins teach, lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../src/auth/auth_int.h"
#include "base/mem.h"

#define NAME_127                                                                                   \
	"0123456789012345678901234567890123456789012345678901234567890123"                         \
	"012345678901234567890123456789012345678901234567890123456789012"

static char path[] = "/tmp/qb_auth_file_XXXXXX";

static int setup(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	auth_file_free();
	unlink(path);
	return 0;
}

/* Loads a text; the error without the path in front, or "". */
static const char *load(const char *text, size_t len)
{
	static char err[512];
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
	err[0] = '\0';
	if (auth_file_load(path, err, sizeof(err))) {
		assert_string_equal(err, "");
		return "";
	}
	if (strncmp(err, path, strlen(path)) == 0)
		return err + strlen(path);
	return err;
}

static void count_user(const struct auth_user *u, void *arg)
{
	(void)u;
	++*(int *)arg;
}

static int count(void)
{
	int n = 0;

	auth_each_user(count_user, &n);
	return n;
}

static void test_grammar(void **state)
{
	static const struct {
		const char *text, *name, *plain;
		int users;
	} cases[] = {
		{"", "x", NULL, 0},
		{"\n\n", "x", NULL, 0},
		{"; c\n# d\n  ; e\n", "x", NULL, 0},
		{"\"a\" \"b\"", "a", "b", 1},
		{"\"a\" \"b\"\n", "a", "b", 1},
		{"\"a\" \"b\"\r\n\"c\" \"d\"\r\n", "c", "d", 2},
		{"  \"a\"\t\t\"b\"  \n", "a", "b", 1},
		{"\"a\" \"b\" anything \"at all", "a", "b", 1},
		{"\"a\"\"b\" \"c\"\"\"", "a\"b", "c\"", 1},
		{"\"\"\"\" \"x\"", "\"", "x", 1},
		{"\"a;\" \"#\"", "a;", "#", 1},
		{"\"a\" \"1\"\n\"b\" \"2\"\n\"a\" \"3\"\n", "a", "3", 2},
		{"\"b\xC3\xA4r\" \"\\n\"", "b\xC3\xA4r", "\\n", 1},
		{"\"" NAME_127 "\" \"x\"", NAME_127, "x", 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct auth_user *u;

		assert_string_equal(load(cases[i].text, strlen(cases[i].text)), "");
		assert_int_equal(count(), cases[i].users);
		u = auth_user_find(cases[i].name);
		if (!cases[i].plain) {
			assert_null(u);
			continue;
		}
		assert_non_null(u);
		assert_int_equal(u->secret.kind, SECRET_PLAIN);
		assert_string_equal(u->secret.plain, cases[i].plain);
		assert_true(auth_user_in_file(cases[i].name));
	}
}

static void test_errors(void **state)
{
#define WANT_NAME   "expected a user name in double quotes"
#define WANT_SECRET "expected a password in double quotes after the user name"
	static const struct {
		const char *text, *err;
	} cases[] = {
		{"a b", ":1: " WANT_NAME},
		{"\n\n\"a", ":3: " WANT_NAME},
		{"\"a\"\"", ":1: " WANT_NAME},
		{"\"a\"", ":1: " WANT_SECRET},
		{"\"a\" ", ":1: " WANT_SECRET},
		{"\"a\" b", ":1: " WANT_SECRET},
		{"\"a\" \"b", ":1: " WANT_SECRET},
		{"\"a\" \"b\"\"\n", ":1: " WANT_SECRET},
		{"\"a\"x \"b\"", ":1: expected a space between user name and password"},
		{"\"\" \"b\"", ":1: user name is empty"},
		{";\n\"" NAME_127 "x\" \"b\"", ":2: user name is longer than 127 bytes"},
	};

	(void)state;
	assert_string_equal(load("\"keep\" \"me\"", 11), "");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[512];

		/* an entry in front of the error must not come through */
		snprintf(text, sizeof(text), "%s\n\"late\" \"x\"\n", cases[i].text);
		assert_string_equal(load(text, strlen(text)), cases[i].err);
		assert_int_equal(count(), 1);
		assert_non_null(auth_user_find("keep"));
	}
	assert_string_equal(load("\"a\" \"b\0c\"", 9), ":1: the line has a zero byte");
	assert_non_null(auth_user_find("keep"));
}

/* Each of them is named, as long as there is room. */
static void test_all_mistakes(void **state)
{
	struct buf b = BUF_INIT, want = BUF_INIT;
	char err[300];

	(void)state;
	assert_string_equal(load("\"keep\" \"me\"", 11), "");
	buf_printf(&want, ":1: " WANT_NAME "\n%s:3: " WANT_SECRET, path);
	assert_string_equal(load("?\n\"b\" \"c\"\n\"a\"\n", 14), buf_cstr(&want));
	buf_free(&want);
	for (int i = 0; i < 100; i++)
		buf_printf(&b, "a b\n");
	(void)load((char *)b.data, b.len);
	assert_false(auth_file_check(path, err, sizeof(err)));
	assert_non_null(strstr(err, ":2: " WANT_NAME "\n"));
	assert_string_equal(err + strlen(err) - 4, "\n...");
	buf_free(&b);
	/* asking changes nothing */
	assert_string_equal(load("\"keep\" \"me\"", 11), "");
	(void)load("\"other\" \"x\"\n?", 13);
	assert_int_equal(count(), 1);
	assert_true(auth_file_check(NULL, err, sizeof(err)));
	assert_non_null(auth_user_find("keep"));
}

static void test_every_cut(void **state)
{
	static const char text[] = "; users\n\"a\"\"x\" \"b\"\n\n\"c\" \"d\" rest\n";

	(void)state;
	for (size_t cut = 0; cut <= strlen(text); cut++) {
		load(text, cut);
		assert_true(count() <= 2);
	}
	assert_int_equal(count(), 2);
}

static void test_paths(void **state)
{
	char err[256] = "";

	(void)state;
	assert_string_equal(load("\"a\" \"b\"", 7), "");
	assert_false(auth_file_load("/nonexistent/users", err, sizeof(err)));
	assert_non_null(strstr(err, "\"/nonexistent/users\": No such file"));
	assert_false(auth_file_load("/", err, sizeof(err)));
	assert_int_equal(count(), 1);
	assert_true(auth_file_load("", err, sizeof(err)));
	assert_int_equal(count(), 0);
	assert_string_equal(load("\"a\" \"b\"", 7), "");
	assert_true(auth_file_load(NULL, err, sizeof(err)));
	assert_int_equal(count(), 0);
}

static void test_kinds(void **state)
{
	static const char text[] = "\"none\" \"\"\n"
				   "\"md5\" \"md5d41d8cd98f00b204e9800998ecf8427e\"\n"
				   "\"scram\" \"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
				   "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
				   "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=\"\n";

	(void)state;
	assert_string_equal(load(text, strlen(text)), "");
	assert_int_equal(auth_user_find("none")->secret.kind, SECRET_NONE);
	assert_int_equal(auth_user_find("md5")->secret.kind, SECRET_MD5);
	assert_int_equal(auth_user_find("scram")->secret.kind, SECRET_SCRAM);
	assert_true(auth_user_in_file("none"));
	assert_false(auth_file_prefers_scram());
	assert_null(auth_user_verifier("scram", 2));
	assert_null(auth_user_verifier("nobody", 2));
}

static void test_learn_and_reload(void **state)
{
	struct scram_verifier v;
	uint8_t key[SCRAM_KEY_LEN] = {7};
	const struct auth_user *u;

	(void)state;
	assert_true(scram_verifier_make(&v, "x", 2));
	assert_string_equal(load("\"a\" \"1\"\n\"b\" \"2\"\n", 16), "");
	assert_int_equal(auth_user_find("a")->passthrough.kind, SECRET_NONE);
	auth_user_learn("a", &v, key);
	auth_user_learn("b", &v, key);
	auth_user_learn("stranger", &v, key);
	u = auth_user_find("a");
	assert_int_equal(u->passthrough.kind, SECRET_SCRAM_KEYS);
	assert_memory_equal(u->passthrough.client_key, key, sizeof(key));
	assert_non_null(auth_user_find("stranger"));
	assert_false(auth_user_in_file("stranger"));

	/* the same secret keeps what was learnt, another does not; strangers go */
	assert_string_equal(load("\"a\" \"1\"\n\"b\" \"3\"\n", 16), "");
	assert_int_equal(auth_user_find("a")->passthrough.kind, SECRET_SCRAM_KEYS);
	assert_int_equal(auth_user_find("b")->passthrough.kind, SECRET_NONE);
	assert_null(auth_user_find("stranger"));

	/* a name that fits no entry is not learnt */
	auth_user_learn(NAME_127 "x", &v, key);
	assert_int_equal(count(), 2);
}

static void test_verifier_is_kept(void **state)
{
	struct scram_verifier first;
	const struct scram_verifier *v;

	(void)state;
	assert_string_equal(load("\"a\" \"1\"\n", 8), "");
	v = auth_user_verifier("a", 2);
	assert_non_null(v);
	first = *v;
	assert_memory_equal(&first, auth_user_verifier("a", 2), sizeof(first));
	assert_string_equal(load("\"a\" \"1\"\n\"b\" \"2\"\n", 16), "");
	assert_memory_equal(&first, auth_user_verifier("a", 2), sizeof(first));
	assert_int_equal(auth_user_verifier("a", 3)->iterations, 3);
	assert_string_equal(load("\"a\" \"9\"\n", 8), "");
	v = auth_user_verifier("a", 2);
	assert_memory_not_equal(first.salt, v->salt, sizeof(first.salt));
}

static void test_no_memory(void **state)
{
	static const char text[] = "\"a\" \"1\"\n\"b\" \"2\"\n\"c\" \"3\"\n";
	struct scram_verifier v;
	uint8_t key[SCRAM_KEY_LEN] = {7};
	unsigned long n = 1;
	bool done = false;

	(void)state;
	assert_true(scram_verifier_make(&v, "x", 2));
	assert_string_equal(load("\"keep\" \"me\"", 11), "");
	while (!done) {
		char err[256];
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fputs(text, f);
		fclose(f);
		mem_fail_after(n++);
		done = auth_file_load(path, err, sizeof(err));
		mem_fail_after(0);
		assert_int_equal(count(), done ? 3 : 1);
		assert_true(n < 100);
	}
	assert_true(n > 8);
	for (n = 1; n < 4; n++) {
		mem_fail_after(n);
		auth_user_learn("new", &v, key);
		mem_fail_after(0);
	}
	assert_int_equal(auth_user_find("new")->passthrough.kind, SECRET_SCRAM_KEYS);
}

/* Enough users to make the hash table grow, with and without memory. */
static void test_many(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	for (int i = 0; i < 2000; i++)
		buf_printf(&b, "\"user%d\" \"p%d\"\n", i, i);
	assert_string_equal(load((char *)b.data, b.len), "");
	assert_int_equal(count(), 2000);
	assert_string_equal(auth_user_find("user1999")->secret.plain, "p1999");
	for (unsigned long n = 1; n < 5000; n += 97) {
		char err[256];
		bool ok;

		mem_fail_after(n);
		ok = auth_file_load(path, err, sizeof(err));
		mem_fail_after(0);
		assert_int_equal(count(), 2000);
		(void)ok;
	}
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_all_mistakes),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_learn_and_reload),
		cmocka_unit_test(test_verifier_is_kept),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
