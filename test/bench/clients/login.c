/*
 * Logins one after the other, by a client that keeps its SCRAM keys, as drivers may: salt and iterations of a role stay as
 * they are, so PBKDF2 is had once, and what is left is the pooler's work and little else.
 *
 *   client login TARGET CLIENTS SECONDS PASSWORD
 *
 * Each connects, logs in, checks that the other side knows the keys too, says goodbye, waits till it is gone, and begins
 * anew: who closes first has the port for a minute more, and with thousands a second finding another one would be what is
 * measured. Prints "count", and "rate": logins per second.
 */
#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link.h"

#define KEY   32
#define TEXT  512 /* a message of the exchange */
#define NONCE 18

enum { AUTH_OK = 0, AUTH_SASL = 10, AUTH_CONTINUE = 11, AUTH_FINAL = 12 };

/* What follows from the password, a salt and its iterations. */
struct keys {
	char of[TEXT]; /* ",s=...,i=..." as the server says it */
	uint8_t client[KEY], stored[KEY], server[KEY];
};

static struct {
	pthread_mutex_t lock;
	struct keys keys;
	const char *password;
	const struct target *t;
	double until;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct login {
	struct link link;
	pthread_t thread;
	char first[TEXT]; /* what we have said first, without its beginning "n,," */
	uint8_t proof_of_server[KEY];
	bool done; /* the other side has proved itself */
	unsigned count;
};

static void wrong(const char *what)
{
	fprintf(stderr, "login: %s\n", what);
	exit(1);
}

static void hmac(const uint8_t *key, const void *data, size_t len, uint8_t *out)
{
	if (!HMAC(EVP_sha256(), key, KEY, data, len, out, NULL))
		wrong("HMAC");
}

static void derive(struct keys *k, const char *params)
{
	const char *salt = strstr(params, ",s="), *rounds = strstr(params, ",i=");
	uint8_t salted[KEY], raw[TEXT];
	int len, text;

	if (!salt || !rounds || rounds < salt)
		wrong("not a challenge of SCRAM");
	text = (int)(rounds - salt - 3);
	len = EVP_DecodeBlock(raw, (const uint8_t *)salt + 3, text);
	if (len < 0)
		wrong("a salt that is not base64");
	while (text > 0 && salt[3 + --text] == '=')
		len--;
	if (PKCS5_PBKDF2_HMAC(
		    all.password, -1, raw, len, atoi(rounds + 3), EVP_sha256(), KEY, salted) != 1)
		wrong("PBKDF2");
	hmac(salted, "Client Key", 10, k->client);
	hmac(salted, "Server Key", 10, k->server);
	if (EVP_Digest(k->client, KEY, k->stored, NULL, EVP_sha256(), NULL) != 1)
		wrong("SHA-256");
	snprintf(k->of, sizeof(k->of), "%s", params);
}

static struct keys keys_for(const char *params)
{
	struct keys k;

	pthread_mutex_lock(&all.lock);
	if (strcmp(all.keys.of, params) != 0)
		derive(&all.keys, params);
	k = all.keys;
	pthread_mutex_unlock(&all.lock);
	return k;
}

/* --- what we say --- */

static void put(struct link *l, char type, const void *body, size_t len)
{
	uint8_t msg[2 * TEXT];
	uint32_t be = htonl((uint32_t)len + 4);

	msg[0] = (uint8_t)type;
	memcpy(msg + 1, &be, 4);
	memcpy(msg + 5, body, len);
	put_all(l->fd, msg, len + 5);
}

static void say_first(struct login *a)
{
	static const char mechanism[] = "SCRAM-SHA-256";
	uint8_t nonce[NONCE], body[TEXT];
	size_t n = sizeof(mechanism);
	char text[2 * NONCE];
	uint32_t be;

	if (RAND_bytes(nonce, NONCE) != 1)
		wrong("no random bytes");
	EVP_EncodeBlock((uint8_t *)text, nonce, NONCE);
	snprintf(a->first, sizeof(a->first), "n=,r=%s", text);
	be = htonl((uint32_t)strlen(a->first) + 3);
	memcpy(body, mechanism, n);
	memcpy(body + n, &be, 4);
	n += 4;
	n += (size_t)snprintf((char *)body + n, sizeof(body) - n, "n,,%s", a->first);
	put(&a->link, 'p', body, n);
}

static void say_proof(struct login *a, const char *challenge)
{
	const char *params = strstr(challenge, ",s=");
	size_t nonce = strlen(a->first + 3);
	uint8_t proof[KEY];
	char last[TEXT], message[3 * TEXT], text[2 * KEY];
	struct keys k;
	int n;

	if (!params || strncmp(challenge, a->first + 3, nonce) != 0)
		wrong("a challenge that is not for us");
	k = keys_for(params);
	n = snprintf(last, sizeof(last), "c=biws,%.*s", (int)(params - challenge), challenge);
	snprintf(message, sizeof(message), "%s,%s,%s", a->first, challenge, last);
	hmac(k.server, message, strlen(message), a->proof_of_server);
	hmac(k.stored, message, strlen(message), proof);
	for (int i = 0; i < KEY; i++)
		proof[i] ^= k.client[i];
	EVP_EncodeBlock((uint8_t *)text, proof, KEY);
	n += snprintf(last + n, sizeof(last) - (size_t)n, ",p=%s", text);
	put(&a->link, 'p', last, (size_t)n);
}

static void on_auth(void *arg, const uint8_t *body, size_t len)
{
	struct login *a = arg;
	char said[TEXT], text[2 * KEY];
	uint32_t kind;

	if (len < 4 || len - 4 >= sizeof(said))
		wrong("an odd message");
	memcpy(&kind, body, 4);
	memcpy(said, body + 4, len - 4);
	said[len - 4] = '\0';
	switch (ntohl(kind)) {
	case AUTH_SASL:
		say_first(a);
		break;
	case AUTH_CONTINUE:
		say_proof(a, said);
		break;
	case AUTH_FINAL:
		EVP_EncodeBlock((uint8_t *)text, a->proof_of_server, KEY);
		if (strncmp(said, "v=", 2) != 0 || strcmp(said + 2, text) != 0)
			wrong("the other side does not know the keys");
		a->done = true;
		break;
	case AUTH_OK:
		if (!a->done)
			wrong("logged in without SCRAM");
		break;
	default:
		wrong("another kind of authentication");
	}
}

/* --- the loop --- */

static void once(struct login *a)
{
	struct seen seen = {.auth = on_auth, .arg = a};
	uint8_t behind[1];

	a->done = false;
	a->link.len = 0;
	a->link.fd = dial(all.t);
	put_startup(&a->link, all.t);
	while (!seen.ready)
		receive(&a->link, &seen);
	put(&a->link, 'X', "", 0);
	if (recv(a->link.fd, behind, sizeof(behind), 0) != 0)
		wrong("something is said behind the end");
	close(a->link.fd);
}

static void *work(void *arg)
{
	struct login *a = arg;

	for (; now() < all.until; a->count++)
		once(a);
	return NULL;
}

int do_login(const struct target *t, char **arg)
{
	int n = atoi(arg[0]);
	struct login *logins = need((size_t)n, sizeof(*logins));
	unsigned count = 0;
	double start;

	all.t = t;
	all.password = arg[2];
	once(&logins[0]); /* the keys, and what the pooler asks its server first */
	start = now();
	all.until = start + atof(arg[1]);
	for (int i = 0; i < n; i++)
		if (pthread_create(&logins[i].thread, NULL, work, &logins[i]) != 0)
			die("pthread_create");
	for (int i = 0; i < n; i++) {
		pthread_join(logins[i].thread, NULL);
		count += logins[i].count;
	}
	printf("count %u\nrate %.1f\n", count, count / (now() - start));
	return 0;
}
