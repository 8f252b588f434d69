/*
 * Arrays of one dimension, see array.h. Binary: dimensions, whether there are nulls, the type of the
 * elements; then their number and the lower bound, and each with its length (array_send). Text: the
 * rules of array_out and array_in.
 */
#include "wire/array.h"

#include <string.h>

#define LOWER_BOUND 1
#define EMPTY_SIZE  12 /* bytes of an array that has no dimension */

size_t array_begin(struct buf *b, enum wire_oid element, bool nulls)
{
	size_t start = buf_used(b);

	build_i32(b, 1);
	build_i32(b, nulls);
	build_i32(b, element);
	build_i32(b, 0);
	build_i32(b, LOWER_BOUND);
	return start;
}

/* One without elements has no dimension. */
void array_end(struct buf *b, size_t start, int n)
{
	uint8_t *at;

	if (buf_failed(b))
		return;
	at = b->data + b->off + start;
	if (n > 0) {
		build_store_i32(at + EMPTY_SIZE, n);
		return;
	}
	build_store_i32(at, 0);
	b->len = b->off + start + EMPTY_SIZE;
}

void array_put_text(struct buf *b, const char *s)
{
	build_row_value(b, s, s != NULL ? (int32_t)strlen(s) : -1);
}

void array_put_i32(struct buf *b, int32_t v)
{
	build_i32(b, 4);
	build_i32(b, v);
}

void array_put_i64(struct buf *b, int64_t v)
{
	build_i32(b, 8);
	build_i64(b, v);
}

void array_texts(struct buf *b, const char *const *texts, int n)
{
	size_t start = array_begin(b, OID_TEXT, false);

	for (int i = 0; i < n; i++)
		array_put_text(b, texts[i]);
	array_end(b, start, n);
}

/* --- text --- */

static bool is_null_word(const char *text, size_t len)
{
	return len == 4 && util_memcasecmp(text, "null", 4) == 0;
}

static const char *skip_blanks(const char *at, const char *end)
{
	while (at < end && *at == ' ')
		at++;
	return at;
}

/* One element; behind it, or NULL: it is none. */
static const char *read_one(const char *at, const char *end, struct buf *out, bool *null)
{
	bool quoted = *at == '"';
	size_t from = out->len;

	for (at += quoted; at < end && *at != (quoted ? '"' : ','); at++) {
		if (!quoted && strchr("{}\"\\", *at) != NULL)
			return NULL;
		at += quoted && *at == '\\' && at + 1 < end;
		buf_putc(out, *at);
	}
	if (buf_failed(out) || (quoted && at++ == end))
		return NULL;
	while (!quoted && out->len > from && out->data[out->len - 1] == ' ')
		out->len--;
	if (!quoted && out->len == from)
		return NULL;
	*null = *null || (!quoted && is_null_word((const char *)out->data + from, out->len - from));
	buf_putc(out, '\0');
	return skip_blanks(at, end);
}

static bool read_all(const char *text, size_t len, struct names *ret, int *ret_n, bool *ret_null)
{
	const char *at, *end;

	*ret_n = 0;
	*ret_null = false;
	if (len < 2 || text[0] != '{' || text[len - 1] != '}')
		return false;
	end = text + len - 1;
	at = skip_blanks(text + 1, end);
	while (at < end) {
		at = read_one(at, end, &ret->buf, ret_null);
		if (at == NULL)
			return false;
		++*ret_n;
		if (at == end)
			break;
		if (*at++ != ',')
			return false;
		at = skip_blanks(at, end);
		if (at == end)
			return false;
	}
	return !names_failed(ret);
}

bool array_read(const char *text, size_t len, struct names *ret, int *ret_n, bool *ret_null)
{
	*ret = (struct names){0};
	if (read_all(text, len, ret, ret_n, ret_null))
		return true;
	names_free(ret); /* its last one may have no end */
	return false;
}

static bool must_quote(const char *s)
{
	return *s == '\0' || is_null_word(s, strlen(s)) || strpbrk(s, "{}\",\\ \t\n\v\f\r") != NULL;
}

void array_text_begin(struct buf *b)
{
	buf_putc(b, '{');
}

void array_text_put(struct buf *b, const char *s)
{
	if (b->len > 0 && !buf_failed(b) && b->data[b->len - 1] != '{')
		buf_putc(b, ',');
	if (s == NULL) {
		buf_puts(b, "NULL");
		return;
	}
	if (!must_quote(s)) {
		buf_puts(b, s);
		return;
	}
	buf_putc(b, '"');
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			buf_putc(b, '\\');
		buf_putc(b, *s);
	}
	buf_putc(b, '"');
}

void array_text_end(struct buf *b)
{
	buf_putc(b, '}');
}
