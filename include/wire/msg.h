/*
 * Reading messages of the Postgres protocol, version 3. Pure: bytes in, views out. A view borrows
 * the caller's bytes. Formats: PostgreSQL documentation, chapter "Frontend/Backend Protocol",
 * section "Message Formats".
 */
#ifndef QB_WIRE_MSG_H
#define QB_WIRE_MSG_H

#include "base/util.h"

/* A reader with a sticky error: after an overrun every get returns zero; check `failed` once. */
struct wire_reader {
	const uint8_t *pos, *end;
	bool failed;
};

void wire_reader_init(struct wire_reader *r, const void *data, size_t len);
uint8_t wire_get_u8(struct wire_reader *r);
int16_t wire_get_i16(struct wire_reader *r);
int32_t wire_get_i32(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
const uint8_t *wire_get_bytes(struct wire_reader *r, size_t len); /* NULL on overrun */
const char *wire_get_cstr(struct wire_reader *r, size_t *ret_len); /* "" on overrun; ret_len may be NULL */
size_t wire_left(const struct wire_reader *r);
/* true when nothing failed and all bytes were taken */
MUST_CHECK bool wire_done(const struct wire_reader *r);

#define WIRE_HEADER 5 /* type byte + int32 length */

/* A message as far as it is here. */
struct wire_msg {
	uint8_t type;
	uint32_t total;      /* header and body: 1 + length field; at least 5 */
	const uint8_t *data; /* at the type byte */
	const uint8_t *body; /* data + 5 */
	size_t have;         /* bytes of the body that are here, <= total - 5 */
};

enum wire_next { WIRE_NEXT_MORE, WIRE_NEXT_OK, WIRE_NEXT_BAD };

/*
 * Looks at the next typed message. OK as soon as the 5 header bytes are here (have may be 0).
 * BAD: length field below 4 or above INT32_MAX - 1.
 */
MUST_CHECK static inline enum wire_next wire_next(
	const uint8_t *data, size_t len, struct wire_msg *ret)
{
	uint32_t length;

	if (len < WIRE_HEADER)
		return WIRE_NEXT_MORE;
	length = (uint32_t)data[1] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 8 | data[4];
	if (length < 4 || length > (uint32_t)INT32_MAX - 1)
		return WIRE_NEXT_BAD;
	ret->type = data[0];
	ret->total = length + 1;
	ret->data = data;
	ret->body = data + WIRE_HEADER;
	len -= WIRE_HEADER;
	ret->have = len < length - 4 ? len : length - 4;
	return WIRE_NEXT_OK;
}
static inline bool wire_complete(const struct wire_msg *m)
{
	return m->have == m->total - WIRE_HEADER;
}

/* Name of a message type for logs, "Query" for 'Q'; from_client says which side sent it. */
const char *wire_type_name(uint8_t type, bool from_client);

/* Fields of ErrorResponse and NoticeResponse. Absent fields are NULL, except sqlstate "XX000",
 * severity "ERROR" and message "". Pointers borrow the body. */
struct wire_notice {
	const char *severity; /* V if present, else S */
	const char *sqlstate, *message, *detail, *hint, *context;
	const char *routine; /* of Postgres, that says so */
};
void wire_read_notice(const uint8_t *body, size_t len, struct wire_notice *ret);

#endif
