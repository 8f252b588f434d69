/*
 * What a job that runs by itself has told meanwhile. The first notices are kept, as those that come later repeat them
 * as a rule; how many were left out is said.
 *
 * Must not know: what becomes of the text.
 *
 * Entry points: told_*.
 */
#include "run_told.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "wire/msg.h"

#define OURS    "queue._run_" /* functions that have called the job's */
#define HANDLER "queue._run_handler("
#define CALLED  "SQL statement \"" /* of it: by its side */

/* As much of it as there is room for, and no half of a character. Returns its end. */
static size_t put(char *dst, size_t at, size_t size, const char *text)
{
	while (*text != '\0') {
		size_t n = util_utf8_len(text);

		if (n == 0) { /* no UTF-8 */
			text++;
			continue;
		}
		if (n >= size - at)
			break;
		memcpy(dst + at, text, n);
		at += n;
		text += n;
	}
	dst[at] = '\0';
	return at;
}

void told_nothing(struct run_told *t)
{
	t->n = 0;
	t->notices_len = 0;
	t->of_handler = false;
	t->notices[0] = t->context[0] = t->tag[0] = '\0';
}

void told_notice(struct run_told *t, const struct wire_notice *n)
{
	size_t room = sizeof(t->notices) - t->notices_len;

	if (t->n++ >= TOLD_NOTICES || room < 2)
		return;
	if (room > TOLD_NOTICE_MAX)
		room = TOLD_NOTICE_MAX;
	room += t->notices_len;
	t->notices_len = put(t->notices, t->notices_len, room, "\n");
	t->notices_len = put(t->notices, t->notices_len, room, n->severity);
	t->notices_len = put(t->notices, t->notices_len, room, ":  ");
	t->notices_len = put(t->notices, t->notices_len, room, n->message);
}

void told_tag(struct run_told *t, const uint8_t *body, size_t len)
{
	if (len > 0 && body[len - 1] == '\0')
		(void)put(t->tag, 0, sizeof(t->tag), (const char *)body);
}

/* The line in which this is, and what follows. */
static void cut_line(char *text, char *at)
{
	while (at > text && *at != '\n')
		at--;
	*at = '\0';
}

/* Without the end of it, which is how we have called the job. */
void told_error(struct run_told *t, const struct wire_notice *n)
{
	char *ours;
	bool is_handler;

	t->context[0] = '\0';
	t->of_handler = n->context != NULL && strstr(n->context, HANDLER) != NULL;
	if (n->context == NULL)
		return;
	put(t->context, 0, sizeof(t->context), n->context);
	ours = strstr(t->context, OURS);
	if (ours == NULL)
		return;
	is_handler = strncmp(ours, HANDLER, strlen(HANDLER)) == 0;
	cut_line(t->context, ours);
	ours = strrchr(t->context, '\n');
	ours = ours != NULL ? ours + 1 : t->context;
	if (is_handler && strncmp(ours, CALLED, strlen(CALLED)) == 0)
		cut_line(t->context, ours > t->context ? ours - 1 : ours);
}

static void put_left(const struct run_told *t, char *dst, size_t size)
{
	dst[0] = '\0';
	if (t->n > TOLD_NOTICES)
		(void)snprintf(
			dst, size, "\n(%llu more)", (unsigned long long)(t->n - TOLD_NOTICES));
}

void told_notices(const struct run_told *t, struct buf *ret)
{
	char all[sizeof(t->notices) + 64];
	size_t at;

	if (t->n == 0)
		return;
	at = put(all, 0, sizeof(all), t->notices + 1);
	put_left(t, all + at, sizeof(all) - at);
	buf_puts(ret, ", \"notices\": ");
	json_quote(ret, all, strlen(all));
}

void told_result(const struct run_told *t, struct buf *ret)
{
	buf_puts(ret, "{\"tag\": ");
	json_quote(ret, t->tag, strlen(t->tag));
	told_notices(t, ret);
	buf_putc(ret, '}');
	buf_putc(ret, '\0');
}

void told_put(const struct run_told *t, char *text, size_t size)
{
	size_t at = strlen(text);
	char left[64];

	if (t->context[0] != '\0') {
		at = put(text, at, size, "\nCONTEXT:  ");
		at = put(text, at, size, t->context);
	}
	if (t->n == 0)
		return;
	at = put(text, at, size, "\nNOTICES:");
	at = put(text, at, size, t->notices);
	put_left(t, left, sizeof(left));
	(void)put(text, at, size, left);
}

void told_in_ascii(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text >= 0x80)
			*text = '?';
}
