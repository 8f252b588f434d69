/*
 * What this proxy knows of those who work and wait, and the database does not, as QUEUE WORKERS tells the function
 * that answers it (functions/inspect.sql): JSON in ASCII, in hexadecimal digits, so that nothing in it can be anything
 * else than a constant of whatever text it stands in. Who may see what of it is decided there; but for addresses:
 * those of other roles are for who may see them on the console. Of a token it has the last digits, to know one lease
 * of a job from the next, and not enough to be one.
 *
 * Entry point: known_put().
 */
#include <stdio.h>
#include <string.h>

#include "queue/stat.h"
#include "known.h"
#include "lease.h"
#include "queue_int.h"
#include "registry.h"

#define KNOWN_MAX         10000 /* rows of it: more would make a statement that is long to read */
#define TOKEN_DIGITS_TOLD 4

struct known {
	const struct taker *asks;
	const char *queue; /* of this one only; "": of all */
	bool sees_addresses;
	int n;
	struct buf json;
};

/* Bytes that are no UTF-8 are not guessed at. */
static void put_text(struct buf *b, const char *text)
{
	buf_putc(b, '"');
	while (*text != '\0') {
		unsigned char c = (unsigned char)*text;
		size_t len = util_utf8_len(text);
		uint32_t code = c;

		if (len <= 1) {
			if (c >= 0x80)
				buf_putc(b, '?');
			else if (c < ' ' || c == '"' || c == '\\')
				buf_printf(b, "\\u%04x", (unsigned)c);
			else
				buf_putc(b, (char)c);
			text++;
			continue;
		}
		code = c & (0x7fu >> len);
		for (size_t i = 1; i < len; i++)
			code = code << 6 | ((unsigned char)text[i] & 0x3fu);
		if (code >= 0x10000)
			buf_printf(b, "\\u%04x\\u%04x", 0xd800u + ((code - 0x10000) >> 10),
				0xdc00u + ((code - 0x10000) & 0x3ffu));
		else
			buf_printf(b, "\\u%04x", code);
		text += len;
	}
	buf_putc(b, '"');
}

static void put_member(struct buf *b, const char *name, const char *text)
{
	if (text == NULL)
		return;
	buf_printf(b, ",\"%s\":", name);
	put_text(b, text);
}

static const char *address_for(const struct known *k, const char *user, const char *address)
{
	bool own = strcmp(user, k->asks->ops->user(k->asks)) == 0;

	return k->sees_addresses || own ? address : NULL;
}

static bool is_asked_for(const struct known *k, const char *queue)
{
	return k->n < KNOWN_MAX && (k->queue[0] == '\0' || strcmp(k->queue, queue) == 0);
}

static void put_lease(const struct queue_stat_lease *st, void *arg)
{
	struct known *k = arg;
	size_t len = strlen(st->token);

	if (!is_asked_for(k, st->queue) || len < TOKEN_DIGITS_TOLD)
		return;
	buf_printf(&k->json, "%s{\"id\":%lld", k->n++ > 0 ? "," : "", (long long)st->job_id);
	put_member(&k->json, "digits", st->token + len - TOKEN_DIGITS_TOLD);
	put_member(&k->json, "queue", st->queue);
	put_member(&k->json, "role", st->user);
	put_member(&k->json, "address", address_for(k, st->user, st->address));
	buf_putc(&k->json, '}');
}

static void put_waiter(const struct queue_stat_waiter *st, void *arg)
{
	struct known *k = arg;

	for (int i = 0; i < st->n_takes_from && strcmp(st->database, k->asks->db->name) == 0; i++) {
		if (!is_asked_for(k, st->takes_from[i]))
			continue;
		buf_printf(&k->json, "%s{\"waits\":%.6f", k->n++ > 0 ? "," : "",
			(double)st->waited_us / (double)USEC_SEC);
		put_member(&k->json, "queue", st->takes_from[i]);
		put_member(&k->json, "worker", st->worker);
		put_member(&k->json, "role", st->user);
		put_member(&k->json, "address", address_for(k, st->user, st->address));
		buf_putc(&k->json, '}');
	}
}

void known_put_hex(struct buf *b, const struct buf *text)
{
	char hex[513];

	for (size_t at = 0; at < text->len; at += 256) {
		size_t len = text->len - at < 256 ? text->len - at : 256;

		util_hex(hex, text->data + at, len);
		buf_put(b, hex, 2 * len);
	}
	if (buf_failed(text))
		b->failed = true;
}

bool known_put(const struct taker *asks, const char *queue, struct buf *out)
{
	const char *user = asks->ops->user(asks);
	struct known k = {.asks = asks, .queue = queue};
	struct taker *t;

	CHECK_TAKER(asks);
	k.sees_addresses = conf_list_has(conf_current()->p.admin_users, user) ||
			   conf_list_has(conf_current()->p.stats_users, user);
	buf_printf(&k.json, "{\"proxy\":%d,\"known\":[", (int)registry_stamp(asks->db));
	DL_FOREACH (takers(), t)
		if (t->db == asks->db)
			lease_each(t, put_lease, &k);
	queue_stat_each_waiter(put_waiter, &k);
	buf_puts(&k.json, "]}");
	known_put_hex(out, &k.json);
	buf_free(&k.json);
	return !buf_failed(out);
}
