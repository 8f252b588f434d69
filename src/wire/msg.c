/*
 * Reading messages: the reader with a sticky error, names of message types, and the fields of
 * errors. Knows no sockets and keeps no state. Entry points: wire_reader_init, wire_get_*,
 * wire_read_notice; wire_next is inline in the header, it runs for every message that passes.
 */
#include "wire/msg.h"

#include <string.h>

void wire_reader_init(struct wire_reader *r, const void *data, size_t len)
{
	/* A pointer that may be NULL with no bytes behind it must not meet arithmetic. */
	static const uint8_t nothing[1];

	r->pos = len ? data : nothing;
	r->end = r->pos + len;
	r->failed = false;
}

size_t wire_left(const struct wire_reader *r)
{
	return (size_t)(r->end - r->pos);
}

bool wire_done(const struct wire_reader *r)
{
	return !r->failed && r->pos == r->end;
}

static void reader_fail(struct wire_reader *r)
{
	r->failed = true;
	r->pos = r->end;
}

const uint8_t *wire_get_bytes(struct wire_reader *r, size_t len)
{
	const uint8_t *p = r->pos;

	if (r->failed || len > wire_left(r)) {
		reader_fail(r);
		return NULL;
	}
	r->pos += len;
	return p;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
	const uint8_t *p = wire_get_bytes(r, 1);

	return p ? p[0] : 0;
}

int16_t wire_get_i16(struct wire_reader *r)
{
	const uint8_t *p = wire_get_bytes(r, 2);

	return p ? (int16_t)(uint16_t)(p[0] << 8 | p[1]) : 0;
}

uint32_t wire_get_u32(struct wire_reader *r)
{
	const uint8_t *p = wire_get_bytes(r, 4);

	if (!p)
		return 0;
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int32_t wire_get_i32(struct wire_reader *r)
{
	return (int32_t)wire_get_u32(r);
}

const char *wire_get_cstr(struct wire_reader *r, size_t *ret_len)
{
	const uint8_t *start = r->pos;
	const uint8_t *nul = r->failed ? NULL : memchr(start, 0, wire_left(r));

	if (!nul) {
		reader_fail(r);
		if (ret_len)
			*ret_len = 0;
		return "";
	}
	r->pos = nul + 1;
	if (ret_len)
		*ret_len = (size_t)(nul - start);
	return (const char *)start;
}

static const char *const frontend_names[128] = {
	['B'] = "Bind",
	['C'] = "Close",
	['D'] = "Describe",
	['E'] = "Execute",
	['F'] = "FunctionCall",
	['H'] = "Flush",
	['P'] = "Parse",
	['Q'] = "Query",
	['S'] = "Sync",
	['X'] = "Terminate",
	['c'] = "CopyDone",
	['d'] = "CopyData",
	['f'] = "CopyFail",
	['p'] = "PasswordMessage",
};

static const char *const backend_names[128] = {
	['1'] = "ParseComplete",
	['2'] = "BindComplete",
	['3'] = "CloseComplete",
	['A'] = "NotificationResponse",
	['C'] = "CommandComplete",
	['D'] = "DataRow",
	['E'] = "ErrorResponse",
	['G'] = "CopyInResponse",
	['H'] = "CopyOutResponse",
	['I'] = "EmptyQueryResponse",
	['K'] = "BackendKeyData",
	['N'] = "NoticeResponse",
	['R'] = "Authentication",
	['S'] = "ParameterStatus",
	['T'] = "RowDescription",
	['V'] = "FunctionCallResponse",
	['W'] = "CopyBothResponse",
	['Z'] = "ReadyForQuery",
	['c'] = "CopyDone",
	['d'] = "CopyData",
	['n'] = "NoData",
	['s'] = "PortalSuspended",
	['t'] = "ParameterDescription",
	['v'] = "NegotiateProtocolVersion",
};

const char *wire_type_name(uint8_t type, bool from_client)
{
	const char *name = NULL;

	if (type < 128)
		name = from_client ? frontend_names[type] : backend_names[type];
	return name ? name : "unknown";
}

void wire_read_notice(const uint8_t *body, size_t len, struct wire_notice *ret)
{
	struct wire_reader r;
	const char *nonlocal = NULL, *local = NULL;

	*ret = (struct wire_notice){.sqlstate = "XX000", .message = ""};
	wire_reader_init(&r, body, len);
	for (;;) {
		uint8_t code = wire_get_u8(&r);
		size_t n;
		const char *text;

		if (!code)
			break;
		text = wire_get_cstr(&r, &n);
		if (r.failed)
			break;
		switch (code) {
		case 'S':
			local = text;
			break;
		case 'V':
			nonlocal = text;
			break;
		case 'C':
			if (n == 5)
				ret->sqlstate = text;
			break;
		case 'M':
			ret->message = text;
			break;
		case 'D':
			ret->detail = text;
			break;
		case 'W':
			ret->context = text;
			break;
		case 'R':
			ret->routine = text;
			break;
		case 'H':
			ret->hint = text;
			break;
		default:
			break; /* a newer server may send more */
		}
	}
	ret->severity = nonlocal ? nonlocal : local ? local : "ERROR";
}
