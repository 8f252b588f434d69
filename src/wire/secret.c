/*
 * What is known of a password: reading the stored forms, deriving SCRAM keys, comparing. Must not
 * know conversations (scram.c) or where secrets are kept. Entry points: secret_*, scram_verifier_*,
 * scram_keys_*, hash_*.
 */
#include "scram_int.h"

#include <limits.h>
#include <string.h>
#include <openssl/evp.h>

#include "base/mem.h"

#define SCRAM_PREFIX   "SCRAM-SHA-256$"
#define SCRAM_SALT_LEN 16
#define MD5_TEXT_LEN   35

bool hash_sha256(uint8_t dst[SCRAM_KEY_LEN], const void *p, size_t len)
{
	return EVP_Digest(p, len, dst, NULL, EVP_sha256(), NULL) == 1;
}

/* The inner half of an HMAC, or the outer one. md: NULL, that of the half before. */
static bool hmac_half(EVP_MD_CTX *ctx, const EVP_MD *md, uint8_t dst[SCRAM_KEY_LEN],
	const uint8_t key[SCRAM_KEY_LEN], int pad, const void *p, size_t len)
{
	uint8_t block[64];
	bool ok;

	memset(block, pad, sizeof(block));
	for (size_t i = 0; i < SCRAM_KEY_LEN; i++)
		block[i] ^= key[i];
	ok = EVP_DigestInit_ex(ctx, md, NULL) == 1 &&
	     EVP_DigestUpdate(ctx, block, sizeof(block)) == 1 &&
	     EVP_DigestUpdate(ctx, p, len) == 1 && EVP_DigestFinal_ex(ctx, dst, NULL) == 1;
	util_erase(block, sizeof(block));
	return ok;
}

/* RFC 2104 by hand: HMAC() of OpenSSL 3 looks up its algorithm several times over, which costs more
 * than the hashing. */
bool hash_hmac(
	uint8_t dst[SCRAM_KEY_LEN], const uint8_t key[SCRAM_KEY_LEN], const void *p, size_t len)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	uint8_t inner[SCRAM_KEY_LEN];
	bool ok = ctx != NULL && hmac_half(ctx, EVP_sha256(), inner, key, 0x36, p, len) &&
		  hmac_half(ctx, NULL, dst, key, 0x5c, inner, sizeof(inner));

	EVP_MD_CTX_free(ctx);
	util_erase(inner, sizeof(inner));
	return ok;
}

bool hash_private(uint8_t dst[SCRAM_KEY_LEN], const void *p, size_t len)
{
	static uint8_t key[SCRAM_KEY_LEN];
	static bool ready;

	if (!ready) {
		util_random(key, sizeof(key));
		ready = true;
	}
	return hash_hmac(dst, key, p, len);
}

static int limit = SCRAM_ITERATIONS_MAX;

void scram_set_limit(int rounds)
{
	limit = rounds;
}

int scram_limit(void)
{
	return limit;
}

static bool keys_derive(struct scram_keys *ret, const char *password, const uint8_t *salt,
	size_t salt_len, int iterations)
{
	size_t len = strlen(password);
	uint8_t salted[SCRAM_KEY_LEN];
	bool ok;

	if (iterations < 1 || iterations > SCRAM_ITERATIONS_MAX || len > INT_MAX ||
		salt_len > INT_MAX)
		return false;
	ok = PKCS5_PBKDF2_HMAC(password, (int)len, salt, (int)salt_len, iterations, EVP_sha256(),
		     sizeof(salted), salted) == 1 &&
	     hash_hmac(ret->client, salted, "Client Key", 10) &&
	     hash_hmac(ret->server, salted, "Server Key", 10) &&
	     hash_sha256(ret->stored, ret->client, sizeof(ret->client));
	util_erase(salted, sizeof(salted));
	return ok;
}

bool scram_keys_derive(struct scram_keys *ret, const char *password, const uint8_t *salt,
	size_t salt_len, int iterations)
{
	char *normal;
	bool ok;

	switch (saslprep(password, &normal)) {
	case SASLPREP_SAME:
		return keys_derive(ret, password, salt, salt_len, iterations);
	case SASLPREP_CHANGED:
		ok = keys_derive(ret, normal, salt, salt_len, iterations);
		util_erase(normal, strlen(normal));
		mem_free(normal);
		return ok;
	case SASLPREP_NO_MEMORY:
		break;
	}
	return false;
}

/*
 * A pool that opens many server connections with one password would pay a PBKDF2, milliseconds of
 * the loop, for each; so would we for each client that names a user whose password auth_query
 * tells. One slot per hash of password, salt and count; the tag is a keyed hash, so the password
 * itself is not kept. Not shared between threads.
 */
struct memo {
	bool used;
	uint8_t tag[SCRAM_KEY_LEN];
	struct scram_keys keys;
};
static struct memo memos[256];

static bool memo_tag(uint8_t tag[SCRAM_KEY_LEN], const char *password, const uint8_t *salt,
	size_t salt_len, int iterations)
{
	struct buf b = BUF_INIT;
	bool ok;

	buf_printf(&b, "%d %zu ", iterations, salt_len);
	buf_put(&b, salt, salt_len);
	buf_puts(&b, password);
	ok = !buf_failed(&b) && hash_private(tag, b.data, b.len);
	if (b.data)
		util_erase(b.data, b.cap);
	buf_free(&b);
	return ok;
}

bool scram_keys_recall(struct scram_keys *ret, const char *password, const uint8_t *salt,
	size_t salt_len, int iterations)
{
	uint8_t tag[SCRAM_KEY_LEN];
	struct memo *m;

	if (!memo_tag(tag, password, salt, salt_len, iterations))
		return scram_keys_derive(ret, password, salt, salt_len, iterations);
	m = &memos[tag[0] % ARRAY_LEN(memos)];
	if (m->used && util_equal_secret(m->tag, tag, sizeof(tag))) {
		*ret = m->keys;
		return true;
	}
	if (!scram_keys_derive(ret, password, salt, salt_len, iterations))
		return false;
	m->used = true;
	memcpy(m->tag, tag, sizeof(tag));
	m->keys = *ret;
	return true;
}

bool scram_verifier_make(struct scram_verifier *ret, const char *password, int iterations)
{
	struct scram_verifier v = {.iterations = iterations, .salt_len = SCRAM_SALT_LEN};
	struct scram_keys keys;
	bool ok;

	util_random(v.salt, v.salt_len);
	ok = scram_keys_derive(&keys, password, v.salt, v.salt_len, iterations);
	if (ok) {
		memcpy(v.stored_key, keys.stored, sizeof(v.stored_key));
		memcpy(v.server_key, keys.server, sizeof(v.server_key));
		*ret = v;
	}
	util_erase(&keys, sizeof(keys));
	util_erase(&v, sizeof(v));
	return ok;
}

static void salt_of(uint8_t salt[SCRAM_SALT_LEN], const char *user)
{
	uint8_t digest[SCRAM_KEY_LEN];

	if (!hash_private(digest, user, strlen(user)))
		util_random(digest, sizeof(digest));
	memcpy(salt, digest, SCRAM_SALT_LEN);
}

bool scram_verifier_recall(
	struct scram_verifier *ret, const char *user, const char *password, int iterations)
{
	struct scram_keys keys;
	bool ok;

	*ret = (struct scram_verifier){.iterations = iterations, .salt_len = SCRAM_SALT_LEN};
	salt_of(ret->salt, user);
	ok = scram_keys_recall(&keys, password, ret->salt, ret->salt_len, iterations);
	if (ok) {
		memcpy(ret->stored_key, keys.stored, sizeof(ret->stored_key));
		memcpy(ret->server_key, keys.server, sizeof(ret->server_key));
	}
	util_erase(&keys, sizeof(keys));
	return ok;
}

void scram_verifier_mock(struct scram_verifier *ret, const char *user, int iterations)
{
	*ret = (struct scram_verifier){.iterations = iterations, .salt_len = SCRAM_SALT_LEN};
	salt_of(ret->salt, user);
	/* Nobody knows a preimage of these. */
	util_random(ret->stored_key, sizeof(ret->stored_key));
	util_random(ret->server_key, sizeof(ret->server_key));
}

static bool is_md5_text(const char *text)
{
	return strncmp(text, "md5", 3) == 0 && strlen(text) == MD5_TEXT_LEN &&
	       strspn(text + 3, "0123456789abcdef") == MD5_TEXT_LEN - 3;
}

/* One of the two keys at the end of a verifier. */
static bool parse_key(const char *s, size_t len, uint8_t dst[SCRAM_KEY_LEN])
{
	size_t n;

	return base64_get(s, len, dst, SCRAM_KEY_LEN, &n) && n == SCRAM_KEY_LEN;
}

/* SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey> */
static bool parse_verifier(struct scram_verifier *ret, const char *text)
{
	const char *count, *salt, *stored, *server;
	int64_t iterations;

	if (strncmp(text, SCRAM_PREFIX, strlen(SCRAM_PREFIX)) != 0)
		return false;
	count = text + strlen(SCRAM_PREFIX);
	salt = strchr(count, ':');
	stored = salt ? strchr(salt, '$') : NULL;
	server = stored ? strchr(stored, ':') : NULL;
	if (!server || !util_parse_i64(count, (size_t)(salt - count), &iterations) ||
		iterations < 1 || iterations > INT_MAX)
		return false;
	ret->iterations = (int)iterations;
	return base64_get(salt + 1, (size_t)(stored - salt - 1), ret->salt, sizeof(ret->salt),
		       &ret->salt_len) &&
	       ret->salt_len > 0 &&
	       parse_key(stored + 1, (size_t)(server - stored - 1), ret->stored_key) &&
	       parse_key(server + 1, strlen(server + 1), ret->server_key);
}

bool secret_parse(struct secret *ret, const char *text)
{
	*ret = (struct secret){.kind = SECRET_NONE};
	if (!text || !text[0])
		return true;
	if (is_md5_text(text)) {
		ret->kind = SECRET_MD5;
		memcpy(ret->md5, text, MD5_TEXT_LEN + 1);
		return true;
	}
	if (parse_verifier(&ret->scram, text)) {
		ret->kind = SECRET_SCRAM;
		return true;
	}
	ret->scram = (struct scram_verifier){0};
	ret->plain = mem_strdup(text);
	if (!ret->plain)
		return false;
	ret->kind = SECRET_PLAIN;
	return true;
}

void secret_erase(struct secret *s)
{
	if (s->plain) {
		util_erase(s->plain, strlen(s->plain));
		mem_free(s->plain);
	}
	util_erase(s, sizeof(*s));
	*s = (struct secret){.kind = SECRET_NONE};
}

bool secret_copy(struct secret *ret, const struct secret *s)
{
	char *plain = NULL;

	if (s->plain) {
		plain = mem_strdup(s->plain);
		if (!plain)
			return false;
	}
	*ret = *s;
	ret->plain = plain;
	return true;
}

static bool verifier_equal(const struct scram_verifier *a, const struct scram_verifier *b)
{
	return a->iterations == b->iterations && a->salt_len == b->salt_len &&
	       memcmp(a->salt, b->salt, a->salt_len) == 0 &&
	       util_equal_secret(a->stored_key, b->stored_key, SCRAM_KEY_LEN) &&
	       util_equal_secret(a->server_key, b->server_key, SCRAM_KEY_LEN);
}

/* Comparing keyed hashes shows neither the length nor where two texts differ. */
static bool text_equal(const char *a, const char *b)
{
	uint8_t ha[SCRAM_KEY_LEN], hb[SCRAM_KEY_LEN];

	return hash_private(ha, a, strlen(a)) && hash_private(hb, b, strlen(b)) &&
	       util_equal_secret(ha, hb, sizeof(ha));
}

bool secret_equal(const struct secret *a, const struct secret *b)
{
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case SECRET_NONE:
		return true;
	case SECRET_PLAIN:
		return text_equal(a->plain, b->plain);
	case SECRET_MD5:
		return util_equal_secret(a->md5, b->md5, MD5_TEXT_LEN);
	case SECRET_SCRAM:
		return verifier_equal(&a->scram, &b->scram);
	case SECRET_SCRAM_KEYS:
		return verifier_equal(&a->scram, &b->scram) &&
		       util_equal_secret(a->client_key, b->client_key, SCRAM_KEY_LEN);
	}
	return false;
}

bool secret_matches(const struct secret *s, const char *user, const char *password,
	uint8_t ret_client_key[SCRAM_KEY_LEN])
{
	struct scram_keys keys;
	char md5[36];
	bool ok = false;

	switch (s->kind) {
	case SECRET_NONE:
		break;
	case SECRET_PLAIN:
		ok = text_equal(s->plain, password);
		break;
	case SECRET_MD5:
		md5_secret(md5, password, user);
		ok = util_equal_secret(s->md5, md5, MD5_TEXT_LEN);
		util_erase(md5, sizeof(md5));
		break;
	case SECRET_SCRAM:
	case SECRET_SCRAM_KEYS:
		ok = s->scram.iterations <= limit &&
		     scram_keys_derive(&keys, password, s->scram.salt, s->scram.salt_len,
			     s->scram.iterations) &&
		     util_equal_secret(s->scram.stored_key, keys.stored, SCRAM_KEY_LEN);
		if (ok && ret_client_key)
			memcpy(ret_client_key, keys.client, SCRAM_KEY_LEN);
		util_erase(&keys, sizeof(keys));
		break;
	}
	return ok;
}
