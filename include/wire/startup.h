/*
 * The first packet of a connection, which has no type byte. Documentation: "Message Flow",
 * section "Start-up"; "StartupMessage", "CancelRequest", "SSLRequest", "GSSENCRequest".
 */
#ifndef QB_WIRE_STARTUP_H
#define QB_WIRE_STARTUP_H

#include "wire/error.h"

#define STARTUP_MAX 10000 /* bytes, as Postgres */

enum startup_kind {
	STARTUP_MORE,
	STARTUP_BAD,      /* err is filled; close after sending it */
	STARTUP_SSL,      /* SSLRequest */
	STARTUP_GSS,      /* GSSENCRequest */
	STARTUP_TLS,      /* first byte 0x16: direct TLS */
	STARTUP_CANCEL,
	STARTUP_SESSION,
};

struct startup {
	size_t size;          /* bytes of the packet; consume them (not for STARTUP_TLS) */
	int minor;            /* SESSION: minor version asked for, as sent (3.x) */
	const char *params;   /* SESSION: name\0value\0...name\0value\0\0 ; borrows the input */
	size_t params_len;    /* including the final \0 */
	int32_t pid;          /* CANCEL */
	const uint8_t *key;   /* CANCEL: borrows the input */
	size_t key_len;       /* CANCEL: 4 to 256 */
};

enum startup_kind startup_read(const uint8_t *data, size_t len, struct startup *ret, struct pg_error *err);

/* Walks the parameters. *pos starts at 0. Returns false at the end. */
MUST_CHECK bool startup_next(const struct startup *s, size_t *pos, const char **ret_name, const char **ret_value);

/*
 * Walks the settings inside the `options` parameter: `-c name=value`, `-cname=value`,
 * `--name=value`, backslash escapes, as Postgres' pg_split_opts. Returns false at the end;
 * *ret_bad is set when the rest is not of that form. name/value are written to the caller's buffers.
 */
MUST_CHECK bool startup_option_next(const char *options, size_t *pos, char *name, size_t name_size,
	char *value, size_t value_size, bool *ret_bad);

#endif
