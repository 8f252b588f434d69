/* The first packet of a connection, its parameters and the settings inside `options`. */
#include <stdlib.h>
#include <string.h>

#include "wire/startup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Touches a text to its end. */
static size_t touch(const char *s)
{
	volatile size_t n = strlen(s);

	return n;
}

static void walk_options(const char *options)
{
	char name[64], value[64];
	size_t pos = 0;
	bool bad;

	while (startup_option_next(options, &pos, name, sizeof(name), value, sizeof(value), &bad))
		if (pos > strlen(options) || touch(name) == 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct startup s;
	struct pg_error err;
	enum startup_kind kind = startup_read(data, size, &s, &err);
	const char *name, *value;
	size_t pos = 0;

	switch (kind) {
	case STARTUP_SESSION:
		while (startup_next(&s, &pos, &name, &value)) {
			touch(name);
			walk_options(value);
		}
		if (pos + 1 != s.params_len)
			abort();
		break;
	case STARTUP_CANCEL:
		if (s.key_len < 4 || s.key_len > 256 || s.key + s.key_len != data + s.size)
			abort();
		break;
	case STARTUP_BAD:
		touch(err.message);
		return 0;
	default:
		break;
	}
	if (kind != STARTUP_MORE && s.size > size)
		abort();
	return 0;
}
