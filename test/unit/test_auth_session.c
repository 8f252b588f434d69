/* Client conversations: every type against every kind of secret, garbage, mocks, lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../src/auth/auth_int.h"
#include "auth/outside.h"
#include "base/mem.h"
#include "wire/msg.h"

static struct auth_session *session_new(enum auth_type type, const char *user, struct buf *out,
	enum auth_verdict *ret, struct pg_error *err)
{
	struct auth_request r = {.type = type, .user = user, .scram_iterations = 64};

	return auth_session_new(&r, out, ret, err);
}

/* Password of everybody: "pencil". md5 belongs to user "hash". */
static const char users_text[] = "\"plain\" \"pencil\"\n"
				 "\"none\" \"\"\n"
				 "\"hash\" \"md51a24d5231e5b35504f6501bbdf87b4f6\"\n"
				 "\"scram\" \"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
				 "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
				 "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=\"\n";

static int setup(void **state)
{
	char path[] = "/tmp/qb_auth_session_XXXXXX", err[256];
	int fd = mkstemp(path);
	bool ok;

	(void)state;
	ok = fd >= 0 && write(fd, users_text, strlen(users_text)) > 0;
	close(fd);
	ok = ok && auth_file_load(path, err, sizeof(err));
	unlink(path);
	return ok ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	auth_file_free();
	return 0;
}

/* Takes the only message of out, an Authentication. Returns its code; the rest in r. */
static int take_auth(struct buf *out, struct wire_reader *r)
{
	struct wire_msg m;

	assert_false(buf_failed(out));
	assert_int_equal(wire_next(out->data, out->len, &m), WIRE_NEXT_OK);
	assert_int_equal(m.type, 'R');
	assert_true(wire_complete(&m));
	assert_int_equal(m.total, out->len);
	wire_reader_init(r, m.body, m.have);
	return wire_get_i32(r);
}

/* SASLInitialResponse around a client-first-message. */
static void put_initial(struct buf *b, const char *mechanism, const char *msg, int32_t len)
{
	build_cstr(b, mechanism);
	build_i32(b, len);
	if (len > 0)
		build_bytes(b, msg, (size_t)len);
}

/* A client that does what it is asked. Returns the code of the first request in ret_code. */
static enum auth_verdict run_client(enum auth_type type, const char *user, const char *password,
	int *ret_code, struct pg_error *err)
{
	struct buf out = BUF_INIT, in = BUF_INIT, text = BUF_INIT;
	struct wire_reader r;
	enum auth_verdict verdict;
	struct secret secret = {.kind = SECRET_NONE};
	struct scram_client *c = NULL;
	struct auth_session *s = session_new(type, user, &out, &verdict, err);
	char md5[36], answer[36];

	*ret_code = 0;
	if (!s || verdict != AUTH_CONTINUE)
		goto done;
	*ret_code = take_auth(&out, &r);
	switch (*ret_code) {
	case 3:
		build_cstr(&in, password);
		break;
	case 5:
		md5_secret(md5, password, user);
		md5_response(answer, md5, wire_get_bytes(&r, 4));
		build_cstr(&in, answer);
		break;
	case 10:
		assert_string_equal(wire_get_cstr(&r, NULL), "SCRAM-SHA-256");
		assert_string_equal(wire_get_cstr(&r, NULL), "");
		if (!secret_parse(&secret, password) || !(c = scram_client_new(&secret)))
			goto done;
		scram_client_first(c, &text);
		put_initial(&in, "SCRAM-SHA-256", (char *)text.data, (int32_t)text.len);
		break;
	default:
		fail();
	}
	buf_reset(&out);
	if (buf_failed(&in) || buf_failed(&text))
		goto done;
	verdict = auth_session_message(s, in.data, in.len, &out, err);
	if (!c || verdict != AUTH_CONTINUE)
		goto done;
	assert_int_equal(take_auth(&out, &r), 11);
	buf_reset(&in);
	if (scram_client_continue(c, (const char *)r.pos, wire_left(&r), &in) != SCRAM_CONTINUE ||
		buf_failed(&in))
		goto done;
	buf_reset(&out);
	verdict = auth_session_message(s, in.data, in.len, &out, err);
	if (verdict == AUTH_ACCEPTED) {
		assert_int_equal(take_auth(&out, &r), 12);
		assert_int_equal(
			scram_client_verify(c, (const char *)r.pos, wire_left(&r)), SCRAM_OK);
	}
done:
	buf_free(&out);
	buf_free(&in);
	buf_free(&text);
	secret_erase(&secret);
	scram_client_free(&c);
	auth_session_free(&s);
	return verdict;
}

static void test_types_and_secrets(void **state)
{
	static const struct {
		enum auth_type type;
		const char *user, *password;
		int code;
		enum auth_verdict want;
	} cases[] = {
		{AUTH_ANY, "nobody", "", 0, AUTH_ACCEPTED},
		{AUTH_TRUST, "plain", "", 0, AUTH_ACCEPTED},
		{AUTH_TRUST, "none", "", 0, AUTH_ACCEPTED},
		{AUTH_TRUST, "nobody", "", 0, AUTH_REFUSED},
		{AUTH_PLAIN, "plain", "pencil", 3, AUTH_ACCEPTED},
		{AUTH_PLAIN, "plain", "wrong", 3, AUTH_REFUSED},
		{AUTH_PLAIN, "hash", "pencil", 3, AUTH_ACCEPTED},
		{AUTH_PLAIN, "hash", "wrong", 3, AUTH_REFUSED},
		{AUTH_PLAIN, "scram", "pencil", 3, AUTH_ACCEPTED},
		{AUTH_PLAIN, "scram", "wrong", 3, AUTH_REFUSED},
		{AUTH_PLAIN, "none", "pencil", 3, AUTH_REFUSED},
		{AUTH_PLAIN, "nobody", "pencil", 3, AUTH_REFUSED},
		{AUTH_MD5, "plain", "pencil", 5, AUTH_ACCEPTED},
		{AUTH_MD5, "plain", "wrong", 5, AUTH_REFUSED},
		{AUTH_MD5, "hash", "pencil", 5, AUTH_ACCEPTED},
		{AUTH_MD5, "hash", "wrong", 5, AUTH_REFUSED},
		{AUTH_MD5, "scram", "pencil", 10, AUTH_ACCEPTED},
		{AUTH_MD5, "scram", "wrong", 10, AUTH_REFUSED},
		{AUTH_MD5, "none", "pencil", 5, AUTH_REFUSED},
		{AUTH_MD5, "nobody", "", 5, AUTH_REFUSED},
		{AUTH_SCRAM, "plain", "pencil", 10, AUTH_ACCEPTED},
		{AUTH_SCRAM, "plain", "wrong", 10, AUTH_REFUSED},
		{AUTH_SCRAM, "hash", "pencil", 10, AUTH_REFUSED},
		{AUTH_SCRAM, "scram", "pencil", 10, AUTH_ACCEPTED},
		{AUTH_SCRAM, "scram", "wrong", 10, AUTH_REFUSED},
		{AUTH_SCRAM, "none", "pencil", 10, AUTH_REFUSED},
		{AUTH_SCRAM, "nobody", "pencil", 10, AUTH_REFUSED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct pg_error err;
		char want[128];
		int code;
		enum auth_verdict got =
			run_client(cases[i].type, cases[i].user, cases[i].password, &code, &err);

		if (got != cases[i].want || code != cases[i].code)
			fail_msg("case %zu: verdict %d, code %d", i, got, code);
		if (got != AUTH_REFUSED)
			continue;
		assert_string_equal(err.severity, "FATAL");
		assert_string_equal(err.sqlstate, "28P01");
		snprintf(want, sizeof(want), "password authentication failed for user \"%s\"",
			cases[i].user);
		assert_string_equal(err.message,
			cases[i].type == AUTH_TRUST ? "\"trust\" authentication failed" : want);
	}
}

static void test_keys_are_learnt(void **state)
{
	struct pg_error err;
	struct secret keys;
	uint8_t key[SCRAM_KEY_LEN];
	int code;

	(void)state;
	auth_file_free();
	assert_int_equal(setup(NULL), 0);
	run_client(AUTH_SCRAM, "scram", "wrong", &code, &err);
	assert_int_equal(auth_user_find("scram")->passthrough.kind, SECRET_NONE);
	for (int round = 0; round < 2; round++) {
		enum auth_type type = round ? AUTH_PLAIN : AUTH_SCRAM;

		assert_int_equal(run_client(type, "scram", "pencil", &code, &err), AUTH_ACCEPTED);
		keys = auth_user_find("scram")->passthrough;
		assert_int_equal(keys.kind, SECRET_SCRAM_KEYS);
		assert_true(secret_matches(&keys, "scram", "pencil", key));
		assert_memory_equal(key, keys.client_key, sizeof(key));
		auth_file_free();
		assert_int_equal(setup(NULL), 0);
	}
	/* a password in clear needs no keys */
	run_client(AUTH_SCRAM, "plain", "pencil", &code, &err);
	assert_int_equal(auth_user_find("plain")->passthrough.kind, SECRET_NONE);
}

static void test_unsupported_types(void **state)
{
	static const enum auth_type types[] = {AUTH_HBA, AUTH_REJECT};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct pg_error err;
		int code;

		assert_int_equal(
			run_client(types[i], "plain", "pencil", &code, &err), AUTH_REFUSED);
		assert_string_equal(err.sqlstate, "0A000");
		assert_string_not_equal(err.hint, "");
	}
}

static void test_plus_is_offered_with_a_binding(void **state)
{
	static const char both[] = "\0\0\0\12SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0";
	struct auth_request r = {.type = AUTH_SCRAM,
		.user = "plain",
		.scram_iterations = 64,
		.binding_len = 4,
		.binding = "hash"};
	struct buf out = BUF_INIT;
	enum auth_verdict verdict;
	struct pg_error err;
	struct auth_session *s = auth_session_new(&r, &out, &verdict, &err);

	(void)state;
	assert_int_equal(verdict, AUTH_CONTINUE);
	assert_int_equal(out.len, 5 + sizeof(both));
	assert_memory_equal(out.data + 5, both, sizeof(both));
	buf_free(&out);
	auth_session_free(&s);
}

/* Sends one body to a fresh session. */
static enum auth_verdict send_once(enum auth_type type, const char *user, const char *body,
	size_t len, struct buf *out, struct pg_error *err)
{
	enum auth_verdict verdict;
	struct auth_session *s = session_new(type, user, out, &verdict, err);
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(s);
	assert_int_equal(verdict, AUTH_CONTINUE);
	buf_reset(out);
	memcpy(copy, body, len);
	verdict = auth_session_message(s, copy, len, out, err);
	if (verdict != AUTH_CONTINUE) {
		struct pg_error again;

		assert_int_equal(auth_session_message(s, copy, len, out, &again), AUTH_REFUSED);
		assert_string_equal(again.sqlstate, "08P01");
	}
	free(copy);
	auth_session_free(&s);
	return verdict;
}

static void test_garbage(void **state)
{
#define BODY(text) text, sizeof(text) - 1
#define SIZE       "invalid password packet size"
#define EMPTY      "empty password returned by client"
#define MECHANISM  "client selected an invalid SASL authentication mechanism"
#define INITIAL    "malformed SASLInitialResponse message"
#define SCRAM      "malformed SCRAM message"
	static const struct {
		enum auth_type type;
		const char *body;
		size_t len;
		const char *sqlstate, *message;
	} cases[] = {
		{AUTH_PLAIN, BODY(""), "08P01", SIZE},
		{AUTH_PLAIN, BODY("\0"), "28P01", EMPTY},
		{AUTH_PLAIN, BODY("pencil"), "08P01", SIZE},
		{AUTH_PLAIN, BODY("pencil\0x"), "08P01", SIZE},
		{AUTH_PLAIN, BODY("pencil\0\0"), "08P01", SIZE},
		{AUTH_MD5, BODY("\0"), "28P01", EMPTY},
		{AUTH_MD5, BODY("md5"), "08P01", SIZE},
		{AUTH_MD5, BODY("md5\0"), "28P01", NULL},
		{AUTH_MD5, BODY("pencil\0"), "28P01", NULL},
		{AUTH_SCRAM, BODY(""), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\0\0\0\5n,,"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\377\377\377\377x"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\377\377\377\376"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\200\0\0\0"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\177\377\377\377n,,"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\0\0\0\2n,,"), "08P01", INITIAL},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\0\0\0\0"), "08P01", SCRAM},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256\0\0\0\0\3n,,"), "08P01", SCRAM},
		{AUTH_SCRAM, BODY("SCRAM-SHA-256-PLUS\0\0\0\0\0"), "08P01", MECHANISM},
		{AUTH_SCRAM, BODY("\0\0\0\0\0"), "08P01", MECHANISM},
		{AUTH_SCRAM, BODY("pencil\0"), "08P01", MECHANISM},
	};
	static const char *const users[] = {"plain", "nobody"};

	(void)state;
	/* A user who does not exist gets the same words. */
	for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
		size_t k = i / 2;
		const char *user = users[i % 2];
		struct buf out = BUF_INIT;
		struct pg_error err;

		if (send_once(cases[k].type, user, cases[k].body, cases[k].len, &out, &err) !=
			AUTH_REFUSED)
			fail_msg("case %zu", k);
		assert_string_equal(err.severity, "FATAL");
		assert_string_equal(err.sqlstate, cases[k].sqlstate);
		if (cases[k].message)
			assert_string_equal(err.message, cases[k].message);
		assert_int_equal(buf_used(&out), 0);
		buf_free(&out);
	}
}

static void test_initial_response_later(void **state)
{
	struct buf out = BUF_INIT;
	struct pg_error err;
	enum auth_verdict verdict;
	struct wire_reader r;
	struct auth_session *s = session_new(AUTH_SCRAM, "plain", &out, &verdict, &err);

	(void)state;
	assert_non_null(s);
	buf_reset(&out);
	assert_int_equal(auth_session_message(s, (const uint8_t *)"SCRAM-SHA-256\0\377\377\377\377",
				 18, &out, &err),
		AUTH_CONTINUE);
	assert_int_equal(take_auth(&out, &r), 11);
	assert_int_equal(wire_left(&r), 0);
	buf_reset(&out);
	assert_int_equal(auth_session_message(s, (const uint8_t *)"n,,n=,r=abc", 11, &out, &err),
		AUTH_CONTINUE);
	assert_int_equal(take_auth(&out, &r), 11);
	assert_memory_equal(r.pos, "r=abc", 5);
	buf_free(&out);
	auth_session_free(&s);
}

static void test_long_user(void **state)
{
	char user[200];
	struct buf out = BUF_INIT;
	struct pg_error err;
	enum auth_verdict verdict;
	struct auth_session *s;

	(void)state;
	memset(user, 'x', sizeof(user) - 1);
	user[sizeof(user) - 1] = '\0';
	s = session_new(AUTH_MD5, user, &out, &verdict, &err);
	assert_int_equal(verdict, AUTH_REFUSED);
	assert_string_equal(err.sqlstate, "08P01");
	auth_session_free(&s);
	buf_free(&out);
}

static void test_md5_salt_is_random(void **state)
{
	uint8_t salts[2][4];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct buf out = BUF_INIT;
		struct pg_error err;
		enum auth_verdict verdict;
		struct wire_reader r;
		struct auth_session *s = session_new(AUTH_MD5, "hash", &out, &verdict, &err);

		assert_int_equal(take_auth(&out, &r), 5);
		memcpy(salts[i], wire_get_bytes(&r, 4), 4);
		assert_true(wire_done(&r));
		auth_session_free(&s);
		buf_free(&out);
	}
	assert_memory_not_equal(salts[0], salts[1], 4);
}

static void test_no_memory(void **state)
{
	static const enum auth_type types[] = {AUTH_PLAIN, AUTH_MD5, AUTH_SCRAM};
	static const char *const users[] = {"plain", "hash", "scram"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		enum auth_verdict verdict = AUTH_REFUSED;
		unsigned long n = 1;

		while (verdict != AUTH_ACCEPTED) {
			struct pg_error err;
			int code;

			mem_fail_after(n++);
			verdict = run_client(types[i], users[i], "pencil", &code, &err);
			mem_fail_after(0);
			if (verdict == AUTH_REFUSED)
				assert_string_equal(err.sqlstate, "53200");
			assert_true(n < 100);
		}
		assert_true(n > 3);
	}
}

/* PAM and LDAP: the password is asked for in clear, and is there for who decides. */
static void test_outside(void **state)
{
	static const enum auth_type types[] = {AUTH_PAM, AUTH_LDAP};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct buf out = BUF_INIT;
		enum auth_verdict verdict;
		struct wire_reader r;
		struct pg_error err;
		struct auth_session *s =
			session_new(types[i], "nobody knows him", &out, &verdict, &err);

		assert_int_equal(verdict, AUTH_CONTINUE);
		assert_int_equal(take_auth(&out, &r), 3);
		assert_null(auth_session_proved(s));
		out.len = 0;
		assert_int_equal(auth_session_message(s, (const uint8_t *)"secret", 7, &out, &err),
			AUTH_OUTSIDE);
		assert_string_equal(auth_session_proved(s)->plain, "secret");
		assert_int_equal(auth_session_message(s, (const uint8_t *)"secret", 7, &out, &err),
			AUTH_REFUSED);
		auth_session_free(&s);
		s = session_new(types[i], "plain", &out, &verdict, &err);
		assert_int_equal(
			auth_session_message(s, (const uint8_t *)"", 1, &out, &err), AUTH_REFUSED);
		auth_session_free(&s);
		buf_free(&out);
	}
}

/* auth_ldap_options as the lines of a rule. */
static void test_outside_lines(void **state)
{
	static const char *const cases[][2] = {{"", ""}, {"  a=b  ", "a=b\n"},
		/* commas between them, and in them */
		{"a=\"h\", b=1 , c=,dc=x,dc=y d=\"a, \",", "a=h\nb=1\nc=,dc=x,dc=y\nd=a, \n"},
		{"a=b c=d", "a=b\nc=d"}, {"a=\"b c\"\t d=e", "a=b c\nd=e"}, {"a=\"b", "a=b"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char *lines = outside_lines(cases[i][0]);

		assert_string_equal(lines, cases[i][1]);
		outside_options_free(&lines);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types_and_secrets),
		cmocka_unit_test(test_keys_are_learnt),
		cmocka_unit_test(test_unsupported_types),
		cmocka_unit_test(test_outside),
		cmocka_unit_test(test_outside_lines),
		cmocka_unit_test(test_plus_is_offered_with_a_binding),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_initial_response_later),
		cmocka_unit_test(test_long_user),
		cmocka_unit_test(test_md5_salt_is_random),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
