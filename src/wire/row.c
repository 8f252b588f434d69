/*
 * Reading the columns of a DataRow. Runs for every row that the proxy reads itself, so a column is one
 * step. Entry points: wire_row_*, wire_col_*.
 */
#include "wire/row.h"

#include <string.h>

static int32_t get_i32(const uint8_t *p)
{
	return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

int wire_row_begin(struct wire_row *r, const uint8_t *body, size_t len)
{
	*r = (struct wire_row){.failed = len < 2};
	if (r->failed)
		return 0;
	r->pos = body + 2;
	r->end = body + len;
	r->left = (int16_t)(uint16_t)(body[0] << 8 | body[1]);
	return r->left;
}

void wire_row_values(struct wire_row *r, const uint8_t *values, size_t len, int n)
{
	*r = (struct wire_row){.pos = values, .left = n};
	r->end = len > 0 ? values + len : values;
}

static inline struct wire_col next(struct wire_row *r)
{
	struct wire_col c = {.len = -1};
	size_t here = r->failed || r->left <= 0 ? 0 : (size_t)(r->end - r->pos);
	int32_t len = here >= 4 ? get_i32(r->pos) : -1;

	if (here < 4 || (len > 0 && (size_t)len > here - 4)) {
		r->failed = true;
		return c;
	}
	r->pos += 4;
	r->left--;
	if (len >= 0) {
		c = (struct wire_col){.data = r->pos, .len = len};
		r->pos += len;
	}
	return c;
}

struct wire_col wire_row_next(struct wire_row *r)
{
	return next(r);
}

void wire_row_skip(struct wire_row *r, int n)
{
	const uint8_t *pos = r->pos;
	int left = r->left;

	for (; n > 0 && !r->failed; n--, left--) {
		size_t here = (size_t)(r->end - pos);
		int32_t len = left > 0 && here >= 4 ? get_i32(pos) : 0;
		size_t size = len > 0 ? 4 + (size_t)len : 4;

		r->failed = left <= 0 || here < size;
		if (!r->failed)
			pos += size;
	}
	r->pos = pos;
	r->left = left;
}

bool wire_row_done(const struct wire_row *r)
{
	return !r->failed && r->left == 0 && r->pos == r->end;
}

bool wire_row_read(const uint8_t *body, size_t len, struct wire_col *cols, int n)
{
	struct wire_row r;

	if (wire_row_begin(&r, body, len) != n)
		return false;
	for (int i = 0; i < n; i++)
		cols[i] = next(&r);
	return wire_row_done(&r);
}

bool wire_row_read_first(const uint8_t *body, size_t len, struct wire_col *cols, int n)
{
	struct wire_row r;

	if (wire_row_begin(&r, body, len) < n)
		return false;
	for (int i = 0; i < n; i++)
		cols[i] = next(&r);
	return !r.failed;
}

size_t wire_row_size(const struct wire_col *cols, int n)
{
	size_t size = 0;

	for (int i = 0; i < n; i++)
		size += sizeof(cols[i].len) + (cols[i].len > 0 ? (size_t)cols[i].len : 0);
	return size;
}

struct wire_col wire_row_value(const uint8_t *body, size_t len)
{
	struct wire_col c;

	return wire_row_read(body, len, &c, 1) ? c : (struct wire_col){.len = -1};
}

bool wire_row_is_null(const uint8_t *body, size_t len)
{
	struct wire_col c;

	return wire_row_read_first(body, len, &c, 1) && c.len < 0;
}

bool wire_col_number(const struct wire_col *c, int64_t *ret)
{
	return c->len > 0 && util_parse_i64((const char *)c->data, (size_t)c->len, ret);
}

bool wire_col_int(const struct wire_col *c, int size, int64_t *ret)
{
	uint64_t v = 0;

	if (c->len != size)
		return false;
	for (int i = 0; i < size; i++)
		v = v << 8 | c->data[i];
	*ret = size == 4 ? (int32_t)(uint32_t)v : (int64_t)v;
	return true;
}

bool wire_col_is(const struct wire_col *c, const char *text)
{
	size_t n = strlen(text);

	return c->len >= 0 && (size_t)c->len == n && memcmp(c->data, text, n) == 0;
}

bool wire_col_copy(const struct wire_col *c, char *dst, size_t size)
{
	size_t n = c->len > 0 ? (size_t)c->len : 0;
	bool fits = c->len >= 0 && n < size;

	n = n < size ? n : size - 1;
	if (n > 0)
		memcpy(dst, c->data, n);
	dst[n] = '\0';
	return fits;
}
