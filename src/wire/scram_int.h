/*
 * Shared by the files of the password schemes: hashes, base64, keys. Tests include it for the fixed
 * nonces that known vectors need.
 */
#ifndef QB_WIRE_SCRAM_INT_H
#define QB_WIRE_SCRAM_INT_H

#include "wire/scram.h"

#define SCRAM_NONCE_RAW  18   /* random bytes of our nonce, as Postgres */
#define SCRAM_NONCE_ROOM 40   /* for their base64, 24, and for the longer ones of known vectors */
#define SCRAM_MSG_MAX    2048 /* no honest message comes near */

/* All three are derived from a password, a salt and a count. */
struct scram_keys {
	uint8_t client[SCRAM_KEY_LEN];
	uint8_t stored[SCRAM_KEY_LEN];
	uint8_t server[SCRAM_KEY_LEN];
};

MUST_CHECK bool hash_sha256(uint8_t dst[SCRAM_KEY_LEN], const void *p, size_t len);
MUST_CHECK bool hash_hmac(
	uint8_t dst[SCRAM_KEY_LEN], const uint8_t key[SCRAM_KEY_LEN], const void *p, size_t len);
/* Keyed with a random key of this process. */
MUST_CHECK bool hash_private(uint8_t dst[SCRAM_KEY_LEN], const void *p, size_t len);

#define SASLPREP_MAX 65536 /* longer passwords are taken as they are */
/* CHANGED: *ret is the normal form, to be erased and freed. SAME: ASCII, or what SASLprep does not
 * allow, or built without it; the bytes count as they are. */
enum saslprep { SASLPREP_SAME, SASLPREP_CHANGED, SASLPREP_NO_MEMORY };
MUST_CHECK enum saslprep saslprep(const char *password, char **ret);

/* false: count out of range, or the library failed. */
MUST_CHECK bool scram_keys_derive(struct scram_keys *ret, const char *password, const uint8_t *salt,
	size_t salt_len, int iterations);
/* The same through a small memory, for passwords that we know ourselves: of the configuration, of
 * auth_query. */
MUST_CHECK bool scram_keys_recall(struct scram_keys *ret, const char *password, const uint8_t *salt,
	size_t salt_len, int iterations);

void base64_put(struct buf *out, const uint8_t *p, size_t len);
/* Strict: padded, canonical, nothing else in between. false: malformed or longer than size. */
MUST_CHECK bool base64_get(const char *s, size_t len, uint8_t *dst, size_t size, size_t *ret_len);

void scram_server_set_nonce(struct scram_server *s, const char *nonce);
void scram_client_set_nonce(struct scram_client *c, const char *nonce);

#endif
