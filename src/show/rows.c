/*
 * The rows of a SHOW, in the formats that were asked for. Knows types, not what is shown.
 * Entry points: row_begin() and its like in show/show.h; row_put() in show_int.h.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "show_int.h"

void row_begin(struct show_rows *r)
{
	r->start = build_row_begin(r->out, r->n_fields);
	r->column = 0;
}

void row_end(struct show_rows *r)
{
	if (r->process != 0)
		row_int(r, r->process);
	ASSERT(r->column == r->n_fields);
	build_row_end(r->out, r->start);
	r->n_rows++;
}

/* So many bytes at the beginning are UTF-8. */
static size_t utf8_len(const char *s)
{
	size_t len = 0, n;

	while ((n = util_utf8_len(s + len)) > 0)
		len += n;
	return len;
}

/* What is no UTF-8, of a name that a client has said in its own encoding, as \xNN: who reads the rows would refuse them. */
static void put_readable(struct buf *b, const char *s)
{
	struct buf text = BUF_INIT;
	size_t n;

	for (; *s != '\0'; s += n) {
		n = util_utf8_len(s);
		if (n > 0) {
			buf_put(&text, s, n);
			continue;
		}
		buf_printf(&text, "\\x%02X", (unsigned)(uint8_t)*s);
		n = 1;
	}
	build_row_text(b, buf_failed(&text) ? "" : buf_cstr(&text));
	buf_free(&text);
}

void row_text(struct show_rows *r, const char *s)
{
	ASSERT(r->column < r->n_fields && r->fields[r->column].oid == OID_TEXT);
	r->column++;
	if (s == NULL || s[utf8_len(s)] == '\0')
		build_row_text(r->out, s);
	else
		put_readable(r->out, s);
}

void row_null(struct show_rows *r)
{
	ASSERT(r->column < r->n_fields);
	r->column++;
	build_row_value(r->out, NULL, -1);
}

static bool is_binary(const struct show_rows *r)
{
	if (r->n_formats == 0)
		return false;
	return r->formats[r->n_formats == 1 ? 0 : r->column] == 1;
}

static void put_u16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* numeric_send(): number of digits to the base 10000, weight of the first, sign, scale, digits. */
static void numeric(struct buf *b, int64_t v)
{
	uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;
	unsigned digits[8], n = 0;
	uint8_t out[8 + 2 * ARRAY_LEN(digits)];

	for (; rest > 0; rest /= 10000)
		digits[n++] = (unsigned)(rest % 10000);
	put_u16(out, n);
	put_u16(out + 2, n > 0 ? n - 1 : 0);
	put_u16(out + 4, v < 0 ? 0x4000 : 0);
	put_u16(out + 6, 0);
	for (unsigned i = 0; i < n; i++)
		put_u16(out + 8 + 2 * i, digits[n - 1 - i]);
	build_row_value(b, out, (int32_t)(8 + 2 * n));
}

static void integer(struct buf *b, int64_t v, int size)
{
	uint8_t out[8];

	for (int i = 0; i < size; i++)
		out[i] = (uint8_t)((uint64_t)v >> (8 * (size - 1 - i)));
	build_row_value(b, out, size);
}

void row_int(struct show_rows *r, int64_t v)
{
	uint32_t oid;
	bool binary;

	ASSERT(r->column < r->n_fields);
	oid = r->fields[r->column].oid;
	binary = is_binary(r);
	ASSERT(oid == OID_INT4 || oid == OID_INT8 || oid == OID_NUMERIC);
	r->column++;
	if (oid == OID_INT4)
		v = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : v;
	if (!binary)
		build_row_printf(r->out, "%lld", (long long)v);
	else if (oid == OID_NUMERIC)
		numeric(r->out, v);
	else
		integer(r->out, v, oid == OID_INT4 ? 4 : 8);
}

void row_constant(struct show_rows *r, const char *text)
{
	uint8_t on = text[0] == 't';

	switch (r->fields[r->column].oid) {
	case OID_TEXT:
		row_text(r, text);
		return;
	case OID_BOOL:
		if (is_binary(r))
			build_row_value(r->out, &on, 1);
		else
			build_row_text(r->out, text);
		r->column++;
		return;
	default:
		row_int(r, text[0] - '0');
	}
}

/* --- what is no number and no text --- */

void row_short(struct show_rows *r, struct put_short v)
{
	row_text(r, v.text);
}

void row_maybe(struct show_rows *r, struct put_maybe v)
{
	if (v.is)
		row_int(r, v.value);
	else
		row_null(r);
}

struct put_short put_time(usec_t wall)
{
	struct put_short ret = {""};
	time_t t = (time_t)(wall / USEC_SEC);
	struct tm tm;

	if (wall != 0 &&
		(localtime_r(&t, &tm) == NULL ||
			strftime(ret.text, sizeof(ret.text), "%Y-%m-%d %H:%M:%S %Z", &tm) == 0))
		ret.text[0] = '\0';
	return ret;
}

struct put_short put_object(uint64_t id)
{
	struct put_short ret = {""};

	if (id != 0)
		snprintf(ret.text, sizeof(ret.text), "0x%llx", (unsigned long long)id);
	return ret;
}

struct put_short put_optional(int v)
{
	struct put_short ret = {""};

	if (v >= 0)
		snprintf(ret.text, sizeof(ret.text), "%d", v);
	return ret;
}

struct put_maybe put_unless_negative(int64_t v)
{
	return (struct put_maybe){.is = v >= 0, .value = v};
}
