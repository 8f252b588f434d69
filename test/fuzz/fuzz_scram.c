/*
 * SCRAM with a hostile peer, both roles, and the stored forms of a password. The first byte says
 * which; a zero byte ends a message. The client's nonce is fixed, so that the fuzzer can answer it.
 */
#include <stdlib.h>
#include <string.h>

#include "../../src/wire/scram_int.h"

#define NONCE "0123456789abcdefghijklmn"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cuts the next message off. */
static const char *next_message(const uint8_t **data, size_t *size, size_t *ret_len)
{
	const uint8_t *start = *data;
	const uint8_t *nul = *size ? memchr(start, 0, *size) : NULL;

	*ret_len = nul ? (size_t)(nul - start) : *size;
	*size -= *ret_len + (nul ? 1 : 0);
	*data = nul ? nul + 1 : start + *ret_len;
	return (const char *)start;
}

static void server_role(const uint8_t *data, size_t size, bool bound, bool chosen)
{
	struct scram_verifier v = {.iterations = 4096, .salt_len = 16};
	struct scram_server *s = scram_server_new(&v);
	struct buf out = BUF_INIT;
	uint8_t key[SCRAM_KEY_LEN];
	const char *msg;
	size_t len;

	if (!s)
		return;
	scram_server_set_nonce(s, NONCE);
	if (bound)
		scram_server_bind(s, (const uint8_t *)NONCE, sizeof(NONCE) - 1, chosen);
	msg = next_message(&data, &size, &len);
	if (scram_server_first(s, msg, len, &out) == SCRAM_OK)
		abort();
	msg = next_message(&data, &size, &len);
	if (scram_server_final(s, msg, len, &out, key) == SCRAM_OK)
		abort(); /* nobody has a key whose hash is all zeros */
	buf_free(&out);
	scram_server_free(&s);
}

static void client_role(const uint8_t *data, size_t size, bool bound, bool offered)
{
	struct secret secret = {
		.kind = SECRET_SCRAM_KEYS, .scram = {.iterations = 1, .salt_len = 3}};
	struct scram_client *c = scram_client_new(&secret);
	struct buf out = BUF_INIT;
	const char *msg;
	size_t len;

	if (!c)
		return;
	scram_client_set_nonce(c, NONCE);
	if (bound)
		scram_client_bind(c, (const uint8_t *)NONCE, sizeof(NONCE) - 1, offered);
	scram_client_first(c, &out);
	buf_reset(&out);
	msg = next_message(&data, &size, &len);
	if (scram_client_continue(c, msg, len, &out) != SCRAM_CONTINUE && buf_used(&out) != 0)
		abort();
	msg = next_message(&data, &size, &len);
	(void)scram_client_verify(c, msg, len);
	buf_free(&out);
	scram_client_free(&c);
}

static void stored_form(const uint8_t *data, size_t size)
{
	struct secret s, copy;
	struct buf text = BUF_INIT;

	buf_put(&text, data, size);
	if (secret_parse(&s, buf_cstr(&text))) {
		if (s.kind == SECRET_SCRAM && (s.scram.iterations < 1 || s.scram.salt_len < 1 ||
						      s.scram.salt_len > sizeof(s.scram.salt)))
			abort();
		if (secret_copy(&copy, &s)) {
			if (!secret_equal(&copy, &s))
				abort();
			secret_erase(&copy);
		}
		secret_erase(&s);
	}
	buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0]) {
	case 's':
		server_role(data + 1, size - 1, false, false);
		break;
	case 'y':
	case 'p':
		server_role(data + 1, size - 1, true, data[0] == 'p');
		break;
	case 'c':
		client_role(data + 1, size - 1, false, false);
		break;
	case 'Y':
	case 'P':
		client_role(data + 1, size - 1, true, data[0] == 'P');
		break;
	default:
		stored_form(data + 1, size - 1);
		break;
	}
	return 0;
}
