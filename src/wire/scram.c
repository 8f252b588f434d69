/*
 * The SCRAM-SHA-256 conversation, both roles: RFC 5802, RFC 7677. Text in, text out; every byte of
 * the peer is checked, whichever role it plays. Must not know the messages that carry the text
 * (auth) or users. Entry points: scram_server_*, scram_client_*.
 *
 *   client                                  server
 *   n,,n=,r=<nonce c>                  -->
 *                                      <--  r=<nonce c><nonce s>,s=<salt>,i=<count>
 *   c=<n,, in base64>,r=<nonce c><nonce s>,p=<proof> -->
 *                                      <--  v=<signature>
 */
#include "scram_int.h"

#include <string.h>

#include "base/mem.h"

/* --- attributes: a=value,b=value --- */

struct attr {
	char letter;
	const char *value;
	size_t len;
};

struct cursor {
	const char *pos, *end;
	bool more; /* the text begins, or a comma was just taken: an attribute must follow */
};

static struct cursor cursor_init(const char *msg, size_t len)
{
	return (struct cursor){.pos = msg, .end = msg + len, .more = true};
}

/* Takes the next attribute, whatever its letter. */
static bool attr_any(struct cursor *c, struct attr *ret)
{
	size_t left = (size_t)(c->end - c->pos);
	const char *comma;

	if (!c->more || left < 2 || c->pos[1] != '=')
		return false;
	if (!(c->pos[0] >= 'a' && c->pos[0] <= 'z') && !(c->pos[0] >= 'A' && c->pos[0] <= 'Z'))
		return false;
	comma = memchr(c->pos, ',', left);
	ret->letter = c->pos[0];
	ret->value = c->pos + 2;
	c->more = comma != NULL;
	ret->len = (size_t)((comma ? comma : c->end) - ret->value);
	c->pos = comma ? comma + 1 : c->end;
	return true;
}

static bool attr_take(struct cursor *c, char letter, struct attr *ret)
{
	return attr_any(c, ret) && ret->letter == letter;
}

/* Extensions at the end of a message: known to nobody here, but they must be attributes. */
static bool attr_skip_rest(struct cursor *c)
{
	struct attr a;

	while (c->more)
		if (!attr_any(c, &a))
			return false;
	return true;
}

static bool is_nonce(const struct attr *a)
{
	if (a->len < 1 || a->len > SCRAM_NONCE_MAX)
		return false;
	for (size_t i = 0; i < a->len; i++)
		if (a->value[i] < 0x21 || a->value[i] > 0x7E)
			return false;
	return true;
}

static bool attr_is(const struct attr *a, const void *text, size_t len)
{
	return a->len == len && memcmp(a->value, text, len) == 0;
}

static bool plausible(const char *msg, size_t len)
{
	return len > 0 && len <= SCRAM_MSG_MAX && !memchr(msg, '\0', len);
}

/* A fresh nonce of ours as text. */
static bool make_nonce(char dst[SCRAM_NONCE_ROOM])
{
	uint8_t raw[SCRAM_NONCE_RAW];
	struct buf b = BUF_INIT;
	bool ok;

	util_random(raw, sizeof(raw));
	base64_put(&b, raw, sizeof(raw));
	ok = !buf_failed(&b);
	if (ok)
		util_strlcpy(dst, buf_cstr(&b), SCRAM_NONCE_ROOM);
	buf_free(&b);
	return ok;
}

static void xor_keys(uint8_t *dst, const uint8_t *a, const uint8_t *b)
{
	for (size_t i = 0; i < SCRAM_KEY_LEN; i++)
		dst[i] = a[i] ^ b[i];
}

static enum scram_step out_of_memory(struct buf *out)
{
	out->failed = true;
	return SCRAM_MALFORMED;
}

/* --- channel binding --- */

#define GS2_BOUND "p=tls-server-end-point,,"

/* What the client says of channel binding, and what it binds to. */
struct binding {
	const char *gs2; /* "n,,", "y,," or GS2_BOUND; NULL: not known yet */
	uint8_t data[SCRAM_BINDING_MAX];
	size_t len;
	bool chosen; /* the mechanism is SCRAM-SHA-256-PLUS */
};

static void binding_set(struct binding *b, const uint8_t *data, size_t len, bool chosen)
{
	ASSERT(len <= sizeof(b->data));
	memcpy(b->data, data, len);
	b->len = len;
	b->chosen = chosen;
}

#define BINDING_ROOM (sizeof(GS2_BOUND) + SCRAM_BINDING_MAX)

/* What the attribute c= of client-final-message has in base64. */
static size_t binding_raw(const struct binding *b, uint8_t dst[BINDING_ROOM])
{
	size_t len = strlen(b->gs2);

	memcpy(dst, b->gs2, len);
	if (!b->chosen)
		return len;
	memcpy(dst + len, b->data, b->len);
	return len + b->len;
}

/* --- the server's role --- */

enum server_state { SERVER_WAIT_FIRST, SERVER_WAIT_FINAL, SERVER_DONE };

struct scram_server {
	enum server_state state;
	struct scram_verifier verifier;
	char own_nonce[SCRAM_NONCE_ROOM];
	struct binding binding;
	bool offered;           /* SCRAM-SHA-256-PLUS */
	struct buf nonce;       /* both halves */
	struct buf signed_text; /* client-first-bare , server-first ; then ,
				   client-final-without-proof */
};

struct scram_server *scram_server_new(const struct scram_verifier *v)
{
	struct scram_server *s = mem_zalloc(sizeof(*s));

	if (!s)
		return NULL;
	s->verifier = *v;
	if (!make_nonce(s->own_nonce))
		scram_server_free(&s);
	return s;
}

void scram_server_set_nonce(struct scram_server *s, const char *nonce)
{
	util_strlcpy(s->own_nonce, nonce, sizeof(s->own_nonce));
}

void scram_server_free(struct scram_server **p)
{
	struct scram_server *s = *p;

	*p = NULL;
	if (!s)
		return;
	buf_free(&s->nonce);
	buf_free(&s->signed_text);
	util_erase(s, sizeof(*s));
	mem_free(s);
}

void scram_server_bind(struct scram_server *s, const uint8_t *data, size_t len, bool chosen)
{
	binding_set(&s->binding, data, len, chosen);
	s->offered = true;
}

/* gs2-header: binding flag, no authorization identity. Returns its length, 0: malformed. */
static size_t read_gs2(struct binding *b, const char *msg, size_t len)
{
	static const char *const headers[] = {"n,,", "y,,", GS2_BOUND};

	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		size_t n = strlen(headers[i]);

		if (len < n || memcmp(msg, headers[i], n) != 0)
			continue;
		b->gs2 = headers[i];
		return b->chosen == (headers[i][0] == 'p') ? n : 0;
	}
	return 0;
}

enum scram_step scram_server_first(
	struct scram_server *s, const char *msg, size_t len, struct buf *out)
{
	struct cursor c;
	struct attr user, nonce;
	size_t start, gs2;

	if (s->state != SERVER_WAIT_FIRST || !plausible(msg, len))
		return SCRAM_MALFORMED;
	s->state = SERVER_DONE; /* until proved otherwise */

	gs2 = read_gs2(&s->binding, msg, len);
	if (gs2 == 0)
		return SCRAM_MALFORMED;
	if (s->offered && s->binding.gs2[0] == 'y')
		return SCRAM_REFUSED;
	c = cursor_init(msg + gs2, len - gs2);
	if (!attr_take(&c, 'n', &user) || !attr_take(&c, 'r', &nonce) || !is_nonce(&nonce) ||
		!attr_skip_rest(&c))
		return SCRAM_MALFORMED;
	buf_put(&s->nonce, nonce.value, nonce.len);
	buf_puts(&s->nonce, s->own_nonce);
	buf_put(&s->signed_text, msg + gs2, len - gs2);
	buf_putc(&s->signed_text, ',');
	if (buf_failed(&s->nonce) || buf_failed(&s->signed_text))
		return out_of_memory(out);
	start = s->signed_text.len;
	buf_puts(&s->signed_text, "r=");
	buf_put(&s->signed_text, s->nonce.data, s->nonce.len);
	buf_puts(&s->signed_text, ",s=");
	base64_put(&s->signed_text, s->verifier.salt, s->verifier.salt_len);
	buf_printf(&s->signed_text, ",i=%d", s->verifier.iterations);
	if (buf_failed(&s->signed_text))
		return out_of_memory(out);
	buf_put(out, s->signed_text.data + start, s->signed_text.len - start);
	s->state = SERVER_WAIT_FINAL;
	return SCRAM_CONTINUE;
}

static bool is_bound(const struct scram_server *s, const struct attr *a)
{
	uint8_t want[BINDING_ROOM], got[BINDING_ROOM];
	size_t len = binding_raw(&s->binding, want), n;

	return base64_get(a->value, a->len, got, sizeof(got), &n) && n == len &&
	       memcmp(got, want, len) == 0;
}

/* Reads client-final-message; ret_signed is the length of the part in front of ",p=". */
static bool read_client_final(const struct scram_server *s, const char *msg, size_t len,
	uint8_t proof[SCRAM_KEY_LEN], size_t *ret_signed)
{
	struct cursor c = cursor_init(msg, len);
	struct attr a;
	size_t proof_len;

	if (!attr_take(&c, 'c', &a) || !is_bound(s, &a))
		return false;
	if (!attr_take(&c, 'r', &a) || !attr_is(&a, s->nonce.data, s->nonce.len))
		return false;
	do {
		*ret_signed = (size_t)(c.pos - msg) - 1;
		if (!attr_any(&c, &a))
			return false;
	} while (a.letter != 'p');
	return !c.more && base64_get(a.value, a.len, proof, SCRAM_KEY_LEN, &proof_len) &&
	       proof_len == SCRAM_KEY_LEN;
}

enum scram_step scram_server_final(struct scram_server *s, const char *msg, size_t len,
	struct buf *out, uint8_t ret_client_key[SCRAM_KEY_LEN])
{
	uint8_t proof[SCRAM_KEY_LEN], key[SCRAM_KEY_LEN], stored[SCRAM_KEY_LEN];
	uint8_t signature[SCRAM_KEY_LEN];
	size_t signed_len;
	bool good;

	if (s->state != SERVER_WAIT_FINAL || !plausible(msg, len))
		return SCRAM_MALFORMED;
	s->state = SERVER_DONE;
	if (!read_client_final(s, msg, len, proof, &signed_len))
		return SCRAM_MALFORMED;
	buf_putc(&s->signed_text, ',');
	buf_put(&s->signed_text, msg, signed_len);
	if (buf_failed(&s->signed_text) || !hash_hmac(signature, s->verifier.stored_key,
						   s->signed_text.data, s->signed_text.len))
		return out_of_memory(out);
	xor_keys(key, proof, signature);
	if (!hash_sha256(stored, key, sizeof(key)) ||
		!hash_hmac(
			signature, s->verifier.server_key, s->signed_text.data, s->signed_text.len))
		return out_of_memory(out);
	good = util_equal_secret(stored, s->verifier.stored_key, sizeof(stored));
	if (good) {
		memcpy(ret_client_key, key, sizeof(key));
		buf_puts(out, "v=");
		base64_put(out, signature, sizeof(signature));
	}
	util_erase(key, sizeof(key));
	return good ? SCRAM_OK : SCRAM_REFUSED;
}

/* --- the client's role --- */

enum client_state { CLIENT_START, CLIENT_WAIT_FIRST, CLIENT_WAIT_FINAL, CLIENT_DONE };

struct scram_client {
	enum client_state state;
	const struct secret *secret;
	struct binding binding;
	char own_nonce[SCRAM_NONCE_ROOM];
	int64_t too_many;                        /* rounds asked for */
	uint8_t server_signature[SCRAM_KEY_LEN]; /* that an honest server will send */
};

struct scram_client *scram_client_new(const struct secret *secret)
{
	struct scram_client *c = mem_zalloc(sizeof(*c));

	if (!c)
		return NULL;
	c->secret = secret;
	c->binding.gs2 = "n,,";
	if (!make_nonce(c->own_nonce))
		scram_client_free(&c);
	return c;
}

void scram_client_set_nonce(struct scram_client *c, const char *nonce)
{
	util_strlcpy(c->own_nonce, nonce, sizeof(c->own_nonce));
}

void scram_client_free(struct scram_client **p)
{
	struct scram_client *c = *p;

	*p = NULL;
	if (!c)
		return;
	util_erase(c, sizeof(*c));
	mem_free(c);
}

void scram_client_bind(struct scram_client *c, const uint8_t *data, size_t len, bool offered)
{
	binding_set(&c->binding, data, len, offered);
	c->binding.gs2 = offered ? GS2_BOUND : "y,,";
}

/* The user name stays empty: Postgres takes the one of the startup packet. */
void scram_client_first(struct scram_client *c, struct buf *out)
{
	buf_printf(out, "%sn=,r=%s", c->binding.gs2, c->own_nonce);
	c->state = CLIENT_WAIT_FIRST;
}

struct server_first {
	struct attr nonce;
	uint8_t salt[64];
	size_t salt_len;
	int64_t iterations;
};

static bool read_server_first(
	const struct scram_client *c, const char *msg, size_t len, struct server_first *ret)
{
	struct cursor cur = cursor_init(msg, len);
	size_t own = strlen(c->own_nonce);
	struct attr a;

	if (!attr_take(&cur, 'r', &ret->nonce) || !is_nonce(&ret->nonce))
		return false;
	if (ret->nonce.len <= own || memcmp(ret->nonce.value, c->own_nonce, own) != 0)
		return false;
	if (!attr_take(&cur, 's', &a) ||
		!base64_get(a.value, a.len, ret->salt, sizeof(ret->salt), &ret->salt_len) ||
		ret->salt_len == 0)
		return false;
	if (!attr_take(&cur, 'i', &a) || !util_parse_i64(a.value, a.len, &ret->iterations) ||
		ret->iterations < 1)
		return false;
	return attr_skip_rest(&cur);
}

int64_t scram_rounds_asked(const char *msg, size_t len)
{
	struct cursor cur;
	struct attr a;
	int64_t n;

	if (!plausible(msg, len))
		return -1;
	cur = cursor_init(msg, len);
	if (!attr_take(&cur, 'r', &a) || !attr_take(&cur, 's', &a) || !attr_take(&cur, 'i', &a) ||
		!util_parse_i64(a.value, a.len, &n) || n < 1 || !attr_skip_rest(&cur))
		return -1;
	return n;
}

static bool get_keys(
	const struct secret *secret, const struct server_first *f, struct scram_keys *ret)
{
	const struct scram_verifier *v = &secret->scram;

	if (secret->kind == SECRET_PLAIN)
		return f->iterations <= scram_limit() &&
		       scram_keys_recall(
			       ret, secret->plain, f->salt, f->salt_len, (int)f->iterations);
	if (secret->kind != SECRET_SCRAM_KEYS || v->iterations != f->iterations ||
		v->salt_len != f->salt_len || memcmp(v->salt, f->salt, f->salt_len) != 0)
		return false;
	memcpy(ret->client, secret->client_key, SCRAM_KEY_LEN);
	memcpy(ret->stored, v->stored_key, SCRAM_KEY_LEN);
	memcpy(ret->server, v->server_key, SCRAM_KEY_LEN);
	return true;
}

/* Writes client-final; b is scratch for the signed text. */
static bool put_client_final(struct scram_client *c, const struct scram_keys *keys,
	const struct attr *nonce, const char *msg, size_t len, struct buf *b, struct buf *out)
{
	uint8_t proof[SCRAM_KEY_LEN], raw[BINDING_ROOM];
	size_t start;

	buf_printf(b, "n=,r=%s,", c->own_nonce);
	buf_put(b, msg, len);
	buf_putc(b, ',');
	start = b->len;
	buf_puts(b, "c=");
	base64_put(b, raw, binding_raw(&c->binding, raw));
	buf_puts(b, ",r=");
	buf_put(b, nonce->value, nonce->len);
	if (buf_failed(b) || !hash_hmac(proof, keys->stored, b->data, b->len) ||
		!hash_hmac(c->server_signature, keys->server, b->data, b->len))
		return false;
	xor_keys(proof, proof, keys->client);
	buf_put(out, b->data + start, b->len - start);
	buf_puts(out, ",p=");
	base64_put(out, proof, sizeof(proof));
	util_erase(proof, sizeof(proof));
	return true;
}

int64_t scram_client_too_many(const struct scram_client *c)
{
	return c->too_many;
}

enum scram_step scram_client_continue(
	struct scram_client *c, const char *msg, size_t len, struct buf *out)
{
	struct server_first first;
	struct scram_keys keys;
	struct buf scratch = BUF_INIT;
	bool ok;

	if (c->state != CLIENT_WAIT_FIRST || !plausible(msg, len))
		return SCRAM_MALFORMED;
	c->state = CLIENT_DONE;
	if (!read_server_first(c, msg, len, &first))
		return SCRAM_MALFORMED;
	if (!get_keys(c->secret, &first, &keys)) {
		if (c->secret->kind == SECRET_PLAIN && first.iterations > scram_limit())
			c->too_many = first.iterations;
		return SCRAM_REFUSED;
	}
	ok = put_client_final(c, &keys, &first.nonce, msg, len, &scratch, out);
	util_erase(&keys, sizeof(keys));
	buf_free(&scratch);
	if (!ok)
		return out_of_memory(out);
	c->state = CLIENT_WAIT_FINAL;
	return SCRAM_CONTINUE;
}

enum scram_step scram_client_verify(struct scram_client *c, const char *msg, size_t len)
{
	struct cursor cur = cursor_init(msg, len);
	struct attr a;
	uint8_t signature[SCRAM_KEY_LEN];
	size_t n;

	if (c->state != CLIENT_WAIT_FINAL || !plausible(msg, len))
		return SCRAM_MALFORMED;
	c->state = CLIENT_DONE;
	if (!attr_any(&cur, &a) || !attr_skip_rest(&cur))
		return SCRAM_MALFORMED;
	if (a.letter == 'e')
		return SCRAM_REFUSED;
	if (a.letter != 'v' || !base64_get(a.value, a.len, signature, sizeof(signature), &n) ||
		n != SCRAM_KEY_LEN)
		return SCRAM_MALFORMED;
	return util_equal_secret(signature, c->server_signature, sizeof(signature)) ? SCRAM_OK
										    : SCRAM_REFUSED;
}
