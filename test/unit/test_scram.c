/* SCRAM-SHA-256: the example of RFC 7677, both roles against each other, garbled and cut messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../src/wire/scram_int.h"
#include "base/mem.h"

/* RFC 7677, section 3: user "user", password "pencil". */
#define PENCIL                                                                                     \
	"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=" \
	":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
#define SERVER_NONCE "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
#define CLIENT_NONCE "rOprNGfwEbeRWgbNEkqO"
#define CLIENT_FIRST "n,,n=user,r=" CLIENT_NONCE
#define SERVER_FIRST "r=" CLIENT_NONCE SERVER_NONCE ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
#define CLIENT_FINAL                                                                               \
	"c=biws,r=" CLIENT_NONCE SERVER_NONCE ",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
#define SERVER_FINAL "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

static struct scram_verifier verifier_of(const char *text)
{
	struct secret s;

	assert_true(secret_parse(&s, text));
	assert_int_equal(s.kind, SECRET_SCRAM);
	return s.scram;
}

/* A server of the RFC's example, before the first message. */
static struct scram_server *rfc_server(void)
{
	struct scram_verifier v = verifier_of(PENCIL);
	struct scram_server *s = scram_server_new(&v);

	assert_non_null(s);
	scram_server_set_nonce(s, SERVER_NONCE);
	return s;
}

/* One step of the server on a copy that ends where the message ends. */
static enum scram_step first_on_copy(
	struct scram_server *s, const char *msg, size_t len, struct buf *out)
{
	char *copy = malloc(len ? len : 1);
	enum scram_step step;

	memcpy(copy, msg, len);
	step = scram_server_first(s, copy, len, out);
	free(copy);
	return step;
}

static enum scram_step final_on_copy(struct scram_server *s, const char *msg, size_t len,
	struct buf *out, uint8_t key[SCRAM_KEY_LEN])
{
	char *copy = malloc(len ? len : 1);
	enum scram_step step;

	memcpy(copy, msg, len);
	step = scram_server_final(s, copy, len, out, key);
	free(copy);
	return step;
}

static void test_rfc_example(void **state)
{
	struct scram_server *s = rfc_server();
	struct scram_verifier v = verifier_of(PENCIL);
	struct buf out = BUF_INIT;
	uint8_t key[SCRAM_KEY_LEN], stored[SCRAM_KEY_LEN];

	(void)state;
	assert_int_equal(
		first_on_copy(s, CLIENT_FIRST, strlen(CLIENT_FIRST), &out), SCRAM_CONTINUE);
	assert_string_equal(buf_cstr(&out), SERVER_FIRST);
	buf_reset(&out);
	assert_int_equal(final_on_copy(s, CLIENT_FINAL, strlen(CLIENT_FINAL), &out, key), SCRAM_OK);
	assert_string_equal(buf_cstr(&out), SERVER_FINAL);
	assert_true(hash_sha256(stored, key, sizeof(key)));
	assert_memory_equal(stored, v.stored_key, sizeof(stored));
	/* Nothing is said twice. */
	assert_int_equal(
		final_on_copy(s, CLIENT_FINAL, strlen(CLIENT_FINAL), &out, key), SCRAM_MALFORMED);
	buf_free(&out);
	scram_server_free(&s);
	assert_null(s);
}

static void test_first_messages(void **state)
{
	static const struct {
		const char *msg;
		enum scram_step want;
	} cases[] = {
		{"n,,n=,r=abc", SCRAM_CONTINUE},
		{"y,,n=,r=abc", SCRAM_CONTINUE},
		{"n,,n=user,r=abc,x=ext", SCRAM_CONTINUE},
		{"n,,n=user,r=~!=", SCRAM_CONTINUE},
		{"", SCRAM_MALFORMED},
		{"n", SCRAM_MALFORMED},
		{"n,", SCRAM_MALFORMED},
		{"n,,", SCRAM_MALFORMED},
		{"N,,n=,r=abc", SCRAM_MALFORMED},
		{"p=tls-server-end-point,,n=,r=abc", SCRAM_MALFORMED},
		{"n,a=admin,n=,r=abc", SCRAM_MALFORMED},
		{"n,x,n=,r=abc", SCRAM_MALFORMED},
		{"n,,m=ext,n=,r=abc", SCRAM_MALFORMED},
		{"n,,r=abc,n=", SCRAM_MALFORMED},
		{"n,,r=abc", SCRAM_MALFORMED},
		{"n,,n=", SCRAM_MALFORMED},
		{"n,,n=,", SCRAM_MALFORMED},
		{"n,,n=,r=", SCRAM_MALFORMED},
		{"n,,n=,r=a b", SCRAM_MALFORMED},
		{"n,,n=,r=a\x7F", SCRAM_MALFORMED},
		{"n,,n=,r=\xC3\xA4", SCRAM_MALFORMED},
		{"n,,n=,r=abc,", SCRAM_MALFORMED},
		{"n,,n=,r=abc,x", SCRAM_MALFORMED},
		{"n,,n=,r=abc,1=x", SCRAM_MALFORMED},
		{"n,,n,r=abc", SCRAM_MALFORMED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct scram_server *s = rfc_server();
		struct buf out = BUF_INIT;

		if (first_on_copy(s, cases[i].msg, strlen(cases[i].msg), &out) != cases[i].want)
			fail_msg("%s", cases[i].msg);
		if (cases[i].want != SCRAM_CONTINUE)
			assert_int_equal(buf_used(&out), 0);
		buf_free(&out);
		scram_server_free(&s);
	}
}

/* What a client says of channel binding, on a connection that has it. */
static void test_binding_flags(void **state)
{
	static const struct {
		const char *msg;
		bool chosen; /* the mechanism is that with -PLUS */
		enum scram_step want;
	} cases[] = {
		{"n,,n=,r=abc", false, SCRAM_CONTINUE},
		{"y,,n=,r=abc", false, SCRAM_REFUSED},
		{"p=tls-server-end-point,,n=,r=abc", false, SCRAM_MALFORMED},
		{"p=tls-server-end-point,,n=,r=abc", true, SCRAM_CONTINUE},
		{"p=tls-server-end-point,n=,r=abc", true, SCRAM_MALFORMED},
		{"p=tls-unique,,n=,r=abc", true, SCRAM_MALFORMED},
		{"p=,,n=,r=abc", true, SCRAM_MALFORMED},
		{"n,,n=,r=abc", true, SCRAM_MALFORMED},
		{"y,,n=,r=abc", true, SCRAM_MALFORMED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct scram_server *s = rfc_server();
		struct buf out = BUF_INIT;

		scram_server_bind(s, (const uint8_t *)"hash", 4, cases[i].chosen);
		if (first_on_copy(s, cases[i].msg, strlen(cases[i].msg), &out) != cases[i].want)
			fail_msg("%s, %d", cases[i].msg, cases[i].chosen);
		buf_free(&out);
		scram_server_free(&s);
	}
}

/* Both roles, each with what it believes the connection to be bound to. */
static enum scram_step converse_bound(
	const char *server_side, const char *client_side, bool offered)
{
	struct scram_server *s;
	struct scram_client *c;
	struct scram_verifier v;
	struct secret secret;
	struct buf first = BUF_INIT, second = BUF_INIT, third = BUF_INIT, last = BUF_INIT;
	uint8_t key[SCRAM_KEY_LEN];
	enum scram_step step;

	assert_true(secret_parse(&secret, "pencil"));
	assert_true(scram_verifier_make(&v, "pencil", 8));
	s = scram_server_new(&v);
	c = scram_client_new(&secret);
	assert_non_null(s);
	assert_non_null(c);
	if (server_side)
		scram_server_bind(s, (const uint8_t *)server_side, strlen(server_side), offered);
	if (client_side)
		scram_client_bind(c, (const uint8_t *)client_side, strlen(client_side), offered);
	scram_client_first(c, &first);
	step = scram_server_first(s, buf_cstr(&first), first.len, &second);
	if (step == SCRAM_CONTINUE)
		assert_int_equal(scram_client_continue(c, buf_cstr(&second), second.len, &third),
			SCRAM_CONTINUE);
	if (step == SCRAM_CONTINUE)
		step = scram_server_final(s, buf_cstr(&third), third.len, &last, key);
	if (step == SCRAM_OK)
		assert_int_equal(scram_client_verify(c, buf_cstr(&last), last.len), SCRAM_OK);
	buf_free(&first);
	buf_free(&second);
	buf_free(&third);
	buf_free(&last);
	scram_server_free(&s);
	scram_client_free(&c);
	secret_erase(&secret);
	return step;
}

static void test_binding(void **state)
{
	char longest[SCRAM_BINDING_MAX + 1];

	(void)state;
	memset(longest, 'x', SCRAM_BINDING_MAX);
	longest[SCRAM_BINDING_MAX] = '\0';
	assert_int_equal(converse_bound("certificate", "certificate", true), SCRAM_OK);
	assert_int_equal(converse_bound(longest, longest, true), SCRAM_OK);
	assert_int_equal(converse_bound("certificate", "another one", true), SCRAM_MALFORMED);
	assert_int_equal(converse_bound("certificate", "certificat", true), SCRAM_MALFORMED);
	/* the offer was taken away */
	assert_int_equal(converse_bound("certificate", "certificate", false), SCRAM_REFUSED);
	/* one side has no TLS: somebody ends it in between */
	assert_int_equal(converse_bound(NULL, "certificate", false), SCRAM_OK);
	assert_int_equal(converse_bound("certificate", NULL, false), SCRAM_OK);
	assert_int_equal(converse_bound(NULL, NULL, false), SCRAM_OK);
}

static void test_first_limits(void **state)
{
	static const struct {
		size_t nonce;
		enum scram_step want;
	} cases[] = {{SCRAM_NONCE_MAX, SCRAM_CONTINUE}, {SCRAM_NONCE_MAX + 1, SCRAM_MALFORMED},
		{60000, SCRAM_MALFORMED}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct scram_server *s = rfc_server();
		struct buf msg = BUF_INIT, out = BUF_INIT;

		buf_puts(&msg, "n,,n=,r=");
		for (size_t n = 0; n < cases[i].nonce; n++)
			buf_putc(&msg, 'x');
		assert_int_equal(
			scram_server_first(s, (char *)msg.data, msg.len, &out), cases[i].want);
		buf_free(&msg);
		buf_free(&out);
		scram_server_free(&s);
	}
	/* a zero byte is in no message */
	struct scram_server *s = rfc_server();
	struct buf out = BUF_INIT;

	assert_int_equal(first_on_copy(s, "n,,n=\0,r=abc", 12, &out), SCRAM_MALFORMED);
	buf_free(&out);
	scram_server_free(&s);
}

static void test_final_messages(void **state)
{
#define R "r=" CLIENT_NONCE SERVER_NONCE
#define P "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	static const struct {
		const char *msg;
		enum scram_step want;
	} cases[] = {
		{"c=biws," R "," P, SCRAM_OK},
		{"c=biws," R ",p=eHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", SCRAM_REFUSED},
		{"c=biws," R ",x=y," P, SCRAM_REFUSED}, /* signed text differs */
		{"c=eSws," R "," P, SCRAM_MALFORMED},   /* began with n, not y */
		{"c=biwsbiws," R "," P, SCRAM_MALFORMED},
		{"c=," R "," P, SCRAM_MALFORMED},
		{"c=biws,r=" CLIENT_NONCE "," P, SCRAM_MALFORMED},
		{"c=biws," R "x," P, SCRAM_MALFORMED},
		{"c=biws,r=," P, SCRAM_MALFORMED},
		{R ",c=biws," P, SCRAM_MALFORMED},
		{"c=biws," P "," R, SCRAM_MALFORMED},
		{"c=biws," R "," P ",x=y", SCRAM_MALFORMED},
		{"c=biws," R "," P ",", SCRAM_MALFORMED},
		{"c=biws," R ",p=", SCRAM_MALFORMED},
		{"c=biws," R ",p=AAAA", SCRAM_MALFORMED},
		{"c=biws," R "," P "AAAA", SCRAM_MALFORMED},
		{"c=biws," R ",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVR=", SCRAM_MALFORMED},
		{"c=biws," R, SCRAM_MALFORMED},
		{"c=biws," R ",", SCRAM_MALFORMED},
		{"c=biws", SCRAM_MALFORMED},
		{"", SCRAM_MALFORMED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct scram_server *s = rfc_server();
		struct buf out = BUF_INIT;
		uint8_t key[SCRAM_KEY_LEN];
		size_t before;

		assert_int_equal(
			first_on_copy(s, CLIENT_FIRST, strlen(CLIENT_FIRST), &out), SCRAM_CONTINUE);
		before = out.len;
		if (final_on_copy(s, cases[i].msg, strlen(cases[i].msg), &out, key) !=
			cases[i].want)
			fail_msg("%s", cases[i].msg);
		if (cases[i].want != SCRAM_OK)
			assert_int_equal(out.len, before);
		buf_free(&out);
		scram_server_free(&s);
	}
}

/* Every cut and every changed byte of an honest conversation: never OK, never a crash. */
static void test_server_harmed(void **state)
{
	(void)state;
	for (size_t i = 0; i < strlen(CLIENT_FINAL); i++) {
		for (int what = 0; what < 3; what++) {
			struct scram_server *s = rfc_server();
			struct buf out = BUF_INIT;
			char msg[] = CLIENT_FINAL;
			size_t len = what == 0 ? i : strlen(msg);
			uint8_t key[SCRAM_KEY_LEN];

			if (what)
				msg[i] = what == 1 ? (char)(msg[i] ^ 1) : ',';
			if (what && msg[i] == CLIENT_FINAL[i])
				len--;
			assert_int_equal(first_on_copy(s, CLIENT_FIRST, strlen(CLIENT_FIRST), &out),
				SCRAM_CONTINUE);
			assert_int_not_equal(final_on_copy(s, msg, len, &out, key), SCRAM_OK);
			buf_free(&out);
			scram_server_free(&s);
		}
	}
}

static void test_server_order(void **state)
{
	struct scram_server *s = rfc_server();
	struct buf out = BUF_INIT;
	uint8_t key[SCRAM_KEY_LEN];

	(void)state;
	assert_int_equal(
		final_on_copy(s, CLIENT_FINAL, strlen(CLIENT_FINAL), &out, key), SCRAM_MALFORMED);
	assert_int_equal(
		first_on_copy(s, CLIENT_FIRST, strlen(CLIENT_FIRST), &out), SCRAM_CONTINUE);
	assert_int_equal(
		first_on_copy(s, CLIENT_FIRST, strlen(CLIENT_FIRST), &out), SCRAM_MALFORMED);
	buf_free(&out);
	scram_server_free(&s);
}

/* --- both roles --- */

/* A whole conversation. Returns the server's verdict; the client's own in ret_client. */
static enum scram_step converse(const struct scram_verifier *v, const struct secret *secret,
	enum scram_step *ret_client, uint8_t key[SCRAM_KEY_LEN])
{
	struct scram_server *s = scram_server_new(v);
	struct scram_client *c = scram_client_new(secret);
	struct buf up = BUF_INIT, down = BUF_INIT;
	enum scram_step step = SCRAM_MALFORMED;

	*ret_client = SCRAM_MALFORMED;
	if (!s || !c)
		goto out;
	scram_client_first(c, &up);
	if (buf_failed(&up))
		goto out;
	step = scram_server_first(s, (char *)up.data, up.len, &down);
	if (buf_failed(&down) || step != SCRAM_CONTINUE)
		goto out;
	buf_reset(&up);
	*ret_client = scram_client_continue(c, (char *)down.data, down.len, &up);
	if (buf_failed(&up) || *ret_client != SCRAM_CONTINUE)
		goto out;
	buf_reset(&down);
	step = scram_server_final(s, (char *)up.data, up.len, &down, key);
	if (buf_failed(&down) || step != SCRAM_OK)
		goto out;
	*ret_client = scram_client_verify(c, (char *)down.data, down.len);
out:
	buf_free(&up);
	buf_free(&down);
	scram_server_free(&s);
	scram_client_free(&c);
	return step;
}

static void test_conversation(void **state)
{
	static const struct {
		const char *stored, *given;
		enum scram_step want;
	} cases[] = {
		{"pencil", "pencil", SCRAM_OK},
		{"pencil", "pencils", SCRAM_REFUSED},
		{"p\xC3\xA4sswort \xE2\x82\xAC", "p\xC3\xA4sswort \xE2\x82\xAC", SCRAM_OK},
		{"\xFF\xFE", "\xFF\xFE", SCRAM_OK},
		{",=,=", ",=,=", SCRAM_OK},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct scram_verifier v;
		struct secret plain, keys = {.kind = SECRET_SCRAM_KEYS};
		enum scram_step client;

		assert_true(scram_verifier_make(&v, cases[i].stored, 64));
		assert_true(secret_parse(&plain, cases[i].given));
		assert_int_equal(converse(&v, &plain, &client, keys.client_key), cases[i].want);
		if (cases[i].want == SCRAM_OK) {
			assert_int_equal(client, SCRAM_OK);
			/* Pass-through: the keys learnt log in where the verifier is the same. */
			keys.scram = v;
			assert_int_equal(converse(&v, &keys, &client, keys.client_key), SCRAM_OK);
			assert_int_equal(client, SCRAM_OK);
			/* and nowhere else */
			v.salt[0] ^= 1;
			assert_int_equal(
				converse(&v, &keys, &client, keys.client_key), SCRAM_CONTINUE);
			assert_int_equal(client, SCRAM_REFUSED);
			v.salt[0] ^= 1;
			v.iterations++;
			converse(&v, &keys, &client, keys.client_key);
			assert_int_equal(client, SCRAM_REFUSED);
		}
		secret_erase(&plain);
	}
}

static void test_mock_is_refused(void **state)
{
	struct secret plain;
	struct scram_verifier v;
	enum scram_step client;
	uint8_t key[SCRAM_KEY_LEN];

	(void)state;
	scram_verifier_mock(&v, "nobody", 4096);
	assert_true(secret_parse(&plain, "x"));
	assert_int_equal(converse(&v, &plain, &client, key), SCRAM_REFUSED);
	secret_erase(&plain);
}

static void test_no_memory(void **state)
{
	struct secret plain;
	struct scram_verifier v;
	enum scram_step client = SCRAM_MALFORMED;
	uint8_t key[SCRAM_KEY_LEN];
	unsigned long n = 1;

	(void)state;
	assert_true(scram_verifier_make(&v, "x", 2));
	assert_true(secret_parse(&plain, "x"));
	while (client != SCRAM_OK) {
		mem_fail_after(n++);
		converse(&v, &plain, &client, key);
		mem_fail_after(0);
		assert_true(n < 100);
	}
	assert_true(n > 5);
	secret_erase(&plain);
}

/* --- the client's role against a hostile server --- */

#define OURS "0123456789abcdefghijklmn"

static struct scram_client *started_client(const struct secret *secret, struct buf *out)
{
	struct scram_client *c = scram_client_new(secret);

	assert_non_null(c);
	scram_client_set_nonce(c, OURS);
	scram_client_first(c, out);
	assert_string_equal(buf_cstr(out), "n,,n=,r=" OURS);
	buf_reset(out);
	return c;
}

static void test_client_continue(void **state)
{
	static const struct {
		const char *msg;
		enum scram_step want;
	} cases[] = {
		{"r=" OURS "x,s=AAAA,i=1", SCRAM_CONTINUE},
		{"r=" OURS "x,s=AAAA,i=1,x=ext", SCRAM_CONTINUE},
		{"r=" OURS "x,s=AAAA,i=1000001", SCRAM_REFUSED},
		{"r=" OURS "x,s=AAAA,i=2147483648", SCRAM_REFUSED},
		{"r=" OURS "x,s=AAAA,i=99999999999999999999", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAAA,i=0", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAAA,i=-1", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAAA,i=", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAAA,i=1x", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAAA,i=1,", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAAA", SCRAM_MALFORMED},
		{"r=" OURS "x,s=,i=1", SCRAM_MALFORMED},
		{"r=" OURS "x,s=AAA,i=1", SCRAM_MALFORMED},
		{"r=" OURS ",s=AAAA,i=1", SCRAM_MALFORMED},
		{"r=x" OURS ",s=AAAA,i=1", SCRAM_MALFORMED},
		{"r=" OURS " ,s=AAAA,i=1", SCRAM_MALFORMED},
		{"r=,s=AAAA,i=1", SCRAM_MALFORMED},
		{"m=x,r=" OURS "x,s=AAAA,i=1", SCRAM_MALFORMED},
		{"s=AAAA,r=" OURS "x,i=1", SCRAM_MALFORMED},
		{"e=other-error", SCRAM_MALFORMED},
		{"", SCRAM_MALFORMED},
	};
	struct secret secret;

	(void)state;
	assert_true(secret_parse(&secret, "x"));
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf out = BUF_INIT;
		struct scram_client *c = started_client(&secret, &out);

		if (scram_client_continue(c, cases[i].msg, strlen(cases[i].msg), &out) !=
			cases[i].want)
			fail_msg("%s", cases[i].msg);
		if (cases[i].want != SCRAM_CONTINUE) {
			assert_int_equal(buf_used(&out), 0);
			assert_int_equal(scram_client_verify(c, "v=AAAA", 6), SCRAM_MALFORMED);
		}
		buf_free(&out);
		scram_client_free(&c);
	}
	secret_erase(&secret);
}

/* The rounds that a server may ask of us, and the figure that was too high. */
static void test_client_rounds(void **state)
{
	struct secret secret;
	struct buf out = BUF_INIT;
	struct scram_client *c;
	const char *few = "r=" OURS "x,s=AAAA,i=7", *many = "r=" OURS "x,s=AAAA,i=8";

	(void)state;
	assert_true(secret_parse(&secret, "x"));
	scram_set_limit(7);
	c = started_client(&secret, &out);
	assert_int_equal(scram_client_continue(c, few, strlen(few), &out), SCRAM_CONTINUE);
	assert_int_equal(scram_client_too_many(c), 0);
	scram_client_free(&c);
	buf_reset(&out);
	c = started_client(&secret, &out);
	assert_int_equal(scram_client_continue(c, many, strlen(many), &out), SCRAM_REFUSED);
	assert_int_equal(scram_client_too_many(c), 8);
	scram_client_free(&c);
	scram_set_limit(SCRAM_ITERATIONS_MAX);
	buf_free(&out);
	secret_erase(&secret);
}

static void test_client_limits(void **state)
{
	struct secret secret;

	(void)state;
	assert_true(secret_parse(&secret, "x"));
	for (size_t extra = 230; extra < 234; extra++) {
		struct buf out = BUF_INIT, msg = BUF_INIT;
		struct scram_client *c = started_client(&secret, &out);
		bool fits = extra + strlen(OURS) <= SCRAM_NONCE_MAX;

		buf_puts(&msg, "r=" OURS);
		for (size_t i = 0; i < extra; i++)
			buf_putc(&msg, 'y');
		buf_puts(&msg, ",s=AAAA,i=1");
		assert_int_equal(scram_client_continue(c, (char *)msg.data, msg.len, &out),
			fits ? SCRAM_CONTINUE : SCRAM_MALFORMED);
		buf_free(&msg);
		buf_free(&out);
		scram_client_free(&c);
	}
	/* a salt of 66 bytes */
	struct buf out = BUF_INIT, msg = BUF_INIT;
	struct scram_client *c = started_client(&secret, &out);

	buf_puts(&msg, "r=" OURS "x,s=");
	for (int i = 0; i < 22; i++)
		buf_puts(&msg, "AAAA");
	buf_puts(&msg, ",i=1");
	assert_int_equal(
		scram_client_continue(c, (char *)msg.data, msg.len, &out), SCRAM_MALFORMED);
	buf_free(&msg);
	buf_free(&out);
	scram_client_free(&c);
	secret_erase(&secret);
}

/* server-final: only the true signature counts. */
static void test_client_verify(void **state)
{
	static const char *const bad[] = {"", "v=", "v=AAAA", "e=invalid-proof", "x=y", "v",
		"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,"};
	struct secret secret;

	(void)state;
	assert_true(secret_parse(&secret, "x"));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct buf out = BUF_INIT;
		struct scram_client *c = started_client(&secret, &out);

		assert_int_equal(scram_client_verify(c, "v=AAAA", 6), SCRAM_MALFORMED);
		assert_int_equal(scram_client_continue(c, "r=" OURS "x,s=AAAA,i=1",
					 strlen("r=" OURS "x,s=AAAA,i=1"), &out),
			SCRAM_CONTINUE);
		assert_int_not_equal(scram_client_verify(c, bad[i], strlen(bad[i])), SCRAM_OK);
		buf_free(&out);
		scram_client_free(&c);
	}
	secret_erase(&secret);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rfc_example),
		cmocka_unit_test(test_first_messages),
		cmocka_unit_test(test_binding_flags),
		cmocka_unit_test(test_binding),
		cmocka_unit_test(test_first_limits),
		cmocka_unit_test(test_final_messages),
		cmocka_unit_test(test_server_harmed),
		cmocka_unit_test(test_server_order),
		cmocka_unit_test(test_conversation),
		cmocka_unit_test(test_mock_is_refused),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_client_continue),
		cmocka_unit_test(test_client_rounds),
		cmocka_unit_test(test_client_limits),
		cmocka_unit_test(test_client_verify),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
