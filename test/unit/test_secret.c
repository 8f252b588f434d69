/* Stored forms of a password: reading, copying, comparing; keys; lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "../../src/wire/scram_int.h"
#include "base/mem.h"

/* What PostgreSQL stores for password "pencil" with the salt and count of RFC 7677. */
#define PENCIL                                                                                     \
	"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=" \
	":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="

/* As OpenSSL does it, for each length up to several blocks. */
static void test_hmac(void **state)
{
	uint8_t key[SCRAM_KEY_LEN], text[300], ours[SCRAM_KEY_LEN], theirs[SCRAM_KEY_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + 3);
	for (size_t len = 0; len <= sizeof(text); len++) {
		memset(key, (int)len, sizeof(key));
		key[len % sizeof(key)] = 0xa5;
		assert_true(hash_hmac(ours, key, text, len));
		assert_non_null(HMAC(EVP_sha256(), key, sizeof(key), text, len, theirs, NULL));
		assert_memory_equal(ours, theirs, sizeof(ours));
	}
	/* its result may be what it is made of */
	memcpy(text, theirs, sizeof(theirs));
	assert_true(hash_hmac(ours, key, text, SCRAM_KEY_LEN));
	assert_true(hash_hmac(text, key, text, SCRAM_KEY_LEN));
	assert_memory_equal(ours, text, sizeof(ours));
}

static void test_parse(void **state)
{
	static const struct {
		const char *text;
		enum secret_kind kind;
	} cases[] = {
		{"", SECRET_NONE},
		{"x", SECRET_PLAIN},
		{"md5", SECRET_PLAIN},
		{"md5d41d8cd98f00b204e9800998ecf8427e", SECRET_MD5},
		{"md5D41D8CD98F00B204E9800998ECF8427E", SECRET_PLAIN},
		{"md5d41d8cd98f00b204e9800998ecf8427", SECRET_PLAIN},
		{"md5d41d8cd98f00b204e9800998ecf8427e0", SECRET_PLAIN},
		{"md5g41d8cd98f00b204e9800998ecf8427e", SECRET_PLAIN},
		{PENCIL, SECRET_SCRAM},
		{PENCIL "x", SECRET_PLAIN},
		{"SCRAM-SHA-256$", SECRET_PLAIN},
		{"SCRAM-SHA-256$4096", SECRET_PLAIN},
		{"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==", SECRET_PLAIN},
		{"SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$AAAA:AAAA", SECRET_PLAIN},
		{"SCRAM-SHA-256$0:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
		 ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
			SECRET_PLAIN},
		{"SCRAM-SHA-256$4096:$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
		 ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
			SECRET_PLAIN},
		{"SCRAM-SHA-1$4096:x$y:z", SECRET_PLAIN},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct secret s, copy;

		assert_true(secret_parse(&s, cases[i].text));
		if (s.kind != cases[i].kind)
			fail_msg("%s: kind %d", cases[i].text, s.kind);
		assert_true(secret_copy(&copy, &s));
		assert_true(secret_equal(&copy, &s));
		if (s.kind == SECRET_PLAIN) {
			assert_string_equal(s.plain, cases[i].text);
			assert_ptr_not_equal(s.plain, copy.plain);
		}
		secret_erase(&s);
		secret_erase(&copy);
		assert_int_equal(s.kind, SECRET_NONE);
		assert_null(s.plain);
	}
}

static void test_parse_every_cut(void **state)
{
	(void)state;
	for (size_t cut = 1; cut < sizeof(PENCIL) - 1; cut++) {
		char text[sizeof(PENCIL)];
		struct secret s;

		memcpy(text, PENCIL, cut);
		text[cut] = '\0';
		assert_true(secret_parse(&s, text));
		assert_int_equal(s.kind, SECRET_PLAIN);
		secret_erase(&s);
	}
}

static void test_matches(void **state)
{
	static const struct {
		const char *stored, *password;
		bool want;
	} cases[] = {
		{"pencil", "pencil", true},
		{"pencil", "pencil2", false},
		{"pencil", "penci", false},
		{"pencil", "", false},
		{"", "", false},
		{"", "x", false},
		{PENCIL, "pencil", true},
		{PENCIL, "pencils", false},
		{"md51b04ed2e7c5c1c6c2ab4f6f0e6e1c7b1", "x", false},
	};
	struct secret s = {.kind = SECRET_MD5};
	uint8_t key[SCRAM_KEY_LEN], hashed[SCRAM_KEY_LEN];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct secret t;

		assert_true(secret_parse(&t, cases[i].stored));
		assert_int_equal(secret_matches(&t, "u", cases[i].password, NULL), cases[i].want);
		secret_erase(&t);
	}
	md5_secret(s.md5, "pencil", "u");
	assert_true(secret_matches(&s, "u", "pencil", NULL));
	assert_false(secret_matches(&s, "v", "pencil", NULL));

	/* The client key that comes out belongs to the verifier. */
	assert_true(secret_parse(&s, PENCIL));
	assert_true(secret_matches(&s, "u", "pencil", key));
	assert_true(hash_sha256(hashed, key, sizeof(key)));
	assert_memory_equal(hashed, s.scram.stored_key, sizeof(hashed));
}

static void test_equal(void **state)
{
	static const char *const texts[] = {"", "a", "b", "md5d41d8cd98f00b204e9800998ecf8427e",
		"md5d41d8cd98f00b204e9800998ecf8427f", PENCIL};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		for (size_t k = 0; k < ARRAY_LEN(texts); k++) {
			struct secret a, b;

			assert_true(secret_parse(&a, texts[i]));
			assert_true(secret_parse(&b, texts[k]));
			assert_int_equal(secret_equal(&a, &b), i == k);
			secret_erase(&a);
			secret_erase(&b);
		}
	}
}

static void test_verifier_make(void **state)
{
	struct scram_verifier a, b;
	struct scram_keys k;

	(void)state;
	assert_true(scram_verifier_make(&a, "x", 2));
	assert_true(scram_verifier_make(&b, "x", 2));
	assert_memory_not_equal(a.salt, b.salt, a.salt_len);
	assert_int_equal(a.salt_len, 16);
	assert_true(scram_keys_derive(&k, "x", a.salt, a.salt_len, 2));
	assert_memory_equal(k.stored, a.stored_key, sizeof(k.stored));
	assert_false(scram_verifier_make(&a, "x", 0));
	assert_false(scram_verifier_make(&a, "x", -1));
	assert_false(scram_verifier_make(&a, "x", SCRAM_ITERATIONS_MAX + 1));
}

/* The same user and password give the same verifier again, with the salt that he is shown when he
 * is not known; another one gets another. */
static void test_verifier_recall(void **state)
{
	struct scram_verifier a, b, mock;
	struct scram_keys k;

	(void)state;
	assert_true(scram_verifier_recall(&a, "ann", "x", 2));
	assert_true(scram_verifier_recall(&b, "ann", "x", 2));
	assert_memory_equal(&a, &b, sizeof(a));
	scram_verifier_mock(&mock, "ann", 2);
	assert_memory_equal(a.salt, mock.salt, a.salt_len);
	assert_true(scram_keys_derive(&k, "x", a.salt, a.salt_len, 2));
	assert_memory_equal(k.stored, a.stored_key, sizeof(k.stored));
	assert_true(scram_verifier_recall(&b, "bob", "x", 2));
	assert_memory_not_equal(a.salt, b.salt, a.salt_len);
	assert_true(scram_verifier_recall(&b, "ann", "y", 2));
	assert_memory_not_equal(a.stored_key, b.stored_key, sizeof(a.stored_key));
}

/* A secret with more rounds than we do for others matches nothing. */
static void test_limit(void **state)
{
	struct secret s = {.kind = SECRET_SCRAM};

	(void)state;
	assert_int_equal(scram_limit(), SCRAM_ITERATIONS_MAX);
	assert_true(scram_verifier_make(&s.scram, "x", 3));
	scram_set_limit(2);
	assert_false(secret_matches(&s, "u", "x", NULL));
	scram_set_limit(3);
	assert_true(secret_matches(&s, "u", "x", NULL));
	/* our own rounds are our own business */
	assert_true(scram_verifier_make(&s.scram, "x", 4));
	scram_set_limit(SCRAM_ITERATIONS_MAX);
}

static void test_verifier_mock(void **state)
{
	struct scram_verifier a, b, c;

	(void)state;
	scram_verifier_mock(&a, "ann", 4096);
	scram_verifier_mock(&b, "ann", 4096);
	scram_verifier_mock(&c, "bob", 4096);
	assert_int_equal(a.iterations, 4096);
	assert_memory_equal(a.salt, b.salt, a.salt_len);
	assert_memory_not_equal(a.salt, c.salt, a.salt_len);
}

static void test_recall_is_derive(void **state)
{
	struct scram_keys want, got;
	uint8_t salt[4] = {0};

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (uint8_t i = 0; i < 200; i++) {
			salt[0] = i;
			assert_true(scram_keys_derive(&want, "pw", salt, sizeof(salt), 1));
			assert_true(scram_keys_recall(&got, "pw", salt, sizeof(salt), 1));
			assert_memory_equal(&want, &got, sizeof(want));
		}
	}
	assert_false(scram_keys_recall(&got, "pw", salt, sizeof(salt), 0));
	mem_fail_after(1);
	assert_true(scram_keys_recall(&got, "pw", salt, sizeof(salt), 1));
	mem_fail_after(0);
	assert_memory_equal(&want, &got, sizeof(want));
}

static void test_no_memory(void **state)
{
	struct secret s, copy;

	(void)state;
	mem_fail_after(1);
	assert_false(secret_parse(&s, "plain"));
	mem_fail_after(0);
	assert_true(secret_parse(&s, "plain"));
	mem_fail_after(1);
	assert_false(secret_copy(&copy, &s));
	mem_fail_after(0);
	secret_erase(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hmac),
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_parse_every_cut),
		cmocka_unit_test(test_matches),
		cmocka_unit_test(test_equal),
		cmocka_unit_test(test_verifier_make),
		cmocka_unit_test(test_verifier_recall),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_verifier_mock),
		cmocka_unit_test(test_recall_is_derive),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
