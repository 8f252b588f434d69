/* Logins to a server: every request against every secret, hostile servers, lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "auth/auth.h"
#include "base/mem.h"
#include "wire/msg.h"

#define LIST "\0\0\0\12SCRAM-SHA-256\0\0"

static struct secret make_secret(enum secret_kind kind)
{
	struct secret s = {.kind = SECRET_NONE};
	struct scram_verifier v;

	switch (kind) {
	case SECRET_NONE:
		break;
	case SECRET_PLAIN:
		assert_true(secret_parse(&s, "pencil"));
		break;
	case SECRET_MD5:
		s.kind = SECRET_MD5;
		md5_secret(s.md5, "pencil", "ann");
		break;
	case SECRET_SCRAM:
	case SECRET_SCRAM_KEYS:
		assert_true(scram_verifier_make(&v, "pencil", 8));
		s.kind = SECRET_SCRAM;
		s.scram = v;
		if (kind == SECRET_SCRAM_KEYS)
			assert_true(secret_matches(&s, "ann", "pencil", s.client_key));
		s.kind = kind;
		break;
	}
	return s;
}

/* The body of the only message of out, a 'p'. */
static struct wire_reader take_password(struct buf *out)
{
	struct wire_msg m;
	struct wire_reader r;

	assert_false(buf_failed(out));
	assert_int_equal(wire_next(out->data, out->len, &m), WIRE_NEXT_OK);
	assert_int_equal(m.type, 'p');
	assert_true(wire_complete(&m));
	assert_int_equal(m.total, out->len);
	wire_reader_init(&r, m.body, m.have);
	return r;
}

static enum auth_verdict tell(
	struct auth_login *l, const char *body, size_t len, struct buf *out, struct pg_error *err)
{
	uint8_t *copy = malloc(len ? len : 1);
	enum auth_verdict verdict;

	memcpy(copy, body, len);
	buf_reset(out);
	verdict = auth_login_message(l, copy, len, out, err);
	free(copy);
	return verdict;
}

static void test_requests_and_secrets(void **state)
{
#define BODY(text) text, sizeof(text) - 1
#define HAVE_NONE  "qbouncer has no password for user \"ann\" to give to the server"
#define OTHER_MECH "none of the server's SASL authentication mechanisms are supported"
	static const struct {
		const char *body;
		size_t len;
		enum secret_kind kind;
		const char *sqlstate, *message; /* NULL: an answer is given */
	} cases[] = {
		{BODY("\0\0\0\3"), SECRET_PLAIN, NULL, NULL},
		{BODY("\0\0\0\3"), SECRET_NONE, "28P01", HAVE_NONE},
		{BODY("\0\0\0\3"), SECRET_MD5, "28P01", HAVE_NONE},
		{BODY("\0\0\0\3"), SECRET_SCRAM, "28P01", HAVE_NONE},
		{BODY("\0\0\0\3"), SECRET_SCRAM_KEYS, "28P01", HAVE_NONE},
		{BODY("\0\0\0\5salt"), SECRET_PLAIN, NULL, NULL},
		{BODY("\0\0\0\5salt"), SECRET_MD5, NULL, NULL},
		{BODY("\0\0\0\5salt"), SECRET_NONE, "28P01", HAVE_NONE},
		{BODY("\0\0\0\5salt"), SECRET_SCRAM, "28P01", HAVE_NONE},
		{BODY("\0\0\0\5salt"), SECRET_SCRAM_KEYS, "28P01", HAVE_NONE},
		{BODY("\0\0\0\5sal"), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0\5salty"), SECRET_PLAIN, "08P01", NULL},
		{BODY(LIST), SECRET_PLAIN, NULL, NULL},
		{BODY("\0\0\0\12SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"), SECRET_PLAIN, NULL, NULL},
		{BODY(LIST), SECRET_SCRAM_KEYS, NULL, NULL},
		{BODY(LIST), SECRET_SCRAM, "28P01", HAVE_NONE},
		{BODY(LIST), SECRET_MD5, "28P01", HAVE_NONE},
		{BODY(LIST), SECRET_NONE, "28P01", HAVE_NONE},
		{BODY("\0\0\0\12SCRAM-SHA-256-PLUS\0\0"), SECRET_PLAIN, "0A000", OTHER_MECH},
		{BODY("\0\0\0\12\0"), SECRET_PLAIN, "0A000", OTHER_MECH},
		{BODY("\0\0\0\12"), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0\12SCRAM-SHA-256\0"), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0\12SCRAM-SHA-256"), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0\12SCRAM-SHA-256\0\0x"), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0\2"), SECRET_PLAIN, "0A000", NULL},
		{BODY("\0\0\0\6"), SECRET_PLAIN, "0A000", NULL},
		{BODY("\0\0\0\7"), SECRET_PLAIN, "0A000", NULL},
		{BODY("\0\0\0\10x"), SECRET_PLAIN, "0A000", NULL},
		{BODY("\0\0\0\11"), SECRET_PLAIN, "0A000", NULL},
		{BODY("\377\377\377\377"), SECRET_PLAIN, "0A000", NULL},
		{BODY("\0\0\0\13r=x"), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0\14v=x"), SECRET_PLAIN, "08P01", NULL},
		{BODY(""), SECRET_PLAIN, "08P01", NULL},
		{BODY("\0\0\0"), SECRET_PLAIN, "08P01", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct secret secret = make_secret(cases[i].kind);
		struct auth_login *l = auth_login_new("ann", &secret);
		struct buf out = BUF_INIT;
		struct pg_error err = {0};
		enum auth_verdict got = tell(l, cases[i].body, cases[i].len, &out, &err);

		if ((got == AUTH_CONTINUE) != !cases[i].sqlstate)
			fail_msg("case %zu: verdict %d", i, got);
		if (cases[i].sqlstate) {
			assert_int_equal(got, AUTH_REFUSED);
			assert_string_equal(err.sqlstate, cases[i].sqlstate);
			assert_string_equal(err.severity, "FATAL");
			if (cases[i].message)
				assert_string_equal(err.message, cases[i].message);
			assert_int_equal(buf_used(&out), 0);
			assert_false(auth_login_complete(l));
		} else {
			take_password(&out);
		}
		buf_free(&out);
		auth_login_free(&l);
		secret_erase(&secret);
	}
}

static void test_answers(void **state)
{
	static const enum secret_kind kinds[] = {SECRET_PLAIN, SECRET_MD5};
	char stored[36], want[36];
	struct buf out = BUF_INIT;
	struct pg_error err;

	(void)state;
	md5_secret(stored, "pencil", "ann");
	md5_response(want, stored, (const uint8_t *)"salt");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct secret secret = make_secret(kinds[i]);
		struct auth_login *l = auth_login_new("ann", &secret);
		struct wire_reader r;

		secret_erase(&secret); /* it was copied */
		assert_int_equal(tell(l, BODY("\0\0\0\5salt"), &out, &err), AUTH_CONTINUE);
		r = take_password(&out);
		assert_string_equal(wire_get_cstr(&r, NULL), want);
		assert_true(wire_done(&r));
		assert_true(auth_login_complete(l));
		auth_login_free(&l);
	}
	struct secret secret = make_secret(SECRET_PLAIN);
	struct auth_login *l = auth_login_new("ann", &secret);
	struct wire_reader r;

	assert_int_equal(tell(l, BODY("\0\0\0\3"), &out, &err), AUTH_CONTINUE);
	r = take_password(&out);
	assert_string_equal(wire_get_cstr(&r, NULL), "pencil");
	assert_true(wire_done(&r));
	auth_login_free(&l);
	secret_erase(&secret);
	buf_free(&out);
}

static void test_trust_and_no_secret(void **state)
{
	struct auth_login *l = auth_login_new("ann", NULL);
	struct buf out = BUF_INIT;
	struct pg_error err;

	(void)state;
	assert_true(auth_login_complete(l));
	assert_int_equal(tell(l, BODY("\0\0\0\0"), &out, &err), AUTH_ACCEPTED);
	assert_int_equal(tell(l, BODY("\0\0\0\3"), &out, &err), AUTH_REFUSED);
	assert_string_not_equal(err.hint, "");
	auth_login_free(&l);
	buf_free(&out);
}

/* A server for SCRAM: takes the client's messages, gives bodies of R messages. */
struct server {
	struct scram_server *scram;
	struct buf body;
};

static bool server_answers(struct server *sv, struct buf *from_client, bool first)
{
	struct wire_reader r = take_password(from_client);
	uint8_t key[SCRAM_KEY_LEN];
	enum scram_step step;
	int32_t len;

	buf_reset(&sv->body);
	build_i32(&sv->body, first ? 11 : 12);
	if (first) {
		assert_string_equal(wire_get_cstr(&r, NULL), "SCRAM-SHA-256");
		len = wire_get_i32(&r);
		assert_int_equal(len, wire_left(&r));
		step = scram_server_first(sv->scram, (const char *)r.pos, wire_left(&r), &sv->body);
	} else {
		step = scram_server_final(
			sv->scram, (const char *)r.pos, wire_left(&r), &sv->body, key);
	}
	if (buf_failed(&sv->body))
		return false;
	assert_int_equal(step, first ? SCRAM_CONTINUE : SCRAM_OK);
	return true;
}

/* A whole login; hostile: what the server does wrong. */
enum hostile { HONEST, LIES_AT_END, SKIPS_END, ASKS_AGAIN, OK_AT_ONCE, ERROR_AT_END };

static enum auth_verdict scram_login(
	enum secret_kind kind, enum hostile how, bool *ret_complete, struct pg_error *err)
{
	struct secret secret = make_secret(kind);
	struct scram_verifier v = secret.scram;
	struct auth_login *l = auth_login_new("ann", &secret);
	struct server sv = {.body = BUF_INIT};
	struct buf out = BUF_INIT;
	enum auth_verdict verdict = AUTH_REFUSED;

	pg_error_set(err, "53200", "out of memory");
	if (kind == SECRET_PLAIN)
		assert_true(scram_verifier_make(&v, "pencil", 8));
	sv.scram = scram_server_new(&v);
	if (!l || !sv.scram)
		goto done;
	verdict = tell(l, BODY(LIST), &out, err);
	if (verdict != AUTH_CONTINUE)
		goto done;
	assert_false(auth_login_complete(l));
	if (how == OK_AT_ONCE) {
		verdict = tell(l, BODY("\0\0\0\0"), &out, err);
		goto done;
	}
	if (how == ASKS_AGAIN) {
		verdict = tell(l, BODY("\0\0\0\3"), &out, err);
		goto done;
	}
	verdict = AUTH_REFUSED;
	if (!server_answers(&sv, &out, true))
		goto done;
	verdict = tell(l, (char *)sv.body.data, sv.body.len, &out, err);
	if (verdict != AUTH_CONTINUE)
		goto done;
	assert_false(auth_login_complete(l));
	if (how == SKIPS_END) {
		verdict = tell(l, BODY("\0\0\0\0"), &out, err);
		goto done;
	}
	verdict = AUTH_REFUSED;
	if (!server_answers(&sv, &out, false))
		goto done;
	if (how == LIES_AT_END)
		sv.body.data[10] = sv.body.data[10] == 'A' ? 'B' : 'A';
	if (how == ERROR_AT_END)
		verdict = tell(l, BODY("\0\0\0\14e=other-error"), &out, err);
	else
		verdict = tell(l, (char *)sv.body.data, sv.body.len, &out, err);
	assert_int_equal(buf_used(&out), 0);
	if (how == HONEST && verdict == AUTH_CONTINUE)
		verdict = tell(l, BODY("\0\0\0\0"), &out, err);
done:
	*ret_complete = l && auth_login_complete(l);
	buf_free(&out);
	buf_free(&sv.body);
	scram_server_free(&sv.scram);
	auth_login_free(&l);
	secret_erase(&secret);
	return verdict;
}

static void test_scram(void **state)
{
	static const struct {
		enum hostile how;
		const char *sqlstate;
	} cases[] = {
		{HONEST, NULL},
		{LIES_AT_END, "28P01"},
		{ERROR_AT_END, "28P01"},
		{SKIPS_END, "08P01"},
		{ASKS_AGAIN, "08P01"},
		{OK_AT_ONCE, "08P01"},
	};
	static const enum secret_kind kinds[] = {SECRET_PLAIN, SECRET_SCRAM_KEYS};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
			struct pg_error err;
			bool complete;
			enum auth_verdict got =
				scram_login(kinds[k], cases[i].how, &complete, &err);

			if (!cases[i].sqlstate) {
				assert_int_equal(got, AUTH_ACCEPTED);
				assert_true(complete);
				continue;
			}
			assert_int_equal(got, AUTH_REFUSED);
			assert_false(complete);
			assert_string_equal(err.sqlstate, cases[i].sqlstate);
		}
	}
}

/* server-first that cannot be answered: the words differ, and nothing is left in the output. */
static void test_server_first_refused(void **state)
{
	static const struct {
		enum secret_kind kind;
		const char *rest, *sqlstate;
	} cases[] = {
		{SECRET_PLAIN, ",s=AAAA,i=1000001", "28P01"},
		{SECRET_SCRAM_KEYS, ",s=AAAA,i=4096", "28P01"},
		{SECRET_PLAIN, ",s=AAAA,i=0", "08P01"},
		{SECRET_PLAIN, "", "08P01"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct secret secret = make_secret(cases[i].kind);
		struct auth_login *l = auth_login_new("ann", &secret);
		struct buf out = BUF_INIT, body = BUF_INIT;
		struct wire_reader r;
		struct pg_error err;

		assert_int_equal(tell(l, BODY(LIST), &out, &err), AUTH_CONTINUE);
		r = take_password(&out);
		wire_get_bytes(&r, sizeof("SCRAM-SHA-256") + 4 + strlen("n,,n=,"));
		build_i32(&body, 11);
		build_bytes(&body, r.pos, wire_left(&r));
		buf_puts(&body, "more");
		buf_puts(&body, cases[i].rest);
		assert_int_equal(tell(l, (char *)body.data, body.len, &out, &err), AUTH_REFUSED);
		assert_string_equal(err.sqlstate, cases[i].sqlstate);
		assert_int_equal(buf_used(&out), 0);
		buf_free(&out);
		buf_free(&body);
		auth_login_free(&l);
		secret_erase(&secret);
	}
}

static void test_no_memory(void **state)
{
	enum auth_verdict verdict = AUTH_REFUSED;
	unsigned long n = 1;

	(void)state;
	while (verdict != AUTH_ACCEPTED) {
		struct pg_error err;
		bool complete;

		mem_fail_after(n++);
		verdict = scram_login(SECRET_SCRAM_KEYS, HONEST, &complete, &err);
		mem_fail_after(0);
		if (verdict == AUTH_REFUSED)
			assert_string_equal(err.sqlstate, "53200");
		assert_true(n < 100);
	}
	assert_true(n > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests_and_secrets),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_trust_and_no_secret),
		cmocka_unit_test(test_scram),
		cmocka_unit_test(test_server_first_refused),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
