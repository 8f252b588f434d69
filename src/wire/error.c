/*
 * Filling struct pg_error, the one shape in which an error leaves the proxy. Must not know who will
 * receive it. Entry points: pg_error_*.
 */
#include "wire/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/*
 * A text that was cut by the size of its field must not end in the middle of a UTF-8 character:
 * clients that decode strictly would lose the whole error.
 */
static void trim_partial_char(char *text, size_t len)
{
	size_t start = len, tail;
	uint8_t lead;

	while (start > 0 && len - start < 3 && ((uint8_t)text[start - 1] & 0xC0) == 0x80)
		start--;
	if (!start)
		return;
	start--;
	lead = (uint8_t)text[start];
	tail = len - start;
	if ((lead >= 0xF0 && tail < 4) || (lead >= 0xE0 && tail < 3) || (lead >= 0xC0 && tail < 2))
		text[start] = '\0';
}

static void PRINTF_LIKE(3, 0) set_text(char *dst, size_t size, const char *fmt, va_list ap)
{
	int n = vsnprintf(dst, size, fmt, ap);

	if (n < 0)
		dst[0] = '\0';
	else if ((size_t)n >= size)
		trim_partial_char(dst, size - 1);
}

struct pg_error *pg_error_set(struct pg_error *err, const char *sqlstate, const char *fmt, ...)
{
	va_list ap;

	err->severity = "ERROR";
	util_strlcpy(err->sqlstate, sqlstate, sizeof(err->sqlstate));
	err->detail[0] = err->hint[0] = '\0';
	err->position = 0;
	va_start(ap, fmt);
	set_text(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	return err;
}

struct pg_error *pg_error_detail(struct pg_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_text(err->detail, sizeof(err->detail), fmt, ap);
	va_end(ap);
	return err;
}

struct pg_error *pg_error_hint(struct pg_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_text(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
	return err;
}

struct pg_error *pg_error_severity(struct pg_error *err, const char *severity)
{
	err->severity = severity;
	return err;
}
