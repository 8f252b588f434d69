/*
 * The first packet of a connection: what kind it is, and its parameters. Runs before anything is
 * known about the peer, so the length is checked before all else and nothing is copied. Must not
 * know which parameters mean what; that is the pool's business. Entry points: startup_read,
 * startup_next, startup_option_next.
 */
#include "wire/startup.h"

#include <string.h>

#include "wire/msg.h"

#define STARTUP_MIN       8
#define TLS_HANDSHAKE     0x16
#define SPECIAL_MAJOR     1234
#define MINOR_CANCEL      5678
#define MINOR_SSL         5679
#define MINOR_GSS         5680
#define CANCEL_KEY_OFFSET 12
#define CANCEL_KEY_MIN    4
#define CANCEL_KEY_MAX    256

static enum startup_kind bad_length(struct pg_error *err)
{
	pg_error_severity(pg_error_set(err, "08P01", "invalid length of startup packet"), "FATAL");
	return STARTUP_BAD;
}

static bool looks_like_http(const uint8_t *data)
{
	static const char methods[][5] = {"GET ", "POST", "HEAD", "PUT ", "OPTI", "DELE", "PRI "};

	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (memcmp(data, methods[i], 4) == 0)
			return true;
	return false;
}

static enum startup_kind not_a_packet(const uint8_t *data, struct pg_error *err)
{
	if (!looks_like_http(data))
		return bad_length(err);
	pg_error_set(err, "08P01", "this port speaks the PostgreSQL protocol, not HTTP");
	pg_error_severity(err, "FATAL");
	return STARTUP_BAD;
}

static enum startup_kind bad_version(unsigned major, unsigned minor, struct pg_error *err)
{
	pg_error_set(err, "0A000",
		"unsupported frontend protocol %u.%u: server supports 3.0 to 3.2", major, minor);
	pg_error_severity(err, "FATAL");
	return STARTUP_BAD;
}

static enum startup_kind check_special(unsigned minor, size_t size, struct pg_error *err)
{
	switch (minor) {
	case MINOR_SSL:
		return size == STARTUP_MIN ? STARTUP_SSL : bad_length(err);
	case MINOR_GSS:
		return size == STARTUP_MIN ? STARTUP_GSS : bad_length(err);
	case MINOR_CANCEL:
		if (size < CANCEL_KEY_OFFSET + CANCEL_KEY_MIN ||
			size > CANCEL_KEY_OFFSET + CANCEL_KEY_MAX)
			return bad_length(err);
		return STARTUP_CANCEL;
	default:
		return bad_version(SPECIAL_MAJOR, minor, err);
	}
}

/* The pairs must end exactly at the last byte, which is the terminator. */
static enum startup_kind check_params(struct startup *ret, struct pg_error *err)
{
	struct wire_reader r;
	size_t name_len;

	wire_reader_init(&r, ret->params, ret->params_len);
	for (;;) {
		wire_get_cstr(&r, &name_len);
		if (r.failed || name_len == 0)
			break;
		wire_get_cstr(&r, NULL);
	}
	if (wire_done(&r))
		return STARTUP_SESSION;
	pg_error_set(
		err, "08P01", "invalid startup packet layout: expected terminator as last byte");
	pg_error_severity(err, "FATAL");
	return STARTUP_BAD;
}

enum startup_kind startup_read(
	const uint8_t *data, size_t len, struct startup *ret, struct pg_error *err)
{
	struct wire_reader r;
	uint32_t size, code;
	unsigned major, minor;
	enum startup_kind kind;

	*ret = (struct startup){0};
	if (len < 1)
		return STARTUP_MORE;
	if (data[0] == TLS_HANDSHAKE)
		return STARTUP_TLS;
	if (len < 4)
		return STARTUP_MORE;
	wire_reader_init(&r, data, len);
	size = wire_get_u32(&r);
	if (size < STARTUP_MIN || size > STARTUP_MAX)
		return not_a_packet(data, err);
	if (len < STARTUP_MIN)
		return STARTUP_MORE;

	/* What can be refused on its first 8 bytes is refused now, not when the rest has come. */
	code = wire_get_u32(&r);
	major = code >> 16;
	minor = code & 0xFFFF;
	ret->size = size;
	if (major == SPECIAL_MAJOR) {
		kind = check_special(minor, size, err);
	} else if (major == 3) {
		ret->minor = (int)minor;
		ret->params = (const char *)data + STARTUP_MIN;
		ret->params_len = size - STARTUP_MIN;
		kind = STARTUP_SESSION;
	} else {
		kind = bad_version(major, minor, err);
	}
	if (kind == STARTUP_BAD)
		return kind;
	if (len < size)
		return STARTUP_MORE;
	if (kind == STARTUP_CANCEL) {
		ret->pid = wire_get_i32(&r);
		ret->key = r.pos;
		ret->key_len = size - CANCEL_KEY_OFFSET;
	}
	return kind == STARTUP_SESSION ? check_params(ret, err) : kind;
}

bool startup_next(
	const struct startup *s, size_t *pos, const char **ret_name, const char **ret_value)
{
	struct wire_reader r;
	const char *name, *value;
	size_t name_len;

	if (*pos >= s->params_len)
		return false;
	wire_reader_init(&r, s->params + *pos, s->params_len - *pos);
	name = wire_get_cstr(&r, &name_len);
	value = wire_get_cstr(&r, NULL);
	if (r.failed || name_len == 0)
		return false;
	*ret_name = name;
	*ret_value = value;
	*pos = s->params_len - wire_left(&r);
	return true;
}

/* isspace() of the C locale, which is what Postgres splits by. */
static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_space(const char *options, size_t *pos)
{
	while (is_space(options[*pos]))
		(*pos)++;
}

/* Next byte of the current word with its escape removed, or -1 where the word ends. */
static int word_next(const char *options, size_t *pos)
{
	char c = options[*pos];

	if (c == '\0' || is_space(c))
		return -1;
	if (c == '\\') {
		(*pos)++;
		c = options[*pos];
		if (c == '\0')
			return -1;
	}
	(*pos)++;
	return (unsigned char)c;
}

/* Takes the switch in front of a setting, "-c", "-c " or "--". */
static bool take_switch(const char *options, size_t *pos)
{
	int c;

	if (word_next(options, pos) != '-')
		return false;
	c = word_next(options, pos);
	if (c == 'c') {
		skip_space(options, pos);
		return true;
	}
	return c == '-';
}

/* name=value to the end of the word; a dash in the name stands for an underscore. */
static bool take_setting(const char *options, size_t *pos, char *name, size_t name_size,
	char *value, size_t value_size)
{
	size_t n = 0;
	int c;

	while ((c = word_next(options, pos)) != '=') {
		if (c < 0 || n + 1 >= name_size)
			return false;
		name[n++] = c == '-' ? '_' : (char)c;
	}
	if (n == 0)
		return false;
	name[n] = '\0';
	n = 0;
	while ((c = word_next(options, pos)) >= 0) {
		if (n + 1 >= value_size)
			return false;
		value[n++] = (char)c;
	}
	value[n] = '\0';
	return true;
}

bool startup_option_next(const char *options, size_t *pos, char *name, size_t name_size,
	char *value, size_t value_size, bool *ret_bad)
{
	*ret_bad = false;
	skip_space(options, pos);
	if (options[*pos] == '\0')
		return false;
	if (take_switch(options, pos) &&
		take_setting(options, pos, name, name_size, value, value_size))
		return true;
	*ret_bad = true;
	return false;
}
