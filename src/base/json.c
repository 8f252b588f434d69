/*
 * JSON by the line: an object's members, and strings. Nothing here calls itself: a text may be nested as deep as it is
 * long.
 */
#include "base/json.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

struct json_reader json_begin(const char *text, size_t len)
{
	return (struct json_reader){.at = text, .end = text + len};
}

static void skip_space(struct json_reader *r)
{
	while (r->at < r->end &&
		(*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
		r->at++;
}

static bool take(struct json_reader *r, char c)
{
	skip_space(r);
	if (r->at == r->end || *r->at != c)
		return false;
	r->at++;
	return true;
}

/* From one quote to behind the other. */
static bool skip_string(struct json_reader *r)
{
	if (r->at == r->end || *r->at != '"')
		return false;
	for (r->at++; r->at < r->end && *r->at != '"'; r->at++) {
		if ((unsigned char)*r->at < ' ')
			return false;
		if (*r->at == '\\' && ++r->at == r->end)
			return false;
	}
	if (r->at == r->end)
		return false;
	r->at++;
	return true;
}

/* A number or a word, nothing checked but that it is not empty. */
static bool skip_word(struct json_reader *r)
{
	const char *from = r->at;
	while (r->at < r->end && strchr(" \t\r\n,:{}[]\"", *r->at) == NULL)
		r->at++;
	return r->at > from;
}

/* An object or an array, by counting. */
static bool skip_nested(struct json_reader *r)
{
	size_t depth = 0;
	do {
		if (r->at == r->end)
			return false;
		if (*r->at == '"') {
			if (!skip_string(r))
				return false;
			continue;
		}
		depth += *r->at == '{' || *r->at == '[';
		depth -= *r->at == '}' || *r->at == ']';
		r->at++;
	} while (depth > 0);
	return true;
}

static bool skip_value(struct json_reader *r)
{
	if (r->at == r->end)
		return false;
	if (*r->at == '"')
		return skip_string(r);
	return *r->at == '{' || *r->at == '[' ? skip_nested(r) : skip_word(r);
}

static enum json_next read_end(struct json_reader *r)
{
	skip_space(r);
	return r->at == r->end ? JSON_END : JSON_BAD;
}

enum json_next json_next(struct json_reader *r, struct json_member *m)
{
	ASSERT(r->at != NULL && r->at <= r->end);
	buf_reset(&m->name);
	if (r->members == 0 && !take(r, '{'))
		return JSON_BAD;
	if (take(r, '}'))
		return read_end(r);
	if (r->members > 0 && !take(r, ','))
		return JSON_BAD;
	skip_space(r);
	const char *name = r->at;
	if (!skip_string(r) || !json_string(name, (size_t)(r->at - name), &m->name) ||
		!take(r, ':'))
		return JSON_BAD;
	skip_space(r);
	m->value = r->at;
	if (!skip_value(r))
		return JSON_BAD;
	m->len = (size_t)(r->at - m->value);
	ASSERT(m->len > 0);
	r->members++;
	return JSON_MEMBER;
}

/* ------------------------------------------------------------------------------------------------
 * Strings
 * ------------------------------------------------------------------------------------------------ */

static bool read_hex(const char **at, const char *end, unsigned *ret)
{
	unsigned n = 0;
	if (end - *at < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		char c = *(*at)++;
		char lower = util_lower(c);
		if (c >= '0' && c <= '9')
			n = n * 16 + (unsigned)(c - '0');
		else if (lower >= 'a' && lower <= 'f')
			n = n * 16 + (unsigned)(lower - 'a' + 10);
		else
			return false;
	}
	*ret = n;
	return true;
}

static void put_character(struct buf *ret, unsigned n)
{
	if (n < 0x80) {
		buf_putc(ret, (char)n);
		return;
	}
	if (n < 0x800)
		buf_putc(ret, (char)(0xc0 | n >> 6));
	else if (n < 0x10000) {
		buf_putc(ret, (char)(0xe0 | n >> 12));
		buf_putc(ret, (char)(0x80 | (n >> 6 & 0x3f)));
	} else {
		buf_putc(ret, (char)(0xf0 | n >> 18));
		buf_putc(ret, (char)(0x80 | (n >> 12 & 0x3f)));
		buf_putc(ret, (char)(0x80 | (n >> 6 & 0x3f)));
	}
	buf_putc(ret, (char)(0x80 | (n & 0x3f)));
}

/* Behind \u; one of the upper half of the characters is written as two. */
static bool read_character(const char **at, const char *end, struct buf *ret)
{
	unsigned n, low;
	if (!read_hex(at, end, &n) || n == 0 || (n >= 0xdc00 && n < 0xe000))
		return false;
	if (n >= 0xd800 && n < 0xdc00) {
		if (end - *at < 2 || (*at)[0] != '\\' || (*at)[1] != 'u')
			return false;
		*at += 2;
		if (!read_hex(at, end, &low) || low < 0xdc00 || low >= 0xe000)
			return false;
		n = 0x10000 + ((n - 0xd800) << 10) + (low - 0xdc00);
	}
	put_character(ret, n);
	return true;
}

static bool read_escape(const char **at, const char *end, struct buf *ret)
{
	static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	if (*at == end)
		return false;
	char c = *(*at)++;
	if (c == 'u')
		return read_character(at, end, ret);
	const char *name = c != '\0' ? strchr(names, c) : NULL;
	if (name == NULL)
		return false;
	buf_putc(ret, means[name - names]);
	return true;
}

bool json_string(const char *value, size_t len, struct buf *ret)
{
	if (len < 2 || value[0] != '"' || value[len - 1] != '"')
		return false;
	const char *at = value + 1, *end = value + len - 1;
	while (at < end) {
		const char *special = at;
		while (special < end && *special != '\\')
			special++;
		buf_put(ret, at, (size_t)(special - at));
		at = special;
		if (at < end && (at++, !read_escape(&at, end, ret)))
			return false;
	}
	return true;
}

size_t json_character(char dst[JSON_CHARACTER_MAX], const char *text, size_t len, size_t *used)
{
	char character[5] = "";

	ASSERT(len > 0);
	memcpy(character, text, len < 4 ? len : 4);
	*used = util_utf8_len(character);
	if (*used == 0) {
		*used = 1;
		memcpy(dst, "\xef\xbf\xbd", 3);
		return 3;
	}
	if (*text == '"' || *text == '\\') {
		dst[0] = '\\';
		dst[1] = *text;
		return 2;
	}
	if ((unsigned char)*text < ' ' || *text == 0x7f)
		return (size_t)snprintf(dst, JSON_CHARACTER_MAX, "\\u%04x", (unsigned)*text);
	memcpy(dst, text, *used);
	return *used;
}

void json_quote(struct buf *ret, const char *text, size_t len)
{
	char character[JSON_CHARACTER_MAX];
	size_t used;

	buf_putc(ret, '"');
	for (; len > 0; text += used, len -= used)
		buf_put(ret, character, json_character(character, text, len, &used));
	buf_putc(ret, '"');
}
