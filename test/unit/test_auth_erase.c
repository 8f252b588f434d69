/*
 * What is freed holds no secret. The allocator is made here once more, with a look at each block
 * that goes back: passwords and keys may be in none of them, whatever way a conversation goes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../src/wire/scram_int.h"
#include "auth/auth.h"
#include "wire/msg.h"

static void look_and_free(void *p);
static void *look_and_realloc(void *p, size_t size);

#define free(p)          look_and_free(p)
#define realloc(p, size) look_and_realloc(p, size)
#include "../../src/base/mem.c"
#undef free
#undef realloc

#define PASSWORD "correct horse battery staple"
#define ROUNDS   64

static struct needle {
	const char *what;
	uint8_t bytes[64];
	size_t len;
} needles[5];
static size_t n_needles, n_seen;
static const char *found; /* the first one */
static bool looking;

static void add(const char *what, const void *bytes, size_t len)
{
	struct needle *n = &needles[n_needles++];

	assert_true(len <= sizeof(n->bytes) && n_needles <= ARRAY_LEN(needles));
	n->what = what;
	n->len = len;
	memcpy(n->bytes, bytes, len);
}

static void look(const void *p)
{
	n_seen++;
	for (size_t i = 0; looking && i < n_needles; i++)
		if (found == NULL && memmem(p, malloc_usable_size((void *)p), needles[i].bytes,
					     needles[i].len) != NULL)
			found = needles[i].what;
}

static void look_and_free(void *p)
{
	if (p != NULL)
		look(p);
	free(p);
}

/* Moves always: what stays behind was freed. */
static void *look_and_realloc(void *p, size_t size)
{
	size_t old = p != NULL ? malloc_usable_size(p) : 0;
	void *moved = malloc(size);

	if (moved == NULL)
		return NULL;
	if (p != NULL) {
		memcpy(moved, p, old < size ? old : size);
		look_and_free(p);
	}
	return moved;
}

static struct scram_verifier verifier;
static char md5[36];
static char path[] = "/tmp/qb_auth_erase_XXXXXX";

static int setup(void **state)
{
	struct scram_keys keys;
	char err[256];
	int fd = mkstemp(path);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

	(void)state;
	if (f == NULL || !scram_verifier_make(&verifier, PASSWORD, ROUNDS) ||
		!scram_keys_derive(&keys, PASSWORD, verifier.salt, verifier.salt_len, ROUNDS))
		return -1;
	setvbuf(f, NULL, _IONBF, 0); /* its buffer would be freed with all of this in it */
	md5_secret(md5, PASSWORD, "hash");
	add("the password", PASSWORD, strlen(PASSWORD));
	add("the client's key", keys.client, sizeof(keys.client));
	add("the server's key", verifier.server_key, sizeof(verifier.server_key));
	add("the stored key", verifier.stored_key, sizeof(verifier.stored_key));
	add("the hash of the password", md5, strlen(md5));
	fprintf(f, "\"plain\" \"%s\"\n\"hash\" \"%s\"\n", PASSWORD, md5);
	fclose(f);
	looking = true;
	return auth_file_load(path, err, sizeof(err)) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static void nothing_found(void)
{
	if (found != NULL)
		fail_msg("%s is in a block that was freed", found);
}

/* The looking works: or all of these tests would pass for ever. */
static void test_it_is_seen(void **state)
{
	char *p = mem_strdup("a " PASSWORD);
	size_t before = n_seen;

	(void)state;
	assert_non_null(p);
	mem_free(p);
	assert_int_equal(n_seen, before + 1);
	assert_string_equal(found, "the password");
	found = NULL;
	p = mem_strdup(PASSWORD);
	assert_non_null(p);
	p = mem_realloc(p, 1000);
	assert_non_null(p);
	assert_string_equal(found, "the password");
	util_erase(p, 1000);
	found = NULL;
	mem_free(p);
	nothing_found();
}

static struct secret secret_of(enum secret_kind kind)
{
	struct secret s = {.kind = SECRET_NONE};

	if (kind == SECRET_PLAIN) {
		assert_true(secret_parse(&s, PASSWORD));
	} else if (kind == SECRET_MD5) {
		assert_true(secret_parse(&s, md5));
	} else {
		s.kind = SECRET_SCRAM;
		s.scram = verifier;
		assert_true(secret_matches(&s, "u", PASSWORD, s.client_key));
		s.kind = kind;
	}
	return s;
}

static const enum secret_kind kinds[] = {SECRET_PLAIN, SECRET_MD5, SECRET_SCRAM, SECRET_SCRAM_KEYS};

static void test_secrets(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct secret s = secret_of(kinds[i]), copy, zero;

		assert_true(secret_copy(&copy, &s));
		assert_true(secret_equal(&copy, &s));
		assert_true(secret_matches(&s, "hash", PASSWORD, NULL));
		secret_erase(&s);
		secret_erase(&copy);
		memset(&zero, 0, sizeof(zero));
		assert_memory_equal(&s, &zero, sizeof(zero));
		nothing_found();
	}
}

static void test_buffers(void **state)
{
	struct buf b = BUF_INIT;

	(void)state;
	b.secret = true;
	for (int i = 0; i < 100; i++) /* and grows */
		build_cstr(&b, PASSWORD);
	buf_free(&b);
	nothing_found();
	build_cstr(&b, PASSWORD);
	mem_fail_after(1);
	build_bytes(&b, (uint8_t[1000]){0}, 1000);
	mem_fail_after(0);
	assert_true(buf_failed(&b));
	buf_free(&b);
	nothing_found();
}

/* --- a client logs in --- */

static int code_of(struct buf *out, struct wire_reader *r)
{
	struct wire_msg m;

	if (buf_failed(out) || wire_next(out->data, out->len, &m) != WIRE_NEXT_OK)
		return -1;
	wire_reader_init(r, m.body, m.have);
	return wire_get_i32(r);
}

static void put_first(struct buf *b, struct scram_client *c)
{
	struct buf text = {.secret = true};

	scram_client_first(c, &text);
	build_cstr(b, "SCRAM-SHA-256");
	build_i32(b, (int32_t)text.len);
	build_bytes(b, text.data, text.len);
	buf_free(&text);
}

/* up_to: so many messages of the client's, then it goes away. */
static void log_in(const struct auth_request *req, const char *password, int up_to)
{
	struct buf out = {.secret = true}, in = {.secret = true};
	struct wire_reader r;
	struct pg_error err;
	enum auth_verdict v;
	struct auth_session *s = auth_session_new(req, &out, &v, &err);
	struct secret given = {.kind = SECRET_NONE};
	struct scram_client *c = NULL;
	char answer[36], hash[36];

	for (int n = 0; s != NULL && v == AUTH_CONTINUE && n < up_to; n++) {
		switch (code_of(&out, &r)) {
		case 3:
			build_cstr(&in, password);
			break;
		case 5:
			md5_secret(hash, password, req->user);
			md5_response(answer, hash, wire_get_bytes(&r, 4));
			build_cstr(&in, answer);
			util_erase(hash, sizeof(hash));
			break;
		case 10:
			if (secret_parse(&given, password) &&
				(c = scram_client_new(&given)) != NULL)
				put_first(&in, c);
			break;
		case 11:
			if (scram_client_continue(c, (const char *)r.pos, wire_left(&r), &in) !=
				SCRAM_CONTINUE)
				n = up_to;
			break;
		}
		if (buf_failed(&in) || in.len == 0)
			break;
		buf_reset(&out);
		v = auth_session_message(s, in.data, in.len, &out, &err);
		buf_reset(&in);
	}
	secret_erase(&given);
	scram_client_free(&c);
	auth_session_free(&s);
	buf_free(&in);
	buf_free(&out);
}

static void each_login(enum auth_type type, const char *password)
{
	static const char *const users[] = {"plain", "hash", "nobody"};
	struct auth_request req = {.type = type, .scram_iterations = ROUNDS};

	for (size_t u = 0; u < ARRAY_LEN(users); u++) {
		req.user = users[u];
		for (int up_to = 0; up_to <= 2; up_to++)
			log_in(&req, password, up_to);
	}
	req.looked_up = true;
	req.user = "hash";
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		struct secret s = secret_of(kinds[k]);

		req.secret = &s;
		for (int up_to = 0; up_to <= 2; up_to++)
			log_in(&req, password, up_to);
		secret_erase(&s);
	}
	nothing_found();
}

static void test_clients(void **state)
{
	static const enum auth_type types[] = {
		AUTH_PLAIN, AUTH_MD5, AUTH_SCRAM, AUTH_PAM, AUTH_LDAP};

	(void)state;
	for (size_t t = 0; t < ARRAY_LEN(types); t++) {
		each_login(types[t], PASSWORD);
		each_login(types[t], PASSWORD " not");
	}
}

static void test_clients_without_memory(void **state)
{
	struct auth_request req = {.type = AUTH_PLAIN, .user = "plain", .scram_iterations = ROUNDS};

	(void)state;
	for (int scram = 0; scram <= 1; scram++) {
		req.type = scram ? AUTH_SCRAM : AUTH_PLAIN;
		for (unsigned long n = 1; n < 60; n++) {
			mem_fail_after(n);
			log_in(&req, PASSWORD, 2);
			mem_fail_after(0);
			nothing_found();
		}
	}
}

/* --- we log in to a server, and the file is read --- */

static void test_servers(void **state)
{
	static const struct {
		const char *body;
		size_t len;
	} asks[] = {{"\0\0\0\3", 4}, {"\0\0\0\5abcd", 8}, {"\0\0\0\12SCRAM-SHA-256\0\0", 20}};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		for (size_t a = 0; a < ARRAY_LEN(asks); a++) {
			struct secret s = secret_of(kinds[k]);
			struct buf out = {.secret = true};
			struct pg_error err;
			struct auth_login *l = auth_login_new("hash", &s);

			assert_non_null(l);
			secret_erase(&s);
			auth_login_message(
				l, (const uint8_t *)asks[a].body, asks[a].len, &out, &err);
			auth_login_free(&l);
			buf_free(&out);
			nothing_found();
		}
	}
}

static void test_the_file(void **state)
{
	char err[256];

	(void)state;
	auth_user_learn("plain", &verifier, verifier.stored_key);
	assert_true(auth_file_load(path, err, sizeof(err)));
	nothing_found();
	for (unsigned long n = 1; n < 40; n++) {
		bool ok;

		mem_fail_after(n);
		ok = auth_file_load(path, err, sizeof(err));
		mem_fail_after(0);
		(void)ok;
		nothing_found();
	}
	auth_file_free();
	nothing_found();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_seen),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_clients),
		cmocka_unit_test(test_clients_without_memory),
		cmocka_unit_test(test_servers),
		cmocka_unit_test(test_the_file),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
