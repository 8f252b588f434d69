/*
 * Writing messages of the Postgres protocol into a struct buf. An allocation failure sticks in the
 * buffer (buf_failed).
 */
#ifndef QB_WIRE_BUILD_H
#define QB_WIRE_BUILD_H

#include "base/buf.h"
#include "wire/error.h"

struct wire_col;
struct wire_msg;

/* Type OIDs of pg_type that we name in RowDescription. */
enum wire_oid {
	OID_BOOL = 16,
	OID_BYTEA = 17,
	OID_NAME = 19,
	OID_INT8 = 20,
	OID_INT2 = 21,
	OID_INT4 = 23,
	OID_TEXT = 25,
	OID_JSON = 114,
	OID_FLOAT8 = 701,
	OID_UNKNOWN = 705,
	OID_INT4_ARRAY = 1007,
	OID_TEXT_ARRAY = 1009,
	OID_VARCHAR_ARRAY = 1015,
	OID_INT8_ARRAY = 1016,
	OID_VARCHAR = 1043,
	OID_TIMESTAMPTZ = 1184,
	OID_INTERVAL = 1186,
	OID_NUMERIC = 1700,
	OID_VOID = 2278,
	OID_UUID = 2950,
	OID_JSONB = 3802,
};

struct wire_field {
	const char *name;
	uint32_t oid;
};

/* The four bytes of an integer where there is room for them. */
static inline void build_store_i32(uint8_t *p, int64_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

/* begin returns the offset that end needs; end patches the length. type 0: no type byte. */
size_t build_begin(struct buf *b, uint8_t type);
void build_end(struct buf *b, size_t start);
/* The same for a counted text inside a message, begun with type 0: the length leaves itself out. */
void build_end_counted(struct buf *b, size_t start);
void build_u8(struct buf *b, uint8_t v);
void build_i16(struct buf *b, int v);
void build_i32(struct buf *b, int64_t v);
void build_i64(struct buf *b, int64_t v);
void build_cstr(struct buf *b, const char *s); /* with terminator */
void build_bytes(struct buf *b, const void *p, size_t len);

/* backend messages */
void build_simple(struct buf *b, uint8_t type); /* no body: '1' '2' '3' 'n' 's' 'I' 'S' 'H' 'X' 'c' */
void build_ready(struct buf *b, char status);
void build_complete(struct buf *b, const char *tag);
void build_error(struct buf *b, const struct pg_error *err);  /* 'E' */
void build_notice(struct buf *b, const struct pg_error *err); /* 'N' */
/* One of these two, of which more than so many bytes are here, without the rest: its last text ends with three dots. false:
 * memory. */
MUST_CHECK bool build_cut(struct buf *b, const struct wire_msg *m, size_t at);
void build_parameter_status(struct buf *b, const char *name, const char *value);
/* formats as in Bind: n_formats 0 = all text, 1 = for all, n = each */
void build_row_description(struct buf *b, const struct wire_field *f, int n, const int16_t *formats, int n_formats);
void build_parameter_description(struct buf *b, const uint32_t *oids, int n);
size_t build_row_begin(struct buf *b, int n_columns);
void build_row_text(struct buf *b, const char *s); /* NULL pointer: SQL NULL */
void build_row_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void build_row_value(struct buf *b, const void *p, int32_t len); /* len -1: SQL NULL */
void build_row_end(struct buf *b, size_t start);
/* A whole row of columns as they were read; and the first ones of a row, whose body they were read from. */
void build_row(struct buf *b, const struct wire_col *cols, int n);
void build_row_first(struct buf *b, const uint8_t *body, const struct wire_col *cols, int n);
void build_auth(struct buf *b, int32_t code, const void *data, size_t len); /* 'R' */
void build_key_data(struct buf *b, int32_t pid, const void *key, size_t key_len);
/* newest_minor: 0 for 3.0; what is sent is the whole version number, as Postgres does */
void build_negotiate(struct buf *b, int32_t newest_minor, const char *const *options, int n);

/* frontend messages */
void build_query(struct buf *b, const char *sql);
void build_parse(struct buf *b, const char *name, const char *sql, size_t sql_len, const uint32_t *oids, int n);
void build_execute(struct buf *b, const char *portal, int32_t max_rows);
void build_close(struct buf *b, char kind, const char *name);    /* kind 'S' or 'P' */
void build_describe(struct buf *b, char kind, const char *name);
void build_startup(struct buf *b, int32_t version, const char *const *name_value_pairs, int n_pairs);
void build_password(struct buf *b, const void *data, size_t len); /* 'p' */
/* Asks whether TLS may begin. */
void build_ssl_request(struct buf *b);
void build_cancel(struct buf *b, int32_t pid, const void *key, size_t key_len);

#endif
