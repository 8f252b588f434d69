/*
 * Writing messages. Every message starts with build_begin and ends with build_end, which patches
 * the length; nobody computes a length by hand. Must not know sockets or who reads it.
 *
 * The offset that build_begin gives counts from buf.off, so it stays right when the buffer moves
 * its contents to make room.
 */
#include "wire/build.h"

#include <stdio.h>
#include <string.h>

#include "wire/msg.h"
#include "wire/row.h"

#define CANCEL_CODE ((int32_t)(1234u << 16 | 5678u))
#define SSL_CODE    ((int32_t)(1234u << 16 | 5679u))
#define PROTOCOL_3  (3 << 16)
#define ROW_TYPMOD  (-1)
#define FIELD_FIXED 18 /* bytes of a column's description behind its name */
#define FIELD_SIZE  32 /* ... with it, about */

size_t build_begin(struct buf *b, uint8_t type)
{
	static const uint8_t room[4];
	size_t start;

	if (type)
		build_u8(b, type);
	start = buf_used(b);
	buf_put(b, room, sizeof(room));
	return start;
}

/* Patches a 32-bit length at start; self says whether it counts itself. */
static void patch_length(struct buf *b, size_t start, bool self)
{
	size_t len;

	if (buf_failed(b))
		return;
	ASSERT(buf_used(b) - start >= 4);
	len = buf_used(b) - start - (self ? 0 : 4);
	if (len > INT32_MAX - 1) {
		b->failed = true; /* cannot be said in the protocol */
		return;
	}
	build_store_i32(b->data + b->off + start, (int64_t)len);
}

void build_end(struct buf *b, size_t start)
{
	patch_length(b, start, true);
}

void build_end_counted(struct buf *b, size_t start)
{
	patch_length(b, start, false);
}

void build_u8(struct buf *b, uint8_t v)
{
	buf_put(b, &v, 1);
}

void build_i16(struct buf *b, int v)
{
	if (b->cap - b->len < 2)
		buf_reserve(b, 2);
	if (buf_failed(b))
		return;
	b->data[b->len++] = (uint8_t)((unsigned)v >> 8);
	b->data[b->len++] = (uint8_t)v;
}

void build_i32(struct buf *b, int64_t v)
{
	if (b->cap - b->len < 4)
		buf_reserve(b, 4);
	if (buf_failed(b))
		return;
	build_store_i32(b->data + b->len, v);
	b->len += 4;
}

void build_i64(struct buf *b, int64_t v)
{
	build_i32(b, (int64_t)((uint64_t)v >> 32));
	build_i32(b, (int64_t)((uint64_t)v & UINT32_MAX));
}

void build_cstr(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s) + 1);
}

void build_bytes(struct buf *b, const void *p, size_t len)
{
	if (len)
		buf_put(b, p, len);
}

void build_simple(struct buf *b, uint8_t type)
{
	const uint8_t msg[5] = {type, 0, 0, 0, 4};

	buf_put(b, msg, sizeof(msg));
}

void build_ready(struct buf *b, char status)
{
	const uint8_t msg[6] = {'Z', 0, 0, 0, 5, (uint8_t)status};

	buf_put(b, msg, sizeof(msg));
}

void build_complete(struct buf *b, const char *tag)
{
	size_t start = build_begin(b, 'C');

	build_cstr(b, tag);
	build_end(b, start);
}

static void build_error_field(struct buf *b, char code, const char *text)
{
	if (!text[0])
		return;
	build_u8(b, (uint8_t)code);
	build_cstr(b, text);
}

static void build_report(struct buf *b, uint8_t type, const struct pg_error *err)
{
	size_t start = build_begin(b, type);
	char position[16] = "";

	if (err->position > 0)
		snprintf(position, sizeof(position), "%d", err->position);
	build_error_field(b, 'S', err->severity);
	build_error_field(b, 'V', err->severity);
	build_error_field(b, 'C', err->sqlstate);
	/* Present even when empty: the protocol promises S, C and M. */
	build_u8(b, 'M');
	build_cstr(b, err->message);
	build_error_field(b, 'D', err->detail);
	build_error_field(b, 'H', err->hint);
	build_error_field(b, 'P', position);
	build_u8(b, 0);
	build_end(b, start);
}

void build_error(struct buf *b, const struct pg_error *err)
{
	build_report(b, 'E', err);
}

void build_notice(struct buf *b, const struct pg_error *err)
{
	build_report(b, 'N', err);
}

/* Without half of a character of UTF-8 at its end. */
static size_t whole_chars(const uint8_t *text, size_t len)
{
	size_t n = len;

	while (n > 1 && len - n < 3 && (text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

bool build_cut(struct buf *b, const struct wire_msg *m, size_t at)
{
	size_t start = build_begin(b, m->type), n;

	ASSERT(at > 0 && m->have > at);
	n = whole_chars(m->body, at);
	build_bytes(b, m->body, n);
	if (m->body[n - 1] != '\0') /* in the middle of a field */
		build_cstr(b, "...");
	build_u8(b, 0);
	build_end(b, start);
	return !buf_failed(b);
}

void build_parameter_status(struct buf *b, const char *name, const char *value)
{
	size_t start = build_begin(b, 'S');

	build_cstr(b, name);
	build_cstr(b, value);
	build_end(b, start);
}

/* pg_type.typlen: what a client may use to size its columns. */
static int oid_length(uint32_t oid)
{
	switch (oid) {
	case OID_BOOL:
		return 1;
	case OID_INT2:
		return 2;
	case OID_INT4:
	case OID_VOID:
		return 4;
	case OID_INT8:
	case OID_TIMESTAMPTZ:
	case OID_FLOAT8:
		return 8;
	case OID_INTERVAL:
	case OID_UUID:
		return 16;
	case OID_UNKNOWN:
		return -2;
	default:
		return -1;
	}
}

void build_row_description(
	struct buf *b, const struct wire_field *f, int n, const int16_t *formats, int n_formats)
{
	size_t start = build_begin(b, 'T');

	build_i16(b, n);
	for (int i = 0; i < n; i++) {
		int format = 0, length = oid_length(f[i].oid);
		size_t len = strlen(f[i].name) + 1;
		uint8_t *p;

		if (n_formats == 1)
			format = formats[0];
		else if (i < n_formats)
			format = formats[i];
		if (b->cap - b->len < len + FIELD_FIXED)
			buf_reserve(b, (size_t)(n - i) * FIELD_SIZE + len);
		if (buf_failed(b))
			break;
		p = b->data + b->len;
		memcpy(p, f[i].name, len);
		p += len;
		build_store_i32(p, 0); /* no table */
		p[4] = p[5] = 0;       /* no attribute */
		build_store_i32(p + 6, f[i].oid);
		p[10] = (uint8_t)((unsigned)length >> 8);
		p[11] = (uint8_t)length;
		build_store_i32(p + 12, ROW_TYPMOD);
		p[16] = (uint8_t)((unsigned)format >> 8);
		p[17] = (uint8_t)format;
		b->len += len + FIELD_FIXED;
	}
	build_end(b, start);
}

void build_parameter_description(struct buf *b, const uint32_t *oids, int n)
{
	size_t start = build_begin(b, 't');

	build_i16(b, n);
	for (int i = 0; i < n; i++)
		build_i32(b, oids[i]);
	build_end(b, start);
}

size_t build_row_begin(struct buf *b, int n_columns)
{
	size_t start = build_begin(b, 'D');

	build_i16(b, n_columns);
	return start;
}

void build_row_value(struct buf *b, const void *p, int32_t len)
{
	build_i32(b, len);
	if (len > 0)
		buf_put(b, p, (size_t)len);
}

void build_row_text(struct buf *b, const char *s)
{
	size_t len = s ? strlen(s) : 0;

	if (len > INT32_MAX)
		b->failed = true;
	else
		build_row_value(b, s, s ? (int32_t)len : -1);
}

void build_row_printf(struct buf *b, const char *fmt, ...)
{
	size_t start = build_begin(b, 0);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
	build_end_counted(b, start);
}

void build_row_end(struct buf *b, size_t start)
{
	build_end(b, start);
}

void build_row(struct buf *b, const struct wire_col *cols, int n)
{
	size_t start = build_row_begin(b, n), size = wire_row_size(cols, n);
	uint8_t *at;

	buf_reserve(b, size);
	if (!buf_failed(b)) {
		at = b->data + b->len;
		for (int i = 0; i < n; i++) {
			build_store_i32(at, cols[i].len);
			at += sizeof(cols[i].len);
			if (cols[i].len > 0) {
				memcpy(at, cols[i].data, (size_t)cols[i].len);
				at += cols[i].len;
			}
		}
		b->len += size;
	}
	build_row_end(b, start);
}

void build_row_first(struct buf *b, const uint8_t *body, const struct wire_col *cols, int n)
{
	size_t start = build_row_begin(b, n);

	buf_put(b, body + 2, wire_row_size(cols, n));
	build_row_end(b, start);
}

void build_auth(struct buf *b, int32_t code, const void *data, size_t len)
{
	size_t start = build_begin(b, 'R');

	build_i32(b, code);
	build_bytes(b, data, len);
	build_end(b, start);
}

void build_key_data(struct buf *b, int32_t pid, const void *key, size_t key_len)
{
	size_t start = build_begin(b, 'K');

	build_i32(b, pid);
	build_bytes(b, key, key_len);
	build_end(b, start);
}

/* Postgres sends, and libpq checks, the whole version number, not the minor part alone. */
void build_negotiate(struct buf *b, int32_t newest_minor, const char *const *options, int n)
{
	size_t start = build_begin(b, 'v');

	build_i32(b, PROTOCOL_3 | (newest_minor & 0xFFFF));
	build_i32(b, n);
	for (int i = 0; i < n; i++)
		build_cstr(b, options[i]);
	build_end(b, start);
}

void build_query(struct buf *b, const char *sql)
{
	size_t start = build_begin(b, 'Q');

	build_cstr(b, sql);
	build_end(b, start);
}

void build_parse(struct buf *b, const char *name, const char *sql, size_t sql_len,
	const uint32_t *oids, int n)
{
	size_t start = build_begin(b, 'P');

	build_cstr(b, name);
	build_bytes(b, sql, sql_len);
	build_u8(b, 0);
	build_i16(b, n);
	for (int i = 0; i < n; i++)
		build_i32(b, oids[i]);
	build_end(b, start);
}

void build_execute(struct buf *b, const char *portal, int32_t max_rows)
{
	size_t start = build_begin(b, 'E');

	build_cstr(b, portal);
	build_i32(b, max_rows);
	build_end(b, start);
}

static void build_kind_name(struct buf *b, uint8_t type, char kind, const char *name)
{
	size_t start = build_begin(b, type);

	build_u8(b, (uint8_t)kind);
	build_cstr(b, name);
	build_end(b, start);
}

void build_close(struct buf *b, char kind, const char *name)
{
	build_kind_name(b, 'C', kind, name);
}

void build_describe(struct buf *b, char kind, const char *name)
{
	build_kind_name(b, 'D', kind, name);
}

void build_startup(struct buf *b, int32_t version, const char *const *name_value_pairs, int n_pairs)
{
	size_t start = build_begin(b, 0);

	build_i32(b, version);
	for (int i = 0; i < 2 * n_pairs; i++)
		build_cstr(b, name_value_pairs[i]);
	build_u8(b, 0);
	build_end(b, start);
}

void build_password(struct buf *b, const void *data, size_t len)
{
	size_t start = build_begin(b, 'p');

	build_bytes(b, data, len);
	build_end(b, start);
}

void build_ssl_request(struct buf *b)
{
	size_t start = build_begin(b, 0);

	build_i32(b, SSL_CODE);
	build_end(b, start);
}

void build_cancel(struct buf *b, int32_t pid, const void *key, size_t key_len)
{
	size_t start = build_begin(b, 0);

	build_i32(b, CANCEL_CODE);
	build_i32(b, pid);
	build_bytes(b, key, key_len);
	build_end(b, start);
}
