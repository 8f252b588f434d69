/* Messages of a server, which is not trusted either; logins with each kind of secret among them. */
#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "wire/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_notice(const struct wire_msg *m)
{
	struct wire_notice n;

	wire_read_notice(m->body, m->have, &n);
	if (strlen(n.sqlstate) != 5 || !n.severity || !n.message)
		abort();
	if (strlen(n.message) > m->have)
		abort();
	if ((n.detail && strlen(n.detail) > m->have) || (n.hint && strlen(n.hint) > m->have))
		abort();
}

static void read_row_description(struct wire_reader *r)
{
	for (int n = (uint16_t)wire_get_i16(r); n > 0 && !r->failed; n--) {
		wire_get_cstr(r, NULL);
		wire_get_bytes(r, 18);
	}
}

static void read_data_row(struct wire_reader *r)
{
	for (int n = (uint16_t)wire_get_i16(r); n > 0 && !r->failed; n--) {
		int32_t len = wire_get_i32(r);

		if (len > 0)
			wire_get_bytes(r, (size_t)len);
	}
}

static void read_body(const struct wire_msg *m, struct auth_login *l, struct buf *out)
{
	struct wire_reader r;
	struct pg_error err;

	wire_reader_init(&r, m->body, m->have);
	switch (m->type) {
	case 'E':
	case 'N':
		read_notice(m);
		break;
	case 'R':
		buf_reset(out);
		if (auth_login_message(l, m->body, m->have, out, &err) == AUTH_REFUSED &&
			buf_used(out) != 0)
			abort();
		break;
	case 'S':
		wire_get_cstr(&r, NULL);
		wire_get_cstr(&r, NULL);
		break;
	case 'T':
		read_row_description(&r);
		break;
	case 'D':
		read_data_row(&r);
		break;
	case 'K':
	case 'A':
		wire_get_i32(&r);
		wire_get_cstr(&r, NULL);
		wire_get_cstr(&r, NULL);
		break;
	case 'v':
		wire_get_i32(&r);
		for (int32_t n = wire_get_i32(&r); n > 0 && !r.failed; n--)
			wire_get_cstr(&r, NULL);
		break;
	default:
		break;
	}
}

static void walk(const uint8_t *data, size_t size, struct auth_login *l)
{
	struct buf out = BUF_INIT;
	struct wire_msg m;

	while (wire_next(data, size, &m) == WIRE_NEXT_OK) {
		wire_type_name(m.type, false);
		read_body(&m, l, &out);
		if (!wire_complete(&m))
			break;
		data += m.total;
		size -= m.total;
	}
	buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct secret secrets[3] = {
		{.kind = SECRET_SCRAM_KEYS, .scram = {.iterations = 1, .salt_len = 3}},
		{.kind = SECRET_MD5, .md5 = "md5d41d8cd98f00b204e9800998ecf8427e"},
		{.kind = SECRET_NONE},
	};

	for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
		struct auth_login *l = auth_login_new("user", &secrets[i]);

		if (!l)
			return 0;
		walk(data, size, l);
		auth_login_free(&l);
	}
	return 0;
}
