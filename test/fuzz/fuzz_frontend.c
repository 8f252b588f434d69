/* Messages of a client: the walk from message to message, and a reader per type. */
#include <stdlib.h>
#include <string.h>

#include "wire/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_values(struct wire_reader *r)
{
	for (int n = (uint16_t)wire_get_i16(r); n > 0 && !r->failed; n--) {
		int32_t len = wire_get_i32(r);

		if (len > 0)
			wire_get_bytes(r, (size_t)len);
	}
}

static void read_formats(struct wire_reader *r)
{
	for (int n = (uint16_t)wire_get_i16(r); n > 0 && !r->failed; n--)
		wire_get_i16(r);
}

static void read_body(uint8_t type, struct wire_reader *r)
{
	switch (type) {
	case 'Q':
	case 'f':
		wire_get_cstr(r, NULL);
		break;
	case 'P':
		wire_get_cstr(r, NULL);
		wire_get_cstr(r, NULL);
		for (int n = (uint16_t)wire_get_i16(r); n > 0 && !r->failed; n--)
			wire_get_u32(r);
		break;
	case 'B':
		wire_get_cstr(r, NULL);
		wire_get_cstr(r, NULL);
		read_formats(r);
		read_values(r);
		read_formats(r);
		break;
	case 'C':
	case 'D':
		wire_get_u8(r);
		wire_get_cstr(r, NULL);
		break;
	case 'E':
		wire_get_cstr(r, NULL);
		wire_get_i32(r);
		break;
	case 'F':
		wire_get_u32(r);
		read_formats(r);
		read_values(r);
		wire_get_i16(r);
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_msg m;

	while (wire_next(data, size, &m) == WIRE_NEXT_OK) {
		struct wire_reader r;

		if (m.total < WIRE_HEADER || m.have > size - WIRE_HEADER)
			abort();
		wire_type_name(m.type, true);
		wire_reader_init(&r, m.body, m.have);
		read_body(m.type, &r);
		if (r.pos > m.body + m.have)
			abort();
		if (!wire_complete(&m))
			break;
		data += m.total;
		size -= m.total;
	}
	return 0;
}
