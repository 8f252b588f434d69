/*
 * Password schemes: md5 and SCRAM-SHA-256, both roles (RFC 5802, RFC 7677; Postgres documentation
 * "SASL Authentication"). Pure: text in, text out; the caller moves the messages. Nonces and
 * messages of the peer are hostile: lengths bounded, iteration counts capped.
 */
#ifndef QB_WIRE_SCRAM_H
#define QB_WIRE_SCRAM_H

#include "base/buf.h"

#define SCRAM_KEY_LEN         32
#define SCRAM_NONCE_MAX       256
#define SCRAM_ITERATIONS_MAX  1000000
#define SCRAM_BINDING_MAX     64

/*
 * The rounds that we do for others in the event loop: what a server may ask of us, and what a verifier
 * that a password is compared with may have. At most, and by default, SCRAM_ITERATIONS_MAX.
 */
void scram_set_limit(int rounds);
int scram_limit(void);

/* What is known about a user's secret. Filled by secret_parse() or scram_* below. */
enum secret_kind { SECRET_NONE, SECRET_PLAIN, SECRET_MD5, SECRET_SCRAM, SECRET_SCRAM_KEYS };

struct scram_verifier {
	int iterations;
	uint8_t salt[64];
	size_t salt_len;
	uint8_t stored_key[SCRAM_KEY_LEN];
	uint8_t server_key[SCRAM_KEY_LEN];
};

struct secret {
	enum secret_kind kind;
	char *plain;                           /* PLAIN; owned */
	char md5[36];                          /* MD5: "md5" + 32 hex */
	struct scram_verifier scram;           /* SCRAM and SCRAM_KEYS */
	uint8_t client_key[SCRAM_KEY_LEN];     /* SCRAM_KEYS: learnt from a client's login; pass-through */
};

/* Reads a password text as userlist.txt and pg_authid hold it. Garbled "SCRAM-SHA-256$" or "md5"
 * shapes are plain passwords, as in Postgres. false only without memory. */
MUST_CHECK bool secret_parse(struct secret *ret, const char *text);
void secret_erase(struct secret *s);
MUST_CHECK bool secret_copy(struct secret *ret, const struct secret *s); /* false only without memory */
MUST_CHECK bool secret_equal(const struct secret *a, const struct secret *b);
/* Is this password the secret of that user? In constant time. Costs a PBKDF2 for SCRAM secrets, and
 * is never true of one with more rounds than scram_limit(); then
 * ret_client_key gets the key for pass-through (NULL: not wanted). */
MUST_CHECK bool secret_matches(const struct secret *s, const char *user, const char *password,
	uint8_t ret_client_key[SCRAM_KEY_LEN]);

/* md5 of password and user, and of that and the salt: "md5..." in dst (36 bytes). */
void md5_secret(char dst[36], const char *password, const char *user);
void md5_response(char dst[36], const char md5_secret_text[36], const uint8_t salt[4]);

/*
 * The verifier of a password with a random salt. SASLprep is applied where the program was built
 * with libidn; without it passwords that are not ASCII are used as their raw bytes, which is the same
 * for text that is already in normal form KC, as is nearly all that people type.
 */
MUST_CHECK bool scram_verifier_make(struct scram_verifier *ret, const char *password, int iterations);
/* The same with a salt that depends on user and a process-wide random key, and remembered: asked again
 * for the same user and password it costs no rounds. */
MUST_CHECK bool scram_verifier_recall(
	struct scram_verifier *ret, const char *user, const char *password, int iterations);
/* The same with a salt that depends on user and a process-wide random key only: for mock logins. */
void scram_verifier_mock(struct scram_verifier *ret, const char *user, int iterations);

/* Server role: a client logs in to us. */
struct scram_server;
enum scram_step { SCRAM_CONTINUE, SCRAM_OK, SCRAM_REFUSED, SCRAM_MALFORMED };
MUST_CHECK struct scram_server *scram_server_new(const struct scram_verifier *v); /* v copied */
void scram_server_free(struct scram_server **p);
/* Before the first message, on a connection that has tls-server-end-point data, and was offered
 * SCRAM-SHA-256-PLUS: the data, and whether the client chose that mechanism. */
void scram_server_bind(struct scram_server *s, const uint8_t *data, size_t len, bool chosen);
/* Both: without memory `out` is marked failed, and the step is MALFORMED. */
/* first: client-first-message -> server-first in out. Returns CONTINUE; MALFORMED, also when its
 * binding flag is not that of the mechanism; REFUSED when the client believes that we did not offer
 * channel binding: somebody in between has taken the offer away. */
enum scram_step scram_server_first(struct scram_server *s, const char *msg, size_t len, struct buf *out);
/* final: client-final-message -> server-final in out. OK: ret_client_key (32 bytes) is the key that
 * the client proved, for pass-through. */
enum scram_step scram_server_final(struct scram_server *s, const char *msg, size_t len, struct buf *out,
	uint8_t ret_client_key[SCRAM_KEY_LEN]);

/* Client role: we log in to a server, with a PLAIN or a SCRAM_KEYS secret. */
struct scram_client;
MUST_CHECK struct scram_client *scram_client_new(const struct secret *secret); /* secret is borrowed until freed */
void scram_client_free(struct scram_client **p);
/* Before the first message, on a connection that has tls-server-end-point data. offered: the server
 * did offer SCRAM-SHA-256-PLUS, and that is the mechanism. */
void scram_client_bind(struct scram_client *c, const uint8_t *data, size_t len, bool offered);
void scram_client_first(struct scram_client *c, struct buf *out);
/* server-first -> client-final in out. REFUSED: the iteration count is above the limit, or the server's
 * salt or count is not that of the SCRAM_KEYS. Costs a PBKDF2 for a PLAIN secret, once per password
 * and salt: the keys are remembered. */
enum scram_step scram_client_continue(struct scram_client *c, const char *msg, size_t len, struct buf *out);
/* After REFUSED: the rounds that the server asks for, when it was those. 0: it was not. */
int64_t scram_client_too_many(const struct scram_client *c);
/* The rounds that a server-first message asks for, whoever it is for; -1: it is malformed. */
int64_t scram_rounds_asked(const char *msg, size_t len);
/* server-final. REFUSED: an error of the server, or its signature is wrong. */
enum scram_step scram_client_verify(struct scram_client *c, const char *msg, size_t len);

#endif
